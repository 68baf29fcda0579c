/* SPDX-License-Identifier: Apache-2.0 */
/* toml.c - a TOML file, key by key.
 *
 * Role    config_file.c visits configuration files through here.
 * In/Out  UTF-8 text, checked once, so that everything after may trust it -> calls of the visitor.
 * Method  One pass, one byte of look-ahead, no tree. `path` holds the table of the present section and
 *         grows by the key under way; `values` holds the texts of its value. Arrays and inline tables
 *         recurse, at most 64 deep. TOML's law of who may define a table is not kept: what matters
 *         here is that no option is set twice, and that is config_file.c's to see.
 * Memory  Two buffers. Threads none shared. Proof: tests/unit/test_toml.c, tests/fuzz/fuzz_toml.c. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/utf8.h"
#include "config/toml.h"

typedef struct toml_parser {
    const char    *text;
    size_t         size, at;
    uint32_t       line;
    size_t         line_start;
    size_t         column_at; /* column is that of this offset in this line */
    uint32_t       column;
    const char    *source;
    fletch_error  *error;
    fl_toml_visit *visit;
    void          *user;
    fl_buf         path, values;
    size_t         count;   /* texts in values */
    unsigned       depth;   /* arrays and inline tables around here */
    bool           mute;    /* inside an array: nothing is visited */
    bool           foreign; /* dates and the like pass */
} toml_parser;

static int value(toml_parser *parser, fl_toml_item *item);
static int pair(toml_parser *parser);

/* ---- Places and messages --------------------------------------------------------------------- */

static uint32_t column(toml_parser *parser, size_t offset) {
    if (parser->column_at < parser->line_start || parser->column_at > offset) {
        parser->column_at = parser->line_start;
        parser->column    = 1;
    }
    for (; parser->column_at < offset; parser->column_at++) /* code points, as editors count */
        parser->column += (parser->text[parser->column_at] & 0xC0) != 0x80;
    return parser->column;
}

__attribute__((format(printf, 3, 4))) static int fail(toml_parser *parser, size_t offset,
                                                      const char *format, ...) {
    char    reason[320];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(reason, sizeof reason, format, list);
    va_end(list);
    return fl_fail(parser->error, FLETCH_ECONFIG, offset, "%s:%u:%u: %s", parser->source,
                   parser->line, column(parser, offset), reason);
}

/* The byte `ahead` of here, or 0 past the end (NUL is nowhere allowed in TOML, so 0 is "no"). */
static char peek(const toml_parser *parser, size_t ahead) {
    return ahead < parser->size - parser->at ? parser->text[parser->at + ahead] : '\0';
}

/* The length of the newline here, or 0. */
static unsigned newline(const toml_parser *parser) {
    if (peek(parser, 0) == '\n')
        return 1;
    return peek(parser, 0) == '\r' && peek(parser, 1) == '\n' ? 2 : 0;
}

/* `wanted` was expected here, and something else stands here. */
static int expected(toml_parser *parser, const char *wanted) {
    const unsigned char c = (unsigned char)peek(parser, 0);
    if (parser->at >= parser->size)
        return fail(parser, parser->at, "expected %s, found end of file", wanted);
    if (newline(parser) > 0)
        return fail(parser, parser->at, "expected %s, found end of line", wanted);
    if (c < 0x20 || c == 0x7F)
        return fail(parser, parser->at, "expected %s, found byte 0x%02x", wanted, c);
    unsigned length = 1;
    (void)fl_utf8_decode(parser->text + parser->at, &length);
    return fail(parser, parser->at, "expected %s, found '%.*s'", wanted, (int)length,
                parser->text + parser->at);
}

/* ---- Blanks ---------------------------------------------------------------------------------- */

static void skip_blank(toml_parser *parser) {
    while (peek(parser, 0) == ' ' || peek(parser, 0) == '\t')
        parser->at++;
}

static void take_newline(toml_parser *parser) {
    parser->at += newline(parser);
    parser->line++;
    parser->line_start = parser->at;
}

static int take_comment(toml_parser *parser) {
    if (peek(parser, 0) != '#')
        return 0;
    for (parser->at++; parser->at < parser->size && newline(parser) == 0; parser->at++) {
        const unsigned char c = (unsigned char)parser->text[parser->at];
        if ((c < 0x20 && c != '\t') || c == 0x7F)
            return fail(parser, parser->at, "control character 0x%02x in a comment", c);
    }
    return 0;
}

/* Blanks, comments and newlines. */
static int skip_space(toml_parser *parser) {
    for (;;) {
        skip_blank(parser);
        FL_TRY(take_comment(parser));
        if (newline(parser) == 0)
            return 0;
        take_newline(parser);
    }
}

