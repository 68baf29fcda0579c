#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fuzz_families.py - random small models of every family against transformers' own classes.

    fuzz_families.py [--count 200] [--seed 1] [--keep DIR] [FAMILY ...]

Each model has sizes, switches, biases, activations, windows and rotary settings drawn at random and
weights spread wide; seven texts of 2 to some 300 tokens go through the class in torch (JinaBERT v2 and
experts: family_references.py) and through `fletch embed` in fp32, with the kernels of this machine and
with the reference kernels. Rows of unit length may differ by 1e-5. A model that differs, is refused or
crashes fletch is told with its config and, with --keep, kept; then the end is 1. Where torch in
float32 is itself farther than that from torch in float64 (a norm of an MLP's output that is nearly
nothing), fletch may be as far from float64; torch also by adding up a product's terms one after the
other, as fletch does. Needs torch, transformers and numpy; FLETCH_BIN names
another fletch than build/fletch.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import types
import unittest.mock

import numpy
import torch
import transformers
from safetensors.torch import save_file

import family_references as reference
import make_folders as base

FLETCH = os.environ.get("FLETCH_BIN", str(base.HERE.parents[2] / "build/fletch"))
ISAS = ("auto", "ref")
TOLERANCE = 1e-5
LONGEST = 320
POOLINGS = {"mean": lambda x: x.mean(0), "cls": lambda x: x[0], "lasttoken": lambda x: x[-1],
            "max": lambda x: x.amax(0),
            "weightedmean": lambda x: (x * torch.arange(1, len(x) + 1)[:, None]).sum(0) / (len(x) * (len(x) + 1) / 2)}


# ---- What is drawn -----------------------------------------------------------------------------------

class Draw(random.Random):
    def flag(self) -> bool:
        return self.random() < 0.5

    def theta(self) -> float:
        return self.choice([50.0, 777.0, 10000.0, 160000.0, 1e6])

    def head(self, even: bool = False) -> int:
        return self.choice([4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 64]) if even else self.choice([1, 5, 7, 8, 12, 16, 17, 32, 33])

    def activation(self) -> str:
        return self.choice(["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"])

    def eps(self) -> float:
        return self.choice([1e-12, 1e-6, 1e-5, 1e-3])

    def sizes(self, even: bool = False) -> dict:
        """Heads that make up the hidden size."""
        heads, head = self.randint(1, 8), self.head(even)
        while heads * head < 8:
            heads += 1
        return {"hidden_size": heads * head, "num_attention_heads": heads, "num_hidden_layers": self.randint(1, 4),
                "intermediate_size": self.choice([3, 16, 30, 48, 100, 383, 384, 400, 800])}

    def grouped(self, even: bool = False) -> dict:
        """Key heads that several query heads share, and heads of a width of their own; even: hidden / heads is whole."""
        kv, group = self.randint(1, 3), self.choice([1, 1, 2, 3, 4, 5, 7])
        hidden = self.randint(2, 9) * kv * group if even else self.randint(8, 120)
        return {"hidden_size": hidden, "num_attention_heads": kv * group, "num_key_value_heads": kv,
                "head_dim": self.head(even=True), "num_hidden_layers": self.randint(1, 4),
                "intermediate_size": self.choice([3, 16, 30, 48, 100, 383, 384, 400, 800])}

    def positions(self) -> int:
        return self.choice([20, 64, 100, 257, LONGEST, 400])

    def rope(self, kinds=("default", "linear", "llama3", "dynamic", "yarn")) -> dict:
        kind = self.choice(["default", *kinds])
        rope = {"rope_type": kind, "rope_theta": self.theta()}
        if kind != "default":
            rope["factor"] = self.choice([1.0, 1.7, 4.0, 8.0])
        if kind == "llama3":
            rope |= {"low_freq_factor": 1.0, "high_freq_factor": self.choice([2.0, 4.0]),
                     "original_max_position_embeddings": self.choice([16, 64, 8192])}
        if kind == "yarn":
            rope["original_max_position_embeddings"] = self.choice([16, 64, 200, 8192])
            rope |= self.choice([{}, {"beta_fast": 20.0, "beta_slow": 2}, {"attention_factor": 1.3}, {"mscale": 1.0, "mscale_all_dim": 0.7},
                                 {"mscale": 0.8}])
        return rope


    def longrope(self, config) -> None:
        """Of a third of the models that may have it, in the place of another."""
        pairs = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads) // 2
        if self.randint(0, 2) == 0 and pairs <= 64:
            config.rope_parameters = {
                "rope_type": "longrope", "rope_theta": self.theta(), "original_max_position_embeddings": self.choice([16, 64, 200]),
                "short_factor": [self.uniform(1, 2) for _ in range(pairs)], "long_factor": [self.uniform(1, 30) for _ in range(pairs)],
            } | self.choice([{}, {"factor": 4.0}, {"factor": 8.0, "attention_factor": 1.3}])
            config.max_position_embeddings = max(config.max_position_embeddings, config.rope_parameters["original_max_position_embeddings"])


