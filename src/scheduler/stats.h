/* SPDX-License-Identifier: Apache-2.0 */
/* stats.h - counters and histograms that any thread adds to and anyone may read.
 *
 * Role    The runtime counts here; fletch_stats_get and fletch_stats_json (stats.c) read.
 * Method  Relaxed atomics: a count is exact in the end, a snapshot may tear between counters. A
 *         histogram has four buckets to an octave from 1 us up; adding is one clz and three atomic
 *         additions.
 * Threads Any. Nothing locks, nothing allocates.
 * Proof   tests/unit/test_stats.c. */
#ifndef FL_SCHEDULER_STATS_H
#define FL_SCHEDULER_STATS_H

#include <stdatomic.h>
#include <stdint.h>

#include "fletch.h"

#define FL_COUNTER_ONE(NAME, name, text) +1
enum { FL_COUNTERS = 0 FLETCH_COUNTER_MAP(FL_COUNTER_ONE) };
#undef FL_COUNTER_ONE
_Static_assert(FL_COUNTERS <= FLETCH_COUNTER_MAX, "a new counter needs room");

typedef struct fl_histogram {
    atomic_uint_fast64_t sum_ns, max_ns;
    atomic_uint_fast64_t bucket[FLETCH_HISTOGRAM_BUCKETS];
} fl_histogram;

typedef struct fl_stats {
    atomic_uint_fast64_t counter[FL_COUNTERS];
    fl_histogram         tokenize, queue, forward, total;
    uint64_t             opened_ns; /* clock when the model was opened */
} fl_stats;

void fl_stats_init(fl_stats *stats);

static inline void fl_stats_add(fl_stats *stats, fletch_counter counter, uint64_t n) {
    atomic_fetch_add_explicit(&stats->counter[counter], n, memory_order_relaxed);
}

/* `n` durations of `ns` each. */
void fl_histogram_add(fl_histogram *histogram, uint64_t ns, uint64_t n);
void fl_histogram_read(const fl_histogram *histogram, fletch_histogram *out);
/* The q-th quantile (0 .. 1) of counts, in ns: the bound of the bucket that holds it, max_ns at most. */
uint64_t fl_histogram_quantile(const uint64_t *bucket, uint64_t max_ns, double q);

/* The counters and histograms of *stats into *out; the gauges are the runtime's to fill. */
void fl_stats_read(const fl_stats *stats, fletch_stats *out);
/* *stats and devices[count] as one JSON object with ratios; returns the length as snprintf does, or
 * FLETCH_ENOMEM. */
int64_t fl_stats_write_json(const fletch_stats *stats, const fletch_device_stats *devices,
                            size_t count, char *text, size_t capacity);

#endif
