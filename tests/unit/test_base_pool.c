/* SPDX-License-Identifier: Apache-2.0 */
/* test_base_pool.c - what must never break: a run calls every member exactly once and returns after
 * the last, plain memory written before and inside a run is seen after it, no wake-up is lost when the
 * team had gone to sleep, and barriers keep phases apart even with more members than cores. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/pool.h"

enum { MEMBERS_MAX = 16 };

typedef struct tally {
    int      calls[MEMBERS_MAX]; /* plain: the team alone orders them */
    unsigned size;
    int      input;
    int      output[MEMBERS_MAX];
} tally;

static void count_call(void *arg, unsigned member, unsigned size) {
    tally *t = arg;
    t->calls[member]++;
    t->output[member] = t->input + (int)member;
    if (size != t->size)
        t->calls[member] = -1000000;
}

Test(pool, every_member_runs_once_and_is_done_at_return, .timeout = 600) {
    for (unsigned size = 1; size <= MEMBERS_MAX; size = size * 2 + (size == 2)) {
        fl_team     *team;
        fletch_error error;
        tally        t = {.size = size};
        cr_assert_eq(fl_team_open(&team, size, NULL, &error), 0, "%s", error.message);
        cr_assert_eq(fl_team_size(team), size);
        for (int run = 1; run <= 500; run++) {
            t.input = run * 100;
            fl_team_run(team, count_call, &t);
            for (unsigned m = 0; m < size; m++)
                if (t.calls[m] != run || t.output[m] != run * 100 + (int)m)
                    cr_assert_fail("size %u run %d member %u: %d calls", size, run, m, t.calls[m]);
        }
        fl_team_close(team);
    }
}

/* A run of some leaves the others where they are, and each that is called runs once. */
Test(pool, some_members_run_and_no_others, .timeout = 600) {
    fl_team     *team;
    fletch_error error;
    cr_assert_eq(fl_team_open(&team, MEMBERS_MAX, NULL, &error), 0, "%s", error.message);
    int calls[MEMBERS_MAX] = {0};
    for (unsigned run = 0; run < 400; run++) {
        tally t = {.size = 1 + run * 7 % MEMBERS_MAX};
        fl_team_run_some(team, t.size, count_call, &t);
        for (unsigned m = 0; m < MEMBERS_MAX; m++) {
            cr_assert_eq(t.calls[m], m < t.size, "run %u of %u, member %u", run, t.size, m);
            calls[m] += t.calls[m];
        }
    }
    cr_expect_eq(calls[0], 400);
    cr_expect_eq(calls[MEMBERS_MAX - 1], 25);
    fl_team_close(team);
}

/* Long enough that every worker sleeps between runs; a lost wake-up hangs and hits the timeout. */
Test(pool, a_sleeping_team_wakes_up, .timeout = 600) {
    fl_team     *team;
    fletch_error error;
    tally        t = {.size = 4};
    cr_assert_eq(fl_team_open(&team, 4, NULL, &error), 0);
    for (int run = 1; run <= 200; run++) {
        struct timespec nap = {0, (run % 4) * 50000};
        nanosleep(&nap, NULL);
        fl_team_run(team, count_call, &t);
        cr_assert_eq(t.calls[3], run);
    }
    fl_team_close(team);
}

static void nap_by_member(void *arg, unsigned member, unsigned size) {
    struct timespec nap = {0, 200000 * (long)member};
    nanosleep(&nap, NULL);
    count_call(arg, member, size);
}

Test(pool, a_caller_that_sleeps_for_slow_workers_wakes_up, .timeout = 600) {
    fl_team     *team;
    fletch_error error;
    tally        t = {.size = 4};
    cr_assert_eq(fl_team_open(&team, 4, NULL, &error), 0);
    for (int run = 1; run <= 100; run++) {
        fl_team_run(team, nap_by_member, &t);
        cr_assert_eq(t.calls[3], run);
    }
    fl_team_close(team);
}

typedef struct phases {
    fl_barrier barrier;
    int        step[MEMBERS_MAX];
    int        wrong[MEMBERS_MAX];
    int        rounds;
} phases;

