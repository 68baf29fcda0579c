/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize.c - texts of a request to blocks of token ids in the queue, a window ahead of the engine.
 *
 * Role    The caller's own thread tokenises while it waits (wait.c); fletch_submit tokenises the first texts
 *         on the caller's thread, the maintenance thread the rest. Where there are several workers,
 *         the thread of one that finds nothing to run tokenises too: then the device is faster than
 *         who tokenises for it.
 * Method  Under the lock a thread takes the next STEP_TEXTS texts of a request; without it, it
 *         tokenises them into as many blocks as they need, each a buffer of the pool sized by what
 *         its texts can have at most, and queues each when it is full. A request is tokenised while less
 *         than model->window_tokens of it are under way, so ten million texts cost a window. Several
 *         threads may tokenise one request at once.
 * Errors  A text that is not UTF-8, too long where that is refused, or without tokens fails alone
 *         (options.status) or ends the request.
 *         A query of a late-interaction model is filled up here, with tokens that may be attended to or not.
 *         Repeats are passed over (repeats.h), and what the model's cache has is answered here
 *         (result_cache.h): only the others get into a block.
 * Memory  block buffer: fl_token_block, cu, index, skip, segment, keys, ids. A task is what one tokenising
 *         thread works with: tokenizer scratch and, where there is a prompt, a buffer for prompt + text; tasks
 *         are kept in a free list.
 * Threads see request.h.
 * Proof   tests/unit/test_fletch.c, test_submit.c, tests/golden. */
#include "requests/tokenize.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "requests/encode.h"
#include "requests/open_model.h"
#include "requests/repeats.h"
#include "requests/texts.h"

enum {
    STEP_FIRST =
        64, /* texts of a first step, so that the engine starts soon; and of each step of the
                          maintenance thread and of workers' threads, whom others wait for */
    STEP_TEXTS = 256,  /* of the other steps */
    BLOCK_IDS  = 16384 /* ids a block has room for, unless its first text needs more */
};

/* ---- Blocks ------------------------------------------------------------------------------------ */

/* A block in the making: where its arrays are, and how far they are filled. */
typedef struct filling {
    fl_request     *request;
    fl_encode_call  call;  /* for that, with this thread's task */
    fl_token_block *block; /* NULL: none begun */
    uint32_t       *cu, *index, *skip, *segment, *keys;
    int32_t        *ids;
    uint32_t        texts_max, ids_max;
    bool            helps; /* by a worker's thread: not the one that waits for the request */
    uint64_t        begin_ns;
    uint32_t        cached, cached_tokens; /* texts since it began that the cache had */
} filling;

/* A block for texts [index, last), or as many of them as BLOCK_IDS has room
 * for. */
static int begin_block(filling *f, size_t index, size_t last) {
    assert(!f->block && index < last && last <= f->request->texts.count);
    fl_request *r     = f->request;
    size_t      ids   = 0;
    uint32_t    texts = 0;
    for (size_t i = index; i < last; i++) {
        if (fl_repeats_has(f->request, i))
            continue;
        size_t more = fl_encode_bound(f->request, i);
        if (texts > 0 && ids + more > BLOCK_IDS)
            break;
        ids += more;
        texts++;
    }
    size_t words = texts + 1 + 4 * (size_t)texts + ids;
    size_t need  = sizeof(fl_token_block) + words * sizeof(uint32_t);
    size_t capacity;
    f->block = fl_bufpool_take(f->request->model->inputs, fl_token_block_bytes(need), &capacity);
    if (!f->block)
        return fl_fail_nomem(f->call.error, need, "tokens of texts");
    memset(f->block, 0, sizeof *f->block);
    f->texts_max           = texts;
    f->ids_max             = (uint32_t)ids;
    f->cu                  = (uint32_t *)(void *)(f->block + 1);
    f->index               = f->cu + texts + 1;
    f->skip                = f->index + texts;
    f->segment             = f->skip + texts;
    f->keys                = f->segment + texts;
    f->ids                 = (int32_t *)(void *)(f->keys + texts);
    f->block->capacity     = capacity;
    f->block->request      = r;
    f->block->lane         = r->lane;
    f->block->owner        = r->owner;
    f->block->weight       = r->weight;
    f->block->token_rows   = r->answer.ops->place != NULL;
    f->block->scratch_rows = r->answer.ops->windows;
    f->block->in_place     = r->answer.in_place;
    assert(!(f->block->token_rows && f->block->in_place));
    f->block->first   = index;
    f->block->cu      = f->cu;
    f->block->index   = f->index;
    f->block->skip    = f->skip;
    f->block->segment = f->segment;
    f->block->keys    = f->keys;
    f->block->ids     = f->ids;
    f->cu[0]          = 0;
    f->begin_ns       = fl_clock_ns();
    f->call.bytes     = 0;
    f->cached         = 0;
    f->cached_tokens  = 0;
    return FLETCH_OK;
}

/* Where a result of the cache goes: to text `index` of a part of the answer. */
typedef struct taking {
    fl_answer *part;
    size_t     index;
} taking;

