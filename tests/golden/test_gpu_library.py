# SPDX-License-Identifier: Apache-2.0
"""onnxruntime-gpu's own libraries on a machine without a GPU: what they refuse, and for which lack, is told by its name.

`tools/onnxruntime.sh gpu` gets them (make check-full does); FLETCH_TEST_ONNXRUNTIME_GPU names another folder. They are
loaded as on a user's machine; the driver is missing, the toolkit's stub, or tests/faults/old_driver.c: too old,
without a card, or of another version than its kernel module. The CUDA libraries are the toolkit's.
"""
import ctypes
import json
import os
import pathlib
import platform
import subprocess

import pytest

import golden

LIBRARY = pathlib.Path(os.environ.get("FLETCH_TEST_ONNXRUNTIME_GPU") or golden.ROOT / ".cache/onnxruntime-gpu")
STUB = pathlib.Path("/usr/local/cuda/lib64/stubs/libcuda.so")
LOADER = pathlib.Path("/lib64/ld-linux-x86-64.so.2")
MODEL = golden.HERE / "folders/mpnet"
FLAGS = ("--provider-engine", "onnxruntime", "--onnxruntime-library", LIBRARY, "--provider-hardware-detection", "false")



def loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
        return True
    except OSError:
        return False


pytestmark = [
    pytest.mark.skipif(not list(LIBRARY.glob("libonnxruntime_providers_cuda.so")), reason="no onnxruntime-gpu: tools/onnxruntime.sh gpu"),
    pytest.mark.skipif(loads("libcuda.so.1"), reason="this machine has an NVIDIA driver: nothing is refused"),
]
toolkit = pytest.mark.skipif(not loads("libcudart.so.13"), reason="no CUDA libraries: those refuse first")


def fletch(*words, before=(), **environment):
    return subprocess.run([*map(str, before), str(golden.BIN), *map(str, words)], capture_output=True, text=True,
                          env=os.environ | environment)


def refused(order: str, *says: str, before=(), **environment) -> None:
    """In a chain the processor computes and the reason is told; alone it is the error; doctor says it, too."""
    flags = ("embed", "-m", MODEL, *FLAGS, "hello", "--provider-order")
    done = fletch(*flags, f"{order},cpu", before=before, **environment)
    assert done.returncode == 0 and json.loads(done.stdout)["embedding"], done.stderr
    assert "falling back to cpu" in done.stderr
    alone = fletch(*flags, order, before=before, **environment)
    assert alone.returncode == 2 and not alone.stdout
    doctor = fletch("doctor", *FLAGS, "--provider-order", order, before=before, **environment)
    for text in (done.stderr, alone.stderr, doctor.stdout):
        for words in says:
            assert words in text, text
        assert "onnxruntime_src" not in text and "Install onnxruntime-gpu" not in text.split(says[0])[1].split("\n")[0], text


@pytest.fixture
def driver(tmp_path):
    """Makes libcuda.so.1 of tests/faults: the library path that leads to it."""
    def make(*flags: str) -> str:
        subprocess.run(["cc", "-O1", "-std=gnu17", "-shared", "-fPIC", *flags, "-Wl,-soname,libcuda.so.1", "-o",
                        tmp_path / "libcuda.so.1", golden.ROOT / "tests/faults/old_driver.c"], check=True)
        return str(tmp_path)
    return make


@toolkit
def test_no_driver():
    refused("cuda", "no CUDAExecutionProvider: libcuda.so.1: cannot open", "The NVIDIA driver is missing: install it")
    done = fletch("embed", "-m", MODEL, *FLAGS, "-v", "hello", "--provider-order", "cuda,cpu")
    assert done.stderr.count("debug: ONNX Runtime ") == 1, "the library is opened once"


@toolkit
@pytest.mark.skipif(not STUB.exists(), reason="no stub of the driver: it comes with the CUDA toolkit")
def test_the_toolkits_stub_of_a_driver(tmp_path):
    (tmp_path / "libcuda.so.1").symlink_to(STUB)
    refused("cuda", "CUDA driver is a stub library", "The driver found is the CUDA toolkit's stub", LD_LIBRARY_PATH=str(tmp_path))


@toolkit
@pytest.mark.parametrize("version", [11040, 12080])
def test_a_driver_that_is_too_old(driver, version):
    refused("cuda", "CUDA driver version is insufficient", "Install a newer NVIDIA driver", LD_LIBRARY_PATH=driver(),
            OLD_DRIVER_VERSION=str(version))


@toolkit
def test_a_driver_from_before_cuda_12(driver):
    """The loader refuses the library: what it calls is not there."""
    refused("cuda", "undefined symbol: cuTensorMapEncodeTiled", "Install a newer NVIDIA driver", LD_LIBRARY_PATH=driver("-DOLDER"))


@toolkit
@pytest.mark.parametrize("answer, says", [(100, "shows no GPU: see nvidia-smi"), (803, "are of different versions"),
                                          (999, "does not start: see nvidia-smi")])
def test_a_driver_that_does_not_start(driver, answer, says):
    refused("cuda", f"CUDA failure {answer}", says, LD_LIBRARY_PATH=driver(), OLD_DRIVER_VERSION="13000", OLD_DRIVER_START=str(answer))


@pytest.mark.skipif(loads("libnvinfer.so.10"), reason="this machine has TensorRT")
def test_no_tensorrt():
    """The next of the chain is CUDA's provider of the same library, which is refused for its own reason."""
    refused("tensorrt", "no TensorrtExecutionProvider: libnvinfer.so", "Install TensorRT of that version")
    done = fletch("embed", "-m", MODEL, *FLAGS, "hello", "--provider-order", "tensorrt,cuda,cpu")
    assert done.returncode == 0 and "falling back to cuda" in done.stderr and "falling back to cpu" in done.stderr


@pytest.mark.skipif(platform.machine() != "x86_64" or not LOADER.exists(), reason="the loader is called by its name on x86-64")
def test_no_cuda_libraries(tmp_path):
    """A machine with the driver alone: the loader finds nothing but what lies in a folder of this test."""
    (tmp_path / "libcuda.so.1").symlink_to(STUB if STUB.exists() else "/nowhere")
    refused("cuda", "libcublasLt.so.13: cannot open", "Install the CUDA libraries of that version",
            before=(LOADER, "--inhibit-cache", "--library-path", tmp_path))
