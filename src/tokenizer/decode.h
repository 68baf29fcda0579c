/* SPDX-License-Identifier: Apache-2.0 */
/* decode.h - the decoder of tokenizer.json: a chain of steps over the tokens' strings.
 *
 * Role     parse.c opens it, fl_tokenizer_decode runs it.
 * Threads  Immutable after opening. */
#ifndef FL_TOKENIZER_DECODE_H
#define FL_TOKENIZER_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "tokenizer/regex.h"

enum { FL_DECODERS_MAX = 16 };

typedef struct fl_decoder_ops fl_decoder_ops;

typedef struct fl_decoder_step {
    const fl_decoder_ops *ops;
    char                 *text;    /* owned: prefix, suffix, replacement or content */
    char                 *pattern; /* owned: Replace of a string */
    fl_regex             *regex;   /* owned: Replace of a pattern */
    bool                  flag;    /* what the step says it is */
    uint32_t              start, stop;
} fl_decoder_step;

typedef struct fl_decoder {
    fl_decoder_step steps[FL_DECODERS_MAX];
    unsigned        count; /* 0: tokens are joined with spaces */
} fl_decoder;

/* "decoder" of the root may be absent or null. close after a failure too. */
int  fl_decoder_open(fl_decoder *decoder, fl_json_reader *root);
int  fl_decoder_wordpiece(fl_decoder *decoder, fletch_error *error); /* BERT's, as of a vocab.txt */
void fl_decoder_close(fl_decoder *decoder);

#endif
