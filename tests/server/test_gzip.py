# SPDX-License-Identifier: Apache-2.0
"""Large replies are packed for who asks for it, and for nobody else; what is in them is the same."""
import gzip
import json
import threading

import pytest
import serving
from serving import request

TEXTS = [f"a text of its own, number {i}" for i in range(40)]
BODY = json.dumps({"inputs": TEXTS}).encode()
GZIP = {"accept-encoding": "gzip"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if not serving.MODEL:
        pytest.skip("FLETCH_MODEL names no model folder (make model)")
    running = serving.Server(tmp_path_factory.mktemp("server"), "--server-compress", "64KiB")
    yield running
    assert running.end() == 0, running.log()


@pytest.fixture(scope="module")
def plain(server):
    reply = server.ask(body=BODY)
    assert reply.status == 200 and len(reply.body) > 64 << 10 and "content-encoding" not in reply.headers
    return reply.body


def test_the_same_bytes_come_out(server, plain):
    reply = server.ask(body=BODY, headers=GZIP)
    assert reply.status == 200 and reply.headers["content-encoding"] == "gzip" and reply.headers["vary"] == "accept-encoding"
    assert int(reply.headers["content-length"]) == len(reply.body) < 0.7 * len(plain)
    assert gzip.decompress(reply.body) == plain and reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize("accept, packed", [
    ("gzip, deflate, br, zstd", True), ("br, GZIP;q=0.1", True), ("x-gzip", True), ("*", True), ("gzip;q=1.0, identity; q=0.5", True),
    ("deflate , gzip ; q = 0.001", True), ("identity", False), ("gzip;q=0", False), ("gzip;q=0.000, *", False), ("*;q=0", False),
    ("br, zstd", False), ("gzipped", False), ("", False), (",,;", False),
])
def test_who_asks(server, plain, accept, packed):
    reply = server.ask(body=BODY, headers={"accept-encoding": accept})
    assert ("content-encoding" in reply.headers) == packed
    assert (gzip.decompress(reply.body) if packed else reply.body) == plain


def test_small_replies_errors_and_rows_of_bytes_stay(server):
    for body, more in ((b'{"inputs":"hello"}', {}), (b"{", {}), (BODY, {"accept": "application/octet-stream"})):
        assert "content-encoding" not in server.ask(body=body, headers={**GZIP, **more}).headers


def test_one_byte_less_than_the_option(start, plain):
    exact, above = start("--server-compress", len(plain)), start("--server-compress", len(plain) + 1)
    assert "content-encoding" in exact.ask(body=BODY, headers=GZIP).headers
    assert "content-encoding" not in above.ask(body=BODY, headers=GZIP).headers
    never = start("--server-store", "none")  # nobody told it to
    assert "content-encoding" not in never.ask(body=BODY, headers=GZIP).headers


def test_whatever_its_size(start):
    """A page that is part of the program, an error, an empty body, HEAD, and requests that follow on the connection."""
    server = start("--server-compress", "0")
    html = {**GZIP, "accept": "text/html"}
    packed, page = server.ask("GET", "/", headers=html), server.ask("GET", "/", headers={"accept": "text/html"})
    assert packed.headers["content-encoding"] == "gzip" and gzip.decompress(packed.body) == page.body
    assert server.ask("GET", "/health", headers=GZIP).status == 200
    for path, body, more, status in (("/nowhere", BODY, {}, 404), ("/embed", b"{", {}, 400), ("/embed", BODY, {"x-fletch-priority": "no"}, 400)):
        refused = server.ask("POST", path, body, headers={**GZIP, **more})
        assert refused.status == status and "content-encoding" not in refused.headers and len(refused.body) > 20
    with server.raw() as raw:
        raw.send(request("HEAD", "/", None, accept="text/html", accept_encoding="gzip"))
        reply = raw.reply(head=True)
        assert reply.status == 200 and int(reply.headers["content-length"]) == len(packed.body)
        raw.send(request(body=BODY, accept_encoding="gzip") * 3 + request())
        first = raw.reply()
        assert [raw.reply().body, raw.reply().body] == [first.body] * 2 and "content-encoding" not in raw.reply().headers
    assert server.end() == 0


def test_many_at_once_and_some_who_leave(server, plain):
    wrong = []

    def ask(i):
        if i % 4 == 3:
            with server.raw() as raw:
                raw.send(request(body=BODY, accept_encoding="gzip"))
        elif gzip.decompress(server.ask(body=BODY, headers=GZIP).body) != plain:
            wrong.append(i)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
