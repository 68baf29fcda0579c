/* SPDX-License-Identifier: Apache-2.0 */
/* filter.c - a search's filter against the metadata of one item.
 *
 * Role    and Method: filter.h.
 * Memory  none. Threads: any.
 * Proof   tests/unit/test_server_filter.c. */
#include "store/filter.h"

#include <string.h>

#include "base/number.h"

enum { NUMBER_MAX = 64 };

static const char not_scalars[] = "expected an object of strings, numbers, true, false, null";

static bool same_bytes(fl_span a, fl_span b) {
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

/* Whole numbers are compared as such: a double holds them only up to 2^53. */
static bool same_number(fl_span a, fl_span b) {
    char    text[2][NUMBER_MAX];
    int64_t whole[2];
    double  value[2];
    if (same_bytes(a, b))
        return true;
    if (a.size >= NUMBER_MAX || b.size >= NUMBER_MAX)
        return false;
    memcpy(text[0], a.data, a.size);
    memcpy(text[1], b.data, b.size);
    text[0][a.size] = text[1][b.size] = '\0';
    if (fl_parse_i64(text[0], &whole[0]) && fl_parse_i64(text[1], &whole[1]))
        return whole[0] == whole[1];
    return fl_parse_f64(text[0], &value[0]) && fl_parse_f64(text[1], &value[1]) &&
           !(value[0] < value[1]) && !(value[0] > value[1]);
}

/* The next value as a filter compares it; false after a fault. */
static bool read_value(fl_json_in *in, fl_json_type *type, fl_span *value) {
    *type = fl_json_in_peek(in);
    return *type == FL_JSON_STRING ? fl_json_in_string(in, value) : fl_json_in_skip(in, value);
}

const char *fl_filter_read(fl_filter *filter, char *text, size_t size) {
    fl_json_in in;
    fl_span    key;
    filter->count = 0;
    fl_json_in_begin(&in, text, size);
    if (!fl_json_in_enter(&in, FL_JSON_OBJECT))
        return not_scalars;
    while (fl_json_in_key(&in, &key)) {
        size_t i = filter->count;
        if (i == FL_FILTER_MAX)
            return "at most 64 keys";
        filter->wanted[i].key = key;
        if (!read_value(&in, &filter->wanted[i].type, &filter->wanted[i].value) ||
            filter->wanted[i].type == FL_JSON_OBJECT || filter->wanted[i].type == FL_JSON_ARRAY)
            return not_scalars;
        filter->count++;
    }
    return in.failed ? not_scalars : NULL; /* cannot be: it was read once with the body */
}

/* Where there is no backslash every key and string lies as it is. */
bool fl_filter_may_pass(const fl_filter *filter, const char *metadata, size_t size) {
    bool may = true;
    if (memchr(metadata, '\\', size) != NULL)
        return true;
    for (size_t i = 0; may && i < filter->count; i++) {
        fl_span key = filter->wanted[i].key, value = filter->wanted[i].value;
        may = memmem(metadata, size, key.data, key.size) != NULL &&
              (filter->wanted[i].type != FL_JSON_STRING ||
               memmem(metadata, size, value.data, value.size) != NULL);
    }
    return may;
}

bool fl_filter_passes(const fl_filter *filter, char *metadata, size_t size) {
    uint64_t     all  = filter->count == FL_FILTER_MAX ? ~0ull : (1ull << filter->count) - 1;
    uint64_t     held = 0;
    fl_json_in   in;
    fl_json_type type;
    fl_span      key, value;
    fl_json_in_begin(&in, metadata, size);
    if (!fl_json_in_enter(&in, FL_JSON_OBJECT))
        return false;
    while (held != all && fl_json_in_key(&in, &key) && read_value(&in, &type, &value)) {
        for (size_t i = 0; i < filter->count; i++) {
            bool same = filter->wanted[i].type == type && same_bytes(filter->wanted[i].key, key) &&
                        (type == FL_JSON_NUMBER ? same_number(filter->wanted[i].value, value)
                                                : same_bytes(filter->wanted[i].value, value));
            held |= (uint64_t)same << i;
        }
    }
    return held == all;
}
