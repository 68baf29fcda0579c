/* SPDX-License-Identifier: Apache-2.0 */
/* test_fletch.c - the public contract on small model folders: what a call refuses and how it says so, that a
 * second call allocates nothing, that a failed allocation is an error and no leak, that callers on several
 * threads get the bytes they would get alone.
 * Right vectors are the business of tests/golden; here a row is compared with the same text's row. */
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "folder.h"
#include "patience.h"
#include "requests/open_model.h"

#define PLAIN   "tests/golden/folders/pooling-cls"
#define PROMPTS "tests/golden/folders/prompts"
#define RANKS   "tests/golden/scores/bert"
#define THREE   "tests/golden/scores/bert-three"

enum { TEXTS = 40, DIM_MAX = 64 };

static const char *const words[] = {
    "the cat sat on the mat", "", "rain at sea", "a", "he was re-running 3 ships", "The Dog RAN!"};
enum { WORDS = sizeof words / sizeof words[0] };

static fletch_model *open_model(const char *from, const fletch_config *config) {
    fletch_error  error;
    fletch_model *model  = NULL;
    int           status = fletch_open(&model, from, config, &error);
    if (status < 0)
        fprintf(stderr, "%s\n", error.message);
    cr_assert_eq(status, 0);
    return model;
}

/* All different: what is equal would be computed once. */
static void fill(const char *strings[TEXTS]) {
    static char made[TEXTS][64];
    for (int i = 0; i < TEXTS; i++) {
        snprintf(made[i], sizeof made[i], "%s%.*s", words[i % WORDS], i / WORDS, " and on and on");
        strings[i] = made[i];
    }
}

/* A thread of the model may still hold what a call had when the next one begins, which then takes another one, once:
 * so many calls allocate less often than any fourth of them. */
enum { CALLS = 64 };
static void expect_settled(uint64_t before) {
    uint64_t made = fl_alloc_count() - before;
    cr_assert_lt(made, CALLS / 4, "%llu allocations in %d calls", (unsigned long long)made, CALLS);
}

Test(fletch, calls_settle_and_allocate_nothing) {
    fletch_model *model = open_model(PLAIN, NULL);
    const char   *strings[TEXTS];
    static float  rows[TEXTS * DIM_MAX];
    fletch_error  error;
    fill(strings);
    fletch_texts  texts = fletch_texts_from_strings(strings, TEXTS);
    fletch_matrix out   = fletch_matrix_f32(rows, TEXTS, fletch_dimensions(model));
    cr_assert_eq(fletch_embed(model, &texts, NULL, &out, &error), 0);
    uint64_t before = fl_alloc_count();
    for (int i = 0; i < CALLS; i++)
        cr_assert_eq(fletch_embed(model, &texts, NULL, &out, &error), 0);
    expect_settled(before);
    fletch_close(model);
}

/* Open, embed and tokenise once; whatever fails must say so and leave nothing behind. */
static int whole_life(void) {
    fletch_model *model = NULL;
    fletch_error  error;
    const char   *strings[TEXTS];
    static float  rows[TEXTS * DIM_MAX];
    int           status = fletch_open(&model, PROMPTS, NULL, &error);
    if (status < 0) {
        cr_assert_null(model);
        return status;
    }
    fill(strings);
    fletch_texts  texts   = fletch_texts_from_strings(strings, TEXTS);
    fletch_matrix out     = fletch_matrix_f32(rows, TEXTS, fletch_dimensions(model));
    status                = fletch_embed(model, &texts, NULL, &out, &error);
    fletch_tokens *tokens = NULL;
    if (status == 0)
        status = fletch_tokenize(model, "the cat", 7, NULL, &tokens, &error);
    fletch_lists *lists = NULL;
    if (status == 0)
        status = fletch_embed_tokens(model, &texts, NULL, &lists, &error);
    fletch_lists_free(lists);
    fletch_tokens_free(tokens);
    fletch_chunks *chunks = NULL;
    if (status == 0)
        status = fletch_chunk(model, "The cat. The dog.", 17, NULL, &chunks, &error);
    fletch_chunks_free(chunks);
    fletch_close(model);
    return status;
}

Test(fletch, every_allocation_may_fail_once) {
    uint64_t before = fl_alloc_count();
    cr_assert_eq(whole_life(), 0);
    uint64_t total = fl_alloc_count() - before;
    cr_assert_gt(total, 20);
    for (uint64_t n = 1; n <= total; n++) {
        fl_alloc_fail_after(n);
        int status = whole_life();
        fl_alloc_fail_after(0);
        /* A cache that could not be had is no failure; anything else is "out of memory", never a lie. */
        cr_assert(status == 0 || status == FLETCH_ENOMEM);
    }
    cr_assert_eq(whole_life(), 0);
}

/* ---- Scores ---------------------------------------------------------------------------------- */

/* Reading /proc/self/mem gives EIO. Under a sanitizer this is also where nothing leaks. */
Test(fletch, a_file_that_the_disk_does_not_give_is_named) {
    static const char *const files[] = {"tokenizer.json",
                                        "config.json",
                                        "modules.json",
                                        "model.safetensors",
                                        "1_Pooling/config.json",
                                        "tokenizer_config.json",
                                        "sentence_bert_config.json",
                                        "config_sentence_transformers.json"};
    enum { FILES = sizeof files / sizeof files[0] };
    fletch_error  error;
    fletch_model *model;
    folder_make();
    if (symlink("/proc/self/mem", folder_path(files[0])) != 0 && errno == EPERM)
        cr_skip_test("this system has no links");
    char *whole = realpath(PROMPTS, NULL), from[4096];
    for (int bad = 0; bad <= FILES; bad++) {
        for (int i = 0; i < FILES; i++) {
            snprintf(from, sizeof from, "%s/%s", whole, files[i]);
            unlink(folder_path(files[i]));
            cr_assert_eq(symlink(i == bad ? "/proc/self/mem" : from, folder_path(files[i])), 0);
        }
        int status = fletch_open(&model, folder, NULL, &error);
        if (bad == FILES) {
            cr_assert_eq(status, 0, "all files are whole: %s", error.message);
            fletch_close(model);
        } else {
            cr_assert_lt(status, 0, "%s", files[bad]);
            cr_assert_not_null(strstr(error.message, files[bad]), "%s", error.message);
        }
    }
    free(whole);
    folder_drop();
}

