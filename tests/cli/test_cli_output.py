# SPDX-License-Identifier: Apache-2.0
"""Every format reads back to the same numbers; a file appears whole or not at all."""
import io
import json
import os
import pathlib
import resource
import stat
import struct
import subprocess

import commandline
import zipfile

import numpy as np
import pytest
from commandline import DIMENSIONS, WAIT

TEXTS = ["A cat sits on the mat.", "", "Stocks fell sharply.", "猫がマットに座る"]


@pytest.fixture
def vectors(embed):
    rows = embed.rows("embed", *TEXTS)
    return np.array([row["embedding"] for row in rows], dtype=np.float32)


def read_fvecs(data: bytes) -> np.ndarray:
    width = struct.unpack("<i", data[:4])[0]
    rows = np.frombuffer(data, dtype="<f4").reshape(-1, width + 1)
    assert (rows[:, 0].view("<i4") == width).all()
    return rows[:, 1:]


def test_jsonl_lines_are_exactly_the_contract(embed):
    result = embed("embed", *TEXTS)
    for index, line in enumerate(result.stdout.decode().splitlines()):
        row = json.loads(line)
        assert list(row) == ["index", "embedding", "tokens", "truncated"]
        assert row["index"] == index and len(row["embedding"]) == DIMENSIONS
        assert line.startswith(f'{{"index":{index},"embedding":[')
        assert line.endswith(f'],"tokens":{row["tokens"]},"truncated":false}}')
        # shortest text that reads back to the same float32
        for text, value in zip(line.split("[")[1].split("]")[0].split(","), row["embedding"]):
            assert float(np.format_float_scientific(np.float32(value), unique=True)) == float(text)
            assert np.float32(text) == np.float32(value)


def test_formats_agree(embed, vectors, tmp_path):
    rows = json.loads(embed("embed", "--format", "json", *TEXTS).stdout)
    assert [row["index"] for row in rows] == [0, 1, 2, 3]
    assert np.array_equal(np.array([row["embedding"] for row in rows], dtype=np.float32), vectors)
    for name in ("out.npy", "out.raw", "out.fvecs", "out.json", "out.jsonl"):
        assert embed("embed", "-o", name, *TEXTS).returncode == 0
    loaded = np.load(tmp_path / "out.npy")
    assert loaded.dtype == np.dtype("<f4") and loaded.shape == (4, DIMENSIONS)
    assert np.array_equal(loaded, vectors)
    raw = np.fromfile(tmp_path / "out.raw", dtype="<f4").reshape(4, DIMENSIONS)
    assert np.array_equal(raw, vectors)
    assert np.array_equal(read_fvecs((tmp_path / "out.fvecs").read_bytes()), vectors)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines == rows == json.loads((tmp_path / "out.json").read_text())


