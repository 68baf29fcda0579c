# SPDX-License-Identifier: Apache-2.0
"""test_e5.py - multilingual-e5-small: a BERT encoder with XLM-R's tokenizer, on real sentences of five languages.

What must never break: the rank correlation with people's judgement on 400 pairs of STS-B dev, measured for this model with
sentence-transformers 6.2, within 0.01. Wrong ids here and there would spoil it in one language and not in another.
Needs: fletch (FLETCH_BIN), FLETCH_E5 (default .cache/models/multilingual-e5-small), FLETCH_TEST_DATA; skipped without either.
"""
import json
import os
import pathlib
import subprocess

import pytest

numpy = pytest.importorskip("numpy", reason="the package numpy is not installed")

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = os.environ.get("FLETCH_BIN", ROOT / "build" / "fletch")
E5 = pathlib.Path(os.environ.get("FLETCH_E5", ROOT / ".cache" / "models" / "multilingual-e5-small"))
DATA = pathlib.Path(os.environ.get("FLETCH_TEST_DATA", ROOT.parent / "shared" / "data"))
REFERENCE = {"en": 0.9007, "de": 0.8781, "zh": 0.8503, "ja": 0.8399, "ru": 0.8714}
PAIRS = 400

if not (E5 / "model.safetensors").is_file():
    pytest.skip(f"{E5} is not there (FLETCH_E5)", allow_module_level=True)


def ranks(values):
    """Average ranks, as Spearman's correlation wants them."""
    _, inverse, counts = numpy.unique(values, return_inverse=True, return_counts=True)
    ends = numpy.cumsum(counts)
    return (ends - (counts - 1) / 2)[inverse]


@pytest.mark.parametrize("language", REFERENCE)
def test_rank_correlation(language, tmp_path):
    path = DATA / f"stsb-{language}-dev.jsonl"
    if not path.is_file():
        pytest.skip(f"{path} is not there (FLETCH_TEST_DATA)")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[:PAIRS]]
    out = tmp_path / "rows.npy"
    texts = "\n".join(json.dumps("query: " + text) for text in [row["a"] for row in rows] + [row["b"] for row in rows])
    subprocess.run([BIN, "embed", "--model", E5, "--offline", "--input-format", "jsonl", "--format", "npy", "--output", out],
                   input=texts.encode(), check=True, capture_output=True)
    vectors = numpy.load(out)
    cosine = (vectors[:PAIRS] * vectors[PAIRS:]).sum(axis=1)
    found = numpy.corrcoef(ranks(cosine), ranks([row["score"] for row in rows]))[0, 1]
    assert abs(found - REFERENCE[language]) < 0.01, found
