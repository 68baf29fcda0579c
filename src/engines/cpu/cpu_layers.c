/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_layers.c - a block of texts through all layers, in every precision.
 *
 * Role     cpu_forward.c calls it between the embedding and the pooling of a block.
 * Method   Per layer, for `tokens` rows; z is x itself, or in pre-norm models norm(x):
 *
 *            per group of heads  k, v, and q of some heads = z W + b, [tokens, head16] each; normed,
 *                                rotated; attention -> context
 *            where it convolves  q is the gate of a head's channels and k v what is summed over neighbours, instead of
 *                                attention
 *            norms over all heads: q and k of all of them first, side by side, and normed as one row
 *            per rows_max rows   y = context Wo + b + x;  x = norm(y)       pre-norm: x = y, z = norm(y)
 *                                per chunks of the middle  m = act(z Wup + b);  y (+)= m Wdown
 *                                gated: m = act(z Wgate + b) (z Wup + b)
 *                                y += b + x;  x = norm(y)                   pre-norm likewise
 *                                experts: y = b + x; for one after the other, y += chance * MLP of
 *                                the rows that chose it
 *
 *          k, v, q of some heads and some chunks of the middle are all that exists of the wide
 *          activations: one chunk for a thread alone, for a crew as many as its members have room for,
 *          since a barrier stands between the two products.
 *          A crew splits heads; then rows, each member as if it were alone, when there are enough of
 *          them to be worth all weights (fl_cpu_by_rows). Fewer rows are split by columns (weights are
 *          read once, by whom they belong to), and by rows for the norms, with a barrier after each;
 *          experts are always split by rows, since each reads but a few of their weights.
 * Few      Where pooling reads one row of a text, the last layer computes keys and values of all tokens,
 *          and everything else of that row alone.
 * Narrow   In front of every product its rows become narrow, each with a scale (int8: and a zero) of
 *          its own: x once after every norm, the attention's output, and each chunk of the middle by
 *          itself, so that one large value spoils 384 neighbours and not thousands. int8 only:
 *          channels of x that are large in every text were tamed when opening (cpu_calibrate.c): x is
 *          multiplied by a gain per channel, the weights hold the inverse. Sums, norms, attention and
 *          what is added to x stay float32. Where products take float32 rows (fp32, and bf16 on most
 *          machines), nothing is made narrow on the way.
 * Experts  float32 alone: where numbers are rounded, a token may go to other experts, and its vector is
 *          another one. A row adds up its experts by their number, whichever rows go with it.
 * Bytes    Cutting rows, heads or columns never changes the operations on an element, a row's scale
 *          depends on that row alone, and chunks of the middle continue one chain of FMAs (kernels.h):
 *          crews and blocks of any size agree bit by bit.
 * Memory   Only what cpu_engine.c reserved. Threads: a crew of more than one shares the first one's scratch.
 * Proof    tests/unit/test_engine*.c, tests/golden/test_precision.py. */
#include <math.h>
#include <string.h>

#include "base/elementary.h"
#include "engines/cpu/crew.h"

/* Rows that a product reads: narrow ones, or where it takes float32, those they would be made of. */
typedef struct operand {
    fl_cpu_rows  narrow;
    const float *floats;
    size_t       width; /* numbers from row to row */
} operand;

/* Bytes of a row of `width` numbers as products take it. */
static size_t bytes_of(const fl_engine *e, size_t width) {
    return width * fl_cpu_unit(e);
}

/* One product of the engine's format, or of weights in groups, which `factor` is for; what its rows and panels are like
 * is filled in here. */
static void multiply(const fl_engine *e, const operand *a, const fl_cpu_form *form, float factor,
                     fl_gemm g) {
    g.a        = a->narrow.q ? (const void *)a->narrow.q : a->floats;
    g.a_stride = bytes_of(e, a->width);
    g.a_scale  = a->narrow.scale;
    g.a_zero   = a->narrow.zero;
    g.b_stride = fl_cpu_panel(e, form, g.k);
    g.group    = e->narrow.group;
    if (form->groups.bits > 0) {
        fl_cpu_multiply_groups(e->kernels, &form->groups, factor, &g);
    } else {
        (e->format == FL_CPU_FP32 ? e->kernels->gemm : e->narrow.gemm)(&g);
    }
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
    c->engine->narrow.quantize(&z);
}

/* What products of a layer read: z, which is x where norms follow the blocks. */
static operand rows_of_z(const fl_cpu_crew *c, size_t row) {
    operand z = {c->at.x_narrow, c->engine->pre ? c->at.z : c->at.x, c->engine->hidden16};
    return below(c->engine, &z, row);
}

/* Squares of z for cpu_calibrate.c; place 0 is in front of a layer's attention, 1 of its MLP. */
static void watch(const fl_engine *e, const float *x, size_t rows, size_t layer, size_t place) {
    double *sums = e->watch + (layer * 2 + place) * e->hidden16;
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < e->desc.hidden; i++) {
            double value = (double)x[r * e->hidden16 + i];
            sums[i] += value * value;
        }
    }
}

