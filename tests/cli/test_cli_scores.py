# SPDX-License-Identifier: Apache-2.0
"""rerank and classify: the shape of their results, their order, pairs from every input, and what they refuse.

The models are the small ones of tests/golden/scores; that their scores are right is test_scores.py's business, here
they are those of expected.json, as the program prints them."""
import json

import commandline
import numpy
import pytest

FOLDERS = commandline.ROOT / "tests/golden/scores"
PAIRS = [pair for pair in json.loads((FOLDERS / "pairs.json").read_text(encoding="utf-8"))]
RERANKER, CLASSIFIER = FOLDERS / "bert", FOLDERS / "bert-three"
DOCUMENTS = ["sat on the mat", "the dog ran at sea", "it rained", "a ship on the road", "the cat sat on the mat"]
LABELS = ["contradiction", "entailment", "neutral"]


def expected(folder, key="pairs"):
    return json.loads((folder / "expected.json").read_text(encoding="utf-8"))[key]


def rank(fletch, *arguments, **options):
    return fletch.rows("rerank", "-m", RERANKER, "--query", "the cat", *arguments, model=False, **options)


def classify(fletch, *arguments, folder=CLASSIFIER, **options):
    return fletch.rows("classify", "-m", folder, *arguments, model=False, **options)


def test_the_best_comes_first(fletch):
    rows = rank(fletch, *DOCUMENTS)
    assert [sorted(row) for row in rows] == [["index", "score", "tokens", "truncated"]] * 5
    scores = [row["score"] for row in rows]
    assert scores == sorted(scores, reverse=True) and sorted(row["index"] for row in rows) == [0, 1, 2, 3, 4]
    by_index = {row["index"]: row["score"] for row in rows}
    assert abs(by_index[0] - expected(RERANKER)[0][0]) <= 1e-5 and abs(by_index[1] - expected(RERANKER)[1][0]) <= 1e-5
    assert rank(fletch, "--top", "2", *DOCUMENTS) == rows[:2] and rank(fletch, "-k", "99", *DOCUMENTS) == rows
    assert rank(fletch, input="") == []


def test_of_equal_documents_the_first(fletch):
    rows = rank(fletch, "--top", "3", input="it rained\n" * 10000)
    assert [row["index"] for row in rows] == [0, 1, 2]


def test_many_documents_and_few_results(fletch):
    texts = [f"the {word} on the {other} {i % 7}" for i, (word, other) in
             enumerate((a, b) for a in ("cat", "dog", "sea", "ship") for b in ("mat", "road") for _ in range(800))]
    everything = rank(fletch, input="\n".join(texts) + "\n")
    assert len(everything) == 6400 and rank(fletch, "--top", "5", input="\n".join(texts) + "\n") == everything[:5]


def test_fields_and_text_go_along(fletch, tmp_path):
    (tmp_path / "docs.jsonl").write_text("".join(
        json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(DOCUMENTS)))
    rows = rank(fletch, "--keep-fields", "--keep-text", "docs.jsonl")
    assert all(DOCUMENTS[row["id"]] == row["text"] and row["id"] == row["index"] for row in rows)
    assert rank(fletch, "-i", "docs.jsonl") == rank(fletch, *DOCUMENTS)
    text = fletch("rerank", "-m", RERANKER, "--query", "the cat", "--format", "text", "docs.jsonl", model=False)
    assert [line.split("  ")[-1] for line in text.stdout.decode().splitlines()] == [row["text"] for row in rows]


def test_activations(fletch):
    raw = {row["index"]: row["score"] for row in rank(fletch, "--activation", "none", *DOCUMENTS)}
    for row in rank(fletch, "--activation", "sigmoid", *DOCUMENTS):
        assert abs(row["score"] - 1 / (1 + numpy.exp(-raw[row["index"]]))) < 1e-6
    assert abs(raw[0] - expected(RERANKER, "logits")[0][0]) <= 1e-5


def test_classes_in_input_order(fletch):
    (first, second) = classify(fletch, "the cat", "the dog")
    assert list(first) == ["index", "label", "score", "scores", "tokens", "truncated"] and second["index"] == 1
    assert list(first["scores"]) == LABELS and first["label"] == max(LABELS, key=first["scores"].get)
    assert first["score"] == first["scores"][first["label"]]
    assert numpy.allclose(list(first["scores"].values()), expected(CLASSIFIER, "texts")[0], atol=1e-5)
    (soft,) = classify(fletch, "--activation", "softmax", "the cat")
    assert abs(sum(soft["scores"].values()) - 1) < 1e-6


