# SPDX-License-Identifier: Apache-2.0
"""heads.py - rerankers, SPLADE and static models beside their peers; tools/bench.sh heads runs it, in less than 6 minutes.

    python bench/heads.py --model FOLDER [--rounds 5] [--pairs 128] [--threads 2] [--name NAME] [--jobs rerank,sparse,static]
                          [--clock processor]

The models are made of FOLDER (a BERT): the same layers with a score for a pair (random), with a vocabulary head whose
bias leaves some hundred weights a text, pooled by the first token for what is compared with reranking, and a random
table of 256 columns over its vocabulary. Weights do not change what an engine has to do.
Pairs and texts have the same number of tokens each, of whole words of the vocabulary, so that no peer pads. Method: harness.py.
Nothing is timed before the engines agree. Prints the tables and writes bench/results/DATE-MACHINE-heads.{md,json}.
"""
import argparse
import datetime
import json
import os
import pathlib
import random
import shutil
import tempfile
import time
import warnings

import numpy

import graphs
import harness
import record
import report
import texts as text_sets

TOKENS, QUERY = 128, 16
INPUTS = ["input_ids", "attention_mask", "token_type_ids"]
DICE = random.Random(20261123)


# ---- Models ---------------------------------------------------------------------------------------


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
    graphs.export(pair, INPUTS, lambda found, _: found.logits, folder / "ranker.onnx", "out")

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
    graphs.export(words, INPUTS, lambda found, given: torch.log1p(torch.relu(found.logits * given[1].unsqueeze(-1).float()).amax(1)),
                  folder / "splade.onnx", "out")

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

LABEL = "fletch, embedding"  # our own rows of as many tokens, beside the scores of pairs


def agree(engines: list[harness.Engine], job: str, query: str, texts: list[str], work: pathlib.Path) -> dict[str, float]:
    """The largest difference to fletch; an engine beyond 1e-3 is no peer."""
    rows = {short(engine.name): harness.matrix(engine, texts, str(work), job=job, query=query) for engine in engines}
    return {name: float(numpy.abs(found - rows["fletch"]).max()) for name, found in rows.items()}


def short(name: str) -> str:
    return name.removesuffix("/heads")


def speed_lines(speeds: dict, unit: str) -> list[str]:
    return [f"| {name} | {unit} | {found['med']:,.1f} | {found['min']:,.1f} to {found['max']:,.1f} |" for name, found in speeds.items()]


def milliseconds(speeds: dict, what: str) -> list[str]:
    return [f"| {name} | {what} | {1e5 / found['med']:,.1f} | {1e5 / found['max']:,.1f} to {1e5 / found['min']:,.1f} |"
            for name, found in speeds.items()]