Test(fletch, rerankings_settle_and_allocate_nothing) {
    fletch_model *model = open_model(RANKS, NULL);
    const char   *strings[TEXTS];
    float         scores[TEXTS], again[TEXTS];
    fletch_error  error;
    fill(strings);
    fletch_texts texts = fletch_texts_from_strings(strings, TEXTS);
    cr_assert_eq(fletch_rerank(model, "the cat", 7, &texts, NULL, scores, &error), 0);
    uint64_t before = fl_alloc_count();
    for (int i = 0; i < CALLS; i++) {
        cr_assert_eq(fletch_rerank(model, "the cat", 7, &texts, NULL, again, &error), 0);
        cr_assert_eq(memcmp(scores, again, sizeof scores), 0);
    }
    expect_settled(before);
    fletch_close(model);
}

static int life_of_a_reranker(void) {
    fletch_model *model = NULL;
    const char   *strings[TEXTS];
    float         scores[TEXTS];
    fletch_error  error;
    int           status = fletch_open(&model, RANKS, NULL, &error);
    fill(strings);
    fletch_texts  texts = fletch_texts_from_strings(strings, TEXTS);
    fletch_matrix out   = fletch_matrix_f32(scores, TEXTS, 1);
    if (status == 0)
        status = fletch_rerank(model, "the cat", 7, &texts, NULL, scores, &error);
    if (status == 0)
        status = fletch_classify(model, &texts, &texts, NULL, &out, &error);
    fletch_close(model);
    return status;
}

Test(fletch, every_allocation_of_a_reranker_may_fail_once) {
    uint64_t before = fl_alloc_count();
    cr_assert_eq(life_of_a_reranker(), 0);
    uint64_t total = fl_alloc_count() - before;
    for (uint64_t n = 1; n <= total; n++) {
        fl_alloc_fail_after(n);
        int status = life_of_a_reranker();
        fl_alloc_fail_after(0);
        cr_assert(status == 0 || status == FLETCH_ENOMEM);
    }
    cr_assert_eq(life_of_a_reranker(), 0);
}

Test(fletch, what_scores_need_is_checked) {
    fletch_model        *ranks = open_model(RANKS, NULL), *three = open_model(THREE, NULL);
    const char          *pair[] = {"a cat", "a dog"}, *bad[] = {"a cat", "\xff"};
    float                row[6];
    fletch_error         error;
    fletch_texts         two     = fletch_texts_from_strings(pair, 2), wrong;
    fletch_texts         one     = fletch_texts_from_strings(pair, 1);
    fletch_matrix        out     = fletch_matrix_f32(row, 2, 3);
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    cr_assert_eq(fletch_rerank(NULL, "q", 1, &two, NULL, row, &error), FLETCH_EINVAL);
    cr_assert_eq(fletch_rerank(ranks, NULL, 0, &two, NULL, row, &error), FLETCH_EINVAL);
    cr_assert_eq(fletch_rerank(ranks, "q", 1, NULL, NULL, row, &error), FLETCH_EINVAL);
    cr_assert_eq(fletch_rerank(ranks, "q", 1, &two, NULL, NULL, &error), FLETCH_EINVAL);
    cr_assert_eq(fletch_rerank(ranks, "\xff", 1, &two, NULL, row, &error), FLETCH_EUTF8);
    cr_assert_eq(fletch_rerank(three, "q", 1, &two, NULL, row, &error), FLETCH_EUNSUPPORTED);
    cr_assert_eq(fletch_classify(three, &two, &one, NULL, &out, &error), FLETCH_EINVAL);
    cr_assert_eq(fletch_classify(three, &two, &two, NULL, &out, &error), 0);
    wrong = fletch_texts_from_strings(bad, 2);
    cr_assert_eq(fletch_classify(three, &two, &wrong, NULL, &out, &error), FLETCH_EUTF8);
    cr_assert_eq(error.where, 1);
    out = fletch_matrix_f32(row, 2, 2);
    cr_assert_eq(fletch_classify(three, &two, NULL, NULL, &out, &error), FLETCH_EINVAL);
    out       = fletch_matrix_f32(row, 2, 3);
    out.dtype = FLETCH_INT8;
    cr_assert_eq(fletch_classify(three, &two, NULL, NULL, &out, &error), FLETCH_EINVAL);
    options.dimensions = 1;
    cr_assert_eq(fletch_rerank(ranks, "q", 1, &two, &options, row, &error), FLETCH_EINVAL);
    options.dimensions = 0, options.max_length = 3; /* [CLS], [SEP] and [SEP] */
    cr_assert_eq(fletch_rerank(ranks, "q", 1, &two, &options, row, &error), FLETCH_EINVAL);
    options.max_length = 4;
    cr_assert_eq(fletch_rerank(ranks, "q", 1, &two, &options, row, &error), 0);
    two.count = 0;
    cr_assert_eq(fletch_rerank(ranks, "q", 1, &two, NULL, NULL, &error), 0);
    cr_assert_str_eq(fletch_label_at(three, 1), "entailment");
    cr_assert_null(fletch_label_at(three, 3));
    cr_assert_null(fletch_label_at(NULL, 0));
    fletch_close(ranks);
    fletch_close(three);
}

/* ---- Lists ----------------------------------------------------------------------------------- */

