/* SPDX-License-Identifier: Apache-2.0 */
/* test_bufpool.c - what must never break in the pool: a kept buffer is used again, the oldest goes
 * first, the two bounds hold, every buffer is freed once, and every number told is true.
 *
 * The pool allocates through counting functions of this file, which write to every byte they hand out
 * and remember how many are out, so that a leak, a second free or a wrong size shows. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "scheduler/bufpool.h"

enum { KIB = 1024 };

static atomic_long  blocks_out, bytes_out;
static atomic_llong released_last; /* size of the block that was released last */

static void *counted_alloc(size_t bytes) {
    void *block = fl_alloc_aligned((bytes + 63) / 64 * 64, 64);
    memset(block, 0xA5, bytes);
    atomic_fetch_add(&blocks_out, 1);
    atomic_fetch_add(&bytes_out, (long)bytes);
    return block;
}

static void counted_release(void *block, size_t bytes) {
    memset(block, 0x5A, bytes); /* a wrong size is an overflow that ASan sees */
    fl_free(block);
    atomic_fetch_sub(&blocks_out, 1);
    atomic_fetch_sub(&bytes_out, (long)bytes);
    atomic_store(&released_last, (long long)bytes);
}

static void *failing_alloc(size_t bytes) {
    (void)bytes;
    return NULL;
}

static fl_stats stats;

static uint64_t count(fletch_counter counter) {
    return atomic_load(&stats.counter[counter]);
}

static fl_bufpool *pool_of(bool enable, uint32_t max_buffers, uint64_t max_bytes) {
    fl_bufpool_options options = {.enable      = enable,
                                  .max_buffers = max_buffers,
                                  .max_bytes   = max_bytes,
                                  .alloc       = counted_alloc,
                                  .release     = counted_release,
                                  .stats       = &stats};
    fl_bufpool        *pool;
    fletch_error       error;
    memset(&stats, 0, sizeof stats);
    atomic_store(&blocks_out, 0);
    atomic_store(&bytes_out, 0);
    cr_assert_eq(fl_bufpool_open(&pool, &options, &error), FLETCH_OK);
    return pool;
}

static void close_whole(fl_bufpool *pool) {
    fl_bufpool_close(pool);
    cr_assert_eq(atomic_load(&blocks_out), 0);
    cr_assert_eq(atomic_load(&bytes_out), 0);
}

/* Take and give back at once: leaves a buffer of that size kept. */
static void pass(fl_bufpool *pool, size_t bytes) {
    size_t capacity;
    void  *buffer = fl_bufpool_take(pool, bytes, &capacity);
    cr_assert_not_null(buffer);
    fl_bufpool_give(pool, buffer, capacity);
}

Test(bufpool, capacity_holds_what_was_asked_and_wastes_little) {
    fl_bufpool *pool = pool_of(true, 4, 1 << 30);
    for (size_t bytes = 0; bytes < 300 * KIB; bytes += bytes < 9 * KIB ? 1 : 911) {
        size_t capacity = 0;
        void  *buffer   = fl_bufpool_take(pool, bytes, &capacity);
        cr_assert_not_null(buffer);
        cr_assert_eq((uintptr_t)buffer % 64, 0);
        cr_assert_geq(capacity, bytes);
        cr_assert_geq(capacity, 4 * KIB);
        fl_bufpool_give(pool, buffer, capacity);
        fl_bufpool_trim(pool, 0); /* so that the next one is of its own class */
        cr_assert(bytes <= 4 * KIB || capacity * 4 <= bytes * 5 + 4);
    }
    close_whole(pool);
}

Test(bufpool, powers_of_two_are_their_own_class) {
    fl_bufpool *pool = pool_of(true, 4, 1 << 30);
    for (size_t bytes = 4 * KIB; bytes <= 4096 * KIB; bytes *= 2) {
        size_t capacity;
        void  *buffer = fl_bufpool_take(pool, bytes, &capacity);
        cr_assert_eq(capacity, bytes);
        fl_bufpool_give(pool, buffer, capacity);
        fl_bufpool_trim(pool, 0);
        buffer = fl_bufpool_take(pool, bytes + 1, &capacity);
        cr_assert_eq(capacity, bytes + bytes / 4);
        fl_bufpool_give(pool, buffer, capacity);
        fl_bufpool_trim(pool, 0);
    }
    close_whole(pool);
}

