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

/* A scale or a least value of each column; of coded ones `whole` is the stretch's. */
FL_INLINE void group_values(bool coded, const uint8_t *at, const vec *whole, vec *out) {
    FL_UNROLL for (int v = 0; v < FL_PANEL_VECS; v++) {
        out[v] = coded ? whole[v] * ivec_to_float(ivec_bytes(at + v * FL_VEC_LANES))
                       : vec_halves(at + 2 * v * FL_VEC_LANES);
    }
}

/* One step's row of a panel from its integers. */
FL_INLINE void widen_step(const ivec *q, bool least, const vec *scale, const vec *low, vec factor,
                          float *out) {
    FL_UNROLL for (int v = 0; v < FL_PANEL_VECS; v++) {
        vec w = ivec_to_float(q[v]) * scale[v];
        w     = least ? w + low[v] : w;
        vec_store(out + v * FL_VEC_LANES, w * factor);
    }
}

/* The integers of a run; all but z and at are constants at every call. */
FL_INLINE void widen_run(bool nibbles, bool least, const uint8_t *at, size_t steps,
                         const vec *scale, const vec *low, vec factor, float *out) {
    const ivec centre = ivec_set(least ? 0 : 8);
    for (size_t i = 0; i < steps; i += nibbles ? 2 : 1, at += FL_CPU_LANES) {
        ivec q[FL_PANEL_VECS], high[FL_PANEL_VECS];
        FL_UNROLL for (int v = 0; v < FL_PANEL_VECS; v++) {
            ivec both = ivec_bytes(at + v * FL_VEC_LANES);
            q[v]      = nibbles ? (both & 15) - centre : both;
            high[v]   = (both >> 4 & 15) - centre;
        }
        widen_step(q, least, scale, low, factor, out + i * FL_CPU_LANES);
        if (nibbles) {
            widen_step(high, least, scale, low, factor, out + (i + 1) * FL_CPU_LANES);
        }
    }
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
        size_t steps                   = left < FL_CPU_STRETCH ? left : FL_CPU_STRETCH;
        vec    whole[2][FL_PANEL_VECS] = {0}, scale[FL_PANEL_VECS], low[FL_PANEL_VECS] = {0};
        for (int v = 0; g.coded && v < FL_PANEL_VECS; v++) {
            whole[0][v] = vec_load((const float *)(const void *)at + v * FL_VEC_LANES);
            whole[1][v] =
                g.least
                    ? vec_load((const float *)(const void *)(at + floats / 2) + v * FL_VEC_LANES)
                    : whole[1][v];
        }
        at += floats;
        left -= steps;
        for (size_t run; steps > 0; steps -= run, step += run) {
            float *out = z->out + step * FL_CPU_LANES;
            run        = steps < g.run ? steps : g.run;
            group_values(g.coded, at, whole[0], scale);
            if (g.least) {
                group_values(g.coded, at + scales / 2, whole[1], low);
            }
            at += scales;
            if (g.bits == 4 && g.least) {
                widen_run(true, true, at, run, scale, low, factor, out);
            } else if (g.bits == 4) {
                widen_run(true, false, at, run, scale, low, factor, out);
            } else if (g.least) {
                widen_run(false, true, at, run, scale, low, factor, out);
            } else {
                widen_run(false, false, at, run, scale, low, factor, out);
            }
            at += fl_cpu_groups_values(&g, run);
        }
    }
}

#endif
