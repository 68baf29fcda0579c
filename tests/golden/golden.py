# SPDX-License-Identifier: Apache-2.0
"""golden.py - what the golden tests share: where things lie, and running `fletch embed` on texts."""
import json
import os
import pathlib
import subprocess
import time

import numpy
import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("FLETCH_BUILD", ROOT / "build"))
BIN = pathlib.Path(os.environ.get("FLETCH_BIN", BUILD / "fletch"))
DATA = pathlib.Path(os.environ.get("FLETCH_TEST_DATA", ROOT / "../shared/data"))

# Folders, by the first letters of their names, whose models ONNX Runtime's graph has no operators for: it refuses them.
NO_GRAPH = ("family-nomic-moe", "family-jina-qk", "family-jina3-tasks", "family-jina5", "family-lfm2", "family-qwen3-longrope", "family-static", "router-dense", "family-nvembed", "family-gpt-neox")


def settle(folder: pathlib.Path) -> None:
    """Until its files are so old that a change would show in their times: packed weights of younger ones are not kept."""
    newest = max(path.stat().st_ctime for path in folder.rglob("*"))
    while time.time() < newest + 2.1:
        time.sleep(0.05)


def embed(folder, texts, *flags, work: pathlib.Path, environment: dict = os.environ) -> numpy.ndarray:
    """The rows that the program writes for the texts; it must succeed."""
    source, result = work / "texts.jsonl", work / "rows.npy"
    source.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    command = [BIN, "embed", "-m", folder, "-i", source, "--input-format", "jsonl",
               "--format", "npy", "-o", result, *flags]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    rows = numpy.load(result)
    result.unlink()
    assert rows.dtype == numpy.float32 and len(rows) == len(texts)
    return rows


def difference(rows: numpy.ndarray, expected: numpy.ndarray) -> float:
    """max |Δ| of rows as parts of a unit vector: a row of length 5 may be off five times as far."""
    assert rows.shape == expected.shape
    scale = numpy.maximum(numpy.linalg.norm(expected, axis=1, keepdims=True), 1)
    return float((numpy.abs(rows - expected) / scale).max())
