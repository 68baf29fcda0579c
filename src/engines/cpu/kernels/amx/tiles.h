/* SPDX-License-Identifier: Apache-2.0 */
/* amx/tiles.h - a product with tiles of 16 rows x 64 bytes and 64 x 16, whatever they hold.
 *
 * Tile     2 x 2 accumulators (32 rows, two panels) need four loads for four products. A panel's groups
 *          of [16][4] bytes, 16 of them on end, are a tile of B as they lie; a tile of A is rows of
 *          activations at their stride.
 * Tails    Fewer rows are a smaller tile. k whose bytes are no multiple of 64 goes through buffers
 *          filled up with zeros.
 * Needs    FL_TILE_DOT(sums, a, b); FL_TILE_SUM, what the sums are; FL_A_BYTES of a number; and
 *          tile_finish, which takes 16 sums of row r and panel p to C. */
#ifndef FL_ENGINES_CPU_KERNELS_AMX_TILES_H
#define FL_ENGINES_CPU_KERNELS_AMX_TILES_H

#include <stdbool.h>
#include <string.h>

#include "engines/cpu/kernels/narrow.h"

enum { TILE = 16, DEPTH = 64, BLOCK = 2 * TILE };

/* What ldtilecfg reads; tiles 0 … 3 are sums, 4 and 5 of A, 6 and 7 of B. */
typedef struct shape {
    uint8_t  palette, start, zero[14];
    uint16_t row_bytes[16];
    uint8_t  rows[16];
} shape;

/* Tiles for `rows` rows: the first 16 and the rest. */
static void set_shape(size_t rows) {
    size_t upper = rows < TILE ? rows : TILE, lower = rows > TILE ? rows - TILE : 1;
    shape  s = {.palette = 1};
    for (size_t i = 0; i < 8; i++) {
        bool second    = i == 2 || i == 3 || i == 5;
        s.row_bytes[i] = DEPTH;
        s.rows[i]      = (uint8_t)(i >= 6 ? TILE : second ? lower : upper);
    }
    _tile_loadconfig(&s);
}

/* One step of 64 bytes of k; blocks of 16 rows and panels are constants at every call. */
FL_INLINE void multiply(int blocks, int panels, const uint8_t *a, size_t a_stride, const uint8_t *b,
                        size_t b_stride) {
    _tile_loadd(6, b, DEPTH);
    _tile_loadd(4, a, a_stride);
    FL_TILE_DOT(0, 4, 6);
    if (panels > 1) {
        _tile_loadd(7, b + b_stride, DEPTH);
        FL_TILE_DOT(1, 4, 7);
    }
    if (blocks > 1) {
        _tile_loadd(5, a + TILE * a_stride, a_stride);
        FL_TILE_DOT(2, 5, 6);
    }
    if (blocks > 1 && panels > 1)
        FL_TILE_DOT(3, 5, 7);
}

/* The last bytes of k, fewer than 64, with zeros behind them. */
FL_INLINE void multiply_tail(int blocks, int panels, const fl_gemm *g, const tile_place *at,
                             size_t rows, size_t k) {
    const size_t         depth           = g->k * FL_A_BYTES;
    _Alignas(64) uint8_t a[BLOCK][DEPTH] = {0}, b[2][DEPTH * TILE] = {0};
    for (size_t r = 0; r < rows; r++)
        memcpy(a[r], at->a + r * g->a_stride + k, depth - k);
    for (size_t p = 0; p < (size_t)panels; p++)
        memcpy(b[p], at->b + p * g->b_stride + k * TILE, (depth - k) * TILE);
    multiply(blocks, panels, a[0], DEPTH, b[0], sizeof b[0]);
}

FL_INLINE void block(int blocks, int panels, const fl_gemm *g, const tile_place *at, size_t rows) {
    _Alignas(64) FL_TILE_SUM sums[2][2][TILE][TILE]; /* [rows / 16][panel] */
    const size_t             depth = g->k * FL_A_BYTES;
    size_t                   k     = 0;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (; k + DEPTH <= depth; k += DEPTH)
        multiply(blocks, panels, at->a + k, g->a_stride, at->b + k * TILE, g->b_stride);
    if (k < depth)
        multiply_tail(blocks, panels, g, at, rows, k);
    _tile_stored(0, sums[0][0], DEPTH);
    _tile_stored(1, sums[0][1], DEPTH);
    _tile_stored(2, sums[1][0], DEPTH);
    _tile_stored(3, sums[1][1], DEPTH);
    for (size_t r = 0; r < rows; r++)
        for (size_t p = 0; p < (size_t)panels; p++)
            tile_finish(g, at, p, r, sums[r / TILE][p][r % TILE]);
}

static FL_NOINLINE void block_1_1(const fl_gemm *g, const tile_place *at, size_t rows) {
    block(1, 1, g, at, rows);
}
static FL_NOINLINE void block_1_2(const fl_gemm *g, const tile_place *at, size_t rows) {
    block(1, 2, g, at, rows);
}
static FL_NOINLINE void block_2_1(const fl_gemm *g, const tile_place *at, size_t rows) {
    block(2, 1, g, at, rows);
}
static FL_NOINLINE void block_2_2(const fl_gemm *g, const tile_place *at, size_t rows) {
    block(2, 2, g, at, rows);
}

/* All rows of one or two panels; *shaped is how many rows the tiles are set for. */
static void run_panels(const fl_gemm *g, tile_place at, size_t panels, size_t *shaped) {
    static void (*const run[2][2])(const fl_gemm *, const tile_place *,
                                   size_t) = {{block_1_1, block_1_2}, {block_2_1, block_2_2}};
    for (size_t left = g->rows; left > 0;) {
        size_t rows = left < BLOCK ? left : BLOCK;
        if (rows != *shaped) {
            set_shape(rows);
            *shaped = rows;
        }
        run[rows > TILE][panels - 1](g, &at, rows);
        tile_below(g, &at, rows);
        left -= rows;
    }
}

static void tile_gemm(const fl_gemm *g) {
    size_t shaped = 0;
    for (size_t p = 0, panels; p < g->panels; p += panels) {
        panels = g->panels - p >= 2 ? 2 : 1;
        run_panels(g, tile_first(g, p, panels), panels, &shaped);
    }
    _tile_release();
}

#endif
