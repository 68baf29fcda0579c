# SPDX-License-Identifier: Apache-2.0
"""What keeps the rooms rooms: no large rings of files, and kinds of result known where they are made.

The include law (test_tidy_includes.py) has the arrows between rooms; here is what goes on inside of them.
"""
import json
import re

import pytest

import house
import rings

RING_MAX = 3
# Lines outside of results, fletch.c and the readers of heads that ask which kind a result or a head is.
MENTIONS_MAX = 52
KIND_FILES_MAX = 5 # that name one kind, beside the kind's own room
HEADS = {f"src/model/{name}.c" for name in ("causal_scores", "chat_template", "heads", "late_interaction", "pair_code", "router",
                                           "scores", "static", "token_heads")} | {"src/model/heads.h"}
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
            "d": "FL_REQUIRES(role) static int own(void) {\n    return 0;\n}\nint fl_d(void) {\n    return fl_a() + own();\n}\n"}
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


NEW_KIND_MAX = 6


def test_a_new_kind_of_lists_touches_few_files():
    """Counted on the last one that was added: its own file, the tables of its room, its name, the command that shows it."""
    touched = {house.name(path) for path in (house.ROOT / "src").rglob("*")
               if path.suffix in (".c", ".h", ".txt")
               and re.search(r"\bFLETCH_KIND_COLBERT\b|\b(?:fl_)?result_colbert\b", path.read_text(encoding="utf-8"))}
    assert "src/results/result_colbert.c" in touched and len(touched) <= NEW_KIND_MAX, sorted(touched)


ASSERT = re.compile(r"(?<![\w])assert\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
ASSERTS_MIN = 300
CHANGES = re.compile(r"\+\+|--|(?<![=!<>])=(?!=)|\b(?:atomic_(?:fetch|store|exchange)\w*|memcpy|memset|fl_(?:free|alloc)\w*|pthread_\w+)\(")


def asserts() -> list[tuple[str, str]]:
    found = []
    for path in house.c_files("src"):
        found += [(house.name(path), match[1]) for match in ASSERT.finditer(house.bare(path))]
    return found


def test_invariants_are_asserted():
    found = asserts()
    assert len(found) >= ASSERTS_MIN, len(found)
    for room in ("base", "scheduler", "requests", "results", "tokenizer", "model", "engines/cpu", "server"):
        assert sum(name.startswith(f"src/{room}/") for name, _ in found) >= 15, room


def test_an_assert_changes_nothing():
    """A release has none of them: what one did would be missing there."""
    wrong = [f"{name}: assert({what})" for name, what in asserts() if CHANGES.search(what)]
    assert not wrong, "\n" + "\n".join(wrong)


def test_releases_have_no_asserts_and_all_others_have():
    """Who ships: Release, and relwithdebinfo, which is for measuring it. A sanitizer without them would find less."""
    presets = {row["name"]: row.get("cacheVariables", {})
               for row in json.loads((house.ROOT / "CMakePresets.json").read_text())["configurePresets"]}
    for name, cache in presets.items():
        kind = cache["CMAKE_BUILD_TYPE"]
        flags = cache.get(f"CMAKE_C_FLAGS_{kind.upper()}", {"Release": "-O3 -DNDEBUG", "Debug": "-g"}.get(kind))
        assert ("NDEBUG" in flags) == (name in ("release", "relwithdebinfo")), name
    commands = json.loads((house.BUILD / "compile_commands.json").read_text())
    ours = [row for row in commands if row["file"].startswith(f"{house.ROOT}/src/")]
    assert ours
    cache = (house.BUILD / "CMakeCache.txt").read_text()
    release = re.search(r"^CMAKE_BUILD_TYPE:\w+=(Release|MinSizeRel)$", cache, re.M) is not None
    assert not release or all("-DNDEBUG" in row["command"] for row in ours)
