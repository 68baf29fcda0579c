# SPDX-License-Identifier: Apache-2.0
"""Keys that change no vector still change something: what they say is read off the statistics of a run.

What changes vectors, messages or the server is tested where it belongs; here are the keys of pools, batches,
replicas and the chain of providers that nothing else would miss.
"""
import json

import commandline
import pytest

TEXTS = "\n".join(map(str, range(300)))


SMALL = commandline.ROOT / "tests/golden/folders/pooling-cls"


def statistics(fletch, tmp_path, *flags):
    """Of a run that neither scarce memory nor the number of cores can disturb, and its rows."""
    result = fletch("embed", "--model", SMALL, "--pool-pressure-detection=false", "--cpu-intra-op-threads=1",
                    "--stats-json", "stats.json", "--output", "rows.npy", *flags, input=TEXTS)
    assert result.returncode == 0, result.stderr
    return json.loads((tmp_path / "stats.json").read_text()), (tmp_path / "rows.npy").read_bytes()


EFFECTS = {  # flag: what must hold of the statistics with it, beside those without
    "--io-zero-copy=false": lambda now, plain: now["staged_outputs"] == plain["zero_copy_outputs"] == now["copied_inputs"] == 300,
    "--io-preallocated=false": lambda now, plain: now["pool_hits"] < now["pool_requests"],
    "--io-input-buffers=7": lambda now, plain: now["pool_buffers"] > plain["pool_buffers"],
    "--io-output-buffers=9": lambda now, plain: now["pool_buffers"] == plain["pool_buffers"] + 5,
    "--io-batch-optimization=false": lambda now, plain: now["batch_tokens"] == 16384 > plain["batch_tokens"],
    "--pool-enable=false": lambda now, plain: now["pool_hits"] == now["pool_buffers"] == 0,
    "--pool-max-buffers=2": lambda now, plain: now["pool_buffers"] <= 2 * 2 < plain["pool_buffers"],
    "--pool-max-bytes=100KiB": lambda now, plain: now["pool_bytes"] <= 2 * 102400 < plain["pool_bytes"],
    "--batch-max-texts=16": lambda now, plain: now["batches"] >= 300 / 16,
    "--batch-max-tokens=90": lambda now, plain: now["batch_tokens"] == 90 and now["batches"] >= 300 / 30,
}


def test_keys_of_pools_and_batches_have_their_effect_and_change_no_vector(fletch, tmp_path):
    plain, rows = statistics(fletch, tmp_path)
    assert plain["pool_hits"] == plain["pool_requests"] and plain["staged_outputs"] == 0
    for flag, holds in EFFECTS.items():
        now, same = statistics(fletch, tmp_path, flag)
        assert holds(now, plain), (flag, now)
        assert same == rows, flag


def test_replicas_of_the_processor_are_as_many_as_asked_but_no_more_than_cores(fletch, tmp_path):
    machine = json.loads(fletch("doctor", "--format", "json", "--model", SMALL).stdout)["machine"]
    cores = next(int(item["value"]) for item in machine if item["name"] == "cpu.cores")
    _, rows = statistics(fletch, tmp_path)
    for asked in (2, 1024):
        stats, same = statistics(fletch, tmp_path, f"--cpu-replicas={asked}")
        assert stats["replicas"] == stats["replicas_ready"] == min(asked, cores)
        assert same == rows


def test_auto_is_the_processor_alone_when_it_may_not_choose(fletch, tmp_path):
    """No library is there and no hardware asked for: each device is refused, unless none is tried."""
    nowhere = ("--cuda-module", "/nowhere", "--onnxruntime-library", "/nowhere", "--provider-hardware-detection=false")
    assert statistics(fletch, tmp_path, *nowhere)[0]["provider_fallbacks"] == 1
    assert statistics(fletch, tmp_path, *nowhere, "--provider-auto-selection=false")[0]["provider_fallbacks"] == 0


def test_without_prediction_nothing_is_refused_for_memory(fletch):
    flags = ("embed", "--model", SMALL, "--memory-limit", "1MiB", "hello")
    assert fletch(*flags).returncode == 1
    assert fletch(*flags, "--batch-memory-prediction=false").returncode == 0


