# SPDX-License-Identifier: Apache-2.0
"""Everything that a client can make the server keep or do has a bound: bytes of replies, time, what is written."""
import json
import socket
import threading
import time

import pytest
import serving
from serving import Raw, request

WORDS = json.dumps({"inputs": "a " * 50_000}).encode()  # 2.9 MB of tokens


def standing(running, body, path="/tokenize", method="POST"):
    """A client that asks and never reads."""
    raw = Raw.__new__(Raw)
    raw.socket, raw.held = socket.socket(), b""
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.socket.settimeout(serving.WAIT)
    raw.socket.connect(running.where)
    return raw.send(request(method, path, body))


def test_replies_that_nobody_reads(start):
    patience = "30" if serving.SANITIZED else "1"  # replies that are slow to make must not be ended before there are enough
    running = start("--server-max-reply-memory", "16MiB", "--server-write-seconds", patience)
    assert running.ask(path="/tokenize", body=WORDS).status == 200
    before = running.resident()
    readers = [standing(running, WORDS) for _ in range(24)]
    try:
        refused = serving.until(lambda: next((reply for reply in [running.ask(path="/tokenize", body=WORDS)]
                                              if reply.status != 200), None))
        assert refused.status == 503 and int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-fletch-limit"] == "server.max_reply_memory"
        assert running.resident() - before < 80_000_000
        assert running.embed("small replies pass").status == 200
        serving.until(lambda: running.ask(path="/tokenize", body=WORDS).status == 200)  # who stood still was ended
    finally:
        for raw in readers:
            raw.socket.close()
    alone = running.ask(path="/tokenize", body=json.dumps({"inputs": "a " * 400_000}).encode())
    assert alone.status == 413 and alone.headers["x-fletch-limit"] == "server.max_reply_memory"
    assert running.end() == 0


TEXTS = [f"text {i}" for i in range(64)]  # whose vectors have 290,000 bytes
EMBED, OPENAI = {"inputs": TEXTS}, {"input": TEXTS}
RANK = {"query": "a", "texts": TEXTS, "documents": TEXTS, "text_1": "a", "text_2": TEXTS}
BODIES = {  # of every route that takes one: what makes its answer large, or None: it has no large ones
    "/start_profile": None, "/stop_profile": None, "/models/load": None, "/models/unload": None, "/v1/files": None, "/v1/batches": None,
    "/v1/batches/{id}/cancel": None, "/api/show": None, "/api/pull": None, "/api/embeddings": None,
    "/v1/embeddings": OPENAI, "/embeddings": OPENAI, "/embed": EMBED, "/": EMBED, "/embed_all": EMBED,
    "/zero-shot-classification": EMBED | {"parameters": {"candidate_labels": TEXTS}}, "/embed_sparse": EMBED, "/predict": EMBED, "/api/embed": {"model": "a", **OPENAI}, "/v2/embed": {"texts": TEXTS},
    "/similarity": {"inputs": {"source_sentence": "a", "sentences": TEXTS * 40}}, "/tokenize": {"inputs": "a " * 2000},
    "/decode": {"ids": [[2000] * 200] * 64}, "/rerank": RANK, "/v1/rerank": RANK, "/v2/rerank": RANK, "/score": RANK,
    "/embed_chunks": EMBED | {"late_chunking": True}, "/v1/contextualizedembeddings": {"inputs": [TEXTS]},
    "/v1/score": RANK, "/add": {"texts": TEXTS * 20}, "/search": {"text": "a"}}
LARGE = {"GET /metrics", "GET /openapi.json", "GET /items", "GET /items/{id}"} | {f"POST {path}" for path in (
    "/v1/embeddings", "/embeddings", "/embed", "/", "/embed_all", "/api/embed", "/v2/embed", "/similarity", "/tokenize",
    "/decode", "/add", "/search", "/embed_chunks", "/v1/contextualizedembeddings")}
