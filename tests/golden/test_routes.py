# SPDX-License-Identifier: Apache-2.0
"""Sparse models with a route for queries and one for documents (make_lists.py): SparseEncoder's encode_query,
encode_document and encode."""
import json
import shutil
import subprocess

import numpy
import pytest

import golden
import test_lists

FOLDERS, TEXTS = golden.HERE / "folders", test_lists.TEXTS
ROUTERS = sorted(path.parent.name for path in FOLDERS.glob("*/router.npz"))
SIDES = {"query": ("--prompt-name", "query"), "document": ("--prompt-name", "document"), "rows": ()}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ROUTERS)
def test_routes(name, side, tmp_path):
    want = numpy.load(FOLDERS / name / "router.npz")[side]
    rows = test_lists.sparse(name, TEXTS, tmp_path, *SIDES[side])
    assert rows.shape == want.shape and numpy.abs(rows - want).max() <= 1e-5 and (rows > 0).any()
    for i in (2, 6, 11):
        assert test_lists.sparse(name, TEXTS[i:i + 1], tmp_path, *SIDES[side]).tobytes() == rows[i:i + 1].tobytes()


def test_a_query_is_cut_and_pruned_like_any_text(tmp_path):
    whole = test_lists.sparse("router-tensor", TEXTS, tmp_path, *SIDES["query"])
    heavy = test_lists.sparse("router-tensor", TEXTS, tmp_path, *SIDES["query"], "--threshold", "3")
    assert (heavy == numpy.where(whole >= 3, whole, 0)).all() and (heavy > 0).any()
    top = test_lists.sparse("router-tensor", TEXTS, tmp_path, *SIDES["query"], "--top-k", "2")
    assert ((top > 0).sum(axis=1) <= 2).all() and (top.max(axis=1) == whole.max(axis=1)).all()


def test_lists_without_entries_are_written(tmp_path):
    none = test_lists.sparse("router-tensor", TEXTS, tmp_path, *SIDES["query"], "--threshold", "99")
    assert none.shape == (12, 122) and not none.any()


def embed(folder, *flags):
    return subprocess.run([golden.BIN, "embed", "-m", folder, "--output-kind", "sparse", *flags, "the cat"],
                          capture_output=True, text=True, check=False)


def test_no_engine_is_asked_for_a_query(tmp_path):
    done = embed(FOLDERS / "router-tensor", "--prompt-name", "query", "--stats-json", tmp_path / "stats.json")
    assert done.returncode == 0, done.stderr
    counted = json.loads((tmp_path / "stats.json").read_text())
    assert (counted["sparse_texts"], counted["texts"], counted["idf_lookups"]) == (0, 0, 1) and counted["batches"] == 0


def test_doctor_tells_of_the_table():
    done = subprocess.run([golden.BIN, "doctor", "-m", FOLDERS / "router-tensor"], capture_output=True, text=True, check=False)
    assert "looked up in a table of" in done.stdout, done.stdout + done.stderr


def test_a_table_beside_a_plain_masked_language_model(tmp_path):
    """opensearch's models for documents alone: config.json, weights and idf.json."""
    plain = tmp_path / "model"
    shutil.copytree(FOLDERS / "sparse-plain", plain)
    (plain / "idf.json").write_text(json.dumps({"##e": 1.5, "cat": 2.5, "[UNK]": 1}))
    done = embed(plain, "--pooling", "splade", "--prompt-name", "query", "--format", "jsonl")
    assert json.loads(done.stdout)["values"] == [1.5, 2.5], done.stdout + done.stderr
    assert embed(plain, "--pooling", "splade", "--format", "jsonl").stdout == embed(
        FOLDERS / "sparse-plain", "--pooling", "splade", "--format", "jsonl").stdout


