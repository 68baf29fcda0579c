/* SPDX-License-Identifier: Apache-2.0 */
/* submit.c - requests that do not wait, and the tickets that name them.
 *
 * Role    fletch_submit and fletch_cancel, after their arguments were checked.
 * Method  The first texts are tokenised on the caller's thread (so that a server's threads share that
 *         work), the rest by the maintenance thread as the window moves on. A caller with time to
 *         spare runs a short request itself when it is the only one: waking a worker, and being
 *         woken by it, would take longer than all the rest of a request but the engine. A ticket is an index in
 *         a table and a generation: cancelling is a lookup, and an old ticket finds nothing.
 * Memory  The table doubles when it is full; entries are used again. Threads: see request.h.
 * Proof   tests/stress/test_submit.c, test_schedule.c. */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "requests/maintenance.h"
#include "requests/open_model.h"
#include "requests/query_first.h"
#include "requests/submit.h"
#include "requests/tokenize.h"
#include "scheduler/worker.h"

enum { TICKETS_FIRST = 64 };
#define NO_TICKET UINT32_MAX /* an enum constant is an int */

/* ---- Tickets --------------------------------------------------------------------------------- */

FL_LOCKED static int grow_tickets(fletch_model *model, fletch_error *error) {
    uint32_t         capacity = model->ticket_capacity ? 2 * model->ticket_capacity : TICKETS_FIRST;
    fl_ticket_entry *tickets  = fl_realloc_array(model->tickets, capacity, sizeof *tickets);
    if (!tickets)
        return fl_fail_nomem(error, capacity * sizeof *tickets, "the table of requests");
    for (uint32_t i = model->ticket_capacity; i < capacity; i++)
        tickets[i] =
            (fl_ticket_entry){.generation = 1, .next_free = i + 1 < capacity ? i + 1 : NO_TICKET};
    model->ticket_free     = model->ticket_capacity;
    model->tickets         = tickets;
    model->ticket_capacity = capacity;
    return FLETCH_OK;
}

FL_LOCKED static int take_ticket(fl_request *request, fletch_error *error) {
    fletch_model *model = request->model;
    if (model->ticket_capacity == 0 || model->ticket_free == NO_TICKET) {
        FL_TRY(grow_tickets(model, error));
    }
    uint32_t         index = model->ticket_free;
    fl_ticket_entry *entry = &model->tickets[index];
    model->ticket_free     = entry->next_free;
    entry->request         = request;
    request->ticket        = (fletch_ticket)entry->generation << 32 | index;
    return FLETCH_OK;
}

void fl_ticket_drop(fl_request *request) {
    if (!request->ticket)
        return;
    fletch_model *model = request->model;
    uint32_t      index = (uint32_t)request->ticket;
    assert(index < model->ticket_capacity && model->tickets[index].request == request);
    fl_ticket_entry *entry = &model->tickets[index];
    entry->request         = NULL;
    entry->generation  = entry->generation == UINT32_MAX ? 1 : entry->generation + 1; /* 0: none */
    entry->next_free   = model->ticket_free;
    model->ticket_free = index;
    request->ticket    = 0;
}

fl_request *fl_ticket_find(const fletch_model *model, fletch_ticket ticket) {
    uint32_t    index = (uint32_t)ticket;
    fl_request *request =
        ticket && index < model->ticket_capacity ? model->tickets[index].request : NULL;
    return request && request->ticket == ticket ? request : NULL;
}

/* ---- Submit ---------------------------------------------------------------------------------- */

int fl_runtime_admit(const fletch_model *model, fletch_error *error) {
    if (model->closing)
        return fl_fail(error, FLETCH_ECANCELLED, FLETCH_NOWHERE, "the model is being closed");
    if (!fl_replicas_usable(model->replicas))
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "no engine is running: each failed and cannot be opened at "
                       "the moment; it is "
                       "tried again, see the log");
    return FLETCH_OK;
}

/* Tokens of one lane or the other that wait. */
FL_LOCKED static uint64_t waiting_tokens(const fletch_model *model) {
    return model->queue.lane[0].tokens + model->queue.lane[1].tokens;
}

/* Whether there is room for one more request. */
FL_LOCKED static int admit(fletch_model *model, fletch_error *error) {
    FL_TRY(fl_runtime_admit(model, error));
    if (waiting_tokens(model) <= model->queue_limit)
        return FLETCH_OK;
    fl_stats_add(&model->stats, FLETCH_COUNT_REJECTED_REQUESTS, 1);
    return fl_fail(error, FLETCH_EBUSY, FLETCH_NOWHERE,
                   "%llu tokens are waiting, more than server.max_queue_tokens (%llu); try again "
                   "later",
                   (unsigned long long)waiting_tokens(model),
                   (unsigned long long)model->queue_limit);
}

FL_LOCKED static int begin(fl_request *request, fletch_error *error) {
    fletch_model *model = request->model;
    FL_TRY(admit(model, error));
    FL_TRY(take_ticket(request, error));
    fl_request_begin(request);
    if (request->deadline_ns != UINT64_MAX)
        fl_maintenance_wake(model, request->deadline_ns);
    return FLETCH_OK;
}

/* Whether this thread is to run what it has tokenised: the whole of the only request there is, if it can
 * spare the time, as the engine went lately. With others about, a worker runs: texts that this
 * thread has yet to bring would share no batch with what it runs. */
FL_LOCKED static bool caller_may_run(const fl_request *request, uint32_t spare_us) {
    const fletch_model *model = request->model;
    bool                alone = model->live == request && !request->after && !model->failed_batches;
    double              needs = model->adapt.token_ns * (double)request->ahead;
    return alone && request->begun == request->texts.count && needs <= 1e3 * (double)spare_us;
}

/* See to a request whose last block has woken nobody. (unlocks while it runs) */
FL_LOCKED static void run_on_caller(fl_request *request, uint32_t spare_us, fl_request **over) {
    fletch_model *model  = request->model;
    fl_worker    *worker = NULL;
    uint64_t      due    = UINT64_MAX;
    request->caller_runs = false; /* the maintenance thread may tokenise the rest */
    if (caller_may_run(request, spare_us))
        worker = fl_worker_find_free(model->replicas, true);
    if (worker && fl_worker_take(worker, fl_clock_ns(), &due))
        fl_worker_run(worker, over);
    else
        fl_dispatch(model);
}

int fl_runtime_submit(fletch_model *model, const fletch_request *asked, fletch_done_fn done,
                      void *user, fletch_ticket *ticket, fletch_error *error) {
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
    request->caller_runs = asked->spare_us > 0;
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
            fl_maintenance_wake(model, 0);
    } else if (!request->over) {
        fl_tokenize_next(request,
                         &over); /* while it tokenises it is not over: `request` stays ours */
        if (!request->over && fl_request_wants_tokens(request))
            fl_maintenance_wake(model, 0);
        if (!request->over && request->caller_runs)
            run_on_caller(request, asked->spare_us, &over);
    }
    fl_model_unlock(model);
    fl_requests_deliver(model, over);
    return FLETCH_OK;
}

int fl_runtime_cancel(fletch_model *model, fletch_ticket ticket) {
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
