/* SPDX-License-Identifier: Apache-2.0 */
/* worker.c - a batch from the queue through the engine to its callers' rows, whatever goes wrong.
 *
 * Role    A slot's thread, or a caller that waits, takes a batch and carries it.
 * Method  The batch is a list of items (chunk, text). Items that follow each other in one chunk give
 *         the engine the chunk's own ids (zero copy); others are gathered. The engine writes rows
 *         into the caller's matrix where nothing but normalising follows, else into a buffer of the
 *         pool; the output stage finishes them. Vectors of tokens go where the caller will have them,
 *         into blocks of the request's lists.
 *         Before a part of the batch runs, the memory it is predicted to take is reserved.
 *         What may go wrong, and what becomes of it:
 *           no room or ENOMEM      the part is halved and tried again; a lone text fails with ENOMEM
 *           EMODEL at text i       i fails; the others run again (retry.h)
 *           anything else          the replica is broken; the rest of the batch is an orphan that
 *                                  another slot adopts once; the second time its texts fail
 * Memory  Everything is the slot's or the pool's; nothing is allocated here but what becomes the
 *         caller's (lists.h).
 * Threads see replica.h.
 * Proof   tests/unit/test_fletch.c, tests/stress. */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "requests/maintenance.h"
#include "scheduler/retry.h"
#include "scheduler/worker.h"
#include "requests/open_model.h"
#include "requests/texts.h"
#include "scheduler/interactive.h"

/* ---- Memory of a slot ------------------------------------------------------------------------ */

int fl_runner_open(fl_runner *slot, const fletch_model *model, uint32_t batch_tokens,
                   fletch_error *error) {
    fl_cond_init(&slot->wake);
    slot->armed_ns     = UINT64_MAX;
    slot->ids_capacity = batch_tokens;
    slot->items        = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *slot->items);
    slot->ids          = fl_alloc_array(slot->ids_capacity, sizeof *slot->ids);
    slot->cu           = fl_alloc_array(FL_BATCH_TEXTS_MAX + 1, sizeof *slot->cu);
    slot->skip         = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *slot->skip);
    slot->segment      = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *slot->segment);
    slot->keys         = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *slot->keys);
    slot->rows         = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *slot->rows);
    slot->each         = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *slot->each);
    slot->placed       = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *slot->placed);
    slot->copied       = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *slot->copied);
    slot->terms        = fl_alloc_zero(FL_BATCH_TEXTS_MAX, sizeof *slot->terms);
    slot->line[0]      = fl_alloc_array(model->results.row_width, sizeof(float));
    slot->line[1]      = fl_alloc_array(model->results.row_width, sizeof(float));
    if (slot->items && slot->ids && slot->cu && slot->skip && slot->segment && slot->keys &&
        slot->rows && slot->each && slot->placed && slot->copied && slot->terms && slot->line[0] &&
        slot->line[1])
        return FLETCH_OK;
    return fl_fail_nomem(error, slot->ids_capacity * sizeof *slot->ids, "the staging of a batch");
}

void fl_runner_free_memory(fl_runner *slot) {
    pthread_cond_destroy(&slot->wake);
    fl_free(slot->items);
    fl_free(slot->ids);
    fl_free(slot->cu);
    fl_free(slot->skip);
    fl_free(slot->segment);
    fl_free(slot->keys);
    fl_free(slot->rows);
    fl_free(slot->each);
    fl_free(slot->placed);
    fl_free(slot->copied);
    for (size_t i = 0; slot->terms && i < FL_BATCH_TEXTS_MAX; i++)
        fl_terms_free(&slot->terms[i]);
    fl_free(slot->terms);
    fl_free(slot->line[0]);
    fl_free(slot->line[1]);
}

/* ---- Several models ---------------------------------------------------------------------------- */

FL_LOCKED static void begin_urgent(fl_runner *slot, uint64_t now) {
    fletch_model *model = slot->replica->set->model;
    slot->urgent        = false;
    for (uint32_t i = slot->finished; i < slot->count && !slot->urgent; i++)
        slot->urgent = slot->items[i].chunk->request->lane == FLETCH_LANE_INTERACTIVE;
    if (slot->urgent) {
        model->urgent++;
        fl_urgent_begin(now);
    }
}

