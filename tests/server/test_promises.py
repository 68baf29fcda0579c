# SPDX-License-Identifier: Apache-2.0
"""The server's promises (docs/server.md), one test each at least. `faulty` is the whole program on an engine that
goes wrong when the test says so; where order matters, it holds on to its batch until the rest is in place."""
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
import serving
from serving import Raw, request

SMALL = serving.ROOT / "tests" / "golden" / "folders" / "prompts"  # a model of a few kilobytes


def begin(count, work):
    """Starts work(0), work(1) …, a thread each; what comes back waits for them and has their results."""
    results = [None] * count

    def one(i):
        results[i] = work(i)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()

    def finish():
        for thread in threads:
            thread.join()
        return results

    return finish


def many(count, work):
    return begin(count, work)()


def texts(count, words=1):
    return json.dumps({"inputs": [f"text {i}" + " word" * words for i in range(count)]}).encode()


QUEUE_FULL = 'fletch_rejected_total{reason="queue_full"}'


# ---- 1, 2: too much ------------------------------------------------------------------------------------------------

def test_01_too_much_is_turned_away_and_memory_stays_flat(faulty):
    running = faulty("--server-max-queue-tokens", "400", "--batch-max-texts", "8")
    running.embed("warm")
    running.hold()
    before = running.resident()
    finish = begin(200, lambda i: running.ask(body=texts(8)))
    running.wait_metric(QUEUE_FULL, lambda value: value >= 150)  # of 400 tokens, and a batch in the engine
    running.let_go()
    answers = finish()
    statuses = {reply.status for reply in answers}
    assert statuses == {200, 429}, statuses
    for reply in answers:
        if reply.status == 429:
            assert 1 <= int(reply.headers["retry-after"]) <= 120
            assert b"verload" in reply.body
    assert running.resident() - before < 100_000_000
    refused = sum(reply.status == 429 for reply in answers)
    assert running.metrics()[QUEUE_FULL] == refused
    running.wait_of_model("queue_tokens", lambda value: value == 0)
    assert running.embed("after").status == 200
    assert running.end() == 0


def test_02_who_waits_as_told_is_served(faulty):
    running = faulty("--server-max-queue-tokens", "100", "--batch-max-texts", "8")
    running.hold()
    turned_away = []

    def patient(_):
        for _ in range(100):
            reply = running.ask(body=texts(6))
            if reply.status != 429:
                return reply.status
            turned_away.append(reply)
            time.sleep(int(reply.headers["retry-after"]))

    finish = begin(14, patient)
    running.wait_metric(QUEUE_FULL, lambda value: value > 0)
    running.plan("late", late_ms=100)
    assert set(finish()) == {200} and turned_away
    for path, body in (("/v1/embeddings", {"input": "a"}), ("/api/embed", {"model": "m", "input": "a"})):
        answers = many(30, lambda _: running.ask("POST", path, json.dumps(body).encode()))
        assert {reply.status for reply in answers} <= {200, 429, 503}
        assert all("retry-after" in reply.headers for reply in answers if reply.status != 200)
    assert running.end() == 0


# ---- 3, 4: sizes (test_transport_limits.py has the other limits) ------------------------------------------------------

@pytest.mark.parametrize("depth, status", [(31, 200), (32, 200), (33, 400), (100_000, 400)])
def test_03_depth_of_json(server, depth, status):
    inside = b"[" * (depth - 1) + b"]" * (depth - 1)
    reply = server.ask(body=b'{"inputs":"hello","unknown":' + inside + b"}")
    assert reply.status == status, reply


def test_04_the_longest_text_fits_the_budget(start):
    length = 256
    running = start("--batch-max-tokens", str(length))
    for words in (length - 3, length - 2, length - 1, length * 4):
        reply = running.ask(body=json.dumps({"inputs": ["hello " * words] * 3}).encode())
        assert reply.status == 200 and len(reply.json()) == 3, words
        refused = running.ask(body=json.dumps({"inputs": "hello " * words, "truncate": False}).encode())
        assert refused.status == (200 if words <= length - 2 else 422), (words, refused)
    assert running.end() == 0


# ---- 5, 6: time and leaving ------------------------------------------------------------------------------------------

def test_05_late_work_never_reaches_the_engine(faulty):
    running = faulty("--batch-max-texts", "1", "--batch-min-texts", "1")
    before = running.of_model("texts_total")
    running.hold()
    with running.raw() as first:
        first.send(request(body=texts(3)))
        running.wait_of_model("queue_texts", lambda value: value == 2)  # and one is in the engine
        late = running.embed("late", **{"x-fletch-deadline-ms": "100"})
        assert late.status == 504
        running.let_go()
        assert first.reply().status == 200
    running.wait_of_model("expired_total", lambda value: value == 1)
    assert running.of_model("texts_total") - before == 3, "the late text was not computed"
    assert running.end() == 0


