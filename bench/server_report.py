# SPDX-License-Identifier: Apache-2.0
"""server_report.py RESULT.json - what server.py found, as Markdown: ratios against their goals first."""
import json
import re
import statistics
import sys

# Goals: requests/s over the peer's by case; ours below a third of infinity's p99; share of the engine; CPU time.
GOALS = {"infinity": {"1x1": 4, "8x1": 5, "64x1": 2.5, "1x32": 1.7, "8x32": 1.7},
         "llama.cpp": {"1x1": 2, "8x1": 2, "64x1": 2, "1x32": 2, "8x32": 2}}
P99_GOAL = {"infinity": 1 / 3}
SHARE_GOAL, OVERHEAD_GOAL = {"64": 0.92}, 60


def slug(words):
    words = re.sub(r"\((r|tm)\)|@.*|\b(cpu|processor|\d+-core)\b", " ", words.lower())
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


def span(values, digits):
    return (f"**{statistics.median(values):.{digits}f}** ({min(values):.{digits}f} to {max(values):.{digits}f})")


def verdict(good):
    return "met" if good else "**missed**"


def case_name(case):
    connections, texts = case.split("x")
    return f"{connections} connection{'s' * (connections != '1')}, {texts} text{'s' * (texts != '1')} a request"


def ratio_rows(rounds):
    for peer in sorted({name for found in rounds for case in found.values() for name in case} - {"fletch"}):
        for case in rounds[0]:
            pairs = [(found[case]["fletch"], found[case][peer]) for found in rounds if peer in found.get(case, {})]
            rates = [ours["rate"] / theirs["rate"] for ours, theirs in pairs]
            tails = [ours["p99"] / theirs["p99"] for ours, theirs in pairs]
            goal = GOALS.get(peer, {}).get(case)
            tail_goal = P99_GOAL.get(peer)
            yield (f"| {peer}, {case_name(case)} | {span(rates, 2)} | ≥ {goal} | "
                   f"{verdict(statistics.median(rates) >= goal)} | {span(tails, 2)} | "
                   + (f"≤ 0.33 | {verdict(statistics.median(tails) <= tail_goal)} |" if tail_goal else "| |"))


def speed_rows(rounds):
    for case in rounds[0]:
        for name in {name: None for found in rounds for name in found.get(case, {})}:
            runs = [found[case][name] for found in rounds if name in found.get(case, {})]
            rate, p50, p99 = ([run[what] for run in runs] for what in ("rate", "p50", "p99"))
            yield f"| {case_name(case)} | {name} | {span(rate, 1)} | {span(p50, 1)} | {span(p99, 1)} |"


def race(found):
    rounds = found["rounds"]
    about = [f"{name}: {it['version']}" + (f", smallest cosine to ours {it['cosine']:.6f}" if "cosine" in it else "")
             for name, it in found["servers"].items()]
    lines = [f"## Against other servers, {len(rounds)} rounds", "", "; ".join(about) + ".", ""]
    ratios = list(ratio_rows(rounds))
    if ratios:
        lines += ["| against | requests/s, ours over theirs | goal | | p99, ours over theirs | goal | |",
                  "|---|---|---|---|---|---|---|", *ratios, ""]
    return lines + ["| | server | requests/s | p50 ms | p99 ms |", "|---|---|---|---|---|", *speed_rows(rounds), ""]


def engine(found):
    lines = ["## Share of the engine's own speed", "", "One text of 16 tokens a request; slices of wrk, each over the mean "
             "of the engine's slices before and after it. wrk has its time from the same cores.", "",
             "| connections | share | goal | |", "|---|---|---|---|"]
    for connections, shares in found["share"].items():
        goal = SHARE_GOAL.get(connections)
        lines.append(f"| {connections} | {span(shares, 3)} of {len(shares)} | "
                     + (f"≥ {goal} | {verdict(statistics.median(shares) >= goal)} |" if goal else "| |"))
    return lines + ["", f"The engine alone: {span(found['alone'], 0)} texts/s.", ""]


def overhead(found):
    lines = ["## Processor time of a single-text request", "", "One-layer model, one engine thread; µs per request of all the "
             "server's threads, less what `fletch embed` takes of it for a text in batches of the same size. \"The rest\" is "
             "HTTP, JSON, queue and wake-ups.", "",
             "| connections | texts a batch | all | tokenising and forward | the rest | goal | |", "|---|---|---|---|---|---|---|"]
    for connections, runs in found.items():
        cells = [span([run[what] for run in runs], 1) for what in ("batch", "all_us", "engine_us", "rest_us")]
        good = statistics.median(run["rest_us"] for run in runs) <= OVERHEAD_GOAL
        lines.append(f"| {connections} | {' | '.join(cells)} | ≤ {OVERHEAD_GOAL} | {verdict(good)} |")
    return lines + [""]


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
    for name, part in (("race", race), ("engine", engine), ("overhead", overhead), ("memory", memory), ("idle", idle)):
        if name in result:
            lines += part(result[name])
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as given:
        print(render(json.load(given)), end="")
