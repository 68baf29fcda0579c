/* SPDX-License-Identifier: Apache-2.0 */
/* vectors.c - rows of unit length in memory, and the exact search for those that point most alike.
 *
 * Role    and In/Out: vectors.h.
 * Method  Slot n is row n % ROWS of block n / ROWS. Keys grow from slot to slot, so a key is found by
 *         halving. A dropped row keeps its slot and is skipped; when more than half of the slots are of
 *         that kind the rows are moved together. A heap of k holds the best rows of a search, the worst
 *         of them at the top; most rows fail against it and cost one comparison. With codes (coarse.h) a pass
 *         fills a heap of candidates by them, whose rows are compared exactly before the lock is given back. One
 *         search of CHECK_EVERY reads all rows as well, and counts how many of the best it had found.
 * Memory  (columns * 4 + 9) bytes a row, and its code, in whole blocks of 4096, given back when the rows close.
 * Threads searches hold the lock shared; replacing, dropping and moving hold it alone. Both pass a gate
 *         first, where a writer waits, so that searches that never leave a gap do not keep it out: which
 *         of them a lock prefers, each C library decides. A new row needs none of it: it is written behind
 *         the last slot and then published by `count`. */
#include "store/vectors.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

enum { ROWS = 4096, BLOCKS_MAX = 65536, DEAD_MIN = 4096, CHECK_EVERY = 128 };

typedef struct block {
    int64_t keys[ROWS];
    bool    dead[ROWS];
    float   rows
        []; /* [ROWS][stride], as aligned as the block: 8 * 4096 + 4096 bytes precede it; then codes */
} block;

struct fl_vectors {
    size_t           columns, stride, code_bytes, block_bytes;
    fl_dot_fn        dot;
    const fl_coarse *coarse; /* NULL: none */
    fl_coarse_scan  *coarse_scan;
    _Atomic uint64_t searches, checked,
        recalled;          /* by codes; rows that should be found, and were */
    pthread_mutex_t  gate; /* held only to get `lock` */
    pthread_rwlock_t lock;
    block           *blocks[BLOCKS_MAX]; /* set before `count` reaches them */
    _Atomic size_t   count;              /* slots in use, dead ones counted */
    size_t           dead;               /* writer */
    _Atomic size_t   live;
};

static void lock_alone(fl_vectors *vectors) {
    pthread_mutex_lock(&vectors->gate);
    pthread_rwlock_wrlock(&vectors->lock);
    pthread_mutex_unlock(&vectors->gate);
}

static void lock_shared(fl_vectors *vectors) {
    pthread_mutex_lock(&vectors->gate);
    pthread_rwlock_rdlock(&vectors->lock);
    pthread_mutex_unlock(&vectors->gate);
}

int fl_vectors_open(fl_vectors **out, size_t columns, const fl_coarse *coarse,
                    fletch_error *error) {
    assert(columns > 0);
    fl_vectors *vectors = fl_alloc_zero(1, sizeof *vectors);
    *out                = NULL;
    if (vectors == NULL)
        return fl_fail_nomem(error, sizeof *vectors, "the table of stored vectors");
    vectors->columns     = columns;
    vectors->stride      = (columns + FL_DOT_LANES - 1) / FL_DOT_LANES * FL_DOT_LANES;
    vectors->coarse      = coarse;
    vectors->coarse_scan = coarse ? fl_coarse_best(coarse) : NULL;
    vectors->code_bytes  = coarse ? coarse->bytes(vectors->stride) : 0;
    vectors->block_bytes =
        sizeof(block) + (vectors->stride * sizeof(float) + vectors->code_bytes) * ROWS;
    vectors->dot = fl_dot_best();
    pthread_mutex_init(&vectors->gate, NULL);
    pthread_rwlock_init(&vectors->lock, NULL);
    *out = vectors;
    return FLETCH_OK;
}

void fl_vectors_close(fl_vectors *vectors) {
    if (vectors == NULL)
        return;
    for (size_t i = 0; i < BLOCKS_MAX && vectors->blocks[i] != NULL; i++)
        fl_big_free(vectors->blocks[i], vectors->block_bytes);
    pthread_rwlock_destroy(&vectors->lock);
    pthread_mutex_destroy(&vectors->gate);
    fl_free(vectors);
}

