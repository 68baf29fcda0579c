# SPDX-License-Identifier: Apache-2.0
"""/api/pull and /api/delete: who may, what clients hear on the way, and what a hub, a disk and a client that fail leave behind.

The hub is tests/golden/hub_stand_in.py on 127.0.0.1; its model and the server's are a small folder of tests/golden."""
import hashlib
import http.client
import json
import random
import resource
import threading

import serving
from dialects import good
from hub_stand_in import Fault  # conftest.py knows where

SMALL = serving.SMALL
ID, WEIGHTS = "org/tiny", "model.safetensors"
FILES = serving.files_of(SMALL)
BIG = FILES | {WEIGHTS: random.Random(1).randbytes(400_000)}  # no weights, but the cache does not read them


def pull(server, name=ID, headers=None, **more):
    return server.ask("POST", "/api/pull", json.dumps({"model": name} | more).encode(), headers)


def delete(server, name=ID, headers=None):
    return server.ask("DELETE", "/api/delete", json.dumps({"model": name}).encode(), headers)


def lines(reply):
    assert reply.status == 200 and reply.headers["content-type"] == "application/x-ndjson", reply
    return [json.loads(line) for line in reply.body.splitlines()]


def cached(tmp_path, name=ID):
    """The files of a model in the cache, by the ref main; None: it is not there."""
    repo = tmp_path / "hf/hub" / ("models--" + name.replace("/", "--"))
    ref = repo / "refs/main"
    if not ref.exists():
        return None
    return serving.files_of(repo / "snapshots" / ref.read_text())


def stream(server, name=ID):
    """A pull under way: the reply, of which lines are read as they come."""
    client = http.client.HTTPConnection(*server.where, timeout=serving.WAIT)
    client.request("POST", "/api/pull", json.dumps({"model": name}).encode())
    return client, client.getresponse()


def test_pull_tells_every_file_and_the_end(pulling, tmp_path):
    server = pulling()
    told = lines(pull(server))
    assert [line["status"] for line in (told[0], *told[-2:])] == ["pulling manifest", "verifying sha256 digest", "success"]
    last = {line["digest"]: line for line in told if "digest" in line}
    have = cached(tmp_path)
    assert have and all(have[name] == FILES[name] for name in have) and set(last) == set(have)
    for name, line in last.items():
        assert line == {"status": f"pulling {name}", "digest": name, "total": len(FILES[name]), "completed": len(FILES[name])}
    again = lines(pull(server, "hf.co/" + ID + ":latest"))
    assert again[0]["status"] == "pulling manifest" and again[-1] == {"status": "success"}
    assert good(pull(server, stream=False)) == {"status": "success"}
    assert server.end() == 0


def test_a_client_of_http_1_0_reads_until_the_end(pulling):
    body = json.dumps({"model": ID}).encode()
    with pulling().raw() as raw:
        raw.send(f"POST /api/pull HTTP/1.0\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        while raw.more():
            pass
        head, rest = raw.held.split(b"\r\n\r\n", 1)
    assert b"transfer-encoding" not in head.lower() and json.loads(rest.splitlines()[-1]) == {"status": "success"}


def test_it_is_off_unless_asked_for(start, hub):
    server = start("--model", f"base={SMALL}", model=False, env={"HF_ENDPOINT": hub.url})
    for reply in (pull(server), pull(server, stream=False), delete(server)):
        assert reply.status == 403 and "server.allow_pull" in reply.json()["error"]
    assert not hub.requests and server.end() == 0


def test_keys_decide(pulling, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("plain name=a\nnight priority=bulk\nops name=ops admin\n")
    server = pulling("--server-api-key-file", keys)

    def key(word):
        return {"authorization": f"Bearer {word}"}

    for reply in (pull(server, headers=key("plain")), delete(server, headers=key("night"))):
        assert reply.status == 403 and "admin" in reply.json()["error"]
    assert pull(server).status == 401 and cached(tmp_path) is None
    assert good(pull(server, headers=key("ops"), stream=False)) == {"status": "success"}
    assert delete(server, headers=key("ops")).status == 200 and cached(tmp_path) is None


def test_names_that_are_no_models(pulling, hub, tmp_path):
    server = pulling()
    (tmp_path / "folder/model").mkdir(parents=True)
    for name in ("/etc/passwd", "../x", "./x", "a/b/c", "~/x", "ollama:all-minilm", "a\\b", "a b", "org/", "/", "é", "org/x\0",
                 "o" * 600, "folder/model", "hf.co/hf.co/a/b", "a@../../x"):
        for reply in (pull(server, name, stream=False), pull(server, name)):
            assert reply.status == 400, (name, reply)
        assert delete(server, name).status in (400, 404)
    assert not hub.requests and server.end() == 0


def test_what_the_hub_refuses_has_its_status(pulling, hub):
    server = pulling()
    hub.add("org/gated", FILES)
    hub.repos["org/gated"].gated = True
    hub.add("org/empty", {"README.md": b"#"})
    for name, status, says in (("org/nothing", 404, "has no model org/nothing"), (ID + "@v9", 404, "no revision"),
                               ("org/gated", 403, "gated"), ("org/empty", 424, "no weights")):
        for streams in (False, True):
            reply = pull(server, name, stream=streams)
            assert reply.status == status and says in reply.json()["error"], reply
    assert delete(server, "org/nothing").status == 404
    assert server.embed().status == 200


def test_an_error_in_the_middle_is_a_line(pulling, hub, tmp_path):
    server = pulling()
    hub.fail("cdn", WEIGHTS, Fault("flip", times=9))
    told = lines(pull(server))
    assert told[0] == {"status": "pulling manifest"} and "damaged" in told[-1]["error"] and cached(tmp_path) is None
    reply = pull(server, stream=False)
    assert reply.status == 500 and "damaged" in reply.json()["error"]
    hub.forget()
    assert lines(pull(server))[-1] == {"status": "success"} and cached(tmp_path)[WEIGHTS] == FILES[WEIGHTS]


def test_a_full_disk_in_the_middle(pulling, hub, tmp_path):
    hub.add("org/big", BIG)
    server = pulling(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY)))
    assert "no space" in lines(pull(server, "org/big"))[-1]["error"]
    reply = pull(server, "org/big", stream=False)
    assert reply.status == 507 and "no space" in reply.json()["error"] and cached(tmp_path, "org/big") is None
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert good(pull(server, "org/big", stream=False)) == {"status": "success"}
    assert cached(tmp_path, "org/big")[WEIGHTS] == BIG[WEIGHTS] and server.end() == 0


