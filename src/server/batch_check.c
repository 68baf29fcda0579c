/* SPDX-License-Identifier: Apache-2.0 */
/* batch_check.c - what can be said against a batch before its first line is run.
 *
 * Role    a batch is "validating" while this looks at its input, and fails with a list of lines if it finds something.
 * Method  One pass, line by line. A custom_id is remembered by half of its SHA-256 in a table with two places for each
 *         line that a batch may have. What a body says beyond its model is its route's to judge, when it is run.
 * Errors  By OpenAI's words; the first ERRORS_MAX of them.
 * Memory  The table and a line. Threads: the batches' own.
 * Proof   tests/server/test_batches.py. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "server/batches.h"

enum { ERRORS_MAX = 100, PLACES = 1 << 17, DIGEST = 16 };

typedef struct seen {
    unsigned char digest[DIGEST];
    uint64_t      line; /* 0: nothing is here */
} seen;

typedef struct check {
    fl_server *server;
    fl_json_w  errors;
    size_t     count; /* of errors */
    uint64_t   line;
    seen      *ids;   /* [PLACES] */
    fl_buf     model; /* of the first line */
} check;

static void tell(check *c, uint64_t line, const char *code, const char *param,
                 const char *message) {
    fl_json_w *w = &c->errors;
    if (c->count++ == 0) {
        fl_json_w_object(w, NULL);
        fl_json_w_text(w, "object", "list");
        fl_json_w_array(w, "data");
    }
    if (c->count > ERRORS_MAX)
        return;
    fl_json_w_object(w, NULL);
    fl_json_w_text(w, "code", code);
    if (line > 0)
        fl_json_w_u64(w, "line", line);
    else
        fl_json_w_null(w, "line");
    fl_json_w_text(w, "message", message);
    fl_json_w_text(w, "param", param);
    fl_json_w_end(w);
}

static void end(check *c) {
    if (c->count > 0) {
        fl_json_w_end(&c->errors);
        fl_json_w_end(&c->errors);
    }
}

void fl_batch_fault(fl_buf *errors, const char *code, const char *message) {
    check c = {.errors = {.out = errors}};
    tell(&c, 0, code, NULL, message);
    end(&c);
}

static void look_at_id(check *c, fl_span id) {
    unsigned char digest[2 * DIGEST];
    uint64_t      at;
    fl_sha256(id.data, id.size, digest);
    memcpy(&at, digest, sizeof at);
    for (at %= PLACES; c->ids[at].line != 0; at = (at + 1) % PLACES) {
        if (memcmp(c->ids[at].digest, digest, DIGEST) == 0) {
            char message[160];
            (void)snprintf(message, sizeof message,
                           "The custom_id of this request was already used on line %" PRIu64
                           "; each request of a batch needs a unique one.",
                           c->ids[at].line);
            tell(c, c->line, "duplicate_custom_id", "custom_id", message);
            return;
        }
    }
    memcpy(c->ids[at].digest, digest, DIGEST);
    c->ids[at].line = c->line;
}

static const fl_field model_fields[] = {
    {.name = "model", .type = FL_FIELD_STRING, .flags = FL_FIELD_NULL},
    {0},
};

/* All lines name the same, and it is there. */
static void look_at_model(check *c, fl_http_request *request, fl_span body) {
    fl_json_in in;
    fl_span    model = {"", 0};
    request->body += body.data - request->body;
    request->body_size = body.size;
    if (!fl_fields_read(request, &in, model_fields, &model)) {
        tell(c, c->line, "invalid_request", "body", in.message);
    } else if (c->model.data == NULL) {
        fl_json_quote(&c->model, model.data, model.size);
        if (fl_demand_find(c->server, model.data, model.size) == NULL) {
            tell(c, c->line, "model_not_found", "body.model",
                 "The requested model is not served here.");
        }
    } else {
        fl_buf quoted = {0};
        fl_json_quote(&quoted, model.data, model.size);
        if (quoted.size != c->model.size || memcmp(quoted.data, c->model.data, quoted.size) != 0) {
            tell(c, c->line, "model_mismatch", "body.model",
                 "All requests of a batch must name the same model.");
        }
        fl_buf_free(&quoted);
    }
}

static void look_at_line(check *c, fl_http_request *request) {
    fl_json_in    in;
    fl_batch_line line = {0};
    if (!fl_fields_read(request, &in, fl_batch_line_fields, &line)) {
        char message[FL_JSON_IN_MESSAGE_MAX + 64];
        (void)snprintf(message, sizeof message, "%s%s at column %zu",
                       in.mistyped ? "" : "This line is not parseable as valid JSON: ", in.message,
                       in.column);
        tell(c, c->line, in.mistyped ? "invalid_request" : "invalid_json_line", NULL, message);
        return;
    }
    look_at_id(c, line.custom_id);
    if (!fl_span_is(line.method, "POST"))
        tell(c, c->line, "invalid_request", "method", "The method of a request must be POST.");
    if (!fl_span_is(line.url, "/v1/embeddings")) {
        tell(c, c->line, "url_mismatch", "url",
             "The url of a request must be the endpoint of the batch, /v1/embeddings.");
    }
    if (line.body.data[0] != '{')
        tell(c, c->line, "invalid_request", "body", "The body of a request must be an object.");
    else
        look_at_model(c, request, line.body);
}

static int look_at_lines(check *c, fl_batches *batches, fl_batch_lines *lines, uint64_t *total,
                         fletch_error *error) {
    char  *line;
    size_t size;
    int    found;
    while ((found = fl_batch_lines_next(lines, &line, &size, error)) == 1) {
        if (atomic_load(&batches->stopping))
            return fl_fail(error, FLETCH_ECANCELLED, FLETCH_NOWHERE, "the server ends");
        c->line = lines->number;
        atomic_store(&c->server->worked_ns, fl_clock_ns()); /* no server.idle_exit meanwhile */
        if (++*total > FL_BATCH_LINES) {
            tell(c, c->line, "too_many_tasks", NULL,
                 "A batch has at most 50000 requests; send the rest in another batch.");
            return FLETCH_OK;
        }
        fl_request_full *full = fl_batch_line_request(c->server, line, size);
        if (full == NULL)
            return fl_fail_nomem(error, size, "a line of a batch");
        look_at_line(c, &full->shared);
        fl_request_drop(full);
    }
    if (found == 0 && *total == 0)
        tell(c, 0, "empty_file", NULL, "The input file contains no requests.");
    return found;
}

int fl_batch_check(fl_batches *batches, int fd, fl_buf *errors, uint64_t *total, char **model,
                   fletch_error *error) {
    check c = {.server = batches->server, .errors = {.out = errors}};
    c.ids   = fl_alloc_zero(PLACES, sizeof *c.ids);
    if (c.ids == NULL)
        return fl_fail_nomem(error, PLACES * sizeof *c.ids, "the ids of a batch");
    fl_batch_lines lines  = {.fd = fd};
    int            status = look_at_lines(&c, batches, &lines, total, error);
    end(&c);
    if (status == FLETCH_OK && (errors->failed || c.model.failed))
        status = fl_fail_nomem(error, errors->size, "what is wrong with a batch");
    *model = status == FLETCH_OK && c.model.size > 2 ? fl_buf_take(&c.model) : NULL;
    fl_buf_free(&c.model);
    fl_buf_free(&lines.held);
    fl_free(c.ids);
    return status;
}
