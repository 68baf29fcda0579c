/* SPDX-License-Identifier: Apache-2.0 */
/* worker.c - a batch from the queue through the engine to its owners' rows, whatever goes wrong.
 *
 * Role    A worker's thread, or a caller that waits, takes a batch and runs it.
 * Method  The batch is a list of items (block, text). Items that follow each other in one block give
 *         the engine the block's own ids (zero copy); others are gathered. The engine writes rows
 *         where the owner of the block wants them in the end, or else into a buffer of the pool;
 *         the owner finishes them (token_block.h).
 *         Before a part of the batch runs, the memory it is predicted to take is reserved.
 *         What may go wrong, and what becomes of it:
 *           no room or ENOMEM      the part is halved and tried again; a lone text fails with ENOMEM
 *           EMODEL at text i       i fails; the others run again (retry.h)
 *           anything else          the replica is broken; the rest is a failed batch, which another
 *                                  worker takes over once; the second time its texts fail
 * Memory  Everything is the worker's or the pool's; nothing is allocated here.
 * Threads see replica.h.
 * Proof   tests/unit/test_fletch.c, tests/stress. */
#include "scheduler/worker.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "scheduler/interactive.h"
#include "scheduler/retry.h"
#include "scheduler/scheduler.h"

/* ---- Memory of a worker ------------------------------------------------------------------------ */

int fl_worker_open(fl_worker *worker, const fl_scheduler *scheduler, uint32_t batch_tokens,
                   fletch_error *error) {
    assert(batch_tokens > 0 && worker->replica);
    fl_cond_init(&worker->wake);
    worker->armed_ns     = UINT64_MAX;
    worker->ids_capacity = batch_tokens;
    worker->items        = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *worker->items);
    worker->ids          = fl_alloc_array(worker->ids_capacity, sizeof *worker->ids);
    worker->cu           = fl_alloc_array(FL_BATCH_TEXTS_MAX + 1, sizeof *worker->cu);
    worker->skip         = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *worker->skip);
    worker->segment      = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *worker->segment);
    worker->keys         = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *worker->keys);
    worker->rows         = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *worker->rows);
    worker->each         = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *worker->each);
    worker->placed       = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *worker->placed);
    worker->copied       = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *worker->copied);
    worker->terms        = fl_alloc_zero(FL_BATCH_TEXTS_MAX, sizeof *worker->terms);
    worker->line[0]      = fl_alloc_array(scheduler->row_width, sizeof(float));
    worker->line[1]      = fl_alloc_array(scheduler->row_width, sizeof(float));
    if (worker->items && worker->ids && worker->cu && worker->skip && worker->segment &&
        worker->keys && worker->rows && worker->each && worker->placed && worker->copied &&
        worker->terms && worker->line[0] && worker->line[1])
        return FLETCH_OK;
    return fl_fail_nomem(error, worker->ids_capacity * sizeof *worker->ids,
                         "the staging of a batch");
}

void fl_worker_close(fl_worker *worker) {
    assert(!worker->busy && !worker->batch_failed);
    pthread_cond_destroy(&worker->wake);
    fl_free(worker->items);
    fl_free(worker->ids);
    fl_free(worker->cu);
    fl_free(worker->skip);
    fl_free(worker->segment);
    fl_free(worker->keys);
    fl_free(worker->rows);
    fl_free(worker->each);
    fl_free(worker->placed);
    fl_free(worker->copied);
    for (size_t i = 0; worker->terms && i < FL_BATCH_TEXTS_MAX; i++)
        fl_terms_free(&worker->terms[i]);
    fl_free(worker->terms);
    fl_free(worker->line[0]);
    fl_free(worker->line[1]);
}

/* ---- Several models ---------------------------------------------------------------------------- */

FL_LOCKED static void begin_interactive(fl_worker *worker, uint64_t now) {
    assert(!worker->interactive);
    fl_scheduler *scheduler = worker->replica->set->scheduler;
    worker->interactive     = false;
    for (uint32_t i = worker->finished; i < worker->count && !worker->interactive; i++)
        worker->interactive = worker->items[i].block->lane == FLETCH_LANE_INTERACTIVE;
    if (worker->interactive) {
        scheduler->interactive++;
        fl_interactive_begin(now);
    }
}

