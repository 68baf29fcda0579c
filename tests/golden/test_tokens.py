# SPDX-License-Identifier: Apache-2.0
"""test_tokens.py - the tokenizer gives what Hugging Face's tokenizers gives: ids, offsets, decoded text.

What must never break: every id of every text equals the reference's, in many scripts and for hostile
texts, cut or not, from the left or right, for the default tokenizer and for variants of each part of the
pipeline; and every single code point is classified and normalised as there (make check leaves most ideographs,
private and unassigned ones of the higher planes to make check-full).
Needs: the program token_dump (FLETCH_BUILD), the default model's tokenizer.json (FLETCH_MODEL), the Python
packages tokenizers and numpy. FLETCH_TEST_DATA adds real sentences.
"""
import array
import functools
import itertools
import json
import os
import pathlib
import struct
import resource
import subprocess

import pytest

numpy = pytest.importorskip("numpy", reason="the package numpy is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")

import token_cases  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FLETCH_BUILD", ROOT / "build"))
DUMP = BUILD / "tests" / "token_dump"
MODEL = os.environ.get("FLETCH_MODEL")
DATA = pathlib.Path(os.environ.get("FLETCH_TEST_DATA", ROOT.parent / "shared" / "data"))

if MODEL is None or not (pathlib.Path(MODEL) / "tokenizer.json").is_file():
    pytest.skip("FLETCH_MODEL does not name a folder with tokenizer.json", allow_module_level=True)
if not DUMP.is_file():
    pytest.skip(f"{DUMP} is not built", allow_module_level=True)

DEFAULT = pathlib.Path(MODEL) / "tokenizer.json"


@functools.cache
def vocab():
    return json.loads(DEFAULT.read_text(encoding="utf-8"))["model"]["vocab"]


@functools.cache
def hostile():
    return token_cases.FIXED + token_cases.Maker(vocab()).texts(12000)


@functools.cache
def shared():
    return token_cases.read_shared(DATA)


@functools.cache
def default_texts():
    """At least 20,000 texts, with or without the shared ones."""
    real = shared()
    made = hostile() if real else hostile() + token_cases.Maker(vocab(), 7).texts(9000)
    return made + token_cases.spread(real, 16000)


def frames(texts):
    data = [text.encode("utf-8") for text in texts]
    return b"".join(struct.pack("=I", len(one)) + one for one in data)


