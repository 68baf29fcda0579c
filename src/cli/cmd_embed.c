/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_embed.c - `fletch embed`: texts to vectors, one result per input, in input order.
 *
 * Role    The main job of the program.
 * Method  run.c brings windows of texts, embedder.c makes their rows, which go to the writers of output.c.
 *         With --chunk chunk_rows.c makes a row for each chunk of them. With --output-kind the results are lists
 *         (fletch_lists) and go to list_output.c. With --similarity at most 64 rows are kept and the cosine of each
 *         pair is printed, in double and with the norms, so that it is right for raw vectors as well; a vector of
 *         norm 0 is similar to nothing (0).
 * Proof   tests/cli/test_cli_output.py, test_cli_errors.py. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/cosine.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/number.h"
#include "cli/chunk_rows.h"

enum { SIMILARITY_MAX = 64, PREVIEW = 60 }; /* more columns than any screen shows; of a text */

/* The vectors whose cosines --similarity prints. */
typedef struct similarity {
    float *vectors;               /* owned [count, dimensions] */
    char  *texts[SIMILARITY_MAX]; /* owned copies */
    size_t sizes[SIMILARITY_MAX];
    size_t count, dimensions;
} similarity;

typedef struct embed_run {
    fl_embedder    embedder;
    fl_list_output list_output; /* other kinds than dense */
    fl_several     several;     /* --outputs */
    fl_chunk_rows  chunks;      /* --chunk */
    bool           compare;     /* --similarity */
    similarity     table;
} embed_run;

/* ---- --similarity ---- */

static bool add_vector(similarity *table, const fl_row *row) {
    size_t width = row->cols;
    float *vectors =
        fl_realloc_array(table->vectors, (table->count + 1) * width, sizeof *table->vectors);
    char *text = fl_strndup(row->text, row->text_size);
    if (vectors != NULL)
        table->vectors = vectors;
    if (vectors == NULL || text == NULL) {
        fl_free(text);
        return false;
    }
    memcpy(vectors + table->count * width, row->vector, width * sizeof *vectors);
    table->dimensions          = width;
    table->texts[table->count] = text;
    table->sizes[table->count] = row->text_size;
    table->count++;
    return true;
}

static double cosine(const similarity *table, size_t i, size_t j) {
    return fl_vector_cosine(table->vectors + i * table->dimensions,
                            table->vectors + j * table->dimensions, table->dimensions);
}

static void print_json(const similarity *table, fl_buf *out) {
    fl_buf_puts(out, "{\"texts\":[");
    for (size_t i = 0; i < table->count; i++) {
        fl_buf_puts(out, i > 0 ? "," : "");
        fl_json_quote(out, table->texts[i], table->sizes[i]);
    }
    fl_buf_puts(out, "],\"similarity\":[");
    for (size_t i = 0; i < table->count; i++) {
        fl_buf_puts(out, i > 0 ? ",[" : "[");
        for (size_t j = 0; j < table->count; j++) {
            char number[FL_F32_TEXT_MAX];
            fl_buf_puts(out, j > 0 ? "," : "");
            fl_buf_append(out, number, fl_f32_text(number, (float)cosine(table, i, j)));
        }
        fl_buf_putc(out, ']');
    }
    fl_buf_puts(out, "]}\n");
}

static void print_text(const similarity *table, fl_buf *out) {
    fl_buf_puts(out, "    ");
    for (size_t j = 0; j < table->count; j++)
        fl_buf_printf(out, "%6zu", j + 1);
    fl_buf_putc(out, '\n');
    for (size_t i = 0; i < table->count; i++) {
        fl_buf_printf(out, "%4zu", i + 1);
        for (size_t j = 0; j < table->count; j++) {
            double value = cosine(table, i, j);
            fl_buf_printf(out, "%6.2f", fabs(value) < 0.005 ? 0.0 : value); /* no "-0.00" */
        }
        fl_buf_puts(out, "  ");
        fl_cli_preview(out, table->texts[i], table->sizes[i], PREVIEW);
        fl_buf_putc(out, '\n');
    }
    fl_buf_puts(out, "\nEach number is the cosine similarity of two texts: 1 means the same "
                     "direction (they say the same),\nnear 0 that they have nothing in common.\n");
}

static void free_table(similarity *table) {
    for (size_t i = 0; i < table->count; i++)
        fl_free(table->texts[i]);
    fl_free(table->vectors);
    memset(table, 0, sizeof *table);
}

/* ---- Flags ---- */

