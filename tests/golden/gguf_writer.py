# SPDX-License-Identifier: Apache-2.0
"""gguf_writer.py - a model folder becomes a GGUF file with the keys and names that llama.cpp's convert_hf_to_gguf.py
(of llama-cpp-python 0.3.36) gives it, for the golden tests."""
import json
import pathlib
import re

import gguf
import numpy
from safetensors.numpy import load_file

SIZES = {"hidden_size": "embedding_length", "num_hidden_layers": "block_count", "intermediate_size": "feed_forward_length",
         "num_attention_heads": "attention.head_count", "max_position_embeddings": "context_length"}
NORM = {"layer_norm_eps": "attention.layer_norm_epsilon"}
BERT = SIZES | NORM | {"type_vocab_size": "tokenizer.ggml.token_type_count"}
DISTIL = {"dim": "embedding_length", "n_layers": "block_count", "hidden_dim": "feed_forward_length",
          "n_heads": "attention.head_count", "max_position_embeddings": "context_length"}
NOMIC = BERT | {"n_embd": "embedding_length", "n_layer": "block_count", "n_inner": "feed_forward_length",
                "n_head": "attention.head_count", "n_positions": "context_length", "rotary_emb_base": "rope.freq_base",
                "layer_norm_epsilon": "attention.layer_norm_epsilon"}
MOE = NOMIC | {"num_experts": "expert_count", "moe_top_k": "expert_used_count", "moe_every_n_layers": "moe_every_n_layers"}
MODERN = SIZES | {"norm_eps": "attention.layer_norm_epsilon", "local_attention": "attention.sliding_window",
                  "hidden_activation": "hidden_activation"}
LLAMA = SIZES | {"num_key_value_heads": "attention.head_count_kv", "rms_norm_eps": "attention.layer_norm_rms_epsilon",
                 "rope_theta": "rope.freq_base", "head_dim": "attention.key_length", "is_causal": "attention.causal"}
GEMMA = LLAMA | {"sliding_window": "attention.sliding_window"}

ARCH = gguf.MODEL_ARCH
ARCHITECTURES = {  # model_type: architecture, keys
    "bert": (ARCH.BERT, BERT), "roberta": (ARCH.BERT, BERT), "xlm-roberta": (ARCH.BERT, BERT), "camembert": (ARCH.BERT, BERT),
    "distilbert": (ARCH.BERT, DISTIL), "nomic_bert": (ARCH.NOMIC_BERT, NOMIC), "modernbert": (ARCH.MODERN_BERT, MODERN),
    "qwen3": (ARCH.QWEN3, LLAMA), "qwen2": (ARCH.QWEN2, LLAMA), "llama": (ARCH.LLAMA, LLAMA),
    "eurobert": (ARCH.EUROBERT, LLAMA), "gemma3_text": (ARCH.GEMMA_EMBEDDING, GEMMA),
}
LEFT_OUT = re.compile(r"pooler\.|position_ids|cls\.|lm_head\.|vocab_")
CHOPPED = ("roberta", "xlm-roberta", "camembert")


def architecture_of(config: dict):
    """gguf's number of the architecture, and the keys of its config.json."""
    if config.get("position_embedding_type") == "alibi":
        return ARCH.JINA_BERT_V2, BERT
    if "num_experts" in config:
        return ARCH.NOMIC_BERT_MOE, MOE
    return ARCHITECTURES[config["model_type"]]


POOLINGS = {"mean": 1, "cls": 2, "lasttoken": 3}


def pooling_of(folder: pathlib.Path) -> int | None:
    path = folder / "1_Pooling/config.json"
    if not path.is_file():
        return None
    config = json.loads(path.read_text())
    if isinstance(config.get("pooling_mode"), str):
        return POOLINGS.get(config["pooling_mode"])
    return next((value for key, value in {"pooling_mode_mean_tokens": 1, "pooling_mode_cls_token": 2,
                                          "pooling_mode_lasttoken": 3}.items() if config.get(key)), None)


