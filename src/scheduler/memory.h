/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - one ceiling for the process: what is used, what may still be taken, when it grows scarce.
 *
 * Role    Before a batch leaves, the scheduler reserves what the engine predicts for it; a batch that
 *         does not fit is made smaller. A maintenance thread samples pressure and trims.
 * Method  The ceiling is memory.limit, or the limit of a control group above this process (v2's
 *         memory.max and memory.high, v1's limit_in_bytes; the lowest on the way up), or the machine's
 *         memory, whichever leaves least. Used memory is the resident set of the process (from
 *         /proc/self/statm, cached for a few milliseconds), and for a group what all its processes
 *         hold. room = ceiling - used - reserved.
 *         Pressure: used / ceiling, a group's use / limit, or the machine's use / memory at or above
 *         the threshold; or, whatever the threshold, tasks that waited for memory for a fifth of the
 *         last ten seconds (PSI, some avg10).
 * Threads Any; atomics. Nothing allocates after open.
 * Proof   tests/unit/test_memory.c (a stand-in /proc and /sys/fs/cgroup tree), tests/soak. */
#ifndef FL_SCHEDULER_MEMORY_H
#define FL_SCHEDULER_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "engines/engine.h"
#include "fletch.h"

typedef struct fl_memory fl_memory;

typedef struct fl_memory_options {
    uint64_t      limit;     /* bytes; 0: none */
    bool          detect;    /* pool.pressure_detection */
    double        threshold; /* pool.pressure_threshold, 0 .. 1 */
    const char   *root; /* "" usually; tests put a tree of their own in front of /proc and /sys */
    const fl_log *log;
} fl_memory_options;

int  fl_memory_open(fl_memory **out, const fl_memory_options *options, fletch_error *error);
void fl_memory_close(fl_memory *memory); /* NULL is a no-op */

uint64_t fl_memory_used(fl_memory *memory);        /* resident bytes of the process */
uint64_t fl_memory_limit(const fl_memory *memory); /* memory.limit or a group's, lower; 0: none */
uint64_t fl_memory_reserved(const fl_memory *memory);
uint64_t fl_memory_room(fl_memory *memory); /* UINT64_MAX where no ceiling can be read */

/* Promise `bytes` to a batch; false, and nothing reserved, when they would pass the ceiling. */
bool fl_memory_reserve(fl_memory *memory, uint64_t bytes);
void fl_memory_release(fl_memory *memory, uint64_t bytes);

/* Sample now: whether memory is scarce. `why` (may be NULL) gets a sentence for the log. */
bool fl_memory_pressure(fl_memory *memory, char *why, size_t capacity);

/* The batch-size optimiser: how many texts of `longest` tokens fit, 20 % of what is left kept in
 * reserve, clamped to 1 .. 256. `available` is device or process memory before the model was opened;
 * `resident` what the model took of it. */
uint32_t fl_memory_batch_texts(const fl_engine_ops *ops, const fl_engine *engine,
                               uint64_t available, uint64_t resident, uint32_t longest);
/* The same for a token budget: the most tokens (in texts of `longest`) whose prediction fits, clamped
 * to `least` .. `most`. */
uint32_t fl_memory_batch_tokens(const fl_engine_ops *ops, const fl_engine *engine,
                                uint64_t available, uint64_t resident, uint32_t longest,
                                uint32_t least, uint32_t most);

#endif
