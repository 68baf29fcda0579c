/* SPDX-License-Identifier: Apache-2.0 */
/* wide/f32_gemm.h - C (+)= A B over packed panels, written once for every width of vector.
 *
 * Role     f32_ISA.c of an instruction set includes its own header (vectors, the chain of FMAs, the size
 *          of a tile) and then these files; what comes out are that set's kernels. Compiled by two
 *          sets, so that what runs under one of them is proof for the other one's control flow.
 * Needs    vec, FL_VEC_LANES, vec_load, vec_store, vec_zero, vec_add …; FL_WIDE_ROWS and
 *          FL_WIDE_PANELS, the largest tile; FL_WIDE_EACH(X), X(1) … X(FL_WIDE_ROWS);
 *          wide_chain, acc += Σ a b.
 * Tile     rows x panels of accumulators. Rows are cut evenly: 13 rows on tiles of 12 are 7 + 6.
 *          Each element is the same chain of FMAs in a tile of any shape.
 * Proof    fl-kernels test, bit by bit against ref. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_F32_GEMM_H
#define FL_ENGINES_CPU_KERNELS_WIDE_F32_GEMM_H

#include "engines/cpu/kernels/wide/wide.h"

typedef struct place {
    const float *a, *b, *bias, *residual;
    float       *c;
    const char  *fetch; /* the panels after these come into the caches meanwhile */
    size_t       fetch_step;
} place;

FL_INLINE void tile_begin(int rows, int vecs, const fl_gemm *g, const float *c,
                          vec acc[FL_WIDE_ROWS][FL_WIDE_VECS]) {
    FL_UNROLL for (int r = 0; r < rows; r++) {
        FL_UNROLL for (int v = 0; v < vecs; v++) {
            acc[r][v] = g->accumulate ? vec_load(c + (size_t)r * g->c_stride + v * FL_VEC_LANES)
                                      : vec_zero();
        }
    }
}

FL_INLINE void tile_end(int rows, int vecs, const fl_gemm *g, const place *at,
                        vec acc[FL_WIDE_ROWS][FL_WIDE_VECS]) {
    if (at->bias) {
        FL_UNROLL for (int v = 0; v < vecs; v++) {
            vec bias = vec_load(at->bias + v * FL_VEC_LANES);
            FL_UNROLL for (int r = 0; r < rows; r++) {
                acc[r][v] = vec_add(acc[r][v], bias);
            }
        }
    }
    if (at->residual) {
        FL_UNROLL for (int r = 0; r < rows; r++) {
            const float *from = at->residual + (size_t)r * g->residual_stride;
            FL_UNROLL for (int v = 0; v < vecs; v++) {
                acc[r][v] = vec_add(acc[r][v], vec_load(from + v * FL_VEC_LANES));
            }
        }
    }
    FL_UNROLL for (int r = 0; r < rows; r++) {
        FL_UNROLL for (int v = 0; v < vecs; v++) {
            vec_store(at->c + (size_t)r * g->c_stride + v * FL_VEC_LANES, acc[r][v]);
        }
    }
}

FL_INLINE void gemm_tile(int rows, int panels, const fl_gemm *g, const place *at) {
    vec acc[FL_WIDE_ROWS][FL_WIDE_VECS];
    tile_begin(rows, panels * FL_PANEL_VECS, g, at->c, acc);
    wide_chain(rows, panels, at->a, g->a_stride, at->b, FL_CPU_LANES, g->b_stride, g->k, acc, 1,
               at->fetch, at->fetch_step);
    tile_end(rows, panels * FL_PANEL_VECS, g, at, acc);
}

/* One function per height: the compiler then knows every accumulator by name. */
#define TILE(rows)                                                                                 \
    static FL_NOINLINE void gemm_##rows(const fl_gemm *g, const place *at) {                       \
        gemm_tile(rows, 1, g, at);                                                                 \
    }                                                                                              \
    static FL_NOINLINE void gemm_wide_##rows(const fl_gemm *g, const place *at) {                  \
        gemm_tile(rows, FL_WIDE_PANELS, g, at);                                                    \
    }
FL_WIDE_EACH(TILE)
#undef TILE

typedef void (*gemm_tile_fn)(const fl_gemm *g, const place *at);

/* All rows of the panels at `at`. */
static void gemm_panels(const fl_gemm *g, const gemm_tile_fn *tile, place at) {
    for (size_t left = g->rows; left > 0;) {
        size_t rows = wide_tile_rows(left);
        tile[rows](g, &at);
        at.fetch += at.fetch_step * g->k;
        at.a += rows * g->a_stride;
        at.c += rows * g->c_stride;
        at.residual = at.residual ? at.residual + rows * g->residual_stride : NULL;
        left -= rows;
    }
}

static void wide_gemm(const fl_gemm *g) {
#define ONE(rows)  gemm_##rows,
#define WIDE(rows) gemm_wide_##rows,
    static const gemm_tile_fn one[]  = {NULL, FL_WIDE_EACH(ONE)};
    static const gemm_tile_fn wide[] = {NULL, FL_WIDE_EACH(WIDE)};
#undef ONE
#undef WIDE
    for (size_t p = 0; p < g->panels;) {
        bool         full  = FL_WIDE_PANELS > 1 && g->panels - p >= FL_WIDE_PANELS;
        size_t       width = full ? FL_WIDE_PANELS : 1;
        size_t       step  = wide_fetch_step(width * g->b_stride * sizeof(float), g->rows, g->k);
        const float *after = g->b + (p + width) * g->b_stride;
        place        at    = {.a          = g->a,
                              .b          = g->b + p * g->b_stride,
                              .bias       = g->bias ? g->bias + p * FL_CPU_LANES : NULL,
                              .residual   = g->residual ? g->residual + p * FL_CPU_LANES : NULL,
                              .c          = g->c + p * FL_CPU_LANES,
                              .fetch      = (const char *)after,
                              .fetch_step = step};
        gemm_panels(g, full ? wide : one, at);
        p += width;
    }
}

#endif
