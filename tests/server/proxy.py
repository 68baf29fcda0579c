# SPDX-License-Identifier: Apache-2.0
"""proxy.py - the real nginx with deploy/nginx.conf, for the tests of what deploy/ holds."""
import http.client
import json
import shutil
import socket
import subprocess

import pytest
import serving

DEPLOY = serving.ROOT / "deploy"


def tool(name, *places):
    found = shutil.which(name, path=":".join(("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")))
    return found or pytest.skip(f"{name} is not installed")


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=serving.WAIT, check=False)


class Nginx:
    """deploy/nginx.conf with its addresses and paths moved into a folder."""

    def __init__(self, folder, ports):
        self.port = serving.free_port()
        text = (DEPLOY / "nginx.conf").read_text()
        for old, new in zip((9901, 9902, 9900), (*ports, self.port)):
            assert f"127.0.0.1:{old}" in text
            text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        paths = "".join(f"    {kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        text = f"pid {folder}/pid;\ndaemon off;\nerror_log {folder}/error.log;\n" + text.replace("http {\n", "http {\n" + paths)
        (folder / "nginx.conf").write_text(text)
        program = tool("nginx")
        checked = run(program, "-t", "-p", folder, "-c", folder / "nginx.conf")
        assert checked.returncode == 0, checked.stderr
        self.process = subprocess.Popen([program, "-p", folder, "-c", folder / "nginx.conf"],
                                        stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        serving.until(self.listens, (folder / "error.log").read_text)

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), serving.WAIT).close()
        except OSError:
            return False
        return True

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
