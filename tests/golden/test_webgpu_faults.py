# SPDX-License-Identifier: Apache-2.0
"""WebGPU when its device fails: no device of the adapter, a shader that does not compile, memory that runs out, a
device that is lost, at opening and at work; several adapters; the provider as a plug-in.

The library is the real one, on Mesa's lavapipe; between them stands tests/faults/failing_vulkan.c, which hands every call
on and gives the codes of a failing card where it is told to. Whatever fails, the vectors are right or there are none.
"""
import json
import os
import pathlib
import subprocess

import numpy
import pytest

import golden

VULKAN = golden.ROOT / ".cache/vulkan"
WEBGPU = golden.ROOT / ".cache/onnxruntime-webgpu"
PLAIN = pathlib.Path(os.environ.get("FLETCH_ONNXRUNTIME_LIBRARY") or golden.ROOT / ".cache/onnxruntime")
PLUGIN = golden.ROOT / ".cache/onnxruntime-ep-webgpu/libonnxruntime_providers_webgpu.so"
FOLDERS = golden.HERE / "folders"
MODEL = FOLDERS / "mpnet"
TEXTS = ["a", "hello world this is a text", "the cat sat at sea and that is not all of it " * 6]
BUILT_IN = ("--onnxruntime-library", WEBGPU)
AS_PLUGIN = ("--onnxruntime-library", PLAIN, "--onnxruntime-provider-library", PLUGIN)
EVERY = "FLETCH_TEST_FULL" in os.environ

pytestmark = pytest.mark.skipif(not (VULKAN / "lavapipe.json").exists() or not WEBGPU.exists(),
                                reason="no WebGPU: tools/onnxruntime.sh webgpu, tools/vulkan.sh")
