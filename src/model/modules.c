/* SPDX-License-Identifier: Apache-2.0 */
/* modules.c - read modules.json: which folders make the model, and what happens to a pooled row.
 *
 * Role    model.c opens it first (it says where the transformer lives) and reads the rest once
 *         the encoder's width is known.
 * In/Out  [{"idx", "name", "path", "type"}, …] -> pooling, stages, normalize, dimensions.
 * Method  A type is a Python class of sentence-transformers; modules moved between packages over
 *         the years, so the last dotted component decides, as long as the path begins with the
 *         package's name: anything else is somebody's own code, which fletch will not guess at.
 *         Order: one Transformer, one Pooling, then any of Dense, LayerNorm, Normalize, Dropout
 *         (nothing to do when not training). No modules.json: mean pooling without normalising,
 *         with a warning, as sentence-transformers does.
 * Memory  stages, owned by the model. Threads: during opening only.
 * Proof   tests/unit/test_model.c; tests/golden/test_folders.py. */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/model_private.h"

static const char package[] = "sentence_transformers.", own_code[] = "custom_st.Transformer",
                  quantizer[] = "st_quantize.FlexibleQuantizer", clip[] = "CLIPModel";

/* Stable Static Embedding: whatever its file is called, one of these classes is the table with a gate behind it. */
static bool is_gated_table(const char *type) {
    return type != NULL && (fl_path_ends_with(type, ".SSE") || fl_path_ends_with(type, ".SSEQ"));
}

/* One entry of the list, checked; `kind` is the last component of its type. */
typedef struct entry {
    const char *type, *kind, *path;
} entry;

static int refuse_code(const fl_modules *modules, const char *type, fletch_error *error) {
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "%s: module type \"%.100s\" is custom code, which fletch does not run.",
                   modules->path, type);
}

static int read_list(fl_modules *modules, fletch_error *error) {
    size_t count = fl_json_count(modules->root);
    if (!fl_json_is(modules->root, FL_JSON_ARRAY) || count == 0 || count > FL_MODULES_MAX)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s is not a list of 1 to %d modules.",
                       modules->path, FL_MODULES_MAX);
    for (; modules->count < count; modules->count++) {
        fl_json_reader reader = {.object = fl_json_item(modules->root, modules->count),
                                 .source = modules->path,
                                 .error  = error};
        fl_module     *module = &modules->list[modules->count];
        module->type          = fl_json_string(&reader, "type", NULL);
        module->path          = fl_json_string(&reader, "path", "");
        if (reader.status != 0)
            return reader.status;
        if (module->type == NULL)
            return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: module %zu has no type.",
                           modules->path, modules->count);
    }
    return 0;
}

static int read_entry(entry *out, const fl_modules *modules, size_t index, fletch_error *error) {
    out->type = modules->list[index].type;
    out->path = modules->list[index].path;
    if (out->path[0] != '\0' && !fl_path_is_safe(out->path))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: path \"%.80s\" of module %zu leaves the folder.", modules->path,
                       out->path, index);
    if (strncmp(out->type, package, strlen(package)) != 0 && !fl_late_names(out->type) &&
        (index > 0 || (strcmp(out->type, own_code) != 0 && !is_gated_table(out->type))) &&
        (index < 2 || strcmp(out->type, quantizer) != 0))
        return refuse_code(modules, out->type, error);
    out->kind = strrchr(out->type, '.') + 1;
    return 0;
}

static int refuse(const fl_modules *modules, const entry *module, fletch_error *error) {
    return fl_fail(
        error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
        "%s: module type \"%.100s\" is not supported here; fletch knows Transformer, Pooling, "
        "then Dense, LayerNorm, Normalize and Dropout, in this order.",
        modules->path, module->type);
}

/* Where config.json and the weights are: the folder itself or a subfolder such as
 * "0_Transformer". */
static int set_transformer(fl_model *model, const char *path, fletch_error *error) {
    size_t room = strlen(model->folder) + strlen(path) + 2;
    char  *text = fl_alloc(room);
    if (text == NULL)
        return fl_fail_nomem(error, room, "a path");
    model->own->transformer = text;
    if (path[0] == '\0') {
        memcpy(text, model->folder, strlen(model->folder) + 1);
        return 0;
    }
    return fl_path_join(text, room, model->folder, path, error);
}

