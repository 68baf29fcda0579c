# SPDX-License-Identifier: Apache-2.0
"""Folders whose weights a quantiser saved (compressed-tensors, GPTQ, AWQ) give the vectors of the matrices that its own
package makes of them, in whatever form they are kept; what is not read, or damaged, is refused by name."""
import base64
import json
import shutil
import struct
import subprocess

import numpy
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import golden

PACKED = golden.HERE / "packed"
NAMES = sorted(path.stem for path in PACKED.glob("*.safetensors"))
TEXTS = json.loads((golden.HERE / "folders/texts.json").read_text(encoding="utf-8"))


def about(name: str) -> dict:
    with safe_open(PACKED / f"{name}.safetensors", "numpy") as file:
        return {key: json.loads(value) for key, value in file.metadata().items()}


def folder(name: str, work, change=None):
    """The folder as it is published; `change` is given its quantization_config."""
    said = about(name)
    path = shutil.copytree(golden.HERE / "folders" / said["folder"], work / name)
    config = json.loads((path / "config.json").read_text()) | said["config"]
    if change:
        change(config["quantization_config"])
    (path / "config.json").write_text(json.dumps(config))
    (path / "1_Pooling/config.json").write_text(json.dumps(said["pooling"]))
    shutil.copy(PACKED / f"{name}.safetensors", path / "model.safetensors")
    return path


def expected(name: str) -> numpy.ndarray:
    return numpy.frombuffer(base64.b64decode(about(name)["rows"]), numpy.float32).reshape(len(TEXTS), -1)


@pytest.mark.parametrize("name", NAMES)
def test_the_vectors_are_those_of_the_quantisers_own_weights(name, tmp_path):
    path = folder(name, tmp_path)
    rows = golden.embed(path, TEXTS, "--model-weights", "float", work=tmp_path)
    assert golden.difference(rows, expected(name)) < 1e-5
    assert numpy.array_equal(golden.embed(path, TEXTS, "--model-weights", "stored", work=tmp_path), rows)


@pytest.mark.parametrize("name, most", [("packed-w4", 0.25), ("gptq-w4-zeros", 0.3), ("awq-w4", 0.25), ("int-w8a8", 0.4), ("gptq-v2-w8", 0.4),
                                        ("gptq-w4-ordered", 0.55), ("float8", 0.55), ("int-w8-zeros", 1)])
def test_the_bits_that_are_kept(name, most, tmp_path):
    """4 or 8 a weight and the scales; 16 where a panel cannot have the scales; 32 of scales in float32."""
    path, taken = folder(name, tmp_path), []
    for kept in ("stored", "float"):
        done = subprocess.run([golden.BIN, "doctor", "--format", "json", "-m", path, "--model-weights", kept], capture_output=True, text=True, check=True)
        (row,) = [row for row in json.loads(done.stdout)["model"] if row["name"] == "cpu.weights_bytes"]
        taken.append(int(row["value"]))
    assert taken[0] <= taken[1] * most


@pytest.mark.parametrize("name", ["packed-w4-zeros", "gptq-w4-zeros", "awq-w4"])
@pytest.mark.parametrize("flags", [("--precision", "int8"), ("--precision", "bf16"), ("--model-weights", "q8"), ("--model-weights", "q4")], ids="-".join)
def test_other_precisions_start_from_the_same_weights(name, flags, tmp_path):
    rows, want = golden.embed(folder(name, tmp_path), TEXTS, *flags, work=tmp_path), expected(name)
    cosine = (rows * want).sum(1) / numpy.linalg.norm(rows, axis=1) / numpy.linalg.norm(want, axis=1)
    assert cosine.mean() > (0.9 if "q4" in flags else 0.99)


@pytest.mark.parametrize("name", ["packed-w4-zeros", "int-w8a8", "gptq-w4-ordered", "awq-w4", "float8"])
def test_onnx_runtime_computes_with_widened_ones(name, tmp_path):
    library = pytest.importorskip("onnx_files", reason="the onnx package is not in this Python (tools/venv.sh)").library()
    if not library:
        pytest.skip("no ONNX Runtime library: make onnxruntime")
    rows = golden.embed(folder(name, tmp_path), TEXTS, "--provider-engine", "onnxruntime", "--onnxruntime-library", library, work=tmp_path)
    assert golden.difference(rows, expected(name)) < 1e-5


def test_packed_panels_that_were_kept_are_of_these_scales_and_zeros(tmp_path):
    """config.json alone says whether zero points are saved less one."""
    path, kept = folder("gptq-w4-zeros", tmp_path), ("--model-pack-cache", str(tmp_path / "kept"))
    golden.settle(path)
    for _ in range(2):
        assert golden.difference(golden.embed(path, TEXTS, *kept, work=tmp_path), expected("gptq-w4-zeros")) < 1e-5
    assert len(list((tmp_path / "kept").glob("*.pack"))) == 1
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"]["checkpoint_format"] = "gptq_v2"
    (path / "config.json").write_text(json.dumps(config))
    rows = golden.embed(path, TEXTS, *kept, work=tmp_path)
    assert golden.difference(rows, expected("gptq-w4-zeros")) > 1e-3
    assert numpy.array_equal(rows, golden.embed(path, TEXTS, work=tmp_path))


