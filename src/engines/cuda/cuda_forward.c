/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_forward.c - a batch's way: packed into pinned memory, up, through the tier, down, to its rows.
 *
 * Role    The engine's forward; a slot is one stream with its own arena and pinned blocks.
 * Method  Up goes one block: counts, cumulative lengths, skipped tokens, tiles, ids. Down comes one block:
 *         a flag per text and the rows. Where the rows of a batch lie one behind the other in a
 *         buffer that the driver knows (pinned.c), they go there and only the flags come by the
 *         slot's block first. A slot that runs alone copies by its own stream, which is
 *         quickest; while others compute, the block goes up by the transfer stream and the slot's
 *         stream waits for its event. Then the thread polls a little, for a small batch is done in
 *         less time than sleeping takes, and looks again after naps (hang.c).
 * Errors  A device that hangs fails the batch after a while. After any other failure the stream is
 *         drained before the pinned blocks may be used again. A text
 *         whose row is not finite is run once more by rescue.c, and fails the batch by its index
 *         when that does not help.
 * Memory  none beyond the slot's. Threads: one per slot at a time.
 * Proof   tests/cuda/test_cuda_engine.c, test_cuda_faults.c, test_cuda_wait.c. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "engines/cuda/cuda_engine.h"
#include "engines/cuda/tile_lists.h"

/* Before the thread sleeps: a wake-up costs 30 to 80 us on a virtual machine. Alone, nobody else needs
 * the processor for this model, and one text takes a wide model some hundred microseconds. */
static const uint64_t poll_alone_ns = 2000000, poll_ns = 200000;

enum { DIRECT_LEAST = 64 << 10 }; /* bytes: below, copying costs less than a second call */

/* ---- Up -------------------------------------------------------------------------------------- */

/* A number for each text; where none are given, the same one. */
static void pack_numbers(unsigned char *to, const uint32_t *given, uint8_t otherwise,
                         uint32_t texts) {
    if (given != NULL)
        memcpy(to, given, texts * sizeof *given);
    else
        memset(to, otherwise, texts * sizeof *given);
}

static size_t pack(unsigned char *input, const fl_cuda_place *at, const fl_batch *batch) {
    fl_cuda_meta meta =
        fl_cuda_list_tiles(batch->cu, batch->texts, (fl_cuda_tile *)(void *)(input + at->short_at),
                           (fl_cuda_tile *)(void *)(input + at->long_at));
    memcpy(input, &meta, sizeof meta);
    memcpy(input + at->cu_at, batch->cu, (batch->texts + 1ULL) * sizeof *batch->cu);
    pack_numbers(input + at->skip_at, batch->pool_skip, 0, batch->texts);
    if (at->segment != 0) /* UINT32_MAX: no token of type 1 */
        pack_numbers(input + at->segment_at, batch->segment, UINT8_MAX, batch->texts);
    memcpy(input + at->ids_at, batch->ids, batch->tokens * sizeof *batch->ids);
    return at->ids_at + batch->tokens * sizeof *batch->ids;
}

static int upload(fl_engine *e, fl_cuda_slot *slot, size_t bytes, bool alone, fletch_error *error) {
    const fl_cuda_calls *cu     = &e->cuda->cu;
    CUstream             stream = e->transfer != NULL && !alone ? e->transfer : slot->stream;
    CUresult             result = cu->copy_up(slot->arena, slot->input, bytes, stream);
    if (result == CUDA_SUCCESS && stream != slot->stream) {
        result = cu->event_record(slot->uploaded, stream);
        if (result == CUDA_SUCCESS)
            result = cu->stream_after(slot->stream, slot->uploaded, 0);
    }
    return fl_cuda_check(e->cuda, result, FLETCH_EINTERNAL, error,
                         "a batch cannot be copied to the device");
}

/* ---- Down ------------------------------------------------------------------------------------ */

/* Whether the device can write all rows where they are wanted in one copy that is worth its call. */
static bool is_direct(const fl_engine *e, const fl_batch *batch) {
    size_t bytes = (size_t)batch->texts * e->width * sizeof(float);
    if (bytes < DIRECT_LEAST)
        return false;
    for (uint32_t i = 1; i < batch->texts; i++)
        if (batch->rows[i] != batch->rows[0] + (size_t)i * e->width)
            return false;
    return fl_cuda_is_pinned(batch->rows[0], bytes);
}

/* So many bytes down, and the event behind them. */
static int download(const fl_engine *e, const fl_cuda_slot *slot, void *to, CUdeviceptr from,
                    size_t bytes, fletch_error *error) {
    const fl_cuda_calls *cu     = &e->cuda->cu;
    CUresult             result = cu->copy_down(to, from, bytes, slot->stream);
    if (result == CUDA_SUCCESS)
        result = cu->event_record(slot->done, slot->stream);
    return fl_cuda_check(e->cuda, result, FLETCH_EINTERNAL, error,
                         "the rows cannot be copied from the device");
}

