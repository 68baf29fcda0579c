/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_bytes.c - a row depends on its own text alone, bit by bit: whatever the batch, the
 * order, the number of threads, and whether threads take blocks or split one, for every precision;
 * and forward allocates nothing.
 *
 * The row that a text gets alone on one thread is the measure. Sizes are chosen so that texts are
 * cut into all tile heights, blocks hold one or many texts, and several row steps and MLP tiles
 * occur. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/mem.h"
#include "engine_toy.h"
#include "engines/cpu/cpu_engine.h"

enum {
    TEXTS   = 60,
    LONGEST = 230,
    ROUNDS  = 12,
    FEW     = 3 /* of the narrow formats: one loop serves them, and sanitizers are slow in it */
};

static const toy_spec spec = {.layers        = 2,
                              .hidden        = 72,
                              .heads         = 5,
                              .head_dim      = 24,
                              .mlp           = 800,
                              .vocab         = 90,
                              .positions     = 512,
                              .offset        = 2,
                              .t5            = true,
                              .pooling       = {FL_POOL_MEAN, FL_POOL_MAX},
                              .pooling_count = 2};

/* Pre-norm, grouped, gated, windows and angles; the last layer works on one row of each text alone. */
static const toy_spec other = {.layers    = 2,
                               .hidden    = 72,
                               .heads     = 6,
                               .kv_heads  = 2,
                               .head_dim  = 24,
                               .mlp       = 800,
                               .vocab     = 90,
                               .positions = 512,
                               TOY_DECODER,
                               .qk_norm       = FL_QK_NORM_HEAD,
                               .activation    = FL_ACT_SILU,
                               .rope_dims     = 24,
                               .causal        = true,
                               .window        = 50,
                               .alternate     = true,
                               .pooling       = {FL_POOL_LAST_TOKEN},
                               .pooling_count = 1};

/* Heads that are normed together, and experts of whom a batch sends each a few rows or more than they take
 * at a time. */
static const toy_spec third = {.layers        = 3,
                               .hidden        = 72,
                               .heads         = 6,
                               .head_dim      = 12,
                               .mlp           = 400,
                               .vocab         = 90,
                               .positions     = 512,
                               .qk_norm       = FL_QK_NORM_WIDE,
                               .experts       = 5,
                               .experts_used  = 2,
                               .alibi         = true,
                               .no_positions  = true,
                               .pooling       = {FL_POOL_CLS},
                               .pooling_count = 1};

/* Scores of content and distance; some texts are longer than the queries that attention takes at a time. */
static const toy_spec fourth = {.layers        = 2,
                                .hidden        = 72,
                                .heads         = 3,
                                .head_dim      = 24,
                                .mlp           = 200,
                                .vocab         = 90,
                                .positions     = 512,
                                .relative      = 16,
                                .no_positions  = true,
                                .pooling       = {FL_POOL_CLS},
                                .pooling_count = 1};

typedef struct corpus {
    uint32_t length[TEXTS];
    int32_t  ids[TEXTS][LONGEST];
    float   *rows; /* [TEXTS, width] alone, one thread */
} corpus;

static corpus texts;

static void make_corpus(toy *t) {
    for (uint32_t i = 0; i < TEXTS; i++) {
        texts.length[i] = i < 20 ? i + 1 : i % 7 == 0 ? LONGEST - i : 3 + toy_draw(&t->state, 40);
        for (uint32_t k = 0; k < texts.length[i]; k++)
            texts.ids[i][k] = (int32_t)toy_draw(&t->state, t->encoder.desc.vocab);
    }
}

static void forward(fl_engine *engine, const uint32_t *pick, uint32_t count, float *out,
                    uint32_t width) {
    static int32_t  ids[TEXTS * LONGEST];
    static uint32_t cu[TEXTS + 1];
    static float   *rows[TEXTS];
    fletch_error    error;
    for (uint32_t i = 0; i < count; i++) {
        rows[i] = out + (size_t)i * width;
        memcpy(ids + cu[i], texts.ids[pick[i]], texts.length[pick[i]] * sizeof *ids);
        cu[i + 1] = cu[i] + texts.length[pick[i]];
    }
    fl_batch batch  = {.ids = ids, .cu = cu, .texts = count, .tokens = cu[count], .rows = rows};
    uint64_t before = fl_alloc_count();
    cr_assert_eq(fl_engine_find("cpu")->forward(engine, 0, &batch, &error), 0, "%s", error.message);
    cr_assert_eq(fl_alloc_count(), before, "forward allocated");
}