FL_LOCKED static void end_interactive(fl_worker *worker) {
    if (worker->interactive) {
        worker->replica->set->scheduler->interactive--;
        fl_interactive_end();
    }
    worker->interactive = false;
}

/* Whether bulk texts give way to another model's interactive ones. */
FL_LOCKED static bool gives_way(fl_scheduler *scheduler, uint64_t now, uint64_t *due) {
    const uint64_t last   = fl_interactive_last();
    const bool     others = fl_interactive_running() > scheduler->interactive;
    bool           begins;
    bool           waits = fl_queue_yields(&scheduler->queue, others, now, due, &begins);
    fl_stats_add(&scheduler->stats, FLETCH_COUNT_BULK_DEFERRALS, begins);
    if (last > scheduler->queue.last_interactive_ns && last <= now)
        scheduler->queue.last_interactive_ns = last;
    return waits;
}

/* ---- Taking a batch -------------------------------------------------------------------------- */

/* The batch of a broken replica, to be run here. A worker that holds one itself takes that: its items
 * are in the way of any other. */
FL_LOCKED static bool take_over(fl_worker *worker) {
    fl_scheduler *scheduler = worker->replica->set->scheduler;
    fl_worker   **link      = &scheduler->failed_batches;
    while (worker->batch_failed && *link != worker)
        link = &(*link)->next_failed;
    fl_worker *failed = *link;
    if (!failed)
        return false;
    assert(failed->batch_failed && !failed->busy && failed->finished < failed->count);
    *link                = failed->next_failed;
    failed->batch_failed = false;
    if (failed != worker) {
        worker->count = failed->count - failed->finished;
        memcpy(worker->items, failed->items + failed->finished,
               worker->count * sizeof *worker->items);
        worker->finished = 0;
        worker->tokens   = failed->tokens;
        worker->attempts = failed->attempts;
        failed->count    = 0;
        pthread_cond_signal(&failed->wake); /* it may be waiting to be closed */
    }
    fl_stats_add(&scheduler->stats, FLETCH_COUNT_BATCH_RETRIES, 1);
    return true;
}

/* How many items from i on, before `hi`, are texts that follow each other in one block. */
static uint32_t run_of(const fl_worker *worker, uint32_t i, uint32_t hi) {
    assert(i < hi && hi <= worker->count);
    const fl_item *first = &worker->items[i];
    uint32_t       n     = 1;
    while (i + n < hi && first[n].block == first->block && first[n].k == first->k + n)
        n++;
    return n;
}

/* Note of every text that it left the queue. */
FL_LOCKED static void leave_queue(fl_worker *worker, uint64_t now) {
    assert(worker->count > 0 && worker->finished == 0);
    fl_scheduler *scheduler = worker->replica->set->scheduler;
    uint64_t      since     = 0;
    worker->tokens          = 0;
    for (uint32_t n, i = 0; i < worker->count; i += n) {
        const fl_item  *item   = &worker->items[i];
        fl_token_block *block  = item->block;
        uint64_t        waited = now - block->queued_ns;
        n                      = run_of(worker, i, worker->count);
        worker->tokens += block->cu[item->k + n] - block->cu[item->k];
        scheduler->owner->left_queue(block, n, waited);
        fl_histogram_add(&scheduler->stats.queue, waited, n);
        since = since == 0 || block->queued_ns < since ? block->queued_ns : since;
    }
    if (scheduler->trace)
        fl_trace_span(scheduler->trace, "queue", "wait", since, now, "texts", worker->count);
}

/* Replicas that run nothing and could; at least one, the worker's own may have another worker at work. */
FL_LOCKED static uint32_t idle_replicas(const fl_replicas *set) {
    uint32_t idle = 0;
    for (uint32_t r = 0; r < set->count; r++)
        idle += fl_replica_is_open(&set->replica[r]) && set->replica[r].busy == 0;
    return idle > 0 ? idle : 1;
}

