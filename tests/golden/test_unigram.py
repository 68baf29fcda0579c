# SPDX-License-Identifier: Apache-2.0
"""test_unigram.py - Unigram and SentencePiece's steps give what Hugging Face's tokenizers gives.

What must never break: ids, byte offsets, special mask, truncation and decoded text, for each normaliser and
pre-tokeniser with every code point and hostile company around it; and for XLM-R's own vocabulary of 250,002 pieces.
Every text goes both ways, with offsets and without, and both must agree (token_dump).
Needs: token_dump (FLETCH_BUILD) and the package tokenizers. FLETCH_E5 names the folder of multilingual-e5-small
(default .cache/models/multilingual-e5-small); without it what needs real pieces is skipped.
"""
import json
import os
import pathlib
import random
import struct
import sys
import unicodedata

import pytest

import token_cases
from token_cases import darts
from test_tokens import DEFAULT, EVERY, ROOT, compare, decode, dump, hostile, shared, tokenizers

E5 = pathlib.Path(os.environ.get("FLETCH_E5", ROOT / ".cache" / "models" / "multilingual-e5-small"))
XLMR = E5 / "tokenizer.json"
needs_e5 = pytest.mark.skipif(not XLMR.is_file(), reason=f"{XLMR} is not there (FLETCH_E5)")

ASSIGNED = [point for point in EVERY if unicodedata.category(point) not in ("Cn", "Co") and point != "\0"]
MARKS = [point for point in ASSIGNED if unicodedata.combining(point)]


# Shortest beginnings, what vanishes, what grows, white space of all kinds, marks that join.
MAP = {"ﬁ": "fi", "½": "1⁄2", "ﷺ": "صلى الله عليه وسلم", "\t": " ", "\n": " ", "\r": " ", "\r\n": " ", "\u3000": " ", "\xa0": " ",
       "\u200b": " ", "\x01": "", "\x7f": "", "\xad": "", "a\u0301": "á", "e": "ë", "e\u0301": "é", "\u2f91": "襾", "™": "TM",
       "©": "(c)", "ｶﾞ": "ガ", "ｶ": "カ", "\U0001d15e": "x", "\u0600": "؀؀", "Å": "Å"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("unigram")


def per_character(path, normalizer=None, pre_tokenizer=None, letters=ASSIGNED):
    """A tokenizer whose ids show what became of each character. `normalizer` and so on are JSON."""
    vocab = [["<unk>", 0.0], ["▁", -3.0]] + [[point, -5.0] for point in letters if point != "▁" and ord(point) < 0x30000]
    vocab += [["ab", -9.0], ["▁a", -7.0], ["b▁", -6.5], ["éé", -9.5]]
    tree = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": None,
            "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": False}}
    path.write_text(json.dumps(tree), encoding="utf-8")
    return tokenizers.Tokenizer.from_file(str(path)), path


def kind(name, **keys):
    return {"type": name, **keys}


def chain(*steps):
    return kind("Sequence", normalizers=list(steps))


def splits(*steps):
    return kind("Sequence", pretokenizers=list(steps))


