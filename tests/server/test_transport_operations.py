# SPDX-License-Identifier: Apache-2.0
"""What operators see: probes, metrics, logs, addresses, systemd, CORS, models, ten thousand idle connections."""
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading

import pytest
import serving
from serving import request


# ---- Probes -------------------------------------------------------------------------------------------------------

def test_ready_after_warm_up_only(start):
    port = serving.free_port()
    running = start("--port", port, ready=False)
    running.where = ("127.0.0.1", port)
    seen = []
    while not seen or seen[-1] != 200:
        try:
            assert running.ask("GET", "/live").status == 200
        except ConnectionRefusedError:  # the socket is not open yet
            assert not seen and running.process.poll() is None, running.log()
            continue
        reply = running.ask("GET", "/ready")
        seen.append(reply.status)
        if reply.status == 503:
            assert "loading" in reply.body.decode() and reply.headers["retry-after"]
            refused = running.embed("hello")
            assert refused.status in (200, 503)
    assert set(seen) <= {200, 503} and seen[-1] == 200
    assert running.embed("hello").status == 200
    assert running.end() == 0


# ---- Statistics ---------------------------------------------------------------------------------------------------

def test_statistics_are_those_of_each_model(start):
    running = start("--model", f"a={serving.MODEL}", "--model", f"b={serving.MODEL}")
    for _ in range(3):
        assert running.ask("POST", "/v1/embeddings", b'{"model": "b", "input": ["one", "two"]}').status == 200
    found = {m["name"]: m["stats"] for m in running.ask("GET", "/stats").json()["models"]}
    assert list(found) == ["a", "b"]
    assert found["b"]["texts"] - found["a"]["texts"] == 6  # warming up is the same for both
    assert found["b"]["devices"] and found["b"]["forward"]["count"] > found["a"]["forward"]["count"]
    assert running.end() == 0


def test_statistics_need_a_key_where_there_are_keys(start, tmp_path):
    (tmp_path / "keys").write_text("sk-one\n")
    running = start("--api-key-file", tmp_path / "keys")
    assert running.ask("GET", "/metrics").status == 200 and running.ask("GET", "/stats").status == 401
    assert running.end() == 0


# ---- Profile ------------------------------------------------------------------------------------------------------

