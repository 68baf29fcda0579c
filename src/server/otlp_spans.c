/* SPDX-License-Identifier: Apache-2.0 */
/* otlp_spans.c - a request as OpenTelemetry's spans: itself, and below it tokenize, queue, forward and write.
 *
 * Role    See otlp.h. docs/tracing.md says what each span means.
 * In/Out  What the server and the library measured anyway; ExportTraceServiceRequest.
 * Method  An outcome has the length of its stages and its own begin and end. Tokenising is put where the submission
 *         begins, the engine where it ends and the wait before that: for texts of one batch that is what
 *         happened, of several it is the way of the text that waited longest. What lies between the last
 *         outcome and the end of the reply is writing.
 *         Names are those of the semantic conventions for HTTP servers and for generative AI.
 * Memory  The caller's buffer. Threads: any, on spans of its own.
 * Proof   tests/server/test_otlp.py. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "base/os.h"
#include "base/proto_w.h"
#include "base/utf8.h"
#include "server/otlp.h"

enum { KIND_INTERNAL = 1, KIND_SERVER, STATUS_ERROR = 2 };

/* Fields of opentelemetry/proto/trace/v1/trace.proto and common.proto. */
enum { REQUEST_RESOURCE = 1, RESOURCE = 1, SCOPE = 2, SCOPE_ITSELF = 1, SCOPE_SPANS = 2 };
enum { SCOPE_NAME = 1, SCOPE_VERSION };
enum {
    SPAN_TRACE = 1,
    SPAN_ID,
    SPAN_STATE,
    SPAN_PARENT,
    SPAN_NAME,
    SPAN_KIND,
    SPAN_BEGIN,
    SPAN_END,
    SPAN_ATTRIBUTE,
    SPAN_STATUS = 15,
    SPAN_FLAGS
};
enum { KEY = 1, VALUE, TEXT = 1, INTEGER = 3, STATUS_CODE = 3 };
enum { FLAG_SAMPLED = 1, FLAG_KNOWS_REMOTE = 0x100, FLAG_REMOTE = 0x200 };

/* ---- Filling ------------------------------------------------------------------------------------- */

static void copy(char *out, size_t capacity, const char *text) {
    (void)snprintf(out, capacity, "%s", text);
    fl_utf8_make_printable(out); /* it may have been cut inside a character */
}

void fl_otlp_stages(fl_otlp_span *span, const fl_served *served, uint64_t texts,
                    const fletch_outcome *outcome) {
    if (span->stage_count == FL_STAGES_MAX)
        return;
    fl_stages *stages = &span->stages[span->stage_count++];
    copy(stages->model, sizeof stages->model, served->name);
    stages->end_ns      = fl_clock_ns();
    stages->begin_ns    = stages->end_ns - outcome->total_ns;
    stages->tokenize_ns = outcome->tokenize_ns;
    stages->queue_ns    = outcome->queue_ns;
    stages->forward_ns  = outcome->forward_ns;
    stages->texts       = texts;
    stages->tokens      = outcome->tokens;
    stages->status      = outcome->error.code;
    stages->embeds      = served->info.labels == 0;
}

void fl_otlp_end(fl_otlp_span *span, const fl_http_request *request, int status) {
    static const char *const known[] = {"GET",   "POST",    "HEAD",    "PUT",  "DELETE",
                                        "PATCH", "OPTIONS", "CONNECT", "TRACE"};
    memcpy(span->method, "_OTHER", sizeof "_OTHER");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i], request->method) == 0)
            copy(span->method, sizeof span->method, known[i]);
    copy(span->path, sizeof span->path, request->path);
    span->route       = request->route;
    span->http_status = status;
    span->begin_ns    = request->start_ns;
    span->end_ns      = fl_clock_ns();
    span->bytes_in    = request->body_size;
    span->bytes_out   = request->reply.body.size;
}

/* ---- Writing ------------------------------------------------------------------------------------- */

void fl_otlp_put_text(fl_buf *out, uint32_t field, const char *key, const char *value) {
    size_t pair = fl_proto_w_begin(out, field);
    fl_proto_w_text(out, KEY, key);
    size_t any = fl_proto_w_begin(out, VALUE);
    fl_proto_w_text(out, TEXT, value);
    fl_proto_w_end(out, any);
    fl_proto_w_end(out, pair);
}

