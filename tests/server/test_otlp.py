# SPDX-License-Identifier: Apache-2.0
"""Traces and metrics for OpenTelemetry: a collector of the test's own takes them, OpenTelemetry's package reads them."""
import base64
import gzip
import http.server
import json
import re
import socket
import subprocess
import threading

import clients
import pytest
import serving
from serving import request

FOLDER = serving.ROOT / "tests" / "golden" / "folders" / "pooling-cls"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01"


class Collector(http.server.ThreadingHTTPServer):
    """Keeps what is posted; answers with what answer(path, how many came before) says."""

    def __init__(self, answer=lambda path, before: (200, {}, b"")):
        self.got, self.headers, self.answer = [], [], answer
        self.asked = 0
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.asked += 1
        status, headers, answer = self.server.answer(self.path, self.server.asked - 1)
        if status == 200:
            self.server.headers.append(dict(self.headers))
            self.server.got.append((self.path, gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body))
        self.send_response(status)
        for name, value in {"content-length": str(len(answer)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def collect():
    made = []

    def make(*answer):
        made.append(Collector(*answer))
        return made[-1]

    yield make
    for one in made:
        one.shutdown()
        one.server_close()


@pytest.fixture
def serve(start):
    """serve(collector, "--flag", ENV="…"): a server that exports to it."""

    def run(collector, *flags, **env):
        url = collector if isinstance(collector, str) else collector.url
        return start("--model", FOLDER, "--server-store", "none", *flags, model=False, env={"OTEL_EXPORTER_OTLP_ENDPOINT": url} | env)

    return run


def decode(got):
    """What was posted, read by the packages of build/clients."""
    lines = "".join(f"{path} {base64.b64encode(body).decode()}\n" for path, body in got)
    done = subprocess.run([clients.python(), serving.ROOT / "tests/server/otlp_decode.py"], input=lines, env=clients.environment(),
                          capture_output=True, text=True, timeout=serving.WAIT, check=False)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def finish(running, collector):
    """The spans and metrics of a server that has ended."""
    assert running.end() == 0, running.log()
    found = decode(collector.got)
    return found["spans"], {metric["name"]: metric for metric in found["metrics"]}


# ---- Spans --------------------------------------------------------------------------------------------------------

def test_a_request_is_a_span_below_its_callers(serve, collect):
    collector = collect()
    running = serve(collector, OTEL_RESOURCE_ATTRIBUTES="team=a%2Cb , service.name=other,service.instance.id=i-1", OTEL_SERVICE_NAME="mine",
                    OTEL_EXPORTER_OTLP_HEADERS="api-key=a%20secret, x-tenant = t")
    reply = running.ask(body=b'{"inputs":["hello","more of it"]}', headers={"traceparent": SAMPLED, "tracestate": "vendor=1,other=2"})
    assert reply.status == 200
    version, trace, ours, flags = reply.headers["traceresponse"].split("-")
    assert (version, trace, flags) == ("00", TRACE, "01")
    running.wait_event(lambda event: event.get("trace_id") == TRACE and event.get("span_id") == ours)
    for path in ("/live", "/metrics"):
        assert running.ask("GET", path, headers={"traceparent": SAMPLED}).status == 200  # probes and scrapes are no spans
    assert running.ask("GET", "/nothing?a=secret").status == 404
    late = running.ask(body=json.dumps({"inputs": ["a long text " * 400] * 300}).encode(), headers={"x-fletch-deadline-ms": "1"})
    assert late.status == 504
    spans, _ = finish(running, collector)

    assert len({span["id"] for span in spans}) == len(spans)
    assert all(span["resource"] == {"service.name": "mine", "team": "a,b", "service.instance.id": "i-1",
                                    "service.version": span["resource"]["service.version"]} for span in spans)
    assert all(h["api-key"] == "a secret" and h["x-tenant"] == "t" and h["Content-Type"] == "application/x-protobuf" for h in collector.headers)
    roots = {span["name"] + str(span["attributes"]["http.response.status_code"]): span for span in spans if span["kind"] == 2}
    assert sorted(roots) == ["GET404", "POST /embed200", "POST /embed504"]

    of = roots["POST /embed200"]
    assert (of["trace"], of["id"], of["parent"], of["state"], of["error"], of["flags"]) == (TRACE, ours, PARENT, "vendor=1,other=2", False, 0x301)
    told = of["attributes"]
    assert {k: told[k] for k in ("http.request.method", "http.route", "url.path", "url.scheme", "fletch.texts", "gen_ai.operation.name",
                                 "gen_ai.request.model")} == {
        "http.request.method": "POST", "http.route": "/embed", "url.path": "/embed", "url.scheme": "http", "fletch.texts": 2,
        "gen_ai.operation.name": "embeddings", "gen_ai.request.model": FOLDER.name}
    assert told["gen_ai.usage.input_tokens"] == int(reply.headers["x-compute-tokens"])
    assert told["http.response.body.size"] == len(reply.body) and told["http.request.body.size"] == 33
    children = [span for span in spans if span["parent"] == ours]
    assert [span["name"] for span in children] == ["tokenize", "queue", "forward", "write"]
    assert all(span["trace"] == TRACE and span["kind"] == 1 and span["flags"] == 0x101 for span in children)
    assert all(of["begin"] <= span["begin"] < span["end"] <= of["end"] for span in children)
    ends = [(span["begin"], span["end"]) for span in children]
    assert all(before[1] <= after[0] for before, after in zip(ends, ends[1:]))
    event = running.wait_event(lambda event: event.get("span_id") == ours)
    for name, key in (("tokenize", "tokenize_ms"), ("queue", "queue_ms"), ("forward", "infer_ms")):  # what the log says, too
        span = next(span for span in children if span["name"] == name)
        assert (span["end"] - span["begin"]) / 1e6 == pytest.approx(event[key], abs=0.001)

    lost = roots["GET404"]
    assert lost["parent"] == "" and lost["flags"] == 0x101 and not lost["error"] and lost["trace"] != TRACE
    assert lost["attributes"]["url.path"] == "/nothing" and "http.route" not in lost["attributes"] and "secret" not in json.dumps(lost)
    over = roots["POST /embed504"]
    assert over["error"] and over["attributes"]["error.type"] == "504"
    failed = [span for span in spans if span["parent"] == over["id"] and span["error"]]
    assert all(span["attributes"]["error.type"] == "FLETCH_EDEADLINE" for span in failed)


GOOD = [([SAMPLED], ["a=1"], PARENT, "a=1"),
        ([f"cc-{TRACE}-{PARENT}-01-later"], [], PARENT, ""),
        ([SAMPLED], ["a=1", "b@x=2"], PARENT, "a=1,b@x=2"),
        ([f"00-{TRACE}-{PARENT}-ff"], ["A=1"], PARENT, ""),  # the parent counts all the same
        ([SAMPLED], ["a"], PARENT, ""),
        ([SAMPLED], ["a=b=c"], PARENT, ""),
        ([SAMPLED], [",".join(f"k{n}=v" for n in range(33))], PARENT, ""),
        ([SAMPLED], ["k=" + "v" * 257], PARENT, ""),
        ([SAMPLED], ["k=" + "v" * 200, "l=" + "v" * 200, "m=" + "v" * 200], PARENT, "")]
MALFORMED = [f"00-{TRACE}-{PARENT}-01-more", f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01",
             f"00-{TRACE.upper()}-{PARENT}-01", f"00-{TRACE}-{PARENT}", f"00-{TRACE}-{PARENT}-1", f"00-{TRACE}-{PARENT}-0x", f"0-{TRACE}-{PARENT}-01",
             f"00-{TRACE[1:]}-{PARENT}-01", f"00_{TRACE}_{PARENT}_01", f"cc-{TRACE}-{PARENT}-01later", f"00-{TRACE[:-1]}g-{PARENT}-01", "", "x"]
BAD = [([text], ["a=1"], "", "") for text in MALFORMED] + [([SAMPLED, SAMPLED], ["a=1"], "", ""), ([SAMPLED + "," + SAMPLED], [], "", "")]


def test_what_is_no_traceparent_begins_a_trace(serve, collect):
    collector, wanted = collect(), {}
    running = serve(collector)
    with running.raw() as raw:
        for parents, states, parent, state in GOOD + BAD:
            head = "".join(f"traceparent: {p}\r\n" for p in parents) + "".join(f"tracestate: {s}\r\n" for s in states)
            reply = raw.send(f"GET /info HTTP/1.1\r\nhost: x\r\n{head}\r\n").reply()
            assert reply.status == 200, (parents, reply)
            _, trace, span, flags = reply.headers["traceresponse"].split("-")
            assert re.fullmatch("[0-9a-f]{32}", trace) and re.fullmatch("[0-9a-f]{16}", span) and flags == "01"
            assert (trace == TRACE) == bool(parent), parents
            wanted[span] = (trace, parent, state)
    spans, _ = finish(running, collector)
    assert {span["id"]: (span["trace"], span["parent"], span["state"]) for span in spans} == wanted


LOW, HIGH = "f" * 18 + "0" * 13 + "1", "f" * 32  # by the last 56 bits: below any share, above any but 1


@pytest.mark.parametrize("env, traced", [
    ({}, ["root", "low1", "high1"]),
    ({"FLETCH_SERVER_OTLP_SAMPLE": "0"}, ["low1", "high1"]),
    ({"FLETCH_SERVER_OTLP_SAMPLE": "0", "OTEL_TRACES_SAMPLER": "always_on"}, ["low1", "high1"]),
    ({"OTEL_TRACES_SAMPLER": "always_on"}, ["root", "low1", "low0", "high1", "high0"]),
    ({"OTEL_TRACES_SAMPLER": "always_off"}, []),
    ({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, ["low1", "high1"]),
    ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}, ["low1", "low0"]),
    ({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}, ["low1", "high1"]),
    ({"OTEL_SDK_DISABLED": "True"}, []),
    ({"OTEL_TRACES_EXPORTER": "none"}, []),
], ids=lambda value: ",".join(value.values()) if isinstance(value, dict) else "")
def test_who_is_traced(serve, collect, env, traced):
    collector = collect()
    running = serve(collector, **env)
    seen = {}
    for name, parent in {"root": None, **{f"{n}{flag}": f"00-{t}-{PARENT}-0{flag}" for n, t in (("low", LOW), ("high", HIGH)) for flag in (0, 1)}}.items():
        with running.raw() as raw:
            seen[name] = raw.send(request("GET", "/info", None, traceparent=parent)).reply().headers.get("traceresponse")
    if env.get("OTEL_TRACES_SAMPLER_ARG") == "0.5":
        del seen["root"]  # chance has it
    answered = [name for name, response in seen.items() if response and response.endswith("-01")]
    assert sorted(answered) == sorted(traced)
    assert all(seen[name] and seen[name].endswith("-00") for name in seen if name not in traced and name != "root")
    assert "root" in traced or not seen.get("root")
    assert running.end() == 0
    assert traced and "/v1/traces" in dict(collector.got) or not traced and "/v1/traces" not in dict(collector.got)


def test_what_is_not_traced_allocates_nothing(serve, collect, tmp_path):
    """The heap counts: a thousand requests more cost what they cost where nothing is exported."""
    preload = tmp_path / "counting_malloc.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", preload, serving.ROOT / "tests/faults/failing_malloc.c"], check=True)
    if "san" in serving.BIN.rsplit("/", 2)[-2]:
        pytest.skip("a sanitizer brings its own heap")
    collector = collect()

    def count(requests, **env):
        running = serve(collector, "--server-otlp-sample", "0", "--server-log-level", "error", "--server-io-threads", "1", "--threads", "1",
                        LD_PRELOAD=str(preload), FAIL_FILE=str(tmp_path / "count"), **env)
        with running.raw() as raw:
            for n in range(requests):
                parent = f"00-{TRACE}-{PARENT}-00" if n % 2 else None
                assert raw.send(request(body=b'{"inputs":"hello"}', traceparent=parent)).reply().status == 200
        assert running.end() == 0
        return int((tmp_path / "count").read_text())

    with_it = count(1050) - count(50)
    without = count(1050, OTEL_SDK_DISABLED="true") - count(50, OTEL_SDK_DISABLED="true")
    assert abs(with_it - without) < 100, (with_it, without)


