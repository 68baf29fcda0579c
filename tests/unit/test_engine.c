/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine.c - the CPU engine computes what the descriptor says, for every switch and odd size.
 *
 * Expected values are those of the double forward in engine_toy.h. Tolerance: float32 carries 6e-8
 * per operation; through 2 layers of sums over 80 to 300 terms with norms in between the rows of
 * size 1 differ by some 1e-6; 2e-5 would hide no wrong term. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/mem.h"
#include "engine_toy.h"

static const double tolerance = 2e-5;

static const toy_spec plain = {.layers        = 2,
                               .hidden        = 48,
                               .heads         = 3,
                               .head_dim      = 16,
                               .mlp           = 64,
                               .vocab         = 50,
                               .positions     = 70,
                               .pooling       = {FL_POOL_MEAN},
                               .pooling_count = 1};

static const toy_spec decoder = {.layers    = 2,
                                 .hidden    = 48,
                                 .heads     = 4,
                                 .kv_heads  = 2,
                                 .head_dim  = 24,
                                 .mlp       = 400,
                                 .vocab     = 50,
                                 .positions = 70,
                                 TOY_DECODER,
                                 .activation    = FL_ACT_SILU,
                                 .rope_dims     = 24,
                                 .causal        = true,
                                 .pooling       = {FL_POOL_LAST_TOKEN},
                                 .pooling_count = 1};

/* Rows of a batch on `isa` against `want`, [texts][width]. */
static void run(toy *t, const char *isa, const fl_batch *batch, const double *want) {
    const fl_engine_ops ops    = *fl_engine_find("cpu");
    const uint32_t      width  = fl_encoder_width(&t->encoder);
    const size_t        stride = width + 3; /* rows need not be dense */
    fletch_error        error  = {0};
    float              *out    = malloc(batch->texts * stride * sizeof *out);
    float              *rows[64];
    for (uint32_t i = 0; i < batch->texts; i++)
        rows[i] = out + i * stride;
    fl_batch mine     = *batch;
    mine.rows         = rows;
    fl_engine *engine = toy_open(t, 2, isa, batch->texts, t->encoder.desc.positions, &error);
    cr_assert_not_null(engine, "%s", error.message);
    cr_assert_eq(ops.forward(engine, 0, &mine, &error), 0, "%s", error.message);
    for (uint32_t i = 0; i < batch->texts; i++) {
        for (uint32_t c = 0; c < width; c++) {
            cr_assert(fabs((double)rows[i][c] - want[i * width + c]) <= tolerance,
                      "%s: text %u of %u tokens, column %u: %.8g, expected %.8g", isa, i,
                      batch->cu[i + 1] - batch->cu[i], c, (double)rows[i][c], want[i * width + c]);
        }
    }
    ops.close(engine);
    free(out);
}

/* Forward texts of these lengths on `isa`, NULL for each that this machine has, and compare each row with
 * the double forward. */
static void compare(const toy_spec *spec, const char *isa, const uint32_t *lengths, uint32_t texts,
                    uint32_t skip) {
    toy      t;
    uint32_t cu[64] = {0}, skips[64], segment[64];
    toy_make(&t, spec, 7);
    for (uint32_t i = 0; i < texts; i++) {
        cu[i + 1]  = cu[i] + lengths[i];
        skips[i]   = skip;
        segment[i] = spec->segments ? (i * 3) % (lengths[i] + 1) : lengths[i];
    }
    int32_t *ids = calloc(cu[texts], sizeof *ids);
    for (uint32_t i = 0; i < cu[texts]; i++)
        ids[i] = (int32_t)toy_draw(&t.state, spec->vocab);
    ids[0]               = 0; /* both ends of the table */
    ids[cu[texts] - 1]   = (int32_t)spec->vocab - 1;
    const uint32_t width = fl_encoder_width(&t.encoder);
    double        *want  = malloc((size_t)texts * width * sizeof *want);
    for (uint32_t i = 0; i < texts; i++)
        toy_forward_pair(&t.encoder, ids + cu[i], lengths[i], segment[i], skip, want + i * width);
    const fl_batch batch = {.ids       = ids,
                            .cu        = cu,
                            .texts     = texts,
                            .tokens    = cu[texts],
                            .pool_skip = skip ? skips : NULL,
                            .segment   = spec->segments ? segment : NULL};
    if (isa != NULL)
        run(&t, isa, &batch, want);
    else
        for (size_t at = 0; toy_each_isa(&at, &isa);)
            run(&t, isa, &batch, want);
    free(want), free(ids);
    toy_free(&t);
}

