# SPDX-License-Identifier: Apache-2.0
"""What can be judged before a socket listens is judged before: one message, an exit code, and nobody was let in."""
import json
import pathlib
import shutil
import subprocess

import pytest
import serving


def refused(tmp_path, *flags, **env):
    clean = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "FLETCH_SERVER_PORT": "0",
             "FLETCH_SERVER_MAX_CONNECTIONS": "100",  # more than a shell may allow would be warned of first
             "FLETCH_MODEL_OFFLINE": "true", **env}
    done = subprocess.run([serving.BIN, "serve", *map(str, flags)], capture_output=True, text=True, cwd=tmp_path, env=clean,
                          timeout=serving.WAIT, check=False)
    assert "listening" not in done.stdout, done.stdout
    assert done.stderr.startswith("fletch: ") and len(done.stderr.splitlines()) <= 2, done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("flags, code, says", [
    (["--model", f"a={serving.MODEL}", "--model", f"a={serving.MODEL}"], 2, "two models are called 'a'"),
    (["--model", serving.MODEL, "--model", serving.MODEL + "/"], 2, "two models are called"),
    (["--model", f"low={serving.MODEL}", "--model", "low"], 2, "two models are called 'low'"),
    (["--model", "=x"], 2, "'=x' is not a model"),
    (["--model", "x="], 2, "'x=' is not a model"),
    (sum((["--model", f"m{i}={serving.MODEL}"] for i in range(33)), []), 2, "at most 32 models"),
    (["--model", "/nowhere/model"], 3, "no such folder: /nowhere/model"),
    (["--model", f"good={serving.MODEL}", "--model", "bad=./nowhere"], 3, "no such folder: ./nowhere"),
    (["--server-store", "nowhere/s.db"], 2, "server.store names a file in a folder that exists"),
    (["--server-store", "/dev/null/s.db"], 2, "/dev/null/s.db"),
    (["--server-store", "."], 2, "cannot open"),
    (["--server-store", "a-text"], 2, "not a database"),
    (["--api-key-file", "nowhere"], 2, "server.api_key_file: cannot open nowhere"),
    (["--api-key-file", "."], 2, "."),
    (["--api-key-file", "a-text"], 2, "a-text"),
    (["--server-metrics-prefix", "1-x"], 2, "server.metrics_prefix"),
    (["--host", "0.0.0.0"], 2, "server.api_key_file"),
    (["--host", "none"], 2, "nothing to listen on"),
    (["--unix-socket", "x" * 200], 2, "server.unix_socket is longer"),
    pytest.param(["--unix-socket", "nowhere/s"], 1, "server.unix_socket names a path in a folder that exists",
                 marks=pytest.mark.skipif(serving.WINE, reason="Windows has no Unix sockets for it")),
], ids=str)
def test_refused_before_it_listens(tmp_path, flags, code, says):
    (tmp_path / "a-text").write_text("no database and no keys, but long enough to be looked at\n" * 20)
    env = {} if "--model" in flags else {"FLETCH_MODEL_ID": serving.MODEL}
    assert refused(tmp_path, *flags, **env)[0] == code
    assert says in refused(tmp_path, *flags, **env)[1]


def broken(folder, name, content):
    """The model of the tests with one file changed, or gone."""
    folder.mkdir()
    for path in pathlib.Path(serving.MODEL).iterdir():
        (folder / path.name).symlink_to(path)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize("name, content, says", [
    ("config.json", None, "config.json"), ("config.json", "{", "config.json"),
    ("tokenizer.json", "[]", "tokenizer.json"),
])
def test_a_folder_is_judged_before_it_listens(tmp_path, name, content, says):
    code, text = refused(tmp_path, "--model", broken(tmp_path / "model", name, content))
    assert code == 3 and says in text


FOLDERS = pathlib.Path(__file__).resolve().parents[1] / "golden/folders"


