/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_verify.c - `fletch canary` and `fletch verify`: whether vectors are still those that were stored.
 *
 * Role    An index is worth what its vectors are. canary writes a few texts with their vectors, to lie beside the
 *         index; verify embeds texts again whose vectors somebody stored (stored.h), there or in the index itself, and
 *         says whether the bytes are the same, the space is, or neither, and what of the model and its settings is
 *         another.
 * Format  {"canary":1,"fletch":"0.1.0","id":I,"model":F,"settings":{NAME:VALUE},"rows":[{"text":T,"vector":[..]}]};
 *         numbers are the shortest that read back as the same float32.
 * Method  A difference is that of one element, as part of a vector of length 1. Vectors within 1e-5 are of one space:
 *         what another instruction set gives.
 * Memory  the sample, twice. Proof tests/cli/test_cli_verify.py, test_cli_verify_files.py. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cosine.h"
#include "base/error.h"
#include "base/json.h"
#include "base/json_w.h"
#include "base/mem.h"
#include "cli/output.h"
#include "cli/stored.h"

enum { FORMAT = 1, OWN_MAX = 16 << 20 };

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
    fl_json_w_raw(w, "vector");
    fl_output_put_floats(w->out, vector, dimensions);
    fl_json_w_end(w);
}

static int put_rows(fl_cli *cli, fl_json_w *w, fletch_error *error) {
    const size_t dimensions = fletch_dimensions(cli->model);
    float       *vector     = fl_alloc_array(dimensions, sizeof *vector);
    const char  *text;
    int status = vector == NULL ? fl_fail_nomem(error, dimensions * sizeof *vector, "a vector") : 0;
    for (size_t i = 0; status == 0 && (text = fletch_canary_text(i)) != NULL; i++) {
        status = embed(cli->model, text, strlen(text), vector, error);
        if (status == 0)
            put_row(w, text, strlen(text), vector, dimensions);
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
    if (cli->args.rest_count > 0)
        return fl_cli_usage(cli, "canary takes no texts: it has its own");
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

static void compare(const float *now, const float *then, size_t dimensions,
                    const fl_stored_row *row, tally *t) {
    double most = 0.0, length = sqrt(fl_vector_dot(then, then, dimensions));
    for (size_t i = 0; i < dimensions; i++) {
        double apart = fabs((double)now[i] - (double)then[i]);
        most         = apart > most ? apart : most; /* gcc 12 for AArch64 breaks off at fmax */
    }
    double cosine = most > 0.0 ? fl_vector_cosine(now, then, dimensions) : 1.0;
    most /= length > 0.0 ? length : 1.0;
    t->rows++;
    t->same += memcmp(now, then, dimensions * sizeof *now) == 0;
    t->far += most > one_space;
    if (most > t->largest) {
        fl_buf preview = {0};
        fl_cli_preview(&preview, row->text, row->size, 40);
        snprintf(t->worst, sizeof t->worst, "%s", preview.data ? preview.data : "");
        fl_buf_free(&preview);
        t->largest = most;
    }
    t->cosine = fmin(t->cosine, cosine);
}

/* As the rows of the file were made: those of the server's store are of length 1 whatever the model's are. */
static fletch_embed_options options_of(const fl_stored *stored) {
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    options.normalize            = stored->unit ? 1 : options.normalize;
    return options;
}

static int embed_rows(fl_cli *cli, const fl_stored *stored, float *now, fletch_error *error) {
    const char **texts   = fl_alloc_array(stored->count, sizeof *texts);
    size_t      *lengths = fl_alloc_array(stored->count, sizeof *lengths);
    int          status  = texts == NULL || lengths == NULL
                               ? fl_fail_nomem(error, stored->count * sizeof *texts, "the texts")
                               : 0;
    for (size_t i = 0; status == 0 && i < stored->count; i++) {
        texts[i]   = stored->rows[i].text;
        lengths[i] = stored->rows[i].size;
    }
    if (status == 0) {
        const fletch_embed_options options = options_of(stored);
        fletch_texts  all = {.count = stored->count, .pointers = texts, .lengths = lengths};
        fletch_matrix out = fletch_matrix_f32(now, stored->count, stored->width);
        status            = fletch_embed(cli->model, &all, &options, &out, error);
    }
    if (status < 0 && error->where < stored->count) {
        fl_error_prefix(error, "row %llu of %s",
                        (unsigned long long)stored->rows[error->where].number, stored->path);
    }
    fl_free(texts);
    fl_free(lengths);
    return status;
}

/* The sample's vectors of today against those of the file, which have the model's width. */
static int compare_rows(fl_cli *cli, const fl_stored *stored, tally *t, fletch_error *error) {
    const size_t width = stored->width;
    float       *now =
        width <= SIZE_MAX / sizeof *now ? fl_alloc_array(stored->count, width * sizeof *now) : NULL;
    int status = now == NULL
                     ? fl_fail_nomem(error, stored->count * width * sizeof *now, "the vectors")
                     : embed_rows(cli, stored, now, error);
    for (size_t i = 0; status == 0 && i < stored->count; i++) {
        if (stored->unit)
            (void)fl_vector_normalize(now + i * width, width); /* as the store did */
        compare(now + i * width, stored->then + i * width, width, &stored->rows[i], t);
    }
    fl_free(now);
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
    if (value == NULL)
        fl_buf_puts(out, "nothing");
    else
        fl_cli_preview(out, value, strlen(value), COLUMNS);
}

/* A part of what decides a vector, as the file has it and as it is here; NULL: it has none. */
static void put_part(fl_json_w *w, bool json, const char *name, const char *there,
                     const char *here) {
    if (there == here || (there != NULL && here != NULL && strcmp(there, here) == 0))
        return;
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

/* What the file says of the model and its settings against what is so here. A job's options are more than parts of the
 * id, a canary's are not. */
static void put_settings(const fl_stored *stored, fl_json *here, fl_json_w *w, bool json) {
    FL_JSON_EACH(here, name, value) {
        put_part(w, json, name, fl_json_text(fl_json_get(stored->settings, name)),
                 fl_json_text(value));
    }
    const bool canary = fl_json_find(stored->root, "canary", NULL);
    FL_JSON_EACH(stored->settings, gone, was) {
        if (canary && !fl_json_find(here, gone, NULL))
            put_part(w, json, gone, fl_json_text(was), NULL);
    }
}

/* The parts of this model's id that the file has otherwise; a file that says nothing differs in nothing. */
static int put_parts(fl_cli *cli, const fl_stored *stored, fl_json_w *w, bool json,
                     fletch_error *error) {
    const fletch_embed_options options = options_of(stored);
    char                       fingerprint[65], id[65];
    fl_json                   *here   = NULL;
    fl_buf                     own    = {0};
    fl_json_w                  w_own  = {.out = &own};
    int                        status = 0;
    FL_TRY(fletch_model_fingerprint(cli->model, fingerprint, error));
    FL_TRY(fletch_vector_id(cli->model, &options, FLETCH_FLOAT32, id, error));
    if (stored->model != NULL || stored->settings != NULL)
        put_part(w, json, "model", stored->model, fingerprint);
    if (stored->settings != NULL) {
        fl_json_w_object(&w_own, NULL);
        status = fl_cli_put_vector_parts(cli->model, &w_own, error);
        fl_json_w_end(&w_own);
        if (status == 0) {
            status = own.failed ? fl_fail_nomem(error, own.size, "the settings")
                                : fl_json_take(&here, &own, OWN_MAX, 0, "the settings", error);
        }
        if (status == 0)
            put_settings(stored, here, w, json);
    } else if (stored->id[0] != '\0') {
        put_part(w, json, "vector_id", stored->id, id);
    }
    if (stored->fletch != NULL)
        put_part(w, json, "fletch", stored->fletch, fletch_version());
    fl_json_free(here);
    fl_buf_free(&own);
    return status;
}

/* "all 18 vectors", "7 of 18 vectors", "1000 vectors (a sample of 250000)". */
static void put_count(fl_buf *out, const fl_stored *stored, const tally *t, size_t count) {
    const uint64_t whole = stored->seen - stored->left_out;
    fl_buf_puts(out, count == whole ? "all " : "");
    fl_buf_printf(out, "%zu ", count);
    if (count < t->rows)
        fl_buf_printf(out, "of %zu ", t->rows);
    fl_buf_puts(out, "vectors");
    if (whole > t->rows)
        fl_buf_printf(out, " (a sample of %llu)", (unsigned long long)whole);
}

static void put_person(fl_buf *out, const fl_stored *stored, const tally *t, size_t dimensions) {
    fl_buf_printf(out, "%s: ", verdict_of(t, stored->width == dimensions));
    if (stored->width != dimensions) {
        fl_buf_printf(out, "vectors of %zu dimensions there, %zu here", stored->width, dimensions);
    } else if (t->far > 0) {
        put_count(out, stored, t, t->far);
        fl_buf_printf(out,
                      " differ by more than 1e-5, the largest difference is %.2g (\"%s\"); the "
                      "lowest cosine is %.6f",
                      t->largest, t->worst, t->cosine);
    } else {
        put_count(out, stored, t, t->rows);
    }
    if (t->far == 0 && t->same < t->rows) {
        fl_buf_printf(
            out,
            " are within 1e-5, %zu of them with the same bytes; the largest difference is %.2g",
            t->same, t->largest);
    }
    if (stored->left_out > 0) {
        fl_buf_printf(out, "; %llu without a text or a vector were skipped",
                      (unsigned long long)stored->left_out);
    }
    fl_buf_putc(out, '\n');
}

static int put_verdict(fl_cli *cli, const fl_stored *stored, const tally *t, fl_buf *out,
                       fletch_error *error) {
    const size_t dimensions = fletch_dimensions(cli->model);
    fl_json_w    w          = {.out = out};
    if (!fl_cli_is(cli, FL_FLAG_FORMAT, "json")) {
        put_person(out, stored, t, dimensions);
        return put_parts(cli, stored, &w, false, error);
    }
    fl_json_w_object(&w, NULL);
    fl_json_w_text(&w, "verdict", verdict_of(t, stored->width == dimensions));
    fl_json_w_u64(&w, "vectors", t->rows);
    fl_json_w_u64(&w, "same_bytes", t->same);
    fl_json_w_u64(&w, "rows", stored->seen);
    fl_json_w_u64(&w, "left_out", stored->left_out);
    fl_json_w_raw(&w, "largest_difference");
    fl_output_put_f32(out, (float)t->largest);
    fl_json_w_raw(&w, "least_cosine");
    fl_output_put_f32(out, (float)t->cosine);
    fl_json_w_array(&w, "differs");
    FL_TRY(put_parts(cli, stored, &w, true, error));
    fl_json_w_end(&w);
    fl_json_w_end(&w);
    fl_buf_putc(out, '\n');
    return 0;
}

static fl_exit verify(fl_cli *cli, const fl_stored *stored) {
    fl_buf       out   = {0};
    fletch_error error = {0};
    tally        t     = {.cosine = 1.0};
    FL_CLI_TRY(fl_cli_open_model(cli, false));
    int status =
        stored->width == fletch_dimensions(cli->model) ? compare_rows(cli, stored, &t, &error) : 0;
    status = status == 0 ? put_verdict(cli, stored, &t, &out, &error) : status;
    if (status < 0) {
        fl_buf_free(&out);
        return fl_cli_fail(&error, true);
    }
    FL_CLI_TRY(fl_cli_print(&out));
    const bool exact = cli->args.value[FL_FLAG_EXACT] != NULL;
    return t.rows > 0 && t.far == 0 && (!exact || t.same == t.rows) ? FL_EXIT_DONE : FL_EXIT_FAILED;
}

fl_exit fl_cmd_verify(fl_cli *cli) {
    const char *path = cli->args.rest_count == 1 ? cli->args.rest[0] : NULL;
    fl_stored   stored;
    if (path == NULL) {
        return fl_cli_usage(cli, "verify takes one file of texts with vectors; `fletch model "
                                 "verify` checks a model's files");
    }
    fl_exit code = fl_stored_read(&stored, cli, path);
    code         = code == FL_EXIT_DONE ? verify(cli, &stored) : code;
    fl_stored_free(&stored);
    return code;
}
