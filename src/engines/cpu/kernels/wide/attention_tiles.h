/* SPDX-License-Identifier: Apache-2.0 */
/* wide/attention_tiles.h - a group of queries (attention_run.h) through scores, softmax and values, for every
 * width of vector; float32 and bfloat16 differ in the chain, in what lies packed, and in the weights.
 *
 * Method   Q Kᵀ runs on the chains of GEMM with the packed keys as B; so does the product with V, whose
 *          rows are B as they lie, 16 columns of V a panel. The phases run over the whole group, and
 *          softmax over some rows side by side.
 * Tails    Keys past the last one are zero in the last panel; their scores become -inf.
 *          Groups and tiles do not change the operations of a row.
 * Proof    fl-kernels test. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_ATTENTION_TILES_H
#define FL_ENGINES_CPU_KERNELS_WIDE_ATTENTION_TILES_H

#include "engines/cpu/kernels/wide/attention_run.h"
#include "engines/cpu/kernels/wide/wide_exp.h"

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

/* scores[row … row + rows][j … j + 16 panels - 1] */
FL_INLINE void score_tile(int rows, int panels, const group *g, size_t row, size_t j) {
    float *s = g->scores + row * g->n16 + j;
    vec    acc[FL_WIDE_ROWS][FL_WIDE_VECS];
    FL_UNROLL for (int r = 0; r < rows; r++) {
        FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
            acc[r][v] = vec_zero();
        }
    }
    wide_chain(rows, panels, g->q + row * g->q_stride, g->q_stride, g->panels + j * g->depth,
               FL_CPU_LANES, FL_CPU_LANES * g->depth, g->depth, acc, 0, NULL, 0);
    if (g->bias) {
        const float *bias = g->bias + (ptrdiff_t)row * g->at->bias_row + j;
        FL_UNROLL for (int r = 0; r < rows; r++, bias += g->at->bias_row) {
            FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
                acc[r][v] += vec_load(bias + v * FL_VEC_LANES);
            }
        }
    }
    if (g->at->cap > 0.0f) {
        vec cap = vec_set(g->at->cap), twice = vec_set(2.0f / g->at->cap);
        FL_UNROLL for (int r = 0; r < rows; r++) {
            FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
                acc[r][v] = cap * wide_tanh_of_half(acc[r][v] * twice);
            }
        }
    }
    if (j + (size_t)panels * FL_CPU_LANES > g->keys) { /* scores past the text */
        FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
            ptrdiff_t left = (ptrdiff_t)(g->keys - j) - v * FL_VEC_LANES;
            FL_UNROLL for (int r = 0; r < rows; r++) {
                acc[r][v] = vec_first(left, acc[r][v], vec_set(-__builtin_inff()));
            }
        }
    }
    FL_UNROLL for (int r = 0; r < rows; r++, s += g->n16) {
        FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
            vec_store(s + v * FL_VEC_LANES, acc[r][v]);
        }
    }
}

/* out[row … row + rows][c … c + 16 panels - 1] = weights V: scaled by 1 / Σ weights, or where blocks
 * follow each other, beginning at what is there, scaled. */
FL_INLINE void value_tile(int rows, int panels, const group *g, size_t row, size_t c) {
    const fl_attention *at  = g->at;
    float              *out = g->out + row * at->out_stride + c;
    vec                 acc[FL_WIDE_ROWS][FL_WIDE_VECS];
    FL_UNROLL for (int r = 0; r < rows; r++) {
        vec scale = vec_set(g->scale[row + (size_t)r]);
        FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
            const float *before = out + (size_t)r * at->out_stride + v * FL_VEC_LANES;
            acc[r][v]           = g->seen ? vec_load(before) * scale : vec_zero();
        }
    }
    wide_chain(rows, panels, g->scores + row * g->n16, g->n16, g->v + c, g->v_stride, FL_CPU_LANES,
               g->steps, acc, 0, NULL, 0);
    FL_UNROLL for (int r = 0; r < rows; r++, out += at->out_stride) {
        vec scale = vec_set(g->seen ? 1.0f : g->scale[row + (size_t)r]);
        FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
            vec_store(out + v * FL_VEC_LANES, acc[r][v] * scale);
        }
    }
}

/* Rows whose softmax goes side by side: one alone is a chain so long that the scheduler cannot hold
 * enough of them. */
enum {
    SOFT_ROWS = FL_PANEL_VECS < 4 ? 4 / FL_PANEL_VECS : 1,
    SOFT_VECS = SOFT_ROWS * FL_PANEL_VECS
};

/* Where the scores of row r begin; past the last row that of the last one, which goes through twice with
 * the same result: all are read before one is written. */
FL_INLINE float *soft_row(const group *g, size_t r) {
    return g->scores + (r < g->rows ? r : g->rows - 1) * g->n16;
}

/* The largest score of rows r and on. */
FL_INLINE void rows_top(group *g, size_t r) {
    vec          top[SOFT_VECS];
    const float *s[SOFT_ROWS];
    FL_UNROLL for (int i = 0; i < SOFT_VECS; i++) {
        s[i / FL_PANEL_VECS] = soft_row(g, r + (size_t)(i / FL_PANEL_VECS));
        top[i]               = vec_load(s[i / FL_PANEL_VECS] + i % FL_PANEL_VECS * FL_VEC_LANES);
    }
    for (size_t j = FL_CPU_LANES; j < g->n16; j += FL_CPU_LANES) {
        FL_UNROLL for (int i = 0; i < SOFT_VECS; i++) {
            const float *at = s[i / FL_PANEL_VECS] + j + i % FL_PANEL_VECS * FL_VEC_LANES;
            top[i]          = vec_max(top[i], vec_load(at));
        }
    }
    FL_UNROLL for (int i = 0; i < SOFT_ROWS; i++) {
        FL_UNROLL for (int v = 1; v < FL_PANEL_VECS; v++) {
            top[i * FL_PANEL_VECS] = vec_max(top[i * FL_PANEL_VECS], top[i * FL_PANEL_VECS + v]);
        }
        if (r + (size_t)i < g->rows)
            g->top[r + (size_t)i] = vec_highest(top[i * FL_PANEL_VECS]);
    }
}

