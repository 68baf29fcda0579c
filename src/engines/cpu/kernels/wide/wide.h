/* SPDX-License-Identifier: Apache-2.0 */
/* wide/wide.h - what the kernels for every width of vector share: where a tile of a product lies, row cuts
 * and the fetch of what comes next.
 *
 * Included only behind an instruction set's own header, which names its vectors (gemm.h lists what it must
 * give). */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_H
#define FL_ENGINES_CPU_KERNELS_WIDE_H

#include <stdbool.h>
#include <stddef.h>

#include "engines/cpu/kernels.h"
#include "engines/cpu/kernels/wide/macros.h"

enum {
    FL_PANEL_VECS = FL_CPU_LANES / FL_VEC_LANES,   /* vectors in a row of a panel */
    FL_WIDE_VECS  = FL_WIDE_PANELS * FL_PANEL_VECS /* vectors in a row of the largest tile */
};

/* The sum of 16 lanes, by halves: i and i + 8, then + 4, + 2, + 1. vec_sum goes on within a vector, so that every
 * width adds the same numbers in the same order. */
FL_INLINE float lanes_sum(vec sum[FL_PANEL_VECS]) {
    FL_UNROLL for (int half = FL_PANEL_VECS / 2; half > 0; half /= 2) {
        FL_UNROLL for (int v = 0; v < half; v++) {
            sum[v] += sum[v + half];
        }
    }
    return vec_sum(sum[0]);
}

/* Where a tile of a product lies. */
typedef struct tile_place {
    const uint8_t *a, *b;
    const float   *a_scale, *bias, *residual;
    const int32_t *a_zero;
    float         *c;
    const char    *fetch; /* the panels after these come into the caches meanwhile */
    size_t         fetch_step;
} tile_place;

/* The first tile of panel p, of which the caller computes `panels` at a time. */
FL_INLINE tile_place tile_first(const fl_gemm *g, size_t p, size_t panels) {
    const uint8_t *b = g->b;
    return (tile_place){.a        = g->a,
                        .b        = b + p * g->b_stride,
                        .a_scale  = g->a_scale,
                        .a_zero   = g->a_zero,
                        .bias     = g->bias ? g->bias + p * FL_CPU_LANES : NULL,
                        .residual = g->residual ? g->residual + p * FL_CPU_LANES : NULL,
                        .c        = g->c + p * FL_CPU_LANES,
                        .fetch    = (const char *)b + (p + panels) * g->b_stride};
}

/* The tile below one of `rows` rows. */
FL_INLINE void tile_below(const fl_gemm *g, tile_place *at, size_t rows) {
    at->a += rows * g->a_stride;
    at->a_scale = at->a_scale ? at->a_scale + rows : NULL;
    at->a_zero  = at->a_zero ? at->a_zero + rows : NULL;
    at->c += rows * g->c_stride;
    at->residual = at->residual ? at->residual + rows * g->residual_stride : NULL;
}

/* Rows of the next tile when `left` remain: as even as can be. */
FL_INLINE size_t wide_tile_rows(size_t left) {
    size_t tiles = (left + FL_WIDE_ROWS - 1) / FL_WIDE_ROWS;
    return (left + tiles - 1) / tiles;
}

/* How far the fetch of the next `bytes` moves per step of k, so that it is done when these rows
 * are. */
FL_INLINE size_t wide_fetch_step(size_t bytes, size_t rows, size_t steps) {
    size_t tiles = (rows + FL_WIDE_ROWS - 1) / FL_WIDE_ROWS;
    return bytes / (tiles * steps + 1) + 1;
}

#endif