# ---- Metrics ------------------------------------------------------------------------------------------------------

def test_metrics_are_those_of_metrics(serve, collect):
    collector = collect()
    running = serve(collector, FLETCH_SERVER_OTLP_INTERVAL_MS="100")
    reply = running.ask(headers={"traceparent": SAMPLED})
    span = reply.headers["traceresponse"].split("-")[2]
    running.wait_metric('fletch_requests_total{route="/embed",method="POST",code="200"}', lambda value: value == 1)
    for _ in range(2):
        now = sum(path == "/v1/metrics" for path, _ in collector.got)
        serving.until(lambda: sum(path == "/v1/metrics" for path, _ in collector.got) > now)  # again and again
    open_text = running.ask("GET", "/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"})
    plain = running.ask("GET", "/metrics")
    assert open_text.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0") and open_text.body.endswith(b"# EOF\n")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4") and b"trace_id" not in plain.body
    assert running.end() == 0
    last = next(body for path, body in reversed(collector.got) if path == "/v1/metrics")
    found = decode([("/v1/metrics", last), ("openmetrics", open_text.body)])
    metrics = {metric["name"]: metric for metric in found["metrics"]}
    families = {family["name"]: family for family in found["families"]}

    examples = [(name, labels["trace_id"], labels["span_id"])
                for f in found["families"] for name, _, _, labels in f["samples"] if labels]
    assert sorted(examples) == [("fletch_embedding_seconds_bucket", TRACE, span), ("fletch_request_duration_seconds_bucket", TRACE, span)]
    http_metric = metrics["http.server.request.duration"]
    assert (http_metric["kind"], http_metric["unit"], http_metric["temporality"]) == ("histogram", "s", 2)
    point = next(p for p in http_metric["points"] if p["attributes"].get("http.route") == "/embed")
    assert point["attributes"] == {"http.route": "/embed", "http.request.method": "POST", "url.scheme": "http"} and point["count"] == 1
    assert [(e["trace"], e["span"]) for e in point["exemplars"]] == [(TRACE, span)] and point["begin"] < point["time"]
    assert point["sum"] == pytest.approx(point["exemplars"][0]["value"], abs=1e-9)
    assert metrics["gen_ai.server.request.duration"]["points"][0]["count"] == 1
    assert metrics["fletch_texts"]["monotonic"] and metrics["fletch_queue_tokens"]["kind"] == "gauge" and metrics["fletch_pool_bytes"]["unit"] == "By"
    assert metrics["process.cpu.time"]["unit"] == "s" and not metrics["process.memory.usage"]["monotonic"]
    renamed = {"fletch_request_duration_seconds": "http.server.request.duration", "fletch_embedding_seconds": "gen_ai.server.request.duration",
               "process_cpu_seconds": "process.cpu.time", "process_resident_memory_bytes": "process.memory.usage",
               "process_open_fds": "process.unix.file_descriptor.count"}
    full = {name for name, family in families.items() if family["samples"]}
    assert {renamed.get(name, name) for name in full} == set(metrics)
    for name in ("fletch_texts", "fletch_tokens", "fletch_embeddings", "fletch_engine_slots", "fletch_queue_limit_tokens", "fletch_build_info"):
        samples = [[labels, value] for _, labels, value, _ in families[name]["samples"]]
        assert [[p["attributes"], p["value"]] for p in metrics[name]["points"]] == samples
    for name in ("fletch_tokenize_duration_seconds", "fletch_inference_duration_seconds"):
        count = sum(value for sample, _, value, _ in families[name]["samples"] if sample.endswith("_count"))
        assert sum(p["count"] for p in metrics[name]["points"]) == count > 0


