# SPDX-License-Identifier: Apache-2.0
"""What deploy/ holds works: the real nginx and Envoy over two processes, systemd's own checks, promtool, and a board whose
every metric is in a live scrape. A tool that is not installed skips its test by name."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import clients
import pytest
import serving
from proxy import DEPLOY, PROXIES, run, tool

REQUESTS = 300


@PROXIES
def test_no_request_is_lost_when_a_process_is_killed(start, tmp_path, proxy):
    tool(proxy.PROGRAM)
    servers = [start(), start()]
    between = proxy(tmp_path, [server.port for server in servers])
    try:
        truth = json.loads(servers[0].embed("text 3").body)

        def counted():
            return sum(server.metrics()["fletch_embeddings_total"] for server in servers)

        before = counted()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            replies = [pool.submit(between.embed, f"text {i}") for i in range(REQUESTS)]

            def shared():
                """Whether both had their share; more work for them otherwise."""
                if all(reply.done() for reply in replies):
                    replies.extend(pool.submit(between.embed, f"text {i}") for i in range(REQUESTS))
                return min(server.metrics()["fletch_embeddings_total"] for server in servers) > 10

            serving.until(shared)
            concurrent.futures.wait(replies)
            assert counted() - before == len(replies), "what the clients sent is what the servers counted"
            replies.extend(pool.submit(between.embed, f"text {i}") for i in range(REQUESTS))
            servers[1].kill()
            replies = [reply.result() for reply in replies]
        assert {status for status, _ in replies} == {200}
        assert json.loads(replies[3][1]) == truth
        assert between.embed("after")[0] == 200
    finally:
        between.close()


@PROXIES
def test_the_proxy_moves_on_from_a_process_that_drains(start, tmp_path, proxy):
    tool(proxy.PROGRAM)
    servers = [start("--server-lame-duck-ms", "300"), start("--server-lame-duck-ms", "300")]
    between = proxy(tmp_path, [server.port for server in servers])
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            replies = [pool.submit(between.embed, f"text {i}") for i in range(REQUESTS)]
            serving.until(lambda: sum(reply.done() for reply in replies) >= REQUESTS // 3)
            assert servers[0].end() == 0
            assert [reply.result()[0] for reply in replies] == [200] * REQUESTS
    finally:
        between.close()


def test_the_unit_is_valid_and_hardened(tmp_path):
    program = tool("systemd-analyze")
    for name in ("fletch.service", "fletch.socket"):
        text = (DEPLOY / "systemd" / name).read_text().replace("/usr/bin/fletch", serving.BIN)
        (tmp_path / name).write_text(text)
    shutil.copytree(DEPLOY / "systemd" / "fletch.service.d", tmp_path / "fletch.service.d")
    checked = run(program, "verify", tmp_path / "fletch.service", tmp_path / "fletch.socket")
    said = [line for line in (checked.stdout + checked.stderr).splitlines() if "fletch." in line]
    assert checked.returncode == 0 and not said, said
    judged = run(program, "security", "--offline=true", "--threshold=20", tmp_path / "fletch.service")
    assert judged.returncode == 0, judged.stdout[-400:]  # at most 2.0; a bare service has 9.6


def test_the_scrape_example_is_valid():
    checked = run(tool("promtool"), "check", "config", DEPLOY / "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_alert_rules_are_valid_and_ask_for_what_there_is(server):
    checked = run(tool("promtool"), "check", "rules", DEPLOY / "alerts.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert server.embed().status == 200
    scrape = server.ask("GET", "/metrics").body.decode()
    there = {re.sub(r"\{.*| .*", "", line) for line in scrape.splitlines() if not line.startswith("#")}
    declared = set(re.findall(r"# TYPE (\S+)", scrape))
    asked = set(re.findall(r"\b(?:fletch|process)_\w+", (DEPLOY / "alerts.yml").read_text())) - {"fletch_toml"}
    assert len(asked) > 5 and asked <= there | declared, asked - there - declared


def test_an_alert_fires(tmp_path):
    """Half of the requests fail for ten minutes, and a server that is gone."""
    promtool = tool("promtool")
    (tmp_path / "alerts.yml").write_text((DEPLOY / "alerts.yml").read_text())
    (tmp_path / "test.yml").write_text("""
