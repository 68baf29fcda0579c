# SPDX-License-Identifier: Apache-2.0
"""clients.py - where the real clients live: FLETCH_CLIENTS, a Python environment, else build/clients."""
import functools
import os
import pathlib
import signal
import subprocess

import pytest
import serving


@functools.cache
def begin():
    """Start making build/clients; conftest.py calls it first and lets the tests that need it come last."""
    if os.environ.get("FLETCH_CLIENTS"):
        return None
    return subprocess.Popen([serving.ROOT / "tools" / "clients.sh"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            stdin=subprocess.DEVNULL, text=True, start_new_session=True)


@functools.cache
def _made():
    """Why build/clients is not there, or "". A pip that has found nothing by now will not."""
    process = begin()
    try:
        errors = process.communicate(timeout=60)[1]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "tools/clients.sh takes too long"
    return "" if process.returncode == 0 else " ".join(errors.strip().splitlines()[-2:])


def python():
    """The Python that has them; makes build/clients when it can, skips the test when it cannot."""
    if os.environ.get("FLETCH_CLIENTS"):
        return os.path.join(os.environ["FLETCH_CLIENTS"], "bin", "python")
    problem = _made()
    if problem:
        pytest.skip(f"tests/server/clients.txt is not to be had: {problem}")
    return str(pathlib.Path(serving.ROOT, "build", "clients", "bin", "python"))


def environment():
    """Without proxies, keys and caches of the person who runs the tests."""
    keep = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "TMPDIR")}
    return keep | {"HOME": "/nonexistent", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "NO_PROXY": "*"}
