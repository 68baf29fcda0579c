/* SPDX-License-Identifier: Apache-2.0 */
/* stress.c - many threads do everything at once to a model whose engine fails; nothing may be lost.
 *
 *     stress [--seconds 60] [--seed N] [--threads 6] [--folder F]
 *
 * Rounds of some seconds: a model is opened (slots, devices, padding, faults drawn from the seed),
 * threads embed, submit, cancel, set deadlines, read statistics and reopen; then it is closed with
 * requests still queued. After each round:
 *   - every request that was taken was answered once;
 *   - every row told as good has the bytes that a quiet engine gives;
 *   - every status is one that the fault or the caller may cause;
 *   - no slot was entered twice, no engine is left open.
 * A failure prints the seed that repeats the decisions (not the timing). Exit 0: nothing found. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fault_engine.h"
#include "fletch.h"

enum { TEXTS = 200, BATCH_MAX = 90, FLIGHTS = 24, DIM_MAX = 1024 };

static char     corpus[TEXTS][2048];
static float   *expected; /* [TEXTS, dim] */
static size_t   dim;
static uint64_t seed = 1;

static _Noreturn void die(const char *what, const char *detail) {
    fprintf(stderr, "stress: %s: %s (seed %llu)\n", what, detail, (unsigned long long)seed);
    exit(1);
}

