/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_memory.c - how many bytes a batch of a given shape takes, before it runs.
 *
 * Role    cpu_engine.c's `memory`: the scheduler promises these bytes to a batch (scheduler/memory.h), and
 *         the batch-size optimiser asks for shapes that do not exist yet.
 * Method  The arena is reserved when opening, but a reserved page costs nothing until it is written.
 *         So the answer is the pages of the arena that a batch of that shape writes: cpu_plan.c says how
 *         long the largest block would be and whether a split group shares it, and from the length follows
 *         how far every array of every busy thread is written. Pages are counted once, in the unit in
 *         which the kernel hands them out: 4 KiB, or 2 MiB where it backs big blocks with huge pages.
 *         Any thread may meet the largest block, so each is counted with it.
 *         Where the lengths alone decide between two plans, and only their sum is known, the dearer one
 *         is promised.
 * Bounds  Pages stay with the process once written, so a second batch of the shape takes nothing: the
 *         prediction is exact for a fresh engine and on the safe side ever after. Word vectors are
 *         read in place from the mapped file and count in info.resident_bytes, all of them; so does what
 *         cpu_prompt.c keeps. Tokens that it saves are not foreseen.
 * Memory  stack only. Threads: any, also while a batch runs; nothing of it is read.
 * Proof   tests/unit/test_prediction.c measures forked engines over many shapes: at most 10 % off.
 *         An array that is added to fl_cpu_scratch and not here fails there. */
#include <assert.h>

#include "base/mem.h"
#include "engines/cpu/cpu_engine.h"

/* Pages of the arena that were counted, in rising order. */
typedef struct tally {
    const fl_engine *engine;
    uint64_t         bytes;
    size_t           next; /* offset behind the last page counted */
} tally;

/* Count the pages of [first, last): huge ones as far as whole huge pages fit into the block, which is mapped in
 * whole small ones. */
static void count(tally *t, size_t first, size_t last) {
    const fl_engine *e      = t->engine;
    size_t           mapped = (e->arena_bytes + e->page_bytes - 1) / e->page_bytes * e->page_bytes;
    size_t           huge   = mapped / FL_BIG_ALIGNMENT * FL_BIG_ALIGNMENT;
    while (first < last) {
        size_t page = e->huge_pages && first < huge ? FL_BIG_ALIGNMENT : e->page_bytes;
        size_t end  = first / page * page + page;
        if (end > t->next) {
            t->bytes += page;
            t->next = end;
        }
        first = end;
    }
}

static void count_floats(tally *t, const float *place, size_t floats) {
    size_t first = (size_t)((const char *)place - (const char *)t->engine->arena);
    count(t, first, first + floats * sizeof *place);
}

static void count_ints(tally *t, const void *place, size_t bytes) {
    size_t first = (size_t)((const char *)place - (const char *)t->engine->arena);
    count(t, first, first + bytes);
}

static void count_rows(tally *t, const fl_cpu_rows *b, size_t rows, size_t width) {
    if (b->q)
        count_ints(t, b->q, rows * width * fl_cpu_unit(t->engine));
    if (b->scale)
        count_ints(t, b->scale, rows * sizeof *b->scale);
    if (b->zero)
        count_ints(t, b->zero, rows * sizeof *b->zero);
}

/* Rows of MLP tiles that rank i keeps: one tile with rows of its own; ranks
 * that split columns share all of them, as far as each has room (cpu_mlp.c). */
static size_t tile_rows(const fl_engine *e, bool shared, unsigned i, size_t rows) {
    if (!shared)
        return rows;
    size_t fit = e->rows_max / rows, before = i * fit;
    size_t left = e->mlp_tiles > before ? e->mlp_tiles - before : 0;
    return (left < fit ? left : fit) * rows;
}

/* Texts of the largest block whose largest logits are kept at a time. */
static size_t logit_rows(const fl_engine *e, const fl_cpu_guess *guess, uint32_t texts,
                         uint32_t tokens) {
    size_t rows = ((size_t)texts * guess->tokens + tokens - 1) / tokens;
    return rows < e->rows_max ? rows : e->rows_max;
}

/* Heads that a rank of a group has at a time, the most that one has; none where there are more ranks. */
static size_t heads_at_a_time(const fl_engine *e, unsigned ranks, unsigned rank) {
    size_t first = (size_t)e->desc.heads * rank / ranks;
    bool   none  = (size_t)e->desc.heads * (rank + 1) / ranks == first;
    size_t most  = none ? 0 : (e->desc.heads + ranks - 1) / ranks;
    return most < e->q_run ? most : e->q_run;
}

