/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_add.c - `fletch add`: texts into the store of a running server.
 *
 * Role    The server embeds and keeps; this reads whatever embed reads, and names of files as arguments.
 * Method  A window of run.c is one POST /add: all of it is kept, or nothing. With --keep-fields the other fields
 *         of an input are its metadata; with --id-field one of them is its id, so that a file that is added
 *         again replaces what it added before. With --chunk the server keeps long texts as chunks. A refused input
 *         ends the run after those before it were added.
 * Memory  One window, its request and the reply. Threads: main.
 * Proof   tests/server/test_store_commands.py. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/json_w.h"
#include "base/mem.h"
#include "cli/chunk_rows.h"
#include "cli/client.h"
#include "cli/run.h"

enum { ID_MAX = 513, TREE_MAX = 512 << 20 }; /* an id has at most 512 bytes */

typedef struct add_run {
    fl_client            client;
    const char          *id_field; /* NULL: the server makes ids */
    bool                 keep, chunk;
    fletch_chunk_options split;   /* size and overlap: 0 where not given */
    const char          *prompt;  /* "" for none */
    fl_buf               context; /* empty for none */
    fl_buf               body, reply;
    size_t              *rows; /* owned [capacity]: the records of the window that are sent */
    size_t               count, capacity;
    uint64_t             cut, chunks;
    bool                 lasts; /* the store is a file */
} add_run;

/* The other fields of a record as one object. */
static void put_fields(const fl_run *run, const fl_record *record, fl_buf *out) {
    fl_buf_putc(out, '{');
    if (record->fields_size > 0) /* without the comma in front */
        fl_buf_append(out, run->window.fields.data + record->fields + 1, record->fields_size - 1);
    fl_buf_putc(out, '}');
}

/* The id that the record brings, into out[ID_MAX]; NULL, or what is wrong with it. */
static const char *take_id(const fl_run *run, const add_run *add, const fl_record *record,
                           char *out) {
    fl_buf       text  = {0};
    fl_json     *json  = NULL;
    fletch_error error = {0};
    const char  *wrong = "is missing, or is neither a string nor an integer";
    put_fields(run, record, &text);
    if (text.failed || fl_json_parse(&json, text.data, text.size, TREE_MAX, 0, "", &error) < 0) {
        wrong = text.failed ? "does not fit into memory" : "cannot be read";
    } else {
        fl_json *id   = fl_json_get(json, add->id_field);
        int      size = -1;
        if (fl_json_is(id, FL_JSON_STRING) && strlen(fl_json_text(id)) == fl_json_text_size(id))
            size = snprintf(out, ID_MAX, "%s", fl_json_text(id));
        else if (fl_json_is_int(id))
            size = snprintf(out, ID_MAX, "%" PRId64, fl_json_int64(id));
        wrong = size >= ID_MAX ? "is too long" : size > 0 ? NULL : size == 0 ? "is empty" : wrong;
    }
    fl_json_free(json);
    fl_buf_free(&text);
    return wrong;
}

/* Which records of the window are sent, and their ids as a JSON array. False: the input ends with the last of them. */
static bool choose(fl_run *run, add_run *add, fl_json_w *w) {
    add->count = 0;
    if (add->id_field != NULL)
        fl_json_w_array(w, "ids");
    bool on = true;
    for (size_t i = 0; on && i < run->window.count; i++) {
        const fl_record *record = &run->window.records[i];
        char             id[ID_MAX];
        const char      *wrong = add->id_field != NULL ? take_id(run, add, record, id) : NULL;
        if (wrong != NULL) {
            on = fl_input_refuse(&run->input, record->place, "the id in \"%.64s\" %s",
                                 add->id_field, wrong);
            continue;
        }
        add->rows[add->count++] = i;
        if (add->id_field != NULL)
            fl_json_w_text(w, NULL, id);
    }
    if (add->id_field != NULL)
        fl_json_w_end(w);
    return on;
}

