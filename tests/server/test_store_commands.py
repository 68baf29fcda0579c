# SPDX-License-Identifier: Apache-2.0
"""`fletch add` and `fletch search`: the store of a running server from the command line."""
import json
import socket
import subprocess
import threading

import pytest
import serving

TEXTS = ["A cat sleeps on the sofa.", "The dog chases a ball.", "Stocks fell sharply on Monday.", "How do I reset my password?"]
LOADING = b'HTTP/1.1 503 x\r\ncontent-length: 40\r\n\r\n{"error":"loading","code":"unavailable"}'


@pytest.fixture
def fletch(tmp_path):
    """fletch("add", ..., to=server) -> CompletedProcess, run beside a server and with nothing of its settings."""
    def run(*arguments, to=None, input="", **env):
        where = ("--port", to.port) if to else ()
        return subprocess.run([serving.BIN, *map(str, arguments[:1]), *map(str, where), *map(str, arguments[1:])],
                              capture_output=True, text=True, cwd=tmp_path, input=input, timeout=serving.WAIT,
                              env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **env}, check=False)
    return run


def lines(done):
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def stored(server):
    return [item["text"] for item in server.ask("GET", "/items?limit=1000").json()["items"]]


def test_add_and_search(start, fletch):
    server = start()
    added = lines(fletch("add", *TEXTS, to=server))
    assert [a["index"] for a in added] == [0, 1, 2, 3] and len({a["id"] for a in added}) == 4
    assert not any(a["truncated"] for a in added) and stored(server) == TEXTS
    found = lines(fletch("search", "feline", to=server))
    assert len(found) == 4 and found[0]["text"] == TEXTS[0] and found[0]["id"] == added[0]["id"]
    truth = server.ask("POST", "/search", json.dumps({"text": "feline"}).encode()).json()
    assert found == truth["results"], "as the server has it"
    assert json.loads(fletch("search", "feline", "--format", "json", to=server).stdout) == truth
    assert [f["text"] for f in lines(fletch("search", "-k", 1, "puppy", to=server))] == [TEXTS[1]]
    text = fletch("search", "--format", "text", "-k", "2", "feline", to=server).stdout.splitlines()
    assert len(text) == 2 and text[0] == f"{found[0]['score']:.4f}  {TEXTS[0]}"


def test_what_a_person_is_told(start, fletch, tmp_path):
    server = start()
    done = fletch("search", "anything", to=server)
    assert done.returncode == 0 and done.stdout == "" and "the store is empty" in done.stderr
    done = fletch("add", "--format", "text", "one", to=server)
    assert done.stdout == f"added 1 text to 127.0.0.1:{server.port}\n" and "in memory, until it stops" in done.stderr
    assert fletch("add", "-q", "two", to=server).stderr == ""
    done = fletch("add", "word " * 2000, to=server)
    assert lines(done)[0]["truncated"] and "1 of 1 texts was too long for the model" in done.stderr
    kept = start("--server-store", tmp_path / "s.db")
    assert fletch("add", "three", to=kept).stderr == ""


def test_files_fields_and_ids(start, fletch, tmp_path):
    server = start()
    (tmp_path / "a.txt").write_text("first line\nsecond line\n")
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(
        {"id": i, "body": t, "lang": "en" if i < 2 else "de"}) + "\n" for i, t in enumerate(TEXTS)))
    (tmp_path / "c.csv").write_text("key,text\nk-1,\"from a table\"\n")
    assert len(lines(fletch("add", "a.txt", to=server))) == 2
    for _ in range(2):  # the second time it replaces
        added = lines(fletch("add", "b.jsonl", "--field", "body", "--id-field", "id", "--keep-fields", to=server))
        assert [a["id"] for a in added] == ["0", "1", "2", "3"]
    assert [a["id"] for a in lines(fletch("add", "-i", "c.csv", "--id-field", "key", to=server))] == ["k-1"]
    assert stored(server) == ["first line", "second line", *TEXTS, "from a table"]
    assert server.ask("GET", "/items/3").json()["metadata"] == {"id": 3, "lang": "de"}
    assert server.ask("GET", "/items/k-1").json()["metadata"] is None, "ids alone are no metadata"
    found = lines(fletch("search", "--filter", '{"lang": "de"}', "-k", "10", "money", to=server))
    assert {f["id"] for f in found} == {"2", "3"}
    assert lines(fletch("add", "--", "a.txt", to=server)) and stored(server)[-1] == "a.txt"
    assert lines(fletch("add", "-", to=server, input="piped\n")) and stored(server)[-1] == "piped"
    done = fletch("add", "a.txt", "a text", to=server)
    assert done.returncode == 2 and "a.txt is a file, but not every argument is" in done.stderr