METASPACE = kind("Metaspace", replacement="▁", prepend_scheme="always", split=True)
WORDS = splits(kind("WhitespaceSplit"), METASPACE)
NORMALIZERS = {
    "nfc": kind("NFC"), "nfd": kind("NFD"), "nfkc": kind("NFKC"), "nfkd": kind("NFKD"), "nmt": kind("Nmt"),
    "map": kind("Precompiled", precompiled_charsmap=darts(MAP)),
    "map_strip": chain(kind("Precompiled", precompiled_charsmap=darts(MAP)), kind("Strip", strip_left=False, strip_right=True),
                       kind("Replace", pattern={"Regex": " {2,}"}, content="▁")),
    "deberta": chain(kind("Replace", pattern={"Regex": "\\s{2,}|[\\n\\r\\t]"}, content=" "), kind("NFC"),
                     kind("Strip", strip_left=False, strip_right=True)),
    "xlnet": chain(kind("Replace", pattern={"String": "``"}, content='"'), kind("NFKD"), kind("StripAccents"), kind("Lowercase")),
    "llama": chain(kind("Prepend", prepend="▁"), kind("Replace", pattern={"String": " "}, content="▁")),
}
SPLITS = {
    "always": METASPACE, "first": {**METASPACE, "prepend_scheme": "first"}, "never": {**METASPACE, "prepend_scheme": "never"},
    "whole": {**METASPACE, "split": False}, "words": WORDS, "old": kind("Metaspace", replacement="▁", add_prefix_space=True),
    "old_never": kind("Metaspace", replacement="▁", add_prefix_space=False, prepend_scheme="never"),
    "words_first": splits(kind("WhitespaceSplit"), {**METASPACE, "prepend_scheme": "first"}),
    "digits": kind("Digits", individual_digits=False), "each_digit": kind("Digits", individual_digits=True),
    "delimiter": kind("CharDelimiterSplit", delimiter="-"), "whitespace": kind("Whitespace"),
    "mixed": splits(kind("Punctuation", behavior="Isolated"), {**METASPACE, "prepend_scheme": "first"}, kind("Digits", individual_digits=True)),
    **{"punctuation_" + how: kind("Punctuation", behavior=how)
       for how in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")},
}


def near_misses(seed, count):
    """Short texts of what normalises, joins, splits or vanishes."""
    chance = random.Random(seed)
    pool = ASSIGNED[:0x500] + MARKS + list(MAP) + list("ㄱ각가힣ｱﾞ½²①㎏ﷺ襾▁-!1٣Ⅷ") + ["\u09c7\u09be", "\u1100\u1161", "\u200d", "\u200c", " ", "  ", "\t",
                                                                             "\r\n", "``", "é", "ab", "<unk>", "\u1adc"]
    return ["".join(chance.choice(pool) for _ in range(chance.randrange(1, 12))) for _ in range(count)]


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizers(name, folder):
    """Every assigned code point between letters, and marks and clusters in random company."""
    tokenizer, path = per_character(folder / f"{name}.json", NORMALIZERS[name], WORDS if name in ("map", "nfkc") else None)
    step = 1 if name == "map" else 5
    compare(tokenizer, path, token_cases.some(["a" + point + "b" for point in ASSIGNED[::step]] + near_misses(3, 5000), 3))
    if name == "map":
        compare(tokenizer, path, ["\u2f91\u0301" + point for point in ASSIGNED[::3]] + [point + "\u0301" for point in ASSIGNED[:12000]])


@pytest.mark.parametrize("name", SPLITS)
def test_pre_tokenizers(name, folder):
    for number, normalizer in enumerate((None, kind("Strip", strip_left=True, strip_right=True), kind("Prepend", prepend="▁"))):
        chance = random.Random(4)
        pool = ["a", "b", " ", "  ", "▁", "1", "23", "٣", "-", "!", "\t", "é", "日", "¡", "\r\n"]
        tokenizer, path = per_character(folder / f"{name}{number}.json", normalizer, SPLITS[name], sorted(set("".join(pool))))
        texts = ["".join(chance.choice(pool) for _ in range(chance.randrange(0, 14))) for _ in range(2000)]
        texts = token_cases.some(texts, 4)
        compare(tokenizer, path, texts)
        compare(tokenizer, path, texts[::4], 5)
        compare(tokenizer, path, texts[::4], 5, left=True)


def test_byte_fallback(folder):
    """All bytes of an unknown run or none, every one at the run's place."""
    vocab = [["<unk>", 0.0], ["▁", -3.0], ["a", -4.0], ["▁a", -5.0]] + [[f"<0x{byte:02X}>", -12.0] for byte in range(0x80, 0xE5)]
    for fallback in (False, True):
        tokenizer, path = per_character(folder / f"bytes{fallback}.json", None, WORDS, "a")
        tree = json.loads(path.read_text())
        tree["model"] = {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": fallback}
        tree["decoder"] = kind("Sequence", decoders=[kind("Replace", pattern={"String": "▁"}, content=" "), kind("ByteFallback"),
                                                     kind("Fuse"), kind("Strip", content=" ", start=1, stop=0)])
        path.write_text(json.dumps(tree), encoding="utf-8")
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
        texts = ["aé a日a", "é?", "ééé日 aa", "\U0001F600é", "<0xC3>", "日本語のテスト é"] + near_misses(5, 1500)
        compare(tokenizer, path, texts)
        lists = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
        assert decode(path, lists) == tokenizer.decode_batch(lists, skip_special_tokens=False)


def test_scores_decide_in_order(folder):
    """Random vocabularies over three letters with equal and nearly equal sums, pieces listed twice among them."""
    chance = random.Random(6)
    for number in range(12):
        pieces = [("<unk>", 0.0)] + [("".join(chance.choice("abç") for _ in range(chance.randrange(1, 5))),
                                      chance.choice([-1.0, -2.0, -3.0, -1.5, -0.1, chance.uniform(-6, 0)]))
                                     for _ in range(chance.randrange(2, 30))]
        path = folder / f"ties{number}.json"
        tree = {"version": "1.0", "added_tokens": [], "model": {"unk_id": 0, "vocab": pieces}}  # an old file: no type
        path.write_text(json.dumps(tree), encoding="utf-8")
        texts = ["".join(chance.choice("abçx") for _ in range(chance.randrange(1, 30))) for _ in range(1500)]
        compare(tokenizers.Tokenizer.from_file(str(path)), path, texts)


def test_scores_of_many_digits(folder):
    """Sums of the same pieces in another order differ by a step of the last digit: as the reference reads the digits."""
    chance = random.Random(8)
    for number in range(60):
        pieces = [["<unk>", 0.0], ["▁", -chance.uniform(2, 9)]] + [["x" * size, -chance.uniform(2, 9) * size] for size in (1, 2, 3)]
        pieces += [[letter, -chance.uniform(2, 9)] for letter in "abcde"]
        path = folder / f"digits{number}.json"
        path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": {"unk_id": 0, "vocab": pieces}}), encoding="utf-8")
        texts = ["".join(chance.choice(["xxx", "xx", "xxxx", *"abcde"]) for _ in range(chance.randrange(2, 9))) for _ in range(300)]
        compare(tokenizers.Tokenizer.from_file(str(path)), path, texts)


@needs_e5
def test_xlmr_on_all_texts():
    texts = [text for text in hostile()[::2] if len(text) < 6000] + token_cases.spread(shared(), 6000) + near_misses(7, 3000)
    tokenizer = tokenizers.Tokenizer.from_file(str(XLMR))
    compare(tokenizer, XLMR, texts)
    for max_length in (2, 3, 17):
        for left in (False, True):
            compare(tokenizer, XLMR, texts[::9], max_length, left)
    tokenizer.no_truncation()
    lists = [encoding.ids for encoding in tokenizer.encode_batch(texts[::3])]
    for skip in (False, True):
        assert decode(XLMR, lists, *(["--skip-special"] if skip else [])) == tokenizer.decode_batch(lists, skip_special_tokens=skip)
    assert dump(XLMR, ["Hello World!"])[0][0] == [0, 35378, 6661, 38, 2]


@needs_e5
def test_xlmr_on_every_code_point():
    tokenizer = tokenizers.Tokenizer.from_file(str(XLMR))
    compare(tokenizer, XLMR, [" ".join("a" + point + "b" for point in EVERY[at:at + 16]) for at in range(0, len(EVERY), 16)])


@needs_e5
def test_pairs_of_xlmr():
    import test_pairs
    tokenizer = tokenizers.Tokenizer.from_file(str(XLMR))
    tokenizer.no_padding()
    texts = token_cases.spread(shared(), 200) or [text for text in hostile()[:200] if len(text) < 200]
    both = list(zip(texts, reversed(texts)))
    for max_length in (9, 16):
        tokenizer.enable_truncation(max_length)
        test_pairs.compare(tokenizer, XLMR, both, "--max-length", str(max_length))


def random_vocabulary(seed, count):
    """Pieces that share beginnings as real ones do, some of them whole words of others, with float32 scores."""
    chance, pieces = random.Random(seed), {"<unk>": 0.0}
    parts = ["\u2581", "an", "be", "der", "st", "ing", "о", "ст", "日", "本", "語", "が", "ます", "é", "\U0001F600", "x", "yz"]
    while len(pieces) < count:
        text = "".join(chance.choice(parts) for _ in range(chance.randrange(1, 9)))
        pieces.setdefault(text, struct.unpack("f", struct.pack("f", -chance.uniform(1, 20)))[0])
    return list(pieces.items()), parts


def test_a_large_vocabulary_opens_in_three_times_its_size(folder):
    """Peak memory of the whole program on a file of 250,000 pieces; and what it then makes of texts."""
    import subprocess
    from test_tokens import DUMP
    pieces, parts = random_vocabulary(5, 250_000)
    path = per_character(folder / "large.json", None, WORDS, "a")[1]
    tree = json.loads(path.read_text(encoding="utf-8"))
    tree["added_tokens"] = []
    tree["model"] = {"type": "Unigram", "unk_id": 0, "vocab": pieces}
    path.write_text(json.dumps(tree, ensure_ascii=False), encoding="utf-8")
    script = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, check=True); " \
             "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", script, DUMP, "--json", path], capture_output=True, check=True)
    assert int(done.stdout) * 1024 <= 3 * path.stat().st_size, (int(done.stdout), path.stat().st_size)
    chance = random.Random(6)
    texts = ["".join(chance.choice([*parts, " ", "?", "本が"]) for _ in range(chance.randrange(1, 40))) for _ in range(3000)]
    compare(tokenizers.Tokenizer.from_file(str(path)), path, texts)


def test_time_is_linear(folder):
    """A megabyte without a space, ten in check-full, takes seconds at most, with and without pieces that match."""
    import subprocess
    from test_tokens import DUMP, frames
    path = XLMR if XLMR.is_file() else per_character(folder / "linear.json", NORMALIZERS["map"], WORDS)[1]
    assert DEFAULT.is_file()
    for text in ("a" * 10_000_000, "\u0301" * 5_000_000, "日" * 3_000_000, "\u0378" * 5_000_000, "▁" * 3_000_000,
                 "\U0001F468\u200d" * 1_400_000, "ﬁ" * 3_000_000, "ab " * 3_000_000):
        done = subprocess.run([DUMP, "--json", path, "--max-length", "128"], input=frames([token_cases.part(text)]),
                              capture_output=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("metaspace", [False, True])
@pytest.mark.parametrize("fallback", [False, True])
def test_a_piece_that_is_nul(fallback, metaspace, tmp_path):
    from tokenizers import decoders, models, pre_tokenizers
    pieces = [("<unk>", 0.0), ("\0", -2.5), ("a", -3.0), ("▁a", -2.0), ("aa", -3.5), ("b", -6.0)]
    pieces += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)] if fallback else []
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, 0, fallback))
    if metaspace:
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    path = tmp_path / "nul.json"
    tokenizer.save(str(path))
    chance = random.Random(4)
    compare(tokenizer, path, ["".join(chance.choices("\0\0aab ", k=chance.randrange(24))) for _ in range(400)])
