# SPDX-License-Identifier: Apache-2.0
"""Long documents in the store: chunks that come and go together, hybrid searches, second stages, groups, highlights.

Expected orders are those of the cosine and of BM25 computed here from the vectors and texts, and of /rerank."""
import concurrent.futures
import ctypes.util
import json
import math
import random
import re
import shutil
import sqlite3
import subprocess
import unicodedata

import pytest
import serving

RANKER = serving.ROOT / "tests/golden/scores/bert"
PLACES = ("Oslo", "Lima", "Cairo")
BOOK = "".join(f"Chapter {i} is about {what}. It says why. " for i, what in enumerate(
    ["sleeping cats", "the stock market", "sailing boats", "forgotten passwords", "baking bread", "Émile's garden — ünï"] * 4))
DOCUMENTS = {"book": BOOK, "note": "A note on bread and butter.",
             "news": "Shares fell in Lima. " * 30 + "The harbour of Oslo was closed. " * 30, "bread": "Bread. Bread! More bread?"}
OLD_TABLES = """CREATE TABLE items(seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, text TEXT NOT NULL,
metadata TEXT, vector BLOB NOT NULL, created INTEGER NOT NULL);
CREATE TABLE about(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
PRAGMA application_id=1718383715; PRAGMA user_version=1;"""


def ask(server, path, **body):
    return server.ask("POST", path, json.dumps(body).encode())


def good(server, path, **body):
    reply = ask(server, path, **body)
    assert reply.status == 200, reply
    return reply.json()


def search(server, **body):
    return good(server, "/search", **body)["results"]


def server_of(folder, *flags):
    return serving.Server(folder, "--model", serving.MODEL, "--model", f"rank={RANKER}", *flags, model=False)


@pytest.fixture(scope="module", params=["file", "memory"])
def server(request, tmp_path_factory):
    """A model and a reranker, and a store of each kind with the documents in chunks."""
    if not (RANKER / "model.safetensors").exists() or not serving.MODEL:
        pytest.skip("FLETCH_MODEL names no model folder (make model)")
    folder = tmp_path_factory.mktemp("search")
    running = server_of(folder, *(("--server-store", folder / "s.db") if request.param == "file" else ()))
    reply = good(running, "/add", texts=list(DOCUMENTS.values()), ids=list(DOCUMENTS), chunk={"size": 40, "overlap": 12},
                 metadata=[{"title": name, "long": len(text) > 500} for name, text in DOCUMENTS.items()])
    assert reply["ids"] == list(DOCUMENTS) and reply["count"] == sum(reply["chunks"]) and min(reply["chunks"]) == 1
    yield running
    assert running.process.poll() is None, running.log()
    assert running.end() == 0, running.log()


def rows(server):
    """Every kept text with its vector, as the server has it."""
    found = []
    for name in DOCUMENTS:
        item = server.ask("GET", "/items/" + name).json()
        assert item["id"] == name and item["metadata"]["title"] == name
        found += [{**chunk, "id": name} for chunk in item.get("chunks", [{"chunk": 0, **item}])]
    return found


def cosines(server, query):
    vector = server.ask(body=json.dumps({"inputs": [query]}).encode()).json()[0]
    return [sum(a * b for a, b in zip(row["embedding"], vector)) for row in rows(server)]


def words_of(text):
    plain = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if not unicodedata.combining(c))
    return re.findall(r"\w+", plain)


def bm25(texts, query):
    split, wanted = [words_of(text) for text in texts], list(dict.fromkeys(words_of(query)))
    average = sum(map(len, split)) / len(split)
    scores = []
    for words in split:
        score = 0
        for word in wanted:
            n = sum(word in other for other in split)
            often = words.count(word)
            score += math.log(1 + (len(split) - n + .5) / (n + .5)) * often * 2.2 / (often + 1.2 * (.25 + .75 * len(words) / average))
        scores.append(score)
    return scores


