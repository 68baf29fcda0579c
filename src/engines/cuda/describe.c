/* SPDX-License-Identifier: Apache-2.0 */
/* describe.c - what an open CUDA engine says of itself: device, libraries, memory, counts.
 *
 * Role    engine.c's table; `fletch model info` and metrics print it.
 * Method  Figures of the engine come from its own counters; the device's load and memory from NVML
 *         where that is installed, and are left out otherwise.
 * Memory  none. Threads: any. */
#include <stdarg.h>
#include <stdio.h>

#include "engines/cuda/cuda_engine.h"

typedef struct teller {
    fletch_property_fn fn;
    void              *user;
    int                stop;
} teller;

static void tell(teller *t, const char *name, const char *comment, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void tell(teller *t, const char *name, const char *comment, const char *format, ...) {
    char    value[320];
    va_list list;
    if (t->stop != 0)
        return;
    va_start(list, format);
    vsnprintf(value, sizeof value, format, list);
    va_end(list);
    t->stop = t->fn(t->user, name, value, comment);
}

static void tell_nvml(const fl_engine *e, teller *t) {
    fl_nvml_utilization use;
    fl_nvml_memory      memory;
    if (!fl_nvml_read(&e->cuda->nvml, e->bus, &use, &memory))
        return;
    tell(t, "cuda.utilisation", "per cent of the last sample period, by NVML", "%u", use.compute);
    tell(t, "cuda.memory_used", "of the whole device, by NVML", "%.1f of %.1f MB",
         (double)memory.used / 1e6, (double)memory.total / 1e6);
}

int fl_cuda_describe(const fl_engine *e, fletch_property_fn fn, void *user) {
    teller        t   = {.fn = fn, .user = user};
    unsigned long all = (unsigned long)atomic_load(&e->batches);
    unsigned long by  = (unsigned long)atomic_load(&e->graph_launches);
    tell(&t, "cuda.device", "", "%s, compute capability %d.%d, at %s", e->name, e->major, e->minor,
         e->bus);
    tell(&t, "cuda.driver", "", "CUDA %d.%d", e->cuda->driver_version / 1000,
         e->cuda->driver_version % 1000 / 10);
    tell(&t, "cuda.cublaslt", e->cuda->lt_path, "%u", e->cuda->lt_version);
    tell(&t, "cuda.precision", e->deterministic ? "deterministic" : "", "%s", e->precision);
    tell(&t, "cuda.streams", e->transfer ? "and one for copies" : "", "%u", e->slot_count);
    tell(&t, "cuda.largest_batch", "tokens, texts", "%u, %u", e->tiers[e->tier_count - 1].tokens,
         e->tiers[e->tier_count - 1].texts);
    tell(&t, "cuda.graphs", e->use_graphs ? "captured now" : "off", "%u",
         atomic_load(&e->captured));
    tell(&t, "cuda.batches", "since opening", "%lu, %lu of them by graph", all, by);
    tell(&t, "cuda.weights_bytes", "", "%llu", (unsigned long long)e->weights_bytes);
    tell(&t, "cuda.arena_bytes", "a stream", "%llu",
         (unsigned long long)(e->arena_bytes + e->workspace_bytes));
    tell(&t, "cuda.pinned_bytes", "of the host", "%llu", (unsigned long long)e->host_bytes);
    tell_nvml(e, &t);
    return t.stop;
}
