/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_plan.c - deal the texts of a batch to threads: whole texts in blocks, longest first, and what does
 * not come out even to several together.
 *
 * Method   Texts are sorted by length, longest first, and cut into blocks that threads take from
 *          one counter. A block is at most block_size tokens (or one longer text) and at most half
 *          of a fair share of what is left, so blocks shrink towards the end and all threads stop
 *          at about the same time. Where the blocks would still leave threads idle (a lone text,
 *          three long ones on two threads) some of them, or all, are run by groups: threads that share a
 *          block, as many as gain by it (cpu_cost.c), side by side where there are more. That comes first,
 *          when all begin at the same time anyway.
 * Bytes    None of this can change a result, only when it is ready.
 * Memory   Arrays of the engine's arena. Threads: called by the thread that calls forward. */
#include <assert.h>
#include <float.h>
#include <string.h>

#include "engines/cpu/cpu_engine.h"

enum {
    BLOCK_MIN = 36, /* smaller blocks read the weights too often for what they compute */
    EVEN      = 64, /* so many blocks or more come out even by themselves */
    TRIES     = 512 /* blocks times threads that a search for a run may look at, some 30 us */
};

/* Blocks come out even enough when the slowest thread takes so much longer than the mean. */
static const double even = 1.08;

/* A run is only shared where it ends so much sooner: these times are estimates. */
static const double worth = 0.98;

/* Lengths that are only guessed leave open which of two plans is made, when their times differ less. */
static const double like = 1.5;

/* Tokens that are to be computed. */
static uint32_t length_of(const fl_engine *engine, const fl_batch *batch, uint32_t text) {
    assert(text < batch->texts && batch->cu[text] < batch->cu[text + 1]);
    uint32_t shared = engine->prompt.shared ? engine->prompt.shared[text] : 0;
    return batch->cu[text + 1] - batch->cu[text] - shared;
}

static void sort_by_length(const fl_engine *engine, const fl_batch *batch,
                           const fl_cpu_plan *plan) {
    size_t    longest = engine->max_length;
    uint32_t *start   = plan->count; /* start[i]: first place of length longest - i */
    memset(start, 0, (longest + 2) * sizeof *start);
    for (uint32_t t = 0; t < batch->texts; t++)
        start[longest - length_of(engine, batch, t) + 1]++;
    for (size_t i = 1; i <= longest; i++)
        start[i] += start[i - 1];
    for (uint32_t t = 0; t < batch->texts; t++)
        plan->order[start[longest - length_of(engine, batch, t)]++] = t;
}

/* One block for each group, when that is less than a usual block: then a small batch reads the weights
 * once a group. 0: the batch is larger, or too small to be dealt out. */
static size_t fair_share(const fl_engine *engine, size_t tokens, unsigned groups) {
    assert(groups > 0);
    size_t share = (tokens + groups - 1) / groups;
    return groups > 1 && share >= BLOCK_MIN && share <= engine->block_size ? share : 0;
}

/* How long the next block should be when `left` tokens are left and `groups` work at a time; `share` is
 * what fair_share said, or 0 for blocks that shrink. */
static size_t goal_for(const fl_engine *engine, size_t left, unsigned groups, size_t share) {
    assert(left > 0 && groups > 0);
    size_t goal = engine->block_size;
    if (share > 0)
        return share;
    if (groups > 1) {
        size_t part = left / (2 * (size_t)groups);
        goal        = part < goal ? part : goal;
        return goal < BLOCK_MIN ? BLOCK_MIN : goal;
    }
    size_t count = (left + goal - 1) / goal; /* equal blocks: no thin last one */
    return (left + count - 1) / count;
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
        fl_cpu_block block  = {first, first + 1, length, fl_cpu_text_cost(engine, length)};
        while (block.last < batch->texts) {
            length = length_of(engine, batch, plan->order[block.last]);
            if (block.tokens + length > goal)
                break;
            block.last++;
            block.tokens += length;
            block.cost += fl_cpu_text_cost(engine, length);
        }
        plan->blocks[plan->block_count++] = block;
        left -= block.tokens;
        first = block.last;
    }
}

/* ---- Who runs a block ------------------------------------------------------------------------ */

/* A run of blocks that groups of `ranks` run, block i of it by group i modulo `groups`. */
typedef struct together {
    uint32_t first, count;
    unsigned ranks, groups;
} together;

static const together alone = {0, 0, 1, 1};

/* load[] is a heap, the least in front, which grows by `cost`; what it is then. */
static double take_least(double *load, unsigned count, double cost) {
    double   sum = load[0] + cost;
    unsigned at  = 0;
    for (unsigned next; (next = 2 * at + 1) < count; at = next) {
        next += next + 1 < count && load[next + 1] < load[next];
        if (load[next] >= sum)
            break;
        load[at] = load[next];
    }
    load[at] = sum;
    return sum;
}

