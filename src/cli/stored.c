/* SPDX-License-Identifier: Apache-2.0 */
/* stored.c - what kind of file it is, the canaries among them, and the sample.
 *
 * Role    cmd_verify.c asks for a sample; stored_records.c, stored_rows.c and stored_sqlite.c give rows.
 * Method  A file is told by its first bytes, then by its extension or --input-format. The first half of the sample are
 *         the first rows. Of the others every stride-th is kept; when there is no room for one more, every second one
 *         goes and the stride doubles, so that those that stay are spread evenly over a file of any length,
 *         which is read once, and are the same in every reading.
 * Memory  the sample; of JSON objects the file. Proof tests/cli/test_cli_verify.py, test_cli_verify_files.py. */
#include "cli/stored.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"

enum { FORMAT = 1, FILE_MAX = 256 << 20, HEAD = 64, SAMPLE = 1000 };

const char fl_stored_vector_names[] = "embedding|vector|embeddings|vectors";

/* ---- The sample ------------------------------------------------------------------------------ */

int fl_stored_refuse(const fl_stored *stored, fletch_error *error, const char *format, ...) {
    char    what[300];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return fl_fail(error, FLETCH_EMODEL, (size_t)stored->seen, "%s: row %llu %s", stored->path,
                   (unsigned long long)stored->seen + 1, what);
}

fl_exit fl_stored_fail(const fletch_error *error) {
    if (error->code == FLETCH_ENOMEM)
        return fl_cli_fail(error, false);
    fl_cli_message("%s", error->message);
    return error->code == FLETCH_ECONFIG ? FL_EXIT_USAGE : FL_EXIT_MODEL;
}

static int grow(fl_stored *s, fletch_error *error) {
    const size_t   room = s->capacity == 0 ? 64 : s->capacity * 2;
    fl_stored_row *rows = fl_realloc_array(s->rows, room, sizeof *rows);
    s->rows             = rows != NULL ? rows : s->rows;
    float *then         = rows != NULL && s->width <= SIZE_MAX / sizeof *then / room
                              ? fl_realloc_array(s->then, room, s->width * sizeof *then)
                              : NULL;
    s->then             = then != NULL ? then : s->then;
    if (then == NULL)
        return fl_fail_nomem(error, room * s->width * sizeof *then, "the vectors of a sample");
    s->capacity = room;
    return 0;
}

/* Of the rows behind the first half every second one goes. */
static void thin(fl_stored *s, size_t first) {
    size_t kept = first;
    for (size_t i = first; i < s->count; i++) {
        if ((i - first) % 2 == 1) {
            fl_free(s->rows[i].text);
            continue;
        }
        s->rows[kept] = s->rows[i];
        memmove(s->then + kept++ * s->width, s->then + i * s->width, s->width * sizeof *s->then);
    }
    s->count = kept;
    s->stride *= 2;
}

static int keep(fl_stored *s, const char *text, size_t size, const float *vector,
                fletch_error *error) {
    if (s->count == s->capacity)
        FL_TRY(grow(s, error));
    char *copy = fl_strndup(text, size);
    if (copy == NULL)
        return fl_fail_nomem(error, size, "a text of a sample");
    memcpy(s->then + s->count * s->width, vector, s->width * sizeof *vector);
    s->rows[s->count++] = (fl_stored_row){copy, size, s->seen + 1};
    return 0;
}

/* Whether this row belongs to the sample, for which there is room then. */
static bool is_of_sample(fl_stored *s) {
    const size_t   first = s->most - s->most / 2;
    const uint64_t whole = s->seen - s->left_out; /* rows before this one */
    if (s->most == 0 || whole < first)
        return true;
    if (s->count == s->most && s->most - first > 0 && (whole - first) % s->stride == 0)
        thin(s, first);
    return s->count < s->most && (whole - first) % s->stride == 0;
}

int fl_stored_take(fl_stored *s, const char *text, size_t size, const float *vector, size_t width,
                   fletch_error *error) {
    int status = 0;
    if (text == NULL || width == 0) {
        s->left_out++;
        s->seen++;
        return 0;
    }
    if (s->width != 0 && s->width != width) {
        return fl_stored_refuse(s, error, "has %zu numbers where earlier rows have %zu", width,
                                s->width);
    }
    for (size_t i = 0; i < width; i++) {
        if (!isfinite(vector[i])) {
            return fl_stored_refuse(
                s, error, "holds a value that is not a float32 number at position %zu", i + 1);
        }
    }
    s->width = width;
    if (is_of_sample(s))
        status = keep(s, text, size, vector, error);
    s->seen++;
    return status;
}

