/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - parse JSON from strangers: check the text strictly, then let json-c build the tree.
 *
 * Role    config.json, tokenizer.json, modules.json, hub answers, JSON lines of input.
 * Method  json-c is lenient (NaN, single quotes, comments, lone surrogates) and cannot limit what
 *         it allocates, so json_scan.c first checks the whole text against RFC 8259 in one pass
 *         and adds up what the tree will cost. json-c then only sees valid documents of a bounded
 *         size.
 *         Duplicate keys: json-c keeps the last value, so an object with duplicates has fewer
 *         members in the tree than the scan counted. Comparing two totals is linear, and json-c's
 *         seeded hash keeps it so against chosen keys; only when they differ is the culprit looked
 *         for.
 * Memory  the tree is json-c's (malloc), bounded by TREE_BYTES_MAX of json_scan.c.
 * Threads a tree belongs to one.
 * Proof   tests/unit/test_base_json.c. */
#include "base/json.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_scan.h"
#include "base/mem.h"
#include "base/utf8.h"

/* ---- Parsing --------------------------------------------------------------------------------- */

/* Members of all objects of the tree. Recursion is bounded by FL_JSON_DEPTH_MAX. */
static size_t count_members(fl_json *json) {
    size_t total = 0;
    if (json_object_is_type(json, json_type_object)) {
        json_object_object_foreach(json, key, value) {
            (void)key;
            total += 1 + count_members(value);
        }
    } else if (json_object_is_type(json, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(json); i++) {
            total += count_members(json_object_array_get_idx(json, i));
        }
    }
    return total;
}

static int build_tree(fl_json **out, const char *text, size_t size, const char *source,
                      fletch_error *error) {
    struct json_tokener *tokener = json_tokener_new_ex(FL_JSON_DEPTH_MAX + 2);
    if (tokener == NULL) {
        return fl_fail_nomem(error, size, source);
    }
    fl_json *json = json_tokener_parse_ex(tokener, text, (int)size);
    if (json_tokener_get_error(tokener) == json_tokener_continue) {
        json = json_tokener_parse_ex(tokener, "", 1); /* a bare number ends only with the text */
    }
    enum json_tokener_error state = json_tokener_get_error(tokener);
    json_tokener_free(tokener);
    if (state != json_tokener_success) {
        /* The text is valid JSON, so what is left is memory (json-c has no code for it). */
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE, "%s: cannot build the JSON tree: %s",
                       source, json_tokener_error_desc(state));
    }
    *out = json;
    return 0;
}

int fl_json_parse(fl_json **out, const char *text, size_t size, size_t size_max, int flags,
                  const char *source, fletch_error *error) {
    *out = NULL;
    if (size > size_max || size > INT_MAX) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: %zu bytes of JSON; at most %zu are accepted here", source, size,
                       size_max < INT_MAX ? size_max : (size_t)INT_MAX);
    }
    size_t valid = fl_utf8_valid_prefix(text, size);
    if (valid != size) {
        return fl_fail(error, FLETCH_EMODEL, valid,
                       "%s: byte %zu is not valid UTF-8; JSON files are UTF-8", source, valid);
    }
    fl_json_scan scan;
    int          status = fl_json_scan_text(&scan, text, size, source, error);
    if (status == 0) {
        status = build_tree(out, text, size, source, error);
    }
    if (status < 0 || (flags & FL_JSON_UNIQUE_KEYS) == 0 || count_members(*out) == scan.members) {
        return status;
    }
    fl_json_free(*out);
    *out = NULL;
    return fl_json_fail_duplicate(text, size, source, error);
}

int fl_json_read(fl_json **out, const char *path, size_t size_max, fletch_error *error) {
    fl_buf text = {0};
    *out        = NULL;
    int status  = fl_file_read(path, size_max, &text, error);
    if (status == 0) {
        status = fl_json_parse(out, text.data, text.size, size_max, 0, path, error);
    } else if (status == FLETCH_EINVAL) { /* too large, or a folder: the file is at fault */
        status = FLETCH_EMODEL;
        if (error != NULL) {
            error->code = status;
        }
    }
    fl_buf_free(&text);
    return status;
}

void fl_json_free(fl_json *json) {
    json_object_put(json);
}

/* ---- Typed getters --------------------------------------------------------------------------- */

const char *fl_json_kind(fl_json *json) {
    switch (json_object_get_type(json)) {
    case json_type_boolean: return "a boolean";
    case json_type_double:
    case json_type_int: return "a number";
    case json_type_object: return "an object";
    case json_type_array: return "an array";
    case json_type_string: return "a string";
    default: return "null";
    }
}

static void fail_kind(fl_json_reader *reader, const char *key, fl_json *value,
                      const char *expected) {
    reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                             "%s: \"%s\" is %s where %s is expected", reader->source, key,
                             fl_json_kind(value), expected);
}

