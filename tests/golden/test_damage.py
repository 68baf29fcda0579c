# SPDX-License-Identifier: Apache-2.0
"""Damaged and lying folders: a clear error or the truth, never a crash; same verdict as the reference.

The safetensors package of the format's authors is asked about each file that is made here, among them
thousands with random bits flipped, headers cut and headers built at random; model_dump --check must
accept exactly the files that it accepts. Known differences: names with NUL and tensors of more than
eight dimensions are refused here.
"""
import json
import pathlib
import random
import shutil
import struct
import subprocess

import pytest
import safetensors

import golden

DUMP = golden.BUILD / "tests/model_dump"
FOLDERS = golden.HERE / "folders"


def file_of(header: bytes | dict, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype="F32", shape=(1,), offsets=(0, 4), **more) -> dict:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)} | more


GOOD = {"a": tensor(shape=(2, 1), offsets=(0, 8)), "b": tensor("F16", (3,), (8, 14))}
CASES = {
    "empty": b"", "seven bytes": b"1234567", "no tensors": file_of({}), "rest": file_of({}, b"x"),
    "good": file_of(GOOD, bytes(14)), "short": file_of(GOOD, bytes(13)), "long": file_of(GOOD, bytes(15)),
    "header too long": file_of(GOOD, bytes(14), 1 << 62), "header one over": file_of(b"{}", b"", 3),
    "header over 100 MB": file_of(b"{}", b"", 100_000_001), "no header": file_of(b""),
    "not utf-8": file_of(b'{"\xff": 1}'), "not json": file_of(b"{nope}"), "array": file_of(b"[]"),
    "leading space": file_of(b" \n\t{}"), "trailing space": file_of(b"{}  \n"),
    "trailing text": file_of(b"{} x"), "trailing nul": file_of(b"{}\0"),
    "metadata": file_of({"__metadata__": {"format": "pt"}} | GOOD, bytes(14)),
    "metadata null": file_of(b'{"__metadata__": null}'), "metadata number": file_of(b'{"__metadata__": {"a": 1}}'),
    "metadata list": file_of(b'{"__metadata__": []}'),
    "backwards": file_of({"a": tensor(offsets=(4, 0))}, bytes(4)),
    "hole": file_of({"a": tensor(), "b": tensor(offsets=(8, 12))}, bytes(12)),
    "overlap": file_of({"a": tensor(), "b": tensor(offsets=(2, 6))}, bytes(6)),
    "shared": file_of({"a": tensor(), "b": tensor()}, bytes(4)),
    "offset not 0": file_of({"a": tensor(offsets=(4, 8))}, bytes(8)),
    "shape too large": file_of({"a": tensor(shape=(2,))}, bytes(4)),
    "shape overflows": file_of({"a": tensor(shape=(1 << 62, 1 << 62), offsets=(0, 0))}),
    "shape over u64": file_of({"a": tensor(shape=(1 << 64,), offsets=(0, 0))}),
    "shape wraps": file_of({"a": tensor(shape=(1 << 62, 4), offsets=(0, 0))}),
    "negative": file_of({"a": tensor(shape=(-1,))}, bytes(4)),
    "float shape": file_of({"a": tensor(shape=(1.0,))}, bytes(4)),
    "exponent": file_of(b'{"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}', b"x"),
    "leading zero": file_of(b'{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}', b"x"),
    "scalar": file_of({"a": tensor(shape=())}, bytes(4)),
    "zero": file_of({"a": tensor(shape=(0, 7), offsets=(0, 0)), "b": tensor()}, bytes(4)),
    "zero at end": file_of({"a": tensor(), "b": tensor(shape=(0,), offsets=(4, 4))}, bytes(4)),
    "unknown dtype": file_of({"a": tensor("F33")}, bytes(4)), "dtype number": file_of({"a": tensor(32)}, bytes(4)),
    "half a byte": file_of({"a": tensor("F4", (3,), (0, 1))}, bytes(1)),
    "two halves": file_of({"a": tensor("F4", (2,), (0, 1))}, bytes(1)),
    "six bits": file_of({"a": tensor("F6_E2M3", (4,), (0, 3))}, bytes(3)),
    "no shape": file_of(b'{"a":{"dtype":"U8","data_offsets":[0,1]}}', b"x"),
    "three offsets": file_of(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}}', b"x"),
    "one offset": file_of(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}}', b"x"),
    "field twice": file_of(b'{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    "more fields": file_of({"a": tensor(other={"x": [1, -2.5e3, "s", None, True, {}, []]})}, bytes(4)),
    "more fields, bad": file_of(b'{"a":{"z":[1,],"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    "escapes": file_of(rb'{"\u0061\n\"\\\ud83d\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    "lone surrogate": file_of(rb'{"\ud83d":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    "bad escape": file_of(rb'{"\x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    "comma at end": file_of(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},}', b"x"),
    "deep": file_of(b'{"a":{"z":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"),
    "tab in name": file_of(b'{"a\tb":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
}


def reference_accepts(data: bytes) -> bool:
    try:
        safetensors.deserialize(data)
        return True
    except safetensors.SafetensorError:
        return False


def verdicts(files: list[bytes], folder: pathlib.Path) -> list[str]:
    """What model_dump --check says of each."""
    paths = []
    for index, data in enumerate(files):
        paths.append(folder / f"{index}.safetensors")
        paths[-1].write_bytes(data)
    done = subprocess.run([DUMP, "--check"], input="".join(f"{path}\n" for path in paths),
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def compare(files: list[bytes], folder: pathlib.Path) -> None:
    for data, verdict in zip(files, verdicts(files, folder), strict=True):
        assert (verdict == "ok") == reference_accepts(data), (data[:300], verdict)


def test_cases(tmp_path):
    compare(list(CASES.values()), tmp_path)


def test_name_twice_is_refused(tmp_path):
    one = b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    two = b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}'
    assert "twice" in verdicts([file_of(b"{" + one + b"," + two + b"}", b"xx")], tmp_path)[0]


def test_flipped_bits(tmp_path):
    chance = random.Random(3)
    good = file_of(json.dumps(GOOD | {"__metadata__": {"k": "v"}}).encode() + b"  ", bytes(14))
    files = []
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            data[chance.randrange(len(good) - 14)] ^= 1 << chance.randrange(8)
        files.append(bytes(data))
    files += [good[:size] for size in range(len(good))]
    compare([data for data in files if b"\\u0000" not in data], tmp_path)


def test_random_headers(tmp_path):
    """Headers that are nearly right: shapes and offsets drawn from few values."""
    chance, files = random.Random(4), []
    for _ in range(3000):
        at, header = 0, {}
        for index in range(chance.randint(0, 4)):
            dtype, size = chance.choice((("F32", 4), ("F16", 2), ("U8", 1), ("I64", 8)))
            shape = [chance.choice((0, 1, 2, 3)) for _ in range(chance.randint(0, 3))]
            count = 1
            for dim in shape:
                count *= dim
            end = at + count * size + chance.choice((0, 0, 0, 0, 0, 1))
            header[f"t{index}"] = tensor(dtype, shape, (at, end))
            at = end + chance.choice((0, 0, 0, 0, 0, 0, 0, -1, 1))
        files.append(file_of(header, bytes(max(at, 0))))
    compare(files, tmp_path)


def test_many_tensors_take_linear_time(tmp_path):
    """100,000 entries over one range, and as many names that differ only at their end."""
    shared = {f"{'x' * 200}{index}": tensor() for index in range(100_000)}
    tiled = {f"{'x' * 200}{index}": tensor("U8", (1,), (index, index + 1)) for index in range(100_000)}
    first, second = verdicts([file_of(shared, bytes(4)), file_of(tiled, bytes(100_000))], tmp_path)
    assert "overlap" in first and second == "ok"


def dump(folder) -> subprocess.CompletedProcess:
    return subprocess.run([DUMP, folder], capture_output=True, text=True, timeout=600)


def edit(folder: pathlib.Path, name: str, **changes) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def folder(tmp_path):
    """A copy of a whole folder, links followed, that a test may damage."""
    return pathlib.Path(shutil.copytree(FOLDERS / "prompts", tmp_path / "model"))


def test_whole_folder_opens(folder):
    assert dump(folder).returncode == 0


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json"])
def test_missing_file_is_named(folder, name):
    (folder / name).unlink()
    if name == "tokenizer.json":
        (folder / "vocab.txt").unlink()
    done = dump(folder)
    assert done.returncode == 3 and name.split("/")[-1] in done.stderr
    assert "fletch model verify" in done.stderr


@pytest.mark.parametrize("path", sorted(p.name for p in (FOLDERS / "prompts").glob("*.json")
                                        if not p.name.startswith(("expected", "tokenizer."))))
def test_damaged_json_is_named(folder, path):
    good = (folder / path).read_bytes()
    for bad in (b"", good[:-3], b"\xff" + good, b"[" * 1_000_000, b'{"a":' * 100_000, b"7",
                good.replace(b"{", b"[", 1)):
        (folder / path).write_bytes(bad)
        done = dump(folder)
        assert done.returncode == 3 and path in done.stderr, bad[:50]
        assert "fletch model verify" in done.stderr


CONFIGS = {
    "model_type": ("xlnet", "xlnet"), "hidden_act": ("mish", "mish"), "position_embedding_type": ("relative_key",) * 2,
    "is_decoder": (True, "is_decoder"), "add_cross_attention": (True, "add_cross_attention"),
    "pruned_heads": ({"0": [1]}, "pruned_heads"), "quantization_config": ({"bits": 4}, "quantization_config"),
    "auto_map": ({"AutoModel": "some/where--m.M"}, "some/where"), "hidden_size": (33, "hidden_size"),
    "num_hidden_layers": (3, "encoder.layer.2"), "vocab_size": (121, "word_embeddings"),
    "num_attention_heads": (-4, "num_attention_heads"), "intermediate_size": (1 << 40, "intermediate_size"),
    "max_position_embeddings": (0, "max_position_embeddings"), "layer_norm_eps": ("small", "layer_norm_eps"),
    "type_vocab_size": (1, "token_type_embeddings"),
}


@pytest.mark.parametrize("key", CONFIGS)
def test_config_is_not_believed(folder, key):
    value, named = CONFIGS[key]
    edit(folder, "config.json", **{key: value})
    done = dump(folder)
    assert done.returncode == 3 and named in done.stderr


OTHERS = [
    ("1_Pooling/config.json", {"pooling_mode": "attention"}, "attention"),
    ("1_Pooling/config.json", {"pooling_mode": ["mean"] * 7}, "more than"),
    ("1_Pooling/config.json", {"pooling_mode_new_tokens": True}, "pooling_mode_new_tokens"),
    ("1_Pooling/config.json", {"word_embedding_dimension": 31}, "31"),
    ("sentence_bert_config.json", {"max_seq_length": -1}, "max_seq_length"),
    ("sentence_bert_config.json", {"max_seq_length": "x"}, "max_seq_length"),
    ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "fill-mask"),
    ("sentence_bert_config.json", {"config_args": {"num_hidden_layers": 1}}, "num_hidden_layers"),
    ("sentence_bert_config.json", {"tokenizer_args": {"do_lower_case": True}}, "do_lower_case"),
    ("sentence_bert_config.json", {"modality_config": {"text": {"method_output_name": "hidden_states"}}},
     "hidden_states"),
    ("sentence_bert_config.json", {"modality_config": {"text": 7}}, "text"),
    ("config_sentence_transformers.json", {"default_prompt_name": "gone"}, "gone"),
    ("config_sentence_transformers.json", {"prompts": {"a": 1}}, '"a"'),
    ("config_sentence_transformers.json", {"truncate_dim": 0}, "truncate_dim"),
    ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "SparseEncoder"),
    ("tokenizer_config.json", {"model_max_length": []}, "model_max_length"),
]


@pytest.mark.parametrize("name, changes, named", OTHERS)
def test_other_files_are_not_believed(folder, name, changes, named):
    edit(folder, name, **changes)
    done = dump(folder)
    assert done.returncode == 3 and named in done.stderr and name in done.stderr


@pytest.mark.parametrize("index, changes", [
    (2, {"type": "sentence_transformers.models.LSTM"}), (2, {"type": "somebody.code.Normalize"}),
    (1, {"type": "sentence_transformers.models.WordWeights"}), (0, {"type": "sentence_transformers.models.CLIPModel"}),
    (1, {"path": "../1_Pooling"}), (0, {"path": "/etc"}), (2, {"type": None}),
])
def test_modules_are_not_believed(folder, index, changes):
    path = folder / "modules.json"
    modules = json.loads(path.read_text())
    modules[index] |= changes
    path.write_text(json.dumps(modules))
    done = dump(folder)
    assert done.returncode == 3 and "modules.json" in done.stderr


@pytest.mark.parametrize("damage, named", [
    (lambda index: index["weight_map"].update(x="../model.safetensors"), "leaves the folder"),
    (lambda index: index["weight_map"].update(x="/etc/passwd"), "leaves the folder"),
    (lambda index: index["weight_map"].update(x="model-00009-of-00003.safetensors"), "is missing"),
    (lambda index: index["weight_map"].update(x="model-00001-of-00003.safetensors"), "does not hold x"),
    (lambda index: index["weight_map"].update(x=3), "not a string"),
    (lambda index: index["weight_map"].clear(), "no weight_map"),
    (lambda index: index["weight_map"].pop("embeddings.word_embeddings.weight"), "word_embeddings"),
])
def test_index_is_not_believed(tmp_path, damage, named):
    folder = pathlib.Path(shutil.copytree(FOLDERS / "weights-sharded", tmp_path / "model"))
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    damage(index)
    path.write_text(json.dumps(index))
    done = dump(folder)
    assert done.returncode == 3 and named in done.stderr


@pytest.mark.parametrize("changes, named", [
    ({"activation_function": "torch.nn.modules.activation.Mish"}, "Mish"),
    ({"activation_function": "somebody.Tanh"}, "somebody"), ({"use_residual": True}, "residual.weight"),
    ({"module_input_name": "token_embeddings"}, "token_embeddings"), ({"in_features": 31}, "31"),
    ({"out_features": 17}, "linear.weight"), ({"out_features": 1 << 30}, "out_features"),
])
def test_dense_is_not_believed(tmp_path, changes, named):
    folder = pathlib.Path(shutil.copytree(FOLDERS / "dense-tanh", tmp_path / "model"))
    edit(folder, "2_Dense/config.json", **changes)
    done = dump(folder)
    assert done.returncode == 3 and named in done.stderr


def test_what_is_not_of_torch_says_how_to_convert_it(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    done = dump(folder)
    assert done.returncode == 3 and "torch.save" in done.stderr and "safetensors.torch.save_file" in done.stderr
