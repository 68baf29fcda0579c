# SPDX-License-Identifier: Apache-2.0
"""provider.precision=int8 keeps what it promises: near fp32 on the published models, and exact about itself.

The gates are on the difference between this program's own fp32 (which test_vectors.py holds to the reference) and
int8: cosine over 2,000 and more texts, Spearman on STS-B, nDCG@10 on Cranfield. Whole Cranfield and the large model are
marked `full`.
"""
import json
import os
import pathlib
import random
import subprocess

import numpy
import pytest

import golden

STSB = golden.DATA / "stsb-en-dev.jsonl"
CRANFIELD = golden.DATA / "cranfield-docs.jsonl"
MODELS = [pytest.param("FLETCH_MODEL", id="minilm"),
          pytest.param("FLETCH_MODEL_HIGH", id="mpnet", marks=pytest.mark.full)]
needs_data = pytest.mark.skipif(not STSB.exists() or not CRANFIELD.exists(), reason=f"no {STSB}: set FLETCH_TEST_DATA")


def folder_of(variable: str) -> pathlib.Path:
    if not os.environ.get(variable):
        pytest.skip(f"{variable} names no model folder")
    return pathlib.Path(os.environ[variable])


def lines(path: pathlib.Path) -> list:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def both(folder, texts, work):
    return (golden.embed(folder, texts, "--precision", "fp32", work=work),
            golden.embed(folder, texts, "--precision", "int8", work=work))


def spearman(rows: numpy.ndarray, scores: numpy.ndarray) -> float:
    def ranks(values):
        _, where, count = numpy.unique(values, return_inverse=True, return_counts=True)
        last = numpy.cumsum(count)
        return (last - (count - 1) / 2)[where]

    cosine = (rows[:len(scores)] * rows[len(scores):]).sum(axis=1)
    return 100 * numpy.corrcoef(ranks(cosine), ranks(scores))[0, 1]


def check_cosine(fp32: numpy.ndarray, int8: numpy.ndarray):
    cosine = (fp32 * int8).sum(axis=1)
    assert cosine.mean() >= 0.999, cosine.mean()
    assert cosine.min() >= 0.997, f"text {cosine.argmin()}: {cosine.min()}"
    assert cosine.mean() < 0.999999, "these are fp32's vectors"


@needs_data
@pytest.mark.parametrize("variable", MODELS)
def test_cosine_and_stsb(variable, tmp_path):
    folder, pairs = folder_of(variable), lines(STSB)
    scores = numpy.array([pair["score"] for pair in pairs])
    texts = [pair["a"] for pair in pairs] + [pair["b"] for pair in pairs]
    abstracts = [document["text"] or "" for document in lines(CRANFIELD)[::7]]
    fp32, int8 = both(folder, texts + abstracts, tmp_path)
    check_cosine(fp32, int8)
    pairs_only = slice(0, len(texts))
    assert spearman(fp32[pairs_only], scores) - spearman(int8[pairs_only], scores) <= 0.1


def ndcg(documents: numpy.ndarray, queries: numpy.ndarray) -> float:
    """Mean nDCG@10 × 100; query ids are their order in the file."""
    ids = [document["id"] for document in lines(CRANFIELD)]
    gains = {}
    for line in (golden.DATA / "cranfield-qrels.tsv").read_text().splitlines():
        query, document, gain = line.split()
        gains.setdefault(query, {})[document] = float(gain)
    order = numpy.argsort(-(queries @ documents.T), axis=1, kind="stable")[:, :10]
    discount = 1 / numpy.log2(numpy.arange(2, 12))
    found = []
    for row, query in enumerate(lines(golden.DATA / "cranfield-queries.jsonl")):
        gain = gains.get(query["id"])
        if gain:
            best = sorted(gain.values(), reverse=True)[:10]
            got = sum(gain.get(ids[place], 0) * weight for place, weight in zip(order[row], discount))
            found.append(got / (numpy.array(best) @ discount[:len(best)]))
    return 100 * float(numpy.mean(found))


@needs_data
@pytest.mark.full
@pytest.mark.parametrize("variable", MODELS)
def test_cranfield(variable, tmp_path):
    folder = folder_of(variable)
    documents = [document["text"] or "" for document in lines(CRANFIELD)]
    queries = [query["text"] for query in lines(golden.DATA / "cranfield-queries.jsonl")]
    fp32, int8 = both(folder, documents + queries, tmp_path)
    check_cosine(fp32, int8)
    cut = len(documents)
    exact, bytes_ = ndcg(fp32[:cut], fp32[cut:]), ndcg(int8[:cut], int8[cut:])
    assert bytes_ >= exact * 0.995, (exact, bytes_)


def test_same_text_same_bytes(tmp_path):
    """Whatever the batch, the order and the number of threads; a lone text too, which threads share."""
    folder, chance = folder_of("FLETCH_MODEL"), random.Random(8)
    texts = json.loads((golden.HERE / "vectors" / "texts.json").read_text(encoding="utf-8"))[:60]
    alone = golden.embed(folder, texts, "--precision", "int8", "--threads", "1", work=tmp_path)
    for threads in (1, 2, 3, 8):
        chosen = chance.choices(range(len(texts)), k=chance.randint(1, len(texts)))
        rows = golden.embed(folder, [texts[i] for i in chosen], "--precision", "int8", "--threads", threads,
                            work=tmp_path)
        assert rows.tobytes() == alone[chosen].tobytes(), f"{threads} threads, {len(chosen)} texts"
    for text in (0, 7, 31):
        rows = golden.embed(folder, [texts[text]], "--precision", "int8", "--threads", "3", work=tmp_path)
        assert rows.tobytes() == alone[text].tobytes(), f"text {text} alone"


def test_auto_is_fp32(tmp_path):
    folder, texts = folder_of("FLETCH_MODEL"), ["a text", "and another one"]
    rows = [golden.embed(folder, texts, "--precision", precision, work=tmp_path).tobytes()
            for precision in ("auto", "fp32", "int8")]
    assert rows[0] == rows[1] != rows[2]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_what_cannot_be_had_is_refused(precision):
    """Never silently another precision: an error that names it and what to use instead."""
    folder = folder_of("FLETCH_MODEL")
    done = subprocess.run([golden.BIN, "embed", "-m", folder, "--provider-order", "cpu", "--precision", precision, "text"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and done.stdout == ""
    assert precision in done.stderr and "fp32" in done.stderr, done.stderr
