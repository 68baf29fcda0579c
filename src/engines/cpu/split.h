/* SPDX-License-Identifier: Apache-2.0 */
/* split.h - one rank's view of the block under way, for the files that run it.
 *
 * A block is run by one thread, or by several of the team together, from thread `first` on: then each is a rank of
 * the split group. */
#ifndef FL_ENGINES_CPU_SPLIT_H
#define FL_ENGINES_CPU_SPLIT_H

#include "engines/cpu/cpu_engine.h"

/* x, z, context, joint_qk, y and their bytes belong to the whole group, the rest to the rank. */
typedef struct fl_cpu_split {
    fl_engine          *engine;
    const fl_cpu_block *block;
    fl_cpu_scratch      scratch;
    unsigned            rank, ranks, first;
    bool                pooled_only; /* the last layer takes the pooled rows alone, one a text */
} fl_cpu_split;

static inline void fl_cpu_wait(const fl_cpu_split *c) {
    if (c->ranks > 1)
        fl_barrier_wait(&c->engine->barriers[c->first / c->ranks]);
}

/* A rank's share of `count` things begins here; the next rank's beginning is its end. */
static inline size_t fl_cpu_share(const fl_cpu_split *c, size_t count, unsigned rank) {
    return count * rank / c->ranks;
}

static inline size_t fl_cpu_min(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Tokens at the head of text `t` of the plan that are kept: no rows of the block. */
static inline uint32_t fl_cpu_prefix(const fl_engine *e, uint32_t t) {
    return e->prompt.shared ? e->prompt.shared[e->plan.order[t]] : 0;
}

/* Tokens of text `t` that are rows of the block, and how many of them pooling leaves out. */
static inline uint32_t fl_cpu_length(const fl_engine *e, uint32_t t) {
    uint32_t text = e->plan.order[t];
    return e->batch->cu[text + 1] - e->batch->cu[text] - fl_cpu_prefix(e, t);
}
static inline uint32_t fl_cpu_skip(const fl_engine *e, uint32_t t) {
    uint32_t skip   = e->batch->pool_skip ? e->batch->pool_skip[e->plan.order[t]] : 0;
    uint32_t shared = fl_cpu_prefix(e, t);
    return skip > shared ? skip - shared : 0;
}

/* How many of all tokens of text `t` are attended to. */
static inline size_t fl_cpu_key_count(const fl_engine *e, uint32_t t) {
    return e->batch->keys ? e->batch->keys[e->plan.order[t]]
                          : fl_cpu_length(e, t) + fl_cpu_prefix(e, t);
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
void fl_cpu_vocabulary(const fl_cpu_split *c);

/* cpu_latent.c: x of `rows` rows behind the final norm and the latents, this rank's share; y is this thread's own. */
void fl_cpu_latents(const fl_cpu_split *c, size_t rows);

/* cpu_layers.c: the block through all layers; x holds the embedded tokens. With pooled_only the first rows of x are the
 * texts' pooled rows afterwards. */
void fl_cpu_layers(const fl_cpu_split *c);

#endif
