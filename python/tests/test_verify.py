# SPDX-License-Identifier: Apache-2.0
"""python -m fletch.verify: vectors in Parquet against the model. The vectors of stored() are the reference implementation's."""
import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

from fletch import job, verify  # noqa: E402

TOY = ROOT / "tests/golden/folders/plain-bert"
TEXTS = json.loads((ROOT / "tests/golden/folders/texts.json").read_text(encoding="utf-8"))


def reference():
    return np.load(TOY / "expected-0.npy").astype(np.float32)


def stored(path, texts=TEXTS, rows=None, name="embedding", kind=pa.float32(), metadata=None, **columns):
    rows = reference() if rows is None else rows
    table = {name: pa.array([None if row is None else list(map(float, row)) for row in rows], pa.list_(kind)), **columns}
    if texts is not None:
        table["text"] = pa.array(texts, pa.string())
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(table).replace_schema_metadata(metadata), path)
    return path


def ask(capsys, *arguments):
    code = verify.main([*map(str, arguments), "-m", str(TOY), "--format", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else err


@pytest.mark.parametrize("kind, name", [(pa.float32(), "embedding"), (pa.float64(), "vector")])
def test_texts_beside_their_vectors(tmp_path, capsys, kind, name):
    code, said = ask(capsys, stored(tmp_path / "a.parquet", kind=kind, name=name))
    assert code == 0 and said["verdict"] in ("same space", "same bytes") and said["vectors"] == said["rows"] == 18
    assert said["largest_difference"] < 1e-5 and said["differs"] == []
    code, said = ask(capsys, stored(tmp_path / "b.parquet", rows=reference()[::-1]))
    assert code == 1 and said["verdict"] == "another space"


def test_a_folder_with_nulls_and_texts_elsewhere(tmp_path, capsys):
    rows = list(reference())
    rows[4] = None
    stored(tmp_path / "v/1.parquet", TEXTS[:9], rows[:9])
    stored(tmp_path / "v/2.parquet", [*TEXTS[9:17], None], rows[9:])
    code, said = ask(capsys, tmp_path / "v")
    assert code == 0 and (said["vectors"], said["rows"], said["left_out"]) == (16, 18, 2)
    stored(tmp_path / "w/1.parquet", None, rows[:9])
    stored(tmp_path / "w/2.parquet", None, rows[9:])
    pq.write_table(pa.table({"body": TEXTS}), tmp_path / "texts.parquet")
    code, said = ask(capsys, tmp_path / "w", "--texts", tmp_path / "texts.parquet", "--column", "body")
    assert code == 0 and said["vectors"] == 17
    pq.write_table(pa.table({"body": TEXTS[:10]}), tmp_path / "texts.parquet")
    assert "more vectors than there are texts (10)" in ask(capsys, tmp_path / "w", "--texts", tmp_path / "texts.parquet", "--column", "body")[1]
    pq.write_table(pa.table({"body": TEXTS * 2}), tmp_path / "texts.parquet")
    assert "there are more texts" in ask(capsys, tmp_path / "w", "--texts", tmp_path / "texts.parquet", "--column", "body")[1]


def test_the_folder_of_a_job(tmp_path, capsys):
    """It has no texts and knows its inputs; its files name the vector id."""
    pq.write_table(pa.table({"body": TEXTS, "id": list(range(18))}), tmp_path / "in.parquet", row_group_size=5)
    job.run(tmp_path / "in.parquet", tmp_path / "out", column="body", id="id", model=str(TOY), split_rows=5)
    code, said = ask(capsys, tmp_path / "out", "--exact")
    assert code == 0 and said["verdict"] == "same bytes" and said["vectors"] == 18 and said["differs"] == []
    (tmp_path / "in.parquet").unlink()
    assert ask(capsys, tmp_path / "out")[0] == 3
    job_json = tmp_path / "out/job.json"
    job_json.unlink()
    assert "--texts" in ask(capsys, tmp_path / "out")[1]


def test_ids_of_the_files(tmp_path, capsys):
    stored(tmp_path / "v/1.parquet", TEXTS, metadata={"fletch.vector_id": "a" * 64})
    code, said = ask(capsys, tmp_path / "v")
    assert code == 0 and said["differs"][0]["name"] == "vector_id" and said["differs"][0]["there"] == "a" * 64
    stored(tmp_path / "v/2.parquet", TEXTS, metadata={"fletch.vector_id": "b" * 64})
    code, said = ask(capsys, tmp_path / "v")
    assert code == 3 and "vectors of two kinds" in said


def test_a_sample_is_spread(tmp_path, capsys):
    rows, texts = np.tile(reference(), (50, 1)), TEXTS * 50
    rows[600:] = reference()[0] + 1
    code, said = ask(capsys, stored(tmp_path / "a.parquet", texts, rows), "--sample", 20)
    assert code == 1 and 10 < said["vectors"] <= 20 and said["rows"] == 900
    code, said = ask(capsys, tmp_path / "a.parquet", "--sample", 10, "--column", "text")
    assert code == 1 and 5 < said["vectors"] <= 10
    kept = verify.read(tmp_path / "a.parquet", sample=20)
    assert kept.texts[:10] == texts[:10] and 10 < len(kept.texts) <= 20


@pytest.mark.parametrize("change, message", [
    (lambda rows: rows.__setitem__(5, rows[5][:-1]), "row 6 has 31 numbers where earlier rows have 32"),
    (lambda rows: rows.__setitem__(5, [float("nan")] * 32), "row 6 holds a value that is not a float32 number")])
def test_damaged_rows_are_named(tmp_path, capsys, change, message):
    rows = reference().tolist()
    change(rows)
    code, said = ask(capsys, stored(tmp_path / "a.parquet", rows=rows))
    assert code == 3 and message in said, said


def test_what_cannot_be_read(tmp_path, capsys):
    whole = stored(tmp_path / "a.parquet").read_bytes()
    for content in (b"", b"PAR1", whole[:-20], whole[:200] + whole[220:]):
        (tmp_path / "b.parquet").write_bytes(content)
        assert ask(capsys, tmp_path / "b.parquet")[0] == 3
    assert ask(capsys, tmp_path / "nowhere")[0] == 3
    assert "can be compared" in ask(capsys, stored(tmp_path / "c.parquet", rows=np.ones((18, 3)), kind=pa.int8()))[1]
    assert "name it with --vectors" in ask(capsys, stored(tmp_path / "d.parquet", name="other"))[1]
    assert "no rows" in ask(capsys, stored(tmp_path / "e.parquet", [], []))[1]
    assert ask(capsys, tmp_path / "c.parquet", "--sample", "-1")[0] == 2
    assert verify.main([str(tmp_path / "a.parquet"), "-m", str(tmp_path / "nowhere")]) == 3


def test_as_a_program(tmp_path):
    done = subprocess.run([sys.executable, "-m", "fletch.verify", stored(tmp_path / "a.parquet"), "-m", TOY], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("same "), done.stderr
