/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_cost.c - what a block costs: a text on one thread, and a block on a group of several.
 *
 * Unit     What a token takes of the linear layers on one thread; fl_cpu_cost_open says how long that is.
 * Method   Attention grows with the length. A group shares the heads, then rows or columns, as cpu_layers.c
 *          does, and whoever has one head more, or one panel more, is waited for; a barrier costs more the
 *          more come to it, since they write one cache line in turn. A larger group is only taken where it is
 *          so much quicker that each rank is still worth having: cores that wait are no use to others.
 *          The walk to that size begins at one rank, so a machine with more cores goes on where a smaller one
 *          stopped and is never slower.
 * Bytes    None of this can change a result. Proof: tests/unit/test_plan.c; bench/cores.py beside clocks. */
#include "engines/cpu/split.h"

/* Operations in a nanosecond of one core, float32; a guess, since only the size of a barrier beside them
 * matters. Narrow formats do more. */
static const double per_ns[] = {
    [FL_CPU_FP32] = 100.0, [FL_CPU_INT8] = 300.0, [FL_CPU_INT16] = 180.0, [FL_CPU_BF16] = 190.0};

/* Nanoseconds of a barrier: once, and for each that comes to it. */
static const double barrier_ns = 200.0, arrival_ns = 80.0;

/* How much longer a group takes besides: rows that one core writes and another reads. */
static const double split_cost = 1.08;

/* What a text of n tokens takes of attention, in multiply-adds of the products that take as long: 4 n
 * inner flops a token at two thirds of the speed of float32's products; narrow ones are faster. Attention
 * of a narrow format takes less of it. */
static const double attention_cost[] = {
    [FL_CPU_FP32] = 6.0, [FL_CPU_INT8] = 13.0, [FL_CPU_INT16] = 9.0, [FL_CPU_BF16] = 6.0};
static const double narrow_attention = 0.6;

/* Keys that a token of a text of n sees, over all layers. */
static double seen_keys(const fl_engine *engine, double n) {
    const fl_encoder_desc *d   = &engine->desc;
    double                 sum = 0.0;
    for (uint32_t i = 0; i < d->layers; i++) {
        if (d->layer[i].convolves)
            continue; /* a few of them, whatever the length */
        const fl_cpu_window *window = engine->layers[i].window;
        double               before = (double)window->before, after = (double)window->after;
        double               reach = n / 2.0; /* at most so many to one side, on average */
        sum += (before < reach ? before : reach) + (after < reach ? after : reach);
    }
    return sum / d->layers;
}

/* MLPs that a token goes through, over all layers. */
static double mlps(const fl_encoder_desc *d) {
    double sum = 0.0;
    for (uint32_t i = 0; i < d->layers; i++)
        sum += d->layer[i].experts > 0 ? d->layer[i].experts_used : 1;
    return sum / d->layers;
}

void fl_cpu_cost_open(fl_engine *engine) {
    const fl_encoder_desc *d      = &engine->desc;
    double                 hidden = d->hidden, inner = (double)engine->inner;
    double                 kv_inner = (double)(d->kv_heads * engine->head16);
    if (d->layers == 0) {
        engine->cost = (fl_cpu_cost){0};
        return;
    }
    double linear = 4.0 * hidden * (inner + kv_inner) +
                    (engine->gated ? 6.0 : 4.0) * hidden * d->intermediate * mlps(d);
    double attention = attention_cost[engine->format];
    if (engine->kernels->narrow[engine->format].attention)
        attention *= narrow_attention;
    double token_ns = linear / per_ns[engine->format];
    engine->cost    = (fl_cpu_cost){.attention = attention * inner / linear,
                                    .heads     = 2.0 * hidden * (inner + 2.0 * kv_inner) / linear,
                                    .barrier   = barrier_ns / token_ns,
                                    .arrival   = arrival_ns / token_ns};
}

double fl_cpu_text_cost(const fl_engine *engine, double n) {
    return engine->desc.layers == 0 ? n : n + n * seen_keys(engine, n) * engine->cost.attention;
}

/* The largest share of `count` things that one of `ranks` has. */
static double largest(size_t count, unsigned ranks) {
    size_t own = (count + ranks - 1) / ranks;
    return count > 0 ? (double)own / (double)count : 0.0;
}

unsigned fl_cpu_group_waits(const fl_engine *engine, size_t tokens, unsigned ranks) {
    bool narrow = engine->narrow.quantize != NULL; /* rows are rounded twice on their way, apart */
    return ranks == 1 ? 0 : fl_cpu_by_rows(engine, tokens, ranks) ? 2 : narrow ? 8 : 6;
}

double fl_cpu_group_time(const fl_engine *engine, const fl_cpu_block *block, unsigned ranks) {
    const fl_cpu_cost *c      = &engine->cost;
    double             tokens = block->tokens, heads = c->heads * tokens + block->cost - tokens;
    bool               rows  = fl_cpu_by_rows(engine, block->tokens, ranks);
    size_t             parts = rows ? block->tokens : engine->hidden16 / FL_CPU_LANES;
    if (ranks == 1)
        return block->cost;
    if (engine->desc.layers == 0) /* texts are shared, and nobody waits */
        return block->cost * largest(block->last - block->first, ranks);
    double work = heads * largest(engine->desc.heads, ranks) +
                  (1.0 - c->heads) * tokens * largest(parts, ranks);
    return work * split_cost +
           fl_cpu_group_waits(engine, block->tokens, ranks) * (c->barrier + c->arrival * ranks);
}

unsigned fl_cpu_group_size(const fl_engine *engine, const fl_cpu_block *block) {
    enum { REACH = 4 }; /* a group so many times as large is still looked at */
    unsigned best = 1;
    double   time = block->cost;
    for (unsigned m = 2; m <= engine->threads && m <= REACH * best; m++) {
        double other = fl_cpu_group_time(engine, block, m);
        if (other * other * m < time * time * best) { /* twice the ranks: 1.4 times as fast */
            best = m;
            time = other;
        }
    }
    return best;
}
