/* SPDX-License-Identifier: Apache-2.0 */
/* describe.c - what an open model, and this machine, say of themselves.
 *
 * Role    fletch_model_describe and fletch_system_describe: name, value and origin, as `fletch doctor` prints
 *         them. fletch_model_info_get: the same as typed fields, for programs.
 * Method  One small function per group; a callback that returns non-zero stops the telling.
 * Threads reads only.
 * Proof   tests/unit/test_fletch.c, tests/cli. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/utf8.h"
#include "runtime/describe.h"
#include "runtime/devices.h"
#include "runtime/provider.h"
#include "runtime/runner.h"
#include "runtime/runtime.h"

typedef struct teller {
    fletch_property_fn fn;
    void              *user;
    int                stop;
} teller;

__attribute__((format(printf, 4, 5))) static void
tell(teller *t, const char *name, const char *origin, const char *format, ...) {
    if (t->stop)
        return;
    char    value[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    fl_utf8_make_printable(value); /* what is too long is cut at a whole character */
    t->stop = t->fn(t->user, name, value, origin ? origin : "");
}

/* The configuration's origin where the user set the key, else what the folder
 * says. */
static const char *origin_of(const fletch_model *m, fl_key key, const char *folder) {
    return fl_config_is_set(m->config, key) ? fl_config_origin(m->config, key) : folder;
}

static void tell_folder(teller *t, const fletch_model *m) {
    const char *folder = m->id[0] ? "hub cache" : "folder";
    tell(t, "id", folder, "%s", m->id[0] ? m->id : m->model->folder);
    tell(t, "revision", folder, "%s", m->revision);
    tell(t, "path", folder, "%s", m->model->folder);
    if (m->model->base != NULL)
        tell(t, "base", "adapter_config.json", "%s", m->model->base);
    tell(t, "tokenizer", m->model->tokenizer_path, "%s, %" PRIu32 " ids",
         fl_tokenizer_kind(m->tokenizer), fl_tokenizer_vocab_size(m->tokenizer));
}

/* prompt, or prompt.NAME: whole, however long, since the server puts it in front of texts. */
static void tell_quoted(teller *t, const char *dot, const char *name, const char *text,
                        const char *origin) {
    fl_buf told = {0}, quoted = {0};
    fl_buf_printf(&told, "prompt%s%s", dot, name);
    fl_json_quote(&quoted, text, strlen(text));
    if (!t->stop && !told.failed && !quoted.failed)
        t->stop = t->fn(t->user, told.data, quoted.data, origin);
    fl_buf_free(&told);
    fl_buf_free(&quoted);
}

static void tell_prompts(teller *t, const fletch_model *m) {
    const fl_model *model  = m->model;
    const char     *origin = "none";
    if (fl_config_is_set(m->config, FL_KEY_MODEL_PROMPT))
        origin = fl_config_origin(m->config, FL_KEY_MODEL_PROMPT);
    else if (fl_config_is_set(m->config, FL_KEY_MODEL_PROMPT_NAME))
        origin = fl_config_origin(m->config, FL_KEY_MODEL_PROMPT_NAME);
    else if (model->default_prompt_name)
        origin = "config_sentence_transformers.json";
    tell_quoted(t, "", "", m->prompt, origin);
    for (uint32_t i = 0; i < model->prompt_count; i++)
        tell_quoted(t, ".", model->prompts[i].name, model->prompts[i].text,
                    "config_sentence_transformers.json");
}

