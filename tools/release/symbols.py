# SPDX-License-Identifier: Apache-2.0
"""symbols.py WHEEL ... - a wheel runs where its tag says. Of every ELF file in it: the libraries that it needs are those
that its platform promises, no symbol is of a newer glibc, and what the module takes from Python is of the limited API.
Exit status 1 and a line for each that is not so."""
import re
import subprocess
import sys
import tempfile
import zipfile

GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
MUSL = {"libc.so"}
# Outside the limited API, from Python.h of 3.11: every name that begins with _Py but these, which its macros call.
PRIVATE_ALLOWED = {"_Py_Dealloc", "_Py_DecRef", "_Py_IncRef", "_Py_NoneStruct", "_Py_TrueStruct", "_Py_FalseStruct",
                   "_Py_NotImplementedStruct", "_Py_BuildValue_SizeT", "_PyArg_ParseTuple_SizeT",
                   "_PyArg_ParseTupleAndKeywords_SizeT", "_PyArg_Parse_SizeT", "_PyObject_CallFunction_SizeT",
                   "_PyObject_CallMethod_SizeT", "_PyErr_BadInternalCall"}


def read(*words):
    return subprocess.run(["readelf", "-W", *words], capture_output=True, text=True, check=True).stdout


def faults(path, tag):
    machine = "X86-64" if "x86_64" in tag else "AArch64"
    if machine not in read("-h", path):
        yield f"is not for {machine}"
    newest = re.search(r"manylinux_(\d+)_(\d+)_", tag)
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", read("-d", path)):
        if name not in (GLIBC if newest else MUSL):
            yield f"needs {name}"
    for version in sorted(set(re.findall(r"GLIBC_(\d+\.\d+)", read("-V", path)))):
        if not newest or tuple(map(int, version.split("."))) > tuple(map(int, newest.groups())):
            yield f"needs glibc {version}"
    for name in re.findall(r"\bUND (_Py\w+)", read("--dyn-syms", path)):
        if name not in PRIVATE_ALLOWED:
            yield f"takes {name}, which is outside the limited API"


def main():
    bad = 0
    for wheel in sys.argv[1:]:
        tag = wheel.rsplit("-", 1)[1]
        with zipfile.ZipFile(wheel) as files, tempfile.NamedTemporaryFile() as copy:
            for name in files.namelist():
                data = files.read(name)
                if data[:4] == b"\x7fELF":
                    copy.seek(0)
                    copy.truncate()
                    copy.write(data)
                    copy.flush()
                    for fault in faults(copy.name, tag):
                        print(f"{wheel}: {name} {fault}", file=sys.stderr)
                        bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
