/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - job.json: what a job is, so that every worker does the same one.
 *
 * Role    cmd_run.c begins or joins a job here, and reads one again to check it.
 * Method  A worker writes down what its results depend on: version, model, options, instruction set, inputs. The first
 *         one gives this text its name by link(2), which fails where the name is taken; every other compares, member
 *         by member, and refuses to mix by naming the first that differs. Nothing in it depends on the
 *         worker, so equal jobs have equal bytes.
 * Memory  the text, about 200 bytes an input. Threads: none. Proof tests/cli/test_cli_run.py. */
#include "cli/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_w.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/sha256.h"
#include "base/utf8.h"

enum { FORMAT = 1 };

const fl_filejob_input *fl_filejob_part(const fl_filejob *job, uint64_t number,
                                        char name[FL_PART_NAME]) {
    size_t low = 0, high = job->input_count;
    while (high - low > 1) { /* the last input whose first part is not beyond it */
        size_t middle = low + (high - low) / 2;
        if (job->inputs[middle].first <= number)
            low = middle;
        else
            high = middle;
    }
    (void)snprintf(name, FL_PART_NAME, "part-%05zu-%05llu", low,
                   (unsigned long long)(number - job->inputs[low].first));
    return &job->inputs[low];
}

void fl_filejob_path(const fl_filejob *job, const char *name, const char *suffix,
                     char out[PATH_MAX]) {
    const char *dot = suffix[0] != '\0' ? "." : "";
    (void)snprintf(out, PATH_MAX, "%s/%s%s%s", job->folder, name, dot, suffix);
}

void fl_filejob_free(fl_filejob *job) {
    for (size_t i = 0; i < job->input_count; i++)
        fl_free(job->inputs[i].path);
    fl_free(job->inputs);
    *job = (fl_filejob){0};
}

/* ---- The text -------------------------------------------------------------------------------- */

static const fl_filejob_choice choices[] = {
    {FL_FLAG_DTYPE, "dtype", "float32"},
    {FL_FLAG_FORMAT, "format", "npy"},
    {FL_FLAG_INPUT_FORMAT, "input_format", ""},
    {FL_FLAG_FIELD, "field", "text"},
    {FL_FLAG_JOIN, "join", " "},
    {FL_FLAG_DELIMITER, "delimiter", ""},
    {FL_FLAG_NO_HEADER, "no_header", "false"},
    {FL_FLAG_ID_FIELD, "id_field", ""},
    {FL_FLAG_KEEP_FIELDS, "keep_fields", "false"},
    {FL_FLAG_KEEP_TEXT, "keep_text", "false"},
    {FL_FLAG_INVALID_UTF8, "invalid_utf8", "error"},
    {FL_FLAG_MAX_LINE, "max_line", "256MiB"},
    {FL_FLAG_BY, "chunk", NULL},
    {FL_FLAG_SIZE, "chunk_size", NULL},
    {FL_FLAG_OVERLAP, "chunk_overlap", NULL},
    {FL_FLAG_LATE_CHUNKING, "late_chunking", NULL},
};

const fl_filejob_choice *fl_filejob_choice_at(size_t index) {
    return index < sizeof choices / sizeof choices[0] ? &choices[index] : NULL;
}

static void put_path(fl_json_w *w, const char *path) {
    const size_t size = strlen(path);
    if (fl_utf8_valid_prefix(path, size) == size) {
        fl_json_w_bytes(w, "path", path, size);
        return;
    }
    fl_json_w_raw(w, "path_hex"); /* a name that is not UTF-8 has no JSON form */
    fl_buf_putc(w->out, '"');
    for (size_t i = 0; i < size; i++)
        fl_buf_printf(w->out, "%02x", (unsigned char)path[i]);
    fl_buf_putc(w->out, '"');
}

