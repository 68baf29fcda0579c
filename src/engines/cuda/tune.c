/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c - which of cublasLt's proposals is the fastest for each product, found by trying them.
 *
 * Role    cuda_engine.c calls it once the weights are there; product.c takes what it found.
 * Why     cublasLt's first proposal is a guess; for few rows it is often well off, and an activation
 *         in the epilogue may be a slow kernel of its own where a product and fl_bias_act are not.
 * Method  At some tiers each proposal runs REPEATS times behind itself, over the layers in turn so
 *         that weights come from where they will, as a captured graph so that launching does not
 *         count; the better of two rounds is its time. Where one proposal is all there is, nothing is
 *         timed. Then the same with the activation apart, taken where it gains a twentieth at the
 *         largest tier, for one engine must not activate by two formulas.
 * Kept    for the process, by device, library and shape: the second replica, or the same model opened
 *         again, takes the same and waits for nothing. A budget of seconds ends the search; what it
 *         did not reach keeps cublasLt's first.
 * Bytes   The choice depends on the tier, as cublasLt's own does. Deterministic engines tune nothing.
 * Memory  a graph and two events at a time. Threads: one at a time in the process, under a lock.
 * Proof   tests/cuda/test_cuda_engine.c: the slow algorithms of a simulated library are not taken. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "engines/cuda/cuda_engine.h"

enum { TRIED = 8, REPEATS = 8, ROUNDS = 2, KEPT = 512, LINE = 300, POLL_NS = 1000000 };

static const uint32_t sampled[FL_CUDA_TUNED] = {32, 64, 128, 512, 2048, 4096, 8192, 16384};
static const uint64_t budget_ns              = 3000000000;
static const double   worth                  = 0.95; /* of a time, to go apart */

/* What a time holds for. Compared by its bytes. */
typedef struct subject {
    char     device[96];
    uint64_t workspace, tokens;
    unsigned library;
    uint32_t n, k, row;
    int32_t  takes, type, adds, apart, activation, fused;
} subject;

