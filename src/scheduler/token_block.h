/* SPDX-License-Identifier: Apache-2.0 */
/* token_block.h - tokenised texts on their way to an engine, and what the scheduler asks of their owner.
 *
 * Role    All that queue, worker and replica know of a text: its ids, how its rows are wanted, whose turn it is.
 *         Who makes blocks gives the scheduler one table of functions, fl_block_owner; nothing else of the owner
 *         is called. The scheduler knows no request, no kind of result and no tokenizer: an fl_request is a
 *         pointer that it compares and hands back.
 * Memory  The owner's, until the last text was answered.
 * Threads A block is written before it is queued; `turn` to `taken` belong to who holds the scheduler's lock.
 * Proof   tests/unit/test_queue.c, tests/stress. */
#ifndef FL_SCHEDULER_TOKEN_BLOCK_H
#define FL_SCHEDULER_TOKEN_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engines/engine.h"
#include "fletch.h"

typedef struct fl_request fl_request; /* the owner's; here it has no inside */

enum { FL_WEIGHT_MAX = 1000 };

typedef struct fl_token_block {
    struct fl_token_block *before, *after; /* in the lane */
    fl_request            *request;        /* texts of one request may share a batch in any case */
    fletch_lane            lane;
    uint64_t               owner;      /* texts of one owner follow each other */
    uint32_t               weight;     /* of that owner: 1 to FL_WEIGHT_MAX */
    bool                   token_rows; /* its texts have a row for every token, not a pooled one */
    bool                   scratch_rows; /* and these are needed for the time of the batch alone */
    bool                   in_place; /* pooled rows are written where they are to be in the end */
    bool                   queued;
    uint32_t               texts; /* in it */
    uint32_t               taken; /* left in batches: texts [0, taken) */
    uint64_t               queued_ns;
    uint64_t               turn; /* in the lane: queue.c */
    const uint32_t        *cu;   /* [texts + 1] */
    const uint32_t        *skip; /* [texts] tokens left out of pooling */
    const uint32_t *segment; /* [texts] the first token of type 1; the length where there is none */
    const uint32_t *keys;    /* [texts] tokens that are attended to, from the first on */
    const int32_t  *ids;     /* [cu[texts]] */
    /* the owner's alone */
    struct fl_token_block *sibling;  /* the request's blocks */
    size_t                 capacity; /* bytes of the pool's buffer, this struct included */
    size_t                 first;    /* texts of the request are counted from here in `index` */
    const uint32_t        *index; /* [texts] rising: repeats and what the cache had are left out */
    uint32_t               unfinished; /* not answered yet */
} fl_token_block;

static inline uint32_t fl_token_block_length(const fl_token_block *block, uint32_t k) {
    return block->cu[k + 1] - block->cu[k];
}

/* What an engine made of a text. */
typedef struct fl_computed {
    int           placed; /* not FLETCH_OK: what `place` said, and there is no row */
    float        *row;    /* pooled, or of the first token */
    fl_terms     *terms;  /* of the engine, or empty: scratch all the same */
    float *const *line;   /* two scratch rows of fl_scheduler.row_width */
} fl_computed;

/* What the scheduler asks of who owns the blocks. "Locked": the caller holds the scheduler's lock. Requests that
 * are over are added to *over, for `deliver`. */
typedef struct fl_block_owner {
    /* ---- of a text that runs: not locked ---- */
    /* Where its pooled row goes (in_place), or room for a row of each of its tokens (token_rows). ENOMEM, ENOSPC. */
    int (*place)(const fl_token_block *block, uint32_t k, float **rows);
    /* Its result; not OK: it has none, and *error says why. */
    int (*finish)(const fl_token_block *block, uint32_t k, const fl_computed *computed,
                  fletch_error *error);
    /* Whether its bytes or ids were copied before they came here. */
    bool (*was_copied)(const fl_token_block *block, uint32_t k);
    /* ---- of texts [k, k + texts): locked ---- */
    void (*left_queue)(fl_token_block *block, uint32_t texts, uint64_t waited_ns);
    bool (*is_wanted)(const fl_token_block *block); /* somebody waits for them still */
    void (*failed)(fl_token_block *block, uint32_t k, const fletch_error *error, fl_request **over);
    /* Well or not; the block may be gone afterwards. */
    void (*answered)(fl_token_block *block, uint32_t k, uint32_t texts, uint64_t forward_ns,
                     fl_request **over);
    /* ---- of all that the model has under way ---- */
    /* Tokenise some texts on this thread, which has nothing to run; false: there are none. Locked, unlocks. */
    bool (*tokenize)(fletch_model *model, fl_request **over);
    void (*wake_caller)(fletch_model *model); /* who waits, to run a batch. Locked */
    void (*fail_all)(fletch_model *model, const fletch_error *why, fl_request **over); /* Locked */
    void (*deliver)(fletch_model *model, fl_request *over); /* what is over. Not locked */
    void (*trim)(fletch_model *model, const char *why);     /* give memory back. Not locked */
    void (*moved)(fletch_model *model); /* results of another provider differ. Not locked */
} fl_block_owner;

#endif
