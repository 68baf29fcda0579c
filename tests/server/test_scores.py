# SPDX-License-Identifier: Apache-2.0
"""Rerankers and classifiers over HTTP: TEI's /rerank and /predict, Cohere's and Jina's /rerank, vLLM's /score.

The models are small ones of tests/golden, all in one server: a reranker, a classifier with three labels, an embedding
model and one for late interaction. That scores are right is tests/golden/test_scores.py's business; here they are those of
expected.json, whatever the route, and each dialect refuses in its own words."""
import json
import math
import shutil

import numpy
import pytest
import serving
from dialects import good, post
from safetensors.numpy import load_file, save_file

FOLDERS = serving.ROOT / "tests/golden/scores"
PAIRS = json.loads((FOLDERS / "pairs.json").read_text(encoding="utf-8"))
CAT = [second for first, second in PAIRS if first == "the cat"]  # documents 0 and 1 of "the cat"
LATE = serving.ROOT / "tests/golden/late/bert"
CHAT = serving.ROOT / "tests/golden/language/logits"
LABELS = ["contradiction", "entailment", "neutral"]


def expected(name, key):
    return json.loads((FOLDERS / name / "expected.json").read_text(encoding="utf-8"))[key]


LOGITS = [score for score, in expected("bert", "logits")]
SCORES = [score for score, in expected("bert", "pairs")]  # sigmoid: one label


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    models = [f"rank={FOLDERS}/bert", f"three={FOLDERS}/bert-three", f"plain={serving.ROOT}/tests/golden/folders/plain-bert",
              f"late={LATE}", f"chat={CHAT}"]
    running = serving.Server(tmp_path_factory.mktemp("scores"), *[word for name in models for word in ("--model", name)],
                             model=False)
    yield running
    assert running.process.poll() is None, running.log()
    assert running.ask("GET", "/ready").status == 200
    assert running.end() == 0, running.log()


def close(found, wanted):
    return len(found) == len(wanted) and all(abs(a - b) <= 1e-5 * max(1, abs(b)) for a, b in zip(found, wanted))


def sigmoid(values):
    return [1 / (1 + math.exp(-value)) for value in values]


def test_tei_rerank(server):
    body = {"model": "rank", "query": "the cat", "texts": CAT}
    rows = good(post(server, "/rerank", body))
    assert [sorted(row) for row in rows] == [["index", "score"]] * 2
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    assert close([row["score"] for row in sorted(rows, key=lambda row: row["index"])], SCORES[:2])
    raw = good(post(server, "/rerank", body | {"raw_scores": True, "return_text": True}))
    assert close([row["score"] for row in sorted(raw, key=lambda row: row["index"])], LOGITS[:2])
    assert all(row["text"] == CAT[row["index"]] for row in raw)
    reply = post(server, "/rerank", {"model": "rank", "query": PAIRS[9][0], "texts": [PAIRS[9][1]]})
    assert close([good(reply)[0]["score"]], [SCORES[9]]) and reply.headers["x-fletch-truncated"] == "1"
    assert reply.headers["x-compute-tokens"] == "64"


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_cohere_and_jina_rerank(server, path):
    body = {"model": "rank", "query": "the cat", "documents": [CAT[0], {"text": CAT[1], "title": "x"}, "it rained"]}
    reply = good(post(server, path, body))
    assert list(reply) == ["id", "model", "results", "usage", "meta"] and reply["model"] == "rank"
    scores = {row["index"]: row["relevance_score"] for row in reply["results"]}
    assert [row["relevance_score"] for row in reply["results"]] == sorted(scores.values(), reverse=True)
    assert close([scores[0], scores[1]], SCORES[:2])
    assert reply["usage"]["total_tokens"] > 0 and reply["meta"]["api_version"] == {"version": path[2]}
    assert good(post(server, path, body | {"top_n": 1}))["results"] == reply["results"][:1]
    assert good(post(server, path, body | {"top_n": 500}))["results"] == reply["results"]
    best = good(post(server, path, body | {"top_n": 1, "return_documents": True, "raw_scores": True}))["results"][0]
    texts = [CAT[0], CAT[1], "it rained"]
    assert best["document"] == {"text": texts[best["index"]]}
    assert close(sigmoid([best["relevance_score"]]), [reply["results"][0]["relevance_score"]])