static bool take_cached(void *arg, const void *value, size_t size) {
    const taking *t = arg;
    return fl_answer_take(t->part, t->index, value, size) == FLETCH_OK;
}

/* Whether the text that was laid down last has its results already, all of them. */
static bool is_cached(const filling *f, uint32_t k, size_t index) {
    assert(k == f->block->texts && f->cu[k + 1] <= f->ids_max);
    fl_request *r = f->request;
    size_t      parts;
    fl_answer  *part   = fl_answer_parts(&r->answer, &parts);
    bool        cached = r->model->cache && fl_request_may_cache(r);
    for (size_t i = 0; i < parts && cached; i++) {
        taking       t   = {.part = &part[i], .index = index};
        fl_cache_key key = fl_token_block_key(f->block, k, &part[i]);
        cached           = fl_cache_find(r->model->cache, &key, take_cached, &t);
    }
    return cached;
}

/* Text `index` becomes the next of the block. */
static int add_text(filling *f, size_t index) {
    const fl_request *r  = f->request;
    const uint32_t    k  = f->block->texts;
    const uint32_t    at = f->cu[k];
    fl_encoded        one;
    assert(k < f->texts_max && at <= f->ids_max);
    FL_TRY(fl_encode_item(&f->call, index, f->ids + at, f->ids_max - at, &one));
    f->cu[k + 1]  = at + one.tokens;
    f->index[k]   = (uint32_t)(index - f->block->first);
    f->skip[k]    = one.skip;
    f->segment[k] = one.segment;
    f->keys[k]    = one.keys;
    if (is_cached(f, k, index)) {
        f->cached++;
        f->cached_tokens += one.tokens;
    } else {
        f->block->texts++;
    }
    if (r->options.tokens)
        r->options.tokens[index] = one.shown;
    if (r->options.truncated)
        r->options.truncated[index] = one.cut;
    if (r->options.status)
        r->options.status[index] = FLETCH_OK;
    if (one.cut)
        fl_stats_add(&r->model->scheduler.stats, FLETCH_COUNT_TRUNCATED_TEXTS, 1);
    return FLETCH_OK;
}

/* Whether tokenising goes on with text `next`: also when the request has ended by a later text, for the first
 * bad one is the one to name. */
FL_LOCKED static bool still_wanted(const fl_request *r, size_t next) {
    return !r->ended || (r->error.where != FLETCH_NOWHERE && next < r->error.where);
}

/* The caller's own ids may stand between special tokens, which a query has none of. */
static void leave_out_specials(const fl_request *r, size_t text, int32_t **ids, size_t *count) {
    uint32_t       head, tail;
    const int32_t *before = fl_tokenizer_before(r->model->tokenizer, &head);
    const int32_t *after  = fl_tokenizer_after(r->model->tokenizer, &tail);
    if (!fl_item_is_ids(r, text) || *count < head + tail ||
        memcmp(*ids, before, head * sizeof **ids) != 0 ||
        memcmp(*ids + *count - tail, after, tail * sizeof **ids) != 0)
        return;
    *ids += head;
    *count -= head + tail;
}

/* The texts of a block get their results at once: no engine is asked. */
static void finish_at_once(filling *f, const fl_token_block *block, fl_request **over) {
    assert(f->request->answer.ops->from_ids && block->texts <= f->texts_max);
    fl_answer *answer = &f->request->answer;
    fl_terms   terms  = {0};
    uint64_t   found  = 0;
    for (uint32_t k = 0; k < block->texts; k++) {
        uint32_t first = f->cu[k] + f->skip[k];
        size_t   text = fl_token_block_text(block, k), count = f->cu[k + 1] - first;
        int32_t *ids = f->ids + first;
        leave_out_specials(f->request, text, &ids, &count);
        fl_made made = {.ids = ids, .tokens = count, .terms = &terms};
        if (answer->ops->finish(answer, text, &made, f->call.error) == FLETCH_OK) {
            found++;
            continue;
        }
        fl_model_lock(f->request->model);
        fl_request_fail_text(f->request, text, f->call.error, over);
        fl_model_unlock(f->request->model);
    }
    fl_terms_free(&terms);
    fl_stats_add(&f->request->model->scheduler.stats, (fletch_counter)answer->ops->counter, found);
}

/* Queue the block, or give it back when it is empty; false when `next` and what follows it in its request are
 * not wanted any more. */
