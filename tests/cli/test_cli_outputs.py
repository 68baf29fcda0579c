# SPDX-License-Identifier: Apache-2.0
"""--outputs: FlagEmbedding's values in one object a text, the numbers of the runs for one kind, and what it does not go with."""
import json

import commandline
import numpy as np
import pytest

M3 = commandline.ROOT / "tests/golden/token_heads/bge-m3"
TEXTS = json.loads((M3.parent / "texts.json").read_text(encoding="utf-8"))
WANT = np.load(M3 / "expected.npz")
ALL = "sparse,dense,dense:8:int8,dense:ubinary,tokens,colbert"


@pytest.fixture(name="run")
def run_(fletch, tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text, "id": i, "outputs": 0}) + "\n" for i, text in enumerate(TEXTS)))

    def run(*flags, rows=True):
        call = ("embed", "-m", M3, "-i", "in.jsonl", *flags)
        return fletch.rows(*call, model=False) if rows else fletch(*call, model=False)
    return run


def test_one_object_a_text(run):
    rows = run("--outputs", ALL)
    assert [list(row) for row in rows] == [["index", "embedding", "outputs", "tokens", "truncated"]] * len(TEXTS)
    assert np.abs(np.array([row["embedding"] for row in rows]) - WANT["rows"]).max() <= 1e-5
    outputs = {name: [row["outputs"][name] for row in rows] for name in ALL.split(",") if name != "dense"}
    assert list(rows[0]["outputs"]) == list(outputs)
    assert sum((one["indices"] for one in outputs["sparse"]), []) == WANT["ids"].tolist()
    assert np.abs(np.concatenate([one["values"] for one in outputs["sparse"]]) - WANT["weights"]).max() <= 1e-5
    assert np.abs(np.concatenate([np.reshape(one, (-1, 32)) for one in outputs["colbert"]]) - WANT["vectors"]).max() <= 1e-5
    alone = run("--output-kind", "sparse")
    assert outputs["sparse"] == [{"indices": row["indices"], "values": row["values"]} for row in alone]
    assert outputs["tokens"] == [row["embeddings"] for row in run("--output-kind", "tokens")]
    assert outputs["dense:8:int8"] == [row["embedding"] for row in run("--dtype", "int8", "--dimensions", "8")]
    assert outputs["dense:ubinary"] == [row["embedding"] for row in run("--dtype", "ubinary")]


def test_what_goes_with_it(run):
    kept, top = run("--outputs", "dense,sparse", "--keep-fields")[1], run("--outputs", "dense,sparse", "--top-k", "1")[1]
    assert list(kept) == ["index", "embedding", "outputs", "tokens", "truncated", "id"] and kept["id"] == 1
    assert len(kept["outputs"]["sparse"]["values"]) > len(top["outputs"]["sparse"]["values"]) == 1
    assert "embedding" not in run("--outputs", "sparse,tokens")[0]
    assert run("--outputs", "dense:8,dense", "--dtype", "int8")[0]["outputs"]["dense"] == run("--dtype", "int8")[0]["embedding"]
    assert run("--outputs", "dense", "--dimensions", "8")[0]["embedding"] == run("--dimensions", "8")[0]["embedding"]
    assert json.loads(run("--outputs", ALL, "--format", "json", rows=False).stdout) == run("--outputs", ALL)


def test_many_texts_are_those_one_by_one(run, fletch, tmp_path):
    lines = [f"the cat sat {i} " + "one two " * (i % 90) for i in range(700)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = run("--outputs", "dense:8,sparse,colbert")
    assert [row["index"] for row in rows] == list(range(700)) and rows[89]["truncated"]
    for i in (0, 89, 699):
        one = fletch.rows("embed", "-m", M3, "--outputs", "dense:8,sparse,colbert", lines[i], model=False)[0]
        assert one["outputs"] == rows[i]["outputs"] and one["embedding"] == rows[i]["embedding"]


def test_a_text_that_is_too_long_is_refused_alone(run):
    done = run("--outputs", "dense,sparse", "--truncate", "error", "--on-error", "skip", rows=False)
    assert done.returncode == 4 and [json.loads(line)["index"] for line in done.stdout.splitlines()] == list(range(len(TEXTS) - 1))


@pytest.mark.parametrize("flags, words", [
    (("dence",), b'unknown output "dence"'), (("",), b'unknown output ""'), (("dense,",), b'unknown output ""'), (("dense,sparse,dense",), b"names dense twice"),
    (("dense:33",), b"32 dimensions"), ((",".join(f"dense:{i}" for i in range(1, 18)),), b"at most 16"),
    (("dense", "--output-kind", "sparse"), b"excludes --output-kind"), (("dense", "--similarity"), b"--similarity"),
    (("dense", "--dtype", "float16"), b"not support float16"), (("dense", "--top-k", "3"), b"sparse among --outputs"),
    (("dense", "--format", "npz"), b"json or jsonl"), (("dense", "-o", "out.npy"), b"json or jsonl")])
def test_wrong_usage_is_named(run, flags, words):
    done = run("--outputs", *flags, rows=False)
    assert done.returncode == 2 and words in done.stderr and not done.stdout


@pytest.mark.parametrize("folder, outputs, words", [("folders/plain-bert", "dense,sparse", b"no sparse vectors"), ("folders/plain-bert", "colbert", b"colbert_linear"),
                                                    ("scores/bert", "dense,tokens", b"scores")])
def test_what_a_model_has_not_is_named(fletch, folder, outputs, words):
    done = fletch("embed", "-m", commandline.ROOT / "tests/golden" / folder, "--outputs", outputs, "the cat", model=False)
    assert done.returncode == 3 and words in done.stderr and not done.stdout
