# SPDX-License-Identifier: Apache-2.0
"""The built library: exports fletch_* alone, keeps no state, and its header is good C99, C17 and C++."""
import re
import shutil

import house
import pytest

HEADER = house.ROOT / "include/fletch.h"

# What belongs to the process by its nature: how often the heap was asked, and the test hook; ONNX Runtime's
# environment, of which a process has one; the CUDA module, libcurl and libcrypto, which a process opens once;
# what its models tell each other of interactive texts.
STATE_ALLOWED = {"mem.c", "library.c", "loader.c", "libcurl.c", "sha256.c", "interactive.c"}


def exported() -> set[str]:
    result = house.run("nm", "-D", "--defined-only", house.BUILD / "libfletch.so", check=True)
    return {line.split()[-1].split("@")[0] for line in result.stdout.splitlines() if line.split()[-2] != "A"}  # A: a version


def declared() -> list[tuple[str, int]]:
    """(name, line) of every FLETCH_API declaration."""
    found = []
    for match in re.finditer(r"^FLETCH_API\b[^;]*?\b(fletch_\w+)\(", house.text(HEADER), re.M):
        found.append((match.group(1), house.text(HEADER)[:match.start()].count("\n")))
    return found


def test_the_shared_library_exports_only_our_names():
    names = exported()
    assert names, "nothing is exported"
    foreign = sorted(name for name in names if not name.startswith("fletch_"))
    assert not foreign, f"exported by mistake: {foreign}"


def test_every_public_function_is_exported_and_nothing_else():
    names = {name for name, _ in declared()}
    assert len(names) > 25
    assert names == exported()


def test_every_public_function_is_documented():
    """By a comment that ends right above it, or by one behind it for the plain …_free and …_close."""
    lines = house.text(HEADER).split("\n")
    wrong = []
    for name, line in declared():
        end = next(number for number in range(line, line + 5) if ";" in lines[number])
        above = line - 1
        while lines[above].strip() and not lines[above].strip().endswith("*/"):
            above -= 1
        if not lines[end].rstrip().endswith("*/") and not lines[above].strip().endswith("*/"):
            wrong.append(f"include/fletch.h:{line + 1}: {name} has no comment")
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_library_needs_little():
    """What a download, a hash or an engine needs beyond it is opened when it is needed."""
    result = house.run("readelf", "-d", house.BUILD / "libfletch.so", check=True)
    needed = set(re.findall(r"\(NEEDED\).*\[(\w+)", result.stdout))
    assert needed <= {"libc", "libm", "libpcre2", "libasan", "libubsan", "libtsan", "ld"}, needed


def test_the_library_keeps_no_mutable_state():
    result = house.run("objdump", "-t", house.BUILD / "libfletch.a", check=True)
    member, wrong = "", []
    for line in result.stdout.splitlines():
        match = re.match(r"^(\S+):\s+file format", line)
        if match:
            member = match.group(1)
            continue
        match = re.match(r"^[0-9a-f]+ .{7} (\S+)\s+([0-9a-f]+)\s+(?:\.hidden )?(\S+)$", line)
        if not match or int(match.group(2), 16) == 0:
            continue
        section, _, symbol = match.groups()
        writable = re.match(r"\.(data|bss|tbss|tdata)(\.|$)|\*COM\*", section)
        if writable and not section.startswith(".data.rel.ro"):
            if not any(member.startswith(allowed) for allowed in STATE_ALLOWED):
                wrong.append(f"{member}: {symbol} in {section}")
    assert not wrong, "the library keeps no mutable global state:\n" + "\n".join(wrong)


@pytest.mark.parametrize("compiler, flags", [
    ("gcc", ["-x", "c", "-std=c89", "-pedantic-errors"]),
    ("g++", ["-x", "c++", "-std=c++98", "-pedantic-errors"]),
    ("gcc", ["-x", "c", "-std=c99", "-pedantic-errors"]),
    ("gcc", ["-x", "c", "-std=c17", "-pedantic-errors"]),
    ("g++", ["-x", "c++", "-std=c++11", "-pedantic-errors"]),
    ("clang", ["-x", "c", "-std=c99", "-Wno-unknown-warning-option", "-Weverything", "-Wno-unused-macros",
               "-Wno-padded", "-Wno-reserved-identifier", "-Wno-declaration-after-statement",
               "-Wno-documentation-unknown-command",
               "-Wno-unsafe-buffer-usage"]),
    ("clang++", ["-x", "c++", "-std=c++17", "-Wall", "-Wextra"]),
])
def test_the_header_compiles_alone(compiler, flags, tmp_path):
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed (make setup)")
    source = tmp_path / "alone.c"
    source.write_text('#include <fletch.h>\n#include <fletch.h>\nint main(void) { return fletch_version() == 0; }\n')
    result = house.run(compiler, *flags, "-Wall", "-Wextra", "-Wshadow", "-Werror", "-fsyntax-only",
                       "-I", house.ROOT / "include", source)
    assert result.returncode == 0, result.stderr


def test_status_values_are_pinned():
    """Programs compile these numbers in: they never change, new ones are appended."""
    pairs = re.findall(r"X\((E\w+), (-\d+),", house.text(HEADER))
    assert pairs[:18] == [(name, str(-number)) for number, name in enumerate(
        "EINVAL ENOMEM EIO ENOTFOUND EMODEL EUNSUPPORTED ECONFIG EUTF8 ETOOLONG ENETWORK EDENIED ECHECKSUM "
        "EPROVIDER ECANCELLED EDEADLINE EBUSY ENOSPC EINTERNAL".split(), 1)]