static int put_text(const fl_filejob *job, const fl_cli *cli, fl_buf *out, fletch_error *error) {
    fl_json_w w = {.out = out};
    char      fingerprint[65];
    FL_TRY(fletch_model_fingerprint(cli->model, fingerprint, error));
    fl_json_w_object(&w, NULL);
    fl_json_w_i64(&w, "job", FORMAT);
    fl_json_w_text(&w, "fletch", fletch_version());
    fl_json_w_text(&w, "model", fingerprint);
    fl_json_w_object(&w, "options");
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        const char *given = cli->args.value[choices[i].flag];
        given             = given != NULL ? given : choices[i].otherwise;
        if (given != NULL)
            fl_json_w_text(&w, choices[i].name, given);
    }
    FL_TRY(fl_cli_put_vector_parts(cli->model, &w, error));
    fl_json_w_end(&w);
    fl_json_w_u64(&w, "split_bytes", job->split_bytes);
    fl_json_w_u64(&w, "parts", job->parts);
    fl_json_w_array(&w, "inputs");
    for (size_t i = 0; i < job->input_count; i++) {
        const fl_filejob_input *input = &job->inputs[i];
        fl_buf_putc(out, '\n');
        fl_json_w_object(&w, NULL);
        put_path(&w, input->path);
        fl_json_w_u64(&w, "size", input->size);
        fl_json_w_u64(&w, "extent", input->extent);
        fl_json_w_text(&w, "sample", input->sample);
        fl_json_w_u64(&w, "parts", input->parts);
        fl_json_w_end(&w);
    }
    fl_json_w_end(&w);
    fl_json_w_end(&w);
    fl_buf_putc(out, '\n');
    if (out->failed)
        return fl_fail_nomem(error, out->size, "job.json");
    return fl_utf8_valid_prefix(out->data, out->size) == out->size
               ? 0
               : fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                         "a flag is not valid UTF-8 and cannot be stored in job.json");
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static void tell_value(fl_json *value, char *out, size_t capacity) {
    switch (fl_json_type_of(value)) {
    case FL_JSON_STRING: (void)snprintf(out, capacity, "\"%s\"", fl_json_text(value)); break;
    case FL_JSON_NUMBER:
        (void)snprintf(out, capacity, "%lld", (long long)fl_json_int64(value));
        break;
    case FL_JSON_NONE:
    case FL_JSON_NULL: (void)snprintf(out, capacity, "nothing"); break;
    default: (void)snprintf(out, capacity, "%s", fl_json_kind(value)); break;
    }
}

static fl_exit refuse(const fl_filejob *job, const char *what, const char *key, fl_json *theirs,
                      fl_json *ours) {
    char a[160], b[160];
    tell_value(theirs, a, sizeof a);
    tell_value(ours, b, sizeof b);
    fl_cli_message("%s/job.json belongs to another job: %s%s is %s there and %s here", job->folder,
                   what, key, a, b);
    fl_cli_hint(
        "continue with the options and inputs the job began with, or write to another folder");
    return FL_EXIT_USAGE;
}

static bool same(fl_json *a, fl_json *b) {
    char left[4096], right[4096];
    if (fl_json_type_of(a) != fl_json_type_of(b))
        return false;
    if (fl_json_is(a, FL_JSON_STRING))
        return strcmp(fl_json_text(a), fl_json_text(b)) == 0;
    tell_value(a, left, sizeof left);
    tell_value(b, right, sizeof right);
    return strcmp(left, right) == 0;
}

/* Every member of `ours` against `theirs`; a member of one alone differs from nothing. */
static fl_exit compare(const fl_filejob *job, const char *what, fl_json *theirs, fl_json *ours,
                       bool mixed_isa) {
    FL_JSON_EACH(ours, key, value) {
        fl_json *other = fl_json_get(theirs, key);
        bool     free  = mixed_isa && strcmp(key, "cpu.numerics") == 0;
        if (!free && !fl_json_is(value, FL_JSON_OBJECT) && !fl_json_is(value, FL_JSON_ARRAY) &&
            !same(other, value))
            return refuse(job, what, key, other, value);
    }
    FL_JSON_EACH(theirs, name, given) {
        if (!fl_json_find(ours, name, NULL))
            return refuse(job, what, name, given, NULL);
    }
    return FL_EXIT_DONE;
}

/* A file has any path, here and on other machines: size and sample say whether it is the one. */
static bool same_input(fl_json *a, fl_json *b) {
    static const char *const members[] = {"size", "extent", "sample", "parts"};
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (!same(fl_json_get(a, members[i]), fl_json_get(b, members[i])))
            return false;
    return true;
}

static fl_exit compare_inputs(const fl_filejob *job, fl_json *theirs, fl_json *ours) {
    const size_t count = fl_json_count(ours);
    for (size_t i = 0; i < count && i < fl_json_count(theirs); i++) {
        char what[PATH_MAX + 32];
        (void)snprintf(what, sizeof what, "of input %zu, %s, ", i + 1, job->inputs[i].path);
        fl_json *is = fl_json_item(theirs, i), *want = fl_json_item(ours, i);
        FL_CLI_TRY(same_input(is, want) ? FL_EXIT_DONE : compare(job, what, is, want, false));
    }
    if (fl_json_count(theirs) != count) {
        fl_cli_message("%s/job.json belongs to another job: it has %zu input files, not %zu",
                       job->folder, fl_json_count(theirs), count);
        return FL_EXIT_USAGE;
    }
    return FL_EXIT_DONE;
}

