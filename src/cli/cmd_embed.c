/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_embed.c - `fletch embed`: texts to vectors, one result per input, in input order.
 *
 * Role    The main job of the program.
 * Method  run.c brings windows of texts; one fletch_embed call turns a window into rows, which go to the
 *         writers of output.c. When a text is to blame for a failure (too long with --truncate error),
 *         the texts before it are done first, then it is refused, then the rest goes on: a few calls
 *         per refused text, whatever the size of the window.
 *         With --output-kind the results are lists (fletch_lists) and go to list_output.c; a call then
 *         takes as many texts as LIST_BYTES hold, since each of their tokens may become a vector.
 * Memory  Rows, token counts and marks of one window.
 * Proof   tests/cli/test_cli_output.py, test_cli_errors.py. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "cli/run.h"
#include "cli/similarity.h"

enum { LIST_BYTES = 128 * 1024 };

typedef struct embed_run {
    fletch_kind    kind;
    fl_list_output list_output; /* other kinds than dense */
    fletch_lists  *lists;       /* owned: of the span under way */
    size_t         dimensions;
    fletch_dtype   dtype;
    void          *vectors;   /* owned [capacity, dimensions] of dtype */
    uint32_t      *tokens;    /* owned [capacity] */
    uint8_t       *truncated; /* owned [capacity] */
    size_t         capacity;
    bool           compare; /* --similarity */
    fl_similarity  table;
} embed_run;

static fletch_dtype parse_dtype(const char *name) {
    for (int i = 0; name != NULL && i <= FLETCH_UBINARY; i++) {
        if (strcmp(name, fl_output_dtype_name((fletch_dtype)i)) == 0) {
            return (fletch_dtype)i;
        }
    }
    return FLETCH_FLOAT32;
}

static fletch_kind parse_kind(const char *name) {
    return name != NULL && strcmp(name, "tokens") == 0 ? FLETCH_KIND_TOKENS : FLETCH_KIND_DENSE;
}

/* Flags that contradict each other. */
static fl_exit check_flags(const fl_cli *cli, const embed_run *embed) {
    const char *dtype = cli->args.value[FL_FLAG_DTYPE];
    if (embed->kind != FLETCH_KIND_DENSE && embed->compare) {
        return fl_cli_usage(cli, "--similarity compares dense vectors; leave --output-kind out");
    }
    if (embed->kind != FLETCH_KIND_DENSE && dtype != NULL && strcmp(dtype, "float32") != 0) {
        return fl_cli_usage(cli, "--output-kind %s gives float32; leave --dtype out",
                            cli->args.value[FL_FLAG_OUTPUT_KIND]);
    }
    if (embed->compare && dtype != NULL && strcmp(dtype, "float32") != 0) {
        return fl_cli_usage(cli, "--similarity compares float32 vectors; leave --dtype out");
    }
    return FL_EXIT_DONE;
}

/* Formats that cannot hold what is asked for: better said than lost. */
static fl_exit check_format(const fl_cli *cli, const fl_output *output, const embed_run *embed) {
    fl_output_format format = output->format;
    if (embed->compare && format != FL_OUTPUT_TEXT && format != FL_OUTPUT_JSON) {
        return fl_cli_usage(cli, "--similarity writes a table as text or json, no other format");
    }
    if (embed->kind != FLETCH_KIND_DENSE && !fl_list_output_takes(format)) {
        return fl_cli_usage(cli, "--output-kind %s needs --format text, json, jsonl or npz",
                            cli->args.value[FL_FLAG_OUTPUT_KIND]);
    }
    if (format == FL_OUTPUT_FVECS && (embed->dtype != FLETCH_FLOAT32 || output->half)) {
        return fl_cli_usage(cli, "fvecs holds float32; use npy or raw for other types");
    }
    bool rows = format == FL_OUTPUT_NPY || format == FL_OUTPUT_NPZ || format == FL_OUTPUT_RAW ||
                format == FL_OUTPUT_FVECS;
    bool keeps =
        cli->args.value[FL_FLAG_KEEP_FIELDS] != NULL || cli->args.value[FL_FLAG_KEEP_TEXT] != NULL;
    if (rows && keeps) {
        return fl_cli_usage(cli, "--keep-fields and --keep-text need json or jsonl; this format "
                                 "holds numbers only");
    }
    return FL_EXIT_DONE;
}

static bool reserve(embed_run *embed, size_t count) {
    if (count <= embed->capacity) {
        return true;
    }
    size_t bytes = fletch_row_bytes(embed->dimensions, embed->dtype);
    fl_free(embed->vectors);
    fl_free(embed->tokens);
    fl_free(embed->truncated);
    embed->vectors   = fl_alloc_array(count, embed->kind == FLETCH_KIND_DENSE ? bytes : 0);
    embed->tokens    = fl_alloc_array(count, sizeof *embed->tokens);
    embed->truncated = fl_alloc_array(count, sizeof *embed->truncated);
    embed->capacity  = count;
    return embed->vectors != NULL && embed->tokens != NULL && embed->truncated != NULL;
}