Test(fletch, tokens_have_the_same_vectors_alone_and_in_company) {
    fletch_model *model = open_model(PLAIN, NULL);
    const char   *strings[TEXTS];
    fletch_lists *many = NULL, *one = NULL;
    uint32_t      tokens[TEXTS];
    fletch_error  error;
    fill(strings);
    fletch_texts         texts   = fletch_texts_from_strings(strings, TEXTS);
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    options.tokens               = tokens;
    cr_assert_eq(fletch_embed_tokens(model, &texts, &options, &many, &error), 0);
    cr_assert(many->count == TEXTS && many->columns == 32);
    for (size_t i = 0; i < TEXTS; i++) {
        const fletch_list *list  = &many->list[i], *alone;
        size_t             bytes = list->count * many->columns * sizeof(float);
        texts                    = fletch_texts_from_strings(strings + i, 1);
        cr_assert_eq(fletch_embed_tokens(model, &texts, NULL, &one, &error), 0);
        alone = &one->list[0];
        cr_assert(list->count == tokens[i] && alone->count == list->count);
        cr_assert_eq(memcmp(alone->ids, list->ids, list->count * sizeof *list->ids), 0);
        cr_assert_eq(memcmp(alone->values, list->values, bytes), 0);
        fletch_lists_free(one);
    }
    fletch_lists_free(many);
    fletch_close(model);
}

/* The folder pools the first token: its dense vector is the first of the tokens' vectors. */
Test(fletch, dense_and_token_requests_share_batches) {
    fletch_model *model = open_model(PLAIN, NULL);
    const char   *strings[TEXTS];
    static float  rows[TEXTS * DIM_MAX];
    fletch_lists *lists = NULL;
    fletch_error  error;
    fill(strings);
    fletch_texts         texts   = fletch_texts_from_strings(strings, TEXTS);
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    fletch_matrix        out     = fletch_matrix_f32(rows, TEXTS, fletch_dimensions(model));
    options.normalize            = -1;
    cr_assert_eq(fletch_embed(model, &texts, &options, &out, &error), 0);
    cr_assert_eq(fletch_embed_tokens(model, &texts, NULL, &lists, &error), 0);
    for (size_t i = 0; i < TEXTS; i++)
        cr_assert_eq(memcmp(rows + i * out.cols, lists->list[i].values, out.stride), 0);
    fletch_lists_free(lists);
    options.normalize = 1;
    cr_assert_eq(fletch_embed_tokens(model, &texts, &options, &lists, &error), 0);
    for (size_t i = 0; i < TEXTS; i++) {
        double sum = 0;
        for (size_t k = 0; k < lists->columns; k++)
            sum += (double)lists->list[i].values[k] * (double)lists->list[i].values[k];
        cr_assert(fabs(sum - 1) < 1e-6);
    }
    fletch_lists_free(lists);
    fletch_close(model);
}

Test(fletch, lists_have_a_bound_and_say_what_they_refuse) {
    fletch_model        *model  = open_model(PLAIN, NULL);
    const char          *good[] = {"the cat", "rain at sea"}, *bad[] = {"the cat", "\xff", "a"};
    fletch_lists        *lists = (fletch_lists *)(void *)good;
    int32_t              status[3];
    fletch_error         error;
    fletch_texts         texts   = fletch_texts_from_strings(good, 2);
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    options.list_bytes           = 64;
    cr_assert_eq(fletch_embed_tokens(model, &texts, &options, &lists, &error), FLETCH_ENOSPC);
    cr_assert_null(lists);
    cr_assert_not_null(strstr(error.message, "list_bytes"));
    options.list_bytes = 1 << 20;
    options.dimensions = 16;
    cr_assert_eq(fletch_embed_tokens(model, &texts, &options, &lists, &error), FLETCH_EINVAL);
    options.dimensions = 0;
    options.status     = status;
    texts              = fletch_texts_from_strings(bad, 3);
    cr_assert_eq(fletch_embed_tokens(model, &texts, &options, &lists, &error), 0);
    cr_assert(status[0] == 0 && status[1] == FLETCH_EUTF8 && status[2] == 0);
    cr_assert(lists->list[0].count > 0 && lists->list[1].count == 0 && lists->list[2].count > 0);
    fletch_lists_free(lists);
    texts = fletch_texts_from_strings(bad, 0);
    cr_assert_eq(fletch_embed_tokens(model, &texts, NULL, &lists, &error), 0);
    cr_assert_eq(lists->count, 0);
    fletch_lists_free(lists);
    cr_assert_eq(fletch_embed_tokens(model, &texts, NULL, NULL, &error), FLETCH_EINVAL);
    cr_assert_eq(fletch_embed_tokens(NULL, &texts, NULL, &lists, &error), FLETCH_EINVAL);
    fletch_lists_free(NULL);
    fletch_close(model);
}

/* A done function keeps the lists; a request that fails has none. */
static void keep_lists(void *user, const fletch_outcome *outcome) {
    *(fletch_outcome *)user = *outcome;
}

Test(fletch, submitted_lists_are_the_callers) {
    fletch_model  *model   = open_model(PLAIN, NULL);
    const char    *one[]   = {"the cat sat on the mat"};
    fletch_request request = FLETCH_REQUEST_INIT;
    fletch_lists  *direct  = NULL;
    fletch_outcome outcome = {0};
    fletch_error   error;
    request.texts     = fletch_texts_from_strings(one, 1);
    request.kind      = FLETCH_KIND_TOKENS;
    request.inline_us = 60000000; /* nothing else is about: done is called here */
    cr_assert_eq(fletch_submit(model, &request, keep_lists, &outcome, NULL, &error), 0);
    cr_assert_not_null(outcome.lists);
    cr_assert_eq(fletch_embed_tokens(model, &request.texts, NULL, &direct, &error), 0);
    cr_assert_eq(outcome.lists->list[0].count, direct->list[0].count);
    cr_assert_eq(memcmp(outcome.lists->list[0].values, direct->list[0].values,
                        direct->list[0].count * direct->columns * sizeof(float)),
                 0);
    fletch_lists_free(outcome.lists);
    fletch_lists_free(direct);
    one[0] = "\xff";
    cr_assert_eq(fletch_submit(model, &request, keep_lists, &outcome, NULL, &error), 0);
    cr_assert(outcome.error.code == FLETCH_EUTF8 && outcome.lists == NULL);
    request.kind = (fletch_kind)9;
    cr_assert_eq(fletch_submit(model, &request, keep_lists, &outcome, NULL, &error), FLETCH_EINVAL);
    fletch_close(model);
}

