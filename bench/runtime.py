# SPDX-License-Identifier: Apache-2.0
"""runtime.py - what the scheduler costs and gains on this machine.

Runs build/bench_runtime (bench/runtime.c says what each part measures) and writes
bench/results/DATE-MACHINE-runtime.json, .csv and .md, and a plot .svg where matplotlib is installed.

    python bench/runtime.py --model FOLDER [--seconds 2] [--rounds 7] [--target 25] [--part load]
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import subprocess
import sys

from harness import HERE, where
from report import slug

GOALS = {"overhead": "at most 15 us", "clients": "at least 90 %", "load": "p99 in the target",
         "replicas": "at least 90 % linear", "trace": "at most 1 % slower"}


def measure(program, options):
    command = [program, options.model, "-s", options.seconds, "-r", options.rounds, "-l", options.target,
               "-c", options.clients]
    if options.part:
        command += ["-o", options.part]
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout:
            print(line, end="", file=sys.stderr)
            yield json.loads(line)
    if run.returncode != 0:
        sys.exit(f"bench_runtime ended with {run.returncode}")


def spread(value, scale=1.0, digits=1):
    return (f"{value['median'] * scale:.{digits}f} "
            f"({value['low'] * scale:.{digits}f} to {value['high'] * scale:.{digits}f})")


def rows(results):
    """What, measured, goal: the lines of the table."""
    for r in results:
        part, goal = r["part"], GOALS.get(r["part"], "")
        if "skipped" in r:
            yield part, f"skipped: {r['skipped']}", goal
        elif part == "overhead":
            yield ("one text, idle: embed less tokenise + forward",
                   f"{spread(r['overhead_us'])} us; of the fastest calls {r['overhead_best_us']:.1f} us", goal)
            yield "one text, idle: embed", f"{spread(r['embed_us'])} us", ""
        elif part == "clients":
            yield (f"{r['clients']} threads with single texts / one big call", f"{spread(r['ratio'], 100)} %", goal)
            yield "one big call", f"{spread(r['big_call_texts_s'])} texts/s", ""
        elif part == "saturation":
            yield "64 threads with single texts", f"{r['texts_s']:.1f} texts/s", ""
        elif part == "load":
            yield (f"open load of {r['percent']} % ({r['texts_s']:.0f} texts/s), target {r['target_ms']} ms",
                   f"p50 {r['p50_ms']:.2f}, p90 {r['p90_ms']:.2f}, p99 {r['p99_ms']:.2f} ms", goal)
        elif part == "replicas":
            yield (f"two replicas of {r['threads_each']} threads / twice one", f"{spread(r['linear'], 100)} %", goal)
        elif part == "trace":
            yield "one span", f"{r['span_ns']:.0f} ns", ""
            if "ratio" in r:
                yield "trace on / off", f"{spread(r['ratio'], 100)} %", goal


def plot(results, path):
    try:
        import matplotlib
        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        return False
    loads = [r for r in results if r["part"] == "load"]
    if not loads:
        return False
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for key, mark in (("p50_ms", "o-"), ("p90_ms", "s-"), ("p99_ms", "^-")):
        axes.plot([r["percent"] for r in loads], [r[key] for r in loads], mark, label=key[:-3])
    if loads[0]["target_ms"] > 0:
        axes.axhline(loads[0]["target_ms"], color="grey", linestyle="--", label="target")
    axes.set(xlabel="load, % of saturation", ylabel="latency, ms", ylim=(0, None), title="Single texts of 16 tokens")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--program", default=HERE.parent / "build" / "bench_runtime")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--target", type=int, default=25, help="batch.target_latency_ms of the open load")
    parser.add_argument("--part", default="")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    options = parser.parse_args()
    results = list(measure(options.program, options))
    place, today = where(), datetime.date.today().isoformat()
    base = options.results / f"{today}-{slug(place)}-runtime"
    options.results.mkdir(parents=True, exist_ok=True)
    loads = [r for r in results if r["part"] == "load"]
    base.with_suffix(".json").write_text(json.dumps({"machine": place, "date": today, "results": results}, indent=1) + "\n")
    if loads:
        with open(base.with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, loads[0].keys())
            table.writeheader()
            table.writerows(loads)
    lines = [f"# The runtime on {place}, {today}", "",
             f"Median (lowest to highest) of {options.rounds} rounds of {options.seconds:g} s; load average before the "
             f"end {os.getloadavg()[0]:.1f}.", "", "| what | measured | goal |", "|---|---|---|"]
    lines += [f"| {what} | {measured} | {goal} |" for what, measured, goal in rows(results)]
    if plot(results, base.with_suffix(".svg")):
        lines += ["", f"![latency under load]({base.name}.svg)"]
    base.with_suffix(".md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
