/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - open a Hugging Face folder: every file read, checked and turned into one fl_model.
 *
 * Role    session/open.c calls it with the folder that hub.h found. Order: modules.json says
 *         where the transformer is; its config.json gives the descriptor; then lengths, prompts
 *         and tokenizer files, the modules behind the encoder, and last the weights, which are
 *         only mapped.
 * In/Out  a folder -> fl_model (model.h says what is in it).
 * Method  Each file has its own reader in this room. Whatever is damaged is EMODEL, and the hint
 *         how to mend it is added here, in one place.
 * Memory  One fl_model owns all; fl_model_close takes any half-built one apart, which makes every
 *         failure the same single path.
 * Threads Opening and closing belong to one thread; in between the model is read-only.
 * Proof   tests/unit/test_model*.c; tests/golden/test_folders.py, test_vectors.py. */
#include "model/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "hub/model_files.h"
#include "model/model_private.h"

int fl_model_keep(fl_model *model, const char **out, const char *purpose, fletch_error *error,
                  const char *format, ...) {
    struct fl_model_private *own = model->own;
    va_list                  args;
    va_start(args, format);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = size < 0 ? NULL : fl_alloc((size_t)size + 1);
    *out       = NULL;
    if (text == NULL ||
        !fl_array_reserve(&own->kept, &own->kept_room, own->kept_count + 1, sizeof *own->kept)) {
        fl_free(text);
        return fl_fail_nomem(error, (size_t)size + 1, purpose);
    }
    va_start(args, format);
    vsnprintf(text, (size_t)size + 1, format, args);
    va_end(args);
    *out = own->kept[own->kept_count++] = text;
    return 0;
}

int fl_model_read_json(fl_json_reader *out, char *path, const char *folder, const char *name,
                       fletch_error *error) {
    *out      = (fl_json_reader){.source = path, .error = error};
    int there = fl_file_find(path, FL_MODEL_PATH_MAX, folder, name, error);
    if (there <= 0)
        return there;
    FL_TRY(fl_json_read(&out->object, path, FL_CONFIG_BYTES_MAX, error));
    if (fl_json_is(out->object, FL_JSON_OBJECT))
        return 0;
    fl_json_free(out->object);
    out->object = NULL;
    return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s is not a JSON object.", path);
}

int fl_model_read_tokenizer_config(fl_model *model, fl_json_reader *out, fletch_error *error) {
    struct fl_model_private *own = model->own;
    char                     path[FL_MODEL_PATH_MAX];
    if (own->tokenizer_config_path == NULL) {
        fl_json_free(model->tokenizer_config); /* of a reading that failed after it */
        model->tokenizer_config = NULL;
        FL_TRY(fl_model_read_json(out, path, own->transformer, "tokenizer_config.json", error));
        model->tokenizer_config = out->object;
        FL_TRY(fl_model_keep(model, &own->tokenizer_config_path, "a path", error, "%s", path));
    }
    *out = (fl_json_reader){
        .object = model->tokenizer_config, .source = own->tokenizer_config_path, .error = error};
    return 0;
}

/* Which row counts. An .onnx file alone must have taken it, and projected it, for the projection is not there. */
static int read_end(fl_model *model, const fl_family *family, fl_json_reader *config,
                    const fl_model_options *options) {
    fl_onnx_output out     = {.width = 0};
    model->filled          = family->filled;
    model->encoder.own_row = family->filled;
    model->ends            = !model->filled && !fl_onnx_only(model);
    if (model->ends)
        return fl_family_end(family, config, &model->end);
    if (!fl_onnx_only(model))
        return 0;
    if (options->without_weights)
        return 0;
    fl_onnx_output_read(model, &out);
    return out.pooled
               ? 0
               : fl_fail(config->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                         "%s: of %s an .onnx file is supported that returns %s [batch, "
                         "width]. Put the weights in safetensors beside it.",
                         model->folder, family->name,
                         family->filled ? "pooler_output" : "no other vectors than text_embeds");
}

/* config.json -> descriptor. Without weights it may be missing or of an architecture that is not
 * known: a tokenizer needs neither, so `family` stays NULL then. */