/* Whatever fails of a sparse call is "out of memory", and nothing stays behind. */
Test(fletch, sparse_calls_survive_every_failed_allocation) {
    fletch_model        *model    = open_model("tests/golden/folders/sparse-bert", NULL);
    const char          *some[]   = {"the cat sat on the mat", "rain at sea"};
    fletch_embed_options options  = FLETCH_EMBED_OPTIONS_INIT;
    fletch_texts         texts    = fletch_texts_from_strings(some, 2);
    fletch_lists        *expected = NULL, *lists = NULL;
    fletch_error         error;
    options.top_k = 5;
    cr_assert_eq(fletch_embed_sparse(model, &texts, &options, &expected, &error), 0);
    cr_assert(expected->columns == 1 && expected->list[1].count == 5);
    for (uint64_t n = 1; n < 12; n++) {
        fl_alloc_fail_after(n);
        int status = fletch_embed_sparse(model, &texts, &options, &lists, &error);
        fl_alloc_fail_after(0);
        cr_assert(status == FLETCH_ENOMEM || status == 0);
        cr_assert_eq(status == 0, lists != NULL);
        if (lists)
            cr_assert_eq(memcmp(lists->list[1].values, expected->list[1].values, 5 * sizeof(float)),
                         0);
        fletch_lists_free(lists);
    }
    options.threshold = -1;
    cr_assert_eq(fletch_embed_sparse(model, &texts, &options, &lists, &error), FLETCH_EINVAL);
    cr_assert_eq(fletch_embed_tokens(model, &texts, NULL, &lists, &error), FLETCH_EUNSUPPORTED);
    fletch_lists_free(expected);
    fletch_close(model);
}

/* A later header's structs are longer: what this library does not know is zero. tests/abi is the other way. */
Test(fletch, longer_structs_of_later_programs_are_filled_as_far_as_known) {
    fletch_model *model = open_model(PLAIN, NULL);
    struct {
        fletch_stats known;
        uint64_t     later[4];
    } stats;
    struct {
        fletch_model_info known;
        uint64_t          later[4];
    } info;
    memset(&stats, 0xA5, sizeof stats);
    memset(&info, 0xA5, sizeof info);
    stats.known.size = sizeof stats;
    info.known.size  = sizeof info;
    cr_assert_eq(fletch_stats_get(model, &stats.known, NULL), 0);
    cr_assert_eq(fletch_model_info_get(model, &info.known, NULL), 0);
    cr_assert_eq(stats.known.size, sizeof stats.known);
    cr_assert_eq(info.known.size, sizeof info.known);
    cr_assert_eq(stats.known.counter[FLETCH_COUNT_BATCHES], 0);
    cr_assert_str_eq(info.known.pooling, "cls");
    cr_assert_str_eq(info.known.provider, "cpu");
    for (int i = 0; i < 4; i++)
        cr_assert(stats.later[i] == 0 && info.later[i] == 0);
    stats.known.size = 1 << 20; /* memory that nobody initialised */
    cr_assert_eq(fletch_stats_get(model, &stats.known, NULL), FLETCH_EINVAL);
    cr_assert_eq(fletch_model_info_get(NULL, &info.known, NULL), FLETCH_EINVAL);
    cr_assert_null(fletch_prompt_at(model, 1000));
    cr_assert(strstr(fletch_model_file_at(model, 0), "/model.safetensors") != NULL);
    cr_assert_null(fletch_model_file_at(model, 1));
    cr_assert_null(fletch_model_file_at(NULL, 0));
    fletch_close(model);
}

Test(fletch, arguments_are_checked) {
    fletch_model *model = open_model(PLAIN, NULL);
    const char   *one[] = {"the cat"};
    float         row[2 * DIM_MAX];
    size_t        dim = fletch_dimensions(model);
    fletch_error  error;
    fletch_texts  texts = fletch_texts_from_strings(one, 1);
    fletch_matrix out   = fletch_matrix_f32(row, 1, dim);

    cr_assert_eq(fletch_embed(NULL, &texts, NULL, &out, &error), FLETCH_EINVAL);
    cr_assert_eq(fletch_embed(model, NULL, NULL, &out, &error), FLETCH_EINVAL);
    cr_assert_eq(fletch_embed(model, &texts, NULL, NULL, NULL), FLETCH_EINVAL);
    out.rows = 0;
    cr_assert_eq(fletch_embed(model, &texts, NULL, &out, &error), FLETCH_EINVAL);
    out.rows   = 1;
    out.stride = dim * sizeof(float) - 1;
    cr_assert_eq(fletch_embed(model, &texts, NULL, &out, &error), FLETCH_EINVAL);
    const char  *pair[] = {"a", "b"};
    fletch_texts two    = fletch_texts_from_strings(pair, 2);
    out.rows            = 2;
    out.stride          = SIZE_MAX - 3; /* a negative stride cast: row 1 would lie before row 0 */
    cr_assert_eq(fletch_embed(model, &two, NULL, &out, &error), FLETCH_EINVAL);
    cr_assert_eq(fletch_row_bytes(SIZE_MAX, FLETCH_FLOAT32), 0, "no row is that long");
    out = fletch_matrix_f32(row, 1, dim + 1);
    cr_assert_eq(fletch_embed(model, &texts, NULL, &out, &error), FLETCH_EINVAL);
    out       = fletch_matrix_f32(row, 1, dim);
    out.dtype = (fletch_dtype)99;
    cr_assert_eq(fletch_embed(model, &texts, NULL, &out, &error), FLETCH_EINVAL);
    out.dtype           = FLETCH_FLOAT32;
    const int64_t at[2] = {0, 7};
    texts.offsets64     = at;
    cr_assert_eq(fletch_embed(model, &texts, NULL, &out, &error), FLETCH_EINVAL);
    const int64_t none[2] = {0, 0}; /* Arrow passes NULL where all texts are empty */
    texts.pointers        = NULL;
    texts.offsets64       = none;
    cr_assert_eq(fletch_embed(model, &texts, NULL, &out, &error), 0);
    texts.offsets64 = at;
    cr_assert_eq(fletch_embed(model, &texts, NULL, &out, &error), FLETCH_EINVAL);
    texts.offsets64 = NULL;
    texts.count     = 0;
    cr_assert_eq(fletch_embed(model, &texts, NULL, &out, &error), 0);
    fletch_close(model);
}

