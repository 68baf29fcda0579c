/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - a name and a configuration become an open model, part by part; closing goes backwards.
 *
 * Role    fletch_open, fletch_open_tokenizer, fletch_close, fletch_model_reopen, fletch_warm.
 * Method  name -> folder (hub cache, download when allowed) -> fl_model (files checked, weights
 *         mapped) -> tokenizer -> what the configuration overrides -> memory, pools, queue -> first
 *         provider that opens, a replica on each of its devices -> threads.
 *         A part that fails undoes the parts before it: fl_session_close takes any half-built
 *         model apart.
 * Memory  Owns everything through struct fletch_model; the configuration is cloned.
 * Threads Opening belongs to one thread. Closing ends what waits, lets what runs finish, and waits
 *         until every caller has left; from inside a callback it is done on a thread of its own.
 * Proof   tests/unit/test_fletch.c, tests/stress/test_submit.c; tests/cli for the messages. */
#include "session/open.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "hub/hub.h"
#include "requests/block_owner.h"
#include "requests/maintenance.h"
#include "requests/open_model.h"
#include "requests/prompt.h"
#include "requests/wait.h"
#include "scheduler/worker.h"
#include "session/vector_id.h"

enum { FL_FOLDER_MAX = 4096 };

/* Whether the tokenizer has a marker, or its first word, as a token and yet takes it apart. */
static bool takes_apart(const fl_tokenizer *tokenizer, const char *marker) {
    enum { MARKER_MAX = 64 };
    fl_encode_options plain = {.no_special = true};
    char              text[MARKER_MAX];
    int32_t           ids[MARKER_MAX * 4];
    size_t            lengths[2] = {strlen(marker), strcspn(marker, " \t\n")}, count = 0;
    bool              cut = false, apart = false;
    fl_token_scratch *scratch = fl_token_scratch_new(tokenizer);
    for (size_t i = 0; scratch && i < 2; i++) {
        if (lengths[i] == 0 || lengths[i] >= sizeof text)
            continue;
        memcpy(text, marker, lengths[i]);
        text[lengths[i]] = '\0';
        int32_t id       = fl_tokenizer_id(tokenizer, text);
        if (id < 0)
            continue;
        int status = fl_tokenizer_encode(tokenizer, scratch, text, lengths[i], &plain, ids,
                                         sizeof ids / sizeof *ids, &count, &cut, NULL);
        apart      = status < 0 || count != 1 || ids[0] != id;
        break;
    }
    fl_token_scratch_free(scratch);
    return apart;
}

/* The markers of a late-interaction model are tokens where the tokenizer has them, as in training. */
static int mark_tokens(fletch_model *m, fl_tokenizer_options *options, fletch_error *error) {
    for (size_t i = 0; i < 2; i++) {
        const char *marker = m->model->late.marker[i];
        if (marker != NULL && takes_apart(m->tokenizer, marker))
            options->marker[i] = marker;
    }
    if (options->marker[0] == NULL && options->marker[1] == NULL)
        return FLETCH_OK;
    fl_tokenizer_close(m->tokenizer);
    m->tokenizer = NULL;
    if (m->model->tokenizer_made)
        return fl_fail(
            error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "%s: a late-interaction model needs a tokenizer.json; save its tokenizer once "
            "with transformers",
            m->model->folder);
    fl_buf again = {0};
    FL_TRY(fl_file_read(m->model->tokenizer_path, FL_TOKENIZER_BYTES_MAX, &again, error));
    return fl_tokenizer_open(&m->tokenizer, &again, options, error);
}

/* The text of tokenizer.json: of the file, or what was made of others. */
static int read_tokenizer(fl_model *model, fl_buf *out, fletch_error *error) {
    if (model->tokenizer_made) {
        *out                  = model->tokenizer_text;
        model->tokenizer_text = (fl_buf){0};
        return FLETCH_OK;
    }
    int status = fl_file_read(model->tokenizer_path, FL_TOKENIZER_BYTES_MAX, out, error);
    if (status != FLETCH_EINVAL)
        return status;
    if (error) /* not a file, or too large for one: damage, not a wrong call */
        error->code = FLETCH_EMODEL;
    return FLETCH_EMODEL;
}

