/* SPDX-License-Identifier: Apache-2.0 */
/* rounds.c - drive an engine through engine.h as the runtime does, and nothing around it.
 *
 * Method  Each slot has a thread that forwards the same batch again and again until time is up, so that
 *         one batch is copied while another computes. Ids are random, lengths equal: what counts is the
 *         engine. The rows come back to the host, as engine.h asks of every forward. */
#include <pthread.h>

#include "../measure.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "engines/engine.h"
#include "model/model.h"
#include "rounds.h"

enum { TEXTS_MAX = 4096, SLOTS_MAX = 64, TIMES_MAX = 200000 };

struct rounds {
    fl_model            *model; /* owned */
    const fl_engine_ops *ops;
    fl_engine           *engine; /* owned */
    fl_engine_info       info;
    uint32_t             batch_tokens, longest, width, vocab;
    int32_t             *ids;   /* owned [batch_tokens] */
    uint32_t            *cu;    /* owned [TEXTS_MAX + 1] */
    double              *times; /* owned [TIMES_MAX] */
};

/* One thread, one slot. */
typedef struct lane {
    rounds      *r;
    fl_batch     batch;
    uint32_t     slot;
    uint64_t     end; /* fl_clock_ns to stop at */
    uint64_t     calls;
    float       *rows;  /* owned */
    size_t       bytes; /* of rows */
    float      **where; /* owned [texts] */
    double      *times; /* borrowed, or NULL */
    int          status;
    fletch_error error;
} lane;

void tally_times(tally *t, double *times, size_t count) {
    qsort(times, count, sizeof *times, by_value);
    t->p50 = count ? times[count / 2] : 0;
    t->p99 = count ? times[count * 99 / 100] : 0;
}

int rounds_open(rounds **out, const char *folder, const fl_config *config, fletch_error *error) {
    fl_model_options model = {.pooling = ""};
    char             provider[32];
    rounds          *r = fl_alloc_zero(1, sizeof *r);
    *out               = r;
    fl_config_list_item(config, FL_KEY_PROVIDER_ORDER, 0, provider, sizeof provider);
    r->ops = fl_engine_find(provider);
    if (!r->ops)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "provider.order %s: fletch has no engine of that name", provider);
    int status = fl_model_open(&r->model, folder, &model, error);
    if (status < 0)
        return status;
    const fl_encoder_desc *d  = &r->model->encoder.desc;
    r->batch_tokens           = (uint32_t)fl_config_int(config, FL_KEY_BATCH_MAX_TOKENS);
    r->longest                = d->positions < r->batch_tokens ? d->positions : r->batch_tokens;
    r->width                  = fl_encoder_width(&r->model->encoder);
    r->vocab                  = d->vocab;
    r->ids                    = fl_alloc_array(r->batch_tokens, sizeof *r->ids);
    r->cu                     = fl_alloc_array(TEXTS_MAX + 1, sizeof *r->cu);
    r->times                  = fl_alloc_array(TIMES_MAX, sizeof *r->times);
    fl_engine_options options = {.provider     = provider,
                                 .folder       = folder,
                                 .threads      = 1,
                                 .batch_tokens = r->batch_tokens,
                                 .batch_texts  = TEXTS_MAX,
                                 .max_length   = r->longest,
                                 .isa          = fl_config_text(config, FL_KEY_CPU_ISA),
                                 .precision    = fl_config_text(config, FL_KEY_PROVIDER_PRECISION),
                                 .deterministic =
                                     fl_config_bool(config, FL_KEY_PROVIDER_DETERMINISTIC),
                                 .config = config,
                                 .log    = fl_config_log(config)};
    status                    = r->ops->open(&r->engine, &r->model->encoder, &options, error);
    if (status == FLETCH_OK && r->ops->warm)
        status = r->ops->warm(r->engine, error);
    if (status == FLETCH_OK)
        r->ops->info(r->engine, &r->info);
    /* As the runtime does: what the engine gains by, unless a number was asked for. */
    if (!fl_config_is_set(config, FL_KEY_BATCH_MAX_TOKENS) && r->info.best_tokens > 0 &&
        r->info.best_tokens < r->batch_tokens)
        r->batch_tokens = r->info.best_tokens;
    return status;
}

