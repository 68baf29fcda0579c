# SPDX-License-Identifier: Apache-2.0
"""With one allocation failing, whichever it is, a server does not start, saying why, or answers: rightly, or with an
error; and it goes on."""
import http.client
import json
import os
import signal
import socket
import subprocess

import pytest
import serving

FOLDER = serving.ROOT / "tests" / "golden" / "folders" / "pooling-cls"
FLAGS = ("--model", FOLDER, "--server-store", "s.db", "--provider-order", "cpu", "--threads", "1", "--server-io-threads", "1",
         "--server-max-connections", "50")
REQUESTS = [("POST", "/embed", {"inputs": ["hello", "a longer text"]}), ("POST", "/v1/embeddings", {"input": "hello"}),
            ("POST", "/embeddings", {"input": ["hello", "more"], "outputs": ["tokens", "dense", "dense:8"]}),
            ("POST", "/tokenize", {"inputs": "hello there"}), ("POST", "/add", {"text": "a text", "metadata": {"n": 1}}),
            ("POST", "/search", {"text": "a text"}), ("GET", "/metrics", None),
            ("GET", "/stats", None)]


@pytest.fixture
def preload(tmp_path):
    path = tmp_path / "failing_malloc.so"
    done = subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", path, serving.ROOT / "tests/faults/failing_malloc.c"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if "asan" in os.path.basename(os.path.dirname(serving.BIN)) or "tsan" in serving.BIN:
        pytest.skip("a sanitizer brings its own heap")
    return str(path)


def ask(port, method, path, body):
    """The status; 0 where the connection ended without one, as it may when there is no memory for it."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=serving.WAIT)
    try:
        data = None if body is None else json.dumps(body).encode()
        client.request(method, path, data, {"content-type": "application/json", "connection": "close"})
        reply = client.getresponse()
        assert b"no error" not in reply.read()
        return reply.status
    except (http.client.HTTPException, ConnectionError, socket.timeout) as error:
        assert not isinstance(error, socket.timeout), (method, path)
        return 0
    finally:
        client.close()


@pytest.mark.parametrize("method, path, body", REQUESTS, ids=[path for _, path, _ in REQUESTS])
def test_every_allocation_of_a_request(start, preload, method, path, body):
    """The n-th signal lets allocation n from there on fail: one server meets them all, the log's and metrics' too."""
    server = start(*FLAGS, env={"LD_PRELOAD": preload, "FAIL_BY_SIGNAL": "1"}, model=False)
    truth = server.ask("POST", "/embed", b'{"inputs":"hello"}').json()
    statuses = []
    while not statuses or statuses[-20:] != [200] * 20:  # the failures are past the last allocation of the request
        server.process.send_signal(signal.SIGUSR2)
        statuses.append(ask(server.port, method, path, body))
        assert statuses[-1] in (200, 500, 503, 0) and server.process.poll() is None, (statuses, server.log()[-500:])
        assert len(statuses) < 1000
    assert server.ask("POST", "/embed", b'{"inputs":"hello"}').json() == truth
    assert server.end() == 0


def test_allocations_of_the_start(tmp_path, preload):
    """Every one where FLETCH_TEST_FAULTS is "all"."""
    count = tmp_path / "count"
    base = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "FLETCH_SERVER_PORT": "0", "FLETCH_SERVER_LAME_DUCK_MS": "0",
            "LD_PRELOAD": preload, "FAIL_FILE": str(count)}

    def run(at):
        for name in tmp_path.glob("s.db*"):
            name.unlink()
        with subprocess.Popen([serving.BIN, "serve", *map(str, FLAGS)], env=base | {"FAIL_AT": str(at)}, cwd=tmp_path,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            ready = any(line.startswith(b"ready") for line in process.stdout)
            if ready:
                process.send_signal(signal.SIGTERM)
            said = process.stderr.read()
            return process.wait(serving.WAIT), ready, said

    assert run(0)[:2] == (0, True)
    total = int(count.read_text())
    step = 1 if os.environ.get("FLETCH_TEST_FAULTS") == "all" else total // 40
    for at in range(1, total, step):
        code, ready, said = run(at)
        assert (code == 0) if ready else (1 <= code <= 3 and b"fletch: " in said), (at, code, said[-300:])
