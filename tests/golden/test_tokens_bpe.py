# SPDX-License-Identifier: Apache-2.0
"""test_tokens_bpe.py - BPE tokenizers and regular expressions give what Hugging Face's tokenizers gives.

What must never break: every code point is in the same classes (\\s, \\p{L}, ...) as for the reference, and a
pattern finds the same matches; ids, offsets, special masks, truncation and decoded text of real tokenizers
and of small ones with every option are equal on real sentences and on random and hostile texts.
Needs: the programs regex_dump and token_dump (FLETCH_BUILD), the Python packages tokenizers and numpy;
FLETCH_TEST_DATA has the real tokenizers and sentences (what needs them is skipped without).
"""
import functools
import os
import pathlib
import random
import struct
import subprocess

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")

import token_cases  # noqa: E402
from test_tokens import EVERY, compare, dump  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FLETCH_BUILD", ROOT / "build"))
DATA = pathlib.Path(os.environ.get("FLETCH_TEST_DATA", ROOT.parent / "shared" / "data"))
REGEX_DUMP = BUILD / "tests" / "regex_dump"
TOKEN_DUMP = BUILD / "tests" / "token_dump"

if not REGEX_DUMP.is_file():
    pytest.skip(f"{REGEX_DUMP} is not built", allow_module_level=True)

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = CL100K.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
DEEPSEEK = r"[一-龥぀-ゟ゠-ヿ]+"
PUNCTUATION = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
               r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
END = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + END + r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + END
        + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
AFMOE = "[一-鿿㐀-䶿豈-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-⿟\u0e00-\u0e7f\u0e80-\u0effក-\u17ffက-႟ꩠ-ꩿꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+"
PATTERNS = [GPT2, CL100K, QWEN, O200K, CLIP, DEEPSEEK, PUNCTUATION, r"\s{2,}|[\n\r\t]", r" {2,}", BLOOM, KIMI, AFMOE,
            r"\d{1,3}(?=(?:\d{3})*\b)", r"\b\w", r"\B.", r"[^\w&&[^\d]]+", r"[\p{L}&&[^a-f]&&[^x-z][0-3]]+", r"[a[^\w[é]]]+"]
CLASSES = [r"\s", r"\w", r"\d", r"\p{L}", r"\p{N}", r"\p{M}", r"\p{P}", r"\p{S}", r"\p{Lu}", r"\p{Lt}", r"\p{Lm}",
           r"\p{Ll}", r"\p{Han}", r"[^\s\p{L}\p{N}]", "(?i:[a-z])", r"[\w]", r"[\W]",
           r"[^\w\s]", r"\W", r"[^\w&&[^\d]]", r"[^[^\w]é]"]
ALPHABET = list("aAzZ sStT'dDmMlLvVrReE0123½  \t\n\r\v\f\x1c\x85\xa0\u3000\u2028_-!.,;/$+=€©ſKéßǅʰ文字かなカ한국"
                "Яяक्षिنص٣²Ⅷ🙂👍🏽") + ["e\u0301", "\u200d", "\u200b", "\ufeff", "\U00020000", "\U0010ffff"]


def frame(texts):
    return b"".join(struct.pack("<I", len(data)) + data for data in (text.encode() for text in texts))


def matches(pattern, texts):
    """Per text the matched strings, or None when the pattern is refused."""
    done = subprocess.run([str(REGEX_DUMP), pattern], input=frame(texts), capture_output=True)
    if done.returncode == 2:
        return None
    assert done.returncode == 0, done.stderr
    result, at = [], 0
    for text in texts:
        data = text.encode()
        count, = struct.unpack_from("<I", done.stdout, at)
        places = struct.unpack_from(f"<{2 * count}I", done.stdout, at + 4)
        at += 4 + 8 * count
        result.append([data[a:b].decode() for a, b in zip(places[::2], places[1::2]) if a < b])
    return result


def reference(pattern, texts):
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "removed", invert=True)
    return [[piece for piece, _ in split.pre_tokenize_str(text)] for text in texts]