# ---- A collector that cannot ----------------------------------------------------------------------------------------

def test_what_cannot_be_taken_now_is_sent_again(serve, collect):
    collector = collect(lambda path, before: (200, {}, b"") if before else (503, {"retry-after": "1"}, b""))
    running = serve(collector)
    with running.raw() as raw:
        for _ in range(600):  # a whole message, which is sent at once, and some more
            assert raw.send(request("GET", "/info", None)).reply().status == 200
        running.wait_metric("fletch_otlp_exported_spans_total", lambda value: value >= 512)
    spans, _ = finish(running, collector)
    assert len(spans) == len({span["id"] for span in spans}) == 600
    assert "the collector rejects " not in running.log()


def test_a_dead_collector_costs_spans_and_nothing_else(serve):
    running = serve(f"http://127.0.0.1:{serving.free_port()}")
    with running.raw() as raw:
        for _ in range(30):
            raw.send(request("GET", "/info", None) * 100)
            assert all(raw.reply().status == 200 for _ in range(100))
        running.wait_metric("fletch_otlp_dropped_spans_total", lambda value: value >= 3000 - 2048 - 512)
        assert running.embed("hello").status == 200
    assert running.end() == 0
    told = [event for event in running.events() if "the collector rejects " in event["msg"]]
    assert ["spans" in event["msg"] for event in told] == [True, False], running.log()  # and metrics, at the end
    assert {event["level"] for event in told} == {"warning"}