/* Rows [row, row + rows) of z for the product that reads them next. */
static void narrow_z(const fl_cpu_crew *c, size_t row, size_t rows, size_t layer, size_t place) {
    const fl_engine    *e  = c->engine;
    const fl_cpu_layer *at = &e->layers[layer];
    operand             z  = rows_of_z(c, row);
    if (e->watch) {
        watch(e, z.floats, rows, layer, place);
    }
    narrow_rows(c, &z, rows, e->hidden16, place == 0 ? at->qkv_gain : at->up_gain);
}

/* ---- The layer ------------------------------------------------------------------------------- */

/* Some query heads of one group, with the group's keys and values. */
typedef struct heads {
    size_t kv, first, count; /* query heads first … first + count - 1 */
    size_t tokens, q_rows;   /* rows of k and v, of q */
} heads;

static float *k_of(const fl_cpu_crew *c) {
    return c->at.head;
}
static float *v_of(const fl_cpu_crew *c, const heads *h) {
    return c->at.head + h->tokens * c->engine->head16;
}
static float *q_of(const fl_cpu_crew *c, const heads *h, size_t head) {
    return c->at.head + (2 * h->tokens + head * h->q_rows) * c->engine->head16;
}

/* out = z W + b of part `part` of the group: its query heads, then k, then v; normed, where every head
 * is for itself. */
static void part_of_head(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t kv, size_t part,
                         const operand *z, size_t rows, float *out) {
    const fl_engine   *e     = c->engine;
    size_t             group = layer->group, panels = e->head16 / FL_CPU_LANES;
    size_t             at   = kv * (group + 2) + part;
    const fl_cpu_norm *norm = e->q_wide > 0   ? NULL
                              : part < group  ? &layer->q_norm
                              : part == group ? &layer->k_norm
                                              : NULL;
    multiply(
        e, z, &layer->qkv_form, part < group ? fl_cpu_query_scale(e, layer) : 1.0f,
        (fl_gemm){.b = layer->qkv + at * panels * fl_cpu_panel(e, &layer->qkv_form, e->hidden16),
                  .c = out,
                  .c_stride = e->head16,
                  .bias     = layer->qkv_bias + at * e->head16,
                  .rows     = rows,
                  .panels   = panels,
                  .k        = e->hidden16});
    if (norm && norm->weight) {
        fl_cpu_norm_as(e, e->desc.norm, norm, out, out, e->head16, rows, e->desc.head_dim);
    }
}

/* q of these heads from rows `z`, and k and v with it for the first heads of a group. */
static void project_heads(const fl_cpu_crew *c, const fl_cpu_layer *layer, const heads *h,
                          bool with_q, bool with_kv) {
    const fl_engine *e = c->engine;
    size_t step = fl_cpu_rows_step(e, h->tokens), offset = h->first - h->kv * layer->group;
    for (size_t row = 0; row < h->tokens; row += step) {
        operand z    = rows_of_z(c, row);
        size_t  rows = fl_cpu_least(step, h->tokens - row), at = row * e->head16;
        for (size_t i = 0; with_q && i < h->count; i++) {
            part_of_head(c, layer, h->kv, offset + i, &z, rows, q_of(c, h, i) + at);
        }
        if (with_kv && e->k_wide == 0) {
            part_of_head(c, layer, h->kv, layer->group, &z, rows, k_of(c) + at);
        }
        if (with_kv) {
            part_of_head(c, layer, h->kv, layer->group + 1, &z, rows, v_of(c, h) + at);
        }
    }
}

static void rotate(const fl_engine *e, const fl_cpu_rope *rope, float *x, size_t first,
                   size_t rows) {
    size_t      half = rope->dims / 2;
    fl_rotation at   = {.x      = x,
                        .stride = e->head16,
                        .cosine = rope->cosine + first * half,
                        .sine   = rope->sine + first * half,
                        .rows   = rows,
                        .dims   = rope->dims};
    e->kernels->rotate(&at);
}

/* Where a layer's keys of a group are kept, and behind them its values. */
static float *kept(const fl_engine *e, const fl_cpu_layer *layer, size_t kv) {
    size_t place = (size_t)(layer - e->layers) * e->kv_most + kv;
    return e->prompt.rows + place * 2 * FL_CPU_PROMPT * e->head16;
}

static void keep_prompt(const fl_engine *e, const fl_cpu_layer *layer, size_t kv, const float *k,
                        const float *v, size_t n) {
    float *to = kept(e, layer, kv);
    memcpy(to, k, n * e->head16 * sizeof *k);
    memcpy(to + FL_CPU_PROMPT * e->head16, v, n * e->head16 * sizeof *v);
}

/* k and v of a text of which `known` tokens are kept and n were computed, one after the other. */
static void join_prompt(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t kv, size_t known,
                        size_t n, float **k, float **v) {
    const fl_engine *e    = c->engine;
    size_t           head = known * e->head16, bytes = n * e->head16 * sizeof **k;
    const float     *from = kept(e, layer, kv);
    float           *to = c->at.joined, *behind = to + FL_CPU_PROMPT_TEXT * e->head16;
    memcpy(to, from, head * sizeof *to);
    memcpy(to + head, *k, bytes);
    memcpy(behind, from + FL_CPU_PROMPT * e->head16, head * sizeof *to);
    memcpy(behind + head, *v, bytes);
    *k = to;
    *v = behind;
}

