/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/byte_dot_avx2.h - the chain of integer products on vectors of 8, whatever FL_DOT(acc, x, y) is: it adds
 * the products of the four bytes in each lane of x and y to that lane of acc. */
#ifndef FL_ENGINES_CPU_KERNELS_AVX2_BYTE_DOT_AVX2_H
#define FL_ENGINES_CPU_KERNELS_AVX2_BYTE_DOT_AVX2_H

#include "engines/cpu/kernels/avx2/avx2.h"
#include "engines/cpu/kernels/wide/wide.h"

/* acc[r][·] += Σ_k a[r][k] b[k] over the bytes of a row; `rows` is a constant at every call, `panels` is 1. */
FL_INLINE void wide_dot(int rows, int panels, const fl_gemm *g, const tile_place *at,
                        ivec acc[FL_WIDE_ROWS][2]) {
    const uint8_t *a = at->a, *b = at->b;
    const char    *fetch = at->fetch;
    (void)panels;
    for (size_t step = 0; step < g->k * FL_A_BYTES; step += 4, b += (size_t)4 * FL_CPU_LANES) {
        ivec low  = ivec_load(b);
        ivec high = ivec_load(b + 32);
        _mm_prefetch(fetch, _MM_HINT_T0);
        fetch += at->fetch_step;
        FL_UNROLL for (int r = 0; r < rows; r++) {
            int32_t four;
            __builtin_memcpy(&four, a + (size_t)r * g->a_stride + step, sizeof four);
            ivec x = ivec_set(four);
            FL_DOT(acc[r][0], x, low);
            FL_DOT(acc[r][1], x, high);
        }
    }
}

#endif
