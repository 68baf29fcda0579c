/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c - lanes of blocks; when a batch may leave and which texts it takes.
 *
 * Role    The heart of queue.h, whose head states the rule.
 * Method  A lane is a doubly linked list in the order of turns, which for one owner is that of arrival. A turn is
 *         counted in tokens by weight: behind the owner's last one, and not before what leaves now. Taking walks the
 *         list from the head; a block stays in its place until its last text is taken.
 * Memory  none. Threads: the caller holds the scheduler's lock.
 * Proof   tests/unit/test_queue.c. */
#include "scheduler/queue.h"

#include <assert.h>
#include <stddef.h>

enum {
    BULK_SHARE  = 3,   /* interactive tokens for one bulk token while both wait */
    BULK_PART   = 4,   /* of the budget, while interactive texts come */
    WINDOW_PART = 4,   /* more requests are expected for this part of the last batch's time */
    TURN        = 1024 /* of a token of weight 1; above FL_WEIGHT_MAX, so that every token counts */
};

static const uint64_t interactive_memory_ns = 1000000000U;
static const uint64_t look_ns               = 1000000U; /* while bulk texts give way */

static void subtract(fl_lane *lane, uint64_t texts, uint64_t tokens) {
    assert(lane->texts >= texts && lane->tokens >= tokens);
    lane->texts -= texts;
    lane->tokens -= tokens;
}

/* Turns that the first `texts` texts of a block take. */
static uint64_t turns_of(const fl_token_block *block, uint32_t texts) {
    assert(block->weight >= 1 && block->weight <= FL_WEIGHT_MAX && texts <= block->texts);
    return (uint64_t)block->cu[texts] * TURN / block->weight;
}

/* The row of an owner. One whose end has passed is as one who never came: its row is anybody's. When more owners wait
 * than there are rows, some have one together. */
static fl_share *find_share(fl_lane *lane, uint64_t owner) {
    fl_share *found = NULL;
    for (size_t i = 0; i < FL_QUEUE_OWNERS; i++) {
        fl_share *share = &lane->shares[i];
        if (share->end > lane->clock && share->owner == owner)
            return share;
        if (!found && share->end <= lane->clock)
            found = share;
    }
    return found ? found : &lane->shares[owner % FL_QUEUE_OWNERS];
}

void fl_queue_push(fl_queue *queue, fl_token_block *block, uint64_t now) {
    assert((int)block->lane < FL_LANES && block->request);
    assert(block->cu[0] == 0 && block->cu[block->texts] >= block->texts);
    fl_lane        *lane  = &queue->lane[block->lane];
    fl_share       *share = find_share(lane, block->owner);
    fl_token_block *after = NULL, *before = lane->tail;
    assert(!block->queued && block->texts > 0 && block->taken == 0);
    block->turn = share->end > lane->clock ? share->end : lane->clock;
    *share      = (fl_share){block->owner, block->turn + turns_of(block, block->texts)};
    while (before && before->turn + turns_of(before, before->taken) > block->turn) {
        after  = before;
        before = before->before;
    }
    block->before    = before;
    block->after     = after;
    block->queued    = true;
    block->queued_ns = now;
    if (before)
        before->after = block;
    else
        lane->head = block;
    if (after)
        after->before = block;
    else
        lane->tail = block;
    lane->blocks++;
    lane->texts += block->texts;
    lane->tokens += block->cu[block->texts];
}

/* Take the block out of the list; its texts were taken or are given up. */
static void unlink_block(fl_lane *lane, fl_token_block *block) {
    assert(block->queued && lane->blocks > 0);
    assert(block->before ? block->before->after == block : lane->head == block);
    assert(block->after ? block->after->before == block : lane->tail == block);
    if (block->before)
        block->before->after = block->after;
    else
        lane->head = block->after;
    if (block->after)
        block->after->before = block->before;
    else
        lane->tail = block->before;
    block->before = block->after = NULL;
    block->queued                = false;
    lane->blocks--;
}

void fl_queue_remove(fl_queue *queue, fl_token_block *block) {
    if (!block->queued)
        return;
    fl_lane  *lane  = &queue->lane[block->lane];
    fl_share *share = find_share(lane, block->owner);
    uint64_t  left  = turns_of(block, block->texts) - turns_of(block, block->taken);
    if (share->owner == block->owner && share->end > lane->clock) /* it was not used */
        share->end = share->end - lane->clock > left ? share->end - left : lane->clock;
    subtract(lane, block->texts - block->taken, block->cu[block->texts] - block->cu[block->taken]);
    unlink_block(lane, block);
}

