/* SPDX-License-Identifier: Apache-2.0 */
/* wide/f32_attention.h - softmax(Q Kᵀ + bias) V of one head over one text, for every width of
 * vector.
 *
 * Method   Keys are transposed once into panels [d][16], the layout of GEMM weights, so that Q Kᵀ
 *          runs on the chains of GEMM. A group of up to 24 rows of scores stays in L1 through
 *          softmax and the product with V, whose rows are B as they lie, 16 columns of V a panel.
 * Tails    Keys past n are zero in the last panel; their scores become -inf, their weights 0.
 *          Groups and tiles do not change the operations of a row.
 * Proof    fl-kernels test. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_F32_ATTENTION_H
#define FL_ENGINES_CPU_KERNELS_WIDE_F32_ATTENTION_H

#include "engines/cpu/kernels/wide/exp.h"

/* The compiler's own vectors of four: the same shuffles on every machine. */
typedef float four __attribute__((vector_size(16), aligned(4)));

/* out[d][4] = rows of 4 keys transposed, 4 dimensions at a time; out rows are 16 floats apart. */
FL_INLINE void transpose_4x4(const float *const row[4], float *out) {
    four a = *(const four *)row[0], b = *(const four *)row[1];
    four c = *(const four *)row[2], d = *(const four *)row[3];
    four ab_low                       = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    four ab_high                      = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    four cd_low                       = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    four cd_high                      = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(four *)out                      = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    *(four *)(out + FL_CPU_LANES)     = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    *(four *)(out + 2 * FL_CPU_LANES) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *(four *)(out + 3 * FL_CPU_LANES) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

/* panels[pad(n)/16][d][16]; keys past n are zero. */
static void pack_keys(const float *k, size_t stride, size_t n, size_t d, float *panels) {
    static const float zero[4];
    for (size_t first = 0; first < fl_cpu_pad(n); first += 4) {
        float *out = panels + first / FL_CPU_LANES * FL_CPU_LANES * d + first % FL_CPU_LANES;
        for (size_t c = 0; c < d; c += 4) {
            const float *row[4];
            FL_UNROLL for (size_t i = 0; i < 4; i++) {
                row[i] = first + i < n ? k + (first + i) * stride + c : zero;
            }
            transpose_4x4(row, out + c * FL_CPU_LANES);
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

FL_INLINE void clear(int rows, int vecs, vec acc[FL_WIDE_ROWS][FL_WIDE_VECS]) {
    FL_UNROLL for (int r = 0; r < rows; r++) {
        FL_UNROLL for (int v = 0; v < vecs; v++) {
            acc[r][v] = vec_zero();
        }
    }
}

/* scores[row … row + rows][j … j + 15] */
FL_INLINE void score_tile(int rows, const group *g, size_t row, size_t j) {
    const fl_attention *at = g->at;
    vec                 acc[FL_WIDE_ROWS][FL_WIDE_VECS];
    const float        *bias = at->bias + (ptrdiff_t)j - (ptrdiff_t)(g->first + row);
    float              *s    = g->scores + row * g->n16 + j;
    clear(rows, FL_PANEL_VECS, acc);
    wide_chain(rows, 1, at->q + (g->first + row) * at->stride, at->stride, g->panels + j * at->d,
               FL_CPU_LANES, 0, at->d, acc, 0, NULL, 0);
    FL_UNROLL for (int r = 0; r < rows; r++, s += g->n16) {
        FL_UNROLL for (int v = 0; v < FL_PANEL_VECS; v++) {
            ptrdiff_t left = (ptrdiff_t)(at->n - j) - v * FL_VEC_LANES;
            if (at->bias) { /* the next row is one further from every key */
                acc[r][v] = vec_add(acc[r][v], vec_load(bias - r + v * FL_VEC_LANES));
            }
            if (left < FL_VEC_LANES) {
                acc[r][v] = vec_first(left, acc[r][v], vec_set(-__builtin_inff()));
            }
            vec_store(s + v * FL_VEC_LANES, acc[r][v]);
        }
    }
}

/* out[row … row + rows][c … c + 16 panels - 1] = weights V, scaled by 1 / Σ weights */
FL_INLINE void value_tile(int rows, int panels, const group *g, size_t row, size_t c) {
    const fl_attention *at  = g->at;
    float              *out = at->out + (g->first + row) * at->out_stride + c;
    vec                 acc[FL_WIDE_ROWS][FL_WIDE_VECS];
    clear(rows, panels * FL_PANEL_VECS, acc);
    wide_chain(rows, panels, g->scores + row * g->n16, g->n16, at->v + c, at->stride, FL_CPU_LANES,
               at->n, acc, 0, NULL, 0);
    FL_UNROLL for (int r = 0; r < rows; r++, out += at->out_stride) {
        vec scale = vec_set(g->scale[row + (size_t)r]);
        FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
            vec_store(out + v * FL_VEC_LANES, vec_mul(acc[r][v], scale));
        }
    }
}

/* e^(s - max) in place over one row of pad(n) scores; returns 1 / sum. */
FL_INLINE float softmax_row(float *s, size_t n16) {
    vec top = vec_load(s), sum = vec_zero();
    for (size_t j = FL_VEC_LANES; j < n16; j += FL_VEC_LANES) {
        top = vec_max(top, vec_load(s + j));
    }
    const vec max = vec_set(vec_highest(top));
    for (size_t j = 0; j < n16; j += FL_VEC_LANES) {
        vec e = wide_exp(vec_sub(vec_load(s + j), max));
        vec_store(s + j, e);
        sum = vec_add(sum, e);
    }
    return 1.0f / vec_sum(sum);
}

#define TILE(rows)                                                                                 \
    static FL_NOINLINE void score_##rows(const group *g, size_t row, size_t j) {                   \
        score_tile(rows, g, row, j);                                                               \
    }                                                                                              \
    static FL_NOINLINE void value_##rows(const group *g, size_t row, size_t c) {                   \
        value_tile(rows, 1, g, row, c);                                                            \
    }                                                                                              \
    static FL_NOINLINE void value_wide_##rows(const group *g, size_t row, size_t c) {              \
        value_tile(rows, FL_WIDE_PANELS, g, row, c);                                               \
    }
