/* SPDX-License-Identifier: Apache-2.0 */
/* request.c - a request from what was asked to what was answered.
 *
 * Role    wait.c and submit.c make requests, resolve.c says what they ask for; tokenize.c and block_owner.c move
 *         them on; this file settles their end, so that each is answered once, whatever happens.
 * Method  A request is over when `finished` counts every text, or when it ended early and nothing of
 *         it is under way (tokenize tasks, running). Whoever makes that so under the lock puts it on a list;
 *         the list is delivered after the lock is let go, so callbacks may call back in.
 * Memory  Requests are recycled through model->idle_requests. Threads: see request.h.
 * Proof   tests/stress/test_submit.c, test_schedule.c. */
#include "requests/request.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "requests/open_model.h"
#include "requests/repeats.h"
#include "requests/ticket.h"
#include "results/spans.h"

/* ---- The free list --------------------------------------------------------------------------- */

fl_request *fl_request_new(fletch_model *model, fletch_error *error) {
    fl_model_lock(model);
    fl_request *request = model->idle_requests;
    if (request)
        model->idle_requests = request->after;
    fl_model_unlock(model);
    if (request) {
        request->after = NULL;
        return request;
    }
    request = fl_alloc_zero(1, sizeof *request);
    if (!request) {
        fl_fail_nomem(error, sizeof *request, "a request");
        return NULL;
    }
    fl_cond_init(&request->changed);
    request->model = model;
    return request;
}

void fl_request_recycle(fl_request *request) {
    assert(!request->ended || request->error.code < 0);
    fletch_model  *model   = request->model;
    pthread_cond_t changed = request->changed;
    assert(request->tokenizing == 0 && request->running == 0 && !request->blocks);
    assert(!request->waiting && !request->held && request->ticket == 0);
    fl_answer_drop(&request->answer); /* of one that did not begin: its lists are empty */
    if (request->query_ids)
        fl_bufpool_give(model->inputs, request->query_ids, request->query_capacity);
    if (request->same)
        fl_bufpool_give(model->inputs, request->same, request->same_capacity);
    memset(request, 0, sizeof *request);
    request->model       = model;
    request->changed     = changed;
    request->after       = model->idle_requests;
    model->idle_requests = request;
}

void fl_requests_free(fletch_model *model) {
    assert(!model->live && model->live_count == 0);
    while (model->idle_requests) {
        fl_request *request  = model->idle_requests;
        model->idle_requests = request->after;
        pthread_cond_destroy(&request->changed);
        fl_free(request);
    }
}

/* ---- Progress -------------------------------------------------------------------------------- */

int fl_request_late(fletch_error *error) {
    return fl_fail(error, FLETCH_EDEADLINE, FLETCH_NOWHERE,
                   "the deadline passed before all texts were embedded");
}

int fl_request_unwanted(void *request) {
    const fl_request *r = request;
    return atomic_load(&r->dropped) || fl_clock_ns() >= r->deadline_ns ||
           (r->stop && r->stop(r->stop_user) != 0);
}

int fl_request_given_up(const fl_request *r, fletch_error *error) {
    return fl_clock_ns() >= r->deadline_ns ? fl_request_late(error)
                                           : fl_fail(error, FLETCH_ECANCELLED, FLETCH_NOWHERE,
                                                     "the request was cancelled by its caller");
}

bool fl_request_wants_tokens(const fl_request *request) {
    return !request->ended && !request->held && request->begun < request->texts.count &&
           request->ahead < request->model->window_tokens;
}

void fl_request_begin(fl_request *request) {
    fletch_model *model = request->model;
    assert(!request->over && !request->ended && request->begun == 0 && request->answer.ops);
    request->before = NULL;
    request->after  = model->live;
    if (model->live)
        model->live->before = request;
    model->live = request;
    model->live_count++;
    fl_stats_add(&model->scheduler.stats, FLETCH_COUNT_REQUESTS, 1);
}

FL_LOCKED static void leave_live(fl_request *request) {
    assert(request->over &&
           (request->before ? request->before->after == request : request->model->live == request));
    fletch_model *model = request->model;
    if (request->before)
        request->before->after = request->after;
    else
        model->live = request->after;
    if (request->after)
        request->after->before = request->before;
    request->before = request->after = NULL;
}

/* Counted once, when it is over. */
FL_LOCKED static void count_end(const fl_request *request, uint64_t now) {
    fletch_model *model = request->model;
    fl_histogram_add(&model->scheduler.stats.total, now - request->begin_ns, 1);
    switch (request->error.code) {
    case FLETCH_OK: break;
    case FLETCH_ECANCELLED:
        fl_stats_add(&model->scheduler.stats, FLETCH_COUNT_CANCELLED_REQUESTS, 1);
        break;
    case FLETCH_EDEADLINE:
        fl_stats_add(&model->scheduler.stats, FLETCH_COUNT_EXPIRED_REQUESTS, 1);
        break;
    default: fl_stats_add(&model->scheduler.stats, FLETCH_COUNT_FAILED_REQUESTS, 1);
    }
}

void fl_request_settle(fl_request *request, fl_request **over) {
    assert(request->finished <= request->texts.count && request->begun <= request->texts.count);
    bool quiet    = request->tokenizing == 0 && request->running == 0;
    bool answered = request->finished == request->texts.count || request->ended;
    if (request->over || !quiet || !answered)
        return;
    fletch_model *model = request->model;
    uint64_t      now   = fl_clock_ns();
    request->over       = true;
    assert(!request->held && !request->blocks);
    assert(request->ended ? request->error.code < 0 : request->error.code == FLETCH_OK);
    leave_live(request);
    fl_ticket_drop(request);
    count_end(request, now);
    if (request->error.code == FLETCH_OK)
        fl_scheduler_observe(&model->scheduler, request->lane, now - request->begin_ns);
    if (!request->done) {
        pthread_cond_signal(&request->changed);
        return;
    }
    request->after = *over;
    *over          = request;
}

