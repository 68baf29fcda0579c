#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_lists.py - what sentence-transformers gives that is not one vector a text, for make_folders.py.

    make_lists.py            writes tokens.npz into some of its folders, and makes the folders sparse-*

tokens.npz holds what encode(output_value="token_embeddings") gives for the first texts of texts.json, text after
text, and where each begins. sparse-* are SPLADE models as SparseEncoder saves them or once did: tied and
untied decoders, both activations, the families that have a vocabulary head; sparse.npz holds their dense rows.
Needs torch and sentence-transformers; the tests need neither.
"""
import json
import pathlib
import shutil

import numpy
import torch
import transformers
from sentence_transformers import SentenceTransformer, SparseEncoder

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


def sparse(name: str, config: transformers.PretrainedConfig, roberta: bool = False, old: bool = False,
           activation: str = "relu", modules: bool = True) -> None:
    path = base.new_folder(name)
    tokenizer = base.mpnet_tokenizer(path) if roberta else base.bert_tokenizer(path)
    config.vocab_size = len(tokenizer)
    config.pad_token_id = tokenizer.pad_token_id
    model = transformers.AutoModelForMaskedLM.from_config(config)
    base.randomise(model, sum(name.encode()))
    with torch.no_grad():  # about half of the weights are above 0
        for key, tensor in model.named_parameters():
            if key.endswith(("predictions.bias", "lm_head.bias", "vocab_projector.bias")):
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
    encoder = SparseEncoder(str(path), device="cpu", local_files_only=True)
    rows = encoder.encode(TEXTS, batch_size=len(TEXTS), convert_to_sparse_tensor=False).numpy()
    assert 0.05 < (rows > 0).mean() < 0.95
    if not modules:  # what a plain masked language model is taken for
        shutil.rmtree(path / "1_SpladePooling")
        (path / "modules.json").unlink()
        (path / "sentence_bert_config.json").unlink()
        (path / "config_sentence_transformers.json").unlink()
    numpy.savez_compressed(path / "sparse.npz", rows=rows)
    (path / "vocab.txt").unlink(missing_ok=True)


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
           roberta=True)
    sparse("sparse-mpnet", transformers.MPNetConfig(**SMALL), roberta=True)


def main() -> None:
    make_tokens()
    make_sparse()
    base.link_duplicates()


if __name__ == "__main__":
    main()
