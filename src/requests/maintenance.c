/* SPDX-License-Identifier: Apache-2.0 */
/* maintenance.c - what nobody waits for: deadlines and tokenising, by a thread; memory, by whoever runs a batch.
 *
 * Role    Submitted requests beyond their first texts are tokenised here; late ones are ended; while
 *         batches run, memory is looked at a few times a second; when it grows scarce, kept buffers and
 *         the pages of the weights' files are given back.
 * Method  One loop: tokenise what has room in its window, end what is late, sleep until the next
 *         deadline or until woken. An idle model does not wake it.
 * Memory  none. Threads: see request.h.
 * Proof   tests/stress/test_submit.c, test_schedule.c. */
#include "requests/maintenance.h"
#include "base/clock.h"
#include "base/error.h"
#include "requests/open_model.h"
#include "requests/tokenize.h"

static const uint64_t look_ns     = 250000000U; /* between two looks at memory */
static const uint64_t coalesce_ns = 500000U;    /* deadlines this near are met together */

void fl_runtime_trim(fletch_model *model, const char *why) {
    uint64_t freed = fl_bufpool_trim(model->inputs, 0) + fl_bufpool_trim(model->outputs, 0);
    freed += model->cache ? fl_cache_empty(model->cache) : 0;
    fl_model_release_pages(model->model); /* word vectors are read in place: each comes again */
    fl_stats_add(&model->stats, FLETCH_COUNT_PRESSURE_CLEANUPS, 1);
    fl_log_write(fl_config_log(model->config), FL_LOG_DEBUG, "%s: %.1f MB of buffers given back",
                 why, (double)freed / 1e6);
}

/* End what is late; returns the next deadline. */
FL_LOCKED static uint64_t expire(fletch_model *model, uint64_t now, fl_request **over) {
    uint64_t     next = UINT64_MAX;
    fletch_error late;
    (void)fl_request_late(&late);
    for (fl_request *after, *request = model->live; request; request = after) {
        after = request->after;
        if (request->ended || request->deadline_ns == UINT64_MAX)
            continue;
        if (request->deadline_ns <= now + coalesce_ns)
            fl_request_end(request, &late, over);
        else if (request->deadline_ns < next)
            next = request->deadline_ns;
    }
    return next;
}

void fl_runtime_look(fletch_model *model, uint64_t now) {
    uint_fast64_t last = atomic_load_explicit(&model->looked_ns, memory_order_relaxed);
    char          why[256];
    if (now - last >= look_ns && atomic_compare_exchange_strong(&model->looked_ns, &last, now) &&
        fl_memory_pressure(model->memory, why, sizeof why))
        fl_runtime_trim(model, why);
}

static void *maintain(void *arg) {
    fletch_model *model = arg;
    fl_request   *over  = NULL;
    if (model->trace)
        fl_trace_thread(model->trace, "housekeeping");
    fl_model_lock(model);
    while (!model->maintenance_stop) {
        bool     begun = fl_tokenize_any(model, false, &over);
        uint64_t now   = fl_clock_ns();
        uint64_t next  = expire(model, now, &over);
        if (over) {
            fl_model_unlock(model);
            fl_requests_deliver(model, over);
            over = NULL;
            fl_model_lock(model);
            continue;
        }
        if (begun)
            continue;
        model->maintenance_due = next;
        fl_cond_wait_until(&model->maintenance_wake, &model->lock, next);
        model->maintenance_due = 0;
    }
    fl_model_unlock(model);
    return NULL;
}

void fl_maintenance_wake(fletch_model *model, uint64_t due_ns) {
    if (model->maintenance_started && due_ns < model->maintenance_due)
        pthread_cond_signal(&model->maintenance_wake);
}

int fl_maintenance_start(fletch_model *model, fletch_error *error) {
    int status =
        fl_thread_start(&model->maintenance_thread, "fletch-keeper", maintain, model, error);
    model->maintenance_started = status == FLETCH_OK;
    return status;
}

void fl_maintenance_stop(fletch_model *model) {
    if (!model->maintenance_started)
        return;
    fl_model_lock(model);
    model->maintenance_stop = true;
    pthread_cond_signal(&model->maintenance_wake);
    fl_model_unlock(model);
    pthread_join(model->maintenance_thread, NULL);
    model->maintenance_started = false;
}
