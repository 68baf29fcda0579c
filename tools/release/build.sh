#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh TARGET [FOLDER] - the program of one line of targets.tsv, and the Python module where there is a wheel, in
# FOLDER (build-release/TARGET), stripped. FOLDER is another for whoever wants to see that the bytes are the same.
. "$(dirname "$0")/../say.sh"
. tools/toolchain.sh

target=${1:?a target of tools/release/targets.tsv}
line=$(grep -P "^\Q$target\E\t" tools/release/targets.tsv) ||
    stop "tools/release/targets.tsv has no target '$target'" "cut -f1 tools/release/targets.tsv"
IFS=$'\t' read -r target _ wheel server curl <<<"$line"

export CCACHE_BASEDIR= # where ccache has one, names of files in the program depend on the folder
use_toolchain "$target" "${2:-$ROOT/build-release/$target}"
run_native # emulators are for tests
make_deps release
arguments=(-DCMAKE_BUILD_TYPE=Release -DFLETCH_TESTS=OFF -DFLETCH_SERVER="$server" -DFLETCH_STATIC_CURL="$curl"
           -DCMAKE_EXE_LINKER_FLAGS=-s -DCMAKE_MODULE_LINKER_FLAGS=-s)
products=(fletch)
[[ $target != *-musl ]] || arguments+=(-DCMAKE_EXE_LINKER_FLAGS="-static -s")
[[ $target != *-linux-* ]] || arguments+=(-DFLETCH_SMALL=ON)
python=$deps/include/python3.11
case $target:$wheel in
*:-) ;;
windows:*) # its own pyconfig.h, and what its python3.dll gives to modules
    get_source python3.11
    mkdir -p "$python"
    cp -r "$sources"/python3.11/Include/. "$sources"/python3.11/PC/pyconfig.h "$python"/
    { echo LIBRARY python3.dll && echo EXPORTS &&
        sed -n 's/^EXPORT_FUNC(\(.*\))/\1/p; s/^EXPORT_DATA(\(.*\))/\1 DATA/p' "$sources"/python3.11/PC/python3dll.c; } >"$deps"/python3.def
    (cd "$deps" && x86_64-w64-mingw32-dlltool -d python3.def -l lib/libpython3.a --temp-prefix python3)
    arguments+=(-DPython_LIBRARY="$deps"/lib/libpython3.a) ;;
*)
    headers=/usr/include/python3.11
    [ -f $headers/Python.h ] || stop "there is no $headers/Python.h" "apt-get install python3-dev"
    cp -rL $headers "$deps"/include/
    # The limited API needs of it what all 64-bit systems of Unix share.
    cp /usr/include/x86_64-linux-gnu/python3.11/pyconfig.h "$python"/ ;;
esac
if [ "$wheel" != - ]; then
    arguments+=(-DFLETCH_PYTHON=ON -DPython_EXECUTABLE=/usr/bin/python3 -DPython_INCLUDE_DIR="$python")
    products+=(_fletch)
fi
configure "${arguments[@]}"
say "build: $target"
ninja -C "$folder" --quiet "${products[@]}" || stop "the build for $target" "the first error above says where"
