# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a run at once with 130 and leaves neither a result nor a temporary file."""
import os
import signal
import subprocess
import time

import pytest
from commandline import WAIT, until

pytestmark = pytest.mark.usefixtures("embed")  # the model is needed, if only its tokenizer


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("name", ["out.npy", "out.jsonl"])
def test_interrupted_in_the_middle(embed, tmp_path, number, code, name):
    folder = tmp_path / "results"
    folder.mkdir()
    (tmp_path / "in.txt").write_text("a text of some words that takes its time\n" * 200_000)
    process = embed.start("embed", "-i", "in.txt", "-o", folder / name, "--progress", "always",
                          stderr=subprocess.PIPE)
    assert b"texts" in process.stderr.readline(), "the first window is done"
    assert len(os.listdir(folder)) == 1, "a temporary file is there"
    process.send_signal(number)
    assert process.wait(timeout=WAIT) == code
    assert b"interrupted" in process.stderr.read()
    process.stderr.close()
    assert os.listdir(folder) == []


def test_interrupted_while_waiting_for_input(embed, tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    process = embed.start("embed", "-o", folder / "out.json", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: os.listdir(folder))
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=WAIT) == 130
    assert os.listdir(folder) == []
    process.stdin.close()
    process.stderr.close()


def test_the_spool_of_a_pipe_has_no_name(embed, tmp_path):
    folder = tmp_path / "spool"
    folder.mkdir()
    process = embed.start("embed", "--format", "npy", env={"TMPDIR": str(folder)}, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(b"text\n" * 10)
    process.stdin.flush()
    time.sleep(0.5)
    assert os.listdir(folder) == []
    process.kill()
    assert process.communicate()[0] == b""


def test_an_ignored_signal_stays_ignored(fletch):
    process = fletch.start("tokenize", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.stdin.write(b"one\n")
    process.stdin.flush()
    assert process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    process.stdin.write(b"two\n")
    process.stdin.close()
    assert process.stdout.readline()
    assert process.wait(timeout=WAIT) == 0
    process.stdout.close()