FL_LOCKED static void end_urgent(fl_runner *slot) {
    if (slot->urgent) {
        slot->replica->set->model->urgent--;
        fl_urgent_end();
    }
    slot->urgent = false;
}

/* Whether bulk texts give way to another model's interactive ones. */
FL_LOCKED static bool gives_way(fletch_model *model, uint64_t now, uint64_t *due) {
    const uint64_t last = fl_urgent_last();
    bool           begins;
    bool waits = fl_queue_yields(&model->queue, fl_urgent_running() > model->urgent, now, due,
                                 &begins);
    fl_count(&model->stats, FLETCH_COUNT_BULK_HOLDS, begins);
    if (last > model->queue.urgent_ns && last <= now)
        model->queue.urgent_ns = last;
    return waits;
}

/* ---- Taking a batch -------------------------------------------------------------------------- */

/* The batch of a broken replica, to be run here. A slot that holds one itself takes that: its items
 * are in the way of any other. */
FL_LOCKED static bool adopt(fl_runner *slot) {
    fletch_model *model = slot->replica->set->model;
    fl_runner   **link  = &model->orphans;
    while (slot->orphan && *link != slot)
        link = &(*link)->next_orphan;
    fl_runner *orphan = *link;
    if (!orphan)
        return false;
    assert(orphan->orphan && !orphan->busy && orphan->finished < orphan->count);
    *link          = orphan->next_orphan;
    orphan->orphan = false;
    if (orphan != slot) {
        slot->count = orphan->count - orphan->finished;
        memcpy(slot->items, orphan->items + orphan->finished, slot->count * sizeof *slot->items);
        slot->finished = 0;
        slot->tokens   = orphan->tokens;
        slot->attempts = orphan->attempts;
        orphan->count  = 0;
        pthread_cond_signal(&orphan->wake); /* it may be waiting to be closed */
    }
    fl_count(&model->stats, FLETCH_COUNT_BATCH_RETRIES, 1);
    return true;
}

/* How many items from i on, before `hi`, are texts that follow each other in one chunk. */
static uint32_t run_of(const fl_runner *slot, uint32_t i, uint32_t hi) {
    const fl_item *first = &slot->items[i];
    uint32_t       n     = 1;
    while (i + n < hi && first[n].chunk == first->chunk && first[n].k == first->k + n)
        n++;
    return n;
}

/* Note of every text that it left the queue. */
FL_LOCKED static void leave_queue(fl_runner *slot, uint64_t now) {
    fletch_model *model = slot->replica->set->model;
    uint64_t      since = 0;
    slot->tokens        = 0;
    for (uint32_t n, i = 0; i < slot->count; i += n) {
        const fl_item  *item    = &slot->items[i];
        const fl_chunk *chunk   = item->chunk;
        fl_request     *request = chunk->request;
        uint64_t        waited  = now - chunk->queued_ns;
        n                       = run_of(slot, i, slot->count);
        request->running += n;
        slot->tokens += chunk->cu[item->k + n] - chunk->cu[item->k];
        if (waited > request->queue_ns)
            request->queue_ns = waited;
        fl_histogram_add(&model->stats.queue, waited, n);
        since = since == 0 || chunk->queued_ns < since ? chunk->queued_ns : since;
    }
    if (model->trace)
        fl_trace_track(model->trace, "queue", "wait", since, now, "texts", slot->count);
}

/* Replicas that run nothing and could; at least one, the slot's own may have another slot at work. */
FL_LOCKED static uint32_t idle_replicas(const fl_replicas *set) {
    uint32_t idle = 0;
    for (uint32_t r = 0; r < set->count; r++)
        idle += fl_replica_is_open(&set->replica[r]) && set->replica[r].busy == 0;
    return idle > 0 ? idle : 1;
}

