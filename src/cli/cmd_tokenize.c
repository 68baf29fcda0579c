/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_tokenize.c - `fletch tokenize` and `fletch decode`: texts to token ids and back.
 *
 * Role    To look at what a model sees, and to prepare ids for other programs. No weights are read.
 * Formats jsonl {"ids":[..],"tokens":[".."],"offsets":[[s,e],..],"special":[..],"truncated":false};
 *         offsets count UTF-8 bytes of the text, [0,0] for tokens that the template added. With --pair also
 *         "second":[b,e], the tokens of the second text, and "segment", the first token of type 1.
 *         decode reads ids as arguments, or a JSON list (or a result of tokenize) a line.
 * Memory  One window; the tokens of one text at a time. Proof tests/cli/test_cli_tokenize.py. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/number.h"
#include "cli/run.h"

/* ---- tokenize ---- */

/* The tokens of a text, and what they are shown with. */
typedef struct shown {
    fletch_model  *model;
    const char    *pair; /* the second text; or NULL */
    fletch_tokens *tokens;
} shown;

static void put_members(fl_output *output, const fl_row *row, const void *result) {
    const shown         *of     = result;
    const fletch_tokens *tokens = of->tokens;
    fl_buf              *out    = &output->sink.buf;
    (void)row;
    fl_buf_puts(out, "\"ids\":");
    fl_json_out_ids(out, tokens->ids, tokens->count);
    fl_buf_puts(out, ",\"tokens\":[");
    for (size_t i = 0; i < tokens->count; i++) {
        const char *text = fletch_token_text(of->model, tokens->ids[i]);
        fl_buf_puts(out, i > 0 ? "," : "");
        fl_json_quote(out, text != NULL ? text : "", text != NULL ? strlen(text) : 0);
    }
    fl_buf_puts(out, "],\"offsets\":[");
    for (size_t i = 0; i < tokens->count; i++) {
        fl_buf_puts(out, i > 0 ? ",[" : "[");
        fl_json_out_u64(out, tokens->offsets[2 * i]);
        fl_buf_putc(out, ',');
        fl_json_out_u64(out, tokens->offsets[2 * i + 1]);
        fl_buf_putc(out, ']');
    }
    fl_buf_puts(out, "],\"special\":[");
    for (size_t i = 0; i < tokens->count; i++) {
        fl_buf_puts(out, i > 0 ? "," : "");
        fl_buf_putc(out, tokens->special[i] != 0 ? '1' : '0');
    }
    fl_buf_puts(out, "]");
    if (of->pair != NULL) {
        fl_buf_printf(out, ",\"second\":[%zu,%zu],\"segment\":%zu", tokens->second,
                      tokens->second + tokens->second_count, tokens->segment);
    }
}

/* A table for a person: id, token, and the piece of the text it stands for. */
static void put_table(fl_output *output, const fl_row *row, const void *result) {
    const shown         *of     = result;
    const fletch_tokens *tokens = of->tokens;
    fl_buf              *out    = &output->sink.buf;
    fl_output_put_preview(output, row);
    if (of->pair != NULL) {
        fl_buf_puts(out, "  +  ");
        fl_cli_preview(out, of->pair, strlen(of->pair), 64);
    }
    fl_buf_puts(out, "\n   ");
    fl_output_put_count(out, tokens->count, row->truncated);
    fl_buf_putc(out, '\n');
    for (size_t i = 0; i < tokens->count; i++) {
        const char *token = fletch_token_text(of->model, tokens->ids[i]);
        uint32_t    start = tokens->offsets[2 * i], end = tokens->offsets[2 * i + 1];
        fl_buf_printf(out, "   %7" PRId32 "  %-20s", tokens->ids[i], token != NULL ? token : "?");
        if (tokens->special[i] != 0) {
            fl_buf_puts(out, "  added\n");
            continue;
        }
        bool second = i >= tokens->second && i < tokens->second + tokens->second_count;
        fl_buf_printf(out, "  %" PRIu32 "-%" PRIu32 "  ", start, end);
        if (second)
            fl_cli_preview(out, of->pair + start, end - start, 32);
        else if (end <= row->text_size && start <= end)
            fl_cli_preview(out, row->text + start, end - start, 32);
        fl_buf_putc(out, '\n');
    }
}

static fl_exit tokenize_window(fl_run *run, void *user) {
    static const fl_writer         writer  = {.text = put_table, .members = put_members};
    const fletch_tokenize_options *options = user;
    for (size_t i = 0; i < run->window.count; i++) {
        fletch_tokens *tokens = NULL;
        fletch_error   error  = {0};
        int status = fletch_tokenize(run->cli->model, run->window.texts[i], run->window.sizes[i],
                                     options, &tokens, &error);
        if (status == FLETCH_ETOOLONG || status == FLETCH_EUTF8) {
            if (!fl_run_refuse(run, i, &error))
                return run->input.exit;
            continue;
        }
        if (status < 0)
            return fl_cli_fail(&error, false);
        fl_row row = fl_run_done(run, i, tokens->count, tokens->truncated != 0);
        fl_output_put(&run->output, &writer, &row,
                      &(shown){run->cli->model, options->pair, tokens});
        fletch_tokens_free(tokens);
        if (fl_sink_flush(&run->output.sink, false, &error) < 0)
            return fl_output_fail(&run->output, &error);
    }
    return FL_EXIT_DONE;
}

