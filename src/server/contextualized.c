/* SPDX-License-Identifier: Apache-2.0 */
/* contextualized.c - the Voyage dialect: /v1/contextualizedembeddings.
 *
 * Role    what voyageai-python's contextualized_embed speaks: late chunking of documents that come in chunks.
 * In/Out  {"inputs": [["chunk", "chunk"], ["chunk"]], "model", "input_type", "output_dimension", "output_dtype",
 *         "encoding_format"} to {"object", "data": [{"object", "data": [{"object", "embedding", "index"}],
 *         "index"}], "model", "usage"}; errors are {"detail"}.
 * Rules   A document is its chunks laid end to end, so they keep their white space. input_type chooses the model's
 *         prompt of that purpose where it has one. Chunking on the server is /embed_chunks, with offsets.
 * Memory  request memory. Threads: see server.h.
 * Proof   tests/server/test_late_chunking.py, test_clients.py. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "server/embedding.h"
#include "server/routes.h"

static void write_error(fl_http_reply *reply, fl_http_code code, const char *message) {
    if (code == FL_HTTP_WRONG_TASK)
        reply->status = 400;
    reply->type = "application/json";
    fl_buf_puts(&reply->body, "{\"detail\":");
    fl_json_quote(&reply->body, message, strlen(message));
    fl_buf_puts(&reply->body, "}");
}

const fl_dialect fl_dialect_voyage = {"voyage", write_error};

static const fl_faults faults = {
    .syntax   = {FL_HTTP_BAD_REQUEST, "The request body is not valid JSON: "},
    .meaning  = {FL_HTTP_BAD_REQUEST, "The request body is not valid: "},
    .type     = {FL_HTTP_CONTENT_TYPE, "Expected request with `Content-Type: application/json`"},
    .untyped  = true,
    .refusals = {
        [FL_REFUSE_MODEL]      = {FL_HTTP_MODEL_NOT_FOUND, "Model {model} is not loaded.{ near}"},
        [FL_REFUSE_HEAD]       = {FL_HTTP_WRONG_TASK, "{message}"},
        [FL_REFUSE_EMPTY]      = {FL_HTTP_BAD_REQUEST,
                                  "inputs must be non-empty documents of non-empty chunks"},
        [FL_REFUSE_DIMENSIONS] = {FL_HTTP_BAD_REQUEST,
                                  "output_dimension must be from 1 to {dimensions} for this model"},
        [FL_REFUSE_TOO_MUCH]   = {FL_HTTP_PAYLOAD_TOO_LARGE, "{message}"}}};

static bool write_documents(fl_job *job, const fletch_outcome *outcome) {
    fl_buf *body = &job->request->reply.body;
    size_t  row  = 0;
    fl_buf_puts(body, "{\"object\":\"list\",\"data\":[");
    for (size_t d = 0; d < job->work.texts.count; d++) {
        fl_buf_puts(body,
                    d > 0 ? ",{\"object\":\"list\",\"data\":[" : "{\"object\":\"list\",\"data\":[");
        for (size_t i = 0; i < job->work.span_counts[d]; i++, row++) {
            fl_buf_puts(body, i > 0 ? ",{\"object\":\"embedding\",\"embedding\":"
                                    : "{\"object\":\"embedding\",\"embedding\":");
            if (!fl_job_put_row(job, row))
                return false;
            fl_buf_puts(body, ",\"index\":");
            fl_json_out_u64(body, i);
            fl_buf_puts(body, "}");
        }
        fl_buf_puts(body, "],\"index\":");
        fl_json_out_u64(body, d);
        fl_buf_puts(body, "}");
    }
    fl_buf_puts(body, "],\"model\":");
    fl_json_quote(body, job->served->name, strlen(job->served->name));
    fl_buf_printf(body, ",\"usage\":{\"total_tokens\":%" PRIu64 "}}", fl_job_tokens(job, outcome));
    return !body->failed;
}

static const fl_style style = {&faults, write_documents, false};

#define AT(member) offsetof(fl_ask, member)
const fl_field fl_fields_voyage[] = {
    {"inputs", FL_FIELD_INPUT, FL_FIELD_REQUIRED, AT(input), .forms = FL_INPUT_NESTED,
     .text = "Documents, each a list of its chunks in order, white space included."},
    {FL_ASK_MODEL},
    {"input_type", FL_FIELD_WORD, FL_FIELD_NULL, AT(input_type), .words = FL_WORDS_PURPOSE,
     .text = "Selects the model's prompt for that purpose, if it has one."},
    {"output_dimension", FL_FIELD_INT, FL_FIELD_NULL, AT(dimensions), .min = 1, .max = INT32_MAX},
    {FL_ASK_DTYPE},
    {"encoding_format", FL_FIELD_WORD, FL_FIELD_NULL, AT(encoding), .words = FL_WORDS_ENCODING,
     .text = "base64: the vector's bytes, little-endian."},
    {0}};

static void embed(fl_http_request *request) {
    fl_job *job = fl_job_read(request, &style, fl_fields_voyage);
    if (job == NULL)
        return;
    if (job->ask.input.empty) {
        fl_job_refuse(job, FL_REFUSE_EMPTY, FLETCH_NOWHERE, "");
        return;
    }
    if (!fl_job_model(job))
        return;
    fl_job_take_purpose(job);
    fl_documents documents;
    if (fl_job_join(job, job->ask.input.offsets, job->ask.input.lists, &documents) &&
        fl_job_prepare_spans(job, &documents))
        fl_job_submit_later(job);
}

const fl_route fl_routes_voyage[] = {
    {"POST", "/v1/contextualizedembeddings", &fl_dialect_voyage, embed, 0}, {0}};
