/* SPDX-License-Identifier: Apache-2.0 */
/* tei_tokens.c - /tokenize and /decode of the text-embeddings-inference dialect.
 *
 * Role    clients that count tokens or cut texts before they embed.
 * In/Out  texts to [[{"id", "text", "special", "start", "stop"}]] with byte offsets, null for the tokens
 *         that the template added; ids to texts.
 * Method  the library's tokenizer, on a worker thread (the routes are marked blocking): a long text takes
 *         milliseconds. A token's text is its part of the input; where that is not whole characters, the
 *         vocabulary's entry. A token of two bytes takes fifty in the answer: its size is bounded as that
 *         of vectors is, and the work ends when its client leaves or its time is over.
 * Memory  request memory; tokens are freed at once. Threads: one worker per request.
 * Proof   tests/server/test_tei.py against the tokenizers library. */
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "server/tei.h"

enum {
    CHECK_TOKENS = 4096, /* between looks at the client, the clock and the memory */
    TOKEN_BYTES  = 13    /* of a fletch_tokens: id, two offsets, a flag */
};

#define AT(member) offsetof(fl_ask, member)
const fl_field fl_fields_tei_tokenize[] = {
    {"inputs", FL_FIELD_INPUT, FL_FIELD_REQUIRED, AT(input),
     .forms = FL_INPUT_TEXT | FL_INPUT_TEXTS},
    {.name = "add_special_tokens", .type = FL_FIELD_BOOL, .offset = AT(add_special)},
    {FL_ASK_PROMPT_NAME},
    {FL_ASK_MODEL},
    {0}};

const fl_field fl_fields_tei_decode[] = {
    {"ids", FL_FIELD_INPUT, FL_FIELD_REQUIRED, AT(input),
     .forms = FL_INPUT_IDS | FL_INPUT_ID_LISTS},
    {.name = "skip_special_tokens", .type = FL_FIELD_BOOL, .offset = AT(skip_special)},
    {FL_ASK_MODEL},
    {0}};

/* Nothing is submitted, so nothing is written later. */
static const fl_style style = {&fl_tei_faults, NULL, false};

static void fail(fl_http_request *request, const fletch_error *error) {
    if (error->code == FLETCH_ENOSPC) {
        fl_reply_header(request, "x-fletch-limit", "answer=%d", FL_ANSWER_MAX);
        fl_reply_error(request, FL_HTTP_ANSWER_TOO_LARGE, "%s", error->message);
    } else if (error->code == FLETCH_EINVAL) {
        fl_reply_error(request, FL_HTTP_TOKENIZER, "Tokenizer error: %s", error->message);
    } else {
        fl_reply_fail(request, error);
    }
}

/* A list of what `one` writes of each input. */
static void reply_each(fl_job *job, int (*one)(fl_job *job, size_t index, fletch_error *error)) {
    fl_http_request *request = job->request;
    fl_buf_puts(&request->reply.body, "[");
    for (size_t i = 0; i < job->ask.input.count; i++) {
        fletch_error error = {0};
        if (one(job, i, &error) < 0) {
            fail(request, &error);
            return;
        }
    }
    fl_buf_puts(&request->reply.body, "]");
    fl_reply_json(request, 200);
}

/* ---- /tokenize --------------------------------------------------------------------------------- */

static void put_token(fl_job *job, const fletch_tokens *tokens, size_t i, const char *text) {
    fl_buf     *body  = &job->request->reply.body;
    uint32_t    start = tokens->offsets[2 * i], stop = tokens->offsets[2 * i + 1];
    const char *name = fletch_token_text(job->served->model, tokens->ids[i]);
    fl_buf_append(body, "{\"id\":", 6);
    fl_json_out_u64(body, (uint64_t)tokens->ids[i]);
    fl_buf_append(body, ",\"text\":", 8);
    if (tokens->special[i] || fl_utf8_valid_prefix(text + start, stop - start) < stop - start)
        fl_json_quote(body, name != NULL ? name : "", name != NULL ? strlen(name) : 0);
    else
        fl_json_quote(body, text + start, stop - start);
    if (tokens->special[i]) {
        fl_buf_puts(body, ",\"special\":true,\"start\":null,\"stop\":null}");
    } else {
        fl_buf_puts(body, ",\"special\":false,\"start\":");
        fl_json_out_u64(body, start);
        fl_buf_append(body, ",\"stop\":", 8);
        fl_json_out_u64(body, stop);
        fl_buf_putc(body, '}');
    }
}

