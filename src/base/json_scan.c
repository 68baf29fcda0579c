/* SPDX-License-Identifier: Apache-2.0 */
/* json_scan.c - one strict pass over a JSON text before a tree is built.
 *
 * Role    json.c runs it on every document; what passes is valid JSON of bounded depth and cost.
 * In/Out  valid UTF-8 in; out the number of object members and an estimate of the tree's bytes, or
 *         an error with the byte offset.
 * Method  a hand-written state machine with one byte of state per open level (what the level
 *         expects next), so nothing recurses and nothing is allocated. Stricter than RFC 8259 in
 *         two places: a lone surrogate escape is an error (it has no UTF-8 form), and so is \u0000
 *         in a key (json-c's keys end at the first NUL, two different keys would become one). The
 *         cost estimate counts what json-c 0.16 allocates: an empty object costs over 700 bytes,
 *         which is how 3 bytes of text ("{},") could take memory 250 times their size.
 * Memory  a few hundred bytes of stack. Threads: any.
 * Proof   tests/unit/test_base_json.c. */
#include "base/json_scan.h"

#include <json-c/json.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/number.h"

/* Bytes json-c takes for one value, rounded up (struct, heap header, first table). */
enum { COST_OBJECT = 832, COST_ARRAY = 400, COST_SCALAR = 112, COST_MEMBER = 96 };
/* The largest tokenizers in use (vocabulary 262144, 580000 merges) cost about 500 MB by this count.
 */
static const size_t TREE_BYTES_MAX = (size_t)1 << 30;

/* What the innermost open level expects. */
typedef enum {
    WANT_VALUE,        /* the top level, or after a comma in an array */
    WANT_VALUE_OR_END, /* after '[' */
    WANT_KEY,          /* after a comma in an object */
    WANT_KEY_OR_END,   /* after '{' */
    WANT_COMMA_OR_END  /* after a value */
} want;

typedef struct scanner {
    const char   *text;
    size_t        size;
    size_t        at;
    unsigned      depth; /* open levels */
    bool          in_object[FL_JSON_DEPTH_MAX];
    want          next;
    const char   *problem; /* NULL while all is well; `at` is then where it is */
    fl_json_scan *out;
} scanner;

static bool fail_at(scanner *s, size_t at, const char *problem) {
    s->at      = at;
    s->problem = problem;
    return false;
}

/* s->at is on a backslash; step behind its escape. */
static bool scan_escape(scanner *s, bool is_key) {
    size_t start = s->at;
    char   c     = start + 1 < s->size ? s->text[start + 1] : '\0';
    if (c != '\0' && strchr("\"\\/bfnrt", c) != NULL) {
        s->at += 2;
        return true;
    }
    int unit = c == 'u' ? fl_hex4(s->text, start + 2, s->size) : -1;
    if (unit < 0) {
        return fail_at(s, start, "not a JSON escape");
    }
    if (unit == 0 && is_key) {
        return fail_at(s, start, "a NUL character in a key");
    }
    s->at += 6;
    if (unit < 0xD800 || unit > 0xDFFF) {
        return true;
    }
    bool paired =
        unit < 0xDC00 && s->at + 1 < s->size && s->text[s->at] == '\\' && s->text[s->at + 1] == 'u';
    int low = paired ? fl_hex4(s->text, s->at + 2, s->size) : -1;
    if (low < 0xDC00 || low > 0xDFFF) {
        return fail_at(s, start, "half of a surrogate pair");
    }
    s->at += 6;
    return true;
}

/* s->at is on the opening quote; step behind the closing one. */
static bool scan_string(scanner *s, bool is_key) {
    size_t start = s->at++;
    while (s->at < s->size) {
        unsigned char c = (unsigned char)s->text[s->at];
        if (c == '"') {
            s->at++;
            s->out->tree_bytes += s->at - start;
            return true;
        }
        if (c < 0x20) {
            return fail_at(s, s->at, "a control character in a string (write it as \\u00XX)");
        }
        if (c != '\\') {
            s->at++;
        } else if (!scan_escape(s, is_key)) {
            return false;
        }
    }
    return fail_at(s, start, "a string without an end");
}