bool fl_runner_take(fl_runner *slot, uint64_t now, uint64_t *due) {
    fl_replica   *replica = slot->replica;
    fletch_model *model   = replica->set->model;
    *due                  = UINT64_MAX;
    if (slot->busy || replica->broken || !replica->engine || replica->set != model->replicas ||
        fl_runner_spare(slot))
        return false;
    if (!adopt(slot)) {
        if (!fl_queue_ready(&model->queue, now, due) || gives_way(model, now, due))
            return false;
        slot->count    = fl_queue_take(&model->queue, now, idle_replicas(replica->set), slot->items,
                                       FL_BATCH_TEXTS_MAX);
        slot->finished = 0;
        slot->attempts = 0;
        leave_queue(slot, now);
    }
    assert(slot->count > 0 && slot->finished < slot->count && !slot->orphan);
    begin_urgent(slot, now);
    slot->busy = true;
    replica->busy++;
    replica->outstanding += slot->tokens;
    return true;
}

/* ---- Running a part of the batch ------------------------------------------------------------- */

/* Whether items [lo, hi) are texts that follow each other in one chunk. */
static bool consecutive(const fl_runner *slot, uint32_t lo, uint32_t hi) {
    const fl_item *first = &slot->items[lo], *last = &slot->items[hi - 1];
    return first->chunk == last->chunk && last->k - first->k == hi - 1 - lo;
}

/* The debug log hears of each path once for a model, not with every batch. */
static void tell_path(fletch_model *model, fl_path path) {
    static const char *const texts[] = {
        [FL_PATH_IDS_IN_PLACE]  = "zero-copy input: the engine reads ids where they were tokenised",
        [FL_PATH_IDS_COPIED]    = "copied input: ids are copied on their way to the engine",
        [FL_PATH_ROWS_IN_PLACE] = "zero-copy output: the engine writes into the caller's matrix",
        [FL_PATH_ROWS_STAGED]   = "copied output: rows pass a buffer on their way out",
        [FL_PATH_BY_CALLER]     = "direct path: the caller's own thread carried its batch",
        [FL_PATH_BY_SLOT]       = "slot path: a thread of the scheduler carried a batch"};
    unsigned bit = 1U << path;
    if (atomic_load_explicit(&model->told, memory_order_relaxed) & bit)
        return;
    if (!(atomic_fetch_or(&model->told, bit) & bit))
        fl_log_write(fl_config_log(model->config), FL_LOG_DEBUG, "%s", texts[path]);
}

/* The ids, cu, skip, segment and keys of items [lo, hi). */
static void stage_inputs(fl_runner *slot, uint32_t lo, uint32_t hi, fl_batch *batch) {
    fletch_model *model = slot->replica->set->model;
    bool          whole = model->results.zero_copy && consecutive(slot, lo, hi);
    bool          skips = false, pairs = false, blind = false;
    slot->cu[0] = 0;
    for (uint32_t i = lo; i < hi; i++) {
        const fl_item *item   = &slot->items[i];
        uint32_t       n      = i - lo;
        uint32_t       length = fl_chunk_length(item->chunk, item->k);
        if (!whole)
            memcpy(slot->ids + slot->cu[n], item->chunk->ids + item->chunk->cu[item->k],
                   length * sizeof *slot->ids);
        slot->cu[n + 1]  = slot->cu[n] + length;
        slot->skip[n]    = item->chunk->skip[item->k];
        skips            = skips || slot->skip[n] > 0;
        slot->segment[n] = item->chunk->segment[item->k];
        pairs            = pairs || slot->segment[n] < length;
        slot->keys[n]    = item->chunk->keys[item->k];
        blind            = blind || slot->keys[n] < length;
    }
    const fl_item *first = &slot->items[lo];
    assert(whole || slot->cu[hi - lo] <= slot->ids_capacity);
    batch->ids       = whole ? first->chunk->ids + first->chunk->cu[first->k] : slot->ids;
    batch->cu        = slot->cu;
    batch->texts     = hi - lo;
    batch->tokens    = slot->cu[hi - lo];
    batch->pool_skip = skips ? slot->skip : NULL;
    batch->segment   = pairs && model->model->encoder.desc.segments ? slot->segment : NULL;
    batch->keys      = blind && slot->replica->info.blind_tokens ? slot->keys : NULL;
    batch->rows      = slot->rows;
    batch->each      = NULL;
    batch->note      = NULL;
    batch->terms     = model->results.terms ? slot->terms : NULL;
}

