/* SPDX-License-Identifier: Apache-2.0 */
/* scheduler.c - what queue, workers and replicas have in common: waking, and a look at memory; scheduler.h. */
#include "scheduler/scheduler.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "scheduler/worker.h"

static const uint64_t look_ns = 250000000U; /* between two looks at memory */

FL_UNCHECKED void fl_scheduler_init(fl_scheduler *scheduler, const fl_block_owner *owner,
                                    fletch_model *model) {
    assert(owner->place && owner->finish && owner->was_copied && owner->left_queue);
    assert(owner->is_wanted && owner->failed && owner->answered && owner->tokenize);
    assert(owner->wake_caller && owner->fail_all && owner->deliver && owner->trim && owner->moved);
    memset(scheduler, 0, sizeof *scheduler);
    scheduler->owner = owner;
    scheduler->model = model;
    pthread_mutex_init(&scheduler->lock, NULL);
    fl_cond_init(&scheduler->left);
    fl_stats_init(&scheduler->stats);
}

void fl_scheduler_destroy(fl_scheduler *scheduler) {
    fl_bufpool_close(scheduler->rows);
    fl_memory_close(scheduler->memory);
    pthread_cond_destroy(&scheduler->left);
    pthread_mutex_destroy(&scheduler->lock);
}

/* A worker whose thread is away in a callback would idle, and a call from inside that callback would
 * wait for itself: let a caller that sleeps run a batch. */
FL_LOCKED static void wake_caller(fl_scheduler *scheduler) {
    assert(scheduler->replicas);
    const fl_worker *worker = fl_worker_find_free(scheduler->replicas, true);
    uint64_t         due;
    if (!worker || !worker->away)
        return;
    if (scheduler->failed_batches || fl_queue_ready(&scheduler->queue, fl_clock_ns(), &due))
        scheduler->owner->wake_caller(scheduler->model);
}

void fl_scheduler_dispatch(fl_scheduler *scheduler) {
    if (!scheduler->replicas)
        return;
    fl_worker *worker = fl_worker_find_free(scheduler->replicas, false);
    uint64_t   due    = UINT64_MAX;
    if (!worker) {
        wake_caller(scheduler);
        return;
    }
    if (!scheduler->failed_batches && !fl_queue_ready(&scheduler->queue, fl_clock_ns(), &due)) {
        if (due >= worker->armed_ns)
            return;
    }
    worker->sleeping = false; /* the next batch wakes another one */
    pthread_cond_signal(&worker->wake);
}

void fl_scheduler_observe(fl_scheduler *scheduler, fletch_lane lane, uint64_t took_ns) {
    assert((int)lane < FL_LANES);
    const uint64_t waiting = scheduler->queue.lane[FLETCH_LANE_INTERACTIVE].tokens;
    if (lane == FLETCH_LANE_INTERACTIVE)
        scheduler->queue.rules.max_tokens = fl_adapt_observe(&scheduler->adapt, took_ns, waiting);
}

void fl_scheduler_look(fl_scheduler *scheduler, uint64_t now) {
    assert(scheduler->memory);
    uint_fast64_t last = atomic_load_explicit(&scheduler->looked_ns, memory_order_relaxed);
    char          why[256];
    if (now - last >= look_ns &&
        atomic_compare_exchange_strong(&scheduler->looked_ns, &last, now) &&
        fl_memory_pressure(scheduler->memory, why, sizeof why))
        scheduler->owner->trim(scheduler->model, why);
}
