#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_families.py - small folders of every family of encoders, for make_folders.py.

Odd shapes throughout: heads that are not hidden / heads wide, three query heads a key head, windows
shorter than the texts, irregular layer types, bases that no model has, biases on and off. A folder
that ends in "-hub" is its namesake with config.json in the words of the Hub (remote code or older
transformers) instead of those that transformers 5 writes, or "-names" with transformers' own tensor
names: the same bytes must come out.
"""
import json
import pathlib
import shutil
import unittest.mock

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file

import family_references as reference
import make_folders as base
import odd_classes
from token_cases import darts

SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40,
         "max_position_embeddings": 256}
GROUPED = SMALL | {"hidden_size": 36, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 12}
LAST, CLS, MEAN = "lasttoken", "cls", "mean"


def save(name: str, config: transformers.PretrainedConfig, pooling: str, model=None, after=(base.NORMALIZE,),
         roberta: bool = False, head: str | None = None, original: bool = True) -> pathlib.Path:
    """A folder of random weights, its tokenizer and modules; no vectors yet."""
    path = base.new_folder(name)
    qwen = config.model_type == "qwen2"  # whose class transformers takes, whatever the folder names
    tokenizer = (base.mpnet_tokenizer if roberta else base.ended_tokenizer if qwen else base.bert_tokenizer)(path)
    config.vocab_size = len(tokenizer)
    config.pad_token_id = tokenizer.pad_token_id
    for key in ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"):
        if getattr(config, key, None) is not None:
            setattr(config, key, 2)
    kind = getattr(transformers, head) if head else None
    model = model or (kind(config) if kind else transformers.AutoModel.from_config(config))
    base.randomise(model, sum(name.encode()))
    model.save_pretrained(path, save_original_format=original)
    tokenizer.save_pretrained(path)
    width = getattr(config, "dim", None) or config.hidden_size
    base.save_modules(path, {"embedding_dimension": width, "pooling_mode": pooling, "include_prompt": True},
                      list(after), old=False, sentence={"max_seq_length": 200})
    return path


def again(name: str, original: pathlib.Path, change) -> None:
    """The same folder with config.json rewritten by `change`, and the same vectors expected."""
    path = base.HERE / name
    shutil.copytree(original, path)
    config = json.loads((path / "config.json").read_text())
    change(config)
    base.write_json(path / "config.json", config)


def names(name: str, original: pathlib.Path, rename) -> None:
    """The same folder with tensors renamed or cut by `rename`: dict -> dict."""
    path = base.HERE / name
    shutil.copytree(original, path)
    save_file(rename(load_file(path / "model.safetensors")), path / "model.safetensors",
              metadata={"format": "pt"})


def move(config: dict, **pairs: str) -> None:
    for new, old in pairs.items():
        config[new] = config.pop(old)


def make_absolute() -> None:
    path = save("family-roberta", transformers.RobertaConfig(**SMALL | {"type_vocab_size": 1}), MEAN, roberta=True)
    base.finish(path)
    path = save("family-xlm-roberta", transformers.XLMRobertaConfig(
        **SMALL | {"type_vocab_size": 1, "layer_norm_eps": 1e-5, "max_position_embeddings": 202}), CLS,
        roberta=True, head="XLMRobertaForMaskedLM")
    base.finish(path)
    path = save("family-camembert", transformers.CamembertConfig(**SMALL | {"type_vocab_size": 2}), MEAN, roberta=True)
    base.finish(path)
    path = save("family-data2vec", transformers.Data2VecTextConfig(**SMALL | {"type_vocab_size": 1}), MEAN, roberta=True)
    base.finish(path)
    path = save("family-roberta-prelayernorm", transformers.RobertaPreLayerNormConfig(**SMALL | {"type_vocab_size": 1}), CLS, roberta=True)
    base.finish(path)
    path = save("family-ernie", transformers.ErnieConfig(**SMALL), MEAN)
    base.finish(path)
    path = save("family-ernie-tasks", transformers.ErnieConfig(**SMALL | {"use_task_id": True, "task_type_vocab_size": 3}), MEAN)
    base.finish(path)
    path = save("family-distilbert", transformers.DistilBertConfig(
        dim=32, n_layers=3, n_heads=4, hidden_dim=40, max_position_embeddings=256, activation="relu"), MEAN)
    base.finish(path)
    path = save("family-electra", transformers.ElectraConfig(**SMALL | {"embedding_size": 20}), CLS)
    base.finish(path)


def make_rotary() -> None:
    rope = {"rope_type": "default", "rope_theta": 777.0}
    path = save("family-nomic", transformers.NomicBertConfig(**SMALL, rope_parameters=rope), MEAN)
    base.finish(path)

    def hub(config: dict) -> None:
        move(config, n_embd="hidden_size", n_layer="num_hidden_layers", n_head="num_attention_heads",
             n_inner="intermediate_size", n_positions="max_position_embeddings", layer_norm_epsilon="layer_norm_eps")
        config.pop("rope_parameters")
        config.pop("hidden_act")
        config.pop("head_dim", None)
        config.update(rotary_emb_base=777, activation_function="swiglu", prenorm=False, qkv_proj_bias=False,
                      rotary_emb_fraction=1.0, rotary_scaling_factor=None, max_trained_positions=100,
                      rotary_emb_interleaved=False, mlp_fc1_bias=False, mlp_fc2_bias=False,
                      architectures=["NomicBertModel"],
                      auto_map={"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"})
    again("family-nomic-hub", path, hub)

    factor = 3.0
    rope = {"rope_type": "linear", "rope_theta": 500.0 * factor, "factor": factor ** (2 / 8)}
    path = save("family-gte", transformers.GteConfig(**SMALL | {"type_vocab_size": 0}, rope_parameters=rope), CLS)
    base.finish(path)

    def ntk(config: dict) -> None:
        config.pop("rope_parameters")
        config.update(model_type="new", rope_theta=500.0, rope_scaling={"type": "ntk", "factor": factor},
                      position_embedding_type="rope", pack_qkv=True, layer_norm_type="layer_norm",
                      logn_attention_scale=False, logn_attention_clip1=False, architectures=["NewModel"],
                      auto_map={"AutoConfig": "configuration.NewConfig", "AutoModel": "modeling.NewModel"})
    again("family-gte-hub", path, ntk)
    scaled("family-gte-scaled", path, rope_theta=60.0, rope_scaling={"type": "linear", "factor": 5.0})
    path = save("family-gte-arctic", transformers.GteConfig(
        **SMALL | {"type_vocab_size": 1}, rope_parameters={"rope_type": "default", "rope_theta": 160000.0}), CLS)
    base.finish(path)

    def arctic(config: dict) -> None:
        """As published, the two words that are not booleans included."""
        config.pop("rope_parameters")
        config.update(rope_theta=160000, rope_scaling=None, position_embedding_type="rope", pack_qkv=True,
                      layer_norm_type="layer_norm", logn_attention_scale=False, logn_attention_clip1=False,
                      unpad_inputs="true", use_memory_efficient_attention="true", matryoshka_dimensions=[256],
                      architectures=["GteModel"], auto_map={
                          "AutoConfig": "configuration_hf_alibaba_nlp_gte.GteConfig",
                          "AutoModel": "modeling_hf_alibaba_nlp_gte.GteModel"})
    again("family-gte-arctic-hub", path, arctic)
    path = save("family-gte-types", transformers.GteConfig(
        **SMALL | {"type_vocab_size": 2, "hidden_act": "relu"}), MEAN, original=False)
    base.finish(path)

    types = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
    path = save("family-modernbert", transformers.ModernBertConfig(
        **SMALL | {"num_hidden_layers": 4, "layer_types": types, "local_attention": 15},
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 900.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 55.0}}), MEAN)
    base.finish(path)
    path = save("family-modernbert-bias", transformers.ModernBertConfig(
        **SMALL | {"num_hidden_layers": 4, "local_attention": 8, "norm_bias": True, "attention_bias": True,
                   "mlp_bias": True, "hidden_activation": "silu"}), CLS)
    base.finish(path)

    def older(config: dict) -> None:
        config.pop("rope_parameters")
        config.pop("layer_types")
        config.update(global_attn_every_n_layers=3, global_rope_theta=160000.0, local_rope_theta=10000.0,
                      position_embedding_type="absolute")
    again("family-modernbert-bias-hub", path, older)


def scaled(name: str, original: pathlib.Path, **keys) -> None:
    """The same weights with rope_scaling beside rope_parameters: the first alone counts."""
    again(name, original, lambda config: config.update(keys))
    base.finish(base.HERE / name)


def theta(value: float):
    """rope_parameters as older transformers wrote them."""
    def change(config: dict) -> None:
        config.pop("rope_parameters")
        config.pop("layer_types", None)
        config.update(rope_theta=value, rope_scaling=None, sliding_window=None, use_sliding_window=False)
    return change


def make_decoders() -> None:
    rope = {"rope_type": "default", "rope_theta": 3000.0}
    path = save("family-qwen3", transformers.Qwen3Config(**GROUPED, rope_parameters=rope), LAST)
    base.finish(path)
    again("family-qwen3-hub", path, theta(3000.0))
    scaled("family-qwen3-scaled", path, rope_scaling={"rope_type": "linear", "factor": 4.0})
    scaled("family-qwen3-yarn", path, rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64})
    make_longrope(path)
    path = save("family-qwen3-both-ways", transformers.Qwen3Config(
        **GROUPED | {"num_key_value_heads": 1, "attention_bias": True, "is_causal": False}), MEAN,
        head="Qwen3ForCausalLM")
    base.finish(path)
    path = save("family-qwen2", transformers.Qwen2Config(
        **SMALL | {"num_key_value_heads": 2}, rope_parameters=rope), LAST)
    base.finish(path)
    again("family-qwen2-hub", path, theta(3000.0))
    make_gte_qwen()
    make_both_ways()
    make_pplx()
    make_codes_of_half_a_name()
    make_lfm2()
    path = save("family-llama", transformers.LlamaConfig(
        **GROUPED | {"attention_bias": True, "mlp_bias": True},
        rope_parameters={"rope_type": "llama3", "rope_theta": 5000.0, "factor": 4.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 64}), LAST)
    base.finish(path)
    path = save("family-eurobert", transformers.EuroBertConfig(
        **GROUPED | {"head_dim": 8, "num_attention_heads": 4}, rope_parameters=rope), MEAN)
    base.finish(path)
    path = save("family-mistral", transformers.MistralConfig(
        **GROUPED | {"sliding_window": 9}, rope_parameters=rope), LAST)
    base.finish(path)
    path = save("family-mistral-unbound", transformers.MistralConfig(
        **GROUPED | {"sliding_window": None, "head_dim": 8, "num_attention_heads": 4}, rope_parameters=rope), MEAN)
    base.finish(path)

    path = save("family-gemma", transformers.GemmaConfig(**GROUPED | {"num_key_value_heads": 1}, rope_parameters=rope), LAST)
    base.finish(path)
    path = save("family-gemma2", transformers.Gemma2Config(
        **GROUPED | {"sliding_window": 9, "num_hidden_layers": 3, "query_pre_attn_scalar": 7, "attn_logit_softcapping": 1.5}, rope_parameters=rope), LAST)
    base.finish(path)
    types = ["full_attention", "sliding_attention", "sliding_attention"]
    path = save("family-gemma3", transformers.Gemma3TextConfig(
        **SMALL | {"num_key_value_heads": 1, "num_attention_heads": 3, "head_dim": 10, "sliding_window": 14,
                   "layer_types": types, "query_pre_attn_scalar": 7, "use_bidirectional_attention": True,
                   "hidden_size": 33},
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 8000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 77.0}}),
        MEAN, after=[base.dense(33, 48, "linear.Identity", bias=False),
                     base.dense(48, 24, "linear.Identity", bias=False), base.NORMALIZE])
    base.finish(path)
    path = save("family-gemma3-causal", transformers.Gemma3TextConfig(
        **GROUPED | {"sliding_window": 7, "num_hidden_layers": 3, "use_bidirectional_attention": False}), LAST)
    base.finish(path)


def make_longrope(original: pathlib.Path) -> None:
    """Texts on both sides of the length that was trained."""
    scaled("family-qwen3-longrope", original, rope_scaling={
        "rope_type": "longrope", "original_max_position_embeddings": 16, "short_factor": [1.0, 1.1, 1.3, 1.7, 2.5, 3.5],
        "long_factor": [1.0, 2.5, 4.0, 9.5, 20.0, 31.5]})


def published_as(model_type: str, module: str, kind: str, **more):
    """config.json in the words of code of the Hub."""
    def change(config: dict) -> None:
        config.pop("is_causal")
        config.update(model_type=model_type, auto_map={"AutoModel": f"{module}.{kind}"} | more.pop("code", {}), **more)
    return change


def make_both_ways() -> None:
    """Decoders that look both ways, as published: transformers' own, and two by code of the Hub."""
    yarn = {"rope_type": "yarn", "rope_theta": 3000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 64, "llama_4_scaling_beta": 0.1}
    path = save("family-ministral3", transformers.Ministral3Config(
        **GROUPED | {"max_position_embeddings": 64, "is_causal": False, "pooling": "avg", "sliding_window": None}, rope_parameters=yarn), MEAN)
    base.write_json(path / "sentence_bert_config.json", {"max_seq_length": 64})
    base.finish(path)
    path = save("family-llama-bidirec", transformers.LlamaConfig(
        **GROUPED | {"is_causal": False}, rope_parameters={
            "rope_type": "llama3", "rope_theta": 5000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}), MEAN)
    base.finish(path)
    module = "llama_bidirectional_model"
    change(path, published_as("llama_bidirec", module, "LlamaBidirectionalModel", architectures=["LlamaBidirectionalModel"], pooling="avg",
                              temperature=1.0, code={"AutoConfig": module + ".LlamaBidirectionalConfig"}))
    width = GROUPED["hidden_size"]
    path = save("family-voyage", transformers.Qwen3Config(**GROUPED | {"is_causal": False}), MEAN, head="Qwen3ForCausalLM",
                after=[base.dense(width, 48, "linear.Identity", bias=False), base.NORMALIZE])
    base.finish(path)
    tensors = load_file(path / "model.safetensors")
    tensors["linear.weight"] = load_file(path / "2_Dense/model.safetensors")["linear.weight"]
    shutil.rmtree(path / "2_Dense")
    (path / "3_Normalize").rename(path / "2_Normalize")
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    modules = json.loads((path / "modules.json").read_text())
    modules[2] = modules.pop() | {"idx": 2, "name": "2", "path": "2_Normalize"}
    base.write_json(path / "modules.json", modules)
    pooling = json.loads((path / "1_Pooling/config.json").read_text())
    base.write_json(path / "1_Pooling/config.json", pooling | {"embedding_dimension": 48})
    change(path, published_as("qwen3", "modeling_qwen3_bidirectional", "Qwen3BidirectionalModel", use_bidirectional_attention=True, num_labels=48))