def test_many_texts_and_a_refused_one(start, fletch, tmp_path):
    server = start()
    (tmp_path / "many.txt").write_text("".join(f"text {i}\n" for i in range(600)))
    assert [a["index"] for a in lines(fletch("add", "many.txt", to=server))] == list(range(600))
    assert sorted(stored(server)) == sorted(f"text {i}" for i in range(600))
    (tmp_path / "bad.jsonl").write_text('{"text": "good", "id": "a"}\n{"text": "no id"}\n{"text": "late", "id": "b"}\n')
    done = fletch("add", "bad.jsonl", "--id-field", "id", to=server)
    assert done.returncode == 1 and "bad.jsonl:2" in done.stderr and "stopped after 1 text" in done.stderr
    assert server.ask("GET", "/items/a").status == 200 and server.ask("GET", "/items/b").status == 404
    done = fletch("add", "bad.jsonl", "--id-field", "id", "--on-error", "skip", to=server)
    assert done.returncode == 4 and server.ask("GET", "/items/b").status == 200


def test_keys(start, fletch, tmp_path):
    (tmp_path / "keys").write_text("# ours\nsha256:" + "0" * 64 + "\nsecret-key-1 rate=100 burst=100\n")
    server = start("--api-key-file", tmp_path / "keys")
    done = fletch("add", "a text", to=server)
    assert done.returncode == 1 and "refused: 401" in done.stderr and "--api-key-file" in done.stderr
    assert lines(fletch("add", "--api-key-file", "keys", "a text", to=server))
    assert lines(fletch("search", "a text", to=server, FLETCH_SERVER_API_KEY_FILE=str(tmp_path / "keys")))
    (tmp_path / "none").write_text("sha256:" + "0" * 64 + "\n")
    assert fletch("search", "--api-key-file", "none", "a", to=server).returncode == 2


def test_sockets_and_prompts(start, fletch, short):
    server = start("--unix-socket", short / "s", "--host", "none")
    there = ("--host", "none", "--unix-socket", short / "s")
    assert lines(fletch("add", *there, "over a socket")) and lines(fletch("search", *there, "socket"))
    done = fletch("search", *there, "--prompt-name", "nobody", "socket")
    assert done.returncode == 1 and "prompt_name" in done.stderr
    server.kill()
    done = fletch("add", *there, "gone")
    assert done.returncode == 1 and "no server at" in done.stderr and "fletch serve" in done.stderr


def test_a_server_without_a_store(start, fletch):
    done = fletch("add", "a text", to=start("--server-store", "none"))
    assert done.returncode == 1 and "refused: 404 this server has no store" in done.stderr


@pytest.mark.parametrize("answer, says", [
    (LOADING, "refused: 503 loading"),
    (LOADING.replace(b"40", b"41"), "no server at"),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "it returns no ids"),
    (b"HTTP/1.1 200 OK\r\n\r\nnot json", "is not a fletch server: its answer"),
    (b"220 mail.example ESMTP\r\n", "no server at"),
])
def test_something_else_that_listens(fletch, answer, says):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def talk():
            peer, _ = listener.accept()
            with peer:
                got = b""
                while not got.endswith(b"}"):
                    more = peer.recv(65536)
                    if not more:
                        return
                    got += more
                peer.sendall(answer)
        listener.settimeout(serving.WAIT)
        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        done = fletch("add", "--port", listener.getsockname()[1], "a text")
        assert done.returncode != 0 and says in done.stderr, done.stderr
        thread.join()


