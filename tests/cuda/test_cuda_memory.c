/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_memory.c - device memory of the CUDA engine: what it tells beforehand, what the driver counts, the pool
 * and the buffers of the host, on simulated devices. */
#include "toy_cuda.h"

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
    cr_assert_eq(info.resident_bytes, sim_used(0));
    for (uint32_t slot = 0; slot < info.slots; slot++) {
        make_batch(&m, &t->encoder, some, texts[slot], 8);
        cr_assert_eq(o.ops->forward(o.engine, slot, &m.b, &o.error), FLETCH_OK);
        cr_assert_eq(info.resident_bytes + o.ops->memory(o.engine, m.b.texts, m.b.tokens, 129),
                     sim_used(0));
        free_batch(&m);
    }
    shut(&o);
}

/* Whether pools grow by pages or by more. */
Test(cuda, memory_is_what_was_told) {
    static const char *const precisions[] = {"fp32", "fp16", "bf16", "int8"};
    static const char *const steps[]      = {"2097152", "33554432"};
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
        setenv("SIM_CUDA_POOL_STEP", steps[i / 2 % 2], 1);
        toy_make(&t, shapes[i / 4], 3);
        check_prediction(&t, &s);
        toy_free(&t);
    }
}

Test(cuda, memory_of_fp8_is_what_was_told) {
    toy   t;
    setup s     = usual;
    s.precision = "fp8";
    s.streams   = "3";
    s.tokens    = 4096;
    toy_make(&t, &bert, 3);
    check_prediction(&t, &s);
    toy_free(&t);
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
    s.streams    = "2"; /* more than one step of a pool */
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

/* Two models on a device: what the first gives back serves the third, and the last gives all back. */
Test(cuda, models_of_a_process_share_a_pool) {
    toy   t;
    setup s = usual;
    toy_make(&t, &bert, 3);
    opened         first = open_well(&t.encoder, &s), second = open_well(&t.encoder, &s);
    fl_device_load both = load_of(&first);
    cr_assert_eq(both.pool_held, sim_used(0));
    cr_assert_leq(both.pool_used, both.pool_held);
    cr_assert_eq(both.pool_takes, 2U);
    uint64_t used = both.pool_used;
    first.ops->close(first.engine);
    cr_assert_eq(load_of(&second).pool_held, sim_used(0));
    cr_assert_eq(load_of(&second).pool_used, used / 2);
    cr_assert_eq(load_of(&second).pool_peak, used);
    opened third = open_well(&t.encoder, &s);
    cr_assert_eq(load_of(&third).pool_hits, both.pool_hits + 1);
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
    cr_assert_eq(load.pool_takes, 1U);
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

/* A buffer of the runtime that is given up while the device hangs stays where it is until the device answers; the
 * device was never told to write there. */
Test(cuda, a_device_that_hangs_has_no_hold_on_the_runtimes_buffers) {
    toy      t;
    batch    m;
    setup    s = usual;
    uint32_t lengths[DIRECT_TEXTS], width = 3 * mpnet.hidden;
    s.timeout = "1";
    for (uint32_t i = 0; i < DIRECT_TEXTS; i++)
        lengths[i] = 1 + i % 7;
    toy_make(&t, &mpnet, 3);
    opened o      = open_well(&t.encoder, &s);
    size_t bytes  = DIRECT_TEXTS * (size_t)width * sizeof(float);
    float *pooled = o.ops->host_alloc(bytes), *other = o.ops->host_alloc(bytes);
    memset(pooled, 0, bytes);
    make_batch(&m, &t.encoder, lengths, DIRECT_TEXTS, 8);
    point_rows(&m, pooled, width);
    sim_hang(0);
    cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_EINTERNAL);
    unsigned long objects = sim_objects();
    o.ops->host_free(other, bytes);
    o.ops->close(o.engine);
    float *later = o.ops->host_alloc(bytes); /* does not wait either */
    cr_assert_eq(sim_objects(), objects);
    sim_heal();
    await_answer(&o);
    cr_assert_eq(sim_objects(), 0UL, "%lu objects of the driver are left", sim_objects());
    for (size_t i = 0; i < bytes / sizeof *pooled; i++)
        cr_assert_eq(pooled[i], 0.0f, "value %zu was written after the batch had failed", i);
    o.ops->host_free(pooled, bytes);
    o.ops->host_free(later, bytes);
    fletch_config_free(o.config);
    free_batch(&m);
    toy_free(&t);
}
