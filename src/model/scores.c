/* SPDX-License-Identifier: Apache-2.0 */
/* scores.c - models whose rows are scores, one a label: rerankers (cross-encoders) and classifiers.
 *
 * Role    model.c asks early whether a folder is one, and reads its head when the weights are there.
 * In/Out  Either the network's own head: config.json names a class ...ForSequenceClassification and
 *         there is no modules.json, or one of a CrossEncoder with the Transformer alone. Its layers
 *         are the family's. Or modules: a CrossEncoder's Transformer, Pooling, ..., and a Dense that
 *         writes "scores". Either way -> head, stages, labels, activation.
 * Method  The activation is what CrossEncoder takes: activation_fn of
 *         config_sentence_transformers.json (read only beside a modules.json), then config.json's
 *         sentence_transformers.activation_fn, then its sbert_ce_default_activation_function, then
 *         sigmoid for one label and none for several. Names outside torch are passed over, as
 *         sentence-transformers does unless told to trust them. Labels are id2label's; num_labels
 *         may not contradict it; where neither is there, there are as many as the head has
 *         rows. In a pair the second text has token type 1 where there are types.
 * Memory  labels and stages, owned by the model. Threads: during opening only.
 * Proof   tests/golden/test_scores.py. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/model_private.h"

enum { LABELS_MAX = 65536, NAME_MAX_BYTES = 128 };

/* Only classes of torch count; one that is not known here is refused by name. */
static void take_activation(fl_model *model, fl_json_reader *reader, const char *key,
                            const char *origin) {
    const char *path = fl_json_string(reader, key, NULL);
    if (path == NULL || strncmp(path, "torch.", strlen("torch.")) != 0)
        return;
    if (fl_dense_activation_of(path, &model->activation))
        model->activation_source.origin = origin;
    else
        fl_family_refuse(reader, key, path);
}

/* ---- Whether it is one ----------------------------------------------------------------------- */

static bool is_class(fl_json *config, const char *suffix) {
    const char *name = fl_json_text(fl_json_item(fl_json_get(config, "architectures"), 0));
    return name != NULL && fl_path_ends_with(name, suffix);
}

/* A plain folder's class says what it is. Its pairs are messages of a chat where it has a template. */
static int find_plain(fl_model *model, fl_json *config, fletch_error *error) {
    bool found;
    FL_TRY(fl_pair_code_find(model, config, error));
    if (model->head == FL_HEAD_SCORES)
        return 0;
    if (is_class(config, "ForCausalLM"))
        return fl_causal_find(model, error);
    if (!is_class(config, "ForSequenceClassification"))
        return 0;
    model->head            = FL_HEAD_SCORES;
    model->own->classifier = true;
    FL_TRY(fl_chat_read(model, &found, error));
    if (found && (!fl_chat_has(model, FL_CHAT_QUERY) || !fl_chat_has(model, FL_CHAT_DOCUMENT)))
        return fl_fail(
            error, FLETCH_EMODEL, FLETCH_NOWHERE,
            "%s: its chat template does not show both query and document: every pair would "
            "have the same score.",
            model->folder);
    return 0;
}

int fl_scores_find(fl_model *model, const fl_modules *modules, fletch_error *error) {
    static const char settings[] = "config_sentence_transformers.json";
    char              path[FL_MODEL_PATH_MAX];
    fl_json_reader    reader;
    bool              plain  = modules->count == 0;
    const char       *folder = plain ? model->own->base : model->folder;
    int               status = 0;
    FL_TRY(fl_model_read_json(&reader, path, folder, plain ? "config.json" : settings, error));
    const char *type = fl_json_text(fl_json_get(reader.object, "model_type"));
    if (plain) {
        status = find_plain(model, reader.object, error);
    } else if (type != NULL && strcmp(type, "CrossEncoder") == 0) {
        model->head = FL_HEAD_SCORES;
        take_activation(model, &reader, "activation_fn", settings);
    }
    if (!plain && model->head == FL_HEAD_SCORES) {
        model->own->classifier = modules->count == 1;
        model->own->logits     = fl_modules_kind(modules, 1, "LogitScore");
    }
    fl_json_free(reader.object);
    FL_TRY(status);
    if (reader.status == 0 && model->head == FL_HEAD_SCORES && model->is_static)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: a cross-encoder of a static table is not supported.", model->folder);
    return reader.status;
}

