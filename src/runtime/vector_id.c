/* SPDX-License-Identifier: Apache-2.0 */
/* vector_id.c - what decides the bytes of a vector, and one text for all of it.
 *
 * Role    fletch_model_fingerprint, fletch_vector_describe, fletch_vector_id: canaries, job manifests, the server's
 *         headers and its store.
 * Method  The parts are properties of describe.c by name; before them the fingerprint of the model's files, the type
 *         of the rows and the number of numerics. What a call asks otherwise takes their place. The id is the SHA-256
 *         of the lines "name value\n" in the order of the table; a part that a model has not has no line.
 * Memory  the values, kept by the model, since the fingerprint reads every file.
 * Threads any; the lock is not held while files are read.
 * Proof   tests/cli/test_vector_id.py. */
#include "runtime/vector_id.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "runtime/describe.h"
#include "runtime/runtime.h"

/* Those that calls change have a name here. */
enum { MODEL, DTYPE, NUMERICS, DIMENSIONS, PROMPT, NORMALIZE, MAX_LENGTH, TRUNCATE };
static const char *const names[] = {
    [MODEL]      = "model",
    [DTYPE]      = "dtype",
    [NUMERICS]   = "numerics",
    [DIMENSIONS] = "dimensions",
    [PROMPT]     = "prompt",
    [NORMALIZE]  = "normalize",
    [MAX_LENGTH] = "max_length",
    [TRUNCATE]   = "truncate",
    "pooling",
    "task",
    "provider",
    "precision",
    "cpu.precision",
    "cpu.isa",
    "onnxruntime.version",
    "onnxruntime.provider",
    "onnxruntime.model",
};
enum { PARTS = sizeof names / sizeof names[0] };

static const char *const dtypes[] = {"float32", "int8", "uint8", "binary", "ubinary"};

/* ---- The model's -------------------------------------------------------------------------------- */

static void free_values(char **value) {
    for (size_t i = 0; value != NULL && i < PARTS; i++)
        fl_free(value[i]);
    fl_free(value);
}

void fl_vector_parts_drop(fletch_model *m) {
    free_values(m->vector.value);
    m->vector.value = NULL;
    m->vector.epoch++;
}

static int keep_property(void *user, const char *name, const char *value, const char *origin) {
    char **values = user;
    (void)origin;
    for (size_t i = DIMENSIONS; i < PARTS; i++)
        if (values[i] == NULL && strcmp(name, names[i]) == 0)
            return (values[i] = fl_strdup(value)) == NULL;
    return 0;
}

static int read_values(fletch_model *m, char **value, fletch_error *error) {
    char fingerprint[65], number[16];
    FL_TRY(fl_model_fingerprint(m->model->folder, m->model->base, fingerprint, error));
    snprintf(number, sizeof number, "%d", FL_NUMERICS);
    value[MODEL]    = fl_strdup(fingerprint);
    value[NUMERICS] = fl_strdup(number);
    value[DTYPE]    = fl_strdup(dtypes[FLETCH_FLOAT32]);
    if (value[MODEL] == NULL || value[NUMERICS] == NULL || value[DTYPE] == NULL ||
        fl_runtime_describe(m, keep_property, value) != 0)
        return fl_fail_nomem(error, sizeof fingerprint, "a vector id");
    return 0;
}

/* A part that the model has not stays empty. */
static bool copy_values(char *const *value, fl_buf out[PARTS]) {
    bool good = true;
    for (size_t i = 0; i < PARTS; i++) {
        if (value[i] != NULL)
            fl_buf_puts(&out[i], value[i]);
        good = good && !out[i].failed;
    }
    return good;
}

static void free_copies(fl_buf copy[PARTS]) {
    for (size_t i = 0; i < PARTS; i++)
        fl_buf_free(&copy[i]);
}