/* Step over digits; false when there is none. */
static bool scan_digits(scanner *s) {
    size_t start = s->at;
    while (s->at < s->size && s->text[s->at] >= '0' && s->text[s->at] <= '9') {
        s->at++;
    }
    return s->at > start;
}

static bool scan_number(scanner *s) {
    size_t start = s->at;
    s->at += s->text[s->at] == '-' ? 1 : 0;
    bool zero = s->at < s->size && s->text[s->at] == '0';
    if (zero) {
        s->at++; /* "0" stands alone: 01 is no number */
    } else if (!scan_digits(s)) {
        return fail_at(s, start, "not a JSON value");
    }
    if (s->at < s->size && s->text[s->at] == '.') {
        s->at++;
        if (!scan_digits(s)) {
            return fail_at(s, start, "a number with no digit behind its point");
        }
    }
    if (s->at < s->size && (s->text[s->at] | 0x20) == 'e') {
        s->at++;
        if (s->at < s->size && (s->text[s->at] == '+' || s->text[s->at] == '-')) {
            s->at++;
        }
        if (!scan_digits(s)) {
            return fail_at(s, start, "a number with an empty exponent");
        }
    }
    s->out->tree_bytes += s->at - start;
    return true;
}

static bool scan_literal(scanner *s, const char *word) {
    size_t length = strlen(word);
    if (s->size - s->at < length || memcmp(s->text + s->at, word, length) != 0) {
        return fail_at(s, s->at, "not a JSON value (NaN, Infinity and bare words are none)");
    }
    s->at += length;
    return true;
}

static bool open_level(scanner *s, bool object) {
    if (s->depth == FL_JSON_DEPTH_MAX) {
        return fail_at(s, s->at, "nested deeper than 64 levels");
    }
    s->in_object[s->depth++] = object;
    s->next                  = object ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
    s->out->tree_bytes += object ? COST_OBJECT : COST_ARRAY;
    s->at++;
    return true;
}

/* One value, or the opening of one, at s->at. */
static bool scan_value(scanner *s) {
    char c = s->text[s->at];
    if (c == '{' || c == '[') {
        return open_level(s, c == '{');
    }
    s->next = WANT_COMMA_OR_END;
    s->out->tree_bytes += COST_SCALAR;
    switch (c) {
    case '"': return scan_string(s, false);
    case 't': return scan_literal(s, "true");
    case 'f': return scan_literal(s, "false");
    case 'n': return scan_literal(s, "null");
    default: return c == '-' || (c >= '0' && c <= '9') ? scan_number(s) : scan_literal(s, "null");
    }
}

static void skip_space(scanner *s) {
    while (s->at < s->size && (s->text[s->at] == ' ' || s->text[s->at] == '\n' ||
                               s->text[s->at] == '\r' || s->text[s->at] == '\t')) {
        s->at++;
    }
}

/* A key and its colon at s->at. */
static bool scan_key(scanner *s) {
    if (s->text[s->at] != '"') {
        return fail_at(s, s->at, "expected a key in double quotes");
    }
    if (!scan_string(s, true)) {
        return false;
    }
    skip_space(s);
    if (s->at == s->size || s->text[s->at] != ':') {
        return fail_at(s, s->at, "expected ':' after a key");
    }
    s->at++;
    s->out->members++;
    s->out->tree_bytes += COST_MEMBER;
    s->next = WANT_VALUE;
    return true;
}

