/* SPDX-License-Identifier: Apache-2.0 */
/* vocabulary.c - a weight for each entry of the vocabulary: the head of SPLADE, never [tokens, vocabulary].
 *
 * Role     cpu_forward.c calls it for a block whose layers are done, instead of pooling.
 * Method   z = LN(act(x W + b)), as wide as the word table, takes the place of x, unless the head
 *          is bare. Then the vocabulary comes by in strips of `wide16` ids: a product gives the
 *          logits of some rows, the largest of each text's rows stays, and positive ones are the
 *          text's next terms, so ids rise. log(1 + x) is left to who weighs them: it is the same of
 *          the largest as the largest of it. A split group takes a strip each at a time; when all have
 *          theirs, each rank hands over some texts' terms, strip after strip.
 * Bytes    A logit is one row's product alone, and a largest value does not depend on an order.
 * Memory   Rows of logits in y, the largest in scratch.max_logits: as many texts at a time as there is room.
 * Threads  see cpu_forward.c. Proof tests/unit/test_engine_vocabulary.c, tests/golden. */
#include <math.h>
#include <string.h>

#include "base/number.h"
#include "engines/cpu/split.h"

/* Rows of the block and who has them: texts [first, last) of the plan, whose rows begin at `row`. */
typedef struct span {
    uint32_t first, last;
    size_t   row;
} span;

/* This rank's share of the rows through the head's first half, some at a time. */
static void transform(const fl_cpu_split *c) {
    const fl_engine *e    = c->engine;
    size_t           last = fl_cpu_share(c, c->block->tokens, c->rank + 1);
    size_t           step = fl_cpu_rows_step(e, c->block->tokens);
    for (size_t row = fl_cpu_share(c, c->block->tokens, c->rank), n; row < last; row += n) {
        n                = fl_cpu_min(step, last - row);
        float      *x    = c->scratch.x + row * e->hidden16;
        fl_gemm     g    = {.a        = x,
                            .a_stride = e->hidden16 * sizeof *x,
                            .b        = e->mlm,
                            .b_stride = e->hidden16 * FL_CPU_LANES * sizeof *e->mlm,
                            .c        = c->scratch.y,
                            .c_stride = e->wide16,
                            .bias     = e->mlm_bias,
                            .rows     = n,
                            .panels   = e->embed16 / FL_CPU_LANES,
                            .k        = e->hidden16};
        fl_row_norm norm = {.x        = c->scratch.y,
                            .x_stride = e->wide16,
                            .y        = x,
                            .y_stride = e->hidden16,
                            .weight   = e->mlm_norm.weight,
                            .bias     = e->mlm_norm.bias,
                            .rows     = n,
                            .n        = e->desc.embedding,
                            .eps      = e->desc.norm_eps};
        if (e->final_norm.weight)
            fl_cpu_norm_rows(e, &e->final_norm, x, x, n);
        if (e->mlm) {
            e->kernels->gemm(&g);
            e->kernels->activation[e->desc.mlm_activation](c->scratch.y, e->wide16, n, e->embed16);
            e->kernels->layer_norm(&norm);
        }
    }
}

/* A row that is not finite has no largest logit; which text's it is is told once. */
static void check_rows(const fl_cpu_split *c) {
    fl_engine *e   = c->engine;
    size_t     row = 0;
    for (uint32_t t = c->block->first; t < c->block->last; t++) {
        size_t n = fl_cpu_length(e, t);
        if ((t - c->block->first) % c->ranks == c->rank &&
            !fl_all_finite(c->scratch.x + row * e->hidden16, n * e->hidden16))
            fl_cpu_report_bad(e, e->plan.order[t]);
        row += n;
    }
}

static void keep_largest(float *most, const float *logits, size_t ids) {
    for (size_t i = 0; i < ids; i++)
        most[i] = logits[i] > most[i] ? logits[i] : most[i];
}

