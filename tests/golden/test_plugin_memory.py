# SPDX-License-Identifier: Apache-2.0
"""A device that has no memory for a run, through a plug-in that says so (tests/faults/failing_provider.c) as CUDA's
provider does: the batch is split, and a text that finds none alone goes to the next provider; binding stays on.
"""
import json
import os
import pathlib
import subprocess

import numpy
import pytest

import golden

PLAIN = pathlib.Path(os.environ.get("FLETCH_ONNXRUNTIME_LIBRARY") or golden.ROOT / ".cache/onnxruntime")
FOLDER = golden.HERE / "folders/mpnet"
WORDS = "CUDA failure 2: out of memory ; GPU=0 ; hostname=here ; file=/src/cuda_allocator.cc ; line=1 ; expr=cudaMalloc"

pytestmark = pytest.mark.skipif(not PLAIN.exists(), reason="no ONNX Runtime library: make onnxruntime")


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    path = tmp_path_factory.mktemp("plugin") / "libfailing_provider.so"
    subprocess.run(["cc", "-O1", "-std=gnu17", "-shared", "-fPIC", "-o", path, golden.ROOT / "tests/faults/failing_provider.c"],
                   check=True)
    return "--onnxruntime-library", PLAIN, "--onnxruntime-provider-library", path


def embed(work: pathlib.Path, *flags, **environment):
    """Eight texts, their statistics and what was said."""
    texts, stats, rows = work / "texts.txt", work / "stats.json", work / "rows.npy"
    texts.write_text("".join(f"the cat sat at sea number {n}\n" for n in range(8)))
    words = ("embed", "-m", FOLDER, "-i", texts, "--format", "npy", "-o", rows, "--stats-json", stats, *flags)
    done = subprocess.run([str(golden.BIN), *map(str, words)], capture_output=True, text=True, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return numpy.load(rows), json.loads(stats.read_text()), done.stderr


# The first run is opening's own.
def test_a_batch_without_memory_is_split(plugin, tmp_path):
    want = embed(tmp_path)[0]
    rows, stats, said = embed(tmp_path, *plugin, "--provider-order", "plugin", FAIL_PROVIDER="2", FAIL_TIMES="1", FAIL_WORDS=WORDS)
    assert golden.difference(rows, want) <= 1e-5 and stats["batch_splits"] == 1 and stats["replica_failures"] == 0
    assert stats["unbound_runs"] == 0 and "io.binding" not in said, "binding is not at fault"


def test_a_text_that_finds_no_memory_alone_goes_to_the_next(plugin, tmp_path):
    want = embed(tmp_path)[0]
    rows, stats, said = embed(tmp_path, *plugin, "--provider-order", "plugin,cpu", FAIL_PROVIDER="2", FAIL_WORDS=WORDS)
    assert golden.difference(rows, want) <= 1e-5 and stats["batch_splits"] > 1
    assert stats["devices"][0]["provider"] == "cpu" and "CUDA failure 2: out of memory" in said and "cuda_allocator" not in said


def test_a_lone_text_without_memory_once_is_computed_there(plugin, tmp_path):
    """The provider is opened again and the text tried there, before another has it."""
    want = embed(tmp_path)[0]
    rows, stats, said = embed(tmp_path, *plugin, "--provider-order", "plugin,cpu", "--batch-max-texts", "1", FAIL_PROVIDER="3",
                              FAIL_TIMES="1", FAIL_WORDS=WORDS)
    assert golden.difference(rows, want) <= 1e-5 and "reopening it" in said
    assert stats["devices"][0]["provider"] == "plugin" and stats["replica_failures"] == 1
