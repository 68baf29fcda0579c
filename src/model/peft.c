/* SPDX-License-Identifier: Apache-2.0 */
/* peft.c - a folder that holds a LoRA adapter of peft: what sentence-transformers and peft save after training.
 *
 * Role    model.c asks first: config.json and the weights then come from the model that was adapted, all else from
 *         the folder. weights.c asks for the adapter of each matrix.
 * In/Out  adapter_config.json -> the base model's folder, and a scale; adapter_model.safetensors,
 *         base_model.model.M.lora_A.weight [r, in] and lora_B.weight [out, r] -> fl_tensor.adapter.
 * Method  The weight is W + alpha / r * B A (alpha / √r with use_rslora), added where weights are read (tensor.c), as
 *         merge_and_unload() would. A switch that makes another product of it is refused by name, and so are a
 *         tensor of the adapter that no matrix takes, and an adapter of another architecture.
 * Memory  the adapter's file stays mapped, and A in float32. Threads: during opening only.
 * Proof   tests/golden/test_peft.py. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "hub/hub.h"
#include "model/model_private.h"

enum { NAME_BYTES_MAX = 256 };

static const char config_name[] = "adapter_config.json", file_name[] = "adapter_model.safetensors";

/* ---- adapter_config.json --------------------------------------------------------------------- */

/* Nothing, no, or empty. */
static bool is_off(fl_json *value) {
    const char *text = fl_json_text(value);
    if (text != NULL)
        return strcmp(text, "none") == 0;
    return value == NULL || fl_json_is(value, FL_JSON_NULL) || fl_json_count(value) == 0;
}

static int check_switches(fl_json_reader *config) {
    static const char *const flags[]  = {"use_dora",  "use_qalora",     "use_bdlora",
                                         "lora_bias", "fan_in_fan_out", "megatron_config"};
    static const char *const others[] = {
        "bias",          "modules_to_save",   "alpha_pattern",           "layer_replication",
        "loftq_config",  "target_parameters", "trainable_token_indices", "alora_invocation_tokens",
        "velora_config", "arrow_config"};
    const char *type = fl_json_string(config, "peft_type", "absent");
    if (strcmp(type, "LORA") != 0)
        fl_family_refuse(config, "peft_type", type);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (fl_json_true(fl_json_get(config->object, flags[i])))
            fl_family_refuse(config, flags[i], "true");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!is_off(fl_json_get(config->object, others[i])))
            fl_family_refuse(config, others[i], "set");
    return config->status;
}

/* The folder of the model that was adapted: a path, or a model of the hub. Weights in this one do not count. */
static int find_base(const fl_model_options *options, fl_json_reader *config,
                     char path[FL_MODEL_PATH_MAX]) {
    const char    *name = fl_json_string(config, "base_model_name_or_path", "");
    fl_hub_options hub =
        options->hub != NULL ? *options->hub : (fl_hub_options){.cache_dir = "", .offline = true};
    hub.revision = fl_json_string(config, "revision", "");
    if (config->status == 0 && name[0] == '\0')
        config->status = fl_fail(config->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s names no base_model_name_or_path.", config->source);
    FL_TRY(config->status);
    int status =
        fl_hub_resolve(name, &hub, NULL, NULL, path, FL_MODEL_PATH_MAX, NULL, NULL, config->error);
    if (status != 0)
        fl_error_prefix(config->error, "%s, base_model_name_or_path", config->source);
    return status;
}

static int check_base(const char *path, const char *folder, fletch_error *error) {
    char file[FL_MODEL_PATH_MAX];
    int  there =
        strcmp(path, folder) == 0 ? 0 : fl_file_find(file, sizeof file, path, config_name, error);
    return there <= 0 ? there
                      : fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                                "%s: an adapter of an adapter is not supported; merge the first "
                                "into its model (merge_and_unload).",
                                file);
}

/* How its matrices are multiplied. What is null is no number to peft either; of a rank_pattern the matrices themselves
 * say their ranks. */
static int read_product(fl_model *model, fl_json_reader *config) {
    static const char *const numbers[] = {"r", "lora_alpha"};
    struct fl_model_private *own       = model->own;
    own->peft_alpha                    = fl_json_double(config, "lora_alpha", 8);
    own->peft_rank = (uint32_t)fl_json_int(config, "r", 8, 1, FL_ADAPTER_RANK_MAX);
    own->peft_root = fl_json_bool(config, "use_rslora", false);
    if (!is_off(fl_json_get(config->object, "rank_pattern")))
        own->peft_rank = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && config->status == 0; i++)
        if (fl_json_find(config->object, numbers[i], NULL) && !fl_json_has(config, numbers[i]))
            config->status = fl_fail(config->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                     "%s: \"%s\" is null where a number is expected.",
                                     config->source, numbers[i]);
    if (config->status == 0 && !(fabs(own->peft_alpha) <= (double)FLT_MAX))
        config->status =
            fl_fail(config->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                    "%s: lora_alpha %g is out of bounds.", config->source, own->peft_alpha);
    return check_switches(config);
}

