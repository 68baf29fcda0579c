/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_describe.c - what an open CUDA engine says of itself: device, libraries, memory, counts.
 *
 * Role    cuda_engine.c's table; `fletch doctor` and metrics print it.
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

void fl_cuda_load(const fl_engine *e, fl_device_load *out) {
    fl_nvml_utilization use;
    fl_nvml_memory      memory;
    *out = (fl_device_load){.utilisation = -1};
    fl_cuda_account(e, out);
    if (!fl_nvml_read(&e->cuda->nvml, e->bus, &use, &memory))
        return;
    out->utilisation  = (int32_t)use.compute;
    out->memory_used  = memory.used;
    out->memory_total = memory.total;
}

static void tell_memory(const fl_engine *e, teller *t) {
    fl_device_load load;
    fl_cuda_load(e, &load);
    tell(t, "cuda.memory_predicted", "before anything was taken", "%.1f MB",
         (double)fl_cuda_resident(e) / 1e6);
    tell(t, e->pool == &e->own ? "cuda.memory_blocks" : "cuda.memory_pool",
         e->pool == &e->own ? "allocated one by one" : "of all engines on the device",
         "%.1f MB in use, %.1f MB at most, %.1f MB held, %llu of %llu blocks without growing",
         (double)load.pool_used / 1e6, (double)load.pool_peak / 1e6, (double)load.pool_held / 1e6,
         (unsigned long long)load.pool_hits, (unsigned long long)load.pool_takes);
    if (load.utilisation >= 0) {
        tell(t, "cuda.utilisation", "per cent of the last sample period, by NVML", "%d",
             load.utilisation);
        tell(t, "cuda.memory_used", "of the whole device, by NVML", "%.1f of %.1f MB",
             (double)load.memory_used / 1e6, (double)load.memory_total / 1e6);
    }
}

int fl_cuda_describe(const fl_engine *e, fletch_property_fn fn, void *user) {
    teller        t   = {.fn = fn, .user = user};
    unsigned long all = (unsigned long)atomic_load(&e->batches);
    unsigned long by  = (unsigned long)atomic_load(&e->graph_launches);
    tell(&t, "cuda.engine", "no GPU has run it yet; docs/cuda.md", "experimental");
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
    if (e->options.fp32_retries != NULL)
        tell(&t, "cuda.fp32_retries", "texts that overflowed", "%llu",
             (unsigned long long)atomic_load(e->options.fp32_retries));
    tell(&t, "cuda.weights_bytes", "", "%llu", (unsigned long long)e->weights_bytes);
    tell(&t, "cuda.arena_bytes", "a stream", "%llu",
         (unsigned long long)(e->arena_bytes + e->workspace_bytes));
    tell(&t, "cuda.pinned_bytes", "of the host", "%llu", (unsigned long long)e->host_bytes);
    tell(&t, "cuda.direct_batches", "whose rows came down into the runtime's buffers", "%lu",
         (unsigned long)atomic_load(&e->direct_batches));
    tell_memory(e, &t);
    return t.stop;
}
