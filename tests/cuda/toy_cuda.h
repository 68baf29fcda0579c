/* SPDX-License-Identifier: Apache-2.0 */
/* toy_cuda.h - the CUDA engine opened on simulated devices, batches for it, and what the CPU engine says of them.
 *
 * The module is opened as the product opens it, by the loader; driver, cublasLt and NVML are those
 * of tests/cuda/sim, which these programs are linked to. The kernels are the product's own, compiled
 * for the host. Each test is a process of its own (Criterion forks), and so is its device. */
#ifndef FL_TESTS_CUDA_TOY_CUDA_H
#define FL_TESTS_CUDA_TOY_CUDA_H

#include <criterion/criterion.h>
#include <stdio.h>

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
    fl_trace   *trace;
    const char *timeout; /* cuda.timeout_seconds; NULL: more than a slow simulated device takes */
} setup;

static const setup usual = {"fp32", "1", "true", "true", false, 2048, 64, 0, 0, false, NULL, NULL};

typedef struct opened {
    fletch_config       *config;
    const fl_engine_ops *ops;
    fl_engine           *engine;
    int                  status;
    fletch_error         error;
} opened;

static atomic_uint_fast64_t fp32_retries; /* of all engines of the process */

static inline void set(fletch_config *config, const char *key, const char *value) {
    fletch_error error;
    cr_assert_eq(fletch_config_set(config, key, value, &error), FLETCH_OK, "%s", error.message);
}

static char last_log[512];

static inline void keep_log(void *user, int level, const char *message) {
    (void)user, (void)level;
    snprintf(last_log, sizeof last_log, "%s", message);
}

static inline opened open_cuda(const fl_encoder *encoder, const setup *s) {
    opened o = {.ops = fl_engine_find("cuda"), .config = fletch_config_new()};
    fletch_config_set_log(o.config, keep_log, NULL);
    set(o.config, "cuda.module", getenv("FLETCH_CUDA_MODULE"));
    set(o.config, "cuda.streams", s->streams);
    set(o.config, "cuda.graphs", s->graphs);
    set(o.config, "cuda.transfer_stream", s->transfer);
    set(o.config, "cuda.memory_pool", s->singly ? "false" : "true");
    set(o.config, "cuda.timeout_seconds", s->timeout ? s->timeout : "600");
    fl_engine_options options = {.provider      = "cuda",
                                 .device        = s->device,
                                 .threads       = 2,
                                 .batch_tokens  = s->tokens,
                                 .batch_texts   = s->texts,
                                 .precision     = s->precision,
                                 .deterministic = s->deterministic,
                                 .memory_limit  = s->limit,
                                 .config        = o.config,
                                 .trace         = s->trace,
                                 .fp32_retries  = &fp32_retries,
                                 .log           = fl_config_log(o.config)};
    o.status                  = o.ops->open(&o.engine, encoder, &options, &o.error);
    return o;
}

static inline opened open_well(const fl_encoder *encoder, const setup *s) {
    opened o = open_cuda(encoder, s);
    cr_assert_eq(o.status, FLETCH_OK, "%s", o.error.message);
    return o;
}

static inline void shut(opened *o) {
    o->ops->close(o->engine);
    fletch_config_free(o->config);
    cr_assert_eq(sim_objects(), 0UL, "%lu objects of the driver are left", sim_objects());
    cr_assert_eq(sim_used(0), 0UL);
}

/* Until the device answers: what was kept aside on it is given back then. */
static inline void await_answer(const opened *o) {
    fl_probe          probe;
    fl_engine_options options = {.provider = "cuda", .config = o->config};
    do {
        o->ops->probe(&options, &probe);
    } while (probe.hangs);
}

/* ---- Batches --------------------------------------------------------------------------------- */

enum { TEXTS_MOST = 64 };

typedef struct batch {
    int32_t *ids;
    uint32_t cu[TEXTS_MOST + 1], skip[TEXTS_MOST], segment[TEXTS_MOST];
    float   *out, *rows[TEXTS_MOST];
    fl_batch b;
} batch;

/* Text i has ids that depend on its length and `seed` alone. */
static inline void make_batch(batch *m, const fl_encoder *encoder, const uint32_t *lengths,
                              uint32_t texts, uint64_t seed) {
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
        m->rows[i]    = m->out + i * (size_t)(width + 1);
        m->skip[i]    = lengths[i] > 5 ? i % 3 : 0;
        m->segment[i] = lengths[i] - lengths[i] * (i % 3) / 3; /* the length: one text alone */
    }
    m->b = (fl_batch){
        .ids = m->ids, .cu = m->cu, .texts = texts, .tokens = m->cu[texts], .rows = m->rows};
}

static inline void free_batch(batch *m) {
    free(m->ids);
    free(m->out);
}

static const uint32_t some[] = {1, 17, 3, 64, 65, 33, 6, 129};
enum { SOME = sizeof some / sizeof *some };

static inline double cosine(const float *a, const float *b, uint32_t n) {
    double ab = 0.0, aa = 0.0, bb = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

static inline double largest_difference(const float *a, const float *b, uint32_t n) {
    double most = 0.0;
    for (uint32_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* The CPU engine's rows of the same batch. */
static inline void run_cpu(const fl_encoder *encoder, const batch *like, batch *out) {
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
    out->b.segment   = like->b.segment ? out->segment : NULL;
    cr_assert_eq(fl_engine_find("cpu")->forward(engine, 0, &out->b, &error), FLETCH_OK, "%s",
                 error.message);
    fl_engine_find("cpu")->close(engine);
}

/* ---- What the engine tells of itself --------------------------------------------------------- */

static inline int gather(void *user, const char *name, const char *value, const char *comment) {
    char *text = user;
    (void)comment;
    snprintf(text + strlen(text), 2048 - strlen(text), "%s=%s\n", name, value);
    return 0;
}

static inline fl_device_load load_of(const opened *o) {
    fl_device_load load;
    o->ops->load(o->engine, &load);
    return load;
}

#endif
