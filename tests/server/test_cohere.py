# SPDX-License-Identifier: Apache-2.0
"""The Cohere dialect: several element types at once, truncation by side, rerank refused in its own words."""
import pytest
from dialects import LONG, TEXTS, f32, good, post, tokens, unbase64, vectors


def error(reply, status):
    assert reply.status == status, reply
    assert list(reply.json()) == ["message"]
    return reply.json()["message"]


def test_embed(server):
    body = good(post(server, "/v2/embed", {"model": "embed-v4.0", "texts": TEXTS, "input_type": "search_document"}))
    assert list(body) == ["id", "embeddings", "texts", "response_type", "meta"]
    assert list(body["embeddings"]) == ["float"] and body["texts"] == list(TEXTS)
    assert [f32(row) for row in body["embeddings"]["float"]] == vectors(TEXTS)
    assert body["response_type"] == "embeddings_by_type"
    assert body["meta"] == {"api_version": {"version": "2"}, "billed_units": {"input_tokens": sum(tokens(TEXTS))}}


def test_all_types_of_one_pass(server):
    kinds = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
    body = good(post(server, "/v2/embed", {"model": "m", "texts": TEXTS, "embedding_types": kinds}))["embeddings"]
    assert list(body) == kinds
    assert [unbase64(row) for row in body["base64"]] == [f32(row) for row in body["float"]] == vectors(TEXTS)
    for kind in kinds[1:5]:
        assert body[kind] == [[int(x) for x in row] for row in vectors(TEXTS, "--dtype", kind)]


def test_dimension(server):
    body = good(post(server, "/v2/embed", {"model": "m", "texts": TEXTS[:1], "output_dimension": 64}))
    assert f32(body["embeddings"]["float"][0]) == vectors(TEXTS[:1], "--dimensions", "64")[0]
    for wrong in (0, 385):
        assert "output_dimension" in error(post(server, "/v2/embed", {"texts": ["a"], "output_dimension": wrong}), 400)


def test_truncate(server):
    text = "cats " * 300 + "dogs " * 300
    rows = {cut: f32(good(post(server, "/v2/embed", {"texts": [text], "truncate": cut}))["embeddings"]["float"][0])
            for cut in ("START", "END")}
    assert rows["END"] == vectors([text])[0] and rows["START"] == vectors([text], "--truncate", "left")[0]
    assert "too many tokens" in error(post(server, "/v2/embed", {"texts": [LONG], "truncate": "NONE"}), 400)
    body = good(post(server, "/v2/embed", {"texts": ["a", LONG], "details": True}))
    assert body["meta"]["tokens"] == [3, 256] and body["meta"]["truncated"] == [False, True]


@pytest.mark.parametrize("body,part", [
    (b"{", "invalid json syntax"), ({}, "missing field `texts`"), ({"texts": []}, "non-empty list"),
    ({"texts": ["a", ""]}, "of non-empty texts"), ({"texts": "a"}, "expected a list of strings"), ({"texts": [7]}, "texts[0]"),
    ({"texts": ["a"], "input_type": "x"}, "input_type"), ({"texts": ["a"], "embedding_types": ["float16"]}, "embedding_types"),
    ({"texts": ["a"], "truncate": "none"}, "truncate"),
])
def test_bad_bodies(server, body, part):
    assert part in error(post(server, "/v2/embed", body), 400)


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_rerank(server, path):
    assert "is not a re-ranker model" in error(post(server, path, {"model": "m", "query": "q", "documents": ["a"]}), 400)
    assert "query" in error(post(server, path, {"documents": ["a"]}), 400)
    assert "content-type" in error(post(server, path, {}, content_type="text/plain"), 415).lower()


def test_unknown_paths(server):
    error(server.ask("GET", "/v2/nothing"), 404)
