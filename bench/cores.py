# SPDX-License-Identifier: Apache-2.0
"""cores.py - what the CPU engine would do on more cores than this machine has: its own plans, simulated with kernel times of this machine.

    python bench/cores.py [--bench build/bench_engine] [--shape minilm] [--precision fp32] [--seconds 0.5]

What is real: the plans (bench_engine -d, the engine's own code with so many threads), what a token takes in blocks of several sizes
(processor time of one thread), and the size of the weights. What is assumed: a barrier (200 ns and 80 ns for each rank: cpu_cost.c,
which test_plan.c counts the barriers of), a wake-up of a thread that sleeps (WAKE_NS, four calls a step), and the memory of MACHINES:
what threads read of the weights beyond the last cache takes its share of the bandwidth, every block all of them once. A node is a
replica with its own copy; a batch is split between nodes.
First the check: processor time of the simulation beside that of real runs with 1 and 2 threads, and with more threads than cores. Prints
tables in Markdown."""
import heapq
import json
import pathlib
import re
import subprocess

from harness import arguments

WAKE_NS = 5_000
# name: (cores of a node, nodes, GB/s of a node, MiB of last cache of a node)
MACHINES = {"1 core": (1, 1, 20, 32), "8 cores": (8, 1, 60, 32), "64 cores": (64, 1, 400, 256), "192 cores, two sockets": (96, 2, 400, 384)}
# texts of a call: (texts, tokens each); None: as many as a batch holds
CALLS = {"one query of 16 tokens": (1, 16), "8 queries": (8, 16), "32 queries": (32, 16), "one text of 512": (1, 512), "a batch of texts of 128": (None, 128)}
OF_A_THREAD, LEAST_BATCH = 2048, 16384  # batch.max_tokens


class Engine:
    def __init__(self, program, shape, precision, seconds):
        self.command = [program, shape, "-p", precision, "-s", str(seconds)]
        self.plans = {}
        blocks = [(1, 2), (1, 16), (2, 16), (4, 16), (8, 16), (12, 16), (24, 16)]
        self.token_ns = sorted((texts * tokens, 1e6 * self.processor_ms(1, texts, tokens) / (texts * tokens)) for texts, tokens in blocks)

    def call(self, *arguments):
        done = subprocess.run([*map(str, self.command), *map(str, arguments)], check=True, capture_output=True, text=True)
        return done.stdout.strip().splitlines()[-1]

    def processor_ms(self, threads, texts, tokens):
        line = self.call("-t", threads, "-n", texts, "-l", tokens)
        return float(re.search(r"processor time ([0-9.]+) ms", line)[1])

    def plan(self, threads, texts, tokens):
        key = threads, texts, tokens
        if key not in self.plans:
            self.plans[key] = json.loads(self.call("-t", threads, "-n", texts, "-l", tokens, "-d"))
        return self.plans[key]

    def ns_of(self, tokens):
        """What a token takes in a block of so many: between those that were measured."""
        before = self.token_ns[0]
        for after in self.token_ns:
            if tokens <= after[0]:
                share = (tokens - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 1
                return before[1] + share * (after[1] - before[1])
            before = after
        return before[1]


def run(engine, plan, bandwidth, cache):
    """Seconds from the call to its end, and those of processors that work or wait at barriers."""
    busy = min(plan["threads"], len(plan["blocks"]) - plan["shared"]) if plan["shared"] == 0 else plan["threads"]
    readers = busy if plan["shared"] == 0 else min(plan["groups"], plan["shared"])
    beyond = max(0.0, 1 - cache * 2**20 / plan["weights"]) if plan["weights"] else 0.0
    reading = plan["weights"] * beyond * readers / (bandwidth * 1e9)  # all readers side by side, once

    def seconds(block):
        tokens, cost = block
        return max(cost * engine.ns_of(tokens) * 1e-9, reading)
    steps = 0
    while 4 ** steps < plan["threads"]:
        steps += 1
    start, spent = steps * WAKE_NS * 1e-9, 0.0
    groups = [start] * plan["groups"]
    for i, block in enumerate(plan["blocks"][:plan["shared"]]):
        groups[i % plan["groups"]] += seconds(block)
        spent += seconds(block) * plan["ranks"]
    free = [groups[i // plan["ranks"]] if i // plan["ranks"] < plan["groups"] else start for i in range(plan["threads"])]
    heapq.heapify(free)
    for block in plan["blocks"][plan["shared"]:]:
        heapq.heapreplace(free, free[0] + seconds(block))
        spent += seconds(block)
    return max(free), spent


def check(engine):
    print("| call | threads | processor time simulated, ms | real, ms | simulated / real |\n|---|---|---|---|---|")
    for name, (texts, tokens) in CALLS.items():
        for threads in (1, 2, 8, 64):
            count = texts or 64
            simulated = 1e3 * run(engine, engine.plan(threads, count, tokens), 20, 480)[1]
            real = engine.processor_ms(threads, count, tokens)
            print(f"| {name}{'' if texts else f' ({count})'} | {threads} | {simulated:.2f} | {real:.2f} | {simulated / real:.2f} |", flush=True)


def simulate(engine):
    print("| machine | call | threads | group | latency, ms | tokens/s | of as many single cores |\n|---|---|---|---|---|---|---|")
    for name, (texts, tokens) in CALLS.items():
        one = None
        for machine, (cores, nodes, bandwidth, cache) in MACHINES.items():
            count = texts or max(LEAST_BATCH, OF_A_THREAD * cores) // tokens
            plan = engine.plan(cores, count, tokens)
            latency, _ = run(engine, plan, bandwidth, cache)
            used = nodes if texts is None else 1  # other calls may have the other node
            rate = plan["tokens"] * used / latency
            one = one or rate
            share = rate / (one * cores * used)
            group = f"{plan['groups'] if plan['shared'] else 1} x {plan['ranks'] if plan['shared'] else 1}"
            print(f"| {machine} | {name} | {plan['threads'] * used} | {group} | {latency * 1e3:.2f} | {rate:,.0f} | {share:.2f} |", flush=True)


def main():
    parser = arguments(__doc__, shape="minilm", precision="fp32", seconds=0.5)
    parser.add_argument("--bench", type=pathlib.Path, default=pathlib.Path("build/bench_engine"))
    options = parser.parse_args()
    engine = Engine(options.bench, options.shape, options.precision, options.seconds)
    print("ns a token by the tokens of a block:", ", ".join(f"{tokens}: {ns:,.0f}" for tokens, ns in engine.token_ns), "\n")
    check(engine)
    print()
    simulate(engine)


if __name__ == "__main__":
    main()
