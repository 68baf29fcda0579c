/* SPDX-License-Identifier: Apache-2.0 */
/* ollama.c - the Ollama dialect: /api/embed, /api/embeddings, /api/tags, /api/ps, /api/show,
 * /api/pull, /api/delete, /api/version.
 *
 * Role    what ollama-python and the many programs with an "Ollama URL" setting speak.
 * In/Out  {"model", "input": "…" | […], "truncate", "dimensions"} to {"model", "embeddings",
 *         "total_duration", "load_duration", "prompt_eval_count"}; errors are {"error": "…"}.
 * Rules   Any Content-Type passes (curl -d sends a form's). No input is an answer without vectors, not an
 *         error. dimensions beyond the model's are ignored. /api/embeddings gives the raw pooled vector.
 *         A name may end in ":latest". A pull of what is loaded has succeeded; pull.c has the others.
 * Memory  request memory. Threads: see server.h.
 * Proof   tests/server/test_ollama.py, test_pull.py. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "server/embedding.h"
#include "server/pull.h"
#include "server/routes.h"

/* ---- Errors ---------------------------------------------------------------------------------- */

static void write_error(fl_http_reply *reply, fl_http_code code, const char *message) {
    if (code == FL_HTTP_OVERLOADED) {
        message       = "server busy, please try again.  maximum pending requests exceeded";
        reply->status = 503; /* the number that Ollama's clients wait for */
    } else if (code == FL_HTTP_TOO_LONG) {
        message       = "the input length exceeds the context length";
        reply->status = 400;
    }
    reply->type = "application/json";
    fl_buf_puts(&reply->body, "{\"error\":");
    fl_json_quote(&reply->body, message, strlen(message));
    fl_buf_puts(&reply->body, "}");
}

const fl_dialect fl_dialect_ollama = {"ollama", write_error};

static const fl_faults faults = {
    .syntax   = {FL_HTTP_BAD_REQUEST, ""},
    .meaning  = {FL_HTTP_BAD_REQUEST, ""},
    .refusals = {[FL_REFUSE_MODEL] = {FL_HTTP_MODEL_NOT_FOUND, "model '{model}' not found{. near}"},
                 [FL_REFUSE_TOO_LONG] = {FL_HTTP_TOO_LONG, "{message}"},
                 [FL_REFUSE_TOO_MUCH] = {FL_HTTP_PAYLOAD_TOO_LARGE, "{message}"}}};

/* ---- The answers ------------------------------------------------------------------------------- */

static bool write_embed(fl_job *job, const fletch_outcome *outcome) {
    fl_http_request *request = job->request;
    fl_buf          *body    = &request->reply.body;
    fl_buf_puts(body, "{\"model\":");
    fl_json_quote(body, job->served->name, strlen(job->served->name));
    fl_buf_puts(body, ",\"embeddings\":[");
    for (size_t i = 0; i < job->count; i++) {
        fl_buf_puts(body, i > 0 ? "," : "");
        if (!fl_job_put_row(job, i))
            return false;
    }
    fl_buf_printf(body,
                  "],\"total_duration\":%" PRIu64 ",\"load_duration\":%" PRIu64
                  ",\"prompt_eval_count\":%" PRIu64,
                  fl_clock_ns() - request->start_ns, request->open_ns, outcome->tokens);
    if (job->details) {
        fl_buf_puts(body, ",");
        fl_job_put_details(job);
    }
    fl_buf_puts(body, "}");
    return !body->failed;
}

static bool write_embeddings(fl_job *job, const fletch_outcome *outcome) {
    fl_buf *body = &job->request->reply.body;
    (void)outcome;
    fl_buf_puts(body, "{\"embedding\":");
    if (!fl_job_put_row(job, 0))
        return false;
    fl_buf_puts(body, "}");
    return !body->failed;
}

static const fl_style embed_style      = {&faults, write_embed, false};
static const fl_style embeddings_style = {&faults, write_embeddings, false};

/* ---- The routes -------------------------------------------------------------------------------- */

