#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python.sh [build] - the Python package. build: build/python/fletch, to be imported where it lies, and no more
# (`make check` tests that). Without a word: the wheel, its smoke test, and every test of python/tests with all
# libraries that the package works with, in an environment of its own, .cache/venv-python (3 GB, torch most of it).
. "$(dirname "$0")/say.sh"

tools/build.sh release
python=$(find_python)
say "python: build/python/fletch"
log=$ROOT/build/python.log
if ! { cmake --preset release -DFLETCH_PYTHON=ON -DPython_EXECUTABLE="$(command -v "$python")" &&
    ninja -C build _fletch; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    stop "the Python module does not build (all of its output: build/python.log)" \
         "run: make setup (it installs the headers, python3-dev), then try again"
fi
[ "${1:-}" != build ] || exit 0

tools/wheel.sh
VENV=$ROOT/.cache/venv-python
want=$(sha256sum python/tests/requirements.txt | cut -d' ' -f1)
if [ "$(cat "$VENV/.requirements" 2>/dev/null)" != "$want" ]; then
    say "python: making .cache/venv-python with python/tests/requirements.txt"
    rm -rf "$VENV"
    mkdir -p .cache
    if ! { "$python" -m venv "$VENV" &&
        "$VENV/bin/pip" install --disable-pip-version-check -r python/tests/requirements.txt; } >>"$log" 2>&1; then
        tail -n 5 "$log" >&2
        stop "pip could not install python/tests/requirements.txt (all of its output: build/python.log)" \
             "check the network or pip's index settings (pip config list), then try again"
    fi
    echo "$want" >"$VENV/.requirements"
fi
tools/get_model.sh medium >/dev/null
test_environment
FLETCH_MODEL_HIGH=$(tools/get_model.sh high)
export FLETCH_MODEL_HIGH PYTHONPATH=$ROOT/build/python
say "types: mypy, stubtest, pyright"
"$VENV"/bin/python -m mypy --strict python/src/fletch python/tests/typed.py
"$VENV"/bin/python -m mypy.stubtest fletch._fletch
"$VENV"/bin/python -m pyright --pythonpath "$VENV/bin/python" python/src/fletch
say "pytest: python/tests, all of it"
# The variable, since -X dev does not reach the workers of xdist.
PYTHONDEVMODE=1 "$VENV"/bin/python -m pytest -q -W error -p no:cacheprovider -p no:langsmith -o asyncio_mode=auto \
    -o asyncio_default_fixture_loop_scope=function -n 2 --dist loadgroup python/tests