def fused(*orders):
    scores = {}
    for order in orders:
        for rank, row in enumerate(order):
            scores[row] = scores.get(row, 0) + 1 / (61 + rank)
    return scores


def best(scores):
    """Places, best first, of those above 0."""
    return sorted((i for i, score in enumerate(scores) if score > 0), key=lambda i: (-scores[i], i))


def key_of(hit):
    return hit["id"], hit.get("chunk", 0)


def close(a, b):
    return abs(a - b) < 1e-6


# ---- Chunks ----------------------------------------------------------------------------------------------

def test_chunks_are_those_of_the_text_and_short_ones_are_whole(server):
    book = server.ask("GET", "/items/book").json()
    assert set(book) == {"id", "metadata", "created", "chunks"} and len(book["chunks"]) > 5
    data, end = BOOK.encode(), 0
    for number, chunk in enumerate(book["chunks"]):
        (begin, stop), chars = chunk["bytes"], chunk["chars"]
        assert chunk["chunk"] == number and begin <= end < stop and data[begin:stop].decode() == chunk["text"] == BOOK[slice(*chars)]
        end = stop
    assert end == len(data)
    truth = server.ask(body=json.dumps({"inputs": [book["chunks"][3]["text"]]}).encode()).json()[0]
    assert max(abs(a - b) for a, b in zip(truth, book["chunks"][3]["embedding"])) < 1e-6
    assert "chunks" not in server.ask("GET", "/items/note").json()
    listed = [item for item in server.ask("GET", "/items?limit=1000").json()["items"] if item["id"] == "book"]
    assert [item["chunk"] for item in listed] == list(range(len(book["chunks"]))) and listed[1]["bytes"] == book["chunks"][1]["bytes"]


def test_what_a_chunk_is_called_in_the_file_is_no_id(server):
    before = server.ask("GET", "/items").json()["count"]
    for path in ("/items/book%1F3", "/items/book%1f0"):
        assert server.ask("GET", path).status == 404 and server.ask("DELETE", path).status == 404
    assert ask(server, "/add", text="x", id="book\x1f3").status == 400
    assert server.ask("GET", "/items").json()["count"] == before


