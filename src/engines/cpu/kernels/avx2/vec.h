/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/vec.h - AVX2 for the kernels of wide/: vectors of 8, tiles of 6 rows x 1 panel. The float32
 * kernels of AVX2 are its own; what is narrow comes from wide/. */
#ifndef FL_ENGINES_CPU_KERNELS_AVX2_VEC_H
#define FL_ENGINES_CPU_KERNELS_AVX2_VEC_H

#include "engines/cpu/kernels/avx2/avx2.h"

enum { FL_VEC_LANES = 8, FL_WIDE_ROWS = 6, FL_WIDE_PANELS = 1 };
#define FL_WIDE_EACH(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define FL_NOINLINE     __attribute__((noinline))

typedef __m256 vec;

FL_INLINE vec vec_zero(void) {
    return _mm256_setzero_ps();
}
FL_INLINE vec vec_set(float x) {
    return _mm256_set1_ps(x);
}
FL_INLINE vec vec_load(const float *x) {
    return _mm256_loadu_ps(x);
}
FL_INLINE void vec_store(float *x, vec v) {
    _mm256_storeu_ps(x, v);
}
FL_INLINE vec vec_add(vec a, vec b) {
    return _mm256_add_ps(a, b);
}
FL_INLINE vec vec_mul(vec a, vec b) {
    return _mm256_mul_ps(a, b);
}
FL_INLINE vec vec_fma(vec a, vec b, vec c) {
    return _mm256_fmadd_ps(a, b, c);
}

#endif