/* Each round all write, meet, read all, meet: a member that runs ahead is seen. */
static void in_step(void *arg, unsigned member, unsigned size) {
    phases *p = arg;
    for (int round = 1; round <= p->rounds; round++) {
        p->step[member] = round;
        fl_barrier_wait(&p->barrier);
        for (unsigned m = 0; m < size; m++)
            p->wrong[member] += p->step[m] != round;
        fl_barrier_wait(&p->barrier);
    }
}

Test(pool, barrier_keeps_phases_apart, .timeout = 600) {
    for (unsigned size = 1; size <= 8; size *= 2) {
        fl_team     *team;
        fletch_error error;
        phases       p;
        memset(&p, 0, sizeof p);
        p.rounds = size > 2 ? 300 : 5000;
        cr_assert_eq(fl_team_open(&team, size, NULL, &error), 0);
        fl_barrier_init(&p.barrier, team, size);
        fl_team_run(team, in_step, &p);
        for (unsigned m = 0; m < size; m++) {
            cr_assert_eq(p.wrong[m], 0, "size %u member %u", size, m);
            cr_assert_eq(p.step[m], p.rounds);
        }
        fl_team_close(team);
    }
}

/* Member 0 uses no processor while it waits; a lost wake-up hangs and hits the timeout. */
static void wait_for_a_sleeper(void *arg, unsigned member, unsigned size) {
    phases         *p = arg;
    struct timespec begin, end, nap = {0, 2000000};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    for (int round = 0; round < p->rounds; round++) {
        if (member + 1 == size)
            nanosleep(&nap, NULL);
        fl_barrier_wait(&p->barrier);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    p->step[member] =
        (int)((end.tv_sec - begin.tv_sec) * 1000000 + (end.tv_nsec - begin.tv_nsec) / 1000);
}

Test(pool, a_member_that_waits_leaves_its_core, .timeout = 600) {
    for (unsigned size = 2; size <= 4; size++) {
        fl_team     *team;
        fletch_error error;
        phases       p = {.rounds = 100};
        cr_assert_eq(fl_team_open(&team, size, NULL, &error), 0);
        fl_barrier_init(&p.barrier, team, size);
        fl_team_run(team, wait_for_a_sleeper, &p);
        cr_assert_lt(p.step[0], 100000, "%d us of processor time in 200 ms of waiting", p.step[0]);
        fl_team_close(team);
    }
}

Test(pool, running_allocates_nothing) {
    fl_team     *team;
    fletch_error error;
    tally        t = {.size = 3};
    cr_assert_eq(fl_team_open(&team, 3, NULL, &error), 0);
    uint64_t before = fl_alloc_count();
    for (int run = 0; run < 100; run++)
        fl_team_run(team, count_call, &t);
    cr_assert_eq(fl_alloc_count(), before);
    fl_team_close(team);
}

Test(pool, failures_leave_nothing) {
    fl_team     *team = (fl_team *)&team;
    fletch_error error;
    cr_assert_eq(fl_team_open(&team, 0, NULL, &error), FLETCH_EINVAL);
    cr_assert_null(team);
    fl_alloc_fail_after(1);
    cr_assert_eq(fl_team_open(&team, 2, NULL, &error), FLETCH_ENOMEM);
    cr_assert_null(team);
    fl_team_close(NULL);
}

static void keep_mask(void *arg, unsigned member, unsigned size) {
    sigset_t *masks = arg;
    (void)size;
    pthread_sigmask(SIG_SETMASK, NULL, &masks[member]);
}

Test(pool, signals_stay_with_the_program) {
    fl_team     *team;
    fletch_error error;
    sigset_t     masks[3];
    cr_assert_eq(fl_team_open(&team, 3, NULL, &error), 0);
    fl_team_run(team, keep_mask, masks);
    cr_assert_eq(sigismember(&masks[0], SIGINT), 0, "the caller's mask is as before");
    cr_assert_eq(sigismember(&masks[1], SIGINT), 1);
    cr_assert_eq(sigismember(&masks[2], SIGTERM), 1);
    fl_team_close(team);
}