/* What the first modules say of the model as a whole. */
static int look(fl_modules *modules, fl_model *model, const fl_model_options *options,
                fletch_error *error) {
    entry first = {0}, second = {0};
    FL_TRY(read_entry(&first, modules, 0, error));
    if (strcmp(first.kind, "Router") == 0 || strcmp(first.kind, "Asym") == 0) {
        FL_TRY(fl_router_open(modules, model, first.path, options->task, error));
        FL_TRY(read_entry(&first, modules, 0, error));
    }
    model->own->module = strcmp(first.type, own_code) == 0 ? own_code : NULL;
    if (strcmp(first.kind, clip) == 0)
        model->own->module = clip;
    for (size_t i = 2; i < modules->count; i++)
        if (strcmp(modules->list[i].type, quantizer) == 0)
            model->own->module = quantizer;
    model->own->gated     = is_gated_table(first.type);
    model->is_static      = model->own->gated || strcmp(first.kind, "StaticEmbedding") == 0;
    model->own->fill_mask = strcmp(first.kind, "MLMTransformer") == 0;
    if (!model->is_static && !model->own->fill_mask && strcmp(first.kind, "Transformer") != 0 &&
        strcmp(first.kind, clip) != 0)
        return refuse(modules, &first, error);
    if (modules->count > 1) {
        FL_TRY(read_entry(&second, modules, 1, error));
        bool sparse = strcmp(second.kind, "SpladePooling") == 0;
        if (sparse && model->is_static)
            return refuse(modules, &second, error);
        if (sparse)
            model->head = FL_HEAD_SPARSE;
    }
    return set_transformer(model, first.path, error);
}

int fl_modules_open(fl_modules *modules, fl_model *model, const fl_model_options *options,
                    fletch_error *error) {
    int there =
        fl_file_find(modules->path, sizeof modules->path, model->folder, "modules.json", error);
    if (there <= 0)
        return there < 0 ? there : set_transformer(model, "", error);
    FL_TRY(fl_json_read(&modules->root, modules->path, FL_CONFIG_BYTES_MAX, error));
    model->own->has_modules = true;
    FL_TRY(read_list(modules, error));
    return look(modules, model, options, error);
}

int fl_modules_check(const fl_modules *modules, const fl_model *model, const fl_family *family,
                     fletch_error *error) {
    const char *module = model->own->module;
    if (module == NULL ||
        (family != NULL && family->module != NULL && strcmp(family->module, module) == 0))
        return 0;
    return module == clip ? refuse(modules, &(entry){.type = modules->list[0].type}, error)
                          : refuse_code(modules, module, error);
}

void fl_modules_close(fl_modules *modules) {
    fl_json_free(modules->root);
    fl_json_free(modules->router);
    *modules = (fl_modules){0};
}

/* The feature that stages work on. */
static const char *feature_of(const fl_model *model) {
    return fl_head_rules_of(model)->tokens ? FL_TOKENS : FL_SENTENCE;
}

static int read_normalize(fl_model *model, fl_stage *stage, const char *folder, const char *module,
                          uint32_t width, fletch_error *error) {
    char           path[FL_MODEL_PATH_MAX];
    fl_json_reader reader;
    FL_TRY(fl_model_read_json(&reader, path, folder, "config.json", error));
    fl_refuse_other_features(&reader, feature_of(model), FL_SENTENCE);
    int status = reader.status;
    fl_json_free(reader.object);
    stage->kind = FL_STAGE_NORMALIZE;
    stage->in = stage->out = width;
    FL_TRY(status);
    return fl_model_keep(model, &model->normalize_source.origin, "a name", error,
                         "modules.json (%s)", module);
}

enum { PROJECTION_MAX = 65536 };

int fl_projection_find(fl_model *model, const fl_family *family, fletch_error *error) {
    struct fl_model_private *own  = model->own;
    const char              *name = family->projection, *prefix = "";
    const bool               module = fl_path_ends_with(name, ".");
    FL_TRY(fl_model_keep(model, &own->projection_name, "a name", error, "%s%s", name,
                         module ? "weight" : ""));
    own->projection = fl_safetensors_find(own->weights, own->projection_name);
    for (size_t i = 0; own->projection == NULL && i < FL_WORDS_MAX && family->prefixes[i] != NULL;
         i++) {
        prefix = family->prefixes[i];
        FL_TRY(fl_model_keep(model, &own->projection_name, "a name", error, "%s%s%s", prefix, name,
                             module ? "weight" : ""));
        own->projection = fl_safetensors_find(own->weights, own->projection_name);
    }
    const fl_tensor *found = own->projection;
    if (found == NULL || found->rank != 2 || found->shape[1] != model->encoder.desc.hidden ||
        found->shape[0] == 0 || found->shape[0] > PROJECTION_MAX)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: tensor %s%s is missing, or does not take the layers' %u dimensions.",
                       own->transformer, name, module ? "weight" : "", model->encoder.desc.hidden);
    return module ? fl_model_keep(model, &own->projection_bias, "a name", error, "%s%sbias", prefix,
                                  name)
                  : 0;
}

