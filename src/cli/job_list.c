/* SPDX-License-Identifier: Apache-2.0 */
/* job_list.c - what --input names as a sorted list of files, and how each is cut into parts.
 *
 * Role    cmd_run.c; every worker of a job must come to the same list.
 * Method  A folder is read with all below it; names that begin with '.' or '_' are passed over, as Hadoop, Spark
 *         and Ray do. Paths are sorted byte by byte and each is taken once. Lines of plain text are cut every
 *         --split-bytes: a record belongs to the part in whose range its first byte lies, so that a bad line
 *         shifts no other part. What is packed, has a frame (json, csv) or is not UTF-8 is one part.
 *         The sample, SHA-256 of the first and last 4 KiB, tells a file from another of its size without reading
 *         it; times are not compared, since copies on other hosts have their own.
 * Memory  about 300 bytes a file. Threads: none. Proof tests/cli/test_cli_run.py. */
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "cli/job.h"
#include "cli/stream.h"

enum { DEPTH_MAX = 64, SAMPLE = 4096 };

static fl_exit add(fl_filejob *job, const char *path) {
    if ((job->input_count & (job->input_count - 1)) == 0) { /* doubles when it is full */
        size_t            room = job->input_count == 0 ? 1 : job->input_count * 2;
        fl_filejob_input *more = fl_realloc_array(job->inputs, room, sizeof *more);
        if (more == NULL)
            return fl_cli_no_memory();
        job->inputs = more;
    }
    while (path[0] == '.' && path[1] == '/') /* "./in" and "in" are one */
        path += 1 + strspn(path + 1, "/");
    fl_filejob_input *input = &job->inputs[job->input_count];
    *input                  = (fl_filejob_input){.path = fl_strdup(path)};
    if (input->path == NULL)
        return fl_cli_no_memory();
    job->input_count++;
    return FL_EXIT_DONE;
}

static fl_exit add_path(fl_filejob *job, const char *path, unsigned depth);

static fl_exit add_folder(fl_filejob *job, const char *path, unsigned depth) {
    if (depth == DEPTH_MAX) {
        fl_cli_message("%s: more than %d folders deep; is there a symbolic link loop?", path,
                       DEPTH_MAX);
        return FL_EXIT_FAILED;
    }
    DIR *folder = opendir(path);
    if (folder == NULL) {
        fl_cli_message("cannot open %s: %s", path, strerror(errno));
        return FL_EXIT_FAILED;
    }
    fl_exit code = FL_EXIT_DONE;
    for (struct dirent *entry; code == FL_EXIT_DONE && (entry = readdir(folder)) != NULL;) {
        char         below[PATH_MAX];
        fletch_error error;
        if (entry->d_name[0] == '.' || entry->d_name[0] == '_')
            continue;
        code = fl_path_join(below, sizeof below, path, entry->d_name, &error) < 0
                   ? fl_cli_fail(&error, false)
                   : add_path(job, below, depth + 1);
    }
    (void)closedir(folder);
    return code;
}

static fl_exit add_path(fl_filejob *job, const char *path, unsigned depth) {
    struct stat status;
    if (stat(path, &status) != 0) {
        fl_cli_message("cannot open %s: %s", path, strerror(errno));
        return FL_EXIT_FAILED;
    }
    if (S_ISDIR(status.st_mode))
        return add_folder(job, path, depth);
    if (!S_ISREG(status.st_mode)) {
        fl_cli_message("%s is not a regular file; a job needs files that can be read again", path);
        return FL_EXIT_USAGE;
    }
    return add(job, path);
}

static fl_exit add_pattern(fl_filejob *job, const char *path) {
    struct stat status;
    if (strpbrk(path, "*?[") == NULL || lstat(path, &status) == 0)
        return add_path(job, path, 0);
    glob_t  found;
    fl_exit code = FL_EXIT_DONE;
    if (glob(path, 0, NULL, &found) != 0) {
        fl_cli_message("no file matches %s", path);
        return FL_EXIT_FAILED;
    }
    for (size_t i = 0; code == FL_EXIT_DONE && i < found.gl_pathc; i++)
        code = add_path(job, found.gl_pathv[i], 0);
    globfree(&found);
    return code;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const fl_filejob_input *)a)->path, ((const fl_filejob_input *)b)->path);
}

static void sort_once(fl_filejob *job) {
    size_t kept = 0;
    qsort(job->inputs, job->input_count, sizeof *job->inputs, by_path);
    for (size_t i = 0; i < job->input_count; i++)
        if (kept > 0 && strcmp(job->inputs[kept - 1].path, job->inputs[i].path) == 0)
            fl_free(job->inputs[i].path);
        else
            job->inputs[kept++] = job->inputs[i];
    job->input_count = kept;
}

/* Size and sample of the file; `head` gets its first bytes. */
static int look(const char *path, uint64_t *size, char sample[65], char head[2 * SAMPLE],
                size_t *head_size, fletch_error *error) {
    int fd = fl_regular_open(path, size, error);
    if (fd < 0)
        return fd;
    int     result = 0;
    off_t   tail   = *size > SAMPLE ? (off_t)(*size - SAMPLE) : 0;
    ssize_t first  = pread(fd, head, SAMPLE, 0);
    ssize_t last   = first < 0 ? -1 : pread(fd, head + first, SAMPLE, tail);
    if (last < 0) {
        result = fl_fail_errno(error, errno, "cannot read", path);
    } else {
        fl_sha256_hex(head, (size_t)first + (size_t)last, sample);
        *head_size = (size_t)first;
    }
    fl_close(fd);
    return result;
}

