# SPDX-License-Identifier: Apache-2.0
"""host.py - how many texts a second the host can hand to a device, and what one costs it.

Runs build/bench_host (bench/host.c says what it measures) with STS-B sentences and Cranfield abstracts, and prints a
table: the median of the rounds by texts a second.

    python bench/host.py --model FOLDER [--data FOLDER] [--seconds 1] [--rounds 3]
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import tempfile

from harness import HERE, where

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


def lines(path, keys):
    """The texts of a file, a line each."""
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(row) for row in file]
    return "".join(" ".join(row[key].split()) + "\n" for row in rows for key in keys)


def measure(options, arguments, call, callers, files):
    words = [word for word in arguments if word != "long"]
    command = [options.program, options.model, files["long" in arguments], "-s", options.seconds, "-c", call,
               "-t", callers, *words]
    runs = [json.loads(subprocess.run([str(word) for word in command], check=True, capture_output=True).stdout)
            for _ in range(options.rounds)]
    return sorted(runs, key=lambda run: run["texts_s"])[len(runs) // 2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--program", default=HERE.parent / "build" / "bench_host")
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("FLETCH_TEST_DATA", "../shared/data"))
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{where()}, {datetime.date.today()}\n")
    print("| device | tokens | texts a call | callers | texts/s | processor time, ns a text | most held lock, ns a text "
          "| texts a batch | device busy |\n|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder) / name for name in ("short", "long")]
        files[0].write_text(lines(options.data / "stsb-en-train.jsonl", ("a", "b")), encoding="utf-8")
        files[1].write_text(lines(options.data / "cranfield-docs.jsonl", ("text",)), encoding="utf-8")
        for name, arguments, calls in CASES:
            for call, callers in calls:
                r = measure(options, arguments, call, callers, files)
                busy = f"{100 * r['busy']:.0f} %" if r["busy"] else ""
                print(f"| {name} | {r['mean_tokens']:.0f} | {call:,} | {callers} | {r['texts_s']:,.0f} | {r['cpu_ns']:,.0f} "
                      f"| {r['locked_ns']:,.0f} | {r['batch_texts']:,.0f} | {busy} |", flush=True)


if __name__ == "__main__":
    main()
