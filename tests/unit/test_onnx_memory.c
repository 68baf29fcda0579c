/* SPDX-License-Identifier: Apache-2.0 */
/* test_onnx_memory.c - what the onnxruntime engine says a batch takes, against what the process takes.
 *
 * Every shape is measured in a process of its own, as in test_prediction.c: a fresh engine is opened
 * there, the anonymous pages of the process are counted, the batch runs, and they are counted again. The
 * arena and its memory plans are the library's, so that the rule is an empirical one: for full runs of
 * equal length on one thread it is at most 10 % off, for anything else it is a bound. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "engines/onnxruntime/ort.h"
#include "measured.h"

enum {
    FIXED    = 192 * 1024, /* bytes that are nobody's: stacks, the library's own little objects */
    FORWARDS = 4,          /* a plan is made in the first run of a shape and used from the second */
    OPENING  = 3 << 19,    /* of a session, whatever its weights */
    FULL_RUN = 400, /* tokens: of fewer, where a plan's block finds room depends on the arena */
    PASSED_OVER = 77
};

typedef struct result {
    int64_t  opened, resident;
    int64_t  ran, predicted;
    uint32_t tokens;
} result;

typedef struct job {
    const toy  *toy;
    shape       shape;
    unsigned    threads;
    const char *plans; /* onnxruntime.memory_pattern */
} job;

static void measure(const void *one, void *out) {
    const job           *j       = one;
    result              *r       = out;
    const fl_engine_ops *ops     = fl_engine_find("onnxruntime");
    const char          *library = getenv("FLETCH_ONNXRUNTIME_LIBRARY");
    fl_batch             batch   = make_batch(j->toy, &j->shape);
    fl_config           *config  = fletch_config_new();
    const fl_ort        *ort     = NULL;
    fl_engine           *engine  = NULL;
    fl_engine_info       info;
    fletch_error         error;
    fletch_config_set(config, "onnxruntime.library", library ? library : "", NULL);
    fletch_config_set(config, "onnxruntime.memory_pattern", j->plans, NULL);
    fl_engine_options options = {.provider     = "cpu",
                                 .folder       = "/nowhere",
                                 .threads      = j->threads,
                                 .batch_tokens = 16384,
                                 .batch_texts  = 256,
                                 .max_length   = 512,
                                 .precision    = "fp32",
                                 .config       = config};
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    if (fl_ort_acquire(&ort, library ? library : "", NULL, &error) < 0)
        _exit(PASSED_OVER);
    (void)anonymous_bytes(); /* stdio's buffer is there now */
    int64_t begin  = anonymous_bytes();
    int     status = ops->open(&engine, &j->toy->encoder, &options, &error);
    int64_t opened = anonymous_bytes();
    if (status < 0 || begin < 0) {
        fprintf(stderr, "%s\n", error.message);
        _exit(1);
    }
    ops->info(engine, &info);
    r->opened    = opened - begin;
    r->resident  = (int64_t)info.resident_bytes;
    r->tokens    = batch.tokens;
    r->predicted = (int64_t)ops->memory(engine, batch.texts, batch.tokens, j->shape.longest);
    for (int i = 0; i < FORWARDS; i++)
        if (ops->forward(engine, 0, &batch, &error) < 0)
            _exit(1);
    r->ran = anonymous_bytes() - opened;
}

/* As in a mapped file: weights whose place is aligned are used where they are. */
static void align(fl_tensor *tensor) {
    if (tensor->data == NULL)
        return;
    void *place = aligned_alloc(64, (tensor->bytes + 63) / 64 * 64);
    memcpy(place, tensor->data, tensor->bytes);
    tensor->data = place;
}

static void align_all(fl_encoder *e) {
    for (int i = 0; i < FL_SLOT_COUNT; i++)
        align(&e->global[i]);
    for (uint32_t l = 0; l < e->desc.layers; l++)
        for (int i = 0; i < FL_LAYER_SLOT_COUNT; i++)
            align(&e->layer[l][i]);
}

