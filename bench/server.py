#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""server.py - requests per second of `fletch serve` on the loopback, by wrk on the same cores.

    bench/server.py [--fletch build/fletch] [--model FOLDER] [--seconds 8] [--rounds 3] [--precision fp32]

One text of 16 tokens per request at 1, 8 and 64 connections, and 32 texts per request at 1 and 8, over
POST /v1/embeddings with base64 answers, what openai-python sends. Before and after each round the same
engine is measured without HTTP (fletch embed on 2,048 such texts), so the share that HTTP leaves is told
from the same minutes. Rounds are interleaved; the median is printed with the lowest and highest.
`--url URL` measures another server that speaks the same route instead (a peer), without the engine's line.
wrk is from Debian (apt-get install wrk). Writes nothing.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

WORDS = "the cat sat on a mat and the dog ran to the old house".split()  # 14 words, 16 tokens
CASES = [(1, 1), (8, 1), (64, 1), (1, 32), (8, 32)]  # connections, texts


def text(number):
    words = WORDS[number % 14:] + WORDS[:number % 14]
    return " ".join(words)


def script(folder, texts):
    body = json.dumps({"model": "bench", "input": [text(i) for i in range(texts)] if texts > 1 else text(0),
                       "encoding_format": "base64"})
    path = pathlib.Path(folder) / f"post{texts}.lua"
    path.write_text('wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n'
                    f"wrk.body = [==[{body}]==]\n")
    return path


def load(url, path, connections, seconds):
    out = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", path,
                          url + "/v1/embeddings"], capture_output=True, text=True, check=True).stdout
    unit = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
    found = {name: float(value) * unit[u]
             for name, value, u in re.findall(r"(50|99)%\s+([0-9.]+)(us|ms|s|m)\b", out)}
    if "Non-2xx" in out:
        raise SystemExit("answers other than 200:\n" + out)
    return float(re.search(r"Requests/sec:\s+([0-9.]+)", out)[1]), found["50"], found["99"]


def engine(fletch, model, precision, folder):
    lines = pathlib.Path(folder) / "texts.txt"
    lines.write_text("".join(text(i) + "\n" for i in range(2048)))
    took = []
    for count in (1, 2048):
        part = pathlib.Path(folder) / "part.txt"
        part.write_text("".join(lines.read_text().splitlines(True)[:count]))
        begin = time.monotonic()
        subprocess.run([fletch, "embed", "-m", model, "-i", part, "-o", "/dev/null", "--format", "raw",
                        "--precision", precision, "--quiet"], check=True)
        took.append(time.monotonic() - begin)
    return 2047 / (took[1] - took[0])


def serve(fletch, model, precision):
    server = subprocess.Popen([fletch, "serve", "-m", model, "--port", "0", "--precision", precision,
                               "--server-log-level", "error"], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT)
    url = None
    for line in server.stdout:
        if found := re.search(r"http://[0-9.:]+", line):
            url = found[0]
        if "ready" in line:
            return server, url
    raise SystemExit("the server did not start")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fletch", default="build/fletch")
    parser.add_argument("--model", default=".cache/models/all-MiniLM-L6-v2")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--url")
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    with_ = parser.parse_args()
    server, url = (None, with_.url) if with_.url else serve(with_.fletch, with_.model, with_.precision)
    results, alone = {case: [] for case in CASES}, []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(with_.rounds):
                for connections, texts in CASES:
                    results[connections, texts].append(
                        load(url, script(folder, texts), connections, with_.seconds))
                if not with_.url:
                    alone.append(engine(with_.fletch, with_.model, with_.precision, folder))
    finally:
        if server:
            server.terminate()
    if alone:
        print(f"engine without HTTP: {statistics.median(alone):.0f} texts/s ({min(alone):.0f} to {max(alone):.0f})")
    for (connections, texts), runs in results.items():
        rate = [run[0] * texts for run in runs]
        print(f"{connections:3} connections, {texts:2} texts a request: {statistics.median(rate):7.1f} texts/s "
              f"({min(rate):.1f} to {max(rate):.1f}), {statistics.median(rate) / texts:6.1f} requests/s, "
              f"p50 {statistics.median(r[1] for r in runs):.1f} ms, p99 {statistics.median(r[2] for r in runs):.1f} ms")


if __name__ == "__main__":
    main()