Test(bufpool, a_kept_buffer_is_taken_again) {
    fl_bufpool *pool = pool_of(true, 4, 1 << 30);
    size_t      capacity;
    void       *first = fl_bufpool_take(pool, 10000, &capacity);
    fl_bufpool_give(pool, first, capacity);
    for (int i = 0; i < 99; i++) {
        void *again = fl_bufpool_take(pool, 10000 - (size_t)i * 10, &capacity);
        cr_assert_eq(again, first);
        fl_bufpool_give(pool, again, capacity);
    }
    cr_assert_eq(count(FLETCH_COUNT_POOL_REQUESTS), 100);
    cr_assert_eq(count(FLETCH_COUNT_POOL_HITS), 99);
    cr_assert_eq(count(FLETCH_COUNT_POOL_ALLOCATIONS), 1);
    cr_assert_eq(count(FLETCH_COUNT_POOL_EVICTIONS), 0);
    close_whole(pool);
}

Test(bufpool, a_larger_buffer_serves_up_to_twice_its_need) {
    fl_bufpool *pool = pool_of(true, 4, 1 << 30);
    size_t      capacity;
    pass(pool, 16 * KIB);
    void *buffer = fl_bufpool_take(pool, 8 * KIB, &capacity);
    cr_assert_eq(capacity, 16 * KIB, "16 KiB is at most twice 8 KiB");
    fl_bufpool_give(pool, buffer, capacity);
    buffer = fl_bufpool_take(pool, 7 * KIB, &capacity);
    cr_assert_eq(capacity, 7 * KIB, "16 KiB is more than twice 7 KiB");
    fl_bufpool_give(pool, buffer, capacity);
    buffer = fl_bufpool_take(pool, 7 * KIB, &capacity);
    cr_assert_eq(capacity, 7 * KIB, "the smallest that holds it comes first");
    fl_bufpool_give(pool, buffer, capacity);
    cr_assert_eq(count(FLETCH_COUNT_POOL_HITS), 2);
    close_whole(pool);
}

Test(bufpool, of_one_size_the_last_given_is_taken_first) {
    fl_bufpool *pool = pool_of(true, 4, 1 << 30);
    size_t      capacity;
    void       *a = fl_bufpool_take(pool, 4096, &capacity);
    void       *b = fl_bufpool_take(pool, 4096, &capacity);
    fl_bufpool_give(pool, a, capacity);
    fl_bufpool_give(pool, b, capacity);
    void *again = fl_bufpool_take(pool, 4096, &capacity);
    cr_assert_eq(again, b);
    fl_bufpool_give(pool, again, capacity);
    close_whole(pool);
}

Test(bufpool, the_least_recently_used_goes_first) {
    fl_bufpool *pool   = pool_of(true, 3, 1 << 30);
    size_t      size[] = {4 * KIB, 16 * KIB, 64 * KIB};
    for (int i = 0; i < 3; i++)
        pass(pool, size[i]);
    pass(pool, size[0]); /* now 16 KiB is the oldest */
    pass(pool, 256 * KIB);
    cr_assert_eq(count(FLETCH_COUNT_POOL_EVICTIONS), 1);
    cr_assert_eq(atomic_load(&released_last), 16 * KIB);
    pass(pool, 1024 * KIB);
    cr_assert_eq(atomic_load(&released_last), 64 * KIB);
    pass(pool, 4096 * KIB);
    cr_assert_eq(atomic_load(&released_last), 4 * KIB);
    cr_assert_eq(count(FLETCH_COUNT_POOL_EVICTIONS), 3);
    close_whole(pool);
}

Test(bufpool, bytes_are_bounded_too) {
    fl_bufpool      *pool = pool_of(true, 100, 100 * KIB);
    fl_bufpool_state state;
    for (int i = 0; i < 50; i++) {
        pass(pool, (size_t)(4 + i % 7 * 8) * KIB);
        fl_bufpool_read(pool, &state);
        cr_assert_leq(state.bytes, 100 * KIB);
        cr_assert_eq(state.used_buffers, 0);
    }
    fl_bufpool_trim(pool, 0);
    pass(pool, 512 * KIB); /* larger than all the pool may keep: never kept, evicts nothing */
    fl_bufpool_read(pool, &state);
    cr_assert_eq(state.buffers, 0);
    cr_assert_eq(atomic_load(&blocks_out), 0);
    close_whole(pool);
}

