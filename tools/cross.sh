#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cross.sh windows|macos|arm|TARGET - fletch for a system that this machine is not.
# windows: by mingw-w64; kernels, unit and golden tests run under wine, an hour and a half.
# macos:   on ARM, by zig cc (the Python package ziglang): compiled and linked. Nothing here runs it.
# arm:     Linux on ARM, by Debian's cross compiler; unit and golden tests run under qemu-user, hours. The kernels
#          alone take tools/emulate.sh half a minute.
# TARGET:  by zig cc, x86_64-linux-musl or aarch64-linux-musl (one static program that needs no library of the system)
#          or x86_64-linux-gnu.2.17 or aarch64-linux-gnu.2.17 (any glibc from 2.17 on); unit and golden tests run,
#          those of aarch64 under qemu-user.
# What fletch links to (PCRE2, SQLite, zlib, zstd) is compiled from the sources of Debian's packages into build-NAME/deps.
# Writes "passed failed skipped" to build/tally/cross-NAME.
. "$(dirname "$0")/say.sh"

name=${1:?windows, macos, arm or a target of zig cc}
folder=$ROOT/build-$name
deps=$folder/deps
sources=$ROOT/.cache/sources
mkdir -p "$deps"/include "$deps"/lib "$sources" build/tally
echo 0 1 0 >build/tally/cross-"$name" # until proven otherwise

need() { # TOOL PACKAGES
    command -v "$1" >/dev/null || stop "$1 is not installed" "apt-get install $2"
}

# zig's compiler under one name. What gcc calls -march=armv8.2-a+dotprod is -mcpu=generic+dotprod there.
get_zig() { # TARGET
    local zig
    make_pip "$folder"/pip.log
    build/pip/bin/pip -q install ziglang==0.17.1 >>"$folder"/pip.log 2>&1 ||
        stop "pip could not install ziglang" "all of its output: $folder/pip.log"
    zig=$(echo "$ROOT"/build/pip/lib/python3*/site-packages/ziglang/zig)
    printf '#!/bin/sh\nexec %s ar "$@"\n' "$zig" >"$folder"/ar
    cat >"$folder"/cc <<-END
	#!/bin/bash
	for word; do
	    case \$word in -march=armv8*-a+*) word=-mcpu=generic+\${word#*-a+} ;; esac
	    words+=("\$word")
	done
	exec $zig cc -target $1 "\${words[@]}"
	END
    printf '#!/bin/sh\nshift\nexec %s/build/tools/make_docs "$@"\n' "$ROOT" >"$folder"/native
    chmod +x "$folder"/ar "$folder"/cc "$folder"/native
    [ -x build/tools/make_docs ] || stop "build/ has no make_docs" "ninja -C build make_docs"
}

case $name in
windows)
    need x86_64-w64-mingw32-gcc gcc-mingw-w64-x86-64-posix
    need wine wine64
    cc=(x86_64-w64-mingw32-gcc) ar=(x86_64-w64-mingw32-ar) run=(wine)
    system=(-DCMAKE_SYSTEM_NAME=Windows -DCMAKE_SYSTEM_PROCESSOR=x86_64)
    export WINEPREFIX=$folder/wine WINEDEBUG=-all WINEPATH=$folder ;;
macos)
    get_zig aarch64-macos
    cc=("$folder"/cc) ar=("$folder"/ar) run=("$folder"/native) # the one program that the build itself runs
    system=(-DCMAKE_SYSTEM_NAME=Darwin -DCMAKE_SYSTEM_PROCESSOR=arm64 -DCMAKE_AR="$folder"/ar -DCMAKE_RANLIB=/bin/true
            -DCMAKE_INSTALL_NAME_TOOL=/bin/true -DCMAKE_OSX_SYSROOT= -DFLETCH_TESTS=OFF -DFLETCH_WERROR=OFF) ;;
x86_64-linux-* | aarch64-linux-*)
    get_zig "$name"
    cc=("$folder"/cc) ar=("$folder"/ar) run=(env)
    [ "${name%%-*}" = "$(uname -m)" ] || run=(qemu-"${name%%-*}" -cpu max)
    need "${run[0]}" qemu-user
    system=(-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="${name%%-*}" -DCMAKE_AR="$folder"/ar
            -DCMAKE_RANLIB=/bin/true -DCMAKE_EXECUTABLE_SUFFIX_C=.exe)
    [[ $name != *musl ]] || system+=(-DCMAKE_EXE_LINKER_FLAGS=-static) ;;
