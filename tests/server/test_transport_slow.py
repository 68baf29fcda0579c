# SPDX-License-Identifier: Apache-2.0
"""Clients that are slow, on purpose or not, are ended by the clock of what they are doing, and block nobody."""
import time

import pytest
from serving import WAIT, request


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    from conftest import need_model
    from serving import Server
    need_model()
    running = Server(tmp_path_factory.mktemp("quick"), "--server-header-seconds", "1", "--server-body-seconds", "1",
                     "--server-idle-seconds", "3600")
    yield running
    assert running.end() == 0


def drip(raw, data, pause=0.15):
    """Send byte by byte until the server has had enough; the reply, or None."""
    for byte in data:
        try:
            raw.send(bytes([byte]))
        except (BrokenPipeError, ConnectionResetError):
            break
        raw.socket.settimeout(pause)
        try:
            if not raw.more():
                return None
            break
        except TimeoutError:
            pass
        except ConnectionResetError:
            return None
    else:
        pytest.fail("a drip of bytes kept the connection open")
    raw.socket.settimeout(WAIT)
    return raw.reply()


def test_drip_in_the_headers(quick):
    with quick.raw() as raw:
        reply = drip(raw.send(b"POST http://x/api/embed HTTP/1.1\r\n"), b"x-a: " + b"a" * 500)
        assert reply.status == 408 and reply.json() == {"error": "the request arrived too slowly"}
    quick.wait_metric('fletch_rejected_total{reason="too_slow"}', lambda value: value >= 1)


def test_drip_in_the_request_line(quick):
    with quick.raw() as raw:
        reply = drip(raw, b"GET /" + b"a" * 500)
        assert reply is not None and reply.status == 408, "the idle clock would only close"


def test_drip_between_requests(quick):
    with quick.raw() as raw:
        assert raw.send(request("GET", "/live", None)).reply().status == 200
        time.sleep(1.2)
        reply = drip(raw, b"GET /" + b"a" * 500)
        assert reply is not None and reply.status == 408, "the idle clock would only close"


def test_drip_in_the_body(quick):
    with quick.raw() as raw:
        raw.send(request(body=None, content_length="500"))
        reply = drip(raw, b"a" * 500)
        assert reply is not None and reply.status == 408
        assert reply.json() == {"error": "the request arrived too slowly", "error_type": "Validation"}
    with quick.raw() as raw:
        raw.send(request(path="/v1/embeddings?x=y", body=None, content_length="500"))
        reply = drip(raw, b"a" * 500)
        assert reply.status == 408 and reply.json()["error"]["message"] == "the request arrived too slowly"


def test_drip_of_chunks(quick):
    with quick.raw() as raw:
        raw.send(request(body=None, transfer_encoding="chunked"))
        reply = drip(raw, b"1\r\na\r\n" * 100)
        assert reply is not None and reply.status == 408


def test_idle_connections_end(start):
    running = start("--server-idle-seconds", "1")
    with running.raw() as raw, running.raw() as used:
        assert used.send(request("GET", "/live", None)).reply().status == 200
        assert raw.closed() and used.closed()


def test_slow_ones_block_nobody(quick):
    slow = [quick.raw() for _ in range(200)]
    try:
        for raw in slow:
            raw.send(b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 9")
        assert quick.embed("hello").status == 200
    finally:
        for raw in slow:
            raw.socket.close()


def test_a_long_reply_is_not_cut_by_the_other_clocks(quick):
    """Header, body and idle clocks stop when the work begins: this takes longer than each of them."""
    texts = ", ".join('"%s"' % ("word " * 200) for _ in range(80))
    reply = quick.ask(body=('{"inputs":[%s]}' % texts).encode())
    assert reply.status == 200 and len(reply.json()) == 80
