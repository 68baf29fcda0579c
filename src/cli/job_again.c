/* SPDX-License-Identifier: Apache-2.0 */
/* job_again.c - the texts of a job that is there, for another model or other settings.
 *
 * Role    `fletch run --re-embed OLD`: cmd_run.c goes on with what this sets as with any job. `fletch verify OLD` reads
 *         the same texts.
 * Method  The old job.json names its inputs, and with which flags they were read: they become --input and the flags of
 *         this run, so that the new job has the same records in the same parts and order, with the same ids. It has a
 *         folder of its own and writes nothing into the old one, which is read by its users until they turn to
 *         the new. Where the inputs are gone, the rows files are read, if the old job kept the texts in them.
 * Memory  the old job.json, and 64 bytes a part where rows are read. Proof tests/cli/test_cli_run_again.py. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/job.h"

/* What the new job may have otherwise; all else says which texts there are. */
static bool is_free(const fl_filejob_choice *choice) {
    return choice->flag == FL_FLAG_DTYPE || choice->flag == FL_FLAG_FORMAT;
}

/* The flag's value in the old job; NULL where it was not given. */
static const char *value_of(fl_json *options, const fl_filejob_choice *choice) {
    const char *value = fl_json_text(fl_json_get(options, choice->name));
    return value == NULL || (choice->otherwise != NULL && strcmp(value, choice->otherwise) == 0)
               ? NULL
               : value;
}

static fl_exit refuse_given(const fl_cli *cli) {
    if (cli->args.input_count > 0) {
        return fl_cli_usage(
            cli, "--re-embed reads the inputs that the old job.json names; omit --input");
    }
    const fl_filejob_choice *choice;
    for (size_t i = 0; (choice = fl_filejob_choice_at(i)) != NULL; i++) {
        if (!is_free(choice) && cli->args.value[choice->flag] != NULL) {
            return fl_cli_usage(cli,
                                "--re-embed reads texts as the old job did (\"%s\" is in its "
                                "job.json); omit that flag",
                                choice->name);
        }
    }
    return FL_EXIT_DONE;
}

static fl_exit refuse_same_folder(const fl_cli *cli, const char *old) {
    struct stat a, b;
    const char *folder = cli->args.value[FL_FLAG_OUTPUT];
    return stat(old, &a) == 0 && stat(folder, &b) == 0 && a.st_dev == b.st_dev &&
                   a.st_ino == b.st_ino
               ? fl_cli_usage(
                     cli,
                     "--output is the folder of the old job, which must not change; choose another")
               : FL_EXIT_DONE;
}

/* As the old job was read. */
static void take_flags(fl_cli *cli, fl_json *options) {
    const fl_filejob_choice *choice;
    for (size_t i = 0; (choice = fl_filejob_choice_at(i)) != NULL; i++)
        if (cli->args.value[choice->flag] == NULL)
            cli->args.value[choice->flag] = value_of(options, choice);
}

/* Rows are JSON lines with a text each, and with the id where there was one. */
static void take_flags_of_rows(fl_cli *cli) {
    static const fl_flag_id of_inputs[] = {FL_FLAG_FIELD,        FL_FLAG_JOIN,
                                           FL_FLAG_DELIMITER,    FL_FLAG_NO_HEADER,
                                           FL_FLAG_INVALID_UTF8, FL_FLAG_MAX_LINE};
    for (size_t i = 0; i < sizeof of_inputs / sizeof of_inputs[0]; i++)
        cli->args.value[of_inputs[i]] = NULL;
    cli->args.value[FL_FLAG_INPUT_FORMAT] = "jsonl";
    if (cli->args.value[FL_FLAG_ID_FIELD] != NULL)
        cli->args.value[FL_FLAG_ID_FIELD] = "id";
}

static bool all_there(const fl_filejob *old) {
    for (size_t i = 0; i < old->input_count; i++)
        if (access(old->inputs[i].path, R_OK) != 0)
            return false;
    return true;
}

/* Room for the names of `count` inputs. */
static fl_exit make_room(fl_cli *cli, size_t count) {
    const char **inputs = fl_realloc_array(cli->args.inputs, count, sizeof *inputs);
    if (inputs == NULL)
        return fl_cli_no_memory();
    cli->args.inputs      = inputs;
    cli->args.input_count = count;
    return FL_EXIT_DONE;
}