/* Random batches of 1 … TEXTS texts, in random order, some texts twice. */
static void check_threads(toy *t, const char *precision, unsigned threads, const char *isa,
                          uint32_t rounds) {
    fletch_error error  = {0};
    uint32_t     width  = fl_encoder_width(&t->encoder), pick[TEXTS];
    fl_engine   *engine = toy_open_as(t, precision, threads, isa, TEXTS, LONGEST, &error);
    float       *out    = malloc(TEXTS * width * sizeof *out);
    uint32_t     most   = strcmp(isa, "ref") == 0 ? 15 : TEXTS; /* plain loops are slow */
    cr_assert_not_null(engine, "%s", error.message);
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t count = round == 0 ? most : round < 6 ? round : 1 + toy_draw(&t->state, most);
        for (uint32_t i = 0; i < count; i++)
            pick[i] = toy_draw(&t->state, most);
        forward(engine, pick, count, out, width);
        for (uint32_t i = 0; i < count; i++) {
            cr_assert_eq(
                memcmp(out + i * width, texts.rows + pick[i] * width, width * sizeof *out), 0,
                "%s, %u threads, batch of %u: text %u of %u tokens differs from itself alone", isa,
                threads, count, pick[i], texts.length[pick[i]]);
        }
    }
    fl_engine_find("cpu")->close(engine);
    free(out);
}

static void check_isa(const toy_spec *s, const char *precision, const char *isa, unsigned most,
                      uint32_t rounds) {
    toy          t;
    fletch_error error = {0};
    toy_make(&t, s, 11);
    make_corpus(&t);
    uint32_t   width = fl_encoder_width(&t.encoder);
    fl_engine *alone = toy_open_as(&t, precision, 1, isa, 1, LONGEST, &error);
    cr_assert_not_null(alone, "%s", error.message);
    texts.rows = malloc(TEXTS * width * sizeof *texts.rows);
    for (uint32_t i = 0; i < (strcmp(isa, "ref") == 0 ? 15 : TEXTS); i++)
        forward(alone, &i, 1, texts.rows + i * width, width);
    fl_engine_find("cpu")->close(alone);
    for (unsigned threads = 1; threads <= most; threads++)
        check_threads(&t, precision, threads, isa, rounds);
    free(texts.rows);
    toy_free(&t);
}

Test(engine_bytes, same_text_same_bytes_on_1_to_8_threads) {
    check_isa(&spec, "fp32", "auto", 8, ROUNDS);
}

Test(engine_bytes, same_text_same_bytes_in_int8) {
    check_isa(&spec, "int8", "auto", 8, FEW);
}

Test(engine_bytes, same_text_same_bytes_in_int16) {
    check_isa(&spec, "int16", "auto", 8, FEW);
}

Test(engine_bytes, same_text_same_bytes_in_bf16) {
    check_isa(&spec, "bf16", "auto", 8, FEW);
}

Test(engine_bytes, same_text_same_bytes_for_the_reference_kernels) {
    check_isa(&spec, "fp32", "ref", 2, FEW);
    check_isa(&spec, "int8", "ref", 2, FEW);
    check_isa(&spec, "int16", "ref", 2, FEW);
    check_isa(&spec, "bf16", "ref", 2, FEW);
}

Test(engine_bytes, same_text_same_bytes_whatever_the_kind_of_layer) {
    toy_spec    rounded = third;
    const char *isa;
    rounded.experts = 0;
    check_isa(&other, "fp32", "auto", 5, ROUNDS);
    check_isa(&other, "int8", "auto", 4, FEW);
    check_isa(&other, "int16", "auto", 4, FEW);
    check_isa(&other, "bf16", "auto", 4, FEW);
    check_isa(&third, "fp32", "auto", 5, ROUNDS);
    check_isa(&fourth, "fp32", "auto", 5, ROUNDS);
    check_isa(&fourth, "int8", "auto", 4, FEW);
    check_isa(&fourth, "bf16", "auto", 4, FEW);
    check_isa(&rounded, "int8", "auto", 4, FEW);
    check_isa(&rounded, "int16", "auto", 4, FEW);
    check_isa(&rounded, "bf16", "auto", 4, FEW);
    for (size_t at = 0; toy_each_isa(&at, &isa);) {
        check_isa(&other, "fp32", isa, 2, FEW);
        check_isa(&third, "fp32", isa, 2, FEW);
        check_isa(&fourth, "fp32", isa, 2, FEW);
    }
}

