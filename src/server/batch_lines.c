/* SPDX-License-Identifier: Apache-2.0 */
/* batch_lines.c - the lines of a batch's input: read a piece at a time, each made a request.
 *
 * In/Out  {"custom_id", "method", "url", "body"} in; a request whose body is the line's, byte for byte.
 * Method  A line is read by the reader of bodies (fields.h), in the memory of the request that it becomes, so that
 *         its handler sees what it would see of a client. Lines of nothing but space are stepped over.
 * Memory  A piece of the file and the longest line. Threads: a reader belongs to one.
 * Proof   tests/server/test_batches.py. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json.h"
#include "server/batches.h"

enum { PIECE = 256 * 1024 };

#define AT(member) offsetof(fl_batch_line, member)
const fl_field fl_batch_line_fields[] = {
    {"custom_id", FL_FIELD_STRING, FL_FIELD_REQUIRED, AT(custom_id), .min = 1},
    {"method", FL_FIELD_STRING, FL_FIELD_REQUIRED, AT(method), .min = 1},
    {"url", FL_FIELD_STRING, FL_FIELD_REQUIRED, AT(url), .min = 1},
    {"body", FL_FIELD_RAW, FL_FIELD_REQUIRED, AT(body), .words = "\"type\":\"object\""},
    {0},
};

/* Another piece of the file behind what is held. */
static int read_on(fl_batch_lines *lines, fletch_error *error) {
    fl_buf *held = &lines->held;
    if (lines->used > 0) {
        memmove(held->data, held->data + lines->used, held->size - lines->used);
        held->size -= lines->used;
        lines->used = 0;
    }
    if (!fl_buf_reserve(held, PIECE))
        return fl_fail_nomem(error, PIECE, "the lines of a batch");
    ssize_t got = pread(lines->fd, held->data + held->size, PIECE, (off_t)(lines->at + held->size));
    if (got < 0)
        return fl_fail_errno(error, errno, "cannot read", "a batch's input");
    lines->at_end = got == 0;
    held->size += (size_t)got;
    return FLETCH_OK;
}

/* The next line, empty or not: 1, 0 or an error. */
static int next_line(fl_batch_lines *lines, char **line, size_t *size, fletch_error *error) {
    fl_buf *held   = &lines->held;
    size_t  looked = 0;
    for (;;) {
        size_t rest = held->size - lines->used;
        char  *from = rest > 0 ? held->data + lines->used : NULL;
        char  *end  = rest > looked ? memchr(from + looked, '\n', rest - looked) : NULL;
        looked      = rest;
        if (end == NULL && !lines->at_end) {
            FL_TRY(read_on(lines, error));
            continue;
        }
        if (rest == 0)
            return 0;
        *line      = from;
        *size      = end != NULL ? (size_t)(end - from) : rest;
        lines->was = lines->at;
        lines->at += *size + (end != NULL);
        lines->used += *size + (end != NULL);
        lines->number++;
        return 1;
    }
}

int fl_batch_lines_next(fl_batch_lines *lines, char **line, size_t *size, fletch_error *error) {
    static const char mark[] = "\xEF\xBB\xBF"; /* that some editors put first */
    int               found;
    do {
        found = next_line(lines, line, size, error);
        if (found == 1 && lines->was == 0 && *size >= 3 && memcmp(*line, mark, 3) == 0) {
            *line += 3;
            *size -= 3;
        }
    } while (found == 1 && fl_json_is_blank(*line, *size));
    return found;
}

fl_request_full *fl_batch_line_request(fl_server *server, const char *line, size_t size) {
    fl_request_full *full = fl_request_make(server);
    if (full == NULL)
        return NULL;
    fl_http_request *request = &full->shared;
    fl_buf_append(&full->gather, line, size);
    request->method = "POST";
    request->path = request->query = request->tail = "";
    request->body                                  = full->gather.data;
    request->body_size                             = full->gather.size;
    if (full->gather.failed) {
        fl_request_retire(full);
        return NULL;
    }
    return full;
}
