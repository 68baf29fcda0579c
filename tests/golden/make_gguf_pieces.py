#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_gguf_pieces.py - small SentencePiece models of BPE as Llama and Gemma have them, what transformers' converters
make of them, and the ids that follow, for test_gguf_tokens.py. Needs transformers 4.57 and sentencepiece; writes gguf_pieces.json."""
import io
import json
import pathlib

import sentencepiece
import transformers
from sentencepiece import sentencepiece_model_pb2

HERE = pathlib.Path(__file__).resolve().parent
TEXTS = json.loads((HERE / "folders/texts.json").read_text(encoding="utf-8"))
EXTRA = ["  two  spaces   and four    more", "a\tb\n\nc", "naïve façade — 日本語 ☃ 12345", "the theme of these themes", "<b>bold</b>",
         " leading", "trailing ", "x" * 70, "a<unk>b <s> c"]


def train(path: pathlib.Path, gemma: bool) -> None:
    kinds = {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "eos_piece": "<eos>", "bos_piece": "<bos>", "add_dummy_prefix": False,
             "user_defined_symbols": ["\u2581\u2581", "\u2581\u2581\u2581", "<b>", "</b>", "\n\n"]} if gemma else {}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS + EXTRA), model_writer=(out := io.BytesIO()), model_type="bpe", vocab_size=420,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, hard_vocab_limit=False,
        split_digits=True, allow_whitespace_only_pieces=True, minloglevel=2, **kinds)
    path.write_bytes(out.getvalue())


def make(name: str, gemma: bool) -> dict:
    folder = HERE / "../../build/pieces" / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tokenizer.model"
    train(path, gemma)
    fast = (transformers.GemmaTokenizerFast(str(path)) if gemma else
            transformers.LlamaTokenizerFast(str(path), legacy=True, add_prefix_space=True)).backend_tokenizer
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(path.read_bytes())
    # as _create_vocab_sentencepiece writes them
    tokens = [piece.piece for piece in proto.pieces]
    types = [piece.type for piece in proto.pieces]
    scores = [piece.score for piece in proto.pieces]
    for id, kind in enumerate(types):
        if kind == 4:
            tokens[id], scores[id] = tokens[id].replace("\u2581", " "), -1000.0
    return {"tokens": tokens, "scores": scores, "types": types, "prefix": not gemma,
            "ids": {text: fast.encode(text, add_special_tokens=False).ids for text in TEXTS + EXTRA}}


assert transformers.__version__.startswith("4.57")
(HERE / "gguf_pieces.json").write_text(json.dumps({"gemma": make("gemma", True), "llama": make("llama", False)}) + "\n")