Test(bufpool, state_counts_what_is_kept_and_what_is_out) {
    fl_bufpool      *pool = pool_of(true, 8, 1 << 20);
    fl_bufpool_state state;
    size_t           capacity[3];
    void            *buffer[3];
    for (int i = 0; i < 3; i++)
        buffer[i] = fl_bufpool_take(pool, 8 * KIB, &capacity[i]);
    fl_bufpool_give(pool, buffer[0], capacity[0]);
    fl_bufpool_read(pool, &state);
    cr_assert_eq(state.buffers, 1);
    cr_assert_eq(state.bytes, 8 * KIB);
    cr_assert_eq(state.used_buffers, 2);
    cr_assert_eq(state.used_bytes, 16 * KIB);
    fl_bufpool_give(pool, buffer[1], capacity[1]);
    fl_bufpool_give(pool, buffer[2], capacity[2]);
    fl_bufpool_give(pool, NULL, 0);
    fl_bufpool_read(pool, &state);
    cr_assert_eq(state.buffers, 3);
    cr_assert_eq(state.used_bytes, 0);
    close_whole(pool);
}

Test(bufpool, trim_frees_the_oldest_down_to_what_is_to_be_kept) {
    fl_bufpool      *pool = pool_of(true, 8, 1 << 20);
    fl_bufpool_state state;
    pass(pool, 8 * KIB);
    pass(pool, 32 * KIB);
    pass(pool, 128 * KIB);
    cr_assert_eq(fl_bufpool_trim(pool, 1 << 20), 0);
    cr_assert_eq(fl_bufpool_trim(pool, 160 * KIB), 8 * KIB);
    cr_assert_eq(fl_bufpool_trim(pool, 159 * KIB), 32 * KIB);
    fl_bufpool_read(pool, &state);
    cr_assert_eq(state.buffers, 1);
    cr_assert_eq(state.bytes, 128 * KIB);
    cr_assert_eq(fl_bufpool_trim(pool, 0), 128 * KIB);
    cr_assert_eq(atomic_load(&blocks_out), 0);
    cr_assert_eq(count(FLETCH_COUNT_POOL_EVICTIONS), 0, "trimming is not eviction");
    pass(pool, 8 * KIB); /* and it still works */
    close_whole(pool);
}

Test(bufpool, reserve_makes_buffers_ahead_and_stops_where_the_pool_is_full) {
    fl_bufpool      *pool = pool_of(true, 4, 100 * KIB);
    fl_bufpool_state state;
    fletch_error     error;
    size_t           capacity;
    cr_assert_eq(fl_bufpool_reserve(pool, 10 * KIB, 3, &error), FLETCH_OK);
    fl_bufpool_read(pool, &state);
    cr_assert_eq(state.buffers, 3);
    cr_assert_eq(state.bytes, 30 * KIB);
    cr_assert_eq(count(FLETCH_COUNT_POOL_REQUESTS), 0);
    cr_assert_eq(count(FLETCH_COUNT_POOL_ALLOCATIONS), 0);
    void *buffer = fl_bufpool_take(pool, 9 * KIB, &capacity);
    cr_assert_eq(count(FLETCH_COUNT_POOL_HITS), 1);
    fl_bufpool_give(pool, buffer, capacity);
    cr_assert_eq(fl_bufpool_reserve(pool, 60 * KIB, 100, &error), FLETCH_OK);
    fl_bufpool_read(pool, &state);
    cr_assert_eq(state.buffers, 4);
    cr_assert_eq(count(FLETCH_COUNT_POOL_EVICTIONS), 0);
    close_whole(pool);
}

Test(bufpool, disabled_it_allocates_and_frees) {
    fl_bufpool  *pool = pool_of(false, 32, 1 << 20);
    fletch_error error;
    cr_assert_eq(fl_bufpool_reserve(pool, 4096, 4, &error), FLETCH_OK);
    for (int i = 0; i < 10; i++) {
        pass(pool, 5000);
        cr_assert_eq(atomic_load(&blocks_out), 0);
    }
    cr_assert_eq(count(FLETCH_COUNT_POOL_HITS), 0);
    cr_assert_eq(count(FLETCH_COUNT_POOL_ALLOCATIONS), 10);
    close_whole(pool);
}

