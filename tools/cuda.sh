#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cuda.sh - the CUDA engine for every device from Turing on: build/libfletch_cuda.so, which build/fletch finds
# beside itself. The kernels cost about 18 seconds of one core per device, two minutes for all.
# CUDA_ARCHS names other devices: CUDA_ARCHS="90a" tools/cuda.sh takes a sixth of
# the time. A GPU is needed to run it, not to build it.
. "$(dirname "$0")/say.sh"

archs=${CUDA_ARCHS:-75;80;86;89;90a;100;100-virtual}
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc /opt/cuda/bin/nvcc "${CUDA_HOME:-/nowhere}/bin/nvcc" \
    2>/dev/null | head -n 1 || true)
[ -n "$nvcc" ] ||
    stop "nvcc is not installed, which compiles the kernels" \
         "install the CUDA toolkit 13 (nvcc and the headers of cuBLAS) and set PATH or CUDA_HOME"
tools/build.sh release fletch fletch_shared fletch_static
cmake -S . -B build -DFLETCH_CUDA=ON "-DFLETCH_CUDA_ARCHS=$archs" >build/configure.log 2>&1 ||
    { tail -n 20 build/configure.log >&2; stop "cmake could not configure" "all of its output: build/configure.log"; }
say "cuda: kernels for $archs with $nvcc"
ninja -C build --quiet fletch_cuda || stop "the CUDA module" "the first error above says where"
note "$(stat -c '%n, %s bytes' build/libfletch_cuda.so)"
build/fletch doctor 2>/dev/null | sed -n 's/^  \(provider.cuda.*\)/   \1/p' >&2 || true
