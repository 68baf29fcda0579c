/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_run.c - `fletch run`: files to files, in parts that are done once, whatever kills the process.
 *
 * Role    The command for more texts than one sitting or one machine takes. It hands out no work: an engine that
 *         counts (a Slurm array, an Indexed Job, a shell loop) gives every process its --shard.
 * Method  The same list of parts in every process (job_list.c, job.c); of the shard those without a good manifest
 *         are made one after the other (part.c). Part p belongs to shard p modulo N, so that a file sorted by
 *         length is shared evenly. A part whose input cannot be read is told and passed over: the others are done,
 *         and the exit code says that one is missing. A signal ends the process at once, as everywhere
 *         (signals.c removes the temporary files); what is lost is the part under way. With --re-embed the inputs are
 *         those of a job that is there (job_again.c), and nothing else is different.
 * Memory  The list, and a window. Proof tests/cli/test_cli_run.py. Contract docs/job.md. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_w.h"
#include "base/mem.h"
#include "base/number.h"
#include "cli/args.h"
#include "cli/part.h"

enum { FOLDER_MAX = PATH_MAX - 256, SPLIT_MIN = 1024 };

static const char split_default[] = "32MiB";

typedef struct tally {
    uint64_t shard, shards;
    uint64_t parts, before, made, failed; /* of the shard; before: done by others, or earlier */
    uint64_t rows, refused, tokens, truncated;
    double   seconds;
    fl_exit  worst;   /* of the parts that failed */
    bool    *counted; /* owned [parts]: done when this run began */
} tally;

/* ---- Flags ----------------------------------------------------------------------------------- */

/* Digits alone, in *out. */
static const char *take_number(const char *text, uint64_t *out) {
    char *end = NULL;
    if (*text < '0' || *text > '9')
        return NULL;
    *out = strtoull(text, &end, 10);
    return end;
}

static fl_exit parse_shard(const fl_cli *cli, tally *run) {
    const char *text = cli->args.value[FL_FLAG_SHARD];
    text             = text != NULL ? text : "0/1";
    const char *rest = take_number(text, &run->shard);
    rest             = rest != NULL && *rest == '/' ? take_number(rest + 1, &run->shards) : NULL;
    if (rest == NULL || *rest != '\0' || run->shard >= run->shards || run->shards > INT32_MAX)
        return fl_cli_usage(cli, "--shard takes I/N, from 0/N to (N-1)/N, not '%.64s'", text);
    return FL_EXIT_DONE;
}

static fl_exit check_flags(const fl_cli *cli, fl_parts *parts, fl_filejob *job, tally *run) {
    const fl_args *args   = &cli->args;
    const char    *format = args->value[FL_FLAG_FORMAT], *dtype = args->value[FL_FLAG_DTYPE];
    const char    *size = args->value[FL_FLAG_SPLIT_BYTES];
    if (args->rest_count > 0)
        return fl_cli_usage(cli, "unexpected argument '%.64s'; use --input", args->rest[0]);
    if (args->input_count == 0) /* --re-embed has set them */
        return fl_cli_usage(cli, "name the files or folders to embed with --input");
    for (size_t i = 0; i < args->input_count; i++)
        if (strcmp(args->inputs[i], "-") == 0)
            return fl_cli_usage(cli, "a job cannot read standard input; use fletch embed");
    size = size != NULL ? size : split_default;
    if (!fl_parse_size(size, &job->split_bytes) || job->split_bytes < SPLIT_MIN ||
        job->split_bytes > INT64_MAX) {
        return fl_cli_usage(
            cli, "--split-bytes takes a size of at least 1KiB, such as 32MiB, not '%.64s'", size);
    }
    parts->half            = fl_cli_is(cli, FL_FLAG_DTYPE, "float16");
    parts->embedder.dtype  = fl_embedder_dtype(dtype);
    parts->embedder.kind   = fl_result_kind_named(NULL);
    parts->embedder.strict = true;
    (void)snprintf(job->suffix, sizeof job->suffix, "%s", format != NULL ? format : "npy");
    parts->format = strcmp(job->suffix, "raw") == 0     ? FL_OUTPUT_RAW
                    : strcmp(job->suffix, "fvecs") == 0 ? FL_OUTPUT_FVECS
                    : strcmp(job->suffix, "jsonl") == 0 ? FL_OUTPUT_JSONL
                                                        : FL_OUTPUT_NPY;
    bool floats   = parts->embedder.dtype == FLETCH_FLOAT32 && !parts->half;
    if (parts->format == FL_OUTPUT_FVECS && !floats)
        return fl_cli_usage(cli, "fvecs holds float32; use npy or raw for other types");
    parts->chunks.embedder = &parts->embedder;
    FL_CLI_TRY(fl_chunk_rows_read(&parts->chunks, cli));
    FL_CLI_TRY(fl_input_check_flags(cli));
    return parse_shard(cli, run);
}

