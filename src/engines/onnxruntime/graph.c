/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - an ONNX graph of the encoder, built in memory from its descriptor.
 *
 *     the formula at the head of model/encoder.h, then pooled rows
 *
 * Role    Any folder that fletch reads runs on any provider of ONNX Runtime, with no exported file
 *         and no Python. ort_session.c makes a session of the model.
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
 * Proof   tests/golden/test_onnx_graph.py, tests/unit/test_onnx_graph.c. */
#include "engines/onnxruntime/graph.h"

#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"

enum { OPSET = 20, CONTRIB_OPSET = 1 };

static const char output_name[] = "sentence_embedding";

/* ---- Checks ------------------------------------------------------------------------------------- */

static const fl_encoder_caps caps = {
    .engine   = "the graph for onnxruntime",
    .instead  = "use provider.engine native, or a folder with an .onnx file",
    .features = FL_CAN(PROJECTION) | FL_CAN(EMBED_SCALE) | FL_CAN(NO_EMBED_NORM) |
                FL_CAN(RMS_NORM) | FL_CAN(PRE_NORM) | FL_CAN(EXTRA_NORM) | FL_CAN(FINAL_NORM) |
                FL_CAN(QK_NORM) | FL_CAN(GROUPED) | FL_CAN(WIDE_HEADS) | FL_CAN(GLU) |
                FL_CAN(QUICK_GELU) | FL_CAN(ROPE) | FL_CAN(CAUSAL) | FL_CAN(WINDOW) | FL_CAN(T5) |
                FL_CAN(LAYER_BIAS) | FL_CAN(ALIBI) | FL_CAN(DISENTANGLED) | FL_CAN(CAPPED) |
                FL_CAN(MIXED_RULES) | FL_CAN(SEGMENTS) | FL_CAN(TASK_TYPE)};

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
    OrtValueInfo *inputs[4] = {edge(g, "input_ids", ONNX_I64, "sequence", 0),
                               edge(g, "attention_mask", ONNX_I64, "sequence", 0),
                               edge(g, "pool_skip", ONNX_I64, NULL, 0)};
    size_t        count     = g->desc->segments ? 4 : 3;
    OrtValueInfo *outputs[] = {
        edge(g, output_name, ONNX_F32, NULL, (int64_t)fl_encoder_width(g->encoder))};
    if (g->desc->segments)
        inputs[3] = edge(g, "token_type_ids", ONNX_I64, "sequence", 0);
    if (g->status == FLETCH_OK)
        good(g, g->ort->editor.SetGraphInputs(g->graph, inputs, count), "inputs of the graph");
    if (g->status == FLETCH_OK)
        good(g, g->ort->editor.SetGraphOutputs(g->graph, outputs, 1), "outputs of the graph");
    for (size_t i = 0; i < count; i++) /* what the graph took is NULL by now */
        if (inputs[i] != NULL)
            g->ort->api.ReleaseValueInfo(inputs[i]);
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
    for (uint32_t i = 0; i < g->longest; i++)
        all[i] = i;
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
    for (g->longest = 1; g->longest < max_length || g->longest < d->positions;)
        g->longest *= 2; /* providers that compile per shape pad up to a power of two */
    fl_operator length = {.kind      = "Shape",
                          .in        = {fl_graph_input("input_ids")},
                          .attribute = {FL_INT("start", 1), FL_INT("end", 2)}};
    g->ids             = fl_graph_input("input_ids");
    g->mask            = fl_graph_input("attention_mask");
    g->skip            = fl_graph_input("pool_skip");
    g->types           = fl_graph_input("token_type_ids");
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

/* x / √(mean of x² + eps), in float32: squares go beyond half precision. */
static fl_value by_root_mean_square(fl_graph *g, fl_value x) {
    x                = g->real == ONNX_F32 ? x : fl_graph_cast(g, x, ONNX_F32);
    fl_operator mean = {.kind = "ReduceMean",
                        .in = {fl_graph_op2(g, "Mul", x, x), fl_graph_ints(g, (int64_t[]){-1}, 1)}};
    fl_value    sum =
        fl_graph_op2(g, "Add", fl_graph_op(g, &mean), fl_graph_real(g, g->desc->norm_eps));
    return fl_graph_narrow(g, fl_graph_op2(g, "Div", x, fl_graph_op1(g, "Sqrt", sum)));
}