/* A comment if there is one, then a newline or the end. */
static int end_line(toml_parser *parser) {
    skip_blank(parser);
    FL_TRY(take_comment(parser));
    if (parser->at >= parser->size)
        return 0;
    if (newline(parser) == 0)
        return expected(parser, "the end of the line");
    take_newline(parser);
    return 0;
}

/* ---- Strings --------------------------------------------------------------------------------- */

/* \uXXXX or \UXXXXXXXX; `at` stands on the first digit. */
static int unicode_escape(toml_parser *parser, fl_buf *out, unsigned digits) {
    const size_t start = parser->at;
    uint32_t     code  = 0;
    for (unsigned i = 0; i < digits; i++, parser->at++) {
        const int value = fl_hex_digit(peek(parser, 0));
        if (value < 0)
            return fail(parser, start, "an escape \\%c needs %u hexadecimal digits",
                        digits == 4 ? 'u' : 'U', digits);
        code = code << 4 | (uint32_t)value;
    }
    if (code == 0)
        return fail(parser, start, "a NUL character is not allowed in a key or a value");
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return fail(parser, start, "U+%04X is not a Unicode character", code);
    char utf8[4];
    fl_buf_append(out, utf8, fl_utf8_encode(code, utf8));
    return 0;
}

/* `at` stands on the backslash. */
static int escape(toml_parser *parser, fl_buf *out, bool many_lines) {
    static const char names[]  = "btnfr\"\\";
    static const char values[] = "\b\t\n\f\r\"\\";
    const size_t      start    = parser->at++;
    const char        c        = peek(parser, 0);
    const char       *name     = c == '\0' ? NULL : strchr(names, c);
    if (name != NULL) {
        fl_buf_putc(out, values[name - names]);
        parser->at++;
        return 0;
    }
    if (c == 'u' || c == 'U') {
        parser->at++;
        return unicode_escape(parser, out, c == 'u' ? 4 : 8);
    }
    skip_blank(parser);
    if (!many_lines || newline(parser) == 0) {
        parser->at = start;
        return fail(parser, start,
                    "unknown escape (for a plain backslash write \\\\, or put the text in '…')");
    }
    while (newline(parser) > 0) { /* a backslash at the end of a line swallows what is blank */
        take_newline(parser);
        skip_blank(parser);
    }
    return 0;
}

/* The body of a string up to its closing quotes, 1 or 3 of them. */
static int string_body(toml_parser *parser, fl_buf *out, char quote, unsigned quotes, size_t start,
                       uint32_t start_line) {
    for (;;) {
        const char c   = peek(parser, 0);
        unsigned   run = 0; /* three quotes close, and up to two may stand right before them */
        while (run < quotes + 2 && peek(parser, run) == quote)
            run++;
        if (quotes == 1 && run > 0) {
            parser->at++;
            return 0;
        }
        if (run >= 3) {
            fl_buf_append(out, parser->text + parser->at, run - 3);
            parser->at += run;
            return 0;
        }
        if (parser->at >= parser->size)
            return fail(parser, parser->at, "the string opened in line %u is not closed",
                        start_line);
        const unsigned ends = newline(parser);
        if (ends > 0 && quotes == 1)
            return fail(parser, start, "the string is not closed before the end of its line");
        if (ends > 0) {
            fl_buf_append(out, parser->text + parser->at, ends);
            take_newline(parser);
        } else if (c == '\\' && quote == '"') {
            FL_TRY(escape(parser, out, quotes == 3));
        } else if (((unsigned char)c < 0x20 && c != '\t') || c == 0x7F) {
            return fail(parser, parser->at, "control character 0x%02x in a string",
                        (unsigned char)c);
        } else {
            fl_buf_putc(out, c);
            parser->at++;
        }
    }
}

/* A string of any of the four kinds, its text appended to `out`. */
static int string(toml_parser *parser, fl_buf *out) {
    const char     quote  = peek(parser, 0);
    const size_t   start  = parser->at;
    const uint32_t line   = parser->line;
    const unsigned quotes = peek(parser, 1) == quote && peek(parser, 2) == quote ? 3 : 1;
    parser->at += quotes;
    if (quotes == 3 && newline(parser) > 0)
        take_newline(parser); /* the first newline is not text */
    return string_body(parser, out, quote, quotes, start, line);
}

/* ---- Values ---------------------------------------------------------------------------------- */

