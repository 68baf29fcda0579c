# SPDX-License-Identifier: Apache-2.0
"""server.idle_exit: a server without work ends, one with work does not, and who holds its socket starts it again unnoticed.

No test says when: servers that are to stay are compared with one that became idle after them and has ended."""
import json
import select
import socket
import threading

import pytest
import serving

SOON = ("--server-idle-exit", "1")


def reached(begin, ask):
    """The server and what it answered first. On a busy machine its second may pass before it is asked: then another begins."""
    while True:
        server = begin()
        try:
            if (answer := ask(server)) is not None:
                return server, answer
        except OSError:
            pass
        assert server.process.wait(serving.WAIT) == 0 and "idle (server.idle_exit)" in server.log()


def idle(start):
    """A server of nobody: started now, ended when this returns."""
    server = start("--model", serving.SMALL, *SOON, model=False)
    assert server.process.wait(serving.WAIT) == 0 and "idle (server.idle_exit)" in server.log()


def test_probes_and_open_connections_do_not_keep_it(start):
    def ask(server):
        raw = server.raw()
        reply = raw.send(serving.request()).reply()
        return reply and (raw, reply)

    server, (raw, reply) = reached(lambda: start("--model", serving.SMALL, *SOON, model=False), ask)
    with raw as kept:  # between requests, as pools of clients keep them
        assert reply.status == 200
        while server.process.poll() is None:
            try:
                for path in ("/ready", "/live", "/metrics", "/health"):
                    server.ask("GET", path)
            except OSError:
                break
        assert server.process.wait(serving.WAIT) == 0 and kept.closed()


def test_off_means_off(start):
    server = start("--model", serving.SMALL, model=False)
    idle(start)
    assert server.embed().status == 200 and server.end() == 0


def test_texts_in_memory_keep_it_and_texts_in_a_file_do_not(start, tmp_path):
    def add(server):
        return server.ask("POST", "/add", json.dumps({"text": "one", "id": "a"}).encode()).status

    keeps, added = reached(lambda: start("--model", serving.SMALL, *SOON, model=False), add)
    files, also = reached(lambda: start("--model", serving.SMALL, *SOON, "--server-store", tmp_path / "s.db", model=False), add)
    assert added == also == 200
    idle(start)
    assert files.process.wait(serving.WAIT) == 0
    assert keeps.ask("DELETE", "/items/a").status == 200  # nothing is left to lose
    assert keeps.process.wait(serving.WAIT) == 0


def test_work_keeps_it(faulty, start):
    def work(server):
        server.hold()
        raw = server.raw().send(serving.request())
        server.wait_of_model("running_texts", lambda texts: texts == 1)
        return raw

    server, raw = reached(lambda: faulty(*SOON), work)
    with raw:
        idle(start)
        assert server.process.poll() is None
        server.let_go()
        assert raw.reply().status == 200
    assert server.process.wait(serving.WAIT) == 0


@pytest.mark.skipif(serving.WINE, reason="Windows has no systemd")
def test_who_holds_the_socket_starts_it_again(tmp_path):
    """As systemd does with Accept=no: whoever connects, also while the last process ends, is answered by it or the next."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=100)
    processes, done = [], threading.Event()

    def hold():
        while not done.is_set():
            if select.select([listening], [], [], 0.01)[0]:
                processes.append(serving.inherit(listening, tmp_path, *SOON, model=serving.SMALL))
                assert processes[-1].wait(serving.WAIT) == 0

    holder = threading.Thread(target=hold)
    holder.start()
    vectors = []
    try:
        while len(processes) < 2:  # one after another: within a life, and when it has ended
            with serving.Raw(listening.getsockname()) as raw:
                reply = raw.send(serving.request()).reply()
            assert reply is not None and reply.status == 200
            vectors.append(reply.body)
            if len(vectors) % 5 == 0:
                processes[-1].wait(serving.WAIT)
    finally:
        done.set()
        holder.join(serving.WAIT)
        listening.close()
    assert len(set(vectors)) == 1 and all(process.wait(serving.WAIT) == 0 for process in processes)
