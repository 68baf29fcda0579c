/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/int8_quantize_avx2.c - rows of floats become bytes, a scale and a zero each.
 *
 * Two passes over a row that is in L1: the range, then the rounding. Whether all values are finite
 * comes out of the first pass for two operations a vector: as integers, the absolute values of
 * infinity and NaN are greater than all others. */
#include <math.h>
#include <stdbool.h>

#include "engines/cpu/kernels/avx2/avx2.h"

/* Eight values, times their gains; `gains` is a constant at every call. */
FL_INLINE __m256 values(const fl_quantize *z, int gains, const float *x, size_t i) {
    __m256 y = _mm256_loadu_ps(x + i);
    return gains ? _mm256_mul_ps(y, _mm256_loadu_ps(z->gain + i)) : y;
}

typedef struct range {
    float low, high;
    bool  finite;
} range;

FL_INLINE range range_of(const fl_quantize *z, int gains, const float *x) {
    const __m256i size = _mm256_set1_epi32(0x7fffffff);
    __m256        low[2], high[2];
    __m256i       most[2];
    for (int u = 0; u < 2; u++) {
        low[u] = high[u] = _mm256_setzero_ps();
        most[u]          = _mm256_setzero_si256();
    }
    for (size_t i = 0; i < z->n; i += FL_CPU_LANES) {
        FL_UNROLL for (int u = 0; u < 2; u++) {
            __m256 y = values(z, gains, x, i + (size_t)u * 8);
            low[u]   = _mm256_min_ps(y, low[u]);
            high[u]  = _mm256_max_ps(y, high[u]);
            most[u]  = _mm256_max_epi32(most[u], _mm256_and_si256(_mm256_castps_si256(y), size));
        }
    }
    __m256i top  = _mm256_max_epi32(most[0], most[1]);
    __m256i over = _mm256_cmpgt_epi32(top, _mm256_set1_epi32(0x7f7fffff));
    __m256  down = _mm256_xor_ps(_mm256_min_ps(low[0], low[1]), _mm256_set1_ps(-0.0f));
    return (range){.low    = -fl_avx2_max(down),
                   .high   = fl_avx2_max(_mm256_max_ps(high[0], high[1])),
                   .finite = _mm256_testz_si256(over, over)};
}

FL_INLINE void round_row(const fl_quantize *z, int gains, const float *x, float inverse,
                         int32_t zero, uint8_t *q) {
    const __m256  scale = _mm256_set1_ps(inverse);
    const __m256i lift  = _mm256_set1_epi32(zero);
    for (size_t i = 0; i < z->n; i += FL_CPU_LANES) {
        __m256  low = values(z, gains, x, i), high = values(z, gains, x, i + 8);
        __m256i l     = _mm256_cvtps_epi32(_mm256_mul_ps(low, scale));
        __m256i h     = _mm256_cvtps_epi32(_mm256_mul_ps(high, scale));
        __m256i words = _mm256_packs_epi32(_mm256_add_epi32(l, lift), _mm256_add_epi32(h, lift));
        words         = _mm256_permute4x64_epi64(words, 0xd8); /* packing works in halves */
        _mm_storeu_si128(
            (__m128i *)(void *)(q + i),
            _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
    }
}

/* What row r is multiplied by; its scale and zero. */
FL_INLINE float measure_row(const fl_quantize *z, int gains, size_t r) {
    range span    = range_of(z, gains, z->x + r * z->x_stride);
    float width   = span.high - span.low;
    bool  any     = width >= FL_CPU_Q8_TINY;
    float inverse = any ? 255.0f / width : 0.0f;
    float zero    = span.finite ? rintf(-span.low * inverse) : 0.0f;
    z->scale[r]   = !span.finite ? NAN : any ? width * (1.0f / 255.0f) : 1.0f;
    z->zero[r]    = zero > 255.0f ? 255 : (int32_t)zero;
    return inverse;
}

/* Some rows are measured before they are rounded: what one waits for, another one computes. */
FL_INLINE void quantize_rows(const fl_quantize *z, int gains) {
    enum { ROWS = 4 };
    for (size_t first = 0; first < z->rows; first += ROWS) {
        size_t last = z->rows - first < ROWS ? z->rows : first + ROWS;
        float  inverse[ROWS];
        for (size_t r = first; r < last; r++) {
            inverse[r - first] = measure_row(z, gains, r);
        }
        for (size_t r = first; r < last; r++) {
            round_row(z, gains, z->x + r * z->x_stride, inverse[r - first], z->zero[r],
                      (uint8_t *)z->q + r * z->q_stride);
        }
    }
}

void fl_q8_quantize_avx2(const fl_quantize *z) {
    if (z->gain) {
        quantize_rows(z, 1);
    } else {
        quantize_rows(z, 0);
    }
}
