/* SPDX-License-Identifier: Apache-2.0 */
/* store.c - how long searches over many stored vectors take, on one core, and how many of the nearest they find.
 *
 * Role    build/bench_store [ROWS [COLUMNS [SEARCHES [FILE]]]]; 1,000,000 rows of 384, 24 searches unless told.
 * In/Out  FILE: little-endian float32, ROWS rows and then SEARCHES queries, of length 1; else pseudo-random ones,
 *         which lie as far apart as rows can. A line for each way to search: one query a pass, eight a pass; the
 *         core's own time a search (which other programs disturb less than the clock), and which part of the 10
 *         nearest was found.
 * Method  Rows as src/store/store.c keeps them. What is nearest is what the exact search says, whose first query is
 *         proven by a plain loop.
 * Memory  ROWS * COLUMNS * 8 bytes. Threads: one. */
#include "base/cosine.h"
#include "base/mem.h"
#include "measure.h"
#include "store/vectors.h"

enum { K = 10, SEARCHES_MAX = 1000, TOGETHER = 8 };

typedef struct table {
    size_t rows, columns, searches;
    float *row, *query;
    fl_hit nearest[SEARCHES_MAX][K], found[SEARCHES_MAX][K];
} table;

static uint64_t state = 1;

static void make_row(float *row, size_t columns) {
    for (size_t i = 0; i < columns; i++) {
        state  = state * 6364136223846793005u + 1442695040888963407u;
        row[i] = (float)(int32_t)(state >> 32) * 0x1p-31f;
    }
    (void)fl_vector_normalize(row, columns);
}

static size_t number(int argc, char **argv, int index, size_t otherwise) {
    return argc > index ? (size_t)strtoull(argv[index], NULL, 10) : otherwise;
}

static bool never(const void *user) {
    (void)user;
    return false;
}

static bool fill(table *t, const char *path) {
    size_t all = t->rows + t->searches;
    t->row     = fl_big_alloc(all * t->columns * sizeof *t->row);
    t->query   = t->row + t->rows * t->columns;
    if (t->row != NULL && path == NULL) {
        for (size_t i = 0; i < all; i++)
            make_row(t->row + i * t->columns, t->columns);
        return true;
    }
    FILE *file = t->row != NULL ? fopen(path, "rb") : NULL;
    bool  good = file != NULL && fread(t->row, t->columns * sizeof *t->row, all, file) == all;
    if (file != NULL)
        (void)fclose(file);
    return good;
}

/* The nearest row of the first query by a plain loop. */
static int64_t nearest(const table *t) {
    fl_hit best = {-1, -2};
    for (size_t i = 0; i < t->rows; i++) {
        float score = fl_dot_ref(t->query, t->row + i * t->columns, t->columns);
        best        = score > best.score ? (fl_hit){(int64_t)i, score} : best;
    }
    return best.key;
}

/* Half the searches take longer, half less: of each search, `together` in a pass. */
static double time_searches(table *t, fl_vectors *vectors, size_t together, double *best) {
    double ms[SEARCHES_MAX];
    size_t passes = t->searches / together;
    for (size_t i = 0; i < passes; i++) {
        fl_query queries[TOGETHER];
        for (size_t q = 0; q < together; q++) {
            queries[q] = (fl_query){.row  = t->query + (i * together + q) * t->columns,
                                    .k    = K,
                                    .hits = t->found[i * together + q]};
        }
        uint64_t begin = read_clock(CLOCK_THREAD_CPUTIME_ID);
        fl_vectors_search_all(vectors, queries, together, never);
        ms[i] = 1e-6 * (double)(read_clock(CLOCK_THREAD_CPUTIME_ID) - begin) / (double)together;
    }
    qsort(ms, passes, sizeof ms[0], by_value);
    *best = ms[0];
    return ms[passes / 2];
}

static double recall(const table *t) {
    size_t same = 0;
    for (size_t i = 0; i < t->searches; i++) {
        for (size_t a = 0; a < K; a++)
            for (size_t b = 0; b < K; b++)
                same += t->found[i][a].key == t->nearest[i][b].key;
    }
    return (double)same / (double)(t->searches * K);
}

static bool run(table *t, const char *name, const fl_coarse *coarse) {
    fl_vectors *vectors = NULL;
    double      best[2];
    if (fl_vectors_open(&vectors, t->columns, coarse, NULL) < 0 ||
        fl_vectors_reserve(vectors, t->rows, NULL) < 0)
        return false;
    for (size_t i = 0; i < t->rows; i++)
        fl_vectors_put(vectors, (int64_t)i, t->row + i * t->columns);
    double one   = time_searches(t, vectors, 1, &best[0]);
    double eight = time_searches(t, vectors, TOGETHER, &best[1]);
    if (coarse == NULL)
        memcpy(t->nearest, t->found, sizeof t->nearest);
    printf("%-6s one a pass: median %.2f ms, best %.2f ms; %d a pass: median %.2f ms, best %.2f "
           "ms; recall@%d %.4f\n",
           name, one, best[0], TOGETHER, eight, best[1], K, recall(t));
    fl_vectors_close(vectors);
    return true;
}

int main(int argc, char **argv) {
    static table t;
    t.rows     = number(argc, argv, 1, 1000000);
    t.columns  = number(argc, argv, 2, 384);
    t.searches = number(argc, argv, 3, 24);
    if (t.rows < K || t.columns == 0 || t.columns % FL_DOT_LANES != 0 || t.searches == 0 ||
        t.searches % TOGETHER != 0 || t.searches > SEARCHES_MAX ||
        !fill(&t, argc > 4 ? argv[4] : NULL) || !run(&t, "exact", NULL)) {
        fprintf(stderr, "usage: bench_store [ROWS [COLUMNS, a multiple of 32 [SEARCHES, a multiple "
                        "of 8 [FILE of float32 rows, then queries]]]], and memory\n");
        return 2;
    }
    if (t.nearest[0][0].key != nearest(&t)) {
        fprintf(stderr, "wrong: row %lld is the nearest\n", (long long)nearest(&t));
        return 1;
    }
    for (size_t i = 0; i < FL_COARSE_COUNT; i++) {
        if (!run(&t, fl_coarse_kinds[i].name, &fl_coarse_kinds[i])) {
            fprintf(stderr, "out of memory\n");
            return 1;
        }
    }
    fl_big_free(t.row, (t.rows + t.searches) * t.columns * sizeof *t.row);
    return 0;
}
