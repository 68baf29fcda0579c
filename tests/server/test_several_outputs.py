# SPDX-License-Identifier: Apache-2.0
"""Several outputs of one pass on /v1/embeddings: FlagEmbedding's values (make_token_heads.py), the bytes of the routes for one of
them, and the OpenAI shape for who asks for none."""
import json
import pathlib
import re
import struct

import numpy
import pytest
import serving
from dialects import f32, good, post, unbase64

PATH = "/v1/embeddings"
GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
M3 = GOLDEN / "token_heads/bge-m3"
TEXTS = [text for text in json.loads((M3.parent / "texts.json").read_text(encoding="utf-8")) if text]
WHICH = [i for i, text in enumerate(json.loads((M3.parent / "texts.json").read_text(encoding="utf-8"))) if text]
WANT = numpy.load(M3 / "expected.npz")
ALL = ["dense", "dense:8", "dense:16:int8", "sparse", "tokens", "colbert"]


@pytest.fixture(scope="module", name="m3")
def m3_(tmp_path_factory):
    running = serving.Server(tmp_path_factory.mktemp("server"), "--model", M3, model=False)
    yield running
    assert running.ask("GET", "/ready").status == 200
    assert running.end() == 0, running.log()


def ask(server, outputs, status=200, **fields):
    reply = post(server, PATH, {"input": TEXTS, "model": "m", "outputs": outputs, **fields})
    assert reply.status == status, reply
    return good(reply)["data"] if status == 200 else reply.json()["error"]["message"]


def span(of, i):
    return slice(*WANT[of][WHICH[i]:WHICH[i] + 2])


def test_outputs_are_those_of_the_reference(m3):
    for i, item in enumerate(ask(m3, ["dense", "sparse", "colbert"])):
        assert list(item) == ["object", "index", "embedding", "outputs"] and list(item["outputs"]) == ["sparse", "colbert"]
        assert numpy.abs(item["embedding"] - WANT["rows"][WHICH[i]]).max() <= 1e-5
        assert item["outputs"]["sparse"]["indices"] == WANT["ids"][span("sparse_offsets", i)].tolist()
        weights = WANT["weights"][span("sparse_offsets", i)]
        assert len(weights) == 0 or numpy.abs(item["outputs"]["sparse"]["values"] - weights).max() <= 1e-5
        assert numpy.abs(numpy.array(item["outputs"]["colbert"]).reshape(-1, 32) - WANT["vectors"][span("offsets", i)]).max() <= 1e-5


def test_each_is_what_its_own_route_gives(m3):
    reply = post(m3, PATH, {"input": TEXTS, "model": "m", "outputs": ALL, "details": True})
    body, alone = good(reply), post(m3, PATH, {"input": TEXTS, "model": "m"})
    assert body["usage"] == good(alone)["usage"]
    for name in ("x-fletch-vector-id", "x-fletch-fingerprint", "x-fletch-truncated"):
        assert reply.headers[name] == alone.headers[name], name
    rows = {name: good(post(m3, PATH, {"input": TEXTS, "model": "m", **fields}))["data"] for name, fields in
            {"dense:8": {"dimensions": 8}, "dense:16:int8": {"dimensions": 16, "output_dtype": "int8"}}.items()}
    sparse, tokens = (good(post(m3, path, {"inputs": TEXTS})) for path in ("/embed_sparse", "/embed_all"))
    for i, item in enumerate(body["data"]):
        assert item["embedding"] == good(alone)["data"][i]["embedding"] and item["tokens"] > 0
        assert {name: item["outputs"][name] for name in rows} == {name: found[i]["embedding"] for name, found in rows.items()}
        assert [{"index": k, "value": v} for k, v in zip(*item["outputs"]["sparse"].values(), strict=True)] == sparse[i]
        assert item["outputs"]["tokens"] == tokens[i]
        assert len(item["outputs"]["colbert"]) == len(tokens[i]) - 1


def test_base64_and_the_id_of_the_first_row(m3):
    found = ask(m3, ["sparse", "dense:8:binary", "dense"], encoding_format="base64")
    plain = ask(m3, ["sparse", "dense:8:binary", "dense"])
    for one, two in zip(found, plain, strict=True):
        assert unbase64(one["outputs"]["dense"]) == f32(two["outputs"]["dense"])
        assert unbase64(one["embedding"], "b") == two["embedding"] and one["outputs"]["sparse"] == two["outputs"]["sparse"]
    ids = [post(m3, PATH, {"input": "a", "model": "m", **fields}).headers["x-fletch-vector-id"] for fields in
           ({"outputs": ["sparse", "dense:8:binary"]}, {"dimensions": 8, "output_dtype": "binary"})]
    assert ids[0] == ids[1]
    reply = post(m3, PATH, {"input": "a", "model": "m", "outputs": ["sparse"]})
    assert "x-fletch-vector-id" not in reply.headers and good(reply)["data"][0]["embedding"] == []


def test_one_pass_for_all(m3):
    def counted():
        return good(m3.ask("GET", "/stats"))["models"][0]["stats"]
    before = counted()
    ask(m3, ALL)
    after = counted()
    assert after["texts"] - before["texts"] == after["sparse_texts"] - before["sparse_texts"] == len(TEXTS)


