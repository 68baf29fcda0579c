# SPDX-License-Identifier: Apache-2.0
"""Each way in which the CUDA module can be missing or wrong is told apart, and how to mend it; nothing crashes."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

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
    assert found.startswith("no: cuda.module: no such file") and "none.so" in found


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
    assert "belongs to fletch 0.0.9, this is fletch" in found and "cuda.module" in found


def test_a_module_of_other_sources(fletch, compile):
    version = fletch("version").stdout.decode().split()[1]
    assert "was built from other sources" in reason(fletch, compile(door(ABI, version)))


def test_a_refused_module_leaves_the_work_to_the_processor(embed, compile):
    environment = {"FLETCH_PROVIDER_ORDER": "cuda,cpu", "FLETCH_CUDA_MODULE": str(compile(door(ABI + 1, "9.9.9")))}
    result = embed("embed", "a text", env=environment | NATIVE)
    assert result.returncode == 0
    assert b"engine ABI" in result.stderr and b"falling back to cpu" in result.stderr
    alone = embed("embed", "a text", env=environment | NATIVE | {"FLETCH_PROVIDER_FALLBACK": "false"})
    assert alone.returncode != 0 and b"engine ABI" in alone.stderr and alone.stdout == b""
    named = embed("embed", "a text", env=environment | NATIVE | {"FLETCH_PROVIDER_ORDER": "cuda"})
    assert named.returncode == 2 and b"engine ABI" in named.stderr and named.stdout == b""


def test_none_at_all_and_one_that_is_installed(fletch, tmp_path, monkeypatch, compile):
    """A program that was moved away from its build: nothing beside it, then a module in ../lib/fletch."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(commandline, "BIN", str(shutil.copy(commandline.BIN, tmp_path / "bin/fletch")))
    assert "this machine has no CUDA module" in machine(fletch)["provider.cuda"]
    (tmp_path / "lib/fletch").mkdir(parents=True)
    shutil.move(compile(door(ABI + 1, "9.9.9")), tmp_path / "lib/fletch")
    assert "lib/fletch/libfletch_cuda.so has engine ABI" in machine(fletch)["provider.cuda"]


