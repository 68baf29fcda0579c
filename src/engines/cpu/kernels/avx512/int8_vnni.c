/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/int8_vnni.c - int8 with AVX-512 VNNI: vpdpbusd adds four products of an unsigned and a
 * signed byte to each of 16 sums, so a tile of 12 x 32 does 1,536 products in 24 instructions. */
#include "engines/cpu/kernels/avx512/avx512.h"
#include "engines/cpu/kernels/avx512/integers.h"
#include "engines/cpu/kernels/avx512/tables.h"

/* As FL_FMA: in place, so that loads are not folded and accumulators do not wander. */
#ifndef FL_DOT16 /* tests/kernels/alone has one without assembly */
#define FL_DOT16(acc, x, y) __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y))
#endif

/* acc[r][p] += Σ_k a[r][k] b[p][k]; `rows` and `panels` are constants at every call. */
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
            FL_DOT16(acc[r][0], x, first);
            if (panels > 1) {
                FL_DOT16(acc[r][1], x, second);
            }
        }
    }
}

#include "engines/cpu/kernels/wide/int8_gemm.h"

void fl_q8_gemm_12x32_avx512vnni(const fl_gemm_q8 *g) {
    wide_gemm_q8(g);
}
