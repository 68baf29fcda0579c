# SPDX-License-Identifier: Apache-2.0
"""runtime.py - what the scheduler costs and gains on this machine.

Runs build/bench_runtime (bench/runtime.c says what each part measures) and writes
bench/results/DATE-MACHINE-runtime.json and .md.

    python bench/runtime.py --model FOLDER [--seconds 2] [--rounds 7] [--target 25] [--part load]
"""
import json
import subprocess
import sys

import record
import report
from harness import arguments

GOALS = {"overhead": "at most 15 us", "clients": "at least 90 %", "load": "p99 in the target",
         "replicas": "at least 90 % linear", "trace": "at most 1 % slower"}


def measure(options):
    command = [options.build / "bench_runtime", options.model, "-s", options.seconds, "-r", options.rounds, "-l", options.target,
               "-c", options.clients, *(["-o", options.part] if options.part else [])]
    with subprocess.Popen(map(str, command), stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout:
            print(line, end="", file=sys.stderr)
            yield json.loads(line)
    if run.returncode != 0:
        sys.exit(f"bench_runtime ended with {run.returncode}")


def spread(value, scale=1.0):
    return f"{value['median'] * scale:.1f} ({value['low'] * scale:.1f} to {value['high'] * scale:.1f})"


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
            yield f"{r['clients']} threads with single texts / one big call", f"{spread(r['ratio'], 100)} %", goal
            yield "one big call", f"{spread(r['big_call_texts_s'])} texts/s", ""
        elif part == "saturation":
            yield "64 threads with single texts", f"{r['texts_s']:.1f} texts/s", ""
        elif part == "load":
            yield (f"open load of {r['percent']} % ({r['texts_s']:.0f} texts/s), target {r['target_ms']} ms",
                   f"p50 {r['p50_ms']:.2f}, p90 {r['p90_ms']:.2f}, p99 {r['p99_ms']:.2f} ms", goal)
        elif part == "replicas":
            yield f"two replicas of {r['threads_each']} threads / twice one", f"{spread(r['linear'], 100)} %", goal
        elif part == "trace":
            yield "one span", f"{r['span_ns']:.0f} ns", ""
            if "ratio" in r:
                yield "trace on / off", f"{spread(r['ratio'], 100)} %", goal


def main():
    options = arguments(__doc__, "model", "build", "out", seconds=2.0, rounds=7, clients=8, target=25, part="").parse_args()
    kept = record.Record(options, "runtime", fresh=True)
    kept.result["results"] = list(measure(options))
    print(kept.write([
        f"# The runtime on {kept.result['machine']['cpu']}, {kept.result['machine']['cores']} cores, {kept.result['date']}", "",
        f"Median (lowest to highest) of {options.rounds} rounds of {options.seconds:g} s; load average {kept.stamp()['load'][1]} at the end.", "",
        *report.table(("what", "measured", "goal"), list(rows(kept.result["results"])))]))


if __name__ == "__main__":
    main()
