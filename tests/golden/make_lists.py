#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_lists.py - what sentence-transformers gives that is not one vector a text, for make_folders.py.

    make_lists.py            writes tokens.npz into some of its folders, and makes the folders sparse-* and router-*

tokens.npz holds what encode(output_value="token_embeddings") gives for the first texts of texts.json, text after
text, and where each begins. sparse-* are SPLADE models as SparseEncoder saves them or once did: tied and
untied decoders, both activations, the families that have a vocabulary head, a decoder by code of the Hub; sparse.npz holds their dense rows,
computed in float64.
router-* are models whose queries are looked up instead of computed (Router, SparseStaticEmbedding), with the table as a
tensor and as idf.json; router.npz holds the rows of encode_query, encode_document and encode.
Needs torch and sentence-transformers; the tests need neither.
"""
import json
import pathlib
import shutil

import numpy
import torch
import transformers
from sentence_transformers import SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

import make_folders as base

FOLDERS = base.HERE
# A plain encoder, one whose pooling reads a single row, norms in front and at the end, prompts, modules after pooling.
TOKENS = ("plain-bert", "pooling-cls", "mpnet", "family-modernbert", "family-qwen3", "prompts-left-out-mean",
          "normalize-dense")
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))[:12]
SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 40,
         "max_position_embeddings": 100}
PACKAGE = "sentence_transformers."
NEW = (PACKAGE + "base.modules.transformer.Transformer",
       PACKAGE + "sparse_encoder.modules.splade_pooling.SpladePooling")
OLD = (PACKAGE + "sparse_encoder.models.MLMTransformer", PACKAGE + "sparse_encoder.models.SpladePooling")


def make_tokens() -> None:
    for name in TOKENS:
        model = SentenceTransformer(str(FOLDERS / name), device="cpu", local_files_only=True)
        rows = model.encode(TEXTS, output_value="token_embeddings", batch_size=len(TEXTS))
        numpy.savez(FOLDERS / name / "tokens.npz", offsets=numpy.cumsum([0] + [len(row) for row in rows]),
                    embeddings=numpy.concatenate([row.float().numpy() for row in rows]))


def sparse(name: str, config: transformers.PretrainedConfig, tokens=base.bert_tokenizer, old: bool = False,
           activation: str = "relu", modules: bool = True) -> pathlib.Path:
    path = base.new_folder(name)
    tokenizer = tokens(path)
    config.vocab_size = len(tokenizer)
    config.pad_token_id = tokenizer.pad_token_id
    model = transformers.AutoModelForMaskedLM.from_config(config)
    base.randomise(model, sum(name.encode()))
    with torch.no_grad():  # about half of the weights are above 0
        for key, tensor in model.named_parameters():
            if key.endswith(("predictions.bias", "lm_head.bias", "vocab_projector.bias")) or key in (
                    "decoder.bias", "lm_head.decoder.bias"):
                tensor -= 0.5
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    (path / "1_SpladePooling").mkdir()
    base.write_json(path / "1_SpladePooling/config.json", {
        "pooling_strategy": "max", "activation_function": activation,
        "word_embedding_dimension" if old else "embedding_dimension": len(tokenizer)})
    base.write_json(path / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": (OLD if old else NEW)[0]},
        {"idx": 1, "name": "1", "path": "1_SpladePooling", "type": (OLD if old else NEW)[1]}])
    base.write_json(path / "sentence_bert_config.json", {"max_seq_length": 48, "do_lower_case": False} if old else {
        "transformer_task": "fill-mask", "max_seq_length": 48, "module_output_name": "token_embeddings",
        "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}}})
    base.write_json(path / "config_sentence_transformers.json", {
        "model_type": "SparseEncoder", "prompts": {"query": "", "document": ""},
        "default_prompt_name": None, "similarity_fn_name": "dot"})
    # In float64: no norm follows the head, and the layers' own roundings are up to 5e-6 of a weight in float32,
    # padding up to 1.1e-5 (NomicBERT).
    encoder = SparseEncoder(str(path), device="cpu", local_files_only=True, model_kwargs={"dtype": torch.float64})
    rows = encoder.encode(TEXTS, batch_size=1, convert_to_sparse_tensor=False).float().numpy()
    assert 0.05 < (rows > 0).mean() < 0.95
    if not modules:  # what a plain masked language model is taken for
        shutil.rmtree(path / "1_SpladePooling")
        (path / "modules.json").unlink()
        (path / "sentence_bert_config.json").unlink()
        (path / "config_sentence_transformers.json").unlink()
    numpy.savez_compressed(path / "sparse.npz", rows=rows)
    (path / "vocab.txt").unlink(missing_ok=True)
    return path


def make_sparse() -> None:
    for path in FOLDERS.glob("sparse-*"):
        shutil.rmtree(path)
    sparse("sparse-bert", transformers.BertConfig(**SMALL))
    sparse("sparse-bert-untied", transformers.BertConfig(**SMALL | {"hidden_act": "silu"}, tie_word_embeddings=False))
    sparse("sparse-old", transformers.BertConfig(**SMALL), old=True, activation="log1p_relu")
    sparse("sparse-plain", transformers.BertConfig(**SMALL | {"max_position_embeddings": 48}), modules=False)
    sparse("sparse-distilbert", transformers.DistilBertConfig(
        dim=32, n_layers=1, n_heads=4, hidden_dim=40, max_position_embeddings=100))
    sparse("sparse-roberta", transformers.RobertaConfig(**SMALL | {"type_vocab_size": 1, "hidden_act": "relu"}),
           tokens=base.mpnet_tokenizer)
    sparse("sparse-mpnet", transformers.MPNetConfig(**SMALL), tokens=base.mpnet_tokenizer)
    make_more_families()
    make_splade_code()


def make_more_families() -> None:
    """Norms in front and at the end, heads without biases, narrower ones, rotary positions."""
    two = SMALL | {"num_hidden_layers": 2}
    modern = two | {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3,
                    "local_attention": 6, "global_attn_every_n_layers": 2}
    sparse("sparse-modernbert", transformers.ModernBertConfig(**modern))
    sparse("sparse-modernbert-bias", transformers.ModernBertConfig(
        **modern, classifier_bias=True, norm_bias=True, decoder_bias=False, classifier_activation="silu",
        tie_word_embeddings=False))
    sparse("sparse-electra", transformers.ElectraConfig(**two | {"embedding_size": 20}))
    sparse("sparse-gte", transformers.GteConfig(**two))
    sparse("sparse-nomic", transformers.NomicBertConfig(**two))
    make_rotary_families()


def make_rotary_families() -> None:
    two = SMALL | {"num_hidden_layers": 2}
    llama = two | {"num_key_value_heads": 2, "bos_token_id": 2, "eos_token_id": 3, "mask_token_id": 4}
    sparse("sparse-eurobert", transformers.EuroBertConfig(**llama))
    sparse("sparse-eurobert-tied", transformers.EuroBertConfig(**llama, mlp_bias=True, tie_word_embeddings=True))
    sparse("sparse-jina3", transformers.JinaEmbeddingsV3Config(**two | {"type_vocab_size": 1}), tokens=base.mpnet_tokenizer)


def make_splade_code() -> None:
    """Qwen3 that looks both ways under its own output layer, which transformers calls no masked language model, and that layer apart."""
    transformers.AutoModelForMaskedLM.register(transformers.Qwen3Config, transformers.Qwen3ForCausalLM, exist_ok=True)
    sizes = SMALL | {"num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 12, "is_causal": False, "bos_token_id": 2, "eos_token_id": 2}
    for name, tied in (("sparse-splade-code", True), ("sparse-splade-code-untied", False)):
        path = sparse(name, transformers.Qwen3Config(**sizes, tie_word_embeddings=tied), tokens=base.ended_tokenizer)
        config = json.loads((path / "config.json").read_text())
        del config["is_causal"]
        base.write_json(path / "config.json", config | {"architectures": ["Splade"], "auto_map": {"AutoModelForMaskedLM": "splade.Splade"}})


def save_router(path: pathlib.Path, router: Router, similarity: str, prompts: dict) -> None:
    SparseEncoder(modules=[router], similarity_fn_name=similarity, prompts=prompts).save(str(path), create_model_card=False)
    for unused in ("special_tokens_map.json", "generation_config.json"):
        for file in path.rglob(unused):
            file.unlink()


def expect_routes(path: pathlib.Path) -> None:
    encoder = SparseEncoder(str(path), device="cpu", local_files_only=True)
    every = {"batch_size": len(TEXTS), "convert_to_sparse_tensor": False}
    numpy.savez_compressed(path / "router.npz", **{name: encode(TEXTS, **every).numpy() for name, encode in (
        ("query", encoder.encode_query), ("document", encoder.encode_document), ("rows", encoder.encode))})


def router(name: str, default: str | None = None, activation: str = "log1p_relu", prompts: dict | None = None) -> Router:
    """A document encoder of one layer and a table over its vocabulary, in which some weights are 0."""
    path = base.new_folder(name)
    (path / "source").mkdir()
    tokenizer = base.bert_tokenizer(path / "source")
    network = transformers.AutoModelForMaskedLM.from_config(transformers.BertConfig(**SMALL, vocab_size=len(tokenizer)))
    base.randomise(network, sum(name.encode()))
    network.save_pretrained(path / "source")
    tokenizer.save_pretrained(path / "source")
    document = Transformer(str(path / "source"), transformer_task="fill-mask", max_seq_length=40)
    queries = transformers.AutoTokenizer.from_pretrained(path / "source", model_max_length=16)
    weight = torch.rand(len(tokenizer), generator=torch.Generator().manual_seed(3)) * 6
    weight[::7] = 0
    made = Router.for_query_document(
        query_modules=[SparseStaticEmbedding(queries, weight=weight, frozen=True)],
        document_modules=[document, SpladePooling(pooling_strategy="max", activation_function=activation)],
        default_route=default)
    save_router(path, made, "dot", prompts or {})
    shutil.rmtree(path / "source")
    return made


def make_routers() -> None:
    for path in FOLDERS.glob("router-*"):
        shutil.rmtree(path)
    router("router-tensor", prompts={"query": "find: ", "document": "the "})
    expect_routes(FOLDERS / "router-tensor")

    path = FOLDERS / "router-idf"  # as sentence-transformers 5 spelt it, with the table of opensearch's models
    made = router("router-idf", default="document", activation="relu")
    table = made.sub_modules["query"][0]
    words = table.tokenizer.convert_ids_to_tokens(range(table.num_dimensions))
    base.write_json(path / "query_0_SparseStaticEmbedding/idf.json",
                    {word: round(float(value), 4) for word, value in zip(words, table.weight) if value > 0}
                    | {"no token of it": 1.25})
    (path / "query_0_SparseStaticEmbedding/model.safetensors").unlink()
    (path / "document_0_Transformer").rename(path / "document_0_MLMTransformer")
    base.write_json(path / "document_0_MLMTransformer/sentence_bert_config.json",
                    {"max_seq_length": 40, "do_lower_case": False})
    base.write_json(path / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": PACKAGE + "models.Router"}])
    base.write_json(path / "router_config.json", {
        "types": {"query_0_SparseStaticEmbedding": PACKAGE + "sparse_encoder.models.SparseStaticEmbedding",
                  "document_0_MLMTransformer": OLD[0], "document_1_SpladePooling": OLD[1]},
        "structure": {"query": ["query_0_SparseStaticEmbedding"],
                      "document": ["document_0_MLMTransformer", "document_1_SpladePooling"]},
        "parameters": {"default_route": "document", "allow_empty_key": True}})
    settings = path / "query_0_SparseStaticEmbedding/config.json"
    base.write_json(settings, {"frozen": True, "path": str(settings.with_name("idf.json"))})
    expect_routes(path)
    base.write_json(settings, {"frozen": True, "path": "idf.json"})


def main() -> None:
    make_tokens()
    make_sparse()
    make_routers()
    base.link_duplicates()


if __name__ == "__main__":
    main()
