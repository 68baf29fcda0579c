/* SPDX-License-Identifier: Apache-2.0 */
/* ort_engine.c - the onnxruntime engine as engine.h wants it: one session, a lane per thread.
 *
 * Role    registry.c lists it; runs tensorrt, coreml and directml, and cpu and cuda when asked or
 *         when a folder holds nothing but an .onnx file.
 * Method  forward plans the batch into groups of equal lengths (ort_plan.c). On the processor a team of
 *         threads takes group after group, each on a lane of its own and one thread inside the
 *         library, unless there are too few groups for the threads: those get all threads inside
 *         each run, on a second session. A device gets one lane and larger groups. Providers that compile per shape get
 *         few shapes; each new one is counted.
 * Memory  The session's weights are the library's, or mapped from the folder; lanes and plan are
 *         sized in open.
 * Threads One forward at a time (slots = 1); the team spreads it.
 * Proof   tests/unit/test_onnxruntime.c, tests/golden/test_onnxruntime.py. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/pool.h"
#include "engines/onnxruntime/ort.h"

enum {
    CPU_GROUP_TOKENS    = 512, /* beyond it activations leave the cache and nothing is gained */
    DEVICE_GROUP_TOKENS = 16384,
    DEVICE_RUN_TOKENS   = 2048, /* a run's launches take about as long as computing so many */
    WIDE_TOKENS         = 64    /* of a batch: fewer are done before other threads have woken up */
};

struct fl_engine {
    const fl_ort   *ort;
    fl_ort_session  session;
    fl_encoder      encoder; /* descriptor and pooling; its weights are not used after open */
    fl_ort_plan     plan;
    fl_ort_lane    *lanes; /* owned [lane_count] */
    unsigned        lane_count;
    fl_team        *team;      /* owned; NULL with one lane */
    fl_ort_session  wide;      /* a second session, with lane_count threads inside each run, … */
    fl_ort_lane     wide_lane; /* … and its lane; `session` NULL: there is none */
    uint64_t        wide_runs;
    bool            told[2]; /* [bound] that it runs so */
    const fl_batch *batch;
    atomic_uint     next_group;
    atomic_bool     failed;
    fl_trace       *trace;
    const fl_log   *log;
    bool            single, pinned;
    bool            plans; /* the library keeps a memory plan for each shape */
    char            provider[16];
    char            device[96];
};

/* ---- Probe ------------------------------------------------------------------------------------ */

static int check_provider(const fl_engine_options *options, char *what, size_t capacity,
                          fletch_error *error) {
    const fl_ort *ort;
    FL_TRY(fl_ort_acquire(&ort, fl_config_text(options->config, FL_KEY_ONNXRUNTIME_LIBRARY),
                          options->log, error));
    int status = fl_ort_provider_check(ort, options, error);
    snprintf(what, capacity, "ONNX Runtime %s, %.180s", ort->version, ort->path);
    return status;
}

static void probe(const fl_engine_options *options, fl_probe *out) {
    fletch_error error;
    out->usable = check_provider(options, out->reason, sizeof out->reason, &error) == FLETCH_OK;
    if (!out->usable)
        snprintf(out->reason, sizeof out->reason, "%.390s", error.message);
}

static uint32_t devices(const fl_engine_options *options) {
    const fl_ort *ort;
    fl_probe      found;
    probe(options, &found);
    if (!found.usable ||
        fl_ort_acquire(&ort, fl_config_text(options->config, FL_KEY_ONNXRUNTIME_LIBRARY), NULL,
                       NULL) < 0)
        return 0;
    return fl_ort_devices_count(ort, options);
}

/* ---- Opening ---------------------------------------------------------------------------------- */

static void close_engine(fl_engine *e) {
    if (e == NULL)
        return;
    if (e->trace != NULL && e->session.session != NULL)
        fl_ort_profile_merge(e->ort, e->session.session, e->trace, e->log);
    fl_team_close(e->team);
    for (unsigned i = 0; e->lanes != NULL && i < e->lane_count; i++)
        fl_ort_lane_close(&e->lanes[i]);
    fl_free(e->lanes);
    fl_ort_lane_close(&e->wide_lane);
    fl_ort_session_close(&e->wide);
    fl_ort_plan_close(&e->plan);
    fl_ort_session_close(&e->session);
    fl_free(e);
}