/* Text `index` with the prompt in front; the text itself when there is no prompt. */
static const char *with_prompt(fl_job *job, const char *prompt, size_t index, size_t *size) {
    const fl_body_input *input = &job->ask.input;
    size_t               ahead = prompt != NULL ? strlen(prompt) : 0;
    *size                      = input->lengths[index] + ahead;
    if (ahead == 0)
        return input->texts[index];
    char *text = fl_request_alloc(job->request, *size);
    if (text != NULL) {
        memcpy(text, prompt, ahead);
        memcpy(text + ahead, input->texts[index], input->lengths[index]);
    }
    return text;
}

static int unwanted(void *request) {
    return fl_request_over(request, NULL) < 0;
}

static int tokenize_one(fl_job *job, size_t index, fletch_error *error) {
    fletch_tokenize_options options = FLETCH_TOKENIZE_OPTIONS_INIT;
    options.no_special_tokens       = job->ask.add_special == -1;
    options.stop                    = unwanted;
    options.stop_user               = job->request;
    size_t         size;
    const char    *text   = with_prompt(job, job->options.prompt, index, &size);
    fletch_tokens *tokens = NULL;
    if (text == NULL) {
        error->code = FLETCH_ENOMEM;
        return FLETCH_ENOMEM;
    }
    int status = fletch_tokenize(job->served->model, text, size, &options, &tokens, error);
    if (status == FLETCH_ECANCELLED)
        return fl_request_over(job->request, error); /* why */
    if (status < 0)
        return status;
    fl_buf *body = &job->request->reply.body;
    fl_buf_puts(body, index > 0 ? ",[" : "[");
    for (size_t i = 0; i < tokens->count && status == FLETCH_OK; i++) {
        fl_buf_puts(body, i > 0 ? "," : "");
        put_token(job, tokens, i, text);
        status = i % CHECK_TOKENS == 0 ? fl_reply_go_on(job->request, 0, error) : FLETCH_OK;
    }
    fl_buf_puts(body, "]");
    fletch_tokens_free(tokens);
    return status < 0 ? status : fl_reply_go_on(job->request, 0, error);
}

void fl_tei_tokenize(fl_http_request *request) {
    fl_job *job = fl_job_read(request, &style, fl_fields_tei_tokenize);
    if (job == NULL)
        return;
    if (job->ask.input.count == 0) {
        fl_reply_error(request, FL_HTTP_EMPTY, "`inputs` cannot be empty");
        return;
    }
    if (job->ask.input.empty) {
        fl_job_refuse(job, FL_REFUSE_EMPTY, FLETCH_NOWHERE, "");
        return;
    }
    if (!fl_job_model(job))
        return;
    if (job->ask.prompt_name.data != NULL) {
        job->options.prompt = fl_served_prompt(job->served, job->ask.prompt_name);
        if (job->options.prompt == NULL) {
            fl_job_refuse(job, FL_REFUSE_PROMPT, FLETCH_NOWHERE, "");
            return;
        }
    }
    size_t longest = 0;
    for (size_t i = 0; i < job->ask.input.count; i++)
        longest = job->ask.input.lengths[i] > longest ? job->ask.input.lengths[i] : longest;
    if (!fl_request_hold(request, longest * TOKEN_BYTES)) { /* a token for each byte */
        fl_reply_error(request, FL_HTTP_UNAVAILABLE, "%s", "");
        return;
    }
    reply_each(job, tokenize_one);
}

/* ---- /decode ----------------------------------------------------------------------------------- */

static int decode_one(fl_job *job, size_t index, fletch_error *error) {
    const fl_body_input *input = &job->ask.input;
    const int32_t       *ids   = input->ids + input->offsets[index];
    size_t               count = (size_t)(input->offsets[index + 1] - input->offsets[index]);
    int                  skip  = job->ask.skip_special != -1;
    int64_t length = fletch_decode(job->served->model, ids, count, skip, NULL, 0, error);
    if (length < 0)
        return (int)length;
    char *text = fl_request_alloc(job->request, (size_t)length + 1);
    if (text == NULL) {
        error->code = FLETCH_ENOMEM;
        return FLETCH_ENOMEM;
    }
    length = fletch_decode(job->served->model, ids, count, skip, text, (size_t)length + 1, error);
    if (length < 0)
        return (int)length;
    fl_buf_puts(&job->request->reply.body, index > 0 ? "," : "");
    fl_json_quote(&job->request->reply.body, text, (size_t)length);
    return fl_reply_go_on(job->request, 0, error);
}

void fl_tei_decode(fl_http_request *request) {
    fl_job *job = fl_job_read(request, &style, fl_fields_tei_decode);
    if (job == NULL)
        return;
    if (job->ask.input.empty) {
        fl_reply_error(request, FL_HTTP_EMPTY,
                       "Input validation error: `input_ids` cannot be empty");
        return;
    }
    if (!fl_job_model(job))
        return;
    reply_each(job, decode_one);
}
