#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [build] [shapes] [check] [golden] [measure] [profile] [times] - build fletch on a bare GPU machine, check it and
# measure it; all of them without arguments. Where a command may take ten minutes, see README.md for the pieces. Needs nvcc, CMake, gcc and Python; no package manager, no network. A
# step that fails or hangs says why, and the rest is done all the same: the exit status is 1 at the end.
# BENCH_WORK    folder for everything that is made (default build-gpu); BENCH_LOGS: for logs (default the same)
# BENCH_OUT     folder of the report (default bench/results)
# BENCH_ARCHS   devices to compile for (default: the one that is here)
# BENCH_UNTIL   when the machine is taken away (seconds since 1970): nothing is waited for that long, and what is left is told
# BENCH_BUDGET  seconds for measuring (default 400); BENCH_FLAGS: more for measure.py
# BENCH_SHAPES  models with random weights (default "minilm-l6 bert-base mpnet-base bert-large")
# BENCH_SIMULATED=1  try the script out where there is no GPU, on the simulated device of the tests: toys for the shapes;
#               ptx: with the kernels as nvcc's PTX, interpreted
# BENCH_PYTHON  Python of the golden vectors and of the peers (default: the first of python3 and build/venv that has
#               what the golden vectors need; where none has, one is made if packages can be had)
# FLETCH_MODEL  folder of all-MiniLM-L6-v2: then the golden vectors are checked, and it is measured instead of
#               minilm-l6; FLETCH_TEST_DATA: folder of the text sets (STS-B, Cranfield)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

work=${BENCH_WORK:-$PWD/build-gpu}
build=$work/build
shapes=${BENCH_SHAPES-minilm-l6 bert-base mpnet-base bert-large}
simulated=${BENCH_SIMULATED:-}
logs=${BENCH_LOGS:-$work}
off=
toys=() # what a simulated device can do of a step in some seconds
if [ -n "$simulated" ]; then
    shapes=$(tr ' ' '\n' <<<"$shapes" | sed -E 's/^(minilm|bert)-.*/toy/; s/^(mpnet|modernbert|qwen3)-.*/toy-\1/' | sort -u | xargs)
    toys=(--lengths 16 --tokens 200 --seconds 0.1 --set cuda.timeout_seconds=off)
    export FLETCH_CUDA_TIMEOUT_SECONDS=off # it is slow, and does not hang
fi
mkdir -p "$work" "$logs" || exit 1
say() { printf '== %s (%s s)\n' "$*" $SECONDS >&2; }
miss() { # WHAT [LOG]: what is off, and the last that its log says
    printf 'OFF: %s\n' "$1" >&2
    if [ -n "${2:-}" ]; then tail -n 8 "$2" | sed 's/^/   /' >&2; fi
    off="$off; $1"
}

within() { # SECONDS COMMAND …: ended then, or when the machine goes
    local seconds=$1 left
    shift
    if [ -n "${BENCH_UNTIL:-}" ]; then
        left=$((BENCH_UNTIL - $(date +%s) - 10))
        if [ "$left" -lt 1 ]; then echo "no time is left for it" >&2; return 124; fi
        seconds=$((left < seconds ? left : seconds))
    fi
    timeout -k 5 "$seconds" "$@"
}

device_arch() { # machine code for the device that is here: 9.0 -> 90a
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ')
    case $capability in
    90 | 100 | 120) echo "${capability}a" ;;
    '') if [ -n "$simulated" ]; then echo 90a; else echo "80;90a"; fi ;;
    *) echo "$capability" ;;
    esac
}

