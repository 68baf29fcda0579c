# SPDX-License-Identifier: Apache-2.0
"""Flag beats environment beats file beats preset beats default, and config says which it was."""
import json
import tomllib

import pytest


def origin_of(fletch, key, *arguments, **options):
    result = fletch("config", "get", key, "--show-origin", *arguments, model=False, **options)
    assert result.returncode == 0, result.stderr
    return tuple(result.stdout.decode().rstrip("\n").split("\t"))


def test_precedence(fletch, tmp_path):
    file = tmp_path / "my.toml"
    file.write_text("[batch]\nmin_texts = 3\n")
    key, environment = "batch.min_texts", {"FLETCH_BATCH_MIN_TEXTS": "4"}
    assert origin_of(fletch, key) == ("8", "default")
    assert origin_of(fletch, key, "--preset", "latency") == ("1", "preset latency")
    value, origin = origin_of(fletch, key, "--preset", "latency", "--config", file)
    assert value == "3" and origin.startswith(str(file) + ":2")
    assert origin_of(fletch, key, "--config", file, env=environment) == ("4", "FLETCH_BATCH_MIN_TEXTS")
    value, origin = origin_of(fletch, key, "--config", file, "--batch-min-texts", "5", env=environment)
    assert value == "5" and "flag" in origin


def test_the_environment_names_the_file(fletch, tmp_path):
    (tmp_path / "env.toml").write_text('[model]\nid = "low"\n')
    assert origin_of(fletch, "model.id", env={"FLETCH_CONFIG": "env.toml"})[0] == "low"
    (tmp_path / "flag.toml").write_text('[model]\nid = "high"\n')
    assert origin_of(fletch, "model.id", "--config", "flag.toml", env={"FLETCH_CONFIG": "env.toml"})[0] == "high"


def test_another_programs_file_gives_its_ai_section_and_ranks_below_a_file(fletch, tmp_path):
    app, own = tmp_path / "app.toml", tmp_path / "own.toml"
    app.write_text('[jobs]\nsince = 1979-05-27 07:32:00Z\n[ai]\nmodel_name = "low"\nprovider = "cpu"\n')
    own.write_text('[model]\nid = "high"\n')
    assert origin_of(fletch, "model.id", "--app-config", app) == ("low", f"{app}:4:1")
    assert origin_of(fletch, "model.id", "--app-config", app, "--config", own) == ("high", f"{own}:2:1")
    refused = fletch("config", "--config", app, model=False)
    assert refused.returncode == 2 and b"unknown section [jobs]" in refused.stderr


@pytest.mark.parametrize("flag, value, key", [
    ("-m", "high", "model.id"), ("--model", "a/b", "model.id"), ("--revision", "v1", "model.revision"),
    ("--prompt", "query: ", "model.prompt"), ("--prompt-name", "q", "model.prompt_name"),
    ("--dimensions", "64", "model.dimensions"), ("--normalize", "false", "model.normalize"),
    ("--pooling", "cls", "model.pooling"), ("--max-length", "32", "model.max_length"),
    ("--truncate", "left", "model.truncate"), ("--precision", "fp32", "provider.precision"),
    ("--threads", "1", "cpu.intra_op_threads"), ("--provider-order", "cpu", "provider.order"),
])
def test_short_forms_set_their_key(fletch, flag, value, key):
    assert origin_of(fletch, key, flag, value)[0] == value


def test_boolean_keys(fletch):
    assert origin_of(fletch, "model.offline", "--offline")[0] == "true"
    assert origin_of(fletch, "model.offline", "--model-offline")[0] == "true"
    assert origin_of(fletch, "model.auto_download", "--model-auto-download", "false")[0] == "false"
    assert origin_of(fletch, "model.auto_download", "--model-auto-download=false")[0] == "false"


