/* SPDX-License-Identifier: Apache-2.0 */
/* tei.c - the text-embeddings-inference dialect: errors, /embed, /similarity, /rerank, /predict.
 *
 * Role    what huggingface_hub, LlamaIndex, Haystack and every deployment of TEI 1.9 speak.
 * In/Out  {"inputs": "…" | […] | ids, "normalize", "truncate", "truncation_direction", "prompt_name",
 *         "dimensions"} to a list of vectors, even for one text; errors are {"error", "error_type"}, faults of
 *         the JSON itself plain text, as axum words them.
 * Rules   Validation is 422, nothing to embed 400, a model without the head 424. A list of any length
 *         passes; ids are used as they are (TEI turns them into text and back). With "details": true the
 *         answer is an object that also holds tokens and truncation of each text.
 * Memory  request memory. Threads: see server.h.
 * Proof   tests/server/test_tei.py. */
#include "server/tei.h"

#include <stddef.h>
#include <string.h>

/* ---- Errors ---------------------------------------------------------------------------------- */

/* What TEI calls the codes. A type "" is plain text, NULL no body
 * at all; a text replaces the message. */
static const struct {
    fl_http_code code;
    const char  *type, *text;
} errors[] = {
    {FL_HTTP_EMPTY, "Empty", NULL},
    {FL_HTTP_TOKENIZER, "Tokenizer", NULL},
    {FL_HTTP_WRONG_TASK, "Backend", NULL},
    {FL_HTTP_INTERNAL, "Backend", NULL},
    {FL_HTTP_DEADLINE_EXCEEDED, "Backend", NULL},
    {FL_HTTP_OVERLOADED, "Overloaded", "Model is overloaded"},
    {FL_HTTP_RATE_LIMITED, "Overloaded", NULL},
    {FL_HTTP_UNAVAILABLE, "Unhealthy", "unhealthy"},
    {FL_HTTP_PERMISSION_DENIED, "Backend", NULL},
    {FL_HTTP_PAYLOAD_TOO_LARGE, "", "Failed to buffer the request body: length limit exceeded"},
    {FL_HTTP_JSON_SYNTAX, "", NULL},
    {FL_HTTP_JSON_TYPE, "", NULL},
    {FL_HTTP_CONTENT_TYPE, "", "Expected request with `Content-Type: application/json`"},
    {FL_HTTP_INVALID_API_KEY, NULL, NULL},
    {FL_HTTP_NOT_FOUND, NULL, NULL},
};

static void write_error(fl_http_reply *reply, fl_http_code code, const char *message) {
    const char *type =
        "Validation"; /* the transport's codes that TEI has not: 405, 408, 414, 431 */
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].code == code) {
            type    = errors[i].type;
            message = errors[i].text != NULL ? errors[i].text : message;
        }
    }
    reply->type = NULL;
    if (type == NULL)
        return;
    if (type[0] == '\0') {
        reply->type = "text/plain; charset=utf-8";
        fl_buf_puts(&reply->body, message);
        return;
    }
    reply->type = "application/json";
    fl_buf_puts(&reply->body, "{\"error\":");
    fl_json_quote(&reply->body, message, strlen(message));
    fl_buf_printf(&reply->body, ",\"error_type\":\"%s\"}", type);
}

const fl_dialect fl_dialect_tei = {"tei", write_error};

const fl_faults fl_tei_faults = {
    .syntax  = {FL_HTTP_JSON_SYNTAX, "Failed to parse the request body as JSON: "},
    .meaning = {FL_HTTP_JSON_TYPE, "Failed to deserialize the JSON body into the target type: "},
    .type    = {FL_HTTP_CONTENT_TYPE, "content type"},
    .refusals =
        {[FL_REFUSE_MODEL] = {FL_HTTP_MODEL_NOT_FOUND, "model `{model}` not found{. near}"},
         [FL_REFUSE_HEAD]  = {FL_HTTP_WRONG_TASK, "Backend error: {message}"},
         [FL_REFUSE_EMPTY] = {FL_HTTP_EMPTY, "Input validation error: `inputs` cannot be empty"},
         [FL_REFUSE_DIMENSIONS] = {FL_HTTP_VALIDATION,
                                   "Input validation error: `dimensions` should be {size}"},
         [FL_REFUSE_PROMPT] =
             {FL_HTTP_VALIDATION,
              "Input validation error: `default-prompt-name` is set to `{prompt}` but it was not "
              "found in the Sentence Transformers prompts. Available prompts: [{prompts}]"},
         [FL_REFUSE_TOO_LONG] = {FL_HTTP_VALIDATION,
                                 "Input validation error: `inputs` must have less than "
                                 "{max_length} tokens. Given: {length}"},
         [FL_REFUSE_TOO_MUCH] = {FL_HTTP_ANSWER_TOO_LARGE, "{message}"}},
    .other = {FL_HTTP_VALIDATION, "Input validation error: {message}"}};

