# SPDX-License-Identifier: Apache-2.0
"""The OpenAI dialect: shapes, every form of input, errors word for word, and fletch's additions."""
import json
import os

import pytest
import serving
from dialects import LONG, TEXTS, f32, good, post, tokens, unbase64, vectors

PATH = "/v1/embeddings"
INVALID = ("'$.input' is invalid. Please check the API reference: https://platform.openai.com/docs/api-reference.")


def error(reply, status):
    assert reply.status == status, reply
    assert reply.headers["content-type"] == "application/json"
    body = reply.json()
    assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]


def test_a_list_of_texts(server):
    body = good(post(server, PATH, {"input": TEXTS, "model": "any", "user": "u"}))
    assert list(body) == ["object", "data", "model", "usage"]
    assert body["object"] == "list" and body["model"] == serving.NAME
    count = sum(tokens(TEXTS))
    assert body["usage"] == {"prompt_tokens": count, "total_tokens": count}
    for index, (item, want) in enumerate(zip(body["data"], vectors(TEXTS), strict=True)):
        assert list(item) == ["object", "index", "embedding"]
        assert item["object"] == "embedding" and item["index"] == index
        assert f32(item["embedding"]) == want


def test_a_single_text_and_base64(server):
    body = good(post(server, PATH, {"input": TEXTS[1], "model": "m", "encoding_format": "base64"}))
    assert [unbase64(item["embedding"]) for item in body["data"]] == vectors(TEXTS[1:2])


def test_token_ids_are_used_as_they_are(server):
    ids = [101, 1037, 4937, 7719, 2006, 1996, 13523, 1012, 102]  # bert-base-uncased, TEXTS[0] in lower case
    want = vectors(TEXTS[:1])[0]
    one = good(post(server, PATH, {"input": ids, "model": "m"}))
    assert f32(one["data"][0]["embedding"]) == want and one["usage"]["prompt_tokens"] == len(ids)
    two = good(post(server, PATH, {"input": [ids, [101, 102]], "model": "m"}))
    assert f32(two["data"][0]["embedding"]) == want
    assert f32(two["data"][1]["embedding"]) == vectors([""])[0]


def test_ids_of_another_tokenizer_are_refused(server):
    found = error(post(server, PATH, {"input": [[101, 102], [100257]], "model": "m"}), 400)
    assert "100257" in found["message"] and found["param"] == "input"
    error(post(server, PATH, {"input": [30522], "model": "m"}), 400)
    error(post(server, PATH, {"input": [-1], "model": "m"}), 400)
    error(post(server, PATH, {"input": [2**40], "model": "m"}), 400)
    assert "check_embedding_ctx_length=False" in found["message"]


def test_ids_without_special_tokens_are_warned_of_once_a_client(start):
    """As LangChain sends them: of cl100k_base, which are in BERT's vocabulary by chance."""
    running = start()

    def ask(ids, agent):
        return running.ask("POST", PATH, json.dumps({"input": ids, "model": "m"}).encode(), {"user-agent": agent})

    def said():
        return [event for event in running.events() if "check_embedding_ctx_length=False" in event["msg"]]

    for ids in ([64, 8415], [[101, 64, 102], [101, 64]], [102, 64, 101]):
        for agent in ("langchain/1", "other/2"):
            reply = ask(ids, agent)
            assert reply.status == 200 and "check_embedding_ctx_length=False" in reply.headers["x-fletch-warning"]
    refused = ask([100257], "langchain/1")
    assert refused.status == 400 and "x-fletch-warning" in refused.headers
    for fine in ([101, 64, 102], [[101, 102]], "a text", ["a", "b"]):
        assert "x-fletch-warning" not in ask(fine, "langchain/1").headers
    serving.until(lambda: len(said()) >= 2)
    assert running.end() == 0
    assert [("langchain/1" in event["msg"], "other/2" in event["msg"]) for event in said()] == [(True, False), (False, True)]


