/* SPDX-License-Identifier: Apache-2.0 */
/* json_in.c - read a JSON text value by value, in place.
 *
 * Role    the only reader of JSON: request bodies, records of input, safetensors headers, and the trees of
 *         json.c (configs, tokenizers, answers of the hub).
 * Method  A string is cut into runs without quote, backslash and control characters, found 16 bytes
 *         at a time (gcc's vectors: SSE2, NEON). Without an escape the string is where it was sent;
 *         with escapes the runs are moved down over them. What is written never passes what is read,
 *         so the offsets of the text stay true and a fault can be told by line and column: a line
 *         break stands only between values, where skip_space counts it.
 *         Only integers have a value here, no rounding, no infinity, no surprise; whoever wants a fraction
 *         takes the number's text.
 * Memory  none. Threads: any; a reader belongs to one.
 * Proof   tests/unit/test_server_json.c, tests/unit/test_base_json.c (every code point as an escape), and
 *         tests/fuzz/fuzz_json_in.c. */
#include "base/json_in.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"

typedef unsigned char bytes16 __attribute__((vector_size(16)));

static bool fail_at(fl_json_in *in, size_t at, const char *problem) {
    if (!in->failed) {
        in->failed = true;
        in->at     = at;
        in->column = at - in->line_start + 1;
        (void)snprintf(in->message, sizeof in->message, "%s", problem);
    }
    return false;
}

bool fl_json_in_fail(fl_json_in *in, bool mistyped, const char *format, ...) {
    if (in->failed)
        return false;
    in->failed   = true;
    in->mistyped = mistyped;
    in->column   = in->at - in->line_start + 1;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(in->message, sizeof in->message, format, arguments);
    va_end(arguments);
    fl_utf8_make_printable(in->message);
    return false;
}

void fl_json_in_again(fl_json_in *in, char *text, size_t size) {
    memset(in, 0, sizeof *in);
    in->text      = text;
    in->size      = size;
    in->line      = 1;
    in->depth_max = FL_JSON_DEPTH_MAX;
}

void fl_json_in_begin(fl_json_in *in, char *text, size_t size) {
    fl_json_in_again(in, text, size);
    size_t valid = fl_utf8_valid_prefix(text, size);
    if (valid < size) {
        for (in->at = 0; in->at < valid; in->at++) {
            if (text[in->at] == '\n') {
                in->line++;
                in->line_start = in->at + 1;
            }
        }
        (void)fl_json_in_fail(in, false, "byte %zu is not valid UTF-8", valid);
    }
}

static void skip_space(fl_json_in *in) {
    assert(in->at <= in->size);
    size_t at = in->at;
    for (; at < in->size; at++) {
        char c = in->text[at];
        if (c == '\n') {
            in->line++;
            in->line_start = at + 1;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            break;
        }
    }
    in->at = at;
}

static bool fail_end(fl_json_in *in) {
    return fail_at(in, in->size, "EOF while parsing a value");
}

/* ---- Structure ------------------------------------------------------------------------------- */

const char *fl_json_type_text(fl_json_type type) {
    assert(type <= FL_JSON_NULL);
    static const char *const text[] = {"nothing",  "an object", "an array", "a string",
                                       "a number", "a boolean", "null"};
    return text[type];
}

fl_json_type fl_json_in_peek(fl_json_in *in) {
    if (in->failed)
        return FL_JSON_NONE;
    skip_space(in);
    if (in->at == in->size) {
        (void)fail_end(in);
        return FL_JSON_NONE;
    }
    char c = in->text[in->at];
    switch (c) {
    case '{': return FL_JSON_OBJECT;
    case '[': return FL_JSON_ARRAY;
    case '"': return FL_JSON_STRING;
    case 't':
    case 'f': return FL_JSON_BOOL;
    case 'n': return FL_JSON_NULL;
    default: break;
    }
    if (c == '-' || (c >= '0' && c <= '9'))
        return FL_JSON_NUMBER;
    (void)fail_at(in, in->at, "expected value");
    return FL_JSON_NONE;
}