static const uint32_t some[] = {1, 2, 5, 7, 13, 16, 17, 33, 64, 70};

static void compare_some(const toy_spec *spec) {
    compare(spec, NULL, some, 10, 0);
}

/* One of each kind of family; the switches are those of the model that it is named after. */
#define SIZES                                                                                      \
    .layers = 3, .hidden = 64, .heads = 4, .head_dim = 16, .mlp = 72, .vocab = 50,                 \
    .positions = 700, .pooling = {FL_POOL_MEAN}, .pooling_count = 1
static const toy_spec families[] = {
    {SIZES, .glu = FL_MLP_GLU, .activation = FL_ACT_SILU, .rope_dims = 16, .theta = 1000.0,
     .no_positions = true, .no_bias = true, .type = true}, /* NomicBERT */
    {SIZES, .glu = FL_MLP_GLU, .rope_dims = 12, .theta = 500000.0, .no_positions = true}, /* GTE */
    {SIZES, .place = FL_NORM_PRE, .final_norm = true, .skips_first = true, .no_bias = true,
     .glu = FL_MLP_GLU, .rope_dims = 16, .theta = 10000.0, .no_positions = true, .window = 9,
     .alternate = true}, /* ModernBERT */
    {SIZES, .norm = FL_NORM_RMS, .place = FL_NORM_PRE, .final_norm = true, .kv_heads = 2,
     .qk_norm = FL_QK_NORM_HEAD, .causal = true, .no_bias = true, .glu = FL_MLP_GLU,
     .bare_embeddings = true, .activation = FL_ACT_SILU, .rope_dims = 16, .theta = 1e6,
     .no_positions = true}, /* Qwen3 */
    {SIZES, .norm = FL_NORM_RMS_PLUS_ONE, .place = FL_NORM_PRE, .extra = FL_EXTRA_NORM_BRANCH,
     .final_norm = true, .kv_heads = 1, .qk_norm = FL_QK_NORM_HEAD, .no_bias = true,
     .glu = FL_MLP_GLU, .bare_embeddings = true, .activation = FL_ACT_GELU_TANH, .rope_dims = 16,
     .theta = 10000.0, .no_positions = true, .embed_scale = 8.0f, .window = 5,
     .alternate = true}, /* Gemma3 */
    {SIZES, .norm = FL_NORM_RMS_PLUS_ONE, .place = FL_NORM_PRE, .extra = FL_EXTRA_NORM_BRANCH,
     .final_norm = true, .kv_heads = 2, .no_bias = true, .glu = FL_MLP_GLU, .bare_embeddings = true,
     .activation = FL_ACT_GELU_TANH, .rope_dims = 16, .theta = 10000.0, .no_positions = true,
     .causal = true, .window = 7, .cap = 1.5f},                                    /* Gemma2 */
    {SIZES, .alibi = true, .glu = FL_MLP_GLU, .no_positions = true, .type = true}, /* JinaBERT */
    {SIZES, .extra = FL_EXTRA_NORM_RESIDUAL, .alibi = true, .glu = FL_MLP_GLU, .no_positions = true,
     .qk_norm = FL_QK_NORM_WIDE}, /* JinaBERT with its double residual */
    {SIZES, .experts = 8, .experts_used = 2, .rope_dims = 16, .theta = 10000.0,
     .no_positions = true}, /* NomicBERT with experts */
    {SIZES, .experts = 5, .experts_used = 2, .rope_dims = 16, .theta = 10000.0,
     .no_positions = true, .experts_of_gguf = true}, /* … as GGUF has it */
    {SIZES, .embedding = 24, .type = true},          /* ELECTRA */
    {SIZES, .norm = FL_NORM_RMS, .place = FL_NORM_PRE, .final_norm = true, .kv_heads = 1,
     .causal = true, .window = 100, .glu = FL_MLP_GLU, .bare_embeddings = true,
     .no_positions = true, .rope_dims = 16, .theta = 10000.0,
     .activation = FL_ACT_SILU},                   /* Mistral */
    {SIZES, .relative = 16, .no_positions = true}, /* DeBERTa v3 */
    {SIZES, .relative = 40, .no_positions = true,
     .type = true}, /* with a table of its own in each layer */
    {SIZES, TOY_DECODER, .kv_heads = 2, .qk_norm = FL_QK_NORM_HEAD, .causal = true, .no_bias = true,
     .activation = FL_ACT_SILU, .rope_dims = 16, .taps = 3}, /* LFM2 */
    {SIZES, TOY_DECODER, .kv_heads = 1, .rope_dims = 16, .taps = 6,
     .centred = true}, /* that looks both ways */
};

