#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench.sh [ARGUMENTS of bench/run.py] - the race against the best peers on this machine. Makes build/bench-venv
# with bench/requirements.txt once (about 1.5 GB to download, 5 GB on disk); FLETCH_BENCH_PYTHON names a
# Python that has them already. Results: bench/results/DATE-MACHINE.{json,md}.
# bench.sh runtime [ARGUMENTS of bench/runtime.py] - what the scheduler costs and gains; needs no peers.
. "$(dirname "$0")/say.sh"

tools/setup.sh build
tools/build.sh release fletch fletch_shared
folder=$(tools/get_model.sh medium)
test_environment

if [ "${1:-${T:-}}" = runtime ]; then
    shift $(($# > 0 ? 1 : 0))
    tools/build.sh release bench_runtime
    exec "${FLETCH_BENCH_PYTHON:-$(find_python)}" bench/runtime.py --model "$folder" "$@"
fi

python=${FLETCH_BENCH_PYTHON:-}
if [ -z "$python" ]; then
    python=$ROOT/build/bench-venv/bin/python
    want=$(sha256sum bench/requirements.txt | cut -d' ' -f1)
    if [ "$(cat build/bench-venv/.requirements 2>/dev/null)" != "$want" ]; then
        say "bench: installing the peers into build/bench-venv (about 1.5 GB to download)"
        rm -rf build/bench-venv
        "$(find_python)" -m venv build/bench-venv
        "$python" -m pip install --disable-pip-version-check -r bench/requirements.txt \
            >build/bench-venv.log 2>&1 ||
            stop "pip could not install bench/requirements.txt (output: build/bench-venv.log)" \
                 "check network and disk space, then try again"
        echo "$want" >build/bench-venv/.requirements
    fi
fi
[ -f "$FLETCH_TEST_DATA/stsb-en-train.jsonl" ] ||
    stop "no text sets at $FLETCH_TEST_DATA" "set FLETCH_TEST_DATA to the folder of stsb-en-train.jsonl"
exec "$python" bench/run.py --model "$folder" --data "$FLETCH_TEST_DATA" "$@"
