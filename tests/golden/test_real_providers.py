# SPDX-License-Identifier: Apache-2.0
"""Execution providers of ONNX Runtime that are none of its own processor's: OpenVINO on its CPU device, and WebGPU.

OpenVINO's library (tools/onnxruntime.sh openvino) runs on any x86-64 processor: it compiles the graph itself, so that
what fletch hands to a device is judged by another program than the one that runs the provider cpu. WebGPU's library
(tools/onnxruntime.sh webgpu) runs on Mesa's lavapipe, a Vulkan device in software (tools/vulkan.sh): memory that is not
the processor's. FLETCH_TEST_WEBGPU names another library, or the file of the plug-in, for a GPU that the machine has.
tests/faults/failing_provider.c is a plug-in of our own that ONNX Runtime loads like any other and that fails where it is
told to: when it is registered, when it lists devices, when a session is made, at any run.
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess

import numpy
import pytest

import golden

FOLDERS = golden.HERE / "folders"
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))
UNKNOWN = golden.NO_GRAPH + ("sparse-", "router-")
RUNS = [(path.parent.name, index) for path in sorted(FOLDERS.glob("*/expected.json"))
        if not path.parent.name.startswith(UNKNOWN) for index in range(len(json.loads(path.read_text())))]
# A provider that compiles its graph takes seconds for each; make check runs one of each kind, make check-full all.
KINDS = ("dense-tanh", "family-deberta", "family-gemma3", "family-gte", "family-jina", "family-modernbert", "family-nomic",
         "family-qwen3", "family-t5-gated", "mpnet", "plain-bert", "pooling-lasttoken", "prompts-left-out-mean", "shape-odd",
         "weights-f16")
FULL = "FLETCH_TEST_FULL" in os.environ
FEW = RUNS if FULL else [run for run in RUNS if run[0] in KINDS]
PLAIN = pathlib.Path(os.environ.get("FLETCH_ONNXRUNTIME_LIBRARY") or golden.ROOT / ".cache/onnxruntime")
OPENVINO = pathlib.Path(os.environ.get("FLETCH_TEST_OPENVINO", golden.ROOT / ".cache/onnxruntime-openvino"))
VULKAN = golden.ROOT / ".cache/vulkan"
SOFTWARE = {"VK_ICD_FILENAMES": str(VULKAN / "lavapipe.json"), "LD_LIBRARY_PATH": str(VULKAN / "lib")}
WEBGPU = os.environ.get("FLETCH_TEST_WEBGPU") or (
    str(golden.ROOT / ".cache/onnxruntime-webgpu") if (VULKAN / "lavapipe.json").exists() else "")

openvino = pytest.mark.skipif(not list(OPENVINO.glob("libonnxruntime.*")), reason="no OpenVINO: tools/onnxruntime.sh openvino")
plain = pytest.mark.skipif(not PLAIN.exists(), reason="no ONNX Runtime library: make onnxruntime")


@pytest.fixture
def adapter(monkeypatch):
    """The device in software, where no other is named."""
    if "FLETCH_TEST_WEBGPU" not in os.environ:
        for name, value in SOFTWARE.items():
            monkeypatch.setenv(name, value)


def webgpu(test):
    missing = not WEBGPU or not pathlib.Path(WEBGPU).exists()
    test = pytest.mark.skipif(missing, reason="no WebGPU: tools/onnxruntime.sh webgpu, tools/vulkan.sh")(test)
    return pytest.mark.usefixtures("adapter")(test)


BY_OPENVINO = ("--provider-order", "openvino", "--onnxruntime-library", OPENVINO, "--openvino-device", "cpu")
BY_WEBGPU = (("--provider-order", "plugin", "--onnxruntime-provider-library", WEBGPU) if pathlib.Path(WEBGPU).is_file() else
             ("--provider-order", "webgpu", "--onnxruntime-library", WEBGPU))


def check(name: str, index: int, work: pathlib.Path, *flags):
    folder = FOLDERS / name
    run = json.loads((folder / "expected.json").read_text())[index]
    rows = golden.embed(folder, TEXTS, *flags, *run["flags"], work=work)
    assert golden.difference(rows, numpy.load(folder / run["vectors"])) <= 1e-5


def fletch(*words, **environment):
    return subprocess.run([str(golden.BIN), *map(str, words)], capture_output=True, text=True, env=os.environ | environment)


@openvino
@pytest.mark.parametrize("binding", ["true", "false"])
@pytest.mark.parametrize("name, index", FEW)
def test_folder_by_openvino(name, index, binding, tmp_path):
    check(name, index, tmp_path, *BY_OPENVINO, "--io-binding", binding)


def check_half(flags, work: pathlib.Path):
    half, full = (golden.embed(FOLDERS / "mpnet", TEXTS, *flags, "--precision", name, work=work) for name in ("fp16", "fp32"))
    cosine = (half * full).sum(1) / numpy.linalg.norm(half, axis=1) / numpy.linalg.norm(full, axis=1)
    assert cosine.min() >= 0.9995


@openvino
def test_half_precision_by_openvino(tmp_path):
    check_half(BY_OPENVINO, tmp_path)


@openvino
def test_statistics_and_doctor_name_openvino(tmp_path):
    stats = tmp_path / "stats.json"
    done = fletch("embed", "-m", FOLDERS / "plain-bert", *BY_OPENVINO, "--stats-json", stats, "a b", "a b c")
    assert done.returncode == 0, done.stderr
    said = json.loads(stats.read_text())
    assert said["devices"][0]["provider"] == "openvino" and said["bound_runs"] == 1 and said["unbound_runs"] == 0
    done = fletch("doctor", *BY_OPENVINO, "--provider-hardware-detection", "false")
    assert "provider.openvino     usable: ONNX Runtime 1." in done.stdout, done.stdout


@openvino
@pytest.mark.parametrize("device", ["gpu", "npu"])
def test_a_provider_that_makes_no_session_leaves_the_model_to_the_next(device):
    """OpenVINO takes its options and has no such device; a machine that has one runs on it."""
    flags = ("embed", "-m", FOLDERS / "plain-bert", "--onnxruntime-library", OPENVINO, "--openvino-device", device, "a b")
    done = fletch(*flags, "--provider-order", "openvino,cpu")
    assert done.returncode == 0 and json.loads(done.stdout)["embedding"]
    if done.stderr:
        assert "OpenVINOExecutionProvider" in done.stderr and "falling back to cpu" in done.stderr
        assert "onnxruntime_src" not in done.stderr and "export it again" not in done.stderr
        assert fletch(*flags, "--provider-order", "openvino").returncode == 2


@webgpu
@pytest.mark.parametrize("name, index", FEW if FULL else FEW[::2])  # a device in software takes ten times as long
def test_folder_by_webgpu(name, index, tmp_path):
    check(name, index, tmp_path, *BY_WEBGPU)


@webgpu
def test_mixed_lengths_and_plain_runs_by_webgpu(tmp_path):
    """Texts of 1 to 60 words in batches of several lengths, bound to the device's memory and copied for each run."""
    texts = [" ".join(["the", "cat", "sat", "at", "sea"] * 12)[:5 * n] for n in range(1, 60, 3)]
    want = golden.embed(FOLDERS / "mpnet", texts, work=tmp_path)
    for binding in ("true", "false"):
        stats = tmp_path / f"{binding}.json"
        rows = golden.embed(FOLDERS / "mpnet", texts, *BY_WEBGPU, "--io-binding", binding, "--batch-max-texts", "7",
                            "--stats-json", stats, work=tmp_path)
        assert golden.difference(rows, want) <= 1e-5
        said = json.loads(stats.read_text())
        assert said["devices"][0]["provider"] == "webgpu" and (said["bound_runs"] > 0) == (binding == "true")


