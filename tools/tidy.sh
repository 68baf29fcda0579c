#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tidy.sh - style is a test: our own rules (tests/tidy), clang-format, clang-tidy (.clang-tidy) and cppcheck.
# Runs all four and fails when any of them did.
. "$(dirname "$0")/say.sh"

tools/setup.sh check
tools/venv.sh
tools/build.sh release
test_environment
failed=()

say "tidy: our own rules"
"$VENV"/bin/python -m pytest -q -p no:cacheprovider tests/tidy || failed+=(tests/tidy)

mapfile -t sources < <(c_sources)
say "tidy: clang-format on ${#sources[@]} files"
clang-format --dry-run -Werror "${sources[@]}" || failed+=("clang-format (make format mends it)")

mapfile -t units < <(git ls-files --cached --others --exclude-standard -- 'src/*.c')
say "tidy: clang-tidy on ${#units[@]} files"
printf '%s\n' "${units[@]}" |
    xargs -P "$(nproc)" -n 4 clang-tidy -p build --quiet --extra-arg=-Wno-unknown-warning-option \
        2>build/clang-tidy.log || failed+=(clang-tidy)

say "tidy: cppcheck"
# uninitvar: version 2.10 takes the address of a variable for a use of it; gcc has the true ones.
cppcheck --quiet --std=c11 --language=c --enable=warning,performance,portability --inline-suppr \
    --error-exitcode=1 --suppress=missingIncludeSystem --suppress=uninitvar \
    --suppress=preprocessorErrorDirective:src/config/options.h -j "$(nproc)" -I include -I src \
    --template='{file}:{line}: {severity}: {message} [{id}]' src || failed+=(cppcheck)

if [ ${#failed[@]} -gt 0 ]; then
    stop "$(printf '%s; ' "${failed[@]}")" "the lines above name file and line"
fi
say "tidy: clean"