/* Texts [first, first + count) of the window to the first rows of embed->vectors. */
static int embed_span(fl_run *run, embed_run *embed, size_t first, size_t count,
                      fletch_error *error) {
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    options.tokens               = embed->tokens;
    options.truncated            = embed->truncated;
    fletch_texts  texts          = fletch_texts_from_strings(run->window.texts + first, count);
    size_t        stride         = fletch_row_bytes(embed->dimensions, embed->dtype);
    fletch_matrix matrix         = {embed->vectors, count, embed->dimensions, stride, embed->dtype};
    texts.lengths                = run->window.sizes + first;
    fletch_lists_free(embed->lists);
    embed->lists = NULL;
    if (embed->kind == FLETCH_KIND_TOKENS) {
        return fletch_embed_tokens(run->cli->model, &texts, &options, &embed->lists, error);
    }
    return fletch_embed(run->cli->model, &texts, &options, &matrix, error);
}

/* Result `i` of the span to the output. */
static int put_row(fl_run *run, embed_run *embed, size_t i, const fl_row *row,
                   fletch_error *error) {
    if (run->lists != NULL) {
        fl_list_output_put(run->lists, row, &embed->lists->list[i]);
        return fl_list_output_flush(run->lists, error);
    }
    fl_output_vector(&run->output, row);
    return fl_sink_flush(&run->output.sink, false, error);
}

static fl_exit write_span(fl_run *run, embed_run *embed, size_t first, size_t count) {
    size_t bytes = fletch_row_bytes(embed->dimensions, embed->dtype);
    for (size_t i = 0; i < count; i++) {
        const fl_record *record = &run->window.records[first + i];
        const char      *fields = run->window.fields.data;
        fl_row           row    = {.index = record->index, .cols = embed->dimensions};
        row.text                = run->window.texts[first + i];
        row.text_size           = run->window.sizes[first + i];
        row.vector              = (const char *)embed->vectors + i * bytes;
        row.dtype               = embed->dtype;
        row.tokens              = embed->tokens[i];
        row.truncated           = embed->truncated[i] != 0;
        row.fields              = record->fields_size > 0 ? fields + record->fields : "";
        row.fields_size         = record->fields_size;
        run->texts++;
        run->last = record->place;
        run->tokens += row.tokens;
        run->truncated += row.truncated;
        if (!embed->compare) {
            fletch_error error;
            memset(&error, 0, sizeof error);
            if (put_row(run, embed, i, &row, &error) < 0) {
                return fl_output_fail(&run->output, &error);
            }
        } else if (embed->table.count == FL_SIMILARITY_MAX) {
            return fl_cli_usage(run->cli, "--similarity compares at most %d texts; there are more",
                                FL_SIMILARITY_MAX);
        } else if (!fl_similarity_add(&embed->table, &row)) {
            fl_cli_message("out of memory");
            return FL_EXIT_FAILED;
        }
    }
    return FL_EXIT_DONE;
}

/* Text `first` of the window is to blame: count it as refused (true), or end the run. The library
 * names the text by its place in the call, which says nothing here. */
static bool refuse(fl_run *run, size_t first, const fletch_error *error) {
    fl_place place     = run->window.records[first].place;
    char     limit[32] = "the limit";
    bool     on;
    if (error->code == FLETCH_ETOOLONG) {
        (void)fl_cli_model_property(run->cli->model, "max_length", limit, sizeof limit);
        on = fl_input_refuse(&run->input, place,
                             "longer than %s tokens; --truncate right or left cuts it", limit);
    } else {
        on = fl_input_refuse(&run->input, place, "%s", error->message);
    }
    if (!on) {
        fl_cli_message("%s", run->input.error.message);
    }
    return on;
}

/* Whether a text may be left out for this: for what is wrong with it, and, where refused inputs do not
 * end the run, for what the model or the memory makes of it alone. */
static bool can_refuse(const fl_run *run, int status) {
    return status == FLETCH_ETOOLONG || status == FLETCH_EUTF8 ||
           (run->input.skip_errors && (status == FLETCH_EMODEL || status == FLETCH_ENOMEM));
}

/* How many texts from `first` on one call takes of at most `span`. */
static size_t span_of(const fl_run *run, const embed_run *embed, size_t first, size_t span) {
    size_t bytes = 0, texts = 0;
    if (embed->kind == FLETCH_KIND_DENSE) {
        return span;
    }
    while (texts < span && (texts == 0 || bytes + run->window.sizes[first + texts] <= LIST_BYTES)) {
        bytes += run->window.sizes[first + texts++];
    }
    return texts;
}

