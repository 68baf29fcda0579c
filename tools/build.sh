#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh PRESET [TARGET ...] - configure a preset of CMakePresets.json once and build targets of it.
# Without targets it builds everything. The second time it only asks Ninja.
. "$(dirname "$0")/say.sh"

preset=${1:?preset}
shift
folder=build
[ "$preset" = release ] || folder=build-$preset
for tool in cmake ninja cc pkg-config; do
    command -v "$tool" >/dev/null || stop "$tool is not installed" "run: make setup"
done
mkdir -p "$folder"
log=$folder/configure.log
if [ ! -f "$folder/build.ninja" ]; then
    say "configure: $preset in $folder/"
    if ! cmake --preset "$preset" >"$log" 2>&1; then
        rm -f "$folder/build.ninja"
        tail -n 20 "$log" >&2
        stop "cmake could not configure (all of its output: $log)" \
             "if a package is not found: make setup; if the folder was moved: make clean"
    fi
fi
say "build: $preset${1:+ ($*)}"
ninja -C "$folder" --quiet "$@" ||
    stop "the $preset build" "the first error above says where; after a change of compiler: make clean"
