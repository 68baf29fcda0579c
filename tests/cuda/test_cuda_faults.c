/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_faults.c - the CUDA engine when the driver refuses, a device is lost or a value is not finite: it says so,
 * leaves nothing behind, and what can go on does. On simulated devices. */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "toy_cuda.h"

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
        make_batch(&m, &t.encoder, some, SOME, 8);
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
    static const char    *kinds[]   = {"fp32", "fp16", "int8", "fp8"};
    toy                   t;
    batch                 m;
    toy_make(&t, &bert, 3);
    damage(&t.encoder.global[FL_SLOT_WORD], 49 * bert.hidden + 5);
    for (int i = 0; i < 4; i++) {
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
    damage(&t.encoder.layer[0][FL_LAYER_UP_W], 7); /* every text */
    for (int i = 0; i < 4; i++) {
        setup s     = usual;
        s.precision = kinds[i];
        opened o    = open_well(&t.encoder, &s);
        make_batch(&m, &t.encoder, lengths, 3, 8);
        cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_EMODEL);
        cr_assert_eq(o.error.where, 0U);
        free_batch(&m);
        shut(&o);
    }
    toy_free(&t);
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
    uint64_t before = fp32_retries;
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
        cr_assert_eq(fp32_retries - before, overflows ? round : 0U);
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

/* ---- A device that hangs --------------------------------------------------------------------- */

/* A batch that is under way on each of two streams. */
typedef struct call {
    const opened *o;
    uint32_t      slot;
    batch         m;
    int           status;
    fletch_error  error;
} call;

static void *forward_one(void *arg) {
    call *c   = arg;
    c->status = c->o->ops->forward(c->o->engine, c->slot, &c->m.b, &c->error);
    return NULL;
}

/* Both batches fail, closing waits for nothing and gives nothing back, and no other engine opens, until the device
 * answers; then all of it is given back. */
