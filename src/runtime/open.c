/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - a name and a configuration become an open model, part by part; closing goes backwards.
 *
 * Role    fletch_open and fletch_open_tokenizer.
 * Method  name -> folder (hub cache, download when allowed) -> fl_model (files checked, weights
 *         mapped) -> tokenizer -> what the configuration overrides -> first provider that opens.
 *         A part that fails undoes the parts before it: fl_runtime_close takes any half-built
 *         model apart.
 * Memory  Owns everything through struct fletch_model; the configuration is cloned.
 * Threads Opening and closing belong to one thread.
 * Proof   tests/unit/test_fletch.c; tests/cli for the messages. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/hub.h"
#include "runtime/runtime.h"

/* Larger than any tokenizer in use (a 256k-piece vocabulary is 33 MB of JSON). */
static const size_t tokenizer_bytes_max = (size_t)256 << 20;

static int open_tokenizer(fletch_model *m, fletch_error *error) {
    const fl_model *model  = m->model;
    fl_buf          file   = {0};
    int             status = fl_file_read(model->tokenizer_path, tokenizer_bytes_max, &file, error);
    if (status == FLETCH_EINVAL) { /* not a file, or too large for one: damage, not a wrong call */
        status = FLETCH_EMODEL;
        if (error)
            error->code = status;
    }
    if (status < 0)
        return fl_model_add_hint(status, error);
    fl_tokenizer_options options = {.source    = model->tokenizer_path,
                                    .lowercase = model->lowercase,
                                    .log       = fl_config_log(m->config)};
    if (model->tokenizer_is_vocab)
        status = fl_tokenizer_open_vocab(&m->tokenizer, file.data, file.size, model->bert_lowercase,
                                         model->bert_strip_accents, model->bert_chinese_chars,
                                         &options, error);
    else
        status = fl_tokenizer_open(&m->tokenizer, file.data, file.size, &options, error);
    fl_buf_free(&file);
    return fl_model_add_hint(status, error);
}

/* A token id the word table has no row for would be read outside it: refuse the pair of files. */
static int check_vocabulary(const fletch_model *m, fletch_error *error) {
    uint32_t ids  = fl_tokenizer_vocab_size(m->tokenizer);
    uint32_t rows = m->model->encoder.desc.vocab;
    if (ids <= rows)
        return FLETCH_OK;
    return fl_fail(
        error, FLETCH_EMODEL, FLETCH_NOWHERE,
        "%s gives token ids up to %u, but the model has only %u rows of word embeddings; "
        "the files do not belong together",
        m->model->tokenizer_path, ids - 1, rows);
}

int fl_runtime_prompt(const fletch_model *model, const char *name, const char **text,
                      fletch_error *error) {
    const fl_model *m = model->model;
    char            known[256];
    size_t          used = 0;
    known[0]             = '\0';
    for (uint32_t i = 0; i < m->prompt_count; i++) {
        if (strcmp(m->prompts[i].name, name) == 0) {
            *text = m->prompts[i].text;
            return FLETCH_OK;
        }
        if (used + 1 < sizeof known) {
            int n = snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                             m->prompts[i].name);
            used += n > 0 ? (size_t)n : 0;
        }
    }
    if (strcmp(name, "query") == 0 || strcmp(name, "document") == 0) {
        *text = ""; /* sentence-transformers 5 and later hold both in every model, empty */
        return FLETCH_OK;
    }
    return fl_fail(
        error, FLETCH_ECONFIG, FLETCH_NOWHERE, "the model has no prompt named \"%s\" (%s%s)", name,
        m->prompt_count ? "it has: " : "it has none; give the text with --prompt", known);
}

static int resolve_prompt(fletch_model *m, fletch_error *error) {
    const char *text = fl_config_text(m->config, FL_KEY_MODEL_PROMPT);
    const char *name = fl_config_text(m->config, FL_KEY_MODEL_PROMPT_NAME);
    m->prompt        = text;
    if (fl_config_is_set(m->config, FL_KEY_MODEL_PROMPT)) /* also "": no prompt */
        return FLETCH_OK;
    if (name[0])
        return fl_runtime_prompt(m, name, &m->prompt, error);
    if (m->model->default_prompt_name)
        return fl_runtime_prompt(m, m->model->default_prompt_name, &m->prompt, error);
    return FLETCH_OK;
}

static int resolve_lengths(fletch_model *m, fletch_error *error) {
    m->length_limit = m->model->encoder.desc.positions;
    m->max_length   = m->model->max_length;
    int64_t asked   = fl_config_int(m->config, FL_KEY_MODEL_MAX_LENGTH);
    if (asked > m->length_limit)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "model.max_length is %lld (%s), but the model has %u positions; set at most "
                       "that",
                       (long long)asked, fl_config_origin(m->config, FL_KEY_MODEL_MAX_LENGTH),
                       m->length_limit);
    if (asked > 0)
        m->max_length = (uint32_t)asked;
    const char *how = fl_config_text(m->config, FL_KEY_MODEL_TRUNCATE);
    m->truncate     = strcmp(how, "left") == 0    ? FLETCH_TRUNCATE_LEFT
                      : strcmp(how, "error") == 0 ? FLETCH_TRUNCATE_ERROR
                                                  : FLETCH_TRUNCATE_RIGHT;
    return FLETCH_OK;
}

