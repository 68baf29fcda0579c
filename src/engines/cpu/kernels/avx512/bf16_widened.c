/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/bf16_widened.c - bf16 with AVX-512 that multiplies no bfloat16: weights are widened in
 * registers, the arithmetic is that of float32. */
#include "engines/cpu/kernels/avx512/avx512.h"
#include "engines/cpu/kernels/avx512/avx512_tables.h"

enum { FL_A_BYTES = 4 };

FL_INLINE vec vec_even(vec pair) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pair), 16));
}
FL_INLINE vec vec_odd(vec pair) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(pair), _mm512_set1_epi32((int)0xffff0000u)));
}

#include "engines/cpu/kernels/wide/bf16_chain.h"
#include "engines/cpu/kernels/wide/f32_gemm.h"

void fl_bf16_gemm_12x32_avx512(const fl_gemm *g) {
    wide_gemm(g);
}
