/* SPDX-License-Identifier: Apache-2.0 */
/* store_move.c - the texts of a store into another one, with vectors of another model.
 *
 * Role    `fletch run --re-embed STORE` (cli/move_store.c). A store belongs to one model; this is how its texts come to
 *         the next, while the server of the old one goes on.
 * Method  `to` is made, locked and marked as any store (store.h), and `from` is attached to a connection of its own
 *         that cannot write it. Items whose text changed or that are gone are deleted from `to`, then those that it
 *         lacks are embedded, BATCH to a transaction that is on the disk when it ends: a kill costs one. Who writes
 *         into `from` meanwhile runs it once more, which takes what is new. "moving" in `about`, which fl_store_load
 *         refuses, becomes "moved" at the end, which goes when a server opens the store: from then on it has items
 *         of its own, and nothing is moved into it.
 * Memory  a batch of texts and vectors. Threads: none of its own. Proof tests/server/test_store_move.py. */
#include "store/store_move.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cosine.h"
#include "base/error.h"
#include "base/mem.h"
#include "store/sqlite_rows.h"
#include "store/store.h"

enum { BATCH = 256, BATCH_BYTES = 4 << 20, BUSY_MS = 5000 };

/* One by its key is the same if its text is; id and metadata may change without it. */
#define SAME "o.seq = n.seq AND o.text = n.text"

static const char drop_sql[] =
    "DELETE FROM main.items AS n WHERE NOT EXISTS (SELECT 1 FROM old.items o WHERE " SAME ")";
static const char update_sql[] =
    "UPDATE main.items AS n SET id = o.id, metadata = o.metadata, created = o.created FROM "
    "old.items o WHERE o.seq = n.seq AND (n.id IS NOT o.id OR n.metadata IS NOT o.metadata OR "
    "n.created IS NOT o.created)";
static const char next_sql[] = "SELECT seq, text FROM old.items o WHERE NOT EXISTS (SELECT 1 FROM "
                               "main.items n WHERE n.seq = o.seq) ORDER BY seq LIMIT ?1";

/* Whether `to` was filled by nobody but us: it has the mark, or nothing else. */
static const char ours_sql[] = "SELECT (SELECT count(*) FROM main.about WHERE name IN ('moving', "
                               "'moved')) + (SELECT count(*) = 0 FROM main.items)";
/* The server that opens it makes the index of words anew. */
static const char mark_sql[] = "INSERT OR IGNORE INTO main.about VALUES ('moving', ''); "
                               "INSERT OR REPLACE INTO main.about VALUES ('words', 'stale')";
static const char done_sql[] = "UPDATE OR REPLACE main.about SET name = 'moved' WHERE name = "
                               "'moving'";
#define PUT(columns)                                                                               \
    "INSERT INTO main.items(seq, id, text, metadata, created, vector" columns                      \
    ") SELECT seq, id, text, metadata, created, ?2" columns                                        \
    " FROM old.items WHERE seq = ?1 AND text = ?3"
static const char put_sql[] = PUT("");
static const char put_place_sql[] =
    PUT(", document, chunk, byte_begin, byte_end, char_begin, char_end");

/* A store of an earlier version has no columns for chunks. */
static const char places_sql[] =
    "SELECT count(*) FROM pragma_table_info('items', 'old') WHERE name = 'document'";
static const char contexts_sql[] = "SELECT count(*) FROM old.items WHERE context IS NOT NULL";
/* Nor has one of format 2 this. */
static const char late_column_sql[] =
    "SELECT count(*) FROM pragma_table_info('items', 'old') WHERE name = 'late'";
static const char late_sql[] = "SELECT count(*) FROM old.items WHERE late = 1";

typedef struct mover {
    const fl_store_move *move;
    sqlite3             *db;
    size_t               columns;
    uint64_t             total, places; /* items; not 0: they may be chunks */
    fl_buf               text;          /* of the batch, one after the other */
    int64_t              keys[BATCH];
    size_t               at[BATCH], size[BATCH], count;
    const char          *texts[BATCH];
    float               *rows; /* owned [BATCH, columns] */
} mover;

