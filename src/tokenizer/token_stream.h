/* SPDX-License-Identifier: Apache-2.0 */
/* token_stream.h - what the two halves of the fast path share: one text on its way from bytes to ids.
 *
 * Role     token_stream.c walks over the text and knows pieces it has seen; chars.c normalises what it has not.
 * Threads  A fl_stream lives on the stack of one call. */
#ifndef FL_TOKENIZER_TOKEN_STREAM_H
#define FL_TOKENIZER_TOKEN_STREAM_H

#include "tokenizer/pipeline.h"

typedef struct fl_stream {
    const fl_tokenizer *tokenizer;
    fl_token_scratch   *scratch;
    const char         *begin, *end; /* of the text between added tokens */
    const char         *window;      /* the text of which scratch->lower is the lowered copy */
    int32_t            *ids;
    size_t              count;
    size_t              limit; /* ids has room for so many */
    size_t keep; /* left truncation: keep the last so many; SIZE_MAX: not truncating left */
    bool   truncated;
    bool   full;
    bool   clean, chinese, strip, lower, isolate; /* the flags of the pipeline */
    size_t word_size;                             /* bytes in scratch->word */
    size_t word_chars; /* characters of the word, also those that were not kept */
    size_t waiting;    /* marks in scratch->pending */
    size_t queued;     /* pieces in scratch->queue */
    size_t work;       /* bytes done since somebody was asked whether they are wanted */
} fl_stream;

/* The buffer is full: make room (left) or stop (right). False: stop. */
bool fl_stream_make_room(fl_stream *stream);

/* `bytes` of the text are done: ask now and then whether anybody wants the rest. */
void fl_stream_worked(fl_stream *stream, size_t bytes);

/* The words of text[size], which stands between two hard borders. */
void fl_stream_chars(fl_stream *stream, const char *text, size_t size);

static inline void fl_stream_push(fl_stream *stream, const int32_t *ids, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (stream->count == stream->limit && !fl_stream_make_room(stream))
            return;
        stream->ids[stream->count++] = ids[i];
    }
}

#endif