bool fl_worker_take(fl_worker *worker, uint64_t now, uint64_t *due) {
    assert(!worker->busy || worker->count > 0);
    fl_replica   *replica   = worker->replica;
    fl_scheduler *scheduler = replica->set->scheduler;
    *due                    = UINT64_MAX;
    if (worker->busy || replica->broken || !replica->engine ||
        replica->set != scheduler->replicas || fl_worker_is_spare(worker))
        return false;
    if (!take_over(worker)) {
        if (!fl_queue_ready(&scheduler->queue, now, due) || gives_way(scheduler, now, due))
            return false;
        worker->count    = fl_queue_take(&scheduler->queue, now, idle_replicas(replica->set),
                                         worker->items, FL_BATCH_TEXTS_MAX);
        worker->finished = 0;
        worker->attempts = 0;
        leave_queue(worker, now);
    }
    assert(worker->count > 0 && worker->finished < worker->count && !worker->batch_failed);
    begin_interactive(worker, now);
    worker->busy = true;
    replica->busy++;
    replica->outstanding += worker->tokens;
    return true;
}

/* ---- Running a part of the batch ------------------------------------------------------------- */

/* Whether items [lo, hi) are texts that follow each other in one block. */
static bool consecutive(const fl_worker *worker, uint32_t lo, uint32_t hi) {
    assert(lo < hi && hi <= worker->count);
    const fl_item *first = &worker->items[lo], *last = &worker->items[hi - 1];
    return first->block == last->block && last->k - first->k == hi - 1 - lo;
}

/* The debug log hears of each path once for a model, not with every batch. */
static void log_path(fl_scheduler *scheduler, fl_path path) {
    assert(path <= FL_PATH_BY_WORKER);
    static const char *const texts[] = {
        [FL_PATH_IDS_IN_PLACE]  = "zero-copy input: the engine reads ids where they were tokenised",
        [FL_PATH_IDS_COPIED]    = "copied input: ids are copied before they reach the engine",
        [FL_PATH_ROWS_IN_PLACE] = "zero-copy output: the engine writes into the caller's matrix",
        [FL_PATH_ROWS_STAGED]   = "copied output: rows go through a buffer",
        [FL_PATH_BY_CALLER]     = "direct path: the caller's own thread ran its batch",
        [FL_PATH_BY_WORKER]     = "slot path: a scheduler thread ran a batch"};
    unsigned bit = 1U << path;
    if (atomic_load_explicit(&scheduler->logged, memory_order_relaxed) & bit)
        return;
    if (!(atomic_fetch_or(&scheduler->logged, bit) & bit))
        fl_log_write(fl_config_log(scheduler->config), FL_LOG_DEBUG, "%s", texts[path]);
}

/* The ids, cu, skip, segment and keys of items [lo, hi). */
static void stage_inputs(fl_worker *worker, uint32_t lo, uint32_t hi, fl_batch *batch) {
    assert(hi - lo <= FL_BATCH_TEXTS_MAX);
    fl_scheduler *scheduler = worker->replica->set->scheduler;
    bool          whole     = scheduler->zero_copy && consecutive(worker, lo, hi);
    bool          skips = false, pairs = false, blind = false;
    worker->cu[0] = 0;
    for (uint32_t i = lo; i < hi; i++) {
        const fl_item *item   = &worker->items[i];
        uint32_t       n      = i - lo;
        uint32_t       length = fl_token_block_length(item->block, item->k);
        if (!whole)
            memcpy(worker->ids + worker->cu[n], item->block->ids + item->block->cu[item->k],
                   length * sizeof *worker->ids);
        worker->cu[n + 1]  = worker->cu[n] + length;
        worker->skip[n]    = item->block->skip[item->k];
        skips              = skips || worker->skip[n] > 0;
        worker->segment[n] = item->block->segment[item->k];
        pairs              = pairs || worker->segment[n] < length;
        worker->keys[n]    = item->block->keys[item->k];
        blind              = blind || worker->keys[n] < length;
    }
    const fl_item *first = &worker->items[lo];
    assert(whole || worker->cu[hi - lo] <= worker->ids_capacity);
    batch->ids       = whole ? first->block->ids + first->block->cu[first->k] : worker->ids;
    batch->cu        = worker->cu;
    batch->texts     = hi - lo;
    batch->tokens    = worker->cu[hi - lo];
    batch->pool_skip = skips ? worker->skip : NULL;
    batch->segment   = pairs && scheduler->encoder->desc.segments ? worker->segment : NULL;
    batch->keys      = blind && worker->replica->info.blind_tokens ? worker->keys : NULL;
    batch->rows      = worker->rows;
    batch->each      = NULL;
    batch->note      = NULL;
    batch->terms     = scheduler->terms ? worker->terms : NULL;
}