/* When the group with most of the run is through. */
static double end_of_run(const fl_engine *engine, const fl_cpu_block *blocks, together run) {
    double last = 0.0;
    for (uint32_t group = 0; group < run.groups && group < run.count; group++) {
        double sum = 0.0;
        for (uint32_t i = group; i < run.count; i += run.groups)
            sum += fl_cpu_group_time(engine, &blocks[run.first + i], run.ranks);
        last = sum > last ? sum : last;
    }
    return last;
}

/* When all are done: first the run, then the others, dealt to whoever is free. */
static double end_of(const fl_engine *engine, const fl_cpu_block *blocks, uint32_t count,
                     together run, double *load, unsigned threads) {
    assert(threads > 0 && run.first + run.count <= count);
    double last = 0.0;
    memset(load, 0, threads * sizeof *load);
    for (uint32_t b = 0; b < count; b++) {
        if (b - run.first < run.count) /* also false in front of it */
            continue;
        double end = take_least(load, threads, blocks[b].cost);
        last       = end > last ? end : last;
    }
    return end_of_run(engine, blocks, run) + last;
}

/* The groups that `longest`, the first block, is best run by. */
static together groups_for(const fl_engine *engine, const fl_cpu_block *longest, unsigned threads) {
    unsigned ranks = fl_cpu_group_size(engine, longest);
    return (together){0, 0, ranks, threads / ranks};
}

/* The run by such groups that ends soonest: none, all, one block, or as many as are over when every thread
 * has as many as the next. Where there are many of both only some places are tried. */
static together choose_run(const fl_engine *engine, const fl_cpu_block *blocks, uint32_t count,
                           together run, double *load, unsigned threads) {
    together best    = alone;
    double   soonest = end_of(engine, blocks, count, best, load, threads) * worth;
    run.first        = 0;
    run.count        = count;
    if (run.ranks == 1)
        return best;
    if (end_of(engine, blocks, count, run, load, threads) < soonest) {
        best    = run;
        soonest = end_of(engine, blocks, count, run, load, threads);
    }
    const uint32_t sizes[] = {1, count % threads}, step = 1 + count * threads / TRIES;
    for (size_t i = 0; i < 2 && count < EVEN; i++) {
        run.count = sizes[i];
        for (run.first = 0; sizes[i] > 0 && run.first + sizes[i] <= count; run.first += step) {
            double end = end_of(engine, blocks, count, run, load, threads);
            if (end < soonest) {
                best    = run;
                soonest = end;
            }
        }
    }
    return best;
}

/* The next smaller group to try below `ranks`: two, three, four, six, eight, twelve … */
static unsigned smaller_group(unsigned ranks) {
    unsigned power = 1;
    while (2 * power < ranks)
        power *= 2;
    return power > 1 && power + power / 2 < ranks ? power + power / 2 : power;
}

/* The slowest thread's time over the mean when all blocks are dealt. */
static double lag(const fl_engine *engine, const fl_cpu_block *blocks, uint32_t count,
                  double *load) {
    double total = 0.0;
    for (uint32_t b = 0; b < count; b++)
        total += blocks[b].cost;
    return end_of(engine, blocks, count, alone, load, engine->threads) * engine->threads / total;
}

/* The run comes to the front; the others keep their order. */
static void bring_forward(fl_cpu_block *blocks, together run) {
    for (uint32_t i = 0; i < run.count; i++) {
        fl_cpu_block block = blocks[run.first + i];
        memmove(blocks + i + 1, blocks + i, run.first * sizeof block);
        blocks[i] = block;
    }
}

/* Blocks in front that no thread alone has room for, each of one text: a group runs them. */
static uint32_t longer_ones(const fl_engine *engine, const fl_cpu_plan *plan) {
    uint32_t count = 0;
    while (count < plan->block_count && plan->blocks[count].tokens > engine->block_max)
        count++;
    return count;
}

/* Cut for threads that work alone, into equal blocks where these come out even. */
static void cut_for_threads(const fl_engine *engine, const fl_batch *batch, fl_cpu_plan *plan) {
    size_t tokens = batch->tokens - engine->prompt.saved;
    size_t share  = fair_share(engine, tokens, engine->threads);
    cut_blocks(engine, batch, plan, engine->threads, share);
    if (share > 0 && lag(engine, plan->blocks, plan->block_count, plan->load) > even)
        cut_blocks(engine, batch, plan, engine->threads, 0);
}

