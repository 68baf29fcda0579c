/* SPDX-License-Identifier: Apache-2.0 */
/* cli.h - what the commands of the program share: exit codes, messages, the open model.
 *
 * The command line lives on include/fletch.h like any other user; of src/ it takes only the stateless
 * helpers of base/. Results go to standard output, everything else to standard error. Every message
 * begins with "fletch: " and may be followed by one hint line that says how to mend it. */
#ifndef FL_CLI_CLI_H
#define FL_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/json_w.h"
#include "cli/args.h"
#include "fletch.h"

/* What a run of the program holds; made by main.c, read by the commands. */
typedef struct fl_cli {
    fl_args        args;
    fletch_config *config; /* owned; NULL for commands that need none */
    fletch_model  *model;  /* owned; NULL until fl_cli_open_model */
    bool           quiet;
    bool           verbose;
    bool           trace; /* --verbose twice: a line per batch */
} fl_cli;

/* ---- report.c: messages and exit codes ---- */

/* The exit code for a library status; `opening` when a model was being opened or fetched, where a
 * file that cannot be read means a model that cannot be had. */
fl_exit fl_cli_exit_code(int status, bool opening);

void fl_cli_message(const char *format, ...) __attribute__((format(printf, 1, 2)));
void fl_cli_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Print the error with the hint that fits its code, and give the exit code. */
fl_exit fl_cli_fail(const fletch_error *error, bool opening);

/* As FL_TRY of base/error.h: leave the function with what `call` gave, unless that is FL_EXIT_DONE. */
#define FL_CLI_TRY(call)                                                                           \
    do {                                                                                           \
        const fl_exit fl_try_exit = (call);                                                        \
        if (fl_try_exit != FL_EXIT_DONE)                                                           \
            return fl_try_exit;                                                                    \
    } while (0)

/* Wrong usage: message and a pointer to the command's help; gives FL_EXIT_USAGE. */
fl_exit fl_cli_usage(const fl_cli *cli, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Say so, and give FL_EXIT_FAILED. */
fl_exit fl_cli_no_memory(void);

/* Write a finished report to standard output and free it. A closed pipe is silent failure. */
fl_exit fl_cli_print(fl_buf *text);

/* Append a text for a person: at most `columns` code points, control characters as spaces (a text
 * must not steer the terminal), "..." when cut. */
void fl_cli_preview(fl_buf *out, const char *text, size_t size, size_t columns);

/* Whether the flag was given with this word. */
bool fl_cli_is(const fl_cli *cli, fl_flag_id flag, const char *word);

/* ---- session.c: configuration and model ---- */

/* Read presets, --config or FLETCH_CONFIG, environment and flags into cli->config. */
fl_exit fl_cli_load_config(fl_cli *cli);

/* The value of an option, which must be one; never NULL. */
const char *fl_cli_option(const fl_cli *cli, const char *key);

/* As a second reading for a running server: a configuration of its own, or NULL with *error. */
fletch_config *fl_cli_reread_config(fl_cli *cli, fletch_error *error);

/* Open the configured model into cli->model; fetches it with a progress bar when it is missing and
 * may be downloaded. `tokenizer_only` reads no weights. */
fl_exit fl_cli_open_model(fl_cli *cli, bool tokenizer_only);

/* Fetch the model when it is a hub id that is not in the cache and may be downloaded. What cannot be decided here is
 * left to the library, whose messages say more. */
fl_exit fl_cli_fetch_if_missing(fl_cli *cli, const char *id);
/* Bring `id` into the cache with a progress bar; its folder to path[capacity]. */
fl_exit fl_cli_pull(fl_cli *cli, const char *id, char *path, size_t capacity);

/* What decides a vector becomes members of w's object: all but the fingerprint of the model's files and the dtype,
 * which stand elsewhere. */
int fl_cli_put_vector_parts(fletch_model *model, fl_json_w *w, fletch_error *error);

/* Value of one described property of the open model into out[capacity]; false when it has none. */
bool fl_cli_model_property(fletch_model *model, const char *name, char *out, size_t capacity);

/* ---- signals.c: an interrupted run leaves nothing behind ---- */

void fl_signals_install(void);
void fl_signals_hold(void); /* block while a temporary file is being made */
void fl_signals_release(void);
int  fl_signals_guard(const char *path); /* removed by the handler; a number to let it go with */
void fl_signals_let_go(int guard);       /* negative: none */

/* From now on the first signal asks the run to stop where it can, and only the second ends it at once. */
void fl_signals_ask(void);
int  fl_signals_asked(void); /* the signal that came, 0 for none */

/* read(2), begun again after a signal; -1 with ECANCELED once a stop was asked for. */
ssize_t fl_signals_read(int fd, void *out, size_t size);

/* ---- the commands, one file each ---- */

fl_exit fl_cmd_embed(fl_cli *cli);
fl_exit fl_cmd_run(fl_cli *cli);
fl_exit fl_cmd_serve(fl_cli *cli);
fl_exit fl_cmd_canary(fl_cli *cli);
fl_exit fl_cmd_verify(fl_cli *cli);
fl_exit fl_cmd_health(fl_cli *cli);
fl_exit fl_cmd_add(fl_cli *cli);
fl_exit fl_cmd_search(fl_cli *cli);
fl_exit fl_cmd_scores(fl_cli *cli); /* rerank, classify */
fl_exit fl_cmd_tokenize(fl_cli *cli);
fl_exit fl_cmd_decode(fl_cli *cli);
fl_exit fl_cmd_chunk(fl_cli *cli);
fl_exit fl_cmd_model(fl_cli *cli);
fl_exit fl_cmd_config(fl_cli *cli);
fl_exit fl_cmd_doctor(fl_cli *cli);
fl_exit fl_cmd_bench(fl_cli *cli);
fl_exit fl_cmd_version(fl_cli *cli);
fl_exit fl_cmd_completion(fl_cli *cli);
fl_exit fl_cmd_help(fl_cli *cli);

/* Help for one command, or for the program when NULL, onto *out. */
void fl_help_command(fl_buf *out, const fl_command *command);

#endif
