/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_attention.c - attention of a block: from the rows z to context, heads some at a time.
 *
 * Role     cpu_layers.c calls fl_cpu_attention_full, or in the last layer of a model that is pooled to one row
 *          of a text fl_cpu_attention_pooled: keys and values of all tokens, queries of that row alone.
 * Method   For a run of query heads of one group: q, and for the first run of the group k and v, are projected into
 *          scratch.head, [tokens, head16] each, so that they are in L2 when the scores are computed; normed and
 *          rotated there; then text by text to context. Where q and k are normed over all heads as one row, they are
 *          projected into scratch.joint_qk first and each run takes its heads from there.
 *          A layer that convolves has q as the gate of a head's channels, and k v is what is summed over neighbours.
 *          A split group deals heads to its ranks.
 * Prefix   Of a prompt that texts have in common, keys and values were kept (cpu_prompt.c) and are put in front.
 * Bytes    Cutting heads and rows never changes the operations on an element (kernels.h).
 * Proof    tests/unit/test_engine*.c, tests/golden/test_families.py. */
#include <string.h>

#include "engines/cpu/layers.h"

/* Some query heads of one group, whose keys and values they share. */
typedef struct head_run {
    size_t kv, first, count; /* query heads first … first + count - 1 */
    size_t queries;          /* rows of q: all tokens of the block, or one a text */
    bool   new_group;        /* its keys and values are to be made; else the run before left them */
} head_run;

/* The next of this rank's runs; `run` begins with no heads, in front of the rank's first one. */
static bool next_run(const fl_cpu_split *c, const fl_cpu_layer *layer, head_run *run) {
    size_t last = fl_cpu_share(c, c->engine->desc.heads, c->rank + 1);
    size_t head = run->first + run->count, kv = head / layer->group;
    if (head >= last)
        return false;
    run->new_group = run->count == 0 || kv != run->kv;
    run->kv        = kv;
    run->first     = head;
    run->count     = fl_cpu_min(fl_cpu_min(last, (kv + 1) * layer->group) - head, c->engine->q_run);
    return true;
}

static head_run runs_of(const fl_cpu_split *c, size_t queries) {
    return (head_run){.first = fl_cpu_share(c, c->engine->desc.heads, c->rank), .queries = queries};
}

static float *k_of(const fl_cpu_split *c) {
    return c->scratch.head;
}

static float *v_of(const fl_cpu_split *c) {
    return c->scratch.head + c->block->tokens * c->engine->head16;
}

static float *q_of(const fl_cpu_split *c, const head_run *run, size_t head) {
    size_t rows = 2 * c->block->tokens + (head - run->first) * run->queries;
    return c->scratch.head + rows * c->engine->head16;
}

/* ---- Projections ----------------------------------------------------------------------------- */

/* out = z W + b of part `part` of a group: its query heads, then k, then v. */
static void project_part(const fl_cpu_split *c, const fl_cpu_layer *layer, size_t kv, size_t part,
                         const fl_cpu_operand *z, size_t rows, float *out) {
    const fl_engine *e  = c->engine;
    size_t           at = kv * (layer->group + 2) + part, panels = e->head16 / FL_CPU_LANES;
    size_t           panel  = fl_cpu_panel(e, &layer->qkv_form, e->hidden16);
    fl_gemm          g      = {.b        = layer->qkv + at * panels * panel,
                               .c        = out,
                               .c_stride = e->head16,
                               .bias     = layer->qkv_bias + at * e->head16,
                               .rows     = rows,
                               .panels   = panels,
                               .k        = e->hidden16};
    float            factor = part < layer->group ? fl_cpu_query_scale(e, layer) : 1.0f;
    fl_cpu_multiply(e, z, &layer->qkv_form, factor, g);
}

/* The norm of every head by itself; models without one have no weight. */
static void norm_heads(const fl_engine *e, const fl_cpu_norm *norm, size_t rows, float *x) {
    if (norm->weight)
        fl_cpu_norm_as(e, e->desc.norm, norm, x, x, e->head16, rows, e->desc.head_dim);
}