/* Room for the rows of an item's tokens; not OK: there is none, and why. */
static int place(const fl_runner *slot, const fl_item *item, float **rows) {
    const fl_chunk       *chunk  = item->chunk;
    fl_answer            *answer = &chunk->request->answer;
    uint32_t              length = fl_chunk_length(chunk, item->k);
    const fl_engine_info *info   = &slot->replica->info;
    if (!info->token_rows || (chunk->keys[item->k] < length && !info->blind_tokens))
        return FLETCH_EUNSUPPORTED;
    return answer->ops->place(answer, fl_chunk_text(chunk, item->k),
                              chunk->ids + chunk->cu[item->k], length, rows);
}

/* Items whose tokens have rows: each[n] is 1 and rows[n] is where they go. One that can have none is
 * pooled with the others, and its pooled row thrown away: see finish_row. */
static bool place_all(fl_runner *slot, uint32_t lo, uint32_t hi) {
    bool any = false;
    for (uint32_t i = lo; i < hi; i++) {
        const fl_item *item  = &slot->items[i];
        bool           each  = item->chunk->request->answer.ops->place != NULL;
        slot->placed[i - lo] = each ? place(slot, item, &slot->rows[i - lo]) : FLETCH_OK;
        each                 = each && slot->placed[i - lo] == FLETCH_OK;
        slot->each[i - lo]   = each;
        any                  = any || each;
    }
    return any;
}

/* Where the engine writes: the callers' rows, or `*buffer` of the pool where
 * more than normalising follows. */
static int stage_rows(fl_runner *slot, uint32_t lo, uint32_t hi, fl_batch *batch, float **buffer,
                      size_t *capacity) {
    fletch_model *model = slot->replica->set->model;
    size_t        width = fl_encoder_width(&model->model->encoder);
    uint32_t      inner = 0;
    *buffer             = NULL;
    for (uint32_t n = 0; batch->terms && n < hi - lo; n++)
        batch->terms[n].count = 0;
    if (batch->terms) {
        memset(slot->placed, 0, (hi - lo) * sizeof *slot->placed);
        return FLETCH_OK;
    }
    batch->each = place_all(slot, lo, hi) ? slot->each : NULL;
    for (uint32_t i = lo; i < hi; i++)
        inner += !slot->items[i].chunk->request->answer.in_place && !slot->each[i - lo];
    if (inner > 0) {
        *buffer = fl_bufpool_take(model->outputs, inner * width * sizeof(float), capacity);
        if (!*buffer)
            return fl_fail_nomem(&slot->error, inner * width * sizeof(float), "rows of a batch");
    }
    float *next = *buffer;
    for (uint32_t i = lo; i < hi; i++) {
        if (slot->each[i - lo])
            continue;
        const fl_item *item = &slot->items[i];
        if (item->chunk->request->answer.in_place) {
            slot->rows[i - lo] =
                fl_answer_row(&item->chunk->request->answer, fl_chunk_text(item->chunk, item->k));
        } else {
            slot->rows[i - lo] = next;
            next += width;
        }
    }
    return FLETCH_OK;
}

static uint32_t longest_of(const fl_runner *slot, uint32_t texts) {
    uint32_t longest = 0;
    for (uint32_t n = 0; n < texts; n++)
        if (slot->cu[n + 1] - slot->cu[n] > longest)
            longest = slot->cu[n + 1] - slot->cu[n];
    return longest;
}

/* Bytes of rows that `place` takes for the windows of documents: for this part alone, they go back with it. */
static uint64_t window_rows(const fl_runner *slot, uint32_t lo, uint32_t hi) {
    const size_t width = slot->replica->set->model->model->encoder.desc.hidden;
    uint64_t     rows  = 0;
    for (uint32_t i = lo; i < hi; i++)
        if (slot->items[i].chunk->request->answer.ops->windows)
            rows += slot->cu[i - lo + 1] - slot->cu[i - lo] + 1;
    return rows * width * sizeof(float);
}

/* Room for the part, after buffers were let go if need be; ENOMEM: none now. What earlier batches of
 * this slot touched is resident already: only the excess is asked for, and `rows` bytes that are not kept. */
