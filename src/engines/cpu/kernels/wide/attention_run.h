/* SPDX-License-Identifier: Apache-2.0 */
/* wide/attention_run.h - which queries meet which keys, and what a group of queries remembers from one
 * block of keys to the next; shared by the attention of every instruction set, which includes it and
 * computes scores, weights and sums of values of one group at a time.
 *
 * Method   Keys come in blocks of FL_CPU_KEYS, which are transposed once into panels [d][16], the layout
 *          of GEMM weights. Every head's queries that see a key of the block follow, in groups of up to 24
 *          rows whose scores stay in L1 through softmax and the product with V. A group's tiles cover
 *          the keys that one of its rows sees and no others: that is what makes a window cheap.
 *          Several blocks: weights are relative to the largest score so far; when a larger one comes,
 *          the sums so far are scaled down, and in the end by the sum of all weights.
 * Bytes    The keys of a group begin at a multiple of 16 and the blocks at multiples of FL_CPU_KEYS, so a
 *          key has its place in a vector whatever the group; what a row does not see adds zeros to sums
 *          and leaves a scale of exactly 1. So a row's bits do not depend on its group. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_ATTENTION_RUN_H
#define FL_ENGINES_CPU_KERNELS_WIDE_ATTENTION_RUN_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/elementary.h"
#include "engines/cpu/kernels.h"

/* The group of rows under way. */
typedef struct group {
    const fl_attention *at;
    const float        *q, *v;  /* its first row; the value of its first key */
    const float        *panels; /* its keys, packed */
    size_t              q_stride, v_stride, depth, steps; /* the products' strides and k: d, keys */
    const float        *bias;                             /* of its first row and key, or NULL */
    float              *out;
    float              *scores;                 /* [rows, n16] */
    float              *seen;                   /* [rows][2] largest score and sum so far; NULL: one
                                                   block is all there is */
    float               top[FL_CPU_SCORE_ROWS]; /* largest score of a row */
    float               sum[FL_CPU_SCORE_ROWS]; /* of its weights */
    float               scale[FL_CPU_SCORE_ROWS]; /* of what the block before left in out */
    size_t              first, rows;              /* tokens */
    size_t              low, keys, n16;           /* keys low … low + keys - 1, padded */
    size_t              place, packed; /* low within the block; keys of the block, padded */
} group;

static inline size_t attention_least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* The first key that token i sees, and the one after the last. */
static inline size_t sees_from(const fl_attention *at, size_t i) {
    return i > at->before ? i - at->before : 0;
}
static inline size_t sees_to(const fl_attention *at, size_t i) {
    return at->n - i > at->after ? i + at->after + 1 : at->n;
}

/* `value` at the scores of keys that a row does not see: -inf before softmax, 0 after it. */
static inline void attention_hide(const group *g, float value) {
    for (size_t r = 0; r < g->rows; r++) {
        size_t from = sees_from(g->at, g->first + r), to = sees_to(g->at, g->first + r);
        from     = from > g->low ? attention_least(from - g->low, g->n16) : 0;
        to       = to > g->low ? attention_least(to - g->low, g->n16) : 0;
        float *s = g->scores + r * g->n16;
        for (size_t j = 0; j < from; j++)
            s[j] = value;
        for (size_t j = to; j < g->keys; j++)
            s[j] = value;
    }
}

/* Whether every row sees every key: nothing is hidden. */
static inline bool attention_open(const group *g) {
    size_t last = g->first + g->rows - 1;
    return sees_from(g->at, last) <= g->low && sees_to(g->at, g->first) >= g->low + g->keys;
}

/* The largest scores of this block, in g->top, join those before it. A row that sees no key of the
 * block, nor did before, is as if its scores were 0 and not -inf, from which nothing can be taken. */
static inline void attention_join_tops(group *g) {
    for (size_t r = 0; g->seen && r < g->rows; r++) {
        float before = g->seen[2 * r], top = g->top[r] > before ? g->top[r] : before;
        g->scale[r]    = top > before ? (float)fl_math_exp((double)(before - top)) : 1.0f;
        g->seen[2 * r] = top;
        g->top[r]      = top > -INFINITY ? top : 0.0f;
    }
}

/* The sums of this block's weights likewise; scale then is what out needs. */
static inline void attention_join_sums(group *g) {
    for (size_t r = 0; r < g->rows; r++)
        if (g->seen)
            g->seen[2 * r + 1] = g->seen[2 * r + 1] * g->scale[r] + g->sum[r];
        else
            g->scale[r] = 1.0f / g->sum[r];
}