static int open_tokenizer(fletch_model *m, fletch_error *error) {
    const fl_model *model  = m->model;
    fl_buf          file   = {0};
    int             status = read_tokenizer(m->model, &file, error);
    if (status < 0) {
        fl_buf_free(&file);
        return fl_model_add_hint(status, error);
    }
    char  folder[FL_FOLDER_MAX];
    char *slash = strrchr(model->tokenizer_path, '/');
    int   size =
        snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - model->tokenizer_path) : 1,
                 slash ? model->tokenizer_path : ".");
    if (size < 0 || (size_t)size >= sizeof folder) {
        fl_buf_free(&file);
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE, "%s: the path is too long",
                       model->tokenizer_path);
    }
    /* A static model's is tokenizer.json alone, and so is what a GGUF says. */
    const bool           alone   = model->is_static || model->gguf;
    fl_tokenizer_options options = {.source       = model->tokenizer_path,
                                    .folder       = alone ? NULL : folder,
                                    .config_read  = !alone,
                                    .config       = model->tokenizer_config,
                                    .family       = alone ? NULL : model->model_type,
                                    .config_class = model->config_class,
                                    .class_name   = model->tokenizer_class,
                                    .class_forced = model->tokenizer_forced,
                                    .as_saved     = model->tokenizer_as_saved,
                                    .llama_saved  = model->llama_as_saved,
                                    .lowercase    = model->lowercase,
                                    .pieces       = model->tokenizer_pieces,
                                    .ends         = model->tokenizer_ends,
                                    .log          = fl_config_log(m->config)};
    if (model->tokenizer_is_vocab)
        status = fl_tokenizer_open_vocab(&m->tokenizer, file.data, file.size, model->bert_lowercase,
                                         model->bert_strip_accents, model->bert_chinese_chars,
                                         &options, error);
    else
        status = fl_tokenizer_open(&m->tokenizer, &file, &options, error);
    fl_buf_free(&file);
    if (status == FLETCH_OK && !model->tokenizer_is_vocab)
        status = mark_tokens(m, &options, error);
    fl_model_settle(m->model);
    return fl_model_add_hint(status, error);
}

/* A token id that the word table has no row for would be read outside it: refuse the pair of files. */
static int check_vocabulary(const fletch_model *m, fletch_error *error) {
    uint32_t ids  = fl_tokenizer_vocab_size(m->tokenizer);
    uint32_t rows = m->model->encoder.desc.vocab;
    if (ids <= rows)
        return FLETCH_OK;
    return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                   "%s gives token ids up to %u, but the model has only %u rows of word "
                   "embeddings; the files do not belong together",
                   m->model->tokenizer_path, ids - 1, rows);
}

static int resolve_prompt(fletch_model *m, fletch_error *error) {
    const char *text = fl_config_text(m->config, FL_KEY_MODEL_PROMPT);
    const char *name = fl_config_text(m->config, FL_KEY_MODEL_PROMPT_NAME);
    m->prompt        = text;
    if (fl_config_is_set(m->config, FL_KEY_MODEL_PROMPT)) /* also "": no prompt */
        return FLETCH_OK;
    if (name[0])
        return fl_prompt_named(m, name, &m->prompt, error);
    if (m->model->default_prompt_name)
        return fl_prompt_named(m, m->model->default_prompt_name, &m->prompt, error);
    return FLETCH_OK;
}

/* What a text loses that is too long. */
static void resolve_truncation(fletch_model *m) {
    /* What the user says counts; else what the folder says, which is "right" nearly always. */
    const char *side = m->model->cut_side ? m->model->cut_side
                       : fl_tokenizer_truncation(m->tokenizer) == FL_TRUNCATE_LEFT ? "left"
                                                                                   : "right";
    const char *how  = fl_config_is_set(m->config, FL_KEY_MODEL_TRUNCATE)
                           ? fl_config_text(m->config, FL_KEY_MODEL_TRUNCATE)
                           : side;
    m->truncate      = strcmp(how, "left") == 0    ? FLETCH_TRUNCATE_LEFT
                       : strcmp(how, "error") == 0 ? FLETCH_TRUNCATE_ERROR
                                                   : FLETCH_TRUNCATE_RIGHT;
}

