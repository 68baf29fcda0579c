# SPDX-License-Identifier: Apache-2.0
"""Completion scripts are valid for their shell, and bash's really completes."""
import re
import shutil
import subprocess

import commandline
import pytest


def script(fletch, shell):
    result = fletch("completion", shell)
    assert result.returncode == 0
    return result.stdout.decode()


def complete(fletch, tmp_path, *words):
    """What bash would offer for the last word."""
    (tmp_path / "fletch.bash").write_text(script(fletch, "bash"))
    quoted = " ".join(f"'{word}'" for word in words)
    program = (f"set -u; source fletch.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
               '_fletch; printf "%s\\n" "${COMPREPLY[@]+"${COMPREPLY[@]}"}"')
    result = subprocess.run(["bash", "--norc", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_bash_completes(fletch, tmp_path):
    assert complete(fletch, tmp_path, "fletch", "em") == ["embed"]
    assert "--similarity" in complete(fletch, tmp_path, "fletch", "embed", "--s")
    assert complete(fletch, tmp_path, "fletch", "embed", "--provider-ord") == ["--provider-order"]
    assert complete(fletch, tmp_path, "fletch", "embed", "--format", "np") == ["npy", "npz"]
    assert complete(fletch, tmp_path, "fletch", "tokenize", "--format", "np") == []
    assert complete(fletch, tmp_path, "fletch", "embed", "--cpu-isa", "av") == ["avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16"]
    assert complete(fletch, tmp_path, "fletch", "model", "pu") == ["pull"]
    assert complete(fletch, tmp_path, "fletch", "-q", "model", "ver") == ["verify"]
    assert complete(fletch, tmp_path, "fletch", "help", "cpu.i") == [
        "cpu.intra_op_threads", "cpu.inter_op_threads", "cpu.isa"]
    assert "--dtype" not in complete(fletch, tmp_path, "fletch", "doctor", "--")


@pytest.mark.parametrize("shell, check", [("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]),
                                          ("fish", ["fish", "--no-execute"])])
def test_scripts_parse(fletch, tmp_path, shell, check):
    if shutil.which(check[0]) is None:
        pytest.skip(f"no {check[0]} here")
    path = tmp_path / "script"
    path.write_text(script(fletch, shell))
    result = subprocess.run([*check, path], capture_output=True, text=True)
    assert result.returncode == 0 and result.stderr == "", result.stderr


@pytest.mark.parametrize("shell, name", [("bash", "fletch.bash"), ("zsh", "_fletch"), ("fish", "fletch.fish")])
def test_the_copies_know_the_same_flags(fletch, shell, name):
    """completions/ is for those who package the sources; `ninja completions` brings it up to date."""
    def flags(text):
        return set(re.findall(r"--[a-z][a-z0-9-]+|-l [a-z][a-z0-9-]+", text))
    copy = (commandline.ROOT / "completions" / name).read_text()
    assert flags(copy) == flags(script(fletch, shell))
