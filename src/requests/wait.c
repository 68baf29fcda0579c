/* SPDX-License-Identifier: Apache-2.0 */
/* wait.c - the call that waits: tokenise, run a batch if that is quicker, else sleep until over.
 *
 * Role    fletch_embed and its like, after their arguments were checked.
 * Method  The caller's thread tokenises its own texts a window ahead of the engine. A call whose
 *         texts are all queued runs the next batch itself when a worker is free and a batch may
 *         leave: for a lone short text that is the whole way, without waking anyone. A call of more
 *         texts than a batch of callers holds goes to the bulk lane.
 *         A waiting caller never depends on one thread: whoever is free runs, so a call from
 *         inside a callback ends too.
 * Memory  none of its own. Threads: any number of callers.
 * Proof   tests/unit/test_fletch.c, tests/golden/test_vectors.py. */
#include "requests/wait.h"

#include <assert.h>

#include "base/clock.h"
#include "requests/open_model.h"
#include "requests/query_first.h"
#include "requests/repeats.h"
#include "requests/resolve.h"
#include "requests/submit.h"
#include "requests/tokenize.h"
#include "scheduler/worker.h"

FL_LOCKED static void deliver(fletch_model *model, fl_request **over) {
    if (!*over)
        return;
    fl_model_unlock(model);
    fl_requests_deliver(model, *over);
    *over = NULL;
    fl_model_lock(model);
}

/* Run a batch on this thread if one may leave; false: nothing to run here.
 * */
FL_LOCKED static bool run_on_caller(fletch_model *model, fl_request **over, uint64_t *due) {
    fl_worker *worker = fl_worker_find_free(model->scheduler.replicas, true);
    *due              = UINT64_MAX;
    if (!worker || !fl_worker_take(worker, fl_clock_ns(), due))
        return false;
    fl_worker_run(worker, over);
    return true;
}

/* Whether another thread is to run: this one has more to tokenise, and a worker's thread is there. */
FL_LOCKED static bool leaves_it(const fl_request *request) {
    return request->begun < request->texts.count &&
           fl_worker_find_free(request->model->scheduler.replicas, false);
}

/* Until the request is over. */
FL_LOCKED static void wait_for(fl_request *request) {
    assert(!request->done && request->caller_runs);
    fletch_model *model = request->model;
    fl_request   *over  = NULL;
    if (request->answer.ops->query_first)
        fl_query_ask(request, &over);
    while (!request->over) {
        uint64_t due = UINT64_MAX;
        if (fl_request_wants_tokens(request)) {
            fl_tokenize_next(request, &over);
        } else if (leaves_it(request) || !run_on_caller(model, &over, &due)) {
            if (due == UINT64_MAX) /* else this thread runs it when others are late */
                fl_scheduler_dispatch(&model->scheduler);
            request->waiting = true;
            fl_cond_wait_until(&request->changed, &model->scheduler.lock, due);
            request->waiting = false;
        }
        deliver(model, &over);
    }
}

/* Of a request that is over: nobody writes to it any more. Its lists, if it has any; else why it ended. */
FL_UNCHECKED static int outcome_of(fl_request *request, fletch_lists **lists, fletch_error *error) {
    assert(request->over || request->texts.count == 0);
    fl_repeats_copy(request);
    int           status = request->error.code;
    fletch_lists *given  = status == FLETCH_OK ? fl_answer_give(&request->answer) : NULL;
    if (status < 0 && error)
        *error = request->error;
    if (given) /* of one kind; those of several are where the caller wants them */
        *lists = given;
    fl_answer_drop(&request->answer); /* many blocks, so without the lock */
    return status;
}

int fl_requests_wait(fletch_model *model, const fletch_request *asked, fletch_lists **lists,
                     fletch_error *error) {
    fl_request *request = fl_request_new(model, error);
    if (!request)
        return FLETCH_ENOMEM;
    fl_request_fill(request, asked);
    request->caller_runs = true;
    int  status          = fl_request_resolve(request, asked, error);
    bool begins          = status == FLETCH_OK && asked->texts.count > 0;
    fl_model_lock(model);
    if (begins)
        status = fl_requests_admit(model, error);
    begins = begins && status == FLETCH_OK;
    if (begins) {
        request->lane =
            asked->texts.count > model->short_call ? FLETCH_LANE_BULK : FLETCH_LANE_INTERACTIVE;
        fl_request_begin(request);
        wait_for(request);
    }
    fl_model_unlock(model);
    if (status == FLETCH_OK)
        status = outcome_of(request, lists, error);
    fl_model_lock(model);
    if (begins)
        fl_model_left(model);
    fl_request_recycle(request);
    fl_model_unlock(model);
    return status;
}
