/* SPDX-License-Identifier: Apache-2.0 */
/* dot_avx2.c - the dot product of two rows, 32 products at a time.
 *
 * Role    vectors.h on processors with AVX2; compiled with its own flags.
 * Method  Four registers of eight lanes, then halves onto halves in dot.c's order. The rows come from
 *         memory, not from a cache, so a fused multiply-add would save nothing.
 * Memory  none; reads exactly `size` numbers. Threads: any.
 * Proof   tests/unit/test_server_vectors.c: the same bits as dot.c. */
#include <immintrin.h>

#include "store/vectors.h"

float fl_dot_avx2(const float *a, const float *b, size_t size) {
    __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                     _mm256_setzero_ps()};
    for (size_t i = 0; i < size; i += FL_DOT_LANES) {
        for (size_t k = 0; k < 4; k++) {
            __m256 product =
                _mm256_mul_ps(_mm256_loadu_ps(a + i + 8 * k), _mm256_loadu_ps(b + i + 8 * k));
            sum[k] = _mm256_add_ps(sum[k], product);
        }
    }
    sum[0]      = _mm256_add_ps(sum[0], sum[2]);
    sum[1]      = _mm256_add_ps(sum[1], sum[3]);
    sum[0]      = _mm256_add_ps(sum[0], sum[1]);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum[0]), _mm256_extractf128_ps(sum[0], 1));
    four        = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}
