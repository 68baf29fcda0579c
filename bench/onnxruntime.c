/* SPDX-License-Identifier: Apache-2.0 */
/* onnxruntime.c - the onnxruntime engine against a plain loop over the same session's kind and groups.
 *
 *     bench_onnxruntime FOLDER [ROUNDS]
 *
 * The loop is what a person would write: for every group of equal lengths make the tensors, Run with
 * one thread, take the rows. Both run the same texts in turns, on sessions of their own; the figure is
 * the median of the rounds' ratio, above 1 where the engine is the faster. FLETCH_ONNXRUNTIME_LIBRARY
 * names the library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engines/onnxruntime/ort.h"
#include "model/model.h"

enum { TEXTS = 512, TOKENS = 65536, WIDTH = 8192, ROUNDS_MAX = 1000 };

static int32_t  ids[TOKENS];
static int64_t  wide[3][TOKENS];
static uint32_t cu[TEXTS + 1];
static float   *rows[TEXTS];
static uint64_t seed = 88172645463325252U;

static uint32_t draw(uint32_t bound) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)((seed >> 20) % bound);
}

/* Processor time: other work on the machine does not count. */
static uint64_t cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static void stop(const fletch_error *error) {
    fprintf(stderr, "%s\n", error->message);
    exit(1);
}

static void must(const fl_ort *ort, OrtStatus *status) {
    if (status != NULL) {
        fprintf(stderr, "%s\n", ort->api.GetErrorMessage(status));
        exit(1);
    }
}

static void run_group(const fl_ort_session *s, const fl_ort_plan *plan, const fl_ort_group *g,
                      size_t width) {
    const fl_ort   *ort      = s->ort;
    const int64_t   shape[2] = {g->rows, g->length};
    const char     *names[FL_ORT_ROLES], *output = s->output;
    const OrtValue *given[FL_ORT_ROLES];
    OrtValue       *inputs[FL_ORT_ROLES], *result = NULL;
    float          *values;
    for (uint32_t r = 0; r < g->count; r++)
        for (uint32_t i = 0; i < g->length; i++) {
            wide[0][r * g->length + i] = ids[cu[plan->order[g->first + r]] + i];
            wide[1][r * g->length + i] = 1;
        }
    for (size_t i = 0; i < s->input_count; i++) {
        fl_ort_role role  = s->inputs[i].role;
        size_t      rank  = role == FL_ORT_SKIP ? 1 : 2;
        size_t      count = rank == 1 ? g->rows : (size_t)g->rows * g->length;
        must(ort, ort->api.CreateTensorWithDataAsOrtValue(ort->cpu,
                                                          wide[role == FL_ORT_IDS    ? 0
                                                               : role == FL_ORT_MASK ? 1
                                                                                     : 2],
                                                          count * sizeof(int64_t), shape, rank,
                                                          ONNX_I64, &inputs[i]));
        names[i] = s->inputs[i].name;
        given[i] = inputs[i];
    }
    must(ort, ort->api.Run(s->session, NULL, names, given, s->input_count, &output, 1, &result));
    must(ort, ort->api.GetTensorMutableData(result, (void **)&values));
    for (uint32_t r = 0; r < g->count && s->pooled; r++)
        memcpy(rows[plan->order[g->first + r]], values + r * width, width * sizeof *values);
    ort->api.ReleaseValue(result);
    for (size_t i = 0; i < s->input_count; i++)
        ort->api.ReleaseValue(inputs[i]);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **words) {
    fl_model         *model;
    fl_engine        *engine;
    fl_ort_session    session;
    const fl_ort     *ort;
    fletch_error      error;
    double            ratios[ROUNDS_MAX];
    fl_config        *config  = fletch_config_new();
    int               rounds  = count > 2 ? atoi(words[2]) : 15;
    fl_engine_options options = {.provider     = "cpu",
                                 .threads      = 1,
                                 .batch_tokens = TOKENS,
                                 .batch_texts  = TEXTS,
                                 .max_length   = 256,
                                 .precision    = "auto",
                                 .config       = config};
    if (count < 2 || rounds < 1 || rounds > ROUNDS_MAX ||
        fletch_config_load_env(config, &error) < 0)
        return 2;
    options.folder = words[1];
    if (fl_model_open(&model, words[1], NULL, &error) < 0 ||
        fl_ort_engine_ops.open(&engine, &model->encoder, &options, &error) < 0 ||
        fl_ort_acquire(&ort, fl_config_text(config, FL_KEY_ONNXRUNTIME_LIBRARY), NULL, &error) <
            0 ||
        fl_ort_session_open(&session, ort, &model->encoder, &options, 1, &error) < 0)
        stop(&error);
    for (uint32_t i = 0; i < TEXTS; i++) {
        cu[i + 1] = cu[i] + 3 + draw(i % 8 == 0 ? 120 : 25);
        rows[i]   = malloc(WIDTH * sizeof **rows);
    }
    for (uint32_t i = 0; i < cu[TEXTS]; i++)
        ids[i] = (int32_t)(5 + draw(1000));
    fl_batch    batch = {.ids = ids, .cu = cu, .texts = TEXTS, .tokens = cu[TEXTS], .rows = rows};
    fl_ort_plan plan  = {.tokens_max = 512}; /* as the engine's */
    fl_ort_plan_open(&plan, TEXTS, 256, &error);
    fl_ort_plan_make(&plan, &batch, 1);
    for (int r = -2; r < rounds; r++) { /* two to warm up */
        uint64_t begin = cpu_ns();
        if (fl_ort_engine_ops.forward(engine, 0, &batch, &error) < 0)
            stop(&error);
        uint64_t middle = cpu_ns();
        for (uint32_t g = 0; g < plan.group_count; g++)
            run_group(&session, &plan, &plan.groups[g], fl_encoder_width(&model->encoder));
        uint64_t end = cpu_ns();
        if (r < 0)
            continue;
        ratios[r] = (double)(end - middle) / (double)(middle - begin);
        fflush(stdout);
        printf("round %d: engine %.1f ms, loop %.1f ms\n", r, (double)(middle - begin) / 1e6,
               (double)(end - middle) / 1e6);
    }
    qsort(ratios, (size_t)rounds, sizeof *ratios, by_value);
    printf("%s: %u texts, %u tokens, %u groups: engine/loop speed %.3f (median of %d)\n",
           session.source, TEXTS, cu[TEXTS], plan.group_count, ratios[rounds / 2], rounds);
    return 0;
}
