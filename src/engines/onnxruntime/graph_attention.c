/* SPDX-License-Identifier: Apache-2.0 */
/* graph_attention.c - attention as nodes: one fused operator where there is one, else the formula.
 *
 * In/Out  q [batch * sequence, heads * head_dim], k and v of kv_heads -> the context, shaped like q.
 * Method  cpu and cuda have com.microsoft.MultiHeadAttention: three times fewer nodes, no score
 *         matrix written out where nothing is added to the scores. Other providers get the standard
 *         operators, which every one of them compiles:
 *             softmax(scale q kᵀ + bias) v
 *         What is added to the scores is the same for all layers of a rule and computed once: what
 *         distance does to them and the mask of padding. Angles likewise. Heads that share keys get
 *         copies of them.
 * Mask    On the cpu provider texts of a run are equally long (graph->masked is false): without a
 *         mask the operator takes its tiled path, 4 to 8 % faster on long texts. cuda is given
 *         each text's length. Elsewhere the mask is added as -65504, the most that still fits a
 *         half-precision number; keys that a window hides get the same.
 * Bias    A rule is one table by distance: wide[h, j - i + reach], of one head where all are alike; the
 *         graph gathers [heads or 1, sequence, sequence] from it. UMT5's layers each have such a table. DeBERTa's
 *         is the products of queries and of keys with a layer's whole table, of which each score takes its two.
 * Memory  The wide tables: heads * (2 longest - 1) floats each, and longest * dims of angles, copied
 *         into the graph.
 * Threads A graph belongs to one caller. Proof: tests/golden/test_onnx_graph.py. */
#include "base/error.h"
#include "base/mem.h"
#include "engines/onnxruntime/graph.h"

static const float masked_out = -65504.0f;

static fl_value unsqueeze(fl_graph *g, fl_value a, int64_t axis) {
    return fl_graph_op2(g, "Unsqueeze", a, fl_graph_ints(g, &axis, 1));
}

/* What a rule does to scores, by distance: [heads or 1, 2 longest - 1] float32. */
static fl_value wide_table(fl_graph *g, const fl_distance *rule, uint32_t layer) {
    size_t         width = 2 * (size_t)g->longest - 1;
    const uint32_t heads = rule->bias == FL_BIAS_NONE ? 1 : g->desc->heads;
    float         *wide  = fl_alloc_array(width * heads, sizeof *wide);
    if (wide == NULL) {
        g->status = fl_fail_nomem(g->error, width * heads * sizeof *wide, "the attention bias");
        return (fl_value){""};
    }
    for (size_t i = 0; i < width; i++) {
        ptrdiff_t distance = (ptrdiff_t)i - ((ptrdiff_t)g->longest - 1);
        for (uint32_t head = 0; head < heads; head++) {
            float value            = fl_distance_value(g->encoder, rule, layer, head, distance);
            wide[head * width + i] = value < masked_out ? masked_out : value;
        }
    }
    fl_value value = fl_graph_reals(g, wide, (int64_t[]){heads, (int64_t)width}, 2);
    fl_free(wide);
    return value;
}

/* [1, heads or 1, sequence, sequence] */
static fl_value relative_bias(fl_graph *g, const fl_distance *rule, uint32_t layer) {
    fl_value key      = unsqueeze(g, g->places, 0); /* [1, sequence] */
    fl_value query    = unsqueeze(g, g->places, 1); /* [sequence, 1] */
    fl_value distance = fl_graph_op2(g, "Sub", key, query);
    fl_value column   = fl_graph_op2(g, "Add", distance, fl_graph_int(g, (int64_t)g->longest - 1));
    fl_value table    = fl_graph_narrow(g, wide_table(g, rule, layer));
    return unsqueeze(g, fl_graph_gather(g, table, column, 1), 0);
}

/* Nothing is added to scores that all layers of the rule share, and every token sees every key, but for what a
 * layer's own table hides. */
static bool is_plain(const fl_graph *g, const fl_distance *rule) {
    return fl_t5_by_layer(g->desc, rule) ||
           ((rule->bias == FL_BIAS_NONE || rule->bias == FL_BIAS_DISENTANGLED) && !rule->causal &&
            rule->window == 0);
}

static fl_value with_mask(fl_graph *g, fl_value bias, fl_value mask) {
    return mask.name[0] == '\0' ? bias : fl_graph_op2(g, "Add", bias, mask);
}

