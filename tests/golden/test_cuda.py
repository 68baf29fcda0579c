# SPDX-License-Identifier: Apache-2.0
"""all-MiniLM-L6-v2 through the CUDA engine gives sentence-transformers' vectors, in every number format.

On a machine with an NVIDIA GPU that is what runs, on all the texts. Elsewhere it is the simulated device of
tests/cuda/sim, which runs the same kernels on the host, on the shortest texts. Skipped by name where the module, the
simulated device or the model is not there.
"""
import json
import os
import pathlib
import subprocess

import numpy
import pytest

import golden
import test_vectors

GPU = pathlib.Path("/dev/nvidiactl").exists()
SIMULATED = pathlib.Path(os.environ.get("BENCH_SIMULATED", golden.BUILD / "tests/cuda/sim"))
MODULE = golden.BUILD / "libfletch_cuda.so"
TEXTS = test_vectors.TEXTS
CHOSEN = list(range(len(TEXTS))) if GPU else sorted(range(len(TEXTS)), key=lambda i: len(TEXTS[i].encode()))[:8]


@pytest.fixture
def run(monkeypatch, tmp_path):
    folder = test_vectors.folder_of("FLETCH_MODEL", "minilm")
    if not MODULE.exists():
        pytest.skip("no CUDA module: make cuda (it needs nvcc)")
    if not GPU:
        if not (SIMULATED / "libcuda.so.1").exists():
            pytest.skip("no NVIDIA GPU, and no simulated one: ninja -C build all")
        path = os.environ.get("LD_LIBRARY_PATH")
        monkeypatch.setenv("LD_LIBRARY_PATH", str(SIMULATED) + (":" + path if path else ""))
        monkeypatch.setenv("FLETCH_CUDA_TIMEOUT_SECONDS", "off")  # it is slow, and does not hang

    def embed(precision: str, texts: list[str], *flags) -> numpy.ndarray:
        return golden.embed(folder, texts, "--provider-order", "cuda", "--provider-engine", "native",
                            "--provider-fallback", "false", "--provider-precision", precision, *flags, work=tmp_path)
    return embed


@pytest.mark.parametrize("precision, cosine", [("fp32", 0.99999), ("fp16", 0.9995), ("bf16", 0.9995), ("int8", 0.995),
                                               ("fp8", 0.995)])
def test_vectors_of_the_cuda_engine(run, precision, cosine):
    rows = run(precision, [TEXTS[i] for i in CHOSEN])
    expected = numpy.load(test_vectors.VECTORS / "minilm.npy")[CHOSEN]
    assert numpy.isfinite(rows).all()
    worst = (rows * expected).sum(axis=1) / numpy.linalg.norm(rows, axis=1)
    print(f"golden, {precision}: least cosine {worst.min():.7f}, mean {worst.mean():.7f}")  # run.sh shows it
    assert worst.min() >= cosine, f"text {CHOSEN[worst.argmin()]}: cosine {worst.min()}"
    if precision == "fp32":
        assert numpy.abs(rows - expected).max() <= (1e-4 if GPU else 1e-5)


WIDE = golden.HERE / "wide"


@pytest.mark.parametrize("name", sorted(path.name for path in WIDE.iterdir()))
def test_folders_of_every_kind(run, name, tmp_path):
    """Encoders with heads of 32 (make_wide.py), to sentence-transformers' vectors. `run` gives the device."""
    texts = json.loads((golden.HERE / "folders/texts.json").read_text(encoding="utf-8"))
    every = GPU or SIMULATED.name == "ptx"  # a quick half of them in make check, the long ones by nvcc's own code
    chosen = [i for i, text in enumerate(texts) if every or len(text) <= 30]
    rows = golden.embed(WIDE / name, [texts[i] for i in chosen], "--provider-order", "cuda", "--provider-engine", "native",
                        "--provider-fallback", "false", "--provider-precision", "fp32", work=tmp_path)
    expected = numpy.load(WIDE / name / "expected-0.npy")[chosen]
    assert golden.difference(rows, expected) <= (1e-4 if GPU else 1e-5)


@pytest.mark.skipif(not GPU, reason="16,384 tokens take a simulated device minutes; test_cuda_engine has a smaller batch")
def test_same_bytes_alone_and_in_a_full_batch(run):
    """A batch of 16,384 tokens takes the library's largest tiles; one text alone its smallest."""
    flags = ["--provider-deterministic", "true", "--batch-max-tokens", "16384", "--batch-max-texts", "2048"]
    texts = [TEXTS[i] for i in CHOSEN[:4]] + [f"one of many short texts, the {n}th of them" for n in range(2000)]
    together = run("fp16", texts, *flags)
    for i in range(6):
        assert run("fp16", [texts[i]], *flags).tobytes() == together[i].tobytes()


def test_same_text_same_bytes_whatever_the_batch(run):
    """provider.deterministic: alone or in company."""
    texts = [TEXTS[i] for i in CHOSEN[:3]]
    together = run("fp16", texts, "--provider-deterministic", "true")
    for i, text in enumerate(texts):
        alone = run("fp16", [text], "--provider-deterministic", "true")
        assert alone.tobytes() == together[i].tobytes()


@pytest.mark.parametrize("name, says", [("family-nomic-moe", "mixtures of experts"), ("family-jina-qk", "over all heads"),
                                        ("family-gemma3", "further norms")])
def test_what_the_engine_lacks_goes_to_the_next_of_the_chain(run, name, says, tmp_path):
    """`run` gives the device; refused is what its table of capabilities lacks, and the processor takes over."""
    folder = golden.HERE / "folders" / name
    expected = json.loads((folder / "expected.json").read_text())[0]
    texts = json.loads((folder.parent / "texts.json").read_text(encoding="utf-8"))
    rows = golden.embed(folder, texts, "--provider-order", "cuda,cpu", *expected["flags"], work=tmp_path)
    assert golden.difference(rows, numpy.load(folder / expected["vectors"])) <= 1e-5
    done = subprocess.run([golden.BIN, "embed", "-m", folder, "--provider-order", "cuda,cpu", *expected["flags"], "a"],
                          capture_output=True, text=True)
    assert done.returncode == 0 and says in done.stderr and "falling back to cpu" in done.stderr, done.stderr
