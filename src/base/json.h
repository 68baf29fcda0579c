/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - JSON files as trees, with the checks that files from strangers need.
 *
 * fl_json_parse refuses: invalid UTF-8, anything RFC 8259 does not allow (NaN, comments, trailing text), half
 * surrogate pairs, a NUL in a key, more than 64 levels, a document larger than `size_max` or one whose tree would
 * take more than 256 MiB beside its text, and duplicate keys in an object when asked (tokenizer.json; without it
 * the last value wins). All of these are FLETCH_EMODEL; the message names `source` and the byte offset, and
 * error->where is the offset.
 * The typed getters return their fallback when the key is absent or null, and fail with FLETCH_EMODEL
 * naming source and key when the type is wrong, so that a config reader is a list of one-line calls.
 * Memory: a tree is one block, its text with 8 bytes per value after it; release with fl_json_free.
 * Threads: a tree that is read may be shared. */
#ifndef FL_BASE_JSON_H
#define FL_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json_in.h"
#include "fletch.h"

typedef struct fl_json fl_json; /* a value of a tree; NULL is null, and what is not there */

enum {
    FL_JSON_UNIQUE_KEYS = 1,
    /* The large tables of a tokenizer.json, model.vocab and model.merges, are checked but stay text for
     * fl_json_later: as values they would take more memory than all else that opening needs. */
    FL_JSON_TABLES_LATER = 2
};

/* The document `null` gives status 0 and *out NULL. */
int  fl_json_parse(fl_json **out, const char *text, size_t size, size_t size_max, int flags,
                   const char *source, fletch_error *error);
int  fl_json_take(fl_json **out, fl_buf *text, size_t size_max, int flags, const char *source,
                  fletch_error *error); /* no copy: the text is taken over, and the buffer empty */
int  fl_json_read(fl_json **out, const char *path, size_t size_max, fletch_error *error);
void fl_json_free(fl_json *root); /* NULL is a no-op */

/* ---- Values: every function takes any value, NULL too ---- */

fl_json_type fl_json_type_of(fl_json *json);
bool         fl_json_is(fl_json *json, fl_json_type type);
const char  *fl_json_kind(fl_json *json); /* "an object", "a number", "null" … for messages */

/* Arrays and objects: items or members; 0 of anything else. Both lookups take constant time. */
size_t   fl_json_count(fl_json *json);
fl_json *fl_json_item(fl_json *array, size_t index);
fl_json *fl_json_get(fl_json *object, const char *key);
bool     fl_json_find(fl_json *object, const char *key,
                      fl_json **value); /* there, if null; value may be NULL */

/* A reader of an array or object that FL_JSON_TABLES_LATER left as text, which has no items or members above. It works
 * once, decoding strings in place, and meets no fault of syntax. Keys may be there twice. False: it is not one. */
bool fl_json_later(fl_json *json, fl_json_in *in);

/* Key and *value of a member in the order of the file; NULL past the last. */
const char *fl_json_member(fl_json *object, size_t index, fl_json **value);

#define FL_JSON_EACH(object, key, value)                                                           \
    const char *key   = NULL;                                                                      \
    fl_json    *value = NULL;                                                                      \
    for (size_t index_of_##key = 0;                                                                \
         (key = fl_json_member(object, index_of_##key, &value)) != NULL; index_of_##key++)

/* Of a string, NUL-terminated; NULL and 0 of anything else. Keys have the length strlen gives. */
const char *fl_json_text(fl_json *json);
size_t      fl_json_text_size(fl_json *json);

bool    fl_json_true(fl_json *json);
bool    fl_json_flag(fl_json *object, const char *key, bool fallback); /* null: fallback */
bool    fl_json_is_int(fl_json *json); /* a number without point and exponent */
int64_t fl_json_int64(fl_json *json);  /* of an integer: saturates; 0 of anything else */
double  fl_json_f64(fl_json *json);    /* of any number, as strtod reads it: may be infinite */

/* The same of a number's text as a reader gives it. */
bool    fl_span_is_int(fl_span number);
int64_t fl_span_int64(fl_span number);
double  fl_span_f64(fl_span number);

/* ---- Configurations ---- */

/* Where a reader stands: the object, the file it came from (for messages), and the first error.
 * After an error all getters return their default; check `status` once at the end. */
typedef struct fl_json_reader {
    fl_json      *object; /* borrowed; NULL reads as empty */
    const char   *source;
    fletch_error *error;
    int           status; /* 0 or the first failure */
} fl_json_reader;

bool        fl_json_has(const fl_json_reader *reader, const char *key); /* present and not null */
fl_json    *fl_json_object(fl_json_reader *reader, const char *key); /* NULL when absent or null */
fl_json    *fl_json_array(fl_json_reader *reader, const char *key);
const char *fl_json_string(fl_json_reader *reader, const char *key, const char *fallback);
/* Integers beyond int64_t saturate (1e30 reads as INT64_MAX) before they are compared with min and max. */
int64_t fl_json_int(fl_json_reader *reader, const char *key, int64_t fallback, int64_t min,
                    int64_t max);
double  fl_json_double(fl_json_reader *reader, const char *key, double fallback);
bool    fl_json_bool(fl_json_reader *reader, const char *key, bool fallback);

/* A reader of `object`, which lies in what `reader` reads, and one of the object under `key`, which may be absent.
 * Both begin with that one's status; what fails in them goes back by fl_json_settle. */
fl_json_reader fl_json_inside(const fl_json_reader *reader, fl_json *object);
fl_json_reader fl_json_below(fl_json_reader *reader, const char *key);
void           fl_json_settle(fl_json_reader *reader, const fl_json_reader *inner);

/* Whether a line of JSON lines holds none: white space alone. */
bool fl_json_is_blank(const char *line, size_t size);

/* Append `text` as a JSON string with quotes; control characters escaped, UTF-8 kept as it is. */
void   fl_json_quote(fl_buf *out, const char *text, size_t size);
size_t fl_json_quoted_size(const char *text, size_t size); /* how many bytes that appends */

/* Append valid JSON as it is, but for the white space outside strings: one line. */
void fl_json_compact(fl_buf *out, const char *raw, size_t size);

#endif
