/* SPDX-License-Identifier: Apache-2.0 */
/* wide/int_finish.h - the integer sums of a tile become floats in C.
 *
 * Zero     Σ (a - zero) b = Σ (a - dot) b - (zero - dot) Σ b; dot (FL_DOT_ZERO) is 128 where the
 *          instruction multiplies signed bytes only. The sums of the columns stand in the panel.
 *          int16 (FL_A_BYTES 2) has neither.
 * Bytes    Integer sums are exact; the float operations are those of ref/narrow.c in its order. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_INT_FINISH_H
#define FL_ENGINES_CPU_KERNELS_WIDE_INT_FINISH_H

#include "engines/cpu/kernels/wide/wide.h"

/* One vector of a row: columns from `col` of the panel at b. */
FL_INLINE void int_finish(const fl_gemm *g, const tile_place *at, const uint8_t *b, int r,
                          size_t col, size_t to, ivec sum) {
    const uint8_t *tail   = b + g->k * FL_A_BYTES * FL_CPU_LANES;
    const float   *scales = (const float *)(const void *)tail;
    const int32_t *sums   = (const int32_t *)(const void *)(tail + FL_CPU_LANES * sizeof(float));
    float         *c      = at->c + (size_t)r * g->c_stride + to;
    vec            scale  = vec_set(at->a_scale[r]) * vec_load(scales + col);
    if (FL_A_BYTES == 1) {
        int32_t zero = at->a_zero[r] - FL_DOT_ZERO;
        sum -= ivec_load(sums + col) * zero;
    }
    vec y = g->accumulate ? vec_load(c) : vec_zero();
    y     = vec_fma(ivec_to_float(sum), scale, y);
    if (at->bias)
        y += vec_load(at->bias + to);
    if (at->residual)
        y += vec_load(at->residual + (size_t)r * g->residual_stride + to);
    vec_store(c, y);
}

#endif