static int reserve(fl_runner *slot, const fl_batch *batch, uint64_t rows, uint64_t *reserved) {
    fl_replica   *replica = slot->replica;
    fletch_model *model   = replica->set->model;
    *reserved             = 0;
    if (!model->predict)
        return FLETCH_OK;
    uint64_t total = replica->ops->memory(replica->engine, batch->texts, batch->tokens,
                                          longest_of(slot, batch->texts));
    uint64_t need  = rows + (total > slot->touched ? total - slot->touched : 0);
    if (need == 0)
        return FLETCH_OK;
    if (!fl_memory_reserve(model->memory, need)) {
        fl_runtime_trim(model, "a batch does not fit under memory.limit");
        if (!fl_memory_reserve(model->memory, need))
            return fl_fail(&slot->error, FLETCH_ENOMEM, FLETCH_NOWHERE,
                           "a batch of %u texts and %u tokens needs %.1f MB more than memory.limit "
                           "leaves; raise memory.limit or shorten the texts",
                           batch->texts, batch->tokens, (double)need / 1e6);
    }
    *reserved     = need;
    slot->touched = total > slot->touched ? total : slot->touched;
    return FLETCH_OK;
}

/* Item i has no row. */
static void fail_item(fl_runner *slot, uint32_t i, const fletch_error *error, fl_request **over) {
    fl_item      *item  = &slot->items[i];
    fletch_model *model = slot->replica->set->model;
    fl_model_lock(model);
    fl_request_fail_text(item->chunk->request, fl_chunk_text(item->chunk, item->k), error, over);
    fl_model_unlock(model);
}

/* Why there is no room for the rows of an item's tokens: what `place` said, in words. */
static int say_unplaced(const fl_runner *slot, int status, fletch_error *error) {
    if (status == FLETCH_EUNSUPPORTED)
        return fl_fail(error, status, FLETCH_NOWHERE,
                       "provider %s does not give the vectors of single tokens; use provider.order "
                       "cpu",
                       slot->replica->provider);
    return fl_result_fail(status, error);
}

/* A text's result, finished; not OK: it has none, and *error says why. */
static int finish_row(fl_runner *slot, const fl_item *item, uint32_t n, fletch_error *error) {
    const fl_chunk *chunk  = item->chunk;
    fl_answer      *answer = &chunk->request->answer;
    fl_made         made   = {.row    = slot->rows[n],
                              .tokens = fl_chunk_length(chunk, item->k),
                              .skip   = chunk->skip[item->k],
                              .terms  = &slot->terms[n],
                              .line   = slot->line};
    assert(answer->ops && made.tokens > 0);
    if (slot->placed[n] < 0)
        return say_unplaced(slot, slot->placed[n], error);
    return answer->ops->finish(answer, fl_chunk_text(chunk, item->k), &made, error);
}

/* An item's results into the model's cache. */
static void remember(const fl_runner *slot, const fl_item *item) {
    fl_request *request = item->chunk->request;
    fl_cache   *cache   = slot->replica->set->model->cache;
    size_t      parts, size;
    fl_answer  *part = fl_answer_parts(&request->answer, &parts);
    if (!fl_request_may_cache(request))
        return;
    for (size_t i = 0; i < parts; i++) {
        fl_cache_key key   = fl_chunk_key(item->chunk, item->k, &part[i]);
        const void  *bytes = fl_answer_bytes(&part[i], fl_chunk_text(item->chunk, item->k), &size);
        fl_cache_put(cache, &key, bytes, size);
    }
}

/* Texts by what became of them. */
static void count_kinds(const fl_runner *slot, uint32_t lo, uint32_t hi) {
    fl_stats *stats = &slot->replica->set->model->stats;
    for (uint32_t n, i = lo; i < hi; i += n) {
        size_t           parts;
        const fl_answer *part = fl_answer_parts(&slot->items[i].chunk->request->answer, &parts);
        n                     = run_of(slot, i, hi);
        for (size_t p = 0; p < parts; p++)
            if (part[p].ops->counter >= 0)
                fl_count(stats, (fletch_counter)part[p].ops->counter, n);
    }
}

/* Items [lo, hi) have what the engine makes of them: dense layers, cut, unit length, element type;
 * weights. */
