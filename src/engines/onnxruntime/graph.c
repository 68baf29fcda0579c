/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - an ONNX graph of the encoder, built in memory from its descriptor.
 *
 *     x = LN(word[id] + position[i] (+ type[0]))
 *     layers times:  x = LN(x + Wo attention(x));  x = LN(x + W2 act(W1 x))
 *     pooled rows
 *
 * Role    Any folder that fletch reads runs on any provider of ONNX Runtime, with no exported file
 *         and no Python. session.c makes a session of the model.
 * Method  Between the blocks x is flat, [batch * sequence, hidden], so that every linear layer is
 *         one Gemm with transB: it takes weights [out, in] as the files have them, carries the bias,
 *         and every provider has it. graph_attention.c chooses between fused and standard operators;
 *         the rest is standard (opset 20) and left for ONNX Runtime's optimiser and the providers.
 *         SkipLayerNormalization is not used: on the CPU it is slower than Add and
 *         LayerNormalization.
 * Half    With provider.precision fp16 tables, layers and norms are half precision; ids go in, and
 *         pooling and rows are, as float32 ever. LayerNormalization sums in float32 by itself.
 * Refusal A switch of the descriptor that is not expressed here is refused by name.
 * Memory  Weights stay in the mapped files (graph_build.c).
 * Threads A graph belongs to one caller.
 * Proof   tests/golden/test_onnx_graph.py, tests/unit/test_onnx_graph.c; bench/onnx_graph.py. */
#include "engines/onnxruntime/graph.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"

enum { OPSET = 20, CONTRIB_OPSET = 1 };

static const char output_name[] = "sentence_embedding";

/* ---- Checks ------------------------------------------------------------------------------------- */