/* ---- The run --------------------------------------------------------------------------------- */

static void add(tally *run, const fl_manifest *manifest) {
    run->rows += manifest->rows;
    run->refused += manifest->refused;
    run->tokens += manifest->tokens;
    run->truncated += manifest->truncated;
}

/* What of the shard is there already. False: out of memory. */
static bool look(fl_parts *parts, tally *run) {
    const fl_filejob *job = parts->job;
    for (uint64_t number = run->shard; number < job->parts; number += run->shards)
        run->parts++;
    run->counted = fl_alloc_zero(run->parts > 0 ? run->parts : 1, sizeof *run->counted);
    for (uint64_t i = 0; run->counted != NULL && i < run->parts; i++) {
        const uint64_t number = run->shard + i * run->shards;
        char           name[FL_PART_NAME];
        fl_manifest    manifest;
        fletch_error   error;
        (void)fl_filejob_part(job, number, name);
        fl_manifest_state state = fl_manifest_read(&manifest, job, name, &error);
        if (state == FL_MANIFEST_DONE) {
            run->counted[i] = true;
            run->before++;
            add(run, &manifest);
            continue;
        }
        parts->bytes_total += fl_part_bytes(job, number);
        if (state == FL_MANIFEST_DAMAGED && !parts->cli->quiet)
            fl_cli_message("note: redoing %s: %s", name, error.message);
    }
    return run->counted != NULL;
}

static fl_exit make_parts(fl_parts *parts, tally *run) {
    const fl_filejob *job  = parts->job;
    const bool        on   = !fl_cli_is(parts->cli, FL_FLAG_ON_ERROR, "stop");
    fl_exit           code = FL_EXIT_DONE;
    for (uint64_t i = 0; code == FL_EXIT_DONE && i < run->parts; i++) {
        const uint64_t number = run->shard + i * run->shards;
        char           name[FL_PART_NAME];
        fl_manifest    manifest;
        fletch_error   error;
        bool           unreadable = false;
        (void)fl_filejob_part(job, number, name);
        if (run->counted[i])
            continue;
        if (fl_manifest_read(&manifest, job, name, &error) == FL_MANIFEST_DONE) {
            run->before++; /* another worker has done it meanwhile */
            parts->bytes += fl_part_bytes(job, number);
            add(run, &manifest);
            continue;
        }
        fl_filejob_unfinish(job);
        code = fl_part_make(parts, number, &manifest, &unreadable);
        parts->bytes += fl_part_bytes(job, number);
        if (code == FL_EXIT_DONE) {
            run->made++;
            add(run, &manifest);
        } else if (unreadable && on) {
            run->failed++;
            run->worst = code > run->worst ? code : run->worst;
            code       = FL_EXIT_DONE;
        }
    }
    return code;
}

static fl_exit print_summary(const tally *run) {
    fl_buf    text = {0};
    fl_json_w w    = {.out = &text};
    fl_json_w_object(&w, NULL);
    fl_json_w_u64(&w, "shard", run->shard);
    fl_json_w_u64(&w, "shards", run->shards);
    fl_json_w_u64(&w, "parts", run->parts);
    fl_json_w_u64(&w, "done_before", run->before);
    fl_json_w_u64(&w, "made", run->made);
    fl_json_w_u64(&w, "failed", run->failed);
    fl_json_w_u64(&w, "rows", run->rows);
    fl_json_w_u64(&w, "refused", run->refused);
    fl_json_w_u64(&w, "tokens", run->tokens);
    fl_json_w_u64(&w, "truncated", run->truncated);
    fl_json_w_raw(&w, "seconds");
    fl_buf_printf(&text, "%.3f", run->seconds);
    fl_json_w_end(&w);
    fl_buf_putc(&text, '\n');
    return fl_cli_print(&text);
}

