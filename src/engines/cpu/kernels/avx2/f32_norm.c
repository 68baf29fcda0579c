/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/f32_norm.c - LayerNorm of rows: mean, then the mean square of the differences, then the
 * scaling.
 *
 * Two passes over a row that is in L1 cost less than they save: the one-pass formula E[x²] - E[x]²
 * loses digits where the mean is large. The tail of a width that is not a multiple of 8 is
 * masked. */
#include "engines/cpu/kernels/avx2/avx2.h"

#include <math.h>

static float mean_of(const float *x, size_t n16, float inverse_n) {
    __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (size_t i = 0; i < n16; i += FL_CPU_LANES) { /* padding is zero */
        sum[0] = _mm256_add_ps(sum[0], _mm256_loadu_ps(x + i));
        sum[1] = _mm256_add_ps(sum[1], _mm256_loadu_ps(x + i + 8));
    }
    return fl_avx2_sum(_mm256_add_ps(sum[0], sum[1])) * inverse_n;
}

static float variance_of(const float *x, size_t n, float mean, float inverse_n) {
    const __m256 m      = _mm256_set1_ps(mean);
    __m256       sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    size_t       i      = 0;
    for (; i + FL_CPU_LANES <= n; i += FL_CPU_LANES) {
        __m256 low  = _mm256_sub_ps(_mm256_loadu_ps(x + i), m);
        __m256 high = _mm256_sub_ps(_mm256_loadu_ps(x + i + 8), m);
        sum[0]      = _mm256_fmadd_ps(low, low, sum[0]);
        sum[1]      = _mm256_fmadd_ps(high, high, sum[1]);
    }
    if (i < n) {
        ptrdiff_t left = (ptrdiff_t)(n - i);
        __m256    low  = _mm256_sub_ps(_mm256_loadu_ps(x + i), m);
        __m256    high = _mm256_sub_ps(_mm256_loadu_ps(x + i + 8), m);
        low            = _mm256_and_ps(low, fl_avx2_mask(left));
        high           = _mm256_and_ps(high, fl_avx2_mask(left - 8));
        sum[0]         = _mm256_fmadd_ps(low, low, sum[0]);
        sum[1]         = _mm256_fmadd_ps(high, high, sum[1]);
    }
    return fl_avx2_sum(_mm256_add_ps(sum[0], sum[1])) * inverse_n;
}

void fl_f32_layer_norm_avx2(const fl_layer_norm *norm) {
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