/* Where an item's rows go, whose tokens have one each; not OK: nowhere, and why. */
static int place_item(const fl_worker *worker, const fl_item *item, float **rows) {
    assert(item->block->token_rows);
    const fl_token_block *block  = item->block;
    uint32_t              length = fl_token_block_length(block, item->k);
    const fl_replica     *own    = worker->replica;
    if (!own->info.token_rows || (block->keys[item->k] < length && !own->info.blind_tokens))
        return FLETCH_EUNSUPPORTED;
    return own->set->scheduler->owner->place(block, item->k, rows);
}

/* Items whose tokens have rows: each[n] is 1 and rows[n] is where they go. One that can have none is
 * pooled with the others, and its pooled row thrown away: see finish_row. */
static bool place_all(fl_worker *worker, uint32_t lo, uint32_t hi) {
    bool any = false;
    for (uint32_t i = lo; i < hi; i++) {
        const fl_item *item    = &worker->items[i];
        bool           each    = item->block->token_rows;
        worker->placed[i - lo] = each ? place_item(worker, item, &worker->rows[i - lo]) : FLETCH_OK;
        each                   = each && worker->placed[i - lo] == FLETCH_OK;
        worker->each[i - lo]   = each;
        any                    = any || each;
    }
    return any;
}

/* Where the engine writes: the callers' rows, or `*buffer` of the pool where
 * more than normalising follows. */
static int stage_rows(fl_worker *worker, uint32_t lo, uint32_t hi, fl_batch *batch, float **buffer,
                      size_t *capacity) {
    fl_scheduler *scheduler = worker->replica->set->scheduler;
    size_t        width     = scheduler->pooled_width;
    uint32_t      inner     = 0;
    *buffer                 = NULL;
    for (uint32_t n = 0; batch->terms && n < hi - lo; n++)
        batch->terms[n].count = 0;
    if (batch->terms) {
        memset(worker->placed, 0, (hi - lo) * sizeof *worker->placed);
        return FLETCH_OK;
    }
    batch->each = place_all(worker, lo, hi) ? worker->each : NULL;
    for (uint32_t i = lo; i < hi; i++)
        inner += !worker->items[i].block->in_place && !worker->each[i - lo];
    if (inner > 0) {
        *buffer = fl_bufpool_take(scheduler->rows, inner * width * sizeof(float), capacity);
        if (!*buffer)
            return fl_fail_nomem(&worker->error, inner * width * sizeof(float), "rows of a batch");
    }
    float *next = *buffer;
    for (uint32_t i = lo; i < hi; i++) {
        const fl_item *item = &worker->items[i];
        if (worker->each[i - lo])
            continue;
        if (item->block->in_place) {
            (void)scheduler->owner->place(item->block, item->k, &worker->rows[i - lo]);
        } else {
            worker->rows[i - lo] = next;
            next += width;
        }
    }
    return FLETCH_OK;
}

static uint32_t longest_of(const fl_worker *worker, uint32_t texts) {
    assert(texts > 0);
    uint32_t longest = 0;
    for (uint32_t n = 0; n < texts; n++)
        if (worker->cu[n + 1] - worker->cu[n] > longest)
            longest = worker->cu[n + 1] - worker->cu[n];
    return longest;
}

