# SPDX-License-Identifier: Apache-2.0
"""Requests that two parsers could cut differently are refused, and their connection is closed: what follows on it
must never be answered. The rows are those on which the common servers disagree."""
import pytest

BODY = '{"inputs":"hello"}'
# What a proxy may have taken for the body, and a lax server for a second request.
HIDDEN = "GET /live HTTP/1.1\r\nHost: x\r\n\r\n"


def post(*headers, body=BODY, version="1.1", host=True):
    lines = [f"POST /embed HTTP/{version}"] + (["Host: x"] if host else []) + ["Content-Type: application/json"]
    return "\r\n".join([*lines, *headers]) + "\r\n\r\n" + body


CHUNKED = f"{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"
REFUSED = {
    "length and chunked": post(f"Content-Length: {len(BODY)}", "Transfer-Encoding: chunked", body=CHUNKED),
    "chunked and length": post("Transfer-Encoding: chunked", f"Content-Length: {len(BODY)}", body=CHUNKED),
    "two lengths": post(f"Content-Length: {len(BODY)}", "Content-Length: 5"),
    "two equal lengths": post(f"Content-Length: {len(BODY)}", f"Content-Length: {len(BODY)}"),
    "length list": post(f"Content-Length: {len(BODY)}, {len(BODY)}"),
    "space before the colon": post("Content-Length : 0", body=""),
    "space before the coding's colon": post("Transfer-Encoding : chunked", body=CHUNKED),
    "xchunked": post("Transfer-Encoding: xchunked", body=CHUNKED),
    "identity": post("Transfer-Encoding: identity", body=CHUNKED),
    "gzip, chunked": post("Transfer-Encoding: gzip, chunked", body=CHUNKED),
    "two codings": post("Transfer-Encoding: chunked", "Transfer-Encoding: identity", body=CHUNKED),
    "two hosts": post("Host: y", f"Content-Length: {len(BODY)}"),
    "no host": post(f"Content-Length: {len(BODY)}", host=False),
    "length with sign": post(f"Content-Length: +{len(BODY)}"),
    "negative length": post("Content-Length: -1"),
    "hexadecimal length": post("Content-Length: 0x10"),
    "length beyond 64 bits": post("Content-Length: 18446744073709551621"),
    "chunked in HTTP/1.0": post("Transfer-Encoding: chunked", body=CHUNKED, version="1.0"),
    "control character in a value": post("X-A: a\x01b", f"Content-Length: {len(BODY)}"),
    "name that is no token": post("X(A: b", f"Content-Length: {len(BODY)}"),
}


WORDS = {"/embed": lambda body: set(body) == {"error", "error_type"},
         "/v1/embeddings": lambda body: set(body["error"]) == {"message", "type", "param", "code"},
         "/api/embed": lambda body: set(body) == {"error"}, "/v2/embed": lambda body: set(body) == {"message"},
         "/add": lambda body: set(body) == {"error", "code"}}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_and_closed(server, name):
    """One reply in the dialect of the path; then the connection ends."""
    for path, fits in WORDS.items():
        with server.raw() as raw:
            reply = raw.send(REFUSED[name].replace("/embed", path, 1)).reply()
            status = 413 if name == "length beyond 64 bits" else 400
            assert reply.status == status and reply.headers["connection"].lower() == "close", (path, reply)
            assert reply.headers["x-request-id"]
            if (path, status) == ("/embed", 413):  # TEI's own words, plain text
                assert reply.body == b"Failed to buffer the request body: length limit exceeded"
            else:
                assert reply.headers["content-type"] == "application/json" and fits(reply.json()), (path, reply)
            try:
                raw.send(HIDDEN)
            except (BrokenPipeError, ConnectionResetError):
                pass
            assert raw.closed(), name
            assert raw.held == b"", f"{name}: a second reply: {raw.held!r}"