static void project_q(const fl_cpu_split *c, const fl_cpu_layer *layer, const head_run *run,
                      size_t head, const fl_cpu_operand *z, size_t rows, float *out) {
    project_part(c, layer, run->kv, head - run->kv * layer->group, z, rows, out);
    norm_heads(c->engine, &layer->q_norm, rows, out);
}

static void project_k(const fl_cpu_split *c, const fl_cpu_layer *layer, const head_run *run,
                      const fl_cpu_operand *z, size_t rows, float *out) {
    project_part(c, layer, run->kv, layer->group, z, rows, out);
    norm_heads(c->engine, &layer->k_norm, rows, out);
}

static void project_v(const fl_cpu_split *c, const fl_cpu_layer *layer, const head_run *run,
                      const fl_cpu_operand *z, size_t rows, float *out) {
    project_part(c, layer, run->kv, layer->group + 1, z, rows, out);
}

/* ---- One text -------------------------------------------------------------------------------- */

/* One text of the block, and where these heads have its rows. */
typedef struct text {
    float *q, *out;     /* of the first head; out is context */
    float *k, *v;       /* of n tokens; place_text puts those of a kept prompt before them */
    size_t prefix;      /* tokens of the prompt whose keys are kept */
    size_t n;           /* tokens after them */
    size_t key_count;   /* tokens that are attended to */
    size_t first, rows; /* the queries: all n, or the one that is pooled */
} text;

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

/* Where a layer's keys of a group are kept, and after them its values. */
static float *prefix_rows(const fl_engine *e, const fl_cpu_layer *layer, size_t kv) {
    size_t place = (size_t)(layer - e->layers) * e->kv_max + kv;
    return e->prompt.rows + place * 2 * FL_CPU_PROMPT * e->head16;
}

static void store_prefix(const fl_engine *e, const fl_cpu_layer *layer, size_t kv, const text *t) {
    float *to = prefix_rows(e, layer, kv);
    memcpy(to, t->k, t->n * e->head16 * sizeof *to);
    memcpy(to + FL_CPU_PROMPT * e->head16, t->v, t->n * e->head16 * sizeof *to);
}

/* k and v of a text of which `prefix` tokens are kept and n were computed, one after the other. */
static void join_prefix(const fl_cpu_split *c, const fl_cpu_layer *layer, size_t kv, text *t) {
    const fl_engine *e    = c->engine;
    size_t           head = t->prefix * e->head16, bytes = t->n * e->head16 * sizeof *t->k;
    const float     *from = prefix_rows(e, layer, kv);
    float           *k = c->scratch.joined, *v = k + FL_CPU_PROMPT_TEXT * e->head16;
    memcpy(k, from, head * sizeof *k);
    memcpy(k + head, t->k, bytes);
    memcpy(v, from + FL_CPU_PROMPT * e->head16, head * sizeof *v);
    memcpy(v + head, t->v, bytes);
    t->k = k;
    t->v = v;
}

/* q and k turn by their places; the keys and values of a prompt are kept, or put before these. */
static void place_text(const fl_cpu_split *c, const fl_cpu_layer *layer, const head_run *run,
                       text *t) {
    const fl_engine   *e    = c->engine;
    const fl_cpu_rope *rope = layer->rope;
    if (rope && rope->longer && t->prefix + t->n > rope->trained)
        rope = rope->longer;
    for (size_t i = 0; rope && i < run->count; i++)
        rotate(e, rope, t->q + i * run->queries * e->head16, t->first, t->rows);
    if (rope && run->new_group) /* a later run of the group finds them turned */
        rotate(e, rope, t->k, t->prefix, t->n);
    if (e->prompt.keeping && run->first == run->kv * layer->group)
        store_prefix(e, layer, run->kv, t);
    else if (t->prefix > 0)
        join_prefix(c, layer, run->kv, t);
}