Test(fletch, options_grow_and_are_checked) {
    fletch_model *model = open_model(PROMPTS, NULL);
    const char   *one[] = {"the cat"};
    float         row[DIM_MAX];
    size_t        dim = fletch_dimensions(model);
    fletch_error  error;
    fletch_texts  texts = fletch_texts_from_strings(one, 1);
    fletch_matrix out   = fletch_matrix_f32(row, 1, dim);
    struct {
        fletch_embed_options known;
        size_t               later;
    } longer          = {FLETCH_EMBED_OPTIONS_INIT, 0};
    longer.known.size = sizeof longer;
    cr_assert_eq(fletch_embed(model, &texts, &longer.known, &out, &error), 0);
    longer.later = 1; /* a field of a later header, set */
    cr_assert_eq(fletch_embed(model, &texts, &longer.known, &out, &error), FLETCH_EUNSUPPORTED);

    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    options.size                 = 0;
    cr_assert_eq(fletch_embed(model, &texts, &options, &out, &error), FLETCH_EINVAL);
    options.size        = sizeof options;
    options.prompt_name = "no such prompt";
    cr_assert_eq(fletch_embed(model, &texts, &options, &out, &error), FLETCH_ECONFIG);
    cr_assert_not_null(strstr(error.message, "query")); /* names what there is */
    options.prompt_name = NULL;
    options.max_length  = 2; /* the specials alone */
    cr_assert_eq(fletch_embed(model, &texts, &options, &out, &error), FLETCH_EINVAL);
    options.max_length = 0;
    options.truncate   = (fletch_truncate)4;
    cr_assert_eq(fletch_embed(model, &texts, &options, &out, &error), FLETCH_EINVAL);
    options.truncate   = FLETCH_TRUNCATE_DEFAULT;
    options.dimensions = (uint32_t)dim + 1;
    cr_assert_eq(fletch_embed(model, &texts, &options, &out, &error), FLETCH_EINVAL);
    fletch_close(model);
}

/* The row of one text under one key of the configuration. */
static void embed_with(const char *from, const char *key, const char *value, const char *text,
                       const fletch_embed_options *options, float row[DIM_MAX], size_t *dim) {
    fletch_error   error;
    fletch_config *config = fletch_config_new();
    cr_assert_eq(fletch_config_set(config, key, value, &error), 0);
    fletch_model *model = open_model(from, config);
    fletch_texts  texts = fletch_texts_from_strings(&text, 1);
    *dim                = fletch_dimensions(model);
    fletch_matrix out   = fletch_matrix_f32(row, 1, *dim);
    cr_assert_eq(fletch_embed(model, &texts, options, &out, &error), 0);
    fletch_close(model);
    fletch_config_free(config);
}

Test(fletch, an_empty_prompt_turns_the_folders_prompt_off) {
    fletch_embed_options bare = FLETCH_EMBED_OPTIONS_INIT;
    float                set[DIM_MAX], per_call[DIM_MAX];
    size_t               dim;
    bare.prompt = "";
    embed_with(PROMPTS, "model.prompt", "", "the cat", NULL, set, &dim);
    embed_with(PROMPTS, "model.prompt", "the road: ", "the cat", &bare, per_call, &dim);
    cr_assert_arr_eq(set, per_call, dim * sizeof(float));
}

Test(fletch, normalize_true_holds_for_rows_cut_by_the_folder) {
    float  row[DIM_MAX], sum = 0;
    size_t dim;
    embed_with("tests/golden/folders/truncate-dim", "model.normalize", "true", "the cat", NULL, row,
               &dim);
    cr_assert_eq(dim, 20);
    for (size_t i = 0; i < dim; i++)
        sum += row[i] * row[i];
    cr_assert_float_eq(sum, 1.0f, 1e-5);
}

Test(fletch, the_text_to_blame_is_named) {
    fletch_model *model   = open_model(PLAIN, NULL);
    const char   *three[] = {"a dog", "\xC3(", "a b c d e f g h i j"};
    float         rows[3 * DIM_MAX];
    fletch_error  error;
    fletch_texts  texts = fletch_texts_from_strings(three, 3);
    fletch_matrix out   = fletch_matrix_f32(rows, 3, fletch_dimensions(model));
    cr_assert_eq(fletch_embed(model, &texts, NULL, &out, &error), FLETCH_EUTF8);
    cr_assert_eq(error.where, 1);
    three[1]                     = "a dog";
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    uint32_t             tokens[3];
    uint8_t              truncated[3];
    options.max_length = 6;
    options.tokens     = tokens;
    options.truncated  = truncated;
    cr_assert_eq(fletch_embed(model, &texts, &options, &out, &error), 0);
    cr_assert(!truncated[0] && !truncated[1] && truncated[2]);
    cr_assert_eq(tokens[0], 4);
    cr_assert_eq(tokens[2], 6);
    options.truncate = FLETCH_TRUNCATE_ERROR;
    cr_assert_eq(fletch_embed(model, &texts, &options, &out, &error), FLETCH_ETOOLONG);
    cr_assert_eq(error.where, 2);
    fletch_close(model);
}

