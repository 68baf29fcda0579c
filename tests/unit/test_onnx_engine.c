/* SPDX-License-Identifier: Apache-2.0 */
/* test_onnx_engine.c - the onnxruntime engine at work: threads inside a run, steady state, binding that is
 * refused, shapes that are compiled, devices.
 *
 * Rows are compared with the double forward of engine_toy.h. Without the library (make onnxruntime) the
 * tests that need it pass over. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "engine_toy.h"
#include "engines/onnxruntime/ort.h"

enum { TEXTS = 24, LONGEST = 200, HIDDEN = 48 };

static const toy_spec spec = {.layers        = 2,
                              .hidden        = HIDDEN,
                              .heads         = 3,
                              .head_dim      = 16,
                              .mlp           = 64,
                              .vocab         = 50,
                              .positions     = LONGEST,
                              .pooling       = {FL_POOL_MEAN},
                              .pooling_count = 1};

static const char *library_file(void) {
    const char *named = getenv("FLETCH_ONNXRUNTIME_LIBRARY");
    return named == NULL ? "" : named;
}

static const fl_ort *acquire(void) {
    const fl_ort *ort = NULL;
    fletch_error  error;
    if (fl_ort_acquire(&ort, library_file(), NULL, &error) < 0)
        fprintf(stderr, "passed over: %s\n", error.message);
    return ort;
}

typedef struct fixture {
    toy          t;
    fl_config   *config;
    fl_engine   *engine;
    int32_t      ids[TEXTS * LONGEST];
    uint32_t     cu[TEXTS + 1];
    float        out[TEXTS * HIDDEN];
    float       *rows[TEXTS];
    fletch_error error;
} fixture;

static fl_engine_options options_of(const fixture *f, uint32_t threads) {
    return (fl_engine_options){.provider     = "cpu",
                               .folder       = "/nowhere",
                               .threads      = threads,
                               .batch_tokens = 4096,
                               .batch_texts  = TEXTS,
                               .max_length   = LONGEST,
                               .precision    = "fp32",
                               .config       = f->config};
}

static void open_toy(fixture *f, uint32_t threads, const char *key, const char *value) {
    toy_make(&f->t, &spec, 11);
    f->config = fletch_config_new();
    fletch_config_set(f->config, "onnxruntime.library", library_file(), NULL);
    if (key != NULL)
        cr_assert_eq(fletch_config_set(f->config, key, value, NULL), 0);
    for (uint32_t i = 0; i < TEXTS; i++)
        f->rows[i] = f->out + (size_t)i * HIDDEN;
    for (size_t i = 0; i < TEXTS * LONGEST; i++)
        f->ids[i] = (int32_t)toy_draw(&f->t.state, spec.vocab);
    fl_engine_options options = options_of(f, threads);
    options.deterministic     = key != NULL && strcmp(key, "provider.deterministic") == 0;
    fl_ort_engine_ops.open(&f->engine, &f->t.encoder, &options, &f->error);
    cr_assert_not_null(f->engine, "%s", f->error.message);
}

static void close_toy(fixture *f) {
    fl_ort_engine_ops.close(f->engine);
    fletch_config_free(f->config);
    toy_free(&f->t);
}

/* `texts` texts of up to `longest` tokens; all as long when `equal`. */
static fl_batch batch_of(fixture *f, uint32_t texts, uint32_t longest, bool equal) {
    f->cu[0] = 0;
    for (uint32_t i = 0; i < texts; i++)
        f->cu[i + 1] = f->cu[i] + (equal ? longest : 1 + toy_draw(&f->t.state, longest));
    return (fl_batch){
        .ids = f->ids, .cu = f->cu, .texts = texts, .tokens = f->cu[texts], .rows = f->rows};
}

static void check_rows(fixture *f, const fl_batch *batch) {
    double want[HIDDEN];
    memset(f->out, 0, sizeof f->out);
    cr_assert_eq(fl_ort_engine_ops.forward(f->engine, 0, batch, &f->error), 0, "%s",
                 f->error.message);
    for (uint32_t i = 0; i < batch->texts; i++) {
        toy_forward(&f->t.encoder, f->ids + f->cu[i], f->cu[i + 1] - f->cu[i], 0, want);
        for (size_t c = 0; c < HIDDEN; c++)
            cr_assert(fabs(f->rows[i][c] - want[c]) <= 2e-5, "text %u: %g, expected %g", i,
                      (double)f->rows[i][c], want[c]);
    }
}

