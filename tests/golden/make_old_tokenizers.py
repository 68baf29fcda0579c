#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_old_tokenizers.py - folders without tokenizer.json, and the ids that transformers gives them, for test_old_tokenizers.py.

SentencePiece models trained here on a few sentences with a small map of characters, as XLM-R, T5, mT5 and DeBERTa have them, and a
vocab.json with merges.txt as RoBERTa has them. Needs sentencepiece and transformers; the tests need neither.
"""
import json
import pathlib
import shutil

import sentencepiece
import transformers

import make_folders as base
import odd_classes

HERE = pathlib.Path(__file__).resolve().parent / "old_tokenizers"
RULES = {"\u00a0": " ", "\t": " ", "\n": " ", "\r": " ", "ﬁ": "fi", "™": "TM", "Ａ": "A"}
CASES = {
    "xlm-roberta": ("sentencepiece.bpe.model", {"tokenizer_class": "XLMRobertaTokenizer"}, {}),
    "t5": ("spiece.model", {"tokenizer_class": "T5Tokenizer"}, {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}),
    "mt5": ("spiece.model", {"tokenizer_class": "T5Tokenizer", "extra_ids": 3}, {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}),
    "deberta-v2": ("spm.model", {"tokenizer_class": "DebertaV2Tokenizer"},
                   {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]",
                    "unk_piece": "[UNK]"}),
}
DEBERTA = {"relative_attention": True, "position_biased_input": False, "norm_rel_ebd": "layer_norm", "pos_att_type": "p2c|c2p"}
TEXTS = [*base.TEXTS, "A cat's ﬁsh™ ran.", "Ａ road", "<pad> in a text", "the <extra_id_1> cat", "[MASK] [SEP]", " two  spaces ", "ｚ☃\u0301"]


def save(path: pathlib.Path, settings: dict) -> None:
    base.write_json(path / "config.json", {"model_type": path.name} | (DEBERTA if path.name in ("deberta", "deberta-v2") else {}))
    base.write_json(path / "tokenizer_config.json", settings)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    # transformers 5 drops DeBERTa's map: what both give alike
    texts = [text for text in TEXTS if path.name != "deberta-v2" or not set(RULES) & set(text)]
    base.write_json(path / "expected.json", [[text, tokenizer(text).input_ids] for text in texts])


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    rules, sentences = HERE / "rules.tsv", HERE / "sentences.txt"
    rules.write_text("".join(f"{ord(text):X}\t{' '.join(f'{ord(c):X}' for c in to)}\n" for text, to in RULES.items()))
    sentences.write_text("".join(f"{text}\n" for text in base.TEXTS if text.strip()) * 3)
    for name, (file, settings, options) in CASES.items():
        path = HERE / name
        path.mkdir()
        sentencepiece.SentencePieceTrainer.train(
            input=str(sentences), model_prefix=str(path / "m"), vocab_size=120, hard_vocab_limit=False, minloglevel=2,
            normalization_rule_tsv=str(rules), user_defined_symbols=["<new>"], **options)
        (path / "m.model").rename(path / file)
        (path / "m.vocab").unlink()
        save(path, settings)
    rules.unlink()
    sentences.unlink()
    path = HERE / "roberta"
    path.mkdir()
    model = odd_classes.roberta()["model"]
    base.write_json(path / "vocab.json", model["vocab"])
    (path / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in model["merges"]))
    save(path, {"tokenizer_class": "RobertaTokenizer"})
    path = HERE / "deberta"
    path.mkdir()
    model = odd_classes.deberta_v1()["model"]
    base.write_json(path / "vocab.json", model["vocab"])
    (path / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in model["merges"]))
    save(path, {"tokenizer_class": "DebertaTokenizer"})
    path = HERE / "clip"
    path.mkdir()
    odd_classes.write_clip(path)
    save(path, {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77})


if __name__ == "__main__":
    main()
