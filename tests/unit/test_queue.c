/* SPDX-License-Identifier: Apache-2.0 */
/* test_queue.c - the rule by which a batch leaves, and who is in it: blocks without a model, a clock
 * that the test moves. */
#include <criterion/criterion.h>
#include <string.h>

#include "scheduler/adapt.h"
#include "scheduler/queue.h"

enum { MS = 1000000, BLOCKS = 64, ITEMS = 512 };

/* Whose blocks they are: the queue knows no more of it. */
struct fl_request {
    char unused;
};

static fl_queue       queue;
static fl_request     requests[BLOCKS]; /* the queue compares their addresses */
static fl_token_block blocks[BLOCKS];
static uint32_t       lengths[BLOCKS][65];
static fl_item        items[ITEMS];
static unsigned       made;

static void reset(void) {
    memset(&queue, 0, sizeof queue);
    memset(requests, 0, sizeof requests);
    memset(blocks, 0, sizeof blocks);
    made           = 0;
    queue.rules    = (fl_queue_rules){.min_texts   = 8,
                                      .max_texts   = 64,
                                      .bulk_texts  = 4096,
                                      .max_tokens  = 1000,
                                      .max_wait_ns = 10 * MS,
                                      .dynamic     = true,
                                      .throughput  = true};
    queue.ended_ns = 0;
}

/* A request of `texts` texts of `length` tokens each joins the queue at `now`. */
static fl_token_block *push(fletch_lane lane, uint32_t texts, uint32_t length, uint64_t now) {
    fl_token_block *block = &blocks[made];
    for (uint32_t i = 0; i <= texts; i++)
        lengths[made][i] = i * length;
    block->lane       = lane;
    block->weight     = block->weight ? block->weight : 1;
    block->request    = &requests[made];
    block->texts      = texts;
    block->unfinished = texts;
    block->cu         = lengths[made];
    made++;
    fl_queue_push(&queue, block, now);
    return block;
}

static bool ready(uint64_t now) {
    uint64_t due;
    return fl_queue_ready(&queue, now, &due);
}

static uint32_t take(uint64_t now) {
    return fl_queue_take(&queue, now, 1, items, ITEMS);
}

/* One call keeps idle replicas busy, where their parts are worth a pass. */
Test(queue, idle_replicas_get_equal_parts, .init = reset) {
    queue.rules.max_tokens = 16384;
    push(FLETCH_LANE_INTERACTIVE, 64, 64, 0);
    for (uint32_t idle = 4; idle > 0; idle--)
        cr_assert_eq(fl_queue_take(&queue, 0, idle, items, ITEMS), 16);
    push(FLETCH_LANE_BULK, 20, 60, 0); /* two parts of 600 tokens for four that are idle */
    cr_assert_eq(fl_queue_take(&queue, 0, 4, items, ITEMS), 10);
    cr_assert_eq(fl_queue_take(&queue, 0, 3, items, ITEMS), 10);
    push(FLETCH_LANE_INTERACTIVE, 16, 60, 0); /* less than two passes' worth */
    cr_assert_eq(fl_queue_take(&queue, 0, 4, items, ITEMS), 16);
}

Test(queue, an_empty_queue_is_never_ready, .init = reset) {
    uint64_t due;
    cr_assert_not(fl_queue_ready(&queue, 1000 * MS, &due));
    cr_assert_eq(due, UINT64_MAX);
}

Test(queue, a_lone_caller_never_waits, .init = reset) {
    push(FLETCH_LANE_INTERACTIVE, 1, 16, 100 * MS);
    cr_assert(ready(100 * MS));
    cr_assert_eq(take(100 * MS), 1);
    fl_queue_ended(&queue, 1, 100 * MS, 103 * MS);
    push(FLETCH_LANE_INTERACTIVE, 1, 16, 104 * MS); /* again, at once: still alone */
    cr_assert(ready(104 * MS));
}

Test(queue, callers_in_a_loop_are_batched_together, .init = reset) {
    uint64_t due;
    fl_queue_ended(&queue, 4, 100 * MS, 100 * MS); /* four callers' texts came back */
    for (int i = 0; i < 3; i++) {
        push(FLETCH_LANE_INTERACTIVE, 1, 16, 101 * MS);
        cr_assert_not(fl_queue_ready(&queue, 101 * MS, &due));
        cr_assert_leq(due, 111 * MS, "waits past max_wait of the oldest");
    }
    push(FLETCH_LANE_INTERACTIVE, 1, 16, 101 * MS);
    cr_assert(ready(101 * MS), "the fourth is there, and nothing leaves");
    cr_assert_eq(take(101 * MS), 4);
}

