# SPDX-License-Identifier: Apache-2.0
"""bge-m3's heads over tokens are FlagEmbedding's (make_token_heads.py), wherever their tensors lie; a pickle is never run."""
import json
import pickle
import pickletools
import shutil
import struct
import subprocess
import zipfile

import numpy
import pytest
from safetensors.numpy import load_file, save_file

import golden

FOLDER = golden.HERE / "token_heads/bge-m3"
TEXTS = json.loads((FOLDER.parent / "texts.json").read_text(encoding="utf-8"))
WANT = numpy.load(FOLDER / "expected.npz")
COLBERT = ("--model-pooling", "colbert")


def run(*arguments, status=0):
    done = subprocess.run([golden.BIN, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == status, (done.returncode, done.stderr)
    return done.stdout if status == 0 else done.stderr


def lists(folder, kind, texts, work, *flags):
    source, result = work / "texts.jsonl", work / "lists.npz"
    source.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    run("embed", "-m", folder, "--output-kind", kind, "-i", source, "-o", result, *flags)
    return dict(numpy.load(result))


def tensors_of(name):
    """The two tensors of a .pt file, without torch: the storages in the order of the pickle."""
    with zipfile.ZipFile(FOLDER / f"{name}.pt") as archive:
        found = {one.filename.split("/", 1)[1]: archive.read(one) for one in archive.infolist()}
    rows = 1 if name == "sparse_linear" else 32
    return {"weight": numpy.frombuffer(found["data/0"], "<f2").reshape(rows, 32), "bias": numpy.frombuffer(found["data/1"], "<f2")}


def copy(work):
    shutil.copytree(FOLDER, work / "model")
    return work / "model"


@pytest.mark.parametrize("place", ["pt", "safetensors", "model"])
def test_sparse_and_dense_of_one_model(place, tmp_path):
    path = copy(tmp_path)
    if place != "pt":
        for name in ("sparse_linear", "colbert_linear"):
            (path / f"{name}.pt").unlink()
            if place == "safetensors":
                save_file(tensors_of(name), path / f"{name}.safetensors")
            else:
                whole = load_file(path / "model.safetensors") | {f"{name}.{key}": value for key, value in tensors_of(name).items()}
                save_file(whole, path / "model.safetensors", metadata={"format": "pt"})
    found = lists(path, "sparse", TEXTS, tmp_path)
    assert found["indptr"].tolist() == WANT["sparse_offsets"].tolist()
    assert found["indices"].tolist() == WANT["ids"].tolist()
    assert abs(found["data"] - WANT["weights"]).max() <= 1e-5
    assert found["shape"][1] == json.loads((path / "config.json").read_text())["vocab_size"]
    for i in range(len(TEXTS)):
        alone = lists(path, "sparse", TEXTS[i:i + 1], tmp_path, "--threads", "2")
        assert alone["data"].tobytes() == found["data"][slice(*found["indptr"][i:i + 2])].tobytes()
    assert golden.difference(golden.embed(path, TEXTS, work=tmp_path), WANT["rows"]) <= 1e-5
    vectors = lists(path, "tokens", TEXTS, tmp_path, *COLBERT)
    assert vectors["offsets"].tolist() == WANT["offsets"].tolist()
    assert golden.difference(vectors["embeddings"], WANT["vectors"]) <= 1e-5


def test_scores_of_token_vectors(tmp_path):
    source = tmp_path / "documents.jsonl"
    source.write_text("".join(json.dumps(text) + "\n" for text in TEXTS), encoding="utf-8")
    for query in (0, 1, 4, 7):
        out = run("rerank", "-m", FOLDER, *COLBERT, "--query", TEXTS[query], "-i", source, "--format", "jsonl")
        scores = {row["index"]: row["score"] for row in map(json.loads, out.splitlines())}
        assert abs(numpy.array([scores[i] for i in range(len(TEXTS))]) - WANT["scores"][query]).max() <= 1e-5


def test_light_weights_are_left_out(tmp_path):
    whole = lists(FOLDER, "sparse", TEXTS[1:3], tmp_path)
    top = lists(FOLDER, "sparse", TEXTS[1:3], tmp_path, "--top-k", "1")
    assert top["data"].tolist() == [whole["data"][slice(*whole["indptr"][i:i + 2])].max() for i in range(2)]
    least = float(numpy.median(whole["data"]))
    assert lists(FOLDER, "sparse", TEXTS[1:3], tmp_path, "--threshold", str(least))["data"].min() >= numpy.float32(least)


def test_what_doctor_says(tmp_path):
    assert "by the weights of tokens" in run("doctor", "-m", FOLDER)
    path = copy(tmp_path)
    (path / "sparse_linear.pt").write_bytes(b"PK\x03\x04 and no archive, but long enough for one")
    assert "cannot be read" in run("doctor", "-m", path)
    rows = subprocess.run([golden.BIN, "embed", "-m", path, "the cat"], capture_output=True, text=True, check=True)
    assert rows.stdout and "no sparse vectors: " in rows.stderr


# ---- Files that are not what they should be -------------------------------------------------------------------------

def state(size=32):
    """The pickle of torch's state_dict of a Linear(size, 1), opcode by opcode."""
    def tensor(key, sizes, strides, elements):
        def ints(values):
            return b"".join(b"K" + bytes([value]) for value in values) + {1: b"\x85", 2: b"\x86"}[len(values)]
        return (b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nHalfStorage\nX\x01\0\0\0" + key +
                b"X\x03\0\0\0cpuK" + bytes([elements]) + b"tQK\0" + ints(sizes) + ints(strides) + b"\x89ccollections\nOrderedDict\n)RtR")
    return (b"\x80\x02ccollections\nOrderedDict\n)R(X\x06\0\0\0weight" + tensor(b"0", (1, size), (size, 1), size) +
            b"X\x04\0\0\0bias" + tensor(b"1", (1,), (1,), 1) + b"u.")


def archive(path, program, order=b"little", stored=zipfile.ZIP_STORED, first=64, folder="a/"):
    with zipfile.ZipFile(path, "w", stored) as out:
        out.writestr(folder + "data.pkl", program)
        out.writestr(folder + "byteorder", order)
        out.writestr(folder + "data/0", struct.pack("<32e", *[0.5] * 32)[:first])
        out.writestr(folder + "data/1", struct.pack("<e", 0.25))


def refusal(path):
    return run("embed", "-m", path, "--output-kind", "sparse", "the cat", status=3)


def test_the_pickle_written_by_hand_is_read(tmp_path):
    path = copy(tmp_path)
    pickletools.dis(state(), out=open(tmp_path / "listing", "w"))
    archive(path / "sparse_linear.pt", state())
    assert run("embed", "-m", path, "--output-kind", "sparse", "the cat").strip()


class Evil:
    def __init__(self, made):
        self.made = made

    def __reduce__(self):
        import os
        return os.mkdir, (str(self.made),)


@pytest.mark.parametrize("name, change, words", [
    ("call", lambda p: p.replace(b"_rebuild_tensor_v2", b"_rebuild_parameter"), "makes a call"),
    ("storage", lambda p: p.replace(b"HalfStorage", b"LongStorage"), "not as large"),
    ("class", lambda p: p.replace(b"HalfStorage", b"QInt8Storage"), "QInt8Storage"),
    ("protocol", lambda p: p.replace(b"\x80\x02", b"\x80\x04", 1), "protocol"),
    ("opcode", lambda p: p.replace(b"\x89", b"I", 1), "opcode 0x49"),
    ("flag", lambda p: p.replace(b"\x89", b"N", 1), "in another way"),
    ("cut", lambda p: p[:-30], "truncated"),
    ("empty", lambda p: b"", "truncated"),
    ("strides", lambda p: p.replace(b"K\x20K\x01\x86", b"K\x01K\x20\x86", 1), "larger than its storage"),
    ("sizes", lambda p: p.replace(b"K\x01K\x20\x86", b"K\x02K\x20\x86", 1), "larger than its storage"),
    ("offset", lambda p: p.replace(b"tQK\0", b"tQK\x01", 1), "larger than its storage"),
    ("elements", lambda p: p.replace(b"cpuK\x20", b"cpuK\x21", 1), "not as large"),
    ("key", lambda p: p.replace(b"X\x01\0\0\x000", b"X\x01\0\0\x007", 1), "storage is missing"),
    ("names", lambda p: p.replace(b"X\x04\0\0\0bias", b"X\x06\0\0\0weight"), "two tensors have one name"),
    ("number", lambda p: p.replace(b"u.", b"X\x01\0\0\0xK\x01u."), "something other than tensors"),
    ("result", lambda p: p.replace(b"u.", b"uK\x01."), "dictionary alone"),
    ("stack", lambda p: b"\x80\x02R.", "missing value"),
    ("recall", lambda p: b"\x80\x02h\x09.", "never there"),
    ("state", lambda p: p.replace(b"u.", b"uK\x01b."), "a state"),
    ("without a bias", lambda p: p.replace(b"X\x04\0\0\0bias", b"X\x04\0\0\0cias"), "bias is missing"),
    ("wide", lambda p: state(16), "shape"),
])
def test_another_pickle_is_refused(name, change, words, tmp_path):
    path = copy(tmp_path)
    program = change(state())
    assert program != state()
    archive(path / "sparse_linear.pt", program, first=32 if name == "wide" else 64)
    assert words in refusal(path)
    assert golden.embed(path, ["the cat"], work=tmp_path).shape == (1, 32)  # its rows do not depend on it


def test_a_program_is_not_run(tmp_path):
    path, made = copy(tmp_path), tmp_path / "made"
    for protocol in (0, 2, 4):
        archive(path / "sparse_linear.pt", pickle.dumps({"weight": Evil(made)}, protocol))
        assert "runs no code" in refusal(path) and not made.exists()


def test_archives_that_torch_does_not_write(tmp_path):
    path = copy(tmp_path)
    archive(path / "sparse_linear.pt", state(), order=b"big")
    assert "big-endian" in refusal(path)
    archive(path / "sparse_linear.pt", state(), stored=zipfile.ZIP_DEFLATED)
    assert "compressed" in refusal(path)
    archive(path / "sparse_linear.pt", state(), folder="")
    assert "no folder" in refusal(path)
    archive(path / "sparse_linear.pt", state(), first=62)
    assert "not as large" in refusal(path)
    whole = (FOLDER / "sparse_linear.pt").read_bytes()
    for size in (0, 21, 200, len(whole) // 2, len(whole) - 1):
        (path / "sparse_linear.pt").write_bytes(whole[:size])
        assert refusal(path)
    (path / "sparse_linear.pt").write_bytes(pickle.dumps({"weight": 1}, 2))
    assert "does not begin as" in refusal(path)


@pytest.mark.parametrize("folder, words", [("folders/plain-bert", "colbert_linear"), ("folders/family-static", "colbert"),
                                           ("late/bert", "colbert"), ("scores/bert", "colbert"), ("folders/sparse-bert", "colbert")])
def test_colbert_where_there_is_none(folder, words):
    assert words in run("embed", "-m", golden.HERE / folder, "--output-kind", "tokens", *COLBERT, "a", status=3)
