/* SPDX-License-Identifier: Apache-2.0 */
/* wide/f32_norm.h - LayerNorm of rows, for every width of vector: mean, then the mean square of the
 * differences, then the scaling.
 *
 * Two passes over a row that is in L1 cost less than they save: the one-pass formula E[x²] - E[x]²
 * loses digits where the mean is large. What lies past the width is taken for the mean. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_F32_NORM_H
#define FL_ENGINES_CPU_KERNELS_WIDE_F32_NORM_H

#include <math.h>

#include "engines/cpu/kernels/wide/wide.h"

enum {
    NORM_CHAINS = FL_PANEL_VECS < 4 ? 4 : FL_PANEL_VECS
}; /* side by side: one waits for itself */

FL_INLINE float norm_total(vec sum[NORM_CHAINS]) {
    FL_UNROLL for (int half = NORM_CHAINS / 2; half > 0; half /= 2) {
        FL_UNROLL for (int v = 0; v < half; v++) {
            sum[v] += sum[v + half];
        }
    }
    return vec_sum(sum[0]);
}

static float norm_mean(const float *x, size_t n16, float inverse_n) {
    vec    sum[NORM_CHAINS];
    size_t i = 0;
    FL_UNROLL for (int v = 0; v < NORM_CHAINS; v++) {
        sum[v] = vec_zero();
    }
    for (; i + NORM_CHAINS * FL_VEC_LANES <= n16; i += NORM_CHAINS * FL_VEC_LANES) {
        FL_UNROLL for (int v = 0; v < NORM_CHAINS; v++) { /* padding is zero */
            sum[v] += vec_load(x + i + v * FL_VEC_LANES);
        }
    }
    for (; i < n16; i += FL_VEC_LANES) {
        sum[0] += vec_load(x + i);
    }
    return norm_total(sum) * inverse_n;
}

static float norm_variance(const float *x, size_t n, float mean, float inverse_n) {
    const vec m = vec_set(mean);
    vec       sum[NORM_CHAINS];
    size_t    i = 0;
    FL_UNROLL for (int v = 0; v < NORM_CHAINS; v++) {
        sum[v] = vec_zero();
    }
    for (; i + NORM_CHAINS * FL_VEC_LANES <= n; i += NORM_CHAINS * FL_VEC_LANES) {
        FL_UNROLL for (int v = 0; v < NORM_CHAINS; v++) {
            vec d  = vec_load(x + i + v * FL_VEC_LANES) - m;
            sum[v] = vec_fma(d, d, sum[v]);
        }
    }
    for (; i < n; i += FL_VEC_LANES) {
        vec d  = vec_load(x + i) - m;
        d      = vec_first((ptrdiff_t)(n - i), d, vec_zero());
        sum[0] = vec_fma(d, d, sum[0]);
    }
    return norm_total(sum) * inverse_n;
}

/* y = (x - mean) scale weight + bias of `rows` rows side by side, a constant at every call: they share the
 * loads of weight and bias. */
FL_INLINE void norm_rows(const fl_row_norm *norm, int rows, size_t first, const float *mean,
                         const float *scale) {
    const float *x   = norm->x + first * norm->x_stride;
    float       *y   = norm->y + first * norm->y_stride;
    size_t       n16 = fl_cpu_pad(norm->n);
    for (size_t i = 0; i < n16; i += FL_VEC_LANES) {
        const vec weight = vec_load(norm->weight + i), bias = vec_load(norm->bias + i);
        FL_UNROLL for (int r = 0; r < rows; r++) {
            const size_t at = (size_t)r;
            vec          v  = vec_load(x + at * norm->x_stride + i) - vec_set(mean[r]);
            v *= vec_set(scale[r]);
            vec_store(y + at * norm->y_stride + i, vec_fma(v, weight, bias));
        }
    }
}

/* Some rows go through each step before the next: what one waits for, another one computes. */
static void wide_layer_norm(const fl_row_norm *norm) {
    enum { ROWS = 4 };
    size_t n16       = fl_cpu_pad(norm->n);
    float  inverse_n = 1.0f / (float)norm->n, mean[ROWS], scale[ROWS];
    for (size_t first = 0; first < norm->rows; first += ROWS) {
        size_t       count = norm->rows - first < ROWS ? norm->rows - first : ROWS;
        const float *x     = norm->x + first * norm->x_stride;
        for (size_t r = 0; r < count; r++) {
            mean[r] = norm_mean(x + r * norm->x_stride, n16, inverse_n);
        }
        for (size_t r = 0; r < count; r++) {
            float variance = norm_variance(x + r * norm->x_stride, norm->n, mean[r], inverse_n);
            scale[r]       = 1.0f / sqrtf(variance + norm->eps);
        }
        if (count == ROWS) {
            norm_rows(norm, ROWS, first, mean, scale);
        }
        for (size_t r = 0; count < ROWS && r < count; r++) {
            norm_rows(norm, 1, first + r, mean + r, scale + r);
        }
    }
}

#endif
