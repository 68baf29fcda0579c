/* SPDX-License-Identifier: Apache-2.0 */
/* scheduler.h - blocks of token ids through engines: the queue, the replicas, and the lock that they share.
 *
 * Life of a batch
 *     block of token ids --queue--> batch --worker--> engine --owner--> results
 * The queue decides when which texts leave (queue.c); a worker runs a batch through an engine (worker.c); replica.c
 * keeps the engines, provider.c chooses them. Whose texts they are and what becomes of their rows is the owner's
 * business (token_block.h).
 *
 * Memory  Blocks are the owner's; workers are sized when they open; rows come from a pool.
 * Threads One per worker. One lock guards what they share, and the owner's lists with it; it is held for list work
 *         alone, never while computing or calling back.
 * Proof   tests/unit/test_queue.c, tests/stress. */
#ifndef FL_SCHEDULER_SCHEDULER_H
#define FL_SCHEDULER_SCHEDULER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/locked.h"
#include "base/thread.h"
#include "base/trace.h"
#include "config/config.h"
#include "engines/engine.h"
#include "scheduler/adapt.h"
#include "scheduler/bufpool.h"
#include "scheduler/memory.h"
#include "scheduler/queue.h"
#include "scheduler/replica.h"
#include "scheduler/stats.h"
#include "scheduler/token_block.h"

/* Ways that a batch may go; the debug log names each when it is first gone. The first four are the ways
 * of texts in fl_way. */
typedef enum fl_path {
    FL_PATH_IDS_IN_PLACE,
    FL_PATH_IDS_COPIED,
    FL_PATH_ROWS_IN_PLACE,
    FL_PATH_ROWS_STAGED,
    FL_PATH_BY_CALLER,
    FL_PATH_BY_WORKER
} fl_path;

struct fl_scheduler {
    /* set before the first replica opens */
    const fl_block_owner *owner;
    fletch_model         *model;        /* what the owner is called with; it has no inside here */
    const fl_config      *config;       /* borrowed */
    const fl_encoder     *encoder;      /* borrowed: what engines open */
    const char           *folder;       /* of the model's files */
    const char           *onnx_file;    /* or NULL */
    uint32_t              usual_length; /* tokens of a text, by default */
    uint32_t              max_length;   /* the most that a call may ask for */
    uint32_t              batch_tokens; /* the largest batch */
    uint32_t              pooled_width; /* numbers of a pooled row */
    uint32_t              row_width;    /* the widest row between pooling and output */
    bool                  zero_copy;    /* io.zero_copy */
    bool                  terms;        /* the engine gives terms, not rows */
    bool                  predict;      /* batch.memory_prediction, and there is a ceiling */
    /* parts with their own locks */
    fl_stats             stats;
    fl_trace            *trace;     /* owned; NULL: off */
    fl_memory           *memory;    /* owned; NULL: nothing is open but a tokenizer */
    fl_bufpool          *rows;      /* owned */
    atomic_uint          logged;    /* bits of fl_path: the debug log has each path once */
    atomic_uint_fast64_t looked_ns; /* at memory, the last time */
    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t
                 left; /* a request, a caller or who held a replica is gone: closing waits for it */
    fl_queue     queue FL_GUARDED;
    uint32_t     interactive FL_GUARDED; /* batches with interactive texts that run */
    fl_adapt     adapt FL_GUARDED;
    fl_replicas *replicas FL_GUARDED;       /* NULL: nothing is open but a tokenizer */
    fl_worker   *failed_batches FL_GUARDED; /* of broken replicas */
    uint32_t     epoch FL_GUARDED;          /* counts what providers are open */
};

void fl_scheduler_init(fl_scheduler *scheduler, const fl_block_owner *owner, fletch_model *model);
void fl_scheduler_destroy(fl_scheduler *scheduler); /* its replicas are closed */

FL_TAKES_LOCK FL_UNCHECKED static inline void fl_scheduler_lock(fl_scheduler *scheduler) {
    pthread_mutex_lock(&scheduler->lock);
}

FL_DROPS_LOCK FL_UNCHECKED static inline void fl_scheduler_unlock(fl_scheduler *scheduler) {
    pthread_mutex_unlock(&scheduler->lock);
}

/* Wake a worker's thread if a batch may leave, or tell one when to look again; where all threads call
 * back, a caller that waits. */
FL_LOCKED void fl_scheduler_dispatch(fl_scheduler *scheduler);
/* A request of `lane` was answered in `took_ns`: what that says of the budget of batches. */
FL_LOCKED void fl_scheduler_observe(fl_scheduler *scheduler, fletch_lane lane, uint64_t took_ns);
/* Before a batch: if nobody did lately, see whether memory is scarce, and then trim. Not locked. */
void fl_scheduler_look(fl_scheduler *scheduler, uint64_t now);

#endif
