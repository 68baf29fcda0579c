/* SPDX-License-Identifier: Apache-2.0 */
/* test_repeats.c - texts that come again: in one request, and in another when there is a cache. They get the
 * bytes that they get alone, and an engine does not see them.
 * What is right is the business of tests/golden; here a result is compared with the same text's alone. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "fletch.h"

#define PLAIN "tests/golden/folders/pooling-cls"
#define RANKS "tests/golden/scores/bert"

enum { TEXTS = 60, DIM_MAX = 64, DISTINCT = 7 };

static const char *const words[DISTINCT] = {
    "the cat sat on the mat", "", "rain at sea", "a", "he was re-running 3 ships", "The Dog RAN!",
    "The Dog RAN! "};

static fletch_model *open_model(const char *folder, const char *cache) {
    fletch_error   error  = {0};
    fletch_model  *model  = NULL;
    fletch_config *config = fletch_config_new();
    cr_assert_eq(fletch_config_set(config, "cache.max_bytes", cache, &error), 0, "%s",
                 error.message);
    cr_assert_eq(fletch_open(&model, folder, config, &error), 0, "%s", error.message);
    fletch_config_free(config);
    return model;
}

static uint64_t counter(fletch_model *model, fletch_counter which) {
    fletch_stats stats = {.size = sizeof stats};
    cr_assert_eq(fletch_stats_get(model, &stats, NULL), 0);
    return stats.counter[which];
}

/* Row of each of `words` in a call of its own, and its tokens. */
static void alone(fletch_model *model, float rows[DISTINCT][DIM_MAX], uint32_t tokens[DISTINCT]) {
    size_t dim = fletch_dimensions(model);
    for (size_t i = 0; i < DISTINCT; i++) {
        fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
        fletch_texts         one     = fletch_texts_from_strings(&words[i], 1);
        fletch_matrix        out     = fletch_matrix_f32(rows[i], 1, dim);
        options.tokens               = &tokens[i];
        cr_assert_eq(fletch_embed(model, &one, &options, &out, NULL), 0);
    }
}

static size_t which(size_t i) {
    return i * i % DISTINCT;
}

static void fill(const char *strings[TEXTS]) {
    for (size_t i = 0; i < TEXTS; i++)
        strings[i] = words[which(i)];
}

/* How many different texts fill gives. */
static size_t different(void) {
    bool   seen[DISTINCT] = {false};
    size_t count          = 0;
    for (size_t i = 0; i < TEXTS; i++) {
        count += !seen[which(i)];
        seen[which(i)] = true;
    }
    return count;
}

Test(repeats, of_a_call_are_computed_once_and_get_the_same_bytes) {
    fletch_model *model = open_model(PLAIN, "none");
    size_t        dim   = fletch_dimensions(model);
    const char   *strings[TEXTS];
    static float  want[DISTINCT][DIM_MAX], rows[TEXTS * DIM_MAX];
    uint32_t      lengths[DISTINCT], tokens[TEXTS];
    uint8_t       truncated[TEXTS];
    alone(model, want, lengths);
    fill(strings);
    for (int again = 0; again < 2; again++) {
        uint64_t             texts   = counter(model, FLETCH_COUNT_TEXTS);
        uint64_t             repeats = counter(model, FLETCH_COUNT_REPEATED_TEXTS);
        fletch_texts         all     = fletch_texts_from_strings(strings, TEXTS);
        fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
        fletch_matrix        out     = fletch_matrix_f32(rows, TEXTS, dim);
        options.tokens               = again ? tokens : NULL;
        options.truncated            = again ? truncated : NULL;
        cr_assert_eq(fletch_embed(model, &all, &options, &out, NULL), 0);
        cr_assert_eq(counter(model, FLETCH_COUNT_TEXTS) - texts, different());
        cr_assert_eq(counter(model, FLETCH_COUNT_REPEATED_TEXTS) - repeats, TEXTS - different());
        for (size_t i = 0; i < TEXTS; i++) {
            cr_assert_eq(memcmp(rows + i * dim, want[which(i)], dim * sizeof *rows), 0, "row %zu",
                         i);
            cr_assert(!again || (tokens[i] == lengths[which(i)] && truncated[i] == 0), "text %zu",
                      i);
        }
    }
    fletch_close(model);
}

