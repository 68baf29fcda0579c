/* SPDX-License-Identifier: Apache-2.0 */
/* store.c - texts with their vectors that last: one SQLite file, or bounded memory, searched in memory.
 *
 * Role    and Method: store.h.
 * In/Out  Two connections: one belongs to the writing thread, the other, under a lock, reads texts for
 *         answers. In WAL mode they do not wait for each other. In memory (":memory:") there is one for both,
 *         and the writing thread takes the readers' lock; a bound of pages is the bound of bytes.
 *         Metadata is looked at a slice after the other: the lock is held while a slice is copied, and what
 *         passes is found without it. Who waits for the lock asks whether it is still waited for.
 *         Words are looked for by connections of their own, one for each worker; in memory a slice after the other.
 * Format  items(seq, id, text, metadata, vector, created, document, chunk, byte_begin …, context), vectors as
 *         little-endian float32 of length 1. A chunk's document is the id that it was added under, and its own id
 *         that with a number behind a control character, which no other id has. words is the index of their texts;
 *         about(name, value) says which model made them, and whether words is in step. application_id and
 *         user_version tell a file of fletch from others: 1 had no chunks and no words, 2 no late chunks; they are
 *         brought up to date in one transaction. `sqlite3 FILE` may read it at any time.
 * Errors  A group that cannot be written is undone whole, and each of its writers hears of it.
 * Memory  SQLite's own, 2 MiB of cache a connection. Threads: store.h.
 * Proof   tests/server/test_store.py kills the server in the middle of a load and counts. */
#include "store/store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "base/locked.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "store/word_index.h"

enum {
    FORMAT       = 3,
    FORMAT_PLAIN = 2, /* without late chunks */
    FORMAT_OLD   = 1, /* without chunks */
    BUSY_MS      = 5000,
    PAGE         = 4096,
    SLICE_ROWS   = 256,
    SLICE_BYTES  = 256 * 1024, /* looked at while the lock is held, and a row */
    SLICE_WORDS  = 2048,       /* items that have one of the words, likewise */
    PAGE_NS      = 30000,      /* to read a page and judge it, or write it as JSON */
    ITEM_NS      = 2000,       /* to judge an item by words, */
    WORD_NS      = 400         /* and for each of them */
};

enum { BEGIN, COMMIT, ROLLBACK, PUT, PUT_CHUNK, DROP, DROP_CHUNKS, CLEAR, PAGES, WRITER_COUNT };
enum { WORD, UNWORD, UNWORD_ALL, WORD_SQL_COUNT };
enum { BY_ID, BY_CHUNK, BY_KEY, METADATA, LIST, READER_COUNT };

#define CHUNK_ID(id, chunk) id " || char(31) || " chunk /* 31: no id that is sent may have it */
/* What is kept under an id; that of a chunk is none. */
#define IS_OF(id) "(id = " id " AND document IS NULL) OR document = " id

static const char *const writer_sql[WRITER_COUNT] = {
    [BEGIN]     = "BEGIN IMMEDIATE",
    [COMMIT]    = "COMMIT",
    [ROLLBACK]  = "ROLLBACK",
    [PUT]       = "INSERT INTO items(id, text, metadata, vector, context, created) VALUES (?1, "
                  "?2, ?3, ?4, ?5, unixepoch()) ON CONFLICT(id) DO UPDATE SET text = "
                  "excluded.text, metadata = excluded.metadata, vector = excluded.vector, "
                  "context = excluded.context, created = excluded.created RETURNING seq",
    [PUT_CHUNK] = "INSERT INTO items(id, text, metadata, vector, context, created, document, "
                  "chunk, byte_begin, byte_end, char_begin, char_end, late) VALUES (" CHUNK_ID(
                      "?1", "?6") ", ?2, ?3, ?4, ?5, unixepoch(), ?1, ?6, ?7, ?8, ?9, ?10, ?11) "
                                  "RETURNING seq",
    [DROP]        = "DELETE FROM items WHERE " IS_OF("?1") " RETURNING seq",
    [DROP_CHUNKS] = "DELETE FROM items WHERE document = ?1 RETURNING seq",
    [CLEAR]       = "DELETE FROM items",
    [PAGES]       = "PRAGMA page_count",
};

/* What keeps the index of words in step: an item's words are taken out by its text, before that is replaced. */
static const char *const word_sql[WORD_SQL_COUNT] = {
    [WORD] = "INSERT INTO words(rowid, text) VALUES (?1, ?2)",
    [UNWORD] =
        "INSERT INTO words(words, rowid, text) SELECT 'delete', seq, text FROM items WHERE " IS_OF(
            "?1"),
    [UNWORD_ALL] = "INSERT INTO words(words) VALUES ('delete-all')",
};

#define COLUMNS                                                                                    \
    "SELECT coalesce(document, id), text, metadata, vector, created, seq, chunk, byte_begin, "     \
    "byte_end, char_begin, char_end, context, late FROM items WHERE "

static const char *const reader_sql[READER_COUNT] = {
    [BY_ID]    = COLUMNS "id = ?1 AND document IS NULL",
    [BY_CHUNK] = COLUMNS "id = " CHUNK_ID("?1", "?2"),
    [BY_KEY]   = COLUMNS "seq = ?1",
    [METADATA] = "SELECT seq, metadata FROM items WHERE seq > ?1 ORDER BY seq LIMIT ?2",
    [LIST]     = "SELECT seq FROM items ORDER BY seq LIMIT ?1 OFFSET ?2",
};