static void cut_for_groups(const fl_engine *engine, const fl_batch *batch, fl_cpu_plan *plan,
                           unsigned groups) {
    size_t tokens = batch->tokens - engine->prompt.saved;
    cut_blocks(engine, batch, plan, groups, fair_share(engine, tokens, groups));
}

/* All blocks by groups of at most `most.ranks`, if that ends before `soonest`; the blocks are cut for it. */
static together choose_groups(const fl_engine *engine, const fl_batch *batch, fl_cpu_plan *plan,
                              together most, double soonest) {
    together best = alone;
    for (unsigned m = most.ranks; m > 1; m = smaller_group(m)) {
        together run = {0, 0, m, engine->threads / m};
        cut_for_groups(engine, batch, plan, run.groups);
        run.count  = plan->block_count;
        double end = end_of_run(engine, plan->blocks, run);
        if (end < soonest) {
            best    = run;
            soonest = end;
        }
    }
    if (best.count > 0)
        cut_for_groups(engine, batch, plan, best.groups);
    else
        cut_for_threads(engine, batch, plan);
    return best;
}

/* So many threads have something to do. */
static unsigned threads_of(const fl_engine *engine, const fl_cpu_plan *plan) {
    uint32_t dealt  = plan->block_count - plan->shared;
    uint32_t groups = plan->shared < plan->groups ? plan->shared : plan->groups;
    uint32_t busy   = groups * plan->ranks + dealt;
    return busy < engine->threads ? busy : engine->threads;
}