Test(repeats, of_a_bad_text_are_bad_too) {
    fletch_model        *model      = open_model(PLAIN, "none");
    const char          *strings[5] = {"a", "\xff", "b", "\xff", "a"};
    int32_t              status[5];
    static float         rows[5 * DIM_MAX];
    fletch_error         error;
    fletch_texts         texts   = fletch_texts_from_strings(strings, 5);
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    fletch_matrix        out     = fletch_matrix_f32(rows, 5, fletch_dimensions(model));
    options.status               = status;
    cr_assert_eq(fletch_embed(model, &texts, &options, &out, &error), 0);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(status[i], i % 2 ? FLETCH_EUTF8 : FLETCH_OK, "text %d", i);
    cr_assert_eq(counter(model, FLETCH_COUNT_FAILED_TEXTS), 2);
    options.status = NULL;
    cr_assert_eq(fletch_embed(model, &texts, &options, &out, &error), FLETCH_EUTF8);
    cr_assert_eq(error.where, 1);
    fletch_close(model);
}

static void check_lists(const fletch_lists *lists, const fletch_lists *one, size_t i) {
    const fletch_list *got = &lists->list[i], *want = &one->list[0];
    cr_assert_eq(got->count, want->count);
    cr_assert_eq(memcmp(got->ids, want->ids, want->count * sizeof *want->ids), 0);
    cr_assert_eq(memcmp(got->values, want->values, want->count * one->columns * sizeof(float)), 0);
}

Test(repeats, have_lists_of_their_own) {
    for (int cached = 0; cached < 2; cached++) {
        fletch_model *model = open_model(PLAIN, cached ? "8MiB" : "none");
        const char   *strings[TEXTS];
        fletch_lists *lists, *one;
        fill(strings);
        fletch_texts texts = fletch_texts_from_strings(strings, TEXTS);
        for (int again = 0; again < 2; again++) {
            cr_assert_eq(fletch_embed_tokens(model, &texts, NULL, &lists, NULL), 0);
            for (size_t i = 0; i < TEXTS; i++) {
                fletch_texts single = fletch_texts_from_strings(&strings[i], 1);
                cr_assert_eq(fletch_embed_tokens(model, &single, NULL, &one, NULL), 0);
                check_lists(lists, one, i);
                fletch_lists_free(one);
            }
            fletch_lists_free(lists);
        }
        uint64_t computed = counter(model, FLETCH_COUNT_TEXTS);
        cr_assert_eq(computed, cached ? different() : 2 * (different() + TEXTS));
        fletch_close(model);
    }
}

Test(repeats, of_pairs_are_told_by_both_texts) {
    fletch_model *model     = open_model(RANKS, "none");
    const char   *first[6]  = {"cat", "cat", "cat", "dog", "cat", "cat"};
    const char   *second[6] = {"mat", "mat", "sea", "mat", NULL, ""};
    float         scores[6], one;
    fletch_texts  a = fletch_texts_from_strings(first, 6), b = fletch_texts_from_strings(second, 6);
    size_t        lengths[6] = {3, 3, 3, 3, 0, 0}; /* a NULL pointer stands for no second text */
    fletch_matrix out        = fletch_matrix_f32(scores, 6, 1);
    b.lengths                = lengths;
    cr_assert_eq(fletch_classify(model, &a, &b, NULL, &out, NULL), 0);
    cr_assert_eq(counter(model, FLETCH_COUNT_TEXTS), 5);
    for (size_t i = 0; i < 6; i++) {
        fletch_texts  x = fletch_texts_from_strings(&first[i], 1), y = x;
        fletch_matrix cell = fletch_matrix_f32(&one, 1, 1);
        y.pointers         = &second[i];
        y.lengths          = &lengths[i];
        cr_assert_eq(fletch_classify(model, &x, &y, NULL, &cell, NULL), 0);
        cr_assert_eq(memcmp(&one, &scores[i], sizeof one), 0, "pair %zu", i);
    }
    fletch_close(model);
}

/* ---- Texts and ids in one request --------------------------------------------------------------- */

typedef struct waiting {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    bool            over;
    fletch_outcome  outcome;
} waiting;

