/* SPDX-License-Identifier: Apache-2.0 */
/* result_cache.c - rings of entries and their chains; result_cache.h says the rule.
 *
 *     ring     | … free … | oldest | … | … | newest | … free … |     positions only grow: where a byte lies
 *                         ^ tail            head ^                 is its position modulo the ring's size
 *
 * An entry is a head, the ids and the value. One that would not fit before the end of the ring begins at its
 * start, and what is left over is an entry without a chain. */
#include "requests/result_cache.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/locked.h"
#include "base/mem.h"

enum {
    SHARDS_MAX    = 16,
    SHARD_BYTES   = 4 * 1024 * 1024, /* a shard has at least this, unless it is the only one */
    RING_LEAST    = 4096,
    CHAIN_BYTES   = 1024, /* of a ring for one chain: about an entry */
    LARGEST_SHARE = 4,    /* of a ring that an entry may take: 1 / this */
    UNIT          = 16    /* entries lie on multiples of this */
};

typedef struct entry {
    uint64_t hash;
    uint32_t bytes; /* with this head, a multiple of UNIT */
    uint32_t next;  /* of its chain: 1 + its place in units; 0: the last */
    fl_plan  plan;
    uint32_t skip, segment, keys, count; /* bytes alone where nothing is in it: see place_for */
    bool     used;                       /* it holds a result that can be found */
    uint64_t value_bytes;
} entry;

FL_LOCK_ROLE(shard_role); /* the lock of a shard */

typedef struct shard {
    pthread_mutex_t  lock;
    char            *ring;                      /* owned [size] */
    uint32_t *chains FL_GUARDED_BY(shard_role); /* owned [chain_mask + 1] */
    uint64_t         size;                      /* a multiple of UNIT */
    uint64_t head    FL_GUARDED_BY(shard_role); /* positions */
    uint64_t tail    FL_GUARDED_BY(shard_role);
    uint64_t touched FL_GUARDED_BY(
        shard_role); /* bytes of the ring that were ever written: no longer reserved */
    uint64_t         chain_mask;
    uint64_t entries FL_GUARDED_BY(shard_role);
    char             room[64]; /* the next shard's lock lies on another line */
} shard;

FL_LOCK_OF(shard_role, shard, lock, lock, unlock);

struct fl_cache {
    shard      shard[SHARDS_MAX];
    uint32_t   shards; /* a power of two */
    uint64_t   bytes_max, seed;
    fl_memory *memory; /* borrowed; NULL: nothing is reserved */
    fl_stats  *stats;  /* borrowed */
};

static entry *at(const shard *s, uint64_t position) {
    return (entry *)(void *)(s->ring + position % s->size);
}

static int32_t *ids_of(const entry *e) {
    return (int32_t *)(uintptr_t)(e + 1);
}

static char *value_of(const entry *e) {
    return (char *)(ids_of(e) + e->count);
}

/* ---- Opening --------------------------------------------------------------------------------- */

FL_UNCHECKED static int open_shard(shard *s, uint64_t bytes, fletch_error *error) {
    assert(bytes > UNIT);
    uint64_t chains = 1;
    while (2 * chains * CHAIN_BYTES <= bytes)
        chains *= 2;
    s->size       = (bytes - chains * sizeof *s->chains) / UNIT * UNIT;
    s->chain_mask = chains - 1;
    s->chains     = fl_alloc_zero(chains, sizeof *s->chains);
    s->ring       = fl_big_alloc(s->size);
    pthread_mutex_init(&s->lock, NULL);
    return s->chains && s->ring ? FLETCH_OK : fl_fail_nomem(error, bytes, "the cache of results");
}

int fl_cache_open(fl_cache **out, uint64_t bytes_max, fl_memory *memory, fl_stats *stats,
                  fletch_error *error) {
    *out = NULL;
    if (bytes_max < RING_LEAST)
        bytes_max = RING_LEAST;
    if (memory && !fl_memory_reserve(memory, bytes_max))
        return fl_fail(
            error, FLETCH_ENOMEM, FLETCH_NOWHERE,
            "cache.max_bytes of %.1f MB does not fit under memory.limit beside the model; "
            "lower it or raise the limit",
            (double)bytes_max / 1e6);
    fl_cache *cache = fl_alloc_zero(1, sizeof *cache);
    if (!cache) {
        if (memory)
            fl_memory_release(memory, bytes_max);
        return fl_fail_nomem(error, sizeof *cache, "the cache of results");
    }
    *cache        = (fl_cache){.bytes_max = bytes_max, .memory = memory, .stats = stats};
    cache->seed   = fl_hash_seed(cache);
    cache->shards = 1;
    while (cache->shards < SHARDS_MAX && 2 * cache->shards * (uint64_t)SHARD_BYTES <= bytes_max)
        cache->shards *= 2;
    int status = FLETCH_OK;
    for (uint32_t i = 0; i < cache->shards && status == FLETCH_OK; i++)
        status = open_shard(&cache->shard[i], bytes_max / cache->shards, error);
    if (status < 0)
        fl_cache_close(cache);
    else
        *out = cache;
    return status;
}