/* ---- Labels and activation ------------------------------------------------------------------- */

/* `map` may be NULL: LABEL_0, LABEL_1 … */
static int set_labels(fl_model *model, uint32_t count, fl_json *map, fl_json_reader *config) {
    char key[16];
    model->labels = fl_alloc_zero(count, sizeof *model->labels);
    if (model->labels == NULL)
        return fl_fail_nomem(config->error, count * sizeof *model->labels, "labels");
    for (uint32_t i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%u", i);
        const char *name = fl_json_text(fl_json_get(map, key));
        if (map != NULL && name == NULL)
            return fl_fail(config->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "%s: id2label has %u labels, but none with the number %u.",
                           config->source, count, i);
        FL_TRY(fl_model_keep(model, &model->labels[i], "a label", config->error, "%s%s",
                             name != NULL ? "" : "LABEL_", name != NULL ? name : key));
    }
    model->label_count = count;
    return 0;
}

/* `made` scores come out of modules (0: the network's own head makes as many as config.json says, or `unsaid`). */
static int read_labels(fl_model *model, fl_json_reader *config, uint32_t made, uint64_t unsaid) {
    fl_json *map   = fl_json_object(config, "id2label");
    int64_t  named = map != NULL ? (int64_t)fl_json_count(map) : (int64_t)unsaid;
    int64_t  asked = fl_json_int(config, "num_labels", named, 1, LABELS_MAX);
    if (config->status != 0)
        return config->status;
    if (made > 0) /* config.json is the transformer's and need not speak of them */
        return set_labels(model, made, (uint64_t)named == made ? map : NULL, config);
    if (asked != named && map != NULL)
        return fl_fail(config->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: num_labels is %lld, but id2label names %lld.", config->source,
                       (long long)asked, (long long)named);
    if (asked < 1 || asked > LABELS_MAX)
        return fl_fail(config->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: id2label has %lld labels; 1 to %d are possible.", config->source,
                       (long long)asked, LABELS_MAX);
    return set_labels(model, (uint32_t)asked, map, config);
}

static int read_activation(fl_model *model, fl_json_reader *config) {
    fl_json_reader own = fl_json_below(config, "sentence_transformers");
    if (model->activation_source.origin == NULL) {
        if (fl_json_find(own.object, "activation_fn", NULL))
            take_activation(model, &own, "activation_fn", "config.json: sentence_transformers");
        else
            take_activation(model, config, "sbert_ce_default_activation_function", "config.json");
    }
    if (model->activation_source.origin == NULL) {
        model->activation = model->label_count == 1 ? FL_DENSE_SIGMOID : FL_DENSE_IDENTITY;
        model->activation_source.origin =
            model->label_count == 1 ? "default: one label" : "default: several labels";
    }
    return config->status != 0 ? config->status : own.status;
}

/* ---- The network's own head ------------------------------------------------------------------ */

/* Decoders read the last token that is not pad_token_id, also where a text or a template has put that
 * one. What follows a token that is read backwards alone does not change it, and is left off. */
static void read_padding(fl_model *model, const fl_family *family, fl_json_reader *config) {
    const char *key  = "pad_token_id";
    const bool  null = fl_json_find(config->object, key, NULL) && !fl_json_has(config, key);
    model->padding =
        (int32_t)fl_json_int(config, key, null ? -1 : family->head.padding, INT32_MIN, INT32_MAX);
    model->unpadded = model->padding >= 0;
    if (model->unpadded && !model->encoder.desc.distance[0].causal && config->status == 0)
        config->status =
            fl_fail(config->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                    "%s: a classifier that looks both ways and reads the last token that is not "
                    "pad_token_id is not supported; one with pad_token_id null reads the last.",
                    config->source);
}

