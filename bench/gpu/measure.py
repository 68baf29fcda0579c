#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""measure.py NAME=FOLDER … --program FL_GPU --out FOLDER - fletch and its peers on one GPU, in turn, as a table.

Every engine has a process of its own that keeps its model; for each set of texts each gets a turn in every round, in
alternating order, so that both meet the same clocks and temperature. Text sets: 16, 32, 50, 57, 128, 256 and 512 tokens
exactly (words of the vocabulary, one token each), and with --data STS-B sentences and Cranfield abstracts. Token ids
go to fletch's engine alone. The floor is that of reference/limits.py: products at the device's matrix rate or five
passes over the activations at its memory's, whichever is longer; a share of the floor counts, whatever the device.
What does not fit into --budget seconds is left out by name. Results of a simulated device are printed, never kept.
"""
import argparse
import datetime
import itertools
import json
import os
import pathlib
import platform
import random
import re
import shutil
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
from report import slug, table  # noqa: E402

LENGTHS = (16, 32, 50, 57, 128, 256, 512)
GRACE = 20  # seconds that a turn may pass its model's time by
# dense bf16 FLOP/s and bytes/s that were measured on the part, not its datasheet's
DEVICES = {"H200": (790e12, 4.3e12), "H100": (798e12, 3.0e12), "A100": (290e12, 1.7e12)}


# ---- Limits ---------------------------------------------------------------------------------------------------------


def read_shape(folder: pathlib.Path) -> tuple[int, int, int]:
    config = json.loads((folder / "config.json").read_text())
    return config["num_hidden_layers"], config["hidden_size"], config["intermediate_size"]


def flops(shape: tuple[int, int, int], length: float) -> float:
    """Of one token in a text of so many."""
    layers, hidden, mlp = shape
    return layers * (8 * hidden * hidden + 4 * hidden * mlp) + layers * 4 * length * hidden


def floor(shape: tuple[int, int, int], length: float, peak: float, bandwidth: float, batch: int = 16384) -> float:
    """Tokens a second that cannot be passed with 16-bit values and five kernels a layer."""
    layers, hidden, mlp = shape
    weights = layers * (4 * hidden * hidden + 2 * hidden * mlp)
    return 1 / max(flops(shape, length) / peak, 2 * (22 * hidden * layers + weights / batch) / bandwidth)


# ---- Text sets ------------------------------------------------------------------------------------------------------


def whole_words(folder: pathlib.Path) -> list[str]:
    vocab = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return sorted(word for word in vocab if re.fullmatch("[a-z]{3,8}", word))


def write_lines(path: pathlib.Path, texts: list[str]) -> pathlib.Path:
    path.write_text("".join(" ".join(text.split()) + "\n" for text in texts if text.strip()), encoding="utf-8")
    return path


def rows(path: pathlib.Path) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def make_sets(folder: pathlib.Path, work: pathlib.Path, name: str, tokens: int, lengths, data) -> dict:
    """Set -> file; `tokens` of all texts of one set together."""
    dice, words, sets = random.Random(20261121), whole_words(folder), {}
    for length in lengths:
        count = max(1, tokens // length)
        sets[str(length)] = write_lines(work / f"{name}-{length}.txt",
                                        [" ".join(dice.choices(words, k=length - 2)) for _ in range(count)])
    def add(key: str, texts: list[str], length: int) -> None:
        """All of them as often as it goes, each time with their words turned: fletch computes equal texts once. Of a toy's the first."""
        wanted = max(1, tokens // length)
        turned = ([*words[turn:], *words[:turn]] for turn in range(max(1, wanted // len(texts))) for words in map(str.split, texts))
        sets[key] = write_lines(work / f"{name}-{key}.txt", [" ".join(text) for text in itertools.islice(turned, wanted)])

    if data and (data / "stsb-en-dev.jsonl").exists():
        add("stsb", [text for row in rows(data / "stsb-en-dev.jsonl") for text in (row["a"], row["b"])], 15)
    if data and (data / "cranfield-docs.jsonl").exists():
        add("cranfield", [row["text"] or "" for row in rows(data / "cranfield-docs.jsonl")], 180)
    return sets


# ---- Processes ------------------------------------------------------------------------------------------------------


class Worker:
    """A process that answers a line of JSON to a line of command; a failure is kept, not raised."""

    def __init__(self, name: str, command: list, environment: dict | None = None) -> None:
        self.name, self.broken = name, ""
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, env=os.environ | (environment or {}))

    def ask(self, command: str, seconds: float = 300) -> dict:
        if self.broken:
            return {"error": self.broken}
        watch = threading.Timer(seconds, self.process.kill)
        watch.start()
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            line = ""
        finally:
            watch.cancel()
        if not line:
            self.broken = f"{self.name} ended (exit status {self.process.poll()})"
            return {"error": self.broken}
        return json.loads(line)

    def close(self) -> None:
        try:
            self.process.stdin.close()
            self.process.wait(30)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()


class Utilisation:
    """What nvidia-smi says five times a second; mean() over the time since start()."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, list[float]]] = []
        self.process = None
        if shutil.which("nvidia-smi"):
            self.process = subprocess.Popen(
                ["nvidia-smi", "--query-gpu=utilization.gpu,clocks.sm,power.draw,memory.used",
                 "--format=csv,noheader,nounits", "-i", "0", "-lms", "200"], stdout=subprocess.PIPE, text=True)
            threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout:
            try:
                self.samples.append((time.monotonic(), [float(part) for part in line.split(",")]))
            except ValueError:
                continue

    def mean(self, start: float) -> list[float] | None:
        found = [values for when, values in self.samples if when > start + 0.3]  # the first still show what was before
        return [sum(column) / len(found) for column in zip(*found)] if found else None

    def close(self) -> None:
        if self.process:
            self.process.terminate()


# ---- Measuring ------------------------------------------------------------------------------------------------------


class Bench:
    def __init__(self, args) -> None:
        self.args, self.begin, self.end = args, time.monotonic(), 0.0
        self.utilisation, self.left_out = Utilisation(), []

    def give_time(self, done: int, models: int) -> None:
        """The next model may take its share of the budget, and what those before it left."""
        self.end = self.begin + self.args.budget * (done + 1) / models

    def late(self, what: str, seconds: float) -> bool:
        """Whether what takes so long would pass the model's time; then it is left out by name."""
        if time.monotonic() + seconds <= self.end:
            return False
        self.left_out.append(what)
        return True

    def turn(self, worker: Worker, command: str) -> dict:
        start = time.monotonic()
        # A peer that still compiles when the time is up is ended, so that what was measured is told.
        answer = worker.ask(command, max(self.end - start, 0) + GRACE)
        answer["gpu"] = self.utilisation.mean(start)
        if "error" in answer:
            print(f"   {worker.name}: {command}: {answer['error']}", file=sys.stderr)
        return answer

    def rounds(self, workers: list[Worker], name: str, file: pathlib.Path) -> dict[str, list[dict]]:
        found: dict[str, list[dict]] = {worker.name: [] for worker in workers}
        for number in range(self.args.rounds):
            for worker in workers if number % 2 == 0 else workers[::-1]:
                if not worker.broken and not self.late(f"{worker.name}, {name}, round {number + 1}", self.args.seconds):
                    found[worker.name].append(self.turn(worker, f"text {file} {self.args.seconds}"))
        return found

    def model(self, name: str, folder: pathlib.Path) -> dict:
        args, shape = self.args, read_shape(folder)
        print(f"== {name}", file=sys.stderr)
        tokens = int(args.tokens * min(1, flops((6, 384, 1536), 0) * 4 / flops(shape, 0)))
        sets = make_sets(folder, args.work, name, tokens, args.lengths, args.data)
        settings = [f"provider.order={args.provider}", "provider.fallback=false", "provider.engine=native",
                    f"provider.precision={args.precision}", *args.set]
        if args.batch_tokens:
            settings.append(f"batch.max_tokens={args.batch_tokens}")
        fletch = Worker("fletch", [args.program, folder, *settings])
        out = {"name": name, "shape": shape, "describe": fletch.ask("describe", 60), "texts": {}, "ids": {}, "latency": {}}
        self.engine_alone(name, Worker("engine", [args.program, folder, *settings]), out)
        peers = [Worker(how, [args.python, HERE / "peer.py", folder, how, args.peer_device])
                 for how in args.peers if not self.late(f"{name}, {how}", 30)]
        out["peers"] = {peer.name: peer.ask("describe", 120) for peer in peers}
        for key, file in sets.items():
            out["texts"][key] = self.rounds([fletch, *peers], f"{name}, {key}", file)
        shortest = sets[str(min(args.lengths))]
        for worker in (fletch, *peers):
            if not worker.broken and not self.late(f"{worker.name}, {name}, one text at a time", args.seconds):
                out["latency"][worker.name] = self.turn(worker, f"one {shortest} {args.seconds}")
        described = fletch.ask("describe", 60)  # again, for its counts
        out["describe"] = out["describe"] if "error" in described else described
        fletch.close()
        for peer in peers:
            peer.close()
        return out

    def engine_alone(self, name: str, alone: Worker, out: dict) -> None:
        """First, since it is what the others are judged by, and short."""
        out["latency"]["engine alone"] = self.turn(alone, f"forward {min(self.args.lengths)} {self.args.seconds}")
        for length in self.args.lengths:
            if not self.late(f"{name}, ids of {length} tokens", self.args.seconds):
                out["ids"][length] = self.turn(alone, f"ids {length} {self.args.seconds}")
        alone.close()


# ---- The report -----------------------------------------------------------------------------------------------------


def rate(answers: list[dict], key: str = "texts") -> float:
    """Median of the rounds that succeeded; 0 for none."""
    good = sorted(a[key] / a["seconds"] for a in answers if "error" not in a and a.get("seconds"))
    return good[len(good) // 2] if good else 0


def mean_of(answers: list[dict], index: int) -> str:
    values = [a["gpu"][index] for a in answers if a.get("gpu")]
    return f"{sum(values) / len(values):.0f}" if values else ""


def share(value: float, whole: float | None) -> str:
    return f"{100 * value / whole:.0f} %" if value and whole else ""


def times(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}" if ours and theirs else ""


def speed_cells(model: dict, limits, key: str, answers: list[dict]) -> list[str]:
    """Of a set: tokens a text, texts and tokens a second, share of the floor, how busy device and host are."""
    good = [a for a in answers if a.get("seconds")]
    texts, tokens = rate(answers), rate(answers, "tokens")
    length = tokens / texts if texts else 0
    most = floor(tuple(model["shape"]), length, *limits) if limits else None
    cores = sum(a["cpu_seconds"] / a["seconds"] for a in good) / len(good) if good else 0
    return [key, f"{length:.1f}", f"{texts:,.0f}", f"{tokens:,.0f}", share(tokens, most), mean_of(answers, 0), f"{cores:.1f}"]


HEAD = ("texts", "tokens", "texts/s", "tokens/s", "of the floor", "GPU busy %", "host cores")


def text_table(model: dict, limits) -> list[str]:
    peers = list(model["peers"])
    return table((*HEAD, *(word for peer in peers for word in (f"{peer} texts/s", "fletch is faster by"))), [
        speed_cells(model, limits, key, found["fletch"])
        + [cell for peer in peers for cell in (f"{rate(found[peer]):,.0f}", times(rate(found["fletch"]), rate(found[peer])))]
        for key, found in model["texts"].items()])


def id_table(model: dict, limits) -> list[str]:
    return table(HEAD, [speed_cells(model, limits, f"{length} tokens", [answer]) for length, answer in model["ids"].items()])


def latency_table(model: dict) -> list[str]:
    return table(("one text at a time", "p50 µs", "p99 µs"), [
        (name, f"{1e6 * answer['p50']:.0f}", f"{1e6 * answer['p99']:.0f}") for name, answer in model["latency"].items() if "error" not in answer])


def answers_of(model: dict) -> list[dict]:
    """Fletch's own: a peer that fails is told in the report, and no reason to look for a fault here."""
    turns = [answer for found in model["texts"].values() for answer in found["fletch"]]
    return turns + list(model["ids"].values()) + [model["latency"][name] for name in ("fletch", "engine alone") if name in model["latency"]]


def report(result: dict) -> str:
    limits = result["limits"]
    text = [f"# fletch on a GPU, {result['date']}", "",
            f"{result['device']}; host {result['host']}; fletch {result['commit']}, precision {result['precision']}; "
            f"{result['rounds']} rounds of {result['seconds']} s, medians, engines in turn.", ""]
    if limits:
        text += [f"Floor: {limits[0] / 1e12:.0f} TFLOP/s and {limits[1] / 1e12:.2f} TB/s, five kernels a layer, 16-bit.", ""]
    for model in result["models"]:
        text += [f"## {model['name']}", ""]
        text += [f"- {name}: {answer.get('name', answer.get('error'))}" for name, answer in model["peers"].items()]
        text += [f"- {name}: {value}" for name, value in model["describe"].items() if name.startswith("cuda.")]
        text += ["", "### Text to float array", "", *text_table(model, limits), "### Token ids to the engine alone", "",
                 *id_table(model, limits), f"### Latency, {min(result['lengths'])} tokens", "", *latency_table(model)]
    if result["left_out"]:
        text += ["Left out, since the time was up: " + "; ".join(result["left_out"]) + ".", ""]
    return "\n".join(text)


def commit() -> str:
    done = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() or os.environ.get("BENCH_COMMIT", "of an unknown commit")


def write_report(args, models: list[dict], left_out: list[str]) -> str:
    """The report of the models so far, into args.out where this is a GPU."""
    device = next((model["describe"]["cuda.device"] for model in models if "cuda.device" in model["describe"]), "no CUDA device")
    limits = next((list(value) for key, value in DEVICES.items() if key in device), None)
    result = {"date": datetime.date.today().isoformat(), "device": device, "host": f"{platform.machine()}, {os.cpu_count()} cores",
              "commit": commit(), "precision": args.precision, "rounds": args.rounds, "seconds": args.seconds,
              "lengths": args.lengths, "limits": limits, "models": models, "left_out": left_out}
    text = report(result)
    if "imulated" in device or "no CUDA" in device or args.provider != "cuda":
        print("not kept: this was no GPU", file=sys.stderr)
        return text
    name = f"{device.split(',')[0]} {' '.join(model['name'] for model in models)}"  # so that runs of a day have files apart
    name += "" if args.precision == "auto" else f" {args.precision}"
    name = f"{result['date']}-{slug(name)}"
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{name}.md").write_text(text, encoding="utf-8")
    (args.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(args.out / f"{name}.md", file=sys.stderr)
    return text


def main() -> int:
    command = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    command.add_argument("models", nargs="+", metavar="NAME=FOLDER")
    command.add_argument("--program", required=True, help="fl-gpu")
    command.add_argument("--out", type=pathlib.Path, required=True, help="folder of the report")
    command.add_argument("--work", type=pathlib.Path, required=True, help="folder for the text sets")
    command.add_argument("--data", type=pathlib.Path, help="folder with stsb-en-dev.jsonl and cranfield-docs.jsonl")
    command.add_argument("--provider", default="cuda")
    command.add_argument("--precision", default="auto")
    command.add_argument("--batch-tokens", type=int, help="tokens of a batch; without it fletch chooses, as it does for users")
    command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="more keys for fletch")
    command.add_argument("--peers", nargs="*", default=["plain", "compile"])
    command.add_argument("--peer-device", default="cuda")
    command.add_argument("--python", default=sys.executable)
    command.add_argument("--lengths", type=int, nargs="*", default=list(LENGTHS))
    command.add_argument("--tokens", type=int, default=2000000, help="of a set, for a small model")
    command.add_argument("--seconds", type=float, default=1.0, help="of a turn")
    command.add_argument("--rounds", type=int, default=3)
    command.add_argument("--budget", type=float, default=400, help="seconds in all")
    args = command.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(args)
    models: list[dict] = []
    text, failed = "", False
    try:
        for number, model in enumerate(args.models):
            name, folder = model.split("=", 1)
            bench.give_time(number, len(args.models))
            try:
                models.append(bench.model(name, pathlib.Path(folder)))
            except (OSError, ValueError, KeyError) as error:  # the others are measured all the same
                print(f"failed: {name}: {type(error).__name__}: {error}", file=sys.stderr)
                failed = True
                continue
            failed = failed or any("error" in answer for answer in answers_of(models[-1]))
            text = write_report(args, models, bench.left_out)  # a machine may be taken away before the last one
    finally:
        bench.utilisation.close()
    print(text)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
