# SPDX-License-Identifier: Apache-2.0
"""Which files a run reads and writes: several inputs once each, none of them replaced, and what a run that did not
end well leaves."""
import gzip
import json
import os
import pathlib
import signal
import subprocess

import numpy as np
import pytest
from commandline import WAIT

pytestmark = pytest.mark.usefixtures("embed")  # the model is needed, if only its tokenizer


def texts(fletch, *arguments, **options):
    """The texts of a run, which --keep-fields and ids would hide: by decoding what was tokenised."""
    rows = fletch.rows("tokenize", "--no-special-tokens", *arguments, **options)
    return ["".join(token.removeprefix("##") for token in row["tokens"]) for row in rows]


def test_a_dash_is_standard_input(fletch):
    assert texts(fletch, "-", input="one\ntwo\n") == ["one", "two"]
    assert texts(fletch, "--", "-", input="one\n") == ["-"]
    result = fletch("embed", "-", "text", input="one\n")
    assert result.returncode == 2 and "must be the only input" in result.stderr.decode()
    assert fletch("decode", "-", input="[7592]\n").stdout == b"hello\n"


def test_texts_that_are_names_of_files_get_a_note(fletch, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("x\n")
    result = fletch("tokenize", "a.txt")
    assert result.returncode == 0 and "--input a.txt reads the file" in result.stderr.decode()
    result = fletch("tokenize", "a.txt", "b.txt", "text")
    assert "2 of the texts, the first a.txt" in result.stderr.decode()
    assert fletch("tokenize", "-q", "a.txt").stderr == b""
    assert fletch("tokenize", "--", "a.txt").stderr == b"" == fletch("tokenize", "text").stderr


def test_several_inputs_in_their_order(fletch, tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo")  # no line end: the next file is a new line all the same
    (tmp_path / "b.jsonl").write_text('{"text": "three"}\n\n')
    (tmp_path / "c.csv").write_text("id,text\n1,four\n")
    (tmp_path / "d.json").write_text('["five"]')
    (tmp_path / "e.txt").write_text("")
    (tmp_path / "f.csv").write_text("text\nsix\n")
    names = ["a.txt", "b.jsonl", "c.csv", "d.json", "e.txt", "f.csv", "-"]
    flags = [word for name in names for word in ("-i", name)]
    assert texts(fletch, *flags, input="seven\n") == ["one", "two", "three", "four", "five", "six", "seven"]
    rows = fletch.rows("embed", *flags, input="seven\n")
    assert [row["index"] for row in rows] == list(range(7))


def test_patterns_and_each_file_once(fletch, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "folder.txt").mkdir()
    for i in range(12):
        (tmp_path / "in" / f"{i:02}.txt").write_text(f"word{i}\n")
    (tmp_path / "in" / "[x].txt").write_text("literal\n")
    words = [f"word{i}" for i in range(12)]
    assert texts(fletch, "-i", "in/*.txt") == words + ["literal"]
    assert texts(fletch, "-i", "in/0?.txt") == words[:10]
    assert texts(fletch, "-i", "in/[x].txt") == ["literal"]  # a name that is there is that file
    os.link(tmp_path / "in" / "00.txt", tmp_path / "hard")
    os.symlink("in/01.txt", tmp_path / "soft")
    result = fletch("tokenize", "-i", "in/0[01].txt", "-i", "hard", "-i", "soft")
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr.decode().count("is given twice; it is read once") == 2
    result = fletch("tokenize", "-i", "in/*.csv")
    assert result.returncode == 1 and "no file matches in/*.csv" in result.stderr.decode()


def test_a_pattern_that_the_shell_expanded_is_told(fletch, tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("x\n")
    result = fletch("tokenize", "-i", "a.txt", "b.txt", "c.txt")
    assert result.returncode == 2 and "quote the pattern" in result.stderr.decode()


def test_a_missing_one_is_told_before_any_work(fletch, tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    result = fletch("tokenize", "-i", "a.txt", "-i", "b.txt")
    assert result.returncode == 1 and result.stdout == b"" and "cannot open b.txt" in result.stderr.decode()


def test_a_refusal_names_its_file(fletch, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\n")
    (tmp_path / "b.txt").write_bytes(b"two\nb\xff\n")
    (tmp_path / "c.json").write_bytes(b'["three", 4]')
    result = fletch("tokenize", "-i", "a.txt", "-i", "b.txt", "-i", "c.json", "--on-error", "skip")
    text = result.stderr.decode()
    assert result.returncode == 4 and "b.txt:2: not valid UTF-8" in text and "c.json: item 2: is a number" in text
    long = " ".join(["word"] * 600)
    (tmp_path / "d.txt").write_text(long + "\n")
    result = fletch("embed", "-i", "a.txt", "-i", "d.txt", "--truncate", "error", "--on-error", "skip")
    assert result.returncode == 4 and "d.txt:1: longer than" in result.stderr.decode()


@pytest.mark.parametrize("make", [
    lambda folder: "in.jsonl",
    lambda folder: "./in.jsonl",
    lambda folder: os.link(folder / "in.jsonl", folder / "hard.jsonl") or "hard.jsonl",
    lambda folder: os.symlink("in.jsonl", folder / "soft.jsonl") or "soft.jsonl",
])
@pytest.mark.parametrize("flag", ["-o", "--stats-json"])
def test_an_input_is_not_replaced(embed, tmp_path, make, flag):
    before = '"one"\n"two"\n'
    (tmp_path / "in.jsonl").write_text(before)
    name = make(tmp_path)
    (tmp_path / "other.jsonl").write_text('"x"\n')
    for arguments in (("-i", "other.jsonl", "-i", "in.jsonl"), ()):
        result = embed("embed", *arguments, flag, name, input=None, stdin=open(tmp_path / "in.jsonl"))
        assert result.returncode == 2 and "would be overwritten" in result.stderr.decode()
        assert (tmp_path / "in.jsonl").read_text() == before


def test_a_blank_line_of_jsonl_is_passed_over(fletch):
    assert texts(fletch, "--input-format", "jsonl", input='"one"\n\n  \t\r\n"two"\n\n') == ["one", "two"]
    assert "standard input:3:" in fletch("tokenize", "--input-format", "jsonl", input='"one"\n\n7\n').stderr.decode()


def test_an_empty_csv_file_is_an_error(fletch, tmp_path):
    (tmp_path / "a.csv").write_bytes(b"")
    result = fletch("tokenize", "-i", "a.csv")
    assert result.returncode == 1 and "a.csv is empty" in result.stderr.decode()


BAD = "good one\ngood two\nb\udcffd\ngood\n".encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("name", ["out.jsonl", "out.json", "out.npy"])
def test_partial_keeps_what_is_done_and_says_how_far(embed, tmp_path, name):
    result = embed("embed", "-o", name, input=BAD)
    assert result.returncode == 1 and not (tmp_path / name).exists()
    assert "stopped after 2 texts, up to standard input:2; nothing was kept; --partial keeps" in result.stderr.decode()
    result = embed("embed", "-o", name, "--partial", input=BAD)
    assert result.returncode == 1
    assert f"stopped after 2 texts, up to standard input:2; their results are in {name}" in result.stderr.decode()
    path = tmp_path / name
    if name.endswith("npy"):
        rows = np.load(path)
    elif name.endswith("json"):
        rows = json.loads(path.read_text())
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 2
    assert [p.name for p in tmp_path.iterdir() if "fletch-" in p.name] == []


def test_partial_of_a_cut_off_file(fletch, tmp_path):
    data = gzip.compress("".join(f"text {i * 7919 % 100003}\n" for i in range(60_000)).encode())
    (tmp_path / "a.gz").write_bytes(data[:len(data) // 2])
    result = fletch("tokenize", "-i", "a.gz", "-o", "out.jsonl", "--partial")
    assert result.returncode == 1 and "is truncated" in result.stderr.decode()
    assert 1000 < len((tmp_path / "out.jsonl").read_text().splitlines()) < 60_000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_partial_run_keeps_what_is_done(embed, tmp_path, number):
    with embed.start("embed", "-o", "out.npy", "--partial", stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(b"one\ntwo\nthree\n")
        process.stdin.flush()
        while not [p for p in tmp_path.iterdir() if p.name.startswith(".out.npy.fletch-")]:
            assert process.poll() is None
        until_waiting(process)
        process.send_signal(number)
        assert process.wait(WAIT) == 128 + number
        text = process.stderr.read().decode()
    assert "interrupted" in text and "stopped after 3 texts" in text
    assert np.load(tmp_path / "out.npy").shape == (3, 384)


def until_waiting(process):
    """Until the process waits for more input: all texts that were sent are done then."""
    while True:
        words = pathlib.Path(f"/proc/{process.pid}/syscall").read_text().split()
        if words[0] == "7" and words[2] == "0x2":  # poll of the input and of what a signal writes
            return
        assert process.poll() is None


def test_a_second_signal_ends_at_once_and_leaves_nothing(embed, tmp_path):
    (tmp_path / "in.txt").write_text("text\n" * 200_000)
    with embed.start("embed", "-i", "in.txt", "-o", "out.npy", "--partial", "--cpu-isa", "ref", stderr=subprocess.PIPE) as process:
        while not [p for p in tmp_path.iterdir() if p.name.startswith(".out.npy.fletch-")]:
            assert process.poll() is None
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
        assert process.returncode == 130
    assert [p.name for p in tmp_path.iterdir() if "fletch-" in p.name] == []


def held(path) -> bool:
    """Whether a process has locked the file: it does right after the name appears. Looked up, so as not to lock it."""
    return any(line.split()[5].endswith(f":{path.stat().st_ino}") for line in open("/proc/locks"))


def test_the_leftover_of_a_killed_run_is_told(embed, tmp_path):
    with embed.start("embed", "-o", "out.npy", stdin=subprocess.PIPE) as process:
        process.stdin.write(b"one\n")
        process.stdin.flush()
        while not (there := [p.name for p in tmp_path.iterdir() if p.name.startswith(".out.npy.fletch-") and held(p)]):
            assert process.poll() is None
        other = embed("embed", "-o", "out.npy", input="a\n")
        assert other.returncode == 0 and other.stderr == b"", "that one still writes"
        process.kill()
    result = embed("embed", "-o", "out.npy", input="a\n")
    assert result.returncode == 0 and f"{there[0]} is an incomplete file of a killed run" in result.stderr.decode()
    assert embed("embed", "-o", "out.npy", "-q", input="a\n").stderr == b""
    assert embed("embed", "-o", "other.npy", input="a\n").stderr == b""


def test_a_name_as_long_as_names_may_be(embed, tmp_path):
    name = "x" * 251 + ".npy"
    assert embed("embed", "-o", name, "one").returncode == 0
    assert np.load(tmp_path / name).shape == (1, 384)