def test_05_the_servers_own_deadline(faulty):
    running = faulty("--server-deadline-ms", "300", "--batch-max-texts", "1", "--batch-min-texts", "1")
    running.plan("late", late_ms=400)
    answers = many(4, lambda i: running.embed(f"text {i}").status)
    assert 504 in answers and set(answers) <= {200, 504}
    raised = running.embed("a", **{"x-fletch-deadline-ms": "60000"})
    assert raised.status in (200, 504), "a client can lower the deadline only"
    assert running.end() == 0


def test_06_work_of_those_who_left_is_dropped(faulty):
    running = faulty("--batch-max-texts", "8")
    running.hold()
    computed = running.of_model("texts_total")
    raws = [running.raw().send(request(body=texts(8))) for _ in range(100)]
    running.wait_of_model("queue_texts", lambda value: value == 99 * 8)  # and a batch is in the engine
    for raw in raws:
        raw.socket.close()
    running.wait_of_model("cancelled_total", lambda value: value >= 99)
    running.wait_of_model("queue_texts", lambda value: value == 0)
    running.let_go()
    running.wait_requests(lambda count: count == 0)
    assert running.of_model("texts_total") - computed <= 8
    assert running.end() == 0


# ---- 7, 8: ending and reloading (test_transport_drain.py has more) ---------------------------------------------------

def test_07_a_hung_engine_does_not_keep_the_process(faulty):
    running = faulty("--server-drain-seconds", "1", "--server-watchdog-seconds", "off")
    running.hold()
    with running.raw() as raw:
        raw.send(request())
        running.wait_requests(lambda count: count >= 1)
        running.send_signal(signal.SIGTERM)
        reply = raw.reply()
        assert reply is None or reply.status == 503, reply
    assert running.process.wait(serving.WAIT) == 1