static uint64_t draw(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z          = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z          = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Texts of 0 to some hundred words, so that lengths and truncation differ. */
static void make_corpus(void) {
    static const char *const words[] = {"the", "cat", "sat", "on", "a", "mat", "dog", "runs"};
    uint64_t                 state   = 7;
    for (size_t i = 0; i < TEXTS; i++) {
        size_t used = 0, count = i % 10 == 9 ? draw(&state) % 200 : draw(&state) % 12;
        for (size_t w = 0; w < count && used < sizeof corpus[i] - 8; w++)
            used += (size_t)sprintf(corpus[i] + used, "%s ", words[draw(&state) % 8]);
        snprintf(corpus[i] + used, sizeof corpus[i] - used, "%zu", i);
    }
}

/* ---- One request ----------------------------------------------------------------------------- */

typedef struct flight {
    fletch_model *model;
    fletch_ticket ticket;
    atomic_int    answers;
    atomic_bool   idle;
    int           code;
    size_t        count;
    bool          with_status, may_end; /* cancelled or late is fine */
    uint32_t      pick[BATCH_MAX];
    const char   *text[BATCH_MAX];
    int32_t       status[BATCH_MAX];
    float        *rows; /* [BATCH_MAX, dim] */
} flight;

static bool fault_code(int code) {
    return code == FLETCH_EINTERNAL || code == FLETCH_EMODEL || code == FLETCH_ENOMEM ||
           code == FLETCH_EPROVIDER;
}

static void check(const flight *f) {
    if (f->code < 0 && !fault_code(f->code) &&
        !(f->may_end && (f->code == FLETCH_ECANCELLED || f->code == FLETCH_EDEADLINE)))
        die("a request ended with", fletch_status_text(f->code));
    if (f->code < 0)
        return;
    for (size_t i = 0; i < f->count; i++) {
        if (f->with_status && f->status[i] < 0) {
            if (!fault_code(f->status[i]))
                die("a text ended with", fletch_status_text(f->status[i]));
            continue;
        }
        if (memcmp(f->rows + i * dim, expected + f->pick[i] * dim, dim * sizeof(float)) != 0)
            die("wrong row", corpus[f->pick[i]]);
    }
}

static void choose(flight *f, uint64_t *state, size_t most) {
    f->count = 1 + draw(state) % most;
    for (size_t i = 0; i < f->count; i++) {
        f->pick[i] = (uint32_t)(draw(state) % TEXTS);
        f->text[i] = corpus[f->pick[i]];
    }
    f->with_status = draw(state) % 2;
    f->may_end     = false;
    memset(f->rows, 0xFF, f->count * dim * sizeof(float)); /* NaN: a row never written shows */
}

static fletch_embed_options options_of(flight *f) {
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    options.status               = f->with_status ? f->status : NULL;
    return options;
}

static void done(void *user, const fletch_outcome *outcome) {
    flight *f = user;
    f->code   = outcome->error.code;
    if (atomic_fetch_add(&f->answers, 1) != 0)
        die("a request was answered", "twice");
    check(f);
    atomic_store(&f->idle, true);
}

static void submit(fletch_model *model, flight *f, uint64_t *state) {
    if (!atomic_load(&f->idle))
        return;
    choose(f, state, draw(state) % 4 ? 4 : BATCH_MAX);
    fletch_request       request = FLETCH_REQUEST_INIT;
    fletch_embed_options options = options_of(f);
    fletch_error         error;
    request.texts   = fletch_texts_from_strings(f->text, f->count);
    request.options = &options;
    request.out     = fletch_matrix_f32(f->rows, f->count, dim);
    request.lane    = draw(state) % 2 ? FLETCH_LANE_BULK : FLETCH_LANE_INTERACTIVE;
    f->may_end      = true; /* closing ends it too */
    if (draw(state) % 4 == 0)
        request.deadline_ms = 1 + (uint32_t)(draw(state) % 20);
    if (draw(state) % 2)
        request.inline_us = UINT32_MAX; /* this thread may carry it */
    atomic_store(&f->answers, 0);
    atomic_store(&f->idle, false);
    f->model   = model;
    int status = fletch_submit(model, &request, done, f, &f->ticket, &error);
    if (status < 0) {
        atomic_store(&f->idle, true);
        if (status != FLETCH_EBUSY && status != FLETCH_EPROVIDER)
            die("submit", error.message);
    }
}

/* ---- Threads --------------------------------------------------------------------------------- */

typedef struct worker {
    pthread_t     thread;
    fletch_model *model;
    uint64_t      state;
    bool          reopens;
    flight        own;
    flight        flights[FLIGHTS];
} worker;

static atomic_bool stop;

static void embed(worker *w) {
    flight *f = &w->own;
    choose(f, &w->state, draw(&w->state) % 3 ? 3 : BATCH_MAX);
    fletch_embed_options options = options_of(f);
    fletch_texts         texts   = fletch_texts_from_strings(f->text, f->count);
    fletch_matrix        out     = fletch_matrix_f32(f->rows, f->count, dim);
    fletch_error         error;
    f->code = fletch_embed(w->model, &texts, &options, &out, &error);
    check(f);
}

static void step(worker *w) {
    uint64_t kind = draw(&w->state) % 16;
    flight  *f    = &w->flights[draw(&w->state) % FLIGHTS];
    if (kind < 5) {
        embed(w);
    } else if (kind < 12) {
        submit(w->model, f, &w->state);
    } else if (kind < 14) {
        fletch_cancel(w->model, f->ticket);
    } else if (kind < 15) {
        fletch_stats stats = {.size = sizeof stats};
        fletch_stats_get(w->model, &stats, NULL);
    } else if (w->reopens) {
        fletch_error error;
        int          status = fletch_model_reopen(w->model, NULL, &error);
        if (status < 0 && status != FLETCH_EPROVIDER)
            die("reopen", error.message);
    }
}

static void *run(void *arg) {
    worker *w = arg;
    while (!atomic_load(&stop))
        step(w);
    return NULL;
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

static fletch_model *open_model(const char *folder, uint64_t *state) {
    fletch_config *config = fletch_config_new();
    fletch_model  *model;
    fletch_error   error;
    fletch_config_set(config, "batch.max_wait_ms", draw(state) % 2 ? "10" : "1", &error);
    fletch_config_set(config, "batch.throughput", draw(state) % 2 ? "true" : "false", &error);
    fletch_config_set(config, "batch.dynamic", draw(state) % 4 ? "true" : "false", &error);
    fletch_config_set(config, "io.zero_copy", draw(state) % 4 ? "true" : "false", &error);
    fletch_config_set(config, "pool.enable", draw(state) % 4 ? "true" : "false", &error);
    if (draw(state) % 2)
        fletch_config_set(config, "batch.target_latency_ms", "15", &error);
    if (fletch_open(&model, folder, config, &error) < 0)
        die("open", error.message);
    fletch_config_free(config);
    return model;
}

static void learn(const char *folder) {
    fl_fault_plan quiet = {.slots = 1, .devices = 1};
    uint64_t      state = 0;
    fletch_error  error;
    fl_fault_set(&quiet);
    fletch_model *model = open_model(folder, &state);
    dim                 = fletch_dimensions(model);
    expected            = malloc(TEXTS * dim * sizeof *expected);
    for (size_t i = 0; i < TEXTS; i++) {
        const char   *text  = corpus[i];
        fletch_texts  texts = fletch_texts_from_strings(&text, 1);
        fletch_matrix out   = fletch_matrix_f32(expected + i * dim, 1, dim);
        if (fletch_embed(model, &texts, NULL, &out, &error) < 0)
            die("learn", error.message);
    }
    fletch_close(model);
}

static void round_of(const char *folder, worker *workers, unsigned threads, double seconds,
                     uint64_t *state) {
    fl_fault_plan plan = {.slots   = 1 + (uint32_t)(draw(state) % 3),
                          .devices = 1 + (uint32_t)(draw(state) % 3),
                          .seed    = draw(state) % 4 ? draw(state) : 0,
                          .rarity  = 5 + (uint32_t)(draw(state) % 200)};
    fl_fault_set(&plan);
    fletch_model   *model = open_model(folder, state);
    struct timespec nap   = {.tv_sec  = (time_t)seconds,
                             .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    atomic_store(&stop, false);
    for (unsigned i = 0; i < threads; i++) {
        workers[i].model   = model;
        workers[i].state   = draw(state);
        workers[i].reopens = i == 0;
        pthread_create(&workers[i].thread, NULL, run, &workers[i]);
    }
    nanosleep(&nap, NULL);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    fletch_close(model); /* with requests queued */
    for (unsigned i = 0; i < threads; i++)
        for (unsigned k = 0; k < FLIGHTS; k++)
            if (!atomic_load(&workers[i].flights[k].idle))
                die("a request was", "never answered");
    if (fl_fault_overlapped())
        die("a slot was", "entered twice, or given more than it was opened for");
    if (fl_fault_open() != 0)
        die("an engine was", "left open");
}

int main(int argc, char **argv) {
    double      seconds = 60.0, each = 1.0;
    unsigned    threads = 6;
    const char *folder  = "tests/golden/folders/pooling-cls";
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--threads") == 0)
            threads = (unsigned)atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--folder") == 0)
            folder = argv[i + 1];
    make_corpus();
    learn(folder);
    worker *workers = calloc(threads, sizeof *workers);
    for (unsigned i = 0; i < threads; i++) {
        workers[i].own.rows = malloc(BATCH_MAX * dim * sizeof(float));
        for (unsigned k = 0; k < FLIGHTS; k++) {
            workers[i].flights[k].rows = malloc(BATCH_MAX * dim * sizeof(float));
            atomic_store(&workers[i].flights[k].idle, true);
        }
    }
    uint64_t state  = seed;
    unsigned rounds = 0;
    if (getenv("FLETCH_TEST_FULL"))
        seconds *= 6;
    for (double left = seconds; left > 0; left -= each, rounds++)
        round_of(folder, workers, threads, left < each ? left : each, &state);
    printf("stress: %u rounds, %llu batches, seed %llu: nothing lost\n", rounds,
           (unsigned long long)fl_fault_forwards(), (unsigned long long)seed);
    for (unsigned i = 0; i < threads; i++) {
        free(workers[i].own.rows);
        for (unsigned k = 0; k < FLIGHTS; k++)
            free(workers[i].flights[k].rows);
    }
    free(workers);
    free(expected);
    return 0;
}
