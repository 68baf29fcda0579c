# SPDX-License-Identifier: Apache-2.0
"""What more than one process costs: two pinned processes of `fletch run` beside one, and a Ray pool of two actors beside one.

    PYTHONPATH=build/python FLETCH_MODEL=… FLETCH_BIN=build/fletch FLETCH_TEST_DATA=… python bench/scale.py [pinned] [ray]

CPU seconds of everything that takes part, in turns, the least of each; Ray's are those of a control group (root is needed),
since its daemons do not wait for their children. Ray is run with few and with many rows: what the few cost is the fixed
part, what the others cost more is the work. What two processes lose is told apart: start and opening of a second model
(a job of one line), the processors (loops of nothing but multiply-adds in registers, bench/peak.c, one and two at a time),
and the rest, which is caches and memory. BENCH_ROUNDS (2), BENCH_ROWS (1500). Prints a table in Markdown."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

MODEL, PROGRAM = os.environ["FLETCH_MODEL"], os.environ["FLETCH_BIN"]
DATA, HERE = pathlib.Path(os.environ["FLETCH_TEST_DATA"]), pathlib.Path(__file__).resolve().parent
ROUNDS, ROWS = (int(os.environ.get(f"BENCH_{name}", default)) for name, default in (("ROUNDS", "2"), ("ROWS", "1500")))
FEW = 256
GROUPS = pathlib.Path("/sys/fs/cgroup")
GROUP = (GROUPS / "cpuacct" if (GROUPS / "cpuacct").exists() else GROUPS) / "fletch-bench"

JOB = """
import os, sys
import ray, ray.data
import fletch.ray
source, target, actors = sys.argv[1:]
ray.data.DataContext.get_current().wait_for_min_actors_s = 600  # else one may end a small job before the other has begun
ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False)
ds = fletch.ray.embed(ray.data.read_parquet(source), model=os.environ["FLETCH_MODEL"], concurrency=int(actors), cpus=1, batch_size=64)
ds.write_parquet(target)
ray.shutdown()
"""


def texts(count):
    rows = [json.loads(line) for line in (DATA / "stsb-en-train.jsonl").read_text().splitlines()]
    found = [row[side] for side in "ab" for row in rows]
    assert count <= len(found), f"BENCH_ROWS: there are {len(found)} sentences"
    return found[:count]


def cpu_of_children(commands):
    """CPU seconds of programs that run side by side."""
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    total = 0.0
    for one in running:
        _, status, used = os.wait4(one.pid, 0)
        assert status == 0, one.args
        total += used.ru_utime + used.ru_stime
    return total


def cpu_of_group(command):
    """CPU seconds of a program and all that it leaves behind."""
    GROUP.mkdir(exist_ok=True)
    before = group_seconds()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   preexec_fn=lambda: (GROUP / "cgroup.procs").write_text(str(os.getpid())))
    return group_seconds() - before


def group_seconds():
    if (GROUP / "cpuacct.usage").exists():  # version 1
        return int((GROUP / "cpuacct.usage").read_text()) / 1e9
    usage = dict(line.split() for line in (GROUP / "cpu.stat").read_text().splitlines())
    return int(usage["usage_usec"]) / 1e6


def in_turns(kinds):
    """{name: least CPU seconds} of functions that measure."""
    best = {}
    for _ in range(ROUNDS):
        for name, measure in kinds.items():
            best[name] = min(best.get(name, 1e9), measure())
    return best


def multiply_adds(peak, cpus):
    """GFLOP a CPU second of loops in registers, one pinned to each processor, all at a time."""
    running = [subprocess.Popen(["taskset", "-c", str(cpu), peak, "1", "2"], stdout=subprocess.PIPE, text=True) for cpu in cpus]
    done = used = 0.0
    for one in running:
        done += 2 * float(one.stdout.read())
        _, status, spent = os.wait4(one.pid, 0)
        assert status == 0, one.args
        used += spent.ru_utime + spent.ru_stime
    return done / used


def pinned(folder):
    source, line, peak = folder / "texts.txt", folder / "line.txt", folder / "peak"
    source.write_text("\n".join(texts(ROWS)) + "\n")
    line.write_text("a line\n")
    subprocess.run(["cc", "-O2", "-pthread", "-o", peak, HERE / "peak.c"], check=True)
    runs = iter(range(1000))

    def work(text, shards):
        out = folder / f"out{next(runs)}"
        return cpu_of_children([["taskset", "-c", str(i), PROGRAM, "run", "-q", "-m", MODEL, "-i", text, "-o", out, "--threads", "1",
                                 "--split-bytes", "4KiB", "--shard", f"{i}/{shards}"] for i in range(shards)])
    best = in_turns({"one": lambda: work(source, 1), "two": lambda: work(source, 2), "open": lambda: work(line, 1),
                     "idle": lambda: -multiply_adds(peak, [0]), "both": lambda: -multiply_adds(peak, [0, 1])})
    one, two, start, idle, both = best.values()
    return [("one pinned process of one thread, CPU s", one), ("two, CPU s together", two),
            ("texts a CPU second: two / one (goal 0.97)", one / two), ("start and opening of one, CPU s", start),
            ("texts a CPU second without them: two / one", (one - start) / (two - 2 * start)),
            ("multiply-adds in registers, GFLOP a CPU second, one loop", -idle),
            ("the same of two loops / one", both / idle)]


def pool(folder):
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
        import ray  # noqa: F401 - the actors import it
    except ImportError as error:
        sys.exit(f"the question ray is not measured: {error}; pip install ray pyarrow")
    runs = iter(range(1000))
    rows = texts(FEW + ROWS)
    for name, count in (("few", FEW), ("many", FEW + ROWS)):
        (folder / name).mkdir()
        cuts = [*range(0, FEW, FEW // 8), *range(FEW, count, 512), count]  # a file is a task: of the few each actor has some
        for low, high in zip(cuts, cuts[1:]):
            pq.write_table(pa.table({"text": rows[low:high]}), folder / name / f"{low:06}.parquet")

    def work(name, actors):
        return cpu_of_group([sys.executable, "-c", JOB, folder / name, folder / f"ray{next(runs)}", str(actors)])
    best = in_turns({(name, actors): lambda name=name, actors=actors: work(name, actors)
                     for name in ("few", "many") for actors in (1, 2)})
    one, two = (best["many", actors] - best["few", actors] for actors in (1, 2))
    return [("Ray, fixed cost of a pool of one, CPU s", best["few", 1]), ("of a pool of two", best["few", 2]),
            (f"{ROWS} rows more, pool of one, CPU s", one), ("pool of two", two),
            ("texts a CPU second after the fixed cost: two / one (goal 0.95)", one / two)]


if __name__ == "__main__":
    print("| what | |\n|---|---|")
    for question in sys.argv[1:] or ["pinned", "ray"]:
        with tempfile.TemporaryDirectory() as place:
            for what, value in {"pinned": pinned, "ray": pool}[question](pathlib.Path(place)):
                print(f"| {what} | {value:.3g} |", flush=True)