/* A connection that looks for words, and whose turn it is. */
typedef struct word_reader {
    sqlite3         *db;
    fl_words        *words;
    pthread_mutex_t *lock, own;
} word_reader;

FL_LOCK_ROLE(queue_role); /* the lock of fl_store: what is to be written */
struct fl_store {
    char           *path;
    size_t          columns;
    bool            lasts; /* in a file; else reader is writer */
    fl_vectors     *vectors;
    int             lock_fd;
    sqlite3        *writer, *reader;
    sqlite3_stmt   *write[WRITER_COUNT];
    sqlite3_stmt   *keep[WORD_SQL_COUNT]; /* NULL where there is no FTS5 */
    sqlite3_stmt   *read[READER_COUNT];
    word_reader     word_readers[FL_STORE_READERS];
    size_t          word_reader_count; /* 0: no FTS5 */
    pthread_mutex_t read_lock, lock;
    pthread_cond_t  more;
    fl_write *first FL_GUARDED_BY(queue_role), **last FL_GUARDED_BY(queue_role);
    bool ending     FL_GUARDED_BY(queue_role);
    bool            running;
    _Atomic int64_t pages; /* of the database */
    pthread_t       thread;
};

FL_LOCK_OF(queue_role, fl_store, lock, lock, unlock);

/* ---- Errors -------------------------------------------------------------------------------------- */

static int fail_sql(const fl_store *store, sqlite3 *db, fletch_error *error) {
    int  code    = sqlite3_errcode(db) & 0xFF;
    bool damaged = code == SQLITE_NOTADB || code == SQLITE_CORRUPT;
    if (code == SQLITE_FULL && !store->lasts) {
        return fl_fail(error, FLETCH_ENOSPC, FLETCH_NOWHERE,
                       "the in-memory store is full (limit %d MiB): delete items, or start the "
                       "server with --server-store FILE",
                       (int)(FL_STORE_MEMORY >> 20));
    }
    return fl_fail(error,
                   code == SQLITE_FULL    ? FLETCH_ENOSPC
                   : code == SQLITE_NOMEM ? FLETCH_ENOMEM
                                          : FLETCH_EIO,
                   FLETCH_NOWHERE, "%s: %s%s", store->path, sqlite3_errmsg(db),
                   damaged ? "; restore it from a copy, or name another file with server.store"
                           : "");
}

static int run_sql(const fl_store *store, sqlite3 *db, const char *sql, fletch_error *error) {
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? FLETCH_OK
                                                                : fail_sql(store, db, error);
}

/* ---- Opening ------------------------------------------------------------------------------------- */

/* Make the file if it is not there, and call it by the one name that it has whatever links lead to it: the lock
 * is beside it. */
static int find_file(fl_store *store, fletch_error *error) {
    char        real[PATH_MAX];
    struct stat info;
    int         fd = open(store->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
    if (fd < 0 || fstat(fd, &info) != 0 || realpath(store->path, real) == NULL) {
        fl_close(fd);
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                       "cannot open %s: %s; server.store names a file in a folder that exists and "
                       "that this user may write",
                       store->path, strerror(errno));
    }
    (void)close(fd);
    if (!S_ISREG(info.st_mode) || info.st_nlink > 1) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE, "cannot open %s: it %s", store->path,
                       S_ISREG(info.st_mode) ? "has more than one name (hard links), so that "
                                               "another process could have it open unseen"
                                             : "is not a file");
    }
    char *path = fl_strdup(real);
    if (path == NULL)
        return fl_fail_nomem(error, strlen(real), "the store's path");
    fl_free(store->path);
    store->path = path;
    return FLETCH_OK;
}

/* Two processes on one file would each search only what they added themselves. */
static int take_lock(fl_store *store, fletch_error *error) {
    fl_buf name = {0};
    fl_buf_printf(&name, "%s.lock", store->path);
    if (name.failed)
        return fl_fail_nomem(error, strlen(store->path), "the store's path");
    int status     = FLETCH_OK;
    store->lock_fd = open(name.data, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (store->lock_fd < 0) {
        status = fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                         "cannot open the store's lock %s: %s; server.store names a file in a "
                         "folder that exists and that this user may write",
                         name.data, strerror(errno));
    } else if (flock(store->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        status =
            fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                    "%s is in use by another process; give each its own server.store", store->path);
    }
    fl_buf_free(&name);
    return status;
}

static int connect(fl_store *store, sqlite3 **db, fletch_error *error) {
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(store->path, db, flags, NULL) != SQLITE_OK) {
        return *db != NULL ? fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                                     "cannot open %s: %s; name a file in a folder that exists and "
                                     "may be written with server.store",
                                     store->path, sqlite3_errmsg(*db))
                           : fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE, "out of memory");
    }
    sqlite3_busy_timeout(*db, BUSY_MS);
    return run_sql(store, *db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;", error);
}

static int connect_memory(fl_store *store, fletch_error *error) {
    char sql[96];
    if (sqlite3_open_v2(":memory:", &store->writer,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY | SQLITE_OPEN_NOMUTEX,
                        NULL) != SQLITE_OK)
        return fl_fail_nomem(error, PAGE, "the store in memory");
    (void)snprintf(sql, sizeof sql, "PRAGMA page_size=%d; PRAGMA max_page_count=%d;", PAGE,
                   (int)(FL_STORE_MEMORY / 2 / PAGE));
    return run_sql(store, store->writer, sql, error);
}

