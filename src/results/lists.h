/* SPDX-License-Identifier: Apache-2.0 */
/* lists.h - results whose length differs from text to text, in the making: the inside of fletch_lists.
 *
 * Role    A request of a kind that is not dense has one; the runner fills it text by text, and at the end
 *         it is the caller's.
 * Memory  One block a text, of the heap: what a text will have is known when its batch runs, and rows
 *         that an engine writes need never move.
 * Threads A text's list belongs to who runs that text. What all take together is counted atomically.
 * Proof   tests/unit/test_fletch.c, tests/golden/test_lists.py. */
#ifndef FL_RUNTIME_LISTS_H
#define FL_RUNTIME_LISTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fletch.h"

typedef struct fl_lists {
    fletch_lists shown; /* first: what the caller sees */
    fletch_list *list;  /* owned [count], shown.list */
    bool *draft; /* owned [count]: what fl_lists_take lays down is a draft of list i, which is
                                   not counted; NULL: it is final */
    atomic_uint_fast64_t own;
    atomic_uint_fast64_t
            *bytes;     /* own, or that of other lists of the call, with which they count */
    uint64_t bytes_max; /* of all that count with them; 0: no limit */
} fl_lists;

/* Lists of `count` texts without an entry; NULL: out of memory. */
fl_lists *fl_lists_new(size_t count, size_t columns, uint64_t bytes_max, bool drafts,
                       fletch_error *error);

/* A list of `count` entries in a block of its own, counted with the others: ids and values [count]
 * [columns] are to be filled. ENOSPC beyond bytes_max, ENOMEM. */
int fl_lists_make(fl_lists *lists, fletch_list *list, size_t count, size_t columns, int32_t **ids,
                  float **values);

/* The same as the list of text `index`, whose ids are copied. What the text had before (its batch ran
 * already) goes. `columns` of a draft may differ from those that the caller will see. */
int fl_lists_take(fl_lists *lists, size_t index, const int32_t *ids, size_t count, size_t columns,
                  float **values);

/* ENOSPC and ENOMEM in words; returns `status`. */
int fl_lists_refuse(int status, size_t where, fletch_error *error);
/* The bytes of a list: values, and the ids after them, in one block that begins at list->values. */
size_t fl_list_bytes(const fletch_list *list);

/* Text `index` gets a block that was kept of a list of as many columns as the caller sees. ENOSPC, ENOMEM. */
int fl_lists_put(fl_lists *lists, size_t index, const void *block, size_t bytes);

/* The text has no entry after all. */
void fl_lists_drop(fl_lists *lists, size_t index);

void fl_lists_free(fl_lists *lists); /* NULL is a no-op */

#endif