typedef struct asked {
    const char *name;
    char        value[64];
} asked;

static int take(void *user, const char *name, const char *value, const char *origin) {
    asked *a = user;
    (void)origin;
    if (strcmp(name, a->name) == 0)
        snprintf(a->value, sizeof a->value, "%s", value);
    return 0;
}

static unsigned long number(const fixture *f, const char *name) {
    asked a = {.name = name};
    fl_ort_engine_ops.describe(f->engine, take, &a);
    cr_assert(a.value[0] != '\0', "%s", name);
    return strtoul(a.value, NULL, 10);
}

static bool there_is_none(void) {
    const fl_ort *ort = acquire();
    return ort == NULL;
}

/* ---- Threads ------------------------------------------------------------------------------------ */

Test(onnx_engine, a_batch_of_few_texts_gets_all_threads_inside_its_runs) {
    static fixture    f;
    static const char runs[] = "onnxruntime.runs_by_all_threads";
    if (there_is_none())
        return;
    open_toy(&f, 4, NULL, NULL);
    fl_batch one = batch_of(&f, 1, LONGEST, true);
    check_rows(&f, &one);
    cr_assert_eq(number(&f, runs), 1, "one long text");
    fl_batch two = batch_of(&f, 2, LONGEST, true);
    check_rows(&f, &two);
    cr_assert_eq(number(&f, runs), 3, "two groups for four threads");
    fl_batch little = batch_of(&f, 1, 20, true);
    check_rows(&f, &little);
    fl_batch many = batch_of(&f, TEXTS, LONGEST, false);
    check_rows(&f, &many);
    cr_assert_eq(number(&f, runs), 3, "a short text, and as many texts as threads, are dealt out");
    close_toy(&f);
}

Test(onnx_engine, one_thread_or_deterministic_has_no_second_session) {
    static fixture f;
    if (there_is_none())
        return;
    for (int i = 0; i < 3; i++) {
        static const char *const keys[] = {NULL, "provider.deterministic",
                                           "cpu.parallel_execution"};
        open_toy(&f, i == 0 ? 1 : 4, keys[i], "true");
        fl_batch one = batch_of(&f, 1, LONGEST, true);
        check_rows(&f, &one);
        cr_assert_eq(number(&f, "onnxruntime.runs_by_all_threads"), 0);
        close_toy(&f);
    }
}

/* ---- Steady state ------------------------------------------------------------------------------- */

Test(onnx_engine, forward_allocates_nothing_of_ours) {
    static fixture f;
    if (there_is_none())
        return;
    for (int binding = 0; binding < 2; binding++) {
        open_toy(&f, 2, "io.binding", binding ? "true" : "false");
        uint64_t before = fl_alloc_count(); /* the first forward counts, too */
        for (uint32_t i = 0; i < 60; i++) {
            fl_batch batch = batch_of(&f, 1 + i % TEXTS, 1 + i * 37 % LONGEST, i % 3 == 0);
            cr_assert_eq(fl_ort_engine_ops.forward(f.engine, 0, &batch, &f.error), 0, "%s",
                         f.error.message);
        }
        cr_assert_eq(fl_alloc_count(), before);
        close_toy(&f);
    }
}

/* ---- Binding ------------------------------------------------------------------------------------ */

static const fl_ort *real;

static OrtStatus *refuse_binding(OrtSession *session, const OrtRunOptions *options,
                                 const OrtIoBinding *binding) {
    (void)session, (void)options, (void)binding;
    return real->api.CreateStatus(ORT_NOT_IMPLEMENTED, "no binding here");
}

static void count_warning(void *user, int level, const char *message) {
    if (level == FL_LOG_WARNING && strstr(message, "no binding here"))
        ++*(int *)user;
}

/* The end of a test that put calls of its own into a session's table. */
static void close_stubbed(fl_ort_lane *lane, fl_ort_plan *plan, fl_ort_session *session,
                          fixture *f) {
    fl_ort_lane_close(lane);
    fl_ort_plan_close(plan);
    session->ort = real;
    fl_ort_session_close(session);
    close_toy(f);
}

