/* SPDX-License-Identifier: Apache-2.0 */
/* wide/gemm.h - C (+)= A B over packed panels, cut into tiles: written once for every width of vector and
 * every kind of numbers.
 *
 * Role     A file of an instruction set includes its own header (vectors, the chain of products, the size of
 *          a tile) and then f32_gemm.h or int_gemm.h, which say what a tile is and include this; wide_gemm
 *          is then that set's kernel. Compiled by several sets, so that what runs under one of them is proof
 *          for the others' control flow.
 * Needs    vec, ivec and FL_VEC_LANES (vector.h); FL_WIDE_ROWS and FL_WIDE_PANELS, the largest tile;
 *          FL_WIDE_EACH(X), X(1) … X(FL_WIDE_ROWS); wide_chain, whose step is FL_ADD_PRODUCT(acc, x, y);
 *          FL_A_BYTES, of a number of A; gemm_tile.
 * Tile     rows x panels of accumulators. Rows are cut evenly: 13 rows on tiles of 12 are 7 + 6.
 *          Each element is the same chain of operations in a tile of any shape.
 * Steps    of a chain take four bytes of a row of A each: a float, two bfloat16 or int16, four bytes.
 * Order    Panels outside, row tiles inside: a panel stays in L1 while the rows of A stream from L2. The
 *          panels after it are fetched meanwhile, which hides L3 and memory: weights are laid out in the
 *          order of use.
 * Proof    fl-kernels test, bit by bit against ref. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_GEMM_H
#define FL_ENGINES_CPU_KERNELS_WIDE_GEMM_H

#include "engines/cpu/kernels/wide/wide.h"

/* One function per height: the compiler then knows every accumulator by name. */
#define TILE(rows)                                                                                 \
    static FL_NOINLINE void gemm_##rows(const fl_gemm *g, const tile_place *at) {                  \
        gemm_tile(rows, 1, g, at);                                                                 \
    }                                                                                              \
    static FL_NOINLINE void gemm_wide_##rows(const fl_gemm *g, const tile_place *at) {             \
        gemm_tile(rows, FL_WIDE_PANELS, g, at);                                                    \
    }
FL_WIDE_EACH(TILE)
#undef TILE

typedef void (*gemm_tile_fn)(const fl_gemm *g, const tile_place *at);

static void wide_gemm(const fl_gemm *g) {
#define ONE(rows)  gemm_##rows,
#define WIDE(rows) gemm_wide_##rows,
    static const gemm_tile_fn one[]  = {NULL, FL_WIDE_EACH(ONE)};
    static const gemm_tile_fn wide[] = {NULL, FL_WIDE_EACH(WIDE)};
#undef ONE
#undef WIDE
    size_t steps = g->k * FL_A_BYTES / 4;
    for (size_t p = 0, width; p < g->panels; p += width) {
        bool full     = FL_WIDE_PANELS > 1 && g->panels - p >= FL_WIDE_PANELS;
        width         = full ? FL_WIDE_PANELS : 1;
        tile_place at = tile_first(g, p, width);
        at.fetch_step = wide_fetch_step(width * g->b_stride, g->rows, steps);
        for (size_t left = g->rows, rows; left > 0; left -= rows) {
            rows = wide_tile_rows(left);
            (full ? wide : one)[rows](g, &at);
            at.fetch += at.fetch_step * steps;
            tile_below(g, &at, rows);
        }
    }
}

#endif