@webgpu
def test_half_precision_by_webgpu(tmp_path):
    check_half(BY_WEBGPU, tmp_path)


@webgpu
def test_webgpu_without_an_adapter_leaves_the_model_to_the_next(tmp_path):
    """Neither the chain nor the process ends: the library dies in giving back what it half made."""
    order = f"{BY_WEBGPU[1]},cpu"
    done = fletch("embed", "-m", FOLDERS / "plain-bert", BY_WEBGPU[0], order, *BY_WEBGPU[2:], "a b",
                  VK_ICD_FILENAMES=str(tmp_path / "none.json"), LD_LIBRARY_PATH="")
    assert done.returncode == 0 and json.loads(done.stdout)["embedding"] and "falling back to cpu" in done.stderr
    assert "lambda" not in done.stderr and "onnxruntime_src" not in done.stderr


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """Flags that name the plug-in of tests/faults."""
    path = tmp_path_factory.mktemp("plugin") / "libfailing_provider.so"
    subprocess.run(["cc", "-O1", "-std=gnu17", "-shared", "-fPIC", "-o", path,
                    golden.ROOT / "tests/faults/failing_provider.c"], check=True)
    return "--onnxruntime-library", PLAIN, "--onnxruntime-provider-library", path


@plain
def test_a_plugin_at_work(failing, tmp_path):
    check("mpnet", 0, tmp_path, *failing, "--provider-order", "plugin", "--batch-max-texts", "3")
    done = fletch("doctor", *failing)
    assert "provider.plugin       usable" in done.stdout and "plugin, then cpu" in done.stdout, done.stdout


