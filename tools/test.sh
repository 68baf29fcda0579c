#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test.sh NAME - the tests whose name holds NAME: Criterion programs, single Criterion cases (suite or test
# name) and pytest tests. One test in gdb: gdb --args build/tests/PROGRAM --debug=gdb --filter '*/CASE'.
. "$(dirname "$0")/say.sh"

name=${1:-}
[ -n "$name" ] || stop "which test?" "make test T=part-of-its-name, e.g. make test T=wordpiece"
tools/setup.sh check tell
tools/build.sh release
tools/python.sh build
test_environment
ran=0 status=0

for program in build/tests/*; do
    [ -x "$program" ] && [ -f "$program" ] || continue
    if [[ ${program##*/} == *"$name"* ]]; then
        filter='*/*'
    elif "$program" --list 2>/dev/null | grep -q "[├└]── .*$name"; then
        filter="*/*$name*"
    else
        continue
    fi
    say "$program --filter '$filter'"
    ran=1
    "$program" --filter "$filter" || status=1
done

tools/venv.sh
tools/get_model.sh medium >/dev/null
say "pytest -k $name"
code=0
"$VENV"/bin/python -m pytest -q -p no:cacheprovider -k "$name" tests/golden tests/cli tests/server tests/tidy \
    python/tests || code=$?
case $code in
0) ran=1 ;;
5) ;; # none of that name there
*) ran=1 status=1 ;;
esac
[ $ran -eq 1 ] || stop "no test has '$name' in its name" "ls build/tests; grep -rn 'def test_' tests"
exit $status
