/* SPDX-License-Identifier: Apache-2.0 */
/* sqlite_rows.c - texts and vectors out of a file of SQLite.
 *
 * Role    `fletch verify FILE` (cli/stored_sqlite.c).
 * Method  The file is opened to be read only, so that a server or program may go on with it. Virtual tables of
 *         sqlite-vec cannot be read without its extension, but their content lies in plain tables beside them
 *         (NAME_rowids says in which chunk and place, NAME_vector_chunks00 has float32 in a row): a temporary view of
 *         the table's own name puts them together, and hides the virtual one from what is asked. Without a SELECT
 *         the one table or view is taken that has both columns.
 * Memory  SQLite's. Threads: none. Proof tests/cli/test_cli_verify_files.py, with a file that sqlite-vec wrote. */
#include "store/sqlite_rows.h"

#include <ctype.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "store/store.h"

enum { VIRTUAL_MAX = 64 * 1024, COLUMN_MAX = 256, BUSY_MS = 5000 };

static const char virtual_sql[] = "SELECT name, sql FROM main.sqlite_schema WHERE type = 'table' "
                                  "AND sql LIKE 'create virtual table%using vec0%'";

/* Tables and views that have both columns, and which is the one of vectors. */
static const char candidates_sql[] =
    "SELECT t.name, v.name FROM (SELECT name FROM temp.sqlite_schema WHERE type = 'view' "
    "UNION SELECT name FROM main.sqlite_schema WHERE type IN ('table', 'view') AND sql NOT LIKE "
    "'create virtual%') t, pragma_table_info(t.name) c, pragma_table_info(t.name) v "
    "WHERE c.name = ?1 AND instr('|' || ?2 || '|', '|' || v.name || '|') > 0 LIMIT 2";

/* By the store's format. A text says nothing of a vector that is of more: of a context, or of a whole document. */
static const char *const store_sql[] = {
    "SELECT text, vector FROM items ORDER BY seq", "SELECT text, vector FROM items ORDER BY seq",
    "SELECT CASE WHEN context IS NULL THEN text END, vector FROM items ORDER BY seq",
    ("SELECT CASE WHEN context IS NULL AND late IS NOT 1 THEN text END, vector FROM items "
     "ORDER BY seq")};
enum { FORMAT_LAST = sizeof store_sql / sizeof *store_sql - 1 };

static int fail_sql(const fl_sqlite_ask *ask, sqlite3 *db, bool asked, fletch_error *error) {
    const int code = sqlite3_errcode(db) & 0xFF;
    return fl_fail(error,
                   code == SQLITE_NOMEM            ? FLETCH_ENOMEM
                   : asked && code == SQLITE_ERROR ? FLETCH_ECONFIG
                                                   : FLETCH_EMODEL,
                   FLETCH_NOWHERE, "%s: %s", ask->path, sqlite3_errmsg(db));
}

/* ---- sqlite-vec ------------------------------------------------------------------------------ */

/* One argument of vec0(...), a column; `text` is free of white space at both ends. */
typedef struct column {
    const char *text;
    size_t      size;
    size_t      name; /* bytes of its name */
} column;

static bool has_word(const column *c, const char *word) {
    char text[COLUMN_MAX];
    (void)snprintf(text, sizeof text, "%.*s", (int)c->size, c->text);
    for (char *at = text; *at != '\0'; at++)
        *at = (char)tolower((unsigned char)*at);
    return strstr(text, word) != NULL;
}

/* The next argument; false: there is none. *at is behind it then. */
static bool next_column(const char **at, const char *end, column *out) {
    unsigned    depth = 0;
    const char *from  = *at;
    while (from < end && isspace((unsigned char)*from) != 0)
        from++;
    const char *to = from;
    while (to < end && (depth > 0 || *to != ',')) {
        depth += *to == '[' || *to == '(';
        depth -= (*to == ']' || *to == ')') && depth > 0;
        to++;
    }
    *at = to < end ? to + 1 : end;
    while (to > from && isspace((unsigned char)to[-1]) != 0)
        to--;
    const char *name = from;
    while (name < to && (isalnum((unsigned char)*name) != 0 || *name == '_' || *name == '+'))
        name++;
    *out = (column){from, (size_t)(to - from), (size_t)(name - from)};
    return to > from;
}