static void tell_pooling(teller *t, const fletch_model *m) {
    tell(t, "pooling", origin_of(m, FL_KEY_MODEL_POOLING, m->model->pooling_source.origin), "%s",
         m->pooling);
    if (!m->model->include_prompt)
        tell(t, "pooling.prompt", "folder", "left out");
    tell(t, "normalize", origin_of(m, FL_KEY_MODEL_NORMALIZE, m->model->normalize_source.origin),
         "%s", m->results.normalize ? "true" : "false");
    if (m->model->weigher.weight)
        tell(t, "sparse", "sparse_linear", "too, by the weights of tokens");
    else if (m->model->weigher_refused)
        tell(t, "sparse", "sparse_linear", "cannot be read: %s", m->model->weigher_refused);
    if (m->model->colbert.weight)
        tell(t, "colbert", "colbert_linear", "too, %" PRIu32 " dimensions a token",
             m->model->colbert.out);
    else if (m->model->colbert_refused)
        tell(t, "colbert", "colbert_linear", "cannot be read: %s", m->model->colbert_refused);
    if (m->model->lookup.there)
        tell(t, "queries", m->model->lookup.idf ? m->model->lookup.idf : "router_config.json",
             "looked up in a table of %" PRIu32 " weights%s", m->results.lookup_count,
             m->model->lookup.by_default ? "; so are texts of no side" : "");
}

static const char *const heads[] = {[FL_HEAD_EMBEDDING] = "embedding",
                                    [FL_HEAD_SCORES]    = "scores",
                                    [FL_HEAD_SPARSE]    = "sparse",
                                    [FL_HEAD_LATE]      = "late"};

static void tell_encoder(teller *t, const fletch_model *m) {
    const fl_encoder_desc *desc   = &m->model->encoder.desc;
    const char            *config = m->model->gguf ? "metadata" : "config.json";
    tell(t, "architecture", config,
         "%s: %" PRIu32 " layers, hidden %" PRIu32 ", %" PRIu32 " heads, intermediate %" PRIu32,
         desc->architecture, desc->layers, desc->hidden, desc->heads, desc->intermediate);
    if (m->switches[0] != '\0')
        tell(t, "switches", config, "%s", m->switches);
    if (m->model->task != NULL)
        tell(t, "task", fl_config_origin(m->config, FL_KEY_MODEL_TASK), "%s, of %s", m->model->task,
             m->model->tasks);
    if (m->model->label_count > 0) {
        tell(t, "labels", "folder", "%" PRIu32 ": %s%s", m->model->label_count, m->model->labels[0],
             m->model->label_count > 1 ? " …" : "");
        tell(t, "activation", m->model->activation_source.origin, "%s",
             fl_dense_activation_name(m->model->activation));
    }
    tell(t, "head", "folder", "%s", heads[m->model->head]);
    tell(t, "dimensions", origin_of(m, FL_KEY_MODEL_DIMENSIONS, "folder"), "%" PRIu32,
         m->results.dimensions);
    tell(t, "max_length", origin_of(m, FL_KEY_MODEL_MAX_LENGTH, m->model->max_length_source.origin),
         "%" PRIu32, m->max_length);
    tell(t, "positions", config, "%" PRIu32, m->length_limit);
    tell(t, "similarity", "folder", "%s", m->model->similarity ? m->model->similarity : "cosine");
    tell(t, "weights", m->model->files.format, "%s, %.1f MB", m->model->weights_dtype,
         (double)m->model->weights_bytes / 1e6);
}

/* The first replica that is open speaks for all. */
static void tell_engine(teller *t, fletch_model *m) {
    fl_model_lock(m);
    fl_replica *first = fl_replicas_first(m->replicas);
    if (first != NULL) {
        fl_replica_hold(first);
        fl_model_unlock(m);
        tell(t, "provider", fl_config_origin(m->config, FL_KEY_PROVIDER_ORDER), "%s",
             first->provider);
        tell(t, "precision", fl_config_origin(m->config, FL_KEY_PROVIDER_PRECISION), "%s",
             first->info.precision);
        if (!t->stop && first->ops->describe)
            t->stop = first->ops->describe(first->engine, t->fn, t->user);
        fl_model_lock(m);
        fl_replica_let_go(first);
    }
    fl_model_unlock(m);
}

