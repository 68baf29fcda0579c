/* SPDX-License-Identifier: Apache-2.0 */
/* test_submit.c - requests that do not wait, and an engine that fails at a chosen call: every text is
 * answered, once, and what is told as good is good. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "call.h"

TestSuite(submit, .init = prepare);

static const fl_fault_plan quiet = {.slots = 1};

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

/* ---- Faults at every call --------------------------------------------------------------------- */

static const fl_fault faults[] = {FL_FAULT_LATE,      FL_FAULT_BROKEN,   FL_FAULT_NOMEM,
                                  FL_FAULT_NOMEM_ALL, FL_FAULT_BAD_TEXT, FL_FAULT_SILENT_NAN};

static uint64_t failed_texts(const call *c, size_t count) {
    uint64_t failed = 0;
    for (size_t i = 0; i < count; i++)
        failed += c->status[i] < 0;
    return failed;
}

Test(submit, whatever_fails_at_whatever_call_each_text_is_answered_once_and_right) {
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++)
        for (int64_t at = 0; at < 3; at++)
            for (uint32_t devices = 1; devices <= 2; devices++) {
                fl_fault_plan plan = {
                    .slots = 1, .devices = devices, .planned = faults[f], .at = at, .times = 1};
                static const char *const options[][2] = {{"batch.max_texts", "8"}, {NULL, NULL}};
                fletch_model            *model        = open_with(&plan, options);
                static call              c;
                call_init(&c, model);
                fl_fault_set(&plan); /* opening may have run something */
                cr_assert_eq(submit(&c, TEXTS, true, 0), 0);
                cr_assert_eq(wait_for(&c), FLETCH_OK, "fault %d at %d: %s", faults[f], (int)at,
                             c.outcome.error.message);
                check_rows(&c, TEXTS);
                uint64_t most = faults[f] == FL_FAULT_BAD_TEXT || faults[f] == FL_FAULT_SILENT_NAN;
                cr_assert_leq(failed_texts(&c, TEXTS), most, "fault %d at %d: %d texts failed",
                              faults[f], (int)at, (int)failed_texts(&c, TEXTS));
                fletch_close(model);
                cr_assert_eq(c.answers, 1);
                cr_assert_eq(fl_fault_open(), 0);
            }
}

Test(submit, a_nan_is_never_delivered_as_success) {
    fl_fault_plan plan  = {.slots = 1, .planned = FL_FAULT_SILENT_NAN, .at = 0, .times = 1000};
    fletch_model *model = open_with(&plan, NULL);
    static call   c;
    call_init(&c, model);
    cr_assert_eq(submit(&c, 10, false, 0), 0);
    cr_assert_eq(wait_for(&c), FLETCH_EMODEL);
    cr_assert_lt(c.outcome.error.where, 10);
    fletch_close(model);
}

Test(submit, without_status_the_first_bad_text_fails_the_request_and_names_itself) {
    fletch_model *model = open_with(&quiet, NULL);
    static call   c;
    call_init(&c, model);
    strings[3] = "\xff not UTF-8";
    strings[7] = "\xfe neither";
    cr_assert_eq(submit(&c, 10, false, 0), 0);
    cr_assert_eq(wait_for(&c), FLETCH_EUTF8);
    cr_assert_eq(c.outcome.error.where, 3);
    call_init(&c, model);
    cr_assert_eq(submit(&c, 10, true, 0), 0);
    cr_assert_eq(wait_for(&c), FLETCH_OK);
    for (size_t i = 0; i < 10; i++)
        cr_assert_eq(c.status[i], i == 3 || i == 7 ? FLETCH_EUTF8 : FLETCH_OK, "text %zu", i);
    check_rows(&c, 10);
    fletch_close(model);
}

