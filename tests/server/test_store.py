# SPDX-License-Identifier: Apache-2.0
"""/add, /search and /items: what was acknowledged is kept and found, and the order is that of the exact cosine."""
import json
import math
import os
import random
import sqlite3
import struct
import subprocess
import threading

import pytest
import serving

JSON = {"content-type": "application/json"}


def ask(server, path, **body):
    return server.ask("POST", path, json.dumps(body).encode())


@pytest.fixture
def kept(start, tmp_path):
    return start("--server-store", tmp_path / "store.db")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One server with a store for the tests that need no other."""
    if not os.path.exists(os.path.join(serving.MODEL, "model.safetensors")):
        pytest.skip("FLETCH_MODEL names no model folder (make model)")
    folder = tmp_path_factory.mktemp("store")
    running = serving.Server(folder, "--server-store", folder / "store.db")
    yield running
    assert running.end() == 0, running.log()


def vectors(server, texts):
    return server.ask(body=json.dumps({"inputs": texts}).encode()).json()


def test_added_texts_are_found_in_the_order_of_their_cosine(shared):
    texts = [f"{animal} {verb} in the {place}" for animal in ("cat", "dog", "stork") for verb in ("sleeps", "runs")
             for place in ("garden", "office", "sea")]
    reply = ask(shared, "/add", texts=texts, ids=[f"order-{i}" for i in range(len(texts))], metadata={"test": "order"})
    assert reply.status == 200 and reply.json()["ids"] == [f"order-{i}" for i in range(len(texts))]
    rows, query = vectors(shared, texts), vectors(shared, ["a feline rests among flowers"])[0]
    truth = sorted(((sum(a * b for a, b in zip(row, query)), i) for i, row in enumerate(rows)), reverse=True)
    for body in ({"text": "a feline rests among flowers"}, {"vector": [7 * x for x in query]}):
        got = ask(shared, "/search", k=5, filter={"test": "order"}, **body).json()
        assert [hit["id"] for hit in got["results"]] == [f"order-{i}" for _, i in truth[:5]]
        for hit, (score, i) in zip(got["results"], truth):
            assert abs(hit["score"] - score) < 1e-5 and hit["text"] == texts[i] and hit["metadata"] == {"test": "order"}


@pytest.mark.parametrize("way", ["int8", "signs"])
def test_a_search_by_codes_counts_what_it_finds(start, way):
    """Fewer items than are compared exactly: the answer is the exact one, and the first search of 128 is checked."""
    server = start("--server-store-search", way)
    texts = [f"{animal} {verb}" for animal in ("cat", "dog", "stork") for verb in ("sleeps", "runs", "eats")]
    assert ask(server, "/add", texts=texts, ids=texts).status == 200
    rows, query = vectors(server, texts), vectors(server, ["a feline rests"])[0]
    truth = sorted(zip(rows, texts), key=lambda item: -sum(a * b for a, b in zip(item[0], query)))
    for _ in range(3):
        got = ask(server, "/search", text="a feline rests", k=4).json()["results"]
        assert [hit["id"] for hit in got] == [text for _, text in truth[:4]]
    metrics = server.metrics()
    assert metrics["fletch_store_checked_hits_total"] == metrics["fletch_store_recalled_hits_total"] == 4


def test_one_text_gets_an_id_and_can_be_read_replaced_and_dropped(shared):
    added = ask(shared, "/add", text="a text without id").json()
    assert len(added["id"]) == 32 and added["ids"] == [added["id"]]
    item = shared.ask("GET", "/items/" + added["id"]).json()
    assert item["text"] == "a text without id" and item["metadata"] is None
    truth = vectors(shared, ["a text without id"])[0]
    assert max(abs(a - b) for a, b in zip(item["embedding"], truth)) < 1e-6
    assert ask(shared, "/add", text="another text", id=added["id"], metadata={"v": 2}).status == 200
    item = shared.ask("GET", "/items/" + added["id"]).json()
    assert item["text"] == "another text" and item["metadata"] == {"v": 2}
    first = ask(shared, "/search", text="another text", k=1).json()["results"][0]
    assert first["id"] == added["id"] and first["score"] > 0.9999
    assert shared.ask("DELETE", "/items/" + added["id"]).json() == {"id": added["id"], "deleted": True}
    assert shared.ask("DELETE", "/items/" + added["id"]).status == 404
    assert shared.ask("GET", "/items/" + added["id"]).status == 404
    assert added["id"] not in [hit["id"] for hit in ask(shared, "/search", text="another text", k=1000).json()["results"]]


@pytest.mark.parametrize("name, path", [("a/b ü%", "a%2Fb%20%C3%BC%25"), ("..", ".."), ("x\"\\", "x%22%5C")])
def test_ids_are_any_printable_text(shared, name, path):
    assert ask(shared, "/add", text="odd", id=name).json()["id"] == name
    assert shared.ask("GET", "/items/" + path).json()["id"] == name
    assert shared.ask("DELETE", "/items/" + path).status == 200


@pytest.mark.parametrize("wanted, ids", [
    ({"lang": "en"}, {"f1", "f2"}), ({"lang": "en", "n": 1}, {"f1"}), ({"n": 1.0}, {"f1"}), ({"n": True}, {"f3"}),
    ({"n": None}, {"f2"}), ({"a\"b": "ü"}, {"f3"}), ({"lang": "EN"}, set()), ({"none": 1}, set()),
    ({"k\0a": "x\0y"}, {"f3"}), ({"k\0b": "x\0y"}, set()), ({"k\0a": "x\0z"}, set()), ({}, {"f1", "f2", "f3"})])
def test_filter_is_exact(shared, wanted, ids):
    reply = ask(shared, "/add", texts=["one", "two", "three"], ids=["f1", "f2", "f3"],
                metadata=[{"lang": "en", "n": 1}, {"lang": "en", "n": None},
                          {"lang": "de", "n": True, "a\"b": "ü", "k\0a": "x\0y"}])
    assert reply.status == 200
    found = {hit["id"] for hit in ask(shared, "/search", text="one", k=1000, filter=wanted).json()["results"]}
    assert {name for name in found if name in ("f1", "f2", "f3")} == ids


def test_large_metadata_costs_no_more_than_its_size(kept):
    """Sixty-four keys against five thousand of each item; and a search ends when nobody can use it any more."""
    large = {f"k{i}": i for i in range(5000)}
    for part in range(4):
        assert ask(kept, "/add", texts=[f"text {part} {i}" for i in range(32)], metadata=large).status == 200
    wanted = {f"k{i}": float(i) for i in range(4936, 5000)}
    vector = [1] * 384
    found = ask(kept, "/search", vector=vector, k=1000, filter=wanted).json()
    assert found["count"] == 128
    reply = kept.ask("POST", "/search", json.dumps({"vector": vector, "filter": wanted}).encode(),
                     {"x-fletch-deadline-ms": "1"})
    assert reply.status == 504 and reply.json()["code"] == "deadline_exceeded"
    assert ask(kept, "/search", vector=vector, k=1).json()["count"] == 1


@pytest.mark.parametrize("path, body, says", [
    ("/add", {}, "give text or texts"), ("/add", {"text": "a", "texts": ["b"]}, "give text or texts"),
    ("/add", {"text": ""}, "empty"), ("/add", {"texts": []}, "empty"), ("/add", {"texts": ["a", ""]}, "empty"),
    ("/add", {"text": 1}, "text: invalid type"), ("/add", {"text": "a", "id": ""}, "an id has 1 to 512 bytes"),
    ("/add", {"text": "a", "id": "x" * 513}, "an id has"), ("/add", {"text": "a", "id": "a\nb"}, "an id has"),
    ("/add", {"text": "a", "ids": ["x"]}, "use id with text"), ("/add", {"texts": ["a"], "id": "x"}, "use id with text"),
    ("/add", {"texts": ["a", "b"], "ids": ["x"]}, "as many ids"), ("/add", {"texts": ["a"], "ids": []}, "as many ids"),
    ("/add", {"text": "a", "metadata": 5}, "metadata"), ("/add", {"text": "a", "metadata": [{}, {}]}, "metadata"),
    ("/add", {"texts": ["a", "b"], "metadata": [{}]}, "metadata"), ("/add", {"text": "a", "metadata": ["x"]}, "metadata"),
    ("/add", {"text": "a", "prompt_name": "nobody"}, "no prompt"),
    ("/search", {}, "give text or vector"), ("/search", {"text": ""}, "empty"), ("/search", {"text": "a", "k": 0}, "k:"),
    ("/search", {"text": "a", "k": 1001}, "k:"), ("/search", {"vector": [1]}, "384 dimensions"),
    ("/search", {"vector": [0] * 384}, "no direction"), ("/search", {"vector": [1] * 385}, "384 dimensions"),
    ("/search", {"vector": ["1"] * 384}, "list of numbers"), ("/search", {"vector": "x"}, "list of numbers"),
    ("/search", {"text": "a", "filter": {str(i): 1 for i in range(65)}}, "at most 64"),
    ("/search", {"text": "a", "filter": []}, "filter"), ("/search", {"text": "a", "filter": {"a": [1]}}, "filter")])
def test_what_makes_no_sense_is_refused(shared, path, body, says):
    reply = ask(shared, path, **body)
    assert reply.status == 400 and says in reply.json()["error"] and reply.json()["code"] == "bad_request", reply


@pytest.mark.parametrize("name", ["k", "top_k", "limit"])
def test_k_has_the_names_that_others_give_it(shared, name):
    assert ask(shared, "/add", texts=["one", "two", "three"], metadata={"test": name}).status == 200
    assert ask(shared, "/search", text="one", filter={"test": name}, **{name: 2}).json()["count"] == 2
    for both in {"k", "top_k", "limit"} - {name}:
        reply = ask(shared, "/search", text="one", **{name: 2, both: 2})
        assert reply.status == 400 and "are synonyms" in reply.json()["error"]


@pytest.mark.parametrize("name", ["min_score", "offset", "threshold", "x" * 1000])
def test_a_search_refuses_by_name_what_it_would_not_obey(shared, name):
    reply = ask(shared, "/search", text="one", **{name: 1})
    assert reply.status == 400 and f"unknown field `{name[:64]}`" in reply.json()["error"]


def test_an_id_that_comes_twice_is_one_item(kept):
    """The last text stays, in one request and across several; count and metric are those of the items."""
    reply = ask(kept, "/add", texts=["first", "other", "second"], ids=["x", "y", "x"]).json()
    assert reply["ids"] == ["x", "y", "x"] and reply["count"] == 2
    assert kept.ask("GET", "/items/x").json()["text"] == "second"
    assert ask(kept, "/add", text="third", id="x").json()["count"] == 1
    assert kept.metrics()["fletch_store_items"] == 2
    found = ask(kept, "/search", text="third", k=10).json()
    assert found["searched"] == 2 and [hit["id"] for hit in found["results"]] == ["x", "y"]
    kept.ask("DELETE", "/items/x")
    assert kept.metrics()["fletch_store_items"] == 1


def test_with_the_store_none_the_routes_say_how_to_get_one(start):
    running = start("--server-store", "none")
    for method, path in (("POST", "/add"), ("POST", "/search"), ("GET", "/items/a"), ("DELETE", "/items/a"),
                         ("GET", "/items"), ("DELETE", "/items")):
        reply = running.ask(method, path, b"{}")
        assert reply.status == 404 and "--server-store" in reply.json()["error"]
    assert "fletch_store_items" not in running.metrics()


def test_without_server_store_what_is_added_is_in_memory_and_says_so(start, tmp_path):
    running = start()
    assert "in memory" in running.wait_event(lambda event: event["msg"].startswith("store:"))["msg"]
    added = ask(running, "/add", texts=["a cat", "a tax return"], ids=["cat", "tax"], metadata={"n": 1}).json()
    assert added["store"] == "memory" and added["ids"] == ["cat", "tax"]
    found = ask(running, "/search", text="a feline", k=1, filter={"n": 1}).json()
    assert found["store"] == "memory" and [hit["id"] for hit in found["results"]] == ["cat"]
    listed = running.ask("GET", "/items").json()
    assert listed["store"] == "memory" and listed["count"] == 2
    assert running.ask("DELETE", "/items/cat").status == 200 and running.metrics()["fletch_store_items"] == 1
    assert running.end() == 0
    assert start().ask("GET", "/items").json()["count"] == 0
    assert not [path for path in tmp_path.rglob("*") if "memory" in path.name or path.suffix == ".db"]


def test_memory_has_a_bound_that_deleting_gives_back(start):
    running = start("--server-max-body", "64MiB")
    large, kept_items = {"x": "y" * (30 << 20)}, 0
    while (reply := ask(running, "/add", text="a", metadata=large)).status == 200:
        kept_items += 1
        assert kept_items < 8
    assert reply.status == 507 and "--server-store" in reply.json()["error"] and reply.json()["code"] == "store_full"
    assert kept_items == 4 and running.ask("GET", "/items?limit=1&offset=9").json()["count"] == kept_items
    assert running.ask("DELETE", "/items").json() == {"deleted": kept_items}
    assert ask(running, "/add", text="a", metadata=large).status == 200


def test_memory_serves_readers_and_writers_at_once(start):
    """One connection has both; what was acknowledged is found."""
    running, wrong = start(), []

    def work(number):
        for i in range(20):
            name = f"{number}-{i}"
            good = (ask(running, "/add", text=f"text {name}", id=name, metadata={"n": number}).status == 200
                    and running.ask("GET", "/items/" + name).json()["text"] == f"text {name}"
                    and ask(running, "/search", text="text", k=100, filter={"n": number}).json()["count"] == i + 1)
            if not good:
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and running.ask("GET", "/items").json()["count"] == 120


def test_items_are_listed_by_pages_and_all_are_dropped(kept):
    names = [f"i{i}" for i in range(25)]
    assert ask(kept, "/add", texts=["t"] * 25, ids=names, metadata={"a": 1}).json()["store"] == "file"
    got = []
    for offset in (0, 10, 20, 30):
        page = kept.ask("GET", f"/items?offset={offset}&limit=10").json()
        assert (page["count"], page["offset"], page["limit"]) == (25, offset, 10)
        got += [item["id"] for item in page["items"]]
    assert got == names
    one = kept.ask("GET", "/items?limit=1").json()["items"][0]
    assert one == {"id": "i0", "created": one["created"], "text": "t", "metadata": {"a": 1}} and one["created"] > 10**9
    for query in ("limit=0", "limit=1001", "offset=-1", "limit=x", "offset="):
        assert kept.ask("GET", "/items?" + query).status == 400, query
    assert kept.ask("DELETE", "/items").json() == {"deleted": 25}
    assert kept.ask("DELETE", "/items").json() == {"deleted": 0}
    assert ask(kept, "/search", text="t").json()["count"] == 0 and kept.metrics()["fletch_store_items"] == 0
    assert ask(kept, "/add", text="again", id="i3").status == 200
    assert [hit["id"] for hit in ask(kept, "/search", text="again").json()["results"]] == ["i3"]


def test_all_of_a_request_or_nothing(kept):
    assert ask(kept, "/add", texts=["one", "two"], ids=["a", "b\x01"]).status == 400
    assert kept.ask("GET", "/items/a").status == 404


def test_a_restart_finds_everything_again(start, tmp_path):
    first = start("--server-store", tmp_path / "s.db")
    assert ask(first, "/add", texts=["red apples", "fast cars"], ids=["x", "y"]).status == 200
    assert first.ask("DELETE", "/items/y").status == 200
    assert first.end() == 0
    second = start("--server-store", tmp_path / "s.db")
    got = ask(second, "/search", text="fruit").json()
    assert [hit["id"] for hit in got["results"]] == ["x"] and got["searched"] == 1


def test_adds_drops_and_searches_side_by_side(shared):
    wrong = []

    def work(number):
        for i in range(12):
            name = f"side-{number}-{i}"
            added = ask(shared, "/add", text=f"note {name}", id=name, metadata={"test": "side"})
            found = ask(shared, "/search", text=f"note {name}", k=1000, filter={"test": "side"})
            if added.status != 200 or name not in [hit["id"] for hit in found.json()["results"]]:
                wrong.append((name, added, found))
            if i % 2 and shared.ask("DELETE", f"/items/{name}").status != 200:
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = ask(shared, "/search", text="note", k=1000, filter={"test": "side"}).json()["results"]
    assert not wrong and {hit["id"] for hit in left} == {f"side-{n}-{i}" for n in range(5) for i in range(0, 12, 2)}


def adder(server, number, acknowledged):
    """Adds until the server is gone; notes what it was told is kept."""
    count = 0
    try:
        while True:
            name = f"{number}-{count}"
            if ask(server, "/add", text=f"text {name}", id=name).status == 200:
                acknowledged.append(name)
            count += 1
    except OSError:
        pass
    except Exception as error:  # a torn reply is no acknowledgement either
        assert "http.client" in type(error).__module__, error


@pytest.mark.parametrize("after", [40, 150])
def test_kill_9_loses_nothing_acknowledged(start, tmp_path, after):
    server = start("--server-store", tmp_path / "s.db")
    acknowledged = []
    threads = [threading.Thread(target=adder, args=(server, i, acknowledged)) for i in range(6)]
    for thread in threads:
        thread.start()
    serving.until(lambda: len(acknowledged) >= after)
    server.kill()
    for thread in threads:
        thread.join()
    assert len(acknowledged) >= after
    again = start("--server-store", tmp_path / "s.db")
    for name in acknowledged:
        assert again.ask("GET", f"/items/{name}").json()["text"] == f"text {name}"
    some = random.Random(1).choice(acknowledged)
    assert some in [hit["id"] for hit in ask(again, "/search", text=f"text {some}", k=5).json()["results"]]
    assert sqlite3.connect(tmp_path / "s.db").execute("PRAGMA integrity_check").fetchone() == ("ok",)


def refused(start, tmp_path, *flags):
    server = start(*flags, ready=False)
    code = server.process.wait(serving.WAIT)
    return code, server.log()


def test_a_store_that_goes_on_under_another_vector_id_says_so(start, tmp_path):
    path = tmp_path / "s.db"
    server = start("--server-store", path)
    told = server.ask("GET", "/info").json()["vector_id"]
    assert server.ask("POST", "/add", b'{"text": "one"}').status == 200 and server.end() == 0 and "vector id" not in server.log()
    same = start("--server-store", path)
    assert same.end() == 0 and "vector id" not in same.log()
    other = start("--server-store", path, "--model-max-length", "16")
    now = other.ask("GET", "/info").json()["vector_id"]
    assert other.end() == 0 and f"created under vector id {told[:12]} and continues under {now[:12]}" in other.log()


def test_verify_says_whether_a_store_is_still_of_its_model(start, tmp_path):
    """While the server has it open, too. The model's own vectors are not of length 1, those of the store are."""
    toy = serving.ROOT / "tests/golden/folders/plain-bert"
    server = start("--server-store", tmp_path / "s.db", "-m", toy, model=False)
    assert ask(server, "/add", texts=[f"text {i} on a mat" for i in range(40)] + ["long " * 90]).status == 200

    def verify(*flags):
        done = subprocess.run([serving.BIN, "verify", "-q", "--format", "json", "-m", toy, tmp_path / "s.db", *flags],
                              capture_output=True, timeout=serving.WAIT)
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr.decode()

    code, said = verify("--exact")
    assert (code, said["verdict"], said["vectors"], said["differs"]) == (0, "same bytes", 41, [])
    assert server.end() == 0
    assert verify("--cpu-isa", "ref", "--exact")[0] == 0
    code, said = verify("--max-length", "8")
    assert code == 1 and said["same_bytes"] < 41 and [part["name"] for part in said["differs"]] == ["vector_id"]
    base = sqlite3.connect(tmp_path / "s.db")
    base.execute("UPDATE items SET vector = zeroblob(12) WHERE seq = 7")
    base.commit()
    base.close()
    code, said = verify()
    assert code == 3 and "row 7 has 3 numbers where earlier rows have 32" in said