def make_lfm2() -> None:
    """Convolutions between layers that attend, their width by two thirds, a factor and a multiple."""
    sizes = {name: value for name, value in GROUPED.items() if name != "head_dim"} | {
        "num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"], "intermediate_size": 70, "block_multiple_of": 10,
        "block_ffn_dim_multiplier": 1.1}
    rope = {"rope_type": "default", "rope_theta": 3000.0}
    path = save("family-lfm2", transformers.Lfm2Config(**sizes | {"conv_bias": True, "conv_L_cache": 4}, rope_parameters=rope), LAST)
    base.finish(path)

    def hub(config: dict) -> None:
        """The keys of LFM2 as published, of which transformers reads some."""
        for key in ("rope_parameters", "layer_types"):
            config.pop(key)
        move(config, block_ff_dim="intermediate_size", tie_embedding="tie_word_embeddings")
        config.update(full_attn_idxs=[1], rope_theta=3000.0, theta=1e6, intermediate_size=9999, use_pos_enc=True, num_heads=6, block_dim=36,
                      conv_dim=36, conv_dim_out=36, conv_use_xavier_init=True, block_norm_eps=1e-5, block_use_swiglu=True,
                      architectures=["Lfm2ForCausalLM"])
    again("family-lfm2-hub", path, hub)
    path = save("family-lfm2-bidirectional", transformers.Lfm2Config(**sizes | {"is_causal": False}, rope_parameters=rope), CLS)
    with unittest.mock.patch.object(transformers.models.lfm2.modeling_lfm2.Lfm2ShortConv, "forward", reference.centred):
        base.finish(path)
    module = "modeling_lfm2_bidirectional."
    change(path, published_as("lfm2", module[:-1], "Lfm2BidirectionalModel", architectures=["Lfm2BidirectionalModel"],
                              code={"AutoModelForMaskedLM": module + "Lfm2BidirectionalForMaskedLM"}))


