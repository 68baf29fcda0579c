# SPDX-License-Identifier: Apache-2.0
"""What can go wrong ends with the right exit code and a message that says what, where, and how to mend it."""
import json
import pathlib
import shutil

import commandline
import pytest


def test_too_long_a_text_stops_or_is_left_out(embed):
    data = b"a b c d e f g h\nok\n" + b"long " * 20 + b"\nok too\n"
    flags = ("embed", "--max-length", "5", "--truncate", "error")
    result = embed(*flags, input=b"ok\n" + data)
    assert result.returncode == 1 and len(result.stdout.splitlines()) == 1
    assert "standard input:2: longer than 5 tokens" in result.stderr.decode()
    result = embed(*flags, "--on-error", "skip", input=data)
    assert result.returncode == 4
    assert [json.loads(line)["index"] for line in result.stdout.splitlines()] == [1, 3]
    assert ":1: longer" in result.stderr.decode() and ":3: longer" in result.stderr.decode()


def test_many_refusals_in_one_window(embed):
    lines = [("word " * 30 if i % 3 else "fine") for i in range(300)]
    result = embed("embed", "--max-length", "8", "--truncate", "error", "--on-error", "skip", "--dimensions", "2",
                   input="\n".join(lines))
    assert result.returncode == 4
    assert [json.loads(line)["index"] for line in result.stdout.splitlines()] == list(range(0, 300, 3))


def test_a_text_that_no_memory_is_left_for_is_left_out(embed):
    """Under a limit that nothing fits in, each text is named."""
    flags = ("embed", "--memory-limit", "1MiB")
    stopped = embed(*flags, input=b"one\ntwo\n")
    assert stopped.returncode == 1 and stopped.stdout == b"" and b"memory.limit" in stopped.stderr
    skipped = embed(*flags, "--on-error", "skip", input=b"one\ntwo\n")
    assert skipped.returncode == 4 and skipped.stdout == b""
    assert b"standard input:1: a batch of 1 text" in skipped.stderr and b"standard input:2: " in skipped.stderr


def test_a_cut_text_is_said(embed):
    result = embed("embed", "--max-length", "5", "a b c d e f g h", "ok")
    assert [json.loads(line)["truncated"] for line in result.stdout.splitlines()] == [True, False]
    assert "1 of 2 texts was longer" in result.stderr.decode()
    assert embed("embed", "--max-length", "5", "--quiet", "a b c d e f g h").stderr == b""


def test_query_and_document_are_prompts_of_every_model(embed):
    plain = embed("embed", "text").stdout
    for name in ("query", "document"):  # empty where the folder says nothing, as in sentence-transformers
        result = embed("embed", "--prompt-name", name, "text")
        assert result.returncode == 0 and result.stdout == plain


@pytest.mark.parametrize("arguments, code, says", [
    (["-m", "./nowhere"], 3, "nowhere"),
    (["-m", "org/name", "--offline"], 3, "org/name"),
    (["-m", "org/name"], 3, "127.0.0.1"),
    (["-m", "."], 3, "config.json"),
    (["--dimensions", "999"], 2, "384"),
    (["--prompt-name", "passage"], 2, "passage"),
    (["--max-length", "100000"], 2, "512"),
    (["--provider-order", "cuda", "--provider-fallback", "false"], 2, "CUDA"),
    (["--provider-order", "cuda"], 2, "--provider-order NAME,cpu falls back"),
])
def test_exit_codes_of_opening(embed, arguments, code, says):
    result = embed("embed", *arguments, "text")
    assert result.returncode == code and result.stdout == b""
    assert says in result.stderr.decode() and result.stderr.startswith(b"fletch: ")


@pytest.mark.parametrize("name, change", [
    ("model.safetensors", lambda data: data[:1_000_000]),
    ("config.json", lambda data: data[:-20]),
    ("tokenizer.json", lambda data: data[:-20]),
    ("config.json", lambda data: data.replace(b'"gelu"', b'"swish9"')),
    ("modules.json", lambda data: b"{}"),
])
def test_a_damaged_model_is_3_and_named(embed, tmp_path, name, change):
    folder = tmp_path / "model"
    shutil.copytree(commandline.MODEL, folder)
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    result = embed("embed", "-m", folder, "-o", "out.npy", "text")
    assert result.returncode == 3, result.stderr
    assert str(folder) in result.stderr.decode()
    assert not (tmp_path / "out.npy").exists()


def test_a_warning_is_shown_once_and_not_when_quiet(embed):
    result = embed("embed", "--provider-order=directml,cpu", "x")
    assert result.returncode == 0
    assert result.stderr.decode().count("DirectML execution provider requested but not available") == 1
    assert embed("embed", "--quiet", "--provider-order=directml,cpu", "x").stderr == b""


def test_nothing_is_left_in_the_working_folder(embed, tmp_path):
    assert embed("embed", "-o", "out.npy", "x").returncode == 0
    assert {path.name for path in pathlib.Path(tmp_path).iterdir()} <= {"out.npy", "hf"}