Test(bufpool, out_of_memory_is_told_and_nothing_is_lost) {
    fl_bufpool_options options = {
        .enable = true, .max_buffers = 4, .max_bytes = 1 << 20, .stats = &stats};
    fl_bufpool      *pool;
    fl_bufpool_state state;
    fletch_error     error;
    size_t           capacity;
    memset(&stats, 0, sizeof stats);
    for (uint64_t n = 1; n <= 2; n++) {
        fl_alloc_fail_after(n);
        cr_assert_eq(fl_bufpool_open(&pool, &options, &error), FLETCH_ENOMEM);
        cr_assert_null(pool);
        fl_alloc_fail_after(0);
    }
    options.alloc = failing_alloc;
    cr_assert_eq(fl_bufpool_open(&pool, &options, &error), FLETCH_OK);
    cr_assert_null(fl_bufpool_take(pool, 4096, &capacity));
    cr_assert_null(fl_bufpool_take(pool, SIZE_MAX, &capacity));
    cr_assert_eq(fl_bufpool_reserve(pool, 4096, 1, &error), FLETCH_ENOMEM);
    fl_bufpool_read(pool, &state);
    cr_assert_eq(state.used_buffers, 0);
    cr_assert_eq(count(FLETCH_COUNT_POOL_ALLOCATIONS), 0);
    fl_bufpool_close(pool);
}

Test(bufpool, what_is_kept_makes_room_before_a_take_fails) {
    fl_bufpool_options options = {
        .enable = true, .max_buffers = 4, .max_bytes = 1 << 20, .stats = &stats};
    fl_bufpool      *pool;
    fl_bufpool_state state;
    fletch_error     error;
    size_t           capacity;
    memset(&stats, 0, sizeof stats);
    cr_assert_eq(fl_bufpool_open(&pool, &options, &error), FLETCH_OK);
    pass(pool, 4096);
    fl_alloc_fail_after(1); /* the first attempt fails, the one after trimming does not */
    void *buffer = fl_bufpool_take(pool, 500 * KIB, &capacity);
    cr_assert_not_null(buffer);
    memset(buffer, 1, capacity);
    fl_bufpool_read(pool, &state);
    cr_assert_eq(state.buffers, 0);
    fl_bufpool_give(pool, buffer, capacity);
    fl_bufpool_close(pool);
    fl_bufpool_close(NULL);
}

/* ---- Many threads ----------------------------------------------------------------------------- */

enum { THREADS = 8, ROUNDS = 4000, HELD = 4 };

typedef struct worker {
    fl_bufpool *pool;
    uint64_t    seed;
    long        wrong; /* times a buffer changed while it was ours */
} worker;

static uint32_t draw(uint64_t *state) {
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(*state >> 33);
}

static void *work(void *arg) {
    worker        *w              = arg;
    unsigned char *held[HELD]     = {NULL};
    size_t         capacity[HELD] = {0};
    unsigned char  mark           = (unsigned char)w->seed;
    for (int i = 0; i < ROUNDS; i++) {
        int at = (int)(draw(&w->seed) % HELD);
        if (held[at]) {
            w->wrong += held[at][0] != mark || held[at][capacity[at] - 1] != mark;
            fl_bufpool_give(w->pool, held[at], capacity[at]);
            held[at] = NULL;
        } else {
            held[at]    = fl_bufpool_take(w->pool, draw(&w->seed) % (64 * KIB), &capacity[at]);
            held[at][0] = held[at][capacity[at] - 1] = mark;
        }
        if (draw(&w->seed) % 64 == 0)
            fl_bufpool_trim(w->pool, draw(&w->seed) % (256 * KIB));
        if (draw(&w->seed) % 256 == 0)
            fl_bufpool_reserve(w->pool, 8 * KIB, 2, NULL);
    }
    for (int at = 0; at < HELD; at++)
        fl_bufpool_give(w->pool, held[at], capacity[at]);
    return NULL;
}

Test(bufpool, no_buffer_has_two_owners) {
    fl_bufpool      *pool = pool_of(true, 16, 512 * KIB);
    pthread_t        thread[THREADS];
    worker           at[THREADS];
    fl_bufpool_state state;
    for (int i = 0; i < THREADS; i++) {
        at[i] = (worker){.pool = pool, .seed = (uint64_t)i * 7919 + 1};
        cr_assert_eq(pthread_create(&thread[i], NULL, work, &at[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        cr_assert_eq(at[i].wrong, 0);
    }
    fl_bufpool_read(pool, &state);
    cr_assert_eq(state.used_buffers, 0);
    cr_assert_eq(state.used_bytes, 0);
    cr_assert_leq(state.buffers, 16);
    cr_assert_leq(state.bytes, 512 * KIB);
    cr_assert_eq((long)state.bytes, atomic_load(&bytes_out));
    cr_assert_eq((long)state.buffers, atomic_load(&blocks_out));
    close_whole(pool);
}
