/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_prompt.c - a prompt that the engine keeps changes no byte (cpu_prompt.c).
 *
 * The measure is an engine that is opened for each text anew and so knows nothing. Prompts have lengths
 * around the edges of tiles, panels and of what is kept; texts share all of one, some of it or nothing,
 * are longer than what uses one, or are the prompt and nothing else. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "engine_toy.h"
#include "engines/cpu/cpu_engine.h"

enum { TEXTS = 24, LONGEST = 700, REF_TEXTS = 10 };

static const toy_spec qwen = {.layers    = 3,
                              .hidden    = 72,
                              .heads     = 10,
                              .kv_heads  = 2, /* five heads a group: two runs of them */
                              .head_dim  = 24,
                              .mlp       = 400,
                              .vocab     = 90,
                              .positions = 1024,
                              TOY_DECODER,
                              .qk_norm       = FL_QK_NORM_HEAD,
                              .activation    = FL_ACT_SILU,
                              .rope_dims     = 24,
                              .causal        = true,
                              .pooling       = {FL_POOL_LAST_TOKEN},
                              .pooling_count = 1};

typedef struct corpus {
    uint32_t count, prompt;
    uint32_t length[TEXTS], skip[TEXTS];
    uint8_t  each[TEXTS];
    int32_t  ids[TEXTS][LONGEST];
    float   *rows[TEXTS]; /* of an engine that knows nothing */
} corpus;

static corpus texts;

/* Every text begins with the prompt but for each sixth, which has half of it, and each seventh. */
static void make_corpus(toy *t, uint32_t prompt, uint32_t count) {
    texts.count = count, texts.prompt = prompt;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t own     = i == 1 ? 0 : i == 2 ? LONGEST - prompt : 1 + toy_draw(&t->state, 30);
        texts.length[i]  = prompt + own;
        texts.skip[i]    = prompt;
        texts.each[i]    = i % 5 == 4;
        uint32_t differs = i % 7 == 6 ? 0 : i % 6 == 5 ? prompt / 2 : prompt;
        for (uint32_t k = 0; k < texts.length[i]; k++)
            texts.ids[i][k] = (int32_t)(k < differs ? (k * 7 + 3) % 90 : toy_draw(&t->state, 90));
    }
}

/* Rows of the picked texts, each as wide as it comes. */
static void forward(fl_engine *engine, const uint32_t *pick, uint32_t count, bool skip, bool each,
                    float **rows) {
    static int32_t  ids[TEXTS * LONGEST];
    static uint32_t cu[TEXTS + 1], skips[TEXTS];
    static uint8_t  whole[TEXTS];
    fletch_error    error;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(ids + cu[i], texts.ids[pick[i]], texts.length[pick[i]] * sizeof *ids);
        cu[i + 1] = cu[i] + texts.length[pick[i]];
        skips[i]  = texts.skip[pick[i]];
        whole[i]  = texts.each[pick[i]];
    }
    fl_batch batch = {.ids       = ids,
                      .cu        = cu,
                      .texts     = count,
                      .tokens    = cu[count],
                      .rows      = rows,
                      .pool_skip = skip ? skips : NULL,
                      .each      = each ? whole : NULL};
    cr_assert_eq(fl_engine_find("cpu")->forward(engine, 0, &batch, &error), 0, "%s", error.message);
}

/* Values of a text's result. */
static size_t values(const toy *t, uint32_t text, bool each) {
    return each && texts.each[text] ? (size_t)texts.length[text] * t->encoder.desc.hidden
                                    : fl_encoder_width(&t->encoder);
}

typedef struct check {
    toy        *t;
    const char *precision, *isa;
    bool        skip, each;
} check;

static void run_alone(const check *c) {
    fletch_error error = {0};
    for (uint32_t i = 0; i < texts.count; i++) {
        fl_engine *fresh = toy_open_as(c->t, c->precision, 1, c->isa, 1, LONGEST, &error);
        cr_assert_not_null(fresh, "%s", error.message);
        texts.rows[i] = malloc(values(c->t, i, c->each) * sizeof(float));
        forward(fresh, &i, 1, c->skip, c->each, &texts.rows[i]);
        fl_engine_find("cpu")->close(fresh);
    }
}

