/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h - a slot: a batch from the queue through the engine to the callers' rows. */
#ifndef FL_SCHEDULER_WORKER_H
#define FL_SCHEDULER_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "engines/engine.h"
#include "scheduler/queue.h"
#include "scheduler/replica.h"
#include "requests/request.h"

/* Texts of one batch at most, whatever the options say: sizes the slots. */
enum { FL_BATCH_TEXTS_MAX = 4096 };

struct fl_runner {
    fl_replica    *replica;
    uint32_t       number;
    bool           started; /* the thread runs */
    pthread_t      thread;
    pthread_cond_t wake;
    uint64_t       armed_ns; /* when the sleeping thread will look again */
    bool           sleeping;
    bool           away; /* the thread calls back: a caller that waits may carry instead */
    bool           busy;
    bool           urgent; /* its batch has interactive texts */
    /* the batch under way */
    fl_item          *items; /* owned [FL_BATCH_TEXTS_MAX] */
    uint32_t          count;
    uint32_t          finished; /* items [0, finished) are answered */
    uint64_t          tokens;
    uint32_t          attempts;
    uint64_t          touched; /* bytes that its batches have made resident so far */
    bool              orphan;  /* its replica broke: any free slot may adopt the batch */
    struct fl_runner *next_orphan;
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

int  fl_runner_open(fl_runner *slot, const fletch_model *model, uint32_t batch_tokens,
                    fletch_error *error);
void fl_runner_free_memory(fl_runner *slot);
/* Take the next batch if one may leave; else *due. */
FL_LOCKED bool fl_runner_take(fl_runner *slot, uint64_t now, uint64_t *due);
/* Whether the open engine runs fewer batches at once than the replica has slots, and this is one too many: it
 * went on with another provider. */
FL_LOCKED static inline bool fl_runner_spare(const fl_runner *slot) {
    return slot->number > 0 && slot->number >= slot->replica->info.slots;
}
/* Carry the batch that was taken. (unlocks while it works) */
FL_LOCKED void fl_runner_run(fl_runner *slot, fl_request **over);
/* Every text of the slot's batch fails with slot->error. */
FL_LOCKED void fl_runner_fail(fl_runner *slot, fl_request **over);

#endif
