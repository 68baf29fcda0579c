# SPDX-License-Identifier: Apache-2.0
"""texts.py - what the benchmark reads and how it counts: text sets, tokens, work, quality.

Sets are seeded samples, the same for every engine. Tokens are real ones ([CLS] and [SEP] counted, padding not); work
is 2 per multiply-add of the linear layers and of full attention on those tokens. Quality is Spearman's correlation on
STS-B and nDCG@10 on Cranfield, both times 100.
"""
from __future__ import annotations

import json
import pathlib
import random

LANGUAGES = {"en": "English", "de": "German", "fr": "French", "es": "Spanish", "pl": "Polish", "ru": "Russian",
             "zh": "Chinese", "ja": "Japanese"}


def rows(path: pathlib.Path) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def sts_file(data: pathlib.Path, language: str) -> pathlib.Path | None:
    return next((path for part in ("train", "dev") if (path := data / f"stsb-{language}-{part}.jsonl").is_file()), None)


def pairs(path: pathlib.Path) -> list[str]:
    """Both sentences of each row, in the file's order."""
    return [text for row in rows(path) for text in (row["a"], row["b"])]


def sentences(path: pathlib.Path) -> list[str]:
    return sorted(set(pairs(path)))


def abstracts(data: pathlib.Path) -> list[str]:
    return [row["text"] for row in rows(data / "cranfield-docs.jsonl") if (row["text"] or "").strip()]