def bert(d: Draw):
    return transformers.BertConfig(**d.sizes(), max_position_embeddings=d.positions(), hidden_act=d.activation(),
                                   type_vocab_size=d.randint(1, 3), layer_norm_eps=d.eps())


def roberta(d: Draw):
    kind = d.choice([transformers.RobertaConfig, transformers.XLMRobertaConfig, transformers.CamembertConfig, transformers.Data2VecTextConfig])
    return kind(**d.sizes(), max_position_embeddings=d.positions(), hidden_act=d.activation(),
                type_vocab_size=d.randint(1, 2), layer_norm_eps=d.eps())


def roberta_prelayernorm(d: Draw):
    return transformers.RobertaPreLayerNormConfig(**d.sizes(), max_position_embeddings=d.positions(), hidden_act=d.activation(),
                                                  type_vocab_size=d.randint(1, 2), layer_norm_eps=d.eps())


def ernie(d: Draw):
    return transformers.ErnieConfig(**d.sizes(), max_position_embeddings=d.positions(), hidden_act=d.activation(),
                                    type_vocab_size=d.randint(1, 3), layer_norm_eps=d.eps(), use_task_id=d.flag(),
                                    task_type_vocab_size=d.randint(1, 4))


def mpnet(d: Draw):
    return transformers.MPNetConfig(**d.sizes(), max_position_embeddings=d.positions(), hidden_act=d.activation(),
                                    layer_norm_eps=d.eps())


def distilbert(d: Draw):
    s = d.sizes()
    return transformers.DistilBertConfig(
        dim=s["hidden_size"], n_layers=s["num_hidden_layers"], n_heads=s["num_attention_heads"],
        hidden_dim=s["intermediate_size"], max_position_embeddings=d.positions(), activation=d.choice(["gelu", "relu"]),
        sinusoidal_pos_embds=d.flag() and s["hidden_size"] % 2 == 0)


def electra(d: Draw):
    s = d.sizes()
    return transformers.ElectraConfig(**s, embedding_size=d.choice([s["hidden_size"], 5, 20, 47, 130]),
                                      max_position_embeddings=d.positions(), hidden_act=d.activation(),
                                      type_vocab_size=d.randint(1, 3), layer_norm_eps=d.eps())


def albert(d: Draw):
    s = d.sizes()
    return transformers.AlbertConfig(**s, embedding_size=d.choice([n for n in (5, 20, 47, 130) if n != s["hidden_size"]]), max_position_embeddings=d.positions(),
                                     hidden_act=d.activation(), type_vocab_size=d.randint(1, 3), layer_norm_eps=d.eps())


def deberta(d: Draw):
    s = d.sizes()
    positions = d.positions()
    buckets = d.choice([-1, 4, 9, 16, 64, 256])
    most = d.choice([-1, 40, 130, 512, 700]) if buckets < 0 else d.choice([buckets + 2, 512, 700])
    return transformers.DebertaV2Config(
        **s, max_position_embeddings=positions, hidden_act=d.activation(), layer_norm_eps=d.choice([1e-7, 1e-5]), type_vocab_size=d.randint(0, 2),
        relative_attention=True, position_biased_input=False, norm_rel_ebd="layer_norm", share_att_key=d.flag(), position_buckets=buckets,
        max_relative_positions=most, pos_att_type=d.choice(["p2c|c2p", ["c2p", "p2c"]]))


