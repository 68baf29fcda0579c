/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_engine.c - the CUDA engine on simulated devices: the same vectors as the CPU engine's,
 * whatever the batch, the stream or the device.
 *
 * Tolerances: fp32 adds up the same terms in another order than the CPU engine, 1e-5 hides no wrong
 * term; 16-bit, int8 and fp8 are held to the cosines that the project promises. test_cuda_memory.c and
 * test_cuda_faults.c have the rest. */
#include <pthread.h>
#include <unistd.h>

#include "toy_cuda.h"

/* Twice: launched singly, and as a graph; never by a text that was run again in fp32. */
static void compare(const fl_encoder *encoder, const setup *s, const uint32_t *lengths,
                    uint32_t texts, double least_cosine, double most_difference) {
    batch    mine, want;
    uint32_t width = fl_encoder_width(encoder);
    opened   o     = open_well(encoder, s);
    uint64_t again = fp32_retries;
    for (int round = 0; round < 2; round++) {
        make_batch(&mine, encoder, lengths, texts, 11);
        mine.b.pool_skip = round == 1 ? mine.skip : NULL;
        mine.b.segment   = round == 1 && encoder->desc.segments ? mine.segment : NULL;
        run_cpu(encoder, &mine, &want);
        cr_assert_eq(o.ops->forward(o.engine, 0, &mine.b, &o.error), FLETCH_OK, "%s",
                     o.error.message);
        for (uint32_t i = 0; i < texts; i++) {
            double c = cosine(mine.rows[i], want.rows[i], width);
            double d = largest_difference(mine.rows[i], want.rows[i], width);
            cr_assert(c >= least_cosine && d <= most_difference,
                      "%s, round %d, text of %u tokens: cosine %.7f, difference %.2e", s->precision,
                      round, lengths[i], c, d);
        }
        free_batch(&mine);
        free_batch(&want);
    }
    cr_assert_eq(fp32_retries, again, "%s: not finite", s->precision);
    shut(&o);
}

static void compare_models(const char *precision, double least_cosine, double most_difference) {
    toy   t;
    setup s     = usual;
    s.precision = precision;
    toy_make(&t, &bert, 3);
    compare(&t.encoder, &s, some, SOME, least_cosine, most_difference);
    toy_free(&t);
    toy_make(&t, &mpnet, 5);
    t.encoder.desc.position_skips_pad = true;
    t.encoder.desc.pad_token          = 1;
    compare(&t.encoder, &s, some, SOME, least_cosine, most_difference);
    toy_free(&t);
}

Test(cuda, float32_is_the_cpu_engines) {
    compare_models("fp32", 0.999999, 1e-5);
}

Test(cuda, half_and_brain) {
    compare_models("fp16", 0.9995, 0.1);
    compare_models("bf16", 0.9995, 0.5);
}

Test(cuda, int8) {
    compare_models("int8", 0.995, 2.0);
}

/* Sizes that are multiples of 16, and layers of both types. */
static toy_spec for_fp8(const toy_spec *like) {
    toy_spec spec = *like;
    spec.layers   = 4;
    spec.hidden   = (like->hidden + 15) / 16 * 16;
    spec.mlp      = (like->mlp + 15) / 16 * 16;
    return spec;
}

Test(cuda, fp8) {
    const toy_spec *shapes[] = {&bert, &mpnet};
    toy             t;
    setup           s = usual;
    s.precision       = "fp8";
    for (int i = 0; i < 2; i++) {
        toy_spec spec = for_fp8(shapes[i]);
        toy_make(&t, &spec, 3);
        setenv("SIM_CUDA_CAPABILITY", i == 0 ? "8.9" : "9.0", 1);
        compare(&t.encoder, &s, some, SOME, 0.995, 2.0);
        toy_free(&t);
    }
    cr_assert_gt(sim_e4m3_runs(true), 0UL);
    cr_assert_eq(sim_e4m3_runs(false), 0UL, "sums of e4m3 that are not fast");
}

/* A norm or a matrix of zeros has no largest value to be scaled by; what the product reads must be
 * numbers all the same. */