arm)
    need aarch64-linux-gnu-gcc "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    need qemu-aarch64 qemu-user
    cc=(aarch64-linux-gnu-gcc) ar=(aarch64-linux-gnu-ar) run=(qemu-aarch64 -cpu max)
    # The suffix leaves the plain names to the programs that start these.
    system=(-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_EXECUTABLE_SUFFIX_C=.exe
            -DFLETCH_WERROR=OFF) # gcc 12 there sees overruns that its own loops make
    export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu ;;
*) stop "unknown system '$name'" "tools/cross.sh windows, macos, arm or a target of zig cc: x86_64-linux-musl" ;;
esac

# ---- What fletch links to ----

# The source of a Debian package in .cache/sources/PACKAGE; no list of this machine's is touched.
get_source() { # PACKAGE
    local apt=$sources/apt log=$sources/$1.log
    [ ! -d "$sources/$1" ] || return 0
    rm -rf "${apt:?}/$1" # of a try that failed
    mkdir -p "$apt"/parts "$apt"/lists/partial
    cp /etc/apt/sources.list.d/debian.sources "$apt"/parts/ 2>/dev/null || true
    sed 's/^deb /deb-src /' /etc/apt/sources.list >"$apt"/parts/all.list 2>/dev/null || true
    sed -i 's/^Types: deb$/Types: deb-src/' "$apt"/parts/*.sources 2>/dev/null || true
    local own=(-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$apt"/parts
               -o Dir::State::Lists="$apt"/lists -o APT::Sandbox::User=)
    { apt-get "${own[@]}" update && cd "$apt" && apt-get "${own[@]}" source --download-only --tar-only "$1" &&
        mkdir "$1" && tar xf "$1"_*.orig.tar.* -C "$1" --strip-components=1; } >"$log" 2>&1 ||
        stop "apt-get source $1" "all of its output: $log"
    cd "$ROOT"
    mv "$apt/$1" "$sources/$1"
}

# The archive and the pkg-config file of one: compiled as its own notes for other build systems say.
make_library() { # NAME FLAGS FILES
    local library=$1 flags=$2
    shift 2
    [ ! -f "$deps/lib/lib$library.a" ] || return 0
    say "compile: $library for $name"
    rm -rf "$deps/$library"
    mkdir -p "$deps/$library"
    # shellcheck disable=SC2086
    (cd "$deps/$library" && "${cc[@]}" -c -O2 -w -fPIC $flags "$@" && "${ar[@]}" rcs "../lib/lib$library.a" ./*.o)
}

describe() { # NAME FLAGS LIBRARIES
    printf 'Name: %s\nDescription: of build-%s\nVersion: 0\nCflags: -I%s %s\nLibs: %s\n' \
        "$1" "$name" "$deps/include" "$2" "$3" >"$deps/lib/$1.pc"
}

make_deps() {
    local z=$sources/zlib zstd=$sources/libzstd/lib pcre=$sources/pcre2/src sqlite=$sources/sqlite3/one-file file curl
    curl=$(find /usr/include -path '*/curl/curl.h' -print -quit)
    [ -n "$curl" ] || stop "there is no curl/curl.h in /usr/include" "apt-get install libcurl4-openssl-dev"
    for file in zlib libzstd pcre2 sqlite3; do
        get_source $file
    done
    if [ ! -f "$sqlite/sqlite3.h" ]; then # its scripts write the many files as one
        need tclsh tcl
        mkdir -p "$sqlite"
        (cd "$sqlite" && ../configure && make sqlite3.c) >"$sources"/sqlite3.log 2>&1 ||
            stop "SQLite's sources as one file" "all of its output: $sources/sqlite3.log"
    fi
    cp "$z"/zlib.h "$z"/zconf.h "$zstd"/*.h "$sqlite"/sqlite3.h "$deps"/include/
    cp "$pcre"/pcre2.h.generic "$deps"/include/pcre2.h
    cp -r "$(dirname "$curl")" "$deps"/include/
    make_library z "-I$deps/include -Dfdopen=fdopen" "$z"/{adler32,crc32,deflate,inflate,inftrees,inffast,trees,zutil}.c
    make_library zstd "-DZSTD_DISABLE_ASM" "$zstd"/{common,compress,decompress}/*.c
    make_library sqlite3 "-DSQLITE_ENABLE_FTS5 -DSQLITE_OMIT_LOAD_EXTENSION" "$sqlite"/sqlite3.c
    mkdir -p "$deps"/pcre2-src
    cp "$pcre"/*.[ch] "$deps"/pcre2-src/
    cp -r "$pcre"/sljit "$deps"/pcre2-src/
    cp "$pcre"/config.h.generic "$deps"/pcre2-src/config.h
    cp "$pcre"/pcre2.h.generic "$deps"/pcre2-src/pcre2.h
    cp "$pcre"/pcre2_chartables.c.dist "$deps"/pcre2-src/pcre2_chartables.c
    make_library pcre2-8 "-DHAVE_CONFIG_H -DPCRE2_CODE_UNIT_WIDTH=8 -DPCRE2_STATIC -DSUPPORT_JIT -DSUPPORT_UNICODE" \
        "$deps"/pcre2-src/pcre2_{auto_possess,chartables,compile,config,context,convert,dfa_match,error,extuni,find_bracket,jit_compile,maketables,match,match_data,newline,ord2utf,pattern_info,script_run,serialize,string_utils,study,substitute,substring,tables,ucd,valid_utf,xclass}.c
    describe zlib "" "-L$deps/lib -lz"
    describe libzstd "" "-L$deps/lib -lzstd"
    describe libpcre2-8 -DPCRE2_STATIC "-L$deps/lib -lpcre2-8"
    describe sqlite3 "" "-L$deps/lib -lsqlite3"
    describe libcurl "" ""
}

# ---- Build and run ----

build() { # TARGETS
    local compiler emulator
    printf -v compiler '%s;' "${cc[@]}"
    printf -v emulator '%s;' "${run[@]}"
    export PKG_CONFIG_LIBDIR=$deps/lib
    say "configure: build-$name/"
    cmake -S . -B "$folder" -G Ninja "${system[@]}" -DCMAKE_C_COMPILER="${compiler%;}" \
        -DFLETCH_CUDA=OFF -DCMAKE_CROSSCOMPILING_EMULATOR="${emulator%;}" >"$folder"/configure.log 2>&1 ||
        stop "cmake could not configure" "all of its output: $folder/configure.log"
    say "build: $name"
    ninja -C "$folder" --quiet "$@" || stop "the $name build"
}

# Programs under their own names, for tests that start them.
make_wrappers() {
    local program
    for program in "$folder"/*.exe "$folder"/tests/*.exe; do
        printf '#!/bin/sh\nexec %s "%s" "$@"\n' "${run[*]}" "$program" >"${program%.exe}"
        chmod +x "${program%.exe}"
    done
}

run_tests() {
    local status=0
    say "kernels and unit tests: $name"
    ctest --test-dir "$folder" -L unit -E "^stress$" --output-on-failure --output-junit tests.xml \
        >"$folder"/ctest.log 2>&1 || status=1
    say "golden tests: $name"
    tools/venv.sh
    tools/get_model.sh medium >/dev/null
    test_environment
    export FLETCH_BUILD=$folder FLETCH_BIN=$folder/fletch
    # Not here: what needs a Linux library of ONNX Runtime or CUDA, the hub's tool, or days.
    "$VENV"/bin/python -m pytest -q -p no:cacheprovider -k "not onnxruntime" --junit-xml="$folder"/golden.xml \
        tests/golden/test_{folders,late,lists,numerics,odd_folders,routes,scores,token_classes,tokens,unigram}.py \
        >"$folder"/golden.log 2>&1 || status=1
    local xml=("$folder"/tests.xml "$folder"/golden.xml) file
    if [ "$name" = windows ]; then
        say "the server: $name"
        xml+=("$folder"/server.xml)
        # Not here: signals but Ctrl-C, Unix sockets, what is read in /proc.
        FLETCH_TEST_WINE=1 "$VENV"/bin/python -m pytest -q -p no:cacheprovider -k "not unix" --junit-xml="$folder"/server.xml \
            tests/server/test_{transport{,_disconnect,_limits,_slow,_smuggling},tei,openai,ollama,cohere,gzip,lone,store,search}.py \
            >"$folder"/server.log 2>&1 || status=1
    fi
    for file in "${xml[@]}"; do python3 tools/tally.py "$file"; done |
        awk '{ p += $1; f += $2; s += $3 } END { print p, f, s }' >build/tally/cross-"$name"
    note "passed, failed, skipped: $(cat build/tally/cross-"$name")"
    [ $status -eq 0 ] || stop "tests for $name" "all of the output: $folder/ctest.log, golden.log and server.log"
}

make_deps
if [ "$name" = macos ]; then
    build fletch fletch_shared fletch_static
    echo 1 0 0 >build/tally/cross-"$name" # they compile and link
else
    build
    make_wrappers
    run_tests
fi