static void finish_rows(fl_runner *slot, uint32_t lo, uint32_t hi, fl_request **over) {
    fletch_error bad;
    for (uint32_t i = lo; i < hi; i++)
        if (finish_row(slot, &slot->items[i], i - lo, &bad) < 0)
            fail_item(slot, i, &bad, over);
        else if (slot->replica->set->model->cache)
            remember(slot, &slot->items[i]);
}

/* Whether a text's bytes or ids were copied before the engine was asked. */
static bool feeding_copied(const fl_item *item) {
    const fl_request *r = item->chunk->request;
    return r->prompt_size > 0 || r->pairs || fl_item_is_ids(r, fl_chunk_text(item->chunk, item->k));
}

/* Count the ways that the texts and the runs of a part went. */
static void count_ways(fl_runner *slot, uint32_t lo, const fl_batch *batch) {
    static const fletch_counter counters[FL_WAYS] = {
        FLETCH_COUNT_ZERO_COPY_INPUTS, FLETCH_COUNT_COPIED_INPUTS, FLETCH_COUNT_ZERO_COPY_OUTPUTS,
        FLETCH_COUNT_STAGED_OUTPUTS,   FLETCH_COUNT_BOUND_RUNS,    FLETCH_COUNT_PLAIN_RUNS};
    fletch_model *model         = slot->replica->set->model;
    bool          gathered      = batch->ids == slot->ids;
    uint64_t      ways[FL_WAYS] = {0};
    ways[FL_WAY_BOUND_RUN]      = batch->note->bound_runs;
    ways[FL_WAY_PLAIN_RUN]      = batch->note->plain_runs;
    for (uint32_t n = 0; n < batch->texts; n++) {
        const fl_chunk *chunk = slot->items[lo + n].chunk;
        bool            input =
            gathered || (slot->copied[n] & FL_COPIED_IDS) || feeding_copied(&slot->items[lo + n]);
        bool in_place = batch->terms == NULL &&
                        (slot->each[n] || chunk->request->answer.in_place) &&
                        !(slot->copied[n] & FL_COPIED_ROW);
        ways[input ? FL_WAY_COPIED_INPUT : FL_WAY_ZERO_COPY_INPUT]++;
        ways[in_place ? FL_WAY_ZERO_COPY_OUTPUT : FL_WAY_STAGED_OUTPUT]++;
    }
    for (size_t way = 0; way < FL_WAYS; way++) {
        if (ways[way] > 0 && way < FL_PATH_BY_CALLER) /* the ways of texts are the first paths */
            tell_path(model, (fl_path)way);
        fl_count(&model->stats, counters[way], ways[way]);
        atomic_fetch_add_explicit(&slot->replica->ways[way], ways[way], memory_order_relaxed);
    }
}

/* One line of trace for a part that went through. */
static void tell_batch(const fl_runner *slot, const fl_batch *batch, uint64_t staged, uint64_t took,
                       uint64_t output) {
    const fl_replica *replica = slot->replica;
    const fl_log     *log     = fl_config_log(replica->set->model->config);
    if (log == NULL || log->fn == NULL || !log->trace)
        return;
    fl_log_write(log, FL_LOG_TRACE,
                 "inference for %u items: %.3f ms (%u tokens, longest %u; provider %s, device %u, "
                 "slot %u; staging %.3f ms, output %.3f ms; %u runs bound, %u plain)",
                 batch->texts, (double)took / 1e6, batch->tokens, longest_of(slot, batch->texts),
                 replica->provider, replica->device, slot->number, (double)staged / 1e6,
                 (double)output / 1e6, batch->note->bound_runs, batch->note->plain_runs);
}

/* A part went through the engine: count it and finish its rows. */
static void went_through(fl_runner *slot, uint32_t lo, const fl_batch *batch, uint64_t staged,
                         uint64_t took, fl_request **over) {
    fl_replica   *replica = slot->replica;
    fletch_model *model   = replica->set->model;
    fl_histogram_add(&model->stats.forward, took, 1);
    fl_count(&model->stats, FLETCH_COUNT_BUSY_NS, took);
    fl_count(&model->stats, FLETCH_COUNT_BATCHES, 1);
    fl_count(&model->stats, FLETCH_COUNT_TEXTS, batch->texts);
    fl_count(&model->stats, FLETCH_COUNT_TOKENS, batch->tokens);
    count_kinds(slot, lo, lo + batch->texts);
    count_ways(slot, lo, batch);
    atomic_fetch_add_explicit(&replica->tokens, batch->tokens, memory_order_relaxed);
    atomic_fetch_add_explicit(&replica->batches, 1, memory_order_release); /* with its tokens */
    uint64_t begin = fl_clock_ns();
    finish_rows(slot, lo, lo + batch->texts, over);
    fl_trace_end(model->trace, "output", begin, "texts", batch->texts);
    tell_batch(slot, batch, staged, took, fl_clock_ns() - begin);
}