/* How texts are cut, and what is embedded of them. */
static void put_chunk(const fl_cli *cli, const add_run *add, fl_json_w *w) {
    if (add->chunk) {
        fl_json_w_object(w, "chunk");
        if (cli->args.value[FL_FLAG_BY] != NULL)
            fl_json_w_text(w, "by", cli->args.value[FL_FLAG_BY]);
        if (add->split.max_tokens > 0)
            fl_json_w_i64(w, "size", add->split.max_tokens);
        if (add->split.overlap > 0)
            fl_json_w_i64(w, "overlap", add->split.overlap);
        if (cli->args.value[FL_FLAG_LATE_CHUNKING] != NULL)
            fl_json_w_bool(w, "late_chunking", true);
        fl_json_w_end(w);
    }
    if (add->context.size > 0)
        fl_json_w_bytes(w, "context", add->context.data, add->context.size);
}

static bool write_body(fl_run *run, add_run *add) {
    fl_json_w w = {.out = &add->body};
    fl_buf_clear(&add->body);
    fl_json_w_object(&w, NULL);
    bool on = choose(run, add, &w);
    fl_json_w_array(&w, "texts");
    for (size_t i = 0; i < add->count; i++) {
        size_t row = add->rows[i];
        fl_json_w_bytes(&w, NULL, run->window.texts[row], run->window.sizes[row]);
    }
    fl_json_w_end(&w);
    if (add->keep) {
        fl_json_w_array(&w, "metadata");
        for (size_t i = 0; i < add->count; i++) {
            fl_json_w_raw(&w, NULL);
            put_fields(run, &run->window.records[add->rows[i]], &add->body);
        }
        fl_json_w_end(&w);
    }
    put_chunk(run->cli, add, &w);
    if (add->prompt[0] != '\0')
        fl_json_w_text(&w, "prompt_name", add->prompt);
    fl_json_w_end(&w);
    return on;
}

/* What the server says of the window: an id and whether it was cut, for each text. */
static fl_exit read_reply(fl_run *run, add_run *add) {
    fl_json *json = fl_client_parse(&add->client, &add->reply);
    if (json == NULL)
        return FL_EXIT_FAILED;
    fl_json    *ids = fl_json_get(json, "ids"), *cut = fl_json_get(json, "truncated");
    fl_json    *chunks = fl_json_get(json, "chunks"); /* not there where nothing is cut */
    const char *store  = fl_json_text(fl_json_get(json, "store"));
    bool        good   = fl_json_count(ids) == add->count;
    add->lasts         = store == NULL || strcmp(store, "memory") != 0;
    if (!good)
        fl_cli_message("%s is not a fletch server: it returns no ids", add->client.where);
    for (size_t i = 0; good && i < add->count; i++) {
        const fl_record *record = &run->window.records[add->rows[i]];
        bool             is_cut = fl_json_true(fl_json_item(cut, i));
        run->texts++;
        run->last = record->place;
        add->cut += is_cut;
        add->chunks += (uint64_t)fl_json_int64(fl_json_item(chunks, i));
        if (run->output.format == FL_OUTPUT_JSONL) {
            fl_json_w w = {.out = &run->output.sink.buf};
            fl_json_w_object(&w, NULL);
            fl_json_w_u64(&w, "index", record->index);
            fl_json_w_text(&w, "id", fl_json_text(fl_json_item(ids, i)));
            fl_json_w_bool(&w, "truncated", is_cut);
            if (chunks != NULL)
                fl_json_w_i64(&w, "chunks", fl_json_int64(fl_json_item(chunks, i)));
            fl_json_w_end(&w);
            fl_output_end_row(&run->output);
        }
    }
    fl_json_free(json);
    return good ? FL_EXIT_DONE : FL_EXIT_FAILED;
}

static fl_exit add_window(fl_run *run, void *user) {
    add_run *add = user;
    if (add->capacity < run->window.count) {
        fl_free(add->rows);
        add->capacity = run->window.count;
        add->rows     = fl_alloc_array(add->capacity, sizeof *add->rows);
        if (add->rows == NULL)
            return fl_cli_no_memory();
    }
    bool    on   = write_body(run, add);
    fl_exit code = FL_EXIT_DONE;
    if (add->count > 0) {
        code = fl_client_post(&add->client, "/add", &add->body, &add->reply);
        code = code == FL_EXIT_DONE ? read_reply(run, add) : code;
    }
    if (code == FL_EXIT_DONE && !on) {
        fl_cli_message("%s", run->input.error.message);
        code = run->input.exit;
    }
    return code;
}

