/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - read a stream and cut it into records without knowing what they mean.
 *
 * Role    input.c asks for one record after the other.
 * Method  One buffer, three scanners that find where the next record ends. A scanner remembers where it
 *         stopped and in which state, so each byte is looked at once, also when a record comes in many
 *         reads. A CSV record ends at a line end outside quotes, an item of a JSON array at a comma or
 *         bracket at depth 0 outside strings; whether the record is well formed is input.c's question.
 *         When a window already holds records, a read never waits longer than a blink: what a slow
 *         producer has sent so far is embedded while it makes more.
 * Memory  The buffer doubles up to the longest record allowed; a longer one is read past without being
 *         kept. Threads: none. Proof tests/cli/test_cli_input.py. */
#include "cli/source.h"

#include <poll.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

/* A pipe holds 64 KiB, so larger reads only help files; 1 MiB keeps the system calls out of sight. */
enum { FIRST_CAPACITY = 1 << 20, READ_MIN = 64 * 1024, WAIT_MS = 5 };

int fl_source_open(fl_source *source, const char *path, fl_source_kind kind, size_t record_max,
                   fletch_error *error) {
    memset(source, 0, sizeof *source);
    source->kind       = kind;
    source->record_max = record_max;
    source->line       = 1;
    FL_TRY(fl_stream_open(&source->stream, path, error));
    source->data = fl_alloc(FIRST_CAPACITY);
    if (source->data == NULL) {
        fl_source_close(source);
        return fl_fail_nomem(error, FIRST_CAPACITY, "the input buffer");
    }
    source->capacity = FIRST_CAPACITY;
    return 0;
}

int fl_source_between(fl_source *source, uint64_t begin, uint64_t limit, fletch_error *error) {
    source->limit = limit;
    return begin == 0 ? 0 : fl_stream_skip(&source->stream, begin, error);
}

void fl_source_close(fl_source *source) {
    fl_stream_close(&source->stream);
    fl_free(source->data);
    source->data = NULL;
}

void fl_source_compact(fl_source *source) {
    size_t left = source->end - source->begin;
    if (source->begin > 0)
        memmove(source->data, source->data + source->begin, left);
    source->scan -= source->begin;
    source->end   = left;
    source->begin = 0;
    /* One very long line must not keep its memory for the rest of the run. */
    if (source->capacity > (size_t)64 * FIRST_CAPACITY && left <= (size_t)FIRST_CAPACITY) {
        char *smaller = fl_realloc_array(source->data, (size_t)8 * FIRST_CAPACITY, 1);
        if (smaller != NULL) {
            source->data     = smaller;
            source->capacity = (size_t)8 * FIRST_CAPACITY;
        }
    }
}

uint64_t fl_source_done(const fl_source *source) {
    const uint64_t taken = fl_stream_taken(&source->stream), held = source->end - source->begin;
    if (fl_stream_is_verbatim(&source->stream))
        return taken > held ? taken - held : 0;
    const double given = (double)source->given;
    return given > 0 ? (uint64_t)((double)taken * ((given - (double)held) / given)) : 0;
}

/* Read more behind `end`. 1 more came or the end was reached, 0 would wait, negative on failure. */
static int fill(fl_source *source, bool wait, fletch_error *error) {
    if (!wait && !fl_stream_holds_more(&source->stream)) {
        struct pollfd ready = {source->stream.fd, POLLIN, 0};
        if (poll(&ready, 1, WAIT_MS) == 0)
            return 0;
    }
    if (source->capacity - source->end < READ_MIN) {
        char *larger = fl_realloc_array(source->data, source->capacity, 2);
        if (larger == NULL)
            return fl_fail_nomem(error, 2 * source->capacity, "the input buffer");
        source->data = larger;
        source->capacity *= 2;
    }
    const int64_t count = fl_stream_read(&source->stream, source->data + source->end,
                                         source->capacity - source->end, error);
    if (count < 0)
        return (int)count;
    source->end += (size_t)count;
    source->given += (uint64_t)count;
    source->eof = count == 0;
    return 1;
}

/* ---- The scanners: true when a record ends; *end is behind its content, *next behind its end ---- */

static bool scan_lines(fl_source *source, size_t *end, size_t *next) {
    const char *found = memchr(source->data + source->scan, '\n', source->end - source->scan);
    if (found == NULL) {
        source->scan = source->end;
        return false;
    }
    *end  = (size_t)(found - source->data);
    *next = *end + 1;
    return true;
}