static void check(fl_graph *g) {
    const fl_encoder_desc *d = g->desc;
    const struct {
        bool        is;
        const char *what;
    } refused[] = {
        {d->norm != FL_NORM_LAYER, "RMS norms"},
        {d->norm_place != FL_NORM_POST, "norms in front of the blocks (pre-norm)"},
        {d->kv_heads != d->heads, "fewer key than query heads (grouped-query attention)"},
        {d->attention_mask != FL_MASK_FULL, "causal attention"},
        {d->attention_bias == FL_BIAS_ALIBI, "ALiBi"},
        {d->mlp != FL_MLP_PLAIN, "gated MLPs"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (refused[i].is)
            fl_graph_fail(g, FLETCH_EUNSUPPORTED,
                          "the graph for onnxruntime does not handle %s yet (architecture %s); use "
                          "provider.engine native, or a folder with an .onnx file",
                          refused[i].what, d->architecture ? d->architecture : "unknown");
    }
    if (g->status == FLETCH_OK)
        g->status = fl_encoder_check_sizes(d, g->error);
}

/* ---- Inputs and outputs ------------------------------------------------------------------------- */

static bool good(fl_graph *g, OrtStatus *status, const char *what) {
    int code  = fl_ort_check(g->ort, status, FLETCH_EPROVIDER, g->error, what);
    g->status = g->status < 0 ? g->status : code;
    return code == FLETCH_OK;
}

/* A value of the graph's edge: [batch, second], [batch, columns] or [batch]. */
static OrtValueInfo *edge(fl_graph *g, const char *name, ONNXTensorElementDataType type,
                          const char *second, int64_t columns) {
    const fl_ort_api          *api        = &g->ort->api;
    OrtTensorTypeAndShapeInfo *info       = NULL;
    OrtTypeInfo               *kind       = NULL;
    OrtValueInfo              *made       = NULL;
    size_t                     rank       = second != NULL || columns > 0 ? 2 : 1;
    int64_t                    shape[2]   = {-1, columns > 0 ? columns : -1};
    const char                *symbols[2] = {"batch", second != NULL ? second : ""};
    if (g->status == FLETCH_OK && good(g, api->CreateTensorTypeAndShapeInfo(&info), name) &&
        good(g, api->SetTensorElementType(info, type), name) &&
        good(g, api->SetDimensions(info, shape, rank), name) &&
        good(g, api->SetSymbolicDimensions(info, symbols, rank), name) &&
        good(g, g->ort->editor.CreateTensorTypeInfo(info, &kind), name))
        good(g, g->ort->editor.CreateValueInfo(name, kind, &made), name);
    if (kind != NULL)
        api->ReleaseTypeInfo(kind);
    if (info != NULL)
        api->ReleaseTensorTypeAndShapeInfo(info);
    return made;
}

static void set_edges(fl_graph *g) {
    OrtValueInfo *inputs[]  = {edge(g, "input_ids", ONNX_I64, "sequence", 0),
                               edge(g, "attention_mask", ONNX_I64, "sequence", 0),
                               edge(g, "pool_skip", ONNX_I64, NULL, 0)};
    OrtValueInfo *outputs[] = {
        edge(g, output_name, ONNX_F32, NULL, (int64_t)fl_encoder_width(g->encoder))};
    if (g->status == FLETCH_OK)
        good(g, g->ort->editor.SetGraphInputs(g->graph, inputs, 3), "inputs of the graph");
    if (g->status == FLETCH_OK)
        good(g, g->ort->editor.SetGraphOutputs(g->graph, outputs, 1), "outputs of the graph");
    for (size_t i = 0; i < 3; i++) { /* what the graph took is NULL by now */
        if (inputs[i] != NULL)
            g->ort->api.ReleaseValueInfo(inputs[i]);
    }
    if (outputs[0] != NULL)
        g->ort->api.ReleaseValueInfo(outputs[0]);
}

/* 0, 1, 2 … up to the sequence's length */
static fl_value places(fl_graph *g) {
    int64_t *all = fl_alloc_array(g->longest, sizeof *all);
    if (all == NULL) {
        g->status = fl_fail_nomem(g->error, g->longest * sizeof *all, "a table of places");
        return (fl_value){""};
    }
    for (uint32_t i = 0; i < g->longest; i++) {
        all[i] = i;
    }
    fl_value table = fl_graph_ints(g, all, g->longest);
    fl_free(all);
    return fl_graph_head(g, table, g->length);
}

/* Values that several parts use. */
static void prepare(fl_graph *g, uint32_t max_length) {
    const fl_encoder_desc *d      = g->desc;
    int64_t                hidden = d->hidden, inner = (int64_t)d->heads * d->head_dim;
    if (g->status < 0)
        return;
    for (g->longest = 1; g->longest < max_length || g->longest < d->positions;) {
        g->longest *= 2; /* providers that compile per shape pad up to a power of two */
    }
    fl_operator length = {.kind      = "Shape",
                          .in        = {fl_graph_input("input_ids")},
                          .attribute = {FL_INT("start", 1), FL_INT("end", 2)}};
    g->ids             = fl_graph_input("input_ids");
    g->mask            = fl_graph_input("attention_mask");
    g->skip            = fl_graph_input("pool_skip");
    g->mask_real       = fl_graph_cast(g, g->mask, ONNX_F32);
    g->shape           = fl_graph_op1(g, "Shape", g->ids);
    g->length          = fl_graph_op(g, &length);
    g->places          = places(g);
    g->hidden3         = fl_graph_concat(g, g->shape, fl_graph_ints(g, &hidden, 1));
    g->hidden2         = fl_graph_ints(g, (int64_t[]){-1, hidden}, 2);
    g->inner3          = g->hidden3;
    g->inner2          = g->hidden2;
    if (inner != hidden) {
        g->inner3 = fl_graph_concat(g, g->shape, fl_graph_ints(g, &inner, 1));
        g->inner2 = fl_graph_ints(g, (int64_t[]){-1, inner}, 2);
    }
}

/* ---- The encoder -------------------------------------------------------------------------------- */

static fl_value norm(fl_graph *g, fl_value x, const fl_tensor *w, const fl_tensor *b,
                     const char *what) {
    uint64_t    hidden = g->desc->hidden;
    fl_weight   scale  = {.tensor = w, .columns = hidden, .what = what};
    fl_weight   shift  = {.tensor = b, .columns = hidden, .optional = true, .what = what};
    fl_operator op     = {.kind      = "LayerNormalization",
                          .attribute = {FL_INT("axis", -1), FL_REAL("epsilon", g->desc->norm_eps)}};
    op.in[0]           = x;
    op.in[1]           = fl_graph_weight_real(g, &scale);
    op.in[2]           = fl_graph_weight_real(g, &shift);
    return fl_graph_op(g, &op);
}

/* In the graph's type; what the files have in another is converted row by row, after it is looked
 * up. */
static fl_value convert(fl_graph *g, const fl_weight *table, fl_value rows) {
    fl_dtype same = g->real == ONNX_F16 ? FL_DTYPE_F16 : FL_DTYPE_F32;
    return table->tensor->dtype == same ? rows : fl_graph_cast(g, rows, g->real);
}

static fl_value look_up(fl_graph *g, const fl_weight *table, fl_value rows) {
    return convert(g, table, fl_graph_gather(g, fl_graph_weight(g, table), rows, 0));
}

/* The place of each token, [batch, sequence], where a literal pad token takes row pad_token and
 * does not count (RoBERTa, MPNet). */
static fl_value counted(fl_graph *g) {
    const fl_encoder_desc *d    = g->desc;
    fl_value               pad  = fl_graph_op2(g, "Equal", g->ids, fl_graph_int(g, d->pad_token));
    fl_value               ones = fl_graph_cast(g, fl_graph_op1(g, "Not", pad), ONNX_I64);
    fl_value               upto = fl_graph_op2(g, "CumSum", ones, fl_graph_int(g, 1));
    fl_value row = fl_graph_op2(g, "Add", upto, fl_graph_int(g, (int64_t)d->position_offset - 1));
    return fl_graph_op3(g, "Where", pad, fl_graph_int(g, d->pad_token), row);
}

/* Position rows: [sequence, hidden], or [batch, sequence, hidden] where the tokens decide. Padding
 * up to a fixed shape may reach past the table: it is given the last row. */
static fl_value positions(fl_graph *g) {
    const fl_encoder_desc *d     = g->desc;
    fl_weight              table = {.tensor  = &g->encoder->global[FL_SLOT_POSITION],
                                    .first   = d->position_skips_pad ? 0 : d->position_offset,
                                    .columns = d->hidden,
                                    .what    = "position"};
    table.rows                   = (uint64_t)d->positions + d->position_offset - table.first;
    if (!g->masked && !d->position_skips_pad)
        return convert(g, &table, fl_graph_head(g, fl_graph_weight(g, &table), g->length));
    fl_value row = d->position_skips_pad ? counted(g) : g->places;
    return look_up(g, &table,
                   fl_graph_op2(g, "Min", row, fl_graph_int(g, (int64_t)table.rows - 1)));
}

/* [batch * sequence, hidden] */
static fl_value embed(fl_graph *g) {
    const fl_encoder_desc *d      = g->desc;
    const fl_tensor       *global = g->encoder->global;
    const fl_tensor       *words  = &global[FL_SLOT_WORD];
    fl_weight word = {.tensor = words, .rows = d->vocab, .columns = d->hidden, .what = "word"};
    fl_weight type = {.tensor  = &global[FL_SLOT_TYPE], /* row 0 for every token */
                      .columns = d->hidden,
                      .what    = "token type"};
    fl_value  x = look_up(g, &word, g->ids), place = {""}, kind = {""};
    if (d->position == FL_POSITION_LEARNED)
        place = positions(g);
    if (d->token_type)
        kind = fl_graph_weight_real(g, &type);
    if (place.name[0] != '\0' && kind.name[0] != '\0') { /* the smaller sum first */
        place = fl_graph_op2(g, "Add", place, kind);
    } else if (kind.name[0] != '\0') {
        place = kind;
    }
    if (place.name[0] != '\0')
        x = fl_graph_op2(g, "Add", x, place);
    if (global[FL_SLOT_EMBED_NORM_W].data != NULL)
        x = norm(g, x, &global[FL_SLOT_EMBED_NORM_W], &global[FL_SLOT_EMBED_NORM_B],
                 "embedding norm");
    return fl_graph_op2(g, "Reshape", x, g->hidden2);
}

/* x Wᵀ + b; the bias's slot follows the weight's */
static fl_value linear(fl_graph *g, const fl_tensor *slots, fl_layer_slot w, fl_value x,
                       uint64_t out, uint64_t in, const char *what) {
    fl_weight   weight = {.tensor = &slots[w], .rows = out, .columns = in, .what = what};
    fl_weight   bias   = {.tensor = &slots[w + 1], .columns = out, .optional = true, .what = what};
    fl_operator op     = {.kind = "Gemm", .attribute = {FL_INT("transB", 1)}};
    op.in[0]           = x;
    op.in[1]           = fl_graph_weight_real(g, &weight);
    op.in[2]           = fl_graph_weight_real(g, &bias);
    return fl_graph_op(g, &op);
}

static fl_value activation(fl_graph *g, fl_value x) {
    fl_operator gelu = {.kind = "Gelu", .in = {x}};
    switch (g->desc->activation) {
    case FL_ACT_RELU: return fl_graph_op1(g, "Relu", x);
    case FL_ACT_SILU: return fl_graph_op2(g, "Mul", x, fl_graph_op1(g, "Sigmoid", x));
    case FL_ACT_GELU_TANH:
        gelu.attribute[0] =
            (fl_attribute){.name = "approximate", .kind = ORT_OP_ATTR_STRING, .s = "tanh"};
        break;
    case FL_ACT_GELU_ERF: break;
    }
    return fl_graph_op(g, &gelu);
}

static fl_value layer(fl_graph *g, const fl_tensor *slots, fl_value x) {
    const fl_encoder_desc *d = g->desc;
    uint64_t hidden = d->hidden, inner = (uint64_t)d->heads * d->head_dim, mlp = d->intermediate;
    fl_value q    = linear(g, slots, FL_LAYER_Q_W, x, inner, hidden, "query");
    fl_value k    = linear(g, slots, FL_LAYER_K_W, x, inner, hidden, "key");
    fl_value v    = linear(g, slots, FL_LAYER_V_W, x, inner, hidden, "value");
    fl_value seen = fl_graph_attention(g, q, k, v);
    fl_value out  = linear(g, slots, FL_LAYER_O_W, seen, hidden, inner, "attention output");
    x             = norm(g, fl_graph_op2(g, "Add", x, out), &slots[FL_LAYER_ATTENTION_NORM_W],
                         &slots[FL_LAYER_ATTENTION_NORM_B], "attention norm");
    fl_value up   = linear(g, slots, FL_LAYER_UP_W, x, mlp, hidden, "MLP's first");
    fl_value down =
        linear(g, slots, FL_LAYER_DOWN_W, activation(g, up), hidden, mlp, "MLP's second");
    return norm(g, fl_graph_op2(g, "Add", x, down), &slots[FL_LAYER_MLP_NORM_W],
                &slots[FL_LAYER_MLP_NORM_B], "MLP norm");
}

static void build(fl_graph *g, const fl_engine_options *options) {
    set_edges(g);
    prepare(g, options->max_length);
    fl_graph_attention_prepare(g);
    fl_value x = embed(g);
    for (uint32_t i = 0; i < g->desc->layers && g->status == FLETCH_OK; i++) {
        x = layer(g, g->encoder->layer[i], x);
        if (g->status < 0)
            fl_error_prefix(g->error, "layer %u", i);
    }
    if (g->desc->final_norm)
        x = norm(g, x, &g->encoder->global[FL_SLOT_FINAL_NORM_W],
                 &g->encoder->global[FL_SLOT_FINAL_NORM_B], "final norm");
    if (g->real != ONNX_F32)
        x = fl_graph_cast(g, x, ONNX_F32); /* sums over a text go beyond half precision */
    fl_graph_pool(g, x, output_name);
}

/* ---- The model ---------------------------------------------------------------------------------- */

int fl_ort_graph_build(const fl_ort *ort, const fl_encoder *encoder,
                       const fl_engine_options *options, fl_ort_graph *out, fletch_error *error) {
    static const char *const domains[] = {"", "com.microsoft"};
    static const int         opsets[]  = {OPSET, CONTRIB_OPSET};
    *out                               = (fl_ort_graph){.model = NULL};
    bool     cpu                       = strcmp(options->provider, "cpu") == 0;
    fl_graph g = {.ort = ort, .encoder = encoder, .desc = &encoder->desc, .error = error};
    g.fused    = cpu || strcmp(options->provider, "cuda") == 0;
    g.masked   = !cpu;
    g.real =
        options->precision != NULL && strcmp(options->precision, "fp16") == 0 ? ONNX_F16 : ONNX_F32;
    check(&g);
    if (g.status < 0 || !good(&g, ort->editor.CreateGraph(&g.graph), "onnxruntime, a new graph"))
        return g.status;
    build(&g, options);
    OrtModel *model = NULL;
    if (g.status == FLETCH_OK)
        good(&g, ort->editor.CreateModel(domains, opsets, 2, &model), "onnxruntime, a new model");
    if (g.status == FLETCH_OK &&
        good(&g, ort->editor.AddGraphToModel(model, g.graph), "onnxruntime, adding the graph")) {
        out->model = model;
        out->masks = g.masked;
        return FLETCH_OK;
    }
    if (model != NULL)
        ort->api.ReleaseModel(model);
    ort->api.ReleaseGraph(g.graph);
    return g.status;
}

void fl_ort_graph_free(const fl_ort *ort, fl_ort_graph *graph) {
    if (graph->model != NULL)
        ort->api.ReleaseModel(graph->model);
    graph->model = NULL;
}

void fl_ort_graph_settle(const fl_encoder *encoder) {
    static const fl_layer_slot matrices[] = {FL_LAYER_Q_W, FL_LAYER_K_W,  FL_LAYER_V_W,
                                             FL_LAYER_O_W, FL_LAYER_UP_W, FL_LAYER_DOWN_W};
    for (uint32_t i = 0; i < encoder->desc.layers; i++) {
        for (size_t m = 0; m < sizeof matrices / sizeof *matrices; m++) {
            const fl_tensor *w = &encoder->layer[i][matrices[m]];
            if (w->mapped)
                fl_pages_release(w->data, w->bytes);
        }
    }
}
