# SPDX-License-Identifier: Apache-2.0
"""rings.py - which files of a room call each other in a ring: a small reader of calls, and Tarjan's components."""
import re

import house

# A definition begins in the first column and ends its head with a brace; calls are names before a parenthesis.
DEFINITION = re.compile(r"^(?!typedef|extern|struct \w+ \{|enum|union|#)[A-Za-z_][\w \t\n*()]*?\b(\w+)\(([^;{}]*?)\)[^;{}=]*\{", re.M)
CALL = re.compile(r"\b([a-z]\w*)\s*\(")
DECLARATION = re.compile(r"^[A-Za-z_][^;{}#]*;", re.M) # of a header: whoever declares does not call


def units(room: str) -> dict[str, str]:
    """Code by name of file without its ending: a header belongs to its source."""
    found: dict[str, str] = {}
    for path in sorted((house.ROOT / "src" / room).glob("*.[ch]")):
        found[path.stem] = found.get(path.stem, "") + "\n" + house.code(path)
    return found


def calls(code: dict[str, str]) -> dict[str, dict[str, set[str]]]:
    """unit -> unit it calls -> the names."""
    home = {}
    for unit, text in code.items():
        for match in DEFINITION.finditer(text):
            head = match[0][:match.start(1) - match.start()]
            if "static" not in head or "inline" in head:
                home[match[1]] = unit
    arrows: dict[str, dict[str, set[str]]] = {unit: {} for unit in code}
    for unit, text in code.items():
        for name in CALL.findall(DECLARATION.sub("", text)):
            if name in home and home[name] != unit:
                arrows[unit].setdefault(home[name], set()).add(name)
    return arrows


def components(arrows: dict[str, dict[str, set[str]]]) -> list[list[str]]:
    """Those of more than one file, the largest first."""
    index, low, stack, found = {}, {}, [], []

    def visit(unit):
        index[unit] = low[unit] = len(index)
        stack.append(unit)
        for other in arrows[unit]:
            if other not in index:
                visit(other)
                low[unit] = min(low[unit], low[other])
            elif other in stack:
                low[unit] = min(low[unit], index[other])
        if low[unit] == index[unit]:
            ring = []
            while not ring or ring[-1] != unit:
                ring.append(stack.pop())
            if len(ring) > 1:
                found.append(sorted(ring))

    for unit in arrows:
        if unit not in index:
            visit(unit)
    return sorted(found, key=len, reverse=True)


def rings(room: str) -> list[list[str]]:
    return components(calls(units(room)))
