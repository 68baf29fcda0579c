/* SPDX-License-Identifier: Apache-2.0 */
/* neon/int8_mm.c - int8 with usmmla of Armv8.6 (mm_chain.h), which takes activations without a sign as they are. */
#define FL_ADD_MATRIX(acc, x, y)                                                                   \
    (acc) = vreinterpretq_f32_s32(vusmmlaq_s32(vreinterpretq_s32_f32(acc),                         \
                                               vreinterpretq_u8_f32(x), vreinterpretq_s8_f32(y)))

#include "engines/cpu/kernels/neon/mm_chain.h"

#include "engines/cpu/kernels/narrow.h"
#include "engines/cpu/kernels/wide/wide.h"

enum { FL_DOT_ZERO = 0, FL_A_BYTES = 1 };

#include "engines/cpu/kernels/wide/int_gemm.h"

void fl_q8_gemm_6x16_neonmm(const fl_gemm *g) {
    wide_gemm(g);
}