def test_a_document_is_replaced_and_dropped_with_all_of_its_chunks(start, tmp_path):
    running = start("--server-store", tmp_path / "s.db")
    count = lambda: running.ask("GET", "/items").json()["count"]
    words = lambda word: [hit["id"] for hit in search(running, text=word, hybrid=True, highlight="words") if hit["words"]]
    old, new = "An old tale of whales. " * 60, "A new song of larks. " * 40
    first = good(running, "/add", texts=[old, "whales too"], ids=["d", "e"], chunk={"size": 30})
    assert count() == first["count"] == sum(first["chunks"]) and first["chunks"][0] > 5 and set(words("whales")) == {"d", "e"}
    second = good(running, "/add", text=new, id="d", chunk={"size": 30})
    assert count() == second["count"] + 1 and words("whales") == ["e"] and set(words("larks")) == {"d"}
    assert "".join(c["text"] for c in running.ask("GET", "/items/d").json()["chunks"]) == new
    assert good(running, "/add", text="whole again", id="d")["count"] == 1 and count() == 2 and not words("larks")
    assert running.ask("GET", "/items/d").json()["text"] == "whole again"
    twice = good(running, "/add", texts=[old, new, "whole", old], ids=["d", "d", "e", "e"], chunk={"size": 30})
    assert twice["chunks"][2] == 1 and count() == twice["count"] == twice["chunks"][1] + twice["chunks"][3]
    assert running.metrics()["fletch_store_items"] == count()
    assert running.ask("DELETE", "/items/e").json() == {"id": "e", "deleted": True} and count() == twice["chunks"][1]
    assert set(words("larks")) == {"d"} and not words("whales")
    assert running.end() == 0
    with sqlite3.connect(tmp_path / "s.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        db.execute("INSERT INTO words(words) VALUES ('integrity-check')")
    again = start("--server-store", tmp_path / "s.db")
    assert again.ask("GET", "/items").json()["count"] == twice["chunks"][1]
    assert again.ask("DELETE", "/items").json() == {"deleted": twice["chunks"][1]} and not search(again, text="larks", hybrid=True)


def test_context_is_embedded_and_told(server):
    template, title = "{title} ({n}): {{{chunk}}}", "Whales \"of\" \\ the sea"
    text = "They sing. They dive deep and far. " * 40
    reply = good(server, "/add", texts=[text, text, "short"], ids=["c1", "c2", "c3"], chunk={"size": 60}, context=template,
                 metadata={"title": title, "n": 7})
    item = server.ask("GET", "/items/c1").json()
    assert "".join(chunk["text"] for chunk in item["chunks"]) == text and reply["truncated"] == [False] * 3
    assert item["context"] == template == server.ask("GET", "/items/c3").json()["context"]
    assert "context" not in server.ask("GET", "/items/note").json()
    for got, chunk in [(item["chunks"][1]["embedding"], item["chunks"][1]["text"]),
                       (server.ask("GET", "/items/c3").json()["embedding"], "short")]:
        truth = server.ask(body=json.dumps({"inputs": [f"{title} (7): {{{chunk}}}"]}).encode()).json()[0]
        assert max(abs(a - b) for a, b in zip(truth, got)) < 1e-6
    long = good(server, "/add", text=text * 9, id="c1", chunk={}, context="{title}\n{chunk}", metadata={"title": title * 9})
    assert long["truncated"] == [False] and long["chunks"][0] > 10, "what the title takes is left out of the chunks"
    for name in ("c1", "c2", "c3"):
        assert server.ask("DELETE", "/items/" + name).status == 200


# ---- Searches --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("query", ["bread", "the stock market, forgotten passwords and boats in a garden", "emile ÜNI"])
def test_hybrid_is_the_sum_of_reciprocal_ranks(server, query):
    kept = rows(server)
    vector, words = cosines(server, query), bm25([row["text"] for row in kept], query)
    scores = fused(sorted(range(len(kept)), key=lambda i: -vector[i]), best(words))
    found = search(server, text=query, hybrid=True, k=1000)
    assert len(found) == len(scores) == len(kept)
    of = {(row["id"], row["chunk"]): scores[i] for i, row in enumerate(kept)}
    for hit in found:
        assert close(hit["score"], of[key_of(hit)]), (hit, of[key_of(hit)])
    assert [hit["score"] for hit in found] == sorted((hit["score"] for hit in found), reverse=True)


def test_words_are_ranked_by_bm25(start):
    """Texts whose order turns on how often they have which word and how long they are."""
    running, chance = start(), random.Random(7)
    vocabulary = "bread salt water yeast oven flour crust dough rye seed the and of with".split()
    texts = [" ".join(chance.choices(vocabulary, range(14, 0, -1), k=chance.randrange(2, 40))) for _ in range(120)]
    good(running, "/add", texts=texts, ids=list(map(str, range(len(texts)))))
    for _ in range(6):
        query = " ".join(chance.sample(vocabulary, chance.randrange(1, 5)))
        near = [int(hit["id"]) for hit in search(running, text=query, k=1000)]
        scores = fused(near, best(bm25(texts, query)))
        for hit in search(running, text=query, hybrid=True, k=1000, candidates=1000):
            assert close(hit["score"], scores[int(hit["id"])]), (query, hit)


@pytest.mark.parametrize("query", ['"', "bread\"", "bread AND NOT cats", "NEAR(bread, cats)", "*", "bread*", "text:bread", "^bread",
                                   "(bread", "bread OR", "-", "\0bread\0", "a" * 5000, "x " * 5000, "𝔘 — ‽", "'; DROP TABLE items;"])
def test_a_query_is_words_whatever_it_is_to_fts5(server, query):
    found = search(server, text=query, hybrid=True, highlight="words", k=1000)
    assert len(found) == len(rows(server))
    for hit in found:
        for word in hit["words"]:
            text = DOCUMENTS[hit["id"]]
            assert text.encode()[slice(*word["bytes"])].decode() == text[slice(*word["chars"])]
            assert words_of(text[slice(*word["chars"])])[0] in words_of(query)
    if words_of(query) == ["bread"]:
        assert sum(len(hit["words"]) for hit in found if hit["id"] == "bread") == 3


def test_searches_at_the_same_time_find_what_each_finds_alone(server):
    """Those that wait for a worker share one pass over the rows: each has its own k, words, and filter or none."""
    asked = [dict(text=row["text"], k=1 + i % 7, **(dict(hybrid=True) if i % 5 == 1 else {}), **(dict(filter={"long": True}) if i % 5 == 2 else {}))
             for i, row in enumerate(rows(server) * 4)]
    alone = [search(server, **body) for body in asked]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        assert list(pool.map(lambda body: search(server, **body), asked)) == alone


def test_filters_hold_in_every_way_of_searching(server):
    for more in ({"hybrid": True}, {"rerank": True}, {"hybrid": True, "rerank": True, "group_by": "document"}, {"group_by": "document"}):
        found = search(server, text="bread in Lima", k=100, filter={"long": True}, **more)
        assert {hit["id"] for hit in found} == {"book", "news"}, more
    assert search(server, text="bread", hybrid=True, filter={"long": 1}) == []


def test_rerank_gives_the_order_and_scores_of_its_route(server):
    query = "bread and butter"
    first = search(server, text=query, k=20)
    truth = good(server, "/rerank", model="rank", query=query, texts=[hit["text"] for hit in first])
    for body in ({"rerank": True}, {"rerank_model": "rank"}, {"rerank": True, "rerank_model": "rank"}):
        reply = good(server, "/search", text=query, k=5, candidates=20, **body)
        assert reply["reranker"] == "rank" and len(reply["results"]) == 5
        assert [key_of(hit) for hit in reply["results"]] == [key_of(first[row["index"]]) for row in truth[:5]]
        assert all(close(hit["score"], row["score"]) and hit["before"] == row["index"] + 1 for hit, row in zip(reply["results"], truth))


@pytest.mark.parametrize("more", [{}, {"hybrid": True}, {"rerank": True}], ids=str)
def test_groups_are_documents_with_their_best_chunks(server, more):
    query = "boats in the harbour"
    chunks = search(server, text=query, k=1000, **more)
    found = search(server, text=query, k=3, group_by="document", group_size=2, candidates=1000, **more)
    want = {}
    for hit in chunks:
        want.setdefault(hit["id"], []).append(hit)
    assert [hit["id"] for hit in found] == list(want)[:3]
    for hit in found:
        mine = want[hit["id"]][:2]
        assert close(hit["score"], mine[0]["score"]) and hit["metadata"] == mine[0]["metadata"] and "text" not in hit
        assert [chunk["chunk"] for chunk in hit["chunks"]] == [chunk.get("chunk", 0) for chunk in mine]
        for chunk in hit["chunks"]:
            assert DOCUMENTS[hit["id"]][slice(*chunk["chars"])] == chunk["text"]
            assert DOCUMENTS[hit["id"]].encode()[slice(*chunk["bytes"])].decode() == chunk["text"]


def test_one_document_does_not_hide_the_others(start):
    """The nearest 400 chunks are all of one document: the others are found behind it."""
    running = start()
    good(running, "/add", text="Bread is baked. " * 400, id="much", chunk={"size": 4})
    good(running, "/add", texts=["Ships sail.", "Shares fell.", "Keys were lost."], ids=["x", "y", "z"])
    found = search(running, text="Bread is baked.", group_by="document", group_size=1)
    assert found[0]["id"] == "much" and {hit["id"] for hit in found} == {"much", "x", "y", "z"}


def test_the_passage_is_the_nearest_part_of_the_text(server):
    text = ("The committee met again and spoke about many things of which little is known to anybody who was not there at the time. " * 3 +
            "The cat slept on the warm stove through all of the long winter night and did not wake up before the sun had risen. " +
            "Then everybody went home by train, as had been agreed upon before, and nobody spoke of it again for the rest of the year. " * 3)
    for body in ({"text": text, "id": "tale"}, {"text": text * 4, "id": "tale", "chunk": {"size": 200}}):
        good(server, "/add", **body, metadata={"tale": True})
        vector = server.ask(body=json.dumps({"inputs": ["a feline in bed"]}).encode()).json()[0]
        for query in ({"text": "a feline in bed"}, {"vector": vector}):
            hit = search(server, k=1, highlight="passage", filter={"tale": True}, **query)[0]
            whole, passage = body["text"], hit["passage"]
            assert hit["id"] == "tale" and "The cat slept on the warm stove" in passage["text"] and len(passage["text"]) < 300
            assert whole[slice(*passage["chars"])] == passage["text"] == whole.encode()[slice(*passage["bytes"])].decode()
            assert passage["text"] in hit["text"] and passage["text"] == passage["text"].rstrip()
    grouped = search(server, text="a feline in bed", k=1, filter={"tale": True}, group_by="document", highlight="passage")[0]["chunks"]
    assert "The cat slept" in grouped[0]["passage"]["text"] and all("passage" in chunk for chunk in grouped)
    assert server.ask("DELETE", "/items/tale").status == 200


# ---- What is refused -------------------------------------------------------------------------------------

@pytest.mark.parametrize("path, body, says", [
    ("/add", {"text": "", "chunk": {}}, "empty"), ("/add", {"text": "a", "chunk": {"size": 0}}, "size"),
    ("/add", {"text": "a", "chunk": {"size": 10, "overlap": 10}}, "overlap"), ("/add", {"text": "a", "chunk": {"overlap": 254}}, "less than size, which is 254"),
    ("/add", {"text": "a", "chunk": {"by": "pages"}}, "unknown variant"),
    ("/add", {"text": "a", "chunk": {"sice": 3}}, "unknown field `sice`"), ("/add", {"text": "a", "chunk": {"size": 255}}, "254"),
    ("/add", {"text": "a", "chunk": 5}, "chunk"), ("/add", {"text": "a", "context": "no place"}, "{chunk}"),
    ("/add", {"text": "a", "context": "{chunk"}, "name between"), ("/add", {"text": "a", "context": "{}{chunk}"}, "name between"),
    ("/add", {"text": "a", "context": "} {chunk}"}, "unmatched }"), ("/add", {"text": "a", "context": "{chunk}" * 33}, "32 pieces"),
    ("/add", {"text": "a", "context": "{title}{chunk}"}, "no text under \"title\""),
    ("/add", {"text": "a", "context": "{title}{chunk}", "metadata": {"title": ["x"]}}, "no text under"),
    ("/add", {"text": "a", "chunk": {}, "context": "{t}{chunk}", "metadata": {"t": "word " * 300}}, "leaves no room"),
    ("/search", {"text": "a", "group_by": "document", "group_size": 0}, "group_size"),
    ("/search", {"text": "a", "group_by": "document", "group_size": 1000000}, "from 1 to 100"),
    ("/search", {"text": "a", "group_by": "author"}, "unknown variant"), ("/search", {"text": "a", "group_size": 2}, "needs group_by"),
    ("/search", {"text": "a", "k": 500, "group_by": "document", "highlight": "passage"}, "at most 1000 texts"),
    ("/search", {"text": "a", "candidates": 5}, "at least k"), ("/search", {"text": "a", "candidates": 1001}, "from 1 to 1000"),
    ("/search", {"vector": [1] * 384, "hybrid": True}, "need a text"), ("/search", {"vector": [1] * 384, "rerank": True}, "need a text"),
    ("/search", {"vector": [1] * 384, "highlight": "words"}, "need a text"), ("/search", {"text": "a", "highlight": "bold"}, "unknown variant"),
    ("/search", {"text": "a", "rerank": False, "rerank_model": "rank"}, "needs rerank")])
def test_what_makes_no_sense_is_refused(server, path, body, says):
    before = server.metrics()["fletch_store_items"]
    reply = ask(server, path, **body)
    assert reply.status == 400 and says in reply.json()["error"] and reply.json()["code"] == "bad_request", reply
    assert server.metrics()["fletch_store_items"] == before


def test_a_reranker_that_is_not_there_is_named(server, start):
    reply = ask(server, "/search", text="a", rerank_model="nobody")
    assert reply.status == 404 and "rerank_model" in reply.json()["error"]
    reply = ask(server, "/search", text="a", rerank_model=serving.NAME)
    assert reply.status == 424 and "no scores" in reply.json()["error"]
    reply = ask(start(), "/search", text="a", rerank=True)
    assert reply.status == 424 and "no reranker" in reply.json()["error"] and "--model" in reply.json()["error"]


def test_a_document_beyond_the_limits_is_refused_by_the_limit_s_name(start):
    running = start("--server-max-body", "1MiB")
    reply = ask(running, "/add", text="word " * 300000, chunk={"size": 100})
    assert reply.status == 413 and "server.max_body" in reply.headers["x-fletch-limit"]
    reply = ask(running, "/add", text="word " * 20000, chunk={"size": 10}, metadata={"x": "y" * 1000})
    assert reply.status == 413 and "server.max_body" in reply.headers["x-fletch-limit"] and "each text or chunk" in reply.json()["error"]
    assert running.ask("GET", "/items").json()["count"] == 0
    small = start("--server-max-body-memory", "4MiB")
    reply = ask(small, "/add", text="# a\n" * 200000, chunk={"size": 10, "by": "markdown"})
    assert reply.status == 413 and "server.max_body_memory" in reply.json()["error"]
    assert small.ask("GET", "/items").json()["count"] == 0


def test_every_stage_keeps_its_deadline(server):
    for more in ({"hybrid": True}, {"rerank": True}, {"highlight": "passage"}, {"group_by": "document"}):
        reply = server.ask("POST", "/search", json.dumps({"text": "bread " * 2000, "k": 100, **more}).encode(), {"x-fletch-deadline-ms": "1"})
        assert reply.status == 504 and reply.json()["code"] == "deadline_exceeded", more
    before = server.ask("GET", "/items").json()["count"]
    body = json.dumps({"text": "Bread is baked here. " * 40000, "id": "late", "chunk": {"size": 20}}).encode()
    reply = server.ask("POST", "/add", body, {"x-fletch-deadline-ms": "20"})
    assert reply.status == 504 and server.ask("GET", "/items").json()["count"] == before


# ---- The file --------------------------------------------------------------------------------------------

def make_old(path):
    """What this store would be as the first format of it was."""
    with sqlite3.connect(path) as db:
        items = db.execute("SELECT seq, id, text, metadata, vector, created FROM items").fetchall()
        about = db.execute("SELECT name, value FROM about WHERE name <> 'words'").fetchall()
    for file in path.parent.glob(path.name + "*"):
        file.unlink()
    with sqlite3.connect(path) as db:
        db.executescript("PRAGMA journal_mode=WAL;" + OLD_TABLES)
        db.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?)", items)
        db.executemany("INSERT INTO about VALUES (?, ?)", about)
    db.close()