/* ---- /embed ------------------------------------------------------------------------------------ */

static bool write_rows(fl_job *job, const fletch_outcome *outcome) {
    fl_buf *body = &job->request->reply.body;
    (void)outcome;
    fl_buf_puts(body, job->details ? "{\"embeddings\":[" : "[");
    for (size_t i = 0; i < job->count; i++) {
        fl_buf_puts(body, i > 0 ? "," : "");
        if (!fl_job_put_row(job, i))
            return false;
    }
    fl_buf_puts(body, "]");
    if (job->details) {
        fl_buf_puts(body, ",");
        fl_job_put_details(job);
        fl_buf_puts(body, "}");
    }
    return !body->failed;
}

static const fl_style embed_style = {&fl_tei_faults, write_rows, true};

#define AT(member) offsetof(fl_ask, member)
#define INPUTS                                                                                     \
    .name = "inputs", .type = FL_FIELD_INPUT, .flags = FL_FIELD_REQUIRED, .offset = AT(input),     \
    .forms = FL_INPUT_ALL | FL_INPUT_MIXED,                                                        \
    .text  = "A text, token ids of this model, or a list of either."
#define DIRECTION                                                                                  \
    .name = "truncation_direction", .type = FL_FIELD_WORD, .offset = AT(direction),                \
    .words = FL_WORDS_DIRECTION
#define PROMPT_NAME                                                                                \
    FL_ASK_PROMPT_NAME, .text = "One of the model's prompts, prepended to every text."
#define RAW_SCORES                                                                                 \
    .name = "raw_scores", .type = FL_FIELD_BOOL, .offset = AT(raw_scores), .text = "true: logits."
#define MODEL FL_ASK_MODEL, .text = "One of several loaded models."

const fl_field fl_fields_tei_embed[] = {
    {INPUTS},
    {FL_ASK_TRUNCATE},
    {DIRECTION},
    {PROMPT_NAME},
    {MODEL},
    {"normalize", FL_FIELD_BOOL, 0, AT(normalize), .text = "false: raw pooled vectors."},
    {"dimensions", FL_FIELD_INT, FL_FIELD_NULL, AT(dimensions), .min = 0, .max = INT64_MAX,
     .text = "Cut to this many, then normalise again."},
    {FL_ASK_DTYPE},
    {FL_ASK_DETAILS},
    {0}};

/* Read the texts, and hand them over once `prepare` has not answered. */
static void run(fl_http_request *request, const fl_style *style, const fl_field *fields,
                bool (*prepare)(fl_job *job)) {
    fl_job *job = fl_job_read(request, style, fields);
    if (job == NULL)
        return;
    if (job->ask.input.empty)
        fl_job_refuse(job, FL_REFUSE_EMPTY, FLETCH_NOWHERE, "");
    else if (prepare(job))
        fl_job_submit(job);
}

static void embed(fl_http_request *request) {
    run(request, &embed_style, fl_fields_tei_embed, fl_job_prepare);
}

/* ---- /embed_all -------------------------------------------------------------------------------- */