/* The next value must be of this type. */
static bool expect(fl_json_in *in, fl_json_type type) {
    fl_json_type found = fl_json_in_peek(in);
    if (found == type)
        return true;
    return fl_json_in_fail(in, true, "invalid type: %s, expected %s", fl_json_type_text(found),
                           fl_json_type_text(type));
}

bool fl_json_in_enter(fl_json_in *in, fl_json_type type) {
    assert(type == FL_JSON_OBJECT || type == FL_JSON_ARRAY);
    if (!expect(in, type))
        return false;
    if (in->depth == in->depth_max)
        return fail_at(in, in->at, "recursion limit exceeded");
    uint64_t bit = 1ull << in->depth++;
    in->objects  = type == FL_JSON_OBJECT ? in->objects | bit : in->objects & ~bit;
    in->fresh    = true;
    in->at++;
    return true;
}

/* Step to the next member of the innermost level; false at its end. */
static bool next_member(fl_json_in *in, char closing) {
    assert(in->failed || in->depth > 0);
    if (in->failed)
        return false;
    skip_space(in);
    if (in->at == in->size) {
        return fail_at(in, in->at,
                       closing == '}' ? "EOF while parsing an object" : "EOF while parsing a list");
    }
    char c     = in->text[in->at];
    bool first = in->fresh;
    in->fresh  = false;
    if (c == closing) {
        in->at++;
        in->depth--;
        return false;
    }
    if (first)
        return true;
    if (c != ',')
        return fail_at(in, in->at, closing == '}' ? "expected `,` or `}`" : "expected `,` or `]`");
    in->at++;
    skip_space(in);
    if (in->at < in->size && in->text[in->at] == closing)
        return fail_at(in, in->at, "trailing comma");
    return in->at < in->size || fail_end(in);
}

bool fl_json_in_item(fl_json_in *in) {
    return next_member(in, ']');
}

/* ---- Strings --------------------------------------------------------------------------------- */

static bool is_plain(unsigned char c) {
    return c != '"' && c != '\\' && c >= 0x20;
}

/* Offset of the first byte at or behind `at` that is a quote, a backslash or a control character. */
static size_t run_end(const char *text, size_t at, size_t size) {
    assert(at <= size);
    while (size - at >= sizeof(bytes16)) {
        bytes16 v;
        memcpy(&v, text + at, sizeof v);
        bytes16  hit = (bytes16)((v == '"') | (v == '\\') | (v < 0x20));
        uint64_t word[2];
        memcpy(word, &hit, sizeof word);
        for (size_t half = 0; half < 2; half++)
            if (word[half] != 0) /* its first byte is the lowest one */
                return at + 8 * half + (size_t)__builtin_ctzll(word[half]) / 8;
        at += sizeof v;
    }
    while (at < size && is_plain((unsigned char)text[at]))
        at++;
    return at;
}

