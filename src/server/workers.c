/* SPDX-License-Identifier: Apache-2.0 */
/* workers.c - a few threads for what would hold up an I/O thread or an engine.
 *
 * Role    Handlers marked FL_ROUTE_BLOCKING, large bodies to parse, searches, large results to write as text.
 * In/Out  A function and its argument, run once, on one of the threads.
 * Method  A job waits for its turn with a number: when it came plus what it is likely to take, plus what waits
 *         already for the same API key. The lowest number is next. So short jobs pass long ones, one key's
 *         many jobs do not hold up another's, and nothing waits for ever. One thread takes short jobs
 *         only: however many long ones there are, a short one waits for short ones at most.
 *         A job whose client has left or whose deadline has passed is told so at once; one that waits for a model
 *         to be opened is passed over until it is.
 *         What waits is bounded: beyond FL_WORK_QUEUE the caller refuses instead of queueing without end.
 * Memory  One block, made at the start. Threads: any may add.
 * Proof   tests/server/test_budgets.py, test_transport_*.py under ThreadSanitizer. */
#include <assert.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/locked.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/server_internal.h"

enum { LOOK_NS = 50000000 }; /* between looks for jobs whose time is over */

static const uint64_t short_ns = 500000000;

typedef struct job {
    fl_work_fn             fn;
    void                  *arg;
    const fl_http_request *request; /* for which it is; NULL: none in particular */
    uint64_t               cost_ns, turn;
} job;

FL_LOCK_ROLE(jobs_role); /* the lock of fl_workers */

struct fl_workers {
    pthread_mutex_t lock;
    pthread_cond_t  more;
    job             jobs[FL_WORK_QUEUE] FL_GUARDED_BY(jobs_role);
    size_t count    FL_GUARDED_BY(jobs_role);
    bool ending     FL_GUARDED_BY(jobs_role);
    unsigned        threads;
    pthread_t       thread[FL_WORKERS_MAX];
};

FL_LOCK_OF(jobs_role, fl_workers, lock, lock, unlock);

/* The job whose turn it is, or workers->count: none that this thread may take. A look at all of them costs
 * microseconds where a job takes tens at least. */
FL_REQUIRES(jobs_role) static size_t choose(const fl_workers *workers, bool short_only) {
    assert(workers->count <= FL_WORK_QUEUE);
    size_t best = workers->count;
    for (size_t i = 0; i < workers->count; i++) {
        const job *one = &workers->jobs[i];
        if (one->request != NULL && fl_request_over(one->request, NULL) < 0)
            return i; /* nobody waits for it any more: it is only told */
        if (one->request != NULL && !workers->ending && !fl_demand_due(fl_full_const(one->request)))
            continue;
        if ((!short_only || one->cost_ns < short_ns) &&
            (best == workers->count || one->turn < workers->jobs[best].turn))
            best = i;
    }
    return best;
}

static void *work(void *arg) {
    fl_workers *workers = arg;
    lock(workers);
    bool short_only = pthread_equal(workers->thread[0], pthread_self()) && workers->threads > 1;
    for (;;) {
        /* At the end every thread takes everything. */
        size_t i = choose(workers, short_only && !workers->ending);
        if (i == workers->count) {
            if (workers->ending)
                break;
            uint64_t look = workers->count > 0 ? fl_clock_ns() + LOOK_NS : UINT64_MAX;
            fl_cond_wait_until(&workers->more, &workers->lock, look);
            continue;
        }
        job next         = workers->jobs[i];
        workers->jobs[i] = workers->jobs[--workers->count];
        unlock(workers);
        next.fn(next.arg);
        lock(workers);
    }
    unlock(workers);
    return NULL;
}

int fl_workers_open(fl_workers **out, unsigned threads, fletch_error *error) {
    *out                = NULL;
    fl_workers *workers = fl_alloc_zero(1, sizeof *workers);
    if (workers == NULL) {
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE,
                       "out of memory for the worker threads");
    }
    pthread_mutex_init(&workers->lock, NULL);
    fl_cond_init(&workers->more);
    threads    = threads < 1 ? 1 : threads > FL_WORKERS_MAX ? FL_WORKERS_MAX : threads;
    int status = FLETCH_OK;
    lock(workers); /* they look at `thread` and `threads` */
    while (status == FLETCH_OK && workers->threads < threads) {
        status =
            fl_thread_start(&workers->thread[workers->threads], "worker", work, workers, error);
        workers->threads += status == FLETCH_OK;
    }
    unlock(workers);
    if (status < 0) {
        fl_workers_close(workers);
        return status;
    }
    *out = workers;
    return FLETCH_OK;
}

void fl_workers_wake(fl_workers *workers) {
    lock(workers);
    pthread_cond_broadcast(&workers->more);
    unlock(workers);
}

void fl_workers_close(fl_workers *workers) {
    if (workers == NULL)
        return;
    lock(workers);
    workers->ending = true;
    pthread_cond_broadcast(&workers->more);
    unlock(workers);
    for (unsigned i = 0; i < workers->threads; i++)
        pthread_join(workers->thread[i], NULL);
    pthread_cond_destroy(&workers->more);
    pthread_mutex_destroy(&workers->lock);
    fl_free(workers);
}

size_t fl_workers_take(fl_workers *workers, fl_work_fn fn, fl_work_wanted_fn wanted,
                       const void *user, void **args, size_t most) {
    size_t taken = 0;
    lock(workers);
    for (size_t i = workers->count; i > 0 && taken < most; i--) { /* the last one takes its place */
        job *one = &workers->jobs[i - 1];
        if (one->fn == fn && wanted(one->arg, user)) {
            args[taken++] = one->arg;
            *one          = workers->jobs[--workers->count];
        }
    }
    unlock(workers);
    return taken;
}

bool fl_workers_add(fl_workers *workers, fl_work_fn fn, void *arg, uint64_t cost_ns,
                    const fl_http_request *request) {
    assert(fn);
    const fl_api_key *key   = request != NULL ? request->key : NULL;
    job               fresh = {fn, arg, request, cost_ns, fl_clock_ns() + cost_ns};
    lock(workers);
    bool room = workers->count < FL_WORK_QUEUE;
    if (room) {
        for (size_t i = 0; key != NULL && i < workers->count; i++) {
            const job *other = &workers->jobs[i];
            bool       same  = other->request != NULL && other->request->key == key;
            fresh.turn += same ? other->cost_ns : 0;
        }
        workers->jobs[workers->count++] = fresh;
        pthread_cond_broadcast(&workers->more); /* not every thread may take it */
    }
    unlock(workers);
    return room;
}
