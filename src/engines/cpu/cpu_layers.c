/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_layers.c - a block of texts through all layers, in every precision.
 *
 * Role     cpu_forward.c calls it between the embedding and the pooling of a block.
 * Method   Per layer, for `tokens` rows; z is x itself, or in pre-norm models norm(x):
 *
 *            cpu_attention.c     context = attention of z, or a convolution instead of it
 *            per rows_max rows   y = context Wo + b + x;  x = norm(y)       pre-norm: x = y, z = norm(y)
 *            cpu_mlp.c           per tile of the MLP  m = act(z Wup + b);  y (+)= m Wdown
 *                                gated: m = act(z Wgate + b) (z Wup + b)
 *                                y += b + x;  x = norm(y)                   pre-norm likewise
 *            cpu_experts.c       instead: y = b + x; for one expert after the other, y += gate weight * MLP of
 *                                the rows that chose it
 *
 *          k, v, q of some heads and some tiles of the MLP are all that exists of the wide activations.
 *          A split group deals heads; then rows, each rank as if it were alone, when there are enough of
 *          them to be worth all weights (fl_cpu_by_rows). Fewer rows are split by columns (weights are
 *          read once, by whom they belong to), and by rows for the norms, with a barrier after each;
 *          experts are always split by rows, since each reads but a few of their weights.
 * Pooled   Where pooling reads one row of a text, the last layer computes keys and values of all tokens,
 *          and everything else of that row alone.
 * Bytes    Cutting rows, heads or columns never changes the operations on an element, a row's scale
 *          depends on that row alone, and tiles of the MLP continue one chain of FMAs (kernels.h):
 *          groups and blocks of any size agree bit by bit.
 * Memory   Only what cpu_engine.c reserved. Threads: a group of more than one shares the first one's scratch.
 * Proof    tests/unit/test_engine*.c, tests/golden/test_precision.py. */
#include <string.h>

#include "engines/cpu/layers.h"

/* y = context Wo + b + x, this rank's columns. */
static void project_out(const fl_cpu_split *c, const fl_cpu_layer *layer, size_t row, size_t rows) {
    const fl_engine *e      = c->engine;
    const float     *x      = fl_cpu_residual(c, row);
    size_t           panels = e->hidden16 / FL_CPU_LANES;
    size_t           first = fl_cpu_share(c, panels, c->rank), col = first * FL_CPU_LANES;
    size_t           panel   = fl_cpu_panel(e, &layer->out_form, e->inner);
    fl_cpu_operand   context = {.narrow = c->scratch.context_narrow,
                                .floats = c->scratch.context + row * e->inner,
                                .width  = e->inner};
    if (context.narrow.q) {
        fl_cpu_quantize_rows(c, &context, rows, e->inner, NULL);
        fl_cpu_wait(c);
    }
    fl_cpu_multiply(e, &context, &layer->out_form, 1.0f,
                    (fl_gemm){.b               = layer->out + first * panel,
                              .c               = c->scratch.y + col,
                              .c_stride        = e->hidden16,
                              .bias            = layer->out_bias + col,
                              .residual        = x ? x + col : NULL,
                              .residual_stride = e->hidden16,
                              .rows            = rows,
                              .panels          = fl_cpu_share(c, panels, c->rank + 1) - first,
                              .k               = e->inner});
}

/* y = mlp(z) + x of rows of x from `row` on. */
static void mlp(const fl_cpu_split *c, const fl_cpu_layer *layer, size_t row, size_t rows) {
    if (layer->experts > 0) {
        fl_cpu_run_experts(c, layer, row, rows);
        fl_cpu_wait(c);
        return;
    }
    fl_cpu_mlp_work work = {.layer     = layer,
                            .panels    = layer->mlp,
                            .up_bias   = layer->up_bias,
                            .down_bias = layer->down_bias,
                            .z         = fl_cpu_z_from(c, row),
                            .residual  = fl_cpu_residual(c, row),
                            .rows      = rows};
    fl_cpu_run_mlp(c, &work);
}

