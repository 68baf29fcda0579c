# SPDX-License-Identifier: Apache-2.0
"""--output-kind: lists read back to the same numbers in every format that can hold them."""
import io
import json
import zipfile

import commandline
import numpy as np

SPARSE = commandline.ROOT / "tests/golden/folders/sparse-bert"
TEXTS = ["A cat sits on the mat.", "", "Stocks fell sharply."]


def test_tokens_in_json_and_in_arrays_are_the_same(embed, tmp_path):
    rows = embed.rows("embed", "--output-kind", "tokens", *TEXTS)
    assert [list(row) for row in rows] == [["index", "tokens", "ids", "embeddings", "truncated"]] * 3
    assert rows[0]["tokens"][:3] == ["[CLS]", "a", "cat"] and rows[0]["ids"][:2] == [101, 1037]
    assert rows[1]["tokens"] == ["[CLS]", "[SEP]"]
    assert embed("embed", "--output-kind", "tokens", "-o", "out.npz", *TEXTS).returncode == 0
    with np.load(tmp_path / "out.npz") as found:
        assert {k: v.dtype.str for k, v in found.items()} == {"embeddings": "<f4", "ids": "<i4", "offsets": "<i8"}
        assert found["offsets"].tolist() == np.cumsum([0] + [len(row["ids"]) for row in rows]).tolist()
        assert found["ids"].tolist() == sum((row["ids"] for row in rows), [])
        want = np.concatenate([np.array(row["embeddings"], dtype=np.float32) for row in rows])
        assert found["embeddings"].tobytes() == want.tobytes()
    assert zipfile.ZipFile(tmp_path / "out.npz").testzip() is None
    piped = embed("embed", "--output-kind", "tokens", "--format", "npz", *TEXTS)  # through a spool
    assert piped.stdout == (tmp_path / "out.npz").read_bytes()
    whole = json.loads(embed("embed", "--output-kind", "tokens", "--format", "json", *TEXTS).stdout)
    assert whole == rows
    assert b"[CLS]" in embed("embed", "--output-kind", "tokens", "--format", "text", TEXTS[0]).stdout


def test_many_texts_are_those_one_by_one(embed, tmp_path):
    """More text than one call takes (cmd_embed.c, LIST_BYTES), in input order; fields are passed on."""
    lines = [json.dumps({"text": f"text {i} " + "word " * (i % 90), "id": i, "ids": 1}) for i in range(700)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    flags = ("embed", "--output-kind", "tokens", "-i", "in.jsonl", "--keep-fields", "--max-length", 6)
    rows = embed.rows(*flags)
    assert [row["id"] for row in rows] == list(range(700)) and len(rows[5]["ids"]) == 6
    assert rows[0]["truncated"] is False and rows[5]["truncated"] is True
    assert rows[13]["embeddings"] == embed.rows("embed", "--output-kind", "tokens", "--max-length", 6,
                                                "text 13 " + "word " * 13)[0]["embeddings"]


def test_no_text_gives_empty_arrays(embed, tmp_path):
    assert embed("embed", "--output-kind", "tokens", "-i", "-", "-o", "out.npz").returncode == 0
    with np.load(tmp_path / "out.npz") as found:
        assert found["embeddings"].shape == (0, 384) and found["offsets"].tolist() == [0]


def test_a_refused_text_and_an_interrupted_run_leave_whole_arrays(embed):
    result = embed("embed", "--output-kind", "tokens", "--format", "npz", "--partial", "-i", "-", input=b"a\n\xff\nb\n")
    assert result.returncode == 1 or result.returncode == 2
    assert np.load(io.BytesIO(result.stdout))["offsets"].tolist() == [0, 3]


def test_sparse_in_json_and_in_arrays_are_the_same(fletch, tmp_path):
    flags = ("embed", "-m", SPARSE, "--output-kind", "sparse", *TEXTS)
    rows = fletch.rows(*flags, model=False)
    assert [list(row) for row in rows] == [["index", "indices", "values", "tokens", "truncated"]] * 3
    assert fletch(*flags, "-o", "out.npz", model=False).returncode == 0
    with np.load(tmp_path / "out.npz") as found:
        assert set(found) == {"data", "indices", "indptr", "shape", "format"}
        assert found["shape"].tolist() == [3, 122] and found["format"].item() == b"csr"
        assert found["indptr"].tolist() == np.cumsum([0] + [len(row["indices"]) for row in rows]).tolist()
        assert found["indices"].tolist() == sum((row["indices"] for row in rows), [])
        assert found["data"].tobytes() == np.array(sum((row["values"] for row in rows), []), dtype=np.float32).tobytes()
    assert zipfile.ZipFile(tmp_path / "out.npz").testzip() is None
    text = fletch(*flags[:-2], "--format", "text", "--top-k", "2", model=False).stdout.decode()
    assert "2 of 122 dimensions" in text
    for wrong in (("--top-k", "0"), ("--top-k", "x"), ("--threshold", "-1"), ("--threshold", "nan")):
        assert fletch(*flags, *wrong, model=False).returncode == 2
    assert fletch("embed", "-m", SPARSE, "--top-k", "2", "a", model=False).returncode == 2
    cut = fletch(*flags, "--model-dimensions", "8", model=False)
    assert cut.returncode == 2 and b"sparse vectors over its vocabulary" in cut.stderr


def test_what_cannot_be_together_is_said(embed):
    for flags, words in ((("--similarity",), "--similarity"), (("--dtype", "int8"), "--dtype"),
                         (("--format", "npy"), "npz"), (("--format", "raw"), "npz")):
        result = embed("embed", "--output-kind", "tokens", *flags, "a")
        assert result.returncode == 2 and words in result.stderr.decode()
