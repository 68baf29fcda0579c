#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""server.py [QUESTION ...] - `fletch serve` on the loopback, by wrk on the same cores, beside other servers.

Questions: race, engine, overhead, memory, idle; none given: race and engine.

race      requests/s, p50 and p99 over POST /v1/embeddings with base64 answers (what openai-python sends): one text of
          16 tokens per request at 1, 8 and 64 connections, 32 texts per request at 1 and 8. Each peer given by
          --peer gets the same bytes, in the same round; every other round goes in reverse order; a ratio compares
          two servers within a round. Nothing is timed before the peer's vectors agree with ours.
engine    which share of the engine's own speed HTTP leaves: slices of wrk at 64 and 8 connections, each between two
          slices of `fletch embed` on the same texts.
overhead  processor time of the server per single-text request beyond tokenising and forward, with a one-layer model.
memory    resident memory over a million requests (--requests), one-layer model.
idle      10,000 connections (--idle) that say nothing, held while others are served.

    bench/server.py race --peer infinity=VENV/bin/infinity_emb --peer llama.cpp=llama-server:model-f32.gguf
    bench/server.py memory --requests 1000000

Results are merged into bench/results/DATE-MACHINE-server.json and rendered beside it as .md: another run of the same
day adds its rounds, so a race may be measured in pieces on a machine that is quiet only for minutes.
wrk is from Debian (apt-get install wrk). --fresh drops what the day's file has of the questions asked; --turn 1 begins with
a round in reverse order.
"""
import contextlib
import pathlib
import shutil
import tempfile
import time

import harness
import record
import server_checks
import server_peers
import server_report
from server_peers import fletch, script

CASES = [(1, 1), (8, 1), (64, 1), (1, 32), (8, 32)]  # connections, texts
SHARES = [64, 8]


# ---- Questions -----------------------------------------------------------------------------------------------------


def race(with_, folder):
    """Rounds of {case: {server: {rate, p50, p99}}}, and what the peers are."""
    with contextlib.ExitStack() as started:
        servers = {"fletch": started.enter_context(fletch(with_.fletch, with_.model, with_.precision))}
        for given in with_.peer:
            name, _, program = given.partition("=")
            servers[name] = started.enter_context(server_peers.start(name, program, with_.model))
        about = {name: {"version": peer.version} for name, peer in servers.items()}
        for name in [name for name in servers if name != "fletch"]:
            about[name]["cosine"] = server_peers.parity(servers["fletch"], servers[name], name)
        rounds = []
        for number in range(with_.rounds):
            found = {}
            for connections, texts in CASES:
                for name in harness.in_turn(servers, number + with_.turn):
                    time.sleep(0.3)  # the one before has gone to sleep
                    servers[name].load(script(folder, texts), connections, 0.5)  # warm
                    run = servers[name].load(script(folder, texts), connections, with_.seconds)
                    found.setdefault(f"{connections}x{texts}", {})[name] = run
                    print(f"{connections}x{texts} {name}: {run}", flush=True)
            rounds.append(found)
    return {"rounds": rounds, "servers": about}


def alone(with_, folder, texts=1024):
    """Texts/s of the engine on `texts` of them, start-up taken off."""
    one, all_of_them = (server_checks.embed(with_, folder, with_.model, [server_peers.text(i) for i in range(count)])[0] for count in (1, texts))
    return (texts - 1) / (all_of_them - one)


def engine(with_, folder):
    """Shares of the engine's speed: a slice of wrk over the mean of the slices of the engine around it. The slice is
    counted by the server itself while wrk runs, so that the first and the last answers are not waited for in it."""
    found, speeds = {str(c): [] for c in SHARES}, []
    with fletch(with_.fletch, with_.model, with_.precision) as server:
        server.load(script(folder, 1), 8, 1)
        before = alone(with_, folder)
        for number in range(with_.rounds):
            for connections in harness.in_turn(SHARES, number + with_.turn):
                rate = server_checks.steady_rate(server, script(folder, 1), connections, with_.seconds)
                after = alone(with_, folder)
                found[str(connections)].append(2 * rate / (before + after))
                print(f"engine {before:.0f} {after:.0f} texts/s, {connections} connections {rate:.0f}", flush=True)
                speeds.append(after)
                before = after
    return {"share": found, "alone": speeds}


# ---- The file of the day -------------------------------------------------------------------------------------------


def merge(old, new):
    """Lists grow, numbers and words are the newest."""
    for key, value in new.items():
        if isinstance(value, dict):
            merge(old.setdefault(key, {}), value)
        elif isinstance(value, list):
            old[key] = old.get(key, []) + value
        else:
            old[key] = value
    return old


def main():
    questions = {"race": race, "engine": engine, "overhead": server_checks.overhead, "memory": server_checks.memory,
                 "idle": server_checks.idle}
    parser = harness.arguments(__doc__, "out", "fresh", fletch="build/fletch", model=".cache/models/all-MiniLM-L6-v2", precision="fp32",
                               seconds=4.0, rounds=3, turn=0, requests=1000000, idle=10000)
    parser.add_argument("question", nargs="*", metavar="QUESTION", help=", ".join(questions))
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PROGRAM",
                        help="infinity=…/infinity_emb or llama.cpp=…/llama-server:MODEL.gguf; may be given again")
    with_ = parser.parse_args()
    asked = with_.question or ["race", "engine"]
    if unknown := set(asked) - set(questions):
        parser.error(f"no question {', '.join(sorted(unknown))}; there are {', '.join(questions)}")
    if {"race", "engine", "overhead"} & set(asked) and shutil.which("wrk") is None:
        parser.error("wrk is not installed: apt-get install wrk")
    kept = record.Record(with_, "server", precision=with_.precision, model=pathlib.Path(with_.model).resolve().name)
    with tempfile.TemporaryDirectory() as folder:
        for question in asked:
            found = questions[question](with_, folder)
            if with_.fresh:
                kept.result.pop(question, None)
            merge(kept.result.setdefault(question, {}), found)
            kept.write(server_report.render(kept.result))


if __name__ == "__main__":
    main()