/* Several blocks: sums of values begin at 0, and end divided by the sum of their weights. */
static inline void attention_begin(const fl_attention *at, float *seen) {
    for (size_t r = 0; r < at->heads * at->rows; r++) {
        float *out      = at->out + r / at->rows * at->out_head + r % at->rows * at->out_stride;
        seen[2 * r]     = -INFINITY;
        seen[2 * r + 1] = 0.0f;
        for (size_t c = 0; c < at->d; c++)
            out[c] = 0.0f;
    }
}
static inline void attention_end(const fl_attention *at, const float *seen) {
    for (size_t r = 0; r < at->heads * at->rows; r++) {
        float *out   = at->out + r / at->rows * at->out_head + r % at->rows * at->out_stride;
        float  scale = 1.0f / seen[2 * r + 1];
        for (size_t c = 0; c < at->d; c++)
            out[c] *= scale;
    }
}

/* Rows of a group of `rows` that see so many keys: 24, less when the scores would not leave L1 room for
 * the operands, and so that the last group is no thin rest. */
static inline size_t attention_step(size_t rows, size_t keys) {
    size_t most   = fl_cpu_pad(keys) <= 256 ? FL_CPU_SCORE_ROWS : FL_CPU_SCORE_ROWS / 2;
    size_t groups = (rows + most - 1) / most;
    return (rows + groups - 1) / groups;
}

/* Keys begin … begin + n - 1 to panels in scratch, zero where a panel is not full; and one group through
 * scores, weights and values. */
typedef void (*attention_pack_fn)(const fl_attention *at, size_t begin, size_t n);
typedef void (*attention_group_fn)(group *g);

/* Queries [from, to) of a head with the keys [begin, end), which are packed. */
static inline void attention_head(const fl_attention *at, size_t head, size_t from, size_t to,
                                  size_t begin, size_t end, float *seen, attention_group_fn run) {
    size_t sight = at->before < at->n && at->after < at->n ? at->before + at->after + 1 : at->n;
    size_t step  = attention_step(to - from, attention_least(end - begin, sight));
    group  g; /* top, sum and scale: written before they are read */
    g.at = at;
    for (g.first = from; g.first < to; g.first += step) {
        size_t row = g.first - at->first, last;
        g.rows     = attention_least(to - g.first, step);
        last       = sees_to(at, g.first + g.rows - 1);
        g.low      = sees_from(at, g.first);
        g.low      = g.low > begin ? begin + (g.low - begin) / FL_CPU_LANES * FL_CPU_LANES : begin;
        g.keys     = attention_least(end, last) - g.low;
        g.n16      = fl_cpu_pad(g.keys);
        g.place    = g.low - begin;
        g.packed   = fl_cpu_pad(end - begin);
        g.panels   = at->scratch + g.place * at->d;
        g.scores   = at->scratch + g.packed * at->d;
        g.q        = at->q + head * at->q_head + row * at->q_stride;
        g.q_stride = at->q_stride;
        g.v        = at->v + g.low * at->kv_stride;
        g.v_stride = at->kv_stride;
        g.depth    = at->d;
        g.steps    = g.keys;
        g.out      = at->out + head * at->out_head + row * at->out_stride;
        g.bias = at->bias ? at->bias + head * at->bias_head + (ptrdiff_t)row * at->bias_row + g.low
                          : NULL;
        g.seen = seen ? seen + 2 * (head * at->rows + row) : NULL;
        run(&g);
    }
}

/* The whole attention; inlined where pack and run are known. */
static inline __attribute__((always_inline)) void
attention_run(const fl_attention *at, attention_pack_fn pack, attention_group_fn run) {
    size_t first = at->first, last = at->first + at->rows - 1;
    size_t reach = sees_to(at, last), from = sees_from(at, first);
    float *seen =
        at->n > FL_CPU_KEYS ? at->scratch + FL_CPU_KEYS * (at->d + FL_CPU_SCORE_ROWS) : NULL;
    if (seen)
        attention_begin(at, seen);
    for (size_t block = from / FL_CPU_KEYS * FL_CPU_KEYS; block < reach; block += FL_CPU_KEYS) {
        size_t begin = from > block ? from / FL_CPU_LANES * FL_CPU_LANES : block;
        size_t end   = attention_least(block + FL_CPU_KEYS, reach);
        /* who sees a key of the block */
        size_t top    = begin > at->after ? begin - at->after : 0;
        size_t bottom = at->before < at->n ? end + at->before : last + 1;
        top           = top > first ? top : first;
        bottom        = attention_least(bottom, last + 1);
        pack(at, begin, end - begin);
        for (size_t head = 0; head < at->heads; head++)
            attention_head(at, head, top, bottom, begin, end, seen, run);
    }
    if (seen)
        attention_end(at, seen);
}

#endif