def deberta_v1(d: Draw):
    return transformers.DebertaConfig(
        **d.sizes(), max_position_embeddings=d.positions(), hidden_act=d.activation(), layer_norm_eps=d.choice([1e-7, 1e-5]),
        type_vocab_size=d.randint(0, 2), relative_attention=True, position_biased_input=False, max_relative_positions=d.choice([-1, 40, 130, 512]),
        pos_att_type=d.choice(["p2c|c2p", ["c2p", "p2c"]]))


def bloom(d: Draw):
    s = d.sizes()
    return transformers.BloomConfig(hidden_size=s["hidden_size"], n_head=s["num_attention_heads"], n_layer=s["num_hidden_layers"],
                                    layer_norm_epsilon=d.eps(), use_cache=False)


def gpt2(d: Draw):
    s = d.sizes()
    return transformers.GPT2Config(n_embd=s["hidden_size"], n_head=s["num_attention_heads"], n_layer=s["num_hidden_layers"],
                                   n_inner=s["intermediate_size"] if d.flag() else None, n_positions=d.positions(), layer_norm_epsilon=d.eps(),
                                   activation_function=d.activation())


def gpt_neox(d: Draw):
    s = d.sizes(even=True)
    head = s["hidden_size"] // s["num_attention_heads"]
    turned = d.choice([n for n in range(2, head + 1, 2)])
    return transformers.GPTNeoXConfig(**s, max_position_embeddings=d.positions(), hidden_act=d.activation(), layer_norm_eps=d.eps(), use_cache=False,
                                      use_parallel_residual=d.randint(0, 3) > 0, pad_token_id=0, eos_token_id=2,
                                      rope_parameters={"rope_type": "default", "rope_theta": d.theta(), "partial_rotary_factor": turned / head})


def t5(d: Draw):
    return any_t5(d, d.choice([transformers.T5Config, transformers.MT5Config]))


def umt5(d: Draw):
    return any_t5(d, transformers.UMT5Config)


def clip(d: Draw):
    return transformers.CLIPTextConfig(**d.sizes(), max_position_embeddings=d.positions(), hidden_act=d.choice(["quick_gelu", "quick_gelu", "gelu"]),
                                       layer_norm_eps=d.eps(), projection_dim=d.randint(3, 70))


def siglip(d: Draw):
    return transformers.SiglipTextConfig(**d.sizes(), max_position_embeddings=d.positions(), layer_norm_eps=d.eps(), projection_size=d.randint(3, 70),
                                         hidden_act=d.choice(["gelu_pytorch_tanh", "gelu_pytorch_tanh", "gelu", "quick_gelu"]))


def any_t5(d: Draw, kind):
    return kind(
        d_model=d.randint(8, 90), d_kv=d.head(), num_heads=d.randint(1, 7), num_layers=d.randint(1, 4), d_ff=d.choice([3, 30, 48, 384, 400]),
        feed_forward_proj=d.choice(["relu", "gelu", "silu", "gated-gelu", "gated-silu", "gated-relu"]), layer_norm_epsilon=d.eps(),
        relative_attention_num_buckets=d.choice([4, 10, 32, 64]), relative_attention_max_distance=d.choice([17, 40, 128, 200]))


def nomic(d: Draw):
    return transformers.NomicBertConfig(**d.sizes(even=True), max_position_embeddings=d.positions(),
                                        hidden_act=d.choice(["silu", "gelu", "relu"]), layer_norm_eps=d.eps(),
                                        rope_parameters=d.rope(("linear",)), type_vocab_size=d.randint(1, 2))


def gte(d: Draw):
    return transformers.GteConfig(**d.sizes(even=True), max_position_embeddings=d.positions(), hidden_act=d.activation(),
                                  layer_norm_eps=d.eps(), rope_parameters=d.rope(("linear",)), type_vocab_size=d.randint(0, 3))


def jina3(d: Draw):
    return transformers.JinaEmbeddingsV3Config(**d.sizes(even=True), max_position_embeddings=d.positions(),
                                               hidden_act=d.activation(), layer_norm_eps=d.eps(),
                                               rope_parameters=d.rope(("linear",)), type_vocab_size=d.randint(1, 2))


