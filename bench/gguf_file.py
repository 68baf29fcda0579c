# SPDX-License-Identifier: Apache-2.0
"""gguf_file.py MODEL FOLDER - a Qwen3 folder as llama.cpp reads it: FOLDER/f32.gguf, bf16, q8_0, q4_0 and q4_k.

Needs the packages gguf and safetensors. Norms stay float32 in all, as llama.cpp's own converter leaves them. q4_k is
Q4_K_M by llama.cpp's own quantiser, and is left out where llama_cpp is not installed."""
import ctypes
import importlib.util
import json
import pathlib
import sys

import gguf
import numpy
from safetensors import safe_open

LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def name_of(tensor: str) -> str:
    parts = tensor.removeprefix("model.").removesuffix(".weight").split(".", 2)
    if parts[0] == "layers":
        return f"blk.{parts[1]}.{LAYER[parts[2]]}.weight"
    return {"embed_tokens": "token_embd.weight", "norm": "output_norm.weight"}[parts[0]]


def add_tokenizer(writer: gguf.GGUFWriter, folder: pathlib.Path, size: int) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    words = [f"[unused{number}]" for number in range(size)]
    kinds = [gguf.TokenType.UNUSED] * size
    for word, number in tokenizer["model"]["vocab"].items():
        words[number], kinds[number] = word, gguf.TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        words[added["id"]], kinds[added["id"]] = added["content"], gguf.TokenType.CONTROL
    end = next(added["id"] for added in tokenizer["added_tokens"] if added["content"] == "<|endoftext|>")
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(words)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(True)


def write(folder: pathlib.Path, path: pathlib.Path, kind: gguf.GGMLQuantizationType) -> None:
    config = json.loads((folder / "config.json").read_text())
    part = path.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "qwen3")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_pooling_type(gguf.PoolingType.LAST)
    add_tokenizer(writer, folder, config["vocab_size"])
    with safe_open(folder / "model.safetensors", "numpy") as file:
        for name in file.keys():
            tensor = file.get_tensor(name).astype(numpy.float32)
            if tensor.ndim == 1 or kind == gguf.GGMLQuantizationType.F32:
                writer.add_tensor(name_of(name), tensor)
            else:
                writer.add_tensor(name_of(name), gguf.quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(path)


def quantise(source: pathlib.Path, path: pathlib.Path) -> None:
    import llama_cpp
    part, settings = path.with_suffix(".part"), llama_cpp.llama_model_quantize_default_params()
    settings.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M
    if llama_cpp.llama_model_quantize(str(source).encode(), str(part).encode(), ctypes.byref(settings)) != 0:
        raise RuntimeError(f"llama.cpp cannot quantise {source}")
    part.rename(path)


def main(folder: str, target: pathlib.Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for kind in ("F32", "BF16", "Q8_0", "Q4_0"):
        if not (target / f"{kind.lower()}.gguf").exists():
            write(pathlib.Path(folder), target / f"{kind.lower()}.gguf", gguf.GGMLQuantizationType[kind])
    if importlib.util.find_spec("llama_cpp"):
        quantise(target / "f32.gguf", target / "q4_k.gguf")


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
