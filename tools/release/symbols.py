# SPDX-License-Identifier: Apache-2.0
"""symbols.py WHEEL ... - a wheel runs where its tag says. Of every program and module in it: the libraries that it needs
are those that its platform promises, nothing is of a newer system than the tag, and what the module takes from Python is
of the limited API. ELF is read by readelf, PE by objdump; Mach-O here, for no package of Debian's reads it.
Exit status 1 and a line for each that is not so."""
import re
import struct
import subprocess
import sys
import tempfile
import zipfile

GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
MUSL = {"libc.so"}
MACOS = {"/usr/lib/libSystem.B.dylib"}
WINDOWS = {"kernel32.dll", "advapi32.dll", "bcrypt.dll", "crypt32.dll", "msvcrt.dll", "psapi.dll", "ws2_32.dll", "python3.dll",
           "api-ms-win-core-synch-l1-2-0.dll"}
# Outside the limited API, from Python.h of 3.11: every name that begins with _Py but these, which its macros call.
PRIVATE_ALLOWED = {"_Py_Dealloc", "_Py_DecRef", "_Py_IncRef", "_Py_NoneStruct", "_Py_TrueStruct", "_Py_FalseStruct",
                   "_Py_NotImplementedStruct", "_Py_BuildValue_SizeT", "_PyArg_ParseTuple_SizeT",
                   "_PyArg_ParseTupleAndKeywords_SizeT", "_PyArg_Parse_SizeT", "_PyObject_CallFunction_SizeT",
                   "_PyObject_CallMethod_SizeT", "_PyErr_BadInternalCall"}


def read(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def elf(path, tag):
    machine = "X86-64" if "x86_64" in tag else "AArch64"
    if machine not in read("readelf", "-W", "-h", path):
        yield f"is not for {machine}"
    newest = re.search(r"manylinux_(\d+)_(\d+)_", tag)
    if not newest and "musllinux" not in tag:
        yield "is for Linux"
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", read("readelf", "-W", "-d", path)):
        if name not in (GLIBC if newest else MUSL):
            yield f"needs {name}"
    for version in sorted(set(re.findall(r"GLIBC_(\d+\.\d+)", read("readelf", "-W", "-V", path)))):
        if not newest or tuple(map(int, version.split("."))) > tuple(map(int, newest.groups())):
            yield f"needs glibc {version}"
    yield from outside_the_api(re.findall(r"\bUND (_Py\w+)", read("readelf", "-W", "--dyn-syms", path)))


def pe(path, tag):
    told = read("objdump", "-p", path)
    if "file format pei-x86-64" not in told or tag != "win_amd64":
        yield "is for Windows on x86-64"
    for name in re.findall(r"DLL Name: (.*)", told):
        if name.lower() not in WINDOWS:
            yield f"needs {name}"
    yield from outside_the_api(re.findall(r"\s(_Py\w+)$", told, re.M))


def mach_o(data, tag):
    """Of 64 bits, little endian, as both processors have it."""
    kind, commands, names, at = struct.unpack_from("<I", data, 4)[0], struct.unpack_from("<I", data, 16)[0], [], 32
    if kind != {"x86_64": 0x01000007, "arm64": 0x0100000C}.get(tag.split("_", 3)[-1]):
        yield f"is for a processor of the number {kind:#x}"
    promised = re.match(r"macosx_(\d+)_(\d+)_", tag)
    for _ in range(commands):
        command, size = struct.unpack_from("<II", data, at)
        if command == 0x0C:  # LC_LOAD_DYLIB
            name = data[at + struct.unpack_from("<I", data, at + 8)[0]:at + size].split(b"\0")[0].decode()
            if name not in MACOS:
                yield f"needs {name}"
        elif command == 0x32:  # LC_BUILD_VERSION
            least = struct.unpack_from("<I", data, at + 12)[0]
            if not promised or (least >> 16, least >> 8 & 255) > tuple(map(int, promised.groups())):
                yield f"needs macOS {least >> 16}.{least >> 8 & 255}"
        elif command == 2:  # LC_SYMTAB
            symbols, count, texts = struct.unpack_from("<III", data, at + 8)
            for i in range(count):
                text, sort = struct.unpack_from("<IB", data, symbols + 16 * i)
                if sort & 0xEF == 1:  # external, of elsewhere
                    names.append(data[texts + text + 1:].split(b"\0", 1)[0].decode())
        at += size
    yield from outside_the_api(name for name in names if name.startswith("_Py"))


def outside_the_api(names):
    for name in names:
        if name not in PRIVATE_ALLOWED:
            yield f"takes {name}, which is outside the limited API"


def faults(data, tag):
    if data[:4] == b"\xcf\xfa\xed\xfe":
        yield from mach_o(data, tag)
    elif data[:4] == b"\x7fELF" or data[:2] == b"MZ":
        with tempfile.NamedTemporaryFile() as copy:
            copy.write(data)
            copy.flush()
            yield from (pe if data[:2] == b"MZ" else elf)(copy.name, tag)


def main():
    bad = 0
    for wheel in sys.argv[1:]:
        tag, programs = wheel.removesuffix(".whl").rsplit("-", 1)[1].split(".")[0], 0
        with zipfile.ZipFile(wheel) as files:
            for name in files.namelist():
                programs += name.endswith((".so", ".pyd", ".exe", "scripts/fletch"))
                for fault in faults(files.read(name), tag):
                    print(f"{wheel}: {name} {fault}", file=sys.stderr)
                    bad = 1
        if programs != 2:
            print(f"{wheel}: a module and a program are wanted, there are {programs}", file=sys.stderr)
            bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
