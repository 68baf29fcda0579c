/* SPDX-License-Identifier: Apache-2.0 */
/* forward_narrow.c - the layers with narrow products: int8, int16 or bf16 are multiplied, all
 * else is float32.
 *
 * Role     forward.c calls it between the embedding and the pooling of a block.
 * Method   The same walk as forward.c (heads, then steps of rows, then chunks of the MLP's middle).
 *          In front of every product its rows become narrow, each with a scale (int8: and a zero) of
 *          its own: x once after every norm, the attention's output, and each chunk of the middle by
 *          itself, so that one large value spoils 384 neighbours and not thousands. int8 only:
 *          channels of x that are large in every text were tamed when opening (calibrate.c): x is
 *          multiplied by a gain per channel, the weights hold the inverse. Sums, norms, attention and
 *          what is added to x stay float32. Where bf16's
 *          products take float32 rows, nothing is made narrow on the way.
 * Bytes    A row's scale depends on that row alone and chunks are cut where they are cut for
 *          everybody: crews and blocks of any size agree bit by bit, as in float32.
 * Memory   Only what engine.c reserved. Threads: as forward.c, with two more barriers a layer.
 * Proof    tests/unit/test_engine_bytes.c, tests/golden/test_precision.py. */
#include "engines/cpu/crew.h"

static const fl_cpu_narrow *format_of(const fl_engine *e) {
    return &e->kernels->narrow[e->format];
}

/* Bytes of a row of `width` numbers as products take it. */
static size_t bytes_of(const fl_engine *e, size_t width) {
    return width * fl_cpu_unit(e);
}

/* Row `row` and on of a matrix of `width` columns. */
static fl_cpu_rows below(const fl_engine *e, const fl_cpu_rows *from, size_t row, size_t width) {
    return (fl_cpu_rows){.q     = from->q ? from->q + row * bytes_of(e, width) : NULL,
                         .scale = from->scale ? from->scale + row : NULL,
                         .zero  = from->zero ? from->zero + row : NULL};
}

/* What a product reads: narrow rows, or where it takes float32 rows, those they would be made of. */
static const void *operand(const fl_cpu_rows *narrow, const float *floats) {
    return narrow->q ? (const void *)narrow->q : floats;
}

static void narrow(const fl_engine *e, const float *x, size_t x_stride, const float *gain,
                   fl_cpu_rows out, size_t width, size_t rows, size_t n) {
    fl_quantize z = {.x        = x,
                     .x_stride = x_stride,
                     .gain     = gain,
                     .q        = out.q,
                     .q_stride = bytes_of(e, width),
                     .scale    = out.scale,
                     .zero     = out.zero,
                     .rows     = rows,
                     .n        = n};
    if (z.q) {
        format_of(e)->quantize(&z);
    }
}

/* Squares of x for calibrate.c; place 0 is in front of a layer's attention, 1 of its MLP. */
static void watch(const fl_engine *e, const float *x, size_t rows, size_t layer, size_t place) {
    double *sums = e->watch + (layer * 2 + place) * e->hidden16;
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < e->desc.hidden; i++) {
            double value = (double)x[r * e->hidden16 + i];
            sums[i] += value * value;
        }
    }
}

/* Rows [row, row + rows) of x, this member's share, for the product that `gain` belongs to. */
static void narrow_x(const fl_cpu_crew *c, size_t row, size_t rows, size_t layer, size_t place) {
    const fl_engine    *e     = c->engine;
    const fl_cpu_layer *at    = &e->layers[layer];
    size_t              first = fl_cpu_share(c, rows, c->member);
    size_t              count = fl_cpu_share(c, rows, c->member + 1) - first;
    const float        *x     = c->at.x + (row + first) * e->hidden16;
    if (e->watch) {
        watch(e, x, count, layer, place);
    }
    narrow(e, x, e->hidden16, place == 0 ? at->qkv_gain : at->up_gain,
           below(e, &c->at.x_narrow, row + first, e->hidden16), e->hidden16, count, e->hidden16);
}

