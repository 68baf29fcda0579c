/* SPDX-License-Identifier: Apache-2.0 */
/* wide/int8_gemm.h - bytes times bytes over packed panels, where an instruction adds four products
 * into 32 bits.
 *
 * Role     Like f32_gemm.h: an instruction set's own header comes first. It gives ivec and its
 *          operations, and wide_dot, acc += Σ (a - FL_DOT_ZERO) b over groups of four k.
 * Layout   A group of a panel, [16][4] bytes, is what vpdpbusd and sdot take as it lies
 *          (kernels.h); nothing is widened by hand and nothing saturates, so weights of any
 *          q8_group will do.
 * Proof    fl-kernels test -o gemm_q8: bits of ref. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_INT8_GEMM_H
#define FL_ENGINES_CPU_KERNELS_WIDE_INT8_GEMM_H

#include "engines/cpu/kernels/wide/int8_finish.h"

FL_INLINE void gemm8_tile(int rows, int panels, const fl_gemm_q8 *g, const place8 *at) {
    ivec acc[FL_WIDE_ROWS][FL_WIDE_VECS];
    FL_UNROLL for (int r = 0; r < rows; r++) {
        FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
            acc[r][v] = ivec_set(0);
        }
    }
    wide_dot(rows, panels, at->a, g->a_stride, at->b, g->b_stride, g->k, acc, at->fetch,
             at->fetch_step);
    FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
        const uint8_t *b   = at->b + (size_t)(v / FL_PANEL_VECS) * g->b_stride;
        size_t         col = (size_t)(v % FL_PANEL_VECS) * FL_VEC_LANES;
        FL_UNROLL for (int r = 0; r < rows; r++) {
            finish8(g, at, b, r, col, (size_t)v * FL_VEC_LANES, acc[r][v]);
        }
    }
}

/* One function per height: the compiler then knows every accumulator by name. */
#define TILE(rows)                                                                                 \
    static FL_NOINLINE void gemm8_##rows(const fl_gemm_q8 *g, const place8 *at) {                  \
        gemm8_tile(rows, 1, g, at);                                                                \
    }                                                                                              \
    static FL_NOINLINE void gemm8_wide_##rows(const fl_gemm_q8 *g, const place8 *at) {             \
        gemm8_tile(rows, FL_WIDE_PANELS, g, at);                                                   \
    }
FL_WIDE_EACH(TILE)
#undef TILE

typedef void (*gemm8_tile_fn)(const fl_gemm_q8 *g, const place8 *at);

/* All rows of the panels at `at`. */
static void gemm8_panels(const fl_gemm_q8 *g, const gemm8_tile_fn *tile, place8 at) {
    for (size_t left = g->rows; left > 0;) {
        size_t rows = wide_tile_rows(left);
        tile[rows](g, &at);
        at.fetch += at.fetch_step * (g->k / 4);
        at.a += rows * g->a_stride;
        at.a_scale += rows;
        at.a_zero += rows;
        at.c += rows * g->c_stride;
        at.residual = at.residual ? at.residual + rows * g->residual_stride : NULL;
        left -= rows;
    }
}

static void wide_gemm_q8(const fl_gemm_q8 *g) {
#define ONE(rows)  gemm8_##rows,
#define WIDE(rows) gemm8_wide_##rows,
    static const gemm8_tile_fn one[]  = {NULL, FL_WIDE_EACH(ONE)};
    static const gemm8_tile_fn wide[] = {NULL, FL_WIDE_EACH(WIDE)};
#undef ONE
#undef WIDE
    for (size_t p = 0; p < g->panels;) {
        bool           full  = FL_WIDE_PANELS > 1 && g->panels - p >= FL_WIDE_PANELS;
        size_t         width = full ? FL_WIDE_PANELS : 1;
        bool           last  = p + width == g->panels && g->next != NULL;
        const uint8_t *after = last ? g->next : g->b + (p + width) * g->b_stride;
        size_t         step  = wide_fetch_step(width * g->b_stride, g->rows, g->k / 4);
        place8         at    = {.a          = g->a,
                                .b          = g->b + p * g->b_stride,
                                .a_scale    = g->a_scale,
                                .a_zero     = g->a_zero,
                                .bias       = g->bias ? g->bias + p * FL_CPU_LANES : NULL,
                                .residual   = g->residual ? g->residual + p * FL_CPU_LANES : NULL,
                                .c          = g->c + p * FL_CPU_LANES,
                                .fetch      = (const char *)after,
                                .fetch_step = step};
        gemm8_panels(g, full ? wide : one, at);
        p += width;
    }
}

#endif
