/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/bf16_widened.c - bf16 with AVX-512 that multiplies no bfloat16: weights are widened in
 * registers, the arithmetic is that of float32. */
#include "engines/cpu/kernels/avx512/avx512.h"
#include "engines/cpu/kernels/narrow.h"

enum { FL_A_BYTES = 4 };

#include "engines/cpu/kernels/wide/bf16_chain.h"
#include "engines/cpu/kernels/wide/f32_gemm.h"

void fl_bf16_gemm_12x32_avx512(const fl_gemm *g) {
    wide_gemm(g);
}
