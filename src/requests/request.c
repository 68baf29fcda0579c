/* SPDX-License-Identifier: Apache-2.0 */
/* request.c - a request from what was asked to what was answered.
 *
 * Role    wait.c and submit.c make requests; tokenize.c and worker.c move them on; this file resolves
 *         them and settles their end, so that each is answered once, whatever happens.
 * Method  A request is over when `finished` counts every text, or when it ended early and nothing of
 *         it is under way (tokenize tasks, running). Whoever makes that so under the lock puts it on a list;
 *         the list is delivered after the lock is let go, so callbacks may call back in.
 * Memory  Requests are recycled through model->idle_requests. Threads: see request.h.
 * Proof   tests/stress/test_submit.c, test_schedule.c. */
#include "requests/request.h"
#include "requests/maintenance.h"
#include "requests/open_model.h"
#include "requests/query_first.h"
#include "requests/repeats.h"
#include "requests/span_windows.h"
#include "requests/submit.h"
#include "requests/tokenize.h"
#include "session/open.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"

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
    while (model->idle_requests) {
        fl_request *request  = model->idle_requests;
        model->idle_requests = request->after;
        pthread_cond_destroy(&request->changed);
        fl_free(request);
    }
}

/* ---- What is asked --------------------------------------------------------------------------- */

void fl_request_fill(fl_request *request, const fletch_request *asked) {
    request->texts       = asked->texts;
    request->token_ids   = asked->ids;
    request->are_ids     = asked->are_ids;
    request->options     = *asked->options;
    request->lane        = asked->lane;
    request->owner       = asked->owner;
    request->weight      = asked->weight < 1               ? 1
                           : asked->weight > FL_WEIGHT_MAX ? FL_WEIGHT_MAX
                                                           : asked->weight;
    request->query       = asked->query;
    request->query_size  = asked->query_size;
    request->stop        = asked->stop;
    request->stop_user   = asked->stop_user;
    request->begin_ns    = fl_clock_ns();
    request->deadline_ns = asked->deadline_ms
                               ? request->begin_ns + (uint64_t)asked->deadline_ms * 1000000U
                               : UINT64_MAX;
    if (asked->second)
        request->second = *asked->second;
    request->pairs = asked->query || asked->second;
}

/* The number of tokens a prompt takes at the head of every text: its ids with
 * specials, less the last one if that is special, as sentence-transformers counts them for
 * include_prompt=false. */
static int count_prompt(fl_request *r, fletch_error *error) {
    const fl_tokenizer *tokenizer = r->model->tokenizer;
    fl_tokenize_task   *task      = fl_tokenize_task_take(r->model, fl_request_unwanted, r, error);
    if (!task)
        return FLETCH_ENOMEM;
    uint32_t special  = fl_tokenizer_special_count(tokenizer);
    size_t   capacity = r->encode.max_length > special ? r->encode.max_length : special;
    int32_t *ids      = fl_alloc_array(capacity, sizeof *ids);
    size_t   tokens   = 0;
    bool     cut      = false;
    int      status   = FLETCH_OK;
    if (!ids)
        status = fl_fail_nomem(error, capacity * sizeof *ids, "the tokens of a prompt");
    if (status == FLETCH_OK)
        status =
            fl_tokenizer_encode(tokenizer, fl_tokenize_task_scratch(task), r->prompt,
                                r->prompt_size, &r->encode, ids, capacity, &tokens, &cut, error);
    fl_tokenize_task_give(r->model, task);
    if (status == FLETCH_ECANCELLED)
        status = fl_request_given_up(r, error);
    if (status == FLETCH_OK)
        r->prompt_skip =
            (uint32_t)tokens - (tokens > 0 && fl_tokenizer_is_special(tokenizer, ids[tokens - 1]));
    fl_free(ids);
    return status;
}

static int resolve_prompt(fl_request *r, fletch_error *error) {
    const fletch_embed_options *options = &r->options;
    r->prompt                           = r->model->prompt;
    if (r->answer.ops
            ->query_first) { /* what the call says is the query's, and checked all the same */
        if (options->prompt_name)
            FL_TRY(fl_runtime_prompt(r->model, options->prompt_name, &r->prompt, error));
        r->prompt = fl_query_document_prompt(r->model);
    } else if (options->prompt) {
        r->prompt = options->prompt;
    } else if (options->prompt_name) {
        FL_TRY(fl_runtime_prompt(r->model, options->prompt_name, &r->prompt, error));
    }
    if (r->token_ids) /* complete as they are */
        r->prompt = "";
    r->prompt_size = strlen(r->prompt);
    size_t valid   = fl_utf8_valid_prefix(r->prompt, r->prompt_size);
    if (valid != r->prompt_size)
        return fl_fail(error, FLETCH_EUTF8, FLETCH_NOWHERE,
                       "the prompt is not valid UTF-8 at offset %zu", valid);
    if (r->prompt_size == 0 || r->model->model->include_prompt || !r->answer.ops->pooled)
        return FLETCH_OK; /* what is not pooled leaves nothing out */
    return count_prompt(r, error);
}

