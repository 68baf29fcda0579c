# SPDX-License-Identifier: Apache-2.0
"""What /metrics says of GPUs, by the real server on simulated devices (tests/cuda/sim): whose figure is whose, what is
left out where a library is missing, and that a device which is lost leaves the work to the others."""
import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest
import serving

BUILD = pathlib.Path(os.environ.get("FLETCH_BUILD", pathlib.Path(serving.BIN).parent))
SIMULATED = BUILD / "tests/cuda/sim"
MODULE = BUILD / "libfletch_cuda.so"
ECC = 214  # CUDA_ERROR_ECC_UNCORRECTABLE


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A model of two narrow layers: a simulated device is slow."""
    if not (SIMULATED / "libcuda.so.1").exists() or not MODULE.exists():
        pytest.skip("no simulated device: nvcc was not found when fletch was built")
    folder = tmp_path_factory.mktemp("shapes")
    subprocess.run([sys.executable, serving.ROOT / "bench/gpu/shapes.py", folder, "toy"], check=True)
    return folder / "toy"


@pytest.fixture
def serve(toy, tmp_path):
    """serve(devices=2, …): a server on simulated devices."""
    started = []

    def run(libraries=SIMULATED, **environment):
        gpu = {"FLETCH_MODEL_ID": str(toy), "LD_LIBRARY_PATH": str(libraries), "FLETCH_CUDA_MODULE": str(MODULE),
               "FLETCH_PROVIDER_ORDER": "cuda", "FLETCH_PROVIDER_FALLBACK": "false",
               "FLETCH_PROVIDER_HARDWARE_DETECTION": "false", "FLETCH_PROVIDER_ENGINE": "native",
               "FLETCH_PROVIDER_PRECISION": "fp32", "FLETCH_PROVIDER_DETERMINISTIC": "true",
               "FLETCH_CUDA_STREAMS": "1", "FLETCH_PROVIDER_DEVICES": "all"}
        started.append(serving.Server(tmp_path, model=False, env=gpu | environment))
        return started[-1]

    yield run
    for running in started:
        running.kill()


def of_replica(server, figure, replica):
    return server.metrics().get(f'fletch_device_{figure}{{model="toy",replica="{replica}"}}')


def test_each_device_has_its_own_figures(serve):
    server = serve(SIM_CUDA_DEVICES="2")
    assert server.embed().status == 200
    for replica in (0, 1):
        told = {name: of_replica(server, name, replica) for name in (
            "up", "utilisation_ratio", "memory_used_bytes", "memory_total_bytes", "pool_used_bytes", "pool_peak_bytes",
            "pool_held_bytes", "pool_blocks_total", "pool_hits_total", "outstanding_tokens")}
        assert None not in told.values(), told
        assert told["up"] == 1
        assert told["utilisation_ratio"] == pytest.approx(0.42 + 0.01 * replica)
        assert told["memory_used_bytes"] == 3000000000 + 100000000 * replica
        assert told["memory_total_bytes"] == 8000000000
        assert 0 < told["pool_used_bytes"] == told["pool_peak_bytes"] <= told["pool_held_bytes"]
        assert told["pool_blocks_total"] == 1 >= told["pool_hits_total"]
    scrape = server.ask("GET", "/metrics").body.decode()
    assert ('fletch_device_info{model="toy",replica="1",provider="cuda",device="1",name="Simulated GPU 1"} 1'
            in scrape.splitlines())


def test_what_nobody_tells_is_left_out(serve, tmp_path):
    """No management library, no pool: their figures are absent, not 0."""
    bare = tmp_path / "libraries"
    bare.mkdir()
    for name in ("libcuda.so.1", "libcublasLt.so.13"):
        (bare / name).symlink_to(SIMULATED / name)
    server = serve(bare, SIM_CUDA_POOLS="0")
    assert server.embed().status == 200
    told = {name.split("{")[0] for name in server.metrics() if name.startswith("fletch_device_")}
    assert "fletch_device_up" in told and "fletch_device_pool_used_bytes" in told
    assert not told & {"fletch_device_utilisation_ratio", "fletch_device_memory_used_bytes",
                       "fletch_device_memory_total_bytes"}


def with_a_large_word(folder, copy, word):
    """A copy of the model in which one value of `word` is beyond fp16: the word vectors are float32 in it."""
    shutil.copytree(folder, copy)
    data = (copy / "model.safetensors").read_bytes()
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    name, = (key for key in header if key.endswith("word_embeddings.weight"))
    begin, end = header[name]["data_offsets"]
    body = data[8 + size:]
    values = [value for value, in struct.iter_unpack("<e", body[begin:end])]
    vocabulary = json.loads((copy / "tokenizer.json").read_text())["model"]["vocab"]
    values[vocabulary[word] * header[name]["shape"][1]] = 70000.0
    for tensor in header.values():  # those behind it move on
        tensor["data_offsets"] = [at + (end - begin) * (at >= end) for at in tensor["data_offsets"]]
    header[name] |= {"dtype": "F32", "data_offsets": [begin, begin + 4 * len(values)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (copy / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body[:begin]
                                             + struct.pack(f"<{len(values)}f", *values) + body[end:])
    return copy


def test_texts_that_overflow_are_counted(serve, toy, tmp_path):
    """fp16 ends at 65504: the text with the large word is rerun in fp32, the others are not."""
    folder = with_a_large_word(toy, tmp_path / "toy", "bako")
    server = serve(FLETCH_MODEL_ID=str(folder), FLETCH_PROVIDER_PRECISION="fp16")
    retries = 'fletch_fp32_retries_total{model="toy"}'
    assert server.ask(body=json.dumps({"inputs": ["bakomako"]}).encode()).status == 200
    assert server.metrics()[retries] == 0
    reply = server.ask(body=json.dumps({"inputs": ["bako", "mako", "a bako"]}).encode())
    assert reply.status == 200 and len(reply.json()) == 3
    assert server.metrics()[retries] == 2
    assert "rerun in fp32" in server.log()


def test_work_reaches_every_device(serve):
    """The replica with the fewest outstanding tokens takes a batch, so that eight clients keep four of them busy."""
    server = serve(SIM_CUDA_DEVICES="4")
    first, done = server.embed().json(), threading.Event()
    before = [of_replica(server, "batches_total", replica) for replica in range(4)]

    def ask_on():
        while not done.is_set():
            assert server.embed().json() == first
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(ask_on) for _ in range(8)]
        try:
            serving.until(lambda: all(of_replica(server, "batches_total", replica) > before[replica] + 2
                                      for replica in range(4)))
        finally:
            done.set()
        for client in clients:
            client.result()
    figures = server.metrics()
    assert sum(figures[f'fletch_device_tokens_total{{model="toy",replica="{replica}"}}'] for replica in range(4)
               ) == figures['fletch_tokens_total{model="toy"}']


def test_a_lost_device_leaves_the_work_to_the_others(serve):
    server = serve(SIM_CUDA_DEVICES="3", SIM_CUDA_FAULT=f"launch:1:{ECC}", SIM_CUDA_FAULT_DEVICE="1",
                   SIM_CUDA_FAULT_STAYS="1")
    texts = [f"text {number}" for number in range(5)]
    body = json.dumps({"inputs": texts}).encode()
    vectors = server.ask(body=body).json()
    assert len(vectors) == 5

    def it_is_lost():
        reply = server.ask(body=body)
        assert reply.status == 200 and reply.json() == vectors, "a request noticed"
        return of_replica(server, "up", 1) == 0
    serving.until(it_is_lost)
    assert of_replica(server, "up", 0) == of_replica(server, "up", 2) == 1
    for _ in range(6):
        assert server.ask(body=body).json() == vectors
    figures = server.metrics()
    assert figures['fletch_replica_failures_total{model="toy"}'] >= 1
    assert figures['fletch_replicas_ready{model="toy"}'] == 2
    assert figures['fletch_failed_texts_total{model="toy"}'] == 0
    assert "ECC" in server.log()


@pytest.mark.parametrize("devices", ["all", "0,1,2,7"])
def test_a_device_that_does_not_open_leaves_the_work_to_the_others(serve, devices):
    server = serve(SIM_CUDA_DEVICES="3", SIM_CUDA_FAULT=f"object:1:{ECC}", SIM_CUDA_FAULT_DEVICE="1",
                   SIM_CUDA_FAULT_STAYS="1", FLETCH_PROVIDER_DEVICES=devices)
    assert [of_replica(server, "up", replica) for replica in range(3)] == [1, 0, 1]
    assert server.ask("GET", "/health").status == 200
    assert server.embed().status == 200
    figures = server.metrics()
    assert figures['fletch_replicas{model="toy"}'] == 3 and figures['fletch_replicas_ready{model="toy"}'] == 2
    log = server.log()
    assert "device 1 cannot be opened" in log and "ECC" in log and "2 of 3 replicas run the model" in log
    assert ("names device 7" in log) == (devices != "all")


def test_a_device_that_was_short_of_memory_joins_later(serve):
    """What refused it once is gone at the next try."""
    server = serve(SIM_CUDA_DEVICES="2", SIM_CUDA_FAULT="alloc:1:2", SIM_CUDA_FAULT_DEVICE="0")
    serving.until(lambda: of_replica(server, "up", 0) == 1)
    assert "out of memory" in server.log().lower()
    assert server.metrics()['fletch_replica_reopens_total{model="toy"}'] == 1
    assert server.embed().status == 200


def test_a_device_whose_context_broke_is_taken_back(serve):
    """What only ended the context is mended by a new one, and the pool lost nothing by it."""
    server = serve(SIM_CUDA_FAULT="launch:1:719")  # CUDA_ERROR_LAUNCH_FAILED
    held = of_replica(server, "pool_held_bytes", 0)
    assert server.embed().status == 200
    serving.until(lambda: of_replica(server, "up", 0) == 1)
    assert server.metrics()['fletch_replica_reopens_total{model="toy"}'] == 1
    assert of_replica(server, "pool_held_bytes", 0) == held


@pytest.mark.parametrize("fault", ["launch:1:719", "launch:1:214", "alloc:1:2", "object:1:214", "copy:1:214"])
def test_a_card_that_is_lost_for_good_leaves_the_work_to_the_processor(serve, fault):
    """While it opens, or with the first request; two streams, and the second card of two."""
    server = serve(SIM_CUDA_DEVICES="2", SIM_CUDA_FAULT=fault, SIM_CUDA_FAULT_STAYS="1", FLETCH_PROVIDER_DEVICES="cuda:1",
                   FLETCH_PROVIDER_ORDER="cuda,cpu", FLETCH_PROVIDER_FALLBACK="true", FLETCH_CUDA_STREAMS="2")
    for _ in range(3):
        assert server.embed().status == 200, server.log()
    assert server.metrics()['fletch_provider_fallbacks_total{model="toy"}'] >= 1
    serving.until(lambda: server.ask("GET", "/ready").status == 200)


@pytest.mark.parametrize("when", ["while it opens", "later"])
def test_a_card_that_hangs_leaves_the_work_to_the_processor(serve, tmp_path, when):
    """Neither its work nor a call that waits for it ever ends; when it answers again it is taken back."""
    hang = tmp_path / "hang"
    if when == "while it opens":
        hang.touch()
    server = serve(SIM_CUDA_HANG=str(hang), FLETCH_CUDA_TIMEOUT_SECONDS="2", FLETCH_PROVIDER_ORDER="cuda,cpu",
                   FLETCH_PROVIDER_FALLBACK="true", FLETCH_CUDA_STREAMS="2")
    hang.touch()
    texts = [f"text {number}" for number in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:  # more than its streams carry
        replies = list(pool.map(server.embed, texts))
    assert [reply.status for reply in replies] == [200] * 8, server.log()
    assert server.metrics()['fletch_failed_texts_total{model="toy"}'] == 0
    assert "cuda.timeout_seconds" in server.log()
    serving.until(lambda: server.ask("GET", "/ready").status == 200)
    if when == "later":
        hang.unlink()
        serving.until(lambda: 'provider="cuda"' in server.ask("GET", "/metrics").body.decode())
        again = server.embed(texts[0]).json()[0]
        assert again == pytest.approx(replies[0].json()[0], abs=1e-5)
    assert server.end() == 0


def test_a_process_that_stood_still_gives_no_card_up(serve, tmp_path):
    """Suspended in the middle of a batch for longer than a card may be silent."""
    hang = tmp_path / "hang"
    server = serve(SIM_CUDA_HANG=str(hang), FLETCH_CUDA_TIMEOUT_SECONDS="6")
    hang.touch()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        reply = pool.submit(server.embed, "a text")
        server.wait_requests(lambda count: count == 1)
        server.send_signal(signal.SIGSTOP)
        time.sleep(7)
        server.send_signal(signal.SIGCONT)
        time.sleep(0.5)  # it looks again, and the card still computes
        hang.unlink()
        assert reply.result().status == 200, server.log()
    assert "cuda.timeout_seconds" not in server.log()


def test_a_server_ends_while_a_card_hangs(serve, tmp_path):
    """With requests under way, which are answered first."""
    hang = tmp_path / "hang"
    server = serve(SIM_CUDA_HANG=str(hang), FLETCH_CUDA_TIMEOUT_SECONDS="2", FLETCH_PROVIDER_ORDER="cuda,cpu",
                   FLETCH_PROVIDER_FALLBACK="true", FLETCH_CUDA_STREAMS="2")
    server.embed()
    hang.touch()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        replies = [pool.submit(server.embed, f"text {number}") for number in range(4)]
        server.wait_requests(lambda count: count == 4)
        assert server.end() == 0
        assert [reply.result().status for reply in replies] == [200] * 4
