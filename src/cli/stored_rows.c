/* SPDX-License-Identifier: Apache-2.0 */
/* stored_rows.c - vectors that are the rows of a matrix, and texts from elsewhere: .npy, .npz, jobs.
 *
 * Role    stored.c calls it.
 * Method  A .npy file is mapped and its rows are paired with the texts in their order: those of --input, or of a job's
 *         rows or inputs (job_again.c). As many of one as of the other, or somebody has mixed two files up. Of an
 *         .npz file the array named --vector-field or like one of vectors is taken, else its first.
 * Memory  a window of texts; the mapping. Proof tests/cli/test_cli_verify_files.py. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/manifest.h"
#include "cli/stored.h"

enum {
    WINDOW       = 1024,
    WINDOW_BYTES = 4 << 20,
    NPY_HEAD     = 10,
    HEADER_MAX   = 64 * 1024,
    ZIP_HEAD     = 30
};

/* A matrix of float32, or of float64, in a mapped file. */
typedef struct matrix {
    const unsigned char *data;
    uint64_t             rows, columns;
    bool                 wide;
} matrix;

/* The texts of one file after the other. */
typedef struct texts {
    fl_cli   *cli;
    fl_input  in;
    fl_window window;
    size_t    file, at;  /* of --input; of the window */
    bool      open, job; /* job: what it left out is no news */
} texts;

/* ---- Matrices -------------------------------------------------------------------------------- */

static uint64_t little(const unsigned char *at, size_t size) {
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

static int fail_npy(const fl_stored *s, const char *what, fletch_error *error) {
    return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: %s", s->path, what);
}

/* What stands behind 'name': in the header; NULL: it is not there. */
static const char *value_of(const char *header, const char *name) {
    const char *at = strstr(header, name);
    at             = at != NULL ? strchr(at, ':') : NULL;
    return at != NULL ? at + 1 + strspn(at + 1, " ") : NULL;
}

/* "(18, 32)" as numpy writes it; a number too large for its type is the largest. */
static bool read_shape(const char *shape, uint64_t *rows, uint64_t *columns) {
    char *end = NULL;
    if (shape[0] != '(' || isdigit((unsigned char)shape[1]) == 0)
        return false;
    *rows = strtoull(shape + 1, &end, 10);
    if (strncmp(end, ", ", 2) != 0 || isdigit((unsigned char)end[2]) == 0)
        return false;
    *columns = strtoull(end + 2, &end, 10);
    return *end == ')';
}

static int read_header(const fl_stored *s, const char *header, matrix *m, fletch_error *error) {
    const char *type  = value_of(header, "'descr'");
    const char *order = value_of(header, "'fortran_order'");
    const char *shape = value_of(header, "'shape'");
    if (type == NULL || order == NULL || shape == NULL || strncmp(order, "False", 5) != 0 ||
        !read_shape(shape, &m->rows, &m->columns))
        return fail_npy(s, "not a C-contiguous matrix with one vector per row", error);
    m->wide = strncmp(type, "'<f8'", 5) == 0;
    if (!m->wide && strncmp(type, "'<f4'", 5) != 0) {
        return fl_fail(
            error, FLETCH_EMODEL, FLETCH_NOWHERE,
            "%s: its dtype is %.*s; only float32 ('<f4') and float64 ('<f8') can be compared",
            s->path, (int)strcspn(type, ",}"), type);
    }
    return 0;
}

/* The array that begins at data[at]. */
static int find_matrix(const fl_stored *s, const fl_map *map, size_t at, matrix *m,
                       fletch_error *error) {
    char        *header;
    const size_t left  = map->size - at;
    const size_t field = left > NPY_HEAD + 2 && map->data[at + 6] == 1 ? 2 : 4;
    const size_t head  = 8 + field;
    if (left < NPY_HEAD + 2 || memcmp(map->data + at, "\x93NUMPY", 6) != 0)
        return fail_npy(s, "no array of numpy", error);
    const uint64_t size = little(map->data + at + 8, field);
    if (size > HEADER_MAX || size > left - head)
        return fail_npy(s, "truncated in its header", error);
    header = fl_strndup((const char *)map->data + at + head, (size_t)size);
    if (header == NULL)
        return fl_fail_nomem(error, (size_t)size, "a header");
    int status = read_header(s, header, m, error);
    fl_free(header);
    FL_TRY(status);
    const uint64_t room = (left - head - size) / (m->wide ? sizeof(double) : sizeof(float));
    m->data             = map->data + at + head + size;
    if (m->columns == 0 || m->rows > room / m->columns) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s is truncated: %" PRIu64 " vectors of %" PRIu64
                       " numbers do not fit into it",
                       s->path, m->rows, m->columns);
    }
    return 0;
}