@pytest.mark.parametrize("name, content, says", [
    ("model.safetensors", None, "neither model.safetensors nor"), ("model.safetensors", "not weights at all", "model.safetensors"),
    ("config.json", '{"model_type": "nonsense"}', "nonsense"),
    ("modules.json", '[{"idx": 0, "name": "0", "path": "", "type": "somebody.Else"}]', "somebody.Else"),
])
def test_weights_and_kind_are_judged_before_it_says_listening(tmp_path, name, content, says):
    code, text = refused(tmp_path, "--model", broken(tmp_path / "model", name, content))
    assert code == 3 and says in text


def test_a_store_of_another_model_is_told_before_it_says_listening(start, tmp_path):
    server = start("--server-store", tmp_path / "s.db", "--model", FOLDERS / "family-static", model=False)
    assert server.ask("POST", "/add", b'{"text": "one"}').status == 200 and server.end() == 0
    other = start("--server-store", tmp_path / "s.db", ready=False)
    assert other.process.wait(serving.WAIT) == 2
    assert "holds vectors of another model: 'family-static'" in other.log() and other.lines in ([], [None])


@pytest.mark.parametrize("name", ["subfolder", "family-static"])
def test_a_first_module_in_a_folder_of_its_own_is_served(name, start):
    assert start("--model", FOLDERS / name).embed("a cat").status == 200


def test_a_model_that_may_not_be_fetched_is_told_before_it_listens(tmp_path):
    code, text = refused(tmp_path, "--model", "somebody/something")
    assert code == 3 and "somebody/something" in text


def test_a_provider_named_alone_must_do(tmp_path, start):
    none = {"FLETCH_CUDA_MODULE": "/nowhere.so", "FLETCH_ONNXRUNTIME_LIBRARY": "/nowhere.so"}
    server = start("--provider-order", "cuda,cpu", env=none)
    assert server.embed().status == 200
    with pytest.raises(AssertionError):
        start("--provider-order", "cuda", env=none)


def test_the_store_of_another_process(start, tmp_path):
    start("--server-store", tmp_path / "s.db")
    code, text = refused(tmp_path, "--server-store", tmp_path / "s.db", FLETCH_MODEL_ID=serving.MODEL)
    assert code == 2 and "in use by another process" in text


def test_a_port_that_is_taken(start, tmp_path):
    port = start().port
    code, text = refused(tmp_path, "--port", port, FLETCH_MODEL_ID=serving.MODEL)
    assert code == 1 and "another server uses it" in text


def test_a_folder_with_an_equals_sign(start, tmp_path):
    (tmp_path / "lr=3").symlink_to(serving.MODEL)
    running = start("--model", tmp_path / "lr=3", model=False)
    assert running.ask("GET", "/v1/models/lr=3").json()["id"] == "lr=3"
    running = start("--model", f"name={tmp_path / 'lr=3'}", model=False)
    assert running.ask("GET", "/v1/models/name").json()["id"] == "name"


def test_ids_of_a_model_without_special_tokens_are_cut_at_any_length(start, tmp_path):
    """Its template has three tokens behind the text, of which a static model uses none: they protect no end."""
    folder = tmp_path / "static"
    shutil.copytree(FOLDERS / "family-static", folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tail = [{"SpecialToken": {"id": "[SEP]", "type_id": 0}}] * 3
    tokenizer["post_processor"]["single"] = [{"Sequence": {"id": "A", "type_id": 0}}] + tail
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    server = start("--model", folder, "--model-max-length", "2", model=False)
    whole = server.ask("POST", "/v1/embeddings", b'{"input": [[5, 6]]}').json()["data"][0]["embedding"]
    for ids in ([5, 6, 3], [5, 6, 7, 8, 3, 3, 3], [5, 6] + [3] * 9):
        reply = server.ask("POST", "/v1/embeddings", json.dumps({"input": [ids]}).encode())
        assert reply.status == 200 and reply.json()["data"][0]["embedding"] == whole
    assert server.end() == 0
