/* SPDX-License-Identifier: Apache-2.0 */
/* openai.c - the OpenAI dialect: /v1/embeddings and /v1/models.
 *
 * Role    what openai-python, LangChain and every "OpenAI compatible" client speak.
 * In/Out  {"input", "model", "encoding_format", "dimensions", "user"} and fletch's additions
 *         (prompt_name, normalize, truncate, truncation_direction, output_dtype, details, outputs,
 *         late_chunking); errors are
 *         {"error": {"message", "type", "param", "code"}}.
 * Rules   "" and [] are 400 as at OpenAI; a list of any length passes; token ids are used as they are and
 *         refused outside of the vocabulary (ids of another tokenizer would give vectors of nonsense); lists
 *         without this model's special tokens, as LangChain sends them unless told not to, are served with
 *         x-fletch-warning, and the log says it once a client; one model loaded: any name is served, and the
 *         answer says which model it was.
 * Memory  request memory. Threads: see server.h.
 * Proof   tests/server/test_openai.py. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/json_w.h"
#include "server/embedding.h"
#include "server/routes.h"
#include "server/server_internal.h"

/* ---- Errors ---------------------------------------------------------------------------------- */

static const char *error_type(int status) {
    switch (status) {
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

/* The codes that OpenAI has; others are null. */
static const char *code_of(fl_http_code code) {
    switch (code) {
    case FL_HTTP_INVALID_API_KEY:
    case FL_HTTP_MODEL_NOT_FOUND: return fl_http_errors[code].word;
    case FL_HTTP_OVERLOADED:
    case FL_HTTP_RATE_LIMITED: return "rate_limit_exceeded";
    case FL_HTTP_TOO_LONG: return "context_length_exceeded";
    default: return NULL;
    }
}

/* The field that is wrong. */
static const char *param_of(fl_http_code code) {
    bool known = code == FL_HTTP_PARAM_INPUT || code == FL_HTTP_PARAM_DIMENSIONS ||
                 code == FL_HTTP_PARAM_PROMPT_NAME;
    return known ? fl_http_errors[code].word : NULL;
}

static void write_error(fl_http_reply *reply, fl_http_code code, const char *message) {
    const char *param = param_of(code), *shown = code_of(code);
    if (code == FL_HTTP_TOO_LONG || code == FL_HTTP_WRONG_TASK)
        reply->status = 400;
    reply->type = "application/json";
    fl_buf_puts(&reply->body, "{\"error\":{\"message\":");
    fl_json_quote(&reply->body, message, strlen(message));
    fl_buf_printf(&reply->body, ",\"type\":\"%s\",\"param\":", error_type(reply->status));
    fl_buf_printf(&reply->body, param != NULL ? "\"%s\"" : "null", param);
    fl_buf_puts(&reply->body, ",\"code\":");
    fl_buf_printf(&reply->body, shown != NULL ? "\"%s\"}}" : "null}}", shown);
}

const fl_dialect fl_dialect_openai = {"openai", write_error};

#define BAD_INPUT                                                                                  \
    "'$.input' is invalid. Please check the API reference: "                                       \
    "https://platform.openai.com/docs/api-reference."

static const fl_faults faults = {
    .syntax   = {FL_HTTP_BAD_REQUEST, "We could not parse the JSON body of your request: "},
    .meaning  = {FL_HTTP_BAD_REQUEST, ""},
    .type     = {FL_HTTP_CONTENT_TYPE, "Expected request with `Content-Type: application/json`"},
    .untyped  = true,
    .refusals = {
        [FL_REFUSE_MODEL] =
            {FL_HTTP_MODEL_NOT_FOUND,
             "The model `{model}` does not exist or you do not have access to it.{ near}"},
        [FL_REFUSE_HEAD]       = {FL_HTTP_WRONG_TASK, "{message}"},
        [FL_REFUSE_EMPTY]      = {FL_HTTP_BAD_REQUEST, BAD_INPUT},
        [FL_REFUSE_DIMENSIONS] = {FL_HTTP_PARAM_DIMENSIONS,
                                  "'$.dimensions' is invalid: this model takes 1 to {dimensions}."},
        [FL_REFUSE_PROMPT]     = {FL_HTTP_PARAM_PROMPT_NAME, "prompt_name: {message}"},
        [FL_REFUSE_TOO_LONG] =
            {FL_HTTP_TOO_LONG,
             "This model's maximum context length is {max_length} tokens, however you requested "
             "{length} tokens ({length} in your prompt; 0 for the completion). Please reduce your "
             "prompt; or completion length."},
        [FL_REFUSE_INPUT]    = {FL_HTTP_PARAM_INPUT, "{message}{foreign}"},
        [FL_REFUSE_TOO_MUCH] = {FL_HTTP_PAYLOAD_TOO_LARGE, "{message}"}}};

/* ---- /v1/embeddings ---------------------------------------------------------------------------- */

/* "embedding" is the first output that is a row, as clients of one output expect; the others have their names. */
static bool put_outputs(fl_job *job, size_t index) {
    fl_buf              *body  = &job->request->reply.body;
    const fletch_output *dense = fl_job_dense(job);
    bool                 good = true, first = true;
    if (dense == NULL)
        fl_buf_puts(body, "[]");
    else
        good = fl_job_put_output(job, dense, index);
    fl_buf_puts(body, ",\"outputs\":{");
    for (size_t i = 0; i < job->work.output_count && good; i++) {
        if (&job->work.outputs[i] == dense)
            continue;
        fl_buf_puts(body, first ? "" : ",");
        fl_json_quote(body, job->ask.outputs.texts[i], job->ask.outputs.lengths[i]);
        fl_buf_puts(body, ":");
        good  = fl_job_put_output(job, &job->work.outputs[i], index);
        first = false;
    }
    fl_buf_puts(body, "}");
    return good;
}

static bool write_list(fl_job *job, const fletch_outcome *outcome) {
    fl_buf        *body   = &job->request->reply.body;
    const uint64_t tokens = fl_job_tokens(job, outcome);
    fl_buf_puts(body, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < job->count; i++) {
        fl_buf_puts(body, i > 0 ? ",{\"object\":\"embedding\",\"index\":"
                                : "{\"object\":\"embedding\",\"index\":");
        fl_json_out_u64(body, i);
        fl_buf_puts(body, ",\"embedding\":");
        if (!(job->work.output_count > 0 ? put_outputs(job, i) : fl_job_put_row(job, i)))
            return false;
        if (job->details) {
            fl_buf_printf(body, ",\"tokens\":%" PRIu32 ",\"truncated\":%s", job->tokens[i],
                          job->truncated[i] ? "true" : "false");
        }
        fl_buf_puts(body, "}");
    }
    fl_buf_puts(body, "],\"model\":");
    fl_json_quote(body, job->served->name, strlen(job->served->name));
    fl_buf_printf(body, ",\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64 "}}",
                  tokens, tokens);
    return !body->failed;
}