Test(submit, an_engine_that_stays_broken_fails_what_waits_and_comes_back) {
    fl_fault_plan plan = {
        .slots = 1, .planned = FL_FAULT_BROKEN, .at = 0, .times = 1, .opens_fail = 0};
    fletch_model *model = open_with(&plan, NULL);
    fletch_stats  stats = {.size = sizeof stats};
    static call   c, queued;
    call_init(&c, model);
    call_init(&queued, model);
    plan.opens_fail = 1 << 30; /* until told otherwise */
    plan.gated      = true;
    fl_fault_set(&plan);
    cr_assert_eq(submit(&c, 5, false, 0), 0);
    do {
        nap();
        cr_assert_eq(fletch_stats_get(model, &stats, NULL), 0);
    } while (stats.slots_busy == 0);
    cr_assert_eq(submit(&queued, 5, false, 0), 0);
    fl_fault_allow(0, 1);
    cr_assert_eq(wait_for(&c), FLETCH_EPROVIDER, "%s", c.outcome.error.message);
    cr_assert_eq(wait_for(&queued), FLETCH_EPROVIDER);
    cr_assert_eq(queued.outcome.error.where, FLETCH_NOWHERE, "none of its texts is to blame");
    cr_assert_eq(fletch_stats_get(model, &stats, NULL), 0);
    cr_assert_eq(stats.counter[FLETCH_COUNT_REPLICA_FAILURES], 1);
    cr_assert_eq(stats.replicas_ready, 0);
    fl_fault_set(&quiet);
    int status;
    do { /* until the next try, at most 30 s away */
        nap();
        call_init(&c, model);
        status = submit(&c, 5, false, 0);
    } while (status == FLETCH_EPROVIDER);
    cr_assert_eq(status, 0);
    cr_assert_eq(wait_for(&c), FLETCH_OK);
    check_rows(&c, 5);
    fletch_close(model);
}

/* ---- Cancel, deadline, close ------------------------------------------------------------------ */

/* An engine that is late for every batch, so that texts queue; and one that holds on to its batch. */
static const fl_fault_plan slow = {.slots = 1, .planned = FL_FAULT_LATE, .at = 0, .times = 1 << 30};
static const fl_fault_plan held = {
    .slots = 1, .planned = FL_FAULT_LATE, .at = 0, .times = 1 << 30, .late_ms = FL_FAULT_HELD};

Test(submit, a_cancelled_request_is_answered_once_and_its_ticket_dies) {
    static const char *const options[][2] = {{"batch.max_texts", "1"}, {NULL, NULL}};
    fletch_model            *model        = open_with(&quiet, options);
    static call              first, second;
    call_init(&first, model);
    call_init(&second, model);
    fl_fault_set(&held);
    cr_assert_eq(submit(&first, TEXTS, false, 0), 0);
    cr_assert_eq(submit(&second, TEXTS, false, 0), 0);
    cr_assert_eq(fletch_cancel(model, second.ticket), 0);
    cr_assert_eq(wait_for(&second), FLETCH_ECANCELLED);
    cr_assert_eq(fletch_cancel(model, second.ticket), FLETCH_ENOTFOUND);
    cr_assert_eq(fletch_cancel(model, 0), FLETCH_ENOTFOUND);
    cr_assert_eq(fletch_cancel(model, 12345678901234), FLETCH_ENOTFOUND);
    fl_fault_set(&quiet);
    cr_assert_eq(wait_for(&first), FLETCH_OK);
    cr_assert_eq(fletch_cancel(model, first.ticket), FLETCH_ENOTFOUND);
    fletch_stats stats = {.size = sizeof stats};
    fletch_stats_get(model, &stats, NULL);
    cr_assert_eq(stats.counter[FLETCH_COUNT_CANCELLED_REQUESTS], 1);
    cr_assert_eq(stats.queued_texts, 0);
    fletch_close(model);
    cr_assert_eq(first.answers, 1);
    cr_assert_eq(second.answers, 1);
}

