# SPDX-License-Identifier: Apache-2.0
"""The text-embeddings-inference dialect: shapes, statuses and errors of TEI 1.9, word for word."""
import json
import math
import pathlib

import numpy
import pytest
import serving
from dialects import LONG, TEXTS, embedded, f32, good, post, tokens, unbase64, vectors


@pytest.fixture
def embed_tokens():
    return lambda texts: [line["embeddings"] for line in embedded(tuple(texts), ("--output-kind", "tokens"))]


def error(reply, status, kind):
    assert reply.status == status, reply
    assert reply.headers["content-type"] == "application/json"
    body = reply.json()
    assert list(body) == ["error", "error_type"] and body["error_type"] == kind
    return body["error"]


def text_error(reply, status):
    assert reply.status == status, reply
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    return reply.body.decode()


@pytest.mark.parametrize("path", ["/embed", "/"])
def test_embed(server, path):
    assert [f32(row) for row in good(post(server, path, {"inputs": TEXTS}))] == vectors(TEXTS)
    assert [f32(row) for row in good(post(server, path, {"inputs": TEXTS[0]}))] == vectors(TEXTS[:1])


def test_the_vector_of_teis_own_test(server):
    """text-embeddings-inference, router/tests/snapshots: all-MiniLM-L6-v2, "test", 128 dimensions, 4e-3."""
    row = good(post(server, "/embed", {"inputs": "test", "dimensions": 128}))[0]
    assert len(row) == 128 and abs(math.hypot(*row) - 1) < 1e-6
    for got, want in zip(row, (0.020964134, 0.04565805, -0.066505864, 0.10739273, -0.013054413), strict=False):
        assert abs(got - want) < 4e-3


def test_ids(server):
    ids = [101, 1037, 4937, 7719, 2006, 1996, 13523, 1012, 102]
    want = vectors(TEXTS[:1])
    assert [f32(row) for row in good(post(server, "/embed", {"inputs": ids}))] == want
    assert [f32(row) for row in good(post(server, "/embed", {"inputs": [ids, ids]}))] == want * 2
    assert "30522" in error(post(server, "/embed", {"inputs": [30522]}), 422, "Validation")


def test_texts_and_ids_in_one_list(server, start):
    """As TEI's Input has it: every item by itself, whatever comes first."""
    ids = [101, 7592, 2088, 102]
    one, two = good(post(server, "/embed", {"inputs": "hello world"})), good(post(server, "/embed", {"inputs": TEXTS[1]}))
    for inputs, want in (([TEXTS[1], ids], two + one), ([ids, TEXTS[1]], one + two), ([ids, ids, TEXTS[1], ids], one * 2 + two + one)):
        assert [f32(row) for row in good(post(server, "/embed", {"inputs": inputs}))] == [f32(row) for row in want]
    reply = post(server, "/embed", {"inputs": [ids, "b", ids], "truncate": False, "details": True})
    assert good(reply)["tokens"] == [4, 3, 4]
    assert reply.headers["x-compute-characters"] == "1" and reply.headers["x-compute-tokens"] == "11"
    for inputs in (["a", []], [[], "a"], [ids, ""]):
        assert post(server, "/embed", {"inputs": inputs}).json()["error_type"] == "Empty"
    for inputs, place in ((["a", 1], "inputs[1]"), ([1, "a"], "inputs[1]"), (["a", ["b"]], "inputs[1]"), (["a", [1.5]], "inputs[1]")):
        reply = post(server, "/embed", {"inputs": inputs})
        assert reply.status == 422 and place in reply.body.decode()
    assert post(server, "/embed", {"inputs": ["a", [10 ** 6]]}).status == 422
    assert post(server, "/v1/embeddings", {"input": ["a", ids]}).status == 400, "OpenAI has no such list"
    prompted = start("-m", serving.ROOT / "tests" / "golden" / "folders" / "prompts", model=False)
    plain = [good(post(prompted, "/embed", {"inputs": text, "prompt_name": "passage"}))[0] for text in ("sea", "far")]
    ids = [token["id"] for token in good(post(prompted, "/tokenize", {"inputs": "sea", "prompt_name": "passage"}))[0]]
    for more in ({}, {"prompt_name": "passage"}):
        mixed = good(post(prompted, "/embed", {"inputs": [ids, "far"], **more}))
        assert mixed[0] == plain[0] and mixed[1] == good(post(prompted, "/embed", {"inputs": "far", **more}))[0]


