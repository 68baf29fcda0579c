/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_plan.c - deal the texts of a batch to threads: whole texts in blocks, longest first, and what does
 * not come out even to all together.
 *
 * Method   Texts are sorted by length, longest first, and cut into blocks that threads take from
 *          one counter. A block is at most block_size tokens (or one longer text) and at most half
 *          of a fair share of what is left, so blocks shrink towards the end and all threads stop
 *          at about the same time. Where the blocks would still leave threads idle (a lone text,
 *          three long ones on two threads) some of them, or all, are run by all threads together; that
 *          comes first, when all begin at the same time anyway.
 * Bytes    None of this can change a result, only when it is ready.
 * Memory   Arrays of the engine's arena. Threads: called by the thread that calls forward. */
#include <assert.h>
#include <string.h>

#include "engines/cpu/cpu_engine.h"

enum {
    BLOCK_MIN = 36, /* smaller blocks read the weights too often for what they compute */
    EVEN      = 64  /* so many blocks or more come out even by themselves */
};

/* How much longer all threads together take than each for itself with as much: barriers and shared
 * rows. */
static const double split_cost = 1.08;

/* A run is only shared where it ends so much sooner: these times are estimates. */
static const double worth = 0.98;

/* Lengths that are only guessed leave open which of two plans is made, when their times differ less. */
static const double like = 1.5;

/* What a text of n tokens takes of attention, in multiply-adds of the products that take as long: 4 n
 * inner flops a token at two thirds of the speed of float32's products; narrow ones are faster. Attention
 * of a narrow format takes less of it. */
static const double attention_cost[] = {
    [FL_CPU_FP32] = 6.0, [FL_CPU_INT8] = 13.0, [FL_CPU_INT16] = 9.0, [FL_CPU_BF16] = 6.0};
static const double narrow_attention = 0.6;

/* Tokens that are to be computed. */
static uint32_t length_of(const fl_engine *engine, const fl_batch *batch, uint32_t text) {
    assert(text < batch->texts && batch->cu[text] < batch->cu[text + 1]);
    uint32_t shared = engine->prompt.shared ? engine->prompt.shared[text] : 0;
    return batch->cu[text + 1] - batch->cu[text] - shared;
}

static void sort_by_length(const fl_engine *engine, const fl_batch *batch,
                           const fl_cpu_plan *plan) {
    assert(batch->texts > 0);
    size_t    longest = engine->max_length;
    uint32_t *start   = plan->count; /* start[i]: first place of length longest - i */
    memset(start, 0, (longest + 2) * sizeof *start);
    for (uint32_t t = 0; t < batch->texts; t++) {
        start[longest - length_of(engine, batch, t) + 1]++;
    }
    for (size_t i = 1; i <= longest; i++) {
        start[i] += start[i - 1];
    }
    for (uint32_t t = 0; t < batch->texts; t++) {
        plan->order[start[longest - length_of(engine, batch, t)]++] = t;
    }
}

/* One block for each thread, when that is less than a usual block: then a small batch reads the weights
 * once a thread. 0: the batch is larger, or too small to be dealt out. */
static size_t fair_share(const fl_engine *engine, size_t tokens) {
    assert(engine->threads > 0);
    size_t share = (tokens + engine->threads - 1) / engine->threads;
    return engine->threads > 1 && share >= BLOCK_MIN && share <= engine->block_size ? share : 0;
}

/* How long the next block should be when `left` tokens are left and `groups` work at a time; `share` is
 * what fair_share said, or 0 for blocks that shrink. */
static size_t goal_for(const fl_engine *engine, size_t left, unsigned groups, size_t share) {
    assert(left > 0 && groups > 0);
    size_t goal = engine->block_size;
    if (share > 0) {
        return share;
    }
    if (groups > 1) {
        size_t part = left / (2 * (size_t)groups);
        goal        = part < goal ? part : goal;
        return goal < BLOCK_MIN ? BLOCK_MIN : goal;
    }
    size_t count = (left + goal - 1) / goal; /* equal blocks: no thin last one */
    return (left + count - 1) / count;
}