Test(onnx_engine, a_provider_that_refuses_binding_runs_without_it_told_once) {
    static fixture f;
    fl_ort         changed;
    fl_ort_session session;
    fl_ort_lane    lane = {.session = NULL};
    fl_ort_plan    plan = {.tokens_max = 512};
    int            told = 0;
    fl_log         log  = {.fn = count_warning, .user = &told};
    real                = acquire();
    if (real == NULL)
        return;
    changed                    = *real;
    changed.api.RunWithBinding = refuse_binding;
    open_toy(&f, 1, NULL, NULL);
    fl_engine_options options = options_of(&f, 1);
    cr_assert_eq(fl_ort_session_open(&session, real, &f.t.encoder, &options, 1, &f.error), 0);
    session.ort = &changed;
    lane.log    = &log;
    cr_assert_eq(fl_ort_plan_open(&plan, TEXTS, LONGEST, NULL), 0);
    cr_assert_eq(fl_ort_lane_open(&lane, &session, &f.t.encoder, &plan, true, &f.error), 0);
    fl_batch batch = batch_of(&f, 3, 40, true);
    fl_ort_plan_make(&plan, &batch, 1);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(fl_ort_lane_run(&lane, &batch, plan.order, &plan.groups[0]), 0, "%s",
                     lane.error.message);
    cr_assert_eq(told, 1, "one log line, not one a run");
    cr_assert_null(lane.binding);
    cr_assert_eq(lane.runs, 5);
    cr_assert_eq(lane.bound_runs, 0, "the counter tells how many runs were bound");
    float unbound[HIDDEN];
    memcpy(unbound, f.rows[1], sizeof unbound);
    check_rows(&f, &batch); /* and the rows are right, and those that a bound run gives */
    cr_assert_eq(memcmp(unbound, f.rows[1], sizeof unbound), 0);
    close_stubbed(&lane, &plan, &session, &f);
}

/* ---- Binding on a device -------------------------------------------------------------------------- */

/* A stand-in for the calls that only a device answers: it records them and lets the processor's library
 * do the work. */
static struct recorded {
    char     name[32]; /* that memory was asked for by */
    int      device;
    unsigned allocators, blocks, freed, inputs, outputs, own_outputs, ordered;
    bool     refuses; /* has no such memory */
} seen;

static OrtStatus *name_memory(const char *name, OrtAllocatorType allocator, int device,
                              OrtMemType type, OrtMemoryInfo **out) {
    (void)allocator, (void)type;
    snprintf(seen.name, sizeof seen.name, "%s", name);
    seen.device = device;
    return real->api.CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, out);
}

static OrtStatus *give_allocator(const OrtSession *session, const OrtMemoryInfo *info,
                                 OrtAllocator **out) {
    (void)session, (void)info;
    if (seen.refuses)
        return real->api.CreateStatus(ORT_INVALID_ARGUMENT, "no requested allocator");
    seen.allocators++;
    return real->api.GetAllocatorWithDefaultOptions(out);
}

static void let_allocator_go(OrtAllocator *allocator) {
    (void)allocator; /* the default one is not ours */
    seen.allocators--;
}

static OrtStatus *give_block(OrtAllocator *allocator, size_t size, void **out) {
    seen.blocks++;
    return real->api.AllocatorAlloc(allocator, size, out);
}

static OrtStatus *bind_input(OrtIoBinding *binding, const char *name, const OrtValue *value) {
    seen.inputs++;
    return real->api.BindInput(binding, name, value);
}

static OrtStatus *bind_output(OrtIoBinding *binding, const char *name, const OrtValue *value) {
    seen.own_outputs++;
    return real->api.BindOutput(binding, name, value);
}

static OrtStatus *bind_to_device(OrtIoBinding *binding, const char *name,
                                 const OrtMemoryInfo *info) {
    seen.outputs++;
    return real->api.BindOutputToDevice(binding, name, info);
}

static OrtStatus *wait_for_inputs(OrtIoBinding *binding) {
    seen.ordered +=
        seen.inputs % 3 == 0; /* all three of this run are bound before it is waited for */
    return real->api.SynchronizeBoundInputs(binding);
}