/* How many numbers float[N] has; 0: it is no column of float32. */
static unsigned floats_of(const column *c) {
    const char *at = memchr(c->text, '[', c->size);
    return at != NULL && (has_word(c, "float[") || has_word(c, "f32["))
               ? (unsigned)strtoul(at + 1, NULL, 10)
               : 0;
}

/* `text` between double quotes, those inside doubled. */
static void put_name(fl_buf *out, const char *text, size_t size, const char *end) {
    fl_buf_putc(out, '"');
    for (size_t i = 0; i < size; i++) {
        fl_buf_puts(out, text[i] == '"' ? "\"" : "");
        fl_buf_putc(out, text[i]);
    }
    fl_buf_printf(out, "%s\"", end);
}

/* The view that stands for the virtual table `name`, made of the arguments in [at, end). */
static void put_view(fl_buf *sql, const char *name, const char *at, const char *end) {
    const size_t size    = strlen(name);
    unsigned     vectors = 0, kept = 0;
    fl_buf       from = {0};
    column       c;
    fl_buf_puts(sql, "CREATE TEMP VIEW ");
    put_name(sql, name, size, "");
    fl_buf_puts(sql, " AS SELECT r.rowid AS rowid");
    fl_buf_puts(&from, " FROM main.");
    put_name(&from, name, size, "_rowids");
    fl_buf_puts(&from, " r");
    while (next_column(&at, end, &c)) {
        const unsigned floats = floats_of(&c);
        if (c.text[0] == '+') {
            fl_buf_printf(sql, ", a.value%02u AS ", kept++);
            put_name(sql, c.text + 1, c.name - 1, "");
        } else if (has_word(&c, "primary key")) {
            fl_buf_puts(sql, ", coalesce(r.id, r.rowid) AS ");
            put_name(sql, c.text, c.name, "");
        } else if (memchr(c.text, '[', c.size) != NULL) {
            if (floats > 0) {
                const unsigned bytes = floats * (unsigned)sizeof(float);
                fl_buf_printf(sql, ", substr(v%u.vectors, 1 + r.chunk_offset * %u, %u) AS ",
                              vectors, bytes, bytes);
                put_name(sql, c.text, c.name, "");
            }
            fl_buf_puts(&from, " JOIN main.");
            put_name(&from, name, size, "");
            from.size--; /* the quote, before which the number goes */
            fl_buf_printf(&from, "_vector_chunks%02u\" v%u ON v%u.rowid = r.chunk_id", vectors,
                          vectors, vectors);
            vectors++;
        }
    }
    if (kept > 0) {
        fl_buf_puts(&from, " LEFT JOIN main.");
        put_name(&from, name, size, "_auxiliary");
        fl_buf_puts(&from, " a ON a.rowid = r.rowid");
    }
    fl_buf_puts(sql, from.failed ? "" : from.data);
    sql->failed = sql->failed || from.failed;
    fl_buf_free(&from);
}

/* A view for each table of sqlite-vec. */
static int hide_virtual(const fl_sqlite_ask *ask, sqlite3 *db, fletch_error *error) {
    sqlite3_stmt *list = NULL;
    fl_buf        sql  = {0};
    if (sqlite3_prepare_v2(db, virtual_sql, -1, &list, NULL) != SQLITE_OK)
        return fail_sql(ask, db, false, error);
    while (sqlite3_step(list) == SQLITE_ROW && !sql.failed) {
        const char *name  = (const char *)sqlite3_column_text(list, 0);
        const char *text  = (const char *)sqlite3_column_text(list, 1);
        const char *begin = text != NULL ? strchr(text, '(') : NULL;
        const char *end   = begin != NULL ? strrchr(begin, ')') : NULL;
        if (name != NULL && end != NULL && (size_t)(end - begin) < VIRTUAL_MAX) {
            put_view(&sql, name, begin + 1, end);
            fl_buf_puts(&sql, ";");
        }
    }
    int status = sql.failed ? fl_fail_nomem(error, sql.size, "a view") : 0;
    if (sqlite3_finalize(list) != SQLITE_OK ||
        (status == 0 && sql.size > 0 && sqlite3_exec(db, sql.data, NULL, NULL, NULL) != SQLITE_OK))
        status = fail_sql(ask, db, false, error);
    fl_buf_free(&sql);
    return status;
}

