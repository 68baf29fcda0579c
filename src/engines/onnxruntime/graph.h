/* SPDX-License-Identifier: Apache-2.0 */
/* graph.h - a graph under construction: values by name, and the few verbs that add to it.
 *
 * Role    Between graph.c (the encoder), graph_attention.c, graph_pool.c (its parts) and
 *         graph_build.c, which alone speaks to ONNX Runtime's Model Editor.
 * Values  A value is its name in the graph; the empty name is "absent" (an optional input left
 *         out). Names are short and counted, "gemm.12", which is what a profile shows.
 * Errors  The first failure sticks in `status` and *error; every verb after it does nothing and
 *         gives the absent value, so that the building code reads like the formula it builds. */
#ifndef FL_ENGINES_ONNXRUNTIME_GRAPH_H
#define FL_ENGINES_ONNXRUNTIME_GRAPH_H

#include "engines/onnxruntime/ort.h"

enum { FL_GRAPH_INPUTS = 8, FL_GRAPH_ATTRIBUTES = 4, FL_GRAPH_AXES = 4 };

typedef struct fl_value {
    char name[32];
} fl_value;

typedef struct fl_graph {
    const fl_ort             *ort;
    const fl_encoder         *encoder;
    const fl_encoder_desc    *desc;
    OrtGraph                 *graph;
    fletch_error             *error;
    int                       status; /* FLETCH_OK, or the first failure */
    unsigned                  count;  /* of values so far */
    bool                      fused;  /* operators of com.microsoft: the provider is cpu or cuda */
    bool                      masked; /* padding is masked in attention */
    ONNXTensorElementDataType real; /* of what is computed between the tables and pooling: ONNX_F32,
                                       or ONNX_F16 (provider.precision fp16) */
    /* values that several parts use; all int64 where nothing is said */
    fl_value ids, mask, skip; /* [batch, sequence] twice, [batch] */
    fl_value types;           /* with segments: [batch, sequence] */
    fl_value shape;           /* [2] batch, sequence */
    fl_value length;          /* [1] sequence */
    fl_value places;          /* [sequence] 0, 1, 2 … */
    fl_value mask_real;       /* [batch, sequence] float32 */
    fl_value hidden3, inner3; /* shapes: batch, sequence, hidden or heads * head_dim */
    fl_value hidden2, inner2; /* shapes: -1, hidden or heads * head_dim */
    fl_value heads4, kv4;     /* shapes: batch, sequence, heads or kv_heads, head_dim */
    fl_value kv_of;           /* [heads] the key and value head of each query head */
    /* by rule of distance, what is added to the scores: [1 or batch, heads or 1, 1 or sequence,
       sequence]; by RoPE its numbers, [sequence, 1, dims / 2] in the graph's type */
    fl_value bias[FL_RULES_MAX], cosine[FL_RULES_MAX], sine[FL_RULES_MAX];
    fl_value relative; /* DeBERTa: its table, [fl_relative_rows, hidden], normed */
    /* … and the place of query i and key j among sequence * fl_relative_rows products, by query and by key:
       [sequence, sequence] */
    fl_value of_query, of_key;
    fl_value lengths; /* fused and masked: [batch] int32, tokens of a text */
    fl_value scale;   /* unfused: [] float32 */
    uint32_t longest; /* tokens: a power of two that no text, padded or not, goes beyond */
} fl_graph;

/* One attribute; `kind` says which member counts. */
typedef struct fl_attribute {
    const char   *name;
    OrtOpAttrType kind;
    int64_t       i, axes[FL_GRAPH_AXES];
    unsigned      count; /* of axes */
    float         f;
    const char   *s;
} fl_attribute;

typedef struct fl_operator {
    const char  *kind;    /* "Gemm" */
    bool         contrib; /* of com.microsoft */
    const char  *out;     /* name of the value it gives, or NULL for a counted one */
    fl_value     in[FL_GRAPH_INPUTS];
    fl_attribute attribute[FL_GRAPH_ATTRIBUTES];
} fl_operator;

#define FL_INT(key, value)                                                                         \
    { .name = (key), .kind = ORT_OP_ATTR_INT, .i = (value) }
#define FL_REAL(key, value)                                                                        \
    { .name = (key), .kind = ORT_OP_ATTR_FLOAT, .f = (value) }

/* ---- graph_build.c ------------------------------------------------------------------------------ */

fl_value fl_graph_input(const char *name);
/* A node of one output. */
fl_value fl_graph_op(fl_graph *g, const fl_operator *op);
fl_value fl_graph_op1(fl_graph *g, const char *kind, fl_value a);
fl_value fl_graph_op2(fl_graph *g, const char *kind, fl_value a, fl_value b);
fl_value fl_graph_op3(fl_graph *g, const char *kind, fl_value a, fl_value b, fl_value c);
fl_value fl_graph_cast(fl_graph *g, fl_value a, ONNXTensorElementDataType to);
/* Gather `rows` of `table` along `axis`. */
fl_value fl_graph_gather(fl_graph *g, fl_value table, fl_value rows, int64_t axis);
fl_value fl_graph_concat(fl_graph *g, fl_value a, fl_value b);
fl_value fl_graph_transpose(fl_graph *g, fl_value a, int64_t p0, int64_t p1, int64_t p2,
                            int64_t p3);

/* The first `count` ([1] int64) rows of `table`. */
fl_value fl_graph_head(fl_graph *g, fl_value table, fl_value count);

/* Constants, copied into the graph. */
fl_value fl_graph_ints(fl_graph *g, const int64_t *values, unsigned count); /* [count] */
fl_value fl_graph_int(fl_graph *g, int64_t value);                          /* [] */
fl_value fl_graph_real(fl_graph *g, float value);                           /* [] float32 */
fl_value fl_graph_reals(fl_graph *g, const float *values, const int64_t *shape, unsigned rank);

/* Rows [first, first + rows) of a weight [·, columns]; columns alone when rows is 0: a vector. It
 * stays where it is, in the file's own type; `what` names it in errors. Absent when the encoder has
 * none and `optional`. */
typedef struct fl_weight {
    const fl_tensor *tensor;
    uint64_t         first, rows, columns;
    bool             optional;
    const char      *what;
} fl_weight;
fl_value fl_graph_weight(fl_graph *g, const fl_weight *weight);
/* The same in the graph's type: a Cast where the file has another. */
fl_value fl_graph_weight_real(fl_graph *g, const fl_weight *weight);
/* A float32 value in the graph's type. */
fl_value fl_graph_narrow(fl_graph *g, fl_value value);

/* ---- The parts ---------------------------------------------------------------------------------- */

/* graph.c: a norm over the last axis; its bias's slot follows the weight's. */
fl_value fl_graph_norm(fl_graph *g, fl_norm kind, fl_value x, const fl_tensor *weight,
                       uint64_t width, const char *what);

/* graph.c: x Wᵀ + b of two axes; the bias's slot follows the weight's. */
fl_value fl_graph_linear(fl_graph *g, const fl_tensor *slots, int w, fl_value x, uint64_t out,
                         uint64_t in, const char *what);

/* graph_attention.c: what all layers share, and one layer's softmax(q kᵀ scale + bias) v, q and k normed
 * and turned. q and the result are [batch * sequence, heads * head_dim], k and v likewise of kv_heads. */
void     fl_graph_attention_prepare(fl_graph *g);
fl_value fl_graph_attention(fl_graph *g, uint32_t layer, fl_value q, fl_value k, fl_value v);

/* graph_pool.c: x [batch * sequence, hidden] -> the output value [batch, width]. */
void fl_graph_pool(fl_graph *g, fl_value x, const char *output);

#endif