/* ---- Where panels lie (pack.c) --------------------------------------------------------------- */

static const uint8_t *head_panels(const fl_engine *e, const fl_cpu_layer *layer, size_t head) {
    return layer->qkv_narrow +
           head * 3 * (e->head16 / FL_CPU_LANES) * fl_cpu_narrow_panel(e->format, e->hidden16);
}
static const uint8_t *out_panel(const fl_engine *e, const fl_cpu_layer *layer, size_t panel) {
    return layer->out_narrow + panel * fl_cpu_narrow_panel(e->format, e->inner);
}
static size_t width_of(const fl_engine *e, size_t chunk) {
    return fl_cpu_least(FL_CPU_CHUNK, e->mlp16 - chunk * FL_CPU_CHUNK);
}
static const uint8_t *up_panel(const fl_engine *e, const fl_cpu_layer *layer, size_t chunk,
                               size_t panel) {
    size_t before =
        chunk * fl_cpu_narrow_chunk(e, FL_CPU_CHUNK); /* only the last one may be short */
    return layer->mlp_narrow + before + panel * fl_cpu_narrow_panel(e->format, e->hidden16);
}
static const uint8_t *down_panel(const fl_engine *e, const fl_cpu_layer *layer, size_t chunk,
                                 size_t panel) {
    size_t width = width_of(e, chunk);
    return up_panel(e, layer, chunk, width / FL_CPU_LANES) +
           panel * fl_cpu_narrow_panel(e->format, width);
}

/* ---- The layer ------------------------------------------------------------------------------- */

static void head_qkv(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t head, size_t tokens) {
    const fl_engine *e = c->engine;
    size_t panels = e->head16 / FL_CPU_LANES, panel = fl_cpu_narrow_panel(e->format, e->hidden16);
    size_t step = fl_cpu_rows_step(e, tokens);
    bool   last = head + 1 == fl_cpu_share(c, e->desc.heads, c->member + 1);
    size_t own  = fl_cpu_share(c, e->hidden16 / FL_CPU_LANES, c->member);
    for (size_t row = 0; row < tokens; row += step) {
        for (size_t part = 0; part < 3; part++) {
            fl_cpu_rows    a = below(e, &c->at.x_narrow, row, e->hidden16);
            fl_gemm_narrow g = {.a        = operand(&a, c->at.x + row * e->hidden16),
                                .a_stride = bytes_of(e, e->hidden16),
                                .a_scale  = a.scale,
                                .a_zero   = a.zero,
                                .b        = head_panels(e, layer, head) + part * panels * panel,
                                .b_stride = panel,
                                .c        = c->at.head + (part * tokens + row) * e->head16,
                                .c_stride = e->head16,
                                .bias     = layer->qkv_bias + (head * 3 + part) * e->head16,
                                .rows     = fl_cpu_least(step, tokens - row),
                                .panels   = panels,
                                .k        = e->hidden16,
                                .group    = format_of(e)->group,
                                .next     = last && part == 2 ? out_panel(e, layer, own) : NULL};
            format_of(e)->gemm(&g);
        }
    }
}

/* y = context Wo + b + x, this member's columns. */
static void project(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t row, size_t rows) {
    const fl_engine *e      = c->engine;
    size_t           panels = e->hidden16 / FL_CPU_LANES;
    unsigned         own    = c->member;
    size_t           first  = fl_cpu_share(c, rows, own);
    size_t           count  = fl_cpu_share(c, rows, c->member + 1) - first;
    narrow(e, c->at.context + (row + first) * e->inner, e->inner, NULL,
           below(e, &c->at.context_narrow, first, e->inner), e->inner, count, e->inner);
    fl_cpu_wait(c);
    first             = fl_cpu_share(c, panels, own);
    size_t         to = fl_cpu_share(c, panels, own + 1), col = first * FL_CPU_LANES;
    fl_gemm_narrow g = {.a        = operand(&c->at.context_narrow, c->at.context + row * e->inner),
                        .a_stride = bytes_of(e, e->inner),
                        .a_scale  = c->at.context_narrow.scale,
                        .a_zero   = c->at.context_narrow.zero,
                        .b        = out_panel(e, layer, first),
                        .b_stride = fl_cpu_narrow_panel(e->format, e->inner),
                        .c        = c->at.y + col,
                        .c_stride = e->hidden16,
                        .bias     = layer->out_bias + col,
                        .residual = c->at.x + row * e->hidden16 + col,
                        .residual_stride = e->hidden16,
                        .rows            = rows,
                        .panels          = to - first,
                        .k               = e->inner,
                        .group           = format_of(e)->group,
                        .next            = up_panel(e, layer, 0, 0)};
    format_of(e)->gemm(&g);
}