def dumped(option, path, texts, *flags):
    done = subprocess.run([DUMP, option, path, *flags], input=frames(texts), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def parsed(out, texts):
    """Per text (ids, offsets, special, truncated)."""
    at, result = 0, []
    for _ in texts:
        count, truncated = struct.unpack_from("=II", out, at)
        at += 8
        ids = numpy.frombuffer(out, "=i4", count, at).tolist()
        offsets = numpy.frombuffer(out, "=u4", 2 * count, at + 4 * count).reshape(-1, 2)
        special = list(out[at + 12 * count:at + 13 * count])
        at += 13 * count
        result.append((ids, offsets, special, bool(truncated)))
    assert at == len(out)
    return result


def dump(path, texts, *flags, option="--json"):
    """What the program gives: per text (ids, offsets, special, truncated)."""
    return parsed(dumped(option, path, texts, *flags), texts)


def byte_offsets(text, offsets):
    """The reference counts code points; we count bytes of the same positions."""
    offsets = numpy.fromiter(itertools.chain.from_iterable(offsets), "u4", 2 * len(offsets)).reshape(-1, 2)
    if text.isascii():
        return offsets
    points = numpy.frombuffer(text.encode("utf-32-le"), "<u4")
    sizes = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
    return numpy.concatenate([[0], numpy.cumsum(sizes)]).astype("u4")[offsets]


def as_dumped(text, encoding, cut):
    """What the program must give for a text, byte for byte: counts, ids, offsets and the special mask."""
    ids = encoding.ids
    truncated = cut is not None and len(ids) == cut and bool(encoding.overflowing)  # which copies all that was cut off
    return b"".join((struct.pack("=II", len(ids), truncated), array.array("i", ids).tobytes(),
                     byte_offsets(text, encoding.offsets).tobytes(), bytes(encoding.special_tokens_mask)))


def compare(tokenizer, path, texts, max_length=None, left=False, special=True):
    flags = [] if special else ["--no-special"]
    if max_length is not None:
        tokenizer.enable_truncation(max_length, direction="left" if left else "right")
        flags += ["--max-length", str(max_length)] + (["--left"] if left else [])
    else:
        tokenizer.no_truncation()
    tokenizer.no_padding()
    ours = dumped("--json", path, texts, *flags)
    theirs = [as_dumped(text, encoding, max_length)
              for text, encoding in zip(texts, tokenizer.encode_batch(texts, add_special_tokens=special))]
    if ours == b"".join(theirs):
        return
    wrong = [(text, *pair) for text, *pair in zip(texts, parsed(ours, texts), parsed(b"".join(theirs), texts))
             if repr(pair[0]) != repr(pair[1])]
    for text, mine, expected in wrong[:3]:
        print("text", ascii(text[:200]), "\nours  ", mine, "\ntheirs", expected)
    assert not wrong, f"{len(wrong)} of {len(texts)} texts differ"
    assert len(ours) == sum(map(len, theirs))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tokens")


@functools.cache
def made_variants():
    return token_cases.variants(vocab())


NAMES = sorted(token_cases.variants({"[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103, "[PAD]": 0}))


def variant(name, folder):
    tokenizer = made_variants()[name]
    path = folder / f"{name}.json"
    if not path.exists():
        tokenizer.no_truncation()
        tokenizer.save(str(path))
    return tokenizers.Tokenizer.from_file(str(path)), path


def test_default_tokenizer_on_all_texts():
    texts = default_texts()
    assert len(texts) >= 20000
    compare(tokenizers.Tokenizer.from_file(str(DEFAULT)), DEFAULT, texts)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("max_length", [2, 3, 5, 16, 128, 512])
def test_truncation(max_length, left):
    made = hostile()[len(token_cases.FIXED)::4] + token_cases.spread(shared(), 1500)
    texts = token_cases.FIXED + token_cases.some(made, 4)
    compare(tokenizers.Tokenizer.from_file(str(DEFAULT)), DEFAULT, texts, max_length, left)


def test_without_special_tokens():
    tokenizer = tokenizers.Tokenizer.from_file(str(DEFAULT))
    texts = hostile()[::5]
    compare(tokenizer, DEFAULT, texts, special=False)
    compare(tokenizer, DEFAULT, texts, 7, special=False)
    compare(tokenizer, DEFAULT, texts, 7, left=True, special=False)


@pytest.mark.parametrize("max_length", [1, 2])
def test_specials_remain(max_length):
    """At and below the number of specials nothing of the text is left (the reference refuses below)."""
    for flags in ([], ["--left"]):
        for ids, _, special, truncated in dump(DEFAULT, ["a b", "é"], "--max-length", str(max_length), *flags):
            assert (ids, special, truncated) == ([101, 102], [1, 1], True)


@pytest.mark.parametrize("name", NAMES)
def test_variant(name, folder):
    tokenizer, path = variant(name, folder)
    texts = hostile()[::3] if name.startswith(("added", "roberta", "mpnet", "tiny")) else hostile()[::7]
    texts = [text for text in texts if len(text) <= 6000]
    texts = token_cases.some(texts, 3) + token_cases.spread(shared(), 300)
    compare(tokenizer, path, texts)
    compare(tokenizer, path, texts[::3], 9)
    compare(tokenizer, path, texts[::3], 9, left=True)


def decode(path, lists, *flags):
    data = b"".join(struct.pack("=I", len(ids)) + numpy.array(ids, "=i4").tobytes() for ids in lists)
    done = subprocess.run([DUMP, "--json", path, "--decode", *flags], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    out, at, result = done.stdout, 0, []
    for _ in lists:
        (size,) = struct.unpack_from("=I", out, at)
        result.append(out[at + 4:at + 4 + size].decode("utf-8"))
        at += 4 + size
    return result


@pytest.mark.parametrize("name", ["default", "mpnet", "no_template", "no_decoder", "added_raw", "added_normalized",
                                  "added_normalized_cased", "tiny", "tiny_no_prefix", "cleanup"])
def test_decode(name, folder):
    if name == "default":
        tokenizer, path = tokenizers.Tokenizer.from_file(str(DEFAULT)), DEFAULT
    else:
        tokenizer, path = variant(name, folder)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts = [text for text in hostile()[::3] if len(text) < 3000] + token_cases.spread(shared(), 1500)
    lists = [encoding.ids for encoding in tokenizer.encode_batch(token_cases.some(texts, 4))]
    every = [i for i in range(tokenizer.get_vocab_size(with_added_tokens=True)) if tokenizer.id_to_token(i) is not None]
    lists += [[i] for i in every] + [[every[-1], i] for i in token_cases.some(every, 3)] + [every, []]
    said = "he said do not n't 'm 's 've 're . ? ! , ' ' x".split()
    lists.append([tokenizer.token_to_id(word) for word in said if tokenizer.token_to_id(word) is not None])
    for skip in (False, True):
        ours = decode(path, lists, *(["--skip-special"] if skip else []))
        theirs = tokenizer.decode_batch(lists, skip_special_tokens=skip)
        wrong = [(a, b) for a, b in zip(ours, theirs) if a != b]
        assert not wrong, wrong[:3]


def test_vocabulary_file(folder):
    """A folder with vocab.txt alone gives the same ids as the tokenizer.json made of it."""
    words = sorted(vocab(), key=vocab().get)
    from tokenizers import normalizers
    for flags, normalizer in (([], normalizers.BertNormalizer()),
                              (["--cased", "--keep-accents"], normalizers.BertNormalizer(lowercase=False)),
                              (["--no-chinese"], normalizers.BertNormalizer(handle_chinese_chars=False))):
        for end in ("\n", "\r\n"):
            path = folder / "vocab.txt"
            path.write_bytes((end.join(words) + end).encode("utf-8"))
            tokenizer = token_cases.minilm_like(None, vocab(), normalizer)
            texts = hostile()[::16]
            for mine, expected in zip(dump(path, texts, *flags, option="--vocab"), tokenizer.encode_batch(texts)):
                assert mine[0] == expected.ids


def test_do_lower_case(folder):
    """do_lower_case puts a Lowercase normalizer in front, as sentence-transformers does: added tokens of the raw text stay."""
    from tokenizers import normalizers
    tokenizer, path = variant("cased", folder)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), tokenizer.normalizer])
    texts = ["[SEP] IN A TEXT", "ΟΔΥΣΣΕΥΣ", "İΣ", "ΑΣ\u0301Β"] + [text for text in hostile()[::8] if len(text) < 5000]
    for text, mine, expected in zip(texts, dump(path, texts, "--lower"), tokenizer.encode_batch(texts)):
        assert mine[0] == expected.ids, ascii(text)


# ---- Every code point ------------------------------------------------------------------------------

EVERY = token_cases.code_points()


def code_point_tokenizer(normalizer, pre_tokenizer, alphabet):
    """A tokenizer whose ids show what became of a character: each word of "a?b" stays visible."""
    from tokenizers import Tokenizer, models
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(alphabet)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


@functools.cache
def letters():
    """Characters whose fate the ids must show one by one: those that some character becomes (in the reference or
    in this Python), and all assigned ones outside the large blocks that only stand for themselves. Any other that
    is kept makes its word [UNK], which also tells it from being dropped, split off or replaced."""
    import unicodedata
    from tokenizers import normalizers as n
    found = set()
    for character in EVERY:
        if not 0x3400 <= ord(character) < 0xD7A4 and ord(character) < 0x1F000 and \
                unicodedata.category(character) not in ("Cn", "Co"):
            found.add(character)
        for other in (n.NFD().normalize_str(character), n.Lowercase().normalize_str(character),
                      unicodedata.normalize("NFKD", character), character.lower()):
            if other != character:
                found.update(other)
    return sorted(found - {"\0"})


POINT_NORMALIZERS = ["bert", "accents_kept", "cased_stripped", "nfd_marks", "whitespace"]


@pytest.mark.parametrize("name", POINT_NORMALIZERS)
def test_every_code_point(name, folder):
    """"a?b" for each code point, ids and offsets."""
    from tokenizers import normalizers as n, pre_tokenizers as p
    normalizer, pre_tokenizer = {
        "bert": (n.BertNormalizer(), p.BertPreTokenizer()),
        "accents_kept": (n.BertNormalizer(strip_accents=False), p.BertPreTokenizer()),
        "cased_stripped": (n.BertNormalizer(clean_text=False, lowercase=False, strip_accents=True), p.BertPreTokenizer()),
        "nfd_marks": (n.Sequence([n.NFD(), n.StripAccents(), n.Lowercase()]), p.WhitespaceSplit()),
        "whitespace": (n.Sequence([n.NFD(), n.Strip()]), p.Whitespace()),
    }[name]
    path = folder / f"points_{name}.json"
    tokenizer = code_point_tokenizer(normalizer, pre_tokenizer,
                                     ["[UNK]"] + letters() + ["##" + letter for letter in letters()])
    tokenizer.save(str(path))
    texts = [" ".join("a" + point + "b" for point in EVERY[at:at + 64]) for at in range(0, len(EVERY), 64)]
    compare(tokenizer, path, texts)


@pytest.mark.parametrize("name", ["nfd", "bert"])
def test_every_pair_of_marks(name, folder):
    """The order of combining marks: each mark after and before one of every class."""
    import unicodedata
    from tokenizers import normalizers as n, pre_tokenizers as p
    marks = [character for character in EVERY if unicodedata.combining(character)]
    classes = {}
    for mark in marks:
        classes.setdefault(unicodedata.combining(mark), mark)
    known = ["[UNK]", "a"] + marks + ["##" + mark for mark in marks]
    if name == "nfd":
        tokenizer = code_point_tokenizer(n.NFD(), p.WhitespaceSplit(), known)
    else:  # few marks survive; those of the fast path must be in order too
        tokenizer = code_point_tokenizer(n.BertNormalizer(), p.BertPreTokenizer(), known)
    path = folder / "marks.json"
    tokenizer.save(str(path))
    texts = []
    for mark in marks:
        for other in classes.values():
            texts += ["a" + mark + other, "a" + other + mark]
    compare(tokenizer, path, token_cases.some(texts, 3))


def test_time_is_linear():
    """A megabyte of the worst texts each, ten in check-full, takes seconds at most (quadratic would be an hour)."""
    texts = ["a" * 10_000_000, "\u0301\u0323" * 2_500_000, "\u302f\u302e\u302a" * 1_100_000, "a\u0301" * 3_000_000,
             "日" * 3_000_000, "[" * 10_000_000, "İ" * 5_000_000, "##" * 5_000_000, "\u200b" * 3_000_000,
             "\U0001F468\u200d\U0001F469\u200d\U0001F467" * 600_000, "[CLS]" * 2_000_000]
    for text in texts:
        text = token_cases.part(text)
        begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run([DUMP, "--json", DEFAULT, "--max-length", "128"], input=frames([text]),
                              capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin < 60, ascii(text[:8])
