/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_model.c - a GGUF file becomes a model, by its metadata and the table of architectures.
 *
 * Role    model.c calls it where a file, or a folder that holds one, is the model.
 * Method  The row of families/gguf_*.c for general.architecture says where the values of a config.json stand; they are
 *         written as one and read by the family, which bounds and refuses them like any other. Every key of the
 *         architecture must be known, every tensor be used: what is not could change the vectors. Pooling must be
 *         told, by the file or by the user. Vectors are normalised, as llama.cpp's and Ollama's are. A file has no
 *         prompts.
 * Memory  as model.c. The metadata is let go of once it is read; the weights stay mapped.
 * Proof   tests/golden/test_gguf.py. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_w.h"
#include "base/mem.h"
#include "hub/model_files.h"
#include "model/gguf.h"
#include "model/gguf_arch.h"
#include "model/gguf_tokenizer.h"
#include "model/model_private.h"

enum { KEY_MAX = 128 };

typedef struct reader {
    fl_model           *model;
    const char         *path;
    fl_gguf             file;
    const fl_gguf_arch *arch;
    fletch_error       *error;
} reader;

/* ---- Architecture ---------------------------------------------------------------------------- */

static const fl_gguf_value *find(const reader *r, const char *key) {
    char name[KEY_MAX];
    bool whole = strncmp(key, "tokenizer.", strlen("tokenizer.")) == 0;
    snprintf(name, sizeof name, "%s%s%s", whole ? "" : r->arch->name, whole ? "" : ".", key);
    return fl_gguf_find(&r->file, name);
}

static int refuse_key(const reader *r, int status, const char *key, const char *why) {
    return fl_fail(r->error, status, FLETCH_NOWHERE, "%s: %s.%s %s.", r->path, r->arch->name, key,
                   why);
}

#define FL_NAME(name) &fl_gguf_arch_##name,
const fl_gguf_arch *const fl_gguf_archs[] = {FL_GGUF_ARCHS(FL_NAME) NULL};
#undef FL_NAME

static int choose_arch(reader *r) {
    fl_span name;
    char    known[200] = "";
    if (!fl_gguf_text(fl_gguf_find(&r->file, "general.architecture"), &name))
        return fl_fail(r->error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s has no general.architecture.",
                       r->path);
    for (size_t i = 0; fl_gguf_archs[i] != NULL; i++) {
        const fl_tensor_table *t = &r->file.tensors;
        r->arch                  = fl_gguf_archs[i];
        if (fl_span_is(name, r->arch->name) &&
            (r->arch->with == NULL || fl_table_find(t, r->arch->with) != NULL) &&
            (r->arch->without == NULL || fl_table_find(t, r->arch->without) == NULL))
            return r->arch->refusal == NULL ? 0
                                            : fl_fail(r->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                                                      "%s: %s.", r->path, r->arch->refusal);
        if (strstr(known, r->arch->name) == NULL)
            fl_error_list(known, sizeof known, r->arch->name);
    }
    return fl_fail(r->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "%s: architecture \"%.*s\" is not supported; fletch knows %s.", r->path,
                   (int)(name.size < 60 ? name.size : 60), name.data, known);
}

/* Keys that are read elsewhere or say what the sizes say. */
static const char *const passed[] = {"pooling_type",
                                     "vocab_size",
                                     "normalize_embeddings",
                                     "classifier.pooling_type",
                                     "dense_2_feat_in",
                                     "dense_2_feat_out",
                                     "dense_3_feat_in",
                                     "dense_3_feat_out",
                                     "attention.key_length",
                                     "attention.value_length",
                                     "attention.layer_norm_rms_epsilon",
                                     "rope.dimension_count",
                                     "rope.scaling.type",
                                     "rope.scaling.factor"};

static bool is_known(const reader *r, fl_span key) {
    bool turns = false, of_turns = key.size > 5 && memcmp(key.data, "rope.", 5) == 0;
    for (size_t i = 0; i < FL_GGUF_FIELDS_MAX && r->arch->fields[i].config != NULL; i++)
        if (r->arch->fields[i].key != NULL && fl_span_is(key, r->arch->fields[i].key))
            return true;
        else if (r->arch->fields[i].key != NULL)
            turns = turns || strcmp(r->arch->fields[i].key, "rope.freq_base") == 0;
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        if (fl_span_is(key, passed[i]))
            return turns || !of_turns;
    return false;
}