int fl_stored_take_id(fl_stored *s, const char *id, size_t size, fletch_error *error) {
    if (size >= sizeof s->id)
        return fl_stored_refuse(s, error, "has no vector id of 64 digits");
    if (s->id[0] != '\0' && (strlen(s->id) != size || memcmp(s->id, id, size) != 0)) {
        return fl_stored_refuse(s, error,
                                "has vector id %.*s, but an earlier row has %.12s: vectors of two "
                                "kinds in one file cannot be compared",
                                size < 12 ? (int)size : 12, id, s->id);
    }
    (void)snprintf(s->id, sizeof s->id, "%.*s", (int)size, id);
    return 0;
}

int fl_stored_numbers(fl_stored *s, char *text, size_t size, size_t *width, fletch_error *error) {
    fl_json_in in;
    fl_span    number;
    if (size >= 2 && text[0] == '{' && text[size - 1] == '}') {
        text[0]        = '[';
        text[size - 1] = ']';
    }
    fl_buf_clear(&s->numbers);
    fl_json_in_begin(&in, text, size);
    bool good = fl_json_in_enter(&in, FL_JSON_ARRAY);
    while (good && fl_json_in_item(&in) && fl_json_in_number(&in, &number)) {
        const float value = (float)fl_span_f64(number);
        fl_buf_append(&s->numbers, &value, sizeof value);
    }
    if (!fl_json_in_end(&in)) {
        return fl_stored_refuse(s, error, "holds a value that is not a float32 number: %s",
                                in.message);
    }
    *width = s->numbers.size / sizeof(float);
    return s->numbers.failed ? fl_fail_nomem(error, size, "a vector") : 0;
}

bool fl_stored_is_vector(const fl_cli *cli, const char *name, size_t size) {
    const char *given = cli->args.value[FL_FLAG_VECTOR_FIELD];
    return given != NULL ? strlen(given) == size && memcmp(given, name, size) == 0
                         : fl_choice_holds(fl_stored_vector_names, name, size);
}

/* ---- JSON objects ---------------------------------------------------------------------------- */

/* A text and its vector, which are members of trees. */
static int take_pair(fl_stored *s, fl_json *text, fl_json *vector, fletch_error *error) {
    fl_buf_clear(&s->numbers);
    for (size_t i = 0; i < fl_json_count(vector); i++) {
        fl_json    *number = fl_json_item(vector, i);
        const float value  = fl_json_is(number, FL_JSON_NUMBER) ? (float)fl_json_f64(number) : NAN;
        fl_buf_append(&s->numbers, &value, sizeof value);
    }
    if (s->numbers.failed)
        return fl_fail_nomem(error, fl_json_count(vector) * sizeof(float), "a vector");
    return fl_stored_take(s, fl_json_text(text), fl_json_text_size(text),
                          (const float *)(const void *)s->numbers.data,
                          s->numbers.size / sizeof(float), error);
}

static int read_canary(fl_stored *s, fletch_error *error) {
    fl_json *root = s->root, *rows = fl_json_get(root, "rows");
    if (!fl_json_is_int(fl_json_get(root, "canary")) ||
        fl_json_int64(fl_json_get(root, "canary")) != FORMAT) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s has format %lld, this fletch reads %d", s->path,
                       (long long)fl_json_int64(fl_json_get(root, "canary")), FORMAT);
    }
    if (!fl_json_is(rows, FL_JSON_ARRAY) || fl_json_count(rows) == 0) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s is not a canary file: it has no rows", s->path);
    }
    s->model    = fl_json_text(fl_json_get(root, "model"));
    s->fletch   = fl_json_text(fl_json_get(root, "fletch"));
    s->settings = fl_json_get(root, "settings");
    s->most     = 0; /* a canary is a sample already */
    for (size_t i = 0; i < fl_json_count(rows); i++) {
        fl_json *row = fl_json_item(rows, i);
        if (!fl_json_is(fl_json_get(row, "text"), FL_JSON_STRING))
            return fl_stored_refuse(s, error, "has no text");
        if (fl_json_count(fl_json_get(row, "vector")) == 0)
            return fl_stored_refuse(s, error, "has no vector");
        FL_TRY(take_pair(s, fl_json_get(row, "text"), fl_json_get(row, "vector"), error));
    }
    return 0;
}

