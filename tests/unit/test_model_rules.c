/* SPDX-License-Identifier: Apache-2.0 */
/* test_model_rules.c - what must never break: rotary tables are torch's float32 bit for bit,
 * ALiBi's slopes and the masks of each rule of distance are those of the reference, and what an
 * engine cannot do is named with one status. Values from torch 2.15.0 and transformers 5.23.0
 * (modeling_rope_utils), written with nine digits. */
#include <math.h>
#include <string.h>

#include <criterion/criterion.h>

#include "model/encoder.h"

static const uint32_t places[] = {1, 511, 8191, 32767};

static void check_rope(const fl_rope *rope, const float *cosines, const float *sines) {
    const double step = rope->size > 1 ? 1.2e-7 : 6e-8; /* of float32 there */
    float        c[8], s[8];
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        fl_rope_table(rope, places[i], 1, c, s);
        for (uint32_t k = 0; k < rope->dims / 2; k++, cosines++, sines++) {
            cr_expect_float_eq(c[k], *cosines, step, "position %u: %.9g, %.9g", places[i],
                               (double)c[k], (double)*cosines);
            cr_expect_float_eq(s[k], *sines, step, "position %u: %.9g, %.9g", places[i],
                               (double)s[k], (double)*sines);
        }
    }
}

Test(model_rules, rope_plain) {
    static const fl_rope rope      = {.theta = 1e4, .dims = 6};
    static const float   cosines[] = {0.540302336f, 0.998922944f, 0.999997675f,  -0.471678883f,
                                      0.155933455f, 0.45277968f,  -0.646390498f, -0.998212874f,
                                      0.359947056f, 0.982263327f, 0.929235697f,  0.0913544372f};
    static const float   sines[]   = {0.841470957f,  0.0463992208f, 0.0021544327f, 0.881770372f,
                                      -0.987767577f, 0.891622424f,  -0.763006806f, -0.0597581752f,
                                      -0.932972729f, 0.187506557f,  0.369487494f,  0.995818436f};
    check_rope(&rope, cosines, sines);
}

Test(model_rules, rope_far) {
    static const fl_rope rope      = {.theta = 1e6, .dims = 8};
    static const float   cosines[] = {0.540302336f,  0.999500036f,  0.999999523f,  1.0f,
                                      -0.471678883f, -0.899890721f, 0.872255862f,  0.999869466f,
                                      -0.646390498f, 0.158535913f,  -0.330674648f, 0.96664089f,
                                      0.982263327f,  0.856688023f,  0.217957109f,  0.509507954f};
    static const float   sines[] = {0.841470957f,  0.0316175073f, 0.000999999931f, 3.16227743e-05f,
                                    0.881770372f,  -0.436115474f, 0.489049792f,    0.0161585342f,
                                    -0.763006806f, 0.987353206f,  0.943744838f,    0.256135434f,
                                    0.187506557f,  -0.515834928f, 0.975958347f,    0.860465944f};
    check_rope(&rope, cosines, sines);
}

Test(model_rules, rope_linear) {
    static const fl_rope rope = {
        .theta = 320000.0, .dims = 8, .scaling = FL_ROPE_LINEAR, .factor = 1.189207115002721};
    static const float cosines[] = {0.666795015f,  0.999375045f, 0.999998927f,  1.0f,
                                    -0.764775217f, 0.708817363f, 0.725107312f,  0.999490023f,
                                    0.158506796f,  0.842409492f, 0.924766123f,  0.871797025f,
                                    -0.308842152f, -0.72532779f, 0.0137523087f, -0.459241658f};
    static const float sines[]   = {0.745241165f, 0.0353479758f, 0.00148650841f, 6.2500003e-05f,
                                    0.644297183f, -0.705392063f, 0.688635886f,   0.0319320746f,
                                    0.987357914f, 0.53883785f,   -0.38053593f,   0.48986727f,
                                    0.951113284f, 0.688403606f,  -0.999905407f,  0.888311386f};
    check_rope(&rope, cosines, sines);
}

Test(model_rules, rope_llama3) {
    static const fl_rope rope      = {.theta       = 5e5,
                                      .dims        = 8,
                                      .scaling     = FL_ROPE_LLAMA3,
                                      .factor      = 8,
                                      .low_factor  = 1,
                                      .high_factor = 4,
                                      .trained     = 128};
    static const float   cosines[] = {0.540302336f,  0.999988973f,  1.0f,         1.0f,
                                      -0.471678883f, -0.738800645f, 0.995922744f, 0.999994218f,
                                      -0.646390498f, 0.693281412f,  0.122510001f, 0.998517811f,
                                      0.982263327f,  -0.995811105f, 0.881982505f, 0.976368546f};
    static const float   sines[] = {0.841470957f,  0.00470073661f, 0.000176776681f, 6.64786967e-06f,
                                    0.881770372f,  0.673924029f,   0.0902100801f,   0.00339705497f,
                                    -0.763006806f, 0.720666945f,   0.992467284f,    0.0544257946f,
                                    0.187506557f,  -0.0914341435f, -0.471282154f,   0.216112137f};
    check_rope(&rope, cosines, sines);
}

