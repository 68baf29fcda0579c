/* SPDX-License-Identifier: Apache-2.0 */
/* tiers.c - the sizes that batches are rounded up to, and how much of the device each takes.
 *
 * Role    cuda_engine.c asks what fits before anything is allocated; cuda_layers.c and cuda_forward.c ask where
 *         things lie.
 * Method  Tiers: 32, 48 … 128 by 16, then eight to each power of two, so that rounding up adds an
 *         eighth at most and one in sixteen on the average. A place is laid out for its tier, not
 *         for the largest: a small batch stays dense in memory and in the second-level cache, and
 *         its input goes up in one short copy.
 *
 *           meta cu skip segment tiles ids | places | x y | qkv context, or middle, or bad rows | bytes
 *           `--- one copy up                                              one down --'
 *
 *         What one slot takes grows with the tier alone, so the largest tier that fits is found by
 *         walking down, and told where it is less than asked for. A fifth of the device's free memory
 *         is left to others.
 * State   Captured graphs and the promise of memory need the tiers (docs/providers.md, docs/cuda.md).
 * Memory  none. Threads: pure functions of the engine's sizes.
 * Proof   tests/cuda/test_cuda_memory.c: predictions against what the driver counted. */
#include "base/error.h"
#include "engines/cuda/cuda_engine.h"

enum {
    ALIGN      = 256,
    FINE       = 16,
    FINE_MOST  = 128,
    FINE_TIERS = 7,
    PER_OCTAVE = 8,
    LEAN_LEAST = 4096 /* tokens */
};

static uint32_t tier_tokens(uint32_t index) {
    if (index < FINE_TIERS)
        return FL_CUDA_TIER_LEAST + index * FINE;
    uint32_t octave = (index - FINE_TIERS) / PER_OCTAVE, step = (index - FINE_TIERS) % PER_OCTAVE;
    return ((uint32_t)FINE_MOST << octave) / PER_OCTAVE * (PER_OCTAVE + 1 + step);
}

uint32_t fl_cuda_tier_of(uint32_t tokens) {
    uint32_t index = 0;
    while (index + 1 < FL_CUDA_TIERS && tier_tokens(index) < tokens)
        index++;
    return index;
}

/* ---- Places ---------------------------------------------------------------------------------- */

static size_t take(size_t *at, uint64_t bytes, size_t align) {
    size_t place = (*at + align - 1) / align * align;
    *at          = place + bytes;
    return place;
}

static void lay_out_input(const fl_engine *e, const fl_cuda_tier *t, CUdeviceptr base, size_t *at,
                          fl_cuda_place *p) {
    uint32_t segments = e->desc.segments ? t->texts : 0;
    p->meta           = base + take(at, sizeof(fl_cuda_meta), FINE);
    p->cu_at          = take(at, (t->texts + 1ULL) * sizeof(uint32_t), FINE);
    p->skip_at        = take(at, t->texts * sizeof(uint32_t), FINE);
    p->segment_at     = take(at, segments * sizeof(uint32_t), FINE);
    p->short_at       = take(at, fl_cuda_short_capacity(t->tokens) * sizeof(fl_cuda_tile), FINE);
    p->long_at        = take(at, fl_cuda_long_capacity(t->tokens) * sizeof(fl_cuda_tile), FINE);
    p->ids_at         = take(at, t->tokens * sizeof(int32_t), FINE);
    p->cu             = base + p->cu_at;
    p->skip           = base + p->skip_at;
    p->segment        = segments > 0 ? base + p->segment_at : 0;
    p->short_tiles    = base + p->short_at;
    p->long_tiles     = base + p->long_at;
    p->ids            = base + p->ids_at;
    p->input_bytes    = take(at, 0, FINE); /* the device may take it by 16 */
}

static void lay_out_q8(const fl_engine *e, uint64_t tokens, CUdeviceptr base, size_t *at,
                       fl_cuda_place *p) {
    uint64_t widest = e->qkv_width > e->up_width ? e->qkv_width : e->up_width;
    uint64_t out    = widest > e->desc.hidden ? widest : e->desc.hidden;
    uint64_t in     = e->desc.hidden > e->inner ? e->desc.hidden : e->inner;
    p->narrow       = base + take(at, tokens * in, ALIGN);
    p->row_scales   = base + take(at, tokens * sizeof(float), ALIGN);
    p->sums         = base + take(at, tokens * out * sizeof(int32_t), ALIGN);
}

