/* SPDX-License-Identifier: Apache-2.0 */
/* http1.h - HTTP/1.1 as bytes: heads of requests, chunked bodies, reason phrases.
 *
 * Pure functions on the caller's memory: nothing is allocated, no socket is known, so the fuzzer drives exactly
 * what the server runs. RFC 9112 leaves room where it says "may" or "should"; whatever two servers could read
 * differently is refused here, because a proxy in front and this server must agree where one request ends and the
 * next begins: an empty or odd name, a folded line, a bare LF or CR, a NUL, two lengths, codings or Hosts, a length
 * that is no plain number, any coding but "chunked", chunk lines and trailers that are not to the letter. */
#ifndef FL_SERVER_HTTP1_H
#define FL_SERVER_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/limits.h"

/* A head under way. Names and values end in NUL once their line was read; numbers are offsets into the data, which
 * may move between calls. Zeros up to `field` begin one. */
typedef struct fl_http_head {
    uint32_t    size; /* bytes read so far; of the whole head once it is whole */
    uint32_t    method, target, path, query, authority; /* path 0: the request line was not read */
    uint32_t    lines;                                  /* bytes of header lines */
    uint32_t    host, coding;                           /* 0: none */
    uint32_t    count;                                  /* header lines */
    int         minor;                                  /* of HTTP/1.minor */
    bool        skipped, chunked, has_length, expects;
    bool        wants_close, wants_keep; /* by Connection */
    uint64_t    length;                  /* of the body; UINT64_MAX: chunked */
    const char *fault;                   /* what is wrong, static */
    struct {
        uint32_t name, value;
    } field[FL_LIMIT_HEADERS];
} fl_http_head;

/* Read on in data[size], whose first head->size bytes were read before. 1: the head is whole; 0: more bytes are
 * wanted; below 0: the negative of the status to refuse with, head->fault says why and the connection must end. */
int fl_http_head_read(fl_http_head *head, char *data, size_t size);

/* The value of a header by name, case ignored; NULL when absent. The first of several. */
const char *fl_http_header(const fl_http_head *head, const char *data, const char *name);

/* Whether the connection may carry another request. */
static inline bool fl_http_keeps(const fl_http_head *head) {
    return !head->wants_close && (head->minor == 1 || head->wants_keep);
}

/* A chunked body under way; {0} begins one. */
typedef struct fl_http_chunks {
    int      state;
    uint64_t left;  /* of the chunk's data */
    uint32_t count; /* chunks with data */
    uint32_t line;  /* bytes of the size line, or of all trailers */
    uint32_t digits;
} fl_http_chunks;

enum { FL_CHUNK_MORE, FL_CHUNK_DATA, FL_CHUNK_END };

/* Read on in data[size]: *used bytes are through. FL_CHUNK_DATA: *at and *count are a piece of the body, call again
 * with the rest; FL_CHUNK_MORE: more bytes are wanted; FL_CHUNK_END: the body is whole, what follows is the next
 * request; below 0: the negative of the status to refuse with. */
int fl_http_chunks_read(fl_http_chunks *chunks, const char *data, size_t size, size_t *used,
                        const char **at, size_t *count);

const char *fl_http_reason(int status);

#endif