do_build() {
    local generator="Unix Makefiles" arch targets=()
    arch=${BENCH_ARCHS:-$(device_arch)}
    if command -v ninja >/dev/null; then generator=Ninja; fi
    if [ -n "$simulated" ]; then targets=(--target all fl_sim_cuda fl_sim_cublaslt fl_sim_nvml); fi
    if [ "$simulated" = ptx ]; then targets+=(fl-cuda-ptx fl_ptx_cuda); fi
    say "build for $arch"
    if ! cmake -S . -B "$build" -G "$generator" -DFLETCH_MINIMAL=ON -DFLETCH_CUDA=ON "-DFLETCH_CUDA_ARCHS=$arch" \
        -DFLETCH_WERROR=OFF >"$logs/configure.log" 2>&1; then
        miss "cmake could not configure: $logs/configure.log" "$logs/configure.log"
        return
    fi
    if ! cmake --build "$build" --parallel "$(nproc)" ${targets[@]+"${targets[@]}"} >"$logs/build.log" 2>&1; then
        grep -E 'error|FAILED' "$logs/build.log" | head -n 20 >&2
        miss "the build: $logs/build.log" "$logs/build.log"
    fi
}

built() { find "$build" -name "$1" -type f 2>/dev/null | head -n 1; } # its path

has() { # STEP PROGRAM: whether what the step needs was built
    if [ -n "$(built "$2")" ]; then return 0; fi
    miss "$1: $2 is not there; the step 'build' makes it"
    return 1
}

# Each group of kernels has a process and a time of its own: what ends the device's context, or never ends, is found by
# name and leaves the others.
check_kernels() {
    local word patience=60 device=(--device "$(built kernels.fatbin)") program=fl-cuda-kernels
    if [ "$simulated" = ptx ]; then program=fl-cuda-ptx; fi
    has "kernels" $program || return
    if [ -n "$simulated" ]; then device=() patience=300; fi
    for word in embed residual_norm bias_act int8 pool tiles rotate attention; do
        within $patience "$(built $program)" test $word ${device[@]+"${device[@]}"} >"$work/$word.log" 2>&1 || miss "kernels: $word (status $?)"
        sed "s/^/$word: /" "$work/$word.log" | tail -n 12 | tee -a "$logs/kernels.log" >&2
    done
}

check_shapes() {
    local name size=()
    has "the engine beside the CPU's" fletch || return
    if [ -n "$simulated" ]; then size=(--texts 6 --words 12); fi
    for name in $shapes; do
        within 100 python3 bench/gpu/agree.py "$build/fletch" "$work/models/$name" ${size[@]+"${size[@]}"} >"$work/agree.log" 2>&1 ||
            miss "the engine beside the CPU's, $name (status $?)"
        sed "s/^/$name, /" "$work/agree.log" | tail -n 6 | tee -a "$logs/kernels.log" >&2
    done
}

golden_python() { # a Python that has numpy and pytest, of the pinned versions where it must be made
    local python
    for python in ${BENCH_PYTHON:-python3 build/venv/bin/python "$work/venv/bin/python"}; do
        if "$python" -c 'import numpy, pytest' 2>/dev/null; then echo "$python"; return; fi
    done
    python3 -m venv "$work/venv" >"$logs/venv.log" 2>&1 &&
        grep -E '^(numpy|pytest)==' tests/requirements.txt |
        timeout 90 xargs "$work/venv/bin/python" -m pip install -q --retries 0 >>"$logs/venv.log" 2>&1 &&
        echo "$work/venv/bin/python"
}

check_golden() {
    local python patience=150
    if [ "$simulated" = ptx ]; then patience=900; fi # it has no GPU's time
    if [ -z "${FLETCH_MODEL:-}" ] || [ ! -f "$FLETCH_MODEL/model.safetensors" ]; then
        say "no golden check: FLETCH_MODEL names no folder of all-MiniLM-L6-v2"
        return
    fi
    has "the golden vectors" fletch || return
    python=$(golden_python)
    if [ -z "$python" ]; then
        miss "the golden vectors: no Python here has numpy and pytest (BENCH_PYTHON names one)"
        return
    fi
    FLETCH_BUILD=$build FLETCH_BIN=$build/fletch within $patience "$python" -m pytest -q -rsP -p no:cacheprovider \
        tests/golden/test_cuda.py >"$logs/golden.log" 2>&1 || miss "the golden vectors" "$logs/golden.log"
    if [ -z "$simulated" ] && grep -q ' skipped' "$logs/golden.log"; then miss "golden vectors that were skipped: $logs/golden.log"; fi
    grep '^golden, ' "$logs/golden.log" | tee -a "$logs/kernels.log" >&2
    tail -n 1 "$logs/golden.log" >&2
}