static fl_exit finish(fl_run *run) {
    fletch_error error = {0};
    if (fl_output_finish(&run->output, 0, FLETCH_FLOAT32, &error) < 0)
        return fl_output_fail(&run->output, &error);
    return fl_run_report(run);
}

fl_exit fl_cmd_tokenize(fl_cli *cli) {
    fletch_tokenize_options options  = FLETCH_TOKENIZE_OPTIONS_INIT;
    const char             *length   = cli->args.value[FL_FLAG_MAX_LENGTH];
    const char             *truncate = cli->args.value[FL_FLAG_TRUNCATE];
    int64_t                 tokens   = 0;
    if (length != NULL && (!fl_parse_i64(length, &tokens) || tokens < 1 || tokens > UINT32_MAX))
        return fl_cli_usage(cli, "--max-length takes a number of tokens, not '%.64s'", length);
    options.max_length        = (uint32_t)tokens;
    options.pair              = cli->args.value[FL_FLAG_PAIR];
    options.pair_size         = options.pair != NULL ? strlen(options.pair) : 0;
    options.no_special_tokens = cli->args.value[FL_FLAG_NO_SPECIAL_TOKENS] != NULL;
    if (truncate != NULL) {
        options.truncate = strcmp(truncate, "left") == 0    ? FLETCH_TRUNCATE_LEFT
                           : strcmp(truncate, "error") == 0 ? FLETCH_TRUNCATE_ERROR
                                                            : FLETCH_TRUNCATE_RIGHT;
    }
    fl_run  run;
    fl_exit code   = fl_run_open(&run, cli, "ids|tokens|offsets|special|truncated", FL_OUTPUT_TEXT,
                                 FL_OUTPUT_JSONL);
    run.max_length = options.max_length;
    code           = code == FL_EXIT_DONE ? fl_run_open_model(&run, true) : code;
    if (code == FL_EXIT_DONE) {
        code = fl_run_windows(&run, tokenize_window, &options);
        code = code == FL_EXIT_DONE ? finish(&run) : fl_run_stop(&run, code, 0, FLETCH_FLOAT32);
    }
    fl_run_close(&run);
    return code;
}

/* ---- decode ---- */

typedef struct decode_run {
    fl_buf ids;  /* of int32_t */
    char  *text; /* owned [room] */
    size_t room;
    bool   skip_special_tokens;
} decode_run;

static int push_id(decode_run *decode, int64_t id, fletch_error *error) {
    if (id < 0 || id > INT32_MAX) {
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE, "%lld is not a token id",
                       (long long)id);
    }
    fl_buf_append(&decode->ids, &(int32_t){(int32_t)id}, sizeof(int32_t));
    return decode->ids.failed ? fl_fail_nomem(error, decode->ids.size, "the ids") : 0;
}

/* "[101,102]" or {"ids":[101,102]}. */
static int parse_json_ids(decode_run *decode, const char *text, size_t size, fletch_error *error) {
    fl_json *root = NULL;
    FL_TRY(fl_json_parse(&root, text, size, SIZE_MAX, 0, "not valid JSON", error));
    fl_json *list   = fl_json_is(root, FL_JSON_OBJECT) ? fl_json_get(root, "ids") : root;
    int      status = fl_json_is(list, FL_JSON_ARRAY)
                          ? 0
                          : fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                                    "expected a JSON list of ids or an object with \"ids\"");
    for (size_t i = 0; status == 0 && i < fl_json_count(list); i++) {
        fl_json *item = fl_json_item(list, i);
        if (fl_json_is_int(item)) {
            status = push_id(decode, fl_json_int64(item), error);
        } else {
            status = fl_fail(error, FLETCH_EINVAL, i,
                             "element %zu of the list is not a whole number", i);
        }
    }
    fl_json_free(root);
    return status;
}

/* "101 102" or "101,102". */
static int parse_plain_ids(decode_run *decode, const char *text, size_t size, fletch_error *error) {
    size_t at = 0;
    while (at < size) {
        size_t length = 0;
        while (at < size && (text[at] == ' ' || text[at] == ',' || text[at] == '\t'))
            at++;
        while (at + length < size && strchr(" ,\t", text[at + length]) == NULL)
            length++;
        char    word[24];
        int64_t id = -1;
        snprintf(word, sizeof word, "%.*s", (int)(length < 23 ? length : 23), text + at);
        if (length > 0 && (length >= sizeof word || !fl_parse_i64(word, &id)))
            return fl_fail(error, FLETCH_EINVAL, at, "'%s' is not a token id", word);
        if (length > 0)
            FL_TRY(push_id(decode, id, error));
        at += length;
    }
    return 0;
}

