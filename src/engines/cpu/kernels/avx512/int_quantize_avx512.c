/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/int_quantize_avx512.c - rows of floats become bytes or 16-bit integers, on vectors of 16. */
#include "engines/cpu/kernels/avx512/avx512.h"
#include "engines/cpu/kernels/narrow.h"

FL_INLINE ivec ivec_max(ivec a, ivec b) {
    return (ivec)_mm512_max_epi32((__m512i)a, (__m512i)b);
}
FL_INLINE ivec ivec_over(ivec a, ivec b) {
    return (ivec)_mm512_max_epu32((__m512i)a, (__m512i)b);
}
FL_INLINE int32_t ivec_highest(ivec a) {
    return _mm512_reduce_max_epi32((__m512i)a);
}
FL_INLINE uint32_t ivec_topmost(ivec a) {
    return _mm512_reduce_max_epu32((__m512i)a);
}

#include "engines/cpu/kernels/wide/int_quantize.h"

FL_INLINE void round_bytes(const vec y[FL_PANEL_VECS], int32_t zero, void *q) {
    ivec n = (ivec)_mm512_cvtps_epi32(y[0]) + zero;
    n      = ivec_max(n, ivec_set(0)); /* packing takes them for unsigned */
    _mm_storeu_si128((__m128i *)q, _mm512_cvtusepi32_epi8((__m512i)n));
}

FL_INLINE void round_words(const vec y[FL_PANEL_VECS], int32_t zero, void *q) {
    (void)zero;
    _mm256_storeu_si256((__m256i *)q, _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(y[0])));
}

void fl_q8_quantize_avx512(const fl_quantize *z) {
    wide_quantize(z, sizeof(uint8_t), measure_bytes, round_bytes);
}

void fl_q16_quantize_avx512(const fl_quantize *z) {
    wide_quantize(z, sizeof(int16_t), measure_words, round_words);
}