static int resolve_lengths(fl_request *r, fletch_error *error) {
    const fletch_model *model  = r->model;
    const fl_answer    *answer = &r->answer;
    uint32_t            max    = r->options.max_length;
    if (answer->ops->max_length)
        max = answer->ops->max_length(answer, max);
    if (max == 0)
        max = model->max_length;
    if (max < answer->filled_to)
        max = answer->filled_to;
    uint32_t special     = r->pairs ? fl_tokenizer_pair_special_count(model->tokenizer)
                                    : fl_tokenizer_special_count(model->tokenizer);
    r->encode.no_special = answer->no_special;
    if (max <= special && !r->encode.no_special)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "max_length %u leaves no room for text: the model adds %u special tokens; "
                       "set at least %u",
                       max, special, special + 1);
    fletch_truncate how = r->options.truncate ? r->options.truncate : model->truncate;
    r->refuse_long      = how == FLETCH_TRUNCATE_ERROR;
    r->encode.max_length =
        max < model->length_limit || answer->ops->from_ids ? max : model->length_limit;
    r->encode.truncation = how == FLETCH_TRUNCATE_LEFT ? FL_TRUNCATE_LEFT : FL_TRUNCATE_RIGHT;
    return FLETCH_OK;
}

/* The query's ids, once for all documents; the prompt went into them. In a chat it is tokenised with each. */
static int resolve_query(fl_request *r, fletch_error *error) {
    size_t valid = fl_utf8_valid_prefix(r->query, r->query_size);
    if (valid != r->query_size)
        return fl_fail(error, FLETCH_EUTF8, FLETCH_NOWHERE,
                       "the query is not valid UTF-8 at offset %zu", valid);
    if (r->model->model->chat_count > 0)
        return FLETCH_OK;
    fl_tokenize_task *task = fl_tokenize_task_take(r->model, fl_request_unwanted, r, error);
    if (!task)
        return FLETCH_ENOMEM;
    int status = fl_tokenize_query(r, task, error);
    fl_tokenize_task_give(r->model, task);
    r->prompt_size = 0;
    return status == FLETCH_ECANCELLED ? fl_request_given_up(r, error) : status;
}

int fl_request_resolve(fl_request *request, const fletch_request *asked, fletch_error *error) {
    FL_TRY(fl_answer_resolve(&request->answer, &request->model->results, asked, error));
    request->pairs = request->pairs && !request->answer.ops->query_first;
    FL_TRY(resolve_lengths(request, error));
    if (request->texts.count == 0)
        return FLETCH_OK;
    FL_TRY(resolve_prompt(request, error));
    if (request->query && request->pairs)
        FL_TRY(resolve_query(request, error));
    if (request->answer.ops->windows) /* equal windows may have other spans: none is a repeat */
        return fl_spans_cut(request, asked, error);
    fl_repeats_find(request);
    return FLETCH_OK;
}

int fl_request_late(fletch_error *error) {
    return fl_fail(error, FLETCH_EDEADLINE, FLETCH_NOWHERE,
                   "the deadline passed before every text was embedded");
}

/* ---- Progress -------------------------------------------------------------------------------- */

void fl_request_begin(fl_request *request) {
    fletch_model *model = request->model;
    assert(!request->over && !request->ended && request->begun == 0 && request->answer.ops);
    request->before = NULL;
    request->after  = model->live;
    if (model->live)
        model->live->before = request;
    model->live = request;
    model->live_count++;
    fl_stats_add(&model->stats, FLETCH_COUNT_REQUESTS, 1);
}

FL_LOCKED static void leave_live(fl_request *request) {
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
    fl_histogram_add(&model->stats.total, now - request->begin_ns, 1);
    switch (request->error.code) {
    case FLETCH_OK: break;
    case FLETCH_ECANCELLED: fl_stats_add(&model->stats, FLETCH_COUNT_CANCELLED_REQUESTS, 1); break;
    case FLETCH_EDEADLINE: fl_stats_add(&model->stats, FLETCH_COUNT_EXPIRED_REQUESTS, 1); break;
    default: fl_stats_add(&model->stats, FLETCH_COUNT_FAILED_REQUESTS, 1);
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
    if (request->lane == FLETCH_LANE_INTERACTIVE && request->error.code == FLETCH_OK)
        model->queue.rules.max_tokens =
            fl_adapt_observe(&model->adapt, now - request->begin_ns,
                             model->queue.lane[FLETCH_LANE_INTERACTIVE].tokens);
    if (!request->done) {
        pthread_cond_signal(&request->changed);
        return;
    }
    request->after = *over;
    *over          = request;
}

/* Back to the pool; nothing of it is queued or running. */
static void free_block(fl_token_block *block) {
    fl_request *request = block->request;
    assert(!block->queued && block->unfinished == 0 && block->taken == block->texts);
    fl_token_block **link = &request->blocks;
    while (*link != block)
        link = &(*link)->sibling;
    *link = block->sibling;
    fl_bufpool_give(request->model->inputs, block, block->capacity);
}

/* The texts of a block that never left the queue. */
static void drop_queued(fl_token_block *block) {
    uint32_t left = block->texts - block->taken;
    fl_queue_remove(&block->request->model->queue, block);
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
            fl_query_drop(request, over);
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

void fl_request_fail_text(fl_request *request, size_t index, const fletch_error *error,
                          fl_request **over) {
    fletch_error named = *error;
    assert(error->code < 0 && index < request->texts.count);
    named.where = request->answer.ops->windows ? fl_spans_document(request, index) : index;
    fl_answer_fail(&request->answer, index);
    fl_stats_add(&request->model->stats, FLETCH_COUNT_FAILED_TEXTS, 1);
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
        fl_maintenance_wake(request->model, 0);
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

/* Who delivers: fl_runtime_close looks whether it was called from a callback. */
static void deliver(fletch_model *model, fl_request *request) {
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