/* For each text the list of what `write_item` makes of entry k; false: a value is not finite. */
static bool write_lists(fl_job *job, const fletch_outcome *outcome,
                        bool (*write_item)(fl_buf *, const fletch_lists *, size_t i, size_t k)) {
    fl_buf             *body  = &job->request->reply.body;
    const fletch_lists *lists = outcome->lists;
    fl_buf_puts(body, "[");
    for (size_t i = 0; i < lists->count; i++) {
        fl_buf_puts(body, i > 0 ? ",[" : "[");
        for (size_t k = 0; k < lists->list[i].count; k++) {
            fl_buf_puts(body, k > 0 ? "," : "");
            if (!write_item(body, lists, i, k))
                return false;
        }
        fl_buf_puts(body, "]");
    }
    fl_buf_puts(body, "]");
    return !body->failed;
}

static bool write_vector(fl_buf *body, const fletch_lists *lists, size_t i, size_t k) {
    return fl_json_out_floats(body, lists->list[i].values + k * lists->columns, lists->columns);
}

static bool write_tokens(fl_job *job, const fletch_outcome *outcome) {
    return write_lists(job, outcome, write_vector);
}

static const fl_style tokens_style = {&fl_tei_faults, write_tokens, true};

const fl_field fl_fields_tei_tokens[] = {{INPUTS},      {FL_ASK_TRUNCATE}, {DIRECTION},
                                         {PROMPT_NAME}, {MODEL},           {0}};

static void embed_all(fl_http_request *request) {
    run(request, &tokens_style, fl_fields_tei_tokens, fl_job_prepare_tokens);
}

/* ---- /embed_sparse ------------------------------------------------------------------------------ */

static bool write_term(fl_buf *body, const fletch_lists *lists, size_t i, size_t k) {
    fl_buf_puts(body, "{\"index\":");
    fl_json_out_u64(body, (uint64_t)lists->list[i].ids[k]);
    fl_buf_puts(body, ",\"value\":");
    bool finite = fl_json_out_float(body, lists->list[i].values[k]);
    fl_buf_puts(body, "}");
    return finite;
}

static bool write_sparse(fl_job *job, const fletch_outcome *outcome) {
    return write_lists(job, outcome, write_term);
}

static const fl_style sparse_style = {&fl_tei_faults, write_sparse, true};

static bool prepare_sparse(fl_job *job) {
    if (fl_job_model(job) && job->served->info.sparse == 0) {
        fl_reply_error(job->request, FL_HTTP_WRONG_TASK,
                       "Backend error: Model is not an embedding model with SPLADE pooling");
        return false;
    }
    return job->served != NULL && fl_job_prepare_sparse(job);
}

static void embed_sparse(fl_http_request *request) {
    run(request, &sparse_style, fl_fields_tei_tokens, prepare_sparse);
}

/* ---- /similarity --------------------------------------------------------------------------------- */

/* Rows are of unit length; the source is the last one. */
static bool write_similarity(fl_job *job, const fletch_outcome *outcome) {
    fl_buf      *body   = &job->request->reply.body;
    size_t       others = job->count - 1;
    const float *source = job->rows + others * job->columns;
    float       *cosine = job->extra;
    (void)outcome;
    for (size_t i = 0; i < others; i++) {
        const float *row = job->rows + i * job->columns;
        double       sum = 0.0;
        for (size_t k = 0; k < job->columns; k++)
            sum += (double)row[k] * (double)source[k];
        cosine[i] = (float)sum;
    }
    return fl_json_out_floats(body, cosine, others) && !body->failed;
}

static const fl_style similarity_style = {&fl_tei_faults, write_similarity, true};

static const fl_field similarity_inputs[] = {
    {"source_sentence", FL_FIELD_STRING, FL_FIELD_REQUIRED, AT(source), .min = 1},
    {"sentences", FL_FIELD_INPUT, FL_FIELD_REQUIRED, AT(input), .forms = FL_INPUT_TEXTS},
    {0}};
static const fl_field similarity_parameters[] = {
    {FL_ASK_TRUNCATE}, {DIRECTION}, {PROMPT_NAME}, {0}};

const fl_field fl_fields_tei_similarity[] = {
    {"inputs", FL_FIELD_INNER, FL_FIELD_REQUIRED, 0, .inner = similarity_inputs},
    {"parameters", FL_FIELD_INNER, FL_FIELD_NULL, 0, .inner = similarity_parameters},
    {MODEL},
    {0}};

