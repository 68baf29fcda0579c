/* SPDX-License-Identifier: Apache-2.0 */
/* json_tree.c - trees of JSON for machines that have no json-c; json-c/json.h beside this says what for.
 *
 * In/Out  text that base/json_scan.c found valid -> a tree; depth is bounded by that check.
 * Memory  one block a value, an array of children that doubles; json_object_put frees all below.
 * Proof   the tests of the tokenizer and of model folders, run with FLETCH_MINIMAL=ON by
 *         bench/gpu/run.sh. */
#include "json-c/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

typedef struct json_object node;

struct json_object {
    enum json_type type;
    size_t         count; /* bytes of a string, children of an object or array */
    size_t         room;  /* children that fit */
    char          *text;  /* owned: a string's bytes, NUL behind them */
    char         **keys;  /* owned [room], each owned: of an object */
    node         **items; /* owned [room] */
    int64_t        whole;
    double         real;
};

struct json_tokener {
    const char             *at, *end;
    enum json_tokener_error error;
};

/* ---- Building --------------------------------------------------------------------------------- */

static node *new_node(enum json_type type) {
    node *made = fl_alloc_zero(1, sizeof *made);
    if (made)
        made->type = type;
    return made;
}

static bool grow(node *parent) {
    if (parent->count < parent->room)
        return true;
    size_t room  = parent->room ? 2 * parent->room : 8;
    char **keys  = fl_alloc_zero(room, sizeof *keys);
    node **items = fl_alloc_zero(room, sizeof *items);
    if (!keys || !items) {
        fl_free(keys);
        fl_free(items);
        return false;
    }
    if (parent->count) {
        memcpy(keys, parent->keys, parent->count * sizeof *keys);
        memcpy(items, parent->items, parent->count * sizeof *items);
    }
    fl_free(parent->keys);
    fl_free(parent->items);
    parent->keys  = keys;
    parent->items = items;
    parent->room  = room;
    return true;
}

/* Takes key and value over, when it fails too. */
static bool append(node *parent, char *key, node *value) {
    if (!grow(parent)) {
        fl_free(key);
        json_object_put(value);
        return false;
    }
    parent->keys[parent->count]    = key;
    parent->items[parent->count++] = value;
    return true;
}

/* ---- Parsing ---------------------------------------------------------------------------------- */

static bool parse(struct json_tokener *t, node **out);

static void skip_space(struct json_tokener *t) {
    while (t->at < t->end && strchr(" \t\r\n", *t->at) != NULL && *t->at != '\0')
        t->at++;
}

static unsigned hex4(const char *at) {
    unsigned value = 0;
    for (int i = 0; i < 4; i++) {
        unsigned char c = (unsigned char)at[i];
        value = value << 4 | (c <= '9' ? c - (unsigned)'0' : (c | 32U) - (unsigned)'a' + 10U);
    }
    return value;
}

static char *put_utf8(char *out, unsigned code) {
    if (code < 0x80) {
        *out++ = (char)code;
        return out;
    }
    if (code < 0x800) {
        *out++ = (char)(0xC0 | code >> 6);
    } else if (code < 0x10000) {
        *out++ = (char)(0xE0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 63));
    } else {
        *out++ = (char)(0xF0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 63));
        *out++ = (char)(0x80 | (code >> 6 & 63));
    }
    *out++ = (char)(0x80 | (code & 63));
    return out;
}

/* Behind a backslash: one character of the text -> out. Surrogates come in pairs, as was checked. */
static char *unescape(struct json_tokener *t, char *out) {
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    const char        c     = *t->at++;
    const char       *found = strchr(from, c);
    if (c != 'u') {
        *out++ = found ? to[found - from] : c;
        return out;
    }
    unsigned code = hex4(t->at);
    t->at += 4;
    if (code >= 0xD800 && code < 0xDC00 && t->end - t->at >= 6) {
        code = 0x10000 + ((code - 0xD800) << 10) + (hex4(t->at + 2) - 0xDC00);
        t->at += 6;
    }
    return put_utf8(out, code);
}

/* From the opening quote to behind the closing one. An escape is never shorter than what it says. */
static char *parse_text(struct json_tokener *t, size_t *size) {
    const char *start = ++t->at;
    while (t->at < t->end && *t->at != '"')
        t->at += *t->at == '\\' ? 2 : 1;
    char *text = fl_alloc((size_t)(t->at - start) + 1), *out = text;
    if (!text)
        return NULL;
    const char *close = t->at;
    for (t->at = start; t->at < close;) {
        if (*t->at == '\\') {
            t->at++;
            out = unescape(t, out);
        } else {
            *out++ = *t->at++;
        }
    }
    t->at++;
    *out  = '\0';
    *size = (size_t)(out - text);
    return text;
}

static bool parse_string(struct json_tokener *t, node **out) {
    if (!(*out = new_node(json_type_string)))
        return false;
    (*out)->text = parse_text(t, &(*out)->count);
    return (*out)->text != NULL;
}

/* {…} or […]. */
static bool parse_many(struct json_tokener *t, node **out, bool object) {
    if (!(*out = new_node(object ? json_type_object : json_type_array)))
        return false;
    const char close = object ? '}' : ']';
    t->at++;
    for (skip_space(t); t->at < t->end && *t->at != close; skip_space(t)) {
        char  *key = NULL;
        node  *value;
        size_t size;
        if (object && !(key = parse_text(t, &size)))
            return false;
        skip_space(t);
        t->at += object; /* the colon */
        if (!parse(t, &value)) {
            fl_free(key);
            json_object_put(value);
            return false;
        }
        if (!append(*out, key, value))
            return false;
        skip_space(t);
        t->at += t->at < t->end && *t->at == ',';
    }
    t->at++;
    return true;
}

