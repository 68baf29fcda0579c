# SPDX-License-Identifier: Apache-2.0
"""The end: /ready says so first, what runs is finished, nothing is torn, and the exit code tells."""
import json
import os
import signal
import subprocess
import threading
import time

import drains
import pytest
import serving
from serving import BIN, WAIT, Raw, request, until

TEXTS = json.dumps({"inputs": ["word"] * 48}).encode()


def refuses(running):
    """Whether nothing listens any more: then the lame duck is over."""
    try:
        Raw(running.where).socket.close()
    except ConnectionError:
        return True
    return False


def test_work_under_way_is_finished(faulty):
    running = faulty()
    running.hold()
    with running.raw() as raw, running.raw() as kept:
        assert kept.send(request("GET", "/live", None)).reply().status == 200
        raw.send(request(body=TEXTS))
        running.wait_requests(lambda count: count == 1)
        running.send_signal(signal.SIGTERM)
        running.wait_event(lambda event: "draining" in event["msg"])
        running.let_go()
        reply = raw.reply()
        assert reply.status == 200 and len(reply.json()) == 48
        assert reply.headers["connection"].lower() == "close"
    assert running.process.wait(WAIT) == 0


def test_new_work_is_refused_while_draining(faulty):
    running = faulty()
    running.hold()
    with running.raw() as raw, running.raw() as kept, running.raw() as probe:
        for one in (kept, probe):
            assert one.send(request("GET", "/live", None)).reply().status == 200
        raw.send(request(body=TEXTS))
        running.wait_requests(lambda count: count == 1)
        running.send_signal(signal.SIGTERM)
        until(lambda: refuses(running))
        refused = kept.send(request()).reply()
        assert refused.status == 503 and int(refused.headers["retry-after"]) >= 1
        ready = probe.send(request("GET", "/ready", None)).reply()
        assert ready.status == 503 and "draining" in ready.body.decode()
        running.let_go()
        assert raw.reply().status == 200
    assert running.process.wait(WAIT) == 0


def test_lame_duck_serves_and_says_that_it_leaves(start):
    running = start("--server-lame-duck-ms", "600000")
    running.send_signal(signal.SIGTERM)
    running.wait_event(lambda event: "draining" in event["msg"])
    ready = running.ask("GET", "/ready")
    assert ready.status == 503 and b"draining" in ready.body
    assert running.ask("GET", "/live").status == 200
    reply = running.embed("hello")
    assert reply.status == 200 and reply.headers["connection"].lower() == "close"


def test_lame_duck_ends(start):
    assert start("--server-lame-duck-ms", "300").end() == 0


def test_no_reply_is_torn_under_load(start):
    """Clients in a loop while the server ends: whole replies or refused connections, nothing between."""
    running = start("--server-lame-duck-ms", "300")
    done, torn = [], []

    def work():
        while True:
            try:
                raw = Raw(running.where)
            except ConnectionRefusedError:
                return
            with raw:
                try:
                    while True:
                        reply = raw.send(request()).reply()
                        if reply is None:
                            break
                        done.append(reply.status)
                        if reply.headers.get("connection", "").lower() == "close":
                            break
                except (BrokenPipeError, ConnectionResetError):
                    continue
                except AssertionError as problem:
                    torn.append(problem)
                    return

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    until(lambda: len(done) >= 50)
    running.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join()
    assert running.process.wait(WAIT) == 0
    assert not torn
    assert set(done) <= {200, 503}


def test_no_request_is_lost():
    """Clients that connect anew all the time: closing a socket resets whoever connects meanwhile."""
    if not serving.MODEL:
        pytest.skip("FLETCH_MODEL names no model folder (make model)")
    drains.main(20_000 if "FLETCH_TEST_FULL" in os.environ else 5_000, longest=1)


