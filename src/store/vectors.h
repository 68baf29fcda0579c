/* SPDX-License-Identifier: Apache-2.0 */
/* vectors.h - rows of unit length in memory, and the exact search for those that point most alike.
 *
 * Role    store.c keeps one beside its database: SQLite holds what must last, this is what is searched.
 * In/Out  A row goes in under a key; keys of new rows grow. Out come the k keys with the highest dot
 *         product, which is the cosine, since rows and query have length 1.
 * Method  Blocks of ROWS rows that never move, so that a new row is published by one atomic count and no
 *         search waits for it. A search reads every row once: at 1 M rows of 384 numbers that is 1.5 GB,
 *         and the speed of memory is the speed of the search. Searches that wait share one reading. With codes
 *         (coarse.h) it reads those, and then the rows of the best of them.
 * Threads One writer (reserve, put, drop); any number of searches at the same time.
 * Proof   tests/unit/test_server_vectors.c, bench/store.c. */
#ifndef FL_STORE_VECTORS_H
#define FL_STORE_VECTORS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fletch.h"
#include "store/coarse.h"

typedef struct fl_vectors fl_vectors;

typedef struct fl_hit {
    int64_t key;
    float   score;
} fl_hit;

/* The best k of many hits, one after the other: a heap, the worst at its top, best first once it is sorted. k is at
 * least 1; of equal scores the lower key is better. */
void fl_hits_offer(fl_hit *heap, size_t *size, size_t k, fl_hit hit); /* heap[k], *size so far */
void fl_hits_sort(fl_hit *heap, size_t size);

/* coarse: search by such codes first; NULL: exactly. */
int fl_vectors_open(fl_vectors **out, size_t columns, const fl_coarse *coarse, fletch_error *error);
void fl_vectors_close(fl_vectors *vectors); /* NULL is a no-op */

/* Make sure that `count` more rows fit, so that put cannot fail. */
int fl_vectors_reserve(fl_vectors *vectors, size_t count, fletch_error *error);

/* row[columns] under `key`: one that is there, whose row is replaced, or one above all that ever were. */
void   fl_vectors_put(fl_vectors *vectors, int64_t key, const float *row);
void   fl_vectors_drop(fl_vectors *vectors, int64_t key);
void   fl_vectors_clear(fl_vectors *vectors); /* drop all */
size_t fl_vectors_count(const fl_vectors *vectors);

/* Of the rows that searches by codes should have found, as every 128th of them was told by reading all rows, how many
 * they did find. */
void fl_vectors_recall(const fl_vectors *vectors, uint64_t *recalled, uint64_t *checked);

/* The best `k` into hits[k], best first, equal scores by key; returns how many. `allowed` (sorted), unless
 * NULL, are the only keys to look at. Once over(user), asked for every few thousand rows, is true it gives up
 * and returns what it has. SIZE_MAX: out of memory. */
typedef bool (*fl_over_fn)(const void *user);
size_t fl_vectors_search(fl_vectors *vectors, const float *query, size_t k, const int64_t *allowed,
                         size_t allowed_count, fl_over_fn over, const void *user, fl_hit *hits);

/* Several of all keys in one pass over the rows, each as it would be alone; those that are over are left out from
 * then on. */
typedef struct fl_query {
    const float *row;
    const void  *user; /* of over */
    size_t       k;
    fl_hit      *hits;  /* [k] */
    size_t       found; /* SIZE_MAX: out of memory */
} fl_query;
void fl_vectors_search_all(fl_vectors *vectors, fl_query *queries, size_t count, fl_over_fn over);

/* ---- The dot product: one form per instruction set, all give the same bits --------------------------- */

/* size is a multiple of 32. Sums run in 32 lanes, lane i over the products i, i + 32, …; then the lanes are
 * added in one fixed order. */
enum { FL_DOT_LANES = 32 };
typedef float (*fl_dot_fn)(const float *a, const float *b, size_t size);
float fl_dot_ref(const float *a, const float *b, size_t size);
#if defined(__x86_64__)
float fl_dot_avx2(const float *a, const float *b, size_t size);
#endif
fl_dot_fn fl_dot_best(void);

#endif