@pytest.mark.parametrize("dtype, kind, width", [
    ("int8", "|i1", DIMENSIONS), ("uint8", "|u1", DIMENSIONS), ("binary", "|i1", DIMENSIONS // 8),
    ("ubinary", "|u1", DIMENSIONS // 8),
])
def test_element_types(embed, vectors, tmp_path, dtype, kind, width):
    assert embed("embed", "--dtype", dtype, "-o", "out.npy", *TEXTS).returncode == 0
    loaded = np.load(tmp_path / "out.npy")
    assert loaded.dtype == np.dtype(kind) and loaded.shape == (4, width)
    rows = embed.rows("embed", "--dtype", dtype, *TEXTS)
    assert np.array_equal(np.array([row["embedding"] for row in rows]), loaded.astype(int))
    if dtype == "ubinary":
        assert np.array_equal(np.packbits(vectors > 0, axis=1), loaded)
    assert embed("embed", "--dtype", dtype, "--format", "fvecs", "x").returncode == 2


def test_npy_to_a_pipe_and_of_nothing(embed, vectors, tmp_path):
    result = embed("embed", "--format", "npy", *TEXTS)
    assert np.array_equal(np.load(io.BytesIO(result.stdout)), vectors)
    with open(tmp_path / "appended.npy", "ab") as file:
        assert embed("embed", "--format", "npy", *TEXTS, stdout=file).returncode == 0
    assert np.array_equal(np.load(tmp_path / "appended.npy"), vectors)
    result = embed("embed", "--format", "npy", input=b"")
    assert np.load(io.BytesIO(result.stdout)).shape == (0, DIMENSIONS)
    assert json.loads(embed("embed", "--format", "json", input=b"").stdout) == []


def test_dimensions_cut_and_normalise(embed, vectors):
    rows = embed.rows("embed", "--dimensions", "64", *TEXTS)
    cut = vectors[:, :64] / np.linalg.norm(vectors[:, :64], axis=1, keepdims=True)
    assert np.allclose(np.array([row["embedding"] for row in rows]), cut, atol=1e-6)


def test_refused_inputs_keep_their_numbers_in_jsonl_and_no_row_in_npy(embed, tmp_path):
    data = b"one\nb\xffd\nthree\n"
    result = embed("embed", "--on-error", "skip", input=data)
    assert result.returncode == 4
    assert [json.loads(line)["index"] for line in result.stdout.splitlines()] == [0, 2]
    assert embed("embed", "--on-error", "skip", "-o", "out.npy", input=data).returncode == 4
    assert np.load(tmp_path / "out.npy").shape == (2, DIMENSIONS)


def test_text_is_for_a_person(embed):
    text = embed("embed", "--format", "text", "A cat\x1b[31m sits.\n").stdout.decode()
    assert "384 dimensions, norm 1.0000, " in text and "A cat" in text
    assert "\x1b" not in text, "a text must not steer the terminal"


def listing(path):
    return sorted(entry.name for entry in pathlib.Path(path).iterdir() if entry.name not in ("hf",))


@pytest.mark.parametrize("name", ["out.jsonl", "out.npy", "out.json", "out.raw"])
def test_a_failed_run_leaves_nothing(embed, tmp_path, name):
    folder = tmp_path / "results"
    folder.mkdir()
    result = embed("embed", "-o", folder / name, input=b"good\nb\xffd\n")
    assert result.returncode == 1 and listing(folder) == []
    (folder / name).write_text("old")
    assert embed("embed", "-o", folder / name, input=b"good\nb\xffd\n").returncode == 1
    assert listing(folder) == [name] and (folder / name).read_text() == "old"


def test_links_permissions_and_devices(embed, tmp_path):
    target, link = tmp_path / "target.jsonl", tmp_path / "link.jsonl"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    assert embed("embed", "-o", link, "x").returncode == 0
    assert link.is_symlink() and stat.S_IMODE(target.stat().st_mode) == 0o640
    assert json.loads(target.read_text())["index"] == 0
    assert embed("embed", "-o", "/dev/null", "x").returncode == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert json.loads(embed("embed", "-o", "/dev/stdout", "x").stdout)["index"] == 0


def test_output_to_a_named_pipe(embed, tmp_path):
    fifo = tmp_path / "pipe.npy"
    os.mkfifo(fifo)
    reader = subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE)
    assert embed("embed", "-o", fifo, "x").returncode == 0
    assert np.load(io.BytesIO(reader.communicate(timeout=WAIT)[0])).shape == (1, DIMENSIONS)


@pytest.mark.parametrize("form", ["jsonl", "json", "npy", "raw", "fvecs", "text"])
def test_a_full_disk_is_said(embed, form):
    result = embed("embed", "--format", form, "-o", "/dev/full", "x")
    assert result.returncode == 1
    assert "No space left" in result.stderr.decode() and len(result.stderr.splitlines()) == 1
    with open("/dev/full", "wb") as full:
        assert embed("embed", "--format", form, "x", stdout=full).returncode == 1


def test_a_disk_that_fills_in_the_middle_is_said_once(fletch):
    small = commandline.ROOT / "tests/golden/folders/pooling-cls"
    result = fletch("embed", "--model", small, "-o", "/dev/full", "--format", "jsonl", input=b"text\n" * 4000)
    assert result.returncode == 1
    assert "No space left" in result.stderr.decode() and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [["version"], ["help"], ["config"], ["completion", "bash"]])
def test_small_reports_say_it_too(fletch, command):
    with open("/dev/full", "wb") as full:
        result = fletch(*command, stdout=full)
    assert result.returncode == 1 and "No space left" in result.stderr.decode()