def test_who_has_just_connected_is_answered(start):
    """A request that nobody has read, on a connection that nobody has accepted yet when the server is told to end, is
    answered, not dropped. The server stands still until all of them are there."""
    for _ in range(5):
        running = start()
        running.send_signal(signal.SIGSTOP)
        raws = [running.raw().send(request("GET", "/ready", None)) for _ in range(50)]
        running.send_signal(signal.SIGTERM)
        running.send_signal(signal.SIGCONT)
        for raw in raws:
            reply = raw.reply()
            assert reply is not None and reply.status in (200, 503), reply
            raw.socket.close()
        assert running.process.wait(WAIT) == 0


def test_what_takes_too_long_is_given_up(start):
    running = start("--server-drain-seconds", "0")
    with running.raw() as raw:
        raw.send(request(body=json.dumps({"inputs": [f"{i} " + "word " * 200 for i in range(2000)]}).encode()))
        running.wait_requests(lambda count: count == 1)
        running.send_signal(signal.SIGTERM)
        reply = raw.reply()
        assert reply is None or reply.status == 503, reply
    assert running.process.wait(WAIT) == 1, running.log()
    assert "cancelled" in running.log()


def test_second_signal_ends_at_once(start):
    running = start("--server-lame-duck-ms", "600000")
    running.send_signal(signal.SIGTERM)
    running.wait_event(lambda event: "draining" in event["msg"])
    running.send_signal(signal.SIGTERM)
    assert running.process.wait(WAIT) == 128 + signal.SIGTERM


def test_interrupt_skips_the_lame_duck(start):
    running = start("--server-lame-duck-ms", "600000")
    running.send_signal(signal.SIGINT)
    assert running.process.wait(WAIT) == 0


HUP, INT, TERM = signal.SIGHUP, signal.SIGINT, signal.SIGTERM


@pytest.mark.parametrize("signals", [(TERM,), (INT,), (HUP, TERM), (TERM, TERM), (TERM, HUP, INT)],
                         ids=lambda signals: "-".join(number.name for number in signals))
def test_signals_at_every_moment_of_a_start(start, signals):
    """Ten moments from the first instant to the ready server, the signals spread between that and the next."""
    began = time.monotonic()
    assert start().end() == 0
    took = time.monotonic() - began
    # Before the signals are held back (the first instants of a process) a signal just ends it.
    codes = {0, *(code for number in signals for code in (-number, 128 + number))}
    for moment in range(10):
        running = start("--server-lame-duck-ms", "30", ready=False)
        for number in signals:
            time.sleep(took * moment / 10 / len(signals))
            running.send_signal(number)
        code = running.process.wait(WAIT)
        assert code in codes, (moment, code, running.log())


@pytest.mark.parametrize("signals", [(TERM, TERM), (INT, TERM), (TERM, HUP)], ids=lambda signals: "-".join(number.name for number in signals))
def test_signals_at_every_moment_of_an_end(start, signals):
    """The second one while work is finished, cancelled or answered: the end is one that the first two signals allow."""
    codes = {0, 1, *(128 + number for number in signals)}  # 1: work was cancelled
    for pause in (0, 0.001, 0.01, 0.03, 0.1, 0.3):
        running = start("--server-lame-duck-ms", "50", "--server-drain-seconds", "1")
        with running.raw() as raw:
            raw.send(request(body=json.dumps({"inputs": [f"{i} " + "word " * 100 for i in range(500)]}).encode()))
            running.wait_requests(lambda count: count == 1)
            for number in signals:
                running.send_signal(number)
                time.sleep(pause)
            code = running.process.wait(WAIT)
        assert code in codes, (pause, code, running.log())


def test_end_without_anything_to_serve(tmp_path):
    """A model that cannot be had: told on standard error, code 3, and the port is free again."""
    result = subprocess.run([BIN, "serve", "--port", "0", "--model", str(tmp_path / "nothing")], capture_output=True,
                            env={"HOME": str(tmp_path), "FLETCH_MODEL_OFFLINE": "true"}, timeout=WAIT)
    assert result.returncode == 3 and b"nothing" in result.stderr