/* ---- What is read ---------------------------------------------------------------------------- */

/* The one table that has both columns. */
static int choose_table(const fl_sqlite_ask *ask, sqlite3 *db, fl_buf *sql, fletch_error *error) {
    sqlite3_stmt *list  = NULL;
    int           found = 0;
    bool          good  = sqlite3_prepare_v2(db, candidates_sql, -1, &list, NULL) == SQLITE_OK &&
                sqlite3_bind_text(list, 1, ask->text, -1, SQLITE_STATIC) == SQLITE_OK &&
                sqlite3_bind_text(list, 2, ask->vectors, -1, SQLITE_STATIC) == SQLITE_OK;
    for (; good && sqlite3_step(list) == SQLITE_ROW; found++) {
        const char *table  = (const char *)sqlite3_column_text(list, 0);
        const char *vector = (const char *)sqlite3_column_text(list, 1);
        fl_buf_clear(sql);
        fl_buf_puts(sql, "SELECT ");
        put_name(sql, ask->text, strlen(ask->text), "");
        fl_buf_puts(sql, ", ");
        put_name(sql, vector, strlen(vector), "");
        fl_buf_puts(sql, " FROM ");
        put_name(sql, table, strlen(table), "");
    }
    if (sqlite3_finalize(list) != SQLITE_OK || !good)
        return fail_sql(ask, db, false, error);
    if (sql->failed)
        return fl_fail_nomem(error, sql->size, "a query");
    return found == 1
               ? 0
               : fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                         "%s has %s table with a column \"%s\" and one of vectors (%s); "
                         "--field and --vector-field name the columns, or --sql \"SELECT "
                         "text, vector FROM …\" gives both",
                         ask->path, found == 0 ? "no" : "more than one", ask->text, ask->vectors);
}

static void recall(sqlite3 *db, const char *name, char out[65]) {
    sqlite3_stmt *ask = NULL;
    if (sqlite3_prepare_v2(db, "SELECT value FROM about WHERE name = ?1", -1, &ask, NULL) ==
            SQLITE_OK &&
        sqlite3_bind_text(ask, 1, name, -1, SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_step(ask) == SQLITE_ROW)
        (void)snprintf(out, 65, "%s", (const char *)sqlite3_column_text(ask, 0));
    (void)sqlite3_finalize(ask);
}

static int64_t ask_number(sqlite3 *db, const char *sql) {
    sqlite3_stmt *ask = NULL;
    const bool    good =
        sqlite3_prepare_v2(db, sql, -1, &ask, NULL) == SQLITE_OK && sqlite3_step(ask) == SQLITE_ROW;
    const int64_t number = good ? sqlite3_column_int64(ask, 0) : 0;
    (void)sqlite3_finalize(ask);
    return number;
}

static int read_rows(const fl_sqlite_ask *ask, sqlite3 *db, const char *sql, fl_sqlite_fn fn,
                     void *user, fletch_error *error) {
    sqlite3_stmt *rows   = NULL;
    const bool    asked  = ask->sql != NULL;
    int           status = 0, step = SQLITE_DONE;
    if (sqlite3_prepare_v2(db, sql, -1, &rows, NULL) != SQLITE_OK)
        return fail_sql(ask, db, asked, error);
    if (sqlite3_column_count(rows) != 2 || sqlite3_stmt_readonly(rows) == 0) {
        (void)sqlite3_finalize(rows);
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "--sql takes one SELECT of two columns, the text and its vector");
    }
    while (status == 0 && (step = sqlite3_step(rows)) == SQLITE_ROW) {
        fl_sqlite_row row = {.text        = (const char *)sqlite3_column_text(rows, 0),
                             .blob        = sqlite3_column_type(rows, 1) == SQLITE_BLOB,
                             .vector      = sqlite3_column_blob(rows, 1),
                             .vector_size = (size_t)sqlite3_column_bytes(rows, 1)};
        row.text_size     = (size_t)sqlite3_column_bytes(rows, 0);
        status            = fn(user, &row, error);
    }
    if (status == 0 && step != SQLITE_DONE)
        status = fail_sql(ask, db, asked, error);
    (void)sqlite3_finalize(rows);
    return status;
}