Test(cuda, fp8_of_zeros) {
    static const int zeros[][2] = {{FL_LAYER_ATTENTION_NORM_W, FL_LAYER_ATTENTION_NORM_B},
                                   {FL_LAYER_UP_W, FL_LAYER_UP_B}};
    setup            s          = usual;
    s.precision                 = "fp8";
    for (int i = 0; i < 2; i++) {
        toy      t;
        toy_spec spec = for_fp8(&bert);
        toy_make(&t, &spec, 3);
        for (int k = 0; k < 2; k++) {
            const fl_tensor *zero = &t.encoder.layer[0][zeros[i][k]];
            memset((void *)(uintptr_t)zero->data, 0, zero->bytes);
        }
        compare(&t.encoder, &s, some, SOME, 0.995, 2.0);
        toy_free(&t);
    }
}

static void compare_activation(fl_activation activation, const char *precision, double least) {
    static const uint32_t short_ones[] = {3, 17, 6};
    toy                   t;
    setup                 s    = usual;
    toy_spec              spec = bert;
    spec.activation            = activation;
    s.precision                = precision;
    toy_make(&t, &spec, 4);
    compare(&t.encoder, &s, short_ones, 3, least, strcmp(precision, "fp32") == 0 ? 1e-5 : 2.0);
    toy_free(&t);
}

Test(cuda, every_activation) {
    for (int a = FL_ACT_GELU_ERF; a <= FL_ACT_RELU; a++) {
        compare_activation((fl_activation)a, "fp32", 0.999999);
        compare_activation((fl_activation)a, "fp16", 0.9995);
        compare_activation((fl_activation)a, "int8", 0.995);
        compare_activation((fl_activation)a, "fp8", 0.995);
    }
}

/* A library without algorithms that activate: fl_bias_act does, and the bias is added once. */
Test(cuda, activation_apart_from_its_product) {
    setenv("SIM_CUBLASLT_NO_ACTIVATION", "1", 1);
    for (int a = FL_ACT_GELU_ERF; a <= FL_ACT_RELU; a++) {
        compare_activation((fl_activation)a, "fp32", 0.999999);
        compare_activation((fl_activation)a, "bf16", 0.9995);
        compare_activation((fl_activation)a, "fp8", 0.995);
    }
}

/* ---- Families --------------------------------------------------------------------------------- */

/* One of each kind; the switches are those of the model that it is named after. */
#define SIZES(dim)                                                                                 \
    .layers = 3, .hidden = 64, .heads = 4, .head_dim = dim, .mlp = 80, .vocab = 50,                \
    .positions = 140, .pooling = {FL_POOL_MEAN}, .pooling_count = 1
static const toy_spec families[] = {
    {SIZES(32), .glu = FL_MLP_GLU, .activation = FL_ACT_SILU, .rope_dims = 32, .theta = 1000.0,
     .no_positions = true, .no_bias = true, .type = true}, /* NomicBERT */
    {SIZES(32), .glu = FL_MLP_GLU, .rope_dims = 32, .theta = 500000.0,
     .no_positions = true}, /* GTE */
    {SIZES(64), .place = FL_NORM_PRE, .final_norm = true, .skips_first = true, .no_bias = true,
     .glu = FL_MLP_GLU, .rope_dims = 64, .theta = 10000.0, .no_positions = true, .window = 9,
     .alternate = true}, /* ModernBERT */
    {SIZES(128), .norm = FL_NORM_RMS, .place = FL_NORM_PRE, .final_norm = true, .kv_heads = 2,
     .qk_norm = FL_QK_NORM_HEAD, .causal = true, .no_bias = true, .glu = FL_MLP_GLU,
     .bare_embeddings = true, .activation = FL_ACT_SILU, .rope_dims = 128, .theta = 1e6,
     .no_positions = true}, /* Qwen3 */
    {SIZES(32), .norm = FL_NORM_RMS, .place = FL_NORM_PRE, .final_norm = true, .kv_heads = 1,
     .causal = true, .window = 100, .glu = FL_MLP_GLU, .bare_embeddings = true, .rope_dims = 16,
     .no_positions = true, .theta = 10000.0, .activation = FL_ACT_SILU}, /* Mistral */
    {SIZES(32), .norm = FL_NORM_RMS_PLUS_ONE, .place = FL_NORM_PRE, .final_norm = true,
     .bare_embeddings = true, .qk_norm = FL_QK_NORM_HEAD, .window = 5}, /* Gemma's norms */
    {SIZES(32), .alibi = true, .glu = FL_MLP_GLU, .no_positions = true,
     .type = true},                              /* JinaBERT */
    {SIZES(32), .type = true, .segments = true}, /* BERT for pairs */
};