static const fl_style style = {&faults, write_list, true};

#define AT(member) offsetof(fl_ask, member)
const fl_field fl_fields_openai[] = {
    {"input", FL_FIELD_INPUT, FL_FIELD_REQUIRED, AT(input), .forms = FL_INPUT_ALL,
     .text = "A text, a list of texts, token ids of this model, or a list of those."},
    {FL_ASK_MODEL},
    {"encoding_format", FL_FIELD_WORD, FL_FIELD_NULL, AT(encoding), .words = FL_WORDS_ENCODING,
     .text = "base64: the vector's bytes, little-endian."},
    {"dimensions", FL_FIELD_INT, FL_FIELD_NULL, AT(dimensions), .min = 1, .max = INT32_MAX,
     .text = "Cut to this many, then normalise again."},
    {.name = "user", .type = FL_FIELD_ANY, .text = "Ignored."},
    {FL_ASK_PROMPT_NAME, .text = "One of the model's prompts, prepended to every text."},
    {"normalize", FL_FIELD_BOOL, FL_FIELD_NULL, AT(normalize),
     .text = "false: raw pooled vectors."},
    {FL_ASK_TRUNCATE},
    {"truncation_direction", FL_FIELD_WORD, FL_FIELD_NULL, AT(direction),
     .words = FL_WORDS_DIRECTION},
    {FL_ASK_DTYPE},
    {FL_ASK_DETAILS},
    {"outputs", FL_FIELD_INPUT, FL_FIELD_NULL, AT(outputs), .forms = FL_INPUT_TEXTS,
     .text = "Several outputs of one pass: dense, dense:256, dense:int8, dense:256:int8, sparse, "
             "tokens, "
             "colbert. The first dense one is `embedding`, the others are in `outputs` by name."},
    {FL_ASK_LATE_CHUNKING, .text = "true: the texts are consecutive parts of one document; each "
                                   "vector carries the context of the others."},
    {0}};

