# SPDX-License-Identifier: Apache-2.0
"""The onnxruntime engine gives the CPU engine's vectors, from a built graph and from an .onnx file.

The real library (make onnxruntime) runs; without it every test here is skipped by name. Expected vectors are
sentence-transformers' (make_vectors.py, make_folders.py). The large model runs where FLETCH_MODEL_HIGH names it.
"""
import json
import os
import pathlib
import subprocess
import sys

import numpy
import pytest

import golden

onnx_files = pytest.importorskip("onnx_files", reason="the onnx package is not in this Python (tools/venv.sh)")

pytestmark = pytest.mark.skipif(not onnx_files.library(), reason="no ONNX Runtime library: make onnxruntime")
VECTORS = golden.HERE / "vectors"
TEXTS = json.loads((VECTORS / "texts.json").read_text(encoding="utf-8"))
ENGINE = ("--provider-engine", "onnxruntime", "--onnxruntime-library", onnx_files.library())
LEVEL = "--onnxruntime-graph-optimization-level"
LEVELS = "0123" if "FLETCH_TEST_FULL" in os.environ else "03"  # the ends; make check-full: all


def model(variable: str) -> pathlib.Path:
    if not os.environ.get(variable):
        pytest.skip(f"{variable} names no model folder")
    return pathlib.Path(os.environ[variable])


def run(*words, env=None):
    return subprocess.run([str(golden.BIN), *map(str, words)], capture_output=True, text=True,
                          env={**os.environ, **(env or {})})


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """MiniLM as an .onnx file and no safetensors."""
    source = model("FLETCH_MODEL")
    folder = onnx_files.folder_without_weights(source, tmp_path_factory.mktemp("onnx") / "minilm")
    onnx_files.bert(source, folder / "onnx/model.onnx")
    return folder


@pytest.mark.parametrize("level", LEVELS)
def test_built_graph(level, tmp_path):
    rows = golden.embed(model("FLETCH_MODEL"), TEXTS, *ENGINE, LEVEL, level, work=tmp_path)
    assert numpy.abs(rows - numpy.load(VECTORS / "minilm.npy")).max() <= 1e-5


def test_fast_is_what_auto_is(tmp_path):
    rows = [golden.embed(model("FLETCH_MODEL"), TEXTS, *ENGINE, "--precision", name, work=tmp_path) for name in ("auto", "fast")]
    assert numpy.array_equal(*rows)


@pytest.mark.parametrize("level", LEVELS)
def test_file(exported, level, tmp_path):
    rows = golden.embed(exported, TEXTS, *ENGINE[2:], LEVEL, level, work=tmp_path)
    assert numpy.abs(rows - numpy.load(VECTORS / "minilm.npy")).max() <= 1e-5


@pytest.mark.full
@pytest.mark.parametrize("level", "0123")
def test_large_graph(level, tmp_path):
    rows = golden.embed(model("FLETCH_MODEL_HIGH"), TEXTS, *ENGINE, LEVEL, level, work=tmp_path)
    assert numpy.abs(rows - numpy.load(VECTORS / "mpnet.npy")).max() <= 1e-5


@pytest.mark.full
def test_large_file_by_torch(tmp_path):
    torch = pytest.importorskip("torch", reason="an export of mpnet needs torch")
    transformers = pytest.importorskip("transformers", reason="an export of mpnet needs transformers")
    source = model("FLETCH_MODEL_HIGH")
    folder = onnx_files.folder_without_weights(source, tmp_path / "mpnet")
    encoder = transformers.AutoModel.from_pretrained(source, attn_implementation="eager").eval()

    class Tokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = encoder

        def forward(self, input_ids, attention_mask):
            return self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    ids = torch.randint(5, 1000, (2, 9))
    axes = {0: torch.export.Dim("batch", min=1, max=4096), 1: torch.export.Dim("sequence", min=1, max=512)}
    torch.onnx.export(Tokens(), (ids, torch.ones_like(ids)), folder / "model.onnx", dynamo=True,
                      input_names=["input_ids", "attention_mask"], output_names=["last_hidden_state"],
                      dynamic_shapes={"input_ids": axes, "attention_mask": axes}, opset_version=18)
    for level in "0123":
        rows = golden.embed(folder, TEXTS, *ENGINE[2:], LEVEL, level, work=tmp_path)
        assert numpy.abs(rows - numpy.load(VECTORS / "mpnet.npy")).max() <= 1e-5, level


