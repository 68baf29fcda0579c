/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_search.c - `fletch search`: the texts of a running server's store that are most like one.
 *
 * Role    The other half of cmd_add.c: one POST /search.
 * Method  Results are passed on as the server wrote them; only white space between is dropped.
 * Memory  The reply. Threads: main.
 * Proof   tests/server/test_store_commands.py. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/json_w.h"
#include "base/number.h"
#include "base/utf8.h"
#include "cli/client.h"
#include "cli/output.h"

enum { PREVIEW = 100, FILTER_MAX = 1 << 20 };

/* Which stages the search has; false and *wrong: a flag that is no number. */
static bool put_stages(const fl_args *args, fl_json_w *w, const char **wrong) {
    static const struct {
        fl_flag_id  flag;
        const char *flag_name, *name;
    } numbers[] = {{FL_FLAG_TOP_K, "--top-k", "k"},
                   {FL_FLAG_CANDIDATES, "--candidates", "candidates"},
                   {FL_FLAG_GROUP_SIZE, "--group-size", "group_size"}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *text  = args->value[numbers[i].flag];
        int64_t     value = 0;
        if (text != NULL && (!fl_parse_i64(text, &value) || value < 1)) {
            *wrong = numbers[i].flag_name;
            return false;
        }
        if (text != NULL)
            fl_json_w_i64(w, numbers[i].name, value);
    }
    if (args->value[FL_FLAG_HYBRID] != NULL)
        fl_json_w_bool(w, "hybrid", true);
    if (args->value[FL_FLAG_RERANK] != NULL)
        fl_json_w_bool(w, "rerank", true);
    if (args->value[FL_FLAG_RERANK_MODEL] != NULL)
        fl_json_w_text(w, "rerank_model", args->value[FL_FLAG_RERANK_MODEL]);
    if (args->value[FL_FLAG_GROUP] != NULL || args->value[FL_FLAG_GROUP_SIZE] != NULL)
        fl_json_w_text(w, "group_by", "document");
    if (args->value[FL_FLAG_HIGHLIGHT] != NULL)
        fl_json_w_text(w, "highlight", args->value[FL_FLAG_HIGHLIGHT]);
    return true;
}

/* The request, if the flags make sense. */
static fl_exit write_body(const fl_cli *cli, fl_buf *body) {
    const fl_args *args   = &cli->args;
    const char    *filter = args->value[FL_FLAG_FILTER], *wrong = NULL;
    const char    *prompt = fl_cli_option(cli, "model.prompt_name");
    const char    *text   = args->rest_count > 0 ? args->rest[0] : "";
    fl_json_w      w      = {.out = body};
    fl_json       *json   = NULL;
    fletch_error   error  = {0};
    if (args->rest_count != 1 || text[0] == '\0')
        return fl_cli_usage(cli, "search takes one text; put several words in quotes");
    if (fl_utf8_valid_prefix(text, strlen(text)) != strlen(text))
        return fl_cli_usage(cli, "the text is not valid UTF-8");
    if (filter != NULL &&
        (fl_json_parse(&json, filter, strlen(filter), FILTER_MAX, 0, "--filter", &error) < 0 ||
         !fl_json_is(json, FL_JSON_OBJECT))) {
        fl_json_free(json);
        return fl_cli_usage(cli, "%s",
                            error.code < 0
                                ? error.message
                                : "--filter takes a JSON object, such as '{\"lang\": \"en\"}'");
    }
    fl_json_free(json);
    fl_json_w_object(&w, NULL);
    fl_json_w_text(&w, "text", text);
    if (!put_stages(args, &w, &wrong))
        return fl_cli_usage(cli, "%s takes a number of at least 1", wrong);
    if (filter != NULL) {
        fl_json_w_raw(&w, "filter");
        fl_buf_puts(body, filter);
    }
    if (prompt[0] != '\0')
        fl_json_w_text(&w, "prompt_name", prompt);
    fl_json_w_end(&w);
    return FL_EXIT_DONE;
}

