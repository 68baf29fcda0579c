# SPDX-License-Identifier: Apache-2.0
"""commandline.py - what the tests share: the real program, the real model, a clean environment."""
import json
import os
import pathlib
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Whole paths: the program runs in a folder of its own.
BIN = os.path.abspath(os.environ.get("FLETCH_BIN", ROOT / "build" / "fletch"))
MODEL = os.path.abspath(os.environ["FLETCH_MODEL"]) if os.environ.get("FLETCH_MODEL") else ""
DIMENSIONS = 384
WAIT = 300  # seconds; no test measures it: it ends what hangs

# A run in the background may start with these ignored, and children would inherit that.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


def until(holds, told=lambda: "it never came to hold"):
    """What holds() answers once it is true."""
    end = time.monotonic() + WAIT
    while not (answer := holds()):
        assert time.monotonic() < end, told()
        time.sleep(0.02)
    return answer


def environment(tmp_path, **more):
    """No FLETCH_* or HF_* of the caller; a home and cache of its own; a hub that cannot be reached."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("FLETCH_", "HF_", "XDG_"))}
    clean.update(HOME=str(tmp_path), HF_HOME=str(tmp_path / "hf"), HF_ENDPOINT="http://127.0.0.1:1",
                 LC_ALL="C.UTF-8")
    return {**clean, **more}


class Fletch:
    """fletch("embed", "text", input=b"...", env={...}) -> CompletedProcess with bytes."""

    def __init__(self, tmp_path):
        self.tmp_path = tmp_path

    def environment(self, model=True, **more):
        if model:
            more.setdefault("FLETCH_MODEL", MODEL)
        return environment(self.tmp_path, **more)

    def __call__(self, *arguments, input=b"", env=None, model=True, timeout=WAIT, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        if input is not None:
            options["input"] = input.encode() if isinstance(input, str) else input
        return subprocess.run([BIN, *map(str, arguments)], cwd=self.tmp_path, timeout=timeout,
                              env=self.environment(model=model, **(env or {})), **options)

    def start(self, *arguments, env=None, **options):
        return subprocess.Popen([BIN, *map(str, arguments)], cwd=self.tmp_path,
                                env=self.environment(**(env or {})), **options)

    def rows(self, *arguments, **options):
        """The objects of a jsonl run that must succeed."""
        result = self(*arguments, **options)
        assert result.returncode == 0, result.stderr.decode()
        return [json.loads(line) for line in result.stdout.splitlines()]


def peak_mb(stderr: bytes) -> float:
    """Peak memory as --stats reports it."""
    for line in stderr.decode().splitlines():
        if line.startswith("peak memory"):
            return float(line.split()[2])
    raise AssertionError(stderr)
