# SPDX-License-Identifier: Apache-2.0
"""provider.order auto: openvino and webgpu are tried where the kernel has a GPU's or NPU's driver, in that order and before
the processor; elsewhere their libraries are not even asked. The process has a /dev of its own; the devices are the
processor (OpenVINO) and Vulkan in software (WebGPU)."""
import json
import os
import subprocess

import pytest

import golden

CACHE = golden.ROOT / ".cache"
VULKAN = CACHE / "vulkan"
SOFTWARE = {"VK_ICD_FILENAMES": str(VULKAN / "lavapipe.json"), "LD_LIBRARY_PATH": str(VULKAN / "lib"), "FLETCH_OPENVINO_DEVICE": "cpu"}


@pytest.fixture
def fletch(tmp_path):
    def run(library: str, files: list[str], *words):
        if not (CACHE / library).exists() or not VULKAN.exists():
            pytest.skip(f"no {library}, or no Vulkan in software: tools/onnxruntime.sh, tools/vulkan.sh")
        devices = tmp_path / "dev"
        for file in ["null", *files]:
            (devices / file).parent.mkdir(parents=True, exist_ok=True)
            (devices / file).touch()
        alone = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /dev && exec "$@"', devices]
        if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
            pytest.skip("a mount namespace takes root")
        command = [*alone, golden.BIN, *words, "--onnxruntime-library", CACHE / library]
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.PIPE,
                              env=os.environ | SOFTWARE)
    return run


@pytest.mark.parametrize("library, files, takes", [
    ("onnxruntime-webgpu", [], "cpu"), ("onnxruntime-webgpu", ["dri/renderD128"], "webgpu"), ("onnxruntime-webgpu", ["accel/accel0"], "cpu"),
    ("onnxruntime-openvino", [], "cpu"), ("onnxruntime-openvino", ["dri/renderD128"], "openvino"),
    ("onnxruntime-openvino", ["accel/accel0"], "openvino"), ("onnxruntime", ["dri/renderD128"], "cpu")])
def test_auto_takes_a_device_that_the_kernel_shows(fletch, tmp_path, library, files, takes):
    stats = tmp_path / "stats.json"
    done = fletch(library, files, "embed", "-m", golden.HERE / "folders/mpnet", "--stats-json", stats, "hello")
    assert done.returncode == 0 and json.loads(done.stdout)["embedding"], done.stderr
    assert json.loads(stats.read_text())["devices"][0]["provider"] == takes
    assert "fletch:" not in done.stderr, "what auto passes over is told by doctor alone"


def test_the_order_of_auto(fletch):
    """The library has one of them: the other is asked, too, and says why not."""
    done = fletch("onnxruntime-webgpu", ["dri/renderD128"], "doctor")
    assert "webgpu, then cpu" in done.stdout
    names = [line.split()[0] for line in done.stdout.splitlines() if line.strip().startswith("provider.")]
    order = ["plugin", "cuda", "tensorrt", "coreml", "directml", "openvino", "webgpu", "cpu"]
    assert names[:len(order)] == [f"provider.{name}" for name in order]
    assert "no OpenVINOExecutionProvider" in done.stdout
