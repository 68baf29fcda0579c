/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_engine.c - the CUDA engine on simulated devices: the same vectors as the CPU engine's,
 * whatever the batch, the stream or the fault.
 *
 * The module is opened as the product opens it, by the loader; driver, cublasLt and NVML are those
 * of tests/cuda/sim, which this program is linked to. The kernels are the product's own, compiled
 * for the host. Each test is a process of its own (Criterion forks), and so is its device.
 * Tolerances: fp32 adds up the same terms in another order than the CPU engine, 1e-5 hides no wrong
 * term; 16-bit and int8 are held to the cosines that the project promises. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>

#include "base/mem.h"
#include "sim/driver.h"
#include "unit/engine_toy.h"

static const toy_spec bert = {.layers        = 2,
                              .hidden        = 64,
                              .heads         = 2,
                              .head_dim      = 32,
                              .mlp           = 128,
                              .vocab         = 50,
                              .positions     = 140,
                              .type          = true,
                              .pooling       = {FL_POOL_MEAN},
                              .pooling_count = 1};

static const toy_spec mpnet = {.layers        = 2,
                               .hidden        = 136,
                               .heads         = 2,
                               .head_dim      = 64,
                               .mlp           = 200,
                               .vocab         = 60,
                               .positions     = 150,
                               .offset        = 2,
                               .t5            = true,
                               .dtype         = FL_DTYPE_BF16,
                               .pooling       = {FL_POOL_CLS, FL_POOL_MEAN, FL_POOL_MAX},
                               .pooling_count = 3};

/* ---- Opening --------------------------------------------------------------------------------- */

typedef struct setup {
    const char *precision, *streams, *graphs, *transfer;
    bool        deterministic;
    uint32_t    tokens, texts, device;
    uint64_t    limit;
    bool        singly; /* cuda.memory_pool false */
} setup;

static const setup usual = {"fp32", "1", "true", "true", false, 2048, 64, 0, 0, false};

typedef struct opened {
    fletch_config       *config;
    const fl_engine_ops *ops;
    fl_engine           *engine;
    int                  status;
    fletch_error         error;
} opened;

static void set(fletch_config *config, const char *key, const char *value) {
    fletch_error error;
    cr_assert_eq(fletch_config_set(config, key, value, &error), FLETCH_OK, "%s", error.message);
}

static char last_log[512];

static void keep_log(void *user, int level, const char *message) {
    (void)user, (void)level;
    snprintf(last_log, sizeof last_log, "%s", message);
}

static opened open_cuda(const fl_encoder *encoder, const setup *s) {
    opened o = {.ops = fl_engine_find("cuda"), .config = fletch_config_new()};
    fletch_config_set_log(o.config, keep_log, NULL);
    set(o.config, "cuda.module", getenv("FLETCH_CUDA_MODULE"));
    set(o.config, "cuda.streams", s->streams);
    set(o.config, "cuda.graphs", s->graphs);
    set(o.config, "cuda.transfer_stream", s->transfer);
    set(o.config, "cuda.memory_pool", s->singly ? "false" : "true");
    fl_engine_options options = {.provider      = "cuda",
                                 .device        = s->device,
                                 .threads       = 2,
                                 .batch_tokens  = s->tokens,
                                 .batch_texts   = s->texts,
                                 .precision     = s->precision,
                                 .deterministic = s->deterministic,
                                 .memory_limit  = s->limit,
                                 .config        = o.config,
                                 .log           = fl_config_log(o.config)};
    o.status                  = o.ops->open(&o.engine, encoder, &options, &o.error);
    return o;
}

static opened open_well(const fl_encoder *encoder, const setup *s) {
    opened o = open_cuda(encoder, s);
    cr_assert_eq(o.status, FLETCH_OK, "%s", o.error.message);
    return o;
}

static void shut(opened *o) {
    o->ops->close(o->engine);
    fletch_config_free(o->config);
    cr_assert_eq(sim_objects(), 0UL, "%lu objects of the driver are left", sim_objects());
    cr_assert_eq(sim_used(0), 0UL);
}

