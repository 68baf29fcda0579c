/* SPDX-License-Identifier: Apache-2.0 */
/* test_onnx_graph.c - the built graph's rows are the formula's, and what it cannot express is
 * refused by name.
 *
 * The toy's weights are unaligned, so that they are copied; tests/golden/test_onnx_graph.py runs
 * real files, whose weights are used in place. Without ONNX Runtime the tests that need it pass
 * over. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "engine_toy.h"
#include "engines/onnxruntime/ort.h"

enum { TEXTS = 7, HIDDEN = 20, POSITIONS = 40, LONGEST = 33, MODES = FL_POOL_COUNT };

static const toy_spec plain = {.layers        = 2,
                               .hidden        = HIDDEN,
                               .heads         = 3,
                               .head_dim      = 5, /* heads * head_dim is not hidden */
                               .mlp           = 28,
                               .vocab         = 50,
                               .positions     = POSITIONS,
                               .pooling       = {FL_POOL_CLS, FL_POOL_MAX, FL_POOL_MEAN,
                                                 FL_POOL_MEAN_SQRT_LEN, FL_POOL_WEIGHTED_MEAN,
                                                 FL_POOL_LAST_TOKEN},
                               .pooling_count = MODES};

static const fl_ort *acquire(void) {
    const char   *named = getenv("FLETCH_ONNXRUNTIME_LIBRARY");
    const fl_ort *ort   = NULL;
    fletch_error  error;
    if (fl_ort_acquire(&ort, named ? named : "", NULL, &error) < 0)
        cr_log_warn("passed over: %s", error.message);
    return ort;
}

static void good(const fl_ort *ort, OrtStatus *status) {
    cr_assert_null(status, "%s", status ? ort->api.GetErrorMessage(status) : "");
}

static OrtValue *tensor(const fl_ort *ort, int64_t *data, size_t texts, size_t length) {
    OrtValue     *value    = NULL;
    const int64_t shape[2] = {(int64_t)texts, (int64_t)length};
    size_t        count    = texts * (length > 0 ? length : 1);
    good(ort, ort->api.CreateTensorWithDataAsOrtValue(ort->cpu, data, count * sizeof *data, shape,
                                                      length > 0 ? 2 : 1, ONNX_I64, &value));
    return value;
}

/* Rows of the graph for `texts` texts, padded to `length`. */
static void run(const fl_ort *ort, OrtSession *session, int64_t *ids, int64_t *mask, int64_t *skip,
                size_t texts, size_t length, float *rows, size_t width) {
    static const char *const names[]  = {"input_ids", "attention_mask", "pool_skip"};
    static const char *const output[] = {"sentence_embedding"};
    OrtValue *inputs[] = {tensor(ort, ids, texts, length), tensor(ort, mask, texts, length),
                          tensor(ort, skip, texts, 0)};
    OrtValue *out      = NULL;
    void     *data     = NULL;
    good(ort,
         ort->api.Run(session, NULL, names, (const OrtValue *const *)inputs, 3, output, 1, &out));
    good(ort, ort->api.GetTensorMutableData(out, &data));
    memcpy(rows, data, texts * width * sizeof *rows);
    ort->api.ReleaseValue(out);
    for (int i = 0; i < 3; i++)
        ort->api.ReleaseValue(inputs[i]);
}

