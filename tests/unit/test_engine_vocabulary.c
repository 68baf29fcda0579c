/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_vocabulary.c - the vocabulary head of the CPU engine: each kernel against double precision,
 * and the same bytes whatever the batch, the threads and the size of blocks. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine_toy.h"

enum { TEXTS = 60, LONGEST = 70 };

#define SIZES                                                                                      \
    .layers = 1, .hidden = 48, .heads = 3, .head_dim = 16, .mlp = 50, .vocab = 131,                \
    .positions = LONGEST, .pooling = {FL_POOL_MAX}, .pooling_count = 1, .sparse = true
static const toy_spec specs[] = {
    {SIZES},
    {SIZES, .untied = true, .activation = FL_ACT_SILU, .head_activation = FL_ACT_SILU},
    {SIZES, .activation = FL_ACT_RELU, .type = true, .dtype = FL_DTYPE_F16},
    {SIZES, .embedding = 20},
    {SIZES, .place = FL_NORM_PRE, .final_norm = true, .no_bias = true, .bare_head = true},
};

typedef struct texts {
    toy      toy;
    uint32_t cu[TEXTS + 1];
    int32_t  ids[TEXTS * LONGEST];
} texts;

static texts *make(const toy_spec *spec) {
    texts *t = calloc(1, sizeof *t);
    toy_make(&t->toy, spec, 11);
    for (uint32_t i = 0; i < TEXTS;
         i++) /* many short ones: more to a block than are kept at a time */
        t->cu[i + 1] = t->cu[i] + (i % 12 == 0 ? 1 + toy_draw(&t->toy.state, LONGEST) : 1 + i % 3);
    for (uint32_t i = 0; i < t->cu[TEXTS]; i++)
        t->ids[i] = (int32_t)toy_draw(&t->toy.state, spec->vocab);
    return t;
}

/* Terms of texts [first, first + count). */
static void run(const texts *t, const char *isa, unsigned threads, uint32_t l2_bytes,
                uint32_t first, uint32_t count, fl_terms *terms) {
    fletch_error error;
    uint32_t     cu[TEXTS + 1];
    fl_engine   *engine =
        toy_open_sized(&t->toy, "fp32", threads, isa, TEXTS, LONGEST, 1, l2_bytes, &error);
    cr_assert_not_null(engine, "%s", error.message);
    for (uint32_t i = 0; i <= count; i++)
        cu[i] = t->cu[first + i] - t->cu[first];
    fl_batch batch = {.ids    = t->ids + t->cu[first],
                      .cu     = cu,
                      .texts  = count,
                      .tokens = cu[count],
                      .terms  = terms};
    cr_assert_eq(fl_engine_find("cpu")->forward(engine, 0, &batch, &error), 0, "%s", error.message);
    fl_engine_find("cpu")->close(engine);
}

static void release(texts *t, fl_terms *terms, size_t count) {
    for (size_t i = 0; i < count; i++)
        fl_terms_free(&terms[i]);
    if (t) {
        toy_free(&t->toy);
        free(t);
    }
}

/* What is positive by more than rounding must be there, in order and right; nothing else may be. */
static void check_text(const texts *t, uint32_t i, const fl_terms *terms, const char *isa) {
    static double want[200];
    uint32_t      vocab = t->toy.encoder.desc.vocab, at = 0;
    toy_vocabulary(&t->toy.encoder, t->ids + t->cu[i], t->cu[i + 1] - t->cu[i], want);
    for (uint32_t v = 0; v < vocab; v++) {
        bool there = at < terms->count && terms->ids[at] == (int32_t)v;
        cr_assert(there ? want[v] > -1e-5 : want[v] < 1e-5, "%s: text %u, id %u: %g is %s", isa, i,
                  v, want[v], there ? "there" : "missing");
        if (there) {
            cr_assert(fabs((double)terms->values[at++] - want[v]) <= 2e-5, "%s: text %u, id %u",
                      isa, i, v);
        }
    }
    cr_assert_eq(at, terms->count);
}

Test(vocabulary, every_kernel_gives_what_double_precision_gives) {
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        const char *isa;
        for (size_t at = 0; toy_each_isa(&at, &isa);) {
            texts   *t            = make(&specs[s]);
            fl_terms terms[TEXTS] = {{0}};
            size_t   all          = 0;
            run(t, isa, 1, 0, 0, TEXTS, terms);
            for (uint32_t i = 0; i < TEXTS; i++) {
                check_text(t, i, &terms[i], isa);
                all += terms[i].count;
            }
            cr_assert(all > TEXTS * 10 && all < (size_t)TEXTS * specs[s].vocab * 9 / 10);
            release(t, terms, TEXTS);
        }
    }
}

static void check_same(const fl_terms *a, const fl_terms *b) {
    cr_assert_eq(a->count, b->count);
    cr_assert_eq(memcmp(a->ids, b->ids, a->count * sizeof *a->ids), 0);
    cr_assert_eq(memcmp(a->values, b->values, a->count * sizeof *a->values), 0);
}

Test(vocabulary, bytes_do_not_depend_on_batch_threads_or_blocks) {
    texts   *t            = make(&specs[0]);
    fl_terms whole[TEXTS] = {{0}}, other[TEXTS] = {{0}};
    run(t, "auto", 1, 0, 0, TEXTS, whole);
    const struct {
        unsigned threads;
        uint32_t l2_bytes;
    } ways[] = {{1, 4096}, {2, 0}, {3, 4096}, {4, 1 << 20}};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        run(t, "auto", ways[w].threads, ways[w].l2_bytes, 0, TEXTS, other);
        for (uint32_t i = 0; i < TEXTS; i++)
            check_same(&whole[i], &other[i]);
        release(NULL, other, TEXTS);
    }
    for (uint32_t i = 0; i < TEXTS;
         i += 7) { /* alone, by one thread and by several that split it */
        for (unsigned threads = 1; threads <= 3; threads += 2) {
            run(t, "auto", threads, 0, i, 1, other);
            check_same(&whole[i], &other[0]);
            release(NULL, other, 1);
        }
    }
    release(t, whole, TEXTS);
}

Test(vocabulary, values_that_are_not_finite_are_no_result) {
    const float  nan = NAN, zero = 0.0f, infinite = INFINITY;
    texts       *t        = make(&specs[1]);
    fl_terms     terms[4] = {{0}};
    fletch_error error;
    /* tensors of files need not be aligned, nor are these */
    char *decoder = (char *)(uintptr_t)t->toy.encoder.global[FL_SLOT_MLM_DECODER].data;
    char *bias    = (char *)(uintptr_t)t->toy.encoder.global[FL_SLOT_MLM_B].data;
    memcpy(decoder + 400, &nan, sizeof nan);
    cr_assert_null(toy_open(&t->toy, 1, "auto", 4, LONGEST, &error));
    cr_assert_eq(error.code, FLETCH_EMODEL);
    memcpy(decoder + 400, &zero, sizeof zero);
    memcpy(bias + 12, &infinite, sizeof infinite);
    fl_engine *engine = toy_open(&t->toy, 1, "auto", 4, LONGEST, &error);
    fl_batch   batch = {.ids = t->ids, .cu = t->cu, .texts = 2, .tokens = t->cu[2], .terms = terms};
    cr_assert_eq(fl_engine_find("cpu")->forward(engine, 0, &batch, &error), FLETCH_EMODEL);
    fl_engine_find("cpu")->close(engine);
    release(t, terms, 4);
}
