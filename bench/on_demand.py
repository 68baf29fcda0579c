# SPDX-License-Identifier: Apache-2.0
"""Models that come and go under load: 1,000 times closed and opened again while 64 clients ask for three models in turns.

    build/venv/bin/python bench/on_demand.py [--cycles 1000] [--clients 64]

Told: requests that failed (none may), vectors that are not those of the model (none may be), resident memory after each
tenth. Then what two models in turns cost, on demand and open from the start, over one, by processor time of the server
in rounds that take turns. The long
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
        """Processor time of all threads, by the scheduler's nanoseconds."""
        threads = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

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


def turns(rounds=30, requests=20):
    model = os.path.abspath(os.environ.get("FLETCH_MODEL", ROOT / ".cache/models/all-MiniLM-L6-v2"))
    ways = {}
    for way, flags in {"on demand": ("--models", f"a={model},b={model}"),
                       "open from the start": ("--model", f"a={model}", "--model", f"b={model}")}.items():
        server = Server(*flags)
        for names in ("aa", "ab"):
            ways[way, names] = server, server.connect(), []

    def cost(server, client, names):
        before = server.seconds()
        for name in names * (requests // 2):
            post(client, "/api/embed", {"model": name, "input": TEXTS[:6]})
        return server.seconds() - before

    for number in range(-1, rounds):
        order = list(ways.items())
        for (_, names), (server, client, costs) in order[number % 4:] + order[:number % 4]:
            spent = cost(server, client, names)
            if number >= 0:  # the first round opens them
                costs.append(spent)
    for (way, names), (server, _, costs) in ways.items():
        base = ways["open from the start", "aa"][2]
        shares = sorted(spent / least - 1 for spent, least in zip(costs, base, strict=True))
        print(f"{'two models in turns' if names == 'ab' else 'one model'}, {way}: processor time over one that is open from the start, "
              f"median {statistics.median(shares):+.2%} of {rounds} rounds, quartiles "
              f"{', '.join(f'{share:+.2%}' for share in statistics.quantiles(shares, n=4))}; least {min(costs) / min(base) - 1:+.2%}")
    for server in {id(way[0]): way[0] for way in ways.values()}.values():
        server.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=64)
    asked = parser.parse_args()
    failed = cycles(asked.cycles, asked.clients) if asked.cycles > 0 else 0
    turns()
    raise SystemExit(failed > 0)
