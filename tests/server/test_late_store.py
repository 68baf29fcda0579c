# SPDX-License-Identifier: Apache-2.0
"""Late chunks in the store: vectors of the published pooling in torch (tests/golden/spans.json), found and told as other
chunks, kept over a restart and by a store of the format before; what cannot make them again says so."""
import json
import sqlite3
import subprocess

import pytest
import serving
from dialects import good, post

GOLDEN = serving.ROOT / "tests/golden"
MODEL = GOLDEN / "folders/family-distilbert"
SPANS = json.loads((GOLDEN / "spans.json").read_text(encoding="utf-8"))
WANT = next(case["vectors"] for case in SPANS["cases"] if case["folder"] == "family-distilbert" and not case["window"])[:3]
TEXT = SPANS["text"]
LATE = {"by": "sentences", "size": 60, "late_chunking": True}


@pytest.fixture
def start(tmp_path):
    started = []

    def run(model=MODEL):
        started.append(serving.Server(tmp_path, "--model", model, "--server-store", tmp_path / "s.db", model=False))
        return started[-1]
    yield run
    for running in started:
        running.kill()


def add(server, **body):
    return good(post(server, "/add", body))


def item(server, name):
    return server.ask("GET", f"/items/{name}").json()


def near(vector, want, bound=1e-5):
    norm = sum(x * x for x in want) ** 0.5
    return vector == pytest.approx([x / norm for x in want], abs=bound)


def program(*arguments):
    return subprocess.run([serving.BIN, *map(str, arguments)], capture_output=True, text=True, timeout=serving.WAIT)


def test_late_chunks_are_kept_found_and_told(start, tmp_path):
    server = start()
    reply = add(server, texts=[TEXT, "Tea.", " \n "], ids=["city", "short", "white"], chunk=LATE)
    assert reply["chunks"] == [3, 1, 1] and reply["truncated"] == [False] * 3
    assert reply["tokens"][0] == len(good(post(server, "/tokenize", {"inputs": TEXT}))[0])  # the document once
    city = item(server, "city")
    assert city["late_chunking"] is True and [chunk["bytes"] for chunk in city["chunks"]] == [[0, 34], [34, 113], [113, 159]]
    assert [chunk["chunk"] for chunk in city["chunks"]] == [0, 1, 2]
    assert "".join(chunk["text"] for chunk in city["chunks"]) == TEXT.encode()[:159].decode()
    assert all(near(chunk["embedding"], want) for chunk, want in zip(city["chunks"], WANT))
    plain = good(post(server, "/embed", {"inputs": "Tea."}))[0]  # one chunk: whole, and no other vector than ever
    assert "late_chunking" not in item(server, "short") and near(item(server, "short")["embedding"], plain, 1e-6)
    found = good(post(server, "/search", {"vector": WANT[1], "k": 1}))["results"][0]
    assert (found["id"], found["chunk"], found["bytes"]) == ("city", 1, [34, 113]) and found["score"] > 0.9999
    grouped = good(post(server, "/search", {"text": "tea", "group_by": "document", "hybrid": True, "k": 9}))["results"]
    assert sorted(document["id"] for document in grouped) == ["city", "short", "white"]
    assert server.end() == 0
    again = start()
    assert item(again, "city") == city
    add(again, text=TEXT, id="city", chunk={**LATE, "late_chunking": False})
    assert "late_chunking" not in item(again, "city") and not near(item(again, "city")["chunks"][1]["embedding"], WANT[1])


def test_the_program_adds_them(start, tmp_path):
    server = start()
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": "city", "text": TEXT}) + "\n")
    done = program("add", tmp_path / "in.jsonl", "-p", server.port, "--id-field", "id",
                   "--chunk", "sentences", "--chunk-size", "60", "--late-chunking")
    assert done.returncode == 0, done.stderr
    assert all(near(chunk["embedding"], want) for chunk, want in zip(item(server, "city")["chunks"], WANT))


def test_what_is_refused(start):
    server = start()
    for body, words in ((({"context": "{t} {chunk}", "metadata": {"t": "x"}}), "exclude each other"),
                        ({"chunk": {"late_chunking": 1}}, "late_chunking"), ({"chunk": {**LATE, "size": 100_000}}, "too long for the model")):
        reply = post(server, "/add", {"text": TEXT, "chunk": LATE} | body)
        assert reply.status == 400 and words in reply.json()["error"], reply
    assert server.ask("GET", "/items").json()["count"] == 0


def test_a_model_without_late_chunks_says_so(start):
    server = start(GOLDEN / "folders/family-electra")
    reply = post(server, "/add", {"text": TEXT, "chunk": {"size": 20, "late_chunking": True}})
    assert reply.status == 424 and "mean of a span" in reply.json()["error"], reply


def test_a_store_of_the_format_before(start, tmp_path):
    server = start()
    add(server, text=TEXT, id="city", chunk={"size": 60})
    before = item(server, "city")
    assert server.end() == 0
    with sqlite3.connect(tmp_path / "s.db") as db:
        db.executescript("ALTER TABLE items DROP COLUMN late; PRAGMA user_version=2;")
    db.close()
    assert program("verify", "-q", "-m", MODEL, tmp_path / "s.db").returncode == 0
    again = start()
    assert item(again, "city") == before
    add(again, text=TEXT, id="late", chunk=LATE)
    assert item(again, "late")["late_chunking"] is True and item(again, "city") == before


def test_what_reads_texts_alone_leaves_them_out_or_refuses(start, tmp_path):
    server = start()
    add(server, texts=[TEXT, "Tea.", "Coffee."], ids=["city", "tea", "coffee"], chunk=LATE)
    add(server, text="Milk.", id="milk", context="about {t}: {chunk}", metadata={"t": "drinks"})
    assert server.end() == 0
    done = program("verify", "-q", "--format", "json", "-m", MODEL, tmp_path / "s.db", "--exact")
    said = json.loads(done.stdout)
    assert done.returncode == 0 and said["vectors"] == 2 and said["left_out"] == 4, said
    move = ["run", "-q", "-m", MODEL, "--re-embed", tmp_path / "s.db", "-o"]
    done = program(*move, tmp_path / "new.db")
    assert done.returncode != 0 and "1 items with a context" in done.stderr
    with sqlite3.connect(tmp_path / "s.db") as db:
        db.execute("DELETE FROM items WHERE id = 'milk'")
    db.close()
    done = program(*move, tmp_path / "newer.db")
    assert done.returncode != 0 and "3 chunks of late chunking" in done.stderr
