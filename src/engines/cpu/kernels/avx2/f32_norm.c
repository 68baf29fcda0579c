/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/f32_norm.c - LayerNorm of rows: mean, then the mean square of the differences, then the
 * scaling.
 *
 * Two passes over a row that is in L1 cost less than they save: the one-pass formula E[x²] - E[x]²
 * loses digits where the mean is large. The tail of a width that is not a multiple of 8 is
 * masked. */
#include "engines/cpu/kernels/avx2/avx2.h"

#include <math.h>

enum { SUMS = 4 }; /* chains side by side: one alone waits for itself */

FL_INLINE float total(const __m256 sum[SUMS]) {
    return fl_avx2_sum(_mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3])));
}

static float mean_of(const float *x, size_t n16, float inverse_n) {
    __m256 sum[SUMS] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                        _mm256_setzero_ps()};
    size_t i         = 0;
    for (; i + 8 * SUMS <= n16; i += 8 * SUMS) { /* padding is zero */
        FL_UNROLL for (int s = 0; s < SUMS; s++) {
            sum[s] = _mm256_add_ps(sum[s], _mm256_loadu_ps(x + i + 8 * s));
        }
    }
    for (; i < n16; i += 8) {
        sum[0] = _mm256_add_ps(sum[0], _mm256_loadu_ps(x + i));
    }
    return total(sum) * inverse_n;
}

static float variance_of(const float *x, size_t n, float mean, float inverse_n) {
    const __m256 m         = _mm256_set1_ps(mean);
    __m256       sum[SUMS] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                              _mm256_setzero_ps()};
    size_t       i         = 0;
    for (; i + 8 * SUMS <= n; i += 8 * SUMS) {
        FL_UNROLL for (int s = 0; s < SUMS; s++) {
            __m256 d = _mm256_sub_ps(_mm256_loadu_ps(x + i + 8 * s), m);
            sum[s]   = _mm256_fmadd_ps(d, d, sum[s]);
        }
    }
    for (; i < n; i += 8) {
        __m256 d = _mm256_sub_ps(_mm256_loadu_ps(x + i), m);
        d        = _mm256_and_ps(d, fl_avx2_mask((ptrdiff_t)(n - i)));
        sum[0]   = _mm256_fmadd_ps(d, d, sum[0]);
    }
    return total(sum) * inverse_n;
}

void fl_f32_layer_norm_avx2(const fl_row_norm *norm) {
    size_t n16       = fl_cpu_pad(norm->n);
    float  inverse_n = 1.0f / (float)norm->n;
    for (size_t r = 0; r < norm->rows; r++) {
        const float *x        = norm->x + r * norm->x_stride;
        float       *y        = norm->y + r * norm->y_stride;
        float        mean     = mean_of(x, n16, inverse_n);
        float        variance = variance_of(x, norm->n, mean, inverse_n);
        const __m256 m        = _mm256_set1_ps(mean);
        const __m256 scale    = _mm256_set1_ps(1.0f / sqrtf(variance + norm->eps));
        for (size_t i = 0; i < n16; i += 8) {
            __m256 v = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x + i), m), scale);
            v        = _mm256_fmadd_ps(v, _mm256_loadu_ps(norm->weight + i),
                                       _mm256_loadu_ps(norm->bias + i));
            _mm256_storeu_ps(y + i, v);
        }
    }
}