fl_value fl_graph_norm(fl_graph *g, fl_norm kind, fl_value x, const fl_tensor *w, uint64_t width,
                       const char *what) {
    fl_weight scale  = {.tensor = w, .columns = width, .what = what};
    fl_weight shift  = {.tensor = w + 1, .columns = width, .optional = true, .what = what};
    fl_value  weight = fl_graph_weight_real(g, &scale);
    if (kind == FL_NORM_RMS_PLUS_ONE)
        weight = fl_graph_op2(g, "Add", weight, fl_graph_narrow(g, fl_graph_real(g, 1.0f)));
    if (kind != FL_NORM_LAYER)
        return fl_graph_op2(g, "Mul", by_root_mean_square(g, x), weight);
    fl_operator op = {.kind      = "LayerNormalization",
                      .in        = {x, weight, fl_graph_weight_real(g, &shift)},
                      .attribute = {FL_INT("axis", -1), FL_REAL("epsilon", g->desc->norm_eps)}};
    return fl_graph_op(g, &op);
}

static fl_value norm(fl_graph *g, fl_value x, const fl_tensor *w, const char *what) {
    return fl_graph_norm(g, g->desc->norm, x, w, g->desc->hidden, what);
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
                                    .columns = d->embedding,
                                    .what    = "position"};
    table.rows                   = (uint64_t)d->positions + d->position_offset - table.first;
    if (!g->masked && !d->position_skips_pad)
        return convert(g, &table, fl_graph_head(g, fl_graph_weight(g, &table), g->length));
    fl_value row = d->position_skips_pad ? counted(g) : g->places;
    return look_up(g, &table,
                   fl_graph_op2(g, "Min", row, fl_graph_int(g, (int64_t)table.rows - 1)));
}

fl_value fl_graph_linear(fl_graph *g, const fl_tensor *slots, int w, fl_value x, uint64_t out,
                         uint64_t in, const char *what) {
    fl_weight   weight = {.tensor = &slots[w], .rows = out, .columns = in, .what = what};
    fl_weight   bias   = {.tensor = &slots[w + 1], .columns = out, .optional = true, .what = what};
    fl_operator op     = {.kind = "Gemm", .attribute = {FL_INT("transB", 1)}};
    op.in[0]           = x;
    op.in[1]           = fl_graph_weight_real(g, &weight);
    op.in[2]           = fl_graph_weight_real(g, &bias);
    return fl_graph_op(g, &op);
}

/* [batch * sequence, hidden] */
static fl_value embed(fl_graph *g) {
    const fl_encoder_desc *d      = g->desc;
    const fl_tensor       *global = g->encoder->global;
    fl_weight              word   = {.tensor  = &global[FL_SLOT_WORD],
                                     .rows    = d->word_rows,
                                     .columns = d->embedding,
                                     .what    = "word"};
    fl_weight              type   = {.tensor  = &global[FL_SLOT_TYPE],
                                     .rows    = d->segments ? 2 : 0, /* 0: row 0 for every token */
                                     .columns = d->embedding,
                                     .what    = "token type"};
    fl_value               x = look_up(g, &word, g->ids), place = {""}, kind = {""};
    if (d->embed_scale != 0.0f && d->embed_scale != 1.0f)
        x = fl_graph_op2(g, "Mul", x, fl_graph_narrow(g, fl_graph_real(g, d->embed_scale)));
    if (d->position == FL_POSITION_LEARNED)
        place = positions(g);
    if (d->token_type)
        kind = d->segments ? look_up(g, &type, g->types) : fl_graph_weight_real(g, &type);
    if (place.name[0] != '\0' && kind.name[0] != '\0') /* the smaller sum first */
        place = fl_graph_op2(g, "Add", place, kind);
    else if (kind.name[0] != '\0')
        place = kind;
    if (d->task_type) {
        fl_weight task = {
            .tensor = &global[FL_SLOT_TASK], .columns = d->embedding, .what = "task type"};
        x = fl_graph_op2(g, "Add", x, fl_graph_weight_real(g, &task));
    }
    if (place.name[0] != '\0')
        x = fl_graph_op2(g, "Add", x, place);
    if (global[FL_SLOT_EMBED_NORM_W].data != NULL)
        x = fl_graph_norm(g, FL_NORM_LAYER, x, &global[FL_SLOT_EMBED_NORM_W], d->embedding,
                          "embedding norm");
    if (d->embedding == d->hidden)
        return fl_graph_op2(g, "Reshape", x, g->hidden2);
    x = fl_graph_op2(g, "Reshape", x, fl_graph_ints(g, (int64_t[]){-1, d->embedding}, 2));
    return fl_graph_linear(g, global, FL_SLOT_PROJECT_W, x, d->hidden, d->embedding,
                           "embedding projection");
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
    case FL_ACT_QUICK_GELU: {
        fl_value z = fl_graph_op2(g, "Mul", x, fl_graph_narrow(g, fl_graph_real(g, 1.702f)));
        return fl_graph_op2(g, "Mul", x, fl_graph_op1(g, "Sigmoid", z));
    }
    case FL_ACT_GELU_ERF: break;
    }
    return fl_graph_op(g, &gelu);
}

