# SPDX-License-Identifier: Apache-2.0
"""The numerics number: the bytes of vectors are those of numerics.json on every instruction set that this machine has, or
the number (src/runtime/vector_id.h) is another one.

numerics.json has, of each number, the first 16 digits of a SHA-256 over the rows of folders/texts.json: by instruction set, precision
and folder. A change that means to change bytes raises FL_NUMERICS and writes the table anew: test_numerics.py --write (needs every
instruction set; the numbers before stay). Bytes may depend on the libm of the system (exp, sin), and products of bfloat16 on who made
the processor (what vdpbf16ps rounds between its two products is not written down), so the table says with which it was written; with
others differences are told as skipped.
"""
import hashlib
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

import pytest

import golden

FOLDERS, TABLE = golden.HERE / "folders", golden.HERE / "numerics.json"
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))
# A folder of each kind of layer; in `make check-full` every family's.
QUICK = ["pooling-cls", "mpnet", "family-modernbert", "family-nomic", "family-qwen3", "family-gemma3", "family-t5", "family-deberta"]
PRECISIONS = ["fp32", "int8", "int16", "bf16"]
OF_THE_MAKER = {"avx512bf16", "amx"}
ISAS = ["ref", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx"]


def folders() -> list[str]:
    return sorted(set(QUICK) | {path.parent.name for path in FOLDERS.glob("family-*/expected.json")
                                if not path.parent.name.endswith(("-hub", "-names", "-static"))})


def number() -> str:
    parts = subprocess.run([golden.BIN, "model", "id", FOLDERS / "pooling-cls", "--format", "json"], capture_output=True, check=True)
    return json.loads(parts.stdout)["numerics"]


def digest(name: str, isa: str, precision: str, work: pathlib.Path) -> str | None:
    """None where this machine lacks the instruction set, or the model the precision."""
    source, rows = work / "texts.jsonl", work / "rows"
    source.write_text("".join(json.dumps(text) + "\n" for text in TEXTS), encoding="utf-8")
    done = subprocess.run([golden.BIN, "embed", "-m", FOLDERS / name, "-i", source, "--input-format", "jsonl", "--format", "raw", "-o", rows,
                           "--max-length", "60", "--precision", precision, "--cpu-isa", isa], capture_output=True, text=True)
    return hashlib.sha256(rows.read_bytes()).hexdigest()[:16] if done.returncode == 0 else None


def written_with() -> dict[str, str]:
    maker = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("vendor_id")), "unknown")
    return {"libm": " ".join(platform.libc_ver()), "maker": maker}


def machine_has() -> set[str]:
    return {isa for isa in ISAS if digest("pooling-cls", isa, "fp32", pathlib.Path(tempfile.mkdtemp())) is not None}


@pytest.mark.parametrize("isa", ISAS)
def test_bytes_are_those_of_the_number(isa, tmp_path):
    table = json.loads(TABLE.read_text())
    if isa not in table[number()]["bytes"]:
        pytest.skip("no table of this instruction set")
    if digest("pooling-cls", isa, "fp32", tmp_path) is None:
        pytest.skip(f"this machine has no {isa}")
    known, differ = table[number()]["bytes"][isa], []
    for name in folders() if "FLETCH_TEST_FULL" in os.environ else QUICK:
        for precision in PRECISIONS:
            if digest(name, isa, precision, tmp_path) != known[name].get(precision):
                differ.append(f"{name} in {precision}")
    with_what = written_with()
    if differ and (table[number()]["libm"] != with_what["libm"] or (isa in OF_THE_MAKER and table[number()]["maker"] != with_what["maker"])):
        pytest.skip(f"another libm or maker than {table[number()]['libm']}, {table[number()]['maker']}; other bytes: {', '.join(differ)}")
    assert not differ, f"other bytes than numerics {number()} has: raise FL_NUMERICS if that is meant"


def write() -> None:
    missing = set(ISAS) - machine_has()
    if missing:
        sys.exit(f"this machine lacks {', '.join(sorted(missing))}")
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    work = pathlib.Path(tempfile.mkdtemp())
    found = {isa: {name: {precision: told for precision in PRECISIONS if (told := digest(name, isa, precision, work))}
                   for name in folders()} for isa in ISAS}
    table[number()] = written_with() | {"bytes": found}
    TABLE.write_text(json.dumps(table, indent=0) + "\n")


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    write()
