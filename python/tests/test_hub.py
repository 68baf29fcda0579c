# SPDX-License-Identifier: Apache-2.0
"""A model by its name: through huggingface_hub where it is installed, through the library where it is not.

Must never break: both bring every file that the model needs into the one cache; what does not come is a fletch.Error of
the right class, whoever failed: no network, no such model, a model that is not for everybody, nothing to download with.
The hub is that of tests/golden, on 127.0.0.1."""
import importlib.util
import json
import sys

import pytest
from conftest import ROOT

import fletch
from fletch import _hub

sys.path.insert(0, str(ROOT / "tests/golden"))
from hub_stand_in import Fault, StandIn  # noqa: E402

TOY = ROOT / "tests/golden/folders/plain-bert"
ID = "org/toy"
ASK = """
import json
if not {installed}:
    sys.modules["huggingface_hub"] = None
try:
    with fletch.Model({name!r}, **{arguments!r}) as model:
        print(json.dumps([model.path, model.embed("a cat").tobytes() == fletch.Model({folder!r}).embed("a cat").tobytes()]))
except fletch.Error as error:
    print(json.dumps([type(error).__name__, error.code, str(error)]))
"""
QUIET = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "",
         "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def answer(told):
    """The list that ASK printed; what a download says of itself comes behind it."""
    return json.JSONDecoder().raw_decode(told)[0]


@pytest.fixture(params=[True, False], ids=["huggingface_hub", "the library"])
def ask(request, python, tmp_path):
    """What fletch.Model(name) says in a process with an empty cache."""
    if request.param and importlib.util.find_spec("huggingface_hub") is None:
        pytest.skip("huggingface_hub is not installed")

    def run(name=ID, endpoint="http://127.0.0.1:1", environment=None, **arguments):
        told = python(ASK.format(installed=request.param, name=name, arguments=arguments, folder=str(TOY)),
                      **QUIET | {"HF_HOME": str(tmp_path / "cache"), "HF_ENDPOINT": endpoint} | (environment or {}))
        return answer(told)
    return run


def files():
    return {str(path.relative_to(TOY)): path.read_bytes() for path in TOY.rglob("*") if path.is_file()}


def test_a_name_becomes_a_model(ask, tmp_path):
    more = {"chat_template.jinja": b"{{ messages }}", "artifact.metadata": b"{}", "query_0_Dense/model.safetensors": b"w",
            "sparse_linear.pt": b"w", "colbert_linear.pt": b"w", "sparse_linear.safetensors": b"w",
            "colbert_linear.safetensors": b"w"}
    others = {"onnx/model.onnx": b"no", "pytorch_model.bin": b"no", "train.py": b"no", "other_linear.pt": b"no"}
    with StandIn() as hub:
        hub.add(ID, files() | more | others)
        path, same = ask(endpoint=hub.url)
    assert same and path.startswith(str(tmp_path / "cache"))
    here = {str(one.relative_to(path)) for one in (tmp_path / "cache").rglob("*") if str(one).startswith(path) and one.is_file()}
    assert here >= {"config.json", "model.safetensors", *more} and not here & set(others), here
    assert ask()[1] is True, "from the cache, without a hub"


def test_weights_of_torch_come_where_there_are_no_others(ask, tmp_path):
    bare = {name: data for name, data in files().items() if not name.endswith(".safetensors")}
    pickles = {"pytorch_model.bin": (ROOT / "tests/golden/torch_files/zip.bin").read_bytes(), "2_Dense/config.json": b"{}",
               "2_Dense/pytorch_model.bin": b"w"}
    with StandIn() as hub:
        hub.add(ID, bare | pickles | {"optimizer.bin": b"no", "rust_model.ot": b"no"})
        path, _ = ask(endpoint=hub.url)
    here = {str(one.relative_to(path)) for one in (tmp_path / "cache").rglob("*") if str(one).startswith(path) and one.is_file()}
    assert here >= set(pickles) and "optimizer.bin" not in here


