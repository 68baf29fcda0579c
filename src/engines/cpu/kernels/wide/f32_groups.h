/* SPDX-License-Identifier: Apache-2.0 */
/* wide/f32_groups.h - weights in few bits become a piece of a float32 panel (kernels.h: fl_widen).
 *
 * The scale of a group's 16 columns is one row of vectors; a step of k is 16 bytes, or the nibbles of half as many.
 * Products and sums are rounded one by one, so these are ref's bits and those of model/blocks.c. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_F32_GROUPS_H
#define FL_ENGINES_CPU_KERNELS_WIDE_F32_GROUPS_H

#include "engines/cpu/kernels/wide/wide.h"

/* Moved to where float32 has exponent and mantissa, subnormal ones too, the exponent is 112 too small; where it is the
 * largest, of infinity and NaN, it stays so. */
FL_INLINE vec vec_halves(const uint8_t *at) {
    ivec half = ivec_halves(at);
    ivec size = (ivec)((vec)((half & 0x7fff) << 13) * vec_set(0x1p112f));
    ivec none = (ivec)((half & 0x7c00) == 0x7c00) & 0x7f800000;
    return (vec)(size | none | (half << 16 & INT32_MIN));
}

typedef uint32_t uvec __attribute__((vector_size(sizeof(vec))));

FL_INLINE uvec uvec_choose(uvec where, uvec a, uvec b) {
    return (where & a) | (~where & b);
}

/* The nearest number of 16 bits, ties to even; NaN stays one. */
FL_INLINE vec vec_to_bfloat16(vec w) {
    uvec bits = (uvec)w, up = bits + 0x7fff + (bits >> 16 & 1);
    return (vec)(uvec_choose((uvec)(w != w), bits | 0x400000, up) & 0xffff0000u);
}

/* Normal ones lose 13 bits; subnormal ones are multiples of 2^-24, which is the last bit of 0.75. */
FL_INLINE vec vec_to_half(vec w) {
    uvec bits = (uvec)w, size = bits & INT32_MAX;
    uvec up    = (size + 0xfff + (size >> 13 & 1)) & ~0x1fffu;
    uvec small = (uvec)((vec_abs(w) + vec_set(0.75f)) - vec_set(0.75f));
    up         = uvec_choose((uvec)(size < 0x38800000u), small, up);
    up         = uvec_choose((uvec)(size >= 0x477ff000u), (uvec){0} + 0x7f800000u, up);
    up         = uvec_choose((uvec)(w != w), size | 0x400000, up);
    return (vec)(up | (bits & 0x80000000u));
}

/* What becomes of a group's products. */
typedef enum widening { WIDEN_PLAIN, WIDEN_LEAST, WIDEN_TO_BFLOAT16, WIDEN_TO_HALF } widening;

/* What the 16 columns of a run have, or of a stretch. */
typedef struct group_scales {
    vec  scale[FL_PANEL_VECS], least[FL_PANEL_VECS];
    ivec zero[FL_PANEL_VECS]; /* what q is less */
} group_scales;

/* A scale or a least value of each column; of coded ones `whole` is the stretch's. */
FL_INLINE void group_values(const fl_groups *g, const uint8_t *at, const vec *whole, vec *out) {
    FL_UNROLL for (int v = 0; v < FL_PANEL_VECS; v++) {
        const uint8_t *half = at + 2 * v * FL_VEC_LANES;
        out[v]              = g->coded ? whole[v] * ivec_to_float(ivec_bytes(at + v * FL_VEC_LANES))
                              : g->rounded && !g->half ? (vec)(ivec_halves(half) << 16)
                                                       : vec_halves(half);
    }
}

FL_INLINE void read_scales(const fl_groups *g, const uint8_t *at, const group_scales *whole,
                           group_scales *out) {
    const size_t row = FL_CPU_LANES * (g->coded ? 1 : 2);
    group_values(g, at, whole->scale, out->scale);
    if (g->least)
        group_values(g, at + row, whole->least, out->least);
    FL_UNROLL for (int v = 0; v < FL_PANEL_VECS; v++) {
        out->zero[v] = g->zero ? ivec_bytes(at + row + v * FL_VEC_LANES) : ivec_set(0);
        out->zero[v] += ivec_set(g->bits == 4 && !g->least ? 8 : 0);
    }
}

