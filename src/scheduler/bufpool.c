/* SPDX-License-Identifier: Apache-2.0 */
/* bufpool.c - the pool behind bufpool.h: classes of sizes, each a stack, and one list by age.
 *
 * Role    See bufpool.h. The scheduler takes blocks of ids and rows here, once per block.
 * Method  A size is rounded up to its class: 4 KiB, 5, 6, 7, 8, 10, 12, 14, 16 … Two requests within a
 *         quarter of an octave so share a buffer, and at most a fifth of it is not asked for. A kept
 *         buffer is a node on two doubly linked lists: the stack of its class, from which the last one
 *         given is taken first because it is still in the caches, and the list of all by age, whose
 *         tail goes when the pool is full. take looks at five stacks (its class and the four above, up
 *         to twice the size), so every operation is a few pointer writes, whatever the pool holds.
 *         Buffers of 128 KiB and more are mappings of their own (fl_big_alloc): freeing one gives its
 *         pages back to the kernel at once, where malloc would keep them and trimming be for nothing.
 * Memory  The nodes, sized at open; then only the buffers. Threads: one mutex. Whatever leaves the pool
 *         is chained through its own first bytes under the lock and freed after it.
 * Proof   tests/unit/test_bufpool.c: order of eviction, counts, and eight threads under TSan. */
#include "scheduler/bufpool.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/locked.h"
#include "base/mem.h"

enum {
    LEAST_SHIFT = 12,                             /* 4 KiB */
    STEPS       = 4,                              /* classes to an octave */
    CLASSES     = (63 - LEAST_SHIFT) * STEPS + 1, /* up to 2^63 */
    NONE        = -1,                             /* end of a list */
    ALIGNMENT   = 64,                             /* a cache line, and the widest vector */
    BIG         = 128 * 1024                      /* from here on a mapping of its own */
};

typedef struct node {
    void   *buffer;
    size_t  capacity;
    int32_t newer, older; /* all kept buffers by age; `older` also links unused nodes */
    int32_t above, below; /* the stack of its class */
} node;

/* What was let go, waiting to be freed outside the lock: the head of the buffer itself. */
typedef struct leaving {
    struct leaving *next;
    size_t          capacity;
} leaving;

FL_LOCK_ROLE(pool_role); /* the lock of fl_bufpool */
#define LOCKED FL_REQUIRES(pool_role)

struct fl_bufpool {
    fl_bufpool_options     options;
    pthread_mutex_t        lock;
    node *nodes            FL_GUARDED_BY(pool_role); /* owned [max_buffers] */
    int32_t unused         FL_GUARDED_BY(pool_role);
    int32_t newest         FL_GUARDED_BY(pool_role);
    int32_t oldest         FL_GUARDED_BY(pool_role);
    int32_t                top[CLASSES] FL_GUARDED_BY(pool_role);
    fl_bufpool_state state FL_GUARDED_BY(pool_role);
};

FL_LOCK_OF(pool_role, fl_bufpool, lock, lock, unlock);

/* ---- Classes --------------------------------------------------------------------------------- */

/* The least class whose buffers hold `bytes`; CLASSES when there is none. */
static unsigned class_of(size_t bytes) {
    if (bytes <= (size_t)1 << LEAST_SHIFT)
        return 0;
    size_t   below = bytes - 1; /* so that a power of two is the last of its octave, not the next */
    unsigned octave = 63 - (unsigned)__builtin_clzll(below);
    unsigned step   = (unsigned)(below >> (octave - 2)) & (STEPS - 1);
    unsigned class  = (octave - LEAST_SHIFT) * STEPS + step + 1;
    return class < CLASSES ? class : CLASSES;
}

static size_t class_size(unsigned class) {
    assert(class < CLASSES);
    size_t octave = (size_t)1 << (LEAST_SHIFT + class / STEPS);
    return octave + octave / STEPS * (class % STEPS);
}

/* ---- Lists --------------------------------------------------------------------------------- */

LOCKED static void unlink_node(fl_bufpool *pool, int32_t at) {
    assert(at >= 0 && pool->nodes[at].buffer);
    node *n                                                            = &pool->nodes[at];
    *(n->newer == NONE ? &pool->newest : &pool->nodes[n->newer].older) = n->older;
    *(n->older == NONE ? &pool->oldest : &pool->nodes[n->older].newer) = n->newer;
    *(n->above == NONE ? &pool->top[class_of(n->capacity)] : &pool->nodes[n->above].below) =
        n->below;
    if (n->below != NONE)
        pool->nodes[n->below].above = n->above;
    pool->state.buffers--;
    pool->state.bytes -= n->capacity;
    n->older     = pool->unused;
    pool->unused = at;
}

