/* SPDX-License-Identifier: Apache-2.0 */
/* neon/bf16_neon.c - bf16 with NEON: weights are widened in registers, the arithmetic is that of float32. */
#include "engines/cpu/kernels/narrow.h"
#include "engines/cpu/kernels/neon/neon.h"

#define FL_ADD_PRODUCT(acc, x, y) (acc) = vfmaq_f32(acc, x, y)

enum { FL_A_BYTES = 4 };

#include "engines/cpu/kernels/wide/bf16_chain.h"
#include "engines/cpu/kernels/wide/f32_gemm.h"

void fl_bf16_gemm_6x16_neon(const fl_gemm *g) {
    wide_gemm(g);
}