def test_the_right_connection_is_refused(server):
    """The innocent connections of the same thread must not notice."""
    whole = post(f"Content-Length: {len(BODY)}")
    with server.raw() as slow, server.raw() as body, server.raw() as chunks, server.raw() as idle:
        slow.send(whole[:40])
        body.send(whole[:-5])
        chunks.send(post("Transfer-Encoding: chunked", body=CHUNKED[:8]))
        assert idle.send(whole).reply().status == 200
        for name in REFUSED:
            with server.raw() as raw:
                assert raw.send(REFUSED[name]).reply().status in (400, 413)
        for bad in ("GET /live HTTP/2.0\r\nHost: x\r\n\r\n", "GET /live\r\n\r\n", post("no colon"), post("x: " + "a" * 40000),
                    post("Transfer-Encoding: chunked", body="zz\r\n")):
            with server.raw() as raw:
                assert raw.send(bad).reply().status in (400, 431, 505), bad
        assert slow.send(whole[40:]).reply().status == 200
        assert body.send(whole[-5:]).reply().status == 200
        assert chunks.send(CHUNKED[8:]).reply().status == 200
        assert idle.send(whole).reply().status == 200


def test_broken_chunks_and_floods_are_told(server):
    """Whatever is wrong is answered in the dialect of the path."""
    for path, fits in WORDS.items():
        for text, status in ((post("Transfer-Encoding: chunked", body="zz\r\n"), 400), (post("x: " + "a" * 40000), 431),
                             (post("Transfer-Encoding: chunked", body="F" * 17 + "\r\n"), 413)):
            with server.raw() as raw:
                reply = raw.send(text.replace("/embed", path, 1)).reply()
                assert reply.status == status, reply
                assert (path, status) == ("/embed", 413) or fits(reply.json()), (path, reply)
                assert raw.closed() and raw.held == b""


def test_a_line_without_a_colon_is_told(server):
    for path, fits in WORDS.items():
        with server.raw() as raw:
            found = raw.send(post("no colon").replace("/embed", path, 1)).reply()
            assert found.status == 400 and raw.closed() and raw.held == b"", found
            assert fits(found.json()) and "colon" in found.body.decode(), (path, found)


def test_a_target_with_a_space(server):
    with server.raw() as raw:
        reply = raw.send(post(f"Content-Length: {len(BODY)}").replace("/embed", "/embed /x")).reply()
        assert reply.status == 400 and reply.json()["error"] == "invalid request target"
        assert raw.closed() and raw.held == b""


def test_chunk_size_overflow(server):
    for size in ("10000000000000000", "FFFFFFFFFFFFFFFFF", "-1", "0x5", "zz"):
        with server.raw() as raw:
            raw.send(post("Transfer-Encoding: chunked", body=f"{size}\r\n{BODY}\r\n0\r\n\r\n"))
            reply = raw.reply()
            assert reply is None or reply.status in (400, 413), (size, reply)
            assert raw.closed()


