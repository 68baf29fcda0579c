# SPDX-License-Identifier: Apache-2.0
"""What `make release` is made of, without making one: the tables, workflows and scripts name the same things; archives do
not depend on the order of their files; install.sh installs, refuses what is not the release, and removes all it laid down."""
import fnmatch
import gzip
import hashlib
import json
import os
import re
import plistlib
import shutil
import struct
import sys
import zipfile

import house
import pytest

FOLDER = house.ROOT / "tools/release"
sys.path.insert(0, str(FOLDER))
import pack  # noqa: E402
import symbols  # noqa: E402


def test_the_version_is_the_same_everywhere():
    assert f"project(fletch VERSION {pack.VERSION} " in house.text(house.ROOT / "CMakeLists.txt")


def test_targets_are_known_to_toolchain_installer_and_documents():
    toolchain, installer = house.text(house.ROOT / "tools/toolchain.sh"), house.text(FOLDER / "install.sh")
    patterns = " ".join(re.findall(r"^    ([-\w*| ]+)\)$", toolchain, re.M)).replace("|", " ").split()
    described, page = house.text(FOLDER / "describe.py"), house.text(house.ROOT / "docs/install.md")
    for target, name, tag, server, curl in pack.table("targets.tsv"):
        assert any(fnmatch.fnmatch(target, pattern) for pattern in patterns), target
        assert {server, curl} <= {"ON", "OFF"} and tag != "-"
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


def test_workflows_name_what_they_use_by_its_commit_and_may_only_read():
    for workflow in (house.ROOT / ".github/workflows").glob("*.yml"):
        used = re.findall(r"uses: (.*)", house.text(workflow))
        assert used and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one) for one in used), workflow
        assert re.findall(r"^permissions:\n((?:  .*\n)+)", house.text(workflow), re.M) == ["  contents: read\n"], workflow


def test_an_archive_does_not_depend_on_the_order_of_its_files():
    files = {"a/bin/fletch": b"program", "a/share/x": b"text", "tmp": None}
    assert pack.tar_bytes(files) == pack.tar_bytes(dict(reversed(files.items())))


def test_a_wheel_that_needs_a_newer_system_is_found(tmp_path):
    wheel = tmp_path / "fletch-0-cp311-abi3-manylinux_2_17_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as files:
        files.write(house.BUILD / "fletch", "fletch-0.data/scripts/fletch")
    result = house.run(sys.executable, FOLDER / "symbols.py", wheel)
    assert result.returncode == 1 and "needs libpcre2-8.so.0" in result.stderr


def mach_o(machine, least, library):
    """The head of a library of macOS: for which processor, from which system on, and what it needs."""
    name = library.encode() + b"\0" * (8 - len(library) % 8)
    commands = [struct.pack("<6I", 0x32, 24, 1, least, 0, 0),
                struct.pack("<6I", 0x0C, 24 + len(name), 24, 0, 0, 0) + name]
    body = b"".join(commands)
    return struct.pack("<8I", 0xFEEDFACF, machine, 0, 6, len(commands), len(body), 0, 0) + body


@pytest.mark.parametrize("machine, least, library, told", [
    (0x0100000C, 11 << 16, "/usr/lib/libSystem.B.dylib", []),
    (0x0100000C, 13 << 16, "/usr/lib/libSystem.B.dylib", ["needs macOS 13.0"]),
    (0x01000007, 11 << 16, "/usr/lib/libSystem.B.dylib", ["is for a processor of the number 0x1000007"]),
    (0x0100000C, 11 << 16, "/opt/lib/libpcre2.dylib", ["needs /opt/lib/libpcre2.dylib"])])
def test_a_module_for_macos_is_held_to_its_tag(machine, least, library, told):
    assert list(symbols.faults(mach_o(machine, least, library), "macosx_11_0_arm64")) == told


def test_the_service_files_start_the_program_that_the_installer_lays_down():
    service = plistlib.loads((house.ROOT / "deploy/launchd/fletch.plist").read_bytes())
    assert service["ProgramArguments"] == ["/usr/local/bin/fletch", "serve"] and service["Label"] == "fletch"
    assert "*.plist) sed" in house.text(FOLDER / "install.sh")


