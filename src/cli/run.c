/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - stream texts through a piece of work in windows of about a second.
 *
 * Role    cmd_embed.c and cmd_tokenize.c (tokenize, decode).
 * Method  A window ends at WINDOW_TEXTS texts or WINDOW_BYTES bytes, and its size follows the measured
 *         speed so that it takes about a second: large enough for the library to sort by length and
 *         keep its threads busy, small enough for a live progress bar and a prompt first result. The
 *         work itself uses all cores, so a thread of its own for reading or writing would only take
 *         them away; results do not depend on where windows end.
 * Memory  One window and its results, whatever the length of the input. Threads: main.
 * Proof   tests/cli/test_cli_input.py (order, memory, --stats). */
#include "cli/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/os.h"
#include "cli/statistics.h"

enum { WINDOW_MIN = 64, WINDOW_TEXTS = 4096, WINDOW_BYTES = 4 << 20 };

static double seconds_since(uint64_t start) {
    return (double)(fl_clock_ns() - start) * 1e-9;
}

/* A file that is read and would be replaced: `-i x -o x`, a link to it, another spelling. */
static fl_exit check_outputs(const fl_run *run) {
    static const fl_flag_id written[] = {FL_FLAG_OUTPUT, FL_FLAG_STATS_JSON};
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
        const char *path = run->cli->args.value[written[i]];
        if (path != NULL && fl_input_reads(&run->input, path)) {
            return fl_cli_usage(
                run->cli,
                "%s is an input of this run and would be overwritten; write to another file", path);
        }
    }
    return FL_EXIT_DONE;
}

fl_exit fl_run_open(fl_run *run, fl_cli *cli, const char *own_names, fl_output_format on_terminal,
                    fl_output_format in_pipe) {
    memset(run, 0, sizeof *run);
    run->cli          = cli;
    run->window_texts = FL_WINDOW_FIRST;
    fl_exit code      = fl_input_open(&run->input, cli, own_names);
    code              = code == FL_EXIT_DONE ? check_outputs(run) : code;
    return code == FL_EXIT_DONE ? fl_output_open(&run->output, cli, on_terminal, in_pipe) : code;
}

fl_exit fl_run_open_model(fl_run *run, bool tokenizer_only) {
    uint64_t start    = fl_clock_ns();
    fl_exit  code     = fl_cli_open_model(run->cli, tokenizer_only);
    run->open_seconds = seconds_since(start);
    return code;
}

/* The next window should take about a second. */
static void adapt(fl_run *run, double seconds) {
    double rate       = seconds > 0 ? (double)run->window.count / seconds : WINDOW_TEXTS;
    double texts      = rate < WINDOW_MIN ? WINDOW_MIN : rate > WINDOW_TEXTS ? WINDOW_TEXTS : rate;
    run->window_texts = (size_t)texts;
}

static fl_exit flush(fl_run *run) {
    fletch_error error = {0};
    if (fl_sink_flush(&run->output.sink, !run->output.sink.atomic, &error) < 0)
        return fl_output_fail(&run->output, &error);
    return FL_EXIT_DONE;
}

static void show(fl_run *run, bool last) {
    const fl_input *input = &run->input;
    uint64_t        done  = input->done + fl_source_done(&input->source);
    if (last)
        fl_progress_close(&run->progress, NULL, run->texts, done, input->total);
    else
        fl_progress_update(&run->progress, NULL, run->texts, done, input->total);
}

fl_exit fl_run_window(fl_run *run, fl_run_fn work, void *user, int *more) {
    *more = fl_input_next(&run->input, &run->window, run->window_texts, WINDOW_BYTES);
    if (*more == 0)
        return FL_EXIT_DONE;
    if (*more < 0) {
        (void)flush(run);
        fl_progress_clear();
        if (fl_signals_asked() == 0)
            fl_cli_message("%s", run->input.error.message);
        return run->input.exit;
    }
    uint64_t start = fl_clock_ns();
    fl_exit  code  = work(run, user);
    adapt(run, seconds_since(start));
    fl_exit written = flush(run);
    return code == FL_EXIT_DONE ? written : code;
}

fl_exit fl_run_windows(fl_run *run, fl_run_fn work, void *user) {
    uint64_t start       = fl_clock_ns();
    bool     on_terminal = !run->output.sink.spools && fl_sink_is_terminal(&run->output.sink);
    fl_progress_open(&run->progress, run->cli->args.value[FL_FLAG_PROGRESS], run->cli->quiet,
                     on_terminal, "texts");
    if (run->cli->args.value[FL_FLAG_PARTIAL] != NULL)
        fl_signals_ask();
    fl_exit code = FL_EXIT_DONE;
    int     more = 1;
    while (code == FL_EXIT_DONE && more > 0 && fl_signals_asked() == 0) {
        code = fl_run_window(run, work, user, &more);
        if (more > 0)
            show(run, false);
    }
    show(run, true);
    run->work_seconds = seconds_since(start);
    if (fl_signals_asked() != 0 && more != 0) { /* not when the input had just ended by itself */
        fl_cli_message("interrupted");
        code = (fl_exit)(128 + fl_signals_asked());
    }
    return code;
}

fl_row fl_run_done(fl_run *run, size_t i, size_t tokens, bool truncated) {
    const fl_record *record = &run->window.records[i];
    const char      *fields = run->window.fields.data;
    run->texts++;
    run->last = record->place;
    run->tokens += tokens;
    run->truncated += truncated;
    return (fl_row){.index       = record->index,
                    .text        = run->window.texts[i],
                    .text_size   = run->window.sizes[i],
                    .tokens      = (uint32_t)tokens,
                    .truncated   = truncated,
                    .fields      = record->fields_size > 0 ? fields + record->fields : "",
                    .fields_size = record->fields_size};
}