HEAD = "POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
SECOND = "DELETE /items/x HTTP/1.1\r\nHost: y\r\n\r\n"
# Each hides a second request where some server would find it, and some would not.
SPLIT = {
    "empty name": HEAD + ": x\r\n" + SECOND,
    "name of NUL": HEAD + "\0zz: x\r\n" + SECOND,
    "line of NUL": HEAD + "\0\r\n" + SECOND,
    "folded length": HEAD + f"Content-Length:\r\n {len(SECOND)}\r\n\r\n" + SECOND,
    "length in two lines": HEAD + "Content-Length: 3\r\n 6\r\n\r\n" + SECOND,
    "length folded by a tab": HEAD + f"Content-Length:\r\n\t{len(SECOND)}\r\n\r\n" + SECOND,
    "length folded twice": HEAD + f"Content-Length:\r\n \r\n {len(SECOND)}\r\n\r\n" + SECOND,
    "coding in two lines": HEAD + "Transfer-Encoding: chu\r\n nked\r\n\r\n0\r\n\r\n" + SECOND,
    "folded coding": HEAD + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + SECOND,
    "coding with NUL": HEAD + "Transfer-Encoding: chunked\0, identity\r\n\r\n0\r\n\r\n" + SECOND,
    "length with NUL": HEAD + "Content-Length: 14\x000\r\n\r\n" + SECOND * 4,
    "chunk line that ends in LF": HEAD + f"Transfer-Encoding: chunked\r\n\r\n3d;\n{'a' * 61}\r\n0\r\n\r\n" + SECOND,
    "trailer without a name": HEAD + "Transfer-Encoding: chunked\r\n\r\n0\r\na: b\r\n: x\r\n\r\n" + SECOND,
    "folded trailer": HEAD + "Transfer-Encoding: chunked\r\n\r\n0\r\na: b\r\n c\r\n\r\n" + SECOND,
    "bare LF": (HEAD + f"Content-Length: {len(SECOND)}\r\n\r\n").replace("\r\n", "\n") + SECOND,
    "one bare LF": HEAD + "X: y\nContent-Length: 0\r\n\r\n" + SECOND,
    "folded header": HEAD + "X-A: b\r\n c\r\n\r\n" + SECOND,
    "NUL in a value": HEAD + "X-A: a\0b\r\n\r\n" + SECOND,
    "two hosts by target": HEAD.replace("/embed", "http://y/embed") + "\r\n" + SECOND,
    "HTTP/1.2": HEAD.replace("1.1", "1.2") + "\r\n" + SECOND,
}


@pytest.mark.parametrize("name", SPLIT)
def test_nothing_hidden_becomes_a_request(server, name):
    with server.raw() as raw:
        reply = raw.send(SPLIT[name]).reply()
        assert reply.status in (400, 505) and reply.headers["connection"] == "close", reply
        assert raw.closed() and raw.held == b"", raw.held


def test_one_clients_fault_is_not_told_to_another(server):
    """Half a head, half a body and half a chunk wait on their connections while others go wrong in every phase."""
    flood = "".join(f"X{i}: y\r\n" for i in range(3000))
    faults = [HEAD + flood, HEAD + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + flood * 2, HEAD + "x: " + "a" * 40000,
              HEAD + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "\x16\x03\x01" * 100, "GET /live\r\n\r\n"]
    whole = post(f"Content-Length: {len(BODY)}")
    with server.raw() as head, server.raw() as body, server.raw() as chunk:
        head.send(whole[:40])
        body.send(whole[:-5])
        chunk.send(post("Transfer-Encoding: chunked", body=CHUNKED[:8]))
        for fault in faults * 3:
            with server.raw() as raw:
                try:
                    raw.send(fault)
                except ConnectionError:
                    pass  # refused while it was sent
                reply = raw.reply()
                assert reply is None or reply.status in (400, 431), reply
                assert raw.closed()
        for raw, rest in ((head, whole[40:]), (body, whole[-5:]), (chunk, CHUNKED[8:])):
            assert raw.send(rest).reply().status == 200
            assert raw.held == b""


def test_expect_without_a_body_and_a_request_after(server):
    """There is nothing to go on with: no 100, and the next request on the connection is served."""
    live = "GET /live HTTP/1.1\r\nHost: x\r\n"
    for first in (live + "Expect: 100-continue\r\n\r\n", live + "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n",
                  HEAD + f"Expect: 100-continue\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}"):
        with server.raw() as raw:
            raw.send(first + live + "\r\n" + live + "Expect: 100-continue\r\n\r\n" + live + "\r\n")
            assert [raw.reply().status for _ in range(4)] == [200] * 4
            assert raw.held == b""
    with server.raw() as raw:
        assert raw.send(live + "Expect: something\r\n\r\n").reply().status == 417


def test_a_good_request_passes(server):
    with server.raw() as raw:
        assert raw.send(post(f"Content-Length: {len(BODY)}")).reply().status == 200
        assert raw.send(post("Transfer-Encoding: chunked", body=CHUNKED)).reply().status == 200
        assert raw.send(post("transfer-encoding: Chunked", body=CHUNKED)).reply().status == 200
