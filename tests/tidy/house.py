# SPDX-License-Identifier: Apache-2.0
"""house.py - what the tidy tests share: where things lie, the C files, code without comments."""
import functools
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FLETCH_BUILD", ROOT / "build"))
FOLDERS = ("include", "src", "python", "tests", "examples", "bench")


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


TOKENS = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


@functools.cache
def bare(path: pathlib.Path) -> str:
    """The file without its comments, line numbers kept."""
    return TOKENS.sub(lambda match: match[0] if match[0][0] in "\"'" else "\n" * match[0].count("\n"), text(path))


@functools.cache
def code(path: pathlib.Path) -> str:
    """The file without comments and with empty strings and characters, line numbers kept."""
    return TOKENS.sub(lambda match: match[0][0] * 2 if match[0][0] in "\"'" else " " + "\n" * match[0].count("\n"),
                      text(path))


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