static void add_rows(const float *from, float *to, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

/* z of rows of x by the norm in front of the next block; a norm without weight copies. */
static void norm_to_z(const fl_engine *e, const fl_cpu_norm *norm, const float *x, float *z,
                      size_t rows) {
    if (norm->weight)
        fl_cpu_norm_rows(e, norm, x, z, rows);
    else
        memcpy(z, x, rows * e->hidden16 * sizeof *z);
}

/* What a block left in y becomes x, this rank's share of the rows; `own` and `extra` are the block's norms. Pre-norm:
 * and z, by the norm of the `next` block, NULL in front of none; of x as it was before where both are `parallel`. */
static void residual_and_norm(const fl_cpu_split *c, size_t row, size_t rows,
                              const fl_cpu_norm *own, const fl_cpu_norm *extra,
                              const fl_cpu_norm *next, bool parallel) {
    const fl_engine *e     = c->engine;
    size_t           first = fl_cpu_share(c, rows, c->rank);
    size_t           count = fl_cpu_share(c, rows, c->rank + 1) - first;
    size_t           at = (row + first) * e->hidden16, values = count * e->hidden16;
    float           *y = c->scratch.y + first * e->hidden16, *x = c->scratch.x + at;
    if (!e->pre_norm) {
        fl_cpu_norm_rows(e, own, y, extra->weight ? y : x, count);
        if (extra->weight) { /* x = extra(x + norm(…)) */
            add_rows(x, y, values);
            fl_cpu_norm_rows(e, extra, y, x, count);
        }
        return;
    }
    if (next && parallel)
        norm_to_z(e, next, x, c->scratch.z + at, count);
    if (extra->weight) { /* x = x + extra(…) */
        fl_cpu_norm_rows(e, extra, y, y, count);
        add_rows(y, x, values);
    } else {
        memcpy(x, y, values * sizeof *x);
    }
    if (next && !parallel)
        norm_to_z(e, next, x, c->scratch.z + at, count);
}

/* Attention's output, the MLP and the norms of rows [first, last). */
static void rest_of_layer(const fl_cpu_split *c, size_t index, size_t first, size_t last) {
    const fl_engine    *e     = c->engine;
    const fl_cpu_layer *layer = &e->layers[index];
    const fl_cpu_norm  *next  = index + 1 < e->desc.layers ? &layer[1].attention_norm : NULL;
    size_t              step  = fl_cpu_rows_step(e, last - first);
    for (size_t row = first; row < last; row += step) {
        size_t rows = fl_cpu_min(step, last - row);
        /* columns of Wo belong to ranks, rows of the norm too: hence the waits */
        project_out(c, layer, row, rows);
        fl_cpu_wait(c);
        residual_and_norm(c, row, rows, &layer->attention_norm, &layer->attention_extra,
                          &layer->mlp_norm, e->desc.parallel);
        fl_cpu_quantize_for_mlp(c, row, rows, index);
        fl_cpu_wait(c);
        mlp(c, layer, row, rows);
        residual_and_norm(c, row, rows, &layer->mlp_norm, &layer->mlp_extra, next, false);
        if (next)
            fl_cpu_quantize_for_attention(c, row, rows, index + 1);
        fl_cpu_wait(c);
    }
}

bool fl_cpu_by_rows(const fl_engine *e, size_t tokens, unsigned ranks) {
    /* where weights are widened, each rank that reads all of them pays for it, as for some nine rows */
    size_t min = e->layers[0].up_form.groups.bits > 0 ? 48 : e->format == FL_CPU_FP32 ? 12 : 6;
    return ranks > 1 && tokens >= min * ranks;
}

/* The last layer: x of the pooled rows goes to the front. */
static void keep_pooled(const fl_cpu_split *c) {
    const fl_engine *e   = c->engine;
    float           *to  = c->scratch.x;
    size_t           row = 0;
    for (uint32_t t = c->block->first; c->rank == 0 && t < c->block->last; t++) {
        const float *from = c->scratch.x + fl_cpu_pooled_at(e, t, row) * e->hidden16;
        memmove(to, from, e->hidden16 * sizeof *to);
        to += e->hidden16;
        row += fl_cpu_length(e, t);
    }
    fl_cpu_wait(c);
}

/* A rank as a thread alone, which keeps what it writes for rows of its own. */
static fl_cpu_split alone(const fl_cpu_split *c) {
    const fl_cpu_scratch *mine = &c->engine->scratch[c->first + c->rank];
    fl_cpu_split          own  = *c;
    own.scratch.y              = mine->y;
    own.scratch.context_narrow = mine->context_narrow;
    own.rank                   = 0;
    own.ranks                  = 1;
    return own;
}

static void run_layer(const fl_cpu_split *c, size_t index) {
    const fl_engine *e    = c->engine;
    size_t           rows = c->block->tokens;
    if (c->pooled_only && index + 1 == e->desc.layers) {
        rows = c->block->last - c->block->first;
        fl_cpu_attention_pooled(c, index);
        keep_pooled(c);
    } else {
        fl_cpu_attention_full(c, index);
    }
    if (fl_cpu_by_rows(e, rows, c->ranks)) {
        const fl_cpu_split own   = alone(c);
        const size_t       first = fl_cpu_share(c, rows, c->rank);
        rest_of_layer(&own, index, first, fl_cpu_share(c, rows, c->rank + 1));
        fl_cpu_wait(c);
    } else {
        rest_of_layer(c, index, 0, rows);
    }
}

/* What the first layer reads, this rank's share. */
static void begin(const fl_cpu_split *c) {
    const fl_engine *e     = c->engine;
    size_t           first = fl_cpu_share(c, c->block->tokens, c->rank);
    size_t           rows  = fl_cpu_share(c, c->block->tokens, c->rank + 1) - first;
    size_t           at    = first * e->hidden16;
    if (e->pre_norm)
        norm_to_z(e, &e->layers[0].attention_norm, c->scratch.x + at, c->scratch.z + at, rows);
    fl_cpu_quantize_for_attention(c, 0, c->block->tokens, 0);
    fl_cpu_wait(c);
}

void fl_cpu_layers(const fl_cpu_split *c) {
    const uint32_t layers = c->engine->desc.layers;
    if (layers > 0)
        begin(c);
    for (uint32_t i = 0; i < layers; i++) {
        const uint64_t start = fl_trace_begin(c->engine->trace);
        run_layer(c, i);
        fl_trace_end(c->engine->trace, "layer", start, "number", i);
    }
}