void fl_cuda_lay_out(const fl_engine *e, uint32_t tier, CUdeviceptr base, fl_cuda_place *out) {
    const fl_cuda_tier *t      = &e->tiers[tier];
    uint64_t            tokens = t->tokens, size = e->element;
    bool                pre = e->desc.norm_place == FL_NORM_PRE, turns = e->desc.rope[0].dims > 0;
    size_t              at = 0;
    *out                   = (fl_cuda_place){0};
    lay_out_input(e, t, base, &at, out);
    if (turns)
        out->places = base + take(&at, tokens * sizeof(uint32_t), ALIGN);
    out->x = base + take(&at, tokens * e->desc.hidden * size, ALIGN);
    if (pre || e->narrow == FL_CUDA_Q8)
        out->y = base + take(&at, tokens * e->desc.hidden * size, ALIGN);
    size_t middle = at, down = at; /* each over the one before, of which nobody reads any more */
    out->qkv     = base + take(&at, tokens * e->qkv_width * size, ALIGN);
    out->context = base + take(&at, tokens * e->inner * size, ALIGN);
    out->middle  = base + take(&middle, tokens * e->up_width * size, ALIGN);
    out->bad     = base + take(&down, t->texts * sizeof(uint32_t), ALIGN);
    out->rows    = base + take(&down, (uint64_t)t->texts * e->width * sizeof(float), ALIGN);
    at           = at > middle ? at : middle;
    at           = at > down ? at : down;
    if (e->narrow == FL_CUDA_Q8)
        lay_out_q8(e, tokens, base, &at, out);
    if (e->narrow == FL_CUDA_E4M3)
        out->narrow = base + take(&at, tokens * e->desc.hidden, ALIGN);
    out->rows_at      = out->rows - out->bad;
    out->output_bytes = base + down - out->bad;
    out->bytes        = (at + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- What fits ------------------------------------------------------------------------------- */

static void name_tiers(fl_engine *e, uint32_t most) {
    e->tier_count = fl_cuda_tier_of(most) + 1;
    for (uint32_t i = 0; i < e->tier_count; i++) {
        e->tiers[i].tokens = tier_tokens(i);
        e->tiers[i].texts =
            e->batch_texts < e->tiers[i].tokens ? e->batch_texts : e->tiers[i].tokens;
    }
}

uint64_t fl_cuda_resident(const fl_engine *e) {
    return fl_cuda_mapped(e,
                          e->weights_bytes + e->slot_count * (e->arena_bytes + e->workspace_bytes));
}

void fl_cuda_share_out(fl_engine *e) {
    CUdeviceptr at = e->block + e->weights_bytes;
    e->weights     = e->block;
    for (uint32_t i = 0; i < e->slot_count; i++, at += e->arena_bytes + e->workspace_bytes) {
        e->slots[i].arena     = at;
        e->slots[i].workspace = at + e->arena_bytes;
    }
}

/* int8 holds sums of 32 bits and rows of 8 beside what 16 bits take, nearly three times as much for a
 * token: who asks for it to save memory gets batches that take three quarters of those of 16 bits,
 * unless so few tokens keep the device idle. */
static uint32_t lean_tokens(const fl_engine *e) {
    uint32_t      tier = e->tier_count - 1;
    fl_cuda_place place;
    fl_cuda_lay_out(e, tier, 0, &place);
    const uint64_t plain = place.narrow - (place.qkv - place.y); /* nor have 16 bits a y */
    while (e->tiers[tier].tokens > LEAN_LEAST && place.bytes > plain / 4 * 3)
        fl_cuda_lay_out(e, --tier, 0, &place);
    return e->tiers[tier].tokens;
}

static int fail_fit(const fl_engine *e, uint64_t need, uint64_t room, uint64_t free_bytes,
                    uint64_t limit, fletch_error *error) {
    return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE,
                   "cuda: a text of %u tokens in %s needs at least %.1f MB on %s (weights %.1f MB, "
                   "%u streams), but only %.1f MB may be taken (%s; %.1f MB are free, of which a "
                   "fifth is reserved): raise cuda.memory_limit, lower cuda.streams or "
                   "model.max_length, or free the device",
                   e->max_length, e->precision, (double)need / 1e6, e->name,
                   (double)e->weights_bytes / 1e6, e->slot_count, (double)room / 1e6,
                   limit == room ? "cuda.memory_limit" : "what the device has free",
                   (double)free_bytes / 1e6);
}

int fl_cuda_fit(fl_engine *e, uint32_t tokens, uint64_t limit, fletch_error *error) {
    size_t        free_bytes = 0, total = 0;
    fl_cuda_place place;
    CUresult      result = e->cuda->cu.memory_info(&free_bytes, &total);
    FL_TRY(fl_cuda_check(e->cuda, result, FLETCH_EPROVIDER, error, "free memory cannot be read"));
    free_bytes += fl_cuda_spare(e);
    uint64_t room = free_bytes / 5 * 4;
    room          = limit > 0 && limit < room ? limit : room;
    name_tiers(e, tokens > e->max_length ? tokens : e->max_length);
    uint32_t lean = e->chooses && e->narrow == FL_CUDA_Q8 ? lean_tokens(e) : tokens;
    if (lean < tokens)
        name_tiers(e, lean > e->max_length ? lean : e->max_length);
    uint32_t most = e->tier_count, least = fl_cuda_tier_of(e->max_length);
    uint64_t need = 0;
    for (uint32_t tier = most; tier-- > least;) {
        fl_cuda_lay_out(e, tier, 0, &place);
        e->arena_bytes = place.bytes;
        e->tier_count  = tier + 1;
        need           = fl_cuda_resident(e);
        if (need > room)
            continue;
        if (e->tier_count < most)
            fl_log_write(e->log, FL_LOG_WARNING,
                         "cuda: batches of %u tokens instead of %u, so that %.1f MB of %.1f MB on "
                         "%s are enough; raise cuda.memory_limit or lower cuda.streams for larger "
                         "ones",
                         e->tiers[tier].tokens, e->tiers[most - 1].tokens, (double)need / 1e6,
                         (double)room / 1e6, e->name);
        return FLETCH_OK;
    }
    return fail_fit(e, need, room, free_bytes, limit, error);
}