def test_many_documents(server):
    documents = [f"the cat and {i} ships" for i in range(10000)]
    results = good(post(server, "/v2/rerank", {"model": "rank", "query": "the cat", "documents": documents}))["results"]
    assert sorted(row["index"] for row in results) == list(range(10000))


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
def test_vllm_score(server, path):
    reply = good(post(server, path, {"model": "rank", "text_1": "the cat", "text_2": CAT}))
    assert reply["object"] == "list" and [row["index"] for row in reply["data"]] == [0, 1]
    assert close([row["score"] for row in reply["data"]], SCORES[:2])
    body = {"model": "rank", "text_1": [a for a, _ in PAIRS], "text_2": [b for _, b in PAIRS]}
    assert close([row["score"] for row in good(post(server, path, body))["data"]], SCORES)
    assert close([row["score"] for row in good(post(server, path, body | {"use_activation": False}))["data"]], LOGITS)
    assert close([good(post(server, path, {"model": "rank", "text_1": PAIRS[1][0], "text_2": PAIRS[1][1]}))["data"][0]["score"]],
                 [SCORES[1]])


def by_label(row):
    assert [entry["score"] for entry in row] == sorted((entry["score"] for entry in row), reverse=True)
    return [{entry["label"]: entry["score"] for entry in row}[label] for label in LABELS]


def test_tei_predict(server):
    single, pairs = expected("bert-three", "texts"), expected("bert-three", "logits")
    raw = {"model": "three", "raw_scores": True}
    assert close(by_label(good(post(server, "/predict", raw | {"inputs": PAIRS[0][0]}))), single[0])
    assert close(by_label(good(post(server, "/predict", raw | {"inputs": PAIRS[0]}))), pairs[0])
    rows = good(post(server, "/predict", raw | {"inputs": [[PAIRS[0][0]], [PAIRS[3][0]]]}))
    assert close(by_label(rows[0]), single[0]) and close(by_label(rows[1]), single[3])
    rows = good(post(server, "/predict", raw | {"inputs": PAIRS}))
    assert all(close(by_label(row), pair) for row, pair in zip(rows, pairs)) and len(rows) == len(pairs)
    soft = by_label(good(post(server, "/predict", {"model": "three", "inputs": PAIRS[0]})))
    total = sum(math.exp(value) for value in pairs[0])
    assert close(soft, [math.exp(value) / total for value in pairs[0]])
    (row,) = good(post(server, "/predict", {"model": "rank", "inputs": PAIRS[0]}))
    assert row["label"] == "LABEL_0" and close([row["score"]], SCORES[:1])


ZERO_SHOT = json.loads((FOLDERS / "zero-shot.json").read_text(encoding="utf-8"))


def zero_shot(inputs, labels, **parameters):
    return {"model": "three", "inputs": inputs, "parameters": {"candidate_labels": labels, **parameters}}


@pytest.mark.parametrize("case", ZERO_SHOT["cases"], ids=lambda case: f"{len(case['labels'])}-{case['multi']}")
def test_labels_of_ones_own(server, case):
    """As transformers' zero-shot-classification pipeline: texts together and alone, labels as a list and with commas."""
    parameters = {"hypothesis_template": case["template"], "multi_label": case["multi"]}
    path, labels = "/zero-shot-classification", case["labels"]
    rows = good(post(server, path, zero_shot(ZERO_SHOT["texts"], labels, **parameters)))
    for text, row, want in zip(ZERO_SHOT["texts"], rows, case["scores"], strict=True):
        assert [entry["score"] for entry in row] == sorted((entry["score"] for entry in row), reverse=True)
        assert {entry["label"]: entry["score"] for entry in row} == pytest.approx(dict(zip(labels, want)), abs=1e-6)
        assert row == good(post(server, path, zero_shot(text, " , ".join([*labels, ""]), **parameters)))
    assert rows[:1] == good(post(server, path, zero_shot(ZERO_SHOT["texts"][:1], labels, **parameters)))


def test_labels_have_bounds(server):
    """What the answer would take is known before anything is scored, and pairs count as what a body is read into."""
    refused = post(server, "/zero-shot-classification", zero_shot(["a"] * 3000, ["l" * 200_000]))
    assert refused.status == 413 and "512 MiB" in refused.body.decode()
    refused = post(server, "/zero-shot-classification", zero_shot(["a"] * 100_000, [f"{i}" for i in range(30_000)]))
    assert refused.status == 413