/* What Chroma's collection.get() gives: {"ids":[..],"documents":[..],"embeddings":[[..]]}. */
static int read_columns(fl_stored *s, fletch_error *error) {
    fl_json *texts   = fl_json_get(s->root, "documents"),
            *vectors = fl_json_get(s->root, "embeddings");
    if (fl_json_count(texts) != fl_json_count(vectors)) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s has %zu documents and %zu embeddings; get(include=[\"documents\", "
                       "\"embeddings\"]) gives both",
                       s->path, fl_json_count(texts), fl_json_count(vectors));
    }
    for (size_t i = 0; i < fl_json_count(texts); i++)
        FL_TRY(take_pair(s, fl_json_item(texts, i), fl_json_item(vectors, i), error));
    return 0;
}

static fl_exit read_object(fl_stored *s) {
    fletch_error error  = {0};
    int          status = fl_json_read(&s->root, s->path, FILE_MAX, &error);
    if (status == 0 && fl_json_is(fl_json_get(s->root, "canary"), FL_JSON_NUMBER)) {
        status = read_canary(s, &error);
    } else if (status == 0 && fl_json_is(fl_json_get(s->root, "documents"), FL_JSON_ARRAY)) {
        status = read_columns(s, &error);
    } else if (status == 0) {
        status = fl_fail(&error, FLETCH_EMODEL, FLETCH_NOWHERE,
                         "%s is not a canary file: it has no \"canary\"; `fletch canary` writes "
                         "one, and `fletch help verify` lists the other formats",
                         s->path);
    }
    return status < 0 ? fl_stored_fail(&error) : FL_EXIT_DONE;
}

/* ---- Which kind ------------------------------------------------------------------------------ */

/* The first bytes, and how many. */
static int read_head(const char *path, char head[HEAD], size_t *size, fletch_error *error) {
    int fd = fl_regular_open(path, NULL, error);
    if (fd < 0)
        return fd;
    ssize_t got = read(fd, head, HEAD);
    fl_close(fd);
    *size = got > 0 ? (size_t)got : 0;
    return 0;
}

static bool begins(const char *head, size_t size, const char *magic) {
    return size >= strlen(magic) && memcmp(head, magic, strlen(magic)) == 0;
}

/* The first byte that is no white space; 0: there is none. */
static char first_sign(const char *head, size_t size) {
    size_t at = 0;
    while (at < size && isspace((unsigned char)head[at]) != 0)
        at++;
    return at < size ? head[at] : '\0';
}

static fl_exit read_kind(fl_stored *s, fl_cli *cli) {
    char         head[HEAD];
    size_t       size  = 0;
    fletch_error error = {0};
    if (fl_folder_exists(s->path))
        return fl_stored_job(s, cli);
    if (read_head(s->path, head, &size, &error) < 0)
        return fl_stored_fail(&error);
    if (begins(head, size, "\x93NUMPY") || begins(head, size, "PK\x03\x04") ||
        fl_path_ends_with(s->path, ".npy") || fl_path_ends_with(s->path, ".npz"))
        return fl_stored_npy(s, cli);
    if (cli->args.input_count > 0) {
        return fl_cli_usage(cli, "--input is for .npy and .npz files; %s has its own texts",
                            s->path);
    }
    if (begins(head, size, "SQLite format 3"))
        return fl_stored_sqlite(s, cli);
    if (begins(head, size, "PAR1"))
        return fl_cli_usage(cli, "%s is a Parquet file; use python -m fletch.verify", s->path);
    fl_input_format format = fl_input_format_of(cli, s->path);
    const bool      open   = format == FL_INPUT_LINES || format == FL_INPUT_JSON;
    if (open && first_sign(head, size) != '[')
        return read_object(s);
    return fl_stored_records(s, cli, open ? FL_INPUT_JSON : format);
}

fl_exit fl_stored_read(fl_stored *s, fl_cli *cli, const char *path) {
    const char *most = cli->args.value[FL_FLAG_SAMPLE];
    char       *end  = NULL;
    *s               = (fl_stored){.path = path, .most = SAMPLE, .stride = 1};
    if (most != NULL) {
        s->most = strtoull(most, &end, 10);
        if (isdigit((unsigned char)most[0]) == 0 || *end != '\0' || s->most > INT32_MAX) {
            return fl_cli_usage(cli, "--sample takes a number of rows, 0 for all, not '%.64s'",
                                most);
        }
    }
    FL_CLI_TRY(read_kind(s, cli));
    if (s->count == 0) {
        fl_cli_message("%s has no rows%s", path,
                       s->left_out > 0 ? " with both a text and a vector" : "");
        return FL_EXIT_MODEL;
    }
    return FL_EXIT_DONE;
}

void fl_stored_free(fl_stored *s) {
    for (size_t i = 0; i < s->count; i++)
        fl_free(s->rows[i].text);
    fl_free(s->rows);
    fl_free(s->then);
    fl_buf_free(&s->numbers);
    fl_json_free(s->root);
}