static int open_matrices(fl_model *model, const char *folder, fletch_error *error) {
    char file[FL_MODEL_PATH_MAX];
    FL_TRY(fl_path_join(file, sizeof file, folder, file_name, error));
    return fl_safetensors_open(&model->own->peft, file, error);
}

/* "transformers.models.qwen3.modeling_qwen3": the module of the class that the adapter was made for. Only what is
 * plainly another architecture is known to be another base: of equal shapes nothing in the files says whose weights
 * it belongs to, and config.json's _name_or_path is what a base itself was once trained from. */
static int check_library(const fl_model *model, fletch_error *error) {
    static const char parent[] = "transformers.models.";
    const char       *library = model->own->peft_library, *type = model->model_type;
    if (library == NULL || type == NULL || strncmp(library, parent, sizeof parent - 1) != 0)
        return 0;
    const char *name = library + sizeof parent - 1;
    size_t      size = strcspn(name, "."), i = 0;
    while (i < size && type[i] != '\0' &&
           (name[i] == type[i] || (name[i] == '_' && type[i] == '-')))
        i++;
    if (i == size || type[i] == '\0') /* gemma3 is gemma3_text's, too */
        return 0;
    return fl_fail(
        error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
        "%s: the adapter was trained on %.*s, but its base, %s, is of model_type "
        "\"%.60s\": it belongs to another model. Put the right one into base_model_name_or_path.",
        config_name, (int)(size < 60 ? size : 60), name, model->own->base, type);
}

static int read_adapter(fl_model *model, const fl_model_options *options, fl_json_reader *config) {
    struct fl_model_private *own = model->own;
    char                     path[FL_MODEL_PATH_MAX], file[FL_MODEL_PATH_MAX];
    FL_TRY(read_product(model, config));
    fl_json_reader mapping = fl_json_below(config, "auto_mapping");
    const char    *library = fl_json_string(&mapping, "parent_library", NULL);
    if (library != NULL)
        FL_TRY(fl_model_keep(model, &own->peft_library, "a name", config->error, "%s", library));
    fl_json_settle(config, &mapping);
    FL_TRY(find_base(options, config, path));
    FL_TRY(check_base(path, own->transformer, config->error));
    if (!options->without_weights)
        FL_TRY(open_matrices(model, own->transformer, config->error));
    own->base = fl_strdup(path);
    if (own->base == NULL)
        return fl_fail_nomem(config->error, strlen(path), "a path");
    model->base = own->base;
    if (fl_file_find(file, sizeof file, own->transformer, "tokenizer.json", NULL) > 0)
        return 0;
    fl_free(own->transformer); /* an adapter alone: the tokenizer is the base's, too */
    own->transformer = fl_strdup(path);
    return own->transformer != NULL ? 0 : fl_fail_nomem(config->error, strlen(path), "a path");
}

int fl_peft_open(fl_model *model, const fl_model_options *options, fletch_error *error) {
    char           path[FL_MODEL_PATH_MAX];
    fl_json_reader config;
    FL_TRY(fl_model_read_json(&config, path, model->own->transformer, config_name, error));
    if (config.object == NULL) {
        model->own->base = fl_strdup(model->own->transformer);
        return model->own->base != NULL ? 0 : fl_fail_nomem(error, strlen(path), "a path");
    }
    int status = read_adapter(model, options, &config);
    fl_json_free(config.object);
    return status;
}

int fl_peft_open_task(fl_model *model, const char *folder, bool weighed, fletch_error *error) {
    char           path[FL_MODEL_PATH_MAX], adapters[FL_MODEL_PATH_MAX], own[FL_MODEL_PATH_MAX];
    fl_json_reader config;
    if (!fl_path_is_safe(model->task))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: task \"%.80s\" leaves the folder.", model->own->transformer,
                       model->task);
    FL_TRY(fl_path_join(adapters, sizeof adapters, model->own->transformer, folder, error));
    FL_TRY(fl_path_join(own, sizeof own, adapters, model->task, error));
    FL_TRY(fl_model_read_json(&config, path, own, config_name, error));
    if (config.object == NULL)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s is missing: the adapter of task %s. Pull the model again.", path,
                       model->task);
    int status = read_product(model, &config);
    fl_json_free(config.object);
    return status == 0 && weighed ? open_matrices(model, own, error) : status;
}

/* ---- Matrices -------------------------------------------------------------------------------- */

