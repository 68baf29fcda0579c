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
import json
import os
import pathlib
import random
import shutil
import tempfile
import warnings

import numpy

import graphs
import harness
import record
import report
import texts as text_sets
from shapes import write_json, write_modules

TOKENS, QUERY = 128, 16
INPUTS = ["input_ids", "attention_mask", "token_type_ids"]
DICE = random.Random(20261123)
RAW, LABEL = ("onnxruntime", "openvino"), "fletch, embedding"  # our own rows of as many tokens, beside the scores of pairs
# What is raced: the job, passes of a round, what the table calls the figure (ms are for all texts of a pass), and goals:
# what is compared, the peers of whom the fastest counts, at least so much
RACES = {
    "pairs": ("rerank", 1, f"pairs/s of {TOKENS} tokens", [
        ("pairs/s, against the best of onnxruntime and OpenVINO", RAW, 1.2), ("pairs/s, against sentence-transformers", ("sentence-transformers",), 2),
        ("pairs/s, against our embedding of as many tokens", (LABEL,), 0.97)]),
    "hundred": ("rerank", 3, "ms for 100 documents of 100 tokens", [
        ("100 documents of 100 tokens: against sentence-transformers", ("sentence-transformers",), 2)]),
    "sparse": ("sparse", 1, f"SPLADE texts/s of {TOKENS} tokens", [
        ("SPLADE, against onnxruntime fp32", ("onnxruntime",), 1.2), ("SPLADE, against OpenVINO", ("openvino",), None),
        ("SPLADE, against sentence-transformers", ("sentence-transformers",), None)]),
    "static": ("static", 3, "static texts/s, STS-B sentences", [("static, against model2vec", ("model2vec",), 20)])}
PARITY_TEXTS = {"rerank": 16, "sparse": 4}  # how many are compared first; none of static: its rows follow from its ids


# ---- Models ---------------------------------------------------------------------------------------