def folder_of(path):
    return {str(one.relative_to(path)): one.read_bytes() for one in path.rglob("*") if one.is_file()}


def test_an_adapter_comes_with_its_base(ask, tmp_path):
    """Both of the hub, the base in the revision that the adapter names."""
    adapter = folder_of(ROOT / "tests/golden/peft/pooler")
    config = json.loads(adapter["adapter_config.json"])
    adapter["adapter_config.json"] = json.dumps(config | {"base_model_name_or_path": "org/base", "revision": "main"}).encode()
    with StandIn() as hub:
        hub.add(ID, adapter)
        hub.add("org/base", files())
        path, same = ask(endpoint=hub.url)
    assert not same and path.startswith(str(tmp_path / "cache"))
    assert ask()[0] == path, "from the cache, without a hub"


def test_a_tokenizer_of_older_files_comes(ask, tmp_path):
    bare = {name: data for name, data in files().items() if name not in ("tokenizer.json", "vocab.txt", "tokenizer_config.json")}
    old = folder_of(ROOT / "tests/golden/old_tokenizers/roberta")
    with StandIn() as hub:
        hub.add(ID, bare | {name: old[name] for name in ("vocab.json", "merges.txt")} | {"spm.model": b"w"})
        ask(endpoint=hub.url)  # BERT's network has no such class: it is refused, after all has come
    here = {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert here >= {"vocab.json", "merges.txt", "spm.model"}


def test_no_network(ask):
    kind, code, words = ask()
    assert (kind, code) == ("NetworkError", "ENETWORK") and ID in words


def test_no_such_model(ask):
    with StandIn() as hub:
        hub.add(ID, files())
        assert ask("org/nothing", hub.url)[:2] == ["NotFound", "ENOTFOUND"]
        assert ask(ID, hub.url, revision="nobody")[:2] == ["NotFound", "ENOTFOUND"]


def test_a_hub_that_fails(ask):
    with StandIn() as hub:
        hub.add(ID, files())
        hub.fail("hub", "/api/models", Fault("status", (500, {}), times=1000), method="")
        assert ask(endpoint=hub.url)[0] == "NetworkError"


@pytest.mark.parametrize("module, base, raised", [
    ("requests.exceptions", OSError, fletch.NetworkError), ("urllib3.exceptions", OSError, fletch.NetworkError),
    ("requests.exceptions", ValueError, fletch.NetworkError), ("httpx", Exception, fletch.NetworkError),
    ("httpcore", OSError, fletch.NetworkError), ("builtins", OSError, OSError), ("builtins", ValueError, ValueError)])
def test_whose_error_ends_a_download(monkeypatch, module, base, raised):
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")

    def fail(*_, **__):
        raise type("Failed", (base,), {"__module__": module})("told")
    monkeypatch.setattr(hub, "snapshot_download", fail)
    with pytest.raises(raised, match="told") as caught:
        _hub._download(ID, {}, None)
    assert isinstance(caught.value, fletch.Error) == (raised is fletch.NetworkError)


def test_offline_asks_nobody(ask):
    with StandIn() as hub:
        hub.add(ID, files())
        assert ask(endpoint=hub.url, local_files_only=True)[:2] == ["NotFound", "ENOTFOUND"]
        assert ask(endpoint=hub.url, environment={"HF_HUB_OFFLINE": "1"})[0] == "NotFound"
        assert hub.seen() == []


def test_nothing_to_download_with(python, tmp_path):
    for name in ("libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"):
        (tmp_path / name).write_bytes(b"no library")  # the loader finds it first, refuses it and looks no further
    told = python(ASK.format(installed=False, name=ID, arguments={}, folder=str(TOY)),
                  **QUIET, HF_HOME=str(tmp_path / "cache"), LD_LIBRARY_PATH=str(tmp_path))
    kind, code, words = answer(told)
    assert (kind, code) == ("NotFound", "ENOTFOUND") and "pip install huggingface_hub, or install libcurl" in words
