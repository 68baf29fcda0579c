/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h - a worker: a batch from the queue through the engine to the callers' rows. */
#ifndef FL_SCHEDULER_WORKER_H
#define FL_SCHEDULER_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "engines/engine.h"
#include "scheduler/queue.h"
#include "scheduler/replica.h"

/* Texts of one batch at most, whatever the options say: sizes the workers. */
enum { FL_BATCH_TEXTS_MAX = 4096 };

struct fl_worker {
    fl_replica    *replica;
    uint32_t       number;
    bool           started; /* the thread runs */
    pthread_t      thread;
    pthread_cond_t wake;
    uint64_t       armed_ns; /* when the sleeping thread will look again */
    bool           sleeping;
    bool           away; /* the thread calls back: a caller that waits may run instead */
    bool           busy;
    bool           interactive; /* its batch has interactive texts */
    /* the batch under way */
    fl_item          *items; /* owned [FL_BATCH_TEXTS_MAX] */
    uint32_t          count;
    uint32_t          finished; /* items [0, finished) are answered */
    uint64_t          tokens;
    uint32_t          attempts;
    uint64_t          touched;      /* bytes that its batches have made resident so far */
    bool              batch_failed; /* its replica broke: any free worker may take over the batch */
    struct fl_worker *next_failed;
    int32_t          *ids; /* owned [ids_capacity] gathered token ids */
    uint32_t          ids_capacity;
    uint32_t         *cu;      /* owned [FL_BATCH_TEXTS_MAX + 1] */
    uint32_t         *skip;    /* owned [FL_BATCH_TEXTS_MAX] */
    uint32_t         *segment; /* owned [FL_BATCH_TEXTS_MAX] */
    uint32_t         *keys;    /* owned [FL_BATCH_TEXTS_MAX] */
    float           **rows;    /* owned [FL_BATCH_TEXTS_MAX] */
    uint8_t          *each;    /* owned [FL_BATCH_TEXTS_MAX]: fl_batch.each */
    int      *placed;  /* owned [FL_BATCH_TEXTS_MAX]: not OK: why a text has no room for its rows */
    uint8_t  *copied;  /* owned [FL_BATCH_TEXTS_MAX]: fl_batch_note.copied */
    fl_terms *terms;   /* owned [FL_BATCH_TEXTS_MAX]: fl_batch.terms of a sparse model */
    float    *line[2]; /* owned [row_width] each: a row between two output stages */
    fletch_error error;
};

int  fl_worker_open(fl_worker *worker, const fl_scheduler *scheduler, uint32_t batch_tokens,
                    fletch_error *error);
void fl_worker_close(fl_worker *worker);
/* Take the next batch if one may leave; else *due. */
FL_LOCKED bool fl_worker_take(fl_worker *worker, uint64_t now, uint64_t *due);
/* Whether the open engine runs fewer batches at once than the replica has workers, and this is one too many: it
 * went on with another provider. */
FL_LOCKED static inline bool fl_worker_is_spare(const fl_worker *worker) {
    return worker->number > 0 && worker->number >= worker->replica->info.slots;
}
/* Run the batch that was taken. (unlocks while it works) */
FL_LOCKED void fl_worker_run(fl_worker *worker, fl_request **over);
/* Every text of the worker's batch fails with worker->error. */
FL_LOCKED void fl_worker_fail(fl_worker *worker, fl_request **over);

#endif
