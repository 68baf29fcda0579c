# SPDX-License-Identifier: Apache-2.0
"""run.py - the race: fletch against onnxruntime, OpenVINO and sentence-transformers, all on this machine.

Method: each engine in its own process, the others asleep; parity is proven before anything is timed; the same
texts for all; rounds interleave the engines and every other round goes in reverse order, so that drift hits
all alike; ratios are taken within a round. Tokens are real ones ([CLS] and [SEP] counted, padding not).
`make bench` calls it; bench/README.md says how to read the result.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

import report

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
PEERS = ["onnxruntime", "openvino", "sentence-transformers"]


class Engine:
    """A worker process and its pipe."""

    def __init__(self, name: str, environment: dict) -> None:
        self.name = name
        self.process = subprocess.Popen([sys.executable, HERE / "worker.py", name], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.version = self.read()["version"]

    def read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name}: the worker ended (status {self.process.wait()}); its message is above")
        return json.loads(line)

    def ask(self, do: str, **arguments) -> dict:
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def say(text: str) -> None:
    print(f"== {text}", file=sys.stderr, flush=True)


def spread(values: list[float]) -> dict:
    return {"min": min(values), "med": statistics.median(values), "max": max(values), "all": values}


def read_sets(data: pathlib.Path, arguments) -> dict[str, list[str]]:
    """Seeded samples of the unique STS-B train sentences and of the Cranfield abstracts."""
    def rows(name):
        with open(data / name) as file:
            return [json.loads(line) for line in file]

    short = sorted({text for row in rows("stsb-en-train.jsonl") for text in (row["a"], row["b"])})
    long = [row["text"] for row in rows("cranfield-docs.jsonl") if row["text"].strip()]
    dice = random.Random(20261121)
    return {"short": dice.sample(short, min(arguments.short, len(short))),
            "long": dice.sample(long, min(arguments.long, len(long)))}


def token_counts(model: str, texts: list[str]) -> list[int]:
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(model + "/tokenizer.json")
    tokenizer.no_padding()
    with open(model + "/sentence_bert_config.json") as file:
        tokenizer.enable_truncation(json.load(file)["max_seq_length"])
    return [len(encoding.ids) for encoding in tokenizer.encode_batch(texts)]


def flop(model: str, counts: list[int]) -> float:
    """2 per multiply-add of the linear layers and of full attention, on real tokens."""
    with open(model + "/config.json") as file:
        config = json.load(file)
    hidden, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    linear = 2 * layers * (4 * hidden * hidden + 2 * hidden * inner)
    return sum(count * (linear + 2 * layers * 2 * count * hidden) for count in counts)


def fma_peak(threads: int) -> float | None:
    """GFLOP/s of all threads together, the best of three."""
    program = ROOT / "build/fma-peak"
    if platform.machine() != "x86_64":
        return None
    subprocess.run(["cc", "-O3", "-pthread", HERE / "peak.c", "-o", program], check=True)
    results = [subprocess.run([program, str(threads), "1"], capture_output=True, text=True) for _ in range(3)]
    return max((float(result.stdout) for result in results if result.returncode == 0), default=None)


def parity(engines: dict[str, Engine], texts: list[str], folder: str) -> dict[str, float]:
    """Smallest cosine to sentence-transformers; ends the run when one engine is not the same model."""
    rows = {}
    for name, engine in engines.items():
        path = f"{folder}/{name}.npy"
        engine.ask("load", name="parity", texts=texts)
        engine.ask("matrix", name="parity", path=path)
        rows[name] = numpy.load(path).astype(numpy.float64)
    reference = rows["sentence-transformers"]
    found = {}
    for name, matrix in rows.items():
        cosine = (matrix * reference).sum(1) / numpy.linalg.norm(matrix, axis=1) / numpy.linalg.norm(reference, axis=1)
        found[name] = float(cosine.min())
        if not found[name] >= 0.9999:
            sys.exit(f"{name}: cosine {found[name]:.6f} to sentence-transformers, at least 0.9999 is needed: "
                     "these vectors are not the same model's, so their speed says nothing")
    return found


def race(engines: dict[str, Engine], name: str, texts: list[str], tokens: int, rounds: int) -> dict[str, list]:
    for engine in engines.values():
        engine.ask("load", name=name, texts=texts)
        engine.ask("pass", name=name)  # warm
    passes = {engine: [] for engine in engines}
    for number in range(rounds):
        order = list(engines) if number % 2 == 0 else list(reversed(engines))
        for engine in order:
            seconds = engines[engine].ask("pass", name=name)["seconds"]
            passes[engine].append(tokens / seconds)
            say(f"{name} round {number + 1}: {engine} {len(texts) / seconds:.0f} texts/s, "
                f"load {os.getloadavg()[0]:.1f}")
    return passes


def latency(engines: dict[str, Engine], text: str, blocks: int, count: int) -> dict[str, dict]:
    times = {engine: [] for engine in engines}
    for engine in engines.values():
        engine.ask("latency", text=text, count=30)
    for number in range(blocks):
        order = list(engines) if number % 2 == 0 else list(reversed(engines))
        for engine in order:
            times[engine].append(engines[engine].ask("latency", text=text, count=count)["ms"])
    return {engine: {"p50": spread([statistics.median(block) for block in found]),
                     "p99": float(numpy.percentile(sum(found, []), 99))} for engine, found in times.items()}


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


def program_memory(program: str, model: str, texts: list[str], environment: dict, folder: str) -> float:
    """Peak resident megabytes of `fletch embed` over the texts."""
    path = f"{folder}/texts.jsonl"
    with open(path, "w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    result = subprocess.run([sys.executable, "-S", "-c", TRAMPOLINE, program, "embed", "--model", model, "--input",
                             path, "--output", f"{folder}/rows.npy", "--quiet"],
                            capture_output=True, text=True, env=environment)
    if result.returncode != 0:
        sys.exit(f"fletch embed: {result.stderr}")
    return int(result.stdout.split()[-1]) / 1024


def worker_memory(name: str, texts: list[str], environment: dict) -> float:
    engine = Engine(name, environment)
    engine.ask("load", name="short", texts=texts)
    engine.ask("pass", name="short")
    found = engine.ask("memory")["megabytes"]
    engine.close()
    return found


def machine(threads: int) -> dict:
    cpu = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) / 1e6
    return {"cpu": names[0] if names else cpu, "threads": threads, "cores": len(os.sched_getaffinity(0)),
            "memory_gb": round(memory), "system": f"{platform.system()} {platform.release()}",
            "python": platform.python_version(), "node": platform.node(),
            "commit": subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True,
                                     text=True).stdout.strip()}


def arguments_of(parser: argparse.ArgumentParser):
    parser.add_argument("--model", required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--data", required=True, type=pathlib.Path, help="folder of stsb-en-train.jsonl")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--short", type=int, default=4096, help="short texts in a pass")
    parser.add_argument("--long", type=int, default=400, help="long texts in a pass")
    parser.add_argument("--peers", default=",".join(PEERS), help="comma separated")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results", help="folder of the results")
    parser.add_argument("--name", default=None, help="file name without ending (default DATE-MACHINE)")
    return parser.parse_args()


def main() -> None:
    arguments = arguments_of(argparse.ArgumentParser(description=__doc__.split("\n")[0]))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FLETCH_")}
    environment |= {"BENCH_MODEL": arguments.model, "BENCH_THREADS": str(arguments.threads), "HF_HUB_OFFLINE": "1",
                    "BENCH_LIBRARY": str(ROOT / "build/libfletch.so"), "ORT_DISABLE_TELEMETRY": "1",
                    "BENCH_ONNX": str(ROOT / "build/bench-plain.onnx"), "TOKENIZERS_PARALLELISM": "true",
                    "OMP_NUM_THREADS": str(arguments.threads), "RAYON_NUM_THREADS": str(arguments.threads)}
    program = str(ROOT / "build/fletch")
    peers = [peer for peer in arguments.peers.split(",") if peer]
    if "sentence-transformers" not in peers:
        sys.exit("sentence-transformers is the yardstick of parity: it cannot be left out")
    if not os.path.exists(environment["BENCH_ONNX"]):
        say("exporting the model to ONNX for onnxruntime and OpenVINO")
        subprocess.run([sys.executable, HERE / "export_onnx.py", arguments.model, environment["BENCH_ONNX"]],
                       check=True, env=environment)
    sets = read_sets(arguments.data, arguments)
    counts = {name: token_counts(arguments.model, texts) for name, texts in sets.items()}
    result = {"date": datetime.date.today().isoformat(), "machine": machine(arguments.threads), "sets": {
        name: {"texts": len(texts), "tokens": sum(counts[name]), "gflop": flop(arguments.model, counts[name]) / 1e9}
        for name, texts in sets.items()}}
    say("the FMA peak of this machine")
    result["peak_gflops"] = fma_peak(arguments.threads)

    with tempfile.TemporaryDirectory() as folder:
        say("cold start and memory: each engine in a fresh process")
        result["cold"] = {"fletch": cold_start([program, "embed", "--model", arguments.model, "--format", "raw",
                                                "A cat sits on the mat."], environment, 10)}
        result["memory"] = {"fletch (program)": program_memory(program, arguments.model, sets["short"][:2048],
                                                               environment, folder)}
        for name in ["fletch", *peers]:
            label = "fletch (in Python)" if name == "fletch" else name
            result["memory"][label] = worker_memory(name, sets["short"][:2048], environment)
        for name in peers:
            command = [sys.executable, str(HERE / "worker.py"), name, "cold"]
            result["cold"][name] = cold_start(command, environment, 3)

        engines = {name: Engine(name, environment) for name in ["fletch", *peers]}
        result["versions"] = {name: engine.version for name, engine in engines.items()}
        say("parity: 64 mixed texts against sentence-transformers")
        result["parity"] = parity(engines, sets["short"][:32] + sets["long"][:32], folder)
    result["speed"] = {name: {engine: spread(passes) for engine, passes in
                              race(engines, name, texts, sum(counts[name]), arguments.rounds).items()}
                       for name, texts in sets.items()}
    query = next(text for text, count in zip(sets["short"], counts["short"]) if count == 16)
    say("latency of one query of 16 tokens")
    result["latency"] = latency(engines, query, 5, 200)
    for engine in engines.values():
        engine.close()

    result["ratios"] = {name: {peer: spread([ours / theirs for ours, theirs in
                                             zip(speeds["fletch"]["all"], speeds[peer]["all"])]) for peer in peers}
                        for name, speeds in result["speed"].items()}
    arguments.out.mkdir(parents=True, exist_ok=True)
    label = arguments.name or f"{result['date']}-{report.slug(result['machine']['cpu'])}"
    (arguments.out / f"{label}.json").write_text(json.dumps(result, indent=1) + "\n")
    (arguments.out / f"{label}.md").write_text(report.render(result))
    print(report.render(result))
    say(f"written: {arguments.out / label}.json and .md")


if __name__ == "__main__":
    main()
