/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - deal the texts of a batch to threads: whole texts in blocks, longest first, or all
 * together.
 *
 * Method   Texts are sorted by length, longest first, and cut into blocks that threads take from
 *          one counter. A block is at most block_size tokens (or one longer text) and at most half
 *          of a fair share of what is left, so blocks shrink towards the end and all threads stop
 *          at about the same time. When the blocks would still leave threads idle (a lone text,
 *          three long ones on two threads) every block is run by all threads together instead.
 * Bytes    None of this can change a result, only when it is ready.
 * Memory   Arrays of the engine's arena. Threads: called by the thread that calls forward. */
#include <string.h>

#include "engines/cpu/cpu_engine.h"

enum {
    BLOCK_MIN = 36 /* smaller blocks read the weights too often for what they compute */
};

/* How far the slowest thread may lag before all threads work on each block together: a crew's
 * barriers and shared rows cost about this much. */
static const double lag_max = 1.08;

static uint32_t length_of(const fl_batch *batch, uint32_t text) {
    return batch->cu[text + 1] - batch->cu[text];
}

static void sort_by_length(const fl_engine *engine, const fl_batch *batch,
                           const fl_cpu_plan *plan) {
    size_t    longest = engine->max_length;
    uint32_t *start   = plan->count; /* start[i]: first place of length longest - i */
    memset(start, 0, (longest + 2) * sizeof *start);
    for (uint32_t t = 0; t < batch->texts; t++) {
        start[longest - length_of(batch, t) + 1]++;
    }
    for (size_t i = 1; i <= longest; i++) {
        start[i] += start[i - 1];
    }
    for (uint32_t t = 0; t < batch->texts; t++) {
        plan->order[start[longest - length_of(batch, t)]++] = t;
    }
}

/* One block for each thread, when that is less than a usual block: then a small batch reads the weights
 * once a thread. 0: the batch is larger, or too small to be dealt out. */
static size_t fair_share(const fl_engine *engine, size_t tokens) {
    size_t share = (tokens + engine->threads - 1) / engine->threads;
    return engine->threads > 1 && share >= BLOCK_MIN && share <= engine->block_size ? share : 0;
}

/* How long the next block should be when `left` tokens are left and `crews` work at a time; `share` is
 * what fair_share said, or 0 for blocks that shrink. */
static size_t goal_for(const fl_engine *engine, size_t left, unsigned crews, size_t share) {
    size_t goal = engine->block_size;
    if (share > 0) {
        return share;
    }
    if (crews > 1) {
        size_t part = left / (2 * (size_t)crews);
        goal        = part < goal ? part : goal;
        return goal < BLOCK_MIN ? BLOCK_MIN : goal;
    }
    size_t count = (left + goal - 1) / goal; /* equal blocks: no thin last one */
    return (left + count - 1) / count;
}

/* Cut plan->order into blocks; `crews` is how many work at a time. */
static void cut_blocks(const fl_engine *engine, const fl_batch *batch, fl_cpu_plan *plan,
                       unsigned crews, size_t share) {
    size_t left       = batch->tokens;
    plan->block_count = 0;
    for (uint32_t first = 0; first < batch->texts;) {
        size_t       goal  = goal_for(engine, left, crews, share);
        fl_cpu_block block = {.first = first, .last = first + 1};
        block.tokens       = length_of(batch, plan->order[first]);
        while (block.last < batch->texts &&
               block.tokens + length_of(batch, plan->order[block.last]) <= goal) {
            block.tokens += length_of(batch, plan->order[block.last++]);
        }
        plan->blocks[plan->block_count++] = block;
        left -= block.tokens;
        first = block.last;
    }
}

/* Time of a text of n tokens in tokens' worth of the linear layers; attention grows with the length:
 * 4 n inner flops a token, at two thirds of the speed. */
static double cost_of_text(const fl_engine *engine, double n) {
    double hidden = engine->desc.hidden, inner = (double)engine->inner,
           mlp    = engine->desc.intermediate;
    double linear = 8.0 * hidden * inner + 4.0 * hidden * mlp;
    return n + n * n * 6.0 * inner / linear;
}

static double cost(const fl_engine *engine, const fl_batch *batch, const fl_cpu_plan *plan,
                   const fl_cpu_block *block) {
    double sum = 0.0;
    for (uint32_t t = block->first; t < block->last; t++) {
        sum += cost_of_text(engine, length_of(batch, plan->order[t]));
    }
    return sum;
}