#ifndef NDEBUG
/* What a lane says it holds is what is linked in it. */
static bool lane_is_whole(const fl_lane *lane) {
    uint64_t              blocks = 0, texts = 0, tokens = 0;
    const fl_token_block *last = NULL;
    for (const fl_token_block *block = lane->head; block; last = block, block = block->after) {
        blocks++;
        texts += block->texts - block->taken;
        tokens += block->cu[block->texts] - block->cu[block->taken];
    }
    return last == lane->tail && blocks == lane->blocks && texts == lane->texts &&
           tokens == lane->tokens;
}
#endif

/* ---- When ------------------------------------------------------------------------------------ */

/* Whether more requests are to be expected than are queued. */
static bool expects_more(const fl_queue *queue, uint64_t now) {
    if (!queue->rules.throughput)
        return false;
    if (now - queue->ended_ns > queue->wait_window_ns)
        return false;
    return queue->lane[FLETCH_LANE_INTERACTIVE].blocks < queue->expected_requests;
}

bool fl_queue_ready(const fl_queue *queue, uint64_t now, uint64_t *due) {
    assert((queue->lane[FLETCH_LANE_INTERACTIVE].texts > 0) ==
           (queue->lane[FLETCH_LANE_INTERACTIVE].head != NULL));
    const fl_queue_rules *rules = &queue->rules;
    const fl_lane        *lane  = &queue->lane[FLETCH_LANE_INTERACTIVE];
    *due                        = UINT64_MAX;
    if (queue->lane[FLETCH_LANE_BULK].texts > 0)
        return true;
    if (lane->texts == 0)
        return false;
    if (lane->texts >= rules->max_texts || lane->tokens >= rules->max_tokens)
        return true;
    if (!expects_more(queue, now))
        return true;
    *due = lane->head->queued_ns + rules->max_wait_ns;
    if (lane->texts >= rules->min_texts && queue->left_ns + rules->max_wait_ns < *due)
        *due = queue->left_ns + rules->max_wait_ns;
    if (queue->ended_ns + queue->wait_window_ns + 1 < *due) /* then no more are expected */
        *due = queue->ended_ns + queue->wait_window_ns + 1;
    return now >= *due;
}

bool fl_queue_yields(fl_queue *queue, bool others, uint64_t now, uint64_t *due, bool *begins) {
    assert(queue->held_ns == 0 || queue->held_ns <= now);
    *begins = false;
    if (!others || queue->lane[FLETCH_LANE_INTERACTIVE].texts > 0 ||
        (queue->held_ns > 0 && now - queue->held_ns >= FL_QUEUE_HOLD_NS)) {
        queue->held_ns = 0;
        return false;
    }
    *begins        = queue->held_ns == 0;
    queue->held_ns = *begins ? now : queue->held_ns;
    *due = queue->held_ns + FL_QUEUE_HOLD_NS < now + look_ns ? queue->held_ns + FL_QUEUE_HOLD_NS
                                                             : now + look_ns;
    return true;
}

/* ---- Which ----------------------------------------------------------------------------------- */

/* A batch in the making. */
typedef struct taking {
    fl_queue         *queue;
    fl_item          *items;
    uint32_t          capacity;
    uint32_t          count;
    uint32_t          texts_max;
    uint64_t          tokens;  /* as the budget counts them */
    const fl_request *request; /* the only one, when batches are not shared; NULL: any */
} taking;

static bool fits(const taking *t, const fl_token_block *block, uint64_t limit) {
    assert(block->taken < block->texts);
    uint32_t length = fl_token_block_length(block, block->taken);
    if (t->request && t->request != block->request)
        return false;
    if (t->count == 0)
        return true; /* a text longer than the budget leaves alone */
    return t->count < t->texts_max && t->count < t->capacity && t->tokens + length <= limit;
}

/* Texts of `block` until the budget, or `limit` tokens in all, is reached. */
static uint64_t take_block(taking *t, fl_lane *lane, fl_token_block *block, uint64_t limit) {
    uint64_t tokens = 0;
    uint32_t texts  = 0;
    assert(block->queued && block->taken < block->texts);
    while (block->taken < block->texts && fits(t, block, limit)) {
        uint32_t length    = fl_token_block_length(block, block->taken);
        t->items[t->count] = (fl_item){.block = block, .k = block->taken++};
        t->request         = t->queue->rules.dynamic ? NULL : block->request;
        t->count += 1;
        t->tokens += length;
        tokens += length;
        texts += 1;
    }
    uint64_t turn = texts > 0 ? block->turn + turns_of(block, block->taken - 1) : 0;
    lane->clock   = turn > lane->clock ? turn : lane->clock;
    subtract(lane, texts, tokens);
    if (block->taken == block->texts)
        unlink_block(lane, block);
    return tokens;
}