Test(engine, every_kind_of_family_on_every_instruction_set) {
    static const uint32_t lengths[] = {1, 2, 7, 16, 33, 100, 520};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        compare(&families[i], NULL, lengths, 7, 0);
}

Test(engine, static_embeddings_are_rows_pooled) {
    toy_spec spec = {.hidden          = 20,
                     .vocab           = 50,
                     .positions       = 70,
                     .pooling         = {FL_POOL_MEAN},
                     .pooling_count   = 1,
                     .no_positions    = true,
                     .bare_embeddings = true};
    compare_some(&spec);
    spec.map = true;
    compare_some(&spec);
}

Test(engine, a_word_map_that_leaves_the_table_is_damage) {
    toy          t;
    fletch_error error = {0};
    toy_spec     spec  = plain;
    int64_t      row   = 25;
    spec.map           = true; /* 25 rows for 50 ids */
    toy_make(&t, &spec, 7);
    memcpy((char *)(uintptr_t)t.encoder.global[FL_SLOT_WORD_MAP].data + 8 * 7, &row, 8);
    cr_assert_null(toy_open(&t, 1, "auto", 1, 70, &error));
    cr_assert_eq(error.code, FLETCH_EMODEL);
    cr_assert(strstr(error.message, "id 7 to row 25"), "%s", error.message);
    toy_free(&t);
}

static uint32_t pick(uint64_t *state, const uint32_t *from, uint32_t count) {
    return from[toy_draw(state, count)];
}

/* Any switch with any other. Those that the descriptor cannot join are left out: a double residual needs
 * norms behind the blocks, a norm of the branch norms in front. */
static toy_spec random_spec(uint64_t *state) {
    static const uint32_t dims[] = {4, 8, 10, 16, 24, 32, 48, 64, 80, 96, 128};
    toy_spec              s      = {.layers        = 1 + toy_draw(state, 3),
                                    .hidden        = 8 + toy_draw(state, 90),
                                    .head_dim      = pick(state, dims, 11),
                                    .mlp           = 1 + toy_draw(state, 800),
                                    .vocab         = 40,
                                    .positions     = 90,
                                    .pooling       = {(fl_pooling)toy_draw(state, FL_POOL_COUNT)},
                                    .pooling_count = 1};
    s.kv_heads                   = 1 + toy_draw(state, 3);
    s.heads                      = s.kv_heads * (1 + toy_draw(state, 6));
    s.type                       = toy_draw(state, 2);
    s.tasks                      = toy_draw(state, 4) == 0;
    s.t5                         = toy_draw(state, 5) == 0;
    s.own_tables                 = s.t5 && toy_draw(state, 2);
    s.alibi                      = !s.t5 && toy_draw(state, 4) == 0;
    s.activation                 = (fl_activation)toy_draw(state, FL_ACTIVATIONS);
    s.dtype                      = (fl_dtype)toy_draw(state, 3);
    s.embedding                  = toy_draw(state, 4) == 0 ? 5 + toy_draw(state, 100) : 0;
    s.norm                       = (fl_norm)toy_draw(state, 3);
    s.place                      = (fl_norm_place)toy_draw(state, 2);
    s.extra                      = toy_draw(state, 2)       ? FL_EXTRA_NORM_NONE
                                   : s.place == FL_NORM_PRE ? FL_EXTRA_NORM_BRANCH
                                                            : FL_EXTRA_NORM_RESIDUAL;
    s.glu                        = (fl_mlp)toy_draw(state, 2);
    s.qk_norm                    = (fl_qk_norm)toy_draw(state, FL_QK_NORM_WIDE + 1);
    s.experts         = s.glu == FL_MLP_PLAIN && toy_draw(state, 2) ? 1 + toy_draw(state, 20) : 0;
    s.experts_used    = s.experts ? 1 + toy_draw(state, s.experts < 3 ? s.experts : 3) : 0;
    s.final_norm      = s.place == FL_NORM_PRE;
    s.bare_embeddings = toy_draw(state, 2);
    s.skips_first     = s.place == FL_NORM_PRE && toy_draw(state, 2);
    s.no_bias         = toy_draw(state, 2);
    s.no_positions    = toy_draw(state, 2);
    s.embed_scale     = toy_draw(state, 3) == 0 ? 3.0f : 0.0f;
    s.rope_dims       = toy_draw(state, 3) ? s.head_dim / (1 + toy_draw(state, 2)) / 2 * 2 : 0;
    s.theta           = toy_draw(state, 2) ? 10000.0 : 160000.0;
    s.causal          = toy_draw(state, 3) == 0;
    s.map             = toy_draw(state, 4) == 0;
    s.window          = toy_draw(state, 2) ? 1 + toy_draw(state, 40) : 0;
    s.alternate       = !s.t5 && toy_draw(state, 2);
    s.cap             = toy_draw(state, 6) == 0 ? 1.0f + (float)toy_draw(state, 50) : 0.0f;
    if (!s.t5 && !s.alibi && s.qk_norm == FL_QK_NORM_NONE && s.heads == s.kv_heads) {
        s.relative  = toy_draw(state, 2) ? 16 : 1 + toy_draw(state, 60);
        s.alternate = false;
    }
    return s;
}