/* One step's row of a panel from its integers. */
FL_INLINE void widen_step(const ivec *q, widening how, const group_scales *s, vec factor,
                          float *out) {
    FL_UNROLL for (int v = 0; v < FL_PANEL_VECS; v++) {
        vec w = ivec_to_float(q[v]) * s->scale[v];
        w     = how == WIDEN_LEAST         ? w + s->least[v]
                : how == WIDEN_TO_BFLOAT16 ? vec_to_bfloat16(w)
                : how == WIDEN_TO_HALF     ? vec_to_half(w)
                                           : w;
        vec_store(out + v * FL_VEC_LANES, w * factor);
    }
}

/* The integers of a run; `nibbles` and `how` are constants at every call. */
FL_INLINE void widen_run(bool nibbles, widening how, const uint8_t *at, size_t steps,
                         const group_scales *s, vec factor, float *out) {
    for (size_t i = 0; i < steps; i += nibbles ? 2 : 1, at += FL_CPU_LANES) {
        ivec q[FL_PANEL_VECS], high[FL_PANEL_VECS];
        FL_UNROLL for (int v = 0; v < FL_PANEL_VECS; v++) {
            ivec both = ivec_bytes(at + v * FL_VEC_LANES);
            q[v]      = (nibbles ? both & 15 : both) - s->zero[v];
            high[v]   = (both >> 4 & 15) - s->zero[v];
        }
        widen_step(q, how, s, factor, out + i * FL_CPU_LANES);
        if (nibbles)
            widen_step(high, how, s, factor, out + (i + 1) * FL_CPU_LANES);
    }
}

FL_INLINE void widen_run_of(bool nibbles, const fl_groups *g, const uint8_t *at, size_t steps,
                            const group_scales *s, vec factor, float *out) {
    if (g->least)
        widen_run(nibbles, WIDEN_LEAST, at, steps, s, factor, out);
    else if (!g->rounded)
        widen_run(nibbles, WIDEN_PLAIN, at, steps, s, factor, out);
    else if (g->half)
        widen_run(nibbles, WIDEN_TO_HALF, at, steps, s, factor, out);
    else
        widen_run(nibbles, WIDEN_TO_BFLOAT16, at, steps, s, factor, out);
}

/* Of 16 bits: the upper half of a float32, or a half. */
FL_INLINE void widen_16(bool half, const fl_widen *z) {
    const vec factor = vec_set(z->factor);
    for (size_t i = 0; i < z->steps * FL_CPU_LANES; i += FL_VEC_LANES) {
        const uint8_t *at = z->panel + 2 * i;
        vec            w  = half ? vec_halves(at) : (vec)(ivec_halves(at) << 16);
        vec_store(z->out + i, w * factor);
    }
}

static void wide_widen(const fl_widen *z) {
    if (z->groups->bits == 16) {
        z->groups->half ? widen_16(true, z) : widen_16(false, z);
        return;
    }
    const fl_groups g      = *z->groups;
    const size_t    scales = fl_cpu_groups_scales(&g), floats = fl_cpu_groups_floats(&g);
    const vec       factor = vec_set(z->factor);
    const uint8_t  *at     = z->panel;
    for (size_t left = z->steps, step = 0; left > 0;) {
        size_t       steps = left < FL_CPU_STRETCH ? left : FL_CPU_STRETCH;
        group_scales whole = {0}, s = {0};
        for (int v = 0; g.coded && v < FL_PANEL_VECS; v++) {
            const float *first = (const float *)(const void *)at + v * FL_VEC_LANES;
            whole.scale[v]     = vec_load(first);
            whole.least[v]     = g.least ? vec_load(first + FL_CPU_LANES) : whole.least[v];
        }
        at += floats;
        left -= steps;
        for (size_t run; steps > 0; steps -= run, step += run) {
            float *out = z->out + step * FL_CPU_LANES;
            run        = steps < g.run ? steps : g.run;
            read_scales(&g, at, &whole, &s);
            at += scales;
            if (g.bits == 4)
                widen_run_of(true, &g, at, run, &s, factor, out);
            else
                widen_run_of(false, &g, at, run, &s, factor, out);
            at += fl_cpu_groups_values(&g, run);
        }
    }
}

#endif