static int64_t ask_number(sqlite3 *db, const char *sql) {
    sqlite3_stmt *ask    = NULL;
    int64_t       number = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &ask, NULL) == SQLITE_OK && sqlite3_step(ask) == SQLITE_ROW)
        number = sqlite3_column_int64(ask, 0);
    sqlite3_finalize(ask);
    return number;
}

/* Of what is there, whose format is `format`, 0 where there is nothing. */
static int write_tables(const fl_store *store, int64_t format, fletch_error *error) {
    static const char *const places[] = {
        "late INTEGER",     "document TEXT",      "chunk INTEGER",    "byte_begin INTEGER",
        "byte_end INTEGER", "char_begin INTEGER", "char_end INTEGER", "context TEXT"};
    const size_t columns = format == FORMAT_PLAIN ? 1 : sizeof places / sizeof *places;
    fl_buf       sql     = {0};
    fl_buf_puts(&sql, "BEGIN IMMEDIATE;");
    if (format == 0) {
        fl_buf_puts(&sql, "CREATE TABLE items(seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT "
                          "UNIQUE NOT NULL, text TEXT NOT NULL, metadata TEXT, vector BLOB NOT "
                          "NULL, created INTEGER NOT NULL); CREATE TABLE about(name TEXT PRIMARY "
                          "KEY, value TEXT NOT NULL) WITHOUT ROWID;");
    }
    for (size_t i = 0; i < columns; i++)
        fl_buf_printf(&sql, "ALTER TABLE items ADD COLUMN %s;", places[i]);
    fl_buf_printf(
        &sql,
        "CREATE INDEX IF NOT EXISTS items_document ON items(document) WHERE document IS NOT NULL; "
        "PRAGMA application_id=%d; PRAGMA user_version=%d; COMMIT",
        FL_STORE_APPLICATION, FORMAT);
    int status = sql.failed ? fl_fail_nomem(error, sql.size, "the store's tables")
                            : run_sql(store, store->writer, sql.data, error);
    fl_buf_free(&sql);
    return status;
}

static int make_tables(const fl_store *store, fletch_error *error) {
    sqlite3 *db          = store->writer;
    int64_t  application = ask_number(db, "PRAGMA application_id");
    int64_t  format      = ask_number(db, "PRAGMA user_version");
    if (application == FL_STORE_APPLICATION && format == FORMAT)
        return FLETCH_OK;
    bool fresh = application == 0 && format == 0 &&
                 ask_number(db, "SELECT count(*) FROM sqlite_schema") == 0;
    if (!fresh &&
        (application != FL_STORE_APPLICATION || (format != FORMAT_OLD && format != FORMAT_PLAIN))) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s is %s; name another file with server.store", store->path,
                       application == FL_STORE_APPLICATION ? "of another version of fletch"
                                                           : "not a store of fletch");
    }
    return write_tables(store, format, error);
}

/* The value that the file has under `name`; `value` when it had none before. False: SQLite failed. */
static bool recall(sqlite3 *db, const char *name, const char *value, char *out, size_t size) {
    static const char sql[] = "INSERT INTO about VALUES (?1, ?2) "
                              "ON CONFLICT(name) DO UPDATE SET value = value RETURNING value";
    sqlite3_stmt     *ask   = NULL;
    bool              good  = sqlite3_prepare_v2(db, sql, -1, &ask, NULL) == SQLITE_OK &&
                sqlite3_bind_text(ask, 1, name, -1, SQLITE_STATIC) == SQLITE_OK &&
                sqlite3_bind_text(ask, 2, value, -1, SQLITE_STATIC) == SQLITE_OK &&
                sqlite3_step(ask) == SQLITE_ROW;
    if (good)
        (void)snprintf(out, size, "%s", (const char *)sqlite3_column_text(ask, 0));
    return sqlite3_finalize(ask) == SQLITE_OK && good;
}

int fl_store_recall(const fl_store *store, const char *name, const char *value, char *out,
                    size_t size, fletch_error *error) {
    return recall(store->writer, name, value, out, size) ? FLETCH_OK
                                                         : fail_sql(store, store->writer, error);
}

static int check_model(const fl_store *store, const char *model, const char *fingerprint,
                       fletch_error *error) {
    char columns[24], theirs[3][256];
    (void)snprintf(columns, sizeof columns, "%zu", store->columns);
    if (!recall(store->writer, "model", model, theirs[0], sizeof theirs[0]) ||
        !recall(store->writer, "fingerprint", fingerprint, theirs[1], sizeof theirs[1]) ||
        !recall(store->writer, "columns", columns, theirs[2], sizeof theirs[2]))
        return fail_sql(store, store->writer, error);
    if (strcmp(theirs[1], fingerprint) == 0 && strcmp(theirs[2], columns) == 0)
        return FLETCH_OK;
    return fl_fail(
        error, FLETCH_ECONFIG, FLETCH_NOWHERE,
        "%s holds vectors of another model: '%s' (%s numbers, fingerprint %.12s), and the "
        "first model of this server is '%s' (%s numbers, fingerprint %.12s); serve that "
        "model, name another file with server.store, or move the texts: fletch run --re-embed %s "
        "-o NEW -m MODEL",
        store->path, theirs[0], theirs[2], theirs[1], model, columns, fingerprint, store->path);
}