static int fail_sql(const mover *m, fletch_error *error) {
    const int code = sqlite3_errcode(m->db) & 0xFF;
    return fl_fail(error,
                   code == SQLITE_NOMEM  ? FLETCH_ENOMEM
                   : code == SQLITE_FULL ? FLETCH_ENOSPC
                                         : FLETCH_EIO,
                   FLETCH_NOWHERE, "moving %s to %s: %s", m->move->from, m->move->to,
                   sqlite3_errmsg(m->db));
}

static int run_sql(const mover *m, const char *sql, fletch_error *error) {
    return sqlite3_exec(m->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail_sql(m, error);
}

static int ask_number(const mover *m, const char *sql, uint64_t *out, fletch_error *error) {
    sqlite3_stmt *ask  = NULL;
    bool          good = sqlite3_prepare_v2(m->db, sql, -1, &ask, NULL) == SQLITE_OK &&
                sqlite3_step(ask) == SQLITE_ROW;
    *out = good ? (uint64_t)sqlite3_column_int64(ask, 0) : 0;
    return sqlite3_finalize(ask) == SQLITE_OK && good ? 0 : fail_sql(m, error);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static int attach(const mover *m, fletch_error *error) {
    sqlite3_stmt *attach = NULL;
    fl_buf        uri    = {0};
    fl_sqlite_uri(&uri, m->move->from, "mode=ro"); /* a server may have it open */
    bool good = !uri.failed &&
                sqlite3_prepare_v2(m->db, "ATTACH ?1 AS old", -1, &attach, NULL) == SQLITE_OK &&
                sqlite3_bind_text(attach, 1, uri.data, -1, SQLITE_STATIC) == SQLITE_OK &&
                sqlite3_step(attach) == SQLITE_DONE;
    int status = good ? 0 : fail_sql(m, error);
    (void)sqlite3_finalize(attach);
    fl_buf_free(&uri);
    return status;
}

/* Before anything is made: `from` is a store, and another file. */
static int check_files(const fl_store_move *move, fletch_error *error) {
    struct stat a, b;
    mover       m = {.move = move};
    if (stat(move->from, &a) != 0)
        return fl_fail(error, FLETCH_ENOTFOUND, FLETCH_NOWHERE, "no such store: %s", move->from);
    if (stat(move->to, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s cannot be moved onto itself; name another file", move->to);
    }
    uint64_t  application = 0;
    const int flags       = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX;
    bool      good        = sqlite3_open_v2(move->from, &m.db, flags, NULL) == SQLITE_OK &&
                ask_number(&m, "PRAGMA application_id", &application, error) == 0;
    (void)sqlite3_close(m.db);
    return good && application == FL_STORE_APPLICATION
               ? 0
               : fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                         "%s is not a store of fletch; --re-embed takes one, or the folder of a "
                         "job",
                         move->from);
}

/* What an item's text alone does not say: a context is a template around what is embedded, and what fills it is the
 * server's business; a late chunk is of its document, which its chunks need not have whole. */
static int check_items(mover *m, fletch_error *error) {
    uint64_t contexts = 0, late = 0;
    FL_TRY(ask_number(m, places_sql, &m->places, error));
    if (m->places > 0) {
        FL_TRY(ask_number(m, contexts_sql, &contexts, error));
        FL_TRY(ask_number(m, late_column_sql, &late, error));
    }
    if (late > 0)
        FL_TRY(ask_number(m, late_sql, &late, error));
    return contexts + late == 0
               ? 0
               : fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                         "%s has %llu %s, which cannot be re-embedded; add those documents to the "
                         "new store",
                         m->move->from, (unsigned long long)(contexts > 0 ? contexts : late),
                         contexts > 0 ? "items with a context" : "chunks of late chunking");
}

static int open_both(mover *m, fletch_error *error) {
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI;
    if (sqlite3_open_v2(m->move->to, &m->db, flags, NULL) != SQLITE_OK)
        return m->db != NULL ? fail_sql(m, error) : fl_fail_nomem(error, sizeof *m, "SQLite");
    sqlite3_busy_timeout(m->db, BUSY_MS);
    FL_TRY(run_sql(m, "PRAGMA synchronous=FULL", error));
    FL_TRY(attach(m, error));
    FL_TRY(check_items(m, error));
    m->columns = fletch_dimensions(m->move->model);
    m->rows    = fl_alloc_array(BATCH, m->columns * sizeof *m->rows);
    if (m->rows == NULL)
        return fl_fail_nomem(error, BATCH * m->columns * sizeof *m->rows, "rows");
    uint64_t ours = 0;
    FL_TRY(ask_number(m, ours_sql, &ours, error));
    return ours > 0 ? run_sql(m, mark_sql, error)
                    : fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                              "%s is a store with texts of its own, which a move would delete; "
                              "name a new file",
                              m->move->to);
}