static int resolve_lengths(fletch_model *m, bool tokenizer_only, fletch_error *error) {
    m->length_limit = m->model->encoder.desc.positions;
    if (tokenizer_only &&
        m->length_limit == 0) /* known with the weights, or of an unknown family */
        m->length_limit = UINT32_MAX;
    m->max_length = m->model->max_length;
    int64_t asked = fl_config_int(m->config, FL_KEY_MODEL_MAX_LENGTH);
    if (asked > m->length_limit && !tokenizer_only)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "model.max_length is %lld (%s), but the model has %u positions; set at most "
                       "that",
                       (long long)asked, fl_config_origin(m->config, FL_KEY_MODEL_MAX_LENGTH),
                       m->length_limit);
    if (asked > 0)
        m->max_length = asked < m->length_limit ? (uint32_t)asked : m->length_limit;
    return FLETCH_OK;
}

static int resolve_output(fletch_model *m, fletch_error *error) {
    const fl_model      *model = m->model;
    int64_t              asked = fl_config_int(m->config, FL_KEY_MODEL_DIMENSIONS);
    const fl_head_words *head  = fl_result_head(model);
    if (asked > 0 && head->gives)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "model.dimensions is %lld (%s), but the model gives %s; remove it",
                       (long long)asked, fl_config_origin(m->config, FL_KEY_MODEL_DIMENSIONS),
                       head->gives);
    if (asked > model->dimensions)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "model.dimensions is %lld (%s), but the model has %u; set at most that",
                       (long long)asked, fl_config_origin(m->config, FL_KEY_MODEL_DIMENSIONS),
                       model->dimensions);
    if (model->encoder.desc.word_rows > 0) /* an .onnx file alone tells none */
        fl_encoder_switches(&model->encoder.desc, m->switches, sizeof m->switches);
    for (uint32_t i = 0, used = 0; i < model->encoder.pooling_count && used < sizeof m->pooling;
         i++)
        used += (uint32_t)snprintf(
            m->pooling + used, sizeof m->pooling - used, "%s%s", i ? "," : "",
            head->pooling ? head->pooling : fl_pooling_name(model->encoder.pooling[i]));
    return fl_results_open(&m->results, model, m->tokenizer, m->config, error);
}

/* Repositories of which sentence-transformers knows that the instruction is not pooled; their files do not say it. */
static bool leaves_prompt_out(const char *id) {
    static const char *const names[] = {"hkunlp/instructor-base", "hkunlp/instructor-large",
                                        "hkunlp/instructor-xl"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(id, names[i]) == 0)
            return true;
    return false;
}

static int open_folder(fletch_model *m, const char *name, fl_depth depth, fletch_error *error) {
    char           path[4096];
    bool           file = fl_onnx_path(name, path, sizeof path);
    fl_hub_options hub  = {
         .cache_dir     = fl_config_text(m->config, FL_KEY_MODEL_CACHE_DIR),
         .revision      = fl_config_text(m->config, FL_KEY_MODEL_REVISION),
         .offline       = fl_config_bool(m->config, FL_KEY_MODEL_OFFLINE),
         .auto_download = fl_config_bool(m->config, FL_KEY_MODEL_AUTO_DOWNLOAD),
         .log           = fl_config_log(m->config),
    };
    if (!file)
        FL_TRY(
            fl_hub_resolve(name, &hub, NULL, NULL, path, sizeof path, m->id, m->revision, error));
    const char      *pooling = fl_config_text(m->config, FL_KEY_MODEL_POOLING);
    fl_model_options options = {.without_weights = depth == FL_DEPTH_TOKENIZER,
                                .pooling         = strcmp(pooling, "auto") == 0 ? "" : pooling,
                                .task            = fl_config_text(m->config, FL_KEY_MODEL_TASK),
                                .hub             = &hub,
                                .onnx_file       = file ? name : NULL,
                                .log             = fl_config_log(m->config)};
    FL_TRY(fl_model_open(&m->model, path, &options, error));
    m->model->include_prompt = m->model->include_prompt && !leaves_prompt_out(m->id);
    return FLETCH_OK;
}