/* ---- Batches --------------------------------------------------------------------------------- */

enum { TEXTS_MOST = 64 };

typedef struct batch {
    int32_t *ids;
    uint32_t cu[TEXTS_MOST + 1], skip[TEXTS_MOST];
    float   *out, *rows[TEXTS_MOST];
    fl_batch b;
} batch;

/* Text i has ids that depend on its length and `seed` alone. */
static void make_batch(batch *m, const fl_encoder *encoder, const uint32_t *lengths, uint32_t texts,
                       uint64_t seed) {
    uint32_t width = fl_encoder_width(encoder);
    m->cu[0]       = 0;
    for (uint32_t i = 0; i < texts; i++)
        m->cu[i + 1] = m->cu[i] + lengths[i];
    m->ids = malloc(m->cu[texts] * sizeof *m->ids);
    m->out = calloc(texts * (size_t)(width + 1), sizeof *m->out); /* rows need not be dense */
    for (uint32_t i = 0; i < texts; i++) {
        uint64_t state = seed * 1000003 + lengths[i] * 7919 + 1;
        for (uint32_t t = m->cu[i]; t < m->cu[i + 1]; t++)
            m->ids[t] = (int32_t)toy_draw(&state, encoder->desc.vocab);
        m->rows[i] = m->out + i * (size_t)(width + 1);
        m->skip[i] = lengths[i] > 5 ? i % 3 : 0;
    }
    m->b = (fl_batch){
        .ids = m->ids, .cu = m->cu, .texts = texts, .tokens = m->cu[texts], .rows = m->rows};
}

static void free_batch(batch *m) {
    free(m->ids);
    free(m->out);
}

static const uint32_t some[] = {1, 17, 3, 64, 65, 33, 6, 129};
enum { SOME = sizeof some / sizeof *some };

