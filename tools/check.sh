#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check.sh [san|full] - all set-up, then every test of the release build; the last line sums them up and the
# exit status is 0 only when all passed. A stage that breaks before it could count its tests counts as one failure.
# san: the sanitizers and the fuzz targets instead.
# full: both, the large model, a second run with the instruction set capped to the plain reference, the kernels
# of other processors under emulators, and those of the GPU as nvcc's PTX.
. "$(dirname "$0")/say.sh"

mode=${1:-}
tools/setup.sh "$([ "$mode" = full ] && echo full || echo check)"
tools/venv.sh
[ "$mode" = san ] || tools/build.sh release
[ "$mode" = san ] || tools/python.sh build
tools/get_model.sh medium >/dev/null
tools/onnxruntime.sh openvino || note "no OpenVINO: its tests are skipped and say so"
{ tools/onnxruntime.sh webgpu && tools/onnxruntime.sh ep-webgpu && tools/vulkan.sh; } || note "no WebGPU or no Vulkan device in software: its tests are skipped and say so"
tools/onnxruntime.sh || note "no ONNX Runtime library: its tests are skipped and say so"
[ "$mode" != full ] || tools/onnxruntime.sh gpu || note "no onnxruntime-gpu: its tests are skipped and say so"
[ "$mode" != full ] || tools/onnxruntime.sh ep-openvino || note "no plug-in of OpenVINO: its tests are skipped and say so"
test_environment
[ "$mode" != full ] || FLETCH_MODEL_HIGH=$(tools/get_model.sh high)
[ "$mode" != full ] || export FLETCH_TEST_FULL=1
export FLETCH_MODEL_HIGH=${FLETCH_MODEL_HIGH:-}
[ -n "$FLETCH_MODEL_HIGH" ] || unset FLETCH_MODEL_HIGH
[ -d "$FLETCH_TEST_DATA" ] ||
    note "no text sets at $FLETCH_TEST_DATA: tests that read them are skipped and say so"

rm -rf build/tally
mkdir -p build/tally

stages=()

plan() { # STAGES: each a failure until it has counted its tests
    local stage
    for stage in "$@"; do
        stages+=("$stage")
        rm -f build/"$stage".xml
        echo 0 1 0 >build/tally/"$stage"
    done
}

run_ctest() { # STAGE [ARGUMENTS]: unit tests and kernel conformance of the release build
    say "ctest: unit tests and kernels${FLETCH_CPU_ISA:+ with FLETCH_CPU_ISA=$FLETCH_CPU_ISA}"
    local stage=$1
    shift
    ctest --test-dir build -j "$(nproc)" --output-on-failure --output-junit "$stage".xml --no-tests=error "$@" || true
    python3 tools/tally.py build/"$stage".xml >build/tally/"$stage"
}

run_pytest() { # STAGE FOLDERS [ARGUMENTS]: Python tests against the real program, model and clients
    local stage=$1 folders=$2
    shift 2
    say "pytest: $folders${FLETCH_CPU_ISA:+ with FLETCH_CPU_ISA=$FLETCH_CPU_ISA}"
    # shellcheck disable=SC2086 # the folders are words
    "$VENV"/bin/python -m pytest -q -p no:cacheprovider --junitxml=build/"$stage".xml "$@" $folders || true
    python3 tools/tally.py build/"$stage".xml >build/tally/"$stage"
}

# What a processor with fewer instructions would run, as far as this one can: the quick tests that compare with the
# reference implementations. Where only the narrow formats are a set's own, those alone.
quick="not stsb and not same and not lone and not change"
mapfile -t narrower < <([ "$mode" = san ] || build/fl-kernels list | tail -n +2 | grep -v '^ref ') # ref: a hundred times as slow

run_narrower() {
    local set isa own
    for set in "${narrower[@]}"; do
        read -r isa own <<<"$set"
        if [ "$own" = float32 ]; then
            export FLETCH_CPU_ISA=$isa
            plan ctest-"$isa" golden-"$isa"
            run_ctest ctest-"$isa" -R '^test_(engine_bytes|prediction)$'
            run_pytest golden-"$isa" "$(echo tests/golden/test_{vectors,families,lists,scores,late,language,long}.py)" \
                -n $((2 * $(nproc))) -k "$quick"
            unset FLETCH_CPU_ISA
        fi
    done
}

run_narrow_formats() {
    local isa
    for isa in "${narrower[@]%% *}"; do
        FLETCH_CPU_ISA=$isa run_pytest precision-"$isa" tests/golden/test_precision.py -k "$quick"
    done
}

# Tests of the server and of Python wait most of their time. Files of the server share one.
run_waiting() { # SUFFIX
    local jobs=$((2 * $(nproc)))
    run_pytest server"$1" tests/server -n $jobs --dist loadfile --no-loadscope-reorder
    PYTHONDEVMODE=1 run_pytest python"$1" python/tests -n $jobs --dist worksteal -W error
    [ -n "$1" ] || run_narrow_formats
}

run_all() { # SUFFIX: those that compute, and those that wait beside them: what these say comes when all have ended
    plan ctest"$1" pytest"$1" server"$1" python"$1"
    [ -n "$1" ] || for isa in "${narrower[@]%% *}"; do plan precision-"$isa"; done
    set -m # a group of its own, which ends with this script and in which Ctrl-C is not ignored
    run_waiting "$1" >build/waiting.log 2>&1 </dev/null &
    local waiting=$!
    set +m
    # shellcheck disable=SC2064 # the number of now
    trap "kill -- -$waiting 2>/dev/null || true" EXIT
    run_ctest ctest"$1"
    run_pytest pytest"$1" "tests/golden tests/cli tests/tidy" -n $((2 * $(nproc))) --dist worksteal
    [ -n "$1" ] || run_narrower
    wait $waiting || true
    trap - EXIT
    cat build/waiting.log >&2
}

run_sanitizers() {
    local preset
    for preset in asan tsan fuzz; do
        plan "$preset"
        tools/sanitize.sh $preset || true
    done
}

if [ "$mode" != san ]; then
    run_all ''
fi
[ -z "$mode" ] || run_sanitizers
if [ "$mode" = full ]; then
    export FLETCH_CPU_ISA=ref
    run_all -ref
    unset FLETCH_CPU_ISA
    plan ptx
    tools/ptx.sh || true
    for machine in aarch64 plain; do
        plan emulate-$machine
        tools/emulate.sh $machine || true
    done
fi

passed=0 failed=0 skipped=0
say "summary (passed failed skipped)"
for stage in "${stages[@]}"; do
    read -r p f s <build/tally/"$stage" || p=0 f=1 s=0
    printf '   %-20s %5d %5d %5d\n' "$stage" "$p" "$f" "$s" >&2
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
[ $failed -eq 0 ] || note "one test alone: make test T=part-of-its-name"
line="$passed passed, $failed failed"
[ $skipped -eq 0 ] || line="$line, $skipped skipped"
echo "$line"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
