# SPDX-License-Identifier: Apache-2.0
"""The examples do what their comments promise, with the real model."""
import json
import os
import pathlib

import house
import pytest

MODEL = os.environ.get("FLETCH_MODEL", "")
EXAMPLES = house.BUILD / "examples"
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("FLETCH_")}

pytestmark = pytest.mark.skipif(not pathlib.Path(MODEL, "model.safetensors").exists(),
                                reason="FLETCH_MODEL names no model folder (make model)")


def example(name, *arguments):
    return house.run(EXAMPLES / name, *arguments, env=ENVIRONMENT)


def test_embed_prints_a_vector_of_unit_length():
    result = example("embed", MODEL, "A cat sits on the mat.")
    assert result.returncode == 0, result.stderr
    vector = [float(word) for word in result.stdout.split()]
    assert len(vector) == 384
    assert abs(sum(x * x for x in vector) - 1) < 1e-5


def test_similarity_puts_the_answer_first():
    result = example("similarity", MODEL, "How do I get my money back?")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "refund" in lines[0] and "Biscuit" not in lines[1]
    scores = [float(line.split()[0]) for line in lines]
    assert scores == sorted(scores, reverse=True)


def test_rerank_puts_the_best_first():
    texts = ["sat on the mat", "the dog ran at sea", "it rained"]
    result = example("rerank", house.ROOT / "tests/golden/scores/bert", "the cat", *texts)
    assert result.returncode == 0, result.stderr
    rows = [line.split("  ", 1) for line in result.stdout.splitlines()]
    assert sorted(text for _, text in rows) == sorted(texts)
    scores = [float(score) for score, _ in rows]
    assert scores == sorted(scores, reverse=True) and 0 < scores[2] and scores[0] < 1
    result = example("rerank", MODEL, "the cat", *texts)
    assert result.returncode == 1 and "not a reranker" in result.stderr and not result.stdout


@pytest.mark.parametrize("count", [1, 4])
def test_threads_agree_to_the_byte(count):
    result = example("threads", MODEL, count)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{count} threads, {16 * count} texts, 0 vectors of the common text differ\n"


def test_gpu_optimization_runs_anywhere_and_leaves_a_trace(tmp_path):
    result = example("gpu_optimization", MODEL, tmp_path / "trace.json")
    assert result.returncode == 0, result.stderr
    lines = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert int(lines["texts"].split()[0]) >= 64 * 8 and lines["ran"].startswith("on")
    assert any(event["name"] == "forward" for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"])


def test_gpu_optimization_says_what_is_wrong(tmp_path):
    result = example("gpu_optimization", MODEL, tmp_path / "no" / "trace.json")
    assert result.returncode == 1 and "trace.json" in result.stderr and not result.stdout
    assert example("gpu_optimization").returncode == 2


@pytest.mark.parametrize("name, last", [("embed", "text"), ("similarity", "question"), ("threads", "2")])
def test_a_wrong_folder_is_a_message_and_status_1(name, last):
    result = example(name, "/nowhere/at/all", last)
    assert result.returncode == 1
    assert "/nowhere/at/all" in result.stderr and not result.stdout