plugin = pytest.mark.skipif(not PLUGIN.exists() or not PLAIN.exists(), reason="no WebGPU plug-in: tools/onnxruntime.sh ep-webgpu")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Of a process whose Vulkan can fail."""
    folder = tmp_path_factory.mktemp("vulkan")
    subprocess.run(["cc", "-O1", "-std=gnu17", "-shared", "-fPIC", "-o", folder / "libvulkan.so.1",
                    golden.ROOT / "tests/faults/failing_vulkan.c"], check=True)
    return os.environ | {"VK_ICD_FILENAMES": str(VULKAN / "lavapipe.json"), "LD_LIBRARY_PATH": f"{folder}:{VULKAN / 'lib'}",
                         "FAIL_VULKAN_LIBRARY": str(VULKAN / "lib/libvulkan.so.1"), "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1"}


def run(environment, *words, **faults):
    return subprocess.run([str(golden.BIN), *map(str, words)], capture_output=True, text=True, timeout=300,
                          env=environment | {name.upper(): str(value) for name, value in faults.items()})


def rows(done) -> numpy.ndarray:
    assert done.returncode == 0, done.stderr
    return numpy.array([json.loads(line)["embedding"] for line in done.stdout.splitlines()])


@pytest.fixture(scope="module")
def expected():
    return rows(run(os.environ, "embed", "-m", MODEL, *TEXTS))


WORDS = {"device": "vkCreateDevice failed with VK_ERROR_INITIALIZATION_FAILED", "shader": "CreateShaderModule failed with VK_ERROR_UNKNOWN",
         "pipeline": "CreateComputePipelines failed with VK_ERROR_UNKNOWN", "submit": "[Device] is lost",
         "memory": "vkAllocateMemory failed with VK_ERROR_OUT_OF_DEVICE_MEMORY"}


@pytest.mark.parametrize("flags, fault", [(BUILT_IN, fault) for fault in WORDS] + [
    pytest.param(AS_PLUGIN, fault, marks=plugin) for fault in ("device", "memory", "submit")])
def test_a_device_that_fails_at_opening_leaves_the_model_to_the_next(environment, expected, flags, fault):
    """The plug-in (0.4.0) throws past its own interface where no shader compiles, and ends the process."""
    name = "webgpu" if flags is BUILT_IN else "plugin"
    done = run(environment, "embed", "-m", MODEL, *flags, "--provider-order", f"{name},cpu", *TEXTS, fail_vulkan=fault)
    assert numpy.array_equal(rows(done), expected)
    assert WORDS[fault] in done.stderr and "falling back to cpu" in done.stderr
    assert "VulkanError.cpp" not in done.stderr and "onnxruntime_src" not in done.stderr
    done = run(environment, "embed", "-m", MODEL, *flags, "--provider-order", name, *TEXTS, fail_vulkan=fault)
    assert done.returncode == 2 and WORDS[fault] in done.stderr and not done.stdout


# The call that fails is counted, and falls before opening is over or behind it: what the library asks for differs with
# its version. Without TIMES all calls behind it fail as well.
FAULTS = [("memory", at, 1) for at in (1, 20, 44, 52, 60, 75)] + [("memory", at, None) for at in (20, 70)] + [
    ("submit", at, None) for at in (3, 16, 40)] + [("submit", 20, 1), ("pipeline", 12, None), ("shader", 12, 1)]
MORE = [(fault, at, times) for fault in ("memory", "submit", "pipeline", "shader") for at in range(1, 90, 4) for times in (1, None)]


@pytest.mark.parametrize("fault, at, times", MORE if EVERY else FAULTS)
def test_no_fault_at_work_loses_or_spoils_a_text(environment, expected, fault, at, times):
    """One text a batch, so that some are done before the fault and some are not."""
    faults = {"fail_vulkan": fault, "fail_vulkan_at": at} | ({} if times is None else {"fail_vulkan_times": times})
    done = run(environment, "embed", "-m", MODEL, *BUILT_IN, "--provider-order", "webgpu,cpu", "--batch-max-texts", "1", *TEXTS,
               **faults)
    assert golden.difference(rows(done), expected) <= 1e-5
    if fault == "memory" and "failed" in done.stderr:
        assert WORDS["memory"] in done.stderr, "the reason, and not what came of it"


def test_a_batch_that_finds_no_memory_is_split(environment, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{'the cat sat at sea and the dog ran home again ' * 3}{n}\n" for n in range(64)))
    flags = ("embed", "-m", MODEL, "--input", texts, "--stats-json", tmp_path / "stats.json")
    want = rows(run(os.environ, *flags))
    done = run(environment, *flags, *BUILT_IN, "--provider-order", "webgpu", fail_vulkan="memory", fail_vulkan_bytes=9_000_000)
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert golden.difference(rows(done), want) <= 1e-5 and "failed" not in done.stderr
    assert stats["batch_splits"] > 0 and stats["devices"][0]["provider"] == "webgpu"


def adapters(environment) -> int:
    """Vulkan devices that a process sees."""
    code = """
import ctypes
vulkan = ctypes.CDLL("libvulkan.so.1")
create = (ctypes.c_int * 16)(1)
instance, count = ctypes.c_void_p(), ctypes.c_uint()
assert vulkan.vkCreateInstance(create, None, ctypes.byref(instance)) == 0
assert vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None) == 0
print(count.value)
"""
    done = subprocess.run(["python3", "-c", code], capture_output=True, text=True, env=environment)
    return int(done.stdout) if done.returncode == 0 else 0


@pytest.fixture
def two(environment, tmp_path):
    """Two drivers, each with an adapter: lavapipe and a copy of it."""
    first = json.loads((VULKAN / "lavapipe.json").read_text())
    driver = pathlib.Path(first["ICD"]["library_path"])
    (tmp_path / "libsecond.so").write_bytes(driver.read_bytes())
    for name, path in (("first", driver), ("second", tmp_path / "libsecond.so")):
        (tmp_path / f"{name}.json").write_text(json.dumps(first | {"ICD": first["ICD"] | {"library_path": str(path)}}))
    both = environment | {"VK_ICD_FILENAMES": f"{tmp_path / 'first.json'}:{tmp_path / 'second.json'}",
                          "LD_LIBRARY_PATH": str(VULKAN / "lib")}
    assert adapters(both) == 2 and adapters(both | {"VK_LOADER_DRIVERS_SELECT": "second*"}) == 1
    return both


@pytest.mark.parametrize("flags", [BUILT_IN, pytest.param(AS_PLUGIN, marks=plugin)])
def test_of_several_adapters_a_process_has_one(two, expected, flags, tmp_path):
    """ONNX Runtime lets WebGPU choose by power alone and takes no number: the second device is refused and not the first in
    disguise. The Vulkan loader's own variable chooses, and each process has the adapter that it names."""
    name = "webgpu" if flags is BUILT_IN else "plugin"
    flags = ("embed", "-m", MODEL, *flags, "--stats-json", tmp_path / "stats.json", "--provider-order")
    for devices in ("0", "all"):
        assert golden.difference(rows(run(two, *flags, name, "--provider-devices", devices, *TEXTS)), expected) <= 1e-5
        devices = json.loads((tmp_path / "stats.json").read_text())["devices"]
        assert [(d["provider"], d["device"]) for d in devices] == [(name, 0)]
    done = run(two, *flags, name, "--provider-devices", "1", *TEXTS)
    assert done.returncode == 2 and f"provider {name} has 1 device" in done.stderr
    chosen = {"vk_loader_drivers_select": "second*"}
    assert golden.difference(rows(run(two, *flags, name, *TEXTS, **chosen)), expected) <= 1e-5
    done = run(two, *flags, f"{name},cpu", *TEXTS, vk_loader_drivers_select="neither*")
    assert numpy.array_equal(rows(done), expected) and "falling back to cpu" in done.stderr


