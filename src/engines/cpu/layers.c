/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c - a block of texts through all layers, in every precision.
 *
 * Role     forward.c calls it between the embedding and the pooling of a block.
 * Method   Per layer, for `tokens` rows x:
 *
 *            per head           q, k, v = x W + b, [tokens, head16] each; attention -> context
 *            per rows_max rows  y = context Wo + b + x;  x = norm(y)
 *                               per chunks of the middle  m = act(x Wup + b);  y (+)= m Wdown
 *                               y += b + x;  x = norm(y)
 *
 *          q, k, v of one head and some chunks of the middle are all that exists of the wide
 *          activations: one chunk for a thread alone, for a crew as many as its members have room for,
 *          since a barrier stands between the two products.
 *          A crew splits heads; then rows, each member as if it were alone, when there are enough of
 *          them to be worth all weights (fl_cpu_by_rows). Fewer rows are split by columns (weights are
 *          read once, by whom they belong to), and by rows for the norms, with a barrier after each.
 * Narrow   In front of every product its rows become narrow, each with a scale (int8: and a zero) of
 *          its own: x once after every norm, the attention's output, and each chunk of the middle by
 *          itself, so that one large value spoils 384 neighbours and not thousands. int8 only:
 *          channels of x that are large in every text were tamed when opening (calibrate.c): x is
 *          multiplied by a gain per channel, the weights hold the inverse. Sums, norms, attention and
 *          what is added to x stay float32. Where products take float32 rows (fp32, and bf16 on most
 *          machines), nothing is made narrow on the way.
 * Bytes    Cutting rows, heads or columns never changes the operations on an element, a row's scale
 *          depends on that row alone, and chunks of the middle continue one chain of FMAs (kernels.h):
 *          crews and blocks of any size agree bit by bit.
 * Memory   Only what engine.c reserved. Threads: a crew of more than one shares the first one's scratch.
 * Proof    tests/unit/test_engine*.c, tests/golden/test_precision.py. */
#include "engines/cpu/crew.h"

/* Rows that a product reads: narrow ones, or where it takes float32, those they would be made of. */
typedef struct operand {
    fl_cpu_rows  narrow;
    const float *floats;
    size_t       width; /* numbers from row to row */
} operand;

/* One product of any format: c (+)= rows b (+ bias) (+ residual); see fl_gemm. */
typedef struct product {
    operand        a;
    const uint8_t *b; /* panels of fl_cpu_panel(k) bytes */
    float         *c;
    size_t         c_stride;
    const float   *bias, *residual;
    size_t         residual_stride;
    size_t         rows, panels, k;
    bool           accumulate;
} product;

static const fl_cpu_narrow *format_of(const fl_engine *e) {
    return &e->kernels->narrow[e->format];
}

/* Bytes of a row of `width` numbers as products take it. */
static size_t bytes_of(const fl_engine *e, size_t width) {
    return width * fl_cpu_unit(e);
}

static void multiply_floats(const fl_engine *e, const product *p) {
    fl_gemm g = {.a               = p->a.floats,
                 .a_stride        = p->a.width,
                 .b               = (const float *)(const void *)p->b,
                 .b_stride        = p->k * FL_CPU_LANES,
                 .c               = p->c,
                 .c_stride        = p->c_stride,
                 .bias            = p->bias,
                 .residual        = p->residual,
                 .residual_stride = p->residual_stride,
                 .rows            = p->rows,
                 .panels          = p->panels,
                 .k               = p->k,
                 .accumulate      = p->accumulate};
    e->kernels->gemm(&g);
}

static void multiply(const fl_engine *e, const product *p) {
    if (e->format == FL_CPU_FP32) {
        multiply_floats(e, p);
        return;
    }
    fl_gemm_narrow g = {.a        = p->a.narrow.q ? (const void *)p->a.narrow.q : p->a.floats,
                        .a_stride = bytes_of(e, p->a.width),
                        .a_scale  = p->a.narrow.scale,
                        .a_zero   = p->a.narrow.zero,
                        .b        = p->b,
                        .b_stride = fl_cpu_panel(e, p->k),
                        .c        = p->c,
                        .c_stride = p->c_stride,
                        .bias     = p->bias,
                        .residual = p->residual,
                        .residual_stride = p->residual_stride,
                        .rows            = p->rows,
                        .panels          = p->panels,
                        .k               = p->k,
                        .accumulate      = p->accumulate,
                        .group           = format_of(e)->group};
    format_of(e)->gemm(&g);
}