/* Batches of many texts and of one; how many tokens were not computed. */
static uint32_t compare(const check *c, unsigned threads) {
    fletch_error error = {0};
    uint32_t     saved = 0, pick[TEXTS];
    float       *rows[TEXTS];
    fl_engine   *engine = toy_open_as(c->t, c->precision, threads, c->isa, TEXTS, LONGEST, &error);
    cr_assert_not_null(engine, "%s", error.message);
    for (uint32_t round = 0; round < 8; round++) {
        uint32_t count = round % 2 ? 1 : round == 0 ? 5 : 1 + toy_draw(&c->t->state, texts.count);
        for (uint32_t i = 0; i < count; i++) {
            pick[i] = round == 0 ? 7 + i % 3 : toy_draw(&c->t->state, texts.count);
            rows[i] = malloc(values(c->t, pick[i], c->each) * sizeof(float));
        }
        forward(engine, pick, count, c->skip, c->each, rows);
        saved += engine->prompt.saved;
        for (uint32_t i = 0; i < count; i++) {
            cr_assert_eq(memcmp(rows[i], texts.rows[pick[i]],
                                values(c->t, pick[i], c->each) * sizeof(float)),
                         0, "%s, %s, %u threads, prompt of %u, round %u: text %u of %u tokens",
                         c->isa, c->precision, threads, texts.prompt, round, pick[i],
                         texts.length[pick[i]]);
            free(rows[i]);
        }
    }
    fl_engine_find("cpu")->close(engine);
    return saved;
}

/* Every `step`th length of a prompt; all of them in a full run. */
static uint32_t check_prompts(const toy_spec *spec, const char *precision, const char *isa,
                              bool skip, bool each, int step) {
    static const uint32_t prompts[] = {8, 15, 16, 37, 128, 150};
    bool                  slow      = strcmp(isa, "ref") == 0;
    uint32_t              saved     = 0;
    size_t                steps     = (size_t)(slow ? toy_rounds(4, 3) : toy_rounds(step, 1));
    for (size_t p = steps - 1; p < sizeof prompts / sizeof *prompts; p += steps) {
        toy t;
        toy_make(&t, spec, 17);
        make_corpus(&t, prompts[p], slow ? REF_TEXTS : TEXTS);
        check c = {&t, precision, isa, skip, each};
        run_alone(&c);
        for (unsigned threads = 1; threads <= 3; threads += slow ? 3 : 1)
            saved += compare(&c, threads);
        for (uint32_t i = 0; i < texts.count; i++)
            free(texts.rows[i]);
        toy_free(&t);
    }
    return saved;
}

Test(engine_prompt, no_byte_differs_whatever_the_kernels) {
    const char *isa;
    for (size_t at = 0; toy_each_isa(&at, &isa);)
        cr_assert(check_prompts(&qwen, "fp32", isa, false, false, 2) > 0, "%s kept nothing", isa);
    cr_assert(check_prompts(&qwen, "int8", "auto", false, false, 2) > 0);
    cr_assert(check_prompts(&qwen, "int16", "auto", false, false, 2) > 0);
    cr_assert(check_prompts(&qwen, "bf16", "auto", false, false, 2) > 0);
}

/* Windows, ALiBi, learnt positions, convolutions, layer norms behind the blocks; means without the prompt's tokens. */
Test(engine_prompt, no_byte_differs_whatever_the_layers) {
    toy_spec window = qwen, other = qwen, mean = qwen, lfm2 = qwen;
    window.window = 20;
    other.alibi = true, other.no_positions = false, other.rope_dims = 0;
    other.norm = FL_NORM_LAYER, other.place = FL_NORM_POST, other.kv_heads = 0;
    other.qk_norm = FL_QK_NORM_WIDE, other.final_norm = false;
    mean.pooling[0] = FL_POOL_MEAN, mean.pooling[1] = FL_POOL_MAX, mean.pooling_count = 2;
    lfm2.heads = 3, lfm2.kv_heads = 1, lfm2.taps = 4;
    cr_assert(check_prompts(&lfm2, "fp32", "auto", false, false, 2) > 0);
    cr_assert(check_prompts(&window, "fp32", "auto", false, false, 2) > 0);
    cr_assert(check_prompts(&other, "fp32", "auto", false, false, 2) > 0);
    cr_assert(check_prompts(&mean, "fp32", "auto", true, false, 2) > 0);
    cr_assert(check_prompts(&qwen, "fp32", "auto", true, true, 2) > 0,
              "texts with a row for every token");
}

