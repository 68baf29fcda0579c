/* SPDX-License-Identifier: Apache-2.0 */
/* forward.c - a block of texts: embedding, layers, pooling.
 *
 * Role     engine.c calls fl_cpu_run_block for every block of the plan: with a crew of one thread
 *          (throughput: no barriers, activations stay in that core's L2), or with all threads
 *          together (latency: one small request; and what would leave threads idle at the end of a
 *          batch).
 * Method   Tokens become rows of x, layers.c takes them through the layers, the rows of every text are
 *          pooled into its result. What of a layer is float32 in every precision stands here too.
 * Memory   Only what engine.c reserved. Threads: a crew of more than one shares the first one's
 *          scratch.
 * Proof    tests/unit/test_engine*.c: against double precision, and bytes over batches and
 *          threads. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engines/cpu/crew.h"

/* x = norm(word[id] + position[i]). Where the architecture says so, a pad token that stands in the
 * text takes the padding row, kept behind the last position, and the others are counted without
 * it. */
static void embed(const fl_cpu_crew *c) {
    const fl_engine *e      = c->engine;
    const fl_batch  *batch  = e->batch;
    size_t           hidden = e->desc.hidden, first = fl_cpu_share(c, c->block->tokens, c->member);
    size_t           last = fl_cpu_share(c, c->block->tokens, c->member + 1), row = 0;
    for (uint32_t t = c->block->first; t < c->block->last; t++) {
        uint32_t begin = batch->cu[e->plan.order[t]], n = batch->cu[e->plan.order[t] + 1] - begin;
        size_t   counted = 0;
        for (size_t i = 0; i < n; i++, row++) {
            int32_t id       = batch->ids[begin + i];
            bool    is_pad   = e->desc.position_skips_pad && (uint32_t)id == e->desc.pad_token;
            size_t  position = is_pad ? e->max_length : counted++;
            if (row < first || row >= last) {
                continue;
            }
            float *x = c->at.x + row * e->hidden16;
            fl_tensor_to_f32(&e->word, (uint64_t)id * hidden, hidden, x);
            memset(x + hidden, 0, (e->hidden16 - hidden) * sizeof(float));
            for (size_t k = 0; e->positions && k < hidden; k++) {
                x[k] += e->positions[position * e->hidden16 + k];
            }
        }
    }
    if (e->embed_w) {
        fl_layer_norm norm = {.x        = c->at.x + first * e->hidden16,
                              .x_stride = e->hidden16,
                              .y        = c->at.x + first * e->hidden16,
                              .y_stride = e->hidden16,
                              .weight   = e->embed_w,
                              .bias     = e->embed_b,
                              .rows     = last - first,
                              .n        = hidden,
                              .eps      = e->desc.norm_eps};
        e->kernels->layer_norm(&norm);
    }
}

size_t fl_cpu_rows_step(const fl_engine *e, size_t tokens) {
    size_t steps = (tokens + e->rows_max - 1) / e->rows_max;
    size_t rows  = (tokens + steps - 1) / steps;
    return (rows + FL_CPU_TILE - 1) / FL_CPU_TILE * FL_CPU_TILE;
}

void fl_cpu_attend(const fl_cpu_crew *c, size_t head, size_t tokens) {
    const fl_engine *e    = c->engine;
    const float     *bias = e->bias ? e->bias + head * e->bias_stride + e->max_length - 1 : NULL;
    size_t           row  = 0;
    for (uint32_t t = c->block->first; t < c->block->last; t++) {
        uint32_t     text = e->plan.order[t];
        size_t       n    = e->batch->cu[text + 1] - e->batch->cu[text];
        fl_attention at   = {.q          = c->at.head + row * e->head16,
                             .k          = c->at.head + (tokens + row) * e->head16,
                             .v          = c->at.head + (2 * tokens + row) * e->head16,
                             .stride     = e->head16,
                             .out        = c->at.context + row * e->inner + head * e->head16,
                             .out_stride = e->inner,
                             .bias       = bias,
                             .scratch    = c->at.attention,
                             .n          = n,
                             .d          = e->head16};
        e->kernels->attention(&at);
        row += n;
    }
}

/* x[row …] = norm(y) for this member's rows. */
void fl_cpu_norm_rows(const fl_cpu_crew *c, size_t row, size_t rows, const float *weight,
                      const float *bias) {
    const fl_engine *e = c->engine;
    size_t first = fl_cpu_share(c, rows, c->member), last = fl_cpu_share(c, rows, c->member + 1);
    fl_layer_norm norm = {.x        = c->at.y + first * e->hidden16,
                          .x_stride = e->hidden16,
                          .y        = c->at.x + (row + first) * e->hidden16,
                          .y_stride = e->hidden16,
                          .weight   = weight,
                          .bias     = bias,
                          .rows     = last - first,
                          .n        = e->desc.hidden,
                          .eps      = e->desc.norm_eps};
    e->kernels->layer_norm(&norm);
}

/* Remember the lowest text whose row is not finite. */
static void report_bad(fl_engine *e, uint32_t text) {
    unsigned seen = atomic_load(&e->bad_text);
    while (text < seen && !atomic_compare_exchange_weak(&e->bad_text, &seen, text)) {
    }
}

static void pool_texts(const fl_cpu_crew *c) {
    fl_engine *e   = c->engine;
    size_t     row = 0;
    for (uint32_t t = c->block->first; t < c->block->last; t++) {
        uint32_t text = e->plan.order[t], n = e->batch->cu[text + 1] - e->batch->cu[text];
        float   *x = c->at.x + row * e->hidden16;
        row += n;
        if ((t - c->block->first) % c->members != c->member) {
            continue;
        }
        if (e->final_w) {
            fl_layer_norm norm = {.x        = x,
                                  .x_stride = e->hidden16,
                                  .y        = x,
                                  .y_stride = e->hidden16,
                                  .weight   = e->final_w,
                                  .bias     = e->final_b,
                                  .rows     = n,
                                  .n        = e->desc.hidden,
                                  .eps      = e->desc.norm_eps};
            e->kernels->layer_norm(&norm);
        }
        uint32_t skip = e->batch->pool_skip ? e->batch->pool_skip[text] : 0;
        if (!fl_cpu_pool(e, x, n, skip, e->batch->rows[text])) {
            report_bad(e, text);
        }
    }
}

/* The caller of forward has a name already; the others of the team get one. */
static void name_thread(const fl_engine *e, unsigned thread) {
    char name[32];
    if (e->trace && thread > 0) {
        snprintf(name, sizeof name, "cpu thread %u", thread);
        fl_trace_thread(e->trace, name);
    }
}

void fl_cpu_run_block(fl_engine *engine, const fl_cpu_block *block, unsigned thread,
                      unsigned members) {
    fl_cpu_crew c = {
        .engine = engine, .block = block, .at = engine->scratch[thread], .members = members};
    if (members > 1) {
        const fl_cpu_scratch *shared = &engine->scratch[0];
        c.member                     = thread;
        c.at.x                       = shared->x;
        c.at.context                 = shared->context;
        c.at.y                       = shared->y;
        c.at.x_narrow                = shared->x_narrow;
        c.at.context_narrow          = shared->context_narrow;
    }
    const uint64_t begin = fl_trace_begin(engine->trace);
    name_thread(engine, thread);
    embed(&c);
    fl_cpu_layers(&c);
    pool_texts(&c);
    fl_trace_end(engine->trace, "block", begin, "tokens", block->tokens);
    fl_cpu_wait(&c); /* the next block overwrites x */
}
