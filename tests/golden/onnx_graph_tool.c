/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_graph_tool.c - the graph that the onnxruntime engine builds, alone, for tests and measuring.
 *
 *     onnx_graph run FOLDER {PROVIDER LEVEL LENGTH}… < texts > rows
 *         Each line of stdin is a text: "skip id id id …". PROVIDER chooses the form of the graph
 *         (cpu, cuda, coreml …; "coreml:fp16" in half precision); it always runs on the CPU.
 *         LENGTH "alone" runs each text alone, else all are one batch, padded to LENGTH tokens (0: the
 *         longest). Rows of float32 on stdout, all of each way in turn.
 *     onnx_graph time FOLDER MODEL.onnx THREADS BATCHxLENGTH…
 *         The built graph and a file's in turns; one JSON object a shape, processor time in ms,
 *         median and least.
 *
 * Exit 3 with "STATUS: message" on stderr when building or running fails. ORT_LIBRARY names the
 * library ("" looks in the usual places). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "engines/onnxruntime/ort.h"
#include "model/model.h"

enum { TEXTS_MAX = 256, LENGTH_MAX = 1024, ROUNDS_MAX = 200 };

typedef struct runner {
    const fl_ort *ort;
    OrtSession   *session;
    fl_ort_graph  graph;  /* what the session may still read of */
    size_t        inputs; /* 3: a built graph; 2: a file's */
} runner;

static int64_t ids[TEXTS_MAX * LENGTH_MAX], mask[TEXTS_MAX * LENGTH_MAX];
static int32_t narrow[2][TEXTS_MAX * LENGTH_MAX];
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

static OrtSessionOptions *session_options(const fl_ort *ort, int level, int threads) {
    OrtSessionOptions *options = NULL;
    check(ort, ort->api.CreateSessionOptions(&options), "options");
    check(ort, ort->api.SetIntraOpNumThreads(options, threads), "threads");
    check(ort,
          ort->api.SetSessionGraphOptimizationLevel(
              options, level == 3 ? ORT_ENABLE_ALL : (GraphOptimizationLevel)level),
          "level");
    return options;
}

/* texts x length of ids and mask -> rows; `wide` says whether inputs are int64. */
static void run(const runner *r, size_t texts, size_t length, bool wide, float *rows,
                size_t width) {
    static const char *const names[]   = {"input_ids", "attention_mask", "pool_skip"};
    static const char *const output[]  = {"sentence_embedding"};
    const int64_t            shape[2]  = {(int64_t)texts, (int64_t)length};
    size_t                   cells     = texts * length;
    OrtValue                *inputs[3] = {NULL}, *out = NULL;
    for (size_t i = 0; i < 2 && !wide; i++) {
        for (size_t c = 0; c < cells; c++) {
            narrow[i][c] = (int32_t)(i == 0 ? ids : mask)[c];
        }
    }
    for (size_t i = 0; i < r->inputs; i++) {
        void  *data  = i == 2 ? (void *)skip
                       : wide ? (void *)(i == 0 ? ids : mask)
                              : (void *)narrow[i];
        size_t bytes = (i == 2 ? texts : cells) * (wide || i == 2 ? 8 : 4);
        check(r->ort,
              r->ort->api.CreateTensorWithDataAsOrtValue(
                  r->ort->cpu, data, bytes, shape, i == 2 ? 1 : 2,
                  wide || i == 2 ? ONNX_I64 : ONNX_I32, &inputs[i]),
              "input");
    }
    check(r->ort,
          r->ort->api.Run(r->session, NULL, names, (const OrtValue *const *)inputs, r->inputs,
                          output, 1, &out),
          "run");
    void *data = NULL;
    check(r->ort, r->ort->api.GetTensorMutableData(out, &data), "output");
    if (rows != NULL)
        memcpy(rows, data, texts * width * sizeof *rows);
    r->ort->api.ReleaseValue(out);
    for (size_t i = 0; i < r->inputs; i++) {
        r->ort->api.ReleaseValue(inputs[i]);
    }
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
        for (size_t t = 0; t < texts; t++) {
            length = length > lengths[t] ? length : lengths[t];
        }
        pad(0, texts, length);
        run(r, texts, length, true, rows, width);
    }
    for (size_t t = 0; t < texts && alone; t++) {
        int64_t first = skip[0];
        pad(t, 1, lengths[t]);
        skip[0] = skip[t];
        run(r, 1, lengths[t], true, rows + t * width, width);
        skip[0] = t == 0 ? skip[0] : first;
    }
    fwrite(rows, sizeof *rows, texts * width, stdout);
    free(rows);
}

