/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/f32_attention.c - softmax(Q Kᵀ + bias) V of a group of queries; attention_run.h says which
 * groups there are.
 *
 * Method   Q Kᵀ runs on the 6 x 16 tiles of GEMM with the packed keys as B; so does the product with V,
 *          whose rows are B as they lie (16 columns of V at a time). The phases run over the whole
 *          group, so that the long chains of one row's softmax overlap those of the next; maxima and
 *          sums of eight rows are finished together.
 * Softmax  e^(s - top) is 2^t with t = s log2 e - top log2 e in one FMA. The rounding of t costs
 *          t 2^-24 of a weight of 2^t: nothing where t is near 0, nothing where the weight is.
 * Tails    Keys past the last one are zero in the last panel; their scores become -inf, and their weights
 *          are not read.
 *          Groups and tiles do not change the operations of a row. */
#include <math.h>
#include <stdbool.h>

#include "engines/cpu/kernels/avx2/avx2.h"
#include "engines/cpu/kernels/avx2/avx2_tables.h"
#include "engines/cpu/kernels/wide/attention_run.h"
#include "engines/cpu/kernels/wide/wide.h"

enum {
    WIDE       = 4, /* vectors that go through softmax side by side */
    SCORE_STEP = 64 /* keys: 16 KiB of panels for heads of 64 */
};

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
static void pack_keys(const fl_attention *at, size_t begin, size_t n) {
    static const float zero[8];
    const float       *k = at->k + begin * at->kv_stride;
    size_t             d = at->d;
    for (size_t first = 0; first < fl_cpu_pad(n); first += 8) {
        float *out = at->scratch + first / FL_CPU_LANES * FL_CPU_LANES * d + first % FL_CPU_LANES;
        for (size_t c = 0; c < d; c += 8) {
            const float *row[8];
            FL_UNROLL for (size_t i = 0; i < 8; i++) {
                row[i] = first + i < n ? k + (first + i) * at->kv_stride + c : zero;
            }
            transpose_8x8(row, out + c * FL_CPU_LANES);
        }
    }
}

/* Each register for itself: as an intrinsic gcc 12 keeps one zero in a register throughout to copy it
 * from, and the accumulator that it drives out goes through memory at every step. */
#define FL_ZERO(acc) __asm__ volatile("vxorps %0, %0, %0" : "=x"(acc))

FL_INLINE void clear(int rows, __m256 acc[FL_CPU_TILE][2]) {
    FL_UNROLL for (int r = 0; r < rows; r++) {
        FL_ZERO(acc[r][0]);
        FL_ZERO(acc[r][1]);
    }
}

FL_INLINE void add_bias(int rows, const float *bias, __m256 acc[FL_CPU_TILE][2]) {
    FL_UNROLL for (int r = 0; r < rows; r++) { /* the next row is one further from every key */
        acc[r][0] = _mm256_add_ps(acc[r][0], _mm256_loadu_ps(bias - r));
        acc[r][1] = _mm256_add_ps(acc[r][1], _mm256_loadu_ps(bias - r + 8));
    }
}

/* Scores past the text become -inf. The limits come from memory: a constant would take a register
 * from the tile, in which all are in use. */
FL_INLINE void mask_tail(int rows, size_t left, __m256 acc[FL_CPU_TILE][2]) {
#define EIGHT(x) x, x, x, x, x, x, x, x
    static const float most[] = {EIGHT(INFINITY), EIGHT(INFINITY), EIGHT(-INFINITY),
                                 EIGHT(-INFINITY)};
#undef EIGHT
    const float *limit = most + FL_CPU_LANES - left;
    FL_UNROLL for (int r = 0; r < rows; r++) { /* the order of the operands lets NaN through */
        acc[r][0] = _mm256_min_ps(_mm256_loadu_ps(limit), acc[r][0]);
        acc[r][1] = _mm256_min_ps(_mm256_loadu_ps(limit + 8), acc[r][1]);
    }
}

/* scores[row … row + rows][j … j + 15] */
FL_INLINE void score_tile(int rows, const group *g, size_t row, size_t j) {
    const fl_attention *at = g->at;
    __m256              acc[FL_CPU_TILE][2];
    clear(rows, acc);
    wide_chain(rows, 1, g->q + row * at->q_stride, at->q_stride, g->panels + j * at->d,
               FL_CPU_LANES, 0, at->d, acc, 0, NULL, 0);
    if (g->bias) {
        add_bias(rows, g->bias + (ptrdiff_t)j - (ptrdiff_t)row, acc);
    }
    if (j + FL_CPU_LANES > g->keys) {
        mask_tail(rows, g->keys - j, acc);
    }
    float *s = g->scores + row * g->n16 + j;
    FL_UNROLL for (int r = 0; r < rows; r++, s += g->n16) {
        _mm256_storeu_ps(s, acc[r][0]);
        _mm256_storeu_ps(s + 8, acc[r][1]);
    }
}