/* middle = act(x Wup + b) for panel `p` of a chunk; the strip is activated while it is in L1. */
static void up(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t row, size_t rows,
               size_t chunk, size_t p, float *middle, size_t stride) {
    const fl_engine *e     = c->engine;
    float           *strip = middle + p * FL_CPU_LANES;
    fl_cpu_rows      a     = below(e, &c->at.x_narrow, row, e->hidden16);
    fl_gemm_narrow   g     = {.a        = operand(&a, c->at.x + row * e->hidden16),
                              .a_stride = bytes_of(e, e->hidden16),
                              .a_scale  = a.scale,
                              .a_zero   = a.zero,
                              .b        = up_panel(e, layer, chunk, p),
                              .b_stride = fl_cpu_narrow_panel(e->format, e->hidden16),
                              .c        = strip,
                              .c_stride = stride,
                              .bias     = layer->up_bias + chunk * FL_CPU_CHUNK + p * FL_CPU_LANES,
                              .rows     = rows,
                              .panels   = 1,
                              .k        = e->hidden16,
                              .group    = format_of(e)->group};
    format_of(e)->gemm(&g);
    e->kernels->activation[e->desc.activation](strip, stride, rows, FL_CPU_LANES);
}

/* Columns from row to row of a chunk of the middle: narrow ones lie in a matrix of their own, float32
 * ones where a crew wrote them. */
static size_t middle_width(const fl_cpu_crew *c) {
    return c->at.middle_narrow.q == NULL && c->members > 1 ? c->engine->mlp16 : FL_CPU_CHUNK;
}

static fl_cpu_rows chunk_rows(const fl_cpu_crew *c, size_t chunk) {
    return below(c->engine, &c->at.middle_narrow, chunk * c->engine->rows_max, FL_CPU_CHUNK);
}

/* y (+)= middle Wdown for output panels [first, last); the last chunk adds bias and residual. */
static void down(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t row, size_t rows,
                 size_t chunk, size_t first, size_t last, const float *middle) {
    const fl_engine *e     = c->engine;
    size_t           width = width_of(e, chunk), col = first * FL_CPU_LANES;
    fl_cpu_rows      a   = chunk_rows(c, c->members > 1 ? chunk : 0);
    bool             end = chunk + 1 == e->chunks, more = layer + 1 < e->layers + e->desc.layers;
    const uint8_t   *next = NULL;
    if (end && more) {
        next = head_panels(e, layer + 1, fl_cpu_share(c, e->desc.heads, c->member));
    } else if (c->members > 1 && !end) {
        next = down_panel(e, layer, chunk + 1, first);
    }
    fl_gemm_narrow g = {.a               = operand(&a, middle),
                        .a_stride        = bytes_of(e, middle_width(c)),
                        .a_scale         = a.scale,
                        .a_zero          = a.zero,
                        .b               = down_panel(e, layer, chunk, first),
                        .b_stride        = fl_cpu_narrow_panel(e->format, width),
                        .c               = c->at.y + col,
                        .c_stride        = e->hidden16,
                        .bias            = end ? layer->down_bias + col : NULL,
                        .residual        = end ? c->at.x + row * e->hidden16 + col : NULL,
                        .residual_stride = e->hidden16,
                        .rows            = rows,
                        .panels          = last - first,
                        .k               = width,
                        .accumulate      = chunk > 0,
                        .group           = format_of(e)->group,
                        .next            = next};
    format_of(e)->gemm(&g);
}

