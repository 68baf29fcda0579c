/* SPDX-License-Identifier: Apache-2.0 */
/* test_flops.c - what must never be wrong: a share of a processor's peak is no better than the truth. The
 * expected values are counted by hand from the published shapes. */
#include <criterion/criterion.h>

#include "model/encoder.h"

/* BERT: four matrices hidden x hidden and two of the MLP, 2 for each multiply and add; each of n queries
 * against n keys, and as much for the values. */
Test(flops, all_minilm_l6) {
    fl_layer_desc   layer[6] = {0};
    fl_encoder_desc d        = {.layers       = 6,
                                .layer        = layer,
                                .hidden       = 384,
                                .heads        = 12,
                                .kv_heads     = 12,
                                .head_dim     = 32,
                                .intermediate = 1536};
    const uint64_t  token    = 6 * 2 * (4 * 384 * 384 + 2 * 384 * 1536);
    cr_expect_eq(fl_encoder_flops(&d, 0), 0);
    cr_expect_eq(fl_encoder_flops(&d, 1), token + 6 * 4 * 384);
    cr_expect_eq(fl_encoder_flops(&d, 256), 256 * token + 6 * 4 * 384 * 256 * 256);
}

/* Gated MLP, two keys for eight heads, causal, a window in the second of two layers. */
Test(flops, causal_windows_and_shared_keys) {
    fl_layer_desc   layer[2] = {{.distance = 0}, {.distance = 1}};
    fl_encoder_desc d        = {.layers       = 2,
                                .layer        = layer,
                                .hidden       = 64,
                                .heads        = 8,
                                .kv_heads     = 2,
                                .head_dim     = 16,
                                .intermediate = 96,
                                .mlp          = FL_MLP_GLU,
                                .distance     = {{.causal = true}, {.causal = true, .window = 3}}};
    const uint64_t  token    = 2 * (2 * 64 * 128 + 2 * 64 * 32 + 3 * 64 * 96);
    const uint64_t  pairs = 1 + 2 + 3 + 4 + 5 + 6, windowed = 1 + 2 + 3 + 4 + 4 + 4;
    cr_expect_eq(fl_encoder_flops(&d, 6), 2 * 6 * token + 4 * 128 * (pairs + windowed));
    d.distance[0].causal = d.distance[1].causal = false;
    cr_expect_eq(fl_encoder_flops(&d, 6),
                 2 * 6 * token + 4 * 128 * (6 * 6 + (4 + 5 + 6 + 6 + 5 + 4)));
}

/* A gate, what is summed and its factor, three taps a channel, no pairs; then a layer with two keys for four heads. */
Test(flops, convolutions) {
    fl_layer_desc   layer[2] = {{.convolves = true}, {0}};
    fl_encoder_desc d        = {.layers       = 2,
                                .layer        = layer,
                                .hidden       = 32,
                                .heads        = 4,
                                .kv_heads     = 2,
                                .head_dim     = 8,
                                .intermediate = 64,
                                .taps         = 3};
    const uint64_t  mlp = 2 * 32 * 64, first = 4 * 32 * 32 + 3 * 32 + mlp,
                   second = 3 * 32 * 32 + mlp;
    cr_expect_eq(fl_encoder_flops(&d, 5), 5 * 2 * (first + second) + 4 * 32 * 5 * 5);
}

/* A token goes to two of eight experts, and all of them are weighed. */
Test(flops, experts) {
    fl_layer_desc   layer = {.experts = 8, .experts_used = 2};
    fl_encoder_desc d     = {.layers       = 1,
                             .layer        = &layer,
                             .hidden       = 32,
                             .heads        = 2,
                             .kv_heads     = 2,
                             .head_dim     = 16,
                             .intermediate = 64};
    cr_expect_eq(fl_encoder_flops(&d, 1), 2 * (4 * 32 * 32 + 8 * 32 + 2 * 2 * 32 * 64) + 4 * 32);
}