/* ---- Memory, pools, queue -------------------------------------------------------------------- */

static int open_memory(fletch_model *m, fletch_error *error) {
    const fl_config  *c       = m->config;
    fl_memory_options options = {
        .limit     = (uint64_t)fl_config_int(c, FL_KEY_MEMORY_LIMIT),
        .detect    = fl_config_bool(c, FL_KEY_POOL_PRESSURE_DETECTION),
        .threshold = fl_config_float(c, FL_KEY_POOL_PRESSURE_THRESHOLD),
        .root      = "",
        .log       = fl_config_log(c),
    };
    m->queue_limit = (uint64_t)fl_config_int(c, FL_KEY_SERVER_MAX_QUEUE_TOKENS);
    FL_TRY(fl_memory_open(&m->scheduler.memory, &options, error));
    m->scheduler.predict = fl_config_bool(c, FL_KEY_BATCH_MEMORY_PREDICTION) &&
                           fl_memory_limit(m->scheduler.memory) > 0;
    return FLETCH_OK;
}

/* Rows of a batch, as many as there usually are. */
enum { ROWS_TEXTS = 256 };

/* A few blocks of each size that tokenize.c asks for. */
static int reserve_blocks(fletch_model *m, fletch_error *error) {
    uint32_t count = (uint32_t)fl_config_int(m->config, FL_KEY_IO_INPUT_BUFFERS);
    for (size_t need = 1, size; need <= FL_TOKEN_BLOCK_LARGE; need = size + 1) {
        size = fl_token_block_bytes(need);
        FL_TRY(fl_bufpool_reserve(m->inputs, size, count, error));
    }
    return FLETCH_OK;
}

FL_UNCHECKED static int open_pools(fletch_model *m, fletch_error *error) {
    const fl_config   *c       = m->config;
    fl_bufpool_options options = {
        .enable      = fl_config_bool(c, FL_KEY_POOL_ENABLE),
        .max_buffers = (uint32_t)fl_config_int(c, FL_KEY_POOL_MAX_BUFFERS),
        .max_bytes   = (uint64_t)fl_config_int(c, FL_KEY_POOL_MAX_BYTES),
        .stats       = &m->scheduler.stats,
        .log         = fl_config_log(c),
    };
    size_t rows = ROWS_TEXTS * sizeof(float) * fl_encoder_width(&m->model->encoder);
    /* Ids are copied once more on their way to a device; rows come down where they are wanted. */
    FL_TRY(fl_bufpool_open(&m->inputs, &options, error));
    options.alloc =
        m->scheduler.replicas->replica[0].ops->host_alloc; /* pinned, where a device wants it */
    options.release = m->scheduler.replicas->replica[0].ops->host_free;
    FL_TRY(fl_bufpool_open(&m->scheduler.rows, &options, error));
    if (!options.enable || !fl_config_bool(c, FL_KEY_IO_PREALLOCATED))
        return FLETCH_OK;
    FL_TRY(reserve_blocks(m, error));
    return fl_bufpool_reserve(m->scheduler.rows, rows,
                              (uint32_t)fl_config_int(c, FL_KEY_IO_OUTPUT_BUFFERS), error);
}

/* Whether a budget of batches is fletch's to choose. */
static bool chooses(const fletch_model *m, fl_key budget) {
    return fl_config_bool(m->config, FL_KEY_IO_BATCH_OPTIMIZATION) &&
           !fl_config_is_set(m->config, budget);
}

/* The token budget of a batch: what the user set, or as many as the engine gains by; never more than
 * every open replica takes (replica.c sees to those that open later), and under a memory limit no more
 * than are predicted to fit. */
FL_LOCKED static uint32_t budget_of(const fletch_model *m, const fl_replica *replica) {
    const fl_engine_info *info = &replica->info;
    uint32_t              most = m->scheduler.replicas->budget;
    for (uint32_t r = 0; r < m->scheduler.replicas->count; r++) { /* devices may differ in memory */
        const fl_replica *one   = &m->scheduler.replicas->replica[r];
        uint32_t          takes = fl_replica_is_open(one) ? one->info.most_tokens : 0;
        most                    = takes > 0 && takes < most ? takes : most;
    }
    uint32_t least = m->length_limit < most ? m->length_limit : most;
    if (!chooses(m, FL_KEY_BATCH_MAX_TOKENS))
        return most;
    if (info->best_tokens > 0 && info->best_tokens < most)
        most = info->best_tokens > least ? info->best_tokens : least;
    if (!m->scheduler.predict)
        return most;
    return fl_memory_batch_tokens(
        replica->ops, replica->engine, fl_memory_limit(m->scheduler.memory),
        fl_memory_used(m->scheduler.memory), m->length_limit, least, most);
}