/* One text of the block, and where these heads have its rows. */
typedef struct text {
    float *q, *out;     /* of the first head; out is context */
    float *k, *v;       /* of n tokens; place_text puts those of a kept prompt before them */
    size_t known;       /* tokens of the prompt whose keys are kept */
    size_t n;           /* tokens behind them */
    size_t keys;        /* tokens that are attended to */
    size_t first, rows; /* the queries: all n, or the one that is pooled */
} text;

/* q and k turn by their places; the keys and values of a prompt are kept, or put before these. */
static void place_text(const fl_cpu_crew *c, const fl_cpu_layer *layer, const heads *h,
                       bool fresh_k, text *t) {
    const fl_engine   *e    = c->engine;
    const fl_cpu_rope *rope = layer->rope;
    if (rope && rope->longer && t->known + t->n > rope->trained) {
        rope = rope->longer;
    }
    for (size_t i = 0; rope && i < h->count; i++) {
        rotate(e, rope, t->q + i * h->q_rows * e->head16, t->first, t->rows);
    }
    if (rope && fresh_k) { /* a second run of the group's queries finds them turned */
        rotate(e, rope, t->k, t->known, t->n);
    }
    if (e->prompt.keeping && h->first == h->kv * layer->group) {
        keep_prompt(e, layer, h->kv, t->k, t->v, t->n);
    } else if (t->known > 0) {
        join_prompt(c, layer, h->kv, t->known, t->n, &t->k, &t->v);
    }
}

/* The queries from `first` on, `rows` of them, each of which sees `before` and `after`. */
static void attend_rows(const fl_cpu_crew *c, const fl_cpu_layer *layer, const heads *h,
                        const text *t, size_t first, size_t rows, size_t before, size_t after) {
    const fl_engine *e    = c->engine;
    const float     *bias = layer->bias ? layer->bias + h->first * e->bias_stride : NULL;
    size_t           skip = first - t->first;
    fl_attention     at   = {.q          = t->q + skip * e->head16,
                             .q_stride   = e->head16,
                             .q_head     = h->q_rows * e->head16,
                             .k          = t->k,
                             .v          = t->v,
                             .kv_stride  = e->head16,
                             .out        = t->out + skip * e->inner,
                             .out_stride = e->inner,
                             .out_head   = e->head16,
                             .bias       = bias ? bias + e->max_length - 1 - first : NULL,
                             .bias_row   = -1,
                             .cap        = e->desc.score_cap,
                             .bias_head  = e->bias_stride,
                             .scratch    = c->at.attention,
                             .heads      = h->count,
                             .n          = t->keys,
                             .d          = e->head16,
                             .first      = first,
                             .rows       = rows,
                             .before     = before,
                             .after      = after};
    void (*narrow)(const fl_attention *) = e->narrow.attention;
    void (*run)(const fl_attention *)    = narrow ? narrow : e->kernels->attention;
    if (layer->pos_k) {
        fl_cpu_attend_disentangled(e, layer, h->first, &at, run, c->at.relative);
    } else {
        run(&at);
    }
}

/* What is not attended to sees all that is. */
static void attend(const fl_cpu_crew *c, const fl_cpu_layer *layer, const heads *h, bool fresh_k,
                   text *t) {
    const fl_cpu_sight *sight  = layer->sight;
    const size_t        seeing = fl_cpu_least(t->rows, t->keys);
    place_text(c, layer, h, fresh_k, t);
    attend_rows(c, layer, h, t, t->first, seeing, sight->before, sight->after);
    if (t->keys < t->known + t->n) {
        attend_rows(c, layer, h, t, t->keys, t->n - t->keys, FL_CPU_ALL, FL_CPU_ALL);
    }
}

/* What a token that nothing attends to brings: rows of zeros went into the product. */
static void blank_rows(const fl_engine *e, const fl_cpu_layer *layer, const heads *h,
                       const text *t) {
    const float *bias = layer->qkv_bias + 3 * h->first * e->head16;
    for (size_t row = t->keys; row < t->n; row++) {
        if (t->rows == t->n) {
            memcpy(t->q + row * e->head16, bias, e->head16 * sizeof *bias);
        }
        memcpy(t->k + row * e->head16, bias + e->head16, e->head16 * sizeof *bias);
        memcpy(t->v + row * e->head16, bias + 2 * e->head16, e->head16 * sizeof *bias);
    }
}

/* The convolution of one head's channels: its q is the gate, k v what is summed. */
static void convolve(const fl_cpu_crew *c, const fl_cpu_layer *layer, const heads *h, bool fresh_k,
                     text *t) {
    const fl_engine *e    = c->engine;
    const size_t     taps = e->desc.taps;
    blank_rows(e, layer, h, t);
    for (size_t i = 0; i < t->n * e->head16; i++) {
        t->k[i] *= t->v[i];
    }
    place_text(c, layer, h, fresh_k, t);
    fl_convolution at = {.x          = t->k,
                         .gate       = t->q,
                         .stride     = e->head16,
                         .out        = t->out,
                         .out_stride = e->inner,
                         .weights    = layer->conv + h->first * taps * e->head16,
                         .bias       = layer->conv_bias + h->first * e->head16,
                         .n          = t->known + t->n,
                         .first      = t->first,
                         .rows       = t->rows,
                         .taps       = taps,
                         .before     = e->desc.taps_centred ? taps / 2 : taps - 1,
                         .cols       = e->head16};
    e->kernels->convolve(&at);
}