/* The \u escape (or pair of them) at `at`; *end gets the offset behind it. */
static bool read_unicode(fl_json_in *in, size_t at, uint32_t *code_point, size_t *end) {
    int unit = fl_hex4(in->text, at + 2, in->size);
    *end     = at + 6;
    if (unit < 0)
        return fail_at(in, at, "invalid escape");
    *code_point = (uint32_t)unit;
    if (unit < 0xD800 || unit > 0xDFFF)
        return true;
    bool paired =
        unit < 0xDC00 && *end + 1 < in->size && in->text[*end] == '\\' && in->text[*end + 1] == 'u';
    int low = paired ? fl_hex4(in->text, *end + 2, in->size) : -1;
    if (low < 0xDC00 || low > 0xDFFF)
        return fail_at(in, at, "lone surrogate in hex escape");
    *end += 6;
    *code_point = 0x10000 + (((uint32_t)unit - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
    return true;
}

/* The character that the letter behind a backslash stands for, or 0. */
static char plain_escape(char letter) {
    switch (letter) {
    case '"':
    case '\\':
    case '/': return letter;
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return '\0';
    }
}

/* Decode the escape at `at` into out[4]; returns the bytes written, 0 after a fault. */
static unsigned read_escape(fl_json_in *in, size_t at, char out[4], size_t *end) {
    assert(in->text[at] == '\\');
    char letter = at + 1 < in->size ? in->text[at + 1] : '\0';
    out[0]      = plain_escape(letter);
    *end        = at + 2;
    if (out[0] != '\0')
        return 1;
    if (letter != 'u') {
        (void)fail_at(in, at, "invalid escape");
        return 0;
    }
    uint32_t code_point = 0;
    if (!read_unicode(in, at, &code_point, end))
        return 0;
    return fl_utf8_encode(code_point, out);
}

static bool fail_string(fl_json_in *in, size_t at) {
    return fail_at(in, at,
                   at == in->size
                       ? "EOF while parsing a string"
                       : "control character (\\u0000-\\u001F) found while parsing a string");
}

/* The string whose opening quote is at in->at. With `keep` it is only checked and *out is as sent. */
static bool read_string(fl_json_in *in, bool keep, fl_span *out) {
    assert(in->at < in->size && in->text[in->at] == '"');
    size_t start = in->at + 1;
    size_t to    = start; /* where the next run goes */
    size_t from  = start;
    for (;;) {
        size_t stop = run_end(in->text, from, in->size);
        if (!keep && to != from)
            memmove(in->text + to, in->text + from, stop - from);
        to += stop - from;
        if (stop == in->size || (unsigned char)in->text[stop] < 0x20)
            return fail_string(in, stop);
        if (in->text[stop] == '"') {
            *out   = (fl_span){in->text + start, (keep ? stop : to) - start};
            in->at = stop + 1;
            return true;
        }
        char     decoded[4];
        unsigned length = read_escape(in, stop, decoded, &from);
        if (length == 0)
            return false;
        if (!keep)
            memcpy(in->text + to, decoded, length);
        to += length;
    }
}

bool fl_json_in_string(fl_json_in *in, fl_span *out) {
    return expect(in, FL_JSON_STRING) && read_string(in, false, out);
}

static bool read_key(fl_json_in *in, bool keep, fl_span *key) {
    if (!next_member(in, '}'))
        return false;
    if (in->text[in->at] != '"')
        return fail_at(in, in->at, "key must be a string");
    if (!read_string(in, keep, key))
        return false;
    skip_space(in);
    if (in->at == in->size || in->text[in->at] != ':')
        return fail_at(in, in->at, "expected `:`");
    in->at++;
    return true;
}

bool fl_json_in_key(fl_json_in *in, fl_span *key) {
    return read_key(in, false, key);
}

/* ---- Numbers and words ----------------------------------------------------------------------- */

/* Offset behind the digits at `at`. */
static size_t digits_end(const fl_json_in *in, size_t at) {
    while (at < in->size && in->text[at] >= '0' && in->text[at] <= '9')
        at++;
    return at;
}

/* Offset after the number at in->at, or 0. */
static size_t number_end(const fl_json_in *in) {
    assert(in->at < in->size);
    size_t at    = in->at + (in->text[in->at] == '-');
    size_t start = at;
    at           = at < in->size && in->text[at] == '0' ? at + 1 : digits_end(in, at);
    if (at == start)
        return 0;
    if (at < in->size && in->text[at] == '.') {
        start = ++at;
        at    = digits_end(in, at);
        if (at == start)
            return 0;
    }
    if (at < in->size && (in->text[at] | 0x20) == 'e') {
        at++;
        at += at < in->size && (in->text[at] == '+' || in->text[at] == '-');
        start = at;
        at    = digits_end(in, at);
        if (at == start)
            return 0;
    }
    return at;
}

/* The value of a number written with a point or an exponent, when it is whole: 12.000 and 1.2e1 are the
 * integer 12 to JSON Schema, and so to every client that goes by the document. */
static bool whole_value(const char *text, size_t size, int64_t *out) {
    enum { SPELLED_MAX = 63 };
    const double exact_most = 9007199254740992.0; /* 2^53 */
    char         spelled[SPELLED_MAX + 1];
    double       value;
    if (size > SPELLED_MAX)
        return false;
    memcpy(spelled, text, size);
    spelled[size] = '\0';
    if (!fl_parse_f64(spelled, &value) || !(value >= -exact_most && value <= exact_most))
        return false;
    *out = (int64_t)value;
    return (double)*out == value;
}

/* The number at in->at, stepped over. */
static bool read_number(fl_json_in *in, fl_span *out) {
    size_t end = number_end(in);
    if (end == 0)
        return fail_at(in, in->at, "invalid number");
    *out   = (fl_span){in->text + in->at, end - in->at};
    in->at = end;
    return true;
}

bool fl_json_in_number(fl_json_in *in, fl_span *out) {
    return expect(in, FL_JSON_NUMBER) && read_number(in, out);
}

bool fl_json_in_integer(fl_json_in *in, int64_t *out) {
    enum { DIGITS_MAX = 18 }; /* always fit int64_t */
    fl_span number;
    if (!fl_json_in_number(in, &number))
        return false;
    const char *text   = number.data;
    size_t      size   = number.size;
    size_t      start  = in->at - size;
    size_t      sign   = text[0] == '-';
    size_t      digits = digits_end(in, start + sign) - start;
    if (digits == size && digits - sign <= DIGITS_MAX) {
        int64_t value = 0;
        for (size_t i = sign; i < digits; i++)
            value = value * 10 + (text[i] - '0');
        *out = sign != 0 ? -value : value;
    } else if (!whole_value(text, size, out)) {
        in->at = start;
        return fl_json_in_fail(in, true, "invalid value: number `%.*s`, expected an integer",
                               (int)(size < 40 ? size : 40), text);
    }
    return true;
}

static bool read_word(fl_json_in *in, const char *word) {
    size_t length = strlen(word);
    if (in->size - in->at < length || memcmp(in->text + in->at, word, length) != 0)
        return fail_at(in, in->at, "expected a value (null, true or false in lower case)");
    in->at += length;
    return true;
}

bool fl_json_in_bool(fl_json_in *in, bool *out) {
    if (!expect(in, FL_JSON_BOOL))
        return false;
    *out = in->text[in->at] == 't';
    return read_word(in, *out ? "true" : "false");
}

bool fl_json_in_null(fl_json_in *in) {
    return expect(in, FL_JSON_NULL) && read_word(in, "null");
}

/* ---- Skipping -------------------------------------------------------------------------------- */

/* One value that opens no level. */
static bool skip_scalar(fl_json_in *in, fl_json_type type) {
    fl_span span;
    switch (type) {
    case FL_JSON_STRING: return read_string(in, true, &span);
    case FL_JSON_BOOL: return read_word(in, in->text[in->at] == 't' ? "true" : "false");
    case FL_JSON_NULL: return read_word(in, "null");
    case FL_JSON_NUMBER: return read_number(in, &span);
    default: return false;
    }
}

bool fl_json_in_skip(fl_json_in *in, fl_span *raw) {
    unsigned outside = in->depth;
    fl_span  key;
    skip_space(in);
    size_t start = in->at;
    do {
        /* Here a value begins; then levels that are over are left. */
        fl_json_type type = fl_json_in_peek(in);
        if (type == FL_JSON_OBJECT || type == FL_JSON_ARRAY)
            (void)fl_json_in_enter(in, type);
        else
            (void)skip_scalar(in, type);
        while (!in->failed && in->depth > outside &&
               !((in->objects >> (in->depth - 1) & 1) != 0 ? read_key(in, true, &key)
                                                           : fl_json_in_item(in))) {
        }
    } while (!in->failed && in->depth > outside);
    if (!in->failed && raw != NULL)
        *raw = (fl_span){in->text + start, in->at - start};
    return !in->failed;
}

bool fl_json_in_end(fl_json_in *in) {
    if (in->failed)
        return false;
    skip_space(in);
    return in->at == in->size || fail_at(in, in->at, "trailing characters");
}