rule_files: [alerts.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'fletch_requests_total{job="fletch",instance="a",code="200"}', values: '0+60x20'}
      - {series: 'fletch_requests_total{job="fletch",instance="a",code="500"}', values: '0+60x20'}
      - {series: 'up{job="fletch",instance="a"}', values: '1x20'}
      - {series: 'up{job="fletch",instance="b"}', values: '0x20'}
    alert_rule_test:
      - eval_time: 15m
        alertname: FletchErrors
        exp_alerts:
          - exp_labels: {severity: warning, instance: a}
            exp_annotations: {summary: "more than 1 % of the requests to fletch at a fail"}
      - eval_time: 15m
        alertname: FletchDown
        exp_alerts:
          - exp_labels: {severity: critical, job: fletch, instance: b}
            exp_annotations: {summary: "fletch at b does not answer its scrape"}
""")
    checked = run(promtool, "test", "rules", tmp_path / "test.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_compose_file_is_valid(tmp_path):
    docker = shutil.which("docker-compose") or pytest.skip("docker-compose is not installed")
    (tmp_path / "keys").write_text("x")
    shutil.copy(DEPLOY / "compose.yaml", tmp_path)
    checked = run(docker, "-f", tmp_path / "compose.yaml", "config")
    assert checked.returncode == 0, checked.stderr
    assert "/usr/bin/fletch" in checked.stdout and "/keys/keys" in checked.stdout


@pytest.mark.parametrize("name, kinds", [
    ("server.yaml", ["deployment", "service", "poddisruptionbudget", "networkpolicy"]),
    ("hpa.yaml", ["horizontalpodautoscaler"]), ("job.yaml", ["job"]), ("check.yaml", ["job"])])
@pytest.mark.parametrize("version", ["1.31", "1.34", "1.37"])
def test_the_manifest_is_valid(name, kinds, version):
    checked = run(tool("kubernetes-validate"), "--strict", "-k", version, DEPLOY / "kubernetes" / name)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert re.findall(r"passed for resource (\w+)/", checked.stdout + checked.stderr) == kinds


CHECK_RESOURCE = """
import sys, jsonschema, yaml

def closed(schema):
    if isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        for below in schema.values():
            closed(below)
    elif isinstance(schema, list):
        for below in schema:
            closed(below)
    return schema

definition, resource = (yaml.safe_load(open(name)) for name in sys.argv[1:])
group, _, version = resource["apiVersion"].partition("/")
assert definition["spec"]["group"] == group and definition["spec"]["names"]["kind"] == resource["kind"]
served, = [one for one in definition["spec"]["versions"] if one["name"] == version and one["served"]]
schema = closed(served["schema"]["openAPIV3Schema"])
schema["properties"]["metadata"] = {"type": "object"}
jsonschema.validate(resource, schema)
"""


@pytest.mark.parametrize("name, definition", [("keda.yaml", "keda.sh_scaledobjects.yaml"),
                                              ("monitor.yaml", "monitoring.coreos.com_servicemonitors.yaml")])
def test_the_custom_resource_is_valid(tmp_path, name, definition):
    """FLETCH_TEST_CRDS is a folder with the definitions as KEDA (config/crd/bases) and the Prometheus Operator
    (example/prometheus-operator-crd) publish them. No field that they do not have, none that is missing."""
    folder = os.environ.get("FLETCH_TEST_CRDS") or pytest.skip("FLETCH_TEST_CRDS names no folder of definitions")
    check = [clients.python(), "-c", CHECK_RESOURCE, pathlib.Path(folder) / definition]
    text = (DEPLOY / "kubernetes" / name).read_text()
    checked = run(*check, DEPLOY / "kubernetes" / name)
    assert checked.returncode == 0, checked.stderr[-800:]
    (tmp_path / "wrong.yaml").write_text(text.replace("spec:", "spec:\n  misspelt: 1", 1))
    assert "misspelt" in run(*check, tmp_path / "wrong.yaml").stderr


def test_kustomize_takes_the_folder():
    built = run(tool("kubectl"), "kustomize", DEPLOY / "kubernetes")
    assert built.returncode == 0, built.stderr
    assert sorted(re.findall(r"^kind: (\w+)", built.stdout, re.M)) == [
        "Deployment", "HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget", "Service"]


def test_the_autoscalers_say_the_same():
    """hpa.yaml, keda.yaml and the replay's defaults are one set of numbers, and ask for what the rules record."""
    hpa, keda = ((DEPLOY / "kubernetes" / name).read_text() for name in ("hpa.yaml", "keda.yaml"))
    help_text = run(sys.executable, serving.ROOT / "tools/hpa_replay.py", "--help").stdout
    replay = dict(re.findall(r"^  --([\w-]+) (?:(?!\n  -)[^(])*\(default: ([\d.]+)\)", help_text, re.M))
    for text in (hpa, keda):
        up, down = text.split("scaleDown:")
        assert re.findall(r"type: (\w+), value: (\d+), periodSeconds: (\d+)", up) == [
            ("Percent", replay["up-percent"], "15"), ("Pods", replay["up-pods"], "15")]
        assert re.findall(r"value: (\d+), periodSeconds: (\d+)", down) == [(replay["down-percent"], "60")]
        assert f"stabilizationWindowSeconds: {replay['down-window']}" in down
        for word, number in (("min", "least"), ("max", "most")):
            assert re.search(rf"{word}Replica(s|Count): {replay[number]}\b", text), number
    assert "value: 700m" in hpa and 'threshold: "0.7"' in keda and replay["busy"] == "0.7"
    assert 'value: "1"}' in hpa and 'threshold: "1"' in keda and replay["backlog"] == "1.0"
    recorded = set(re.findall(r"record: (\S+)", (DEPLOY / "alerts.yml").read_text()))
    assert set(re.findall(r"query: (\S+)", keda)) == recorded
    assert set(re.findall(r"metric: {name: (\w+)}", hpa)) == {name.replace(":", "_") for name in recorded}