/* Every vector of the file into memory. */
static int load(const fl_store *store, fletch_error *error) {
    sqlite3_stmt *ask    = NULL;
    int           status = FLETCH_OK, step = SQLITE_ERROR;
    if (sqlite3_prepare_v2(store->reader, "SELECT seq, vector FROM items ORDER BY seq", -1, &ask,
                           NULL) == SQLITE_OK) {
        while (status == FLETCH_OK && (step = sqlite3_step(ask)) == SQLITE_ROW) {
            int64_t     key   = sqlite3_column_int64(ask, 0);
            const void *row   = sqlite3_column_blob(ask, 1);
            size_t      bytes = (size_t)sqlite3_column_bytes(ask, 1);
            if (row == NULL || bytes != store->columns * sizeof(float)) {
                status =
                    fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                            "%s is damaged: the vector of item %lld has %zu bytes; delete that "
                            "row with sqlite3, or restore the file from a copy",
                            store->path, (long long)key, bytes);
            } else if ((status = fl_vectors_reserve(store->vectors, 1, error)) == FLETCH_OK) {
                fl_vectors_put(store->vectors, key, row);
            }
        }
    }
    if (status == FLETCH_OK && step != SQLITE_DONE)
        status = fail_sql(store, store->reader, error);
    sqlite3_finalize(ask);
    return status;
}

static int prepare(const fl_store *store, sqlite3 *db, const char *const *sql, sqlite3_stmt **out,
                   size_t count, fletch_error *error) {
    for (size_t i = 0; i < count; i++)
        if (sqlite3_prepare_v3(db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &out[i], NULL) !=
            SQLITE_OK)
            return fail_sql(store, db, error);
    return FLETCH_OK;
}

/* ---- The index of words -------------------------------------------------------------------------- */

/* A store that was written without FTS5 has an index that is out of step: it is made anew. */
static int make_words(fl_store *store, fletch_error *error) {
    sqlite3 *db    = store->writer;
    bool     there = ask_number(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'words'") > 0;
    if (!fl_words_known(db)) {
        return there ? run_sql(store, db, "INSERT OR REPLACE INTO about VALUES ('words', 'stale')",
                               error)
                     : FLETCH_OK;
    }
    store->word_reader_count = store->lasts ? FL_STORE_READERS : 1;
    if (there && ask_number(db, "SELECT value = 'whole' FROM about WHERE name = 'words'") == 1)
        return FLETCH_OK;
    return run_sql(store, db,
                   "BEGIN IMMEDIATE; " FL_WORDS_CREATE "; " FL_WORDS_REBUILD
                   "; INSERT OR REPLACE INTO about VALUES ('words', 'whole'); COMMIT",
                   error);
}

static int open_words(fl_store *store, fletch_error *error) {
    for (size_t i = 0; i < store->word_reader_count; i++) {
        word_reader *one = &store->word_readers[i];
        one->db          = store->writer;
        one->lock        = store->lasts ? &one->own : &store->read_lock;
        if (store->lasts)
            FL_TRY(connect(store, &one->db, error));
        if (fl_words_open(&one->words, one->db) != SQLITE_OK)
            return fail_sql(store, one->db, error);
    }
    return FLETCH_OK;
}

static void *run(void *arg);

int fl_store_begin(fl_store *store, const char *model, const char *fingerprint, size_t columns,
                   fletch_error *error) {
    store->columns = columns;
    return check_model(store, model, fingerprint, error);
}

int fl_store_load(fl_store *store, const char *model, const char *fingerprint, size_t columns,
                  const fl_coarse *coarse, fletch_error *error) {
    FL_TRY(fl_store_begin(store, model, fingerprint, columns, error));
    if (ask_number(store->writer, "SELECT count(*) FROM about WHERE name = 'moving'") != 0) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s does not have all texts of the store being moved into it: rerun the "
                       "same fletch run --re-embed",
                       store->path);
    }
    FL_TRY(run_sql(store, store->writer, "DELETE FROM about WHERE name = 'moved'", error));
    if (store->lasts)
        FL_TRY(connect(store, &store->reader, error));
    else
        store->reader = store->writer;
    FL_TRY(fl_vectors_open(&store->vectors, store->columns, coarse, error));
    FL_TRY(load(store, error));
    FL_TRY(prepare(store, store->writer, writer_sql, store->write, WRITER_COUNT, error));
    FL_TRY(prepare(store, store->reader, reader_sql, store->read, READER_COUNT, error));
    FL_TRY(make_words(store, error));
    FL_TRY(open_words(store, error));
    if (store->word_reader_count > 0)
        FL_TRY(prepare(store, store->writer, word_sql, store->keep, WORD_SQL_COUNT, error));
    atomic_store(&store->pages, ask_number(store->writer, writer_sql[PAGES]));
    FL_TRY(fl_thread_start(&store->thread, "store", run, store, error));
    store->running = true;
    return FLETCH_OK;
}

static int open_database(fl_store *store, fletch_error *error) {
    if (!store->lasts) {
        FL_TRY(connect_memory(store, error));
    } else {
        FL_TRY(find_file(store, error));
        FL_TRY(take_lock(store, error));
        FL_TRY(connect(store, &store->writer, error));
    }
    return make_tables(store, error);
}

