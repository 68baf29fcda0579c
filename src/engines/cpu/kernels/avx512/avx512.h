/* SPDX-License-Identifier: Apache-2.0 */
/* avx512.h - AVX-512 for the kernels of wide/: vectors of 16, tiles of 12 rows x 2 panels.
 *
 * Tile     12 x 2 are 24 accumulators; two registers hold a row of B, one a broadcast of A. 24 FMAs
 *          need 14 loads, so both FMA ports stay busy. A lone panel takes 12 accumulators, enough
 *          for 4 cycles of latency on 2 ports.
 * NaN      max and min return their second operand when one is NaN. */
#ifndef FL_ENGINES_CPU_KERNELS_AVX512_H
#define FL_ENGINES_CPU_KERNELS_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FL_VEC_LANES   = 16,
    FL_WIDE_ROWS   = 12,
    FL_WIDE_PANELS = 2,
    FL_WIDE_STEPS  = 4,
    FL_DOT_ZERO    = 0
};
#define FL_WIDE_EACH(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)

typedef float   vec __attribute__((vector_size(64)));
typedef int32_t ivec __attribute__((vector_size(sizeof(vec))));

#include "engines/cpu/kernels/wide/vector.h"

FL_INLINE vec vec_max(vec bound, vec x) {
    return _mm512_max_ps(bound, x);
}
FL_INLINE vec vec_min(vec bound, vec x) {
    return _mm512_min_ps(bound, x);
}
FL_INLINE vec vec_fma(vec a, vec b, vec c) {
    return _mm512_fmadd_ps(a, b, c);
}
FL_INLINE vec vec_round(vec a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* As many signed bytes as there are lanes. */
FL_INLINE ivec ivec_bytes(const uint8_t *x) {
    return (ivec)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
}
/* And as many 16-bit numbers without a sign. */
FL_INLINE ivec ivec_halves(const uint8_t *x) {
    return (ivec)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)x));
}
/* p 2^n, n a whole number. */
FL_INLINE vec vec_scale_exponent(vec p, vec n) {
    return _mm512_scalef_ps(p, n);
}
/* By halves (lanes_sum), which _mm512_reduce_add_ps leaves to the compiler. */
FL_INLINE float vec_sum(vec v) {
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s    = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    s           = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
FL_INLINE float vec_highest(vec v) {
    return _mm512_reduce_max_ps(v);
}

/* acc += x * y in place: as an intrinsic the compiler may fold the load of a B row into each FMA,
 * or the broadcast of A into both. bfloat16 and integers have theirs before this header: two or four
 * numbers of each are as wide as a float. */
#ifndef FL_ADD_PRODUCT
#ifdef FL_PLAIN_FMA /* tests/kernels/alone has one without assembly */
#define FL_ADD_PRODUCT FL_PLAIN_FMA
#else
#define FL_ADD_PRODUCT(acc, x, y) __asm__("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y))
#endif
#endif

/* Rows of A in a tile: 12 pointers are more than there are registers, and fetched from the stack or a
 * vector they cost a tenth of the speed. Every third row has a pointer, the two after it are a stride
 * and two further; the compiler is kept from seeing that it could have 12 pointers after all. */
typedef struct tile_rows {
    const char *at[FL_WIDE_ROWS / 3];
    size_t      stride; /* bytes */
} tile_rows;

#define FL_HIDE(x) __asm__("" : "+r"(x))

FL_INLINE void tile_rows_begin(int rows, tile_rows *a, const void *first, size_t stride) {
    a->stride = stride;
    FL_UNROLL for (int i = 0; 3 * i < rows; i++) {
        a->at[i] = (const char *)first + (size_t)(3 * i) * stride;
    }
}
FL_INLINE void tile_rows_hide(int rows, tile_rows *a) {
    FL_HIDE(a->stride);
    FL_UNROLL for (int i = 0; 3 * i < rows; i++) {
        FL_HIDE(a->at[i]);
    }
}
FL_INLINE void tile_rows_move(int rows, tile_rows *a, size_t bytes) {
    FL_UNROLL for (int i = 0; 3 * i < rows; i++) {
        a->at[i] += bytes;
    }
}
/* Four bytes of row r. */
FL_INLINE int32_t tile_rows_four(const tile_rows *a, int r, size_t bytes) {
    int32_t four;
    __builtin_memcpy(&four, a->at[r / 3] + (size_t)(r % 3) * a->stride + bytes, sizeof four);
    return four;
}

/* acc += one step of k; `step` from where the rows stand. */
FL_INLINE void wide_step(int rows, int panels, const tile_rows *a, size_t step, const float *b,
                         size_t panel_stride, vec acc[FL_WIDE_ROWS][FL_WIDE_PANELS]) {
    vec first  = vec_load(b);
    vec second = panels > 1 ? vec_load(b + panel_stride) : first;
    FL_UNROLL for (int r = 0; r < rows; r++) {
        int32_t four = tile_rows_four(a, r, step * sizeof(float));
        vec     x    = _mm512_castsi512_ps(_mm512_set1_epi32(four));
        FL_ADD_PRODUCT(acc[r][0], x, first);
        if (panels > 1)
            FL_ADD_PRODUCT(acc[r][1], x, second);
    }
}

/* acc[r][p] += Σ_k a[r][k] b[p][k][0..15], k upwards; rows of b are b_stride apart, panels
 * panel_stride. `rows`, `panels` and `fetching` are constants at every call. */
FL_INLINE void wide_chain(int rows, int panels, const float *a, size_t a_stride, const float *b,
                          size_t b_stride, size_t panel_stride, size_t k,
                          vec acc[FL_WIDE_ROWS][FL_WIDE_PANELS], int fetching, const char *fetch,
                          size_t fetch_step) {
    tile_rows at;
    size_t    left = k;
    tile_rows_begin(rows, &at, a, a_stride * sizeof *a);
    for (; left >= FL_WIDE_STEPS; left -= FL_WIDE_STEPS, b += FL_WIDE_STEPS * b_stride) {
        tile_rows_hide(rows, &at);
        FL_UNROLL for (size_t u = 0; u < FL_WIDE_STEPS; u++) {
            if (fetching) {
                _mm_prefetch(fetch, _MM_HINT_T0);
                fetch += fetch_step;
            }
            wide_step(rows, panels, &at, u, b + u * b_stride, panel_stride, acc);
        }
        tile_rows_move(rows, &at, FL_WIDE_STEPS * sizeof *a);
    }
    for (; left > 0; left--, b += b_stride) {
        wide_step(rows, panels, &at, 0, b, panel_stride, acc);
        tile_rows_move(rows, &at, sizeof *a);
    }
}

#endif
