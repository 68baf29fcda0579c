/* SPDX-License-Identifier: Apache-2.0 */
/* job_merge.c - the parts of a job as one file, in the order of the input.
 *
 * Role    `fletch run --merge FILE`.
 * Method  Rows are copied as they are; of npy the header is written anew with their sum. The rows file of a format
 *         of numbers goes beside FILE, under its name with the extension .jsonl. Both appear when they are whole.
 * Memory  one block. Threads: none. Proof tests/cli/test_cli_run.py. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/embedder.h"
#include "cli/manifest.h"

/* The bytes of a part's file from `skip` on. */
static int copy_file(const char *path, uint64_t skip, fl_sink *sink, fletch_error *error) {
    int fd = fl_regular_open(path, NULL, error);
    if (fd < 0)
        return fd;
    if (lseek(fd, (off_t)skip, SEEK_SET) < 0) {
        fl_close(fd);
        return fl_fail_errno(error, errno, "cannot open", path);
    }
    int status = fl_sink_copy(fd, sink, "cannot read", path, error);
    (void)close(fd);
    return status;
}

static int copy_parts(const fl_filejob *job, size_t which, uint64_t skip, fl_sink *sink,
                      fletch_error *error) {
    for (uint64_t number = 0; number < job->parts; number++) {
        char        name[FL_PART_NAME], path[PATH_MAX];
        fl_manifest manifest;
        (void)fl_filejob_part(job, number, name);
        if (fl_manifest_read(&manifest, job, name, error) != FL_MANIFEST_DONE)
            return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "%s is not done", name);
        fl_filejob_path(job, name, manifest.file[which].name + strlen(name) + 1, path);
        FL_TRY(copy_file(path, skip, sink, error));
    }
    return 0;
}

/* Whether the name of the file says the format of the parts; then it with the extension .jsonl in rows[PATH_MAX]. */
static bool name_rows(const fl_filejob *job, const char *path, char rows[PATH_MAX]) {
    const char *slash = strrchr(path, '/');
    const char *dot   = strrchr(slash != NULL ? slash : path, '.');
    if (dot == NULL || strcmp(dot + 1, job->suffix) != 0)
        return false;
    const int whole = snprintf(rows, PATH_MAX, "%.*s.jsonl", (int)(dot - path), path);
    return whole > 0 && whole < PATH_MAX;
}

static bool same_file(const char *path, const struct stat *other) {
    struct stat status;
    return stat(path, &status) == 0 && status.st_dev == other->st_dev &&
           status.st_ino == other->st_ino;
}

/* Whether `path` is in the folder of the job, links followed as the writing follows them. */
static bool is_in_folder(const fl_filejob *job, const char *path) {
    char        real[PATH_MAX];
    struct stat folder;
    if (realpath(path, real) == NULL)
        (void)snprintf(real, sizeof real, "%s", path);
    char *slash = strrchr(real, '/');
    (void)snprintf(slash != NULL ? slash + 1 : real, 2, "%s", slash != NULL ? "" : ".");
    return stat(job->folder, &folder) == 0 && same_file(real, &folder);
}

/* A file of the job that would be replaced: an input, a part. */
static fl_exit check_target(const fl_filejob *job, fl_cli *cli, const char *path) {
    struct stat status;
    const bool  there = stat(path, &status) == 0;
    for (size_t i = 0; there && i < job->input_count; i++) {
        if (same_file(job->inputs[i].path, &status)) {
            return fl_cli_usage(
                cli,
                "%s is an input of this job, and --merge would overwrite it; choose another name",
                path);
        }
    }
    if (is_in_folder(job, path)) {
        return fl_cli_usage(cli,
                            "%s is in the job's folder, where --merge could overwrite a part; "
                            "merge into another folder",
                            path);
    }
    return FL_EXIT_DONE;
}

static int merge(const fl_filejob *job, const fl_filejob_totals *totals, fl_sink *vectors,
                 fl_sink *rows, fletch_error *error) {
    char           header[FL_NPY_HEADER];
    const bool     npy   = strcmp(job->suffix, "npy") == 0;
    const bool     half  = strcmp(job->dtype, "float16") == 0;
    const uint64_t head  = npy ? FL_NPY_HEADER : 0;
    fletch_dtype   dtype = fl_embedder_dtype(job->dtype);
    if (npy) {
        fl_output_rows_header(header, totals->rows, job->dimensions, dtype, half);
        fl_buf_append(&vectors->buf, header, sizeof header);
    }
    FL_TRY(copy_parts(job, 0, head, vectors, error));
    if (rows != NULL)
        FL_TRY(copy_parts(job, 1, 0, rows, error));
    FL_TRY(fl_sink_finish(vectors, NULL, 0, error));
    return rows != NULL ? fl_sink_finish(rows, NULL, 0, error) : 0;
}

fl_exit fl_filejob_merge(const fl_filejob *job, fl_cli *cli, const char *path) {
    fl_filejob_totals totals;
    fletch_error      error;
    char              beside[PATH_MAX];
    fl_sink           vectors = {0}, rows = {0};
    const bool        jsonl = strcmp(job->suffix, "jsonl") == 0;
    if (strcmp(job->suffix, "parquet") == 0) {
        return fl_cli_usage(cli, "Parquet parts need no merging, read them as one data set: "
                                 "pyarrow.dataset.dataset(FOLDER)");
    }
    if (!name_rows(job, path, beside)) {
        return fl_cli_usage(cli, "the parts are %s; --merge needs a file name that ends with .%s",
                            job->suffix, job->suffix);
    }
    FL_CLI_TRY(check_target(job, cli, path));
    FL_CLI_TRY(jsonl ? FL_EXIT_DONE : check_target(job, cli, beside));
    fl_exit code = fl_filejob_check(job, true, &totals);
    if (code != FL_EXIT_DONE && code != FL_EXIT_PARTLY) {
        fl_cli_message("the job is not done; finish it before merging");
        return code;
    }
    int status = fl_sink_open(&vectors, path, false, &error);
    if (status == 0 && !jsonl)
        status = fl_sink_open(&rows, beside, false, &error);
    if (status == 0)
        status = merge(job, &totals, &vectors, jsonl ? NULL : &rows, &error);
    code = status < 0 ? fl_cli_fail(&error, false) : code;
    fl_sink_close(&vectors);
    fl_sink_close(&rows);
    return code;
}