static void compare_family(const toy_spec *spec, const char *precision, double cosine,
                           double difference) {
    toy   t;
    setup s     = usual;
    s.precision = precision;
    toy_make(&t, spec, 3);
    compare(&t.encoder, &s, some, SOME, cosine, difference);
    toy_free(&t);
}

Test(cuda, every_kind_of_family) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        compare_family(&families[i], "fp32", 0.999999, 2e-5);
        compare_family(&families[i], i % 2 ? "fp16" : "bf16", 0.9995, 2.0);
        bool pre = families[i].place == FL_NORM_PRE;
        compare_family(&families[i], i % 2 || pre ? "int8" : "fp8", 0.99, 4.0);
    }
}

/* Any switch with any other that the engine has; sizes are multiples of `step`. */
static toy_spec random_switches(uint64_t *state, uint32_t step) {
    static const uint32_t dims[] = {32, 64, 128};
    toy_spec              s      = {.layers        = 1 + toy_draw(state, 3),
                                    .hidden        = step * (1 + toy_draw(state, 96 / step)),
                                    .head_dim      = dims[toy_draw(state, 3)],
                                    .mlp           = step * (1 + toy_draw(state, 160 / step)),
                                    .vocab         = 40,
                                    .positions     = 90,
                                    .pooling       = {(fl_pooling)toy_draw(state, FL_POOL_COUNT)},
                                    .pooling_count = 1,
                                    .kv_heads      = 1 + toy_draw(state, 2),
                                    .type          = toy_draw(state, 2),
                                    .activation    = toy_draw(state, FL_ACT_RELU + 1),
                                    .norm          = (fl_norm)toy_draw(state, 3),
                                    .place         = (fl_norm_place)toy_draw(state, 2),
                                    .glu           = (fl_mlp)toy_draw(state, 2),
                                    .no_bias       = toy_draw(state, 2),
                                    .no_positions  = toy_draw(state, 2),
                                    .causal        = toy_draw(state, 3) == 0,
                                    .theta         = 10000.0};
    uint32_t              bias   = toy_draw(state, 4);
    s.heads                      = s.kv_heads * (1 + toy_draw(state, 3));
    s.segments                   = s.type && toy_draw(state, 2);
    s.t5                         = bias == 0;
    s.alibi                      = bias == 1;
    s.qk_norm                    = toy_draw(state, 2) ? FL_QK_NORM_HEAD : FL_QK_NORM_NONE;
    s.final_norm                 = s.place == FL_NORM_PRE;
    s.bare_embeddings            = toy_draw(state, 2);
    s.skips_first                = s.place == FL_NORM_PRE && toy_draw(state, 2);
    s.rope_dims                  = toy_draw(state, 2) ? s.head_dim >> toy_draw(state, 2) : 0;
    s.window                     = toy_draw(state, 2) ? 1 + toy_draw(state, 70) : 0;
    s.alternate                  = !s.t5 && toy_draw(state, 2);
    return s;
}