static double cosine(const float *a, const float *b, uint32_t n) {
    double ab = 0.0, aa = 0.0, bb = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

static double largest_difference(const float *a, const float *b, uint32_t n) {
    double most = 0.0;
    for (uint32_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* The CPU engine's rows of the same batch. */
static void run_cpu(const fl_encoder *encoder, const batch *like, batch *out) {
    fletch_error error;
    uint32_t     lengths[TEXTS_MOST];
    toy          t      = {.encoder = *encoder};
    fl_engine   *engine = toy_open(&t, 1, "auto", TEXTS_MOST, encoder->desc.positions, &error);
    cr_assert_not_null(engine, "%s", error.message);
    for (uint32_t i = 0; i < like->b.texts; i++)
        lengths[i] = like->cu[i + 1] - like->cu[i];
    make_batch(out, encoder, lengths, like->b.texts, 0);
    memcpy(out->ids, like->ids, like->b.tokens * sizeof *like->ids);
    out->b.pool_skip = like->b.pool_skip ? out->skip : NULL;
    cr_assert_eq(fl_engine_find("cpu")->forward(engine, 0, &out->b, &error), FLETCH_OK, "%s",
                 error.message);
    fl_engine_find("cpu")->close(engine);
}

/* Twice: launched singly, and as a graph. */
static void compare(const fl_encoder *encoder, const setup *s, const uint32_t *lengths,
                    uint32_t texts, double least_cosine, double most_difference) {
    batch    mine, want;
    uint32_t width = fl_encoder_width(encoder);
    opened   o     = open_well(encoder, s);
    for (int round = 0; round < 2; round++) {
        make_batch(&mine, encoder, lengths, texts, 11);
        mine.b.pool_skip = round == 1 ? mine.skip : NULL;
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
}

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

/* ---- Memory ---------------------------------------------------------------------------------- */

static void within_a_tenth(uint64_t told, uint64_t counted) {
    double off = fabs((double)told - (double)counted) / (double)counted;
    cr_assert(off <= 0.1, "told %llu, the driver counts %llu", (unsigned long long)told,
              (unsigned long long)counted);
}

/* Before anything runs, and after a batch of another size from every slot: nothing more was taken. */
static void check_prediction(const toy *t, const setup *s) {
    static const uint32_t texts[] = {3, 1, SOME};
    fl_engine_info        info;
    batch                 m;
    opened                o = open_well(&t->encoder, s);
    o.ops->info(o.engine, &info);
    within_a_tenth(info.resident_bytes, sim_used(0));
    for (uint32_t slot = 0; slot < info.slots; slot++) {
        make_batch(&m, &t->encoder, some, texts[slot], 8);
        cr_assert_eq(o.ops->forward(o.engine, slot, &m.b, &o.error), FLETCH_OK);
        within_a_tenth(info.resident_bytes + o.ops->memory(o.engine, m.b.texts, m.b.tokens, 129),
                       sim_used(0));
        free_batch(&m);
    }
    shut(&o);
}

Test(cuda, memory_is_told_within_a_tenth) {
    static const char *const precisions[] = {"fp32", "fp16", "bf16", "int8"};
    static const uint32_t    tokens[]     = {512, 4096, 16384};
    static toy_spec          wide;
    const toy_spec          *shapes[] = {&bert, &mpnet, &wide};
    wide                              = bert; /* weights count more than batches */
    wide.hidden                       = 384;
    wide.heads                        = 12;
    wide.mlp                          = 1536;
    for (unsigned i = 0; i < 3 * 4; i++) {
        toy   t;
        setup s     = usual;
        s.precision = precisions[i % 4];
        s.streams   = i % 2 ? "3" : "1";
        s.tokens    = tokens[(i + i / 4) % 3];
        s.singly    = i % 5 == 0;
        toy_make(&t, shapes[i / 4], 3);
        check_prediction(&t, &s);
        toy_free(&t);
    }
}

/* A limit makes the largest batch smaller, and a batch beyond it is to be split; a limit that not
 * even one text fits is refused. */
Test(cuda, memory_limit_shrinks_the_batch_or_refuses) {
    toy            t;
    fl_engine_info info;
    batch          m;
    setup          s = usual;
    toy_make(&t, &bert, 3);
    s.tokens     = 16384;
    opened   o   = open_well(&t.encoder, &s);
    uint64_t all = sim_used(0);
    o.ops->info(o.engine, &info);
    cr_assert_eq(info.best_tokens, 16384U);
    shut(&o);
    s.limit = all - all / 8;
    o       = open_well(&t.encoder, &s);
    o.ops->info(o.engine, &info);
    cr_assert(info.best_tokens < 16384 && info.best_tokens >= bert.positions, "%u",
              info.best_tokens);
    cr_assert_eq(info.most_tokens, info.best_tokens);
    cr_assert_not_null(strstr(last_log, "tokens instead of 16384"), "%s", last_log);
    cr_assert_not_null(strstr(last_log, "cuda.memory_limit"), "%s", last_log);
    cr_assert_leq(sim_used(0), s.limit);
    shut(&o);
    s.tokens = 100; /* less than the longest text: that one decides */
    s.limit  = 0;
    s.texts  = 2;
    o        = open_well(&t.encoder, &s);
    make_batch(&m, &t.encoder, some, 3, 8);
    cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_ENOMEM);
    free_batch(&m);
    shut(&o);
    s.limit = 1 << 20;
    o       = open_cuda(&t.encoder, &s);
    cr_assert_eq(o.status, FLETCH_ENOMEM);
    cr_assert_not_null(strstr(o.error.message, "cuda.memory_limit"), "%s", o.error.message);
    shut(&o);
    setenv("SIM_CUDA_MEMORY", "16000000", 1);
    o = open_cuda(&t.encoder, &s);
    cr_assert_eq(o.status, FLETCH_ENOMEM);
    shut(&o);
    toy_free(&t);
}

/* ---- The pool, and the host's buffers -------------------------------------------------------- */

static int gather(void *user, const char *name, const char *value, const char *comment) {
    char *text = user;
    (void)comment;
    snprintf(text + strlen(text), 2048 - strlen(text), "%s=%s\n", name, value);
    return 0;
}

static fl_device_load load_of(const opened *o) {
    fl_device_load load;
    o->ops->load(o->engine, &load);
    return load;
}

/* Two models on a device: what the first gives back serves the third, and the last gives all back. */
Test(cuda, models_of_a_process_share_a_pool) {
    toy   t;
    setup s = usual;
    toy_make(&t, &bert, 3);
    opened         first = open_well(&t.encoder, &s), second = open_well(&t.encoder, &s);
    fl_device_load both = load_of(&first);
    cr_assert_eq(both.pool_held, sim_used(0));
    cr_assert_leq(both.pool_used, both.pool_held);
    cr_assert_eq(both.pool_takes, 6U); /* weights, an arena and a workspace each */
    uint64_t used = both.pool_used;
    first.ops->close(first.engine);
    cr_assert_eq(load_of(&second).pool_held, sim_used(0));
    cr_assert_eq(load_of(&second).pool_used, used / 2);
    cr_assert_eq(load_of(&second).pool_peak, used);
    opened third = open_well(&t.encoder, &s);
    cr_assert_eq(load_of(&third).pool_hits, both.pool_hits + 3);
    cr_assert_eq(load_of(&third).pool_held, both.pool_held);
    third.ops->close(third.engine);
    fletch_config_free(first.config);
    fletch_config_free(third.config);
    shut(&second);
    toy_free(&t);
}

/* A pool that cannot be made, or is not wanted, costs nothing but its reuse. */
static void open_singly(const toy *t, const setup *s) {
    opened         o    = open_well(&t->encoder, s);
    fl_device_load load = load_of(&o);
    within_a_tenth(load.pool_used, sim_used(0));
    cr_assert_eq(load.pool_takes, 3U);
    cr_assert_eq(load.pool_hits, 0U);
    shut(&o);
}

Test(cuda, goes_without_a_pool) {
    toy   t;
    setup s = usual;
    toy_make(&t, &bert, 3);
    s.singly = true;
    open_singly(&t, &s);
    for (unsigned n = 1; n <= 2; n++) { /* making it, setting it up */
        sim_fault(SIM_POOL, n, CUDA_ERROR_NOT_SUPPORTED);
        open_singly(&t, &usual);
        cr_assert_not_null(strstr(last_log, "no memory pool"), "%s", last_log);
    }
    setenv("SIM_CUDA_POOLS", "0", 1);
    open_singly(&t, &usual);
    toy_free(&t);
}

enum { DIRECT_TEXTS = 48 }; /* of 408 values: enough for rows to come down by themselves */

static void point_rows(batch *m, float *to, uint32_t step) {
    for (uint32_t i = 0; i < m->b.texts; i++)
        m->rows[i] = to + i * (size_t)step;
}

static long direct_batches(const opened *o) {
    char        text[2048] = "";
    const char *at;
    o->ops->describe(o->engine, gather, text);
    at = strstr(text, "cuda.direct_batches=");
    return at != NULL ? strtol(at + strlen("cuda.direct_batches="), NULL, 10) : -1;
}

/* One forward into `to`; whether the device wrote there itself. The rows are `want` in any case. */
static bool went_directly(opened *o, batch *m, float *to, uint32_t step, const float *want) {
    uint32_t width  = 3 * mpnet.hidden;
    long     before = direct_batches(o);
    point_rows(m, to, step);
    cr_assert_eq(o->ops->forward(o->engine, 0, &m->b, &o->error), FLETCH_OK, "%s",
                 o->error.message);
    for (uint32_t i = 0; i < m->b.texts; i++)
        cr_assert_eq(memcmp(m->rows[i], want + i * (size_t)width, width * sizeof *want), 0);
    return direct_batches(o) > before;
}

/* The runtime's buffers are the device's too, as long as an engine is open, whichever it is; rows that
 * do not lie one behind the other in one of them go by the slot's own block. */
Test(cuda, rows_go_straight_into_the_runtimes_buffers) {
    toy      t;
    batch    m;
    setup    s = usual;
    uint32_t lengths[DIRECT_TEXTS], width = 3 * mpnet.hidden;
    s.deterministic = true;
    for (uint32_t i = 0; i < DIRECT_TEXTS; i++)
        lengths[i] = 1 + i % 7;
    toy_make(&t, &mpnet, 3);
    opened o     = open_well(&t.encoder, &s);
    size_t bytes = DIRECT_TEXTS * (size_t)(width + 1) * sizeof(float);
    float *want = malloc(bytes), *plain = malloc(bytes), *pooled = o.ops->host_alloc(bytes);
    make_batch(&m, &t.encoder, lengths, DIRECT_TEXTS, 8);
    point_rows(&m, want, width);
    cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_OK, "%s", o.error.message);
    cr_assert(went_directly(&o, &m, pooled, width, want));
    cr_assert_not(went_directly(&o, &m, plain, width, want),
                  "the driver does not know this memory");
    cr_assert_not(went_directly(&o, &m, pooled, width + 1, want), "rows with gaps");
    shut(&o); /* nothing of the driver is left, the buffer is */
    memset(pooled, 0, bytes);
    o = open_well(&t.encoder, &s);
    cr_assert(went_directly(&o, &m, pooled, width, want), "an engine that came later");
    sim_fault(SIM_HOST_ALLOC, 1, CUDA_ERROR_OUT_OF_MEMORY);
    float *refused = o.ops->host_alloc(bytes);
    cr_assert_not(went_directly(&o, &m, refused, width, want), "the driver refused it");
    o.ops->host_free(refused, bytes);
    shut(&o);
    o.ops->host_free(pooled, bytes); /* after the last engine */
    free_batch(&m);
    free(want);
    free(plain);
    toy_free(&t);
}

/* The flags come by themselves then, and still name the text. */
Test(cuda, nan_is_told_where_rows_go_straight) {
    toy      t;
    batch    m;
    uint32_t lengths[DIRECT_TEXTS], width = 3 * mpnet.hidden;
    for (uint32_t i = 0; i < DIRECT_TEXTS; i++)
        lengths[i] = 2;
    toy_make(&t, &mpnet, 3);
    uint16_t nan = 0x7FC0; /* bfloat16, as this model's weights */
    memcpy((char *)(uintptr_t)t.encoder.global[FL_SLOT_WORD].data +
               (59 * mpnet.hidden + 5) * sizeof nan,
           &nan, sizeof nan);
    opened o      = open_well(&t.encoder, &usual);
    size_t bytes  = DIRECT_TEXTS * (size_t)width * sizeof(float);
    float *pooled = o.ops->host_alloc(bytes);
    make_batch(&m, &t.encoder, lengths, DIRECT_TEXTS, 8);
    for (uint32_t i = 0; i < m.b.tokens; i++)
        m.ids[i] %= 59;
    m.ids[2 * 31] = 59;
    point_rows(&m, pooled, width);
    cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_EMODEL);
    cr_assert_eq(o.error.where, 31U);
    free_batch(&m);
    o.ops->host_free(pooled, bytes);
    shut(&o);
    toy_free(&t);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

/* The n-th call of a kind fails, for each n there is: open or forward say so, nothing is left
 * behind, and what was only short of memory works the next time. */
static void fail_each(const fl_encoder *encoder, sim_kind kind, CUresult result, int expected) {
    setup s   = usual;
    s.streams = "2";
    for (unsigned n = 1; n < 200; n++) {
        unsigned long before = sim_calls(kind);
        sim_fault(kind, n, result);
        opened o = open_cuda(encoder, &s);
        sim_fault(kind, 0, CUDA_SUCCESS);
        if (o.status == FLETCH_OK) {
            cr_assert_gt(n, 1U);
            cr_assert_lt(sim_calls(kind) - before, (unsigned long)n);
            shut(&o);
            return;
        }
        cr_assert_eq(o.status, expected, "call %u: %d %s", n, o.status, o.error.message);
        cr_assert_null(o.engine);
        sim_heal();
        shut(&o);
    }
    cr_assert_fail("open never worked");
}

Test(cuda, open_survives_every_failure) {
    toy t;
    toy_make(&t, &bert, 3);
    fail_each(&t.encoder, SIM_ALLOC, CUDA_ERROR_OUT_OF_MEMORY, FLETCH_ENOMEM);
    fail_each(&t.encoder, SIM_HOST_ALLOC, CUDA_ERROR_OUT_OF_MEMORY, FLETCH_ENOMEM);
    fail_each(&t.encoder, SIM_OBJECT, CUDA_ERROR_OUT_OF_MEMORY, FLETCH_ENOMEM);
    fail_each(&t.encoder, SIM_COPY, CUDA_ERROR_ILLEGAL_ADDRESS, FLETCH_EPROVIDER);
    toy_free(&t);
}

/* A launch or copy that is short of memory fails its batch alone; the next one is right. */
Test(cuda, forward_survives_lack_of_memory) {
    toy   t;
    batch m, want;
    toy_make(&t, &bert, 3);
    opened o = open_well(&t.encoder, &usual);
    make_batch(&want, &t.encoder, some, 3, 8);
    cr_assert_eq(o.ops->forward(o.engine, 0, &want.b, &o.error), FLETCH_OK);
    for (unsigned n = 1; n < 40; n++) {
        sim_kind kind = n % 3 == 0 ? SIM_COPY : n % 3 == 1 ? SIM_LAUNCH : SIM_GRAPH;
        make_batch(&m, &t.encoder, some, 3, 8);
        sim_fault(kind, 1 + n / 3 % 2, CUDA_ERROR_OUT_OF_MEMORY);
        int status = o.ops->forward(o.engine, 0, &m.b, &o.error);
        sim_heal();
        cr_assert(status == FLETCH_OK || status == FLETCH_ENOMEM, "%s", o.error.message);
        cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_OK, "%s", o.error.message);
        cr_assert_eq(memcmp(m.rows[1], want.rows[1], bert.hidden * sizeof(float)), 0);
        free_batch(&m);
    }
    free_batch(&want);
    shut(&o);
    toy_free(&t);
}

/* Single launches in the middle of a pass, and while capturing. */
Test(cuda, forward_stops_at_any_launch) {
    toy   t;
    batch m;
    toy_make(&t, &bert, 3);
    for (unsigned n = 1; n < 20; n += 3) {
        opened o = open_well(&t.encoder, &usual);
        make_batch(&m, &t.encoder, some, 3, 8);
        sim_fault(SIM_LAUNCH, n, CUDA_ERROR_OUT_OF_MEMORY);
        int status = o.ops->forward(o.engine, 0, &m.b, &o.error);
        sim_heal();
        cr_assert(status == FLETCH_ENOMEM || n > 11, "launch %u: %d", n, status);
        cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_OK);
        sim_fault(SIM_LAUNCH, n, CUDA_ERROR_OUT_OF_MEMORY); /* the capture fails: goes on without */
        cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_OK, "%s", o.error.message);
        sim_heal();
        free_batch(&m);
        shut(&o);
    }
    toy_free(&t);
}

