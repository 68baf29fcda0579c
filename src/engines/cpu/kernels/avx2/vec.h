/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/vec.h - AVX2 for the kernels of wide/: vectors of 8, tiles of 6 rows x 1 panel. AVX2 has its own
 * float32 products and attention; the rest comes from wide/.
 *
 * NaN      max and min return their second operand when one is NaN. */
#ifndef FL_ENGINES_CPU_KERNELS_AVX2_VEC_H
#define FL_ENGINES_CPU_KERNELS_AVX2_VEC_H

#include "engines/cpu/kernels/avx2/avx2.h"

enum { FL_VEC_LANES = 8, FL_WIDE_ROWS = 6, FL_WIDE_PANELS = 1, FL_DOT_ZERO = 0 };
#define FL_WIDE_EACH(X) X(1) X(2) X(3) X(4) X(5) X(6)

typedef __m256  vec;
typedef int32_t ivec __attribute__((vector_size(sizeof(vec))));

#include "engines/cpu/kernels/wide/vector.h"

FL_INLINE vec vec_max(vec bound, vec x) {
    return _mm256_max_ps(bound, x);
}
FL_INLINE vec vec_min(vec bound, vec x) {
    return _mm256_min_ps(bound, x);
}
FL_INLINE vec vec_round(vec a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* p 2^n, n a whole number. */
FL_INLINE vec vec_scale_exponent(vec p, vec n) {
    __m256i power = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
}
/* Lanes 0 … count - 1 of a, the others of b. */
FL_INLINE vec vec_first(ptrdiff_t count, vec a, vec b) {
    return _mm256_blendv_ps(b, a, fl_avx2_mask(count));
}
FL_INLINE float vec_sum(vec v) {
    return fl_avx2_sum(v);
}
FL_INLINE vec vec_fma(vec a, vec b, vec c) {
    return _mm256_fmadd_ps(a, b, c);
}

#endif