class FlexibleQuantizer(torch.nn.Module):
    """What st_quantize.py of pplx-embed does unless asked otherwise."""
    def forward(self, features):
        soft = torch.tanh(features["sentence_embedding"])
        return features | {"sentence_embedding": torch.clamp(torch.round(soft * 127), -128, 127)}


def make_pplx() -> None:
    """Qwen3 that looks both ways, without a prefix, and vectors of whole numbers."""
    path = save("family-pplx", transformers.Qwen3Config(**GROUPED | {"is_causal": False, "intermediate_size": 41}), MEAN, after=())
    base.finish(path)
    soft = 127 * numpy.tanh(numpy.load(path / "expected-0.npy").astype(float))
    assert (abs(soft % 1 - 0.5) > 1e-3).all()  # nothing so near a half that another machine rounds it otherwise
    model = base.SentenceTransformer(str(path), device="cpu", model_kwargs={"dtype": torch.float32})
    model.append(FlexibleQuantizer())
    rows = numpy.stack([model.encode(text, show_progress_bar=False) for text in base.TEXTS])
    assert numpy.array_equal(rows, rows.round()) and abs(rows).max() > 60
    numpy.save(path / "expected-0.npy", rows.astype("<f4"))
    change(path, published_as("bidirectional_pplx_qwen3", "modeling", "PPLXQwen3Model", architectures=["PPLXQwen3Model"],
                              use_bidirectional_attention=True, code={"AutoConfig": "configuration.PPLXQwen3Config"}))
    modules = json.loads((path / "modules.json").read_text())
    modules.append({"idx": 2, "name": "2", "path": "", "type": "st_quantize.FlexibleQuantizer", "kwargs": ["quantization"]})
    base.write_json(path / "modules.json", modules)


def make_codes_of_half_a_name() -> None:
    """Giga-Embeddings and BidirLM (Qwen3) and ReasonIR (Llama): they look both ways, and of their code's name a half is known."""
    path = save("family-qwen3-bidirec", transformers.Qwen3Config(**GROUPED | {"is_causal": False}), MEAN)
    base.finish(path)
    change(path, published_as("qwen3_bidirec", "modeling", "Qwen3BidirectionalModel", architectures=["Qwen3BidirectionalModel"], is_causal=False))
    again("family-qwen3-bidirec-hub", path, lambda config: config.update(model_type="bidirlm", auto_map={"AutoModel": "modeling_bidirlm.BidirLM"}))
    path = save("family-reasonir", transformers.LlamaConfig(**GROUPED | {"is_causal": False}), MEAN)
    base.finish(path)
    change(path, published_as("llama", "modeling_reasonir_8b", "ReasonIRModel", architectures=["ReasonIRModel"]))


def change(path: pathlib.Path, edit) -> None:
    config = json.loads((path / "config.json").read_text())
    edit(config)
    base.write_json(path / "config.json", config)


def make_gte_qwen() -> None:
    """gte-Qwen2 as published: code that looks both ways, a tokenizer whose code appends what tokenizer.json does not."""
    path = save("family-qwen2-gte", transformers.Qwen2Config(
        **SMALL | {"num_key_value_heads": 2, "is_causal": False}, rope_parameters={"rope_type": "default", "rope_theta": 1e6}), LAST)
    base.finish(path)

    def published(config: dict) -> None:
        theta(1e6)(config)
        config.update(architectures=["Qwen2ForCausalLM"], sliding_window=131072, max_window_layers=28, auto_map={
            "AutoModel": "modeling_qwen.Qwen2Model", "AutoModelForCausalLM": "modeling_qwen.Qwen2ForCausalLM",
            "AutoModelForSequenceClassification": "modeling_qwen.Qwen2ForSequenceClassification"})
    again("family-qwen2-gte-hub", path, published)
    hub = base.HERE / "family-qwen2-gte-hub"
    tokenizer = json.loads((hub / "tokenizer.json").read_text())
    tokenizer["post_processor"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    base.write_json(hub / "tokenizer.json", tokenizer)
    base.write_json(hub / "tokenizer_config.json", {
        "add_eos_token": True, "add_prefix_space": False, "bos_token": None, "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>", "unk_token": None, "model_max_length": 64, "tokenizer_class": "Qwen2Tokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_qwen.Qwen2Tokenizer", "tokenization_qwen.Qwen2TokenizerFast"]}})


