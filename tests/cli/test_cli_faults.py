# SPDX-License-Identifier: Apache-2.0
"""With one allocation failing, whichever it is, a run ends with the right result or an error that says so."""
import json
import shutil
import sqlite3
import sys

import commandline
import faults
import numpy
import pytest

sys.path.insert(0, str(commandline.ROOT / "tests" / "golden"))
from hub_stand_in import StandIn  # noqa: E402

LATE = commandline.ROOT / "tests" / "golden" / "late" / "pylate"
FOLDER = commandline.ROOT / "tests" / "golden" / "folders" / "pooling-cls"


@pytest.mark.parametrize("arguments", [
    ("embed", "-m", FOLDER, "hello there"),
    ("embed", "-m", FOLDER, "-i", "in.csv", "--keep-fields", "--stats", "--format", "json"),
    ("tokenize", "-m", FOLDER, "-i", "in.jsonl", "--keep-fields"),
    ("rerank", "-m", LATE, "--query", "a sea", "-i", "in.jsonl"),
], ids=["embed", "csv", "tokenize", "late"])
def test_every_allocation(fletch, tmp_path, arguments):
    (tmp_path / "in.csv").write_text('id,text\n1,hello\n2,"a ""b"""\n')
    (tmp_path / "in.jsonl").write_text('{"id": [1, "\\u00e9"], "text": "hello"}\n"more"\n')
    faults.Faults(tmp_path, lambda env: fletch(*arguments, env=env, model=False)).loop()


def test_every_allocation_of_a_file_that_is_written(fletch, tmp_path):
    def run(env):
        (tmp_path / "out.npy").unlink(missing_ok=True)
        result = fletch("embed", "-m", FOLDER, "-o", "out.npy", "one", "two", env=env, model=False)
        assert (result.returncode == 0) == (tmp_path / "out.npy").exists()
        assert not list(tmp_path.glob(".*tmp")), result.stderr
        return result
    faults.Faults(tmp_path, run).loop()


def test_allocations_of_a_job(fletch, tmp_path):
    """A part is whole or not there, and nothing but parts is left."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"id": 1, "text": "hello"}\n{"id": 2}\n{"id": 3, "text": "more"}\n')
    (tmp_path / "in/b.txt").write_text("one\ntwo\n")

    def run(env):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        result = fletch("run", "-m", FOLDER, "-i", "in", "-o", "out", "--on-error", "accept", "--keep-fields", env=env,
                        model=False)
        names = sorted(path.name for path in (tmp_path / "out").iterdir()) if (tmp_path / "out").exists() else []
        assert not [name for name in names if name.startswith(".")], result.stderr
        if result.returncode == 0:
            result.stdout = b"".join((tmp_path / "out" / name).read_bytes() for name in names if not name.endswith(".json"))
            assert len(names) == 7, names
        return result
    faults.Faults(tmp_path, run).loop(at_most=60)


@pytest.mark.parametrize("name, flags", [("v.csv", ()), ("v.json", ()), ("x.sql", ("--field", "t")), ("v.npy", ("-i", "t.txt")), ("v.db", ()), ("job", ())])
def test_allocations_of_verify(fletch, tmp_path, name, flags):
    rows = numpy.load(FOLDER / "expected-0.npy")[:2].astype("<f4")
    texts = json.loads((FOLDER.parent / "texts.json").read_text(encoding="utf-8"))[:2]
    written = [json.dumps([float(str(x)) for x in row]) for row in rows]
    (tmp_path / "t.txt").write_text("\n".join(texts))
    numpy.save(tmp_path / "v.npy", rows)
    (tmp_path / "v.csv").write_text("text,vector\n" + "".join(f'"{text}","{row}"\n' for text, row in zip(texts, written)))
    (tmp_path / "v.json").write_text(json.dumps({"documents": texts, "embeddings": rows.tolist()}))
    (tmp_path / "x.sql").write_text("COPY a (t, vector) FROM stdin;\n" + "".join(f"{text}\t{row}\n" for text, row in zip(texts, written)) + "\\.\n")
    base = sqlite3.connect(tmp_path / "v.db")
    base.execute("CREATE TABLE a(text TEXT, vector)")
    base.executemany("INSERT INTO a VALUES (?, ?)", zip(texts, written))
    base.commit()
    base.close()
    assert fletch("run", "-q", "-m", FOLDER, "-i", "t.txt", "-o", "job", model=False).returncode == 0
    faults.Faults(tmp_path, lambda env: fletch("verify", "-q", "-m", FOLDER, name, *flags, env=env, model=False)).loop(at_most=25)


@pytest.mark.parametrize("old, new", [("store.db", "new.db"), ("job", "new")])
def test_allocations_of_a_move(fletch, tmp_path, old, new):
    """What a failure leaves goes on: the next run makes it whole."""
    own = shutil.copytree(FOLDER.parents[1] / "stored/own-1", tmp_path / "own")
    calls = []

    def run(env):
        if len(calls) % 3 == 0:
            shutil.rmtree(tmp_path / new) if (tmp_path / new).is_dir() else [path.unlink() for path in tmp_path.glob("new.db*")]
        calls.append(env)
        result = fletch("run", "-q", "-m", FOLDER, "--re-embed", own / old, "-o", new, env=env, model=False)
        result.stdout = b""  # of what was there, and how long it took
        return result
    faults.Faults(tmp_path, run).loop(at_most=30)
    assert run({}).returncode == 0
    if old == "job":
        assert fletch("run", "-o", new, "--check", model=False).returncode == 0
        return
    bases = [sqlite3.connect(path) for path in (own / old, tmp_path / new)]
    was, now = (base.execute("SELECT seq, id, text FROM items").fetchall() for base in bases)
    assert was == now and bases[1].execute("SELECT count(*) FROM about WHERE name = 'moving'").fetchone() == (0,)
    for base in bases:
        base.close()


def test_allocations_of_a_download(fletch, tmp_path):
    files = {str(path.relative_to(FOLDER)): path.read_bytes() for path in FOLDER.rglob("*") if path.is_file()}
    with StandIn() as hub:
        hub.add("some/model", files)

        def run(env):
            shutil.rmtree(tmp_path / "hf", ignore_errors=True)
            result = fletch("model", "pull", "-q", "some/model", env=env | {"HF_ENDPOINT": hub.url}, model=False)
            if result.returncode == 0:
                done = fletch("model", "path", "--offline", "some/model", env={"HF_ENDPOINT": hub.url}, model=False)
                assert done.returncode == 0, done.stderr
            return result
        faults.Faults(tmp_path, run).loop(at_most=40)