def test_who_asks_for_what_is_being_pulled_joins(pulling, hub):
    hub.add("org/big", BIG)
    hub.fail("cdn", WEIGHTS, Fault("slow", 400_000))
    server = pulling()
    client, reply = stream(server, "org/big")
    assert json.loads(reply.readline()) == {"status": "pulling manifest"}
    heard = []
    second = threading.Thread(target=lambda: heard.extend(lines(pull(server, "org/big"))))
    second.start()
    assert json.loads(reply.read().splitlines()[-1]) == {"status": "success"}
    second.join(serving.WAIT)
    assert heard[0] == {"status": "pulling manifest"} and heard[-1] == {"status": "success"}
    assert len(hub.seen("cdn", "GET")) == 1, "one download for both"
    client.close()


def test_a_client_that_leaves_stops_the_pull_and_loses_nothing(pulling, hub, tmp_path):
    hub.add("org/big", BIG)
    hub.fail("cdn", WEIGHTS, Fault("stall", 150_000))
    server = pulling()
    client, reply = stream(server, "org/big")
    while json.loads(reply.readline()).get("digest") != WEIGHTS:
        pass
    part = serving.until(lambda: next((tmp_path / "hf").rglob("*.incomplete"), None))
    serving.until(lambda: part.stat().st_size == 150_000)
    reply.close()
    client.close()
    server.wait_event(lambda event: "no client is waiting" in event["msg"])
    assert lines(pull(server, "org/big"))[-1] == {"status": "success"}
    assert hub.seen("cdn", "GET")[-1].headers["range"] == "bytes=150000-"
    assert cached(tmp_path, "org/big")[WEIGHTS] == BIG[WEIGHTS] and server.end() == 0


def test_a_server_that_ends_says_so_and_does_not_wait(pulling, hub, tmp_path):
    hub.add("org/big", BIG)
    hub.fail("cdn", WEIGHTS, Fault("stall", 150_000))
    server = pulling()
    client, reply = stream(server, "org/big")
    while json.loads(reply.readline()).get("digest") != WEIGHTS:
        pass
    assert server.end() == 0 and "shutting down" in json.loads(reply.read().splitlines()[-1])["error"]
    client.close()
    assert cached(tmp_path, "org/big") is None


def test_a_deadline_that_the_client_names_holds(pulling, hub):
    hub.add("org/big", BIG)
    hub.fail("cdn", WEIGHTS, Fault("stall", 150_000))
    reply = pull(pulling(), "org/big", {"x-fletch-deadline-ms": "300"}, stream=False)
    assert reply.status == 504


def test_no_more_than_four_at_once(pulling, hub):
    server = pulling()
    streams = []
    for i in range(4):
        hub.add(f"org/big{i}", BIG | {WEIGHTS: bytes([i]) * 400_000})
        hub.fail("cdn", hashlib.sha256(bytes([i]) * 400_000).hexdigest(), Fault("stall", 150_000))
        streams.append(stream(server, f"org/big{i}"))
        assert json.loads(streams[-1][1].readline()) == {"status": "pulling manifest"}
    reply = pull(server)
    assert reply.status == 503 and reply.headers["retry-after"] == "10"
    assert server.embed().status == 200, "workers are free all the while"
    for client, answer in streams:
        answer.close()
        client.close()
    serving.until(lambda: pull(server, stream=False).status == 200)
    assert server.end() == 0


def test_what_is_served_or_pulled_is_not_deleted(pulling, hub, tmp_path, start):
    server = pulling()
    assert good(pull(server, stream=False)) == {"status": "success"}
    serving_it = start("--model", f"alias={ID}", "--server-allow-pull", model=False, env={"HF_HUB_OFFLINE": "1"})
    for name in (ID, ID + "@main", "hf.co/" + ID):
        reply = delete(serving_it, name)
        assert reply.status == 409 and "is being served" in reply.json()["error"]
    assert serving_it.embed().status == 200 and serving_it.end() == 0
    hub.add("org/big", BIG)
    hub.fail("cdn", WEIGHTS, Fault("stall", 150_000))
    client, reply = stream(server, "org/big")
    while json.loads(reply.readline()).get("digest") != WEIGHTS:
        pass
    reply = delete(server, "org/big@main")
    assert reply.status == 409 and "is being pulled" in reply.json()["error"]
    client.close()
    assert delete(server).status == 200 and cached(tmp_path) is None and delete(server).status == 404