REFUSALS = {"register": "the driver is of another version", "hang": "did not register within 30 seconds",
            "devices": "lists no device", "abi": "or needs a newer ONNX Runtime than 1.",
            "session": "FailingExecutionProvider makes no session of the graph built from the model's weights: the device does not",
            "1": "the device has fallen off the bus"}


@plain
@pytest.mark.parametrize("place", REFUSALS)
def test_a_plugin_that_fails_leaves_the_model_to_the_next(failing, place):
    flags = ("embed", "-m", FOLDERS / "mpnet", *failing, "hello")
    with concurrent.futures.ThreadPoolExecutor(2) as both:  # one that hangs does so for half a minute
        runs = [both.submit(fletch, *flags, "--provider-order", order, FAIL_PROVIDER=place) for order in ("plugin,cpu", "plugin")]
    done = runs[0].result()
    assert done.returncode == 0 and json.loads(done.stdout)["embedding"]
    assert REFUSALS[place] in done.stderr and "falling back to cpu" in done.stderr
    done = runs[1].result()
    assert done.returncode == 2 and REFUSALS[place] in done.stderr and not done.stdout


@plain
@pytest.mark.parametrize("content, says", [(b"text\n", "is not an execution provider"), (None, "No such file"),
                                           (b"\x7fELF", "is not an execution provider")])
def test_a_file_that_is_no_plugin_leaves_the_model_to_the_next(content, says, tmp_path):
    path = tmp_path / "libother.so"
    if content is not None:
        path.write_bytes(content)
    done = fletch("embed", "-m", FOLDERS / "mpnet", "--onnxruntime-library", PLAIN, "--onnxruntime-provider-library", path,
                  "--provider-order", "plugin,cpu", "hello")
    assert done.returncode == 0 and json.loads(done.stdout)["embedding"]
    assert says in done.stderr and str(path) in done.stderr and "falling back to cpu" in done.stderr


@plain
@pytest.mark.parametrize("run", [2, 3, 5])
def test_a_plugin_that_is_lost_at_a_run_loses_no_text(failing, run, tmp_path):
    """Binding is tried, then a plain run; both fail, as they would with a card that is gone."""
    folder, stats = FOLDERS / "mpnet", tmp_path / "stats.json"
    expected = json.loads((folder / "expected.json").read_text())[0]
    os.environ["FAIL_PROVIDER"] = str(run)
    try:
        rows = golden.embed(folder, TEXTS, *failing, *expected["flags"], "--provider-order", "plugin,cpu",
                            "--batch-max-texts", "2", "--stats-json", stats, work=tmp_path)
    finally:
        del os.environ["FAIL_PROVIDER"]
    assert golden.difference(rows, numpy.load(folder / expected["vectors"])) <= 1e-5
    assert json.loads(stats.read_text())["devices"][0]["provider"] == "cpu"


@plain
def test_each_device_of_a_plugin_has_a_replica(failing, tmp_path):
    stats = tmp_path / "stats.json"
    done = fletch("embed", "-m", FOLDERS / "mpnet", *failing, "--provider-order", "plugin", "--provider-devices", "all",
                  "--stats-json", stats, "hello", FAIL_DEVICES="3")
    assert done.returncode == 0, done.stderr
    assert [(d["provider"], d["device"]) for d in json.loads(stats.read_text())["devices"]] == [("plugin", n) for n in range(3)]
    done = fletch("embed", "-m", FOLDERS / "mpnet", *failing, "--provider-order", "plugin", "--provider-devices", "3", "hello",
                  FAIL_DEVICES="3")
    assert done.returncode == 2 and "3 devices" in done.stderr