/* ---- Ids of another tokenizer -------------------------------------------------------------------- */

/* Whether `ids` are in the vocabulary and have all special tokens that an empty text has. */
static bool is_own(const fl_job *job, const fletch_tokens *frame, const int32_t *ids,
                   size_t count) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= job->served->info.vocabulary)
            return false;
    for (size_t i = 0; i < count && found < frame->count; i++)
        found += ids[i] == frame->ids[found];
    return found == frame->count;
}

/* Whether this client has not been warned before; once FL_FOREIGN_MAX have been, nobody is. A client is its key and
 * its User-Agent: the log is to name what must be mended, not every connection. */
static bool is_new(fl_http_request *request, const char *agent) {
    uint64_t mark = fl_hash(agent, strlen(agent), (uint64_t)(uintptr_t)request->key) | 1;
    for (size_t i = 0; i < FL_FOREIGN_MAX; i++) {
        _Atomic uint64_t *slot = &request->server->foreign[i];
        uint64_t          was  = 0;
        if (atomic_compare_exchange_strong(slot, &was, mark))
            return true;
        if (was == mark)
            return false;
    }
    return false;
}

static void warn_of_ids(fl_job *job) {
    const fl_body_input *input = &job->ask.input;
    const char          *agent = fl_request_header(job->request, "user-agent");
    fletch_tokens       *frame = NULL;
    bool                 own   = true;
    if (input->ids == NULL || fletch_tokenize(job->served->model, "", 0, NULL, &frame, NULL) < 0)
        return;
    for (size_t i = 0; own && i < input->count; i++) {
        own = is_own(job, frame, input->ids + input->offsets[i],
                     (size_t)(input->offsets[i + 1] - input->offsets[i]));
    }
    fletch_tokens_free(frame);
    if (own)
        return;
    fl_reply_header(job->request, "x-fletch-warning",
                    "input: token ids without this model's special tokens, or not of its "
                    "vocabulary; " FL_FOREIGN_IDS);
    agent = agent != NULL ? agent : "";
    if (is_new(job->request, agent)) {
        fl_server_log_line(job->request->server->log, FL_LEVEL_WARNING,
                           "%s: token ids without the special tokens of %s, or not of its "
                           "vocabulary, from client '%.80s' (request %s); " FL_FOREIGN_IDS,
                           job->request->path, job->served->name, agent, job->request->id);
    }
}

/* As Jina has it. */
static void embed_late(fl_job *job) {
    const fl_body_input *input  = &job->ask.input;
    const int64_t        all[2] = {0, (int64_t)input->count};
    fl_documents         documents;
    if (input->form == FL_INPUT_IDS || input->form == FL_INPUT_ID_LISTS) {
        fl_job_refuse(job, FL_REFUSE_INPUT, FLETCH_NOWHERE,
                      "late_chunking needs texts, not token ids");
    } else if (job->ask.outputs.form != 0) {
        fl_job_refuse(job, FL_REFUSE_INPUT, FLETCH_NOWHERE,
                      "late_chunking gives dense vectors; omit outputs");
    } else if (fl_job_join(job, all, 1, &documents) && fl_job_prepare_spans(job, &documents)) {
        fl_job_submit_later(job);
    }
}