@pytest.mark.parametrize("flags", [
    ("--io-binding", "false"),
    ("--onnxruntime-memory-pattern", "false", "--onnxruntime-cpu-arena", "false"),
    ("--cpu-parallel-execution", "true", "--cpu-inter-op-threads", "2"),
    ("--cpu-intra-op-threads", "1"),
    ("--cpu-intra-op-threads", "3", "--batch-max-tokens", "300"),
    ("--provider-deterministic", "true"),
], ids=lambda flags: flags[0][2:])
def test_options_change_no_vector(flags, tmp_path):
    rows = golden.embed(model("FLETCH_MODEL"), TEXTS, *ENGINE, *flags, work=tmp_path)
    assert numpy.abs(rows - numpy.load(VECTORS / "minilm.npy")).max() <= 1e-5


def test_deterministic_gives_the_same_bytes_in_any_company(exported, tmp_path):
    flags = (*ENGINE[2:], "--provider-deterministic", "true")
    together = golden.embed(exported, TEXTS[:20] * 2, *flags, work=tmp_path)
    alone = numpy.concatenate([golden.embed(exported, [text], *flags, work=tmp_path) for text in TEXTS[:5]])
    assert together[:20].tobytes() == together[20:].tobytes()
    assert together[:5].tobytes() == alone.tobytes()


# ---- The chain of providers ----------------------------------------------------------------------

PROVIDERS = {"cuda": ("CUDA", "CUDAExecutionProvider"), "tensorrt": ("TensorRT", "TensorrtExecutionProvider"),
             "coreml": ("CoreML", "CoreMLExecutionProvider"), "directml": ("DirectML", "DmlExecutionProvider"),
             "openvino": ("OpenVINO", "OpenVINOExecutionProvider"), "webgpu": ("WebGPU", "WebGpuExecutionProvider"),
             "gpu": ("CUDA", "CUDAExecutionProvider"), "trt": ("TensorRT", "TensorrtExecutionProvider"),
             "dml": ("DirectML", "DmlExecutionProvider")}


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_refused_provider_names_library_and_symbol(name):
    """The CPU library holds none of these: its refusal is what can be tested here."""
    spoken, symbol = PROVIDERS[name]
    flags = (*ENGINE, "--provider-order", name)
    if spoken in ("CoreML", "DirectML") and sys.platform == "linux":
        done = run("embed", "-m", model("FLETCH_MODEL"), *flags, "hello")
        assert done.returncode == 2 and "this is another system" in done.stderr and "Install" not in done.stderr
        flags = (*flags, "--provider-hardware-detection", "false")
    done = run("embed", "-m", model("FLETCH_MODEL"), *flags, "--provider-fallback", "false", "hello")
    assert done.returncode == 2
    assert f"{spoken} execution provider requested but not available" in done.stderr
    assert symbol in done.stderr and "libonnxruntime" in done.stderr and "Install" in done.stderr
    done = run("embed", "-m", model("FLETCH_MODEL"), *flags, "hello")
    assert done.returncode == 2 and symbol in done.stderr  # alone it is a demand; a chain falls back
    done = run("embed", "-m", model("FLETCH_MODEL"), *ENGINE, *flags[len(ENGINE):], "--provider-order", f"{name},cpu", "hello")
    assert done.returncode == 0 and "falling back to cpu" in done.stderr


@pytest.mark.parametrize("content, why", [(b"no library", "is not an execution provider: "), (None, "it has no symbol CreateEpFactories")])
def test_a_file_that_is_no_plugin(content, why, tmp_path):
    file = tmp_path / "provider.so"
    if content is None:
        file.symlink_to(next(pathlib.Path(onnx_files.library()).glob("libonnxruntime_providers_shared*")))
    else:
        file.write_bytes(content)
    flags = ("embed", "-m", model("FLETCH_MODEL"), *ENGINE, "--onnxruntime-provider-library", file, "hello")
    done = run(*flags, "--provider-order", "plugin")
    assert done.returncode == 2 and "Plug-in execution provider requested" in done.stderr and str(file) in done.stderr
    assert why in done.stderr
    done = run(*flags)
    assert done.returncode == 0 and why in done.stderr, "auto goes on to the processor, and says so"
    done = run("embed", "-m", model("FLETCH_MODEL"), *ENGINE, "--provider-order", "plugin", "hello")
    assert done.returncode == 2 and "names no file" in done.stderr


def test_the_log_says_what_the_figures_say():
    done = run("embed", "-m", model("FLETCH_MODEL"), *ENGINE, "-v", "--stats", "hello")
    assert done.returncode == 0 and "in 0.0 %, out 100.0 %" in done.stderr
    assert "copied input" in done.stderr and "zero-copy input" not in done.stderr
    assert "zero-copy output" in done.stderr and "copied output" not in done.stderr
    assert done.stderr.count("debug: ONNX Runtime ") == 1, "the library is opened once"


