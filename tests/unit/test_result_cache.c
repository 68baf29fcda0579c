/* SPDX-License-Identifier: Apache-2.0 */
/* test_result_cache.c - the cache of results by itself: what it gives back, what it forgets, what it holds. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "requests/result_cache.h"

enum { IDS = 40, VALUE = 96 };

static fl_stats stats;

static fl_cache *open_cache(uint64_t bytes) {
    fl_cache    *cache;
    fletch_error error;
    fl_stats_init(&stats);
    cr_assert_eq(fl_cache_open(&cache, bytes, NULL, &stats, &error), 0, "%s", error.message);
    return cache;
}

static uint64_t counted(fletch_counter counter) {
    return atomic_load(&stats.counter[counter]);
}

static const fl_plan plan = {.columns = 384, .kind = FLETCH_KIND_DENSE};

/* Text n: its key, and a value that no other has. */
static fl_cache_key key_of(uint32_t n, int32_t ids[IDS]) {
    uint32_t count = 3 + n % (IDS - 3);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (int32_t)(n >> (i % 3 * 8));
    return (fl_cache_key){
        .plan = &plan, .segment = count, .keys = count, .count = count, .ids = ids};
}

static void value_of(uint32_t n, uint32_t value[VALUE]) {
    for (uint32_t i = 0; i < VALUE; i++)
        value[i] = n * 2654435761u + i;
}

static void put(fl_cache *cache, uint32_t n) {
    int32_t      ids[IDS];
    uint32_t     value[VALUE];
    fl_cache_key key = key_of(n, ids);
    value_of(n, value);
    fl_cache_put(cache, &key, value, sizeof value - n % 5 * sizeof *value);
}

static bool check(void *arg, const void *value, size_t size) {
    uint32_t n = *(const uint32_t *)arg, want[VALUE];
    value_of(n, want);
    cr_assert_eq(size, sizeof want - n % 5 * sizeof *want);
    cr_assert_eq(memcmp(value, want, size), 0, "value %u", n);
    return true;
}

static bool has(fl_cache *cache, uint32_t n) {
    int32_t      ids[IDS];
    fl_cache_key key = key_of(n, ids);
    return fl_cache_find(cache, &key, check, &n);
}

Test(result_cache, gives_back_what_was_put_and_nothing_else) {
    fl_cache *cache = open_cache(1 << 20);
    for (uint32_t n = 0; n < 200; n++) {
        cr_assert_not(has(cache, n));
        put(cache, n);
        cr_assert(has(cache, n));
    }
    for (uint32_t n = 0; n < 200; n++)
        cr_assert(has(cache, n));
    cr_assert_eq(counted(FLETCH_COUNT_CACHE_HITS), 400);
    cr_assert_eq(counted(FLETCH_COUNT_CACHE_MISSES), 200);
    cr_assert_eq(counted(FLETCH_COUNT_CACHE_EVICTIONS), 0);
    fl_cache_close(cache);
}

static bool never(void *arg, const void *value, size_t size) {
    (void)arg, (void)value, (void)size;
    return true;
}

Test(result_cache, every_part_of_the_key_tells) {
    fl_cache    *cache = open_cache(1 << 20);
    int32_t      ids[IDS], others[IDS];
    uint32_t     value = 7;
    fl_cache_key key   = key_of(5, ids);
    fl_cache_put(cache, &key, &value, sizeof value);
    cr_assert(fl_cache_find(cache, &key, never, NULL));
    for (int part = 0; part < 5; part++) {
        fl_cache_key other = key;
        memcpy(others, ids, sizeof ids);
        other.ids = others;
        switch (part) {
        case 0: other.skip++; break;
        case 1: other.segment--; break;
        case 2: other.keys--; break;
        case 3: other.count--; break;
        default: others[other.count - 1]++;
        }
        cr_assert_not(fl_cache_find(cache, &other, never, NULL), "part %d", part);
    }
    fl_cache_close(cache);
}

/* A field that is added to the plan is part of the key by being there: each of its bytes is. */
Test(result_cache, every_byte_of_the_plan_tells) {
    fl_cache    *cache = open_cache(1 << 20);
    int32_t      ids[IDS];
    uint32_t     value = 7;
    fl_cache_key key   = key_of(5, ids);
    fl_cache_put(cache, &key, &value, sizeof value);
    for (size_t i = 0; i < sizeof plan; i++) {
        fl_plan other = plan;
        ((unsigned char *)&other)[i] ^= 1;
        key.plan = &other;
        cr_assert_not(fl_cache_find(cache, &key, never, NULL), "byte %zu", i);
    }
    fl_cache_close(cache);
}

