# SPDX-License-Identifier: Apache-2.0
"""The bar is drawn on a terminal only, never in a pipe, and is gone at the end."""
import os
import pty
import re
import shutil
import subprocess

import commandline
import pytest

pytestmark = pytest.mark.usefixtures("embed")  # the model is needed, if only its tokenizer


def on_terminal(fletch, *arguments, stdout=subprocess.DEVNULL, **more):
    """Run with standard error (and stdout, when it is "terminal") on a pseudo terminal: (code, what it showed)."""
    parent, child = pty.openpty()
    process = subprocess.Popen([commandline.BIN, *map(str, arguments)], cwd=fletch.tmp_path, stderr=child,
                               stdout=child if stdout == "terminal" else stdout, stdin=subprocess.DEVNULL,
                               env=fletch.environment(**more))
    os.close(child)
    shown = b""
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(parent)
    return process.wait(timeout=commandline.WAIT), shown.decode()


def test_bar_with_share_rate_and_time_left(embed, tmp_path):
    (tmp_path / "in.txt").write_text("a text of some words that takes its time\n" * 600)
    code, shown = on_terminal(embed, "embed", "-i", "in.txt", "-o", "out.npy", "--progress", "always")
    assert code == 0
    assert re.search(r"\r\x1b\[K *\d+% \[#*-*\] \d+ texts, [\d.]+/s, \d+:\d\d left", shown)
    assert shown.endswith("\r\x1b[K"), "the bar is wiped at the end"
    assert "\n" not in shown
    assert all(len(line) < 80 for line in re.split(r"\r\x1b\[K", shown)), "it must not wrap"


@pytest.mark.parametrize("pack", [None, "gzip", "zstd"])
def test_the_share_of_a_packed_file(embed, tmp_path, pack):
    """Of 1024 like lines the first window of 256 is a quarter, whatever the file is packed in."""
    (tmp_path / "in.txt").write_text("a text of some words that takes its time\n" * 1024)
    name = {None: "in.txt", "gzip": "in.txt.gz", "zstd": "in.txt.zst"}[pack]
    if pack:
        program = shutil.which(pack) or pytest.skip(f"{pack} is not installed")
        subprocess.run([program, "-k", "-q", "in.txt"], cwd=tmp_path, check=True)
    code, shown = on_terminal(embed, "tokenize", "-i", name, "-o", "out.jsonl", "--progress", "always")
    assert code == 0 and re.search(r"\r\x1b\[K *(\d+)% ", shown)[1] in ("24", "25"), shown


def test_no_bar_when_quiet_never_short_or_results_are_on_the_terminal(embed, tmp_path):
    (tmp_path / "in.txt").write_text("some words\n" * 600)
    for flags in (["--quiet"], ["--progress", "never"]):
        code, shown = on_terminal(embed, "embed", "-i", "in.txt", "-o", "out.npy", *flags)
        assert (code, shown) == (0, "")
    code, shown = on_terminal(embed, "tokenize", "-i", "in.txt", stdout="terminal")
    assert code == 0 and "\x1b[K" not in shown and "some words" in shown, "text format on a terminal"


@pytest.mark.parametrize("name", ["npy", "npz", "raw", "fvecs"])
def test_bytes_are_not_for_a_terminal(embed, name):
    code, shown = on_terminal(embed, "embed", "--format", name, "x", stdout="terminal")
    assert code == 2 and f"--format {name} is binary and would garble the terminal" in shown and "--output" in shown


def test_lines_in_a_pipe_only_when_asked(embed, tmp_path):
    (tmp_path / "in.txt").write_text("some words\n" * 600)
    result = embed("embed", "-i", "in.txt", "-o", "out.npy")
    assert result.stderr == b""
    result = embed("embed", "-i", "in.txt", "-o", "out.npy", "--progress", "always")
    lines = result.stderr.decode().splitlines()
    assert re.fullmatch(r"100% 600 texts, [\d.]+/s", lines[-1])
    assert "\r" not in result.stderr.decode() and "\x1b" not in result.stderr.decode()


def test_messages_wipe_the_bar_first(embed, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"a text of some words that takes its time\n" * 300 + b"\xff\n")
    code, shown = on_terminal(embed, "embed", "-i", "in.txt", "-o", "out.npy", "--on-error", "skip",
                              "--progress", "always")
    assert code == 4
    before = shown[: shown.index("fletch: in.txt:301")]
    assert before.endswith("\r\x1b[K")


def test_terminal_input_is_announced(fletch):
    parent, child = pty.openpty()
    process = fletch.start("tokenize", stdin=child, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.write(parent, b"hello\n\x04")
    out, err = process.communicate(timeout=commandline.WAIT)
    os.close(parent)
    os.close(child)
    assert process.returncode == 0 and b"Ctrl-D" in err and b"hello" in out
