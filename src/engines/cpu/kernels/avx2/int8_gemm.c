/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/int8_gemm.c - bytes times bytes over packed panels, 4 x 16 register tiles.
 *
 * Step     vpmaddubsw multiplies 32 unsigned by 32 signed bytes and adds neighbours in 16 bits. Two
 *          of its results are added in 16 bits before vpmaddwd by ones widens them to 32: five
 *          operations for 64 products, three on the two multiplying ports, so 2.67 times the rate
 *          of FMAs at most. With weights of group 2 every result is widened by itself: 2 times.
 * Safety   Four products share 16 bits. quant.c keeps the positive weights of such four at a sum of
 *          128 at most and the negative ones at -128, and 255 * 128 = 32,640 fits: nothing
 *          saturates, whatever the activations are. Group 2: two products, the same bound.
 * Zero     Σ (a - zero) b = Σ a b - zero Σ b: the sums of the columns stand in the panel.
 * Order    As in f32_gemm.c: panels outside, row tiles inside, the next panel fetched meanwhile.
 * Proof    fl-kernels test -o gemm_q8: bits of ref, weights at their bounds. */
#include "engines/cpu/kernels/avx2/avx2.h"

enum { ROWS = 4, COLS = FL_CPU_LANES };

typedef struct place {
    const uint8_t *a, *b;
    const float   *a_scale, *bias, *residual;
    const int32_t *a_zero;
    float         *c;
    const char    *fetch;
    size_t         fetch_step;
} place;

FL_INLINE __m256i four(const uint8_t *a) {
    int32_t word;
    __builtin_memcpy(&word, a, sizeof word);
    return _mm256_set1_epi32(word);
}

FL_INLINE __m256i weights(const uint8_t *b) {
    return _mm256_loadu_si256((const __m256i *)(const void *)b);
}

/* acc[r][·] += Σ_k a[r][k] b[k][·]; `rows` and `group` are constants at every call. */
FL_INLINE void chain(int rows, int group, const fl_gemm *g, const place *at, __m256i acc[ROWS][2]) {
    const __m256i  ones = _mm256_set1_epi16(1);
    const uint8_t *a = at->a, *b = at->b;
    const char    *fetch = at->fetch;
    for (size_t k = 0; k < g->k; k += 8, a += 8, b += (size_t)8 * COLS) {
        _mm_prefetch(fetch, _MM_HINT_T0);
        fetch += at->fetch_step;
        __m256i low0 = weights(b), high0 = weights(b + 32);
        __m256i low1 = weights(b + 64), high1 = weights(b + 96);
        FL_UNROLL for (int r = 0; r < rows; r++) {
            __m256i x0 = four(a + (size_t)r * g->a_stride);
            __m256i x1 = four(a + (size_t)r * g->a_stride + 4);
            __m256i l0 = _mm256_maddubs_epi16(x0, low0), l1 = _mm256_maddubs_epi16(x1, low1);
            __m256i h0 = _mm256_maddubs_epi16(x0, high0), h1 = _mm256_maddubs_epi16(x1, high1);
            if (group == 4) {
                l0        = _mm256_madd_epi16(_mm256_add_epi16(l0, l1), ones);
                h0        = _mm256_madd_epi16(_mm256_add_epi16(h0, h1), ones);
                acc[r][0] = _mm256_add_epi32(acc[r][0], l0);
                acc[r][1] = _mm256_add_epi32(acc[r][1], h0);
            } else {
                l0        = _mm256_madd_epi16(l0, ones);
                l1        = _mm256_madd_epi16(l1, ones);
                h0        = _mm256_madd_epi16(h0, ones);
                h1        = _mm256_madd_epi16(h1, ones);
                acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_add_epi32(l0, l1));
                acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_add_epi32(h0, h1));
            }
        }
    }
}