@pytest.mark.parametrize("variable", ["FLETCH_PROVIDER", "OP_DBUS_EXECUTION_PROVIDER", "FLETCH_PROVIDER_ORDER"])
def test_the_provider_by_environment(variable):
    done = run("embed", "-m", model("FLETCH_MODEL"), *ENGINE, "--provider-fallback", "false", "hello",
               env={variable: "tensorrt"})
    assert done.returncode == 2 and "TensorRT execution provider requested" in done.stderr


@pytest.mark.parametrize("word", ["tensorrt", "gpu", "coreml"])
def test_the_words_of_other_programs_fall_back(word, tmp_path):
    """[ai] and OP_DBUS_… wish for a provider; fletch's own key demands it, and wins where both are set."""
    app = tmp_path / "app.toml"
    app.write_text(f'[ai]\nprovider = "{word}"\n')
    flags = ("embed", "-m", model("FLETCH_MODEL"), "--onnxruntime-library", "/nowhere", "hello")
    for more, env in (((), {"OP_DBUS_EXECUTION_PROVIDER": word}), (("--app-config", app), {}), (("--config", app), {})):
        done = run(*flags, *more, env=env)
        assert done.returncode == 0 and json.loads(done.stdout)["embedding"], done.stderr
        assert "execution provider requested but not available" in done.stderr and "falling back to cpu" in done.stderr
        assert run(*flags, *more, "--provider-fallback", "false", env=env).returncode == 2
        assert run(*flags, *more, "--provider-order", word, env=env).returncode == 2
        assert run(*flags, *more, env={**env, "FLETCH_PROVIDER": word}).returncode == 2


@pytest.mark.parametrize("variable", ["FLETCH_DEVICE", "OP_DBUS_GPU_DEVICE", "FLETCH_LEVEL", "OP_DBUS_VECTOR_LEVEL"])
def test_aliases_of_device_and_level(variable):
    key, value = ("provider.devices", "1") if "DEVICE" in variable else ("model.level", "high")
    done = run("config", "get", key, env={variable: value})
    assert done.returncode == 0 and value in done.stdout


def test_fallback_from_a_refused_provider_to_the_next():
    done = run("embed", "-m", model("FLETCH_MODEL"), *ENGINE, "--provider-order", "tensorrt,cpu", "hello")
    assert done.returncode == 0
    assert "TensorRT execution provider requested but not available" in done.stderr


def test_auto_asks_the_hardware_first():
    """A machine without a device pays no search for the device's library, and hears nothing of it."""
    done = run("embed", "-m", model("FLETCH_MODEL"), "--onnxruntime-library", "/nowhere", "hello")
    assert done.returncode == 0 and done.stderr == ""


def test_native_refuses_what_is_only_a_file(exported):
    done = run("embed", "-m", exported, *ENGINE[2:], "--provider-engine", "native", "hello")
    assert done.returncode == 2 and "only an .onnx file" in done.stderr and "onnxruntime" in done.stderr


def test_doctor_tells_library_and_version():
    done = run("doctor", *ENGINE[2:], "--model", model("FLETCH_MODEL"))
    line = next(line for line in done.stdout.splitlines() if line.strip().startswith("onnxruntime "))
    assert "usable: ONNX Runtime 1." in line and "libonnxruntime" in line


def test_telemetry_is_off_and_leaves_no_file(tmp_path):
    done = run("embed", "-m", model("FLETCH_MODEL"), *ENGINE, "hello",
               env={"HOME": str(tmp_path), "ORT_DISABLE_TELEMETRY": "0", "TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("*")), "the library wrote something of its own"


def test_kernels_are_in_the_trace_and_no_file_is_left(tmp_path):
    trace, scratch = tmp_path / "trace.json", tmp_path / "scratch"
    scratch.mkdir()
    done = run("embed", "-m", model("FLETCH_MODEL"), *ENGINE, "--profile-file", trace, "hello world",
               env={"TMPDIR": str(scratch)})
    assert done.returncode == 0, done.stderr
    document = json.loads(trace.read_text())
    events = [e for e in (document["traceEvents"] if isinstance(document, dict) else document) if e.get("ph") == "X"]
    group = next(e for e in events if e["name"] == "onnxruntime group")
    products = [e for e in events if e["name"] in ("Gemm", "FusedGemm", "MatMul")]
    assert len(products) >= 36  # six linear layers in each of six layers
    for event in products:  # two clocks were brought together: the kernels lie inside their run
        assert group["ts"] - 1000 <= event["ts"] <= group["ts"] + group["dur"] + 1000
    assert not list(scratch.iterdir())
