# SPDX-License-Identifier: Apache-2.0
"""abi.py - the binary interface that include/fletch.h promises, as text and as a library with debug information.

    python tests/abi/abi.py        writes abi.txt and, where abidw is installed, libfletch.abi anew

For a change that only adds: one that changes or takes away what is there breaks compiled programs (docs/promises.md).
abi.txt has a line for each struct (size, alignment), member (offset, size, declaration), constant, function, type and
macro, as the compiler lays them out. The library has no code, but a pointer to each function, so that its debug
information holds their types: all that abidiff needs, without a second build of the real one.
"""
import pathlib
import re
import shutil
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
HEADER = HERE.parents[1] / "include/fletch.h"
TEXT, DUMP = HERE / "abi.txt", HERE / "libfletch.abi"
# Those for programs, not for the header itself.
MACROS = re.compile(r"^#define (FLETCH_(?:NOWHERE|HISTOGRAM_BUCKETS|COUNTER_MAX|\w+_INIT))\s+(.+?)(?<!\\)$", re.M | re.S)


def declarations(header: pathlib.Path) -> str:
    """The header after the preprocessor: without what it includes, and without functions that programs compile in."""
    told = subprocess.run(["cc", "-E", header], check=True, capture_output=True, text=True).stdout
    ours, here = [], False
    for line in told.split("\n"):
        if line.startswith("# "):
            here = str(header) in line
        elif here:
            ours.append(line)
    text = re.sub(r"\s+", " ", " ".join(ours))
    text = text.replace('__attribute__((visibility("default"))) ', "")
    return re.sub(r"static (__inline|inline) [^{]*\{[^}]*\}", "", text)


def members(field: str) -> list[tuple[str, str]]:
    """Name and declaration; "uint64_t a, b" are two."""
    function = re.search(r"\(\*(\w+)\)", field)
    if function:
        return [(function[1], field)]
    first, *more = (word.strip() for word in field.split(","))
    name = re.search(r"(\w+)(\[\w+\])?$", first)
    return [(name[1], first), *((word, f"{first[:name.start()].strip()} {word}") for word in more)]


def parts(header: pathlib.Path) -> tuple[dict[str, list[tuple[str, str]]], dict[str, list[str]], list[str]]:
    """Structs with their members, enums with their constants, and what else is declared."""
    structs, enums, others = {}, {}, []
    for kind, body, name, other in re.findall(r"typedef (struct|enum) \w+ \{([^}]*)\} (\w+);|([^;{}]+);", declarations(header)):
        if kind == "struct":
            structs[name] = [one for field in body.split(";") if field.strip() for one in members(field.strip())]
        elif kind == "enum":
            enums[name] = [word.split("=")[0].strip() for word in body.split(",") if word.strip()]
        else:
            others.append(other.strip())
    return structs, enums, others


def compile_source(folder: str, header: pathlib.Path, source: str, *flags: str) -> pathlib.Path:
    path = pathlib.Path(folder) / "abi.c"
    path.write_text("#include <stddef.h>\n#include <stdio.h>\n#include <fletch.h>\n" + source)
    subprocess.run(["cc", *flags, "-w", "-I", header.parent, "-o", "abi.so", "abi.c"], cwd=folder, check=True)
    return path.with_suffix(".so")


def text(header: pathlib.Path = HEADER) -> str:
    structs, enums, others = parts(header)
    lines = []
    for name, fields in structs.items():
        lines.append(f'printf("struct {name} size %zu align %zu\\n", sizeof({name}), _Alignof({name}));')
        lines += [f'printf("  at %zu size %zu: {declaration}\\n", offsetof({name}, {member}), sizeof((({name} *)0)->{member}));'
                  for member, declaration in fields]
    for name, constants in enums.items():
        lines.append(f'printf("enum {name} size %zu\\n", sizeof({name}));')
        lines += [f'printf("  {constant} = %lld\\n", (long long){constant});' for constant in constants]
    with tempfile.TemporaryDirectory() as folder:
        program = compile_source(folder, header, "int main(void) {\n" + "\n".join(lines) + "\n}\n")
        laid_out = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    macros = [f"{name} {' '.join(value.replace(chr(92), ' ').split())}" for name, value in MACROS.findall(header.read_text(encoding="utf-8"))]
    return laid_out + "\n".join([*others, *macros]) + "\n"


def library(folder: str, header: pathlib.Path = HEADER) -> pathlib.Path:
    names = [name for one in parts(header)[2] if not one.startswith("typedef") for name in re.findall(r"\b(fletch_\w+)\(", one)]
    source = "".join(f"__typeof__({name}) *const type_of_{name} = 0;\n" for name in names)
    return compile_source(folder, header, source, "-g", "-shared", "-fPIC")


if __name__ == "__main__":
    TEXT.write_text(text(), encoding="utf-8")
    if shutil.which("abidw"):
        with tempfile.TemporaryDirectory() as place:
            subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--out-file", DUMP, library(place)],
                           check=True)