/* ---- Items ----------------------------------------------------------------------------------- */

/* The next items that `to` lacks. */
static int read_batch(mover *m, fletch_error *error) {
    sqlite3_stmt *next = NULL;
    int           code = SQLITE_ERROR;
    m->count           = 0;
    fl_buf_clear(&m->text);
    if (sqlite3_prepare_v2(m->db, next_sql, -1, &next, NULL) == SQLITE_OK &&
        sqlite3_bind_int64(next, 1, BATCH) == SQLITE_OK) {
        while (m->text.size < BATCH_BYTES && (code = sqlite3_step(next)) == SQLITE_ROW) {
            const size_t size = (size_t)sqlite3_column_bytes(next, 1);
            m->keys[m->count] = sqlite3_column_int64(next, 0);
            m->at[m->count]   = m->text.size;
            m->size[m->count] = size;
            m->count++;
            fl_buf_append(&m->text, sqlite3_column_text(next, 1), size);
        }
    }
    bool good = code == SQLITE_ROW || code == SQLITE_DONE;
    good      = sqlite3_finalize(next) == SQLITE_OK && good;
    for (size_t i = 0; i < m->count; i++)
        m->texts[i] = m->size[i] > 0 ? m->text.data + m->at[i] : "";
    return m->text.failed ? fl_fail_nomem(error, m->text.size, "the texts of a store")
           : good         ? 0
                          : fail_sql(m, error);
}

/* As /add does: of length 1. */
static int embed_batch(const mover *m, fletch_error *error) {
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    fletch_texts         texts   = {.count = m->count, .pointers = m->texts, .lengths = m->size};
    fletch_matrix        out     = fletch_matrix_f32(m->rows, m->count, m->columns);
    options.normalize            = 1;
    if (fletch_embed(m->move->model, &texts, &options, &out, error) < 0) {
        if (error->where < m->count) {
            fl_error_prefix(error, "item %lld of %s", (long long)m->keys[error->where],
                            m->move->from);
        }
        return error->code;
    }
    for (size_t i = 0; i < m->count; i++) {
        if (!fl_vector_normalize(m->rows + i * m->columns, m->columns)) {
            return fl_fail(error, FLETCH_EMODEL, i, "the vector of item %lld is zero or not finite",
                           (long long)m->keys[i]);
        }
    }
    return 0;
}