FL_UNCHECKED int fl_store_open(fl_store **out, const char *path, fletch_error *error) {
    fl_store *store = fl_alloc_zero(1, sizeof *store);
    *out            = NULL;
    bool lasts      = path[0] != '\0';
    if (store == NULL || (store->path = fl_strdup(lasts ? path : "the store in memory")) == NULL) {
        fl_free(store);
        return fl_fail_nomem(error, sizeof *store, "the store");
    }
    store->lasts   = lasts;
    store->lock_fd = -1;
    store->last    = &store->first;
    pthread_mutex_init(&store->lock, NULL);
    pthread_mutex_init(&store->read_lock, NULL);
    for (size_t i = 0; i < FL_STORE_READERS; i++)
        pthread_mutex_init(&store->word_readers[i].own, NULL);
    pthread_cond_init(&store->more, NULL);
    int status = open_database(store, error);
    if (status < 0) {
        fl_store_close(store);
        return status;
    }
    *out = store;
    return FLETCH_OK;
}

void fl_store_close(fl_store *store) {
    if (store == NULL)
        return;
    if (store->running) {
        lock(store);
        store->ending = true;
        pthread_cond_signal(&store->more);
        unlock(store);
        pthread_join(store->thread, NULL);
    }
    for (size_t i = 0; i < WRITER_COUNT; i++)
        sqlite3_finalize(store->write[i]);
    for (size_t i = 0; i < READER_COUNT; i++)
        sqlite3_finalize(store->read[i]);
    for (size_t i = 0; i < WORD_SQL_COUNT; i++)
        sqlite3_finalize(store->keep[i]);
    for (size_t i = 0; i < FL_STORE_READERS; i++) {
        fl_words_close(store->word_readers[i].words);
        if (store->word_readers[i].db != store->writer)
            (void)sqlite3_close(store->word_readers[i].db);
        pthread_mutex_destroy(&store->word_readers[i].own);
    }
    if (store->reader != store->writer)
        (void)sqlite3_close(store->reader);
    (void)sqlite3_close(store->writer);
    fl_vectors_close(store->vectors);
    fl_close(store->lock_fd);
    pthread_cond_destroy(&store->more);
    pthread_mutex_destroy(&store->read_lock);
    pthread_mutex_destroy(&store->lock);
    fl_free(store->path);
    fl_free(store);
}

/* ---- Writing ------------------------------------------------------------------------------------- */

void fl_store_write(fl_store *store, fl_write *write) {
    assert(write);
    write->next = NULL;
    lock(store);
    *store->last = write;
    store->last  = &write->next;
    pthread_cond_signal(&store->more);
    unlock(store);
}

static bool bind_text(sqlite3_stmt *s, int at, const char *text, size_t size) {
    assert(at > 0);
    return sqlite3_bind_text64(s, at, text, size, SQLITE_STATIC, SQLITE_UTF8) == SQLITE_OK;
}

/* Run a statement to its end; the number of its first row, if any, into *key. */
static bool step(sqlite3_stmt *statement, int64_t *key) {
    int code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        *key = sqlite3_column_int64(statement, 0);
        code = sqlite3_step(statement);
    }
    return sqlite3_reset(statement) == SQLITE_OK && code == SQLITE_DONE;
}

/* A statement about the id ?1; the keys that it returns go to `gone`, unless NULL. */
static bool step_id(sqlite3_stmt *s, const char *id, size_t size, fl_buf *gone) {
    int code = bind_text(s, 1, id, size) ? SQLITE_ROW : SQLITE_ERROR;
    while (code == SQLITE_ROW && (code = sqlite3_step(s)) == SQLITE_ROW && gone != NULL) {
        int64_t key = sqlite3_column_int64(s, 0);
        fl_buf_append(gone, &key, sizeof key);
    }
    return sqlite3_reset(s) == SQLITE_OK && code == SQLITE_DONE;
}

/* Drop what has this id, chunks and their words with it; `how`: DROP, or DROP_CHUNKS where a whole item is replaced,
 * whose row stays. */
static bool drop_id(const fl_store *store, int how, const char *id, size_t size, fl_buf *gone) {
    return (store->word_reader_count == 0 || step_id(store->keep[UNWORD], id, size, NULL)) &&
           step_id(store->write[how], id, size, gone);
}

static bool put(const fl_store *store, fl_write *write, fl_stored_item *item) {
    const fl_chunk_place *place = &item->place;
    sqlite3_stmt         *s     = store->write[place->part ? PUT_CHUNK : PUT];
    int64_t               none;
    if ((!place->part || place->chunk == 0) &&
        !drop_id(store, place->part ? DROP : DROP_CHUNKS, item->id, item->id_size, &write->gone))
        return false;
    bool good =
        bind_text(s, 1, item->id, item->id_size) && bind_text(s, 2, item->text, item->text_size) &&
        bind_text(s, 3, item->metadata, item->metadata_size) &&
        bind_text(s, 5, item->context, item->context_size) &&
        sqlite3_bind_blob64(s, 4, item->row, store->columns * sizeof(float), SQLITE_STATIC) == 0;
    const int64_t numbers[] = {place->chunk,    place->bytes[0], place->bytes[1],
                               place->chars[0], place->chars[1], place->late};
    for (int i = 0; good && place->part && i < 6; i++)
        good = sqlite3_bind_int64(s, 6 + i, numbers[i]) == SQLITE_OK;
    good = good && step(s, &item->key);
    if (good && store->word_reader_count > 0) {
        s    = store->keep[WORD];
        good = sqlite3_bind_int64(s, 1, item->key) == SQLITE_OK &&
               bind_text(s, 2, item->text, item->text_size) && step(s, &none);
    }
    return good;
}