def test_manifests_name_the_archives_and_their_hashes(tmp_path):
    for name in ("linux-x86_64", "linux-aarch64", "macos-arm64", "macos-x86_64"):
        (tmp_path / f"fletch-{pack.VERSION}-{name}.tar.gz").write_text(name)
    (tmp_path / f"fletch-{pack.VERSION}-windows-x86_64.zip").write_text("windows-x86_64")
    result = house.run(sys.executable, "-c", "import describe; describe.brew(), describe.nix(), describe.windows()",
                       env={**os.environ, "DIST": str(tmp_path), "PYTHONPATH": str(FOLDER),
                            "FLETCH_URL": "https://example.org/releases/1"})
    assert result.returncode == 0, result.stderr
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.glob("*-*-*")}
    for manifest, suffix in (("fletch.rb", ".tar.gz"), ("fletch.nix", ".tar.gz"), ("fletch.scoop.json", ".zip"),
                             ("fletch.winget.yaml", ".zip")):
        text = (tmp_path / manifest).read_text()
        for name in (name for name in hashes if name.endswith(suffix)):
            assert f"https://example.org/releases/1/{name}" in text and hashes[name] in text.lower(), (manifest, name)
    scoop = json.loads((tmp_path / "fletch.scoop.json").read_text())
    assert scoop["bin"] == "fletch.exe" and scoop["architecture"]["64bit"]["extract_dir"].endswith("windows-x86_64")


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


def test_an_upgrade_removes_what_the_new_version_has_not(release):
    archive, prefix, run = release
    assert run().returncode == 0 and (prefix / "share/doc/fletch/LICENSE").exists()
    name = archive.name.removesuffix(".tar.gz")
    archive.write_bytes(gzip.compress(pack.tar_bytes({f"{name}/bin/fletch": b"#!/bin/sh\necho fletch 9.10\n"})))
    (archive.parent / "SHA256SUMS").write_text(f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n")
    assert run().returncode == 0
    assert house.run(prefix / "bin/fletch").stdout == "fletch 9.10\n"
    assert not (prefix / "share/doc").exists() and not (prefix / "lib").exists()
    assert run("--uninstall").returncode == 0 and not list(prefix.rglob("*"))


def test_an_upgrade_that_breaks_off_leaves_the_program_and_a_whole_list(release):
    archive, prefix, run = release
    assert run().returncode == 0
    name = archive.name.removesuffix(".tar.gz")
    archive.write_bytes(gzip.compress(pack.tar_bytes({f"{name}/bin/fletch": b"#!/bin/sh\necho fletch 9.10\n", f"{name}/zone/x/y": b"new"})))
    (archive.parent / "SHA256SUMS").write_text(f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n")
    (prefix / "zone").write_text("where the new version wants a folder")
    result = run()
    assert result.returncode != 0 and house.run(prefix / "bin/fletch").stdout == "fletch 9.10\n", "replaced, never missing"
    (prefix / "zone").unlink()
    assert run("--uninstall").returncode == 0 and not list(prefix.rglob("*"))


def test_of_an_installer_that_was_cut_off_nothing_runs(release):
    archive, prefix, run = release
    script = archive.parent / "install.sh"
    whole = script.read_text()
    for end in (len(whole) // 3, len(whole) * 2 // 3, whole.rindex("main ")):
        script.write_text(whole[:end])
        run()
        assert not prefix.exists()


def test_a_folder_that_cannot_be_written_is_named(release):
    archive, prefix, run = release
    prefix.write_text("a file")
    result = run()
    assert result.returncode == 1 and f"{prefix} cannot be written" in result.stderr and "FLETCH_PREFIX" in result.stderr


def test_the_installer_refuses_what_is_not_the_release(release):
    archive, prefix, run = release
    archive.write_bytes(archive.read_bytes() + b"\0")
    result = run()
    assert result.returncode == 1 and "not the file that was released" in result.stderr
    assert not prefix.exists()
    archive.unlink()
    result = run()
    assert result.returncode == 1 and "cannot be had" in result.stderr and not prefix.exists()
