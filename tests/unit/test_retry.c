/* SPDX-License-Identifier: Apache-2.0 */
/* test_retry.c - what must never break: whatever an engine refuses, every text of a batch is run or failed, a good
 * text never fails for a bad one, and a batch with one bad text costs few runs more. */
#include <criterion/criterion.h>

#include "scheduler/retry.h"

enum { BATCH = 64, RUNS_MAX = 4 * BATCH };

/* An engine that holds `room` texts and refuses runs with a bad text, whose place it says when `names`. */
static int run(const unsigned char *bad, uint32_t lo, uint32_t hi, uint32_t room, int names,
               size_t *where) {
    *where = FLETCH_NOWHERE;
    if (hi - lo > room)
        return FLETCH_ENOMEM;
    for (uint32_t i = lo; i < hi; i++)
        if (bad[i]) {
            *where = names ? i - lo : FLETCH_NOWHERE;
            return FLETCH_EMODEL;
        }
    return FLETCH_OK;
}

/* Carry a batch as worker.c does; returns the number of runs. */
static int carry(const unsigned char *bad, uint32_t room, int names) {
    fl_retry retry    = {.part = BATCH};
    uint32_t finished = 0;
    int      runs     = 0;
    while (finished < BATCH) {
        uint32_t hi = BATCH - finished < retry.part ? BATCH : finished + retry.part;
        size_t   where;
        int      status = run(bad, finished, hi, room, names, &where);
        cr_assert_lt(++runs, RUNS_MAX);
        if (status == FLETCH_OK) {
            finished = hi;
            continue;
        }
        switch (fl_retry_next(&retry, status, where, hi - finished, BATCH)) {
        case FL_RETRY_SMALLER: cr_assert(retry.part > 0 && retry.part < hi - finished); break;
        case FL_RETRY_FAIL_TEXT:
            cr_assert_eq(hi - finished, 1);
            cr_assert(bad[finished] || room == 0, "text %u is good", finished);
            finished++;
            break;
        case FL_RETRY_BREAK: cr_assert_fail("no engine failed");
        }
    }
    return runs;
}

Test(retry, a_named_text_costs_two_runs_more) {
    for (uint32_t i = 0; i < BATCH; i++) {
        unsigned char bad[BATCH] = {0};
        bad[i]                   = 1;
        cr_assert_leq(carry(bad, BATCH, 1), 5, "text %u", i);
        cr_assert_leq(carry(bad, BATCH, 0), BATCH + 2);
    }
}

Test(retry, an_engine_that_names_all_of_them_is_run_singly) {
    unsigned char bad[BATCH];
    for (uint32_t i = 0; i < BATCH; i++)
        bad[i] = 1;
    (void)carry(bad, BATCH, 1);
    cr_assert_leq(carry(bad, BATCH, 0), 3 * BATCH);
}

Test(retry, what_is_too_much_is_halved_and_stays_small) {
    unsigned char bad[BATCH] = {0};
    cr_assert_eq(carry(bad, 16, 1), 2 + BATCH / 16);
    (void)carry(bad, 1, 1);
    (void)carry(bad, 0, 1); /* not even one text: each fails alone */
    bad[7] = bad[40] = 1;
    (void)carry(bad, 16, 1);
}

Test(retry, any_other_failure_is_the_engine_s) {
    fl_retry retry = {.part = BATCH};
    cr_assert_eq(fl_retry_next(&retry, FLETCH_EPROVIDER, 0, BATCH, BATCH), FL_RETRY_BREAK);
    cr_assert_eq(fl_retry_next(&retry, FLETCH_EINTERNAL, 3, 1, BATCH), FL_RETRY_BREAK);
    cr_assert_eq(retry.part, BATCH);
}