static int read_file(const fl_sqlite_ask *ask, sqlite3 *db, fl_sqlite_facts *facts, fl_sqlite_fn fn,
                     void *user, fletch_error *error) {
    fl_buf chosen = {0};
    (void)sqlite3_exec(db, "PRAGMA trusted_schema = OFF", NULL, NULL, NULL);
    sqlite3_busy_timeout(db, BUSY_MS);
    facts->store = ask_number(db, "PRAGMA application_id") == FL_STORE_APPLICATION;
    if (facts->store && ask->sql == NULL) {
        recall(db, "vector_id", facts->vector_id);
        recall(db, "fingerprint", facts->fingerprint);
        const int64_t format = ask_number(db, "PRAGMA user_version");
        return read_rows(ask, db,
                         store_sql[format > 0 && format < FORMAT_LAST ? format : FORMAT_LAST], fn,
                         user, error);
    }
    facts->store = false;
    FL_TRY(hide_virtual(ask, db, error));
    if (ask->sql != NULL)
        return read_rows(ask, db, ask->sql, fn, user, error);
    int status = choose_table(ask, db, &chosen, error);
    status     = status == 0 ? read_rows(ask, db, chosen.data, fn, user, error) : status;
    fl_buf_free(&chosen);
    return status;
}

void fl_sqlite_uri(fl_buf *out, const char *path, const char *query) {
    fl_buf_puts(out, "file:");
    for (const char *at = path; *at != '\0'; at++)
        if (isalnum((unsigned char)*at) != 0 || strchr("/._-", *at) != NULL)
            fl_buf_putc(out, *at);
        else
            fl_buf_printf(out, "%%%02X", (unsigned char)*at);
    fl_buf_printf(out, "?%s", query);
}

/* A database in WAL mode gets two files beside it as soon as it is opened, even to be read. Where they are not there
 * nobody has it open, and it is read as a file that does not change: from a folder that cannot be written, too. */
static int open_file(const fl_sqlite_ask *ask, sqlite3 **db, fletch_error *error) {
    const int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI;
    fl_buf    uri = {0}, beside = {0};
    fl_buf_printf(&beside, "%s-wal", ask->path);
    const bool open = !beside.failed && fl_file_exists(beside.data);
    fl_sqlite_uri(&uri, ask->path, open ? "mode=ro" : "mode=ro&immutable=1");
    int status = uri.failed || beside.failed ? fl_fail_nomem(error, uri.size, "a name") : 0;
    if (status == 0 && sqlite3_open_v2(uri.data, db, flags, NULL) != SQLITE_OK) {
        status = *db != NULL ? fail_sql(ask, *db, false, error)
                             : fl_fail_nomem(error, sizeof *ask, "SQLite");
    }
    fl_buf_free(&uri);
    fl_buf_free(&beside);
    return status;
}

int fl_sqlite_read(const fl_sqlite_ask *ask, fl_sqlite_facts *facts, fl_sqlite_fn fn, void *user,
                   fletch_error *error) {
    sqlite3 *db = NULL;
    *facts      = (fl_sqlite_facts){.store = false};
    int status  = open_file(ask, &db, error);
    status      = status == 0 ? read_file(ask, db, facts, fn, user, error) : status;
    (void)sqlite3_close(db);
    return status;
}