static void set_policy(fl_engine *e, const fl_engine_options *options) {
    fl_ort_plan *plan   = &e->plan;
    bool         cpu    = strcmp(options->provider, "cpu") == 0;
    uint32_t     budget = cpu ? CPU_GROUP_TOKENS : DEVICE_GROUP_TOKENS;
    plan->tokens_max    = options->batch_tokens < budget ? options->batch_tokens : budget;
    plan->fixed         = fl_ort_fixed_shapes(options->provider);
    plan->rows_limit    = plan->fixed ? FL_ORT_FIXED_ROWS : 0;
    /* Rows depend on their number else, or on each other. */
    plan->single     = cpu && (options->deterministic || e->session.dynamic);
    plan->slack      = cpu ? 0 : 1;
    plan->run_tokens = cpu ? 0 : DEVICE_RUN_TOKENS;
    e->single        = plan->single;
    e->lane_count    = cpu && options->threads > 0 ? options->threads : 1;
}

static int open_lanes(fl_engine *e, const fl_engine_options *options, fletch_error *error) {
    bool bind = fl_config_bool(options->config, FL_KEY_IO_BINDING);
    e->lanes  = fl_alloc_zero(e->lane_count, sizeof *e->lanes);
    if (e->lanes == NULL)
        return fl_fail_nomem(error, e->lane_count * sizeof *e->lanes, "the onnxruntime engine");
    for (unsigned i = 0; i < e->lane_count; i++) {
        e->lanes[i].log = options->log;
        FL_TRY(fl_ort_lane_open(&e->lanes[i], &e->session, &e->encoder, &e->plan, bind, error));
    }
    e->pinned = options->cores != NULL;
    e->plans  = fl_config_bool(options->config, FL_KEY_ONNXRUNTIME_MEMORY_PATTERN) &&
               !fl_config_bool(options->config, FL_KEY_CPU_PARALLEL_EXECUTION);
    return e->lane_count == 1 ? FLETCH_OK
                              : fl_team_open(&e->team, e->lane_count, options->cores, error);
}

/* One long text keeps one lane busy and leaves the others idle, so that a second session with all
 * threads inside each run stands ready for batches of few groups. Its weights are the mapped ones,
 * not packed: it costs no second copy of them, and packing pays least in large groups. A file's
 * weights would be there twice, so that a file gets none; nor does deterministic, whose rows must
 * not depend on the way they were computed. */
static int open_wide(fl_engine *e, const fl_encoder *encoder, const fl_engine_options *options,
                     fletch_error *error) {
    bool bind     = fl_config_bool(options->config, FL_KEY_IO_BINDING);
    bool parallel = fl_config_bool(options->config, FL_KEY_CPU_PARALLEL_EXECUTION);
    if (e->lane_count < 2 || e->single || parallel || e->session.graph.model == NULL)
        return FLETCH_OK;
    fl_engine_options untraced = *options;
    untraced.trace             = NULL; /* one profile a replica */
    int status = fl_ort_session_open(&e->wide, e->ort, encoder, &untraced, e->lane_count, error);
    e->wide_lane.log = options->log;
    return status < 0
               ? status
               : fl_ort_lane_open(&e->wide_lane, &e->wide, &e->encoder, &e->plan, bind, error);
}

static int forward(fl_engine *e, uint32_t slot, const fl_batch *batch, fletch_error *error);

/* One text through everything: some providers fail at the first run, not at opening. What looks like
 * the model's fault there may go on another provider. */
static int warm(fl_engine *e, fletch_error *error) {
    enum { LENGTH = 8 };
    int32_t      ids[LENGTH] = {0};
    uint32_t     length      = e->plan.max_length < LENGTH ? e->plan.max_length : LENGTH;
    uint32_t     cu[2]       = {0, length};
    float       *row         = fl_alloc_array(fl_encoder_width(&e->encoder), sizeof *row);
    fletch_error own         = {0};
    if (row == NULL)
        return fl_fail_nomem(error, fl_encoder_width(&e->encoder) * sizeof *row, "a first row");
    fl_batch batch  = {.ids = ids, .cu = cu, .texts = 1, .tokens = length, .rows = &row};
    int      status = forward(e, 0, &batch, &own);
    fl_free(row);
    if (status == FLETCH_EMODEL && !e->session.processor)
        status = FLETCH_EPROVIDER;
    return status == FLETCH_OK ? FLETCH_OK : fl_fail(error, status, own.where, "%s", own.message);
}

