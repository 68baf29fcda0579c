/* SPDX-License-Identifier: Apache-2.0 */
/* fault_engine.c - see fault_engine.h; also the registry of a program that links it. */
#include "fault_engine.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engines/engine.h"

enum { SLOTS_MAX = 8, PATIENCE_MS = 300000 /* no test measures it: it ends what hangs */ };

struct fl_engine {
    char        name[8]; /* its own: who reads it after closing reads freed memory */
    uint32_t    width, slots, device, batch_tokens, batch_texts;
    uint64_t    reached; /* the plan under which it ran a forward */
    bool        hangs;   /* a forward was silent for too long */
    atomic_bool inside[SLOTS_MAX];
};

static pthread_mutex_t        plan_lock = PTHREAD_MUTEX_INITIALIZER;
static fl_fault_plan          plan      = {.slots = 1, .devices = 1};
static pthread_cond_t         plan_changed; /* prepare */
static uint64_t               forwards, state;
static _Thread_local uint64_t here; /* forwards that this thread ran */
static uint64_t               plans, reached, most_texts, most_tokens;
static uint64_t               opens, opening, pinned;
static uint32_t               scripted, met, allowed[FL_FAULT_DEVICES];
static bool                   lonely;
static atomic_uint            engines_open;
static atomic_bool            overlapped;

void fl_fault_set(const fl_fault_plan *to) {
    pthread_mutex_lock(&plan_lock);
    plan  = *to;
    state = plan.seed;
    plans++;
    reached = most_texts = most_tokens = 0;
    scripted = met = 0;
    memset(allowed, 0, sizeof allowed);
    pthread_cond_broadcast(&plan_changed); /* who is late under the old plan is late no more */
    pthread_mutex_unlock(&plan_lock);
}

void fl_fault_allow(uint32_t device, uint32_t more) {
    pthread_mutex_lock(&plan_lock);
    allowed[device] += more;
    pthread_cond_broadcast(&plan_changed);
    pthread_mutex_unlock(&plan_lock);
}

static uint64_t read_locked(const uint64_t *value) {
    pthread_mutex_lock(&plan_lock);
    uint64_t n = *value;
    pthread_mutex_unlock(&plan_lock);
    return n;
}

bool fl_fault_lonely(void) {
    pthread_mutex_lock(&plan_lock);
    bool yes = lonely;
    pthread_mutex_unlock(&plan_lock);
    return yes;
}

uint64_t fl_fault_reached(void) {
    return read_locked(&reached);
}

uint64_t fl_fault_most_texts(void) {
    return read_locked(&most_texts);
}

uint64_t fl_fault_most_tokens(void) {
    return read_locked(&most_tokens);
}

uint64_t fl_fault_opens(void) {
    return read_locked(&opens);
}

uint64_t fl_fault_opening(void) {
    return read_locked(&opening);
}

uint64_t fl_fault_pinned(void) {
    return read_locked(&pinned);
}

uint64_t fl_fault_forwards(void) {
    return read_locked(&forwards);
}

uint64_t fl_fault_here(void) {
    return here;
}

uint64_t fl_fault_open(void) {
    return atomic_load(&engines_open);
}

bool fl_fault_overlapped(void) {
    return atomic_load(&overlapped);
}

