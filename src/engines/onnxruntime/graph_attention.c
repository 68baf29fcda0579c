/* SPDX-License-Identifier: Apache-2.0 */
/* graph_attention.c - attention as nodes: one fused operator where there is one, else the formula.
 *
 * In/Out  q, k, v [batch * sequence, heads * head_dim] -> the context, the same shape.
 * Method  cpu and cuda have com.microsoft.MultiHeadAttention: three times fewer nodes, no score
 *         matrix written out where nothing is added to the scores. Other providers get the standard
 *         operators, which every one of them compiles:
 *             softmax(scale q kᵀ + bias) v
 *         What is added to the scores is the same for all layers and computed once: the relative
 *         position bias (MPNet) and the mask of padding.
 * Mask    On the cpu provider texts of a run are equally long (graph->masked is false): without a
 *         mask the operator takes its tiled path, 4 to 8 % faster on long texts. cuda is given
 *         each text's length. Elsewhere the mask is added as -65504, the most that still fits a
 *         half-precision number.
 * Bias    The bucket of a distance is one table, spread out here by distance:
 *         wide[h, j - i + reach]; the graph gathers [heads, sequence, sequence] from it.
 * Memory  The wide table: heads * (2 longest - 1) floats, copied into the graph.
 * Threads A graph belongs to one caller. Proof: tests/golden/test_onnx_graph.py. */
#include "base/error.h"
#include "base/mem.h"
#include "engines/onnxruntime/graph.h"
#include "model/buckets.h"

static const float masked_out = -65504.0f;

static fl_value unsqueeze(fl_graph *g, fl_value a, int64_t axis) {
    return fl_graph_op2(g, "Unsqueeze", a, fl_graph_ints(g, &axis, 1));
}

/* The bias by distance: [heads, 2 longest - 1] float32. */
static fl_value wide_table(fl_graph *g) {
    const fl_encoder_desc *d     = g->desc;
    const fl_tensor       *table = &g->encoder->global[FL_SLOT_ATTENTION_BIAS];
    size_t                 width = 2 * (size_t)g->longest - 1;
    const fl_weight        read  = {.tensor  = table,
                                    .rows    = d->bias_buckets,
                                    .columns = d->heads,
                                    .what    = "relative attention bias"};
    if (!fl_graph_weight_check(g, &read))
        return (fl_value){""};
    float *wide = fl_alloc_array(width * d->heads, sizeof *wide);
    if (wide == NULL) {
        g->status = fl_fail_nomem(g->error, width * d->heads * sizeof *wide, "the attention bias");
        return (fl_value){""};
    }
    for (size_t i = 0; i < width; i++) {
        ptrdiff_t distance = (ptrdiff_t)i - ((ptrdiff_t)g->longest - 1);
        uint64_t  row      = fl_t5_bucket(distance, d->bias_buckets, d->bias_max_distance);
        for (size_t head = 0; head < d->heads; head++) {
            fl_tensor_to_f32(table, row * d->heads + head, 1, &wide[head * width + i]);
        }
    }
    fl_value value = fl_graph_reals(g, wide, (int64_t[]){d->heads, (int64_t)width}, 2);
    fl_free(wide);
    return value;
}

/* [1, heads, sequence, sequence] */
static fl_value relative_bias(fl_graph *g) {
    fl_value key      = unsqueeze(g, g->places, 0); /* [1, sequence] */
    fl_value query    = unsqueeze(g, g->places, 1); /* [sequence, 1] */
    fl_value distance = fl_graph_op2(g, "Sub", key, query);
    fl_value column   = fl_graph_op2(g, "Add", distance, fl_graph_int(g, (int64_t)g->longest - 1));
    return unsqueeze(g, fl_graph_gather(g, fl_graph_narrow(g, wide_table(g)), column, 1), 0);
}

/* [batch, 1, 1, sequence]: 0, or masked_out where there is padding */
static fl_value mask_bias(fl_graph *g) {
    fl_value padding = fl_graph_op2(g, "Sub", fl_graph_real(g, 1.0f), g->mask_real);
    fl_value added   = fl_graph_op2(g, "Mul", padding, fl_graph_real(g, masked_out));
    return fl_graph_narrow(
        g, fl_graph_op2(g, "Unsqueeze", added, fl_graph_ints(g, (int64_t[]){1, 2}, 2)));
}

void fl_graph_attention_prepare(fl_graph *g) {
    const fl_encoder_desc *d = g->desc;
    if (d->attention_bias == FL_BIAS_T5_BUCKETS && g->status == FLETCH_OK) {
        g->bias = relative_bias(g);
    }
    if (g->fused && g->masked) {
        fl_value lengths =
            fl_graph_op2(g, "ReduceSum", g->mask, fl_graph_ints(g, (int64_t[]){1}, 1));
        lengths    = fl_graph_op2(g, "Reshape", lengths, fl_graph_ints(g, (int64_t[]){-1}, 1));
        g->lengths = fl_graph_cast(g, lengths, ONNX_I32);
    }
    if (g->fused)
        return;
    if (g->masked) {
        fl_value mask = mask_bias(g);
        g->bias       = g->bias.name[0] == '\0' ? mask : fl_graph_op2(g, "Add", g->bias, mask);
    }
    g->scale = fl_graph_narrow(g, fl_graph_real(g, d->attention_scale));
    g->heads4 =
        fl_graph_concat(g, g->shape, fl_graph_ints(g, (int64_t[]){d->heads, d->head_dim}, 2));
}

static fl_value fused(fl_graph *g, fl_value q, fl_value k, fl_value v) {
    fl_operator op  = {.kind = "MultiHeadAttention", .contrib = true};
    op.in[0]        = fl_graph_op2(g, "Reshape", q, g->inner3);
    op.in[1]        = fl_graph_op2(g, "Reshape", k, g->inner3);
    op.in[2]        = fl_graph_op2(g, "Reshape", v, g->inner3);
    op.in[4]        = g->lengths; /* in[3], a bias of q, k, v, was added by their products */
    op.in[5]        = g->bias;
    op.attribute[0] = (fl_attribute)FL_INT("num_heads", g->desc->heads);
    op.attribute[1] = (fl_attribute)FL_REAL("scale", g->desc->attention_scale);
    return fl_graph_op(g, &op);
}

static fl_value plain(fl_graph *g, fl_value q, fl_value k, fl_value v) {
    q              = fl_graph_transpose(g, fl_graph_op2(g, "Reshape", q, g->heads4), 0, 2, 1, 3);
    k              = fl_graph_transpose(g, fl_graph_op2(g, "Reshape", k, g->heads4), 0, 2, 3, 1);
    v              = fl_graph_transpose(g, fl_graph_op2(g, "Reshape", v, g->heads4), 0, 2, 1, 3);
    fl_value score = fl_graph_op2(g, "Mul", fl_graph_op2(g, "MatMul", q, k), g->scale);
    if (g->bias.name[0] != '\0')
        score = fl_graph_op2(g, "Add", score, g->bias);
    fl_operator softmax = {.kind = "Softmax", .in = {score}, .attribute = {FL_INT("axis", -1)}};
    fl_value    context = fl_graph_op2(g, "MatMul", fl_graph_op(g, &softmax), v);
    return fl_graph_transpose(g, context, 0, 2, 1, 3);
}

fl_value fl_graph_attention(fl_graph *g, fl_value q, fl_value k, fl_value v) {
    fl_value context = g->fused ? fused(g, q, k, v) : plain(g, q, k, v);
    return fl_graph_op2(g, "Reshape", context, g->inner2);
}
