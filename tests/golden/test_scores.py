# SPDX-License-Identifier: Apache-2.0
"""Rerankers and classifiers give CrossEncoder's scores, alone, in a batch, by every call and engine.

What must never break: the head of every family and of modules, labels and activation from wherever the folder
names them, pairs cut as the reference cuts them, and that what is not a score is an error and never a number.
Expected values: make_scores.py. Needs: score_dump and model_dump (FLETCH_BUILD).
"""
import json
import shutil
import subprocess

import numpy
import pytest
from safetensors.numpy import load_file, save_file

import golden

FOLDERS = golden.HERE / "scores"
PAIRS = json.loads((FOLDERS / "pairs.json").read_text(encoding="utf-8"))
NAMES = sorted(path.name for path in FOLDERS.iterdir() if path.is_dir())
NONE, SIGMOID, SOFTMAX = "1", "2", "3"
UNSUPPORTED, DAMAGED, INVALID = "-6", "-5", "-1"


def expected(name: str) -> dict:
    return json.loads((FOLDERS / name / "expected.json").read_text(encoding="utf-8"))


def dump(folder, texts, *flags):
    """Exit status, labels, scores and marks of cut texts, or the refusal."""
    lines = "".join(("\t".join(text) if isinstance(text, list) else text) + "\n" for text in texts)
    done = subprocess.run([golden.BUILD / "tests/score_dump", folder, *flags], input=lines, capture_output=True,
                          text=True, encoding="utf-8")
    if done.returncode != 0:
        assert done.returncode == 3, done.stderr
        return done.stderr
    labels, *rows = done.stdout.splitlines()
    values = [[numpy.float32(word) for word in row.removesuffix(" cut").split()] for row in rows]
    return labels.split("\t"), numpy.array(values, numpy.float32), [row.endswith(" cut") for row in rows]


def scores(folder, texts, *flags) -> numpy.ndarray:
    result = dump(folder, texts, *flags)
    assert not isinstance(result, str), result
    return result[1]


def prompt(want: dict) -> tuple:
    return ("--prompt-name", want["options"]["prompt_name"]) if want["options"] else ()


def close(rows: numpy.ndarray, values: list) -> bool:
    values = numpy.array(values)
    return rows.shape == values.shape and bool((abs(rows - values) <= 1e-5 * numpy.maximum(1, abs(values))).all())


@pytest.mark.parametrize("name", NAMES)
def test_as_cross_encoder(name):
    want, folder = expected(name), FOLDERS / name
    labels, logits, cut = dump(folder, PAIRS, "--activation", NONE, *prompt(want))
    assert labels == want["labels"]
    assert close(logits, want["logits"])
    assert close(scores(folder, PAIRS, *prompt(want)), want["pairs"])
    assert close(scores(folder, [first for first, _ in PAIRS], "--activation", NONE, *prompt(want)), want["texts"])
    assert cut[6:10] == [True] * 4 and cut[:5] == [False] * 5


@pytest.mark.parametrize("code", ["modeling_xlm_roberta.XLMRobertaLoRA", "a/b--modeling_xlm_roberta.XLMRobertaModel"])
def test_without_model_type_the_code_says_what_it_is(code, tmp_path):
    path = changed("jina-v2", tmp_path, CONFIG, auto_map={"AutoModelForSequenceClassification": code})
    refusal = dump(path, PAIRS)
    assert refusal.startswith(UNSUPPORTED) and code in refusal
    shutil.rmtree(path)
    path = changed("jina-v2", tmp_path, CONFIG, auto_map={
        "AutoModelForSequenceClassification": "modeling_xlm_roberta.XLMRobertaForSequenceClassification"})
    assert numpy.array_equal(scores(path, PAIRS), scores(FOLDERS / "jina-v2", PAIRS))


@pytest.mark.parametrize("name", ["bert", "gte-types", "modernbert-mean", "distilbert"])
def test_alone_in_a_batch_and_submitted_the_same_bytes(name):
    together = scores(FOLDERS / name, PAIRS)
    assert numpy.array_equal(scores(FOLDERS / name, PAIRS, "--alone"), together)
    assert numpy.array_equal(scores(FOLDERS / name, PAIRS, "--submit"), together)
    assert numpy.array_equal(scores(FOLDERS / name, PAIRS, "--set", "cpu.intra_op_threads", "3"), together)