def test_the_cache_may_lie_anywhere(fletch, tmp_path):
    cache = tmp_path / "my cache"
    model = cache / "models--some--model"
    (model / "refs").mkdir(parents=True)
    (model / "refs/main").write_text("0" * 40)
    (model / "snapshots").mkdir()
    (model / "snapshots" / ("0" * 40)).symlink_to(SMALL)
    flags = ("embed", "--model", "some/model", "--model-offline=true", "hello")
    assert fletch(*flags).returncode == 3
    assert fletch(*flags, "--model-cache-dir", cache).returncode == 0
    assert fletch(*flags, "--model-cache-dir", tmp_path / "none").returncode == 3


@pytest.fixture
def library():
    folder = commandline.ROOT / ".cache/onnxruntime"
    if not list(folder.glob("libonnxruntime.*")):
        pytest.skip("no ONNX Runtime library: make onnxruntime")
    return folder


def test_what_is_copied_on_the_way_is_counted_as_copied(fletch, tmp_path):
    plain, _ = statistics(fletch, tmp_path)
    assert plain["zero_copy_inputs"] > 0 and plain["zero_copy_inputs"] + plain["copied_inputs"] == 300
    prompted, _ = statistics(fletch, tmp_path, "--prompt", "query: ")
    assert prompted["copied_inputs"] == 300 and prompted["zero_copy_outputs"] == 300
    for stats in plain, prompted:
        device, = stats["devices"]
        assert all(device[name] == stats[name] for name in device.keys() & stats.keys() if name.endswith(("puts", "_runs")))


def test_binding_is_told_and_counted(fletch, tmp_path, library):
    """The two lines that tell the paths apart, once each; ids are widened on the way to ONNX Runtime, and said to be."""
    flags = ("--provider-engine", "onnxruntime", "--onnxruntime-library", library)
    lines = "Using optimized I/O binding for CPU inference", "Using standard ONNX inference"
    rows = []
    for binding in (True, False):
        result = fletch("embed", "--model", SMALL, "--stats-json", "stats.json", "--output", "rows.npy", "-vv", *flags,
                        f"--io-binding={str(binding).lower()}", "--batch-max-texts=50", input=TEXTS)
        assert result.returncode == 0, result.stderr
        stats = json.loads((tmp_path / "stats.json").read_text())
        told = result.stderr.decode()
        assert [told.count(line) for line in lines] == [binding, not binding]
        assert told.count("fletch: trace: inference for ") == stats["batches"] >= 6
        assert (stats["bound_runs"] > 0, stats["unbound_runs"] > 0) == (binding, not binding)
        assert stats["copied_inputs"] == 300 and stats["zero_copy_inputs"] == 0
        assert stats["zero_copy_outputs"] + stats["staged_outputs"] == 300
        rows.append((tmp_path / "rows.npy").read_bytes())
    assert rows[0] == rows[1]


def test_a_key_that_the_engine_ignores_is_told_once(fletch, library):
    def told(*flags):
        done = fletch("embed", "--model", SMALL, *flags, "hello")
        assert done.returncode == 0, done.stderr
        return [line for line in done.stderr.decode().splitlines() if "has no effect" in line]
    line, = told("--io-binding=false")
    assert "io.binding" in line and "onnxruntime engine" in line
    assert told("--cpu-isa=ref") == told("--preset", "gpu", "--provider-order", "cpu") == []
    assert told("--io-binding=false", "--provider-engine", "onnxruntime", "--onnxruntime-library", library) == []


def test_warming_up_is_a_first_run_at_opening(fletch, library):
    def runs(*flags):
        result = fletch("doctor", "--format", "json", "--model", SMALL, "--onnxruntime-library", library,
                       "--provider-engine", "onnxruntime", *flags)
        found = {item["name"]: item["value"] for item in json.loads(result.stdout)["model"]}
        return int(found["onnxruntime.runs"].split(",")[0])
    assert runs() == 0 and runs("--provider-warm-up=true") == 1