/* From the head of a lane until the batch holds `limit` tokens; returns the
 * tokens taken. */
static uint64_t take_lane(taking *t, fletch_lane which, uint64_t limit) {
    assert((int)which < FL_LANES && t->count <= t->capacity);
    fl_lane        *lane  = &t->queue->lane[which];
    uint64_t        taken = 0;
    fl_token_block *next;
    for (fl_token_block *block = lane->head; block; block = next) {
        next         = block->after;
        uint64_t now = take_block(t, lane, block, limit);
        taken += now;
        if (now == 0 && !t->request) /* no text fits any more */
            break;
    }
    return taken;
}

/* The tokens of the next batch: less when a bulk batch would hold up interactive texts to come. */
static uint64_t budget_now(const fl_queue *queue, bool interactive, uint64_t now) {
    bool recent =
        queue->last_interactive_ns > 0 && now - queue->last_interactive_ns < interactive_memory_ns;
    return interactive || !recent ? queue->rules.max_tokens : queue->rules.max_tokens / BULK_PART;
}

/* The tokens of one of as many batches as there are idle replicas and shares worth a pass. */
static uint64_t share_of(const fl_queue *queue, uint32_t idle) {
    assert(idle > 0);
    uint64_t waiting =
        queue->lane[FLETCH_LANE_INTERACTIVE].tokens + queue->lane[FLETCH_LANE_BULK].tokens;
    uint64_t worth = waiting / FL_QUEUE_SHARE;
    uint64_t parts = worth < idle ? worth : idle;
    return parts > 1 ? (waiting + parts - 1) / parts : UINT64_MAX;
}

uint32_t fl_queue_take(fl_queue *queue, uint64_t now, uint32_t idle, fl_item *items,
                       uint32_t capacity) {
    assert(capacity > 0 && queue->rules.max_tokens > 0);
    const fl_queue_rules *rules       = &queue->rules;
    bool                  interactive = queue->lane[FLETCH_LANE_INTERACTIVE].texts > 0;
    bool                  both        = interactive && queue->lane[FLETCH_LANE_BULK].texts > 0;
    uint64_t              share       = share_of(queue, idle);
    uint64_t              budget      = budget_now(queue, interactive, now);
    uint32_t              texts       = interactive ? rules->max_texts : rules->bulk_texts;
    taking t      = {.queue = queue, .items = items, .capacity = capacity, .texts_max = texts};
    budget        = share < budget ? share : budget;
    uint64_t owed = 0, bulk = 0; /* tokens that bulk texts are owed of this batch, and took */
    if (both)
        owed = queue->bulk_credit < budget ? queue->bulk_credit : budget;
    if (both && owed == budget) /* a long bulk text would never fit behind others */
        bulk = take_lane(&t, FLETCH_LANE_BULK, budget);
    uint64_t served = take_lane(&t, FLETCH_LANE_INTERACTIVE, bulk ? budget : budget - owed);
    t.texts_max     = rules->bulk_texts;
    bulk += take_lane(&t, FLETCH_LANE_BULK, budget);
    uint64_t earned            = queue->bulk_credit + served / BULK_SHARE;
    queue->bulk_credit         = both && earned > bulk ? earned - bulk : 0;
    queue->last_interactive_ns = interactive ? now : queue->last_interactive_ns;
    queue->left_ns             = now;
    assert(t.count <= capacity);
    assert(lane_is_whole(&queue->lane[0]) && lane_is_whole(&queue->lane[1]));
    return t.count;
}

void fl_queue_ended(fl_queue *queue, uint64_t requests, uint64_t took_ns, uint64_t now) {
    assert(requests > 0);
    uint64_t window          = took_ns / WINDOW_PART;
    queue->expected_requests = requests + queue->lane[FLETCH_LANE_INTERACTIVE].blocks;
    queue->ended_ns          = now;
    queue->wait_window_ns = window < queue->rules.max_wait_ns ? window : queue->rules.max_wait_ns;
}
