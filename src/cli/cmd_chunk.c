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

/* The document is the row, the chunk its place in it. */
static void put_members(fl_output *output, const fl_row *row, const void *result) {
    const fletch_chunks *chunks = result;
    const size_t        *bytes  = row->chunk->bytes;
    fl_buf              *out    = &output->sink.buf;
    fl_output_put_index(out, row);
    fl_buf_puts(out, "\"tokens\":");
    fl_json_out_u64(out, chunks->tokens[row->chunk->number]);
    fl_buf_puts(out, ",\"text\":");
    fl_json_quote(out, row->text + bytes[0], bytes[1] - bytes[0]);
}

/* A line for a person: where it lies, how long it is, how it begins. */
static void put_line(fl_output *output, const fl_row *row, const void *result) {
    const fletch_chunks *chunks = result;
    const size_t        *bytes  = row->chunk->bytes;
    fl_buf              *out    = &output->sink.buf;
    if (row->chunk->number == 0) {
        fl_output_put_preview(output, row);
        fl_buf_printf(out, "\n   %zu chunk%s\n", chunks->count, chunks->count == 1 ? "" : "s");
    }
    fl_buf_printf(out, "   %zu-%zu  ", bytes[0], bytes[1]);
    fl_output_put_count(out, chunks->tokens[row->chunk->number], false);
    fl_buf_puts(out, "  ");
    fl_cli_preview(out, row->text + bytes[0], bytes[1] - bytes[0], 64);
    fl_buf_putc(out, '\n');
}

static fl_exit put_chunks(fl_run *run, size_t text, const fletch_chunks *chunks) {
    static const fl_writer writer = {.text = put_line, .members = put_members, .bare = true};
    fletch_error           error  = {0};
    size_t                 tokens = 0;
    for (size_t i = 0; i < chunks->count; i++)
        tokens += chunks->tokens[i];
    fl_row row = fl_run_done(run, text, tokens, false);
    for (size_t i = 0; i < chunks->count; i++) {
        const size_t      *bytes = chunks->offsets + 2 * i, *chars = chunks->chars + 2 * i;
        const fl_row_place place = {i, {bytes[0], bytes[1]}, {chars[0], chars[1]}};
        row.chunk                = &place;
        fl_output_put(&run->output, &writer, &row, chunks);
        if (fl_sink_flush(&run->output.sink, false, &error) < 0)
            return fl_output_fail(&run->output, &error);
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
        if (status == FLETCH_OK)
            code = put_chunks(run, i, chunks);
        else if (!fl_run_can_refuse(run, status))
            code = fl_cli_fail(&error, false);
        else if (!fl_run_refuse(run, i, &error))
            code = run->input.exit;
        fletch_chunks_free(chunks);
    }
    return code;
}

static fl_exit finish(fl_run *run) {
    fletch_error error = {0};
    if (fl_run_finish(run, 0, FLETCH_FLOAT32, &error) < 0)
        return fl_output_fail(&run->output, &error);
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
