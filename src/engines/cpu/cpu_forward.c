/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_forward.c - a block of texts: embedding, layers, pooling.
 *
 * Role     cpu_engine.c calls fl_cpu_run_block for every block of the plan: with a split group of one thread
 *          (throughput: no barriers, activations stay in that core's L2), or with several
 *          (latency: one small request; and what would leave threads idle at the end of a batch).
 * Method   Tokens become rows of x, cpu_layers.c takes them through the layers, the rows of every text are
 *          pooled into its result, or copied there one by one. All of this is float32 in every precision.
 * Memory   Only what cpu_engine.c reserved; word rows are read where the file is mapped, and while memory
 *          is scarce a row is read by a call instead. Threads: a split group of more than one shares the first one's
 *          scratch.
 * Proof    tests/unit/test_engine*.c: against double precision, and bytes over batches and
 *          threads. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/number.h"
#include "engines/cpu/split.h"

/* What an id's row is multiplied by. */
static float word_scale(const fl_engine *e, int32_t id) {
    float scale = e->desc.embed_scale != 0.0f ? e->desc.embed_scale : 1.0f;
    if (e->word_scale.data)
        fl_tensor_to_f32(&e->word_scale, (uint64_t)id, 1, &scale);
    return scale;
}

/* Where memory is scarce a word's vector is read by a call: through the mapping it would bring up to 2 MiB
 * of the file with it. An adapter is added by elements' places in the table. */
static void word_row(const fl_engine *e, uint64_t index, float *row) {
    enum { AT_ONCE = 1024 }; /* elements: whole blocks, where the type has them */
    size_t width = e->desc.embedding;
    if (!e->batch->scarce || e->word.map == NULL || e->word.adapter != NULL ||
        e->word.packed != NULL) {
        fl_tensor_to_f32(&e->word, index * width, width, row);
        return;
    }
    fl_tensor some = e->word;
    for (size_t k = 0, n; k < width; k += n) {
        unsigned char bytes[AT_ONCE * sizeof(float)];
        const char   *from =
            (const char *)e->word.data + fl_dtype_bytes(e->word.dtype, index * width + k);
        n         = width - k < AT_ONCE ? width - k : AT_ONCE;
        some.data = from;
        if (fl_map_copy(e->word.map, from, fl_dtype_bytes(some.dtype, n), bytes))
            some.data = bytes;
        fl_tensor_to_f32(&some, 0, n, row + k);
    }
}

/* row = word[id] scale + positions[position] */
static void embed_token(const fl_engine *e, int32_t id, size_t position, float *row) {
    size_t width = e->desc.embedding;
    float  scale = word_scale(e, id);
    word_row(e, fl_cpu_word_row(&e->word_map, id), row);
    memset(row + width, 0, (e->embed16 - width) * sizeof(float));
    for (size_t k = 0; scale != 1.0f && k < width; k++)
        row[k] *= scale;
    for (size_t k = 0; e->positions && k < width; k++)
        row[k] += e->positions[position * e->embed16 + k];
}

/* x[rows] from the embedded rows: norm, and the way to the layers' width. */
static void finish_rows(const fl_engine *e, float *embedded, size_t rows, float *x) {
    if (e->embed_norm.weight) {
        fl_cpu_norm_as(e, FL_NORM_LAYER, &e->embed_norm, embedded, embedded, e->embed16, rows,
                       e->desc.embedding);
    }
    if (e->project) {
        fl_gemm g = {.a        = embedded,
                     .a_stride = e->embed16 * sizeof *embedded,
                     .b        = e->project,
                     .b_stride = e->embed16 * FL_CPU_LANES * sizeof *e->project,
                     .c        = x,
                     .c_stride = e->hidden16,
                     .bias     = e->project_bias,
                     .rows     = rows,
                     .panels   = e->hidden16 / FL_CPU_LANES,
                     .k        = e->embed16};
        e->kernels->gemm(&g);
    }
}

/* This rank's share of the block's tokens, to x. Where the architecture says so, a pad token that
 * stands in the text takes the padding row, kept behind the last position, and the others are counted
 * without it. Rows that must be projected pass through y, some at a time. */
static void embed(const fl_cpu_split *c, float *y) {
    const fl_engine *e     = c->engine;
    const fl_batch  *batch = e->batch;
    size_t           first = fl_cpu_share(c, c->block->tokens, c->rank);
    size_t           last = fl_cpu_share(c, c->block->tokens, c->rank + 1), row = 0;
    size_t           held = 0; /* rows before `row` that wait in own */
    float           *x    = c->scratch.x + first * e->hidden16;
    float           *own  = e->project ? y : x;
    for (uint32_t t = c->block->first; t < c->block->last; t++) {
        size_t         known = fl_cpu_prefix(e, t), counted = known;
        const int32_t *ids = batch->ids + batch->cu[e->plan.order[t]] + known;
        size_t         n = fl_cpu_length(e, t), second = fl_cpu_second(e, t);
        for (size_t i = 0; i < n; i++, row++) {
            bool   is_pad   = e->desc.position_skips_pad && (uint32_t)ids[i] == e->desc.pad_token;
            size_t position = is_pad ? e->max_length : counted++;
            position += i < second ? 0 : fl_cpu_segment_row(e);
            if (row < first || row >= last)
                continue;
            embed_token(e, ids[i], position, own + held++ * e->embed16);
            if (row + 1 == last || (e->project && held == e->rows_max)) {
                finish_rows(e, own, held, x);
                x += held * e->hidden16;
                held = e->project ? 0 : held;
            }
        }
    }
}

size_t fl_cpu_rows_step(const fl_engine *e, size_t tokens) {
    assert(tokens > 0);
    size_t steps = (tokens + e->rows_max - 1) / e->rows_max;
    size_t rows  = (tokens + steps - 1) / steps;
    return (rows + FL_CPU_TILE - 1) / FL_CPU_TILE * FL_CPU_TILE;
}

/* Remember the lowest text whose row is not finite. */
void fl_cpu_report_bad(fl_engine *e, uint32_t text) {
    unsigned seen = atomic_load(&e->bad_text);
    while (text < seen && !atomic_compare_exchange_weak(&e->bad_text, &seen, text)) {
    }
}

size_t fl_cpu_pooled_row(const fl_engine *engine, size_t n, size_t skip) {
    assert(n > 0);
    fl_pooling mode = engine->pooling[0];
    if (engine->pooling_count > 1 || (mode != FL_POOL_CLS && mode != FL_POOL_LAST_TOKEN))
        return SIZE_MAX;
    return mode == FL_POOL_LAST_TOKEN ? n - 1 : skip < n ? skip : 0;
}

/* Whether a text of the batch is not pooled. */
static bool wants_each(const fl_engine *e, uint32_t text) {
    return e->batch->each && e->batch->each[text];
}

/* Whether one of the block's is not. */
static bool wants_any(const fl_engine *e, const fl_cpu_block *block) {
    for (uint32_t t = block->first; t < block->last; t++)
        if (wants_each(e, e->plan.order[t]))
            return true;
    return false;
}

/* The rows of all n tokens, as they are; false: a value is not finite. */
static bool copy_rows(const fl_engine *e, const float *x, size_t n, float *out) {
    size_t width = e->desc.hidden;
    for (size_t i = 0; i < n; i++)
        memcpy(out + i * width, x + i * e->hidden16, width * sizeof *out);
    return fl_all_finite(out, n * width);
}

/* The text's result from its rows x[n]. */
static bool hand_over(const fl_engine *e, uint32_t text, const float *x, size_t n, uint32_t skip) {
    float *out = e->batch->rows[text];
    if (wants_each(e, text))
        return copy_rows(e, x, n, out);
    const fl_rows rows = {x, e->hidden16, NULL};
    return fl_pool_rows(e->pooling, e->pooling_count, &rows, e->desc.hidden, (uint32_t)n, skip,
                        out);
}

/* Where the last layer took the pooled rows alone, a text's pooled row is all there is of it. */
static void pool_texts(const fl_cpu_split *c) {
    fl_engine *e   = c->engine;
    size_t     row = 0;
    for (uint32_t t = c->block->first; t < c->block->last; t++) {
        uint32_t text = e->plan.order[t], n = fl_cpu_length(e, t), skip = fl_cpu_skip(e, t);
        float   *x = c->scratch.x + row * e->hidden16;
        if (c->pooled_only) {
            skip = n > skip ? 0 : 1; /* whether all of the text is left out still counts */
            n    = 1;
        }
        row += n;
        if ((t - c->block->first) % c->ranks != c->rank)
            continue;
        if (e->final_norm.weight && e->latent.width16 == 0)
            fl_cpu_norm_rows(e, &e->final_norm, x, x, n);
        if (!hand_over(e, text, x, n, skip))
            fl_cpu_report_bad(e, text);
    }
}

/* Whether texts are sums of word rows as they lie in the file: a static table of float32. */
static bool pools_words(const fl_engine *e, const fl_cpu_block *block) {
    bool as_it_is = e->word.dtype == FL_DTYPE_F32 && (uintptr_t)e->word.data % sizeof(float) == 0 &&
                    e->word.adapter == NULL && e->word_map.data == NULL &&
                    e->word_scale.data == NULL;
    bool alone = e->desc.layers == 0 && e->positions == NULL && e->embed_norm.weight == NULL &&
                 e->project == NULL && e->final_norm.weight == NULL && !e->decoder &&
                 (e->desc.embed_scale == 0.0f || e->desc.embed_scale == 1.0f);
    return as_it_is && alone && !e->batch->scarce && !wants_any(e, block);
}

static void pool_words(const fl_cpu_split *c) {
    fl_engine      *e     = c->engine;
    const fl_batch *batch = e->batch;
    for (uint32_t t = c->block->first; t < c->block->last; t++) {
        uint32_t      text = e->plan.order[t];
        const fl_rows rows = {e->word.data, e->desc.embedding, batch->ids + batch->cu[text]};
        if ((t - c->block->first) % c->ranks == c->rank &&
            !fl_pool_rows(e->pooling, e->pooling_count, &rows, e->desc.hidden,
                          (uint32_t)fl_cpu_length(e, t), fl_cpu_skip(e, t), batch->rows[text]))
            fl_cpu_report_bad(e, text);
    }
}

/* Whether the last layer may take the pooled rows alone: worth it from two tokens a text on. int8's gains
 * are chosen from all rows. */
static bool pools_one_row(const fl_engine *e, const fl_cpu_block *block) {
    size_t texts = block->last - block->first;
    return !e->decoder && e->desc.layers > 0 && !wants_any(e, block) && e->watch == NULL &&
           fl_cpu_pooled_row(e, 1, 0) != SIZE_MAX && texts <= e->rows_max &&
           2 * texts <= block->tokens;
}

/* The caller of forward has a name already; the others of the team get one. */
static void name_thread(const fl_engine *e, unsigned thread) {
    char name[32];
    if (e->trace && thread > 0) {
        snprintf(name, sizeof name, "cpu thread %u", thread);
        fl_trace_thread(e->trace, name);
    }
}

void fl_cpu_run_block(fl_engine *engine, const fl_cpu_block *block, unsigned thread,
                      unsigned ranks) {
    bool                  longer = block->tokens > engine->block_max;
    const fl_cpu_scratch *own    = longer ? engine->longer.scratch : engine->scratch;
    fl_cpu_split          c      = {.engine      = engine,
                                    .block       = block,
                                    .scratch     = own[thread],
                                    .ranks       = ranks,
                                    .pooled_only = pools_one_row(engine, block)};
    if (ranks > 1) {
        const fl_cpu_scratch *shared = &own[thread / ranks * ranks];
        c.rank                       = thread % ranks;
        c.first                      = thread - c.rank;
        c.scratch.x                  = shared->x;
        c.scratch.z                  = shared->z;
        c.scratch.context            = shared->context;
        c.scratch.joint_qk           = shared->joint_qk;
        c.scratch.y                  = shared->y;
        c.scratch.x_narrow           = shared->x_narrow;
        c.scratch.context_narrow     = shared->context_narrow;
    }
    const uint64_t begin = fl_trace_begin(engine->trace);
    name_thread(engine, thread);
    if (pools_words(engine, block)) {
        pool_words(&c);
        fl_trace_end(engine->trace, "block", begin, "tokens", block->tokens);
        return;
    }
    embed(&c, engine->scratch[thread].y);
    fl_cpu_wait(&c);
    fl_cpu_layers(&c);
    bool asked = !engine->prompt.keeping && engine->watch == NULL; /* for results */
    if (asked && engine->decoder) {
        c.scratch.y = engine->scratch[thread].y; /* no rank reads another's sums here */
        fl_cpu_vocabulary(&c);
    } else if (asked) {
        c.scratch.y = engine->scratch[thread].y;
        if (engine->latent.width16 > 0) {
            fl_cpu_latents(&c, c.pooled_only ? block->last - block->first : block->tokens);
            fl_cpu_wait(&c);
        }
        pool_texts(&c);
    }
    fl_trace_end(engine->trace, "block", begin, "tokens", block->tokens);
    fl_cpu_wait(&c); /* the next block overwrites x */
}
