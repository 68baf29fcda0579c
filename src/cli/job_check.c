/* SPDX-License-Identifier: Apache-2.0 */
/* job_check.c - whether a job is done: every part once, whole, and every byte of the input in one of them.
 *
 * Role    `fletch run --check`, --finish and --merge; parts that python -m fletch.job wrote as well.
 * Method  The list of parts is job.json's. Of each the manifest is read and the sizes are compared; the ranges of
 *         one input must follow each other from its first byte to its last. Unless it is quick, files are read
 *         again for their digests, and inputs that are still there for the range of each part. Files that
 *         look like parts and are none are told: a reader who takes part-* would take them too.
 *         A hundred thousand manifests that nothing has in memory are as many waits for a disk or a server of files,
 *         so a few threads read AHEAD of them at a time; what they found is looked at in the order of the parts.
 * Memory  AHEAD manifests, 1 MB. Threads: READERS, which read manifests. Proof tests/cli/test_cli_run.py. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json_w.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/sha256.h"
#include "cli/manifest.h"

enum { TOLD_MAX = 20, READERS = 16, AHEAD = 1024 };

typedef struct found {
    fl_manifest       manifest;
    fl_manifest_state state;
    fletch_error      error;
} found;

/* The manifests of parts [begin, end). */
typedef struct ahead {
    const fl_filejob *job;
    fl_team          *team; /* owned; NULL: whoever asks reads alone */
    found            *found;
    uint64_t          begin, end;
} ahead;

static void read_some(void *arg, unsigned member, unsigned size) {
    ahead *a = arg;
    for (uint64_t number = a->begin + member; number < a->end; number += size) {
        char   name[FL_PART_NAME];
        found *f = &a->found[number - a->begin];
        (void)fl_filejob_part(a->job, number, name);
        f->state = fl_manifest_read(&f->manifest, a->job, name, &f->error);
    }
}

static const found *look_up(ahead *a, uint64_t number) {
    if (number >= a->end) {
        a->begin = number;
        a->end   = a->job->parts - number < AHEAD ? a->job->parts : number + AHEAD;
        if (a->team != NULL)
            fl_team_run(a->team, read_some, a);
        else
            read_some(a, 0, 1);
    }
    return &a->found[number - a->begin];
}

/* Tell of one more thing that is wrong; the first TOLD_MAX of them. */
static void tell(const fl_filejob_totals *totals, const char *text) {
    const uint64_t wrong = totals->missing + totals->damaged;
    if (wrong <= TOLD_MAX)
        fl_cli_message("%s", text);
    else if (wrong == TOLD_MAX + 1)
        fl_cli_message("... and more");
}

static void tell_damaged(fl_filejob_totals *totals, const fletch_error *error) {
    totals->damaged++;
    tell(totals, error->message);
}

/* The files of a part and, where the input is still there, its range of it. */
static int compare_content(const fl_filejob *job, const fl_filejob_input *input, const char *name,
                           const fl_manifest *manifest, fletch_error *error) {
    char path[PATH_MAX], hex[65];
    for (size_t i = 0; i < 2 && manifest->file[i].name[0] != '\0'; i++) {
        const fl_part_file *file = &manifest->file[i];
        fl_filejob_path(job, name, file->name + strlen(name) + 1, path);
        FL_TRY(fl_file_sha256(path, hex, error));
        if (strcmp(hex, file->sha256) != 0) {
            return fl_fail(error, FLETCH_ECHECKSUM, FLETCH_NOWHERE,
                           "%s was modified after it was written: its SHA-256 differs", path);
        }
    }
    if (manifest->input_sha256[0] == '\0' || access(input->path, R_OK) != 0)
        return 0;
    FL_TRY(fl_file_sha256_range(input->path, manifest->begin, manifest->end, hex, error));
    return strcmp(hex, manifest->input_sha256) == 0
               ? 0
               : fl_fail(error, FLETCH_ECHECKSUM, FLETCH_NOWHERE,
                         "%s changed after %s was made from it", input->path, name);
}

/* How far the parts of one input cover it, part after part. */
static int follow(const fl_manifest *manifest, const char *name, uint64_t *covered,
                  fletch_error *error) {
    if (manifest->end == 0 && manifest->begin == 0)
        return 0; /* no record begins there */
    if (manifest->begin != *covered) {
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                       "%s begins at %llu of its input, where %llu follows", name,
                       (unsigned long long)manifest->begin, (unsigned long long)*covered);
    }
    *covered = manifest->end;
    return 0;
}

static void count(fl_filejob_totals *totals, const fl_manifest *manifest, fl_buf *digests) {
    totals->done++;
    totals->rows += manifest->rows;
    totals->refused += manifest->refused;
    totals->tokens += manifest->tokens;
    totals->truncated += manifest->truncated;
    for (size_t i = 0; i < 2 && manifest->file[i].name[0] != '\0'; i++) {
        totals->bytes += manifest->file[i].bytes;
        fl_buf_puts(digests, manifest->file[i].sha256);
    }
}

/* Whether the input is the one that was read, by its size, head and tail, where a Parquet file has its footer.
 * Gone ones are counted. */
static int compare_input(const fl_filejob_input *input, fl_filejob_totals *totals,
                         fletch_error *error) {
    if (access(input->path, R_OK) == 0)
        return fl_filejob_verify_input(input, error);
    totals->gone++;
    return 0;
}

