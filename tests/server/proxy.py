# SPDX-License-Identifier: Apache-2.0
"""proxy.py - the real nginx and the real Envoy with what deploy/ has for them, for its tests."""
import http.client
import json
import pathlib
import shutil
import subprocess

import clients
import pytest
import serving

DEPLOY = serving.ROOT / "deploy"


def tool(name):
    """A program of the system, or one that comes with tests/server/clients.txt."""
    found = shutil.which(name, path=":".join(("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")))
    if not found and name in ("envoy", "kubernetes-validate"):
        found = shutil.which(name, path=pathlib.Path(clients.python()).parent)
    return found or pytest.skip(f"{name} is not installed")


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=serving.WAIT, check=False)


class Proxy:
    """A configuration of deploy/ with its addresses moved, over servers that listen on `ports`."""

    PAUSE = 0.0  # seconds between two restarts that it needs to know the first is over

    def __init__(self, folder, ports):
        self.folder, self.port = folder, serving.free_port()
        text = self.text()
        for old, new in zip((9901, 9902, 9900), (*ports, self.port)):
            assert self.ADDRESS.format(old) in text
            text = text.replace(self.ADDRESS.format(old), self.ADDRESS.format(new))
        (folder / self.FILE).write_text(text)
        program = tool(self.PROGRAM)
        checked = run(program, *self.check())
        assert checked.returncode == 0, checked.stdout + checked.stderr
        with open(folder / "proxy.log", "wb") as log:
            self.process = subprocess.Popen([program, *self.run()], stderr=log, stdout=log)
        serving.until(self.listens, (folder / "proxy.log").read_text)

    def listens(self):
        try:
            return self.embed("is anybody there?")[0] == 200
        except OSError:
            return False

    def embed(self, text):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=serving.WAIT)
        try:
            client.request("POST", "/embed", json.dumps({"inputs": text}).encode(), {"content-type": "application/json"})
            reply = client.getresponse()
            return reply.status, reply.read()
        finally:
            client.close()

    def close(self):
        self.process.terminate()
        self.process.wait(serving.WAIT)


class Nginx(Proxy):
    PROGRAM, FILE, ADDRESS = "nginx", "nginx.conf", "127.0.0.1:{}"

    def text(self):
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "".join(f"    {kind}_temp_path {self.folder}/{kind};\n" for kind in kinds)
        text = (DEPLOY / "nginx.conf").read_text().replace("http {\n", "http {\n" + paths)
        return f"pid {self.folder}/pid;\ndaemon off;\nerror_log {self.folder}/error.log;\n" + text

    def check(self):
        return ["-t", *self.run()]

    def run(self):
        return ["-p", self.folder, "-c", self.folder / self.FILE]


class Envoy(Proxy):
    PROGRAM, FILE, ADDRESS = "envoy", "envoy.yaml", "port_value: {}"
    PAUSE = 1.0

    def text(self):
        return (DEPLOY / "envoy.yaml").read_text().replace(self.ADDRESS.format(9909), self.ADDRESS.format(0))

    def check(self):
        return ["--mode", "validate", *self.run()]

    def run(self):
        return ["-c", str(self.folder / self.FILE), "--use-dynamic-base-id", "--concurrency", "2", "--log-level", "warn"]


PROXIES = pytest.mark.parametrize("proxy", [Nginx, Envoy], ids=["nginx", "envoy"])