static bool parse_number(struct json_tokener *t, node **out) {
    size_t size = 0, left = (size_t)(t->end - t->at);
    bool   whole = true;
    char   digits[64];
    while (size < left && strchr("+-.0123456789eE", t->at[size]) != NULL && t->at[size] != '\0')
        whole = strchr(".eE", t->at[size++]) == NULL && whole;
    size_t kept = size < sizeof digits ? size : sizeof digits - 1;
    memcpy(digits, t->at, kept);
    digits[kept] = '\0';
    t->at += size;
    if (!(*out = new_node(whole ? json_type_int : json_type_double)))
        return false;
    (*out)->real  = strtod(digits, NULL);
    (*out)->whole = whole ? strtoll(digits, NULL, 10) : 0;
    return true;
}

static bool parse_word(struct json_tokener *t, node **out) {
    const char word = *t->at;
    t->at += word == 'f' ? 5 : 4;
    if (word == 'n')
        return true; /* null is no node */
    if (!(*out = new_node(json_type_boolean)))
        return false;
    (*out)->whole = word == 't';
    return true;
}

/* One value; false when out of memory, and *out is what there is of it. */
static bool parse(struct json_tokener *t, node **out) {
    *out = NULL;
    skip_space(t);
    if (t->at >= t->end)
        return true;
    switch (*t->at) {
    case '{': return parse_many(t, out, true);
    case '[': return parse_many(t, out, false);
    case '"': return parse_string(t, out);
    case 't':
    case 'f':
    case 'n': return parse_word(t, out);
    default: return parse_number(t, out);
    }
}

struct json_tokener *json_tokener_new_ex(int depth) {
    (void)depth; /* bounded by json_scan.c */
    return fl_alloc_zero(1, sizeof(struct json_tokener));
}

struct json_object *json_tokener_parse_ex(struct json_tokener *tokener, const char *text,
                                          int size) {
    node *tree;
    tokener->at  = text;
    tokener->end = text + size;
    if (parse(tokener, &tree)) {
        tokener->error = json_tokener_success;
        return tree;
    }
    tokener->error = json_tokener_error_memory;
    json_object_put(tree);
    return NULL;
}

enum json_tokener_error json_tokener_get_error(const struct json_tokener *tokener) {
    return tokener->error;
}

const char *json_tokener_error_desc(enum json_tokener_error error) {
    return error == json_tokener_success ? "success" : "out of memory";
}

void json_tokener_free(struct json_tokener *tokener) {
    fl_free(tokener);
}

/* ---- Reading ---------------------------------------------------------------------------------- */

enum json_type json_object_get_type(const struct json_object *json) {
    return json ? json->type : json_type_null;
}

bool json_object_is_type(const struct json_object *json, enum json_type type) {
    return json_object_get_type(json) == type;
}

const char *json_object_get_string(const struct json_object *json) {
    return json ? json->text : NULL;
}

int json_object_get_string_len(const struct json_object *json) {
    return json && json->type == json_type_string ? (int)json->count : 0;
}

bool json_object_get_boolean(const struct json_object *json) {
    return json && json->whole != 0;
}

int64_t json_object_get_int64(const struct json_object *json) {
    if (!json || json->type != json_type_double)
        return json ? json->whole : 0;
    if (json->real >= 0x1p63)
        return INT64_MAX;
    return json->real < -0x1p63 ? INT64_MIN : (int64_t)json->real;
}

int32_t json_object_get_int(const struct json_object *json) {
    int64_t value = json_object_get_int64(json);
    return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
}

uint64_t json_object_get_uint64(const struct json_object *json) {
    int64_t value = json_object_get_int64(json);
    return value < 0 ? 0 : (uint64_t)value;
}

double json_object_get_double(const struct json_object *json) {
    return json ? json->real : 0;
}

size_t json_object_array_length(const struct json_object *json) {
    return json && json->type == json_type_array ? json->count : 0;
}

struct json_object *json_object_array_get_idx(const struct json_object *json, size_t index) {
    return index < json_object_array_length(json) ? json->items[index] : NULL;
}

struct json_object *json_object_new_object(void) {
    return new_node(json_type_object);
}

int json_object_object_add(struct json_object *json, const char *key, struct json_object *value) {
    size_t size = strlen(key) + 1;
    char  *copy = fl_alloc(size);
    if (!copy)
        return -1;
    memcpy(copy, key, size);
    return append(json, copy, value) ? 0 : -1;
}

int json_object_object_length(const struct json_object *json) {
    return json && json->type == json_type_object ? (int)json->count : 0;
}

bool json_object_object_get_ex(const struct json_object *json, const char *key,
                               struct json_object **value) {
    for (size_t i = (size_t)json_object_object_length(json); i-- > 0;) {
        if (strcmp(json->keys[i], key) == 0) {
            if (value)
                *value = json->items[i];
            return true;
        }
    }
    if (value)
        *value = NULL;
    return false;
}

struct json_object *json_object_object_get(const struct json_object *json, const char *key) {
    struct json_object *value;
    json_object_object_get_ex(json, key, &value);
    return value;
}

bool json_object_member(const struct json_object *json, size_t index, const char **key,
                        struct json_object **value) {
    if (index >= (size_t)json_object_object_length(json))
        return false;
    *key   = json->keys[index];
    *value = json->items[index];
    return true;
}

int json_object_put(struct json_object *json) {
    if (!json)
        return 0;
    bool parent = json->type == json_type_object || json->type == json_type_array;
    for (size_t i = 0; parent && i < json->count; i++) {
        fl_free(json->keys[i]);
        json_object_put(json->items[i]);
    }
    fl_free(json->keys);
    fl_free(json->items);
    fl_free(json->text);
    fl_free(json);
    return 1;
}