/* A session of the toy on the processor that takes itself for one of CUDA device 3. */
static void open_device(fixture *f, fl_ort *changed, fl_ort_session *session, fl_ort_plan *plan) {
    memset(&seen, 0, sizeof seen);
    *changed                            = *real;
    changed->api.CreateMemoryInfo       = name_memory;
    changed->api.CreateAllocator        = give_allocator;
    changed->api.ReleaseAllocator       = let_allocator_go;
    changed->api.AllocatorAlloc         = give_block;
    changed->api.BindInput              = bind_input;
    changed->api.BindOutput             = bind_output;
    changed->api.BindOutputToDevice     = bind_to_device;
    changed->api.SynchronizeBoundInputs = wait_for_inputs;
    open_toy(f, 1, NULL, NULL);
    fl_engine_options options = options_of(f, 1);
    cr_assert_eq(fl_ort_session_open(session, real, &f->t.encoder, &options, 1, &f->error), 0, "%s",
                 f->error.message);
    session->ort       = changed;
    session->processor = false;
    session->pinned    = fl_ort_provider_pinned("cuda");
    session->device    = 3;
    cr_assert_eq(fl_ort_plan_open(plan, TEXTS, LONGEST, NULL), 0);
}

Test(onnx_engine, a_device_reads_and_writes_pinned_memory_of_the_session) {
    static fixture f;
    fl_ort         changed;
    fl_ort_session session;
    fl_ort_plan    plan = {.tokens_max = 512};
    fl_ort_lane    lane = {.session = NULL};
    real                = acquire();
    if (real == NULL)
        return;
    open_device(&f, &changed, &session, &plan);
    cr_assert_eq(fl_ort_lane_open(&lane, &session, &f.t.encoder, &plan, true, &f.error), 0);
    cr_assert_str_eq(seen.name, "CudaPinned");
    cr_assert_eq(seen.device, 3);
    fl_batch      batch = batch_of(&f, 3, 40, true);
    uint8_t       copied[TEXTS];
    fl_batch_note note = {.copied = copied};
    batch.note         = &note;
    fl_ort_plan_make(&plan, &batch, 1);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(fl_ort_lane_run(&lane, &batch, plan.order, &plan.groups[0]), 0, "%s",
                     lane.error.message);
    cr_assert_eq(seen.blocks, 1, "one block for a lane, not one a run");
    cr_assert_eq(seen.inputs, 4 * session.input_count);
    cr_assert_eq(seen.outputs, 4);
    cr_assert_eq(seen.own_outputs, 0);
    cr_assert_eq(seen.ordered, 4);
    cr_assert_eq(lane.bound_runs, 4);
    cr_assert_eq(lane.copied_rows, 12, "rows come by way of pinned memory, and are counted so");
    for (int i = 0; i < 3; i++)
        cr_assert_eq(copied[i], FL_COPIED_IDS | FL_COPIED_ROW);
    float bound[3 * HIDDEN];
    memcpy(bound, f.out, sizeof bound);
    batch.note = NULL;
    check_rows(&f, &batch); /* the engine on the processor, which is compared with doubles */
    cr_assert_eq(memcmp(bound, f.out, sizeof bound), 0);
    close_stubbed(&lane, &plan, &session, &f);
    cr_assert_eq(seen.allocators, 0, "the allocator is given back");
}

Test(onnx_engine, a_device_without_pinned_memory_binds_the_hosts) {
    static fixture f;
    fl_ort         changed;
    fl_ort_session session;
    fl_ort_plan    plan = {.tokens_max = 512};
    fl_ort_lane    lane = {.session = NULL};
    real                = acquire();
    if (real == NULL)
        return;
    open_device(&f, &changed, &session, &plan);
    seen.refuses = true;
    cr_assert_eq(fl_ort_lane_open(&lane, &session, &f.t.encoder, &plan, true, &f.error), 0);
    fl_batch batch = batch_of(&f, 3, 40, true);
    fl_ort_plan_make(&plan, &batch, 1);
    cr_assert_eq(fl_ort_lane_run(&lane, &batch, plan.order, &plan.groups[0]), 0);
    cr_assert_eq(seen.outputs, 0);
    cr_assert_eq(seen.own_outputs, 1);
    cr_assert_eq(lane.direct_rows, 3);
    check_rows(&f, &batch);
    close_stubbed(&lane, &plan, &session, &f);
}

