/* SPDX-License-Identifier: Apache-2.0 */
/* bufpool.h - buffers that are kept and used again: size-matched, least recently used goes first.
 *
 * Role    Chunks of tokenised texts and rows between engine and output come from here, so that steady
 *         state allocates nothing.
 * Method  Sizes are rounded up to classes (four to an octave, 4 KiB least), so that requests of like
 *         size share buffers. take gives a kept buffer of the class, or one of a class up to twice as
 *         large, else allocates; give keeps it while max_buffers and max_bytes allow, evicting the
 *         least recently used. Counted in fl_stats (pool_*). pool.enable=false allocates and frees.
 * Memory  `alloc` and `release` may be an engine's pinned host memory; NULL means the heap door
 *         (base/mem.h). The pool's own table is sized at open.
 * Threads All functions but open and close from any thread; one mutex, held for a few dozen
 *         nanoseconds and never across an allocation.
 * Proof   tests/unit/test_bufpool.c. */
#ifndef FL_SCHEDULER_BUFPOOL_H
#define FL_SCHEDULER_BUFPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "scheduler/stats.h"

typedef struct fl_bufpool fl_bufpool;

typedef struct fl_bufpool_options {
    bool     enable;
    uint32_t max_buffers;
    uint64_t max_bytes; /* of the buffers kept; those in use are not counted */
    void *(*alloc)(size_t bytes);
    void (*release)(void *block, size_t bytes);
    fl_stats     *stats; /* borrowed */
    const fl_log *log;
} fl_bufpool_options;

int  fl_bufpool_open(fl_bufpool **out, const fl_bufpool_options *options, fletch_error *error);
void fl_bufpool_close(fl_bufpool *pool); /* every buffer was given back; NULL is a no-op */

/* A buffer of at least `bytes`, aligned to 64, contents undefined; *capacity is its size, which give
 * wants back. NULL: out of memory. */
void *fl_bufpool_take(fl_bufpool *pool, size_t bytes, size_t *capacity);
void  fl_bufpool_give(fl_bufpool *pool, void *buffer, size_t capacity); /* NULL is a no-op */

/* Allocate `count` buffers of `bytes` ahead. */
int fl_bufpool_reserve(fl_bufpool *pool, size_t bytes, uint32_t count, fletch_error *error);

/* Free kept buffers, least recently used first, until at most `keep_bytes` are kept; bytes freed. */
uint64_t fl_bufpool_trim(fl_bufpool *pool, uint64_t keep_bytes);

typedef struct fl_bufpool_state {
    uint64_t buffers, bytes;           /* kept */
    uint64_t used_buffers, used_bytes; /* handed out */
} fl_bufpool_state;
void fl_bufpool_read(fl_bufpool *pool, fl_bufpool_state *out);

#endif
