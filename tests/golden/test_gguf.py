# SPDX-License-Identifier: Apache-2.0
"""A GGUF file made of a model folder gives the folder's vectors: every architecture of ours that llama.cpp has a name
for. What decides the vectors and is missing, contradicts or is unknown is refused by name."""
import json
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
DUMP = golden.BUILD / "tests/model_dump"
PLAIN = {"attention_bias": False, "mlp_bias": False, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}
# A folder, and what of its config.json is changed in a copy because GGUF does not tell it.
NAMES = [("family-roberta", {}), ("family-xlm-roberta", {}), ("family-camembert", {}), ("pooling-cls", {}), ("prompts", {}),
         ("family-distilbert", {"activation": "gelu"}), ("family-nomic", {}), ("family-nomic-hub", {}), ("family-jina", {}),
         ("family-modernbert", {}), ("family-qwen3", {}), ("family-qwen3", {"is_causal": False}),
         ("family-qwen2", {}), ("family-llama", PLAIN), ("family-eurobert", {}), ("family-gemma3", {"query_pre_attn_scalar": 10})]


def read(path, *flags, texts=TEXTS, work):
    return golden.embed(path, texts, "--max-length", "60", *flags, work=work)


def copy(name, work, change):
    folder = work / "folder"
    shutil.copytree(FOLDERS / name, folder)
    config = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(config))
    if change == PLAIN:
        named = load_file(folder / "model.safetensors")
        save_file({name: data for name, data in named.items() if not name.endswith(".bias")}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("name, change", NAMES, ids=[f"{name}-{i}" for i, (name, _) in enumerate(NAMES)])
def test_the_file_gives_the_bytes_of_the_folder(name, change, tmp_path):
    folder = copy(name, tmp_path, change)
    gguf_writer.write(folder, tmp_path / "m.gguf")
    texts = [text for text in TEXTS if "<pad>" not in text]  # its position is cut off the table
    flags = ["--normalize", "true", "--prompt", ""]
    expected = read(folder, *flags, texts=texts, work=tmp_path)
    assert numpy.array_equal(read(tmp_path / "m.gguf", *flags, texts=texts, work=tmp_path), expected)


def halves(folder, first: str, second: str) -> dict:
    """The MLP's tensors as older files have them: each half by itself."""
    out = {}
    for name, data in gguf_writer.tensors(folder).items():
        if "ffn_up" in name:
            half = len(data) // 2
            out |= {name.replace("ffn_up", first): data[:half], name.replace("ffn_up", second): data[half:]}
    return out


@pytest.mark.parametrize("name, first, second", [("family-jina", "ffn_gate", "ffn_up"), ("family-jina-qk", "ffn_up", "ffn_gate")])
def test_jina_with_the_halves_apart(name, first, second, tmp_path):
    gguf_writer.write(FOLDERS / name, tmp_path / "m.gguf", more=halves(FOLDERS / name, first, second))
    expected = read(FOLDERS / name, "--normalize", "true", work=tmp_path)
    assert numpy.array_equal(read(tmp_path / "m.gguf", work=tmp_path), expected)


@pytest.mark.parametrize("kind", ["F32", "F16"])
def test_nomics_experts_without_their_bias(kind, tmp_path):
    """As in Ollama's nomic-embed-text-v2-moe: the vectors of the folder whose experts have a bias of zeros, and a word about it."""
    folder = copy("family-nomic-moe", tmp_path, {})
    named = load_file(folder / "model.safetensors")
    for name, data in named.items():
        if kind == "F16" and data.ndim > 1:
            named[name] = data = data.astype(numpy.float16).astype(numpy.float32)
        if name.endswith("experts.bias"):
            assert numpy.abs(data).max() > 0.01
            named[name] = numpy.zeros_like(data)
    save_file(named, folder / "model.safetensors")
    gguf_writer.write(FOLDERS / "family-nomic-moe", tmp_path / "m.gguf", kind)
    expected = read(folder, "--normalize", "true", work=tmp_path)
    assert numpy.array_equal(read(tmp_path / "m.gguf", work=tmp_path), expected)
    assert numpy.abs(read(FOLDERS / "family-nomic-moe", "--normalize", "true", work=tmp_path) - expected).max() > 1e-3
    done = subprocess.run([golden.BIN, "embed", "-m", tmp_path / "m.gguf", "text"], capture_output=True, text=True)
    assert "lacks the bias of the experts" in done.stderr and "safetensors" in done.stderr, done.stderr
    gguf_writer.write(FOLDERS / "family-nomic-moe", tmp_path / "m.gguf", keys={"nomic-bert-moe.expert_count": 4})
    assert "ffn_" in refusal(tmp_path / "m.gguf")


def test_a_file_that_llama_cpp_reads_otherwise_is_refused(tmp_path):
    """What llama.cpp computes of it is at a cosine of -0.24 to the reference: it takes the other half for the gate."""
    gguf_writer.write(FOLDERS / "family-jina-qk", tmp_path / "m.gguf")
    assert "lies in one tensor" in refusal(tmp_path / "m.gguf")


def test_a_window_in_all_but_every_third_layer(tmp_path):
    """sliding_window_pattern as a number, as files of ModernBERT have it."""
    config = json.loads((FOLDERS / "family-modernbert/config.json").read_text())
    types = ["sliding_attention" if i % 3 else "full_attention" for i in range(config["num_hidden_layers"])]
    folder = copy("family-modernbert", tmp_path, {"layer_types": types})
    gguf_writer.write(folder, tmp_path / "m.gguf", keys={"modern-bert.attention.sliding_window_pattern": 3})
    expected = read(folder, "--normalize", "true", work=tmp_path)
    assert numpy.array_equal(read(tmp_path / "m.gguf", work=tmp_path), expected)


def refusal(path, *flags) -> str:
    done = subprocess.run([golden.BIN, "embed", "-m", path, *flags, "text"], capture_output=True, text=True)
    assert done.returncode == 3, (done.returncode, done.stderr)
    return done.stderr


# What is set or taken away, and what the message says.
WRONG = [
    ({"general.architecture": "gpt2"}, 'architecture "gpt2" is not supported'),
    ({"bert.pooling_type": None}, "bert.pooling_type is missing: set --pooling"),
    ({"bert.pooling_type": 0}, "bert.pooling_type is missing"),
    ({"bert.pooling_type": 4}, "bert.pooling_type is that of a reranker"),
    ({"bert.pooling_type": "mean"}, "bert.pooling_type is not a number"),
    ({"bert.embedding_length": None}, "bert.embedding_length is missing"),
    ({"bert.embedding_length": 36}, "but the metadata asks for"),
    ({"bert.embedding_length": "wide"}, "hidden_size"),
    ({"bert.block_count": 3}, "are missing: blk.2."),
    ({"bert.block_count": 1}, "tensor blk.1."),
    ({"bert.attention.causal": True}, "is_decoder"),
    ({"bert.attention.key_length": 3}, "bert.attention.key_length is not what follows from the other sizes"),
    ({"bert.vocab_size": 3}, "bert.vocab_size is not what follows"),
    ({"bert.attn_logit_softcapping": 30.0}, 'metadata key "bert.attn_logit_softcapping" is unknown'),
    ({"bert.rope.scaling.type": "none"}, 'metadata key "bert.rope.scaling.type" is unknown'),
    ({"tokenizer.ggml.model": None}, "tokenizer.ggml.model is missing"),
    ({"tokenizer.ggml.model": "rwkv"}, 'tokenizer.ggml.model "rwkv" is not supported'),
    ({"tokenizer.ggml.tokens": None}, "tokenizer.ggml.tokens is not a list"),
    ({"tokenizer.ggml.token_type": None}, "tokenizer.ggml.token_type is missing"),
    ({"tokenizer.ggml.token_type": [1, 2]}, "tokenizer.ggml.token_type is not as long"),
    ({"tokenizer.ggml.unknown_token_id": None}, "tokenizer.ggml.unknown_token_id is missing"),
    ({"tokenizer.ggml.cls_token_id": None, "tokenizer.ggml.bos_token_id": None}, "tokenizer.ggml.cls_token_id is missing"),
    ({"tokenizer.ggml.bos_token_id": 7}, "but bos_token_id is 7: they contradict"),
    ({"tokenizer.ggml.seperator_token_id": 7}, "tokenizer.ggml.seperator_token_id is 7 but eos_token_id is"),
    ({"tokenizer.ggml.cls_token_id": 1 << 30}, "tokenizer.ggml.cls_token_id is not the id of a token"),
    ({"tokenizer.ggml.add_bos_token": False}, "tokenizer.ggml.add_bos_token is false"),
    ({"tokenizer.ggml.normalizer.lowercase": 1}, "tokenizer.ggml.normalizer.lowercase is neither true nor false"),
    ({"tokenizer.ggml.normalizer.lowercase": None}, None),
]


@pytest.mark.parametrize("keys, message", WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_metadata_that_is_wrong_is_refused_by_name(keys, message, tmp_path):
    path = tmp_path / "m.gguf"
    gguf_writer.write(FOLDERS / "pooling-cls", path, keys=keys)
    if message is None:
        read(path, work=tmp_path)
    else:
        said = refusal(path)
        assert message in said and str(path) in said


def test_a_tensor_that_is_not_known_is_refused(tmp_path):
    path = tmp_path / "m.gguf"
    gguf_writer.write(FOLDERS / "pooling-cls", path, more={"rope_freqs.weight": numpy.ones(4, numpy.float32)})
    assert "tensor rope_freqs.weight is unknown" in refusal(path)
    gguf_writer.write(FOLDERS / "pooling-cls", path, more={"blk.0.attn_q.bias": None})
    assert "are missing: blk.0.attn_q.bias" in refusal(path)


def test_pooling_can_be_said(tmp_path):
    path = tmp_path / "m.gguf"
    gguf_writer.write(FOLDERS / "pooling-max", path, keys={"bert.pooling_type": None})
    flags = ["--normalize", "true", "--pooling"]
    for pooling in ("max", "cls", "mean"):
        expected = read(FOLDERS / "pooling-max", *flags, pooling, work=tmp_path)
        assert numpy.array_equal(read(path, *flags, pooling, work=tmp_path), expected)


def test_a_folder_with_one_file_is_that_file(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    gguf_writer.write(FOLDERS / "pooling-cls", folder / "m.gguf")
    rows = read(folder / "m.gguf", work=tmp_path)
    assert numpy.array_equal(read(folder, work=tmp_path), rows)
    shutil.copy(folder / "m.gguf", folder / "n.gguf")
    done = subprocess.run([golden.BIN, "embed", "-m", folder, "text"], capture_output=True, text=True)
    assert "holds 2 .gguf files; name one of them" in done.stderr and done.returncode != 0


def test_quantised_weights_are_those_of_the_package(tmp_path):
    """The vectors of a folder whose weights went through the package's Q8_0 and back."""
    folder = shutil.copytree(FOLDERS / "pooling-cls", tmp_path / "folder")
    named = {}
    for name, data in load_file(folder / "model.safetensors").items():
        if data.ndim > 1 and data.shape[-1] % 32 == 0:
            data = gguf.dequantize(gguf.quantize(data, gguf.GGMLQuantizationType.Q8_0), gguf.GGMLQuantizationType.Q8_0)
        named[name] = data.astype(numpy.float32)
    save_file(named, folder / "model.safetensors")
    gguf_writer.write(FOLDERS / "pooling-cls", tmp_path / "m.gguf", "Q8_0")
    expected = read(folder, "--normalize", "true", work=tmp_path)
    assert numpy.array_equal(read(tmp_path / "m.gguf", work=tmp_path), expected)