static void put_text(fl_buf *out, const char *key, const char *value) {
    fl_otlp_put_text(out, SPAN_ATTRIBUTE, key, value);
}

static void put_number(fl_buf *out, const char *key, uint64_t value) {
    size_t pair = fl_proto_w_begin(out, SPAN_ATTRIBUTE);
    fl_proto_w_text(out, KEY, key);
    size_t any = fl_proto_w_begin(out, VALUE);
    fl_proto_w_number(out, INTEGER, value);
    fl_proto_w_end(out, any);
    fl_proto_w_end(out, pair);
}

void fl_otlp_put_id(fl_buf *out, uint32_t field, const char *hex) {
    unsigned char bytes[16];
    size_t        size = strlen(hex) / 2;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(fl_hex_digit(hex[2 * i]) << 4 | fl_hex_digit(hex[2 * i + 1]));
    fl_proto_w_bytes(out, field, bytes, size);
}

static void put_error(fl_buf *out, const char *type) {
    put_text(out, "error.type", type);
    size_t status = fl_proto_w_begin(out, SPAN_STATUS);
    fl_proto_w_number(out, STATUS_CODE, STATUS_ERROR);
    fl_proto_w_end(out, status);
}

/* What writes the spans of one message. */
typedef struct writer {
    fl_buf             *out;
    const fl_otlp_span *span;
    uint64_t            to_unix_ns;
} writer;

/* A span without attributes; where it has to be ended. */
static size_t begin(const writer *w, const char *name, unsigned kind, uint64_t begin_ns,
                    uint64_t end_ns) {
    fl_buf *out  = w->out;
    size_t  span = fl_proto_w_begin(out, SCOPE_SPANS);
    fl_otlp_put_id(out, SPAN_TRACE, w->span->trace_id);
    if (w->span->state[0] != '\0')
        fl_proto_w_text(out, SPAN_STATE, w->span->state);
    fl_proto_w_text(out, SPAN_NAME, name);
    fl_proto_w_number(out, SPAN_KIND, kind);
    fl_proto_w_fixed64(out, SPAN_BEGIN, begin_ns + w->to_unix_ns);
    fl_proto_w_fixed64(out, SPAN_END, end_ns + w->to_unix_ns);
    return span;
}