static bool scan_csv(fl_source *source, size_t *end, size_t *next) {
    for (; source->scan < source->end; source->scan++) {
        char c = source->data[source->scan];
        if (c == '"') {
            source->quoted = !source->quoted; /* a doubled quote toggles twice */
        } else if (c == '\n' && !source->quoted) {
            *end  = source->scan;
            *next = source->scan + 1;
            return true;
        }
    }
    return false;
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool all_space(const fl_source *source, size_t from, size_t to) {
    while (from < to && is_space(source->data[from]))
        from++;
    return from == to;
}

/* Find the opening bracket, or that there is none. */
static void scan_json_start(fl_source *source) {
    while (source->scan < source->end && is_space(source->data[source->scan]))
        source->scan++;
    if (source->scan < source->end) {
        bool array    = source->data[source->scan] == '[';
        source->phase = array ? FL_JSON_ITEMS : FL_JSON_WHOLE;
        source->scan += array;
        source->begin = source->scan;
    }
}

static bool scan_json_item(fl_source *source, size_t *end, size_t *next) {
    for (; source->scan < source->end; source->scan++) {
        char c = source->data[source->scan];
        if (source->quoted) {
            if (source->escaped)
                source->escaped = false;
            else if (c == '\\')
                source->escaped = true;
            else if (c == '"')
                source->quoted = false;
            continue;
        }
        bool closes = c == ']' || c == '}';
        if (c == '"') {
            source->quoted = true;
        } else if (c == '{' || c == '[') {
            source->depth++;
        } else if (closes && source->depth > 0) {
            source->depth--;
        } else if (source->depth == 0 && (c == ']' || c == ',')) {
            *end          = source->scan;
            *next         = source->scan + 1;
            source->phase = c == ']' ? FL_JSON_AFTER : FL_JSON_ITEMS;
            if (c == ']' && source->records == 0 && all_space(source, source->begin, *end)) {
                source->begin = source->scan = *next; /* "[]" holds no item */
                return false;
            }
            return true;
        }
    }
    return false;
}

static bool scan_json(fl_source *source, size_t *end, size_t *next) {
    if (source->phase == FL_JSON_START)
        scan_json_start(source);
    if (source->phase == FL_JSON_ITEMS)
        return scan_json_item(source, end, next);
    if (source->phase != FL_JSON_AFTER)
        source->scan = source->end;
    return false;
}

static bool scan(fl_source *source, size_t *end, size_t *next) {
    switch (source->kind) {
    case FL_SOURCE_LINES: return scan_lines(source, end, next);
    case FL_SOURCE_CSV: return scan_csv(source, end, next);
    case FL_SOURCE_JSON: return scan_json(source, end, next);
    }
    return false;
}

/* ---- Records ---- */

static int give(fl_source *source, size_t end, size_t next, fl_raw *raw) {
    raw->offset = source->begin;
    raw->size   = end - source->begin;
    raw->line   = source->line;
    if (source->kind == FL_SOURCE_CSV) /* a quoted field may hold line ends */
        for (size_t i = source->begin; i < next; i++)
            source->line += source->data[i] == '\n';
    else
        source->line++;
    if (source->kind != FL_SOURCE_JSON && raw->size > 0 &&
        source->data[raw->offset + raw->size - 1] == '\r')
        raw->size--;
    source->begin = source->scan = next;
    source->records++;
    if (source->discarding) {
        source->discarding = false;
        return FL_SOURCE_LATER; /* the tail of a record that was reported; the caller goes on */
    }
    return raw->size > source->record_max ? FL_SOURCE_TOO_LONG : FL_SOURCE_RECORD;
}

/* The stream has ended: is there a last record, and is the whole well formed? */
static int finish(fl_source *source, fl_raw *raw, fletch_error *error) {
    size_t left = source->end - source->begin;
    if (source->kind != FL_SOURCE_JSON)
        return left > 0 ? give(source, source->end, source->end, raw) : FL_SOURCE_END;
    switch (source->phase) {
    case FL_JSON_START:
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                       "%s holds no JSON; expected an array of strings or objects",
                       source->stream.name);
    case FL_JSON_ITEMS:
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                       "%s ends inside item %llu of its array; is the file truncated?",
                       source->stream.name, (unsigned long long)source->line);
    case FL_JSON_WHOLE:
        return left > 0 ? give(source, source->end, source->end, raw) : FL_SOURCE_END;
    case FL_JSON_AFTER: break;
    }
    if (!all_space(source, source->begin, source->end)) {
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "%s: trailing data after the array",
                       source->stream.name);
    }
    return FL_SOURCE_END;
}

int fl_source_next(fl_source *source, bool wait, fl_raw *raw, fletch_error *error) {
    for (;;) {
        size_t end = 0, next = 0;
        if (source->limit != 0 && !source->discarding && fl_source_done(source) >= source->limit)
            return FL_SOURCE_END;
        if (scan(source, &end, &next)) {
            int result = give(source, end, next, raw);
            if (result == FL_SOURCE_LATER)
                continue;
            return result;
        }
        if (source->eof) {
            int result = finish(source, raw, error);
            return result == FL_SOURCE_LATER ? FL_SOURCE_END : result;
        }
        bool behind = source->kind == FL_SOURCE_JSON && source->phase == FL_JSON_AFTER;
        if (source->discarding) {
            source->end = source->scan = source->begin;
        } else if (source->end - source->begin > source->record_max && !behind) {
            source->discarding = true;
            raw->offset        = source->begin;
            raw->size          = 0;
            raw->line          = source->line;
            return FL_SOURCE_TOO_LONG;
        }
        int more = fill(source, wait, error);
        if (more < 0)
            return more;
        if (more == 0)
            return FL_SOURCE_LATER;
    }
}
