# SPDX-License-Identifier: Apache-2.0
"""hub_stand_in.py - a hub and its storage host on 127.0.0.1, faithful where clients look, faulty on request.

    with StandIn() as hub:
        hub.add("org/name", {"config.json": b"{}", "model.safetensors": data})
        hub.fail("cdn", "model.safetensors", Fault("cut", 1000))
        ... HF_ENDPOINT=hub.url ...
        hub.seen("cdn", "GET")  # what was asked, with headers

Like the hub: a listing per revision, HEAD and GET of /resolve/, small files named by their git sha1 behind a relative
redirect to /api/resolve-cache, large ones (*.safetensors, *.bin) by their sha256 behind an absolute redirect to the
storage host, which is another port and so another origin; X-Error-Code for what it refuses; Range.
Nothing here listens beyond the loopback."""
import dataclasses
import hashlib
import http.server
import json
import socket
import ssl
import threading
import time
import urllib.parse


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def is_large(name: str) -> bool:
    return name.endswith((".safetensors", ".bin"))


def etag_of(name: str, data: bytes) -> str:
    return hashlib.sha256(data).hexdigest() if is_large(name) else git_sha1(data)


@dataclasses.dataclass
class Fault:
    """What goes wrong, `times` times: status (number, headers, page), cut (after N bytes), flip (a byte), slow (bytes a
    second), stall (after N bytes), ignore_range, wrong_range, no_size, longer (N bytes more), location (a URL),
    etag (another one), size (another one), commit (another one), body (another one, with status 200), endless (with this status, without
    length and without end)."""
    kind: str
    value: object = None
    times: int = 1
    headers: dict = dataclasses.field(default_factory=dict)
    page: bytes = b"no"


@dataclasses.dataclass
class Seen:
    server: str
    method: str
    path: str
    headers: dict


class Repo:
    def __init__(self):
        self.commits: dict[str, dict[str, bytes]] = {}
        self.refs: dict[str, str] = {}
        self.gated = self.private = False


