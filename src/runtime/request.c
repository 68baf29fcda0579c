/* SPDX-License-Identifier: Apache-2.0 */
/* request.c - a request from what was asked to what was answered.
 *
 * Role    embed.c and submit.c make requests; feed.c and runner.c move them on; this file resolves
 *         them and settles their end, so that each is answered once, whatever happens.
 * Method  A request is over when `finished` counts every text, or when it ended early and nothing of
 *         it is under way (feeders, running). Whoever makes that so under the lock puts it on a list;
 *         the list is delivered after the lock is let go, so callbacks may call back in.
 * Memory  Requests are recycled through model->idle_requests. Threads: see request.h.
 * Proof   tests/stress/test_submit.c, test_schedule.c. */
#include "runtime/request.h"
#include "runtime/feed.h"
#include "runtime/housekeeper.h"
#include "runtime/maxsim.h"
#include "runtime/open.h"
#include "runtime/repeats.h"
#include "runtime/row_output.h"
#include "runtime/runtime.h"
#include "runtime/submit.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"

/* ---- The free list --------------------------------------------------------------------------- */

fl_request *fl_request_new(fletch_model *model, fletch_error *error) {
    pthread_mutex_lock(&model->lock);
    fl_request *request = model->idle_requests;
    if (request)
        model->idle_requests = request->after;
    pthread_mutex_unlock(&model->lock);
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

void fl_request_drop_lists(fl_request *request) {
    fl_lists_free(request->lists);
    fl_lists_free((fl_lists *)(void *)request->query_rows);
    request->lists      = NULL;
    request->query_rows = NULL;
}

void fl_request_recycle(fl_request *request) {
    fletch_model  *model   = request->model;
    pthread_cond_t changed = request->changed;
    fl_request_drop_lists(request); /* of one that did not begin: they are empty */
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
    request->out         = asked->out;
    request->lane        = asked->lane;
    request->kind        = asked->kind;
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

/* Whether the model's rows are what is asked for. */
static int resolve_kind(const fl_request *r, fletch_error *error) {
    const fl_model *model  = r->model->model;
    bool            scores = model->head == FL_HEAD_SCORES, sparse = model->head == FL_HEAD_SPARSE;
    if (model->head == FL_HEAD_LATE)
        return r->kind == FLETCH_KIND_TOKENS || r->query
                   ? FLETCH_OK
                   : fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                             "this model works by late interaction (ColBERT): it gives a vector a "
                             "token and scores of queries with documents, nothing else; use "
                             "fletch_embed_tokens (fletch embed --output-kind tokens, /embed_all) "
                             "or fletch_rerank (fletch rerank, /rerank)");
    if (r->kind != FLETCH_KIND_SCORES && scores)
        return fl_fail(
            error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "this model is a %s: it gives scores, not vectors. Use fletch_%s (fletch %s), "
            "or an embedding model",
            model->label_count == 1 ? "reranker" : "classifier",
            model->label_count == 1 ? "rerank" : "classify",
            model->label_count == 1 ? "rerank" : "classify");
    if (scores && model->chat_count > 0 && !r->pairs)
        return fl_fail(
            error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "this model scores a query with a document, as messages of a chat: a text alone "
            "has no score; use fletch_rerank (fletch rerank), or pairs");
    if (r->kind == FLETCH_KIND_SCORES && !scores)
        return fl_fail(
            error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "this model is an embedding model, not a %s: use fletch_embed (fletch embed), "
            "or a model such as %s",
            r->query ? "reranker" : "classifier",
            r->query ? "cross-encoder/ms-marco-MiniLM-L6-v2" : "SamLowe/roberta-base-go_emotions");
    if (!sparse && r->kind == FLETCH_KIND_SPARSE && model->weigher_refused)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE, "%s", model->weigher_refused);
    bool weighs = model->weigher.weight && r->kind == FLETCH_KIND_SPARSE;
    if (!scores && !weighs && sparse != (r->kind == FLETCH_KIND_SPARSE))
        return fl_fail(
            error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE, "%s",
            sparse ? "this model gives sparse vectors (SPLADE) and no others: use "
                     "fletch_embed_sparse (fletch embed --output-kind sparse, /embed_sparse)"
                   : "this model gives no sparse vectors: it has no SpladePooling and no "
                     "sparse_linear.pt (a plain masked language model becomes sparse by "
                     "model.pooling = splade)");
    if (r->query && model->label_count != 1)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "this model is a classifier with %u labels, and a reranker has one: use "
                       "fletch_classify (fletch classify)",
                       model->label_count);
    return FLETCH_OK;
}

