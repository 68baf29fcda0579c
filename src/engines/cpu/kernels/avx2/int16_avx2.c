/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/int16_avx2.c - int16 with AVX2: vpmaddwd multiplies 16 pairs and adds neighbours in 32 bits, vpaddd
 * adds them to the sums: two operations for 16 products where an FMA does eight with one. vpaddd runs
 * on ports that vpmaddwd and FMAs do not use, so the rate is 1.6 times that of FMAs at most (Zen 3).
 *
 * Also here: rows of floats become int16, in two passes over a row that is in L1. Whether all values
 * are finite comes out of the first for nothing: as integers, the absolute values of infinity and NaN
 * are greater than all others, and the greatest is what is looked for. */
#include <math.h>

#include "engines/cpu/kernels/avx2/avx2.h"

enum { FL_DOT_BYTES = 2 };

/* As FL_FMA: in place, or the compiler folds loads of B into each product and sums wander. */
#define FL_DOT(acc, x, y)                                                                          \
    do {                                                                                           \
        __m256i products;                                                                          \
        __asm__("vpmaddwd %2, %1, %0" : "=x"(products) : "x"(x), "x"(y));                          \
        __asm__("vpaddd %1, %0, %0" : "+x"(acc) : "x"(products));                                  \
    } while (0)

#include "engines/cpu/kernels/avx2/byte_dot_avx2.h"
#include "engines/cpu/kernels/wide/int_gemm.h"

void fl_q16_gemm_6x16_avx2(const fl_gemm_narrow *g) {
    wide_gemm_int(g);
}

/* Eight values, times their gains; `gains` is a constant at every call. */
FL_INLINE __m256 values(const fl_quantize *z, int gains, const float *x, size_t i) {
    __m256 y = _mm256_loadu_ps(x + i);
    return gains ? _mm256_mul_ps(y, _mm256_loadu_ps(z->gain + i)) : y;
}

/* The greatest absolute value, as its bits. */
FL_INLINE int32_t most_of(const fl_quantize *z, int gains, const float *x) {
    const __m256i size    = _mm256_set1_epi32(0x7fffffff);
    __m256i       most[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (size_t i = 0; i < z->n; i += FL_CPU_LANES) {
        FL_UNROLL for (size_t u = 0; u < 2; u++) {
            __m256i bits = _mm256_castps_si256(values(z, gains, x, i + u * 8));
            most[u]      = _mm256_max_epi32(most[u], _mm256_and_si256(bits, size));
        }
    }
    __m256i all  = _mm256_max_epi32(most[0], most[1]);
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    four         = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

FL_INLINE void quantize_row(const fl_quantize *z, int gains, size_t r) {
    const float *x    = z->x + r * z->x_stride;
    int16_t     *q    = (int16_t *)(void *)((char *)z->q + r * z->q_stride);
    int32_t      bits = most_of(z, gains, x);
    float        high;
    __builtin_memcpy(&high, &bits, sizeof high);
    bool   finite = bits < 0x7f800000, any = finite && high >= FL_CPU_Q8_TINY;
    __m256 inverse = _mm256_set1_ps(any ? FL_CPU_Q16_MOST / high : 0.0f);
    z->scale[r]    = !finite ? NAN : any ? high * (1.0f / FL_CPU_Q16_MOST) : 1.0f;
    for (size_t i = 0; i < z->n; i += FL_CPU_LANES) {
        __m256i low   = _mm256_cvtps_epi32(_mm256_mul_ps(values(z, gains, x, i), inverse));
        __m256i upper = _mm256_cvtps_epi32(_mm256_mul_ps(values(z, gains, x, i + 8), inverse));
        __m256i words = _mm256_packs_epi32(low, upper); /* packing works in halves */
        _mm256_storeu_si256((__m256i *)(void *)(q + i), _mm256_permute4x64_epi64(words, 0xd8));
    }
}

void fl_q16_quantize_avx2(const fl_quantize *z) {
    if (z->gain) {
        for (size_t r = 0; r < z->rows; r++) {
            quantize_row(z, 1, r);
        }
        return;
    }
    for (size_t r = 0; r < z->rows; r++) {
        quantize_row(z, 0, r);
    }
}
