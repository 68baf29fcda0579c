# SPDX-License-Identifier: Apache-2.0
"""The Ollama dialect: shapes, what it forgives, and its errors."""
import datetime
import json
import pathlib

import pytest
import serving
from dialects import LONG, TEXTS, f32, good, post, tokens, vectors


def test_embed(server):
    body = good(post(server, "/api/embed", {"model": "all-minilm", "input": TEXTS, "keep_alive": "5m", "options": {"a": 1}}))
    assert list(body) == ["model", "embeddings", "total_duration", "load_duration", "prompt_eval_count"]
    assert body["model"] == serving.NAME and body["prompt_eval_count"] == sum(tokens(TEXTS))
    assert body["total_duration"] > 0 and body["load_duration"] == 0
    assert [f32(row) for row in body["embeddings"]] == vectors(TEXTS)
    one = good(post(server, "/api/embed", {"model": "m", "input": TEXTS[0]}))
    assert [f32(row) for row in one["embeddings"]] == vectors(TEXTS[:1])


def test_the_vector_of_ollamas_own_test(server):
    """ollama, integration/embed_test.go: all-minilm (quantised), "why is the sky blue?": only close."""
    row = good(post(server, "/api/embed", {"model": "m", "input": "why is the sky blue?"}))["embeddings"][0]
    for got, want in zip(row, (0.010071031, -0.0017594865, 0.050072223), strict=False):
        assert abs(got - want) < 5e-3
    body = good(post(server, "/api/embed", {"model": "m", "input": ["why is the sky blue?", "why is the grass green?"]}))
    assert body["prompt_eval_count"] == 16


def test_legacy_route_gives_raw_vectors(server):
    body = good(post(server, "/api/embeddings", {"model": "m", "prompt": TEXTS[0]}))
    assert list(body) == ["embedding"]
    assert f32(body["embedding"]) == vectors(TEXTS[:1], "--normalize", "false")[0]


def test_nothing_is_not_an_error(server):
    for body in ({"model": "m", "input": []}, {"model": "m", "input": ""}, {"model": "m"}, {"model": "m", "input": None}):
        assert good(post(server, "/api/embed", body)) == {"model": serving.NAME, "embeddings": []}
    for body in ({"model": "m", "prompt": ""}, {"model": "m"}):
        assert good(post(server, "/api/embeddings", body)) == {"embedding": []}


def test_dimensions(server):
    body = good(post(server, "/api/embed", {"model": "m", "input": TEXTS[0], "dimensions": 64}))
    assert f32(body["embeddings"][0]) == vectors(TEXTS[:1], "--dimensions", "64")[0]
    for ignored in (0, -1, 385, None):
        body = good(post(server, "/api/embed", {"model": "m", "input": "a", "dimensions": ignored}))
        assert len(body["embeddings"][0]) == 384


def test_too_long(server):
    reply = post(server, "/api/embed", {"model": "m", "input": ["a", LONG], "truncate": False})
    assert reply.status == 400 and reply.json() == {"error": "the input length exceeds the context length"}
    body = good(post(server, "/api/embed", {"model": "m", "input": ["a", LONG], "details": True}))
    assert body["tokens"] == [3, 256] and body["truncated"] == [False, True]


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", ""])
def test_any_content_type(server, kind):
    good(post(server, "/api/embed", {"model": "m", "input": "a"}, content_type=kind))


@pytest.mark.parametrize("body,part", [(b"", "missing request body"), (b"{", "EOF"), (b'{"input":7}', "input"),
                                       (b'{"input":["a",7]}', "input[1]"), (b'{"model":7}', "model")])
def test_bad_bodies(server, body, part):
    reply = post(server, "/api/embed", body)
    assert reply.status == 400 and set(reply.json()) == {"error"} and part in reply.json()["error"]


def test_tags_and_version(server):
    models = good(server.ask("GET", "/api/tags"))["models"]
    assert [m["name"] for m in models] == [serving.NAME] == [m["model"] for m in models]
    weights = pathlib.Path(serving.MODEL, "model.safetensors")
    info = good(server.ask("GET", "/info"))
    assert models[0]["size"] == weights.stat().st_size and models[0]["digest"] == info["model_fingerprint"]
    made = datetime.datetime.fromisoformat(models[0]["modified_at"])
    assert made.timestamp() == int(weights.stat().st_mtime)
    assert models[0]["details"] == {"parent_model": "", "format": "safetensors", "family": "bert", "families": ["bert"],
                                    "parameter_size": "22.71M", "quantization_level": "F32"}  # 22,713,216 by transformers
    assert good(server.ask("GET", "/api/version")) == {"version": good(server.ask("GET", "/info"))["version"]}


def test_errors_of_the_transport(server):
    reply = server.ask("GET", "/api/nothing")
    assert reply.status == 404 and set(reply.json()) == {"error"}
    reply = server.ask("GET", "/api/embed")
    assert reply.status == 405 and set(reply.json()) == {"error"}


def test_show_ps_and_pull_are_of_the_loaded_model(server):
    tag = good(server.ask("GET", "/api/tags"))["models"][0]
    running = good(server.ask("GET", "/api/ps"))["models"][0]
    assert {key: running[key] for key in tag} == tag
    assert running["size_vram"] == 0 and running["context_length"] == 256
    for body in ({"model": "all-minilm"}, {"model": "all-minilm:latest"}, {"model": tag["name"], "verbose": True}):
        shown = good(post(server, "/api/show", body))
        assert shown["details"] == tag["details"] and shown["capabilities"] == ["embedding"]
        assert shown["model_info"]["bert.embedding_length"] == 384 and shown["model_info"]["bert.context_length"] == 256
    assert good(post(server, "/api/pull", {"model": "all-minilm", "stream": False})) == {"status": "success"}
    lines = post(server, "/api/pull", {"model": "all-minilm"}).body.splitlines()
    assert json.loads(lines[-1]) == {"status": "success"}
    for path in ("/api/show", "/api/pull"):
        assert post(server, path, {"model": ""}).json() == {"error": "model is required"}
        assert "missing field `model`" in post(server, path, {}).json()["error"]