static bool carry_out(const fl_store *store, fl_write *write) {
    int64_t none;
    for (size_t i = 0; i < write->item_count; i++)
        if (!put(store, write, &write->items[i]))
            return false;
    if (write->item_count > 0)
        return true;
    if (write->drop == NULL) {
        bool cleared = (store->word_reader_count == 0 || step(store->keep[UNWORD_ALL], &none)) &&
                       step(store->write[CLEAR], &none);
        write->dropped = cleared ? (size_t)sqlite3_changes64(store->writer) : 0;
        return cleared;
    }
    bool good      = drop_id(store, DROP, write->drop, write->drop_size, &write->gone);
    write->dropped = write->gone.size / sizeof(int64_t);
    return good;
}

/* All of the group, or nothing of it, onto the disk. *out_of_step: the index of words was not that of the texts. */
static int commit_once(fl_store *store, fl_write *group, bool *out_of_step, fletch_error *error) {
    int64_t none, pages;
    size_t  rows = 0;
    bool    good = step(store->write[BEGIN], &none);
    bool    room = true; /* for the keys of what is dropped */
    for (fl_write *write = group; good && write != NULL; write = write->next) {
        fl_buf_clear(&write->gone);
        good = carry_out(store, write);
        room = room && !write->gone.failed;
        rows += write->item_count;
    }
    *out_of_step = !good && sqlite3_extended_errcode(store->writer) == SQLITE_CORRUPT_VTAB;
    int status   = !good   ? fail_sql(store, store->writer, error)
                   : !room ? fl_fail_nomem(error, rows * sizeof(int64_t), "a write to the store")
                           : fl_vectors_reserve(store->vectors, rows, error);
    if (status == FLETCH_OK && !step(store->write[COMMIT], &none))
        status = fail_sql(store, store->writer, error);
    if (status < 0 && sqlite3_get_autocommit(store->writer) == 0)
        (void)step(store->write[ROLLBACK], &none);
    if (step(store->write[PAGES], &pages))
        atomic_store(&store->pages, pages);
    return status;
}

/* Somebody else may have changed texts in the file, of which the index does not know: then it is made again, once. */
static int commit(fl_store *store, fl_write *group, fletch_error *error) {
    bool out_of_step;
    int  status = commit_once(store, group, &out_of_step, error);
    if (out_of_step && run_sql(store, store->writer, FL_WORDS_REBUILD, error) == FLETCH_OK) {
        *error = (fletch_error){0};
        status = commit_once(store, group, &out_of_step, error);
    }
    return status;
}

/* The same to the vectors in memory. What is put comes first, so that a document which is replaced is found all the
 * while; a key that is dropped never comes again. */
static void apply(const fl_store *store, const fl_write *write) {
    for (size_t i = 0; i < write->item_count; i++)
        fl_vectors_put(store->vectors, write->items[i].key, write->items[i].row);
    const int64_t *gone = (const int64_t *)(const void *)write->gone.data;
    for (size_t i = 0; i < write->gone.size / sizeof *gone; i++)
        fl_vectors_drop(store->vectors, gone[i]);
    if (write->item_count == 0 && write->drop == NULL)
        fl_vectors_clear(store->vectors);
}

/* Tell those whose request is over, and give back the others. */
static fl_write *drop_late(fl_write *group) {
    fl_write *kept = NULL, **last = &kept;
    while (group != NULL) {
        fl_write    *next  = group->next;
        fletch_error error = {0};
        group->next        = NULL;
        if (fl_asker_over(group->by, &error) < 0) {
            group->done(group, &error);
        } else {
            *last = group;
            last  = &group->next;
        }
        group = next;
    }
    return kept;
}

static void serve(fl_store *store, fl_write *group) {
    fletch_error error = {0};
    if (!store->lasts) /* one connection: nobody may read in the middle of a transaction */
        pthread_mutex_lock(&store->read_lock);
    int status = commit(store, group, &error);
    if (!store->lasts)
        pthread_mutex_unlock(&store->read_lock);
    for (fl_write *write = group; status == FLETCH_OK && write != NULL; write = write->next)
        apply(store, write);
    while (group != NULL) { /* a write is gone once it is told */
        fl_write *next = group->next;
        fl_buf    gone = group->gone;
        group->done(group, &error);
        fl_buf_free(&gone);
        group = next;
    }
}

static void *run(void *arg) {
    fl_store *store = arg;
    lock(store);
    while (store->first != NULL || !store->ending) {
        fl_write *group = store->first;
        if (group == NULL) {
            pthread_cond_wait(&store->more, &store->lock);
            continue;
        }
        store->first = NULL;
        store->last  = &store->first;
        unlock(store);
        group = drop_late(group);
        if (group != NULL)
            serve(store, group);
        lock(store);
    }
    unlock(store);
    return NULL;
}

/* ---- Reading ------------------------------------------------------------------------------------- */

size_t fl_store_count(const fl_store *store) {
    return fl_vectors_count(store->vectors);
}

size_t fl_store_columns(const fl_store *store) {
    return store->columns;
}

void fl_store_found(const fl_store *store, uint64_t *recalled, uint64_t *checked) {
    fl_vectors_recall(store->vectors, recalled, checked);
}

bool fl_store_lasts(const fl_store *store) {
    return store->lasts;
}

