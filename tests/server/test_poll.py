# SPDX-License-Identifier: Apache-2.0
"""The loop that macOS and Windows have, in few words; tools/poll.sh takes all tests of the server through it."""
import os
import pathlib
import socket
import subprocess

import conftest
import pytest
import serving

FOLDER = pathlib.Path(os.environ.get("FLETCH_BUILD", serving.ROOT / "build")) / "poll"


class Poll(serving.Server):
    PROGRAM = str(FOLDER / "fletch")


class FaultyPoll(serving.Faulty):
    PROGRAM = str(FOLDER / "tests" / "fletch_faulty")


@pytest.fixture
def polls(tmp_path):
    conftest.need_model()
    started = []

    def run(kind, *flags, **options):
        if not pathlib.Path(kind.PROGRAM).exists():
            pytest.skip("there is no program with that loop (ninja fletch_poll fletch_faulty_poll)")
        started.append(kind(tmp_path, *flags, **options))
        return started[-1]

    yield run
    for running in started:
        running.kill()


def test_requests_beside_many_that_wait(polls, server):
    """More connections than the loop has places at first: idle, half a head, pipelined."""
    running = polls(Poll, "--server-io-threads", "2", "--server-header-seconds", "600")  # half a head may wait as long as it takes
    want = server.embed().body
    whole = serving.request()
    waiting = [running.raw() for _ in range(200)]
    for raw in waiting[::2]:
        raw.send(whole[:20])
    for raw in waiting[1::4]:
        raw.send(whole * 3)
        assert [raw.reply().body for _ in range(3)] == [want] * 3
    for raw in waiting[::2]:
        raw.send(whole[20:])
    assert all(raw.reply().body == want for raw in waiting[::2])
    for raw in waiting:
        raw.socket.close()
    running.wait_metric("fletch_open_connections", lambda count: count == 1)
    assert running.end() == 0, running.log()


def test_who_leaves_while_the_work_runs(polls):
    """One breaks off, one only shuts its side: both are cancelled. Who has shut it and reads slowly gets it all."""
    running = polls(FaultyPoll, "--model", serving.MODEL, stdin=subprocess.PIPE)
    running.hold()
    slow = running.raw().send(serving.request("GET", "/openapi.json", None) * 100)
    slow.socket.shutdown(socket.SHUT_WR)
    stays = running.raw().send(serving.request())
    running.wait_of_model("running_texts", lambda count: count == 1)  # the engine has it, and none of the two
    left, shut = [running.raw().send(serving.request()) for _ in range(2)]
    running.wait_of_model("queue_texts", lambda count: count == 2)
    left.socket.close()
    shut.socket.shutdown(socket.SHUT_WR)
    running.wait_metric("fletch_disconnects_total", lambda count: count == 2)
    running.let_go()
    assert shut.reply() is None
    assert stays.reply().status == 200
    assert len({slow.reply().body for _ in range(100)}) == 1
    assert running.end() == 0, running.log()