Test(cuda, random_switches) {
    static const uint32_t lengths[] = {1, 17, 66, 40};
    uint64_t              state     = 20261123;
    for (int i = 0; i < toy_rounds(6, 12); i++) {
        toy      t;
        toy_spec s = random_switches(&state, 8);
        toy_make(&t, &s, 5 + (uint64_t)i);
        compare(&t.encoder, &usual, lengths, 4, 0.999999, 3e-5);
        toy_free(&t);
    }
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

/* Texts of one to 65 tokens in batches of every size and order: the row of a length is always the
 * same. The simulated cublasLt sums in another order for other numbers of rows, so this fails when
 * the algorithm is not fixed. */
static void same_bytes(const char *precision) {
    static const uint32_t alone[] = {17}, few[] = {5, 17, 30, 65},
                          many[] = {65, 9, 40, 17, 3, 64, 33, 12, 17};
    static const struct {
        const uint32_t *lengths;
        uint32_t        texts, at;
    } mixes[] = {{alone, 1, 0}, {few, 4, 1}, {many, 9, 3}, {many, 9, 8}};
    toy    t;
    batch  m;
    float *first = NULL;
    toy_make(&t, &bert, 3);
    uint32_t width   = fl_encoder_width(&t.encoder);
    setup    s       = usual;
    s.precision      = precision;
    s.deterministic  = true;
    opened         o = open_well(&t.encoder, &s);
    fl_engine_info info;
    o.ops->info(o.engine, &info);
    cr_assert(info.deterministic);
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes * 2; i++) {
        size_t k = i % (sizeof mixes / sizeof *mixes); /* again, from graphs */
        make_batch(&m, &t.encoder, mixes[k].lengths, mixes[k].texts, 23);
        cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_OK, "%s", o.error.message);
        if (first == NULL) {
            first = malloc(width * sizeof *first);
            memcpy(first, m.rows[mixes[k].at], width * sizeof *first);
        }
        cr_assert_eq(memcmp(first, m.rows[mixes[k].at], width * sizeof *first), 0,
                     "%s: a text's row depends on its batch (mix %zu)", precision, k);
        free_batch(&m);
    }
    free(first);
    shut(&o);
    toy_free(&t);
}

Test(cuda, deterministic_rows_do_not_know_their_batch) {
    same_bytes("fp32");
    same_bytes("bf16");
    same_bytes("int8");
    same_bytes("fp8");
}

/* One text alone, and among as many as fill the largest batch. */
Test(cuda, deterministic_rows_of_a_full_batch) {
    enum { LENGTH = 32 };
    static const uint32_t alone[] = {LENGTH};
    uint32_t              lengths[TEXTS_MOST];
    toy                   t;
    batch                 m, n;
    setup                 s = usual;
    for (int i = 0; i < TEXTS_MOST; i++)
        lengths[i] = LENGTH;
    s.precision     = "bf16";
    s.deterministic = true;
    toy_make(&t, &bert, 3);
    opened o = open_well(&t.encoder, &s);
    make_batch(&m, &t.encoder, alone, 1, 23);
    make_batch(&n, &t.encoder, lengths, TEXTS_MOST, 23);
    cr_assert_eq(n.b.tokens, s.tokens);
    cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_OK);
    cr_assert_eq(o.ops->forward(o.engine, 0, &n.b, &o.error), FLETCH_OK);
    for (int i = 0; i < TEXTS_MOST; i++)
        cr_assert_arr_eq(m.rows[0], n.rows[i], bert.hidden * sizeof(float), "text %d", i);
    free_batch(&m);
    free_batch(&n);
    shut(&o);
    toy_free(&t);
}

/* ---- Algorithms ------------------------------------------------------------------------------- */

/* Large tiles that refuse few rows: deterministic mode takes smaller ones, and int8 opens too. */
Test(cuda, deterministic_where_large_algorithms_refuse_few_rows) {
    setenv("SIM_CUBLASLT_FUSSY", "1", 1);
    same_bytes("bf16");
    same_bytes("int8");
    same_bytes("fp8");
}

/* A size for which the library proposes nothing takes what runs at another. */
Test(cuda, a_batch_never_fails_for_want_of_one_algorithm) {
    static const uint32_t lengths[] = {40};
    toy                   t;
    setenv("SIM_CUBLASLT_NONE_AT", "48", 1); /* the tier of 40 tokens */
    toy_make(&t, &bert, 3);
    compare(&t.encoder, &usual, lengths, 1, 0.999999, 1e-5);
    toy_free(&t);
}

/* ---- Times of kernels ------------------------------------------------------------------------- */

static size_t count_of(const char *text, const char *word) {
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        count++;
    return count;
}

