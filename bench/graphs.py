# SPDX-License-Identifier: Apache-2.0
"""graphs.py MODEL FOLDER [NAME ...] - the graphs of the peers, made once: FOLDER/plain.onnx, fused.onnx, int8.onnx and,
where nncf is installed and it is asked for by name, openvino-int8.xml.

plain: exported by torch, ids and mask (and types, where the model has them) in, last_hidden_state out, both axes
dynamic. fused: onnxruntime.transformers' BERT fusions, the better one for a single query. int8: onnxruntime's dynamic
quantisation at its best, per channel with reduced range on the plain graph (without VNNI the full range saturates; on
the fused graph it is slower). openvino-int8: nncf's quantisation after training for transformers, weights and activations,
as sentence-transformers exports it, calibrated on 100 sentences of DATA (BENCH_DATA). FOLDER also becomes what fastembed takes: the plain graph beside the tokenizer's files,
with the model's own limit of tokens.
"""
import json
import os
import pathlib
import shutil
import sys


def takes_types(config: dict) -> bool:
    """Whether the graph gets token types: torch bakes the length of those that these models make themselves."""
    return config["model_type"] in ("bert", "gte") and config.get("type_vocab_size", 2) > 0


def export(model, names: list[str], take, target: pathlib.Path, output: str) -> None:
    """take(what the model gave, its inputs) as the one output, dynamic in texts and tokens."""
    import torch

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given):
            return take(self.model(**dict(zip(names, given))), given)

    ids = torch.full((2, 9), 5, dtype=torch.int64)
    given = (ids, torch.ones_like(ids), torch.zeros_like(ids))[:len(names)]
    whole = {0: "batch", 1: "tokens"} if output == "last_hidden_state" else {0: "batch"}
    with torch.no_grad():
        torch.onnx.export(Whole(), given, str(target), input_names=names, output_names=[output],
                          dynamic_axes={name: {0: "batch", 1: "tokens"} for name in names} | {output: whole}, opset_version=17, dynamo=False)


def export_plain(folder: str, target: pathlib.Path) -> None:
    from transformers import AutoConfig, AutoModel, T5EncoderModel
    kind = T5EncoderModel if AutoConfig.from_pretrained(folder).model_type == "t5" else AutoModel
    model = kind.from_pretrained(folder, attn_implementation="eager").eval()
    names = ["input_ids", "attention_mask"] + (["token_type_ids"] if takes_types(model.config.to_dict()) else [])
    export(model, names, lambda found, _: found.last_hidden_state, target, "last_hidden_state")


def fuse(folder: str, plain: pathlib.Path, target: pathlib.Path) -> None:
    from onnxruntime.transformers import optimizer
    with open(folder + "/config.json", encoding="utf-8") as file:
        config = json.load(file)
    optimizer.optimize_model(str(plain), model_type="bert", num_heads=config["num_attention_heads"],
                             hidden_size=config["hidden_size"], opt_level=1).save_model_to_file(str(target))


def quantise(plain: pathlib.Path, target: pathlib.Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic
    quantize_dynamic(str(plain), str(target), per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)


def quantise_openvino(folder: str, plain: pathlib.Path, target: pathlib.Path) -> None:
    import nncf
    import numpy
    import openvino
    import tokenizers
    encoder = tokenizers.Tokenizer.from_file(folder + "/tokenizer.json")
    model = openvino.Core().read_model(str(plain))
    names = [given.get_any_name() for given in model.inputs]
    with open(pathlib.Path(os.environ["BENCH_DATA"]) / "stsb-en-train.jsonl", encoding="utf-8") as file:
        texts = [json.loads(line)["a"] for line, _ in zip(file, range(100))]

    def inputs(text: str) -> dict:
        ids = numpy.array([encoder.encode(text).ids])
        return {name: {"i": ids, "a": numpy.ones_like(ids)}.get(name[0], numpy.zeros_like(ids)) for name in names}

    made = nncf.quantize(model, nncf.Dataset(texts, inputs), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(texts))
    openvino.save_model(made, str(target))


def fastembed_files(folder: str, target: pathlib.Path) -> None:
    for name in ("config.json", "tokenizer.json", "special_tokens_map.json"):
        if os.path.exists(f"{folder}/{name}"):
            shutil.copyfile(f"{folder}/{name}", target / name)
    with open(folder + "/sentence_bert_config.json", encoding="utf-8") as file:
        limit = json.load(file)["max_seq_length"]
    with open(folder + "/config.json", encoding="utf-8") as file:
        pad = json.load(file).get("pad_token_id", 0)
    settings = {"pad_token": "[PAD]" if pad == 0 else "<pad>"}
    if os.path.exists(folder + "/tokenizer_config.json"):
        with open(folder + "/tokenizer_config.json", encoding="utf-8") as file:
            settings |= json.load(file)
    settings |= {"model_max_length": limit, "max_length": limit}
    (target / "tokenizer_config.json").write_text(json.dumps(settings))
    if not (target / "special_tokens_map.json").exists():
        (target / "special_tokens_map.json").write_text(json.dumps({"pad_token": settings["pad_token"]}))


def main(folder: str, target: pathlib.Path, wanted: list[str]) -> None:
    """Each file appears only when it is whole."""
    target.mkdir(parents=True, exist_ok=True)
    plain = target / "plain.onnx"
    for name, make in (("plain", lambda path: export_plain(folder, path)), ("fused", lambda path: fuse(folder, plain, path)),
                       ("int8", lambda path: quantise(plain, path))):
        if not (target / f"{name}.onnx").exists() and name in (wanted or [name]):
            make(target / f"{name}.part")
            os.replace(target / f"{name}.part", target / f"{name}.onnx")
    if "openvino-int8" in wanted and not (target / "openvino-int8.xml").exists():
        quantise_openvino(folder, plain, target / "part.xml")
        for ending in ("bin", "xml"):
            os.replace(target / f"part.{ending}", target / f"openvino-int8.{ending}")
    fastembed_files(folder, target)


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:])