/* Texts of a batch that several callers share, likewise. A device takes what the token budget allows,
 * however short the texts: it is through with 64 of them before the next batch could be there. */
static uint32_t texts_of(const fletch_model *m, const fl_replica *replica) {
    uint32_t most = (uint32_t)fl_config_int(m->config, FL_KEY_BATCH_MAX_TEXTS);
    most          = most < FL_BATCH_TEXTS_MAX ? most : FL_BATCH_TEXTS_MAX;
    if (!chooses(m, FL_KEY_BATCH_MAX_TEXTS))
        return most;
    if (strcmp(replica->provider, "cpu") != 0)
        return FL_BATCH_TEXTS_MAX;
    if (!m->scheduler.predict)
        return most;
    uint32_t fit =
        fl_memory_batch_texts(replica->ops, replica->engine, fl_memory_limit(m->scheduler.memory),
                              fl_memory_used(m->scheduler.memory), m->max_length);
    return fit < most ? fit : most;
}

/* A call of more texts goes to the bulk lane, whatever a batch holds. */
static uint32_t short_call_of(const fletch_model *m, uint32_t batch_texts) {
    uint32_t texts = (uint32_t)fl_config_int(m->config, FL_KEY_BATCH_MAX_TEXTS);
    return texts < batch_texts ? texts : batch_texts;
}

/* Smaller budgets only cost speed: the least that a target latency may lead to. */
enum { LEAST_SHARE = 64 };

/* The rules of the queue follow the replicas that are open. */
FL_LOCKED static void set_rules(fletch_model *m) {
    assert(fl_replicas_first(m->scheduler.replicas));
    const fl_config  *c       = m->config;
    const fl_replica *replica = fl_replicas_first(m->scheduler.replicas);
    uint32_t          texts   = texts_of(m, replica);
    uint32_t          budget  = budget_of(m, replica);
    uint64_t          target  = (uint64_t)fl_config_int(c, FL_KEY_BATCH_TARGET_LATENCY_MS);
    fl_queue_rules   *rules   = &m->scheduler.queue.rules;
    rules->min_texts          = (uint32_t)fl_config_int(c, FL_KEY_BATCH_MIN_TEXTS);
    rules->max_texts          = texts;
    m->short_call             = short_call_of(m, texts);
    rules->bulk_texts  = fl_config_is_set(c, FL_KEY_BATCH_MAX_TEXTS) ? texts : FL_BATCH_TEXTS_MAX;
    rules->max_tokens  = budget;
    rules->max_wait_ns = (uint64_t)fl_config_int(c, FL_KEY_BATCH_MAX_WAIT_MS) * 1000000U;
    rules->dynamic     = fl_config_bool(c, FL_KEY_BATCH_DYNAMIC);
    rules->throughput  = fl_config_bool(c, FL_KEY_BATCH_THROUGHPUT);
    fl_adapt_init(&m->scheduler.adapt, target * 1000000U, budget / LEAST_SHARE, budget);
    m->window_tokens = (uint64_t)budget * (m->scheduler.replicas->workers + 1);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static int open_trace(fletch_model *m, fletch_error *error) {
    const char *path   = fl_config_text(m->config, FL_KEY_PROFILE_FILE);
    const bool  on     = fl_config_bool(m->config, FL_KEY_PROFILE_START);
    int         status = path[0] ? fl_trace_open(&m->scheduler.trace, path, on, error) : FLETCH_OK;
    if (status != FLETCH_ENOTFOUND)
        return status;
    if (error != NULL) /* the folder of profile.file is missing: no model is */
        error->code = FLETCH_ECONFIG;
    return FLETCH_ECONFIG;
}

/* A key that was set, and that the engine in use does not read: its user should not wait for an effect. */
FL_UNCHECKED static void warn_ignored(const fletch_model *m) {
    static const struct {
        fl_key      key;
        const char *engine;
    } keys[]           = {{FL_KEY_IO_BINDING, "onnxruntime"},
                          {FL_KEY_CPU_INTER_OP_THREADS, "onnxruntime"},
                          {FL_KEY_CPU_PARALLEL_EXECUTION, "onnxruntime"},
                          {FL_KEY_ONNXRUNTIME_GRAPH_OPTIMIZATION_LEVEL, "onnxruntime"},
                          {FL_KEY_ONNXRUNTIME_MEMORY_PATTERN, "onnxruntime"},
                          {FL_KEY_ONNXRUNTIME_CPU_ARENA, "onnxruntime"},
                          {FL_KEY_ONNXRUNTIME_ARENA_STRATEGY, "onnxruntime"},
                          {FL_KEY_ONNXRUNTIME_MODEL, "onnxruntime"},
                          {FL_KEY_CPU_ISA, "cpu"}};
    const char *engine = fl_replicas_first(m->scheduler.replicas)->ops->name;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *origin = fl_config_origin(m->config, keys[i].key);
        bool        chosen = fl_config_is_set(m->config, keys[i].key) &&
                      strncmp(origin, "preset ", strlen("preset ")) != 0;
        if (chosen && strcmp(engine, keys[i].engine) != 0)
            fl_log_write(fl_config_log(m->config), FL_LOG_WARNING,
                         "%s (%s) has no effect: it is for the %s engine, and %s runs the model",
                         fletch_option_at(keys[i].key)->key, origin, keys[i].engine, engine);
    }
}