Test(fletch, rows_keep_to_their_stride) {
    fletch_model *model = open_model(PLAIN, NULL);
    const char   *two[] = {"the cat", "rain at sea"};
    size_t        dim   = fletch_dimensions(model);
    float         rows[2 * (DIM_MAX + 4)], dense[2 * DIM_MAX];
    fletch_error  error;
    memset(rows, 0x55, sizeof rows);
    fletch_texts  texts = fletch_texts_from_strings(two, 2);
    fletch_matrix out   = fletch_matrix_f32(dense, 2, dim);
    cr_assert_eq(fletch_embed(model, &texts, NULL, &out, &error), 0);
    out.data   = rows;
    out.stride = (dim + 4) * sizeof(float);
    cr_assert_eq(fletch_embed(model, &texts, NULL, &out, &error), 0);
    uint32_t untouched;
    for (size_t i = 0; i < 2; i++) {
        cr_assert_arr_eq(rows + i * (dim + 4), dense + i * dim, dim * sizeof(float));
        memcpy(&untouched, rows + i * (dim + 4) + dim, sizeof untouched);
        cr_assert_eq(untouched, 0x55555555u);
    }
    fletch_close(model);
}

static void count_warnings(void *user, int level, const char *message) {
    (void)message;
    *(int *)user += level <= 1;
}

Test(fletch, providers_fall_back_and_say_so) {
    int            warnings = 0;
    fletch_error   error;
    fletch_model  *model  = NULL;
    fletch_config *config = fletch_config_new();
    fletch_config_set_log(config, count_warnings, &warnings);
    cr_assert_eq(fletch_config_set(config, "provider.order", "gpu,trt", &error), 0);
    cr_assert_eq(fletch_open(&model, PLAIN, config, &error), 0);
    cr_assert_geq(warnings, 2);
    fletch_close(model);
    cr_assert_eq(fletch_config_set(config, "provider.fallback", "false", &error), 0);
    cr_assert_eq(fletch_open(&model, PLAIN, config, &error), FLETCH_EPROVIDER);
    cr_assert_null(model);
    /* without fallback the first of the list must do, though the cpu stands behind it */
    cr_assert_eq(fletch_config_set(config, "provider.order", "cuda,cpu", &error), 0);
    cr_assert_eq(fletch_open(&model, PLAIN, config, &error), FLETCH_EPROVIDER);
    fletch_config_free(config);
}

typedef struct setting {
    const char *key, *value;
} setting;

static fletch_config *config_of(const setting *settings) {
    fletch_config *config = fletch_config_new();
    fletch_error   error;
    for (; settings->key; settings++)
        cr_assert_eq(fletch_config_set(config, settings->key, settings->value, &error), 0, "%s",
                     error.message);
    return config;
}

/* What the rules then do is the business of test_queue.c. */
Test(fletch, keys_of_batches_become_the_rules_of_the_queue) {
    static const setting settings[] = {{"batch.min_texts", "3"},
                                       {"batch.max_texts", "5"},
                                       {"batch.max_tokens", "1000"},
                                       {"batch.max_wait_ms", "7"},
                                       {"batch.dynamic", "false"},
                                       {"batch.throughput", "false"},
                                       {NULL, NULL}};
    fletch_config       *config     = config_of(settings);
    fletch_model        *model      = open_model(PLAIN, config);
    const fl_queue_rules set        = model->scheduler.queue.rules;
    cr_expect_eq(set.min_texts, 3);
    cr_expect_eq(set.max_texts, 5);
    cr_expect_eq(set.bulk_texts, 5, "what is set holds for bulk too");
    cr_expect_eq(set.max_tokens, 1000);
    cr_expect_eq(set.max_wait_ns, 7000000);
    cr_expect_not(set.dynamic);
    cr_expect_not(set.throughput);
    fletch_close(model);
    fletch_config_free(config);
    model = open_model(PLAIN, NULL);
    cr_expect_eq(model->scheduler.queue.rules.min_texts, 8);
    cr_expect_eq(model->scheduler.queue.rules.max_texts, 64);
    cr_expect_gt(model->scheduler.queue.rules.bulk_texts, 64,
                 "unset: bulk batches are bounded by tokens");
    cr_expect_eq(model->scheduler.queue.rules.max_wait_ns, 10000000);
    cr_expect(model->scheduler.queue.rules.dynamic);
    cr_expect(model->scheduler.queue.rules.throughput);
    fletch_close(model);
}

Test(fletch, reopening_takes_every_key_of_engines_and_no_other) {
    static const setting settings[] = {{"provider.precision", "int8"},
                                       {"cpu.intra_op_threads", "1"},
                                       {"onnxruntime.library", "/nowhere"},
                                       {"cuda.streams", "3"},
                                       {"tensorrt.cache_dir", "/engines"},
                                       {"coreml.compute_units", "cpu"},
                                       {"io.binding", "false"},
                                       {"batch.max_texts", "5"},
                                       {"model.max_length", "9"},
                                       {NULL, NULL}};
    fletch_config       *config     = config_of(settings);
    fletch_model        *model      = open_model(PLAIN, NULL);
    fletch_error         error;
    cr_assert_eq(fletch_model_reopen(model, config, &error), 0, "%s", error.message);
    const fl_config *taken = model->scheduler.replicas->config;
    for (const setting *s = settings; s->key; s++) {
        bool other = strncmp(s->key, "batch.", 6) == 0 || strncmp(s->key, "model.", 6) == 0;
        bool same  = strcmp(fletch_config_get(taken, s->key, NULL), s->value) == 0;
        cr_expect_neq(same, other, "%s", s->key);
    }
    cr_expect_str_eq(model->scheduler.replicas->replica[0].info.precision, "int8");
    fletch_close(model);
    fletch_config_free(config);
}

