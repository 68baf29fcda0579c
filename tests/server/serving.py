# SPDX-License-Identifier: Apache-2.0
"""serving.py - what the server's tests share: the real program as a server, and sockets without a library.

A library would not send what these tests send. Raw talks bytes; parse() reads one reply from a stream.
"""
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = os.path.abspath(os.environ.get("FLETCH_BIN", ROOT / "build" / "fletch"))
BUILD = pathlib.Path(os.environ.get("FLETCH_BUILD", pathlib.Path(BIN).parent))
MODEL = os.path.abspath(os.environ["FLETCH_MODEL"]) if os.environ.get("FLETCH_MODEL") else ""
NAME = os.path.basename(MODEL)  # what clients call a model that was opened from a folder
SMALL = ROOT / "tests/golden/folders/family-distilbert"  # a model of its own, of 32 dimensions
SANITIZED = bool(os.environ.get("FLETCH_TEST_SANITIZED"))  # tools/sanitize.sh: memory is the sanitizer's, and says nothing
WINE = bool(os.environ.get("FLETCH_TEST_WINE"))  # tools/cross.sh: the program is that of Windows, the tests are Linux'
WAIT = float(os.environ.get("FLETCH_TEST_PATIENCE", "180"))  # no test measures it: it ends what hangs

# A run in the background may start with these ignored, and children would inherit that.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


def until(holds, told=lambda: "it never came to hold"):
    """What holds() answers once it is true. What a server does after its reply shows a moment later: a test waits
    for it and never reads it once."""
    end = time.monotonic() + WAIT
    while not (answer := holds()):
        assert time.monotonic() < end, told()
        time.sleep(0.02)
    return answer


def files_of(folder):
    """{name: bytes} of all below it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def free_port():
    """A port nobody has, below those that the system gives to connections in passing."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10000, max(first, 20000))
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:200]!r}>"


class Raw:
    """One connection, bytes in and out."""

    def __init__(self, address, timeout=WAIT):
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(address, timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.held = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data.encode("latin-1") if isinstance(data, str) else data)
        return self

    def more(self):
        got = self.socket.recv(65536)
        self.held += got
        return bool(got)

    def reply(self, head=False):
        """The next reply; None when the connection ends before its first byte."""
        try:
            while b"\r\n\r\n" not in self.held:
                if not self.more():
                    assert not self.held, f"a torn reply: {self.held!r}"
                    return None
        except ConnectionResetError:
            return None
        top, self.held = self.held.split(b"\r\n\r\n", 1)
        lines = top.decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        headers = {}
        for line in lines[1:]:
            key, _, value = line.partition(":")
            headers[key.strip().lower()] = value.strip()
        size = 0 if head or status in (100, 204, 304) else int(headers.get("content-length", 0))
        while len(self.held) < size:
            assert self.more(), "the body is torn"
        body, self.held = self.held[:size], self.held[size:]
        return Reply(status, headers, body)

    def closed(self):
        """Whether the server ends the connection now (waits for it)."""
        try:
            while True:
                got = self.socket.recv(65536)
                if not got:
                    return True
                self.held += got
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False


def request(method="POST", path="/embed", body=b'{"inputs":"hello"}', **headers):
    """The bytes of a request; a header given as None is left out."""
    fields = {"host": "x", "content-type": "application/json"}
    if body is not None:
        fields["content-length"] = str(len(body))
    for key, value in headers.items():
        fields[key.replace("_", "-")] = value
    lines = [f"{method} {path} HTTP/1.1"] + [f"{k}: {v}" for k, v in fields.items() if v is not None]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b"")


