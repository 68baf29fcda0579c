# SPDX-License-Identifier: Apache-2.0
"""model pull, ls, path, verify and rm against a stand-in of the hub; embedding fetches what is missing."""
import json
import os
import pathlib
import pty
import subprocess
import sys

import commandline
import pytest

sys.path.insert(0, str(commandline.ROOT / "tests" / "golden"))
from hub_stand_in import Fault, StandIn  # noqa: E402

ID = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture
def hub():
    with StandIn() as stand_in:
        yield stand_in


def model_files():
    """The default model's files, as the hub has them."""
    folder = pathlib.Path(commandline.MODEL)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_life_of_a_model(embed, hub):
    hub.add(ID, model_files())
    env = {"HF_ENDPOINT": hub.url}
    assert json.loads(embed("model", "ls", "--format", "json", env=env, model=False).stdout) == []
    assert embed("model", "path", env=env, model=False).returncode == 3
    pulled = embed("model", "pull", env=env, model=False)
    assert pulled.returncode == 0, pulled.stderr
    folder = pulled.stdout.decode().strip()
    assert pathlib.Path(folder, "model.safetensors").exists()
    (entry,) = json.loads(embed("model", "ls", "--format", "json", env=env, model=False).stdout)
    assert entry["id"] == ID and entry["path"] == folder and entry["refs"] == "main"
    assert ID in embed("model", "ls", model=False).stdout.decode()
    for name in ([], ["medium"], [ID], ["all-MiniLM-L6-v2"]):
        assert embed("model", "path", *name, env=env, model=False).stdout.decode().strip() == folder
    checked = embed("model", "verify", model=False)
    assert checked.returncode == 0 and "DAMAGED" not in checked.stdout.decode()
    assert embed.rows("embed", "--offline", "text", model=False)[0]["tokens"] == 3

    weights = pathlib.Path(folder, "model.safetensors").resolve()
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.chmod(0o644)
    weights.write_bytes(data)
    damaged = embed("model", "verify", model=False)
    assert damaged.returncode == 3
    assert any(line.startswith("DAMAGED") and line.endswith("model.safetensors")
               for line in damaged.stdout.decode().splitlines())
    removed = embed("model", "rm", ID, model=False)
    assert removed.returncode == 0 and "MB freed" in removed.stderr.decode()
    assert embed("model", "path", model=False).returncode == 3
    assert embed("model", "rm", ID, model=False).returncode == 3


def test_a_plain_folder_cannot_be_verified_and_is_not_called_damaged(embed):
    checked = embed("model", "verify", commandline.MODEL)
    assert checked.returncode == 1 and "DAMAGED" not in checked.stdout.decode()
    assert "no file of" in checked.stderr.decode() and "was verified" in checked.stderr.decode()
    assert "unknown  model.safetensors" in checked.stdout.decode()
    assert "could not be checked" in checked.stderr.decode()


def test_a_bare_word_that_is_here_but_no_model_is_named(fletch):
    (fletch.tmp_path / "here").mkdir()
    (fletch.tmp_path / "there").write_text("no model")
    for word, says in (("here", "has neither config.json nor tokenizer.json"), ("there", "is a file")):
        for command in (["embed", "-m", word, "x"], ["model", "pull", word]):
            result = fletch(*command, model=False)
            assert result.returncode == 3 and says in result.stderr.decode()


def test_a_model_that_cannot_be_fetched_is_named_first(fletch):
    text = fletch("embed", "-m", "some/model", "text", model=False).stderr.decode()
    assert text.startswith("fletch: the model some/model cannot be fetched: no network")


def test_embed_fetches_the_default_model_with_a_bar(embed, hub):
    hub.add(ID, model_files())
    hub.fail("cdn", "", Fault("slow", 60_000_000))
    parent, child = pty.openpty()
    process = subprocess.Popen([commandline.BIN, "embed", "A text"], stdout=subprocess.PIPE, stderr=child,
                               cwd=embed.tmp_path, env=embed.environment(model=False, HF_ENDPOINT=hub.url))
    os.close(child)
    shown = b""
    try:
        while part := os.read(parent, 65536):
            shown += part
    except OSError:
        pass
    os.close(parent)
    line = process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=commandline.WAIT) == 0, shown
    assert json.loads(line)["index"] == 0
    assert b"downloading the model" in shown
    assert b"model.safetensors" in shown and b"MiB" in shown and b"% [" in shown
    again = embed("embed", "A text", env={"HF_ENDPOINT": "http://127.0.0.1:1"}, model=False)
    assert again.returncode == 0 and again.stderr == b"", "the second time is silent and needs no network"


@pytest.mark.parametrize("answer, code", [(b"y\n", 0), (b"\n", 2)])
def test_without_a_command_the_default_model_is_offered(embed, hub, answer, code):
    """At a terminal, and only while it is not there."""
    hub.add(ID, model_files())
    environment = embed.environment(model=False, HF_ENDPOINT=hub.url)
    parent, child = pty.openpty()
    os.write(parent, answer)
    result = subprocess.run([commandline.BIN], stdin=child, stdout=subprocess.PIPE, stderr=child, cwd=embed.tmp_path,
                            env=environment, timeout=commandline.WAIT)
    os.close(child)
    os.close(parent)
    assert result.returncode == code and result.stdout == b""
    assert embed("model", "path", model=False).returncode == (0 if code == 0 else 3)
    told = embed(model=False).stderr.decode()
    assert embed(model=False).returncode == 2 and "fletch embed" in told
    assert ("is not downloaded yet" in told and "fletch model pull" in told) == (code == 2)


def test_downloads_may_be_forbidden(embed, hub):
    hub.add(ID, {"config.json": b"{}"})
    for flags in (["--offline"], ["--model-auto-download", "false"]):
        result = embed("embed", *flags, "x", env={"HF_ENDPOINT": hub.url}, model=False)
        assert result.returncode == 3 and "fletch model pull" in result.stderr.decode()
    assert hub.seen() == []


def test_a_name_the_hub_does_not_know(fletch, hub):
    result = fletch("model", "pull", "no/such", env={"HF_ENDPOINT": hub.url})
    assert result.returncode == 3 and "no/such" in result.stderr.decode() and result.stdout == b""
