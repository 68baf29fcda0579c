/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_pack.c - packed weights are, byte by byte, those that files of this FL_CPU_PACK_VERSION hold.
 *
 * There is no reference for a layout: the sums below are of the version that they stand under, so that nobody changes
 * a byte and leaves the version, with which older files would go on being read. */
#include <criterion/criterion.h>
#include <inttypes.h>

#include "base/hash.h"
#include "engine_toy.h"
#include "engines/cpu/cpu_engine.h"

/* Odd sizes, two chunks of the MLP, biases; no angles, whose last bits are the C library's. */
static const toy_spec spec = {.layers        = 2,
                              .hidden        = 72,
                              .heads         = 5,
                              .head_dim      = 24,
                              .mlp           = 400,
                              .vocab         = 50,
                              .positions     = 70,
                              .pooling       = {FL_POOL_MEAN},
                              .pooling_count = 1};

static const struct {
    const char *precision;
    uint64_t    sum;
} known[] = {
    {"fp32", 0x3829a2378d82630d}, {"int16", 0xb1ed1e73ab1a0966}, {"bf16", 0x14a47c54ff1e3298}};

#define CHANGED                                                                                    \
    "%s: packed bytes changed (0x%016" PRIx64                                                      \
    "): raise FL_CPU_PACK_VERSION and take the new sums down here"

Test(pack, bytes_are_those_of_the_version) {
    fletch_error error = {0};
    toy          t;
    cr_assert_eq(FL_CPU_PACK_VERSION, 1, "take the sums of the new version down");
    toy_make(&t, &spec, 7);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        fl_engine *e = toy_open_as(&t, known[i].precision, 2, "ref", 4, 70, &error);
        cr_assert_not_null(e, "%s", error.message);
        uint64_t sum = fl_checksum(e->panels->block, e->weights_bytes);
        cr_expect_eq(sum, known[i].sum, CHANGED, known[i].precision, sum);
        fl_engine_find("cpu")->close(e);
    }
    toy_free(&t);
}

/* int8's own gains come of a forward, which rounds as the machine does: its panels, and those in groups, alone. */
Test(pack, panels_are_those_of_the_version) {
    enum { STEPS = 80 };
    static const uint64_t sums[] = {0xd475f12cf9249111, 0x94f24df5e6ae7c23, 0x6191181b355242bb};
    float                 columns[STEPS * FL_CPU_LANES];
    uint64_t              state = 3;
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        columns[i] = toy_uniform(&state, -1.0f, 1.0f);
    for (uint8_t i = 0; i < 3; i++) {
        const fl_groups groups         = {.bits = i == 1 ? 8 : 4, .run = 32};
        uint8_t         panel[1 << 14] = {0};
        if (i == 0)
            fl_cpu_quantize_panel(columns, STEPS, 4, panel);
        else
            fl_cpu_round_columns(&groups, columns, STEPS, panel);
        uint64_t sum = fl_checksum(panel, sizeof panel);
        cr_expect_eq(sum, sums[i], CHANGED, i == 0 ? "int8" : i == 1 ? "q8" : "q4", sum);
    }
}

/* Replicas of a node have one copy, which is there as long as one of them is; vectors are the same. */
Test(pack, engines_alike_share_their_weights) {
    static const char *const precisions[] = {"fp32", "int8"};
    const fl_engine_ops     *cpu          = fl_engine_find("cpu");
    int32_t                  ids[]        = {3, 1, 4, 1, 5, 9, 2, 6};
    uint32_t                 cu[]         = {0, 8};
    float                    out[2][72], *row;
    toy                      t;
    toy_make(&t, &spec, 7);
    for (size_t i = 0; i < 2; i++) {
        fletch_error error = {0};
        fl_engine *other = NULL, *first = toy_open_as(&t, precisions[i], 2, "auto", 4, 70, &error);
        fl_engine_info    info;
        const fl_batch    batch   = {.ids = ids, .cu = cu, .texts = 1, .tokens = 8, .rows = &row};
        fl_engine_options options = {.threads      = 1,
                                     .batch_tokens = 64,
                                     .batch_texts  = 4,
                                     .max_length   = 70,
                                     .isa          = "auto",
                                     .precision    = precisions[i],
                                     .like         = first};
        cr_assert_eq(cpu->open(&other, &t.encoder, &options, &error), 0, "%s", error.message);
        cr_assert_eq(other->panels, first->panels);
        cpu->info(other, &info);
        cr_assert_lt(info.resident_bytes, first->weights_bytes, "counted twice");
        row = out[0];
        cr_assert_eq(cpu->forward(first, 0, &batch, &error), 0);
        cpu->close(first);
        row = out[1];
        cr_assert_eq(cpu->forward(other, 0, &batch, &error), 0);
        cr_assert_eq(memcmp(out[0], out[1], sizeof out[0]), 0, "%s", precisions[i]);
        options.precision = i == 0 ? "int8" : "fp32"; /* of another kind: its own */
        options.like      = other;
        cr_assert_eq(cpu->open(&first, &t.encoder, &options, &error), 0, "%s", error.message);
        cr_assert_neq(other->panels, first->panels);
        cpu->close(other);
        cpu->close(first);
    }
    toy_free(&t);
}
