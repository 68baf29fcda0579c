/* SPDX-License-Identifier: Apache-2.0 */
/* operations.c - what is asked about the server itself: /live, /ready, /metrics, /stats, its trace.
 *
 * Role    Probes of systemd, Kubernetes and load balancers, and Prometheus.
 * Method  live: an I/O thread answers, nothing more, so that a slow model never makes anybody restart
 *         the process. ready: the models are loaded and warm, the last batch came back, work moves on
 *         and no shutdown has begun; it turns 503 before the listening socket closes.
 *         These three need no key: they tell nothing about texts, and probes have none.
 *         /stats is fletch_stats_json of every model, with what failed on which device.
 *         /start_profile and /stop_profile turn the trace that profile.file names on and off.
 * Memory  The request's. Threads: I/O; /metrics and /stats on a worker.
 * Proof   tests/server/test_transport_operations.py. */
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/json_w.h"
#include "server/routes.h"
#include "server/server_internal.h"

static void plain_error(fl_http_reply *reply, fl_http_code code, const char *message) {
    const char *word = fl_http_errors[code].word;
    fl_buf_puts(&reply->body, "{\"error\":");
    fl_json_quote(&reply->body, message, strlen(message));
    fl_buf_puts(&reply->body, ",\"code\":");
    fl_json_quote(&reply->body, word, strlen(word));
    fl_buf_puts(&reply->body, "}");
    reply->type = "application/json";
}

const fl_dialect fl_dialect_plain = {"plain", plain_error};

bool fl_server_ready(const fl_server *server, const char **why) {
    switch (atomic_load(&server->state)) {
    case FL_LOADING: *why = "loading"; return false;
    case FL_READY: return fl_models_healthy(server, why);
    default: *why = "draining"; return false;
    }
}

static void live(fl_http_request *request) {
    fl_buf_puts(&request->reply.body, "{\"status\":\"live\"}");
    fl_reply_json(request, 200);
}

static void ready(fl_http_request *request) {
    const char *why = "";
    bool        yes = fl_server_ready(request->server, &why);
    fl_buf_printf(&request->reply.body, "{\"status\":\"%s\"}", yes ? "ready" : why);
    if (!yes)
        fl_reply_header(request, "retry-after", "1");
    fl_reply_json(request, yes ? 200 : 503);
}

static void metrics(fl_http_request *request) {
    const char *accept = fl_request_header(request, "accept");
    bool        open = accept != NULL && strcasestr(accept, "application/openmetrics-text") != NULL;
    fl_metrics_write(request->server, &request->reply.body, open);
    fl_reply_bytes(request, 200,
                   open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                        : "text/plain; version=0.0.4; charset=utf-8");
}

/* The library's own JSON; numbers grow between two calls, so that room is made until they fit. */
static int put_stats(fl_buf *out, fletch_model *model, fletch_error *error) {
    enum { FIRST = 16384 };
    for (size_t room = FIRST; fl_buf_reserve(out, room);) {
        int64_t length = fletch_stats_json(model, out->data + out->size, room, error);
        if (length < (int64_t)room) {
            out->size += length < 0 ? 0 : (size_t)length;
            return length < 0 ? (int)length : FLETCH_OK;
        }
        room = (size_t)length + FIRST;
    }
    return fl_fail_nomem(error, FIRST, "the statistics");
}

static void stats(fl_http_request *request) {
    const fl_server *server = request->server;
    fl_buf          *out    = &request->reply.body;
    fletch_error     error  = {0};
    fl_json_w        w      = {.out = out};
    fl_json_w_object(&w, NULL);
    fl_json_w_array(&w, "models");
    fl_served *served;
    for (size_t i = 0; (served = fl_models_next(server, &i)) != NULL; fl_served_drop(served)) {
        fl_json_w_object(&w, NULL);
        fl_json_w_text(&w, "name", served->name);
        fl_json_w_raw(&w, "stats");
        if (put_stats(out, served->model, &error) < 0) {
            fl_served_drop(served);
            fl_reply_fail(request, &error);
            return;
        }
        fl_json_w_end(&w);
    }
    fl_json_w_end(&w), fl_json_w_end(&w);
    fl_reply_json(request, 200);
}

/* What came of a turn of the trace of all models. A file that cannot be written is no missing route. */
static void told(fl_http_request *request, int status, const fletch_error *error,
                 const char *state) {
    bool fault = status == FLETCH_EIO || status == FLETCH_ENOTFOUND || status == FLETCH_EDENIED ||
                 status == FLETCH_ENOSPC;
    if (status == FLETCH_EBUSY || status == FLETCH_EINVAL) { /* not in this state of the server */
        fl_reply_error(request, FL_HTTP_CONFLICT, "%s", error->message);
    } else if (fault) {
        fl_reply_error(request, FL_HTTP_INTERNAL, "%s", error->message);
    } else if (status < 0) {
        fl_reply_fail(request, error);
    } else {
        fl_buf_printf(&request->reply.body, "{\"status\":\"%s\"}", state);
        fl_reply_json(request, 200);
    }
}

/* All models that were named at the start, or none. */
static void start_profile(fl_http_request *request) {
    fl_server   *server = request->server;
    fletch_error error  = {0};
    int          status = FLETCH_OK;
    size_t       done   = 0;
    while (done < server->pinned_count &&
           (status = fletch_profile_start(server->models[done]->model, &error)) == FLETCH_OK)
        done++;
    while (status < 0 && done > 0)
        (void)fletch_profile_stop(server->models[--done]->model, NULL);
    told(request, status, &error, "profiling");
}

/* Every model, also behind one that fails; the first failure is told. */
static void stop_profile(fl_http_request *request) {
    fl_server   *server = request->server;
    fletch_error error  = {0}, next;
    int          status = FLETCH_OK;
    for (size_t i = 0; i < server->pinned_count; i++) {
        int ended = fletch_profile_stop(server->models[i]->model, status < 0 ? &next : &error);
        status    = status < 0 ? status : ended;
    }
    told(request, status, &error, "written");
}

const fl_route fl_routes_operations[] = {
    {"GET", "/live", &fl_dialect_plain, live, FL_ROUTE_OPEN | FL_ROUTE_ALWAYS | FL_ROUTE_QUIET},
    {"GET", "/ready", &fl_dialect_plain, ready, FL_ROUTE_OPEN | FL_ROUTE_ALWAYS | FL_ROUTE_QUIET},
    {"GET", "/metrics", &fl_dialect_plain, metrics,
     FL_ROUTE_OPEN | FL_ROUTE_ALWAYS | FL_ROUTE_QUIET | FL_ROUTE_BLOCKING},
    {"GET", "/stats", &fl_dialect_plain, stats, FL_ROUTE_QUIET | FL_ROUTE_BLOCKING},
    {"POST", "/start_profile", &fl_dialect_plain, start_profile, FL_ROUTE_BLOCKING},
    {"POST", "/stop_profile", &fl_dialect_plain, stop_profile, FL_ROUTE_BLOCKING},
    {NULL, NULL, NULL, NULL, 0},
};
