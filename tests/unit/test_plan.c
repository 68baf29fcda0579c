/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.c - how a batch is dealt to many threads. What must never break: every text lies in one block, a
 * group's ranks are threads that are there, a machine with more cores is planned to be no slower and spends
 * little more on a query, and how many blocks are searched stays in bounds.
 *
 * The machine need not have the cores: plans are made, and nothing runs. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine_toy.h"

enum { TEXTS = 512, LONGEST = 512 };

static const toy_spec minilm = {TOY_MINILM};

static const unsigned sizes[] = {1, 2, 3, 4, 6, 8, 12, 13, 16, 24, 32, 48, 64, 96, 128, 192};
enum { SIZES = sizeof sizes / sizeof *sizes };

static toy        t;
static fl_engine *engine[SIZES];

/* With the barriers that toys are otherwise spared. */
static void open_all(void) {
    fletch_error error;
    toy_make(&t, &minilm, 3);
    for (size_t i = 0; i < SIZES; i++) {
        engine[i] =
            toy_open_sized(&t, "fp32", sizes[i], "auto", TEXTS, LONGEST, 64, 1 << 20, &error);
        cr_assert_not_null(engine[i], "%s", error.message);
        fl_cpu_cost_open(engine[i]);
    }
}

static void close_all(void) {
    for (size_t i = 0; i < SIZES; i++)
        fl_engine_find("cpu")->close(engine[i]);
    toy_free(&t);
}

/* `texts` texts of `low` to `high` tokens, planned. */
static uint32_t plan(fl_engine *e, uint32_t texts, uint32_t low, uint32_t high) {
    static uint32_t cu[TEXTS + 1];
    for (uint32_t i = 0; i < texts; i++)
        cu[i + 1] = cu[i] + low + i * 7919 % (high - low + 1);
    const fl_batch batch = {.cu = cu, .texts = texts, .tokens = cu[texts]};
    fl_cpu_plan_make(e, &batch);
    return cu[texts];
}

/* When the plan is through: its groups, then the others dealt to whoever is free. */
static double end_of(const fl_engine *e) {
    const fl_cpu_plan *p          = &e->plan;
    double             group[256] = {0.0}, last = 0.0, shared = 0.0;
    for (uint32_t b = 0; b < p->shared; b++)
        group[b % p->groups] += fl_cpu_group_time(e, &p->blocks[b], p->ranks);
    for (unsigned i = 0; i < p->groups; i++)
        shared = group[i] > shared ? group[i] : shared;
    memset(group, 0, sizeof group);
    for (uint32_t b = p->shared; b < p->block_count; b++) {
        unsigned idle = 0;
        for (unsigned i = 1; i < e->threads; i++)
            idle = group[i] < group[idle] ? i : idle;
        group[idle] += p->blocks[b].cost;
        last = group[idle] > last ? group[idle] : last;
    }
    return shared + last;
}

static void check_plan(const fl_engine *e, uint32_t texts, uint32_t tokens) {
    const fl_cpu_plan *p           = &e->plan;
    uint32_t           sum         = 0;
    unsigned char      seen[TEXTS] = {0};
    for (uint32_t b = 0; b < p->block_count; b++) {
        sum += p->blocks[b].tokens;
        for (uint32_t i = p->blocks[b].first; i < p->blocks[b].last; i++)
            seen[p->order[i]]++;
    }
    for (uint32_t i = 0; i < texts; i++)
        cr_assert_eq(seen[i], 1, "%u threads, %u texts: text %u", e->threads, texts, i);
    cr_assert_eq(sum, tokens);
    cr_assert_leq(p->groups * p->ranks, e->threads);
    cr_assert_leq(p->threads, e->threads);
    cr_assert_geq(p->threads, p->shared > 0 ? p->ranks : 1);
    cr_assert_leq(p->shared, p->block_count);
}

static const struct {
    uint32_t texts, low, high;
} shapes[] = {{1, 1, 1},   {1, 16, 16},    {1, 512, 512}, {2, 16, 16},  {8, 16, 16},
              {32, 8, 24}, {64, 100, 300}, {200, 5, 40},  {500, 5, 40}, {12, 64, 512}};

Test(plan, every_text_is_in_one_block_and_every_member_is_there, .init = open_all,
     .fini = close_all) {
    for (size_t i = 0; i < SIZES; i++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            uint32_t tokens = plan(engine[i], shapes[s].texts, shapes[s].low, shapes[s].high);
            check_plan(engine[i], shapes[s].texts, tokens);
        }
    }
}

