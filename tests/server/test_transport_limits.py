# SPDX-License-Identifier: Apache-2.0
"""Each limit at n-1, n and n+1, with the status it causes; the server goes on."""
import json

import pytest
from serving import request, until

LIMIT = 100_000


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    from conftest import need_model
    from serving import Server
    need_model()
    running = Server(tmp_path_factory.mktemp("small"), "--server-max-body", str(LIMIT))
    yield running
    assert running.end() == 0


def padded(size):
    body = b'{"inputs":"hello"'
    return body + b" " * (size - len(body) - 1) + b"}"


@pytest.mark.parametrize("size, status", [(LIMIT - 1, 200), (LIMIT, 200), (LIMIT + 1, 413)])
def test_body_by_length(small, size, status):
    with small.raw() as raw:
        reply = raw.send(request(body=padded(size))).reply()
        assert reply.status == status
        if status == 413:
            assert str(LIMIT) in reply.headers["x-fletch-limit"] and reply.headers["connection"].lower() == "close"


def test_body_is_refused_before_it_is_sent(small):
    with small.raw() as raw:
        assert raw.send(request(body=None, content_length=str(LIMIT + 1))).reply().status == 413


@pytest.mark.parametrize("size, status", [(LIMIT - 1, 200), (LIMIT, 200), (LIMIT + 1, 413), (50 * LIMIT, 413)])
def test_body_by_chunks(small, size, status):
    body = padded(size)
    text = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 8000]), body[i:i + 8000]) for i in range(0, len(body), 8000))
    with small.raw() as raw:
        try:
            raw.send(request(body=None, transfer_encoding="chunked") + text + b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused while we were sending
        reply = raw.reply()
        assert reply.status == status, reply
        if status == 413:
            assert reply.headers["x-fletch-limit"] == f"server.max_body={LIMIT}"


def test_a_refused_sender_hears_why(small):
    """The refusal must survive that the rest of the body is still on its way. (Two seconds long: it is heard by whoever
    is not held up meanwhile, so an attempt may fail.)"""

    def heard():
        with small.raw() as raw:
            try:
                raw.send(request(body=None, content_length=str(80 * LIMIT)))
                raw.send(b"x" * (80 * LIMIT))
            except ConnectionError:
                return False
            return raw.reply().status == 413

    until(heard)


@pytest.mark.parametrize("count, status", [(65535, 200), (65536, 200), (65537, 413)])
def test_number_of_chunks(server, count, status):
    body = b'{"inputs":"hello"}'
    body = body[:-1] + b" " * (count - len(body)) + b"}"
    with server.raw() as raw:
        try:
            raw.send(request(body=None, transfer_encoding="chunked") + b"".join(b"1\r\n%c\r\n" % c for c in body) +
                     b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        reply = raw.reply()
        assert reply.status == status, reply
        if status == 413:
            assert "65536" in reply.headers["x-fletch-limit"]


def test_number_of_headers(server):
    for extra, status in ((95, 200), (97, 200), (98, 431), (400, 431)):
        with server.raw() as raw:
            lines = "".join(f"x-{i}: a\r\n" for i in range(extra))
            raw.send(request().replace(b"\r\n\r\n", b"\r\n" + lines.encode() + b"\r\n", 1))
            assert raw.reply().status == status, extra


def test_size_of_headers(server):
    for size, status in ((8_000, 200), (15_500, 200), (16_384, 431)):
        with server.raw() as raw:
            reply = raw.send(request(x_long="a" * size)).reply()
            assert reply.status == status, (size, reply)


@pytest.mark.parametrize("head", [b"x-long: " + b"a" * 64_000_000, b"".join(b"x-%d: a\r\n" % i for i in range(10_000)),
                                  b"a" * 64_000_000], ids=["long", "many", "nameless"])
def test_header_floods(server, head):
    before = server.resident()
    with server.raw() as raw:
        try:
            raw.send(b"GET /live HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        reply = raw.reply()
        assert reply is None or reply.status in (400, 413, 431)
        assert raw.closed()
    assert server.resident() - before < 32_000_000


def test_length_of_target(server):
    for size, status in ((4000, 200), (4096, 200), (4097, 414), (9000, 414)):
        target = "/live?" + "a" * (size - 6)
        with server.raw() as raw:
            assert raw.send(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").reply().status == status, size
    with server.raw() as raw:
        try:
            raw.send(b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        reply = raw.reply()
        assert reply is None or reply.status in (400, 414, 431)


def test_memory_of_all_bodies(start):
    running = start("--server-max-body-memory", "300000")
    body = padded(200_000)
    with running.raw() as first, running.raw() as second, running.raw() as third:
        first.send(request(body=body)[:-10_000])  # under way, held back
        running.wait_requests(lambda count: count == 1)
        until(lambda: running.ask(body=body).status == 503)  # until its bytes are counted
        refused = running.ask(body=body)
        assert refused.headers["x-fletch-limit"] == "server.max_body_memory" and refused.headers["retry-after"]
        second.send(request(body=None, transfer_encoding="chunked") + b"".join(b"2000\r\n%s\r\n" % (b" " * 0x2000) for _ in range(20)))
        assert second.reply().status == 503
        assert third.send(request()).reply().status == 200, "small ones pass"
        assert first.send(body[-10_000:]).reply().status == 200
    until(lambda: running.ask(body=body).status == 200)  # what was held is free again
    assert running.end() == 0


def test_memory_of_what_a_body_is_read_into(start):
    """A small body of very many texts, or of texts that give large vectors, takes far more than its bytes."""
    running = start("--server-max-body-memory", "1MiB")
    short = json.dumps({"input": ["a"] * 60_000, "dimensions": 1}).encode()  # 300 KB, and 2 MB of pointers
    wide = json.dumps({"inputs": ["a"] * 1_000}).encode()                    # 5 KB, and 1.5 MB of vectors
    many = json.dumps({"ids": [[101]] * 15_000}).encode()                    # 100 KB, and 1 MB of texts
    for path, body in (("/v1/embeddings", short), ("/embed", wide), ("/v2/embed", short.replace(b"input", b"texts")),
                       ("/decode", many)):
        refused = running.ask(path=path, body=body)
        assert refused.status == 413 and refused.headers["x-fletch-limit"] == "server.max_body_memory", refused
    assert running.embed(["a"] * 300).status == 200  # nothing of it is held any more
    assert running.end() == 0