/* The values into the caller's hands, read where nobody has asked before. */
static int take_values(fletch_model *m, fl_buf copy[PARTS], fletch_error *error) {
    fl_model_lock(m);
    bool there = m->vector.value != NULL, good = !there || copy_values(m->vector.value, copy);
    const unsigned epoch = m->vector.epoch;
    fl_model_unlock(m);
    if (there)
        return good ? 0 : fl_fail_nomem(error, PARTS * sizeof *copy, "a vector id");
    char **value = fl_alloc_zero(PARTS, sizeof *value);
    if (value == NULL)
        return fl_fail_nomem(error, PARTS * sizeof *value, "a vector id");
    int status = read_values(m, value, error);
    if (status == 0 && !copy_values(value, copy))
        status = fl_fail_nomem(error, PARTS * sizeof *copy, "a vector id");
    fl_model_lock(m);
    if (status == 0 && m->vector.value == NULL && m->vector.epoch == epoch) {
        m->vector.value = value;
        value           = NULL;
    }
    fl_model_unlock(m);
    free_values(value);
    return status;
}

int fl_vector_fingerprint(fletch_model *m, char out[65], fletch_error *error) {
    fl_buf value[PARTS] = {0};
    if (!m->has_engine)
        return fl_model_fingerprint(m->model->folder, m->model->base, out, error);
    int status = take_values(m, value, error);
    if (status == 0)
        snprintf(out, 65, "%s", value[MODEL].data);
    free_copies(value);
    return status;
}

int fl_vector_describe(fletch_model *m, fletch_property_fn fn, void *user, fletch_error *error) {
    fl_buf value[PARTS] = {0};
    int    status       = take_values(m, value, error);
    for (size_t i = 0, stop = 0; status == 0 && stop == 0 && i < PARTS; i++)
        if (value[i].size > 0)
            stop = fn(user, names[i], value[i].data, "") != 0;
    free_copies(value);
    return status;
}

/* ---- A call's ----------------------------------------------------------------------------------- */

#define put(value, ...) (fl_buf_clear(value), fl_buf_printf(value, __VA_ARGS__))

static int put_prompt(const fletch_model *m, const fletch_embed_options *o, fl_buf *value,
                      fletch_error *error) {
    const char *text = o->prompt;
    for (uint32_t i = 0; text == NULL && i < m->model->prompt_count; i++)
        if (strcmp(m->model->prompts[i].name, o->prompt_name) == 0)
            text = m->model->prompts[i].text;
    if (text == NULL)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE, "the model has no prompt \"%.60s\"",
                       o->prompt_name);
    fl_buf_clear(value);
    fl_json_quote(value, text, strlen(text));
    return 0;
}

static int put_options(const fletch_model *m, const fletch_embed_options *o, fl_buf value[PARTS],
                       fletch_error *error) {
    static const char *const sides[] = {[FLETCH_TRUNCATE_RIGHT] = "right",
                                        [FLETCH_TRUNCATE_LEFT]  = "left",
                                        [FLETCH_TRUNCATE_ERROR] = "error"};
    const uint32_t           most    = m->length_limit;
    if (o->dimensions > 0)
        put(&value[DIMENSIONS], "%" PRIu32, o->dimensions);
    if (o->max_length > 0)
        put(&value[MAX_LENGTH], "%" PRIu32, o->max_length < most ? o->max_length : most);
    if (o->normalize != 0)
        put(&value[NORMALIZE], "%s", o->normalize > 0 ? "true" : "false");
    if (o->truncate > FLETCH_TRUNCATE_DEFAULT && o->truncate <= FLETCH_TRUNCATE_ERROR)
        put(&value[TRUNCATE], "%s", sides[o->truncate]);
    return o->prompt != NULL || o->prompt_name != NULL ? put_prompt(m, o, &value[PROMPT], error)
                                                       : 0;
}

int fl_vector_id(fletch_model *m, const fletch_embed_options *options, fletch_dtype dtype,
                 char out[65], fletch_error *error) {
    fl_buf value[PARTS] = {0}, text = {0};
    int    status = take_values(m, value, error);
    if (status == 0)
        put(&value[DTYPE], "%s", dtypes[dtype]);
    if (status == 0)
        status = put_options(m, options, value, error);
    for (size_t i = 0; status == 0 && i < PARTS; i++) {
        text.failed = text.failed || value[i].failed;
        if (value[i].size > 0)
            fl_buf_printf(&text, "%s %s\n", names[i], value[i].data);
    }
    if (status == 0 && text.failed)
        status = fl_fail_nomem(error, text.size, "a vector id");
    if (status == 0)
        fl_sha256_hex(text.data, text.size, out);
    free_copies(value);
    fl_buf_free(&text);
    return status;
}