/* base_model.model. and the matrix's module, under one of the names that models are wrapped in. */
static const fl_tensor *find_half(const fl_model *model, const char *prefix, const char *module,
                                  size_t size, char half) {
    static const char *const wraps[] = {"", "model."};
    char                     name[NAME_BYTES_MAX];
    const fl_tensor         *found = NULL;
    for (size_t i = 0; found == NULL && i <= sizeof wraps / sizeof *wraps; i++) {
        snprintf(name, sizeof name, "base_model.model.%s%.*s.lora_%c.weight",
                 i == 0 ? prefix : wraps[i - 1], (int)size, module, half);
        found = fl_safetensors_find(model->own->peft, name);
    }
    return found;
}

int fl_peft_adapt(fl_model *model, const char *prefix, const char *name, const fl_tensor *whole,
                  uint64_t first, fl_tensor *part, fletch_error *error) {
    static const char        ending[] = ".weight";
    struct fl_model_private *own      = model->own;
    const size_t             size = strlen(name), end = strlen(ending);
    if (own->peft == NULL || whole->rank != 2 || size < end ||
        strcmp(name + size - end, ending) != 0)
        return 0;
    const fl_tensor *a = find_half(model, prefix, name, size - end, 'A');
    const fl_tensor *b = find_half(model, prefix, name, size - end, 'B');
    if (a == NULL && b == NULL)
        return 0;
    if (a == NULL || b == NULL || a->rank != 2 || b->rank != 2 || a->shape[0] != b->shape[1] ||
        a->shape[1] != whole->shape[1] || b->shape[0] != whole->shape[0] || a->shape[0] == 0 ||
        a->shape[0] > FL_ADAPTER_RANK_MAX || !fl_dtype_is_real(a->dtype) ||
        !fl_dtype_is_real(b->dtype))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: the adapter of %s is not lora_A [r, %llu] and lora_B [%llu, r] of F32, "
                       "F16 or BF16 with r at most %d: it was not trained on %s.",
                       file_name, name, (unsigned long long)whole->shape[1],
                       (unsigned long long)whole->shape[0], FL_ADAPTER_RANK_MAX, own->base);
    if (own->peft_rank > 0 && a->shape[0] != own->peft_rank)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s says r %u, but the adapter of %s has rank %llu: the files do not belong "
                       "together.",
                       config_name, own->peft_rank, name, (unsigned long long)a->shape[0]);
    bool known = first > 0; /* parts of a matrix share the two, and so may layers (ALBERT) */
    for (const fl_adapter *other = own->adapters; other != NULL && !known; other = other->next)
        known = other->left.data == b->data;
    own->peft_taken += known ? 0 : 2;
    const uint64_t rank    = a->shape[0];
    const double   divisor = own->peft_root ? sqrt((double)rank) : (double)rank;
    FL_TRY(fl_adapter_add(model, a, 0, b, first, (float)(own->peft_alpha / divisor), error));
    part->adapter = own->adapters;
    return 0;
}

/* The matrix of the base that a half of the adapter belongs to: its name without what peft put around it, and as the
 * base calls it, with the network's prefix or without. */
static const fl_tensor *matrix_of(const fl_model *model, const char *prefix, const char *half) {
    static const char around[] = "base_model.model.";
    char              name[NAME_BYTES_MAX];
    const char       *end = strstr(half, ".lora_");
    if (strncmp(half, around, strlen(around)) != 0 || end == NULL ||
        (strcmp(end, ".lora_A.weight") != 0 && strcmp(end, ".lora_B.weight") != 0))
        return NULL;
    half += strlen(around);
    snprintf(name, sizeof name, "%.*s.weight", (int)(end - half), half);
    const fl_tensor *found = fl_safetensors_find(model->own->weights, name);
    if (found == NULL && strncmp(name, "model.", strlen("model.")) == 0)
        found = fl_safetensors_find(model->own->weights, name + strlen("model."));
    snprintf(name, sizeof name, "%s%.*s.weight", prefix, (int)(end - half), half);
    return found != NULL ? found : fl_safetensors_find(model->own->weights, name);
}

int fl_peft_finish(fl_model *model, const fl_family *family, fletch_error *error) {
    const struct fl_model_private *own    = model->own;
    const size_t                   count  = own->peft != NULL ? fl_safetensors_count(own->peft) : 0;
    const char                    *prefix = count > 0 ? fl_weights_prefix(model, family) : "";
    size_t                         used   = 0;
    FL_TRY(check_library(model, error));
    for (size_t i = 0; i < count; i++) {
        const char      *name   = fl_safetensors_name(own->peft, i);
        const fl_tensor *matrix = matrix_of(model, prefix, name);
        if (matrix == NULL)
            return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                           "%s: tensor %.100s belongs to no matrix of %s; it may change the "
                           "vectors, so the model is rejected rather than approximated.",
                           file_name, name, own->base);
        used += fl_weights_uses(model, matrix); /* a pooler's goes with the pooler */
    }
    if (own->peft_taken == used)
        return 0;
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "%s: %zu tensors belong to matrices of the network, which used %zu; the model "
                   "is rejected rather than approximated.",
                   file_name, used, own->peft_taken);
}
