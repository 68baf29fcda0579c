/* SPDX-License-Identifier: Apache-2.0 */
/* test_spare.c - fletch_submit from a thread with time to spare: it carries what is alone and short, itself;
 * whatever is not, a slot carries; and each request is answered once either way. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "call.h"

TestSuite(spare, .init = prepare);

static const fl_fault_plan quiet = {.slots = 1};
static const fl_fault_plan slow = {.slots = 1, .planned = FL_FAULT_LATE, .at = 0, .times = 1 << 30};

/* The first `count` texts, computed on this thread or not. (Who answers says nothing: a request whose
 * texts a slot computed while this thread was still feeding it is answered here.) */
static bool carries(fletch_model *model, size_t count) {
    static call    c;
    const uint64_t before = fl_fault_here();
    call_init(&c, model);
    c.inline_us = UINT32_MAX;
    cr_assert_eq(submit(&c, count, false, 0), 0);
    cr_assert_eq(wait_for(&c), FLETCH_OK);
    check_rows(&c, count);
    return fl_fault_here() > before;
}

/* A slot's thread that is awake, since the model was opened a moment ago, may be there first. */
Test(spare, a_thread_with_time_to_spare_carries_a_lone_request) {
    fletch_model *model = open_with(&quiet, NULL);
    for (size_t count = 1; count < 32; count += 13) { /* a batch */
        bool carried = false;
        for (int i = 0; i < 1000 && !carried; i++) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            carried = carries(model, count);
        }
        cr_assert(carried, "%zu texts", count);
    }
    fletch_close(model);
}

Test(spare, a_request_that_takes_longer_than_there_is_to_spare_is_left_to_a_slot) {
    fletch_model  *model  = open_with(&slow, NULL);
    const uint64_t before = fl_fault_here();
    static call    c;
    for (uint32_t i = 0; i < 2; i++) { /* the first one shows how slow the engine is */
        call_init(&c, model);
        c.inline_us = i;
        cr_assert_eq(submit(&c, 1, false, 0), 0);
        cr_assert_eq(wait_for(&c), FLETCH_OK);
        cr_assert_eq(fl_fault_here(), before);
        check_rows(&c, 1);
    }
    fletch_close(model);
}

Test(spare, a_request_in_company_is_left_to_a_slot) {
    static const char *const options[][2] = {{"batch.max_texts", "1"}, {NULL, NULL}};
    fl_fault_plan            meet         = {.slots = 1, .devices = 2, .meet = 2};
    fletch_model            *model        = open_with(&meet, options);
    const uint64_t           before       = fl_fault_here();
    static call              first, second;
    for (int i = 0; i < 20; i++) { /* slots that were awake the first time sleep by then */
        fl_fault_set(&meet);
        call_init(&first, model);
        call_init(&second, model);
        second.inline_us = UINT32_MAX;
        cr_assert_eq(submit(&first, 1, false, 0), 0); /* in the engine until the second is there */
        cr_assert_eq(submit(&second, 1, false, 0), 0);
        cr_assert_eq(wait_for(&first), FLETCH_OK);
        cr_assert_eq(wait_for(&second), FLETCH_OK);
        cr_assert_eq(fl_fault_here(), before);
        check_rows(&second, 1);
    }
    fletch_close(model);
}

/* Texts beyond the first 64 are tokenised by another thread; here only their chunk can wake a slot. */
Test(spare, what_another_thread_tokenises_is_not_waited_for_in_vain) {
    enum { LONG = 65 };
    static const char *many[LONG];
    static float       rows[LONG * DIM_MAX];
    static int32_t     status[LONG];
    fletch_model      *model   = open_with(&quiet, NULL);
    fletch_request     request = FLETCH_REQUEST_INIT;
    static call        c;
    for (size_t i = 0; i < LONG; i++)
        many[i] = i + 1 < LONG ? "\xff" : strings[0];
    request.texts                = fletch_texts_from_strings(many, LONG);
    request.out                  = fletch_matrix_f32(rows, LONG, dim);
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    request.options              = &options;
    options.status               = status;
    request.inline_us            = UINT32_MAX;
    for (int i = 0; i < 20; i++) {
        call_init(&c, model);
        cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, NULL), 0);
        cr_assert_eq(wait_for(&c), FLETCH_OK);
        cr_assert_eq(status[0], FLETCH_EUTF8);
        cr_assert_eq(memcmp(rows + (LONG - 1) * dim, want, dim * sizeof(float)), 0);
    }
    fletch_close(model);
}

/* ---- Faults -------------------------------------------------------------------------------------- */

static void check_fault(fl_fault fault, int64_t at, uint32_t devices) {
    static const char *const options[][2] = {{"batch.max_texts", "8"}, {NULL, NULL}};
    fl_fault_plan plan  = {.slots = 1, .devices = devices, .planned = fault, .at = at, .times = 1};
    fletch_model *model = open_with(&plan, options);
    static call   c;
    call_init(&c, model);
    c.inline_us = UINT32_MAX;
    fl_fault_set(&plan); /* opening may have run something */
    cr_assert_eq(submit(&c, TEXTS, true, 0), 0);
    cr_assert_eq(wait_for(&c), FLETCH_OK, "fault %d at %d: %s", fault, (int)at,
                 c.outcome.error.message);
    check_rows(&c, TEXTS);
    uint64_t failed = 0;
    for (size_t i = 0; i < TEXTS; i++)
        failed += c.status[i] < 0;
    cr_assert_leq(failed, fault == FL_FAULT_BAD_TEXT, "fault %d at %d", fault, (int)at);
    fletch_close(model);
    cr_assert_eq(c.answers, 1);
}

Test(spare, whatever_fails_at_whatever_call_each_text_is_answered_once_and_right) {
    static const fl_fault faults[] = {FL_FAULT_BROKEN, FL_FAULT_NOMEM, FL_FAULT_NOMEM_ALL,
                                      FL_FAULT_BAD_TEXT};
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++)
        for (int64_t at = 0; at < 3; at++)
            for (uint32_t devices = 1; devices <= 2; devices++)
                check_fault(faults[f], at, devices);
}
