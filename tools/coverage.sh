#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# coverage.sh [quick] - the lines and branches of src that the unit tests, the golden ones, the command line's and the
# server's reach. Writes build-coverage/index.html and prints the sum. An instrumented program is slow: half an hour on
# two cores. quick: the unit tests without the simulated GPU's, and the command line's.
. "$(dirname "$0")/say.sh"

mode=${1:-}
folders="tests/golden tests/cli tests/server" without='^$'
[ "$mode" != quick ] || folders=tests/cli without=cuda
tools/setup.sh check
tools/venv.sh
tools/build.sh coverage unit_tests all
tools/get_model.sh medium >/dev/null
test_environment
export FLETCH_BUILD=$ROOT/build-coverage FLETCH_BIN=$ROOT/build-coverage/fletch
find build-coverage -name '*.gcda' -delete
say "coverage: unit tests"
ctest --test-dir build-coverage -j "$(nproc)" -L '^unit$' -E "$without" >build-coverage/ctest.log 2>&1 ||
    note "some failed: build-coverage/ctest.log (a test may be too slow when it is instrumented)"
say "coverage: $folders"
# shellcheck disable=SC2086 # the folders are words
"$VENV"/bin/python -m pytest -q -p no:cacheprovider -n "$(nproc)" --dist loadfile $folders >build-coverage/pytest.log 2>&1 ||
    note "some failed: build-coverage/pytest.log"
gcovr=build-coverage/venv/bin/gcovr
if [ ! -x $gcovr ]; then
    "$(find_python)" -m venv build-coverage/venv
    build-coverage/venv/bin/pip install -q --disable-pip-version-check gcovr==8.4 >&2
fi
$gcovr --root "$ROOT" --filter src/ --exclude-unreachable-branches --html-details build-coverage/index.html \
    --print-summary build-coverage | tail -n 4
