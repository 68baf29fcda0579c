# SPDX-License-Identifier: Apache-2.0
"""Texts of 4,097 and 8,192 tokens through every family with rotary positions: 2e-5 from sentence-transformers.

Windows, several blocks of keys, angles of thousands of turns, and mistakes that only add up over a long text. The vectors
are make_long.py's; the kernels are those of this machine, and the reference's on the shorter text.
"""
import numpy
import pytest

import golden
import make_long


@pytest.mark.parametrize("name", make_long.FOLDERS)
def test_long_texts(name, tmp_path):
    expected = numpy.load(golden.HERE / "long" / f"{name}.npy")
    for index, (text, length) in enumerate(zip(make_long.texts(), make_long.LENGTHS)):
        folder = make_long.longer(name, length, tmp_path)
        for isa in ("auto", "ref") if index == 0 and name in ("family-modernbert", "family-qwen3") else ("auto",):
            rows = golden.embed(folder, [text], "--cpu-isa", isa, work=tmp_path)
            assert golden.difference(rows, expected[index:index + 1]) <= 2e-5, (length, isa)