def kinds_of_layers(d: Draw, layers: int) -> list[str]:
    return [d.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]


def modernbert(d: Draw):
    s = d.sizes(even=True)
    return transformers.ModernBertConfig(
        **s, max_position_embeddings=d.positions(), hidden_activation=d.activation(), norm_eps=d.eps(),
        local_attention=d.choice([2, 3, 8, 15, 64, 128, 1000]), layer_types=kinds_of_layers(d, s["num_hidden_layers"]),
        norm_bias=d.flag(), attention_bias=d.flag(), mlp_bias=d.flag(),
        rope_parameters={kind: {"rope_type": "default", "rope_theta": d.theta()}
                         for kind in ("full_attention", "sliding_attention")})


def qwen3(d: Draw):
    more = {} if d.flag() else {"is_causal": d.flag()}
    return transformers.Qwen3Config(**d.grouped(), max_position_embeddings=d.positions(), hidden_act=d.activation(),
                                    rms_norm_eps=d.eps(), attention_bias=d.flag(), rope_parameters=d.rope(), **more)


def splade_code(d: Draw):
    """Weights of the vocabulary, which are all that is compared."""
    config = without_yarn(qwen3(d))
    config.is_causal, config.tie_word_embeddings = False, d.flag()
    config.told = {"auto_map": {"AutoModelForMaskedLM": "splade.Splade"}}
    return config


def qwen2(d: Draw):
    s = d.grouped()
    s["hidden_size"] = s.pop("head_dim") * s["num_attention_heads"]
    return transformers.Qwen2Config(**s, max_position_embeddings=d.positions(), hidden_act=d.activation(),
                                    rms_norm_eps=d.eps(), rope_parameters=d.rope())


def llama(d: Draw):
    return transformers.LlamaConfig(**d.grouped(even=True), max_position_embeddings=d.positions(), hidden_act=d.activation(),
                                    rms_norm_eps=d.eps(), attention_bias=d.flag(), mlp_bias=d.flag(),
                                    rope_parameters=d.rope())


def eurobert(d: Draw):
    return transformers.EuroBertConfig(**d.grouped(even=True), max_position_embeddings=d.positions(), hidden_act=d.activation(),
                                       rms_norm_eps=d.eps(), attention_bias=d.flag(), mlp_bias=d.flag(),
                                       rope_parameters=d.rope())


def mistral(d: Draw):
    return transformers.MistralConfig(**d.grouped(), max_position_embeddings=d.positions(), hidden_act=d.activation(),
                                      rms_norm_eps=d.eps(), rope_parameters=d.rope(),
                                      sliding_window=d.choice([None, 2, 9, 50, 200, 4096]))


def ministral3(d: Draw):
    more = {} if d.flag() else {"is_causal": d.flag()}
    rope = {"rope_type": "yarn", "rope_theta": d.theta(), "factor": d.choice([1.0, 4.0, 16.0]), "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": d.choice([64, 200, 16384]), "llama_4_scaling_beta": d.choice([0.0, 0.1])}
    limit = rope["original_max_position_embeddings"] if rope["llama_4_scaling_beta"] else LONGEST
    return transformers.Ministral3Config(**d.grouped(), max_position_embeddings=min(limit, d.positions()), hidden_act=d.activation(),
                                         rms_norm_eps=d.eps(), rope_parameters=rope, sliding_window=d.choice([None, 9, 4096]), **more)


def without_yarn(config):
    """transformers' alone."""
    if config.rope_parameters["rope_type"] == "yarn":
        config.rope_parameters = {"rope_type": "default", "rope_theta": 500000.0}
    return config


def llama_bidirec(d: Draw):
    config = without_yarn(llama(d))
    config.is_causal, config.told = False, {
        "model_type": "llama_bidirec", "architectures": ["LlamaBidirectionalModel"], "pooling": "avg", "temperature": 0.02,
        "auto_map": {"AutoConfig": "llama_bidirectional_model.LlamaBidirectionalConfig",
                     "AutoModel": "llama_bidirectional_model.LlamaBidirectionalModel"}}
    return config