static fl_value attention(fl_graph *g, uint32_t index, fl_value x) {
    const fl_encoder_desc *d       = g->desc;
    const fl_tensor       *slots   = g->encoder->layer[index];
    uint64_t               q_width = fl_q_width(d), kv_width = fl_kv_width(d);
    fl_value q    = fl_graph_linear(g, slots, FL_LAYER_Q_W, x, q_width, d->hidden, "query");
    fl_value k    = fl_graph_linear(g, slots, FL_LAYER_K_W, x, kv_width, d->hidden, "key");
    fl_value v    = fl_graph_linear(g, slots, FL_LAYER_V_W, x, kv_width, d->hidden, "value");
    fl_value seen = fl_graph_attention(g, index, q, k, v);
    return fl_graph_linear(g, slots, FL_LAYER_O_W, seen, d->hidden, q_width, "attention output");
}

static fl_value mlp(fl_graph *g, uint32_t index, fl_value x) {
    const fl_tensor *slots  = g->encoder->layer[index];
    uint64_t         hidden = g->desc->hidden, width = g->desc->intermediate;
    fl_value         up = fl_graph_linear(g, slots, FL_LAYER_UP_W, x, width, hidden, "MLP's first");
    if (g->desc->mlp == FL_MLP_GLU) {
        fl_value gate = fl_graph_linear(g, slots, FL_LAYER_GATE_W, x, width, hidden, "MLP's gate");
        up            = fl_graph_op2(g, "Mul", activation(g, gate), up);
    } else {
        up = activation(g, up);
    }
    return fl_graph_linear(g, slots, FL_LAYER_DOWN_W, up, hidden, width, "MLP's second");
}

typedef fl_value (*block_fn)(fl_graph *g, uint32_t index, fl_value x);

/* Attention or the MLP with the norms around it. */
static fl_value block(fl_graph *g, block_fn inside, uint32_t index, fl_value x,
                      fl_layer_slot own_slot, fl_layer_slot extra_slot, const char *what) {
    const fl_encoder_desc *d     = g->desc;
    const fl_tensor       *own   = &g->encoder->layer[index][own_slot];
    const fl_tensor       *extra = &g->encoder->layer[index][extra_slot];
    bool                   pre   = d->norm_place == FL_NORM_PRE;
    fl_value y = inside(g, index, pre && own->data != NULL ? norm(g, x, own, what) : x);
    if (d->extra_norm == FL_EXTRA_NORM_BRANCH)
        y = norm(g, y, extra, what);
    y = fl_graph_op2(g, "Add", x, y);
    if (!pre)
        y = norm(g, y, own, what);
    if (d->extra_norm == FL_EXTRA_NORM_RESIDUAL && extra->data != NULL)
        y = norm(g, fl_graph_op2(g, "Add", x, y), extra, what);
    return y;
}

static fl_value layer(fl_graph *g, uint32_t index, fl_value x) {
    x = block(g, attention, index, x, FL_LAYER_ATTENTION_NORM_W, FL_LAYER_ATTENTION_EXTRA_W,
              "attention norm");
    return block(g, mlp, index, x, FL_LAYER_MLP_NORM_W, FL_LAYER_MLP_EXTRA_W, "MLP norm");
}

static void build(fl_graph *g, const fl_engine_options *options) {
    set_edges(g);
    prepare(g, options->max_length);
    fl_graph_attention_prepare(g);
    fl_value x = embed(g);
    for (uint32_t i = 0; i < g->desc->layers && g->status == FLETCH_OK; i++) {
        x = layer(g, i, x);
        if (g->status < 0)
            fl_error_prefix(g->error, "layer %u", i);
    }
    if (g->desc->final_norm)
        x = norm(g, x, &g->encoder->global[FL_SLOT_FINAL_NORM_W], "final norm");
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
    g.fused    = (cpu || strcmp(options->provider, "cuda") == 0) && g.desc->score_cap == 0;
    g.masked   = !cpu;
    g.real =
        options->precision != NULL && strcmp(options->precision, "fp16") == 0 ? ONNX_F16 : ONNX_F32;
    g.status = fl_encoder_supported(&encoder->desc, &caps, error);
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
    static const fl_layer_slot matrices[] = {FL_LAYER_Q_W,   FL_LAYER_K_W,  FL_LAYER_V_W,
                                             FL_LAYER_O_W,   FL_LAYER_UP_W, FL_LAYER_GATE_W,
                                             FL_LAYER_DOWN_W};
    for (uint32_t i = 0; i < encoder->desc.layers; i++) {
        for (size_t m = 0; m < sizeof matrices / sizeof *matrices; m++) {
            const fl_tensor *w = &encoder->layer[i][matrices[m]];
            if (w->map)
                fl_map_release(w->map, w->data, w->bytes);
        }
    }
}