/* A person sees how alike and the text, or the passage of it that matters. */
static void put_text(fl_buf *out, fl_json *result) {
    fl_json *text = fl_json_get(result, "text"), *passage = fl_json_get(result, "passage");
    text = passage != NULL ? fl_json_get(passage, "text") : text;
    fl_buf_printf(out, "%.4f  ", fl_json_f64(fl_json_get(result, "score")));
    fl_cli_preview(out, fl_json_is(text, FL_JSON_STRING) ? fl_json_text(text) : "",
                   fl_json_text_size(text), PREVIEW);
    fl_buf_putc(out, '\n');
}

/* A document's id, and its chunks below it. */
static void put_document(fl_buf *out, fl_json *result) {
    fl_json *id = fl_json_get(result, "id"), *chunks = fl_json_get(result, "chunks");
    fl_cli_preview(out, fl_json_text(id), fl_json_text_size(id), PREVIEW);
    fl_buf_putc(out, '\n');
    for (size_t i = 0; i < fl_json_count(chunks); i++) {
        fl_buf_puts(out, "   ");
        put_text(out, fl_json_item(chunks, i));
    }
}

/* Each of "results" as it stands in the reply, a line each. */
static void put_lines(fl_buf *out, fl_buf *reply) {
    fl_json_in in;
    fl_span    key, raw;
    fl_json_in_begin(&in, reply->data, reply->size);
    if (!fl_json_in_enter(&in, FL_JSON_OBJECT))
        return;
    while (fl_json_in_key(&in, &key)) {
        if (!fl_span_is(key, "results") || !fl_json_in_enter(&in, FL_JSON_ARRAY)) {
            (void)fl_json_in_skip(&in, NULL);
            continue;
        }
        while (fl_json_in_item(&in) && fl_json_in_skip(&in, &raw)) {
            fl_json_compact(out, raw.data, raw.size);
            fl_buf_putc(out, '\n');
        }
    }
}

static fl_exit print(const fl_cli *cli, const fl_client *client, fl_output *output, fl_buf *reply) {
    fl_json     *json  = fl_client_parse(client, reply);
    fletch_error error = {0};
    fl_buf      *out   = &output->sink.buf;
    if (json == NULL)
        return FL_EXIT_FAILED;
    fl_json *results = fl_json_get(json, "results");
    if (fl_json_count(results) == 0 && !cli->quiet) {
        fl_cli_message("note: %s", fl_json_int64(fl_json_get(json, "searched")) == 0
                                       ? "the store is empty; add texts with `fletch add`"
                                       : "no stored text matches the filter");
    }
    if (output->format == FL_OUTPUT_JSON) {
        fl_json_compact(out, reply->data, reply->size);
        fl_buf_putc(out, '\n');
    } else if (output->format == FL_OUTPUT_JSONL) {
        put_lines(out, reply);
    }
    for (size_t i = 0; output->format == FL_OUTPUT_TEXT && i < fl_json_count(results); i++) {
        fl_json *result = fl_json_item(results, i);
        if (fl_json_get(result, "chunks") != NULL)
            put_document(out, result);
        else
            put_text(out, result);
    }
    fl_json_free(json);
    return fl_sink_finish(&output->sink, NULL, 0, &error) < 0 ? fl_output_fail(output, &error)
                                                              : FL_EXIT_DONE;
}

fl_exit fl_cmd_search(fl_cli *cli) {
    fl_client client;
    fl_output output;
    fl_buf    body = {0}, reply = {0};
    fl_exit   code = fl_client_open(&client, cli);
    code           = code == FL_EXIT_DONE ? fl_client_take_key(&client, cli) : code;
    code           = code == FL_EXIT_DONE ? write_body(cli, &body) : code;
    if (code != FL_EXIT_DONE) {
        fl_client_close(&client);
        fl_buf_free(&body);
        return code;
    }
    code = fl_output_open(&output, cli, FL_OUTPUT_TEXT, FL_OUTPUT_JSONL);
    code = code == FL_EXIT_DONE ? fl_client_post(&client, "/search", &body, &reply) : code;
    code = code == FL_EXIT_DONE ? print(cli, &client, &output, &reply) : code;
    fl_output_close(&output);
    fl_client_close(&client);
    fl_buf_free(&body);
    fl_buf_free(&reply);
    return code;
}
