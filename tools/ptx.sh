#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ptx.sh - the CUDA engine on what nvcc really made: its PTX, run on this processor (tests/cuda/sim/ptx.cpp). Every kernel
# against plain loops, warps one after the other and in turns; the engine's own tests; a real model in every precision.
# Three minutes; needs nvcc, no GPU. Part of make check-full, which reads build/tally/ptx ("passed failed skipped").
. "$(dirname "$0")/say.sh"

mkdir -p build/tally
if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
    note "no nvcc: there is no PTX to run"
    echo 0 0 1 >build/tally/ptx
    exit 0
fi
echo 0 1 0 >build/tally/ptx # until proven otherwise
tools/build.sh release fl-cuda-ptx fl_ptx_cuda fletch_cuda test_cuda_engine fletch
test_environment
driver=$ROOT/build/tests/cuda/ptx
export FLETCH_CUDA_MODULE=$ROOT/build/libfletch_cuda.so BENCH_SIMULATED=$driver
passed=0 failed=0

try() { # WHAT COMMAND…
    say "ptx: $1"
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}
try "every kernel" build/fl-cuda-ptx test
try "every kernel, warps in turns" env SIM_ORDER=7 build/fl-cuda-ptx test --brief
# What is left out bets on the time of a launch, which the interpreter does not have.
try "the engine's tests" env LD_LIBRARY_PATH="$driver" build/tests/test_cuda_engine --filter 'cuda/!(activates_where_it_is_cheaper)'
try "a model in every precision" "$VENV"/bin/python -m pytest -q -p no:cacheprovider tests/golden/test_cuda.py
echo "$passed $failed 0" >build/tally/ptx
[ $failed -eq 0 ]
