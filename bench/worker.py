# SPDX-License-Identifier: Apache-2.0
"""worker.py ENGINE - one engine of peers.py in one process, driven by JSON lines on stdin; harness.py starts it.

`worker.py ENGINE cold` ends with the first vector.
Commands: load {name, texts} · pass {name} · matrix {name, path} · latency {text, count, seconds at most} · memory {} · quit. Where
an engine has jobs (peers.py), load takes `job` and `query` too.
Environment: BENCH_MODEL (folder), BENCH_THREADS, BENCH_LIBRARY (libfletch.so), BENCH_GRAPHS (what graphs.py made), BENCH_ISA.
"""
import json
import os
import resource
import sys
import time

import numpy

import peers


def peak_megabytes() -> float:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(engine, job: str, query: str, texts: list[str]):
    return engine.embed(texts) if job == "embed" and not hasattr(engine, "jobs") else getattr(engine, job)(query, texts)


def answer(engine, sets: dict, command: dict) -> dict:
    match command["do"]:
        case "load":
            sets[command["name"]] = (command.get("job", "embed"), command.get("query", ""), command["texts"])
            return {}
        case "pass":
            start, used = time.perf_counter(), time.process_time()
            found = run(engine, *sets[command["name"]])
            spent = {"seconds": time.perf_counter() - start, "processor": time.process_time() - used}
            peers.drop(engine, found)
            return spent
        case "matrix":
            found = run(engine, *sets[command["name"]])
            numpy.save(command["path"], peers.dense(engine, found))
            peers.drop(engine, found)
            return {}
        case "latency":
            milliseconds, end = [], time.perf_counter() + command["seconds"]
            for number in range(command["count"]):
                if number >= 3 and time.perf_counter() > end:
                    break
                start = time.perf_counter()
                engine.query([command["text"]])
                milliseconds.append(1e3 * (time.perf_counter() - start))
            return {"ms": milliseconds}
        case "memory":
            return {"megabytes": peak_megabytes()}
    raise ValueError(command["do"])


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever an engine prints must not mix with the replies
    engine = peers.start(sys.argv[1], os.environ["BENCH_MODEL"])
    if sys.argv[2:] == ["cold"]:
        engine.query(["A cat sits on the mat."])
        replies.write("first vector\n")
        replies.flush()
        os._exit(0)
    replies.write(json.dumps({"version": engine.version, "jobs": list(getattr(engine, "jobs", {})), "opening": time.process_time()}) + "\n")
    sets: dict[str, tuple] = {}
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "quit":
            break
        replies.write(json.dumps(answer(engine, sets, command)) + "\n")


if __name__ == "__main__":
    main()
