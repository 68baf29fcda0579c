/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/integers.h - vectors of 16 integers, for int8 and int16. */
#ifndef FL_ENGINES_CPU_KERNELS_AVX512_INTEGERS_H
#define FL_ENGINES_CPU_KERNELS_AVX512_INTEGERS_H

#include "engines/cpu/kernels/avx512/avx512.h"

typedef __m512i ivec;

enum { FL_DOT_ZERO = 0 };

FL_INLINE ivec ivec_set(int32_t x) {
    return _mm512_set1_epi32(x);
}
FL_INLINE ivec ivec_load(const int32_t *x) {
    return _mm512_loadu_si512(x);
}
FL_INLINE ivec ivec_sub(ivec a, ivec b) {
    return _mm512_sub_epi32(a, b);
}
FL_INLINE ivec ivec_mul(ivec a, ivec b) {
    return _mm512_mullo_epi32(a, b);
}
FL_INLINE vec ivec_to_float(ivec a) {
    return _mm512_cvtepi32_ps(a);
}

#endif