/* These heads over every text of the block, to context. */
static void
for_each_text(const fl_cpu_crew *c, const fl_cpu_layer *layer, const heads *h, bool fresh_k,
              void (*run)(const fl_cpu_crew *, const fl_cpu_layer *, const heads *, bool, text *)) {
    const fl_engine *e   = c->engine;
    bool             few = h->q_rows < h->tokens;
    size_t           row = 0, q_row = 0;
    for (uint32_t i = c->block->first; i < c->block->last; i++) {
        size_t n = fl_cpu_length(e, i), known = fl_cpu_shared(e, i);
        text   t = {.q     = q_of(c, h, 0) + q_row * e->head16,
                    .k     = k_of(c) + row * e->head16,
                    .v     = v_of(c, h) + row * e->head16,
                    .out   = c->at.context + q_row * e->inner + h->first * e->head16,
                    .known = known,
                    .n     = n,
                    .keys  = fl_cpu_keys(e, i),
                    .first = known + (few ? fl_cpu_pooled_row(e, n, fl_cpu_skip(e, i)) : 0),
                    .rows  = few ? 1 : n};
        run(c, layer, h, fresh_k, &t);
        row += n;
        q_row += t.rows;
    }
}

/* z of the pooled rows, side by side and as products take it; y and context's narrow rows are free. */
static operand gather_pooled(const fl_cpu_crew *c, size_t texts, size_t index) {
    const fl_engine *e   = c->engine;
    operand          all = {c->at.context_narrow, c->at.y, e->hidden16};
    const float     *z   = rows_of_z(c, 0).floats;
    for (size_t i = 0, row = 0; i < texts; i++) {
        uint32_t t = c->block->first + (uint32_t)i;
        size_t   n = fl_cpu_length(e, t), at = row + fl_cpu_pooled_row(e, n, fl_cpu_skip(e, t));
        if (c->member == 0) {
            memcpy(c->at.y + i * e->hidden16, z + at * e->hidden16, e->hidden16 * sizeof *z);
        }
        row += n;
    }
    fl_cpu_wait(c);
    narrow_rows(c, &all, texts, e->hidden16, e->layers[index].qkv_gain);
    fl_cpu_wait(c);
    return all;
}

/* ---- Norms over all heads -------------------------------------------------------------------- */

/* The queries or the keys of all heads side by side. */
typedef struct side {
    float             *rows; /* [count, width] */
    size_t             count, width, heads, group;
    const operand     *z; /* their operands; NULL: those of the block's tokens */
    const fl_cpu_norm *norm;
} side;

static side queries(const fl_cpu_crew *c, const fl_cpu_layer *layer, const operand *z,
                    size_t rows) {
    const fl_engine *e = c->engine;
    return (side){c->at.wide, rows, e->q_wide, e->desc.heads, e->group, z, &layer->q_norm};
}

static side keys(const fl_cpu_crew *c, const fl_cpu_layer *layer) {
    const fl_engine *e      = c->engine;
    size_t           tokens = c->block->tokens;
    float           *place  = c->at.wide + tokens * e->q_wide;
    return (side){place, tokens, e->k_wide, e->desc.kv_heads, 1, NULL, &layer->k_norm};
}

/* This member's heads of one side, through its own room for heads. */
static void project_side(const fl_cpu_crew *c, const fl_cpu_layer *layer, const side *s) {
    const fl_engine *e = c->engine;
    size_t           d = e->desc.head_dim, last = fl_cpu_share(c, s->heads, c->member + 1);
    size_t           step = fl_cpu_rows_step(e, s->count);
    for (size_t head = fl_cpu_share(c, s->heads, c->member); head < last; head++) {
        size_t part = s->norm == &layer->k_norm ? e->group : head % e->group;
        float *own = c->at.head, *out = s->rows + head * d;
        for (size_t row = 0; row < s->count; row += step) {
            operand z = s->z ? below(e, s->z, row) : rows_of_z(c, row);
            part_of_head(c, layer, head / s->group, part, &z, fl_cpu_least(step, s->count - row),
                         own + row * e->head16);
        }
        size_t behind = head + 1 == s->heads ? s->width - s->heads * d : 0;
        for (size_t row = 0; row < s->count; row++, own += e->head16, out += s->width) {
            memcpy(out, own, d * sizeof *out);
            memset(out + d, 0, behind * sizeof *out);
        }
    }
}

static void norm_side(const fl_cpu_crew *c, const side *s) {
    size_t first = fl_cpu_share(c, s->count, c->member);
    size_t count = fl_cpu_share(c, s->count, c->member + 1) - first;
    float *rows  = s->rows + first * s->width;
    fl_cpu_norm_as(c->engine, FL_NORM_LAYER, s->norm, rows, rows, s->width, count,
                   s->heads * c->engine->desc.head_dim);
}

static void take_head(const fl_engine *e, const side *s, size_t head, float *out) {
    size_t d = e->desc.head_dim;
    for (size_t row = 0; row < s->count; row++, out += e->head16) {
        memcpy(out, s->rows + row * s->width + head * d, d * sizeof *out);
        memset(out + d, 0, (e->head16 - d) * sizeof *out);
    }
}