void rounds_close(rounds *r) {
    if (!r)
        return;
    if (r->engine)
        r->ops->close(r->engine);
    fl_model_close(r->model);
    fl_free(r->ids);
    fl_free(r->cu);
    fl_free(r->times);
    fl_free(r);
}

static void *drive(void *user) {
    lane *l = user;
    do {
        uint64_t start = fl_clock_ns();
        l->status      = l->r->ops->forward(l->r->engine, l->slot, &l->batch, &l->error);
        if (l->times && l->calls < TIMES_MAX)
            l->times[l->calls] = 1e-9 * (double)(fl_clock_ns() - start);
        l->calls++;
    } while (l->status == FLETCH_OK && fl_clock_ns() < l->end);
    return NULL;
}

/* Rows where the runtime has them: in a buffer of the engine's, which a device writes by itself. */
static void prepare(lane *l, rounds *r, uint32_t slot, uint32_t texts, uint32_t length) {
    memset(l, 0, sizeof *l);
    l->r     = r;
    l->slot  = slot;
    l->bytes = (size_t)texts * r->width * sizeof *l->rows;
    l->rows  = r->ops->host_alloc ? r->ops->host_alloc(l->bytes) : fl_big_alloc(l->bytes);
    l->where = fl_alloc_array(texts, sizeof *l->where);
    l->batch = (fl_batch){
        .ids = r->ids, .cu = r->cu, .texts = texts, .tokens = texts * length, .rows = l->where};
    for (uint32_t i = 0; i < texts; i++)
        l->where[i] = l->rows + (size_t)i * r->width;
}

static void give_back(lane *l) {
    void (*free_rows)(void *, size_t) = l->r->ops->host_free;
    (free_rows ? free_rows : fl_big_free)(l->rows, l->bytes);
    fl_free(l->where);
}

int rounds_run(rounds *r, uint32_t length, uint32_t texts, double seconds, tally *out,
               fletch_error *error) {
    static lane lanes[SLOTS_MAX];
    pthread_t   thread[SLOTS_MAX];
    const bool  one    = texts == 1;
    uint32_t    most   = r->info.most_tokens && r->info.most_tokens < r->batch_tokens
                             ? r->info.most_tokens
                             : r->batch_tokens;
    uint32_t    slots  = one ? 1 : r->info.slots < SLOTS_MAX ? r->info.slots : SLOTS_MAX;
    int         status = FLETCH_OK;
    if (length > r->longest || length > most)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE, "texts of %u tokens: at most %u",
                       length, r->longest < most ? r->longest : most);
    if (texts == 0)
        texts = most / length < TEXTS_MAX ? most / length : TEXTS_MAX;
    for (uint32_t i = 0, draw = 12345; i < texts * length;
         i++, draw            = draw * 1664525U + 1013904223U)
        r->ids[i] = (int32_t)((draw >> 8) % r->vocab);
    for (uint32_t i = 0; i <= texts; i++)
        r->cu[i] = i * length;
    for (uint32_t s = 0; s < slots; s++) {
        prepare(&lanes[s], r, s, texts, length);
        drive(&lanes[s]); /* one round, not counted: plans and graphs are made */
    }
    double   cpu   = cpu_seconds();
    uint64_t start = fl_clock_ns(), end = start + (uint64_t)(seconds * 1e9);
    for (uint32_t s = 0; s < slots; s++) {
        lanes[s].calls = 0;
        lanes[s].end   = end;
        lanes[s].times = s == 0 ? r->times : NULL;
        pthread_create(&thread[s], NULL, drive, &lanes[s]);
    }
    memset(out, 0, sizeof *out);
    for (uint32_t s = 0; s < slots; s++) {
        pthread_join(thread[s], NULL);
        out->calls += lanes[s].calls;
        if (lanes[s].status < 0) {
            status = lanes[s].status;
            *error = lanes[s].error;
        }
    }
    out->seconds     = 1e-9 * (double)(fl_clock_ns() - start);
    out->cpu_seconds = cpu_seconds() - cpu;
    for (uint32_t s = 0; s < slots; s++)
        give_back(&lanes[s]);
    out->texts  = out->calls * texts;
    out->tokens = out->texts * length;
    tally_times(out, r->times, lanes[0].calls < TIMES_MAX ? lanes[0].calls : TIMES_MAX);
    return status;
}
