/* SPDX-License-Identifier: Apache-2.0 */
/* cohere.c - the Cohere dialect: /v2/embed, and the rerank routes that Cohere and Jina share.
 *
 * Role    what cohere-python (ClientV2) and rerank clients speak.
 * In/Out  {"texts", "model", "input_type", "embedding_types", "output_dimension", "truncate"} to
 *         {"id", "embeddings": {"float": […], "int8": […]}, "texts", "meta"}; errors are {"message"}.
 * Rules   One forward pass answers all types that were asked for. input_type chooses the model's prompt of
 *         that purpose where it has one. A model without a reranking head answers 400.
 * Memory  request memory. Threads: see server.h.
 * Proof   tests/server/test_cohere.py. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "server/embedding.h"
#include "server/routes.h"

/* ---- Errors ---------------------------------------------------------------------------------- */

static void write_error(fl_http_reply *reply, fl_http_code code, const char *message) {
    if (code == FL_HTTP_WRONG_TASK || code == FL_HTTP_TOO_LONG)
        reply->status = 400;
    reply->type = "application/json";
    fl_buf_puts(&reply->body, "{\"message\":");
    fl_json_quote(&reply->body, message, strlen(message));
    fl_buf_puts(&reply->body, "}");
}

const fl_dialect fl_dialect_cohere = {"cohere", write_error};

static const fl_faults faults = {
    .syntax  = {FL_HTTP_BAD_REQUEST, "invalid json syntax: "},
    .meaning = {FL_HTTP_BAD_REQUEST, "invalid request: "},
    .type    = {FL_HTTP_CONTENT_TYPE, "Expected request with `Content-Type: application/json`"},
    .untyped = true,
    .refusals =
        {[FL_REFUSE_MODEL] = {FL_HTTP_MODEL_NOT_FOUND, "model '{model}' not found{. near}"},
         [FL_REFUSE_HEAD]  = {FL_HTTP_WRONG_TASK, "invalid request: model '{served}': {message}"},
         [FL_REFUSE_EMPTY] = {FL_HTTP_BAD_REQUEST,
                              "invalid request: texts must be a non-empty list of non-empty texts"},
         [FL_REFUSE_DIMENSIONS] =
             {FL_HTTP_BAD_REQUEST,
              "invalid request: output_dimension must be from 1 to {dimensions}"},
         [FL_REFUSE_TOO_LONG] = {FL_HTTP_TOO_LONG,
                                 "invalid request: too many tokens: text {where} has {length}, the "
                                 "model accepts {max_length}; set truncate to START or END"},
         [FL_REFUSE_TOO_MUCH] = {FL_HTTP_PAYLOAD_TOO_LARGE, "{message}"}},
    .other = {FL_HTTP_BAD_REQUEST, "invalid request: {message}"}};

/* ---- /v2/embed --------------------------------------------------------------------------------- */

/* In the order of FL_WORDS_TYPES, the last being the bytes of float. */
static const char *const type_name[] = {"float", "int8", "uint8", "binary", "ubinary", "base64"};
enum { TYPE_COUNT = 6, TYPE_BASE64 = 5 };

static bool put_type(fl_job *job, int type) {
    fl_buf *body = &job->request->reply.body;
    fl_buf_printf(body, "\"%s\":[", type_name[type]);
    for (size_t i = 0; i < job->count; i++) {
        fletch_dtype dtype = type == TYPE_BASE64 ? FLETCH_FLOAT32 : (fletch_dtype)type;
        fl_buf_puts(body, i > 0 ? "," : "");
        if (!fl_job_put_typed(job, i, dtype, type == TYPE_BASE64))
            return false;
    }
    fl_buf_puts(body, "]");
    return true;
}

static bool write_answer(fl_job *job, const fletch_outcome *outcome) {
    fl_buf *body = &job->request->reply.body;
    fl_buf_puts(body, "{\"id\":");
    fl_json_quote(body, job->request->id, strlen(job->request->id));
    fl_buf_puts(body, ",\"embeddings\":{");
    bool more = false;
    for (int type = 0; type < TYPE_COUNT; type++) {
        if ((job->ask.types >> type & 1) != 0) {
            fl_buf_puts(body, more ? "," : "");
            more = true;
            if (!put_type(job, type))
                return false;
        }
    }
    fl_buf_puts(body, "},\"texts\":[");
    for (size_t i = 0; i < job->count; i++) {
        fl_buf_puts(body, i > 0 ? "," : "");
        fl_json_quote(body, job->ask.input.texts[i], job->ask.input.lengths[i]);
    }
    fl_buf_puts(body, "],\"response_type\":\"embeddings_by_type\",\"meta\":{\"api_version\":");
    fl_buf_printf(body, "{\"version\":\"2\"},\"billed_units\":{\"input_tokens\":%" PRIu64 "}",
                  outcome->tokens);
    if (job->details) {
        fl_buf_puts(body, ",");
        fl_job_put_details(job);
    }
    fl_buf_puts(body, "}}");
    return !body->failed;
}

static const fl_style style = {&faults, write_answer, false};