static int prepare(fl_engine *e, const fl_encoder *encoder, const fl_engine_options *options,
                   fletch_error *error) {
    const char *library = fl_config_text(options->config, FL_KEY_ONNXRUNTIME_LIBRARY);
    uint32_t    longest = options->max_length ? options->max_length : encoder->desc.positions;
    FL_TRY(fl_ort_acquire(&e->ort, library, options->log, error));
    FL_TRY(fl_ort_session_open(&e->session, e->ort, encoder, options, 1, error));
    e->trace         = options->trace;
    e->log           = options->log;
    e->encoder       = *encoder;
    e->encoder.layer = NULL; /* only the descriptor and the pooling are kept */
    memset(e->encoder.global, 0, sizeof e->encoder.global);
    set_policy(e, options);
    snprintf(e->provider, sizeof e->provider, "%s", options->provider);
    snprintf(e->device, sizeof e->device, "%s %u by ONNX Runtime %s", options->provider,
             options->device, e->ort->version);
    FL_TRY(fl_ort_plan_open(&e->plan, options->batch_texts ? options->batch_texts : 1, longest,
                            error));
    FL_TRY(open_lanes(e, options, error));
    FL_TRY(open_wide(e, encoder, options, error));
    return strcmp(options->provider, "cpu") != 0 ? warm(e, error) : FLETCH_OK;
}

static int open_engine(fl_engine **out, const fl_encoder *encoder, const fl_engine_options *options,
                       fletch_error *error) {
    *out = NULL;
    if (encoder->desc.mlm) /* also where the network is a file */
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "the onnxruntime engine does not handle weights of the vocabulary (SPLADE); "
                       "use provider.order cpu and provider.engine native");
    fl_engine *e = fl_alloc_zero(1, sizeof *e);
    if (e == NULL)
        return fl_fail_nomem(error, sizeof *e, "the onnxruntime engine");
    int status = prepare(e, encoder, options, error);
    if (status < 0) {
        e->trace = NULL; /* nothing worth a profile */
        close_engine(e);
        return status;
    }
    *out = e;
    return FLETCH_OK;
}

/* ---- Counting --------------------------------------------------------------------------------- */

typedef struct totals {
    uint64_t runs, bound, direct, copied;
    bool     binding;
} totals;

static totals add_up(const fl_engine *e) {
    totals   t     = {.binding = true};
    unsigned lanes = e->lane_count + (e->wide_lane.session != NULL);
    for (unsigned i = 0; i < lanes; i++) {
        const fl_ort_lane *lane = i < e->lane_count ? &e->lanes[i] : &e->wide_lane;
        t.runs += lane->runs;
        t.bound += lane->bound_runs;
        t.direct += lane->direct_rows;
        t.copied += lane->copied_rows;
        t.binding = t.binding && lane->binding != NULL;
    }
    return t;
}

/* The log hears of each way once. */
static void tell_way(fl_engine *e, bool bound) {
    const fl_ort_lane *lane = &e->lanes[0];
    const char        *kind = e->session.processor ? "CPU" : "GPU";
    if (e->told[bound])
        return;
    e->told[bound] = true;
    if (!bound)
        fl_log_write(e->log, FL_LOG_DEBUG,
                     "Using standard ONNX inference: %s runs without input and output binding",
                     e->device);
    else
        fl_log_write(e->log, FL_LOG_DEBUG,
                     "Using optimized I/O binding for %s inference: %s, inputs in %s memory, "
                     "outputs bound to %s",
                     kind, e->device, lane->place != NULL ? e->session.pinned : "host",
                     lane->place != NULL ? e->session.pinned
                     : e->session.pooled ? "the caller's rows where they are contiguous"
                                         : "host memory");
}

/* What the runs since `before` were. */
static void note_runs(fl_engine *e, const totals *before, const fl_batch *batch) {
    totals   now   = add_up(e);
    uint64_t bound = now.bound - before->bound, plain = now.runs - before->runs - bound;
    if (bound > 0)
        tell_way(e, true);
    if (plain > 0)
        tell_way(e, false);
    if (batch->note == NULL)
        return;
    batch->note->bound_runs = (uint32_t)bound;
    batch->note->plain_runs = (uint32_t)plain;
}

/* ---- Forward ---------------------------------------------------------------------------------- */