static void tell_replicas(teller *t, fletch_model *m) {
    fl_model_lock(m);
    uint32_t       count = m->replicas->count, slots = m->replicas->slots;
    fl_queue_rules rules = m->queue.rules;
    fl_model_unlock(m);
    tell(t, "replicas", "", "%u, %u batches at once", count, slots);
    tell(t, "batch", "", "%u tokens, %u texts at most", rules.max_tokens, rules.max_texts);
    fletch_device_stats device;
    for (size_t i = 0; fl_runtime_device(m, i, &device); i++) {
        char name[32];
        snprintf(name, sizeof name, "replica.%zu", i);
        if (!device.ready)
            tell(t, name, "tried again until it opens", "%s device %" PRIu32 " failed: %s",
                 device.provider, device.device, device.failure);
    }
}

int fl_runtime_describe(fletch_model *model, fletch_property_fn fn, void *user) {
    teller t = {.fn = fn, .user = user};
    tell_folder(&t, model);
    if (!model->has_engine)
        return t.stop;
    tell_encoder(&t, model);
    tell_pooling(&t, model);
    tell_prompts(&t, model);
    tell(&t, "truncate", fl_config_origin(model->config, FL_KEY_MODEL_TRUNCATE), "%s",
         fl_config_text(model->config, FL_KEY_MODEL_TRUNCATE));
    tell_engine(&t, model);
    tell_replicas(&t, model);
    return t.stop;
}

/* The same for a program: typed, and without origins. */
void fl_runtime_info(fletch_model *m, fletch_model_info *out) {
    const fl_model        *model = m->model;
    const fl_encoder_desc *desc  = &model->encoder.desc;

    *out = (fletch_model_info){
        .id             = m->id[0] ? m->id : model->folder,
        .path           = model->folder,
        .revision       = m->revision,
        .tokenizer      = fl_tokenizer_kind(m->tokenizer),
        .vocabulary     = fl_tokenizer_vocab_size(m->tokenizer),
        .family         = "",
        .pooling        = m->pooling,
        .similarity     = "",
        .prompt         = m->has_engine ? m->prompt : "",
        .weights_format = "",
        .weights_dtype  = "",
        .activation     = "",
        .head           = heads[model->head],
        .switches       = m->switches,
        .task           = "",
    };
    if (!m->has_engine)
        return;
    out->family         = desc->architecture;
    out->similarity     = model->similarity ? model->similarity : "cosine";
    out->weights_format = model->files.format;
    out->weights_dtype  = model->weights_dtype;
    out->weights_bytes  = model->files.bytes;
    out->parameters     = model->files.parameters;
    out->modified       = model->files.modified;
    out->layers         = desc->layers;
    out->heads          = desc->heads;
    out->key_heads      = desc->kv_heads;
    out->intermediate   = desc->intermediate;
    out->positions      = m->length_limit;
    out->task           = model->task ? model->task : "";
    out->hidden         = desc->hidden;
    out->dimensions     = m->results.dimensions;
    out->max_length     = m->max_length;
    out->normalize      = m->results.normalize;
    out->prompt_count   = model->prompt_count;
    out->labels         = model->label_count;
    out->sparse         = model->head == FL_HEAD_SPARSE || model->weigher.weight ? desc->vocab : 0;
    out->colbert        = model->head == FL_HEAD_LATE ? model->dimensions : model->colbert.out;
    if (model->label_count > 0)
        out->activation = fl_dense_activation_name(model->activation);
    fl_model_lock(m);
    const fl_replica *first = fl_replicas_first(m->replicas);
    if (first != NULL) {
        snprintf(out->provider, sizeof out->provider, "%s", first->provider);
        snprintf(out->precision, sizeof out->precision, "%s", first->info.precision);
    }
    fl_model_unlock(m);
}

/* ---- Statistics ------------------------------------------------------------------------------ */

