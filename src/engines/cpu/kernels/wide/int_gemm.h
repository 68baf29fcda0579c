/* SPDX-License-Identifier: Apache-2.0 */
/* wide/int_gemm.h - int8 or int16 products (gemm.h).
 *
 * Chain    Where an instruction (or two) adds the products of four bytes of each to the 32 bits of a lane, it
 *          is the chain of floats with that instruction in place of the multiply-add; others bring a
 *          wide_dot of their own, acc += Σ (a - FL_DOT_ZERO) b.
 * Layout   A group of a panel, [16][4] bytes, is what vpdpbusd, vpmaddwd and sdot take as it lies
 *          (kernels.h); nothing is widened by hand and nothing saturates, so weights of any
 *          q8_group will do.
 * Proof    fl-kernels test -o gemm_q8, gemm_q16: bits of ref. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_INT_GEMM_H
#define FL_ENGINES_CPU_KERNELS_WIDE_INT_GEMM_H

#include "engines/cpu/kernels/wide/int_finish.h"

#ifndef wide_dot
FL_INLINE void wide_dot(int rows, int panels, const fl_gemm *g, const tile_place *at,
                        vec acc[FL_WIDE_ROWS][FL_WIDE_VECS]) {
    wide_chain(rows, panels, (const float *)(const void *)at->a, g->a_stride / sizeof(float),
               (const float *)(const void *)at->b, FL_CPU_LANES, g->b_stride / sizeof(float),
               g->k * FL_A_BYTES / sizeof(float), acc, 1, at->fetch, at->fetch_step);
}
#endif

FL_INLINE void gemm_tile(int rows, int panels, const fl_gemm *g, const tile_place *at) {
    vec acc[FL_WIDE_ROWS][FL_WIDE_VECS]; /* integers; 0 is 0 in both */
    FL_UNROLL for (int r = 0; r < rows; r++) {
        FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
            acc[r][v] = vec_zero();
        }
    }
    wide_dot(rows, panels, g, at, acc);
    FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
        const uint8_t *b   = at->b + (size_t)(v / FL_PANEL_VECS) * g->b_stride;
        size_t         col = (size_t)(v % FL_PANEL_VECS) * FL_VEC_LANES;
        FL_UNROLL for (int r = 0; r < rows; r++) {
            int_finish(g, at, b, r, col, (size_t)v * FL_VEC_LANES, (ivec)acc[r][v]);
        }
    }
}

#include "engines/cpu/kernels/wide/gemm.h"

#endif
