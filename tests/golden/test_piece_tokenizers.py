# SPDX-License-Identifier: Apache-2.0
"""test_piece_tokenizers.py - a folder with SentencePiece's BPE alone (tokenizer.model) gives the ids of the package sentencepiece.

What must never break: every text of the test data, byte fallback, pieces that a user defined, the map of characters, spaces kept or removed, of
equal merges the leftmost; control pieces as transformers finds them; what the file cannot be followed in is refused by name.
"""
import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess

import pytest

import golden

HERE = golden.HERE / "piece_tokenizers"
CASES = sorted(path.name for path in HERE.iterdir())
FILE = "tokenizer.model"
FULL = "FLETCH_TEST_FULL" in os.environ


def tokenize(path: pathlib.Path, texts, *flags) -> subprocess.CompletedProcess:
    return subprocess.run([golden.BIN, "tokenize", "-m", path, "--input-format", "jsonl", "--format", "jsonl", "--max-length", "100000", *flags],
                          capture_output=True, text=True, input="".join(json.dumps(text) + "\n" for text in texts))


def ids(path: pathlib.Path, texts, *flags) -> list:
    done = tokenize(path, texts, *flags)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["ids"] for line in done.stdout.splitlines()]


def changed(name: str, tmp_path: pathlib.Path, **settings) -> pathlib.Path:
    path = tmp_path / name
    shutil.copytree(HERE / name, path)
    file = path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    return path


def refusal(path: pathlib.Path) -> str:
    done = tokenize(path, ["a"])
    assert done.returncode == 3, (done.returncode, done.stderr)
    assert FILE in done.stderr or "tokenizer_config.json" in done.stderr, done.stderr
    return done.stderr


def field(number: int, value) -> bytes:
    """Of a protobuf message: a whole number, bytes, or a float."""
    if isinstance(value, bytes):
        assert len(value) < 128
        return bytes([number << 3 | 2, len(value)]) + value
    head = (number << 3).to_bytes(1, "little") if number < 16 else bytes([(number << 3 & 0x7F) | 0x80, number >> 4])
    return head + bytes([value])


def with_spec(number: int, name: str, tmp_path: pathlib.Path, *fields: bytes) -> pathlib.Path:
    """The later setting counts."""
    path = changed(name, tmp_path)
    (path / FILE).write_bytes((path / FILE).read_bytes() + field(number, b"".join(fields)))
    return path


@pytest.mark.parametrize("name", CASES)
def test_ids(name):
    expected = json.loads((HERE / name / "expected.json").read_text())["texts"]
    for (text, want), got in zip(expected, ids(HERE / name, [text for text, _ in expected], "--no-special-tokens"), strict=True):
        assert got == want, text


@pytest.mark.parametrize("name", CASES)
def test_the_test_data(name):
    """All of it, of most models without the largest files unless FLETCH_TEST_FULL is set: the digest of what the package gives."""
    for file, want in json.loads((HERE / name / "expected.json").read_text())["digests"].items():
        if not (golden.DATA / file).exists():
            pytest.skip("FLETCH_TEST_DATA is not there")
        if "train" in file and name not in ("llama", "mapped") and not FULL:
            continue
        rows = [json.loads(line) for line in (golden.DATA / file).read_text().splitlines()]
        texts = [text for row in rows for text in row.values() if isinstance(text, str)]
        got = "".join(json.dumps(one) + "\n" for one in ids(HERE / name, texts, "--no-special-tokens"))
        assert hashlib.sha256(got.encode()).hexdigest() == want, file


def test_what_stands_around_a_text(tmp_path):
    bare = ids(HERE / "llama", ["a cat"], "--no-special-tokens")[0]
    assert ids(HERE / "llama", ["a cat"]) == [[1, *bare]]
    assert ids(changed("llama", tmp_path, add_bos_token=False, add_eos_token=True), ["a cat"]) == [[*bare, 2]]
    assert ids(changed("llama", tmp_path / "two", bos_token={"content": "</s>"}), ["a cat"]) == [[2, *bare]]
    assert ids(HERE / "mistral-legacy", ["a cat"])[0][::len(ids(HERE / "mistral-legacy", ["a cat"])[0]) - 1] == [1, 2]


