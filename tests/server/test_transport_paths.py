# SPDX-License-Identifier: Apache-2.0
"""Targets are compared as they come: no decoding, no dots, no case folding. What a proxy judged is what is served."""
import pytest


@pytest.mark.parametrize("target", [
    "//live", "/live/", "/Live", "/LIVE", "/./live", "/x/../live", "/%6Cive", "/live%00", "/live%20", "/live;a=b",
    "/live/..", "/%2e%2e/live", "/..%2flive", "/%2f/live", "/live\\", "/../../etc/passwd", "/live%", "/live%zz",
    "/v1//embeddings", "/add/../metrics",
])
def test_other_spellings_are_other_paths(server, target):
    with server.raw() as raw:
        reply = raw.send(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").reply()
        assert reply.status in (400, 404), reply
        assert b"passwd" not in reply.body or reply.status == 404


@pytest.mark.parametrize("method, target, status", [
    ("POST", "/embed/", 200), ("POST", "/v1/embeddings/", 200), ("GET", "/v1/models/", 200), ("GET", "/docs/", 200),
    ("GET", "/items/", 200), ("HEAD", "/items/", 200), ("GET", "/embed/", 405), ("POST", "/embed//", 404), ("GET", "//", 404),
    ("DELETE", "/items/", 404), ("GET", "/live/", 404), ("GET", "/metrics/", 404), ("POST", "/embed/.", 404)])
def test_a_slash_at_the_end(server, method, target, status):
    """DELETE /items/ with an id that was forgotten is no order to delete all."""
    body = b'{"inputs":"hello","input":"hello"}' if method == "POST" else b""
    reply = server.ask(method, target, body)
    assert reply.status == status, reply
    assert (b'"embedding":[' in reply.body) == (target == "/v1/embeddings/")


@pytest.mark.parametrize("target, status", [
    ("/live?", 200), ("/live?a=b&c", 200), ("/live?/../x", 200), ("http://x/live", 200), ("HTTP://x/live?a", 200),
    ("http://x", 200), ("http://x?a=b", 200), ("ftp://x/live", 400), ("live", 400), ("*", 404), ("x:80", 400),
])
def test_forms_of_targets(server, target, status):
    with server.raw() as raw:
        reply = raw.send(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").reply()
        assert reply is not None and reply.status == status, (target, reply)


def test_bytes_that_no_target_has(server):
    for byte in (b"\x01", b"\x7f", b"\xff", b"\xc3\xa9"):
        with server.raw() as raw:
            reply = raw.send(b"GET /live" + byte + b" HTTP/1.1\r\nHost: x\r\n\r\n").reply()
            assert reply is None or reply.status in (400, 404), (byte, reply)


def test_lines_that_are_no_request(start):
    """What may yet become one is ended by the clock."""
    server = start("--server-header-seconds", "1", "--server-idle-seconds", "1")
    for line in (b"\r\n\r\n\r\n", b"GET\r\n\r\n", b"GET /live\r\n\r\n", b"GET /live HTTP/9.9\r\nHost: x\r\n\r\n",
                 b"GET /live HTTX/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20,
                 b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x00" * 500):
        with server.raw() as raw:
            reply = raw.send(line).reply()
            assert reply is None or reply.status in (400, 404, 405, 408, 501, 505), (line, reply)
    assert server.embed("hello").status == 200


def test_a_target_outlives_the_arrival_of_a_chunked_body(server):
    """The body comes after the head was judged: what the route reads of the target must not have moved meanwhile."""
    with server.raw() as raw:
        raw.send("GET /v1/models/no-such-model HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
        assert raw.reply().status == 100
        reply = raw.send("1\r\na\r\n0\r\n\r\n").reply()
        assert reply.status == 404 and b"no-such-model" in reply.body, reply