def wordpiece(tokenizer: dict, count: int) -> dict:
    """tokenizer.ggml.* of a WordPiece vocabulary: a mark at words' beginnings, none inside."""
    names = {id: token for token, id in tokenizer["model"]["vocab"].items()}
    added = {token["id"]: token for token in tokenizer["added_tokens"]}
    tokens, types = [], []
    for id in range(count):
        token = added[id]["content"] if id in added else names.get(id, f"[PAD{id}]")
        kind = 5 if id not in added and id not in names else 3 if id in added and added[id]["special"] else \
            4 if id in added else 1
        types.append(kind)
        tokens.append(token if kind == 3 else token[2:] if token.startswith("##") else "\u2581" + token)
    out = {"model": "bert", "tokens": tokens, "token_type": types}
    ids = {token: id for id, token in enumerate(tokens)}
    post = tokenizer["post_processor"]
    first, last = (("[CLS]", "[SEP]") if "single" in post else (post["cls"][0], post["sep"][0]))
    out |= {"cls_token_id": ids[first], "bos_token_id": ids[first], "seperator_token_id": ids[last],
            "eos_token_id": ids[last], "unknown_token_id": ids.get("[UNK]", ids.get("<unk>"))}
    normalizer = tokenizer["normalizer"]
    out["normalizer.lowercase"] = normalizer["lowercase"]
    if normalizer["strip_accents"] is not None:
        out["normalizer.strip_accents"] = normalizer["strip_accents"]
    return out


def byte_level(tokenizer: dict, count: int) -> dict:
    """tokenizer.ggml.* of Qwen's byte-level BPE."""
    names = {id: token for token, id in tokenizer["model"]["vocab"].items()}
    added = {token["id"]: token for token in tokenizer["added_tokens"]}
    names |= {id: token["content"] for id, token in added.items()}
    single = [part.get("SpecialToken", {}).get("id") for part in tokenizer["post_processor"]["single"]]
    ids = {token: id for id, token in names.items()}
    out = {"model": "gpt2", "pre": "qwen2", "tokens": [names.get(id, f"[PAD{id}]") for id in range(count)],
           "token_type": [3 if id in added else 1 if id in names else 5 for id in range(count)],
           "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]],
           "add_bos_token": single[0] is not None, "add_eos_token": single[-1] is not None}
    return out | {key: ids[token] for key, token in (("bos_token_id", single[0]), ("eos_token_id", single[-1])) if token}


def put(writer, key: str, value) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, (list, bytes)):
        writer.add_array(key, value)
    else:
        writer.add_string(key, value)


def rotary(config: dict) -> dict:
    """Bases, the window's pattern and which layers have one, as config.json of transformers 5 says it."""
    rope = config.get("rope_parameters") or {}
    out = {}
    if "full_attention" in rope:
        out = {"rope.freq_base": rope["full_attention"]["rope_theta"], "rope.freq_base_swa": rope["sliding_attention"]["rope_theta"]}
    elif "rope_theta" in rope:
        out = {"rope.freq_base": rope["rope_theta"]}
    if config["model_type"] in ("modernbert", "gemma3_text") and "layer_types" in config:
        out["attention.sliding_window_pattern"] = [kind == "sliding_attention" for kind in config["layer_types"]]
    return out


