/* SPDX-License-Identifier: Apache-2.0 */
/* store_move.h - the texts of a store into another one, with vectors of another model. */
#ifndef FL_STORE_STORE_MOVE_H
#define FL_STORE_STORE_MOVE_H

#include <stddef.h>
#include <stdint.h>

#include "fletch.h"

typedef struct fl_store_move {
    const char   *from, *to; /* files; `from` is only read, and a server may have it open */
    const char   *name;      /* of the model, for people */
    fletch_model *model;     /* that makes the vectors of `to` */
    void (*progress)(void *user, uint64_t done, uint64_t total);
    void    *user;
    uint64_t before, made,
        dropped; /* out: items that were there, were embedded, are not in `from` any more */
} fl_store_move;

/* Make `to` a store of `model` with the items of `from`: same ids, texts, metadata, times and order. What is there from
 * an earlier call stays unless its text is another, so that it goes on after a kill, and what `from` has got or
 * lost meanwhile follows. Until it ends, no server opens `to`. */
int fl_store_move_run(fl_store_move *move, fletch_error *error);

#endif