/* A score by late interaction: the documents' vectors are made and let go. */
static int resolve_matches(fl_request *r, fletch_error *error) {
    const fl_model *model = r->model->model;
    r->matches            = true;
    r->pairs              = false;
    r->side               = FL_SIDE_DOCUMENT;
    r->output.model       = model;
    r->output.columns     = model->dimensions;
    r->output.normalize   = model->normalize;
    if (r->options.activation > FLETCH_ACTIVATION_NONE)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "scores by late interaction are sums of similarities: neither sigmoid nor "
                       "softmax is defined for them; leave the activation at its default");
    const char *named; /* the sides' own prompts are used; a wrong name is told all the same */
    if (r->options.prompt_name)
        FL_TRY(fl_runtime_prompt(r->model, r->options.prompt_name, &named, error));
    r->lists = fl_lists_new(r->texts.count, model->dimensions, 0, true, error);
    return r->lists ? FLETCH_OK : FLETCH_ENOMEM;
}

static int resolve_scores(fl_request *r, fletch_error *error) {
    const fl_model   *model  = r->model->model;
    fletch_activation how    = r->options.activation;
    uint32_t          labels = model->head == FL_HEAD_LATE ? 1 : model->label_count;
    if (r->options.dimensions != 0 || r->options.normalize != 0)
        return fl_fail(
            error, FLETCH_EINVAL, FLETCH_NOWHERE,
            "scores are not cut and not normalised: leave dimensions and normalize at 0");
    if (r->out.dtype != FLETCH_FLOAT32 || r->out.cols != labels)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "scores are float32, one a label: the matrix needs %u columns of that type",
                       labels);
    if (model->head == FL_HEAD_LATE)
        return resolve_matches(r, error);
    r->output = (fl_row_output){.model   = model,
                                .columns = model->label_count,
                                .dtype   = FLETCH_FLOAT32,
                                .softmax = how == FLETCH_ACTIVATION_SOFTMAX};
    if (how == FLETCH_ACTIVATION_DEFAULT)
        r->output.activation = model->activation;
    else if (how == FLETCH_ACTIVATION_SIGMOID)
        r->output.activation = FL_DENSE_SIGMOID;
    return FLETCH_OK;
}

/* The number of tokens a prompt takes at the head of every text: its ids with
 * specials, less the last one if that is special, as sentence-transformers counts them for
 * include_prompt=false. */
static int count_prompt(fl_request *r, fletch_error *error) {
    const fl_tokenizer *tokenizer = r->model->tokenizer;
    fl_feeder          *feeder    = fl_feeder_take(r->model, fl_feed_unwanted, r, error);
    if (!feeder)
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
            fl_tokenizer_encode(tokenizer, fl_feeder_scratch(feeder), r->prompt, r->prompt_size,
                                &r->encode, ids, capacity, &tokens, &cut, error);
    fl_feeder_give(r->model, feeder);
    if (status == FLETCH_ECANCELLED)
        status = fl_feed_given_up(r, error);
    if (status == FLETCH_OK)
        r->prompt_skip =
            (uint32_t)tokens - (tokens > 0 && fl_tokenizer_is_special(tokenizer, ids[tokens - 1]));
    fl_free(ids);
    return status;
}