static void embeddings(fl_http_request *request) {
    fl_job *job = fl_job_read(request, &style, fl_fields_openai);
    if (job == NULL)
        return;
    if (job->ask.input.empty) {
        fl_job_refuse(job, FL_REFUSE_EMPTY, FLETCH_NOWHERE, BAD_INPUT);
    } else if (job->ask.late_chunking == 1) {
        embed_late(job);
    } else if (job->ask.outputs.form != 0 ? fl_job_prepare_outputs(job) : fl_job_prepare(job)) {
        warn_of_ids(job);
        fl_job_submit(job);
    }
}

/* ---- /score, as vLLM has it ---------------------------------------------------------------------- */

const fl_field fl_fields_score[] = {
    {"text_1", FL_FIELD_INPUT, FL_FIELD_REQUIRED, AT(input),
     .forms = FL_INPUT_TEXT | FL_INPUT_TEXTS | FL_INPUT_NOTHING,
     .text  = "One text for all of text_2, or as many as text_2."},
    {"text_2", FL_FIELD_INPUT, FL_FIELD_REQUIRED, AT(second),
     .forms = FL_INPUT_TEXT | FL_INPUT_TEXTS | FL_INPUT_NOTHING},
    {FL_ASK_MODEL},
    {"use_activation", FL_FIELD_BOOL, FL_FIELD_NULL, AT(use_activation),
     .text = "false: logits; else as the model's folder says."},
    {0},
};

static bool write_scores(fl_job *job, const fletch_outcome *outcome) {
    fl_buf *body = &job->request->reply.body;
    fl_buf_puts(body, "{\"id\":");
    fl_json_quote(body, job->request->id, strlen(job->request->id));
    fl_buf_printf(body, ",\"object\":\"list\",\"created\":%lld,\"model\":", (long long)time(NULL));
    fl_json_quote(body, job->served->name, strlen(job->served->name));
    fl_buf_puts(body, ",\"data\":[");
    for (size_t i = 0; i < job->count; i++) {
        fl_buf_printf(body, "%s{\"index\":%zu,\"object\":\"score\",\"score\":", i > 0 ? "," : "",
                      i);
        fl_put_score(body, job->rows[i]);
        fl_buf_puts(body, "}");
    }
    fl_buf_printf(body,
                  "],\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64
                  ",\"completion_tokens\":0}}",
                  outcome->tokens, outcome->tokens);
    return !body->failed;
}

static const fl_style score_style = {&faults, write_scores, false};

static void score(fl_http_request *request) {
    fl_job *job = fl_job_read(request, &score_style, fl_fields_score);
    if (job == NULL)
        return;
    fl_ask *ask = &job->ask;
    size_t  one = ask->input.count, many = ask->second.count;
    if (many == 0 || one == 0 || (one != 1 && one != many)) {
        fl_reply_error(request, FL_HTTP_BAD_REQUEST,
                       "text_1 has %zu texts and text_2 %zu: send one, or equally many", one, many);
        return;
    }
    if (!fl_job_model(job))
        return;
    if (!fl_served_ranks(job->served)) {
        fl_job_refuse(job, FL_REFUSE_HEAD, FLETCH_NOWHERE, "the model is not a reranker");
        return;
    }
    if (one > 1 && fl_served_is_late(job->served)) {
        fl_job_refuse(job, FL_REFUSE_INPUT, FLETCH_NOWHERE,
                      "the model scores one query with many texts: text_1 must be one text");
        return;
    }
    if (one == 1) {
        ask->source = (fl_span){ask->input.texts[0], ask->input.lengths[0]};
        ask->input  = ask->second;
    }
    if (fl_job_prepare_scores(job, ask->use_activation == -1 ? FLETCH_ACTIVATION_NONE
                                                             : FLETCH_ACTIVATION_DEFAULT))
        fl_job_submit(job);
}

