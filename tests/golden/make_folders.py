#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_folders.py - small random-weight model folders and the vectors sentence-transformers gives.

    make_folders.py            writes tests/golden/folders/ anew

Every folder is one way a model can be saved: each pooling, Dense and LayerNorm modules, prompts, F16
and BF16, shards, old and new file formats, BERT and MPNet. In each, expected.json lists the runs
(command line flags, texts, file of the vectors). Files that are the same in several folders are links
to the first, so that the whole stays small. Seeds are fixed: the same package versions
(manifest.json) give the same bytes. Needs torch and sentence-transformers; the tests need neither.
"""
import hashlib
import importlib.metadata
import json
import os
import pathlib
import shutil
import tempfile

import numpy
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base import modules as base
from sentence_transformers.sentence_transformer import modules as st

HERE = pathlib.Path(__file__).resolve().parent / "folders"
PACKAGES = ("sentence-transformers", "transformers", "tokenizers", "torch", "safetensors", "numpy")
WORDS = """the a of to and in is it you that he was for on are with as i his they be at one have this
cat sat mat dog ran road sea ship sun rain ing ed er est ly un re""".split()
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"

TEXTS = [
    "the cat sat on the mat", "The Dog RAN!", "", "   ", "a", "rain at sea, sun on the road.",
    "café and Ñandú: it is you", "unseen ☃ snow and 日本 too", "[SEP] in a text", "he was re-running 3 ships",
    "one\ntwo\tthree", "the ship is at sea " * 3, "it rained and rained and rained; " * 6,
    " ".join(WORDS) * 4, "x" * 120, "<pad> padded <mask> masked </s>",
    "the sea and the road " * 50, "a cat, a dog; " * 30,
]


def write_json(path: pathlib.Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def randomise(model: torch.nn.Module, seed: int) -> None:
    """Every tensor matters and none is at its default; the scale keeps attention far from uniform."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.named_parameters():
        noise = torch.randn(tensor.shape, generator=generator)
        if tensor.dim() == 1 and name.endswith("weight"):  # of a norm
            tensor.data = 1 + 0.2 * noise
        elif tensor.dim() == 1:
            tensor.data = 0.1 * noise
        else:
            tensor.data = noise / tensor.shape[-1] ** 0.5 * 1.5


def bert_tokenizer(folder: pathlib.Path, lower: bool = True) -> transformers.PreTrainedTokenizerBase:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = list(LETTERS) + ["##" + letter for letter in LETTERS] + WORDS[1:] + list(",.;:!-")
    pieces += [] if lower else list("TDRANÑ")
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(special + pieces)) + "\n", encoding="utf-8")
    return transformers.BertTokenizerFast(
        vocab=str(folder / "vocab.txt"), do_lower_case=lower, strip_accents=lower or None,
        model_max_length=64)


def mpnet_tokenizer(folder: pathlib.Path) -> transformers.PreTrainedTokenizerBase:
    special = ["<s>", "<pad>", "</s>", "[UNK]"]
    pieces = list(LETTERS) + ["##" + letter for letter in LETTERS] + WORDS[1:] + list(",.;:!-")
    (folder / "vocab.txt").write_text(
        "\n".join(dict.fromkeys(special + pieces + ["<mask>"])) + "\n", encoding="utf-8")
    return transformers.MPNetTokenizerFast(vocab=str(folder / "vocab.txt"), model_max_length=512)


def qwen_tokenizer(texts: list[str], size: int, words: tuple = (), **settings) -> transformers.PreTrainedTokenizerBase:
    """Qwen2's class over a small vocabulary of bytes, with `words` in it; <|endoftext|> pads."""
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(texts, vocab_size=size, show_progress=False)
    model = json.loads(trained._tokenizer.to_str())["model"]  # pylint: disable=protected-access
    for word in words:
        model["vocab"].setdefault(word, len(model["vocab"]))
    return transformers.Qwen2TokenizerFast(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]], **settings)