static int resolve_prompt(fl_request *r, fletch_error *error) {
    const fletch_embed_options *options = &r->options;
    r->prompt                           = r->model->prompt;
    if (r->matches) { /* what the call says is the query's */
        r->prompt = fl_late_document_prompt(r->model);
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
    if (r->prompt_size == 0 || r->model->model->include_prompt || r->kind != FLETCH_KIND_DENSE)
        return FLETCH_OK; /* what is not pooled leaves nothing out */
    return count_prompt(r, error);
}

static int resolve_lengths(fl_request *r, fletch_error *error) {
    const fletch_model *model = r->model;
    const fl_late      *late  = &model->model->late;
    uint32_t            asked = r->options.max_length;
    uint32_t            max   = asked ? asked : late->length[r->side];
    if (r->side == FL_SIDE_QUERY && late->fixed)
        max = late->expansion;
    if (max == 0 && r->looked_up && fl_config_int(model->config, FL_KEY_MODEL_MAX_LENGTH) == 0)
        max = model->model->lookup.max_length;
    if (max == 0)
        max = model->max_length;
    if (r->side == FL_SIDE_QUERY && max < late->expansion)
        max = late->expansion;
    uint32_t special = r->pairs ? fl_tokenizer_pair_special_count(model->tokenizer)
                                : fl_tokenizer_special_count(model->tokenizer);
    r->encode.no_special =
        model->model->is_static || r->looked_up || (r->pairs && model->model->chat_count > 0);
    if (max <= special && !r->encode.no_special)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "max_length %u leaves no room for text: the model adds %u special tokens; "
                       "set at least %u",
                       max, special, special + 1);
    fletch_truncate how  = r->options.truncate ? r->options.truncate : model->truncate;
    r->refuse_long       = how == FLETCH_TRUNCATE_ERROR;
    r->encode.max_length = max < model->length_limit || r->looked_up ? max : model->length_limit;
    r->encode.truncation = how == FLETCH_TRUNCATE_LEFT ? FL_TRUNCATE_LEFT : FL_TRUNCATE_RIGHT;
    return FLETCH_OK;
}

static int resolve_output(fl_request *r, fletch_error *error) {
    const fletch_embed_options *options = &r->options;
    const fletch_model         *model   = r->model;
    uint32_t                    full    = model->model->dimensions;
    uint32_t columns = options->dimensions ? options->dimensions : model->dimensions;
    if (columns > full)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "%u dimensions asked for, but the model has %u; ask for at "
                       "most that many",
                       columns, full);
    if (r->out.cols != columns)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "the matrix has %zu columns, but the vectors have %u dimensions",
                       r->out.cols, columns);
    r->output.model     = model->model;
    r->output.columns   = columns;
    r->output.raw       = options->normalize < 0 || (options->normalize == 0 && !model->normalize);
    r->output.normalize = options->normalize > 0 || (options->normalize == 0 && model->normalize);
    r->output.renormalize =
        options->dimensions != 0 || options->normalize > 0 || model->renormalize;
    r->output.dtype = r->out.dtype;
    r->in_place     = model->zero_copy && fl_output_in_place(&r->output, &r->out);
    return FLETCH_OK;
}

/* On which side a call's texts are: its prompt's name says. */
static fl_side side_of(const fletch_model *m, const fletch_embed_options *options) {
    const char *name = options->prompt_name;
    if (name == NULL && options->prompt == NULL &&
        !fl_config_is_set(m->config, FL_KEY_MODEL_PROMPT))
        name = fl_config_text(m->config, FL_KEY_MODEL_PROMPT_NAME);
    if (name == NULL)
        return FL_SIDE_NONE;
    return strcmp(name, "query") == 0      ? FL_SIDE_QUERY
           : strcmp(name, "document") == 0 ? FL_SIDE_DOCUMENT
                                           : FL_SIDE_NONE;
}

/* Vectors of tokens leave the engine as they are wanted, but for their length. */
static int resolve_tokens(fl_request *r, fletch_error *error) {
    const fletch_model *model = r->model;
    bool always = strcmp(fl_config_text(model->config, FL_KEY_MODEL_NORMALIZE), "true") == 0;
    if (model->model->is_static)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "this model is static: its tokens have no vectors of their own in a text");
    if (r->options.dimensions != 0)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "vectors of tokens are not cut: dimensions is %u, leave it 0",
                       r->options.dimensions);
    r->output.model     = model->model;
    bool late           = model->model->head == FL_HEAD_LATE;
    r->output.columns   = late ? model->model->dimensions : model->model->encoder.desc.hidden;
    r->output.normalize = r->options.normalize > 0 || (r->options.normalize == 0 && always);
    if (late) {
        bool unit           = r->options.normalize == 0 && model->normalize;
        r->side             = side_of(model, &r->options);
        r->output.normalize = r->output.normalize || unit;
        r->output.raw       = !r->output.normalize;
    }
    r->lists = fl_lists_new(r->texts.count, r->output.columns, r->options.list_bytes, late, error);
    return r->lists ? FLETCH_OK : FLETCH_ENOMEM;
}