def test_raw_vectors(server):
    body = good(post(server, "/embed", {"inputs": TEXTS, "normalize": False}))
    assert [f32(row) for row in body] == vectors(TEXTS, "--normalize", "false")
    assert abs(math.hypot(*body[0]) - 1) > 0.1


def test_times_and_counts(server):
    reply = post(server, "/embed", {"inputs": ["héllo", "world"]})
    assert reply.headers["x-compute-type"] == "cpu+optimized"
    assert reply.headers["x-compute-characters"] == "10"
    assert reply.headers["x-compute-tokens"] == str(sum(tokens(["héllo", "world"])))
    for name in ("x-compute-time", "x-total-time", "x-tokenization-time", "x-queue-time", "x-inference-time"):
        assert reply.headers[name].isdigit()


def test_details(server):
    body = good(post(server, "/embed", {"inputs": [TEXTS[0], LONG], "details": True}))
    assert set(body) == {"embeddings", "tokens", "truncated"}
    assert body["tokens"] == [tokens(TEXTS[:1])[0], 256] and body["truncated"] == [False, True]
    assert f32(body["embeddings"][0]) == vectors(TEXTS[:1])[0]


def test_types_and_raw_bytes(server):
    want = [[int(x) for x in row] for row in vectors(TEXTS, "--dtype", "int8")]
    assert good(post(server, "/embed", {"inputs": TEXTS, "output_dtype": "int8"})) == want
    reply = post(server, "/embed", {"inputs": TEXTS}, accept="application/octet-stream", x_fletch_dtype="int8")
    assert memoryview(reply.body).cast("b").tolist() == [x for row in want for x in row]


@pytest.mark.parametrize("inputs", ["", [], ["a", ""], [[]]])
def test_nothing_to_embed(server, inputs):
    assert error(post(server, "/embed", {"inputs": inputs}), 400, "Empty") == \
        "Input validation error: `inputs` cannot be empty"


def test_too_long(server):
    for body, count in (({"inputs": LONG}, 402), ({"inputs": ["a", LONG]}, 402), ({"inputs": [[101] * 300]}, 300)):
        assert error(post(server, "/embed", body | {"truncate": False}), 422, "Validation") == \
            f"Input validation error: `inputs` must have less than 256 tokens. Given: {count}"
    exact = "word " * 254
    assert tokens([exact]) == [256]
    good(post(server, "/embed", {"inputs": exact, "truncate": False}))
    good(post(server, "/embed", {"inputs": LONG, "truncate": None}))


def test_dimensions(server):
    start = "Input validation error: `dimensions` should be "
    assert error(post(server, "/embed", {"inputs": "a", "dimensions": 0}), 422, "Validation") == start + "positive"
    assert error(post(server, "/embed", {"inputs": "a", "dimensions": 385}), 422, "Validation") == \
        start + "smaller than the maximum embedding dimension."


def test_unknown_prompt(server):
    assert error(post(server, "/embed", {"inputs": "a", "prompt_name": "x"}), 422, "Validation") == (
        "Input validation error: `default-prompt-name` is set to `x` but it was not found in the Sentence Transformers "
        "prompts. Available prompts: []")