/* Texts of 1 … LONGEST tokens against the formula: alone, or all padded to 64. */
static void compare(const fl_ort *ort, toy *t, const char *provider, GraphOptimizationLevel level) {
    enum { FIXED = 64 };
    static int64_t     ids[TEXTS * FIXED], mask[TEXTS * FIXED], skip[TEXTS];
    static float       rows[TEXTS * HIDDEN * MODES];
    static double      want[HIDDEN * MODES];
    int32_t            text[TEXTS][LONGEST];
    size_t             lengths[TEXTS], width = fl_encoder_width(&t->encoder);
    fletch_error       error;
    fl_ort_graph       graph;
    OrtSession        *session = NULL;
    OrtSessionOptions *made    = NULL;
    fl_engine_options  options = {.provider = provider, .max_length = POSITIONS};
    cr_assert_eq(fl_ort_graph_build(ort, &t->encoder, &options, &graph, &error), 0, "%s",
                 error.message);
    cr_assert_eq(graph.masks, strcmp(provider, "cpu") != 0);
    good(ort, ort->api.CreateSessionOptions(&made));
    good(ort, ort->api.SetSessionGraphOptimizationLevel(made, level));
    good(ort, ort->api.SetIntraOpNumThreads(made, 1));
    good(ort, ort->editor.CreateSessionFromModel(ort->env, graph.model, made, &session));
    memset(ids, 0, sizeof ids);
    memset(mask, 0, sizeof mask);
    for (size_t i = 0; i < TEXTS; i++) {
        size_t length = graph.masks ? FIXED : LONGEST;
        lengths[i]    = i == 0 ? LONGEST : 1 + toy_draw(&t->state, LONGEST);
        skip[i]       = (int64_t)toy_draw(&t->state, lengths[i] < 3 ? (uint32_t)lengths[i] : 3);
        skip[i]       = i == 1 ? (int64_t)lengths[i] : skip[i]; /* nothing is left of it */
        for (size_t k = 0; k < lengths[i]; k++) {
            text[i][k]           = (int32_t)toy_draw(&t->state, plain.vocab);
            ids[i * length + k]  = text[i][k];
            mask[i * length + k] = 1;
        }
        if (!graph.masks) /* one run a text: the buffers are read up to its length */
            run(ort, session, ids + i * length, mask + i * length, skip + i, 1, lengths[i],
                rows + i * width, width);
    }
    if (graph.masks)
        run(ort, session, ids, mask, skip, TEXTS, FIXED, rows, width);
    for (size_t c = HIDDEN; c < width; c++) /* after cls comes the maximum; sums and rows are 0 */
        cr_assert_eq(rows[width + c], c < (size_t)2 * HIDDEN ? -1e9f : 0.0f);
    for (size_t i = 0; i < TEXTS; i++) {
        if (i == 1)
            continue;
        toy_forward(&t->encoder, text[i], lengths[i], (size_t)skip[i], want);
        for (size_t c = 0; c < width; c++) {
            double scale = fmax(1.0, fabs(want[c]));
            cr_assert(fabs(rows[i * width + c] - want[c]) <= 2e-5 * scale,
                      "%s, level %d, text %zu of %zu tokens, skip %d, value %zu: %g, expected %g",
                      provider, (int)level, i, lengths[i], (int)skip[i], c,
                      (double)rows[i * width + c], want[c]);
        }
    }
    ort->api.ReleaseSession(session);
    ort->api.ReleaseSessionOptions(made);
    fl_ort_graph_free(ort, &graph);
    fl_ort_graph_free(ort, &graph); /* idempotent */
}

static void compare_all(const toy_spec *spec) {
    static const char *const providers[] = {"cpu", "cuda", "tensorrt"};
    const fl_ort            *ort         = acquire();
    if (ort == NULL)
        return;
    toy t;
    toy_make(&t, spec, 3);
    for (int i = 0; i < 3; i++) {
        compare(ort, &t, providers[i], ORT_DISABLE_ALL);
        compare(ort, &t, providers[i], ORT_ENABLE_ALL);
    }
    toy_free(&t);
}

Test(onnx_graph, every_pooling_in_every_form) {
    compare_all(&plain);
}

Test(onnx_graph, half_precision_weights_types_and_offsets) {
    toy_spec spec = plain;
    spec.dtype    = FL_DTYPE_F16;
    spec.type     = true;
    spec.offset   = 2;
    compare_all(&spec);
    spec.dtype = FL_DTYPE_BF16;
    compare_all(&spec);
    spec.tasks = true;
    compare_all(&spec);
}

Test(onnx_graph, relative_position_bias) {
    toy_spec spec = plain;
    spec.t5       = true;
    compare_all(&spec);
    spec.own_tables = true;
    compare_all(&spec);
}

Test(onnx_graph, activations) {
    toy_spec spec = plain;
    for (int a = FL_ACT_GELU_TANH; a < FL_ACTIVATIONS; a++) {
        spec.activation = (fl_activation)a;
        compare_all(&spec);
    }
}

