/* SPDX-License-Identifier: Apache-2.0 */
/* crew.h - what cpu_forward.c and cpu_layers.c share: one member's view of the block under way. */
#ifndef FL_ENGINES_CPU_CREW_H
#define FL_ENGINES_CPU_CREW_H

#include "engines/cpu/cpu_engine.h"

/* x, z, context, wide, y and their bytes are the crew's, the rest is the member's own. Its threads are those
 * from `first` on. */
typedef struct fl_cpu_crew {
    fl_engine          *engine;
    const fl_cpu_block *block;
    fl_cpu_scratch      at;
    unsigned            member, members, first;
    bool                few; /* the last layer takes the pooled rows alone, one a text */
} fl_cpu_crew;

static inline void fl_cpu_wait(const fl_cpu_crew *c) {
    if (c->members > 1) {
        fl_barrier_wait(&c->engine->barriers[c->first / c->members]);
    }
}

/* A member's share of `count` things begins here; the next member's beginning is its end. */
static inline size_t fl_cpu_share(const fl_cpu_crew *c, size_t count, unsigned member) {
    return count * member / c->members;
}

static inline size_t fl_cpu_least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Tokens at the head of text `t` of the plan that are kept: no rows of the block. */
static inline uint32_t fl_cpu_shared(const fl_engine *e, uint32_t t) {
    return e->prompt.shared ? e->prompt.shared[e->plan.order[t]] : 0;
}

/* Tokens of text `t` that are rows of the block, and how many of them pooling leaves out. */
static inline uint32_t fl_cpu_length(const fl_engine *e, uint32_t t) {
    uint32_t text = e->plan.order[t];
    return e->batch->cu[text + 1] - e->batch->cu[text] - fl_cpu_shared(e, t);
}
static inline uint32_t fl_cpu_skip(const fl_engine *e, uint32_t t) {
    uint32_t skip   = e->batch->pool_skip ? e->batch->pool_skip[e->plan.order[t]] : 0;
    uint32_t shared = fl_cpu_shared(e, t);
    return skip > shared ? skip - shared : 0;
}

/* How many of all tokens of text `t` are attended to. */
static inline size_t fl_cpu_keys(const fl_engine *e, uint32_t t) {
    return e->batch->keys ? e->batch->keys[e->plan.order[t]]
                          : fl_cpu_length(e, t) + fl_cpu_shared(e, t);
}

/* The first token of text `t` that has type 1. */
static inline size_t fl_cpu_second(const fl_engine *e, uint32_t t) {
    return e->batch->segment ? e->batch->segment[e->plan.order[t]] : SIZE_MAX;
}

/* y = norm(x) of rows of n values, `stride` apart; x and y may be the same. */
static inline void fl_cpu_norm_as(const fl_engine *e, fl_norm kind, const fl_cpu_norm *norm,
                                  const float *x, float *y, size_t stride, size_t rows, size_t n) {
    fl_row_norm of = {.x        = x,
                      .x_stride = stride,
                      .y        = y,
                      .y_stride = stride,
                      .weight   = norm->weight,
                      .bias     = norm->bias,
                      .rows     = rows,
                      .n        = n,
                      .eps      = e->desc.norm_eps};
    (kind == FL_NORM_LAYER ? e->kernels->layer_norm : e->kernels->rms_norm)(&of);
}

/* The same of rows of hidden16, by a norm of the layers' kind. */
static inline void fl_cpu_norm_rows(const fl_engine *e, const fl_cpu_norm *norm, const float *x,
                                    float *y, size_t rows) {
    fl_cpu_norm_as(e, e->desc.norm, norm, x, y, e->hidden16, rows, e->desc.hidden);
}

/* cpu_forward.c: the result of a text is not finite. */
void fl_cpu_report_bad(fl_engine *e, uint32_t text);

/* vocabulary.c: of the block's rows x, which it overwrites, to its texts' terms. */
void fl_cpu_vocabulary(const fl_cpu_crew *c);

/* cpu_layers.c: the block through all layers; x holds the embedded tokens. When the last one took few rows,
 * the first rows of x are the texts' pooled rows. */
void fl_cpu_layers(const fl_cpu_crew *c);

#endif
