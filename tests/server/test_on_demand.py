# SPDX-License-Identifier: Apache-2.0
"""Models that are opened when a request names them: never a vector of another model, never one closed with work.

The vectors are sentence-transformers', made by tests/golden/make_folders.py.
"""
import concurrent.futures
import datetime
import functools
import hashlib
import json
import os
import pathlib
import shutil
import subprocess

import numpy
import pytest
import serving
from dialects import good, post
from serving import until
from test_batches import Batches

FOLDERS = serving.ROOT / "tests/golden/folders"
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))
NAMES = ("mpnet", "family-electra", "pooling-cls")


@functools.cache
def expected(folder):
    rows = numpy.load(FOLDERS / folder / "expected-0.npy")
    return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def models(tmp_path):
    folder = tmp_path / "models"
    for name in NAMES:
        shutil.copytree(FOLDERS / name, folder / name)
    return folder


@pytest.fixture
def start(tmp_path):
    started = []

    def run(*flags, **options):
        started.append(serving.Server(tmp_path, *flags, model=False, **options))
        return started[-1]

    yield run
    for running in started:
        running.kill()


def embed(server, name, **more):
    return post(server, "/api/embed", {"model": name, "input": TEXTS, **more})


def say(server, name, **headers):
    return post(server, "/api/embed", {"model": name, "input": "a word"}, **headers)


def is_of(rows, folder):
    return numpy.abs(numpy.array(rows) - expected(folder)).max() <= 1e-5


def states(server):
    return {model["id"]: model["state"] for model in good(server.ask("GET", "/v1/models"))["data"]}


def running(server):
    return {model["name"]: model for model in good(server.ask("GET", "/api/ps"))["models"]}


def wait_state(server, name, state):
    until(lambda: states(server)[name] == state, lambda: (states(server), server.log()))


def test_each_by_its_name(start, models):
    server = start("--models", models)
    assert states(server) == dict.fromkeys(NAMES, "closed") and running(server) == {}
    for name in NAMES:
        body = good(embed(server, f"{name}:latest"))
        assert body["model"] == name and body["load_duration"] > 0 and is_of(body["embeddings"], name)
        listed = good(post(server, "/v1/embeddings", {"model": name, "input": TEXTS[1]}))
        assert listed["model"] == name and listed["data"][0]["embedding"] == body["embeddings"][1]
    assert states(server) == dict.fromkeys(NAMES, "loaded") and set(running(server)) == set(NAMES)
    assert {model["name"] for model in good(server.ask("GET", "/api/tags"))["models"]} == set(NAMES)
    assert good(server.ask("GET", "/info?model=mpnet"))["served_model_name"] == "mpnet"
    found = server.metrics()
    assert found['fletch_models{state="loaded"}'] == 3 and found["fletch_model_opens_total"] == 3
    assert server.end() == 0, server.log()


def test_names_that_open_nothing(start, models):
    server = start("--models", models)
    near = embed(server, "family-elektra")
    assert near.status == 404 and "`family-electra`" in near.json()["error"]
    for name in ("nobody", "/etc/passwd", str(models / "mpnet"), "../models/mpnet", "mpnet/../mpnet", "./mpnet", "mpnet/", "..",
                 "mpnet\0", "", "x" * 5000):
        assert embed(server, name).status == 404, name
        for path in ("/models/load", "/models/unload"):
            assert post(server, path, {"model": name}).status == (404 if name else 400), name
    assert embed(server, None).status == 404  # none was named at the start
    assert states(server) == dict.fromkeys(NAMES, "closed") and server.metrics()["fletch_model_opens_total"] == 0
    shutil.copytree(FOLDERS / "mpnet", models / "late")  # what comes later is found
    until(lambda: embed(server, "late").status == 200, server.log)


def test_a_batch_names_a_model_that_came_a_moment_ago(start, models, tmp_path):
    running = Batches(start("--models", models, "--server-batches", tmp_path / "kept"))
    seen = running.ask("POST", "/v1/embeddings", b'{"model": "fresh", "input": "a"}')  # has just looked at the folder
    assert seen.status == 404, seen
    shutil.copytree(FOLDERS / NAMES[0], models / "fresh")
    body = {"model": "fresh", "input": TEXTS[0]}
    batch = running.begin([json.dumps({"custom_id": "1", "method": "POST", "url": "/v1/embeddings", "body": body})])
    (row,) = running.outputs(running.wait(batch)).values()
    (item,) = row[1]["response"]["body"]["data"]
    assert numpy.abs(numpy.array(item["embedding"]) - expected(NAMES[0])[0]).max() <= 1e-5