@pytest.mark.parametrize("power", ["low", "high"])
def test_power_chooses_among_adapters(two, expected, power):
    done = run(two, "embed", "-m", MODEL, *BUILT_IN, "--provider-order", "webgpu", "--webgpu-power-preference", power, *TEXTS)
    assert golden.difference(rows(done), expected) <= 1e-5


KINDS = ("family-modernbert", "mpnet") if not EVERY else sorted(
    path.parent.name for path in FOLDERS.glob("*/expected.json") if not path.parent.name.startswith((*golden.NO_GRAPH, "sparse-", "router-")))


@plugin
@pytest.mark.parametrize("name", KINDS)
def test_folder_by_the_plugin(environment, name, tmp_path, monkeypatch):
    for variable in ("VK_ICD_FILENAMES", "LD_LIBRARY_PATH", "FAIL_VULKAN_LIBRARY", "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER"):
        monkeypatch.setenv(variable, environment[variable])
    texts = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))
    for expected in json.loads((FOLDERS / name / "expected.json").read_text()):
        got = golden.embed(FOLDERS / name, texts, *AS_PLUGIN, "--provider-order", "plugin", *expected["flags"], work=tmp_path)
        assert golden.difference(got, numpy.load(FOLDERS / name / expected["vectors"])) <= 1e-5


@plugin
def test_the_plugin_refuses_an_older_library_by_its_version(environment):
    """ONNX Runtime 1.24.1 for a plug-in that wants 1.24.4: its own refusal."""
    older = golden.ROOT / ".cache/onnxruntime-openvino"
    if not list(older.glob("libonnxruntime.so.1.24.1")):
        pytest.skip("no older library: tools/onnxruntime.sh openvino")
    done = run(environment, "embed", "-m", MODEL, "--onnxruntime-library", older, *AS_PLUGIN[2:], "--provider-order", "plugin,cpu", "a")
    assert done.returncode == 0 and json.loads(done.stdout)["embedding"]
    assert 'ORT runtime version "1.24.1" is below the minimum required version' in done.stderr and "falling back to cpu" in done.stderr


@plugin
def test_the_path_of_a_plugin_is_the_callers(environment, tmp_path):
    """Relative to the working folder, as every other path, and not to the library."""
    for words in (os.path.relpath(PLUGIN, tmp_path), "libhere.so"):
        if not (tmp_path / "libhere.so").exists():
            (tmp_path / "libhere.so").symlink_to(PLUGIN)
        done = subprocess.run([str(golden.BIN), "embed", "-m", MODEL, "--onnxruntime-library", PLAIN, "--onnxruntime-provider-library",
                               words, "--provider-order", "plugin", "a"], capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