@pytest.mark.parametrize("name", ["bert", "modules", "roberta"])
@pytest.mark.parametrize("query", ["the cat", "", "the sea and the road and the ship " * 12])
def test_reranking_is_classifying_with_one_query(name, query):
    documents = [second for _, second in PAIRS]
    rows = scores(FOLDERS / name, documents, "--query", query)
    assert numpy.array_equal(rows, scores(FOLDERS / name, [[query, text] for text in documents]))
    assert numpy.array_equal(rows, scores(FOLDERS / name, documents, "--query", query, "--submit"))


def test_activations_by_request():
    logits = scores(FOLDERS / "bert-three", PAIRS, "--activation", NONE).astype(float)
    each = numpy.exp(logits - logits.max(axis=1, keepdims=True))
    soft = scores(FOLDERS / "bert-three", PAIRS, "--activation", SOFTMAX)
    assert numpy.allclose(soft, each / each.sum(axis=1, keepdims=True), atol=1e-6)
    assert numpy.allclose(scores(FOLDERS / "bert-three", PAIRS, "--activation", SIGMOID), 1 / (1 + numpy.exp(-logits)), atol=1e-6)


@pytest.mark.parametrize("name", ["bert", "gte-types", "electra", "roberta", "modules"])
def test_onnxruntime_gives_the_same_scores(name):
    onnx_files = pytest.importorskip("onnx_files", reason="the onnx package is not in this Python (tools/venv.sh)")
    if not onnx_files.library():
        pytest.skip("no ONNX Runtime library: make onnxruntime")
    want = expected(name)
    flags = ["--set", "provider.engine", "onnxruntime", "--set", "onnxruntime.library", onnx_files.library()]
    assert close(scores(FOLDERS / name, PAIRS, "--activation", NONE, *flags, *prompt(want)), want["logits"])


def test_a_model_is_asked_for_what_it_gives():
    assert dump(FOLDERS / "bert", ["a"], "--embed").startswith(UNSUPPORTED)
    assert "fletch rerank" in dump(FOLDERS / "bert", ["a"], "--embed")
    assert "fletch classify" in dump(FOLDERS / "bert-three", ["a"], "--embed")
    assert "3 labels" in dump(FOLDERS / "bert-three", ["a"], "--query", "q")
    embedding = golden.HERE / "folders/plain-bert"
    for flags in (["--query", "q"], [], ["--submit"]):
        refusal = dump(embedding, ["a"], *flags)
        assert refusal.startswith(UNSUPPORTED) and "not a " in refusal and "fletch embed" in refusal


def test_long_pairs_are_refused_where_asked_for():
    assert dump(FOLDERS / "bert", [PAIRS[0], PAIRS[8]], "--truncate", "3").startswith("-9 at 1:")


def test_options_that_scores_do_not_have(tmp_path):
    assert "model.dimensions" in dump(FOLDERS / "bert", ["a"], "--set", "model.dimensions", "1")
    for folder in "bert", "modules":
        assert "model.pooling" in dump(FOLDERS / folder, ["a"], "--set", "model.pooling", "max")
    assert dump(FOLDERS / "bert", ["a"], "--activation", "9").startswith(INVALID)


def changed(name: str, work, file: str, **values):
    """A copy of a folder with other values in one of its JSON files; None takes a key away."""
    path = work / "model"
    shutil.copytree(FOLDERS / name, path)
    content = json.loads((path / file).read_text()) | values
    (path / file).unlink()
    (path / file).write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    return path


TORCH = "torch.nn.modules.activation."
SENTENCE, CONFIG, DENSE = "config_sentence_transformers.json", "config.json", "3_Dense/config.json"