@pytest.mark.parametrize("arguments", [
    ["search"], ["search", ""], ["search", "two", "words"], ["search", "-k", "x", "a"], ["search", "-k", "0", "a"],
    ["search", "--filter", "{", "a"], ["search", "--filter", "[]", "a"], ["search", b"\xff"], ["add", "--port", "0", "a"],
    ["add", "--host", "none", "a"], ["add", "--format", "npy", "a"],
], ids=str)
def test_wrong_usage(tmp_path, arguments):
    done = subprocess.run([serving.BIN, *arguments], capture_output=True, cwd=tmp_path, env={"HOME": str(tmp_path)}, check=False)
    assert done.returncode == 2 and done.stdout == b"", done


LONG = "The ferry to the island leaves at noon. " * 20 + "Dogs travel free of charge. " + "Tickets are sold on the quay. " * 20


def test_long_texts_go_in_as_chunks_and_are_found_by_document(start, fletch, tmp_path):
    server = start("--model", serving.MODEL, "--model", f"rank={serving.ROOT}/tests/golden/scores/bert", model=False)
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": "ferry", "title": "The ferry", "text": LONG}) + "\n" +
                                      json.dumps({"id": "short", "title": "A note", "text": "Cats stay at home."}) + "\n")
    added = lines(fletch("add", "a.jsonl", "--id-field", "id", "--keep-fields", "--chunk-size", 48, "--chunk-overlap", 8, "--chunk", "sentences",
                         "--context", "{title}\\n{chunk}", to=server))
    assert [a["id"] for a in added] == ["ferry", "short"] and added[0]["chunks"] > 5 and added[1]["chunks"] == 1
    item = server.ask("GET", "/items/ferry").json()
    truth = server.ask(body=json.dumps({"inputs": ["The ferry\n" + item["chunks"][2]["text"]]}).encode()).json()[0]
    assert max(abs(a - b) for a, b in zip(truth, item["chunks"][2]["embedding"])) < 1e-6
    done = fletch("add", "--format", "text", "--chunk", "sentences", "a.jsonl", "--id-field", "id", to=server)
    assert done.stdout.startswith("added 2 texts in 3 chunks to ")
    query = "may I bring my puppy"
    for flags, body in ((["--hybrid"], {"hybrid": True}), (["--rerank"], {"rerank": True}), (["--rerank-model", "rank"], {"rerank": True}),
                        (["--group", "--group-size", 2, "--highlight", "passage", "--candidates", 50, "-k", 1],
                         {"group_by": "document", "group_size": 2, "highlight": "passage", "candidates": 50, "k": 1}),
                        (["--highlight", "words"], {"highlight": "words"})):
        found = lines(fletch("search", query, *flags, to=server))
        assert found == server.ask("POST", "/search", json.dumps({"text": query, **body}).encode()).json()["results"], flags
    text = fletch("search", "--format", "text", "--group", "--highlight", "passage", "-k", 1, query, to=server).stdout.splitlines()
    assert text[0] == "ferry" and "Dogs travel free" in text[1] and len(text) == 3


@pytest.mark.parametrize("arguments, says", [
    (["add", "x", "--chunk-size", "0"], "--chunk-size takes a number"), (["add", "x", "--chunk-overlap", "-1"], "--chunk-overlap takes a number"),
    (["add", "x", "--context", "{title}"], "{chunk}"), (["search", "x", "--group-size", "0"], "--group-size takes a number of at least 1"),
    (["search", "x", "--candidates", "many"], "--candidates takes a number"), (["search", "x", "--highlight", "bold"], "passage")])
def test_wrong_flags_of_chunks_and_stages_are_usage(fletch, arguments, says):
    done = fletch(*arguments)
    assert done.returncode == 2 and says in done.stderr and done.stdout == ""


def test_what_the_server_cannot_do_ends_with_its_reason(start, fletch):
    server = start()
    done = fletch("search", "x", "--rerank", to=server)
    assert done.returncode == 1 and "no reranker" in done.stderr
    done = fletch("add", "x", "--context", "{title}{chunk}", to=server)
    assert done.returncode == 1 and "no text under \"title\"" in done.stderr
