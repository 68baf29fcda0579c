# SPDX-License-Identifier: Apache-2.0
"""`fletch health` says whether a server is ready, and a server ends with the terminal it was started on."""
import contextlib
import os
import pty
import signal
import socket
import subprocess
import threading
import time

import pytest
import serving


def health(folder, *flags, **env):
    clean = {"HOME": str(folder), "PATH": "/usr/bin:/bin", **env}
    return subprocess.run([serving.BIN, "health", *map(str, flags)], capture_output=True, text=True, cwd=folder, env=clean,
                          timeout=serving.WAIT, check=False)


def test_a_server_that_is_ready(start, tmp_path):
    server = start()
    done = health(tmp_path, "--port", server.port)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"127.0.0.1:{server.port} is ready\n", "")
    assert health(tmp_path, FLETCH_SERVER_PORT=str(server.port), FLETCH_SERVER_HOST="0.0.0.0").returncode == 0
    assert health(tmp_path, "-q", "--port", server.port).stdout == ""
    (tmp_path / "c.toml").write_text(f"[server]\nport = {server.port}\n")
    assert health(tmp_path, "--config", "c.toml").returncode == 0


def test_one_at_a_unix_socket(start, tmp_path):
    start("--unix-socket", tmp_path / "s")
    assert health(tmp_path, "--host", "none", "--unix-socket", tmp_path / "s").returncode == 0


def test_a_server_that_asks_for_keys(start, tmp_path):
    (tmp_path / "keys").write_text("0123456789abcdef0123456789abcdef\n")
    assert health(tmp_path, "--port", start("--api-key-file", tmp_path / "keys").port).returncode == 0


def test_one_that_drains_and_none_at_all(start, tmp_path):
    server = start("--server-lame-duck-ms", "600000")
    server.send_signal(signal.SIGTERM)
    done = serving.until(lambda: next((run for run in [health(tmp_path, "--port", server.port)] if run.returncode), None))
    assert done.returncode == 1 and "is not ready: 503" in done.stderr
    server.kill()
    done = health(tmp_path, "--port", serving.free_port())
    assert done.returncode == 1 and "no server at 127.0.0.1:" in done.stderr and "refused" in done.stderr


def test_something_else_that_listens(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def answer():
            peer, _ = listener.accept()
            peer.sendall(b"220 mail.example ESMTP\r\n")
            peer.close()
        thread = threading.Thread(target=answer)
        thread.start()
        assert health(tmp_path, "--port", listener.getsockname()[1]).returncode == 1
        thread.join()


def test_one_that_drips(tmp_path):
    """The limit is one for all of it: a byte now and then does not prolong it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def drip():
            peer, _ = listener.accept()
            with peer, contextlib.suppress(OSError):
                while True:
                    peer.sendall(b"H")
                    time.sleep(0.2)
        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        done = health(tmp_path, "--port", listener.getsockname()[1])
        assert done.returncode == 1 and "no answer within 5 seconds" in done.stderr
        thread.join()


def test_wrong_usage(tmp_path):
    assert health(tmp_path, "--port", "0").returncode == 2
    assert health(tmp_path, "--host", "none").returncode == 2
    assert health(tmp_path, "now").returncode == 2


@pytest.mark.skipif(not serving.WINE, reason="events of Windows (tools/cross.sh windows)")
def test_what_the_console_of_windows_says(start):
    """The end of somebody's session and of the machine, of which services hear, change nothing; a closed window is SIGTERM."""
    server = start("--server-lame-duck-ms", "600000")
    for event in (5, 6):
        server.send_event(event)
    assert server.ask("GET", "/ready").status == 200
    server.send_event(2)
    serving.until(lambda: server.ask("GET", "/ready").status == 503)


terminals = pytest.mark.skipif(serving.WINE, reason="a program of Windows has no terminal of Linux")


def with_signals():
    """As a terminal's child: the tests may have been started where these are ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def on_terminal(tmp_path, *before):
    """A server whose controlling terminal is a pseudo terminal: (process, the other end)."""
    ours, theirs = pty.openpty()
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "FLETCH_MODEL_ID": serving.MODEL, "FLETCH_SERVER_PORT": "0",
           "FLETCH_SERVER_LAME_DUCK_MS": "0"}
    process = subprocess.Popen(["setsid", "--ctty", *before, serving.BIN, "serve"], stdin=theirs, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=env, cwd=tmp_path, preexec_fn=with_signals)
    os.close(theirs)
    while not process.stdout.readline().startswith(b"ready:"):
        assert process.poll() is None, process.stderr.read()
    return process, ours


@terminals
def test_a_terminal_that_closes_ends_its_server(tmp_path):
    process, terminal = on_terminal(tmp_path)
    with process:
        process.send_signal(signal.SIGHUP)  # from a person, and the terminal is there: reads the keys again
        while b"reloaded" not in process.stderr.readline():
            assert process.poll() is None
        os.close(terminal)
        assert process.wait(serving.WAIT) == 0


@terminals
def test_nohup_keeps_it(tmp_path):
    process, terminal = on_terminal(tmp_path, "nohup")
    with process:
        os.close(terminal)
        process.send_signal(signal.SIGHUP)
        while b"reloaded" not in (line := process.stderr.readline()):
            assert line, process.poll()
        process.send_signal(signal.SIGTERM)
        assert process.wait(serving.WAIT) == 0