FL_UNCHECKED void fl_cache_close(fl_cache *cache) {
    uint64_t reserved = cache ? cache->bytes_max : 0;
    for (uint32_t i = 0; cache && i < cache->shards; i++) {
        shard *s = &cache->shard[i];
        if (s->size == 0) /* opening failed before it */
            continue;
        reserved -= s->touched;
        if (s->ring)
            fl_big_free(s->ring, s->size);
        fl_free(s->chains);
        pthread_mutex_destroy(&s->lock);
    }
    if (cache && cache->memory)
        fl_memory_release(cache->memory, reserved);
    fl_free(cache);
}

/* ---- Entries --------------------------------------------------------------------------------- */

static uint64_t hash_of(const fl_cache *cache, const fl_cache_key *key) {
    const uint32_t of_ids[] = {key->skip, key->segment, key->keys};
    uint64_t       hash     = fl_hash((const char *)key->plan, sizeof *key->plan, cache->seed);
    hash                    = fl_hash((const char *)of_ids, sizeof of_ids, hash);
    return fl_hash((const char *)key->ids, key->count * sizeof *key->ids, hash);
}

/* Chains go by the low bits of a hash, shards by the high ones. */
static shard *shard_of(fl_cache *cache, uint64_t hash) {
    return &cache->shard[(hash >> 32) & (cache->shards - 1)];
}

static bool is(const entry *e, uint64_t hash, const fl_cache_key *key) {
    return e->hash == hash && e->count == key->count && e->skip == key->skip &&
           e->segment == key->segment && e->keys == key->keys &&
           memcmp(&e->plan, key->plan, sizeof e->plan) == 0 &&
           memcmp(ids_of(e), key->ids, key->count * sizeof *key->ids) == 0;
}

FL_REQUIRES(shard_role) static entry *find(const shard *s, uint64_t hash, const fl_cache_key *key) {
    for (uint32_t n = s->chains[hash & s->chain_mask]; n != 0;) {
        entry *e = (entry *)(void *)(s->ring + (uint64_t)(n - 1) * UNIT);
        if (is(e, hash, key))
            return e;
        n = e->next;
    }
    return NULL;
}

static uint32_t number_of(const shard *s, const entry *e) {
    assert((const char *)e >= s->ring && (const char *)e < s->ring + s->size);
    return (uint32_t)((uint64_t)((const char *)e - s->ring) / UNIT) + 1;
}

FL_REQUIRES(shard_role) static void unlink_entry(shard *s, entry *e) {
    assert(e->used && s->entries > 0);
    uint32_t *link = &s->chains[e->hash & s->chain_mask], own = number_of(s, e);
    while (*link != own)
        link = &((entry *)(void *)(s->ring + (uint64_t)(*link - 1) * UNIT))->next;
    *link   = e->next;
    e->used = false;
    s->entries--;
}

/* The oldest goes; 1 where it could still be found. */
FL_REQUIRES(shard_role) static uint64_t drop_oldest(shard *s) {
    assert(s->tail < s->head);
    uint64_t left = s->size - s->tail % s->size;
    if (left < sizeof(entry)) { /* too little for a head was left over */
        s->tail += left;
        return 0;
    }
    entry   *e    = at(s, s->tail);
    uint64_t used = e->used;
    if (used)
        unlink_entry(s, e);
    s->tail += e->bytes;
    return used;
}

/* Room for `bytes` at the head of the ring, what is there given up. */
FL_REQUIRES(shard_role) static entry *place_for(fl_cache *cache, shard *s, uint64_t bytes) {
    assert(bytes % UNIT == 0 && bytes <= s->size / LARGEST_SHARE);
    uint64_t left = s->size - s->head % s->size, skip = left < bytes ? left : 0, evicted = 0;
    while (s->head + skip + bytes - s->tail > s->size)
        evicted += drop_oldest(s);
    if (skip >= sizeof(entry))
        *at(s, s->head) = (entry){.bytes = (uint32_t)skip};
    s->head += skip;
    entry *e = at(s, s->head);
    s->head += bytes;
    if (s->touched < s->size) {
        uint64_t now = s->head < s->size ? s->head : s->size;
        if (now > s->touched && cache->memory)
            fl_memory_release(cache->memory, now - s->touched);
        s->touched = now > s->touched ? now : s->touched;
    }
    fl_stats_add(cache->stats, FLETCH_COUNT_CACHE_EVICTIONS, evicted);
    return e;
}

