/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c - lanes of chunks; when a batch may leave and which texts it takes.
 *
 * Role    The heart of queue.h, whose head states the rule.
 * Method  A lane is a doubly linked list in the order of turns, which for one owner is that of arrival. A turn is
 *         counted in tokens by weight: behind the owner's last one, and not before what leaves now. Taking walks the
 *         list from the head; a chunk stays in its place until its last text is taken.
 * Memory  none. Threads: the caller holds model->lock.
 * Proof   tests/unit/test_queue.c. */
#include "scheduler/queue.h"

#include <assert.h>
#include <stddef.h>

enum {
    BULK_SHARE = 3,   /* interactive tokens for one bulk token while both wait */
    BULK_PART  = 4,   /* of the budget, while interactive texts come */
    PATIENCE   = 4,   /* company is expected for this part of the last batch's time */
    TURN       = 1024 /* of a token of weight 1; above FL_WEIGHT_MAX, so that every token counts */
};

static const uint64_t urgent_memory_ns = 1000000000U;
static const uint64_t look_ns          = 1000000U; /* while bulk texts give way */

static void subtract(fl_lane *lane, uint64_t texts, uint64_t tokens) {
    assert(lane->texts >= texts && lane->tokens >= tokens);
    lane->texts -= texts;
    lane->tokens -= tokens;
}

