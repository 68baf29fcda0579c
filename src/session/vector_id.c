/* SPDX-License-Identifier: Apache-2.0 */
/* vector_id.c - what decides the bytes of a vector, and one text for all of it.
 *
 * Role    fletch_model_fingerprint, fletch_vector_describe, fletch_vector_id: canaries, job manifests, the server's
 *         headers and its store.
 * Method  The parts are properties of describe.c by name; before them the fingerprint of the model's files, the type
 *         of the rows and the number of numerics. What a call asks otherwise takes their place. The id is the SHA-256
 *         of the lines "name value\n" in the order of the table; a part that a model has not has no line.
 * Memory  the lines, kept by the model, since the fingerprint reads every file.
 * Threads any; the lock is not held while files are read.
 * Proof   tests/cli/test_vector_id.py. */
#include "session/vector_id.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_state.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "requests/open_model.h"
#include "results/row_stages.h"
#include "session/describe.h"

enum { FINGERPRINT = 65 };

static const char *const names[] = {
    "model",
    "dtype",
    "numerics",
    "dimensions",
    "prompt",
    "normalize",
    "max_length",
    "truncate",
    "pooling",
    "pooling.prompt",
    "task",
    "provider",
    "precision",
    "cpu.precision",
    "cpu.numerics",
    "onnxruntime.version",
    "onnxruntime.provider",
    "onnxruntime.model",
    "onnxruntime.data",
};
enum { PARTS = sizeof names / sizeof names[0], ONNX_MODEL = PARTS - 2, ONNX_DATA = PARTS - 1 };

/* ---- The model's -------------------------------------------------------------------------------- */

void fl_vector_parts_free(fletch_model *m) {
    fl_free(m->vector.lines);
    m->vector.lines = NULL;
}

static int keep_property(void *user, const char *name, const char *value, const char *origin) {
    char **values = user;
    (void)origin;
    for (size_t i = 0; i < PARTS; i++)
        if (values[i] == NULL && strcmp(name, names[i]) == 0)
            return (values[i] = fl_strdup(value)) == NULL;
    return 0;
}

/* An .onnx file and what lies beside it count by their bytes, wherever they lie. */
static int hash_onnx(char *value[PARTS], fletch_error *error) {
    char   hex[FINGERPRINT], path[4096], *file = value[ONNX_MODEL];
    fl_buf list   = {0};
    int    status = 0;
    if (file == NULL || !fl_file_exists(file))
        return 0;
    const char *slash = strrchr(file, '/'), *at = value[ONNX_DATA];
    status = fl_file_sha256_kept(file, hex, error);
    fl_buf_printf(&list, "%s\n", hex);
    while (status == 0 && at != NULL && *at != '\0') {
        const char *end  = strstr(at, ", ");
        const int   size = (int)(end != NULL ? (size_t)(end - at) : strlen(at));
        snprintf(path, sizeof path, "%.*s%.*s", slash != NULL ? (int)(slash + 1 - file) : 0, file,
                 size, at);
        status = fl_file_sha256_kept(path, hex, error);
        fl_buf_printf(&list, "%.*s %s\n", size, at, hex);
        at = end != NULL ? end + 2 : at + size;
    }
    fl_sha256_hex(list.data, list.size, hex);
    fl_free(value[ONNX_MODEL]);
    fl_free(value[ONNX_DATA]);
    value[ONNX_DATA]  = NULL;
    value[ONNX_MODEL] = fl_strdup(hex);
    if (status == 0 && (list.failed || value[ONNX_MODEL] == NULL))
        status = fl_fail_nomem(error, list.size, "a vector id");
    fl_buf_free(&list);
    return status;
}

static int read_lines(fletch_model *m, fl_buf *out, fletch_error *error) {
    char *value[PARTS] = {0}, fingerprint[FINGERPRINT], number[16];
    FL_TRY(fl_model_fingerprint(m->model->folder, m->model->base, fingerprint, error));
    snprintf(number, sizeof number, "%d", FL_NUMERICS);
    bool failed = keep_property(value, "model", fingerprint, "") != 0 ||
                  keep_property(value, "dtype", fl_dtype_names[FLETCH_FLOAT32], "") != 0 ||
                  keep_property(value, "numerics", number, "") != 0 ||
                  fl_session_describe(m, keep_property, value) != 0;
    int status = failed ? 0 : hash_onnx(value, error);
    for (size_t i = 0; i < PARTS; i++) {
        if (value[i] != NULL)
            fl_buf_printf(out, "%s %s\n", names[i], value[i]);
        fl_free(value[i]);
    }
    return status != 0             ? status
           : failed || out->failed ? fl_fail_nomem(error, out->size, "a vector id")
                                   : 0;
}