Test(result_cache, the_oldest_go_and_the_bytes_are_bounded) {
    enum { BYTES = 64 * 1024, MANY = 5000 };
    fl_cache      *cache = open_cache(BYTES);
    fl_cache_state state;
    for (uint32_t n = 0; n < MANY; n++) {
        put(cache, n);
        fl_cache_read(cache, &state);
        cr_assert_leq(state.bytes, BYTES);
        cr_assert(has(cache, n));
    }
    cr_assert_gt(state.bytes, BYTES / 2);
    cr_assert_eq(counted(FLETCH_COUNT_CACHE_EVICTIONS), MANY - state.entries);
    for (uint32_t n = 0; n < MANY; n++)
        cr_assert_eq(has(cache, n), n >= MANY - state.entries, "entry %u", n);
    fl_cache_close(cache);
}

Test(result_cache, what_is_used_stays) {
    fl_cache *cache = open_cache(64 * 1024);
    uint32_t  lost  = 0;
    for (uint32_t n = 0; n < 5000; n++) {
        put(cache, 1000 + n);
        for (uint32_t hot = 0; hot < 10; hot++)
            if (!has(cache, hot)) {
                put(cache, hot);
                lost++;
            }
    }
    cr_assert_eq(lost, 10, "each was put once; %u times", lost);
    fl_cache_close(cache);
}

Test(result_cache, what_is_too_large_is_not_kept_and_harms_nothing) {
    static uint32_t value[8192];
    fl_cache       *cache = open_cache(64 * 1024);
    int32_t         ids[IDS];
    fl_cache_key    key = key_of(3, ids);
    put(cache, 7);
    fl_cache_put(cache, &key, value, sizeof value);
    cr_assert_not(fl_cache_find(cache, &key, never, NULL));
    cr_assert(has(cache, 7));
    fl_cache_put(cache, &key, value, 0); /* a text may have no weight at all */
    cr_assert(fl_cache_find(cache, &key, never, NULL));
    fl_cache_close(cache);
}

Test(result_cache, it_is_emptied_and_filled_again) {
    fl_cache      *cache = open_cache(32 << 20);
    fl_cache_state state;
    for (uint32_t n = 0; n < 3000; n++)
        put(cache, n);
    cr_assert_gt(fl_cache_empty(cache), 1 << 20);
    fl_cache_read(cache, &state);
    cr_assert_eq(state.entries, 0);
    cr_assert_eq(state.bytes, 0);
    for (uint32_t n = 0; n < 3000; n++)
        cr_assert_not(has(cache, n));
    put(cache, 1);
    cr_assert(has(cache, 1));
    fl_cache_close(cache);
}

Test(result_cache, what_it_may_take_is_reserved_until_it_is_taken) {
    fl_memory        *memory;
    fl_cache         *cache;
    fletch_error      error;
    fl_memory_options options = {.limit = (uint64_t)1 << 40, .root = ""};
    fl_stats_init(&stats);
    cr_assert_eq(fl_memory_open(&memory, &options, &error), 0);
    cr_assert_eq(fl_cache_open(&cache, 1 << 20, memory, &stats, &error), 0);
    cr_assert_eq(fl_memory_reserved(memory), 1 << 20);
    put(cache, 1);
    uint64_t left = fl_memory_reserved(memory);
    cr_assert_lt(left, 1 << 20);
    cr_assert(has(cache, 1));
    cr_assert_eq(fl_memory_reserved(memory), left);
    for (uint32_t n = 0; n < 10000; n++)
        put(cache, n);
    cr_assert_lt(fl_memory_reserved(memory), 1 << 15,
                 "the ring is full: what is left is its table");
    fl_cache_close(cache);
    cr_assert_eq(fl_memory_reserved(memory), 0);
    cr_assert_eq(fl_cache_open(&cache, (uint64_t)1 << 41, memory, &stats, &error), FLETCH_ENOMEM);
    cr_assert_null(cache);
    fl_memory_close(memory);
}

static void *work(void *arg) {
    fl_cache *cache  = arg;
    uint64_t  random = (uint64_t)(uintptr_t)&random;
    for (int i = 0; i < 20000; i++) {
        random     = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t n = (uint32_t)(random >> 33) % 3000;
        if (!has(cache, n))
            put(cache, n);
        if (i % 5000 == 0)
            fl_cache_empty(cache);
    }
    return NULL;
}

Test(result_cache, threads_get_whole_values) {
    pthread_t      thread[4];
    fl_cache_state state;
    fl_cache      *cache = open_cache(900 * 1024);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, work, cache), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    fl_cache_read(cache, &state);
    cr_assert_leq(state.bytes, 900 * 1024);
    cr_assert_eq(counted(FLETCH_COUNT_CACHE_HITS) + counted(FLETCH_COUNT_CACHE_MISSES), 80000);
    fl_cache_close(cache);
}
