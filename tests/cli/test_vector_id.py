# SPDX-License-Identifier: Apache-2.0
"""The vector id: one text for all that decides a vector's bytes. What changes them changes it, what does not leaves it."""
import hashlib
import json
import shutil

import commandline
import pytest

FOLDERS = commandline.ROOT / "tests/golden/folders"
PLAIN = FOLDERS / "pooling-cls"


def identify(fletch, *flags, model=PLAIN):
    """The parts, held to the id: SHA-256 of their lines."""
    done = fletch("model", "id", model, "--format", "json", *flags)
    assert done.returncode == 0, done.stderr
    parts = json.loads(done.stdout)
    told = parts.pop("id")
    assert told == hashlib.sha256("".join(f"{name} {value}\n" for name, value in parts.items()).encode()).hexdigest()
    assert fletch("model", "id", model, *flags).stdout.decode() == told + "\n"
    return told, parts


def change(file):
    weights = bytearray(file.read_bytes())
    weights[-3] ^= 1
    file.write_bytes(weights)


def test_the_parts_and_their_hash(fletch):
    told, parts = identify(fletch)
    assert list(parts)[:3] == ["model", "dtype", "numerics"] and parts["dtype"] == "float32" and parts["pooling"] == "cls"
    assert parts["provider"] == "cpu" and len(parts["model"]) == 64 and int(parts["numerics"]) > 0
    assert json.loads(fletch("canary", "-m", PLAIN).stdout)["id"] == told


@pytest.mark.parametrize("flags", [("--cpu-intra-op-threads", "1"), ("--batch-max-tokens", "512"), ("--cache-max-bytes", "0"), ("--memory-limit", "100MiB"),
                                   ("--model-weights", "float"), ("--cpu-isa", "ref"), ("--provider-numerics", "portable")], ids=lambda flags: flags[0])
def test_what_leaves_the_bytes_leaves_it(fletch, flags):
    assert identify(fletch, *flags) == identify(fletch)


@pytest.mark.parametrize("flags, part", [
    (("--model-pooling", "mean"), "pooling"), (("--model-normalize", "false"), "normalize"), (("--model-dimensions", "8"), "dimensions"),
    (("--model-max-length", "12"), "max_length"), (("--model-truncate", "left"), "truncate"), (("--model-prompt", "query: "), "prompt"),
    (("--provider-precision", "int8"), "precision"), (("--model-weights", "q4"), "cpu.precision")],
    ids=lambda value: value if isinstance(value, str) else value[0])
def test_what_changes_them_changes_it(fletch, flags, part):
    (before, there), (after, here) = identify(fletch), identify(fletch, *flags)
    assert before != after and part in {name for name in there | here if there.get(name) != here.get(name)}


@pytest.mark.parametrize("folder, file", [
    (PLAIN, "model.safetensors"), (FOLDERS / "dense-tanh", "2_Dense/model.safetensors"), (FOLDERS / "subfolder", "0_Transformer/model.safetensors"),
    (FOLDERS / "router-tensor", "query_0_SparseStaticEmbedding/model.safetensors"), (FOLDERS.parent / "token_heads/bge-m3", "sparse_linear.pt")],
    ids=lambda value: str(value).rsplit("/", 1)[-1])
def test_another_byte_of_the_weights(fletch, folder, file):
    copy = shutil.copytree(folder, fletch.tmp_path / "copy")
    same, _ = identify(fletch, model=copy)
    assert same == identify(fletch, model=folder)[0], "wherever the folder lies"
    change(copy / file)
    assert identify(fletch, model=copy)[0] != same


@pytest.mark.parametrize("folder, before, after", [("dense-tanh", "2_Dense", "dense"), ("subfolder", "0_Transformer", "body/of it/"),
                                                   ("router-tensor", "query_0_SparseStaticEmbedding", "table")])
def test_module_folders_of_any_name(fletch, folder, before, after):
    copy = shutil.copytree(FOLDERS / folder, fletch.tmp_path / "copy")
    (copy / after).parent.mkdir(exist_ok=True)
    (copy / before).rename(copy / after)
    for name in ("modules.json", "router_config.json"):
        if (copy / name).exists():
            (copy / name).write_text((copy / name).read_text().replace(before, after))
    same, _ = identify(fletch, model=copy)
    change(copy / after / "model.safetensors")
    assert identify(fletch, model=copy)[0] != same


def test_heads_in_safetensors_hide_no_weights_of_torch(fletch):
    copy = shutil.copytree(FOLDERS / "weights-f16", fletch.tmp_path / "copy")
    (copy / "model.safetensors").rename(copy / "sparse_linear.safetensors")
    told = set()
    for form in ("zip", "old"):
        shutil.copy(FOLDERS.parent / f"torch_files/{form}.bin", copy / "pytorch_model.bin")
        told.add(identify(fletch, model=copy)[0])
    assert len(told) == 2


def test_wrong_input(fletch):
    done = fletch("model", "id", "no/such-folder")
    assert done.returncode == 3 and not done.stdout
    done = fletch("model", "id", PLAIN, "two")
    assert done.returncode == 2 and b"one model at a time" in done.stderr