def test_info(server):
    three = good(server.ask("GET", "/info?model=three"))["model_type"]
    assert three == {"classifier": {"id2label": dict(zip("012", LABELS)), "label2id": dict(zip(LABELS, range(3)))}}
    assert list(good(server.ask("GET", "/info?model=rank"))["model_type"]) == ["reranker"]


QUERY = {"query": "q", "texts": ["a"], "documents": ["a"], "text_1": "a", "text_2": "b"}


@pytest.mark.parametrize("path, body, status, words", [
    ("/rerank", QUERY | {"model": "plain"}, 424, "model is not a re-ranker model"),
    ("/rerank", QUERY | {"model": "three"}, 424, "model is not a re-ranker model"),
    ("/predict", {"inputs": "a", "model": "plain"}, 424, "Model is not a classifier model"),
    ("/v2/rerank", QUERY | {"model": "plain"}, 400, "model 'plain': model is not a re-ranker model"),
    ("/v1/rerank", QUERY | {"model": "three"}, 400, "model 'three': model is not a re-ranker model"),
    ("/score", QUERY | {"model": "plain"}, 400, "not a reranker"),
    ("/embed", {"inputs": "a", "model": "rank"}, 424, "scores, not vectors"),
    ("/embed_all", {"inputs": "a", "model": "rank"}, 424, "scores, not vectors"),
    ("/v1/embeddings", {"input": "a", "model": "three"}, 400, "scores, not vectors"),
    ("/v2/embed", {"texts": ["a"], "model": "rank"}, 400, "scores, not vectors"),
    ("/api/embed", {"input": "a", "model": "rank"}, 400, "scores, not vectors"),
    ("/rerank", {"query": "q", "texts": [], "model": "rank"}, 400, "`texts` cannot be empty"),
    ("/rerank", {"query": "", "texts": ["a"], "model": "rank"}, 400, "`query` cannot be empty"),
    ("/rerank", {"query": "q", "model": "rank"}, 422, "missing field `texts`"),
    ("/rerank", {"query": "q", "texts": ["a", "the sea " * 90], "truncate": False, "model": "rank"}, 422, "less than 64 tokens"),
    ("/predict", {"inputs": [], "model": "three"}, 400, "`inputs` cannot be empty"),
    ("/predict", {"inputs": "", "model": "three"}, 400, "`inputs` cannot be empty"),
    ("/predict", {"inputs": [[]], "model": "three"}, 422, "invalid length 0"),
    ("/predict", {"inputs": ["a", "b", "c"], "model": "three"}, 422, "invalid length 3"),
    ("/predict", {"inputs": ["a", 7], "model": "three"}, 422, "inputs"),
    ("/predict", {"inputs": {"a": 1}, "model": "three"}, 422, "inputs"),
    ("/zero-shot-classification", zero_shot([], ["a"]), 400, "`inputs` cannot be empty"),
    ("/zero-shot-classification", zero_shot("", ["a"]), 400, "`inputs` cannot be empty"),
    ("/zero-shot-classification", zero_shot("a", []), 400, "`candidate_labels` cannot be empty"),
    ("/zero-shot-classification", zero_shot("a", " , "), 400, "`candidate_labels` cannot be empty"),
    ("/zero-shot-classification", zero_shot("a", ["a", ""]), 400, "`candidate_labels` cannot be empty"),
    ("/zero-shot-classification", zero_shot("a", ["a"], hypothesis_template="this"), 422, "one {} for the label"),
    ("/zero-shot-classification", zero_shot("a", ["a"], hypothesis_template="{} and {}"), 422, "no other braces"),
    ("/zero-shot-classification", {"model": "three", "inputs": "a"}, 422, "missing field `parameters`"),
    ("/zero-shot-classification", {"inputs": "a", "parameters": {}}, 422, "missing field `candidate_labels`"),
    ("/zero-shot-classification", zero_shot("a", ["a"]) | {"model": "rank"}, 424, "none of its labels is entailment"),
    ("/zero-shot-classification", zero_shot("a", ["a"]) | {"model": "plain"}, 424, "Model is not a classifier model"),
    ("/zero-shot-classification", zero_shot("the sea " * 90, ["a"]) | {"truncate": False}, 422, "less than 64 tokens"),
    ("/v2/rerank", {"query": "q", "documents": [], "model": "rank"}, 400, "documents must not be empty"),
    ("/v2/rerank", {"query": "", "documents": ["a"], "model": "rank"}, 400, "query must not be empty"),
    ("/v2/rerank", {"query": "q", "documents": ["a"], "top_n": 0, "model": "rank"}, 400, "top_n"),
    ("/v2/rerank", {"query": "q", "documents": [{"title": "a"}], "model": "rank"}, 400, "missing field `text`"),
    ("/v2/rerank", {"query": "q", "documents": [7], "model": "rank"}, 400, "documents[0]"),
    ("/v2/rerank", {"query": "q", "documents": ["a"], "model": "nobody"}, 404, "nobody"),
    ("/score", {"text_1": ["a", "b"], "text_2": ["a"], "model": "rank"}, 400, "equally many"),
    ("/score", {"text_1": "a", "text_2": [], "model": "rank"}, 400, "equally many"),
])
def test_refused_in_the_words_of_the_dialect(server, path, body, status, words):
    reply = post(server, path, body)
    assert reply.status == status and words in reply.body.decode(), reply