Test(engine, random_switches_and_sizes) {
    uint64_t              state     = 1234567;
    static const uint32_t lengths[] = {4, 90, 3, 17, 40, 1}; /* the last one: nothing left out */
    for (int i = 0; i < toy_rounds(20, 120); i++) {
        toy_spec    spec = random_spec(&state);
        const char *isa;
        size_t      at = 0, skip = toy_draw(&state, 12);
        toy_each_isa(&at, &isa);
        for (size_t k = 0; k < skip && isa; k++)
            toy_each_isa(&at, &isa); /* one of them, ref and the best most often */
        uint32_t left_out = toy_draw(&state, 3);
        compare(&spec, isa ? isa : "ref", lengths, left_out ? 5 : 6, left_out);
    }
}

Test(engine, bert_of_even_sizes) {
    compare_some(&plain);
}

Test(engine, token_type_row_is_added) {
    toy_spec spec = plain;
    spec.type     = true;
    compare_some(&spec);
}

Test(engine, tokens_of_a_second_text_have_the_second_type_row) {
    toy_spec spec = plain;
    spec.type = spec.segments = true;
    compare_some(&spec);
    spec.offset = 2;
    compare_some(&spec);
    spec.no_positions = true; /* types alone, as NomicBERT has them */
    spec.rope_dims = 8, spec.theta = 1000.0;
    compare_some(&spec);
}

Test(engine, position_offset_skips_rows) {
    toy_spec spec = plain;
    spec.offset   = 2;
    compare_some(&spec);
}

Test(engine, head_sizes_8_24_32_64_80) {
    static const uint32_t dims[] = {8, 24, 32, 64, 80, 1, 17};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        toy_spec spec = plain;
        spec.head_dim = dims[i]; /* heads * head_dim need not be hidden */
        compare_some(&spec);
    }
}

Test(engine, hidden_and_middle_of_odd_sizes) {
    static const uint32_t sizes[][2] = {{20, 33},  {37, 401}, {16, 384},
                                        {50, 385}, {48, 1},   {3, 800}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        toy_spec spec = plain;
        spec.hidden   = sizes[i][0];
        spec.mlp      = sizes[i][1];
        compare_some(&spec);
    }
}

Test(engine, t5_buckets_up_to_and_past_the_largest_distance) {
    toy_spec spec                   = plain;
    spec.t5                         = true;
    spec.offset                     = 2;
    spec.positions                  = 300;
    static const uint32_t lengths[] = {1, 9, 100, 300, 20};
    compare(&spec, "auto", lengths, 5, 0);
    compare(&spec, "ref", lengths, 5, 0);
    spec.own_tables = true;
    compare(&spec, "auto", lengths, 5, 0);
    compare(&spec, "ref", lengths, 5, 0);
}

Test(engine, every_activation) {
    for (int a = FL_ACT_GELU_ERF; a < FL_ACTIVATIONS; a++) {
        toy_spec spec   = plain;
        spec.activation = (fl_activation)a;
        compare_some(&spec);
    }
}

