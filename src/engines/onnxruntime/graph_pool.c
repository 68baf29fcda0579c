/* SPDX-License-Identifier: Apache-2.0 */
/* graph_pool.c - pooling as nodes, so that only [batch, width] comes back from the device.
 *
 * In/Out  x [batch * sequence, hidden] -> [batch, hidden * modes], the modes side by side in the
 *         folder's order.
 * Method  The six ways of sentence-transformers, as model/pool_rows.c has them: `keep` is 1 for a token
 *         that counts, 0 for padding and for the first `skip` tokens of a text. Sums are products
 *         keep · x; single rows are gathered from the flat x. A text that is all masked gives 0
 *         (max: -1e9).
 * Memory  none of ours. Threads: a graph belongs to one caller.
 * Proof   tests/golden/test_onnx_graph.py against sentence-transformers' vectors. */
#include "engines/onnxruntime/graph.h"

/* What the modes share. Each is made when it is first asked for: small nodes cost as much as a
 * matrix product on a text of a few tokens. */
typedef struct pool {
    fl_value x;      /* [batch * sequence, hidden] */
    fl_value x3;     /* [batch, sequence, hidden] */
    fl_value keep;   /* [batch, sequence] float32 */
    fl_value tokens; /* [batch] of each text */
    fl_value any;    /* [batch] bool: tokens are left */
    fl_value first;  /* [batch] row of a text's first token in x */
} pool;

static bool missing(fl_value value) {
    return value.name[0] == '\0';
}

static fl_value axes(fl_graph *g, int64_t axis) {
    return fl_graph_ints(g, &axis, 1);
}

static fl_value reduce(fl_graph *g, const char *kind, fl_value a, int64_t keep_dimension) {
    return fl_graph_op(g, &(fl_operator){.kind      = kind,
                                         .in        = {a, axes(g, 1)},
                                         .attribute = {FL_INT("keepdims", keep_dimension)}});
}

static void need_sums(fl_graph *g, pool *p) {
    if (!missing(p->keep))
        return;
    fl_value head   = fl_graph_op2(g, "Unsqueeze", g->skip, axes(g, 1));
    fl_value behind = fl_graph_op2(g, "GreaterOrEqual", g->places, head);
    p->keep         = fl_graph_op2(g, "Mul", fl_graph_cast(g, behind, ONNX_F32), g->mask_real);
    p->x3           = fl_graph_op2(g, "Reshape", p->x, g->hidden3);
}

static void need_rows(fl_graph *g, pool *p) {
    if (!missing(p->first))
        return;
    fl_operator batch = {
        .kind = "Shape", .in = {g->ids}, .attribute = {FL_INT("start", 0), FL_INT("end", 1)}};
    fl_value texts = fl_graph_op2(g, "Squeeze", fl_graph_op(g, &batch), axes(g, 0));
    fl_value index = fl_graph_op3(g, "Range", fl_graph_int(g, 0), texts, fl_graph_int(g, 1));
    p->first       = fl_graph_op2(g, "Mul", index, g->length);
    p->tokens      = reduce(g, "ReduceSum", g->mask, 0);
    p->any         = fl_graph_op2(g, "Greater", p->tokens, g->skip);
}

/* Σ weight x over the tokens: [batch, hidden] */
static fl_value weighted_sum(fl_graph *g, const pool *p, fl_value weight) {
    fl_value rows = fl_graph_op2(g, "Unsqueeze", weight, axes(g, 1)); /* [batch, 1, sequence] */
    return fl_graph_op2(g, "Squeeze", fl_graph_op2(g, "MatMul", rows, p->x3), axes(g, 1));
}

/* Σ weight over the tokens, never 0: [batch, 1] */
static fl_value weights(fl_graph *g, fl_value weight) {
    return fl_graph_op2(g, "Max", reduce(g, "ReduceSum", weight, 1), fl_graph_real(g, 1e-9f));
}

static fl_value row_of(fl_graph *g, const pool *p, fl_value token) {
    return fl_graph_gather(g, p->x, fl_graph_op2(g, "Add", p->first, token), 0);
}

static fl_value maximum(fl_graph *g, const pool *p) {
    fl_value keep = fl_graph_op2(g, "Unsqueeze", fl_graph_cast(g, p->keep, ONNX_BOOL), axes(g, 2));
    return reduce(g, "ReduceMax", fl_graph_op3(g, "Where", keep, p->x3, fl_graph_real(g, -1e9f)),
                  0);
}

static fl_value last_token(fl_graph *g, const pool *p) {
    fl_value last = fl_graph_op2(g, "Sub", p->tokens, fl_graph_int(g, 1));
    fl_value row  = row_of(g, p, fl_graph_op2(g, "Max", last, fl_graph_int(g, 0)));
    fl_value any  = fl_graph_cast(g, p->any, ONNX_F32);
    return fl_graph_op2(g, "Mul", row, fl_graph_op2(g, "Unsqueeze", any, axes(g, 1)));
}

static fl_value cls(fl_graph *g, const pool *p) {
    return row_of(g, p, fl_graph_op3(g, "Where", p->any, g->skip, fl_graph_int(g, 0)));
}

static fl_value pool_one(fl_graph *g, pool *p, fl_pooling mode) {
    if (mode == FL_POOL_CLS || mode == FL_POOL_LAST_TOKEN)
        need_rows(g, p);
    else
        need_sums(g, p);
    switch (mode) {
    case FL_POOL_CLS: return cls(g, p);
    case FL_POOL_MAX: return maximum(g, p);
    case FL_POOL_MEAN:
        return fl_graph_op2(g, "Div", weighted_sum(g, p, p->keep), weights(g, p->keep));
    case FL_POOL_MEAN_SQRT_LEN:
        return fl_graph_op2(g, "Div", weighted_sum(g, p, p->keep),
                            fl_graph_op1(g, "Sqrt", weights(g, p->keep)));
    case FL_POOL_WEIGHTED_MEAN: {
        fl_value place = fl_graph_op2(g, "Add", g->places, fl_graph_int(g, 1));
        fl_value by    = fl_graph_op2(g, "Mul", p->keep, fl_graph_cast(g, place, ONNX_F32));
        return fl_graph_op2(g, "Div", weighted_sum(g, p, by), weights(g, by));
    }
    case FL_POOL_LAST_TOKEN:
    case FL_POOL_COUNT: break;
    }
    return last_token(g, p);
}

void fl_graph_pool(fl_graph *g, fl_value x, const char *output) {
    pool        p    = {.x = x};
    fl_operator join = {.kind = "Concat", .out = output, .attribute = {FL_INT("axis", 1)}};
    for (uint32_t i = 0; i < g->encoder->pooling_count && i < FL_POOL_COUNT; i++)
        join.in[i] = pool_one(g, &p, g->encoder->pooling[i]);
    fl_graph_op(g, &join);
}
