# SPDX-License-Identifier: Apache-2.0
"""The numerics number: the bytes of vectors are those of numerics.json on every instruction set that this machine has, or
the number (src/session/vector_id.h) is another one.

numerics.json has, of the number, the first 16 digits of a SHA-256 over the rows of folders/texts.json, by what cpu.numerics says that
bytes depend on, folder and precision. "portable" is one table for every instruction set. A change that means to change bytes raises
FL_NUMERICS and writes the table anew: test_numerics.py --write (needs every instruction set). What vdpbf16ps and the tiles round
between their products is not written down, so the bytes of avx512bf16 and amx may depend on who made the processor: the table says on
whose it was written, and on another's differences are told as skipped.
"""
import hashlib
import json
import os
import pathlib
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
OF_THE_MAKER = {"avx512bf16", "amx", "neonmm"}
ARM = ["neonmm", "neondot", "neon"]  # held to the same table, which is written on x86-64
ISAS = ["ref", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx"]


def folders() -> list[str]:
    return sorted(set(QUICK) | {path.parent.name for path in FOLDERS.glob("family-*/expected.json")
                                if not path.parent.name.endswith(("-hub", "-names", "-static"))})


def fletch(*args: object) -> subprocess.CompletedProcess:
    return subprocess.run([golden.BIN, *map(str, args)], capture_output=True, text=True)


def identity(name: str, *options: str) -> dict | None:
    """The parts of the vector id; None where this machine lacks the instruction set, or the model the precision or the length."""
    done = fletch("model", "id", "-m", FOLDERS / name, "--format", "json", *options)
    return json.loads(done.stdout) if done.returncode == 0 else None


def digest(name: str, work: pathlib.Path, *options: str) -> str:
    source, rows = work / "texts.jsonl", work / "rows"
    source.write_text("".join(json.dumps(text) + "\n" for text in TEXTS), encoding="utf-8")
    done = fletch("embed", "-m", FOLDERS / name, "-i", source, "--input-format", "jsonl", "--format", "raw", "-o", rows, *options)
    assert done.returncode == 0, done.stderr
    return hashlib.sha256(rows.read_bytes()).hexdigest()[:16]


def settings(isa: str, precision: str, numerics: str) -> list[str]:
    return ["--cpu-isa", isa, "--provider-precision", precision, "--provider-numerics", numerics, "--model-max-length", "60"]


def maker() -> str:
    return next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("vendor_id")), "unknown")


def measured(isa: str, names: list[str], work: pathlib.Path) -> list[tuple[str, str, str, str]]:
    """(what bytes depend on, folder, precision, digest) in both modes."""
    found = []
    for name in names:
        for precision in PRECISIONS:
            for numerics in ["native", "portable"]:
                parts = identity(name, *settings(isa, precision, numerics))
                if parts is None:
                    break
                found.append((parts["cpu.numerics"], name, precision, digest(name, work, *settings(isa, precision, numerics))))
                if parts["cpu.numerics"] == "portable":
                    break  # so are the other's
    return found


def test_fp32_is_portable_and_portable_is_one(tmp_path):
    for isa in ISAS:
        for precision in PRECISIONS:
            parts = identity("pooling-cls", *settings(isa, precision, "portable"))
            assert parts is None or parts["cpu.numerics"] == "portable" and "cpu.isa" not in parts
        parts = identity("pooling-cls", *settings(isa, "fp32", "native"))
        assert parts is None or parts["cpu.numerics"] == "portable"


@pytest.mark.parametrize("isa", ISAS + ARM)
def test_bytes_are_those_of_the_number(isa, tmp_path):
    if identity("pooling-cls", *settings(isa, "fp32", "native")) is None:
        pytest.skip(f"this machine has no {isa}")
    table = json.loads(TABLE.read_text())
    assert str(table["numerics"]) == identity("pooling-cls")["numerics"], "write the table anew"
    differ = [f"{name} in {precision}, {numerics}"
              for numerics, name, precision, bits in measured(isa, folders() if "FLETCH_TEST_FULL" in os.environ else QUICK, tmp_path)
              if not (numerics in OF_THE_MAKER and table["maker"] != maker()) and table["bytes"][numerics][name][precision] != bits]
    assert not differ, f"other bytes than numerics {table['numerics']} has: raise FL_NUMERICS if that is meant"
    if isa in OF_THE_MAKER and table["maker"] != maker():
        pytest.skip(f"the table's bytes of bfloat16 products are {table['maker']}'s")


def test_other_providers_are_passed_over():
    only = fletch("embed", "-m", FOLDERS / "pooling-cls", "--provider-order", "cuda", "--provider-numerics", "portable", "a text")
    assert only.returncode == 2
    native = fletch("embed", "-m", FOLDERS / "pooling-cls", "--provider-engine", "onnxruntime", "--provider-order", "cpu",
                    "--provider-numerics", "portable", "a text")
    assert native.returncode == 2
    assert "only the cpu engine" in native.stderr or "no ONNX Runtime library" in native.stderr  # tools/release/try.sh: none is there
    assert fletch("embed", "-m", FOLDERS / "pooling-cls", "--provider-numerics", "exact", "a text").returncode == 2


def write() -> None:
    missing = [isa for isa in ISAS if identity("pooling-cls", *settings(isa, "fp32", "native")) is None]
    if missing:
        sys.exit(f"this machine lacks {', '.join(missing)}")
    work, table = pathlib.Path(tempfile.mkdtemp()), {}
    for isa in ISAS:
        for numerics, name, precision, bits in measured(isa, folders(), work):
            if table.setdefault(numerics, {}).setdefault(name, {}).setdefault(precision, bits) != bits:
                sys.exit(f"{name} in {precision} has other bytes on {isa} than on another set, and both say {numerics}")
    number = int(identity("pooling-cls")["numerics"])
    TABLE.write_text(json.dumps({"numerics": number, "maker": maker(), "bytes": table}, indent=0) + "\n")


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    write()
