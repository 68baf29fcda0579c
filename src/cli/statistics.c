/* SPDX-License-Identifier: Apache-2.0 */
/* statistics.c - what the library counted, for a person and for a program.
 *
 * Role    The end of `fletch embed --stats` and all of `--stats-json FILE`.
 * Method  The names stand in the same column as those of run.c. Counters that should be 0 (failures,
 *         splits, evictions) are printed only when they are not: a line there is worth a look.
 * Memory  One buffer for the JSON. Proof: tests/cli/test_stats.py. */
#include "cli/statistics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"

static double ms(uint64_t ns) {
    return (double)ns / 1e6;
}

/* " 98.7 %", or "-" where nothing was asked. */
static void put_share(fl_buf *out, const char *what, double part, double whole) {
    if (whole <= 0)
        fl_buf_printf(out, "%s -", what);
    else
        fl_buf_printf(out, "%s %.1f %%", what, 100 * part / whole);
}

static void put_durations(fl_buf *out, const char *name, const fletch_histogram *h) {
    if (h->count == 0)
        return;
    fl_buf_printf(out, "%-12s p50 %.3g  p90 %.3g  p99 %.3g  max %.3g ms\n", name, ms(h->p50_ns),
                  ms(h->p90_ns), ms(h->p99_ns), ms(h->max_ns));
}

static void put_if(fl_buf *out, const char *name, uint64_t count) {
    if (count > 0)
        fl_buf_printf(out, "%-12s %" PRIu64 "\n", name, count);
}

static void put_tokenizer(fl_buf *out, const fletch_stats *s) {
    double bytes = (double)s->counter[FLETCH_COUNT_TOKENIZED_BYTES],
           ns    = (double)s->counter[FLETCH_COUNT_TOKENIZE_NS];
    if (bytes > 0 && ns > 0)
        fl_buf_printf(out, "%-12s %.3g MB/s per thread, %.3g MB of text\n", "tokenizer",
                      bytes * 1e3 / ns, bytes / 1e6);
}

static void put_engine(fl_buf *out, const fletch_stats *s) {
    const double batches =
        s->counter[FLETCH_COUNT_BATCHES] > 0 ? (double)s->counter[FLETCH_COUNT_BATCHES] : 1;
    const double slots = (double)(s->slots > 0 ? s->slots : 1);
    fl_buf_printf(out, "%-12s %s %s, %s\n", "engine", s->provider, s->precision, s->device);
    fl_buf_printf(out, "%-12s %" PRIu64 " of %" PRIu64 " ready, %" PRIu64 " slot%s\n", "replicas",
                  s->replicas_ready, s->replicas, s->slots, s->slots == 1 ? "" : "s");
    fl_buf_printf(out, "%-12s %" PRIu64 " of %.1f texts, %.0f tokens\n", "batches",
                  s->counter[FLETCH_COUNT_BATCHES],
                  (double)s->counter[FLETCH_COUNT_TEXTS] / batches,
                  (double)s->counter[FLETCH_COUNT_TOKENS] / batches);
    fl_buf_printf(out, "%-12s", "in use");
    put_share(out, "", (double)s->counter[FLETCH_COUNT_BUSY_NS], (double)s->uptime_ns * slots);
    fl_buf_puts(out, " of the time since the model was opened\n");
}

static void put_buffers(fl_buf *out, const fletch_stats *s) {
    const double takes = (double)s->counter[FLETCH_COUNT_POOL_REQUESTS],
                 fresh = (double)s->counter[FLETCH_COUNT_POOL_ALLOCATIONS];
    fl_buf_printf(out, "%-12s", "zero copy");
    put_share(out, " in", (double)s->counter[FLETCH_COUNT_ZERO_COPY_INPUTS],
              (double)s->counter[FLETCH_COUNT_ZERO_COPY_INPUTS] +
                  (double)s->counter[FLETCH_COUNT_COPIED_INPUTS]);
    put_share(out, ", out", (double)s->counter[FLETCH_COUNT_ZERO_COPY_OUTPUTS],
              (double)s->counter[FLETCH_COUNT_ZERO_COPY_OUTPUTS] +
                  (double)s->counter[FLETCH_COUNT_STAGED_OUTPUTS]);
    fl_buf_printf(out, "\n%-12s", "buffers");
    put_share(out, " hit", (double)s->counter[FLETCH_COUNT_POOL_HITS], takes);
    put_share(out, ", reused", takes > fresh ? takes - fresh : 0, takes);
    fl_buf_printf(out, ", %" PRIu64 " allocated, %.1f MB kept\n",
                  s->counter[FLETCH_COUNT_POOL_ALLOCATIONS], (double)s->pool_bytes / 1e6);
}