def test_a_file_size_limit_is_said_and_leaves_nothing(embed, tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    result = embed("embed", "-o", folder / "out.raw", input=b"text\n" * 200,
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)))
    assert result.returncode == 1, "SIGXFSZ must not kill it"
    assert "file size limit" in result.stderr.decode() and listing(folder) == []


def test_output_into_a_folder_that_is_not_there(embed):
    result = embed("embed", "-o", "nowhere/out.npy", "x")
    assert result.returncode == 1 and "nowhere" in result.stderr.decode()


def test_a_closed_pipe_is_silent(embed):
    process = embed.start("embed", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(b"text\n" * 3000)
    process.stdin.close()
    assert process.stdout.readline().startswith(b'{"index":0')
    process.stdout.close()
    assert process.wait(timeout=WAIT) == 1
    assert process.stderr.read() == b""
    process.stderr.close()


def test_similarity(embed, vectors):
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    cosine = vectors.astype(np.float64) @ vectors.astype(np.float64).T / np.outer(norms, norms)
    answer = json.loads(embed("embed", "--similarity", "--format", "json", *TEXTS).stdout)
    assert answer["texts"] == TEXTS and np.allclose(answer["similarity"], cosine, atol=1e-6)
    result = embed("embed", "--similarity", *TEXTS)
    lines = result.stdout.decode().splitlines()
    assert lines[1].split()[1:5] == [f"{value:.2f}" for value in cosine[0]]
    assert TEXTS[0] in lines[1] and "cosine similarity" in lines[6]
    assert "ms per text" in result.stderr.decode()
    assert embed("embed", "--similarity", input=b"x\n" * 64).returncode == 0
    result = embed("embed", "--similarity", input=b"x\n" * 65)
    assert result.returncode == 2 and "at most 64" in result.stderr.decode() and result.stdout == b""


def test_stats(embed):
    result = embed("embed", "--stats", "--max-length", "8", "hello", "word " * 50)
    values = {line[:13].strip(): line[13:] for line in result.stderr.decode().splitlines() if line[:7] != "fletch:"}
    assert values["texts"] == "2" and values["cut"] == "1" and values["tokens"] == str(3 + 8)
    assert float(values["texts/s"]) > 0 and values["peak memory"].endswith(" MB")
    assert result.stdout.count(b"\n") == 2


def test_float16_is_numpys(embed, tmp_path):
    """By the nearest value, ties to even, the smallest too: raw pooled rows have all sizes."""
    texts = [f"text number {i}" for i in range(64)]
    full = np.array([row["embedding"] for row in embed.rows("embed", *texts)], np.float32)
    half = full.astype(np.float16)
    assert embed("embed", "--dtype", "float16", "-o", "h.npy", *texts).returncode == 0
    assert np.load(tmp_path / "h.npy").dtype == np.float16 and np.array_equal(np.load(tmp_path / "h.npy"), half)
    raw = embed("embed", "--dtype", "float16", "--format", "raw", *texts).stdout
    assert raw == half.tobytes()
    rows = [row["embedding"] for row in embed.rows("embed", "--dtype", "float16", *texts)]
    assert np.array_equal(np.array(rows, np.float32), half.astype(np.float32))
    assert embed("embed", "--dtype", "float16", "--format", "fvecs", "x").returncode == 2
    assert embed("embed", "--dtype", "float16", "--similarity", "x", "y").returncode == 2


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "ubinary"])
def test_npz_is_the_npy_in_an_archive(embed, tmp_path, dtype):
    texts = ["one", "two", "three"]
    for name in ("a.npy", "a.npz"):
        assert embed("embed", "--dtype", dtype, "-o", name, *texts).returncode == 0
    with np.load(tmp_path / "a.npz") as archive:
        assert archive.files == ["embeddings"]
        assert np.array_equal(archive["embeddings"], np.load(tmp_path / "a.npy"))
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert archive.testzip() is None and archive.read("embeddings.npy") == (tmp_path / "a.npy").read_bytes()
    assert embed("embed", "--dtype", dtype, "--format", "npz", *texts).stdout == (tmp_path / "a.npz").read_bytes()


def test_npz_of_nothing(embed, tmp_path):
    assert embed("embed", "-o", "a.npz", input="").returncode == 0
    assert np.load(tmp_path / "a.npz")["embeddings"].shape == (0, 384)