static int resolve_output(fletch_model *m, fletch_error *error) {
    const fl_model *model = m->model;
    int64_t         asked = fl_config_int(m->config, FL_KEY_MODEL_DIMENSIONS);
    if (asked > model->dimensions)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "model.dimensions is %lld (%s), but the model has %u; set at most that",
                       (long long)asked, fl_config_origin(m->config, FL_KEY_MODEL_DIMENSIONS),
                       model->dimensions);
    m->dimensions = model->dimensions;
    if (asked > 0)
        m->dimensions = (uint32_t)asked;
    else if (model->truncate_dim > 0 && model->truncate_dim < model->dimensions)
        m->dimensions = model->truncate_dim;
    const char *normalize = fl_config_text(m->config, FL_KEY_MODEL_NORMALIZE);
    bool        wanted    = strcmp(normalize, "true") == 0;
    m->normalize          = strcmp(normalize, "auto") == 0 ? model->normalize : wanted;
    m->renormalize        = asked > 0 || wanted;
    m->row_width          = fl_encoder_width(&model->encoder);
    for (uint32_t i = 0; i < model->stage_count; i++)
        if (model->stages[i].out > m->row_width)
            m->row_width = model->stages[i].out;
    return FLETCH_OK;
}

static int open_folder(fletch_model *m, const char *name, bool tokenizer_only,
                       fletch_error *error) {
    char           path[4096];
    fl_hub_options hub = {
        .cache_dir     = fl_config_text(m->config, FL_KEY_MODEL_CACHE_DIR),
        .revision      = fl_config_text(m->config, FL_KEY_MODEL_REVISION),
        .offline       = fl_config_bool(m->config, FL_KEY_MODEL_OFFLINE),
        .auto_download = fl_config_bool(m->config, FL_KEY_MODEL_AUTO_DOWNLOAD),
        .log           = fl_config_log(m->config),
    };
    int status =
        fl_hub_resolve(name, &hub, NULL, NULL, path, sizeof path, m->id, m->revision, error);
    if (status < 0)
        return status;
    const char      *pooling = fl_config_text(m->config, FL_KEY_MODEL_POOLING);
    fl_model_options options = {.without_weights = tokenizer_only,
                                .pooling         = strcmp(pooling, "auto") == 0 ? "" : pooling,
                                .log             = fl_config_log(m->config)};
    return fl_model_open(&m->model, path, &options, error);
}

static int open_parts(fletch_model *m, const char *name, bool tokenizer_only, fletch_error *error) {
    int status = open_folder(m, name, tokenizer_only, error);
    if (status == FLETCH_OK)
        status = open_tokenizer(m, error);
    if (status < 0 || tokenizer_only)
        return status;
    status = check_vocabulary(m, error);
    if (status == FLETCH_OK)
        status = resolve_prompt(m, error);
    if (status == FLETCH_OK)
        status = resolve_lengths(m, error);
    if (status == FLETCH_OK)
        status = resolve_output(m, error);
    return status == FLETCH_OK ? fl_provider_open(m, error) : status;
}

int fl_runtime_open(fletch_model **out, const char *name, const fl_config *config,
                    bool tokenizer_only, fletch_error *error) {
    *out            = NULL;
    fletch_model *m = fl_alloc_zero(1, sizeof *m);
    if (!m)
        return fl_fail_nomem(error, sizeof *m, "a model");
    pthread_mutex_init(&m->engine_lock, NULL);
    pthread_mutex_init(&m->staging_lock, NULL);
    m->prompt = "";
    m->config = config ? fl_config_clone(config) : fletch_config_new();
    if (!m->config) {
        fl_runtime_close(m);
        return fl_fail_nomem(error, sizeof *m, "a configuration");
    }
    fl_config_warn_ineffective(m->config);
    m->batch_tokens = (uint32_t)fl_config_int(m->config, FL_KEY_BATCH_MAX_TOKENS);
    int status = open_parts(m, name ? name : fletch_config_model(m->config), tokenizer_only, error);
    if (status < 0) {
        fl_runtime_close(m);
        return status;
    }
    *out = m;
    return FLETCH_OK;
}

void fl_runtime_close(fletch_model *model) {
    if (!model)
        return;
    fl_staging_free_all(model);
    if (model->engine)
        model->ops->close(model->engine);
    fl_tokenizer_close(model->tokenizer);
    fl_model_close(model->model);
    fletch_config_free(model->config);
    pthread_mutex_destroy(&model->staging_lock);
    pthread_mutex_destroy(&model->engine_lock);
    fl_free(model);
}
