# SPDX-License-Identifier: Apache-2.0
"""How requests come and go on one connection: pieces, order, ends, and the headers that every reply has."""
import re
import socket
import threading

import pytest
from serving import Raw, request

VECTOR = re.compile(rb"^\[\[-?[0-9.e,-]+\]\]$")


def good(reply):
    return reply is not None and reply.status == 200 and VECTOR.match(reply.body) is not None


def test_one_byte_at_a_time(server):
    with server.raw() as raw:
        for byte in request():
            raw.send(bytes([byte]))
        assert good(raw.reply())


def test_pipelined_requests_are_answered_in_order(server):
    texts = [f"text number {i}" for i in range(20)]
    alone = [server.embed(text).body for text in texts]
    with server.raw() as raw:
        raw.send(b"".join(request(body=b'{"inputs":"%s"}' % text.encode()) for text in texts))
        assert [raw.reply().body for _ in texts] == alone


def test_pipelined_kinds(server):
    """Answers at once, answers later and refusals keep their order."""
    with server.raw() as raw:
        raw.send(request("GET", "/live", None) + request() + request("GET", "/nothing", None) + request() +
                 request("GET", "/metrics", None))
        assert [raw.reply().status for _ in range(5)] == [200, 200, 404, 200, 200]


def test_keep_alive_survives_refusals(server):
    with server.raw() as raw:
        for method, path, status in (("POST", "/nothing", 404), ("PUT", "/embed", 405), ("POST", "/live", 405)):
            assert raw.send(request(method, path)).reply().status == status
        assert good(raw.send(request()).reply())


def test_connection_close_is_obeyed(server):
    with server.raw() as raw:
        assert good(raw.send(request(connection="close")).reply())
        assert raw.closed()


def test_http_1_0(server):
    with server.raw() as raw:
        assert raw.send("GET /live HTTP/1.0\r\n\r\n").reply().status == 200
        assert raw.closed()


def test_head_has_the_headers_of_get(server):
    with server.raw() as raw:
        got = raw.send(request("GET", "/live", None)).reply()
        head = raw.send(request("HEAD", "/live", None)).reply(head=True)
        assert head.status == 200 and head.headers["content-length"] == got.headers["content-length"]
        assert raw.send(request("GET", "/live", None)).reply().body == got.body


def test_expect_100_continue(server):
    body = b'{"inputs":"hello"}'
    with server.raw() as raw:
        raw.send(request(body=None, expect="100-continue", content_length=str(len(body))))
        assert raw.reply().status == 100
        assert good(raw.send(body).reply())


def test_expect_is_refused_before_the_body(server):
    with server.raw() as raw:
        raw.send(request(body=None, expect="100-continue", content_length=str(1 << 40)))
        reply = raw.reply()
        assert reply.status == 413 and "server.max_body" in reply.headers["x-fletch-limit"]
    with server.raw() as raw:
        raw.send(request(path="/nothing", body=None, expect="100-continue", content_length="20"))
        assert raw.reply().status == 404


