/* SPDX-License-Identifier: Apache-2.0 */
/* test_server_vectors.c - the search in memory against a search that sorts everything.
 *
 * Rows are pseudo-random; what is expected is counted here in double, row by row. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cosine.h"
#include "store/vectors.h"

enum {
    COLUMNS = 45,
    ROWS    = 9000,
    K       = 17
}; /* more than two blocks; a width that is no multiple of 32 */

static bool late; /* searches need not go on */
static bool is_over(const void *user) {
    return *(const bool *)user;
}

static uint64_t seed;
static float    next(void) {
       seed = seed * 6364136223846793005u + 1442695040888963407u;
       return (float)(int32_t)(seed >> 32) / 0x1p31f;
}

static float rows[ROWS][COLUMNS];
static bool  alive[ROWS];

static void make_row(float *row) {
    for (size_t i = 0; i < COLUMNS; i++) {
        row[i] = next();
    }
    cr_assert(fl_vector_normalize(row, COLUMNS));
}

static fl_vectors *filled(void) {
    fl_vectors *vectors = NULL;
    cr_assert_eq(fl_vectors_open(&vectors, COLUMNS, NULL), 0);
    for (size_t i = 0; i < ROWS; i++) {
        make_row(rows[i]);
        alive[i] = true;
        cr_assert_eq(fl_vectors_reserve(vectors, 1, NULL), 0);
        fl_vectors_put(vectors, (int64_t)i * 3, rows[i]); /* keys have gaps */
    }
    return vectors;
}

typedef struct truth {
    int64_t key;
    double  score;
} truth;

static int by_score(const void *a, const void *b) {
    const truth *x = a, *y = b;
    return x->score > y->score ? -1 : x->score < y->score ? 1 : x->key < y->key ? -1 : 1;
}

/* The search must give the best `k` of the rows that are alive and, if asked, have an even number. */
static void check(fl_vectors *vectors, bool even) {
    static truth   all[ROWS];
    static int64_t allowed[ROWS];
    float          query[COLUMNS];
    fl_hit         hits[K];
    size_t         count = 0, allowed_count = 0;
    make_row(query);
    for (size_t i = 0; i < ROWS; i++) {
        double score = 0;
        for (size_t c = 0; c < COLUMNS; c++) {
            score += (double)rows[i][c] * (double)query[c];
        }
        if (i % 2 == 0) {
            allowed[allowed_count++] = (int64_t)i * 3; /* dead ones too: they must not come back */
        }
        if (alive[i] && (!even || i % 2 == 0)) {
            all[count++] = (truth){(int64_t)i * 3, score};
        }
    }
    qsort(all, count, sizeof all[0], by_score);
    size_t expected = count < K ? count : K;
    size_t found    = fl_vectors_search(vectors, query, K, even ? allowed : NULL, allowed_count,
                                        is_over, &late, hits);
    cr_assert_eq(found, expected);
    for (size_t i = 0; i < found; i++) {
        cr_assert_eq(hits[i].key, all[i].key, "place %zu", i);
        cr_assert_float_eq(hits[i].score, all[i].score, 1e-6);
    }
}

Test(vectors, finds_the_best) {
    seed                = 1;
    fl_vectors *vectors = filled();
    for (int i = 0; i < 5; i++) {
        check(vectors, false);
        check(vectors, true);
    }
    fl_vectors_close(vectors);
}

Test(vectors, replaced_and_dropped_rows_count) {
    seed                = 2;
    fl_vectors *vectors = filled();
    for (size_t i = 0; i < ROWS; i += 7) {
        make_row(rows[i]);
        fl_vectors_put(vectors, (int64_t)i * 3, rows[i]);
    }
    check(vectors, false);
    size_t live = ROWS;
    for (size_t i = 0; i < ROWS; i++) { /* enough that rows are moved together on the way */
        if (i % 10 != 3) {
            fl_vectors_drop(vectors, (int64_t)i * 3);
            fl_vectors_drop(vectors, (int64_t)i * 3); /* twice is once */
            alive[i] = false;
            live--;
        }
        cr_assert_eq(fl_vectors_count(vectors), live);
    }
    check(vectors, false);
    check(vectors, true);
    fl_vectors_close(vectors);
}