static void mlp_alone(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t row, size_t rows) {
    const fl_engine *e = c->engine;
    for (size_t chunk = 0; chunk < e->chunks; chunk++) {
        size_t width = width_of(e, chunk);
        for (size_t p = 0; p < width / FL_CPU_LANES; p++) {
            up(c, layer, row, rows, chunk, p, c->at.middle, FL_CPU_CHUNK);
        }
        fl_cpu_rows a = chunk_rows(c, 0);
        narrow(e, c->at.middle, FL_CPU_CHUNK, NULL, a, FL_CPU_CHUNK, rows, width);
        down(c, layer, row, rows, chunk, 0, e->hidden16 / FL_CPU_LANES, c->at.middle);
    }
}

/* All of the middle, the same narrow, all of y: each shared out, with a barrier after it. */
static void mlp_crew(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t row, size_t rows) {
    const fl_engine *e      = c->engine;
    size_t           strips = e->mlp16 / FL_CPU_LANES, per = FL_CPU_CHUNK / FL_CPU_LANES;
    size_t           end = fl_cpu_share(c, strips, c->member + 1);
    for (size_t p = fl_cpu_share(c, strips, c->member); p < end; p++) {
        size_t chunk = p / per;
        up(c, layer, row, rows, chunk, p % per, c->at.middle + chunk * FL_CPU_CHUNK, e->mlp16);
    }
    fl_cpu_wait(c);
    size_t first = fl_cpu_share(c, rows, c->member);
    size_t count = fl_cpu_share(c, rows, c->member + 1) - first;
    for (size_t chunk = 0; chunk < e->chunks; chunk++) {
        fl_cpu_rows a = chunk_rows(c, chunk);
        narrow(e, c->at.middle + first * e->mlp16 + chunk * FL_CPU_CHUNK, e->mlp16, NULL,
               below(e, &a, first, FL_CPU_CHUNK), FL_CPU_CHUNK, count, width_of(e, chunk));
    }
    fl_cpu_wait(c);
    size_t   panels = e->hidden16 / FL_CPU_LANES;
    unsigned own    = c->member;
    for (size_t chunk = 0; chunk < e->chunks; chunk++) {
        down(c, layer, row, rows, chunk, fl_cpu_share(c, panels, own),
             fl_cpu_share(c, panels, own + 1), c->at.middle + chunk * FL_CPU_CHUNK);
    }
}

static void run_layer(const fl_cpu_crew *c, size_t index) {
    const fl_engine    *e      = c->engine;
    const fl_cpu_layer *layer  = &e->layers[index];
    size_t              tokens = c->block->tokens, step = fl_cpu_rows_step(e, tokens);
    size_t              last = fl_cpu_share(c, e->desc.heads, c->member + 1);
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
        narrow_x(c, row, rows, index, 1);
        fl_cpu_wait(c);
        c->members == 1 ? mlp_alone(c, layer, row, rows) : mlp_crew(c, layer, row, rows);
        fl_cpu_wait(c);
        fl_cpu_norm_rows(c, row, rows, layer->norm2_w, layer->norm2_b);
        if (index + 1 < e->desc.layers) {
            narrow_x(c, row, rows, index + 1, 0);
        }
        fl_cpu_wait(c);
    }
}

void fl_cpu_layers_narrow(const fl_cpu_crew *c) {
    narrow_x(c, 0, c->block->tokens, 0, 0);
    fl_cpu_wait(c);
    for (size_t i = 0; i < c->engine->desc.layers; i++) {
        const uint64_t begin = fl_trace_begin(c->engine->trace);
        run_layer(c, i);
        fl_trace_end(c->engine->trace, "layer", begin, "number", (int64_t)i);
    }
}