Test(submit, a_late_request_leaves_the_queue) {
    static const char *const options[][2] = {{"batch.max_texts", "1"}, {NULL, NULL}};
    fletch_model            *model        = open_with(&slow, options);
    static call              c;
    call_init(&c, model);
    cr_assert_eq(submit(&c, TEXTS, false, 15), 0); /* 40 batches of 1 to 5 ms */
    cr_assert_eq(wait_for(&c), FLETCH_EDEADLINE);
    cr_assert_lt(c.outcome.total_ns, 60 * 1000000000ull);
    fletch_stats stats = {.size = sizeof stats};
    fletch_stats_get(model, &stats, NULL);
    cr_assert_eq(stats.counter[FLETCH_COUNT_EXPIRED_REQUESTS], 1);
    cr_assert_eq(stats.queued_texts, 0);
    fletch_close(model);
    cr_assert_eq(c.answers, 1);
}

/* ---- Reranking by late interaction: its query is a request of its own -------------------------- */

static int submit_late(call *c, const char *query, size_t count, uint32_t deadline_ms) {
    fletch_request request = FLETCH_REQUEST_INIT;
    fletch_error   error   = {0};
    request.texts          = fletch_texts_from_strings(strings, count);
    request.kind           = query ? FLETCH_KIND_SCORES : FLETCH_KIND_TOKENS;
    request.query          = query;
    request.query_size     = query ? strlen(query) : 0;
    request.out            = fletch_matrix_f32(c->rows, count, 1);
    request.deadline_ms    = deadline_ms;
    return fletch_submit(c->model, &request, done, c, &c->ticket, &error);
}

static uint64_t queued(fletch_model *model) {
    fletch_stats stats = {.size = sizeof stats};
    fletch_stats_get(model, &stats, NULL);
    return stats.queued_texts;
}

static void wait_until_busy(fletch_model *model) {
    fletch_stats stats = {.size = sizeof stats};
    do {
        nap();
        fletch_stats_get(model, &stats, NULL);
    } while (stats.slots_busy == 0);
}

Test(submit, a_late_query_goes_with_its_parent) {
    fletch_model *model = NULL;
    fletch_error  error = {0};
    static call   first, cancelled, expired;
    fl_fault_set(&quiet);
    cr_assert_eq(fletch_open(&model, "tests/golden/late/bert", NULL, &error), 0, "%s",
                 error.message);
    call_init(&first, model);
    call_init(&cancelled, model);
    call_init(&expired, model);
    fl_fault_set(&held);
    cr_assert_eq(submit_late(&first, NULL, 1, 0), 0);
    wait_until_busy(model); /* what comes now waits */
    cr_assert_eq(submit_late(&cancelled, "a query", 3, 0), 0);
    cr_assert_eq(queued(model), 1, "its query alone: the documents wait for that");
    cr_assert_eq(fletch_cancel(model, cancelled.ticket), 0);
    cr_assert_eq(wait_for(&cancelled), FLETCH_ECANCELLED);
    cr_assert_eq(queued(model), 0, "the query of a cancelled request");
    cr_assert_eq(submit_late(&expired, "another query", 3, 15), 0);
    cr_assert_eq(wait_for(&expired), FLETCH_EDEADLINE);
    cr_assert_eq(queued(model), 0, "the query of a late request");
    fl_fault_set(&quiet);
    cr_assert_eq(wait_for(&first), FLETCH_EUNSUPPORTED, "this engine gives no rows of tokens");
    fletch_close(model);
    cr_assert_eq(cancelled.answers, 1);
    cr_assert_eq(expired.answers, 1);
    cr_assert_eq(fl_fault_open(), 0);
}

static void *close_it(void *model) {
    fletch_close(model);
    return NULL;
}