def gemma(d: Draw):
    return transformers.GemmaConfig(**d.grouped(even=True), max_position_embeddings=d.positions(), hidden_act=d.activation(), rms_norm_eps=d.eps(),
                                    attention_bias=d.flag(), use_bidirectional_attention=d.choice([None, True, False]),
                                    rope_parameters=d.rope())


def gemma2(d: Draw):
    s = d.grouped(even=True)
    return transformers.Gemma2Config(
        **s, max_position_embeddings=d.positions(), hidden_activation=d.activation(), rms_norm_eps=d.eps(), attention_bias=d.flag(),
        query_pre_attn_scalar=d.choice([7, 64, s["head_dim"]]),
        sliding_window=d.choice([2, 3, 14, 50, 512]), layer_types=kinds_of_layers(d, s["num_hidden_layers"]), attn_logit_softcapping=d.choice([0.7, 5.0, 50.0]),
        rope_parameters=d.rope(("linear",)))


def gemma3(d: Draw):
    s = d.grouped(even=True)
    return transformers.Gemma3TextConfig(
        **s, max_position_embeddings=d.positions(), hidden_activation=d.activation(), rms_norm_eps=d.eps(),
        attention_bias=d.flag(), use_bidirectional_attention=d.flag(), query_pre_attn_scalar=d.choice([7, 64, s["head_dim"]]),
        sliding_window=d.choice([2, 3, 14, 50, 200, 512]), layer_types=kinds_of_layers(d, s["num_hidden_layers"]),
        rope_parameters={kind: {"rope_type": "default", "rope_theta": d.theta()}
                         for kind in ("full_attention", "sliding_attention")})


def lfm2(d: Draw):
    s = d.grouped()
    layers = s["num_hidden_layers"]
    kinds = {"layer_types": [d.choice(["conv", "full_attention"]) for _ in range(layers)]} if d.flag() else {
        "full_attn_idxs": [i for i in range(layers) if d.flag()]}
    more = d.choice([{}, {"is_causal": False}, {"is_causal": True}]) | d.choice([{}, {"block_ff_dim": 77}])
    return transformers.Lfm2Config(
        **s | {"hidden_size": s.pop("head_dim") * s["num_attention_heads"]}, **kinds, max_position_embeddings=d.positions(),
        norm_eps=d.eps(), conv_L_cache=d.choice([1, 2, 3, 4, 7, 16]), conv_bias=d.flag(), block_auto_adjust_ff_dim=d.flag(),
        block_multiple_of=d.choice([1, 7, 16, 256]), block_ffn_dim_multiplier=d.choice([1.0, 1.3, 0.7]),
        use_cache=False, rope_parameters=d.rope(), **more)


def lfm2_bidirectional(d: Draw):
    config = lfm2(d)
    if config.rope_parameters["rope_type"] == "yarn":
        config.rope_parameters = {"rope_type": "default", "rope_theta": 1000000.0}
    config.is_causal, config.told = False, {
        "architectures": ["Lfm2BidirectionalModel"],
        "auto_map": {"AutoModel": "modeling_lfm2_bidirectional.Lfm2BidirectionalModel"}}
    return config


# What transformers lacks: config, shapes and rows of family_references.py, the prefix of names.

def jina(d: Draw, qk: bool = False):
    code = "jinaai/jina-bert-" + ("v2-qk-post-norm" if qk else "implementation") + "--modeling_bert.JinaBertModel"
    config = d.sizes() | {
        "model_type": "bert", "position_embedding_type": "alibi", "feed_forward_type": "geglu", "hidden_act": "gelu",
        "layer_norm_eps": d.eps(), "type_vocab_size": 2, "max_position_embeddings": d.positions(),
        "auto_map": {"AutoModel": code}}
    return config, lambda c: reference.jina_shapes(c, qk), lambda c, t, ids: reference.jina_rows(c, t, ids, qk)


def jina_qk(d: Draw):
    return jina(d, True)


