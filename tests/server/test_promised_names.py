# SPDX-License-Identifier: Apache-2.0
"""Names that programs and scripts depend on do not go: options with their types, those of their defaults that decide vectors,
commands, flags, routes, metrics (docs/promises.md).

tests/abi/names.txt has them; test_promised_names.py --write adds the new ones and takes none away."""
import pathlib
import re
import subprocess
import sys
import tempfile

import serving

NAMES = serving.ROOT / "tests/abi/names.txt"
TOY = serving.ROOT / "tests/golden/folders/plain-bert"
DECIDE_VECTORS = re.compile(r"model\.(id|pooling|normalize|prompt|prompt_name|task|truncate|max_length|dimensions)|provider\.precision")


def names(server) -> set[str]:
    def told(*command):
        return subprocess.run([serving.BIN, *command], check=True, capture_output=True, text=True, timeout=serving.WAIT).stdout
    found = set()
    for option, kind, rest in re.findall(r"^(\w+\.\w+)\n(?:    .*\n)*?    type (\w+)(.*)", told("help", "options"), re.M):
        found.add(f"option {option} {kind}")
        if DECIDE_VECTORS.fullmatch(option):
            found.add(f"default {option} {re.sub(r'.*default |,.*', '', rest) or 'none'}")
    for command, flags in re.findall(r'^    (\w+)\) flags="([^"$]*)', told("completion", "bash"), re.M):
        found.add(f"command {command}")
        found.update(f"flag {command} {flag}" for flag in flags.split())
    for path, methods in server.ask("GET", "/openapi.json").json()["paths"].items():
        found.update(f"route {method.upper()} {path}" for method in methods)
    found.update(f"metric {name}" for name in re.findall(r"^# TYPE (\w+ \w+)", server.ask("GET", "/metrics").body.decode(), re.M))
    return found


def promised() -> list[str]:
    return NAMES.read_text(encoding="utf-8").split("\n")[:-1] if NAMES.exists() else []


def test_no_name_is_gone(server):
    now = names(server)
    assert {name.split()[0] for name in now} == {"option", "default", "command", "flag", "route", "metric"}
    gone = [name for name in promised() if name not in now]
    assert not gone, f"scripts and clients depend on them; keep the old name beside the new one: {gone}"
    assert promised() == sorted(promised()) and len(promised()) > 500


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    with tempfile.TemporaryDirectory() as folder:
        toy = serving.Server(pathlib.Path(folder), "-m", TOY, model=False)
        every = names(toy) | set(promised())
        toy.end()
    NAMES.write_text("".join(f"{name}\n" for name in sorted(every)), encoding="utf-8")
