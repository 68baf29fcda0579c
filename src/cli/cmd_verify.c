/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_verify.c - `fletch canary` and `fletch verify`: whether vectors are still those that were stored.
 *
 * Role    An index is worth what its vectors are. canary writes a few texts with their vectors, to lie beside the
 *         index; verify embeds the texts again and says whether the bytes are the same, the space is, or neither, and
 *         what of the model and its settings is another.
 * Format  {"canary":1,"fletch":"0.1.0","id":I,"model":F,"settings":{NAME:VALUE},"rows":[{"text":T,"vector":[..]}]};
 *         numbers are the shortest that read back as the same float32.
 * Method  A difference is that of one element, as part of a vector of length 1. Vectors within 1e-5 are of one space:
 *         what another instruction set gives.
 * Memory  the file, and two rows. Proof tests/cli/test_cli_verify.py. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/json_w.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/output.h"

enum { FORMAT = 1, FILE_MAX = 256 << 20 };

static const double one_space = 1e-5;

static int embed(fletch_model *model, const char *text, size_t size, float *vector,
                 fletch_error *error) {
    const char  *bytes = text != NULL ? text : ""; /* a buffer that was never written to has none */
    fletch_texts one   = {.count = 1, .pointers = &bytes, .lengths = &size};
    fletch_matrix out  = fletch_matrix_f32(vector, 1, fletch_dimensions(model));
    return fletch_embed(model, &one, NULL, &out, error);
}

/* ---- canary ---------------------------------------------------------------------------------- */

static void put_row(fl_json_w *w, const char *text, size_t size, const float *vector,
                    size_t dimensions) {
    fl_buf_putc(w->out, '\n');
    fl_json_w_object(w, NULL);
    fl_json_w_bytes(w, "text", text, size);
    fl_json_w_array(w, "vector");
    for (size_t i = 0; i < dimensions; i++) {
        fl_json_w_raw(w, NULL);
        fl_output_put_f32(w->out, vector[i]);
    }
    fl_json_w_end(w);
    fl_json_w_end(w);
}

static int put_rows(fl_cli *cli, fl_json_w *w, fletch_error *error) {
    const size_t dimensions = fletch_dimensions(cli->model);
    float       *vector     = fl_alloc_array(dimensions, sizeof *vector);
    const char  *text;
    int status = vector == NULL ? fl_fail_nomem(error, dimensions * sizeof *vector, "a vector") : 0;
    for (size_t i = 0; status == 0 && (text = fletch_canary_text(i)) != NULL; i++) {
        status = embed(cli->model, text, strlen(text), vector, error);
        if (status == 0) {
            put_row(w, text, strlen(text), vector, dimensions);
        }
        status = status == FLETCH_ETOOLONG ? 0 : status; /* model.truncate error: left out */
    }
    fl_free(vector);
    return status;
}

static int put_canary(fl_cli *cli, fl_buf *out, fletch_error *error) {
    fl_json_w w = {.out = out};
    char      fingerprint[65], id[65];
    FL_TRY(fletch_model_fingerprint(cli->model, fingerprint, error));
    FL_TRY(fletch_vector_id(cli->model, NULL, FLETCH_FLOAT32, id, error));
    fl_json_w_object(&w, NULL);
    fl_json_w_i64(&w, "canary", FORMAT);
    fl_json_w_text(&w, "fletch", fletch_version());
    fl_json_w_text(&w, "id", id);
    fl_json_w_text(&w, "model", fingerprint);
    fl_json_w_object(&w, "settings");
    FL_TRY(fl_cli_put_vector_parts(cli->model, &w, error));
    fl_json_w_end(&w);
    fl_json_w_array(&w, "rows");
    FL_TRY(put_rows(cli, &w, error));
    fl_json_w_end(&w);
    fl_json_w_end(&w);
    fl_buf_putc(out, '\n');
    return 0;
}