static uint64_t bytes_of(const fl_engine *e, const fl_cpu_guess *guess, uint32_t texts,
                         uint32_t tokens) {
    tally t       = {.engine = e};
    bool  split   = guess->ranks > 1;
    bool  by_rows = fl_cpu_by_rows(e, guess->tokens ? guess->tokens : guess->longest, guess->ranks);
    size_t n = guess->tokens, rows = guess->rows;
    size_t longest = guess->longest < e->block_max ? guess->longest : e->block_max;
    for (unsigned i = 0; i < guess->threads; i++) { /* in the order of lay_out_scratch */
        const fl_cpu_scratch *s = &e->scratch[i];
        unsigned rank   = i % guess->ranks; /* the others of a split group use the first one's */
        bool     own    = rank == 0;
        bool     alone  = own || by_rows;
        size_t   tiles  = tile_rows(e, split && !by_rows, rank, rows);
        size_t   heads  = heads_at_a_time(e, guess->ranks, rank);
        size_t   expert = split && !by_rows ? (rows + guess->ranks - 1) / guess->ranks : rows;
        tiles           = e->experts16 > 0 && tiles < expert ? expert : tiles;
        if (own) {
            count_floats(&t, s->x, n * e->hidden16);
            count_floats(&t, s->z, e->pre_norm ? n * e->hidden16 : 0);
            count_floats(&t, s->context, n * e->inner);
            count_floats(&t, s->joint_qk, n * (e->q_joint + e->k_joint));
        }
        count_floats(&t, s->head, heads > 0 ? (2 + heads) * n * e->head16 : 0);
        if (alone || e->project || e->decoder || e->latent.width16 > 0)
            count_floats(&t, s->y, rows * e->wide16);
        count_floats(&t, s->pair, fl_cpu_pair(e, rows));
        count_floats(&t, s->mlp, tiles * FL_CPU_MLP_TILE);
        count_floats(&t, s->attention,
                     n && heads ? fl_cpu_attention_scratch(heads, longest, longest, e->head16) : 0);
        count_floats(&t, s->relative, n && heads ? fl_cpu_disentangled_scratch(e, longest) : 0);
        count_floats(&t, s->expert.gates, expert * e->experts16);
        expert = expert < e->expert_rows ? expert : e->expert_rows;
        count_floats(&t, s->expert.in, expert * e->hidden16);
        count_floats(&t, s->expert.out, expert * e->hidden16);
        count_floats(&t, s->latent, rows * e->latent.width16);
        count_floats(&t, s->max_logits,
                     e->decoder ? logit_rows(e, guess, texts, tokens) * e->wide16 : 0);
        if (own)
            count_rows(&t, &s->x_narrow, n, e->hidden16);
        if (alone) {
            count_rows(&t, &s->context_narrow, rows,
                       e->inner > e->hidden16 ? e->inner : e->hidden16);
        }
        count_rows(&t, &s->mlp_narrow, tiles, FL_CPU_MLP_TILE);
    }
    count_ints(&t, e->plan.order, texts * sizeof *e->plan.order);
    count_ints(&t, e->plan.blocks, guess->blocks * sizeof *e->plan.blocks);
    count_ints(&t, e->plan.count, (e->max_length + 2) * sizeof *e->plan.count);
    count_ints(&t, e->plan.load, e->threads * sizeof *e->plan.load);
    size_t longer = fl_cpu_long_bytes(e, guess->longest);
    return t.bytes + (longer + e->page_bytes - 1) / e->page_bytes * e->page_bytes;
}

uint64_t fl_cpu_memory(const fl_engine *e, uint32_t texts, uint32_t tokens, uint32_t longest) {
    assert(longest <= tokens);
    fl_cpu_guess guess[FL_CPU_GUESSES];
    uint64_t     most = 0;
    if (texts == 0 || tokens == 0)
        return 0;
    texts          = texts < e->batch_texts ? texts : (uint32_t)e->batch_texts;
    unsigned count = fl_cpu_plan_guess(e, texts, tokens, longest, guess);
    for (unsigned i = 0; i < count; i++) {
        uint64_t bytes = bytes_of(e, &guess[i], texts, tokens);
        most           = bytes > most ? bytes : most;
    }
    return most;
}