/* Every member: take groups until none is left. */
static void run(void *arg, unsigned member, unsigned size) {
    fl_engine   *e    = arg;
    fl_ort_lane *lane = &e->lanes[member];
    (void)size;
    fl_error_clear(&lane->error);
    for (unsigned g = atomic_fetch_add(&e->next_group, 1);
         g < e->plan.group_count && !atomic_load(&e->failed);
         g = atomic_fetch_add(&e->next_group, 1)) {
        uint64_t begin = fl_trace_begin(e->trace);
        if (fl_ort_lane_run(lane, e->batch, e->plan.order, &e->plan.groups[g]) < 0)
            atomic_store(&e->failed, true);
        fl_trace_end(e->trace, "onnxruntime group", begin, "texts", e->plan.groups[g].count);
    }
}

/* Few groups for many threads: one after the other, each with all threads inside. */
static int run_wide(fl_engine *e, fletch_error *error) {
    const fletch_error *own = &e->wide_lane.error;
    fl_error_clear(&e->wide_lane.error);
    for (uint32_t g = 0; g < e->plan.group_count && own->code == FLETCH_OK; g++) {
        uint64_t begin = fl_trace_begin(e->trace);
        fl_ort_lane_run(&e->wide_lane, e->batch, e->plan.order, &e->plan.groups[g]);
        fl_trace_end(e->trace, "onnxruntime group", begin, "texts", e->plan.groups[g].count);
        e->wide_runs++;
    }
    return own->code == FLETCH_OK ? FLETCH_OK
                                  : fl_fail(error, own->code, own->where, "%s", own->message);
}

/* Of several failures the one of the first text in the batch's order, so that it is always the same. */
static int first_failure(const fl_engine *e, fletch_error *error) {
    const fletch_error *first = NULL;
    for (unsigned i = 0; i < e->lane_count; i++) {
        const fletch_error *one = &e->lanes[i].error;
        if (one->code != FLETCH_OK && (first == NULL || one->where < first->where))
            first = one;
    }
    return first == NULL ? FLETCH_OK
                         : fl_fail(error, first->code, first->where, "%s", first->message);
}

/* The planned groups, on as many lanes as there are. */
static int run_groups(fl_engine *e, const fl_batch *batch, fletch_error *error) {
    if (e->wide_lane.session != NULL && batch->tokens >= WIDE_TOKENS &&
        e->plan.group_count * 2 <= e->lane_count)
        return run_wide(e, error);
    if (e->team != NULL && e->plan.group_count > 1) {
        fl_team_run(e->team, run, e);
        return first_failure(e, error);
    }
    run(e, 0, 1);
    const fletch_error *own = &e->lanes[0].error;
    return own->code == FLETCH_OK ? FLETCH_OK
                                  : fl_fail(error, own->code, own->where, "%s", own->message);
}

static int forward(fl_engine *e, uint32_t slot, const fl_batch *batch, fletch_error *error) {
    (void)slot; /* there is one */
    if (batch->texts == 0)
        return FLETCH_OK;
    if (batch->texts > e->plan.texts_max)
        return fl_fail(error, FLETCH_EINTERNAL, FLETCH_NOWHERE, "batch of %u texts, opened for %u",
                       batch->texts, e->plan.texts_max);
    for (uint32_t t = 0; t < batch->texts; t++) {
        uint32_t length = batch->cu[t + 1] - batch->cu[t];
        if (length == 0 || length > e->plan.max_length)
            return fl_fail(error, FLETCH_EINTERNAL, t, "text of %u tokens, opened for 1 to %u",
                           length, e->plan.max_length);
    }
    e->batch = batch;
    atomic_store(&e->next_group, 0);
    atomic_store(&e->failed, false);
    fl_ort_plan_make(&e->plan, batch, e->lane_count);
    totals before = add_up(e);
    int    status = run_groups(e, batch, error);
    note_runs(e, &before, batch);
    return status;
}

/* ---- What it says of itself ------------------------------------------------------------------- */

static void info(const fl_engine *e, fl_engine_info *out) {
    *out = (fl_engine_info){.device         = e->device,
                            .precision      = e->session.precision,
                            .slots          = 1,
                            .best_tokens    = e->lane_count * e->plan.tokens_max * 4,
                            .any_thread     = !e->pinned,
                            .deterministic  = e->single,
                            .token_rows     = !e->session.pooled,
                            .resident_bytes = e->session.bytes};
}

/* Tokens of a lane's largest run in such a batch. Of mixed lengths little is known: as many as may
 * be. */
static uint64_t run_tokens(const fl_engine *e, uint32_t texts, uint32_t tokens, uint32_t longest) {
    bool     equal = (uint64_t)texts * longest == tokens;
    uint32_t share = (tokens + e->lane_count - 1) / e->lane_count;
    if (!equal) /* with its padding */
        share += share / 8 * e->plan.slack + e->plan.run_tokens;
    uint32_t limit = share < e->plan.tokens_max ? share : e->plan.tokens_max;
    if (longest == 0 || limit <= longest || e->single)
        return longest;
    return equal ? limit / longest * longest : limit;
}