static int parse_ids(decode_run *decode, const char *text, size_t size, fletch_error *error) {
    size_t at = 0;
    while (at < size && (text[at] == ' ' || text[at] == '\t'))
        at++;
    bool json = at < size && (text[at] == '[' || text[at] == '{');
    return json ? parse_json_ids(decode, text, size, error)
                : parse_plain_ids(decode, text, size, error);
}

static void put_plain(fl_output *output, const fl_row *row, const void *result) {
    (void)result;
    fl_buf_append(&output->sink.buf, row->text, row->text_size);
    fl_buf_putc(&output->sink.buf, '\n');
}

static void put_quoted(fl_output *output, const fl_row *row, const void *result) {
    (void)result;
    fl_buf_puts(&output->sink.buf, "\"text\":");
    fl_json_quote(&output->sink.buf, row->text, row->text_size);
}

/* Decode decode->ids into one result. Negative status with *error when they cannot be. */
static int put_decoded(fl_run *run, decode_run *decode, fletch_error *error) {
    const int32_t *ids   = (const int32_t *)(const void *)decode->ids.data;
    size_t         count = decode->ids.size / sizeof *ids;
    int64_t        size;
    for (;;) {
        size = fletch_decode(run->cli->model, ids, count, decode->skip_special_tokens, decode->text,
                             decode->room, error);
        if (size < 0)
            return (int)size;
        if ((size_t)size < decode->room)
            break;
        size_t room = (size_t)size + 1;
        fl_free(decode->text);
        decode->text = fl_alloc(room);
        decode->room = decode->text != NULL ? room : 0;
        if (decode->text == NULL)
            return fl_fail_nomem(error, room, "the decoded text");
    }
    static const fl_writer writer = {.text = put_plain, .members = put_quoted, .bare = true};
    fl_output_put(&run->output, &writer, &(fl_row){.text = decode->text, .text_size = (size_t)size},
                  NULL);
    run->texts++;
    run->tokens += count;
    return 0;
}

/* One result, or a refusal at `place`; `status` is what came of reading the ids. */
static fl_exit decode_one(fl_run *run, decode_run *decode, int status, fl_place place,
                          fletch_error *error) {
    status = status == 0 ? put_decoded(run, decode, error) : status;
    if (status == 0)
        return FL_EXIT_DONE;
    if (status != FLETCH_ENOMEM && fl_input_refuse(&run->input, place, "%s", error->message))
        return FL_EXIT_DONE;
    if (status == FLETCH_ENOMEM)
        return fl_cli_fail(error, false);
    fl_cli_message("%s", run->input.error.message);
    return run->input.format == FL_INPUT_ARGUMENTS ? FL_EXIT_USAGE : run->input.exit;
}

static fl_exit decode_window(fl_run *run, void *user) {
    decode_run *decode = user;
    bool        lists  = run->input.format != FL_INPUT_ARGUMENTS || run->window.texts[0][0] == '[';
    fl_exit     code   = FL_EXIT_DONE;
    fl_buf_clear(&decode->ids);
    for (size_t i = 0; code == FL_EXIT_DONE && i < run->window.count; i++) {
        fletch_error error  = {0};
        int          status = parse_ids(decode, run->window.texts[i], run->window.sizes[i], &error);
        if (status < 0 || lists || i + 1 == run->window.count) {
            code = decode_one(run, decode, status, run->window.records[i].place, &error);
            fl_buf_clear(&decode->ids);
        }
        if (code == FL_EXIT_DONE && fl_sink_flush(&run->output.sink, false, &error) < 0)
            code = fl_output_fail(&run->output, &error);
    }
    return code;
}

fl_exit fl_cmd_decode(fl_cli *cli) {
    fl_run     run;
    decode_run decode;
    memset(&decode, 0, sizeof decode);
    decode.skip_special_tokens = cli->args.value[FL_FLAG_SKIP_SPECIAL_TOKENS] != NULL;
    fl_exit code               = fl_run_open(&run, cli, NULL, FL_OUTPUT_TEXT, FL_OUTPUT_TEXT);
    if (run.input.format == FL_INPUT_ARGUMENTS)
        run.window_texts = cli->args.rest_count; /* ids spread over arguments are one list */
    code = code == FL_EXIT_DONE ? fl_run_open_model(&run, true) : code;
    code = code == FL_EXIT_DONE ? fl_run_windows(&run, decode_window, &decode) : code;
    code = code == FL_EXIT_DONE ? finish(&run) : code;
    fl_run_close(&run);
    fl_buf_free(&decode.ids);
    fl_free(decode.text);
    return code;
}
