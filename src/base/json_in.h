/* SPDX-License-Identifier: Apache-2.0 */
/* json_in.h - read a JSON text value by value, in place: the one reader of JSON.
 *
 * Role    who knows what comes (a dialect, a safetensors header, a record of input) pulls that and skips the
 *         rest; json.h builds a tree with it for files that are looked at in another order:
 *             fl_json_in_begin(&in, text, size);
 *             if (fl_json_in_enter(&in, FL_JSON_OBJECT))
 *                 while (fl_json_in_key(&in, &key)) ... read or skip exactly one value ...
 *             if (!fl_json_in_end(&in)) ... in.message, in.line, in.column ...
 * In/Out  bytes in; strings come out un-escaped inside the text itself, which is overwritten as it is
 *         read (an escape is never shorter than what it stands for). Not terminated: NUL is text.
 * Method  strict RFC 8259: UTF-8 checked over the whole text first, no lone surrogates (they have no UTF-8),
 *         and no more levels than in.depth_max. The first fault sticks: every later call returns false at
 *         once. Duplicate keys are the business of who reads them.
 * Memory  the struct; nothing is allocated. Threads: a reader belongs to one thread.
 * Proof   tests/unit/test_server_json.c, tests/unit/test_base_json.c, tests/fuzz/fuzz_json_in.c. */
#ifndef FL_BASE_JSON_IN_H
#define FL_BASE_JSON_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FL_JSON_IN_MESSAGE_MAX = 256, FL_JSON_DEPTH_MAX = 64 /* bits of fl_json_in.objects */ };

typedef enum fl_json_type {
    FL_JSON_NONE, /* nothing can be read: a fault, or the end of the text */
    FL_JSON_OBJECT,
    FL_JSON_ARRAY,
    FL_JSON_STRING,
    FL_JSON_NUMBER,
    FL_JSON_BOOL,
    FL_JSON_NULL
} fl_json_type;

/* Bytes inside the text. */
typedef struct fl_span {
    const char *data;
    size_t      size;
} fl_span;

typedef struct fl_json_in {
    char    *text;
    size_t   size;
    size_t   at;
    size_t   line_start;
    uint64_t objects;   /* bit d: level d is an object */
    unsigned depth;     /* open levels */
    unsigned depth_max; /* FL_JSON_DEPTH_MAX unless the caller lowers it */
    bool     fresh;     /* the innermost level was entered and nothing of it read */
    bool     failed;
    bool     mistyped;     /* the fault is of meaning (a wrong type), not of syntax */
    size_t   line, column; /* from 1; after a fault: where it is */
    char     message[FL_JSON_IN_MESSAGE_MAX];
} fl_json_in;

void fl_json_in_begin(fl_json_in *in, char *text, size_t size);
void fl_json_in_again(fl_json_in *in, char *text,
                      size_t size); /* what fl_json_in_skip has checked */

/* The type of the next value, which is left where it is. */
fl_json_type fl_json_in_peek(fl_json_in *in);

bool fl_json_in_enter(fl_json_in *in, fl_json_type object_or_array);
bool fl_json_in_key(fl_json_in *in, fl_span *key); /* false: the object is over, or a fault */
bool fl_json_in_item(fl_json_in *in);              /* false: the array is over, or a fault */

/* The next value; false and a fault of type when it is another one. */
bool fl_json_in_string(fl_json_in *in, fl_span *out);
bool fl_json_in_integer(fl_json_in *in, int64_t *out); /* whole: 12, 12.0, 1.2e1 */
bool fl_json_in_number(fl_json_in *in, fl_span *out);  /* its text, checked */
bool fl_json_in_bool(fl_json_in *in, bool *out);
bool fl_json_in_null(fl_json_in *in);

/* Check and step over any value; `raw`, unless NULL, is its text as it was sent. */
bool fl_json_in_skip(fl_json_in *in, fl_span *raw);

/* Nothing but space may follow. True: the whole text was one valid value. */
bool fl_json_in_end(fl_json_in *in);

/* Note a fault at the current place; the first one wins. Always false. */
bool fl_json_in_fail(fl_json_in *in, bool mistyped, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "a string", "null" … */
const char *fl_json_type_text(fl_json_type type);

static inline bool fl_span_is(fl_span span, const char *text) {
    return span.size == __builtin_strlen(text) && __builtin_memcmp(span.data, text, span.size) == 0;
}

#endif