/* Close while the engine holds on to a batch, which it lets go once `queued` was answered. */
static void close_in_the_middle(fletch_model *model, call *queued) {
    pthread_t closer;
    pthread_create(&closer, NULL, close_it, model);
    cr_assert_eq(wait_for(queued), FLETCH_ECANCELLED);
    fl_fault_set(&quiet);
    pthread_join(closer, NULL);
}

Test(submit, closing_answers_everything_that_waits) {
    static const char *const options[][2] = {{"batch.max_texts", "1"}, {NULL, NULL}};
    fletch_model            *model        = open_with(&quiet, options);
    static call              calls[5];
    fl_fault_set(&held);
    for (int i = 0; i < 5; i++) {
        call_init(&calls[i], model);
        cr_assert_eq(submit(&calls[i], TEXTS, false, 0), 0);
    }
    close_in_the_middle(model, &calls[4]);
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(calls[i].answers, 1);
        cr_assert_eq(calls[i].outcome.error.code, FLETCH_ECANCELLED);
    }
    cr_assert_eq(fl_fault_open(), 0);
}

typedef struct waiting_caller {
    fletch_model *model;
    int           status;
} waiting_caller;

static void *embed_all(void *arg) {
    waiting_caller *w = arg;
    static float    rows[TEXTS * DIM_MAX];
    fletch_texts    texts = fletch_texts_from_strings(strings, TEXTS);
    fletch_matrix   out   = fletch_matrix_f32(rows, TEXTS, dim);
    w->status             = fletch_embed(w->model, &texts, NULL, &out, NULL);
    return NULL;
}

Test(submit, closing_lets_a_caller_that_waits_go) {
    static const char *const options[][2] = {{"batch.max_texts", "1"}, {NULL, NULL}};
    waiting_caller           w            = {.model = open_with(&quiet, options)};
    uint64_t                 before       = fl_fault_forwards();
    static call              queued;
    pthread_t                thread;
    fl_fault_set(&held);
    pthread_create(&thread, NULL, embed_all, &w);
    while (fl_fault_forwards() == before)
        nap();
    call_init(&queued, w.model);
    cr_assert_eq(submit(&queued, 1, false, 0), 0);
    close_in_the_middle(w.model, &queued);
    pthread_join(thread, NULL);
    cr_assert_eq(w.status, FLETCH_ECANCELLED);
}

/* ---- Callbacks that call back in --------------------------------------------------------------- */

static void embed_inside(call *c) {
    const char   *text  = strings[0];
    fletch_texts  texts = fletch_texts_from_strings(&text, 1);
    fletch_matrix out   = fletch_matrix_f32(c->other, 1, dim);
    cr_assert_eq(fletch_embed(c->model, &texts, NULL, &out, NULL), 0);
}

static void submit_inside(call *c) {
    cr_assert_eq(submit(c->other, TEXTS, false, 0), 0);
    cr_assert_eq(fletch_cancel(c->model, c->ticket), FLETCH_ENOTFOUND); /* it is over */
}

static void close_inside(call *c) {
    fletch_close(c->model);
}

Test(submit, a_callback_may_embed_submit_and_cancel) {
    fletch_model *model = open_with(&quiet, NULL);
    static call   outer, inner;
    static float  row[DIM_MAX];
    call_init(&outer, model);
    outer.inside = embed_inside;
    outer.other  = row;
    cr_assert_eq(submit(&outer, 3, false, 0), 0);
    cr_assert_eq(wait_for(&outer), FLETCH_OK);
    cr_assert_eq(memcmp(row, want, dim * sizeof *row), 0);
    call_init(&outer, model);
    call_init(&inner, model);
    outer.inside = submit_inside;
    outer.other  = &inner;
    cr_assert_eq(submit(&outer, 3, false, 0), 0);
    cr_assert_eq(wait_for(&outer), FLETCH_OK);
    cr_assert_eq(wait_for(&inner), FLETCH_OK);
    check_rows(&inner, TEXTS);
    fletch_close(model);
}