static fl_exit embed_window(fl_run *run, void *user) {
    embed_run *embed = user;
    size_t     first = 0, total = run->window.count, span = total;
    if (!reserve(embed, total)) {
        fl_cli_message("out of memory for the vectors of %zu texts", total);
        return FL_EXIT_FAILED;
    }
    while (first < total) {
        fletch_error error;
        memset(&error, 0, sizeof error);
        span       = span_of(run, embed, first, span < total - first ? span : total - first);
        int status = embed_span(run, embed, first, span, &error);
        if (status >= 0) {
            fl_exit code = write_span(run, embed, first, span);
            if (code != FL_EXIT_DONE) {
                return code;
            }
            first += span;
            span *= 2;
            continue;
        }
        if (error.where >= span || !can_refuse(run, status)) {
            return fl_cli_fail(&error, false);
        }
        if (error.where > 0) {
            span = error.where; /* those before it are good: do them first */
            continue;
        }
        if (!refuse(run, first, &error)) {
            return run->input.exit;
        }
        first++;
        span = span > 1 ? span : 2;
    }
    return FL_EXIT_DONE;
}

static fl_exit finish(fl_run *run, embed_run *embed) {
    fletch_error error;
    memset(&error, 0, sizeof error);
    int status;
    if (embed->compare) {
        fl_similarity_print(&embed->table, &run->output);
        status = fl_sink_finish(&run->output.sink, NULL, 0, &error);
        if (status == 0 && !run->cli->quiet) {
            double ms = run->work_seconds * 1e3;
            fl_cli_message("%" PRIu64
                           " text%s in %.1f ms, %.2f ms a text (model opened in %.0f ms)",
                           run->texts, run->texts == 1 ? "" : "s", ms,
                           run->texts > 0 ? ms / (double)run->texts : 0.0, run->open_seconds * 1e3);
        }
    } else {
        status = fl_run_finish(run, embed->dimensions, embed->dtype, &error);
    }
    return status < 0 ? fl_output_fail(&run->output, &error) : fl_run_report(run);
}

/* Members of a result in JSON. */
static const char *own_names(fletch_kind kind) {
    return kind == FLETCH_KIND_TOKENS ? "index|tokens|ids|embeddings|truncated"
                                      : "index|embedding|tokens|truncated";
}

/* The model is open: how wide results are, and who writes them. */
static fl_exit prepare(fl_run *run, embed_run *embed) {
    fletch_model_info info  = {.size = sizeof info};
    fletch_error      error = {0};
    embed->dimensions       = fletch_dimensions(run->cli->model);
    if (embed->kind == FLETCH_KIND_DENSE) {
        return FL_EXIT_DONE;
    }
    int status = fletch_model_info_get(run->cli->model, &info, &error);
    if (status == FLETCH_OK) {
        status = fl_list_output_open(&embed->list_output, &run->output, run->cli->model,
                                     embed->kind, info.hidden, &error);
    }
    run->lists = &embed->list_output;
    return status < 0 ? fl_cli_fail(&error, false) : FL_EXIT_DONE;
}

fl_exit fl_cmd_embed(fl_cli *cli) {
    fl_run    run;
    embed_run embed;
    memset(&embed, 0, sizeof embed);
    embed.kind    = parse_kind(cli->args.value[FL_FLAG_OUTPUT_KIND]);
    embed.dtype   = parse_dtype(cli->args.value[FL_FLAG_DTYPE]);
    embed.compare = cli->args.value[FL_FLAG_SIMILARITY] != NULL;
    fl_exit code  = check_flags(cli, &embed);
    if (code != FL_EXIT_DONE) {
        return code;
    }
    code = fl_run_open(&run, cli, own_names(embed.kind), FL_OUTPUT_TEXT,
                       embed.compare ? FL_OUTPUT_TEXT : FL_OUTPUT_JSONL);
    if (code == FL_EXIT_DONE) {
        code = check_format(cli, &run.output, &embed);
    }
    if (code == FL_EXIT_DONE) {
        code = fl_run_open_model(&run, false);
    }
    if (code == FL_EXIT_DONE) {
        code = prepare(&run, &embed);
    }
    if (code == FL_EXIT_DONE) {
        code = fl_run_windows(&run, embed_window, &embed);
        code = code == FL_EXIT_DONE ? finish(&run, &embed)
               : embed.compare      ? code
                                    : fl_run_stop(&run, code, embed.dimensions, embed.dtype);
    }
    fl_list_output_close(&embed.list_output);
    fl_run_close(&run);
    fletch_lists_free(embed.lists);
    fl_similarity_free(&embed.table);
    fl_free(embed.vectors);
    fl_free(embed.tokens);
    fl_free(embed.truncated);
    return code;
}