def metadata(folder: pathlib.Path) -> dict:
    config = json.loads((folder / "config.json").read_text())
    number, keys = architecture_of(config)
    name = gguf.MODEL_ARCH_NAMES[number]
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    out = {key: config[word] for word, key in keys.items() if word in config} | rotary(config)
    if "head_dim" in config and "attention.key_length" in out:
        out["attention.value_length"] = config["head_dim"]
    if config["model_type"] in CHOPPED:
        out["context_length"] -= config["pad_token_id"] + 1
    if config["model_type"] == "distilbert":
        out |= {"tokenizer.ggml.token_type_count": 1, "attention.layer_norm_epsilon": 1e-12}
    if number not in (ARCH.QWEN2, ARCH.QWEN3, ARCH.LLAMA, ARCH.GEMMA_EMBEDDING):
        out["attention.causal"] = False
    pooling = pooling_of(folder)
    if pooling is not None:
        out["pooling_type"] = pooling
    for dense in (2, 3):
        if (folder / f"{dense}_Dense").is_dir():
            told = json.loads((folder / f"{dense}_Dense/config.json").read_text())
            out |= {f"dense_{dense}_feat_in": told["in_features"], f"dense_{dense}_feat_out": told["out_features"]}
    out = {key if key.startswith("tokenizer.") else f"{name}.{key}": value for key, value in out.items()}
    kind = wordpiece if tokenizer["model"]["type"] == "WordPiece" else byte_level
    return out | {f"tokenizer.ggml.{key}": value for key, value in kind(tokenizer, config["vocab_size"]).items()}


def in_turns(data: numpy.ndarray, heads: int) -> numpy.ndarray:
    """Rows as llama.cpp's Llama wants them: the two halves of a head in turns."""
    half = data.reshape(heads, 2, data.shape[0] // heads // 2, *data.shape[1:])
    return half.swapaxes(1, 2).reshape(data.shape)


def tensors(folder: pathlib.Path) -> dict[str, numpy.ndarray]:
    """The tensors under the names that the gguf package maps theirs to."""
    config = json.loads((folder / "config.json").read_text())
    number, _ = architecture_of(config)
    names = gguf.get_tensor_name_map(number, config.get("num_hidden_layers") or config.get("n_layers") or config.get("n_layer"))
    out = {}
    for name, data in load_file(folder / "model.safetensors").items():
        bare = re.sub(r"^(bert|roberta|distilbert|nomic_bert|xlm-roberta|camembert|model)\.", "", name)
        if LEFT_OUT.search(bare):
            continue
        if "mlp.experts." in bare:  # [experts, rows, columns], and no bias
            if bare.endswith("bias"):
                continue
            data = data.reshape(config["num_experts"], -1, data.shape[1])
            data = data.swapaxes(1, 2) if bare.endswith("w2") else data
            bare += ".weight"
        bare = bare.replace(".gamma", ".weight").replace(".beta", ".bias")
        if number in (ARCH.QWEN2, ARCH.QWEN3, ARCH.LLAMA, ARCH.GEMMA_EMBEDDING):
            bare = "model." + bare
        new = names.get_name(bare, try_suffixes=(".weight", ".bias"))
        assert new, name
        if "position_embeddings" in bare and config["model_type"] in CHOPPED:
            data = data[config["pad_token_id"] + 1:]
        if number == ARCH.LLAMA and re.search(r"attn_[qk]\.", new):
            data = in_turns(data, config["num_attention_heads" if "attn_q" in new else "num_key_value_heads"])
        if number == ARCH.GEMMA_EMBEDDING and new.endswith("norm.weight"):
            data = data + numpy.float32(1)
        out[new] = data.astype(numpy.float32)
    for dense in ("2", "3"):
        path = folder / f"{dense}_Dense/model.safetensors"
        if path.is_file():
            out[f"dense_{dense}.weight"] = load_file(path)["linear.weight"]
    return out


def write(folder, path, kind="F32", keys: dict | None = None, more: dict | None = None, quantise=gguf.quantize) -> None:
    """`kind` is a type's name or tells one by a tensor's name, `keys` are set over the folder's (None takes one away),
    `more` are further tensors (None likewise), quantise(data, type) makes the blocks."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture_of(config)[0]])
    for key, value in (metadata(folder) | (keys or {})).items():
        if value is not None:
            put(writer, key, value)
    for name, data in (tensors(folder) | (more or {})).items():
        if data is None:
            continue
        type_ = gguf.GGMLQuantizationType[kind if isinstance(kind, str) else kind(name)]
        if data.ndim < 2 or data.shape[-1] % gguf.GGML_QUANT_SIZES[type_][0] != 0:
            type_ = gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, quantise(data, type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