int fl_filejob_verify_input(const fl_filejob_input *input, fletch_error *error) {
    char     sample[65], head[2 * SAMPLE];
    uint64_t size      = 0;
    size_t   head_size = 0;
    FL_TRY(look(input->path, &size, sample, head, &head_size, error));
    if (size == input->size && strcmp(sample, input->sample) == 0)
        return 0;
    return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                   "%s has changed since the job began; put it back, or begin another job with "
                   "another --output",
                   input->path);
}

/* A job whose parts were its own input would never end. `folder` is resolved. */
static fl_exit refuse_own_parts(const fl_filejob *job, const char *folder) {
    const size_t size = strlen(folder);
    for (size_t i = 0; i < job->input_count; i++) {
        char path[PATH_MAX];
        if (realpath(job->inputs[i].path, path) != NULL && strncmp(path, folder, size) == 0 &&
            path[size] == '/') {
            fl_cli_message("%s is inside the output folder; a job does not read what it writes",
                           job->inputs[i].path);
            return FL_EXIT_USAGE;
        }
    }
    return FL_EXIT_DONE;
}

/* Neither may the output lie below a folder that is read: the next run would find the parts there. */
static fl_exit refuse_output_inside(const fl_cli *cli, const char *folder) {
    for (size_t i = 0; i < cli->args.input_count; i++) {
        char         path[PATH_MAX];
        const char  *input = cli->args.inputs[i];
        const size_t size  = realpath(input, path) != NULL ? strlen(path) : 0;
        bool         root  = size == 1; /* "/" ends with its slash */
        if (size > 0 && fl_folder_exists(input) && strncmp(folder, path, size) == 0 &&
            (root || folder[size] == '/' || folder[size] == '\0')) {
            fl_cli_message("the output folder is inside %s, which the job reads; write elsewhere",
                           input);
            return FL_EXIT_USAGE;
        }
    }
    return FL_EXIT_DONE;
}

/* The folder that `path` will be once it is made: its nearest ancestor that is there, resolved, and the rest. */
static bool resolve(const char *path, char out[PATH_MAX]) {
    char   above[PATH_MAX];
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/')
        size--;
    (void)snprintf(above, sizeof above, "%.*s", (int)size, path);
    if (realpath(above, out) != NULL)
        return true;
    char       *slash = strrchr(above, '/');
    const char *last  = slash != NULL ? slash + 1 : above;
    char        folder[PATH_MAX];
    if (slash == NULL) {
        (void)snprintf(folder, sizeof folder, ".");
    } else {
        (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - above) + (slash == above),
                       above);
    }
    char         below[PATH_MAX];
    fletch_error error;
    return resolve(folder, below) && fl_path_join(out, PATH_MAX, below, last, &error) == 0;
}

static fl_exit cut(fl_filejob *job, const fl_cli *cli) {
    for (size_t i = 0; i < job->input_count; i++) {
        fl_filejob_input *input = &job->inputs[i];
        char              head[2 * SAMPLE];
        size_t            head_size = 0;
        fletch_error      error;
        if (look(input->path, &input->size, input->sample, head, &head_size, &error) < 0)
            return fl_cli_fail(&error, false);
        if (head_size >= 4 && memcmp(head, "PAR1", 4) == 0)
            return fl_cli_usage(cli, "%s is a Parquet file; use python -m fletch.job", input->path);
        input->format = fl_input_format_of(cli, input->path);
        bool lines    = input->format == FL_INPUT_LINES || input->format == FL_INPUT_JSONL;
        if (input->format == FL_INPUT_LINES && cli->args.value[FL_FLAG_ID_FIELD] != NULL) {
            return fl_cli_usage(cli, "%s is read as lines, which have no fields; omit --id-field",
                                input->path);
        }
        input->whole  = !lines || !fl_stream_is_plain(head, head_size);
        input->extent = input->size;
        input->parts  = 1;
        if (!input->whole && input->size > 0)
            input->parts = (input->size - 1) / job->split_bytes + 1;
        input->first = job->parts;
        job->parts += input->parts;
    }
    return FL_EXIT_DONE;
}

fl_exit fl_filejob_list(fl_filejob *job, const fl_cli *cli) {
    char folder[PATH_MAX];
    for (size_t i = 0; i < cli->args.input_count; i++)
        FL_CLI_TRY(add_pattern(job, cli->args.inputs[i]));
    if (job->input_count == 0) {
        fl_cli_message("no file found in %s", cli->args.inputs[0]);
        fl_cli_hint("names that begin with '.' or '_' are ignored");
        return FL_EXIT_FAILED;
    }
    sort_once(job);
    if (resolve(job->folder, folder)) {
        FL_CLI_TRY(refuse_output_inside(cli, folder));
        FL_CLI_TRY(refuse_own_parts(job, folder));
    }
    return cut(job, cli);
}