static int wait_done(fl_engine *e, const fl_cuda_slot *slot, bool alone, fletch_error *error) {
    CUresult result = fl_cuda_await(e, NULL, slot->done, alone ? poll_alone_ns : poll_ns);
    return fl_cuda_awaited(e, result, FLETCH_EINTERNAL, error, "the device failed");
}

/* The rows and flags, into the slot's block and whole; or, once the flags tell that the device has computed, into
 * the rows themselves. Nothing that the device has not come to yet points there: it may hang for ever,
 * or come back when they are somebody else's. */
static int bring_down(fl_engine *e, const fl_cuda_slot *slot, const fl_cuda_place *at,
                      const fl_batch *batch, bool direct, bool alone, fletch_error *error) {
    size_t rows  = (size_t)batch->texts * e->width * sizeof(float);
    size_t flags = batch->texts * sizeof(uint32_t);
    size_t first = direct ? flags : at->rows_at + rows;
    FL_TRY(download(e, slot, slot->output, at->bad, first, error));
    FL_TRY(wait_done(e, slot, alone, error));
    if (!direct)
        return FLETCH_OK;
    FL_TRY(download(e, slot, batch->rows[0], at->rows, rows, error));
    return wait_done(e, slot, alone, error);
}

static int deliver(fl_engine *e, const fl_cuda_slot *slot, const fl_cuda_place *at,
                   const fl_batch *batch, bool direct, fletch_error *error) {
    const unsigned char *rows   = slot->output + at->rows_at;
    size_t               bytes  = e->width * sizeof(float);
    int                  status = FLETCH_OK;
    for (uint32_t i = 0; i < batch->texts && status == FLETCH_OK; i++) {
        uint32_t bad;
        memcpy(&bad, slot->output + i * sizeof bad, sizeof bad);
        if (bad != 0)
            status = fl_cuda_rescue(e, batch, i, error);
        else if (!direct)
            memcpy(batch->rows[i], rows + i * bytes, bytes);
    }
    return status;
}

/* ---- One batch ------------------------------------------------------------------------------- */

static int check_batch(const fl_engine *e, const fl_batch *batch, fletch_error *error) {
    const fl_cuda_tier *most = &e->tiers[e->tier_count - 1];
    if (batch->texts > most->texts || batch->tokens > most->tokens)
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE,
                       "cuda: a batch of %u texts and %u tokens; the device's memory was sized for "
                       "%u and %u",
                       batch->texts, batch->tokens, most->texts, most->tokens);
    for (uint32_t t = 0; t < batch->texts; t++) {
        uint32_t length = batch->cu[t + 1] - batch->cu[t];
        if (length == 0 || length > e->max_length)
            return fl_fail(error, FLETCH_EINTERNAL, t, "text of %u tokens, opened for 1 to %u",
                           length, e->max_length);
    }
    return FLETCH_OK;
}

static uint32_t mix_of(const fl_batch *batch) {
    uint32_t mix = 0;
    for (uint32_t t = 0; t < batch->texts; t++) {
        bool is_short = batch->cu[t + 1] - batch->cu[t] <= FL_CUDA_SHORT_TOKENS;
        mix |= is_short ? FL_CUDA_HAS_SHORT : FL_CUDA_HAS_LONG;
    }
    return mix;
}

/* After a failure: until nothing reads or writes the pinned blocks any more. */
static void drain(fl_engine *e, const fl_cuda_slot *slot) {
    if (e->transfer != NULL)
        (void)fl_cuda_await(e, e->transfer, NULL, 0);
    (void)fl_cuda_await(e, slot->stream, NULL, 0);
}

/* Ids always pass the slot's pinned block, rows where the device cannot reach their place. */
static void note_copies(const fl_batch *batch, bool direct) {
    for (uint32_t i = 0; batch->note != NULL && i < batch->texts; i++)
        batch->note->copied[i] = FL_COPIED_IDS | (direct ? 0 : FL_COPIED_ROW);
}

