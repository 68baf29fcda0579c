#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# sanitize.sh asan|tsan|fuzz [SECONDS] - build with a sanitizer and run what it is for.
# sanitize.sh asan-server|tsan-server [ARGUMENTS of pytest] - the server's hostile tests (or those named) against the sanitized
# program.
# sanitize.sh tsan-python [SECONDS] - the package with the thread sanitizer: 64 threads of Python for 60 seconds embed, iterate,
# await, cancel, open and close. The interpreter and numpy are not built with it: what it says of them would be guessed.
# asan: every unit test. tsan: the tests that start threads. fuzz: each libFuzzer target, from the
# seeds in tests/fuzz/corpus/TARGET: for SECONDS, from a place that chance chooses; without SECONDS the same
# inputs each time, 200,000 or as many of them as 15 s allow, so that a faster machine finds nothing new.
# An input that breaks a target is kept in build-fuzz/found/.
# Writes "passed failed skipped" to build/tally/PRESET for check.sh.
. "$(dirname "$0")/say.sh"

preset=${1:?asan, tsan, fuzz, asan-server, tsan-server or tsan-python}
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=second_deadlock_stack=1:halt_on_error=1:suppressions=$ROOT/tools/tsan.supp

if [ "$preset" = tsan-python ]; then
    tools/venv.sh
    mkdir -p build
    say "build: _fletch under tsan (build-tsan/)"
    python=$(find_python)
    { cmake --preset tsan -DFLETCH_PYTHON=ON -DPython_EXECUTABLE="$(command -v "$python")" &&
        ninja -C build-tsan _fletch; } >build/tsan-python.log 2>&1 ||
        stop "the build of _fletch under tsan" "its output: build/tsan-python.log"
    say "soak: 64 threads of Python under tsan, ${2:-60} s"
    LD_PRELOAD=$(cc -print-file-name=libtsan.so) PYTHONPATH=$ROOT/build-tsan/python \
        exec "$VENV"/bin/python python/tests/soak.py threads tests/golden/folders/plain-bert 64 "${2:-60}"
fi
if [[ $preset == *-server ]]; then
    folder=build-${preset%-server}
    shift
    [ $# -gt 0 ] || set -- tests/server/test_{transport*,budgets,promises,dialect_errors,tei,store}.py
    tools/build.sh "${preset%-server}" fletch fletch_faulty
    tools/venv.sh
    tools/get_model.sh medium >/dev/null
    test_environment
    say "pytest: the server under $preset"
    # What a sanitizer takes of memory says nothing (tests/server/serving.py).
    FLETCH_BUILD=$ROOT/$folder FLETCH_BIN=$ROOT/$folder/fletch FLETCH_TEST_SANITIZED=1 \
        exec "$VENV"/bin/python -m pytest -q -p no:cacheprovider "$@"
fi

if [ -n "${2:-}" ]; then
    seconds=$2 inputs=-1 chance=0 corpus=corpus # libFuzzer draws a seed, and goes on from what it has found
else
    seconds=15 inputs=200000 chance=1 corpus=fresh
fi
folder=build-$preset
mkdir -p build/tally
echo 0 1 0 >build/tally/"$preset" # until proven otherwise

case $preset in
asan) targets=(unit_tests fl-kernels) label=unit ;;
tsan) targets=(thread_tests) label=threads ;;
fuzz) targets=(fuzzers) ;;
*) stop "unknown preset '$preset'" "tools/sanitize.sh asan, tsan or fuzz" ;;
esac
tools/build.sh "$preset" "${targets[@]}"

if [ "$preset" != fuzz ]; then
    status=0
    ctest --test-dir "$folder" -j "$(nproc)" -L "^$label\$" --output-on-failure --output-junit tests.xml \
        --no-tests=ignore >"$folder"/ctest.log 2>&1 || status=$?
    [ -f "$folder"/tests.xml ] || cp /dev/null "$folder"/tests.xml
    python3 tools/tally.py "$folder"/tests.xml >build/tally/"$preset"
    if [ $status -ne 0 ]; then
        cat "$folder"/ctest.log >&2
        stop "$preset tests" "one alone: $folder/tests/NAME (its output names file and line)"
    fi
    note "$(grep -E 'tests passed|No tests' "$folder"/ctest.log || true)"
    exit 0
fi

# One target, from its seeds; leaves passed or failed in FOLDER/NAME.result.
fuzz_one() { # PROGRAM
    local program=$1 name=${1##*/} work=$folder/$corpus/${1##*/} seeds=tests/fuzz/corpus/${1##*/}
    mkdir -p "$work"
    [ -d "$seeds" ] || seeds=
    if "$program" -max_total_time="$seconds" -runs="$inputs" -seed=$chance -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$folder/found/$name-" "$work" $seeds >"$folder/$name.log" 2>&1; then
        note "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/$name.log") inputs tried"
        echo passed >"$folder/$name.result"
    else
        tail -n 40 "$folder/$name.log" >&2
        note "$name: broken by an input in $folder/found/; again with: $program THAT-FILE"
        echo failed >"$folder/$name.result"
    fi
}

mkdir -p "$folder"/found
rm -rf "$folder"/*.result "$folder"/fresh
say "fuzz: each target for $seconds s, one to a core"
for program in "$folder"/fuzz/*; do
    [ -x "$program" ] && [ -f "$program" ] || continue
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
        wait -n || true
    done
    fuzz_one "$program" &
done
wait
passed=$(cat "$folder"/*.result 2>/dev/null | grep -c passed || true)
failed=$(cat "$folder"/*.result 2>/dev/null | grep -c failed || true)
echo "$passed $failed 0" >build/tally/fuzz
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
