# SPDX-License-Identifier: Apache-2.0
"""server_checks.py - what server.py asks of `fletch serve` beside its speed: processor time, memory, idle connections.

All three use a folder of one encoder layer, so that the server is busy with requests and not
with vectors, and one thread for the engine.
"""
import contextlib
import pathlib
import re
import resource
import socket
import subprocess
import sys
import time

from harness import HERE, spent_by
from server_peers import fletch, script, text


def one_layer(model, folder):
    """A folder of one encoder layer with the model's tokenizer."""
    subprocess.run([sys.executable, HERE / "gpu/shapes.py", folder, "one-layer", "--like", model], check=True, stdout=subprocess.DEVNULL)
    return pathlib.Path(folder) / "one-layer"


def processor_seconds(process):
    """Of all threads; none of a server's threads ends while it serves."""
    total = 0
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def resident_kib(process):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{process}/status").read_text())[1])


def metric(page, name):
    return sum(float(value) for value in re.findall(rf"^fletch_{name}(?:\{{[^}}]*\}})? ([0-9.e+-]+)$", page, re.M))


def steady_rate(server, path, connections, seconds):
    """Texts/s that the server itself counted while wrk was at work."""
    with subprocess.Popen(["wrk", "-t1", f"-c{connections}", f"-d{round(seconds) + 1}s", "-s", path,
                           server.url + "/v1/embeddings"], stdout=subprocess.DEVNULL) as wrk:
        time.sleep(0.5)
        first, begin = metric(server.get("/metrics"), "embeddings_total"), time.monotonic()
        time.sleep(seconds)
        last, took = metric(server.get("/metrics"), "embeddings_total"), time.monotonic() - begin
        wrk.wait()
    return (last - first) / took


def embed(with_, folder, model, texts, *flags):
    """Seconds of `fletch embed` on the texts, and processor seconds."""
    path, begin = pathlib.Path(folder) / "texts.txt", time.monotonic()
    path.write_text("".join(text + "\n" for text in texts))
    used, _ = spent_by([with_.fletch, "embed", "-m", model, "-i", path, "-o", "/dev/null", "--format", "raw", "--precision", with_.precision,
                        "--quiet", *flags])
    return time.monotonic() - begin, used


def engine_us(with_, folder, model, batch):
    """Processor time of tokenising and forward for one text when `batch` of them are embedded at a time."""
    one, many = (embed(with_, folder, model, [text(i) for i in range(count)], "--cpu-intra-op-threads", 1, "--batch-max-tokens", 16 * batch)[1]
                 for count in (1, 4096))
    return 1e6 * (many - one) / 4095


def served(server, path, connections, seconds):
    """What the server did while wrk was at it: texts, batches, processor seconds."""
    page, begin = server.get("/metrics"), processor_seconds(server.process.pid)
    server.load(path, connections, seconds)
    used, after = processor_seconds(server.process.pid) - begin, server.get("/metrics")
    return *(metric(after, name) - metric(page, name) for name in ("embeddings_total", "batches_total")), used


def overhead(with_, folder):
    """Microseconds of processor time per request beyond tokenising and forward, by connections. The engine's share is
    the mean of what it is just before and just after, with batches of the size that the server makes."""
    model, found = one_layer(with_.model, folder), {"1": [], "8": [], "64": []}
    with fletch(with_.fletch, model, with_.precision, "--cpu-intra-op-threads", 1) as server:
        for _ in range(with_.rounds):
            for connections, runs in found.items():
                texts, batches, _used = served(server, script(folder, 1), int(connections), 1)
                batch = max(1, round(texts / batches))
                before = engine_us(with_, folder, model, batch)
                texts, batches, used = served(server, script(folder, 1), int(connections), with_.seconds)
                alone = (before + engine_us(with_, folder, model, batch)) / 2
                runs.append({"requests": texts, "batch": texts / batches, "all_us": 1e6 * used / texts, "engine_us": alone,
                             "rest_us": 1e6 * used / texts - alone})
                print(f"{connections} connections: {runs[-1]}", flush=True)
    return found


def memory(with_, folder):
    """Resident memory as requests of a word go by, 64 connections."""
    path, seen = script(folder, 1), []
    path.write_text(path.read_text().replace(text(0), "cat"))
    with fletch(with_.fletch, one_layer(with_.model, folder), with_.precision, "--cpu-intra-op-threads", 1,
                "--server-deadline-ms", 3600000) as server:  # a run this long may be interrupted
        try:
            while not seen or seen[-1][0] < with_.requests:
                server.load(path, 64, with_.seconds)
                seen.append([metric(server.get("/metrics"), "embeddings_total"), resident_kib(server.process.pid)])
                print(f"{seen[-1][0]:.0f} requests, {seen[-1][1]} KiB", flush=True)
        except KeyboardInterrupt:
            print("broken off; what was seen is kept")
    settled = [kib for requests, kib in seen if requests >= seen[-1][0] / 10]
    return {"requests": seen[-1][0], "after_a_tenth_kib": settled[0], "last_kib": settled[-1], "most_kib": max(settled)}


def is_served(connection):
    connection.sendall(b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n")
    return connection.recv(4096).startswith(b"HTTP/1.1 200")


def idle(with_, folder):
    """Speed without and with thousands of silent connections, and whether those are still served afterwards."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(with_.idle, hard - 200)
    with fletch(with_.fletch, one_layer(with_.model, folder), with_.precision, "--cpu-intra-op-threads", 1,
                "--server-idle-seconds", 600) as server, contextlib.ExitStack() as held:
        server.load(script(folder, 1), 8, 1)
        without = server.load(script(folder, 1), 8, with_.seconds)
        before = resident_kib(server.process.pid)
        host, port = server.url.removeprefix("http://").split(":")
        silent = [held.enter_context(socket.create_connection((host, int(port)), 30)) for _ in range(count)]
        time.sleep(1)
        with_them = server.load(script(folder, 1), 8, with_.seconds)
        return {"connections": count, "without": without, "with": with_them,
                "kib_each": (resident_kib(server.process.pid) - before) / count, "still_served": sum(map(is_served, silent))}
