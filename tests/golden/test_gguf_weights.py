# SPDX-License-Identifier: Apache-2.0
"""model.weights: matrices that stay in the bits of their file give the bytes of the same matrices widened when opening,
for every type of block, alone and mixed as files mix them; rounded ones stay near, and take the memory they promise."""
import json
import re
import shutil
import subprocess

import gguf
import numpy
import pytest
from safetensors.numpy import load_file, save_file

import gguf_writer
import golden

FOLDERS = golden.HERE / "folders"
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))
KINDS = ["BF16", "F16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
# Of a type with blocks of 256: where its two or, of six bits, one half float lies in a block.
HALVES = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
# A folder, and sizes that blocks of 256 fit into: heads of 32, whose 1/√32 is no power of two, and a middle of two
# chunks, the second of which begins inside a block.
LARGER = {"pooling-cls": ({32: 256, 48: 768}, {"num_attention_heads": 8}),
          "family-llama": ({36: 256, 40: 768, 72: 256, 24: 64},
                           {"num_attention_heads": 8, "head_dim": 32, "attention_bias": False, "mlp_bias": False,
                            "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}})}


def larger(name: str, work):
    """A copy with its sizes mapped, of random weights."""
    sizes, change = LARGER[name]
    folder = shutil.copytree(FOLDERS / name, work / name)
    config = json.loads((folder / "config.json").read_text())
    for key in ("hidden_size", "intermediate_size"):
        config[key] = sizes[config[key]]
    (folder / "config.json").write_text(json.dumps(config | change))
    pooling = folder / "1_Pooling/config.json"
    if pooling.exists():
        pooling.write_text(json.dumps(json.loads(pooling.read_text()) | {"word_embedding_dimension": config["hidden_size"]}))
    random = numpy.random.default_rng(11)
    named = {}
    for tensor, data in load_file(folder / "model.safetensors").items():
        if name == "family-llama" and tensor.endswith(".bias"):
            continue
        shape = [sizes.get(size, size) for size in data.shape]
        scale = 0.3 if "embed" in tensor else shape[-1] ** -0.5
        named[tensor] = (random.standard_normal(shape) * scale + (len(shape) == 1 and "weight" in tensor)).astype(numpy.float32)
    save_file(named, folder / "model.safetensors")
    return folder


def blocks(data, type_):
    """The package's, or where it only reads a type any bytes with small scales."""
    if type_.name not in HALVES:
        return gguf.quantize(data, type_)
    random = numpy.random.default_rng(data.size)
    per, size = gguf.GGML_QUANT_SIZES[type_]
    raw = random.integers(0, 256, (data.shape[0], data.shape[1] // per, size), numpy.uint8)
    for at in HALVES[type_.name]:
        scale = (random.random(raw.shape[:2]) * (5e-4 if at else 1e-4) + 1e-5).astype(numpy.float16)
        raw[..., at:at + 2] = scale[..., None].view(numpy.uint8)
    return raw.reshape(data.shape[0], -1)


def packed(path, *flags) -> tuple[int, str]:
    """Bytes of the panels, and what doctor says of them."""
    done = subprocess.run([golden.BIN, "doctor", "--format", "json", "-m", path, *flags], capture_output=True, text=True, check=True)
    (row,) = [row for row in json.loads(done.stdout)["model"] if row["name"] == "cpu.weights_bytes"]
    return int(row["value"]), row["origin"]


def read(path, *flags, work):
    return golden.embed(path, TEXTS, "--max-length", "60", *flags, work=work)


@pytest.mark.parametrize("name", LARGER)
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_that_stay_give_the_bytes_of_widened_ones(name, kind, tmp_path):
    gguf_writer.write(larger(name, tmp_path), tmp_path / "m.gguf", kind, quantise=blocks)
    kept = read(tmp_path / "m.gguf", "--model-weights", "stored", work=tmp_path)
    assert numpy.isfinite(kept).all()
    assert numpy.array_equal(kept, read(tmp_path / "m.gguf", "--model-weights", "float", work=tmp_path))
    (less, why), (more, _) = packed(tmp_path / "m.gguf", "--model-weights", "stored"), packed(tmp_path / "m.gguf")
    share = 1.8 if "16" in kind else 5 if "4" in kind else 3  # positions, norms and biases stay float32
    assert less < more / share and "weights as stored" in why


@pytest.mark.parametrize("mix", [("Q4_K", "Q6_K"), ("Q5_K", "Q6_K"), ("Q4_0", "Q4_1"), ("Q5_0", "Q8_0"), ("Q4_1", "Q8_0"),
                                 ("Q4_K", "Q8_0"), ("F16", "Q8_0"), ("F16", "BF16"), ("F32", "Q4_0"), ("BF16", "F32")],
                         ids="-".join)
def test_types_mixed_in_one_product(mix, tmp_path):
    """As llama.cpp's Q4_K_M: values and the MLP's second matrix in more bits. What no panel holds together is widened."""
    gguf_writer.write(larger("family-llama", tmp_path), tmp_path / "m.gguf",
                      lambda name: mix[bool(re.search(r"attn_v|ffn_down|ffn_gate", name))], quantise=blocks)
    kept = read(tmp_path / "m.gguf", "--model-weights", "stored", work=tmp_path)
    assert numpy.array_equal(kept, read(tmp_path / "m.gguf", "--model-weights", "float", work=tmp_path))


def test_a_batch_of_any_shape_gives_the_same_bytes(tmp_path):
    """Rows alone, and split among threads by rows and by columns."""
    gguf_writer.write(larger("pooling-cls", tmp_path), tmp_path / "m.gguf", "Q4_K", quantise=blocks)
    texts = [" ".join(["a", "cat", "sat", "at", "sea"] * 12)[:4 * n + 1] for n in range(60)]
    flags = ("--max-length", "60", "--model-weights", "q8")
    rows = golden.embed(tmp_path / "m.gguf", texts, *flags, "--threads", "1", work=tmp_path)
    for threads in ("2", "3"):
        assert numpy.array_equal(golden.embed(tmp_path / "m.gguf", texts, *flags, "--threads", threads, work=tmp_path), rows)
    alone = [golden.embed(tmp_path / "m.gguf", [text], *flags, "--threads", "2", work=tmp_path)[0] for text in texts[::7]]
    assert numpy.array_equal(alone, rows[::7])


@pytest.mark.parametrize("name", ["weights-bf16", "weights-f16", "family-deberta", "family-albert", "family-qwen3", "shape-odd"])
def test_folders_that_stay_as_they_are(name, tmp_path):
    """bfloat16 and halves of safetensors, and what is float32, shared by layers or of odd sizes."""
    flags = json.loads((FOLDERS / name / "expected.json").read_text())[0]["flags"]
    stored, whole = (golden.embed(FOLDERS / name, TEXTS, "--model-weights", kind, *flags, work=tmp_path) for kind in ("stored", "float"))
    assert numpy.array_equal(stored, whole)


@pytest.mark.parametrize("name", ["mpnet", "family-nomic", "family-gemma3", "family-modernbert", "family-qwen3", "shape-odd"])
@pytest.mark.parametrize("weights, least", [("q8", 0.999), ("q4", 0.8)])
def test_rounded_weights_stay_near(name, weights, least, tmp_path):
    """Random weights of a few dozen channels: nothing averages out. Trained ones: docs/precision.md."""
    run = json.loads((FOLDERS / name / "expected.json").read_text())[0]
    whole, rounded = (golden.embed(FOLDERS / name, TEXTS, "--model-weights", kind, *run["flags"], work=tmp_path)
                      for kind in ("float", weights))
    cosine = (whole * rounded).sum(1) / numpy.linalg.norm(whole, axis=1) / numpy.linalg.norm(rounded, axis=1)
    assert least <= cosine.mean() < 1 - 1e-7


def test_q8_of_a_file_of_q8_0_rounds_nothing(tmp_path):
    """The same values, whether they are read as blocks or rounded from float32."""
    folder = larger("pooling-cls", tmp_path)
    gguf_writer.write(folder, tmp_path / "m.gguf", "Q8_0")
    kind = gguf.GGMLQuantizationType.Q8_0
    named = {name: gguf.dequantize(gguf.quantize(data, kind), kind) if data.ndim > 1 else data
             for name, data in load_file(folder / "model.safetensors").items()}
    save_file(named, folder / "model.safetensors")
    rows = read(folder, "--model-weights", "q8", "--normalize", "true", work=tmp_path)
    assert numpy.array_equal(rows, read(tmp_path / "m.gguf", "--model-weights", "float", work=tmp_path))


def test_a_weight_that_is_no_number_is_told(tmp_path):
    folder = shutil.copytree(FOLDERS / "plain-bert", tmp_path / "folder")
    named = load_file(folder / "model.safetensors")
    named["encoder.layer.1.output.dense.weight"][3, 5] = numpy.nan
    save_file(named, folder / "model.safetensors")
    for weights in ("q8", "q4"):
        done = subprocess.run([golden.BIN, "embed", "-m", folder, "--model-weights", weights, "text"], capture_output=True, text=True)
        assert done.returncode == 3 and "not finite" in done.stderr and not done.stdout


@pytest.mark.parametrize("name, flags, message", [
    ("plain-bert", ("--precision", "int8"), "model.weights q8 is for fp32 products, and provider.precision is int8"),
    ("family-static", (), "no layers whose weights could be stored that way"),
    ("family-nomic-moe", (), "sends tokens to other experts")])
def test_what_cannot_be_had_is_refused_by_name(name, flags, message):
    done = subprocess.run([golden.BIN, "embed", "-m", FOLDERS / name, "--model-weights", "q8", *flags, "text"], capture_output=True, text=True)
    assert done.returncode == 3 and message in done.stderr and not done.stdout, done.stderr


def test_fast_leaves_rounded_weights_as_they_are(tmp_path):
    rows = [golden.embed(FOLDERS / "mpnet", TEXTS, "--model-weights", "q8", *flags, work=tmp_path)
            for flags in ((), ("--precision", "fast"))]
    assert numpy.array_equal(*rows)
