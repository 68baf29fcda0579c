# SPDX-License-Identifier: Apache-2.0
"""model.pack_cache: vectors are those without it in every precision; what is damaged, cut, of other weights or options or
writable by others is never read; what cannot be written is done without."""
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time

import numpy
import pytest

import gguf_writer
import golden
from test_gguf_weights import blocks, larger

FOLDERS = golden.HERE / "folders"
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))
HEAD = 4096
ADAPTED = "family-jina3-tasks"
TOYS = ["family-qwen3", "family-deberta", "family-albert", "shape-odd", "mpnet", ADAPTED]
LENGTH = ("--max-length", "60")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Copies that a test may write, and whose packed weights are kept."""
    work = tmp_path_factory.mktemp("models")
    for name in TOYS:
        shutil.copytree(FOLDERS / name, work / name)
    gguf_writer.write(larger("pooling-cls", work), work / "m.gguf", "Q4_K", quantise=blocks)
    golden.settle(work)
    return work


def read(model, *flags, work):
    return golden.embed(model, TEXTS, *LENGTH, *flags, work=work)


def cached(model, folder, *flags, work):
    return read(model, "--model-pack-cache", folder, *flags, work=work)


def only(folder) -> pathlib.Path:
    """The one file of the cache; no temporary beside it."""
    (path,) = folder.iterdir()
    assert path.suffix == ".pack"
    return path


def state(model, folder, *flags, env=None) -> tuple[str, str]:
    done = subprocess.run([golden.BIN, "doctor", "--format", "json", "-m", model, *LENGTH, "--model-pack-cache", folder, *flags],
                          capture_output=True, text=True, check=True, env=env)
    (row,) = [row for row in json.loads(done.stdout)["model"] if row["name"] == "cpu.pack_cache"]
    return row["value"], row["origin"]


@pytest.mark.parametrize("flags", [("fp32",), ("bf16",), ("int16",), ("int8",), ("auto", "--model-weights", "q8"),
                                   ("auto", "--model-weights", "q4"),
                                   ("fp32", "--cpu-replicas", "2")], ids="-".join)
def test_vectors_are_those_without_it(flags, models, tmp_path):
    model, flags = models / "family-qwen3", ("--provider-precision", *flags)
    expected = read(model, *flags, work=tmp_path)
    assert numpy.array_equal(cached(model, tmp_path / "c", *flags, work=tmp_path), expected)
    path = only(tmp_path / "c")
    written = path.stat()
    assert numpy.array_equal(cached(model, tmp_path / "c", *flags, work=tmp_path), expected)
    assert path.stat().st_ino == written.st_ino  # the second run read it


@pytest.mark.parametrize("name", ["family-deberta", "family-albert", "mpnet", "shape-odd", "m.gguf"])
def test_kinds_of_layers(name, models, tmp_path):
    """Tables of distances, layers that share weights, biases by distance, blocks that stay as stored."""
    flags = ("--model-weights", "stored")
    expected = read(models / name, *flags, work=tmp_path)
    for _ in range(2):
        assert numpy.array_equal(cached(models / name, tmp_path / "c", *flags, work=tmp_path), expected)
    assert state(models / name, tmp_path / "c", *flags) == ("mapped", str(only(tmp_path / "c")))


def test_what_is_damaged_is_made_again(models, tmp_path):
    """Byte for byte: the same weights give the same file."""
    model, folder = models / "family-qwen3", tmp_path / "c"
    expected = cached(model, folder, work=tmp_path)
    path = only(folder)
    good = path.read_bytes()
    flip = lambda at: good[:at] + bytes([good[at] ^ 1]) + good[at + 1:]
    bad = [flip(at) for at in (0, 8, 12, 16, 24, 32, 63, 64, HEAD, (HEAD + len(good)) // 2, len(good) - 1)]
    bad += [good[:size] for size in (0, 40, HEAD, HEAD + 1, len(good) - 64)] + [good + bytes(64)]
    for data in bad:
        path.write_bytes(data)
        assert numpy.array_equal(cached(model, folder, work=tmp_path), expected)
        assert only(folder).read_bytes() == good


def test_weights_written_in_place_are_never_missed(models, tmp_path):
    """With the size and the time of writing as before, and between the pages that are looked at."""
    model = models / "pooling-cls"  # nobody else's
    weights = model / "model.safetensors"
    before = cached(model, tmp_path / "c", work=tmp_path)
    good = only(tmp_path / "c").read_bytes()
    data, was = bytearray(weights.read_bytes()), weights.stat()
    size = int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8:8 + size])["encoder.layer.0.intermediate.dense.weight"]["data_offsets"]
    pages = [(len(data) - 4096) // 63 * i for i in range(64)]
    at = next(at for at in range(8 + size + begin, 8 + size + end, 64) if all(not page - 64 < at < page + 4096 for page in pages))
    with weights.open("r+b") as file:
        file.seek(at)
        file.write(numpy.full(16, 3, numpy.float32).tobytes())
    os.utime(weights, ns=(was.st_atime_ns, was.st_mtime_ns))
    now = weights.stat()
    assert (now.st_size, now.st_mtime_ns, now.st_ino) == (was.st_size, was.st_mtime_ns, was.st_ino)
    after = read(model, work=tmp_path)
    assert not numpy.array_equal(after, before)
    assert numpy.array_equal(cached(model, tmp_path / "c", work=tmp_path), after)
    assert only(tmp_path / "c").read_bytes() == good  # written a moment ago: not kept yet
    assert "a moment ago" in state(model, tmp_path / "c")[1]
    golden.settle(model)
    assert numpy.array_equal(cached(model, tmp_path / "c", work=tmp_path), after)
    assert only(tmp_path / "c").read_bytes() != good


def test_other_options_have_other_files(models, tmp_path):
    model, folder = models / "family-qwen3", tmp_path / "c"
    for flags in [(), ("--model-weights", "q8"), ("--provider-precision", "int8"), ("--cpu-isa", "ref")]:
        expected = read(model, *flags, work=tmp_path)
        assert numpy.array_equal(cached(model, folder, *flags, work=tmp_path), expected)
        assert numpy.array_equal(cached(model, folder, *flags, work=tmp_path), expected)
    assert len(list(folder.iterdir())) == 4


def test_what_others_may_write_is_not_read(models, tmp_path):
    model, folder = models / "family-qwen3", tmp_path / "c"
    expected = cached(model, folder, work=tmp_path)
    path = only(folder)
    assert path.stat().st_mode & 0o022 == 0
    path.chmod(0o666)
    before = path.stat().st_ino
    keep = os.open(path, os.O_RDONLY)  # so that no new file gets its number
    assert numpy.array_equal(cached(model, folder, work=tmp_path), expected)
    os.close(keep)
    assert path.stat().st_ino != before and path.stat().st_mode & 0o022 == 0


def start(model, folder, out, **more):
    command = [golden.BIN, "embed", "a cat", "-m", model, *LENGTH, "--model-pack-cache", folder, "--format", "raw", "-o", out]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **more)


def test_a_folder_that_cannot_be_written(models, tmp_path):
    (tmp_path / "file").write_text("")
    run = start(models / "family-qwen3", tmp_path / "file/c", tmp_path / "out")
    _, said = run.communicate()
    assert run.returncode == 0 and (tmp_path / "out").stat().st_size == 36 * 4
    assert "packed weights are not stored" in said and "model.pack_cache" in said


def test_a_disk_that_is_full_and_a_writer_that_is_killed(models, tmp_path):
    """A limit for files in the middle of the write: an error where its signal is ignored, else the end of the process."""
    model, folder = models / "family-qwen3", tmp_path / "c"

    def limit(action):
        signal.signal(signal.SIGXFSZ, action)
        resource.setrlimit(resource.RLIMIT_FSIZE, (HEAD * 2, HEAD * 2))

    full = start(model, folder, tmp_path / "out", preexec_fn=lambda: limit(signal.SIG_IGN))
    assert "packed weights are not stored" in full.communicate()[1] and full.returncode == 0
    assert list(folder.iterdir()) == []
    killed = start(model, folder, tmp_path / "out", preexec_fn=lambda: limit(signal.SIG_DFL), restore_signals=False)
    killed.communicate()
    if killed.returncode == -signal.SIGXFSZ:
        (left,) = folder.iterdir()
        assert left.suffix == ".tmp"
    expected = read(model, work=tmp_path)
    assert numpy.array_equal(cached(model, folder, work=tmp_path), expected)
    only(folder)  # what was left is gone


def test_several_at_once(models, tmp_path):
    outs = [tmp_path / f"out{i}" for i in range(4)]
    runs = [start(models / "family-qwen3", tmp_path / "c", out) for out in outs]
    for run in runs:
        assert run.communicate()[1] == "" and run.returncode == 0
    assert len({out.read_bytes() for out in outs}) == 1
    good = only(tmp_path / "c").read_bytes()
    cached(models / "family-qwen3", tmp_path / "c", work=tmp_path)
    assert only(tmp_path / "c").read_bytes() == good


def test_weights_that_an_adapter_changes_are_not_kept(models, tmp_path):
    """They do not lie in one file: the same base with another adapter has other weights."""
    for task in ("separation", "text-matching"):
        flags = ("--model-task", task)
        expected = read(models / ADAPTED, *flags, work=tmp_path)
        assert numpy.array_equal(cached(models / ADAPTED, tmp_path / "c", *flags, work=tmp_path), expected)
        assert state(models / ADAPTED, tmp_path / "c", *flags) == ("none", "weights changed by an adapter are not stored")
    assert not (tmp_path / "c").exists()


def test_auto_keeps_large_weights_alone(models, tmp_path):
    value, why = state(models / "family-qwen3", "auto", env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)})
    assert value == "none" and why.startswith("auto: ") and list(tmp_path.iterdir()) == []


def test_a_model_without_layers_has_nothing_to_keep(tmp_path):
    assert state(FOLDERS / "family-static", tmp_path / "c") == ("none", "nothing of this model is packed")
    assert not (tmp_path / "c").exists()
