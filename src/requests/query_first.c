/* SPDX-License-Identifier: Apache-2.0 */
/* query_first.c - a request whose query is a request of its own: its rows are there before a document is tokenised.
 *
 * Role    Kinds with `query_first` (results/result.h).
 * Method  The query is submitted while its parent waits with one text "running"; when its rows are there the
 *         documents are tokenised.
 * Memory  the query's rows belong to the parent. Threads: as request.h says.
 * Proof   tests/golden/test_late.py, tests/unit/test_fletch.c. */
#include "requests/query_first.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "requests/open_model.h"
#include "requests/submit.h"

/* The query's rows are there, or why not: its parent goes on. */
static void query_done(void *user, const fletch_outcome *outcome) {
    fl_request   *parent = user;
    fletch_model *model  = parent->model;
    fl_request   *over   = NULL;
    fl_model_lock(model);
    parent->held         = false;
    parent->answer.query = (fl_lists *)(void *)outcome->lists;
    parent->tokens += outcome->tokens;
    parent->running--;
    if (outcome->error.code != FLETCH_OK) {
        fletch_error error = outcome->error;
        error.where        = FLETCH_NOWHERE;
        fl_request_end(parent, &error, &over);
    }
    fl_request_settle(parent, &over);
    if (!parent->over && parent->done)
        fl_model_wake_maintenance(model, 0);
    else if (!parent->over)
        pthread_cond_signal(&parent->changed);
    fl_model_unlock(model);
    fl_requests_deliver(model, over);
}

void fl_query_ask(fl_request *parent, fl_request **over) {
    assert(!parent->held && !parent->over && parent->answer.ops->query_first);
    fletch_model        *model   = parent->model;
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    fletch_request       query   = FLETCH_REQUEST_INIT;
    fletch_error         error   = {0};
    options.prompt               = parent->options.prompt;
    options.prompt_name          = "query";
    options.truncate             = parent->options.truncate;
    options.no_cache             = parent->options.no_cache;
    options.normalize            = model->model->normalize ? 1 : -1; /* as the documents are */
    query.texts =
        (fletch_texts){.count = 1, .pointers = &parent->query, .lengths = &parent->query_size};
    query.options   = &options;
    query.kind      = FLETCH_KIND_TOKENS;
    query.lane      = parent->lane;
    query.owner     = parent->owner;
    query.weight    = parent->weight;
    query.stop      = parent->stop; /* the parent is not over before query_done */
    query.stop_user = parent->stop_user;
    if (parent->deadline_ns != UINT64_MAX) {
        const uint64_t now  = fl_clock_ns(),
                       left = parent->deadline_ns > now ? parent->deadline_ns - now : 0;
        query.deadline_ms   = (uint32_t)(left / 1000000U) + 1;
    }
    parent->held = true;
    parent->running++;
    fl_model_unlock(model);
    int status =
        fl_requests_submit(model, &query, query_done, parent, &parent->query_ticket, &error);
    fl_model_lock(model);
    if (status == FLETCH_OK && parent->held && parent->ended) /* before it had the ticket */
        fl_request_end_query(parent, over);
    if (status == FLETCH_OK)
        return;
    parent->held = false;
    parent->running--;
    error.where = FLETCH_NOWHERE;
    fl_request_end(parent, &error, over);
}