static int resolve_sparse(fl_request *r, fletch_error *error) {
    if (r->options.dimensions != 0 || !(r->options.threshold >= 0))
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "sparse vectors are not cut: dimensions is %u, leave it 0; threshold is %g, "
                       "set it to 0 or above",
                       r->options.dimensions, (double)r->options.threshold);
    const fl_lookup *lookup = &r->model->model->lookup;
    fl_side          side   = side_of(r->model, &r->options);
    r->looked_up =
        lookup->there && (side == FL_SIDE_QUERY || (side == FL_SIDE_NONE && lookup->by_default));
    r->output.model = r->model->model;
    r->weighs       = r->model->model->weigher.weight != NULL;
    r->lists        = fl_lists_new(r->texts.count, 1, r->options.list_bytes, r->weighs, error);
    return r->lists ? FLETCH_OK : FLETCH_ENOMEM;
}

/* The query's ids, once for all documents; the prompt went into them. In a chat it is tokenised with each. */
static int resolve_query(fl_request *r, fletch_error *error) {
    size_t valid = fl_utf8_valid_prefix(r->query, r->query_size);
    if (valid != r->query_size)
        return fl_fail(error, FLETCH_EUTF8, FLETCH_NOWHERE,
                       "the query is not valid UTF-8 at offset %zu", valid);
    if (r->model->model->chat_count > 0)
        return FLETCH_OK;
    fl_feeder *feeder = fl_feeder_take(r->model, fl_feed_unwanted, r, error);
    if (!feeder)
        return FLETCH_ENOMEM;
    int status = fl_feed_query(r, feeder, error);
    fl_feeder_give(r->model, feeder);
    r->prompt_size = 0;
    return status == FLETCH_ECANCELLED ? fl_feed_given_up(r, error) : status;
}

/* All that its results depend on besides their ids and what a chunk says of each. */
static void resolve_form(fl_request *r) {
    const fl_row_output *o = &r->output;
    r->form[0]             = (uint32_t)r->kind | (uint32_t)r->side << 4 | (uint32_t)o->dtype << 8 |
                 (uint32_t)o->activation << 12 | (uint32_t)o->normalize << 20 |
                 (uint32_t)o->raw << 21 | (uint32_t)o->renormalize << 22 |
                 (uint32_t)o->softmax << 23;
    r->form[1] = o->columns;
    r->form[2] = r->options.top_k;
    memcpy(&r->form[3], &r->options.threshold, sizeof r->form[3]);
}

int fl_request_resolve(fl_request *request, fletch_error *error) {
    request->side = FL_SIDE_NONE;
    FL_TRY(resolve_kind(request, error));
    FL_TRY(request->kind == FLETCH_KIND_SCORES   ? resolve_scores(request, error)
           : request->kind == FLETCH_KIND_TOKENS ? resolve_tokens(request, error)
           : request->kind == FLETCH_KIND_SPARSE ? resolve_sparse(request, error)
                                                 : resolve_output(request, error));
    FL_TRY(resolve_lengths(request, error));
    if (request->texts.count == 0)
        return FLETCH_OK;
    FL_TRY(resolve_prompt(request, error));
    if (request->query && !request->matches)
        FL_TRY(resolve_query(request, error));
    resolve_form(request);
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
    request->before     = NULL;
    request->after      = model->live;
    if (model->live)
        model->live->before = request;
    model->live = request;
    model->live_count++;
    fl_count(&model->stats, FLETCH_COUNT_REQUESTS, 1);
}

