/* SPDX-License-Identifier: Apache-2.0 */
/* replica.h - open engines, their workers, and the threads that run batches through them.
 *
 * A replica is one engine on one device; it has as many workers as forwards may be in flight. Every
 * worker has a thread of its own that takes batches from the queue. A caller that waits for its own
 * short request may run the batch itself when a worker is free and the engine allows any thread:
 * that saves two wake-ups, most of what a scheduler costs.
 *
 * States of a replica: ready -> broken (a forward failed with anything but EMODEL and ENOMEM) ->
 * closed and opened again by its first worker's thread, with a back-off that doubles from 100 ms to
 * 30 s; the first try is at once. One that does not open with its set begins as broken. While another
 * replica is ready, a broken one keeps to its provider; the last one may go elsewhere along the chain.
 * There it asks now and then (after 1 s, 2 s … 10 min) whether its own provider can be had again, and if
 * so is opened once more from the head of the chain.
 * The batch of a broken replica is taken over by the next worker that is free, once. When no replica can be
 * opened, what is queued fails with EPROVIDER, and so does what comes, until one opens.
 *
 * A set holds the replicas of one configuration; fletch_model_reopen makes a second set, lets it take
 * over the queue and retires the first.
 *
 * Memory  Everything a batch needs is allocated with the worker; rows come from the model's pool.
 * Threads All fields but the batch under way belong to who holds scheduler->lock. The batch belongs to
 *         whoever made the worker busy.
 * Proof   tests/stress/test_submit.c, test_schedule.c (a fault engine). */
#ifndef FL_SCHEDULER_REPLICA_H
#define FL_SCHEDULER_REPLICA_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/locked.h"
#include "config/config.h"
#include "engines/engine.h"
#include "scheduler/queue.h"

typedef struct fl_replica   fl_replica;
typedef struct fl_scheduler fl_scheduler;
typedef struct fl_worker    fl_worker;

/* The ways of texts, rows and runs, in the order of their fields in fletch_device_stats. */
typedef enum fl_way {
    FL_WAY_ZERO_COPY_INPUT,
    FL_WAY_COPIED_INPUT,
    FL_WAY_ZERO_COPY_OUTPUT,
    FL_WAY_STAGED_OUTPUT,
    FL_WAY_BOUND_RUN,
    FL_WAY_PLAIN_RUN,
    FL_WAYS
} fl_way;

typedef struct fl_replicas fl_replicas;

struct fl_replica {
    fl_replicas         *set;
    uint32_t             number;
    const fl_engine_ops *ops;
    fl_engine           *engine;   /* NULL while closed */
    const char          *provider; /* "cpu"; static */
    const char          *home;     /* the provider it was made for; static */
    uint32_t             home_device;
    uint64_t       look_ns; /* when to look whether that is back; UINT64_MAX while it is there */
    uint32_t       looks;
    uint32_t       device;
    char           failure[256]; /* why it is broken; "" when it is not */
    uint16_t      *cores;        /* owned [threads], or NULL */
    uint32_t       threads;
    uint32_t       node; /* of the first of them */
    fl_engine_info info;
    bool           cold FL_GUARDED; /* no batch went through since it opened */
    bool           broken FL_GUARDED;
    bool           mending FL_GUARDED;     /* being opened again: engine and info are in flux */
    uint32_t       failures FL_GUARDED;    /* in a row */
    uint32_t       breaks FL_GUARDED;      /* forwards that broke it since its last good batch */
    uint64_t       retry_ns FL_GUARDED;    /* when to open it again */
    uint64_t       outstanding FL_GUARDED; /* tokens in its workers */
    atomic_uint_fast64_t batches, tokens;  /* that it ran; without the lock */
    atomic_uint_fast64_t ways[FL_WAYS];    /* that their texts and runs took; likewise */
    uint32_t             busy FL_GUARDED;  /* workers */
    uint32_t             held FL_GUARDED;  /* by who asks the engine something: it is not closed */
    uint32_t             worker_count;
    fl_worker           *workers; /* owned [worker_count] */
};

struct fl_replicas {
    fl_scheduler *scheduler;
    fl_config    *config; /* borrowed: the model's, or owned when it came with a
                        reopening */
    bool          own_config;
    bool          stop; /* threads end when their workers are idle */
    uint32_t      count;
    fl_replica   *replica;      /* owned [count] */
    uint32_t      workers;      /* of all replicas */
    uint32_t      budget;       /* tokens of a batch as they are set, or as the threads gain by */
    uint32_t      batch_tokens; /* the largest batch the engines were opened for */
};

/* Open a replica for each device of the first provider that can (provider.c): at least one of them.
 * The threads of their workers begin with fl_replicas_start. */
int fl_replicas_open(fl_replicas **out, fl_scheduler *scheduler, fl_config *config, bool own_config,
                     fletch_error *error);
int fl_replicas_start(fl_replicas *set, fletch_error *error);
/* Stop the threads when their batches are done (not locked), close the engines.
 * NULL is a no-op. */
void fl_replicas_close(fl_replicas *set);

/* Whether its engine and what `info` borrows of it are there. */
FL_LOCKED static inline bool fl_replica_is_open(const fl_replica *replica) {
    return !replica->mending && replica->engine != NULL;
}
/* The first that is open, to speak for all; NULL: none. */
FL_LOCKED fl_replica *fl_replicas_first(const fl_replicas *set);
/* It does not work, and why; false: that is known. */
FL_LOCKED bool fl_replica_broke(fl_replica *replica, const char *why);
/* Who asks an open engine something without the lock holds its replica meanwhile: it is not mended, its
 * set not closed. */
FL_LOCKED void fl_replica_hold(fl_replica *replica);
FL_LOCKED void fl_replica_let_go(fl_replica *replica);
/* A free worker of the ready replica with the fewest outstanding tokens, a cold one first among equals:
 * for a caller's own thread where the engine allows that (`by_caller`), else one whose thread sleeps.
 * NULL: none. */
FL_LOCKED fl_worker *fl_worker_find_free(fl_replicas *set, bool by_caller);
/* How long to wait before a replica is opened again that failed `times` times: 100 ms, 200 … 30 s. */
uint64_t fl_replica_backoff(uint32_t times);
/* Whether any replica is ready, or may be soon (not after its first failed
 * reopening). */
FL_LOCKED bool fl_replicas_usable(const fl_replicas *set);
#endif
