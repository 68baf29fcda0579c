/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - texts with their vectors that last: one SQLite file, or bounded memory, searched in memory.
 *
 * Role    seed.c's /add, /search and /items stand on it.
 * In/Out  Items (id, text, metadata, vector of length 1) in; items by id, ids by likeness out. A long document is one
 *         item for each of its chunks, which have its id and their places in it: they come and go together.
 * Method  Writes queue up for one thread, which puts all that wait into one transaction: many small requests
 *         share one fsync. `done` is called when the transaction is on the disk (WAL, synchronous=FULL) and
 *         the vectors are searchable, never before: what was acknowledged survives kill -9.
 *         In memory nothing outlives the process, and FL_STORE_MEMORY is the most it takes: a write
 *         beyond it fails with FLETCH_ENOSPC and leaves all as it was.
 *         The file knows which model made its vectors; opening it with another one is an error.
 *         Beside the vectors there is an index of words (word_index.h) where SQLite has FTS5, in the same file and
 *         transaction.
 * Memory  vectors.h. Threads: all calls from any thread. One process at a time has the file
 *         (PATH.lock, PATH without links).
 * Proof   tests/server/test_store.py. */
#ifndef FL_STORE_STORE_H
#define FL_STORE_STORE_H

#include "base/buf.h"
#include "store/asker.h"
#include "store/filter.h"
#include "store/vectors.h"

/* Half of it for the texts, in SQLite's pages; vectors take at most as much again, since the pages hold them too, and
 * their codes up to a quarter of that more. */
#define FL_STORE_MEMORY (UINT64_C(256) << 20)

/* Threads that look for words at the same time. */
enum { FL_STORE_READERS = 4 };

/* By which a file is told from others of SQLite (PRAGMA application_id): "fltc". */
enum { FL_STORE_APPLICATION = 0x666c7463 };

typedef struct fl_store fl_store;

/* Where a text lies in its document. */
typedef struct fl_chunk_place {
    bool    part;               /* it is a chunk of the document; else all of it */
    bool    late;               /* a chunk whose vector is of the pass over its document */
    int64_t chunk;              /* its number, from 0 */
    int64_t bytes[2], chars[2]; /* begin and end */
} fl_chunk_place;

typedef struct fl_stored_item {
    const char  *id, *text, *metadata; /* metadata: a JSON object, or NULL */
    const char  *context; /* the template around the text that was embedded; NULL: the text alone */
    size_t       id_size, text_size, metadata_size, context_size;
    const float *row;       /* of length 1 */
    fl_chunk_place place;   /* chunks of a document follow each other in one write, from number 0 */
    int64_t        key;     /* out */
    int64_t        created; /* out, of a read item: Unix seconds */
    const char *damage; /* out, of a read item: what somebody else wrote into it; NULL: nothing */
} fl_stored_item;

/* Items to put (an id that is there is replaced, with all of its chunks) or, with item_count 0, what to drop: an id, or
 * all (drop NULL).
 * The caller's memory until done, which is called exactly once, on the store's thread. */
typedef struct fl_write {
    fl_asker        by; /* for whom it is done: once that is over, nothing is written */
    fl_stored_item *items;
    size_t          item_count;
    const char     *drop;
    size_t          drop_size;
    size_t          dropped; /* out: how many */
    fl_buf gone; /* out, until done has returned: int64_t keys of what was dropped or replaced */
    void (*done)(struct fl_write *write, const fletch_error *error); /* code FLETCH_OK: it lasts */
    void            *user;
    struct fl_write *next;
} fl_write;

/* Lock the file, make it if it is not there, and see that it is a store. "" is memory. */
int fl_store_open(fl_store **out, const char *path, fletch_error *error);
/* Note which model its vectors are of, or refuse those of another. fl_store_load does it, too. */
int fl_store_begin(fl_store *store, const char *model, const char *fingerprint, size_t columns,
                   fletch_error *error);
/* Its vectors into memory; before this nothing but fl_store_close may be called. `model` names the model for
 * people, `fingerprint` tells it from others; `coarse` as in vectors.h. */
int fl_store_load(fl_store *store, const char *model, const char *fingerprint, size_t columns,
                  const fl_coarse *coarse, fletch_error *error);
/* What the file has had under `name` since it was made, `value` where it has none. EIO. */
int  fl_store_recall(const fl_store *store, const char *name, const char *value, char *out,
                     size_t size, fletch_error *error);
void fl_store_close(fl_store *store); /* writes what waits; NULL is a no-op */

void   fl_store_write(fl_store *store, fl_write *write);
size_t fl_store_count(const fl_store *store);
size_t fl_store_columns(const fl_store *store);
void   fl_store_found(const fl_store *store, uint64_t *recalled,
                      uint64_t *checked);         /* fl_vectors_recall */
bool   fl_store_lasts(const fl_store *store);     /* in a file */
bool   fl_store_has_words(const fl_store *store); /* searches by words are possible */

/* What follows fails with FLETCH_ECANCELLED or FLETCH_EDEADLINE once `by`, for whom it is done, need not be
 * answered, also while it waits for others. */

/* One item by key, or by id when that is not NULL: a whole one, or with `chunk` from 0 up that chunk of a document.
 * Borrowed for the call of `found`, whose status it is; FLETCH_ENOTFOUND. */
enum { FL_STORE_WHOLE = -1 };
typedef int (*fl_found_fn)(void *user, const fl_stored_item *item, fletch_error *error);
int fl_store_read(fl_store *store, const char *id, size_t id_size, int64_t chunk, int64_t key,
                  fl_asker by, fl_found_fn found, void *user, fletch_error *error);

/* Up to `count` items from the one at `offset`, in the order in which they came, into hits[].key; *found of them. */
int fl_store_list(fl_store *store, size_t offset, size_t count, fl_asker by, fl_hit *hits,
                  size_t *found, fletch_error *error);

/* What it is likely to take to read so many items, after a search for them, by so many words too, by a filter. */
typedef struct fl_effort {
    size_t items, words;
    bool   search, filter;
} fl_effort;
uint64_t fl_store_cost_ns(const fl_store *store, fl_effort effort);

/* The best k of all items, or of those that `filter`, unless NULL, lets pass: hits, best first, and how many; with
 * `words` (of fl_words_expression), unless NULL, those by words beside them. */
typedef struct fl_search {
    const float     *row;
    const char      *words;
    const fl_filter *filter;
    size_t           k;
    fl_hit          *hits, *word_hits; /* [k] */
    size_t           count, word_count;
    const fl_query  *query; /* that fl_store_search_rows answered, into hits; NULL: none did */
} fl_search;
/* Several at a time by their rows, of all items; `user` of each is an fl_asker. */
void fl_store_search_rows(fl_store *store, fl_query *queries, size_t count);
int  fl_store_search(fl_store *store, fl_search *search, fl_asker by, fletch_error *error);

/* Where the words stand in an item: see fl_words_mark. */
int fl_store_mark(fl_store *store, const char *words, int64_t key, fl_asker by, size_t *marks,
                  size_t *count, fletch_error *error);

#endif
