/* SPDX-License-Identifier: Apache-2.0 */
/* avx2.h - AVX2 for the kernels of wide/: vectors of 8, tiles of 6 rows x 1 panel.
 *
 * Tile     6 rows x 16 columns are 12 accumulators; two registers hold a row of B, one a broadcast
 *          of A. 12 FMAs need 8 loads, so both FMA ports stay busy: 6 cycles for one step of k. 4, 5
 *          and 6 rows run at the same speed per row: 8 accumulators already cover 4 cycles of latency
 *          on 2 ports.
 * Speed    97 % of the FMA peak over 42 MB of weights, 95 % for 16 rows (Zen 3, k = 384).
 * NaN      max and min return their second operand when one is NaN.
 *
 * Only files of this folder include it; they are compiled with -mavx2 -mfma. */
#ifndef FL_ENGINES_CPU_KERNELS_AVX2_H
#define FL_ENGINES_CPU_KERNELS_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

enum { FL_VEC_LANES = 8, FL_WIDE_PANELS = 1, FL_DOT_ZERO = 0 };
#ifndef FL_WIDE_EACH /* int8_avx2.c has lower tiles */
enum { FL_WIDE_ROWS = 6 };
#define FL_WIDE_EACH(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

typedef float   vec __attribute__((vector_size(32)));
typedef int32_t ivec __attribute__((vector_size(sizeof(vec))));

#include "engines/cpu/kernels/wide/vector.h"

FL_INLINE vec vec_max(vec bound, vec x) {
    return _mm256_max_ps(bound, x);
}
FL_INLINE vec vec_min(vec bound, vec x) {
    return _mm256_min_ps(bound, x);
}
FL_INLINE vec vec_fma(vec a, vec b, vec c) {
    return _mm256_fmadd_ps(a, b, c);
}
FL_INLINE vec vec_round(vec a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* As many signed bytes as there are lanes. */
FL_INLINE ivec ivec_bytes(const uint8_t *x) {
    return (ivec)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x));
}
/* And as many 16-bit numbers without a sign. */
FL_INLINE ivec ivec_halves(const uint8_t *x) {
    return (ivec)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
}
/* p 2^n, n a whole number. */
FL_INLINE vec vec_scale_exponent(vec p, vec n) {
    return (vec)((ivec)p + ((ivec)_mm256_cvtps_epi32(n) << 23));
}
/* By halves (lanes_sum). */
FL_INLINE float vec_sum(vec v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s        = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
FL_INLINE float vec_highest(vec v) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s        = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* acc += x * y, in place. As an intrinsic gcc 12 folds the load of a B row into each of the six
 * FMAs and rotates accumulators through spills (87 % of peak); pinned to this form it is 96 %. Integers
 * have theirs before this header: four bytes of each are as wide as a float. */
#ifndef FL_ADD_PRODUCT
#define FL_ADD_PRODUCT(acc, x, y) __asm__("vfmadd231ps %2, %1, %0" : "+x"(acc) : "x"(x), "x"(y))
#endif

/* acc += one step of k. */
FL_INLINE void wide_step(int rows, const float *a, size_t a_stride, const float *b,
                         vec acc[FL_WIDE_ROWS][2]) {
    vec low = vec_load(b), high = vec_load(b + FL_VEC_LANES);
    FL_UNROLL for (int r = 0; r < rows; r++) {
        vec x = _mm256_broadcast_ss(a + (size_t)r * a_stride);
        FL_ADD_PRODUCT(acc[r][0], x, low);
        FL_ADD_PRODUCT(acc[r][1], x, high);
    }
}

/* acc[r][·] += Σ_k a[r][k] b[k][0..15], k upwards. `rows` and `fetching` are constants at every
 * call, `panels` is 1. */
FL_INLINE void wide_chain(int rows, int panels, const float *a, size_t a_stride, const float *b,
                          size_t b_stride, size_t panel_stride, size_t k, vec acc[FL_WIDE_ROWS][2],
                          int fetching, const char *fetch, size_t fetch_step) {
    size_t step = 0;
    (void)panels, (void)panel_stride;
    for (; step + 4 <= k; step += 4, b += 4 * b_stride) {
        FL_UNROLL for (size_t u = 0; u < 4; u++) {
            if (fetching && u % 2 == 0) { /* a line per step of k costs 1 % */
                _mm_prefetch(fetch, _MM_HINT_T0);
                fetch += 2 * fetch_step;
            }
            wide_step(rows, a + step + u, a_stride, b + u * b_stride, acc);
        }
    }
    for (; step < k; step++, b += b_stride)
        wide_step(rows, a + step, a_stride, b, acc);
}

#endif