/* The projection of what is pooled is the stage before all others. */
static int add_projection(fl_model *model, fletch_error *error) {
    const fl_tensor *w     = model->own->projection;
    fl_stage        *stage = &model->stages[model->stage_count++];
    if (model->encoder.pooling_count > 1 || model->encoder.pooling[0] == FL_POOL_MAX)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: pooling several ways or the largest values of tokens that the "
                       "network projects is not supported.",
                       model->folder);
    *stage                   = (fl_stage){.kind       = FL_STAGE_DENSE,
                                          .in         = (uint32_t)w->shape[1],
                                          .out        = (uint32_t)w->shape[0],
                                          .activation = FL_DENSE_IDENTITY};
    model->dimensions        = stage->out;
    model->encoder.projected = true;
    FL_TRY(fl_dense_load(&stage->weight, model->own->weights, model->own->transformer,
                         model->own->projection_name, w->shape[0], w->shape[1], error));
    return model->own->projection_bias == NULL
               ? 0
               : fl_dense_load(&stage->bias, model->own->weights, model->own->transformer,
                               model->own->projection_bias, w->shape[0], 0, error);
}

/* A module behind pooling becomes a stage; a Dropout becomes nothing. */
static int read_stage(const fl_modules *modules, const entry *module, fl_model *model,
                      fletch_error *error) {
    char      folder[FL_MODEL_PATH_MAX];
    fl_stage *stage  = &model->stages[model->stage_count];
    uint32_t  width  = model->dimensions;
    int       status = fl_path_join(folder, sizeof folder, model->folder, module->path, error);
    const fl_head_rules *head = fl_head_rules_of(model);
    if (status != 0 || strcmp(module->kind, "Dropout") == 0)
        return status;
    if (model->own->scored) /* it would change a vector that nobody reads any more */
        return refuse(modules, module, error);
    if (head->tokens && strcmp(module->kind, "MultiVectorMask") == 0)
        return fl_late_mask(model, folder, error);
    model->stage_count++; /* now: a failure frees what the stage holds already */
    if (strcmp(module->kind, "Dense") == 0)
        status = fl_dense_read(stage, folder, width, feature_of(model),
                               head->pairs ? "scores" : NULL, &model->own->scored, error);
    else if (strcmp(module->kind, "LayerNorm") == 0 && !head->tokens)
        status = fl_layer_norm_read(stage, folder, width, error);
    else if (strcmp(module->kind, "Normalize") == 0)
        status = read_normalize(model, stage, folder, module->path, width, error);
    else if (strcmp(module->type, quantizer) == 0)
        *stage = (fl_stage){.kind = FL_STAGE_WHOLE, .in = width, .out = width};
    else
        status = refuse(modules, module, error);
    if (status == 0) {
        model->dimensions = stage->out;
        model->normalize =
            stage->kind == FL_STAGE_NORMALIZE; /* only the last one makes the result */
        if (!model->normalize)
            model->normalize_source.origin = "modules.json";
    }
    return status;
}

/* The caller's choice; NULL: none. */
static const char *asked_pooling(const fl_model_options *options) {
    return options->pooling != NULL && options->pooling[0] != '\0' ? options->pooling : NULL;
}

/* Refuse any choice of the caller's but `known`; NULL: any. */
static int refuse_pooling(const fl_model_options *options, const char *known, const char *why,
                          fletch_error *error) {
    const char *asked = asked_pooling(options);
    return asked == NULL || (known != NULL && strcmp(asked, known) == 0)
               ? 0
               : fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE, "model.pooling %.60s: %s",
                         asked, why);
}

/* A classifier reads the rows that it was trained on. */
static int refuse_other_pooling(const fl_model_options *options, fletch_error *error) {
    return refuse_pooling(options, NULL, "the pooling of a classifier is part of it.", error);
}