void fl_cpu_plan_make(fl_engine *engine, const fl_batch *batch) {
    fl_cpu_plan *plan = &engine->plan;
    sort_by_length(engine, batch, plan);
    cut_for_threads(engine, batch, plan);
    uint32_t longer = longer_ones(engine, plan), others = plan->block_count - longer;
    together groups = groups_for(engine, plan->blocks, engine->threads);
    if (longer > 0) /* the room for them is one group's */
        groups = (together){0, 0, engine->long_ranks, 1};
    together run =
        choose_run(engine, plan->blocks + longer, others, groups, plan->load, engine->threads);
    bool all = run.count == others; /* then in blocks of another size */
    if (longer == 0 && groups.ranks > 1 && lag(engine, plan->blocks, others, plan->load) > even) {
        double   end   = end_of(engine, plan->blocks, others, run, plan->load, engine->threads);
        together whole = choose_groups(engine, batch, plan, groups, all ? DBL_MAX : end * worth);
        run            = whole.count > 0 ? whole : run;
    }
    bring_forward(plan->blocks + longer, run);
    plan->shared  = longer + run.count;
    plan->ranks   = longer > 0 ? groups.ranks : run.ranks;
    plan->groups  = longer > 0 ? 1 : run.groups;
    plan->threads = threads_of(engine, plan);
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
    if (texts < 2 || top * texts <= tokens)
        return (slope){top, 0.0};
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

/* Rows of a block that a thread takes through a product at a time, alone or as one of a group. One that is a
 * little too long for one step takes two short ones, and less room than a shorter one. */
static uint32_t rows_of(const fl_engine *engine, uint32_t tokens, unsigned ranks) {
    bool   apart = fl_cpu_by_rows(engine, tokens, ranks);
    size_t own   = apart ? (tokens + ranks - 1) / ranks : tokens;
    size_t step  = fl_cpu_rows_step(engine, own);
    return (uint32_t)(step < own ? step : own);
}

/* What is guessed: texts whose lengths fall evenly, by groups of so many ranks. */
typedef struct question {
    uint32_t texts, tokens, longest;
    unsigned ranks, groups;
    size_t   share;
} question;

/* cut_blocks and lag for texts of such lengths; `blocks` [EVEN] are the first ones. */
static guess guess_blocks(const fl_engine *engine, const question *q, fl_cpu_block *blocks) {
    guess    out                 = {0};
    slope    lengths             = slope_of(q->texts, q->tokens, q->longest);
    double   load[GUESS_THREADS] = {0.0}, total = 0.0, most = 0.0;
    uint32_t left = q->tokens;
    for (uint32_t text = 0; text < q->texts && left > 0;) {
        size_t   goal  = goal_for(engine, left, q->groups, q->share);
        uint32_t block = 0, first = text, next = length_at(&lengths, text);
        double   time = 0.0;
        do {
            next = next < left - block ? next : left - block;
            block += next;
            time += fl_cpu_text_cost(engine, next);
            next = length_at(&lengths, ++text);
        } while (text < q->texts && block + next <= goal && block < left);
        bool     longer = block > engine->block_max;
        uint32_t rows   = rows_of(engine, block, longer ? engine->long_ranks : q->ranks);
        out.rows        = rows > out.rows ? rows : out.rows;
        left -= block;
        if (longer) {
            out.longer = true;
            continue;
        }
        if (out.blocks < EVEN)
            blocks[out.blocks] = (fl_cpu_block){first, text, block, time};
        out.blocks++;
        double end = take_least(load, q->groups, time);
        total += time;
        most        = end > most ? end : most;
        out.largest = block > out.largest ? block : out.largest;
    }
    out.lag = total > 0.0 ? most * q->groups / total : 1.0;
    if (lengths.step > 0.0 &&
        q->groups == 1) { /* a gap that few texts leave goes to a later block */
        uint32_t gap         = q->longest * out.blocks / q->texts;
        uint32_t most_tokens = (uint32_t)engine->block_size;
        most_tokens          = most_tokens > out.largest ? most_tokens : out.largest;
        most_tokens          = most_tokens < q->tokens ? most_tokens : q->tokens;
        out.largest          = out.largest + gap < most_tokens ? out.largest + gap : most_tokens;
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
                          .ranks   = 1,
                          .threads = all ? engine->threads : found.blocks};
}

/* The plan of all blocks by groups of at most `most` ranks that ends soonest, and when it does. */
static fl_cpu_guess by_groups(const fl_engine *engine, question q, unsigned most, unsigned threads,
                              double *soonest) {
    fl_cpu_guess out = {0};
    fl_cpu_block blocks[EVEN];
    for (unsigned m = most; m > 1; m = smaller_group(m)) {
        q.ranks     = m;
        q.groups    = threads / m;
        q.share     = fair_share(engine, q.tokens, q.groups);
        guess found = guess_blocks(engine, &q, blocks);
        if (found.blocks > EVEN)
            continue;
        double end = end_of_run(engine, blocks, (together){0, found.blocks, m, q.groups});
        if (out.ranks == 0 || end < *soonest) {
            unsigned busy = found.blocks < q.groups ? found.blocks : q.groups;
            *soonest      = end;
            out           = (fl_cpu_guess){.tokens  = found.largest,
                                           .rows    = found.rows,
                                           .longest = q.longest,
                                           .blocks  = found.blocks,
                                           .ranks   = m,
                                           .threads = (busy > 0 ? busy : 1) * m};
        }
    }
    return out;
}

unsigned fl_cpu_plan_guess(const fl_engine *engine, uint32_t texts, uint32_t tokens,
                           uint32_t longest, fl_cpu_guess out[FL_CPU_GUESSES]) {
    unsigned threads   = engine->threads < GUESS_THREADS ? engine->threads : GUESS_THREADS;
    uint32_t most      = engine->max_length < tokens ? (uint32_t)engine->max_length : tokens;
    longest            = longest < most ? longest : most;
    longest            = longest > tokens / texts ? longest : tokens / texts;
    size_t       share = fair_share(engine, tokens, threads);
    question     q     = {texts, tokens, longest, 1, threads, share};
    fl_cpu_block blocks[EVEN];
    double       load[GUESS_THREADS], end = DBL_MAX, whole_end = DBL_MAX;
    guess        found = guess_blocks(engine, &q, blocks);
    if (share > 0 && found.lag > even) {
        q.share = 0;
        found   = guess_blocks(engine, &q, blocks);
    }
    unsigned ranks = found.blocks > 0 && !found.longer ? fl_cpu_group_size(engine, &blocks[0])
                                                       : engine->long_ranks;
    together run   = alone;
    bool     close = false;
    if (found.blocks < EVEN) {
        together groups = {0, 0, ranks, threads / ranks};
        run             = choose_run(engine, blocks, found.blocks, groups, load, threads);
        end             = end_of(engine, blocks, found.blocks, run, load, threads);
        groups.count    = found.blocks;
        close           = ranks > 1 && texts > 1 && longest * texts > tokens &&
                end_of(engine, blocks, found.blocks, alone, load, threads) <
                    end_of(engine, blocks, found.blocks, groups, load, threads) * like;
    }
    if (close && share > found.largest) { /* blocks of a fair share each may come out even */
        found.largest = (uint32_t)share;
        found.rows    = (uint32_t)(share < engine->rows_max ? share : engine->rows_max);
    }
    fl_cpu_guess whole = by_groups(engine, q, ranks, threads, &whole_end);
    bool         split = whole.ranks > 1 &&
                 (run.count == found.blocks || (found.lag > even && whole_end < end * worth));
    unsigned count = 0;
    if (!split || close)
        out[count++] = dealt(engine, found, split ? 0 : run.count, longest);
    if (split || (close && whole.ranks > 1))
        out[count++] = whole;
    for (unsigned i = 0; i < count; i++) {
        uint32_t largest = (uint32_t)engine->block_max;
        out[i].tokens    = out[i].tokens < largest ? out[i].tokens : largest;
    }
    return count;
}
