# SPDX-License-Identifier: Apache-2.0
"""record.py - the result of a day on one machine: a file that grows piece by piece, in JSON and as the tables made of it.

A piece is one question about one set ("throughput:short", "latency:16", "tokenizer"). It is written as soon as it is
measured, so that a run broken off keeps what it has, and it replaces the same piece of an earlier run of that day, so
that a busy machine can be asked in slices. Each piece says when it was measured, at which commit and under which load.
"""
import datetime
import json
import os
import subprocess
import time

import report
from harness import ROOT, machine


def commit() -> str:
    """What is checked out; results of this suite itself do not make it dirty."""
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always"], capture_output=True, text=True)
    changed = subprocess.run(["git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no", "--", ".",
                              ":!bench/results", ":!docs"], capture_output=True, text=True)
    return done.stdout.strip() + ("-dirty" if changed.stdout.strip() else "")


class Record:
    """The result as its question's render() reads it, and where it is kept."""

    def __init__(self, options, what: str, fresh: bool = False, **head) -> None:
        about, today = machine(getattr(options, "threads", 0)), datetime.date.today().isoformat()
        label = getattr(options, "name", None) or f"{today}-{report.slug(about['cpu'])}-{what}"
        self.base, self.result = options.out / label, {}
        if self.path(".json").exists() and not fresh:
            self.result = json.loads(self.path(".json").read_text(encoding="utf-8"))
        self.result |= {"date": today, "machine": about} | head
        self.begin()

    def path(self, ending: str):
        return self.base.with_name(self.base.name + ending)

    def begin(self) -> None:
        """What follows belongs to the next piece."""
        self.began, self.load = time.monotonic(), os.getloadavg()[0]

    def stamp(self) -> dict:
        """Of the piece that was begun: when, which commit, the load before and after, seconds."""
        return {"when": time.strftime("%Y-%m-%d %H:%M"), "commit": commit(), "load": [round(self.load, 1), round(os.getloadavg()[0], 1)],
                "seconds": round(time.monotonic() - self.began, 1)}

    def write(self, lines: list[str] | None = None) -> str:
        """The JSON, whole or not at all, and its tables; these as text."""
        self.base.parent.mkdir(parents=True, exist_ok=True)
        part, text = self.path(".part"), "\n".join(lines or []).rstrip() + "\n"
        part.write_text(json.dumps(self.result, indent=1) + "\n", encoding="utf-8")
        os.replace(part, self.path(".json"))
        if lines:
            self.path(".md").write_text(text, encoding="utf-8")
        return text