int fl_vectors_reserve(fl_vectors *vectors, size_t count, fletch_error *error) {
    size_t slots;
    if (fl_add_overflow(atomic_load(&vectors->count), count, &slots) != 0 ||
        slots > (size_t)ROWS * BLOCKS_MAX) {
        return fl_fail(error, FLETCH_ENOSPC, FLETCH_NOWHERE, "a store holds at most %zu items",
                       (size_t)ROWS * BLOCKS_MAX);
    }
    for (size_t i = (slots + ROWS - 1) / ROWS; i > 0 && vectors->blocks[i - 1] == NULL; i--) {
        vectors->blocks[i - 1] = fl_big_alloc(vectors->block_bytes);
        if (vectors->blocks[i - 1] == NULL) {
            for (size_t k = i; k < BLOCKS_MAX && vectors->blocks[k] != NULL; k++) {
                fl_big_free(vectors->blocks[k], vectors->block_bytes);
                vectors->blocks[k] = NULL; /* no gaps: a later try begins where this one did */
            }
            return fl_fail_nomem(error, vectors->block_bytes, "stored vectors");
        }
    }
    return FLETCH_OK;
}

static float *row_of(const fl_vectors *vectors, size_t slot) {
    return vectors->blocks[slot / ROWS]->rows + slot % ROWS * vectors->stride;
}

static unsigned char *codes_of(const fl_vectors *vectors, size_t index) {
    return (unsigned char *)(vectors->blocks[index]->rows + vectors->stride * ROWS);
}

static unsigned char *code_of(const fl_vectors *vectors, size_t slot) {
    return codes_of(vectors, slot / ROWS) + slot % ROWS * vectors->code_bytes;
}

static int64_t key_of(const fl_vectors *vectors, size_t slot) {
    return vectors->blocks[slot / ROWS]->keys[slot % ROWS];
}