/* Before job.json stands: a model whose texts become no row each would leave the folder to another job. */
static fl_exit refuse_other_heads(fl_cli *cli) {
    fletch_model_info info  = {.size = sizeof info};
    fletch_error      error = {0};
    if (fletch_model_info_get(cli->model, &info, &error) < 0)
        return fl_cli_fail(&error, false);
    if (strcmp(info.head, "embedding") == 0)
        return FL_EXIT_DONE;
    fl_cli_message("this model has no dense vectors (its head: %s), which `fletch run` needs",
                   info.head);
    return FL_EXIT_MODEL;
}

/* Rows of a job that is embedded again may begin with a whole part of refused inputs, which have no text. */
static fl_exit work(fl_parts *parts, fl_filejob *job, bool rows, tally *run) {
    fl_cli        *cli   = parts->cli;
    const uint64_t start = fl_clock_ns();
    FL_CLI_TRY(fl_filejob_list(job, cli));
    FL_CLI_TRY(rows ? FL_EXIT_DONE : fl_parts_try_field(parts));
    FL_CLI_TRY(fl_cli_open_model(cli, false));
    FL_CLI_TRY(refuse_other_heads(cli));
    if (fl_chunk_rows_asked(cli))
        FL_CLI_TRY(fl_chunk_rows_try(&parts->chunks, cli));
    FL_CLI_TRY(fl_filejob_join(job, cli));
    parts->embedder.dimensions = fletch_dimensions(cli->model);
    (void)fl_atomic_sweep(job->folder, false);
    if (!look(parts, run))
        return fl_cli_no_memory();
    fl_progress_open(&parts->progress, cli->args.value[FL_FLAG_PROGRESS], cli->quiet, false,
                     "texts");
    fl_exit code = make_parts(parts, run);
    fl_progress_close(&parts->progress, NULL, parts->texts, parts->bytes, parts->bytes_total);
    if (run->made > 0) {
        char path[PATH_MAX];
        fl_filejob_path(job, "job", "json", path);
        fl_parent_sync(path); /* the names of all parts */
    }
    run->seconds    = (double)(fl_clock_ns() - start) * 1e-9;
    fl_exit printed = print_summary(run);
    if (run->failed > 0) {
        fl_cli_message("%" PRIu64 " of %" PRIu64 " parts could not be made", run->failed,
                       run->parts);
    }
    code = code == FL_EXIT_DONE ? printed : code;
    code = code == FL_EXIT_DONE ? run->worst : code;
    return code == FL_EXIT_DONE && run->refused > 0 ? FL_EXIT_PARTLY : code;
}

/* ---- A job that is there --------------------------------------------------------------------- */

static fl_exit finish(const fl_filejob *job, const fl_filejob_totals *totals, const fl_buf *text) {
    fletch_error error;
    char         path[PATH_MAX];
    if (totals->rows == 0 && totals->refused > 0) {
        fl_cli_message("none of the %" PRIu64 " records has a vector: _SUCCESS is not written",
                       totals->refused);
        fl_cli_hint("the rows files say why each was rejected; start a new job in another folder");
        return FL_EXIT_USAGE;
    }
    fl_filejob_path(job, "_SUCCESS", "", path);
    (void)fl_atomic_sweep(job->folder, true);
    fl_signals_hold();
    int status = fl_atomic_put(path, text->data, text->size, FL_ATOMIC_DURABLE, &error);
    fl_signals_release();
    return status < 0 ? fl_cli_fail(&error, false) : FL_EXIT_DONE;
}

/* Flags that say how parts are made, where none is: who gave one thought that it narrows the check. */
static fl_exit refuse_making(const fl_cli *cli) {
    static const struct {
        fl_flag_id  id;
        const char *name;
    } making[]          = {{FL_FLAG_SHARD, "--shard"},
                           {FL_FLAG_SPLIT_BYTES, "--split-bytes"},
                           {FL_FLAG_DTYPE, "--dtype"},
                           {FL_FLAG_BY, "--chunk"},
                           {FL_FLAG_SIZE, "--chunk-size"},
                           {FL_FLAG_OVERLAP, "--chunk-overlap"},
                           {FL_FLAG_LATE_CHUNKING, "--late-chunking"},
                           {FL_FLAG_RE_EMBED, "--re-embed"}};
    const fl_args *args = &cli->args;
    const char    *name = NULL;
    for (size_t i = 0; name == NULL && i < sizeof making / sizeof making[0]; i++)
        name = args->value[making[i].id] != NULL ? making[i].name : NULL;
    for (size_t i = 0; name == NULL && i < args->key_count; i++)
        name = strcmp(args->keys[i].key, "model.id") == 0 ? "--model" : NULL;
    return name == NULL ? FL_EXIT_DONE
                        : fl_cli_usage(cli,
                                       "%s is for making parts; --check, --finish and --merge take "
                                       "the job as job.json has it; omit it",
                                       name);
}

