# SPDX-License-Identifier: Apache-2.0
"""Sentences end where Unicode's rules end them, Markdown's sections where CommonMark has a heading.

units.json is made by make_units.py, which says of what; it also runs Unicode's own test."""
import json
import os
import pathlib
import struct
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
DUMP = pathlib.Path(os.environ.get("FLETCH_BUILD", HERE.parents[1] / "build")) / "tests" / "unit_dump"
SECTION, BLOCK, PARAGRAPH, SENTENCE, WORD = range(5)  # fl_unit


def ends_of(unit, texts):
    """Where the units of each text end, in bytes."""
    data = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)
    out = subprocess.run([DUMP, str(unit)], input=data, stdout=subprocess.PIPE, check=True).stdout
    ends, at = [], 0
    for _ in texts:
        count, = struct.unpack_from("<I", out, at)
        ends.append(list(struct.unpack_from(f"<{count}I", out, at + 4)))
        at += 4 + 4 * count
    return ends


@pytest.mark.parametrize("name, unit", [("sentences", SENTENCE), ("sections", SECTION)])
def test_units_end_where_the_reference_ends_them(name, unit):
    cases = json.loads((HERE / "units.json").read_text(encoding="utf-8"))[name]
    for (text, expected), ends in zip(cases, ends_of(unit, [text for text, _ in cases]), strict=True):
        assert ends == expected, text


@pytest.mark.parametrize("unit, pieces", [
    (PARAGRAPH, ["\n\na\nb\n\n \t\n", "c\r\n\r\n", "d"]),
    (BLOCK, ["# A\n\n## B\n\ntext\n\n", "more\n", "```\n# x\n\ny\n```\n\n", "z\n", "# C\n"]),
    (BLOCK, ["```\nno end\n\n# in it\n"]),
    (WORD, ["  ", "one ", "two,\n\t", "\u732b", "\u306f", "\u5ea7", "\u308b\u3002x", "\u732b ", "caf\u00e9"]),
])
def test_units_keep_what_follows_them(unit, pieces):
    ends, at = [], 0
    for piece in pieces:
        at += len(piece.encode())
        ends.append(at)
    assert ends_of(unit, ["".join(pieces)]) == [ends]
