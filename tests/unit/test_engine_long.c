/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_long.c - texts longer than what every thread has room for (cpu_long.c): the bytes are those of an
 * engine with room for all, and nothing is taken twice. What they take: test_prediction.c. */
#include <criterion/criterion.h>

#include "base/mem.h"
#include "engines/cpu/cpu_engine.h"
#include "measured.h"

enum { LONGEST = 300, USUAL = 40, SMALL_CACHE = 4096 };

static const toy_spec post = {.layers        = 2,
                              .hidden        = 48,
                              .heads         = 3,
                              .head_dim      = 16,
                              .mlp           = 500,
                              .vocab         = 50,
                              .positions     = LONGEST,
                              .type          = true,
                              .activation    = FL_ACT_GELU_ERF,
                              .pooling       = {FL_POOL_MEAN},
                              .pooling_count = 1};
static const toy_spec pre  = {.layers    = 3,
                              .hidden    = 72,
                              .heads     = 10,
                              .kv_heads  = 2,
                              .head_dim  = 24,
                              .mlp       = 400,
                              .vocab     = 50,
                              .positions = LONGEST,
                              TOY_DECODER,
                              .activation    = FL_ACT_SILU,
                              .rope_dims     = 24,
                              .causal        = true,
                              .pooling       = {FL_POOL_LAST_TOKEN},
                              .pooling_count = 1};
static const toy_spec wide = {.layers        = 2,
                              .hidden        = 96,
                              .heads         = 6,
                              .head_dim      = 20,
                              .mlp           = 400,
                              .vocab         = 50,
                              .positions     = LONGEST,
                              .qk_norm       = FL_QK_NORM_WIDE,
                              .experts       = 4,
                              .experts_used  = 2,
                              .alibi         = true,
                              .no_positions  = true,
                              .pooling       = {FL_POOL_CLS},
                              .pooling_count = 1};

static fl_engine *open_usual(const toy *t, const char *precision, unsigned threads,
                             uint32_t usual) {
    fletch_error error = {0};
    fl_engine   *engine =
        toy_open_sized(t, precision, threads, "auto", 64, LONGEST, usual, SMALL_CACHE, &error);
    cr_assert_not_null(engine, "%s", error.message);
    return engine;
}

static void forward(fl_engine *engine, const fl_batch *batch) {
    fletch_error error = {0};
    cr_assert_eq(fl_engine_find("cpu")->forward(engine, 0, batch, &error), FLETCH_OK, "%s",
                 error.message);
}

/* Rows of `batch` by threads that have room for usual texts alone are those of one that has room for all. */
static void check(const toy_spec *spec, const char *precision) {
    static const shape shapes[] = {{1, LONGEST, EQUAL},
                                   {2, 200, EQUAL},
                                   {9, LONGEST, MIXED},
                                   {30, 130, MIXED},
                                   {4, 20, EQUAL}};
    toy                t;
    toy_make(&t, spec, 11);
    size_t bytes = fl_encoder_width(&t.encoder) * sizeof(float);
    for (unsigned threads = 1; threads <= 12; threads += threads < 3 ? 1 : 9) {
        fl_engine *few = open_usual(&t, precision, threads, USUAL);
        cr_assert(few->block_max <= 64, "%zu", few->block_max);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            fl_batch   expected = make_batch(&t, &shapes[i]), batch = make_batch(&t, &shapes[i]);
            fl_engine *all = open_usual(&t, precision, 1, 0);
            forward(all, &expected);
            forward(few, &batch);
            for (uint32_t k = 0; k < batch.texts; k++) {
                cr_assert_eq(memcmp(batch.rows[k], expected.rows[k], bytes), 0,
                             "%s, %u threads, shape %zu, text %u", precision, threads, i, k);
            }
            fl_engine_find("cpu")->close(all);
        }
        fl_engine_find("cpu")->close(few);
    }
    toy_free(&t);
}

Test(engine_long, bytes_do_not_depend_on_what_threads_have_room_for) {
    check(&post, "fp32");
    check(&post, "int8");
    check(&post, "int16");
    check(&pre, "fp32");
    check(&pre, "int8");
    check(&pre, "int16");
    check(&pre, "bf16");
    check(&wide, "fp32");
}

Test(engine_long, room_is_taken_once_and_a_text_without_it_fails_alone) {
    const shape  some[] = {{1, 20, EQUAL}, {1, LONGEST, EQUAL}, {3, 200, EQUAL}};
    fletch_error error  = {0};
    toy          t;
    toy_make(&t, &post, 3);
    fl_engine *engine = open_usual(&t, "fp32", 2, USUAL);
    fl_batch   batch[3];
    for (size_t i = 0; i < 3; i++)
        batch[i] = make_batch(&t, &some[i]);
    fl_alloc_fail_after(2); /* the first is small */
    cr_assert_eq(fl_engine_find("cpu")->forward(engine, 0, &batch[1], &error), FLETCH_ENOMEM);
    cr_expect_not_null(strstr(error.message, "lower max_length"), "%s", error.message);
    cr_expect_not_null(strstr(error.message, "cpu.intra_op_threads"), "%s", error.message);
    fl_alloc_fail_after(0);
    forward(engine, &batch[0]);
    forward(engine, &batch[1]);
    uint64_t before = fl_alloc_count();
    for (size_t i = 0; i < 3; i++)
        forward(engine, &batch[i]);
    cr_assert_eq(fl_alloc_count(), before);
    fl_engine_find("cpu")->close(engine);
    toy_free(&t);
}
