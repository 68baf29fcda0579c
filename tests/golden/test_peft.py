# SPDX-License-Identifier: Apache-2.0
"""test_peft.py - folders that hold a LoRA adapter give what sentence-transformers gives with peft.

What must never break: W + alpha / r B A for single and fused matrices, rslora, ranks of their own, shared layers, an adapter alone;
the base by path and by name of the hub; a fingerprint that knows both; what makes another product of it is refused by name.
"""
import json
import os
import pathlib
import shutil
import subprocess

import numpy
import pytest

import golden

FOLDERS = golden.HERE / "folders"
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))
CASES = sorted(path.name for path in (golden.HERE / "peft").iterdir())


def adapter(name: str, tmp_path: pathlib.Path, base: object = None, **changes) -> pathlib.Path:
    """A copy whose base is a path here, or `base`."""
    path = tmp_path / name
    shutil.copytree(golden.HERE / "peft" / name, path)
    file = path / "adapter_config.json"
    config = json.loads(file.read_text())
    config["base_model_name_or_path"] = str(base if base is not None else FOLDERS / config["base_model_name_or_path"])
    file.write_text(json.dumps(config | changes))
    return path


def refusal(path: pathlib.Path, *flags) -> str:
    done = subprocess.run([golden.BIN, "embed", "-m", path, *flags, "a text"], capture_output=True, text=True)
    assert done.returncode in (3, 4), done.stderr
    return done.stderr


@pytest.mark.parametrize("name", CASES)
def test_adapter(name, tmp_path):
    path = adapter(name, tmp_path)
    flags = ("--pooling", "lasttoken", "--normalize", "true", "--max-length", "200") if name == "alone" else ()
    rows = golden.embed(path, TEXTS, *flags, work=tmp_path)
    assert golden.difference(rows, numpy.load(path / "expected.npy")) <= 1e-5


def test_an_engine_that_adds_no_adapter_refuses(tmp_path):
    """ONNX Runtime's graph takes matrices as they lie in the file: its vectors would be the base's."""
    done = subprocess.run([golden.BIN, "embed", "-m", adapter("decoder", tmp_path), "--provider-engine", "onnxruntime", "a text"], capture_output=True, text=True)
    assert done.returncode == 2 and ("does not handle adapters" in done.stderr or "libonnxruntime" in done.stderr), done.stderr


def test_an_adapter_of_another_architecture_is_refused(tmp_path):
    """Llama and Mistral have the same names and shapes; a class of another kind, or of code, says nothing."""
    def trained_on(library: str, work: str) -> pathlib.Path:
        return adapter("alone", tmp_path / work, auto_mapping={"base_model_class": "Any", "parent_library": library})
    message = refusal(trained_on("transformers.models.mistral.modeling_mistral", "a"))
    assert "mistral" in message and "llama" in message and "base_model_name_or_path" in message, message
    for number, library in enumerate(("transformers.models.llama.modeling_llama", "transformers_modules.a.modeling_b")):
        assert len(golden.embed(trained_on(library, str(number)), TEXTS[:1], work=tmp_path)) == 1


