/* SPDX-License-Identifier: Apache-2.0 */
/* presets.c - named sets of options for a purpose, below every other source in rank.
 *
 * Role    fletch_config_preset ("throughput") and its list, `fletch config --preset NAME`.
 * Method  One flat table: preset, key, value, and why. A preset is nothing but these lines; what a
 *         file, the environment or a flag says wins over it, and of two presets the later wins
 *         where both speak of a key.
 * Memory  Constants only. Threads: none shared.
 * Proof   tests/unit/test_config.c applies each and finds every line within its bounds;
 *         test_config_together.c finds none that contradicts itself. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "config/config_internal.h"

static const fletch_preset presets[] = {
    {"cpu", "provider.order", "cpu", "Run on the processor alone."},
    {"cpu", "provider.engine", "native", "With fletch's own kernels."},
    {"cpu", "provider.precision", "auto", "Exact."},
    {"cpu", "cpu.isa", "auto", "The best available instruction set."},
    {"cpu", "cpu.intra_op_threads", "auto", "Every core this process may use."},

    {"gpu", "provider.order", "cuda,cpu", "Run on the GPU, or on the CPU without one."},
    {"gpu", "provider.precision", "auto", "Half precision where the GPU supports it in hardware."},
    {"gpu", "batch.max_tokens", "65536", "A GPU needs large batches to be busy."},
    {"gpu", "cuda.streams", "2", "A second batch is staged while the first computes."},
    {"gpu", "cuda.graphs", "true", "One launch per batch."},
    {"gpu", "cuda.transfer_stream", "true", "Copy the next batch while this one computes."},
    {"gpu", "cuda.memory_pool", "true", "Device memory is allocated once and kept."},
    {"gpu", "io.binding", "true", "Pinned buffers, bound once, for asynchronous copies."},
    {"gpu", "io.input_buffers", "8", "Enough batches staged to outlast a burst."},
    {"gpu", "io.output_buffers", "8", "And as many results in flight."},

    {"latency", "batch.max_wait_ms", "0", "Never wait to fill a batch."},
    {"latency", "batch.min_texts", "1", "A single text is a batch."},
    {"latency", "batch.throughput", "false", "Small batches leave at once."},
    {"latency", "batch.target_latency_ms", "25", "Batches shrink until 95 % of requests meet it."},
    {"latency", "batch.max_tokens", "4096", "No batch delays the next one for long."},
    {"latency", "cuda.graphs", "true", "Launching costs more than a small batch computes."},
    {"latency", "io.preallocated", "true", "No request pays for a first allocation."},

    {"throughput", "provider.precision", "fast",
     "On the processor int16, or bf16, where it gains and the vectors stay fp32's to 0.999."},
    {"throughput", "batch.max_tokens", "32768", "Large batches spread the cost of a pass."},
    {"throughput", "batch.max_texts", "1024", "Short texts fill a batch too."},
    {"throughput", "batch.min_texts", "32",
     "Wait for callers that are coming back, up to this many."},
    {"throughput", "batch.max_wait_ms", "20", "But not indefinitely."},
    {"throughput", "batch.throughput", "true", "Prefer full batches."},
    {"throughput", "io.input_buffers", "8", "The engine never waits for a text to be tokenised."},
    {"throughput", "io.output_buffers", "8", "Nor for a result to be consumed."},
    {"throughput", "pool.max_buffers", "64", "More is in flight, so more is worth keeping."},
    {"throughput", "pool.max_bytes", "512MiB", "The same in bytes."},

    {"memory", "batch.max_tokens", "2048", "A replica's scratch memory grows with this."},
    {"memory", "cpu.replicas", "1", "One copy of the weights, on one node."},
    {"memory", "model.weights", "stored", "Weights as small as in the file; the same bytes."},
    {"memory", "batch.max_texts", "16", "Fewer results in flight."},
    {"memory", "batch.memory_prediction", "true", "No batch starts that does not fit."},
    {"memory", "io.input_buffers", "1", "One input buffer."},
    {"memory", "io.output_buffers", "1", "One output buffer."},
    {"memory", "pool.max_buffers", "4", "Keep little."},
    {"memory", "pool.max_bytes", "16MiB", "And a small one."},
    {"memory", "pool.pressure_threshold", "0.6", "Release memory early."},
    {"memory", "onnxruntime.cpu_arena", "false", "Release memory after each run."},
    {"memory", "onnxruntime.memory_pattern", "false", "Do not plan for the largest run seen."},
    {"memory", "cuda.streams", "1", "One set of device buffers."},

    {"debug", "provider.precision", "fp32", "Full precision."},
    {"debug", "provider.fallback", "false",
     "A provider that cannot be used is an error, not a warning."},
    {"debug", "provider.deterministic", "true", "Same bytes on every run."},
    {"debug", "batch.dynamic", "false", "A batch holds one caller's texts."},
    {"debug", "pool.enable", "false", "Every buffer is new, so a sanitizer sees overruns."},
    {"debug", "onnxruntime.graph_optimization_level", "1",
     "A trace shows most operators as in the model."},
    {"debug", "onnxruntime.memory_pattern", "false", "Nothing is planned for later runs."},
    {"debug", "profile.file", "fletch-debug.json", "Where the time goes, for chrome://tracing."},
    {"debug", "cuda.graphs", "false", "Each kernel is launched, and fails, individually."},

    {"max", "provider.order", "auto", "The best available device."},
    {"max", "provider.devices", "all", "And all devices of that kind."},
    {"max", "provider.precision", "fast",
     "On the processor int16, or bf16, where it gains and the vectors stay fp32's to 0.999."},
    {"max", "cpu.isa", "auto", "The best instruction set."},
    {"max", "cpu.intra_op_threads", "auto", "Every core this process may use."},
    {"max", "batch.max_tokens", "65536", "Large batches."},
    {"max", "batch.max_texts", "4096", "Regardless of text length."},
    {"max", "batch.min_texts", "64", "Wait for callers that are coming back, up to this many."},
    {"max", "batch.max_wait_ms", "20", "But not indefinitely."},
    {"max", "batch.target_latency_ms", "50", "And no larger than 95 % of callers tolerate."},
    {"max", "cuda.streams", "4", "Keep the GPU busy."},
    {"max", "io.input_buffers", "16", "The engine never waits for a text to be tokenised."},
    {"max", "io.output_buffers", "16", "Nor for a result to be consumed."},
    {"max", "pool.max_buffers", "256", "Keep what may be reused."},
    {"max", "pool.max_bytes", "1GiB", "Regardless of size."},
};

enum { PRESET_LINES = sizeof presets / sizeof presets[0] };

const fletch_preset *fletch_preset_at(size_t index) {
    return index < PRESET_LINES ? &presets[index] : NULL;
}

static int unknown_preset(const char *name, fletch_error *error) {
    fl_nearest nearest = fl_nearest_start(name);
    for (size_t i = 0; i < PRESET_LINES; i++)
        fl_nearest_see(&nearest, presets[i].name);
    if (nearest.name != NULL)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "unknown preset '%.64s'; did you mean '%s'?", name, nearest.name);
    return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                   "unknown preset '%.64s'; there are cpu, gpu, latency, throughput, memory, debug "
                   "and max",
                   name);
}

int fletch_config_preset(fletch_config *config, const char *name, fletch_error *error) {
    fl_error_clear(error);
    if (config == NULL || name == NULL)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "fletch_config_preset: configuration and name must not be NULL");
    bool found = false;
    for (size_t i = 0; i < PRESET_LINES; i++) {
        if (strcmp(presets[i].name, name) != 0)
            continue;
        fl_key key;
        char   origin[32];
        (void)snprintf(origin, sizeof origin, "preset %s", name);
        found = true;
        if (!fl_key_find(presets[i].key, &key))
            return fl_fail(error, FLETCH_EINTERNAL, FLETCH_NOWHERE, "%s: unknown key '%s'", origin,
                           presets[i].key);
        const fl_config_source source = {.rank = FLETCH_ORIGIN_PRESET, .origin = origin};
        const int status = fl_config_assign(config, key, presets[i].value, &source, origin, error);
        if (status < 0)
            return status;
    }
    return found ? 0 : unknown_preset(name, error);
}