/* The queries from `first` on, `rows` of them, each of which sees `before` and `after`. */
static void attend_rows(const fl_cpu_split *c, const fl_cpu_layer *layer, const head_run *run,
                        const text *t, size_t first, size_t rows, size_t before, size_t after) {
    const fl_engine *e    = c->engine;
    const float     *bias = layer->bias ? layer->bias + run->first * e->bias_stride : NULL;
    size_t           skip = first - t->first;
    fl_attention     at   = {.q          = t->q + skip * e->head16,
                             .q_stride   = e->head16,
                             .q_head     = run->queries * e->head16,
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
                             .scratch    = c->scratch.attention,
                             .heads      = run->count,
                             .n          = t->key_count,
                             .d          = e->head16,
                             .first      = first,
                             .rows       = rows,
                             .before     = before,
                             .after      = after};
    void (*narrow)(const fl_attention *) = e->narrow.attention;
    void (*kernel)(const fl_attention *) = narrow ? narrow : e->kernels->attention;
    if (layer->pos_k)
        fl_cpu_attend_disentangled(e, layer, run->first, &at, kernel, c->scratch.relative);
    else
        kernel(&at);
}

static void attend_text(const fl_cpu_split *c, const fl_cpu_layer *layer, const head_run *run,
                        text *t) {
    const fl_cpu_window *window = layer->window;
    const size_t         seen   = fl_cpu_min(t->rows, t->key_count);
    place_text(c, layer, run, t);
    attend_rows(c, layer, run, t, t->first, seen, window->before, window->after);
    /* What is not attended to sees all that is. */
    if (t->key_count < t->prefix + t->n)
        attend_rows(c, layer, run, t, t->key_count, t->n - t->key_count, FL_CPU_ALL, FL_CPU_ALL);
}

/* What a token that nothing attends to brings to a convolution: rows of zeros went into the product. */
static void blank_rows(const fl_engine *e, const fl_cpu_layer *layer, const head_run *run,
                       const text *t) {
    const float *bias = layer->qkv_bias + 3 * run->first * e->head16;
    for (size_t row = t->key_count; row < t->n; row++) {
        if (t->rows == t->n)
            memcpy(t->q + row * e->head16, bias, e->head16 * sizeof *bias);
        memcpy(t->k + row * e->head16, bias + e->head16, e->head16 * sizeof *bias);
        memcpy(t->v + row * e->head16, bias + 2 * e->head16, e->head16 * sizeof *bias);
    }
}

/* The convolution of one head's channels: its q is the gate, k v what is summed. */
static void convolve_text(const fl_cpu_split *c, const fl_cpu_layer *layer, const head_run *run,
                          text *t) {
    const fl_engine *e    = c->engine;
    const size_t     taps = e->desc.taps;
    blank_rows(e, layer, run, t);
    for (size_t i = 0; i < t->n * e->head16; i++)
        t->k[i] *= t->v[i];
    place_text(c, layer, run, t);
    fl_convolution at = {.x          = t->k,
                         .gate       = t->q,
                         .stride     = e->head16,
                         .out        = t->out,
                         .out_stride = e->inner,
                         .weights    = layer->conv + run->first * taps * e->head16,
                         .bias       = layer->conv_bias + run->first * e->head16,
                         .n          = t->prefix + t->n,
                         .first      = t->first,
                         .rows       = t->rows,
                         .taps       = taps,
                         .before     = e->desc.taps_centred ? taps / 2 : taps - 1,
                         .cols       = e->head16};
    e->kernels->convolve(&at);
}

/* These heads over every text of the block, to context. */
static void mix_texts(const fl_cpu_split *c, const fl_cpu_layer *layer, const head_run *run) {
    const fl_engine *e   = c->engine;
    size_t           row = 0, query = 0;
    for (uint32_t i = c->block->first; i < c->block->last; i++) {
        bool all = run->queries == c->block->tokens;
        text t   = {.q         = q_of(c, run, run->first) + query * e->head16,
                    .k         = k_of(c) + row * e->head16,
                    .v         = v_of(c) + row * e->head16,
                    .out       = c->scratch.context + query * e->inner + run->first * e->head16,
                    .prefix    = fl_cpu_prefix(e, i),
                    .n         = fl_cpu_length(e, i),
                    .key_count = fl_cpu_key_count(e, i)};
        t.first  = t.prefix + (all ? 0 : fl_cpu_pooled_at(e, i, 0));
        t.rows   = all ? t.n : 1;
        if (layer->conv)
            convolve_text(c, layer, run, &t);
        else
            attend_text(c, layer, run, &t);
        row += t.n;
        query += t.rows;
    }
}

