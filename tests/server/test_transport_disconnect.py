# SPDX-License-Identifier: Apache-2.0
"""A client that leaves takes its work with it: what waits leaves the queue, what runs is finished and dropped."""
import json
import socket
import struct

import serving
from serving import request

TEXTS = 64
LONG = json.dumps({"inputs": ["word " * 200] * TEXTS}).encode()


def leave(raw, reset):
    if reset:
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.socket.close()


def test_work_of_clients_that_left_is_not_done(faulty):
    running = faulty("--server-io-threads", "2")
    before = running.resident()
    clients = 40
    running.hold()
    raws = [running.raw().send(request(body=LONG)) for _ in range(clients)]
    running.wait_requests(lambda count: count == clients)
    for i, raw in enumerate(raws):
        leave(raw, reset=i % 2 == 0)
    running.wait_requests(lambda count: count <= 2)  # whose texts the engine has
    running.let_go()
    running.wait_requests(lambda count: count == 0)
    running.wait_metric("fletch_disconnects_total", lambda value: value == clients)
    running.wait_of_model("queue_texts", lambda value: value == 0)
    assert running.of_model("texts_total") < clients * TEXTS / 2, "most of the work was never done"
    assert running.embed("hello").status == 200
    assert running.resident() - before < 300_000_000
    serving.until(lambda: sum(event.get("status") == 499 for event in running.events()) == clients)
    assert running.end() == 0


def test_leaving_in_every_phase(server):
    """Closing after any number of bytes leaves nothing behind."""
    whole = request()
    files = server.files()
    for cut in range(0, len(whole) + 1, 7):
        for reset in (False, True):
            raw = server.raw()
            raw.send(whole[:cut])
            leave(raw, reset)
    server.wait_requests(lambda count: count == 0)
    server.wait_metric("fletch_open_connections", lambda value: value <= 1)
    serving.until(lambda: server.files() <= files + 3, lambda: (server.files(), files))
    assert server.embed("hello").status == 200


def test_leaving_before_the_reply_is_read(server):
    for _ in range(20):
        raw = server.raw()
        raw.send(request("GET", "/metrics", None) * 20)
        leave(raw, reset=True)
    server.wait_metric("fletch_open_connections", lambda value: value <= 1)