/* Where in the archive the array begins. */
static int find_entry(const fl_stored *s, const fl_cli *cli, const fl_map *map, size_t *out,
                      fletch_error *error) {
    size_t at = 0, first = SIZE_MAX;
    while (map->size - at > ZIP_HEAD && memcmp(map->data + at, "PK\x03\x04", 4) == 0) {
        const unsigned char *head  = map->data + at;
        const size_t         named = (size_t)little(head + 26, 2);
        const size_t         extra = (size_t)little(head + 28, 2);
        uint64_t             size  = little(head + 18, 4);
        const size_t         data  = ZIP_HEAD + named + extra;
        if (data > map->size - at)
            break;
        if (little(head + 8, 2) != 0)
            return fail_npy(s, "its arrays are compressed; use numpy.savez", error);
        if (size == UINT32_MAX && extra >= 20) /* zip64: both sizes, packed and plain, first */
            size = little(head + ZIP_HEAD + named + 4, 8);
        const char *name = (const char *)head + ZIP_HEAD;
        const bool  npy  = named > 4 && memcmp(name + named - 4, ".npy", 4) == 0;
        first            = npy && first == SIZE_MAX ? at + data : first;
        if (npy && fl_stored_is_vector(cli, name, named - 4)) {
            *out = at + data;
            return 0;
        }
        if (size > map->size - at - data)
            break;
        at += data + (size_t)size;
    }
    const char *given = cli->args.value[FL_FLAG_VECTOR_FIELD];
    *out              = first;
    return first != SIZE_MAX && given == NULL
               ? 0
               : fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s has no array%s%s", s->path,
                         given != NULL ? " named " : "", given != NULL ? given : "");
}

static int open_matrix(const fl_stored *s, const fl_cli *cli, const char *path, fl_map *map,
                       matrix *m, fletch_error *error) {
    size_t at = 0;
    FL_TRY(fl_map_open(map, path, error));
    int status =
        map->size >= 4 && memcmp(map->data, "PK", 2) == 0 ? find_entry(s, cli, map, &at, error) : 0;
    return status < 0 ? status : find_matrix(s, map, at, m, error);
}

/* ---- Texts ----------------------------------------------------------------------------------- */

static void close_texts(texts *t) {
    if (t->open)
        fl_input_close(&t->in);
    t->open = false;
}

/* One more text in the window's place t->at: 1, 0 at the end of all files, or a status. */
static int next_text(texts *t, fletch_error *error) {
    const fl_args *args = &t->cli->args;
    for (t->at++; t->at >= t->window.count; t->at = 0) {
        int more = t->open ? fl_input_next(&t->in, &t->window, WINDOW, WINDOW_BYTES) : 0;
        if (more < 0) {
            *error = t->in.error;
            return error->code;
        }
        if (more > 0)
            continue;
        close_texts(t);
        t->window.count = 0;
        if (t->file == args->input_count)
            return 0;
        const char          *path  = args->inputs[t->file++];
        const fl_input_piece piece = {path, fl_input_format_of(t->cli, path), 0, 0};
        t->open                    = true;
        if (fl_input_open_piece(&t->in, t->cli, "", &piece) != FL_EXIT_DONE) {
            return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s has no texts that can be read",
                           path);
        }
        t->in.silent      = t->job;
        t->in.skip_errors = t->job;
    }
    return 1;
}

/* The rows of one matrix, each with the next text. */
static int take_matrix(fl_stored *s, const matrix *m, texts *t, fletch_error *error) {
    if (m->rows == 0) /* and its columns may be any number */
        return 0;
    const size_t columns = (size_t)m->columns;
    float       *row     = fl_alloc_array(columns, sizeof *row);
    int          status = row == NULL ? fl_fail_nomem(error, columns * sizeof *row, "a vector") : 0;
    for (uint64_t i = 0; status == 0 && i < m->rows; i++) {
        const size_t at = (size_t)i * columns;
        for (size_t k = 0; k < columns && m->wide; k++) {
            double value;
            memcpy(&value, m->data + (at + k) * sizeof value, sizeof value);
            row[k] = (float)value;
        }
        if (!m->wide)
            memcpy(row, m->data + at * sizeof *row, columns * sizeof *row);
        const int more = next_text(t, error);
        status         = more < 0 ? more : 0;
        if (more == 0) {
            status =
                fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                        "%s has more vectors than there are texts: %" PRIu64, s->path, s->seen);
        }
        if (status == 0) {
            status = fl_stored_take(s, t->window.texts[t->at], t->window.sizes[t->at], row, columns,
                                    error);
        }
    }
    fl_free(row);
    return status;
}

