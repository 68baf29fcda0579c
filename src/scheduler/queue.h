/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h - the one queue of tokenised texts: two lanes, and the rule by which a batch leaves.
 *
 * A batch may leave when a replica is free and
 *   - its text or token budget is full; or
 *   - min_texts are there and max_wait has passed since the last batch; or
 *   - max_wait has passed for the oldest text; or
 *   - no more requests are to be expected: with batch.throughput=false never; else when as many requests
 *     are queued as were about (in the engine and queued) when the last batch ended, or that was
 *     longer ago than a quarter of the time that batch took (callers in a loop come back at once). So
 *     a lone caller never waits, and eight callers in a loop are batched by eight without a wasted
 *     pass; or
 *   - bulk texts are queued: a bulk request waits for no other.
 * While several replicas are idle a batch takes its share of what is queued, so that one call keeps
 * them all busy, but no less than FL_QUEUE_SHARE tokens: a pass of fewer costs as much as one of that.
 * Within a lane texts leave by turns: an owner's (fletch_request.owner) follow each other, and while several owners
 * have texts there each gets tokens by its weight (start-time fair queueing). Who comes back after a while has no claim
 * to what it did not use.
 * Interactive texts leave first. While bulk texts wait, they earn a token for every three that
 * interactive texts take and spend them in the next batches, so they get a quarter at least. For a
 * second after an interactive text, bulk batches hold a quarter of the budget, so that the next one
 * does not wait for a long batch. A process with several models keeps to that across them: bulk texts of one give way
 * to interactive ones that another one runs, and their batches are as short after it.
 *
 * Functions are plain data in, data out: no clock, no lock, no thread; the caller holds the scheduler's lock.
 * Memory  none: blocks are linked. Proof: tests/unit/test_queue.c. */
#ifndef FL_SCHEDULER_QUEUE_H
#define FL_SCHEDULER_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/token_block.h"

enum { FL_LANES = 2, FL_QUEUE_SHARE = 512, FL_QUEUE_OWNERS = 128, FL_QUEUE_HOLD_NS = 50000000 };

typedef struct fl_queue_rules {
    uint32_t min_texts;
    uint32_t max_texts;  /* of a batch with interactive texts */
    uint32_t bulk_texts; /* of any batch */
    uint32_t max_tokens; /* the budget in force */
    uint64_t max_wait_ns;
    bool     dynamic;    /* texts of several requests may share a batch */
    bool     throughput; /* an idle engine may wait for more requests */
} fl_queue_rules;

/* Up to where an owner has had, or has waiting, its share of a lane. */
typedef struct fl_share {
    uint64_t owner, end;
} fl_share;

typedef struct fl_lane {
    fl_token_block *head, *tail;
    uint64_t        blocks, texts, tokens; /* not taken yet */
    uint64_t        clock;                 /* the turn of the text that left last */
    fl_share        shares[FL_QUEUE_OWNERS];
} fl_lane;

typedef struct fl_queue {
    fl_queue_rules rules;
    fl_lane        lane[FL_LANES];
    uint64_t       left_ns;             /* when the last batch left */
    uint64_t       ended_ns;            /* when the last batch ended */
    uint64_t       expected_requests;   /* as many as were about then */
    uint64_t       wait_window_ns;      /* after it: how long more are expected */
    uint64_t       last_interactive_ns; /* when the last interactive text left; 0: none yet */
    uint64_t       bulk_credit;         /* tokens that bulk texts have earned */
    uint64_t held_ns; /* since when bulk texts wait for those of another model; 0: they do not */
} fl_queue;

/* A text in a batch. */
typedef struct fl_item {
    fl_token_block *block;
    uint32_t        k; /* which text of the block */
} fl_item;

void fl_queue_push(fl_queue *queue, fl_token_block *block, uint64_t now);
/* Take a block out whose request ended; nothing when it is not queued. */
void fl_queue_remove(fl_queue *queue, fl_token_block *block);

/* Whether a batch may leave at `now`; if not, *due is when it may as things
 * stand, UINT64_MAX: when more arrives. */
bool fl_queue_ready(const fl_queue *queue, uint64_t now, uint64_t *due);

/* `others`: interactive texts of other models run now. Bulk texts alone then wait, FL_QUEUE_HOLD_NS at most: true, and
 * *due is when to look again. *begins: they begin to. */
bool fl_queue_yields(fl_queue *queue, bool others, uint64_t now, uint64_t *due, bool *begins);

/* Move the texts of the next batch to items[capacity]; returns how many. A text longer than the budget
 * leaves alone. `idle` replicas, who takes among them, could run a batch now. */
uint32_t fl_queue_take(fl_queue *queue, uint64_t now, uint32_t idle, fl_item *items,
                       uint32_t capacity);

/* A batch of `requests` different requests ended; it took `took_ns`. */
void fl_queue_ended(fl_queue *queue, uint64_t requests, uint64_t took_ns, uint64_t now);

#endif