/* splitmix64 */
static uint64_t draw(void) {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z          = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z          = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* What the next forward does; *which is a random number for it. */
static fl_fault next_fault(uint64_t *which) {
    fl_fault fault = FL_FAULT_NONE;
    pthread_mutex_lock(&plan_lock);
    forwards++;
    here++;
    *which = draw();
    if (plan.scripted && scripted < 8 && plan.script[scripted] != FL_FAULTS) {
        fault = plan.script[scripted++];
    } else if (plan.planned && plan.at-- <= 0 && plan.times > 0) {
        fault = plan.planned;
        plan.times--;
    } else if (plan.seed && plan.rarity && draw() % plan.rarity == 0) {
        fault = (fl_fault)(1 + draw() % (FL_FAULTS - 1));
        fault = fault == FL_FAULT_NOMEM_ALL ? FL_FAULT_NOMEM : fault;
    }
    pthread_mutex_unlock(&plan_lock);
    return fault;
}

static uint64_t from_now(uint64_t ms) {
    return fl_clock_ns() + ms * 1000000;
}

__attribute__((constructor)) static void prepare(void) {
    fl_cond_init(&plan_changed);
}

/* Sleep until the plan or what goes with it changed (false: until the time came). (locked) */
static bool wait_until(uint64_t until_ns) {
    fl_cond_wait_until(&plan_changed, &plan_lock, until_ns);
    return fl_clock_ns() < until_ns;
}

/* Note what came, and wait for the others where the plan says so. */
static void arrive(fl_engine *engine, const fl_batch *batch) {
    const uint64_t until = from_now(PATIENCE_MS);
    pthread_mutex_lock(&plan_lock);
    reached += engine->reached != plans;
    engine->reached = plans;
    most_texts      = batch->texts > most_texts ? batch->texts : most_texts;
    most_tokens     = batch->tokens > most_tokens ? batch->tokens : most_tokens;
    if (plan.meet > 0 && ++met == plan.meet)
        pthread_cond_broadcast(&plan_changed);
    while (met < plan.meet && !lonely)
        lonely = !wait_until(until) && met < plan.meet;
    pthread_mutex_unlock(&plan_lock);
}

static void probe(const fl_engine_options *options, fl_probe *out) {
    (void)options;
    out->usable = true;
    strcpy(out->reason, "an engine for tests");
}

static uint32_t devices(const fl_engine_options *options) {
    (void)options;
    pthread_mutex_lock(&plan_lock);
    uint32_t n = plan.devices ? plan.devices : 1;
    pthread_mutex_unlock(&plan_lock);
    return n;
}

static bool is_pinned(const fl_engine_options *options) {
    uint16_t cores[FL_CORES_MAX];
    return options->cores && fl_cpu_cores(cores) == 1 && cores[0] == options->cores[0];
}

static int open_engine(fl_engine **out, const fl_encoder *encoder, const fl_engine_options *options,
                       fletch_error *error) {
    *out = NULL;
    pthread_mutex_lock(&plan_lock);
    opens++;
    opening++;
    pinned += is_pinned(options);
    while (plan.opens_held)
        pthread_cond_wait(&plan_changed, &plan_lock);
    opening--;
    bool fails        = plan.opens_fail > 0 && plan.opens_fail-- > 0;
    fails             = fails || (plan.bad_devices >> options->device & 1) != 0;
    uint32_t    small = options->device == 1 ? plan.small : 0;
    const char *why   = plan.why;
    int         code  = plan.opens_code ? plan.opens_code : FLETCH_EPROVIDER;
    bool        cpu   = strcmp(options->provider, "cpu") == 0;
    fails             = fails || (plan.cuda_gone && !cpu);
    uint32_t slots    = cpu && plan.cpu_slots ? plan.cpu_slots : plan.slots;
    pthread_mutex_unlock(&plan_lock);
    if (fails)
        return fl_fail(error, code, 3 /* a layer, say */, "%s", why ? why : "the device is gone");
    fl_engine *engine = fl_alloc_zero(1, sizeof *engine);
    if (!engine)
        return fl_fail_nomem(error, sizeof *engine, "a test engine");
    engine->width        = fl_encoder_width(encoder);
    engine->slots        = slots ? slots : 1;
    engine->device       = options->device;
    engine->batch_tokens = small > 0 ? small : options->batch_tokens;
    strcpy(engine->name, "test");
    engine->batch_texts = options->batch_texts;
    atomic_fetch_add(&engines_open, 1);
    *out = engine;
    return FLETCH_OK;
}

static void close_engine(fl_engine *engine) {
    if (engine)
        atomic_fetch_sub(&engines_open, 1);
    fl_free(engine);
}

static void info(const fl_engine *engine, fl_engine_info *out) {
    *out = (fl_engine_info){.device        = engine->name,
                            .precision     = "fp32",
                            .slots         = engine->slots,
                            .best_tokens   = 512,
                            .most_tokens   = engine->batch_tokens,
                            .any_thread    = true,
                            .deterministic = true};
}

static uint64_t memory(const fl_engine *engine, uint32_t texts, uint32_t tokens, uint32_t longest) {
    (void)longest;
    pthread_mutex_lock(&plan_lock);
    uint64_t each = plan.token_bytes ? plan.token_bytes : 1024;
    pthread_mutex_unlock(&plan_lock);
    return (uint64_t)tokens * each + (uint64_t)texts * engine->width * 4;
}

static void compute(const int32_t *ids, uint32_t count, uint32_t width, float *row) {
    uint64_t hash = 1469598103934665603u;
    for (uint32_t i = 0; i < count; i++)
        hash = (hash ^ (uint32_t)ids[i]) * 1099511628211u;
    for (uint32_t c = 0; c < width; c++) {
        hash   = hash * 6364136223846793005u + 1442695040888963407u;
        row[c] = (float)((double)(hash >> 40) / 16777216.0 - 0.5);
    }
}

static void nap(const fl_engine *engine, uint64_t which) {
    const uint64_t until = from_now(plan.late_ms ? plan.late_ms : which % 5 + 1);
    const uint64_t under = plans;
    while (plans == under && !engine->hangs && wait_until(until)) {
    }
}

static void be_late(const fl_engine *engine, uint64_t which) {
    pthread_mutex_lock(&plan_lock);
    nap(engine, which);
    pthread_mutex_unlock(&plan_lock);
}

/* As cuda.timeout_seconds has it: the first that gives up speaks for all that wait for the device. */
static void hang(fl_engine *engine, uint64_t which) {
    pthread_mutex_lock(&plan_lock);
    nap(engine, which);
    engine->hangs = true;
    pthread_cond_broadcast(&plan_changed);
    pthread_mutex_unlock(&plan_lock);
}

/* Until a forward of this device may end. */
static void pass_gate(const fl_engine *engine) {
    pthread_mutex_lock(&plan_lock);
    while (plan.gated && allowed[engine->device % FL_FAULT_DEVICES] == 0)
        pthread_cond_wait(&plan_changed, &plan_lock);
    if (plan.gated)
        allowed[engine->device % FL_FAULT_DEVICES]--;
    pthread_mutex_unlock(&plan_lock);
}

static int go_wrong(fl_engine *engine, fl_fault fault, uint64_t which, const fl_batch *batch,
                    fletch_error *error) {
    switch (fault) {
    case FL_FAULT_LATE: be_late(engine, which); return FLETCH_OK;
    case FL_FAULT_HANG:
        hang(engine, which);
        return fl_fail(error, FLETCH_EINTERNAL, FLETCH_NOWHERE, "the device does not answer");
    case FL_FAULT_BROKEN:
        return fl_fail(error, FLETCH_EINTERNAL, FLETCH_NOWHERE, "the device fell off the bus");
    case FL_FAULT_NOMEM:
        return batch->texts > 1 ? fl_fail_nomem(error, 1, "a planned batch") : FLETCH_OK;
    case FL_FAULT_NOMEM_ALL: return fl_fail_nomem(error, 1, "a planned batch");
    case FL_FAULT_BAD_TEXT:
        return fl_fail(error, FLETCH_EMODEL, which % batch->texts, "a text is not finite");
    case FL_FAULT_SILENT_NAN: batch->rows[which % batch->texts][0] = NAN; return FLETCH_OK;
    case FL_FAULT_NONE:
    case FL_FAULTS: break;
    }
    return FLETCH_OK;
}

static int forward(fl_engine *engine, uint32_t slot, const fl_batch *batch, fletch_error *error) {
    uint64_t which = 0;
    if (slot >= engine->slots || atomic_exchange(&engine->inside[slot], true))
        atomic_store(&overlapped, true);
    if (batch->tokens > engine->batch_tokens || batch->texts > engine->batch_texts)
        atomic_store(&overlapped, true);
    fl_fault fault = next_fault(&which); /* before it meets others: theirs are drawn too by then */
    arrive(engine, batch);
    for (uint32_t t = 0; t < batch->texts; t++)
        compute(batch->ids + batch->cu[t], batch->cu[t + 1] - batch->cu[t], engine->width,
                batch->rows[t]);
    pass_gate(engine);
    int status = go_wrong(engine, fault, which, batch, error);
    atomic_store(&engine->inside[slot], false);
    return status;
}

#define FAULT_OPS(called)                                                                          \
    {                                                                                              \
        .abi = FL_ENGINE_ABI, .name = called, .probe = probe, .devices = devices,                  \
        .open = open_engine, .forward = forward, .close = close_engine, .info = info,              \
        .memory = memory                                                                           \
    }

/* It is "cuda" too, so that there is a provider to fall back from. */
static const fl_engine_ops fault_ops[] = {FAULT_OPS("cpu"), FAULT_OPS("cuda"),
                                          FAULT_OPS("onnxruntime")};

const fl_engine_ops *fl_engine_at(size_t index) {
    return index == 0 ? &fault_ops[0] : NULL;
}

const fl_engine_ops *fl_engine_find(const char *name) {
    pthread_mutex_lock(&plan_lock);
    size_t count = plan.onnxruntime ? 3 : 2;
    pthread_mutex_unlock(&plan_lock);
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, fault_ops[i].name) == 0)
            return &fault_ops[i];
    return NULL;
}
