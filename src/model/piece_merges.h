/* SPDX-License-Identifier: Apache-2.0 */
/* piece_merges.h - SentencePiece's BPE has pieces with scores; a tokenizer.json has merges. */
#ifndef FL_MODEL_PIECE_MERGES_H
#define FL_MODEL_PIECE_MERGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json_in.h"
#include "base/json_w.h"
#include "fletch.h"

/* Pieces by their text. */
typedef struct fl_piece_index {
    const fl_span *pieces; /* borrowed [count] */
    uint32_t       count;
    uint32_t      *buckets; /* owned [mask + 1]: id + 1; 0: empty */
    size_t         mask;
    uint64_t       seed;
} fl_piece_index;

/* Empty, for pieces[count], which may be filled later. False: out of memory. */
bool    fl_piece_index_open(fl_piece_index *index, const fl_span *pieces, uint32_t count);
void    fl_piece_index_close(fl_piece_index *index);                    /* idempotent */
int64_t fl_piece_index_find(const fl_piece_index *index, fl_span text); /* -1: there is none */
/* Piece `id` by its text; the id of another one of that text, which stays, or `id`. */
uint32_t fl_piece_index_put(fl_piece_index *index, uint32_t id);

/* "merges": every way to put a piece together from two others, the pieces with the highest scores first, of one piece
 * the way whose left part is longest. scores[count]: NaN where nothing is merged into a piece. `ranked`: only of
 * pieces that have a score, each merge with its rank, which is one for equal scores. */
int fl_piece_merges_put(fl_json_w *w, const fl_piece_index *index, const double *scores,
                        bool ranked, fletch_error *error);

#endif