SCALE_BY = """
rule_files: [alerts.yml]
evaluation_interval: 15s
tests:
  - interval: 15s # two servers of one slot each, busy for three quarters; 600 tokens wait and 60 a second are embedded
    input_series:
      - {series: 'fletch_engine_busy_seconds_total{job="fletch",instance="a"}', values: '0+15x100'}
      - {series: 'fletch_engine_busy_seconds_total{job="fletch",instance="b"}', values: '0+7.5x100'}
      - {series: 'fletch_engine_slots{job="fletch",instance="a"}', values: '1x100'}
      - {series: 'fletch_engine_slots{job="fletch",instance="b"}', values: '1x100'}
      - {series: 'fletch_queue_tokens{job="fletch",instance="a"}', values: '600x100'}
      - {series: 'fletch_queue_tokens{job="fletch",instance="b"}', values: '0x100'}
      - {series: 'fletch_tokens_total{job="fletch",instance="a"}', values: '0+450x40 18000x60'}
      - {series: 'fletch_tokens_total{job="fletch",instance="b"}', values: '0+450x40 18000x60'}
    promql_expr_test:
      - {expr: 'fletch:busy:ratio', eval_time: 8m, exp_samples: [{labels: 'fletch:busy:ratio', value: 0.75}]}
      - {expr: 'fletch:backlog:seconds', eval_time: 8m, exp_samples: [{labels: 'fletch:backlog:seconds', value: 10}]}
      # the engines stall at the tenth minute, and what waits goes on waiting
      - {expr: 'fletch:backlog:seconds', eval_time: 20m, exp_samples: [{labels: 'fletch:backlog:seconds', value: 60}]}
    alert_rule_test:
      - eval_time: 20m
        alertname: FletchBacklog
        exp_alerts:
          - exp_labels: {severity: warning}
            exp_annotations:
              summary: "what waits before fletch takes 60 seconds to embed"
              description: "More servers, or bulk work by `fletch run`; the autoscaler is at its limit, or there is none."
  - interval: 15s # nothing was asked for in the last minute; then texts come, and have waited less than one
    input_series:
      - {series: 'fletch_queue_tokens{job="fletch",instance="a"}', values: '0x20 600x2 0x20'}
      - {series: 'fletch_tokens_total{job="fletch",instance="a"}', values: '0x40'}
    promql_expr_test:
      - {expr: 'fletch:backlog:seconds', eval_time: 4m, exp_samples: [{labels: 'fletch:backlog:seconds', value: 0}]}
      - {expr: 'fletch:backlog:seconds', eval_time: 5m30s, exp_samples: [{labels: 'fletch:backlog:seconds', value: 0}]}
  - interval: 15s # the first sample of a server
    input_series:
      - {series: 'fletch_queue_tokens{job="fletch",instance="a"}', values: '600x8'}
      - {series: 'fletch_tokens_total{job="fletch",instance="a"}', values: '0x8'}
    promql_expr_test:
      - {expr: 'fletch:backlog:seconds', eval_time: 0s, exp_samples: [{labels: 'fletch:backlog:seconds', value: 0}]}
      - {expr: 'fletch:backlog:seconds', eval_time: 2m, exp_samples: [{labels: 'fletch:backlog:seconds', value: 60}]}
"""


