# SPDX-License-Identifier: Apache-2.0
"""server_peers.py - servers that server.py races: how each is started, asked and proven to give the same vectors.

Every server speaks POST /v1/embeddings with base64 answers, so all get the same bytes from the same wrk. Each is set
as its makers say for this machine: infinity with its torch engine, llama-server with all cores and as many slots as a
batch may have. A server that is not being measured sleeps; it has nothing to do.
"""
import base64
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import tempfile
import time
import urllib.request

import numpy

WORDS = "the cat sat on a mat and the dog ran to the old house".split()  # 14 words, 16 tokens
UNIT = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
START_SECONDS = 600  # torch and its friends need minutes on a busy machine


def text(number):
    """Words in an order of their own: fletch computes equal texts of a request once."""
    return " ".join(random.Random(number).sample(WORDS, len(WORDS)))


def script(folder, texts):
    body = json.dumps({"model": "bench", "input": [text(i) for i in range(texts)] if texts > 1 else text(0),
                       "encoding_format": "base64"})
    path = pathlib.Path(folder) / f"post{texts}.lua"
    path.write_text('wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n'
                    f"wrk.body = [==[{body}]==]\n")
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A process that answers at self.url until it is left."""

    def __init__(self, version, port, command, **environment):
        self.version, self.url = version, f"http://127.0.0.1:{port}"
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([str(word) for word in command], stdout=self.log, stderr=self.log,
                                        env=os.environ | environment)
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                self.vectors([text(0)])
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    self.__exit__()
                    self.log.seek(0)
                    raise SystemExit(f"{command[0]} did not start:\n{self.log.read().decode(errors='replace')[-2000:]}")
                time.sleep(0.2)

    def vectors(self, texts):
        body = json.dumps({"model": "bench", "input": texts, "encoding_format": "base64"}).encode()
        ask = urllib.request.Request(self.url + "/v1/embeddings", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(ask, timeout=600) as answer:
            rows = sorted(json.load(answer)["data"], key=lambda row: row["index"])
        found = numpy.stack([numpy.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in rows])
        return found / numpy.linalg.norm(found, axis=1, keepdims=True)

    def load(self, path, connections, seconds):
        """Requests/s, p50 and p99 in ms, by wrk."""
        whole = max(1, round(seconds))
        out = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{whole}s", "--timeout", "600s", "--latency", "-s",
                              path, self.url + "/v1/embeddings"], capture_output=True, text=True, check=True).stdout
        times = {name: float(value) * UNIT[unit]
                 for name, value, unit in re.findall(r"(50|99)%\s+([0-9.]+)(us|ms|s|m)\b", out)}
        if "Non-2xx" in out or "Socket errors" in out:
            raise SystemExit("answers other than 200:\n" + out)
        return {"rate": float(re.search(r"Requests/sec:\s+([0-9.]+)", out)[1]), "p50": times["50"], "p99": times["99"]}

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=600) as answer:
            return answer.read().decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def fletch(program, model, precision="fp32", *more):
    port, said = free_port(), subprocess.run([program, "version"], capture_output=True, text=True).stdout
    return Server(said.splitlines()[0] if said else "fletch", port, [
        program, "serve", "-m", model, "--port", port, "--precision", precision, "--server-log-level", "error", *more])


def infinity(program, model):
    port = free_port()
    version = subprocess.run([pathlib.Path(program).with_name("python"), "-c", "import importlib.metadata as m, torch\n"
                              "print(m.version('infinity-emb') + ', torch ' + torch.__version__)"], capture_output=True, text=True, check=True)
    return Server("infinity-emb " + version.stdout.strip(), port, [
        program, "v2", "--model-id", pathlib.Path(model).resolve(), "--served-model-name", "bench", "--engine", "torch", "--device", "cpu",
        "--url-prefix", "/v1", "--port", port, "--log-level", "error"], DO_NOT_TRACK="1", HF_HUB_OFFLINE="1")


def llama(program, model):
    program, _, weights = program.partition(":")
    port, said = free_port(), subprocess.run([program, "--version"], capture_output=True, text=True)
    return Server("llama-server " + (said.stderr + said.stdout).strip().splitlines()[0], port, [
        program, "-m", weights, "--embedding", "--pooling", "mean", "--host", "127.0.0.1", "--port", port, "-t",
        len(os.sched_getaffinity(0)), "-b", 2048, "-ub", 512, "-c", 16384, "-np", 64, "--alias", "bench", "--log-disable"])


PEERS = {"infinity": (infinity, 0.9999), "llama.cpp": (llama, 0.999)}  # and the smallest cosine to our vectors


def start(name, program, model):
    if name not in PEERS:
        raise SystemExit(f"no peer {name}; there are {', '.join(PEERS)}")
    return PEERS[name][0](program, model)


def parity(ours, theirs, name):
    """The smallest cosine between the two servers' vectors of 32 texts of 3 to 60 tokens."""
    texts = [" ".join((WORDS * 4)[i:3 * i // 2 + 3]) for i in range(32)]
    found = float((ours.vectors(texts) * theirs.vectors(texts)).sum(1).min())
    if found < PEERS[name][1]:
        raise SystemExit(f"{theirs.version}: cosine {found:.6f} to our vectors, less than {PEERS[name][1]}: not the same model")
    return found