def random_texts(count, seed):
    chance = random.Random(seed)
    return ["".join(chance.choices(ALPHABET, k=chance.randrange(1, 40))) for _ in range(count)]


@pytest.mark.parametrize("name", CLASSES)
def test_every_code_point_is_in_the_classes_of_the_reference(name):
    texts = ["".join(EVERY[start:start + 8192]) for start in range(0, len(EVERY), 8192)]
    assert ["".join(found) for found in matches(name, texts)] == \
           ["".join(found) for found in reference(name, texts)]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_finds_what_the_reference_finds(pattern):
    texts = random_texts(3000, 1)
    for text, ours, theirs in zip(texts, matches(pattern, texts), reference(pattern, texts)):
        assert ours == theirs, (pattern, text)


# ---- Whole tokenizers ------------------------------------------------------------------------------

SOUP = ALPHABET + ["\u2581", "<", ">", " the", " of", "ing", "'s", "  ", "   ", "\r\n", "日本", "<s>", "</s>", "<unk>",
                   "<mask>", "[MASK]", "<|endoftext|>", "<0x0A>", "|||IP_ADDRESS|||", "ab", "abc"]
HOSTILE = ["", " ", "a" * 3000, " " * 3000, "ab" * 2000, "-" * 3000, "\n" * 500, "1234567890" * 200, "é" * 1000,
           "日本語" * 500, "\u200d" * 300, "👩\u200d👩\u200d👧 " * 50, "x " * 1000, "\r\n" * 300, "don't DON'T I'LL " * 50,
           "\u2581" * 500, "<s>" * 100, "e" + "\u0301" * 300, "ſ'ſ'S'\u212a", "\U0010ffff" * 100]
GROWING = ["\0\u0344a", "\u0344", "\U0001d160", "\U0001d160\u0344", "\U0001d15e x"]  # NFC: more ids than bytes


def soup(count, seed):
    """Random texts: from few or many characters, or from all of them."""
    chance, texts = random.Random(seed), []
    for _ in range(count):
        size, kind = chance.randrange(1, 24), chance.random()
        if kind < 0.2:
            points = (chance.randrange(0x110000) for _ in range(size))
            texts.append("".join(chr(point) for point in points if not 0xD800 <= point < 0xE000))
        elif kind < 0.5:
            texts.append("".join(chance.choices(chance.sample(SOUP, 3), k=2 * size)))
        else:
            texts.append("".join(chance.choices(SOUP, k=size)))
    return texts


@functools.cache
def sentences():
    return token_cases.spread(token_cases.read_shared(DATA), 1500)


def decoded(path, ids, *flags):
    frames = b"".join(struct.pack(f"<I{len(one)}i", len(one), *one) for one in ids)
    done = subprocess.run([TOKEN_DUMP, "--json", path, "--decode", *flags], input=frames, capture_output=True)
    assert done.returncode == 0, done.stderr
    at, texts = 0, []
    for _ in ids:
        size, = struct.unpack_from("<I", done.stdout, at)
        texts.append(done.stdout[at + 4:at + 4 + size].decode())
        at += 4 + size
    return texts


def same_as_reference(path, texts):
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    compare(tokenizer, path, texts)
    compare(tokenizer, path, texts[::3], 7)
    compare(tokenizer, path, texts[1::3], 7, left=True)
    for most in 3, 5, 8, 11:
        compare(tokenizer, path, GROWING, most, left=True)
    ids = [one[0] for one in dump(path, texts)]
    chance = random.Random(3)
    ids += [chance.choices(range(tokenizer.get_vocab_size()), k=8) for _ in range(500)]
    for skip in (False, True):
        ours = decoded(path, ids, *(["--skip-special"] if skip else []))
        assert ours == [tokenizer.decode(one, skip_special_tokens=skip) for one in ids]


@pytest.mark.parametrize("name", ["gpt2", "roberta", "modernbert", "qwen3", "mistral01"])
def test_real_tokenizer(name):
    path = DATA / "tokenizers" / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"{path} is missing (FLETCH_TEST_DATA)")
    same_as_reference(path, soup(2500, 11) + HOSTILE + sentences()[::2])