/* A group only grows where that pays, and the same walk goes on where there are more cores. */
Test(plan, a_query_is_no_slower_on_more_cores_and_costs_little_more, .init = open_all,
     .fini = close_all) {
    for (uint32_t tokens = 1; tokens <= LONGEST; tokens += tokens < 32 ? 1 : 60) {
        double before = 1e30, one = 0.0;
        for (size_t i = 0; i < SIZES; i++) {
            fl_engine *e = engine[i];
            plan(e, 1, tokens, tokens);
            double time = end_of(e);
            one         = i == 0 ? time : one;
            cr_assert_leq(time, before * 1.0001, "%u tokens, %u threads: %.3g after %.3g", tokens,
                          e->threads, time, before);
            cr_assert_leq(time * e->plan.threads, one * 1.9, "%u tokens, %u threads: %u of them",
                          tokens, e->threads, e->plan.threads);
            before = time;
        }
    }
    plan(engine[SIZES - 1], 1, 16, 16);
    cr_assert_eq(engine[SIZES - 1]->plan.ranks, 12, "the heads: %u", engine[SIZES - 1]->plan.ranks);
}

/* Between a lone text and a batch that gives every thread blocks of its own. */
Test(plan, some_texts_are_run_by_groups_side_by_side, .init = open_all, .fini = close_all) {
    for (size_t i = 0; i < SIZES; i++) {
        fl_engine *e = engine[i];
        if (e->threads < 32)
            continue;
        plan(e, 8, 16, 16);
        cr_assert_gt(e->plan.groups, 1, "%u threads", e->threads);
        cr_assert_gt(e->plan.ranks, 1, "%u threads", e->threads);
    }
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        double before = 1e30;
        for (size_t i = 0; i < SIZES; i++) {
            plan(engine[i], shapes[s].texts, shapes[s].low, shapes[s].high);
            double time = end_of(engine[i]);
            cr_assert_leq(time, before * 1.1, "shape %zu, %u threads: %.3g after %.3g", s,
                          engine[i]->threads, time, before);
            before = time < before ? time : before;
        }
    }
}

/* A plan counts on so many barriers: as many as a group really comes to. */
static void check_waits(const char *precision, unsigned threads, uint32_t tokens) {
    enum { ONCE = 3 }; /* embedding, what the first layer reads, the end */
    toy_spec     deep = minilm;
    fletch_error error;
    int32_t      ids[LONGEST] = {0};
    uint32_t     cu[]         = {0, tokens};
    float        out[384], *row = out;
    deep.layers = 3;
    toy_make(&t, &deep, 3);
    fl_engine *e = toy_open_sized(&t, precision, threads, "auto", 4, LONGEST, 0, 1 << 20, &error);
    const fl_batch batch = {.ids = ids, .cu = cu, .texts = 1, .tokens = tokens, .rows = &row};
    cr_assert_eq(fl_engine_find("cpu")->forward(e, 0, &batch, &error), 0);
    unsigned ranks = e->plan.ranks;
    cr_assert_gt(ranks, 1);
    cr_assert_eq(atomic_load(&e->barriers[0].phase),
                 ONCE + 3 * fl_cpu_group_waits(e, tokens, ranks), "%s, %u tokens by %u", precision,
                 tokens, ranks);
    fl_engine_find("cpu")->close(e);
    toy_free(&t);
}

Test(plan, barriers_are_those_that_are_counted_on) {
    check_waits("fp32", 4, 16);
    check_waits("fp32", 4, 100);
    check_waits("fp32", 16, 16);
    check_waits("int8", 4, 16);
    check_waits("int8", 4, 100);
}

/* What is too small to be worth a barrier stays on one thread. */
Test(plan, a_text_of_a_tiny_model_is_not_split) {
    toy_spec tiny = minilm;
    tiny.hidden   = 32;
    tiny.heads    = 2;
    tiny.head_dim = 16;
    tiny.mlp      = 64;
    fletch_error error;
    toy_make(&t, &tiny, 3);
    fl_engine *e = toy_open_sized(&t, "fp32", 16, "auto", TEXTS, LONGEST, 64, 1 << 20, &error);
    fl_cpu_cost_open(e);
    plan(e, 1, 8, 8);
    cr_assert_eq(e->plan.threads, 1);
    cr_assert_eq(e->plan.shared, 0);
    fl_engine_find("cpu")->close(e);
    toy_free(&t);
}