fl_exit fl_cmd_canary(fl_cli *cli) {
    fl_buf       out   = {0};
    fletch_error error = {0};
    if (cli->args.rest_count > 0) {
        return fl_cli_usage(cli, "canary has texts of its own and takes none");
    }
    FL_CLI_TRY(fl_cli_open_model(cli, false));
    if (put_canary(cli, &out, &error) < 0) {
        fl_buf_free(&out);
        return fl_cli_fail(&error, false);
    }
    return fl_cli_print(&out);
}

/* ---- verify ---------------------------------------------------------------------------------- */

typedef struct tally {
    size_t rows, same, far; /* same: to the last bit; far: another space */
    double largest, cosine; /* difference; the least cosine */
    char   worst[256];      /* the beginning of the text that differs most */
} tally;

static int refuse(const char *path, const char *what, size_t row, fletch_error *error) {
    return fl_fail(error, FLETCH_EMODEL, row, "%s is not a canary file: %s of row %zu", path, what,
                   row);
}

/* A row of the file, whose vector goes to *then, made for the first; `width` is 0 before it. */
static int read_row(const char *path, fl_json *row, size_t i, float **then, size_t *width,
                    fletch_error *error) {
    fl_json *vector = fl_json_get(row, "vector");
    if (!fl_json_is(fl_json_get(row, "text"), FL_JSON_STRING)) {
        return refuse(path, "there is no text", i, error);
    }
    if (fl_json_count(vector) == 0) {
        return refuse(path, "there is no vector", i, error);
    }
    if (*width != 0 && fl_json_count(vector) != *width) {
        return refuse(path, "another width than before in the vector", i, error);
    }
    if (*then == NULL) {
        *width = fl_json_count(vector);
        *then  = fl_alloc_array(*width, sizeof **then);
    }
    if (*then == NULL) {
        return fl_fail_nomem(error, *width * sizeof **then, "a vector");
    }
    for (size_t k = 0; k < *width; k++) {
        fl_json *number = fl_json_item(vector, k);
        (*then)[k]      = (float)fl_json_f64(number);
        if (!fl_json_is(number, FL_JSON_NUMBER) || !isfinite((*then)[k])) {
            return refuse(path, "no float32 number in the vector", i, error);
        }
    }
    return 0;
}

static void compare(const float *now, const float *then, size_t dimensions, fl_json *text,
                    tally *t) {
    double most = 0.0, length = sqrt(fl_vector_dot(then, then, dimensions));
    for (size_t i = 0; i < dimensions; i++) {
        most = fmax(most, fabs((double)now[i] - (double)then[i]));
    }
    double cosine = most > 0.0 ? fl_vector_cosine(now, then, dimensions) : 1.0;
    most /= length > 0.0 ? length : 1.0;
    t->rows++;
    t->same += memcmp(now, then, dimensions * sizeof *now) == 0;
    t->far += most > one_space;
    if (most > t->largest) {
        fl_buf preview = {0};
        fl_cli_preview(&preview, fl_json_text(text), fl_json_text_size(text), 40);
        snprintf(t->worst, sizeof t->worst, "%s", preview.data ? preview.data : "");
        fl_buf_free(&preview);
        t->largest = most;
    }
    t->cosine = fmin(t->cosine, cosine);
}

/* *width is that of the file's rows, which are compared where it is the model's. */
static int compare_rows(fl_cli *cli, const char *path, fl_json *rows, size_t *width, tally *t,
                        fletch_error *error) {
    const size_t dimensions = fletch_dimensions(cli->model);
    float       *now = fl_alloc_array(dimensions, sizeof *now), *then = NULL;
    int status = now == NULL ? fl_fail_nomem(error, dimensions * sizeof *now, "a vector") : 0;
    for (size_t i = 0; status == 0 && i < fl_json_count(rows); i++) {
        fl_json *text = fl_json_get(fl_json_item(rows, i), "text");
        status        = read_row(path, fl_json_item(rows, i), i, &then, width, error);
        if (status < 0 || *width != dimensions) {
            continue;
        }
        status = embed(cli->model, fl_json_text(text), fl_json_text_size(text), now, error);
        if (status < 0) {
            fl_error_prefix(error, "row %zu of %s", i, path);
        } else {
            compare(now, then, dimensions, text, t);
        }
    }
    fl_free(now);
    fl_free(then);
    return status;
}

