/* SPDX-License-Identifier: Apache-2.0 */
/* toml.c - read a TOML document line by line: headers, keys, and who may define which table.
 *
 * Role    fl_toml_read for configuration files; the values on the right are toml_value.c's work.
 * In/Out  UTF-8 text, checked here once, so that everything after may trust it -> a tree of nodes.
 * Method  One pass, one byte of look-ahead, no backtracking. The hard part of TOML is not its
 *         letters but its law of tables: each may be defined once. A node remembers its birth:
 *           [a.b]    makes a IMPLICIT (a later [a] may define it) and b EXPLICIT (never again);
 *           a.b = 1  makes a DOTTED: closed to headers, and open to other dotted keys only of its
 *                    own section, since from no later one does a dotted key lead there;
 *           {} or [] are FROZEN: complete as written;  [[a]] makes a an array of TABLES.
 * Memory  The document's arena; one scratch buffer for strings with escapes.
 * Threads none shared. Proof: tests/unit/test_toml.c, tests/fuzz/fuzz_toml.c, docs/toml.md. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "config/toml_parser.h"

uint32_t fl_toml_column(fl_toml_parser *parser, size_t offset) {
    if (parser->column_at < parser->line_start || parser->column_at > offset) {
        parser->column_at = parser->line_start;
        parser->column    = 1;
    }
    for (; parser->column_at < offset; parser->column_at++) /* code points, as editors count */
        parser->column += (parser->text[parser->column_at] & 0xC0) != 0x80;
    return parser->column;
}

int fl_toml_fail(fl_toml_parser *parser, size_t offset, const char *format, ...) {
    char    reason[320];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(reason, sizeof reason, format, list);
    va_end(list);
    const uint32_t column = fl_toml_column(parser, offset);
    return fl_fail(parser->error, FLETCH_ECONFIG, offset, "%s:%u:%u: %s", parser->source,
                   parser->line, column, reason);
}

const char *fl_toml_seen(const fl_toml_parser *parser, char out[16]) {
    const unsigned char c = (unsigned char)fl_toml_peek(parser, 0);
    if (parser->at >= parser->size)
        return "end of file";
    if (c == '\n' || (c == '\r' && fl_toml_peek(parser, 1) == '\n'))
        return "end of line";
    if (c < 0x20 || c == 0x7F) {
        (void)snprintf(out, 16, "byte 0x%02x", c);
        return out;
    }
    unsigned length = 1;
    (void)fl_utf8_decode(parser->text + parser->at, &length);
    (void)snprintf(out, 16, "'%.*s'", (int)length, parser->text + parser->at);
    return out;
}

void fl_toml_skip_blank(fl_toml_parser *parser) {
    while (fl_toml_peek(parser, 0) == ' ' || fl_toml_peek(parser, 0) == '\t')
        parser->at++;
}

static bool at_newline(const fl_toml_parser *parser) {
    const char c = fl_toml_peek(parser, 0);
    return c == '\n' || (c == '\r' && fl_toml_peek(parser, 1) == '\n');
}

static void take_newline(fl_toml_parser *parser) {
    parser->at += fl_toml_peek(parser, 0) == '\r' ? 2 : 1;
    parser->line++;
    parser->line_start = parser->at;
}

static int take_comment(fl_toml_parser *parser) {
    if (fl_toml_peek(parser, 0) != '#')
        return 0;
    for (parser->at++; parser->at < parser->size && !at_newline(parser); parser->at++) {
        const unsigned char c = (unsigned char)parser->text[parser->at];
        if ((c < 0x20 && c != '\t') || c == 0x7F)
            return fl_toml_fail(parser, parser->at, "control character 0x%02x in a comment", c);
    }
    return 0;
}

/* A comment if there is one, then a newline or the end. */
static int end_line(fl_toml_parser *parser) {
    fl_toml_skip_blank(parser);
    if (take_comment(parser) < 0)
        return FLETCH_ECONFIG;
    if (parser->at >= parser->size)
        return 0;
    if (!at_newline(parser)) {
        char seen[16];
        return fl_toml_fail(parser, parser->at, "expected the end of the line, found %s",
                            fl_toml_seen(parser, seen));
    }
    take_newline(parser);
    return 0;
}

int fl_toml_skip_space(fl_toml_parser *parser) {
    for (;;) {
        fl_toml_skip_blank(parser);
        if (take_comment(parser) < 0)
            return FLETCH_ECONFIG;
        if (parser->at >= parser->size || !at_newline(parser))
            return 0;
        take_newline(parser);
    }
}

