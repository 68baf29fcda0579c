/* SPDX-License-Identifier: Apache-2.0 */
/* block_owner.c - what the scheduler asks of requests: where rows go, and what becomes of texts that were run.
 *
 * Role    The one table through which the scheduler calls up (scheduler/token_block.h). A text's rows become its
 *         result by its kind (results/result.h), and go into the model's cache.
 * Memory  none of its own. Threads: as token_block.h says of each function.
 * Proof   tests/unit/test_fletch.c, test_output.c, tests/stress. */
#include "requests/block_owner.h"

#include <assert.h>

#include "base/error.h"
#include "requests/open_model.h"
#include "requests/request.h"
#include "requests/texts.h"
#include "requests/tokenize.h"

/* ---- Of a text that runs ----------------------------------------------------------------------- */

static int place(const fl_token_block *block, uint32_t k, float **rows) {
    fl_answer *answer = &block->request->answer;
    size_t     text   = fl_token_block_text(block, k);
    assert(block->token_rows != block->in_place);
    if (block->token_rows)
        return answer->ops->place(answer, text, block->ids + block->cu[k],
                                  fl_token_block_length(block, k), rows);
    *rows = fl_answer_row(answer, text);
    return FLETCH_OK;
}

/* Its results into the model's cache. */
static void remember(const fl_token_block *block, uint32_t k) {
    fl_request *request = block->request;
    size_t      parts, size;
    fl_answer  *part = fl_answer_parts(&request->answer, &parts);
    if (!fl_request_may_cache(request))
        return;
    for (size_t i = 0; i < parts; i++) {
        fl_cache_key key   = fl_token_block_key(block, k, &part[i]);
        const void  *bytes = fl_answer_bytes(&part[i], fl_token_block_text(block, k), &size);
        fl_cache_put(request->model->cache, &key, bytes, size);
    }
}

/* By what becomes of it. */
static void count_kinds(fl_request *request) {
    size_t           parts;
    const fl_answer *part = fl_answer_parts(&request->answer, &parts);
    for (size_t p = 0; p < parts; p++)
        if (part[p].ops->counter >= 0)
            fl_stats_add(&request->model->scheduler.stats, (fletch_counter)part[p].ops->counter, 1);
}

static int finish(const fl_token_block *block, uint32_t k, const fl_computed *computed,
                  fletch_error *error) {
    fl_request *request = block->request;
    fl_answer  *answer  = &request->answer;
    fl_made     made    = {.row    = computed->row,
                           .tokens = fl_token_block_length(block, k),
                           .skip   = block->skip[k],
                           .terms  = computed->terms,
                           .line   = computed->line};
    assert(answer->ops && made.tokens > 0 && k < block->texts);
    count_kinds(request);
    if (computed->placed < 0)
        return fl_result_fail(computed->placed, error);
    FL_TRY(answer->ops->finish(answer, fl_token_block_text(block, k), &made, error));
    if (request->model->cache)
        remember(block, k);
    return FLETCH_OK;
}

static bool was_copied(const fl_token_block *block, uint32_t k) {
    const fl_request *r = block->request;
    return r->prompt_size > 0 || r->pairs || fl_item_is_ids(r, fl_token_block_text(block, k));
}

/* ---- Of several texts: locked ------------------------------------------------------------------ */

FL_LOCKED static void left_queue(fl_token_block *block, uint32_t texts, uint64_t waited_ns) {
    fl_request *request = block->request;
    assert(!request->over && texts > 0);
    request->running += texts;
    if (waited_ns > request->queue_ns)
        request->queue_ns = waited_ns;
}

FL_LOCKED static bool is_wanted(const fl_token_block *block) {
    return !block->request->ended;
}

FL_LOCKED static void failed(fl_token_block *block, uint32_t k, const fletch_error *error,
                             fl_request **over) {
    fl_request_fail_text(block->request, fl_token_block_text(block, k), error, over);
}

FL_LOCKED static void answered(fl_token_block *block, uint32_t k, uint32_t texts,
                               uint64_t forward_ns, fl_request **over) {
    fl_request *request = block->request; /* the block may be gone in a moment */
    assert(request->running >= texts && !request->over);
    if (forward_ns > request->forward_ns)
        request->forward_ns = forward_ns;
    fl_token_block_finish(block, k, texts);
    request->running -= texts;
    fl_request_finish(request, texts, over);
}

/* ---- Of all that is under way ------------------------------------------------------------------ */

FL_LOCKED static bool tokenize(fletch_model *model, fl_request **over) {
    return fl_tokenize_any(model, true, over);
}

FL_LOCKED static void wake_caller(fletch_model *model) {
    for (fl_request *request = model->live; request; request = request->after)
        if (request->waiting) {
            request->waiting = false; /* the next batch wakes another one */
            pthread_cond_signal(&request->changed);
            return;
        }
}

static void trim(fletch_model *model, const char *why) {
    uint64_t freed = fl_bufpool_trim(model->inputs, 0) + fl_bufpool_trim(model->scheduler.rows, 0);
    freed += model->cache ? fl_cache_empty(model->cache) : 0;
    fl_model_release_pages(model->model); /* word vectors are read in place: each comes again */
    fl_stats_add(&model->scheduler.stats, FLETCH_COUNT_PRESSURE_CLEANUPS, 1);
    fl_log_write(fl_config_log(model->config), FL_LOG_DEBUG, "%s: %.1f MB of buffers freed", why,
                 (double)freed / 1e6);
}

/* Another provider's rows differ in their last bits. */
static void moved(fletch_model *model) {
    if (model->cache)
        fl_cache_empty(model->cache);
}

const fl_block_owner fl_request_blocks = {
    .place       = place,
    .finish      = finish,
    .was_copied  = was_copied,
    .left_queue  = left_queue,
    .is_wanted   = is_wanted,
    .failed      = failed,
    .answered    = answered,
    .tokenize    = tokenize,
    .wake_caller = wake_caller,
    .fail_all    = fl_requests_end_all,
    .deliver     = fl_requests_deliver,
    .trim        = trim,
    .moved       = moved,
};
