/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/byte_dot_avx512.h - the chain of integer products on vectors of 16, whatever FL_DOT(acc, x, y) is: it
 * adds the products of the four bytes in each lane of x and y to that lane of acc. */
#ifndef FL_ENGINES_CPU_KERNELS_AVX512_BYTE_DOT_AVX512_H
#define FL_ENGINES_CPU_KERNELS_AVX512_BYTE_DOT_AVX512_H

#include "engines/cpu/kernels/avx512/integers.h"

/* acc[r][p] += Σ_k a[r][k] b[p][k] over k bytes of a row; `rows` and `panels` are constants at every call. */
FL_INLINE void wide_dot(int rows, int panels, const uint8_t *a, size_t a_stride, const uint8_t *b,
                        size_t panel_stride, size_t k, ivec acc[FL_WIDE_ROWS][FL_WIDE_PANELS],
                        const char *fetch, size_t fetch_step) {
    for (size_t step = 0; step < k; step += 4, b += (size_t)4 * FL_CPU_LANES) {
        ivec first  = _mm512_loadu_si512(b);
        ivec second = panels > 1 ? _mm512_loadu_si512(b + panel_stride) : first;
        _mm_prefetch(fetch, _MM_HINT_T0);
        fetch += fetch_step;
        FL_UNROLL for (int r = 0; r < rows; r++) {
            int32_t four;
            __builtin_memcpy(&four, a + (size_t)r * a_stride + step, sizeof four);
            ivec x = _mm512_set1_epi32(four);
            FL_DOT(acc[r][0], x, first);
            if (panels > 1) {
                FL_DOT(acc[r][1], x, second);
            }
        }
    }
}

#endif