/* Everything fails from there on; the engine says so, closes, and another opens later. */
Test(cuda, lost_device_breaks_the_replica_and_no_more) {
    static const sim_kind kinds[] = {SIM_LAUNCH, SIM_COPY};
    toy                   t;
    batch                 m;
    setup                 s = usual;
    s.streams               = "2";
    toy_make(&t, &bert, 3);
    for (int i = 0; i < 4; i++) {
        opened o = open_well(&t.encoder, &s);
        make_batch(&m, &t.encoder, some, 3, 8);
        for (int k = 0; k < i; k++)
            cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_OK);
        sim_fault(kinds[i % 2], 1, CUDA_ERROR_ECC_UNCORRECTABLE);
        int status = o.ops->forward(o.engine, 0, &m.b, &o.error);
        cr_assert_eq(status, FLETCH_EINTERNAL, "%d: %s", status, o.error.message);
        cr_assert_not_null(strstr(o.error.message, "ECC"), "%s", o.error.message);
        cr_assert_eq(o.ops->forward(o.engine, 1, &m.b, &o.error), FLETCH_EINTERNAL);
        free_batch(&m);
        shut(&o);
        sim_heal();
    }
    toy_free(&t);
}

static void damage(fl_tensor *tensor, size_t element) {
    float nan = NAN;
    memcpy((char *)(uintptr_t)tensor->data + element * sizeof nan, &nan, sizeof nan);
}