static void check_input(ahead *manifests, const fl_filejob_input *input, bool quick,
                        fl_filejob_totals *totals, fl_buf *digests) {
    const fl_filejob *job     = manifests->job;
    uint64_t          covered = 0;
    bool              whole   = true; /* all parts so far */
    fletch_error      changed;
    if (compare_input(input, totals, &changed) < 0) {
        tell_damaged(totals, &changed);
        return;
    }
    for (uint64_t number = input->first; number < input->first + input->parts; number++) {
        char         name[FL_PART_NAME];
        const found *part  = look_up(manifests, number);
        fletch_error error = part->error;
        (void)fl_filejob_part(job, number, name);
        if (part->state == FL_MANIFEST_ABSENT) {
            (void)fl_fail(&error, FLETCH_ENOTFOUND, FLETCH_NOWHERE, "%s is not done", name);
            totals->missing++;
            tell(totals, error.message);
            whole = false;
            continue;
        }
        int status = part->state == FL_MANIFEST_DONE ? 0 : FLETCH_EIO;
        if (status == 0 && !quick)
            status = compare_content(job, input, name, &part->manifest, &error);
        if (status == 0 && whole)
            status = follow(&part->manifest, name, &covered, &error);
        if (status < 0) {
            tell_damaged(totals, &error);
            whole = false;
            continue;
        }
        count(totals, &part->manifest, digests);
    }
    if (whole && covered != input->extent) {
        fletch_error error;
        (void)fl_fail(&error, FLETCH_EIO, FLETCH_NOWHERE,
                      "the parts of %s end at %llu of %llu: the input was not read to the end",
                      input->path, (unsigned long long)covered, (unsigned long long)input->extent);
        tell_damaged(totals, &error);
    }
}

/* Whether "part-00007-00003.npy" is a file of one of the job's parts. */
static bool is_ours(const fl_filejob *job, const char *file) {
    char               name[FL_PART_NAME], *end = NULL;
    const char        *dot   = strchr(file, '.');
    const size_t       size  = dot != NULL ? (size_t)(dot - file) : 0;
    unsigned long long input = strtoull(file + 5, &end, 10);
    unsigned long long split = *end == '-' ? strtoull(end + 1, &end, 10) : 0;
    if (end != dot || input >= job->input_count || split >= job->inputs[input].parts)
        return false;
    (void)fl_filejob_part(job, job->inputs[input].first + split, name);
    return strlen(name) == size && memcmp(name, file, size) == 0 &&
           (strcmp(dot + 1, job->suffix) == 0 || strcmp(dot + 1, "json") == 0 ||
            strcmp(dot + 1, "jsonl") == 0);
}

static void check_strangers(const fl_filejob *job, fl_filejob_totals *totals) {
    DIR *folder = opendir(job->folder);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (strncmp(entry->d_name, "part-", 5) == 0 && !is_ours(job, entry->d_name)) {
            fletch_error error;
            (void)fl_fail(&error, FLETCH_EIO, FLETCH_NOWHERE, "%s/%s is not part of this job",
                          job->folder, entry->d_name);
            tell_damaged(totals, &error);
        }
    }
    if (folder != NULL)
        (void)closedir(folder);
}

void fl_filejob_unfinish(const fl_filejob *job) {
    char path[PATH_MAX];
    fl_filejob_path(job, "_SUCCESS", "", path);
    (void)unlink(path);
}

fl_exit fl_filejob_check(const fl_filejob *job, bool quick, fl_filejob_totals *totals) {
    fl_buf       digests   = {0};
    fletch_error error     = {0};
    ahead        manifests = {.job = job, .found = fl_alloc_zero(AHEAD, sizeof(found))};
    *totals                = (fl_filejob_totals){0};
    if (manifests.found == NULL)
        return fl_cli_no_memory();
    if (job->parts > READERS) /* without threads it takes longer, and no more */
        (void)fl_team_open(&manifests.team, READERS, NULL, &error);
    for (size_t i = 0; i < job->input_count; i++)
        check_input(&manifests, &job->inputs[i], quick, totals, &digests);
    fl_team_close(manifests.team);
    fl_free(manifests.found);
    check_strangers(job, totals);
    if (totals->damaged > 0) {
        fl_cli_hint("remove NAME.%s and NAME.json of each damaged part, and files that do not "
                    "belong to this job; then rerun",
                    job->suffix);
    }
    if (totals->gone > 0) {
        fl_cli_message("note: %llu of %zu inputs are gone; their parts were not compared with them",
                       (unsigned long long)totals->gone, job->input_count);
    }
    fl_exit code = digests.failed ? fl_cli_no_memory() : FL_EXIT_DONE;
    fl_sha256_hex(digests.data != NULL ? digests.data : "", digests.size, totals->sha256);
    fl_buf_free(&digests);
    if (totals->missing + totals->damaged > 0) {
        code = FL_EXIT_FAILED;
        fl_filejob_unfinish(job);
    }
    return code == FL_EXIT_DONE && totals->refused > 0 ? FL_EXIT_PARTLY : code;
}

void fl_filejob_totals_text(const fl_filejob_totals *totals, uint64_t parts, fl_buf *out) {
    fl_json_w w = {.out = out};
    fl_json_w_object(&w, NULL);
    fl_json_w_u64(&w, "parts", parts);
    fl_json_w_u64(&w, "done", totals->done);
    fl_json_w_u64(&w, "missing", totals->missing);
    fl_json_w_u64(&w, "damaged", totals->damaged);
    fl_json_w_u64(&w, "rows", totals->rows);
    fl_json_w_u64(&w, "refused", totals->refused);
    fl_json_w_u64(&w, "tokens", totals->tokens);
    fl_json_w_u64(&w, "truncated", totals->truncated);
    fl_json_w_u64(&w, "bytes", totals->bytes);
    fl_json_w_text(&w, "sha256", totals->missing + totals->damaged == 0 ? totals->sha256 : NULL);
    fl_json_w_end(&w);
    fl_buf_putc(out, '\n');
}
