/* SPDX-License-Identifier: Apache-2.0 */
/* source.h - a stream of bytes cut into raw records: lines, CSV records, items of a JSON array.
 *
 * The buffer holds the records of the current window and nothing is moved until fl_source_compact, so a
 * window's records are offsets into `data` and lines are never copied. Memory is bounded by the window
 * plus the longest record that `record_max` allows. */
#ifndef FL_CLI_SOURCE_H
#define FL_CLI_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/stream.h"
#include "fletch.h"

typedef enum fl_source_kind { FL_SOURCE_LINES, FL_SOURCE_CSV, FL_SOURCE_JSON } fl_source_kind;

typedef enum fl_source_phase {
    FL_JSON_START, /* before the first value */
    FL_JSON_ITEMS, /* inside the array */
    FL_JSON_WHOLE, /* no array: the document is one record */
    FL_JSON_AFTER  /* behind the array */
} fl_source_phase;

typedef struct fl_source {
    fl_byte_stream stream;
    fl_source_kind kind;
    size_t         record_max;

    char    *data; /* owned; [begin, end) is not given out yet, [0, begin) is this window's */
    size_t   capacity, begin, end;
    size_t   scan; /* first byte the scanner has not seen */
    bool     eof;
    uint64_t given; /* bytes that the stream gave */
    /* lines of a plain file, between two of its bytes: */
    uint64_t limit; /* records that begin here or later are another's; 0: to the end */

    /* scanner */
    bool            quoted, escaped, discarding;
    unsigned        depth;
    fl_source_phase phase;
    uint64_t        records;
    uint64_t        line; /* line, from 1, on which the next record begins (items count from 1) */
} fl_source;

typedef struct fl_raw {
    size_t   offset, size; /* in source->data, line end cut off */
    uint64_t line;
} fl_raw;

typedef enum fl_source_result {
    FL_SOURCE_RECORD   = 1,
    FL_SOURCE_END      = 0,
    FL_SOURCE_LATER    = 2, /* nothing to be had without waiting; only when `wait` is false */
    FL_SOURCE_TOO_LONG = 3  /* a record beyond record_max; it is left out; raw->line names it */
} fl_source_result;

/* `path` NULL or "-": standard input. */
int  fl_source_open(fl_source *source, const char *path, fl_source_kind kind, size_t record_max,
                    fletch_error *error);
void fl_source_close(fl_source *source);

/* Before the first record of a plain file of lines: begin at byte `begin`, where a line begins, and give the
 * records that begin before byte `limit`. */
int fl_source_between(fl_source *source, uint64_t begin, uint64_t limit, fletch_error *error);

/* The next record: an fl_source_result, or a negative status. */
int fl_source_next(fl_source *source, bool wait, fl_raw *raw, fletch_error *error);

/* Forget the records given out so far. */
void fl_source_compact(fl_source *source);

/* Bytes of the file that were given out, or about their share where it is compressed or decoded. Of a plain file
 * that is read from the middle: where in it the next record begins. */
uint64_t fl_source_done(const fl_source *source);

#endif