/* The word that only the last text uses is damaged. */
Test(cuda, nan_is_told_by_its_text) {
    static const uint32_t lengths[] = {4, 9, 2};
    static const char    *kinds[]   = {"fp32", "fp16", "int8"};
    toy                   t;
    batch                 m;
    toy_make(&t, &bert, 3);
    damage(&t.encoder.global[FL_SLOT_WORD], 49 * bert.hidden + 5);
    for (int i = 0; i < 3; i++) {
        setup s     = usual;
        s.precision = kinds[i];
        opened o    = open_well(&t.encoder, &s);
        make_batch(&m, &t.encoder, lengths, 3, 8);
        for (uint32_t k = 0; k < m.b.tokens; k++)
            m.ids[k] = m.ids[k] % 49;
        cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_OK);
        m.ids[14] = 49;
        cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_EMODEL);
        cr_assert_eq(o.error.where, 2U);
        free_batch(&m);
        shut(&o);
    }
    damage(&t.encoder.layer[1][FL_LAYER_UP_W], 7); /* every text */
    opened o = open_well(&t.encoder, &usual);
    make_batch(&m, &t.encoder, lengths, 3, 8);
    cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_EMODEL);
    cr_assert_eq(o.error.where, 0U);
    free_batch(&m);
    shut(&o);
    toy_free(&t);
}

