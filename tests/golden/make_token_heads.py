#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_token_heads.py - a small bge-m3, and what FlagEmbedding makes of it.

    make_token_heads.py      writes tests/golden/token_heads/ anew

XLM-RoBERTa with a Unigram tokenizer, cls pooling and Normalize, sparse_linear.pt and colbert_linear.pt in half precision as
the hub has them. expected.npz: the rows, the lexical weights (ids and values, text after text with where each begins), the
vectors of tokens and colbert_score of every text with every text. Needs torch, sentence-transformers and FlagEmbedding
(BGEM3FlagModel); the tests need none of them.
"""
import json
import shutil

import numpy
import torch
import transformers
from FlagEmbedding import BGEM3FlagModel

import make_folders as base
import odd_classes

TEXTS = ["the cat sat", "the cat, the cat the at", "one two one two the one", "", "a \u65e5 b \u65e5", "</s> cat <s> the <unk> sat",
         "\u00e9\u00e9 \u00fc the", "the sat at one " * 30]
base.HERE = HERE = base.HERE.parent / "token_heads"
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40, "max_position_embeddings": 66,
         "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}


def make() -> None:
    path = base.new_folder("bge-m3")
    tokenizer = odd_classes.xlm_roberta()
    base.write_json(path / "tokenizer.json", tokenizer)
    base.write_json(path / "tokenizer_config.json", odd_classes.settings("XLMRobertaTokenizer", **odd_classes.ROBERTA) | {"model_max_length": 64})
    model = transformers.XLMRobertaModel(transformers.XLMRobertaConfig(**SMALL, vocab_size=len(tokenizer["model"]["vocab"])))
    base.randomise(model, 11)
    model.save_pretrained(path)
    base.save_modules(path, base.old_pooling("cls_token"), [("Normalize", None, None)], sentence={"max_seq_length": 64, "do_lower_case": False})
    for name, rows in (("sparse_linear", 1), ("colbert_linear", 32)):
        layer = torch.nn.Linear(32, rows)
        base.randomise(layer, rows)
        torch.save(layer.half().state_dict(), path / f"{name}.pt")
    reference = BGEM3FlagModel(str(path), use_fp16=False, devices="cpu")
    found = reference.encode(TEXTS, batch_size=1, max_length=64, return_dense=True, return_sparse=True, return_colbert_vecs=True)
    weights = [{int(key): float(value) for key, value in one.items()} for one in found["lexical_weights"]]
    vectors = found["colbert_vecs"]
    scores = [[float(reference.colbert_score(a, b)) for b in vectors] for a in vectors]
    numpy.savez_compressed(
        path / "expected.npz", rows=found["dense_vecs"].astype("<f4"),
        sparse_offsets=numpy.cumsum([0] + [len(one) for one in weights]),
        ids=numpy.array([key for one in weights for key in sorted(one)], "<i4"),
        weights=numpy.array([one[key] for one in weights for key in sorted(one)], "<f4"),
        offsets=numpy.cumsum([0] + [len(one) for one in vectors]), vectors=numpy.concatenate(vectors).astype("<f4"),
        scores=numpy.array(scores, "<f4"))
    print([len(one) for one in weights], [one.shape for one in vectors])


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    make()
    (HERE / "texts.json").write_text(json.dumps(TEXTS) + "\n")


if __name__ == "__main__":
    main()
