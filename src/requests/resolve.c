/* SPDX-License-Identifier: Apache-2.0 */
/* resolve.c - what a caller asked for, with what model and configuration say: lengths, prompt, kind of result.
 *
 * Role    submit.c and wait.c, once for each request, before it begins.
 * Method  Pure but for the request: no lock is held and nobody else knows it. What is wrong with the call itself is
 *         found here; what is wrong with one text, when that is tokenised.
 * Memory  The answer's lists, the query's ids. Threads: the caller's.
 * Proof   tests/unit/test_fletch.c, test_output.c, tests/golden. */
#include "requests/resolve.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "requests/encode.h"
#include "requests/open_model.h"
#include "requests/prompt.h"
#include "requests/repeats.h"
#include "requests/span_windows.h"

void fl_request_fill(fl_request *request, const fletch_request *asked) {
    assert(asked->options);
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
    assert(r->prompt_size > 0);
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
        status = fl_tokenizer_encode(tokenizer, task->scratch, r->prompt, r->prompt_size,
                                     &r->encode, ids, capacity, &tokens, &cut, error);
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
            FL_TRY(fl_prompt_named(r->model, options->prompt_name, &r->prompt, error));
        r->prompt = fl_prompt_of_documents(r->model);
    } else if (options->prompt) {
        r->prompt = options->prompt;
    } else if (options->prompt_name) {
        FL_TRY(fl_prompt_named(r->model, options->prompt_name, &r->prompt, error));
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
    if (max < answer->filled_to && !model->model->filled)
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
    assert(r->query && r->pairs);
    size_t valid = fl_utf8_valid_prefix(r->query, r->query_size);
    if (valid != r->query_size)
        return fl_fail(error, FLETCH_EUTF8, FLETCH_NOWHERE,
                       "the query is not valid UTF-8 at offset %zu", valid);
    if (r->model->model->chat_count > 0)
        return FLETCH_OK;
    fl_tokenize_task *task = fl_tokenize_task_take(r->model, fl_request_unwanted, r, error);
    if (!task)
        return FLETCH_ENOMEM;
    int status = fl_encode_query(r, task, error);
    fl_tokenize_task_give(r->model, task);
    r->prompt_size = 0;
    return status == FLETCH_ECANCELLED ? fl_request_given_up(r, error) : status;
}

int fl_request_resolve(fl_request *request, const fletch_request *asked, fletch_error *error) {
    assert(!request->answer.ops);
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
