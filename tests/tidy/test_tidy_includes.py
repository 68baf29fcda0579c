# SPDX-License-Identifier: Apache-2.0
"""The include law: arrows between rooms point down only (ARCHITECTURE.md has the drawing).

base < {config, hub} < {tokenizer, model} < engine.h < engines/x; results stands on tokenizer and model; scheduler
on engine.h alone, and knows neither text nor request; requests on results and scheduler, session on all of these;
fletch.c takes requests, session and what lies below, but no engine; the program and the examples live on fletch.h (the
program also on base's helpers that hold no state). Tokenizer and model do not know each other, nor do engines.
"""
import re

import pytest

import house

LAW = {
    "include": set(),
    "base": {"base"},
    "config": {"base", "config"},
    "tokenizer": {"base", "config", "tokenizer"},
    "hub": {"base", "hub"},
    "model": {"base", "config", "hub", "model"},
    "engines/engine.h": {"base", "config", "model"},
    "engines/registry.c": {"base", "config", "model", "engines/engine.h", "engines/cpu", "engines/cuda",
                           "engines/onnxruntime"},
    "engines/cpu": {"base", "config", "model", "engines/engine.h", "engines/cpu"},
    "engines/cuda": {"base", "config", "model", "engines/engine.h", "engines/cuda"},
    "engines/onnxruntime": {"base", "config", "model", "engines/engine.h", "engines/onnxruntime"},
    "results": {"base", "config", "tokenizer", "model", "results"},
    "scheduler": {"base", "config", "engines/engine.h", "scheduler"},
    "requests": {"base", "config", "tokenizer", "model", "results", "scheduler", "requests"},
    "session": {"base", "config", "tokenizer", "hub", "model", "results", "engines/engine.h", "scheduler", "requests", "session"},
    "fletch.c": {"base", "config", "tokenizer", "hub", "model", "results", "requests", "session"},
    "store": {"base", "store"},
    "server": {"base", "store", "server"},
    "cli/cmd_serve.c": {"base", "cli", "server"},
    "cli/stored_sqlite.c": {"base", "cli", "store"},
    "cli/move_store.c": {"base", "cli", "store"},
    "cli": {"base", "cli"},
    "examples": set(),
}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)

# Libraries of others, each behind one room.
FOREIGN = {"pcre2.h": {"tokenizer"}, "curl": {"base"}, "sqlite3.h": {"store"},
           "immintrin.h": {"base", "tokenizer", "engines/cpu", "server", "store"}}


def room(path: str) -> str:
    """src-relative path -> key of LAW."""
    if path in LAW:
        return path
    parts = path.split("/")
    if parts[0] == "engines":
        return "/".join(parts[:2])
    return parts[0]


def arrows():
    for path in house.c_files("src"):
        source = str(path.relative_to(house.ROOT / "src"))
        for target in INCLUDE.findall(house.text(path)):
            if target == "fletch.h":
                continue
            if not (house.ROOT / "src" / target).exists() and (path.parent / target).exists():
                target = str((path.parent / target).resolve().relative_to(house.ROOT / "src"))
            yield house.name(path), source, target


def test_arrows_point_down_only():
    wrong = []
    for name, source, target in arrows():
        allowed = LAW.get(room(source))
        if allowed is None:
            wrong.append(f"{name}: a room the law does not know")
        elif not (house.ROOT / "src" / target).exists():
            wrong.append(f"{name}: {target} is not a path below src/")
        elif room(target) not in allowed:
            wrong.append(f"{name}: may not include {target} ({room(source)} takes only {sorted(allowed)})")
    assert not wrong, "\n" + "\n".join(wrong)


def test_there_are_arrows_to_judge():
    assert len(list(arrows())) > 50


def test_the_public_header_and_the_examples_stand_alone():
    wrong = []
    for path in house.c_files("include", "examples"):
        for target in INCLUDE.findall(house.text(path)):
            if target != "fletch.h":
                wrong.append(f"{house.name(path)}: includes {target}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_python_package_stands_on_the_public_header():
    """Its own headers, fletch.h and Python.h: what lies in src/ is not its business."""
    wrong = []
    for path in house.c_files("python"):
        for target in INCLUDE.findall(house.text(path)):
            if target != "fletch.h" and not (path.parent / target).exists():
                wrong.append(f"{house.name(path)}: includes {target}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_foreign_libraries_stay_behind_their_room():
    wrong = []
    for path in house.c_files("src"):
        source = room(str(path.relative_to(house.ROOT / "src")))
        for target in re.findall(r"^\s*#\s*include\s*<([^>]+)>", house.text(path), re.M):
            rooms = FOREIGN.get(target.split("/")[0])
            if rooms is not None and source not in rooms:
                wrong.append(f"{house.name(path)}: <{target}> belongs to {sorted(rooms)}")
    assert not wrong, "\n" + "\n".join(wrong)


DEFINED = re.compile(r"^(?!static|typedef|extern)[A-Za-z_][\w *]*?\b(fl_\w+)\(", re.M)


@pytest.mark.parametrize("where", ["scheduler", "requests", "session"])
def test_a_file_of_the_room_has_one_header(where):
    """What queue.c defines is declared in queue.h and nowhere else, so that an include names what it is for."""
    wrong = []
    folder = house.ROOT / "src" / where
    for path in sorted(folder.glob("*.c")):
        own = path.with_suffix(".h")
        if not own.exists() or f'"{folder.name}/{own.name}"' not in house.text(path):
            wrong.append(f"{house.name(path)}: has or includes no {own.name}")
            continue
        defined = {match[1] for match in DEFINED.finditer(house.code(path))
                   if house.code(path)[match.end():].partition("{")[0].find(";") < 0}
        for name in sorted(defined):
            places = [header.name for header in sorted(folder.glob("*.h"))
                      if re.search(rf"^(?!static)[A-Za-z_][\w *]*\b{name}\(", house.code(header), re.M)]
            if places != [own.name]:
                wrong.append(f"{house.name(path)}: {name} is declared in {places}")
    assert not wrong, "\n" + "\n".join(wrong)
