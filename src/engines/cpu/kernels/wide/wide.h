/* SPDX-License-Identifier: Apache-2.0 */
/* wide/wide.h - what the kernels for every width of vector share: row cuts and the fetch of
 * what comes next.
 *
 * Included only behind an instruction set's own header, which names its vectors (f32_gemm.h lists
 * what it must give). */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_H
#define FL_ENGINES_CPU_KERNELS_WIDE_H

#include <stdbool.h>
#include <stddef.h>

#include "engines/cpu/kernels.h"

enum {
    FL_PANEL_VECS = FL_CPU_LANES / FL_VEC_LANES,   /* vectors in a row of a panel */
    FL_WIDE_VECS  = FL_WIDE_PANELS * FL_PANEL_VECS /* vectors in a row of the largest tile */
};

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
