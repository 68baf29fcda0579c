# SPDX-License-Identifier: Apache-2.0
"""test_packs.py - the golden folders are those of their packs, and unpacking loses nothing that somebody wrote."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import packs


def test_what_is_laid_out_is_what_is_packed():
    """Else: python3 tests/golden/packs.py pack, or unpack where files are missing."""
    assert packs.differing() == []


def test_packs_hold_nothing_of_chance():
    """Packing again gives the bytes that are there."""
    assert packs.made() == packs.stored()


@pytest.fixture
def here(tmp_path):
    """A folder with packs of its own; run("unpack") there."""
    shutil.copy(packs.__file__, tmp_path)
    for name, text in (("folders/family-a-small/one", "1"), ("folders/plain-x/two", "2"), ("late/three", "3")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "late/link").symlink_to("three")

    def run(word):
        return subprocess.run([sys.executable, tmp_path / "packs.py", word], capture_output=True, text=True)
    assert run("pack").stdout.split() == ["folders-family-a", "folders-plain", "late"]
    run.root = tmp_path
    return run


def repack(here, name, text):
    """As another branch would: a pack with another text, and nothing laid out by it."""
    other = here.root / "other"
    shutil.copytree(here.root, other, symlinks=True)
    (other / name).write_text(text)
    subprocess.run([sys.executable, other / "packs.py", "pack"], check=True, capture_output=True)
    shutil.rmtree(here.root / "packs")
    shutil.move(other / "packs", here.root / "packs")
    shutil.rmtree(other)


def read(here):
    return {path.relative_to(here.root).as_posix(): path.read_text() for path in here.root.rglob("*")
            if path.is_file() and path.suffix == "" and ".unpacked" not in path.name}


def test_unpacked_as_it_was_packed(here):
    before = read(here)
    for folder in ("folders", "late"):
        shutil.rmtree(here.root / folder)
    done = here("unpack")
    assert done.returncode == 0 and done.stderr == "" and read(here) == before
    assert os.readlink(here.root / "late/link") == "three" and here("check").returncode == 0


def test_what_a_pack_no_longer_has_goes_and_what_changed_comes(here):
    repack(here, "late/three", "33")
    (here.root / "packs/folders-plain.tar").unlink()
    assert here("unpack").stderr == ""
    assert read(here) == {"folders/family-a-small/one": "1", "late/three": "33", "late/link": "33"}
    assert not (here.root / "folders/plain-x").exists()


def test_what_was_written_since_is_left_and_told(here):
    repack(here, "late/three", "33")
    (here.root / "late/three").write_text("mine")
    (here.root / "late/new").write_text("mine too")
    done = here("unpack")
    assert done.returncode == 0 and "late/three" in done.stderr and "packs.py pack" in done.stderr
    assert read(here)["late/three"] == "mine" and read(here)["late/new"] == "mine too"
    assert here("check").stdout.split() == ["late/new", "late/three"] and here("pack").stdout.split() == ["late"]
    assert here("check").returncode == 0 and json.loads((here.root / ".unpacked").read_text())["files"]["late/new"]


def test_many_at_once(here):
    """Workers that begin together: each finds all files whole."""
    for folder in ("folders", "late"):
        shutil.rmtree(here.root / folder)
    running = [subprocess.Popen([sys.executable, here.root / "packs.py", "unpack"]) for _ in range(6)]
    assert [one.wait() for one in running] == [0] * 6
    assert here("check").returncode == 0 and not list(pathlib.Path(here.root).rglob(".*.[0-9]*"))
