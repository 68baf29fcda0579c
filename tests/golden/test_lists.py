# SPDX-License-Identifier: Apache-2.0
"""Results that are lists are sentence-transformers': vectors of tokens, sparse vectors (make_lists.py)."""
import json
import shutil
import subprocess

import numpy
import pytest

import golden

FOLDERS = golden.HERE / "folders"
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))[:12]
TOKENS = sorted(path.parent.name for path in FOLDERS.glob("*/tokens.npz"))
SPARSE = sorted(path.parent.name for path in FOLDERS.glob("*/sparse.npz"))


def run(folder, texts, kind, work, *flags):
    source, result = work / "texts.jsonl", work / "lists.npz"
    source.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    done = subprocess.run([golden.BIN, "embed", "-m", folder, "--output-kind", kind, "-i", source, "-o", result, *flags],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return numpy.load(result)


@pytest.mark.parametrize("name", TOKENS)
def test_tokens(name, tmp_path):
    want, got = numpy.load(FOLDERS / name / "tokens.npz"), run(FOLDERS / name, TEXTS, "tokens", tmp_path)
    assert got["offsets"].tolist() == want["offsets"].tolist()
    assert golden.difference(got["embeddings"], want["embeddings"]) <= 1e-5


def test_tokens_alone_are_those_in_company(tmp_path):
    got = run(FOLDERS / "pooling-cls", TEXTS, "tokens", tmp_path)
    for i in (0, 6, 11):
        alone = run(FOLDERS / "pooling-cls", TEXTS[i:i + 1], "tokens", tmp_path)
        span = slice(got["offsets"][i], got["offsets"][i + 1])
        assert alone["ids"].tolist() == got["ids"][span].tolist()
        assert alone["embeddings"].tobytes() == got["embeddings"][span].tobytes()


def test_a_static_model_has_no_vectors_of_tokens(tmp_path):
    done = subprocess.run([golden.BIN, "embed", "-m", FOLDERS / "family-static", "--output-kind", "tokens", "a"],
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "static" in done.stderr


def sparse(name, texts, work, *flags):
    """The dense rows of a CSR matrix, its facts checked."""
    plain = ("--pooling", "splade") if name == "sparse-plain" else ()
    found = run(FOLDERS / name, texts, "sparse", work, *plain, *flags)
    rows = numpy.zeros(found["shape"], dtype=numpy.float32)
    assert found["format"].item() == b"csr" and len(rows) == len(texts)
    for i, (first, last) in enumerate(zip(found["indptr"], found["indptr"][1:])):
        ids = found["indices"][first:last]
        assert (numpy.diff(ids) > 0).all()
        rows[i, ids] = found["data"][first:last]
    assert (found["data"] > 0).all()
    return rows


@pytest.mark.parametrize("precision, least", [("int16", 0.9999), ("int8", 0.99)])
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_in_integers(name, precision, least, tmp_path):
    texts = [text for text in TEXTS if text.strip()]
    known = subprocess.run([golden.BIN, "model", "id", "-m", FOLDERS / name, "--provider-precision", precision],
                           capture_output=True, text=True, check=False)
    if f"kernels have no {precision}" in known.stderr:
        pytest.skip(known.stderr)
    want = sparse(name, texts, tmp_path, "--precision", "fp32")
    got = sparse(name, texts, tmp_path, "--precision", precision)
    cosine = (got * want).sum(axis=1) / numpy.linalg.norm(got, axis=1) / numpy.linalg.norm(want, axis=1)
    assert cosine.min() >= least and not numpy.array_equal(got, want), cosine


@pytest.mark.parametrize("name", SPARSE)
def test_sparse(name, tmp_path):
    want = numpy.load(FOLDERS / name / "sparse.npz")["rows"]
    rows = sparse(name, TEXTS, tmp_path)
    assert rows.shape == want.shape and numpy.abs(rows - want).max() <= 1e-5
    few = sparse(name, TEXTS, tmp_path, "--threads", "3")  # texts shared by all threads
    assert few.tobytes() == rows.tobytes()
    for i in (2, 6, 11):
        assert sparse(name, TEXTS[i:i + 1], tmp_path).tobytes() == rows[i:i + 1].tobytes()


def test_sparse_of_one_long_text_is_that_of_the_reference_kernels(tmp_path, monkeypatch):
    text = [" ".join(TEXTS)]
    rows = sparse("sparse-bert", text, tmp_path, "--threads", "4")
    monkeypatch.setenv("FLETCH_CPU_ISA", "ref")
    assert numpy.abs(sparse("sparse-bert", text, tmp_path) - rows).max() <= 1e-5


def test_a_head_wider_than_the_layers_is_refused(tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(FOLDERS / "sparse-electra", copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").unlink()
    (copy / "config.json").write_text(json.dumps(config | {"embedding_size": 40}))
    done = subprocess.run([golden.BIN, "embed", "-m", copy, "--output-kind", "sparse", "a"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 3 and "wider (40) than the layers (32)" in done.stderr, done.stderr


def test_light_weights_are_left_out(tmp_path):
    whole = sparse("sparse-bert", TEXTS, tmp_path)
    heavy = sparse("sparse-bert", TEXTS, tmp_path, "--threshold", "0.5")
    assert (heavy == numpy.where(whole >= 0.5, whole, 0)).all() and (heavy > 0).any()
    top = sparse("sparse-bert", TEXTS, tmp_path, "--top-k", "3")
    assert ((top > 0).sum(axis=1) == 3).all() and ((top == whole) | (top == 0)).all()
    assert (top.max(axis=1) == whole.max(axis=1)).all()
    assert (numpy.sort(whole, axis=1)[:, -3] == numpy.where(top > 0, top, numpy.inf).min(axis=1)).all()


@pytest.mark.parametrize("name, flags, words", [
    ("sparse-bert", ("--output-kind", "dense"), "--output-kind sparse"),
    ("sparse-bert", ("--output-kind", "tokens"), "--output-kind sparse"),
    ("sparse-bert", ("--output-kind", "sparse", "--pooling", "mean"), "only splade"),
    ("plain-bert", ("--output-kind", "sparse"), "SpladePooling"),
    ("plain-bert", ("--output-kind", "sparse", "--pooling", "splade"), "cls.predictions"),
    ("family-qwen3", ("--output-kind", "sparse", "--pooling", "splade"), "splade"),
])
def test_a_kind_that_the_folder_has_not_is_refused(name, flags, words):
    done = subprocess.run([golden.BIN, "embed", "-m", FOLDERS / name, *flags, "a"], capture_output=True, text=True,
                          check=False)
    assert done.returncode != 0 and words in done.stderr, done.stderr


@pytest.mark.parametrize("file, old, new", [
    ("1_SpladePooling/config.json", '"max"', '"sum"'),
    ("1_SpladePooling/config.json", '"relu"', '"gelu"'),
    ("sentence_bert_config.json", "fill-mask", "feature-extraction"),
    ("modules.json", "splade_pooling.SpladePooling", "splade_pooling.OtherPooling"),
])
def test_other_sparse_models_are_refused(file, old, new, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(FOLDERS / "sparse-bert", copy)
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new))
    done = subprocess.run([golden.BIN, "embed", "-m", copy, "--output-kind", "sparse", "a"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 3 and "support" in done.stderr, done.stderr