def random_merges(chance, symbols, count, join, shuffled=True):
    """Merges whose results are tokens, in no particular order of length or parts first; [(left, right)] and the tokens."""
    tokens, merges = list(symbols), []
    while len(merges) < count:
        left, right = chance.choice(tokens), chance.choice(tokens)
        made = join(left, right)
        if made is not None and len(made) < 12 and (left, right) not in merges:
            merges.append((left, right))
            if made not in tokens:
                tokens.append(made)
    if shuffled:
        chance.shuffle(merges)
    return tokens, merges


def small(name):
    """A tokenizer with one option of BPE, over a handful of characters."""
    from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
    chance = random.Random(name)
    letters, options, decoder, before = list("abc \u2581é日"), {}, None, pre_tokenizers.WhitespaceSplit()

    def plain(left, right):
        return left + right

    join, extra = plain, ["<unk>"]
    if name == "suffix":
        letters = list("abcé日") + [letter + "</w>" for letter in "abcé日"]
        join = lambda left, right: None if left.endswith("</w>") else left + right  # noqa: E731
        options, decoder = {"end_of_word_suffix": "</w>", "unk_token": "<unk>"}, decoders.BPEDecoder("</w>")
        before = pre_tokenizers.Split(tokenizers.Regex(CLIP), "removed", invert=True)
    elif name == "prefix":
        letters = list("abcé日") + ["##" + letter for letter in "abcé日"]
        join = lambda left, right: left + right[2:] if right.startswith("##") else None  # noqa: E731
        options, decoder = {"continuing_subword_prefix": "##", "unk_token": "<unk>"}, decoders.WordPiece()
    elif name in ("fallback", "fallback_some"):
        extra += [f"<0x{byte:02X}>" for byte in range(256) if name == "fallback" or byte != 0xE6]
        options = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
        decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)])
        before = None
    elif name == "no_unk":
        before, extra = None, []
    else:
        options = {"unk": {"unk_token": "<unk>"}, "fused": {"unk_token": "<unk>", "fuse_unk": True},
                   "ignore": {"unk_token": "<unk>", "ignore_merges": True}}[name]
        decoder = decoders.Metaspace() if name == "unk" else None
    tokens, merges = random_merges(chance, letters, 60, join)
    vocab = {token: index for index, token in enumerate(extra + tokens)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, merges, **options))
    tokenizer.pre_tokenizer = before
    tokenizer.decoder = decoder
    if name in ("fallback", "unk"):
        tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.add_special_tokens(["<s>", AddedToken("</s>", lstrip=True, rstrip=True)])
    tokenizer.add_tokens([AddedToken("ab1", single_word=True), AddedToken("  ", normalized=True)])
    return tokenizer


@pytest.mark.parametrize("name", ["unk", "fused", "ignore", "no_unk", "fallback", "fallback_some", "suffix", "prefix"])
def test_every_option_of_bpe(name, tmp_path):
    path = tmp_path / f"{name}.json"
    small(name).save(str(path))
    chance = random.Random(5)
    letters = ["a", "b", "c", "é", "日", "x", "本", " ", "\u2581", "<s>", "</s>", "ab1", "<unk>", "<0x61>"]
    texts = ["".join(chance.choices(letters, k=chance.randrange(1, 60))) for _ in range(2000)]
    texts += ["".join(chance.choices(letters[:9], k=3000)) for _ in range(20)]
    same_as_reference(path, texts + HOSTILE)