def with_pieces(path: pathlib.Path, base_name: str, config: transformers.PretrainedConfig, model, pooling: str, after, steps=()) -> None:
    """A folder as `save` makes it, with one of odd_classes.py's tokenizers, some of its steps others."""
    _, tokenizer, settings = odd_classes.BASES[base_name]
    with_tokenizer(path, tokenizer | dict(steps), settings, config, model, pooling, after)


def with_tokenizer(path: pathlib.Path, tokenizer: dict, settings: dict, config: transformers.PretrainedConfig, model, pooling: str, after) -> None:
    base.write_json(path / "tokenizer.json", tokenizer)
    base.write_json(path / "tokenizer_config.json", settings | {"model_max_length": 200})
    base.randomise(model, sum(path.name.encode()))
    model.save_pretrained(path)
    base.save_modules(path, {"embedding_dimension": config.hidden_size, "pooling_mode": pooling, "include_prompt": True}, after,
                      old=False, sentence={"max_seq_length": 150})
    base.finish(path)


def make_deberta() -> None:
    """Texts longer than the buckets' single steps, with the projections of keys and queries or those of distances."""
    size = len(odd_classes.BASES["deberta"][1]["model"]["vocab"])
    own = {"vocab_size": size, "relative_attention": True, "position_biased_input": False, "norm_rel_ebd": "layer_norm",
           "pos_att_type": "p2c|c2p", "pad_token_id": 0, "layer_norm_eps": 1e-7}
    config = transformers.DebertaV2Config(**SMALL | own, position_buckets=16, share_att_key=True, max_relative_positions=-1)
    path = base.new_folder("family-deberta")
    with_pieces(path, "deberta", config, transformers.DebertaV2Model(config), MEAN, [base.NORMALIZE])

    def published(config: dict) -> None:
        for key in ("bos_token_id", "eos_token_id", "dtype", "legacy", "tie_word_embeddings"):
            del config[key]
        config.update(pos_att_type="p2c|c2p", torch_dtype="float32", transformers_version="4.21.3")
    again("family-deberta-hub", path, published)
    hub = base.HERE / "family-deberta-hub"  # its own map makes of line ends and tabs what transformers 5's pattern does
    blanks = {"type": "Precompiled", "precompiled_charsmap": darts({"\n": " ", "\r": " ", "\t": " "})}
    tokenizer = json.loads((hub / "tokenizer.json").read_text())
    tokenizer["normalizer"]["normalizers"] = [{"type": "Strip", "strip_left": True, "strip_right": True}, blanks, odd_classes.SPACES]
    del tokenizer["pre_tokenizer"]["pretokenizers"][0]["prepend_scheme"]
    tokenizer["pre_tokenizer"]["pretokenizers"][0]["add_prefix_space"] = True
    base.write_json(hub / "tokenizer.json", tokenizer)
    config = transformers.DebertaV2Config(**SMALL | own, share_att_key=False, max_relative_positions=24, type_vocab_size=2)
    with_pieces(base.new_folder("family-deberta-apart"), "deberta", config, transformers.DebertaV2ForMaskedLM(config), CLS, [base.NORMALIZE])


def make_by_heads() -> None:
    """DeBERTa v1, Bloom and GPT-NeoX, whose queries, keys and values are one matrix, head by head; and GPT-2, whose matrices lie across."""
    tokenizer = odd_classes.deberta_v1()
    own = {"vocab_size": len(tokenizer["model"]["vocab"]), "relative_attention": True, "position_biased_input": False, "max_relative_positions": 24,
           "pos_att_type": "c2p|p2c", "layer_norm_eps": 1e-7}
    config = transformers.DebertaConfig(**SMALL | own)
    with_tokenizer(base.new_folder("family-deberta-v1"), tokenizer, odd_classes.settings("DebertaTokenizer", **odd_classes.SPECIALS), config,
                   transformers.DebertaForMaskedLM(config), MEAN, [base.NORMALIZE])
    tokenizer = odd_classes.bloom()
    config = transformers.BloomConfig(vocab_size=len(tokenizer["model"]["vocab"]), hidden_size=36, n_layer=3, n_head=6, pad_token_id=3)
    with_tokenizer(base.new_folder("family-bloom"), tokenizer, odd_classes.settings("BloomTokenizerFast", unk_token="<unk>", bos_token="<s>",
                   eos_token="</s>", pad_token="<pad>", padding_side="left"), config, transformers.BloomModel(config), "weightedmean", [])
    make_gpt2()
    make_neox()


def make_gpt2() -> None:
    """GPT-2 under its language model's names, in float32 and in the 16 bits in which an engine may keep what the file has; an end behind every text."""
    tokenizer, end = odd_classes.gpt2(), odd_classes.END
    vocab = tokenizer["model"]["vocab"]
    config = transformers.GPT2Config(vocab_size=len(vocab), n_embd=36, n_layer=3, n_head=6, n_inner=44, n_positions=150, layer_norm_epsilon=1e-4, bos_token_id=0,
                                     eos_token_id=0)
    for name, dtype in (("family-gpt2", torch.float32), ("family-gpt2-bf16", torch.bfloat16)):
        with_tokenizer(base.new_folder(name), tokenizer | {"post_processor": odd_classes.template(vocab, "A", end)},
                       odd_classes.settings("GPT2Tokenizer", unk_token=end, bos_token=end, eos_token=end, pad_token=end), config,
                       transformers.GPT2LMHeadModel(config).to(dtype), "mean", [base.NORMALIZE])


def make_neox() -> None:
    """GPT-NeoX with attention and MLP side by side, a third of each head turning; and its config.json in Pythia's words."""
    tokenizer = odd_classes.neox()
    config = transformers.GPTNeoXConfig(
        **SMALL | {"hidden_size": 36, "num_attention_heads": 3}, vocab_size=len(tokenizer["model"]["vocab"]), layer_norm_eps=1e-4, use_cache=False,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1 / 3}, pad_token_id=1, bos_token_id=0, eos_token_id=0)
    path = base.new_folder("family-gpt-neox")
    with_tokenizer(path, tokenizer, odd_classes.settings("PreTrainedTokenizerFast", unk_token="<|endoftext|>", bos_token="<|endoftext|>",
                   eos_token="<|endoftext|>", pad_token="<|padding|>"), config, transformers.GPTNeoXModel(config), LAST, [base.NORMALIZE])

    def published(config: dict) -> None:
        rope = config.pop("rope_parameters")
        config.update(rotary_pct=rope["partial_rotary_factor"], rotary_emb_base=rope["rope_theta"], rope_scaling=None)
    again("family-gpt-neox-hub", path, published)


