# SPDX-License-Identifier: Apache-2.0
"""pytorch_model.bin, in every form that torch has written (make_torch_files.py), gives the bytes of model.safetensors; what a
pickle asks for is never run."""
import os
import pathlib
import pickle
import shutil
import subprocess
import zipfile

import pytest

import golden

FILES = golden.HERE / "torch_files"
TEXTS = ["the cat sat", "", "one two three " * 20]
FORMS = ["zip", "old", "strided", "shared", "shared-old", "parameters", "prefixed"]


def folder(work: pathlib.Path, weights: str | None = None, name: str = "weights-f16") -> pathlib.Path:
    path = pathlib.Path(shutil.copytree(golden.HERE / "folders" / name, work / "model"))
    if weights:
        (path / "model.safetensors").unlink()
        shutil.copy(FILES / f"{weights}.bin", path / "pytorch_model.bin")
    return path


def refused(path: pathlib.Path) -> str:
    done = subprocess.run([golden.BIN, "embed", "-m", path, "a"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 3 and not done.stdout, (done.returncode, done.stderr)
    return done.stderr


@pytest.fixture(scope="module")
def want(tmp_path_factory) -> bytes:
    work = tmp_path_factory.mktemp("want")
    return golden.embed(folder(work), TEXTS, work=work).tobytes()


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_bytes(form, want, tmp_path):
    assert golden.embed(folder(tmp_path, form), TEXTS, work=tmp_path).tobytes() == want


def test_several_files_with_an_index(want, tmp_path):
    path = folder(tmp_path, "zip")
    (path / "pytorch_model.bin").unlink()
    for file in FILES.glob("pytorch_model*"):
        shutil.copy(file, path)
    assert golden.embed(path, TEXTS, work=tmp_path).tobytes() == want
    (path / "pytorch_model-00002-of-00002.bin").unlink()
    message = refused(path)
    assert "pytorch_model-00002-of-00002.bin is missing" in message and "pytorch_model.bin.index.json" in message


def test_a_module_and_an_archive_of_64_bits(tmp_path, monkeypatch):
    path = folder(tmp_path, name="dense-tanh")
    expected = golden.embed(path, TEXTS, work=tmp_path).tobytes()
    (path / "2_Dense/model.safetensors").unlink()
    shutil.copy(FILES / "dense.bin", path / "2_Dense/pytorch_model.bin")
    assert golden.embed(path, TEXTS, work=tmp_path).tobytes() == expected
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 8)  # all numbers above it are written as of a file of 4 GiB
    with zipfile.ZipFile(FILES / "dense.bin") as source, zipfile.ZipFile(path / "2_Dense/pytorch_model.bin", "w") as archive:
        for one in source.infolist():
            archive.writestr(zipfile.ZipInfo(one.filename), source.read(one))
    assert b"PK\x06\x06" in (path / "2_Dense/pytorch_model.bin").read_bytes()
    assert golden.embed(path, TEXTS, work=tmp_path).tobytes() == expected


def test_safetensors_win_and_the_form_is_reported(tmp_path):
    path = folder(tmp_path)
    (path / "pytorch_model.bin").write_bytes(b"not read")
    golden.embed(path, TEXTS, work=tmp_path)
    (path / "model.safetensors").rename(path / "other")
    assert "it does not begin as a file of torch.save" in refused(path)
    (path / "pytorch_model.bin").unlink()
    assert "neither model.safetensors nor pytorch_model.bin" in refused(path)


class Runs:
    """Unpickled, it would make a file."""
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("form", ["zip", "old"])
def test_nothing_is_run(form, tmp_path):
    path, made = folder(tmp_path, form), tmp_path / "made"
    program = pickle.dumps({"a": Runs(made)}, protocol=2)
    if form == "zip":
        with zipfile.ZipFile(path / "pytorch_model.bin", "w") as archive:
            archive.writestr("archive/data.pkl", program)
    else:
        old = (FILES / "old.bin").read_bytes()
        start = old.index(b"ccollections\nOrderedDict") - 2
        (path / "pytorch_model.bin").write_bytes(old[:start] + program)
    assert "asks for system" in refused(path) and not made.exists()


@pytest.mark.parametrize("changes, named", [
    ((b"little_endianq\x02\x88", b"little_endianq\x02\x89"), "big-endian"),
    ((b"M\xe9\x03.", b"M\xe8\x03."), "version"),
    ((b"HalfStorage", b"FullStorage"), "FullStorage"),
    ((b"_rebuild_tensor_v2", b"_rebuild_tensor_v3"), "_rebuild_tensor_v3"),
])
def test_what_is_not_known_is_refused_by_name(changes, named, tmp_path):
    path = folder(tmp_path, "old")
    old = (FILES / "old.bin").read_bytes()
    assert changes[0] in old
    (path / "pytorch_model.bin").write_bytes(old.replace(*changes))
    assert named in refused(path)


@pytest.mark.parametrize("form", ["zip", "old"])
def test_a_file_that_is_cut_off(form, tmp_path):
    path = folder(tmp_path, form)
    whole = (FILES / f"{form}.bin").read_bytes()
    for size in [*range(0, 40, 7), *range(100, len(whole), len(whole) // 23), len(whole) - 1]:
        (path / "pytorch_model.bin").write_bytes(whole[:size])
        assert "pytorch_model.bin" in refused(path), size
