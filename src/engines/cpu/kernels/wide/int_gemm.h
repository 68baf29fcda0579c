/* SPDX-License-Identifier: Apache-2.0 */
/* wide/int_gemm.h - int8 or int16 products over packed panels, where an instruction (or two) adds the
 * products of four bytes of each into 32 bits.
 *
 * Role     Like f32_gemm.h: an instruction set's own header comes first. It gives ivec and its
 *          operations, FL_DOT_BYTES of a number, and wide_dot, acc += Σ (a - FL_DOT_ZERO) b over
 *          groups of four bytes of k.
 * Layout   A group of a panel, [16][4] bytes, is what vpdpbusd, vpmaddwd and sdot take as it lies
 *          (kernels.h); nothing is widened by hand and nothing saturates, so weights of any
 *          q8_group will do.
 * Proof    fl-kernels test -o gemm_q8, gemm_q16: bits of ref. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_INT_GEMM_H
#define FL_ENGINES_CPU_KERNELS_WIDE_INT_GEMM_H

#include "engines/cpu/kernels/wide/int_finish.h"

FL_INLINE void int_tile(int rows, int panels, const fl_gemm_narrow *g, const int_place *at) {
    ivec acc[FL_WIDE_ROWS][FL_WIDE_VECS];
    FL_UNROLL for (int r = 0; r < rows; r++) {
        FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
            acc[r][v] = ivec_set(0);
        }
    }
    wide_dot(rows, panels, at->a, g->a_stride, at->b, g->b_stride, g->k * FL_DOT_BYTES, acc,
             at->fetch, at->fetch_step);
    FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
        const uint8_t *b   = at->b + (size_t)(v / FL_PANEL_VECS) * g->b_stride;
        size_t         col = (size_t)(v % FL_PANEL_VECS) * FL_VEC_LANES;
        FL_UNROLL for (int r = 0; r < rows; r++) {
            int_finish(g, at, b, r, col, (size_t)v * FL_VEC_LANES, acc[r][v]);
        }
    }
}

/* One function per height: the compiler then knows every accumulator by name. */
#define TILE(rows)                                                                                 \
    static FL_NOINLINE void int_##rows(const fl_gemm_narrow *g, const int_place *at) {             \
        int_tile(rows, 1, g, at);                                                                  \
    }                                                                                              \
    static FL_NOINLINE void int_wide_##rows(const fl_gemm_narrow *g, const int_place *at) {        \
        int_tile(rows, FL_WIDE_PANELS, g, at);                                                     \
    }
FL_WIDE_EACH(TILE)
#undef TILE

typedef void (*int_tile_fn)(const fl_gemm_narrow *g, const int_place *at);

/* All rows of the panels at `at`. */
static void int_panels(const fl_gemm_narrow *g, const int_tile_fn *tile, int_place at) {
    for (size_t left = g->rows; left > 0;) {
        size_t rows = wide_tile_rows(left);
        tile[rows](g, &at);
        at.fetch += at.fetch_step * (g->k * FL_DOT_BYTES / 4);
        at.a += rows * g->a_stride;
        at.a_scale += rows;
        at.a_zero = at.a_zero ? at.a_zero + rows : NULL;
        at.c += rows * g->c_stride;
        at.residual = at.residual ? at.residual + rows * g->residual_stride : NULL;
        left -= rows;
    }
}

static void wide_gemm_int(const fl_gemm_narrow *g) {
#define ONE(rows)  int_##rows,
#define WIDE(rows) int_wide_##rows,
    static const int_tile_fn one[]  = {NULL, FL_WIDE_EACH(ONE)};
    static const int_tile_fn wide[] = {NULL, FL_WIDE_EACH(WIDE)};
#undef ONE
#undef WIDE
    for (size_t p = 0; p < g->panels;) {
        bool           full  = FL_WIDE_PANELS > 1 && g->panels - p >= FL_WIDE_PANELS;
        size_t         width = full ? FL_WIDE_PANELS : 1;
        const uint8_t *after = g->b + (p + width) * g->b_stride;
        size_t    step = wide_fetch_step(width * g->b_stride, g->rows, g->k * FL_DOT_BYTES / 4);
        int_place at   = {.a          = g->a,
                          .b          = g->b + p * g->b_stride,
                          .a_scale    = g->a_scale,
                          .a_zero     = g->a_zero,
                          .bias       = g->bias ? g->bias + p * FL_CPU_LANES : NULL,
                          .residual   = g->residual ? g->residual + p * FL_CPU_LANES : NULL,
                          .c          = g->c + p * FL_CPU_LANES,
                          .fetch      = (const char *)after,
                          .fetch_step = step};
        int_panels(g, full ? wide : one, at);
        p += width;
    }
}

#endif