/* "name value\n" of every part that the model has, read where nobody has asked before. */
static int take_lines(fletch_model *m, fl_buf *out, fletch_error *error) {
    fl_model_lock(m);
    const uint32_t epoch = m->scheduler.epoch;
    if (m->vector.lines != NULL && m->vector.epoch == epoch)
        fl_buf_puts(out, m->vector.lines);
    fl_model_unlock(m);
    if (out->failed)
        return fl_fail_nomem(error, out->size, "a vector id");
    if (out->size > 0)
        return 0;
    FL_TRY(read_lines(m, out, error));
    fl_model_lock(m);
    if (m->scheduler.epoch == epoch) { /* no other provider has come meanwhile */
        fl_vector_parts_free(m);
        m->vector.lines = fl_strdup(out->data); /* without memory it is read again */
        m->vector.epoch = epoch;
    }
    fl_model_unlock(m);
    return 0;
}

/* The first of the lines that are left, taken apart; false: there is none. No value has a line feed: prompts are
 * quoted, all others printable. */
static bool next_part(char **lines, const char **name, const char **value) {
    char *space = strchr(*lines, ' '), *end = space != NULL ? strchr(space, '\n') : NULL;
    if (end == NULL)
        return false;
    *space = *end = '\0';
    *name         = *lines;
    *value        = space + 1;
    *lines        = end + 1;
    return true;
}

int fl_vector_describe(fletch_model *m, fletch_property_fn fn, void *user, fletch_error *error) {
    const char *name, *value;
    fl_buf      lines  = {0};
    int         status = take_lines(m, &lines, error);
    char       *at     = lines.data;
    while (status == 0 && next_part(&at, &name, &value) && fn(user, name, value, "") == 0)
        continue;
    fl_buf_free(&lines);
    return status;
}

static int take_first(void *user, const char *name, const char *value, const char *origin) {
    (void)name, (void)origin;
    snprintf(user, FINGERPRINT, "%s", value);
    return 1;
}

int fl_vector_fingerprint(fletch_model *m, char out[65], fletch_error *error) {
    return m->has_engine ? fl_vector_describe(m, take_first, out, error)
                         : fl_model_fingerprint(m->model->folder, m->model->base, out, error);
}

/* ---- A call's ----------------------------------------------------------------------------------- */

/* NULL: the model's. */
static int find_prompt(const fletch_model *m, const fletch_embed_options *o, const char **out,
                       fletch_error *error) {
    *out = o->prompt;
    if (o->prompt != NULL || o->prompt_name == NULL)
        return 0;
    for (uint32_t i = 0; *out == NULL && i < m->model->prompt_count; i++)
        if (strcmp(m->model->prompts[i].name, o->prompt_name) == 0)
            *out = m->model->prompts[i].text;
    return *out != NULL ? 0
                        : fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                                  "the model has no prompt \"%.60s\"", o->prompt_name);
}

/* The part as the call has it; false: it leaves it to the model. */
static bool put_asked(const fletch_model *m, const fletch_embed_options *o, const char *prompt,
                      const char *name, fl_buf *out) {
    static const char *const sides[] = {[FLETCH_TRUNCATE_RIGHT] = "right",
                                        [FLETCH_TRUNCATE_LEFT]  = "left",
                                        [FLETCH_TRUNCATE_ERROR] = "error"};
    const uint32_t           most    = m->length_limit;
    const size_t             before  = out->size;
    if (strcmp(name, "prompt") == 0 && prompt != NULL)
        fl_json_quote(out, prompt, strlen(prompt));
    else if (strcmp(name, "dimensions") == 0 && o->dimensions > 0)
        fl_buf_printf(out, "%" PRIu32, o->dimensions);
    else if (strcmp(name, "max_length") == 0 && o->max_length > 0)
        fl_buf_printf(out, "%" PRIu32, o->max_length < most ? o->max_length : most);
    else if (strcmp(name, "normalize") == 0 && o->normalize != 0)
        fl_buf_puts(out, o->normalize > 0 ? "true" : "false");
    else if (strcmp(name, "truncate") == 0 && o->truncate > FLETCH_TRUNCATE_DEFAULT &&
             o->truncate <= FLETCH_TRUNCATE_ERROR)
        fl_buf_puts(out, sides[o->truncate]);
    return out->size > before;
}

int fl_vector_id(fletch_model *m, const fletch_embed_options *options, fletch_dtype dtype,
                 char out[65], fletch_error *error) {
    const char *prompt, *name, *value;
    fl_buf      lines = {0}, text = {0};
    FL_TRY(find_prompt(m, options, &prompt, error));
    int   status = take_lines(m, &lines, error);
    char *at     = lines.data;
    while (status == 0 && next_part(&at, &name, &value)) {
        fl_buf_printf(&text, "%s ", name);
        if (strcmp(name, "dtype") == 0)
            fl_buf_puts(&text, fl_dtype_names[dtype]);
        else if (!put_asked(m, options, prompt, name, &text))
            fl_buf_puts(&text, value);
        fl_buf_putc(&text, '\n');
    }
    if (status == 0 && text.failed)
        status = fl_fail_nomem(error, text.size, "a vector id");
    if (status == 0)
        fl_sha256_hex(text.data, text.size, out);
    fl_buf_free(&lines);
    fl_buf_free(&text);
    return status;
}