FL_WIDE_EACH(TILE)
#undef TILE

typedef void (*attention_tile_fn)(const group *g, size_t row, size_t col);

/* Every tile of the group's rows at one column. */
FL_INLINE void group_column(const attention_tile_fn *tile, const group *g, size_t col) {
    for (size_t row = 0; row < g->rows;) {
        size_t rows = wide_tile_rows(g->rows - row);
        tile[rows](g, row, col);
        row += rows;
    }
}

static void run_group(group *g) {
#define SCORE(rows) score_##rows,
#define ONE(rows)   value_##rows,
#define WIDE(rows)  value_wide_##rows,
    static const attention_tile_fn score[] = {NULL, FL_WIDE_EACH(SCORE)};
    static const attention_tile_fn one[]   = {NULL, FL_WIDE_EACH(ONE)};
    static const attention_tile_fn wide[]  = {NULL, FL_WIDE_EACH(WIDE)};
#undef SCORE
#undef ONE
#undef WIDE
    for (size_t j = 0; j < g->n16; j += FL_CPU_LANES) {
        group_column(score, g, j);
    }
    for (size_t r = 0; r < g->rows; r++) {
        g->scale[r] = softmax_row(g->scores + r * g->n16, g->n16);
    }
    for (size_t c = 0; c < g->at->d;) {
        bool full = FL_WIDE_PANELS > 1 && g->at->d - c >= FL_WIDE_PANELS * FL_CPU_LANES;
        group_column(full ? wide : one, g, c);
        c += full ? FL_WIDE_PANELS * FL_CPU_LANES : FL_CPU_LANES;
    }
}

/* Rows of a group: 24, less when the scores of so many keys would not leave L1 room for the
 * operands, and so that the last group is no thin rest. */
static size_t group_rows(size_t n) {
    size_t most   = fl_cpu_pad(n) <= 256 ? FL_CPU_SCORE_ROWS : FL_CPU_SCORE_ROWS / 2;
    size_t groups = (n + most - 1) / most;
    return (n + groups - 1) / groups;
}

static void wide_attention(const fl_attention *at) {
    group g  = {.at = at, .panels = at->scratch, .n16 = fl_cpu_pad(at->n)};
    g.scores = at->scratch + g.n16 * at->d;
    pack_keys(at->k, at->stride, at->n, at->d, at->scratch);
    for (size_t step = group_rows(at->n); g.first < at->n; g.first += step) {
        g.rows = at->n - g.first < step ? at->n - g.first : step;
        run_group(&g);
    }
}

#endif