Test(engine, half_and_brain_float_weights) {
    toy_spec spec = plain;
    spec.dtype    = FL_DTYPE_F16;
    compare_some(&spec);
    spec.dtype = FL_DTYPE_BF16;
    compare_some(&spec);
}

Test(engine, every_pooling_alone_and_side_by_side) {
    for (int p = 0; p < FL_POOL_COUNT; p++) {
        toy_spec spec   = plain;
        spec.pooling[0] = (fl_pooling)p;
        compare_some(&spec);
    }
    toy_spec all      = plain;
    all.pooling_count = FL_POOL_COUNT;
    for (int p = 0; p < FL_POOL_COUNT; p++)
        all.pooling[p] = (fl_pooling)p;
    compare_some(&all);
    static const uint32_t longer[] = {4, 5, 17, 40};
    compare(&all, "auto", longer, 4, 3); /* a prompt of 3 tokens left out of pooling */
}

Test(engine, longest_text_and_many_texts) {
    toy_spec spec                   = plain;
    spec.positions                  = 600;
    static const uint32_t lengths[] = {600, 3, 3, 200, 90, 90, 91, 1, 1, 599};
    compare(&spec, "auto", lengths, 10, 0);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static int open_changed(void (*change)(fl_encoder_desc *), const char *isa, const char *precision,
                        fletch_error *error) {
    toy        t;
    fl_engine *engine = NULL;
    toy_make(&t, &plain, 1);
    if (change)
        change(&t.encoder.desc);
    fl_engine_options options = {.threads      = 1,
                                 .batch_tokens = 64,
                                 .batch_texts  = 4,
                                 .max_length   = 64,
                                 .isa          = isa,
                                 .precision    = precision};
    int               status  = fl_engine_find("cpu")->open(&engine, &t.encoder, &options, error);
    cr_assert((status == 0) == (engine != NULL));
    fl_engine_find("cpu")->close(engine);
    toy_free(&t);
    return status;
}

static void more_vocab(fl_encoder_desc *d) {
    d->vocab += 1;
}
static void more_mlp(fl_encoder_desc *d) {
    d->intermediate += 1;
}
static void no_heads(fl_encoder_desc *d) {
    d->heads = d->kv_heads = 0;
}

Test(engine, weights_smaller_than_the_descriptor_are_refused) {
    fletch_error error = {0};
    cr_assert_eq(open_changed(more_vocab, "auto", "fp32", &error), FLETCH_EMODEL);
    cr_assert_eq(open_changed(more_mlp, "auto", "fp32", &error), FLETCH_EMODEL);
    cr_assert_eq(open_changed(no_heads, "auto", "fp32", &error), FLETCH_EMODEL);
}

Test(engine, precision_and_isa_are_taken_at_their_word) {
    fletch_error error = {0};
    cr_assert_eq(open_changed(NULL, "auto", "fp16", &error), FLETCH_ECONFIG);
    cr_assert(strstr(error.message, "fp16"));
    cr_assert(strstr(error.message, "int8"), "the error names what can be had");
    cr_assert_eq(open_changed(NULL, "auto", "bf16", &error), 0);
    cr_assert_eq(open_changed(NULL, "ref", "bf16", &error), 0);
    cr_assert_eq(open_changed(NULL, "auto", "int8", &error), 0);
    cr_assert_eq(open_changed(NULL, "ref", "int8", &error), 0);
#if defined(__aarch64__) /* NEON has no int16 */
    cr_assert_eq(open_changed(NULL, "auto", "int16", &error), FLETCH_EUNSUPPORTED);
#else
    cr_assert_eq(open_changed(NULL, "auto", "int16", &error), 0);
#endif
    cr_assert_eq(open_changed(NULL, "ref", "int16", &error), 0);
    cr_assert_eq(open_changed(NULL, "sse9", "fp32", &error), FLETCH_EINVAL);
    cr_assert(strstr(error.message, "sse9"));
    cr_assert_eq(open_changed(NULL, "ref", "fp32", &error), 0);
}

Test(engine, experts_are_chosen_in_fp32_alone) {
    static const char *const rounded[] = {"bf16", "int16", "int8"};
    toy                      t;
    toy_spec                 spec = plain;
    spec.experts = 4, spec.experts_used = 2;
    toy_make(&t, &spec, 1);
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++) {
        fletch_error error = {0};
        cr_assert_null(toy_open_as(&t, rounded[i], 1, "auto", 4, 64, &error));
        cr_assert_eq(error.code, FLETCH_EUNSUPPORTED);
        cr_assert(strstr(error.message, "other experts"), "%s", error.message);
    }
    toy_free(&t);
}