static int read_config(fl_model *model, const fl_family **family, const fl_model_options *options,
                       fletch_error *error) {
    char           path[FL_MODEL_PATH_MAX];
    fl_json_reader reader;
    int            status = 0;
    FL_TRY(fl_model_read_json(&reader, path, model->own->base, "config.json", error));
    if (reader.object == NULL && options->without_weights)
        return 0;
    if (reader.object == NULL && fl_onnx_only(model))
        return fl_onnx_sizes_guess(model, error);
    if (reader.object == NULL)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s is missing: is this a Hugging Face model folder?", path);
    const char *type = fl_json_text(fl_json_get(reader.object, "model_type"));
    const char *kind = fl_json_text(fl_json_get(reader.object, "tokenizer_class"));
    if (type != NULL)
        status = fl_model_keep(model, &model->model_type, "a name", error, "%s", type);
    if (status == 0 && kind != NULL)
        status = fl_model_keep(model, &model->config_class, "a name", error, "%s", kind);
    if (status == 0)
        status = fl_packed_gather(model, &reader);
    if (status == 0)
        status = fl_family_describe(family, &model->encoder.desc, &reader, model->own->weights);
    if (status == 0)
        status = fl_task_read(model, *family, &reader, options);
    if (status == FLETCH_EUNSUPPORTED && options->without_weights) {
        *family = NULL;
        status  = 0;
        fl_free(model->encoder.desc.layer);
        memset(&model->encoder.desc, 0, sizeof model->encoder.desc);
        fl_error_clear(error);
    } else if (status == FLETCH_EUNSUPPORTED && fl_onnx_only(model)) {
        *family = NULL; /* the file is the network, whatever its kind */
        fl_error_clear(error);
        reader.status = 0;
        status        = fl_onnx_sizes_read(&model->encoder.desc, &reader);
    }
    if (status == 0 && *family != NULL && ((*family)->end_key != NULL || (*family)->filled))
        status = read_end(model, *family, &reader, options);
    if (status == 0 && *family != NULL) {
        model->own->own_pooling = (*family)->own_pooling;
        model->tokenizer_ends =
            (*family)->ends_key != NULL && fl_json_bool(&reader, (*family)->ends_key, true);
        status = reader.status;
    }
    if (model->base !=
        NULL) /* peft's: only an engine that reads weights through fl_tensor_to_f32 adds them */
        model->encoder.desc.adapters = true;
    fl_json_free(reader.object);
    return status;
}

static int read_folder(fl_model *model, const fl_model_options *options, fl_modules *modules,
                       fletch_error *error) {
    const fl_family *family  = NULL;
    fletch_error     damage  = {0};
    int              opened  = 0;
    const bool       weighed = !options->without_weights;
    FL_TRY(fl_modules_open(modules, model, options, error));
    FL_TRY(fl_peft_open(model, options, error));
    FL_TRY(fl_scores_find(model, modules, error));
    FL_TRY(fl_late_find(model, modules, error));
    if (weighed) /* what config.json lacks is told first */
        opened = model->own->gated
                     ? fl_static_open(model, &damage)
                     : fl_safetensors_open_folder(&model->own->weights, model->own->base, &damage);
    if (model->is_static && opened == 0 && weighed)
        FL_TRY(fl_static_read(model, error));
    if (!model->is_static)
        FL_TRY(read_config(model, &family, options, error));
    FL_TRY(fl_modules_check(modules, model, family, error));
    FL_TRY(fl_task_check(model, options, error));
    FL_TRY(fl_tokenizer_files_read(model, family, error));
    if (family != NULL) {
        model->tokenizer_class    = family->tokenizer_class;
        model->tokenizer_forced   = family->tokenizer_forced;
        model->tokenizer_as_saved = family->tokenizer_as_saved;
        model->llama_as_saved     = family->llama_as_saved;
        if (family->projection != NULL && model->own->weights != NULL)
            FL_TRY(fl_projection_find(model, family, error));
    }
    FL_TRY(fl_lengths_read(model, model->encoder.desc.positions, error));
    FL_TRY(fl_prompts_read(model, error));
    if (!weighed)
        return 0;
    fl_model_options modular = *options; /* token vectors stand beside what the modules make */
    if (options->pooling != NULL && strcmp(options->pooling, FL_POOLING_COLBERT) == 0)
        modular.pooling = "";
    FL_TRY(fl_modules_read(modules, model, &modular, error));
    FL_TRY(fl_router_check(model, error));
    if (opened != 0 && !fl_onnx_only(model)) {
        if (error != NULL)
            *error = damage;
        return opened;
    }
    if (fl_onnx_only(model) && fl_head_rules_of(model)->weighed)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: a reranker, classifier or late-interaction model that is an .onnx file "
                       "alone is not supported; its safetensors weights are needed.",
                       model->folder);
    if (fl_onnx_only(model)) {
        model->weights_dtype = "in the .onnx file"; /* encoder.layer stays NULL */
        fl_weight_files_read(model);
        return fl_token_heads_read(model, options->pooling, error);
    }
    if (!model->is_static)
        FL_TRY(fl_weights_read(model, family, NULL, options->log, error));
    FL_TRY(fl_peft_finish(model, family, error));
    if (fl_head_rules_of(model)->finish != NULL)
        FL_TRY(fl_head_rules_of(model)->finish(model, family, error));
    FL_TRY(fl_token_heads_read(model, options->pooling, error));
    fl_weight_files_read(model);
    return 0;
}

