# SPDX-License-Identifier: Apache-2.0
"""onnx_files.py - .onnx files for the tests of the onnxruntime engine.

`bert` writes a BERT in plain operators from a folder's safetensors, as an exporter would; it is made here with
the onnx package, because an export by torch takes a gigabyte of packages. `toy` writes a network so small that
its token vectors are known by heart: token vector = id x (1, 2, 3 …) / 1000.
"""
import json
import os
import pathlib
import shutil

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

import golden

OPSET = 17
I64, I32, F32, F16 = TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT, TensorProto.FLOAT16
DYNAMIC = ("batch", "sequence")


def library() -> str:
    """The folder or file of the ONNX Runtime library for tests, or "" when there is none."""
    named = os.environ.get("FLETCH_ONNXRUNTIME_LIBRARY", "")
    if named:
        return named
    folder = golden.ROOT / ".cache/onnxruntime"
    return str(folder) if list(folder.glob("libonnxruntime.*")) else ""


def folder_without_weights(source: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """A copy of a model folder that holds everything but safetensors."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors", "*.onnx", "onnx", "*.bin"))
    return target


def save(path: pathlib.Path, nodes, inputs, outputs, weights, **how):
    graph = helper.make_graph(nodes, "model", inputs, outputs,
                              [numpy_helper.from_array(array, name) for name, array in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path, **how)


# ---- A whole BERT --------------------------------------------------------------------------------

class Writer:
    def __init__(self, tensors, quantised=False):
        self.tensors, self.nodes, self.weights, self.count = tensors, [], {}, 0
        self.quantised = quantised

    def op(self, kind, *inputs, **attributes):
        self.count += 1
        out = f"{kind}.{self.count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def const(self, array):
        self.count += 1
        name = f"const.{self.count}"
        self.weights[name] = numpy.asarray(array)
        return name

    def tensor(self, name, transposed=False):
        array = self.tensors[name].astype(numpy.float32)
        return self.const(array.T.copy() if transposed else array)

    def linear(self, x, name):
        """`quantised`: 8-bit integers as dynamic quantisation writes them, the range of x found over all of x."""
        if self.quantised:
            weight = self.tensors[name + ".weight"].astype(numpy.float32).T
            scale = numpy.abs(weight).max() / 127
            self.count += 1
            parts = [f"{part}.{self.count}" for part in ("q", "scale", "zero")]
            self.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], parts))
            product = self.op("MatMulInteger", parts[0], self.const(numpy.round(weight / scale).astype(numpy.int8)), parts[2])
            factor = self.op("Mul", parts[1], self.const(numpy.float32(scale)))
            return self.op("Add", self.op("Mul", self.op("Cast", product, to=F32), factor), self.tensor(name + ".bias"))
        return self.op("Add", self.op("MatMul", x, self.tensor(name + ".weight", True)), self.tensor(name + ".bias"))

    def norm(self, x, name, eps):
        return self.op("LayerNormalization", x, self.tensor(name + ".weight"), self.tensor(name + ".bias"),
                       axis=-1, epsilon=eps)

    def gelu(self, x):
        erf = self.op("Erf", self.op("Div", x, self.const(numpy.float32(numpy.sqrt(2)))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.const(numpy.float32(1)))),
                       self.const(numpy.float32(0.5)))


def attention(w, x, layer, heads, mask):
    name = f"encoder.layer.{layer}.attention."
    size = w.tensors[name + "self.query.weight"].shape[0] // heads

    def split(part, order):
        return w.op("Transpose", w.op("Reshape", w.linear(x, name + "self." + part),
                                      w.const(numpy.array([0, 0, heads, size]))), perm=order)

    scores = w.op("MatMul", split("query", [0, 2, 1, 3]), split("key", [0, 2, 3, 1]))
    scores = w.op("Add", w.op("Div", scores, w.const(numpy.float32(numpy.sqrt(size)))), mask)
    context = w.op("MatMul", w.op("Softmax", scores, axis=-1), split("value", [0, 2, 1, 3]))
    context = w.op("Reshape", w.op("Transpose", context, perm=[0, 2, 1, 3]), w.const(numpy.array([0, 0, heads * size])))
    return w.linear(context, name + "output.dense")


def bert(folder: pathlib.Path, path: pathlib.Path, quantised=False):
    """`path` gets the encoder of a BERT folder: input_ids, attention_mask, token_type_ids -> last_hidden_state."""
    config = json.loads((folder / "config.json").read_text())
    w, eps = Writer(load_file(folder / "model.safetensors"), quantised), config["layer_norm_eps"]
    positions = w.op("Range", w.const(numpy.int64(0)),
                     w.op("Gather", w.op("Shape", "input_ids"), w.const(numpy.int64(1))), w.const(numpy.int64(1)))
    x = w.op("Add", w.op("Gather", w.tensor("embeddings.word_embeddings.weight"), "input_ids"),
             w.op("Gather", w.tensor("embeddings.token_type_embeddings.weight"), "token_type_ids"))
    x = w.op("Add", x, w.op("Gather", w.tensor("embeddings.position_embeddings.weight"), positions))
    x = w.norm(x, "embeddings.LayerNorm", eps)
    hidden = w.op("Sub", w.const(numpy.float32(1)), w.op("Cast", "attention_mask", to=F32))
    mask = w.op("Unsqueeze", w.op("Mul", hidden, w.const(numpy.float32(-1e9))), w.const(numpy.array([1, 2])))
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}."
        x = w.norm(w.op("Add", x, attention(w, x, layer, config["num_attention_heads"], mask)),
                   name + "attention.output.LayerNorm", eps)
        up = w.gelu(w.linear(x, name + "intermediate.dense"))
        x = w.norm(w.op("Add", x, w.linear(up, name + "output.dense")), name + "output.LayerNorm", eps)
    w.nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"]))
    inputs = [helper.make_tensor_value_info(n, I64, DYNAMIC) for n in ("input_ids", "attention_mask", "token_type_ids")]
    outputs = [helper.make_tensor_value_info("last_hidden_state", F32, (*DYNAMIC, config["hidden_size"]))]
    save(path, w.nodes, inputs, outputs, w.weights)


# ---- The toy -------------------------------------------------------------------------------------

def toy(path: pathlib.Path, hidden: int, *, scale=1.0, inputs=("input_ids", "attention_mask"), integers=I64,
        shape=DYNAMIC, output="last_hidden_state", half=False, pooled=False, rank4=False, **how):
    """token vector = scale * id * (1 … hidden) / 1000; `pooled`: the mean over all tokens instead."""
    row = (numpy.arange(1, hidden + 1) * scale / 1000).astype(numpy.float16 if half else numpy.float32)
    used = "input_ids" if "input_ids" in inputs else inputs[0]
    kind = F16 if half else F32
    nodes = [helper.make_node("Cast", [used], ["real"], to=kind),
             helper.make_node("Unsqueeze", ["real", "last"], ["column"]),
             helper.make_node("Mul", ["column", "row"], ["tokens"])]
    last = "tokens"
    for name in inputs:  # every input is read: + 0 x its sum
        nodes += [helper.make_node("Cast", [name], [f"{name}.read"], to=kind),
                  helper.make_node("ReduceSum", [f"{name}.read"], [f"{name}.sum"], keepdims=0),
                  helper.make_node("Mul", [f"{name}.sum", "nothing"], [f"{name}.nothing"]),
                  helper.make_node("Add", [last, f"{name}.nothing"], [f"{name}.added"])]
        last = f"{name}.added"
    dims = (*shape, hidden)
    if pooled:
        nodes.append(helper.make_node("ReduceMean", [last], [output], axes=[1], keepdims=0))
        dims = (shape[0], hidden)
    elif rank4:
        nodes.append(helper.make_node("Unsqueeze", [last, "last"], [output]))
        dims = (*shape, hidden, 1)
    else:
        nodes.append(helper.make_node("Identity", [last], [output]))
    weights = {"row": row, "last": numpy.array([-1]), "nothing": numpy.array(0, row.dtype)}
    given = [helper.make_tensor_value_info(name, integers, shape) for name in inputs]
    save(path, nodes, given, [helper.make_tensor_value_info(output, kind, dims)], weights, **how)


def table(path: pathlib.Path, hidden: int, rows: int):
    """token vector = row `id` of a table that has only so many rows: a larger id cannot be run."""
    nodes = [helper.make_node("Gather", ["rows", "input_ids"], ["tokens"]),
             helper.make_node("Cast", ["attention_mask"], ["mask"], to=F32),
             helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
             helper.make_node("Mul", ["tokens", "column"], ["last_hidden_state"])]
    given = [helper.make_tensor_value_info(name, I64, DYNAMIC) for name in ("input_ids", "attention_mask")]
    made = [helper.make_tensor_value_info("last_hidden_state", F32, (*DYNAMIC, hidden))]
    weights = numpy.arange(1, rows + 1, dtype=numpy.float32)[:, None] * numpy.ones((1, hidden), numpy.float32)
    save(path, nodes, given, made, {"rows": weights, "last": numpy.array([-1])})