/* The first member that differs, from the general to the special. */
static fl_exit compare_jobs(const fl_filejob *job, fl_json *theirs, fl_json *ours, bool mixed_isa) {
    static const char *const first[] = {"job", "fletch", "split_bytes"};
    for (int i = 0; i < 3; i++) {
        fl_json *is = fl_json_get(theirs, first[i]), *want = fl_json_get(ours, first[i]);
        FL_CLI_TRY(same(is, want) ? FL_EXIT_DONE : refuse(job, "", first[i], is, want));
    }
    FL_CLI_TRY(compare(job, "option ", fl_json_get(theirs, "options"), fl_json_get(ours, "options"),
                       mixed_isa));
    fl_json *is = fl_json_get(theirs, "model"), *want = fl_json_get(ours, "model");
    FL_CLI_TRY(same(is, want) ? FL_EXIT_DONE : refuse(job, "", "model", is, want));
    FL_CLI_TRY(compare_inputs(job, fl_json_get(theirs, "inputs"), fl_json_get(ours, "inputs")));
    return compare(job, "", theirs, ours, false);
}

static fl_exit compare_texts(const fl_filejob *job, fl_buf *theirs, fl_buf *ours, bool mixed_isa) {
    fletch_error error;
    fl_json     *a = NULL, *b = NULL;
    fl_exit      code = FL_EXIT_DONE;
    if (fl_json_parse(&a, theirs->data, theirs->size, FL_FILEJOB_TEXT_MAX, 0, "job.json", &error) <
            0 ||
        fl_json_parse(&b, ours->data, ours->size, FL_FILEJOB_TEXT_MAX, 0, "job.json", &error) < 0) {
        fl_cli_message("%s/job.json is damaged: %s", job->folder, error.message);
        code = FL_EXIT_USAGE;
    }
    code = code == FL_EXIT_DONE ? compare_jobs(job, a, b, mixed_isa) : code;
    fl_json_free(a);
    fl_json_free(b);
    return code;
}

/* ---- In the folder --------------------------------------------------------------------------- */

static void digest_text(fl_filejob *job, const fl_buf *text) {
    fl_sha256_hex(text->data, text->size, job->digest);
}

/* `text` under `path` unless that name is taken. A file system without links gets a rename: the text is then
 * read back and compared like any other. */
static int put_first(const char *path, const fl_buf *text, fletch_error *error) {
    fl_atomic_file file;
    fl_signals_hold();
    int status = fl_atomic_open(&file, path, error);
    if (status == 0)
        status = fl_atomic_write(&file, text->data, text->size, error);
    if (status == 0) {
        int reason = fsync(file.fd) == 0 || errno == EINVAL ? 0 : errno;
        if (reason == 0 && link(file.temporary, path) != 0)
            reason = errno;
        if (reason != 0 && reason != EEXIST && reason != ENOSPC && !fl_file_exists(path))
            status = fl_atomic_commit(&file, error);
        else if (reason != 0 && reason != EEXIST)
            status = fl_fail_errno(error, reason, "cannot write", path);
    }
    fl_atomic_abort(&file);
    fl_signals_release();
    if (status == 0)
        fl_parent_sync(path);
    return status;
}

fl_exit fl_filejob_join(fl_filejob *job, fl_cli *cli) {
    fletch_error error = {0};
    char         path[PATH_MAX];
    fl_buf       ours = {0}, theirs = {0};
    fl_filejob_path(job, "job.json", "", path);
    int     status = put_text(job, cli, &ours, &error);
    fl_exit code   = FL_EXIT_DONE;
    if (status == 0)
        status = fl_folder_make(job->folder, &error);
    if (status == 0 && !fl_file_exists(path))
        status = put_first(path, &ours, &error);
    if (status == 0)
        status = fl_file_read(path, FL_FILEJOB_TEXT_MAX, &theirs, &error);
    if (status < 0) {
        code = fl_cli_fail(&error, false);
    } else if (theirs.size != ours.size || memcmp(theirs.data, ours.data, ours.size) != 0) {
        digest_text(job, &theirs); /* before reading it changes it */
        code = compare_texts(job, &theirs, &ours, cli->args.value[FL_FLAG_MIXED_ISA] != NULL);
    } else {
        digest_text(job, &theirs);
    }
    fl_buf_free(&ours);
    fl_buf_free(&theirs);
    return code;
}