@pytest.mark.parametrize("name", CASES)
def test_tokens_are_the_folders(name, tmp_path):
    path = adapter(name, tmp_path)
    done = subprocess.run([golden.BIN, "tokenize", "-m", path, "the cat"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_base_of_the_hub(tmp_path):
    """A name: what lies in the cache of huggingface_hub, in the revision that the adapter names; nothing is fetched."""
    cache = tmp_path / "hub/models--org--base"
    commit = "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(FOLDERS / "family-qwen3", cache / "snapshots" / commit, symlinks=False)
    (cache / "refs").mkdir()
    (cache / "refs/main").write_text(commit)
    path = adapter("decoder", tmp_path, "org/base")
    source, out = tmp_path / "t.jsonl", tmp_path / "r.npy"
    source.write_text("".join(json.dumps(text) + "\n" for text in TEXTS))
    command = [golden.BIN, "embed", "-m", path, "-i", source, "--input-format", "jsonl", "--format", "npy", "-o", out]
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert golden.difference(numpy.load(out), numpy.load(path / "expected.npy")) <= 1e-5
    (tmp_path / "hub").rename(tmp_path / "gone")
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 3 and "adapter_config.json, base_model_name_or_path" in done.stderr and "org/base" in done.stderr, done.stderr




@pytest.mark.parametrize("name", ["decoder", "alone"])
def test_adapter_of_the_hub(name, tmp_path):
    """A snapshot of an adapter is whole without config.json and weights of its own."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    for repository, files in (("adapter", adapter(name, tmp_path, "org/base")),
                              ("base", FOLDERS / json.loads((golden.HERE / "peft" / name / "adapter_config.json").read_text())["base_model_name_or_path"])):
        cache = tmp_path / f"hub/models--org--{repository}"
        shutil.copytree(files, cache / "snapshots" / commit, symlinks=False)
        (cache / "refs").mkdir()
        (cache / "refs/main").write_text(commit)
        (cache / ".no_exist" / commit).mkdir(parents=True)
        (cache / ".no_exist" / commit / "modules.json").touch()
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    command = [golden.BIN, "embed", "-m", "org/adapter", "--quiet", "--format", "jsonl", "a text"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and "embedding" in done.stdout, done.stderr
    (tmp_path / "hub/models--org--adapter/snapshots" / commit / "adapter_model.safetensors").unlink()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 3 and "adapter_model.safetensors" in done.stderr, done.stderr


def test_fingerprint_is_of_both(tmp_path):
    """An adapter over other weights makes other vectors: jobs and stores tell them apart."""
    def fingerprint(path: pathlib.Path) -> str:
        job = tmp_path / f"job-{path.name}"
        done = subprocess.run([golden.BIN, "run", "-m", path, "-i", source, "-o", job], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads((job / "job.json").read_text())["model"]
    source = tmp_path / "t.txt"
    source.write_text("a text\n")
    base = tmp_path / "base"
    shutil.copytree(FOLDERS / "family-qwen3", base)
    one = adapter("decoder", tmp_path, base)
    first = fingerprint(one)
    data = bytearray((base / "model.safetensors").read_bytes())
    data[-3] ^= 1
    (base / "model.safetensors").write_bytes(data)
    two = tmp_path / "again"
    one.rename(two)
    assert len(first) == 64 and fingerprint(two) != first


@pytest.mark.parametrize("key, value", [
    ("peft_type", "IA3"), ("use_dora", True), ("lora_bias", True), ("bias", "all"), ("fan_in_fan_out", True),
    ("modules_to_save", ["pooler"]), ("alpha_pattern", {"q_proj": 3}), ("layer_replication", [[0, 1]]),
    ("trainable_token_indices", [1]), ("target_parameters", ["experts"])], ids=str)
def test_what_makes_another_product_is_refused(key, value, tmp_path):
    message = refusal(adapter("decoder", tmp_path, **{key: value}))
    assert "adapter_config.json" in message and key in message and "rather than approximated" in message, message


@pytest.mark.parametrize("changes, says", [
    ({"r": 16}, "says r 16, but the adapter of"), ({"r": 0}, '"r"'), ({"r": -4}, '"r"'), ({"r": "4"}, '"r"'), ({"r": None}, '"r" is null'),
    ({"r": 10 ** 9}, '"r"'), ({"lora_alpha": None}, '"lora_alpha" is null'), ({"lora_alpha": 1e39}, "lora_alpha 1e+39"),
    ({"lora_alpha": "8"}, '"lora_alpha"')], ids=str)
def test_numbers_that_are_not_those_of_the_matrices(changes, says, tmp_path):
    """peft, too, makes matrices of r and refuses others; alpha / r is what the product counts."""
    message = refusal(adapter("decoder", tmp_path, **changes))
    assert says in message, message


def test_a_pattern_of_ranks_leaves_them_to_the_matrices(tmp_path):
    rows = golden.embed(adapter("decoder", tmp_path), TEXTS, work=tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    assert numpy.array_equal(golden.embed(adapter("decoder", other, r=16, rank_pattern={"q_proj": 4, "v_proj": 4, "down_proj": 4}), TEXTS, work=tmp_path), rows)


def test_damage(tmp_path):
    from safetensors.numpy import load_file, save_file
    path = adapter("decoder", tmp_path)
    whole = load_file(path / "adapter_model.safetensors")
    first = next(iter(whole))

    def saved(tensors: dict) -> str:
        save_file(tensors, path / "adapter_model.safetensors")
        return refusal(path)
    assert "belongs to no matrix of" in saved(whole | {"base_model.model.layers.0.other.lora_A.weight": whole[first]})
    assert "belongs to no matrix of" in saved(whole | {"base_model.model.layers.0.mlp.down_proj.lora_magnitude_vector": whole[first]})
    assert "it was not trained on" in saved(whole | {first: numpy.zeros((300, whole[first].shape[1]), "f4")})
    assert "it was not trained on" in saved({name: value for name, value in whole.items() if name != first})
    (path / "adapter_model.safetensors").unlink()
    assert "adapter_model.safetensors" in refusal(path)
    one = adapter("fused", tmp_path)
    (one / "config.json").write_text("{}")
    assert "adapter of an adapter" in refusal(adapter("pooler", tmp_path, one))
    assert "base_model_name_or_path" in refusal(adapter("shared", tmp_path, ""))