def test_keep_alive(start, models):
    server = start("--models", models, "--server-keep-alive", "-1")
    good(embed(server, "mpnet"))
    assert running(server)["mpnet"]["expires_at"].startswith("9999")
    good(embed(server, "mpnet", keep_alive="1h30m"))
    left = datetime.datetime.fromisoformat(running(server)["mpnet"]["expires_at"]) - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(hours=1) < left <= datetime.timedelta(hours=1, minutes=31)
    for wrong in ("soon", "5 m", "5x", "m", "", [], {}, "1m5"):
        assert embed(server, "mpnet", keep_alive=wrong).status == 400, wrong
    for now in (0, "0s", "0", 1e-9):
        good(embed(server, "mpnet", keep_alive=now))
        wait_state(server, "mpnet", "closed")
    assert server.metrics()['fletch_model_closes_total{reason="idle"}'] == 4
    assert start("--models", models, "--server-keep-alive", "soon", ready=False).process.wait(serving.WAIT) == 2


def test_load_unload_and_pinned(start, models):
    server = start("--model", f"first={models / 'mpnet'}", "--models", f"{models},other={models / 'pooling-cls'}")
    assert states(server) == {"first": "loaded", "family-electra": "closed", "pooling-cls": "closed", "other": "closed"}
    assert is_of(good(embed(server, ""))["embeddings"], "mpnet")  # the one of the start
    assert embed(server, "nobody").status == 404
    assert good(post(server, "/models/load", {"model": "first"}))["state"] == "loaded"
    assert post(server, "/models/unload", {"model": "first"}).status == 409
    told = good(post(server, "/models/load", {"model": "other", "keep_alive": -1}))
    assert told["model"] == "other" and told["state"] == "loaded" and len(told["vector_id"]) == 64
    assert embed(server, "other").headers["x-fletch-vector-id"] == told["vector_id"]
    for _ in range(2):
        assert good(post(server, "/models/unload", {"model": "other"})) == {"model": "other", "state": "closed"}
    assert states(server)["other"] == "closed"
    assert server.metrics()['fletch_model_closes_total{reason="requested"}'] == 1


def test_a_name_keeps_its_vectors(start, models):
    server = start("--models", models)
    shutil.copytree(models / "mpnet", models / "same")
    good(embed(server, "mpnet"))
    until(lambda: embed(server, "same").status == 200, server.log)
    good(post(server, "/models/load", {"model": "mpnet", "id": "same"}))
    refused = post(server, "/models/load", {"model": "mpnet", "id": "family-electra"})
    assert refused.status == 409 and "force" in refused.json()["error"]
    assert is_of(good(embed(server, "mpnet"))["embeddings"], "mpnet")  # as it was
    good(post(server, "/models/load", {"model": "mpnet", "id": "family-electra", "force": True}))
    assert is_of(good(embed(server, "mpnet"))["embeddings"], "family-electra")
    # the same where its files are other ones
    good(embed(server, "pooling-cls", keep_alive=0))
    wait_state(server, "pooling-cls", "closed")
    shutil.rmtree(models / "pooling-cls")
    shutil.copytree(FOLDERS / "mpnet", models / "pooling-cls")
    assert embed(server, "pooling-cls").status == 409
    good(post(server, "/models/load", {"model": "pooling-cls", "force": True}))
    assert is_of(good(embed(server, "pooling-cls"))["embeddings"], "mpnet")


def test_one_that_breaks_is_not_tried_again_at_once(start, models):
    (models / "mpnet/model.safetensors").write_bytes((models / "mpnet/model.safetensors").read_bytes()[:-4])
    server = start("--models", models)
    for _ in range(3):
        reply = embed(server, "mpnet")
        assert reply.status == 500 and "mpnet" in reply.json()["error"] and str(models) not in reply.json()["error"]
    assert server.metrics()["fletch_model_open_failures_total"] == 1 and states(server)["mpnet"] == "failed"
    assert is_of(good(embed(server, "pooling-cls"))["embeddings"], "pooling-cls")
    assert server.ask("GET", "/ready").status == 200
    shutil.copy(FOLDERS / "mpnet/model.safetensors", models / "mpnet")
    good(post(server, "/models/load", {"model": "mpnet"}))  # who says so is obeyed
    assert is_of(good(embed(server, "mpnet"))["embeddings"], "mpnet")


def test_closed_and_opened_under_clients(start, models):
    """make check-full: 64 clients, some thousand requests."""
    clients, turns = (64, 100) if "FLETCH_TEST_FULL" in os.environ else (4, 9)
    server = start("--models", models)

    def client(number):
        for turn in range(turns):
            name = NAMES[(number + turn) % 3]
            assert is_of(good(embed(server, name))["embeddings"], name)

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        asked = [pool.submit(client, number) for number in range(clients)]
        while not all(one.done() for one in asked):
            for name in NAMES:
                good(post(server, "/models/unload", {"model": name}))
        for one in asked:
            one.result()
    assert server.metrics()["fletch_model_open_failures_total"] == 0
    assert server.metrics()['fletch_model_closes_total{reason="requested"}'] > 0
    assert server.end() == 0, server.log()


