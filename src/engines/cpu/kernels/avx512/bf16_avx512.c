/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/bf16_avx512.c - bf16 with AVX-512 BF16: vdpbf16ps multiplies 16 pairs of bfloat16 and adds both
 * products to 16 float32 sums. A pair is as wide as a float: the product is float32's on tiles of
 * 12 x 32 with this instruction in place of the FMA (wide/bf16.h).
 *
 * In place, as FL_FMA there; tests/kernels/alone has one without assembly. */
#include <immintrin.h>

#ifdef FL_PLAIN_BF16
#undef FL_FMA
#define FL_FMA FL_PLAIN_BF16
#else
#define FL_FMA(acc, x, y) __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y))
#endif

#include "engines/cpu/kernels/avx512/avx512.h"
#include "engines/cpu/kernels/avx512/avx512_tables.h"
#include "engines/cpu/kernels/wide/bf16.h"
#include "engines/cpu/kernels/wide/f32_gemm.h"

void fl_bf16_gemm_12x32_avx512bf16(const fl_gemm_narrow *g) {
    fl_gemm pairs = bf16_as_floats(g);
    pairs.k       = g->k / 2;
    wide_gemm(&pairs);
}