/* DeBERTa's table, and which products of a query or a key with it a score takes. */
static void prepare_relative(fl_graph *g) {
    const fl_encoder_desc *d     = g->desc;
    const fl_tensor       *table = &g->encoder->global[FL_SLOT_RELATIVE];
    const size_t           width = 2 * (size_t)g->longest - 1;
    const fl_weight        all   = {.tensor  = table,
                                    .rows    = fl_relative_rows(d),
                                    .columns = d->hidden,
                                    .what    = "relative position"};
    int64_t               *row   = fl_alloc_array(width, sizeof *row);
    if (row == NULL) {
        g->status = fl_fail_nomem(g->error, width * sizeof *row, "a table of distances");
        return;
    }
    for (size_t i = 0; i < width; i++)
        row[i] = fl_distance_row(d, (ptrdiff_t)i - ((ptrdiff_t)g->longest - 1));
    g->relative = fl_graph_weight_real(g, &all);
    if (d->relative_norm)
        g->relative =
            fl_graph_norm(g, FL_NORM_LAYER, g->relative,
                          &g->encoder->global[FL_SLOT_RELATIVE_NORM_W], d->hidden, all.what);
    fl_value key = unsqueeze(g, g->places, 0), query = unsqueeze(g, g->places, 1);
    fl_value column = fl_graph_op2(g, "Add", fl_graph_op2(g, "Sub", key, query),
                                   fl_graph_int(g, (int64_t)g->longest - 1));
    fl_value rows   = fl_graph_gather(g, fl_graph_ints(g, row, (unsigned)width), column, 0);
    fl_value step   = fl_graph_int(g, (int64_t)all.rows);
    g->of_query     = fl_graph_op2(g, "Add", rows, fl_graph_op2(g, "Mul", query, step));
    g->of_key       = fl_graph_op2(g, "Add", rows, fl_graph_op2(g, "Mul", key, step));
    fl_free(row);
}

/* Cosines and sines of one RoPE. */
static void prepare_rope(fl_graph *g, size_t rule) {
    const fl_rope *rope     = &g->desc->rope[rule];
    int64_t        shape[2] = {g->longest, rope->dims / 2};
    float         *angles   = fl_alloc_array((size_t)g->longest * rope->dims, sizeof *angles);
    if (angles == NULL) {
        g->status = fl_fail_nomem(g->error, (size_t)g->longest * rope->dims * sizeof *angles,
                                  "the angles of rotary positions");
        return;
    }
    float *sines = angles + (size_t)g->longest * (rope->dims / 2);
    fl_rope_table(rope, 0, g->longest, angles, sines);
    fl_value *const to[]   = {&g->cosine[rule], &g->sine[rule]};
    const float    *from[] = {angles, sines};
    for (size_t i = 0; i < 2; i++) {
        fl_value rows = fl_graph_head(g, fl_graph_reals(g, from[i], shape, 2), g->length);
        *to[i]        = fl_graph_narrow(g, unsqueeze(g, rows, 1));
    }
    fl_free(angles);
}

/* [batch, 1, 1, sequence]: 0, or masked_out where there is padding */
static fl_value mask_bias(fl_graph *g) {
    fl_value padding = fl_graph_op2(g, "Sub", fl_graph_real(g, 1.0f), g->mask_real);
    fl_value added   = fl_graph_op2(g, "Mul", padding, fl_graph_real(g, masked_out));
    return fl_graph_narrow(
        g, fl_graph_op2(g, "Unsqueeze", added, fl_graph_ints(g, (int64_t[]){1, 2}, 2)));
}

/* The key and value head of each query head. */
static fl_value kv_of(fl_graph *g) {
    const fl_encoder_desc *d   = g->desc;
    int64_t               *all = fl_alloc_array(d->heads, sizeof *all);
    if (all == NULL) {
        g->status = fl_fail_nomem(g->error, d->heads * sizeof *all, "heads that share keys");
        return (fl_value){""};
    }
    for (uint32_t i = 0; i < d->heads; i++)
        all[i] = i / (d->heads / d->kv_heads);
    fl_value value = fl_graph_ints(g, all, d->heads);
    fl_free(all);
    return value;
}

static void prepare_rules(fl_graph *g) {
    fl_value mask = {""};
    if (g->masked && !g->fused)
        mask = mask_bias(g);
    for (size_t i = 0; i < FL_RULES_MAX && g->status == FLETCH_OK; i++) {
        const fl_distance *rule = &g->desc->distance[i];
        g->bias[i] = is_plain(g, rule) ? mask : with_mask(g, relative_bias(g, rule, 0), mask);
        if (g->desc->rope[i].dims > 0)
            prepare_rope(g, i);
    }
}

