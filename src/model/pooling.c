/* SPDX-License-Identifier: Apache-2.0 */
/* pooling.c - how token rows become one row: names, and the Pooling module's two kinds of
 * config.json.
 *
 * Role    modules.c for the folder's pooling, model.c for the caller's choice, config and
 *         describe for the names.
 * In/Out  {"pooling_mode": "mean" | ["cls", "mean"]} as newer sentence-transformers writes it, or
 *         the booleans "pooling_mode_cls_token" … of the older ones -> fl_encoder.pooling,
 *         concatenated in the list's order, or in the fixed order of the booleans; none set means
 *         mean.
 * Memory  none. Threads: pure functions.
 * Proof   tests/unit/test_model.c; tests/golden/test_folders.py. */
#include <string.h>

#include "base/error.h"
#include "model/model_private.h"

/* In the order in which the booleans concatenate. `name` is ours, `st` that of
 * sentence-transformers. */
static const struct {
    fl_pooling  pooling;
    const char *name, *st, *boolean;
} modes[FL_POOL_COUNT] = {
    {FL_POOL_CLS, "cls", "cls_token", "pooling_mode_cls_token"},
    {FL_POOL_MAX, "max", "max_tokens", "pooling_mode_max_tokens"},
    {FL_POOL_MEAN, "mean", "mean_tokens", "pooling_mode_mean_tokens"},
    {FL_POOL_MEAN_SQRT_LEN, "mean_sqrt_len", "mean_sqrt_len_tokens",
     "pooling_mode_mean_sqrt_len_tokens"},
    {FL_POOL_WEIGHTED_MEAN, "weightedmean", "weightedmean_tokens",
     "pooling_mode_weightedmean_tokens"},
    {FL_POOL_LAST_TOKEN, "lasttoken", "last_token", "pooling_mode_lasttoken"},
};

const char *fl_pooling_name(fl_pooling pooling) {
    for (size_t i = 0; i < FL_POOL_COUNT; i++)
        if (modes[i].pooling == pooling)
            return modes[i].name;
    return "unknown";
}

/* Our names and the two longer ones of sentence-transformers. */
static bool parse_name(const char *name, fl_pooling *out) {
    for (size_t i = 0; i < FL_POOL_COUNT; i++)
        if (strcmp(name, modes[i].name) == 0 || strcmp(name, modes[i].st) == 0 ||
            strcmp(name, modes[i].boolean) == 0) {
            *out = modes[i].pooling;
            return true;
        }
    return false;
}

static int refuse(const char *source, const char *mode, fletch_error *error) {
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "%s: pooling mode \"%.60s\" is not supported; fletch knows cls, mean, max, "
                   "mean_sqrt_len, weightedmean and lasttoken.",
                   source, mode);
}

static int add_mode(fl_encoder *encoder, const char *mode, const char *source,
                    fletch_error *error) {
    if (encoder->pooling_count == FL_POOL_COUNT)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: more than %d pooling modes.", source, FL_POOL_COUNT);
    if (!parse_name(mode, &encoder->pooling[encoder->pooling_count]))
        return refuse(source, mode, error);
    encoder->pooling_count++;
    return 0;
}

/* "pooling_mode": a name or a list of names. */
static int read_new(fl_encoder *encoder, fl_json_reader *reader, fl_json *value) {
    if (fl_json_is(value, FL_JSON_STRING))
        return add_mode(encoder, fl_json_text(value), reader->source, reader->error);
    fl_json *list = fl_json_array(reader, "pooling_mode");
    for (size_t i = 0; list != NULL && i < fl_json_count(list); i++) {
        fl_json *item = fl_json_item(list, i);
        if (!fl_json_is(item, FL_JSON_STRING))
            return fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "%s: pooling_mode holds something that is not a string.",
                           reader->source);
        FL_TRY(add_mode(encoder, fl_json_text(item), reader->source, reader->error));
    }
    return reader->status;
}

/* The booleans, in their fixed order; a boolean of a mode that we do not know must not be passed
 * over. */
static int read_old(fl_encoder *encoder, fl_json_reader *reader) {
    fl_pooling known;
    FL_JSON_EACH(reader->object, key, value) {
        if (strncmp(key, "pooling_mode_", strlen("pooling_mode_")) == 0 &&
            !parse_name(key, &known) && value != NULL &&
            (fl_json_true(value) || !fl_json_is(value, FL_JSON_BOOL)))
            return refuse(reader->source, key, reader->error);
    }
    for (size_t i = 0; i < FL_POOL_COUNT; i++)
        if (fl_json_bool(reader, modes[i].boolean, false))
            encoder->pooling[encoder->pooling_count++] = modes[i].pooling;
    return reader->status;
}

int fl_pooling_read(fl_model *model, const char *folder, const char *module, fletch_error *error) {
    char           path[FL_MODEL_PATH_MAX];
    fl_json_reader reader;
    fl_encoder    *encoder = &model->encoder;
    FL_TRY(fl_module_config_read(&reader, path, folder, error));
    encoder->pooling_count = 0;
    fl_json *mode          = fl_json_get(reader.object, "pooling_mode");
    int      status = mode != NULL ? read_new(encoder, &reader, mode) : read_old(encoder, &reader);
    if (encoder->pooling_count == 0)
        encoder->pooling[encoder->pooling_count++] = FL_POOL_MEAN;
    model->include_prompt = fl_json_bool(&reader, "include_prompt", true);

    const fl_tensor *projection = model->own->projection;
    const int64_t rows  = projection != NULL ? (int64_t)projection->shape[0] : encoder->desc.hidden;
    int64_t       width = fl_json_int(&reader, "word_embedding_dimension", rows, 1, UINT32_MAX);
    width               = fl_json_int(&reader, "embedding_dimension", width, 1, UINT32_MAX);
    if (status == 0)
        status = reader.status;
    if (status == 0 && width != rows)
        status = fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                         "%s: the pooled rows have %lld dimensions but the encoder's %lld.", path,
                         (long long)width, (long long)rows);
    fl_json_free(reader.object);
    FL_TRY(status);
    return fl_model_keep(model, &model->pooling_source.origin, "a name", error, "%s/config.json",
                         module);
}

void fl_pooling_set(fl_model *model, fl_pooling pooling, const char *origin) {
    model->encoder.pooling[0]    = pooling;
    model->encoder.pooling_count = 1;
    model->pooling_source.origin = origin;
}

int fl_pooling_override(fl_model *model, const char *text, fletch_error *error) {
    fl_encoder *encoder    = &model->encoder;
    encoder->pooling_count = 0;
    while (*text != '\0') { /* "mean" or "cls,mean" */
        char   mode[64];
        size_t size = strcspn(text, ",+");
        if (size >= sizeof mode)
            return refuse("model.pooling", text, error);
        memcpy(mode, text, size);
        mode[size] = '\0';
        FL_TRY(add_mode(encoder, mode, "model.pooling", error));
        text += size + (text[size] != '\0');
    }
    model->pooling_source.origin = "model.pooling";
    return 0;
}