/* out[row … row + rows][c … c + 15] = weights V: scaled by 1 / Σ weights, or where blocks follow each
 * other, beginning at what is there, scaled. */
FL_INLINE void value_tile(int rows, const group *g, size_t row, size_t c) {
    const fl_attention *at  = g->at;
    float              *out = g->out + row * at->out_stride + c;
    __m256              acc[FL_CPU_TILE][2];
    clear(rows, acc);
    if (g->seen) {
        FL_UNROLL for (int r = 0; r < rows; r++) {
            const float *before = out + (size_t)r * at->out_stride;
            __m256       scale  = _mm256_set1_ps(g->scale[row + (size_t)r]);
            acc[r][0]           = _mm256_mul_ps(_mm256_loadu_ps(before), scale);
            acc[r][1]           = _mm256_mul_ps(_mm256_loadu_ps(before + 8), scale);
        }
    }
    wide_chain(rows, 1, g->scores + row * g->n16, g->n16, g->v + c, at->kv_stride, 0, g->keys, acc,
               0, NULL, 0);
    FL_UNROLL for (int r = 0; r < rows; r++, out += at->out_stride) {
        __m256 scale = _mm256_set1_ps(g->seen ? 1.0f : g->scale[row + (size_t)r]);
        _mm256_storeu_ps(out, _mm256_mul_ps(acc[r][0], scale));
        _mm256_storeu_ps(out + 8, _mm256_mul_ps(acc[r][1], scale));
    }
}

/* One of the two ways to join vectors; a constant at every call. */
FL_INLINE __m256 join(bool sums, __m256 a, __m256 b) {
    return sums ? _mm256_add_ps(a, b) : _mm256_max_ps(a, b);
}

/* out[r] = part[r][0] + … + part[r][7] (or their maximum) of eight rows, the same tree for each. */
FL_INLINE void join_lanes(bool sums, float (*part)[8], float *out) {
    __m256 pair[4], four[2];
    FL_UNROLL for (int i = 0; i < 4; i++) {
        __m256 a = _mm256_loadu_ps(part[2 * i]), b = _mm256_loadu_ps(part[2 * i + 1]);
        pair[i] = join(sums, _mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    }
    FL_UNROLL for (int i = 0; i < 2; i++) {
        __m256 a = pair[2 * i], b = pair[2 * i + 1];
        four[i] = join(sums, _mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xEE));
    }
    _mm256_storeu_ps(out, join(sums, _mm256_permute2f128_ps(four[0], four[1], 0x20),
                               _mm256_permute2f128_ps(four[0], four[1], 0x31)));
}

/* t[i] = 2^t[i], t clamped to -126; relative error 2.2e-7 (lab/cpu/fit.py). NaN stays. Four vectors
 * step by step: one alone is a chain so long that the scheduler cannot hold enough of them. */
FL_INLINE void powers_of_2(__m256 t[WIDE]) {
    static const float poly[] = {1.000000119e+00f, 6.931469440e-01f, 2.402212024e-01f,
                                 5.550713092e-02f, 9.675540961e-03f, 1.327647129e-03f};
    __m256             n[WIDE], p[WIDE];
    FL_UNROLL for (int i = 0; i < WIDE; i++) {
        t[i] = _mm256_max_ps(_mm256_set1_ps(-126.0f), t[i]);
        n[i] = _mm256_round_ps(t[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        t[i] = _mm256_sub_ps(t[i], n[i]);
        p[i] = _mm256_set1_ps(poly[5]);
    }
    FL_UNROLL for (int c = 4; c >= 0; c--) {
        __m256 next = _mm256_broadcast_ss(poly + c);
        FL_UNROLL for (int i = 0; i < WIDE; i++) {
            p[i] = _mm256_fmadd_ps(p[i], t[i], next);
        }
    }
    FL_UNROLL for (int i = 0; i < WIDE; i++) {
        __m256i power = _mm256_slli_epi32(_mm256_cvtps_epi32(n[i]), 23);
        t[i]          = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p[i]), power));
    }
}

/* The largest score of each lane of a row. */
FL_INLINE __m256 row_top(const float *s, size_t n16) {
    __m256 low = _mm256_loadu_ps(s), high = _mm256_loadu_ps(s + 8);
    for (size_t j = 16; j < n16; j += 16) {
        low  = _mm256_max_ps(low, _mm256_loadu_ps(s + j));
        high = _mm256_max_ps(high, _mm256_loadu_ps(s + j + 8));
    }
    return _mm256_max_ps(low, high);
}

/* e^(s - top) in place over rows r and `other` of pad(n) scores, and the sums of each lane. An odd
 * last row goes through beside itself. */