Test(queue, the_oldest_text_waits_no_longer_than_max_wait, .init = reset) {
    fl_queue_ended(&queue, 50, 100 * MS, 100 * MS);
    push(FLETCH_LANE_INTERACTIVE, 1, 16, 100 * MS);
    cr_assert_not(ready(109 * MS));
    cr_assert(ready(110 * MS));
}

Test(queue, more_requests_are_expected_for_a_quarter_of_the_last_batch, .init = reset) {
    fl_queue_ended(&queue, 4, 8 * MS, 100 * MS);
    push(FLETCH_LANE_INTERACTIVE, 1, 16, 101 * MS);
    cr_assert_not(ready(102 * MS));
    cr_assert(ready(102 * MS + 1), "two milliseconds after a batch of eight");
}

Test(queue, min_texts_leave_when_max_wait_passed_since_the_last_batch, .init = reset) {
    push(FLETCH_LANE_INTERACTIVE, 1, 16, 90 * MS);
    take(90 * MS); /* left at 90 */
    fl_queue_ended(&queue, 50, 100 * MS, 99 * MS);
    for (int i = 0; i < 8; i++)
        push(FLETCH_LANE_INTERACTIVE, 1, 16, 99 * MS);
    cr_assert_not(ready(99 * MS));
    cr_assert(ready(100 * MS), "eight texts, ten milliseconds since the last batch left");
}

Test(queue, a_full_budget_leaves_at_once, .init = reset) {
    fl_queue_ended(&queue, 500, 100 * MS, 100 * MS);
    queue.left_ns = 100 * MS;
    push(FLETCH_LANE_INTERACTIVE, 10, 99, 100 * MS);
    cr_assert_not(ready(100 * MS));
    push(FLETCH_LANE_INTERACTIVE, 1, 10, 100 * MS);
    cr_assert(ready(100 * MS), "1000 tokens");
    reset();
    fl_queue_ended(&queue, 500, 100 * MS, 100 * MS);
    queue.left_ns = 100 * MS;
    push(FLETCH_LANE_INTERACTIVE, 63, 2, 100 * MS);
    cr_assert_not(ready(100 * MS));
    push(FLETCH_LANE_INTERACTIVE, 1, 2, 100 * MS);
    cr_assert(ready(100 * MS), "64 texts");
}

Test(queue, without_throughput_an_idle_engine_never_waits, .init = reset) {
    queue.rules.throughput = false;
    fl_queue_ended(&queue, 50, 100 * MS, 100 * MS);
    push(FLETCH_LANE_INTERACTIVE, 1, 16, 100 * MS);
    cr_assert(ready(100 * MS));
}

Test(queue, bulk_texts_wait_for_no_other, .init = reset) {
    fl_queue_ended(&queue, 50, 100 * MS, 100 * MS);
    push(FLETCH_LANE_BULK, 1, 16, 100 * MS);
    cr_assert(ready(100 * MS));
}

Test(queue, interactive_texts_leave_before_bulk_texts_that_came_first, .init = reset) {
    push(FLETCH_LANE_BULK, 60, 16, 1 * MS);
    fl_token_block *urgent = push(FLETCH_LANE_INTERACTIVE, 2, 16, 2 * MS);
    uint32_t        count  = take(3 * MS);
    cr_assert_gt(count, 2);
    cr_assert_eq(items[0].block, urgent);
    cr_assert_eq(items[1].block, urgent);
}

/* Interactive texts fill every batch; bulk texts must get their quarter, and a long one too. */
static void check_share(uint32_t bulk_length) {
    uint64_t bulk = 0, all = 0;
    reset();
    fl_token_block *waiting = push(FLETCH_LANE_BULK, 60, bulk_length, 0);
    for (uint64_t batch = 1; batch <= 40 && waiting->queued; batch++) {
        while (queue.lane[FLETCH_LANE_INTERACTIVE].tokens < 1000) {
            made = made == BLOCKS - 1 ? 1 : made; /* blocks taken long ago are used again */
            push(FLETCH_LANE_INTERACTIVE, 10, 100, batch * MS);
        }
        uint32_t count = take(batch * MS);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t tokens = fl_token_block_length(items[i].block, items[i].k);
            all += tokens;
            bulk += items[i].block == waiting ? tokens : 0;
        }
    }
    cr_assert_geq((double)bulk, 0.2 * (double)all, "bulk of %u: %llu of %llu tokens", bulk_length,
                  (unsigned long long)bulk, (unsigned long long)all);
    cr_assert_leq((double)bulk, 0.6 * (double)all);
}