/* A key that is not known may be a switch that changes the vectors. */
static int refuse_unknown_keys(const reader *r) {
    const size_t size = strlen(r->arch->name);
    for (size_t i = 0; i < r->file.count; i++) {
        fl_span key = r->file.values[i].key;
        if (key.size <= size || memcmp(key.data, r->arch->name, size) != 0 || key.data[size] != '.')
            continue;
        key = (fl_span){key.data + size + 1, key.size - size - 1};
        if (!is_known(r, key))
            return fl_fail(r->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                           "%s: metadata key \"%s.%.*s\" is unknown; it may change the vectors, so "
                           "the model is rejected rather than approximated.",
                           r->path, r->arch->name, (int)(key.size < 80 ? key.size : 80), key.data);
    }
    return 0;
}

/* ---- Configuration --------------------------------------------------------------------------- */

/* A list of flags is which layers have the window. */
static bool put_layers(fl_json_w *w, const fl_gguf_value *value) {
    if (value->type != FL_GGUF_BOOL)
        return false;
    fl_json_w_array(w, "layer_types");
    for (uint64_t i = 0; i < value->count; i++)
        fl_json_w_text(w, NULL, value->data[i] != 0 ? "sliding_attention" : "full_attention");
    fl_json_w_end(w);
    return true;
}

static bool put_value(fl_json_w *w, const char *key, const fl_gguf_value *value) {
    uint64_t whole;
    double   real;
    bool     flag;
    fl_span  text;
    if (value->array)
        return put_layers(w, value);
    if (fl_gguf_whole(value, 0, &whole)) {
        fl_json_w_u64(w, key, whole);
    } else if (fl_gguf_real(value, 0, &real) && real - real == 0) {
        fl_json_w_raw(w, key);
        fl_buf_printf(w->out, "%.17g", real);
    } else if (fl_gguf_flag(value, &flag)) {
        fl_json_w_bool(w, key, flag);
    } else if (fl_gguf_text(value, &text)) {
        fl_json_w_bytes(w, key, text.data, text.size);
    } else {
        return false;
    }
    return true;
}

/* Without a type a factor is a linear one. */
static int put_scaling(const reader *r, fl_json_w *w) {
    const fl_gguf_value *type   = find(r, "rope.scaling.type"),
                        *factor = find(r, "rope.scaling.factor");
    fl_span text                = {"linear", strlen("linear")};
    if (type != NULL && !fl_gguf_text(type, &text))
        return refuse_key(r, FLETCH_EMODEL, "rope.scaling.type", "is not a text");
    if ((type == NULL && factor == NULL) || fl_span_is(text, "none"))
        return 0;
    if (!fl_span_is(text, "linear")) /* llama.cpp has a yarn of its own */
        return refuse_key(r, FLETCH_EUNSUPPORTED, "rope.scaling.type", "is not linear");
    fl_json_w_object(w, "rope_scaling");
    fl_json_w_bytes(w, "rope_type", text.data, text.size);
    bool good = factor == NULL || put_value(w, "factor", factor);
    fl_json_w_end(w);
    return good ? 0 : refuse_key(r, FLETCH_EMODEL, "rope.scaling.factor", "is not a number");
}

static int put_config(const reader *r, fl_json_w *w) {
    const fl_gguf_value *tokens = find(r, "tokenizer.ggml.tokens");
    fl_json_w_object(w, NULL);
    fl_json_w_u64(w, "vocab_size", tokens != NULL ? tokens->count : 0);
    for (size_t i = 0; i < FL_GGUF_FIELDS_MAX && r->arch->fields[i].config != NULL; i++) {
        const fl_gguf_field *field = &r->arch->fields[i];
        const fl_gguf_value *value = field->key != NULL ? find(r, field->key) : NULL;
        if (value != NULL && !put_value(w, field->config, value))
            return refuse_key(r, FLETCH_EMODEL, field->key, "is of the wrong type");
        if (value == NULL && field->fallback == NULL)
            return refuse_key(r, FLETCH_EMODEL, field->key, "is missing");
        if (value == NULL) {
            fl_json_w_raw(w, field->config);
            fl_buf_puts(w->out, field->fallback);
        }
    }
    FL_TRY(put_scaling(r, w));
    fl_json_w_end(w);
    return 0;
}

