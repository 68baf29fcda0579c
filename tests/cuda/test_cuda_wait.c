/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_wait.c - how long a thread asks for its batch before it sleeps: 2 ms alone, 0.2 ms beside others.
 *
 * Method  The device hangs until the thread takes its first nap. The C library's clock and nap are replaced
 *         for that thread: a look at the clock is 10 us later than the one before, however busy the
 *         machine is, and the nap notes the time and lets the device go on. */
#include "toy_cuda.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_NS = 10000, SLACK_NS = 50000 };

typedef struct watch {
    bool     on, napped;
    uint64_t now_ns; /* since it is on, up to the first nap */
} watch;

static _Thread_local watch mine;

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *out) {
    if (!mine.on || clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, out);
    mine.now_ns += mine.napped ? 0 : LOOK_NS;
    *out = (struct timespec){1, (long)mine.now_ns};
    return 0;
}

__attribute__((visibility("default"))) int nanosleep(const struct timespec *length,
                                                     struct timespec       *left) {
    if (!mine.on || mine.napped)
        return (int)syscall(SYS_nanosleep, length, left);
    mine.napped = true;
    sim_heal();
    return 0;
}

typedef struct call {
    const opened *o;
    batch         m;
} call;

static void forward(const call *c, uint32_t slot) {
    fletch_error error;
    cr_assert_eq(c->o->ops->forward(c->o->engine, slot, &c->m.b, &error), FLETCH_OK, "%s",
                 error.message);
}

static void *forward_first(void *arg) {
    forward(arg, 0);
    return NULL;
}

/* Asks for a batch on stream 1 of a device that hangs; the time of the first nap. */
static uint64_t first_nap(const call *c) {
    mine = (watch){.on = true};
    forward(c, 1);
    mine.on = false;
    cr_assert(mine.napped);
    return mine.now_ns;
}

static void check_time(uint64_t napped_ns, uint64_t expected_ns) {
    cr_assert(napped_ns >= expected_ns && napped_ns <= expected_ns + SLACK_NS, "%llu ns of %llu",
              (unsigned long long)napped_ns, (unsigned long long)expected_ns);
}

Test(cuda, polls_for_longer_when_it_is_alone) {
    toy       t;
    pthread_t thread;
    call      calls[2];
    setup     s = usual;
    s.streams   = "2";
    s.graphs    = "false";
    toy_make(&t, &bert, 3);
    opened o = open_well(&t.encoder, &s);
    for (uint32_t i = 0; i < 2; i++) {
        calls[i].o = &o;
        make_batch(&calls[i].m, &t.encoder, some, SOME, 8 + i);
        forward(&calls[i], i);
    }
    sim_hang(0);
    check_time(first_nap(&calls[1]), 2000000);
    sim_hang(0);
    unsigned long before = sim_calls(SIM_LAUNCH);
    pthread_create(&thread, NULL, forward_first, &calls[0]);
    while (sim_calls(SIM_LAUNCH) == before)
        (void)sched_yield(); /* from here on it is under way, and cannot end */
    check_time(first_nap(&calls[1]), 200000);
    pthread_join(thread, NULL);
    free_batch(&calls[0].m);
    free_batch(&calls[1].m);
    shut(&o);
    toy_free(&t);
}