def test_bodies(server):
    syntax = "Failed to parse the request body as JSON: "
    data = "Failed to deserialize the JSON body into the target type: "
    assert text_error(post(server, "/embed", b'{"inputs": "a"'), 400).startswith(syntax + "EOF while parsing an object at line 1")
    assert text_error(post(server, "/embed", b"{'inputs'}"), 400) == syntax + "key must be a string at line 1 column 2"
    assert text_error(post(server, "/embed", {}), 422) == data + "missing field `inputs` at line 1 column 3"
    assert text_error(post(server, "/embed", {"inputs": None}), 422).startswith(data + "inputs: invalid type: null")
    assert text_error(post(server, "/embed", {"inputs": "a", "truncate": "x"}), 422).startswith(data + "truncate: ")
    assert text_error(post(server, "/embed", {"inputs": "a", "truncation_direction": "Up"}), 422).startswith(
        data + "truncation_direction: unknown variant `Up`")
    assert text_error(post(server, "/embed", {"inputs": "a"}, content_type="text/plain"), 415) == \
        "Expected request with `Content-Type: application/json`"


def test_similarity(server):
    rows = vectors(TEXTS)
    want = [sum(a * b for a, b in zip(rows[0], row, strict=True)) for row in rows[1:]]
    got = good(post(server, "/similarity", {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]},
                                            "parameters": {"truncate": True}}))
    assert got == pytest.approx(want, abs=1e-6)
    raw = post(server, "/similarity", {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}}, x_fletch_normalize="false")
    assert good(raw) == got  # a cosine is one whatever a header says
    assert error(post(server, "/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}), 400, "Empty") == \
        "`inputs.sentences` cannot be empty"
    assert "inputs: missing field `sentences`" in text_error(post(server, "/similarity", {"inputs": {"source_sentence": ""}}), 422)
    error(post(server, "/similarity", {"inputs": {"source_sentence": "", "sentences": ["a"]}}), 400, "Empty")


def test_tokenize_and_decode(server):
    tokenizers = pytest.importorskip("tokenizers")
    reference = tokenizers.Tokenizer.from_file(f"{serving.MODEL}/tokenizer.json")
    reference.no_truncation()
    reference.no_padding()
    texts = [*TEXTS, "[MASK] x\u0000y"]
    for special in (True, False):
        got = good(post(server, "/tokenize", {"inputs": texts, "add_special_tokens": special}))
        for text, row in zip(texts, got, strict=True):
            want = reference.encode(text, add_special_tokens=special)
            assert [t["id"] for t in row] == want.ids
            assert [t["special"] for t in row] == [bool(x) for x in want.special_tokens_mask]
            bounds = [0]
            for char in text:
                bounds.append(bounds[-1] + len(char.encode()))
            for token, (start, stop), hidden, name in zip(row, want.offsets, want.special_tokens_mask, want.tokens,
                                                          strict=True):
                place = (None, None) if hidden else (bounds[start], bounds[stop])
                assert (token["start"], token["stop"]) == place
                assert token["text"] == (name if hidden else text[start:stop])
        back = good(post(server, "/decode", {"ids": [[t["id"] for t in row] for row in got[:3]]}))
        assert back == [reference.decode([t["id"] for t in row]) for row in got[:3]]
    assert good(post(server, "/tokenize", {"inputs": "hello"}))[0][1] == {
        "id": 7592, "text": "hello", "special": False, "start": 0, "stop": 5}
    assert good(post(server, "/decode", {"ids": [101, 7592, 102], "skip_special_tokens": False})) == ["[CLS] hello [SEP]"]
    assert error(post(server, "/tokenize", {"inputs": []}), 400, "Empty") == "`inputs` cannot be empty"
    assert error(post(server, "/decode", {"ids": []}), 400, "Empty") == \
        "Input validation error: `input_ids` cannot be empty"
    for empty in ("", ["a", ""]):
        assert error(post(server, "/tokenize", {"inputs": empty}), 400, "Empty") == \
            "Input validation error: `inputs` cannot be empty"
    error(post(server, "/decode", {"ids": [99999]}), 422, "Tokenizer")


@pytest.mark.parametrize("path, body", [("/tokenize", {"inputs": ["a"] * 100000}), ("/decode", {"ids": [[101]] * 100000})])
def test_token_work_has_a_deadline(server, path, body):
    assert "deadline" in error(post(server, path, body, x_fletch_deadline_ms="1"), 504, "Backend")


@pytest.mark.parametrize("path,body,message", [
    ("/embed_sparse", {"inputs": "a"}, "Model is not an embedding model with SPLADE pooling"),
    ("/predict", {"inputs": "a"}, "Model is not a classifier model"),
    ("/rerank", {"query": "a", "texts": ["b"]}, "model is not a re-ranker model"),
])
def test_other_heads(server, path, body, message):
    assert error(post(server, path, body), 424, "Backend") == "Backend error: " + message


def test_vectors_of_tokens(server, embed_tokens):
    got = good(post(server, "/embed_all", {"inputs": TEXTS}))
    want = embed_tokens(TEXTS)
    assert [[f32(row) for row in rows] for rows in got] == [[f32(row) for row in rows] for rows in want]
    assert [f32(row) for row in good(post(server, "/embed_all", {"inputs": TEXTS[0]}))[0]] == [f32(row) for row in want[0]]
    ids = [101, 1037, 4937, 7719, 2006, 1996, 13523, 1012, 102]
    assert [len(rows) for rows in good(post(server, "/embed_all", {"inputs": [ids, "a cat"]}))] == [9, 4]
    reply = post(server, "/embed_all", {"inputs": LONG})
    assert len(good(reply)[0]) == 256 and reply.headers["x-fletch-truncated"] == "1"
    error(post(server, "/embed_all", {"inputs": LONG, "truncate": False}), 422, "Validation")
    error(post(server, "/embed_all", {"inputs": [30522]}), 422, "Validation")
    error(post(server, "/embed_all", {"inputs": ["a", ""]}), 400, "Empty")
    reply = post(server, "/embed_all", {"inputs": ["word " * 300] * 600})
    assert reply.status == 413 and "x-fletch-limit" in reply.headers


def test_sparse_vectors(start):
    folder = pathlib.Path(__file__).parents[1] / "golden/folders/sparse-bert"
    texts, want = json.loads((folder.parent / "texts.json").read_text())[4:8], numpy.load(folder / "sparse.npz")["rows"][4:8]
    server = start("--model", folder, model=False)
    for inputs in (texts, [[2, 40, 41, 3], *texts]):  # texts and ids in one list, too
        rows = good(post(server, "/embed_sparse", {"inputs": inputs}))[-4:]
        for row, expected in zip(rows, want, strict=True):
            assert [list(entry) for entry in row] == [["index", "value"]] * len(row)
            ids = [entry["index"] for entry in row]
            assert ids == sorted(set(ids)) and ids == numpy.flatnonzero(expected).tolist()
            assert numpy.abs([entry["value"] for entry in row] - expected[ids]).max() <= 1e-5
    error(post(server, "/embed_sparse", {"inputs": "x " * 100, "truncate": False}), 422, "Validation")
    error(post(server, "/embed_sparse", {"inputs": ["a", ""]}), 400, "Empty")
    for path in ("/embed", "/embed_all"):
        assert "sparse" in error(post(server, path, {"inputs": "a"}), 424, "Backend")
    assert good(server.ask("GET", "/info"))["model_type"] == {"embedding": {"pooling": "splade"}}


def test_sparse_and_dense_vectors_of_one_model(start):
    folder = pathlib.Path(__file__).parents[1] / "golden/token_heads/bge-m3"
    texts, want = json.loads((folder.parent / "texts.json").read_text())[:3], numpy.load(folder / "expected.npz")
    server = start("--model", folder, model=False)
    rows = good(post(server, "/embed_sparse", {"inputs": texts}))
    for i, row in enumerate(rows):
        span = slice(*want["sparse_offsets"][i:i + 2])
        assert [entry["index"] for entry in row] == want["ids"][span].tolist()
        assert numpy.abs([entry["value"] for entry in row] - want["weights"][span]).max() <= 1e-5
    assert numpy.abs(numpy.array(good(post(server, "/embed", {"inputs": texts}))) - want["rows"][:3]).max() <= 1e-5
    assert good(post(server, "/embed_sparse", {"inputs": ["the cat"] * 20}))[19] == good(post(server, "/embed_sparse", {"inputs": "the cat"}))[0]


def test_weights_that_a_reply_has_no_room_for_are_refused(start):
    folder = pathlib.Path(__file__).parents[1] / "golden/folders/sparse-bert"
    server = start("--model", folder, "--server-max-reply-memory", "1MiB", model=False)
    refused = post(server, "/embed_sparse", {"inputs": ["the cat"] * 1500})  # 122 entries of 8 bytes each are held for
    assert refused.status == 413 and refused.headers["x-fletch-limit"] == "server.max_reply_memory", refused
    assert len(good(post(server, "/embed_sparse", {"inputs": ["the cat"] * 20}))) == 20


def test_sparse_vectors_of_queries_and_documents(start):
    folder = pathlib.Path(__file__).parents[1] / "golden/folders/router-tensor"
    texts, want = json.loads((folder.parent / "texts.json").read_text())[4:8], numpy.load(folder / "router.npz")
    server = start("--model", folder, model=False)
    for side, name in (("query", {"prompt_name": "query"}), ("document", {"prompt_name": "document"})):
        rows = good(post(server, "/embed_sparse", {"inputs": texts} | name))
        for row, expected in zip(rows, want[side][4:8], strict=True):
            ids = [entry["index"] for entry in row]
            assert ids == numpy.flatnonzero(expected).tolist()
            assert numpy.abs([entry["value"] for entry in row] - expected[ids]).max() <= 1e-5
    ids = good(post(server, "/tokenize", {"inputs": "cat", "add_special_tokens": True}))[0]
    mixed = good(post(server, "/embed_sparse", {"inputs": ["cat", [entry["id"] for entry in ids]], "prompt_name": "query"}))
    assert mixed[1] == [entry for entry in mixed[0] if entry["index"] == ids[1]["id"]]
    error(post(server, "/embed_sparse", {"inputs": "a", "prompt_name": "passage"}), 422, "Validation")


def test_rerank_without_texts(server):
    assert error(post(server, "/rerank", {"query": "a", "texts": []}), 400, "Empty") == "`texts` cannot be empty"


def test_info_and_health(server):
    info = good(server.ask("GET", "/info"))
    assert info["model_type"] == {"embedding": {"pooling": "mean"}}
    assert info["max_input_length"] == 256 and info["auto_truncate"] is True and info["model_dtype"] == "float32"
    assert info["max_client_batch_size"] > 10000 and info["dimensions"] == 384
    for name in ("model_id", "model_sha", "served_model_name", "max_concurrent_requests", "max_batch_tokens",
                 "max_batch_requests", "tokenization_workers", "version", "sha", "docker_label"):
        assert name in info
    for path in ("/health", "/ping"):
        reply = server.ask("GET", path)
        assert (reply.status, reply.body) == (200, b"")


def test_wrong_methods(server):
    reply = server.ask("GET", "/embed")
    assert reply.status == 405 and reply.json()["error_type"] == "Validation" and "POST" in reply.headers["allow"]


def test_refused_long_texts_by_option(start):
    server = start("--truncate", "error")
    assert good(server.ask("GET", "/info"))["auto_truncate"] is False
    error(post(server, "/embed", {"inputs": LONG}), 422, "Validation")
    error(post(server, "/embed", {"inputs": LONG, "truncation_direction": "Left"}), 422, "Validation")
    good(post(server, "/embed", {"inputs": LONG, "truncate": True}))
    good(post(server, "/v1/embeddings", {"input": LONG}, x_fletch_truncate="right"))


def test_base64_is_not_a_tei_word(server):
    """/embed knows no encoding_format: unknown fields are ignored, numbers come."""
    body = good(post(server, "/embed", {"inputs": "a", "encoding_format": "base64"}))
    assert isinstance(body[0][0], float) and unbase64("AACAPw==") == [1.0]
