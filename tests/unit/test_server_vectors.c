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
    for (size_t i = 0; i < COLUMNS; i++)
        row[i] = next();
    cr_assert(fl_vector_normalize(row, COLUMNS));
}

static fl_vectors *filled_by(const fl_coarse *coarse) {
    fl_vectors *vectors = NULL;
    cr_assert_eq(fl_vectors_open(&vectors, COLUMNS, coarse, NULL), 0);
    for (size_t i = 0; i < ROWS; i++) {
        make_row(rows[i]);
        alive[i] = true;
        cr_assert_eq(fl_vectors_reserve(vectors, 1, NULL), 0);
        fl_vectors_put(vectors, (int64_t)i * 3, rows[i]); /* keys have gaps */
    }
    return vectors;
}

static fl_vectors *filled(void) {
    return filled_by(NULL);
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
        for (size_t c = 0; c < COLUMNS; c++)
            score += (double)rows[i][c] * (double)query[c];
        if (i % 2 == 0)
            allowed[allowed_count++] = (int64_t)i * 3; /* dead ones too: they must not come back */
        if (alive[i] && (!even || i % 2 == 0))
            all[count++] = (truth){(int64_t)i * 3, score};
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
    cr_assert_eq(fl_vectors_open(&vectors, COLUMNS, NULL, NULL), 0);
    cr_assert_eq(fl_vectors_reserve(vectors, 5, NULL), 0);
    for (int64_t key = 10; key < 15; key++)
        fl_vectors_put(vectors, key, row);
    cr_assert_eq(fl_vectors_search(vectors, row, 3, NULL, 0, is_over, &late, hits), 3);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(hits[i].key, 10 + i);
    late = true;
    cr_assert_eq(fl_vectors_search(vectors, row, 3, NULL, 0, is_over, &late, hits), 0);
    late = false;
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

/* ---- Codes --------------------------------------------------------------------------------------- */

/* One that lies near a row, as a question does that has an answer. */
static void make_query(float *query, const float *row) {
    make_row(query);
    for (size_t i = 0; i < COLUMNS; i++)
        query[i] = row[i] + query[i] * 0.5f;
    cr_assert(fl_vector_normalize(query, COLUMNS));
}

/* Of `queries` searches: the row that each lies near, first, with its exact score, and none that is dropped. */
static void check_by_codes(fl_vectors *vectors, size_t queries) {
    for (size_t n = 0, at = 0; n < queries; at += 13) {
        float  query[COLUMNS];
        fl_hit hits[K];
        if (!alive[at % ROWS])
            continue;
        make_query(query, rows[at % ROWS]);
        size_t found = fl_vectors_search(vectors, query, K, NULL, 0, is_over, &late, hits);
        cr_assert_eq(found, K);
        cr_assert_eq(hits[0].key, (int64_t)(at % ROWS) * 3, "query %zu", n);
        for (size_t i = 0; i < found; i++) {
            const float *row   = rows[hits[i].key / 3];
            double       score = 0;
            for (size_t c = 0; c < COLUMNS; c++)
                score += (double)row[c] * (double)query[c];
            cr_assert(alive[hits[i].key / 3]);
            cr_assert_float_eq(hits[i].score, score, 1e-6);
            cr_assert(i == 0 || hits[i - 1].score >= hits[i].score);
        }
        n++;
    }
}

Test(vectors, codes_find_what_lies_near) {
    for (size_t kind = 0; kind < FL_COARSE_COUNT; kind++) {
        seed                = 4;
        fl_vectors *vectors = filled_by(&fl_coarse_kinds[kind]);
        check_by_codes(vectors, 129);
        uint64_t recalled, checked;
        fl_vectors_recall(vectors, &recalled, &checked);
        cr_assert_eq(checked, 2 * K); /* the first search and the 129th */
        cr_assert_leq(recalled, checked);
        cr_assert_geq(recalled, checked * 7 / 10, "%s: %d", fl_coarse_kinds[kind].name,
                      (int)recalled);
        for (size_t i = 0; i < ROWS; i += 7) {
            make_row(rows[i]);
            fl_vectors_put(vectors, (int64_t)i * 3, rows[i]);
        }
        check_by_codes(vectors, 30);
        for (size_t i = 0; i < ROWS; i++) { /* enough that rows are moved together on the way */
            if (i % 10 != 3) {
                fl_vectors_drop(vectors, (int64_t)i * 3);
                alive[i] = false;
            }
        }
        check_by_codes(vectors, 30);
        fl_vectors_close(vectors);
    }
}

/* Where no more rows are there than are compared exactly, codes change nothing. */
Test(vectors, few_rows_are_found_exactly_by_codes) {
    enum { FEW = 60 };
    for (size_t kind = 0; kind < FL_COARSE_COUNT; kind++) {
        seed                = 5;
        fl_vectors *vectors = filled_by(&fl_coarse_kinds[kind]);
        for (size_t i = FEW; i < ROWS; i++) {
            fl_vectors_drop(vectors, (int64_t)i * 3);
            alive[i] = false;
        }
        for (int i = 0; i < 10; i++) {
            check(vectors, false);
            check(vectors, true);
        }
        uint64_t recalled, checked;
        fl_vectors_recall(vectors, &recalled, &checked);
        cr_assert_eq(checked, K); /* those that are filtered have no need of it */
        cr_assert_eq(recalled, K);
        fl_vectors_close(vectors);
    }
}

/* Signs know no lengths: the rows that point most alike all differ in a sign that hardly counts, so none is found. */
Test(vectors, what_codes_miss_is_counted) {
    enum { ALIKE = 10, OTHERS = 2000 };
    fl_vectors *vectors = NULL;
    float       row[COLUMNS], query[COLUMNS];
    fl_hit      hits[ALIKE];
    cr_assert_eq(fl_vectors_open(&vectors, COLUMNS, fl_coarse_named("signs"), NULL), 0);
    cr_assert_eq(fl_vectors_reserve(vectors, ALIKE + OTHERS, NULL), 0);
    for (int64_t key = 0; key < ALIKE + OTHERS; key++) {
        for (size_t c = 0; c < COLUMNS;
             c++) { /* alike: but for small numbers; the others: but for the largest */
            row[c] = c == 0 ? (key < ALIKE ? 1 : -1) : (key < ALIKE && c % 2 == 0) ? -0.01f : 0.01f;
            query[c] = c == 0 ? 1 : 0.01f;
        }
        cr_assert(fl_vector_normalize(row, COLUMNS));
        fl_vectors_put(vectors, key, row);
    }
    for (int i = 0; i < 2; i++) { /* the first is answered as it was checked: exactly */
        cr_assert_eq(fl_vectors_search(vectors, query, ALIKE, NULL, 0, is_over, &late, hits),
                     ALIKE);
        cr_assert_eq(hits[0].key < ALIKE, i == 0);
    }
    uint64_t recalled, checked;
    fl_vectors_recall(vectors, &recalled, &checked);
    cr_assert_eq(checked, ALIKE);
    cr_assert_eq(recalled, 0);
    fl_vectors_close(vectors);
}

Test(vectors, a_search_by_codes_that_is_over_gives_up) {
    seed                = 6;
    fl_vectors *vectors = filled_by(fl_coarse_named("signs"));
    fl_hit      hits[K];
    late = true;
    cr_assert_eq(fl_vectors_search(vectors, rows[0], K, NULL, 0, is_over, &late, hits), 0);
    late = false;
    fl_vectors_close(vectors);
}

/* The score of each kind of code, counted here number by number. */
static double score_of(size_t kind, const float *a, const float *b, size_t size) {
    float  most[2] = {0};
    double sum     = 0;
    for (size_t i = 0; i < size; i++) {
        most[0] = fmaxf(most[0], fabsf(a[i]));
        most[1] = fmaxf(most[1], fabsf(b[i]));
    }
    for (size_t i = 0; i < size; i++) {
        sum += kind == FL_COARSE_SIGNS
                   ? ((a[i] > 0) == (b[i] > 0) ? 0 : -1)
                   : nearbyint((double)a[i] / (double)most[0] * 127) *
                         nearbyint((double)b[i] / (double)most[1] * 127) * (double)most[1];
    }
    return sum;
}

Test(vectors, every_instruction_set_scores_codes_alike) {
    enum { CODES = 5, SIZE = 1056 };
    static float            row[CODES + 1][SIZE];
    static _Alignas(8) char code[CODES * (SIZE + sizeof(float))], query[SIZE + sizeof(float)];
    seed = 7;
    for (size_t i = 0; i <= CODES; i++)
        for (size_t c = 0; c < SIZE; c++)
            row[i][c] = next();
    for (size_t kind = 0; kind < FL_COARSE_COUNT; kind++) {
        const fl_coarse *coarse = &fl_coarse_kinds[kind];
        for (size_t size = 32; size <= SIZE; size += 32) {
            float plain[CODES], fast[CODES];
            for (size_t i = 0; i < CODES; i++)
                coarse->encode(row[i], size, code + i * coarse->bytes(size));
            coarse->encode(row[CODES], size, query);
            (kind == FL_COARSE_SIGNS ? fl_scan_signs_ref : fl_scan_int8_ref)(query, code, CODES,
                                                                             size, plain);
            for (size_t i = 0; i < CODES; i++) {
                double exact = score_of(kind, row[CODES], row[i], size);
                cr_assert_float_eq(plain[i], exact, 1e-6 * fabs(exact) + 254, "%s %zu: %f %f",
                                   coarse->name, size, plain[i], exact);
            }
            for (size_t at = 0; fl_coarse_isa_at(at) != NULL; at++) {
                if (fl_coarse_isa_at(at)->usable()) {
                    fl_coarse_isa_at(at)->scan[kind](query, code, CODES, size, fast);
                    cr_assert_eq(memcmp(plain, fast, sizeof plain), 0, "%s %s %zu",
                                 fl_coarse_isa_at(at)->name, coarse->name, size);
                }
            }
        }
    }
}