/* What is said twice must be said alike. */
static int check_twins(const reader *r, const fl_encoder_desc *d) {
    const struct {
        const char *key;
        uint64_t    size;
    } twins[] = {{"attention.key_length", d->head_dim},
                 {"attention.value_length", d->head_dim},
                 {"rope.dimension_count", d->rope[0].dims},
                 {"vocab_size", d->vocab}};
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
        const fl_gguf_value *value = find(r, twins[i].key);
        uint64_t             size  = 0;
        if (value != NULL && (!fl_gguf_whole(value, 0, &size) || size != twins[i].size))
            return refuse_key(r, FLETCH_EUNSUPPORTED, twins[i].key,
                              "is not what follows from the other sizes");
    }
    return 0;
}

static int describe(const reader *r, const fl_family **family) {
    fl_buf           text   = {0};
    fl_json_w        w      = {.out = &text};
    fl_json_reader   config = {.source = r->path, .error = r->error};
    fl_encoder_desc *desc   = &r->model->encoder.desc;
    FL_TRY(refuse_unknown_keys(r));
    int status = put_config(r, &w);
    if (status == 0)
        status = text.failed ? fl_fail_nomem(r->error, text.size, "a configuration")
                             : fl_json_parse(&config.object, text.data, text.size, text.size, 0,
                                             r->path, r->error);
    fl_buf_free(&text);
    if (status == 0)
        status = fl_family_describe(family, desc, &config, NULL);
    fl_json_free(config.object);
    FL_TRY(status);
    if (r->arch->shifted)
        desc->norm = FL_NORM_RMS;
    desc->experts_unbiased = desc->experts_upright = r->arch->lacks != NULL;
    return check_twins(r, desc);
}

int fl_gguf_describe(fl_encoder_desc *out, const fl_gguf_arch *arch, const fl_gguf *file,
                     const char *source, fletch_error *error) {
    const fl_family *family = NULL;
    fl_model         model  = {0};
    reader r      = {.model = &model, .path = source, .file = *file, .arch = arch, .error = error};
    int    status = describe(&r, &family);
    *out          = model.encoder.desc;
    return status;
}

/* ---- What becomes of the rows ----------------------------------------------------------------- */

const fl_pooling fl_gguf_poolings[FL_GGUF_POOLINGS] = {FL_POOL_MEAN, FL_POOL_CLS,
                                                       FL_POOL_LAST_TOKEN};

static int read_pooling(const reader *r, const fl_model_options *options) {
    fl_model            *model  = r->model;
    const char          *origin = NULL;
    const fl_gguf_value *value  = find(r, "pooling_type");
    uint64_t             type   = 0;
    if (value != NULL && !fl_gguf_whole(value, 0, &type))
        return refuse_key(r, FLETCH_EMODEL, "pooling_type", "is not a number");
    if (type > FL_GGUF_POOLINGS)
        return refuse_key(r, FLETCH_EUNSUPPORTED, "pooling_type",
                          "is that of a reranker; take the model's safetensors");
    if (options->pooling != NULL && options->pooling[0] != '\0')
        return fl_pooling_override(model, options->pooling, r->error);
    if (type == 0)
        return refuse_key(r, FLETCH_EUNSUPPORTED, "pooling_type",
                          "is missing: set --pooling mean, cls or lasttoken");
    FL_TRY(fl_model_keep(model, &origin, "a name", r->error, "%s.pooling_type", r->arch->name));
    fl_pooling_set(model, fl_gguf_poolings[type - 1], origin);
    return 0;
}

/* EmbeddingGemma's two matrices after pooling, in files that have them. */
const char *const fl_gguf_dense[FL_GGUF_DENSE] = {"dense_2.weight", "dense_3.weight"};

static int read_dense(const reader *r) {
    fl_model *model = r->model;
    for (size_t i = 0; i < FL_GGUF_DENSE; i++) {
        const fl_tensor *tensor = fl_safetensors_find(model->own->weights, fl_gguf_dense[i]);
        fl_stage        *stage  = &model->stages[model->stage_count];
        if (tensor == NULL)
            continue;
        uint64_t out = tensor->rank == 2 && tensor->shape[0] <= UINT32_MAX ? tensor->shape[0] : 0;
        model->stage_count++;
        *stage = (fl_stage){.kind = FL_STAGE_DENSE, .in = model->dimensions, .out = (uint32_t)out};
        FL_TRY(fl_dense_load(&stage->weight, model->own->weights, r->path, fl_gguf_dense[i], out,
                             stage->in, r->error));
        model->dimensions = stage->out;
    }
    return 0;
}