/* Turns that the first `texts` texts of a chunk take. */
static uint64_t turns_of(const fl_chunk *chunk, uint32_t texts) {
    return (uint64_t)chunk->cu[texts] * TURN / chunk->request->weight;
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

void fl_queue_push(fl_queue *queue, fl_chunk *chunk, uint64_t now) {
    fl_lane  *lane  = &queue->lane[chunk->request->lane];
    fl_share *share = find_share(lane, chunk->request->owner);
    fl_chunk *after = NULL, *before = lane->tail;
    assert(!chunk->queued && chunk->texts > 0 && chunk->taken == 0);
    chunk->turn = share->end > lane->clock ? share->end : lane->clock;
    *share      = (fl_share){chunk->request->owner, chunk->turn + turns_of(chunk, chunk->texts)};
    while (before && before->turn + turns_of(before, before->taken) > chunk->turn) {
        after  = before;
        before = before->before;
    }
    chunk->before    = before;
    chunk->after     = after;
    chunk->queued    = true;
    chunk->queued_ns = now;
    if (before)
        before->after = chunk;
    else
        lane->head = chunk;
    if (after)
        after->before = chunk;
    else
        lane->tail = chunk;
    lane->chunks++;
    lane->texts += chunk->texts;
    lane->tokens += chunk->cu[chunk->texts];
}

/* Take the chunk out of the list; its texts were taken or are given up. */
static void unlink_chunk(fl_lane *lane, fl_chunk *chunk) {
    assert(chunk->queued && lane->chunks > 0);
    assert(chunk->before ? chunk->before->after == chunk : lane->head == chunk);
    assert(chunk->after ? chunk->after->before == chunk : lane->tail == chunk);
    if (chunk->before)
        chunk->before->after = chunk->after;
    else
        lane->head = chunk->after;
    if (chunk->after)
        chunk->after->before = chunk->before;
    else
        lane->tail = chunk->before;
    chunk->before = chunk->after = NULL;
    chunk->queued                = false;
    lane->chunks--;
}

void fl_queue_remove(fl_queue *queue, fl_chunk *chunk) {
    if (!chunk->queued)
        return;
    fl_lane  *lane  = &queue->lane[chunk->request->lane];
    fl_share *share = find_share(lane, chunk->request->owner);
    uint64_t  left  = turns_of(chunk, chunk->texts) - turns_of(chunk, chunk->taken);
    if (share->owner == chunk->request->owner && share->end > lane->clock) /* it was not used */
        share->end = share->end - lane->clock > left ? share->end - left : lane->clock;
    subtract(lane, chunk->texts - chunk->taken, chunk->cu[chunk->texts] - chunk->cu[chunk->taken]);
    unlink_chunk(lane, chunk);
}

#ifndef NDEBUG
/* What a lane says it holds is what is linked in it. */
static bool lane_is_whole(const fl_lane *lane) {
    uint64_t        chunks = 0, texts = 0, tokens = 0;
    const fl_chunk *last = NULL;
    for (const fl_chunk *chunk = lane->head; chunk; last = chunk, chunk = chunk->after) {
        chunks++;
        texts += chunk->texts - chunk->taken;
        tokens += chunk->cu[chunk->texts] - chunk->cu[chunk->taken];
    }
    return last == lane->tail && chunks == lane->chunks && texts == lane->texts &&
           tokens == lane->tokens;
}
#endif

/* ---- When ------------------------------------------------------------------------------------ */

/* Whether more requests are to be expected than are queued. */
static bool expects_company(const fl_queue *queue, uint64_t now) {
    if (!queue->rules.throughput)
        return false;
    if (now - queue->ended_ns > queue->patience_ns)
        return false;
    return queue->lane[FLETCH_LANE_INTERACTIVE].chunks < queue->company;
}

bool fl_queue_ready(const fl_queue *queue, uint64_t now, uint64_t *due) {
    const fl_queue_rules *rules = &queue->rules;
    const fl_lane        *lane  = &queue->lane[FLETCH_LANE_INTERACTIVE];
    *due                        = UINT64_MAX;
    if (queue->lane[FLETCH_LANE_BULK].texts > 0)
        return true;
    if (lane->texts == 0)
        return false;
    if (lane->texts >= rules->max_texts || lane->tokens >= rules->max_tokens)
        return true;
    if (!expects_company(queue, now))
        return true;
    *due = lane->head->queued_ns + rules->max_wait_ns;
    if (lane->texts >= rules->min_texts && queue->left_ns + rules->max_wait_ns < *due)
        *due = queue->left_ns + rules->max_wait_ns;
    if (queue->ended_ns + queue->patience_ns + 1 < *due) /* then company is no longer expected */
        *due = queue->ended_ns + queue->patience_ns + 1;
    return now >= *due;
}

bool fl_queue_yields(fl_queue *queue, bool urgent, uint64_t now, uint64_t *due, bool *begins) {
    *begins = false;
    if (!urgent || queue->lane[FLETCH_LANE_INTERACTIVE].texts > 0 ||
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

static bool fits(const taking *t, const fl_chunk *chunk, uint64_t limit) {
    uint32_t length = fl_chunk_length(chunk, chunk->taken);
    if (t->request && t->request != chunk->request)
        return false;
    if (t->count == 0)
        return true; /* a text longer than the budget leaves alone */
    return t->count < t->texts_max && t->count < t->capacity && t->tokens + length <= limit;
}

/* Texts of `chunk` until the budget, or `limit` tokens in all, is reached. */
static uint64_t take_chunk(taking *t, fl_lane *lane, fl_chunk *chunk, uint64_t limit) {
    uint64_t tokens = 0;
    uint32_t texts  = 0;
    assert(chunk->queued && chunk->taken < chunk->texts);
    while (chunk->taken < chunk->texts && fits(t, chunk, limit)) {
        uint32_t length    = fl_chunk_length(chunk, chunk->taken);
        t->items[t->count] = (fl_item){.chunk = chunk, .k = chunk->taken++};
        t->request         = t->queue->rules.dynamic ? NULL : chunk->request;
        t->count += 1;
        t->tokens += length;
        tokens += length;
        texts += 1;
    }
    uint64_t turn = texts > 0 ? chunk->turn + turns_of(chunk, chunk->taken - 1) : 0;
    lane->clock   = turn > lane->clock ? turn : lane->clock;
    subtract(lane, texts, tokens);
    if (chunk->taken == chunk->texts)
        unlink_chunk(lane, chunk);
    return tokens;
}

/* From the head of a lane until the batch holds `limit` tokens; returns the
 * tokens taken. */
static uint64_t take_lane(taking *t, fletch_lane which, uint64_t limit) {
    fl_lane  *lane  = &t->queue->lane[which];
    uint64_t  taken = 0;
    fl_chunk *next;
    for (fl_chunk *chunk = lane->head; chunk; chunk = next) {
        next         = chunk->after;
        uint64_t now = take_chunk(t, lane, chunk, limit);
        taken += now;
        if (now == 0 && !t->request) /* no text fits any more */
            break;
    }
    return taken;
}

/* The tokens of the next batch: less when a bulk batch would hold up interactive texts to come. */
static uint64_t budget_now(const fl_queue *queue, bool interactive, uint64_t now) {
    bool recent = queue->urgent_ns > 0 && now - queue->urgent_ns < urgent_memory_ns;
    return interactive || !recent ? queue->rules.max_tokens : queue->rules.max_tokens / BULK_PART;
}

/* The tokens of one of as many batches as there are idle replicas and shares worth a pass. */
static uint64_t share_of(const fl_queue *queue, uint32_t idle) {
    uint64_t waiting =
        queue->lane[FLETCH_LANE_INTERACTIVE].tokens + queue->lane[FLETCH_LANE_BULK].tokens;
    uint64_t worth = waiting / FL_QUEUE_SHARE;
    uint64_t parts = worth < idle ? worth : idle;
    return parts > 1 ? (waiting + parts - 1) / parts : UINT64_MAX;
}

uint32_t fl_queue_take(fl_queue *queue, uint64_t now, uint32_t idle, fl_item *items,
                       uint32_t capacity) {
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
    uint64_t urgent = take_lane(&t, FLETCH_LANE_INTERACTIVE, bulk ? budget : budget - owed);
    t.texts_max     = rules->bulk_texts;
    bulk += take_lane(&t, FLETCH_LANE_BULK, budget);
    uint64_t earned    = queue->bulk_credit + urgent / BULK_SHARE;
    queue->bulk_credit = both && earned > bulk ? earned - bulk : 0;
    queue->urgent_ns   = interactive ? now : queue->urgent_ns;
    queue->left_ns     = now;
    assert(t.count <= capacity);
    assert(lane_is_whole(&queue->lane[0]) && lane_is_whole(&queue->lane[1]));
    return t.count;
}

void fl_queue_ended(fl_queue *queue, uint64_t requests, uint64_t took_ns, uint64_t now) {
    uint64_t patience  = took_ns / PATIENCE;
    queue->company     = requests + queue->lane[FLETCH_LANE_INTERACTIVE].chunks;
    queue->ended_ns    = now;
    queue->patience_ns = patience < queue->rules.max_wait_ns ? patience : queue->rules.max_wait_ns;
}