/* Weights of the vocabulary instead of a pooled row. */
static int set_sparse(fl_model *model, const char *origin, fletch_error *error) {
    fl_encoder_desc *desc = &model->encoder.desc;
    model->head           = FL_HEAD_SPARSE;
    desc->mlm             = true;
    fl_pooling_set(model, FL_POOL_MAX, origin);
    model->dimensions              = desc->vocab;
    model->normalize_source.origin = origin;
    model->similarity              = model->similarity != NULL ? model->similarity : "dot";
    if (fl_onnx_only(model))
        return fl_fail(
            error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "%s: a sparse model needs its weights in safetensors, not an .onnx file alone.",
            model->folder);
    return 0;
}

/* {"pooling_strategy": "max", "activation_function": "relu" | "log1p_relu"} */
static int read_splade(const fl_modules *modules, fl_model *model, const entry *module,
                       const fl_model_options *options, fletch_error *error) {
    char           folder[FL_MODEL_PATH_MAX], path[FL_MODEL_PATH_MAX];
    fl_json_reader reader;
    FL_TRY(fl_path_join(folder, sizeof folder, model->folder, module->path, error));
    FL_TRY(fl_model_read_json(&reader, path, folder, "config.json", error));
    const char *strategy   = fl_json_string(&reader, "pooling_strategy", "max");
    const char *activation = fl_json_string(&reader, "activation_function", "relu");
    model->log_twice       = strcmp(activation, "log1p_relu") == 0;
    if (strcmp(strategy, "max") != 0)
        fl_family_refuse(&reader, "pooling_strategy", strategy);
    if (!model->log_twice && strcmp(activation, "relu") != 0)
        fl_family_refuse(&reader, "activation_function", activation);
    fl_json_free(reader.object);
    FL_TRY(reader.status);
    if (modules->count > 2 || !model->own->fill_mask)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: SpladePooling is supported as the last of two modules, after a "
                       "Transformer of the task fill-mask.",
                       modules->path);
    FL_TRY(refuse_pooling(options, "splade",
                          "the folder's model is sparse and supports only splade.", error));
    return set_sparse(model,
                      modules->router != NULL
                          ? "router_config.json (SpladePooling; queries: a table)"
                          : "modules.json (SpladePooling)",
                      error);
}

bool fl_modules_kind(const fl_modules *modules, size_t index, const char *kind) {
    entry module = {0};
    return modules->count > index && read_entry(&module, modules, index, NULL) == 0 &&
           strcmp(module.kind, kind) == 0;
}

/* A LogitScore is the last of two modules. */
static int read_logits(const fl_modules *modules, fl_model *model, fletch_error *error) {
    entry module = {0};
    char  folder[FL_MODEL_PATH_MAX];
    FL_TRY(read_entry(&module, modules, 1, error));
    FL_TRY(fl_path_join(folder, sizeof folder, model->folder, module.path, error));
    if (modules->count == 2)
        return fl_causal_module(model, folder, error);
    FL_TRY(read_entry(&module, modules, 2, error));
    return refuse(modules, &module, error);
}

static int read_pooling(const fl_modules *modules, fl_model *model, const fl_model_options *options,
                        fletch_error *error) {
    entry module = {0};
    char  folder[FL_MODEL_PATH_MAX];
    if (modules->count < 2)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s names no Pooling module; only sentence embeddings are supported.",
                       modules->path);
    FL_TRY(read_entry(&module, modules, 1, error));
    if (fl_head_rules_of(model)->vocabulary)
        return read_splade(modules, model, &module, options, error);
    if (strcmp(module.kind, "Pooling") != 0 || model->own->fill_mask)
        return refuse(modules, &module, error);
    FL_TRY(fl_path_join(folder, sizeof folder, model->folder, module.path, error));
    FL_TRY(fl_pooling_read(model, folder, module.path, error));
    if (fl_head_rules_of(model)->pairs)
        return refuse_other_pooling(options, error);
    return asked_pooling(options) != NULL ? fl_pooling_override(model, options->pooling, error) : 0;
}

/* CLIP and SigLIP: the network says which row counts, and encode.c makes it a text's last. */
static int set_end(fl_model *model, const fl_model_options *options, fletch_error *error) {
    fl_pooling_set(model, FL_POOL_LAST_TOKEN,
                   model->ends ? "the network's own: the end token"
                               : "the network's own: the last of all positions");
    model->include_prompt          = true;
    model->normalize_source.origin = "the network's own";
    return refuse_pooling(options, NULL,
                          model->ends ? "this network's vector is that of its end token."
                                      : "this network's vector is that of its last position.",
                          error);
}

