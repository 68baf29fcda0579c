# SPDX-License-Identifier: Apache-2.0
"""The same bytes to nginx, to HAProxy, to Envoy and to fletch: no request may be understood differently.

Thousands of framings are generated around lengths, codings, folds, line ends, chunks and trailers, each with a request
hidden in its body and one after it. What a server understood is the list of requests that it answered; it may refuse the
first where another does not, but where both went on they must have gone on with the same request. Skipped where a peer is not
installed (Debian's packages nginx and haproxy; Envoy comes with tests/server/clients.txt).
`tools/soak.sh framing` sends 10,000 of them to each."""
import concurrent.futures
import os
import random
import re
import socket
import subprocess
import threading

import proxy
import pytest
import serving

COUNT = int(os.environ.get("FLETCH_TEST_FRAMINGS", "1500"))
HIDDEN = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
HEADS = "PUT /heads HTTP/1.1\r\nA: "  # makes a header of the line that follows
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
    body = dice.random.choice([HIDDEN, HEADS + HIDDEN, HIDDEN + HEADS])
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
    lines += ["Content-Type: application/json"]
    odd = [": x", "\0: x", "\0", "a", " a: b", "\ta: b", "a\0: b", "a: b\0c", "a: b\rc: d", "\xe9: x", "a: \xe9", "(a): b", "a: \x7f",
           "Connection: close", "Expect: 100-continue", "Upgrade: h2c", "Host: y", "Connection: Content-Length", coding, length]
    while dice.random.random() < 0.3:
        lines.append(dice.one(["A: b", "Connection: keep-alive", "X-Forwarded-For: y"], odd, dice.rate * 3))
    dice.random.shuffle(lines)
    first = dice.one(["POST /v1/embeddings HTTP/1.1"], ["POST /v1/embeddings HTTP/1.0", "POST /v1/embeddings HTTP/1.2", "GET /v1/embeddings HTTP/1.1", "POST /v1/embeddings HTTP/01.1",
                                                "POST http://x/v1/embeddings HTTP/1.1", "POST http://y/v1/embeddings HTTP/1.1", "POST  /v1/embeddings HTTP/1.1",
                                                "POST /v1/embeddings HTTP/1.1 ", "\r\nPOST /v1/embeddings HTTP/1.1", "\nPOST /v1/embeddings HTTP/1.1"])
    head = first + dice.one(*ENDS, dice.rate / 2) + "".join(line + dice.one(*ENDS, dice.rate / 2) for line in lines)
    return (head + dice.one(*ENDS) + coded + AFTER).encode("latin-1")


# ---- What a server understood -------------------------------------------------------------------------------------

def understood(address, data, shut):
    """The paths of the requests it answered, the last of them "refused" when it was; a reply names its request in its body,
    but for the first, whose body our own reply complains of. Who is not told that we have shut our side ends by a clock."""
    got = b""
    with socket.create_connection(address, serving.WAIT) as one:
        try:
            one.sendall(data)
            if shut:
                one.shutdown(socket.SHUT_WR)
            while piece := one.recv(65536):
                got += piece
        except ConnectionError:
            pass
    found = []
    for status, body in replies(got):
        if status in (100, 408):  # go on; nothing came any more
            continue
        path = re.search(rb"(?:no such route: |path:)(/\w+)|parse the JSON body|takes POST", body)
        if path is None:
            return found + ["refused"]
        found.append((path[1] or b"/v1").decode())
    return found


def differ(ours, theirs):
    """Whether they cut the bytes differently: one may refuse the first request, but where both went on they must have gone on
    at the same byte, and then they agree on all that follows."""
    first = [one for one in (ours, theirs) if one[:1] == ["refused"]]
    return not first and any(a != b for a, b in zip(ours, theirs))


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
  timeout client 1s
  timeout server 10s
listen front
  bind 127.0.0.1:{port}
  server back 127.0.0.1:{back}
"""


ENVOY = """static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          stream_idle_timeout: 1s
          request_timeout: 1s
          common_http_protocol_options: {{idle_timeout: 1s}}
          route_config:
            virtual_hosts:
            - {{name: all, domains: ["*"], routes: [{{match: {{prefix: /}}, route: {{cluster: back}}}}]}}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: back
    load_assignment:
      cluster_name: back
      endpoints:
      - lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {back}}}}}}}}}]
"""
PEERS = {"nginx": (NGINX, ["-p", "{folder}", "-c", "{folder}/conf"]), "haproxy": (HAPROXY, ["-db", "-f", "{folder}/conf"]),
         "envoy": (ENVOY, ["-c", "{folder}/conf.yaml", "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "off"])}


@pytest.fixture(params=PEERS)
def peer(request, tmp_path):
    name, port, backend = request.param, serving.free_port(), Backend()
    conf, words = PEERS[name]
    program = proxy.tool(name)
    (tmp_path / ("conf.yaml" if name == "envoy" else "conf")).write_text(conf.format(folder=tmp_path, port=port, back=backend.port))
    process = subprocess.Popen([program, *(word.format(folder=tmp_path) for word in words)], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)

    def listens():
        try:
            return understood(("127.0.0.1", port), AFTER.encode(), name == "nginx")
        except OSError:
            return False

    try:
        serving.until(listens)
        yield name, ("127.0.0.1", port)
    finally:
        process.terminate()
        process.wait(serving.WAIT)
        backend.listening.close()


def test_no_request_is_understood_differently(server, peer):
    name, address = peer

    def compare(seed):
        data = framing(seed)
        return seed, understood(server.where, data, True), understood(address, data, name == "nginx")

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        found = list(pool.map(compare, range(COUNT)))
    different = [one for one in found if differ(*one[1:])]
    for _ in range(4):  # a proxy that waited for its turn longer than its timeouts refuses what it would understand: alone it need not
        different = [one for one in map(compare, (seed for seed, *_ in different)) if differ(*one[1:])]
    different = [(seed, framing(seed), ours, theirs) for seed, ours, theirs in different]
    assert not different, (name, len(different), different[:5])
    both = sum(len(ours) > 1 and len(theirs) > 1 for _, ours, theirs in found)
    assert both > COUNT / 3, "enough of them are requests"