#define AT(member) offsetof(fl_ask, member)
const fl_field fl_fields_ollama_embed[] = {
    {FL_ASK_MODEL},
    {"input", FL_FIELD_INPUT, FL_FIELD_NULL, AT(input),
     .forms = FL_INPUT_TEXT | FL_INPUT_TEXTS | FL_INPUT_NOTHING | FL_INPUT_NO_ITEMS,
     .text  = "A text or a list of texts."},
    {FL_ASK_TRUNCATE},
    {"dimensions", FL_FIELD_INT, FL_FIELD_NULL, AT(dimensions), .min = INT32_MIN, .max = INT32_MAX,
     .text = "Cut to this many, then normalise again; ignored outside of the model's range."},
    {FL_ASK_KEEP_ALIVE},
    {.name = "options", .type = FL_FIELD_ANY, .text = "Ignored."},
    {FL_ASK_DTYPE},
    {FL_ASK_DETAILS},
    {0}};

const fl_field fl_fields_ollama_embeddings[] = {
    {FL_ASK_MODEL},
    {"prompt", FL_FIELD_INPUT, FL_FIELD_NULL, AT(input), .forms = FL_INPUT_TEXT | FL_INPUT_NOTHING,
     .text = "The text; an empty one gives an empty vector."},
    {FL_ASK_KEEP_ALIVE},
    {.name = "options", .type = FL_FIELD_ANY, .text = "Ignored."},
    {0}};

/* Of /api/show, /api/pull and /api/delete. */
const fl_field fl_fields_ollama_named[] = {
    {"model", FL_FIELD_STRING, FL_FIELD_REQUIRED, AT(model), .min = 1},
    {.name = "stream", .type = FL_FIELD_BOOL, .flags = FL_FIELD_NULL, .offset = AT(details)},
    {0}};

/* Read; NULL: answered. */
static fl_job *parse(fl_http_request *request, const fl_style *style, const fl_field *fields) {
    if (request->body_size == 0) {
        fl_reply_error(request, FL_HTTP_BAD_REQUEST, "missing request body");
        return NULL;
    }
    return fl_job_parse(request, style, fields);
}

/* The model that the body names is open; false: the handler returns. */
static bool take_model(fl_job *job) {
    return job != NULL && fl_job_find(job) && fl_job_take(job) && fl_job_model(job);
}

static fl_job *begin(fl_http_request *request, const fl_style *style, const fl_field *fields) {
    fl_job *job = parse(request, style, fields);
    if (!take_model(job))
        return NULL;
    int64_t wanted = job->ask.dimensions;
    if (wanted < 1 || (uint64_t)wanted > job->served->info.dimensions)
        job->ask.dimensions = FL_ASK_NONE;
    return job;
}

/* Whether nothing was asked: no input, [] or "". */
static bool is_nothing(const fl_body_input *input) {
    return input->count == 0 || (input->form == FL_INPUT_TEXT && input->lengths[0] == 0);
}

static void embed(fl_http_request *request) {
    fl_job *job = begin(request, &embed_style, fl_fields_ollama_embed);
    if (job == NULL || !fl_job_prepare(job))
        return;
    if (is_nothing(&job->ask.input)) {
        fl_buf *body = &request->reply.body;
        fl_buf_puts(body, "{\"model\":");
        fl_json_quote(body, job->served->name, strlen(job->served->name));
        fl_buf_puts(body, ",\"embeddings\":[]}");
        fl_reply_json(request, 200);
    } else {
        fl_job_submit(job);
    }
}

static void embeddings(fl_http_request *request) {
    fl_job *job = begin(request, &embeddings_style, fl_fields_ollama_embeddings);
    if (job == NULL)
        return;
    job->ask.normalize = -1;
    if (!fl_job_prepare(job))
        return;
    if (is_nothing(&job->ask.input)) {
        fl_buf_puts(&request->reply.body, "{\"embedding\":[]}");
        fl_reply_json(request, 200);
    } else {
        fl_job_submit(job);
    }
}

/* As Ollama writes it: "22.71M", "110M", "7.6B"; "" when nobody knows. */
static void parameter_size(char *out, size_t capacity, uint64_t count) {
    double millions = (double)count / 1e6;
    out[0]          = '\0';
    if (count >= 1000000000)
        (void)snprintf(out, capacity, "%.1fB", millions / 1e3);
    else if (count >= 1000000)
        (void)snprintf(out, capacity, "%.*fM", count % 1000000 == 0 ? 0 : 2, millions);
    else if (count > 0)
        (void)snprintf(out, capacity, "%.0fK", millions * 1e3);
}

