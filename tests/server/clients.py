# SPDX-License-Identifier: Apache-2.0
"""clients.py - where the real clients live: FLETCH_CLIENTS, a Python environment, else build/clients."""
import functools
import os
import pathlib
import subprocess

import pytest
import serving


@functools.cache
def _made():
    """Why build/clients is not there, or ""; tried once."""
    try:
        done = subprocess.run([serving.ROOT / "tools" / "clients.sh"], capture_output=True, text=True, check=False,
                              timeout=120)
    except subprocess.TimeoutExpired:
        return "tools/clients.sh takes too long"
    return "" if done.returncode == 0 else " ".join(done.stderr.strip().splitlines()[-2:])


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
