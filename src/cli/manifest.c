/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.c - write and read the manifest of a part.
 *
 * Role    part.c writes it last; cmd_run.c, job_check.c and job_merge.c believe nothing but it.
 * Format  One JSON object on one line. Its last member, "manifest", is the SHA-256 of the text before it, so that a
 *         manifest that was cut short or changed by hand is none. It is renamed into place but not synced:
 *         after a power cut it may be torn, and then the part is done again.
 * Memory  one small file. Threads: none. Proof tests/cli/test_cli_run.py. */
#include "cli/manifest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_w.h"
#include "base/sha256.h"

enum { MANIFEST_MAX = 64 * 1024, SEAL = 64 };

/* What stands between the text that is sealed and its digest, and after that. */
static const char seal_before[] = ",\"manifest\":\"", seal_after[] = "\"}\n";

static void put_text(const fl_manifest *manifest, const fl_filejob *job, const char *name,
                     fl_buf *out) {
    fl_json_w w = {.out = out};
    char      hex[65];
    fl_json_w_object(&w, NULL);
    fl_json_w_text(&w, "part", name);
    fl_json_w_text(&w, "job", job->digest);
    fl_json_w_u64(&w, "begin", manifest->begin);
    fl_json_w_u64(&w, "end", manifest->end);
    fl_json_w_text(&w, "input_sha256", manifest->input_sha256);
    fl_json_w_u64(&w, "rows", manifest->rows);
    fl_json_w_u64(&w, "refused", manifest->refused);
    fl_json_w_u64(&w, "tokens", manifest->tokens);
    fl_json_w_u64(&w, "truncated", manifest->truncated);
    fl_json_w_raw(&w, "seconds");
    fl_buf_printf(out, "%.3f", manifest->seconds);
    fl_json_w_array(&w, "files");
    for (size_t i = 0; i < 2; i++) {
        const fl_part_file *file = &manifest->file[i];
        if (file->name[0] == '\0')
            continue;
        fl_json_w_object(&w, NULL);
        fl_json_w_text(&w, "name", file->name);
        fl_json_w_u64(&w, "bytes", file->bytes);
        fl_json_w_text(&w, "sha256", file->sha256);
        fl_json_w_end(&w);
    }
    fl_json_w_end(&w);
    if (!out->failed) {
        fl_sha256_hex(out->data, out->size, hex);
        fl_buf_printf(out, "%s%s%s", seal_before, hex, seal_after);
    }
}

int fl_manifest_write(const fl_manifest *manifest, const fl_filejob *job, const char *name,
                      fletch_error *error) {
    fl_buf text = {0};
    char   path[PATH_MAX];
    fl_filejob_path(job, name, "json", path);
    put_text(manifest, job, name, &text);
    fl_signals_hold(); /* short enough that a signal waits for it */
    int status = text.failed ? fl_fail_nomem(error, text.size, "a manifest")
                             : fl_atomic_put(path, text.data, text.size, FL_ATOMIC_CHECKED, error);
    fl_signals_release();
    fl_buf_free(&text);
    return status;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static int fail_damaged(const char *path, const char *why, fletch_error *error) {
    return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "%s %s", path, why);
}

/* Whether the text ends with the digest of what stands before it. */
static bool is_sealed(const char *text, size_t size) {
    const size_t before = sizeof seal_before - 1, after = sizeof seal_after - 1;
    char         hex[65];
    if (size < before + SEAL + after)
        return false;
    const char *end = text + size - before - SEAL - after;
    if (memcmp(end, seal_before, before) != 0 ||
        memcmp(text + size - after, seal_after, after) != 0)
        return false;
    fl_sha256_hex(text, (size_t)(end - text), hex);
    return memcmp(end + before, hex, SEAL) == 0;
}

static void copy(char *out, size_t capacity, const char *text) {
    (void)snprintf(out, capacity, "%s", text != NULL ? text : "");
}