class Race:
    """What was asked so far: speeds, goals and parity, for the table."""

    def __init__(self, options, engines: dict[str, harness.Engine], work: pathlib.Path) -> None:
        self.options, self.engines, self.work = options, engines, work
        self.speeds: list[str] = []
        self.goals: list[str] = []
        self.parity: dict[str, dict] = {}
        self.raw: dict[str, dict] = {}

    def peers(self, job: str, query: str, texts: list[str]) -> list[harness.Engine]:
        able = [engine for engine in self.engines.values() if job in engine.jobs]
        self.parity[job] = agree(able, job, query, texts, self.work) if job != "static" else {}
        return [engine for engine in able if self.parity[job].get(short(engine.name), 0) <= 1e-3]

    def run(self, name: str, able: list[harness.Engine], job: str, query: str, texts: list[str], passes: int = 1, more: tuple = ()) -> dict:
        """Speeds of the job in texts a second; `more`: (label, engine, job, texts) raced beside."""
        runs = {}
        for label, engine, one, given in [*((short(engine.name), engine, job, texts) for engine in able), *more]:
            engine.ask("load", name=f"{name} {one}", texts=given, job=one, query=query)
            runs[label] = (engine, f"{name} {one}")
        self.raw[name] = harness.race(runs, len(texts), self.options.rounds, self.options.clock, passes)
        return self.raw[name]

    def goal(self, what: str, speeds: dict, peers: tuple, goal: float | None) -> None:
        found = report.line(what, report.ratios(speeds, "fletch", peers), goal)
        self.goals += found or [f"| {what} | not measured: no peer | {goal or ''} | |"]

    def rerank(self, query: str, documents: list[str], hundred: list[str], alone: list[str]) -> None:
        able = self.peers("rerank", query, documents[:16])
        found = self.run("pairs", able, "rerank", query, documents, more=((LABEL, self.engines["fletch"], "embed", alone),))
        self.speeds += speed_lines(found, f"pairs/s of {TOKENS} tokens")
        self.goal("pairs/s, against the best of onnxruntime and OpenVINO", found, ("onnxruntime", "openvino"), 1.2)
        self.goal("pairs/s, against sentence-transformers", found, ("sentence-transformers",), 2)
        self.goal("pairs/s, against our embedding of as many tokens", found, (LABEL,), 0.97)
        found = self.run("hundred", able, "rerank", query, hundred, 3)
        self.speeds += milliseconds(found, "ms for 100 documents of 100 tokens")
        self.goal("100 documents of 100 tokens: against sentence-transformers", found, ("sentence-transformers",), 2)

    def sparse(self, texts: list[str]) -> None:
        able = self.peers("sparse", "", texts[:4])
        found = self.run("sparse", able, "sparse", "", texts[:self.options.pairs // 2])
        self.speeds += speed_lines(found, f"SPLADE texts/s of {TOKENS} tokens")
        self.goal("SPLADE, against onnxruntime fp32", found, ("onnxruntime",), 1.2)
        self.goal("SPLADE, against OpenVINO", found, ("openvino",), None)
        self.goal("SPLADE, against sentence-transformers", found, ("sentence-transformers",), None)

    def static(self, texts: list[str]) -> None:
        able = self.peers("static", "", texts[:16])
        for engine in able:  # what is read once is read before
            engine.ask("load", name="warm", texts=texts[:256], job="static")
            engine.ask("pass", name="warm")
        found = self.run("static", able, "static", "", texts, 3)
        self.speeds += speed_lines(found, f"static texts/s, {len(texts):,} STS-B sentences")
        self.goal("static, against model2vec", found, ("model2vec",), 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--pairs", type=int, default=128)
    parser.add_argument("--jobs", default="rerank,sparse,static", help="some of rerank, sparse and static, comma separated")
    parser.add_argument("--clock", choices=("seconds", "processor"), default="seconds")
    parser.add_argument("--name", help="of the result, instead of DATE-MACHINE-heads")
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("FLETCH_TEST_DATA", "../shared/data"))
    options = parser.parse_args()
    began, load, jobs, absent = time.monotonic(), os.getloadavg()[0], options.jobs.split(","), {}
    if unknown := set(jobs) - {"rerank", "sparse", "static"}:
        parser.error(f"no job {', '.join(sorted(unknown))}; there are rerank, sparse, static")
    vocabulary = words_of(options.model)
    query = text_of(vocabulary, QUERY)
    documents = [text_of(vocabulary, TOKENS - QUERY - 3) for _ in range(options.pairs)]  # [CLS] query [SEP] document [SEP]
    hundred = [text_of(vocabulary, 100) for _ in range(100)]
    alone = [text_of(vocabulary, TOKENS - 2) for _ in range(options.pairs)]
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        make_models(options.model, work, alone[:8])
        harness.say(f"models made after {time.monotonic() - began:.0f} s")
        environment = harness.environment_of(options) | {"BENCH_MODEL": str(work), "BENCH_GRAPHS": str(work)}
        names = ("fletch", "onnxruntime", "openvino", "sentence-transformers", "model2vec")
        engines = harness.open_engines([f"{name}/heads" for name in names], environment, absent)
        race = Race(options, {short(name): engine for name, engine in engines.items()}, work)
        if "rerank" in jobs:
            race.rerank(query, documents, hundred, alone)
        if "sparse" in jobs:
            race.sparse(alone)
        if "static" in jobs:
            race.static(text_sets.sentences(options.data / "stsb-en-train.jsonl"))
        versions = {short(name): engine.version for name, engine in engines.items()}
        for engine in engines.values():
            engine.close()
    today, place = datetime.date.today(), harness.where()
    text = "\n".join([
        f"# Heads: {today}, {place}", "",
        f"Commit {record.commit()}, {options.threads} threads, {options.rounds} rounds by {options.clock}, load {load:.1f} before and "
        f"{os.getloadavg()[0]:.1f} after, {time.monotonic() - began:.0f} s. {', '.join(versions.values())}. Layers of "
        f"{pathlib.Path(options.model).name}; see bench/heads.py.", "",
        *(f"Not there: {short(name)} ({why})." for name, why in absent.items()),
        "Largest difference to fletch: " + "; ".join(f"{job} " + ", ".join(f"{name} {value:.1e}" for name, value in found.items() if name != "fletch")
                                                       for job, found in race.parity.items() if found) + ".", "",
        "| times as fast | median (lowest to highest) | goal | |", "|---|---|---|---|", *race.goals, "",
        "| engine | what | median | rounds |", "|---|---|---|---|", *race.speeds, ""])
    print(text)
    label = harness.HERE / "results" / (options.name or f"{today}-{report.slug(place.split(',')[0])}-heads")
    label.with_name(label.name + ".md").write_text(text, encoding="utf-8")
    label.with_name(label.name + ".json").write_text(json.dumps({
        "date": str(today), "machine": place, "commit": record.commit(), "versions": versions, "absent": absent, "parity": race.parity,
        "speeds": race.raw}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
