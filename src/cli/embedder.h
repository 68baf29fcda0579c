/* SPDX-License-Identifier: Apache-2.0 */
/* embedder.h - windows of texts to rows, one fletch_embed call a window, and the texts that have no row. */
#ifndef FL_CLI_EMBEDDER_H
#define FL_CLI_EMBEDDER_H

#include "cli/run.h"
#include "cli/several.h"

/* Takes one row, in input order; anything but FL_EXIT_DONE ends the run with it. */
typedef fl_exit (*fl_row_fn)(fl_run *run, const fl_row *row, void *user);

typedef struct fl_embedder {
    const fl_result_kind *kind;
    size_t                dimensions;
    fletch_dtype          dtype;
    uint32_t              top_k; /* weights: as fletch_embed_options has them */
    float                 threshold;
    bool strict; /* want of memory is never a text's fault: the run fails and may be tried again */
    fl_row_fn put;
    void     *user;

    fl_several *several; /* borrowed: in place of `kind`; or NULL */

    const fletch_list *list; /* of the row that is put; kinds of lists */
    size_t             at;   /* where in its call it was */

    fletch_lists *lists;     /* owned: of the span under way */
    void         *vectors;   /* owned [capacity, dimensions] of dtype */
    uint32_t     *tokens;    /* owned [capacity] */
    uint8_t      *truncated; /* owned [capacity] */
    size_t        capacity;
} fl_embedder;

/* As --dtype has it; NULL and float16 (of which float32 rows are made) are FLETCH_FLOAT32. */
fletch_dtype fl_embedder_dtype(const char *name);

/* The work of fl_run_windows; `embedder` is an fl_embedder. */
fl_exit fl_embedder_window(fl_run *run, void *embedder);

void fl_embedder_free(fl_embedder *embedder);

#endif
