# SPDX-License-Identifier: Apache-2.0
"""Every way a model folder can be saved gives sentence-transformers' vectors.

The folders and vectors are made by make_folders.py: poolings and their concatenation, Dense, LayerNorm
and Normalize, prompts in and out of pooling, lengths, F16, BF16, shards, old names, and every family (make_families.py).
"""
import json
import shutil

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


def test_instructor_pools_its_texts_alone(tmp_path):
    """sentence-transformers knows it by the repository's name; its files do not say so."""
    texts = [text for text in TEXTS if text.strip()]
    plain = tmp_path / "plain"
    shutil.copytree(FOLDERS / "family-t5", plain)
    cache, commit = tmp_path / "hub/models--hkunlp--instructor-base", "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(plain, cache / "snapshots" / commit)
    (cache / "refs").mkdir()
    (cache / "refs/main").write_text(commit)
    flags, environment = ("--prompt", "the sea: "), {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    pooling = json.loads((plain / "1_Pooling/config.json").read_text())
    whole = golden.embed(plain, texts, *flags, work=tmp_path)
    (plain / "1_Pooling/config.json").write_text(json.dumps(pooling | {"include_prompt": False}))
    alone = golden.embed(plain, texts, *flags, work=tmp_path)
    known = golden.embed("hkunlp/instructor-base", texts, *flags, work=tmp_path, environment=environment)
    assert numpy.array_equal(known, alone) and not numpy.array_equal(known, whole)


def test_pooling_can_be_chosen(tmp_path):
    """--pooling puts another mode in the place of the folder's; the weights are the same."""
    rows = golden.embed(FOLDERS / "pooling-max", TEXTS, "--pooling", "cls", work=tmp_path)
    assert golden.difference(rows, numpy.load(FOLDERS / "pooling-cls/expected-0.npy")) <= 1e-5
