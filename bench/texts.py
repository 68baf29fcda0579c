# SPDX-License-Identifier: Apache-2.0
"""texts.py - what the benchmark reads and how it counts: text sets, tokens, work, quality.

Sets are seeded samples, the same for every engine. Tokens are real ones ([CLS] and [SEP] counted, padding not); work
is 2 per multiply-add of the linear layers and of full attention on those tokens. Quality is Spearman's correlation on
STS-B and nDCG@10 on Cranfield, both times 100.
"""
import json
import pathlib
import random

import numpy

LANGUAGES = {"en": "English", "de": "German", "fr": "French", "es": "Spanish", "pl": "Polish", "ru": "Russian",
             "zh": "Chinese", "ja": "Japanese"}


def rows(path: pathlib.Path) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def sentences(path: pathlib.Path) -> list[str]:
    return sorted({text for row in rows(path) for text in (row["a"], row["b"])})


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
        sets["stsb"] = [text for row in rows(data / "stsb-en-dev.jsonl") for text in (row["a"], row["b"])]
        sets["cranfield"] = many + [row["text"] for row in rows(data / "cranfield-queries.jsonl")]
    return sets


def counts(model: str, texts: list[str]) -> list[int]:
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(model + "/tokenizer.json")
    tokenizer.no_padding()
    with open(model + "/sentence_bert_config.json", encoding="utf-8") as file:
        tokenizer.enable_truncation(json.load(file)["max_seq_length"])
    return [len(encoding.ids) for encoding in tokenizer.encode_batch(texts)]


def flop(model: str, lengths: list[int]) -> float:
    with open(model + "/config.json", encoding="utf-8") as file:
        config = json.load(file)
    hidden, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    linear = 2 * layers * (4 * hidden * hidden + 2 * hidden * inner)
    return sum(count * (linear + 2 * layers * 2 * count * hidden) for count in lengths)


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


def spearman(matrix: numpy.ndarray, scores: list[float]) -> float:
    def ranks(values):
        _, where, count = numpy.unique(values, return_inverse=True, return_counts=True)
        return (numpy.cumsum(count) - (count - 1) / 2)[where]

    matrix = matrix.astype(numpy.float64)
    cosine = (matrix[:len(scores)] * matrix[len(scores):]).sum(axis=1)
    return 100 * float(numpy.corrcoef(ranks(cosine), ranks(numpy.array(scores)))[0, 1])


def ndcg(data: pathlib.Path, documents: numpy.ndarray, queries: numpy.ndarray) -> float:
    """Query ids are their order in the file; empty documents keep their row."""
    ids = [row["id"] for row in rows(data / "cranfield-docs.jsonl")]
    gains: dict[str, dict[str, float]] = {}
    for line in (data / "cranfield-qrels.tsv").read_text().splitlines():
        query, document, gain = line.split()
        gains.setdefault(query, {})[document] = float(gain)
    order = numpy.argsort(-(queries @ documents.T), axis=1, kind="stable")[:, :10]
    discount = 1 / numpy.log2(numpy.arange(2, 12))
    found = []
    for row, query in enumerate(rows(data / "cranfield-queries.jsonl")):
        gain = gains.get(query["id"])
        if gain:
            best = sorted(gain.values(), reverse=True)[:10]
            got = sum(gain.get(ids[place], 0) * weight for place, weight in zip(order[row], discount))
            found.append(got / (numpy.array(best) @ discount[:len(best)]))
    return 100 * float(numpy.mean(found))


def agreement(matrices: dict[str, numpy.ndarray], reference: dict[str, numpy.ndarray], data: pathlib.Path) -> dict:
    """One engine's quality: cosine to the reference over all texts, and the two tasks."""
    mine = numpy.concatenate([matrices[key] for key in reference]).astype(numpy.float64)
    theirs = numpy.concatenate([reference[key] for key in reference]).astype(numpy.float64)
    cosine = (mine * theirs).sum(1) / numpy.linalg.norm(mine, axis=1) / numpy.linalg.norm(theirs, axis=1)
    scores = [row["score"] for row in rows(data / "stsb-en-dev.jsonl")]
    return {"texts": len(cosine), "cosine_mean": float(cosine.mean()), "cosine_worst": float(cosine.min()),
            "stsb": spearman(matrices["pairs"], scores), "ndcg": ndcg(data, matrices["documents"], matrices["queries"])}