@pytest.mark.parametrize("file, old, new, code, words", [
    ("router_config.json", "SparseStaticEmbedding\"", "OtherTable\"", 2, "needs one of: query, document"),
    ("router_config.json", "\"document\": [", "\"passage\": [", 2, "needs one of: query, passage"),
    ("router_config.json", "\"route_mappings\": {}", "\"route_mappings\": {\"('query', None)\": \"query\"}", 3, "route_mappings"),
    ("router_config.json", "document_1_SpladePooling", "../document_1_SpladePooling", 3, "leaves the folder"),
    ("router_config.json", "{", "[", 3, "router_config.json"),
    ("query_0_SparseStaticEmbedding/tokenizer.json", "\"cat\"", "\"kat\"", 3, "another tokenizer"),
    ("query_0_SparseStaticEmbedding/config.json", "{", "{\"path\": \"/home/me/idf.json\", ", 3, "idf.json is missing"),
    ("query_0_SparseStaticEmbedding/model.safetensors", "weight", "height", 3, "\"weight\""),
])
def test_other_routes_are_refused(file, old, new, code, words, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(FOLDERS / "router-tensor", copy)
    raw = (copy / file).read_bytes()
    assert old.encode() in raw
    (copy / file).write_bytes(raw.replace(old.encode(), new.encode()))
    done = embed(copy)
    assert done.returncode == code and words in done.stderr, done.stderr


@pytest.mark.parametrize("idf, words", [("[1]", "not an object"), ('{"cat": "x"}', "not a number"), ('{"cat": 1e99}', "not finite")])
def test_a_damaged_idf_is_told(idf, words, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(FOLDERS / "router-idf", copy)
    (copy / "query_0_SparseStaticEmbedding/idf.json").write_text(idf)
    done = embed(copy)
    assert done.returncode == 3 and words in done.stderr, done.stderr


# ---- Routes of dense vectors: one of them is open ------------------------------------------------------

def dense(work, **changes):
    """router-dense with other values in its router_config.json; a key of None is taken away."""
    path = work / "dense"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(FOLDERS / "router-dense", path)
    config = json.loads((path / "router_config.json").read_text())
    config["parameters"] |= changes
    (path / "router_config.json").write_text(json.dumps(config))
    return path


def open_route(path, *flags):
    return subprocess.run([golden.BIN, "embed", "-m", path, *flags, "the cat"], capture_output=True, text=True, check=False)


def test_a_route_of_texts_is_the_one_that_nobody_has_to_name(tmp_path):
    path = dense(tmp_path)
    config = json.loads((path / "router_config.json").read_text())
    config["structure"] = {"text": config["structure"]["document"], "image": config["structure"]["query"]}
    (path / "router_config.json").write_text(json.dumps(config))
    assert open_route(path).stdout == open_route(FOLDERS / "router-dense", "--model-task", "document").stdout != ""


@pytest.mark.parametrize("changes, flags, code, says", [
    ({}, ("--model-task", "passage"), 2, "needs one of: query, document"),
    ({}, (), 2, "needs one of: query, document"),  # its default is documents'
    ({"route_mappings": {"('query', 'text')": "document"}}, ("--model-task", "query"), 3, "route_mappings"),
])
def test_a_route_that_is_not_there(changes, flags, code, says, tmp_path):
    done = open_route(dense(tmp_path, **changes), *flags)
    assert done.returncode == code and says in done.stderr, (done.returncode, done.stderr)


def test_asym_is_a_router(tmp_path):
    """Its older class, of which the routes stand in config.json."""
    path = dense(tmp_path)
    (path / "router_config.json").rename(path / "config.json")
    modules = json.loads((path / "modules.json").read_text())
    modules[0]["type"] = "sentence_transformers.models.Asym"
    (path / "modules.json").write_text(json.dumps(modules))
    assert open_route(path, "--model-task", "query").stdout == open_route(FOLDERS / "router-dense", "--model-task", "query").stdout
    modules[1:1] = [modules[0]]
    (path / "modules.json").write_text(json.dumps(modules))
    done = open_route(path, "--model-task", "query")
    assert done.returncode == 3 and "Asym" in done.stderr, done.stderr


@pytest.mark.parametrize("types, structure, says", [
    ({"document_0_Transformer": "evil.Module"}, {}, "evil.Module"),
    ({}, {"document": []}, "these routes"),
    ({}, {"document": ["document_0_Transformer", "nothing"]}, "has no type"),
    ({"../x": "sentence_transformers.models.Transformer"}, {"document": ["../x"]}, "leaves the folder"),
    ({"r": "sentence_transformers.models.Router"}, {"document": ["r"]}, "Router"),
    ({}, {"document": ["document_0_Transformer"] * 40}, "these routes"),
])
def test_routes_that_lie_are_told(types, structure, says, tmp_path):
    path = dense(tmp_path)
    config = json.loads((path / "router_config.json").read_text())
    config["types"] |= types
    config["structure"] |= structure
    (path / "router_config.json").write_text(json.dumps(config))
    done = open_route(path, "--model-task", "document")
    assert done.returncode == 3 and says in done.stderr, (done.returncode, done.stderr)