void fl_graph_attention_prepare(fl_graph *g) {
    const fl_encoder_desc *d = g->desc;
    if (g->status < 0)
        return;
    prepare_rules(g);
    if (fl_relative_span(d) > 0)
        prepare_relative(g);
    if (g->fused && g->masked) {
        fl_value lengths =
            fl_graph_op2(g, "ReduceSum", g->mask, fl_graph_ints(g, (int64_t[]){1}, 1));
        lengths    = fl_graph_op2(g, "Reshape", lengths, fl_graph_ints(g, (int64_t[]){-1}, 1));
        g->lengths = fl_graph_cast(g, lengths, ONNX_I32);
    }
    if (!g->fused || fl_relative_span(d) > 0)
        g->scale = fl_graph_narrow(g, fl_graph_real(g, d->attention_scale));
    g->heads4 =
        fl_graph_concat(g, g->shape, fl_graph_ints(g, (int64_t[]){d->heads, d->head_dim}, 2));
    g->kv4 = g->heads4;
    if (d->kv_heads != d->heads) {
        g->kv4   = fl_graph_concat(g, g->shape,
                                   fl_graph_ints(g, (int64_t[]){d->kv_heads, d->head_dim}, 2));
        g->kv_of = kv_of(g);
    }
}

/* Dimensions [from, to) of heads [batch, sequence, heads, head_dim]. */
static fl_value dims_of(fl_graph *g, fl_value x, int64_t from, int64_t to) {
    fl_operator slice = {.kind = "Slice",
                         .in   = {x, fl_graph_ints(g, &from, 1), fl_graph_ints(g, &to, 1),
                                  fl_graph_ints(g, (int64_t[]){3}, 1)}};
    return fl_graph_op(g, &slice);
}

static fl_value turn(fl_graph *g, fl_value x, size_t rule) {
    int64_t     dims = g->desc->rope[rule].dims, all = g->desc->head_dim;
    fl_value    c = g->cosine[rule], s = g->sine[rule];
    fl_value    a = dims_of(g, x, 0, dims / 2), b = dims_of(g, x, dims / 2, dims);
    fl_operator join = {.kind = "Concat", .attribute = {FL_INT("axis", 3)}};
    join.in[0] = fl_graph_op2(g, "Sub", fl_graph_op2(g, "Mul", a, c), fl_graph_op2(g, "Mul", b, s));
    join.in[1] = fl_graph_op2(g, "Add", fl_graph_op2(g, "Mul", b, c), fl_graph_op2(g, "Mul", a, s));
    if (dims < all)
        join.in[2] = dims_of(g, x, dims, all);
    return fl_graph_op(g, &join);
}

/* q or k: normed and turned head by head; k and v: a copy for every query head. The result has four axes
 * where one of these was to be done. */
static fl_value heads_of(fl_graph *g, uint32_t layer, fl_value x, fl_layer_slot norm, bool query) {
    const fl_encoder_desc *d       = g->desc;
    const fl_layer_desc   *l       = &d->layer[layer];
    bool                   grouped = !query && d->kv_heads != d->heads;
    bool                   value = norm == FL_LAYER_V_W, normed = !value && d->qk_norm != 0;
    if (!grouped && !normed && (value || l->rope == 0))
        return x;
    x = fl_graph_op2(g, "Reshape", x, query ? g->heads4 : g->kv4);
    if (normed)
        x = fl_graph_norm(g, d->norm, x, &g->encoder->layer[layer][norm], d->head_dim,
                          "query or key norm");
    if (!value && l->rope > 0)
        x = turn(g, x, l->rope - 1U);
    return grouped ? fl_graph_gather(g, x, g->kv_of, 2) : x;
}

static fl_value fused(fl_graph *g, fl_value bias, fl_value q, fl_value k, fl_value v) {
    fl_operator op  = {.kind = "MultiHeadAttention", .contrib = true};
    op.in[0]        = fl_graph_op2(g, "Reshape", q, g->inner3);
    op.in[1]        = fl_graph_op2(g, "Reshape", k, g->inner3);
    op.in[2]        = fl_graph_op2(g, "Reshape", v, g->inner3);
    op.in[4]        = g->lengths; /* in[3], a bias of q, k, v, was added by their products */
    op.in[5]        = bias;
    op.attribute[0] = (fl_attribute)FL_INT("num_heads", g->desc->heads);
    op.attribute[1] = (fl_attribute)FL_REAL("scale", g->desc->attention_scale);
    return fl_graph_op(g, &op);
}

