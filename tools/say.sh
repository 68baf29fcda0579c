# SPDX-License-Identifier: Apache-2.0
# say.sh - what the scripts of this folder share; sourced, never run.
# Sets the root of the repository as the working folder and gives three ways to speak:
#   say TEXT          what is being done now
#   note TEXT         a fact about it
#   stop TEXT [HINT]  it failed, and what to do about it; ends the script with status 1
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$PWD

if [ -t 2 ]; then bold=$'\e[1m' red=$'\e[31m' plain=$'\e[0m'; else bold='' red='' plain=''; fi
say()  { printf '%s== %s%s\n' "$bold" "$*" "$plain" >&2; }
note() { printf '   %s\n' "$*" >&2; }
stop() {
    printf '%sfailed: %s%s\n' "$red" "$1" "$plain" >&2
    [ $# -lt 2 ] || printf '   what to do: %s\n' "$2" >&2
    exit 1
}

MODEL_DIR=$ROOT/.cache/models
VENV=$ROOT/build/venv

# What every Python test reads. FLETCH_TEST_DATA may be set by the caller.
test_environment() {
    export FLETCH_BUILD=$ROOT/build FLETCH_BIN=$ROOT/build/fletch
    export FLETCH_MODEL=$MODEL_DIR/all-MiniLM-L6-v2
    export FLETCH_TEST_DATA=${FLETCH_TEST_DATA:-$ROOT/../shared/data}
    export PYTHONDONTWRITEBYTECODE=1
}

# The first python3 that can make a virtual environment: the one on PATH, else Debian's own.
find_python() {
    local python
    for python in python3 /usr/bin/python3; do
        if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
        then
            echo "$python"
            return
        fi
    done
    stop "no Python 3.10 or later that can make virtual environments" \
         "run: make setup (it installs python3 and python3-venv)"
}

# A pip to download with and nothing else: build/pip.
make_pip() { # LOG
    [ ! -x build/pip/bin/pip ] || return 0
    rm -rf build/pip
    mkdir -p build
    "$(find_python)" -m venv build/pip >"$1" 2>&1 ||
        stop "python3 cannot make a virtual environment (see ${1#"$ROOT"/})" "run: make setup"
}

# Every C file that git knows or would take, but for the generated ones ("made by tools/…; do not edit").
c_sources() {
    git ls-files --cached --others --exclude-standard -- '*.c' '*.h' |
        while read -r file; do
            [ ! -f "$file" ] || head -n 3 "$file" | grep -q 'made by tools/' || echo "$file"
        done
}