static char *take_path(fl_json_reader *in) {
    const char *path = fl_json_string(in, "path", NULL);
    if (path != NULL)
        return fl_strdup(path);
    const char *hex  = fl_json_string(in, "path_hex", "");
    size_t      size = strlen(hex) / 2;
    char       *out  = fl_alloc_zero(size + 1, 1);
    for (size_t i = 0; out != NULL && i < size; i++) {
        out[i] = (char)((unsigned)fl_hex_digit(hex[2 * i]) << 4 |
                        (unsigned)fl_hex_digit(hex[2 * i + 1]));
    }
    return out;
}

static int read_inputs(fl_filejob *job, fl_json *inputs, const char *path, fletch_error *error) {
    const size_t count = fl_json_count(inputs);
    job->inputs        = fl_alloc_zero(count > 0 ? count : 1, sizeof *job->inputs);
    if (job->inputs == NULL)
        return fl_fail_nomem(error, count * sizeof *job->inputs, "the inputs of a job");
    for (size_t i = 0; i < count; i++) {
        fl_json_reader    in = {.object = fl_json_item(inputs, i), .source = path, .error = error};
        fl_filejob_input *input = &job->inputs[i];
        input->path             = take_path(&in);
        job->input_count++;
        input->size   = (uint64_t)fl_json_int(&in, "size", 0, 0, INT64_MAX);
        input->extent = (uint64_t)fl_json_int(&in, "extent", 0, 0, INT64_MAX);
        input->parts  = (uint64_t)fl_json_int(&in, "parts", 1, 1, INT32_MAX);
        input->first  = job->parts;
        (void)snprintf(input->sample, sizeof input->sample, "%s",
                       fl_json_string(&in, "sample", ""));
        if (input->path == NULL)
            return fl_fail_nomem(error, 1, "a path");
        if (in.status < 0)
            return in.status;
        job->parts += input->parts;
    }
    return 0;
}

fl_exit fl_filejob_read(fl_filejob *job, const char *folder) {
    fletch_error error = {0};
    char         path[PATH_MAX];
    fl_buf       text = {0};
    fl_json     *root = NULL;
    *job              = (fl_filejob){.folder = folder};
    fl_filejob_path(job, "job.json", "", path);
    int status = fl_file_read(path, FL_FILEJOB_TEXT_MAX, &text, &error);
    if (status == FLETCH_ENOTFOUND) {
        fl_cli_message("%s is not a job folder: it has no job.json", folder);
        return FL_EXIT_USAGE;
    }
    if (status < 0)
        return fl_cli_fail(&error, false);
    digest_text(job, &text);
    status = fl_json_parse(&root, text.data, text.size, FL_FILEJOB_TEXT_MAX, 0, path, &error);
    if (status == 0) {
        fl_json_reader in      = {.object = root, .source = path, .error = &error};
        int64_t        version = fl_json_int(&in, "job", 0, 0, INT32_MAX);
        fl_json_reader options = {
            .object = fl_json_object(&in, "options"), .source = path, .error = &error};
        (void)snprintf(job->suffix, sizeof job->suffix, "%s",
                       fl_json_string(&options, "format", "npy"));
        (void)snprintf(job->dtype, sizeof job->dtype, "%s",
                       fl_json_string(&options, "dtype", "float32"));
        job->dimensions = strtoull(fl_json_string(&options, "dimensions", "0"), NULL, 10);
        status          = in.status < 0 ? in.status : options.status;
        if (status == 0 && version != FORMAT) {
            status = fl_fail(
                &error, FLETCH_EIO, FLETCH_NOWHERE,
                "%s was written by another version of fletch: format %lld, this one reads %d", path,
                (long long)version, FORMAT);
        }
        status =
            status == 0 ? read_inputs(job, fl_json_array(&in, "inputs"), path, &error) : status;
    }
    if (status == 0 && job->parts == 0)
        status = fl_fail(&error, FLETCH_EIO, FLETCH_NOWHERE, "%s lists no input", path);
    fl_json_free(root);
    fl_buf_free(&text);
    if (status < 0) {
        fl_cli_message("%s", error.message);
        fl_filejob_free(job);
        return FL_EXIT_USAGE;
    }
    return FL_EXIT_DONE;
}