def test_vectors_of_another_model_are_refused(start, tmp_path):
    path = tmp_path / "s.db"
    assert start("--server-store", path).end() == 0
    base = sqlite3.connect(path)
    base.execute("UPDATE about SET value = 'f00' WHERE name = 'fingerprint'")
    base.commit()
    base.close()
    code, log = refused(start, tmp_path, "--server-store", path)
    assert code == 2 and "holds vectors of another model" in log and "server.store" in log


def test_other_files_and_places_are_refused(start, tmp_path):
    (tmp_path / "text").write_text("no database, but long enough to be looked at " * 20)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE t(a)")
    other.commit()
    other.close()
    for path, says in (("text", "not a database"), ("other.db", "not a store of fletch"), ("none/s.db", "none/s.db")):
        code, log = refused(start, tmp_path, "--server-store", tmp_path / path)
        assert code in (1, 2) and says in log, log
    assert sqlite3.connect(tmp_path / "other.db").execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_two_servers_do_not_share_a_file(kept, start, tmp_path):
    code, log = refused(start, tmp_path, "--server-store", tmp_path / "store.db")
    assert code == 2 and "in use by another process" in log
    assert ask(kept, "/add", text="still here").status == 200


def test_a_damaged_vector_is_told(start, tmp_path):
    path = tmp_path / "s.db"
    server = start("--server-store", path)
    assert ask(server, "/add", text="a").status == 200
    assert server.end() == 0
    base = sqlite3.connect(path)
    base.execute("UPDATE items SET vector = x'00'")
    base.commit()
    base.close()
    code, log = refused(start, tmp_path, "--server-store", path)
    assert code in (1, 3) and "is damaged" in log