bool fl_store_has_words(const fl_store *store) {
    return store->word_reader_count > 0;
}

uint64_t fl_store_cost_ns(const fl_store *store, fl_effort effort) {
    uint64_t count = fl_vectors_count(store->vectors);
    uint64_t all   = (uint64_t)atomic_load(&store->pages) * PAGE_NS;
    uint64_t read  = effort.items < count ? all / count * effort.items : all;
    return read + (effort.search ? count * store->columns : 0) +
           (effort.words > 0 ? count * (ITEM_NS + effort.words * WORD_NS) : 0) +
           (effort.filter ? all : 0);
}

static bool is_utf8(const char *text, size_t size) {
    return text != NULL && fl_utf8_valid_prefix(text, size) == size;
}

/* What is wrong with a row that somebody else wrote; NULL: nothing. */
static const char *damage_of(const fl_store *store, const fl_stored_item *item, size_t bytes) {
    return item->row == NULL || bytes != store->columns * sizeof(float)
               ? "its vector does not have the model's dimensions"
           : !is_utf8(item->id, item->id_size)     ? "its id is not UTF-8"
           : !is_utf8(item->text, item->text_size) ? "its text is not UTF-8"
           : item->context != NULL && !is_utf8(item->context, item->context_size)
               ? "its context is not UTF-8"
               : NULL;
}

static int tell(const fl_store *store, sqlite3_stmt *s, fl_found_fn found, void *user,
                fletch_error *error) {
    fl_stored_item item = {
        .id       = (const char *)sqlite3_column_text(s, 0),
        .text     = (const char *)sqlite3_column_text(s, 1),
        .metadata = (const char *)sqlite3_column_text(s, 2),
        .context  = (const char *)sqlite3_column_text(s, 11),
        .row      = sqlite3_column_blob(s, 3),
        .created  = sqlite3_column_int64(s, 4),
        .key      = sqlite3_column_int64(s, 5),
        .place    = {.part  = sqlite3_column_type(s, 6) != SQLITE_NULL,
                     .late  = sqlite3_column_int(s, 12) != 0,
                     .chunk = sqlite3_column_int64(s, 6),
                     .bytes = {sqlite3_column_int64(s, 7), sqlite3_column_int64(s, 8)},
                     .chars = {sqlite3_column_int64(s, 9), sqlite3_column_int64(s, 10)}}};
    item.id_size       = (size_t)sqlite3_column_bytes(s, 0);
    item.text_size     = (size_t)sqlite3_column_bytes(s, 1);
    item.metadata_size = (size_t)sqlite3_column_bytes(s, 2);
    item.context_size  = (size_t)sqlite3_column_bytes(s, 11);
    item.damage        = damage_of(store, &item, (size_t)sqlite3_column_bytes(s, 3));
    return found(user, &item, error);
}

int fl_store_read(fl_store *store, const char *id, size_t id_size, int64_t chunk, int64_t key,
                  fl_asker by, fl_found_fn found, void *user, fletch_error *error) {
    FL_TRY(fl_asker_lock(by, &store->read_lock, error));
    sqlite3_stmt *s = store->read[id == NULL ? BY_KEY : chunk < 0 ? BY_ID : BY_CHUNK];
    (void)(id != NULL ? bind_text(s, 1, id, id_size) : sqlite3_bind_int64(s, 1, key) == SQLITE_OK);
    if (id != NULL && chunk >= 0)
        (void)sqlite3_bind_int64(s, 2, chunk);
    int code   = sqlite3_step(s);
    int status = code == SQLITE_ROW ? tell(store, s, found, user, error)
                 : code == SQLITE_DONE
                     ? fl_fail(error, FLETCH_ENOTFOUND, FLETCH_NOWHERE, "no item with this id")
                     : fail_sql(store, store->reader, error);
    (void)sqlite3_reset(s);
    pthread_mutex_unlock(&store->read_lock);
    return status;
}

int fl_store_list(fl_store *store, size_t offset, size_t count, fl_asker by, fl_hit *hits,
                  size_t *found, fletch_error *error) {
    sqlite3_stmt *s = store->read[LIST];
    int           code;
    *found = 0;
    FL_TRY(fl_asker_lock(by, &store->read_lock, error));
    (void)sqlite3_bind_int64(s, 1, (int64_t)count);
    (void)sqlite3_bind_int64(s, 2, (int64_t)offset);
    while ((code = sqlite3_step(s)) == SQLITE_ROW && *found < count)
        hits[(*found)++].key = sqlite3_column_int64(s, 0);
    int status = code == SQLITE_DONE ? FLETCH_OK : fail_sql(store, store->reader, error);
    (void)sqlite3_reset(s);
    pthread_mutex_unlock(&store->read_lock);
    return status;
}

/* ---- Searching ----------------------------------------------------------------------------------- */

/* Rows whose metadata may pass, copied out from under the lock. */
typedef struct slice {
    fl_buf  text;
    size_t  count;
    int64_t last; /* the last row that was looked at */
    bool    more; /* rows follow it */
    struct {
        int64_t key;
        size_t  size;
    } rows[SLICE_ROWS];
} slice;

