/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - a team of threads that runs one function on all its members, and a barrier for them.
 *
 * Role    the CPU engine splits a batch (or one small request) over the cores.
 * Method  A run publishes fn and arg and calls some members: each has a word of its own that it waits at, and
 *         calls CALLS others, so that none calls many and who is not called sleeps on. They run and count
 *         `pending` down; the caller works as member 0 and waits for 0. Waiting spins for SPIN_NS first,
 *         because waking a sleeper costs 5 to 50 us, more than a small request's share of work; then it
 *         sleeps on a futex, so an idle program uses no processor. A team larger than the cores it may use
 *         never spins: the spinner would hold the very core that the others need.
 *         No wake-up is lost: a sleeper first announces itself (`sleeps`), then the kernel compares the
 *         word again; who calls first changes the word, then reads `sleeps`. All four are sequentially
 *         consistent, so at least one side sees the other. The barrier waits in the same two steps.
 * Memory  one block at fl_team_open; nothing while running.
 * Threads one fl_team_run at a time. Workers block all signals: they are the program's, not ours.
 * Proof   tests/unit/test_base_pool.c, also under ThreadSanitizer. */
#include "base/pool.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/thread.h"

enum {
    SPIN_NS        = 30000,
    SPIN_PAUSES    = 32,  /* pauses between two looks at the clock */
    CALLS          = 4,   /* other members that one calls: 192 are there after four steps */
    BARRIER_PAUSES = 2000 /* 20 to 80 us, then a member sleeps at the barrier */
};

enum { FREE = -1 };

typedef struct worker {
    _Alignas(64) atomic_uint called; /* how often; on its own line: the worker polls it */
    atomic_uint sleeps;              /* or is about to */
    fl_team    *team;                /* borrowed */
    unsigned    member;
    int         core; /* processor it pins itself to, or FREE */
    pthread_t   thread;
} worker;

struct fl_team {
    unsigned   size;
    bool       may_spin;
    bool       stop; /* published by the calls, as the next three are */
    unsigned   members;
    fl_team_fn fn;
    void      *arg;
    _Alignas(64) atomic_uint pending; /* workers that are still in fn */
    atomic_uint caller_sleeps;
    worker      workers[]; /* [size - 1], members 1 .. size-1 */
};

/* ---- Waiting --------------------------------------------------------------------------------- */

static inline void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::
                         : "memory"); /* yield is a no-op on most cores; isb waits some cycles */
#endif
}

/* Spin until *word differs from `value`, for SPIN_NS at most; whether it differs. */
static bool spin_until_not(const fl_team *team, atomic_uint *word, unsigned value) {
    if (atomic_load_explicit(word, memory_order_acquire) != value)
        return true;
    if (!team->may_spin)
        return false;
    uint64_t end = fl_clock_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPIN_PAUSES; i++) {
            pause_core();
            if (atomic_load_explicit(word, memory_order_acquire) != value)
                return true;
        }
    } while (fl_clock_ns() < end);
    return false;
}

/* Wait to be called once more than `seen` times. */
static unsigned wait_for_call(worker *self, unsigned seen) {
    if (!spin_until_not(self->team, &self->called, seen)) {
        atomic_store(&self->sleeps, 1);
        while (atomic_load(&self->called) == seen)
            fl_os_wait(&self->called, seen);
        atomic_store(&self->sleeps, 0);
    }
    return atomic_load_explicit(&self->called, memory_order_acquire);
}

/* The caller's wait for its workers. */
static void wait_for_workers(fl_team *team) {
    for (;;) {
        unsigned pending = atomic_load_explicit(&team->pending, memory_order_acquire);
        if (pending == 0)
            return;
        if (spin_until_not(team, &team->pending, pending))
            continue;
        atomic_store(&team->caller_sleeps, 1);
        while ((pending = atomic_load(&team->pending)) != 0)
            fl_os_wait(&team->pending, pending);
        atomic_store(&team->caller_sleeps, 0);
    }
}

/* ---- The team -------------------------------------------------------------------------------- */

/* Call the members that `member` calls. */
static void call_others(fl_team *team, unsigned member) {
    unsigned first = member * CALLS + 1;
    for (unsigned i = first; i < first + CALLS && i < team->members; i++) {
        worker *w = &team->workers[i - 1];
        atomic_fetch_add(&w->called, 1);
        if (atomic_load(&w->sleeps) != 0)
            fl_os_wake(&w->called);
    }
}

static void *work(void *arg) {
    worker  *self = arg;
    fl_team *team = self->team;
    unsigned seen = 0;
    if (self->core != FREE)
        fl_cpu_pin((uint16_t)self->core);
    for (;;) {
        seen = wait_for_call(self, seen);
        call_others(team, self->member);
        if (team->stop)
            return NULL;
        team->fn(team->arg, self->member, team->members);
        bool last = atomic_fetch_sub(&team->pending, 1) == 1;
        if (last && atomic_load(&team->caller_sleeps) != 0)
            fl_os_wake(&team->pending);
    }
}