def ended_tokenizer(folder: pathlib.Path) -> transformers.PreTrainedTokenizerBase:
    """One that ends every text as Qwen's embedding models do."""
    del folder
    made, end = qwen_tokenizer([" ".join([*WORDS, *LETTERS])] * 3, 300, model_max_length=64), "<|endoftext|>"
    made.backend_tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A $B:1 {end}:1", special_tokens=[(end, made.convert_tokens_to_ids(end))])
    return made


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def save_bert(folder: pathlib.Path, seed: int = 1, kind=transformers.BertModel, lower: bool = True,
              dtype=torch.float32, **changes) -> None:
    """config.json, model.safetensors and the tokenizer's files."""
    tokenizer = bert_tokenizer(folder, lower)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), **(SIZES | {"max_position_embeddings": 64} | changes))
    model = kind(config)
    randomise(model, seed)
    model.to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_mpnet(folder: pathlib.Path, kind=transformers.MPNetModel, **changes) -> None:
    tokenizer = mpnet_tokenizer(folder)
    config = transformers.MPNetConfig(
        vocab_size=len(tokenizer), **(SIZES | {"max_position_embeddings": 226} | changes))
    model = kind(config)
    randomise(model, 2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


OLD = "sentence_transformers.models."
NEW = "sentence_transformers.sentence_transformer.modules."


def save_modules(folder: pathlib.Path, pooling: dict, after: list = (), old: bool = True,
                 sub: str = "", sentence: dict | None = None, settings: dict | None = None) -> None:
    """modules.json with a Pooling and the modules after it: (type, config, tensors)."""
    prefix = OLD if old else NEW
    first = prefix + "Transformer" if old else "sentence_transformers.base.modules.transformer.Transformer"
    modules = [{"idx": 0, "name": "0", "path": sub, "type": first},
               {"idx": 1, "name": "1", "path": "1_Pooling",
                "type": prefix + ("Pooling" if old else "pooling.Pooling")}]
    (folder / "1_Pooling").mkdir()
    write_json(folder / "1_Pooling/config.json", pooling)
    for index, (kind, config, tensors) in enumerate(after, start=2):
        path = f"{index}_{kind}"
        modules.append({"idx": index, "name": str(index), "path": path, "type": prefix + kind})
        (folder / path).mkdir()
        if config is not None:
            write_json(folder / path / "config.json", config)
        if tensors:
            save_file(tensors, folder / path / "model.safetensors")
    write_json(folder / "modules.json", modules)
    write_json(folder / sub / "sentence_bert_config.json",
               {"max_seq_length": 48, "do_lower_case": False} if sentence is None else sentence)
    if settings is not None:
        write_json(folder / "config_sentence_transformers.json", settings)


def old_pooling(*modes: str, **more) -> dict:
    names = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens",
             "lasttoken")
    return {"word_embedding_dimension": 32} | {f"pooling_mode_{n}": n in modes for n in names} | more


def dense(size_in: int, size_out: int, activation: str, bias: bool = True, seed: int = 5) -> tuple:
    generator = torch.Generator().manual_seed(seed)
    tensors = {"linear.weight": torch.randn(size_out, size_in, generator=generator) / size_in ** 0.5}
    if bias:
        tensors["linear.bias"] = torch.randn(size_out, generator=generator) * 0.1
    return ("Dense", {"in_features": size_in, "out_features": size_out, "bias": bias,
                      "activation_function": "torch.nn.modules." + activation}, tensors)


NORMALIZE = ("Normalize", None, None)
MEAN = old_pooling("mean_tokens")


def layer_norm(size: int) -> tuple:
    generator = torch.Generator().manual_seed(6)
    return ("LayerNorm", {"dimension": size},
            {"norm.weight": 1 + 0.3 * torch.randn(size, generator=generator),
             "norm.bias": 0.2 * torch.randn(size, generator=generator)})


def rename_to_gamma(folder: pathlib.Path) -> None:
    """As the first BERT files had it."""
    tensors = load_file(folder / "model.safetensors")
    for old, new in (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")):
        tensors = {name.replace(old, new): tensor for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def split(folder: pathlib.Path, shards: int) -> None:
    """model.safetensors -> shards and their index."""
    tensors = load_file(folder / "model.safetensors")
    names, weight_map = sorted(tensors), {}
    for index in range(shards):
        file = f"model-{index + 1:05}-of-{shards:05}.safetensors"
        part = names[index::shards]
        save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
        weight_map |= {name: file for name in part}
    write_json(folder / "model.safetensors.index.json",
               {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())},
                "weight_map": weight_map})
    (folder / "model.safetensors").unlink()


RUNS = [{"flags": [], "encode": {}}]


def new_folder(name: str) -> pathlib.Path:
    path = HERE / name
    path.mkdir()
    return path