Test(model_rules, rope_yarn) {
    static const fl_rope rope      = {.theta       = 1e4,
                                      .dims        = 8,
                                      .scaling     = FL_ROPE_YARN,
                                      .factor      = 4,
                                      .low_factor  = 0,
                                      .high_factor = 2,
                                      .size        = 1.138629436111989,
                                      .trained     = 128};
    static const float   cosines[] = {0.615204155f,  1.1364063f,   1.13862586f,    1.13862944f,
                                      -0.537067473f, 0.987233043f, 0.329188526f,   1.12935078f,
                                      -0.735999227f, -1.12715256f, -0.0650335699f, -0.522716284f,
                                      1.11843395f,   1.05702007f,  1.1070447f,     -0.377322286f};
    static const float   sines[]   = {0.958123624f,  0.0711180195f, 0.00284657069f, 0.000284657377f,
                                      1.00400972f,   0.567316413f,  1.09000552f,    0.145064592f,
                                      -0.868781984f, 0.161258131f,  1.13677073f,    1.01155555f,
                                      0.213500485f,  -0.423303157f, 0.266325086f,   1.07429266f};
    check_rope(&rope, cosines, sines);
}

Test(model_rules, a_rope_table_does_not_depend_on_where_it_begins) {
    static const fl_rope rope = {.theta = 1e4, .dims = 6};
    float                c[30], s[30], one_c[3], one_s[3];
    fl_rope_table(&rope, 0, 10, c, s);
    for (uint32_t p = 0; p < 10; p++) {
        fl_rope_table(&rope, p, 1, one_c, one_s);
        cr_expect_eq(memcmp(one_c, c + p * 3, sizeof one_c), 0);
        cr_expect_eq(memcmp(one_s, s + p * 3, sizeof one_s), 0);
    }
}

static float value(const fl_encoder *encoder, fl_distance rule, uint32_t head, ptrdiff_t distance) {
    return fl_distance_value(encoder, &rule, 0, head, distance);
}

Test(
    model_rules,
    alibi_slopes) { /* transformers' JinaBert and BLOOM: powers, then every other one of the next */
    static const float six[]  = {0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f};
    static const float half[] = {0.707106769f, 0.353553385f, 0.176776692f, 0.0883883461f};
    const fl_distance  alibi  = {.bias = FL_BIAS_ALIBI};
    fl_encoder         e      = {.desc = {.heads = 6}};
    for (uint32_t h = 0; h < 6; h++) {
        cr_expect_eq(value(&e, alibi, h, -3), -3 * six[h]);
        cr_expect_eq(value(&e, alibi, h, 3), -3 * six[h]);
    }
    e.desc.heads = 12;
    cr_expect_eq(value(&e, alibi, 7, 1), -0.00390625f);
    for (uint32_t h = 0; h < 4; h++)
        cr_expect_eq(value(&e, alibi, 8 + h, 1), -half[h]);
}

/* transformers' make_log_bucket_position (5.24.0): of 256 over 512 and 16 over 64, the steps of some distances. */
Test(model_rules, deberta_rows) {
    static const struct {
        uint32_t  buckets, most;
        ptrdiff_t distance;
        uint32_t  step;
    } cases[] = {{256, 512, 1, 1},     {256, 512, 128, 128}, {256, 512, 131, 131},
                 {256, 512, 200, 169}, {256, 512, 255, 192}, {256, 512, 256, 192},
                 {256, 512, 400, 233}, {256, 512, 505, 254}, {256, 512, 506, 255},
                 {256, 512, 900, 255}, {16, 64, 9, 9},       {16, 64, 10, 9},
                 {16, 64, 11, 10},     {16, 64, 34, 13},     {16, 64, 35, 14},
                 {16, 64, 47, 15},     {0, 24, 23, 23},      {0, 24, 24, 23}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_encoder_desc d    = {.distance = {{.bias         = FL_BIAS_DISENTANGLED,
                                              .buckets      = cases[i].buckets,
                                              .max_distance = cases[i].most}}};
        const uint32_t  span = fl_relative_span(&d);
        cr_expect_eq(fl_distance_row(&d, 0), span);
        cr_expect_eq(fl_distance_row(&d, -cases[i].distance), span + cases[i].step, "%zu", i);
    }
    const fl_encoder_desc d = {
        .distance = {{.bias = FL_BIAS_DISENTANGLED, .buckets = 16, .max_distance = 64}}};
    cr_expect_eq(fl_distance_row(&d, 15), 5); /* a key after its query */
    cr_expect_eq(fl_distance_row(&d, 63), 1);
    cr_expect_eq(fl_distance_row(&d, 900), 0);
}

