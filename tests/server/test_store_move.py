# SPDX-License-Identifier: Apache-2.0
"""fletch run --re-embed STORE: a store for another model, while the server of the old one goes on."""
import json
import random
import signal
import sqlite3
import subprocess
import time

import serving

FOLDERS = serving.ROOT / "tests/golden/folders"
OLD, NEW = FOLDERS / "plain-bert", FOLDERS / "pooling-cls"


def ask(server, path, **body):
    return server.ask("POST", path, json.dumps(body).encode())


def command(folder, *flags, old="old.db", new="new.db", model=NEW):
    return [serving.BIN, "run", "-q", "-m", model, "--re-embed", folder / old, "-o", folder / new, *flags]


def move(folder, *flags, code=0, **where):
    done = subprocess.run(command(folder, *flags, **where), capture_output=True, text=True, timeout=serving.WAIT)
    assert done.returncode == code, (done.returncode, done.stderr)
    return done.stderr if code else json.loads(done.stdout)


def rows(path, columns="seq, id, text, metadata, created"):
    base = sqlite3.connect(path)
    found = base.execute(f"SELECT {columns} FROM items ORDER BY seq").fetchall()
    base.close()
    return found


def serve(start, folder, name, model):
    return start("--server-store", folder / name, "-m", model, model=False)


def fill(server, count, seed=1):
    draw = random.Random(seed)
    words = "cat dog sat ran over green hills notes people office garden sea".split()
    texts = [" ".join(draw.choices(words, k=draw.randint(1, 12))) + f" {i}" for i in range(count)]
    for at in range(0, count, 500):
        part = texts[at:at + 500]
        reply = ask(server, "/add", texts=part, ids=[f"id-{at + i}" for i in range(len(part))],
                    metadata=[{"n": at + i} if i % 2 else None for i in range(len(part))])
        assert reply.status == 200, reply


def test_the_new_store_is_the_one_that_its_model_would_have_made(start, tmp_path):
    old = serve(start, tmp_path, "old.db", OLD)
    fill(old, 700)
    assert move(tmp_path) == {"items": 700, "done_before": 0, "made": 700, "dropped": 0}
    assert rows(tmp_path / "new.db") == rows(tmp_path / "old.db")
    fresh = serve(start, tmp_path, "fresh.db", NEW)
    fill(fresh, 700)
    assert rows(tmp_path / "new.db", "id, vector") == rows(tmp_path / "fresh.db", "id, vector")
    new = serve(start, tmp_path, "new.db", NEW)
    query = {"text": "a cat in the garden", "k": 20}
    assert ask(new, "/search", **query).json()["results"] == ask(fresh, "/search", **query).json()["results"]
    assert new.ask("GET", "/items/id-5").json()["metadata"] == {"n": 5}
    assert ask(old, "/search", **query).json()["results"], "the old one has gone on"
    assert ask(new, "/add", text="one more").status == 200 and "vector id" not in new.log()
    assert new.end() == 0
    assert "texts of its own" in move(tmp_path, code=2), "what was added here is not in the old one"


def test_chunks_stay_chunks(start, tmp_path):
    old = serve(start, tmp_path, "old.db", OLD)
    document = "Cats sleep all day. Dogs run in the park. Notes lie on the table. People walk in the garden. " * 4
    body = {"texts": [document, "short"], "ids": ["long", "short"], "chunk": {"size": 12}, "metadata": {"title": "one"}}
    assert ask(old, "/add", **body).status == 200
    move(tmp_path)
    fresh = serve(start, tmp_path, "fresh.db", NEW)
    assert ask(fresh, "/add", **body).status == 200
    places = "id, text, document, chunk, byte_begin, byte_end, char_begin, char_end, vector"
    assert len(rows(tmp_path / "new.db")) > 5 and rows(tmp_path / "new.db", places[4:]) == rows(tmp_path / "fresh.db", places[4:])
    new = serve(start, tmp_path, "new.db", NEW)
    for query in ({"text": "dogs in the park", "hybrid": True}, {"text": "dogs", "group_by": "document", "highlight": "words"}):
        assert ask(new, "/search", **query).json()["results"] == ask(fresh, "/search", **query).json()["results"]
    assert new.ask("DELETE", "/items/long").status == 200 and [row[1] for row in rows(tmp_path / "new.db")] == ["short"]