/* --top-k and --threshold. */
static fl_exit read_weights(const fl_cli *cli, fl_embedder *embedder) {
    const char *top = cli->args.value[FL_FLAG_TOP_K], *least = cli->args.value[FL_FLAG_THRESHOLD];
    double      number = 0;
    int64_t     count  = 0;
    if ((top != NULL || least != NULL) && embedder->kind->lists != &fl_list_weights &&
        !(embedder->several != NULL && fl_several_has_sparse(embedder->several))) {
        return fl_cli_usage(
            cli, "--top-k and --threshold need --output-kind sparse, or sparse among --outputs");
    }
    if (top != NULL && (!fl_parse_i64(top, &count) || count < 1 || count > UINT32_MAX))
        return fl_cli_usage(cli, "--top-k takes a number of at least 1, not %s", top);
    if (least != NULL && (!fl_parse_f64(least, &number) || !(number >= 0) || number > 1e30))
        return fl_cli_usage(cli, "--threshold takes a number of at least 0, not %s", least);
    embedder->top_k     = (uint32_t)count;
    embedder->threshold = (float)number;
    return FL_EXIT_DONE;
}

/* --outputs, and what it does not go with. */
static fl_exit read_outputs(const fl_cli *cli, embed_run *embed) {
    const char *dtype = cli->args.value[FL_FLAG_DTYPE];
    FL_CLI_TRY(fl_several_read(&embed->several, cli, embed->embedder.dtype));
    if (embed->several.count == 0)
        return FL_EXIT_DONE;
    if (cli->args.value[FL_FLAG_OUTPUT_KIND] != NULL || embed->compare)
        return fl_cli_usage(cli, "--outputs excludes --output-kind and --similarity");
    if (dtype != NULL && strcmp(dtype, "float16") == 0)
        return fl_cli_usage(cli, "--outputs does not support float16; omit --dtype");
    embed->embedder.several = &embed->several;
    return FL_EXIT_DONE;
}

/* --chunk and what goes with it. */
static fl_exit read_chunks(const fl_cli *cli, embed_run *embed) {
    embed->chunks.embedder = &embed->embedder;
    if (fl_chunk_rows_asked(cli) &&
        (embed->several.count > 0 || embed->embedder.kind->lists != NULL))
        return fl_cli_usage(cli, "--chunk makes dense vectors; omit --output-kind and --outputs");
    return fl_chunk_rows_read(&embed->chunks, cli);
}

/* Flags that contradict each other. */
static fl_exit check_flags(const fl_cli *cli, const embed_run *embed) {
    const char *dtype = cli->args.value[FL_FLAG_DTYPE];
    if (embed->several.count > 0)
        return FL_EXIT_DONE;
    if (embed->embedder.kind->lists != NULL && embed->compare)
        return fl_cli_usage(cli, "--similarity compares dense vectors; omit --output-kind");
    if (embed->embedder.kind->lists != NULL && dtype != NULL && strcmp(dtype, "float32") != 0) {
        return fl_cli_usage(cli, "--output-kind %s is float32; omit --dtype",
                            cli->args.value[FL_FLAG_OUTPUT_KIND]);
    }
    if (embed->compare && dtype != NULL && strcmp(dtype, "float32") != 0)
        return fl_cli_usage(cli, "--similarity compares float32 vectors; omit --dtype");
    return FL_EXIT_DONE;
}

/* Formats that cannot hold what is asked for: better said than lost. */
static fl_exit check_format(const fl_cli *cli, const fl_output *output, const embed_run *embed) {
    fl_output_format format = output->format;
    if (embed->compare && format != FL_OUTPUT_TEXT && format != FL_OUTPUT_JSON)
        return fl_cli_usage(cli, "--similarity writes a table as text or json, no other format");
    if (embed->several.count > 0) {
        return fl_output_holds(output) == FL_CONTENT_JSON
                   ? FL_EXIT_DONE
                   : fl_cli_usage(cli, "--outputs needs --format json or jsonl");
    }
    if (embed->embedder.kind->lists != NULL && !fl_list_output_takes(format)) {
        return fl_cli_usage(cli, "--output-kind %s needs --format text, json, jsonl or npz",
                            cli->args.value[FL_FLAG_OUTPUT_KIND]);
    }
    if (format == FL_OUTPUT_FVECS && (embed->embedder.dtype != FLETCH_FLOAT32 || output->half))
        return fl_cli_usage(cli, "fvecs holds float32; use npy or raw for other types");
    return fl_output_check_kept(output, cli);
}

static fl_exit put(fl_run *run, const fl_row *row, void *user) {
    embed_run   *embed = user;
    fletch_error error = {0};
    if (embed->compare && embed->table.count == SIMILARITY_MAX) {
        return fl_cli_usage(run->cli, "--similarity compares at most %d texts; there are more",
                            SIMILARITY_MAX);
    }
    if (embed->compare && !add_vector(&embed->table, row))
        return fl_cli_no_memory();
    if (embed->compare)
        return FL_EXIT_DONE;
    if (run->lists != NULL)
        fl_list_output_put(run->lists, row, embed->embedder.list);
    else if (embed->several.count > 0)
        fl_several_put(&embed->several, &run->output, row, embed->embedder.at);
    else
        fl_output_put(&run->output, &fl_vector_writer, row, NULL);
    return fl_output_flush(&run->output, &error) < 0 ? fl_output_fail(&run->output, &error)
                                                     : FL_EXIT_DONE;
}