def test_chunked_body(server):
    body = b'{"inputs":"hello"}'
    whole = server.embed("hello").body
    for size in (1, 2, 7, 100):
        pieces = [body[i:i + size] for i in range(0, len(body), size)]
        text = b"".join(b"%x;name=value\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        with server.raw() as raw:
            raw.send(request(body=None, transfer_encoding="chunked") + text + b"0\r\nx-trailer: a\r\n\r\n")
            assert raw.reply().body == whole
            assert good(raw.send(request()).reply()), "the end of the body was found"


def test_half_closed_socket_is_a_client_that_left(server):
    """A client that shuts its sending side cannot be told from one that died. It may get its vectors, or hear that it
    is taken to have left; it never hangs."""
    with server.raw() as raw:
        raw.send(request())
        raw.socket.shutdown(socket.SHUT_WR)
        reply = raw.reply()
        assert reply is None or reply.status in (200, 499)
        assert raw.closed()
    with server.raw() as raw:
        raw.send(request("GET", "/live", None))
        raw.socket.shutdown(socket.SHUT_WR)
        assert raw.reply().status == 200


def test_request_id(server):
    with server.raw() as raw:
        assert raw.send(request(x_request_id="Abc-1._9")).reply().headers["x-request-id"] == "Abc-1._9"
        for bad in ("a b", "x" * 129, "a\tb", "<script>", ""):
            made = raw.send(request(x_request_id=bad)).reply().headers["x-request-id"]
            assert re.fullmatch("[0-9a-f]{32}", made), (bad, made)
        ids = {raw.send(request("GET", "/live", None)).reply().headers["x-request-id"] for _ in range(50)}
        assert len(ids) == 50


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize("parent, good_one", [
    (f"00-{TRACE}-00f067aa0ba902b7-01", True),
    (f"cc-{TRACE}-00f067aa0ba902b7-01-later", True),
    (f"00-{TRACE}-00f067aa0ba902b7-01-more", False),
    (f"ff-{TRACE}-00f067aa0ba902b7-01", False),
    (f"00-{'0' * 32}-00f067aa0ba902b7-01", False),
    (f"00-{TRACE}-{'0' * 16}-01", False),
    (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", False),
    (f"00-{TRACE}-00f067aa0ba902b7", False),
    ("x", False),
])
def test_traceparent(server, parent, good_one):
    with server.raw() as raw:
        answer = raw.send(request(traceparent=parent)).reply().headers.get("traceresponse")
    if not good_one:
        assert answer is None
        return
    version, trace, span, _flags = answer.split("-")
    assert (version, trace) == ("00", TRACE) and re.fullmatch("[0-9a-f]{16}", span) and span != "00f067aa0ba902b7"
    server.wait_event(lambda event: event.get("trace_id") == TRACE and event.get("span_id") == span)


def test_methods(server):
    reply = server.ask("DELETE", "/embed", b"")
    assert reply.status == 405 and reply.headers["allow"] == "POST, OPTIONS"
    assert reply.json() == {"error": "/embed takes POST", "error_type": "Validation"}
    assert server.ask("PUT", "/v1/embeddings").json()["error"]["message"] == "/v1/embeddings takes POST"
    assert server.ask("PUT", "/api/tags").json() == {"error": "/api/tags takes GET, HEAD"}
    assert server.ask("PUT", "/v2/embed").json() == {"message": "/v2/embed takes POST"}
    reply = server.ask("OPTIONS", "/live", b"")
    assert reply.status == 204 and "GET" in reply.headers["allow"]
    for word in ("BREW", "get", "PATCH"):
        assert server.ask(word, "/live", b"").status in (405, 501)


def test_unix_socket(start, short):
    running = start("--unix-socket", short / "s")
    with running.raw(unix=True) as raw:
        assert good(raw.send(request()).reply())
        assert good(raw.send(request()).reply())
    with running.raw(unix=True) as one, running.raw() as two:
        assert one.send(request()).reply().body == two.send(request()).reply().body
    assert running.end() == 0
    assert not (short / "s").exists()


def test_many_connections_at_once(server):
    expected = server.embed("the same").body
    wrong = []

    def work():
        with server.raw() as raw:
            for _ in range(10):
                reply = raw.send(request(body=b'{"inputs":"the same"}')).reply()
                if reply is None or reply.body != expected:
                    wrong.append(reply)

    threads = [threading.Thread(target=work) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_wrong_priority_and_deadline(server):
    assert server.embed("a", **{"x-fletch-priority": "urgent"}).status == 400
    assert server.embed("a", **{"x-fletch-priority": "bulk"}).status == 200
    for bad in ("0", "-1", "soon", "1.5"):
        assert server.embed("a", **{"x-fletch-deadline-ms": bad}).status == 400
    assert server.embed("a", **{"x-fletch-deadline-ms": "60000"}).status == 200


def test_compressed_bodies_are_refused(server):
    assert server.embed("a", **{"content-encoding": "gzip"}).status == 415
    assert server.embed("a", **{"content-encoding": "identity"}).status == 200


def test_raw_speaks_to_a_closed_server(start):
    """The tests' own reader: an ended server is None, not an exception."""
    running = start()
    where = running.where
    running.end()
    with pytest.raises(ConnectionRefusedError):
        Raw(where)
