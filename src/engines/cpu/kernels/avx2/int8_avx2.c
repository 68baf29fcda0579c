/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/int8_avx2.c - bytes times bytes over packed panels, 4 x 16 register tiles.
 *
 * Step     vpmaddubsw multiplies 32 unsigned by 32 signed bytes and adds neighbours in 16 bits. Two
 *          of its results are added in 16 bits before vpmaddwd by ones widens them to 32: five
 *          operations for 64 products, three on the two multiplying ports, so 2.67 times the rate
 *          of FMAs at most. With weights of group 2 every result is widened by itself: 2 times.
 * Safety   Four products share 16 bits. quant.c keeps the positive weights of such four at a sum of
 *          128 at most and the negative ones at -128, and 255 * 128 = 32,640 fits: nothing
 *          saturates, whatever the activations are. Group 2: two products, the same bound.
 * Proof    fl-kernels test -o gemm_q8: bits of ref, weights at their bounds. */
enum { FL_WIDE_ROWS = 4, FL_A_BYTES = 1 };
#define FL_WIDE_EACH(X) X(1) X(2) X(3) X(4)

#include "engines/cpu/kernels/avx2/avx2.h"
#include "engines/cpu/kernels/narrow.h"
#include "engines/cpu/kernels/wide/wide.h"

FL_INLINE __m256i four(const uint8_t *a) {
    int32_t word;
    __builtin_memcpy(&word, a, sizeof word);
    return _mm256_set1_epi32(word);
}

FL_INLINE __m256i weights(const uint8_t *b) {
    return (__m256i)ivec_load(b);
}

/* acc[r][·] += Σ_k a[r][k] b[k][·]; `rows` and `group` are constants at every call. */
FL_INLINE void chain(int rows, int group, const fl_gemm *g, const tile_place *at,
                     vec acc[FL_WIDE_ROWS][2]) {
    const __m256i  ones = _mm256_set1_epi16(1);
    const uint8_t *a = at->a, *b = at->b;
    const char    *fetch = at->fetch;
    for (size_t k = 0; k < g->k; k += 8, a += 8, b += (size_t)8 * FL_CPU_LANES) {
        _mm_prefetch(fetch, _MM_HINT_T0);
        fetch += 2 * at->fetch_step;
        __m256i low0 = weights(b), high0 = weights(b + 32);
        __m256i low1 = weights(b + 64), high1 = weights(b + 96);
        FL_UNROLL for (int r = 0; r < rows; r++) {
            __m256i x0 = four(a + (size_t)r * g->a_stride);
            __m256i x1 = four(a + (size_t)r * g->a_stride + 4);
            __m256i l0 = _mm256_maddubs_epi16(x0, low0), l1 = _mm256_maddubs_epi16(x1, low1);
            __m256i h0 = _mm256_maddubs_epi16(x0, high0), h1 = _mm256_maddubs_epi16(x1, high1);
            if (group == 4) {
                l0 = _mm256_madd_epi16(_mm256_add_epi16(l0, l1), ones);
                h0 = _mm256_madd_epi16(_mm256_add_epi16(h0, h1), ones);
            } else {
                l0 = _mm256_add_epi32(_mm256_madd_epi16(l0, ones), _mm256_madd_epi16(l1, ones));
                h0 = _mm256_add_epi32(_mm256_madd_epi16(h0, ones), _mm256_madd_epi16(h1, ones));
            }
            acc[r][0] = (vec)((ivec)acc[r][0] + (ivec)l0);
            acc[r][1] = (vec)((ivec)acc[r][1] + (ivec)h0);
        }
    }
}

FL_INLINE void pairs_dot(int rows, int panels, const fl_gemm *g, const tile_place *at,
                         vec acc[FL_WIDE_ROWS][2]) {
    (void)panels;
    if (g->group == 4)
        chain(rows, 4, g, at, acc);
    else
        chain(rows, 2, g, at, acc);
}
#define wide_dot pairs_dot

#include "engines/cpu/kernels/wide/int_gemm.h"

void fl_q8_gemm_4x16_avx2(const fl_gemm *g) {
    wide_gemm(g);
}