bool fl_run_can_refuse(const fl_run *run, int status) {
    return status == FLETCH_ETOOLONG || status == FLETCH_EUTF8 ||
           (run->input.skip_errors && (status == FLETCH_EMODEL || status == FLETCH_ENOMEM));
}

bool fl_run_refuse(fl_run *run, size_t i, const fletch_error *error) {
    fl_place place     = run->window.records[i].place;
    char     limit[32] = "the limit", characters[80];
    bool     on, code;
    if (error->code == FLETCH_ETOOLONG) {
        (void)fl_cli_model_property(run->cli->model, "max_length", limit, sizeof limit);
        if (run->max_length > 0)
            (void)snprintf(limit, sizeof limit, "%" PRIu32, run->max_length);
        code = fl_cli_model_property(run->cli->model, "characters", characters, sizeof characters);
        on   = fl_input_refuse(&run->input, place,
                               "longer than %s tokens%s%s%s; --truncate right or left truncates it",
                               limit, code ? ", or characters (" : "", code ? characters : "",
                             code ? ")" : "");
    } else {
        on = fl_input_refuse(&run->input, place, "%s", error->message);
    }
    if (!on)
        fl_cli_message("%s", run->input.error.message);
    return on;
}

int fl_run_finish(fl_run *run, size_t cols, fletch_dtype dtype, fletch_error *error) {
    return run->lists != NULL ? fl_list_output_finish(run->lists, error)
                              : fl_output_finish(&run->output, cols, dtype, error);
}

fl_exit fl_run_stop(fl_run *run, fl_exit code, size_t cols, fletch_dtype dtype) {
    const fl_sink *sink    = &run->output.sink;
    bool           partial = run->cli->args.value[FL_FLAG_PARTIAL] != NULL;
    bool           kept    = !sink->atomic && !sink->spools; /* it is out already */
    char           place[300];
    fletch_error   error = {0};
    if (run->texts == 0 || sink->failed)
        return code; /* a failed write has been told, and what it left is not whole rows */
    if (partial) {
        if (fl_run_finish(run, cols, dtype, &error) < 0)
            return fl_output_fail(&run->output, &error);
        kept = true;
    }
    fl_input_tell_place(&run->input, run->last, place, sizeof place);
    fl_cli_message(
        "stopped after %" PRIu64 " text%s, up to %s; %s%s", run->texts, run->texts == 1 ? "" : "s",
        place, kept ? "their results are in " : "nothing was kept; --partial keeps what is done",
        kept ? sink->name : "");
    return code;
}

static void print_stats(const fl_run *run) {
    double seconds = run->work_seconds > 0 ? run->work_seconds : 1e-9;
    fprintf(stderr,
            "texts        %" PRIu64 "\n"
            "tokens       %" PRIu64 "\n"
            "cut          %" PRIu64 "\nskipped      %" PRIu64 "\n"
            "open         %.3f s\n"
            "run          %.3f s\n"
            "texts/s      %.1f\n"
            "tokens/s     %.0f\n"
            "per text     %.3f ms\n"
            "peak memory  %.1f MB\n",
            run->texts, run->tokens, run->truncated, run->input.refused, run->open_seconds,
            run->work_seconds, (double)run->texts / seconds, (double)run->tokens / seconds,
            run->texts > 0 ? run->work_seconds * 1e3 / (double)run->texts : 0.0,
            (double)fl_os_resident_peak() / 1e6);
}

/* What the library counted. A model of which only the tokenizer was opened has nothing to tell. */
static void print_library_stats(const fl_run *run) {
    fletch_stats stats = {.size = sizeof stats};
    fl_buf       out   = {0};
    if (fletch_stats_get(run->cli->model, &stats, NULL) < 0 || stats.replicas == 0)
        return;
    fl_statistics_put(&out, &stats);
    fl_statistics_put_devices(&out, run->cli->model);
    if (!out.failed && out.size > 0)
        (void)fwrite(out.data, 1, out.size, stderr);
    fl_buf_free(&out);
}

fl_exit fl_run_report(const fl_run *run) {
    if (run->truncated > 0 && !run->cli->quiet) {
        fl_cli_message(
            "note: %" PRIu64 " of %" PRIu64
            " texts %s longer than the limit and truncated; --truncate error rejects such texts",
            run->truncated, run->texts, run->truncated == 1 ? "was" : "were");
    }
    if (run->input.refused > 0 && !run->cli->quiet) {
        fl_cli_message("note: %" PRIu64 " input%s skipped", run->input.refused,
                       run->input.refused == 1 ? " was" : "s were");
    }
    if (run->cli->args.value[FL_FLAG_STATS] != NULL) {
        print_stats(run);
        print_library_stats(run);
    }
    const char *file = run->cli->args.value[FL_FLAG_STATS_JSON];
    if (file != NULL) {
        fletch_error error = {0};
        if (fl_statistics_write(run->cli->model, file, &error) < 0)
            return fl_cli_fail(&error, false);
    }
    return run->input.refused > 0 ? FL_EXIT_PARTLY : FL_EXIT_DONE;
}

void fl_run_close(fl_run *run) {
    fl_output_close(&run->output);
    fl_input_close(&run->input);
    fl_window_free(&run->window);
}
