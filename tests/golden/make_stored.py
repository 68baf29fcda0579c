# SPDX-License-Identifier: Apache-2.0
"""make_stored.py - stored/: what other programs make of texts and vectors, for test_cli_verify_files.py.

    python tests/golden/make_stored.py [own]    (apsw, sqlite-vec, numpy; PostgreSQL's initdb, pg_ctl, psql and pg_dump)

The vectors are the reference's of folders/plain-bert (transformers; folders/manifest.json has the versions). vec.db: a
table of sqlite-vec with texts in it, one without, in two chunks, with a hole, and a plain table. dump.sql: pg_dump of
two tables, of which one has the texts, with vectors as pgvector writes them and as real[], and a row of nulls;
items.copy: the same table by itself. stored.json says which versions wrote them. With "own" only own-1/: the canaries, a
job and a store as fletch writes them in the first format of each, which stay as they are; a new format has a folder of its
own (docs/promises.md).
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import apsw
import numpy
import sqlite_vec

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "stored"
BIN = os.environ.get("PGBIN", "/usr/lib/postgresql/15/bin")
ROWS = 12
TEXTS = json.loads((HERE / "folders/texts.json").read_text(encoding="utf-8"))[:ROWS]
VECTORS = numpy.load(HERE / "folders/plain-bert/expected-0.npy")[:ROWS].astype("<f4")
WIDTH = VECTORS.shape[1]


def make_sqlite() -> str:
    (OUT / "vec.db").unlink(missing_ok=True)
    db = apsw.Connection(str(OUT / "vec.db"))
    db.execute("PRAGMA page_size = 512")
    db.enable_load_extension(True)
    db.load_extension(sqlite_vec.loadable_path())
    db.execute(f"CREATE VIRTUAL TABLE docs USING vec0(doc_id INTEGER PRIMARY KEY, tiny int8[8], embedding float[{WIDTH}] "
               "distance_metric=cosine, genre text, +body text, chunk_size=8)")
    db.execute(f"CREATE VIRTUAL TABLE vec_notes USING vec0(embedding FLOAT[{WIDTH}], chunk_size=8)")
    db.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, text TEXT, vector BLOB)")
    for i, (text, vector) in enumerate(zip(TEXTS, VECTORS)):
        db.execute("INSERT INTO docs(doc_id, tiny, embedding, genre, body) VALUES (?, vec_int8(?), ?, ?, ?)",
                   (100 + i, bytes(8), vector.tobytes(), "news", text))
        db.execute("INSERT INTO vec_notes(rowid, embedding) VALUES (?, ?)", (i + 1, vector.tobytes()))
        db.execute("INSERT INTO notes VALUES (?, ?, ?)", (i + 1, text, vector.tobytes()))
    db.execute("DELETE FROM docs WHERE doc_id = 103")
    db.execute("VACUUM")
    return db.execute("SELECT vec_version()").fetchall()[0][0]


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def make_postgres() -> str:
    numbers = [",".join(str(x) for x in row) for row in VECTORS]
    rows = [f"INSERT INTO items VALUES ({i}, {literal(text)}, NULL, '[{n}]', '{{{n}}}');"
            for i, (text, n) in enumerate(zip(TEXTS, numbers)) if "\0" not in text]
    sql = ["CREATE TABLE a_first (id int, note text);", "INSERT INTO a_first VALUES (1, E'a\\ttab');",
           'CREATE TABLE items (id bigint, "The text" text, tag text, embedding text, vectors real[]);', *rows,
           "INSERT INTO items VALUES (99);", "CREATE TABLE z_last (id int, note text);", "INSERT INTO z_last VALUES (1, 'x');"]
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        as_postgres = ["su", "postgres", "-c"] if os.getuid() == 0 else ["sh", "-c"]
        data, server = f"{place}/data", [f"-h{place}", "-p5498", "-Upostgres"]
        subprocess.run([*as_postgres, f"{BIN}/initdb -D {data} -U postgres -A trust && {BIN}/pg_ctl -D {data} "
                        f"-o '-k {place} -p 5498 -c listen_addresses=' -w start"], check=True, stdout=subprocess.DEVNULL)
        try:
            subprocess.run(["psql", "-q", *server, "-v", "ON_ERROR_STOP=1"], input="\n".join(sql), text=True, check=True)
            dump = subprocess.run(["pg_dump", *server, "postgres"], check=True, capture_output=True, text=True).stdout
            subprocess.run(["psql", "-q", *server, "-c", f"\\copy items to '{OUT}/items.copy'"], check=True)
            version = subprocess.run(["pg_dump", "--version"], check=True, capture_output=True, text=True).stdout.split()[2]
        finally:
            subprocess.run([*as_postgres, f"{BIN}/pg_ctl -D {data} -w stop"], check=True, stdout=subprocess.DEVNULL)
    (OUT / "dump.sql").write_text(dump, encoding="utf-8")
    return version


def make_own() -> None:
    """With the program that FLETCH_BIN names, in the numbers of every machine (ref)."""
    fletch, own, plain = os.environ["FLETCH_BIN"], OUT / "own-1", ["-m", str(HERE / "folders/plain-bert"), "--cpu-isa", "ref"]
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    (own / "texts.jsonl").write_text("".join(json.dumps({"id": f"t{i}", "text": text}) + "\n" for i, text in enumerate(TEXTS) if text))
    (own / "canary.json").write_bytes(subprocess.run([fletch, "canary", *plain], check=True, capture_output=True).stdout)
    subprocess.run([fletch, "run", *plain, "-i", "texts.jsonl", "--id-field", "id", "--keep-text", "--split-bytes", "1KiB", "-o", "job"],
                   check=True, cwd=own)
    server = subprocess.Popen([fletch, "serve", *plain, "--host", "none", "--unix-socket", own / "s", "--server-store", own / "store.db"])
    while subprocess.run([fletch, "health", "--host", "none", "--unix-socket", own / "s"], capture_output=True).returncode != 0:
        time.sleep(0.1)
    subprocess.run([fletch, "add", "--host", "none", "--unix-socket", own / "s", own / "texts.jsonl", "--id-field", "id"], check=True)
    server.terminate()
    server.wait()
    for name in ("store.db.lock", "s"):
        (own / name).unlink(missing_ok=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["own"]:
        sys.exit(make_own())
    OUT.mkdir(exist_ok=True)
    versions = {"sqlite-vec": make_sqlite(), "postgresql": make_postgres(), "rows": ROWS}
    (OUT / "stored.json").write_text(json.dumps(versions) + "\n")