PAGES = {"GET /", "GET /docs"}  # bytes of the program: nothing is made for them


def test_every_reply_of_every_route_passes_one_gate(start, tmp_path):
    """The table of all routes is walked with a bound that small answers alone pass."""
    running = start("--server-max-reply-memory", "18KiB", "--server-store", tmp_path / "s.db")
    described = start().ask("GET", "/openapi.json").json()["paths"]
    assert running.ask(path="/add", body=json.dumps({"text": "a" * 30_000, "id": "a"}).encode()).status == 200
    refused = set()
    for path, operations in described.items():
        for method in (name.upper() for name in operations if name in ("get", "post")):
            body = json.dumps(BODIES[path]).encode() if method == "POST" else None
            reply = running.ask(method, path.replace("{id}", "a"), body)
            name = f"{method} {path}"
            if reply.headers.get("x-fletch-limit") == "server.max_reply_memory":
                assert reply.status == 413 and len(reply.body) < 1000, name
                refused.add(name)
            else:
                assert len(reply.body) <= 18 * 1024 or name in PAGES, (name, reply.status, len(reply.body))
    assert refused == LARGE
    serving.until(lambda: running.ask("GET", "/ready").status == 200)  # not while a busy machine keeps an engine from work
    assert running.end() == 0


def test_items_that_nobody_reads(start, tmp_path):
    running = start("--server-max-reply-memory", "32MiB", "--server-store", tmp_path / "s.db",
                    "--server-write-seconds", "3600")
    body = json.dumps({"text": "a", "id": "a", "metadata": {"a": "x" * (8 << 20)}}).encode()
    assert running.ask(path="/add", body=body).status == 200 and running.ask("GET", "/items/a").status == 200
    before = running.resident()
    readers = [standing(running, None, "/items/a", "GET") for _ in range(40)]
    try:
        running.wait_metric('fletch_requests_total{route="/items/",method="GET",code="503"}', lambda value: value > 0)
        for path in ("/items/a", "/items", "/metrics"):
            reply = running.ask("GET", path)
            assert reply.status == (200 if path == "/metrics" else 503), path
        assert running.resident() - before < 120_000_000
    finally:
        for raw in readers:
            raw.socket.close()
    serving.until(lambda: running.ask("GET", "/items/a").status == 200)
    assert running.end() == 0


@pytest.mark.skipif(serving.SANITIZED, reason="memory.limit counts what the sanitizer takes")
def test_the_memory_limit_holds_for_bodies_and_replies(start):
    limit = 400 << 20
    running = start("--memory-limit", "400MiB", "--server-write-seconds", "3600")
    large = json.dumps({"inputs": "a " * 500_000}).encode()
    readers = [standing(running, large if i % 2 else WORDS) for i in range(24)]
    half = [running.raw().send(request(body=b"x" * 31_000_000)[:-1_000_000]) for _ in range(1)]
    try:
        for _ in range(20):
            assert running.resident() < limit * 1.1
            assert running.embed("hello").status in (200, 503)
            time.sleep(0.05)
    finally:
        for raw in readers + half:
            raw.socket.close()
    serving.until(lambda: running.embed("hello").status == 200)
    assert running.end() == 0


def test_short_work_passes_long_work(start, tmp_path):
    """Long texts to tokenise by the dozen: items and searches do not wait for them, deadlines are kept, and what
    clients left behind is not done."""
    running = start("--server-store", tmp_path / "s.db")
    assert running.ask(path="/add", body=b'{"text":"hello","id":"a"}').status == 200
    long = json.dumps({"inputs": "[" * 6_000_000}).encode()
    raws, late = [], []
    for _ in range(12):
        raws.append(running.raw())
        threading.Thread(target=raws[-1].send, args=(request(path="/tokenize", body=long),), daemon=True).start()
    running.wait_requests(lambda count: count >= 8)
    assert running.ask("GET", "/items/a").status == 200
    assert running.ask(path="/search", body=b'{"text":"hello"}').json()["count"] == 1
    assert running.metrics()["fletch_inflight_requests"] >= 4, "the short ones were answered while long ones wait"
    late = running.ask(path="/tokenize", body=long, headers={"x-fletch-deadline-ms": "100"})
    assert late.status == 504
    for raw in raws:
        raw.socket.close()
    running.wait_requests(lambda count: count == 0)
    assert running.end() == 0


