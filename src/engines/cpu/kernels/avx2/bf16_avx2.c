/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/bf16_avx2.c - bf16 with AVX2: weights are widened in registers, the arithmetic is that of float32.
 * Half the bytes to read, nothing more: it pays where a product waits for memory.
 *
 * Also here, for instruction sets that multiply bfloat16: rows of floats are rounded to it. */
#include "engines/cpu/kernels/avx2/avx2.h"
#include "engines/cpu/kernels/narrow.h"

enum { FL_A_BYTES = 4 };

#include "engines/cpu/kernels/wide/bf16_chain.h"
#include "engines/cpu/kernels/wide/f32_gemm.h"

void fl_bf16_gemm_6x16_avx2(const fl_gemm *g) {
    wide_gemm(g);
}

/* To the nearest, ties to even, in the lower halves; NaN stays NaN. */
FL_INLINE __m256i rounded(__m256 x) {
    __m256i bits  = _mm256_castps_si256(x);
    __m256i odd   = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up    = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i nan   = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
}

void fl_bf16_round_avx2(const fl_quantize *z) {
    for (size_t r = 0; r < z->rows; r++) {
        const float *x = z->x + r * z->x_stride;
        uint16_t    *q = (uint16_t *)(void *)((char *)z->q + r * z->q_stride);
        for (size_t i = 0; i < z->n; i += FL_CPU_LANES) {
            __m256i words = _mm256_packus_epi32(rounded(_mm256_loadu_ps(x + i)),
                                                rounded(_mm256_loadu_ps(x + i + 8)));
            _mm256_storeu_si256(
                (__m256i *)(void *)(q + i),
                _mm256_permute4x64_epi64(words, 0xd8)); /* packing works in halves */
        }
    }
}