/* Bytes of rows that `place` takes for the windows of documents: for this part alone, they go back with it. */
static uint64_t window_rows(const fl_worker *worker, uint32_t lo, uint32_t hi) {
    const size_t width = worker->replica->set->scheduler->encoder->desc.hidden;
    uint64_t     rows  = 0;
    for (uint32_t i = lo; i < hi; i++)
        if (worker->items[i].block->scratch_rows)
            rows += worker->cu[i - lo + 1] - worker->cu[i - lo] + 1;
    return rows * width * sizeof(float);
}

/* Room for the part, after buffers were let go if need be; ENOMEM: none now. What earlier batches of
 * this worker touched is resident already: only the excess is asked for, and `rows` bytes that are not kept. */
static int reserve(fl_worker *worker, const fl_batch *batch, uint64_t rows, uint64_t *reserved) {
    fl_replica   *replica   = worker->replica;
    fl_scheduler *scheduler = replica->set->scheduler;
    *reserved               = 0;
    if (!scheduler->predict)
        return FLETCH_OK;
    uint64_t total = replica->ops->memory(replica->engine, batch->texts, batch->tokens,
                                          longest_of(worker, batch->texts));
    uint64_t need  = rows + (total > worker->touched ? total - worker->touched : 0);
    if (need == 0)
        return FLETCH_OK;
    if (!fl_memory_reserve(scheduler->memory, need)) {
        scheduler->owner->trim(scheduler->model, "a batch does not fit under memory.limit");
        if (!fl_memory_reserve(scheduler->memory, need))
            return fl_fail(&worker->error, FLETCH_ENOMEM, FLETCH_NOWHERE,
                           "a batch of %u texts and %u tokens needs %.1f MB more than memory.limit "
                           "leaves; raise memory.limit or shorten the texts",
                           batch->texts, batch->tokens, (double)need / 1e6);
    }
    *reserved       = need;
    worker->touched = total > worker->touched ? total : worker->touched;
    return FLETCH_OK;
}

/* Item i has no row. */
static void fail_item(fl_worker *worker, uint32_t i, const fletch_error *error, fl_request **over) {
    fl_item      *item      = &worker->items[i];
    fl_scheduler *scheduler = worker->replica->set->scheduler;
    fl_scheduler_lock(scheduler);
    scheduler->owner->failed(item->block, item->k, error, over);
    fl_scheduler_unlock(scheduler);
}

/* A text's result, finished; not OK: it has none, and *error says why. */
static int finish_row(fl_worker *worker, const fl_item *item, uint32_t n, fletch_error *error) {
    assert(item->k < item->block->texts);
    const fl_block_owner *owner    = worker->replica->set->scheduler->owner;
    fl_computed           computed = {.placed = worker->placed[n],
                                      .row    = worker->rows[n],
                                      .terms  = &worker->terms[n],
                                      .line   = worker->line};
    if (worker->placed[n] == FLETCH_EUNSUPPORTED)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "provider %s does not return token vectors; use provider.order cpu",
                       worker->replica->provider);
    return owner->finish(item->block, item->k, &computed, error);
}

/* Items [lo, hi) have what the engine makes of them: dense layers, cut, unit length, element type;
 * weights. */
static void finish_rows(fl_worker *worker, uint32_t lo, uint32_t hi, fl_request **over) {
    fletch_error bad;
    for (uint32_t i = lo; i < hi; i++)
        if (finish_row(worker, &worker->items[i], i - lo, &bad) < 0)
            fail_item(worker, i, &bad, over);
}