int fl_model_add_hint(int status, fletch_error *error) {
    char message[sizeof error->message];
    if (status != FLETCH_EMODEL || error == NULL)
        return status;
    memcpy(message, error->message, sizeof message);
    size_t      size = strlen(message);
    const char *stop = size > 0 && strchr(".?!", message[size - 1]) != NULL ? "" : ".";
    return fl_fail(error, status, error->where,
                   "%.380s%s Run `fletch model verify` or pull the model again.", message, stop);
}

/* Whether nothing says that a folder is a Hugging Face model. */
static bool is_bare(const char *folder) {
    static const char *const names[] = {"config.json", "modules.json"};
    char                     path[FL_MODEL_PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (fl_file_find(path, sizeof path, folder, names[i], NULL) != 0)
            return false;
    return true;
}

int fl_model_open(fl_model **out, const char *folder, const fl_model_options *options,
                  fletch_error *error) {
    static const fl_model_options defaults = {0};
    fl_modules                    modules  = {0};
    *out                                   = NULL;
    if (options == NULL)
        options = &defaults;
    char file[FL_MODEL_PATH_MAX];
    bool gguf = fl_gguf_is_file(folder);
    if (!gguf && !fl_folder_exists(folder))
        return fl_fail(error, FLETCH_ENOTFOUND, FLETCH_NOWHERE, "%s is not a folder.", folder);
    if (!gguf && options->onnx_file == NULL && is_bare(folder)) {
        int found = fl_gguf_in_folder(folder, file, sizeof file, error);
        if (found < 0)
            return found;
        gguf   = found > 0;
        folder = gguf ? file : folder;
    }
    fl_model *model = fl_alloc_zero(1, sizeof *model);
    if (model == NULL)
        return fl_fail_nomem(error, sizeof *model, "a model");
    model->own    = fl_alloc_zero(1, sizeof *model->own);
    model->folder = fl_strdup(folder);
    int status    = 0;
    if (model->own == NULL || model->folder == NULL)
        status = fl_fail_nomem(error, sizeof *model->own, "a model");
    model->include_prompt = true;
    if (status == 0 && options->onnx_file != NULL)
        status = fl_model_keep(model, &model->onnx_file, "a path", error, "%s", options->onnx_file);
    if (status == 0)
        status = gguf ? fl_gguf_model_read(model, options, error)
                      : read_folder(model, options, &modules, error);
    fl_modules_close(&modules);
    if (status != 0) {
        fl_model_close(model);
        return fl_model_add_hint(status, error);
    }
    *out = model;
    return 0;
}

void fl_model_settle(fl_model *model) {
    fl_json_free(model->tokenizer_config);
    fl_buf_free(&model->tokenizer_text);
    model->tokenizer_config = NULL;
}

void fl_model_close(fl_model *model) {
    if (model == NULL)
        return;
    fl_model_settle(model);
    for (uint32_t i = 0; i < model->stage_count; i++)
        fl_stage_free(&model->stages[i]);
    fl_stage_free(&model->weigher);
    fl_stage_free(&model->colbert);
    fl_free(model->late.skipped);
    fl_free(model->lookup.weight);
    fl_free(model->chat);
    fl_free(model->stages);
    fl_free(model->prompts);
    fl_free(model->labels);
    fl_free(model->encoder.layer);
    fl_free(model->encoder.desc.layer);
    fl_free(model->tokenizer_path);
    fl_free(model->folder);
    if (model->own != NULL) {
        fl_task_close(model);
        fl_packed_free(model);
        fl_safetensors_close(model->own->weights);
        fl_safetensors_close(model->own->peft);
        for (size_t i = 0; i < model->own->kept_count; i++)
            fl_free(model->own->kept[i]);
        fl_free(model->own->kept);
        fl_free(model->own->transformer);
        fl_free(model->own->base);
        fl_free(model->own->queries);
        fl_free(model->own->table);
    }
    fl_free(model->own);
    fl_free(model);
}