def test_dimensions(server):
    body = good(post(server, PATH, {"input": TEXTS[0], "model": "m", "dimensions": 64}))
    assert f32(body["data"][0]["embedding"]) == vectors(TEXTS[:1], "--dimensions", "64")[0]
    for wrong in (0, -1, 385, 10**9):
        assert "dimensions" in error(post(server, PATH, {"input": "a", "model": "m", "dimensions": wrong}), 400)["message"]
    found = error(post(server, PATH, {"input": "a", "model": "m", "dimensions": 385}), 400)
    assert found["param"] == "dimensions" and found["type"] == "invalid_request_error"


@pytest.mark.parametrize("empty", ["", [], ["a", ""], [[]], [[101], []]])
def test_nothing_to_embed(server, empty):
    assert error(post(server, PATH, {"input": empty, "model": "m"}), 400) == {
        "message": INVALID, "type": "invalid_request_error", "param": None, "code": None}


def test_any_number_of_texts(start):
    server = start("--server-deadline-ms", "600000")  # slow builds pass too
    texts = [str(i) for i in range(2100)]  # OpenAI stops at 2048, TEI at 32
    body = good(post(server, PATH, {"input": texts, "model": "m", "encoding_format": "base64", "dimensions": 8}))
    assert [item["index"] for item in body["data"]] == list(range(2100))
    some = [0, 31, 32, 1111, 2099]
    want = vectors([texts[i] for i in some], "--dimensions", "8")
    assert [unbase64(body["data"][i]["embedding"]) for i in some] == want


def test_an_answer_that_would_be_too_large_is_refused_before_any_work(server):
    count = server.ask("GET", "/info").json()["max_client_batch_size"] + 1
    assert "512 MiB" in error(post(server, PATH, {"input": ["a"] * count, "model": "m"}), 413)["message"]
    assert post(server, "/embed", {"inputs": ["a"] * count}).json()["error_type"] == "Validation"
    assert post(server, "/v2/embed", {"texts": ["a"] * count}).status == 413
    assert post(server, "/api/embed", {"input": ["a"] * count}).status == 413


@pytest.mark.parametrize("name,kind", [("int8", "b"), ("uint8", "B"), ("binary", "b"), ("ubinary", "B")])
def test_element_types(server, name, kind):
    numbers = good(post(server, PATH, {"input": TEXTS, "model": "m", "output_dtype": name}))
    packed = good(post(server, PATH, {"input": TEXTS, "model": "m", "output_dtype": name, "encoding_format": "base64"}))
    header = good(post(server, PATH, {"input": TEXTS, "model": "m"}, x_fletch_dtype=name))
    want = [[int(x) for x in row] for row in vectors(TEXTS, "--dtype", name)]
    assert [item["embedding"] for item in numbers["data"]] == want
    assert [unbase64(item["embedding"], kind) for item in packed["data"]] == want
    assert header["data"] == numbers["data"]


def test_rows_alone(server):
    for name, flags in ((None, ()), ("ubinary", ("--dtype", "ubinary"))):
        body = {"input": TEXTS, "model": "m"} | ({"output_dtype": name} if name else {})
        reply = post(server, PATH, body, accept="application/octet-stream")
        assert reply.status == 200 and reply.headers["content-type"] == "application/octet-stream"
        want = vectors(TEXTS, *flags)
        assert reply.headers["x-fletch-rows"] == "3" and reply.headers["x-fletch-columns"] == "384"
        assert reply.headers["x-fletch-dtype"] == (name or "float32")
        assert reply.headers["x-fletch-tokens"] == str(sum(tokens(TEXTS)))
        got = memoryview(reply.body).cast("B" if name else "f").tolist()
        assert got == [x for row in want for x in row]