def make_ruri() -> None:
    """A ModernBERT with SentencePiece's Unigram whose tokenizer_class says LlamaTokenizer, as published."""
    tokenizer = odd_classes.ruri()
    config = transformers.ModernBertConfig(**SMALL | {"vocab_size": len(tokenizer["model"]["vocab"]), "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3,
                                           "cls_token_id": 2, "sep_token_id": 3, "local_attention": 16})
    settings = odd_classes.settings("LlamaTokenizer", bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>", cls_token="<s>",
                                    sep_token="</s>", mask_token="<mask>", add_bos_token=True, add_eos_token=True, legacy=True, add_prefix_space=False)
    with_tokenizer(base.new_folder("family-ruri"), tokenizer, settings, config, transformers.ModernBertModel(config), MEAN, [])


def make_pieces() -> None:
    """T5's encoder, whose heads need not be as wide as the model, and ALBERT, whose layers are one."""
    size = len(odd_classes.BASES["t5"][1]["model"]["vocab"])
    small = {"vocab_size": size, "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 3, "num_heads": 4, "pad_token_id": 0, "eos_token_id": 1,
             "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}
    config = transformers.T5Config(**small)
    with_pieces(base.new_folder("family-t5"), "t5", config, transformers.T5EncoderModel(config), MEAN,
                [base.dense(32, 24, "linear.Identity", bias=False), base.NORMALIZE])
    config = transformers.T5Config(**small | {"feed_forward_proj": "gated-gelu", "num_heads": 3, "relative_attention_num_buckets": 10,
                                              "relative_attention_max_distance": 20})
    with_pieces(base.new_folder("family-t5-gated"), "t5", config, transformers.T5ForConditionalGeneration(config), CLS, [base.NORMALIZE])
    config = transformers.MT5Config(**small | {"feed_forward_proj": "gated-silu", "d_kv": 6})
    with_pieces(base.new_folder("family-mt5"), "t5", config, transformers.MT5EncoderModel(config), MEAN, [base.NORMALIZE])
    config = transformers.UMT5Config(**small | {"num_heads": 3, "d_kv": 10, "num_decoder_layers": 1, "scalable_attention": True,
                                                "tie_word_embeddings": False})
    with_pieces(base.new_folder("family-umt5"), "t5", config, transformers.UMT5ForConditionalGeneration(config), MEAN, [base.NORMALIZE],
                {"normalizer": odd_classes.SPACES, "pre_tokenizer": odd_classes.metaspace()})  # T5Tokenizer would make others
    make_deberta()
    size = len(odd_classes.BASES["albert"][1]["model"]["vocab"])
    config = transformers.AlbertConfig(**SMALL | {"vocab_size": size, "embedding_size": 12, "num_hidden_groups": 1, "hidden_act": "gelu_new"})
    with_pieces(base.new_folder("family-albert"), "albert", config, transformers.AlbertModel(config), MEAN, [base.NORMALIZE])


def clip_sizes() -> dict:
    tokens = len(odd_classes.clip()["model"]["vocab"])
    return {"vocab_size": tokens, "hidden_size": 30, "intermediate_size": 44, "num_hidden_layers": 3, "num_attention_heads": 5, "projection_dim": 24,
            "max_position_embeddings": 40, "bos_token_id": tokens - 2}


ENDED = ["the cat<|endoftext|>sat on the road", "<|endoftext|>", "the<|startoftext|> cat <|endoftext|><|endoftext|>"]


def make_clip() -> None:
    """A whole CLIP as sentence-transformers published it: vision too, no tokenizer.json, an end of 2. And the text tower alone, as diffusers has
    it, whose vectors are transformers' text_embeds; in ended.npy those of texts that have the end token in their midst."""
    path = base.new_folder("clip-whole")
    inner = path / "0_CLIPModel"
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 8, "patch_size": 8}
    config = transformers.CLIPConfig(text_config=clip_sizes() | {"eos_token_id": 2, "hidden_act": "quick_gelu"}, vision_config=vision, projection_dim=24)
    model = transformers.CLIPModel(config)
    base.randomise(model.text_model, 7)
    base.randomise(model.text_projection, 9)
    model.save_pretrained(inner)
    odd_classes.write_clip(inner)
    base.write_json(inner / "tokenizer_config.json", odd_classes.CLIP_SETTINGS | {"model_max_length": 40})
    base.write_json(inner / "preprocessor_config.json", {
        "image_processor_type": "CLIPImageProcessor", "crop_size": 8, "size": 8, "do_resize": True, "do_center_crop": True, "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.3, 0.3, 0.3], "resample": 3})
    base.write_json(path / "modules.json", [{"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}])
    base.finish(path)

    path = base.new_folder("family-clip")
    config = transformers.CLIPTextConfig(**clip_sizes() | {"eos_token_id": clip_sizes()["vocab_size"] - 1, "hidden_act": "gelu"})
    model = transformers.CLIPTextModelWithProjection(config).eval()
    base.randomise(model, 8)
    model.save_pretrained(path)
    base.write_json(path / "tokenizer.json", odd_classes.clip())
    base.write_json(path / "tokenizer_config.json", odd_classes.CLIP_SETTINGS | {"model_max_length": 40})
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    with torch.no_grad():
        for file, texts in (("expected-0.npy", base.TEXTS), ("ended.npy", ENDED)):
            rows = [model(**tokenizer(text, truncation=True, return_tensors="pt")).text_embeds[0].numpy() for text in texts]
            numpy.save(path / file, numpy.stack(rows))
    base.write_json(path / "expected.json", [{"flags": [], "vectors": "expected-0.npy", "max_length": 40}])


def make_siglip() -> None:
    """A whole SigLIP 2 with Gemma's tokenizer as published, and the text tower alone as transformers saves it, with a head that is wider.
    transformers' vectors of texts padded to the longest, with padding attended to: the tokenizer names no attention_mask."""
    tokenizer = odd_classes.gemma()
    vocab = tokenizer["model"]["vocab"]
    small = {"vocab_size": len(vocab), "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 3, "num_attention_heads": 4,
             "max_position_embeddings": 24}
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 8, "patch_size": 8}
    torch.manual_seed(7)
    whole = transformers.SiglipModel(transformers.SiglipConfig(text_config=small, vision_config=vision))
    alone = transformers.SiglipTextModel(transformers.SiglipTextConfig(**small | {"projection_size": 40, "hidden_act": "gelu"}))
    for name, model in (("family-siglip-whole", whole), ("family-siglip", alone)):
        path = base.new_folder(name)
        base.randomise(getattr(model, "text_model", model), sum(name.encode()))
        model.save_pretrained(path)
        base.write_json(path / "tokenizer.json", tokenizer | {"post_processor": odd_classes.template(vocab, "A", "<eos>")})
        base.write_json(path / "tokenizer_config.json", odd_classes.BASES["gemma3"][2] | {
            "add_bos_token": False, "add_eos_token": True, "padding_side": "right", "model_input_names": ["input_ids"], "model_max_length": 10 ** 30})
        read = transformers.AutoTokenizer.from_pretrained(path)
        tower, rows = getattr(model, "text_model", model).eval(), []
        for text in base.TEXTS:
            inputs = read(text, padding="max_length", truncation=True, max_length=24, return_tensors="pt")
            assert list(inputs) == ["input_ids"] and inputs.input_ids.shape == (1, 24)
            with torch.no_grad():
                rows.append(tower(**inputs).pooler_output[0].numpy())
        numpy.save(path / "expected-0.npy", numpy.stack(rows))
        base.write_json(path / "expected.json", [{"flags": [], "vectors": "expected-0.npy", "max_length": 24}])
    path = base.HERE / "siglip-onnx"  # as onnx-community and fastembed have it: ids in, two outputs
    shutil.copytree(base.HERE / "family-siglip-whole", path)
    (path / "model.safetensors").unlink()
    (path / "expected.json").unlink()
    (path / "onnx").mkdir()
    ids = torch.ones(2, 24, dtype=torch.int64)

    class Tower(torch.nn.Module):
        def forward(self, input_ids):
            out = whole.text_model(input_ids=input_ids)
            return out.last_hidden_state, out.pooler_output
    tower = Tower()
    tower.model = whole.text_model
    whole.text_model.config._attn_implementation = "eager"
    torch.onnx.export(tower.eval(), (ids,), str(path / "onnx/text_model.onnx"), input_names=["input_ids"], output_names=["last_hidden_state", "pooler_output"],
                      dynamic_axes={"input_ids": {0: "batch", 1: "tokens"}, "last_hidden_state": {0: "batch", 1: "tokens"}, "pooler_output": {0: "batch"}},
                      opset_version=17, dynamo=False)


def make_jina_clip() -> None:
    """jina-clip-v1 as published, but for its sizes: those are in another repository's config.json, which hf_model_config_kwargs changes."""
    path = base.new_folder("family-jina-clip")
    tokenizer = base.bert_tokenizer(path)
    tokenizer.save_pretrained(path)
    sizes = {"num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40, "vocab_size": len(tokenizer), "max_position_embeddings": 200}
    known = sizes | {"hidden_size": 36, "layer_norm_eps": 1e-12, "feed_forward_type": "geglu"}
    tensors = reference.draw(reference.jina_shapes(known, False), 77)
    code = "jinaai/jina-clip-implementation--{}"
    base.write_json(path / "config.json", {
        "add_projections": False, "architectures": ["JinaCLIPModel"], "model_type": "jina_clip", "projection_dim": 36, "logit_scale_init_value": 2.6592,
        "auto_map": {"AutoConfig": code.format("configuration_clip.JinaCLIPConfig"), "AutoModel": code.format("modeling_clip.JinaCLIPModel")},
        "text_config": {"model_type": "jina_clip_text", "embed_dim": 36, "hf_model_name_or_path": "jinaai/jina-bert-flash-implementation",
                        "hf_model_config_kwargs": {"use_flash_attn": False, **sizes}, "pooler_type": "mean_pooler", "proj_bias": False, "proj_type": None},
        "vision_config": {"model_type": "jina_clip_vision", "embed_dim": 36, "width": 36, "layers": 1},
        "use_text_flash_attn": None, "use_vision_xformers": None})
    save_file({"text_model.transformer." + name: tensor for name, tensor in reference.jina_flash(tensors).items()} |
              {"logit_scale": torch.tensor(2.6592), "vision_model.cls_token": torch.zeros(1, 1, 36)}, path / "model.safetensors")
    base.write_json(path / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": "custom_st.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Normalize", "type": base.OLD + "Normalize"}])
    vectors = [reference.jina_rows(known, tensors, tokenizer(text, truncation=True, max_length=64).input_ids, False).mean(0) for text in base.TEXTS]
    numpy.save(path / "expected-0.npy", torch.nn.functional.normalize(torch.stack(vectors)).numpy())
    base.write_json(path / "expected.json", [{"flags": [], "vectors": "expected-0.npy", "max_length": 64}])


def by_hand(name: str, config: dict, shapes, rows, prefix: str = "") -> pathlib.Path:
    """A folder of a family that transformers lacks; its vectors are mean and unit length of `rows`."""
    path = base.new_folder(name)
    tokenizer = base.bert_tokenizer(path)
    tokenizer.save_pretrained(path)
    config["vocab_size"] = len(tokenizer)
    tensors = reference.draw(shapes(config), sum(name.encode()))
    base.write_json(path / "config.json", config)
    save_file({prefix + key: value for key, value in tensors.items()}, path / "model.safetensors")
    base.save_modules(path, {"embedding_dimension": config.get("hidden_size", 32), "pooling_mode": "mean",
                             "include_prompt": True}, [base.NORMALIZE], old=False, sentence={"max_seq_length": 200})
    vectors = [rows(config, tensors, tokenizer(text, truncation=True, max_length=200).input_ids).mean(0)
               for text in base.TEXTS]
    numpy.save(path / "expected-0.npy", torch.nn.functional.normalize(torch.stack(vectors)).numpy())
    base.write_json(path / "expected.json", [{"flags": [], "vectors": "expected-0.npy", "max_length": 200}])
    return path


def make_nvembed() -> None:
    """NV-Embed as published; its code appends the end token, which its tokenizer does not."""
    known = GROUPED | {"rms_norm_eps": 1e-5, "rope_theta": 700.0, "add_eos": True, "num_latents_value": 21, "num_cross_heads": 3, "cross_dim_head": 10}
    path = by_hand("family-nvembed", known, reference.nv_shapes, reference.nv_rows)
    base.write_json(path / "config.json", reference.nv_config(known))
    file = path / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}}}
    base.write_json(file, tokenizer)
    file = path / "tokenizer_config.json"
    base.write_json(file, json.loads(file.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "[SEP]"})


def make_by_hand() -> None:
    code = "jinaai/jina-bert-{}--modeling_bert.JinaBertModel"
    for name, qk, repository in (("jina", False, "implementation"), ("jina-qk", True, "v2-qk-post-norm")):
        config = SMALL | {
            "model_type": "bert", "position_embedding_type": "alibi", "feed_forward_type": "geglu", "hidden_act": "gelu",
            "layer_norm_eps": 1e-5, "type_vocab_size": 2, "num_attention_heads": 4 + 2 * qk,
            "hidden_size": 32 + 4 * qk, "auto_map": {"AutoModel": code.format(repository)}}
        path = by_hand("family-" + name, config, lambda c, qk=qk: reference.jina_shapes(c, qk),
                       lambda c, t, ids, qk=qk: reference.jina_rows(c, t, ids, qk), prefix="bert." if qk else "")
        again(f"family-{name}-hub", path, lambda config: config.update(auto_map={"AutoModel": "modeling_bert.JinaBertModel"}))
    config = {"model_type": "nomic_bert", "n_embd": 32, "n_layer": 4, "n_head": 4, "n_inner": 24, "n_positions": 256,
              "layer_norm_epsilon": 1e-5, "rotary_emb_base": 333.0, "activation_function": "gelu", "type_vocab_size": 1,
              "num_experts": 5, "moe_top_k": 2, "moe_every_n_layers": 2, "qkv_proj_bias": True, "mlp_fc1_bias": True,
              "mlp_fc2_bias": True, "prenorm": False, "rotary_emb_fraction": 1.0,
              "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"}}
    by_hand("family-nomic-moe", config, reference.moe_shapes, reference.moe_rows)


def static(name: str, tensors: dict, after: list) -> None:
    """A folder of StaticEmbedding: no config.json, a table, and what model2vec adds to it."""
    path = base.new_folder(name)
    base.bert_tokenizer(path).backend_tokenizer.save(str(path / "tokenizer.json"))
    (path / "vocab.txt").unlink()
    save_file(tensors, path / "model.safetensors")
    kinds = ["StaticEmbedding", *after]
    base.write_json(path / "modules.json", [
        {"idx": i, "name": str(i), "path": "" if i == 0 else f"{i}_{kind}", "type": base.OLD + kind}
        for i, kind in enumerate(kinds)])
    base.finish(path)


def make_routes() -> None:
    """A static table for queries and an encoder for documents, each with its tokenizer, and what both go through."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    path = base.new_folder("router-dense")
    document, query = path / "document", path / "query"
    for folder in (document, query):
        folder.mkdir()
    tokenizer = base.bert_tokenizer(document)
    tokenizer.save_pretrained(document)
    config = transformers.BertConfig(**SMALL | {"vocab_size": len(tokenizer)})
    encoder = transformers.BertModel(config)
    base.randomise(encoder, 31)
    encoder.save_pretrained(document)
    words = base.bert_tokenizer(query, lower=False).backend_tokenizer
    table = modules.StaticEmbedding(words, embedding_weights=torch.randn(words.get_vocab_size(), 32, generator=torch.Generator().manual_seed(5)).numpy())
    transformer = modules.Transformer(str(document))
    transformer.max_seq_length = 48
    routes = {"query": [table], "document": [transformer, modules.Pooling(32, pooling_mode="mean")]}
    dense = modules.Dense(32, 20)
    base.randomise(dense, 32)
    model = SentenceTransformer(modules=[modules.Router(routes, default_route="document"), dense, modules.Normalize()],
                                prompts={"query": "the sea: ", "document": ""})
    shutil.rmtree(path)
    model.save(str(path), create_model_card=False)
    model = SentenceTransformer(str(path), device="cpu")
    expected = []
    for index, (encode, flags) in enumerate(((model.encode_query, ["--model-task", "query"]), (model.encode_document, ["--model-task", "document"]))):
        numpy.save(path / f"expected-{index}.npy", numpy.stack([encode(text, show_progress_bar=False) for text in base.TEXTS]).astype("<f4"))
        expected.append({"flags": flags, "vectors": f"expected-{index}.npy", "max_length": 1 << 20 if index == 0 else 48})
    base.write_json(path / "expected.json", expected)


def make_static() -> None:
    generator = torch.Generator().manual_seed(8)
    table = torch.randn(140, 20, generator=generator)
    static("family-static", {"embedding.weight": table}, [])
    rows = {"mapping": torch.randint(0, 60, (140,), generator=generator),
            "weights": 0.2 + torch.rand(140, generator=generator)}
    static("family-static-mapped", {"embeddings": table[:60].contiguous()} | rows, ["Normalize"])
    static("family-static-int8", {"embeddings": (table[:60] * 40).round().clamp(-127, 127).to(torch.int8)} | rows,
           ["Normalize"])


def gated(name: str, table: torch.Tensor, kind: str, write) -> None:
    """A folder of Stable Static Embedding: the mean of a table's rows, then beta tanh(alpha x + bias); `write` puts the table there."""
    path = base.new_folder(name)
    tokenizer = base.bert_tokenizer(path)
    tokenizer.backend_tokenizer.save(str(path / "tokenizer.json"))
    (path / "vocab.txt").unlink()
    generator = torch.Generator().manual_seed(9)
    gate = {"dyt." + key: mean + torch.randn(table.shape[1], generator=generator) * 0.3 for key, mean in (("alpha", 0.9), ("beta", 1.0), ("bias", 0.0))}
    write(path, table, gate)
    base.write_json(path / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": "modeling." + kind}])
    ids = [tokenizer(text, add_special_tokens=False).input_ids for text in base.TEXTS]
    rows = [table[one].mean(0) if one else torch.zeros(table.shape[1]) for one in ids]
    vectors = gate["dyt.beta"] * torch.tanh(gate["dyt.alpha"] * torch.stack(rows) + gate["dyt.bias"])
    numpy.save(path / "expected-0.npy", vectors.numpy())
    base.write_json(path / "expected.json", [{"flags": [], "vectors": "expected-0.npy", "max_length": 1 << 20}])


def make_gated() -> None:
    """The table as floats, and as 4 bits in a file of their own: nibbles, the first column's the higher, then a scale for each row."""
    table = torch.randn(140, 20, generator=torch.Generator().manual_seed(11))
    gated("family-static-gated", table, "SSE", lambda path, whole, gate: save_file({"embedding.weight": whole} | gate, path / "model.safetensors"))
    scale = table.abs().amax(1, keepdim=True) + 1e-8
    q = ((table / scale + 1) * 7.5).round().clamp(0, 15).to(torch.uint8)

    def nibbles(path: pathlib.Path, _, gate: dict) -> None:
        save_file(gate, path / "model_rest.safetensors")
        (path / "embedding.q4_k_m.bin").write_bytes((q[:, 0::2] << 4 | q[:, 1::2]).numpy().tobytes() + scale.numpy().tobytes())
    gated("family-static-gated-4bit", (q.float() / 7.5 - 1) * scale, "SSEQ", nibbles)


def make_native_names() -> None:
    """Tensor names of transformers' own classes, which it only writes when asked to."""
    rope = {"rope_type": "default", "rope_theta": 777.0}
    path = save("family-jina3", transformers.JinaEmbeddingsV3Config(
        **SMALL, rope_parameters=rope), MEAN, roberta=True)
    base.finish(path)
    for name in ("nomic", "gte", "jina3"):
        path = base.HERE / f"family-{name}"
        model = transformers.AutoModel.from_pretrained(path)
        shutil.copytree(path, base.HERE / f"family-{name}-names")
        model.save_pretrained(base.HERE / f"family-{name}-names", save_original_format=False)


def make_tasks() -> None:
    """Jina v3 as the Hub has it: an adapter for each of three tasks as parametrizations of every matrix.

    The remote code's formula, W + alpha / rank * B[task] A[task], tables the other way round, is put into
    the weights of transformers' own class, which computes the vectors.
    """
    tasks, rank, alpha = ("retrieval.query", "separation", "text-matching"), 2, 3
    path = save("family-jina3-tasks", transformers.JinaEmbeddingsV3Config(
        **SMALL, layer_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 222.0}), MEAN, roberta=True)
    plain = {key.removeprefix("roberta."): value for key, value in load_file(path / "model.safetensors").items()}
    plain = {key: value for key, value in plain.items() if not key.startswith("pooler.")}
    generator, hub, folded = torch.Generator().manual_seed(15), {}, [{} for _ in tasks]
    for key, weight in plain.items():
        if weight.dim() == 1:
            hub["roberta." + key] = weight
            for one in folded:
                one[key] = weight
            continue
        rows, columns = weight.shape
        table = "embeddings." in key
        a = torch.randn((len(tasks), rows, rank) if table else (len(tasks), rank, columns), generator=generator) / 2
        b = torch.randn((len(tasks), rank, columns) if table else (len(tasks), rows, rank), generator=generator) / 2
        at = "roberta." + key.removesuffix("weight") + "parametrizations.weight."
        hub |= {at + "original": weight, at + "0.lora_A": a, at + "0.lora_B": b}
        for one, left, right in zip(folded, *((a, b) if table else (b, a))):
            one[key] = weight + torch.matmul(left, right) * (alpha / rank)
    config = json.loads((path / "config.json").read_text())
    prompts = {"retrieval.query": "the sea is ", "separation": "", "text-matching": "it is "}
    expected = []
    for index, (task, weights) in enumerate(zip(tasks, folded)):
        save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
        model = base.SentenceTransformer(str(path), device="cpu", model_kwargs={"dtype": torch.float32})
        rows = numpy.stack([model.encode(text, prompt=prompts[task], show_progress_bar=False) for text in base.TEXTS])
        numpy.save(path / f"expected-{index}.npy", rows.astype("<f4"))
        expected.append({"flags": ["--model-task", task], "vectors": f"expected-{index}.npy", "max_length": 200})
    base.write_json(path / "expected.json", expected)
    save_file(hub, path / "model.safetensors", metadata={"format": "pt"})
    code = "jinaai/xlm-roberta-flash-implementation--"
    base.write_json(path / "config.json", {key: config[key] for key in (
        "hidden_act", "hidden_size", "intermediate_size", "layer_norm_eps", "max_position_embeddings", "num_attention_heads",
        "num_hidden_layers", "pad_token_id", "type_vocab_size", "vocab_size")} | {
        "model_type": "xlm-roberta", "position_embedding_type": "rotary", "rotary_emb_base": 222.0,
        "lora_adaptations": tasks, "lora_rank": rank, "lora_alpha": alpha, "lora_dropout_p": 0.0,
        "lora_main_params_trainable": False, "load_trained_adapters": True, "task_instructions": prompts,
        "auto_map": {"AutoConfig": code + "configuration_xlm_roberta.XLMRobertaFlashConfig",
                     "AutoModel": code + "modeling_lora.XLMRobertaLoRA"}})
    base.write_json(path / "config_sentence_transformers.json", {
        "prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"})
    modules = json.loads((path / "modules.json").read_text())
    modules[0] |= {"type": "custom_st.Transformer", "kwargs": ["task"]}
    base.write_json(path / "modules.json", modules)
    for unused in ("special_tokens_map.json", "generation_config.json"):
        (path / unused).unlink(missing_ok=True)


def make_jina5() -> None:
    """Jina v5 as published: an adapter of peft's for each task, in a folder of its own, and code that pools the last token and normalises."""
    from peft import LoraConfig, TaskType
    transformers.integrations.peft.check_peft_version = lambda **_: None  # asks for one that no index has yet
    tasks, prompts = ("retrieval", "text-matching"), {"query": "Query: ", "document": "Document: "}
    rope, sizes = {"rope_type": "default", "rope_theta": 1e6}, {"max_position_embeddings": 200}
    for name, config, more in (
            ("family-jina5", transformers.Qwen3Config(**GROUPED | sizes, rope_parameters=rope), {}),
            ("family-jina5-nano", transformers.EuroBertConfig(**SMALL | sizes | {"num_key_value_heads": 2}, rope_parameters=rope),
             {"is_decoder": False})):
        path = save(name, config, LAST)
        expected = []
        for index, task in enumerate(tasks):
            model = base.SentenceTransformer(str(path), device="cpu", model_kwargs={"dtype": torch.float32})
            model.max_seq_length = 200
            model.add_adapter(LoraConfig(task_type=TaskType.FEATURE_EXTRACTION, inference_mode=True, r=4, lora_alpha=8,
                                         target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]))
            generator = torch.Generator().manual_seed(sum(name.encode()) + index)
            for key, parameter in model.named_parameters():
                if "lora_" in key:
                    parameter.data = torch.randn(parameter.shape, generator=generator) * 0.1
            model[0].auto_model.save_pretrained(path / "adapters" / task)
            (path / "adapters" / task / "README.md").unlink(missing_ok=True)
            adapter = json.loads((path / "adapters" / task / "adapter_config.json").read_text())
            base.write_json(path / "adapters" / task / "adapter_config.json", adapter | {"base_model_name_or_path": "jinaai/" + name})
            for kind in ("document", "query"):
                file = f"expected-{len(expected)}.npy"
                rows = numpy.stack([model.encode(text, prompt=prompts[kind], show_progress_bar=False) for text in base.TEXTS])
                numpy.save(path / file, rows.astype("<f4"))
                flags = ["--model-task", task] + (["--prompt-name", kind] if kind == "query" else [])
                expected.append({"flags": flags, "vectors": file, "max_length": 200})
        base.write_json(path / "expected.json", expected)
        theta(1e6)(written := json.loads((path / "config.json").read_text()))
        code = "{}_jina_embeddings_v5.JinaEmbeddingsV5{}"
        base.write_json(path / "config.json", written | more | {
            "model_type": "jina_embeddings_v5", "architectures": ["JinaEmbeddingsV5Model"], "task_names": tasks,
            "auto_map": {"AutoConfig": code.format("configuration", "Config"), "AutoModel": code.format("modeling", "Model")}})
        settings = json.loads((path / "tokenizer_config.json").read_text())
        base.write_json(path / "tokenizer_config.json", settings | {"model_max_length": 10 ** 30})  # the code asks config.json alone
        base.write_json(path / "modules.json", [{"idx": 0, "name": "transformer", "path": "", "type": "custom_st.Transformer", "kwargs": ["task", "truncate_dim"]}])
        base.write_json(path / "config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": "document", "similarity_fn_name": "cosine"})
        for unused in ("1_Pooling", "2_Normalize"):
            shutil.rmtree(path / unused, ignore_errors=True)
        for unused in ("sentence_bert_config.json", "special_tokens_map.json", "generation_config.json"):
            (path / unused).unlink(missing_ok=True)


def make_all() -> None:
    make_absolute()
    make_rotary()
    make_decoders()
    make_pieces()
    make_by_heads()
    make_ruri()
    make_clip()
    make_siglip()
    make_jina_clip()
    make_nvembed()
    make_by_hand()
    make_native_names()
    make_tasks()
    make_jina5()
    make_static()
    make_routes()
    make_gated()
