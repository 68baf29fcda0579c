# SPDX-License-Identifier: Apache-2.0
"""first_answer.py PROGRAM MODEL [FLAGS of serve] - how long the first answer takes when no server runs (server.idle_exit).

Plays systemd: it holds the socket, starts the program when somebody connects, and ends it after the answer. The files are in
the page cache, as they are soon after a server has ended. Prints milliseconds from connect() to the last byte of the answer, and
the processor's time of a life from exec to exit, which other programs on the machine hardly change."""
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time

ROUNDS = int(os.environ.get("ROUNDS", "100"))
BODY = b'{"inputs": "what is the weather like in the mountains today"}'
ASK = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY


def as_systemd(fd):
    os.dup2(fd, 3)
    os.set_inheritable(3, True)


def once(program, model, flags):
    listening = socket.create_server(("127.0.0.1", 0))
    begin = time.perf_counter()
    client = socket.create_connection(listening.getsockname())
    client.sendall(ASK)
    select.select([listening], [], [])
    # LISTEN_PID is the program's own, which a shell knows before it becomes the program.
    process = subprocess.Popen(["/bin/sh", "-c", 'LISTEN_PID=$$ exec "$0" "$@"', program, "serve", "--model", model, *flags],
                               env=os.environ | {"LISTEN_FDS": "1", "FLETCH_SERVER_LAME_DUCK_MS": "0"}, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=lambda: as_systemd(listening.fileno()))
    answer = b""
    while piece := client.recv(65536):
        answer += piece
    end = time.perf_counter()
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    listening.close()
    return 1000 * (end - begin)


def main():
    program, model, *flags = sys.argv[1:]
    once(program, model, flags)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    times = sorted(once(program, model, flags) for _ in range(ROUNDS))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / ROUNDS
    print(f"first answer of {ROUNDS}: median {times[ROUNDS // 2]:.0f} ms, p99 {times[min(ROUNDS - 1, ROUNDS * 99 // 100)]:.0f} ms, "
          f"best {times[0]:.0f} ms; processor {cpu:.0f} ms a life")


main()
