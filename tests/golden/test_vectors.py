# SPDX-License-Identifier: Apache-2.0
"""The published models give sentence-transformers' vectors, and the same text the same bytes.

The texts (1 to over 512 tokens, many scripts, empty, emoji) and vectors are made by make_vectors.py.
The large model's part is marked `full` and runs where FLETCH_MODEL_HIGH names its folder.
"""
import hashlib
import json
import os
import pathlib
import random

import numpy
import pytest

import golden

VECTORS = golden.HERE / "vectors"
TEXTS = json.loads((VECTORS / "texts.json").read_text(encoding="utf-8"))
MANIFEST = json.loads((VECTORS / "manifest.json").read_text())
STSB = golden.DATA / "stsb-en-dev.jsonl"

# name, variable of its folder, Spearman × 100 of sentence-transformers on STS-B dev
MODELS = [pytest.param("minilm", "FLETCH_MODEL", 86.716, id="minilm"),
          pytest.param("mpnet", "FLETCH_MODEL_HIGH", 88.109, id="mpnet", marks=pytest.mark.full)]


def folder_of(variable: str, name: str) -> pathlib.Path:
    """The model's folder, which must hold the very weights that the vectors were made with."""
    if not os.environ.get(variable):
        pytest.skip(f"{variable} names no model folder")
    folder = pathlib.Path(os.environ[variable])
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert digest == MANIFEST[name]["model.safetensors"]
    return folder


def ranks(values: numpy.ndarray) -> numpy.ndarray:
    """1-based ranks, ties sharing their mean."""
    _, where, count = numpy.unique(values, return_inverse=True, return_counts=True)
    last = numpy.cumsum(count)
    return (last - (count - 1) / 2)[where]


@pytest.mark.parametrize("name, variable, _", MODELS)
def test_vectors(name, variable, _, tmp_path):
    folder = folder_of(variable, name)
    rows, expected = golden.embed(folder, TEXTS, work=tmp_path), numpy.load(VECTORS / f"{name}.npy")
    assert numpy.abs(numpy.linalg.norm(rows, axis=1) - 1).max() < 1e-6
    worst = numpy.abs(rows - expected).max(axis=1)
    assert worst.max() <= 1e-5, f"text {worst.argmax()}: {worst.max()}"
    assert (rows * expected).sum(axis=1).min() >= 0.99999


@pytest.mark.parametrize("name, variable, spearman", MODELS)
@pytest.mark.skipif(not STSB.exists(), reason=f"no {STSB}: set FLETCH_TEST_DATA")
def test_stsb(name, variable, spearman, tmp_path):
    folder = folder_of(variable, name)
    pairs = [json.loads(line) for line in STSB.read_text(encoding="utf-8").splitlines()]
    rows = golden.embed(folder, [p["a"] for p in pairs] + [p["b"] for p in pairs], work=tmp_path)
    cosine = (rows[:len(pairs)] * rows[len(pairs):]).sum(axis=1)
    scores = numpy.array([p["score"] for p in pairs])
    found = 100 * numpy.corrcoef(ranks(cosine), ranks(scores))[0, 1]
    assert abs(found - spearman) <= 0.01, found


@pytest.mark.parametrize("name, variable, _", MODELS)
def test_same_text_same_bytes(name, variable, _, tmp_path):
    """Whatever the batch, the order and the number of threads."""
    folder, chance = folder_of(variable, name), random.Random(20)
    texts = TEXTS if name == "minilm" else TEXTS[:40]
    alone = golden.embed(folder, texts, "--threads", "1", work=tmp_path)
    for threads in range(1, 9):
        chosen = chance.choices(range(len(texts)), k=chance.randint(1, len(texts)))
        chance.shuffle(chosen)
        rows = golden.embed(folder, [texts[i] for i in chosen], "--threads", threads, work=tmp_path)
        assert rows.tobytes() == alone[chosen].tobytes(), f"{threads} threads, {len(chosen)} texts"


def test_lone_text_same_bytes(tmp_path):
    """A request of one text is split over the threads; a batch is not."""
    folder = folder_of("FLETCH_MODEL", "minilm")
    batch = golden.embed(folder, TEXTS, work=tmp_path)
    for text in range(0, len(TEXTS), 9):
        for threads in (1, 2, 3, 8):
            alone = golden.embed(folder, [TEXTS[text]], "--threads", threads, work=tmp_path)
            assert alone.tobytes() == batch[text].tobytes(), f"text {text}, {threads} threads"
