# SPDX-License-Identifier: Apache-2.0
# toolchain.sh - compilers for other systems and what fletch links to there; sourced by cross.sh (tests) and by
# release/ (what is given away), never run.
#   use_toolchain NAME FOLDER  sets cc, ar, run (what starts its programs here) and system (CMake's arguments); the
#                              libraries of make_deps and the build go into FOLDER
#   make_deps [release]        compiles PCRE2, SQLite, zlib and zstd from the sources of Debian's packages into
#                              FOLDER/deps; for a release also mbedTLS and libcurl, where that system's program has them
#   configure ARGUMENT...      configures fletch in FOLDER
# shellcheck shell=bash
# shellcheck disable=SC2034 # `run` is cross.sh's

need() { # TOOL PACKAGES
    command -v "$1" >/dev/null || stop "$1 is not installed" "apt-get install $2"
}

# zig's compiler under one name. No path of this machine gets into what it makes. What gcc calls -march=armv8.2-a+dotprod is -mcpu=generic+dotprod there.
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
	exec $zig cc -target $1 -g0 -ffile-prefix-map=$ROOT/= "\${words[@]}"
	END
    chmod +x "$folder"/ar "$folder"/cc
    cc=("$folder"/cc) ar=("$folder"/ar)
}

# The one program that the build itself runs, make_docs, is this machine's own.
run_native() {
    [ -x build/tools/make_docs ] || tools/build.sh release make_docs
    cat >"$folder"/native <<-END
	#!/bin/sh
	case \$1 in */make_docs | */make_docs.exe) shift && exec $ROOT/build/tools/make_docs "\$@" ;; esac
	exec "\$@"
	END
    chmod +x "$folder"/native
    run=("$folder"/native)
}

use_toolchain() { # NAME FOLDER
    name=$1 folder=$2 deps=$2/deps sources=$ROOT/.cache/sources
    mkdir -p "$deps"/include "$deps"/lib "$sources"
    case $name in
    windows)
        need x86_64-w64-mingw32-gcc gcc-mingw-w64-x86-64-posix
        cc=(x86_64-w64-mingw32-gcc -ffile-prefix-map="$ROOT"/=) ar=(x86_64-w64-mingw32-ar) run=(wine)
        system=(-DCMAKE_SYSTEM_NAME=Windows -DCMAKE_SYSTEM_PROCESSOR=x86_64)
        export WINEPREFIX=$folder/wine WINEDEBUG=-all WINEPATH=$folder ;;
    aarch64-macos | x86_64-macos)
        get_zig "$name".11.0 # downloads want the libcurl of 13
        run_native
        local processor=${name%%-*}
        system=(-DCMAKE_SYSTEM_NAME=Darwin -DCMAKE_SYSTEM_PROCESSOR="${processor/aarch64/arm64}"
                -DCMAKE_AR="$folder"/ar -DCMAKE_RANLIB=/bin/true -DCMAKE_INSTALL_NAME_TOOL=/bin/true
                -DCMAKE_OSX_SYSROOT= -DFLETCH_TESTS=OFF -DFLETCH_WERROR=OFF) ;;
    x86_64-linux-* | aarch64-linux-*)
        get_zig "$name"
        run=(env)
        [ "${name%%-*}" = "$(uname -m)" ] || run=(qemu-"${name%%-*}" -cpu max)
        system=(-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="${name%%-*}" -DCMAKE_AR="$folder"/ar
                -DCMAKE_RANLIB=/bin/true)
        [[ $name != *musl ]] || system+=(-DCMAKE_EXE_LINKER_FLAGS=-static) ;;
    arm)
        need aarch64-linux-gnu-gcc "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
        cc=(aarch64-linux-gnu-gcc) ar=(aarch64-linux-gnu-ar) run=(qemu-aarch64 -cpu max)
        system=(-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64
                -DFLETCH_WERROR=OFF) # gcc 12 there sees overruns that its own loops make
        export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu ;;
    *) stop "unknown system '$name'" "windows, aarch64-macos, x86_64-macos, arm, or a target of zig cc: x86_64-linux-musl" ;;
    esac
}

# Debian's revisions of one upstream version share its archive: where a mirror has not that of the newest, another's is
# the same file.
get_upstream() { # PACKAGE OPTIONS-OF-APT
    local version newest=
    for version in $(apt-cache "${@:2}" showsrc --only-source "$1" | sed -n 's/^Version: //p' | sort -rV); do
        newest=${newest:-$version}
        [ "${version%-*}" = "${newest%-*}" ] || return 1
        ! apt-get "${@:2}" source --download-only --tar-only "$1=$version" || return 0
    done
    return 1
}

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
    { apt-get "${own[@]}" update && cd "$apt" && get_upstream "$1" "${own[@]}" && mkdir "$1" &&
        tar xf "$1"_*.orig.tar.* -C "$1" --strip-components=1; } >"$log" 2>&1 ||
        stop "apt-get source $1" "all of its output: $log"
    cd "$ROOT"
    mv "$apt/$1" "$sources/$1"
}