@pytest.mark.parametrize("scheme", ["prepend", "replace", "always", "first", "never", "gemma"])
def test_spaces_of_sentencepiece(scheme, tmp_path):
    """All the ways in which a space comes before a text; words are cut apart on the fast path."""
    from tokenizers import models, normalizers, pre_tokenizers
    chance, mark = random.Random(scheme), "\u2581"

    def join(left, right):
        return None if mark in right.lstrip(mark) or (mark in right and left[-1] != mark) else left + right

    tokens, merges = random_merges(chance, list("abé日本") + [mark], 80, join)
    extra = ["<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    model = models.BPE({token: index for index, token in enumerate(extra + tokens)}, merges, unk_token="<unk>",
                       fuse_unk=True, byte_fallback=True)
    tokenizer = tokenizers.Tokenizer(model)
    if scheme in ("always", "first", "never"):
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    else:
        steps = [normalizers.Prepend(mark)] if scheme == "prepend" else []
        tokenizer.normalizer = normalizers.Sequence(steps + [normalizers.Replace(" ", mark)])
        if scheme == "gemma":
            tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.add_special_tokens(["<s>", "</s>"])
    path = tmp_path / "spaces.json"
    tokenizer.save(str(path))
    parts = ["a", "b", "é", "日本", " ", "  ", mark, "x", "本", "<s>", "</s>", "ab", "\n"]
    texts = ["".join(chance.choices(parts, k=chance.randrange(40))) for _ in range(2000)]
    same_as_reference(path, texts + HOSTILE)


@pytest.mark.parametrize("behavior", ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"])
@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("pattern", [tokenizers.Regex(r"\s+|\d"), tokenizers.Regex(GPT2), tokenizers.Regex("a*"), "ab"])
def test_split(behavior, invert, pattern, tmp_path):
    from tokenizers import models, pre_tokenizers
    words = {word: index for index, word in enumerate(["<unk>", "a", "b", "ab", " ", "1", "aab"])}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(words, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, behavior, invert)
    path = tmp_path / "split.json"
    tokenizer.save(str(path))
    chance = random.Random(6)
    texts = ["".join(chance.choices(["a", "b", " ", "  ", "1", "é", "\n", "'s"], k=chance.randrange(12)))
             for _ in range(300)]
    compare(tokenizer, path, texts)


@pytest.mark.parametrize("shuffled", [False, True])
def test_tokens_that_give_themselves(shuffled, tmp_path):
    """Of merges of chance some tokens come from no text, not even their own (bpe_proof.c)."""
    from tokenizers import models, pre_tokenizers
    for seed in range(30):
        chance, path = random.Random(seed), tmp_path / f"{seed}.json"
        tokens, merges = random_merges(chance, "abc"[:2 + seed % 2], 50, lambda left, right: left + right, shuffled)
        letters = dict.fromkeys([*sorted(pre_tokenizers.ByteLevel.alphabet()), *tokens])
        tokenizer = tokenizers.Tokenizer(models.BPE({token: index for index, token in enumerate(letters)}, merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.save(str(path))
        compare(tokenizer, path, [*tokens, *("".join(chance.choices(tokens, k=chance.randrange(1, 30))) for _ in range(60))])


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("trim", [False, True])
@pytest.mark.parametrize("regex", [False, True])
def test_byte_level(prefix, trim, regex, tmp_path):
    from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens, merges = random_merges(random.Random(8), letters, 300, lambda left, right: left + right)
    tokenizer = tokenizers.Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(prefix, trim, regex)
    tokenizer.post_processor = processors.ByteLevel(prefix, trim, regex)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>"), AddedToken("<mask>", lstrip=True)])
    path = tmp_path / "bytes.json"
    tokenizer.save(str(path))
    same_as_reference(path, soup(1500, 12) + HOSTILE)


@pytest.mark.parametrize("fallback", [False, True])
def test_a_token_that_is_nul(fallback, tmp_path):
    from tokenizers import models
    names = ["<unk>", "\0", "a", "\0a", "a\0a"] + ([f"<0x{byte:02X}>" for byte in range(256)] if fallback else [])
    model = models.BPE({name: index for index, name in enumerate(names)}, [("\0", "a"), ("a", "\0a")], unk_token="<unk>",
                       byte_fallback=fallback)
    tokenizer = tokenizers.Tokenizer(model)
    path = tmp_path / "nul.json"
    tokenizer.save(str(path))
    chance = random.Random(2)
    compare(tokenizer, path, ["".join(chance.choices("\0\0aab", k=chance.randrange(20))) for _ in range(300)])