def test_control_pieces_are_found(tmp_path):
    """As in transformers; a space comes in front of the text alone, or with legacy in front of each part."""
    whole, part = ids(HERE / "llama", ["a cat", "x"], "--no-special-tokens")
    found = ids(HERE / "llama", ["a cat</s>a cat"], "--no-special-tokens")[0]
    assert found[:len(whole) + 1] == [*whole, 2] and found[len(whole) + 1:] != whole
    legacy = changed("llama", tmp_path, legacy=True)
    assert ids(legacy, ["a cat</s>a cat"], "--no-special-tokens") == [[*whole, 2, *whole]]
    assert ids(HERE / "gemma", ["a<start_of_turn>b"], "--no-special-tokens")[0][1] == ids(HERE / "gemma", ["<start_of_turn>"], "--no-special-tokens")[0][0]


def test_decode():
    for name in ("llama", "gemma"):
        text = "A cat sat, 日本 \U0001f600 ☃."
        one = ids(HERE / name, [text], "--no-special-tokens")[0]
        done = subprocess.run([golden.BIN, "decode", "-m", HERE / name, *map(str, one)], capture_output=True, text=True)
        assert done.stdout.rstrip("\n") == text, done.stderr


def test_refused(tmp_path):
    assert "Unigram" in refusal(with_spec(2, "llama", tmp_path / "a", field(3, 1)))
    assert "from_pretrained" in refusal(with_spec(2, "llama", tmp_path / "b", field(3, 1)))
    assert "neither Unigram nor BPE" in refusal(with_spec(2, "llama", tmp_path / "c", field(3, 3)))
    assert "treat_whitespace_as_suffix" in refusal(with_spec(2, "llama", tmp_path / "d", field(24, 1)))
    assert "escape_whitespaces" in refusal(with_spec(3, "llama", tmp_path / "e", field(5, 0)))
    assert "256 bytes" in refusal(with_spec(2, "mapped-unknown", tmp_path / "f", field(35, 1)))
    assert "add_prefix_space" in refusal(changed("llama", tmp_path / "g", add_prefix_space=False))
    assert "enable_sampling" in refusal(changed("llama", tmp_path / "h", sp_model_kwargs={"enable_sampling": True}))
    path = changed("llama", tmp_path / "q")
    (path / FILE).write_bytes((path / FILE).read_bytes() + b"".join(field(1, field(1, text) + b"\x15" + struct.pack("<f", -9000)) for text in (b"qx", b"xq")))
    assert "one score" in refusal(path)
    assert "bos_token" in refusal(changed("llama", tmp_path / "i", bos_token="<begin>"))
    for letter, piece, words in (("j", field(1, b"odd") + field(3, 5), "control"), ("k", field(1, b"q\xff"), "UTF-8"), ("l", field(1, b"<s>"), "twice"),
                                 ("m", field(1, b"zqx") + field(3, 2), "unknown piece"), ("n", field(1, "\U0001f63aa".encode()), "without a piece"),
                                 ("o", field(1, b""), "damaged"), ("p", field(1, b"a\0b"), "NUL")):
        path = changed("llama", tmp_path / letter)
        data = (path / FILE).read_bytes()
        (path / FILE).write_bytes(data + field(1, piece))
        assert words in refusal(path), letter


@pytest.mark.parametrize("name", ["llama", "mapped"])
def test_damage(name, tmp_path):
    """Every cut: refused, or what remains is whole."""
    path = changed(name, tmp_path)
    data = (path / FILE).read_bytes()
    for size in [*range(0, 60), *range(60, len(data), 509)]:
        (path / FILE).write_bytes(data[:size])
        done = tokenize(path, ["a cat"])
        assert done.returncode in (0, 3), (size, done.returncode, done.stderr)
        assert done.returncode == 0 or FILE in done.stderr, (size, done.stderr)


def test_other_classes_are_refused(tmp_path):
    assert "tokenizer_class without tokenizer.json" in refusal(changed("llama", tmp_path, tokenizer_class="BartTokenizer"))