def test_a_collector_that_is_silent_does_not_keep_the_server(serve):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        running = serve(f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert running.embed("hello").status == 200
        assert running.end() == 0
    assert "the collector rejects " in running.log()


@pytest.mark.parametrize("answer, said", [((400, {}, b""), "it answers 400"), ((200, {}, b"\x0a\x02\x08\x01"), "rejects them")])
def test_what_is_refused_is_not_sent_again(serve, collect, answer, said):
    collector = collect(lambda path, before: answer)
    running = serve(collector)
    assert running.embed("hello").status == 200
    assert running.end() == 0
    assert collector.asked == 2 and said in running.log()  # spans and metrics, each once


@pytest.mark.parametrize("flags, env, said", [
    (("--server-otlp-endpoint", "collector:4318"), {}, "is not like http://collector:4318"),
    (("--server-otlp-endpoint", "http://me:secret@collector"), {}, "'…@…' is not like http://collector:4318"),
    (("--server-otlp-endpoint", "http://"), {}, "is not like http://collector:4318"),
    (("--server-otlp-sample", "2"), {}, "server.otlp_sample: 2 is outside 0..1"),
    ((), {"OTEL_TRACES_SAMPLER": "xray"}, "OTEL_TRACES_SAMPLER: 'xray' is not always_on"),
    ((), {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "half"}, "OTEL_TRACES_SAMPLER_ARG: 'half' is not a number"),
    ((), {"OTEL_EXPORTER_OTLP_HEADERS": "a=b,secret"}, "OTEL_EXPORTER_OTLP_HEADERS: item 2 is not key=value"),
    ((), {"OTEL_EXPORTER_OTLP_HEADERS": "a=b%0D%0Ac: d"}, "'a' cannot be a header"),
    ((), {"OTEL_RESOURCE_ATTRIBUTES": " =1"}, "OTEL_RESOURCE_ATTRIBUTES: item 1 is not key=value"),
    ((), {"OTEL_RESOURCE_ATTRIBUTES": "a=1,b=%zz"}, "OTEL_RESOURCE_ATTRIBUTES: item 2 is not key=value"),
])
def test_settings_that_cannot_be(tmp_path, flags, env, said):
    done = subprocess.run([serving.BIN, "serve", "--model", FOLDER, "--server-port", "0", *flags], capture_output=True, text=True, check=False,
                          timeout=serving.WAIT, env={"HOME": str(tmp_path), "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"} | env)
    assert done.returncode == 2 and said in done.stderr and "secret" not in done.stderr, done.stderr