/* The source becomes the last text of the request. */
static bool append_source(fl_job *job) {
    fl_body_input *input   = &job->ask.input;
    size_t         count   = input->count + 1;
    const char   **texts   = fl_request_alloc(job->request, count * sizeof *texts);
    size_t        *lengths = fl_request_alloc(job->request, count * sizeof *lengths);
    job->extra             = fl_request_alloc(job->request, count * sizeof(float));
    if (texts == NULL || lengths == NULL || job->extra == NULL) {
        fl_reply_error(job->request, FL_HTTP_INTERNAL, "out of memory");
        return false;
    }
    memcpy(texts, input->texts, input->count * sizeof *texts);
    memcpy(lengths, input->lengths, input->count * sizeof *lengths);
    texts[input->count]   = job->ask.source.data;
    lengths[input->count] = job->ask.source.size;
    input->texts          = texts;
    input->lengths        = lengths;
    input->count          = count;
    return true;
}

static void similarity(fl_http_request *request) {
    fl_job *job = fl_job_read(request, &similarity_style, fl_fields_tei_similarity);
    if (job == NULL)
        return;
    if (job->ask.input.count == 0) {
        fl_reply_error(request, FL_HTTP_EMPTY, "`inputs.sentences` cannot be empty");
        return;
    }
    if (job->ask.input.empty || job->ask.source.size == 0) {
        fl_job_refuse(job, FL_REFUSE_EMPTY, FLETCH_NOWHERE, "");
        return;
    }
    job->ask.dtype = FL_WORD_FLOAT32; /* whatever a header says: it is calculated with */
    if (append_source(job) && fl_job_prepare(job)) {
        job->octets            = false;
        job->options.normalize = 1; /* whatever a header says: else it is no cosine */
        fl_job_submit(job);
    }
}

/* ---- Scores --------------------------------------------------------------------------------------- */

const fl_field fl_fields_tei_predict[] = {
    {"inputs", FL_FIELD_PAIRS, FL_FIELD_REQUIRED, AT(pairs),
     .text = "A text, a pair of texts, or a list of [text] or of [text, text]."},
    {FL_ASK_TRUNCATE},
    {DIRECTION},
    {RAW_SCORES},
    {MODEL},
    {0}};
const fl_field fl_fields_tei_rerank[] = {
    {"query", FL_FIELD_STRING, FL_FIELD_REQUIRED, AT(source), .min = 1},
    {"texts", FL_FIELD_INPUT, FL_FIELD_REQUIRED, AT(input),
     .forms = FL_INPUT_TEXTS | FL_INPUT_NOTHING},
    {FL_ASK_TRUNCATE},
    {DIRECTION},
    {RAW_SCORES},
    {.name = "return_text", .type = FL_FIELD_BOOL, .offset = AT(return_text)},
    {MODEL},
    {0}};

static bool write_ranked(fl_job *job, const fletch_outcome *outcome) {
    fl_buf    *body   = &job->request->reply.body;
    fl_ranked *ranked = fl_job_rank(job);
    (void)outcome;
    fl_buf_puts(body, "[");
    for (size_t i = 0; ranked != NULL && i < job->count; i++) {
        fl_buf_printf(body, "%s{\"index\":%zu", i > 0 ? "," : "", ranked[i].index);
        if (job->ask.return_text == 1) {
            fl_buf_puts(body, ",\"text\":");
            fl_json_quote(body, job->ask.input.texts[ranked[i].index],
                          job->ask.input.lengths[ranked[i].index]);
        }
        fl_buf_puts(body, ",\"score\":");
        fl_put_score(body, ranked[i].score);
        fl_buf_puts(body, "}");
    }
    fl_buf_puts(body, "]");
    return ranked != NULL && !body->failed;
}

void fl_tei_put_class(fl_buf *body, size_t i, float score, const char *label, size_t size) {
    fl_buf_puts(body, i > 0 ? ",{\"score\":" : "[{\"score\":");
    fl_put_score(body, score);
    fl_buf_puts(body, ",\"label\":");
    fl_json_quote(body, label, size);
    fl_buf_puts(body, "}");
}