def test_output_is_toml_that_reads_back(fletch, tmp_path):
    result = fletch("config", "--show-origin", "--pooling", "cls,mean", "--prompt", 'say "x"\\\n', model=False)
    assert result.returncode == 0
    table = tomllib.loads(result.stdout.decode())
    assert table["model"]["pooling"] == ["cls", "mean"] and table["model"]["prompt"] == 'say "x"\\\n'
    (tmp_path / "again.toml").write_bytes(result.stdout)
    again = fletch("config", "--config", "again.toml", model=False)
    assert again.returncode == 0, again.stderr
    assert tomllib.loads(again.stdout.decode()) == table


def test_a_preset_alone_prints_what_it_sets(fletch):
    table = tomllib.loads(fletch("config", "--preset", "latency").stdout.decode())
    assert table["batch"]["min_texts"] == 1 and "server" not in table


@pytest.mark.parametrize("name", ["cpu", "gpu", "latency", "throughput", "memory", "debug", "max"])
def test_every_preset_is_a_file_that_says_why_and_reads_back(fletch, tmp_path, name):
    text = fletch("config", "--preset", name, model=False).stdout.decode()
    lines = [line for line in text.splitlines() if "=" in line]
    assert lines and all(line.split("#", 1)[1].strip().endswith(".") for line in lines)
    (tmp_path / "preset.toml").write_text(text)
    result = fletch("config", "--config", "preset.toml", "--show-origin", "--format", "json", model=False)
    assert result.returncode == 0, result.stderr
    changed = [option for option in json.loads(result.stdout) if option["origin"] != "default"]
    assert len(changed) == len(lines)


def test_json_has_all_of_an_option(fletch):
    for option in json.loads(fletch("config", "--format", "json").stdout):
        assert {"key", "value", "origin", "default", "bounds", "flag", "environment", "text"} <= option.keys()


@pytest.mark.parametrize("text, says", [
    ("[model]\nidd = 'x'\n", "id"), ("[model\n", ":1:"), ("[cpu]\nintra_op_threads = -5\n", "intra_op_threads"),
])
def test_a_wrong_file_is_2_and_names_the_place(fletch, tmp_path, text, says):
    (tmp_path / "bad.toml").write_text(text)
    result = fletch("config", "--config", "bad.toml")
    assert result.returncode == 2
    assert "bad.toml:" in result.stderr.decode() and says in result.stderr.decode()


def test_a_missing_file_and_a_wrong_value_are_2(fletch):
    assert fletch("config", "--config", "nowhere.toml").returncode == 2
    result = fletch("config", env={"FLETCH_CPU_ISA": "rff"})
    assert result.returncode == 2 and "FLETCH_CPU_ISA" in result.stderr.decode()


def test_an_unknown_variable_is_a_warning_with_the_nearest_name(fletch):
    result = fletch("config", env={"FLETCH_CPU_ISSA": "ref"})
    assert result.returncode == 0
    assert result.stderr.decode() == ("fletch: warning: unknown environment variable FLETCH_CPU_ISSA; "
                                      "did you mean FLETCH_CPU_ISA?\n")
    assert fletch("config", "-q", env={"FLETCH_CPU_ISSA": "ref"}).stderr == b""


def test_variables_that_a_container_platform_makes_of_a_service_are_nothing(fletch):
    """A service called fletch, with Kubernetes' enableServiceLinks; and one called fletch-server, one of whose
    variables has the name of a key."""
    address = "tcp://10.43.0.7:9900"
    result = fletch("config", "get", "server.port", env={
        "FLETCH_SERVICE_HOST": "10.43.0.7", "FLETCH_SERVICE_PORT": "9900", "FLETCH_PORT": address,
        "FLETCH_PORT_9900_TCP": address, "FLETCH_PORT_9900_TCP_PROTO": "tcp", "FLETCH_PORT_9900_TCP_PORT": "9900",
        "FLETCH_PORT_9900_TCP_ADDR": "10.43.0.7", "FLETCH_SERVER_PORT": address, "FLETCH_SERVER_SERVICE_HOST": "10.43.0.8"})
    assert (result.returncode, result.stdout, result.stderr) == (0, b"9900\n", b"")