Test(model_rules, a_rule_says_which_keys_are_seen) {
    static const struct {
        fl_distance rule;
        ptrdiff_t   first, last;
    } cases[]          = {{{0}, -PTRDIFF_MAX, PTRDIFF_MAX},
                          {{.causal = true}, -PTRDIFF_MAX, 0},
                          {{.window = 64}, -64, 64},
                          {{.causal = true, .window = 3}, -3, 0},
                          {{.window = 1, .bias = FL_BIAS_ALIBI}, -1, 1}};
    const fl_encoder e = {.desc = {.heads = 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(fl_distance_first(&cases[i].rule), cases[i].first);
        cr_expect_eq(fl_distance_last(&cases[i].rule), cases[i].last);
        for (ptrdiff_t d = -70; d <= 70; d++) {
            bool seen = d >= cases[i].first && d <= cases[i].last;
            cr_expect_eq(value(&e, cases[i].rule, 0, d) == -INFINITY, !seen);
        }
    }
}

/* ---- Capabilities ---------------------------------------------------------------------------- */

static fl_layer_desc   two[2];
static fl_encoder_desc bert(void) {
    memset(two, 0, sizeof two);
    return (fl_encoder_desc){.architecture = "toy",
                             .layers       = 2,
                             .layer        = two,
                             .hidden       = 64,
                             .embedding    = 64,
                             .heads        = 2,
                             .kv_heads     = 2,
                             .head_dim     = 32,
                             .intermediate = 8,
                             .vocab        = 9,
                             .word_rows    = 9,
                             .positions    = 5,
                             .embed_norm   = true};
}

static void check(const fl_encoder_desc *d, const fl_encoder_caps *caps, int status,
                  const char *words) {
    fletch_error error = {0};
    cr_expect_eq(fl_encoder_supported(d, caps, &error), status, "%s: %s", words, error.message);
    cr_expect(strstr(error.message, words), "%s: %s", words, error.message);
}

Test(model_rules, what_an_engine_cannot_do_is_named) {
    static const fl_encoder_caps nothing = {.engine = "this", .instead = "try that"};
    static const fl_encoder_caps all     = {
            .engine = "this", .instead = "try that", .features = UINT64_MAX};
    static const fl_encoder_caps sized = {.engine           = "this",
                                          .instead          = "try that",
                                          .features         = UINT64_MAX,
                                          .head_dims        = {32, 64},
                                          .size_multiple    = 8,
                                          .hidden_max       = 64,
                                          .intermediate_max = 8,
                                          .t5_distance_max  = 128};
    fl_encoder_desc              d     = bert();
    check(&d, &nothing, FLETCH_OK, "");
    check(&d, &sized, FLETCH_OK, "");
    d.norm = FL_NORM_RMS, d.mlp = FL_MLP_GLU, two[1].distance = 1, d.distance[1].window = 2;
    check(&d, &nothing, FLETCH_EPROVIDER,
          "this does not handle RMS norms, gated MLPs, attention in a window, layers that see "
          "different keys (architecture toy); try that");
    check(&d, &all, FLETCH_OK, "");
    d        = bert();
    d.hidden = d.embedding = 72;
    check(&d, &sized, FLETCH_EPROVIDER, "hidden size 72 (only multiples of 8 up to 64)");
    d          = bert();
    d.head_dim = 16;
    check(&d, &sized, FLETCH_EPROVIDER, "heads of size 16 (only 32, 64)");
    d             = bert();
    d.distance[0] = (fl_distance){.bias = FL_BIAS_T5_BUCKETS, .buckets = 32, .max_distance = 129};
    check(&d, &sized, FLETCH_EPROVIDER, "relative attention over so many tokens");
    d.layers = 0;
    check(&d, &nothing, FLETCH_EPROVIDER, "without layers");
}

Test(model_rules, a_descriptor_that_contradicts_itself_is_damage) {
    static const fl_encoder_caps all = {.features = UINT64_MAX};
    fl_encoder_desc              d   = bert();
    d.kv_heads                       = 0;
    check(&d, &all, FLETCH_EMODEL, "zero");
    d       = bert();
    d.heads = 3, d.kv_heads = 2;
    check(&d, &all, FLETCH_EMODEL, "3 heads cannot share 2");
    d         = bert();
    d.rope[0] = (fl_rope){.theta = 1e4, .dims = 7};
    check(&d, &all, FLETCH_EMODEL, "turn 7 of 32");
    d.rope[0].dims = 34;
    check(&d, &all, FLETCH_EMODEL, "turn 34 of 32");
    d           = bert();
    two[1].rope = 1;
    check(&d, &all, FLETCH_EMODEL, "layer 1 is described by rules that do not exist");
    d              = bert();
    two[0].experts = 2, two[0].experts_used = 3;
    check(&d, &all, FLETCH_EMODEL, "layer 0");
    two[0].experts_used = 2, d.mlp = FL_MLP_GLU; /* experts have no gate */
    check(&d, &all, FLETCH_EMODEL, "layer 0");
}