/* Items [lo, hi) through the engine once. */
static int forward(fl_runner *slot, uint32_t lo, uint32_t hi, fl_request **over) {
    fl_replica   *replica = slot->replica;
    fletch_model *model   = replica->set->model;
    fl_batch_note note    = {.copied = slot->copied};
    fl_batch      batch;
    float        *buffer   = NULL;
    size_t        capacity = 0;
    uint64_t      reserved = 0, begin = fl_clock_ns();
    assert(lo < hi && hi <= slot->count && slot->busy);
    fl_runtime_look(model, begin);
    stage_inputs(slot, lo, hi, &batch);
    fl_trace_end(model->trace, "stage", begin, "texts", batch.texts);
    memset(slot->copied, 0, batch.texts * sizeof *slot->copied);
    batch.note = &note;
    int status = reserve(slot, &batch, window_rows(slot, lo, hi), &reserved);
    if (status == FLETCH_OK)
        status = stage_rows(slot, lo, hi, &batch, &buffer, &capacity);
    batch.scarce   = fl_memory_room(model->memory) < replica->info.resident_bytes;
    uint64_t start = fl_clock_ns();
    if (status == FLETCH_OK)
        status = replica->ops->forward(replica->engine, slot->number, &batch, &slot->error);
    uint64_t took = fl_clock_ns() - start;
    fl_memory_release(model->memory, reserved);
    if (status == FLETCH_OK) {
        fl_trace_end(model->trace, "forward", start, "tokens", batch.tokens);
        went_through(slot, lo, &batch, start - begin, took, over);
    }
    fl_bufpool_give(model->outputs, buffer, capacity);
    return status;
}

/* ---- When something goes wrong --------------------------------------------------------------- */

/* The next n items, texts that follow each other in one chunk, are answered. */
FL_LOCKED static void answer_run(fl_runner *slot, uint32_t n, fl_request **over) {
    const fl_item *item    = &slot->items[slot->finished];
    fl_request    *request = item->chunk->request;
    assert(slot->finished + n <= slot->count && request->running >= n);
    slot->finished += n;
    fl_chunk_finish(item->chunk, item->k, n);
    request->running -= n;
    fl_request_finish(request, n, over);
}

/* Items up to `hi` are answered: tell their requests. */
static void answer(fl_runner *slot, uint32_t hi, uint64_t begin, fl_request **over) {
    fletch_model *model = slot->replica->set->model;
    uint64_t      took  = fl_clock_ns() - begin;
    fl_model_lock(model);
    while (slot->finished < hi) {
        fl_request *request = slot->items[slot->finished].chunk->request;
        if (took > request->forward_ns)
            request->forward_ns = took;
        answer_run(slot, run_of(slot, slot->finished, hi), over);
    }
    fl_model_unlock(model);
}

static bool ended(fl_runner *slot, uint32_t i) {
    fletch_model *model = slot->replica->set->model;
    fl_model_lock(model);
    bool yes = slot->items[i].chunk->request->ended;
    fl_model_unlock(model);
    return yes;
}

/* Carry the batch: parts of it, from the front, each answered before the next begins. Not OK: the replica is
 * broken, and items from slot->finished on are not answered. */
