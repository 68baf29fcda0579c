# SPDX-License-Identifier: Apache-2.0
"""hostile.py - what a small /embed request takes while nobody else asks, and under 24 clients that mean harm.

    FLETCH_BIN=build/fletch FLETCH_MODEL=FOLDER python bench/hostile.py [--rounds 5] [--seconds 8] [--kinds long,drip,...] [--flags "of the server"]
    tools/bench.sh hostile

One client on one connection asks for one short text after another, 5 ms between them, calm and under attack in turns. The
hostile ones are processes of their own at the lowest priority, so that it is the server that is measured and not what they
cost themselves; four of each kind:

    long     /tokenize of 6 MB that takes seconds; they leave after half a second and come again
    still    /tokenize of 1 MB, and the reply is not read
    drip     a body that comes a byte at a time
    body     8 MB of JSON that is wrong at its last byte
    noise    framings that are refused, as fast as they can
    torn     connections that end in the middle of a request, as fast as they can
"""
import json
import multiprocessing
import os
import pathlib
import random
import socket
import sys
import tempfile
import time

from harness import ROOT, arguments

sys.path.append(str(ROOT / "tests/server"))
import serving  # noqa: E402
from serving import Raw, request  # noqa: E402

LONG = json.dumps({"inputs": "[" * 6_000_000}).encode()
STILL = json.dumps({"inputs": "a " * 500_000}).encode()
BODY = b'{"inputs":[' + b'"a text like any other", ' * 330_000 + b"}"


def long(where):
    with Raw(where) as raw:
        raw.send(request(path="/tokenize", body=LONG))
        time.sleep(0.5)


def still(where):
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(where)
        one.sendall(request(path="/tokenize", body=STILL))
        time.sleep(5)


def drip(where):
    with Raw(where) as raw:
        raw.send(request(body=b"x" * 10_000)[:-10_000])
        for _ in range(50):
            raw.send(b"x")
            time.sleep(0.1)


def body(where):
    with Raw(where) as raw:
        raw.send(request(body=BODY)).reply()


def noise(where):
    with Raw(where) as raw:
        raw.send(request(transfer_encoding="chunked", x="a" * random.randrange(9000))).reply()


def torn(where):
    with Raw(where) as raw:
        whole = request(body=b'{"inputs":"hello"}')
        raw.send(whole[:random.randrange(len(whole))])


KINDS = {kind.__name__: kind for kind in (long, still, drip, body, noise, torn)}


def attack(kind, where, on, seed):
    os.nice(19)
    random.seed(seed)
    while True:
        on.wait()
        try:
            KINDS[kind](where)
        except (OSError, AssertionError):
            pass  # refused, or cut off: that is the server's right


def ask(where, seconds, number):
    """Milliseconds of each request."""
    took, end = [], time.monotonic() + seconds
    with Raw(where) as raw:
        while time.monotonic() < end:
            text = json.dumps({"inputs": f"a small text, number {number} of {len(took)}"}).encode()
            begin = time.perf_counter()
            reply = raw.send(request(body=text)).reply()
            took.append(1e3 * (time.perf_counter() - begin))
            assert reply is not None and reply.status == 200, reply
            time.sleep(0.005)
    return took


def percentiles(calm, attacked) -> str:
    """p50 and p99 of both."""
    def at(times, share):
        return sorted(times)[int(share * (len(times) - 1))]
    return ", ".join(f"{name} {at(calm, share):.1f} -> {at(attacked, share):.1f} ms" for name, share in (("p50", .5), ("p99", .99)))


def main():
    options = arguments(__doc__, rounds=5, seconds=8.0, clients=24, kinds=",".join(KINDS), flags="").parse_args()
    kinds, on = options.kinds.split(","), multiprocessing.Event()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors; {options.clients} clients: {options.kinds}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        server = serving.Server(pathlib.Path(folder), "--server-log-level", "error", *options.flags.split())
        clients = [multiprocessing.Process(target=attack, args=(kinds[i % len(kinds)], server.where, on, i), daemon=True)
                   for i in range(options.clients)]
        for client in clients:
            client.start()
        calm, attacked = [], []
        ask(server.where, 1, -1)
        for turn in range(options.rounds):
            calm.append(ask(server.where, options.seconds, 2 * turn))
            on.set()
            time.sleep(1)
            attacked.append(ask(server.where, options.seconds, 2 * turn + 1))
            on.clear()
            serving.until(lambda: server.metrics()["fletch_inflight_requests"] <= 1)
            time.sleep(1)
            print(f"round {turn}: {percentiles(calm[-1], attacked[-1])}", flush=True)
        for client in clients:
            client.terminate()
        code = server.end()
    both = [sum(rounds, []) for rounds in (calm, attacked)]
    print(f"all: {len(both[0])} and {len(both[1])} requests; {percentiles(*both)}; most {max(both[0]):.0f} -> {max(both[1]):.0f} ms")
    sys.exit(code)


if __name__ == "__main__":
    main()