/* ---- Norms over all heads -------------------------------------------------------------------- */

/* The queries or the keys of all heads side by side. */
typedef struct side {
    float             *rows; /* [count, width] */
    size_t             count, width, heads;
    size_t             group, part; /* heads of it in a group, and the first one's part there */
    fl_cpu_operand     z;
    const fl_cpu_norm *norm;
} side;

static side queries(const fl_cpu_split *c, const fl_cpu_layer *layer, const fl_cpu_operand *z,
                    size_t count) {
    const fl_engine *e = c->engine;
    return (side){.rows  = c->scratch.joint_qk,
                  .count = count,
                  .width = e->q_joint,
                  .heads = e->desc.heads,
                  .group = e->group,
                  .z     = *z,
                  .norm  = &layer->q_norm};
}

static side keys(const fl_cpu_split *c, const fl_cpu_layer *layer) {
    const fl_engine *e = c->engine;
    return (side){.rows  = c->scratch.joint_qk + c->block->tokens * e->q_joint,
                  .count = c->block->tokens,
                  .width = e->k_joint,
                  .heads = e->desc.kv_heads,
                  .group = 1,
                  .part  = e->group,
                  .z     = fl_cpu_z_from(c, 0),
                  .norm  = &layer->k_norm};
}

/* This rank's heads of one side, through its own room for heads. */
static void project_side(const fl_cpu_split *c, const fl_cpu_layer *layer, const side *s) {
    const fl_engine *e = c->engine;
    size_t           d = e->desc.head_dim, last = fl_cpu_share(c, s->heads, c->rank + 1);
    size_t           step = fl_cpu_rows_step(e, s->count);
    for (size_t head = fl_cpu_share(c, s->heads, c->rank); head < last; head++) {
        float *own = c->scratch.head, *out = s->rows + head * d;
        for (size_t row = 0; row < s->count; row += step) {
            fl_cpu_operand z = fl_cpu_rows_from(e, &s->z, row);
            project_part(c, layer, head / s->group, s->part + head % s->group, &z,
                         fl_cpu_min(step, s->count - row), own + row * e->head16);
        }
        /* Heads lie side by side without padding; what is behind the last one is zero. */
        size_t padding = head + 1 == s->heads ? s->width - s->heads * d : 0;
        for (size_t row = 0; row < s->count; row++, own += e->head16, out += s->width) {
            memcpy(out, own, d * sizeof *out);
            memset(out + d, 0, padding * sizeof *out);
        }
    }
}