/* What a run leaves in the library's arena, per token: the widest tensors of a layer, as the arena
 * lays them beside each other. That is measured, not derived, as is the twentieth for what attention
 * takes besides; a memory plan is one more block, of which a part finds room in what is there.
 * tests/unit/test_onnx_memory.c holds it to 10 % for full runs of equal lengths on one thread. In
 * runs of less than 400 tokens the arena's rounding shows: a megabyte more or less. Mixed lengths and
 * more threads take at most so much. */
static uint64_t memory(const fl_engine *e, uint32_t texts, uint32_t tokens, uint32_t longest) {
    const fl_encoder_desc *d      = &e->encoder.desc;
    uint64_t               run    = run_tokens(e, texts, tokens, longest);
    uint64_t               rows   = run / (longest > 0 ? longest : 1) + 1;
    uint64_t               lanes  = texts < e->lane_count ? texts : e->lane_count;
    uint64_t               hidden = d->hidden, mlp = d->intermediate;
    uint64_t               floats = run * (4 * hidden + 2 * mlp + (e->plans ? hidden + mlp : 0));
    if (fl_t5_rows(d) > 0) /* the bias itself, and the scores that it is added to */
        floats += (rows + 1) * d->heads * longest * longest;
    if (fl_relative_span(d) > 0) /* the two products, what is taken of them, and the sum */
        floats += rows * d->heads * longest * (3 * longest + 2 * fl_relative_rows(d));
    floats += floats / 20;
    if (e->plans && (uint64_t)texts * longest != tokens) /* plans of several shapes lie about */
        floats += floats * 2 / 5;
    return lanes *
           (floats * sizeof(float) + fl_ort_lane_bytes(&e->session, &e->encoder, (uint32_t)run,
                                                       (uint32_t)(rows < texts ? rows : texts)));
}

static int describe(const fl_engine *e, fletch_property_fn fn, void *user) {
    char   threads[16], runs[96], rows[96], shapes[32], wide[32];
    totals t = add_up(e);
    snprintf(threads, sizeof threads, "%u", e->lane_count);
    snprintf(runs, sizeof runs, "%llu, %llu of them bound", (unsigned long long)t.runs,
             (unsigned long long)t.bound);
    snprintf(rows, sizeof rows, "%llu written in place, %llu copied", (unsigned long long)t.direct,
             (unsigned long long)t.copied);
    snprintf(shapes, sizeof shapes, "%llu", (unsigned long long)e->plan.compilations);
    snprintf(wide, sizeof wide, "%llu", (unsigned long long)e->wide_runs);
    const char *lines[][3] = {
        {"onnxruntime.version", e->ort->version, e->ort->path},
        {"onnxruntime.provider", e->provider, ""},
        {"onnxruntime.model", e->session.source, ""},
        {"onnxruntime.data", e->session.data.size > 0 ? e->session.data.data : NULL, "beside it"},
        {"onnxruntime.output", e->session.output,
         e->session.pooled ? "pooled in the graph" : "pooled by fletch"},
        {"onnxruntime.threads", threads, "runs side by side"},
        {"onnxruntime.runs_by_all_threads", wide,
         e->wide_lane.session != NULL ? "batches of few texts" : "off"},
        {"onnxruntime.io_binding", t.binding ? "on" : "off",
         e->lanes[0].place != NULL ? e->session.pinned : ""},
        {"onnxruntime.runs", runs, ""},
        {"onnxruntime.rows", rows, ""},
        {"onnxruntime.compiled_shapes", shapes, e->plan.fixed ? "" : "shapes are free"}};
    int stop = 0;
    for (size_t i = 0; i < sizeof lines / sizeof *lines && stop == 0; i++)
        if (lines[i][1] != NULL)
            stop = fn(user, lines[i][0], lines[i][1], lines[i][2]);
    return stop;
}

const fl_engine_ops fl_ort_engine_ops = {.abi      = FL_ENGINE_ABI,
                                         .name     = "onnxruntime",
                                         .probe    = probe,
                                         .devices  = devices,
                                         .open     = open_engine,
                                         .forward  = forward,
                                         .close    = close_engine,
                                         .info     = info,
                                         .memory   = memory,
                                         .warm     = warm,
                                         .describe = describe};