static void leave_live(fl_request *request) {
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
static void count_end(const fl_request *request, uint64_t now) {
    fletch_model *model = request->model;
    fl_histogram_add(&model->stats.total, now - request->begin_ns, 1);
    switch (request->error.code) {
    case FLETCH_OK: break;
    case FLETCH_ECANCELLED: fl_count(&model->stats, FLETCH_COUNT_CANCELLED_REQUESTS, 1); break;
    case FLETCH_EDEADLINE: fl_count(&model->stats, FLETCH_COUNT_EXPIRED_REQUESTS, 1); break;
    default: fl_count(&model->stats, FLETCH_COUNT_FAILED_REQUESTS, 1);
    }
}

void fl_request_settle(fl_request *request, fl_request **over) {
    bool quiet    = request->feeders == 0 && request->running == 0;
    bool answered = request->finished == request->texts.count || request->ended;
    if (request->over || !quiet || !answered)
        return;
    fletch_model *model = request->model;
    uint64_t      now   = fl_clock_ns();
    request->over       = true;
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
static void free_chunk(fl_chunk *chunk) {
    fl_request *request = chunk->request;
    fl_chunk  **link    = &request->chunks;
    while (*link != chunk)
        link = &(*link)->sibling;
    *link = chunk->sibling;
    fl_bufpool_give(request->model->inputs, chunk, chunk->capacity);
}

/* The texts of a chunk that never left the queue. */
static void drop_queued(fl_chunk *chunk) {
    uint32_t left = chunk->texts - chunk->taken;
    fl_queue_remove(&chunk->request->model->queue, chunk);
    chunk->taken = chunk->texts;
    chunk->unfinished -= left;
    if (chunk->unfinished == 0)
        free_chunk(chunk);
}

void fl_request_end(fl_request *request, const fletch_error *error, fl_request **over) {
    if (request->over)
        return;
    if (!request->ended) {
        request->ended = true;
        request->error = *error;
        atomic_store(&request->dropped, error->where == FLETCH_NOWHERE);
        if (request->held)
            fl_late_drop(request, over);
        for (fl_chunk *next, *chunk = request->chunks; chunk; chunk = next) {
            next = chunk->sibling;
            if (chunk->queued)
                drop_queued(chunk);
        }
    } else if (request->error.where != FLETCH_NOWHERE && error->where < request->error.where) {
        request->error = *error; /* the first bad text is the one to name */
    }
    fl_request_settle(request, over);
}

void fl_request_fail_text(fl_request *request, size_t index, const fletch_error *error,
                          fl_request **over) {
    fletch_error named = *error;
    named.where        = index;
    if (request->lists) /* what the engine left there is nothing to look at */
        fl_lists_drop(request->lists, index);
    fl_count(&request->model->stats, FLETCH_COUNT_FAILED_TEXTS, 1);
    if (request->options.status)
        request->options.status[index] = error->code;
    else
        fl_request_end(request, &named, over);
}

void fl_request_finish(fl_request *request, size_t texts, fl_request **over) {
    request->finished += texts;
    fl_request_settle(request, over);
    if (request->over || !fl_feed_wanted(request))
        return;
    if (request->done)
        fl_keeper_wake(request->model, 0);
    else
        pthread_cond_signal(&request->changed);
}

void fl_chunk_finish(fl_chunk *chunk, uint32_t k, uint32_t texts) {
    chunk->request->ahead -= chunk->cu[k + texts] - chunk->cu[k];
    chunk->unfinished -= texts;
    if (chunk->unfinished == 0)
        free_chunk(chunk);
}

/* ---- The answer ------------------------------------------------------------------------------ */

/* Who delivers: fl_runtime_close looks whether it was called from a callback.
 */
static void deliver(fletch_model *model, fl_request *request) {
    fl_repeats_copy(request);
    fl_delivery    self    = {.thread = pthread_self()};
    fletch_outcome outcome = {.error       = request->error,
                              .tokens      = request->tokens,
                              .tokenize_ns = request->tokenize_ns,
                              .queue_ns    = request->queue_ns,
                              .forward_ns  = request->forward_ns,
                              .total_ns    = fl_clock_ns() - request->begin_ns};
    if (request->lists && !request->matches && outcome.error.code == FLETCH_OK) {
        outcome.lists  = &request->lists->shown;
        request->lists = NULL;
    }
    pthread_mutex_lock(&model->lock);
    self.next         = model->deliveries;
    model->deliveries = &self;
    pthread_mutex_unlock(&model->lock);
    request->done(request->user, &outcome);
    fl_request_drop_lists(request);
    pthread_mutex_lock(&model->lock);
    fl_delivery **link = &model->deliveries;
    while (*link != &self)
        link = &(*link)->next;
    *link = self.next;
    fl_request_recycle(request);
    fl_model_left(model);
    pthread_mutex_unlock(&model->lock);
}

void fl_requests_deliver(fletch_model *model, fl_request *over) {
    while (over) {
        fl_request *next = over->after;
        deliver(model, over);
        over = next;
    }
}