LOCKED static void link_node(fl_bufpool *pool, void *buffer, size_t capacity) {
    assert(pool->unused != NONE && buffer && pool->state.buffers < pool->options.max_buffers);
    int32_t at     = pool->unused;
    node   *n      = &pool->nodes[at];
    unsigned class = class_of(capacity);
    pool->unused   = n->older;
    *n             = (node){buffer, capacity, NONE, pool->newest, NONE, pool->top[class]};
    *(pool->newest == NONE ? &pool->oldest : &pool->nodes[pool->newest].newer) = at;
    if (n->below != NONE)
        pool->nodes[n->below].above = at;
    pool->newest     = at;
    pool->top[class] = at;
    pool->state.buffers++;
    pool->state.bytes += capacity;
}

/* Take the oldest out and put it in front of *gone. */
LOCKED static void let_go_oldest(fl_bufpool *pool, leaving **gone) {
    assert(pool->oldest != NONE && pool->state.buffers > 0);
    node    *n        = &pool->nodes[pool->oldest];
    leaving *one      = n->buffer;
    size_t   capacity = n->capacity;
    unlink_node(pool, pool->oldest);
    *one  = (leaving){*gone, capacity};
    *gone = one;
}

/* ---- Buffers ---------------------------------------------------------------------------------- */

static void release(const fl_bufpool *pool, void *buffer, size_t capacity) {
    assert(buffer);
    if (pool->options.release)
        pool->options.release(buffer, capacity);
    else if (capacity >= BIG)
        fl_big_free(buffer, capacity);
    else
        fl_free(buffer);
}

static void release_all(const fl_bufpool *pool, leaving *gone) {
    while (gone) {
        leaving one = *gone;
        release(pool, gone, one.capacity);
        gone = one.next;
    }
}

static void *allocate(const fl_bufpool *pool, size_t capacity) {
    return pool->options.alloc ? pool->options.alloc(capacity)
           : capacity >= BIG   ? fl_big_alloc(capacity)
                               : fl_alloc_aligned(capacity, ALIGNMENT);
}

/* For somebody who waits. What is made ahead (fl_bufpool_reserve) is not counted: the figures say how
 * often a batch had to ask the system. */
static void *allocate_now(const fl_bufpool *pool, size_t capacity) {
    uint64_t begin  = fl_clock_ns();
    void    *buffer = allocate(pool, capacity);
    if (buffer) {
        fl_stats_add(pool->options.stats, FLETCH_COUNT_POOL_ALLOCATIONS, 1);
        fl_stats_add(pool->options.stats, FLETCH_COUNT_POOL_ALLOCATION_NS, fl_clock_ns() - begin);
    }
    return buffer;
}

/* ---- The pool -------------------------------------------------------------------------------- */

FL_UNCHECKED int fl_bufpool_open(fl_bufpool **out, const fl_bufpool_options *options,
                                 fletch_error *error) {
    *out             = NULL;
    uint32_t    most = options->enable ? options->max_buffers : 0;
    fl_bufpool *pool = fl_alloc_zero(1, sizeof *pool);
    if (pool == NULL)
        return fl_fail_nomem(error, sizeof *pool, "the buffer pool");
    pool->options             = *options;
    pool->options.max_buffers = most < INT32_MAX ? most : INT32_MAX;
    pool->nodes               = fl_alloc_array(most, sizeof *pool->nodes);
    if (pool->nodes == NULL) {
        fl_free(pool);
        return fl_fail_nomem(error, most * sizeof *pool->nodes, "the buffer pool's table");
    }
    for (uint32_t i = 0; i < pool->options.max_buffers; i++)
        pool->nodes[i].older = i + 1 < pool->options.max_buffers ? (int32_t)i + 1 : NONE;
    for (size_t i = 0; i < CLASSES; i++)
        pool->top[i] = NONE;
    pool->unused = pool->options.max_buffers ? 0 : NONE;
    pool->newest = pool->oldest = NONE;
    pthread_mutex_init(&pool->lock, NULL);
    *out = pool;
    return FLETCH_OK;
}

FL_UNCHECKED void fl_bufpool_close(fl_bufpool *pool) {
    if (pool == NULL)
        return;
    fl_bufpool_trim(pool, 0);
    pthread_mutex_destroy(&pool->lock);
    fl_free(pool->nodes);
    fl_free(pool);
}

