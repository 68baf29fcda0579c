# SPDX-License-Identifier: Apache-2.0
"""The binary interface is the one that is written down: tests/abi, src/libfletch.map, docs/promises.md."""
import difflib
import re
import shutil
import struct
import sys

import house
import pytest

sys.path.insert(0, str(house.ROOT / "tests/abi"))
import abi  # noqa: E402

AGAIN = ("a compiled program would break by any line that is changed or gone (docs/promises.md); if lines were only added, "
         "python tests/abi/abi.py writes the files anew")
pytestmark = pytest.mark.skipif(struct.calcsize("P") != 8 or sys.platform != "linux", reason="written down for 64-bit Linux")


def mapped() -> list[str]:
    return re.findall(r"^\s+(fletch_\w+);", house.text(house.ROOT / "src/libfletch.map"), re.M)


def test_structs_constants_and_functions_are_those_that_are_promised():
    promised, now = abi.TEXT.read_text(encoding="utf-8"), abi.text()
    lines = list(difflib.unified_diff(promised.split("\n"), now.split("\n"), "promised", "now", lineterm="", n=1))
    assert promised == now, AGAIN + "\n" + "\n".join(lines)


def test_abidiff_finds_no_difference(tmp_path):
    if not shutil.which("abidiff"):
        pytest.skip("abidiff is not installed (make setup: abigail-tools); the test above compares the same by layout")
    told = house.run("abidiff", abi.DUMP, abi.library(str(tmp_path)))
    assert told.returncode == 0, f"{AGAIN}\n{told.stdout}{told.stderr}"


@pytest.mark.parametrize("was, becomes", [
    ("    uint32_t deadline_ms;", "    uint64_t deadline_ms;"), ("    size_t count;", "    size_t count, more;"),
    ("FLETCH_KIND_SCORES = 2", "FLETCH_KIND_SCORES = 5"), ("int fletch_warm(fletch_model *model,", "int fletch_warm(fletch_model *model, int how,"),
    ("FLETCH_API size_t fletch_dimensions", "FLETCH_API uint32_t fletch_dimensions"), ("#define FLETCH_HISTOGRAM_BUCKETS 104", "#define FLETCH_HISTOGRAM_BUCKETS 96")])
def test_a_change_is_found(tmp_path, was, becomes):
    header = house.text(abi.HEADER)
    pattern = re.compile(re.escape(was).replace(r"\ ", r"\s+"))
    assert pattern.search(header), "the header has it no more: take another line"
    (tmp_path / "fletch.h").write_text(pattern.sub(becomes, header, count=1))
    assert abi.text(tmp_path / "fletch.h") != abi.TEXT.read_text(encoding="utf-8")
    if shutil.which("abidiff") and "#define" not in was:
        assert house.run("abidiff", abi.DUMP, abi.library(str(tmp_path), tmp_path / "fletch.h")).returncode != 0


def test_the_version_script_names_every_function():
    names = [name for one in abi.parts(abi.HEADER)[2] if not one.startswith("typedef") for name in re.findall(r"\b(fletch_\w+)\(", one)]
    assert mapped() == sorted(names), "src/libfletch.map lists what include/fletch.h declares, sorted"


def test_the_library_has_the_name_and_the_versions_of_its_symbols():
    told = house.run("readelf", "-d", house.BUILD / "libfletch.so", check=True).stdout
    assert "Library soname: [libfletch.so.0]" in told
    symbols = house.run("nm", "-D", "--defined-only", house.BUILD / "libfletch.so", check=True).stdout.split()
    assert {name.rpartition("@")[2] for name in symbols if name.startswith("fletch_")} == {"LIBFLETCH_0"}