const fl_route fl_routes_score[] = {{"POST", "/score", &fl_dialect_openai, score, 0},
                                    {"POST", "/v1/score", &fl_dialect_openai, score, 0},
                                    {0}};

/* ---- /v1/models -------------------------------------------------------------------------------- */

static void put_open_model(fl_json_w *w, const fl_served *served) {
    const fletch_model_info *info = &served->info;
    fl_json_w_u64(w, "dimensions", info->dimensions);
    fl_json_w_text(w, "head", info->head);
    fl_json_w_u64(w, "labels", info->labels);
    fl_json_w_u64(w, "max_length", info->max_length);
    fl_json_w_text(w, "architecture", info->family);
    fl_json_w_u64(w, "parameters", info->parameters);
    fl_json_w_u64(w, "size", info->weights_bytes);
    fl_json_w_text(w, "dtype", info->weights_dtype);
    fl_json_w_text(w, "fingerprint", served->fingerprint);
}

/* Of a model that is not open its name is known, and how it is. */
static void put_model(fl_json_w *w, fl_served *served) {
    bool open = fl_served_try_hold(served);
    fl_json_w_object(w, NULL);
    fl_json_w_text(w, "id", served->name);
    fl_json_w_text(w, "object", "model");
    fl_json_w_i64(w, "created", open ? served->info.modified : 0);
    fl_json_w_text(w, "owned_by", "fletch");
    fl_json_w_text(w, "state", fl_model_state_words[atomic_load(&served->state)]);
    fl_json_w_bool(w, "pinned", served->offer == NULL);
    if (open) {
        put_open_model(w, served);
        fl_served_drop(served);
    }
    fl_json_w_end(w);
}

static void models(fl_http_request *request) {
    fl_json_w  w = {.out = &request->reply.body};
    fl_served *served;
    if (fl_request_look(request))
        return;
    fl_json_w_object(&w, NULL);
    fl_json_w_text(&w, "object", "list");
    fl_json_w_array(&w, "data");
    for (size_t i = 0; (served = fl_server_record_at(request->server, i)) != NULL; i++)
        put_model(&w, served);
    fl_json_w_end(&w);
    fl_json_w_end(&w);
    fl_reply_json(request, 200);
}

/* /v1/models/ID: here a name must fit, also when only one model is loaded. */
static void one_model(fl_http_request *request) {
    size_t size = strlen(request->tail);
    char  *name = fl_request_alloc(request, size + 1);
    if (name == NULL) {
        fl_reply_error(request, FL_HTTP_INTERNAL, "out of memory");
        return;
    }
    memcpy(name, request->tail, size);
    size = fl_percent_decode(name, size);
    fl_served *served;
    for (size_t i = 0; (served = fl_server_record_at(request->server, i)) != NULL; i++) {
        fl_span span = {name, size};
        if (size != SIZE_MAX && (fl_span_is(span, served->name) || fl_span_is(span, served->id))) {
            put_model(&(fl_json_w){.out = &request->reply.body}, served);
            fl_reply_json(request, 200);
            return;
        }
    }
    fl_reply_error(request, FL_HTTP_MODEL_NOT_FOUND, "The model `%s` does not exist",
                   request->tail);
}

const fl_route fl_routes_openai[] = {
    {"POST", "/v1/embeddings", &fl_dialect_openai, embeddings, 0},
    {"POST", "/embeddings", &fl_dialect_openai, embeddings, 0},
    {"GET", "/v1/models", &fl_dialect_openai, models, 0},
    {"GET", "/v1/models/", &fl_dialect_openai, one_model, FL_ROUTE_PREFIX},
    {0}};