/* What the library really says to a name that the processor has no memory for. */
Test(onnx_engine, the_processors_library_refuses_pinned_memory_in_words) {
    static fixture f;
    OrtMemoryInfo *info      = NULL;
    OrtAllocator  *allocator = NULL;
    fl_ort_session session;
    real = acquire();
    if (real == NULL)
        return;
    open_toy(&f, 1, NULL, NULL);
    fl_engine_options options = options_of(&f, 1);
    cr_assert_eq(fl_ort_session_open(&session, real, &f.t.encoder, &options, 1, &f.error), 0);
    cr_assert_null(
        real->api.CreateMemoryInfo("CudaPinned", OrtArenaAllocator, 0, OrtMemTypeCPUOutput, &info));
    OrtStatus *status = real->api.CreateAllocator(session.session, info, &allocator);
    cr_assert_not_null(status);
    cr_assert_not_null(strstr(real->api.GetErrorMessage(status), "llocator"), "%s",
                       real->api.GetErrorMessage(status));
    real->api.ReleaseStatus(status);
    real->api.ReleaseMemoryInfo(info);
    fl_ort_session_close(&session);
    close_toy(&f);
}

/* ---- A provider that takes its options and then makes no session -------------------------------- */

static OrtErrorCode session_refusal;

static OrtStatus *take_any(OrtSessionOptions *options, const char *name, const char *const *keys,
                           const char *const *values, size_t count) {
    (void)options, (void)name, (void)keys, (void)values, (void)count;
    return NULL;
}

static char  coreml[]   = "CoreMLExecutionProvider";
static char *built_in[] = {coreml};

static OrtStatus *list_coreml(char ***out, int *count) {
    *out   = built_in;
    *count = 1;
    return NULL;
}

static OrtStatus *keep_list(char **names, int count) {
    (void)names, (void)count;
    return NULL;
}

static OrtStatus *make_none(const OrtEnv *env, const OrtModel *model,
                            const OrtSessionOptions *options, OrtSession **out) {
    (void)env, (void)model, (void)options, (void)out;
    return real->api.CreateStatus(
        session_refusal, "/src/plugin_ep.cc:9 void CreateProvider(int) Error creating "
                         "execution provider: [ONNXRuntimeError] : 11 : EP_FAIL : no adapter");
}

Test(onnx_engine, a_provider_that_makes_no_session_is_refused_by_whatever_code) {
    static fixture f;
    fl_ort         changed;
    fl_ort_session session;
    real = acquire();
    if (real == NULL)
        return;
    changed                                           = *real;
    changed.api.SessionOptionsAppendExecutionProvider = take_any;
    changed.api.GetAvailableProviders                 = list_coreml;
    changed.api.ReleaseAvailableProviders             = keep_list;
    changed.editor.CreateSessionFromModel             = make_none;
    open_toy(&f, 1, NULL, NULL);
    for (int code = ORT_FAIL; code <= ORT_EP_FAIL; code++) {
        fl_engine_options options = options_of(&f, 1);
        session_refusal           = (OrtErrorCode)code;
        options.provider          = "coreml";
        cr_assert_eq(fl_ort_session_open(&session, &changed, &f.t.encoder, &options, 1, &f.error),
                     FLETCH_EPROVIDER, "%s", f.error.message);
        cr_expect_not_null(strstr(f.error.message, "CoreMLExecutionProvider makes no session of"));
        cr_expect_not_null(strstr(f.error.message, ": no adapter ("), "%s", f.error.message);
        cr_expect_null(strstr(f.error.message, "export"), "%s", f.error.message);
        options.provider = "cpu"; /* nothing stands behind it: the model is at fault */
        cr_assert_eq(fl_ort_session_open(&session, &changed, &f.t.encoder, &options, 1, &f.error),
                     FLETCH_EMODEL);
    }
    close_toy(&f);
}

/* ---- What is logged ------------------------------------------------------------------------------- */

typedef struct lines {
    int optimized, standard;
} lines;