def test_08_reloading_under_load_changes_no_answer(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-a\n")
    running = start("--api-key-file", keys)
    expected = running.embed("hello", authorization="Bearer sk-a").body
    stop, wrong = threading.Event(), []

    def load():
        with running.raw() as raw:
            while not stop.is_set():
                reply = raw.send(request(authorization="Bearer sk-a")).reply()
                if reply is None or reply.body != expected:
                    wrong.append(reply)
                    return

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(200):
        keys.write_text("broken line here\n" if i % 10 == 5 else f"sk-{i}\nsk-a\n")
        running.send_signal(signal.SIGHUP)
        time.sleep(0.005)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    assert running.end() == 0


# ---- 9 to 12: engines that fail ---------------------------------------------------------------------------------------

def test_09_ready_follows_the_engine_and_live_does_not(faulty):
    running = faulty()
    assert running.ask("GET", "/ready").status == 200
    running.plan("broken")
    assert running.embed("hello").status >= 500
    assert running.ask("GET", "/ready").status == 503
    assert running.ask("GET", "/live").status == 200
    assert running.metrics()["fletch_ready"] == 0
    running.plan("none")
    serving.until(lambda: running.ask("GET", "/ready").status == 200, lambda: "ready again without anybody's doing")
    assert running.embed("hello").status == 200
    assert running.end() == 0


def test_10_memory_that_runs_out_splits_the_batch(faulty):
    running = faulty()
    good = running.ask(body=texts(40)).json()
    running.plan("nomem")
    assert running.ask(body=texts(40)).json() == good, "every text once, in order"
    running.wait_of_model("oom_splits_total", lambda value: value > 0)
    running.plan("nomem_all")
    assert running.ask(body=texts(4)).status >= 500
    running.plan("none")
    assert running.ask(body=texts(40)).json() == good
    assert running.end() == 0


def test_11_a_hung_engine_ends_the_process(faulty):
    running = faulty("--server-watchdog-seconds", "3")
    running.hold()
    with running.raw() as raw:
        raw.send(request())
        reply = raw.reply()
        assert reply.status == 503, reply
    assert running.process.wait(serving.WAIT) == 70
    assert "watchdog" in running.log()


def test_12_never_a_vector_that_is_none(faulty):
    running = faulty()
    good = running.ask(body=texts(8))
    assert good.status == 200
    running.plan("silent_nan")
    for path, body in (("/embed", texts(1)), ("/v1/embeddings", b'{"input":["a"]}'),
                       ("/api/embed", b'{"model":"m","input":["a"]}')):
        reply = running.ask("POST", path, body)
        assert reply.status >= 400, (path, reply)
        assert b"nan" not in reply.body.lower() or b"error" in reply.body
        assert b"null" not in reply.body or b"error" in reply.body
    running.plan("none")
    assert running.ask(body=texts(8)).body == good.body
    assert running.end() == 0


# ---- 13, 14: what comes from strangers ----------------------------------------------------------------------------------

def test_13_damaged_model_files_are_told(tmp_path):
    folder = pathlib.Path(serving.MODEL)
    if not (folder / "model.safetensors").exists():
        pytest.skip("FLETCH_MODEL names no model folder (make model)")
    size = (folder / "model.safetensors").stat().st_size
    head = (folder / "model.safetensors").read_bytes()[:4_000_000]
    for name, data in (("empty", b""), ("short", head[:7]), ("header", head[:5000]), ("cut", head),
                       ("huge header", b"\xff" * 7 + b"\x7f" + head[8:]), ("flipped", head[:2] + b"\xff" + head[3:])):
        broken = tmp_path / name
        shutil.copytree(folder, broken, ignore=shutil.ignore_patterns("model.safetensors", "*.onnx", "*.bin", "onnx"))
        (broken / "model.safetensors").write_bytes(data)
        result = subprocess.run([serving.BIN, "serve", "--port", "0", "--model", str(broken)], capture_output=True,
                                timeout=serving.WAIT, env={"HOME": str(tmp_path), "FLETCH_MODEL_OFFLINE": "true"})
        assert result.returncode == 3 and b"model.safetensors" in result.stderr, (name, size, result)


@pytest.fixture
def copied(tmp_path):
    """A model whose weights are this test's own."""
    if not serving.MODEL:
        pytest.skip("FLETCH_MODEL names no model folder (make model)")
    folder = tmp_path / "model"
    shutil.copytree(serving.MODEL, folder, ignore=shutil.ignore_patterns("*.onnx", "*.bin"))
    (folder / "model.safetensors").chmod(0o644)
    return folder


held = pytest.mark.skipif(serving.WINE, reason="Windows does not let a file be cut that is mapped; wine does")


@pytest.mark.parametrize("how", [pytest.param("cut", marks=held), "other", "rewritten"])
def test_13_weights_written_under_the_server(start, copied, how):
    """Neither a crash nor another model's vectors under this one's name: it answers nothing any more and is not ready."""
    running = start("--model", copied, model=False)
    first = running.embed("hello").body
    weights = copied / "model.safetensors"
    if how == "cut":
        os.truncate(weights, 1 << 20)
        assert running.embed("hello words that were not read before").status == 500
    elif how == "other":
        text = weights.read_bytes()
        weights.write_bytes(text[:-1000])
    else:
        with open(weights, "r+b") as file:
            file.seek(-1000, os.SEEK_END)
            file.write(bytes(1000))
    serving.until(lambda: running.ask("GET", "/ready").status == 503)
    refused = running.embed("hello")
    assert refused.status == 500 and first != refused.body
    assert running.ask("GET", "/live").status == 200
    running.wait_event(lambda event: "was modified while being served" in event["msg"])
    assert running.end() == 0


@held
def test_13_weights_of_a_folder_of_any_name(start, copied):
    """The model says which files it has mapped, wherever modules.json put them."""
    inner = copied / "encoder"
    inner.mkdir()
    for path in copied.iterdir():
        if path.is_file() and path.name not in ("modules.json", "config_sentence_transformers.json"):
            path.rename(inner / path.name)
    modules = json.loads((copied / "modules.json").read_text())
    modules[0]["path"] = "encoder"
    (copied / "modules.json").write_text(json.dumps(modules))
    running = start("--model", copied, model=False)
    assert running.embed("hello").status == 200
    os.truncate(inner / "model.safetensors", 1 << 20)
    assert running.embed("hello words that were not read before").status == 500
    serving.until(lambda: running.ask("GET", "/ready").status == 503)
    assert running.end() == 0


def test_13_weights_replaced_under_the_server(start, copied):
    running = start("--model", copied, model=False)
    first = running.embed("hello").body
    (copied / "new").write_bytes((copied / "model.safetensors").read_bytes()[:-1000])
    os.replace(copied / "new", copied / "model.safetensors")
    running.wait_event(lambda event: "was replaced" in event["msg"])
    assert running.embed("hello").body == first and running.ask("GET", "/ready").status == 200
    assert running.end() == 0


def test_14_noise_on_the_socket(start):
    """Whole and broken requests, bytes changed at random by a fixed seed: the server lives and answers the next."""
    server = start("-m", SMALL, model=False)
    chance = random.Random(14)
    bodies = [b'{"inputs":"hello"}', b'{"input":["a","b"],"encoding_format":"base64"}', b'{"model":"m","prompt":"x"}',
              b'{"query":"a","texts":["b","c"]}', b'[[["{\\u0000\\ud800"]]]']
    paths = ["/embed", "/v1/embeddings", "/api/embed", "/api/embeddings", "/v2/embed", "/tokenize", "/similarity", "/"]
    for _ in range(1500):
        text = bytearray(request(path=chance.choice(paths), body=chance.choice(bodies)))
        for _ in range(chance.choice((0, 1, 1, 2, 5, 40))):
            where = chance.randrange(len(text))
            if chance.random() < 0.3:
                del text[where:where + chance.randrange(1, 10)]
            elif chance.random() < 0.5:
                text[where] = chance.randrange(256)
            else:
                text[where:where] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 8)))
        with server.raw() as raw:
            try:
                raw.send(bytes(text))
                raw.socket.shutdown(socket.SHUT_WR)
                while raw.socket.recv(65536):
                    pass
            except OSError:
                pass
    assert server.embed("hello").status == 200
    assert server.end() == 0


