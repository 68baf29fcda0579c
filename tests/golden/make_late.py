#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_late.py - small late-interaction models (ColBERT), and what MultiVectorEncoder makes of them.

    make_late.py             writes tests/golden/late/ anew

The folders that people have: as sentence-transformers 6.2 saves them, as PyLate 1.x does, as Stanford's ColBERT
does. expected.npz holds the rows of TEXTS as queries, as documents and as neither, text after text with where
each begins, and the scores of every query with every document. Needs torch and sentence-transformers 6.2; the
tests need neither.
"""
import json
import shutil
import string

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

import make_folders as base

TEXTS = json.loads((base.HERE / "texts.json").read_text(encoding="utf-8"))[:12]
TEXTS += ["the road " * 9, "[Q] a marker, and [unused1] too", "the sea - the ship; the dog: " * 4]
base.HERE = HERE = base.HERE.parent / "late"
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
         "max_position_embeddings": 64}
ROBERTA = SMALL | {"max_position_embeddings": 80}
ODD = {"config_sentence_transformers.json", "modules.json", "sentence_bert_config.json", "README.md"}


def encoder(name: str, config, roberta: bool = False, extra: tuple = (), lower: bool = True):
    """A folder as transformers writes it."""
    path = base.new_folder(name)
    tokenizer = base.mpnet_tokenizer(path) if roberta else base.bert_tokenizer(path, lower)
    tokenizer.add_tokens(list(extra))
    tokenizer.model_max_length = 60
    config.vocab_size = len(tokenizer)
    config.pad_token_id = tokenizer.pad_token_id
    for key in ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"):
        if getattr(config, key, None) is not None:
            setattr(config, key, 2)
    model = transformers.AutoModel.from_config(config)
    base.randomise(model, sum(name.encode()))
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def dense(size_in: int, size_out: int, activation=None, bias: bool = False, **more) -> Dense:
    layer = Dense(size_in, size_out, bias=bias, activation_function=activation or torch.nn.Identity(),
                  module_input_name="token_embeddings", **more)
    base.randomise(layer, size_in + size_out)
    return layer


def finish(path) -> None:
    for unused in ("special_tokens_map.json", "generation_config.json", "vocab.txt", "README.md"):
        (path / unused).unlink(missing_ok=True)
    model = MultiVectorEncoder(str(path), device="cpu", local_files_only=True)
    print(path.name, model.prompts, model[0].query_expansion, [type(m).__name__ for m in model])
    found = {}
    for side, encode in (("query", model.encode_query), ("document", model.encode_document), ("plain", model.encode)):
        rows = [encode(text, convert_to_numpy=True) for text in TEXTS]
        found[side] = numpy.concatenate(rows).astype("<f4")
        found[side + "_offsets"] = numpy.cumsum([0] + [len(row) for row in rows])
    queries, documents = (
        [torch.from_numpy(found[side][a:b]) for a, b in zip(found[side + "_offsets"], found[side + "_offsets"][1:])]
        for side in ("query", "document"))
    found["scores"] = model.similarity(queries, documents).numpy().astype("<f4")
    numpy.savez_compressed(path / "expected.npz", **found)


def native(name: str, path, modules: list, prompts: dict, **more) -> None:
    """As MultiVectorEncoder saves it."""
    model = MultiVectorEncoder(modules=modules, prompts=prompts, device="cpu", **more)
    saved = HERE / (name + "-saved")
    model.save(str(saved), create_model_card=False)
    shutil.rmtree(path)
    saved.rename(path)
    finish(path)


def make_native() -> None:
    path = encoder("bert", transformers.BertConfig(**SMALL))
    native("bert", path, [
        Transformer(str(path), query_expansion={"strategy": "fixed", "length": 16}, document_length=24), dense(32, 12),
        MultiVectorMask(skiplist_words=list(string.punctuation)), Normalize(module_input_name="token_embeddings")],
           {"query": "[Q] ", "document": "[D] "})
    path = encoder("roberta", transformers.RobertaConfig(**ROBERTA | {"type_vocab_size": 1}), roberta=True)
    native("roberta", path, [
        Transformer(str(path), query_expansion={"strategy": "min", "length": 10, "attend": True}, query_length=20),
        dense(32, 40, torch.nn.Tanh(), bias=True), dense(40, 40, torch.nn.GELU(), use_residual=True),
        dense(40, 8, use_residual=True), Normalize(module_input_name="token_embeddings"),
        MultiVectorMask(skiplist_words=["the", ","], skiplist_tasks=["query", "document"])],
           {"query": "find: ", "document": ""}, similarity_fn_name="meanmaxsim")
    path = encoder("mpnet", transformers.MPNetConfig(**ROBERTA), roberta=True)
    native("mpnet", path, [
        Transformer(str(path), query_expansion={"strategy": "min", "length": 16, "token": "sea"}),
        dense(32, 12), MultiVectorMask()], {"query": "", "document": ""})
    path = encoder("modernbert", transformers.ModernBertConfig(
        **SMALL | {"max_position_embeddings": 80}, local_attention=48, global_attn_every_n_layers=2,
        reference_compile=False))
    native("modernbert", path, [
        Transformer(str(path), query_length=12, document_length=40), dense(32, 12),
        MultiVectorMask(), Normalize(module_input_name="token_embeddings")], {"query": "a: ", "document": "the "})


def pylate(name: str, lower: bool, extra: tuple, settings: dict, config: dict | None = None, encoder_config=None) -> None:
    """As PyLate 1.x saves it."""
    path = encoder(name, encoder_config or transformers.BertConfig(**SMALL), extra=extra, lower=lower)
    layer = dense(32, 12)
    (path / "1_Dense").mkdir()
    save_file(layer.state_dict(), path / "1_Dense/model.safetensors")
    base.write_json(path / "1_Dense/config.json", {
        "in_features": 32, "out_features": 12, "bias": False, "use_residual": False,
        "activation_function": "torch.nn.modules.linear.Identity"} | (config or {}))
    base.write_json(path / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"}])
    base.write_json(path / "sentence_bert_config.json", {"max_seq_length": 40, "do_lower_case": False})
    base.write_json(path / "config_sentence_transformers.json", {
        "__version__": {"sentence_transformers": "4.0.2"}, "prompts": {}, "default_prompt_name": None,
        "similarity_fn_name": "MaxSim", "query_prefix": "[Q] ", "document_prefix": "[D] ", "query_length": 16,
        "document_length": 30, "attend_to_expansion_tokens": False,
        "skiplist_words": list(string.punctuation)} | settings)
    finish(path)


def make_lfm2() -> None:
    """LFM2-ColBERT's form: PyLate's, over convolutions; nothing attends to what fills a query, which is zeros to a convolution."""
    pylate("lfm2", True, ("[Q] ", "[D] "), {"model_type": "ColBERT"}, encoder_config=transformers.Lfm2Config(
        **SMALL | {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}, num_key_value_heads=2, conv_bias=True,
        block_auto_adjust_ff_dim=False))


def make_pplx() -> None:
    """pplx-embed-v1-late's form: PyLate's over Qwen3 that looks both ways, what fills a query attended to."""
    pylate("pplx", True, ("[Q] ", "[D] "), {"model_type": "ColBERT", "attend_to_expansion_tokens": True}, encoder_config=transformers.Qwen3Config(
        **SMALL, num_key_value_heads=2, head_dim=12, is_causal=False))
    path = HERE / "pplx"
    config = json.loads((path / "config.json").read_text())
    del config["is_causal"]
    base.write_json(path / "config.json", config | {"model_type": "bidirectional_pplx_qwen3", "architectures": ["PPLXQwen3Model"],
                                                    "auto_map": {"AutoModel": "modeling.PPLXQwen3Model"}})


def make_pylate() -> None:
    pylate("pylate", True, ("[Q] ", "[D] "), {"model_type": "ColBERT"})
    pylate("pylate-attend", False, (), {"model_type": "ColBERT", "attend_to_expansion_tokens": True,
                                        "do_query_expansion": True, "skiplist_words": None, "query_prefix": "the ",
                                        "prompts": {"query": "ship: "}})
    pylate("pylate-plain", True, ("[Q] ", "[D] "), {"model_type": "ColBERT", "do_query_expansion": False,
                                                    "skiplist_words": []})


def make_stanford() -> None:
    path = encoder("stanford", transformers.BertConfig(**SMALL), extra=("[unused0]", "[unused1]"))
    tensors = {"bert." + name: tensor for name, tensor in load_file(path / "model.safetensors").items()}
    tensors["linear.weight"] = dense(32, 12).linear.weight.data
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    base.write_json(path / "config.json", config | {"architectures": ["HF_ColBERT"]})
    base.write_json(path / "artifact.metadata", {
        "query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": 14, "doc_maxlen": 30,
        "attend_to_mask_tokens": False, "mask_punctuation": True, "similarity": "cosine", "dim": 12})
    finish(path)


def make_jina() -> None:
    """jina-colbert-v2 as published: Stanford's form over Jina's XLM-RoBERTa with rotary positions, which is transformers' own of
    another name."""
    config = transformers.JinaEmbeddingsV3Config(**SMALL, type_vocab_size=1, layer_norm_eps=1e-5,
                                                 rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    path = encoder("jina", config, roberta=True, extra=("[QueryMarker]", "[DocumentMarker]"))
    tensors = load_file(path / "model.safetensors")
    tensors = {("" if name.startswith("roberta.") else "roberta.") + name: tensor for name, tensor in tensors.items()}
    tensors["linear.weight"] = dense(32, 12).linear.weight.data
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
    base.write_json(path / "config.json", config)
    base.write_json(path / "artifact.metadata", {
        "query_token_id": "[QueryMarker]", "doc_token_id": "[DocumentMarker]", "query_maxlen": 14, "doc_maxlen": 30,
        "attend_to_mask_tokens": True, "mask_punctuation": True, "similarity": "cosine", "dim": 12})
    finish(path)
    del config["rope_parameters"]
    code = "jinaai/xlm-roberta-flash-implementation--"
    base.write_json(path / "config.json", config | {
        "model_type": "xlm-roberta", "position_embedding_type": "rotary", "rotary_emb_base": 10000.0, "use_flash_attn": True,
        "lora_adaptations": None, "emb_pooler": None, "auto_map": {
            "AutoConfig": code + "configuration_xlm_roberta.XLMRobertaFlashConfig",
            "AutoModel": code + "modeling_xlm_roberta.XLMRobertaModel",
            "AutoModelForMaskedLM": code + "modeling_xlm_roberta.XLMRobertaForMaskedLM"}})


def main() -> None:
    if HERE.exists():
        shutil.rmtree(HERE)
    HERE.mkdir()
    make_native()
    make_pylate()
    make_lfm2()
    make_pplx()
    make_stanford()
    make_jina()
    base.write_json(HERE / "texts.json", TEXTS)
    base.link_duplicates()


if __name__ == "__main__":
    main()