def test_a_context_is_not_moved_silently(start, tmp_path):
    old = serve(start, tmp_path, "old.db", OLD)
    assert ask(old, "/add", text="a text", metadata={"title": "t"}, context="{title}: {chunk}").status == 200
    assert "1 items with a context" in move(tmp_path, code=3)


def test_what_comes_meanwhile_follows(start, tmp_path):
    old = serve(start, tmp_path, "old.db", OLD)
    fill(old, 300)
    move(tmp_path)
    assert ask(old, "/add", text="another text", id="id-7", metadata={"v": 2}).status == 200
    assert ask(old, "/add", text="a new one", id="late").status == 200
    assert old.ask("DELETE", "/items/id-9").status == 200
    assert move(tmp_path) == {"items": 300, "done_before": 298, "made": 2, "dropped": 2}
    assert rows(tmp_path / "new.db") == rows(tmp_path / "old.db")
    again = move(tmp_path)
    assert again["made"] == again["dropped"] == 0


def test_killed_again_and_again(start, tmp_path):
    old = serve(start, tmp_path, "old.db", OLD)
    fill(old, 4000)
    want = rows(tmp_path / "old.db")
    move(tmp_path, new="calm.db")
    draw, killed, done = random.Random(2), 0, False
    for _ in range(10):
        before = len(rows(tmp_path / "new.db")) if done else 0
        process = subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and draw.random() > 0.1:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        killed += process.wait(serving.WAIT) == -signal.SIGKILL
        base = sqlite3.connect(tmp_path / "new.db")
        done = base.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'items'").fetchone() == (1,)
        base.close()
        assert not done or len(rows(tmp_path / "new.db")) >= before, "what was done stays done"
    assert killed > 0
    assert move(tmp_path)["items"] == 4000
    assert rows(tmp_path / "new.db", "id, vector") == rows(tmp_path / "calm.db", "id, vector")
    assert rows(tmp_path / "old.db") == want and rows(tmp_path / "new.db") == want


def test_half_a_store_is_not_served(start, tmp_path):
    old = serve(start, tmp_path, "old.db", OLD)
    fill(old, 20)
    move(tmp_path)
    base = sqlite3.connect(tmp_path / "new.db")
    base.execute("INSERT INTO about VALUES ('moving', '')")
    base.execute("DELETE FROM items WHERE seq > 10")
    base.commit()
    base.close()
    half = start("--server-store", tmp_path / "new.db", "-m", NEW, model=False, ready=False)
    assert half.process.wait(serving.WAIT) == 2 and "does not have all texts" in half.log()
    assert move(tmp_path)["made"] == 10
    assert serve(start, tmp_path, "new.db", NEW).end() == 0


def test_what_it_refuses(start, tmp_path):
    old = serve(start, tmp_path, "old.db", OLD)
    fill(old, 3)
    assert "onto itself" in move(tmp_path, new="old.db", code=2)
    (tmp_path / "text.txt").write_text("no such store" * 100)
    assert "not a store of fletch" in move(tmp_path, old="text.txt", code=2)
    assert "no flags for inputs or parts" in move(tmp_path, "--shard", "0/2", code=2)
    assert "no flags for inputs or parts" in move(tmp_path, "--dtype", "int8", code=2)
    assert "is a folder" in move(tmp_path, new=".", code=2)
    assert not (tmp_path / "new.db").exists(), "nothing is made by what is refused"
    move(tmp_path)
    assert "another model" in move(tmp_path, model=FOLDERS / "pooling-max", code=2)
    assert "created under vector id" in move(tmp_path, "--max-length", "8", code=2)
    assert old.end() == 0
    told = start("--server-store", tmp_path / "old.db", "-m", NEW, model=False, ready=False)
    assert told.process.wait(serving.WAIT) == 2 and "fletch run --re-embed" in told.log()
    base = sqlite3.connect(tmp_path / "old.db")
    base.execute("UPDATE items SET text = x'00ff' WHERE seq = 2")
    base.commit()
    base.close()
    assert "item 2 of" in move(tmp_path, new="third.db", code=1)