#define AT(member) offsetof(fl_ask, member)
const fl_field fl_fields_cohere[] = {
    {"texts", FL_FIELD_INPUT, FL_FIELD_REQUIRED, AT(input), .forms = FL_INPUT_TEXTS},
    {FL_ASK_MODEL},
    {"input_type", FL_FIELD_WORD, FL_FIELD_NULL, AT(input_type), .words = FL_WORDS_INPUT_TYPE,
     .text = "Selects the model's prompt for that purpose, if it has one."},
    {"embedding_types", FL_FIELD_WORDS, FL_FIELD_NULL, AT(types), .words = FL_WORDS_TYPES,
     .text = "All come from one forward pass."},
    {"output_dimension", FL_FIELD_INT, FL_FIELD_NULL, AT(dimensions), .min = 1, .max = INT32_MAX},
    {"truncate", FL_FIELD_WORD, FL_FIELD_NULL, AT(cut), .words = FL_WORDS_CUT,
     .text = "NONE: a text that is too long is an error; START and END truncate that side."},
    {"details", FL_FIELD_BOOL, FL_FIELD_NULL, AT(details),
     .text = "Report tokens and truncation of each text in meta."},
    {0}};

static void embed(fl_http_request *request) {
    fl_job *job = fl_job_read(request, &style, fl_fields_cohere);
    if (job == NULL)
        return;
    if (job->ask.input.empty) {
        fl_job_refuse(job, FL_REFUSE_EMPTY, FLETCH_NOWHERE, "");
        return;
    }
    if (!fl_job_model(job))
        return;
    fl_job_take_purpose(job);
    if (!fl_job_prepare(job))
        return;
    if (job->ask.types == 0)
        job->ask.types = 1u << job->dtype; /* float, unless a header says otherwise */
    fl_job_submit(job);
}

/* ---- Rerank ------------------------------------------------------------------------------------ */

const fl_field fl_fields_rerank_cohere[] = {
    {"query", FL_FIELD_STRING, FL_FIELD_REQUIRED, AT(source), .min = 1},
    {"documents", FL_FIELD_INPUT, FL_FIELD_REQUIRED, AT(input),
     .forms = FL_INPUT_TEXTS | FL_INPUT_OBJECTS | FL_INPUT_NOTHING,
     .text  = "Texts, or objects with a field text."},
    {FL_ASK_MODEL},
    {"top_n", FL_FIELD_INT, FL_FIELD_NULL, AT(top), .min = 1, .max = INT32_MAX,
     .text = "Return only the best N."},
    {.name   = "return_documents",
     .type   = FL_FIELD_BOOL,
     .flags  = FL_FIELD_NULL,
     .offset = AT(return_text)},
    {"raw_scores", FL_FIELD_BOOL, FL_FIELD_NULL, AT(raw_scores),
     .text = "true: logits, not 0 to 1."},
    {0}};

/* What Cohere's clients and Jina's read, in one object. */
static bool write_ranked(fl_job *job, const fletch_outcome *outcome) {
    fl_buf    *body   = &job->request->reply.body;
    fl_ranked *ranked = fl_job_rank(job);
    size_t     count  = job->count;
    count = job->ask.top > 0 && (uint64_t)job->ask.top < count ? (size_t)job->ask.top : count;
    fl_buf_puts(body, "{\"id\":");
    fl_json_quote(body, job->request->id, strlen(job->request->id));
    fl_buf_puts(body, ",\"model\":");
    fl_json_quote(body, job->served->name, strlen(job->served->name));
    fl_buf_puts(body, ",\"results\":[");
    for (size_t i = 0; ranked != NULL && i < count; i++) {
        fl_buf_printf(body, "%s{\"index\":%zu,\"relevance_score\":", i > 0 ? "," : "",
                      ranked[i].index);
        fl_put_score(body, ranked[i].score);
        if (job->ask.return_text == 1) {
            fl_buf_puts(body, ",\"document\":{\"text\":");
            fl_json_quote(body, job->ask.input.texts[ranked[i].index],
                          job->ask.input.lengths[ranked[i].index]);
            fl_buf_puts(body, "}");
        }
        fl_buf_puts(body, "}");
    }
    fl_buf_printf(body,
                  "],\"usage\":{\"total_tokens\":%" PRIu64 ",\"prompt_tokens\":%" PRIu64
                  "},\"meta\":{\"api_version\":{\"version\":\"%c\"},\"billed_units\":{"
                  "\"search_units\":%zu}}}",
                  outcome->tokens, outcome->tokens, job->request->route->path[2],
                  (job->count + 99) / 100);
    return ranked != NULL && !body->failed;
}

static const fl_style rerank_style = {&faults, write_ranked, false};

static void rerank(fl_http_request *request) {
    fl_job *job = fl_job_read(request, &rerank_style, fl_fields_rerank_cohere);
    if (job == NULL)
        return;
    if (job->ask.input.count == 0 || job->ask.source.size == 0) {
        fl_reply_error(request, FL_HTTP_BAD_REQUEST, "invalid request: %s",
                       job->ask.input.count == 0 ? "documents must not be empty"
                                                 : "query must not be empty");
    } else if (fl_job_prepare_scores(job, job->ask.raw_scores == 1 ? FLETCH_ACTIVATION_NONE
                                                                   : FLETCH_ACTIVATION_SIGMOID)) {
        fl_job_submit(job);
    }
}

const fl_route fl_routes_cohere[] = {{"POST", "/v2/embed", &fl_dialect_cohere, embed, 0},
                                     {"POST", "/v1/rerank", &fl_dialect_cohere, rerank, 0},
                                     {"POST", "/v2/rerank", &fl_dialect_cohere, rerank, 0},
                                     {0}};