/* q and k of these heads from those that were normed together. */
static void take_heads(const fl_cpu_crew *c, const fl_cpu_layer *layer, const heads *h,
                       bool fresh_k) {
    side q = queries(c, layer, NULL, h->q_rows), k = keys(c, layer);
    for (size_t i = 0; i < h->count; i++) {
        take_head(c->engine, &q, h->first + i, q_of(c, h, i));
    }
    if (fresh_k) {
        take_head(c->engine, &k, h->kv, k_of(c));
    }
}

/* `pooled`: the operands of q, NULL for all tokens. */
static void norm_over_heads(const fl_cpu_crew *c, const fl_cpu_layer *layer, const operand *pooled,
                            size_t q_rows) {
    side q = queries(c, layer, pooled, q_rows), k = keys(c, layer);
    project_side(c, layer, &q);
    project_side(c, layer, &k);
    fl_cpu_wait(c);
    norm_side(c, &q);
    norm_side(c, &k);
    fl_cpu_wait(c);
}

/* ---- Attention ------------------------------------------------------------------------------- */

/* This member's heads: a run of them at a time, the group's keys and values once. */
static void attention(const fl_cpu_crew *c, size_t index, size_t q_rows) {
    const fl_engine    *e     = c->engine;
    const fl_cpu_layer *layer = &e->layers[index];
    size_t  tokens = c->block->tokens, last = fl_cpu_share(c, e->desc.heads, c->member + 1);
    bool    few    = q_rows < tokens;
    bool    wide   = e->q_wide > 0;
    operand pooled = {0};
    if (few) {
        pooled = gather_pooled(c, q_rows, index);
    }
    if (wide) {
        norm_over_heads(c, layer, few ? &pooled : NULL, q_rows);
    }
    for (size_t head = fl_cpu_share(c, e->desc.heads, c->member), kv = SIZE_MAX; head < last;) {
        size_t group = layer->group, end = fl_cpu_least(last, (head / group + 1) * group);
        heads  h     = {head / group, head, fl_cpu_least(end - head, e->q_run), tokens, q_rows};
        bool   fresh = h.kv != kv;
        project_heads(c, layer, &h, !few && !wide, fresh);
        if (wide) {
            take_heads(c, layer, &h, fresh);
        }
        for (size_t i = 0; few && !wide && i < h.count; i++) {
            part_of_head(c, layer, h.kv, head - h.kv * group + i, &pooled, q_rows, q_of(c, &h, i));
        }
        for_each_text(c, layer, &h, fresh, layer->conv ? convolve : attend);
        kv = h.kv;
        head += h.count;
    }
    fl_cpu_wait(c);
}

/* The last layer: x of the pooled rows goes to the front. */
static void keep_pooled(const fl_cpu_crew *c) {
    const fl_engine *e   = c->engine;
    float           *to  = c->at.x;
    size_t           row = 0;
    for (uint32_t t = c->block->first; c->member == 0 && t < c->block->last; t++) {
        size_t n  = fl_cpu_length(e, t);
        size_t at = row + fl_cpu_pooled_row(e, n, fl_cpu_skip(e, t));
        memmove(to, c->at.x + at * e->hidden16, e->hidden16 * sizeof *to);
        to += e->hidden16;
        row += n;
    }
    fl_cpu_wait(c);
}

/* What is added to a block's output: a norm of that output alone comes in between (Gemma). */
static const float *residual_of(const fl_cpu_crew *c, size_t row) {
    bool apart = c->engine->desc.extra_norm == FL_EXTRA_NORM_BRANCH;
    return apart ? NULL : c->at.x + row * c->engine->hidden16;
}

/* y = context Wo + b + x, this member's columns. */
static void project(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t row, size_t rows) {
    const fl_engine *e      = c->engine;
    const float     *x      = residual_of(c, row);
    size_t           panels = e->hidden16 / FL_CPU_LANES;
    size_t           first = fl_cpu_share(c, panels, c->member), col = first * FL_CPU_LANES;
    operand          context = {c->at.context_narrow, c->at.context + row * e->inner, e->inner};
    if (context.narrow.q) {
        narrow_rows(c, &context, rows, e->inner, NULL);
        fl_cpu_wait(c);
    }
    multiply(e, &context, &layer->out_form, 1.0f,
             (fl_gemm){.b        = layer->out + first * fl_cpu_panel(e, &layer->out_form, e->inner),
                       .c        = c->at.y + col,
                       .c_stride = e->hidden16,
                       .bias     = layer->out_bias + col,
                       .residual = x ? x + col : NULL,
                       .residual_stride = e->hidden16,
                       .rows            = rows,
                       .panels          = fl_cpu_share(c, panels, c->member + 1) - first,
                       .k               = e->inner});
}

/* One MLP and its rows. */
typedef struct mlp_work {
    const fl_cpu_layer *layer;
    const uint8_t      *panels; /* as in fl_cpu_layer */
    const float        *up_bias, *down_bias;
    operand             z;
    const float        *residual; /* [rows, hidden16] or NULL */
    size_t              rows;
} mlp_work;

/* Some chunks of its middle. */
typedef struct middle {
    const mlp_work *work;
    size_t          first, count;
} middle;

