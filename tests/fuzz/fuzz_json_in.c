/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_json_in.c - any bytes as a request body, read in place and by a slow twin.
 *
 * The reader of the network (server/json_in.c: vectors, in-place un-escaping) and json-c behind base/json.c must
 * agree: the same verdict, and for what both take the same values. The twin keeps the last of two equal keys and
 * takes a few levels more and no NUL in a key; where that is the difference nothing is compared. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/json_in.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition) {
    if (!condition) {
        abort();
    }
}

static void compare(fl_json_in *in, fl_json *twin);

static void compare_object(fl_json_in *in, fl_json *twin) {
    fl_span key;
    size_t  count = 0;
    must(json_object_is_type(twin, json_type_object) && fl_json_in_enter(in, FL_JSON_OBJECT));
    for (; fl_json_in_key(in, &key); count++) {
        char    *name  = strndup(key.data, key.size);
        fl_json *value = NULL;
        must(json_object_object_get_ex(twin, name, &value));
        free(name);
        compare(in, value);
    }
    must(!in->failed && count == (size_t)json_object_object_length(twin));
}

static void compare_array(fl_json_in *in, fl_json *twin) {
    size_t count = 0;
    must(json_object_is_type(twin, json_type_array) && fl_json_in_enter(in, FL_JSON_ARRAY));
    for (; fl_json_in_item(in); count++) {
        must(count < json_object_array_length(twin));
        compare(in, json_object_array_get_idx(twin, count));
    }
    must(!in->failed && count == json_object_array_length(twin));
}

static void compare_number(fl_json_in *in, fl_json *twin) {
    fl_json_in ahead = *in;
    int64_t    value;
    if (fl_json_in_integer(&ahead, &value)) {
        *in = ahead;
        must(json_object_is_type(twin, json_type_int)
                 ? json_object_get_int64(twin) == value
                 : json_object_get_double(twin) == (double)value);
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
        must(fl_json_in_bool(in, &flag) && json_object_is_type(twin, json_type_boolean));
        must(flag == (json_object_get_boolean(twin) != 0));
        return;
    case FL_JSON_STRING:
        must(fl_json_in_string(in, &span) && json_object_is_type(twin, json_type_string));
        must(span.size == (size_t)json_object_get_string_len(twin));
        must(memcmp(span.data, json_object_get_string(twin), span.size) == 0);
        return;
    case FL_JSON_NONE: must(false);
    }
}

/* A copy of exactly the right size: reading or writing past it is seen. */
static char *copy(const uint8_t *data, size_t size) {
    char *body = malloc(size > 0 ? size : 1);
    if (size > 0) {
        memcpy(body, data, size);
    }
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
    bool depth = !good && strstr(in.message, "recursion limit") != NULL;
    bool nul   = status < 0 && strstr(error.message, "NUL character in a key") != NULL;
    must(depth || nul || good == (status == 0));
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
