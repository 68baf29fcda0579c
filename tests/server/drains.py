# SPDX-License-Identifier: Apache-2.0
"""drains.py - a server that ends while clients ask it, again and again: no request is lost. tools/soak.sh drain runs it:

    FLETCH_BIN=... FLETCH_MODEL=... python tests/server/drains.py REQUESTS

Processes of clients ask on connections that they keep or renew; SIGTERM comes at some moment. A request is answered by a
whole reply, or nobody took its connection. Whatever else happens to one is a request lost."""
import json
import multiprocessing
import pathlib
import random
import socket
import sys
import tempfile
import threading
import time

import serving

CLIENTS, THREADS_OF = 2, 12
LIVE = serving.request("GET", "/ready", None)
EMBED = serving.request(body=json.dumps({"inputs": "hello"}).encode())


def converse(where, draw, counts):
    """One connection until it ends; False: nobody listens any more."""
    try:
        raw = serving.Raw(where)
    except OSError:
        return False
    with raw:
        for _ in range(draw.choice((1, 1, 3, 30))):
            try:
                raw.send(EMBED if draw.random() < 0.2 else LIVE)
                reply = raw.reply()
            except (OSError, AssertionError):
                reply = None
            status = reply.status if reply else "lost"
            counts[status] = counts.get(status, 0) + 1
            if reply is None or reply.headers.get("connection", "").lower() == "close":
                return True
    return True


def client(where, seed, results):
    counts = [{} for _ in range(THREADS_OF)]

    def work(i):
        draw = random.Random(seed * 1000 + i)
        while converse(where, draw, counts[i]):
            pass

    threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS_OF)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put({key: sum(one.get(key, 0) for one in counts) for key in set().union(*counts)})


def main(wanted, longest=6):
    """End servers, each after `longest` seconds at most, until so many requests were made."""
    total, runs, began = {}, 0, time.monotonic()
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        while sum(total.values()) < wanted:
            running = serving.Server(pathlib.Path(folder), "--server-lame-duck-ms", draw.choice((0, 50, 300)),
                                     "--server-log-level", "error")
            results = multiprocessing.Queue()
            clients = [multiprocessing.Process(target=client, args=(running.where, runs * 10 + i, results))
                       for i in range(CLIENTS)]
            for one in clients:
                one.start()
            time.sleep(draw.uniform(0.2, longest))
            code = running.end()
            for _ in clients:
                for key, count in results.get(timeout=serving.WAIT).items():
                    total[key] = total.get(key, 0) + count
            for one in clients:
                one.join()
            runs += 1
            assert code == 0, running.log()
            running.log_path.unlink()
            print(f"{runs} ends, {sum(total.values())} requests in {time.monotonic() - began:.0f} s: {total}", flush=True)
    lost = {key: count for key, count in total.items() if key not in (200, 503)}
    assert not lost, lost


if __name__ == "__main__":
    main(int(sys.argv[1]))