static size_t width_of(const fl_engine *e, size_t chunk) {
    return fl_cpu_least(FL_CPU_CHUNK, e->mlp16 - chunk * FL_CPU_CHUNK);
}

/* Where a chunk's panels begin: only the last chunk may be short. */
static const uint8_t *chunk_panels(const fl_engine *e, const mlp_work *work, size_t chunk) {
    return work->panels + chunk * fl_cpu_chunk(e, work->layer, FL_CPU_CHUNK);
}

/* Who keeps a chunk's rows, and from which row on: a member has room for rows_max rows. */
static const fl_cpu_scratch *holder(const fl_cpu_crew *c, const middle *m, size_t chunk,
                                    size_t *row) {
    size_t fit = c->engine->rows_max / m->work->rows, place = chunk - m->first;
    *row = place % fit * m->work->rows;
    return c->members == 1 ? &c->at : &c->engine->scratch[c->first + place / fit];
}

static operand rows_of_chunk(const fl_cpu_crew *c, const middle *m, size_t chunk) {
    size_t                row;
    const fl_cpu_scratch *at  = holder(c, m, chunk, &row);
    operand               all = {at->middle_narrow, at->middle, FL_CPU_CHUNK};
    return below(c->engine, &all, row);
}

/* m = act(z Wup + b), this member's panels; a strip as wide as a tile is activated while it is in L1. A
 * gated strip is two panels, one of the gate and one of up. */
static void up(const fl_cpu_crew *c, const middle *m) {
    const fl_engine *e   = c->engine;
    size_t           per = FL_CPU_CHUNK / FL_CPU_LANES, last = m->first + m->count - 1;
    size_t           panels = (m->count - 1) * per + width_of(e, last) / FL_CPU_LANES;
    size_t           end = fl_cpu_share(c, panels, c->member + 1), wide = e->gated ? 2 : 1;
    for (size_t i = fl_cpu_share(c, panels, c->member); i < end;) {
        size_t chunk = m->first + i / per, panel = i % per, col = panel * FL_CPU_LANES, at;
        size_t run =
            e->gated ? 1 : fl_cpu_least(e->kernels->panels, fl_cpu_least(end - i, per - panel));
        size_t before = fl_cpu_up(e, m->work->layer, col);
        float *strip  = holder(c, m, chunk, &at)->middle + at * FL_CPU_CHUNK + col;
        multiply(e, &m->work->z, &m->work->layer->up_form, 1.0f,
                 (fl_gemm){.b        = chunk_panels(e, m->work, chunk) + before,
                           .c        = e->gated ? c->at.pair : strip,
                           .c_stride = e->gated ? 2 * FL_CPU_LANES : FL_CPU_CHUNK,
                           .bias     = m->work->up_bias + wide * (chunk * FL_CPU_CHUNK + col),
                           .rows     = m->work->rows,
                           .panels   = wide * run,
                           .k        = e->hidden16});
        if (e->gated) {
            fl_gating gate = {.gate     = c->at.pair,
                              .up       = c->at.pair + FL_CPU_LANES,
                              .stride   = 2 * FL_CPU_LANES,
                              .y        = strip,
                              .y_stride = FL_CPU_CHUNK,
                              .rows     = m->work->rows,
                              .cols     = FL_CPU_LANES};
            e->kernels->gating[e->desc.activation](&gate);
        } else {
            e->kernels->activation[e->desc.activation](strip, FL_CPU_CHUNK, m->work->rows,
                                                       run * FL_CPU_LANES);
        }
        i += run;
    }
}

/* y (+)= m Wdown, this member's columns; the last chunk adds bias and residual. */
static void down(const fl_cpu_crew *c, const middle *m, size_t chunk) {
    const fl_engine   *e      = c->engine;
    size_t             panels = e->hidden16 / FL_CPU_LANES, width = width_of(e, chunk);
    size_t             first = fl_cpu_share(c, panels, c->member), col = first * FL_CPU_LANES;
    bool               end = chunk + 1 == e->chunks;
    const float       *x = end ? m->work->residual : NULL, *bias = end ? m->work->down_bias : NULL;
    const fl_cpu_form *form = &m->work->layer->down_form;
    const uint8_t     *b    = chunk_panels(e, m->work, chunk) + fl_cpu_up(e, m->work->layer, width);
    operand            rows = rows_of_chunk(c, m, chunk);
    multiply(e, &rows, form, 1.0f,
             (fl_gemm){.b               = b + first * fl_cpu_panel(e, form, width),
                       .c               = c->at.y + col,
                       .c_stride        = e->hidden16,
                       .bias            = bias ? bias + col : NULL,
                       .residual        = x ? x + col : NULL,
                       .residual_stride = e->hidden16,
                       .rows            = m->work->rows,
                       .panels          = fl_cpu_share(c, panels, c->member + 1) - first,
                       .k               = width,
                       .accumulate      = chunk > 0});
}

