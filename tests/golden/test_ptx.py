# SPDX-License-Identifier: Apache-2.0
"""The conformance tests see what is wrong in PTX: nvcc's own passes them (ctest's kernels_ptx), mutated PTX does not.

Skipped by name where nvcc is not: then there is no PTX. Attention's is made by `make check-full` (tools/ptx.sh), since it takes
longest to compile.
"""
import os
import re
import subprocess

import pytest

import golden

PROGRAM, FOLDER = golden.BUILD / "fl-cuda-ptx", golden.BUILD / "tests/cuda/ptx"


def failures(tmp_path, name: str, change, *words: str, order: str = "0") -> str:
    """What the conformance tool says of a file of PTX after the change of its text."""
    if not PROGRAM.exists() or not (FOLDER / name).exists():
        pytest.skip(f"no {name}: nvcc was not found, or only `make check-full` makes it")
    text = (FOLDER / name).read_text()
    changed = change(text)
    assert changed != text
    (tmp_path / name).write_text(changed)
    done = subprocess.run([PROGRAM, "test", "--brief", *words], capture_output=True, text=True,
                          env=os.environ | {"SIM_PTX": str(tmp_path), "SIM_ORDER": order})
    assert done.returncode == 1, done.stdout[-500:] + done.stderr[-500:]
    return done.stdout


def count(said: str) -> int:
    return int(re.search(r"(\d+) failures", said)[1])


def test_nothing_changed_passes(tmp_path):
    if not PROGRAM.exists():
        pytest.skip("no PTX: nvcc was not found")
    done = subprocess.run([PROGRAM, "test", "--brief", "pool"], capture_output=True, text=True)
    assert done.returncode == 0 and count(done.stdout) == 0, done.stdout[-500:]


def test_swapped_registers_of_a_fragment(tmp_path):
    """The second and third word of A are rows g + 8 and columns k + 8: exchanged, most products are wrong."""
    mma = re.compile(r"(mma\.sync[^{]*\{[^}]*\}\s*,\s*\{[^,}]*),([^,}]*),([^,}]*),")
    said = failures(tmp_path, "attention_short.ptx", lambda text: mma.sub(r"\1,\3,\2,", text), "attention")
    assert count(said) > 1000


SHUFFLE = re.compile(r"(shfl\.sync\.bfly\.b32[^,]*,[^,]*), ([^,]*), ([^,]*),")


def test_a_shuffle_by_another_distance(tmp_path):
    """By 31, the operand that bounds it, instead of 16, 8, 4, 2, 1: sums of a warp that leave lanes out."""
    said = failures(tmp_path, "residual_norm.ptx", lambda text: SHUFFLE.sub(r"\1, \3, \3,", text), "residual_norm")
    assert count(said) > 0


def test_a_missing_barrier(tmp_path):
    """Warps in turns: what one has not written yet, another reads."""
    said = failures(tmp_path, "pool.ptx", lambda text: re.sub(r"bar\.sync\s+0;", "", text), "pool", order="7")
    assert count(said) > 0


def test_an_opcode_that_is_not_known_is_named(tmp_path):
    said = failures(tmp_path, "pool.ptx", lambda text: text.replace("sqrt.rn.f32", "sqrt.rn.f64"), "pool")
    assert "opcode sqrt.f64 is not known" in said


def test_shared_memory_that_is_overrun(tmp_path):
    said = failures(tmp_path, "pool.ptx", lambda text: re.sub(r"(\.shared \.align 16 \.b8 \w+parts)\[8192\]", r"\1[16]", text), "pool")
    assert "beyond shared memory" in said or count(said) > 0