/* Stop and join the first `count` workers, then free the team. */
static void dismiss(fl_team *team, unsigned count) {
    assert(count < team->size);
    team->stop    = true;
    team->members = count + 1;
    call_others(team, 0);
    for (unsigned i = 0; i < count; i++)
        pthread_join(team->workers[i].thread, NULL);
    fl_free(team);
}

/* Start the workers with every signal blocked; the caller's mask is put back. Returns how many run.
 */
static unsigned start_workers(fl_team *team, const uint16_t *cores, int *reason) {
    assert(team->size > 0);
    sigset_t before;
    unsigned started = 0;
    fl_thread_hold_signals(&before);
    for (; started < team->size - 1; started++) {
        worker *w = &team->workers[started];
        w->team   = team;
        w->member = started + 1;
        w->core   = cores ? cores[w->member] : FREE;
        *reason   = pthread_create(&w->thread, NULL, work, w);
        if (*reason != 0)
            break;
        fl_os_thread_name(w->thread, "fletch-team");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

int fl_team_open(fl_team **out, unsigned size, const uint16_t *cores, fletch_error *error) {
    *out = NULL;
    if (size == 0)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE, "a team of 0 threads; use 1 or more");
    size_t bytes;
    if (fl_mul_overflow(size - 1, sizeof(worker), &bytes) ||
        fl_add_overflow(bytes, sizeof(fl_team), &bytes))
        return fl_fail_nomem(error, SIZE_MAX, "a team of threads");
    fl_team *team = fl_alloc_aligned(bytes, _Alignof(fl_team));
    if (team == NULL)
        return fl_fail_nomem(error, bytes, "a team of threads");
    memset(team, 0, bytes);
    team->size       = size;
    team->may_spin   = cores != NULL || fl_cpu_usable() >= size;
    int      reason  = 0;
    unsigned started = start_workers(team, cores, &reason);
    if (started != size - 1) {
        char words[64];
        dismiss(team, started);
        return fl_fail(error, FLETCH_EBUSY, FLETCH_NOWHERE,
                       "cannot start thread %u of %u: %s; lower cpu.intra_op_threads or raise the "
                       "limit (ulimit -u)",
                       started + 2, size, fl_os_reason(reason, words, sizeof words));
    }
    *out = team;
    return 0;
}

void fl_team_close(fl_team *team) {
    if (team != NULL)
        dismiss(team, team->size - 1);
}

unsigned fl_team_size(const fl_team *team) {
    return team->size;
}

void fl_team_run_some(fl_team *team, unsigned members, fl_team_fn fn, void *arg) {
    assert(fn && members > 0 && members <= team->size);
    assert(atomic_load(&team->pending) == 0);
    if (members == 1) {
        fn(arg, 0, 1);
        return;
    }
    team->fn      = fn;
    team->arg     = arg;
    team->members = members;
    atomic_store_explicit(&team->pending, members - 1, memory_order_relaxed);
    call_others(team, 0);
    fn(arg, 0, members);
    wait_for_workers(team);
}

void fl_team_run(fl_team *team, fl_team_fn fn, void *arg) {
    fl_team_run_some(team, team->size, fn, arg);
}

/* ---- The barrier ----------------------------------------------------------------------------- */

void fl_barrier_init(fl_barrier *barrier, const fl_team *team, unsigned members) {
    assert(members > 0 && members <= team->size);
    atomic_init(&barrier->arrived, 0);
    atomic_init(&barrier->phase, 0);
    atomic_init(&barrier->sleepers, 0);
    barrier->size   = members;
    barrier->pauses = team->may_spin ? BARRIER_PAUSES : 0;
}

void fl_barrier_wait(fl_barrier *barrier) {
    assert(barrier->size > 0);
    unsigned phase = atomic_load_explicit(&barrier->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel) + 1 ==
        barrier->size) {
        /* The last one opens: nobody counts again before it sees the new phase. */
        atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
        atomic_store(&barrier->phase, phase + 1);
        if (atomic_load(&barrier->sleepers) != 0)
            fl_os_wake(&barrier->phase);
        return;
    }
    for (unsigned i = 0; i < barrier->pauses; i++) {
        if (atomic_load_explicit(&barrier->phase, memory_order_acquire) != phase)
            return;
        pause_core();
    }
    atomic_fetch_add(&barrier->sleepers, 1);
    while (atomic_load(&barrier->phase) == phase)
        fl_os_wait(&barrier->phase, phase);
    atomic_fetch_sub(&barrier->sleepers, 1);
}