Test(submit, a_callback_may_close) {
    static call c;
    call_init(&c, open_with(&quiet, NULL));
    c.inside = close_inside;
    cr_assert_eq(submit(&c, 3, false, 0), 0);
    cr_assert_eq(wait_for(&c), FLETCH_OK);
    while (fl_fault_open() != 0) /* for ever, if the model is never closed */
        nap();
}

/* ---- What is asked ---------------------------------------------------------------------------- */

Test(submit, zero_texts_are_answered_at_once) {
    fletch_model *model = open_with(&quiet, NULL);
    static call   c;
    call_init(&c, model);
    cr_assert_eq(submit(&c, 0, false, 0), 0);
    cr_assert_eq(c.answers, 1);
    cr_assert_eq(c.outcome.error.code, FLETCH_OK);
    fletch_close(model);
}

Test(submit, wrong_arguments_are_refused_and_done_is_not_called) {
    fletch_model *model = open_with(&quiet, NULL);
    static call   c;
    fletch_error  error;
    call_init(&c, model);
    fletch_request good = FLETCH_REQUEST_INIT, request;
    good.texts          = fletch_texts_from_strings(strings, 2);
    good.out            = fletch_matrix_f32(c.rows, 2, dim);
    cr_assert_eq(fletch_submit(NULL, &good, done, &c, NULL, &error), FLETCH_EINVAL);
    cr_assert_eq(fletch_submit(model, NULL, done, &c, NULL, &error), FLETCH_EINVAL);
    cr_assert_eq(fletch_submit(model, &good, NULL, &c, NULL, &error), FLETCH_EINVAL);
    request            = good;
    request.out.stride = 4;
    cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, &error), FLETCH_EINVAL);
    request          = good;
    request.out.rows = 1;
    cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, &error), FLETCH_EINVAL);
    request          = good;
    request.out.cols = dim + 1;
    cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, &error), FLETCH_EINVAL);
    request      = good;
    request.lane = (fletch_lane)7;
    cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, &error), FLETCH_EINVAL);
    request     = good;
    request.ids = (const int32_t[]){1, 2};
    cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, &error), FLETCH_EINVAL);
    request      = good;
    request.size = 3;
    cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, &error), FLETCH_EINVAL);
    fletch_close(model);
    cr_assert_eq(c.answers, 0);
}

Test(submit, token_ids_give_the_vector_of_their_text) {
    fletch_model  *model = open_with(&quiet, NULL);
    fletch_tokens *tokens;
    static call    c;
    fletch_error   error;
    call_init(&c, model);
    cr_assert_eq(fletch_tokenize(model, strings[5], strlen(strings[5]), NULL, &tokens, &error), 0);
    int64_t        offsets[] = {0, (int64_t)tokens->count};
    fletch_request request   = FLETCH_REQUEST_INIT;
    request.texts.count      = 1;
    request.texts.offsets64  = offsets;
    request.ids              = tokens->ids;
    request.out              = fletch_matrix_f32(c.rows, 1, dim);
    cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, &error), 0, "%s", error.message);
    cr_assert_eq(wait_for(&c), FLETCH_OK);
    cr_assert_eq(memcmp(c.rows, want + 5 * dim, dim * sizeof(float)), 0);
    call_init(&c, model);
    request.ids = (const int32_t[]){1 << 30};
    offsets[1]  = 1;
    cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, &error), 0);
    cr_assert_eq(wait_for(&c), FLETCH_EINVAL);
    call_init(&c, model);
    offsets[1] = 0; /* no ids: no vector */
    cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, &error), 0);
    cr_assert_eq(wait_for(&c), FLETCH_EINVAL);
    fletch_tokens_free(tokens);
    fletch_close(model);
}

