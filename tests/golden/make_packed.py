#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_packed.py - weights as quantisers save them, for test_packed_weights.py.

packed/NAME.safetensors holds what model.safetensors of a published folder would, and as metadata the golden folder that
it is a version of, what config.json says instead, and the rows of texts.json by sentence-transformers on the weights
that the quantiser's own package makes of it again: compressed-tensors 0.20.0, GPTQModel 7.7.0 (its linear layer, and
for AWQ its dequantize_gemm). Run with those two, torch 2.15, transformers 5.24 and sentence-transformers 6.2.
"""
import base64
import json
import pathlib
import shutil
import tempfile

import numpy
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationScheme
from gptqmodel.nn_modules.qlinear.gemm_awq import _pack_awq_columns
from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm
from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

import make_folders as base

HERE = pathlib.Path(__file__).resolve().parent
TEXTS = json.loads((HERE / "folders/texts.json").read_text(encoding="utf-8"))
QWEN = ("family-qwen3", {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128,
                         "num_hidden_layers": 2, "layer_types": ["full_attention"] * 2})
MODERN = ("family-modernbert", {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
                                "layer_types": ["sliding_attention", "full_attention"]})


# ---- Quantisers: a linear layer -> its tensors, and the matrix that they are ---------------------------

def grouped(weight, group: int, bits: int, symmetric: bool):
    """Scale and zero of [rows, groups]; of unsymmetric ones the zero is among 0 … 2^bits - 1."""
    runs = weight.reshape(len(weight), -1, group if group > 0 else weight.shape[1])
    if symmetric:
        scale = runs.abs().amax(2) / (2 ** (bits - 1) - 0.5)
        return scale, torch.full_like(scale, 2 ** (bits - 1))
    low, high = runs.amin(2).clamp(max=0), runs.amax(2).clamp(min=0)
    scale = (high - low) / (2 ** bits - 1)
    return scale, (-low / scale).round().clamp(0, 2 ** bits - 1)


def compressed(format_: str, dtype=torch.bfloat16, **weights):
    args = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32} | weights
    inputs = None if format_ == "pack-quantized" else {"num_bits": 8, "type": args["type"], "strategy": "token", "dynamic": True}
    groups = {"group_0": {"targets": ["Linear"], "weights": args, "input_activations": inputs, "output_activations": None}}
    scheme = QuantizationScheme.model_validate(groups["group_0"])
    compressor = BaseCompressor.get_value_from_registry(format_)

    def quantise(weight):
        group = args["group_size"] if args["strategy"] == "group" else -1
        if args["type"] == "float":
            scale, zero = weight.abs().amax(1, keepdim=True) / 448, None
        else:
            scale, zero = grouped(weight, group, args["num_bits"], args["symmetric"])
            zero = (zero - 2 ** (args["num_bits"] - 1)).to(torch.int8)
        if args["strategy"] == "tensor":
            scale, zero = scale.amax().reshape(1), torch.zeros(1, dtype=torch.int8)
        state = {"weight": weight.to(dtype), "weight_scale": scale.to(dtype)} | ({} if zero is None else {"weight_zero_point": zero})
        state = compressor.compress(state, scheme)
        return state, compressor.decompress(state, scheme)["weight"]
    config = {"quant_method": "compressed-tensors", "format": format_, "quantization_status": "compressed", "ignore": ["lm_head"],
              "kv_cache_scheme": None, "global_compression_ratio": None, "sparsity_config": {}, "transform_config": {},
              "version": "0.20.0", "config_groups": groups}
    return config, quantise


def gptq(bits: int = 4, group: int = 32, symmetric: bool = True, ordered: bool = False, format_: str = "gptq"):
    def quantise(weight):
        rows, columns = weight.shape
        order = torch.arange(columns) // group
        if ordered:  # as by descending activations: which group a column is of has no pattern
            order = order[torch.randperm(columns, generator=torch.Generator().manual_seed(columns))]
        place = torch.argsort(order, stable=True)
        scale, zero = grouped(weight[:, place], group, bits, symmetric)
        layer = TorchLinear(bits=bits, group_size=group, desc_act=ordered, sym=symmetric, in_features=columns, out_features=rows,
                            bias=False, pack_dtype=torch.int32, register_buffers=True)
        linear = torch.nn.Linear(columns, rows, bias=False)
        linear.weight.data = weight
        layer.pack_original(linear, scale, zero, order.to(torch.int32))
        layer.post_init()
        back = layer.dequantize_weight().T.to(torch.float16)
        if format_ == "gptq":
            convert_gptq_v2_to_v1_format_module(layer, type("", (), {"bits": bits, "pack_dtype": torch.int32}))
        return {name: getattr(layer, name).clone() for name in ("qweight", "qzeros", "scales", "g_idx")}, back
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": ordered, "sym": symmetric, "lm_head": False,
              "checkpoint_format": format_, "pack_dtype": "int32", "meta": {"quantizer": ["gptqmodel:7.7.0"]}}
    return config, quantise


def awq(group: int = 32):
    def quantise(weight):
        columns = weight.shape[1]
        scale, zero = grouped(weight, group, 4, False)
        scale, zero, group_of = scale.to(torch.float16).T, zero.T, torch.arange(columns) // group
        integers = (weight.T / scale.float()[group_of]).round() + zero[group_of]
        tensors = {"qweight": _pack_awq_columns(integers.clamp(0, 15).to(torch.int32), 4),
                   "qzeros": _pack_awq_columns(zero.to(torch.int32), 4), "scales": scale}
        return tensors, dequantize_gemm(*tensors.values(), 4, group).T
    return {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm",
            "modules_to_not_convert": None}, quantise


FORMS = {
    "packed-w4": (QWEN, *compressed("pack-quantized")),
    "packed-w4-zeros": (QWEN, *compressed("pack-quantized", symmetric=False, group_size=16)),
    "packed-w8-channel": (MODERN, *compressed("pack-quantized", torch.float16, num_bits=8, strategy="channel", group_size=None)),
    "int-w8a8": (MODERN, *compressed("int-quantized", num_bits=8, strategy="channel", group_size=None)),
    "int-w8-zeros": (QWEN, *compressed("int-quantized", torch.float32, num_bits=8, symmetric=False, group_size=64)),
    "naive-w8-tensor": (QWEN, *compressed("naive-quantized", num_bits=8, strategy="tensor", group_size=None)),
    "float8": (QWEN, *compressed("float-quantized", num_bits=8, type="float", strategy="channel", group_size=None)),
    "gptq-w4": (QWEN, *gptq()),
    "gptq-w4-zeros": (MODERN, *gptq(symmetric=False)),
    "gptq-w4-ordered": (QWEN, *gptq(ordered=True, symmetric=False)),
    "gptq-v2-w8": (QWEN, *gptq(bits=8, group=64, symmetric=False, format_="gptq_v2")),
    "awq-w4": (QWEN, *awq()),
}


def make(name: str, form, config: dict, quantise) -> None:
    folder, sizes = form
    with tempfile.TemporaryDirectory() as work:
        path = shutil.copytree(base.HERE / folder, pathlib.Path(work) / folder)
        changed = json.loads((path / "config.json").read_text()) | sizes
        pooling = json.loads((path / "1_Pooling/config.json").read_text())
        pooling |= {key: sizes["hidden_size"] for key in pooling if key.endswith("_dimension")}
        (path / "1_Pooling/config.json").write_text(json.dumps(pooling))
        (path / "config.json").write_text(json.dumps(changed))
        model = transformers.AutoModel.from_config(transformers.AutoConfig.from_pretrained(path), dtype=torch.float32)
        base.randomise(model, sum(name.encode()))
        saved, small = {}, torch.float16 if config["quant_method"] != "compressed-tensors" else torch.bfloat16
        linear = {f"{at}.weight": at for at, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)}
        state = {key: value.to(small) for key, value in model.state_dict().items()}
        for key, value in list(state.items()):
            if key not in linear:
                saved[key] = value
                continue
            tensors, state[key] = quantise(value.float())
            saved |= {f"{linear[key]}.{part}": tensor.contiguous() for part, tensor in tensors.items()}
        save_file({key: value.float().contiguous() for key, value in state.items()}, path / "model.safetensors")
        rows = SentenceTransformer(str(path), device="cpu").encode(TEXTS, batch_size=1).astype(numpy.float32)
    about = {"folder": folder, "config": sizes | {"quantization_config": config}, "pooling": pooling,
             "rows": base64.b64encode(rows.tobytes()).decode()}
    save_file(saved, HERE / "packed" / f"{name}.safetensors", {key: json.dumps(value) for key, value in about.items()})


if __name__ == "__main__":
    (HERE / "packed").mkdir(exist_ok=True)
    for name, form in FORMS.items():
        make(name, *form)
        print(name)