static int carry(fl_runner *slot, uint64_t begin, fl_request **over) {
    fletch_model *model = slot->replica->set->model;
    fl_retry      retry = {.part = slot->count};
    while (slot->finished < slot->count) {
        uint32_t lo = slot->finished;
        uint32_t hi = slot->count - lo < retry.part ? slot->count : lo + retry.part;
        if (retry.part < slot->count &&
            ended(slot, lo)) { /* after a failure: nobody waits for it */
            answer(slot, lo + 1, begin, over);
            continue;
        }
        int status = forward(slot, lo, hi, over);
        if (status == FLETCH_OK) {
            answer(slot, hi, begin, over);
            continue;
        }
        switch (fl_retry_next(&retry, status, slot->error.where, hi - lo, slot->count)) {
        case FL_RETRY_SMALLER:
            fl_count(&model->stats, FLETCH_COUNT_BATCH_SPLITS, status == FLETCH_ENOMEM);
            break;
        case FL_RETRY_FAIL_TEXT:
            fail_item(slot, lo, &slot->error, over);
            answer(slot, hi, begin, over);
            break;
        case FL_RETRY_BREAK: return status;
        }
    }
    return FLETCH_OK;
}

void fl_runner_fail(fl_runner *slot, fl_request **over) {
    while (slot->finished < slot->count) {
        const fl_item *item = &slot->items[slot->finished];
        fl_request_fail_text(item->chunk->request, fl_chunk_text(item->chunk, item->k),
                             &slot->error, over);
        answer_run(slot, 1, over);
    }
    slot->count = slot->finished = 0;
}

/* The engine failed: close the replica to new work, and give the batch to
 * whoever comes. */
FL_LOCKED static void break_replica(fl_runner *slot, fl_request **over) {
    fl_replica   *replica = slot->replica;
    fletch_model *model   = replica->set->model;
    assert(!slot->orphan && slot->finished < slot->count && slot->error.code < 0);
    fl_count(&model->stats, FLETCH_COUNT_REPLICA_FAILURES, 1);
    fl_log_write(fl_config_log(model->config), FL_LOG_ERROR,
                 "provider %s, device %u: the engine failed (%s); it is opened again",
                 replica->provider, replica->device, slot->error.message);
    fl_replica_broke(replica, slot->error.message);
    if (replica->breaks++ > 0) /* since its last good batch: opening it did not mend it */
        replica->retry_ns = fl_clock_ns() + fl_replica_backoff(replica->breaks - 1);
    if (slot->attempts++ > 0) {
        fl_runner_fail(slot, over);
    } else {
        slot->orphan      = true;
        slot->next_orphan = model->orphans;
        model->orphans    = slot;
    }
}

/* Different requests of the batch, as the queue counts company. The chunks of items that are
 * answered are gone. */
static uint64_t requests_of(const fl_runner *slot) {
    uint64_t          requests = 0;
    const fl_request *last     = NULL;
    for (uint32_t i = slot->finished; i < slot->count; i++) {
        requests += slot->items[i].chunk->request != last;
        last = slot->items[i].chunk->request;
    }
    return requests;
}

void fl_runner_run(fl_runner *slot, fl_request **over) {
    fl_replica   *replica  = slot->replica;
    fletch_model *model    = replica->set->model;
    uint64_t      requests = requests_of(slot);
    uint64_t      tokens   = slot->tokens;
    uint64_t      begin    = fl_clock_ns();
    fl_dispatch(model); /* what is left may leave with another slot */
    fl_model_unlock(model);
    tell_path(model,
              pthread_equal(slot->thread, pthread_self()) ? FL_PATH_BY_SLOT : FL_PATH_BY_CALLER);
    int status = carry(slot, begin, over);
    fl_model_lock(model);
    assert(slot->busy && replica->busy > 0 && replica->outstanding >= tokens);
    assert(status < 0 || slot->finished == slot->count);
    end_urgent(slot);
    slot->busy = false;
    replica->busy--;
    replica->outstanding -= tokens;
    if (status == FLETCH_OK) {
        slot->count       = 0;
        replica->failures = 0;
        replica->breaks   = 0;
        replica->cold     = false;
        uint64_t now      = fl_clock_ns();
        fl_queue_ended(&model->queue, requests, now - begin, now);
        model->queue.rules.max_tokens = fl_adapt_batch(&model->adapt, tokens, now - begin);
    } else {
        break_replica(slot, over);
    }
    if (replica->broken && replica->busy == 0) /* now it can be opened again */
        pthread_cond_signal(&replica->slots[0].wake);
    if (replica->set->stop) /* its thread ends when the slot is idle */
        pthread_cond_signal(&slot->wake);
    fl_dispatch(model);
}