/* What fletch_tokenize cuts and what fletch_submit cuts of the whole must be the same ids. */
Test(submit, token_ids_are_cut_as_texts_are) {
    static const fletch_truncate ways[] = {FLETCH_TRUNCATE_RIGHT, FLETCH_TRUNCATE_LEFT};
    static const char text[] = "the cat sat on a mat and the dog ran to the old house again";
    fletch_model     *model  = open_with(&quiet, NULL);
    static call       calls[2];
    fletch_error      error;
    for (size_t way = 0; way < 2; way++) {
        fletch_tokenize_options options = FLETCH_TOKENIZE_OPTIONS_INIT;
        fletch_tokens          *tokens[2]; /* all, and what is left of them */
        cr_assert_eq(fletch_tokenize(model, text, strlen(text), &options, &tokens[0], &error), 0);
        options.max_length = 6;
        options.truncate   = ways[way];
        cr_assert_eq(fletch_tokenize(model, text, strlen(text), &options, &tokens[1], &error), 0);
        cr_assert(tokens[1]->count == 6 && tokens[1]->special[0] && tokens[1]->special[5]);
        for (int i = 0; i < 2; i++) {
            int64_t        offsets[] = {0, (int64_t)tokens[i]->count};
            fletch_request request   = FLETCH_REQUEST_INIT;
            call_init(&calls[i], model);
            request.texts.count      = 1;
            request.texts.offsets64  = offsets;
            request.ids              = tokens[i]->ids;
            request.out              = fletch_matrix_f32(calls[i].rows, 1, dim);
            fletch_embed_options cut = FLETCH_EMBED_OPTIONS_INIT;
            cut.max_length           = 6;
            cut.truncate             = ways[way];
            request.options          = &cut;
            cr_assert_eq(fletch_submit(model, &request, done, &calls[i], NULL, &error), 0);
            cr_assert_eq(wait_for(&calls[i]), FLETCH_OK);
            fletch_tokens_free(tokens[i]);
        }
        cr_assert_eq(memcmp(calls[0].rows, calls[1].rows, dim * sizeof(float)), 0, "way %zu", way);
    }
    fletch_close(model);
}

Test(submit, too_much_waiting_turns_requests_away) {
    static const char *const options[][2] = {
        {"batch.max_texts", "1"}, {"server.max_queue_tokens", "50"}, {NULL, NULL}};
    fletch_model *model = open_with(&slow, options);
    static call   calls[10];
    int           busy = 0;
    for (int i = 0; i < 10; i++) {
        call_init(&calls[i], model);
        int status = submit(&calls[i], 10, false, 0);
        cr_assert(status == 0 || status == FLETCH_EBUSY);
        busy += status == FLETCH_EBUSY;
    }
    cr_assert_gt(busy, 0);
    fletch_close(model);
    int answers = 0;
    for (int i = 0; i < 10; i++)
        answers += calls[i].answers;
    cr_assert_eq(answers + busy, 10);
}

Test(submit, steady_state_allocates_nothing) {
    static const char *const options[][2] = {{"io.input_buffers", "8"}, {NULL, NULL}};
    fletch_model            *model        = open_with(&slow, options);
    static call              warm[6], c;
    for (int i = 0; i < 6; i++) { /* a few at once: a request is kept until its callback returned */
        call_init(&warm[i], model);
        cr_assert_eq(submit(&warm[i], 20, false, 0), 0);
    }
    for (int i = 0; i < 6; i++)
        cr_assert_eq(wait_for(&warm[i]), FLETCH_OK);
    fl_fault_set(&quiet);
    uint64_t before = fl_alloc_count();
    for (size_t i = 0; i < 60; i++) {
        call_init(&c, model);
        cr_assert_eq(submit(&c, 1 + i % 20, false, 0), 0);
        cr_assert_eq(wait_for(&c), FLETCH_OK);
    }
    cr_assert_eq(fl_alloc_count(), before);
    fletch_stats stats = {.size = sizeof stats};
    fletch_stats_get(model, &stats, NULL);
    cr_assert_geq((double)stats.counter[FLETCH_COUNT_POOL_HITS],
                  0.99 * (double)stats.counter[FLETCH_COUNT_POOL_REQUESTS]);
    cr_assert_eq(stats.counter[FLETCH_COUNT_STAGED_OUTPUTS], 0,
                 "every row went into the caller's memory");
    fletch_close(model);
}