static int find_rescued(void *user, const char *name, const char *value, const char *comment) {
    (void)comment;
    if (strcmp(name, "cuda.rescued") == 0)
        *(int *)user = atoi(value);
    return 0;
}

static int rescued(const opened *o) {
    int count = -1;
    o->ops->describe(o->engine, find_rescued, &count);
    return count;
}

enum { LARGE_WORD = 49, LARGE_PLACE = 14 };

/* A batch whose last text of three has the word that is large, if `with` it. */
static void make_large(batch *m, const fl_encoder *encoder, bool with) {
    static const uint32_t lengths[] = {4, 9, 2};
    make_batch(m, encoder, lengths, 3, 8);
    for (uint32_t k = 0; k < m->b.tokens; k++)
        m->ids[k] %= LARGE_WORD;
    if (with)
        m->ids[LARGE_PLACE] = LARGE_WORD;
}

/* One value of a word is beyond fp16 and within fp32: its text comes out as the CPU engine's. */
static void overflow(const toy *t, const char *precision, const char *capability, bool overflows) {
    batch  m, want;
    double least[] = {0.995, 0.995, overflows ? 0.999999 : 0.995};
    setup  s       = usual;
    s.precision    = precision;
    s.streams      = "2";
    setenv("SIM_CUDA_CAPABILITY", capability, 1);
    opened o = open_well(&t->encoder, &s);
    make_large(&m, &t->encoder, false);
    cr_assert_eq(o.ops->forward(o.engine, 1, &m.b, &o.error), FLETCH_OK, "%s", o.error.message);
    cr_assert_eq(rescued(&o), 0);
    free_batch(&m);
    for (uint32_t round = 1; round <= 3; round++) { /* single launches, a capture, a graph */
        make_large(&m, &t->encoder, true);
        run_cpu(&t->encoder, &m, &want);
        cr_assert_eq(o.ops->forward(o.engine, round % 2, &m.b, &o.error), FLETCH_OK, "%s",
                     o.error.message);
        for (uint32_t i = 0; i < 3; i++) {
            double c = cosine(m.rows[i], want.rows[i], bert.hidden);
            cr_assert(c >= least[i], "%s, text %u: cosine %.7f", precision, i, c);
        }
        cr_assert_eq(rescued(&o), overflows ? (int)round : 0);
        free_batch(&m);
        free_batch(&want);
    }
    shut(&o);
}