#define TILE(rows)                                                                                 \
    static FL_NOINLINE void score_##rows(const group *g, size_t row, size_t j) {                   \
        score_tile(rows, 1, g, row, j);                                                            \
    }                                                                                              \
    static FL_NOINLINE void score_wide_##rows(const group *g, size_t row, size_t j) {              \
        score_tile(rows, FL_WIDE_PANELS, g, row, j);                                               \
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

/* Every tile of the group's rows and `columns` columns, as many panels at a time as there are. */
FL_INLINE void group_columns(const attention_tile_fn *one, const attention_tile_fn *wide,
                             const group *g, size_t columns) {
    for (size_t col = 0; col < columns;) {
        bool full = FL_WIDE_PANELS > 1 && columns - col >= FL_WIDE_PANELS * FL_CPU_LANES;
        for (size_t row = 0; row < g->rows;) {
            size_t rows = wide_tile_rows(g->rows - row);
            (full ? wide : one)[rows](g, row, col);
            row += rows;
        }
        col += full ? FL_WIDE_PANELS * FL_CPU_LANES : FL_CPU_LANES;
    }
}

/* The group's scores, and the largest of each row. */
static void attention_scores(group *g) {
#define SCORE(rows)      score_##rows,
#define SCORE_WIDE(rows) score_wide_##rows,
    static const attention_tile_fn score[]      = {NULL, FL_WIDE_EACH(SCORE)};
    static const attention_tile_fn score_wide[] = {NULL, FL_WIDE_EACH(SCORE_WIDE)};
#undef SCORE
#undef SCORE_WIDE
    group_columns(score, score_wide, g, g->n16);
    if (!attention_open(g))
        attention_hide(g, -__builtin_inff());
    for (size_t r = 0; r < g->rows; r += SOFT_ROWS)
        rows_top(g, r);
    attention_join_tops(g);
}

#ifndef FL_WEIGHTS_SUM /* of the lanes of a sum of weights */
#define FL_WEIGHTS_SUM lanes_sum
#endif

/* t[i] = 2^t[i]; and a vector of weights to its place among those of the row s, and to their sum. */
typedef void (*power_fn)(vec t[SOFT_VECS]);
typedef vec (*keep_fn)(float *s, size_t j, vec weights, vec sum);

/* e^(s - top) over rows r and on, which is 2^t with t = s log2 e - top log2 e in one FMA: its rounding costs
 * t 2^-24 of a weight of 2^t. And the sums of the weights. */
FL_INLINE void rows_weights(group *g, size_t r, power_fn power, keep_fn keep) {
    const vec log2e = vec_set(1.44269502e+00f);
    vec       minus[SOFT_ROWS], sum[SOFT_VECS];
    float    *s[SOFT_ROWS];
    FL_UNROLL for (int i = 0; i < SOFT_ROWS; i++) {
        size_t row = r + (size_t)i < g->rows ? r + (size_t)i : g->rows - 1;
        s[i]       = soft_row(g, row);
        minus[i]   = vec_set(-g->top[row]) * log2e;
    }
    FL_UNROLL for (int i = 0; i < SOFT_VECS; i++) {
        sum[i] = vec_zero();
    }
    for (size_t j = 0; j < g->n16; j += FL_CPU_LANES) {
        vec e[SOFT_VECS];
        FL_UNROLL for (int i = 0; i < SOFT_VECS; i++) {
            const float *at = s[i / FL_PANEL_VECS] + j + i % FL_PANEL_VECS * FL_VEC_LANES;
            e[i]            = vec_fma(vec_load(at), log2e, minus[i / FL_PANEL_VECS]);
        }
        power(e);
        FL_UNROLL for (int i = 0; i < SOFT_VECS; i++) {
            sum[i] = keep(s[i / FL_PANEL_VECS], j + (size_t)(i % FL_PANEL_VECS) * FL_VEC_LANES,
                          e[i], sum[i]);
        }
    }
    FL_UNROLL for (int i = 0; i < SOFT_ROWS; i++) {
        if (r + (size_t)i < g->rows)
            g->sum[r + (size_t)i] = FL_WEIGHTS_SUM(sum + i * FL_PANEL_VECS);
    }
}

FL_INLINE void attention_weights(group *g, power_fn power, keep_fn keep) {
    for (size_t r = 0; r < g->rows; r += SOFT_ROWS)
        rows_weights(g, r, power, keep);
}

/* What the group's weights make of the values; their sums are in g->sum. */
static void attention_values(group *g) {
#define VALUE(rows)      value_##rows,
#define VALUE_WIDE(rows) value_wide_##rows,
    static const attention_tile_fn value[]      = {NULL, FL_WIDE_EACH(VALUE)};
    static const attention_tile_fn value_wide[] = {NULL, FL_WIDE_EACH(VALUE_WIDE)};
#undef VALUE
#undef VALUE_WIDE
    attention_join_sums(g);
    group_columns(value, value_wide, g, g->at->d);
}

#endif