static bool close_block(filling *f, size_t next, fl_request **over) {
    assert(f->block && f->block->texts <= f->texts_max);
    fl_request     *r      = f->request;
    fletch_model   *model  = r->model;
    fl_token_block *block  = f->block;
    uint64_t        now    = fl_clock_ns();
    uint32_t        tokens = f->cu[block->texts];
    uint32_t        texts  = block->texts + f->cached;
    f->block               = NULL;
    fl_trace_end(model->scheduler.trace, "tokenise", f->begin_ns, "tokens", tokens);
    if (texts > 0)
        fl_histogram_add(&model->scheduler.stats.tokenize, (now - f->begin_ns) / texts, texts);
    if (f->call.bytes > 0) {
        fl_stats_add(&model->scheduler.stats, FLETCH_COUNT_TOKENIZED_BYTES, f->call.bytes);
        fl_stats_add(&model->scheduler.stats, FLETCH_COUNT_TOKENIZE_NS, now - f->begin_ns);
    }
    const bool at_once = r->answer.ops->from_ids;
    if (at_once)
        finish_at_once(f, block, over);
    fl_model_lock(model);
    r->tokenize_ns += now - f->begin_ns;
    r->finished += f->cached;
    r->tokens += f->cached_tokens;
    if (at_once) {
        r->tokens += tokens;
        fl_request_finish(r, block->texts, over);
    }
    if (block->texts == 0 || r->ended || at_once) {
        fl_bufpool_give(model->inputs, block, block->capacity);
    } else {
        r->tokens += tokens;
        r->ahead += tokens;
        block->unfinished = block->texts;
        block->sibling    = r->blocks;
        r->blocks         = block;
        fl_queue_push(&model->scheduler.queue, block, now);
        if (f->helps || !r->caller_runs ||
            r->begun < r->texts.count) /* else its caller sees to it */
            fl_scheduler_dispatch(&model->scheduler);
    }
    bool wanted = still_wanted(r, next);
    fl_model_unlock(model);
    return wanted;
}

/* Text `index` has no row; false when no more of its request is wanted. */
static bool fail_text(filling *f, size_t index, fl_request **over) {
    assert(f->call.error->code < 0);
    fl_request *r = f->request;
    if (r->options.tokens)
        r->options.tokens[index] = 0;
    if (r->options.truncated)
        r->options.truncated[index] = 0;
    fl_model_lock(r->model);
    fl_request_fail_text(r, index, f->call.error, over);
    if (!r->ended)
        fl_request_finish(r, 1, over);
    bool wanted = still_wanted(r, index + 1);
    fl_model_unlock(r->model);
    return wanted;
}

/* Nobody wants the request any more: nothing where it has ended already. */
static void give_up(filling *f, fl_request **over) {
    (void)fl_request_given_up(f->request, f->call.error);
    fl_model_lock(f->request->model);
    fl_request_end(f->request, f->call.error, over);
    fl_model_unlock(f->request->model);
}

/* Texts [first, last), or up to where the request ended. */
static void tokenize_texts(filling *f, size_t first, size_t last, fl_request **over) {
    assert(first < last && f->call.task);
    for (size_t i = first; i < last; i++) {
        if (fl_repeats_has(f->request, i))
            continue;
        if (f->block &&
            (f->block->texts == f->texts_max ||
             f->cu[f->block->texts] + fl_encode_bound(f->request, i) > f->ids_max) &&
            !close_block(f, i, over))
            return;
        int status = f->block ? FLETCH_OK : begin_block(f, i, last);
        if (status == FLETCH_OK)
            status = add_text(f, i);
        if (status == FLETCH_OK)
            continue;
        if (f->block) /* what is good of it goes its way before the request may end */
            close_block(f, i, over);
        if (status == FLETCH_ECANCELLED) {
            give_up(f, over);
            return;
        }
        if (!fail_text(f, i, over))
            return;
    }
    if (f->block)
        close_block(f, last, over);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* The next `step` texts. (unlocks while it works) */
FL_LOCKED static void tokenize_step(fl_request *request, size_t step, bool helps,
                                    fl_request **over) {
    fletch_model *model = request->model;
    size_t        first = request->begun;
    size_t        left  = request->texts.count - first;
    size_t        last  = first + (left < step ? left : step);
    fletch_error  error = {0};
    filling f = {.request = request, .call = {.request = request, .error = &error}, .helps = helps};
    assert(first < last && last <= request->texts.count && !request->over);
    request->begun = last;
    request->tokenizing++;
    fl_model_unlock(model);
    f.call.task = fl_tokenize_task_take(model, fl_request_unwanted, request, &error);
    if (f.call.task) {
        tokenize_texts(&f, first, last, over);
        fl_tokenize_task_give(model, f.call.task);
    }
    fl_model_lock(model);
    assert(request->tokenizing > 0);
    request->tokenizing--;
    if (!f.call.task)
        fl_request_end(request, &error, over);
    fl_request_settle(request, over);
}

void fl_tokenize_next(fl_request *request, fl_request **over) {
    tokenize_step(request, request->begun == 0 || request->done ? STEP_FIRST : STEP_TEXTS, false,
                  over);
}

bool fl_tokenize_any(fletch_model *model, bool helps, fl_request **over) {
    fl_request *least = NULL;
    for (fl_request *request = model->live; request; request = request->after) {
        if (!fl_request_wants_tokens(request) ||
            (!helps && (!request->done || request->tokenizing > 0)))
            continue;
        if (!least || request->ahead <= least->ahead) /* the list has the newest first */
            least = request;
    }
    if (least)
        tokenize_step(least, STEP_FIRST, helps, over);
    return least != NULL;
}
