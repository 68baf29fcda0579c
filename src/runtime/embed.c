/* SPDX-License-Identifier: Apache-2.0 */
/* embed.c - the call that waits: feed, carry a batch if that is quicker, else sleep until over.
 *
 * Role    fletch_embed and its like, after their arguments were checked.
 * Method  The caller's thread tokenises its own texts a window ahead of the engine. A call whose
 *         texts are all queued carries the next batch itself when a slot is free and a batch may
 *         leave: for a lone short text that is the whole way, without waking anyone. A call of more
 *         texts than a batch of callers holds goes to the bulk lane.
 *         A waiting caller never depends on one thread: whoever is free carries, so a call from
 *         inside a callback ends too.
 * Memory  none of its own. Threads: any number of callers.
 * Proof   tests/unit/test_fletch.c, tests/golden/test_vectors.py. */
#include "runtime/embed.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/feed.h"
#include "runtime/maxsim.h"
#include "runtime/open.h"
#include "runtime/repeats.h"
#include "runtime/runner.h"
#include "runtime/runtime.h"
#include "runtime/submit.h"

static void deliver(fletch_model *model, fl_request **over) {
    if (!*over)
        return;
    pthread_mutex_unlock(&model->lock);
    fl_requests_deliver(model, *over);
    *over = NULL;
    pthread_mutex_lock(&model->lock);
}

/* Carry a batch on this thread if one may leave; false: nothing to carry here.
 * (locked) */
static bool carry(fletch_model *model, fl_request **over, uint64_t *due) {
    fl_runner *slot = fl_runner_free(model->replicas, true);
    *due            = UINT64_MAX;
    if (!slot || !fl_runner_take(slot, fl_clock_ns(), due))
        return false;
    fl_runner_run(slot, over);
    return true;
}

/* Whether another thread is to carry: this one has more to tokenise, and a slot's thread is there. */
static bool leaves_it(const fl_request *request) {
    return request->fed < request->texts.count && fl_runner_free(request->model->replicas, false);
}

/* Until the request is over. (locked) */
static void wait_for(fl_request *request) {
    fletch_model *model = request->model;
    fl_request   *over  = NULL;
    if (request->matches)
        fl_late_ask(request, &over);
    while (!request->over) {
        uint64_t due = UINT64_MAX;
        if (fl_feed_wanted(request)) {
            fl_feed(request, &over);
        } else if (leaves_it(request) || !carry(model, &over, &due)) {
            if (due == UINT64_MAX) /* else this thread carries when company is late */
                fl_dispatch(model);
            request->waiting = true;
            fl_cond_wait_until(&request->changed, &model->lock, due);
            request->waiting = false;
        }
        deliver(model, &over);
    }
}

int fl_runtime_wait(fletch_model *model, const fletch_request *asked, fletch_lists **lists,
                    fletch_error *error) {
    fl_request *request = fl_request_new(model, error);
    if (!request)
        return FLETCH_ENOMEM;
    fl_request_fill(request, asked);
    request->carries = true;
    int  status      = fl_request_resolve(request, error);
    bool begins      = status == FLETCH_OK && asked->texts.count > 0;
    pthread_mutex_lock(&model->lock);
    if (begins)
        status = fl_runtime_admit(model, error);
    if (begins && status == FLETCH_OK) {
        request->lane =
            asked->texts.count > model->short_call ? FLETCH_LANE_BULK : FLETCH_LANE_INTERACTIVE;
        fl_request_begin(request);
        wait_for(request);
        pthread_mutex_unlock(&model->lock);
        fl_repeats_copy(request);
        if (request->error.code < 0 || request->matches)
            fl_request_drop_lists(request);
        pthread_mutex_lock(&model->lock);
        status = request->error.code;
        if (status < 0 && error)
            *error = request->error;
        fl_model_left(model);
    }
    if (status == FLETCH_OK && lists && !request->matches) {
        *lists         = &request->lists->shown;
        request->lists = NULL;
    }
    fl_request_recycle(request);
    pthread_mutex_unlock(&model->lock);
    return status;
}