static struct {
    pthread_mutex_t lock;
    size_t          count;
    struct {
        subject              of;
        cublasLtMatmulAlgo_t algo;
        double               seconds; /* 0: there was no other */
    } kept[KEPT];
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

typedef struct tuning {
    fl_engine    *e;
    fl_cuda_slot *slot;
    CUevent       start, end;
    uint64_t      until;
} tuning;

static fl_cuda_product product_of(int kind) {
    return (fl_cuda_product)(kind % FL_CUDA_PRODUCTS);
}

static subject subject_of(const fl_engine *e, int kind, uint32_t tokens) {
    const fl_cuda_matrix *m = e->first[kind];
    subject               s;
    memset(&s, 0, sizeof s); /* gaps too */
    memcpy(s.device, e->name, sizeof s.device);
    s.workspace  = e->workspace_bytes;
    s.tokens     = tokens;
    s.library    = e->cuda->lt_version;
    s.takes      = (int32_t)m->takes;
    s.type       = (int32_t)e->type;
    s.adds       = m->adds;
    s.apart      = m->act_apart;
    s.fused      = m->fused;
    s.activation = product_of(kind) == FL_CUDA_UP ? (int32_t)e->desc.activation : -1;
    fl_cuda_product_size(e, product_of(kind), &s.n, &s.k);
    s.row = product_of(kind) == FL_CUDA_DOWN ? e->up_width : s.k;
    return s;
}

/* ---- One time -------------------------------------------------------------------------------- */

typedef struct trial {
    const fl_cuda_plan *plan;
    int                 kind;
    uint32_t            tier;
    CUdeviceptr         in, out;
} trial;

/* The matrix of this kind in the next layer that has one. */
static const fl_cuda_matrix *matrix_of(const fl_engine *e, int kind, uint32_t *layer) {
    const fl_cuda_matrix *m;
    do {
        *layer = (*layer + 1) % e->desc.layers;
        m      = &e->layers[*layer].product[product_of(kind)];
    } while (m->takes != e->first[kind]->takes);
    return m;
}

static bool run(const tuning *t, const trial *what, unsigned times) {
    uint32_t layer = 0;
    bool     good  = true;
    for (unsigned i = 0; i < times && good; i++) {
        const fl_cuda_matrix *m = matrix_of(t->e, what->kind, &layer);
        good = fl_cuda_run_product(t->e, t->slot, m, what->kind, what->plan, what->in, what->out) ==
               CUBLAS_STATUS_SUCCESS;
        if (good && m->act_apart)
            good = fl_cuda_enqueue_activation(t->e, t->slot, what->tier, m, NULL) == FLETCH_OK;
    }
    return good;
}

/* The launches as one graph; NULL: they cannot be captured. */
static CUgraphExec capture(const tuning *t, const trial *what) {
    const fl_cuda_calls *cu    = &t->e->cuda->cu;
    CUgraph              graph = NULL;
    CUgraphExec          exec  = NULL;
    if (cu->capture_begin(t->slot->stream, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS)
        return NULL;
    bool good = run(t, what, REPEATS);
    if (cu->capture_end(t->slot->stream, &graph) != CUDA_SUCCESS || !good ||
        cu->graph_instantiate(&exec, graph, 0) != CUDA_SUCCESS)
        exec = NULL;
    if (graph != NULL)
        cu->graph_destroy(graph);
    return exec;
}

/* Seconds of one product; INFINITY: it does not run. */
static double time_of(const tuning *t, const trial *what) {
    const fl_cuda_calls *cu     = &t->e->cuda->cu;
    CUstream             stream = t->slot->stream;
    double               best   = INFINITY;
    if (atomic_load(&t->e->hangs) || !run(t, what, 1) ||
        fl_cuda_await(t->e, stream, NULL, 0) != CUDA_SUCCESS) /* loads what it needs */
        return INFINITY;
    CUgraphExec exec = capture(t, what);
    for (int round = 0; exec != NULL && round < ROUNDS; round++) {
        float milliseconds = 0.0f;
        bool  good         = cu->event_record(t->start, stream) == CUDA_SUCCESS &&
                    cu->graph_launch(exec, stream) == CUDA_SUCCESS &&
                    cu->event_record(t->end, stream) == CUDA_SUCCESS &&
                    fl_cuda_await(t->e, NULL, t->end, POLL_NS) == CUDA_SUCCESS &&
                    cu->event_elapsed(&milliseconds, t->start, t->end) == CUDA_SUCCESS;
        if (good)
            best = fmin(best, 1e-3 * (double)milliseconds / REPEATS);
    }
    if (exec != NULL)
        cu->graph_exec_destroy(exec); /* what runs of it ends first, by itself */
    return best;
}

/* ---- One product at one tier ----------------------------------------------------------------- */

static void say(const tuning *t, int kind, uint32_t tokens, const double *times, int count,
                int best) {
    static const char *const names[] = {"qkv", "out", "up", "down"};
    char                     line[LINE];
    int                      used = 0;
    for (int i = 0; i < count; i++)
        used += snprintf(line + used, sizeof line - (size_t)used, " %.1f%s", 1e6 * times[i],
                         i == best ? "*" : "");
    fl_log_write(t->e->log, FL_LOG_DEBUG, "cuda: proposals for %s%s%s, %u tokens, us:%s",
                 names[product_of(kind)], kind >= FL_CUDA_PRODUCTS ? " in e4m3" : "",
                 t->e->first[kind]->act_apart ? " and activation apart" : "", tokens, line);
}

/* Its input and output in the slot's arena, and counts for the activation. */
static bool place(const tuning *t, trial *what) {
    const fl_engine      *e    = t->e;
    const fl_cuda_matrix *m    = e->first[what->kind];
    fl_cuda_meta          meta = {.texts = 1, .tokens = e->tiers[what->tier].tokens};
    fl_cuda_place         at;
    fl_cuda_lay_out(e, what->tier, t->slot->arena, &at);
    switch (product_of(what->kind)) {
    case FL_CUDA_QKV: what->in = at.x, what->out = at.qkv; break;
    case FL_CUDA_OUT: what->in = at.context, what->out = at.x; break;
    case FL_CUDA_UP: what->in = at.x, what->out = at.middle; break;
    default: what->in = at.middle, what->out = at.x; break;
    }
    if (m->takes == FL_CUDA_Q8 || m->takes == FL_CUDA_E4M3)
        what->in = at.narrow;
    if (m->takes == FL_CUDA_Q8)
        what->out = at.sums;
    memcpy(t->slot->input, &meta, sizeof meta);
    return e->cuda->cu.copy_up(at.meta, t->slot->input, sizeof meta, t->slot->stream) ==
           CUDA_SUCCESS;
}

static bool have_events(tuning *t) {
    const fl_cuda_calls *cu = &t->e->cuda->cu;
    return (t->start != NULL || cu->event_create(&t->start, CU_EVENT_DEFAULT) == CUDA_SUCCESS) &&
           (t->end != NULL || cu->event_create(&t->end, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
}

/* Seconds of the best; 0: there is one alone; INFINITY: none. */
static double search(tuning *t, int kind, uint32_t tier, cublasLtMatmulAlgo_t *out) {
    fl_engine           *e    = t->e;
    fl_cuda_plan         plan = {0};
    trial                what = {.plan = &plan, .kind = kind, .tier = tier};
    cublasLtMatmulAlgo_t proposals[TRIED];
    double               times[TRIED] = {0};
    int                  count = 0, best = 0;
    if (fl_cuda_plan_open(e, kind, e->tiers[tier].tokens, &plan) == CUBLAS_STATUS_SUCCESS)
        fl_cuda_propose(e, kind, &plan, TRIED, proposals, &count);
    bool timed = count > 1 && have_events(t) && place(t, &what);
    for (int i = 0; i < count && timed; i++) {
        plan.algo = proposals[i];
        times[i]  = time_of(t, &what);
        best      = times[i] < times[best] ? i : best;
    }
    if (timed)
        say(t, kind, e->tiers[tier].tokens, times, count, best);
    if (count > 0)
        *out = proposals[best];
    fl_cuda_plan_close(e, &plan);
    return count > 0 ? times[best] : INFINITY;
}

/* The same from what the process knows. */
static double look_up(tuning *t, int kind, uint32_t tier, cublasLtMatmulAlgo_t *out) {
    subject s = subject_of(t->e, kind, t->e->tiers[tier].tokens);
    for (size_t i = 0; i < known.count; i++) {
        if (memcmp(&known.kept[i].of, &s, sizeof s) != 0)
            continue;
        *out = known.kept[i].algo;
        return known.kept[i].seconds;
    }
    if (t->e->aside || fl_clock_ns() > t->until)
        return INFINITY;
    double seconds = search(t, kind, tier, out);
    if (isfinite(seconds) && known.count < KEPT) {
        known.kept[known.count].of      = s;
        known.kept[known.count].algo    = *out;
        known.kept[known.count].seconds = seconds;
        known.count++;
    }
    return seconds;
}

/* ---- One product ----------------------------------------------------------------------------- */

/* Fills e->tuned[kind]; seconds at the largest tier that was looked at, 0: nothing was timed. */
static double tune_kind(tuning *t, int kind) {
    fl_engine *e    = t->e;
    double     last = 0.0;
    memset(e->tuned[kind], 0, sizeof e->tuned[kind]);
    for (int i = 0; i < FL_CUDA_TUNED; i++) {
        fl_cuda_tuned *to      = &e->tuned[kind][i];
        uint32_t       tier    = fl_cuda_tier_of(sampled[i]);
        double         seconds = INFINITY;
        if (tier < e->tier_count)
            seconds = look_up(t, kind, tier, &to->algo);
        if (!isfinite(seconds))
            continue;
        to->tokens = e->tiers[tier].tokens;
        last       = seconds;
    }
    return last;
}

static void tune_activation(tuning *t, int kind, double fused) {
    fl_engine    *e = t->e;
    fl_cuda_tuned before[FL_CUDA_TUNED];
    memcpy(before, e->tuned[kind], sizeof before);
    if (fused == 0.0 || fl_cuda_set_apart(e, kind, true) != CUBLAS_STATUS_SUCCESS)
        return;
    double apart = tune_kind(t, kind);
    if (apart > 0.0 && apart < fused * worth)
        return;
    fl_cuda_set_apart(e, kind, false);
    memcpy(e->tuned[kind], before, sizeof before);
}

int fl_cuda_tune(fl_engine *e, fletch_error *error) {
    const fl_cuda_calls *cu = &e->cuda->cu;
    tuning               t  = {.e = e, .slot = &e->slots[0]};
    pthread_mutex_lock(&known.lock);
    t.until = fl_clock_ns() + budget_ns;
    for (int kind = 0; kind < FL_CUDA_KINDS; kind++) {
        double seconds = e->first[kind] != NULL ? tune_kind(&t, kind) : 0.0;
        if (fl_cuda_activates(e, kind) && !e->first[kind]->act_apart)
            tune_activation(&t, kind, seconds);
    }
    pthread_mutex_unlock(&known.lock);
    if (t.start != NULL)
        cu->event_destroy(t.start);
    if (t.end != NULL)
        cu->event_destroy(t.end);
    return fl_cuda_awaited(e, fl_cuda_await(e, t.slot->stream, NULL, 0), FLETCH_EPROVIDER, error,
                           "the device failed while products were timed");
}