static int open_cache(fletch_model *m, fletch_error *error) {
    uint64_t bytes = (uint64_t)fl_config_int(m->config, FL_KEY_CACHE_MAX_BYTES);
    m->seed        = fl_hash_seed(m);
    return bytes == 0
               ? FLETCH_OK
               : fl_cache_open(&m->cache, bytes, m->scheduler.predict ? m->scheduler.memory : NULL,
                               &m->scheduler.stats, error);
}

FL_UNCHECKED static int open_engines(fletch_model *m, fletch_error *error) {
    FL_TRY(open_memory(m, error));
    FL_TRY(open_trace(m, error));
    FL_TRY(fl_replicas_open(&m->scheduler.replicas, &m->scheduler, m->config, false, error));
    FL_TRY(open_pools(m, error));
    FL_TRY(open_cache(m, error));
    m->has_engine = true;
    set_rules(m);
    warn_ignored(m);
    FL_TRY(fl_replicas_start(m->scheduler.replicas, error));
    return fl_maintenance_start(m, error);
}

/* What the scheduler is to know of the model: what engines are opened from, and how wide rows are. */
static void describe_engines(fletch_model *m) {
    fl_scheduler *s = &m->scheduler;
    s->config       = m->config;
    s->encoder      = &m->model->encoder;
    s->folder       = m->model->folder;
    s->onnx_file    = m->model->onnx_file;
    s->usual_length = m->max_length;
    s->max_length   = m->length_limit;
    s->pooled_width = fl_encoder_width(&m->model->encoder);
    s->row_width    = m->results.row_width;
    s->zero_copy    = m->results.zero_copy;
    s->terms        = m->results.terms;
    s->batch_tokens = (uint32_t)fl_config_int(m->config, FL_KEY_BATCH_MAX_TOKENS);
    if (s->batch_tokens < m->length_limit) /* a text longer than the budget goes alone */
        s->batch_tokens = m->length_limit;
}