/* Back to the pool; nothing of it is queued or running. */
FL_LOCKED static void free_block(fl_token_block *block) {
    assert(block->request->blocks);
    fl_request *request = block->request;
    assert(!block->queued && block->unfinished == 0 && block->taken == block->texts);
    fl_token_block **link = &request->blocks;
    while (*link != block)
        link = &(*link)->sibling;
    *link = block->sibling;
    fl_bufpool_give(request->model->inputs, block, block->capacity);
}

/* The texts of a block that never left the queue. */
FL_LOCKED static void drop_queued(fl_token_block *block) {
    assert(block->queued && block->taken < block->texts);
    uint32_t left = block->texts - block->taken;
    fl_queue_remove(&block->request->model->scheduler.queue, block);
    block->taken = block->texts;
    block->unfinished -= left;
    if (block->unfinished == 0)
        free_block(block);
}

void fl_request_end(fl_request *request, const fletch_error *error, fl_request **over) {
    assert(error->code < 0);
    if (request->over)
        return;
    if (!request->ended) {
        request->ended = true;
        request->error = *error;
        atomic_store(&request->dropped, error->where == FLETCH_NOWHERE);
        if (request->held)
            fl_request_end_query(request, over);
        for (fl_token_block *next, *block = request->blocks; block; block = next) {
            next = block->sibling;
            if (block->queued)
                drop_queued(block);
        }
    } else if (request->error.where != FLETCH_NOWHERE && error->where < request->error.where) {
        request->error = *error; /* the first bad text is the one to name */
    }
    fl_request_settle(request, over);
}

void fl_requests_end_all(fletch_model *model, const fletch_error *why, fl_request **over) {
    for (fl_request *next, *request = model->live; request; request = next) {
        next = request->after;
        fl_request_end(request, why, over);
    }
}

void fl_request_end_query(fl_request *parent, fl_request **over) {
    assert(parent->ended && parent->error.code < 0);
    fl_request *query = fl_ticket_find(parent->model, parent->query_ticket);
    if (query)
        fl_request_end(query, &parent->error, over);
}

/* The document that a window is of. */
static size_t document_of(const fl_request *request, size_t window) {
    assert(request->answer.spans);
    const size_t *documents = (const size_t *)(const void *)request->answer.spans->document.data;
    return documents[window];
}

void fl_request_fail_text(fl_request *request, size_t index, const fletch_error *error,
                          fl_request **over) {
    fletch_error named = *error;
    assert(error->code < 0 && index < request->texts.count);
    named.where = request->answer.ops->windows ? document_of(request, index) : index;
    fl_answer_fail(&request->answer, index);
    fl_stats_add(&request->model->scheduler.stats, FLETCH_COUNT_FAILED_TEXTS, 1);
    if (request->options.status)
        request->options.status[index] = error->code;
    else
        fl_request_end(request, &named, over);
}

void fl_request_finish(fl_request *request, size_t texts, fl_request **over) {
    assert(request->texts.count - request->finished >= texts);
    request->finished += texts;
    fl_request_settle(request, over);
    if (request->over || !fl_request_wants_tokens(request))
        return;
    if (request->done)
        fl_model_wake_maintenance(request->model, 0);
    else
        pthread_cond_signal(&request->changed);
}

void fl_token_block_finish(fl_token_block *block, uint32_t k, uint32_t texts) {
    assert(k + texts <= block->taken && block->unfinished >= texts);
    assert(block->request->ahead >= block->cu[k + texts] - block->cu[k]);
    block->request->ahead -= block->cu[k + texts] - block->cu[k];
    block->unfinished -= texts;
    if (block->unfinished == 0)
        free_block(block);
}

/* ---- The answer ------------------------------------------------------------------------------ */

/* Of a request that is over: nobody writes to it any more. */
FL_UNCHECKED static fletch_outcome outcome_of(fl_request *request) {
    assert(request->over);
    fl_repeats_copy(request);
    fletch_outcome outcome = {.error       = request->error,
                              .tokens      = request->tokens,
                              .tokenize_ns = request->tokenize_ns,
                              .queue_ns    = request->queue_ns,
                              .forward_ns  = request->forward_ns,
                              .total_ns    = fl_clock_ns() - request->begin_ns};
    if (outcome.error.code == FLETCH_OK)
        outcome.lists = fl_answer_give(&request->answer);
    fl_answer_drop(&request->answer); /* many blocks, so without the lock */
    return outcome;
}

/* Who delivers: fl_session_close looks whether it was called from a callback. */
static void deliver(fletch_model *model, fl_request *request) {
    assert(request->done);
    fl_delivery    self    = {.thread = pthread_self()};
    fletch_outcome outcome = outcome_of(request);
    fl_model_lock(model);
    self.next         = model->deliveries;
    model->deliveries = &self;
    fl_model_unlock(model);
    request->done(request->user, &outcome);
    fl_model_lock(model);
    fl_delivery **link = &model->deliveries;
    while (*link != &self)
        link = &(*link)->next;
    *link = self.next;
    fl_request_recycle(request);
    fl_model_left(model);
    fl_model_unlock(model);
}

void fl_requests_deliver(fletch_model *model, fl_request *over) {
    while (over) {
        fl_request *next = over->after;
        deliver(model, over);
        over = next;
    }
}
