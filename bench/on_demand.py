# SPDX-License-Identifier: Apache-2.0
"""Models that come and go under load: 1,000 times closed and opened again while 64 clients ask for three models in turns.

    build/venv/bin/python bench/on_demand.py [--cycles 1000] [--clients 64]

Told: requests that failed (none may), vectors that are not those of the model (none may be), resident memory after each
tenth. Then what two models in turns cost over one, by processor time of the server, in rounds that take turns. The long
form of tests/server/test_on_demand.py. FLETCH_BIN and FLETCH_MODEL as in the tests.
"""
import argparse
import http.client
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = os.environ.get("FLETCH_BIN", str(ROOT / "build/fletch"))
FOLDERS = ROOT / "tests/golden/folders"
NAMES = ("mpnet", "family-electra", "pooling-cls")
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))


class Server:
    def __init__(self, *flags):
        self.process = subprocess.Popen([BIN, "serve", "--port", "0", "--server-log-level", "error", *map(str, flags)],
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        self.process.stdout.readline()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)

    def figure(self, name):
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith(name)))

    def seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self):
        self.process.terminate()
        return self.process.wait()


def post(client, path, body):
    client.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    reply = client.getresponse()
    return reply.status, json.loads(reply.read())


def cycles(count, clients):
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            pathlib.Path(folder, name).symlink_to(FOLDERS / name)
        server = Server("--models", folder)
        once = server.connect()
        wanted = {name: post(once, "/api/embed", {"model": name, "input": TEXTS})[1]["embeddings"] for name in NAMES}
        assert len({json.dumps(rows) for rows in wanted.values()}) == len(NAMES)
        told = {"requests": 0, "failed": 0, "of another model": 0}
        over, lock = threading.Event(), threading.Lock()

        def ask(number):
            client = server.connect()
            for name in itertools.cycle(NAMES[number % 3:] + NAMES[:number % 3]):
                status, body = post(client, "/api/embed", {"model": name, "input": TEXTS})
                with lock:
                    told["requests"] += 1
                    told["failed"] += status != 200
                    told["of another model"] += status == 200 and body["embeddings"] != wanted[name]
                if over.is_set():
                    return

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        memory, done = [], 0
        while done < count:
            status, _ = post(once, "/models/unload", {"model": NAMES[done % 3]})
            told["failed"] += status != 200
            post(once, "/models/load", {"model": NAMES[done % 3]})
            done += 1
            if done % (max(count, 10) // 10) == 0:
                memory.append(server.figure("VmRSS:"))
        over.set()
        for thread in threads:
            thread.join()
        once.request("GET", "/metrics")
        opened = next(line.split()[1] for line in once.getresponse().read().decode().splitlines()
                      if line.startswith("fletch_model_opens_total"))
        print(f"{count} cycles under {clients} clients: {told}, opened {opened} times, resident KiB {memory}, exit code {server.end()}")
        return told["failed"] + told["of another model"]


def turns(rounds=12, requests=12):
    model = os.path.abspath(os.environ.get("FLETCH_MODEL", ROOT / ".cache/models/all-MiniLM-L6-v2"))
    server = Server("--models", f"a={model},b={model}")
    client, shares = server.connect(), []
    for name in ("a", "b"):
        post(client, "/api/embed", {"model": name, "input": TEXTS})

    def cost(names):
        before = server.seconds()
        for name in names:
            post(client, "/api/embed", {"model": name, "input": TEXTS[:6]})
        return server.seconds() - before

    for number in range(rounds):
        one, two = ("a" if number % 2 else "b",) * requests, ("a", "b") * (requests // 2)
        order = (cost(one), cost(two)) if number % 2 else (cost(two), cost(one))[::-1]
        shares.append(order[1] / order[0] - 1)
    print(f"two models in turns over one, processor time: median {statistics.median(shares):+.2%} of {rounds} rounds "
          f"({', '.join(f'{share:+.1%}' for share in shares)})")
    server.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=64)
    asked = parser.parse_args()
    failed = cycles(asked.cycles, asked.clients)
    turns()
    raise SystemExit(failed > 0)