static int read_pooling(fl_model *model, const fl_family *family, fl_json_reader *config) {
    const char *key  = family->head.pooling_key;
    const char *word = family->head.pooling != NULL ? family->head.pooling : "cls";
    const char *mode = key != NULL ? fl_json_string(config, key, word) : word;
    bool        mean = strcmp(mode, "mean") == 0 || strcmp(mode, "avg") == 0;
    bool        last = strcmp(mode, "last") == 0;
    if (family->head.last_token) {
        fl_causal_pool(model);
        read_padding(model, family, config);
        return config->status;
    }
    if (!mean && !last && strcmp(mode, "cls") != 0)
        fl_family_refuse(config, key, mode);
    fl_pooling_set(model,
                   mean   ? FL_POOL_MEAN
                   : last ? FL_POOL_LAST_TOKEN
                          : FL_POOL_CLS,
                   key != NULL ? "config.json" : "the classifier");
    return config->status;
}

static fl_dense_activation activation_of(const fl_head_layer *layer, fl_json_reader *config) {
    static const struct {
        const char         *name;
        fl_dense_activation activation;
    } words[] = {{"gelu", FL_DENSE_GELU},
                 {"relu", FL_DENSE_RELU},
                 {"tanh", FL_DENSE_TANH},
                 {"sigmoid", FL_DENSE_SIGMOID}};
    if (layer->activation_key == NULL || !fl_json_has(config, layer->activation_key))
        return layer->activation;
    const char *word = fl_json_string(config, layer->activation_key, "");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].name, word) == 0)
            return words[i].activation;
    fl_family_refuse(config, layer->activation_key, word);
    return FL_DENSE_IDENTITY;
}

/* One tensor of a layer, NULL where it is missing; the family's prefix stands before some names. */
static const fl_tensor *find(fl_model *model, const fl_family *family, const char *module,
                             const char *part, char name[NAME_MAX_BYTES]) {
    const fl_safetensors *file = model->own->weights;
    snprintf(name, NAME_MAX_BYTES, "%s%s%s", fl_weights_prefix(model, family), module, part);
    const fl_tensor *found = fl_safetensors_find(file, name);
    if (found != NULL)
        return found;
    snprintf(name, NAME_MAX_BYTES, "%s%s", module, part);
    return fl_safetensors_find(file, name);
}

static int load(fl_model *model, const fl_family *family, const char *module, const char *part,
                const fl_stage *stage, float **out, fletch_error *error) {
    char     name[NAME_MAX_BYTES];
    uint64_t columns = stage->kind == FL_STAGE_DENSE && strcmp(part, "weight") == 0 ? stage->in : 0;
    (void)find(model, family, module, part, name);
    return fl_dense_load(out, model->own->weights, model->own->base, name, stage->out, columns,
                         error);
}

static int read_layer(fl_model *model, const fl_family *family, const fl_head_layer *layer,
                      bool last, fl_json_reader *config) {
    const fl_encoder_desc *desc  = &model->encoder.desc;
    fl_stage              *stage = &model->stages[model->stage_count++];
    bool                   bias  = !layer->unbiased &&
                (layer->bias_key == NULL || fl_json_bool(config, layer->bias_key, false));
    stage->kind       = layer->kind;
    stage->activation = activation_of(layer, config);
    stage->in         = desc->hidden;
    stage->out        = last ? model->label_count : desc->hidden;
    stage->eps        = desc->norm_eps;
    FL_TRY(config->status);
    FL_TRY(load(model, family, layer->name, "weight", stage, &stage->weight, config->error));
    const char *key     = family->head.temperature_key;
    double      divisor = last && key != NULL ? fl_json_double(config, key, 1) : 1;
    if (config->status == 0 && !(divisor > 0))
        fl_family_refuse(config, key, "not above 0");
    for (size_t i = 0; divisor != 1 && i < (size_t)stage->in * stage->out; i++)
        stage->weight[i] = (float)(stage->weight[i] / divisor);
    FL_TRY(config->status);
    return bias ? load(model, family, layer->name, "bias", stage, &stage->bias, config->error)
                : FLETCH_OK;
}