Test(fletch, a_tokenizer_alone_tokenises_and_decodes) {
    fletch_model  *model = NULL;
    fletch_tokens *tokens;
    fletch_error   error;
    char           text[64];
    cr_assert_eq(fletch_open_tokenizer(&model, PLAIN, NULL, &error), 0);
    fletch_tokenize_options endless = FLETCH_TOKENIZE_OPTIONS_INIT;
    endless.max_length              = UINT32_MAX;
    cr_assert_eq(fletch_tokenize(model, "a dog", 5, &endless, &tokens, &error), 0);
    cr_assert_eq(tokens->count, 4);
    fletch_tokens_free(tokens);
    cr_assert_eq(fletch_tokenize(NULL, "a dog", 5, NULL, &tokens, &error), FLETCH_EINVAL);
    cr_assert_null(tokens, "a failed call sets its result to NULL");
    cr_assert_eq(fletch_tokenize(model, "a dog", 5, NULL, &tokens, &error), 0);
    cr_assert_eq(tokens->count, 4);
    cr_assert(tokens->special[0] && !tokens->special[1]);
    cr_assert(tokens->offsets[2 * 2] == 2 && tokens->offsets[2 * 2 + 1] == 5);
    cr_assert_str_eq(fletch_token_text(model, tokens->ids[2]), "dog");
    cr_assert_eq(fletch_decode(model, tokens->ids, tokens->count, 1, text, sizeof text, &error), 5);
    cr_assert_str_eq(text, "a dog");
    cr_assert_eq(fletch_decode(model, tokens->ids, tokens->count, 1, text, 4, &error), 5);
    cr_assert_str_eq(text, "a d");
    const int32_t outside = 1 << 30;
    cr_assert_eq(fletch_decode(model, &outside, 1, 1, text, sizeof text, &error), FLETCH_EINVAL);
    fletch_tokens_free(tokens);
    const char   *one[] = {"a"};
    fletch_texts  texts = fletch_texts_from_strings(one, 1);
    float         row[DIM_MAX];
    fletch_matrix out = fletch_matrix_f32(row, 1, DIM_MAX);
    cr_assert_eq(fletch_embed(model, &texts, NULL, &out, &error), FLETCH_EINVAL);
    fletch_close(model);
}

enum { LONG = 300000 };

/* Texts of one word, of many, and of one that is many; for WordPiece, and byte pairs with a pattern. */
Test(fletch, a_long_text_is_given_up_when_asked_to) {
    static const char *const folders[] = {PLAIN, "tests/golden/language/plain"};
    static const char *const units[]   = {"a", "a ", "[", "dog. ", "\u0301", "\uFB03"};
    char                    *text      = malloc(LONG);
    for (size_t i = 0; i < 12; i++) {
        fletch_model  *model = NULL;
        fletch_tokens *whole, *before, *after;
        fletch_error   error;
        const char    *unit = units[i / 2];
        size_t         size = LONG / strlen(unit) * strlen(unit);
        cr_assert_eq(fletch_open_tokenizer(&model, folders[i % 2], NULL, &error), 0, "%s",
                     error.message);
        for (size_t at = 0; at < size; at += strlen(unit))
            memcpy(text + at, unit, strlen(unit));
        patience                p       = {0, 0};
        fletch_tokenize_options options = FLETCH_TOKENIZE_OPTIONS_INIT;
        cr_assert_eq(fletch_tokenize(model, "a dog", 5, NULL, &before, &error), 0);
        cr_assert_eq(fletch_tokenize(model, text, size, NULL, &whole, &error), 0);
        options.stop      = stop_after;
        options.stop_user = &p;
        cr_assert_eq(fletch_tokenize(model, text, size, &options, &after, &error), 0);
        cr_expect_eq(after->count, whole->count);
        cr_expect_geq((size_t)p.asked, size / strlen(unit) / 16384, "%s %zu: %d", unit, i % 2,
                      p.asked); /* twice in 32768 characters at least */
        fletch_tokens_free(after);
        for (int enough = p.asked; enough > 0; enough -= 1 + enough / 8) {
            p = (patience){0, enough};
            cr_assert_eq(fletch_tokenize(model, text, size, &options, &after, &error),
                         FLETCH_ECANCELLED);
            cr_expect_eq(p.asked, enough, "asked no more");
            cr_assert_eq(fletch_tokenize(model, "a dog", 5, NULL, &after, &error), 0);
            cr_expect(after->count == before->count &&
                          memcmp(after->ids, before->ids, before->count * sizeof *after->ids) == 0,
                      "nothing of the text that was given up is left");
            fletch_tokens_free(after);
        }
        fletch_tokens_free(before);
        fletch_tokens_free(whole);
        fletch_close(model);
    }
    free(text);
}

/* Every time that `request` asks whether it is wanted it is told no, once: it ends there. */
static void give_up_everywhere(fletch_model *model, fletch_request *request) {
    patience       p       = {0, 0};
    fletch_outcome outcome = {0};
    fletch_error   error;
    request->inline_us = 60000000;
    request->stop      = stop_after;
    request->stop_user = &p;
    cr_assert_eq(fletch_submit(model, request, keep_lists, &outcome, NULL, &error), 0);
    cr_assert_eq(outcome.error.code, 0, "%s", outcome.error.message);
    cr_assert_geq(p.asked, 1);
    for (int enough = p.asked; enough > 0; enough--) {
        p          = (patience){0, enough};
        int status = fletch_submit(model, request, keep_lists, &outcome, NULL, &error);
        status     = status < 0 ? status : outcome.error.code;
        cr_assert_eq(status, FLETCH_ECANCELLED, "%d: %d", enough, status);
        cr_assert_eq(p.asked, enough, "asked no more");
    }
    p = (patience){0, 0};
    cr_assert_eq(fletch_submit(model, request, keep_lists, &outcome, NULL, &error), 0);
    cr_assert_eq(outcome.error.code, 0);
}

