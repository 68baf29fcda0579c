/* SPDX-License-Identifier: Apache-2.0 */
/* submit.c - requests that do not wait.
 *
 * Role    fletch_submit and fletch_cancel, after their arguments were checked.
 * Method  The first texts are tokenised on the caller's thread (so that a server's threads share that
 *         work), the rest by the maintenance thread as the window moves on. A caller with time to
 *         spare runs a short request itself when it is the only one: waking a worker, and being
 *         woken by it, would take longer than all the rest of a request but the engine.
 * Memory  none of its own. Threads: see request.h.
 * Proof   tests/stress/test_submit.c, test_schedule.c. */
#include "requests/submit.h"

#include <assert.h>

#include "base/clock.h"
#include "base/error.h"
#include "requests/open_model.h"
#include "requests/query_first.h"
#include "requests/resolve.h"
#include "requests/ticket.h"
#include "requests/tokenize.h"
#include "scheduler/worker.h"

/* ---- Submit ---------------------------------------------------------------------------------- */

int fl_requests_admit(const fletch_model *model, fletch_error *error) {
    if (model->closing)
        return fl_fail(error, FLETCH_ECANCELLED, FLETCH_NOWHERE, "the model is being closed");
    if (!fl_replicas_usable(model->scheduler.replicas))
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "no engine is running: all have failed and are being reopened, see the log");
    return FLETCH_OK;
}

/* Tokens of one lane or the other that wait. */
FL_LOCKED static uint64_t waiting_tokens(const fletch_model *model) {
    return model->scheduler.queue.lane[0].tokens + model->scheduler.queue.lane[1].tokens;
}

/* Whether there is room for one more request. */
FL_LOCKED static int admit(fletch_model *model, fletch_error *error) {
    FL_TRY(fl_requests_admit(model, error));
    if (waiting_tokens(model) <= model->queue_limit)
        return FLETCH_OK;
    fl_stats_add(&model->scheduler.stats, FLETCH_COUNT_REJECTED_REQUESTS, 1);
    return fl_fail(error, FLETCH_EBUSY, FLETCH_NOWHERE,
                   "%llu tokens are queued, more than server.max_queue_tokens (%llu); retry later",
                   (unsigned long long)waiting_tokens(model),
                   (unsigned long long)model->queue_limit);
}

FL_LOCKED static int begin(fl_request *request, fletch_error *error) {
    fletch_model *model = request->model;
    FL_TRY(admit(model, error));
    FL_TRY(fl_ticket_take(request, error));
    fl_request_begin(request);
    if (request->deadline_ns != UINT64_MAX)
        fl_model_wake_maintenance(model, request->deadline_ns);
    return FLETCH_OK;
}

/* Whether this thread is to run what it has tokenised: the whole of the only request there is, if it can
 * spare the time, as the engine went lately. With others about, a worker runs: texts that this
 * thread has yet to bring would share no batch with what it runs. */
FL_LOCKED static bool caller_may_run(const fl_request *request, uint32_t inline_us) {
    assert(!request->over);
    const fletch_model *model = request->model;
    bool   alone = model->live == request && !request->after && !model->scheduler.failed_batches;
    double needs = model->scheduler.adapt.token_ns * (double)request->ahead;
    return alone && request->begun == request->texts.count && needs <= 1e3 * (double)inline_us;
}

/* See to a request whose last block has woken nobody. (unlocks while it runs) */
FL_LOCKED static void run_on_caller(fl_request *request, uint32_t inline_us, fl_request **over) {
    assert(request->caller_runs);
    fletch_model *model  = request->model;
    fl_worker    *worker = NULL;
    uint64_t      due    = UINT64_MAX;
    request->caller_runs = false; /* the maintenance thread may tokenise the rest */
    if (caller_may_run(request, inline_us))
        worker = fl_worker_find_free(model->scheduler.replicas, true);
    if (worker && fl_worker_take(worker, fl_clock_ns(), &due))
        fl_worker_run(worker, over);
    else
        fl_scheduler_dispatch(&model->scheduler);
}

int fl_requests_submit(fletch_model *model, const fletch_request *asked, fletch_done_fn done,
                       void *user, fletch_ticket *ticket, fletch_error *error) {
    assert(done && asked->options);
    fl_model_lock(model);
    int status = admit(model, error); /* before the texts are looked at: it may be in vain */
    fl_model_unlock(model);
    FL_TRY(status);
    fl_request *request = fl_request_new(model, error);
    fl_request *over    = NULL;
    if (!request)
        return FLETCH_ENOMEM;
    fl_request_fill(request, asked);
    request->done        = done;
    request->user        = user;
    request->caller_runs = asked->inline_us > 0;
    status               = fl_request_resolve(request, asked, error);
    fl_model_lock(model);
    if (status == FLETCH_OK)
        status = begin(request, error);
    if (status < 0) {
        fl_request_recycle(request);
        fl_model_unlock(model);
        return status;
    }
    if (ticket) /* before anyone can answer: done may be called while we tokenise */
        *ticket = request->ticket;
    fl_request_settle(request, &over); /* zero texts are answered here */
    if (!request->over && request->answer.ops->query_first) {
        request->caller_runs = false;
        request->tokenizing++; /* keeps it alive whatever becomes of its query meanwhile */
        fl_query_ask(request, &over);
        request->tokenizing--;
        fl_request_settle(request, &over);
        if (!request->over && fl_request_wants_tokens(request))
            fl_model_wake_maintenance(model, 0);
    } else if (!request->over) {
        fl_tokenize_next(request,
                         &over); /* while it tokenises it is not over: `request` stays ours */
        if (!request->over && fl_request_wants_tokens(request))
            fl_model_wake_maintenance(model, 0);
        if (!request->over && request->caller_runs)
            run_on_caller(request, asked->inline_us, &over);
    }
    fl_model_unlock(model);
    fl_requests_deliver(model, over);
    return FLETCH_OK;
}

int fl_requests_cancel(fletch_model *model, fletch_ticket ticket) {
    fl_request  *over = NULL;
    fletch_error why;
    fl_fail(&why, FLETCH_ECANCELLED, FLETCH_NOWHERE, "the request was cancelled");
    fl_model_lock(model);
    fl_request *request = fl_ticket_find(model, ticket);
    bool        found   = request && !request->ended;
    if (found)
        fl_request_end(request, &why, &over);
    fl_model_unlock(model);
    fl_requests_deliver(model, over);
    return found ? FLETCH_OK : FLETCH_ENOTFOUND;
}
