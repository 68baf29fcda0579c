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

/* ---- Opening ---------------------------------------------------------------------------------- */

typedef struct setup {
    const char *precision, *streams, *graphs, *transfer;
    bool        deterministic;
    uint32_t    tokens, texts, device;
    uint64_t    limit;
} setup;

static const setup usual = {"fp32", "1", "true", "true", false, 2048, 64, 0, 0};

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

static opened open_cuda(const fl_encoder *encoder, const setup *s) {
    opened o = {.ops = fl_engine_find("cuda"), .config = fletch_config_new()};
    set(o.config, "cuda.module", getenv("FLETCH_CUDA_MODULE"));
    set(o.config, "cuda.streams", s->streams);
    set(o.config, "cuda.graphs", s->graphs);
    set(o.config, "cuda.transfer_stream", s->transfer);
    fl_engine_options options = {.provider      = "cuda",
                                 .device        = s->device,
                                 .threads       = 2,
                                 .batch_tokens  = s->tokens,
                                 .batch_texts   = s->texts,
                                 .precision     = s->precision,
                                 .deterministic = s->deterministic,
                                 .memory_limit  = s->limit,
                                 .config        = o.config};
    o.status = o.ops->open(&o.engine, encoder, &options, &o.error);
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

/* ---- Batches ---------------------------------------------------------------------------------- */

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

static const uint32_t some[] = {1, 2, 5, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 3, 40};
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

/* The CPU engine's rows of the same texts. */
static void run_cpu(const fl_encoder *encoder, const batch *like, batch *out,
                    const uint32_t *lengths, uint64_t seed) {
    fletch_error error;
    toy          t      = {.encoder = *encoder};
    fl_engine   *engine = toy_open(&t, 1, "auto", TEXTS_MOST, encoder->desc.positions, &error);
    cr_assert_not_null(engine, "%s", error.message);
    make_batch(out, encoder, lengths, like->b.texts, seed);
    out->b.pool_skip = like->b.pool_skip ? out->skip : NULL;
    cr_assert_eq(fl_engine_find("cpu")->forward(engine, 0, &out->b, &error), FLETCH_OK, "%s",
                 error.message);
    fl_engine_find("cpu")->close(engine);
}

/* Three times: launched singly, captured, and from the graph. */
static void compare(const fl_encoder *encoder, const setup *s, double least_cosine,
                    double most_difference) {
    batch    mine, want;
    uint32_t width = fl_encoder_width(encoder);
    opened   o     = open_well(encoder, s);
    for (int round = 0; round < 3; round++) {
        make_batch(&mine, encoder, some, SOME, 11);
        mine.b.pool_skip = round == 1 ? mine.skip : NULL;
        run_cpu(encoder, &mine, &want, some, 11);
        cr_assert_eq(o.ops->forward(o.engine, 0, &mine.b, &o.error), FLETCH_OK, "%s",
                     o.error.message);
        for (uint32_t i = 0; i < SOME; i++) {
            double c = cosine(mine.rows[i], want.rows[i], width);
            double d = largest_difference(mine.rows[i], want.rows[i], width);
            cr_assert(c >= least_cosine && d <= most_difference,
                      "%s, round %d, text of %u tokens: cosine %.7f, difference %.2e", s->precision,
                      round, some[i], c, d);
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
    compare(&t.encoder, &s, least_cosine, most_difference);
    toy_free(&t);
    toy_make(&t, &mpnet, 5);
    t.encoder.desc.position_skips_pad = true;
    t.encoder.desc.pad_token          = 1;
    compare(&t.encoder, &s, least_cosine, most_difference);
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
    toy      t;
    setup    s    = usual;
    toy_spec spec = bert;
    spec.activation = activation;
    s.precision     = precision;
    toy_make(&t, &spec, 4);
    compare(&t.encoder, &s, least, strcmp(precision, "fp32") == 0 ? 1e-5 : 1.0);
    toy_free(&t);
}

Test(cuda, every_activation) {
    for (int a = FL_ACT_GELU_ERF; a <= FL_ACT_RELU; a++) {
        compare_activation((fl_activation)a, "fp32", 0.999999);
        compare_activation((fl_activation)a, "fp16", 0.9995);
        compare_activation((fl_activation)a, "int8", 0.995);
    }
}
