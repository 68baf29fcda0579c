/* SPDX-License-Identifier: Apache-2.0 */
/* wide/f32_rows.h - RMS norm and rotary positions of rows, for every width of vector. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_F32_ROWS_H
#define FL_ENGINES_CPU_KERNELS_WIDE_F32_ROWS_H

#include <math.h>

#include "engines/cpu/kernels/wide/wide.h"

/* 1 / √(mean square + eps); the padding of x is zero and adds nothing. */
static float rms_scale(const float *x, size_t n16, float inverse_n, float eps) {
    enum {
        CHAINS = FL_PANEL_VECS < 4 ? 4 : FL_PANEL_VECS
    }; /* side by side: one waits for itself */
    vec    sum[CHAINS];
    size_t i = 0;
    FL_UNROLL for (int v = 0; v < CHAINS; v++) {
        sum[v] = vec_zero();
    }
    for (; i + CHAINS * FL_VEC_LANES <= n16; i += CHAINS * FL_VEC_LANES) {
        FL_UNROLL for (int v = 0; v < CHAINS; v++) {
            vec d  = vec_load(x + i + v * FL_VEC_LANES);
            sum[v] = vec_fma(d, d, sum[v]);
        }
    }
    for (; i < n16; i += FL_VEC_LANES) {
        vec d  = vec_load(x + i);
        sum[0] = vec_fma(d, d, sum[0]);
    }
    FL_UNROLL for (int v = 1; v < CHAINS; v++) {
        sum[0] += sum[v];
    }
    return 1.0f / sqrtf(vec_sum(sum[0]) * inverse_n + eps);
}

static void wide_rms_norm(const fl_row_norm *norm) {
    size_t n16       = fl_cpu_pad(norm->n);
    float  inverse_n = 1.0f / (float)norm->n;
    for (size_t r = 0; r < norm->rows; r++) {
        const float *x     = norm->x + r * norm->x_stride;
        float       *y     = norm->y + r * norm->y_stride;
        const vec    scale = vec_set(rms_scale(x, n16, inverse_n, norm->eps));
        for (size_t i = 0; i < n16; i += FL_VEC_LANES) {
            vec_store(y + i, vec_load(x + i) * scale * vec_load(norm->weight + i));
        }
    }
}

/* Halves that are no whole number of vectors end element by element. */
static void wide_rotate(const fl_rotation *at) {
    size_t half = at->dims / 2;
    for (size_t r = 0; r < at->rows; r++) {
        const float *cosine = at->cosine + r * half, *sine = at->sine + r * half;
        float       *x = at->x + r * at->stride, *y = x + half;
        size_t       i = 0;
        for (; i + FL_VEC_LANES <= half; i += FL_VEC_LANES) {
            vec a = vec_load(x + i), b = vec_load(y + i);
            vec c = vec_load(cosine + i), s = vec_load(sine + i);
            vec_store(x + i, vec_fma(a, c, -(b * s)));
            vec_store(y + i, vec_fma(b, c, a * s));
        }
        for (; i < half; i++) {
            float a = x[i], b = y[i];
            x[i] = fmaf(a, cosine[i], -(b * sine[i]));
            y[i] = fmaf(b, cosine[i], a * sine[i]);
        }
    }
}

#endif
