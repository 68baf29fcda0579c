# SPDX-License-Identifier: Apache-2.0
"""An ordinary rolling restart loses no request: the real nginx and the real Envoy of deploy/, two servers that are ended
and started again in turn, and clients that never pause. FLETCH_TEST_RESTART_SECONDS says for how long (4),
FLETCH_TEST_RESTART_CLIENTS with how many (8), FLETCH_TEST_RESTART_PAUSE how long nobody restarts between (what the proxy
needs), FLETCH_TEST_RESTART_KILL that servers are killed instead of ended; tools/soak.sh restart gives it minutes and prints what
a request took before the first restart and since.

"Ordinary" is SIGTERM, a drain (announced for 100 ms, so that more restarts fit) and a start on the same port; while
it lasts, connections to that port are refused, and those that the proxy kept open are closed under it."""
import collections
import os
import threading
import time

import serving
from conftest import need_model
from proxy import PROXIES, tool

PAUSE, KILL = (os.environ.get(f"FLETCH_TEST_RESTART_{name}") for name in ("PAUSE", "KILL"))
SECONDS = float(os.environ.get("FLETCH_TEST_RESTART_SECONDS", "4"))
CLIENTS, RESTARTS = int(os.environ.get("FLETCH_TEST_RESTART_CLIENTS", "8")), 2


class Clients:
    """CLIENTS threads that ask one thing after another until they are told to end."""

    def __init__(self, proxy):
        self.proxy, self.over, self.lock = proxy, threading.Event(), threading.Lock()
        self.seen = collections.Counter()  # status, or what the client died of
        self.took = {"calm": [], "restarts": []}
        self.phase = "calm"
        self.threads = [threading.Thread(target=self.ask, args=(i,)) for i in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def ask(self, number):
        done = 0
        while not self.over.is_set():
            begin, phase = time.monotonic(), self.phase
            try:
                status, body = self.proxy.embed(f"client {number} request {done % 10}")
                seen = status if status != 200 or body.startswith(b"[[") else "a torn body"
            except OSError as error:
                seen = repr(error)
            with self.lock:
                self.seen[seen] += 1
                self.took[phase].append(time.monotonic() - begin)
            done += 1

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        return self.seen

    def percentiles(self):
        def at(times, share):
            return round(1e3 * sorted(times)[int(share * (len(times) - 1))], 1)
        return {phase: {"p50 ms": at(times, 0.5), "p99 ms": at(times, 0.99)} for phase, times in self.took.items() if times}


@PROXIES
def test_a_rolling_restart_loses_no_request(tmp_path, proxy):
    tool(proxy.PROGRAM)
    need_model()
    ports = [serving.free_port(), serving.free_port()]
    environment = {"FLETCH_SERVER_LAME_DUCK_MS": "100"}

    def begin(port):
        return serving.Server(tmp_path, "--server-port", port, env=environment)

    servers, restarts = [], 0
    try:
        for port in ports:
            servers.append(begin(port))
        between = proxy(tmp_path, ports)
        try:
            clients = Clients(between)
            time.sleep(SECONDS / 4)
            clients.phase = "restarts"
            end = time.monotonic() + SECONDS
            while restarts < RESTARTS or time.monotonic() < end:
                which = restarts % 2
                if KILL:
                    servers[which].kill()
                else:
                    assert servers[which].end() == 0, servers[which].log()
                servers[which] = begin(ports[which])  # returns when it is ready
                restarts += 1
                time.sleep(float(PAUSE or proxy.PAUSE))
            seen = clients.end()
        finally:
            clients.end()
            between.close()
    finally:
        for server in servers:
            server.kill()
    print(f"{proxy.PROGRAM}, {CLIENTS} clients, servers {'killed' if KILL else 'ended'}: {sum(seen.values())} requests, "
          f"{restarts} restarts: {dict(seen)}, {clients.percentiles()}")
    assert set(seen) == {200}, (seen, restarts)
