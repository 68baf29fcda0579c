#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [build] [shapes] [check] [measure] [profile] [times] - build fletch on a bare GPU machine, check it and measure
# it; all six without arguments. Where a command may take ten minutes, see README.md for the pieces. Needs nvcc, CMake, gcc and Python; no package manager, no network. A
# check that fails or hangs is told, and the rest is done all the same: the exit status is 1 at the end.
# BENCH_WORK    folder for everything that is made (default build-gpu); BENCH_LOGS: for logs (default the same)
# BENCH_OUT     folder of the report (default bench/results)
# BENCH_ARCHS   devices to compile for (default: the one that is here)
# BENCH_BUDGET  seconds for measuring (default 400); BENCH_FLAGS: more for measure.py
# BENCH_SHAPES  models with random weights (default "minilm-l6 bert-base mpnet-base bert-large")
# BENCH_SIMULATED  folder of a simulated driver: tries the script out where there is no GPU
# FLETCH_MODEL  folder of all-MiniLM-L6-v2: then the golden vectors are checked, and it is measured instead of
#               minilm-l6; FLETCH_TEST_DATA: folder of the text sets (STS-B, Cranfield)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

work=${BENCH_WORK:-$PWD/build-gpu}
build=$work/build
shapes=${BENCH_SHAPES-minilm-l6 bert-base mpnet-base bert-large}
simulated=${BENCH_SIMULATED:-}
logs=${BENCH_LOGS:-$work}
off=
mkdir -p "$work" "$logs"
say() { printf '== %s (%s s)\n' "$*" $SECONDS >&2; }
stop() { printf 'failed: %s\n   what to do: %s\n' "$1" "$2" >&2; exit 1; }
miss() { printf 'OFF: %s\n' "$1" >&2; off="$off; $1"; }

device_arch() { # machine code for the device that is here: 9.0 -> 90a
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ') || true
    case $capability in
    90 | 100 | 120) echo "${capability}a" ;;
    '') echo "80;90a" ;;
    *) echo "$capability" ;;
    esac
}

do_build() {
    local generator="Unix Makefiles" arch
    arch=${BENCH_ARCHS:-$(device_arch)}
    if command -v ninja >/dev/null; then generator=Ninja; fi
    say "build for $arch"
    cmake -S . -B "$build" -G "$generator" -DFLETCH_MINIMAL=ON -DFLETCH_CUDA=ON "-DFLETCH_CUDA_ARCHS=$arch" \
        -DFLETCH_WERROR=OFF >"$logs/configure.log" 2>&1 ||
        stop "cmake could not configure" "all of its output: $logs/configure.log"
    cmake --build "$build" --parallel "$(nproc)" >"$logs/build.log" 2>&1 ||
        { grep -E 'error|FAILED' "$logs/build.log" | head -n 20 >&2; stop "the build" "all of its output: $logs/build.log"; }
}

built() { find "$build" -name "$1" -type f | head -n 1; } # its path

# Each group of kernels has a process and a time of its own: what ends the device's context, or never ends, is found by
# name and leaves the others.
check_kernels() {
    local word device=(--device "$(built kernels.fatbin)")
    if [ -n "$simulated" ]; then device=(); fi
    for word in embed residual_norm bias_act int8 pool tiles rotate attention; do
        timeout -k 5 60 "$(built fl-cuda-kernels)" test $word "${device[@]}" >"$work/$word.log" 2>&1 || miss "kernels: $word (status $?)"
        sed "s/^/$word: /" "$work/$word.log" | tail -n 12 | tee -a "$logs/kernels.log" >&2
    done
}

do_check() {
    say "check"
    local name size=()
    : >"$logs/kernels.log"
    check_kernels
    if [ -n "$simulated" ]; then size=(--texts 6 --words 12); fi
    local check_time=100
    for name in $shapes; do
        timeout -k 5 "$check_time" python3 bench/gpu/agree.py "$build/fletch" "$work/models/$name" "${size[@]}" >"$work/agree.log" 2>&1 ||
            miss "the engine beside the CPU's, $name"
        sed "s/^/$name, /" "$work/agree.log" | tail -n 6 | tee -a "$logs/kernels.log" >&2
    done
    if [ -z "${FLETCH_MODEL:-}" ] || [ ! -f "$FLETCH_MODEL/model.safetensors" ]; then
        say "no golden check: FLETCH_MODEL names no folder of all-MiniLM-L6-v2"
        return
    fi
    FLETCH_BUILD=$build FLETCH_BIN=$build/fletch timeout -k 5 150 python3 -m pytest -q -rsP -p no:cacheprovider \
        tests/golden/test_cuda.py >"$logs/golden.log" 2>&1 || miss "the golden vectors"
    if [ -z "$simulated" ] && grep -q ' skipped' "$logs/golden.log"; then miss "golden vectors that were skipped: $logs/golden.log"; fi
    grep '^golden, ' "$logs/golden.log" | tee -a "$logs/kernels.log" >&2 || true
    tail -n 1 "$logs/golden.log" >&2
}

do_times() {
    say "times of the kernels"
    if [ -n "$simulated" ]; then return; fi
    timeout -k 5 100 "$(built fl-cuda-kernels)" perf --device "$(built kernels.fatbin)" >"$logs/times.log" 2>&1 || miss "times of the kernels"
}

do_shapes() {
    say "shapes: $shapes"
    # shellcheck disable=SC2086
    python3 bench/gpu/shapes.py "$work/models" $shapes ${FLETCH_MODEL:+--like "$FLETCH_MODEL"} >/dev/null
}

name_models() { # NAME=FOLDER of each shape into models
    local name
    models=()
    for name in $shapes; do
        if [ "$name" = minilm-l6 ] && [ -f "${FLETCH_MODEL:-}/model.safetensors" ]; then
            models+=("minilm-l6=$FLETCH_MODEL")
        else
            models+=("$name=$work/models/$name")
        fi
    done
}

# Time by kernel, and of cublasLt's algorithms.
do_profile() {
    local models size=()
    name_models
    say "profile: ${models[*]}"
    if [ -n "$simulated" ]; then size=(--lengths 16 --tokens 200 --seconds 0.1 --set batch.max_tokens=512); fi
    timeout -k 5 240 python3 bench/gpu/profile.py "${models[@]}" --program "$build/fl-gpu" --work "$work/texts" --proposals "${size[@]}" >"$logs/profile.md" 2>&1 ||
        miss "the profile"
    if grep -q '^failed' "$logs/profile.md"; then miss "a model of the profile: $logs/profile.md"; fi
}

do_measure() {
    local models
    name_models
    say "measure: ${models[*]}"
    # The models go first: a flag of BENCH_FLAGS that takes a list would take them too.
    # shellcheck disable=SC2086
    timeout -k 5 570 python3 bench/gpu/measure.py "${models[@]}" --program "$build/fl-gpu" --work "$work/texts" --out "${BENCH_OUT:-bench/results}" \
        --budget "${BENCH_BUDGET:-400}" ${FLETCH_TEST_DATA:+--data "$FLETCH_TEST_DATA"} ${BENCH_FLAGS:-} || miss "measuring"
}

if [ -n "$simulated" ]; then export LD_LIBRARY_PATH=$simulated${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; fi
for step in ${*:-build shapes check measure profile times}; do
    case $step in
    build | shapes | check | measure | profile | times) "do_$step" ;;
    *) stop "unknown step '$step'" "build, shapes, check, measure, profile or times" ;;
    esac
done
say "done${off:+, but off$off}"
[ -z "$off" ]
