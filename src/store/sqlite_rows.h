/* SPDX-License-Identifier: Apache-2.0 */
/* sqlite_rows.h - texts and vectors out of a file of SQLite, which is read and never written.
 *
 * The server's store, tables with a column of each, tables of sqlite-vec (whose extension is not needed), or what a
 * SELECT gives. */
#ifndef FL_STORE_SQLITE_ROWS_H
#define FL_STORE_SQLITE_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "fletch.h"

typedef struct fl_sqlite_row {
    const char *text; /* NULL: null */
    size_t      text_size;
    const void *vector; /* NULL: null */
    size_t      vector_size;
    bool        blob; /* float32 as they are; else text, "[0.1,0.2]" */
} fl_sqlite_row;

/* What to read; NULL: what the file is likely to mean. */
typedef struct fl_sqlite_ask {
    const char *path;
    const char *sql;     /* gives text and vector */
    const char *text;    /* column of the texts */
    const char *vectors; /* columns of which one holds the vectors, "embedding|vector" */
} fl_sqlite_ask;

/* What the file says of its vectors. */
typedef struct fl_sqlite_facts {
    bool store; /* of the server: vectors are of length 1 */
    char vector_id[65], fingerprint[65];
} fl_sqlite_facts;

typedef int (*fl_sqlite_fn)(void *user, const fl_sqlite_row *row, fletch_error *error);

/* Every row to `fn`, whose failure ends it. ECONFIG: flags have to say what is read; EMODEL: it cannot be. */
int fl_sqlite_read(const fl_sqlite_ask *ask, fl_sqlite_facts *facts, fl_sqlite_fn fn, void *user,
                   fletch_error *error);

/* The name by which SQLite opens `path` with parameters: "file:/a%20b?mode=ro". */
void fl_sqlite_uri(fl_buf *out, const char *path, const char *query);

#endif