def jina_clip(d: Draw):
    known, shapes, rows = jina(d)
    config = {"model_type": "jina_clip", "auto_map": {"AutoModel": "jinaai/jina-clip-implementation--modeling_clip.JinaCLIPModel"}, "text_config": {
        "embed_dim": known["hidden_size"], "hf_model_name_or_path": "jinaai/jina-bert-flash-implementation", "hf_model_config_kwargs": known}} | known
    return config, shapes, rows


def nomic_moe(d: Draw):
    s = d.sizes(even=True)
    experts = d.randint(2, 12)
    config = {"model_type": "nomic_bert", "n_embd": s["hidden_size"], "n_layer": d.randint(1, 4),
              "n_head": s["num_attention_heads"], "n_inner": s["intermediate_size"], "n_positions": d.positions(),
              "layer_norm_epsilon": d.eps(), "rotary_emb_base": d.theta(), "activation_function": "gelu",
              "type_vocab_size": 1, "num_experts": experts, "moe_top_k": d.randint(1, min(experts, 4)),
              "moe_every_n_layers": d.randint(1, 3), "qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True,
              "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"}}
    return config, reference.moe_shapes, reference.moe_rows


def nvembed(d: Draw):
    config = {"model_type": "nvembed"} | d.grouped() | {
        "rms_norm_eps": d.eps(), "rope_theta": d.theta(), "max_position_embeddings": d.positions(), "add_eos": False,
        "num_latents_value": d.choice([1, 3, 16, 17, 50]), "num_cross_heads": d.randint(1, 4), "cross_dim_head": d.head()}
    return config, reference.nv_shapes, reference.nv_rows


FAMILIES = {f.__name__: f for f in (bert, ernie, roberta, roberta_prelayernorm, mpnet, distilbert, electra, deberta, deberta_v1, bloom, gpt2, gpt_neox, albert, t5, umt5, clip, siglip, jina_clip, nomic, nomic_moe, nvembed, gte, jina, jina_qk, jina3,
                                    modernbert, qwen3, splade_code, qwen2, llama, llama_bidirec, eurobert, mistral, ministral3, gemma, gemma2, gemma3, lfm2,
                                    lfm2_bidirectional)}


# ---- One model ---------------------------------------------------------------------------------------

def texts(d: Draw) -> list[str]:
    lengths = [0, 1, d.randint(2, 9), d.randint(10, 40), d.randint(41, 120), d.randint(120, LONGEST), LONGEST]
    return [" ".join(d.choices(base.WORDS + list(base.LETTERS), k=n)) for n in lengths]


def make_tokenizers(work: pathlib.Path) -> dict:
    """The tokenizers and the folders of their files."""
    out = {}
    for kind, make in (("bert", base.bert_tokenizer), ("roberta", base.mpnet_tokenizer), ("qwen2", base.ended_tokenizer)):
        path = work / f"tokenizer-{kind}"
        path.mkdir()
        tokenizer = make(path)
        tokenizer.model_max_length = 1 << 20
        tokenizer.save_pretrained(path)
        settings = json.loads((path / "tokenizer_config.json").read_text())
        base.write_json(path / "tokenizer_config.json", settings | {"tokenizer_class": "PreTrainedTokenizerFast"}
                        if kind == "bert" else settings)
        out[kind] = tokenizer, path
    return out


