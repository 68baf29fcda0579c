/* SPDX-License-Identifier: Apache-2.0 */
/* toml_value.c - the right-hand sides of a TOML document: arrays, inline tables and strings.
 *
 * Role    toml.c calls fl_toml_value after each '='; keys in quotes come here as well.
 * Method  Recursive descent over arrays and inline tables; fl_toml_add refuses the 65th level,
 *         which also bounds the stack. A string is built in the parser's scratch buffer, then kept.
 * In/Out  Valid UTF-8 (toml.c checked) -> nodes; strings are valid UTF-8 because \u and \U refuse
 *         surrogates. Memory: the document's arena.
 * Proof   tests/unit/test_toml.c. */
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "config/toml_parser.h"

/* ---- Strings --------------------------------------------------------------------------------- */

/* \uXXXX or \UXXXXXXXX; `at` stands on the first digit. */
static int unicode_escape(fl_toml_parser *parser, unsigned digits) {
    const size_t start = parser->at;
    uint32_t     code  = 0;
    for (unsigned i = 0; i < digits; i++) {
        const int digit = fl_toml_digit(fl_toml_peek(parser, 0), 16);
        if (digit < 0)
            return fl_toml_fail(parser, start, "an escape \\%c needs %u hexadecimal digits",
                                digits == 4 ? 'u' : 'U', digits);
        code = code << 4 | (uint32_t)digit;
        parser->at++;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return fl_toml_fail(parser, start, "U+%04X is not a Unicode character", code);
    char utf8[4];
    fl_buf_append(&parser->scratch, utf8, fl_utf8_encode(code, utf8));
    return 0;
}

/* A backslash at the end of a line swallows the blanks and newlines up to the next character. */
static int line_escape(fl_toml_parser *parser) {
    const size_t start = parser->at - 1;
    fl_toml_skip_blank(parser);
    bool newline = false;
    for (;;) {
        const char c = fl_toml_peek(parser, 0);
        if (c == '\n' || (c == '\r' && fl_toml_peek(parser, 1) == '\n')) {
            parser->at += c == '\r' ? 2 : 1;
            parser->line++;
            parser->line_start = parser->at;
            newline            = true;
        } else if (c == ' ' || c == '\t') {
            parser->at++;
        } else {
            break;
        }
    }
    if (!newline)
        return fl_toml_fail(parser, start, "a backslash before a blank that does not end the line");
    return 0;
}

/* `at` stands on the backslash. */
static int escape(fl_toml_parser *parser, bool multiline) {
    static const char names[]  = "btnfr\"\\";
    static const char values[] = "\b\t\n\f\r\"\\";
    const char        c        = fl_toml_peek(parser, 1);
    const char       *name     = c == '\0' ? NULL : strchr(names, c);
    parser->at += 1;
    if (name != NULL) {
        fl_buf_putc(&parser->scratch, values[name - names]);
        parser->at++;
        return 0;
    }
    if (c == 'u' || c == 'U') {
        parser->at++;
        return unicode_escape(parser, c == 'u' ? 4 : 8);
    }
    if (multiline && (c == ' ' || c == '\t' || c == '\n' || c == '\r'))
        return line_escape(parser);
    char seen[16];
    return fl_toml_fail(parser, parser->at - 1,
                        "unknown escape: a backslash and %s (for a plain backslash write \\\\, "
                        "or put the text in '…')",
                        fl_toml_seen(parser, seen));
}

/* Whether three quotes close the string here. Up to two quotes may stand right before them, so of
 * three to five the last three close. */
static bool closes(const fl_toml_parser *parser, char quote) {
    return fl_toml_peek(parser, 0) == quote && fl_toml_peek(parser, 1) == quote &&
           fl_toml_peek(parser, 2) == quote && fl_toml_peek(parser, 3) != quote;
}

static bool closes_after_more(const fl_toml_parser *parser, char quote) {
    unsigned run = 0;
    while (run < 6 && fl_toml_peek(parser, run) == quote)
        run++;
    return run == 3 || run == 4 || run == 5;
}

/* The body of a string after its opening quotes, into the scratch buffer. */
static int string_body(fl_toml_parser *parser, char quote, bool multiline, size_t start,
                       uint32_t start_line) {
    for (;;) {
        const char c = fl_toml_peek(parser, 0);
        if (parser->at >= parser->size)
            return fl_toml_fail(parser, parser->at, "the string opened in line %u is not closed",
                                start_line);
        if (!multiline && c == quote) {
            parser->at += 1;
            return 0;
        }
        if (multiline && closes(parser, quote)) {
            parser->at += 3;
            return 0;
        }
        const bool newline = c == '\n' || (c == '\r' && fl_toml_peek(parser, 1) == '\n');
        if (newline && !multiline)
            return fl_toml_fail(parser, start,
                                "the string is not closed before the end of its line");
        if (newline) {
            const size_t length = c == '\n' ? 1 : 2;
            fl_buf_append(&parser->scratch, parser->text + parser->at, length);
            parser->at += length;
            parser->line++;
            parser->line_start = parser->at;
        } else if (c == '\\' && quote == '"') {
            const int status = escape(parser, multiline);
            if (status < 0)
                return status;
        } else if (((unsigned char)c < 0x20 && c != '\t') || c == 0x7F) {
            return fl_toml_fail(parser, parser->at, "control character 0x%02x in a string",
                                (unsigned char)c);
        } else if (multiline && c == quote && fl_toml_peek(parser, 1) == quote &&
                   fl_toml_peek(parser, 2) == quote && !closes_after_more(parser, quote)) {
            return fl_toml_fail(parser, parser->at, "too many quotes at the end of a string");
        } else {
            fl_buf_putc(&parser->scratch, c);
            parser->at++;
        }
    }
}

int fl_toml_string(fl_toml_parser *parser, bool single, fl_toml_span *out) {
    const char     quote     = fl_toml_peek(parser, 0);
    const size_t   start     = parser->at;
    const uint32_t line      = parser->line;
    const bool     multiline = fl_toml_peek(parser, 1) == quote && fl_toml_peek(parser, 2) == quote;
    if (multiline && single)
        return fl_toml_fail(parser, start, "a key cannot be a multi-line string");
    parser->at += multiline ? 3 : 1;
    if (multiline && (fl_toml_peek(parser, 0) == '\n' ||
                      (fl_toml_peek(parser, 0) == '\r' && fl_toml_peek(parser, 1) == '\n'))) {
        parser->at += fl_toml_peek(parser, 0) == '\r' ? 2 : 1; /* the first newline is not text */
        parser->line++;
        parser->line_start = parser->at;
    }
    fl_buf_clear(&parser->scratch);
    const int status = string_body(parser, quote, multiline, start, line);
    if (status < 0)
        return status;
    out->size = parser->scratch.size;
    out->data = parser->scratch.failed
                    ? NULL
                    : fl_toml_keep(parser->document, parser->scratch.data, out->size);
    if (out->data == NULL)
        return fl_fail_nomem(parser->error, out->size, "a TOML string");
    return 0;
}

/* ---- Arrays and inline tables ---------------------------------------------------------------- */

/* `at` stands after '['. */
static int array_body(fl_toml_parser *parser, fl_toml_node *array) {
    for (;;) {
        int status = fl_toml_skip_space(parser);
        if (status < 0)
            return status;
        if (fl_toml_peek(parser, 0) == ']')
            break;
        status = fl_toml_value(parser, array, (fl_toml_span){"", 0}, parser->at);
        if (status == 0)
            status = fl_toml_skip_space(parser);
        if (status < 0)
            return status;
        if (fl_toml_peek(parser, 0) == ']')
            break;
        if (fl_toml_peek(parser, 0) != ',') {
            char seen[16];
            return fl_toml_fail(parser, parser->at, "expected ',' or ']' in an array, found %s",
                                fl_toml_seen(parser, seen));
        }
        parser->at++;
    }
    parser->at++;
    return 0;
}

/* `at` stands after '{'. TOML 1.0: one line, no comma after the last pair. */
static int inline_table_body(fl_toml_parser *parser, fl_toml_node *table) {
    fl_toml_skip_blank(parser);
    if (fl_toml_peek(parser, 0) == '}') {
        parser->at++;
        return 0;
    }
    for (;;) {
        fl_toml_skip_blank(parser);
        const int status = fl_toml_pair(parser, table);
        if (status < 0)
            return status;
        fl_toml_skip_blank(parser);
        const char c = fl_toml_peek(parser, 0);
        if (c == '}')
            break;
        if (c != ',') {
            char seen[16];
            return fl_toml_fail(parser, parser->at,
                                "expected ',' or '}' in an inline table, found %s",
                                fl_toml_seen(parser, seen));
        }
        parser->at++;
    }
    parser->at++;
    return 0;
}

int fl_toml_value(fl_toml_parser *parser, fl_toml_node *parent, fl_toml_span key, size_t offset) {
    const char   c    = fl_toml_peek(parser, 0);
    fl_toml_type type = FL_TOML_STRING;
    if (c == '[')
        type = FL_TOML_ARRAY;
    else if (c == '{')
        type = FL_TOML_TABLE;
    fl_toml_node *node;
    int           status = fl_toml_add(parser, parent, type, key, offset, &node);
    if (status < 0)
        return status;
    node->birth = FL_TOML_FROZEN;
    if (c == '"' || c == '\'') {
        fl_toml_span text;
        status = fl_toml_string(parser, false, &text);
        if (status == 0) {
            node->view.text      = text.data;
            node->view.text_size = text.size;
        }
        return status;
    }
    if (c != '[' && c != '{')
        return fl_toml_word(parser, &node->view);
    /* While it is being read, its own pairs may add to it; no header can come in between. */
    parser->at++;
    return c == '[' ? array_body(parser, node) : inline_table_body(parser, node);
}