def test_truncation_is_told_and_may_be_refused(server):
    silent = post(server, PATH, {"input": [TEXTS[0], LONG], "model": "m"})
    assert set(good(silent)["data"][1]) == {"object", "index", "embedding"}
    assert silent.headers["x-fletch-truncated"] == "1"
    assert "x-fletch-truncated" not in post(server, PATH, {"input": TEXTS[0], "model": "m"}).headers
    for reply in (post(server, PATH, {"input": [TEXTS[0], LONG], "model": "m", "details": True}),
                  post(server, PATH, {"input": [TEXTS[0], LONG], "model": "m"}, x_fletch_details="true")):
        told = [(item["tokens"], item["truncated"]) for item in good(reply)["data"]]
        assert told == [(tokens(TEXTS[:1])[0], False), (256, True)]
    for reply in (post(server, PATH, {"input": [TEXTS[0], LONG], "model": "m", "truncate": False}),
                  post(server, PATH, {"input": [TEXTS[0], LONG], "model": "m"}, x_fletch_truncate="error")):
        found = error(reply, 400)
        assert found["code"] == "context_length_exceeded"
        assert found["message"] == ("This model's maximum context length is 256 tokens, however you requested 402 tokens "
                                    "(402 in your prompt; 0 for the completion). Please reduce your prompt; or completion "
                                    "length.")


def test_the_side_that_is_cut(server):
    text = "cats " * 300 + "dogs " * 300
    head = vectors([text])[0]
    tail = vectors([text], "--truncate", "left")[0]
    assert head != tail
    for body, headers, want in (({}, {}, head), ({"truncation_direction": "Left"}, {}, tail),
                                ({}, {"x_fletch_truncate": "left"}, tail), ({}, {"x_fletch_truncate": "right"}, head),
                                ({"truncate": True}, {"x_fletch_truncate": "error"}, head)):
        reply = post(server, PATH, {"input": text, "model": "m"} | body, **headers)
        assert f32(good(reply)["data"][0]["embedding"]) == want, (body, headers)


def test_raw_vectors(server):
    body = good(post(server, PATH, {"input": TEXTS[0], "model": "m", "normalize": False}))
    assert f32(body["data"][0]["embedding"]) == vectors(TEXTS[:1], "--normalize", "false")[0]


@pytest.mark.parametrize("body,part", [
    (b"", "EOF"), (b"{", "EOF"), (b'{"input": "a",}', "trailing comma"), (b'{"input": "a"} x', "trailing characters"),
    (b'{"input": "\xff"}', "UTF-8"), (b'{"input": "\\ud800"}', "surrogate"), (b'{"input": "a\nb"}', "control character"),
    (b'{"a":' + b"[" * 100, "recursion limit"), (b'{"input": NaN}', "expected value"), (b'{"a":' * 33, "recursion limit"),
])
def test_bodies_that_are_no_json(server, body, part):
    found = error(post(server, PATH, body), 400)
    assert found["message"].startswith("We could not parse the JSON body of your request: ") and part in found["message"]


@pytest.mark.parametrize("body,part", [
    ({}, "missing field `input`"), ([], "expected an object"), ({"input": None}, "input"), ({"input": 7}, "input"),
    ({"input": {}}, "input"), ({"input": ["a", 7]}, "input[1]"), ({"input": [1.5]}, "expected an integer"),
    (b'{"input": [1.5e0]}', "number `1.5e0`, expected an integer"), (b'{"input": [1e-1]}', "number `1e-1`, expected an integer"),
    ({"input": "a", "model": 7}, "model"), ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
    ({"input": "a", "dimensions": "7"}, "dimensions"), ({"input": "a", "dimensions": 1e300}, "dimensions"),
    (b'{"input":"a","input":"b"}', "duplicate field `input`"),
])
def test_bodies_that_mean_nothing(server, body, part):
    assert part in error(post(server, PATH, body), 400)["message"]


def test_unknown_fields_are_ignored(server):
    body = b'{"input":"a","model":"m","extra":{"input":[1,{"x":1e999}]},"extra":2,"\\u0000":"\\u0000"}'
    assert len(good(post(server, PATH, body))["data"]) == 1


def test_content_types(server):
    for kind in ("application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.api+json"):
        good(post(server, PATH, {"input": "a"}, content_type=kind))
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx"):
        error(post(server, PATH, {"input": "a"}, content_type=kind), 415)


@pytest.mark.parametrize("header,value", [("x_fletch_truncate", "up"), ("x_fletch_dtype", "float16"),
                                          ("x_fletch_normalize", "maybe"), ("x_fletch_dimensions", "many"),
                                          ("x_fletch_details", "2"), ("x_fletch_dimensions", "0")])
