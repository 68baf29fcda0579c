#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cross.sh windows|macos|arm|TARGET - fletch for a system that this machine is not.
# windows: by mingw-w64; kernels, unit and golden tests run under wine, an hour and a half.
# macos:   on ARM, by zig cc (the Python package ziglang): compiled and linked. Nothing here runs it.
# arm:     Linux on ARM, by Debian's cross compiler; unit and golden tests run under qemu-user, hours. The kernels
#          alone take tools/emulate.sh minutes.
# TARGET:  by zig cc, x86_64-linux-musl or aarch64-linux-musl (one static program that needs no library of the system)
#          or x86_64-linux-gnu.2.17 or aarch64-linux-gnu.2.17 (any glibc from 2.17 on); unit and golden tests run,
#          those of aarch64 under qemu-user.
# What fletch links to (PCRE2, SQLite, zlib, zstd) is compiled from the sources of Debian's packages into build-NAME/deps.
# Writes "passed failed skipped" to build/tally/cross-NAME.
. "$(dirname "$0")/say.sh"
. tools/toolchain.sh

system_name=${1:?windows, macos, arm or a target of zig cc}
tally=build/tally/cross-$system_name
mkdir -p build/tally
echo 0 1 0 >"$tally" # until proven otherwise
use_toolchain "${system_name/#macos/aarch64-macos}" "$ROOT/build-$system_name"
need "${run[0]}" "wine64 qemu-user"

# Programs under their own names, for tests that start them, some with an environment of their own.
make_wrappers() {
    local program settings=''
    [ "$system_name" != arm ] || settings="export QEMU_LD_PREFIX=$QEMU_LD_PREFIX"
    [ "$system_name" != windows ] || settings="export WINEPREFIX='$WINEPREFIX' WINEDEBUG=-all WINEPATH='$WINEPATH'"
    for program in "$folder"/*.exe "$folder"/tests/*.exe; do
        printf '#!/bin/sh\n%s\nexec %s "%s" "$@"\n' "$settings" "${run[*]}" "$program" >"${program%.exe}"
        chmod +x "${program%.exe}"
    done
}

run_tests() {
    local status=0
    say "kernels and unit tests: $name"
    ctest --test-dir "$folder" -L unit -E "^stress$" -j "$(nproc)" --output-on-failure --output-junit tests.xml \
        >"$folder"/ctest.log 2>&1 || status=1
    say "golden tests: $name"
    tools/venv.sh
    tools/get_model.sh medium >/dev/null
    test_environment
    export FLETCH_BUILD=$folder FLETCH_BIN=$folder/fletch
    # Not here: what needs a Linux library of ONNX Runtime or CUDA, the hub's tool, or days.
    "$VENV"/bin/python -m pytest -q -p no:cacheprovider -n "$(nproc)" -k "not onnxruntime" --junit-xml="$folder"/golden.xml \
        tests/golden/test_{folders,late,lists,numerics,odd_folders,routes,scores,token_classes,tokens,unigram}.py \
        >"$folder"/golden.log 2>&1 || status=1
    local xml=("$folder"/tests.xml "$folder"/golden.xml) file
    if [ "$system_name" = windows ]; then
        say "the server: $system_name"
        xml+=("$folder"/server.xml)
        # Not here: a hub to download from (these programs open a libcurl, and wine has none), other programs' clients, what
        # is read in /proc, ONNX Runtime. What is a system's own skips itself.
        FLETCH_TEST_WINE=1 "$VENV"/bin/python -m pytest -q -p no:cacheprovider -n "$(nproc)" --dist loadfile --junit-xml="$folder"/server.xml \
            tests/server/test_{batches,budgets,cohere,dialect_errors,fairness,families,gzip,health,idle_exit,late_chunking,late_store}.py \
            tests/server/test_{lone,ollama,on_demand,openai,promises,scores,search,several_outputs,start,store,store_commands,store_move}.py \
            tests/server/test_{tei,transport{,_disconnect,_drain,_keys,_limits,_operations,_paths,_slow,_smuggling}}.py \
            >"$folder"/server.log 2>&1 || status=1
    fi
    for file in "${xml[@]}"; do python3 tools/tally.py "$file"; done |
        awk '{ p += $1; f += $2; s += $3 } END { print p, f, s }' >"$tally"
    note "passed, failed, skipped: $(cat "$tally")"
    [ $status -eq 0 ] || stop "tests for $name" "all of the output: $folder/ctest.log, golden.log and server.log"
}

make_deps
# The suffix leaves the plain names to the programs that start these.
suffix=(-DCMAKE_EXECUTABLE_SUFFIX_C=.exe)
[ "$system_name" != macos ] || suffix=()
configure "${suffix[@]}"
say "build: $name"
ninja -C "$folder" --quiet || stop "the $name build"
if [ "$system_name" = macos ]; then
    echo 1 0 0 >"$tally" # they compile and link
else
    make_wrappers
    run_tests
fi
