/* SPDX-License-Identifier: Apache-2.0 */
/* describe.c - what an open model, and this machine, say of themselves.
 *
 * Role    fletch_model_describe and fletch_system_describe: name, value and origin, as `fletch doctor` prints
 *         them. fletch_model_info_get: the same as typed fields, for programs.
 * Method  One small function per group; a callback that returns non-zero stops it.
 * Threads reads only.
 * Proof   tests/unit/test_fletch.c, tests/cli. */
#include "session/describe.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/utf8.h"
#include "requests/open_model.h"
#include "scheduler/provider.h"
#include "scheduler/worker.h"
#include "session/devices.h"

typedef struct reporter {
    fletch_property_fn fn;
    void              *user;
    int                stop;
} reporter;

__attribute__((format(printf, 4, 5))) static void
report(reporter *t, const char *name, const char *origin, const char *format, ...) {
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

static void report_folder(reporter *t, const fletch_model *m) {
    const char *folder = m->id[0] ? "hub cache" : "folder";
    report(t, "id", folder, "%s", m->id[0] ? m->id : m->model->folder);
    report(t, "revision", folder, "%s", m->revision);
    report(t, "path", folder, "%s", m->model->folder);
    if (m->model->base != NULL)
        report(t, "base", "adapter_config.json", "%s", m->model->base);
    report(t, "tokenizer", m->model->tokenizer_path, "%s, %" PRIu32 " ids",
           fl_tokenizer_kind(m->tokenizer), fl_tokenizer_vocab_size(m->tokenizer));
}

/* prompt, or prompt.NAME: whole, however long, since the server puts it in front of texts. */
static void report_quoted(reporter *t, const char *dot, const char *name, const char *text,
                          const char *origin) {
    fl_buf label = {0}, quoted = {0};
    fl_buf_printf(&label, "prompt%s%s", dot, name);
    fl_json_quote(&quoted, text, strlen(text));
    if (!t->stop && !label.failed && !quoted.failed)
        t->stop = t->fn(t->user, label.data, quoted.data, origin);
    fl_buf_free(&label);
    fl_buf_free(&quoted);
}

static void report_prompts(reporter *t, const fletch_model *m) {
    const fl_model *model  = m->model;
    const char     *origin = "none";
    if (fl_config_is_set(m->config, FL_KEY_MODEL_PROMPT))
        origin = fl_config_origin(m->config, FL_KEY_MODEL_PROMPT);
    else if (fl_config_is_set(m->config, FL_KEY_MODEL_PROMPT_NAME))
        origin = fl_config_origin(m->config, FL_KEY_MODEL_PROMPT_NAME);
    else if (model->default_prompt_name)
        origin = "config_sentence_transformers.json";
    report_quoted(t, "", "", m->prompt, origin);
    for (uint32_t i = 0; i < model->prompt_count; i++)
        report_quoted(t, ".", model->prompts[i].name, model->prompts[i].text,
                      "config_sentence_transformers.json");
}

static void report_pooling(reporter *t, const fletch_model *m) {
    report(t, "pooling", origin_of(m, FL_KEY_MODEL_POOLING, m->model->pooling_source.origin), "%s",
           m->pooling);
    if (!m->model->include_prompt)
        report(t, "pooling.prompt", "folder", "left out");
    report(t, "normalize", origin_of(m, FL_KEY_MODEL_NORMALIZE, m->model->normalize_source.origin),
           "%s", m->results.normalize ? "true" : "false");
    if (m->model->weigher.weight)
        report(t, "sparse", "sparse_linear", "too, by the weights of tokens");
    else if (m->model->weigher_refused)
        report(t, "sparse", "sparse_linear", "cannot be read: %s", m->model->weigher_refused);
    if (m->model->colbert.weight)
        report(t, "colbert", "colbert_linear", "too, %" PRIu32 " dimensions a token",
               m->model->colbert.out);
    else if (m->model->colbert_refused)
        report(t, "colbert", "colbert_linear", "cannot be read: %s", m->model->colbert_refused);
    if (m->model->lookup.there)
        report(t, "queries", m->model->lookup.idf ? m->model->lookup.idf : "router_config.json",
               "looked up in a table of %" PRIu32 " weights%s", m->results.lookup_count,
               m->model->lookup.by_default ? "; so are texts of no side" : "");
}

/* Where code of the Hub cuts the texts of a pair. */
static void report_characters(reporter *t, const fl_model *model) {
    uint32_t query = 0, document = 0;
    for (uint32_t i = 0; i < model->chat_count; i++)
        if (model->chat[i].kind == FL_CHAT_QUERY)
            query = model->chat[i].most;
        else if (model->chat[i].kind == FL_CHAT_DOCUMENT)
            document = model->chat[i].most;
    if (query > 0 && document > 0)
        report(t, "characters", model->activation_source.origin,
               "%" PRIu32 " of a query, %" PRIu32 " of a document", query, document);
}

static void report_encoder(reporter *t, const fletch_model *m) {
    const fl_encoder_desc *desc   = &m->model->encoder.desc;
    const char            *config = m->model->gguf ? "metadata" : "config.json";
    report(t, "architecture", config,
           "%s: %" PRIu32 " layers, hidden %" PRIu32 ", %" PRIu32 " heads, intermediate %" PRIu32,
           desc->architecture, desc->layers, desc->hidden, desc->heads, desc->intermediate);
    if (m->switches[0] != '\0')
        report(t, "features", config, "%s", m->switches);
    if (m->model->task != NULL)
        report(t, "task", fl_config_origin(m->config, FL_KEY_MODEL_TASK), "%s, of %s",
               m->model->task, m->model->tasks);
    if (m->model->label_count > 0) {
        report(t, "labels", "folder", "%" PRIu32 ": %s%s", m->model->label_count,
               m->model->labels[0], m->model->label_count > 1 ? " …" : "");
        report(t, "activation", m->model->activation_source.origin, "%s",
               fl_dense_activation_name(m->model->activation));
    }
    report(t, "head", "folder", "%s", fl_result_head(m->model)->name);
    report(t, "dimensions", origin_of(m, FL_KEY_MODEL_DIMENSIONS, "folder"), "%" PRIu32,
           m->results.dimensions);
    report(t, "max_length",
           origin_of(m, FL_KEY_MODEL_MAX_LENGTH, m->model->max_length_source.origin), "%" PRIu32,
           m->max_length);
    report_characters(t, m->model);
    report(t, "positions", config, "%" PRIu32, m->length_limit);
    report(t, "similarity", "folder", "%s", m->model->similarity ? m->model->similarity : "cosine");
    report(t, "weights", m->model->files.format, "%s, %.1f MB", m->model->weights_dtype,
           (double)m->model->weights_bytes / 1e6);
}

/* The first replica that is open speaks for all. */
static void report_engine(reporter *t, fletch_model *m) {
    fl_model_lock(m);
    fl_replica *first = fl_replicas_first(m->scheduler.replicas);
    if (first != NULL) {
        fl_replica_hold(first);
        fl_model_unlock(m);
        report(t, "provider", fl_config_origin(m->config, FL_KEY_PROVIDER_ORDER), "%s",
               first->provider);
        report(t, "precision", fl_config_origin(m->config, FL_KEY_PROVIDER_PRECISION), "%s",
               first->info.precision);
        if (!t->stop && first->ops->describe)
            t->stop = first->ops->describe(first->engine, t->fn, t->user);
        fl_model_lock(m);
        fl_replica_let_go(first);
    }
    fl_model_unlock(m);
}

static void report_replicas(reporter *t, fletch_model *m) {
    fl_model_lock(m);
    uint32_t       count = m->scheduler.replicas->count, workers = m->scheduler.replicas->workers;
    fl_queue_rules rules = m->scheduler.queue.rules;
    fl_model_unlock(m);
    report(t, "replicas", "", "%u, %u batches at once", count, workers);
    report(t, "batch", "", "%u tokens, %u texts at most", rules.max_tokens, rules.max_texts);
    fletch_device_stats device;
    for (size_t i = 0; fl_session_device(m, i, &device); i++) {
        char name[32];
        snprintf(name, sizeof name, "replica.%zu", i);
        if (!device.ready)
            report(t, name, "retried until it opens", "%s device %" PRIu32 " failed: %s",
                   device.provider, device.device, device.failure);
    }
}

int fl_session_describe(fletch_model *model, fletch_property_fn fn, void *user) {
    reporter t = {.fn = fn, .user = user};
    report_folder(&t, model);
    if (!model->has_engine)
        return t.stop;
    report_encoder(&t, model);
    report_pooling(&t, model);
    report_prompts(&t, model);
    report(&t, "truncate", fl_config_origin(model->config, FL_KEY_MODEL_TRUNCATE), "%s",
           fl_config_text(model->config, FL_KEY_MODEL_TRUNCATE));
    report_engine(&t, model);
    report_replicas(&t, model);
    return t.stop;
}

/* The same for a program: typed, and without origins. */
void fl_session_info(fletch_model *m, fletch_model_info *out) {
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
        .head           = fl_result_head(model)->name,
        .features       = m->switches,
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
    const fl_replica *first = fl_replicas_first(m->scheduler.replicas);
    if (first != NULL) {
        snprintf(out->provider, sizeof out->provider, "%s", first->provider);
        snprintf(out->precision, sizeof out->precision, "%s", first->info.precision);
    }
    fl_model_unlock(m);
}

/* ---- Statistics ------------------------------------------------------------------------------ */

/* What the queue and the replicas are like now. */
FL_LOCKED static void read_gauges(const fletch_model *m, fletch_stats *out) {
    const fl_lane *lanes = m->scheduler.queue.lane;
    out->queued_requests = lanes[0].blocks + lanes[1].blocks;
    out->queued_texts    = lanes[0].texts + lanes[1].texts;
    out->queued_tokens   = lanes[0].tokens + lanes[1].tokens;
    out->batch_tokens    = m->scheduler.queue.rules.max_tokens;
    out->replicas        = m->scheduler.replicas->count;
    out->slots           = m->scheduler.replicas->workers;
    for (uint32_t r = 0; r < m->scheduler.replicas->count; r++) {
        const fl_replica *replica = &m->scheduler.replicas->replica[r];
        out->replicas_ready += !replica->broken;
        out->slots_busy += replica->busy;
        for (uint32_t s = 0; s < replica->worker_count; s++)
            out->running_texts += replica->workers[s].busy ? replica->workers[s].count : 0;
    }
    const fl_replica *first = fl_replicas_first(m->scheduler.replicas);
    if (first == NULL)
        return;
    snprintf(out->provider, sizeof out->provider, "%s", first->provider);
    snprintf(out->precision, sizeof out->precision, "%s", first->info.precision);
    snprintf(out->device, sizeof out->device, "%s", first->info.device);
}

void fl_session_stats(fletch_model *model, fletch_stats *out) {
    fl_bufpool_state inputs, outputs;
    fl_cache_state   cache = {0};
    fl_stats_read(&model->scheduler.stats, out);
    if (!model->has_engine)
        return;
    fl_model_lock(model);
    read_gauges(model, out);
    fl_model_unlock(model);
    fl_bufpool_read(model->inputs, &inputs);
    fl_bufpool_read(model->scheduler.rows, &outputs);
    out->pool_buffers = inputs.buffers + outputs.buffers;
    out->pool_bytes   = inputs.bytes + outputs.bytes;
    if (model->cache)
        fl_cache_read(model->cache, &cache);
    out->cache_entries   = cache.entries;
    out->cache_bytes     = cache.bytes;
    out->cache_limit     = cache.bytes_max;
    out->memory_bytes    = fl_memory_used(model->scheduler.memory);
    out->memory_limit    = fl_memory_limit(model->scheduler.memory);
    out->memory_reserved = fl_memory_reserved(model->scheduler.memory);
}

int fl_system_describe(const fl_config *config, fletch_property_fn fn, void *user) {
    reporter t = {.fn = fn, .user = user};
    fl_cpu   cpu;
    fl_cpu_detect(&cpu);
    report(&t, "version", "", "%s", FLETCH_VERSION);
    report(&t, "cpu", "", "%s", cpu.name);
    report(&t, "cpu.features", "", "%s%s%s%s%s%s%s%s%s%s%s", cpu.avx2 ? "avx2 " : "",
           cpu.fma ? "fma " : "", cpu.f16c ? "f16c " : "", cpu.avx512f ? "avx512f " : "",
           cpu.avx512_vnni ? "avx512_vnni " : "", cpu.avx_vnni ? "avx_vnni " : "",
           cpu.amx_tile ? "amx " : "", cpu.neon ? "neon " : "",
           cpu.neon_dotprod ? "neon_dotprod " : "", cpu.neon_i8mm ? "neon_i8mm " : "",
           cpu.neon_bf16 ? "neon_bf16 " : "");
    report(&t, "cpu.caches", "", "L1d %" PRIu32 " KiB, L2 %" PRIu32 " KiB, L3 %" PRIu32 " KiB",
           cpu.l1d_bytes / 1024, cpu.l2_bytes / 1024, cpu.l3_bytes / 1024);
    report(&t, "cpu.cores", "affinity and cgroup quota", "%u", fl_cpu_usable());
    report(&t, "memory", "", "%.1f GB", (double)fl_memory_total() / 1e9);
    if (t.stop)
        return t.stop;
    return fl_provider_describe(config, fn, user);
}