/* Count the ways that the texts and the runs of a part went. */
static void count_ways(fl_worker *worker, uint32_t lo, const fl_batch *batch) {
    assert(batch->note && batch->texts > 0);
    static const fletch_counter counters[FL_WAYS] = {
        FLETCH_COUNT_ZERO_COPY_INPUTS, FLETCH_COUNT_COPIED_INPUTS, FLETCH_COUNT_ZERO_COPY_OUTPUTS,
        FLETCH_COUNT_STAGED_OUTPUTS,   FLETCH_COUNT_BOUND_RUNS,    FLETCH_COUNT_UNBOUND_RUNS};
    fl_scheduler *scheduler     = worker->replica->set->scheduler;
    bool          gathered      = batch->ids == worker->ids;
    uint64_t      ways[FL_WAYS] = {0};
    ways[FL_WAY_BOUND_RUN]      = batch->note->bound_runs;
    ways[FL_WAY_PLAIN_RUN]      = batch->note->plain_runs;
    for (uint32_t n = 0; n < batch->texts; n++) {
        const fl_item *item  = &worker->items[lo + n];
        bool           input = gathered || (worker->copied[n] & FL_COPIED_IDS) ||
                     scheduler->owner->was_copied(item->block, item->k);
        bool in_place = batch->terms == NULL && (worker->each[n] || item->block->in_place) &&
                        !(worker->copied[n] & FL_COPIED_ROW);
        ways[input ? FL_WAY_COPIED_INPUT : FL_WAY_ZERO_COPY_INPUT]++;
        ways[in_place ? FL_WAY_ZERO_COPY_OUTPUT : FL_WAY_STAGED_OUTPUT]++;
    }
    for (size_t way = 0; way < FL_WAYS; way++) {
        if (ways[way] > 0 && way < FL_PATH_BY_CALLER) /* the ways of texts are the first paths */
            log_path(scheduler, (fl_path)way);
        fl_stats_add(&scheduler->stats, counters[way], ways[way]);
        atomic_fetch_add_explicit(&worker->replica->ways[way], ways[way], memory_order_relaxed);
    }
}

/* When a part began, and how far it was then: staged, computed, finished. */
typedef struct part_times {
    uint64_t begin, staged, computed, finished;
} part_times;

/* What the trace and a line of the log say of a part that went through. */
static void report(const fl_worker *worker, const fl_batch *batch, const part_times *at) {
    const fl_replica *replica = worker->replica;
    const fl_log     *log     = fl_config_log(replica->set->scheduler->config);
    fl_trace         *trace   = replica->set->scheduler->trace;
    fl_trace_span(trace, NULL, "stage", at->begin, at->staged, "texts", batch->texts);
    fl_trace_span(trace, NULL, "forward", at->staged, at->computed, "tokens", batch->tokens);
    fl_trace_span(trace, NULL, "output", at->computed, at->finished, "texts", batch->texts);
    if (log == NULL || log->fn == NULL || !log->trace)
        return;
    fl_log_write(log, FL_LOG_TRACE,
                 "inference for %u items: %.3f ms (%u tokens, longest %u; provider %s, device %u, "
                 "slot %u; staging %.3f ms, output %.3f ms; %u runs bound, %u plain)",
                 batch->texts, (double)(at->computed - at->staged) / 1e6, batch->tokens,
                 longest_of(worker, batch->texts), replica->provider, replica->device,
                 worker->number, (double)(at->staged - at->begin) / 1e6,
                 (double)(at->finished - at->computed) / 1e6, batch->note->bound_runs,
                 batch->note->plain_runs);
}

/* A part went through the engine: count it and finish its rows. */
static void went_through(fl_worker *worker, uint32_t lo, const fl_batch *batch, part_times *at,
                         fl_request **over) {
    assert(lo + batch->texts <= worker->count);
    fl_replica    *replica = worker->replica;
    fl_stats      *stats   = &replica->set->scheduler->stats;
    const uint64_t took    = at->computed - at->staged;
    fl_histogram_add(&stats->forward, took, 1);
    fl_stats_add(stats, FLETCH_COUNT_BUSY_NS, took);
    fl_stats_add(stats, FLETCH_COUNT_BATCHES, 1);
    fl_stats_add(stats, FLETCH_COUNT_TEXTS, batch->texts);
    fl_stats_add(stats, FLETCH_COUNT_TOKENS, batch->tokens);
    count_ways(worker, lo, batch);
    atomic_fetch_add_explicit(&replica->tokens, batch->tokens, memory_order_relaxed);
    atomic_fetch_add_explicit(&replica->batches, 1, memory_order_release); /* with its tokens */
    finish_rows(worker, lo, lo + batch->texts, over);
    at->finished = fl_clock_ns();
    report(worker, batch, at);
}

