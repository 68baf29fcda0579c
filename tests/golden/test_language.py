# SPDX-License-Identifier: Apache-2.0
"""Language models that rerank give CrossEncoder's scores: LogitScore, chat templates, last tokens (make_language.py)."""
import json
import shutil
import subprocess

import numpy
import pytest

import golden

FOLDERS = golden.HERE / "language"
PAIRS = json.loads((FOLDERS / "pairs.json").read_text(encoding="utf-8"))
NAMES = sorted(path.name for path in FOLDERS.iterdir() if path.is_dir())
QUERY = "messages | selectattr(\"role\", \"eq\", \"query\") | map(attribute=\"content\") | first"


def expected(name: str) -> dict:
    return json.loads((FOLDERS / name / "expected.json").read_text(encoding="utf-8"))


def run(folder, pairs, work, *flags, status=0):
    """The scores of pairs, which may hold line breaks."""
    source = work / "pairs.jsonl"
    source.write_text("".join(json.dumps({"text": a, "second": b}) + "\n" for a, b in pairs), encoding="utf-8")
    done = subprocess.run([golden.BIN, "classify", "-m", folder, "-i", source, "--pair-field", "second", "--format", "jsonl",
                           *flags], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    if status != 0:
        return done.stderr
    return numpy.array([list(json.loads(line)["scores"].values()) for line in done.stdout.splitlines()])


def close(rows, values) -> bool:
    values = numpy.array(values)
    return rows.shape == values.shape and bool((abs(rows - values) <= 1e-5 * numpy.maximum(1, abs(values))).all())


@pytest.mark.parametrize("name", NAMES)
def test_as_cross_encoder(name, tmp_path):
    want, folder = expected(name), FOLDERS / name
    assert close(run(folder, PAIRS, tmp_path, "--activation", "none"), want["logits"])
    assert close(run(folder, PAIRS, tmp_path), want["pairs"])
    if "prompt" in want:
        assert close(run(folder, PAIRS, tmp_path, "--activation", "none", "--prompt", want["prompt"]), want["prompted"])
    alone = run(folder, PAIRS[5:7], tmp_path, "--activation", "none", "--threads", "3")
    assert (alone == run(folder, PAIRS, tmp_path, "--activation", "none")[5:7]).all()


def test_zerank_cuts_by_characters_and_says_so(tmp_path):
    want = expected("zerank")
    pairs = [(a * many, b * times) for a, many, b, times in want["repeated"]]
    assert close(run(FOLDERS / "zerank", pairs, tmp_path, "--activation", "none"), want["cut"])
    done = subprocess.run([golden.BIN, "classify", "-m", FOLDERS / "zerank", "-i", tmp_path / "pairs.jsonl", "--pair-field", "second", "--truncate", "error"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "tokens, or characters (2000 of a query, 10000 of a document); --truncate" in done.stderr, done.stderr


def test_code_of_pairs_that_is_not_known_is_refused(tmp_path):
    copy = changed(FOLDERS / "nemotron", tmp_path, auto_map={"AutoModelForSequenceClassification": "other.LlamaBidirectionalForSequenceClassification"})
    assert "auto_map" in run(copy, PAIRS[:1], tmp_path, status=3)
    for key, value in (("pooling", "weighted"), ("temperature", 0)):
        shutil.rmtree(copy)
        assert key in run(changed(FOLDERS / "nemotron", tmp_path, **{key: value}), PAIRS[:1], tmp_path, status=3)
    shutil.rmtree(copy)
    copy = changed(FOLDERS / "zerank", tmp_path)
    text = (copy / "tokenizer.json").read_text(encoding="utf-8")
    (copy / "tokenizer.json").write_text(text.replace('"Yes":', '"Yess":'), encoding="utf-8")
    assert "its tokenizer lacks" in run(copy, PAIRS[:1], tmp_path, status=3)


def changed(folder, work, **changes):
    copy = work / "model"
    shutil.copytree(folder, copy)
    path = copy / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")
    return copy


@pytest.mark.parametrize("name, changes", [("qwen3", {"is_causal": False}), ("gemma3", {"use_bidirectional_attention": True})])
def test_a_token_before_padding_is_only_read_backwards(name, changes, tmp_path):
    """What follows a token changes it where attention looks both ways."""
    copy = changed(FOLDERS / f"sequence-{name}", tmp_path, **changes)
    assert "pad_token_id" in run(copy, PAIRS[:1], tmp_path, status=3)
    shutil.rmtree(copy)
    copy = changed(FOLDERS / f"sequence-{name}", tmp_path, **changes, pad_token_id=None)
    assert run(copy, PAIRS[:1], tmp_path).shape == (1, 1)


@pytest.mark.parametrize("name", ["logits", "plain", "sequence", "sequence-mistral", "sequence-qwen2"])
def test_reranking_is_classifying_with_one_query(name, tmp_path):
    documents = [second for _, second in PAIRS if second]
    source = tmp_path / "documents.jsonl"
    source.write_text("".join(json.dumps(text) + "\n" for text in documents), encoding="utf-8")
    done = subprocess.run([golden.BIN, "rerank", "-m", FOLDERS / name, "--query", "the cat", "-i", source, "--format", "jsonl"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda row: row["index"])
    assert [[row["score"]] for row in rows] == run(FOLDERS / name, [("the cat", text) for text in documents], tmp_path).tolist()


def template_of(text, tmp_path):
    copy = tmp_path / "model"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(FOLDERS / "logits", copy)
    (copy / "chat_template.jinja").write_text(text)
    return copy


@pytest.mark.parametrize("old, new, words", [
    ("{{ query_text }}", "{% for m in messages %}{{ m.content }}{% endfor %}", "a statement"),
    ("{{ query_text }}", "{{ query_text | trim }}", "another form"),
    ("{{ query_text }}", "{{ text }}", "without a value"),
    ("{{ query_text }}", "{{ messages[0].content }}", "another form"),
    ("{{ query_text }}", "{{ 'x", "without an end"),
    ("{{ query_text }}", "{{+ query_text }}", "a mark with +"),
    ("{{ query_text }}", "", "lacks the message"),
    ('"eq", "query"', '"ne", "query"', "another choice"),
    ('"eq", "query"', '"eq", "user"', "another role"),
    ("{{ query_text }}", "{{ " + " + ".join(["'x'"] * 300) + " }}", "too many"),
])
def test_templates_of_another_form_are_refused(old, new, words, tmp_path):
    text = (FOLDERS / "logits/chat_template.jinja").read_text()
    assert old in text
    assert words in run(template_of(text.replace(old, new), tmp_path), PAIRS[:1], tmp_path, status=3)


@pytest.mark.parametrize("text, same", [
    ("a\n{% set x = 'q' %}\nb{{ " + QUERY + " }}", "a\nbQ"),
    ("a  {%- set x = 'q' -%}  b {{- " + QUERY + " -}} \n c", "abQc"),
    ("  {# note #}\na {# note -#}  b{{ 'x\\n' ~ \"y\" + '' }}{{ " + QUERY + " }}\n\n", "a bx\nyQ\n\n"),
])
def test_white_space_goes_as_jinja_says(text, same, tmp_path):
    """Two spellings of one text have one score."""
    end = "{{ messages | selectattr('role', '==', 'document') | map(attribute='content') | first }}"
    one = run(template_of(text + end + "|", tmp_path), PAIRS[:1], tmp_path)
    two = run(template_of(same.replace("Q", "{{ " + QUERY + " }}") + end + "|", tmp_path), PAIRS[:1], tmp_path)
    assert one.tolist() == two.tolist()


@pytest.mark.parametrize("changes, words", [
    ({"true_token_id": 9999}, "9999"), ({"true_token_id": None}, "true_token_id"), ({"false_token_id": -3}, "false_token_id"),
    ({"module_input_name": "scores"}, "module_input_name")])
def test_scores_of_other_tokens_are_refused(changes, words, tmp_path):
    copy = template_of((FOLDERS / "logits/chat_template.jinja").read_text(), tmp_path)
    path = copy / "1_LogitScore/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    assert words in run(copy, PAIRS[:1], tmp_path, status=3)


def test_a_text_alone_has_no_score():
    done = subprocess.run([golden.BIN, "classify", "-m", FOLDERS / "logits", "a"], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "fletch rerank" in done.stderr
    done = subprocess.run([golden.BIN, "classify", "-m", FOLDERS / "sequence-three", "a"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr


def with_template(folder, work, text):
    copy = work / "model"
    shutil.copytree(folder, copy)
    (copy / "chat_template.jinja").write_text(text, encoding="utf-8")
    return copy


def test_a_classifiers_template_shows_both_texts(tmp_path):
    copy = with_template(FOLDERS / "sequence", tmp_path, "The same prompt.")
    assert "both query and document" in run(copy, PAIRS[:1], tmp_path, status=3)


def test_a_text_may_be_shown_many_times(tmp_path):
    """As many ids as the template makes of it are reserved, not as one showing would take."""
    document = "{{ " + QUERY.replace('"query"', '"document"') + " }}"
    copy = with_template(FOLDERS / "sequence", tmp_path, "{{ " + QUERY + " }} " + document * 12)
    assert run(copy, [("q", "☃☄☃☄☃☄☃☄")], tmp_path).shape == (1, 1)