# ---- 15 to 17: the process ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("preset", ["asan", "tsan"])
def test_15_sanitizers_find_nothing(tmp_path, preset):
    """A mixed run against the sanitized program, if it is built: ninja -C build-tsan fletch."""
    program = pathlib.Path(os.environ.get(f"FLETCH_BIN_{preset.upper()}", serving.ROOT / f"build-{preset}" / "fletch"))
    if not program.exists():
        pytest.skip(f"{program} is not built")

    class Sanitized(serving.Server):
        PROGRAM = str(program)

    running = Sanitized(tmp_path, "--server-io-threads", "2", env={"TSAN_OPTIONS": "halt_on_error=0 exitcode=66",
                                                                   "ASAN_OPTIONS": "detect_leaks=1"})
    try:
        def work(i):
            for k in range(6):
                with running.raw() as raw:
                    raw.send(request(body=texts(1 + (i + k) % 7)))
                    if (i + k) % 4 == 0:
                        continue  # leave
                    raw.reply()
                    raw.send(request("GET", "/metrics", None)).reply()
                running.ask("POST", "/v1/embeddings", b'{"input":["a","b"]}')
            return True

        for _ in range(5):
            running.send_signal(signal.SIGHUP)
        many(16, work)
        assert running.end() == 0, running.log()[-6000:]
        assert "Sanitizer" not in running.log(), running.log()[-6000:]
    finally:
        running.kill()


def test_16_any_allocation_may_fail(faulty):
    """The n-th allocation from now fails, n = 0, 1, 2 …: an error or a closed connection, never the end; what comes
    after is right."""
    running = faulty("--server-watchdog-seconds", "off")
    requests = [request(body=texts(5)), request(path="/v1/embeddings", body=b'{"input":["a","b"]}'),
                request("GET", "/metrics", None), request("GET", "/nothing", None)]
    expected = running.ask(body=texts(5)).body
    seen = set()
    for n in range(1, 60):
        running.command(f"alloc {n}")
        with running.raw() as raw:
            try:
                reply = raw.send(requests[n % len(requests)]).reply()
                seen.add(reply.status if reply is not None else None)
            except (OSError, AssertionError):
                seen.add(None)
        running.command("alloc 0")
        assert running.process.poll() is None, (n, running.log()[-3000:])
    serving.until(lambda: running.ask("GET", "/ready").status == 200)
    assert running.ask(body=texts(5)).body == expected
    assert 200 in seen
    assert running.end() == 0


def test_17_nothing_grows(start):
    """A small model, so that what is measured is the server: thousands of requests, good, broken and left."""
    running = start("-m", SMALL, "--server-io-threads", "2", model=False)

    def round_of(count):
        with running.raw() as raw:
            for i in range(count):
                raw.send(request(body=texts(1 + i % 3)) if i % 2 else request("GET", "/live", None))
                raw.reply()
        for _ in range(count // 10):
            running.ask("GET", "/metrics")
            running.ask("POST", "/embed", b"{broken")
            with running.raw() as raw:
                raw.send(request(body=texts(5)))  # and gone

    files = running.files()  # nobody is connected
    def grown():
        before = running.resident()
        for _ in range(6):
            round_of(400)
        return running.resident() - before

    serving.until(lambda: grown() < 2_000_000)  # pools fill once; what leaks grows every time
    serving.until(lambda: running.files() <= files, lambda: (running.files(), files))  # who left is found out later
    assert running.end() == 0


# ---- 18 to 20: dying and where it runs -----------------------------------------------------------------------------------------

def test_18_killed_and_started_again_at_once(start, short):
    """Same port, same socket file, same bytes. (What is stored survives too: tests of /add.)"""
    port = serving.free_port()
    first = start("--unix-socket", short / "s", "--port", port)
    expected = first.embed("hello").body
    first.kill()
    second = start("--unix-socket", short / "s", "--port", port)
    assert second.embed("hello").body == expected and second.port == port
    assert second.end() == 0


UNITS = sorted(serving.ROOT.glob("deploy/**/*.service")) + sorted(serving.ROOT.glob("examples/**/*.service"))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
@pytest.mark.skipif(not UNITS, reason="no unit is shipped")
def test_19_the_unit_is_hardened():
    for unit in UNITS:
        result = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)],
                                capture_output=True, text=True)
        assert result.returncode == 0, result.stdout[-2000:] + result.stderr