/* ---- Keys ------------------------------------------------------------------------------------ */

/* One part of a key: bare, "basic" or 'literal'. */
static int key_part(fl_toml_parser *parser, fl_toml_span *out) {
    const char c = fl_toml_peek(parser, 0);
    if (c == '"' || c == '\'')
        return fl_toml_string(parser, true, out);
    const size_t start = parser->at;
    while (fl_toml_is_bare(fl_toml_peek(parser, 0)))
        parser->at++;
    if (parser->at == start) {
        char seen[16];
        return fl_toml_fail(parser, start, "expected a key, found %s", fl_toml_seen(parser, seen));
    }
    out->size = parser->at - start;
    out->data = fl_toml_keep(parser->document, parser->text + start, out->size);
    if (out->data == NULL)
        return fl_fail_nomem(parser->error, out->size, "a TOML key");
    return 0;
}

/* Blanks, a dot, blanks: true when a dot was there. */
static bool take_dot(fl_toml_parser *parser) {
    fl_toml_skip_blank(parser);
    if (fl_toml_peek(parser, 0) != '.')
        return false;
    parser->at++;
    fl_toml_skip_blank(parser);
    return true;
}

static int refuse_twice(fl_toml_parser *parser, size_t offset, const fl_toml_node *node) {
    return fl_toml_fail(parser, offset, "'%s' is already defined in line %u", node->view.key,
                        node->view.line);
}

/* Step into the table that a non-final part of a dotted key names, making it when it is new. */
static int step_dotted(fl_toml_parser *parser, fl_toml_node **table, fl_toml_span key,
                       size_t offset) {
    fl_toml_node *child = fl_toml_child(parser->document, *table, key);
    if (child == NULL) {
        const int status = fl_toml_add(parser, *table, FL_TOML_TABLE, key, offset, &child);
        if (status < 0)
            return status;
    } else if (child->view.type != FL_TOML_TABLE || child->birth == FL_TOML_EXPLICIT ||
               child->birth == FL_TOML_FROZEN) {
        return fl_toml_fail(parser, offset,
                            "'%s' is already complete in line %u: a dotted key cannot add to it",
                            child->view.key, child->view.line);
    }
    child->birth = FL_TOML_DOTTED; /* an implicit table is defined by this */
    *table       = child;
    return 0;
}

int fl_toml_pair(fl_toml_parser *parser, fl_toml_node *table) {
    for (;;) {
        const size_t offset = parser->at;
        fl_toml_span key;
        int          status = key_part(parser, &key);
        if (status < 0)
            return status;
        if (take_dot(parser)) {
            status = step_dotted(parser, &table, key, offset);
            if (status < 0)
                return status;
            continue;
        }
        if (fl_toml_peek(parser, 0) != '=') {
            char seen[16];
            return fl_toml_fail(parser, parser->at, "expected '=' after the key '%s', found %s",
                                key.data, fl_toml_seen(parser, seen));
        }
        const fl_toml_node *twin = fl_toml_child(parser->document, table, key);
        if (twin != NULL)
            return refuse_twice(parser, offset, twin);
        parser->at++;
        fl_toml_skip_blank(parser);
        return fl_toml_value(parser, table, key, offset);
    }
}

/* ---- Headers --------------------------------------------------------------------------------- */

/* Step into the table that a non-final part of a header names. */
static int step_header(fl_toml_parser *parser, fl_toml_node **table, fl_toml_span key,
                       size_t offset) {
    fl_toml_node *child = fl_toml_child(parser->document, *table, key);
    if (child == NULL) {
        const int status = fl_toml_add(parser, *table, FL_TOML_TABLE, key, offset, &child);
        if (status < 0)
            return status;
        child->birth = FL_TOML_IMPLICIT;
    }
    if (child->birth == FL_TOML_TABLES)
        child = child->last; /* [[a]] … [a.b]: b belongs to the newest element */
    else if (child->view.type != FL_TOML_TABLE || child->birth == FL_TOML_FROZEN)
        return refuse_twice(parser, offset, child);
    *table = child;
    return 0;
}

/* [a.b.key]: define `key` in `table`. */
static int open_table(fl_toml_parser *parser, fl_toml_node *table, fl_toml_span key,
                      size_t offset) {
    fl_toml_node *node = fl_toml_child(parser->document, table, key);
    if (node == NULL) {
        const int status = fl_toml_add(parser, table, FL_TOML_TABLE, key, offset, &node);
        if (status < 0)
            return status;
    } else if (node->view.type != FL_TOML_TABLE || node->birth != FL_TOML_IMPLICIT) {
        return refuse_twice(parser, offset, node);
    }
    node->birth   = FL_TOML_EXPLICIT;
    parser->table = node;
    return 0;
}