/* *written: those whose text is still the one that was embedded. */
static int write_batch(const mover *m, uint64_t *written, fletch_error *error) {
    sqlite3_stmt *put  = NULL;
    *written           = 0;
    int         status = run_sql(m, "BEGIN IMMEDIATE", error);
    const char *sql    = m->places > 0 ? put_place_sql : put_sql;
    if (status == 0 && sqlite3_prepare_v2(m->db, sql, -1, &put, NULL) != SQLITE_OK)
        status = fail_sql(m, error);
    for (size_t i = 0; status == 0 && i < m->count; i++) {
        bool good = sqlite3_bind_int64(put, 1, m->keys[i]) == SQLITE_OK &&
                    sqlite3_bind_blob64(put, 2, m->rows + i * m->columns,
                                        m->columns * sizeof *m->rows, SQLITE_STATIC) == SQLITE_OK &&
                    sqlite3_bind_text64(put, 3, m->texts[i], m->size[i], SQLITE_STATIC,
                                        SQLITE_UTF8) == SQLITE_OK &&
                    sqlite3_step(put) == SQLITE_DONE;
        status = good ? 0 : fail_sql(m, error);
        *written += good ? (uint64_t)sqlite3_changes64(m->db) : 0;
        (void)sqlite3_reset(put);
    }
    (void)sqlite3_finalize(put);
    status = status == 0 ? run_sql(m, "COMMIT", error) : status;
    if (status < 0 && sqlite3_get_autocommit(m->db) == 0)
        (void)sqlite3_exec(m->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

static int move_items(mover *m, fl_store_move *move, fletch_error *error) {
    FL_TRY(ask_number(m, "SELECT count(*) FROM old.items", &m->total, error));
    FL_TRY(run_sql(m, drop_sql, error));
    move->dropped = (uint64_t)sqlite3_changes64(m->db);
    FL_TRY(run_sql(m, update_sql, error));
    FL_TRY(ask_number(m, "SELECT count(*) FROM main.items", &move->before, error));
    FL_TRY(read_batch(m, error));
    while (m->count > 0) {
        uint64_t written = 0;
        FL_TRY(embed_batch(m, error));
        FL_TRY(write_batch(m, &written, error));
        if (written == 0) {
            return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                           "item %lld of %s is damaged or keeps changing", (long long)m->keys[0],
                           move->from);
        }
        move->made += written;
        move->progress(move->user, move->before + move->made, m->total);
        FL_TRY(read_batch(m, error));
    }
    return run_sql(m, done_sql, error);
}

/* ---- The store that comes of it -------------------------------------------------------------- */

/* `to` made or found, and of this model. */
static int begin(const fl_store_move *move, fl_store *store, fletch_error *error) {
    const fletch_embed_options unit = {.size = sizeof unit, .normalize = 1};
    fletch_model_info          info = {.size = sizeof info};
    char                       fingerprint[65], mark[160], id[65], first[65];
    FL_TRY(fletch_model_info_get(move->model, &info, error));
    FL_TRY(fletch_model_fingerprint(move->model, fingerprint, error));
    FL_TRY(fletch_vector_id(move->model, &unit, FLETCH_FLOAT32, id, error));
    (void)snprintf(mark, sizeof mark, "%s %s", fingerprint, info.pooling);
    FL_TRY(fl_store_begin(store, move->name, mark, info.dimensions, error));
    FL_TRY(fl_store_recall(store, "vector_id", id, first, sizeof first, error));
    return strcmp(id, first) == 0
               ? 0
               : fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                         "%s was created under vector id %.12s, but this model and its settings "
                         "have %.12s; use the earlier ones, or name another file",
                         move->to, first, id);
}

int fl_store_move_run(fl_store_move *move, fletch_error *error) {
    fl_store *store = NULL;
    mover     m     = {.move = move};
    move->before = move->made = move->dropped = 0;
    FL_TRY(check_files(move, error));
    int status = fl_store_open(&store, move->to, error);
    status     = status == 0 ? begin(move, store, error) : status;
    status     = status == 0 ? open_both(&m, error) : status;
    status     = status == 0 ? move_items(&m, move, error) : status;
    (void)sqlite3_close(m.db);
    fl_store_close(store);
    fl_free(m.rows);
    fl_buf_free(&m.text);
    return status;
}