@pytest.mark.parametrize("name, content", [
    ("pairs.jsonl", "".join(json.dumps({"a": a, "b": b, "n": i}) + "\n" for i, (a, b) in enumerate(PAIRS))),
    ("pairs.json", json.dumps([{"b": b, "a": a} for a, b in PAIRS])),
    ("pairs.csv", "b,a\n" + "".join(f'"{b}","{a}"\n' for a, b in PAIRS)),
])
def test_pairs_of_two_fields(fletch, tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    rows = classify(fletch, "-i", name, "--field", "a", "--pair-field", "b", "--keep-text")
    assert numpy.allclose([list(row["scores"].values()) for row in rows], expected(CLASSIFIER), atol=1e-5)
    assert [row["text"] for row in rows] == [a for a, _ in PAIRS]
    result = fletch("classify", "-m", CLASSIFIER, "-i", name, "--field", "a", "--pair-field", "b", "-o", "s.npy", model=False)
    assert result.returncode == 0, result.stderr
    assert numpy.allclose(numpy.load(tmp_path / "s.npy"), expected(CLASSIFIER), atol=1e-5)


def test_one_second_text_for_all(fletch):
    (row,) = classify(fletch, "--pair", PAIRS[1][1], PAIRS[1][0])
    assert numpy.allclose(list(row["scores"].values()), expected(CLASSIFIER)[1], atol=1e-5)


def refuse(fletch, code, words, *arguments, **options):
    result = fletch(*arguments, model=False, **options)
    assert result.returncode == code and words in result.stderr.decode(), result.stderr
    assert result.stdout == b""


def test_what_is_refused(fletch, tmp_path):
    refuse(fletch, 2, "--query", "rerank", "-m", RERANKER, "a")
    refuse(fletch, 2, "it is empty", "rerank", "-m", RERANKER, "--query", "", "a")
    refuse(fletch, 2, "--top", "rerank", "-m", RERANKER, "--query", "q", "--top", "0", "a")
    refuse(fletch, 2, "--top", "rerank", "-m", RERANKER, "--query", "q", "--top", "two", "a")
    refuse(fletch, 2, "exclude each other", "classify", "-m", CLASSIFIER, "--pair", "x", "--pair-field", "b", "a")
    refuse(fletch, 2, "--pair-field needs records", "classify", "-m", CLASSIFIER, "--pair-field", "b", "a")
    refuse(fletch, 3, "fletch classify gives", "rerank", "-m", CLASSIFIER, "--query", "q", "a")
    embedding = commandline.ROOT / "tests/golden/folders/plain-bert"
    refuse(fletch, 3, "use fletch embed for its vectors", "rerank", "-m", embedding, "--query", "q", "a")
    refuse(fletch, 3, "use fletch embed for its vectors", "classify", "-m", embedding, "a")
    refuse(fletch, 3, "fletch rerank", "embed", "-m", RERANKER, "a")
    refuse(fletch, 1, "argument 2: longer than 64 tokens", "rerank", "-m", RERANKER, "--query", "q", "--truncate", "error",
           "a", "the sea " * 90)


def test_refused_inputs_may_be_left_out(fletch, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"a":"x","b":"y"}\n"one text"\n{"a":"x"}\n{"a":"y","b":"z"}\n')
    arguments = ["classify", "-m", CLASSIFIER, "-i", "in.jsonl", "--field", "a", "--pair-field", "b"]
    result = fletch(*arguments, "--on-error", "skip", model=False)
    assert result.returncode == 4 and [json.loads(line)["index"] for line in result.stdout.splitlines()] == [0, 3]
    said = result.stderr.decode()
    assert "in.jsonl:2" in said and "is one text" in said and "in.jsonl:3" in said and '"b"' in said
    result = fletch("rerank", "-m", RERANKER, "--query", "q", "--truncate", "error", "--on-error", "skip", "a", "the sea " * 90,
                    "b", model=False)
    assert result.returncode == 4 and {json.loads(line)["index"] for line in result.stdout.splitlines()} == {0, 2}


def test_a_name_of_no_file_is_told(fletch):
    def told(*words):
        done = fletch("rerank", "-m", RERANKER, "--query", "the cat", *words, model=False)
        assert done.returncode == 0
        return [line for line in done.stderr.decode().splitlines() if "no file" in line]
    (line,) = told("no.txt", "a cat in no.txt", "it rained", "Dr.Who")
    assert "note: no file no.txt: embedding it as a text" in line
    assert len(told("in/no.jsonl.gz", "NO.CSV")) == 2
    assert told("-q", "no.txt") == told("--", "no.txt") == []


ZERO_SHOT = json.loads((FOLDERS / "zero-shot.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", ZERO_SHOT["cases"], ids=lambda case: f"{len(case['labels'])}-{case['multi']}")
def test_labels_of_ones_own(fletch, case):
    """As transformers' zero-shot-classification pipeline, also of a text that is cut."""
    flags = ["--labels", " , ".join(case["labels"]), "--hypothesis", case["template"], *(["--multi-label"] if case["multi"] else [])]
    rows = classify(fletch, *flags, *ZERO_SHOT["texts"])
    for row, want in zip(rows, case["scores"], strict=True):
        assert list(row["scores"]) == case["labels"]
        assert numpy.abs(numpy.array([row["scores"][label] for label in case["labels"]]) - want).max() <= 1e-6
        assert row["label"] == max(row["scores"], key=row["scores"].get) and row["score"] == max(row["scores"].values())
    assert [row["truncated"] for row in rows] == [False, False, False, True]


@pytest.mark.parametrize("flags, folder, code, says", [
    (["--labels", " , "], CLASSIFIER, 2, "--labels is empty"), (["--multi-label"], CLASSIFIER, 2, "need --labels"),
    (["--labels", "a", "--hypothesis", "b"], CLASSIFIER, 2, "one {}"),
    *((["--labels", "a", "--hypothesis", words], CLASSIFIER, 2, "one {}") for words in ("{} and {}", "{{}} {}", "a } {}", "{0}")),
    (["--labels", "a,b, a"], CLASSIFIER, 2, 'has "a" twice'), (["--labels", "a", "--pair", "b"], CLASSIFIER, 2, "excludes"),
    (["--labels", "a"], RERANKER, 3, 'labels is "entailment"')])
def test_labels_that_cannot_be(fletch, flags, folder, code, says):
    done = fletch("classify", "-m", folder, *flags, "x", model=False)
    assert done.returncode == code and says in done.stderr.decode() and not done.stdout