def test_a_running_server_is_profiled_for_a_while(start, tmp_path):
    trace = tmp_path / "trace.json"
    running = start("--profile-file", trace, "--profile-start", "false")
    post = lambda path: running.ask("POST", path, {})
    assert running.embed("before").status == 200
    assert (refused := post("/stop_profile")).status == 409 and "trace.json" in refused.body.decode()
    assert post("/start_profile").status == 200 and not trace.exists()
    assert post("/start_profile").status == 409
    assert running.embed("between").status == 200
    assert post("/stop_profile").json() == {"status": "written"}
    assert running.embed("after").status == 200
    names = [e["name"] for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    assert names.count("forward") == 1 and "tokenise" in names and "layer" in names
    written = trace.read_bytes()
    assert running.end() == 0 and trace.read_bytes() == written


def test_each_model_has_a_trace_and_a_failure_leaves_none_on(start, tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    running = start("--model", f"a={serving.MODEL}", "--model", f"b={serving.MODEL}",
                    "--profile-file", folder / "t.json", "--profile-start", "false")
    post = lambda path: running.ask("POST", path, b"")
    assert post("/start_profile").status == 200
    assert running.ask("POST", "/v1/embeddings", b'{"model": "a", "input": "text"}').status == 200
    assert post("/stop_profile").status == 200
    names = {n: [e["name"] for e in json.loads((folder / n).read_text())["traceEvents"]] for n in ("t.json", "t-2.json")}
    assert "forward" in names["t.json"] and "forward" not in names["t-2.json"]
    folder.rename(tmp_path / "away")
    assert post("/start_profile").status == 500
    (tmp_path / "away").rename(folder)
    assert post("/start_profile").status == 200 and post("/stop_profile").status == 200
    assert running.end() == 0


def test_without_a_file_there_is_no_profile(start):
    running = start()
    refused = running.ask("POST", "/start_profile", {})
    assert refused.status == 409 and "profile.file" in refused.body.decode()
    assert running.end() == 0


# ---- Metrics ------------------------------------------------------------------------------------------------------

def scrape(running):
    return running.ask("GET", "/metrics").body


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is in Debian's package prometheus")
@pytest.mark.parametrize("prefix", ["fletch", "syn"])
def test_promtool_has_nothing_to_say(start, prefix):
    running = start("--server-metrics-prefix", prefix)
    for text in (scrape(running), (running.embed("a"), running.ask("GET", "/nothing"), scrape(running))[2]):
        result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
        assert result.returncode == 0 and not result.stderr, result.stderr.decode()
    assert f"{prefix}_embedding_seconds_bucket{{le=" in scrape(running).decode()
    for line in (f"{prefix}_embedding_total 1", f"{prefix}_embeddings_total 1", f"{prefix}_embedding_seconds_count 1"):
        serving.until(lambda line=line: line in scrape(running).decode().splitlines())
    assert running.end() == 0


def test_wrong_prefix(start):
    running = start("--server-metrics-prefix", "1 x", ready=False)
    assert running.process.wait(serving.WAIT) == 2 and "metrics_prefix" in running.log()


def test_metrics_count_what_clients_count(start):
    running = start()
    clients, each = 8, 20

    def work():
        with running.raw() as raw:
            for i in range(each):
                texts = json.dumps({"inputs": [f"text {n}" for n in range(i % 3 + 1)]}).encode()
                assert raw.send(request(body=texts)).reply().status == 200

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        scrape(running)
    for thread in threads:
        thread.join()
    assert running.ask("GET", "/nothing").status == 404
    texts = clients * sum(i % 3 + 1 for i in range(each))
    for route, count in (('route="/embed",method="POST",code="200"', clients * each),
                         ('route="unmatched",method="",code="404"', 1)):
        name = "fletch_requests_total{" + route + "}"
        serving.until(lambda: running.metrics().get(name) == count, lambda: (name, running.metrics().get(name), count))
    metrics = running.metrics()
    assert metrics["fletch_embeddings_total"] == metrics["fletch_embedding_total"] == texts
    assert metrics["fletch_embedding_seconds_count"] == clients * each
    model = re.search(r'model="([^"]*)"', scrape(running).decode())[1]
    of_model = {name.split("{")[0].removeprefix("fletch_"): value for name, value in metrics.items() if f'model="{model}"' in name}
    assert of_model["tokens_total"] >= texts * 4
    texts = of_model["texts_total"]  # one more: that which warms
    for way in ("zero_copy_inputs_total", "copied_inputs_total"), ("zero_copy_outputs_total", "staged_outputs_total"):
        assert of_model[way[0]] + of_model[way[1]] == texts
    assert of_model["pool_requests_total"] == of_model["pool_hits_total"] + of_model["pool_allocations_total"] > 0
    assert running.end() == 0


def test_requests_cannot_make_series(server):
    before = len(server.metrics())
    for i in range(50):
        server.ask("GET", f"/made-up-{i}")
        server.ask("POST", "/embed", json.dumps({"inputs": "a", "model": f"m{i}"}).encode())
    assert len(server.metrics()) <= before + 30 * 4


# ---- Logs -----------------------------------------------------------------------------------------------------------

def test_json_lines(start):
    running = start()
    secret = "a text that no log may hold"
    running.embed(secret, **{"x-request-id": "my-request"})
    event = running.wait_event(lambda event: event.get("request_id") == "my-request")
    assert event["status"] == 200 and event["route"] == "/embed" and event["texts"] == 1 and event["tokens"] > 3
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["ts"])
    running.ask("GET", "/%0a%22injected")
    with running.raw() as raw:
        raw.send('GET /x"},{"injected":" HTTP/1.1\r\nHost: x\r\n\r\n').reply()
    assert running.end() == 0
    for line in running.log().splitlines():
        json.loads(line)
    assert secret not in running.log() and "injected" not in running.log()


@pytest.mark.parametrize("flag", [("--server-log-level", "debug"), ("--verbose",)])
def test_the_library_speaks_in_the_servers_log(start, flag):
    """At its level and in its form: a warning of a provider must not tear the JSON of a collector."""
    running = start(*flag, "--provider-order", "coreml,cpu")
    assert running.end() == 0
    said = [json.loads(line) for line in running.log().splitlines()]
    assert any(line["level"] == "debug" and line["msg"].startswith("provider cpu") for line in said), running.log()
    assert any(line["level"] == "warning" and "coreml" in line["msg"].lower() for line in said), running.log()
    assert not any("make onnxruntime" in line["msg"] for line in said), "no library brings CoreML to this system"


def test_plain_lines(start):
    running = start("--server-log-format", "text")
    running.embed("hello")
    assert running.end() == 0
    assert re.search(r"info +200 POST /embed [\d.]+ ms, 1 texts, 3 tokens id=[0-9a-f]{32}", running.log())


def test_levels(start, tmp_path):
    config = tmp_path / "fletch.toml"
    config.write_text('[server]\nlog_level = "warning"\n')
    running = start("--config", config)
    running.embed("a", **{"x-request-id": "quiet"})
    running.wait_requests(lambda count: count == 0)  # logged, or never
    config.write_text('[server]\nlog_level = "debug"\n')
    running.send_signal(signal.SIGHUP)

    def loud():
        running.ask("GET", "/live", headers={"x-request-id": "loud"})
        return any(event.get("request_id") == "loud" for event in running.events())

    serving.until(loud, lambda: "the new level never came into force")
    assert not any(event.get("request_id") == "quiet" for event in running.events())
    config.write_text("[server]\nlog_level = nonsense\n")
    running.send_signal(signal.SIGHUP)
    running.wait_event(lambda event: "reload failed" in event["msg"])
    assert running.end() == 0


def test_a_log_that_nobody_reads_blocks_nobody(start, tmp_path):
    read, write = os.pipe()
    env = {k: v for k, v in os.environ.items() if not k.startswith("FLETCH_")}
    env.update(FLETCH_MODEL_ID=serving.MODEL, FLETCH_SERVER_PORT="0", FLETCH_SERVER_LOG_LEVEL="debug",
               FLETCH_SERVER_LAME_DUCK_MS="0")
    process = subprocess.Popen([serving.BIN, "serve"], stdout=subprocess.PIPE, stderr=write, env=env)
    try:
        port = int(process.stdout.readline().rsplit(b":", 1)[1])
        for _ in range(600):  # far more than a pipe holds
            with serving.Raw(("127.0.0.1", port)) as raw:
                assert raw.send(request("GET", "/live", None) * 8).reply().status == 200
        process.send_signal(signal.SIGINT)  # which a program of Windows gets, too
        assert process.wait(serving.WAIT) == 0, "nor the end of the process"
    finally:
        process.kill()
        process.wait()
        os.close(read)
        os.close(write)


def test_no_method_writes_a_line_of_its_own(start):
    running = start()
    for method in ('X","status":200,"key":"admin","x":"', "\x1b[2J", "\x07", "\xff", "A" * 30_000, "A" * 33):
        with running.raw() as raw:
            reply = raw.send(f"{method} /live HTTP/1.1\r\nHost: x\r\n\r\n").reply()
            assert reply.status in (400, 501)
    with running.raw() as raw:
        assert raw.send("A" * 32 + " /live HTTP/1.1\r\nHost: x\r\n\r\n").reply().status == 405
    assert running.end() == 0
    for line in running.log().splitlines():
        event = json.loads(line)
        assert "key" not in event and len(line) < 1000 and (event["msg"] != "request" or event["status"] != 200), line


@pytest.mark.skipif(serving.WINE, reason="Windows opens what a program was not given")
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_standard_streams_stay_empty(tmp_path, closed):
    """Their numbers are not given to a socket or a lock, into which the log would then be written."""
    port = serving.free_port()
    env = {"HOME": str(tmp_path), "FLETCH_MODEL_ID": serving.MODEL, "FLETCH_SERVER_LAME_DUCK_MS": "0"}

    def close():
        for fd in closed:
            os.close(fd)

    process = subprocess.Popen([serving.BIN, "serve", "--port", str(port), "--server-log-level", "debug"], env=env,
                               preexec_fn=close)
    try:
        def ready():
            try:
                with serving.Raw(("127.0.0.1", port)) as raw:
                    return raw.send(request("GET", "/ready", None)).reply().status == 200
            except ConnectionError:
                return False
        serving.until(ready)
        for fd in closed:
            assert os.readlink(f"/proc/{process.pid}/fd/{fd}") == "/dev/null"
        process.send_signal(signal.SIGTERM)
        assert process.wait(serving.WAIT) == 0
    finally:
        process.kill()
        process.wait()


def test_a_reload_that_blocks_blocks_nothing(start, tmp_path):
    """A key file that became a pipe is refused; signals and clocks go on."""
    keys = tmp_path / "keys"
    keys.write_text("sk-a\n")
    running = start("--api-key-file", keys, "--server-header-seconds", "1")
    keys.unlink()
    os.mkfifo(keys)
    running.send_signal(signal.SIGHUP)
    running.wait_event(lambda event: "API keys unchanged" in event["msg"])
    with running.raw() as raw:
        assert raw.send("GET /").reply().status == 408
    assert running.embed("a", authorization="Bearer sk-a").status == 200
    assert running.end() == 0


# ---- Addresses ------------------------------------------------------------------------------------------------------

def test_port_that_is_taken(start):
    first = start()
    second = start("--port", first.port, ready=False)
    assert second.process.wait(serving.WAIT) != 0 and "another server uses it" in second.log()
    assert first.embed("hello").status == 200


def test_unix_sockets_left_behind(start, short):
    path = short / "s"
    first = start("--host", "none", "--unix-socket", path)
    assert first.where is None
    with first.raw(unix=True) as raw:
        assert raw.send(request()).reply().status == 200
    second = start("--host", "none", "--unix-socket", path, ready=False)
    assert second.process.wait(serving.WAIT) != 0, "a socket that answers is not taken over"
    first.kill()
    assert path.exists()
    third = start("--host", "none", "--unix-socket", path)
    assert third.end() == 0 and not path.exists()
    path.write_text("a file of somebody")
    fourth = start("--host", "none", "--unix-socket", path, ready=False)
    assert fourth.process.wait(serving.WAIT) != 0 and path.read_text() == "a file of somebody"


def test_a_unix_socket_is_not_everybodys(start, short, tmp_path):
    running = start("--unix-socket", short / "s", preexec_fn=lambda: os.umask(0))
    assert (short / "s").stat().st_mode & 0o777 == 0o770
    assert running.end() == 0
    (tmp_path / "k").write_text("sk-a\n")
    running = start("--unix-socket", short / "s", "--api-key-file", tmp_path / "k", preexec_fn=lambda: os.umask(0))
    assert (short / "s").stat().st_mode & 0o777 == 0o777, "a key is asked for"
    assert running.end() == 0


systemd = pytest.mark.skipif(serving.WINE, reason="Windows has no systemd")


@systemd
def test_systemd(tmp_path, short):
    """Socket activation, READY=1, RELOADING=1, STOPPING=1, as sd_listen_fds(3) and sd_notify(3) say."""
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(short / "notify"))
    notify.settimeout(serving.WAIT)
    listening = socket.create_server(("127.0.0.1", 0))
    code = ("import os,sys; fd=int(sys.argv[1]); os.dup2(fd, 3); os.set_inheritable(3, True);"
            "os.environ['LISTEN_PID']=str(os.getpid()); os.environ['LISTEN_FDS']='1';"
            "os.execv(sys.argv[2], [sys.argv[2], 'serve', '--port', '1'])")
    env = {"HOME": str(tmp_path), "NOTIFY_SOCKET": str(short / "notify"), "FLETCH_MODEL_ID": serving.MODEL,
           "FLETCH_SERVER_LAME_DUCK_MS": "0", "PATH": os.environ["PATH"]}
    process = subprocess.Popen([sys.executable, "-c", code, str(listening.fileno()), serving.BIN], env=env,
                               pass_fds=[listening.fileno()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        seen = []
        while "READY=1" not in seen:
            seen.append(notify.recv(200).decode())
        with serving.Raw(listening.getsockname()) as raw:
            assert raw.send(request()).reply().status == 200
        process.send_signal(signal.SIGHUP)
        while not any("RELOADING=1" in text and "MONOTONIC_USEC=" in text for text in seen):
            seen.append(notify.recv(200).decode())
        process.send_signal(signal.SIGTERM)
        while "STOPPING=1" not in seen:
            seen.append(notify.recv(200).decode())
        assert process.wait(serving.WAIT) == 0
    finally:
        process.kill()
        process.wait()


@systemd
def test_no_connection_is_lost_between_two_processes(tmp_path):
    """Who connects while a process loads or ends waits for the next, and never hears 503."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
    seen, ending = [], threading.Event()

    def work():
        while not ending.is_set():
            with serving.Raw(listening.getsockname()) as raw:
                reply = raw.send(request()).reply()
                seen.append(reply and reply.status)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            process = serving.inherit(listening, tmp_path)
            before = len(seen)
            serving.until(lambda: len(seen) > before + 50)
            process.send_signal(signal.SIGTERM)
            assert process.wait(serving.WAIT) == 0
        ending.set()
        process = serving.inherit(listening, tmp_path)
        for thread in threads:
            thread.join()
        process.send_signal(signal.SIGTERM)
        process.wait(serving.WAIT)
    finally:
        process.kill()
        process.wait()
        listening.close()
    assert set(seen) == {200}, {status: seen.count(status) for status in set(seen)}


@systemd
def test_who_was_taken_from_an_inherited_socket_is_answered(tmp_path):
    """The next process cannot have a connection that this one has accepted: a request that comes on it while this one
    drains is served. What comes on a connection that had its answer hears 503."""
    listening = socket.create_server(("127.0.0.1", 0))
    process = serving.inherit(listening, tmp_path)
    try:
        with contextlib.ExitStack() as stack:
            holds, probe, fresh, *kept = (stack.enter_context(serving.Raw(listening.getsockname())) for _ in range(203))

            def gauge(name):
                text = probe.send(request("GET", "/metrics", None)).reply().body.decode()
                return int(re.search(rf"^fletch_{name} (\d+)", text, re.M).group(1))

            for one in kept:
                assert one.send(request("GET", "/live", None)).reply().status == 200
            holds.send(request()[:-1])  # under way, so that the process cannot end
            serving.until(lambda: gauge("open_connections") == 203 and gauge("inflight_requests") == 2)
            process.send_signal(signal.SIGTERM)
            serving.until(lambda: (reply := kept.pop().send(request()).reply()) is not None and reply.status == 503)
            assert fresh.send(request()).reply().status == 200
            assert holds.send(request()[-1:]).reply().status == 200
        assert process.wait(serving.WAIT) == 0
    finally:
        process.kill()
        process.wait()
        listening.close()


# ---- CORS -----------------------------------------------------------------------------------------------------------

def preflight(running, origin, **more):
    return running.ask("OPTIONS", "/embed", headers={
        "origin": origin, "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-lang", **more})


def test_cors_off(server):
    reply = preflight(server, "https://page.example")
    assert not any(name.startswith("access-control") for name in reply.headers)
    assert "access-control-allow-origin" not in server.embed("a", origin="https://page.example").headers


@pytest.mark.parametrize("setting, origin, answer", [
    ("*", "https://page.example", "*"),
    ("https://a.example, https://page.example", "https://page.example", "https://page.example"),
    ("https://a.example", "https://page.example", None),
    ("https://page.example", "https://page.example.evil.org", None),
    ("https://page.example", "null", None),
])
def test_cors(start, tmp_path, setting, origin, answer):
    (tmp_path / "k").write_text("sk-a\n")
    running = start("--server-cors-origin", setting, "--api-key-file", tmp_path / "k")
    reply = preflight(running, origin)
    assert reply.status == 204, "a preflight carries no key"
    assert reply.headers.get("access-control-allow-origin") == answer
    if answer is not None:
        allowed = reply.headers["access-control-allow-headers"].lower().split(",")
        assert {"authorization", "content-type", "x-stainless-lang"} <= {name.strip() for name in allowed}
        assert "POST" in reply.headers["access-control-allow-methods"]
    reply = running.embed("a", origin=origin, authorization="Bearer sk-a")
    assert reply.status == 200 and reply.headers.get("access-control-allow-origin") == answer
    assert reply.headers["vary"].lower() == "origin"
    refused = running.embed("a", origin=origin)
    assert refused.status == 401 and refused.headers.get("access-control-allow-origin") == answer, \
        "a page can read why it was refused"
    assert running.end() == 0


EVIL = "https://evil.example"


def test_pages_of_strangers_change_nothing(start, tmp_path):
    running = start("--server-store", tmp_path / "s.db")
    own = f"http://127.0.0.1:{running.port}"
    body = b'{"text":"hello","id":"a"}'

    def add(**headers):
        with running.raw() as raw:
            return raw.send(request(path="/add", body=body, host=f"127.0.0.1:{running.port}", **headers)).reply().status

    assert add(origin=EVIL) == 403 and add(origin=EVIL, content_type=None) == 403 and add(origin="null") == 403
    assert add(content_type=None) == 415 and add(content_type="text/plain") == 415, "what a form sends"
    assert add(origin="http://127.0.0.1:1") == 403, "another port is another origin"
    assert add() == 200 and add(origin=own) == 200
    for path in ("/v1/embeddings", "/api/embed", "/v2/embed", "/search", "/embed"):
        assert running.ask(path=path, headers={"origin": EVIL}).status == 403
    assert running.ask("DELETE", "/items/a", b"", {"origin": EVIL}).status == 403
    assert running.ask("GET", "/items/a", headers={"origin": EVIL}).status == 200  # which the page cannot read
    assert running.end() == 0
    allowed = start("--server-cors-origin", EVIL)
    assert allowed.embed("a", origin=EVIL).status == 200
    assert allowed.end() == 0


def test_names_of_strangers_are_not_ours(start):
    """DNS rebinding: a page's own name that points to this machine."""
    hosts = {"rebind.evil.example": 403, "rebind.evil.example:9900": 403, "evil.example.": 403, "localhost": 200,
             "LOCALHOST:9900": 200, "a.localhost": 200, "127.0.0.1": 200, "192.168.1.2:9900": 200, "[::1]:9900": 200, "fletch": 200,
             "127.0.0.1.evil.example": 403, "notlocalhost.com": 403, "my.name.example": 403}

    def ask(running, host):
        with running.raw() as raw:
            return raw.send(request(host=host)).reply().status

    running = start()
    for host, status in hosts.items():
        assert ask(running, host) == status, host
    with running.raw() as raw:
        assert raw.send(request("GET", "/ready", None, host="probe.example")).reply().status == 200
    assert running.end() == 0
    named = start("--server-allowed-hosts", "other.example, My.Name.example")
    assert ask(named, "my.name.example:80") == 200 and ask(named, "evil.example") == 403
    assert named.end() == 0


# ---- Models ---------------------------------------------------------------------------------------------------------

def openai(running, model):
    return running.ask("POST", "/v1/embeddings", json.dumps({"input": "hello", "model": model}).encode())


def test_models_by_name(start):
    running = start("--model", f"small={serving.MODEL}", "--model", f"other={serving.MODEL}")
    for name in ("small", "other"):
        reply = openai(running, name)
        assert reply.status == 200 and reply.json()["model"] == name
    assert openai(running, "unknown").status == 404
    assert running.end() == 0
    listed = start(env={"FLETCH_SERVER_MODELS": f"a={serving.MODEL}, b={serving.MODEL}"})
    assert openai(listed, "b").json()["model"] == "b"
    assert listed.end() == 0
    same = start("--model", f"a={serving.MODEL}", "--model", f"a={serving.MODEL}", ready=False)
    assert same.process.wait(serving.WAIT) != 0 and "two models" in same.log()


# ---- Connections ----------------------------------------------------------------------------------------------------

@pytest.mark.skipif(serving.WINE, reason="wine's own server looks at every socket for each, and stands still with thousands")
def test_ten_thousand_idle_connections(start):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 10_000
    if hard != resource.RLIM_INFINITY and hard < wanted + 300:
        pytest.skip(f"the system allows {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 300), hard))
    running = start("--server-idle-seconds", "3600", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard)))
    before = running.resident()
    idle = []
    try:
        for _ in range(wanted):
            idle.append(socket.create_connection(running.where, serving.WAIT))
        running.wait_metric("fletch_open_connections", lambda value: value >= wanted)
        assert running.embed("hello").status == 200
        assert running.resident() - before < wanted * 40_000
        for one in idle[::1000]:
            one.sendall(request("GET", "/live", None))
            assert b"200 OK" in one.recv(1000)
    finally:
        for one in idle:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    running.wait_metric("fletch_open_connections", lambda value: value <= 1)
    assert running.end() == 0


def test_who_was_refused_makes_room_for_others(start):
    """A refused sender may finish reading, but its descriptor counts: the next one gets its place at once."""
    running = start("--server-max-connections", "8", "--server-io-threads", "1")
    before, held = running.files(), []
    try:
        for _ in range(100):
            held.append(running.raw().send("GET /live HTTP/1.1\r\n\r\n"))  # no Host, and it does not leave
            assert held[-1].reply().status == 400
            assert running.files() - before <= 8 + 1
        assert running.ask("GET", "/live").status == 200
    finally:
        for raw in held:
            raw.socket.close()
    assert running.end() == 0


def test_connection_cap(start):
    running = start("--server-max-connections", "20")
    held = [running.raw() for _ in range(40)]
    try:
        answered = 0
        for raw in held[:20]:
            answered += raw.send(request("GET", "/live", None)).reply().status == 200
        assert answered == 20
        held[30].send(request("GET", "/live", None))
        for raw in held[:20]:
            raw.socket.close()
        assert held[30].reply().status == 200, "who waited is served when others leave"
    finally:
        for raw in held:
            raw.socket.close()
    assert running.end() == 0
