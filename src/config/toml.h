/* SPDX-License-Identifier: Apache-2.0 */
/* toml.h - read a TOML 1.0 document into a tree of nodes, with the line and column of every value.
 *
 * All of TOML 1.0 but date-times, which are refused by name (docs/toml.md). A document is at most
 * 16 MiB and 64 levels deep, so neither memory nor the stack can be made to run away; keys are
 * found by one hash table, so a file with a million keys takes a second, not an hour.
 * Memory: the document owns every node and string. Threads: a finished document is read-only.
 * Proof: tests/unit/test_toml.c, tests/fuzz/fuzz_toml.c, and the public toml-test suite by way of
 * tests/unit/toml_dump.c (how to run it: docs/toml.md). */
#ifndef FL_CONFIG_TOML_H
#define FL_CONFIG_TOML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fletch.h"

enum { FL_TOML_DEPTH_MAX = 64, FL_TOML_SIZE_MAX = 16 << 20 };

typedef enum fl_toml_type {
    FL_TOML_TABLE,
    FL_TOML_ARRAY,
    FL_TOML_STRING,
    FL_TOML_INTEGER,
    FL_TOML_FLOAT,
    FL_TOML_BOOLEAN
} fl_toml_type;

typedef struct fl_toml fl_toml;
struct fl_toml {
    fl_toml_type type;
    uint32_t     line, column; /* from 1; of the key, or of the value in an array */
    const char  *key;          /* terminated; "" in an array and for the root */
    size_t       key_size;     /* a key may hold NUL bytes */
    /* scalars: a string's bytes; a number or boolean as it stands in the file without '_' */
    const char *text; /* terminated */
    size_t      text_size;
    int64_t     integer; /* integers; booleans 0 or 1 */
    double      number;  /* floats, infinities and NaN too */
    /* tables and arrays: children in file order */
    const fl_toml *first, *next;
    size_t         count;
};

typedef struct fl_toml_document fl_toml_document;

/* `source` names the text in messages ("SOURCE:LINE:COLUMN: what"). FLETCH_ECONFIG for what is not
 * TOML, with the byte offset in error->where; FLETCH_EUNSUPPORTED for what is left out. */
int fl_toml_parse(fl_toml_document **out, const char *text, size_t size, const char *source,
                  fletch_error *error);
int fl_toml_read(fl_toml_document **out, const char *path, fletch_error *error);

void           fl_toml_free(fl_toml_document *document); /* NULL is a no-op */
const fl_toml *fl_toml_root(const fl_toml_document *document);

/* The child of a table by its key, or NULL. */
const fl_toml *fl_toml_find(const fl_toml_document *document, const fl_toml *table,
                            const char *key);

#endif