/* What the queue and the replicas are like now. */
FL_LOCKED static void read_gauges(const fletch_model *m, fletch_stats *out) {
    const fl_lane *lanes = m->queue.lane;
    out->queued_requests = lanes[0].chunks + lanes[1].chunks;
    out->queued_texts    = lanes[0].texts + lanes[1].texts;
    out->queued_tokens   = lanes[0].tokens + lanes[1].tokens;
    out->batch_tokens    = m->queue.rules.max_tokens;
    out->replicas        = m->replicas->count;
    out->slots           = m->replicas->slots;
    for (uint32_t r = 0; r < m->replicas->count; r++) {
        const fl_replica *replica = &m->replicas->replica[r];
        out->replicas_ready += !replica->broken;
        out->slots_busy += replica->busy;
        for (uint32_t s = 0; s < replica->slot_count; s++)
            out->running_texts += replica->slots[s].busy ? replica->slots[s].count : 0;
    }
    const fl_replica *first = fl_replicas_first(m->replicas);
    if (first == NULL)
        return;
    snprintf(out->provider, sizeof out->provider, "%s", first->provider);
    snprintf(out->precision, sizeof out->precision, "%s", first->info.precision);
    snprintf(out->device, sizeof out->device, "%s", first->info.device);
}

void fl_runtime_stats(fletch_model *model, fletch_stats *out) {
    fl_bufpool_state inputs, outputs;
    fl_cache_state   cache = {0};
    fl_stats_read(&model->stats, out);
    if (!model->has_engine)
        return;
    fl_model_lock(model);
    read_gauges(model, out);
    fl_model_unlock(model);
    fl_bufpool_read(model->inputs, &inputs);
    fl_bufpool_read(model->outputs, &outputs);
    out->pool_buffers = inputs.buffers + outputs.buffers;
    out->pool_bytes   = inputs.bytes + outputs.bytes;
    if (model->cache)
        fl_cache_read(model->cache, &cache);
    out->cache_entries   = cache.entries;
    out->cache_bytes     = cache.bytes;
    out->cache_limit     = cache.bytes_max;
    out->memory_bytes    = fl_memory_used(model->memory);
    out->memory_limit    = fl_memory_limit(model->memory);
    out->memory_reserved = fl_memory_reserved(model->memory);
}

int fl_system_describe(const fl_config *config, fletch_property_fn fn, void *user) {
    teller t = {.fn = fn, .user = user};
    fl_cpu cpu;
    fl_cpu_detect(&cpu);
    tell(&t, "version", "", "%s", FLETCH_VERSION);
    tell(&t, "cpu", "", "%s", cpu.name);
    tell(&t, "cpu.features", "", "%s%s%s%s%s%s%s%s%s%s%s", cpu.avx2 ? "avx2 " : "",
         cpu.fma ? "fma " : "", cpu.f16c ? "f16c " : "", cpu.avx512f ? "avx512f " : "",
         cpu.avx512_vnni ? "avx512_vnni " : "", cpu.avx_vnni ? "avx_vnni " : "",
         cpu.amx_tile ? "amx " : "", cpu.neon ? "neon " : "",
         cpu.neon_dotprod ? "neon_dotprod " : "", cpu.neon_i8mm ? "neon_i8mm " : "",
         cpu.neon_bf16 ? "neon_bf16 " : "");
    tell(&t, "cpu.caches", "", "L1d %" PRIu32 " KiB, L2 %" PRIu32 " KiB, L3 %" PRIu32 " KiB",
         cpu.l1d_bytes / 1024, cpu.l2_bytes / 1024, cpu.l3_bytes / 1024);
    tell(&t, "cpu.cores", "affinity and cgroup quota", "%u", fl_cpu_usable());
    tell(&t, "memory", "", "%.1f GB", (double)fl_memory_total() / 1e9);
    if (t.stop)
        return t.stop;
    return fl_provider_describe(config, fn, user);
}