static fl_exit take_inputs(fl_filejob_again *again, fl_cli *cli) {
    const fl_filejob *old = &again->old;
    (void)snprintf(again->split, sizeof again->split, "%lld",
                   (long long)fl_json_int64(fl_json_get(again->text, "split_bytes")));
    if (cli->args.value[FL_FLAG_SPLIT_BYTES] == NULL)
        cli->args.value[FL_FLAG_SPLIT_BYTES] = again->split;
    FL_CLI_TRY(make_room(cli, old->input_count));
    for (size_t i = 0; i < old->input_count; i++) {
        fletch_error error = {0};
        if (fl_filejob_verify_input(&old->inputs[i], &error) < 0) {
            fl_cli_message("%s", error.message);
            return FL_EXIT_FAILED;
        }
        cli->args.inputs[i] = old->inputs[i].path;
    }
    return FL_EXIT_DONE;
}

static fl_exit take_rows(fl_filejob_again *again, fl_cli *cli) {
    const fl_filejob *old = &again->old;
    fl_filejob_totals totals;
    const fl_exit     code = fl_filejob_check(old, true, &totals);
    if (code != FL_EXIT_DONE && code != FL_EXIT_PARTLY) {
        fl_cli_message(
            "the inputs of %s are gone and some of its parts are missing, so some texts are lost",
            old->folder);
        return FL_EXIT_FAILED;
    }
    FL_CLI_TRY(make_room(cli, old->parts));
    for (uint64_t number = 0; number < old->parts; number++) {
        char name[FL_PART_NAME], path[PATH_MAX];
        (void)fl_filejob_part(old, number, name);
        fl_filejob_path(old, name, "jsonl", path);
        fl_buf_append(&again->names, path, strlen(path) + 1);
    }
    const char *at = again->names.data;
    for (uint64_t number = 0; number < old->parts && !again->names.failed; number++) {
        cli->args.inputs[number] = at;
        at += strlen(at) + 1;
    }
    return again->names.failed ? fl_cli_no_memory() : FL_EXIT_DONE;
}

fl_exit fl_filejob_again_take(fl_filejob_again *again, fl_cli *cli, const char *old, bool rows) {
    fletch_error error = {0};
    char         path[PATH_MAX];
    FL_CLI_TRY(fl_filejob_read(&again->old, old));
    fl_filejob_path(&again->old, "job.json", "", path);
    if (fl_json_read(&again->text, path, FL_FILEJOB_TEXT_MAX, &error) < 0)
        return fl_cli_fail(&error, false);
    fl_json *options = fl_json_get(again->text, "options");
    if (fl_json_find(options, "column", NULL)) {
        return fl_cli_usage(cli,
                            "%s was made by python -m fletch.job: rerun that command with another "
                            "model and folder to re-embed it; python -m fletch.verify checks it",
                            old);
    }
    take_flags(cli, options);
    const bool cut  = cli->args.value[FL_FLAG_BY] != NULL;
    const bool kept = cli->args.value[FL_FLAG_KEEP_TEXT] != NULL && (rows || !cut);
    if (cut && rows && (!kept || cli->args.value[FL_FLAG_LATE_CHUNKING] != NULL)) {
        fl_cli_message("%s holds vectors of chunks; %s", old,
                       kept
                           ? "late-chunked vectors depend on the rest of their document and cannot "
                             "be compared alone"
                           : "they can only be compared if the job kept their texts (--keep-text)");
        return FL_EXIT_FAILED;
    }
    if (!(rows && kept) && all_there(&again->old))
        return take_inputs(again, cli);
    if (!kept) {
        fl_cli_message("inputs of %s are not where its job.json says, and it kept no %s", old,
                       cut ? "documents, only chunks" : "texts (--keep-text)");
        fl_cli_hint("put them back, or run from the folder where the job began");
        return FL_EXIT_FAILED;
    }
    again->rows = true;
    take_flags_of_rows(cli);
    return take_rows(again, cli);
}

fl_exit fl_filejob_again_open(fl_filejob_again *again, fl_cli *cli, const char *old) {
    FL_CLI_TRY(refuse_given(cli));
    FL_CLI_TRY(refuse_same_folder(cli, old));
    return fl_filejob_again_take(again, cli, old, false);
}

void fl_filejob_again_close(fl_filejob_again *again) {
    fl_filejob_free(&again->old);
    fl_json_free(again->text);
    fl_buf_free(&again->names);
}
