/* SPDX-License-Identifier: Apache-2.0 */
/* toml_parser.h - what the four files of the TOML reader share.
 *
 * toml.c reads lines: headers, keys, the law of who may define which table. toml_value.c reads
 * values: arrays, inline tables, strings. toml_number.c reads the bare words: numbers, booleans.
 * toml_tree.c owns nodes, strings and the key index. Only those files include this one. */
#ifndef FL_CONFIG_TOML_PARSER_H
#define FL_CONFIG_TOML_PARSER_H

#include "base/buf.h"
#include "config/toml.h"

/* How a table came to be, which decides who may add to it. */
typedef enum fl_toml_birth {
    FL_TOML_IMPLICIT, /* a parent in a [header]; may be defined later */
    FL_TOML_EXPLICIT, /* [header] or an element of [[header]] */
    FL_TOML_DOTTED,   /* a parent in a dotted key; closed to headers */
    FL_TOML_FROZEN,   /* an inline table or a plain array: complete */
    FL_TOML_TABLES    /* the array behind [[header]] */
} fl_toml_birth;

/* A node while the document is being read. `view` comes first: the tree hands out pointers to it.
 */
typedef struct fl_toml_node fl_toml_node;
struct fl_toml_node {
    fl_toml       view;
    fl_toml_birth birth;
    uint32_t      depth;
    fl_toml_node *parent, *last;
};

struct fl_toml_document {
    struct fl_toml_block *blocks; /* owned: arena, newest first */
    fl_toml_node        **slots;  /* owned [slot_count]: open addressing by (parent, key) */
    size_t                slot_count, used;
    fl_toml_node         *root;
};

typedef struct fl_toml_parser {
    const char       *text;
    size_t            size, at;
    uint32_t          line;
    size_t            line_start;
    size_t            column_at; /* column is that of this offset in this line */
    uint32_t          column;
    const char       *source;
    fletch_error     *error;
    fl_toml_document *document;
    fl_toml_node     *table; /* where key = value lines go */
    fl_buf            scratch;
} fl_toml_parser;

/* A run of bytes in the arena or the text. */
typedef struct fl_toml_span {
    const char *data;
    size_t      size;
} fl_toml_span;

/* toml_tree.c */
fl_toml_document *fl_toml_document_new(void);
const char       *fl_toml_keep(fl_toml_document *document, const char *data, size_t size);
fl_toml_node     *fl_toml_child(const fl_toml_document *document, const fl_toml_node *table,
                                fl_toml_span key);
/* A new last child of `parent`; `key` is kept by the caller in the arena (empty in arrays). Fails
 * on memory and depth; the key must not be there yet. */
int fl_toml_add(fl_toml_parser *parser, fl_toml_node *parent, fl_toml_type type, fl_toml_span key,
                size_t offset, fl_toml_node **out);

/* toml.c */
int fl_toml_fail(fl_toml_parser *parser, size_t offset, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What is at `offset`, for messages: "'x'", "end of line", "end of file". */
const char *fl_toml_seen(const fl_toml_parser *parser, char out[16]);
uint32_t    fl_toml_column(fl_toml_parser *parser, size_t offset); /* in the present line */
void        fl_toml_skip_blank(fl_toml_parser *parser);            /* spaces and tabs */
/* Blanks, comments and newlines. */
int fl_toml_skip_space(fl_toml_parser *parser);
/* key = value into `table`. */
int fl_toml_pair(fl_toml_parser *parser, fl_toml_node *table);

/* toml_value.c: the value at parser->at becomes a child of `parent`. */
int fl_toml_value(fl_toml_parser *parser, fl_toml_node *parent, fl_toml_span key, size_t offset);
/* A string without its type: `single` refuses the multi-line forms (keys). */
int fl_toml_string(fl_toml_parser *parser, bool single, fl_toml_span *out);

/* toml_number.c: a bare word into *out; the text and numbers of `view` are set. */
int fl_toml_word(fl_toml_parser *parser, fl_toml *view);

static inline bool fl_toml_is_bare(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

/* Value of a digit in bases up to 16, or -1. */
static inline int fl_toml_digit(char c, int base) {
    int value = -1;
    if (c >= '0' && c <= '9')
        value = c - '0';
    else if (c >= 'a' && c <= 'f')
        value = c - 'a' + 10;
    else if (c >= 'A' && c <= 'F')
        value = c - 'A' + 10;
    return value < base ? value : -1;
}

/* The byte at `at + ahead`, or 0 past the end (NUL is nowhere allowed in TOML, so 0 is "no"). */
static inline char fl_toml_peek(const fl_toml_parser *parser, size_t ahead) {
    return ahead < parser->size - parser->at ? parser->text[parser->at + ahead] : '\0';
}

#endif