static fl_value plain(fl_graph *g, fl_value bias, fl_value q, fl_value k, fl_value v) {
    q              = fl_graph_transpose(g, fl_graph_op2(g, "Reshape", q, g->heads4), 0, 2, 1, 3);
    k              = fl_graph_transpose(g, fl_graph_op2(g, "Reshape", k, g->heads4), 0, 2, 3, 1);
    v              = fl_graph_transpose(g, fl_graph_op2(g, "Reshape", v, g->heads4), 0, 2, 1, 3);
    fl_value score = fl_graph_op2(g, "Mul", fl_graph_op2(g, "MatMul", q, k), g->scale);
    if (g->desc->score_cap > 0) {
        fl_value cap = fl_graph_narrow(g, fl_graph_real(g, g->desc->score_cap));
        score        = fl_graph_op1(g, "Tanh", fl_graph_op2(g, "Div", score, cap));
        score        = fl_graph_op2(g, "Mul", score, cap);
    }
    if (bias.name[0] != '\0')
        score = fl_graph_op2(g, "Add", score, bias);
    fl_operator softmax = {.kind = "Softmax", .in = {score}, .attribute = {FL_INT("axis", -1)}};
    fl_value    context = fl_graph_op2(g, "MatMul", fl_graph_op(g, &softmax), v);
    return fl_graph_transpose(g, context, 0, 2, 1, 3);
}

/* [batch, heads, sequence, sequence]: x (q or k) times what a projection of the table has for their distance. */
static fl_value by_distance(fl_graph *g, uint32_t layer, fl_value x, fl_layer_slot projection,
                            fl_value place) {
    const fl_encoder_desc *d    = g->desc;
    const int64_t          rows = (int64_t)fl_relative_rows(d);
    fl_value table = fl_graph_linear(g, g->encoder->layer[layer], (int)projection, g->relative,
                                     fl_q_width(d), d->hidden, "relative position");
    table          = fl_graph_op2(g, "Reshape", table,
                                  fl_graph_ints(g, (int64_t[]){1, rows, d->heads, d->head_dim}, 4));
    table          = fl_graph_transpose(g, table, 0, 2, 3, 1);
    x              = fl_graph_transpose(g, fl_graph_op2(g, "Reshape", x, g->heads4), 0, 2, 1, 3);
    x              = fl_graph_op2(g, "Reshape", fl_graph_op2(g, "MatMul", x, table),
                                  fl_graph_ints(g, (int64_t[]){0, 0, -1}, 3));
    return fl_graph_gather(g, x, place, 2);
}

/* What DeBERTa adds to the scores of a layer. */
static fl_value disentangled(fl_graph *g, uint32_t layer, fl_value mask, fl_value q, fl_value k) {
    const bool shared = g->desc->relative_shared;
    fl_value   bias   = fl_graph_op2(
            g, "Add",
            by_distance(g, layer, q, shared ? FL_LAYER_K_W : FL_LAYER_RELATIVE_K_W, g->of_query),
            by_distance(g, layer, k, shared ? FL_LAYER_Q_W : FL_LAYER_RELATIVE_Q_W, g->of_key));
    bias = fl_graph_op2(g, "Mul", bias, g->scale);
    return with_mask(g, bias, mask);
}

fl_value fl_graph_attention(fl_graph *g, uint32_t layer, fl_value q, fl_value k, fl_value v) {
    const uint8_t      which = g->desc->layer[layer].distance;
    const fl_distance *rule  = &g->desc->distance[which];
    fl_value           bias  = g->bias[which];
    if (fl_t5_by_layer(g->desc, rule))
        bias = with_mask(g, relative_bias(g, rule, layer), bias);
    if (fl_relative_span(g->desc) > 0)
        bias = disentangled(g, layer, bias, q, k);
    q                = heads_of(g, layer, q, FL_LAYER_Q_NORM_W, true);
    k                = heads_of(g, layer, k, FL_LAYER_K_NORM_W, false);
    v                = heads_of(g, layer, v, FL_LAYER_V_W, false);
    fl_value context = g->fused ? fused(g, bias, q, k, v) : plain(g, bias, q, k, v);
    return fl_graph_op2(g, "Reshape", context, g->inner2);
}
