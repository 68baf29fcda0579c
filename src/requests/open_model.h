/* SPDX-License-Identifier: Apache-2.0 */
/* open_model.h - an open model: its tokenizer, what its requests share, and the scheduler that runs them.
 *
 * Life of a text
 *     request --tokenise--> block of token ids --scheduler--> row --result--> caller's matrix or list
 * fletch_embed and fletch_submit make requests (wait.c, submit.c), which are resolved against the model (resolve.c);
 * threads tokenise them a window ahead (tokenize.c); the scheduler runs the blocks (scheduler/scheduler.h) and asks
 * block_owner.c what becomes of the rows. The scheduler's lock guards what is shared here, too; it is held for
 * list work alone, never while tokenising, computing or calling back.
 *
 * Memory  Requests, tasks and blocks are kept and used again.
 * Threads Callers' threads tokenise, and run a batch when that is quicker than waking a worker; the threads of
 *         several workers tokenise while there is nothing to run. One thread is for maintenance (deadlines,
 *         tokenising of submitted requests).
 * Proof   tests/unit/test_fletch.c, test_output.c; tests/stress; tests/golden/test_vectors.py. */
#ifndef FL_REQUESTS_OPEN_MODEL_H
#define FL_REQUESTS_OPEN_MODEL_H

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "fletch.h"
#include "model/model.h"
#include "requests/request.h"
#include "requests/result_cache.h"
#include "requests/ticket.h"
#include "requests/tokenize_task.h"
#include "results/result.h"
#include "scheduler/scheduler.h"
#include "tokenizer/tokenizer.h"

/* A callback that runs now, on whose thread. */
typedef struct fl_delivery {
    struct fl_delivery *next;
    pthread_t           thread;
} fl_delivery;

/* What decides the bytes of a vector, kept once it was asked for (session/vector_id.c). */
typedef struct fl_vector_parts {
    char    *lines; /* owned; NULL: not asked for yet */
    uint32_t epoch; /* the scheduler's, when they were read */
} fl_vector_parts;

struct fletch_model {
    fl_scheduler  scheduler;
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
    const char     *prompt; /* default prompt text, "" for none; borrowed from config or model */
    fletch_truncate truncate;
    bool            has_engine;  /* false when only the tokenizer was opened */
    uint64_t        queue_limit; /* server.max_queue_tokens */
    /* parts with their own locks */
    fl_bufpool *inputs; /* owned: blocks */
    fl_cache   *cache;  /* owned: results; NULL: cache.max_bytes is 0 */
    uint64_t    seed;   /* of hashes of texts */
    /* under the scheduler's lock */
    fl_vector_parts vector FL_GUARDED;
    uint64_t        window_tokens FL_GUARDED; /* of one request, tokenised ahead */
    uint32_t        short_call FL_GUARDED;    /* texts: a call of more goes to the bulk lane */
    bool            closing FL_GUARDED;
    bool            reopening FL_GUARDED;
    fl_request     *live FL_GUARDED; /* requests that are not over */
    uint64_t live_count FL_GUARDED;  /* and those being delivered, and a reopening: closing waits */
    fl_request       *idle_requests FL_GUARDED;
    fl_tokenize_task *idle_tasks FL_GUARDED;
    fl_delivery      *deliveries FL_GUARDED;
    fl_tickets        tickets FL_GUARDED;
    /* maintenance */
    pthread_t      maintenance_thread;
    bool           maintenance_started;
    bool           maintenance_stop FL_GUARDED;
    pthread_cond_t maintenance_wake;
    uint64_t       maintenance_due FL_GUARDED; /* when it wakes next */
};

FL_TAKES_LOCK static inline void fl_model_lock(fletch_model *model) {
    fl_scheduler_lock(&model->scheduler);
}

FL_DROPS_LOCK static inline void fl_model_unlock(fletch_model *model) {
    fl_scheduler_unlock(&model->scheduler);
}

/* The maintenance thread is to look no later than at this time. */
FL_LOCKED static inline void fl_model_wake_maintenance(fletch_model *model, uint64_t due_ns) {
    if (model->maintenance_started && due_ns < model->maintenance_due)
        pthread_cond_signal(&model->maintenance_wake);
}

/* A request or a caller is gone. */
FL_LOCKED static inline void fl_model_left(fletch_model *model) {
    assert(model->live_count > 0);
    if (--model->live_count == 0)
        pthread_cond_broadcast(&model->scheduler.left);
}

#endif