# The archive and the pkg-config file of one: compiled as its own notes for other build systems say, each file alone (of
# several zig makes one object).
make_library() { # NAME FLAGS FILES
    local library=$1 flags=$2
    shift 2
    [ ! -f "$deps/lib/lib$library.a" ] || return 0
    say "compile: $library for $name"
    rm -rf "$deps/$library"
    mkdir -p "$deps/$library"
    # shellcheck disable=SC2086
    (cd "$deps/$library" && printf '%s\0' "$@" |
        xargs -0 -n 1 -P "$(nproc)" "${cc[@]}" -c -O2 -w -fPIC -ffunction-sections -fdata-sections $flags &&
        "${ar[@]}" rcs "../lib/lib$library.a" ./*.o)
}

describe() { # NAME FLAGS LIBRARIES
    printf 'Name: %s\nDescription: of build-%s\nVersion: 0\nCflags: -I%s %s\nLibs: %s\n' \
        "$1" "$name" "$deps/include" "$2" "$3" >"$deps/lib/$1.pc"
}

# SQLite's one file, as its own makefile puts it together.
make_amalgamation() {
    [ ! -f "$sources"/sqlite3/sqlite3.c ] || return 0
    need tclsh tcl
    say "put together: sqlite3.c"
    (cd "$sources"/sqlite3 && ./configure --disable-tcl && make sqlite3.c) >"$sources"/sqlite3.log 2>&1 ||
        stop "sqlite3.c could not be put together" "all of its output: $sources/sqlite3.log"
}

make_deps() { # [release]
    local z=$sources/zlib zstd=$sources/libzstd/lib pcre=$sources/pcre2/src file curl
    curl=$(find /usr/include -path '*/curl/curl.h' -print -quit)
    [ -n "$curl" ] || stop "there is no curl/curl.h in /usr/include" "apt-get install libcurl4-openssl-dev"
    for file in zlib libzstd pcre2; do
        get_source $file
    done
    cp "$z"/zlib.h "$z"/zconf.h "$zstd"/*.h "$deps"/include/
    cp "$pcre"/pcre2.h.generic "$deps"/include/pcre2.h
    cp -r "$(dirname "$curl")" "$deps"/include/
    make_library z "-I$deps/include -Dfdopen=fdopen" "$z"/{adler32,crc32,deflate,inflate,inftrees,inffast,trees,zutil}.c
    make_library zstd "-DZSTD_DISABLE_ASM" "$zstd"/{common,compress,decompress}/*.c
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
    get_source sqlite3
    make_amalgamation
    cp "$sources"/sqlite3/sqlite3.h "$deps"/include/
    make_library sqlite3 "-Os -DSQLITE_THREADSAFE=1 -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_DEFAULT_MEMSTATUS=0 -DSQLITE_ENABLE_FTS5" \
        "$sources"/sqlite3/sqlite3.c
    describe sqlite3 "" "-L$deps/lib -lsqlite3"
    describe libcurl "" "" # opened at run time
    [ -z "${1:-}" ] || make_release_deps
}

# libcurl by its own CMake files: HTTP and nothing else, by TLS of the libraries beside it.
make_curl() { # ARGUMENTS
    [ ! -f "$deps"/lib/libcurl.a ] || return 0
    say "compile: libcurl for $name"
    local compiler
    printf -v compiler '%s;' "${cc[@]}"
    { cmake -S "$sources"/curl -B "$deps"/curl-build -G Ninja "${system[@]}" -DCMAKE_C_COMPILER="${compiler%;}" \
        -DCMAKE_BUILD_TYPE=MinSizeRel -DCMAKE_PREFIX_PATH="$deps" -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
        -DCMAKE_C_FLAGS="-ffunction-sections -fdata-sections" \
        -DBUILD_SHARED_LIBS=OFF -DBUILD_CURL_EXE=OFF -DBUILD_TESTING=OFF -DHTTP_ONLY=ON -DENABLE_MANUAL=OFF \
        -DCURL_USE_LIBSSH2=OFF -DUSE_LIBIDN2=OFF -DUSE_NGHTTP2=OFF -DCURL_ZLIB=OFF -DCURL_ZSTD=OFF -DCURL_BROTLI=OFF \
        -DCURL_CA_BUNDLE=none -DCURL_CA_PATH=none -DCURL_DISABLE_ALTSVC=ON -DCURL_DISABLE_HSTS=ON "$@" &&
        ninja -C "$deps"/curl-build libcurl; } >"$deps"/curl.log 2>&1 ||
        stop "libcurl does not build" "all of its output: $deps/curl.log"
    cp "$deps"/curl-build/lib/libcurl*.a "$deps"/lib/libcurl.a
    cp -r "$sources"/curl/include/curl "$deps"/include/
}

make_release_deps() {
    case $name in
    *-musl)
        get_source mbedtls
        get_source curl
        cp -r "$sources"/mbedtls/include/mbedtls "$sources"/mbedtls/include/psa "$deps"/include/
        make_library mbedtls "-Os -I$deps/include" "$sources"/mbedtls/library/*.c
        cp "$deps"/lib/libmbedtls.a "$deps"/lib/libmbedx509.a # three libraries of one folder: curl asks for each
        cp "$deps"/lib/libmbedtls.a "$deps"/lib/libmbedcrypto.a
        make_curl -DCURL_USE_MBEDTLS=ON
        describe libcurl -DCURL_STATICLIB "-L$deps/lib -lcurl -lmbedtls" ;;
    windows)
        get_source curl
        make_curl -DCURL_USE_SCHANNEL=ON -DCMAKE_RC_COMPILER=x86_64-w64-mingw32-windres
        describe libcurl -DCURL_STATICLIB "-L$deps/lib -lcurl -lws2_32 -lcrypt32 -lbcrypt -ladvapi32" ;;
    esac
}

configure() { # ARGUMENTS
    local compiler emulator
    printf -v compiler '%s;' "${cc[@]}"
    printf -v emulator '%s;' "${run[@]}"
    export PKG_CONFIG_LIBDIR=$deps/lib
    say "configure: $name in ${folder#"$ROOT"/}/"
    cmake -S . -B "$folder" -G Ninja "${system[@]}" -DCMAKE_C_COMPILER="${compiler%;}" -DFLETCH_CUDA=OFF \
        -DCMAKE_CROSSCOMPILING_EMULATOR="${emulator%;}" "$@" >"$folder"/configure.log 2>&1 ||
        stop "cmake could not configure" "all of its output: $folder/configure.log"
}