class Server:
    """A server of its own: Server(tmp_path, "--flag", ...); ends with the test."""

    PROGRAM = BIN

    def __init__(self, folder, *flags, model=True, ready=True, env=None, **options):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("FLETCH_", "HF_", "XDG_", "LISTEN_"))}
        clean.update(HOME=str(folder), HF_HOME=str(folder / "hf"), HF_ENDPOINT="http://127.0.0.1:1", LC_ALL="C.UTF-8",
                     FLETCH_SERVER_PORT="0", FLETCH_SERVER_LAME_DUCK_MS="0", FLETCH_SERVER_LOG_FORMAT="json",
                     FLETCH_SERVER_DEADLINE_MS="600000",  # a sanitized engine on a busy machine is slow
                     FLETCH_SERVER_DRAIN_SECONDS="600")
        if WINE and "--unix-socket" in flags:
            raise unittest.SkipTest("Windows has no Unix sockets for it")
        if model:
            clean["FLETCH_MODEL_ID"] = MODEL
        clean.update(env or {})
        self.log_path = folder / f"log-{time.monotonic_ns()}"
        self.log_file = open(self.log_path, "wb")
        self.process = subprocess.Popen([self.PROGRAM, "serve", *map(str, flags)], cwd=folder, env=clean,
                                        stdout=subprocess.PIPE, stderr=self.log_file, **options)
        self.lines, self.where, self.port, self.unix = [], None, None, None
        self.seen = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        if ready:
            try:
                self.wait_line("ready:")
            except AssertionError:
                self.kill()
                raise

    def _read(self):
        for line in self.process.stdout:
            with self.seen:
                text = line.decode().strip()
                self.lines.append(text)
                found = re.match(r"listening on http://(.*):(\d+)$", text)
                if found and not self.where:
                    self.where = (found[1].strip("[]"), int(found[2]))
                    self.port = self.where[1]
                if text.startswith("listening on unix:"):
                    self.unix = text.split("unix:", 1)[1]
                self.seen.notify_all()
        with self.seen:
            self.lines.append(None)
            self.seen.notify_all()

    def wait_line(self, start):
        with self.seen:
            found = self.seen.wait_for(lambda: next((n for n in self.lines if n is None or n.startswith(start)), "") != "",
                                       WAIT)
            assert found and any(n and n.startswith(start) for n in self.lines), \
                (self.lines, self.process.poll(), self.log())

    def log(self):
        return self.log_path.read_text(errors="replace")

    def events(self):
        whole = self.log().split("\n")[:-1]  # the last line may still be on its way
        return [json.loads(line) for line in whole if line.startswith("{")]

    def wait_event(self, test):
        """The first log event for which test(event) holds."""
        return until(lambda: next((event for event in self.events() if test(event)), None), self.log)

    def raw(self, unix=False, **options):
        return Raw(self.unix if unix else self.where, **options)

    def ask(self, method="POST", path="/embed", body=b'{"inputs":"hello"}', headers=None):
        """One request by Python's own client, on a connection of its own."""
        client = http.client.HTTPConnection(*self.where, timeout=WAIT)
        try:
            fields = {"content-type": "application/json", **(headers or {})}
            client.request(method, path, body if method not in ("GET", "HEAD") else None, fields)
            reply = client.getresponse()
            return Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
        finally:
            client.close()

    def embed(self, text="hello", **headers):
        return self.ask(body=json.dumps({"inputs": text}).encode(), headers=headers)

    def metrics(self):
        """{name{labels}: value}"""
        found = {}
        for line in self.ask("GET", "/metrics").body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name] = float(value)
        return found

    def wait_metric(self, name, test):
        until(lambda: test(self.metrics().get(name, 0)), lambda: (name, self.metrics().get(name)))

    def of_model(self, name):
        """A figure of the models, all of them together."""
        return sum(value for key, value in self.metrics().items() if key.startswith(f"fletch_{name}" + "{"))

    def wait_of_model(self, name, test):
        until(lambda: test(self.of_model(name)), lambda: (name, self.of_model(name)))

    def wait_requests(self, test):
        """Until test(requests between their heads and the end of their replies) holds. The scrape is not among them,
        nor is the one before it: they come on one connection."""
        with self.raw() as probe:
            def under_way():
                page = probe.send(request("GET", "/metrics", None)).reply().body.decode()
                return int(re.search(r"^fletch_inflight_requests (\d+)", page, re.M)[1]) - 1
            until(lambda: test(under_way()), under_way)

    def send_signal(self, number):
        if WINE and number == signal.SIGTERM:
            self.send_event(1)
        elif WINE and number == signal.SIGHUP:
            raise unittest.SkipTest("Windows has no SIGHUP")
        else:
            self.process.send_signal(number)

    def send_event(self, event):
        """What the console of a program of Windows would send to it (send_break.c)."""
        ready = next((line for line in self.lines if line and line.startswith("ready:")), None)
        if not ready:
            raise unittest.SkipTest("a program of Windows can be found once it has said its number")
        subprocess.run([BUILD / "tests/send_break", ready.rsplit(" ", 1)[1], str(event)], check=True, timeout=WAIT)

    def end(self, number=signal.SIGTERM):
        """Ask it to end; its exit code."""
        if self.process.poll() is None:
            self.send_signal(number)
        code = self.process.wait(WAIT)
        self.log_file.close()
        return code

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT)
        self.log_file.close()

    def resident(self):
        if SANITIZED:
            return 0
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def inherit(listening, home, *flags, model=None):
    """The program on a socket of systemd, as sd_listen_fds(3) says."""
    code = ("import os,sys; fd=int(sys.argv[1]); os.dup2(fd, 3); os.set_inheritable(3, True);"
            "os.environ['LISTEN_PID']=str(os.getpid()); os.environ['LISTEN_FDS']='1';"
            "os.execv(sys.argv[2], sys.argv[2:])")
    env = {"HOME": str(home), "FLETCH_MODEL_ID": str(model or MODEL), "FLETCH_SERVER_LAME_DUCK_MS": "0", "PATH": os.environ["PATH"]}
    return subprocess.Popen([sys.executable, "-c", code, str(listening.fileno()), BIN, "serve", *flags], env=env,
                            pass_fds=[listening.fileno()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


FOR_EVER = 10**9


class Faulty(Server):
    """The whole program on an engine that is late, fails, runs out of memory, gives NaN or hangs when told to."""

    PROGRAM = str(BUILD / "tests" / "fletch_faulty")

    def command(self, text):
        with self.seen:
            before = sum(line == f"ok {text}" for line in self.lines)
        self.process.stdin.write(f"{text}\n".encode())
        self.process.stdin.flush()
        with self.seen:
            assert self.seen.wait_for(lambda: sum(line == f"ok {text}" for line in self.lines) > before, WAIT)

    def plan(self, fault, at=0, times=FOR_EVER, late_ms=0):
        self.command(f"plan {fault} {at} {times} {late_ms}")

    def hold(self):
        """The engine keeps what it has and what it gets until let_go()."""
        self.plan("late", late_ms=FOR_EVER)

    def let_go(self):
        self.plan("none")
