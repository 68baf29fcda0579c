# SPDX-License-Identifier: Apache-2.0
"""API keys: several, from a file, with limits of their own; and where the server may listen without."""
import hashlib
import signal
import subprocess

import pytest
import serving
from serving import request

FILE = f"""
# comment
sk-one name=one
sk-two   name=two rate=1 burst=2
sha256:{hashlib.sha256(b"sk-three").hexdigest()} name=three concurrent=1 priority=bulk
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    from conftest import need_model
    need_model()
    folder = tmp_path_factory.mktemp("keys")
    (folder / "keys").write_text(FILE)
    running = serving.Server(folder, "--api-key-file", folder / "keys", "--server-log-level", "debug")
    yield running
    log = running.log()
    assert running.end() == 0
    assert "sk-" not in log, "a key in the log"


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def test_keys_open_the_door(guarded):
    for headers in (bearer("sk-one"), {"x-api-key": "sk-one"}, {"authorization": "bearer   sk-three"}):
        assert guarded.embed("hello", **headers).status == 200
    guarded.wait_event(lambda event: event.get("key") == "one")


def test_everything_else_does_not(guarded):
    bodies = set()
    for headers in ({}, bearer(""), bearer("sk-on"), bearer("sk-onee"), bearer("SK-ONE"), bearer("x" * 5000),
                    {"authorization": "sk-one"}, {"authorization": "Basic sk-one"}, bearer("sk-one sk-one"),
                    bearer(hashlib.sha256(b"sk-three").hexdigest())):
        reply = guarded.embed("hello", **headers)
        assert reply.status == 401, headers
        assert reply.headers["www-authenticate"] == "Bearer"
        bodies.add(reply.body)
    assert len(bodies) == 1, "the refusal does not depend on the key"


def test_probes_need_none(guarded):
    for path in ("/live", "/ready", "/metrics"):
        assert guarded.ask("GET", path).status == 200


def test_refused_before_the_body(guarded):
    with guarded.raw() as raw:
        raw.send(request(body=None, content_length="30000000"))
        assert raw.reply().status == 401


def test_rate_of_one_key(guarded):
    count = 30  # in one piece, so that they come faster than one a second on any machine
    with guarded.raw() as raw:
        raw.send(request("GET", "/info", None, authorization="Bearer sk-two") * count)
        answers = [raw.reply() for _ in range(count)]
    assert [reply.status for reply in answers][:2] == [200, 200]
    late = [reply for reply in answers if reply.status == 429]
    assert late and all(int(reply.headers["retry-after"]) >= 1 for reply in late)
    assert guarded.embed("hello", **bearer("sk-one")).status == 200, "the others are not concerned"


def test_concurrent_requests_of_one_key(faulty, tmp_path):
    (tmp_path / "keys").write_text(FILE)
    running = faulty("--api-key-file", tmp_path / "keys", "--batch-max-texts", "1", "--batch-min-texts", "1")
    running.hold()
    with running.raw() as first:
        first.send(request(body=b'{"inputs":["a","b"]}', authorization="Bearer sk-three"))
        running.wait_of_model("queue_texts", lambda value: value == 1)
        assert running.embed("hello", **bearer("sk-three")).status == 429
        running.let_go()
        assert first.reply().status == 200
    serving.until(lambda: running.embed("hello", **bearer("sk-three")).status == 200)


def test_reload(start, tmp_path):
    path = tmp_path / "k"
    path.write_text("sk-old\n")
    running = start("--api-key-file", path)
    assert running.embed("a", **bearer("sk-old")).status == 200
    path.write_text("sk-new\n")
    running.send_signal(signal.SIGHUP)
    running.wait_event(lambda event: "reloaded: 1 API keys" in event["msg"])
    assert running.embed("a", **bearer("sk-old")).status == 401
    assert running.embed("a", **bearer("sk-new")).status == 200
    for damage in ("", "sk-new wrong=word\n", None):  # what is wrong leaves the old in force
        if damage is None:
            path.unlink()
        else:
            path.write_text(damage)
        count = sum("unchanged" in event["msg"] for event in running.events())
        running.send_signal(signal.SIGHUP)
        running.wait_event(lambda _: sum("unchanged" in event["msg"] for event in running.events()) > count)
        assert running.embed("a", **bearer("sk-new")).status == 200
    assert running.end() == 0
    assert "sk-" not in running.log()


@pytest.mark.parametrize("text, word", [
    ("", "no key"), ("# only\n", "no key"), ("sk-a nonsense\n", ":1:"), ("sk-a\nsk-a\n", ":2:"),
    ("s\0k\0-\0a\0\n\0", "NUL"), ("sha256:12\n", "64 hexadecimal"), ("sk-a rate=0\n", ":1:"), ("x" * 600 + "\n", "at most"),
])
def test_wrong_files(tmp_path, text, word):
    (tmp_path / "k").write_text(text)
    result = subprocess.run([serving.BIN, "serve", "--port", "0", "--api-key-file", str(tmp_path / "k")],
                            capture_output=True, text=True, timeout=serving.WAIT, env={"HOME": str(tmp_path)})
    assert result.returncode == 2 and word in result.stderr, result.stderr
    assert "sk-a" not in result.stderr and "xxx" not in result.stderr


def test_exposure(start, tmp_path):
    """Reachable from other machines: only with keys, or when that is meant."""
    (tmp_path / "k").write_text("sk-a\n")
    refused = start("--host", "0.0.0.0", ready=False)
    assert refused.process.wait(serving.WAIT) == 2 and "API key" in refused.log()
    for flags in (["--api-key-file", tmp_path / "k"], ["--server-insecure"]):
        running = start("--host", "0.0.0.0", *flags)
        assert running.end() == 0
    running = start("--host", "localhost")
    assert running.end() == 0
