/* SPDX-License-Identifier: Apache-2.0 */
/* workers.c - a few threads for what would hold up an I/O thread or an engine.
 *
 * Role    Handlers marked FL_ROUTE_BLOCKING, large bodies to parse, large results to write as text.
 * In/Out  A function and its argument, run once, on one of the threads, in the order given.
 * Method  A ring under one lock: these jobs take tens of microseconds at least, so the lock is nothing.
 *         The ring is bounded: when it is full the caller refuses instead of queueing without end.
 * Memory  One block, made at the start. Threads: any may add.
 * Proof   tests/server/test_transport_*.py under ThreadSanitizer. */
#include <pthread.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/internal.h"

typedef struct job {
    fl_work_fn fn;
    void      *arg;
} job;

struct fl_workers {
    pthread_mutex_t lock;
    pthread_cond_t  more;
    job             ring[FL_WORK_QUEUE];
    size_t          first, count;
    bool            ending;
    unsigned        threads;
    pthread_t       thread[FL_WORKERS_MAX];
};

static void *work(void *arg) {
    fl_workers *workers = arg;
    pthread_mutex_lock(&workers->lock);
    for (;;) {
        while (workers->count == 0 && !workers->ending) {
            pthread_cond_wait(&workers->more, &workers->lock);
        }
        if (workers->count == 0) {
            break;
        }
        job next       = workers->ring[workers->first];
        workers->first = (workers->first + 1) % FL_WORK_QUEUE;
        workers->count--;
        pthread_mutex_unlock(&workers->lock);
        next.fn(next.arg);
        pthread_mutex_lock(&workers->lock);
    }
    pthread_mutex_unlock(&workers->lock);
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
    pthread_cond_init(&workers->more, NULL);
    threads = threads < 1 ? 1 : threads > FL_WORKERS_MAX ? FL_WORKERS_MAX : threads;
    for (; workers->threads < threads; workers->threads++) {
        pthread_t *thread = &workers->thread[workers->threads];
        int        status = fl_thread_start(thread, "worker", work, workers, error);
        if (status < 0) {
            fl_workers_close(workers);
            return status;
        }
    }
    *out = workers;
    return FLETCH_OK;
}

void fl_workers_close(fl_workers *workers) {
    if (workers == NULL) {
        return;
    }
    pthread_mutex_lock(&workers->lock);
    workers->ending = true;
    pthread_cond_broadcast(&workers->more);
    pthread_mutex_unlock(&workers->lock);
    for (unsigned i = 0; i < workers->threads; i++) {
        pthread_join(workers->thread[i], NULL);
    }
    pthread_cond_destroy(&workers->more);
    pthread_mutex_destroy(&workers->lock);
    fl_free(workers);
}

bool fl_workers_add(fl_workers *workers, fl_work_fn fn, void *arg) {
    pthread_mutex_lock(&workers->lock);
    bool room = workers->count < FL_WORK_QUEUE;
    if (room) {
        workers->ring[(workers->first + workers->count) % FL_WORK_QUEUE] = (job){fn, arg};
        workers->count++;
        pthread_cond_signal(&workers->more);
    }
    pthread_mutex_unlock(&workers->lock);
    return room;
}