/* The largest logits of the texts of s, over the ids of panels [panel, panel + panels), to scratch.max_logits. */
static void largest(const fl_cpu_split *c, const span *s, size_t panel, size_t panels) {
    const fl_engine *e    = c->engine;
    size_t           rows = 0, ids = panels * FL_CPU_LANES;
    for (uint32_t t = s->first; t < s->last; t++)
        rows += fl_cpu_length(e, t);
    size_t   step = fl_cpu_rows_step(e, rows);
    uint32_t t    = s->first;
    size_t   left = fl_cpu_length(e, t); /* rows of t to come */
    memset(c->scratch.max_logits, 0, (s->last - s->first) * e->wide16 * sizeof(float));
    for (size_t row = 0, n; row < rows; row += n) {
        n         = fl_cpu_min(step, rows - row);
        fl_gemm g = {.a        = c->scratch.x + (s->row + row) * e->hidden16,
                     .a_stride = e->hidden16 * sizeof(float),
                     .b        = e->decoder + panel * e->embed16 * FL_CPU_LANES,
                     .b_stride = e->embed16 * FL_CPU_LANES * sizeof *e->decoder,
                     .c        = c->scratch.y,
                     .c_stride = e->wide16,
                     .bias     = e->decoder_bias + panel * FL_CPU_LANES,
                     .rows     = n,
                     .panels   = panels,
                     .k        = e->embed16};
        e->kernels->gemm(&g);
        for (size_t i = 0; i < n; i++) {
            keep_largest(c->scratch.max_logits + (t - s->first) * e->wide16,
                         c->scratch.y + i * e->wide16, ids);
            if (--left == 0 && ++t < s->last)
                left = fl_cpu_length(e, t);
        }
    }
}

/* What of a text's largest logits is positive becomes its next terms. */
static void hand_over(fl_engine *e, uint32_t text, const float *most, size_t id, size_t ids) {
    for (size_t i = 0; i < ids && id + i < e->desc.vocab; i++) {
        if (!(most[i] > 0.0f))
            continue;
        if (!isfinite(most[i]))
            fl_cpu_report_bad(e, text);
        else if (!fl_terms_add(&e->batch->terms[text], (int32_t)(id + i), most[i]))
            atomic_store(&e->no_memory, true);
    }
}

/* The whole vocabulary for the texts of s: a strip for each rank, then what they found. */
static void scan(const fl_cpu_split *c, const span *s) {
    fl_engine *e   = c->engine;
    size_t     all = fl_cpu_pad(e->desc.vocab) / FL_CPU_LANES, strip = e->wide16 / FL_CPU_LANES;
    for (size_t panel = 0; panel < all; panel += strip * c->ranks) {
        size_t mine = panel + strip * c->rank;
        if (mine < all)
            largest(c, s, mine, fl_cpu_min(strip, all - mine));
        fl_cpu_wait(c);
        for (uint32_t t = s->first + c->rank; t < s->last; t += c->ranks) {
            for (unsigned m = 0; m < c->ranks; m++) {
                size_t       from = panel + strip * m;
                const float *most =
                    c->ranks > 1 ? e->scratch[c->first + m].max_logits : c->scratch.max_logits;
                if (from < all) {
                    hand_over(e, e->plan.order[t], most + (t - s->first) * e->wide16,
                              from * FL_CPU_LANES, fl_cpu_min(strip, all - from) * FL_CPU_LANES);
                }
            }
        }
        fl_cpu_wait(c);
    }
}

void fl_cpu_vocabulary(const fl_cpu_split *c) {
    const fl_engine *e = c->engine;
    span             s = {.first = c->block->first, .last = c->block->first};
    transform(c);
    fl_cpu_wait(c);
    check_rows(c);
    while (s.first < c->block->last) {
        size_t rows = 0;
        while (s.last < c->block->last && s.last - s.first < e->rows_max)
            rows += fl_cpu_length(e, s.last++);
        scan(c, &s);
        s = (span){.first = s.last, .last = s.last, .row = s.row + rows};
    }
}