Test(cuda, a_device_that_hangs_is_left_alone_until_it_answers) {
    toy       t;
    batch     m, want;
    call      calls[2];
    pthread_t threads[2];
    fl_probe  probe;
    setup     s = usual;
    s.streams   = "2";
    s.timeout   = "1";
    toy_make(&t, &bert, 3);
    opened o = open_well(&t.encoder, &s);
    make_batch(&want, &t.encoder, some, SOME, 8);
    cr_assert_eq(o.ops->forward(o.engine, 0, &want.b, &o.error), FLETCH_OK);
    sim_hang(0);
    for (uint32_t i = 0; i < 2; i++) {
        calls[i] = (call){.o = &o, .slot = i};
        make_batch(&calls[i].m, &t.encoder, some, SOME, 8);
        pthread_create(&threads[i], NULL, forward_one, &calls[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_eq(calls[i].status, FLETCH_EINTERNAL, "%d", calls[i].status);
        cr_assert_not_null(strstr(calls[i].error.message, "cuda.timeout_seconds"), "%s",
                           calls[i].error.message);
    }
    unsigned long objects = sim_objects();
    o.ops->close(o.engine);
    cr_assert_eq(sim_objects(), objects, "what the device may yet use was given back");
    fl_engine_options options = {.provider = "cuda", .config = o.config};
    o.ops->probe(&options, &probe);
    cr_assert(probe.hangs);
    cr_assert_not_null(strstr(probe.reason, "does not answer"), "%s", probe.reason);
    opened again = open_cuda(&t.encoder, &s);
    cr_assert_eq(again.status, FLETCH_EPROVIDER, "%d", again.status);
    cr_assert_not_null(strstr(again.error.message, "does not answer"), "%s", again.error.message);
    fletch_config_free(again.config);
    sim_heal();
    await_answer(&o);
    fletch_config_free(o.config);
    cr_assert_eq(sim_objects(), 0UL, "%lu objects of the driver are left", sim_objects());
    cr_assert_eq(sim_used(0), 0UL);
    for (uint32_t i = 0; i < 2; i++)
        free_batch(&calls[i].m);
    opened back = open_well(&t.encoder, &usual);
    make_batch(&m, &t.encoder, some, SOME, 8);
    cr_assert_eq(back.ops->forward(back.engine, 0, &m.b, &back.error), FLETCH_OK);
    cr_assert_arr_eq(m.out, want.out, SOME * (bert.hidden + 1) * sizeof *m.out);
    free_batch(&m);
    free_batch(&want);
    shut(&back);
    toy_free(&t);
}

/* What frees waits for all devices: neither an engine nor a buffer of the runtime is given back while the batch of
 * another engine is under way on a device of which nobody knows yet that it hangs. */
Test(cuda, what_other_engines_give_back_waits_for_no_device_that_hangs) {
    enum { BYTES = 1 << 16 };
    setenv("SIM_CUDA_DEVICES", "2", 1);
    toy   t;
    setup s = usual, other = usual;
    toy_make(&t, &bert, 3);
    s.timeout = "1";
    for (int round = 0; round < 3; round++) {
        pthread_t thread;
        other.device  = round == 1;
        opened o      = open_well(&t.encoder, &s);
        opened beside = open_well(&t.encoder, &other);
        call   c      = {.o = &o};
        void  *pooled = o.ops->host_alloc(BYTES);
        make_batch(&c.m, &t.encoder, some, SOME, 8);
        unsigned long objects = sim_objects(), launches = sim_calls(SIM_LAUNCH);
        sim_hang(0);
        pthread_create(&thread, NULL, forward_one, &c);
        while (sim_calls(SIM_LAUNCH) == launches)
            sched_yield();
        if (round == 2)
            o.ops->host_free(pooled, BYTES);
        beside.ops->close(beside.engine);
        cr_assert_geq(sim_objects(), objects);
        pthread_join(thread, NULL);
        cr_assert_eq(c.status, FLETCH_EINTERNAL, "%d", c.status);
        o.ops->close(o.engine);
        sim_heal();
        await_answer(&o);
        if (round != 2)
            o.ops->host_free(pooled, BYTES);
        cr_assert_eq(sim_objects(), 0UL, "%lu objects of the driver are left", sim_objects());
        free_batch(&c.m);
        fletch_config_free(beside.config);
        fletch_config_free(o.config);
    }
    toy_free(&t);
}

/* A driver with a limit of its own ends the kernel and the context, and says so by the same number. */
Test(cuda, what_the_driver_ended_by_itself_is_no_device_that_hangs) {
    toy   t;
    batch m;
    toy_make(&t, &bert, 3);
    opened o = open_well(&t.encoder, &usual);
    make_batch(&m, &t.encoder, some, SOME, 8);
    sim_fault(SIM_LAUNCH, 1, CUDA_ERROR_LAUNCH_TIMEOUT);
    cr_assert_eq(o.ops->forward(o.engine, 0, &m.b, &o.error), FLETCH_EINTERNAL);
    cr_assert_null(strstr(o.error.message, "cuda.timeout_seconds"), "%s", o.error.message);
    shut(&o);
    o = open_well(&t.encoder, &usual);
    shut(&o);
    free_batch(&m);
    toy_free(&t);
}

static void *hang_later(void *arg) {
    const struct timespec moment = {0, *(long *)arg};
    (void)nanosleep(&moment, NULL);
    sim_hang(0);
    return NULL;
}

/* Wherever opening is when the device stops: it fails, and the next engine opens once the device answers. */
Test(cuda, opening_ends_though_the_device_hangs) {
    toy   t;
    setup s   = usual;
    s.timeout = "1";
    toy_make(&t, &bert, 3);
    for (long wait_ns = 0, opens = 0; opens == 0; wait_ns += wait_ns / 2 + 500000) {
        pthread_t thread;
        pthread_create(&thread, NULL, hang_later, &wait_ns);
        opened o = open_cuda(&t.encoder, &s);
        pthread_join(thread, NULL);
        sim_heal();
        opens = o.status == FLETCH_OK;
        if (opens == 0) {
            cr_assert_eq(o.status, FLETCH_EPROVIDER, "%d %s", o.status, o.error.message);
            await_answer(&o);
        }
        shut(&o);
    }
    toy_free(&t);
}