/* One half of a row: eight columns from `col`. */
FL_INLINE void finish(const fl_gemm *g, const place *at, int r, int col, __m256i sum) {
    const uint8_t *tail  = at->b + g->k * COLS;
    __m256i        sums  = weights(tail + COLS * sizeof(float) + (size_t)col * sizeof(int32_t));
    __m256         scale = _mm256_loadu_ps((const float *)(const void *)tail + col);
    float         *c     = at->c + (size_t)r * g->c_stride + col;
    sum      = _mm256_sub_epi32(sum, _mm256_mullo_epi32(sums, _mm256_set1_epi32(at->a_zero[r])));
    scale    = _mm256_mul_ps(_mm256_broadcast_ss(at->a_scale + r), scale);
    __m256 y = g->accumulate ? _mm256_loadu_ps(c) : _mm256_setzero_ps();
    y        = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, y);
    if (at->bias) {
        y = _mm256_add_ps(y, _mm256_loadu_ps(at->bias + col));
    }
    if (at->residual) {
        const float *from = at->residual + (size_t)r * g->residual_stride + col;
        y                 = _mm256_add_ps(y, _mm256_loadu_ps(from));
    }
    _mm256_storeu_ps(c, y);
}

FL_INLINE void tile(int rows, int group, const fl_gemm *g, const place *at) {
    __m256i acc[ROWS][2];
    FL_UNROLL for (int r = 0; r < rows; r++) {
        acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    }
    chain(rows, group, g, at, acc);
    FL_UNROLL for (int r = 0; r < rows; r++) {
        finish(g, at, r, 0, acc[r][0]);
        finish(g, at, r, 8, acc[r][1]);
    }
}

/* `count` tiles of one height, one below the other. */
FL_INLINE void tiles(int rows, int group, const fl_gemm *g, place *at, size_t count) {
    for (; count > 0; count--) {
        tile(rows, group, g, at);
        at->a += (size_t)rows * g->a_stride;
        at->a_scale += rows;
        at->a_zero += rows;
        at->c += (size_t)rows * g->c_stride;
        at->residual = at->residual ? at->residual + (size_t)rows * g->residual_stride : NULL;
        at->fetch += at->fetch_step * (g->k / 8);
    }
}

/* One function per height and group: the compiler then knows every accumulator by name. */
#define TILES(rows, group)                                                                         \
    static __attribute__((noinline)) void tiles_##rows##_##group(const fl_gemm *g, place *at,      \
                                                                 size_t count) {                   \
        tiles(rows, group, g, at, count);                                                          \
    }
TILES(1, 4)
TILES(2, 4)
TILES(3, 4)
TILES(4, 4)
TILES(1, 2)
TILES(2, 2)
TILES(3, 2)
TILES(4, 2)
#undef TILES

typedef void (*tiles_fn)(const fl_gemm *, place *, size_t);

/* Fours, and the rest as 3 + 2 rather than 4 + 1. */
static void panel(const fl_gemm *g, place at) {
    static const tiles_fn run[2][ROWS + 1] = {{NULL, tiles_1_2, tiles_2_2, tiles_3_2, tiles_4_2},
                                              {NULL, tiles_1_4, tiles_2_4, tiles_3_4, tiles_4_4}};
    const tiles_fn       *fn               = run[g->group == 4];
    size_t                rest = g->rows % ROWS, fours = g->rows / ROWS;
    if (rest == 1 && fours > 0) {
        fours--;
        fn[3](g, &at, 1);
        rest = 2;
    }
    if (fours > 0) {
        fn[ROWS](g, &at, fours);
    }
    if (rest > 0) {
        fn[rest](g, &at, 1);
    }
}

void fl_q8_gemm_4x16_avx2(const fl_gemm *g) {
    size_t tiles_count = (g->rows + ROWS - 1) / ROWS;
    size_t step        = g->b_stride / (tiles_count * (g->k / 8) + 1) + 1;
    for (size_t p = 0; p < g->panels; p++) {
        const uint8_t *b = g->b, *after = b + (p + 1) * g->b_stride;
        place          at = {.a          = g->a,
                             .b          = b + p * g->b_stride,
                             .a_scale    = g->a_scale,
                             .a_zero     = g->a_zero,
                             .bias       = g->bias ? g->bias + p * COLS : NULL,
                             .residual   = g->residual ? g->residual + p * COLS : NULL,
                             .c          = g->c + p * COLS,
                             .fetch      = (const char *)after,
                             .fetch_step = step};
        panel(g, at);
    }
}
