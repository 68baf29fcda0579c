/* SPDX-License-Identifier: Apache-2.0 */
/* chunker.h - a document to chunks of at most so many tokens, one after the other. */
#ifndef FL_TOKENIZER_CHUNKER_H
#define FL_TOKENIZER_CHUNKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/units.h"

enum {
    FL_CHUNK_LEVELS    = 4,      /* a section's blocks' sentences' words */
    FL_CHUNK_BYTES_MAX = 4 << 20 /* of a chunk, more or less, however few tokens it has */
};

typedef struct fl_chunker_options {
    fl_unit  unit;    /* what is kept whole where it fits */
    uint32_t size;    /* tokens of a chunk, special ones not counted; 1 or more */
    uint32_t overlap; /* tokens that a chunk may repeat of the one before it; less than size */
} fl_chunker_options;

/* Bytes [begin, end) of the text. */
typedef struct fl_chunk_span {
    size_t   begin, end;
    uint32_t tokens; /* of these bytes as a text of their own, special ones not counted */
} fl_chunk_span;

/* The members are the chunker's own. */
typedef struct fl_chunker {
    const fl_tokenizer *tokenizer;
    fl_token_scratch   *scratch;
    const char         *text;
    fl_chunker_options  options;
    size_t              unit_bytes; /* a longer unit is cut without being counted */
    struct {
        fl_unit unit;
        size_t  at, end;
    } level[FL_CHUNK_LEVELS]; /* what is cut into what: the innermost last */
    unsigned depth;
    size_t   inked; /* behind the last unit that was read, white space at its end left out */
    fl_chunk_span
          *units; /* owned [room]: the current chunk's from `head`, first those that it repeats */
    size_t room, head, count, kept;
    size_t read;         /* units so far */
    fl_chunk_span ahead; /* the unit behind them, where it was read already: end > begin */
    int32_t      *ids;   /* owned [capacity], as the next two */
    uint32_t     *offsets;
    uint8_t      *special;
    size_t        capacity;
} fl_chunker;

/* The text is valid UTF-8, of less than 4 GiB, and outlives the chunker, as tokenizer and scratch do. ENOMEM.
 * fl_chunker_close in either case. */
int fl_chunker_open(fl_chunker *chunker, const fl_tokenizer *tokenizer, fl_token_scratch *scratch,
                    const char *text, size_t size, const fl_chunker_options *options,
                    fletch_error *error);

/* The next chunk: 1; 0: there is none. ENOMEM; ECANCELLED by the scratch's fl_stop. */
int fl_chunker_next(fl_chunker *chunker, fl_chunk_span *chunk, fletch_error *error);

void fl_chunker_close(fl_chunker *chunker);

#endif