def test_a_search_with_a_filter_holds_up_nobody(start, tmp_path):
    """One that reads 64 MB of metadata: items are read, written and listed meanwhile, again and again."""
    running = start("--server-deadline-ms", "600000")
    metadata = {f"key {i}\n": i for i in range(40_000)}
    for i in range(4):
        body = json.dumps({"texts": ["a"] * 20, "ids": [f"{i}-{k}" for k in range(20)], "metadata": metadata}).encode()
        assert running.ask(path="/add", body=body).status == 200
    search = json.dumps({"vector": [1] * 384, "filter": {"zzz": 1}}).encode()

    def answered_meanwhile():
        with running.raw() as raw:
            raw.send(request(path="/search", body=search) * 3)
            for i in range(5):
                assert running.ask("GET", "/items/1-1").status == running.ask("GET", "/items?limit=1").status == 200
                assert running.ask(path="/add", body=b'{"text":"b","id":"b"}').status == 200
            raw.socket.setblocking(False)
            try:
                return raw.socket.recv(1, socket.MSG_PEEK) == b""
            except BlockingIOError:
                return True

    serving.until(answered_meanwhile)
    assert running.ask(path="/search", body=search, headers={"x-fletch-deadline-ms": "1"}).status == 504
    assert running.ask(path="/search", body=search).json()["count"] == 0
    assert running.end() == 0


def test_one_object_for_many_texts(start, tmp_path):
    """Metadata is kept with each text: what a request makes the store write is bounded as its body is."""
    running = start("--server-store", tmp_path / "s.db", "--server-max-body", "1MiB")
    body = json.dumps({"texts": [f"text {i}" for i in range(400)], "metadata": {"a": "x" * 500_000}}).encode()
    refused = running.ask(path="/add", body=body)
    assert refused.status == 413 and refused.headers["x-fletch-limit"] == f"server.max_body={1 << 20}"
    body = json.dumps({"texts": ["one", "two"], "metadata": {"a": "x" * 500_000}}).encode()
    assert running.ask(path="/add", body=body).status == 200
    assert running.end() == 0


def test_a_write_whose_deadline_has_passed_is_not_done(start, tmp_path):
    running = start("--server-store", tmp_path / "s.db")
    texts = json.dumps({"texts": [f"a text {i}" for i in range(2000)]}).encode()
    late = running.ask(path="/add", body=texts, headers={"x-fletch-deadline-ms": "5"})
    assert late.status == 504
    assert running.ask(path="/search", body=b'{"text":"a"}').json()["searched"] == 0
    assert running.end() == 0


def test_a_model_that_gives_nothing_but_errors_is_not_ready(faulty):
    running = faulty()
    assert running.embed("hello").status == 200
    running.plan("silent_nan")
    assert running.embed("hello").status == 500
    serving.until(lambda: running.ask("GET", "/ready").status == 503)
    running.plan("none")
    serving.until(lambda: running.ask("GET", "/ready").status == 200)


@pytest.mark.parametrize("path", ["/embed", "/v1/embeddings"])
def test_answers_that_would_be_too_large_name_their_limit(start, path):
    running = start("--server-max-body-memory", "none")
    key = "inputs" if path == "/embed" else "input"
    refused = running.ask(path=path, body=json.dumps({key: ["a"] * 150_000}).encode())
    assert refused.status == 413 and refused.headers["x-fletch-limit"].startswith("answer=")
    assert running.end() == 0