static int open_parts(fletch_model *m, const char *name, fl_depth depth, fletch_error *error) {
    FL_TRY(open_folder(m, name, depth, error));
    FL_TRY(open_tokenizer(m, error));
    resolve_truncation(m);
    FL_TRY(resolve_lengths(m, depth == FL_DEPTH_TOKENIZER, error));
    if (depth == FL_DEPTH_TOKENIZER)
        return FLETCH_OK;
    FL_TRY(check_vocabulary(m, error));
    if (depth == FL_DEPTH_WEIGHTS)
        return FLETCH_OK;
    FL_TRY(resolve_prompt(m, error));
    FL_TRY(resolve_output(m, error));
    if (m->model->weigher_refused)
        fl_log_write(fl_config_log(m->config), FL_LOG_WARNING, "no sparse vectors: %s",
                     m->model->weigher_refused);
    if (m->model->colbert_refused)
        fl_log_write(fl_config_log(m->config), FL_LOG_WARNING, "no late-interaction vectors: %s",
                     m->model->colbert_refused);
    describe_engines(m);
    return open_engines(m, error);
}

int fl_session_open(fletch_model **out, const char *name, const fl_config *config, fl_depth depth,
                    fletch_error *error) {
    *out            = NULL;
    fletch_model *m = fl_alloc_zero(1, sizeof *m);
    if (!m)
        return fl_fail_nomem(error, sizeof *m, "a model");
    fl_scheduler_init(&m->scheduler, &fl_request_blocks, m);
    fl_cond_init(&m->maintenance_wake);
    m->prompt = "";
    m->config = config ? fl_config_clone(config) : fletch_config_new();
    if (!m->config) {
        fl_session_close(m);
        return fl_fail_nomem(error, sizeof *m, "a configuration");
    }
    int status = fl_config_check_together(m->config, error);
    if (status == FLETCH_OK)
        status = open_parts(m, name ? name : fletch_config_model(m->config), depth, error);
    if (status < 0) {
        fl_session_close(m);
        return status;
    }
    *out = m;
    return FLETCH_OK;
}

/* ---- Closing --------------------------------------------------------------------------------- */

/* What waits ends; what runs finishes; then nobody is inside. */
static void drain(fletch_model *m) {
    fl_request  *over = NULL;
    fletch_error why;
    fl_fail(&why, FLETCH_ECANCELLED, FLETCH_NOWHERE, "the model was closed");
    fl_model_lock(m);
    m->closing = true;
    fl_requests_end_all(m, &why, &over);
    fl_model_unlock(m);
    fl_requests_deliver(m, over);
    fl_model_lock(m);
    while (m->live_count > 0)
        fl_cond_wait_until(&m->scheduler.left, &m->scheduler.lock, UINT64_MAX);
    fl_model_unlock(m);
}

static void *close_elsewhere(void *arg) {
    fl_session_close(arg);
    return NULL;
}

/* Whether this thread is inside a callback of the model; then it would wait for
 * itself. */
static bool inside_callback(fletch_model *m) {
    bool inside = false;
    fl_model_lock(m);
    for (const fl_delivery *d = m->deliveries; d; d = d->next)
        inside = inside || pthread_equal(d->thread, pthread_self());
    fl_model_unlock(m);
    return inside;
}

FL_UNCHECKED void fl_session_close(fletch_model *m) {
    if (!m)
        return;
    pthread_t thread;
    if (inside_callback(m)) {
        if (fl_thread_start(&thread, "fletch-close", close_elsewhere, m, NULL) == FLETCH_OK)
            pthread_detach(thread);
        return; /* without a thread it stays open: a leak, not a deadlock */
    }
    drain(m);
    fl_maintenance_stop(m);
    fl_replicas_close(m->scheduler.replicas);
    fletch_error error = {0};
    if (fl_trace_close(m->scheduler.trace, &error) < 0)
        fl_log_write(fl_config_log(m->config), FL_LOG_ERROR, "%s", error.message);
    fl_requests_free(m);
    fl_tokenize_tasks_free(m);
    fl_vector_parts_free(m);
    fl_free(m->tickets.entry);
    fl_bufpool_close(m->inputs);
    fl_cache_close(m->cache);
    fl_results_close(&m->results);
    fl_tokenizer_close(m->tokenizer);
    fl_model_close(m->model);
    fletch_config_free(m->config);
    pthread_cond_destroy(&m->maintenance_wake);
    fl_scheduler_destroy(&m->scheduler);
    fl_free(m);
}

/* ---- Reopening and warming ------------------------------------------------------------------- */