def need_model():
    if not pathlib.Path(serving.MODEL, "model.safetensors").exists():
        pytest.skip("FLETCH_MODEL names no model folder (make model)")
    if serving.SANITIZED:
        pytest.skip("memory is the sanitizer's")


def one_fits(start, *flags):
    """A memory.limit with room for one of FLETCH_MODEL, but not for two."""
    server = start("--models", f"a={serving.MODEL}", *flags)
    size = sum(file.stat().st_size for file in pathlib.Path(serving.MODEL).glob("*.safetensors"))
    limit = server.resident() + size * 3 // 2 + (48 << 20)
    assert server.end() == 0
    return ("--models", f"a={serving.MODEL},b={serving.MODEL}", "--memory-limit", str(limit), *flags)


def test_room_is_made_by_closing_the_oldest(start):
    need_model()
    server = start(*one_fits(start))
    for name, other in (("a", "b"), ("b", "a"), ("a", "b")):
        good(say(server, name))
        assert states(server) == {name: "loaded", other: "closed"}, server.log()
    assert server.metrics()['fletch_model_closes_total{reason="memory"}'] == 2
    tight = start("--models", f"a={serving.MODEL}", "--memory-limit", "64MiB")
    reply = embed(tight, "a")
    assert reply.status == 503 and int(reply.headers["retry-after"]) > 0 and "memory.limit" in reply.json()["error"]


def test_one_with_work_is_never_closed(faulty, start):
    need_model()
    server = faulty(*one_fits(start))
    good(say(server, "a"))
    server.hold()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        held = pool.submit(say, server, "a")
        server.wait_of_model("running_texts", lambda texts: texts > 0)
        late = say(server, "b", x_fletch_deadline_ms="300")
        assert late.status == 503 and int(late.headers["retry-after"]) > 0, (late, server.log())
        assert states(server) == {serving.NAME: "loaded", "a": "loaded", "b": "closed"}
        server.let_go()
        good(held.result())
    good(say(server, "b"))


def test_the_end_of_the_server_is_told_to_who_waits(faulty):
    need_model()
    server = faulty("--models", f"a={serving.MODEL}", "--server-drain-seconds", "1")
    server.hold()  # opening ends with a first batch
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waits = pool.submit(say, server, "a")
        until(lambda: states(server)["a"] == "loading", server.log)
        server.send_signal(serving.signal.SIGTERM)
        assert waits.result().status == 503
    assert server.process.wait(serving.WAIT) == 1, server.log()  # the model is never open


def test_what_is_cached(start, tmp_path, models):
    """The hub's cache and Ollama's store, by the names that their own programs have."""
    snapshot = tmp_path / "hf/hub/models--org--tiny/snapshots" / ("a" * 40)
    shutil.copytree(models / "mpnet", snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs/main").write_text("a" * 40)
    gguf = tmp_path / "m.gguf"
    subprocess.run([serving.BIN, "model", "convert", FOLDERS / "plain-bert", gguf, "--type", "F32"], check=True, capture_output=True)
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    store = tmp_path / "ollama"
    (store / "blobs").mkdir(parents=True)
    gguf.rename(store / f"blobs/sha256-{digest}")
    manifest = store / "manifests/registry.ollama.ai/library/low/latest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}",
                                                "size": (store / f"blobs/sha256-{digest}").stat().st_size}]}))
    server = start("--models", "cached", env={"OLLAMA_MODELS": str(store)})
    assert states(server) == {"org/tiny": "closed", "low": "closed"}
    assert is_of(good(embed(server, "org/tiny"))["embeddings"], "mpnet")
    assert is_of(good(embed(server, "low:latest"))["embeddings"], "plain-bert")
    assert is_of(good(embed(server, "tiny"))["embeddings"], "mpnet")
    assert embed(server, "org/absent").status == 404


def test_what_a_name_stands_for_changes_for_admins_alone(start, models, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("plain name=a\nops name=ops admin\n")
    server = start("--models", models, "--server-api-key-file", keys)

    def load(key, **more):
        return post(server, "/models/load", {"model": "mpnet", **more}, authorization=f"Bearer {key}").status

    assert load("plain") == 200, "a key may open what it may ask"
    assert load("plain", id="pooling-cls") == load("plain", id="pooling-cls", force=True) == load("plain", force=True) == 403
    assert load("ops", id="pooling-cls", force=True) == 200