/* A request is given up in the middle of a text, by fletch_submit or who feeds for it. */
Test(fletch, a_request_is_given_up_in_a_long_text) {
    static const char *const units[] = {" ", "[SEP]"}; /* no tokens; those that are no work */
    fletch_model            *model   = open_model(PLAIN, NULL);
    char                    *text    = malloc(LONG);
    for (size_t i = 0; i < 2; i++) {
        size_t size = i == 0 ? LONG : 16390 * strlen(units[i]);
        for (size_t at = 0; at < size; at += strlen(units[i]))
            memcpy(text + at, units[i], strlen(units[i]));
        fletch_request       request = FLETCH_REQUEST_INIT;
        fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
        const char          *texts[] = {"a dog", text, "a cat"};
        size_t               sizes[] = {5, size, 5};
        float                rows[3 * DIM_MAX];
        options.truncate = FLETCH_TRUNCATE_LEFT;
        request.options  = &options;
        request.texts    = (fletch_texts){.count = 3, .pointers = texts, .lengths = sizes};
        request.out      = fletch_matrix_f32(rows, 3, fletch_dimensions(model));
        give_up_everywhere(model, &request);
    }
    fletch_close(model);
    free(text);
}

Test(fletch, a_reranking_is_given_up_in_a_long_query) {
    fletch_model        *model   = open_model(RANKS, NULL);
    fletch_request       request = FLETCH_REQUEST_INIT;
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    char                *text    = malloc(LONG);
    const char          *texts[] = {"a dog"};
    float                score;
    memset(text, ' ', LONG);
    options.truncate   = FLETCH_TRUNCATE_LEFT;
    request.options    = &options;
    request.kind       = FLETCH_KIND_SCORES;
    request.texts      = fletch_texts_from_strings(texts, 1);
    request.query      = text;
    request.query_size = LONG;
    request.out        = fletch_matrix_f32(&score, 1, 1);
    give_up_everywhere(model, &request);
    fletch_close(model);
    free(text);
}

typedef struct caller {
    pthread_t     thread;
    fletch_model *model;
    const float  *alone; /* [WORDS, dim] */
    int           first;
    int           wrong;
} caller;

static void *call_many_times(void *argument) {
    caller     *c   = argument;
    size_t      dim = fletch_dimensions(c->model);
    float       rows[3 * DIM_MAX];
    const char *three[3];
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 3; i++)
            three[i] = words[(c->first + round + i) % WORDS];
        fletch_texts  texts = fletch_texts_from_strings(three, 3);
        fletch_matrix out   = fletch_matrix_f32(rows, 3, dim);
        c->wrong += fletch_embed(c->model, &texts, NULL, &out, NULL) != 0;
        for (int i = 0; i < 3; i++) {
            const float *expected = c->alone + (size_t)((c->first + round + i) % WORDS) * dim;
            c->wrong += memcmp(rows + (size_t)i * dim, expected, dim * sizeof(float)) != 0;
        }
    }
    return NULL;
}

Test(fletch, callers_on_several_threads_get_the_bytes_they_get_alone) {
    enum { CALLERS = 4 };
    fletch_model *model = open_model(PLAIN, NULL);
    float         alone[WORDS * DIM_MAX];
    caller        callers[CALLERS];
    fletch_texts  texts = fletch_texts_from_strings(words, WORDS);
    fletch_matrix out   = fletch_matrix_f32(alone, WORDS, fletch_dimensions(model));
    cr_assert_eq(fletch_embed(model, &texts, NULL, &out, NULL), 0);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (caller){.model = model, .alone = alone, .first = i};
        cr_assert_eq(pthread_create(&callers[i].thread, NULL, call_many_times, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        cr_assert_eq(callers[i].wrong, 0);
    }
    fletch_close(model);
}

Test(fletch, element_types_are_as_the_contract_says) {
    const float  row[10] = {0.0f, 1.0f, -1.0f, 2.0f, -2.0f, 0.004f, -0.5f, 0.5f, -1e-30f, 1e-30f};
    int8_t       i8[10];
    uint8_t      u8[10], bits[2];
    const int8_t want[10] = {0, 127, -127, 127, -127, 1, -64, 64, 0, 0}; /* ±63.5: to even */
    cr_assert(fletch_row_convert(i8, row, 10, FLETCH_INT8) == 0 &&
              fletch_row_convert(u8, row, 10, FLETCH_UINT8) == 0);
    for (int i = 0; i < 10; i++) {
        cr_assert_eq(i8[i], want[i], "%d: %d", i, i8[i]);
        cr_assert_eq(u8[i], want[i] + 128, "%d: %d", i, u8[i]);
    }
    cr_assert(fletch_row_convert(bits, row, 10, FLETCH_UBINARY) == 0);
    cr_assert(bits[0] == 0x55 && bits[1] == 0x40, "%02x %02x", bits[0], bits[1]);
    cr_assert(fletch_row_convert(bits, row, 10, FLETCH_BINARY) == 0);
    cr_assert((int8_t)bits[0] == 0x55 - 128 && (int8_t)bits[1] == 0x40 - 128);
    for (int type = FLETCH_FLOAT32; type <= FLETCH_UBINARY; type++) {
        float bad[9] = {0};
        bad[8]       = type % 2 ? NAN : INFINITY;
        cr_assert_eq(fletch_row_convert(u8, bad, 9, (fletch_dtype)type), FLETCH_EINVAL);
    }
}