# What is known of the device even if nothing more comes of it: what fletch sees, and the engine alone on the first shape.
first_figures() {
    local size=()
    has "the first figures" fl-gpu || return
    if [ -n "$simulated" ]; then size=(batch.max_tokens=512 cuda.timeout_seconds=off); fi
    within 30 env -u FLETCH_MODEL "$build/fletch" doctor 2>&1 | tee "$logs/doctor.log" >&2
    printf '%s 1\n' 'forward 16' 'ids 16' 'ids 57' 'ids 512' |
        within 60 "$build/fl-gpu" "$work/models/${shapes%% *}" provider.order=cuda provider.fallback=false ${size[@]+"${size[@]}"} 2>&1 |
        tee "$logs/first.log" >&2 || miss "the first figures"
    if grep -q '"error"' "$logs/first.log"; then miss "the first figures: $logs/first.log"; fi
}

do_check() {
    say "check"
    : >"$logs/kernels.log"
    check_kernels
    check_shapes
    if [ -n "$shapes" ]; then first_figures; fi
}

do_golden() {
    say "golden vectors"
    check_golden
}

do_times() {
    say "times of the kernels"
    has "times of the kernels" fl-cuda-kernels || return
    if [ -n "$simulated" ]; then say "no times: a simulated device has none"; return; fi
    within 100 "$(built fl-cuda-kernels)" perf --device "$(built kernels.fatbin)" >"$logs/times.log" 2>&1 ||
        miss "times of the kernels" "$logs/times.log"
}

do_shapes() {
    say "shapes: $shapes"
    # shellcheck disable=SC2086
    python3 bench/gpu/shapes.py "$work/models" $shapes ${FLETCH_MODEL:+--like "$FLETCH_MODEL"} >"$logs/shapes.log" 2>&1 ||
        miss "the models of random weights" "$logs/shapes.log"
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

# Time by kernel.
do_profile() {
    local models
    name_models
    say "profile: ${models[*]-}"
    has "the profile" fl-gpu || return
    within 240 python3 bench/gpu/kernel_times.py ${models[@]+"${models[@]}"} --program "$build/fl-gpu" --work "$work/texts" ${toys[@]+"${toys[@]}" --set batch.max_tokens=512} >"$logs/profile.md" 2>"$logs/profile.log" ||
        miss "the profile" "$logs/profile.log"
    if grep -q '^failed' "$logs/profile.md"; then miss "a model of the profile: $logs/profile.md"; fi
}

do_measure() {
    local models
    name_models
    say "measure: ${models[*]-}"
    has "measuring" fl-gpu || return
    # The models go first: a flag of BENCH_FLAGS that takes a list would take them too.
    # shellcheck disable=SC2086
    within 570 python3 bench/gpu/measure.py ${models[@]+"${models[@]}"} --program "$build/fl-gpu" --work "$work/texts" --out "${BENCH_OUT:-bench/results}" \
        --budget "${BENCH_BUDGET:-400}" ${BENCH_PYTHON:+--python "$BENCH_PYTHON"} ${FLETCH_TEST_DATA:+--data "$FLETCH_TEST_DATA"} ${BENCH_FLAGS:-} ${toys[@]+"${toys[@]}" --batch-tokens 512 --rounds 1 --peer-device cpu} || miss "measuring (status $?)"
}

if [ -n "$simulated" ]; then
    if [ "$simulated" = ptx ]; then sim=ptx; else sim=sim; fi
    export BENCH_SIMULATED=$build/tests/cuda/$sim
    export LD_LIBRARY_PATH=$BENCH_SIMULATED${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
if [ $# -eq 0 ]; then set -- build shapes check golden measure profile times; fi
for step; do
    case $step in
    build | shapes | check | golden | measure | profile | times) "do_$step" ;;
    *) miss "there is no step '$step': build, shapes, check, golden, measure, profile or times" ;;
    esac
done
say "done${off:+, but off$off}"
[ -z "$off" ]