def test_a_store_of_the_first_format_is_brought_up_to_date(start, tmp_path):
    path, texts = tmp_path / "s.db", [f"{place} is a town of {n} gates" for n, place in enumerate(PLACES)]
    running = start("--server-store", path)
    good(running, "/add", texts=texts, ids=PLACES, metadata={"a": 1})
    before = search(running, text="gates of Lima")
    assert running.end() == 0
    make_old(path)
    again = start("--server-store", path)
    assert search(again, text="gates of Lima") == before
    assert search(again, text="Lima", hybrid=True, highlight="words")[0]["words"] == [{"bytes": [0, 4], "chars": [0, 4]}]
    assert good(again, "/add", text="Oslo is larger now. " * 50, id="Oslo", chunk={"size": 20})["chunks"][0] > 3
    assert again.end() == 0
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,) and db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        db.execute("INSERT INTO words(words) VALUES ('integrity-check')")


@pytest.mark.skipif(not shutil.which("cc") or not ctypes.util.find_library("sqlite3"), reason="no compiler, or no SQLite to do without")
def test_an_sqlite_without_fts5_serves_all_but_hybrid_and_the_index_is_made_again(start, tmp_path):
    """FTS5 hands out its functions through a pointer that is bound: without that it is as if it were not there."""
    if serving.SANITIZED:
        pytest.skip("a sanitizer wants to be loaded first")
    if "libsqlite3" not in subprocess.run(["ldd", serving.BIN], capture_output=True, text=True, check=False).stdout:
        pytest.skip("SQLite is inside of the program")
    (tmp_path / "no.c").write_text("int sqlite3_bind_pointer(void) { return 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "no.so", tmp_path / "no.c"], check=True)
    path = tmp_path / "s.db"
    first = start("--server-store", path)
    good(first, "/add", texts=["one whale", "two larks"], ids=["a", "b"])
    assert first.end() == 0
    plain = start("--server-store", path, env={"LD_PRELOAD": str(tmp_path / "no.so")})
    plain.wait_event(lambda event: "lacks FTS5" in event["msg"])
    for body in ({"hybrid": True}, {"highlight": "words"}):
        reply = ask(plain, "/search", text="whale", **body)
        assert reply.status == 424 and "FTS5" in reply.json()["error"]
    good(plain, "/add", texts=["three swans " * 40, "no lark"], ids=["a", "c"], chunk={"size": 20})
    assert plain.ask("DELETE", "/items/b").status == 200 and search(plain, text="swans")[0]["id"] == "a"
    assert plain.end() == 0
    last = start("--server-store", path)
    marked = {hit["id"] for hit in search(last, text="whale lark larks swans", hybrid=True, highlight="words") if hit["words"]}
    assert marked == {"a", "c"} and last.end() == 0
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO words(words) VALUES ('integrity-check')")


def test_a_text_that_others_have_changed_can_be_replaced(start, tmp_path):
    """The index of words does not know of it: what it has of the old text must not stand in the way."""
    path = tmp_path / "s.db"
    running = start("--server-store", path)
    good(running, "/add", texts=["one whale", "two larks"], ids=["a", "b"])
    with sqlite3.connect(path) as db:
        db.execute("UPDATE items SET text = ? WHERE id = 'a'", ["herons " * 5000])
        db.execute("UPDATE items SET text = CAST(x'61ff62' AS TEXT) WHERE id = 'b'")
    db.close()
    good(running, "/add", texts=["three swans", "four gulls"], ids=["a", "b"])
    found = search(running, text="swans gulls", hybrid=True, highlight="words")
    assert {hit["id"] for hit in found if hit["words"]} == {"a", "b"} and running.ask("DELETE", "/items").json() == {"deleted": 2}


def test_kill_9_leaves_a_store_whose_documents_are_whole(start, tmp_path):
    path = tmp_path / "s.db"
    running = start("--server-store", path)
    text = "The river rose in spring. Boats were lost. " * 30
    with serving.Raw(running.where) as raw:
        for i in range(40):
            body = json.dumps({"text": f"{i} {text}", "id": f"d{i % 7}", "chunk": {"size": 20}}).encode()
            raw.send(b"POST /add HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            if i == 20:
                running.kill()
                break
    again = start("--server-store", path)
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        for name, count, last in db.execute("SELECT document, count(*), max(chunk) FROM items GROUP BY document").fetchall():
            assert count == last + 1, name
            got = again.ask("GET", "/items/" + name).json()
            assert re.fullmatch(r"\d+ " + re.escape(text), "".join(chunk["text"] for chunk in got["chunks"])), name