/* The slowest thread's time over the mean when threads take the blocks in turn. */
static double lag(const fl_engine *engine, const fl_batch *batch, const fl_cpu_plan *plan) {
    double total = 0.0, most = 0.0;
    memset(plan->load, 0, engine->threads * sizeof *plan->load);
    for (uint32_t b = 0; b < plan->block_count; b++) {
        unsigned idle = 0;
        for (unsigned i = 1; i < engine->threads; i++) {
            idle = plan->load[i] < plan->load[idle] ? i : idle;
        }
        double time = cost(engine, batch, plan, &plan->blocks[b]);
        plan->load[idle] += time;
        total += time;
        most = plan->load[idle] > most ? plan->load[idle] : most;
    }
    return most * engine->threads / total;
}

void fl_cpu_plan_make(fl_engine *engine, const fl_batch *batch) {
    fl_cpu_plan *plan  = &engine->plan;
    size_t       share = fair_share(engine, batch->tokens);
    sort_by_length(engine, batch, plan);
    cut_blocks(engine, batch, plan, engine->threads, share);
    if (share > 0 && lag(engine, batch, plan) > lag_max) {
        cut_blocks(engine, batch, plan, engine->threads, 0);
    }
    plan->split = engine->threads > 1 && lag(engine, batch, plan) > lag_max;
    if (plan->split) {
        cut_blocks(engine, batch, plan, 1, 0);
    }
}

/* ---- A plan without a batch ------------------------------------------------------------------ */

enum { GUESS_THREADS = 256 }; /* more are guessed as this many */

typedef struct guess {
    uint32_t largest, blocks;
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

/* cut_blocks and lag for texts of such lengths. */
static guess guess_blocks(const fl_engine *engine, uint32_t texts, uint32_t tokens,
                          uint32_t longest, unsigned crews, size_t share) {
    guess    out                 = {0};
    slope    lengths             = slope_of(texts, tokens, longest);
    double   load[GUESS_THREADS] = {0.0}, total = 0.0, most = 0.0;
    uint32_t left = tokens;
    for (uint32_t text = 0; text < texts && left > 0; out.blocks++) {
        size_t   goal  = goal_for(engine, left, crews, share);
        uint32_t block = 0, next = length_at(&lengths, text);
        double   time = 0.0;
        do {
            next = next < left - block ? next : left - block;
            block += next;
            time += cost_of_text(engine, next);
            next = length_at(&lengths, ++text);
        } while (text < texts && block + next <= goal && block < left);
        unsigned idle = 0;
        for (unsigned i = 1; i < crews; i++) {
            idle = load[i] < load[idle] ? i : idle;
        }
        load[idle] += time;
        total += time;
        most        = load[idle] > most ? load[idle] : most;
        out.largest = block > out.largest ? block : out.largest;
        left -= block;
    }
    out.lag = total > 0.0 ? most * crews / total : 1.0;
    if (lengths.step > 0.0 && crews == 1) { /* a gap that few texts leave goes to a later block */
        uint32_t gap         = longest * out.blocks / (2 * texts),
                 most_tokens = (uint32_t)engine->block_size;
        most_tokens          = most_tokens > out.largest ? most_tokens : out.largest;
        most_tokens          = most_tokens < tokens ? most_tokens : tokens;
        out.largest          = out.largest + gap < most_tokens ? out.largest + gap : most_tokens;
    }
    return out;
}

void fl_cpu_plan_guess(const fl_engine *engine, uint32_t texts, uint32_t tokens, uint32_t longest,
                       fl_cpu_guess *out) {
    unsigned crews = engine->threads < GUESS_THREADS ? engine->threads : GUESS_THREADS;
    uint32_t most  = engine->max_length < tokens ? (uint32_t)engine->max_length : tokens;
    longest        = longest < most ? longest : most;
    longest        = longest > tokens / texts ? longest : tokens / texts;
    size_t share   = fair_share(engine, tokens);
    guess  found   = guess_blocks(engine, texts, tokens, longest, crews, share);
    if (share > 0 && found.lag > lag_max) {
        found = guess_blocks(engine, texts, tokens, longest, crews, 0);
    }
    *out = (fl_cpu_guess){.longest = longest, .split = crews > 1 && found.lag > lag_max};
    if (out->split) {
        found = guess_blocks(engine, texts, tokens, longest, 1, 0);
    }
    uint32_t largest = (uint32_t)engine->block_max;
    out->tokens      = found.largest < largest ? found.largest : largest;
    out->blocks      = found.blocks;
    out->threads = out->split || found.blocks > engine->threads ? engine->threads : found.blocks;
}