# ---- What is not read, or damaged -----------------------------------------------------------------------

def refusal(path, code: int) -> str:
    done = subprocess.run([golden.BIN, "embed", "-m", path, "text"], capture_output=True, text=True)
    assert done.returncode == code and not done.stdout, done.stderr
    return done.stderr


@pytest.mark.parametrize("name, change, words", [
    ("packed-w4", {"format": "nvfp4-pack-quantized"}, 'format "nvfp4-pack-quantized"'),
    ("packed-w4", {"format": "marlin-24"}, 'format "marlin-24"'),
    ("packed-w4", {"quantization_status": "frozen"}, 'quantization_status "frozen"'),
    ("packed-w4", {"sparsity_config": {"format": "sparse-24-bitmask"}}, 'format "sparse-24-bitmask"'),
    ("packed-w4", {"transform_config": {"config_groups": {"u": {"type": "hadamard"}}}}, "transform_config"),
    ("float8", {"config_groups": {"g": {"weights": {"type": "float", "strategy": "block"}}}}, 'strategy "block"'),
    ("gptq-w4", {"checkpoint_format": "gptq_p"}, 'checkpoint_format "gptq_p"'),
    ("gptq-w4", {"pack_dtype": "int16"}, 'pack_dtype "int16"'),
    ("awq-w4", {"version": "gemv"}, 'version "gemv"'),
    ("awq-w4", {"quant_method": "auto-round"}, "auto-round, which fletch does not read"),
])
def test_what_is_not_read_is_refused_by_name(name, change, words, tmp_path):
    assert words in refusal(folder(name, tmp_path, lambda config: config.update(change)), 3)


def rewrite(path, change) -> None:
    """Change the header of model.safetensors: {name: {"dtype", "shape", "data_offsets"}}."""
    file = path / "model.safetensors"
    raw = file.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    change(header)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + size:])


UP, Q = "layers.0.mlp.up_proj.", "layers.1.self_attn.q_proj."


@pytest.mark.parametrize("name, tensor, change, words", [
    ("packed-w4", UP + "weight_scale", "gone", "weight_scale is missing"),
    ("packed-w4", UP + "weight_shape", "gone", "weight_shape is missing"),
    ("packed-w4", UP + "weight_scale", [2, 128], "weight_scale has another shape"),
    ("packed-w4", UP + "weight_packed", [64, 16], "weight_packed has another type or shape"),
    ("packed-w4-zeros", UP + "weight_zero_point", "gone", "weight_zero_point is missing"),
    ("packed-w4-zeros", UP + "weight_zero_point", [4, 16], "weight_zero_point has another type or shape"),
    ("packed-w4", UP + "weight_packed", "gone", "tensors of the qwen3 architecture are missing"),
    ("int-w8-zeros", Q + "weight_zero_point", "gone", "weight_zero_point is missing"),
    ("int-w8a8", "layers.0.attn.Wqkv.weight_scale", [1, 192], "weight_scale has another shape"),
    ("gptq-w4", Q + "scales", "gone", "scales is missing"),
    ("gptq-w4", Q + "qzeros", "gone", "qzeros is missing"),
    ("gptq-w4", Q + "qzeros", [8, 2], "qzeros has another type or shape"),
    ("gptq-w4", Q + "qweight", [64, 8], "qweight is packed in other than 4 or 8 bits"),
    ("gptq-w4-ordered", Q + "g_idx", [32, 2], "g_idx has another type or shape"),
    ("awq-w4", Q + "qweight", [8, 64], "qweight has another shape than its scales"),
])
def test_damage_is_told(name, tensor, change, words, tmp_path):
    path = folder(name, tmp_path)

    def damage(header):
        if change == "gone":
            header["unknown"] = header.pop(tensor)
        else:
            header[tensor]["shape"] = change
    rewrite(path, damage)
    assert words in refusal(path, 3)


def test_an_order_that_leaves_the_groups(tmp_path):
    path = folder("gptq-w4-ordered", tmp_path)
    with safe_open(path / "model.safetensors", "numpy") as file:
        tensors = {name: file.get_tensor(name).copy() for name in file.keys()}
    for wrong in (-1, 2, 2 ** 31 - 1):
        tensors[Q + "g_idx"][5] = wrong
        save_file(tensors, path / "model.safetensors")
        assert "g_idx names a missing group" in refusal(path, 3)


def test_sizes_that_lie(tmp_path):
    """weight_shape is data: no header says that it is wrong."""
    path = folder("packed-w4", tmp_path)
    raw = bytearray((path / "model.safetensors").read_bytes())
    (size,) = struct.unpack("<Q", raw[:8])
    at = 8 + size + json.loads(raw[8:8 + size])[UP + "weight_shape"]["data_offsets"][0]
    for rows, columns in ((128, 65), (-128, 64), (2 ** 40, 64), (0, 0), (128, 72)):
        raw[at:at + 16] = struct.pack("<qq", rows, columns)
        (path / "model.safetensors").write_bytes(raw)
        assert "weight_" in refusal(path, 3)


def test_a_folder_without_what_it_names(tmp_path):
    path = shutil.copytree(golden.HERE / "folders/plain-bert", tmp_path / "plain")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "gptq", "bits": 4}}))
    assert "no tensor is quantised" in refusal(path, 3)
