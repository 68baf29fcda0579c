/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_json_in.c - any bytes as JSON, read in place and as a tree.
 *
 * base/json_in.c (vectors, in-place un-escaping) and the tree that base/json.c builds of it must agree: the same
 * verdict, and for what both take the same values in the same order, each key found under its name. Only the tree
 * takes no NUL in a key. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_in.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition) {
    if (!condition)
        abort();
}

static void compare(fl_json_in *in, fl_json *twin);

static void compare_object(fl_json_in *in, fl_json *twin) {
    fl_span key;
    size_t  count = 0;
    must(fl_json_is(twin, FL_JSON_OBJECT) && fl_json_in_enter(in, FL_JSON_OBJECT));
    for (; fl_json_in_key(in, &key); count++) {
        char    *name  = calloc(key.size + 1, 1); /* strndup looks for an end in strict checks */
        fl_json *value = NULL;
        memcpy(name, key.data, key.size);
        must(fl_json_member(twin, count, &value) != NULL && fl_json_get(twin, name) == value);
        free(name);
        compare(in, value);
    }
    must(!in->failed && count == fl_json_count(twin));
}

static void compare_array(fl_json_in *in, fl_json *twin) {
    size_t count = 0;
    must(fl_json_is(twin, FL_JSON_ARRAY) && fl_json_in_enter(in, FL_JSON_ARRAY));
    for (; fl_json_in_item(in); count++) {
        must(count < fl_json_count(twin));
        compare(in, fl_json_item(twin, count));
    }
    must(!in->failed && count == fl_json_count(twin));
}

static void compare_number(fl_json_in *in, fl_json *twin) {
    fl_json_in ahead = *in;
    int64_t    value;
    if (fl_json_in_integer(&ahead, &value)) {
        *in = ahead;
        must(fl_json_is_int(twin) ? fl_json_int64(twin) == value
                                  : fl_json_f64(twin) == (double)value);
    } else {
        must(fl_json_in_skip(in, NULL));
    }
}

/* The next value of the reader is the twin's. */
static void compare(fl_json_in *in, fl_json *twin) {
    fl_span span;
    bool    flag;
    switch (fl_json_in_peek(in)) {
    case FL_JSON_OBJECT: compare_object(in, twin); return;
    case FL_JSON_ARRAY: compare_array(in, twin); return;
    case FL_JSON_NUMBER: compare_number(in, twin); return;
    case FL_JSON_NULL: must(twin == NULL && fl_json_in_null(in)); return;
    case FL_JSON_BOOL:
        must(fl_json_in_bool(in, &flag) && fl_json_is(twin, FL_JSON_BOOL));
        must(flag == (fl_json_true(twin) != 0));
        return;
    case FL_JSON_STRING:
        must(fl_json_in_string(in, &span) && fl_json_is(twin, FL_JSON_STRING));
        must(span.size == fl_json_text_size(twin));
        must(memcmp(span.data, fl_json_text(twin), span.size) == 0);
        return;
    case FL_JSON_NONE: must(false);
    }
}

/* A copy of exactly the right size: reading or writing past it is seen. */
static char *copy(const uint8_t *data, size_t size) {
    char *body = malloc(size > 0 ? size : 1);
    if (size > 0)
        memcpy(body, data, size);
    return body;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_json     *twin   = NULL;
    fletch_error error  = {0};
    char        *body   = copy(data, size);
    int          status = fl_json_parse(&twin, body, size, size + 1, 0, "twin", &error);
    fl_json_in   in;
    fl_json_in_begin(&in, body, size);
    bool good = fl_json_in_skip(&in, NULL) && fl_json_in_end(&in);
    must(memcmp(body, data, size) == 0); /* skipping changes nothing */
    must(good || (in.message[0] != '\0' && in.line >= 1 && in.column >= 1));
    bool nul = status < 0 && strstr(error.message, "NUL character in a key") != NULL;
    must(nul || good == (status == 0));
    fl_json_free(twin);
    twin = NULL;
    if (good &&
        fl_json_parse(&twin, body, size, size + 1, FL_JSON_UNIQUE_KEYS, "twin", &error) == 0) {
        fl_json_in_begin(&in, body, size);
        compare(&in, twin);
        must(fl_json_in_end(&in));
    }
    fl_json_free(twin);
    free(body);
    return 0;
}
