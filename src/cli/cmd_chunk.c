/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_chunk.c - `fletch chunk`: documents to chunks that the model takes.
 *
 * Role    What is embedded instead of documents that are too long. No weights are read.
 * Formats jsonl {"index":0,"chunk":0,"bytes":[b,e],"chars":[b,e],"tokens":9,"text":".."}, one a chunk: the
 *         document's place in the input, the chunk's in the document, and where it lies there.
 * Memory  One window; the chunks of one document at a time, written out as they come.
 * Proof   tests/cli/test_cli_chunk.py. */
#include <string.h>

#include "base/json.h"
#include "cli/chunk_rows.h"

static void put_object(fl_run *run, const fl_row *row, const fletch_chunks *chunks, size_t i) {
    fl_buf *out   = &run->output.sink.buf;
    size_t  begin = chunks->offsets[2 * i], end = chunks->offsets[2 * i + 1];
    fl_output_next(&run->output);
    fl_buf_puts(out, "{\"index\":");
    fl_json_out_u64(out, row->index);
    fl_buf_putc(out, ',');
    fl_output_put_place(
        out, &(fl_row_place){i, {begin, end}, {chunks->chars[2 * i], chunks->chars[2 * i + 1]}});
    fl_buf_puts(out, ",\"tokens\":");
    fl_json_out_u64(out, chunks->tokens[i]);
    fl_buf_puts(out, ",\"text\":");
    fl_json_quote(out, row->text + begin, end - begin);
    fl_buf_append(out, row->fields, row->fields_size);
    fl_buf_putc(out, '}');
    fl_output_end_row(&run->output);
}

/* A line for a person: where it lies, how long it is, how it begins. */
static void put_line(fl_run *run, const fl_row *row, const fletch_chunks *chunks, size_t i) {
    fl_buf *out   = &run->output.sink.buf;
    size_t  begin = chunks->offsets[2 * i], end = chunks->offsets[2 * i + 1];
    if (i == 0) {
        fl_output_put_preview(&run->output, row);
        fl_buf_printf(out, "\n   %zu chunk%s\n", chunks->count, chunks->count == 1 ? "" : "s");
    }
    fl_buf_printf(out, "   %zu-%zu  %u token%s  ", begin, end, chunks->tokens[i],
                  chunks->tokens[i] == 1 ? "" : "s");
    fl_cli_preview(out, row->text + begin, end - begin, 64);
    fl_buf_putc(out, '\n');
    run->output.rows++;
}

static fl_exit put_chunks(fl_run *run, size_t text, const fletch_chunks *chunks) {
    fletch_error error  = {0};
    size_t       tokens = 0;
    for (size_t i = 0; i < chunks->count; i++) {
        tokens += chunks->tokens[i];
    }
    fl_row row = fl_run_done(run, text, tokens, false);
    for (size_t i = 0; i < chunks->count; i++) {
        if (run->output.format == FL_OUTPUT_TEXT) {
            put_line(run, &row, chunks, i);
        } else {
            put_object(run, &row, chunks, i);
        }
        if (fl_sink_flush(&run->output.sink, false, &error) < 0) {
            return fl_output_fail(&run->output, &error);
        }
    }
    return FL_EXIT_DONE;
}

static fl_exit chunk_window(fl_run *run, void *user) {
    const fletch_chunk_options *options = user;
    fl_exit                     code    = FL_EXIT_DONE;
    for (size_t i = 0; code == FL_EXIT_DONE && i < run->window.count; i++) {
        fletch_chunks *chunks = NULL;
        fletch_error   error  = {0};
        int status = fletch_chunk(run->cli->model, run->window.texts[i], run->window.sizes[i],
                                  options, &chunks, &error);
        if (status == FLETCH_OK) {
            code = put_chunks(run, i, chunks);
        } else if (!fl_run_can_refuse(run, status)) {
            code = fl_cli_fail(&error, false);
        } else if (!fl_run_refuse(run, i, &error)) {
            code = run->input.exit;
        }
        fletch_chunks_free(chunks);
    }
    return code;
}

static fl_exit finish(fl_run *run) {
    fletch_error error = {0};
    if (fl_run_finish(run, 0, FLETCH_FLOAT32, &error) < 0) {
        return fl_output_fail(&run->output, &error);
    }
    return fl_run_report(run);
}

fl_exit fl_cmd_chunk(fl_cli *cli) {
    fletch_chunk_options options;
    FL_CLI_TRY(fl_chunk_options_read(cli, "--", &options));
    fl_run  run;
    fl_exit code = fl_run_open(&run, cli, "index|chunk|bytes|chars|tokens|text", FL_OUTPUT_TEXT,
                               FL_OUTPUT_JSONL);
    code         = code == FL_EXIT_DONE ? fl_run_open_model(&run, true) : code;
    if (code == FL_EXIT_DONE) {
        code = fl_run_windows(&run, chunk_window, &options);
        code = code == FL_EXIT_DONE ? finish(&run) : fl_run_stop(&run, code, 0, FLETCH_FLOAT32);
    }
    fl_run_close(&run);
    return code;
}
