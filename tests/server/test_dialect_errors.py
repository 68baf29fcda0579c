# SPDX-License-Identifier: Apache-2.0
"""What every dialect says in its own words when it is not the body's fault: keys, overload, deadlines, vectors that
are not finite; and prompts, which need a folder that has some."""
import json
import shutil
import threading
import time

import pytest
import serving
from dialects import f32, post

BODIES = {"openai": ("/v1/embeddings", {"input": "a", "model": "m"}), "tei": ("/embed", {"inputs": "a"}),
          "ollama": ("/api/embed", {"model": "m", "input": "a"}), "cohere": ("/v2/embed", {"model": "m", "texts": ["a"]})}


def message(dialect, reply):
    """The text of an error, its shape checked."""
    body = reply.json()
    if dialect == "openai":
        assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
        return body["error"]["message"]
    assert set(body) == {"tei": {"error", "error_type"}, "ollama": {"error"}, "cohere": {"message"}}[dialect]
    return body["message" if dialect == "cohere" else "error"]


def each(server, **headers):
    return {name: post(server, path, body, **headers) for name, (path, body) in BODIES.items()}


def test_wrong_keys(start, tmp_path):
    (tmp_path / "keys").write_text("sk-good name=one\n")
    server = start("--api-key-file", tmp_path / "keys")
    assert {r.status for r in each(server, authorization="Bearer sk-good").values()} == {200}
    replies = each(server, authorization="Bearer sk-bad")
    assert {r.status for r in replies.values()} == {401}
    assert replies["tei"].body == b""
    assert replies["openai"].json()["error"]["code"] == "invalid_api_key"
    for name in ("openai", "ollama", "cohere"):
        assert message(name, replies[name])
    voyage = post(server, "/v1/contextualizedembeddings", {"inputs": [["a"]]}, authorization="Bearer sk-bad")
    assert voyage.status == 401 and set(voyage.json()) == {"detail"}
    assert server.ask("GET", "/health").status == 200
    assert server.ask("GET", "/openapi.json").json()["security"] == [{"key": []}]


def test_vectors_that_are_not_finite_are_never_sent(faulty):
    server = faulty()
    server.plan("silent_nan")
    for name, reply in each(server).items():
        assert reply.status >= 400 and reply.status != 429, (name, reply)
        assert message(name, reply)
    for name, reply in each(server, accept="application/octet-stream").items():
        assert reply.status >= 400, (name, reply)
    server.plan("none")
    assert {r.status for r in each(server).values()} == {200}


def test_a_deadline_that_passes(faulty):
    server = faulty()
    server.plan("late", late_ms=400)
    for name, reply in each(server, x_fletch_deadline_ms="50").items():
        assert reply.status == 504, (name, reply)
        assert message(name, reply)


def test_overload(faulty):
    server = faulty("--server-max-queue-tokens", "300", "--batch-max-texts", "4")
    server.plan("late", late_ms=300)
    long = ["word " * 50] * 5
    found, enough = {}, threading.Event()

    def press():
        while not enough.is_set():
            post(server, "/embed", {"inputs": long})

    busy = [threading.Thread(target=press) for _ in range(12)]
    for thread in busy:
        thread.start()
    end = time.monotonic() + serving.WAIT
    while set(found) != set(BODIES) and time.monotonic() < end:
        for name, field in (("openai", "input"), ("tei", "inputs"), ("ollama", "input"), ("cohere", "texts")):
            reply = post(server, BODIES[name][0], {field: long})
            if reply.status != 200:
                found.setdefault(name, reply)
    enough.set()
    for thread in busy:
        thread.join()
    assert set(found) == set(BODIES), "too much was never turned away"
    for name, reply in found.items():
        assert reply.status == (503 if name == "ollama" else 429)
        assert int(reply.headers["retry-after"]) >= 1
    assert found["tei"].json() == {"error": "Model is overloaded", "error_type": "Overloaded"}
    assert found["openai"].json()["error"]["code"] == "rate_limit_exceeded"
    assert message("ollama", found["ollama"]).startswith("server busy, please try again.")


PROMPTS = serving.ROOT / "tests" / "golden" / "folders" / "prompts"


@pytest.fixture
def prompted(start):
    return start("-m", PROMPTS, model=False)


def row(reply):
    assert reply.status == 200, reply
    body = reply.json()
    if isinstance(body, list):
        return f32(body[0])
    if "data" in body:
        return f32(body["data"][0]["embedding"])
    return f32(body["embeddings"]["float"][0] if isinstance(body["embeddings"], dict) else body["embeddings"][0])


def test_prompts(prompted):
    """The folder's default prompt is "the road: "; "passage" is "sea "."""
    default = row(post(prompted, "/embed", {"inputs": "far"}))
    assert default == row(post(prompted, "/embed", {"inputs": "far", "prompt_name": "query"}))
    passage = row(post(prompted, "/embed", {"inputs": "far", "prompt_name": "passage"}))
    assert passage != default
    for path, body, headers in (("/v1/embeddings", {"input": "far", "prompt_name": "passage"}, {}),
                                ("/v1/embeddings", {"input": "far"}, {"x_fletch_prompt_name": "passage"}),
                                ("/api/embed", {"input": "far"}, {"x_fletch_prompt_name": "passage"}),
                                ("/v2/embed", {"texts": ["far"], "input_type": "search_document"}, {})):
        assert row(post(prompted, path, body, **headers)) == passage, (path, headers)
    assert row(post(prompted, "/v2/embed", {"texts": ["far"], "input_type": "search_query"})) == default
    reply = post(prompted, "/embed", {"inputs": "far", "prompt_name": "x"})
    assert reply.status == 422 and "Available prompts: [`query`, `passage`" in reply.json()["error"]
    assert post(prompted, "/v1/embeddings", {"input": "far", "prompt_name": "x"}).json()["error"]["param"] == "prompt_name"
    plain, with_prompt = (post(prompted, "/tokenize", body).json()[0] for body in
                          ({"inputs": "sea far"}, {"inputs": "far", "prompt_name": "passage"}))
    assert plain == with_prompt
    words = prompted.ask("GET", "/openapi.json").json()["paths"]["/embed"]["post"]["requestBody"]["content"]
    assert "passage" in words["application/json"]["schema"]["properties"]["prompt_name"]["enum"]


def test_any_number_of_prompts_of_any_length(start, tmp_path):
    """None is lost and none is cut on its way to a text, also where text and ids come in one list."""
    folder = tmp_path / "prompted"
    shutil.copytree(serving.MODEL, folder, symlinks=False)
    prompts = {f"p{i}": f"prompt {i}: " for i in range(200)} | {"long": "a word " * 400, "n" * 200: "named: "}
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts, "default_prompt_name": "long"}))
    server = start("--max-length", "512", model=False, env={"FLETCH_MODEL_ID": str(folder)})
    for name in ("p0", "p199", "long", "n" * 200):
        whole = post(server, "/tokenize", {"inputs": prompts[name] + "x"}).json()
        assert post(server, "/tokenize", {"inputs": "x", "prompt_name": name}).json() == whole
        alone = post(server, "/embed", {"inputs": "x", "prompt_name": name}).json()
        assert post(server, "/embed", {"inputs": ["x", [101, 102]], "prompt_name": name}).json()[:1] == alone
    alone = post(server, "/embed", {"inputs": "x"}).json()
    assert post(server, "/embed", {"inputs": ["x", [101, 102]]}).json()[:1] == alone
    assert server.ask("GET", "/info").json()["max_input_length"] == 512
