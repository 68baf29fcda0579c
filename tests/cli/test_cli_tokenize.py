# SPDX-License-Identifier: Apache-2.0
"""tokenize and decode: the exact shape of their results, and that they are each other's inverse.

The ids come from Hugging Face tokenizers 0.23.3 with the default model's tokenizer.json."""
import json

import pytest

pytestmark = pytest.mark.usefixtures("embed")  # the model is needed, if only its tokenizer

HELLO = '{"ids":[101,7592,2088,102],"tokens":["[CLS]","hello","world","[SEP]"],' \
        '"offsets":[[0,0],[0,5],[6,11],[0,0]],"special":[1,0,0,1],"truncated":false}'


def test_jsonl_lines_are_exactly_the_contract(fletch):
    assert fletch("tokenize", "Hello world").stdout.decode() == HELLO + "\n"
    assert json.loads(fletch("tokenize", "--format", "json", "Hello world", "x").stdout)[0] == json.loads(HELLO)


def test_offsets_are_bytes(fletch):
    (row,) = fletch.rows("tokenize", "né 日本")
    text = "né 日本".encode()
    pieces = [text[start:end].decode() for start, end in row["offsets"][1:-1]]
    assert "".join(pieces) == "né日本"


def test_truncation(fletch):
    (row,) = fletch.rows("tokenize", "--max-length", "4", "one two three four")
    assert row["truncated"] and row["tokens"] == ["[CLS]", "one", "two", "[SEP]"]
    (row,) = fletch.rows("tokenize", "--max-length", "4", "--truncate", "left", "one two three four")
    assert row["truncated"] and row["tokens"] == ["[CLS]", "three", "four", "[SEP]"]
    (row,) = fletch.rows("tokenize", "word " * 2000)
    assert not row["truncated"] and len(row["ids"]) == 2002
    result = fletch("tokenize", "--max-length", "4", "--truncate", "error", "ok", "one two three four")
    assert result.returncode == 1 and "argument 2: longer than 4 tokens" in result.stderr.decode()


def test_without_special_tokens(fletch):
    (row,) = fletch.rows("tokenize", "--no-special-tokens", "Hello world")
    assert row["ids"] == [7592, 2088] and row["special"] == [0, 0]


def test_a_pair_is_one_sequence(fletch):
    (row,) = fletch.rows("tokenize", "--pair", "a cat", "Hello world")
    assert row["tokens"] == ["[CLS]", "hello", "world", "[SEP]", "a", "cat", "[SEP]"]
    assert row["offsets"][4:6] == [[0, 1], [2, 5]] and row["second"] == [4, 6] and row["segment"] == 4
    (row,) = fletch.rows("tokenize", "--pair", "a cat", "--max-length", "7", "one two three four")
    assert row["truncated"] and row["tokens"] == ["[CLS]", "one", "two", "[SEP]", "a", "cat", "[SEP]"]
    text = fletch("tokenize", "--format", "text", "--pair", "a cat", "Hello").stdout.decode()
    assert "Hello  +  a cat" in text and "cat" in text.splitlines()[-2]


def test_text_is_a_table(fletch):
    text = fletch("tokenize", "--format", "text", "Hello\x1b world").stdout.decode()
    assert "7592" in text and "[CLS]" in text and "\x1b" not in text


@pytest.mark.parametrize("arguments, data, expected", [
    (["101", "7592", "2088", "102"], "", "[CLS] hello world [SEP]\n"),
    (["101,7592, 2088", "102"], "", "[CLS] hello world [SEP]\n"),
    (["--skip-special-tokens", "[101, 7592, 2088, 102]", "[7592]"], "", "hello world\nhello\n"),
    ([], "[7592, 2088]\n[]\n[102]\n", "hello world\n\n[SEP]\n"),
    (["--skip-special-tokens"], HELLO + "\n", "hello world\n"),
    (["--format", "jsonl", "7592"], "", '{"text":"hello"}\n'),
    (["--format", "json", "[7592]", "[2088]"], "", '[\n{"text":"hello"},\n{"text":"world"}\n]\n'),
])
def test_decode(fletch, arguments, data, expected):
    result = fletch("decode", *arguments, input=data)
    assert result.returncode == 0, result.stderr
    assert result.stdout.decode() == expected


@pytest.mark.parametrize("line, says", [
    ("[1, 99999999]", "99999999"), ("[1.5]", "not a whole number"), ('{"id": [1]}', '"ids"'), ("[1", "JSON"),
    ("hello", "'hello' is not a token id"), ("[-1]", "-1"),
])
def test_decode_refuses_with_the_line(fletch, line, says):
    result = fletch("decode", input=f"[7592]\n{line}\n[2088]\n")
    assert result.returncode == 1 and result.stdout == b"hello\n"
    assert "standard input:2: " in result.stderr.decode() and says in result.stderr.decode()
    result = fletch("decode", "--on-error", "skip", input=f"[7592]\n{line}\n[2088]\n")
    assert result.returncode == 4 and result.stdout == b"hello\nworld\n"


def test_decode_of_wrong_arguments_is_wrong_usage(fletch):
    assert fletch("decode", "hello").returncode == 2