def test_the_file_can_be_read_by_others_while_it_is_served(kept, tmp_path):
    assert ask(kept, "/add", text="seen from outside", id="o").status == 200
    text, vector = sqlite3.connect(tmp_path / "store.db").execute("SELECT text, vector FROM items").fetchone()
    row = struct.unpack("<384f", vector)
    assert text == "seen from outside" and math.isclose(sum(x * x for x in row), 1, abs_tol=1e-5)


def test_rows_that_others_have_damaged_say_so_in_their_place(start, tmp_path):
    """A list and a search answer all that is whole; the one item that is not is an error."""
    path = tmp_path / "s.db"
    running = start("--server-store", path)
    damages = {"empty": "vector = x''", "narrow": "vector = x'0000803f'", "text": "text = CAST(x'61ff62' AS TEXT)",
               "number": "metadata = '1'", "syntax": "metadata = '{\"a\":1}}'",
               "bytes": "metadata = CAST(x'7b2261223a22ff227d' AS TEXT)"}
    names = [*damages, "id", "whole"]
    assert ask(running, "/add", texts=names, ids=names, metadata={"a": 1}).status == 200
    with sqlite3.connect(path) as db:
        for name, change in damages.items():
            db.execute(f"UPDATE items SET {change} WHERE id = '{name}'")
        db.execute("UPDATE items SET id = CAST(x'69fe64' AS TEXT) WHERE id = 'id'")
    db.close()
    for name in names[:-2]:
        assert running.ask("GET", f"/items/{name}").status == 500, name
    assert running.ask("GET", "/items/whole").status == 200
    wrong = {"empty": "its vector", "narrow": "its vector", "text": "its text", "id": "its id", "number": "its metadata",
             "syntax": "its metadata", "bytes": "its metadata"}
    for reply, items in ((running.ask("GET", "/items"), "items"), (ask(running, "/search", text="a"), "results")):
        told = {item["id"].replace("?", ""): item for item in reply.json()[items]}
        assert reply.status == 200 and set(told) == set(names)
        assert told["whole"]["text"] == "whole" and told["whole"]["metadata"] == {"a": 1} and "error" not in told["whole"]
        for name, why in wrong.items():
            assert told[name]["error"].startswith(why) and "text" not in told[name], (name, told[name])
    assert running.end() == 0


@pytest.mark.parametrize("link", ["soft", "hard"])
def test_another_name_is_the_same_file(start, tmp_path, link):
    first = start("--server-store", tmp_path / "s.db")
    other = tmp_path / "folder"
    other.mkdir()
    if link == "soft":
        (other / "t.db").symlink_to(tmp_path / "s.db")
    else:
        os.link(tmp_path / "s.db", other / "t.db")
    second = start("--server-store", other / "t.db", ready=False)
    assert second.process.wait(serving.WAIT) == 2
    assert ("in use by another process" if link == "soft" else "hard links") in second.log()
    assert first.ask(path="/add", body=b'{"text":"hello"}').status == 200
    assert first.end() == 0