def save_tokenizer(source: str, folder: pathlib.Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        if (pathlib.Path(source) / name).exists():
            shutil.copyfile(pathlib.Path(source) / name, folder / name)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    write_json(folder / "tokenizer_config.json", settings | {"model_max_length": 512})


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
    write_modules(folder / "splade", "sentence_transformers.sparse_encoder.models.", "MLMTransformer", "SpladePooling")
    write_json(folder / "splade/1_SpladePooling/config.json", {"pooling_strategy": "max", "activation_function": "relu",
                                                               "embedding_dimension": words.config.vocab_size})
    write_json(folder / "splade/sentence_bert_config.json", {"max_seq_length": 512, "do_lower_case": False})
    write_json(folder / "splade/config_sentence_transformers.json", {"model_type": "SparseEncoder", "similarity_fn_name": "dot"})
    graphs.export(words, INPUTS, lambda found, given: torch.log1p(torch.relu(found.logits * given[1].unsqueeze(-1).float()).amax(1)),
                  folder / "splade.onnx", "out")

    (folder / "static").mkdir()
    table = torch.randn(len(tokenizer), 256).numpy()
    save_file({"embeddings": table}, folder / "static/model.safetensors")
    document = json.loads((pathlib.Path(source) / "tokenizer.json").read_text()) | {"truncation": None, "padding": None}
    write_json(folder / "static/tokenizer.json", document)
    write_json(folder / "static/config.json", {"model_type": "model2vec", "normalize": True, "hidden_dim": 256})
    write_modules(folder / "static", "sentence_transformers.models.", "StaticEmbedding", "Normalize")


# ---- Texts ----------------------------------------------------------------------------------------


def words_of(source: str) -> list[str]:
    """Entries of the vocabulary that are words: each one token wherever it stands."""
    vocab = json.loads((pathlib.Path(source) / "tokenizer.json").read_text())["model"]["vocab"]
    return sorted(word for word in vocab if word.isascii() and word.isalpha() and word.islower() and len(word) > 2)


def text_of(vocabulary: list[str], tokens: int) -> str:
    return " ".join(DICE.choices(vocabulary, k=tokens))


# ---- The race -------------------------------------------------------------------------------------


def short(name: str) -> str:
    return name.removesuffix("/heads")


def agreeing(engines: list[harness.Engine], job: str, query: str, texts: list[str], work: pathlib.Path, found: dict) -> list[harness.Engine]:
    """Those whose largest difference to fletch is at most 1e-3: one beyond it is no peer."""
    if job in PARITY_TEXTS and job not in found:
        rows = {short(engine.name): harness.matrix(engine, texts[:PARITY_TEXTS[job]], str(work), job=job, query=query) for engine in engines}
        found[job] = {name: float(numpy.abs(row - rows["fletch"]).max()) for name, row in rows.items()}
    return [engine for engine in engines if found.get(job, {}).get(short(engine.name), 0) <= 1e-3]


def race(name: str, options, engines: dict[str, harness.Engine], query: str, sets: dict, work: pathlib.Path, parity: dict) -> dict:
    """{engine: the rounds' speeds} in texts a second."""
    job, passes, _, _ = RACES[name]
    able = [engine for engine in engines.values() if job in engine.jobs]
    runs = {short(engine.name): (engine, job, sets[name]) for engine in agreeing(able, job, query, sets[name], work, parity)}
    if name == "pairs":
        runs[LABEL] = engines["fletch/heads"], "embed", sets["alone"]
    for engine, one, texts in runs.values():
        if job == "static":
            engine.warm(texts[:256], job=one)
        engine.ask("load", name=f"{name} {one}", texts=texts, job=one, query=query)
    return harness.race({label: (engine, f"{name} {one}") for label, (engine, one, _) in runs.items()}, len(sets[name]), options.rounds,
                        options.clock, passes)


def render(result: dict, options) -> list[str]:
    goals, rows = [], []
    for name, speeds in result["speeds"].items():
        _, _, unit, compared = RACES[name]
        for what, peers, goal in compared:
            goals += report.line(what, report.ratios(speeds, "fletch", peers), goal) or [f"| {what} | not measured: no peer | {goal or ''} | |"]
        for engine, found in speeds.items():
            low, middle, high = (found[key] for key in ("min", "med", "max"))
            if unit.startswith("ms"):
                low, middle, high = (1e5 / value for value in (high, middle, low))
            rows.append((engine, unit, f"{middle:,.1f}", f"{low:,.1f} to {high:,.1f}"))
    apart = "; ".join(f"{job} " + ", ".join(f"{name} {value:.1e}" for name, value in found.items() if name != "fletch")
                      for job, found in result["parity"].items())
    piece = result["piece"]
    return [f"# Heads: {result['date']}, {report.where(result['machine'])}", "",
            f"Commit {piece['commit']}, {options.rounds} rounds by {options.clock}, load {piece['load'][0]} before and {piece['load'][1]} after, "
            f"{piece['seconds']:.0f} s. {', '.join(result['versions'].values())}. Layers of {pathlib.Path(options.model).name}; see bench/heads.py.",
            "", *(f"Not there: {short(name)} ({why})." for name, why in result["absent"].items()), f"Largest difference to fletch: {apart}.", "",
            *report.table(("times as fast", *report.GOALS_HEAD[1:]), goals), *report.table(("engine", "what", "median", "rounds"), rows)]


def main() -> None:
    parser = harness.arguments(__doc__, "model", "data", "clock", "out", "name", rounds=5, pairs=128, threads=len(os.sched_getaffinity(0)),
                               jobs=",".join(dict.fromkeys(job for job, *_ in RACES.values())))
    options = parser.parse_args()
    jobs = options.jobs.split(",")
    if unknown := set(jobs) - {job for job, *_ in RACES.values()}:
        parser.error(f"no job {', '.join(sorted(unknown))}")
    vocabulary = words_of(options.model)
    query = text_of(vocabulary, QUERY)
    documents = [text_of(vocabulary, TOKENS - QUERY - 3) for _ in range(options.pairs)]  # [CLS] query [SEP] document [SEP]
    sets = {"pairs": documents, "hundred": [text_of(vocabulary, 100) for _ in range(100)]}
    sets["alone"] = [text_of(vocabulary, TOKENS - 2) for _ in range(options.pairs)]
    sets |= {"sparse": sets["alone"][:options.pairs // 2], "static": text_sets.sentences(options.data / "stsb-en-train.jsonl")}
    absent: dict[str, str] = {}
    kept = record.Record(options, "heads", fresh=True, absent=absent, parity={}, speeds={})
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        make_models(options.model, work, sets["alone"][:8])
        environment = harness.environment_of(options) | {"BENCH_MODEL": str(work), "BENCH_GRAPHS": str(work)}
        names = ("fletch", "onnxruntime", "openvino", "sentence-transformers", "model2vec")
        engines = harness.open_engines([f"{name}/heads" for name in names], environment, absent)
        for name in [name for name, (job, *_) in RACES.items() if job in jobs]:
            kept.result["speeds"][name] = race(name, options, engines, query, sets, work, kept.result["parity"])
        kept.result |= {"versions": {short(name): engine.version for name, engine in engines.items()}, "piece": kept.stamp()}
        harness.close(engines)
    print(kept.write(render(kept.result, options)))


if __name__ == "__main__":
    main()