/* A comma or the end of the innermost level at s->at. */
static bool scan_after_value(scanner *s) {
    bool object = s->in_object[s->depth - 1];
    char c      = s->text[s->at];
    if (c == ',') {
        s->at++;
        s->next = object ? WANT_KEY : WANT_VALUE;
        return true;
    }
    if (c != (object ? '}' : ']')) {
        return fail_at(s, s->at, object ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    s->at++;
    s->depth--;
    s->next = WANT_COMMA_OR_END;
    return true;
}

/* One token at s->at, which is not a space. */
static bool scan_token(scanner *s) {
    bool at_end = s->text[s->at] == '}' || s->text[s->at] == ']';
    switch (s->next) {
    case WANT_VALUE: return scan_value(s);
    case WANT_VALUE_OR_END: return at_end ? scan_after_value(s) : scan_value(s);
    case WANT_KEY: return scan_key(s);
    case WANT_KEY_OR_END: return at_end ? scan_after_value(s) : scan_key(s);
    default: return scan_after_value(s);
    }
}

static int fail_scan(const scanner *s, const char *source, fletch_error *error) {
    return fl_fail(error, FLETCH_EMODEL, s->at, "%s: byte %zu: %s", source, s->at, s->problem);
}

int fl_json_scan_text(fl_json_scan *out, const char *text, size_t size, const char *source,
                      fletch_error *error) {
    scanner s = {.text = text, .size = size, .next = WANT_VALUE, .out = out};
    *out      = (fl_json_scan){0};
    for (;;) {
        skip_space(&s);
        bool done = s.depth == 0 && s.next == WANT_COMMA_OR_END;
        if (s.at == size && done) {
            return 0;
        }
        if (s.at == size) {
            s.problem = size == 0 ? "the text is empty" : "the text ends in the middle";
        } else if (done) {
            s.problem = "more text after the end of the JSON value";
        } else if (scan_token(&s) && out->tree_bytes > TREE_BYTES_MAX) {
            s.problem = "too many values: the tree would take more than 1 GiB of memory";
        }
        if (s.problem != NULL) {
            return fail_scan(&s, source, error);
        }
    }
}

/* Put a key into the set; false when it was there. */
static bool add_key(struct json_object *seen, const char *key, size_t size) {
    char *name  = fl_strndup(key, size);
    bool  isnew = name == NULL || !json_object_object_get_ex(seen, name, NULL);
    if (name != NULL && isnew) {
        json_object_object_add(seen, name, NULL);
    }
    fl_free(name);
    return isnew;
}

int fl_json_fail_duplicate(const char *text, size_t size, const char *source, fletch_error *error) {
    fl_json_scan        cost = {0};
    scanner             s    = {.text = text, .size = size, .next = WANT_VALUE, .out = &cost};
    struct json_object *seen[FL_JSON_DEPTH_MAX + 1] = {0}; /* keys as written, per open level */
    bool                found                       = false;
    size_t              key_size                    = 0;
    while (!found) {
        skip_space(&s);
        if (s.at == size || (s.depth == 0 && s.next == WANT_COMMA_OR_END)) {
            break;
        }
        size_t   at     = s.at;
        unsigned depth  = s.depth;
        bool     is_key = s.next == WANT_KEY || s.next == WANT_KEY_OR_END;
        if (!scan_token(&s)) {
            break;
        }
        if (s.depth > depth) {
            seen[s.depth] = json_object_new_object();
        } else if (s.depth < depth) {
            json_object_put(seen[depth]);
            seen[depth] = NULL;
        } else if (is_key && seen[depth] != NULL) {
            size_t end = at + 1; /* of the key: the quote that no backslash escapes */
            while (text[end] != '"') {
                end += text[end] == '\\' ? 2 : 1;
            }
            key_size = end + 1 - at; /* with quotes */
            found    = !add_key(seen[depth], text + at, key_size);
            s.at     = found ? at : s.at;
        }
    }
    for (size_t i = 0; i <= FL_JSON_DEPTH_MAX; i++) {
        json_object_put(seen[i]);
    }
    if (!found) { /* written differently ("a" and "\u0061"), or out of memory */
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: an object has the same key twice",
                       source);
    }
    return fl_fail(error, FLETCH_EMODEL, s.at, "%s: byte %zu: key %.*s is there twice", source,
                   s.at, (int)(key_size < 100 ? key_size : 100), text + s.at);
}