static void count_ways(void *user, int level, const char *message) {
    lines *l = user;
    l->optimized += level == FL_LOG_DEBUG && strstr(message, "Using optimized I/O binding") != NULL;
    l->standard +=
        level == FL_LOG_DEBUG && strstr(message, "Using standard ONNX inference") != NULL;
}

Test(onnx_engine, the_log_names_each_way_once_and_the_runs_are_counted) {
    static fixture f;
    if (there_is_none())
        return;
    for (int binding = 0; binding < 2; binding++) {
        lines  l   = {0};
        fl_log log = {.fn = count_ways, .user = &l};
        toy_make(&f.t, &spec, 11);
        f.config = fletch_config_new();
        fletch_config_set(f.config, "onnxruntime.library", library_file(), NULL);
        fletch_config_set(f.config, "io.binding", binding ? "true" : "false", NULL);
        fl_engine_options options = options_of(&f, 2);
        options.log               = &log;
        cr_assert_eq(fl_ort_engine_ops.open(&f.engine, &f.t.encoder, &options, &f.error), 0);
        for (size_t i = 0; i < TEXTS; i++)
            f.rows[i] = f.out + i * HIDDEN;
        for (size_t i = 0; i < 5; i++) {
            fl_batch      batch = batch_of(&f, 6, 30, false);
            uint8_t       copied[TEXTS];
            fl_batch_note note = {.copied = copied};
            batch.note         = &note;
            cr_assert_eq(fl_ort_engine_ops.forward(f.engine, 0, &batch, &f.error), 0);
            cr_assert_gt(binding ? note.bound_runs : note.plain_runs, 0);
            cr_assert_eq(binding ? note.plain_runs : note.bound_runs, 0);
        }
        cr_assert_eq(l.optimized, binding);
        cr_assert_eq(l.standard, !binding);
        close_toy(&f);
    }
}

/* ---- Runs that fail ----------------------------------------------------------------------------- */

static OrtErrorCode refusal;
static const char  *words;

static OrtStatus *refuse_bound(OrtSession *session, const OrtRunOptions *options,
                               const OrtIoBinding *binding) {
    (void)session, (void)options, (void)binding;
    return real->api.CreateStatus(refusal, words);
}

static OrtStatus *refuse_plain(OrtSession *session, const OrtRunOptions *options,
                               const char *const *names, const OrtValue *const *inputs,
                               size_t input_count, const char *const *output_names,
                               size_t output_count, OrtValue **outputs) {
    (void)session, (void)options, (void)names, (void)inputs, (void)input_count;
    (void)output_names, (void)output_count, (void)outputs;
    return real->api.CreateStatus(refusal, words);
}

/* EPROVIDER breaks the replica, and the next provider of the chain takes over; the others do not. */
Test(onnx_engine, a_failed_run_breaks_a_device_and_never_the_processor) {
    static fixture f;
    const struct {
        bool         processor;
        OrtErrorCode refusal;
        const char  *words;
        uint32_t     texts;
        int          code;
        size_t       where;
    } rows[] = {
        {true, ORT_FAIL, "Gather: index", 1, FLETCH_EMODEL, 0},
        {true, ORT_FAIL, "Gather: index", 3, FLETCH_EMODEL, FLETCH_NOWHERE},
        {true, ORT_FAIL, "Failed to allocate memory", 3, FLETCH_ENOMEM, FLETCH_NOWHERE},
        {false, ORT_FAIL, "the device is gone", 3, FLETCH_EPROVIDER, FLETCH_NOWHERE},
        {false, ORT_FAIL, "CUDA out of memory", 3, FLETCH_ENOMEM, FLETCH_NOWHERE},
        {false, ORT_INVALID_ARGUMENT, "Gather: index", 1, FLETCH_EMODEL, 0},
    };
    fl_ort         changed;
    fl_ort_session session;
    fl_ort_plan    plan = {.tokens_max = 512};
    fl_ort_lane    lane = {.session = NULL};
    real                = acquire();
    if (real == NULL)
        return;
    changed                    = *real;
    changed.api.RunWithBinding = refuse_bound;
    changed.api.Run            = refuse_plain;
    open_toy(&f, 1, NULL, NULL);
    fl_engine_options options = options_of(&f, 1);
    cr_assert_eq(fl_ort_session_open(&session, real, &f.t.encoder, &options, 1, &f.error), 0);
    cr_assert(session.processor);
    session.ort = &changed;
    cr_assert_eq(fl_ort_plan_open(&plan, TEXTS, LONGEST, NULL), 0);
    cr_assert_eq(fl_ort_lane_open(&lane, &session, &f.t.encoder, &plan, true, &f.error), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fl_batch batch    = batch_of(&f, rows[i].texts, 40, true);
        session.processor = rows[i].processor;
        refusal           = rows[i].refusal;
        words             = rows[i].words;
        fl_ort_plan_make(&plan, &batch, 1);
        cr_expect_eq(fl_ort_lane_run(&lane, &batch, plan.order, &plan.groups[0]), rows[i].code,
                     "row %zu: %s", i, lane.error.message);
        cr_expect_eq(lane.error.where, rows[i].where, "row %zu", i);
        cr_expect_not_null(strstr(lane.error.message, rows[i].words), "%s", lane.error.message);
        cr_expect_not_null(lane.binding, "binding is not at fault");
    }
    close_stubbed(&lane, &plan, &session, &f);
}