def read_sets(data: pathlib.Path, short: int, long: int, whole: bool) -> dict[str, list[str]]:
    """short, long and mixed samples; with `whole` also all of STS-B dev and of Cranfield."""
    dice = random.Random(20261121)
    few, many = sentences(data / "stsb-en-train.jsonl"), abstracts(data)
    sets = {"short": dice.sample(few, min(short, len(few))), "long": dice.sample(many, min(long, len(many)))}
    half = max(1, long * 3 // 4)
    sets["mixed"] = dice.sample(few, min(half, len(few))) + dice.sample(many, min(half, len(many)))
    dice.shuffle(sets["mixed"])
    if whole:
        sets["stsb"] = pairs(data / "stsb-en-dev.jsonl")
        sets["cranfield"] = many + [row["text"] for row in rows(data / "cranfield-queries.jsonl")]
    return sets


def counts(model: str, texts: list[str]) -> list[int]:
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(model + "/tokenizer.json")
    tokenizer.no_padding()
    with open(model + "/sentence_bert_config.json", encoding="utf-8") as file:
        tokenizer.enable_truncation(json.load(file)["max_seq_length"])
    return [len(encoding.ids) for encoding in tokenizer.encode_batch(texts)]


def flop(model: str, lengths: list[int], pooled: bool = False) -> float:
    """2 per multiply-add that a text needs; `pooled`: of the last layer keys and values, and all else of one token."""
    config = json.loads(pathlib.Path(model, "config.json").read_text(encoding="utf-8"))
    t5 = config["model_type"] == "t5"  # with words of its own
    words = ("d_model", "num_layers", "num_heads", "d_ff") if t5 else ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    hidden, layers, heads, middle = (config[word] for word in words)
    head = config.get("head_dim") or config.get("d_kv") or hidden // heads
    q, kv = heads * head, config.get("num_key_value_heads", heads) * head
    gated = config["model_type"] in ("nomic_bert", "gte", "modernbert", "qwen3", "gemma2")
    products = 4 if config["model_type"] == "deberta-v2" else 2  # of a pair: DeBERTa multiplies both sides with their distance, too
    inner = (3 if gated else 2) * hidden * middle
    windowed = [kind == "sliding_attention" for kind in config.get("layer_types", [])] or [False] * layers
    window = config.get("local_attention", 0) // 2

    def seen(n: int, local: bool) -> float:
        if config["model_type"] in ("qwen3", "gemma2"):  # every text within the window
            return (n + 1) / 2
        return sum(min(n - 1, i + window) - max(0, i - window) + 1 for i in range(n)) / n if local else n

    total = 0.0
    for n in lengths:
        for layer in range(layers):
            rows = 1 if pooled and layer == layers - 1 else n
            total += rows * (2 * hidden * q + inner) + n * 2 * hidden * kv + rows * products * q * seen(n, windowed[layer])
    return 2 * total


def of_length(model: str, texts: list[str], wanted: int) -> str:
    """A text of exactly so many tokens: one of the set, else the longest cut word by word."""
    lengths = counts(model, texts)
    if wanted in lengths:
        return texts[lengths.index(wanted)]
    words = texts[lengths.index(max(lengths))].split()
    for end in range(len(words), 0, -1):
        text = " ".join(words[:end])
        if counts(model, [text])[0] <= wanted:
            break
    while counts(model, [text])[0] < wanted:
        text += " a"
    return text


# ---- Quality -------------------------------------------------------------------------------------------------------


def quality_texts(data: pathlib.Path) -> dict[str, list[str]]:
    pairs = rows(data / "stsb-en-dev.jsonl")
    return {"pairs": [row["a"] for row in pairs] + [row["b"] for row in pairs],
            "documents": [row["text"] or "" for row in rows(data / "cranfield-docs.jsonl")],
            "queries": [row["text"] for row in rows(data / "cranfield-queries.jsonl")]}


def spearman(matrix: numpy.ndarray, data: pathlib.Path) -> float:
    """Of the first and second sentences of STS-B dev."""
    import numpy
    scores = [row["score"] for row in rows(data / "stsb-en-dev.jsonl")]

    def ranks(values):
        _, where, count = numpy.unique(values, return_inverse=True, return_counts=True)
        return (numpy.cumsum(count) - (count - 1) / 2)[where]

    matrix = matrix.astype(numpy.float64)
    cosine = (matrix[:len(scores)] * matrix[len(scores):]).sum(axis=1)
    return 100 * float(numpy.corrcoef(ranks(cosine), ranks(numpy.array(scores)))[0, 1])


class Cranfield:
    """What is asked and which documents answer it; empty documents keep their place."""

    def __init__(self, data: pathlib.Path) -> None:
        self.documents, self.queries = rows(data / "cranfield-docs.jsonl"), rows(data / "cranfield-queries.jsonl")
        self.gains: dict[str, dict[str, float]] = {}
        for line in (data / "cranfield-qrels.tsv").read_text().splitlines():
            query, document, gain = line.split()
            self.gains.setdefault(query, {})[document] = float(gain)

    def ndcg(self, found: list) -> float:
        """Mean nDCG@10 x 100 of ids of documents, the best first, for each query."""
        import numpy
        discount, values = 1 / numpy.log2(numpy.arange(2, 12)), []
        for query, ids in zip(self.queries, found):
            if gain := self.gains.get(query["id"]):
                best = sorted(gain.values(), reverse=True)[:10]
                got = sum(gain.get(name, 0) * weight for name, weight in zip(ids, discount))
                values.append(got / (numpy.array(best) @ discount[:len(best)]))
        return 100 * float(numpy.mean(values))


def ndcg(data: pathlib.Path, documents: numpy.ndarray, queries: numpy.ndarray) -> float:
    import numpy
    cranfield = Cranfield(data)
    order = numpy.argsort(-(queries @ documents.T), axis=1, kind="stable")[:, :10]
    return cranfield.ndcg([[cranfield.documents[place]["id"] for place in places] for places in order])


def agreement(matrices: dict[str, numpy.ndarray], reference: dict[str, numpy.ndarray], data: pathlib.Path) -> dict:
    """One engine's quality: cosine to the reference over all texts, and the two tasks."""
    import numpy
    mine = numpy.concatenate([matrices[key] for key in reference]).astype(numpy.float64)
    theirs = numpy.concatenate([reference[key] for key in reference]).astype(numpy.float64)
    cosine = (mine * theirs).sum(1) / numpy.linalg.norm(mine, axis=1) / numpy.linalg.norm(theirs, axis=1)
    return {"texts": len(cosine), "cosine_mean": float(cosine.mean()), "cosine_worst": float(cosine.min()),
            "stsb": spearman(matrices["pairs"], data), "ndcg": ndcg(data, matrices["documents"], matrices["queries"])}