def save_native(path: pathlib.Path, config, tokenizer, seed: int, d: Draw):
    """A folder of a class of transformers; `ids -> rows` of it."""
    config.vocab_size, config.pad_token_id = len(tokenizer), tokenizer.pad_token_id
    for key in ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"):
        if getattr(config, key, None) is not None:
            setattr(config, key, 2)
    if config.model_type == CLIP:  # the largest id, or the last token
        config.eos_token_id = d.choice([2, tokenizer.sep_token_id])
    encoder = {"t5": transformers.T5EncoderModel, "mt5": transformers.MT5EncoderModel, "umt5": transformers.UMT5EncoderModel,
               CLIP: transformers.CLIPTextModelWithProjection, SIGLIP: transformers.SiglipTextModel}.get(config.model_type)
    if is_sparse(config):
        encoder = transformers.Qwen3ForCausalLM
    model = (encoder(config) if encoder else transformers.AutoModel.from_config(config)).eval()
    base.randomise(model, seed)
    model.save_pretrained(path, save_original_format=d.flag())
    for module in model.modules() if hasattr(config, "told") else ():
        if type(module).__name__ == "Lfm2ShortConv":
            module.forward = types.MethodType(reference.centred, module)
    told = getattr(config, "told", None)  # what config.json says of a class that transformers lacks
    if told:
        written = json.loads((path / "config.json").read_text())
        del written["is_causal"], written["told"]
        base.write_json(path / "config.json", written | told)

    def rows(ids: list[int], dtype) -> torch.Tensor:
        if config.model_type == SIGLIP:
            ids = ids + [tokenizer.pad_token_id] * (config.max_position_embeddings - len(ids))
        out = model.to(dtype)(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long))
        if is_sparse(config):
            return torch.log1p(torch.relu(out.logits[0])).amax(0, keepdim=True)
        return out.text_embeds if config.model_type == CLIP else out.pooler_output if config.model_type == SIGLIP else out.last_hidden_state[0]
    skipped = config.pad_token_id + 1 if config.model_type in ROBERTA else 0
    return rows, getattr(config, "max_position_embeddings", LONGEST + 9) - skipped, getattr(config, "dim", None) or config.hidden_size


CLIP, SIGLIP = "clip_text_model", "siglip_text_model"
LONGROPE = ("qwen3", "qwen2", "llama", "mistral", "eurobert", "gemma", "lfm2")
ROBERTA = ("roberta", "xlm-roberta", "camembert", "data2vec-text", "roberta-prelayernorm", "mpnet")


def is_sparse(config) -> bool:
    return "auto_map" in getattr(config, "told", {}) and "AutoModelForMaskedLM" in config.told["auto_map"]


def save_by_hand(path: pathlib.Path, config: dict, shapes, formula, tokenizer, seed: int):
    config["vocab_size"] = len(tokenizer)
    tensors = reference.draw(shapes(config), seed)
    written, saved = config, tensors
    if config["model_type"] == "jina_clip":
        written = {key: config[key] for key in ("model_type", "auto_map", "text_config")}
        written["text_config"]["hf_model_config_kwargs"] |= {"vocab_size": len(tokenizer)}
        saved = {"text_model.transformer." + name: tensor for name, tensor in reference.jina_flash(tensors).items()}
    if config["model_type"] == "nvembed":
        written = reference.nv_config(config)
    base.write_json(path / "config.json", written)
    save_file(saved, path / "model.safetensors")

    def rows(ids: list[int], dtype) -> torch.Tensor:
        return formula(config, {name: tensor.to(dtype) for name, tensor in tensors.items()}, ids)
    return (rows, config.get("n_positions", config.get("max_position_embeddings")),
            config.get("n_embd", config.get("hidden_size")))


