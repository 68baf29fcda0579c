#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clients.sh - the programs that talk to the server in its tests: build/clients with tests/server/clients.txt.
# A stamp holds the hash of the list, so it is made once and again only when that changes. Status 1 when they
# cannot be installed: the tests that need them are then skipped by name.
. "$(dirname "$0")/say.sh"

folder=build/clients
want=$(sha256sum tests/server/clients.txt | cut -d' ' -f1)
stamp=$folder/.requirements
mkdir -p build
exec 9>build/clients.lock # two test processes ask at once
flock 9
if [ -x "$folder/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
    exit 0
fi
say "python: making build/clients with tests/server/clients.txt"
python=$(find_python)
rm -rf "$folder"
"$python" -m venv "$folder" >build/clients.log 2>&1 ||
    stop "python -m venv (output: build/clients.log)" "run: make setup, then try again"
if ! "$folder/bin/python" -m pip install --disable-pip-version-check --only-binary :all: \
        --timeout 15 --retries 1 \
        -r tests/server/clients.txt >>build/clients.log 2>&1; then
    tail -n 5 build/clients.log >&2
    stop "pip could not install tests/server/clients.txt (all of its output: build/clients.log)" \
         "check the network or pip's index settings (pip config list), then try again"
fi
echo "$want" >"$stamp"
