/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/bf16_avx512.c - bf16 with AVX-512 BF16: the product is float32's on tiles of 12 x 32 with vdpbf16ps
 * in place of the FMA (wide/f32_gemm.h). */
#include "engines/cpu/kernels/avx512/bf16_fma.h"

#include "engines/cpu/kernels/avx512/avx512.h"
#include "engines/cpu/kernels/narrow.h"

enum { FL_A_BYTES = 2 };

#include "engines/cpu/kernels/wide/f32_gemm.h"

void fl_bf16_gemm_12x32_avx512bf16(const fl_gemm *g) {
    wide_gemm(g);
}
