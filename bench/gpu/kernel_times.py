#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kernel_times.py NAME=FOLDER … --program FL_GPU --work FOLDER - where a batch's time goes on the device, kernel by kernel.

For texts of 16, 57 and 512 tokens (--lengths): fletch's engine without graphs and on one stream, with profile.file,
whose track "cuda kernels" has an event behind every launch; the last batches count. A table for each: launches and
microseconds a batch, share, microseconds a token. No profiler, no counters of the device: nothing needs more rights than fletch.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys

from measure import make_sets, read_shape, table

BATCHES = 20  # the last ones: what is loaded first is not counted


def batches_of(trace: pathlib.Path) -> list[list[dict]]:
    """Spans of the device's kernels, a list for each batch: it begins with its embeddings."""
    events = json.loads(trace.read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    spans = [e for e in events if e.get("ph") == "X" and "tokens" in e.get("args", {}) and e["name"] in NAMES]
    found: list[list[dict]] = []
    for span in sorted(spans, key=lambda span: span["ts"]):
        if span["name"] == "embed":
            found.append([])
        if found:
            found[-1].append(span)
    return found


NAMES = {"embed", "rotary positions", "short attention", "long attention", "short attention by rules",
         "long attention by rules", "norm", "activation", "gate", "pooling", "quantize", "dequantize", "product qkv",
         "product out", "product up", "product down"}


def times_of(batches: list[list[dict]]) -> list[str]:
    calls, times = collections.Counter(), collections.Counter()
    for span in (span for batch in batches for span in batch):
        calls[span["name"]] += 1
        times[span["name"]] += span["dur"]
    whole, tokens = sum(times.values()), sum(batch[0]["args"]["tokens"] for batch in batches)
    rows = [(name, f"{calls[name] / len(batches):.0f}", f"{time / len(batches):.1f}", f"{100 * time / whole:.1f} %", f"{1000 * time / tokens:.1f}")
            for name, time in times.most_common()]
    rows.append(("all", f"{sum(calls.values()) / len(batches):.0f}", f"{whole / len(batches):.1f}", "", f"{1000 * whole / tokens:.1f}"))
    return table(("kernel", "launches a batch", "µs a batch", "share", "ns a token"), rows)


def profile(args, name: str, folder: pathlib.Path) -> None:
    layers, hidden, _ = read_shape(folder)
    sets = make_sets(folder, args.work, name, args.tokens, args.lengths, None)
    for length, texts in sets.items():
        trace = args.work / "trace.json"
        command = [args.program, str(folder), "provider.order=cuda", "provider.fallback=false", "provider.engine=native",
                   "cuda.graphs=false", "cuda.streams=1", f"profile.file={trace}", *args.set]
        print(f"## {name}: {layers} x {hidden}, texts of {length} tokens\n", flush=True)
        try:
            done = subprocess.run(command, input=f"text {texts} {args.seconds}\n", capture_output=True, text=True,
                                  timeout=100)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"failed: {error}\n", flush=True)
            continue
        batches = batches_of(trace)[-BATCHES:] if trace.exists() else []
        if not batches:
            print(f"failed: {done.stdout.strip()[-300:]} {done.stderr.strip()[-300:]}\n")
            continue
        print(f"batches of {batches[-1][0]['args']['tokens']} tokens\n", *times_of(batches), sep="\n", flush=True)
        trace.unlink()


def main() -> int:
    command = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    command.add_argument("models", nargs="+", metavar="NAME=FOLDER")
    command.add_argument("--program", required=True, help="fl-gpu")
    command.add_argument("--work", type=pathlib.Path, required=True, help="folder for texts and traces")
    command.add_argument("--lengths", type=int, nargs="*", default=[16, 57, 512])
    command.add_argument("--tokens", type=int, default=500000, help="of a set")
    command.add_argument("--seconds", type=float, default=0.5, help="of a set")
    command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="more keys for fletch")
    args = command.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    for model in args.models:
        name, folder = model.split("=", 1)
        try:
            profile(args, name, pathlib.Path(folder))
        except (OSError, ValueError, KeyError) as error:  # the others have a profile all the same
            print(f"failed: {name}: {type(error).__name__}: {error}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