/* With a trace and without graphs every launch of a batch has its span, by name; with graphs none. */
static void expect_spans(const char *graphs, size_t norms, size_t products) {
    toy          t;
    batch        m;
    fletch_error error;
    fl_trace    *trace;
    setup        s      = usual;
    char         path[] = "/tmp/fletch-trace-XXXXXX", *text = calloc(1, 1 << 20);
    close(mkstemp(path));
    cr_assert_eq(fl_trace_open(&trace, path, true, &error), FLETCH_OK);
    s.graphs = graphs;
    s.trace  = trace;
    toy_make(&t, &bert, 3);
    opened o = open_well(&t.encoder, &s);
    make_batch(&m, &t.encoder, some, SOME, 8);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_OK, "%s", o.error.message);
    shut(&o);
    cr_assert_eq(fl_trace_close(trace, &error), FLETCH_OK);
    FILE *file = fopen(path, "r");
    cr_assert_gt(fread(text, 1, (1 << 20) - 1, file), 0U);
    fclose(file);
    remove(path);
    cr_assert_eq(count_of(text, "\"norm\""), norms, "%s", text);
    cr_assert_eq(count_of(text, "\"product down\""), products);
    free(text);
    free_batch(&m);
    toy_free(&t);
}

Test(cuda, a_trace_has_every_kernel) {
    expect_spans("false", 3 * 2 * 2, 3 * 2); /* batches, layers, two of them in a layer */
    expect_spans("true", 0, 0);
}

/* ---- Graphs ----------------------------------------------------------------------------------- */

Test(cuda, graphs_give_the_same_bytes) {
    toy   t;
    batch with[3], without;
    setup s     = usual;
    s.precision = "fp16";
    toy_make(&t, &mpnet, 3);
    size_t bytes = SOME * (size_t)(fl_encoder_width(&t.encoder) + 1) * sizeof(float);
    opened o     = open_well(&t.encoder, &s);
    for (int i = 0; i < 3; i++) {
        make_batch(&with[i], &t.encoder, some, SOME, 31);
        cr_assert_eq(o.ops->forward(o.engine, 0, &with[i].b, &o.error), FLETCH_OK);
    }
    shut(&o);
    s.graphs = "false";
    o        = open_well(&t.encoder, &s);
    make_batch(&without, &t.encoder, some, SOME, 31);
    cr_assert_eq(o.ops->forward(o.engine, 0, &without.b, &o.error), FLETCH_OK);
    shut(&o);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(memcmp(with[i].out, without.out, bytes), 0, "forward %d", i);
        free_batch(&with[i]);
    }
    free_batch(&without);
    toy_free(&t);
}

/* Batches of one tier with short texts, with long ones and with both: a graph is never used for texts
 * that its launches leave out. */
Test(cuda, a_graph_has_the_attention_that_its_texts_need) {
    static const uint32_t lengths[][4] = {{60, 7, 60, 3}, {130}, {66, 64}};
    static const uint32_t texts[]      = {4, 1, 2};
    enum { MIXES = sizeof texts / sizeof *texts };
    toy   t;
    setup s = usual;
    toy_make(&t, &bert, 3);
    uint32_t width  = fl_encoder_width(&t.encoder);
    opened   graphs = open_well(&t.encoder, &s);
    for (int turn = 0; turn < 3 * MIXES; turn++) { /* singly, captured, launched */
        batch m, alone;
        int   i = turn % MIXES;
        make_batch(&m, &t.encoder, lengths[i], texts[i], 41);
        cr_assert_eq(graphs.ops->forward(graphs.engine, 0, &m.b, &graphs.error), FLETCH_OK);
        setup plain  = usual;
        plain.graphs = "false";
        opened o     = open_well(&t.encoder, &plain);
        make_batch(&alone, &t.encoder, lengths[i], texts[i], 41);
        cr_assert_eq(o.ops->forward(o.engine, 0, &alone.b, &o.error), FLETCH_OK);
        for (uint32_t k = 0; k < texts[i]; k++)
            cr_assert_arr_eq(m.rows[k], alone.rows[k], width * sizeof(float), "turn %d text %u",
                             turn, k);
        o.ops->close(o.engine);
        fletch_config_free(o.config);
        free_batch(&m);
        free_batch(&alone);
    }
    shut(&graphs);
    toy_free(&t);
}

/* ---- Several at once ------------------------------------------------------------------------- */

enum { WORKERS = 3, TURNS = 5 };

