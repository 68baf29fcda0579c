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
    {"cpu", "cpu.isa", "auto", "The best instruction set there is."},
    {"cpu", "cpu.intra_op_threads", "auto", "Every core this process may use."},

    {"gpu", "provider.order", "cuda,cpu",
     "Run on the graphics card; on the processor without one."},
    {"gpu", "provider.precision", "auto", "Half precision where the card has it in hardware."},
    {"gpu", "batch.max_tokens", "65536", "A card needs large batches to be busy."},
    {"gpu", "cuda.streams", "2", "A second batch is staged while the first computes."},
    {"gpu", "cuda.graphs", "true", "One launch per batch."},
    {"gpu", "cuda.transfer_stream", "true", "Copy the next batch while this one computes."},
    {"gpu", "cuda.memory_pool", "true", "Device memory is taken once and kept."},
    {"gpu", "io.binding", "true", "Pinned buffers, bound once: the card copies by itself."},
    {"gpu", "io.input_buffers", "8", "Enough batches staged to outlast a burst."},
    {"gpu", "io.output_buffers", "8", "And as many results on their way back."},

    {"latency", "batch.max_wait_ms", "0", "Never wait for company."},
    {"latency", "batch.min_texts", "1", "A single text is a batch."},
    {"latency", "batch.throughput", "false", "Small batches leave at once."},
    {"latency", "batch.target_latency_ms", "25", "Batches shrink until 95 of 100 keep to it."},
    {"latency", "batch.max_tokens", "4096", "No batch keeps the next one waiting for long."},
    {"latency", "cuda.graphs", "true", "Launching costs more than a small batch computes."},
    {"latency", "io.preallocated", "true", "No request pays for a first allocation."},

    {"throughput", "provider.precision", "fast",
     "On the processor int16, or bf16, where it gains and the vectors stay fp32's to 0.999."},
    {"throughput", "batch.max_tokens", "32768", "Large batches spread the cost of a pass."},
    {"throughput", "batch.max_texts", "1024", "Short texts fill a batch too."},
    {"throughput", "batch.min_texts", "32", "Callers in a loop are awaited, so many of them."},
    {"throughput", "batch.max_wait_ms", "20", "But not for ever."},
    {"throughput", "batch.throughput", "true", "Prefer full batches."},
    {"throughput", "io.input_buffers", "8", "The engine never waits for a text to be tokenised."},
    {"throughput", "io.output_buffers", "8", "Nor for a result to be taken away."},
    {"throughput", "pool.max_buffers", "64", "More is under way, more is worth keeping."},
    {"throughput", "pool.max_bytes", "512MiB", "The same in bytes."},

    {"memory", "batch.max_tokens", "2048", "A replica's scratch memory grows with this."},
    {"memory", "cpu.replicas", "1", "The weights are there once, on one node."},
    {"memory", "model.weights", "stored", "Weights as small as in their file; the same bytes."},
    {"memory", "batch.max_texts", "16", "Fewer results under way."},
    {"memory", "batch.memory_prediction", "true", "No batch is begun that does not fit."},
    {"memory", "io.input_buffers", "1", "One buffer in."},
    {"memory", "io.output_buffers", "1", "One buffer out."},
    {"memory", "pool.max_buffers", "4", "Keep little."},
    {"memory", "pool.max_bytes", "16MiB", "And not much of it."},
    {"memory", "pool.pressure_threshold", "0.6", "Give back early."},
    {"memory", "onnxruntime.cpu_arena", "false", "Give memory back after each run."},
    {"memory", "onnxruntime.memory_pattern", "false", "Plan no block for the largest run seen."},
    {"memory", "cuda.streams", "1", "One set of device buffers."},

    {"debug", "provider.precision", "fp32", "Full precision."},
    {"debug", "provider.fallback", "false", "A refused provider is an error, not a note."},
    {"debug", "provider.deterministic", "true", "Same bytes on every run."},
    {"debug", "batch.dynamic", "false", "A batch holds one caller's texts."},
    {"debug", "pool.enable", "false", "Every buffer is new: a sanitizer sees what runs over."},
    {"debug", "onnxruntime.graph_optimization_level", "1",
     "A trace names most operators as they were written."},
    {"debug", "onnxruntime.memory_pattern", "false", "No block is planned for runs to come."},
    {"debug", "profile.file", "fletch-debug.json", "Where the time goes, for chrome://tracing."},
    {"debug", "cuda.graphs", "false", "Each kernel is launched, and fails, by itself."},

    {"max", "provider.order", "auto", "The best device there is."},
    {"max", "provider.devices", "all", "And every one of its kind."},
    {"max", "provider.precision", "fast",
     "On the processor int16, or bf16, where it gains and the vectors stay fp32's to 0.999."},
    {"max", "cpu.isa", "auto", "The best instruction set."},
    {"max", "cpu.intra_op_threads", "auto", "Every core this process may use."},
    {"max", "batch.max_tokens", "65536", "Large batches."},
    {"max", "batch.max_texts", "4096", "However short the texts."},
    {"max", "batch.min_texts", "64", "Callers in a loop are awaited, so many of them."},
    {"max", "batch.max_wait_ms", "20", "But not for ever."},
    {"max", "batch.target_latency_ms", "50", "And no larger than 95 of 100 callers bear."},
    {"max", "cuda.streams", "4", "Keep the card busy."},
    {"max", "io.input_buffers", "16", "The engine never waits for a text to be tokenised."},
    {"max", "io.output_buffers", "16", "Nor for a result to be taken away."},
    {"max", "pool.max_buffers", "256", "Keep what may be used again."},
    {"max", "pool.max_bytes", "1GiB", "However much it is."},
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
