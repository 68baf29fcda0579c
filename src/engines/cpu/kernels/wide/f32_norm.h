/* SPDX-License-Identifier: Apache-2.0 */
/* wide/f32_norm.h - LayerNorm and RMS norm of rows, for every width of vector: sums, then the scaling.
 *
 * LayerNorm  takes the mean and then the mean square of the differences. Two passes over a row that is in L1 cost
 *            less than they save: the one-pass formula E[x²] - E[x]² loses digits where the mean is large.
 * Order      Element i of a row belongs to sum i mod 32, a fused multiply-add a square; sums i and i + 16 are
 *            added, then 16 lanes by halves (lanes_sum). Two chains a lane, for one would wait for itself. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_F32_NORM_H
#define FL_ENGINES_CPU_KERNELS_WIDE_F32_NORM_H

#include <math.h>

#include "engines/cpu/kernels/wide/wide.h"

/* Σ (x[i] - less), or of its squares; `squares` is a constant at every call. */
FL_INLINE float row_total(bool squares, const float *x, size_t n, float less) {
    enum { VECS = 2 * FL_PANEL_VECS, STEP = VECS * FL_VEC_LANES };
    const vec m = vec_set(less);
    vec       sum[VECS];
    size_t    i = 0;
    FL_UNROLL for (int v = 0; v < VECS; v++) {
        sum[v] = vec_zero();
    }
    for (; i + STEP <= n; i += STEP) {
        FL_UNROLL for (int v = 0; v < VECS; v++) {
            vec d  = vec_load(x + i + v * FL_VEC_LANES) - m;
            sum[v] = squares ? vec_fma(d, d, sum[v]) : sum[v] + d;
        }
    }
    FL_UNROLL for (int v = 0; v < VECS; v++) { /* the padding of a row can be read */
        ptrdiff_t left = (ptrdiff_t)(n - i) - v * FL_VEC_LANES;
        if (left > 0) {
            vec d  = vec_load(x + i + v * FL_VEC_LANES) - m;
            d      = vec_first(left, d, vec_zero());
            sum[v] = squares ? vec_fma(d, d, sum[v]) : sum[v] + d;
        }
    }
    FL_UNROLL for (int v = 0; v < FL_PANEL_VECS; v++) {
        sum[v] += sum[v + FL_PANEL_VECS];
    }
    return lanes_sum(sum);
}

static float row_mean(const float *x, size_t n, float inverse_n) {
    return row_total(false, x, n, 0.0f) * inverse_n;
}
static float row_variance(const float *x, size_t n, float mean, float inverse_n) {
    return row_total(true, x, n, mean) * inverse_n;
}
static float row_mean_square(const float *x, size_t n, float inverse_n) {
    return row_total(true, x, n, 0.0f) * inverse_n;
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
    float inverse_n = 1.0f / (float)norm->n, mean[ROWS], scale[ROWS];
    for (size_t first = 0; first < norm->rows; first += ROWS) {
        size_t       count = norm->rows - first < ROWS ? norm->rows - first : ROWS;
        const float *x     = norm->x + first * norm->x_stride;
        for (size_t r = 0; r < count; r++)
            mean[r] = row_mean(x + r * norm->x_stride, norm->n, inverse_n);
        for (size_t r = 0; r < count; r++) {
            float variance = row_variance(x + r * norm->x_stride, norm->n, mean[r], inverse_n);
            scale[r]       = 1.0f / sqrtf(variance + norm->eps);
        }
        if (count == ROWS)
            norm_rows(norm, ROWS, first, mean, scale);
        for (size_t r = 0; count < ROWS && r < count; r++)
            norm_rows(norm, 1, first + r, mean + r, scale + r);
    }
}

static void wide_rms_norm(const fl_row_norm *norm) {
    size_t n16       = fl_cpu_pad(norm->n);
    float  inverse_n = 1.0f / (float)norm->n;
    for (size_t r = 0; r < norm->rows; r++) {
        const float *x     = norm->x + r * norm->x_stride;
        float       *y     = norm->y + r * norm->y_stride;
        const float  mean  = row_mean_square(x, norm->n, inverse_n);
        const vec    scale = vec_set(1.0f / sqrtf(mean + norm->eps));
        for (size_t i = 0; i < n16; i += FL_VEC_LANES)
            vec_store(y + i, vec_load(x + i) * scale * vec_load(norm->weight + i));
    }
}

#endif