def test_ids_and_prompts_and_null(m3):
    assert "outputs" not in ask(m3, None)[0]
    ids = [0, 5, 6, 2]
    item = good(post(m3, PATH, {"input": [ids], "model": "m", "outputs": ["tokens", "dense"]}))["data"][0]
    assert len(item["outputs"]["tokens"]) == 4
    assert item["embedding"] == good(post(m3, PATH, {"input": ids, "model": "m"}))["data"][0]["embedding"]
    raw = ask(m3, ["dense", "tokens", "colbert"], normalize=False)
    assert raw[0]["embedding"] != ask(m3, ["dense"])[0]["embedding"] and raw[0]["outputs"]["tokens"] == ask(m3, ["tokens"])[0]["outputs"]["tokens"]


@pytest.mark.parametrize("outputs, words", [
    ([], "name 1 to 16"), (["dense:%d" % (i + 1) for i in range(17)], "name 1 to 16"), (["dence"], 'unknown output \"dence\"'), ([""], 'unknown output \"\"'),
    (["sparse", "sparse"], "named twice"), (["dense:8", "sparse", "dense:8"], "named twice"), (["dense:33"], "dimensions"), (["dense:999999999"], "dimensions"),
    ("dense", "expected"), ([1], "expected"), ([["dense"]], "expected"), ({"dense": 1}, "expected"), ([None], "expected")])
def test_what_cannot_be_is_named(m3, outputs, words):
    assert words in ask(m3, outputs, 400)


def test_what_a_name_does_not_say_is_said_by_the_body(m3):
    names = ["dense", "dense:4", "dense:float32", "dense:4:binary"]
    item = ask(m3, names, dimensions=8, output_dtype="int8")[0]
    want = ask(m3, ["dense:8:int8", "dense:4:int8", "dense:8:float32", "dense:4:binary"])[0]
    assert [item["embedding"], *item["outputs"].values()] == [want["embedding"], *want["outputs"].values()]
    assert ask(m3, ["dense", "dense:8"], dimensions=8)[0]["outputs"]["dense:8"] == ask(m3, ["dense:8"])[0]["embedding"]
    assert "dimensions" in ask(m3, ["sparse"], 400, dimensions=33)
    reply = post(m3, PATH, {"input": TEXTS, "model": "m", "outputs": ["dense"]}, accept="application/octet-stream")
    assert reply.status == 400 and "octet-stream" in reply.json()["error"]["message"]


def test_the_description_has_the_outputs_of_the_model(m3, server):
    def pattern(of):
        schema = good(of.ask("GET", "/openapi.json"))["paths"][PATH]["post"]["requestBody"]["content"]["application/json"]["schema"]
        return re.compile(schema["properties"]["outputs"]["items"]["pattern"])
    for of, dimensions, heads in ((m3, 32, True), (server, 384, False)):
        has = pattern(of).search
        assert [n for n in range(2000) if has(f"dense:{n}")] == list(range(1, dimensions + 1))
        assert [bool(has(name)) for name in ("dense", "dense:7:int8", "dense:ubinary", "tokens", "dense:int8:7")] == [True] * 4 + [False]
        assert bool(has("sparse")) == bool(has("colbert")) == heads


def test_texts_that_cannot_be_embedded(m3):
    reply = post(m3, PATH, {"input": TEXTS, "model": "m", "outputs": ALL, "truncate": False})
    assert reply.status == 400 and "maximum context length" in reply.json()["error"]["message"]
    assert post(m3, PATH, {"input": ["a", ""], "model": "m", "outputs": ALL}).status == 400


@pytest.mark.parametrize("folder, outputs, words", [
    ("folders/plain-bert", ["dense", "sparse"], "sparse"), ("folders/plain-bert", ["colbert"], "colbert_linear"),
    ("folders/sparse-bert", ["sparse", "dense"], "SPLADE"), ("late/bert", ["tokens", "dense"], "ColBERT"), ("scores/bert", ["dense"], "scores")])
def test_what_a_model_has_not_is_named(start, folder, outputs, words):
    server = start("--model", GOLDEN / folder, model=False)
    assert words in ask(server, outputs, 400)
    if folder == "late/bert":
        assert [item["outputs"]["tokens"] for item in ask(server, ["tokens"])] == good(post(server, "/embed_all", {"inputs": TEXTS}))


@pytest.mark.parametrize("limit, count", [("max-reply-memory", 3000), ("max-body-memory", 400)])
def test_lists_that_there_is_no_room_for_are_refused(start, limit, count):
    server = start("--model", M3, f"--server-{limit}", "1MiB", model=False)
    refused = post(server, PATH, {"input": ["the cat"] * count, "model": "m", "outputs": ["tokens", "sparse", "colbert"]})
    assert refused.status == 413 and refused.headers["x-fletch-limit"] == "server." + limit.replace("-", "_"), refused
    assert len(good(post(server, PATH, {"input": ["the cat"] * 20, "model": "m", "outputs": ["tokens", "sparse", "colbert"]}))["data"]) == 20


def test_a_large_answer_is_whole(m3):
    """Written by a worker, its lists let go there."""
    texts = [f"the cat sat {i}" for i in range(600)]
    data = good(post(m3, PATH, {"input": texts, "model": "m", "outputs": ALL}))["data"]
    assert [item["index"] for item in data] == list(range(600))
    few = good(post(m3, PATH, {"input": texts[-1:], "model": "m", "outputs": ALL}))["data"][0]
    assert data[-1]["outputs"] == few["outputs"] and struct.pack("<32f", *data[-1]["embedding"]) == struct.pack("<32f", *few["embedding"])