static int run(fl_engine *e, fl_cuda_slot *slot, const fl_batch *batch, bool alone,
               fletch_error *error) {
    fl_cuda_shape shape  = {fl_cuda_tier_of(batch->tokens), mix_of(batch)};
    bool          direct = is_direct(e, batch);
    fl_cuda_place at;
    fl_cuda_lay_out(e, shape.tier, slot->arena, &at);
    note_copies(batch, direct);
    int          status = fl_cuda_plan_tier(e, shape.tier, error);
    uint64_t     begin  = fl_trace_begin(e->trace);
    size_t       packed = pack(slot->input, &at, batch);
    fl_cuda_work work;
    fl_cuda_work_begin(&work);
    if (status == FLETCH_OK)
        status = upload(e, slot, packed, alone, error);
    fl_trace_end(e->trace, "cuda copy up", begin, "tokens", batch->tokens);
    begin = fl_trace_begin(e->trace);
    fl_cuda_marks_begin(e, slot);
    if (status == FLETCH_OK)
        status = fl_cuda_run_shape(e, slot, shape, error);
    fl_trace_end(e->trace, "cuda launch", begin, "tokens", e->tiers[shape.tier].tokens);
    begin = fl_trace_begin(e->trace);
    if (status == FLETCH_OK)
        status = bring_down(e, slot, &at, batch, direct, alone, error);
    if (status < 0)
        drain(e, slot);
    fl_cuda_work_end(&work);
    fl_trace_end(e->trace, "cuda wait", begin, "texts", batch->texts);
    if (status == FLETCH_OK)
        fl_cuda_marks_tell(e, slot, batch->tokens);
    begin = fl_trace_begin(e->trace);
    if (status == FLETCH_OK)
        status = deliver(e, slot, &at, batch, direct, error);
    if (status == FLETCH_OK && direct)
        atomic_fetch_add_explicit(&e->direct_batches, 1, memory_order_relaxed);
    fl_trace_end(e->trace, "cuda rows", begin, "texts", batch->texts);
    return status;
}

int fl_cuda_forward(fl_engine *e, uint32_t slot, const fl_batch *batch, fletch_error *error) {
    CUcontext popped;
    if (batch->texts == 0)
        return FLETCH_OK;
    FL_TRY(check_batch(e, batch, error));
    if (atomic_load(&e->hangs))
        return fl_cuda_awaited(e, CUDA_ERROR_LAUNCH_TIMEOUT, FLETCH_EINTERNAL, error,
                               "a batch cannot begin");
    FL_TRY(fl_cuda_check(e->cuda, e->cuda->cu.context_push(e->context), FLETCH_EINTERNAL, error,
                         "the device's context is lost"));
    bool alone  = atomic_fetch_add(&e->running, 1) == 0;
    int  status = run(e, &e->slots[slot], batch, alone, error);
    atomic_fetch_sub(&e->running, 1);
    atomic_fetch_add_explicit(&e->batches, 1, memory_order_relaxed);
    e->cuda->cu.context_pop(&popped);
    return status;
}

/* ---- Warming up ------------------------------------------------------------------------------ */

/* A batch of `tokens` tokens in texts of at most `length`, run on every slot: twice, so that it is
 * captured. */
static int warm_with(fl_engine *e, uint32_t tokens, uint32_t length, int32_t *ids, uint32_t *cu,
                     float **rows, fletch_error *error) {
    uint32_t texts = 0, most = e->tiers[fl_cuda_tier_of(tokens)].texts;
    length = e->max_length < length ? e->max_length : length;
    length = tokens / most > length ? tokens / most : length; /* as many as it may have: fill it */
    length = e->max_length < length ? e->max_length : length;
    cu[0]  = 0;
    while (texts < most && cu[texts] + length <= tokens) {
        cu[texts + 1] = cu[texts] + length;
        texts++;
    }
    fl_batch batch  = {.ids = ids, .cu = cu, .texts = texts, .tokens = cu[texts], .rows = rows};
    int      status = FLETCH_OK;
    for (uint32_t i = 0; i < e->slot_count * 2 && status == FLETCH_OK && texts > 0; i++)
        status = fl_cuda_forward(e, i / 2, &batch, error);
    return status == FLETCH_EMODEL ? FLETCH_OK : status; /* the first real text will say it */
}

/* Short texts in several sizes up to the largest, and a long one: each of these loads or makes code
 * that the first real batch would wait for. */
int fl_cuda_warm(fl_engine *e, fletch_error *error) {
    enum { SHORT = 16, LONG = 128 };
    uint32_t       most    = e->tiers[e->tier_count - 1].tokens;
    const uint32_t sizes[] = {16, 64, 512, 4096, most, LONG};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    int32_t  *ids    = fl_alloc_zero(most, sizeof *ids);
    uint32_t *cu     = fl_alloc_zero(most + 1ULL, sizeof *cu);
    float   **rows   = fl_alloc_zero(most, sizeof *rows);
    float    *row    = fl_alloc_zero(e->width, sizeof *row); /* all rows go to one place */
    int       status = FLETCH_OK;
    if (ids == NULL || cu == NULL || rows == NULL || row == NULL)
        status = fl_fail_nomem(error, most * sizeof *ids, "a first batch");
    for (size_t i = 0; status == FLETCH_OK && i < most; i++)
        rows[i] = row;
    for (size_t i = 0; status == FLETCH_OK && i < SIZES; i++)
        if (sizes[i] <= most)
            status = warm_with(e, sizes[i], i + 1 == SIZES ? LONG : SHORT, ids, cu, rows, error);
    fl_free(ids);
    fl_free(cu);
    fl_free(rows);
    fl_free(row);
    return status;
}
