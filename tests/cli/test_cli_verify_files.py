# SPDX-License-Identifier: Apache-2.0
"""verify of what people have: files of vectors, exports, dumps, databases, jobs. The vectors of the files in
tests/golden/stored and of reference() are the reference implementation's."""
import io
import json
import os
import shutil
import sqlite3
import struct

import commandline
import numpy
import pytest

GOLDEN = commandline.ROOT / "tests/golden"
PLAIN = GOLDEN / "folders/plain-bert"
STORED = GOLDEN / "stored"
TEXTS = json.loads((GOLDEN / "folders/texts.json").read_text(encoding="utf-8"))


def reference() -> numpy.ndarray:
    return numpy.load(PLAIN / "expected-0.npy").astype("<f4")


def verify(fletch, name, *flags, model=PLAIN):
    done = fletch("verify", "-q", "--format", "json", "-m", model, name, *flags)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr.decode()


def is_same_space(fletch, name, *flags, vectors=len(TEXTS)):
    code, said = verify(fletch, name, *flags)
    assert code == 0, said
    assert said["verdict"] in ("same space", "same bytes") and said["vectors"] == vectors, said
    assert said["largest_difference"] < 1e-5
    return said


def write(fletch, name, content) -> str:
    (fletch.tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


def write_npy(fletch, name="v.npy", rows=None, **arrays) -> str:
    out = io.BytesIO()
    rows = reference() if rows is None else rows
    numpy.savez(out, **arrays) if arrays else numpy.save(out, rows)
    write(fletch, "t.jsonl", "".join(json.dumps(text) + "\n" for text in TEXTS))
    return write(fletch, name, out.getvalue())


def records(rows=None, field="vector") -> list[dict]:
    return [{"text": text, "n": i, field: [float(str(x)) for x in row]} for i, (text, row) in enumerate(zip(TEXTS, reference()))]


# ---- What is read ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_npy_with_its_texts(fletch, dtype):
    said = is_same_space(fletch, write_npy(fletch, rows=reference().astype(dtype)), "-i", "t.jsonl")
    assert said["rows"] == 18 and said["differs"] == []
    turned = verify(fletch, write_npy(fletch, rows=reference()[::-1].copy()), "-i", "t.jsonl")
    assert turned[0] == 1 and turned[1]["verdict"] == "another space"


def test_npz_takes_the_array_of_vectors(fletch):
    name = write_npy(fletch, "v.npz", ids=numpy.arange(18), vectors=reference(), other=reference()[::-1])
    is_same_space(fletch, name, "-i", "t.jsonl")
    assert verify(fletch, name, "-i", "t.jsonl", "--vector-field", "other")[0] == 1
    assert verify(fletch, name, "-i", "t.jsonl", "--vector-field", "none") == (3, "fletch: v.npz has no array named none\n")
    is_same_space(fletch, write_npy(fletch, "v.npz", anything=reference()), "-i", "t.jsonl")


def test_what_embed_writes(fletch):
    write_npy(fletch)
    for name in ("o.npy", "o.npz", "o.jsonl", "o.json"):
        numbers = name[2:4] == "np"
        keep = () if numbers else ("--keep-text",)
        assert fletch("embed", "-q", "-m", PLAIN, "-i", "t.jsonl", *keep, "-o", name).returncode == 0
        code, said = verify(fletch, name, *(("-i", "t.jsonl") if numbers else ()))
        assert (code, said["verdict"], said["same_bytes"]) == (0, "same bytes", 18), (name, said)


@pytest.mark.parametrize("field", ["embedding", "vector"])
def test_json_lines_and_arrays(fletch, field):
    rows = records(field=field)
    is_same_space(fletch, write(fletch, "v.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    is_same_space(fletch, write(fletch, "v.json", json.dumps(rows)))
    rows[3]["document"] = rows[3].pop("text")
    code, said = verify(fletch, write(fletch, "v.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert code == 3 and "v.jsonl:4" in said and "name the text with --field" in said


def test_what_chroma_gives(fletch):
    got = {"ids": [str(i) for i in range(18)], "documents": TEXTS, "embeddings": [row["vector"] for row in records()], "metadatas": None}
    is_same_space(fletch, write(fletch, "chroma.json", json.dumps(got)))
    got["documents"] = [None, *TEXTS[1:]]
    assert is_same_space(fletch, write(fletch, "chroma.json", json.dumps(got)), vectors=17)["left_out"] == 1
    got["embeddings"] = None
    assert verify(fletch, write(fletch, "chroma.json", json.dumps(got)))[0] == 3


def test_csv_with_vectors_as_pgvector_writes_them(fletch):
    lines = ["id,content,embedding"]
    lines += [f'{row["n"]},"{row["text"]}","{json.dumps(row["vector"])}"' for row in records() if '"' not in row["text"]]
    name = write(fletch, "items.csv", "\n".join([*lines, '99,"no vector yet",']) + "\n")
    said = is_same_space(fletch, name, "--field", "content", vectors=len(lines) - 1)
    assert said["left_out"] == 1 and said["rows"] == len(lines)
    code, said = verify(fletch, name, "--field", "content", "--vector-field", "nope")
    assert code == 3 and "name it with --vector-field" in said
    code, said = verify(fletch, name, "--field", "content", "--vector-field", "id")
    assert code == 3 and "not a float32 number" in said and "row 1" in said


def test_a_dump_of_postgresql(fletch):
    dump = STORED / "dump.sql"
    for vectors in ("embedding", "vectors"):  # text as pgvector's, real[]
        said = is_same_space(fletch, dump, "--field", "The text", "--vector-field", vectors, vectors=12)
        assert said["left_out"] == 1 and said["rows"] == 13
    is_same_space(fletch, STORED / "items.copy", "--no-header", "--field", "2", "--vector-field", "4", vectors=12)
    code, said = verify(fletch, dump, "--field", "text")
    assert code == 3 and 'no COPY of a table with the column "text"' in said


def test_texts_of_a_dump_are_read_by_embed_too(fletch):
    done = fletch("embed", "-q", "-m", PLAIN, "-i", STORED / "dump.sql", "--field", "The text", "--keep-text", "--format", "jsonl")
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == TEXTS[:12] + [""]
    lines = r'''COPY s."odd (x)" (id, "a, ""b""", c) FROM stdin;
1	tab\there\\ and\nback\x41\101 \q	\N
\.
2	not a row	x
'''
    done = fletch("embed", "-q", "-m", PLAIN, "-i", write(fletch, "x.copy", lines), "--field", "2", "--keep-text", "--keep-fields",
                  "--format", "jsonl")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 1 and rows[0]["text"] == "tab\there\\ and\nbackAA q" and rows[0]["c"] is None and rows[0]["id"] == "1"
    done = fletch("embed", "-q", "-m", PLAIN, "-i", write(fletch, "x.copy", lines.replace(r"\q", r"\xff")), "--field", "2")
    assert done.returncode == 1 and b"not valid UTF-8 after its escapes" in done.stderr


def test_tables_of_sqlite_vec(fletch):
    """Without its extension: texts in the table itself, in another one, and a plain table of blobs."""
    base = STORED / "vec.db"
    is_same_space(fletch, base, "--field", "body", vectors=11)
    is_same_space(fletch, base, vectors=12)
    is_same_space(fletch, base, "--sql", "SELECT n.text, v.embedding FROM notes n JOIN vec_notes v ON v.rowid = n.id", vectors=12)
    is_same_space(fletch, base, "--sql", "SELECT body, embedding FROM docs WHERE doc_id > 105", vectors=6)
    for sql, message in (("SELECT 1", "two columns"), ("DELETE FROM notes RETURNING text, vector", "two columns"),
                         ("SELECT nope, text FROM notes", "no such column"), ("SELECT", "")):
        assert (code := verify(fletch, base, "--sql", sql))[0] == 2 and message in code[1], code
    assert verify(fletch, base, "--field", "title")[0] == 2 and "no table" in verify(fletch, base, "--field", "title")[1]


def test_any_table(fletch):
    path = fletch.tmp_path / "rag.db"
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE t(text TEXT, embedding)")
        for row in records():
            base.execute("INSERT INTO t VALUES (?, ?)", (row["text"], json.dumps(row["vector"])))
        base.execute("INSERT INTO t VALUES ('later', NULL)")
    base.close()
    assert is_same_space(fletch, "rag.db")["left_out"] == 1
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE u(text TEXT, vector BLOB)")
    base.close()
    code, said = verify(fletch, "rag.db")
    assert code == 2 and "more than one" in said
    for blob, message in ((struct.pack("<3f", 1, 2, 3), "where earlier rows have"), (bytes(127), "not a multiple of float32"),
                          (struct.pack("<32f", *[float("nan")] * 32), "not a float32 number")):
        with sqlite3.connect(path) as base:
            base.execute("UPDATE t SET embedding = ? WHERE rowid = 5", (blob,))
        base.close()
        code, said = verify(fletch, "rag.db", "--sql", "SELECT text, embedding FROM t")
        assert code == 3 and "row 5" in said and message in said, said


def test_the_folder_of_a_job(fletch):
    write_npy(fletch)
    for keep in ((), ("--keep-text",)):
        out = f"job{len(keep)}"
        assert fletch("run", "-q", "-m", PLAIN, "-i", "t.jsonl", "-o", out, "--split-bytes", "1KiB", *keep).returncode == 0
        assert len(list((fletch.tmp_path / out).glob("*.npy"))) > 2
        code, said = verify(fletch, out)
        assert (code, said["verdict"], said["vectors"], said["differs"]) == (0, "same bytes", 18, []), said
        code, said = verify(fletch, out, "--max-length", "4")
        assert code == 1 and [part["name"] for part in said["differs"]] == ["max_length"]
    (fletch.tmp_path / "t.jsonl").unlink()
    assert verify(fletch, "job1")[0] == 0
    code, said = verify(fletch, "job0")
    assert code == 3 and "kept no texts" in said
    next((fletch.tmp_path / "job1").glob("part-*00001.json")).unlink()
    assert verify(fletch, "job1")[0] == 3
    assert verify(fletch, fletch.tmp_path)[0] == 2  # a folder that holds no job


def test_files_of_the_first_formats_are_read(fletch):
    """A promise (docs/promises.md): what an earlier version wrote. From a folder that cannot be written, which stays as it is."""
    own = fletch.tmp_path / "own"
    shutil.copytree(STORED / "own-1", own)
    names = sorted(os.listdir(own))
    own.chmod(0o500)
    for name, vectors in (("canary.json", 18), ("job", 11), ("store.db", 11)):
        said = is_same_space(fletch, own / name, vectors=vectors)
        assert "model" not in [part["name"] for part in said["differs"]], said
    assert sorted(os.listdir(own)) == names
    own.chmod(0o700)
    done = fletch("run", "-o", own / "job", "--check")
    assert done.returncode == 0 and json.loads(done.stdout)["rows"] == 11


# ---- Samples, ids, damage --------------------------------------------------------------------------


def test_a_sample_is_the_first_rows_and_some_of_all_the_rest(fletch):
    rows = [{"text": f"text {i}", "vector": [float(i), 1.0]} for i in range(1000)]
    name = write(fletch, "v.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    for most, count in ((10, 10), (1, 1), (2000, 1000), (0, 1000)):
        done = fletch("verify", "-q", "--format", "json", "-m", PLAIN, name, "--sample", most)
        assert json.loads(done.stdout)["rows"] == 1000 and json.loads(done.stdout)["vectors"] == 0
    done = fletch("embed", "-q", "-m", PLAIN, "--format", "jsonl", "--keep-text", *(f"text {i}" for i in range(300)))
    lines = done.stdout.decode().splitlines()
    assert verify(fletch, write(fletch, "e.jsonl", "\n".join(lines)), "--sample", 10)[1]["vectors"] == 10
    text = fletch("verify", "-q", "-m", PLAIN, "e.jsonl", "--sample", 10).stdout
    assert text == b"same bytes: 10 vectors (a sample of 300)\n"
    wrong = json.loads(lines[250])
    lines[150:] = [json.dumps(json.loads(line) | {"embedding": wrong["embedding"]}) for line in lines[150:]]
    code, said = verify(fletch, write(fletch, "e.jsonl", "\n".join(lines)), "--sample", 10)
    assert code == 1 and 10 - said["same_bytes"] == 2, "rows 198 and 262, of the first five and every 64th of the rest"
    for word in ("x", "-1", "", "1.5"):
        assert verify(fletch, "e.jsonl", "--sample", word)[0] == 2


def test_ids_in_the_rows(fletch):
    here = fletch("model", "id", "-m", PLAIN).stdout.decode().strip()
    rows = [row | {"vector_id": here} for row in records()]
    name = write(fletch, "v.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert is_same_space(fletch, name)["differs"] == []
    for row in rows:
        row["vector_id"] = "f" * 64
    write(fletch, name, "".join(json.dumps(row) + "\n" for row in rows))
    assert is_same_space(fletch, name)["differs"] == [{"name": "vector_id", "there": "f" * 64, "here": here}]
    rows[9]["vector_id"] = here
    write(fletch, name, "".join(json.dumps(row) + "\n" for row in rows))
    code, said = verify(fletch, name)
    assert code == 3 and "row 10 has vector id" in said and "two kinds" in said


@pytest.mark.parametrize("change, message", [
    (lambda rows: rows[4]["vector"].append(1.0), "row 5 has 33 numbers where earlier rows have 32"),
    (lambda rows: rows[4].update(vector=[1e39] * 32), "row 5 holds a value that is not a float32 number at position 1"),
    (lambda rows: rows[4].update(vector="abc"), "row 5 holds a value that is not a float32 number"), (lambda rows: rows[4].update(vector=7), "row 5 has a number as its vector"),
    (lambda rows: rows[4].pop("vector"), "row 5 has no vector field"), (lambda rows: rows[4].update(vector=[1, None]), "row 5 holds a value that is not a float32")])
def test_damaged_rows_are_named(fletch, change, message):
    rows = records()
    change(rows)
    code, said = verify(fletch, write(fletch, "v.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert code == 3 and message in said, said


def test_damaged_matrices(fletch):
    whole = (fletch.tmp_path / write_npy(fletch)).read_bytes()
    for content, message in ((whole[:-1], "truncated"), (whole[:50], "truncated in its header"), (whole[:9], "no array"),
                             (whole.replace(b"<f4", b"<f2"), "dtype is '<f2'"), (whole.replace(b"(18, 32)", b"(18,)   "), "not a C-contiguous matrix"),
                             (whole.replace(b"False", b"True "), "not a C-contiguous matrix"), (whole.replace(b"(18, 32)", b"(18, 0) "), "truncated"),
                             (whole.replace(b"(18, 32)", b"(0, 9999)"), "there are more texts"), (b"x" + whole[1:], "no array"), (b"", "no array")):
        code, said = verify(fletch, write(fletch, "v.npy", content), "-i", "t.jsonl")
        assert code == 3 and message in said, (message, said)
    write(fletch, "v.npy", whole)
    few = write(fletch, "few.txt", "a\nb\n")
    assert verify(fletch, "v.npy", "-i", few) == (3, "fletch: v.npy has more vectors than there are texts: 2\n")
    code, said = verify(fletch, "v.npy", "-i", write(fletch, "many.txt", "a\n" * 19))
    assert code == 3 and "there are more texts" in said
    code, said = verify(fletch, "v.npy", "-i", write(fletch, "bad.jsonl", '"a"\n{bad\n'))
    assert code == 3 and "bad.jsonl:2" in said
    assert verify(fletch, "v.npy")[0] == 2 and verify(fletch, "v.npy", "-i", few, "-i", few)[0] == 2
    assert verify(fletch, "few.txt", "-i", few)[0] == 2
    packed = io.BytesIO()
    numpy.savez_compressed(packed, vectors=reference())
    assert "compressed" in verify(fletch, write(fletch, "v.npz", packed.getvalue()), "-i", few)[1]
    for size in (4, 20, 40, 80, 200):
        assert verify(fletch, write(fletch, "v.npz", packed.getvalue()[:size]), "-i", few)[0] == 3


@pytest.mark.parametrize("name, content, code", [
    ("x.db", b"SQLite format 3\0" + b"x" * 200, 3), ("x.parquet", b"PAR1" + b"x" * 60, 2), ("x.csv", b"", 3), ("x.jsonl", b"", 3),
    ("x.sql", b"", 3), ("x.csv", b"text,vector\n", 3), ("x.npz", b"PK\x03\x04", 3), ("x.json", b'{"documents":[]}', 3)])
def test_files_that_are_none(fletch, name, content, code):
    done = verify(fletch, write(fletch, name, content), *(("-i", write(fletch, "t.txt", "a\n")) if name.endswith("npz") else ()))
    assert done[0] == code and "fletch:" in done[1], done