/* The value of a key; NULL when absent, null, or after an error. */
static fl_json *lookup(fl_json_reader *reader, const char *key) {
    if (reader->status < 0 || reader->object == NULL) {
        return NULL;
    }
    if (!json_object_is_type(reader->object, json_type_object)) {
        reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: %s where an object with \"%s\" is expected", reader->source,
                                 fl_json_kind(reader->object), key);
        return NULL;
    }
    fl_json *value = NULL;
    json_object_object_get_ex(reader->object, key, &value);
    return value;
}

/* The same, with its type checked. */
static fl_json *lookup_kind(fl_json_reader *reader, const char *key, enum json_type kind,
                            const char *expected) {
    fl_json *value = lookup(reader, key);
    if (value != NULL && !json_object_is_type(value, kind)) {
        fail_kind(reader, key, value, expected);
        return NULL;
    }
    return value;
}

bool fl_json_has(const fl_json_reader *reader, const char *key) {
    fl_json *value = NULL;
    return reader->status == 0 && json_object_is_type(reader->object, json_type_object) &&
           json_object_object_get_ex(reader->object, key, &value) && value != NULL;
}

fl_json *fl_json_object(fl_json_reader *reader, const char *key) {
    return lookup_kind(reader, key, json_type_object, "an object");
}

fl_json *fl_json_array(fl_json_reader *reader, const char *key) {
    return lookup_kind(reader, key, json_type_array, "an array");
}

const char *fl_json_string(fl_json_reader *reader, const char *key, const char *fallback) {
    fl_json *value = lookup_kind(reader, key, json_type_string, "a string");
    if (value == NULL) {
        return fallback;
    }
    const char *text = json_object_get_string(value);
    if (strlen(text) != (size_t)json_object_get_string_len(value)) {
        reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: \"%s\" contains a NUL character", reader->source, key);
        return fallback;
    }
    return text;
}

int64_t fl_json_int(fl_json_reader *reader, const char *key, int64_t fallback, int64_t min,
                    int64_t max) {
    fl_json *value = lookup(reader, key);
    if (value == NULL) {
        return fallback;
    }
    /* Both saturate: 1e30 and 1000000000000000019884624838656 (which real files hold for "no
     * limit") read as INT64_MAX. */
    int64_t number = json_object_get_int64(value);
    if (json_object_is_type(value, json_type_double)) {
        double real = json_object_get_double(value);
        if (real != trunc(real)) {
            fail_kind(reader, key, value, "an integer");
            return fallback;
        }
        number = real >= 0x1p63 ? INT64_MAX : real < -0x1p63 ? INT64_MIN : (int64_t)real;
    } else if (!json_object_is_type(value, json_type_int)) {
        fail_kind(reader, key, value, "an integer");
        return fallback;
    }
    if (number < min || number > max) {
        reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: \"%s\" is %lld; it must be %lld to %lld", reader->source, key,
                                 (long long)number, (long long)min, (long long)max);
        return fallback;
    }
    return number;
}

double fl_json_double(fl_json_reader *reader, const char *key, double fallback) {
    fl_json *value = lookup(reader, key);
    if (value == NULL) {
        return fallback;
    }
    if (!json_object_is_type(value, json_type_double) &&
        !json_object_is_type(value, json_type_int)) {
        fail_kind(reader, key, value, "a number");
        return fallback;
    }
    double number = json_object_get_double(value);
    if (!isfinite(number)) {
        fail_kind(reader, key, value, "a number that a double can hold");
        return fallback;
    }
    return number;
}

bool fl_json_bool(fl_json_reader *reader, const char *key, bool fallback) {
    fl_json *value = lookup_kind(reader, key, json_type_boolean, "true or false");
    return value == NULL ? fallback : json_object_get_boolean(value) != 0;
}

/* ---- Writing --------------------------------------------------------------------------------- */

void fl_json_quote(fl_buf *out, const char *text, size_t size) {
    static const char digits[] = "0123456789abcdef";
    size_t            start    = 0; /* of the run that needs no escape */
    fl_buf_putc(out, '"');
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\') {
            continue;
        }
        fl_buf_append(out, text + start, i - start);
        start = i + 1;
        switch (c) {
        case '"': fl_buf_puts(out, "\\\""); break;
        case '\\': fl_buf_puts(out, "\\\\"); break;
        case '\n': fl_buf_puts(out, "\\n"); break;
        case '\r': fl_buf_puts(out, "\\r"); break;
        case '\t': fl_buf_puts(out, "\\t"); break;
        default: {
            char escape[6] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};
            fl_buf_append(out, escape, sizeof escape);
        }
        }
    }
    fl_buf_append(out, text + start, size - start);
    fl_buf_putc(out, '"');
}