/* y = act(z Wup + b) Wdown + b + x */
static void run_mlp(const fl_cpu_crew *c, const mlp_work *work) {
    const fl_engine *e   = c->engine;
    size_t           fit = c->members == 1 ? 1 : c->members * (e->rows_max / work->rows);
    for (size_t first = 0; first < e->chunks; first += fit) {
        middle m   = {work, first, fl_cpu_least(fit, e->chunks - first)};
        size_t end = first + m.count;
        up(c, &m);
        fl_cpu_wait(c);
        for (size_t chunk = first; c->at.middle_narrow.q && chunk < end; chunk++) {
            operand at = rows_of_chunk(c, &m, chunk);
            narrow_rows(c, &at, work->rows, width_of(e, chunk), NULL);
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

/* ---- Experts --------------------------------------------------------------------------------- */

/* chance[rows, experts16] of z's rows: softmax over the experts, the sign set of those that a row goes to.
 * Of equal ones the first counts; what is not a number is chosen like a number. */
static void choose_experts(const fl_engine *e, const fl_cpu_layer *layer, const float *z,
                           size_t rows, float *chance) {
    fl_gemm g = {.a        = z,
                 .a_stride = e->hidden16 * sizeof *z,
                 .b        = layer->router,
                 .b_stride = e->hidden16 * FL_CPU_LANES * sizeof *layer->router,
                 .c        = chance,
                 .c_stride = e->experts16,
                 .rows     = rows,
                 .panels   = fl_cpu_pad(layer->experts) / FL_CPU_LANES,
                 .k        = e->hidden16};
    e->kernels->gemm(&g);
    for (size_t row = 0; row < rows; row++, chance += e->experts16) {
        float most = chance[0], sum = 0.0f;
        for (size_t i = 1; i < layer->experts; i++) {
            most = chance[i] > most ? chance[i] : most;
        }
        for (size_t i = 0; i < layer->experts; i++) {
            chance[i] = (float)fl_math_exp((double)(chance[i] - most));
            sum += chance[i];
        }
        for (size_t i = 0; i < layer->experts; i++) {
            chance[i] = fabsf(chance[i] / sum);
        }
        for (size_t k = 0; k < layer->experts_used; k++) {
            size_t best = SIZE_MAX;
            for (size_t i = 0; i < layer->experts; i++) {
                if (!signbit(chance[i]) && (best == SIZE_MAX || chance[i] > chance[best])) {
                    best = i;
                }
            }
            chance[best] = -chance[best];
        }
    }
}

/* y += chance * mlp(z) of the rows that chose an expert, some at a time. */
static void run_expert(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t number,
                       const float *z, size_t rows, float *y) {
    const fl_engine          *e    = c->engine;
    const fl_cpu_expert_rows *at   = &c->at.expert;
    const float              *mine = at->chance + number;
    mlp_work                  work = {.layer   = layer,
                                      .panels  = layer->mlp + number * fl_cpu_mlp(e, layer),
                                      .up_bias = layer->up_bias,
                                      .z       = {.floats = at->in, .width = e->hidden16}};
    for (size_t row = 0, first = 0; row < rows; first = row) {
        for (work.rows = 0; row < rows && work.rows < e->expert_rows; row++) {
            if (signbit(mine[row * e->experts16])) {
                memcpy(at->in + work.rows++ * e->hidden16, z + row * e->hidden16,
                       e->hidden16 * sizeof *z);
            }
        }
        if (work.rows == 0) {
            return;
        }
        run_mlp(c, &work);
        const float *out = at->out;
        for (size_t to = first; to < row; to++) {
            float chance = fabsf(mine[to * e->experts16]);
            for (size_t k = 0; signbit(mine[to * e->experts16]) && k < e->hidden16; k++) {
                y[to * e->hidden16 + k] += chance * out[k];
            }
            out += signbit(mine[to * e->experts16]) ? e->hidden16 : 0;
        }
    }
}

/* y = b + x + what its experts make of a row, this member's share of the rows. */
static void run_experts(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t row, size_t rows) {
    const fl_engine *e     = c->engine;
    size_t           first = fl_cpu_share(c, rows, c->member);
    size_t           count = fl_cpu_share(c, rows, c->member + 1) - first;
    const float     *z = rows_of_z(c, row + first).floats, *x = residual_of(c, row + first);
    float           *y   = c->at.y + first * e->hidden16;
    fl_cpu_crew      own = *c;
    own.at.y             = c->at.expert.out;
    own.member           = 0;
    own.members          = 1;
    if (count == 0) { /* more members than rows */
        return;
    }
    for (size_t i = 0; i < count * e->hidden16; i++) {
        y[i] = layer->down_bias[i % e->hidden16] + (x ? x[i] : 0.0f);
    }
    choose_experts(e, layer, z, count, c->at.expert.chance);
    for (size_t i = 0; i < layer->experts; i++) {
        run_expert(&own, layer, i, z, count, y);
    }
}

/* y = mlp(z) + x of rows of x from `row` on. */
static void mlp(const fl_cpu_crew *c, const fl_cpu_layer *layer, size_t row, size_t rows) {
    if (layer->experts > 0) {
        run_experts(c, layer, row, rows);
        fl_cpu_wait(c);
        return;
    }
    mlp_work work = {
        layer, layer->mlp, layer->up_bias, layer->down_bias, rows_of_z(c, row), residual_of(c, row),
        rows};
    run_mlp(c, &work);
}

/* ---- The layer as a whole -------------------------------------------------------------------- */

static void add_rows(const float *from, float *to, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

/* What a block left in y becomes x, this member's share of the rows; pre-norm: and z, by the norm in
 * front of the next block. */
static void settle(const fl_cpu_crew *c, size_t row, size_t rows, const fl_cpu_norm *own,
                   const fl_cpu_norm *extra, const fl_cpu_norm *next) {
    const fl_engine *e     = c->engine;
    size_t           first = fl_cpu_share(c, rows, c->member);
    size_t           count = fl_cpu_share(c, rows, c->member + 1) - first;
    size_t           at = (row + first) * e->hidden16, values = count * e->hidden16;
    float           *y = c->at.y + first * e->hidden16, *x = c->at.x + at;
    if (!e->pre) {
        fl_cpu_norm_rows(e, own, y, extra->weight ? y : x, count);
        if (extra->weight) { /* x = extra(x + norm(…)) */
            add_rows(x, y, values);
            fl_cpu_norm_rows(e, extra, y, x, count);
        }
        return;
    }
    if (extra->weight) { /* x = x + extra(…) */
        fl_cpu_norm_rows(e, extra, y, y, count);
        add_rows(y, x, values);
    } else {
        memcpy(x, y, values * sizeof *x);
    }
    if (next && next->weight) {
        fl_cpu_norm_rows(e, next, x, c->at.z + at, count);
    } else if (next) {
        memcpy(c->at.z + at, x, values * sizeof *x);
    }
}

/* Attention's output, the MLP and the norms of rows [first, last). */
static void rest_of_layer(const fl_cpu_crew *c, size_t index, size_t first, size_t last) {
    const fl_engine    *e     = c->engine;
    const fl_cpu_layer *layer = &e->layers[index];
    const fl_cpu_norm  *next  = index + 1 < e->desc.layers ? &layer[1].attention_norm : NULL;
    size_t              step  = fl_cpu_rows_step(e, last - first);
    for (size_t row = first; row < last; row += step) {
        size_t rows = fl_cpu_least(step, last - row);
        project(c, layer, row, rows);
        fl_cpu_wait(c);
        settle(c, row, rows, &layer->attention_norm, &layer->attention_extra, &layer->mlp_norm);
        narrow_z(c, row, rows, index, 1);
        fl_cpu_wait(c);
        mlp(c, layer, row, rows);
        settle(c, row, rows, &layer->mlp_norm, &layer->mlp_extra, next);
        if (next) {
            narrow_z(c, row, rows, index + 1, 0);
        }
        fl_cpu_wait(c);
    }
}

bool fl_cpu_by_rows(const fl_engine *e, size_t tokens, unsigned members) {
    /* where weights are widened, each member that reads all of them pays for it, as for some nine rows */
    size_t least = e->layers[0].up_form.groups.bits > 0 ? 48 : e->format == FL_CPU_FP32 ? 12 : 6;
    return members > 1 && tokens >= least * members;
}

/* A member of a crew as a thread alone, which keeps what it writes for rows of its own. */
static fl_cpu_crew apart(const fl_cpu_crew *c) {
    const fl_cpu_scratch *at  = &c->engine->scratch[c->first + c->member];
    fl_cpu_crew           own = *c;
    own.at.y                  = at->y;
    own.at.context_narrow     = at->context_narrow;
    own.member                = 0;
    own.members               = 1;
    return own;
}

static void run_layer(const fl_cpu_crew *c, size_t index) {
    const fl_engine *e    = c->engine;
    bool             few  = c->few && index + 1 == e->desc.layers;
    size_t           rows = few ? c->block->last - c->block->first : c->block->tokens;
    attention(c, index, rows);
    if (few) {
        keep_pooled(c);
    }
    if (!fl_cpu_by_rows(e, rows, c->members)) {
        rest_of_layer(c, index, 0, rows);
        return;
    }
    fl_cpu_crew own = apart(c);
    rest_of_layer(&own, index, fl_cpu_share(c, rows, c->member),
                  fl_cpu_share(c, rows, c->member + 1));
    fl_cpu_wait(c);
}

/* What the first layer reads, this member's share. */
static void begin(const fl_cpu_crew *c) {
    const fl_engine   *e     = c->engine;
    const fl_cpu_norm *norm  = &e->layers[0].attention_norm;
    size_t             first = fl_cpu_share(c, c->block->tokens, c->member);
    size_t             rows  = fl_cpu_share(c, c->block->tokens, c->member + 1) - first;
    size_t             at    = first * e->hidden16;
    if (e->pre && norm->weight) {
        fl_cpu_norm_rows(e, norm, c->at.x + at, c->at.z + at, rows);
    } else if (e->pre) {
        memcpy(c->at.z + at, c->at.x + at, rows * e->hidden16 * sizeof(float));
    }
    narrow_z(c, 0, c->block->tokens, 0, 0);
    fl_cpu_wait(c);
}

void fl_cpu_layers(const fl_cpu_crew *c) {
    const uint32_t layers = c->engine->desc.layers;
    if (layers > 0) {
        begin(c);
    }
    for (uint32_t i = 0; i < layers; i++) {
        const uint64_t start = fl_trace_begin(c->engine->trace);
        run_layer(c, i);
        fl_trace_end(c->engine->trace, "layer", start, "number", i);
    }
}
