/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h - the bytes of an input as UTF-8, whatever it is packed in: gzip and zstd are expanded, UTF-16 and
 * UTF-32 with a byte order mark are decoded, and what is no text is refused by its name. */
#ifndef FL_CLI_STREAM_H
#define FL_CLI_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/expand.h"
#include "fletch.h"

typedef enum fl_charset {
    FL_CHARSET_UTF8,
    FL_CHARSET_UTF16LE,
    FL_CHARSET_UTF16BE,
    FL_CHARSET_UTF32LE,
    FL_CHARSET_UTF32BE
} fl_charset;

typedef struct fl_byte_stream {
    int         fd;
    bool        owned; /* close fd */
    const char *name;  /* for messages: the path, or "standard input" */

    bool       judged; /* the first bytes were looked at */
    fl_packed  packed; /* bytes of the file, not expanded yet */
    fl_expand  expand;
    fl_charset charset;
    char      *plain; /* owned; expanded bytes that are not given out yet; NULL until needed */
    size_t     plain_begin, plain_end;
    bool       plain_ended;
    uint32_t   high; /* first half of a UTF-16 pair, 0 for none */
} fl_byte_stream;

/* `path` NULL or "-": standard input. */
int  fl_stream_open(fl_byte_stream *stream, const char *path, fletch_error *error);
void fl_stream_close(fl_byte_stream *stream); /* idempotent */

/* Before the first read of a file of plain UTF-8: begin at byte `offset` of it. */
int fl_stream_skip(fl_byte_stream *stream, uint64_t offset, fletch_error *error);

/* Whether a file that begins with head[size] is text as it lies there, so that it can be read from the
 * middle; what is packed, decoded or refused is not. */
bool fl_stream_is_plain(const char *head, size_t size);

/* At most `room` (at least 16) bytes of text into out: their number, 0 at the end, negative on failure. */
int64_t fl_stream_read(fl_byte_stream *stream, char *out, size_t room, fletch_error *error);

/* Whether the next read needs nothing from the file. */
bool fl_stream_holds_more(const fl_byte_stream *stream);

/* Whether a byte that is given out is a byte of the file. */
static inline bool fl_stream_is_verbatim(const fl_byte_stream *stream) {
    return stream->expand.packing == FL_PACKING_NONE && stream->charset == FL_CHARSET_UTF8;
}

/* Bytes of the file that were given out, or expanded or decoded where it is packed. */
uint64_t fl_stream_taken(const fl_byte_stream *stream);

#endif
