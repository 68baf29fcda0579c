/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/int_quantize_avx2.c - rows of floats become bytes or 16-bit integers, on vectors of 8. */
#include "engines/cpu/kernels/avx2/avx2.h"
#include "engines/cpu/kernels/narrow.h"

FL_INLINE ivec ivec_max(ivec a, ivec b) {
    return (ivec)_mm256_max_epi32((__m256i)a, (__m256i)b);
}
FL_INLINE ivec ivec_over(ivec a, ivec b) {
    return (ivec)_mm256_max_epu32((__m256i)a, (__m256i)b);
}
FL_INLINE int32_t ivec_highest(ivec a) {
    __m128i four =
        _mm_max_epi32(_mm256_castsi256_si128((__m256i)a), _mm256_extracti128_si256((__m256i)a, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
FL_INLINE uint32_t ivec_topmost(ivec a) {
    __m128i four =
        _mm_max_epu32(_mm256_castsi256_si128((__m256i)a), _mm256_extracti128_si256((__m256i)a, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1)));
}

#include "engines/cpu/kernels/wide/int_quantize.h"

/* 16 integers of 16 bits; packing works in halves. */
FL_INLINE __m256i words_of(__m256i low, __m256i high) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
}

FL_INLINE void round_bytes(const vec y[FL_PANEL_VECS], int32_t zero, void *q) {
    const __m256i lift  = _mm256_set1_epi32(zero);
    __m256i       words = words_of(_mm256_add_epi32(_mm256_cvtps_epi32(y[0]), lift),
                                   _mm256_add_epi32(_mm256_cvtps_epi32(y[1]), lift));
    __m128i       bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)q, bytes);
}

FL_INLINE void round_words(const vec y[FL_PANEL_VECS], int32_t zero, void *q) {
    (void)zero;
    _mm256_storeu_si256((__m256i *)q, words_of(_mm256_cvtps_epi32(y[0]), _mm256_cvtps_epi32(y[1])));
}

void fl_q8_quantize_avx2(const fl_quantize *z) {
    wide_quantize(z, sizeof(uint8_t), measure_bytes, round_bytes);
}

void fl_q16_quantize_avx2(const fl_quantize *z) {
    wide_quantize(z, sizeof(int16_t), measure_words, round_words);
}