/* Where pooling reads the prompt's rows, or tokens see later ones, nothing is kept. */
Test(engine_prompt, nothing_is_kept_where_it_may_not_be) {
    toy_spec mean = qwen, both = qwen, first = qwen, mixed = qwen;
    mean.pooling[0]  = FL_POOL_MEAN;
    both.causal      = false;
    first.pooling[0] = FL_POOL_CLS;
    mixed.alternate  = true;
    cr_assert_eq(check_prompts(&mean, "fp32", "auto", false, false, 3), 0);
    cr_assert_eq(check_prompts(&both, "fp32", "auto", false, false, 3), 0);
    cr_assert_eq(check_prompts(&first, "fp32", "auto", true, false, 3), 0);
    cr_assert_eq(check_prompts(&mixed, "fp32", "auto", false, false, 3), 0);
}

/* Texts one at a time: the second is told apart from the first, the third and all others use it. */
Test(engine_prompt, texts_alone_share_it_too) {
    toy          t;
    fletch_error error = {0};
    float        row[72], *rows = row;
    toy_make(&t, &qwen, 17);
    make_corpus(&t, 40, TEXTS);
    fl_engine *engine = toy_open(&t, 2, "auto", TEXTS, LONGEST, &error);
    for (uint32_t i = 7; i < 11; i++) {
        forward(engine, &i, 1, false, false, &rows);
        cr_assert_eq(engine->prompt.saved, i == 7 ? 0 : 40, "text %u: %u", i, engine->prompt.saved);
    }
    fl_engine_find("cpu")->close(engine);
    toy_free(&t);
}

/* Texts [0, DOCUMENTS * EACH): chunks of documents, each behind what their document begins with, and that behind a
 * prompt of all. */
enum { DOCUMENTS = 4, EACH = 5, TITLE = 48, ALL = 9 };

static void make_documents(toy *t) {
    texts.count = DOCUMENTS * EACH, texts.prompt = TITLE;
    for (uint32_t i = 0; i < texts.count; i++) {
        texts.length[i] = TITLE + 20 + toy_draw(&t->state, 20);
        texts.skip[i]   = ALL;
        texts.each[i]   = 0;
        for (uint32_t k = 0; k < texts.length[i]; k++) {
            uint32_t title  = (k * 7 + 3 + (k < ALL ? 0 : i / EACH * 11)) % 90;
            texts.ids[i][k] = (int32_t)(k < TITLE ? title : toy_draw(&t->state, 90));
        }
    }
}

/* Of each document its title is computed once in a batch, whatever stands beside it, and no byte differs. */
Test(engine_prompt, each_run_of_a_batch_has_its_own) {
    static const struct {
        uint32_t from, count, spared; /* tokens of texts; a title is run by itself, once */
    } batches[] = {
        {0, DOCUMENTS * EACH, DOCUMENTS * EACH * TITLE},
        {4, EACH + 2, EACH * TITLE + 2 * ALL}, /* a whole document, one text of its neighbours */
        {0, EACH, EACH * TITLE},
        {3, 1, TITLE}}; /* the batch before has left it */
    toy          t;
    fletch_error error = {0};
    toy_make(&t, &qwen, 17);
    make_documents(&t);
    const check c = {&t, "fp32", "auto", false, false};
    run_alone(&c);
    for (unsigned threads = 1; threads <= 2; threads++) {
        fl_engine *engine = toy_open_as(&t, "fp32", threads, "auto", TEXTS, LONGEST, &error);
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            uint32_t pick[TEXTS];
            float    out[TEXTS][72], *rows[TEXTS];
            for (uint32_t i = 0; i < batches[b].count; i++) {
                pick[i] = batches[b].from + i;
                rows[i] = out[i];
            }
            forward(engine, pick, batches[b].count, false, false, rows);
            for (uint32_t i = 0; i < batches[b].count; i++) {
                cr_assert_eq(memcmp(out[i], texts.rows[pick[i]], sizeof out[i]), 0,
                             "%u threads, batch %zu, text %u", threads, b, i);
            }
            cr_assert_eq(engine->prompt.spared, batches[b].spared, "%u threads, batch %zu: %u",
                         threads, b, engine->prompt.spared);
        }
        fl_engine_find("cpu")->close(engine);
    }
    for (uint32_t i = 0; i < texts.count; i++)
        free(texts.rows[i]);
    toy_free(&t);
}