Test(queue, bulk_texts_get_a_share_while_interactive_ones_fill_every_batch) {
    check_share(50);
    check_share(300);
    check_share(900);
}

Test(queue, a_text_longer_than_the_budget_leaves_alone, .init = reset) {
    push(FLETCH_LANE_INTERACTIVE, 1, 5000, 0);
    push(FLETCH_LANE_INTERACTIVE, 1, 5, 0);
    cr_assert_eq(take(1), 1);
    cr_assert_eq(take(2), 1);
    cr_assert_eq(queue.lane[FLETCH_LANE_INTERACTIVE].tokens, 0);
}

Test(queue, without_dynamic_a_batch_holds_one_request, .init = reset) {
    queue.rules.dynamic = false;
    push(FLETCH_LANE_INTERACTIVE, 3, 16, 0);
    push(FLETCH_LANE_INTERACTIVE, 2, 16, 0);
    cr_assert_eq(take(1), 3);
    cr_assert_eq(take(2), 2);
}

Test(queue, a_chunk_given_up_takes_its_counts_with_it, .init = reset) {
    fl_token_block *block = push(FLETCH_LANE_INTERACTIVE, 20, 60, 0);
    push(FLETCH_LANE_INTERACTIVE, 2, 50, 0);
    cr_assert_eq(take(1), 16, "960 tokens");
    fl_queue_remove(&queue, block);
    fl_queue_remove(&queue, block); /* nothing the second time */
    cr_assert_eq(queue.lane[FLETCH_LANE_INTERACTIVE].texts, 2);
    cr_assert_eq(queue.lane[FLETCH_LANE_INTERACTIVE].tokens, 100);
    cr_assert_eq(queue.lane[FLETCH_LANE_INTERACTIVE].blocks, 1);
    cr_assert_eq(take(2), 2);
}

Test(queue, bulk_batches_shrink_while_interactive_texts_come, .init = reset) {
    push(FLETCH_LANE_INTERACTIVE, 1, 16, 1 * MS);
    take(1 * MS);
    push(FLETCH_LANE_BULK, 60, 16, 2 * MS);
    cr_assert_eq(take(2 * MS), 15, "a quarter of 1000 tokens");
    cr_assert_eq(take(5000ull * MS), 45, "nobody else for five seconds");
}

/* ---- adapt ----------------------------------------------------------------------------------- */

/* `windows` full windows in which every request takes `latency`; the budget afterwards. */
Test(queue, bulk_texts_give_way_to_another_model_for_a_while, .init = reset) {
    uint64_t due = 0;
    bool     begins;
    push(FLETCH_LANE_BULK, 4, 10, 5);
    cr_assert_not(fl_queue_yields(&queue, false, 5, &due, &begins) || begins);
    cr_assert(fl_queue_yields(&queue, true, 5, &due, &begins) && begins && due > 5);
    cr_assert(fl_queue_yields(&queue, true, 5 + FL_QUEUE_HOLD_NS - 1, &due, &begins) && !begins);
    cr_assert_eq(due, 5 + (uint64_t)FL_QUEUE_HOLD_NS);
    cr_assert_not(fl_queue_yields(&queue, true, due, &due, &begins), "they are never starved");
    cr_assert(fl_queue_yields(&queue, true, due, &due, &begins) && begins,
              "the next batch waits again");
    push(FLETCH_LANE_INTERACTIVE, 1, 10, 6);
    cr_assert_not(fl_queue_yields(&queue, true, due, &due, &begins),
                  "nor do interactive ones wait");
}

static uint32_t tokenize_step(fl_adapt *adapt, unsigned windows, uint64_t latency,
                              uint64_t waiting) {
    uint32_t budget = adapt->budget;
    for (unsigned i = 0; i < windows * FL_ADAPT_WINDOW; i++)
        budget = fl_adapt_observe(adapt, latency, waiting);
    return budget;
}

Test(adapt, without_a_target_the_budget_stays) {
    fl_adapt adapt;
    fl_adapt_init(&adapt, 0, 100, 1600);
    cr_assert_eq(tokenize_step(&adapt, 10, 1000 * MS, 0), 1600);
}

Test(adapt, too_slow_shrinks_and_recovers_after_a_load_change) {
    fl_adapt adapt;
    fl_adapt_init(&adapt, 20 * MS, 100, 1600);
    cr_assert_eq(tokenize_step(&adapt, 1, 30 * MS, 0), 1120);
    cr_assert_eq(tokenize_step(&adapt, 30, 30 * MS, 0), 100, "not below what the engine needs");
    cr_assert_lt(tokenize_step(&adapt, 1, 10 * MS, 0), 250, "up by steps");
    cr_assert_eq(tokenize_step(&adapt, 16, 10 * MS, 0), 1600);
}

