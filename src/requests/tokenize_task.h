/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize_task.h - what a tokenising thread works with: scratch of the tokenizer, buffers for texts in the making.
 *
 * Memory  Kept in a free list of the model; buffers that a long text made large are let go.
 * Threads A task belongs to one thread until it is given back. */
#ifndef FL_REQUESTS_TOKENIZE_TASK_H
#define FL_REQUESTS_TOKENIZE_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/locked.h"
#include "fletch.h"
#include "scheduler/memory.h"
#include "tokenizer/tokenizer.h"

/* Ids of one text of a pair, without what a template adds. */
typedef struct fl_token_side {
    int32_t *ids; /* owned [capacity] */
    size_t   count, capacity;
    bool     cut;
} fl_token_side;

typedef struct fl_tokenize_task {
    struct fl_tokenize_task *next;
    fl_token_scratch        *scratch; /* owned */
    fl_stop                  stop;    /* what scratch asks */
    fl_memory               *memory;  /* borrowed: where scratch asks for room; NULL: nowhere */
    uint64_t      reserved; /* of it, for what scratch grows by now; what it grew by is resident */
    bool          grown;    /* scratch asked */
    fl_buf        text;     /* prompt + text, or another text in the making */
    fl_token_side side[2];  /* the texts of a pair */
} fl_tokenize_task;

/* NULL: out of memory. In the middle of long texts `unwanted` is asked (NULL: nobody is); true ends it with
 * ECANCELLED. Not locked. */
fl_tokenize_task *fl_tokenize_task_take(fletch_model *model, int (*unwanted)(void *user),
                                        void *user, fletch_error *error);
void              fl_tokenize_task_give(fletch_model *model, fl_tokenize_task *task);
FL_UNCHECKED void fl_tokenize_tasks_free(fletch_model *model); /* the model is being closed */

#endif
