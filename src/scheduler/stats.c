/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - counters and histograms of the runtime: adding, reading, and writing them as JSON.
 *
 * Role    The scheduler, the pool and the replicas add; fletch_stats_get, fletch_stats_json, the
 *         command line's --stats and the server's metrics read.
 * Method  Bucket 0 holds everything up to 1 us. Above it every octave (1..2 us, 2..4 us, …) has four
 *         buckets whose bounds are 1000, 1189, 1414 and 1682 ns doubled: powers of 2^(1/4), rounded,
 *         so a quantile read as its bucket's bound is at most 19 % too high wherever it lies. One
 *         division by a constant and one clz find the octave, three comparisons the quarter.
 *         A ratio whose divisor is 0 is null in JSON: nothing was asked of the pool yet is not the
 *         same as nothing was found there. Numbers are written as integers and fixed decimals,
 *         because printf's %f follows the locale of the program that we are part of.
 * Memory  Reading allocates nothing; JSON is put together in one buffer that is freed at once.
 * Threads Adding and reading from any thread, without a lock; see stats.h about tearing.
 * Proof   tests/unit/test_stats.c. */
#include "scheduler/stats.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json_w.h"

enum { LAST_BUCKET = FLETCH_HISTOGRAM_BUCKETS - 1, QUARTERS = 4 };

static const uint64_t quarter_ns[QUARTERS] = {1000, 1189, 1414, 1682};

/* ---- Histograms ------------------------------------------------------------------------------ */

static uint64_t bucket_bound(size_t bucket) {
    assert(bucket <= LAST_BUCKET);
    return quarter_ns[bucket % QUARTERS] << (bucket / QUARTERS);
}

uint64_t fletch_histogram_bound(size_t bucket) {
    return bucket < LAST_BUCKET ? bucket_bound(bucket) : UINT64_MAX;
}

static size_t bucket_of(uint64_t ns) {
    if (ns <= quarter_ns[0])
        return 0;
    const uint64_t units  = (ns - 1) / quarter_ns[0]; /* 1000 * 2^o < ns <= 1000 * 2^(o + 1) */
    const size_t   octave = 63u - (size_t)__builtin_clzll(units);
    const size_t   first  = octave * QUARTERS + 1;
    if (first >= LAST_BUCKET)
        return LAST_BUCKET;
    size_t bucket = first;
    for (size_t i = 0; i + 1 < QUARTERS; i++)
        bucket += ns > bucket_bound(first + i);
    return bucket < LAST_BUCKET ? bucket : LAST_BUCKET;
}