class StandIn:
    def __init__(self, certificate: str = ""):
        """`certificate`: a PEM file with key; then the hub, not the storage host, speaks https."""
        self.repos: dict[str, Repo] = {}
        self.renamed: dict[str, str] = {}
        self.tokens: set[str] = set()
        self.requests: list[Seen] = []
        self.faults: list[tuple[str, str, str, Fault]] = []
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.endless = 0  # bytes that left without a length
        self.servers = {name: self._serve(name, certificate if name == "hub" else "") for name in ("hub", "cdn")}
        self.url = "http%s://127.0.0.1:%d" % ("s" if certificate else "", self.servers["hub"].server_port)
        self.cdn = "http://127.0.0.1:%d" % self.servers["cdn"].server_port

    def _serve(self, name: str, certificate: str) -> http.server.ThreadingHTTPServer:
        class Bound(Handler):
            stand_in, server_name = self, name
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        server.daemon_threads = True
        server.handle_error = lambda *request: None  # a client that hangs up is part of the tests
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return server

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.closing.set()
        for server in self.servers.values():
            server.shutdown()
            server.server_close()

    def add(self, repo_id: str, files: dict[str, bytes], *refs: str) -> str:
        """A new commit; `refs` (default main) point at it."""
        repo = self.repos.setdefault(repo_id, Repo())
        text = json.dumps([repo_id, len(repo.commits), sorted((name, git_sha1(data)) for name, data in files.items())])
        commit = hashlib.sha1(text.encode()).hexdigest()
        repo.commits[commit] = dict(files)
        for ref in refs or ("main",):
            repo.refs[ref] = commit
        return commit

    def fail(self, server: str, part: str, fault: Fault, method: str = "GET"):
        """`part` of the path (or name, on the storage host) and the method must match; method "" is any."""
        self.faults.append((server, part, method, fault))

    def take(self, server: str, path: str, method: str) -> Fault | None:
        with self.lock:
            for where, part, only, fault in self.faults:
                if where == server and part in path and only in ("", method) and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def seen(self, server: str = "", method: str = "", part: str = "") -> list[Seen]:
        with self.lock:
            return [one for one in self.requests
                    if server in ("", one.server) and method in ("", one.method) and part in one.path]

    def forget(self):
        with self.lock:
            self.requests.clear()
            self.faults.clear()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: without this each answer waits 40 ms
    stand_in: StandIn
    server_name: str

    def log_message(self, *words):
        pass

    def do_GET(self):
        with self.stand_in.lock:
            self.stand_in.requests.append(
                Seen(self.server_name, self.command, self.path, {key.lower(): value for key, value in self.headers.items()}))
        path = urllib.parse.urlsplit(self.path).path
        self.fault = self.stand_in.take(self.server_name, path, self.command)
        if self.fault and self.fault.kind == "status":
            return self.answer(self.fault.value, self.fault.page, self.fault.headers)
        if self.fault and self.fault.kind == "location":
            return self.answer(302, b"", {"Location": self.fault.value, **self.fault.headers})
        if self.fault and self.fault.kind == "body":
            return self.answer(200, self.fault.value, self.fault.headers)
        try:
            if self.server_name == "cdn":
                self.storage(path)
            else:
                self.hub(path)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_HEAD = do_GET

    # -- the hub

    def hub(self, path: str):
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            return self.api(parts[2:])
        if parts[:3] == ["api", "resolve-cache", "models"]:
            return self.resolve("/".join(parts[3:5]), parts[5], "/".join(parts[6:]), cached=True)
        if len(parts) > 4 and parts[2] == "resolve":
            return self.resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        self.refuse(404, "", "Not found")

    def refuse(self, status: int, code: str, message: str, **headers):
        self.answer(status, json.dumps({"error": message}).encode(),
                    {"X-Error-Code": code, "X-Error-Message": message, "Content-Type": "application/json", **headers})

    def find(self, repo_id: str, revision: str, is_file: bool) -> tuple[str, dict[str, bytes]] | None:
        """(commit, files), or None when the answer has been given."""
        if repo_id in self.stand_in.renamed:
            target = self.path.replace(repo_id, self.stand_in.renamed[repo_id], 1)
            return self.answer(307, b"", {"Location": target})
        repo = self.stand_in.repos.get(repo_id)
        sent = self.headers.get("Authorization", "")
        if sent and sent.removeprefix("Bearer ") not in self.stand_in.tokens:
            return self.refuse(401, "", "Invalid credentials in Authorization header")
        if repo is None or (repo.private and not sent):
            return self.refuse(401 if not sent else 404, "RepoNotFound", "Repository not found")
        if repo.gated and not sent and is_file:
            return self.refuse(401, "GatedRepo", "Access to model %s is restricted." % repo_id)
        revision = urllib.parse.unquote(revision)
        commit = repo.refs.get(revision, revision)
        if commit not in repo.commits:
            return self.refuse(404, "RevisionNotFound", "Invalid rev id: %s" % revision)
        return commit, repo.commits[commit]

    def api(self, parts: list[str]):
        repo_id, kind = "/".join(parts[:2]), parts[2] if len(parts) > 2 else "revision"
        found = self.find(repo_id, parts[3] if len(parts) > 3 else "main", False)
        if found is None:
            return
        commit, files = found
        if kind == "tree":
            body = [{"type": "file", "path": name, "size": len(data), "oid": git_sha1(data),
                     **({"lfs": {"oid": etag_of(name, data), "size": len(data), "pointerSize": 134}}
                        if is_large(name) else {})} for name, data in files.items()]
        else:
            body = {"id": repo_id, "modelId": repo_id, "sha": commit, "private": False, "tags": [], "downloads": 0,
                    "likes": 0, "siblings": [{"rfilename": name} for name in files]}
        self.answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def resolve(self, repo_id: str, revision: str, name: str, cached: bool = False):
        found = self.find(repo_id, revision, True)
        if found is None:
            return
        commit, files = found
        name = urllib.parse.unquote(name)
        if self.fault and self.fault.kind == "commit":
            commit = self.fault.value
        if name not in files:
            return self.refuse(404, "EntryNotFound", "Entry not found", **{"X-Repo-Commit": commit})
        data = files[name]
        etag = self.fault.value if self.fault and self.fault.kind == "etag" else etag_of(name, data)
        headers = {"X-Repo-Commit": commit}
        if is_large(name):
            headers |= {"X-Linked-Etag": '"%s"' % etag, "ETag": '"of-the-redirect"',
                        "Location": "%s/%s?name=%s" % (self.stand_in.cdn, etag_of(name, data), urllib.parse.quote(name))}
            if not (self.fault and self.fault.kind == "no_size"):
                headers["X-Linked-Size"] = str(len(data))
            return self.answer(302, b"Found. Redirecting", headers)
        if not cached:
            target = "/api/resolve-cache/models/%s/%s/%s" % (repo_id, commit, urllib.parse.quote(name))
            return self.answer(307, b"Temporary Redirect", headers | {"Location": target})
        if self.fault and self.fault.kind == "size":
            headers["X-Linked-Size"] = str(self.fault.value)
        self.send_data(data, headers | {"ETag": 'W/"%s"' % etag})

    # -- the storage host: content by sha256; a token here would be a leak

    def storage(self, path: str):
        digest = path.strip("/")
        for repo in self.stand_in.repos.values():
            for files in repo.commits.values():
                for name, data in files.items():
                    if is_large(name) and hashlib.sha256(data).hexdigest() == digest:
                        self.fault = self.fault or self.stand_in.take("cdn", name, self.command)
                        if self.fault and self.fault.kind == "status":
                            return self.answer(self.fault.value, self.fault.page, self.fault.headers)
                        return self.send_data(data, {"ETag": '"%s"' % digest})
        self.answer(404, b"", {})

    def send_data(self, data: bytes, headers: dict):
        fault = self.fault or Fault("")
        if fault.kind == "flip":
            data = data[:len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1:]
        if fault.kind == "longer":
            data = data + b"x" * fault.value
        start, status = 0, 200
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes=") and fault.kind != "ignore_range":
            start = int(asked[6:].split("-")[0])
            if start >= len(data):
                return self.answer(416, b"", {"Content-Range": "bytes */%d" % len(data)})
            if fault.kind == "wrong_range":
                start += 7
            status = 206
            headers = headers | {"Content-Range": "bytes %d-%d/%d" % (start, len(data) - 1, len(data))}
        self.answer(status, data[start:], headers | {"Accept-Ranges": "bytes"})

    def answer(self, status: int, body: bytes, headers: dict):
        fault = self.fault or Fault("")
        self.send_response(fault.value if fault.kind == "endless" else status)
        for key, value in headers.items():
            if value:
                self.send_header(key, value)
        if fault.kind in ("no_size", "endless"):
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        while fault.kind == "endless" and not self.stand_in.closing.is_set():
            self.wfile.write(b"x" * 65536)
            self.stand_in.endless += 65536
        if fault.kind in ("cut", "stall") and len(body) > fault.value:
            self.wfile.write(body[:fault.value])
            self.wfile.flush()
            if fault.kind == "stall":
                self.stand_in.closing.wait(600)
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if fault.kind == "slow" and len(body) > 4096:
            step = max(1, fault.value // 50)
            for at in range(0, len(body), step):
                self.wfile.write(body[at:at + step])
                if self.stand_in.closing.is_set():
                    return
                time.sleep(0.02)
            return
        self.wfile.write(body)