static int read_members(fl_manifest *manifest, fl_json *root, const char *path,
                        fletch_error *error) {
    fl_json_reader in   = {.object = root, .source = path, .error = error};
    manifest->begin     = (uint64_t)fl_json_int(&in, "begin", 0, 0, INT64_MAX);
    manifest->end       = (uint64_t)fl_json_int(&in, "end", 0, 0, INT64_MAX);
    manifest->rows      = (uint64_t)fl_json_int(&in, "rows", 0, 0, INT64_MAX);
    manifest->refused   = (uint64_t)fl_json_int(&in, "refused", 0, 0, INT64_MAX);
    manifest->tokens    = (uint64_t)fl_json_int(&in, "tokens", 0, 0, INT64_MAX);
    manifest->truncated = (uint64_t)fl_json_int(&in, "truncated", 0, 0, INT64_MAX);
    manifest->seconds   = fl_json_double(&in, "seconds", 0);
    copy(manifest->input_sha256, sizeof manifest->input_sha256,
         fl_json_string(&in, "input_sha256", ""));
    fl_json *files = fl_json_array(&in, "files");
    for (size_t i = 0; i < fl_json_count(files) && i < 2 && in.status == 0; i++) {
        fl_json_reader one  = {.object = fl_json_item(files, i), .source = path, .error = error};
        fl_part_file  *file = &manifest->file[i];
        copy(file->name, sizeof file->name, fl_json_string(&one, "name", ""));
        file->bytes = (uint64_t)fl_json_int(&one, "bytes", 0, 0, INT64_MAX);
        copy(file->sha256, sizeof file->sha256, fl_json_string(&one, "sha256", ""));
        in.status = one.status;
    }
    return in.status;
}

/* The files are the part's own, and as large as the manifest says. */
static int compare_files(const fl_manifest *manifest, const fl_filejob *job, const char *name,
                         fletch_error *error) {
    const size_t size = strlen(name);
    for (size_t i = 0; i < 2 && manifest->file[i].name[0] != '\0'; i++) {
        const fl_part_file *file = &manifest->file[i];
        char                path[PATH_MAX];
        struct stat         status;
        if (strncmp(file->name, name, size) != 0 || file->name[size] != '.' ||
            strchr(file->name, '/') != NULL) {
            return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                           "the manifest of %s names the file of another part", name);
        }
        fl_filejob_path(job, name, file->name + size + 1, path);
        if (stat(path, &status) != 0)
            return fl_fail_errno(error, errno, "cannot find", path);
        if (!S_ISREG(status.st_mode) || (uint64_t)status.st_size != file->bytes) {
            return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                           "%s has %llu bytes, its manifest says %llu", path,
                           (unsigned long long)status.st_size, (unsigned long long)file->bytes);
        }
    }
    return manifest->file[0].name[0] != '\0' ? 0
                                             : fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                                                       "the manifest of %s names no file", name);
}

fl_manifest_state fl_manifest_read(fl_manifest *manifest, const fl_filejob *job, const char *name,
                                   fletch_error *error) {
    char     path[PATH_MAX];
    fl_buf   text = {0};
    fl_json *root = NULL;
    memset(manifest, 0, sizeof *manifest);
    fl_filejob_path(job, name, "json", path);
    int status = fl_file_read(path, MANIFEST_MAX, &text, error);
    if (status == FLETCH_ENOTFOUND)
        return FL_MANIFEST_ABSENT;
    if (status == 0 && !is_sealed(text.data, text.size))
        status = fail_damaged(path, "is truncated or was modified", error);
    if (status == 0)
        status = fl_json_parse(&root, text.data, text.size, MANIFEST_MAX, 0, path, error);
    if (status == 0) {
        const char *of = fl_json_text(fl_json_get(root, "job")),
                   *is = fl_json_text(fl_json_get(root, "part"));
        if (of == NULL || strcmp(of, job->digest) != 0)
            status = fail_damaged(path, "belongs to another job", error);
        else if (is == NULL || strcmp(is, name) != 0)
            status = fail_damaged(path, "belongs to another part", error);
    }
    status = status == 0 ? read_members(manifest, root, path, error) : status;
    status = status == 0 ? compare_files(manifest, job, name, error) : status;
    fl_json_free(root);
    fl_buf_free(&text);
    return status == 0 ? FL_MANIFEST_DONE : FL_MANIFEST_DAMAGED;
}
