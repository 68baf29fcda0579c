# SPDX-License-Identifier: Apache-2.0
"""compare.py BEFORE AFTER - two builds against each other in turns: what a commit gained or lost, kernel by kernel and whole.

    tools/bench.sh compare COMMIT [--rounds 7] [--seconds 0.5] [--part engine] [--part kernels] [--formats fp32,int8]

Clocks drift, neighbours come and go: two runs one after the other differ by more than most changes are worth. So
every round runs both builds on the same question, every other round in reverse order, and a ratio compares two runs of
one round; the table has the median ratio with the lowest and the highest. Above 1 the working tree is faster.
The engine is bench_engine on one thread (processor time counts), the kernels are `fl-kernels perf` with the instruction
set that the engine chooses here. What both builds know is compared, the rest is left out.
The table goes to history.csv of --results, from which history.md is written, with the load that others made before it began;
a later run of the same day and commits replaces its rows. A tree with uncommitted changes (a name that ends in +) is
kept only with --keep.
"""
import argparse
import csv
import datetime
import os
import pathlib
import re
import statistics
import subprocess

from harness import HERE, arguments, in_turn
from report import table

ENGINE = re.compile(r"(?P<what>short|long) .*median (?P<value>[\d.]+) tok/s")
LATENCY = re.compile(r"(?P<what>latency) .* of (?P<tokens>\d+) tokens: .*p50 (?P<value>[\d.]+) ms")
KERNEL = re.compile(r"(?P<isa>\S+)\s+(?P<what>\S.*?):?\s+(?P<value>[\d.]+) (?P<unit>GFLOP/s|Gop/s|ns)\b")
ABOUT = ["date", "machine", "before", "after"]
COLUMNS = [*ABOUT, "load", "what", "ratio", "lowest", "highest", "rounds"]


def ask(command: list) -> str:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def engine(build: pathlib.Path, options) -> dict:
    """Speeds, more is better."""
    found = {}
    for precision in options.formats.split(","):
        for line in ask([build / "bench_engine", "-t", "1", "-s", options.seconds, "-p", precision]).splitlines():
            if match := ENGINE.match(line):
                found[f"engine {precision} {match['what']}"] = float(match["value"])
            elif match := LATENCY.match(line):
                found[f"engine {precision} one text of {match['tokens']}"] = 1 / float(match["value"])
    return found


def kernels(build: pathlib.Path, options) -> dict:
    found = {}
    for line in ask([build / "fl-kernels", "perf", "-i", options.isa]).splitlines():
        if (match := KERNEL.match(line)) and match["isa"] == options.isa:
            value = float(match["value"])
            found[match["what"]] = 1 / value if match["unit"] == "ns" else value
    return found


def race(before: pathlib.Path, after: pathlib.Path, options) -> list:
    ratios = {}
    for round_ in range(options.rounds):
        for part in options.part or ["engine", "kernels"]:
            measure, found = {"engine": engine, "kernels": kernels}[part], {}
            for build in in_turn((before, after), round_):
                found[build] = measure(build, options)
            old, new = found[before], found[after]
            for what in old.keys() & new.keys():
                ratios.setdefault((part, what), []).append(new[what] / old[what])
    return [{"what": what, "ratio": f"{statistics.median(all_):.3f}", "lowest": f"{min(all_):.3f}",
             "highest": f"{max(all_):.3f}", "rounds": len(all_)}
            for (_, what), all_ in sorted(ratios.items())]


def tabled(rows: list) -> list:
    return table(("what", "median ratio", "lowest to highest"),
                 [(row["what"], row["ratio"], f"{row['lowest']} to {row['highest']}") for row in rows])


def keep(rows: list, about: dict, results: pathlib.Path) -> None:
    data, new = results / "history.csv", [about | row for row in rows]
    old = list(csv.DictReader(data.open(encoding="utf-8"))) if data.exists() else []

    def place(row: dict) -> list:
        return [row[name] for name in [*ABOUT, "what"]]

    replaced = [place(row) for row in new]
    everything = [row for row in old if place(row) not in replaced] + new
    with data.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(everything)
    text = ["# History of speed", "", "Builds against each other in turns, one thread; above 1.000 the later one is "
            "faster (`tools/bench.sh compare COMMIT`).", ""]
    for key in dict.fromkeys(tuple(row[name] for name in ABOUT) for row in everything):
        mine = [row for row in everything if tuple(row[name] for name in ABOUT) == key]
        loads = " and ".join(dict.fromkeys(row["load"] for row in mine))
        text += [f"## {key[0]}, {key[1]}: {key[2]} to {key[3]}", "", f"Load before: {loads}; {mine[0]['rounds']} rounds.", "",
                 *tabled(mine)]
    (results / "history.md").write_text("\n".join(text).rstrip() + "\n", encoding="utf-8")


def main() -> None:
    parser = arguments(__doc__, rounds=7, seconds=0.5, formats="fp32,int8,int16,bf16")
    parser.add_argument("before", type=pathlib.Path, help="folder of the build that is compared with")
    parser.add_argument("after", type=pathlib.Path, help="folder of the build that is judged")
    parser.add_argument("--names", nargs=2, default=["before", "after"], help="commits of both")
    parser.add_argument("--part", action="append", choices=["engine", "kernels"])
    parser.add_argument("--keep", action=argparse.BooleanOptionalAction, help="the table in the history")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results", help="folder of the history")
    options = parser.parse_args()
    load = f"{os.getloadavg()[0]:.1f}"
    about = ask([options.after / "bench_engine", "-s", "0.01", "-o", "none"])
    options.isa = re.search(r"^cpu\.isa\s+(\S+)", about, re.M)[1]
    machine = re.search(r"the best on this machine; (.*?) has ", about)
    rows = race(options.before, options.after, options)
    print("\n".join(tabled(rows)))
    if options.keep or (options.keep is None and not options.names[1].endswith("+")):
        keep(rows, {"date": datetime.date.today().isoformat(), "before": options.names[0], "after": options.names[1], "load": load,
                    "machine": f"{machine[1] if machine else 'processor'} ({options.isa})"}, options.results)


if __name__ == "__main__":
    main()
