# SPDX-License-Identifier: Apache-2.0
"""record.py - one day's result of one model on one machine: a file that grows piece by piece.

A piece is one question about one set ("throughput:short", "latency:16", "tokenizer"). It is written as soon as it is
measured, so that a run broken off keeps what it has, and it replaces the same piece of an earlier run of that day, so
that a busy machine can be asked in slices. Each piece says when it was measured, at which commit and under which load.
"""
import json
import os
import pathlib
import subprocess
import time

import plots
import report

ROOT = pathlib.Path(__file__).resolve().parent.parent


def commit() -> str:
    """What is checked out; results of this suite itself do not make it dirty."""
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always"], capture_output=True, text=True)
    changed = subprocess.run(["git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no", "--", ".",
                              ":!bench/results", ":!docs"], capture_output=True, text=True)
    return done.stdout.strip() + ("-dirty" if changed.stdout.strip() else "")


class Record:
    """The result as report.py reads it, and where it is kept."""

    def __init__(self, folder: pathlib.Path, name: str | None, head: dict, fresh: bool) -> None:
        model = report.slug(head["model"].removeprefix("all-"))
        label = name or f"{head['date']}-{report.slug(head['machine']['cpu'])}-{model}"
        self.base = folder / label
        self.path = folder / f"{label}.json"
        self.result: dict = {}
        if self.path.exists() and not fresh:
            before = json.loads(self.path.read_text(encoding="utf-8"))
            if "pieces" in before and before["model"] == head["model"]:
                self.result = before
        self.result |= head
        for key in ("absent", "versions", "parity", "sets", "pieces"):
            self.result.setdefault(key, {})
        self.began = time.monotonic()
        self.load = os.getloadavg()[0]
        folder.mkdir(parents=True, exist_ok=True)

    def begin(self) -> None:
        """The clock and the load of the piece that comes now."""
        self.began, self.load = time.monotonic(), os.getloadavg()[0]

    def keep(self, piece: str, found, **more) -> None:
        """Store what was found for a piece. "throughput:short" lies at result["speed"]["short"]."""
        question, _, part = piece.partition(":")
        key = {"throughput": "speed"}.get(question, question)
        if part:
            self.result.setdefault(key, {})[part] = found
        else:
            self.result[key] = found
        self.result["pieces"][piece] = {
            "when": time.strftime("%Y-%m-%d %H:%M"), "commit": commit(), "quick": self.result["quick"],
            "load": [round(self.load, 1), round(os.getloadavg()[0], 1)],
            "seconds": round(time.monotonic() - self.began, 1)} | more
        self.write()
        self.begin()

    def write(self) -> None:
        """The JSON, whole or not at all."""
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.result, indent=1) + "\n", encoding="utf-8")
        os.replace(part, self.path)

    def finish(self) -> str:
        """Tables and plots of all that the day has; the tables."""
        pictures = plots.draw(self.result, self.base)
        text = report.render(self.result, pictures)
        self.base.with_name(self.base.name + ".md").write_text(text, encoding="utf-8")
        return text