/* Items [lo, hi) through the engine once. */
static int forward(fl_worker *worker, uint32_t lo, uint32_t hi, fl_request **over) {
    fl_replica   *replica   = worker->replica;
    fl_scheduler *scheduler = replica->set->scheduler;
    fl_batch_note note      = {.copied = worker->copied};
    part_times    at        = {.begin = fl_clock_ns()};
    fl_batch      batch;
    float        *buffer   = NULL;
    size_t        capacity = 0;
    uint64_t      reserved = 0;
    assert(lo < hi && hi <= worker->count && worker->busy);
    fl_scheduler_look(scheduler, at.begin);
    stage_inputs(worker, lo, hi, &batch);
    memset(worker->copied, 0, batch.texts * sizeof *worker->copied);
    batch.note = &note;
    int status = reserve(worker, &batch, window_rows(worker, lo, hi), &reserved);
    if (status == FLETCH_OK)
        status = stage_rows(worker, lo, hi, &batch, &buffer, &capacity);
    batch.scarce = fl_memory_room(scheduler->memory) < replica->info.resident_bytes;
    at.staged    = fl_clock_ns();
    if (status == FLETCH_OK)
        status = replica->ops->forward(replica->engine, worker->number, &batch, &worker->error);
    at.computed = fl_clock_ns();
    fl_memory_release(scheduler->memory, reserved);
    if (status == FLETCH_OK)
        went_through(worker, lo, &batch, &at, over);
    fl_bufpool_give(scheduler->rows, buffer, capacity);
    return status;
}

/* ---- When something goes wrong --------------------------------------------------------------- */

/* The next n items, texts that follow each other in one block, are answered. */
FL_LOCKED static void answer_run(fl_worker *worker, uint32_t n, uint64_t took, fl_request **over) {
    const fl_item *item = &worker->items[worker->finished];
    assert(n > 0 && worker->finished + n <= worker->count);
    worker->finished += n;
    worker->replica->set->scheduler->owner->answered(item->block, item->k, n, took, over);
}

/* Items up to `hi` are answered: tell their requests. */
static void answer(fl_worker *worker, uint32_t hi, uint64_t begin, fl_request **over) {
    assert(worker->finished <= hi && hi <= worker->count);
    fl_scheduler *scheduler = worker->replica->set->scheduler;
    uint64_t      took      = fl_clock_ns() - begin;
    fl_scheduler_lock(scheduler);
    while (worker->finished < hi)
        answer_run(worker, run_of(worker, worker->finished, hi), took, over);
    fl_scheduler_unlock(scheduler);
}

static bool is_wanted(fl_worker *worker, uint32_t i) {
    fl_scheduler *scheduler = worker->replica->set->scheduler;
    fl_scheduler_lock(scheduler);
    bool yes = scheduler->owner->is_wanted(worker->items[i].block);
    fl_scheduler_unlock(scheduler);
    return yes;
}

/* Run the batch: parts of it, from the front, each answered before the next begins. Not OK: the replica is
 * broken, and items from worker->finished on are not answered. */
static int run_parts(fl_worker *worker, uint64_t begin, fl_request **over) {
    assert(worker->busy && worker->finished < worker->count);
    fl_scheduler *scheduler = worker->replica->set->scheduler;
    fl_retry      retry     = {.part = worker->count};
    while (worker->finished < worker->count) {
        uint32_t lo = worker->finished;
        uint32_t hi = worker->count - lo < retry.part ? worker->count : lo + retry.part;
        if (retry.part < worker->count &&
            !is_wanted(worker, lo)) { /* after a failure: nobody waits for it */
            answer(worker, lo + 1, begin, over);
            continue;
        }
        int status = forward(worker, lo, hi, over);
        if (status == FLETCH_OK) {
            answer(worker, hi, begin, over);
            continue;
        }
        switch (fl_retry_next(&retry, status, worker->error.where, hi - lo, worker->count)) {
        case FL_RETRY_SMALLER:
            fl_stats_add(&scheduler->stats, FLETCH_COUNT_BATCH_SPLITS, status == FLETCH_ENOMEM);
            break;
        case FL_RETRY_FAIL_TEXT:
            fail_item(worker, lo, &worker->error, over);
            answer(worker, hi, begin, over);
            break;
        case FL_RETRY_BREAK: return status;
        }
    }
    return FLETCH_OK;
}

