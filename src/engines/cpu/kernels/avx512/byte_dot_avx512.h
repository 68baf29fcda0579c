/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/byte_dot_avx512.h - the chain of integer products on vectors of 16, whatever FL_DOT(acc, x, y) is: it
 * adds the products of the four bytes in each lane of x and y to that lane of acc. */
#ifndef FL_ENGINES_CPU_KERNELS_AVX512_BYTE_DOT_AVX512_H
#define FL_ENGINES_CPU_KERNELS_AVX512_BYTE_DOT_AVX512_H

#include "engines/cpu/kernels/avx512/avx512.h"
#include "engines/cpu/kernels/wide/wide.h"

/* acc += four bytes of every row. */
FL_INLINE void dot_step(int rows, int panels, const tile_rows *a, size_t step, const uint8_t *b,
                        size_t panel_stride, ivec acc[FL_WIDE_ROWS][FL_WIDE_PANELS]) {
    ivec first  = ivec_load(b);
    ivec second = panels > 1 ? ivec_load(b + panel_stride) : first;
    FL_UNROLL for (int r = 0; r < rows; r++) {
        ivec x = ivec_set(tile_rows_four(a, r, step));
        FL_DOT(acc[r][0], x, first);
        if (panels > 1) {
            FL_DOT(acc[r][1], x, second);
        }
    }
}

/* acc[r][p] += Σ_k a[r][k] b[p][k] over the bytes of a row, a multiple of 16; `rows` and `panels` are constants
 * at every call. */
FL_INLINE void wide_dot(int rows, int panels, const fl_gemm *g, const tile_place *at,
                        ivec acc[FL_WIDE_ROWS][FL_WIDE_PANELS]) {
    const size_t   group = (size_t)4 * FL_CPU_LANES, step = at->fetch_step;
    const uint8_t *b     = at->b;
    const char    *fetch = at->fetch;
    tile_rows      a;
    tile_rows_begin(rows, &a, at->a, g->a_stride);
    for (size_t left = g->k * FL_A_BYTES; left > 0;
         left -= 4 * FL_WIDE_STEPS, b += FL_WIDE_STEPS * group) {
        tile_rows_hide(rows, &a);
        FL_UNROLL for (size_t u = 0; u < FL_WIDE_STEPS; u++) {
            _mm_prefetch(fetch, _MM_HINT_T0);
            fetch += step;
            dot_step(rows, panels, &a, 4 * u, b + u * group, g->b_stride, acc);
        }
        tile_rows_move(rows, &a, 4 * FL_WIDE_STEPS);
    }
}

#endif