static int note_precision(void *user, const char *name, const char *value, const char *origin) {
    if (strcmp(name, "cpu.precision") == 0)
        snprintf(user, 256, "%s: %s", value, origin);
    return 0;
}

/* What "fast" took, and why; false: this machine lacks the instruction set. */
static bool fast_takes(const toy_spec *spec, const char *isa, char told[256]) {
    toy          t;
    fletch_error error = {0};
    toy_make(&t, spec, 1);
    fl_engine *engine = toy_open_as(&t, "fast", 1, isa, 4, 64, &error);
    cr_assert(engine || strstr(error.message, isa), "fast is never refused: %s", error.message);
    if (engine)
        fl_engine_find("cpu")->describe(engine, note_precision, told);
    fl_engine_find("cpu")->close(engine);
    toy_free(&t);
    return engine != NULL;
}

Test(engine, fast_takes_what_gains_where_its_gates_allow_it) {
    static const struct {
        const char *isa, *taken;
    } all[]          = {{"ref", "fp32"},    {"neon", "fp32"},        {"neondot", "fp32"},
                        {"neonmm", "fp32"}, {"avx2", "int16"},       {"avxvnni", "int16"},
                        {"avx512", "fp32"}, {"avx512vnni", "int16"}, {"avx512bf16", "int16"},
                        {"amx", "int16"}};
    toy_spec experts = plain;
    experts.experts = 4, experts.experts_used = 2;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char told[256] = "", want[32];
        if (!fast_takes(&plain, all[i].isa, told))
            continue;
        snprintf(want, sizeof want, "%s: fast: ", all[i].taken);
        cr_expect(strncmp(told, want, strlen(want)) == 0, "%s: %s", all[i].isa, told);
        cr_expect(strstr(told, all[i].isa), "the reason names the kernels: %s", told);
        fast_takes(&decoder, all[i].isa, told);
        cr_expect(strncmp(told, want, strlen(want)) == 0, "%s, decoder: %s", all[i].isa, told);
        fast_takes(&experts, all[i].isa, told);
        cr_expect(strncmp(told, "fp32: fast: ", 12) == 0, "%s, experts: %s", all[i].isa, told);
    }
}