static bool is_bare(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

/* Past a run of digits with single '_' between digits; NULL when there is none. */
static const char *digits_end(const char *p) {
    if (*p < '0' || *p > '9')
        return NULL;
    for (;; p++)
        if (p[1] == '_' && p[2] >= '0' && p[2] <= '9')
            p++;
        else if (p[1] < '0' || p[1] > '9')
            return p + 1;
}

/* TOML's decimal numbers: no leading zeros, digits on both sides of a point. */
static bool is_decimal(const char *p) {
    p += *p == '+' || *p == '-';
    const char *end = digits_end(p);
    if (end == NULL || (*p == '0' && end - p > 1))
        return false;
    if (*end == '.')
        end = digits_end(end + 1);
    if (end != NULL && (*end == 'e' || *end == 'E')) {
        end += 1;
        end = digits_end(end + (*end == '+' || *end == '-'));
    }
    return end != NULL && *end == '\0';
}

/* The length of a word here, in which a date and its time may have a blank between them. */
static size_t word_size(const toml_parser *parser) {
    size_t size = 0;
    while (is_bare(peek(parser, size)) ||
           (peek(parser, size) != '\0' && strchr("+.:", peek(parser, size)) != NULL) ||
           (size == 10 && peek(parser, 7) == '-' && peek(parser, 10) == ' ' &&
            peek(parser, 13) == ':'))
        size++;
    return size;
}

/* A number, true or false, into values without '_' and '+'. */
static int word(toml_parser *parser) {
    char         text[64]; /* longer numbers exist only to hurt */
    const size_t start = parser->at;
    const size_t size  = word_size(parser);
    if (size == 0)
        return expected(parser, "a value");
    (void)snprintf(text, sizeof text, "%.*s", (int)(size < sizeof text ? size : sizeof text),
                   parser->text + start);
    const bool usable = size < sizeof text && (strcmp(text, "true") == 0 ||
                                               strcmp(text, "false") == 0 || is_decimal(text));
    if (!usable && !parser->foreign)
        return fail(parser, start,
                    "'%.40s' is neither a decimal number nor true or false: text needs quotes, "
                    "dates too",
                    text);
    for (const char *p = text + (*text == '+'); *p != '\0'; p++)
        if (*p != '_')
            fl_buf_putc(&parser->values, *p);
    parser->at += size;
    return 0;
}

/* `at` stands on '['. */
static int array(toml_parser *parser, fl_toml_item *item) {
    const bool mute = parser->mute;
    item->kind      = FL_TOML_LIST;
    parser->mute    = true;
    for (;;) {
        parser->at++; /* '[' or ',' */
        FL_TRY(skip_space(parser));
        if (peek(parser, 0) != ']') {
            fl_toml_item element = {.kind = FL_TOML_VALUE};
            FL_TRY(value(parser, &element));
            if (element.kind != FL_TOML_VALUE)
                item->kind = FL_TOML_NESTED;
            FL_TRY(skip_space(parser));
        }
        if (peek(parser, 0) == ']')
            break;
        if (peek(parser, 0) != ',')
            return expected(parser, "',' or ']' in an array");
    }
    parser->at++;
    parser->mute = mute;
    return 0;
}

/* `at` stands on '{'. TOML 1.0: one line, no comma after the last pair. */
static int inline_table(toml_parser *parser, fl_toml_item *item) {
    item->kind = FL_TOML_TABLE;
    fl_buf_putc(&parser->path, '.');
    parser->at++;
    skip_blank(parser);
    if (peek(parser, 0) != '}') {
        for (;; parser->at++) {
            skip_blank(parser);
            FL_TRY(pair(parser));
            skip_blank(parser);
            if (peek(parser, 0) == '}')
                break;
            if (peek(parser, 0) != ',')
                return expected(parser, "',' or '}' in an inline table");
        }
    }
    parser->at++;
    return 0;
}

static int value(toml_parser *parser, fl_toml_item *item) {
    const char c = peek(parser, 0);
    int        status;
    if (c == '[' || c == '{') {
        if (++parser->depth > FL_TOML_DEPTH_MAX)
            return fail(parser, parser->at, "more than %d levels of arrays and tables",
                        FL_TOML_DEPTH_MAX);
        status = c == '[' ? array(parser, item) : inline_table(parser, item);
        parser->depth--;
        return status;
    }
    status = c == '"' || c == '\'' ? string(parser, &parser->values) : word(parser);
    fl_buf_putc(&parser->values, '\0');
    parser->count++;
    return status;
}

/* ---- Keys and lines -------------------------------------------------------------------------- */

/* A dotted key, appended to the path; the item's place is that of its last part. */
static int key(toml_parser *parser, fl_toml_item *item) {
    for (;; parser->at++, fl_buf_putc(&parser->path, '.')) {
        skip_blank(parser);
        const size_t start = parser->at;
        item->line         = parser->line;
        item->column       = column(parser, start);
        if (peek(parser, 0) == '"' || peek(parser, 0) == '\'') {
            FL_TRY(string(parser, &parser->path));
            if (parser->line != item->line)
                return fail(parser, parser->at, "a key of more than one line");
        } else {
            while (is_bare(peek(parser, 0)))
                parser->at++;
            if (parser->at == start)
                return expected(parser, "a key");
            fl_buf_append(&parser->path, parser->text + start, parser->at - start);
        }
        skip_blank(parser);
        if (peek(parser, 0) != '.')
            return 0;
    }
}

static void cut_path(toml_parser *parser, size_t size) {
    if (size < parser->path.size) {
        parser->path.size       = size;
        parser->path.data[size] = '\0';
    }
}

static int visit(toml_parser *parser, fl_toml_item *item, size_t path_size) {
    if (parser->path.failed || parser->values.failed)
        return fl_fail_nomem(parser->error, parser->values.size, "a configuration value");
    if (parser->mute)
        return 0;
    cut_path(parser, path_size);
    item->path   = parser->path.data != NULL ? parser->path.data : ""; /* the key "" */
    item->values = parser->values.data;
    item->count  = parser->count;
    return parser->visit(parser->user, item);
}

/* key = value, below the path as it stands; leaves the path so. */
static int pair(toml_parser *parser) {
    const size_t above = parser->path.size;
    fl_toml_item item  = {.kind = FL_TOML_VALUE};
    FL_TRY(key(parser, &item));
    const size_t path_size = parser->path.size;
    if (peek(parser, 0) != '=')
        return expected(parser, "'=' after the key");
    parser->at++;
    skip_blank(parser);
    if (!parser->mute) {
        fl_buf_clear(&parser->values);
        parser->count = 0;
    }
    int status = value(parser, &item);
    if (status == 0 && item.kind != FL_TOML_TABLE)
        status = visit(parser, &item, path_size);
    cut_path(parser, above);
    return status;
}

static int header(toml_parser *parser) {
    fl_toml_item   item     = {.kind = peek(parser, 1) == '[' ? FL_TOML_TABLES : FL_TOML_TABLE};
    const unsigned brackets = item.kind == FL_TOML_TABLES ? 2 : 1;
    fl_buf_clear(&parser->path);
    parser->at += brackets;
    FL_TRY(key(parser, &item));
    if (peek(parser, 0) != ']' || (brackets == 2 && peek(parser, 1) != ']'))
        return expected(parser, brackets == 2 ? "']]' after the name of a table"
                                              : "']' after the name of a table");
    parser->at += brackets;
    parser->count = 0;
    int status    = visit(parser, &item, parser->path.size);
    fl_buf_putc(&parser->path, '.');
    return status;
}

static int document(toml_parser *parser) {
    const size_t valid = fl_utf8_valid_prefix(parser->text, parser->size);
    if (valid < parser->size) {
        for (size_t i = 0; i < valid; i++)
            if (parser->text[i] == '\n') {
                parser->line++;
                parser->line_start = i + 1;
            }
        return fail(parser, valid, "byte 0x%02x is not UTF-8: save the file as UTF-8",
                    (unsigned char)parser->text[valid]);
    }
    if (parser->size >= 3 && memcmp(parser->text, "\xEF\xBB\xBF", 3) == 0)
        parser->at = parser->line_start = 3; /* a byte order mark is not text */
    for (;;) {
        FL_TRY(skip_space(parser));
        if (parser->at >= parser->size)
            return 0;
        FL_TRY(peek(parser, 0) == '[' ? header(parser) : pair(parser));
        FL_TRY(end_line(parser));
    }
}

static int parse(toml_parser *parser, fletch_error *error) {
    if (parser->size > FL_TOML_SIZE_MAX)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s: a configuration file of %zu bytes; at most %d are read", parser->source,
                       parser->size, FL_TOML_SIZE_MAX);
    parser->line = parser->column = 1;
    parser->error                 = error;
    const int status              = document(parser);
    fl_buf_free(&parser->path);
    fl_buf_free(&parser->values);
    return status;
}

int fl_toml_parse(const char *text, size_t size, const char *source, fl_toml_visit *visit_item,
                  void *user, fletch_error *error) {
    toml_parser parser = {
        .text = text, .size = size, .source = source, .visit = visit_item, .user = user};
    return parse(&parser, error);
}

int fl_toml_read(const char *path, bool foreign, fl_toml_visit *visit_item, void *user,
                 fletch_error *error) {
    fl_buf text   = {0};
    int    status = fl_pipe_read(path, FL_TOML_SIZE_MAX, &text, error);
    if (status == 0) {
        toml_parser parser = {.text    = text.data,
                              .size    = text.size,
                              .source  = path,
                              .visit   = visit_item,
                              .user    = user,
                              .foreign = foreign};
        status             = parse(&parser, error);
    }
    fl_buf_free(&text);
    return status;
}