void fl_worker_fail(fl_worker *worker, fl_request **over) {
    assert(worker->error.code < 0 && !worker->batch_failed);
    while (worker->finished < worker->count) {
        const fl_item *item = &worker->items[worker->finished];
        worker->replica->set->scheduler->owner->failed(item->block, item->k, &worker->error, over);
        answer_run(worker, 1, 0, over);
    }
    worker->count = worker->finished = 0;
}

/* The engine failed: close the replica to new work, and give the batch to
 * whoever comes. */
FL_LOCKED static void break_replica(fl_worker *worker, fl_request **over) {
    fl_replica   *replica   = worker->replica;
    fl_scheduler *scheduler = replica->set->scheduler;
    assert(!worker->batch_failed && worker->finished < worker->count && worker->error.code < 0);
    fl_stats_add(&scheduler->stats, FLETCH_COUNT_REPLICA_FAILURES, 1);
    fl_log_write(fl_config_log(scheduler->config), FL_LOG_ERROR,
                 "provider %s, device %u: the engine failed (%s); reopening it", replica->provider,
                 replica->device, worker->error.message);
    fl_replica_broke(replica, worker->error.message);
    if (replica->breaks++ > 0) /* since its last good batch: opening it did not mend it */
        replica->retry_ns = fl_clock_ns() + fl_replica_backoff(replica->breaks - 1);
    if (worker->attempts++ > 0) {
        fl_worker_fail(worker, over);
    } else {
        worker->batch_failed      = true;
        worker->next_failed       = scheduler->failed_batches;
        scheduler->failed_batches = worker;
    }
}

/* Different requests of the batch, as the queue counts them. The blocks of items that are
 * answered are gone. */
static uint64_t requests_of(const fl_worker *worker) {
    assert(worker->finished < worker->count);
    uint64_t          requests = 0;
    const fl_request *last     = NULL;
    for (uint32_t i = worker->finished; i < worker->count; i++) {
        requests += worker->items[i].block->request != last;
        last = worker->items[i].block->request;
    }
    return requests;
}

void fl_worker_run(fl_worker *worker, fl_request **over) {
    assert(worker->busy && worker->replica->busy <= worker->replica->worker_count);
    fl_replica   *replica   = worker->replica;
    fl_scheduler *scheduler = replica->set->scheduler;
    uint64_t      requests  = requests_of(worker);
    uint64_t      tokens    = worker->tokens;
    uint64_t      begin     = fl_clock_ns();
    fl_scheduler_dispatch(scheduler); /* what is left may leave with another worker */
    fl_scheduler_unlock(scheduler);
    log_path(scheduler,
             pthread_equal(worker->thread, pthread_self()) ? FL_PATH_BY_WORKER : FL_PATH_BY_CALLER);
    int status = run_parts(worker, begin, over);
    fl_scheduler_lock(scheduler);
    assert(worker->busy && replica->busy > 0 && replica->outstanding >= tokens);
    assert(status < 0 || worker->finished == worker->count);
    end_interactive(worker);
    worker->busy = false;
    replica->busy--;
    replica->outstanding -= tokens;
    if (status == FLETCH_OK) {
        worker->count     = 0;
        replica->failures = 0;
        replica->breaks   = 0;
        replica->cold     = false;
        uint64_t now      = fl_clock_ns();
        fl_queue_ended(&scheduler->queue, requests, now - begin, now);
        scheduler->queue.rules.max_tokens = fl_adapt_batch(&scheduler->adapt, tokens, now - begin);
    } else {
        break_replica(worker, over);
    }
    if (replica->broken && replica->busy == 0) /* now it can be opened again */
        pthread_cond_signal(&replica->workers[0].wake);
    if (replica->set->stop) /* its thread ends when the worker is idle */
        pthread_cond_signal(&worker->wake);
    fl_scheduler_dispatch(scheduler);
}