/* The model's configuration with the keys that choose and set engines taken from `from`. */
static fl_config *engine_config(const fletch_model *m, const fl_config *from, fletch_error *error) {
    static const char *const rooms[] = {"provider.",    "cpu.",      "cuda.",
                                        "onnxruntime.", "tensorrt.", "coreml.",
                                        "openvino.",    "webgpu.",   "io.binding"};
    fl_config               *to      = fl_config_clone(m->config);
    for (size_t i = 0; to && from && fletch_option_at(i); i++) {
        const char *key = fletch_option_at(i)->key;
        for (size_t r = 0; r < sizeof rooms / sizeof *rooms; r++)
            if (strncmp(key, rooms[r], strlen(rooms[r])) == 0 &&
                fletch_config_set(to, key, fletch_config_get(from, key, NULL), error) < 0) {
                fletch_config_free(to);
                return NULL;
            }
    }
    if (!to)
        fl_fail_nomem(error, sizeof(void *), "a configuration");
    if (to && fl_config_check_together(to, error) < 0) {
        fletch_config_free(to);
        return NULL;
    }
    return to;
}

static int begin_reopening(fletch_model *m, fletch_error *error) {
    int status = FLETCH_OK;
    fl_model_lock(m);
    if (m->closing || m->reopening)
        status = fl_fail(error, FLETCH_EBUSY, FLETCH_NOWHERE, "the model is being %s",
                         m->closing ? "closed" : "reopened; wait until that is done");
    else
        m->reopening = true, m->live_count++;
    fl_model_unlock(m);
    return status;
}

static void end_reopening(fletch_model *m) {
    fl_model_lock(m);
    assert(m->reopening);
    m->reopening = false;
    fl_model_left(m); /* closing waits for us too */
    pthread_cond_broadcast(&m->scheduler.left);
    fl_model_unlock(m);
}

static int replace(fletch_model *m, fl_config *config, fletch_error *error) {
    assert(config);
    fl_replicas *set;
    int          status = fl_replicas_open(&set, &m->scheduler, config, true, error);
    if (status < 0) {
        fletch_config_free(config);
        return status;
    }
    status = fl_replicas_start(set, error);
    if (status < 0) {
        fl_replicas_close(set);
        return status;
    }
    fl_model_lock(m);
    fl_replicas *old      = m->scheduler.replicas;
    m->scheduler.replicas = set;
    m->scheduler.epoch++;
    set_rules(m);
    fl_scheduler_dispatch(&m->scheduler);
    fl_model_unlock(m);
    fl_replicas_close(old);
    if (m->cache) /* another provider's rows differ in their last bits */
        fl_cache_empty(m->cache);
    return FLETCH_OK;
}

int fl_session_reopen(fletch_model *m, const fl_config *from, fletch_error *error) {
    FL_TRY(begin_reopening(m, error));
    fl_config *config = engine_config(m, from, error);
    const int  status = config ? replace(m, config, error) : FLETCH_ECONFIG;
    end_reopening(m);
    return status;
}

int fl_session_warm(fletch_model *m, fletch_error *error) {
    const char          *text    = "The quick brown fox jumps over the lazy dog.";
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    fletch_request       request = FLETCH_REQUEST_INIT;
    fletch_lists        *lists   = NULL;
    options.no_cache             = 1;
    float *row                   = fl_alloc_array(m->results.dimensions, sizeof *row);
    int    status                = FLETCH_OK;
    if (!row)
        return fl_fail_nomem(error, m->results.dimensions * sizeof *row, "a row");
    request.texts   = fletch_texts_from_strings(&text, 1);
    request.options = &options;
    request.out     = fletch_matrix_f32(row, 1, m->results.dimensions);
    options.prompt_name =
        m->model->lookup.there ? "document" : NULL; /* the side that is computed */
    request.kind = fl_result_native(m->model);
    if (m->model->chat_count > 0) /* it scores pairs alone */
        request.second = &request.texts;
    fl_model_lock(m);
    uint32_t workers = m->scheduler.replicas->workers;
    fl_model_unlock(m);
    for (uint32_t s = 0; s < workers && status == FLETCH_OK; s++) {
        status = fl_requests_wait(m, &request, &lists, error);
        fl_lists_free((fl_lists *)(void *)lists);
        lists = NULL;
    }
    fl_free(row);
    return status;
}
