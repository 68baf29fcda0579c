/* SPDX-License-Identifier: Apache-2.0 */
/* result_cache.h - results by token ids, so that a text that comes again is not computed again.
 *
 * Role    cache.max_bytes: 0 is none. A text is looked up when it is tokenised (tokenize.c); what an engine made
 *         of it is put there (block_owner.c). Exact, for a result depends on its own ids and on what was
 *         asked for and on nothing else: both are the key, compared whole.
 * Method  Shards by hash, each with a lock, a ring of memory in which entries are laid end to end, and a
 *         table of chains. A new entry takes the place of the oldest; one that is used when half of
 *         the ring is younger than it is laid down again as the newest. So what is used stays, as in a
 *         list by last use, but a use writes nothing in half of the cases and memory never fragments.
 *         An entry of more than a quarter of its ring is not kept.
 * Memory  cache.max_bytes in all, tables included; mapped when opened, taken as it fills. What is not
 *         taken yet is reserved under memory.limit, so that no batch is promised it.
 * Threads any. Proof: tests/unit/test_result_cache.c, tests/unit/test_repeats.c. */
#ifndef FL_REQUESTS_RESULT_CACHE_H
#define FL_REQUESTS_RESULT_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "results/result.h"
#include "scheduler/memory.h"
#include "scheduler/stats.h"

typedef struct fl_cache fl_cache;

typedef struct fl_cache_key {
    const fl_plan *plan;                       /* what was asked for: its bytes */
    uint32_t       skip, segment, keys, count; /* of the text, as a block has them */
    const int32_t *ids;                        /* [count] */
} fl_cache_key;

/* `memory` NULL: nothing is reserved. ENOMEM, also where memory.limit has no room for it. */
int  fl_cache_open(fl_cache **out, uint64_t bytes_max, fl_memory *memory, fl_stats *stats,
                   fletch_error *error);
void fl_cache_close(fl_cache *cache); /* NULL is a no-op */

/* Calls `use` with the value while nobody can change it; true where that returned true. Counts a hit or
 * a miss. */
typedef bool (*fl_cache_use)(void *arg, const void *value, size_t size);
bool fl_cache_find(fl_cache *cache, const fl_cache_key *key, fl_cache_use use, void *arg);

void fl_cache_put(fl_cache *cache, const fl_cache_key *key, const void *value, size_t size);

/* Forget everything and give its memory back; the bytes. */
uint64_t fl_cache_empty(fl_cache *cache);

typedef struct fl_cache_state {
    uint64_t entries, bytes, bytes_max;
} fl_cache_state;
void fl_cache_read(fl_cache *cache, fl_cache_state *out);

#endif
