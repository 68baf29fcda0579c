# SPDX-License-Identifier: Apache-2.0
"""host.py - how many texts a second the host can hand to a device, and what one costs it.

Runs build/bench_host (bench/host.c says what it measures) with STS-B sentences and Cranfield abstracts, and prints a
table: the median of the rounds by texts a second.

    python bench/host.py --model FOLDER [--seconds 1] [--rounds 3]
"""
import datetime
import json
import pathlib
import subprocess
import tempfile

import report
import texts
from harness import arguments, where

H200 = ["-p", "96000", "-f", "100"]  # a device of 650,000 texts of 16 tokens a second, the goal of the CUDA engine
CASES = (
    ("no device time", ["-n", "16"], ([1, 1], [1, 8], [32, 1], [32, 8], [1000, 1], [1000, 2], [100000, 1])),
    ("no device time", ["-n", "50"], ([1000, 2], [100000, 1])),
    ("no device time, STS-B as it is", [], ([100000, 1],)),
    ("no device time, Cranfield", ["long"], ([1000, 2],)),
    ("no device time, ids", ["-n", "16", "-i", "1"], ([32, 8], [100000, 1])),
    ("650,000 texts/s", ["-n", "16", *H200], ([32, 8], [1000, 2], [1000, 8], [100000, 1])),
    ("650,000 texts/s, max_tokens 65536", ["-n", "16", *H200, "batch.max_tokens=65536"], ([100000, 1],)),
    ("650,000 texts/s, ids", ["-n", "16", "-i", "1", *H200], ([100000, 1],)),
    ("4 devices of 162,500 texts/s", ["-n", "16", "-d", "4", "-p", "384000"], ([100000, 1],)),
    ("250,000 texts/s of 50 tokens", ["-n", "50", "-p", "80000", "-f", "100"], ([1000, 2], [100000, 1])),
)


def measure(options, words, call, callers, files):
    command = [options.build / "bench_host", options.model, files["long" in words], "-s", options.seconds, "-c", call, "-t", callers,
               *(word for word in words if word != "long")]
    runs = [json.loads(subprocess.run([str(word) for word in command], check=True, capture_output=True).stdout)
            for _ in range(options.rounds)]
    return sorted(runs, key=lambda run: run["texts_s"])[len(runs) // 2]


def main():
    options = arguments(__doc__, "model", "data", "build", seconds=1.0, rounds=3).parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder) / name for name in ("short", "long")]
        for file, found in zip(files, (texts.pairs(options.data / "stsb-en-train.jsonl"), texts.abstracts(options.data))):
            file.write_text("".join(" ".join(text.split()) + "\n" for text in found), encoding="utf-8")
        for name, words, calls in CASES:
            for call, callers in calls:
                r = measure(options, words, call, callers, files)
                rows.append((name, f"{r['mean_tokens']:.0f}", f"{call:,}", callers, f"{r['texts_s']:,.0f}", f"{r['cpu_ns']:,.0f}",
                             f"{r['locked_ns']:,.0f}", f"{r['batch_texts']:,.0f}", f"{100 * r['busy']:.0f} %" if r["busy"] else ""))
    print(f"{where()}, {datetime.date.today()}\n", *report.table(
        ("device", "tokens", "texts a call", "callers", "texts/s", "processor time, ns a text", "most held lock, ns a text",
         "texts a batch", "device busy"), rows), sep="\n")


if __name__ == "__main__":
    main()
