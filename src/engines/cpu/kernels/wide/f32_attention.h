/* SPDX-License-Identifier: Apache-2.0 */
/* wide/f32_attention.h - softmax(Q Kᵀ + bias) V in float32 on attention_tiles.h, for every width of vector. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_F32_ATTENTION_H
#define FL_ENGINES_CPU_KERNELS_WIDE_F32_ATTENTION_H

#include "engines/cpu/kernels/wide/attention_tiles.h"

#ifndef FL_WEIGHTS_SUM /* avx2.h adds its lanes in another order */
#define FL_WEIGHTS_SUM vec_sum
#endif

/* t[i] = 2^t[i], t clamped to -126; relative error 2.2e-7 (lab/cpu/fit.py). NaN stays. */
FL_INLINE void powers_of_2(vec t[SOFT_VECS]) {
    static const float poly[] = {1.000000119e+00f, 6.931469440e-01f, 2.402212024e-01f,
                                 5.550713092e-02f, 9.675540961e-03f, 1.327647129e-03f};
    vec                n[SOFT_VECS], p[SOFT_VECS];
    FL_UNROLL for (int i = 0; i < SOFT_VECS; i++) {
        t[i] = vec_max(vec_set(-126.0f), t[i]);
        n[i] = vec_round(t[i]);
        t[i] -= n[i];
        p[i] = vec_set(poly[5]);
    }
    FL_UNROLL for (int c = 4; c >= 0; c--) {
        vec next = vec_set(poly[c]);
        FL_UNROLL for (int i = 0; i < SOFT_VECS; i++) {
            p[i] = vec_fma(p[i], t[i], next);
        }
    }
    FL_UNROLL for (int i = 0; i < SOFT_VECS; i++) {
        t[i] = vec_scale_exponent(p[i], n[i]);
    }
}

/* e^(s - top) in place over rows r and on, which is 2^t with t = s log2 e - top log2 e in one FMA: its
 * rounding costs t 2^-24 of a weight of 2^t. And the sums of the weights. */
FL_INLINE void rows_weights(group *g, size_t r) {
    const vec log2e = vec_set(1.44269502e+00f);
    vec       minus[SOFT_ROWS], sum[SOFT_VECS];
    float    *s[SOFT_ROWS];
    FL_UNROLL for (int i = 0; i < SOFT_ROWS; i++) {
        size_t row = r + (size_t)i < g->rows ? r + (size_t)i : g->rows - 1;
        s[i]       = soft_row(g, row);
        minus[i]   = vec_set(-g->top[row]) * log2e;
    }
    FL_UNROLL for (int i = 0; i < SOFT_VECS; i++) {
        sum[i] = vec_zero();
    }
    for (size_t j = 0; j < g->n16; j += FL_CPU_LANES) {
        vec e[SOFT_VECS];
        FL_UNROLL for (int i = 0; i < SOFT_VECS; i++) {
            const float *at = s[i / FL_PANEL_VECS] + j + i % FL_PANEL_VECS * FL_VEC_LANES;
            e[i]            = vec_fma(vec_load(at), log2e, minus[i / FL_PANEL_VECS]);
        }
        powers_of_2(e);
        FL_UNROLL for (int i = 0; i < SOFT_VECS; i++) {
            vec_store(s[i / FL_PANEL_VECS] + j + i % FL_PANEL_VECS * FL_VEC_LANES, e[i]);
            sum[i] += e[i];
        }
    }
    FL_UNROLL for (int i = 0; i < SOFT_ROWS; i++) {
        FL_UNROLL for (int v = 1; v < FL_PANEL_VECS; v++) {
            sum[i * FL_PANEL_VECS] += sum[i * FL_PANEL_VECS + v];
        }
        if (r + (size_t)i < g->rows) {
            g->sum[r + (size_t)i] = FL_WEIGHTS_SUM(sum[i * FL_PANEL_VECS]);
        }
    }
}

static void pack_block(const fl_attention *at, size_t begin, size_t n) {
    pack_keys(at->k + begin * at->kv_stride, at->kv_stride, n, at->d, at->scratch);
}

static void run_group(group *g) {
    attention_scores(g);
    for (size_t r = 0; r < g->rows; r += SOFT_ROWS) {
        rows_weights(g, r);
    }
    if (!attention_open(g)) {
        attention_hide(g, 0.0f);
    }
    attention_values(g);
}

static void wide_attention(const fl_attention *at) {
    attention_run(at, pack_block, run_group);
}

#endif