/* ---- Rows made narrow ------------------------------------------------------------------------ */

/* Row `row` and on of a matrix. */
static operand below(const fl_engine *e, const operand *from, size_t row) {
    const fl_cpu_rows *n      = &from->narrow;
    fl_cpu_rows        narrow = {.q     = n->q ? n->q + row * bytes_of(e, from->width) : NULL,
                                 .scale = n->scale ? n->scale + row : NULL,
                                 .zero  = n->zero ? n->zero + row : NULL};
    return (operand){narrow, from->floats + row * from->width, from->width};
}

/* This member's share of `rows` rows of `at` become narrow. */
static void narrow_rows(const fl_cpu_crew *c, const operand *at, size_t rows, size_t n,
                        const float *gain) {
    size_t  first = fl_cpu_share(c, rows, c->member);
    operand own   = below(c->engine, at, first);
    if (own.narrow.q == NULL) {
        return;
    }
    fl_quantize z = {.x        = own.floats,
                     .x_stride = own.width,
                     .gain     = gain,
                     .q        = own.narrow.q,
                     .q_stride = bytes_of(c->engine, own.width),
                     .scale    = own.narrow.scale,
                     .zero     = own.narrow.zero,
                     .rows     = fl_cpu_share(c, rows, c->member + 1) - first,
                     .n        = n};
    format_of(c->engine)->quantize(&z);
}