def test_what_to_scale_by_is_recorded(tmp_path):
    promtool = tool("promtool")
    shutil.copy(DEPLOY / "alerts.yml", tmp_path)
    (tmp_path / "test.yml").write_text(SCALE_BY)
    checked = run(promtool, "test", "rules", tmp_path / "test.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_installed_unit_names_the_installed_program(tmp_path):
    done = run("cmake", "--install", os.environ.get("FLETCH_BUILD", serving.ROOT / "build"), "--prefix", tmp_path / "usr")
    assert done.returncode == 0, done.stderr
    unit = (tmp_path / "usr/lib/systemd/system/fletch.service").read_text()
    program = re.search(r"^ExecStart=(\S+)", unit, re.M)[1]
    assert pathlib.Path(program) == tmp_path / "usr/bin/fletch" and os.access(program, os.X_OK)
    assert (tmp_path / "usr/lib/systemd/system/fletch.socket").exists()
    readme = (serving.ROOT / "docs" / "deploy.md").read_text()
    for path in ("/etc/fletch/fletch.toml", "/var/cache/fletch", "/etc/fletch/keys"):
        assert path in readme
    assert "/etc/fletch/fletch.toml" in unit and "/var/cache/fletch" in unit


def test_the_board_shows_only_what_there_is(server):
    board = json.loads((DEPLOY / "grafana" / "fletch.json").read_text())
    assert server.embed().status == 200
    scrape = server.ask("GET", "/metrics").body.decode()
    there = {re.sub(r"\{.*| .*", "", line) for line in scrape.splitlines() if not line.startswith("#")}
    declared = set(re.findall(r"# TYPE (\S+)", scrape))
    asked = {name for panel in board["panels"] for target in panel["targets"]
             for name in re.findall(r"\b(?:fletch|process)_\w+", target["expr"])}
    assert len(asked) > 20 and asked <= there | declared, asked - there - declared
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"  # a fixed one would fit one Grafana only
        assert panel["title"] and all(target["expr"].count("(") == target["expr"].count(")") for target in panel["targets"])
    labels = {label for panel in board["panels"] for target in panel["targets"]
              for group in re.findall(r"by \((\w+)\)", target["expr"]) for label in [group]} - {"le", "instance"}
    assert all(f"{label}=" in scrape for label in labels), labels


def test_the_image_is_made_of_what_there_is():
    text = (DEPLOY / "Dockerfile").read_text()
    setup = (serving.ROOT / "tools" / "setup.sh").read_text()
    needed = set(re.search(r"packages=\(([^)]*)\)", setup)[1].split())
    told = set(re.search(r"--no-install-recommends([^&]*)&&", text)[1].replace("\\", " ").split())
    assert needed - {"python3-venv"} <= told, needed - told
    assert "USER 65532:65532" in text and "FROM scratch" in text
    assert pathlib.Path(serving.ROOT, ".dockerignore").exists()


@pytest.mark.parametrize("where", ["tcp", "unix"])
def test_systemd_hands_over_the_socket(tmp_path, short, where):
    """systemd's own activator listens; the first connection starts the program, which serves on what it is given."""
    program = tool("systemd-socket-activate")
    if not serving.MODEL:
        pytest.skip("FLETCH_MODEL names no model folder (make model)")
    port, path = serving.free_port(), str(short / "s")
    address = f"127.0.0.1:{port}" if where == "tcp" else path
    log = open(tmp_path / "log", "wb")
    process = subprocess.Popen([program, "-l", address, "-E", "PATH", "-E", f"HOME={tmp_path}", "-E",
                                f"FLETCH_MODEL_ID={serving.MODEL}", "-E", "FLETCH_SERVER_LAME_DUCK_MS=0", serving.BIN, "serve"],
                               stdout=log, stderr=log, cwd=tmp_path)
    try:
        serving.until(lambda: b"Listening on" in (tmp_path / "log").read_bytes())
        assert b"ready:" not in (tmp_path / "log").read_bytes(), "nobody has asked yet"

        def served():  # connections wait in the socket until the program is there; while it loads it says 503
            with serving.Raw(("127.0.0.1", port) if where == "tcp" else path) as raw:
                reply = raw.send(serving.request()).reply()
            return reply if reply is not None and reply.status == 200 else None

        assert len(serving.until(served, (tmp_path / "log").read_text).json()[0]) == 384
        process.terminate()  # the activator has become the program
        assert process.wait(serving.WAIT) == 0
        assert where == "tcp" or pathlib.Path(path).is_socket(), "an inherited socket's file is not the program's to remove"
    finally:
        process.kill()
        process.wait()
        log.close()