FL_REQUIRES(shard_role)
static void put(fl_cache *cache, shard *s, uint64_t hash, const fl_cache_key *key,
                const void *value, size_t size) {
    uint64_t bytes = sizeof(entry) + key->count * sizeof *key->ids + size;
    bytes          = (bytes + UNIT - 1) / UNIT * UNIT;
    if (bytes > s->size / LARGEST_SHARE || bytes > UINT32_MAX)
        return;
    entry    *e    = place_for(cache, s, bytes);
    uint32_t *link = &s->chains[hash & s->chain_mask];
    *e             = (entry){.hash        = hash,
                             .bytes       = (uint32_t)bytes,
                             .next        = *link,
                             .plan        = *key->plan,
                             .skip        = key->skip,
                             .segment     = key->segment,
                             .keys        = key->keys,
                             .count       = key->count,
                             .value_bytes = size,
                             .used        = true};
    memcpy(ids_of(e), key->ids, key->count * sizeof *key->ids);
    if (size > 0)
        memcpy(value_of(e), value, size);
    *link = number_of(s, e);
    s->entries++;
}

/* The position of an entry that is in the ring now. */
FL_REQUIRES(shard_role) static uint64_t position_of(const shard *s, const entry *e) {
    uint64_t place = (uint64_t)((const char *)e - s->ring), start = s->tail - s->tail % s->size;
    return start + place >= s->tail ? start + place : start + place + s->size;
}

/* An entry that was used lies down again as the newest when half of the ring is younger; not one that this
 * would overwrite. */
FL_REQUIRES(shard_role) static void renew(fl_cache *cache, shard *s, entry *e) {
    assert(e->used);
    uint64_t place = position_of(s, e), left = s->size - s->head % s->size;
    uint64_t end = s->head + (left < e->bytes ? left : 0) + e->bytes;
    if (s->head - place <= s->size / 2 || place + s->size < end)
        return;
    unlink_entry(s, e);
    entry    *now  = place_for(cache, s, e->bytes);
    uint32_t *link = &s->chains[e->hash & s->chain_mask];
    memcpy(now, e, e->bytes);
    now->used = true;
    now->next = *link;
    *link     = number_of(s, now);
    s->entries++;
}

bool fl_cache_find(fl_cache *cache, const fl_cache_key *key, fl_cache_use use, void *arg) {
    assert(key->plan && key->count > 0 && use);
    uint64_t hash = hash_of(cache, key);
    shard   *s    = shard_of(cache, hash);
    lock(s);
    entry *e   = find(s, hash, key);
    bool   hit = e && use(arg, value_of(e), e->value_bytes);
    if (hit)
        renew(cache, s, e);
    unlock(s);
    fl_stats_add(cache->stats, hit ? FLETCH_COUNT_CACHE_HITS : FLETCH_COUNT_CACHE_MISSES, 1);
    return hit;
}

void fl_cache_put(fl_cache *cache, const fl_cache_key *key, const void *value, size_t size) {
    assert(key->plan && key->count > 0 && (size == 0 || value));
    uint64_t hash = hash_of(cache, key);
    shard   *s    = shard_of(cache, hash);
    lock(s);
    if (!find(s, hash, key))
        put(cache, s, hash, key, value, size);
    unlock(s);
}

uint64_t fl_cache_empty(fl_cache *cache) {
    uint64_t freed = 0;
    for (uint32_t i = 0; i < cache->shards; i++) {
        shard *s = &cache->shard[i];
        lock(s);
        freed += s->head < s->size ? s->head : s->size;
        memset(s->chains, 0, (s->chain_mask + 1) * sizeof *s->chains);
        fl_pages_release(s->ring, s->size);
        s->head = s->tail = s->entries = 0;
        if (cache->memory && fl_memory_reserve(cache->memory, s->touched))
            s->touched = 0; /* it is to be taken again: no batch is promised it */
        unlock(s);
    }
    return freed;
}

void fl_cache_read(fl_cache *cache, fl_cache_state *out) {
    *out = (fl_cache_state){.bytes_max = cache->bytes_max};
    for (uint32_t i = 0; i < cache->shards; i++) {
        shard *s = &cache->shard[i];
        lock(s);
        out->entries += s->entries;
        out->bytes += s->head - s->tail;
        unlock(s);
    }
}