@pytest.mark.parametrize("name, file, values, status, words", [
    ("bert", CONFIG, {"sentence_transformers": {"activation_fn": TORCH + "Softmax"}}, UNSUPPORTED, "Softmax"),
    ("bert", CONFIG, {"sbert_ce_default_activation_function": TORCH + "SELU"}, UNSUPPORTED, "SELU"),
    ("saved", SENTENCE, {"activation_fn": TORCH + "Softmax"}, UNSUPPORTED, "Softmax"),
    ("bert-three", CONFIG, {"num_labels": 2}, DAMAGED, "num_labels is 2, but id2label names 3"),
    ("bert-three", CONFIG, {"id2label": {"0": "a", "1": "b", "3": "d"}}, DAMAGED, "none with the number 2"),
    ("bert-three", CONFIG, {"id2label": {"0": "a", "1": "b"}}, DAMAGED, "the shape of tensor classifier.weight"),
    ("bert-three", CONFIG, {"id2label": {}}, DAMAGED, "labels"),
    ("modernbert", CONFIG, {"classifier_pooling": "max"}, UNSUPPORTED, "classifier_pooling"),
    ("modernbert", CONFIG, {"classifier_activation": "silu"}, UNSUPPORTED, "classifier_activation"),
    ("saved", "sentence_bert_config.json", {"transformer_task": "text-generation"}, UNSUPPORTED, "text-generation"),
    ("saved", "sentence_bert_config.json", {"transformer_task": None}, UNSUPPORTED, "feature-extraction"),
    ("saved", "sentence_bert_config.json", {"processing_kwargs": {"text": {"truncation": "only_first"}}}, UNSUPPORTED, "truncation"),
    ("modules", DENSE, {"module_output_name": "sentence_embedding"}, UNSUPPORTED, "scores"),
    ("modules", DENSE, {"module_output_name": "token_embeddings"}, UNSUPPORTED, "token_embeddings"),
    ("modules", SENTENCE, {"model_type": "SparseEncoder"}, UNSUPPORTED, "SparseEncoder"),
    ("bert", "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"}, UNSUPPORTED, "model_input_names"),
])
def test_what_is_not_known_is_refused_by_name(name, file, values, status, words, tmp_path):
    refusal = dump(changed(name, tmp_path, file, **values), ["a"])
    assert isinstance(refusal, str) and refusal.startswith(status) and words in refusal, refusal


def test_the_tokenizer_says_whether_there_are_types(tmp_path):
    path = changed("bert", tmp_path, "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    assert not numpy.array_equal(scores(path, PAIRS), scores(FOLDERS / "bert", PAIRS))
    assert numpy.array_equal(scores(path, ["a cat"]), scores(FOLDERS / "bert", ["a cat"]))


@pytest.mark.parametrize("tensor, value", [("classifier.bias", numpy.nan), ("bert.pooler.dense.weight", numpy.inf),
                                           ("classifier.weight", 3e38)])
def test_what_is_not_finite_is_an_error(tensor, value, tmp_path):
    path = tmp_path / "model"
    shutil.copytree(FOLDERS / "bert", path)
    tensors = load_file(path / "model.safetensors")
    tensors[tensor].flat[:2] = value
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    refusal = dump(path, PAIRS)
    assert isinstance(refusal, str) and refusal.startswith(DAMAGED) and "not finite" in refusal


def test_a_head_without_its_tensors_is_refused(tmp_path):
    path = tmp_path / "model"
    shutil.copytree(FOLDERS / "roberta", path)
    tensors = load_file(path / "model.safetensors")
    del tensors["classifier.out_proj.weight"]
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    assert "tensor classifier.out_proj.weight is missing" in dump(path, ["a"])


@pytest.mark.parametrize("file, content, words", [
    ("config_sentence_transformers.json", {"model_type": "CrossEncoder"}, "cross-encoder of a static table"),
    ("modules.json", [{"idx": 0, "path": "", "type": "sentence_transformers.models.StaticEmbedding"},
                      {"idx": 1, "path": "1", "type": "sentence_transformers.sparse_encoder.models.SpladePooling"}], "SpladePooling"),
])
def test_a_static_table_has_no_other_head(file, content, words, tmp_path):
    """Such a folder made the program read through pointers that nobody had set."""
    shutil.copytree(golden.HERE / "folders" / "family-static", tmp_path / "model")
    (tmp_path / "model" / file).unlink(missing_ok=True)
    (tmp_path / "model" / file).write_text(json.dumps(content))
    for command in ("embed",), ("embed", "--output-kind", "sparse"), ("rerank", "--query", "q"):
        done = subprocess.run([golden.BIN, *command, "-m", tmp_path / "model", "a text"], capture_output=True, text=True)
        assert done.returncode == 3 and words in done.stderr, (command, done)


def test_other_families_are_refused(tmp_path):
    path = tmp_path / "eurobert"
    shutil.copytree(golden.HERE / "folders/family-eurobert", path)
    (path / "modules.json").unlink()
    config = json.loads((path / "config.json").read_text()) | {"architectures": ["EuroBertForSequenceClassification"]}
    (path / "config.json").unlink()
    (path / "config.json").write_text(json.dumps(config))
    assert "classifiers of the family eurobert are not supported" in dump(path, ["a"])