@pytest.fixture
def simulated():
    """The environment in which the program finds the simulated devices of tests/cuda/sim."""
    if not (SIMULATED / "libcuda.so.1").exists() or not (BUILD / "libfletch_cuda.so").exists():
        pytest.skip("no simulated device: nvcc was not found when fletch was built")
    return NATIVE | {"LD_LIBRARY_PATH": str(SIMULATED), "FLETCH_CUDA_MODULE": str(BUILD)}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A model of two narrow layers: a simulated device is slow."""
    folder = tmp_path_factory.mktemp("shapes")
    subprocess.run([sys.executable, commandline.ROOT / "bench/gpu/shapes.py", folder, "toy"], check=True)
    return folder / "toy"


def embed_one(fletch, toy, environment, *flags):
    """The result, and the statistics of the run."""
    result = fletch("embed", "-m", toy, "--stats", "--stats-json", "run.json", *flags, "a text", env=environment)
    path = fletch.tmp_path / "run.json"
    return result, json.loads(path.read_text()) if path.exists() else None


def embed_on(fletch, toy, environment, *flags, devices=8):
    """On all of so many simulated devices, and nowhere else."""
    gpu = {"FLETCH_PROVIDER_ORDER": "cuda", "FLETCH_PROVIDER_FALLBACK": "false", "FLETCH_CUDA_STREAMS": "1",
           "FLETCH_PROVIDER_DEVICES": "all", "SIM_CUDA_DEVICES": str(devices)}
    return embed_one(fletch, toy, environment | gpu, *flags)


def test_devices_are_opened_side_by_side(fletch, toy, simulated):
    """The simulated driver lets nobody go on before all eight load their kernels at the same time."""
    result, stats = embed_on(fletch, toy, simulated | {"SIM_CUDA_MEET": "8"})
    assert result.returncode == 0, result.stderr
    assert [device["device"] for device in stats["devices"]] == list(range(8))
    assert all(device["ready"] and device["name"] == f"Simulated GPU {device['device']}" for device in stats["devices"])
    assert sum(device["batches"] for device in stats["devices"]) == stats["batches"] == 1


def test_statistics_tell_the_device_and_its_pool(fletch, toy, simulated):
    result, stats = embed_on(fletch, toy, simulated, devices=1)
    device, = stats["devices"]
    assert device["utilisation"] == 42 and device["memory_total"] == 8000000000
    assert device["pool_requests"] == 1 and 0 < device["pool_used"] == device["pool_peak"] <= device["pool_held"]
    told = re.search(r"^device 0 +Simulated GPU 0: ([\d.]+) MB in use, .*busy 42 %", result.stderr.decode(), re.M)
    assert told and float(told[1]) == pytest.approx(device["pool_used"] / 1e6, abs=0.1)


@pytest.mark.parametrize("limit, told", [("16MB", "cuda: batches of "), ("4MB", "cuda.memory_limit")])
def test_a_memory_limit_makes_batches_smaller_or_says_what_to_do(fletch, toy, simulated, limit, told):
    """Without a pool, whose steps are two thirds of this limit."""
    flags = "--cuda-memory-limit", limit, "--cuda-memory-pool=false"
    result, stats = embed_on(fletch, toy, simulated, *flags, devices=1)
    assert told in result.stderr.decode()
    if limit == "16MB":
        assert result.returncode == 0 and stats["devices"][0]["pool_held"] <= 16000000
        assert stats["batch_tokens"] < 16384
    else:
        assert result.returncode != 0 and "may be taken (cuda.memory_limit" in result.stderr.decode()


def test_fewer_bits_take_less_of_the_device(fletch, toy, simulated):
    held = [embed_on(fletch, toy, simulated, "--cuda-memory-pool=false", "--precision", precision, devices=1)[1]["devices"][0]["pool_held"]
            for precision in ("int8", "bf16", "fp32")]
    assert held == sorted(held) and len(set(held)) == 3, held


def test_every_device_is_told(fletch, simulated):
    found = machine(fletch, **simulated | {"SIM_CUDA_DEVICES": "2"})
    assert found["provider.cuda"].startswith("usable: 2 devices: ")
    assert re.search(r"\d GB, compute capability 9\.0; driver 13\.0, cublasLt \d+; experimental ", found["provider.cuda"])
    assert "libfletch_cuda.so" in found["provider.cuda"]
    assert "compute capability" in found["provider.cuda.1"] and "provider.cuda.2" not in found


@pytest.mark.parametrize("named, devices", [({}, [0]), ({"OP_DBUS_GPU_DEVICE": "1"}, [1]), ({"FLETCH_DEVICE": "all"}, [0, 1]),
                                            ({"FLETCH_PROVIDER_DEVICES": "cuda:1"}, [1])])
def test_the_first_device_is_taken_unless_others_are_named(fletch, toy, simulated, named, devices):
    two = simulated | {"SIM_CUDA_DEVICES": "2", "OP_DBUS_EXECUTION_PROVIDER": "cuda"}
    result, stats = embed_one(fletch, toy, two | named)
    assert result.returncode == 0, result.stderr
    assert [device["device"] for device in stats["devices"]] == devices and stats["provider"] == "cuda"


@pytest.mark.parametrize("order", ["cpu", "auto", "cuda,cpu"])
def test_the_number_of_a_card_does_not_bind_the_processor(fletch, toy, order):
    """It was left in the environment, or the card is gone."""
    gone = NATIVE | {"FLETCH_CUDA_MODULE": "/nowhere", "OP_DBUS_EXECUTION_PROVIDER": order, "OP_DBUS_GPU_DEVICE": "1"}
    result, stats = embed_one(fletch, toy, gone)
    assert result.returncode == 0, result.stderr
    assert stats["provider"] == "cpu" and stats["provider_fallbacks"] == (order != "cpu")


def test_a_card_that_is_too_old_leaves_the_work_to_the_processor(fletch, toy, simulated):
    old = simulated | {"SIM_CUDA_CAPABILITY": "6.1", "FLETCH_PROVIDER_ORDER": "cuda,cpu"}
    result, stats = embed_one(fletch, toy, old)
    assert result.returncode == 0 and stats["provider"] == "cpu"
    assert b"compute capability 6.1" in result.stderr and b"falling back to cpu" in result.stderr


def test_a_card_that_is_too_old_is_told_what_would_run_it(fletch, toy, simulated):
    old = simulated | {"SIM_CUDA_CAPABILITY": "6.1", "FLETCH_PROVIDER_ORDER": "cuda", "FLETCH_PROVIDER_ENGINE": "auto",
                       "FLETCH_ONNXRUNTIME_LIBRARY": "/nowhere"}
    result, _ = embed_one(fletch, toy, old)
    assert result.returncode == 2
    assert re.search(rb"compute capability 6\.1; .*; ONNX Runtime: .*/nowhere", result.stderr), result.stderr


@pytest.mark.parametrize("preset, streams", [("gpu", 2), ("latency", 2), ("throughput", 2), ("memory", 1), ("debug", 2),
                                             ("max", 4)])
def test_presets_open_a_card(fletch, toy, simulated, preset, streams):
    """Tuning would take a simulated device minutes at their sizes of batch."""
    flags = "--preset", preset, "--provider-order", "cuda,cpu"
    result, stats = embed_one(fletch, toy, simulated, *flags)
    assert result.returncode == 0, result.stderr
    assert stats["provider"] == "cuda" and stats["provider_fallbacks"] == 0 and stats["slots"] == streams
    assert stats["precision"] == ("fp32" if preset == "debug" else "bf16")


def test_a_driver_that_is_too_old(fletch, simulated):
    found = machine(fletch, **simulated | {"SIM_CUDA_DRIVER": "11040"})
    assert found["provider.cuda"].startswith("no: ") and "11.4" in found["provider.cuda"]


@pytest.mark.parametrize("file, told", [("dxg", "usable: 1 device"), ("other", "no: this machine has no NVIDIA driver")])
def test_a_gpu_under_windows_is_seen_by_its_own_file(fletch, simulated, tmp_path, file, told):
    """WSL 2 has /dev/dxg and no /dev/nvidiactl."""
    devices = tmp_path / "dev"
    devices.mkdir()
    (devices / file).touch()
    alone = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /dev && exec "$@"', devices]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("a mount namespace takes root")
    inside = lambda *words, env: subprocess.run([*alone, commandline.BIN, *words], stdin=subprocess.PIPE, capture_output=True,
                                                env=fletch.environment(**env), check=False)
    found = machine(inside, **simulated | {"FLETCH_PROVIDER_HARDWARE_DETECTION": "true"})
    assert found["provider.cuda"].startswith(told)


@pytest.mark.parametrize("order, fallback, chain", [("cuda,cpu", "true", "cuda, then cpu"), ("auto", "true", "cuda, then cpu"),
                                                   ("cuda", "true", "cuda, then cpu"), ("cuda,cpu", "false", "cuda"),
                                                   ("coreml,cuda", "true", "cuda, then cpu"), ("cpu,cuda", "true", "cpu, then cuda")])
def test_doctor_tells_who_takes_over(fletch, simulated, order, fallback, chain):
    found = machine(fletch, **simulated | {"FLETCH_PROVIDER_ORDER": order, "FLETCH_PROVIDER_FALLBACK": fallback})
    assert found["provider.chain"] == chain
    old = machine(fletch, **simulated | {"FLETCH_PROVIDER_ORDER": order, "FLETCH_PROVIDER_FALLBACK": fallback, "SIM_CUDA_CAPABILITY": "6.1"})
    assert "compute capability 6.1; the kernels need 7.5" in old["provider.cuda"] and old["provider.cuda"].startswith("no: ")
    assert old["provider.chain"] == ("none" if chain == "cuda" else "cpu")
