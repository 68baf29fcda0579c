/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/byte_dot_avx512.h - the chain of integer products on vectors of 16, whatever FL_DOT(acc, x, y) is: it
 * adds the products of the four bytes in each lane of x and y to that lane of acc. */
#ifndef FL_ENGINES_CPU_KERNELS_AVX512_BYTE_DOT_AVX512_H
#define FL_ENGINES_CPU_KERNELS_AVX512_BYTE_DOT_AVX512_H

#include "engines/cpu/kernels/avx512/integers.h"

/* acc += four bytes of every row. */
FL_INLINE void dot_step(int rows, int panels, const tile_rows *a, size_t step, const uint8_t *b,
                        size_t panel_stride, ivec acc[FL_WIDE_ROWS][FL_WIDE_PANELS]) {
    ivec first  = _mm512_loadu_si512(b);
    ivec second = panels > 1 ? _mm512_loadu_si512(b + panel_stride) : first;
    FL_UNROLL for (int r = 0; r < rows; r++) {
        ivec x = _mm512_set1_epi32(tile_rows_four(a, r, step));
        FL_DOT(acc[r][0], x, first);
        if (panels > 1) {
            FL_DOT(acc[r][1], x, second);
        }
    }
}

/* acc[r][p] += Σ_k a[r][k] b[p][k] over k bytes of a row, a multiple of 16; `rows` and `panels` are constants at
 * every call. */
FL_INLINE void wide_dot(int rows, int panels, const uint8_t *a, size_t a_stride, const uint8_t *b,
                        size_t panel_stride, size_t k, ivec acc[FL_WIDE_ROWS][FL_WIDE_PANELS],
                        const char *fetch, size_t fetch_step) {
    const size_t group = (size_t)4 * FL_CPU_LANES;
    tile_rows    at;
    tile_rows_begin(rows, &at, a, a_stride);
    for (size_t left = k; left > 0; left -= 4 * FL_WIDE_STEPS, b += FL_WIDE_STEPS * group) {
        tile_rows_hide(rows, &at);
        FL_UNROLL for (size_t u = 0; u < FL_WIDE_STEPS; u++) {
            _mm_prefetch(fetch, _MM_HINT_T0);
            fetch += fetch_step;
            dot_step(rows, panels, &at, 4 * u, b + u * group, panel_stride, acc);
        }
        tile_rows_move(rows, &at, 4 * FL_WIDE_STEPS);
    }
}

#endif