/* After the last vector there must be no text. */
static int expect_end(const fl_stored *s, texts *t, fletch_error *error) {
    const int more = next_text(t, error);
    return more <= 0
               ? more
               : fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                         "%s has %" PRIu64 " vectors, but there are more texts", s->path, s->seen);
}

fl_exit fl_stored_npy(fl_stored *s, fl_cli *cli) {
    fletch_error error = {0};
    fl_map       map   = {0};
    matrix       m     = {0};
    texts        t     = {.cli = cli};
    if (cli->args.input_count != 1) {
        return fl_cli_usage(
            cli,
            "%s holds only vectors; name the file of their texts, in the same order, with --input",
            s->path);
    }
    int status = open_matrix(s, cli, s->path, &map, &m, &error);
    status     = status == 0 ? take_matrix(s, &m, &t, &error) : status;
    status     = status == 0 ? expect_end(s, &t, &error) : status;
    close_texts(&t);
    fl_window_free(&t.window);
    fl_map_close(&map);
    return status < 0 ? fl_stored_fail(&error) : FL_EXIT_DONE;
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

static int take_part(fl_stored *s, const fl_filejob *job, uint64_t number, texts *t,
                     fletch_error *error) {
    char        name[FL_PART_NAME], path[PATH_MAX];
    fl_manifest manifest;
    fl_map      map = {0};
    matrix      m   = {0};
    (void)fl_filejob_part(job, number, name);
    fl_filejob_path(job, name, job->suffix, path);
    fl_manifest_state state = fl_manifest_read(&manifest, job, name, error);
    if (state == FL_MANIFEST_ABSENT) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s of %s is not done; continue the job with the command that began it",
                       name, s->path);
    }
    int status = state == FL_MANIFEST_DAMAGED ? FLETCH_EMODEL
                                              : open_matrix(s, t->cli, path, &map, &m, error);
    status     = status == 0 ? take_matrix(s, &m, t, error) : status;
    fl_map_close(&map);
    return status;
}

static fl_exit take_parts(fl_stored *s, const fl_filejob *job, fl_cli *cli) {
    fletch_error error  = {0};
    texts        t      = {.cli = cli, .job = true};
    int          status = 0;
    if (strcmp(job->suffix, "npy") != 0 || strcmp(job->dtype, "float32") != 0) {
        fl_cli_message(
            "%s holds .%s files of %s; only jobs with float32 .npy files can be compared", s->path,
            job->suffix, job->dtype);
        return FL_EXIT_MODEL;
    }
    for (uint64_t number = 0; status == 0 && number < job->parts; number++)
        status = take_part(s, job, number, &t, &error);
    status = status == 0 ? expect_end(s, &t, &error) : status;
    close_texts(&t);
    fl_window_free(&t.window);
    return status < 0 ? fl_stored_fail(&error) : FL_EXIT_DONE;
}

fl_exit fl_stored_job(fl_stored *s, fl_cli *cli) {
    fl_filejob_again again = {.rows = false};
    if (cli->args.input_count > 0) {
        return fl_cli_usage(cli, "%s is the folder of a job, which names its texts; omit --input",
                            s->path);
    }
    fl_exit code = fl_filejob_again_take(&again, cli, s->path, true);
    code         = code == FL_EXIT_DONE ? take_parts(s, &again.old, cli) : code;
    if (code == FL_EXIT_DONE) {
        s->root     = again.text;
        again.text  = NULL;
        s->model    = fl_json_text(fl_json_get(s->root, "model"));
        s->fletch   = fl_json_text(fl_json_get(s->root, "fletch"));
        s->settings = fl_json_get(s->root, "options");
    }
    cli->args.input_count = 0; /* their names go with `again` */
    fl_filejob_again_close(&again);
    return code == FL_EXIT_FAILED ? FL_EXIT_MODEL : code;
}