def finish(path: pathlib.Path, runs: list = RUNS, **load) -> None:
    """Embed the texts, one at a time so that padding plays no part; write what came out."""
    for unused in ("special_tokens_map.json", "generation_config.json"):
        for file in path.rglob(unused):
            file.unlink()
    model = SentenceTransformer(str(path), device="cpu", model_kwargs={"dtype": torch.float32}, **load)
    expected = []
    for index, run in enumerate(runs):
        rows = numpy.stack([model.encode(text, show_progress_bar=False, **run["encode"])
                            for text in TEXTS])
        numpy.save(path / f"expected-{index}.npy", rows.astype("<f4"))
        expected.append({"flags": run["flags"], "vectors": f"expected-{index}.npy",
                         "max_length": int(min(model.max_seq_length, 1 << 20))})
    write_json(path / "expected.json", expected)


def make_pooling() -> None:
    for name in ("cls_token", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"):
        path = new_folder("pooling-" + name.replace("_tokens", "").replace("_token", ""))
        save_bert(path)
        save_modules(path, old_pooling(name), [NORMALIZE])
        finish(path)
    path = new_folder("pooling-concat-old")
    save_bert(path)
    save_modules(path, old_pooling("mean_tokens", "lasttoken", "cls_token", "max_tokens"))
    finish(path)
    path = new_folder("pooling-concat-new")
    save_bert(path)
    save_modules(path, {"embedding_dimension": 32, "pooling_mode": ["mean", "weightedmean", "cls"],
                        "include_prompt": True}, [NORMALIZE], old=False)
    finish(path)
    path = new_folder("pooling-none-set")
    save_bert(path)
    save_modules(path, old_pooling())
    finish(path)


def make_modules() -> None:
    cases = {
        "dense-tanh": [dense(32, 16, "activation.Tanh"), NORMALIZE],
        "dense-identity": [NORMALIZE, dense(32, 40, "linear.Identity", bias=False),
                           dense(40, 24, "activation.GELU"), NORMALIZE],
        "dense-relu": [dense(32, 8, "activation.ReLU"), dense(8, 12, "activation.Sigmoid")],
        "layer-norm": [("Dropout", {"dropout": 0.1}, None), layer_norm(32), NORMALIZE],
        "normalize-dense": [NORMALIZE, dense(32, 20, "activation.Tanh")],
        "normalize-layer-norm": [NORMALIZE, layer_norm(32), ("Dropout", {"dropout": 0.1}, None)],
    }
    for name, after in cases.items():
        path = new_folder(name)
        save_bert(path)
        save_modules(path, MEAN, after)
        finish(path)
    path = new_folder("subfolder")
    (path / "0_Transformer").mkdir()
    save_bert(path / "0_Transformer")
    save_modules(path, {"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": True},
                 [], old=False, sub="0_Transformer")
    finish(path)


def make_weights() -> None:
    for name, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16)):
        path = new_folder("weights-" + name)
        save_bert(path, dtype=dtype)
        save_modules(path, MEAN, [NORMALIZE])
        finish(path)
    path = new_folder("weights-sharded")
    save_bert(path)
    split(path, 3)
    save_modules(path, MEAN, [NORMALIZE])
    finish(path)
    path = new_folder("weights-gamma")
    save_bert(path)
    save_modules(path, MEAN, [NORMALIZE])
    finish(path)
    rename_to_gamma(path)  # transformers >= 5 no longer renames them itself
    path = new_folder("weights-prefix")  # "bert." in front of every name, and heads that are not used
    save_bert(path, kind=transformers.BertForMaskedLM, dtype=torch.bfloat16)
    save_modules(path, MEAN, [NORMALIZE])
    finish(path)


def make_prompts() -> None:
    prompts = {"query": "the road: ", "passage": "sea ", "nothing": None}
    runs = [{"flags": [], "encode": {}},
            {"flags": ["--prompt-name", "passage"], "encode": {"prompt_name": "passage"}},
            {"flags": ["--prompt-name", "nothing"], "encode": {"prompt_name": "nothing"}},
            {"flags": ["--prompt", "un"], "encode": {"prompt": "un"}}]
    settings = {"prompts": prompts, "default_prompt_name": "query", "similarity_fn_name": "dot"}
    path = new_folder("prompts")
    save_bert(path)
    save_modules(path, MEAN, [NORMALIZE], settings=settings)
    finish(path, runs)
    for mode in ("mean_tokens", "cls_token", "weightedmean_tokens", "max_tokens"):
        path = new_folder("prompts-left-out-" + mode.split("_")[0])
        save_bert(path)
        save_modules(path, old_pooling(mode, include_prompt=False), [NORMALIZE], settings=settings)
        finish(path, runs[:2])
    path = new_folder("truncate-dim")
    save_bert(path)
    save_modules(path, MEAN, [NORMALIZE], settings={"truncate_dim": 20})
    finish(path)


