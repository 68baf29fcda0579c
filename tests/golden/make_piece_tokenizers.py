#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_piece_tokenizers.py - folders whose tokenizer is SentencePiece's BPE alone, and the ids that the package sentencepiece gives, for
test_piece_tokenizers.py.

Models trained here on the test data (FLETCH_TEST_DATA): as Llama's, as Gemma's with pieces that a user defined, and with a map of characters
and spaces removed. Of the test data's texts a digest of all ids is kept. Needs sentencepiece; the tests do not.
"""
import hashlib
import itertools
import json
import os
import pathlib
import random
import shutil

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

import make_folders as base

HERE = pathlib.Path(__file__).resolve().parent / "piece_tokenizers"
DATA = pathlib.Path(os.environ.get("FLETCH_TEST_DATA", base.__file__ + "/../../../../shared/data"))
RULES = {"\u00a0": " ", "\t": " ", "\n": " ", "ﬁ": "fi", "™": "TM", "Ａ": "A", "e\u0301": "é", "e\u0301\u0301": "ee", "\u00ad": "", "…": " . "}
LLAMA = {"bos_id": 1, "eos_id": 2, "unk_id": 0, "pad_id": -1}
GEMMA = {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "bos_piece": "<bos>", "eos_piece": "<eos>", "pad_piece": "<pad>"}
PLAIN = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
# Two letters: many ways to put one piece together, which overlap.
TIES = ["".join(random.Random(40 * seed + i).choice("aab ") for i in range(40)) for seed in range(80)]


def give_ties(path: pathlib.Path) -> None:
    """All strings of up to four letters become pieces, in any order."""
    model = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
    texts = ["".join(letters) for size in (2, 3, 4) for letters in itertools.product("ab▁", repeat=size)]
    random.Random(1).shuffle(texts)
    del model.pieces[3:]
    for place, text in enumerate([*texts, "a", "b", "▁"]):
        model.pieces.add(piece=text, score=-place)
    path.write_bytes(model.SerializeToString())


# folder: (model_type, tokenizer_config.json, options of the trainer)
CASES = {
    "llama": ("llama", {"tokenizer_class": "LlamaTokenizer"}, LLAMA | PLAIN | {"byte_fallback": True, "allow_whitespace_only_pieces": True}),
    "mistral-legacy": ("mistral", {"tokenizer_class": "LlamaTokenizer", "legacy": True, "add_eos_token": True, "bos_token": {"content": "<s>"}},
                       LLAMA | PLAIN | {"byte_fallback": True, "vocab_size": 1300, "character_coverage": 0.985}),
    "gemma": ("gemma", {"tokenizer_class": "GemmaTokenizer"},
              GEMMA | PLAIN | {"byte_fallback": True, "add_dummy_prefix": False, "control_symbols": ["<start_of_turn>"],
                               "user_defined_symbols": ["\n", "\n\n", "▁▁", "▁▁▁", "▁▁▁▁", "<new>", "<newer>", "ing"]}),
    "gemma-prefix": ("gemma", {"tokenizer_class": "GemmaTokenizerFast", "add_bos_token": False},
                      GEMMA | PLAIN | {"user_defined_symbols": ["<new>", "▁the", "ab"]}),
    "mapped": ("llama", {"tokenizer_class": "LlamaTokenizer"}, LLAMA | {"byte_fallback": True, "user_defined_symbols": ["Ａ", "a  b", "<new>", "™x"]}),
    "mapped-unknown": ("llama", {"tokenizer_class": "LlamaTokenizer"}, LLAMA | {"remove_extra_whitespaces": True}),
    "ties": ("llama", {"tokenizer_class": "LlamaTokenizer"}, LLAMA | PLAIN),
    "nfkc": ("llama", {"tokenizer_class": "LlamaTokenizer"}, LLAMA | {"normalization_rule_name": "nmt_nfkc_cf", "remove_extra_whitespaces": False}),
}
SPACES = [" " * n + word + " " * m for n in (0, 1, 2, 3, 5, 9, 33) for m in (0, 1, 2, 4) for word in ("", "b", "▁", "▁b▁", "日本")]
TEXTS = [*base.TEXTS, *SPACES, "aaaaaaaaaaa bbbbbbb", "ing" * 7, "<new><newer> <new>x", "x<new>y", "the the  the", "cabab ab", "Ａ road, ™x ™", "a  b  a  b",
         "A cat's ﬁsh™ ran…", "e\u0301 e\u0301\u0301 e", "soft\u00adhyphen", "\n\n\n a\nb\n", "\t tab\u00a0 nbsp ", "…", " … … x", "ｚ☃\u0301", "\U0001f600\U0001f600 🏳️‍🌈",
         "ﷺ ㌔ ½", "<0x41> <0xE2>", "1,234.5", "x\u0000y"]


def sentences():
    for path in sorted(DATA.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            yield path.name, [text for text in row.values() if isinstance(text, str)]


def random_texts(model, count):
    """Pieces of the vocabulary, hostile characters, spaces."""
    pick = random.Random(7)
    pieces = [model.id_to_piece(i).replace("▁", " ") for i in range(model.get_piece_size()) if not (model.is_control(i) or model.is_unknown(i) or model.is_byte(i))]
    odd = ["▁", " ", "  ", "\n", "\u0301", "é", "Ａ", "™", "…", "日", "😀", "\u00ad", "<new>", "a", "aa", "ab"]
    return ["".join(pick.choice(pick.choice((pieces, odd))) for _ in range(pick.randint(1, 24))) for _ in range(count)]


def digest(model, texts) -> str:
    return hashlib.sha256("".join(json.dumps(model.encode(text)) + "\n" for text in texts).encode()).hexdigest()


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    rules, corpus = HERE / "rules.tsv", HERE / "sentences.txt"
    rules.write_text("".join(f"{' '.join(f'{ord(c):X}' for c in text)}\t{' '.join(f'{ord(c):X}' for c in to)}\n" for text, to in RULES.items()))
    rows = list(sentences())
    files = {file: [text for name, texts in rows if name == file for text in texts] for file in sorted({file for file, _ in rows})}
    corpus.write_text("".join(text.replace("\n", " ") + "\n" for file in files if "stsb" in file and "dev" in file for text in files[file][:300]))
    for name, (family, settings, options) in CASES.items():
        path = HERE / name
        path.mkdir()
        mapped = {} if "normalization_rule_name" in options else {"normalization_rule_tsv": str(rules)}
        sentencepiece.SentencePieceTrainer.train(
            **({"vocab_size": 1500, "character_coverage": 0.98} | {"input": str(corpus), "model_type": "bpe", "model_prefix": str(path / "m"), "minloglevel": 2} | mapped | options))
        (path / "m.model").rename(path / "tokenizer.model")
        (path / "m.vocab").unlink()
        if name == "ties":
            give_ties(path / "tokenizer.model")
        base.write_json(path / "config.json", {"model_type": family})
        base.write_json(path / "tokenizer_config.json", settings)
        model = sentencepiece.SentencePieceProcessor(str(path / "tokenizer.model"))
        special = [model.id_to_piece(i) for i in range(model.get_piece_size()) if model.is_control(i) or model.is_unknown(i)]  # transformers finds them
        texts = [text for text in [*TEXTS, *TIES, *random_texts(model, 300)] if text and not any(piece in text for piece in special)]
        base.write_json(path / "expected.json", {"texts": [[text, model.encode(text)] for text in texts],
                                                 "digests": {file: digest(model, files[file]) for file in files}})
    rules.unlink()
    corpus.unlink()


if __name__ == "__main__":
    main()
