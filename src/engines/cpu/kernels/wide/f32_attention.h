/* SPDX-License-Identifier: Apache-2.0 */
/* wide/f32_attention.h - softmax(Q Kᵀ + bias) V in float32 on attention_tiles.h, for every width of vector. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_F32_ATTENTION_H
#define FL_ENGINES_CPU_KERNELS_WIDE_F32_ATTENTION_H

#include "engines/cpu/kernels/wide/attention_tiles.h"

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

FL_INLINE vec keep_weights(float *s, size_t j, vec weights, vec sum) {
    vec_store(s + j, weights);
    return sum + weights;
}

static void pack_block(const fl_attention *at, size_t begin, size_t n) {
    pack_keys(at->k + begin * at->kv_stride, at->kv_stride, n, at->d, at->scratch);
}

static void run_group(group *g) {
    attention_scores(g);
    attention_weights(g, powers_of_2, keep_weights);
    if (!attention_open(g))
        attention_hide(g, 0.0f);
    attention_values(g);
}

static void wide_attention(const fl_attention *at) {
    attention_run(at, pack_block, run_group);
}

#endif
