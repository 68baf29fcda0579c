# SPDX-License-Identifier: Apache-2.0
"""The same bytes to nginx, to HAProxy and to fletch: no request may be understood differently.

Thousands of framings are generated around lengths, codings, folds, line ends, chunks and trailers, each with a request
hidden in its body and one after it. What a server understood is the list of (method, path) that it answered; it may
refuse earlier than another, but where both go on they must go on with the same request. Skipped where a peer is not
installed (Debian's packages nginx and haproxy)."""
import concurrent.futures
import os
import random
import re
import shutil
import socket
import subprocess
import threading

import pytest
import serving

COUNT = int(os.environ.get("FLETCH_TEST_FRAMINGS", "1500"))  # seconds; more by hand: FLETCH_TEST_FRAMINGS=20000
HIDDEN = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
AFTER = "GET /after HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
ANSWER = re.compile(rb"HTTP/1\.[01] (\d\d\d)[^\r\n]*\r\n")


# ---- Framings -----------------------------------------------------------------------------------------------------

class Dice:
    """Chance that can be repeated, and how often it strays from the rules."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rate = (0, 0.02, 0.1)[seed % 3]

    def one(self, good, odd, rate=None):
        return self.random.choice(odd if self.random.random() < (self.rate if rate is None else rate) else good)


ENDS = (["\r\n"], ["\n", "\r", "\r\r\n", " \r\n", "\0\r\n", "\t\r\n"])


def chunked(dice, body):
    """A chunked body in some spelling, right or wrong."""
    text, at = "", 0
    while at < len(body):
        count = dice.random.choice([7, 30, len(body)])
        piece = body[at:at + count]
        at += len(piece)
        size = dice.one(["{:x}", "{:X}", "{:04x}"], ["0x{:x}", "+{:x}", " {:x}", "{:x}h", "{:d}", "{:020x}", "-{:x}"])
        ext = dice.one(["", "", "", ";a", ";a=b", ";a=\"b\""], [";", ";\n", "; a = b", ";a\nb", ";a\rb", " ", ";\0", ",a", ";\xe9"])
        text += size.format(len(piece)) + ext + dice.one(*ENDS) + piece + dice.one(*ENDS)
    last = dice.one(["0", "000"], ["0;x", "00000000000000000", "", "0 "])
    trailers = dice.one(["", "", "A: b\r\n"], ["Content-Length: 5\r\n", "A: b\r\n c\r\n", ": x\r\n", "A : b\r\n", "A\r\n", "A: b\n",
                                              "\0: x\r\n", "Transfer-Encoding: chunked\r\n", HIDDEN])
    return text + last + dice.one(*ENDS) + trailers + dice.one(*ENDS)


def framing(seed):
    dice = Dice(seed)
    body = dice.random.choice([HIDDEN, "x" * 10 + HIDDEN, HIDDEN + "x"])
    form = dice.one(["length", "chunked"], ["both", "none", "twice", "coded length"], dice.rate * 2)
    coded = chunked(dice, body) if form in ("chunked", "both") or (form == "coded length") else body
    lengths = [str(len(coded)), "0", f"+{len(body)}", f"{len(body)}, {len(body)}", f"{len(body)} ", "0x10", "-1", f"0{len(body)}",
               f"{len(body)}\0", f"{len(body)}\x0b", "", "1e1", f"{len(body)};", f"{2**64 + len(body)}", f"{len(body)}\r\n {len(body)}"]
    codings = ["chunked ", "xchunked", "identity", "chunked, identity", "identity, chunked", "gzip, chunked", "chunked\0", "\x0bchunked",
               "chunked;q=1", '"chunked"', ",chunked", "", "chunked, chunked", "chu\r\n nked", "chunked\r\n , identity"]
    colons = ([":", ": ", ":\t"], [" : ", "\t: ", ":\r\n ", ": \r\n\t", ":\n ", " :", "", "\0:"])
    length = dice.one(["Content-Length", "content-length"], ["Content_Length", "Content-Length\0", "\0Content-Length", "\xa0Content-Length"]) + \
        dice.one(*colons) + dice.one([str(len(coded if form == "coded length" else body))], lengths)
    coding = dice.one(["Transfer-Encoding", "transfer-ENCODING"], ["Transfer_Encoding", "Transfer-Encoding\xa0", "\nTransfer-Encoding"]) + \
        dice.one(*colons) + dice.one(["chunked", "Chunked"], codings)
    lines = {"length": [length], "chunked": [coding], "both": [length, coding], "none": [], "twice": [length, length],
             "coded length": [length]}[form]
    lines += [dice.one(["Host: x"], ["Host : x", "Host:", "Host: x\r\nHost: x", "Host: x y", "X: y"], dice.rate / 2)]
    odd = [": x", "\0: x", "\0", "a", " a: b", "\ta: b", "a\0: b", "a: b\0c", "a: b\rc: d", "\xe9: x", "a: \xe9", "(a): b", "a: \x7f",
           "Connection: close", "Expect: 100-continue", "Upgrade: h2c", "Host: y", "Connection: Content-Length", coding, length]
    while dice.random.random() < 0.3:
        lines.append(dice.one(["A: b", "Connection: keep-alive", "X-Forwarded-For: y"], odd, dice.rate * 3))
    dice.random.shuffle(lines)
    first = dice.one(["POST /first HTTP/1.1"], ["POST /first HTTP/1.0", "POST /first HTTP/1.2", "GET /first HTTP/1.1", "POST /first HTTP/01.1",
                                                "POST http://x/first HTTP/1.1", "POST http://y/first HTTP/1.1", "POST  /first HTTP/1.1",
                                                "POST /first HTTP/1.1 ", "\r\nPOST /first HTTP/1.1", "\nPOST /first HTTP/1.1"])
    head = first + dice.one(*ENDS, dice.rate / 2) + "".join(line + dice.one(*ENDS, dice.rate / 2) for line in lines)
    return (head + dice.one(*ENDS) + coded + AFTER).encode("latin-1")


# ---- What a server understood -------------------------------------------------------------------------------------

def understood(address, data):
    """The (method, path) of the requests it answered before it refused one; a reply names them in its body."""
    got = b""
    with socket.create_connection(address, serving.WAIT) as one:
        try:
            one.sendall(data)
            one.shutdown(socket.SHUT_WR)
            while piece := one.recv(65536):
                got += piece
        except ConnectionError:
            pass
    found = []
    for status, body in replies(got):
        path = re.search(rb"(?:there is no |path:)(/\w+)", body)
        if status == 100:
            continue
        if path is None:
            break
        found.append(path[1].decode())
    return found


def replies(data):
    while match := ANSWER.search(data):
        head, _, rest = data[match.start():].partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        size = int(length[1]) if length else 0
        yield int(match[1]), rest[:size]
        data = rest[size:]


class Backend:
    """What HAProxy forwards is well formed, so that the plainest reader tells what it understood."""

    def __init__(self):
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                one, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(one,), daemon=True).start()

    def serve(self, one):
        file = one.makefile("rwb")
        try:
            while line := file.readline():
                length, coded = 0, False
                while (field := file.readline().strip().lower()) != b"":
                    length = int(field.split(b":")[1]) if field.startswith(b"content-length:") else length
                    coded |= field.startswith(b"transfer-encoding:")
                file.read(length)
                while coded and (size := int(file.readline().split(b";")[0], 16)) >= 0:
                    file.read(size)
                    while file.readline() not in (b"\r\n", b"") and size == 0:
                        pass
                    coded = size > 0
                path = b"path:" + line.split()[1]
                file.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path))
                file.flush()
        except (OSError, ValueError, IndexError):
            pass
        finally:
            one.close()


NGINX = """daemon off; error_log {folder}/error.log crit; pid {folder}/pid;
events {{ worker_connections 1000; }}
http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; default_type text/plain;
  server {{ listen 127.0.0.1:{port}; location / {{ return 404 "path:$uri"; }} }} }}