typedef struct worker {
    const opened     *o;
    const fl_encoder *encoder;
    const float      *want; /* [SOME] rows for each of two batches */
    uint32_t          slot;
    unsigned          wrong;
} worker;

static const uint32_t mixes_of[2][4] = {{9, 33, 65, 2}, {20, 7, 64, 12}};

static void *work(void *arg) {
    worker  *w     = arg;
    uint32_t width = fl_encoder_width(w->encoder);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        unsigned     which = (turn + w->slot) % 2;
        batch        m;
        fletch_error error;
        make_batch(&m, w->encoder, mixes_of[which], 4, 40 + which);
        w->wrong += w->o->ops->forward(w->o->engine, w->slot, &m.b, &error) != FLETCH_OK;
        for (uint32_t i = 0; i < 4; i++)
            w->wrong += memcmp(m.rows[i], w->want + (which * 4 + i) * (size_t)width,
                               width * sizeof(float)) != 0;
        free_batch(&m);
    }
    return NULL;
}

static void run_slots(const char *transfer) {
    toy       t;
    batch     m;
    pthread_t threads[WORKERS];
    worker    workers[WORKERS];
    setup     s     = usual;
    s.streams       = "3";
    s.transfer      = transfer;
    s.deterministic = true;
    toy_make(&t, &bert, 3);
    uint32_t width = fl_encoder_width(&t.encoder);
    float   *want  = malloc(8 * width * sizeof *want);
    opened   o     = open_well(&t.encoder, &s);
    for (unsigned which = 0; which < 2; which++) {
        make_batch(&m, &t.encoder, mixes_of[which], 4, 40 + which);
        cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_OK);
        for (uint32_t i = 0; i < 4; i++)
            memcpy(want + (which * 4 + i) * width, m.rows[i], width * sizeof *want);
        free_batch(&m);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i] = (worker){&o, &t.encoder, want, i, 0};
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_eq(workers[i].wrong, 0U, "slot %u: %u wrong", i, workers[i].wrong);
    }
    shut(&o);
    free(want);
    toy_free(&t);
}

Test(cuda, slots_in_flight_from_several_threads) {
    run_slots("true");
    run_slots("false");
}

Test(cuda, two_devices) {
    toy               t;
    batch             m, n;
    fl_probe          probe;
    fl_engine_options options = {.provider = "cuda"};
    setup             s       = usual;
    setenv("SIM_CUDA_DEVICES", "2", 1);
    toy_make(&t, &bert, 3);
    opened first   = open_well(&t.encoder, &s);
    s.device       = 1;
    opened second  = open_well(&t.encoder, &s);
    options.config = first.config;
    cr_assert_eq(first.ops->devices(&options), 2U);
    first.ops->probe(&options, &probe);
    cr_assert(probe.usable && strstr(probe.reason, "2 devices: Simulated GPU 0") != NULL, "%s",
              probe.reason);
    cr_assert_gt(sim_used(0), 0U);
    cr_assert_eq(sim_used(0), sim_used(1));
    make_batch(&m, &t.encoder, some, 3, 8);
    make_batch(&n, &t.encoder, some, 3, 8);
    cr_assert_eq(first.ops->forward(first.engine, 0, &m.b, &first.error), FLETCH_OK);
    cr_assert_eq(second.ops->forward(second.engine, 0, &n.b, &second.error), FLETCH_OK);
    cr_assert_eq(memcmp(m.rows[2], n.rows[2], bert.hidden * sizeof(float)), 0);
    s.device     = 2;
    opened third = open_cuda(&t.encoder, &s);
    cr_assert_eq(third.status, FLETCH_EPROVIDER);
    fletch_config_free(third.config);
    first.ops->close(first.engine);
    fletch_config_free(first.config);
    shut(&second);
    free_batch(&m);
    free_batch(&n);
    toy_free(&t);
}

/* ---- What is refused, what is told ----------------------------------------------------------- */

static void refuse(const toy *t, const setup *s, int status, const char *words) {
    opened o = open_cuda(&t->encoder, s);
    cr_assert_eq(o.status, status, "%d: %s", o.status, o.error.message);
    cr_assert_not_null(strstr(o.error.message, words), "%s", o.error.message);
    shut(&o);
}

