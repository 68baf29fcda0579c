# SPDX-License-Identifier: Apache-2.0
"""test_pipelines.py - the published pipelines take the fast way, and it gives what Hugging Face's tokenizers gives.

What must never break: DeepSeek's three patterns, Falcon's four steps, StarCoder's digits, Phi-4's inverted pattern, CLIP's
lower case and "</w>", Metaspace alone behind each normaliser are cut by hand-written scanners and remembered word by word;
ids, offsets and truncation are those of the reference, as they are on the exact way.
Needs: token_dump (FLETCH_BUILD) and the package tokenizers. The vocabularies are made here: small, with merges of chance.
"""
import json
import random
import subprocess

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")

from test_tokens import compare  # noqa: E402
from test_tokens_bpe import (CL100K, CLIP, DEEPSEEK, HOSTILE, PUNCTUATION, TOKEN_DUMP, random_merges,  # noqa: E402
                             same_as_reference, sentences, soup)
import token_cases  # noqa: E402
from token_cases import darts  # noqa: E402
from test_unigram import MAP, METASPACE, chain, kind, near_misses, per_character, splits  # noqa: E402


def split(pattern, behavior="Isolated", invert=False):
    return kind("Split", pattern={"Regex": pattern}, behavior=behavior, invert=invert)


def byte_level(use_regex):
    return kind("ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=use_regex)


WORDS = PUNCTUATION.replace('\\"', '"')
LINES = WORDS.replace(r"\r", "\r").replace(r"\n", "\n")  # as DeepSeek's file has it
MARKED = r"<\|startoftext\|>|<\|endoftext\|>|" + CLIP
BYTES = {
    "deepseek": splits(split(r"\p{N}{1,3}"), split(DEEPSEEK), split(LINES), byte_level(False)),
    "deepseek_escaped": splits(split(r"\p{N}{1,3}"), split(DEEPSEEK), split(WORDS), byte_level(False)),
    "deepseek_numbers": splits(split(r"\p{N}{1,3}"), byte_level(False)),
    "deepseek_words": splits(split(WORDS), byte_level(False)),
    "falcon": splits(kind("Punctuation", behavior="Contiguous"), byte_level(True), kind("Digits", individual_digits=False),
                     split("[0-9][0-9][0-9]")),
    "falcon3": splits(kind("Punctuation", behavior="Contiguous"), byte_level(True), kind("Digits", individual_digits=True)),
    "starcoder": splits(kind("Digits", individual_digits=True), byte_level(True)),
    "digits": splits(kind("Digits", individual_digits=False), byte_level(True)),
    "phi4": splits(split(CL100K, "Removed", True), byte_level(False)),
}
CLIPS = {"clip": CLIP, "clip_marked": MARKED}
PLAIN = {text: to for text, to in MAP.items() if text != "\u0600"}  # no character that draws a space into its cluster
BLANKS = {"Regex": r"\s+"}
NORMALIZERS = {
    "nothing": None, "strip": kind("Strip", strip_left=True, strip_right=True), "lower": kind("Lowercase"),
    "nfkc": kind("NFKC"), "map": kind("Precompiled", precompiled_charsmap=darts(PLAIN)),
    "nllb": chain(kind("Precompiled", precompiled_charsmap=darts(PLAIN)), kind("Replace", pattern={"Regex": " {2,}"}, content=" ")),
    "deberta": chain(kind("Replace", pattern={"Regex": "\\s{2,}|[\\n\\r\\t]"}, content=" "), kind("NFC"),
                     kind("Strip", strip_left=False, strip_right=True)),
    "deberta_published": chain(kind("Strip", strip_left=True, strip_right=True), kind("Precompiled", precompiled_charsmap=darts(PLAIN)),
                               kind("Replace", pattern={"Regex": " {2,}"}, content=" ")),
    "xlnet": chain(kind("Replace", pattern={"String": "``"}, content='"'), kind("NFKD"), kind("StripAccents"), kind("Lowercase")),
    "albert": chain(kind("Replace", pattern={"String": "``"}, content='"'), kind("Replace", pattern={"String": "''"}, content='"'),
                    kind("NFKD"), kind("StripAccents"), kind("Lowercase"),
                    kind("Precompiled", precompiled_charsmap=darts(PLAIN)), kind("Replace", pattern={"Regex": " {2,}"}, content=" ")),
}


def way(path):
    done = subprocess.run([TOKEN_DUMP, "--json", path, "--way"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def bytes_tokenizer(path, pre_tokenizer, suffix="", **parts):
    """A byte-level BPE with merges of chance. `parts` replace those of the tree."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    letters += [letter + suffix for letter in letters if suffix]

    def join(left, right):
        return None if suffix and left.endswith(suffix) else left + right

    common = list("abcdesrtxy0123456789'!") + ["Ġ", "Ċ", "Ã", "©", "æ", "Ĺ", "¥", "Ð", "°", "ã", "ģ"]
    chance = random.Random(8)
    tokens, merges = random_merges(chance, letters + common * 12, 400, join)
    tokens = list(dict.fromkeys(tokens))
    tree = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": byte_level(True),
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": suffix or None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {token: index for index, token in enumerate(tokens)},
                      "merges": [list(pair) for pair in merges]}} | parts
    for offset, token in enumerate(tree["added_tokens"]):
        token["id"] = len(tokens) + offset
    path.write_text(json.dumps(tree), encoding="utf-8")
    return tokenizers.Tokenizer.from_file(str(path))


def added(content, normalized, special=False):
    return {"id": 0, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized,
            "special": special}


def odd_texts(seed):
    """What the scanners decide by: digits of all kinds, kana and Han at their edges, marks, punctuation before letters."""
    chance = random.Random(seed)
    pool = ["1", "23", "456", "7890", "²", "¾", "٣", "Ⅷ", "〇", "一", "龥", "龦", "\u3040", "ゟ", "ー", "・", "\u3099", "か", "한", "é", "e\u0301",
            "\u0301", "\u200d", "\x07", "\ue000", "\U0010ffff", "$a", "!B", "€c", "'s", "'S", "'ll", "'LL", "<|startoftext|>", "<|ENDoftext|>",
            "<|", "|>", " ", "  ", "\n", "\r\n", "\t", "\u3000", "the", "THE", "Éa", "İ", "ẞ", "K", "Ⱥ", "Ⓐ", "ǅ", "я", "Я", "（", "，", "｜DSML｜", "𝟘"]
    return ["".join(chance.choice(pool) for _ in range(chance.randrange(1, 14))) for _ in range(token_cases.rounds(3000))]


@pytest.mark.parametrize("name", BYTES)
def test_steps_around_byte_level(name, tmp_path):
    path = tmp_path / f"{name}.json"
    bytes_tokenizer(path, BYTES[name], added_tokens=[added("<|s|>", False, True), added("｜DSML｜", True)])
    assert way(path) == "fast"
    cut = ["るバイクの" + letter for letter in "群羾羼"]  # Falcon's digits cut the bytes of the last one
    same_as_reference(path, odd_texts(name) + cut + soup(800, 4) + HOSTILE + sentences()[::6])


@pytest.mark.parametrize("name", CLIPS)
def test_clip(name, tmp_path):
    """NFC, white space, lower case, "</w>"; its own tokens are found in the lower case where they are normalised."""
    path = tmp_path / f"{name}.json"
    for number, tokens in enumerate(([], [added("<|startoftext|>", True, True), added("<|endoftext|>", False, True)])):
        bytes_tokenizer(path, splits(split(CLIPS[name], "Removed", True), byte_level(True)), "</w>", added_tokens=tokens,
                        normalizer=chain(kind("NFC"), kind("Replace", pattern=BLANKS, content=" "), kind("Lowercase")))
        assert way(path) == "fast"
        same_as_reference(path, odd_texts(number) + soup(800, 5) + HOSTILE + sentences()[::6])


def test_a_suffix_alone(tmp_path):
    path = tmp_path / "suffix.json"
    bytes_tokenizer(path, byte_level(True), "</w>")
    assert way(path) == "fast"
    same_as_reference(path, odd_texts(9) + HOSTILE)


def test_what_is_not_scanned_by_hand_goes_the_exact_way(tmp_path):
    path = tmp_path / "exact.json"
    for steps in (splits(split(r"\d{2}"), byte_level(False)), splits(split(CLIP), byte_level(False)),
                  splits(split(r"\p{N}{1,3}", "Removed", True), byte_level(False)), splits(byte_level(True), split(CL100K)),
                  splits(kind("Punctuation", behavior="Isolated"), byte_level(True))):
        bytes_tokenizer(path, steps)
        assert way(path) == "exact"
        compare(tokenizers.Tokenizer.from_file(str(path)), path, odd_texts(3)[:600])


@pytest.mark.parametrize("name", NORMALIZERS)
def test_metaspace_alone(name, tmp_path):
    """White space of all kinds between words, at the ends, twice; added tokens of the normalised text among them."""
    chance = random.Random(name)
    path = tmp_path / f"{name}.json"
    letters = sorted(set("abcdeéABß日本語ж한`'\"[]UNK1½ ") | {"\u0301"})
    _, path = per_character(path, NORMALIZERS[name], splits(METASPACE), letters)
    tree = json.loads(path.read_text(encoding="utf-8"))
    tree["added_tokens"] = [added("[UNK]", True, True) | {"id": len(tree["model"]["vocab"])},
                            added("<s>", False, True) | {"id": len(tree["model"]["vocab"]) + 1}]
    path.write_text(json.dumps(tree), encoding="utf-8")
    assert way(path) == "fast"
    pool = ["a", "b", "Ab", "é", "e\u0301", "日", "本語", "ж", "한", " ", " ", " ", "  ", "\t", "\n", "\r\n", "\u3000", "\xa0", "▁", "``", "''", "½", "\x01",
            "\u0600", "\u0301", "[UNK]", "［UNK］", "<s>", "\u200b", "ﷺ"]
    texts = ["".join(chance.choice(pool) for _ in range(chance.randrange(0, 16))) for _ in range(token_cases.rounds(3000))]
    texts += ["ab " * 3000, "ab  " * 3000, "ab\n" * 20000, " " * 9000, "a" * 9000, "日本 語" * 9000, " a" * 20000 + "  "]
    texts += near_misses(5, 1500) + sentences()[::6]
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    compare(tokenizer, path, texts)
    compare(tokenizer, path, texts[::3], 5)
    compare(tokenizer, path, texts[1::3], 5, left=True)