/* --check, --finish, --merge: what is there, without a model. */
static fl_exit look_at_job(fl_cli *cli, const char *folder) {
    const fl_args    *args = &cli->args;
    fl_filejob        job;
    fl_filejob_totals totals;
    fl_buf            text = {0};
    if (args->input_count > 0 || args->rest_count > 0) {
        return fl_cli_usage(
            cli, "--check, --finish and --merge read the job that --output names; omit --input");
    }
    FL_CLI_TRY(refuse_making(cli));
    FL_CLI_TRY(fl_filejob_read(&job, folder));
    fl_exit code  = FL_EXIT_DONE;
    bool    check = args->value[FL_FLAG_CHECK] != NULL || args->value[FL_FLAG_FINISH] != NULL;
    if (check) {
        code = fl_filejob_check(&job, args->value[FL_FLAG_QUICK] != NULL, &totals);
        fl_filejob_totals_text(&totals, job.parts, &text);
        bool whole = code == FL_EXIT_DONE || code == FL_EXIT_PARTLY;
        if (whole && args->value[FL_FLAG_FINISH] != NULL) {
            fl_exit finished = finish(&job, &totals, &text);
            code             = finished == FL_EXIT_DONE ? code : finished;
        }
        fl_exit printed = fl_cli_print(&text);
        code            = printed == FL_EXIT_DONE ? code : printed;
    }
    if (args->value[FL_FLAG_MERGE] != NULL && (code == FL_EXIT_DONE || code == FL_EXIT_PARTLY))
        code = fl_filejob_merge(&job, cli, args->value[FL_FLAG_MERGE]);
    fl_filejob_free(&job);
    return code;
}

static fl_exit begin(fl_cli *cli) {
    const fl_args   *args   = &cli->args;
    const char      *folder = args->value[FL_FLAG_OUTPUT];
    const char      *old    = args->value[FL_FLAG_RE_EMBED];
    tally            run;
    fl_filejob       job;
    fl_parts         parts;
    fl_filejob_again again = {.rows = false};
    if (folder == NULL || folder[0] == '\0' || strcmp(folder, "-") == 0)
        return fl_cli_usage(cli, "name the folder of the job with --output");
    if (strlen(folder) > FOLDER_MAX)
        return fl_cli_usage(cli, "the name of --output is too long");
    if (args->value[FL_FLAG_CHECK] != NULL || args->value[FL_FLAG_FINISH] != NULL ||
        args->value[FL_FLAG_MERGE] != NULL)
        return look_at_job(cli, folder);
    if (args->value[FL_FLAG_QUICK] != NULL)
        return fl_cli_usage(cli, "--quick needs --check");
    if (old != NULL && fl_file_exists(old))
        return fl_move_store(cli, old);
    memset(&run, 0, sizeof run);
    memset(&parts, 0, sizeof parts);
    job                = (fl_filejob){.folder = folder};
    parts.cli          = cli;
    parts.job          = &job;
    parts.window_texts = FL_WINDOW_FIRST;
    fl_exit code       = old != NULL ? fl_filejob_again_open(&again, cli, old) : FL_EXIT_DONE;
    code               = code == FL_EXIT_DONE ? check_flags(cli, &parts, &job, &run) : code;
    code               = code == FL_EXIT_DONE ? work(&parts, &job, again.rows, &run) : code;
    fl_free(run.counted);
    fl_embedder_free(&parts.embedder);
    fl_chunk_rows_free(&parts.chunks);
    fl_filejob_free(&job);
    fl_filejob_again_close(&again);
    return code;
}

fl_exit fl_cmd_run(fl_cli *cli) {
    fl_exit code   = begin(cli);
    bool    accept = fl_cli_is(cli, FL_FLAG_ON_ERROR, "accept");
    return accept && code == FL_EXIT_PARTLY ? FL_EXIT_DONE : code;
}
