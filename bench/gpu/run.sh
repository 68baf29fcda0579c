#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [build] [check] [shapes] [measure] - build fletch on a bare GPU machine, check it and measure it; all four
# without arguments, in under eight minutes. Needs nvcc, CMake, gcc and Python; no package manager, no network.
# BENCH_WORK    folder for everything that is made (default build-gpu)
# BENCH_OUT     folder of the report (default bench/results)
# BENCH_ARCHS   devices to compile for (default: the one that is here)
# BENCH_BUDGET  seconds for measuring (default 400); BENCH_FLAGS: more for measure.py
# BENCH_SHAPES  models with random weights (default "minilm-l6 mpnet-base bert-large")
# BENCH_SIMULATED  folder of a simulated driver: tries the script out where there is no GPU
# FLETCH_MODEL  folder of all-MiniLM-L6-v2: then the golden vectors are checked, and it is measured instead of
#               minilm-l6; FLETCH_TEST_DATA: folder of the text sets (STS-B, Cranfield)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

work=${BENCH_WORK:-$PWD/build-gpu}
build=$work/build
shapes=${BENCH_SHAPES:-minilm-l6 mpnet-base bert-large}
simulated=${BENCH_SIMULATED:-}
mkdir -p "$work"
say() { printf '== %s (%s s)\n' "$*" $SECONDS >&2; }
stop() { printf 'failed: %s\n   what to do: %s\n' "$1" "$2" >&2; exit 1; }

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
        -DFLETCH_WERROR=OFF >"$work/configure.log" 2>&1 ||
        stop "cmake could not configure" "all of its output: $work/configure.log"
    cmake --build "$build" --parallel >"$work/build.log" 2>&1 ||
        { grep -E 'error|FAILED' "$work/build.log" | head -n 20 >&2; stop "the build" "all of its output: $work/build.log"; }
}

do_check() {
    say "check"
    local kernels
    kernels=$(find "$build" -name fl-cuda-kernels -type f | head -n 1)
    if [ -n "$kernels" ]; then
        local device=(--device "$(find "$build" -name kernels.fatbin | head -n 1)")
        if [ -n "$simulated" ]; then device=(); fi
        "$kernels" test "${device[@]}" >"$work/kernels.log" 2>&1 ||
            { tail -n 20 "$work/kernels.log" >&2; stop "a kernel differs from its reference" "all: $work/kernels.log"; }
        tail -n 1 "$work/kernels.log" >&2
    fi
    if [ -z "${FLETCH_MODEL:-}" ] || [ ! -f "$FLETCH_MODEL/model.safetensors" ]; then
        say "no golden check: FLETCH_MODEL names no folder of all-MiniLM-L6-v2"
        return
    fi
    FLETCH_BUILD=$build FLETCH_BIN=$build/fletch python3 -m pytest -q -p no:cacheprovider \
        tests/golden/test_cuda.py >"$work/golden.log" 2>&1 ||
        { tail -n 20 "$work/golden.log" >&2; stop "the golden vectors" "all of the output: $work/golden.log"; }
    tail -n 1 "$work/golden.log" >&2
}

do_shapes() {
    say "shapes: $shapes"
    # shellcheck disable=SC2086
    python3 bench/gpu/shapes.py "$work/models" $shapes ${FLETCH_MODEL:+--like "$FLETCH_MODEL"} >/dev/null
}

do_measure() {
    local name models=()
    for name in $shapes; do
        if [ "$name" = minilm-l6 ] && [ -f "${FLETCH_MODEL:-}/model.safetensors" ]; then
            models+=("minilm-l6=$FLETCH_MODEL")
        else
            models+=("$name=$work/models/$name")
        fi
    done
    say "measure: ${models[*]}"
    # The models go first: a flag of BENCH_FLAGS that takes a list would take them too.
    # shellcheck disable=SC2086
    python3 bench/gpu/measure.py "${models[@]}" --program "$build/fl-gpu" --work "$work/texts" --out "${BENCH_OUT:-bench/results}" \
        --budget "${BENCH_BUDGET:-400}" ${FLETCH_TEST_DATA:+--data "$FLETCH_TEST_DATA"} ${BENCH_FLAGS:-}
}

if [ -n "$simulated" ]; then export LD_LIBRARY_PATH=$simulated${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; fi
for step in ${*:-build check shapes measure}; do
    case $step in
    build | check | shapes | measure) "do_$step" ;;
    *) stop "unknown step '$step'" "build, check, shapes or measure" ;;
    esac
done
say "done"