FL_INLINE void rows_weights(const group *g, float (*part)[8], size_t r, size_t other) {
    const __m256 log2e  = _mm256_set1_ps(1.44269502e+00f);
    const __m256 minus  = _mm256_mul_ps(_mm256_set1_ps(-g->top[r]), log2e);
    const __m256 minus2 = _mm256_mul_ps(_mm256_set1_ps(-g->top[other]), log2e);
    float       *s = g->scores + r * g->n16, *s2 = g->scores + other * g->n16;
    __m256       sum[WIDE];
    FL_UNROLL for (int i = 0; i < WIDE; i++) {
        sum[i] = _mm256_setzero_ps();
    }
    for (size_t j = 0; j < g->n16; j += 16) {
        __m256 e[WIDE] = {_mm256_fmadd_ps(_mm256_loadu_ps(s + j), log2e, minus),
                          _mm256_fmadd_ps(_mm256_loadu_ps(s + j + 8), log2e, minus),
                          _mm256_fmadd_ps(_mm256_loadu_ps(s2 + j), log2e, minus2),
                          _mm256_fmadd_ps(_mm256_loadu_ps(s2 + j + 8), log2e, minus2)};
        powers_of_2(e);
        _mm256_storeu_ps(s + j, e[0]);
        _mm256_storeu_ps(s + j + 8, e[1]);
        _mm256_storeu_ps(s2 + j, e[2]);
        _mm256_storeu_ps(s2 + j + 8, e[3]);
        FL_UNROLL for (int i = 0; i < WIDE; i++) {
            sum[i] = _mm256_add_ps(sum[i], e[i]);
        }
    }
    _mm256_storeu_ps(part[r], _mm256_add_ps(sum[0], sum[1]));
    _mm256_storeu_ps(part[other], _mm256_add_ps(sum[2], sum[3]));
}

/* Scores of the group -> weights and their sums. */
static void softmax(group *g) {
    float part[FL_CPU_SCORE_ROWS][8]; /* maxima or sums of a row, by lane */
    for (size_t r = 0; r < g->rows; r++) {
        _mm256_storeu_ps(part[r], row_top(g->scores + r * g->n16, g->n16));
    }
    for (size_t r = g->rows; r % 8 != 0; r++) { /* rows of an eight that are not there */
        _mm256_storeu_ps(part[r], _mm256_setzero_ps());
    }
    for (size_t r = 0; r < g->rows; r += 8) {
        join_lanes(false, part + r, g->top + r);
    }
    attention_join_tops(g);
    for (size_t r = 0; r < g->rows; r += 2) {
        rows_weights(g, part, r, r + 1 < g->rows ? r + 1 : r);
    }
    for (size_t r = 0; r < g->rows; r += 8) {
        join_lanes(true, part + r, g->sum + r);
    }
    attention_join_sums(g);
}

#define TILES(rows)                                                                                \
    static __attribute__((noinline)) void score_##rows(const group *g, size_t row, size_t from,    \
                                                       size_t to) {                                \
        for (size_t j = from; j < to; j += FL_CPU_LANES) {                                         \
            score_tile(rows, g, row, j);                                                           \
        }                                                                                          \
    }                                                                                              \
    static __attribute__((noinline)) void value_##rows(const group *g, size_t row, size_t from,    \
                                                       size_t to) {                                \
        for (size_t c = from; c < to; c += FL_CPU_LANES) {                                         \
            value_tile(rows, g, row, c);                                                           \
        }                                                                                          \
    }
TILES(1)
TILES(2)
TILES(3)
TILES(4)
TILES(5)
TILES(6)
#undef TILES

typedef void (*tile_fn)(const group *g, size_t row, size_t from, size_t to);

/* Every tile of the group's rows and `columns` columns, `step` columns at a time: what all tiles
 * read of K or V in a step stays in L1. */
FL_INLINE void tiles(const tile_fn *tile, const group *g, size_t columns, size_t step) {
    for (size_t from = 0; from < columns; from += step) {
        size_t to = columns - from < step ? columns : from + step;
        for (size_t row = 0; row < g->rows;) {
            size_t height = wide_tile_rows(g->rows - row);
            tile[height](g, row, from, to);
            row += height;
        }
    }
}

static void run_group(group *g) {
    static const tile_fn score[] = {NULL, score_1, score_2, score_3, score_4, score_5, score_6};
    static const tile_fn value[] = {NULL, value_1, value_2, value_3, value_4, value_5, value_6};
    bool                 open    = attention_open(g);
    tiles(score, g, g->n16, SCORE_STEP);
    if (!open) {
        attention_hide(g, -INFINITY);
    }
    softmax(g);
    if (!open) {
        attention_hide(g, 0.0f);
    }
    tiles(value, g, g->at->d, FL_CPU_LANES);
}

void fl_f32_attention_6x16_avx2(const fl_attention *at) {
    attention_run(at, FL_CPU_TILE, pack_keys, run_group);
}