/* Where pooling takes one row of a text, the last layer computes no more: the row has the bits that it has
 * among all, here because the same row is asked for twice. */
static void check_few(const toy_spec *s, const char *precision, fl_pooling mode) {
    toy_spec     few = *s, all = *s;
    toy          a, b;
    fletch_error error = {0};
    uint32_t     pick[TEXTS], width = s->hidden;
    few.pooling[0] = all.pooling[0] = all.pooling[1] = mode;
    few.pooling_count = 1, all.pooling_count = 2;
    toy_make(&a, &few, 11);
    toy_make(&b, &all, 11);
    make_corpus(&a);
    fl_engine *one = toy_open_as(&a, precision, 3, "auto", TEXTS, LONGEST, &error);
    fl_engine *two = toy_open_as(&b, precision, 3, "auto", TEXTS, LONGEST, &error);
    cr_assert(one && two, "%s", error.message);
    float *out = malloc(TEXTS * width * 4), *want = malloc(TEXTS * width * 8);
    for (uint32_t count = 1; count <= TEXTS; count += 1 + count / 2) {
        for (uint32_t i = 0; i < count; i++)
            pick[i] = toy_draw(&a.state, TEXTS);
        forward(one, pick, count, out, width);
        forward(two, pick, count, want, 2 * width);
        for (uint32_t i = 0; i < count; i++) {
            cr_assert_eq(memcmp(out + i * width, want + (size_t)2 * i * width, width * 4), 0,
                         "%s: text %u of %u", precision, i, count);
        }
    }
    fl_engine_find("cpu")->close(one);
    fl_engine_find("cpu")->close(two);
    free(out), free(want);
    toy_free(&a), toy_free(&b);
}

Test(engine_bytes, a_pooled_row_alone_has_the_bytes_it_has_among_all) {
    toy_spec rounded = third;
    rounded.experts  = 0;
    check_few(&spec, "fp32", FL_POOL_CLS);
    check_few(&fourth, "fp32", FL_POOL_CLS);
    check_few(&spec, "int8", FL_POOL_CLS);
    check_few(&spec, "int16", FL_POOL_LAST_TOKEN);
    check_few(&spec, "bf16", FL_POOL_CLS);
    check_few(&other, "fp32", FL_POOL_LAST_TOKEN);
    check_few(&other, "int8", FL_POOL_LAST_TOKEN);
    check_few(&other, "int16", FL_POOL_CLS);
    check_few(&other, "bf16", FL_POOL_CLS);
    check_few(&third, "fp32", FL_POOL_CLS);
    check_few(&rounded, "int8", FL_POOL_LAST_TOKEN);
    check_few(&rounded, "bf16", FL_POOL_LAST_TOKEN);
}

/* A lone text is split over the threads: every length around the tiles' edges. */
static void check_split(const char *precision) {
    toy          t;
    fletch_error error = {0};
    toy_make(&t, &spec, 13);
    make_corpus(&t);
    uint32_t   width = fl_encoder_width(&t.encoder);
    float     *one = malloc(width * sizeof *one), *many = malloc(width * sizeof *many);
    fl_engine *alone = toy_open_as(&t, precision, 1, "auto", 1, LONGEST, &error);
    fl_engine *split = toy_open_as(&t, precision, 3, "auto", 1, LONGEST, &error);
    for (uint32_t i = 0; i < TEXTS; i++) {
        forward(alone, &i, 1, one, width);
        forward(split, &i, 1, many, width);
        cr_assert_eq(memcmp(one, many, width * sizeof *one), 0, "%s, text of %u tokens", precision,
                     texts.length[i]);
    }
    fl_engine_find("cpu")->close(alone);
    fl_engine_find("cpu")->close(split);
    free(one), free(many);
    toy_free(&t);
}

Test(engine_bytes, split_work_gives_the_bytes_of_one_thread) {
    check_split("fp32");
    check_split("int8");
    check_split("int16");
    check_split("bf16");
}