/* What code of the Hub does behind the network, which modules.json does not list. */
static int set_own(fl_model *model, const fl_model_options *options, fletch_error *error) {
    FL_TRY(fl_pooling_override(model, model->own->own_pooling, error));
    model->pooling_source.origin = "the code of the model";
    model->include_prompt        = true;
    return refuse_pooling(options, model->own->own_pooling,
                          strcmp(model->own->own_pooling, "mean") == 0
                              ? "this model's code takes the mean of all tokens."
                              : "this model's code pools the last token.",
                          error);
}

/* Nothing is pooled: an engine is told one way, and never goes it. */
static int set_late(fl_model *model, const fl_model_options *options, fletch_error *error) {
    model->encoder.desc.late = true;
    fl_pooling_set(model, FL_POOL_MEAN, "late interaction: every token has a vector");
    model->normalize_source.origin = "modules.json";
    return refuse_pooling(options, NULL, "a late-interaction model does not pool.", error);
}

/* What sentence-transformers makes of a plain transformer. */
static int use_defaults(fl_model *model, const fl_model_options *options, fletch_error *error) {
    fl_pooling_set(model, FL_POOL_MEAN, "default: no modules.json");
    model->include_prompt          = true;
    model->normalize_source.origin = "default: no modules.json";
    if (options->pooling != NULL && strcmp(options->pooling, "splade") == 0)
        return set_sparse(model, "model.pooling", error);
    if (asked_pooling(options) != NULL)
        return fl_pooling_override(model, options->pooling, error);
    fl_onnx_output out = {.width = 0};
    if (fl_onnx_only(model))
        fl_onnx_output_read(model, &out);
    if (out.pooled) {
        model->pooling_source.origin   = "the .onnx file does its own pooling";
        model->normalize_source.origin = "the .onnx file's own";
        return 0;
    }
    fl_log_write(options->log, FL_LOG_WARNING,
                 "%s has no modules.json: using mean pooling without normalisation, as "
                 "sentence-transformers does. Set model.pooling to choose another.",
                 model->folder);
    return 0;
}

int fl_modules_read(const fl_modules *modules, fl_model *model, const fl_model_options *options,
                    fletch_error *error) {
    static const char averages[]  = "a static model averages its rows and supports only mean.";
    const bool        late        = fl_head_rules_of(model)->tokens;
    const bool        own_pooling = model->own->own_pooling != NULL;
    const bool        own_row     = model->ends || model->filled;
    if (model->own->classifier)
        return refuse_other_pooling(options, error);
    if (model->own->logits) {
        FL_TRY(refuse_other_pooling(options, error));
        fl_causal_pool(model);
        model->dimensions = 1;
        return modules->count > 0 ? read_logits(modules, model, error) : 0;
    }
    FL_TRY(late                  ? set_late(model, options, error)
           : own_row             ? set_end(model, options, error)
           : own_pooling         ? set_own(model, options, error)
           : modules->count == 0 ? use_defaults(model, options, error)
           : model->is_static    ? refuse_pooling(options, "mean", averages, error)
                                 : read_pooling(modules, model, options, error));
    const fl_head_rules *head =
        fl_head_rules_of(model); /* a choice of pooling may have made it sparse */
    if (head->vocabulary)
        return 0;
    model->dimensions = fl_encoder_width(&model->encoder);
    size_t count      = modules->count;
    if (count == 0 && !late && !own_pooling && model->own->projection == NULL)
        return 0;
    model->stages = fl_alloc_zero(count + 2 + FL_LATE_STAGES, sizeof *model->stages);
    if (model->stages == NULL)
        return fl_fail_nomem(error, count * sizeof *model->stages, "stages");
    if (model->own->projection != NULL)
        FL_TRY(add_projection(model, error));
    if (model->own->gated && model->own->weights != NULL)
        FL_TRY(fl_gate_read(&model->stages[model->stage_count++], model->own->weights,
                            model->own->transformer, model->dimensions, error));
    if (count > 0)
        model->normalize_source.origin = "modules.json";
    if (own_pooling) {
        const uint32_t width = model->dimensions;
        model->stages[model->stage_count++] =
            (fl_stage){FL_STAGE_NORMALIZE, .in = width, .out = width};
        model->normalize               = true;
        model->normalize_source.origin = "the code of the model";
    }
    for (size_t i = model->is_static || late || own_pooling || own_row ? 1 : 2; i < count; i++) {
        entry module = {0};
        FL_TRY(read_entry(&module, modules, i, error));
        FL_TRY(read_stage(modules, &module, model, error));
    }
    if (head->pairs && !model->own->scored)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: a CrossEncoder without a Dense whose module_output_name is \"scores\".",
                       modules->path);
    return 0;
}