Test(adapt, a_few_slow_requests_are_within_the_95th_percentile) {
    fl_adapt adapt;
    fl_adapt_init(&adapt, 20 * MS, 100, 1600);
    fl_adapt_observe(&adapt, 500 * MS, 0);
    for (int i = 1; i < FL_ADAPT_WINDOW; i++)
        fl_adapt_observe(&adapt, 5 * MS, 0);
    cr_assert_eq(adapt.budget, 1600);
    fl_adapt_observe(&adapt, 500 * MS, 0);
    fl_adapt_observe(&adapt, 500 * MS, 0);
    for (int i = 2; i < FL_ADAPT_WINDOW; i++)
        fl_adapt_observe(&adapt, 5 * MS, 0);
    cr_assert_lt(adapt.budget, 1600);
}

Test(adapt, a_batch_takes_half_the_target_at_most) {
    fl_adapt adapt;
    fl_adapt_init(&adapt, 20 * MS, 10, 1600);
    cr_assert_eq(fl_adapt_batch(&adapt, 100, 10 * MS), 100, "100 tokens in 10 ms: half of 20");
    cr_assert_eq(tokenize_step(&adapt, 3, 5 * MS, 0), 100, "not above it while it holds");
    for (int i = 0; i < 200; i++)
        fl_adapt_batch(&adapt, 100, 1 * MS); /* the machine is quiet again */
    cr_assert_gt(tokenize_step(&adapt, 16, 5 * MS, 0), 900);
}

Test(adapt, a_long_queue_is_not_met_with_smaller_batches) {
    fl_adapt adapt;
    fl_adapt_init(&adapt, 20 * MS, 100, 1600);
    tokenize_step(&adapt, 5, 30 * MS, 0);
    uint32_t small = adapt.budget;
    cr_assert_gt(tokenize_step(&adapt, 5, 300 * MS, 100000), small);
}

/* Chunks of one more owner, `count` of them with `texts` texts of 10 tokens. */
static void push_owner(uint64_t owner, uint32_t weight, unsigned count, uint32_t texts) {
    for (unsigned i = 0; i < count; i++) {
        blocks[made].owner  = owner;
        blocks[made].weight = weight;
        push(FLETCH_LANE_INTERACTIVE, texts, 10, 0);
    }
}

/* Texts of `owner` in the next batch. */
static uint32_t take_of(uint64_t owner) {
    uint32_t count = take(0), own = 0;
    for (uint32_t i = 0; i < count; i++)
        own += items[i].block->owner == owner;
    return own;
}

/* Nor in a block that is half taken: a thousand texts of one wait, and another's single text is in the next batch. */
Test(queue, a_short_request_does_not_wait_for_the_backlog_of_another, .init = reset) {
    push_owner(1, 1, 16, 64);
    cr_assert_eq(take_of(1), 64);
    queue.rules.max_tokens = 300;
    cr_assert_eq(take_of(1), 30);
    push_owner(2, 1, 1, 1);
    cr_assert_eq(take_of(2), 1);
    cr_assert_eq(items[0].block->owner, 2);
    push_owner(2, 1, 1, 1); /* nor the next one */
    cr_assert_eq(take_of(2), 1);
}

Test(queue, owners_get_tokens_by_their_weights, .init = reset) {
    push_owner(1, 1, 20, 16);
    push_owner(2, 3, 20, 16);
    uint32_t heavy = 0, all = 0;
    for (int i = 0; i < 6; i++) {
        heavy += take_of(2);
        all += 64;
    }
    cr_assert(heavy >= all * 3 / 4 - 16 && heavy <= all * 3 / 4 + 16, "%u of %u", heavy, all);
}

/* A share that was not used is no claim, and what is cancelled is no debt. */
Test(queue, who_comes_late_or_gives_up_is_as_any_other, .init = reset) {
    push_owner(1, 1, 8, 64);
    for (int i = 0; i < 6; i++)
        cr_assert_eq(take_of(1), 64);
    unsigned before = made;
    push_owner(2, 1, 20, 64);
    for (unsigned i = before; i < made; i++)
        fl_queue_remove(&queue, &blocks[i]);
    push_owner(2, 1, 2, 32);
    uint32_t own = take_of(2);
    cr_assert(own > 0 && own < 64, "%u", own);
}

Test(queue, more_owners_than_rows_are_all_served, .init = reset) {
    for (unsigned i = 0; i < BLOCKS; i++)
        push_owner(i * FL_QUEUE_OWNERS + 1, 1, 1, 1);
    cr_assert_eq(take(0), BLOCKS);
}