static int read_stages(const reader *r) {
    fl_model            *model = r->model;
    bool                 unit  = true;
    const fl_gguf_value *value = find(r, "normalize_embeddings");
    if (value != NULL && !fl_gguf_flag(value, &unit))
        return refuse_key(r, FLETCH_EMODEL, "normalize_embeddings", "is neither true nor false");
    model->normalize_source.origin = value != NULL ? "normalize_embeddings" : "GGUF: always";
    model->dimensions              = fl_encoder_width(&model->encoder);
    model->normalize               = unit;
    model->stages                  = fl_alloc_zero(FL_GGUF_DENSE + 1, sizeof *model->stages);
    if (model->stages == NULL)
        return fl_fail_nomem(r->error, sizeof *model->stages, "stages");
    FL_TRY(read_dense(r));
    if (unit)
        model->stages[model->stage_count++] = (fl_stage){
            .kind = FL_STAGE_NORMALIZE, .in = model->dimensions, .out = model->dimensions};
    return 0;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static void turn_rows(fl_model *model) {
    static const fl_layer_slot slots[] = {FL_LAYER_Q_W, FL_LAYER_K_W, FL_LAYER_Q_B, FL_LAYER_K_B};
    fl_encoder                *e       = &model->encoder;
    for (uint32_t i = 0; i < e->desc.layers; i++)
        for (size_t k = 0; k < sizeof slots / sizeof *slots; k++)
            e->layer[i][slots[k]].turned = e->desc.head_dim;
}

static int read_weights(const reader *r, const fl_family *family, const fl_model_options *options) {
    fl_model *model = r->model;
    FL_TRY(fl_safetensors_open(&model->own->weights, r->path, r->error));
    FL_TRY(read_pooling(r, options));
    FL_TRY(read_stages(r));
    FL_TRY(fl_weights_read(model, family, r->arch->tensors, options->log, r->error));
    if (r->arch->turned)
        turn_rows(model);
    if (r->arch->lacks != NULL)
        fl_log_write(options->log, FL_LOG_WARNING,
                     "%s lacks %s, as every file of architecture %s: its vectors are those of "
                     "llama.cpp and Ollama, not the published model's. For those take its "
                     "safetensors.",
                     r->path, r->arch->lacks, r->arch->name);
    fl_weight_files_read(model);
    return 0;
}

static int read_all(const reader *r, const fl_model_options *options) {
    fl_model        *model  = r->model;
    const fl_family *family = NULL;
    FL_TRY(fl_gguf_tokenizer(&model->tokenizer_text, &r->file, r->path, r->error));
    FL_TRY(describe(r, &family));
    model->similarity               = "cosine";
    model->max_length               = model->encoder.desc.positions;
    model->max_length_source.origin = "context_length";
    FL_TRY(fl_task_check(model, options, r->error));
    return options->without_weights ? 0 : read_weights(r, family, options);
}

int fl_gguf_model_read(fl_model *model, const fl_model_options *options, fletch_error *error) {
    reader r                = {.model = model, .path = model->folder, .error = error};
    fl_map map              = {0};
    model->gguf             = true;
    model->tokenizer_made   = true;
    model->tokenizer_path   = fl_strdup(r.path);
    model->own->transformer = fl_strdup(r.path);
    model->own->base        = fl_strdup(r.path);
    if (model->tokenizer_path == NULL || model->own->transformer == NULL ||
        model->own->base == NULL)
        return fl_fail_nomem(error, strlen(r.path), "a path");
    FL_TRY(fl_map_open(&map, r.path, error));
    int status = fl_gguf_read(&r.file, map.data, map.size, r.path, error);
    if (status == 0) {
        status = choose_arch(&r);
        if (status == 0)
            status = read_all(&r, options);
        fl_gguf_free(&r.file);
    }
    fl_map_close(&map);
    return status;
}

/* ---- Which file ------------------------------------------------------------------------------ */

int fl_gguf_in_folder(const char *folder, char *path, size_t capacity, fletch_error *error) {
    char           first[256] = "";
    DIR           *listing    = opendir(folder);
    struct dirent *entry;
    int            count = 0;
    while (listing != NULL && (entry = readdir(listing)) != NULL) {
        const char *name = entry->d_name;
        if (name[0] == '.' || !fl_path_ends_with(name, ".gguf") || fl_gguf_is_later_part(name))
            continue;
        if (count++ == 0 || strcmp(name, first) < 0)
            snprintf(first, sizeof first, "%s", name);
    }
    if (listing != NULL)
        closedir(listing);
    if (count > 1)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "%s holds %d .gguf files; name one of them, such as %s/%s.", folder, count,
                       folder, first);
    FL_TRY(count == 1 ? fl_path_join(path, capacity, folder, first, error) : 0);
    return count;
}