static operand rows_of_x(const fl_cpu_crew *c, size_t row) {
    operand x = {c->at.x_narrow, c->at.x, c->engine->hidden16};
    return below(c->engine, &x, row);
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

/* Rows [row, row + rows) of x for the product that reads them next. */
static void narrow_x(const fl_cpu_crew *c, size_t row, size_t rows, size_t layer, size_t place) {
    const fl_engine    *e  = c->engine;
    const fl_cpu_layer *at = &e->layers[layer];
    operand             x  = rows_of_x(c, row);
    if (e->watch) {
        watch(e, x.floats, rows, layer, place);
    }
    narrow_rows(c, &x, rows, e->hidden16, place == 0 ? at->qkv_gain : at->up_gain);
}

/* ---- The layer ------------------------------------------------------------------------------- */

static void head_qkv(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t head, size_t tokens) {
    const fl_engine *e      = c->engine;
    size_t           panels = e->head16 / FL_CPU_LANES, panel = fl_cpu_panel(e, e->hidden16);
    size_t           step = fl_cpu_rows_step(e, tokens);
    for (size_t row = 0; row < tokens; row += step) {
        for (size_t part = 0; part < 3; part++) {
            product p = {.a        = rows_of_x(c, row),
                         .b        = layer->qkv + (head * 3 + part) * panels * panel,
                         .c        = c->at.head + (part * tokens + row) * e->head16,
                         .c_stride = e->head16,
                         .bias     = layer->qkv_bias + (head * 3 + part) * e->head16,
                         .rows     = fl_cpu_least(step, tokens - row),
                         .panels   = panels,
                         .k        = e->hidden16};
            multiply(e, &p);
        }
    }
}

/* y = context Wo + b + x, this member's columns. */
static void project(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t row, size_t rows) {
    const fl_engine *e      = c->engine;
    size_t           panels = e->hidden16 / FL_CPU_LANES;
    size_t           first = fl_cpu_share(c, panels, c->member), col = first * FL_CPU_LANES;
    operand          context = {c->at.context_narrow, c->at.context + row * e->inner, e->inner};
    if (context.narrow.q) {
        narrow_rows(c, &context, rows, e->inner, NULL);
        fl_cpu_wait(c);
    }
    product p = {.a               = context,
                 .b               = layer->out + first * fl_cpu_panel(e, e->inner),
                 .c               = c->at.y + col,
                 .c_stride        = e->hidden16,
                 .bias            = layer->out_bias + col,
                 .residual        = c->at.x + row * e->hidden16 + col,
                 .residual_stride = e->hidden16,
                 .rows            = rows,
                 .panels          = fl_cpu_share(c, panels, c->member + 1) - first,
                 .k               = e->inner};
    multiply(e, &p);
}

/* Some chunks of the MLP's middle, for `rows` rows of x from `row` on. */
typedef struct middle {
    const fl_cpu_layer *layer;
    size_t              row, rows;
    size_t              first, count; /* chunks */
} middle;

static size_t width_of(const fl_engine *e, size_t chunk) {
    return fl_cpu_least(FL_CPU_CHUNK, e->mlp16 - chunk * FL_CPU_CHUNK);
}

/* Where a chunk's panels begin: only the last chunk may be short. */
static const uint8_t *chunk_panels(const fl_engine *e, const fl_cpu_layer *layer, size_t chunk) {
    return layer->mlp + chunk * fl_cpu_chunk(e, FL_CPU_CHUNK);
}

/* Who keeps a chunk's rows, and from which row on: a member has room for rows_max rows. */
static const fl_cpu_scratch *holder(const fl_cpu_crew *c, const middle *m, size_t chunk,
                                    size_t *row) {
    size_t fit = c->engine->rows_max / m->rows, place = chunk - m->first;
    *row = place % fit * m->rows;
    return c->members == 1 ? &c->at : &c->engine->scratch[place / fit];
}

static operand rows_of_chunk(const fl_cpu_crew *c, const middle *m, size_t chunk) {
    size_t                row;
    const fl_cpu_scratch *at  = holder(c, m, chunk, &row);
    operand               all = {at->middle_narrow, at->middle, FL_CPU_CHUNK};
    return below(c->engine, &all, row);
}

/* m = act(x Wup + b), this member's panels; the strip of a panel is activated while it is in L1. */
static void up(const fl_cpu_crew *c, const middle *m) {
    const fl_engine *e   = c->engine;
    size_t           per = FL_CPU_CHUNK / FL_CPU_LANES, last = m->first + m->count - 1;
    size_t           panels = (m->count - 1) * per + width_of(e, last) / FL_CPU_LANES;
    size_t           end    = fl_cpu_share(c, panels, c->member + 1);
    for (size_t i = fl_cpu_share(c, panels, c->member); i < end; i++) {
        size_t  chunk = m->first + i / per, panel = i % per, col = panel * FL_CPU_LANES, at;
        size_t  before = panel * fl_cpu_panel(e, e->hidden16);
        float  *strip  = holder(c, m, chunk, &at)->middle + at * FL_CPU_CHUNK + col;
        product p      = {.a        = rows_of_x(c, m->row),
                          .b        = chunk_panels(e, m->layer, chunk) + before,
                          .c        = strip,
                          .c_stride = FL_CPU_CHUNK,
                          .bias     = m->layer->up_bias + chunk * FL_CPU_CHUNK + col,
                          .rows     = m->rows,
                          .panels   = 1,
                          .k        = e->hidden16};
        multiply(e, &p);
        e->kernels->activation[e->desc.activation](strip, FL_CPU_CHUNK, m->rows, FL_CPU_LANES);
    }
}

/* y (+)= m Wdown, this member's columns; the last chunk adds bias and residual. */
static void down(const fl_cpu_crew *c, const middle *m, size_t chunk) {
    const fl_engine *e      = c->engine;
    size_t           panels = e->hidden16 / FL_CPU_LANES, width = width_of(e, chunk);
    size_t           first = fl_cpu_share(c, panels, c->member), col = first * FL_CPU_LANES;
    bool             end = chunk + 1 == e->chunks;
    const uint8_t   *b =
        chunk_panels(e, m->layer, chunk) + width / FL_CPU_LANES * fl_cpu_panel(e, e->hidden16);
    product p = {.a               = rows_of_chunk(c, m, chunk),
                 .b               = b + first * fl_cpu_panel(e, width),
                 .c               = c->at.y + col,
                 .c_stride        = e->hidden16,
                 .bias            = end ? m->layer->down_bias + col : NULL,
                 .residual        = end ? c->at.x + m->row * e->hidden16 + col : NULL,
                 .residual_stride = e->hidden16,
                 .rows            = m->rows,
                 .panels          = fl_cpu_share(c, panels, c->member + 1) - first,
                 .k               = width,
                 .accumulate      = chunk > 0};
    multiply(e, &p);
}

/* y = act(x Wup + b) Wdown + b + x */
static void mlp(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t row, size_t rows) {
    const fl_engine *e   = c->engine;
    size_t           fit = c->members == 1 ? 1 : c->members * (e->rows_max / rows);
    for (size_t first = 0; first < e->chunks; first += fit) {
        middle m   = {layer, row, rows, first, fl_cpu_least(fit, e->chunks - first)};
        size_t end = first + m.count;
        up(c, &m);
        fl_cpu_wait(c);
        for (size_t chunk = first; c->at.middle_narrow.q && chunk < end; chunk++) {
            operand at = rows_of_chunk(c, &m, chunk);
            narrow_rows(c, &at, rows, width_of(e, chunk), NULL);
        }
        if (c->at.middle_narrow.q) {
            fl_cpu_wait(c);
        }
        for (size_t chunk = first; chunk < end; chunk++) {
            down(c, &m, chunk);
        }
        fl_cpu_wait(c); /* the next chunks take the room of these */
    }
}

/* Attention's output, the MLP and the norms of rows [first, last). */
static void rest_of_layer(const fl_cpu_crew *c, size_t index, size_t first, size_t last) {
    const fl_engine    *e     = c->engine;
    const fl_cpu_layer *layer = &e->layers[index];
    size_t              step  = fl_cpu_rows_step(e, last - first);
    for (size_t row = first; row < last; row += step) {
        size_t rows = fl_cpu_least(step, last - row);
        project(c, layer, row, rows);
        fl_cpu_wait(c);
        fl_cpu_norm_rows(c, row, rows, layer->norm1_w, layer->norm1_b);
        narrow_x(c, row, rows, index, 1);
        fl_cpu_wait(c);
        mlp(c, layer, row, rows);
        fl_cpu_norm_rows(c, row, rows, layer->norm2_w, layer->norm2_b);
        if (index + 1 < e->desc.layers) {
            narrow_x(c, row, rows, index + 1, 0);
        }
        fl_cpu_wait(c);
    }
}

bool fl_cpu_by_rows(const fl_engine *e, size_t tokens, unsigned members) {
    size_t least = e->format == FL_CPU_FP32 ? 12 : 6;
    return members > 1 && tokens >= least * members;
}

/* A member of a crew as a thread alone, which keeps what it writes for rows of its own. */
static fl_cpu_crew apart(const fl_cpu_crew *c) {
    const fl_cpu_scratch *at  = &c->engine->scratch[c->member];
    fl_cpu_crew           own = *c;
    own.at.y                  = at->y;
    own.at.context_narrow     = at->context_narrow;
    own.member                = 0;
    own.members               = 1;
    return own;
}

static void run_layer(const fl_cpu_crew *c, size_t index) {
    const fl_engine *e      = c->engine;
    size_t           tokens = c->block->tokens;
    size_t           last   = fl_cpu_share(c, e->desc.heads, c->member + 1);
    for (size_t head = fl_cpu_share(c, e->desc.heads, c->member); head < last; head++) {
        head_qkv(c, &e->layers[index], head, tokens);
        fl_cpu_attend(c, head, tokens);
    }
    fl_cpu_wait(c);
    if (!fl_cpu_by_rows(e, tokens, c->members)) {
        rest_of_layer(c, index, 0, tokens);
        return;
    }
    fl_cpu_crew own = apart(c);
    rest_of_layer(&own, index, fl_cpu_share(c, tokens, c->member),
                  fl_cpu_share(c, tokens, c->member + 1));
    fl_cpu_wait(c);
}

void fl_cpu_layers(const fl_cpu_crew *c) {
    narrow_x(c, 0, c->block->tokens, 0, 0);
    fl_cpu_wait(c);
    for (uint32_t i = 0; i < c->engine->desc.layers; i++) {
        const uint64_t begin = fl_trace_begin(c->engine->trace);
        run_layer(c, i);
        fl_trace_end(c->engine->trace, "layer", begin, "number", i);
    }
}