static void done(void *user, const fletch_outcome *outcome) {
    waiting *w = user;
    pthread_mutex_lock(&w->lock);
    w->over    = true;
    w->outcome = *outcome;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static int submit(fletch_model *model, const fletch_request *request, fletch_outcome *outcome) {
    waiting w      = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    int     status = fletch_submit(model, request, done, &w, NULL, &w.outcome.error);
    pthread_mutex_lock(&w.lock);
    while (status == 0 && !w.over)
        pthread_cond_wait(&w.changed, &w.lock);
    pthread_mutex_unlock(&w.lock);
    *outcome = w.outcome;
    return status < 0 ? status : w.outcome.error.code;
}

Test(repeats, texts_and_ids_share_a_request) {
    fletch_model  *model = open_model(PLAIN, "none");
    size_t         dim = fletch_dimensions(model), total = 0;
    const char    *items[5];
    size_t         sizes[5];
    uint32_t       tokens[5];
    const uint8_t  are_ids[5] = {0, 1, 0, 1, 1};
    static float   want[DISTINCT][DIM_MAX], rows[5 * DIM_MAX];
    uint32_t       lengths[DISTINCT];
    fletch_tokens *found;
    fletch_outcome outcome;
    alone(model, want, lengths);
    cr_assert_eq(fletch_tokenize(model, words[0], strlen(words[0]), NULL, &found, NULL), 0);
    for (int i = 0; i < 5; i++) {
        items[i] = are_ids[i] ? (const char *)found->ids : words[i == 0 ? 0 : 2];
        sizes[i] = are_ids[i] ? found->count : strlen(items[i]);
        total += are_ids[i] || i == 0 ? lengths[0] : lengths[2];
    }
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    fletch_request       request = FLETCH_REQUEST_INIT;
    options.tokens               = tokens;
    request.options              = &options;
    request.texts                = (fletch_texts){.count = 5, .pointers = items, .lengths = sizes};
    request.are_ids              = are_ids;
    request.out                  = fletch_matrix_f32(rows, 5, dim);
    cr_assert_eq(submit(model, &request, &outcome), 0, "%s", outcome.error.message);
    cr_assert_eq(outcome.tokens, total);
    for (size_t i = 0; i < 5; i++)
        cr_assert_eq(memcmp(rows + i * dim, want[i == 2 ? 2 : 0], dim * sizeof *rows), 0, "%zu", i);
    int32_t bad[1] = {1 << 30};
    items[3]       = (const char *)bad;
    sizes[3]       = 1;
    cr_assert_eq(submit(model, &request, &outcome), FLETCH_EINVAL);
    cr_assert_eq(outcome.error.where, 3);
    request.texts.lengths = NULL;
    cr_assert_eq(submit(model, &request, &outcome), FLETCH_EINVAL);
    fletch_tokens_free(found);
    fletch_close(model);
}

/* ---- The cache ----------------------------------------------------------------------------------- */

Test(repeats, of_other_calls_come_from_the_cache_as_bytes) {
    fletch_model *model = open_model(PLAIN, "none"), *cached = open_model(PLAIN, "1MiB");
    size_t        dim = fletch_dimensions(model);
    static char   rows[DISTINCT * DIM_MAX * 4], want[DISTINCT * DIM_MAX * 4];
    fletch_texts  texts = fletch_texts_from_strings(words, DISTINCT);
    /* Rows of every type, length and scale: none may stand for another. */
    for (int round = 0; round < 3; round++)
        for (int dtype = FLETCH_FLOAT32; dtype <= FLETCH_UBINARY; dtype++)
            for (int how = 0; how < 6; how++) {
                fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
                fletch_matrix        out     = {.rows = DISTINCT, .dtype = (fletch_dtype)dtype};
                options.dimensions           = how % 2 ? (uint32_t)dim / 2 : 0;
                options.normalize            = how / 2 - 1;
                out.cols                     = how % 2 ? dim / 2 : dim;
                out.stride                   = fletch_row_bytes(out.cols, out.dtype);
                out.data                     = want;
                cr_assert_eq(fletch_embed(model, &texts, &options, &out, NULL), 0);
                out.data = rows;
                memset(rows, 0x55, sizeof rows);
                cr_assert_eq(fletch_embed(cached, &texts, &options, &out, NULL), 0);
                cr_assert_eq(memcmp(rows, want, DISTINCT * out.stride), 0, "%d %d", dtype, how);
            }
    /* dimensions = 0 with normalize = 0 and 1 may be one form; the others differ. */
    cr_assert_leq(counter(cached, FLETCH_COUNT_TEXTS), 30 * DISTINCT);
    cr_assert_geq(counter(cached, FLETCH_COUNT_CACHE_HITS), 60 * DISTINCT);
    cr_assert_eq(counter(cached, FLETCH_COUNT_TEXTS), counter(cached, FLETCH_COUNT_CACHE_MISSES));
    cr_assert_eq(counter(model, FLETCH_COUNT_CACHE_MISSES), 0);
    uint64_t             before  = counter(cached, FLETCH_COUNT_TEXTS);
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    fletch_matrix        out     = fletch_matrix_f32((float *)(void *)rows, DISTINCT, dim);
    options.no_cache             = 1;
    cr_assert_eq(fletch_embed(cached, &texts, &options, &out, NULL), 0);
    cr_assert_eq(counter(cached, FLETCH_COUNT_TEXTS), before + DISTINCT);
    cr_assert_eq(fletch_warm(cached, NULL), 0);
    cr_assert_gt(counter(cached, FLETCH_COUNT_TEXTS), before + DISTINCT, "warming is work");
    before = counter(cached, FLETCH_COUNT_TEXTS);
    cr_assert_eq(fletch_model_reopen(cached, NULL, NULL), 0);
    cr_assert_eq(fletch_embed(cached, &texts, NULL, &out, NULL), 0);
    cr_assert_eq(counter(cached, FLETCH_COUNT_TEXTS), before + DISTINCT,
                 "an engine that is opened again starts with an empty cache");
    fletch_close(cached);
    fletch_close(model);
}

Test(repeats, a_prompt_is_part_of_the_text) {
    fletch_model *model = open_model(PLAIN, "1MiB");
    size_t        dim   = fletch_dimensions(model);
    float         rows[3][DIM_MAX];
    for (int i = 0; i < 3; i++) {
        fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
        fletch_texts         one     = fletch_texts_from_strings(&words[0], 1);
        fletch_matrix        out     = fletch_matrix_f32(rows[i], 1, dim);
        options.prompt               = i == 1 ? "the " : NULL;
        cr_assert_eq(fletch_embed(model, &one, &options, &out, NULL), 0);
    }
    cr_assert_eq(counter(model, FLETCH_COUNT_CACHE_HITS), 1);
    cr_assert_neq(memcmp(rows[0], rows[1], dim * sizeof(float)), 0);
    cr_assert_eq(memcmp(rows[0], rows[2], dim * sizeof(float)), 0);
    fletch_close(model);
}

Test(repeats, a_query_is_part_of_a_score) {
    fletch_model *model = open_model(RANKS, "1MiB"), *plain = open_model(RANKS, "none");
    fletch_texts  texts = fletch_texts_from_strings(words, DISTINCT);
    for (int round = 0; round < 2; round++)
        for (int query = 0; query < 3; query++)
            for (int how = FLETCH_ACTIVATION_DEFAULT; how <= FLETCH_ACTIVATION_SOFTMAX; how++) {
                float                scores[DISTINCT], want[DISTINCT];
                fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
                const char          *text    = words[2 * query];
                options.activation           = (fletch_activation)how;
                cr_assert_eq(
                    fletch_rerank(model, text, strlen(text), &texts, &options, scores, NULL), 0);
                cr_assert_eq(fletch_rerank(plain, text, strlen(text), &texts, &options, want, NULL),
                             0);
                cr_assert_eq(memcmp(scores, want, sizeof want), 0, "query %d, %d", query, how);
            }
    cr_assert_geq(counter(model, FLETCH_COUNT_CACHE_HITS), 12 * DISTINCT);
    fletch_close(model);
    fletch_close(plain);
}

typedef struct caller {
    fletch_model *model;
    const float (*want)[DIM_MAX];
    pthread_t thread;
} caller;

static void *call(void *arg) {
    caller *c   = arg;
    size_t  dim = fletch_dimensions(c->model);
    float   rows[4 * DIM_MAX];
    for (size_t round = 0; round < 200; round++) {
        const char *strings[4];
        for (size_t i = 0; i < 4; i++)
            strings[i] = words[(round + i * i) % DISTINCT];
        fletch_texts  texts = fletch_texts_from_strings(strings, 4);
        fletch_matrix out   = fletch_matrix_f32(rows, 4, dim);
        cr_assert_eq(fletch_embed(c->model, &texts, NULL, &out, NULL), 0);
        for (size_t i = 0; i < 4; i++)
            cr_assert_eq(
                memcmp(rows + i * dim, c->want[(round + i * i) % DISTINCT], dim * sizeof *rows), 0);
    }
    return NULL;
}

Test(repeats, threads_share_a_small_cache) {
    fletch_model *plain = open_model(PLAIN, "none"), *model = open_model(PLAIN, "4KiB");
    static float  want[DISTINCT][DIM_MAX];
    uint32_t      tokens[DISTINCT];
    caller        callers[4];
    alone(plain, want, tokens);
    for (int i = 0; i < 4; i++) {
        callers[i] = (caller){.model = model, .want = (const float(*)[DIM_MAX])want};
        cr_assert_eq(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(callers[i].thread, NULL);
    cr_assert_gt(counter(model, FLETCH_COUNT_CACHE_HITS), 0);
    fletch_close(model);
    fletch_close(plain);
}
