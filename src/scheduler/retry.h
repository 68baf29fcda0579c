/* SPDX-License-Identifier: Apache-2.0 */
/* retry.h - what becomes of a part of a batch that an engine refused: a rule without state, clock or lock.
 *
 * Too much for memory: the part is halved until one text is left, and that text fails. A bad text
 * (FLETCH_EMODEL): the texts in front of the one that the engine named go again without it, or, when none is
 * named, all go one by one; found alone it fails, and the rest goes as one part again. An engine that names a
 * text too often is not believed any more: singly from then on. Anything else is the engine's fault, not a
 * text's: its replica is broken, and the batch goes to another.
 * Proof   tests/unit/test_retry.c, tests/stress/test_schedule.c. */
#ifndef FL_SCHEDULER_RETRY_H
#define FL_SCHEDULER_RETRY_H

#include <stddef.h>
#include <stdint.h>

#include "fletch.h"

typedef enum fl_retry_step {
    FL_RETRY_SMALLER,   /* run the first `part` texts of what is left */
    FL_RETRY_FAIL_TEXT, /* the first text has no row; then `part` */
    FL_RETRY_BREAK      /* the replica failed */
} fl_retry_step;

typedef struct fl_retry {
    uint32_t part; /* texts of the next run */
    uint32_t bad;  /* times that a text was to blame */
} fl_retry;

enum { FL_RETRY_NAMED_MAX = 4 };

/* A run of `texts` texts, of a batch of `batch`, came back with `status`, blaming text `where` of the run. */
static inline fl_retry_step fl_retry_next(fl_retry *retry, int status, size_t where, uint32_t texts,
                                          uint32_t batch) {
    if (status != FLETCH_ENOMEM && status != FLETCH_EMODEL)
        return FL_RETRY_BREAK;
    if (texts == 1) {
        if (status == FLETCH_EMODEL && retry->bad <= FL_RETRY_NAMED_MAX)
            retry->part = batch;
        return FL_RETRY_FAIL_TEXT;
    }
    if (status == FLETCH_ENOMEM) {
        retry->part = (texts + 1) / 2;
        return FL_RETRY_SMALLER;
    }
    /* Text 0 is alone at once: there is nothing in front of it. */
    retry->part =
        where > 0 && where < texts && retry->bad < FL_RETRY_NAMED_MAX ? (uint32_t)where : 1;
    retry->bad++;
    return FL_RETRY_SMALLER;
}

#endif
