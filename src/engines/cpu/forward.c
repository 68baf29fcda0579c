/* SPDX-License-Identifier: Apache-2.0 */
/* forward.c - a block of texts through all layers.
 *
 * Role     engine.c calls fl_cpu_run_block for every block of the plan: with a crew of one thread
 *          (throughput: no barriers, activations stay in that core's L2), or with all threads
 *          together (latency: one small request).
 * Method   Per layer, for `tokens` rows x:
 *
 *            per head           q, k, v = x W + b, [tokens, head16] each; attention -> context
 *            per rows_max rows  y = context Wo + b + x;  x = norm(y)
 *                               per chunk of the middle  m = act(x Wup + b);  y (+)= m Wdown
 *                               y += b + x;  x = norm(y)
 *
 *          q, k, v of one head and one chunk of the middle are all that exists of the wide
 *          activations. A crew splits heads, then columns (weights are read once, by whom they
 *          belong to), then rows of the norms, with a barrier after each.
 * Bytes    Cutting rows, heads or columns never changes the operations on an element, and chunks of
 *          the middle continue one chain of FMAs (kernels.h): crews and blocks of any size agree
 *          bit by bit.
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

/* Where panels lie (cpu_engine.h); forward asks for them also to have the next ones fetched. */
static const float *head_panels(const fl_engine *e, const fl_cpu_layer *layer, size_t head) {
    return layer->qkv + head * 3 * e->head16 * e->desc.hidden;
}
static const float *out_panel(const fl_engine *e, const fl_cpu_layer *layer, size_t panel) {
    return layer->out + panel * e->inner * FL_CPU_LANES;
}
static const float *up_panel(const fl_engine *e, const fl_cpu_layer *layer, size_t panel) {
    size_t col = panel * FL_CPU_LANES, chunk = col / FL_CPU_CHUNK * FL_CPU_CHUNK;
    return layer->mlp + chunk * (e->desc.hidden + e->hidden16) + (col - chunk) * e->desc.hidden;
}
static const float *down_panel(const fl_engine *e, const fl_cpu_layer *layer, size_t chunk,
                               size_t panel) {
    size_t width = fl_cpu_least(FL_CPU_CHUNK, e->mlp16 - chunk);
    return layer->mlp + chunk * (e->desc.hidden + e->hidden16) + width * e->desc.hidden +
           panel * width * FL_CPU_LANES;
}