static fl_exit finish(fl_run *run, const add_run *add, fl_exit code) {
    fletch_error error = {0};
    const char  *s     = run->texts == 1 ? "" : "s";
    if (run->output.format == FL_OUTPUT_TEXT && code == FL_EXIT_DONE) {
        fl_buf_printf(&run->output.sink.buf, "added %" PRIu64 " text%s", run->texts, s);
        if (add->chunks > run->texts)
            fl_buf_printf(&run->output.sink.buf, " in %" PRIu64 " chunks", add->chunks);
        fl_buf_printf(&run->output.sink.buf, " to %s\n", add->client.where);
    }
    if (fl_sink_finish(&run->output.sink, NULL, 0, &error) < 0)
        return fl_output_fail(&run->output, &error);
    if (run->texts > 0 && code != FL_EXIT_DONE) {
        char place[300];
        fl_input_tell_place(&run->input, run->last, place, sizeof place);
        fl_cli_message("stopped after %" PRIu64 " text%s, up to %s, which the server has kept",
                       run->texts, s, place);
    }
    if (run->texts > 0 && !add->lasts && !run->cli->quiet) {
        fl_cli_message("note: this server keeps texts in memory, until it stops; `fletch serve "
                       "--server-store FILE` keeps them in a file");
    }
    if (add->cut > 0 && !run->cli->quiet) {
        fl_cli_message("note: %" PRIu64 " of %" PRIu64
                       " texts %s too long for the model: only the beginning can be found",
                       add->cut, run->texts, add->cut == 1 ? "was" : "were");
    }
    return code == FL_EXIT_DONE ? fl_run_report(run) : code;
}

/* \n and \t stand for what they are elsewhere: a shell has no plain way to write them. */
static void take_context(const char *text, fl_buf *out) {
    for (; text != NULL && *text != '\0'; text++) {
        bool escaped = text[0] == '\\' && (text[1] == 'n' || text[1] == 't' || text[1] == '\\');
        text += escaped;
        fl_buf_putc(out, !escaped || *text == '\\' ? *text : *text == 'n' ? '\n' : '\t');
    }
}

/* The flags that cut. */
static fl_exit take_flags(const fl_cli *cli, add_run *add) {
    const char *context = cli->args.value[FL_FLAG_CONTEXT];
    FL_CLI_TRY(fl_chunk_options_read(cli, "--chunk-", &add->split));
    if (context != NULL && strstr(context, "{chunk}") == NULL) {
        return fl_cli_usage(
            cli, "--context needs {chunk}, which stands for the chunk: '{title}\\n{chunk}'");
    }
    add->chunk = cli->args.value[FL_FLAG_BY] != NULL || cli->args.value[FL_FLAG_SIZE] != NULL ||
                 cli->args.value[FL_FLAG_OVERLAP] != NULL ||
                 cli->args.value[FL_FLAG_LATE_CHUNKING] != NULL;
    take_context(context, &add->context);
    return add->context.failed ? fl_cli_no_memory() : FL_EXIT_DONE;
}

fl_exit fl_cmd_add(fl_cli *cli) {
    fl_run  run;
    add_run add = {.id_field = cli->args.value[FL_FLAG_ID_FIELD],
                   .keep     = cli->args.value[FL_FLAG_KEEP_FIELDS] != NULL,
                   .prompt   = fl_cli_option(cli, "model.prompt_name"),
                   .lasts    = true};
    FL_CLI_TRY(take_flags(cli, &add));
    FL_CLI_TRY(fl_client_open(&add.client, cli));
    FL_CLI_TRY(fl_client_take_key(&add.client, cli));
    fl_exit code = fl_run_open(&run, cli, NULL, FL_OUTPUT_TEXT, FL_OUTPUT_JSONL);
    if (code == FL_EXIT_DONE) {
        run.input.keep_fields = add.keep || add.id_field != NULL;
        code                  = fl_run_windows(&run, add_window, &add);
        code                  = finish(&run, &add, code);
    }
    fl_run_close(&run);
    fl_client_close(&add.client);
    fl_buf_free(&add.context);
    fl_buf_free(&add.body);
    fl_buf_free(&add.reply);
    fl_free(add.rows);
    return code;
}
