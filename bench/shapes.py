# SPDX-License-Identifier: Apache-2.0
"""shapes.py NAME FOLDER - a model folder of the full size of a published model, with random weights.

Speed does not depend on what the weights are, so nothing is downloaded. Vocabulary, widths, layers and switches are the
published ones; so are the tokenizers of ModernBERT and Qwen3 where BENCH_TOKENIZERS (a folder) has them. BERT's vocabulary is
that of the default model (BENCH_MODEL), and stands in for multilingual-e5's unless FLETCH_E5 is there. The weights are
spread widely enough that 64 texts tell one model from another (families.py holds all engines to the same vectors).
gemma2-2b-4 is 4 of the 26 layers of Gemma 2 2B, with BERT's vocabulary. A folder is whole or not there.
"""
import json
import os
import pathlib
import shutil
import sys

SHAPES = ("nomic-v1.5", "gte-base", "modernbert-base", "multilingual-e5-small", "qwen3-0.6b", "deberta-v3-base", "t5-base", "gemma2-2b-4")
CLS, MEAN, LAST = "cls", "mean", "lasttoken"


def config_of(name: str):
    """transformers' config, pooling and tokenizer.json's name; max_length is 512 for all."""
    import transformers
    base = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
    modern = transformers.ModernBertConfig
    return {
        "nomic-v1.5": lambda: (transformers.NomicBertConfig(
            **base, vocab_size=30528, max_position_embeddings=2048, hidden_act="silu", type_vocab_size=2,
            rope_parameters={"rope_type": "default", "rope_theta": 1000.0}), MEAN, "bert"),
        "gte-base": lambda: (transformers.GteConfig(
            **base, vocab_size=30528, max_position_embeddings=8192, hidden_act="gelu", type_vocab_size=0,
            rope_parameters={"rope_type": "default", "rope_theta": 500000.0}), CLS, "bert"),
        "modernbert-base": lambda: (modern(
            vocab_size=50368, hidden_size=768, num_hidden_layers=22, num_attention_heads=12, intermediate_size=1152,
            max_position_embeddings=8192), MEAN, "modernbert"),
        "multilingual-e5-small": lambda: (transformers.BertConfig(
            vocab_size=250037, hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536,
            max_position_embeddings=512), MEAN, "e5"),
        "qwen3-0.6b": lambda: (transformers.Qwen3Config(
            vocab_size=151669, hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
            head_dim=128, intermediate_size=3072, max_position_embeddings=32768, rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}), LAST, "qwen3"),
        "deberta-v3-base": lambda: (transformers.DebertaV2Config(
            **base, vocab_size=128100, max_position_embeddings=512, relative_attention=True, position_biased_input=False, position_buckets=256,
            norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"], type_vocab_size=0), CLS, "bert"),
        "t5-base": lambda: (transformers.T5Config(
            vocab_size=32128, d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12, feed_forward_proj="relu"), MEAN, "bert"),
        "gemma2-2b-4": lambda: (transformers.Gemma2Config(
            vocab_size=30528, hidden_size=2304, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
            intermediate_size=9216, max_position_embeddings=8192), LAST, "bert"),
    }[name]()


def tokenizer_of(kind: str) -> pathlib.Path:
    bert = pathlib.Path(os.environ["BENCH_MODEL"]) / "tokenizer.json"
    if kind == "e5":
        found = pathlib.Path(os.environ.get("FLETCH_E5", "")) / "tokenizer.json"
    else:
        found = pathlib.Path(os.environ.get("BENCH_TOKENIZERS", "")) / f"{kind}.json"
    return found if found.is_file() else bert


def write_json(path: pathlib.Path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def write_modules(folder: pathlib.Path, package: str, *kinds: str) -> None:
    """modules.json; the first module lies in the folder itself, the others in folders of their own."""
    paths = ["", *(f"{index}_{kind}" for index, kind in enumerate(kinds[1:], start=1))]
    write_json(folder / "modules.json", [{"idx": index, "name": str(index), "path": path, "type": package + kind}
                                         for index, (path, kind) in enumerate(zip(paths, kinds))])
    for path in paths[1:]:
        (folder / path).mkdir(exist_ok=True)


def make(name: str, folder: pathlib.Path) -> None:
    import torch
    import transformers
    config, pooling, kind = config_of(name)
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    source = tokenizer_of(kind)
    tokenizer = json.loads(source.read_text(encoding="utf-8"))
    tokenizer["padding"] = None
    write_json(part / "tokenizer.json", tokenizer)
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    pad = next(word for word in ("[PAD]", "<pad>", "<|endoftext|>") if word in ids)
    write_json(part / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": pad,
                                                "model_max_length": 512})
    config.pad_token_id = ids[pad]
    for key in ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"):
        if getattr(config, key, None) is not None:
            setattr(config, key, ids[pad])
    torch.manual_seed(20261123)
    kind = transformers.T5EncoderModel if config.model_type == "t5" else transformers.AutoModel
    model = (kind(config) if config.model_type == "t5" else kind.from_config(config, dtype=torch.float32)).eval()
    for tensor in model.parameters():
        if tensor.dim() > 1:
            tensor.data.normal_(0.0, tensor.shape[-1] ** -0.5)
    model.save_pretrained(part)
    written = json.loads((part / "config.json").read_text(encoding="utf-8"))
    write_json(part / "config.json", written | {"hidden_size": config.hidden_size})  # T5 says it in another word, which peers do not read
    write_modules(part, "sentence_transformers.models.", "Transformer", "Pooling", "Normalize")
    write_json(part / "1_Pooling/config.json", {"word_embedding_dimension": config.hidden_size} | {
        f"pooling_mode_{key}": pooling in key for key in ("cls_token", "mean_tokens", "lasttoken")})
    write_json(part / "sentence_bert_config.json", {"max_seq_length": 512, "do_lower_case": False})
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


if __name__ == "__main__":
    make(sys.argv[1], pathlib.Path(sys.argv[2]))
