/* SPDX-License-Identifier: Apache-2.0 */
/* ref.h - vectors of 4 in plain C for the kernels of wide/: what runs on a machine for which nothing faster is built,
 * and whose bits every other instruction set has to give.
 *
 * FMA  is made of operations that every machine has, for fmaf may be a slow call, or (mingw-w64's) one that rounds
 *      twice. */
#ifndef FL_ENGINES_CPU_KERNELS_REF_H
#define FL_ENGINES_CPU_KERNELS_REF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { FL_VEC_LANES = 4, FL_WIDE_ROWS = 1, FL_WIDE_PANELS = 1 };
#define FL_WIDE_EACH(X) X(1)

typedef float   vec __attribute__((vector_size(16)));
typedef int32_t ivec __attribute__((vector_size(sizeof(vec))));

#include "engines/cpu/kernels/wide/vector.h"

FL_INLINE vec vec_choose(ivec where, vec a, vec b) {
    return (vec)((where & (ivec)a) | (~where & (ivec)b));
}
FL_INLINE vec vec_max(vec bound, vec x) { /* NaN stays */
    return vec_choose(bound > x, bound, x);
}
FL_INLINE vec vec_min(vec bound, vec x) {
    return vec_choose(bound < x, bound, x);
}
/* a b + c, rounded once. Products of floats are exact as doubles. Sums are rounded to odd: where something is lost, the
 * last bit becomes 1 on the side of what is lost, so that the second rounding sees which side it is. */
FL_INLINE vec vec_fma(vec a, vec b, vec c) {
    typedef double  wide __attribute__((vector_size(2 * sizeof(vec))));
    typedef int64_t bits __attribute__((vector_size(sizeof(wide))));
    const wide      add     = __builtin_convertvector(c, wide);
    const wide      product = __builtin_convertvector(a, wide) * __builtin_convertvector(b, wide);
    const wide      sum = product + add, back = sum - product;
    const wide      lost = (product - (sum - back)) + (add - back);
    const bits      even = ((bits)sum & 1) - 1, away = (bits)(lost > 0) ^ (bits)(sum > 0);
    const bits      odd = (1 + 2 * away) & even & (bits)(lost != 0) & (bits)(sum - sum == 0);
    return __builtin_convertvector((wide)((bits)sum + odd), vec);
}
FL_INLINE float ref_fma(float a, float b, float c) {
    return vec_fma(vec_set(a), vec_set(b), vec_set(c))[0];
}
FL_INLINE vec vec_round(vec a) { /* |a| < 2^22 */
    const vec whole = vec_set(0x1.8p23f);
    return (a + whole) - whole;
}
/* As many signed bytes as there are lanes. */
FL_INLINE ivec ivec_bytes(const uint8_t *x) {
    return (ivec){(int8_t)x[0], (int8_t)x[1], (int8_t)x[2], (int8_t)x[3]};
}
/* And as many 16-bit numbers without a sign. */
FL_INLINE ivec ivec_halves(const uint8_t *x) {
    uint16_t half[FL_VEC_LANES];
    memcpy(half, x, sizeof half);
    return (ivec){half[0], half[1], half[2], half[3]};
}
/* p 2^n, n a whole number. */
FL_INLINE vec vec_scale_exponent(vec p, vec n) {
    return (vec)((ivec)p + (__builtin_convertvector(n, ivec) << 23));
}
/* By halves (lanes_sum). */
FL_INLINE float vec_sum(vec v) {
    return (v[0] + v[2]) + (v[1] + v[3]);
}
FL_INLINE float vec_highest(vec v) {
    float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
    return a > b ? a : b;
}

/* acc[0][·] += Σ_k a[k] b[k][0..15], k upwards. */
FL_INLINE void wide_chain(int rows, int panels, const float *a, size_t a_stride, const float *b,
                          size_t b_stride, size_t panel_stride, size_t k, vec acc[FL_WIDE_ROWS][4],
                          int fetching, const char *fetch, size_t fetch_step) {
    (void)rows, (void)panels, (void)a_stride, (void)panel_stride;
    (void)fetching, (void)fetch, (void)fetch_step;
    for (size_t step = 0; step < k; step++, b += b_stride) {
        FL_UNROLL for (int v = 0; v < 4; v++) {
            acc[0][v] = vec_fma(vec_set(a[step]), vec_load(b + v * FL_VEC_LANES), acc[0][v]);
        }
    }
}

#endif
