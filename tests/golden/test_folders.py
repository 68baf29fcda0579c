# SPDX-License-Identifier: Apache-2.0
"""Every way a model folder can be saved gives sentence-transformers' vectors.

The folders and vectors are made by make_folders.py: poolings and their concatenation, Dense, LayerNorm
and Normalize, prompts in and out of pooling, lengths, F16, BF16, shards, old names, and every family (make_families.py).
"""
import json

import numpy
import pytest

import golden

FOLDERS = golden.HERE / "folders"
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))
RUNS = [(path.parent.name, index) for path in sorted(FOLDERS.glob("*/expected.json"))
        for index in range(len(json.loads(path.read_text())))]


@pytest.mark.parametrize("name, index", RUNS)
def test_folder(name, index, tmp_path):
    folder = FOLDERS / name
    run = json.loads((folder / "expected.json").read_text())[index]
    rows = golden.embed(folder, TEXTS, *run["flags"], work=tmp_path)
    assert golden.difference(rows, numpy.load(folder / run["vectors"])) <= 1e-5


def test_pooling_can_be_chosen(tmp_path):
    """--pooling puts another mode in the place of the folder's; the weights are the same."""
    rows = golden.embed(FOLDERS / "pooling-max", TEXTS, "--pooling", "cls", work=tmp_path)
    assert golden.difference(rows, numpy.load(FOLDERS / "pooling-cls/expected-0.npy")) <= 1e-5