Test(cuda, refuses_with_a_reason) {
    toy      t;
    toy_spec odd = bert;
    setup    s   = usual;
    toy_make(&t, &bert, 3);
    s.precision = "int16";
    refuse(&t, &s, FLETCH_EPROVIDER, "fp32, fp16, bf16, int8 and fp8");
    s.precision = "fp8";
    setenv("SIM_CUDA_CAPABILITY", "8.6", 1);
    refuse(&t, &s, FLETCH_EPROVIDER, "provider.precision fp8: Simulated GPU 0 has compute");
    setenv("SIM_CUDA_CAPABILITY", "8.9", 1);
    t.encoder.desc.intermediate -= 8;
    refuse(&t, &s, FLETCH_EPROVIDER, "64 and 120, must be multiples of 16");
    t.encoder.desc.intermediate += 8;
    setenv("SIM_CUDA_CAPABILITY", "7.5", 1);
    s.precision = "bf16";
    refuse(&t, &s, FLETCH_EPROVIDER, "compute capability 7.5");
    setenv("SIM_CUDA_CAPABILITY", "7.0", 1);
    refuse(&t, &usual, FLETCH_EPROVIDER, "7.5 (Turing) or newer");
    setenv("SIM_CUDA_DRIVER", "11040", 1);
    refuse(&t, &usual, FLETCH_EPROVIDER, "CUDA driver 11.4 is older than 12.0");
    setenv("SIM_CUDA_DRIVER", "12020", 1);
    setenv("SIM_CUDA_DEVICES", "0", 1);
    refuse(&t, &usual, FLETCH_EPROVIDER, "CUDA_ERROR_NO_DEVICE");
    toy_free(&t);
    toy_make(&t, &families[2], 3);
    s.precision = "fp8";
    setenv("SIM_CUDA_DEVICES", "1", 1);
    setenv("SIM_CUDA_CAPABILITY", "9.0", 1);
    refuse(&t, &s, FLETCH_EPROVIDER, "provider.precision fp8: pre-norm models");
    toy_free(&t);
    odd.head_dim = 16;
    toy_make(&t, &odd, 3);
    refuse(&t, &usual, FLETCH_EPROVIDER, "heads of size");
    t.encoder.desc.head_dim = 32; /* more than the tensors hold */
    t.encoder.layer[1][FL_LAYER_Q_W].bytes -= 4;
    refuse(&t, &usual, FLETCH_EMODEL, "query");
    toy_free(&t);
}

static void auto_is(const toy *t, const char *capability, const char *precision) {
    static const char *const asked[] = {"auto", "fast"};
    setenv("SIM_CUDA_CAPABILITY", capability, 1);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        fl_engine_info info;
        setup          s = usual;
        s.precision      = asked[i];
        opened o         = open_well(&t->encoder, &s);
        o.ops->info(o.engine, &info);
        cr_assert_str_eq(info.precision, precision);
        shut(&o);
    }
}

Test(cuda, auto_follows_the_device) {
    toy t;
    toy_make(&t, &bert, 3);
    auto_is(&t, "7.5", "fp16");
    auto_is(&t, "8.6", "bf16");
    auto_is(&t, "8.9", "bf16");
    auto_is(&t, "10.0", "bf16");
    toy_free(&t);
}

Test(cuda, warms_up_and_describes_itself) {
    toy   t;
    char  text[2048] = "";
    setup s          = usual;
    s.streams        = "2";
    s.tokens         = 128;
    toy_make(&t, &bert, 3);
    opened o = open_well(&t.encoder, &s);
    cr_assert_eq(o.ops->warm(o.engine, &o.error), FLETCH_OK, "%s", o.error.message);
    cr_assert_eq(o.ops->describe(o.engine, gather, text), 0);
    cr_assert_not_null(strstr(text, "cuda.device=Simulated GPU 0, compute capability 9.0"), "%s",
                       text);
    cr_assert_not_null(strstr(text, "cuda.graphs=8"),
                       "short texts of three sizes and a long one, on two streams: %s", text);
    cr_assert_not_null(strstr(text, "cuda.utilisation=42"), "%s", text);
    shut(&o);
    toy_free(&t);
}
