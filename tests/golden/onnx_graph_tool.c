/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_graph_tool.c - the graph that the onnxruntime engine builds, alone, for tests.
 *
 *     onnx_graph run FOLDER {PROVIDER LEVEL LENGTH}… < texts > rows
 *         Each line of stdin is a text: "skip id id id …". PROVIDER chooses the form of the graph
 *         (cpu, cuda, coreml …; "coreml:fp16" in half precision); it always runs on the CPU.
 *         LENGTH "alone" runs each text alone, else all are one batch, padded to LENGTH tokens (0: the
 *         longest). Rows of float32 on stdout, all of each way in turn.
 *
 * Exit 3 with "STATUS: message" on stderr when building or running fails. ORT_LIBRARY names the
 * library ("" looks in the usual places). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engines/onnxruntime/ort.h"
#include "model/model.h"

enum { TEXTS_MAX = 256, LENGTH_MAX = 1024 };

typedef struct runner {
    const fl_ort *ort;
    OrtSession   *session;
    fl_ort_graph  graph; /* what the session may still read of */
} runner;

static int64_t ids[TEXTS_MAX * LENGTH_MAX], mask[TEXTS_MAX * LENGTH_MAX];
static int64_t text_ids[TEXTS_MAX][LENGTH_MAX], skip[TEXTS_MAX];
static size_t  lengths[TEXTS_MAX];

static void stop(int status, const fletch_error *error) {
    fprintf(stderr, "%d: %s\n", status, error->message);
    exit(3);
}

static void check(const fl_ort *ort, OrtStatus *status, const char *what) {
    fletch_error error;
    int          code = fl_ort_check(ort, status, FLETCH_EPROVIDER, &error, what);
    if (code < 0)
        stop(code, &error);
}

static OrtSessionOptions *session_options(const fl_ort *ort, int level) {
    OrtSessionOptions *options = NULL;
    check(ort, ort->api.CreateSessionOptions(&options), "options");
    check(ort, ort->api.SetIntraOpNumThreads(options, 1), "threads");
    check(ort,
          ort->api.SetSessionGraphOptimizationLevel(
              options, level == 3 ? ORT_ENABLE_ALL : (GraphOptimizationLevel)level),
          "level");
    return options;
}

/* texts x length of ids and mask -> rows. */
static void run(const runner *r, size_t texts, size_t length, float *rows, size_t width) {
    static const char *const names[]   = {"input_ids", "attention_mask", "pool_skip"};
    static const char *const output[]  = {"sentence_embedding"};
    const int64_t            shape[2]  = {(int64_t)texts, (int64_t)length};
    int64_t                 *data[3]   = {ids, mask, skip};
    OrtValue                *inputs[3] = {NULL}, *out = NULL;
    void                    *found = NULL;
    for (size_t i = 0; i < 3; i++) {
        size_t count = i == 2 ? texts : texts * length;
        check(r->ort,
              r->ort->api.CreateTensorWithDataAsOrtValue(r->ort->cpu, data[i], count * 8, shape,
                                                         i == 2 ? 1 : 2, ONNX_I64, &inputs[i]),
              "input");
    }
    check(r->ort,
          r->ort->api.Run(r->session, NULL, names, (const OrtValue *const *)inputs, 3, output, 1,
                          &out),
          "run");
    check(r->ort, r->ort->api.GetTensorMutableData(out, &found), "output");
    memcpy(rows, found, texts * width * sizeof *rows);
    r->ort->api.ReleaseValue(out);
    for (size_t i = 0; i < 3; i++)
        r->ort->api.ReleaseValue(inputs[i]);
}

static size_t read_texts(void) {
    static char line[LENGTH_MAX * 8];
    size_t      texts = 0;
    while (texts < TEXTS_MAX && fgets(line, sizeof line, stdin) != NULL) {
        char *at    = line;
        skip[texts] = strtoll(at, &at, 10);
        size_t n    = 0;
        for (char *end; n < LENGTH_MAX; at = end) {
            int64_t id = strtoll(at, &end, 10);
            if (end == at)
                break;
            text_ids[texts][n++] = id;
        }
        lengths[texts++] = n;
    }
    return texts;
}

static void pad(size_t first, size_t texts, size_t length) {
    for (size_t t = 0; t < texts; t++) {
        for (size_t i = 0; i < length; i++) {
            bool there           = i < lengths[first + t];
            ids[t * length + i]  = there ? text_ids[first + t][i] : 0;
            mask[t * length + i] = there;
        }
    }
}

static void run_texts(const runner *r, size_t texts, const char *how, size_t width) {
    size_t length = strtoul(how, NULL, 10);
    bool   alone  = strcmp(how, "alone") == 0;
    float *rows   = calloc(texts * width, sizeof *rows);
    if (!alone) {
        for (size_t t = 0; t < texts; t++)
            length = length > lengths[t] ? length : lengths[t];
        pad(0, texts, length);
        run(r, texts, length, rows, width);
    }
    for (size_t t = 0; t < texts && alone; t++) {
        int64_t first = skip[0];
        pad(t, 1, lengths[t]);
        skip[0] = skip[t];
        run(r, 1, lengths[t], rows + t * width, width);
        skip[0] = t == 0 ? skip[0] : first;
    }
    fwrite(rows, sizeof *rows, texts * width, stdout);
    free(rows);
}

/* A session on the graph that `provider` gets, "coreml" or "coreml:fp16". */
static runner open_runner(const fl_ort *ort, const fl_model *model, const char *provider,
                          int level) {
    fletch_error      error = {0};
    runner            r     = {.ort = ort};
    const char       *half  = strstr(provider, ":fp16");
    char              form[16];
    fl_engine_options engine = {.provider   = form,
                                .precision  = half != NULL ? "fp16" : "fp32",
                                .max_length = model->max_length};
    snprintf(form, sizeof form, "%.*s", half != NULL ? (int)(half - provider) : 15, provider);
    int status = fl_ort_graph_build(ort, &model->encoder, &engine, &r.graph, &error);
    if (status < 0)
        stop(status, &error);
    OrtSessionOptions *options = session_options(ort, level);
    check(ort, ort->editor.CreateSessionFromModel(ort->env, r.graph.model, options, &r.session),
          "session");
    ort->api.ReleaseSessionOptions(options);
    fl_ort_graph_settle(&model->encoder);
    return r;
}

static void close_runner(runner *r) {
    r->ort->api.ReleaseSession(r->session);
    fl_ort_graph_free(r->ort, &r->graph);
}

static void run_ways(const fl_ort *ort, const fl_model *model, char **way, int words) {
    size_t texts = read_texts();
    for (int i = 0; i < words; i += 3) {
        runner r = open_runner(ort, model, way[i], atoi(way[i + 1]));
        run_texts(&r, texts, way[i + 2], fl_encoder_width(&model->encoder));
        close_runner(&r);
    }
}

int main(int argc, char **argv) {
    if (argc < 6 || argc % 3 != 0 || strcmp(argv[1], "run") != 0)
        return 2;
    fletch_error     error   = {0};
    fl_model        *model   = NULL;
    const fl_ort    *ort     = NULL;
    fl_model_options opening = {0};
    const char      *library = getenv("ORT_LIBRARY");
    int              status  = fl_model_open(&model, argv[2], &opening, &error);
    if (status == 0)
        status = fl_ort_acquire(&ort, library ? library : "", NULL, &error);
    if (status < 0)
        stop(status, &error);
    run_ways(ort, model, argv + 3, argc - 3);
    fl_model_close(model);
    return 0;
}
