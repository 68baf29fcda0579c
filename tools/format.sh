#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# format.sh - lay out every C file that git knows (or would take) with .clang-format, in place.
. "$(dirname "$0")/say.sh"

command -v clang-format >/dev/null || stop "clang-format is not installed" "run: make setup"
mapfile -t sources < <(c_sources)
clang-format -i "${sources[@]}"
say "clang-format: ${#sources[@]} files"