/* Keys that a token of a text of n sees, over all layers. */
static double seen_keys(const fl_engine *engine, double n) {
    const fl_encoder_desc *d   = &engine->desc;
    double                 sum = 0.0;
    for (uint32_t i = 0; i < d->layers; i++) {
        if (d->layer[i].convolves) {
            continue; /* a few of them, whatever the length */
        }
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
    for (uint32_t i = 0; i < d->layers; i++) {
        sum += d->layer[i].experts > 0 ? d->layer[i].experts_used : 1;
    }
    return sum / d->layers;
}

/* Time of a text of n tokens in tokens' worth of the linear layers; attention grows with the length. */
static double cost_of_text(const fl_engine *engine, double n) {
    const fl_encoder_desc *d      = &engine->desc;
    double                 hidden = d->hidden, inner = (double)engine->inner;
    double                 kv_inner = (double)(d->kv_heads * engine->head16);
    if (d->layers == 0) {
        return n;
    }
    double linear = 4.0 * hidden * (inner + kv_inner) +
                    (engine->gated ? 6.0 : 4.0) * hidden * d->intermediate * mlps(d);
    double cost = attention_cost[engine->format];
    if (engine->kernels->narrow[engine->format].attention) {
        cost *= narrow_attention;
    }
    return n + n * seen_keys(engine, n) * cost * inner / linear;
}

/* Cut plan->order into blocks; `groups` is how many work at a time. */
static void cut_blocks(const fl_engine *engine, const fl_batch *batch, fl_cpu_plan *plan,
                       unsigned groups, size_t share) {
    assert(batch->tokens > engine->prompt.saved);
    size_t left       = batch->tokens - engine->prompt.saved;
    plan->block_count = 0;
    for (uint32_t first = 0; first < batch->texts;) {
        size_t       goal   = goal_for(engine, left, groups, share);
        uint32_t     length = length_of(engine, batch, plan->order[first]);
        fl_cpu_block block  = {first, first + 1, length, cost_of_text(engine, length)};
        while (block.last < batch->texts) {
            length = length_of(engine, batch, plan->order[block.last]);
            if (block.tokens + length > goal) {
                break;
            }
            block.last++;
            block.tokens += length;
            block.cost += cost_of_text(engine, length);
        }
        plan->blocks[plan->block_count++] = block;
        left -= block.tokens;
        first = block.last;
    }
}

/* ---- Who runs a block ------------------------------------------------------------------------ */

/* A run of blocks that all threads run together. */
typedef struct together {
    uint32_t first, count;
} together;

/* When all are done: first the run together, then the others, dealt to whoever is free. */
static double end_of(const fl_cpu_block *blocks, uint32_t count, together run, double *load,
                     unsigned threads) {
    assert(threads > 0 && run.first + run.count <= count);
    double shared = 0.0, last = 0.0;
    memset(load, 0, threads * sizeof *load);
    for (uint32_t b = 0; b < count; b++) {
        if (b - run.first < run.count) { /* also false in front of it */
            shared += blocks[b].cost * split_cost / threads;
            continue;
        }
        unsigned idle = 0;
        for (unsigned i = 1; i < threads; i++) {
            idle = load[i] < load[idle] ? i : idle;
        }
        load[idle] += blocks[b].cost;
        last = load[idle] > last ? load[idle] : last;
    }
    return shared + last;
}

/* The run that ends soonest: none, all, one block, or as many as are over when every thread has as many
 * as the next. */
static together choose_run(const fl_cpu_block *blocks, uint32_t count, double *load,
                           unsigned threads) {
    assert(threads > 0);
    together best = {0, 0}, all = {0, count};
    double   soonest = end_of(blocks, count, best, load, threads) * worth;
    if (threads == 1) {
        return best;
    }
    if (end_of(blocks, count, all, load, threads) < soonest) {
        best    = all;
        soonest = end_of(blocks, count, all, load, threads);
    }
    const uint32_t sizes[] = {1, count % threads};
    for (size_t i = 0; i < 2 && count < EVEN; i++) {
        for (uint32_t first = 0; sizes[i] > 0 && first + sizes[i] <= count; first++) {
            together run = {first, sizes[i]};
            double   end = end_of(blocks, count, run, load, threads);
            if (end < soonest) {
                best    = run;
                soonest = end;
            }
        }
    }
    return best;
}

/* The slowest thread's time over the mean when all blocks are dealt. */
static double lag(const fl_cpu_block *blocks, uint32_t count, double *load, unsigned threads) {
    assert(threads > 0);
    double total = 0.0;
    for (uint32_t b = 0; b < count; b++) {
        total += blocks[b].cost;
    }
    return end_of(blocks, count, (together){0, 0}, load, threads) * threads / total;
}

/* The run comes to the front; the others keep their order. */
static void bring_forward(fl_cpu_block *blocks, together run) {
    for (uint32_t i = 0; i < run.count; i++) {
        fl_cpu_block block = blocks[run.first + i];
        memmove(blocks + i + 1, blocks + i, run.first * sizeof block);
        blocks[i] = block;
    }
}

/* Blocks in front that no thread alone has room for, each of one text: all threads run them together. */
static uint32_t longer_ones(const fl_engine *engine, const fl_cpu_plan *plan) {
    uint32_t count = 0;
    while (count < plan->block_count && plan->blocks[count].tokens > engine->block_max) {
        count++;
    }
    return count;
}

void fl_cpu_plan_make(fl_engine *engine, const fl_batch *batch) {
    fl_cpu_plan *plan    = &engine->plan;
    unsigned     threads = engine->threads;
    size_t       share   = fair_share(engine, batch->tokens - engine->prompt.saved);
    sort_by_length(engine, batch, plan);
    cut_blocks(engine, batch, plan, threads, share);
    if (share > 0 && lag(plan->blocks, plan->block_count, plan->load, threads) > split_cost) {
        cut_blocks(engine, batch, plan, threads, 0);
    }
    uint32_t longer = longer_ones(engine, plan), others = plan->block_count - longer;
    together run = choose_run(plan->blocks + longer, others, plan->load, threads);
    if (others > 0 && run.count == others) {
        cut_blocks(engine, batch, plan, 1, 0);
        run = (together){0, plan->block_count - longer};
    }
    bring_forward(plan->blocks + longer, run);
    plan->shared = longer + run.count;
}

/* ---- A plan without a batch ------------------------------------------------------------------ */

enum { GUESS_THREADS = 256 }; /* more are guessed as this many */

typedef struct guess {
    uint32_t largest, rows, blocks; /* longer texts aside */
    bool     longer;                /* there are some */
    double   lag;
} guess;

/* Lengths that fall evenly from the longest on, and stay at one token where the mean asks for that. */
typedef struct slope {
    double longest, step;
} slope;

static slope slope_of(uint32_t texts, uint32_t tokens, uint32_t longest) {
    double top = longest, spare = (double)tokens - texts; /* tokens beyond one a text */
    if (texts < 2 || top * texts <= tokens) {
        return (slope){top, 0.0};
    }
    if (2.0 * spare < (top - 1.0) * texts) {
        double falling = 2.0 * spare / (top - 1.0); /* how many texts it takes to come down */
        falling        = falling > 1.0 ? falling : 1.0;
        return (slope){top, (top - 1.0) / falling};
    }
    return (slope){top, 2.0 * (top - (double)tokens / texts) / (texts - 1)};
}

static uint32_t length_at(const slope *lengths, uint32_t text) {
    double length = lengths->longest - lengths->step * text;
    return length > 1.0 ? (uint32_t)(length + 0.5) : 1;
}

/* Rows of a block that a thread takes through a product at a time, alone or as one of a split group. One that is a
 * little too long for one step takes two short ones, and less room than a shorter one. */
static uint32_t rows_of(const fl_engine *engine, uint32_t tokens, unsigned ranks) {
    bool   by_rows = fl_cpu_by_rows(engine, tokens, ranks);
    size_t own     = by_rows ? (tokens + ranks - 1) / ranks : tokens;
    size_t step    = fl_cpu_rows_step(engine, own);
    return (uint32_t)(step < own ? step : own);
}

/* cut_blocks and lag for texts of such lengths; `blocks` [EVEN] are the first ones' costs. */
static guess guess_blocks(const fl_engine *engine, uint32_t texts, uint32_t tokens,
                          uint32_t longest, unsigned groups, size_t share, fl_cpu_block *blocks) {
    guess    out                 = {0};
    slope    lengths             = slope_of(texts, tokens, longest);
    double   load[GUESS_THREADS] = {0.0}, total = 0.0, most = 0.0;
    uint32_t left = tokens;
    for (uint32_t text = 0; text < texts && left > 0;) {
        size_t   goal  = goal_for(engine, left, groups, share);
        uint32_t block = 0, next = length_at(&lengths, text);
        double   time = 0.0;
        do {
            next = next < left - block ? next : left - block;
            block += next;
            time += cost_of_text(engine, next);
            next = length_at(&lengths, ++text);
        } while (text < texts && block + next <= goal && block < left);
        bool     longer = block > engine->block_max;
        uint32_t rows   = rows_of(engine, block, groups > 1 && !longer ? 1 : engine->threads);
        out.rows        = rows > out.rows ? rows : out.rows;
        left -= block;
        if (longer) {
            out.longer = true;
            continue;
        }
        if (out.blocks < EVEN) {
            blocks[out.blocks].cost = time;
        }
        out.blocks++;
        unsigned idle = 0;
        for (unsigned i = 1; i < groups; i++) {
            idle = load[i] < load[idle] ? i : idle;
        }
        load[idle] += time;
        total += time;
        most        = load[idle] > most ? load[idle] : most;
        out.largest = block > out.largest ? block : out.largest;
    }
    out.lag = total > 0.0 ? most * groups / total : 1.0;
    if (lengths.step > 0.0 && groups == 1) { /* a gap that few texts leave goes to a later block */
        uint32_t gap = longest * out.blocks / texts, most_tokens = (uint32_t)engine->block_size;
        most_tokens = most_tokens > out.largest ? most_tokens : out.largest;
        most_tokens = most_tokens < tokens ? most_tokens : tokens;
        out.largest = out.largest + gap < most_tokens ? out.largest + gap : most_tokens;
    }
    return out;
}

/* The plan that deals `found` out, with a run of `shared` blocks in front of it. */
static fl_cpu_guess dealt(const fl_engine *engine, guess found, uint32_t shared, uint32_t longest) {
    bool all = shared > 0 || found.longer || found.blocks > engine->threads;
    return (fl_cpu_guess){.tokens  = found.largest,
                          .rows    = found.rows,
                          .longest = longest,
                          .blocks  = found.blocks,
                          .threads = all ? engine->threads : found.blocks};
}

unsigned fl_cpu_plan_guess(const fl_engine *engine, uint32_t texts, uint32_t tokens,
                           uint32_t longest, fl_cpu_guess out[FL_CPU_GUESSES]) {
    unsigned groups    = engine->threads < GUESS_THREADS ? engine->threads : GUESS_THREADS;
    uint32_t most      = engine->max_length < tokens ? (uint32_t)engine->max_length : tokens;
    longest            = longest < most ? longest : most;
    longest            = longest > tokens / texts ? longest : tokens / texts;
    size_t       share = fair_share(engine, tokens);
    fl_cpu_block blocks[EVEN];
    double       load[GUESS_THREADS];
    guess        found = guess_blocks(engine, texts, tokens, longest, groups, share, blocks);
    if (share > 0 && found.lag > split_cost) {
        found = guess_blocks(engine, texts, tokens, longest, groups, 0, blocks);
    }
    together run   = {0, found.lag * worth > split_cost ? found.blocks : 0};
    bool     close = false;
    if (found.blocks < EVEN) {
        run   = choose_run(blocks, found.blocks, load, groups);
        close = groups > 1 && texts > 1 && longest * texts > tokens &&
                end_of(blocks, found.blocks, (together){0, 0}, load, groups) <
                    end_of(blocks, found.blocks, (together){0, found.blocks}, load, groups) * like;
    }
    if (close && share > found.largest) { /* blocks of a fair share each may come out even */
        found.largest = (uint32_t)share;
        found.rows    = (uint32_t)(share < engine->rows_max ? share : engine->rows_max);
    }
    bool     split = run.count == found.blocks;
    unsigned count = 0;
    if (!split || close) {
        out[count++] = dealt(engine, found, split ? 0 : run.count, longest);
    }
    if (split || close) {
        found        = guess_blocks(engine, texts, tokens, longest, 1, 0, blocks);
        out[count++] = (fl_cpu_guess){.tokens  = found.largest,
                                      .rows    = found.rows,
                                      .longest = longest,
                                      .blocks  = found.blocks,
                                      .threads = engine->threads,
                                      .split   = true};
    }
    for (unsigned i = 0; i < count; i++) {
        uint32_t largest = (uint32_t)engine->block_max;
        out[i].tokens    = out[i].tokens < largest ? out[i].tokens : largest;
    }
    return count;
}