def test_headers_that_make_no_sense(server, header, value):
    error(post(server, PATH, {"input": "a"}, **{header: value}), 400)


def test_what_the_answer_says_of_the_model(server):
    reply = post(server, "/embeddings", {"input": "a"})
    info = server.ask("GET", "/info").json()
    assert len(info["model_fingerprint"]) == 64
    assert reply.headers["x-fletch-fingerprint"] == info["model_fingerprint"]
    told = reply.headers["x-fletch-vector-id"]
    assert told == info["vector_id"] and len(told) == 64
    assert post(server, "/embeddings", {"input": ["b", "c"]}).headers["x-fletch-vector-id"] == told
    others = [post(server, "/embeddings", {"input": "a", "dimensions": 64}).headers["x-fletch-vector-id"]]
    others += [post(server, "/embeddings", {"input": "a"}, **header).headers["x-fletch-vector-id"]
               for header in ({"x_fletch_dtype": "int8"}, {"x_fletch_normalize": "false"})]
    assert len({told, *others}) == 4
    assert "x-fletch-vector-id" not in post(server, "/tokenize", {"inputs": "a"}).headers
    assert int(reply.headers["x-compute-tokens"]) == 3
    assert info["encoder"] == {"family": "bert", "features": "", "task": None, "max_positions": 512, "layers": 6,
                               "hidden": 384, "heads": 12, "key_heads": 12, "intermediate": 1536}


def test_models(server):
    body = good(server.ask("GET", "/v1/models"))
    assert body["object"] == "list"
    assert [(m["id"], m["object"], m["owned_by"], type(m["created"])) for m in body["data"]] == [
        (serving.NAME, "model", "fletch", int)]
    weights = os.stat(os.path.join(serving.MODEL, "model.safetensors"))
    told = body["data"][0]
    assert (told["size"], told["created"], told["dtype"]) == (weights.st_size, int(weights.st_mtime), "F32")
    assert (told["architecture"], told["parameters"]) == ("bert", 22713216)  # as transformers counts them
    assert told["fingerprint"] == server.ask("GET", "/info").json()["model_fingerprint"]
    assert error(server.ask("GET", "/v1/models/nobody"), 404)["code"] == "model_not_found"


def test_unknown_paths_and_methods(server):
    assert error(server.ask("GET", "/v1/nothing"), 404)["type"] == "invalid_request_error"
    reply = server.ask("GET", PATH)
    error(reply, 405)
    assert "POST" in reply.headers["allow"].split(", ")


def test_several_models(start):
    server = start("-m", f"one={serving.MODEL}", "-m", f"two={serving.MODEL}", model=False)
    for name in ("one", "two"):
        assert good(post(server, PATH, {"input": "a", "model": name}))["model"] == name
        assert good(server.ask("GET", f"/v1/models/{name}"))["id"] == name
        assert good(post(server, "/api/embed", {"input": "a", "model": f"{name}:latest"}))["model"] == name
    found = error(post(server, PATH, {"input": "a", "model": "three"}), 404)
    assert found == {"message": "The model `three` does not exist or you do not have access to it.",
                     "type": "invalid_request_error", "param": None, "code": "model_not_found"}
    assert [m["id"] for m in server.ask("GET", "/v1/models").json()["data"]] == ["one", "two"]
    assert post(server, "/embed", {"inputs": "a", "model": "three"}).status == 404
    assert post(server, "/api/embed", {"input": "a", "model": "three"}).json() == {"error": "model 'three' not found"}
    assert post(server, "/v2/embed", {"texts": ["a"], "model": "three"}).status == 404
    assert server.ask("GET", "/info?model=two").json()["served_model_name"] == "two"
    assert server.ask("GET", "/info?model=three").status == 404
    assert server.ask("GET", "/info?model=t%77o").json()["served_model_name"] == "two"
    assert server.ask("GET", "/info?model=tw%6").status == 404  # no escape, and no reason to tell of another model
    big = "é" * 5000  # a name cut in the answer must not leave half a character
    assert json.loads(post(server, PATH, {"input": "a", "model": "x" + big}).body)["error"]["code"] == "model_not_found"