static void norm_side(const fl_cpu_split *c, const side *s) {
    size_t first = fl_cpu_share(c, s->count, c->rank);
    size_t count = fl_cpu_share(c, s->count, c->rank + 1) - first;
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

/* `z` are the rows that ask, `count` of them. */
static void attention_joint_norm(const fl_cpu_split *c, const fl_cpu_layer *layer,
                                 const fl_cpu_operand *z, size_t count) {
    const fl_engine *e = c->engine;
    const side       q = queries(c, layer, z, count), k = keys(c, layer);
    const size_t     tokens = c->block->tokens, step = fl_cpu_rows_step(e, tokens);

    /* q and k of all heads first: the norm needs the whole row. Ranks deal out heads, then rows, hence the waits. */
    project_side(c, layer, &q);
    project_side(c, layer, &k);
    fl_cpu_wait(c);
    norm_side(c, &q);
    norm_side(c, &k);
    fl_cpu_wait(c);

    for (head_run run = runs_of(c, count); next_run(c, layer, &run);) {
        for (size_t i = run.first; i < run.first + run.count; i++)
            take_head(e, &q, i, q_of(c, &run, i));
        if (run.new_group) {
            take_head(e, &k, run.kv, k_of(c));
            for (size_t row = 0; row < tokens; row += step) {
                fl_cpu_operand some = fl_cpu_z_from(c, row);
                project_v(c, layer, &run, &some, fl_cpu_min(step, tokens - row),
                          v_of(c) + row * e->head16);
            }
        }
        mix_texts(c, layer, &run);
    }
    fl_cpu_wait(c);
}

/* ---- Norms by head, or none ------------------------------------------------------------------ */

void fl_cpu_attention_full(const fl_cpu_split *c, size_t index) {
    const fl_engine    *e      = c->engine;
    const fl_cpu_layer *layer  = &e->layers[index];
    const size_t        tokens = c->block->tokens, step = fl_cpu_rows_step(e, tokens);
    if (e->q_joint > 0) {
        fl_cpu_operand z = fl_cpu_z_from(c, 0);
        attention_joint_norm(c, layer, &z, tokens);
        return;
    }
    for (head_run run = runs_of(c, tokens); next_run(c, layer, &run);) {
        /* A step of rows is in L2 while all of the run's matrices multiply it. */
        for (size_t row = 0; row < tokens; row += step) {
            const fl_cpu_operand z    = fl_cpu_z_from(c, row);
            const size_t         rows = fl_cpu_min(step, tokens - row), at = row * e->head16;
            for (size_t i = run.first; i < run.first + run.count; i++)
                project_q(c, layer, &run, i, &z, rows, q_of(c, &run, i) + at);
            if (run.new_group) {
                project_k(c, layer, &run, &z, rows, k_of(c) + at);
                project_v(c, layer, &run, &z, rows, v_of(c) + at);
            }
        }
        mix_texts(c, layer, &run);
    }
    fl_cpu_wait(c);
}

/* ---- One row a text -------------------------------------------------------------------------- */

size_t fl_cpu_pooled_at(const fl_engine *e, uint32_t t, size_t row) {
    return row + fl_cpu_pooled_row(e, fl_cpu_length(e, t), fl_cpu_skip(e, t));
}

/* z of the pooled rows, side by side and as products take it; y and context's narrow rows are free. */
static fl_cpu_operand gather_pooled(const fl_cpu_split *c, size_t texts, size_t index) {
    const fl_engine *e   = c->engine;
    fl_cpu_operand   all = {
          .narrow = c->scratch.context_narrow, .floats = c->scratch.y, .width = e->hidden16};
    const float *z   = fl_cpu_z_from(c, 0).floats;
    float       *to  = c->scratch.y;
    size_t       row = 0;
    for (uint32_t t = c->block->first; c->rank == 0 && t < c->block->last; t++) {
        memcpy(to, z + fl_cpu_pooled_at(e, t, row) * e->hidden16, e->hidden16 * sizeof *z);
        row += fl_cpu_length(e, t);
        to += e->hidden16;
    }
    fl_cpu_wait(c);
    fl_cpu_quantize_rows(c, &all, texts, e->hidden16, e->layers[index].qkv_gain);
    fl_cpu_wait(c);
    return all;
}

void fl_cpu_attention_pooled(const fl_cpu_split *c, size_t index) {
    const fl_engine     *e      = c->engine;
    const fl_cpu_layer  *layer  = &e->layers[index];
    const size_t         tokens = c->block->tokens, step = fl_cpu_rows_step(e, tokens);
    const size_t         texts  = c->block->last - c->block->first;
    const fl_cpu_operand pooled = gather_pooled(c, texts, index);
    if (e->q_joint > 0) {
        attention_joint_norm(c, layer, &pooled, texts);
        return;
    }
    for (head_run run = runs_of(c, texts); next_run(c, layer, &run);) {
        /* Every token is seen … */
        for (size_t row = 0; run.new_group && row < tokens; row += step) {
            const fl_cpu_operand z    = fl_cpu_z_from(c, row);
            const size_t         rows = fl_cpu_min(step, tokens - row), at = row * e->head16;
            project_k(c, layer, &run, &z, rows, k_of(c) + at);
            project_v(c, layer, &run, &z, rows, v_of(c) + at);
        }
        /* … by one a text: few enough rows for one product. */
        for (size_t i = run.first; i < run.first + run.count; i++)
            project_q(c, layer, &run, i, &pooled, texts, q_of(c, &run, i));
        mix_texts(c, layer, &run);
    }
    fl_cpu_wait(c);
}