/* ---- Shapes that are compiled ------------------------------------------------------------------- */

Test(onnx_engine, in_steady_state_no_new_shape_is_compiled) {
    static fixture f;
    fl_ort_plan    plan = {.tokens_max = 4096, .fixed = true, .rows_limit = FL_ORT_FIXED_ROWS};
    f.t.state           = 5;
    cr_assert_eq(fl_ort_plan_open(&plan, TEXTS, LONGEST, NULL), 0);
    fl_batch first = batch_of(&f, 1, 16, true);
    fl_ort_plan_make(&plan, &first, 1);
    cr_assert_eq(plan.compilations, 1);
    first = batch_of(&f, 1, 9, true); /* rounded up to the same shape */
    fl_ort_plan_make(&plan, &first, 1);
    cr_assert_eq(plan.compilations, 1);
    first = batch_of(&f, 2, 9, true);
    fl_ort_plan_make(&plan, &first, 1);
    cr_assert_eq(plan.compilations, 2);
    for (uint32_t length = 1; length <= LONGEST; length++) /* every shape there is */
        for (uint32_t texts = 1; texts <= TEXTS; texts++) {
            fl_batch batch = batch_of(&f, texts, length, true);
            fl_ort_plan_make(&plan, &batch, 1);
        }
    uint64_t all = plan.compilations;
    cr_assert(all <= 5 * 6, "16 32 64 128 200 tokens, 1 2 4 8 16 32 texts; %llu",
              (unsigned long long)all);
    for (uint32_t i = 0; i < 2000; i++) {
        fl_batch batch = batch_of(&f, 1 + toy_draw(&f.t.state, TEXTS),
                                  1 + toy_draw(&f.t.state, LONGEST), i % 2 == 0);
        fl_ort_plan_make(&plan, &batch, 1);
        cr_assert_eq(plan.compilations, all);
    }
    fl_ort_plan_close(&plan);
}

/* ---- Devices ------------------------------------------------------------------------------------ */

static uint32_t count_of(const fl_ort *ort, const char *provider) {
    fl_config        *config  = fletch_config_new();
    fl_engine_options options = {.provider = provider, .config = config};
    uint32_t          count   = fl_ort_devices_count(ort, &options);
    fletch_config_free(config);
    return count;
}

Test(onnx_engine, devices_are_those_that_the_driver_counts) {
    cr_assert_eq(fl_ort_driver_devices(FAKE_CUDA), 3);
    cr_assert_eq(fl_ort_driver_devices("libm.so.6"), 0, "a library without the functions");
    cr_assert_eq(fl_ort_driver_devices("/nowhere/libcuda.so.1"), 0);
    const fl_ort *ort = acquire();
    if (ort == NULL)
        return;
    cr_assert_eq(count_of(ort, "cpu"), 1, "the library lists the processor");
    cr_assert_eq(count_of(ort, "coreml"), 1);
    cr_assert_eq(count_of(ort, "cuda"), fl_ort_driver_devices("libcuda.so.1") > 0
                                            ? fl_ort_driver_devices("libcuda.so.1")
                                            : 1);
}
