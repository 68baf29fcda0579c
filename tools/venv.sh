#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# venv.sh - the Python of the tests: build/venv with exactly tests/requirements.txt.
# A stamp holds the hash of the requirements, so it is made once and again only when they change.
. "$(dirname "$0")/say.sh"

want=$(sha256sum tests/requirements.txt | cut -d' ' -f1)
stamp=$VENV/.requirements
if [ -x "$VENV/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
    say "python: build/venv is up to date"
    exit 0
fi
say "python: making build/venv with tests/requirements.txt"
python=$(find_python)
rm -rf "$VENV"
mkdir -p build
"$python" -m venv "$VENV" >build/venv.log 2>&1 ||
    stop "python -m venv (output: build/venv.log)" "run: make setup, then try again"
if ! "$VENV/bin/python" -m pip install --disable-pip-version-check --only-binary :all: \
        -r tests/requirements.txt >>build/venv.log 2>&1; then
    tail -n 5 build/venv.log >&2
    stop "pip could not install tests/requirements.txt (all of its output: build/venv.log)" \
         "check the network or pip's index settings (pip config list), then try again"
fi
echo "$want" >"$stamp"