/* The labels of one text, best first. */
static bool put_classes(fl_job *job, size_t index, fl_ranked *ranked) {
    fl_buf *body = &job->request->reply.body;
    fl_rank(job->rows + index * job->columns, job->columns, ranked);
    for (size_t i = 0; i < job->columns; i++) {
        const char *label = fletch_label_at(job->served->model, ranked[i].index);
        fl_tei_put_class(body, i, ranked[i].score, label, strlen(label));
    }
    fl_buf_puts(body, "]");
    return !body->failed;
}

static bool write_classes(fl_job *job, const fletch_outcome *outcome) {
    fl_buf    *body   = &job->request->reply.body;
    fl_ranked *ranked = fl_request_alloc(job->request, job->columns * sizeof *ranked);
    bool       good   = ranked != NULL;
    (void)outcome;
    fl_buf_puts(body, job->ask.pairs.list ? "[" : "");
    for (size_t i = 0; good && i < job->count; i++) {
        fl_buf_puts(body, i > 0 ? "," : "");
        good = put_classes(job, i, ranked);
    }
    fl_buf_puts(body, job->ask.pairs.list ? "]" : "");
    return good && !body->failed;
}

static const fl_style rerank_style  = {&fl_tei_faults, write_ranked, true};
static const fl_style predict_style = {&fl_tei_faults, write_classes, true};

static void rerank(fl_http_request *request) {
    fl_job *job = fl_job_read(request, &rerank_style, fl_fields_tei_rerank);
    if (job == NULL)
        return;
    if (job->ask.input.count == 0)
        fl_reply_error(request, FL_HTTP_EMPTY, "`texts` cannot be empty");
    else if (job->ask.source.size == 0)
        fl_reply_error(request, FL_HTTP_EMPTY, "`query` cannot be empty");
    else if (fl_job_prepare_scores(job, job->ask.raw_scores == 1 ? FLETCH_ACTIVATION_NONE
                                                                 : FLETCH_ACTIVATION_SIGMOID))
        fl_job_submit(job);
}

static void predict(fl_http_request *request) {
    fl_job *job = fl_job_read(request, &predict_style, fl_fields_tei_predict);
    if (job == NULL)
        return;
    fl_ask_take_pairs(&job->ask);
    if (job->ask.input.count == 0 || (job->ask.input.empty && job->ask.second.count == 0)) {
        fl_job_refuse(job, FL_REFUSE_EMPTY, FLETCH_NOWHERE, "");
    } else if (fl_job_prepare_scores(job, FLETCH_ACTIVATION_NONE)) {
        if (job->ask.raw_scores != 1) {
            job->options.activation =
                job->columns > 1 ? FLETCH_ACTIVATION_SOFTMAX : FLETCH_ACTIVATION_SIGMOID;
        }
        fl_job_submit(job);
    }
}

enum { PROBE = FL_ROUTE_OPEN | FL_ROUTE_QUIET | FL_ROUTE_ALWAYS };

const fl_route fl_routes_tei[] = {
    {"POST", "/embed", &fl_dialect_tei, embed, 0},
    {"POST", "/", &fl_dialect_tei, embed, 0},
    {"POST", "/similarity", &fl_dialect_tei, similarity, 0},
    {"POST", "/tokenize", &fl_dialect_tei, fl_tei_tokenize, FL_ROUTE_BLOCKING},
    {"POST", "/decode", &fl_dialect_tei, fl_tei_decode, FL_ROUTE_BLOCKING},
    {"POST", "/embed_all", &fl_dialect_tei, embed_all, FL_ROUTE_BLOCKING},
    {"POST", "/embed_chunks", &fl_dialect_tei, fl_tei_embed_chunks, FL_ROUTE_BLOCKING},
    {"POST", "/embed_sparse", &fl_dialect_tei, embed_sparse, 0},
    {"POST", "/predict", &fl_dialect_tei, predict, 0},
    {"POST", "/zero-shot-classification", &fl_dialect_tei, fl_tei_zero_shot, 0},
    {"POST", "/rerank", &fl_dialect_tei, rerank, 0},
    {"GET", "/info", &fl_dialect_tei, fl_tei_info, 0},
    {"GET", "/health", &fl_dialect_tei, fl_tei_health, PROBE},
    {"GET", "/ping", &fl_dialect_tei, fl_tei_health, PROBE},
    {0}};
