# SPDX-License-Identifier: Apache-2.0
"""Results that are lists are sentence-transformers': vectors of tokens (make_lists.py)."""
import json
import subprocess

import numpy
import pytest

import golden

FOLDERS = golden.HERE / "folders"
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))[:12]
TOKENS = sorted(path.parent.name for path in FOLDERS.glob("*/tokens.npz"))


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
