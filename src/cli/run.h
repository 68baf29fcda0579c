/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - the loop that embed and tokenize share: window in, work, results out, and the tally at the end. */
#ifndef FL_CLI_RUN_H
#define FL_CLI_RUN_H

#include "cli/input.h"
#include "cli/list_output.h"
#include "cli/output.h"
#include "cli/progress.h"

enum {
    FL_WINDOW_FIRST = 256
}; /* texts of the first window, whose speed says how many the next has */

typedef struct fl_run {
    fl_cli         *cli;
    fl_input        input;
    fl_output       output;
    fl_list_output *lists; /* borrowed; NULL: results are rows */
    fl_window       window;
    fl_progress     progress;
    size_t          window_texts; /* size of the next window */
    uint32_t        max_length;   /* of a text that is not cut; 0: the model's */
    uint64_t        texts, tokens, truncated;
    fl_place        last; /* of the last text that was done */
    double          open_seconds, work_seconds;
} fl_run;

/* Do the texts of run->window: append results to run->output, count in texts, tokens, truncated. */
typedef fl_exit (*fl_run_fn)(fl_run *run, void *user);

/* Open input and output; `own_names` as for fl_input_open. */
fl_exit fl_run_open(fl_run *run, fl_cli *cli, const char *own_names, fl_output_format on_terminal,
                    fl_output_format in_pipe);

/* Open the model, timed. */
fl_exit fl_run_open_model(fl_run *run, bool tokenizer_only);

/* The next window through `work`, and what is written of it flushed; *more as fl_input_next gives it. What the
 * run must end with is said here. */
fl_exit fl_run_window(fl_run *run, fl_run_fn work, void *user, int *more);

/* All windows through `work`. FL_EXIT_DONE, or the code the run ends with; what was done before a
 * refused input is written then. */
fl_exit fl_run_windows(fl_run *run, fl_run_fn work, void *user);

/* Text `i` of the window is done: count it, and give what a result tells of it. */
fl_row fl_run_done(fl_run *run, size_t i, size_t tokens, bool truncated);

/* Whether a text may be left out for this: for what is wrong with it, and, where refused inputs do not
 * end the run, for what the model or the memory makes of it alone. */
bool fl_run_can_refuse(const fl_run *run, int status);
/* Text `i` of the window is to blame: count it as refused (true), or end the run with run->input.exit.
 * The library names the text by its place in the call, which says nothing here. */
bool fl_run_refuse(fl_run *run, size_t i, const fletch_error *error);

/* Complete the output, whatever its results are; `cols` and `dtype` as for fl_output_finish. */
int fl_run_finish(fl_run *run, size_t cols, fletch_dtype dtype, fletch_error *error);

/* The run ended with `code` before its input did: with --partial what was written is made whole (`cols`
 * and `dtype` as for fl_output_finish), and either way it is said how far the run came. Gives `code`. */
fl_exit fl_run_stop(fl_run *run, fl_exit code, size_t cols, fletch_dtype dtype);

/* After the output is complete: notes, --stats, and the exit code (FL_EXIT_PARTLY after refusals). */
fl_exit fl_run_report(const fl_run *run);

void fl_run_close(fl_run *run);

#endif
