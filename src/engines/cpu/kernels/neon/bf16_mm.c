/* SPDX-License-Identifier: Apache-2.0 */
/* neon/bf16_mm.c - bf16 with bfmmla of Armv8.6 (mm_chain.h): rows and weights in bfloat16, sums in float32. */
#define FL_ADD_MATRIX(acc, x, y)                                                                   \
    (acc) = vbfmmlaq_f32(acc, vreinterpretq_bf16_f32(x), vreinterpretq_bf16_f32(y))

#include "engines/cpu/kernels/neon/mm_chain.h"

#include "engines/cpu/kernels/narrow.h"

enum { FL_A_BYTES = 2 };

#include "engines/cpu/kernels/wide/f32_gemm.h"

void fl_bf16_gemm_6x16_neonmm(const fl_gemm *g) {
    wide_gemm(g);
}