static fl_exit finish(fl_run *run, embed_run *embed) {
    fletch_error error = {0};
    int          status;
    if (embed->compare) {
        (run->output.format == FL_OUTPUT_JSON ? print_json : print_text)(&embed->table,
                                                                         &run->output.sink.buf);
        status = fl_sink_finish(&run->output.sink, NULL, 0, &error);
        if (status == 0 && !run->cli->quiet) {
            double ms = run->work_seconds * 1e3;
            fl_cli_message("%" PRIu64
                           " text%s in %.1f ms, %.2f ms per text (model opened in %.0f ms)",
                           run->texts, run->texts == 1 ? "" : "s", ms,
                           run->texts > 0 ? ms / (double)run->texts : 0.0, run->open_seconds * 1e3);
        }
    } else {
        status = fl_run_finish(run, embed->embedder.dimensions, embed->embedder.dtype, &error);
    }
    return status < 0 ? fl_output_fail(&run->output, &error) : fl_run_report(run);
}

/* Members of a result in JSON. */
static const char *own_names(const fl_cli *cli, const embed_run *embed) {
    return fl_chunk_rows_asked(cli)   ? "index|chunk|bytes|chars|embedding|tokens|truncated"
           : embed->several.count > 0 ? "index|embedding|outputs|tokens|truncated"
                                      : embed->embedder.kind->members;
}

/* The model is open: how wide results are, and who writes them. */
static fl_exit prepare(fl_run *run, embed_run *embed) {
    fletch_model_info info     = {.size = sizeof info};
    fletch_error      error    = {0};
    embed->embedder.dimensions = fletch_dimensions(run->cli->model);
    if (fl_chunk_rows_asked(run->cli)) {
        return fl_output_spools(&run->output, 1, &error) < 0 ? fl_cli_fail(&error, false)
                                                             : FL_EXIT_DONE;
    }
    if (embed->several.count > 0 || embed->embedder.kind->lists == NULL)
        return FL_EXIT_DONE;
    int status = fletch_model_info_get(run->cli->model, &info, &error);
    if (status == FLETCH_OK) {
        status = fl_list_output_open(&embed->list_output, &run->output, run->cli->model,
                                     embed->embedder.kind->lists, &info, &error);
    }
    run->lists = &embed->list_output;
    return status < 0 ? fl_cli_fail(&error, false) : FL_EXIT_DONE;
}

static fl_exit embed_all(fl_run *run, embed_run *embed) {
    fl_embedder *embedder = &embed->embedder;
    FL_CLI_TRY(check_format(run->cli, &run->output, embed));
    FL_CLI_TRY(fl_run_open_model(run, false));
    FL_CLI_TRY(prepare(run, embed));
    fl_exit code = fl_chunk_rows_asked(run->cli)
                       ? fl_run_windows(run, fl_chunk_rows_window, &embed->chunks)
                       : fl_run_windows(run, fl_embedder_window, embedder);
    if (code == FL_EXIT_DONE)
        return finish(run, embed);
    return embed->compare ? code : fl_run_stop(run, code, embedder->dimensions, embedder->dtype);
}

fl_exit fl_cmd_embed(fl_cli *cli) {
    fl_run    run;
    embed_run embed;
    memset(&embed, 0, sizeof embed);
    fl_embedder *embedder = &embed.embedder;
    embedder->kind        = fl_result_kind_named(cli->args.value[FL_FLAG_OUTPUT_KIND]);
    embedder->dtype       = fl_embedder_dtype(cli->args.value[FL_FLAG_DTYPE]);
    embedder->put         = put;
    embedder->user        = &embed;
    embed.compare         = cli->args.value[FL_FLAG_SIMILARITY] != NULL;
    FL_CLI_TRY(read_outputs(cli, &embed));
    FL_CLI_TRY(check_flags(cli, &embed));
    FL_CLI_TRY(read_weights(cli, embedder));
    FL_CLI_TRY(read_chunks(cli, &embed));
    bool    several = embed.several.count > 0;
    fl_exit code =
        fl_run_open(&run, cli, own_names(cli, &embed), several ? FL_OUTPUT_JSONL : FL_OUTPUT_TEXT,
                    embed.compare ? FL_OUTPUT_TEXT : FL_OUTPUT_JSONL);
    code = code == FL_EXIT_DONE ? embed_all(&run, &embed) : code;
    fl_several_free(&embed.several);
    fl_run_close(&run);
    free_table(&embed.table);
    fl_chunk_rows_free(&embed.chunks);
    fl_embedder_free(embedder);
    return code;
}