Test(onnx_graph, switches_of_every_family) {
    toy_spec nomic = plain, modern = plain, qwen = plain, gemma = plain, jina = plain,
             electra = plain;
    nomic.glu = FL_MLP_GLU, nomic.activation = FL_ACT_SILU, nomic.no_bias = true;
    nomic.head_dim = 6, nomic.rope_dims = 4, nomic.theta = 1000.0, nomic.no_positions = true;
    modern       = nomic;
    modern.place = FL_NORM_PRE, modern.final_norm = modern.skips_first = true;
    modern.window = 5, modern.alternate = true, modern.rope_dims = 6;
    qwen = modern, qwen.norm = FL_NORM_RMS, qwen.skips_first = qwen.alternate = false;
    qwen.heads = 4, qwen.kv_heads = 2, qwen.qk_norm = qwen.causal = qwen.bare_embeddings = true;
    qwen.window = 0;
    gemma = qwen, gemma.norm = FL_NORM_RMS_PLUS_ONE, gemma.extra = FL_EXTRA_NORM_BRANCH;
    gemma.kv_heads = 1, gemma.causal = false, gemma.window = 4, gemma.alternate = true;
    gemma.embed_scale = 4.0f, gemma.activation = FL_ACT_GELU_TANH;
    jina.alibi = jina.no_positions = true, jina.glu = FL_MLP_GLU;
    jina.extra                  = FL_EXTRA_NORM_RESIDUAL;
    electra.embedding           = 8;
    const toy_spec *const all[] = {&nomic, &modern, &qwen, &gemma, &jina, &electra};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        compare_all(all[i]);
}

/* ---- Refusals: before anything is asked of the library ------------------------------------------ */

static void refused(const toy *t, const fl_encoder_desc *desc, int status, const char *words) {
    static const fl_ort no_library;
    fl_encoder          changed = t->encoder;
    fl_ort_graph        graph;
    fletch_error        error   = {0};
    fl_engine_options   options = {.provider = "cpu", .max_length = POSITIONS};
    changed.desc                = *desc;
    cr_assert_eq(fl_ort_graph_build(&no_library, &changed, &options, &graph, &error), status);
    cr_assert_not_null(strstr(error.message, words), "%s", error.message);
    cr_assert_null(graph.model);
}

Test(onnx_graph, what_is_not_expressed_is_refused_by_name) {
    toy t;
    toy_make(&t, &plain, 3);
    fl_encoder_desc good_one = t.encoder.desc, d;
#define REFUSED(member, value, status, words)                                                      \
    d        = good_one;                                                                           \
    d.member = value;                                                                              \
    refused(&t, &d, status, words)
    fl_layer_desc experts[2] = {{.experts = 4, .experts_used = 2}, {.experts = 0}};
    REFUSED(layer, experts, FLETCH_EPROVIDER, "mixtures of experts");
    REFUSED(qk_norm, FL_QK_NORM_WIDE, FLETCH_EPROVIDER, "over all heads");
    REFUSED(layers, 0, FLETCH_EPROVIDER, "without layers");
    REFUSED(word_map, true, FLETCH_EPROVIDER, "map");
    REFUSED(hidden, 0, FLETCH_EMODEL, "zero");
#undef REFUSED
    toy_free(&t);
}

Test(onnx_graph, weights_that_are_too_small_are_told_with_their_layer) {
    const fl_ort *ort = acquire();
    toy           t;
    fl_ort_graph  graph;
    fletch_error  error = {0};
    if (ort == NULL)
        return;
    fl_engine_options options = {.provider = "cpu", .max_length = POSITIONS};
    toy_make(&t, &plain, 3);
    t.encoder.layer[1][FL_LAYER_UP_W].bytes -= 4;
    cr_assert_eq(fl_ort_graph_build(ort, &t.encoder, &options, &graph, &error), FLETCH_EMODEL);
    cr_assert_not_null(strstr(error.message, "layer 1: the MLP's first weights"), "%s",
                       error.message);
    t.encoder.layer[1][FL_LAYER_UP_W].bytes += 4;
    t.encoder.global[FL_SLOT_WORD].dtype = FL_DTYPE_I32;
    cr_assert_eq(fl_ort_graph_build(ort, &t.encoder, &options, &graph, &error), FLETCH_EMODEL);
    cr_assert_not_null(strstr(error.message, "word weights"), "%s", error.message);
    t.encoder.global[FL_SLOT_WORD].dtype = FL_DTYPE_F32;
    toy_free(&t);
}
