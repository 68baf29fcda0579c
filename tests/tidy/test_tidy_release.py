# SPDX-License-Identifier: Apache-2.0
"""What `make release` is made of, without making one: the tables, workflows and scripts name the same things; archives do
not depend on the order of their files; install.sh installs, refuses what is not the release, and removes all it laid down."""
import fnmatch
import gzip
import hashlib
import os
import re
import shutil
import sys
import zipfile

import house
import pytest

FOLDER = house.ROOT / "tools/release"
sys.path.insert(0, str(FOLDER))
import pack  # noqa: E402


def test_the_version_is_the_same_everywhere():
    assert f"project(fletch VERSION {pack.VERSION} " in house.text(house.ROOT / "CMakeLists.txt")


def test_targets_are_known_to_toolchain_installer_and_documents():
    toolchain, installer = house.text(house.ROOT / "tools/toolchain.sh"), house.text(FOLDER / "install.sh")
    patterns = " ".join(re.findall(r"^    ([-\w*| ]+)\)$", toolchain, re.M)).replace("|", " ").split()
    described, page = house.text(FOLDER / "describe.py"), house.text(house.ROOT / "docs/install.md")
    for target, name, tag, server, curl in pack.table("targets.tsv"):
        assert any(fnmatch.fnmatch(target, pattern) for pattern in patterns), target
        assert {server, curl} <= {"ON", "OFF"} and (tag == "-") == (target == "windows" or target.endswith("macos"))
        if name != "-":
            assert name in described
            assert name == "windows-x86_64" or f"system={name} ;;" in installer
    for word in ("x86-64", "aarch64", "Windows", "macOS", "never run", "make release-check"):
        assert word in page


def test_what_is_linked_is_what_the_toolchain_compiles():
    toolchain = house.text(house.ROOT / "tools/toolchain.sh")
    compiled = set(re.findall(r"get_source (\w+)$", toolchain, re.M)) | set(
        re.search(r"for file in ([\w ]+); do\n        get_source", toolchain)[1].split())
    assert compiled == {package for _, package, *_ in pack.table("linked.tsv")} - {"-"}


def test_workflows_run_scripts_that_are_there():
    text = house.text(house.ROOT / ".github/workflows/release.yml")
    called = re.findall(r"run: (tools/\S+)", text)
    assert called and all(os.access(house.ROOT / script, os.X_OK) for script in called)
    verbs = re.findall(r"run: make (\S+)", text)
    makefile = house.text(house.ROOT / "Makefile")
    assert verbs == ["release", "release-check"] and all(f"\n{verb}: ##" in makefile for verb in verbs)


def test_an_archive_does_not_depend_on_the_order_of_its_files():
    files = {"a/bin/fletch": b"program", "a/share/x": b"text", "tmp": None}
    assert pack.tar_bytes(files) == pack.tar_bytes(dict(reversed(files.items())))


def test_a_wheel_that_needs_a_newer_system_is_found(tmp_path):
    wheel = tmp_path / "fletch-0-cp311-abi3-manylinux_2_17_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as files:
        files.write(house.BUILD / "fletch", "fletch-0.data/scripts/fletch")
    result = house.run(sys.executable, FOLDER / "symbols.py", wheel)
    assert result.returncode == 1 and "needs libpcre2-8.so.0" in result.stderr


@pytest.fixture
def release(tmp_path):
    """A folder as a release leaves it, with a program that is a script; run(ARGUMENTS) runs its install.sh at home."""
    if not shutil.which("curl"):
        pytest.skip("curl is not installed (make setup)")
    system = f"linux-{os.uname().machine}"
    folder = tmp_path / "dist"
    folder.mkdir()
    name = f"fletch-9.9-{system}"
    archive = folder / f"{name}.tar.gz"
    archive.write_bytes(gzip.compress(pack.tar_bytes({
        f"{name}/bin/fletch": b"#!/bin/sh\necho fletch 9.9\n", f"{name}/share/doc/fletch/LICENSE": b"...\n",
        f"{name}/lib/systemd/system/fletch.service": b"ExecStart=/usr/local/bin/fletch serve\n"})))
    (folder / "SHA256SUMS").write_text(f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n")
    script = house.text(FOLDER / "install.sh").replace("@URL@", folder.as_uri()).replace("@VERSION@", "9.9").replace("@KEY@", "")
    (folder / "install.sh").write_text(script)
    prefix = tmp_path / "prefix"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "FLETCH_PREFIX": str(prefix)}
    return archive, prefix, lambda *words: house.run("sh", folder / "install.sh", *words, env=environment)


def test_the_installer_installs_and_leaves_nothing_behind(release):
    archive, prefix, run = release
    prefix.mkdir()
    (prefix / "share").mkdir()
    (prefix / "share/other").write_text("somebody else's")
    result = run()
    assert result.returncode == 0, result.stderr
    assert house.run(prefix / "bin/fletch").stdout == "fletch 9.9\n"
    assert f"ExecStart={prefix}/bin/fletch" in (prefix / "lib/systemd/system/fletch.service").read_text()
    assert run().returncode == 0, "again, over itself"
    assert run("--uninstall").returncode == 0
    assert sorted(str(path.relative_to(prefix)) for path in prefix.rglob("*")) == ["share", "share/other"]
    assert run("--uninstall").returncode == 1 and run("--instal").returncode == 2


def test_the_installer_refuses_what_is_not_the_release(release):
    archive, prefix, run = release
    archive.write_bytes(archive.read_bytes() + b"\0")
    result = run()
    assert result.returncode == 1 and "not the file that was released" in result.stderr
    assert not prefix.exists()
    archive.unlink()
    result = run()
    assert result.returncode == 1 and "cannot be had" in result.stderr and not prefix.exists()