static void set_large(toy *t) {
    float large = 70000.0f;
    memcpy((char *)(uintptr_t)t->encoder.global[FL_SLOT_WORD].data +
               (LARGE_WORD * bert.hidden + 5) * sizeof large,
           &large, sizeof large);
}

Test(cuda, a_text_that_overflows_is_run_again_in_fp32) {
    toy t;
    toy_make(&t, &bert, 3);
    set_large(&t);
    overflow(&t, "fp16", "9.0", true);
    overflow(&t, "int8", "7.5", true); /* upon fp16 */
    overflow(&t, "bf16", "9.0", false);
    toy_free(&t);
}

/* Where fp32 finds no room beside the engine, that text fails and says why; the others do not. */
Test(cuda, a_text_that_overflows_fails_by_name_where_fp32_has_no_room) {
    toy            t;
    batch          m;
    fl_engine_info info;
    setup          s = usual;
    s.precision      = "fp16";
    toy_make(&t, &bert, 3);
    set_large(&t);
    opened o = open_well(&t.encoder, &s);
    o.ops->info(o.engine, &info);
    shut(&o);
    s.limit = info.resident_bytes;
    o       = open_well(&t.encoder, &s);
    make_large(&m, &t.encoder, true);
    for (int round = 0; round < 2; round++) {
        cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_EMODEL);
        cr_assert_eq(o.error.where, 2U);
        cr_assert_not_null(strstr(o.error.message, "cuda.memory_limit"), "%s", o.error.message);
    }
    m.ids[LARGE_PLACE] = 1;
    cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_OK, "%s", o.error.message);
    free_batch(&m);
    shut(&o);
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
    s.precision = "fp8";
    refuse(&t, &s, FLETCH_EPROVIDER, "fp32, fp16, bf16 and int8");
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
    odd.head_dim = 16;
    toy_make(&t, &odd, 3);
    refuse(&t, &usual, FLETCH_EPROVIDER, "heads of a size");
    t.encoder.desc.head_dim = 32; /* more than the tensors hold */
    t.encoder.layer[1][FL_LAYER_Q_W].bytes -= 4;
    refuse(&t, &usual, FLETCH_EMODEL, "query");
    toy_free(&t);
}

static void auto_is(const toy *t, const char *capability, const char *precision) {
    fl_engine_info info;
    setup          s = usual;
    s.precision      = "auto";
    setenv("SIM_CUDA_CAPABILITY", capability, 1);
    opened o = open_well(&t->encoder, &s);
    o.ops->info(o.engine, &info);
    cr_assert_str_eq(info.precision, precision);
    shut(&o);
}

Test(cuda, auto_follows_the_device) {
    toy t;
    toy_make(&t, &bert, 3);
    auto_is(&t, "7.5", "fp16");
    auto_is(&t, "8.6", "bf16");
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
    cr_assert_not_null(strstr(text, "cuda.graphs=4"), "two sizes on two streams: %s", text);
    cr_assert_not_null(strstr(text, "cuda.utilisation=42"), "%s", text);
    shut(&o);
    toy_free(&t);
}