/* The most texts of a batch when three requests wait for a provider to be through with another. */
static uint64_t most_texts_of(const char *provider) {
    fl_fault_plan stuck = {
        .slots = 1, .planned = FL_FAULT_LATE, .times = 1, .late_ms = FL_FAULT_HELD};
    const char *const options[][2] = {
        {"provider.order", provider}, {"batch.max_tokens", "16384"}, {NULL, NULL}};
    fletch_model *model = open_with(&quiet, options);
    static call   calls[4];
    fl_fault_set(&stuck);
    for (int i = 0; i < 4; i++) {
        call_init(&calls[i], model);
        cr_assert_eq(submit(&calls[i], TEXTS, false, 0), 0);
        while (fl_fault_most_texts() == 0) /* the first is in the engine, alone */
            nap();
    }
    fl_fault_set(&quiet);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(wait_for(&calls[i]), FLETCH_OK);
        check_rows(&calls[i], TEXTS);
    }
    uint64_t most = fl_fault_most_texts();
    fletch_close(model);
    return most;
}

Test(submit, short_texts_fill_a_batch_of_a_device) {
    cr_assert_eq(most_texts_of("cuda"), 3 * TEXTS, "tokens alone bound it");
    cr_assert_eq(most_texts_of("cpu"), 64, "batch.max_texts");
}

/* Threads of idle slots tokenise too, and what is behind may be found bad first. The texts are so long that
 * a thread's share of them is several chunks. */
Test(submit, the_first_bad_text_is_named_however_many_threads_tokenise) {
    enum { MANY = 2000, FIRST = 575 };
    static char        good[300];
    static const char *many[MANY];
    static float       rows[MANY * DIM_MAX];
    fl_fault_plan      plan  = {.slots = 4, .devices = 2};
    fletch_model      *model = NULL;
    fletch_error       error;
    memset(good, 'a', sizeof good - 1);
    for (size_t i = 0; i < MANY; i++)
        many[i] = i < FIRST ? good : "\xFF";
    fl_fault_set(&plan);
    cr_assert_eq(fletch_open(&model, "tests/golden/folders/mpnet-plain", NULL, &error), 0);
    for (int round = 0; round < 50; round++) {
        fletch_texts  texts = fletch_texts_from_strings(many, MANY);
        fletch_matrix out   = fletch_matrix_f32(rows, MANY, fletch_dimensions(model));
        cr_assert_eq(fletch_embed(model, &texts, NULL, &out, &error), FLETCH_EUTF8);
        cr_assert_eq(error.where, FIRST, "round %d: text %zu", round, error.where);
    }
    fletch_close(model);
}

Test(submit, reopening_loses_nothing) {
    static const char *const options[][2] = {{"batch.max_texts", "1"}, {NULL, NULL}};
    fletch_model            *model        = open_with(&slow, options);
    static call              calls[4];
    fletch_error             error;
    for (int i = 0; i < 4; i++) {
        call_init(&calls[i], model);
        cr_assert_eq(submit(&calls[i], 10, false, 0), 0);
        cr_assert_eq(fletch_model_reopen(model, NULL, &error), 0, "%s", error.message);
        cr_assert_eq(fl_fault_open(), 1);
    }
    fl_fault_plan failing = slow;
    failing.opens_fail    = 1;
    fl_fault_set(&failing);
    cr_assert_eq(fletch_model_reopen(model, NULL, &error), FLETCH_EPROVIDER);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(wait_for(&calls[i]), FLETCH_OK);
        check_rows(&calls[i], 10);
    }
    fletch_close(model);
}
