# SPDX-License-Identifier: Apache-2.0
"""browser.py - headless Chromium over its debugging pipe: no driver, no library.

Commands go in as JSON that ends with NUL on file descriptor 3, answers and events come on 4.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import time

import pytest
import serving

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program():
    found = next((path for path in map(shutil.which, PROGRAMS) if path), None)
    if not found:
        pytest.skip("no Chromium (apt-get install chromium)")
    return found


class Browser:
    def __init__(self, folder):
        from_us, ours = os.pipe()
        theirs, to_us = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server",
                 f"--user-data-dir={folder}", "--window-size=1100,1150", "--remote-debugging-pipe", "about:blank"]
        shell = f'exec 3<&{from_us} 4>&{to_us}; exec "$0" "$@"'
        self.process = subprocess.Popen(["/bin/bash", "-c", shell, program(), *flags], pass_fds=(from_us, to_us),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={"PATH": os.environ["PATH"], "HOME": str(folder)})
        os.close(from_us)
        os.close(to_us)
        self.out, self.inp, self.held, self.number, self.events = ours, theirs, b"", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    session = None

    def read(self, until):
        while b"\0" not in self.held:
            if not select.select([self.inp], [], [], max(0, until - time.monotonic()))[0]:
                raise AssertionError("the browser does not answer")
            got = os.read(self.inp, 1 << 20)
            assert got, "the browser has ended"
            self.held += got
        one, self.held = self.held.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + serving.WAIT
        while True:
            got = self.read(until)
            if got.get("id") == self.number:
                assert "error" not in got, got
                return got["result"]
            self.events.append(got)

    def run(self, code):
        """The value of an expression in the page."""
        got = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def wait(self, code):
        """Until the expression is true; its value."""
        until = time.monotonic() + serving.WAIT
        while time.monotonic() < until:
            value = self.run(code)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError((code, self.run("document.body.innerText")))

    def open(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def complaints(self):
        """What the console would show: errors, warnings, refused resources."""
        return [e for e in self.events if e.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")]

    def requested(self):
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def screenshot(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"])

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.inp)