Test(vectors, equal_scores_come_by_key) {
    fl_vectors *vectors = NULL;
    fl_hit      hits[3];
    float       row[COLUMNS] = {1};
    cr_assert_eq(fl_vectors_open(&vectors, COLUMNS, NULL), 0);
    cr_assert_eq(fl_vectors_reserve(vectors, 5, NULL), 0);
    for (int64_t key = 10; key < 15; key++) {
        fl_vectors_put(vectors, key, row);
    }
    cr_assert_eq(fl_vectors_search(vectors, row, 3, NULL, 0, is_over, &late, hits), 3);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(hits[i].key, 10 + i);
    }
    late = true;
    cr_assert_eq(fl_vectors_search(vectors, row, 3, NULL, 0, is_over, &late, hits), 0);
    fl_vectors_close(vectors);
}

Test(vectors, what_has_no_direction_is_told) {
    float zeros[4] = {0}, infinite[4] = {INFINITY}, nan[4] = {NAN}, good[4] = {3, 0, 4, 0};
    cr_assert_not(fl_vector_normalize(zeros, 4));
    cr_assert_not(fl_vector_normalize(infinite, 4));
    cr_assert_not(fl_vector_normalize(nan, 4));
    cr_assert(fl_vector_normalize(good, 4));
    cr_assert_float_eq(good[0], 0.6, 1e-7);
    cr_assert_float_eq(good[2], 0.8, 1e-7);
}

Test(vectors, every_form_gives_the_same_bits) {
    static float a[1024], b[1024];
    seed = 3;
    for (size_t i = 0; i < 1024; i++) {
        a[i] = next() * 1e3f;
        b[i] = next();
    }
    for (size_t size = 32; size <= 1000; size += 32) {
        float plain = fl_dot_ref(a, b, size), fast = fl_dot_best()(a, b, size);
        cr_assert_eq(memcmp(&plain, &fast, sizeof plain), 0, "size %zu: %a %a", size, plain, fast);
        double exact = 0, length = 0;
        for (size_t i = 0; i < size; i++) {
            exact += (double)a[i] * (double)b[i];
            length += fabs((double)a[i] * (double)b[i]);
        }
        cr_assert_lt(fabs(exact - (double)plain), 1e-6 * length);
    }
}

/* Searches that share a pass find what each finds alone; one that is over is left out, and the others go on. */
static bool is_over_of(const void *user) {
    return user != NULL && *(const bool *)user;
}

Test(vectors, searches_in_one_pass_are_those_alone) {
    enum { TOGETHER = 5 };
    fl_vectors *vectors = filled();
    bool        gone    = true;
    fl_hit      alone[K], hits[TOGETHER][2 * K];
    float       query[TOGETHER][COLUMNS];
    fl_query    queries[TOGETHER];
    fl_vectors_drop(vectors, 300);
    for (size_t q = 0; q < TOGETHER; q++) {
        make_row(query[q]);
        queries[q] = (fl_query){.row  = query[q],
                                .k    = q == 1 ? 2 * K : K,
                                .hits = hits[q],
                                .user = q == 2 ? &gone : NULL};
    }
    fl_vectors_search_all(vectors, queries, TOGETHER, is_over_of);
    for (size_t q = 0; q < TOGETHER; q++) {
        size_t found = fl_vectors_search(vectors, query[q], K, NULL, 0, is_over_of, NULL, alone);
        cr_assert_eq(queries[q].found, q == 2 ? 0 : queries[q].k, "query %zu", q);
        for (size_t i = 0; i < found && q != 2; i++) {
            cr_assert_eq(hits[q][i].key, alone[i].key, "query %zu, hit %zu", q, i);
            cr_assert(hits[q][i].score == alone[i].score);
        }
    }
    fl_vectors_close(vectors);
}