@pytest.mark.skipif(not UNITS, reason="no unit is shipped")
def test_20_the_unit_filters_system_calls():
    for unit in UNITS:
        text = unit.read_text()
        assert "SystemCallFilter=" in text and "NoNewPrivileges=" in text and "notify" in text


# ---- 21 to 24: secrets, exposure, paths, bombs -----------------------------------------------------------------------------------

def test_21_secrets_stay_secret(start, tmp_path):
    (tmp_path / "keys").write_text("sk-very-secret name=team\n")
    running = start("--api-key-file", tmp_path / "keys", "--server-log-level", "debug")
    bodies = {running.embed("a", authorization=f"Bearer {key}").body for key in ("x", "sk-very-secre", "sk-very-secrets")}
    assert len(bodies) == 1
    assert running.embed("a", authorization="Bearer sk-very-secret").status == 200
    assert b"sk-very" not in pathlib.Path(f"/proc/{running.process.pid}/cmdline").read_bytes()
    everything = running.ask("GET", "/metrics").body + running.ask(
        "GET", "/info", headers={"authorization": "Bearer sk-very-secret"}).body
    assert b"sk-very" not in everything
    assert running.end() == 0 and "sk-very" not in running.log()


@pytest.mark.parametrize("host, key, insecure, starts", [
    ("127.0.0.1", False, False, True), ("::1", False, False, True), ("0.0.0.0", False, False, False),
    ("0.0.0.0", True, False, True), ("0.0.0.0", False, True, True), ("::", False, False, False),
    ("none", False, False, True),
])
def test_22_exposure(start, tmp_path, short, host, key, insecure, starts):
    if ":" in host:
        try:
            socket.create_server((host, 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("no IPv6 here")
    (tmp_path / "keys").write_text("sk-a\n")
    flags = ["--host", host] + (["--api-key-file", tmp_path / "keys"] if key else []) + \
            (["--server-insecure"] if insecure else []) + (["--unix-socket", short / "s"] if host == "none" else [])
    running = start(*flags, ready=starts)
    if starts:
        assert running.end() == 0
    else:
        assert running.process.wait(serving.WAIT) == 2 and "server.api_key_file" in running.log()


def test_23_model_names_open_nothing(start):
    running = start("--model", f"small={SMALL}", "--model", f"other={SMALL}", model=False)
    files = running.files()
    for name in ("../../etc/passwd", "/etc/passwd", "..%2f..%2fetc", "small/../other", "small\x00", ".", "http://127.0.0.1:1/x",
                 "a" * 10000, str(SMALL), f"small={SMALL}"):
        for path, body in (("/v1/embeddings", {"input": "a", "model": name}), ("/api/embed", {"input": "a", "model": name}),
                           ("/embed", {"inputs": "a", "model": name}), ("/v2/embed", {"texts": ["a"], "model": name})):
            reply = running.ask("POST", path, json.dumps(body).encode())
            if name != str(SMALL):  # the id that it was opened by is a name
                assert reply.status in (400, 404), (name, reply)
            assert b"root:" not in reply.body
    serving.until(lambda: running.files() <= files + 1, lambda: (running.files(), files))
    assert running.end() == 0


@pytest.mark.parametrize("piece", ["a", ".", " ", "\u0301", "e\u0301", "漢", "👨\u200d👩\u200d👧", "\\n", "Ａ", "##", "[CLS]"])
def test_24_a_megabyte_of_one_thing(server, piece):
    before = server.resident()
    text = piece * (1_000_000 // len(piece.encode()))
    reply = server.ask(body=b'{"inputs":"' + text.encode() + b'"}')
    assert reply.status == 200 and len(reply.json()[0]) == 384
    assert server.resident() - before < 200_000_000