def unit(rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(rows, dim=-1)


def embed(path: pathlib.Path, isa: str, sparse: bool) -> numpy.ndarray:
    kind = "npz" if sparse else "npy"
    out = path / f"{isa}.{kind}"
    command = [FLETCH, "embed", "-m", path, "-i", path / "texts.jsonl", "--format", kind, "-o", out, "--cpu-isa", isa,
               "--precision", "fp32", "--threads", "1", "--quiet", *(("--output-kind", "sparse") if sparse else ())]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"fletch ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    found = numpy.load(out)
    if not sparse:
        return found
    rows = numpy.zeros(found["shape"], dtype=numpy.float32)
    for row, first, last in zip(rows, found["indptr"], found["indptr"][1:]):
        row[found["indices"][first:last]] = found["data"][first:last]
    return unit(torch.from_numpy(rows)).numpy()


def linear_in_order(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """torch's linear, but for the order of the sums: one term after the other."""
    y = torch.zeros(*x.shape[:-1], len(weight), dtype=x.dtype)
    for k in range(x.shape[-1]):
        y = y + x[..., k:k + 1] * weight[:, k]
    return y if bias is None else y + bias


def farthest(one: numpy.ndarray, other: numpy.ndarray) -> float:
    return float(numpy.abs(one - other).max())


def run(family: str, number: int, seed: int, path: pathlib.Path, tokenizers: dict) -> float:
    """The largest difference of one model."""
    d = Draw(f"{family} {number} {seed}")
    made = FAMILIES[family](d)
    if family in LONGROPE:
        Draw(f"{family} {number} {seed} longrope").longrope(made)
    kind = getattr(made, "model_type", "")
    tokenizer, files = tokenizers["roberta" if kind in ROBERTA else "qwen2" if kind == "qwen2" else "bert"]
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (path / file).symlink_to(files / file)
    if isinstance(made, tuple):
        rows, limit, width = save_by_hand(path, *made, tokenizer, d.getrandbits(30))
    else:
        rows, limit, width = save_native(path, made, tokenizer, d.getrandbits(30), d)
    pooling = d.choice(list(POOLINGS))
    if kind in (CLIP, SIGLIP):  # which row counts the network says
        pooling, module = "cls", "sentence_transformers.models."
        base.write_json(path / "modules.json", [{"path": "", "type": module + "Transformer"}, {"path": "1_Normalize", "type": module + "Normalize"}])
    elif isinstance(made, tuple) and made[0]["model_type"] == "jina_clip":
        pooling = "mean"
    elif is_sparse(made):
        pooling, module = "cls", "sentence_transformers.sparse_encoder.models."
        base.write_json(path / "modules.json", [{"path": "", "type": module + "MLMTransformer"}, {"path": "1_SpladePooling", "type": module + "SpladePooling"}])
    else:
        base.save_modules(path, {"embedding_dimension": width, "pooling_mode": pooling, "include_prompt": True},
                          [base.NORMALIZE], old=False, sentence={"max_seq_length": limit})
    lines = texts(d)
    (path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in lines))
    ids = [tokenizer(text, truncation=True, max_length=limit).input_ids for text in lines]
    def expect(dtype) -> list[numpy.ndarray]:
        with torch.no_grad():
            return [unit(POOLINGS[pooling](rows(one, dtype))).double().numpy() for one in ids]
    single, worst = expect(torch.float32), 0.0
    for isa in ISAS:
        got, bound = embed(path, isa, is_sparse(made)), TOLERANCE
        off = [farthest(*pair) for pair in zip(got, single)]
        if not max(off) <= TOLERANCE:
            double = expect(torch.float64)
            bound = max(TOLERANCE, *(farthest(*pair) for pair in zip(single, double)))
            off = [min(near, farthest(*pair)) for near, *pair in zip(off, got, double)]
        if not max(off) <= bound:
            with (unittest.mock.patch.object(torch.nn.functional, "linear", linear_in_order),
                  unittest.mock.patch.object(reference, "linear", linear_in_order)):
                bound = max(bound, *(farthest(*pair) for pair in zip(expect(torch.float32), double)))
        if not max(off) <= bound:
            index = numpy.argmax(off)
            raise RuntimeError(f"{isa}: text {index} of {len(ids[index])} tokens, pooling {pooling}: off by {off[index]:.3g}")
        worst = max(worst, *off)
    return worst


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="of " + ", ".join(FAMILIES))
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for models that differ")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    wrong = 0
    with tempfile.TemporaryDirectory() as work:
        tokenizers = make_tokenizers(pathlib.Path(work))
        for family in options.families or FAMILIES:
            worst, failed, loose = 0.0, 0, 0
            for number in range(options.first, options.first + options.count):
                path = pathlib.Path(work) / f"{family}-{number}"
                path.mkdir()
                try:
                    off = run(family, number, options.seed, path, tokenizers)
                    worst, loose = max(worst, off), loose + (off > TOLERANCE)
                except RuntimeError as failure:
                    failed += 1
                    config = (path / "config.json").read_text() if (path / "config.json").exists() else ""
                    print(f"{family} {number}: {failure}\n{' '.join(config.split())}", file=sys.stderr)
                    if options.keep:
                        shutil.copytree(path, options.keep / path.name, dirs_exist_ok=True)
                shutil.rmtree(path)
            wrong += failed
            print(f"{family}: {options.count} models, {failed} wrong, the others at most {worst:.2g} off"
                  + (f", {loose} of them where torch is too" if loose else ""), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