def make_lengths() -> None:
    for name, sentence in (("tokenizer", {"do_lower_case": False}),
                           ("short", {"max_seq_length": 8}),
                           ("arguments", {"max_seq_length": 40, "tokenizer_args": {"model_max_length": 16}})):
        path = new_folder("length-" + name)
        save_bert(path)
        save_modules(path, MEAN, [NORMALIZE], sentence=sentence)
        finish(path)
    path = new_folder("length-over")  # more than there are positions: clamped
    save_bert(path)
    save_modules(path, MEAN, [NORMALIZE])
    finish(path, processor_kwargs={"model_max_length": 64})
    write_json(path / "sentence_bert_config.json", {"max_seq_length": 5000})
    path = new_folder("lower-case")
    save_bert(path, lower=False)
    save_modules(path, MEAN, [NORMALIZE], sentence={"max_seq_length": 48, "do_lower_case": True})
    finish(path)


def make_plain() -> None:
    path = new_folder("plain-bert")
    save_bert(path)
    finish(path)
    path = new_folder("plain-vocab")  # no tokenizer.json
    save_bert(path, lower=False)
    finish(path)
    (path / "tokenizer.json").unlink()
    path = new_folder("shape-l3")  # paraphrase-MiniLM-L3-v2 made small: three layers, twelve heads
    save_bert(path, dtype=torch.float16, hidden_size=48, num_hidden_layers=3, num_attention_heads=12,
              intermediate_size=192)
    save_modules(path, MEAN | {"word_embedding_dimension": 48})
    finish(path)
    path = new_folder("shape-odd")  # nothing is a multiple of a vector register
    save_bert(path, dtype=torch.float16, hidden_size=21, num_hidden_layers=1, num_attention_heads=3,
              intermediate_size=37, type_vocab_size=1, layer_norm_eps=1e-3)
    save_modules(path, MEAN | {"word_embedding_dimension": 21}, [NORMALIZE])
    finish(path)
    for act in ("gelu_new", "relu", "silu"):
        path = new_folder("activation-" + act)
        save_bert(path, hidden_act=act)
        save_modules(path, MEAN, [NORMALIZE])
        finish(path)


def make_saved() -> None:
    """What the sentence-transformers of today writes itself."""
    path = new_folder("saved")
    with tempfile.TemporaryDirectory() as plain:
        save_bert(pathlib.Path(plain))
        torch.manual_seed(7)
        modules = [base.Transformer(plain, max_seq_length=24), st.Pooling(32, ("cls", "mean")),
                   base.Dense(64, 16, activation_function=torch.nn.GELU()), base.Normalize()]
        model = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "the "},
                                    default_prompt_name="query", similarity_fn_name="euclidean")
        model.save(str(path), create_model_card=False)
    finish(path)


def make_mpnet() -> None:
    path = new_folder("mpnet")
    save_mpnet(path)
    save_modules(path, MEAN, [NORMALIZE], sentence={"max_seq_length": 200})
    finish(path)
    path = new_folder("mpnet-plain")  # "mpnet." in front, usable length from the positions
    save_mpnet(path, kind=transformers.MPNetForMaskedLM, layer_norm_eps=1e-5)
    finish(path, processor_kwargs={"model_max_length": 224})


def link_duplicates() -> None:
    """Each file that an earlier folder holds too becomes a relative link to it."""
    seen: dict[str, pathlib.Path] = {}
    for file in sorted(HERE.rglob("*")):
        if not file.is_file() or file.stat().st_size < 256:
            continue
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        if digest in seen:
            file.unlink()
            file.symlink_to(os.path.relpath(seen[digest], file.parent))
        else:
            seen[digest] = file


def main() -> None:
    import make_families  # which imports this file
    torch.set_num_threads(1)
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    write_json(HERE / "texts.json", TEXTS)
    for make in (make_pooling, make_modules, make_weights, make_prompts, make_lengths, make_plain,
                 make_saved, make_mpnet):
        make()
    make_families.make_all()
    link_duplicates()
    write_json(HERE / "manifest.json",
               {"made by": "tests/golden/make_folders.py",
                "versions": {name: importlib.metadata.version(name) for name in PACKAGES}})


if __name__ == "__main__":
    main()
