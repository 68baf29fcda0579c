# SPDX-License-Identifier: Apache-2.0
"""server_report.py RESULT.json - what server.py found, as Markdown: ratios against their goals first."""
import json
import statistics
import sys

from report import GOALS_HEAD, line, span, table

# Goals: requests/s over the peer's by case; our p99 over the peer's at most; share of the engine; CPU time.
GOALS = {"infinity": {"1x1": 4, "8x1": 5, "64x1": 2.5, "1x32": 1.7, "8x32": 1.7},
         "llama.cpp": {"1x1": 2, "8x1": 2, "64x1": 2, "1x32": 2, "8x32": 2}}
P99_GOAL = {"infinity": 1 / 3}
SHARE_GOAL, OVERHEAD_GOAL = {"64": 0.92}, 60


def spread(values, digits):
    found = span(values)
    return f"**{found['med']:.{digits}f}** ({found['min']:.{digits}f} to {found['max']:.{digits}f})"


def case_name(case):
    connections, texts = case.split("x")
    return f"{connections} connection{'s' * (connections != '1')}, {texts} text{'s' * (texts != '1')} a request"


def race(found):
    rounds, goals, rows = found["rounds"], [], []
    about = "; ".join(name + ": " + it["version"] + (f", smallest cosine to ours {it['cosine']:.6f}" if "cosine" in it else "")
                      for name, it in found["servers"].items())
    for case in rounds[0]:
        for name in dict.fromkeys(name for each in rounds for name in each.get(case, {})):
            there = [each[case] for each in rounds if name in each.get(case, {})]
            rows.append((case_name(case), name, *(spread([runs[name][what] for runs in there], 1) for what in ("rate", "p50", "p99"))))
            if name != "fletch":
                over = {what: [runs["fletch"][what] / runs[name][what] for runs in there] for what in ("rate", "p99")}
                goals += line(f"{name}, {case_name(case)}: requests/s, ours over theirs", over["rate"], GOALS[name][case])
                goals += line(f"{name}, {case_name(case)}: p99, ours over theirs", over["p99"], P99_GOAL.get(name), most=True)
    return [f"## Against other servers, {len(rounds)} rounds", "", about + ".", "", *(table(GOALS_HEAD, sorted(goals)) if goals else []),
            *table(("", "server", "requests/s", "p50 ms", "p99 ms"), rows)]


def engine(found):
    return ["## Share of the engine's own speed", "", "One text of 16 tokens a request; slices of wrk, each over the mean "
            "of the engine's slices before and after it. wrk has its time from the same cores.", "",
            *table(GOALS_HEAD, [row for connections, shares in found["share"].items() for row in line(
                f"{connections} connections, {len(shares)} slices: share", shares, SHARE_GOAL.get(connections), digits=3)]),
            f"The engine alone: {spread(found['alone'], 0)} texts/s.", ""]


def overhead(found):
    rows = []
    for connections, runs in found.items():
        good = statistics.median(run["rest_us"] for run in runs) <= OVERHEAD_GOAL
        rows.append((connections, *(spread([run[what] for run in runs], 1) for what in ("batch", "all_us", "engine_us", "rest_us")),
                     f"≤ {OVERHEAD_GOAL}", "met" if good else "**missed**"))
    return ["## Processor time of a single-text request", "", "One-layer model, one engine thread; µs per request of all the "
            "server's threads, less what `fletch embed` takes of it for a text in batches of the same size. \"The rest\" is "
            "HTTP, JSON, queue and wake-ups.", "",
            *table(("connections", "texts a batch", "all", "tokenising and forward", "the rest", "goal", ""), rows)]


def memory(found):
    grown = found["last_kib"] - found["after_a_tenth_kib"]
    return ["## Memory", "", f"{found['requests']:.0f} requests at 64 connections: {found['after_a_tenth_kib']} KiB resident "
            f"after a tenth, {found['last_kib']} KiB at the end ({grown:+} KiB), {found['most_kib']} KiB at most.", ""]


def idle(found):
    before, after = found["without"], found["with"]
    return ["## Idle connections", "", f"{found['connections']} silent connections held, {found['kib_each']:.1f} KiB each; "
            f"8 others served {after['rate']:.0f} requests/s meanwhile (p99 {after['p99']:.1f} ms) and {before['rate']:.0f} "
            f"without them (p99 {before['p99']:.1f} ms); of the silent ones {found['still_served']} were served afterwards.", ""]


def render(result):
    where = result["machine"]
    lines = [f"# The server on {where['cpu']}, {where['cores']} cores, {result['date']}", "",
             f"{result['model']}, {result['precision']}; median (lowest to highest). wrk runs on the same cores. "
             "`bench/server.py` says what each part measures.", ""]
    for part in (race, engine, overhead, memory, idle):
        lines += part(result[part.__name__]) if part.__name__ in result else []
    return lines


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as given:
        print("\n".join(render(json.load(given))))