/* A kept buffer of `class` or up to twice as large, the smallest first; NULL: none. */
static void *take_kept(fl_bufpool *pool, unsigned class, size_t *capacity) {
    void *buffer = NULL;
    lock(pool);
    for (unsigned c = class; buffer == NULL && c <= class + STEPS && c < CLASSES; c++) {
        int32_t at = pool->top[c];
        if (at != NONE) {
            buffer    = pool->nodes[at].buffer;
            *capacity = pool->nodes[at].capacity;
            unlink_node(pool, at);
            pool->state.used_buffers++;
            pool->state.used_bytes += *capacity;
        }
    }
    unlock(pool);
    return buffer;
}

void *fl_bufpool_take(fl_bufpool *pool, size_t bytes, size_t *capacity) {
    unsigned class = class_of(bytes);
    if (class == CLASSES)
        return NULL;
    fl_stats_add(pool->options.stats, FLETCH_COUNT_POOL_REQUESTS, 1);
    void *buffer = take_kept(pool, class, capacity);
    if (buffer) {
        fl_stats_add(pool->options.stats, FLETCH_COUNT_POOL_HITS, 1);
        return buffer;
    }
    *capacity = class_size(class);
    buffer    = allocate_now(pool, *capacity);
    if (buffer == NULL && fl_bufpool_trim(pool, 0) > 0)
        buffer = allocate_now(pool, *capacity); /* what was kept stood in the way */
    if (buffer) {
        lock(pool);
        pool->state.used_buffers++;
        pool->state.used_bytes += *capacity;
        unlock(pool);
    }
    return buffer;
}

/* Keep a buffer, letting the oldest go for it; false when it may not be kept at all. */
FL_REQUIRES(pool_role)
static bool keep_buffer(fl_bufpool *pool, void *buffer, size_t capacity, leaving **gone,
                        uint64_t *evicted) {
    assert(buffer && capacity >= sizeof(leaving));
    const fl_bufpool_options *o = &pool->options;
    if (o->max_buffers == 0 || capacity > o->max_bytes)
        return false;
    while (pool->state.buffers == o->max_buffers || pool->state.bytes > o->max_bytes - capacity) {
        let_go_oldest(pool, gone);
        ++*evicted;
    }
    link_node(pool, buffer, capacity);
    return true;
}

void fl_bufpool_give(fl_bufpool *pool, void *buffer, size_t capacity) {
    assert(!buffer || class_size(class_of(capacity)) == capacity);
    leaving *gone    = NULL;
    uint64_t evicted = 0;
    if (buffer == NULL)
        return;
    lock(pool);
    pool->state.used_buffers--;
    pool->state.used_bytes -= capacity;
    bool kept = keep_buffer(pool, buffer, capacity, &gone, &evicted);
    unlock(pool);
    if (!kept)
        release(pool, buffer, capacity);
    if (evicted)
        fl_stats_add(pool->options.stats, FLETCH_COUNT_POOL_EVICTIONS, evicted);
    release_all(pool, gone);
}

int fl_bufpool_reserve(fl_bufpool *pool, size_t bytes, uint32_t count, fletch_error *error) {
    const fl_bufpool_options *o = &pool->options;
    unsigned class              = class_of(bytes);
    size_t capacity             = class < CLASSES ? class_size(class) : SIZE_MAX;
    for (uint32_t i = 0; o->max_buffers && i < count; i++) {
        fl_bufpool_state now;
        fl_bufpool_read(pool, &now);
        if (now.buffers >= o->max_buffers || capacity > o->max_bytes ||
            now.bytes > o->max_bytes - capacity) {
            fl_log_write(o->log, FL_LOG_DEBUG,
                         "buffer pool: %u of %u buffers of %zu bytes preallocated; "
                         "pool.max_buffers and pool.max_bytes allow no more",
                         i, count, bytes);
            return FLETCH_OK;
        }
        void *buffer = allocate(pool, capacity);
        if (buffer == NULL)
            return fl_fail_nomem(error, capacity, "a preallocated buffer (io.input_buffers)");
        lock(pool);
        pool->state.used_buffers++;
        pool->state.used_bytes += capacity;
        unlock(pool);
        fl_bufpool_give(pool, buffer, capacity);
    }
    return FLETCH_OK;
}

uint64_t fl_bufpool_trim(fl_bufpool *pool, uint64_t keep_bytes) {
    leaving *gone = NULL;
    lock(pool);
    uint64_t before = pool->state.bytes;
    while (pool->state.bytes > keep_bytes)
        let_go_oldest(pool, &gone);
    uint64_t freed = before - pool->state.bytes;
    unlock(pool);
    release_all(pool, gone);
    return freed;
}

void fl_bufpool_read(fl_bufpool *pool, fl_bufpool_state *out) {
    lock(pool);
    *out = pool->state;
    unlock(pool);
}