static void head_qkv(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t head, size_t tokens) {
    const fl_engine *e      = c->engine;
    size_t           hidden = e->desc.hidden, panel = hidden * FL_CPU_LANES;
    size_t           panels = e->head16 / FL_CPU_LANES, step = fl_cpu_rows_step(e, tokens);
    bool             last = head + 1 == fl_cpu_share(c, e->desc.heads, c->member + 1);
    const float *out = out_panel(e, layer, fl_cpu_share(c, e->hidden16 / FL_CPU_LANES, c->member));
    for (size_t row = 0; row < tokens; row += step) {
        for (size_t part = 0; part < 3; part++) {
            fl_gemm g = {.a        = c->at.x + row * e->hidden16,
                         .a_stride = e->hidden16,
                         .b        = head_panels(e, layer, head) + part * panels * panel,
                         .b_stride = panel,
                         .c        = c->at.head + (part * tokens + row) * e->head16,
                         .c_stride = e->head16,
                         .bias     = layer->qkv_bias + (head * 3 + part) * e->head16,
                         .rows     = fl_cpu_least(step, tokens - row),
                         .panels   = panels,
                         .k        = hidden,
                         .next     = last && part == 2 ? out : NULL};
            e->kernels->gemm(&g);
        }
    }
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

/* y = context Wo + b + x, this member's columns. */
static void project(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t row, size_t rows) {
    const fl_engine *e      = c->engine;
    size_t           panels = e->hidden16 / FL_CPU_LANES;
    size_t           first  = fl_cpu_share(c, panels, c->member),
           last             = fl_cpu_share(c, panels, c->member + 1);
    size_t  col = first * FL_CPU_LANES, next = fl_cpu_share(c, e->mlp16 / FL_CPU_LANES, c->member);
    fl_gemm g = {.a               = c->at.context + row * e->inner,
                 .a_stride        = e->inner,
                 .b               = out_panel(e, layer, first),
                 .b_stride        = e->inner * FL_CPU_LANES,
                 .c               = c->at.y + col,
                 .c_stride        = e->hidden16,
                 .bias            = layer->out_bias + col,
                 .residual        = c->at.x + row * e->hidden16 + col,
                 .residual_stride = e->hidden16,
                 .rows            = rows,
                 .panels          = last - first,
                 .k               = e->inner,
                 .next            = up_panel(e, layer, next)};
    e->kernels->gemm(&g);
}

/* middle = act(x Wup + b) for panels [first, last) of the chunk that begins at column `chunk`. The
 * strip of a panel is activated while it is in L1. */
static void up(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t row, size_t rows,
               size_t chunk, size_t first, size_t last, float *middle, size_t stride,
               const float *next) {
    const fl_engine *e     = c->engine;
    size_t           panel = (size_t)e->desc.hidden * FL_CPU_LANES;
    for (size_t p = first; p < last; p++) {
        float  *strip = middle + p * FL_CPU_LANES;
        fl_gemm g     = {.a        = c->at.x + row * e->hidden16,
                         .a_stride = e->hidden16,
                         .b        = up_panel(e, layer, chunk / FL_CPU_LANES + p),
                         .b_stride = panel,
                         .c        = strip,
                         .c_stride = stride,
                         .bias     = layer->up_bias + chunk + p * FL_CPU_LANES,
                         .rows     = rows,
                         .panels   = 1,
                         .k        = e->desc.hidden,
                         .next     = p + 1 == last ? next : NULL};
        e->kernels->gemm(&g);
        e->kernels->activation[e->desc.activation](strip, stride, rows, FL_CPU_LANES);
    }
}

/* y (+)= middle Wdown for output panels [first, last); the last chunk adds bias and residual. */
static void down(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t row, size_t rows,
                 size_t chunk, size_t first, size_t last, const float *middle, size_t stride) {
    const fl_engine *e = c->engine;
    size_t       width = fl_cpu_least(FL_CPU_CHUNK, e->mlp16 - chunk), col = first * FL_CPU_LANES;
    bool         end  = chunk + width == e->mlp16;
    const float *next = NULL;
    if (c->members > 1 && !end) {
        next = down_panel(e, layer, chunk + width, first);
    }
    if (end && layer + 1 < e->layers + e->desc.layers) {
        next = head_panels(e, layer + 1, fl_cpu_share(c, e->desc.heads, c->member));
    }
    fl_gemm g = {.a               = middle,
                 .a_stride        = stride,
                 .b               = down_panel(e, layer, chunk, first),
                 .b_stride        = width * FL_CPU_LANES,
                 .c               = c->at.y + col,
                 .c_stride        = e->hidden16,
                 .bias            = end ? layer->down_bias + col : NULL,
                 .residual        = end ? c->at.x + row * e->hidden16 + col : NULL,
                 .residual_stride = e->hidden16,
                 .rows            = rows,
                 .panels          = last - first,
                 .k               = width,
                 .accumulate      = chunk > 0,
                 .next            = next};
    e->kernels->gemm(&g);
}

/* y = act(x Wup + b) Wdown + b + x. Alone: chunk by chunk. A crew: all of the middle, then all of
 * y. */
static void mlp(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t row, size_t rows) {
    const fl_engine *e      = c->engine;
    size_t           panels = e->hidden16 / FL_CPU_LANES;
    if (c->members == 1) {
        for (size_t chunk = 0; chunk < e->mlp16; chunk += FL_CPU_CHUNK) {
            size_t width = fl_cpu_least(FL_CPU_CHUNK, e->mlp16 - chunk);
            up(c, layer, row, rows, chunk, 0, width / FL_CPU_LANES, c->at.middle, FL_CPU_CHUNK,
               NULL);
            down(c, layer, row, rows, chunk, 0, panels, c->at.middle, FL_CPU_CHUNK);
        }
        return;
    }
    size_t first  = fl_cpu_share(c, panels, c->member),
           last   = fl_cpu_share(c, panels, c->member + 1);
    size_t strips = e->mlp16 / FL_CPU_LANES, end = fl_cpu_share(c, strips, c->member + 1);
    for (size_t p = fl_cpu_share(c, strips, c->member); p < end; p++) {
        size_t chunk = p * FL_CPU_LANES / FL_CPU_CHUNK * FL_CPU_CHUNK;
        size_t place = p - chunk / FL_CPU_LANES;
        bool   turn  = p + 1 == end; /* then this member's columns of the other product */
        up(c, layer, row, rows, chunk, place, place + 1, c->at.middle + chunk, e->mlp16,
           turn ? down_panel(e, layer, 0, first) : up_panel(e, layer, p + 1));
    }
    fl_cpu_wait(c);
    for (size_t chunk = 0; chunk < e->mlp16; chunk += FL_CPU_CHUNK) {
        down(c, layer, row, rows, chunk, first, last, c->at.middle + chunk, e->mlp16);
    }
}

static void run_layer(const fl_cpu_crew *c, const fl_cpu_layer *layer) {
    const fl_engine *e      = c->engine;
    size_t           tokens = c->block->tokens, step = fl_cpu_rows_step(e, tokens);
    size_t           last = fl_cpu_share(c, e->desc.heads, c->member + 1);
    for (size_t head = fl_cpu_share(c, e->desc.heads, c->member); head < last; head++) {
        head_qkv(c, layer, head, tokens);
        fl_cpu_attend(c, head, tokens);
    }
    fl_cpu_wait(c);
    for (size_t row = 0; row < tokens; row += step) {
        size_t rows = fl_cpu_least(step, tokens - row);
        project(c, layer, row, rows);
        fl_cpu_wait(c);
        fl_cpu_norm_rows(c, row, rows, layer->norm1_w, layer->norm1_b);
        fl_cpu_wait(c);
        mlp(c, layer, row, rows);
        fl_cpu_wait(c);
        fl_cpu_norm_rows(c, row, rows, layer->norm2_w, layer->norm2_b);
        fl_cpu_wait(c);
    }
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
        c.at.middle                  = shared->middle;
        c.at.x_narrow                = shared->x_narrow;
        c.at.context_narrow          = shared->context_narrow;
        c.at.middle_narrow           = shared->middle_narrow;
    }
    const uint64_t begin = fl_trace_begin(engine->trace);
    name_thread(engine, thread);
    embed(&c);
    fl_cpu_wait(&c);
    if (engine->format != FL_CPU_FP32) {
        fl_cpu_layers_narrow(&c);
    }
    for (uint32_t i = 0; engine->format == FL_CPU_FP32 && i < engine->desc.layers; i++) {
        const uint64_t layer = fl_trace_begin(engine->trace);
        run_layer(&c, &engine->layers[i]);
        fl_trace_end(engine->trace, "layer", layer, "number", i);
    }
    pool_texts(&c);
    fl_trace_end(engine->trace, "block", begin, "tokens", block->tokens);
    fl_cpu_wait(&c); /* the next block overwrites x */
}
