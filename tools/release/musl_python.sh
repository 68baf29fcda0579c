#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# musl_python.sh - a Python of musl, compiled of Debian's sources, once, in build-release/musl-python; prints the command that
# is its pip, an archive within it, whose Python is the first word. It stays where it was built, which it finds its modules
# by. For what the wheels for musl do: Alpine has such a Python, and Debian none.
. "$(dirname "$0")/../say.sh"
. tools/toolchain.sh

name=x86_64-linux-musl sources=$ROOT/.cache/sources
folder=$ROOT/build-release/musl-python deps=$ROOT/build-release/$name/deps
log=$folder.log
if [ ! -f "$folder/.whole" ]; then
    need musl-gcc musl-tools
    [ -f "$deps"/lib/libz.a ] || stop "there is no zlib for $name, which pip reads wheels by" "make release"
    mkdir -p "$sources"
    get_source python3.11
    rm -rf "$folder"
    mkdir -p "$folder"
    # musl-gcc is a gcc of this system, and says so when Python asks for whom it compiles.
    cat >"$folder"/cc <<-END
	#!/bin/sh
	case "\$*" in --print-multiarch | -print-multiarch) exec echo $name ;; esac
	exec musl-gcc "\$@"
	END
    chmod +x "$folder"/cc
    (cd "$folder" && "$sources"/python3.11/configure --build=$name CC="$folder"/cc OPT="-O1 -DNDEBUG -w" \
        CPPFLAGS=-I"$deps"/include LDFLAGS=-L"$deps"/lib && make -j"$(nproc)") >"$log" 2>&1 ||
        stop "Python for musl does not build" "all of its output: $log"
    touch "$folder/.whole"
fi
echo "$folder/python $(echo "$sources"/python3.11/Lib/ensurepip/_bundled/pip-*.whl)/pip"