/* The first slot whose key is not below `key`. */
static size_t slot_of(const fl_vectors *vectors, size_t count, int64_t key) {
    size_t low = 0;
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        if (key_of(vectors, middle) < key)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

static void write_row(fl_vectors *vectors, size_t slot, const float *row) {
    assert(row);
    float *to = row_of(vectors, slot);
    memcpy(to, row, vectors->columns * sizeof *to);
    memset(to + vectors->columns, 0, (vectors->stride - vectors->columns) * sizeof *to);
    if (vectors->coarse != NULL)
        vectors->coarse->encode(to, vectors->stride, code_of(vectors, slot));
}

void fl_vectors_put(fl_vectors *vectors, int64_t key, const float *row) {
    size_t count = atomic_load(&vectors->count);
    if (count == 0 || key_of(vectors, count - 1) < key) {
        write_row(vectors, count, row);
        vectors->blocks[count / ROWS]->keys[count % ROWS] = key;
        vectors->blocks[count / ROWS]->dead[count % ROWS] = false;
        atomic_fetch_add(&vectors->live, 1);
        atomic_store_explicit(&vectors->count, count + 1, memory_order_release);
        return;
    }
    size_t slot = slot_of(vectors, count, key);
    if (slot < count && key_of(vectors, slot) == key) {
        lock_alone(vectors);
        write_row(vectors, slot, row);
        pthread_rwlock_unlock(&vectors->lock);
    }
}

/* Close the gaps that dropped rows have left. The lock is held alone. */
static void move_together(fl_vectors *vectors, size_t count) {
    size_t to = 0;
    for (size_t from = 0; from < count; from++) {
        if (vectors->blocks[from / ROWS]->dead[from % ROWS])
            continue;
        if (to != from) {
            memcpy(row_of(vectors, to), row_of(vectors, from), vectors->stride * sizeof(float));
            memcpy(code_of(vectors, to), code_of(vectors, from), vectors->code_bytes);
            vectors->blocks[to / ROWS]->keys[to % ROWS] = key_of(vectors, from);
            vectors->blocks[to / ROWS]->dead[to % ROWS] = false;
        }
        to++;
    }
    atomic_store(&vectors->count, to);
    vectors->dead = 0;
}

void fl_vectors_drop(fl_vectors *vectors, int64_t key) {
    size_t count = atomic_load(&vectors->count);
    size_t slot  = slot_of(vectors, count, key);
    if (slot == count || key_of(vectors, slot) != key ||
        vectors->blocks[slot / ROWS]->dead[slot % ROWS])
        return;
    lock_alone(vectors);
    vectors->blocks[slot / ROWS]->dead[slot % ROWS] = true;
    atomic_fetch_sub(&vectors->live, 1);
    if (++vectors->dead > DEAD_MIN && vectors->dead > count / 2)
        move_together(vectors, count);
    pthread_rwlock_unlock(&vectors->lock);
}

void fl_vectors_clear(fl_vectors *vectors) {
    lock_alone(vectors);
    atomic_store(&vectors->count, 0);
    atomic_store(&vectors->live, 0);
    vectors->dead = 0;
    pthread_rwlock_unlock(&vectors->lock);
}

size_t fl_vectors_count(const fl_vectors *vectors) {
    return atomic_load(&vectors->live);
}

/* ---- Search -------------------------------------------------------------------------------------- */

static bool is_worse(fl_hit a, fl_hit b) {
    return a.score < b.score || (!(a.score > b.score) && a.key > b.key);
}

/* Let the hit at the top sink to where both below it are better. */
static void sink(fl_hit *heap, size_t size) {
    assert(size > 0);
    fl_hit hit = heap[0];
    size_t at  = 0;
    for (size_t child; (child = 2 * at + 1) < size; at = child) {
        child += child + 1 < size && is_worse(heap[child + 1], heap[child]);
        if (!is_worse(heap[child], hit))
            break;
        heap[at] = heap[child];
    }
    heap[at] = hit;
}

void fl_hits_offer(fl_hit *heap, size_t *size, size_t k, fl_hit hit) {
    assert(k > 0 && *size <= k);
    if (*size == k) { /* k is at least 1 */
        if (is_worse(heap[0], hit)) {
            heap[0] = hit;
            sink(heap, k);
        }
        return;
    }
    size_t at = (*size)++;
    for (; at > 0 && is_worse(hit, heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = hit;
}

/* Take the worst off the top again and again: best first. */
void fl_hits_sort(fl_hit *heap, size_t size) {
    while (size > 1) {
        fl_hit worst = heap[0];
        heap[0]      = heap[--size];
        sink(heap, size);
        heap[size] = worst;
    }
}

/* A search on its way. */
typedef struct searcher {
    fl_query *query;
    float    *padded;     /* [stride] */
    void     *code;       /* NULL: all rows are compared exactly */
    fl_hit   *candidates; /* [keep], their slots for keys */
    size_t    keep, kept;
    bool      over;
} searcher;

/* One row after the other, each for all queries while it is in the nearest cache. */
static void scan(const fl_vectors *vectors, const block *b, size_t rows, searcher *all,
                 size_t count) {
    for (size_t i = 0; i < rows; i++) {
        const float *row = b->rows + i * vectors->stride;
        for (size_t q = 0; !b->dead[i] && q < count; q++) {
            fl_query *query = all[q].query;
            float     score = vectors->dot(all[q].padded, row, vectors->stride);
            fl_hits_offer(query->hits, &query->found, query->k, (fl_hit){b->keys[i], score});
        }
    }
}

/* The same by codes, those of a block for each search. */
static void scan_codes(const fl_vectors *vectors, size_t at, size_t rows, searcher *all,
                       size_t count) {
    float        scores[ROWS];
    const block *b = vectors->blocks[at / ROWS];
    for (searcher *s = all; s < all + count; s++) {
        vectors->coarse_scan(s->code, codes_of(vectors, at / ROWS), rows, vectors->stride, scores);
        for (size_t i = 0; i < rows; i++) {
            bool worse = s->kept == s->keep && scores[i] <= s->candidates[0].score;
            if (!worse && !b->dead[i]) {
                fl_hits_offer(s->candidates, &s->kept, s->keep,
                              (fl_hit){(int64_t)(at + i), scores[i]});
            }
        }
    }
}

static void compare_candidates(const fl_vectors *vectors, searcher *s) {
    for (size_t i = 0; i < s->kept && !s->over; i++) {
        size_t slot  = (size_t)s->candidates[i].key;
        float  score = vectors->dot(s->padded, row_of(vectors, slot), vectors->stride);
        fl_hits_offer(s->query->hits, &s->query->found, s->query->k,
                      (fl_hit){key_of(vectors, slot), score});
    }
}

/* Those that are over move behind the others; how many these are. */
static size_t keep_going(searcher *all, size_t count, fl_over_fn over) {
    for (size_t q = 0; q < count;) {
        all[q].over = all[q].over || over(all[q].query->user);
        if (all[q].over) {
            searcher last = all[--count];
            all[count]    = all[q];
            all[q]        = last;
        } else {
            q++;
        }
    }
    return count;
}

/* Every search over the rows, from the first to the last that is there now. The lock is held shared. */
static void pass(const fl_vectors *vectors, searcher *all, size_t count, size_t slots, bool codes,
                 fl_over_fn over) {
    for (size_t at = 0; at < slots; at += ROWS) {
        size_t rows = slots - at < ROWS ? slots - at : ROWS;
        count       = keep_going(all, count, over);
        if (count == 0)
            break;
        if (codes)
            scan_codes(vectors, at, rows, all, count);
        else
            scan(vectors, vectors->blocks[at / ROWS], rows, all, count);
    }
}

/* What the codes found is counted against what is right, which is then the answer. */
static void check(fl_vectors *vectors, searcher *s, size_t slots, fl_over_fn over) {
    fl_query    *query = s->query;
    const size_t had   = query->found;
    for (size_t i = 0; i < had; i++)
        s->candidates[i].key = query->hits[i].key;
    query->found = 0;
    pass(vectors, s, 1, slots, false, over);
    for (size_t i = 0; i < query->found && !s->over; i++) {
        size_t at = 0;
        while (at < had && s->candidates[at].key != query->hits[i].key)
            at++;
        atomic_fetch_add(&vectors->checked, 1);
        atomic_fetch_add(&vectors->recalled, at < had);
    }
}

static void search_all(fl_vectors *vectors, searcher *all, size_t count, fl_over_fn over) {
    lock_shared(vectors);
    size_t slots = atomic_load_explicit(&vectors->count, memory_order_acquire);
    pass(vectors, all, count, slots, vectors->coarse != NULL, over);
    for (size_t q = 0; q < count && vectors->coarse != NULL; q++) {
        compare_candidates(vectors, &all[q]);
        if (atomic_fetch_add(&vectors->searches, 1) % CHECK_EVERY == 0)
            check(vectors, &all[q], slots, over);
    }
    pthread_rwlock_unlock(&vectors->lock);
}

static bool begin_search(const fl_vectors *vectors, searcher *s, fl_query *query) {
    const fl_coarse *coarse = vectors->coarse;
    const size_t     bytes  = vectors->stride * sizeof(float);
    *s = (searcher){.query = query, .padded = fl_alloc_aligned(bytes, 64)}; /* a cache line */
    bool good = s->padded != NULL;
    if (good) {
        memset(s->padded, 0, bytes);
        memcpy(s->padded, query->row, vectors->columns * sizeof *s->padded);
    }
    if (good && coarse != NULL) {
        s->keep = query->k * coarse->keep > coarse->least ? query->k * coarse->keep : coarse->least;
        s->code = fl_alloc(vectors->code_bytes);
        s->candidates = fl_alloc_array(s->keep, sizeof *s->candidates);
        good          = s->code != NULL && s->candidates != NULL;
    }
    if (good && coarse != NULL)
        coarse->encode(s->padded, vectors->stride, s->code);
    query->found = good ? 0 : SIZE_MAX;
    return good;
}

static void end_search(searcher *s) {
    fl_free(s->padded);
    fl_free(s->code);
    fl_free(s->candidates);
}

void fl_vectors_search_all(fl_vectors *vectors, fl_query *queries, size_t count, fl_over_fn over) {
    searcher *all  = fl_alloc_array(count, sizeof *all);
    size_t    good = 0; /* the first so many */
    while (all != NULL && good < count && begin_search(vectors, &all[good], &queries[good]))
        good++;
    for (size_t q = good; q < count; q++)
        queries[q].found = SIZE_MAX;
    if (good > 0)
        search_all(vectors, all, good, over);
    for (size_t q = 0; q < good; q++)
        fl_hits_sort(queries[q].hits, queries[q].found);
    for (size_t q = 0; all != NULL && q < count && q <= good; q++)
        end_search(&all[q]); /* the one that failed too */
    fl_free(all);
}

void fl_vectors_recall(const fl_vectors *vectors, uint64_t *recalled, uint64_t *checked) {
    *recalled = atomic_load(&vectors->recalled);
    *checked  = atomic_load(&vectors->checked);
}

static void scan_allowed(const fl_vectors *vectors, const float *query, size_t count,
                         const int64_t *allowed, size_t allowed_count, fl_hit *hits, size_t *found,
                         size_t k) {
    for (size_t i = 0; i < allowed_count; i++) {
        size_t slot = slot_of(vectors, count, allowed[i]);
        if (slot < count && key_of(vectors, slot) == allowed[i] &&
            !vectors->blocks[slot / ROWS]->dead[slot % ROWS]) {
            float score = vectors->dot(query, row_of(vectors, slot), vectors->stride);
            fl_hits_offer(hits, found, k, (fl_hit){allowed[i], score});
        }
    }
}

size_t fl_vectors_search(fl_vectors *vectors, const float *query, size_t k, const int64_t *allowed,
                         size_t allowed_count, fl_over_fn over, const void *user, fl_hit *hits) {
    if (allowed == NULL) {
        fl_query one = {.row = query, .user = user, .k = k, .hits = hits};
        fl_vectors_search_all(vectors, &one, 1, over);
        return one.found;
    }
    size_t found  = 0;
    float *padded = fl_alloc_zero(vectors->stride, sizeof *padded);
    if (padded == NULL)
        return SIZE_MAX;
    memcpy(padded, query, vectors->columns * sizeof *padded);
    lock_shared(vectors);
    size_t count = atomic_load_explicit(&vectors->count, memory_order_acquire);
    for (size_t at = 0; at < allowed_count && !over(user); at += ROWS) {
        size_t rows = allowed_count - at < ROWS ? allowed_count - at : ROWS;
        scan_allowed(vectors, padded, count, allowed + at, rows, hits, &found, k);
    }
    pthread_rwlock_unlock(&vectors->lock);
    fl_free(padded);
    fl_hits_sort(hits, found);
    return found;
}