/* Processor time of all threads: a busy machine does not show in it as it does in wall time. */
static double cpu_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void time_shape(const runner r[2], const bool wide[2], size_t texts, size_t length) {
    double took[2][ROUNDS_MAX];
    int    rounds = (int)(ROUNDS_MAX * 64 / (64 + texts * length)) + 5;
    rounds        = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX;
    for (size_t i = 0; i < texts * length; i++) {
        ids[i]  = (int64_t)(1000 + i * 7919 % 20000);
        mask[i] = 1;
    }
    for (int round = -2; round < rounds; round++) { /* the first two warm up */
        for (int which = 0; which < 2; which++) {
            double start = cpu_ms();
            run(&r[which], texts, length, wide[which], NULL, 0);
            if (round >= 0)
                took[which][round] = cpu_ms() - start;
        }
    }
    for (int which = 0; which < 2; which++) {
        qsort(took[which], (size_t)rounds, sizeof(double), by_value);
    }
    printf("{\"batch\": %zu, \"length\": %zu, \"built\": [%.3f, %.3f], \"file\": [%.3f, %.3f]}\n",
           texts, length, took[0][rounds / 2], took[0][0], took[1][rounds / 2], took[1][0]);
    fflush(stdout);
}

static bool takes_int64(const fl_ort *ort, OrtSession *session) {
    OrtTypeInfo                     *info   = NULL;
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    ONNXTensorElementDataType        type   = ONNX_I64;
    check(ort, ort->api.SessionGetInputTypeInfo(session, 0, &info), "type");
    check(ort, ort->api.CastTypeInfoToTensorInfo(info, &tensor), "type");
    check(ort, ort->api.GetTensorElementType(tensor, &type), "type");
    ort->api.ReleaseTypeInfo(info);
    return type == ONNX_I64;
}

static void time_all(const runner *built, const char *file, int threads, char **shapes, int count) {
    const fl_ort      *ort     = built->ort;
    OrtSessionOptions *options = session_options(ort, 3, threads);
    runner             both[2] = {*built, {.ort = ort, .inputs = 2}};
    check(ort, ort->api.CreateSession(ort->env, file, options, &both[1].session), file);
    bool wide[2] = {true, takes_int64(ort, both[1].session)};
    for (int i = 0; i < count; i++) {
        size_t texts = 0, length = 0;
        if (sscanf(shapes[i], "%zux%zu", &texts, &length) == 2 && texts <= TEXTS_MAX &&
            length <= LENGTH_MAX)
            time_shape(both, wide, texts, length);
    }
    ort->api.ReleaseSession(both[1].session);
    ort->api.ReleaseSessionOptions(options);
}

/* A session on the graph that `provider` gets, "coreml" or "coreml:fp16". */
static runner open_runner(const fl_ort *ort, const fl_model *model, const char *provider, int level,
                          int threads) {
    fletch_error      error = {0};
    runner            r     = {.ort = ort, .inputs = 3};
    const char       *half  = strstr(provider, ":fp16");
    char              form[16];
    fl_engine_options engine = {.provider   = form,
                                .precision  = half != NULL ? "fp16" : "fp32",
                                .max_length = model->max_length};
    snprintf(form, sizeof form, "%.*s", half != NULL ? (int)(half - provider) : 15, provider);
    int status = fl_ort_graph_build(ort, &model->encoder, &engine, &r.graph, &error);
    if (status < 0)
        stop(status, &error);
    OrtSessionOptions *options = session_options(ort, level, threads);
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
        runner r = open_runner(ort, model, way[i], atoi(way[i + 1]), 1);
        run_texts(&r, texts, way[i + 2], fl_encoder_width(&model->encoder));
        close_runner(&r);
    }
}

static void time_ways(const fl_ort *ort, const fl_model *model, char **argv, int argc) {
    runner built = open_runner(ort, model, "cpu", 3, atoi(argv[1]));
    time_all(&built, argv[0], atoi(argv[1]), argv + 2, argc - 2);
    close_runner(&built);
}

int main(int argc, char **argv) {
    bool timing = argc >= 6 && strcmp(argv[1], "time") == 0;
    if (!timing && (argc < 6 || argc % 3 != 0 || strcmp(argv[1], "run") != 0))
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
    (timing ? time_ways : run_ways)(ort, model, argv + 3, argc - 3);
    fl_model_close(model);
    return 0;
}
