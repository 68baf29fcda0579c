/* SPDX-License-Identifier: Apache-2.0 */
/* graph_build.c - the verbs of graph.h in terms of ONNX Runtime's Model Editor.
 *
 * Role    The only file of the graph that knows nodes, attributes and initialisers as ONNX Runtime
 *         has them.
 * Weights A tensor of the mapped files becomes an initialiser that points at the file's own bytes
 *         ("external": nothing is copied). ONNX Runtime wants 128 bytes for that and we want the
 *         pointer to be aligned for its type; a smaller or unaligned one is copied.
 *         Weights keep the file's type in the graph and a Cast follows where the graph computes in
 *         another: constant folding converts a matrix when the session is made, a looked-up row is
 *         converted alone.
 * Memory  Attributes, nodes and values belong to the graph from the moment they are added.
 * Threads A graph belongs to one caller.
 * Proof   tests/golden/test_onnx_graph.py, tests/unit/test_onnx_graph.c. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "engines/onnxruntime/graph.h"

enum { EXTERNAL_LEAST = 128 }; /* bytes: ONNX Runtime refuses smaller external initialisers */

static const char     contrib_domain[] = "com.microsoft";
static const fl_value absent;

/* Keep the first failure: `code` and words as in fl_fail. */
static __attribute__((format(printf, 3, 4))) void fail(fl_graph *g, int code, const char *format,
                                                       ...) {
    if (g->status < 0)
        return;
    char    message[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    g->status = fl_fail(g->error, code, FLETCH_NOWHERE, "%s", message);
}

/* True when the call went well; a status becomes the graph's failure. */
static bool good(fl_graph *g, OrtStatus *status, const char *doing, const char *what) {
    if (status == NULL)
        return true;
    char context[120];
    snprintf(context, sizeof context, "onnxruntime, building the graph: %s %s", doing, what);
    int code =
        fl_ort_check(g->ort, status, FLETCH_EPROVIDER, g->status < 0 ? NULL : g->error, context);
    g->status = g->status < 0 ? g->status : code;
    return false;
}

/* "Gemm" -> "gemm.12" */
static fl_value fresh(fl_graph *g, const char *kind) {
    fl_value value;
    snprintf(value.name, sizeof value.name, "%.20s.%u", kind, g->count++);
    if (value.name[0] >= 'A' && value.name[0] <= 'Z')
        value.name[0] = (char)(value.name[0] - 'A' + 'a');
    return value;
}

fl_value fl_graph_input(const char *name) {
    fl_value value;
    snprintf(value.name, sizeof value.name, "%s", name);
    return value;
}

/* ---- Nodes -------------------------------------------------------------------------------------- */

static OrtOpAttr *make_attribute(fl_graph *g, const fl_attribute *a) {
    const void *data  = NULL;
    int         count = 1;
    switch (a->kind) {
    case ORT_OP_ATTR_FLOAT: data = &a->f; break;
    case ORT_OP_ATTR_INTS:
        data  = a->axes;
        count = (int)a->count;
        break;
    case ORT_OP_ATTR_STRING:
        data  = a->s;
        count = (int)strlen(a->s);
        break;
    case ORT_OP_ATTR_INT:
    case ORT_OP_ATTR_FLOATS:
    case ORT_OP_ATTR_STRINGS: data = &a->i; break;
    }
    OrtOpAttr *made   = NULL;
    OrtStatus *status = g->ort->api.CreateOpAttr(a->name, data, count, a->kind, &made);
    return good(g, status, "attribute", a->name) ? made : NULL;
}

static void add_node(fl_graph *g, const fl_operator *op, const char *out) {
    const char *inputs[FL_GRAPH_INPUTS];
    size_t      input_count = 0;
    for (size_t i = 0; i < FL_GRAPH_INPUTS; i++) {
        inputs[i]   = op->in[i].name;
        input_count = op->in[i].name[0] != '\0' ? i + 1 : input_count;
    }
    OrtOpAttr *attributes[FL_GRAPH_ATTRIBUTES];
    size_t     attribute_count = 0;
    while (attribute_count < FL_GRAPH_ATTRIBUTES && op->attribute[attribute_count].name != NULL) {
        attributes[attribute_count] = make_attribute(g, &op->attribute[attribute_count]);
        if (attributes[attribute_count] == NULL)
            break;
        attribute_count++;
    }
    OrtNode *node = NULL;
    if (g->status < 0 ||
        !good(g,
              g->ort->editor.CreateNode(op->kind, op->contrib ? contrib_domain : "", out, inputs,
                                        input_count, &out, 1, attributes, attribute_count, &node),
              "operator", op->kind)) {
        while (attribute_count > 0)
            g->ort->api.ReleaseOpAttr(attributes[--attribute_count]);
        return;
    }
    if (!good(g, g->ort->editor.AddNodeToGraph(g->graph, node), "adding", op->kind))
        g->ort->api.ReleaseNode(node);
}

fl_value fl_graph_op(fl_graph *g, const fl_operator *op) {
    if (g->status < 0)
        return absent;
    fl_value out = op->out != NULL ? fl_graph_input(op->out) : fresh(g, op->kind);
    add_node(g, op, out.name);
    return g->status < 0 ? absent : out;
}

fl_value fl_graph_op1(fl_graph *g, const char *kind, fl_value a) {
    return fl_graph_op(g, &(fl_operator){.kind = kind, .in = {a}});
}

fl_value fl_graph_op2(fl_graph *g, const char *kind, fl_value a, fl_value b) {
    return fl_graph_op(g, &(fl_operator){.kind = kind, .in = {a, b}});
}

fl_value fl_graph_op3(fl_graph *g, const char *kind, fl_value a, fl_value b, fl_value c) {
    return fl_graph_op(g, &(fl_operator){.kind = kind, .in = {a, b, c}});
}

fl_value fl_graph_cast(fl_graph *g, fl_value a, ONNXTensorElementDataType to) {
    return fl_graph_op(g,
                       &(fl_operator){.kind = "Cast", .in = {a}, .attribute = {FL_INT("to", to)}});
}

fl_value fl_graph_gather(fl_graph *g, fl_value table, fl_value rows, int64_t axis) {
    return fl_graph_op(
        g,
        &(fl_operator){.kind = "Gather", .in = {table, rows}, .attribute = {FL_INT("axis", axis)}});
}

fl_value fl_graph_concat(fl_graph *g, fl_value a, fl_value b) {
    return fl_graph_op(
        g, &(fl_operator){.kind = "Concat", .in = {a, b}, .attribute = {FL_INT("axis", 0)}});
}

fl_value fl_graph_head(fl_graph *g, fl_value table, fl_value count) {
    fl_value zero = fl_graph_ints(g, (int64_t[]){0}, 1);
    return fl_graph_op(g, &(fl_operator){.kind = "Slice", .in = {table, zero, count, zero}});
}

fl_value fl_graph_transpose(fl_graph *g, fl_value a, int64_t p0, int64_t p1, int64_t p2,
                            int64_t p3) {
    return fl_graph_op(g, &(fl_operator){.kind      = "Transpose",
                                         .in        = {a},
                                         .attribute = {{.name  = "perm",
                                                        .kind  = ORT_OP_ATTR_INTS,
                                                        .axes  = {p0, p1, p2, p3},
                                                        .count = 4}}});
}

/* ---- Constants ---------------------------------------------------------------------------------- */

/* What ONNX Runtime needs to know of bytes that are there. */
typedef struct block {
    const void               *data;
    size_t                    bytes;
    const int64_t            *shape;
    size_t                    rank;
    ONNXTensorElementDataType type;
} block;

/* A tensor over the bytes themselves, or over ONNX Runtime's copy of them: the Model Editor keeps
 * the tensor and reads it only when the session is made. */
static OrtStatus *make_tensor(fl_graph *g, const block *b, bool external, OrtValue **out) {
    const fl_ort_api *api = &g->ort->api;
    if (external) {
        void *data = (void *)(uintptr_t)b->data; /* an initialiser is constant: nothing writes it */
        return api->CreateTensorWithDataAsOrtValue(g->ort->cpu, data, b->bytes, b->shape, b->rank,
                                                   b->type, out);
    }
    void      *copy = NULL;
    OrtStatus *status =
        api->CreateTensorAsOrtValue(g->ort->allocator, b->shape, b->rank, b->type, out);
    if (status == NULL)
        status = api->GetTensorMutableData(*out, &copy);
    if (status == NULL)
        memcpy(copy, b->data, b->bytes);
    return status;
}

static fl_value add_block(fl_graph *g, const block *b, bool external, const char *kind) {
    if (g->status < 0)
        return absent;
    fl_value  value  = fresh(g, kind);
    OrtValue *tensor = NULL;
    if (good(g, make_tensor(g, b, external, &tensor), "constant", value.name) &&
        good(g, g->ort->editor.AddInitializerToGraph(g->graph, value.name, tensor, external),
             "adding", value.name))
        return value;
    if (tensor != NULL)
        g->ort->api.ReleaseValue(tensor);
    return absent;
}

fl_value fl_graph_ints(fl_graph *g, const int64_t *values, unsigned count) {
    int64_t shape = count;
    block   b     = {values, count * sizeof *values, &shape, 1, ONNX_I64};
    return add_block(g, &b, false, "ints");
}

fl_value fl_graph_int(fl_graph *g, int64_t value) {
    block b = {&value, sizeof value, NULL, 0, ONNX_I64};
    return add_block(g, &b, false, "int");
}

fl_value fl_graph_real(fl_graph *g, float value) {
    return fl_graph_reals(g, &value, NULL, 0);
}

fl_value fl_graph_reals(fl_graph *g, const float *values, const int64_t *shape, unsigned rank) {
    size_t count = 1;
    for (unsigned i = 0; i < rank; i++)
        count *= (size_t)shape[i];
    block b = {values, count * sizeof *values, shape, rank, ONNX_F32};
    return add_block(g, &b, false, "real");
}

/* ---- Weights ------------------------------------------------------------------------------------ */

/* Bytes of an element, and ONNX Runtime's name of the type; 0 for a type that we do not compute. */
static size_t element(const fl_tensor *tensor, ONNXTensorElementDataType *type) {
    switch (tensor->dtype) {
    case FL_DTYPE_F32: *type = ONNX_F32; return 4;
    case FL_DTYPE_F16: *type = ONNX_F16; return 2;
    case FL_DTYPE_BF16: *type = ONNX_BF16; return 2;
    default: *type = ONNX_F32; return fl_dtype_is_real(tensor->dtype) ? sizeof(float) : 0;
    }
}

/* What ONNX Runtime has no type for, or what lies in another order, is given as float32. */
static bool is_foreign(const fl_tensor *tensor) {
    return !fl_tensor_in_order(tensor) || tensor->packed != NULL ||
           fl_block_of(tensor->dtype) != NULL;
}

/* The weight is there, of a type we compute with, and as large as it must be; else EMODEL. */
static bool weight_fits(fl_graph *g, const fl_weight *weight) {
    const fl_tensor          *tensor = weight->tensor;
    ONNXTensorElementDataType type;
    uint64_t                  size = tensor->data == NULL ? 0 : element(tensor, &type);
    uint64_t                  rows = weight->rows == 0 ? 1 : weight->rows, all, need;
    if (size > 0 && !__builtin_add_overflow(weight->first, rows, &all) &&
        !__builtin_mul_overflow(all, weight->columns, &need) && need <= UINT64_MAX / size &&
        fl_tensor_holds(tensor, need))
        return g->status == FLETCH_OK;
    fail(g, FLETCH_EMODEL,
         "the %s weights are missing, of a type other than F32, F16 and BF16, or smaller "
         "than config.json says; pull the model again",
         weight->what);
    return false;
}

static fl_value add_widened(fl_graph *g, const fl_weight *weight) {
    uint64_t rows = weight->rows == 0 ? 1 : weight->rows, count = rows * weight->columns;
    int64_t  shape[2] = {(int64_t)rows, (int64_t)weight->columns};
    float   *values   = fl_alloc_array(count, sizeof *values);
    fl_value value    = absent;
    if (values == NULL) {
        fail(g, FLETCH_ENOMEM, "no memory for the %s weights as float32", weight->what);
        return value;
    }
    fl_tensor_to_f32(weight->tensor, weight->first * weight->columns, count, values);
    value =
        fl_graph_reals(g, values, weight->rows == 0 ? shape + 1 : shape, weight->rows == 0 ? 1 : 2);
    fl_free(values);
    return value;
}

fl_value fl_graph_weight(fl_graph *g, const fl_weight *weight) {
    const fl_tensor *tensor = weight->tensor;
    if ((tensor->data == NULL && weight->optional) || !weight_fits(g, weight))
        return absent;
    if (is_foreign(tensor))
        return add_widened(g, weight);
    ONNXTensorElementDataType type     = ONNX_F32;
    size_t                    size     = element(tensor, &type);
    uint64_t                  rows     = weight->rows == 0 ? 1 : weight->rows;
    int64_t                   shape[2] = {(int64_t)rows, (int64_t)weight->columns};
    const char *data     = (const char *)tensor->data + weight->first * weight->columns * size;
    block       b        = {.data  = data,
                            .bytes = (size_t)(rows * weight->columns * size),
                            .shape = weight->rows == 0 ? shape + 1 : shape,
                            .rank  = weight->rows == 0 ? 1 : 2,
                            .type  = type};
    bool        external = b.bytes >= EXTERNAL_LEAST && (uintptr_t)data % size == 0;
    return add_block(g, &b, external, "weight");
}

fl_value fl_graph_weight_real(fl_graph *g, const fl_weight *weight) {
    ONNXTensorElementDataType type  = ONNX_F32;
    fl_value                  value = fl_graph_weight(g, weight);
    if (value.name[0] == '\0')
        return value;
    if (!is_foreign(weight->tensor))
        element(weight->tensor, &type);
    return type == g->real ? value : fl_graph_cast(g, value, g->real);
}

fl_value fl_graph_narrow(fl_graph *g, fl_value value) {
    return g->real == ONNX_F32 ? value : fl_graph_cast(g, value, g->real);
}