static void put_time_as(fl_buf *body, const char *name, int64_t seconds) {
    time_t    made = (time_t)seconds;
    struct tm utc;
    char      when[32];
    gmtime_r(&made, &utc);
    (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    fl_buf_printf(body, "%s:\"%s\"", name, when);
}

static void put_time(fl_buf *body, int64_t seconds) {
    put_time_as(body, "\"modified_at\"", seconds);
}

static void put_model_details(fl_buf *body, const fletch_model_info *info) {
    char size[32];
    parameter_size(size, sizeof size, info->parameters);
    fl_buf_printf(body,
                  "\"details\":{\"parent_model\":\"\",\"format\":\"%s\",\"family\":\"%s\","
                  "\"families\":[\"%s\"],\"parameter_size\":\"%s\",\"quantization_level\":\"%s\"}",
                  info->weights_format, info->family, info->family, size, info->weights_dtype);
}

static void put_names(fl_buf *body, const fl_served *served) {
    fl_buf_puts(body, "\"name\":");
    fl_json_quote(body, served->name, strlen(served->name));
    fl_buf_puts(body, ",\"model\":");
    fl_json_quote(body, served->name, strlen(served->name));
    fl_buf_puts(body, ",");
}

/* A model that can be opened, of which its files tell no more than this. */
static void put_closed_tag(fl_buf *body, const fl_served *served) {
    put_names(body, served);
    put_time(body, 0);
    fl_buf_printf(body, ",\"size\":%" PRIu64 ",\"digest\":\"\",\"details\":{}",
                  fl_served_bytes(served));
}

/* What /api/tags and /api/ps say of a model, without the braces. */
static void put_tag(fl_http_request *request, const fl_served *served) {
    const fletch_model_info *info = &served->info;
    fl_buf                  *body = &request->reply.body;
    put_names(body, served);
    put_time(body, info->modified);
    fl_buf_printf(body, ",\"size\":%" PRIu64 ",\"digest\":\"%s\",", info->weights_bytes,
                  served->fingerprint);
    put_model_details(body, info);
}

/* A model that stays loaded expires when the calendar of most clients ends. */
static void put_expiry(fl_buf *body, const fl_served *served) {
    const uint64_t second = 1000000000u, most = UINT64_C(4000000000) * second;
    uint64_t       left = fl_served_stays_ns(served);
    if (left >= most)
        fl_buf_puts(body, ",\"expires_at\":\"9999-12-31T00:00:00Z\"");
    else
        put_time_as(body, ",\"expires_at\"", (int64_t)time(NULL) + (int64_t)(left / second));
}

/* /api/ps tells more of a model, since it runs. */
static void put_running(fl_buf *body, const fl_served *served) {
    bool device = strncmp(served->info.provider, "cuda", 4) == 0;
    put_expiry(body, served);
    fl_buf_printf(body, ",\"size_vram\":%" PRIu64 ",\"context_length\":%" PRIu32,
                  device ? served->info.weights_bytes : 0, served->info.max_length);
}

/* Of all that can be served, or of those that are open. */
static void list_models(fl_http_request *request, bool running) {
    fl_buf    *body = &request->reply.body;
    fl_served *served;
    bool       more = false;
    fl_buf_puts(body, "{\"models\":[");
    for (size_t i = 0; (served = fl_server_record_at(request->server, i)) != NULL; i++) {
        bool open = fl_served_try_hold(served);
        if (!open && running)
            continue;
        fl_buf_puts(body, more ? ",{" : "{");
        more = true;
        if (open)
            put_tag(request, served);
        else
            put_closed_tag(body, served);
        if (running)
            put_running(body, served);
        fl_buf_printf(body, ",\"state\":\"%s\"}",
                      fl_model_state_words[atomic_load(&served->state)]);
        if (open)
            fl_served_drop(served);
    }
    fl_buf_puts(body, "]}");
    fl_reply_json(request, 200);
}

static void tags(fl_http_request *request) {
    if (!fl_request_look(request))
        list_models(request, false);
}

static void loaded(fl_http_request *request) {
    list_models(request, true);
}

/* A job whose body names a model, loaded or not; NULL: answered. */
static fl_job *named(fl_http_request *request) {
    fl_job *job = parse(request, &embed_style, fl_fields_ollama_named);
    if (job != NULL && job->ask.model.size == 0) {
        fl_reply_error(request, FL_HTTP_BAD_REQUEST, "model is required");
        return NULL;
    }
    return job;
}

static void show(fl_http_request *request) {
    fl_job *job  = named(request);
    fl_buf *body = &request->reply.body;
    if (!take_model(job))
        return;
    const fletch_model_info *info = &job->served->info;
    fl_buf_puts(body, "{\"modelfile\":\"\",\"parameters\":\"\",\"template\":\"\",");
    put_model_details(body, info);
    fl_buf_printf(body,
                  ",\"model_info\":{\"general.architecture\":\"%s\",\"general.parameter_count\":"
                  "%" PRIu64 ",\"%s.context_length\":%" PRIu32 ",\"%s.embedding_length\":%" PRIu32
                  "},\"capabilities\":[\"embedding\"],",
                  info->family, info->parameters, info->family, info->max_length, info->family,
                  info->dimensions);
    put_time(body, info->modified);
    fl_buf_puts(body, "}");
    fl_reply_json(request, 200);
}

/* The hub knows no tags. */
static fl_span without_tag(fl_span name) {
    static const char latest[] = ":latest";
    const size_t      tail     = sizeof latest - 1;
    bool tagged = name.size > tail && memcmp(name.data + name.size - tail, latest, tail) == 0;
    return (fl_span){name.data, name.size - (tagged ? tail : 0)};
}

/* A name under which a model is loaded. Where there is one model it has any name, but for names of the hub, and for
 * servers that could get what is meant. */
static bool is_loaded(const fl_server *server, fl_span name) {
    const fl_served *served = fl_server_model(server, name.data, name.size);
    const char      *names[2];
    if (served == NULL)
        return false;
    names[0] = served->name, names[1] = served->id;
    for (size_t i = 0; i < 2; i++)
        if (strlen(names[i]) == name.size && memcmp(names[i], name.data, name.size) == 0)
            return true;
    return !fl_pull_is_allowed(server) && memchr(name.data, '/', name.size) == NULL;
}

static void pull(fl_http_request *request) {
    fl_job *job = named(request);
    if (job == NULL)
        return;
    fl_span name = without_tag(job->ask.model);
    if (!is_loaded(request->server, name)) {
        fl_pull_begin(request, name, job->ask.details != -1);
    } else if (job->ask.details == -1) { /* "stream": false */
        fl_buf_puts(&request->reply.body, "{\"status\":\"success\"}");
        fl_reply_json(request, 200);
    } else {
        fl_buf_puts(&request->reply.body,
                    "{\"status\":\"pulling manifest\"}\n{\"status\":\"success\"}\n");
        fl_reply_bytes(request, 200, "application/x-ndjson");
    }
}

static void delete (fl_http_request *request) {
    fl_job *job = named(request);
    if (job != NULL)
        fl_pull_delete(request, without_tag(job->ask.model));
}

static void version(fl_http_request *request) {
    fl_buf_printf(&request->reply.body, "{\"version\":\"%s\"}", fletch_version());
    fl_reply_json(request, 200);
}

const fl_route fl_routes_ollama[] = {
    {"POST", "/api/embed", &fl_dialect_ollama, embed, 0},
    {"POST", "/api/embeddings", &fl_dialect_ollama, embeddings, 0},
    {"GET", "/api/tags", &fl_dialect_ollama, tags, 0},
    {"GET", "/api/ps", &fl_dialect_ollama, loaded, 0},
    {"POST", "/api/show", &fl_dialect_ollama, show, 0},
    {"POST", "/api/pull", &fl_dialect_ollama, pull, 0},
    {"DELETE", "/api/delete", &fl_dialect_ollama, delete, FL_ROUTE_BLOCKING},
    {"GET", "/api/version", &fl_dialect_ollama, version, 0},
    {0}};
