# SPDX-License-Identifier: Apache-2.0
"""OpenVINO as a plug-in of ONNX Runtime (tools/onnxruntime.sh ep-openvino; make check-full gets it).

It lists an Intel processor as a device. Of its own accord it computes in bfloat16 where the processor has that (vectors off by
1e-2), so that float32 has to be asked for, in words of its own.
"""
import json
import os
import pathlib
import subprocess

import numpy
import pytest

import golden

PLAIN = pathlib.Path(os.environ.get("FLETCH_ONNXRUNTIME_LIBRARY") or golden.ROOT / ".cache/onnxruntime")
PLUGIN = golden.ROOT / ".cache/onnxruntime-ep-openvino/libonnxruntime_providers_openvino_plugin.so"
FLAGS = ("--onnxruntime-library", PLAIN, "--onnxruntime-provider-library", PLUGIN)
FOLDERS = golden.HERE / "folders"
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))

pytestmark = pytest.mark.skipif(not PLUGIN.exists() or not PLAIN.exists(), reason="no plug-in of OpenVINO: tools/onnxruntime.sh ep-openvino")


def fletch(*words):
    return subprocess.run([str(word) for word in (golden.BIN, "embed", "-m", FOLDERS / "mpnet", *FLAGS, *words, "a")],
                          capture_output=True, text=True)


@pytest.fixture(scope="module", autouse=True)
def listed():
    done = fletch("--provider-order", "plugin")
    if "lists no device" in done.stderr:
        pytest.skip("OpenVINO lists no device here: no processor or GPU of Intel's")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("order", ["plugin", "openvino"])
@pytest.mark.parametrize("name", ["family-modernbert", "family-qwen3", "mpnet", "plain-bert"])
def test_folder(name, order, tmp_path):
    """By its file, and as the provider of its name, which the library does not have compiled in."""
    for run in json.loads((FOLDERS / name / "expected.json").read_text()):
        rows = golden.embed(FOLDERS / name, TEXTS, *FLAGS, "--provider-order", order, *run["flags"], work=tmp_path)
        assert golden.difference(rows, numpy.load(FOLDERS / name / run["vectors"])) <= 1e-5


def test_half_precision(tmp_path):
    half, full = (golden.embed(FOLDERS / "mpnet", TEXTS, *FLAGS, "--provider-order", "plugin", "--precision", name, work=tmp_path)
                  for name in ("fp16", "fp32"))
    cosine = (half * full).sum(1) / numpy.linalg.norm(half, axis=1) / numpy.linalg.norm(full, axis=1)
    assert cosine.min() >= 0.999 and not numpy.array_equal(half, full)


def test_a_device_that_it_does_not_list():
    done = fletch("--provider-order", "plugin,cpu", "--provider-devices", "9")
    assert done.returncode == 0 and "falling back to cpu" in done.stderr
    assert fletch("--provider-order", "plugin", "--provider-devices", "9").returncode == 2
