# SPDX-License-Identifier: Apache-2.0
"""What keeps the rooms rooms: no large rings of files, and kinds of result known where they are made.

The include law (test_tidy_includes.py) has the arrows between rooms; here is what goes on inside of them.
"""
import re

import pytest

import house
import rings

RING_MAX = 3
# Lines outside of results, fletch.c and the readers of heads that ask which kind a result or a head is.
MENTIONS_MAX = 105
KIND_FILES_MAX = 12 # that name one kind, beside the kind's own room
HEADS = {f"src/model/{name}.c" for name in ("causal_scores", "chat_template", "late_interaction", "pair_code", "router",
                                           "scores", "static", "token_heads")}
MENTION = re.compile(r"\bFLETCH_KIND_\w+|\bFL_HEAD_(?:EMBEDDING|SCORES|SPARSE|LATE)\b|\bis_static\b|\bchat_count\b")


@pytest.mark.parametrize("room", ["scheduler", "requests", "results", "session"])
def test_no_large_ring_of_files_that_call_each_other(room):
    """A file is read with what it calls: where four call each other in a ring, all four must be read at once."""
    large = [ring for ring in rings.rings(room) if len(ring) > RING_MAX]
    assert not large, f"{room}: {large}; who calls whom: {rings.calls(rings.units(room))}"


def test_a_ring_is_found():
    code = {"a": "int fl_a(void);\nint fl_a(void) {\n    return fl_b();\n}\n",
            "b": "int fl_b(void) {\n    return fl_c();\n}\n",
            "c": "static int own(void) {\n    return fl_a();\n}\nint fl_c(void) {\n    return own();\n}\n",
            "d": "int fl_d(void) {\n    return fl_a();\n}\n"}
    assert rings.components(rings.calls(code)) == [["a", "b", "c"]]
    code["c"] = "int fl_a(void);\nint fl_c(void) {\n    return 0;\n}\n"
    assert rings.components(rings.calls(code)) == []


def mentions() -> list[str]:
    found = []
    for path in house.c_files("src"):
        name = house.name(path)
        if name.startswith("src/results/") or name == "src/fletch.c" or name in HEADS:
            continue
        for number, line in enumerate(house.code(path).split("\n"), 1):
            if MENTION.search(line):
                found.append(f"{name}:{number}")
    return found


def test_kinds_of_results_are_known_where_they_are_made():
    """The number may only fall: whoever asks for a kind elsewhere has a table of that kind to ask instead."""
    found = mentions()
    assert len(found) <= MENTIONS_MAX, f"{len(found)} lines: {found}"
    assert len(found) > MENTIONS_MAX - 8, f"{len(found)} lines: lower MENTIONS_MAX"


def test_a_kind_is_named_in_few_files():
    """What a new kind would touch beside its own file: a program that shows it, the dialects that offer it."""
    places: dict[str, set[str]] = {}
    for path in house.c_files("src"):
        if house.name(path).startswith("src/results/"):
            continue
        for kind in re.findall(r"\bFLETCH_KIND_\w+", house.code(path)):
            places.setdefault(kind, set()).add(house.name(path))
    wide = {kind: sorted(files) for kind, files in places.items() if len(files) > KIND_FILES_MAX}
    assert places and not wide, wide