/* [[a.b.key]]: one more element of the array `key` in `table`. */
static int open_element(fl_toml_parser *parser, fl_toml_node *table, fl_toml_span key,
                        size_t offset) {
    fl_toml_node *array = fl_toml_child(parser->document, table, key);
    int           status;
    if (array == NULL) {
        status = fl_toml_add(parser, table, FL_TOML_ARRAY, key, offset, &array);
        if (status < 0)
            return status;
        array->birth = FL_TOML_TABLES;
    } else if (array->birth != FL_TOML_TABLES) {
        return refuse_twice(parser, offset, array);
    }
    fl_toml_node *element;
    status = fl_toml_add(parser, array, FL_TOML_TABLE, (fl_toml_span){"", 0}, offset, &element);
    if (status < 0)
        return status;
    element->birth = FL_TOML_EXPLICIT;
    parser->table  = element;
    return 0;
}

static int header(fl_toml_parser *parser) {
    const bool    element = fl_toml_peek(parser, 1) == '[';
    fl_toml_node *table   = parser->document->root;
    fl_toml_span  key;
    size_t        offset;
    parser->at += element ? 2 : 1;
    fl_toml_skip_blank(parser);
    for (;;) {
        offset     = parser->at;
        int status = key_part(parser, &key);
        if (status < 0)
            return status;
        if (!take_dot(parser))
            break;
        status = step_header(parser, &table, key, offset);
        if (status < 0)
            return status;
    }
    if (fl_toml_peek(parser, 0) != ']' || (element && fl_toml_peek(parser, 1) != ']')) {
        char seen[16];
        return fl_toml_fail(parser, parser->at, "expected '%s' after the name of a table, found %s",
                            element ? "]]" : "]", fl_toml_seen(parser, seen));
    }
    parser->at += element ? 2 : 1;
    return element ? open_element(parser, table, key, offset)
                   : open_table(parser, table, key, offset);
}

/* ---- The document ---------------------------------------------------------------------------- */

static int check_text(fl_toml_parser *parser) {
    const size_t valid = fl_utf8_valid_prefix(parser->text, parser->size);
    if (valid == parser->size)
        return 0;
    for (size_t i = 0; i < valid; i++)
        if (parser->text[i] == '\n') {
            parser->line++;
            parser->line_start = i + 1;
        }
    return fl_toml_fail(parser, valid, "byte 0x%02x is not UTF-8: save the file as UTF-8",
                        (unsigned char)parser->text[valid]);
}

static int document(fl_toml_parser *parser) {
    int status = check_text(parser);
    if (status == 0 && parser->size >= 3 && memcmp(parser->text, "\xEF\xBB\xBF", 3) == 0)
        parser->at = parser->line_start = 3; /* a byte order mark is not text */
    while (status == 0) {
        status = fl_toml_skip_space(parser);
        if (status < 0 || parser->at >= parser->size)
            break;
        status =
            fl_toml_peek(parser, 0) == '[' ? header(parser) : fl_toml_pair(parser, parser->table);
        if (status == 0)
            status = end_line(parser);
    }
    return status;
}

int fl_toml_parse(fl_toml_document **out, const char *text, size_t size, const char *source,
                  fletch_error *error) {
    *out = NULL;
    if (size > FL_TOML_SIZE_MAX)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s: a configuration file of %zu bytes; at most %d are read", source, size,
                       FL_TOML_SIZE_MAX);
    fl_toml_parser parser = {.text = text, .size = size, .line = 1, .column = 1};
    parser.source         = source;
    parser.error          = error;
    parser.document       = fl_toml_document_new();
    if (parser.document == NULL)
        return fl_fail_nomem(error, sizeof *parser.document, "a TOML document");
    parser.table     = parser.document->root;
    const int status = document(&parser);
    fl_buf_free(&parser.scratch);
    if (status < 0) {
        fl_toml_free(parser.document);
        return status;
    }
    *out = parser.document;
    return 0;
}

int fl_toml_read(fl_toml_document **out, const char *path, fletch_error *error) {
    fl_buf text = {0};
    *out        = NULL;
    int status  = fl_file_read(path, FL_TOML_SIZE_MAX, &text, error);
    if (status == 0)
        status = fl_toml_parse(out, text.data, text.size, path, error);
    fl_buf_free(&text);
    return status;
}