def test_labels_and_texts_that_go_back_count(tmp_path):
    path = tmp_path / "wordy"
    shutil.copytree(FOLDERS / "bert-three", path)
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    labels = [name + "\x01" * 40_000 for name in LABELS]  # six bytes each in JSON
    config |= {"id2label": dict(zip("012", labels)), "label2id": dict(zip(labels, range(3)))}
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    server = serving.Server(tmp_path, "--model", f"wordy={path}", "--model", f"rank={FOLDERS}/bert",
                            "--server-max-reply-memory", "4MiB", model=False)
    try:
        refused = post(server, "/predict", {"model": "wordy", "inputs": [["a"]] * 800})  # 576 MB
        assert refused.status == 413 and refused.headers["x-fletch-limit"].startswith("answer="), refused
        refused = post(server, "/predict", {"model": "wordy", "inputs": [["a"]] * 6})
        assert refused.status == 413 and refused.headers["x-fletch-limit"] == "server.max_reply_memory", refused
        assert len(good(post(server, "/predict", {"model": "wordy", "inputs": [["a"]] * 2}))) == 2
        texts = {"model": "rank", "query": "a", "return_text": True, "texts": ["sea" + "\x01" * 300_000] * 4}
        refused = post(server, "/rerank", texts)
        assert refused.status == 413 and refused.headers["x-fletch-limit"] == "server.max_reply_memory", refused
        assert len(good(post(server, "/rerank", texts | {"return_text": False}))) == 4
        best = {"model": "rank", "query": "a", "return_documents": True, "top_n": 1, "documents": texts["texts"]}
        assert len(good(post(server, "/v2/rerank", best))["results"]) == 1
    finally:
        server.kill()


def test_scores_that_are_not_finite_are_never_sent(tmp_path):
    path = tmp_path / "nan"
    shutil.copytree(FOLDERS / "bert", path)
    tensors = load_file(path / "model.safetensors")
    word = (path / "vocab.txt").read_text(encoding="utf-8").split("\n").index("ship")
    tensors["bert.embeddings.word_embeddings.weight"][word] = numpy.nan
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    server = serving.Server(tmp_path, "--model", f"nan={path}", model=False)
    try:
        for route, body in (("/rerank", {"query": "q", "texts": ["a", "ship"]}), ("/score", {"text_1": "ship", "text_2": "b"}),
                            ("/v2/rerank", {"query": "ship", "documents": ["a"]}), ("/predict", {"inputs": "a ship"})):
            reply = post(server, route, body)
            assert reply.status == 500 and b"damaged" in reply.body, reply
    finally:
        server.kill()


def test_late_interaction(server):
    """Vectors of queries and documents, and scores, by every route that has them: expected.npz of the folder."""
    want, texts = numpy.load(LATE / "expected.npz"), json.loads((LATE.parent / "texts.json").read_text())
    for side, prompt in (("query", {"prompt_name": "query"}), ("document", {"prompt_name": "document"}), ("plain", {})):
        lists = good(post(server, "/embed_all", {"model": "late", "inputs": texts[3:], **prompt}))
        first = want[side + "_offsets"][3]
        assert numpy.cumsum([first] + [len(rows) for rows in lists]).tolist() == want[side + "_offsets"][3:].tolist()
        assert abs(numpy.concatenate(lists) - want[side][first:]).max() <= 1e-5
    scores = want["scores"][5].tolist()
    body = {"model": "late", "query": texts[5], "texts": texts}
    for more in ({}, {"raw_scores": True}):
        rows = good(post(server, "/rerank", body | more))
        assert close([row["score"] for row in sorted(rows, key=lambda row: row["index"])], scores)
    for path in ("/v1/rerank", "/v2/rerank"):
        rows = good(post(server, path, {"model": "late", "query": texts[5], "documents": texts, "top_n": 3}))["results"]
        assert close([row["relevance_score"] for row in rows], sorted(scores, reverse=True)[:3])
    rows = good(post(server, "/score", {"model": "late", "text_1": texts[5], "text_2": texts}))["data"]
    assert close([row["score"] for row in rows], scores)


