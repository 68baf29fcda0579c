/* SPDX-License-Identifier: Apache-2.0 */
/* word_index.h - the index of words of a store: SQLite's FTS5, asked for the items that share words with a query.
 *
 * Role    store.c keeps it in step with its items and asks it for hybrid searches.
 * In/Out  A text, whose words are taken as words whatever they are to FTS5 (AND, NEAR, *, quotes); keys of items with
 *         their BM25 out, or where in an item the words stand.
 * Method  BM25 with k1 = 1.2, b = 0.75 and idf = ln(1 + (N - n + 0.5) / (n + 0.5)), computed here by what FTS5
 *         counts: its own bm25() lets words of more than half of the items count for nothing, and cannot be
 *         interrupted while it counts a million of them.
 *         Words are those of unicode61 without diacritics: letters and digits between others. Languages that put no
 *         spaces between words have few of these.
 * Memory  fl_words and what SQLite has. Threads: one at a time for each connection.
 * Proof   tests/server/test_search.py. */
#ifndef FL_STORE_WORD_INDEX_H
#define FL_STORE_WORD_INDEX_H

#include <sqlite3.h>

#include "base/buf.h"
#include "store/asker.h"
#include "store/vectors.h"

enum {
    FL_WORDS_MAX = 64, /* of a query; what follows them is not looked for */
    FL_MARKS_MAX = 256 /* of one item */
};

/* CREATE, when it is not there, and fill from the items. */
#define FL_WORDS_CREATE                                                                            \
    "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, content='items', "                  \
    "content_rowid='seq', tokenize='unicode61 remove_diacritics 2')"
#define FL_WORDS_REBUILD "INSERT INTO words(words) VALUES ('rebuild')"

typedef struct fl_words fl_words;

/* Whether the SQLite behind this connection has FTS5. */
bool fl_words_known(sqlite3 *db);

/* Statements on a connection of which the table is there. An SQLite code. */
int  fl_words_open(fl_words **out, sqlite3 *db);
void fl_words_close(fl_words *words); /* NULL is a no-op */

/* One search. */
typedef struct fl_words_query {
    const char *expression; /* of fl_words_expression */
    fl_asker    by;         /* which may end it */
    int64_t     last;       /* the last key that was looked at; begin below all */
    bool        counted;
    int         phrases;
    double      average; /* words of an item */
    double      idf[FL_WORDS_MAX];
} fl_words_query;

/* `text` as FTS5 wants it, appended to *out: its first FL_WORDS_MAX words, any of them; how many. */
size_t fl_words_expression(const char *text, size_t size, fl_buf *out);

/* Look at up to `rows` items after query->last; the best k so far stay in hits[*found], a heap of vectors.h. `allowed`
 * (sorted), unless NULL, are the only keys that count. SQLITE_ROW: there are more; SQLITE_DONE; or what is wrong. */
int fl_words_slice(fl_words *words, fl_words_query *query, size_t rows, const int64_t *allowed,
                   size_t allowed_count, size_t k, fl_hit *hits, size_t *found);

/* Where the words of `expression` stand in the item `key`: begins and ends in bytes of its text, in order, into
 * marks[2 * FL_MARKS_MAX]; how many. An SQLite code. */
int fl_words_mark(fl_words *words, const char *expression, int64_t key, size_t *marks,
                  size_t *count);

#endif