/* A stage of a request, in which it failed where `failed` says how; without a length it did not happen. */
static void put_stage(const writer *w, const char *name, uint64_t begin_ns, uint64_t end_ns,
                      const fl_stages *stages, const char *failed) {
    char id[17];
    if (end_ns <= begin_ns)
        return;
    fl_random_hex(id, 16);
    size_t span = begin(w, name, KIND_INTERNAL, begin_ns, end_ns);
    fl_otlp_put_id(w->out, SPAN_ID, id);
    fl_otlp_put_id(w->out, SPAN_PARENT, w->span->span_id);
    fl_proto_w_fixed32(w->out, SPAN_FLAGS, FLAG_SAMPLED | FLAG_KNOWS_REMOTE);
    if (stages != NULL) {
        put_text(w->out, "gen_ai.request.model", stages->model);
        put_number(w->out, "fletch.texts", stages->texts);
        put_number(w->out, "fletch.tokens", stages->tokens);
    }
    if (failed != NULL)
        put_error(w->out, failed);
    fl_proto_w_end(w->out, span);
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static void put_stages(const writer *w, const fl_stages *stages) {
    uint64_t    total    = stages->end_ns - stages->begin_ns;
    uint64_t    tokenize = least(stages->tokenize_ns, total);
    uint64_t    forward  = least(stages->forward_ns, total);
    uint64_t    queue    = least(stages->queue_ns, total - forward);
    const char *failed   = stages->status < 0 ? fletch_status_name(stages->status) : NULL;
    if (failed != NULL && forward == 0)
        queue = total - tokenize; /* what never left the queue was not told how long it waited */
    uint64_t left = stages->end_ns - forward;
    put_stage(w, "tokenize", stages->begin_ns, stages->begin_ns + tokenize, stages, NULL);
    put_stage(w, "queue", left - queue, left, stages, forward == 0 ? failed : NULL);
    put_stage(w, "forward", left, stages->end_ns, stages, failed);
}

static void put_request(const writer *w) {
    const fl_otlp_span *of    = w->span;
    const fl_route     *route = of->route;
    fl_buf             *out   = w->out;
    char                name[128], status[16];
    (void)snprintf(name, sizeof name, "%s%s%s", of->method, route != NULL ? " " : "",
                   route != NULL ? route->path : "");
    (void)snprintf(status, sizeof status, "%d", of->http_status);
    size_t span = begin(w, name, KIND_SERVER, of->begin_ns, of->end_ns);
    fl_otlp_put_id(out, SPAN_ID, of->span_id);
    if (of->parent_id[0] != '\0')
        fl_otlp_put_id(out, SPAN_PARENT, of->parent_id);
    fl_proto_w_fixed32(out, SPAN_FLAGS,
                       FLAG_SAMPLED | FLAG_KNOWS_REMOTE |
                           (of->parent_id[0] != '\0' ? FLAG_REMOTE : 0));
    put_text(out, "http.request.method", of->method);
    put_text(out, "url.scheme", "http");
    put_text(out, "url.path", of->path);
    if (route != NULL)
        put_text(out, "http.route", route->path);
    put_number(out, "http.response.status_code", (uint64_t)of->http_status);
    put_number(out, "http.request.body.size", of->bytes_in);
    put_number(out, "http.response.body.size", of->bytes_out);
    uint64_t texts = 0, tokens = 0;
    for (size_t i = 0; i < of->stage_count; i++) {
        texts += of->stages[i].texts;
        tokens += of->stages[i].tokens;
    }
    if (of->stage_count > 0) {
        put_text(out, "gen_ai.provider.name", "fletch");
        put_text(out, "gen_ai.request.model", of->stages[0].model);
        put_number(out, "gen_ai.usage.input_tokens", tokens);
        put_number(out, "fletch.texts", texts);
    }
    if (of->stage_count > 0 && of->stages[0].embeds)
        put_text(out, "gen_ai.operation.name", "embeddings");
    if (of->http_status >= 500)
        put_error(out, status);
    else if (of->http_status == 499) /* the client has left: no status that was sent */
        put_error(out, "client_closed_request");
    fl_proto_w_end(out, span);
}

static void put_span(const writer *w) {
    const fl_otlp_span *of   = w->span;
    uint64_t            done = of->end_ns;
    put_request(w);
    for (size_t i = 0; i < of->stage_count; i++) {
        put_stages(w, &of->stages[i]);
        done = of->stages[i].end_ns;
    }
    put_stage(w, "write", done, of->end_ns, NULL, NULL);
}

fl_otlp_scope fl_otlp_begin_scope(fl_buf *out, const fl_buf *resource) {
    fl_otlp_scope opened = {.of_resource = fl_proto_w_begin(out, REQUEST_RESOURCE)};
    fl_proto_w_bytes(out, RESOURCE, resource->data, resource->size);
    opened.of_scope = fl_proto_w_begin(out, SCOPE);
    size_t itself   = fl_proto_w_begin(out, SCOPE_ITSELF);
    fl_proto_w_text(out, SCOPE_NAME, "fletch");
    fl_proto_w_text(out, SCOPE_VERSION, FLETCH_VERSION);
    fl_proto_w_end(out, itself);
    return opened;
}

void fl_otlp_end_scope(fl_buf *out, fl_otlp_scope opened) {
    fl_proto_w_end(out, opened.of_scope);
    fl_proto_w_end(out, opened.of_resource);
}

void fl_otlp_write_spans(fl_buf *out, const fl_buf *resource, const fl_otlp_span *first,
                         uint64_t to_unix_ns) {
    fl_otlp_scope opened = fl_otlp_begin_scope(out, resource);
    for (const fl_otlp_span *span = first; span != NULL; span = span->next)
        put_span(&(writer){out, span, to_unix_ns});
    fl_otlp_end_scope(out, opened);
}
