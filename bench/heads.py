# SPDX-License-Identifier: Apache-2.0
"""heads.py - rerankers, SPLADE and static models beside their peers; tools/bench.sh heads runs it, in less than 6 minutes.

    python bench/heads.py --model FOLDER [--rounds 5] [--pairs 128] [--threads 2] [--name NAME] [--jobs rerank,sparse,static]

The models are made of FOLDER (a BERT): the same layers with a score for a pair (random), with a vocabulary head whose
bias leaves some hundred weights a text, pooled by the first token for what is compared with reranking, and a random
table of 256 columns over its vocabulary. Weights do not change what an engine has to do.
Pairs and texts have the same number of tokens each, of whole words of the vocabulary, so that no peer pads. Engines are
processes of their own; rounds interleave them, every other one in reverse. A ratio compares two passes of a round.
Nothing is timed before the engines agree. Prints the tables and writes bench/results/DATE-MACHINE-heads.{md,json}.
"""
import argparse
import datetime
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import numpy
import texts as sets
from record import commit
from report import slug
from runtime import machine

HERE = pathlib.Path(__file__).resolve().parent
TOKENS, QUERY = 128, 16
DICE = random.Random(20261123)


# ---- Models ---------------------------------------------------------------------------------------


def export(model, target: pathlib.Path, after=lambda logits, mask: logits) -> None:
    import torch
    names = ["input_ids", "attention_mask", "token_type_ids"]

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given):
            return after(self.model(**dict(zip(names, given))).logits, given[1])

    ids = torch.full((2, 9), 5, dtype=torch.int64)
    axes = {name: {0: "batch", 1: "tokens"} for name in names} | {"out": {0: "batch"}}
    with torch.no_grad():
        torch.onnx.export(Whole(), (ids, torch.ones_like(ids), torch.zeros_like(ids)), str(target), input_names=names,
                          output_names=["out"], dynamic_axes=axes, opset_version=17, dynamo=False)


def save_tokenizer(source: str, folder: pathlib.Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        if (pathlib.Path(source) / name).exists():
            shutil.copyfile(pathlib.Path(source) / name, folder / name)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 512}))