static void put_cache(fl_buf *out, const fletch_stats *s) {
    const double hits = (double)s->counter[FLETCH_COUNT_CACHE_HITS];
    if (s->cache_limit == 0)
        return;
    fl_buf_printf(out, "%-12s", "cache");
    put_share(out, " hit", hits, hits + (double)s->counter[FLETCH_COUNT_CACHE_MISSES]);
    fl_buf_printf(out, ", %" PRIu64 " results in %.1f of %.1f MB, %" PRIu64 " evicted\n",
                  s->cache_entries, (double)s->cache_bytes / 1e6, (double)s->cache_limit / 1e6,
                  s->counter[FLETCH_COUNT_CACHE_EVICTIONS]);
}

void fl_statistics_put(fl_buf *out, const fletch_stats *s) {
    put_engine(out, s);
    put_tokenizer(out, s);
    put_durations(out, "tokenise", &s->tokenize);
    put_durations(out, "queue", &s->queue);
    put_durations(out, "forward", &s->forward);
    put_durations(out, "request", &s->total);
    put_buffers(out, s);
    put_if(out, "repeats", s->counter[FLETCH_COUNT_REPEATED_TEXTS]);
    put_cache(out, s);
    put_if(out, "failed", s->counter[FLETCH_COUNT_FAILED_TEXTS]);
    put_if(out, "splits", s->counter[FLETCH_COUNT_BATCH_SPLITS]);
    put_if(out, "retries", s->counter[FLETCH_COUNT_BATCH_RETRIES]);
    put_if(out, "fp32 again", s->counter[FLETCH_COUNT_FP32_RETRIES]);
    put_if(out, "fallbacks", s->counter[FLETCH_COUNT_PROVIDER_FALLBACKS]);
    put_if(out, "broken", s->counter[FLETCH_COUNT_REPLICA_FAILURES]);
    put_if(out, "reopened", s->counter[FLETCH_COUNT_REPLICA_REOPENS]);
    put_if(out, "evictions", s->counter[FLETCH_COUNT_POOL_EVICTIONS]);
    put_if(out, "pressure", s->counter[FLETCH_COUNT_PRESSURE_CLEANUPS]);
}

void fl_statistics_put_devices(fl_buf *out, fletch_model *model) {
    fletch_device_stats d = {.size = sizeof d};
    for (size_t i = 0; fletch_device_stats_get(model, i, &d, NULL) == FLETCH_OK; i++) {
        if (!d.ready)
            fl_buf_printf(out, "device %-5" PRIu32 " not ready: %s\n", d.device, d.failure);
        if (d.pool_requests == 0)
            continue;
        fl_buf_printf(out, "device %-5" PRIu32 " %s: %.1f MB in use, %.1f MB at most, %.1f MB held",
                      d.device, d.name, (double)d.pool_used / 1e6, (double)d.pool_peak / 1e6,
                      (double)d.pool_held / 1e6);
        put_share(out, "; blocks reused", (double)d.pool_hits, (double)d.pool_requests);
        if (d.utilisation >= 0)
            fl_buf_printf(out, "; busy %d %%, %.1f of %.1f MB", d.utilisation,
                          (double)d.memory_used / 1e6, (double)d.memory_total / 1e6);
        fl_buf_putc(out, '\n');
    }
}

int fl_statistics_write(fletch_model *model, const char *path, fletch_error *error) {
    enum { FIRST = 16384 };
    size_t  capacity = FIRST;
    char   *text     = fl_alloc(capacity);
    int64_t length   = text != NULL ? fletch_stats_json(model, text, capacity, error) : 0;
    /* Numbers grow between two calls: a little more than asked for. */
    if (length >= (int64_t)capacity) {
        fl_free(text);
        capacity = (size_t)length + FIRST;
        text     = fl_alloc(capacity);
        length   = text != NULL ? fletch_stats_json(model, text, capacity, error) : 0;
    }
    if (text == NULL)
        return fl_fail_nomem(error, capacity, "the statistics");
    int status = length < 0 ? (int)length : 0;
    if (status == 0) {
        size_t size    = (size_t)length < capacity ? (size_t)length + 1 : capacity;
        text[size - 1] = '\n'; /* over the NUL */
        /* "-": behind the results, if they go there too */
        if (strcmp(path, "-") != 0)
            status = fl_atomic_put(path, text, size, FL_ATOMIC_DURABLE, error);
        else if (fl_write_all(STDOUT_FILENO, text, size) != 0)
            status = fl_fail_errno(error, errno, "cannot write", "the statistics");
    }
    fl_free(text);
    return status;
}
