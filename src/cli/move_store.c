/* SPDX-License-Identifier: Apache-2.0 */
/* move_store.c - `fletch run --re-embed STORE`: the server's store for another model.
 *
 * Role    cmd_run.c hands on what is a file and no folder. A build without the server has no_server.c instead.
 * Method  store/store_move.h; here are the flags, the progress and the summary.
 * Memory  a batch. Proof tests/server/test_store_move.py. */
#include <string.h>

#include "base/file.h"
#include "base/json_w.h"
#include "cli/job.h"
#include "cli/progress.h"
#include "store/store_move.h"

static void tell(void *user, uint64_t done, uint64_t total) {
    fl_progress_update(user, NULL, done, done, total);
}

/* Flags of a job's parts, which a store has not. */
static fl_exit refuse_flags(const fl_cli *cli) {
    const fl_filejob_choice *choice;
    bool                     given = cli->args.value[FL_FLAG_SHARD] != NULL ||
                 cli->args.value[FL_FLAG_SPLIT_BYTES] != NULL || cli->args.input_count > 0 ||
                 cli->args.rest_count > 0;
    for (size_t i = 0; (choice = fl_filejob_choice_at(i)) != NULL; i++)
        given = given || cli->args.value[choice->flag] != NULL;
    return given ? fl_cli_usage(cli, "--re-embed STORE takes only --output, the model and its "
                                     "settings, no flags for inputs or parts")
                 : FL_EXIT_DONE;
}

static fl_exit print_summary(const fl_store_move *move) {
    fl_buf    text = {0};
    fl_json_w w    = {.out = &text};
    fl_json_w_object(&w, NULL);
    fl_json_w_u64(&w, "items", move->before + move->made);
    fl_json_w_u64(&w, "done_before", move->before);
    fl_json_w_u64(&w, "made", move->made);
    fl_json_w_u64(&w, "dropped", move->dropped);
    fl_json_w_end(&w);
    fl_buf_putc(&text, '\n');
    return fl_cli_print(&text);
}

fl_exit fl_move_store(fl_cli *cli, const char *old) {
    fl_progress   progress = {0};
    fletch_error  error    = {0};
    fl_store_move move     = {.from = old, .progress = tell, .user = &progress};
    move.to                = cli->args.value[FL_FLAG_OUTPUT];
    FL_CLI_TRY(refuse_flags(cli));
    if (fl_folder_exists(move.to))
        return fl_cli_usage(cli, "%s is a folder; a store needs a file name", move.to);
    FL_CLI_TRY(fl_cli_open_model(cli, false));
    const char *id    = fletch_config_model(cli->config);
    const char *slash = strrchr(id, '/');
    move.name         = slash != NULL && slash[1] != '\0' ? slash + 1 : id;
    move.model        = cli->model;
    fl_progress_open(&progress, cli->args.value[FL_FLAG_PROGRESS], cli->quiet, false, "texts");
    const int      status = fl_store_move_run(&move, &error);
    const uint64_t items  = move.before + move.made;
    fl_progress_close(&progress, NULL, items, items, items);
    return status < 0 ? fl_cli_fail(&error, false) : print_summary(&move);
}