def write_json(path: pathlib.Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def make_models(source: str, folder: pathlib.Path, sample: list[str]) -> None:
    import torch
    import transformers
    from safetensors.numpy import save_file
    transformers.logging.set_verbosity_error()  # heads are made anew: nothing to warn of
    warnings.simplefilter("ignore")
    torch.manual_seed(7)
    pair = transformers.AutoModelForSequenceClassification.from_pretrained(source, num_labels=1, attn_implementation="eager").eval()
    pair.save_pretrained(folder / "ranker")
    save_tokenizer(source, folder / "ranker")
    export(pair, folder / "ranker.onnx")

    shutil.copytree(source, folder / "cls", symlinks=False)
    write_json(folder / "cls/1_Pooling/config.json", {"pooling_mode": "cls", "embedding_dimension": pair.config.hidden_size})

    words = transformers.AutoModelForMaskedLM.from_pretrained(source, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    with torch.no_grad():  # some 300 of the largest logits of a text above 0
        rows = [words(**tokenizer(text, return_tensors="pt")).logits[0].max(0).values for text in sample]
        words.cls.predictions.bias -= torch.stack(rows).quantile(0.99)
    words.save_pretrained(folder / "splade")
    save_tokenizer(source, folder / "splade")
    kind = "sentence_transformers.sparse_encoder.models."
    write_json(folder / "splade/modules.json", [{"idx": 0, "name": "0", "path": "", "type": kind + "MLMTransformer"},
                                                {"idx": 1, "name": "1", "path": "1_SpladePooling", "type": kind + "SpladePooling"}])
    write_json(folder / "splade/1_SpladePooling/config.json", {"pooling_strategy": "max", "activation_function": "relu",
                                                               "embedding_dimension": words.config.vocab_size})
    write_json(folder / "splade/sentence_bert_config.json", {"max_seq_length": 512, "do_lower_case": False})
    write_json(folder / "splade/config_sentence_transformers.json", {"model_type": "SparseEncoder", "similarity_fn_name": "dot"})
    export(words, folder / "splade.onnx", lambda logits, mask: torch.log1p(torch.relu(logits * mask.unsqueeze(-1).float()).amax(1)))

    (folder / "static").mkdir()
    table = torch.randn(len(tokenizer), 256).numpy()
    save_file({"embeddings": table}, folder / "static/model.safetensors")
    shutil.copyfile(pathlib.Path(source) / "tokenizer.json", folder / "static/tokenizer.json")
    document = json.loads((folder / "static/tokenizer.json").read_text()) | {"truncation": None, "padding": None}
    write_json(folder / "static/tokenizer.json", document)
    write_json(folder / "static/config.json", {"model_type": "model2vec", "normalize": True, "hidden_dim": 256})
    kind = "sentence_transformers.models."
    write_json(folder / "static/modules.json", [{"idx": 0, "name": "0", "path": "", "type": kind + "StaticEmbedding"},
                                                {"idx": 1, "name": "1", "path": "1_Normalize", "type": kind + "Normalize"}])


# ---- Texts ----------------------------------------------------------------------------------------


def words_of(source: str) -> list[str]:
    """Entries of the vocabulary that are words: each one token wherever it stands."""
    vocab = json.loads((pathlib.Path(source) / "tokenizer.json").read_text())["model"]["vocab"]
    return sorted(word for word in vocab if word.isascii() and word.isalpha() and word.islower() and len(word) > 2)


def text_of(vocabulary: list[str], tokens: int) -> str:
    return " ".join(DICE.choices(vocabulary, k=tokens))


# ---- The race -------------------------------------------------------------------------------------


class Engine:
    def __init__(self, name: str, folder: pathlib.Path, environment: dict) -> None:
        self.name = name
        self.process = subprocess.Popen([sys.executable, HERE / "heads_worker.py", name, folder], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=environment)
        said = self.read()
        self.version, self.jobs = said["version"], said["jobs"]

    def read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self.process.wait()}")
        return json.loads(line)

    def run(self, job: str, query: str, texts: list[str], path: str | None = None) -> dict:
        self.process.stdin.write(json.dumps({"do": job, "query": query, "texts": texts, "path": path}) + "\n")
        self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def agree(engines: list[Engine], job: str, query: str, texts: list[str], work: pathlib.Path) -> dict[str, float]:
    """The largest difference to fletch; an engine beyond 1e-3 is no peer."""
    rows = {}
    for engine in engines:
        engine.run(job, query, texts, str(work / f"{engine.name}.npy"))
        rows[engine.name] = numpy.load(work / f"{engine.name}.npy")
    return {name: float(numpy.abs(found - rows["fletch"]).max()) for name, found in rows.items()}


def race(runs: dict[str, tuple], rounds: int, passes: int = 1) -> dict[str, list[tuple]]:
    """{name: (engine, job, query, texts)} -> {name: (seconds, processor seconds) of a pass, a round each: the median of its passes}."""
    found: dict[str, list[tuple]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in list(runs)[::1 if number % 2 == 0 else -1]:
            engine, *work = runs[name]
            done = [engine.run(*work) for _ in range(passes)]
            found[name].append(tuple(statistics.median(one[key] for one in done) for key in ("seconds", "processor")))
    return found


def ratio_line(what: str, found: dict, peers: tuple, goal: str, ours: str = "fletch") -> str:
    """How many times as fast as the fastest of the peers that are there, round by round; then by processor time."""
    there = [peer for peer in peers if peer in found]
    if not there:
        return f"| {what} | not measured: no peer | | | {goal} |"
    wall, processor = ([min(found[peer][i][kind] for peer in there) / one[kind] for i, one in enumerate(found[ours])] for kind in (0, 1))
    return f"| {what} | {statistics.median(wall):.3f} | {min(wall):.3f} to {max(wall):.3f} | {statistics.median(processor):.3f} | {goal} |"


def speed_lines(found: dict, count: int, unit: str) -> list[str]:
    lines = []
    for name, rounds in found.items():
        wall = [one[0] for one in rounds]
        lines.append(f"| {name} | {unit} | {count / statistics.median(wall):,.1f} | {count / max(wall):,.1f} to {count / min(wall):,.1f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--pairs", type=int, default=128)
    parser.add_argument("--jobs", default="rerank,sparse,static")
    parser.add_argument("--name", help="of the result, instead of DATE-MACHINE-heads")
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("FLETCH_TEST_DATA", "../shared/data"))
    options = parser.parse_args()
    began, load, jobs = time.monotonic(), os.getloadavg()[0], options.jobs.split(",")
    vocabulary = words_of(options.model)
    query = text_of(vocabulary, QUERY)
    documents = [text_of(vocabulary, TOKENS - QUERY - 3) for _ in range(options.pairs)]  # [CLS] query [SEP] document [SEP]
    hundred = [text_of(vocabulary, 100) for _ in range(100)]
    alone = [text_of(vocabulary, TOKENS - 2) for _ in range(options.pairs)]
    short = sets.sentences(options.data / "stsb-en-train.jsonl")
    environment = os.environ | {"BENCH_THREADS": str(options.threads), "OMP_NUM_THREADS": str(options.threads), "TOKENIZERS_PARALLELISM": "true",
                                "BENCH_LIBRARY": os.environ.get("BENCH_LIBRARY", str(HERE.parent / "build/libfletch.so"))}
    speeds: list[str] = []
    goals: list[str] = []
    absent, parity, raw = {}, {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        make_models(options.model, work, alone[:8])
        print(f"models made after {time.monotonic() - began:.0f} s", file=sys.stderr)
        engines = {}
        for name in ("fletch", "onnxruntime", "openvino", "sentence-transformers", "model2vec"):
            try:
                engines[name] = Engine(name, work, environment)
            except (RuntimeError, OSError) as error:
                absent[name] = str(error)
        print(f"engines open after {time.monotonic() - began:.0f} s", file=sys.stderr)

        def peers(job: str, given: str, texts: list[str]) -> dict[str, Engine]:
            able = [engine for engine in engines.values() if job in engine.jobs]
            parity[job] = agree(able, job, given, texts, work) if job != "static" else {}
            return {engine.name: engine for engine in able if parity[job].get(engine.name, 0) <= 1e-3}

        if "rerank" in jobs:
            able = peers("rerank", query, documents[:16])
            runs = {name: (engine, "rerank", query, documents) for name, engine in able.items()}
            runs["fletch, embedding"] = (engines["fletch"], "embed", "", alone)
            raw["pairs"] = found = race(runs, options.rounds)
            speeds += speed_lines(found, options.pairs, f"pairs/s of {TOKENS} tokens")
            goals += [ratio_line("pairs/s, against the best of onnxruntime and OpenVINO", found, ("onnxruntime", "openvino"), "1.2"),
                      ratio_line("pairs/s, against sentence-transformers", found, ("sentence-transformers",), "2"),
                      ratio_line("pairs/s, against our embedding of as many tokens", found, ("fletch, embedding",), "0.97")]
            raw["hundred"] = found = race({name: (engine, "rerank", query, hundred) for name, engine in able.items()}, options.rounds, 3)
            speeds += [f"| {name} | ms for 100 documents of 100 tokens, p50 | {1e3 * statistics.median(one[0] for one in each):,.1f} | "
                       f"{1e3 * min(each)[0]:,.1f} to {1e3 * max(each)[0]:,.1f} |" for name, each in found.items()]
            goals.append(ratio_line("100 documents of 100 tokens, p50: against sentence-transformers", found, ("sentence-transformers",), "2"))
        if "sparse" in jobs:
            able = peers("sparse", "", alone[:4])
            raw["sparse"] = found = race({name: (engine, "sparse", "", alone[:options.pairs // 2]) for name, engine in able.items()}, options.rounds)
            speeds += speed_lines(found, options.pairs // 2, f"SPLADE texts/s of {TOKENS} tokens")
            goals += [ratio_line("SPLADE, against onnxruntime fp32", found, ("onnxruntime",), "1.2"),
                      ratio_line("SPLADE, against OpenVINO", found, ("openvino",), ""),
                      ratio_line("SPLADE, against sentence-transformers", found, ("sentence-transformers",), "")]
        if "static" in jobs:
            able = peers("static", "", short[:16])
            for engine in able.values():  # what is read once is read before
                engine.run("static", "", short[:256])
            raw["static"] = found = race({name: (engine, "static", "", short) for name, engine in able.items()}, options.rounds, 3)
            speeds += speed_lines(found, len(short), f"static texts/s, {len(short):,} STS-B sentences")
            goals.append(ratio_line("static, against model2vec", found, ("model2vec",), "20"))
        versions = {name: engine.version for name, engine in engines.items()}
        for engine in engines.values():
            engine.close()
    today, where = datetime.date.today(), machine()
    text = "\n".join([
        f"# Heads: {today}, {where}", "",
        f"Commit {commit()}, {options.threads} threads, {options.rounds} rounds, load {load:.1f} before and {os.getloadavg()[0]:.1f} after, "
        f"{time.monotonic() - began:.0f} s. {', '.join(versions.values())}. Layers of {pathlib.Path(options.model).name}; see bench/heads.py.", "",
        *(f"Not there: {name} ({why})." for name, why in absent.items()),
        "Largest difference to fletch: " + "; ".join(f"{job} " + ", ".join(f"{name} {value:.1e}" for name, value in found.items() if name != "fletch")
                                                       for job, found in parity.items() if found) + ".", "",
        "| times as fast | median | rounds | by processor time | goal |", "|---|---|---|---|---|", *goals, "",
        "| engine | what | median | rounds |", "|---|---|---|---|", *speeds, ""])
    print(text)
    label = HERE / "results" / (options.name or f"{today}-{slug(where.split(',')[0])}-heads")
    label.with_name(label.name + ".md").write_text(text, encoding="utf-8")
    label.with_name(label.name + ".json").write_text(json.dumps({
        "date": str(today), "machine": where, "commit": commit(), "versions": versions, "absent": absent, "parity": parity,
        "seconds": raw}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