/* Many threads: groups of several run blocks side by side. */
static void check_groups(const char *precision) {
    toy          t;
    fletch_error error = {0};
    uint32_t     pick[TEXTS], groups = 0;
    toy_make(&t, &spec, 13);
    make_corpus(&t);
    uint32_t   width = fl_encoder_width(&t.encoder);
    float     *one = malloc(width * sizeof *one), *all = malloc(TEXTS * width * sizeof *all);
    fl_engine *alone = toy_open_as(&t, precision, 1, "auto", 1, LONGEST, &error);
    fl_engine *many  = toy_open_as(&t, precision, 24, "auto", TEXTS, LONGEST, &error);
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t count = 2 + round % 11;
        for (uint32_t i = 0; i < count; i++)
            pick[i] = (round + i * 5) % TEXTS;
        forward(many, pick, count, all, width);
        groups += many->plan.shared > 1 && many->plan.groups > 1;
        for (uint32_t i = 0; i < count; i++) {
            forward(alone, &pick[i], 1, one, width);
            cr_assert_eq(memcmp(one, all + i * width, width * sizeof *one), 0,
                         "%s, %u texts, text of %u tokens", precision, count,
                         texts.length[pick[i]]);
        }
    }
    cr_assert_geq(groups, 20, "%s: %u plans with groups side by side", precision, groups);
    fl_engine_find("cpu")->close(alone);
    fl_engine_find("cpu")->close(many);
    free(one), free(all);
    toy_free(&t);
}

Test(engine_bytes, groups_side_by_side_give_the_bytes_of_one_thread) {
    check_groups("fp32");
    check_groups("int8");
    check_groups("bf16");
}

static int count_line(void *user, const char *name, const char *value, const char *origin) {
    (void)origin;
    cr_assert(name[0] != '\0' && value[0] != '\0');
    ++*(int *)user;
    return 0;
}

/* `count` texts of some 200 tokens on `threads` threads; how many of their blocks all run together. */
static uint32_t run_long(toy *t, unsigned threads, uint32_t count) {
    static const uint32_t pick[] = {21, 28, 35, 42, 49, 56};
    fletch_error          error  = {0};
    uint32_t              width  = fl_encoder_width(&t->encoder), shared;
    float                *out = malloc(count * width * sizeof *out), *alone = malloc(width * 4);
    fl_engine            *many = toy_open_as(t, "fp32", threads, "auto", TEXTS, LONGEST, &error);
    fl_engine            *one  = toy_open_as(t, "fp32", 1, "auto", 1, LONGEST, &error);
    forward(many, pick, count, out, width);
    for (uint32_t i = 0; i < count; i++) {
        forward(one, pick + i, 1, alone, width);
        cr_assert_eq(memcmp(out + i * width, alone, width * 4), 0, "text %u of %u", i, count);
    }
    shared = many->plan.shared;
    fl_engine_find("cpu")->close(many);
    fl_engine_find("cpu")->close(one);
    free(out);
    free(alone);
    return shared;
}

/* Two threads have two long texts each for themselves; the third and the fifth they run together. */
Test(engine_bytes, what_is_over_is_run_by_all_threads) {
    toy t;
    toy_make(&t, &spec, 11);
    make_corpus(&t);
    cr_assert_eq(run_long(&t, 2, 2), 0);
    cr_assert_eq(run_long(&t, 2, 3), 1);
    cr_assert_eq(run_long(&t, 2, 4), 0);
    cr_assert_eq(run_long(&t, 2, 5), 1);
    cr_assert_eq(run_long(&t, 4, 6), 2);
    cr_assert_eq(run_long(&t, 1, 5), 0);
    toy_free(&t);
}

Test(engine_bytes, memory_and_description_are_told) {
    toy          t;
    fletch_error error = {0};
    int          lines = 0;
    toy_make(&t, &spec, 13);
    fl_engine *engine = toy_open(&t, 2, "auto", TEXTS, LONGEST, &error);
    cr_assert(fl_engine_find("cpu")->memory(engine, 1, 16, 16) > 0);
    cr_assert_eq(fl_engine_find("cpu")->describe(engine, count_line, &lines), 0);
    cr_assert(lines >= 4);
    fl_engine_find("cpu")->close(engine);
    toy_free(&t);
}
