# SPDX-License-Identifier: Apache-2.0
"""Late interaction (ColBERT): vectors and scores are MultiVectorEncoder's (make_late.py)."""
import json
import shutil
import subprocess

import numpy
import pytest

import golden

FOLDERS = golden.HERE / "late"
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))
NAMES = sorted(path.name for path in FOLDERS.iterdir() if path.is_dir())
SIDES = {"query": ("--prompt-name", "query"), "document": ("--prompt-name", "document"), "plain": ()}


def run(*arguments, status=0):
    done = subprocess.run([golden.BIN, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def lines_of(path, texts):
    path.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    return path


def rows_of(folder, texts, work, *flags):
    source, result = lines_of(work / "texts.jsonl", texts), work / "rows.npz"
    run("embed", "-m", folder, "--output-kind", "tokens", "-i", source, "-o", result, *flags)
    return numpy.load(result)


def scores_of(folder, query, documents, work, *flags):
    source = lines_of(work / "documents.jsonl", documents)
    out = run("rerank", "-m", folder, "--query", query, "-i", source, "--format", "jsonl", *flags)
    scores = numpy.zeros(len(documents), numpy.float32)
    for line in out.splitlines():
        found = json.loads(line)
        scores[found["index"]] = found["score"]
    return scores


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", NAMES)
def test_vectors(name, side, tmp_path):
    want, got = numpy.load(FOLDERS / name / "expected.npz"), rows_of(FOLDERS / name, TEXTS, tmp_path, *SIDES[side])
    assert got["offsets"].tolist() == want[side + "_offsets"].tolist()
    assert golden.difference(got["embeddings"], want[side]) <= 1e-5
    alone = rows_of(FOLDERS / name, TEXTS[5:6], tmp_path, *SIDES[side], "--threads", "3")
    assert alone["embeddings"].tobytes() == got["embeddings"][slice(*got["offsets"][5:7])].tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_scores(name, tmp_path):
    want = numpy.load(FOLDERS / name / "expected.npz")["scores"]
    for query in (0, 5, 12, 13):
        scores = scores_of(FOLDERS / name, TEXTS[query], TEXTS, tmp_path)
        assert (abs(scores - want[query]) <= 1e-5 * numpy.maximum(1, abs(want[query]))).all()
        assert scores_of(FOLDERS / name, TEXTS[query], TEXTS[3:4], tmp_path)[0] == scores[3]


def dump(folder, texts, *flags):
    done = subprocess.run([golden.BUILD / "tests/score_dump", folder, *flags], input="".join(text + "\n" for text in texts),
                          capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else [float(line.removesuffix(" cut")) for line in done.stdout.splitlines()[1:]]


def test_submitted_the_same_bytes():
    texts = [text.replace("\n", " ").replace("\t", " ") for text in TEXTS]
    flags = ("--query", "the sea and the ship")
    scores = dump(FOLDERS / "bert", texts, *flags)
    assert len(scores) == len(texts) and len(set(scores)) > 8
    assert dump(FOLDERS / "bert", texts, *flags, "--submit") == scores
    assert dump(FOLDERS / "bert", texts, *flags, "--alone") == scores


@pytest.mark.parametrize("flags, words", [
    (("--query", "a", "--activation", "2"), "sigmoid"),
    ((), "late-interaction"),
    (("--embed",), "--output-kind tokens"),
    (("--query", "the sea " * 40, "--truncate", "3"), "more than"),
])
def test_what_a_model_has_not_is_refused(flags, words):
    for more in ((), ("--submit",)):
        assert words in dump(FOLDERS / "bert", ["a"], *flags, *more)


def test_without_a_token_of_its_own_a_skip_word_skips_nothing(tmp_path):
    """A word that the tokenizer takes apart is no id, and the unknown token is not skipped for it."""
    copy = tmp_path / "model"
    shutil.copytree(FOLDERS / "bert", copy)
    mask = copy / "2_MultiVectorMask/config.json"
    mask.write_text(json.dumps(json.loads(mask.read_text()) | {"skiplist_words": ["nowhere", "[SEP]"]}))
    rows = rows_of(copy, ["unseen \u2603, snow"], tmp_path)
    assert 1 in rows["ids"] and 3 not in rows["ids"]


@pytest.mark.parametrize("name, file, old, new, words", [
    ("bert", "sentence_bert_config.json", '"fixed"', '"odd"', "strategy"),
    ("bert", "sentence_bert_config.json", '"length": 16', '"length": 0', "length"),
    ("bert", "sentence_bert_config.json", '"length": 16', '"length": 65', "positions"),
    ("bert", "sentence_bert_config.json", '"token": null', '"token": "nowhere"', "nowhere"),
    ("bert", "sentence_bert_config.json", '"document_length": 24', '"query_length": 12', "query_length"),
    ("bert", "tokenizer_config.json", '"pad_token"', '"padding_side": "left", "pad_token"', "padding_side"),
    ("bert", "2_MultiVectorMask/config.json", '"keep_only_token_ids": null', '"keep_only_token_ids": [1]', "keep_only"),
    ("bert", "2_MultiVectorMask/config.json", '"!"', "1", "skiplist_words"),
    ("bert", "modules.json", "multi_vector_mask.MultiVectorMask", "token_pooling.HierarchicalTokenPooling", "Hierarchical"),
    ("bert", "1_Dense/config.json", '"token_embeddings"', '"sentence_embedding"', "module_input_name"),
    ("bert", "3_Normalize/config.json", '"token_embeddings"', '"sentence_embedding"', "module_input_name"),
    ("bert", "config_sentence_transformers.json", "MultiVectorEncoder", "Other", "Other"),
    ("pylate", "1_Dense/config.json", '"in_features": 32', '"in_features": 31', "takes 31"),
    ("stanford", "artifact.metadata", '"query_maxlen": 14', '"query_maxlen": "x"', "query_maxlen"),
])
def test_damage_and_other_networks_are_refused(name, file, old, new, words, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(FOLDERS / name, copy)
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new, 1))
    assert words in run("rerank", "-m", copy, "--query", "a", "b", status=3)


def test_expansion_that_a_window_would_hide_is_refused(tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(FOLDERS / "modernbert", copy)
    settings = json.loads((copy / "sentence_bert_config.json").read_text())
    settings["query_length"] = None
    for attend in (False, True):
        settings["query_expansion"] = {"strategy": "fixed", "length": 32, "attend": attend}
        (copy / "sentence_bert_config.json").write_text(json.dumps(settings))
        out = run("rerank", "-m", copy, "--query", "a", "b", status=0 if attend else 3)
        assert attend or "24 tokens to each side" in out
