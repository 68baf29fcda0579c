/* SPDX-License-Identifier: Apache-2.0 */
/* store.c - how long the exact search over many stored vectors takes, on one core.
 *
 * Role    build/bench_store [ROWS [COLUMNS [SEARCHES]]]; 1,000,000 rows of 384 unless told.
 * Method  Pseudo-random rows of length 1 as src/store/store.c keeps them; the median and the best of the
 *         searches for the 10 nearest, by the clock and by the core's own time (which other programs
 *         disturb less), and the speed of memory that this is. Nothing is printed before a plain
 *         loop has found the same nearest row. Then eight searches in one pass, per search.
 * Memory  ROWS * COLUMNS * 4 bytes. Threads: one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/cosine.h"
#include "base/mem.h"
#include "store/vectors.h"

enum { K = 10, SEARCHES_MAX = 1000 };

static uint64_t state = 1;

static void make_row(float *row, size_t columns) {
    for (size_t i = 0; i < columns; i++) {
        state  = state * 6364136223846793005u + 1442695040888963407u;
        row[i] = (float)(int32_t)(state >> 32) * 0x1p-31f;
    }
    (void)fl_vector_normalize(row, columns);
}

static uint64_t core_ns(void) {
    struct timespec time;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int by_time(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static size_t number(int argc, char **argv, int index, size_t otherwise) {
    return argc > index ? (size_t)strtoull(argv[index], NULL, 10) : otherwise;
}

static bool never(const void *user) {
    (void)user;
    return false;
}

int main(int argc, char **argv) {
    size_t      rows = number(argc, argv, 1, 1000000), columns = number(argc, argv, 2, 384);
    size_t      searches = number(argc, argv, 3, 21);
    uint64_t    ns[SEARCHES_MAX], core[SEARCHES_MAX];
    fl_vectors *vectors = NULL;
    float      *row     = fl_alloc_array(columns, sizeof *row),
          *query        = fl_alloc_array(columns, sizeof *row);
    if (row == NULL || query == NULL || rows == 0 || columns % FL_DOT_LANES != 0 || searches == 0 ||
        searches > SEARCHES_MAX || fl_vectors_open(&vectors, columns, NULL) < 0 ||
        fl_vectors_reserve(vectors, rows, NULL) < 0) {
        fprintf(stderr,
                "usage: bench_store [ROWS [COLUMNS, a multiple of 32 [SEARCHES]]], and memory\n");
        return 2;
    }
    make_row(query, columns);
    fl_hit best = {-1, -2};
    for (size_t i = 0; i < rows; i++) {
        make_row(row, columns);
        fl_vectors_put(vectors, (int64_t)i, row);
        float score = fl_dot_ref(query, row, columns);
        best        = score > best.score ? (fl_hit){(int64_t)i, score} : best;
    }
    for (size_t i = 0; i < searches; i++) {
        fl_hit   hits[K];
        uint64_t begin = fl_clock_ns(), begin_core = core_ns();
        size_t   found = fl_vectors_search(vectors, query, K, NULL, 0, never, NULL, hits);
        ns[i]          = fl_clock_ns() - begin;
        core[i]        = core_ns() - begin_core;
        if (found == 0 || hits[0].key != best.key) {
            fprintf(stderr, "wrong: row %lld is the nearest\n", (long long)best.key);
            return 1;
        }
    }
    qsort(ns, searches, sizeof ns[0], by_time);
    qsort(core, searches, sizeof core[0], by_time);
    double bytes = (double)rows * (double)columns * sizeof(float);
    printf(
        "%zu x %zu, %zu searches: median %.1f ms, best %.1f ms; core's time: median %.1f ms, best "
        "%.1f ms (%.1f GB/s)\n",
        rows, columns, searches, (double)ns[searches / 2] / 1e6, (double)ns[0] / 1e6,
        (double)core[searches / 2] / 1e6, (double)core[0] / 1e6, bytes / (double)core[0]);
    enum { TOGETHER = 8 };
    fl_hit   hits[TOGETHER][K];
    fl_query queries[TOGETHER];
    for (size_t q = 0; q < TOGETHER; q++) {
        queries[q] = (fl_query){.row = query, .k = K, .hits = hits[q]};
    }
    for (size_t i = 0; i < searches; i++) {
        uint64_t begin = core_ns();
        fl_vectors_search_all(vectors, queries, TOGETHER, never);
        core[i] = (core_ns() - begin) / TOGETHER;
    }
    qsort(core, searches, sizeof core[0], by_time);
    printf("%d in one pass: core's time a search: median %.1f ms, best %.1f ms\n", TOGETHER,
           (double)core[searches / 2] / 1e6, (double)core[0] / 1e6);
    fl_vectors_close(vectors);
    fl_free(row);
    fl_free(query);
    return 0;
}
