/* SPDX-License-Identifier: Apache-2.0 */
/* open_model.h - an open model: folder, tokenizer, queue, replicas, and what is kept between them.
 *
 * Life of a text
 *     request --tokenise--> block of token ids --queue--> batch --worker--> engine --output--> caller's row
 * fletch_embed and fletch_submit make requests (wait.c, submit.c); tokenize tasks tokenise them a window
 * ahead (tokenize.c); the queue decides when which texts leave (queue.c); a worker runs a batch through
 * an engine and finishes its rows (worker.c); replica.c keeps the engines. One lock guards what they
 * share; it is held for list work alone, never while tokenising, computing or calling back.
 *
 * Memory  Requests, tokenize tasks and blocks are kept and used again; workers are sized when they open.
 * Threads One per worker; one for maintenance (deadlines, tokenising of submitted requests, memory).
 *         Callers' threads tokenise, and run a batch when that is quicker than waking a worker; the
 *         threads of several workers tokenise while there is nothing to run.
 * Proof   tests/unit/test_fletch.c, test_queue.c, test_output.c; tests/stress;
 *         tests/golden/test_vectors.py. */
#ifndef FL_REQUESTS_OPEN_MODEL_H
#define FL_REQUESTS_OPEN_MODEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json_in.h"
#include "base/thread.h"
#include "base/trace.h"
#include "config/config.h"
#include "engines/engine.h"
#include "fletch.h"
#include "model/model.h"
#include "requests/request.h"
#include "requests/tokenize.h"
#include "results/result.h"
#include "scheduler/adapt.h"
#include "scheduler/bufpool.h"
#include "scheduler/memory.h"
#include "scheduler/queue.h"
#include "scheduler/replica.h"
#include "scheduler/stats.h"
#include "session/vector_id.h"
#include "tokenizer/tokenizer.h"

/* A callback that runs now, on whose thread. */
typedef struct fl_delivery {
    struct fl_delivery *next;
    pthread_t           thread;
} fl_delivery;

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

/* Where a ticket leads: its place in the table, and a generation that makes old
 * tickets invalid. */
typedef struct fl_ticket_entry {
    fl_request *request; /* NULL: free */
    uint32_t    generation;
    uint32_t    next_free;
} fl_ticket_entry;

struct fletch_model {
    fl_config    *config;       /* owned clone */
    fl_model     *model;        /* owned */
    fl_tokenizer *tokenizer;    /* owned */
    char          id[256];      /* hub id, or "" for a plain folder */
    char          revision[64]; /* commit, or "" */
    /* resolved once */
    uint32_t        max_length;   /* tokens with specials, default of a call */
    uint32_t        length_limit; /* usable positions: the most a call may ask for */
    fl_results      results;
    char            pooling[64];   /* "mean,max" */
    char            switches[400]; /* "gated MLPs, rotary positions" */
    const char     *prompt;        /* default prompt text, "" for none; borrowed from config
                         or model */
    fletch_truncate truncate;
    uint32_t        batch_tokens; /* the largest batch */
    bool            has_engine;   /* false when only the tokenizer was opened */
    bool            predict;      /* batch.memory_prediction, and there is a ceiling */
    uint64_t        queue_limit;  /* server.max_queue_tokens */
    /* parts with their own locks */
    fl_stats    stats;
    fl_trace   *trace;   /* owned; NULL: off */
    fl_memory  *memory;  /* owned; NULL when only the tokenizer was opened */
    fl_bufpool *inputs;  /* owned: blocks */
    fl_bufpool *outputs; /* owned: rows */
    fl_cache   *cache;   /* owned: results; NULL: cache.max_bytes is 0 */
    uint64_t    seed;    /* of hashes of texts */
    atomic_uint logged;  /* bits of fl_path: the debug log has each path once */
    /* under the lock */
    fl_vector_parts   vector FL_GUARDED; /* what decides their bytes, once it was asked for */
    pthread_mutex_t   lock;
    pthread_cond_t    left; /* a request or a caller left: fl_runtime_close waits for it */
    fl_queue          queue FL_GUARDED;
    uint32_t          interactive FL_GUARDED; /* batches with interactive texts that run */
    fl_adapt          adapt FL_GUARDED;
    uint64_t          window_tokens FL_GUARDED; /* of one request, tokenised ahead */
    uint32_t          short_call FL_GUARDED; /* texts: fletch_embed of more goes to the bulk lane */
    fl_replicas      *replicas FL_GUARDED;   /* NULL when only the tokenizer was opened */
    bool              closing FL_GUARDED;
    bool              reopening FL_GUARDED;
    fl_worker        *failed_batches FL_GUARDED; /* batches of broken replicas */
    fl_request       *live FL_GUARDED;           /* requests that are not over */
    uint64_t          live_count FL_GUARDED; /* and those being delivered, and a reopening: closing
                          waits */
    fl_request       *idle_requests FL_GUARDED;
    fl_tokenize_task *idle_tasks FL_GUARDED;
    fl_delivery      *deliveries FL_GUARDED;
    fl_ticket_entry  *tickets FL_GUARDED; /* owned [ticket_capacity] */
    uint32_t          ticket_capacity FL_GUARDED, ticket_free FL_GUARDED;
    /* maintenance */
    pthread_t            maintenance_thread;
    bool                 maintenance_started;
    bool                 maintenance_stop FL_GUARDED;
    pthread_cond_t       maintenance_wake;
    uint64_t             maintenance_due FL_GUARDED; /* when it wakes next */
    atomic_uint_fast64_t looked_ns;                  /* at memory, the last time */
};

FL_TAKES_LOCK FL_UNCHECKED static inline void fl_model_lock(fletch_model *model) {
    pthread_mutex_lock(&model->lock);
}

FL_DROPS_LOCK FL_UNCHECKED static inline void fl_model_unlock(fletch_model *model) {
    pthread_mutex_unlock(&model->lock);
}

#endif