void fl_histogram_add(fl_histogram *histogram, uint64_t ns, uint64_t n) {
    if (n == 0)
        return;
    uint_fast64_t seen = atomic_load_explicit(&histogram->max_ns, memory_order_relaxed);
    while (ns > seen &&
           !atomic_compare_exchange_weak_explicit(&histogram->max_ns, &seen, ns,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    atomic_fetch_add_explicit(&histogram->bucket[bucket_of(ns)], n, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum_ns, ns * n, memory_order_relaxed);
}

uint64_t fl_histogram_quantile(const uint64_t *bucket, uint64_t max_ns, double q) {
    assert(q >= 0.0 && q <= 1.0);
    uint64_t count = 0;
    for (size_t i = 0; i < FLETCH_HISTOGRAM_BUCKETS; i++)
        count += bucket[i];
    if (count == 0)
        return 0;
    /* The smallest value with at least q of all values at or below it: the ceil(q count)-th. */
    const double exact = q * (double)count;
    uint64_t     rank  = exact > 0 ? (uint64_t)exact : 0;
    rank += (double)rank < exact;
    rank     = rank == 0 ? 1 : rank > count ? count : rank;
    size_t i = 0;
    for (uint64_t passed = bucket[0]; passed < rank; passed += bucket[i])
        i++;
    const uint64_t bound = fletch_histogram_bound(i);
    return bound < max_ns ? bound : max_ns;
}

void fl_histogram_read(const fl_histogram *histogram, fletch_histogram *out) {
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < FLETCH_HISTOGRAM_BUCKETS; i++) {
        out->bucket[i] = atomic_load_explicit(&histogram->bucket[i], memory_order_relaxed);
        out->count += out->bucket[i];
    }
    out->sum_ns = atomic_load_explicit(&histogram->sum_ns, memory_order_relaxed);
    out->max_ns = atomic_load_explicit(&histogram->max_ns, memory_order_relaxed);
    out->p50_ns = fl_histogram_quantile(out->bucket, out->max_ns, 0.50);
    out->p90_ns = fl_histogram_quantile(out->bucket, out->max_ns, 0.90);
    out->p95_ns = fl_histogram_quantile(out->bucket, out->max_ns, 0.95);
    out->p99_ns = fl_histogram_quantile(out->bucket, out->max_ns, 0.99);
}

/* ---- Names ----------------------------------------------------------------------------------- */

static const struct {
    const char *name, *text;
} counters[FL_COUNTERS] = {
#define FL_COUNTER_ROW(NAME, name, text) {#name, text},
    FLETCH_COUNTER_MAP(FL_COUNTER_ROW)
#undef FL_COUNTER_ROW
};

const char *fletch_counter_name(size_t counter) {
    return counter < FL_COUNTERS ? counters[counter].name : NULL;
}

const char *fletch_counter_text(size_t counter) {
    return counter < FL_COUNTERS ? counters[counter].text : NULL;
}

/* ---- Snapshots ------------------------------------------------------------------------------- */

static void histogram_init(fl_histogram *histogram) {
    atomic_init(&histogram->sum_ns, 0);
    atomic_init(&histogram->max_ns, 0);
    for (size_t i = 0; i < FLETCH_HISTOGRAM_BUCKETS; i++)
        atomic_init(&histogram->bucket[i], 0);
}

void fl_stats_init(fl_stats *stats) {
    for (size_t i = 0; i < FL_COUNTERS; i++)
        atomic_init(&stats->counter[i], 0);
    histogram_init(&stats->tokenize);
    histogram_init(&stats->queue);
    histogram_init(&stats->forward);
    histogram_init(&stats->total);
    stats->opened_ns = fl_clock_ns();
}

void fl_stats_read(const fl_stats *stats, fletch_stats *out) {
    out->counter_count = FL_COUNTERS;
    for (size_t i = 0; i < FL_COUNTERS; i++)
        out->counter[i] = atomic_load_explicit(&stats->counter[i], memory_order_relaxed);
    fl_histogram_read(&stats->tokenize, &out->tokenize);
    fl_histogram_read(&stats->queue, &out->queue);
    fl_histogram_read(&stats->forward, &out->forward);
    fl_histogram_read(&stats->total, &out->total);
    out->uptime_ns = fl_clock_ns() - stats->opened_ns;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Of an array that may be full, without a NUL. */
static void put_string(fl_json_w *w, const char *name, const char *value, size_t capacity) {
    fl_json_w_bytes(w, name, value, strnlen(value, capacity));
}

/* part / whole with four decimals, or null. */
static void put_ratio(fl_json_w *w, const char *name, double part, double whole) {
    if (whole <= 0) {
        fl_json_w_null(w, name);
        return;
    }
    const double   ratio = part > 0 ? part / whole : 0;
    const uint64_t fixed = (uint64_t)(ratio * 1e4 + 0.5);
    fl_json_w_raw(w, name);
    fl_buf_printf(w->out, "%" PRIu64 ".%04" PRIu64, fixed / 10000, fixed % 10000);
}

static void put_ratios(fl_json_w *w, const fletch_stats *s) {
    const double takes = (double)s->counter[FLETCH_COUNT_POOL_REQUESTS];
    /* An allocation that serves no take (io.preallocated) can make this negative: then it is 0. */
    const double reused = takes - (double)s->counter[FLETCH_COUNT_POOL_ALLOCATIONS];
    const double inputs = (double)s->counter[FLETCH_COUNT_ZERO_COPY_INPUTS] +
                          (double)s->counter[FLETCH_COUNT_COPIED_INPUTS];
    const double outputs = (double)s->counter[FLETCH_COUNT_ZERO_COPY_OUTPUTS] +
                           (double)s->counter[FLETCH_COUNT_STAGED_OUTPUTS];
    const double slots = (double)(s->slots != 0 ? s->slots : s->replicas);
    fl_json_w_object(w, "ratios");
    put_ratio(w, "pool_hit", (double)s->counter[FLETCH_COUNT_POOL_HITS], takes);
    put_ratio(w, "buffer_reuse", reused, takes);
    put_ratio(w, "zero_copy_input", (double)s->counter[FLETCH_COUNT_ZERO_COPY_INPUTS], inputs);
    put_ratio(w, "zero_copy_output", (double)s->counter[FLETCH_COUNT_ZERO_COPY_OUTPUTS], outputs);
    put_ratio(w, "cache_hit", (double)s->counter[FLETCH_COUNT_CACHE_HITS],
              (double)s->counter[FLETCH_COUNT_CACHE_HITS] +
                  (double)s->counter[FLETCH_COUNT_CACHE_MISSES]);
    put_ratio(w, "mean_batch_texts", (double)s->counter[FLETCH_COUNT_TEXTS],
              (double)s->counter[FLETCH_COUNT_BATCHES]);
    put_ratio(w, "mean_batch_tokens", (double)s->counter[FLETCH_COUNT_TOKENS],
              (double)s->counter[FLETCH_COUNT_BATCHES]);
    put_ratio(w, "utilisation", (double)s->counter[FLETCH_COUNT_BUSY_NS],
              (double)s->uptime_ns * slots);
    put_ratio(w, "mean_allocation_ns", (double)s->counter[FLETCH_COUNT_POOL_ALLOCATION_NS],
              (double)s->counter[FLETCH_COUNT_POOL_ALLOCATIONS]);
    fl_json_w_end(w);
}

/* Buckets as [bound, count], the empty ones left out; the last one's bound is null. */
static void put_histogram(fl_json_w *w, const char *name, const fletch_histogram *h) {
    fl_json_w_object(w, name);
    fl_json_w_u64(w, "count", h->count);
    fl_json_w_u64(w, "sum_ns", h->sum_ns);
    fl_json_w_u64(w, "max_ns", h->max_ns);
    fl_json_w_u64(w, "p50_ns", h->p50_ns);
    fl_json_w_u64(w, "p90_ns", h->p90_ns);
    fl_json_w_u64(w, "p95_ns", h->p95_ns);
    fl_json_w_u64(w, "p99_ns", h->p99_ns);
    fl_json_w_array(w, "buckets");
    for (size_t i = 0; i < FLETCH_HISTOGRAM_BUCKETS; i++) {
        if (h->bucket[i] == 0)
            continue;
        fl_json_w_array(w, NULL);
        if (i < LAST_BUCKET)
            fl_json_w_u64(w, NULL, bucket_bound(i));
        else
            fl_json_w_null(w, NULL);
        fl_json_w_u64(w, NULL, h->bucket[i]);
        fl_json_w_end(w);
    }
    fl_json_w_end(w);
    fl_json_w_end(w);
}

static void put_gauges(fl_json_w *w, const fletch_stats *s) {
    fl_json_w_u64(w, "queued_requests", s->queued_requests);
    fl_json_w_u64(w, "queued_texts", s->queued_texts);
    fl_json_w_u64(w, "queued_tokens", s->queued_tokens);
    fl_json_w_u64(w, "running_texts", s->running_texts);
    fl_json_w_u64(w, "batch_tokens", s->batch_tokens);
    fl_json_w_u64(w, "pool_buffers", s->pool_buffers);
    fl_json_w_u64(w, "pool_bytes", s->pool_bytes);
    fl_json_w_u64(w, "cache_entries", s->cache_entries);
    fl_json_w_u64(w, "cache_bytes", s->cache_bytes);
    fl_json_w_u64(w, "cache_limit", s->cache_limit);
    fl_json_w_u64(w, "replicas", s->replicas);
    fl_json_w_u64(w, "replicas_ready", s->replicas_ready);
    fl_json_w_u64(w, "slots", s->slots);
    fl_json_w_u64(w, "slots_busy", s->slots_busy);
    fl_json_w_u64(w, "memory_bytes", s->memory_bytes);
    fl_json_w_u64(w, "memory_limit", s->memory_limit);
    fl_json_w_u64(w, "memory_reserved", s->memory_reserved);
    fl_json_w_u64(w, "uptime_ns", s->uptime_ns);
    put_string(w, "provider", s->provider, sizeof s->provider);
    put_string(w, "precision", s->precision, sizeof s->precision);
    put_string(w, "device", s->device, sizeof s->device);
}

/* A device's figure that only a driver could tell: null without one. */
static void put_told(fl_json_w *w, const char *name, bool told, uint64_t value) {
    if (told)
        fl_json_w_u64(w, name, value);
    else
        fl_json_w_null(w, name);
}

static void put_device(fl_json_w *w, const fletch_device_stats *d) {
    const bool seen = d->memory_total > 0, pool = d->pool_requests > 0;
    fl_json_w_object(w, NULL);
    fl_json_w_u64(w, "device", d->device);
    fl_json_w_bool(w, "ready", d->ready);
    put_string(w, "provider", d->provider, sizeof d->provider);
    put_string(w, "name", d->name, sizeof d->name);
    fl_json_w_u64(w, "slots_busy", d->slots_busy);
    fl_json_w_u64(w, "outstanding_tokens", d->outstanding_tokens);
    fl_json_w_u64(w, "batches", d->batches);
    fl_json_w_u64(w, "tokens", d->tokens);
    fl_json_w_u64(w, "zero_copy_inputs", d->zero_copy_inputs);
    fl_json_w_u64(w, "copied_inputs", d->copied_inputs);
    fl_json_w_u64(w, "zero_copy_outputs", d->zero_copy_outputs);
    fl_json_w_u64(w, "staged_outputs", d->staged_outputs);
    fl_json_w_u64(w, "bound_runs", d->bound_runs);
    fl_json_w_u64(w, "unbound_runs", d->unbound_runs);
    put_told(w, "utilisation", d->utilisation >= 0, (uint64_t)d->utilisation);
    put_told(w, "memory_used", seen, d->memory_used);
    put_told(w, "memory_total", seen, d->memory_total);
    put_told(w, "pool_used", pool, d->pool_used);
    put_told(w, "pool_peak", pool, d->pool_peak);
    put_told(w, "pool_held", pool, d->pool_held);
    put_told(w, "pool_requests", pool, d->pool_requests);
    put_told(w, "pool_hits", pool, d->pool_hits);
    put_string(w, "failure", d->failure, sizeof d->failure);
    fl_json_w_end(w);
}

static void put_devices(fl_json_w *w, const fletch_device_stats *devices, size_t count) {
    fl_json_w_array(w, "devices");
    for (size_t i = 0; i < count; i++)
        put_device(w, &devices[i]);
    fl_json_w_end(w);
}

int64_t fl_stats_write_json(const fletch_stats *stats, const fletch_device_stats *devices,
                            size_t count, char *text, size_t capacity) {
    fl_buf    out = {0};
    fl_json_w w   = {.out = &out};
    fl_json_w_object(&w, NULL);
    fl_json_w_text(&w, "version", FLETCH_VERSION);
    for (size_t i = 0; i < FL_COUNTERS; i++)
        fl_json_w_u64(&w, counters[i].name, stats->counter[i]);
    put_gauges(&w, stats);
    put_ratios(&w, stats);
    put_devices(&w, devices, count);
    put_histogram(&w, "tokenize", &stats->tokenize);
    put_histogram(&w, "queue", &stats->queue);
    put_histogram(&w, "forward", &stats->forward);
    put_histogram(&w, "total", &stats->total);
    fl_json_w_end(&w);
    if (out.failed) {
        fl_buf_free(&out);
        return FLETCH_ENOMEM;
    }
    const int64_t length = (int64_t)out.size;
    if (capacity > 0) {
        const size_t kept = out.size < capacity ? out.size : capacity - 1;
        memcpy(text, out.data, kept);
        text[kept] = '\0';
    }
    fl_buf_free(&out);
    return length;
}
