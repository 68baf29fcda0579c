/* SPDX-License-Identifier: Apache-2.0 */
/* maintenance.c - what nobody waits for: deadlines, and tokenising what was submitted.
 *
 * Role    Submitted requests beyond their first texts are tokenised here; late ones are ended.
 * Method  One loop: tokenise what has room in its window, end what is late, sleep until the next
 *         deadline or until woken. An idle model does not wake it.
 * Memory  none. Threads: see request.h.
 * Proof   tests/stress/test_submit.c, test_schedule.c. */
#include "requests/maintenance.h"

#include <assert.h>

#include "base/clock.h"
#include "base/error.h"
#include "requests/open_model.h"
#include "requests/tokenize.h"

static const uint64_t coalesce_ns = 500000U; /* deadlines this near are met together */

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

static void *maintain(void *arg) {
    fletch_model *model = arg;
    fl_request   *over  = NULL;
    if (model->scheduler.trace)
        fl_trace_thread(model->scheduler.trace, "housekeeping");
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
        fl_cond_wait_until(&model->maintenance_wake, &model->scheduler.lock, next);
        model->maintenance_due = 0;
    }
    fl_model_unlock(model);
    return NULL;
}

int fl_maintenance_start(fletch_model *model, fletch_error *error) {
    assert(!model->maintenance_started);
    int status =
        fl_thread_start(&model->maintenance_thread, "fletch-maint", maintain, model, error);
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