static int read_classifier(fl_model *model, const fl_family *family, fl_json_reader *config) {
    const fl_head_layer *layers = family->head.layers;
    uint32_t             count  = 0;
    while (count < FL_HEAD_LAYERS_MAX && layers[count].name != NULL)
        count++;
    if (count == 0)
        return fl_fail(config->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: rerankers and classifiers of the family %s are not supported.",
                       config->source, family->name);
    char             name[NAME_MAX_BYTES]; /* transformers' 2 is wrong of jina-reranker-v1 */
    const fl_tensor *last = find(model, family, layers[count - 1].name, "weight", name);
    int status = read_labels(model, config, 0, last != NULL && last->rank > 0 ? last->shape[0] : 2);
    model->stages = fl_alloc_zero(count, sizeof *model->stages);
    if (status == 0 && model->stages == NULL)
        status = fl_fail_nomem(config->error, count * sizeof *model->stages, "stages");
    if (status == 0)
        status = read_pooling(model, family, config);
    for (uint32_t i = 0; i < count && status == 0; i++)
        status = read_layer(model, family, &layers[i], i + 1 == count, config);
    model->dimensions = model->label_count;
    return status;
}

/* ---- Token types ----------------------------------------------------------------------------- */

static bool is_listed(const char *name, const char *const *words) {
    while (*words != NULL && strncmp(*words, name, strlen(*words)) != 0)
        words++;
    return *words != NULL;
}

/* Whether transformers hands the tokenizer's types to the network: model_input_names says it, else the
 * class. Of PreTrainedTokenizerFast version 4 said yes and version 5 says no. */
static bool hands_types(fl_json_reader *settings, const char *class_of_config) {
    static const char *const with[]    = {"Bert", "Electra", NULL};
    static const char *const without[] = {"Roberta",    "XLMRoberta",        "Camembert", "MPNet",
                                          "DistilBert", "TokenizersBackend", NULL};
    fl_json                 *inputs    = fl_json_array(settings, "model_input_names");
    for (size_t i = 0; i < fl_json_count(inputs); i++) {
        const char *name = fl_json_text(fl_json_item(inputs, i));
        if (name != NULL && strcmp(name, "token_type_ids") == 0)
            return true;
    }
    const char *kind = fl_json_string(settings, "tokenizer_class", class_of_config);
    if (inputs == NULL && !is_listed(kind, with) && !is_listed(kind, without))
        fl_family_refuse(settings, "tokenizer_class without model_input_names", kind);
    return inputs == NULL && is_listed(kind, with);
}

static int read_segments(fl_model *model, const fl_family *family, fletch_error *error) {
    fl_encoder_desc *desc = &model->encoder.desc;
    const char *class     = family->untyped_pairs ? "RobertaTokenizer" : "BertTokenizer";
    fl_json_reader settings;
    if (!desc->token_type || desc->types < 2)
        return 0;
    FL_TRY(fl_model_read_tokenizer_config(model, &settings, error));
    desc->segments =
        hands_types(&settings, model->config_class != NULL ? model->config_class : class);
    return settings.status;
}

int fl_scores_read(fl_model *model, const fl_family *family, fletch_error *error) {
    char           path[FL_MODEL_PATH_MAX];
    fl_json_reader config;
    int            status = 0;
    FL_TRY(fl_model_read_json(&config, path, model->own->base, "config.json", error));
    bool tied = fl_json_bool(&config, "tie_word_embeddings", false);
    if (model->own->logits && config.status == 0)
        status = fl_causal_read(model, tied, error);
    if (status == 0)
        status = model->own->classifier ? read_classifier(model, family, &config)
                                        : read_labels(model, &config, model->dimensions, 2);
    if (status == 0)
        status = read_activation(model, &config);
    fl_json_free(config.object);
    return status != 0 ? status : read_segments(model, family, error);
}
