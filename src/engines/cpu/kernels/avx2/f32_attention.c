/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/f32_attention.c - softmax(Q Kᵀ + bias) V of one head over one text.
 *
 * Method   Keys are transposed once into panels [d][16], the layout of GEMM weights, so that Q Kᵀ
 *          runs on the 6 x 16 tiles of GEMM. A group of up to 24 rows of scores stays in L1 through
 *          softmax and the product with V, whose rows are B as they lie (16 columns of V at a
 *          time). The three phases run over the whole group: the long chains of one row's softmax
 *          overlap those of the next, and a panel of keys or a strip of V serves all tiles of the
 *          group from L1.
 * Tails    Keys past n are zero in the last panel; their scores become -inf, their weights 0.
 *          Groups and tiles do not change the operations of a row. */
#include "engines/cpu/kernels/avx2/avx2.h"

#include <string.h>

/* out[d][8] = rows of 8 keys transposed, 8 dimensions at a time; out rows are 16 floats apart. */
FL_INLINE void transpose_8x8(const float *const row[8], float *out) {
    __m256 r[8], t[8];
    FL_UNROLL for (int i = 0; i < 8; i++) {
        r[i] = _mm256_loadu_ps(row[i]);
    }
    FL_UNROLL for (int i = 0; i < 8; i += 2) {
        t[i]     = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    FL_UNROLL for (int i = 0; i < 8; i += 4) {
        r[i]     = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    FL_UNROLL for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(out + i * FL_CPU_LANES, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(out + (i + 4) * FL_CPU_LANES,
                         _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

/* panels[pad(n)/16][d][16]; keys past n are zero. */
static void pack_keys(const float *k, size_t stride, size_t n, size_t d, float *panels) {
    static const float zero[8];
    for (size_t first = 0; first < fl_cpu_pad(n); first += 8) {
        float *out = panels + first / FL_CPU_LANES * FL_CPU_LANES * d + first % FL_CPU_LANES;
        for (size_t c = 0; c < d; c += 8) {
            const float *row[8];
            FL_UNROLL for (size_t i = 0; i < 8; i++) {
                row[i] = first + i < n ? k + (first + i) * stride + c : zero;
            }
            transpose_8x8(row, out + c * FL_CPU_LANES);
        }
    }
}

/* The group of rows under way. */
typedef struct group {
    const fl_attention *at;
    const float        *panels; /* packed keys */
    float              *scores; /* [rows, n16] */
    float               scale[FL_CPU_SCORE_ROWS];
    size_t              first, rows, n16;
} group;

FL_INLINE void add_bias(int rows, const float *bias, __m256 acc[FL_CPU_TILE][2]) {
    FL_UNROLL for (int r = 0; r < rows; r++) { /* the next row is one further from every key */
        acc[r][0] = _mm256_add_ps(acc[r][0], _mm256_loadu_ps(bias - r));
        acc[r][1] = _mm256_add_ps(acc[r][1], _mm256_loadu_ps(bias - r + 8));
    }
}

FL_INLINE void mask_tail(int rows, size_t left, __m256 acc[FL_CPU_TILE][2]) {
    const __m256 infinity = _mm256_set1_ps(-__builtin_inff());
    const __m256 low = fl_avx2_mask((ptrdiff_t)left), high = fl_avx2_mask((ptrdiff_t)left - 8);
    FL_UNROLL for (int r = 0; r < rows; r++) {
        acc[r][0] = _mm256_blendv_ps(infinity, acc[r][0], low);
        acc[r][1] = _mm256_blendv_ps(infinity, acc[r][1], high);
    }
}

/* scores[row … row + rows][j … j + 15] */
FL_INLINE void score_tile(int rows, const group *g, size_t row, size_t j) {
    const fl_attention *at = g->at;
    __m256              acc[FL_CPU_TILE][2];
    fl_avx2_zero(rows, acc);
    fl_avx2_chain(rows, at->q + (g->first + row) * at->stride, at->stride, g->panels + j * at->d,
                  FL_CPU_LANES, at->d, acc, 0, NULL, 0);
    if (at->bias) {
        add_bias(rows, at->bias + (ptrdiff_t)j - (ptrdiff_t)(g->first + row), acc);
    }
    if (j + FL_CPU_LANES > at->n) {
        mask_tail(rows, at->n - j, acc);
    }
    float *s = g->scores + row * g->n16 + j;
    FL_UNROLL for (int r = 0; r < rows; r++, s += g->n16) {
        _mm256_storeu_ps(s, acc[r][0]);
        _mm256_storeu_ps(s + 8, acc[r][1]);
    }
}

/* out[row … row + rows][c … c + 15] = weights V, scaled by 1 / Σ weights */
FL_INLINE void value_tile(int rows, const group *g, size_t row, size_t c) {
    const fl_attention *at  = g->at;
    float              *out = at->out + (g->first + row) * at->out_stride + c;
    __m256              acc[FL_CPU_TILE][2];
    fl_avx2_zero(rows, acc);
    fl_avx2_chain(rows, g->scores + row * g->n16, g->n16, at->v + c, at->stride, at->n, acc, 0,
                  NULL, 0);
    FL_UNROLL for (int r = 0; r < rows; r++, out += at->out_stride) {
        __m256 scale = _mm256_set1_ps(g->scale[row + (size_t)r]);
        _mm256_storeu_ps(out, _mm256_mul_ps(acc[r][0], scale));
        _mm256_storeu_ps(out + 8, _mm256_mul_ps(acc[r][1], scale));
    }
}

/* e^(s - max) in place over one row of pad(n) scores; returns 1 / sum. */
FL_INLINE float softmax_row(float *s, size_t n16) {
    __m256 top = _mm256_loadu_ps(s), top2 = _mm256_loadu_ps(s + 8);
    for (size_t j = 16; j < n16; j += 16) {
        top  = _mm256_max_ps(top, _mm256_loadu_ps(s + j));
        top2 = _mm256_max_ps(top2, _mm256_loadu_ps(s + j + 8));
    }
    const __m256 max = _mm256_set1_ps(fl_avx2_max(_mm256_max_ps(top, top2)));
    __m256       sum = _mm256_setzero_ps(), sum2 = _mm256_setzero_ps();
    for (size_t j = 0; j < n16; j += 16) {
        __m256 e  = fl_avx2_exp(_mm256_sub_ps(_mm256_loadu_ps(s + j), max));
        __m256 e2 = fl_avx2_exp(_mm256_sub_ps(_mm256_loadu_ps(s + j + 8), max));
        _mm256_storeu_ps(s + j, e);
        _mm256_storeu_ps(s + j + 8, e2);
        sum  = _mm256_add_ps(sum, e);
        sum2 = _mm256_add_ps(sum2, e2);
    }
    return 1.0f / fl_avx2_sum(_mm256_add_ps(sum, sum2));
}

#define TILES(rows)                                                                                \
    static __attribute__((noinline)) void score_##rows(const group *g, size_t row, size_t j) {     \
        score_tile(rows, g, row, j);                                                               \
    }                                                                                              \
    static __attribute__((noinline)) void value_##rows(const group *g, size_t row, size_t c) {     \
        value_tile(rows, g, row, c);                                                               \
    }
TILES(1)
TILES(2)
TILES(3)
TILES(4)
TILES(5)
TILES(6)
#undef TILES

typedef void (*tile_fn)(const group *g, size_t row, size_t col);

/* Every tile of the group's rows at one column. */
FL_INLINE void column(const tile_fn *tile, const group *g, size_t col) {
    for (size_t row = 0; row < g->rows;) {
        size_t height = fl_avx2_tile_rows(g->rows - row);
        tile[height](g, row, col);
        row += height;
    }
}

static void run_group(group *g) {
    static const tile_fn score[] = {NULL, score_1, score_2, score_3, score_4, score_5, score_6};
    static const tile_fn value[] = {NULL, value_1, value_2, value_3, value_4, value_5, value_6};
    for (size_t j = 0; j < g->n16; j += FL_CPU_LANES) {
        column(score, g, j);
    }
    for (size_t r = 0; r < g->rows; r++) {
        g->scale[r] = softmax_row(g->scores + r * g->n16, g->n16);
    }
    for (size_t c = 0; c < g->at->d; c += FL_CPU_LANES) {
        column(value, g, c);
    }
}

/* Rows of a group: 24, less when the scores of so many keys would not leave L1 room for the
 * operands, and so that the last group is no thin rest. */
static size_t group_rows(size_t n) {
    size_t most   = fl_cpu_pad(n) <= 256 ? FL_CPU_SCORE_ROWS : FL_CPU_SCORE_ROWS / 2;
    size_t groups = (n + most - 1) / most, rows = (n + groups - 1) / groups;
    return (rows + FL_CPU_TILE - 1) / FL_CPU_TILE * FL_CPU_TILE;
}

void fl_f32_attention_6x16_avx2(const fl_attention *at) {
    group g  = {.at = at, .panels = at->scratch, .n16 = fl_cpu_pad(at->n)};
    g.scores = at->scratch + g.n16 * at->d;
    pack_keys(at->k, at->stride, at->n, at->d, at->scratch);
    for (size_t step = group_rows(at->n); g.first < at->n; g.first += step) {
        g.rows = at->n - g.first < step ? at->n - g.first : step;
        run_group(&g);
    }
}