static int read_slice(fl_store *store, const fl_filter *filter, fl_asker by, slice *part,
                      fletch_error *error) {
    sqlite3_stmt *s = store->read[METADATA];
    FL_TRY(fl_asker_lock(by, &store->read_lock, error));
    (void)sqlite3_bind_int64(s, 1, part->last);
    (void)sqlite3_bind_int64(s, 2, SLICE_ROWS);
    size_t looked = 0, seen = 0;
    int    code = SQLITE_ROW;
    part->count = 0;
    fl_buf_clear(&part->text);
    while (looked < SLICE_BYTES && (code = sqlite3_step(s)) == SQLITE_ROW) {
        const char *metadata = (const char *)sqlite3_column_text(s, 1);
        size_t      size     = (size_t)sqlite3_column_bytes(s, 1);
        part->last           = sqlite3_column_int64(s, 0);
        looked += size;
        seen++;
        if (metadata != NULL && fl_filter_may_pass(filter, metadata, size)) {
            fl_buf_append(&part->text, metadata, size);
            part->rows[part->count].key    = part->last;
            part->rows[part->count++].size = size;
        }
    }
    part->more = code == SQLITE_ROW || seen == SLICE_ROWS;
    int status = code == SQLITE_ROW || code == SQLITE_DONE ? FLETCH_OK
                                                           : fail_sql(store, store->reader, error);
    (void)sqlite3_reset(s);
    pthread_mutex_unlock(&store->read_lock);
    return status;
}

/* The keys of the items that `filter` lets pass, sorted. */
static int list_allowed(fl_store *store, const fl_filter *filter, fl_asker by, fl_buf *keys,
                        fletch_error *error) {
    slice part   = {.last = INT64_MIN, .more = true};
    int   status = FLETCH_OK;
    while (status == FLETCH_OK && part.more) {
        status   = read_slice(store, filter, by, &part, error);
        char *at = part.text.data;
        for (size_t i = 0; status == FLETCH_OK && !part.text.failed && i < part.count; i++) {
            if (fl_filter_passes(filter, at, part.rows[i].size))
                fl_buf_append(keys, &part.rows[i].key, sizeof part.rows[i].key);
            at += part.rows[i].size;
            status = fl_asker_over(by, error);
        }
        if (status == FLETCH_OK && (keys->failed || part.text.failed))
            status = fl_fail_nomem(error, keys->size + part.text.size, "the filtered items");
    }
    fl_buf_free(&part.text);
    return status;
}

static bool is_over(const void *by) {
    return fl_asker_over(*(const fl_asker *)by, NULL) < 0;
}

/* A connection that looks for words: one that is free, else the first, once it is. */
static int take_word_reader(fl_store *store, fl_asker by, word_reader **out, fletch_error *error) {
    for (size_t i = 0; i < store->word_reader_count; i++) {
        *out = &store->word_readers[i];
        if (pthread_mutex_trylock((*out)->lock) == 0)
            return FLETCH_OK;
    }
    *out = &store->word_readers[0];
    return fl_asker_lock(by, (*out)->lock, error);
}

static int search_words(fl_store *store, fl_search *search, const int64_t *allowed,
                        size_t allowed_count, fl_asker by, fletch_error *error) {
    fl_words_query query = {.expression = search->words, .by = by, .last = INT64_MIN};
    int            code = SQLITE_ROW, status = FLETCH_OK;
    while (status == FLETCH_OK && code == SQLITE_ROW) {
        word_reader *one;
        FL_TRY(take_word_reader(store, by, &one, error));
        code   = fl_words_slice(one->words, &query, SLICE_WORDS, allowed, allowed_count, search->k,
                                search->word_hits, &search->word_count);
        status = fl_asker_over(by, error);
        if (status == FLETCH_OK && code != SQLITE_ROW && code != SQLITE_DONE)
            status = fail_sql(store, one->db, error);
        pthread_mutex_unlock(one->lock);
    }
    fl_hits_sort(search->word_hits, search->word_count);
    return status;
}

void fl_store_search_rows(fl_store *store, fl_query *queries, size_t count) {
    fl_vectors_search_all(store->vectors, queries, count, is_over);
}

int fl_store_search(fl_store *store, fl_search *search, fl_asker by, fletch_error *error) {
    static const int64_t nothing = 0;
    fl_buf               keys    = {0};
    const int64_t       *allowed = NULL;
    int                  status  = FLETCH_OK;
    search->count = search->word_count = 0;
    if (search->filter != NULL) {
        status  = list_allowed(store, search->filter, by, &keys, error);
        allowed = keys.data != NULL ? (const int64_t *)(const void *)keys.data : &nothing;
    }
    size_t count = keys.size / sizeof *allowed;
    if (status == FLETCH_OK) {
        search->count = search->query
                            ? search->query->found
                            : fl_vectors_search(store->vectors, search->row, search->k, allowed,
                                                count, is_over, &by, search->hits);
        status        = search->count == SIZE_MAX
                            ? fl_fail_nomem(error, store->columns * sizeof *search->row, "a search")
                            : fl_asker_over(by, error);
    }
    if (status == FLETCH_OK && search->words != NULL)
        status = search_words(store, search, allowed, count, by, error);
    fl_buf_free(&keys);
    return status;
}

int fl_store_mark(fl_store *store, const char *words, int64_t key, fl_asker by, size_t *marks,
                  size_t *count, fletch_error *error) {
    word_reader *one;
    *count = 0;
    FL_TRY(take_word_reader(store, by, &one, error));
    int code   = fl_words_mark(one->words, words, key, marks, count);
    int status = code == SQLITE_DONE ? FLETCH_OK : fail_sql(store, one->db, error);
    pthread_mutex_unlock(one->lock);
    return status;
}