static bool agree(int64_t told, int64_t real, int64_t part, int64_t fixed) {
    int64_t off = llabs((long long)(told - real));
    return off * part <= real || off <= fixed;
}

/* Full runs, of which large batches consist, within a tenth; shorter ones with plans within a fifth. */
static bool holds(const job *j, const result *r) {
    bool    full = j->shape.texts * j->shape.longest >= FULL_RUN;
    int64_t part = strcmp(j->plans, "true") == 0 && !full ? 5 : 10;
    if (j->shape.lengths == EQUAL && j->threads == 1)
        return agree(r->predicted, r->ran, part, FIXED) &&
               agree(r->resident, r->opened, 10, OPENING);
    return r->ran <= r->predicted + r->predicted / 10 + FIXED;
}

/* False: there is no library. */
static bool check(const job *j) {
    result r;
    int    status;
    bool   came = run_apart(measure, j, &r, sizeof r, &status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == PASSED_OVER)
        return false;
    cr_assert(came, "the measured process failed");
    const char *kind = j->shape.lengths == EQUAL ? "equal" : "mixed";
    if (getenv("FLETCH_SHOW"))
        fprintf(stderr,
                "plans %s, %u threads, %3u texts up to %3u (%s): took %ld, predicted %ld "
                "(%+.1f %%); open took %ld, info says %ld\n",
                j->plans, j->threads, j->shape.texts, j->shape.longest, kind, (long)r.ran,
                (long)r.predicted, 100.0 * (double)(r.predicted - r.ran) / (double)r.ran,
                (long)r.opened, (long)r.resident);
    cr_expect(holds(j, &r), "plans %s, %u threads, %u texts up to %u (%s): took %ld, predicted %ld",
              j->plans, j->threads, j->shape.texts, j->shape.longest, kind, (long)r.ran,
              (long)r.predicted);
    return true;
}

/* One thread: every shape with and without memory plans; two threads: the bound alone. */
Test(onnx_memory, predictions_hold, .timeout = 1800) {
    const toy_spec spec     = {.layers        = 2,
                               .hidden        = 384,
                               .heads         = 12,
                               .head_dim      = 32,
                               .mlp           = 1536,
                               .vocab         = 100,
                               .positions     = 512,
                               .type          = true,
                               .activation    = FL_ACT_GELU_ERF,
                               .dtype         = FL_DTYPE_F32,
                               .pooling       = {FL_POOL_MEAN},
                               .pooling_count = 1};
    const shape    shapes[] = {{1, 24, EQUAL}, {1, 200, EQUAL},  {1, 512, EQUAL},  {4, 64, EQUAL},
                               {64, 8, EQUAL}, {32, 100, EQUAL}, {16, 512, MIXED}, {16, 16, EQUAL}};
    toy            t;
    toy_make(&t, &spec, 5);
    align_all(&t.encoder); /* for the life of the process */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        job plain = {&t, shapes[i], 1, "false"}, planned = {&t, shapes[i], 1, "true"};
        if (!check(&plain))
            return;
        check(&planned);
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += 3)
        check(&(job){&t, shapes[i], 2, "true"});
}

/* Other proportions of hidden and MLP. */
Test(onnx_memory, predictions_hold_for_a_narrow_mlp, .timeout = 1800) {
    const toy_spec spec     = {.layers        = 2,
                               .hidden        = 256,
                               .heads         = 4,
                               .head_dim      = 64,
                               .mlp           = 512,
                               .vocab         = 100,
                               .positions     = 512,
                               .activation    = FL_ACT_GELU_ERF,
                               .dtype         = FL_DTYPE_F32,
                               .pooling       = {FL_POOL_MEAN},
                               .pooling_count = 1};
    const shape    shapes[] = {{1, 256, EQUAL}, {8, 64, EQUAL}};
    toy            t;
    toy_make(&t, &spec, 5);
    align_all(&t.encoder);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check(&(job){&t, shapes[i], 1, "false"});
        check(&(job){&t, shapes[i], 1, "true"});
    }
}