@pytest.mark.parametrize("path, body, status", [
    ("/embed", {"inputs": "a"}, 424), ("/embed_sparse", {"inputs": "a"}, 424), ("/predict", {"inputs": "a"}, 424),
    ("/v1/embeddings", {"input": "a"}, 400), ("/score", {"text_1": ["a", "b"], "text_2": ["c", "d"]}, 400),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}}, 424),
])
def test_late_interaction_gives_nothing_else(server, path, body, status):
    reply = post(server, path, {"model": "late"} | body)
    assert reply.status == status and b"error" in reply.body, reply.body


def test_texts_and_pairs_in_one_request(server):
    single, pairs = expected("bert-three", "texts"), expected("bert-three", "logits")
    both = {"model": "three", "raw_scores": True}
    for order in ([0, 1, 5, 3], [1, 0, 3, 5], [6, 3, 9, 1], [9, 1, 0, 3], [3, 0]):  # odd: the pair, even: its first text
        rows = good(post(server, "/predict", both | {"inputs": [PAIRS[i] if i % 2 else PAIRS[i][:1] for i in order]}))
        assert len(rows) == len(order)
        assert all(close(by_label(row), (pairs if i % 2 else single)[i]) for row, i in zip(rows, order))


def test_what_texts_become_is_counted(server):
    def count(name):
        lines = server.ask("GET", "/metrics").body.decode().splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(name))
    before = [count(f"fletch_{name}_texts_total") for name in ("scored", "token")]
    good(post(server, "/rerank", {"model": "rank", "query": "a", "texts": ["b", "c"]}))
    good(post(server, "/embed_all", {"model": "plain", "inputs": ["a", "b", "c"]}))
    good(post(server, "/v1/embeddings", {"model": "plain", "input": ["a"]}))
    assert [count(f"fletch_{name}_texts_total") for name in ("scored", "token")] == [before[0] + 2, before[1] + 3]


def test_a_language_model_reranks(server):
    """It is warmed, probed and asked with pairs alone."""
    pairs = json.loads((CHAT.parent / "pairs.json").read_text(encoding="utf-8"))
    wanted = json.loads((CHAT / "expected.json").read_text(encoding="utf-8"))["pairs"]
    for (query, document), (score,) in zip(pairs, wanted):
        if query and document:
            rows = good(post(server, "/rerank", {"model": "chat", "query": query, "texts": [document]}))
            assert close([rows[0]["score"]], [score])


def test_late_interaction_takes_texts_and_ids_in_one_list(server):
    """A text is a query and filled up as one; ids are complete as they are."""
    for prompt in ({}, {"prompt_name": "query"}, {"prompt_name": "document"}):
        def ask(inputs):
            return good(post(server, "/embed_all", {"model": "late", "inputs": inputs, **prompt}))
        both = ask(["the cat", [5, 6, 7], "rain at sea", [5, 6, 7]])
        assert both == [*ask(["the cat"]), *ask([[5, 6, 7]]), *ask(["rain at sea"]), *ask([[5, 6, 7]])]
        assert len(both[1]) <= 3


def test_a_cache_answers_what_comes_again(start):
    server = start("--model", FOLDERS / "bert", "--cache-max-bytes", "1MiB", model=False)

    def count(name):
        lines = server.ask("GET", "/metrics").body.decode().splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(f"fletch_{name}{{"))
    body = {"query": "the cat", "texts": ["a mat", "rain", "a mat"]}
    first = good(post(server, "/rerank", body))
    texts = count("texts_total")
    assert good(post(server, "/rerank", body)) == first and count("texts_total") == texts
    assert (count("cache_hits_total"), count("cache_misses_total"), count("repeated_texts_total")) == (2, 2, 2)
    assert count("cache_entries") == 2 and 0 < count("cache_bytes") <= count("cache_limit_bytes") == 1 << 20