"""
HAPROXY = """global
  log stderr local0 emerg
defaults
  mode http
  timeout connect 10s
  timeout client 10s
  timeout server 10s
listen front
  bind 127.0.0.1:{port}
  server back 127.0.0.1:{back}
"""


def wait_for(port):
    def there():
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            return False
    serving.until(there)


@pytest.fixture(params=["nginx", "haproxy"])
def peer(request, tmp_path):
    name, port, backend = request.param, serving.free_port(), None
    program = shutil.which(name) or shutil.which(f"/usr/sbin/{name}")
    if program is None:
        pytest.skip(f"{name} is not installed")
    if name == "nginx":
        (tmp_path / "conf").write_text(NGINX.format(folder=tmp_path, port=port))
        command = [program, "-p", tmp_path, "-c", tmp_path / "conf"]
    else:
        backend = Backend()
        (tmp_path / "conf").write_text(HAPROXY.format(port=port, back=backend.port))
        command = [program, "-db", "-f", tmp_path / "conf"]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield name, ("127.0.0.1", port)
    finally:
        process.terminate()
        process.wait(serving.WAIT)
        if backend is not None:
            backend.listening.close()


def test_no_request_is_understood_differently(server, peer):
    name, address = peer

    def compare(seed):
        data = framing(seed)
        ours, theirs = understood(server.where, data), understood(address, data)
        shorter = min(len(ours), len(theirs))
        return len(ours), len(theirs), None if ours[:shorter] == theirs[:shorter] else (seed, data, ours, theirs)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(compare, range(COUNT)))
    different = [row[2] for row in found if row[2]]
    assert not different, (name, len(different), different[:5])
    both = sum(ours == 2 and theirs == 2 for ours, theirs, _ in found)
    assert both > COUNT / 5, "enough of them are requests"