static const char *verdict_of(const tally *t, bool width) {
    return !width || t->far > 0 ? "another space"
           : t->same == t->rows ? "same bytes"
                                : "same space";
}

/* For a person: what a file holds must not steer the terminal. */
static void put_value(fl_buf *out, const char *value) {
    enum { COLUMNS = 80 };
    if (value == NULL) {
        fl_buf_puts(out, "nothing");
    } else {
        fl_cli_preview(out, value, strlen(value), COLUMNS);
    }
}

/* A part of what decides a vector, as the file has it and as it is here; NULL: it has none. */
static void put_part(fl_json_w *w, bool json, const char *name, const char *there,
                     const char *here) {
    if (there == here || (there != NULL && here != NULL && strcmp(there, here) == 0)) {
        return;
    }
    if (json) {
        fl_json_w_object(w, NULL);
        fl_json_w_text(w, "name", name);
        fl_json_w_text(w, "there", there);
        fl_json_w_text(w, "here", here);
        fl_json_w_end(w);
        return;
    }
    fl_buf_puts(w->out, "  ");
    put_value(w->out, name);
    fl_buf_puts(w->out, ": ");
    put_value(w->out, there);
    fl_buf_puts(w->out, " there, ");
    put_value(w->out, here);
    fl_buf_puts(w->out, " here\n");
}

static int put_parts(fl_cli *cli, fl_json *root, fl_json_w *w, bool json, fletch_error *error) {
    char        fingerprint[65];
    const char *model   = fl_json_text(fl_json_get(root, "model"));
    const char *version = fl_json_text(fl_json_get(root, "fletch"));
    fl_json    *there = fl_json_get(root, "settings"), *here = NULL;
    fl_buf      own   = {0};
    fl_json_w   w_own = {.out = &own};
    FL_TRY(fletch_model_fingerprint(cli->model, fingerprint, error));
    fl_json_w_object(&w_own, NULL);
    int status = fl_cli_put_vector_parts(cli->model, &w_own, error);
    fl_json_w_end(&w_own);
    if (status == 0) {
        status = own.failed ? fl_fail_nomem(error, own.size, "the settings")
                            : fl_json_take(&here, &own, FILE_MAX, 0, "the settings", error);
    }
    if (status == 0) {
        put_part(w, json, "model", model, fingerprint);
        FL_JSON_EACH(here, name, value) {
            put_part(w, json, name, fl_json_text(fl_json_get(there, name)), fl_json_text(value));
        }
        FL_JSON_EACH(there, gone, was) {
            if (!fl_json_find(here, gone, NULL)) {
                put_part(w, json, gone, fl_json_text(was), NULL);
            }
        }
        put_part(w, json, "fletch", version, fletch_version());
    }
    fl_json_free(here);
    fl_buf_free(&own);
    return status;
}

static void put_person(fl_buf *out, const tally *t, size_t width, size_t dimensions) {
    const char *verdict = verdict_of(t, width == dimensions);
    if (width != dimensions) {
        fl_buf_printf(out, "%s: vectors of %zu dimensions there, %zu here\n", verdict, width,
                      dimensions);
    } else if (t->same == t->rows) {
        fl_buf_printf(out, "%s: all %zu vectors\n", verdict, t->rows);
    } else if (t->far == 0) {
        fl_buf_printf(out,
                      "%s: all %zu vectors are within 1e-5, %zu of them the same bytes; the "
                      "largest difference is %.2g\n",
                      verdict, t->rows, t->same, t->largest);
    } else {
        fl_buf_printf(out,
                      "%s: %zu of %zu vectors differ by more than 1e-5, the most by %.2g (\"%s\"); "
                      "the least cosine is %.6f\n",
                      verdict, t->far, t->rows, t->largest, t->worst, t->cosine);
    }
}

