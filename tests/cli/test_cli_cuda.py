# SPDX-License-Identifier: Apache-2.0
"""Each way in which the CUDA module can be missing or wrong is told apart, and how to mend it; nothing crashes."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import commandline
import pytest

ABI = int(re.search(r"FL_ENGINE_ABI = (\d+)", (commandline.ROOT / "src/engines/engine.h").read_text()).group(1))
BUILD = pathlib.Path(os.environ.get("FLETCH_BUILD", pathlib.Path(commandline.BIN).parent))
SIMULATED = BUILD / "tests/cuda/sim"
NATIVE = {"FLETCH_PROVIDER_HARDWARE_DETECTION": "false", "FLETCH_PROVIDER_ENGINE": "native"}


def machine(fletch, **environment) -> dict[str, str]:
    """What doctor says of the machine."""
    result = fletch("doctor", "--format", "json", env=NATIVE | environment)
    return {item["name"]: item["value"] for item in json.loads(result.stdout)["machine"]}


def reason(fletch, module) -> str:
    return machine(fletch, FLETCH_CUDA_MODULE=str(module))["provider.cuda"]


@pytest.fixture
def compile(tmp_path):
    """A shared library of a few lines of C."""
    if shutil.which("cc") is None:
        pytest.skip("no cc")

    def build(text: str) -> pathlib.Path:
        source, library = tmp_path / "module.c", tmp_path / "libfletch_cuda.so"
        source.write_text(text)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        return library
    return build


def door(abi: int, version: str) -> str:
    return ("struct { unsigned abi, layout; const char *version; const void *ops; } "
            f'fl_cuda_module = {{{abi}, 1, "{version}", (void *)8}};')


def test_a_file_that_is_not_there(fletch, tmp_path):
    found = reason(fletch, tmp_path / "none.so")
    assert found.startswith("no: cuda.module: there is no file") and "none.so" in found


def test_a_folder_without_a_module(fletch, tmp_path):
    assert f"the folder {tmp_path} has no libfletch_cuda.so" in reason(fletch, tmp_path)


def test_a_file_that_is_no_library(fletch, tmp_path):
    (tmp_path / "libfletch_cuda.so").write_text("no library")
    found = reason(fletch, tmp_path)
    assert "does not load" in found and "libfletch_cuda.so" in found


def test_a_library_that_is_no_module(fletch, compile):
    assert "no symbol fl_cuda_module; build one with: make cuda" in reason(fletch, compile("int nothing;"))


def test_a_module_of_another_abi(fletch, compile):
    found = reason(fletch, compile(door(ABI + 1, "9.9.9")))
    assert f"has engine ABI {ABI + 1}, this fletch has {ABI}" in found and "make cuda" in found


def test_a_module_of_another_version(fletch, compile):
    found = reason(fletch, compile(door(ABI, "0.0.9")))
    assert "is of fletch 0.0.9, this is fletch" in found and "cuda.module" in found


def test_a_module_of_other_sources(fletch, compile):
    version = fletch("version").stdout.decode().split()[1]
    assert "was built from other sources" in reason(fletch, compile(door(ABI, version)))


def test_a_refused_module_leaves_the_work_to_the_processor(embed, compile):
    environment = {"FLETCH_PROVIDER_ORDER": "cuda", "FLETCH_CUDA_MODULE": str(compile(door(ABI + 1, "9.9.9")))}
    result = embed("embed", "a text", env=environment | NATIVE)
    assert result.returncode == 0
    assert b"engine ABI" in result.stderr and b"falling back to cpu" in result.stderr
    alone = embed("embed", "a text", env=environment | NATIVE | {"FLETCH_PROVIDER_FALLBACK": "false"})
    assert alone.returncode != 0 and b"engine ABI" in alone.stderr and alone.stdout == b""


def test_none_at_all_and_one_that_is_installed(fletch, tmp_path, monkeypatch, compile):
    """A program that was moved away from its build: nothing beside it, then a module in ../lib/fletch."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(commandline, "BIN", str(shutil.copy(commandline.BIN, tmp_path / "bin/fletch")))
    assert "this machine has no CUDA module" in machine(fletch)["provider.cuda"]
    (tmp_path / "lib/fletch").mkdir(parents=True)
    shutil.move(compile(door(ABI + 1, "9.9.9")), tmp_path / "lib/fletch")
    assert "lib/fletch/libfletch_cuda.so has engine ABI" in machine(fletch)["provider.cuda"]


def test_every_device_is_told(fletch):
    if not (SIMULATED / "libcuda.so.1").exists() or not (BUILD / "libfletch_cuda.so").exists():
        pytest.skip("no simulated device: nvcc was not found when fletch was built")
    found = machine(fletch, LD_LIBRARY_PATH=str(SIMULATED), SIM_CUDA_DEVICES="2", FLETCH_CUDA_MODULE=str(BUILD))
    assert found["provider.cuda"].startswith("usable: 2 devices: ")
    assert re.search(r"\d GB, compute capability 9\.0; driver 13\.0, cublasLt \d+", found["provider.cuda"])
    assert "libfletch_cuda.so" in found["provider.cuda"]
    assert "compute capability" in found["provider.cuda.1"] and "provider.cuda.2" not in found


def test_a_driver_that_is_too_old(fletch):
    if not (SIMULATED / "libcuda.so.1").exists() or not (BUILD / "libfletch_cuda.so").exists():
        pytest.skip("no simulated device: nvcc was not found when fletch was built")
    found = machine(fletch, LD_LIBRARY_PATH=str(SIMULATED), SIM_CUDA_DRIVER="11040", FLETCH_CUDA_MODULE=str(BUILD))
    assert found["provider.cuda"].startswith("no: ") and "11.4" in found["provider.cuda"]