Test(engine, a_weight_that_is_not_a_number_names_the_text_and_never_passes) {
    toy          t;
    fletch_error error = {0};
    toy_make(&t, &plain, 3);
    float nan_value = NAN; /* in the word table's row 9: only texts with id 9 suffer */
    memcpy((unsigned char *)(uintptr_t)t.encoder.global[FL_SLOT_WORD].data + 9 * plain.hidden * 4,
           &nan_value, 4);
    static const char *const ways[][2] = {{"auto", "fp32"}, {"ref", "fp32"},   {"auto", "int8"},
                                          {"ref", "int8"},  {"auto", "int16"}, {"ref", "int16"},
                                          {"auto", "bf16"}, {"ref", "bf16"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        fl_engine *engine = toy_open_as(&t, ways[i][1], 2, ways[i][0], 4, 64, &error);
        int32_t    ids[]  = {1, 2, 3, 4, 9, 5, 6, 9};
        uint32_t   cu[]   = {0, 3, 6, 8};
        float      out[3 * 48];
        float     *rows[] = {out, out + 48, out + 96};
        fl_batch   batch  = {.ids = ids, .cu = cu, .texts = 3, .tokens = 8, .rows = rows};
        cr_assert_eq(fl_engine_find("cpu")->forward(engine, 0, &batch, &error), FLETCH_EMODEL);
        cr_assert_eq(error.where, 1);
        batch.texts = 1, batch.tokens = 3;
        cr_assert_eq(fl_engine_find("cpu")->forward(engine, 0, &batch, &error), 0);
        fl_engine_find("cpu")->close(engine);
    }
    toy_free(&t);
}

static void open_with_failures(const char *precision) {
    toy t;
    toy_make(&t, &plain, 5);
    bool opened = false;
    for (uint64_t n = 1; !opened && n < 40; n++) {
        fletch_error error = {0};
        fl_alloc_fail_after(n);
        fl_engine *engine = toy_open_as(&t, precision, 2, "auto", 4, 64, &error);
        fl_alloc_fail_after(0);
        opened = engine != NULL;
        cr_assert(opened || error.code == FLETCH_ENOMEM, "%s", error.message);
        fl_engine_find("cpu")->close(engine);
    }
    cr_assert(opened);
    toy_free(&t);
}

Test(engine, registry_knows_cpu) {
    cr_assert_eq(fl_engine_find("cpu"), fl_engine_at(0));
    cr_assert_null(fl_engine_find("abacus"));
    cr_assert_eq(fl_engine_find("cpu")->abi, FL_ENGINE_ABI);
}

Test(engine, open_survives_every_failed_allocation) {
    open_with_failures("fp32");
    open_with_failures("int8");
    open_with_failures("int16");
    open_with_failures("bf16");
}

/* ---- Narrow formats -------------------------------------------------------------------------- */

static void cosines(const toy *t, const char *isa, const char *precision, double *least) {
    enum { N = 40, WIDTH = 96 };
    fletch_error error  = {0};
    fl_engine   *exact  = toy_open_as(t, "fp32", 1, isa, 1, 64, &error);
    fl_engine   *narrow = toy_open_as(t, precision, 2, isa, 1, 64, &error);
    float        a[WIDTH], b[WIDTH], *row_a[] = {a}, *row_b[] = {b};
    int32_t      ids[N];
    uint64_t     state = 99;
    cr_assert(exact && narrow, "%s", error.message);
    *least = 1.0;
    for (uint32_t n = 1; n <= N; n += 3) {
        uint32_t cu[] = {0, n};
        double   dot = 0.0, x = 0.0, y = 0.0;
        for (uint32_t i = 0; i < n; i++)
            ids[i] = (int32_t)toy_draw(&state, t->encoder.desc.vocab);
        fl_batch batch = {.ids = ids, .cu = cu, .texts = 1, .tokens = n, .rows = row_a};
        cr_assert_eq(fl_engine_find("cpu")->forward(exact, 0, &batch, &error), 0);
        batch.rows = row_b;
        cr_assert_eq(fl_engine_find("cpu")->forward(narrow, 0, &batch, &error), 0);
        for (uint32_t i = 0; i < fl_encoder_width(&t->encoder); i++) {
            dot += (double)a[i] * (double)b[i];
            x += (double)a[i] * (double)a[i];
            y += (double)b[i] * (double)b[i];
        }
        *least = fmin(*least, dot / sqrt(x * y));
    }
    fl_engine_find("cpu")->close(exact);
    fl_engine_find("cpu")->close(narrow);
}

/* Odd widths, several chunks of the middle, and a channel forty times as large as the others, as
 * trained models have them: the vectors stay those of fp32. Random weights are the hardest case;
 * real models are judged in tests/golden/test_precision.py. */
static void check_narrow(toy_spec spec) {
    static const struct {
        const char *isa, *precision;
        double      least;
    } ways[] = {{"auto", "int8", 0.98},    {"ref", "int8", 0.98},   {"auto", "int16", 0.99995},
                {"ref", "int16", 0.99995}, {"auto", "bf16", 0.999}, {"ref", "bf16", 0.999}};
    toy    t;
    double least;
    spec.mlp    = 800;
    spec.layers = 2;
    toy_make(&t, &spec, 21);
    float large; /* the toy's weights lie unaligned, as those of files may */
    char *norm = (char *)(uintptr_t)t.encoder.layer[0][FL_LAYER_MLP_NORM_W].data;
    memcpy(&large, norm + 5 * sizeof large, sizeof large);
    large *= 40.0f;
    memcpy(norm + 5 * sizeof large, &large, sizeof large);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        cosines(&t, ways[i].isa, ways[i].precision, &least);
        cr_assert(least >= ways[i].least, "%s, %s: cosine %.9f", ways[i].isa, ways[i].precision,
                  least);
        /* the toy's weights are bfloat16 already: where they are widened nothing is lost */
        cr_assert(least < 1.0 - 1e-12 || strcmp(ways[i].precision, "bf16") == 0,
                  "%s: is it %s at all?", ways[i].isa, ways[i].precision);
    }
    toy_free(&t);
}

Test(engine, narrow_formats_give_nearly_the_vectors_of_fp32) {
    check_narrow(plain);
    check_narrow(decoder);
}
