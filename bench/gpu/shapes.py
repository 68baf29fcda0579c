#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shapes.py TARGET [--like FOLDER] [NAME …] - model folders of well-known shapes with random weights.

Speed does not depend on the values, so that a machine without a network measures shapes instead of downloads. Names:
minilm-l6 (6x384), bert-base (12x768), mpnet-base (12x768, MPNet), bert-large (24x1024), modernbert-base (22x768) and
qwen3-0.6b (28x1024); toy, toy-mpnet, toy-modernbert and toy-qwen3 (2 or 3 x 64) for trying things out. The tokenizer is FOLDER's (tokenizer.json), which real texts need; without one it is made of
invented words. Weights are fp16, written as safetensors by hand: nothing but Python itself is needed.

Values do matter to agree.py: at 0.02 throughout, attention is so even that a model without queries, or without its
relative bias, has nearly the same vectors. FACTORS makes both count: tests/golden/test_gpu_kit.py.
"""
import argparse
import array
import itertools
import json
import pathlib
import random
import re
import struct

# architecture, layers, hidden, heads
SHAPES = {"minilm-l6": ("bert", 6, 384, 12), "bert-base": ("bert", 12, 768, 12), "mpnet-base": ("mpnet", 12, 768, 12),
          "bert-large": ("bert", 24, 1024, 16), "modernbert-base": ("modernbert", 22, 768, 12),
          "qwen3-0.6b": ("qwen3", 28, 1024, 16), "one-layer": ("bert", 1, 384, 12), "toy": ("bert", 2, 64, 2), "toy-mpnet": ("mpnet", 2, 64, 2),
          "toy-modernbert": ("modernbert", 3, 64, 2), "toy-qwen3": ("qwen3", 2, 64, 4)}
FACTORS = {r"(attention\.(self|attn)\.(query|key|q|k)|attn\.(Wqkv|[qk]_proj))\.weight": 4,
           "relative_attention_bias": 50}  # of values of 0.02
SPECIAL = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}
VOCAB = 30522
BLOCK = 1048573  # values of noise; a prime, so that no two rows are alike


def write_json(path: pathlib.Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")


def invented_tokenizer() -> dict:
    """WordPiece over words like "bako": every word of the list is one token."""
    vocab = {f"[unused{n}]": n for n in range(1, 100)} | SPECIAL
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = list(letters) + ["##" + letter for letter in letters] + list("0123456789.,;:!?'()-")
    syllables = [a + b for a in "bcdfghjklmnprstvz" for b in "aeiou"]
    words = ("".join(word) for size in (2, 3) for word in itertools.product(syllables, repeat=size))
    for piece in itertools.chain(pieces, words):
        if len(vocab) >= VOCAB:
            break
        vocab.setdefault(piece, len(vocab))
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": number, "special": True, "content": text, "single_word": False, "lstrip": False,
                              "rstrip": False, "normalized": False} for text, number in SPECIAL.items()],
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                           "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing",
                               "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                                          {"Sequence": {"id": "A", "type_id": 0}},
                                          {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
                               "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                                        {"Sequence": {"id": "A", "type_id": 0}},
                                        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
                                        {"Sequence": {"id": "B", "type_id": 1}},
                                        {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
                               "special_tokens": {text: {"id": text, "ids": [SPECIAL[text]], "tokens": [text]}
                                                  for text in ("[CLS]", "[SEP]")}},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100, "vocab": vocab}}


def modern_tensors(layers: int, hidden: int) -> dict[str, tuple[int, ...]]:
    mlp, out = hidden * 3 // 2, {"embeddings.tok_embeddings.weight": (VOCAB, hidden), "embeddings.norm.weight": (hidden,)}
    for layer in range(layers):
        at = f"layers.{layer}."
        out |= {at + "attn_norm.weight": (hidden,)} if layer else {}
        out |= {at + "attn.Wqkv.weight": (3 * hidden, hidden), at + "attn.Wo.weight": (hidden, hidden),
                at + "mlp_norm.weight": (hidden,), at + "mlp.Wi.weight": (2 * mlp, hidden), at + "mlp.Wo.weight": (hidden, mlp)}
    return out | {"final_norm.weight": (hidden,)}


def qwen_tensors(layers: int, hidden: int, heads: int) -> dict[str, tuple[int, ...]]:
    wide, narrow, mlp = heads * 128, heads // 2 * 128, 3 * hidden
    out = {"embed_tokens.weight": (VOCAB, hidden)}
    for layer in range(layers):
        at = f"layers.{layer}."
        out |= {at + "input_layernorm.weight": (hidden,), at + "self_attn.q_proj.weight": (wide, hidden),
                at + "self_attn.k_proj.weight": (narrow, hidden), at + "self_attn.v_proj.weight": (narrow, hidden),
                at + "self_attn.o_proj.weight": (hidden, wide), at + "self_attn.q_norm.weight": (128,),
                at + "self_attn.k_norm.weight": (128,), at + "post_attention_layernorm.weight": (hidden,),
                at + "mlp.gate_proj.weight": (mlp, hidden), at + "mlp.up_proj.weight": (mlp, hidden),
                at + "mlp.down_proj.weight": (hidden, mlp)}
    return out | {"norm.weight": (hidden,)}


def tensors(kind: str, layers: int, hidden: int, heads: int) -> dict[str, tuple[int, ...]]:
    """Names as transformers has them -> shapes."""
    if kind == "modernbert":
        return modern_tensors(layers, hidden)
    if kind == "qwen3":
        return qwen_tensors(layers, hidden, heads)
    mlp, norm = 4 * hidden, "embeddings.LayerNorm"
    out = {"embeddings.word_embeddings.weight": (VOCAB, hidden), norm + ".weight": (hidden,), norm + ".bias": (hidden,),
           "embeddings.position_embeddings.weight": (514 if kind == "mpnet" else 512, hidden)}
    if kind == "mpnet":
        out["encoder.relative_attention_bias.weight"] = (32, heads)
        parts = [("attention.attn." + name, hidden, hidden) for name in "qkvo"] + [("attention.LayerNorm", 0, hidden)]
    else:
        out["embeddings.token_type_embeddings.weight"] = (2, hidden)
        parts = [("attention.self." + name, hidden, hidden) for name in ("query", "key", "value")]
        parts += [("attention.output.dense", hidden, hidden), ("attention.output.LayerNorm", 0, hidden)]
    parts += [("intermediate.dense", hidden, mlp), ("output.dense", mlp, hidden), ("output.LayerNorm", 0, hidden)]
    for layer, (name, wide, high) in itertools.product(range(layers), parts):
        out[f"encoder.layer.{layer}.{name}.weight"] = (high, wide) if wide else (high,)
        out[f"encoder.layer.{layer}.{name}.bias"] = (high,)
    return out


def write_weights(path: pathlib.Path, shapes: dict[str, tuple[int, ...]], hidden: int) -> None:
    dice = random.Random(20261121)
    usual = 0.02 * max(1, 384 / hidden) ** 0.5  # narrow toys need more for sums of the same size
    values = [dice.gauss(0, usual) for _ in range(BLOCK)]
    noise = {factor: 2 * struct.pack(f"<{BLOCK}e", *(value * factor for value in values))
             for factor in {1, *FACTORS.values()}}
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, entry in header.items():
            size = entry["data_offsets"][1] - entry["data_offsets"][0]
            if len(entry["shape"]) == 1 and name.endswith("orm.weight"):
                file.write(array.array("H", [0x3C00]).tobytes() * (size // 2))  # 1.0
                continue
            factor = next((factor for pattern, factor in FACTORS.items() if re.search(pattern, name)), 1)
            start = 2 * dice.randrange(BLOCK)
            while size > 0:
                piece = noise[factor][start:start + min(size, 2 * BLOCK)]
                file.write(piece)
                size -= len(piece)


def config_of(kind: str, layers: int, hidden: int, heads: int) -> dict:
    config = {"model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
              "vocab_size": VOCAB, "torch_dtype": "float16", "pad_token_id": 1 if kind == "mpnet" else 0}
    if kind == "modernbert":
        return config | {"architectures": ["ModernBertModel"], "intermediate_size": hidden * 3 // 2, "hidden_activation": "gelu",
                         "max_position_embeddings": 8192, "norm_eps": 1e-5, "global_rope_theta": 160000.0,
                         "local_rope_theta": 10000.0, "local_attention": 128, "global_attn_every_n_layers": 3,
                         "norm_bias": False, "attention_bias": False, "mlp_bias": False}
    if kind == "qwen3":
        return config | {"architectures": ["Qwen3Model"], "intermediate_size": 3 * hidden, "hidden_act": "silu",
                         "num_key_value_heads": heads // 2, "head_dim": 128, "max_position_embeddings": 8192,
                         "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "attention_bias": False}
    config |= {"architectures": ["MPNetModel" if kind == "mpnet" else "BertModel"], "intermediate_size": 4 * hidden,
               "hidden_act": "gelu", "layer_norm_eps": 1e-12, "max_position_embeddings": 514 if kind == "mpnet" else 512,
               "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return config | ({"relative_attention_num_buckets": 32} if kind == "mpnet" else {"type_vocab_size": 2})


def make(folder: pathlib.Path, name: str, tokenizer: dict) -> None:
    kind, layers, hidden, heads = SHAPES[name]
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    vocab = tokenizer["model"]["vocab"]
    assert max(vocab.values()) < VOCAB, "the tokenizer has more ids than the shapes have rows"
    write_json(folder / "config.json", config_of(kind, layers, hidden, heads))
    write_json(folder / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])
    write_json(folder / "1_Pooling/config.json", {"word_embedding_dimension": hidden, "pooling_mode_mean_tokens": kind != "qwen3",
                                                 "pooling_mode_lasttoken": kind == "qwen3"})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 512, "do_lower_case": False})
    write_json(folder / "tokenizer.json", tokenizer)
    inputs = ["input_ids", "attention_mask"] + (["token_type_ids"] if kind == "bert" else [])
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, "model_input_names": inputs,
        "pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"})
    weights = folder / "model.safetensors"
    if not weights.exists():
        write_weights(weights, tensors(kind, layers, hidden, heads), hidden)


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    command.add_argument("target", type=pathlib.Path)
    command.add_argument("names", nargs="*", default=["minilm-l6", "bert-base", "mpnet-base", "bert-large"])
    command.add_argument("--like", type=pathlib.Path, help="a model folder whose BERT tokenizer is taken")
    args = command.parse_args()
    tokenizer = invented_tokenizer()
    if args.like:
        tokenizer = json.loads((args.like / "tokenizer.json").read_text(encoding="utf-8"))
        tokenizer |= {"truncation": None, "padding": None}
    for name in args.names:
        make(args.target / name, name, tokenizer)
        print(args.target / name)


if __name__ == "__main__":
    main()
