# SPDX-License-Identifier: Apache-2.0
"""house.py - what the tidy tests share: where things lie, the C files, code without comments."""
import functools
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FLETCH_BUILD", ROOT / "build"))
FOLDERS = ("include", "src", "tests", "examples", "bench")


def c_files(*folders: str) -> list[pathlib.Path]:
    """Every .c and .h below the folders, sorted; generated and scratch files are not there."""
    found = []
    for folder in folders or FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.[ch]")):
            found.append(path)
    return found


def name(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


@functools.cache
def text(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def code(path: pathlib.Path) -> str:
    """The file with comments, strings and characters blanked, line numbers kept."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match: re.Match) -> str:
        token = match.group(0)
        if token[0] in "\"'":
            return token[0] * 2
        return " " + "\n" * token.count("\n")

    # The names of includes are strings to the pattern: keep those lines as they are.
    return pattern.sub(blank, text(path))


def exceptions(rule: str) -> dict[str, int]:
    """The lines `rule what number` of exceptions.txt as {what: number}."""
    found = {}
    for line in (ROOT / "tests/tidy/exceptions.txt").read_text().splitlines():
        words = line.split("#")[0].split()
        if len(words) == 3 and words[0] == rule:
            found[words[1]] = int(words[2])
    return found


def run(*command: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