static int put_verdict(fl_cli *cli, fl_json *root, const tally *t, size_t width, fl_buf *out,
                       fletch_error *error) {
    const char  *format     = cli->args.value[FL_FLAG_FORMAT];
    const bool   json       = format != NULL && strcmp(format, "json") == 0;
    const size_t dimensions = fletch_dimensions(cli->model);
    fl_json_w    w          = {.out = out};
    if (!json) {
        put_person(out, t, width, dimensions);
        return put_parts(cli, root, &w, false, error);
    }
    fl_json_w_object(&w, NULL);
    fl_json_w_text(&w, "verdict", verdict_of(t, width == dimensions));
    fl_json_w_u64(&w, "vectors", t->rows);
    fl_json_w_u64(&w, "same_bytes", t->same);
    fl_json_w_raw(&w, "largest_difference");
    fl_output_put_f32(out, (float)t->largest);
    fl_json_w_raw(&w, "least_cosine");
    fl_output_put_f32(out, (float)t->cosine);
    fl_json_w_array(&w, "differs");
    FL_TRY(put_parts(cli, root, &w, true, error));
    fl_json_w_end(&w);
    fl_json_w_end(&w);
    fl_buf_putc(out, '\n');
    return 0;
}

static int check_file(const char *path, fl_json *root, fletch_error *error) {
    if (!fl_json_is(root, FL_JSON_OBJECT) || !fl_json_is_int(fl_json_get(root, "canary"))) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s is not a canary file: it has no \"canary\"; `fletch canary` writes one",
                       path);
    }
    if (fl_json_int64(fl_json_get(root, "canary")) != FORMAT) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s is of format %lld, this fletch reads %d", path,
                       (long long)fl_json_int64(fl_json_get(root, "canary")), FORMAT);
    }
    return fl_json_is(fl_json_get(root, "rows"), FL_JSON_ARRAY) &&
                   fl_json_count(fl_json_get(root, "rows")) > 0
               ? 0
               : fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                         "%s is not a canary file: it has no rows", path);
}

fl_exit fl_cmd_verify(fl_cli *cli) {
    const char  *path  = cli->args.rest_count == 1 ? cli->args.rest[0] : NULL;
    fl_json     *root  = NULL;
    fl_buf       out   = {0};
    fletch_error error = {0};
    tally        t     = {.cosine = 1.0};
    size_t       width = 0;
    if (path == NULL) {
        return fl_cli_usage(cli, "verify takes one file that `fletch canary` wrote; `fletch model "
                                 "verify` checks a model's files");
    }
    if (fl_json_read(&root, path, FILE_MAX, &error) < 0 || check_file(path, root, &error) < 0) {
        fl_json_free(root);
        fl_cli_message("%s", error.message);
        return FL_EXIT_MODEL;
    }
    fl_exit code = fl_cli_open_model(cli, false);
    if (code == FL_EXIT_DONE) {
        int status = compare_rows(cli, path, fl_json_get(root, "rows"), &width, &t, &error);
        status     = status == 0 ? put_verdict(cli, root, &t, width, &out, &error) : status;
        code       = status < 0 ? fl_cli_fail(&error, true) : fl_cli_print(&out);
    }
    fl_json_free(root);
    fl_buf_free(&out);
    const bool exact = cli->args.value[FL_FLAG_EXACT] != NULL;
    const bool good  = t.rows > 0 && t.far == 0 && (!exact || t.same == t.rows);
    return code == FL_EXIT_DONE && !good ? FL_EXIT_FAILED : code;
}
