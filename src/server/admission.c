/* SPDX-License-Identifier: Apache-2.0 */
/* admission.c - is this request let in, by its headers alone?
 *
 * Role    transport.c calls fl_admit once per request before the first byte of its body is read.
 * Method  In the order in which a mistake makes the rest meaningless: framing (guard.c), target, route and
 *         method, readiness, key, size, the key's share. Every refusal is written by the dialect
 *         of the path, so that each client can read it.
 * Memory  The request's. Threads: I/O.
 * Proof   tests/server/test_transport_*.py. */
#include "server/admission.h"

#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/number.h"

static bool judge(fl_request_full *full) {
    full->judged = true;
    return true;
}

/* ---- Framing -------------------------------------------------------------------------------------- */

static bool check_framing(fl_request_full *full, const char *version) {
    fl_request *request = &full->shared;
    fl_verdict  verdict;
    request->path = request->query = request->tail = "";
    fl_guard_identity(request, fl_request_header(request, "x-request-id"),
                      fl_request_header(request, "traceparent"));
    bool long_one = full->uri.size > FL_LIMIT_URI; /* the path first: it says in which dialect */
    bool good     = !full->uri.failed && full->uri.size > 0 &&
                fl_guard_target(&full->uri, &request->path, &request->query);
    fl_guard_headers(full->mc, version, &verdict);
    full->declared = verdict.length;
    full->expects  = verdict.expects;
    if (verdict.status == 0 && long_one) {
        verdict = (fl_verdict){414, "uri_too_long", "the target is longer than 4096 bytes", 0, 0};
    }
    if (verdict.status == 0 && !good) {
        verdict = (fl_verdict){400, "bad_request", "the target is no path", 0, 0};
    }
    if (verdict.status != 0) {
        fl_metrics_rejected(request->server->metrics, FL_REJECTED_HEADERS);
        fl_reply_error(request, verdict.status, verdict.code, "%s", verdict.message);
        return false;
    }
    return true;
}

/* ---- Route ----------------------------------------------------------------------------------------- */

/* A browser's question whether a page may send the request at all. */
static void answer_preflight(fl_request *request, const fl_buf *allow) {
    fl_server  *server = request->server;
    const char *origin = fl_request_header(request, "origin");
    const char *asked  = fl_request_header(request, "access-control-request-headers");
    fl_reply_header(request, "allow", "%s, OPTIONS", allow->data);
    if (fl_cors_allowed(server->cors, origin) != NULL &&
        fl_request_header(request, "access-control-request-method") != NULL) {
        fl_reply_header(request, "access-control-allow-methods", "%s, OPTIONS", allow->data);
        if (asked != NULL) {
            fl_reply_header(request, "access-control-allow-headers", "%s", asked);
        }
        fl_reply_header(request, "access-control-max-age", "86400");
    }
    fl_reply_bytes(request, 204, NULL);
}

/* True when the request goes on. */
static bool find_route(fl_request_full *full) {
    fl_request *request = &full->shared;
    fl_buf      allow   = {0};
    request->route      = fl_route_find(request->method, request->path, &allow, &request->tail);
    if (request->route == NULL) {
        judge(full);
        if (allow.size == 0) {
            fl_reply_error(request, 404, "not_found", "there is no %.200s here", request->path);
        } else if (strcmp(request->method, "OPTIONS") == 0) {
            answer_preflight(request, &allow);
        } else {
            fl_reply_header(request, "allow", "%s, OPTIONS", allow.data);
            fl_reply_error(request, 405, "method_not_allowed", "%.200s takes %s", request->path,
                           allow.data);
        }
    }
    fl_buf_free(&allow);
    return request->route != NULL;
}

static bool check_ready(fl_request_full *full) {
    fl_request *request = &full->shared;
    int         state   = atomic_load(&request->server->state);
    bool        loading = state == FL_LOADING, leaving = state >= FL_DRAINING;
    if ((!loading && !leaving) || (request->route->flags & FL_ROUTE_ALWAYS) != 0) {
        return true;
    }
    fl_metrics_rejected(request->server->metrics, FL_REJECTED_NOT_READY);
    fl_reply_header(request, "retry-after", "1");
    fl_reply_error(request, 503, "unavailable",
                   loading ? "the model is being loaded" : "the server is shutting down");
    return !judge(full);
}

/* ---- Key ---------------------------------------------------------------------------------------------- */

static const char *presented(const fl_request *request) {
    const char *header = fl_request_header(request, "authorization");
    if (header != NULL && strncasecmp(header, "bearer ", 7) == 0) {
        header += 7;
        return header + strspn(header, " ");
    }
    return fl_request_header(request, "x-api-key");
}

static bool check_key(fl_request_full *full, fl_api_key **found) {
    fl_request *request = &full->shared;
    full->keys          = fl_server_keys(request->server);
    *found              = NULL;
    if (full->keys == NULL || (request->route->flags & FL_ROUTE_OPEN) != 0) {
        return true;
    }
    const char *text = presented(request);
    *found           = text != NULL ? fl_keys_find(full->keys, text, strlen(text)) : NULL;
    if (*found != NULL) {
        request->key = *found;
        return true;
    }
    fl_metrics_rejected(request->server->metrics, FL_REJECTED_KEY);
    fl_reply_header(request, "www-authenticate", "Bearer");
    fl_reply_error(request, 401, "invalid_api_key", "the API key is missing or wrong");
    return !judge(full);
}

static bool check_share(fl_request_full *full, fl_api_key *key) {
    fl_request *request = &full->shared;
    unsigned    wait;
    if (key == NULL) {
        return true;
    }
    full->keyed = fl_api_key_enter(key, fl_clock_ns(), &wait);
    if (full->keyed) {
        return true;
    }
    fl_metrics_rejected(request->server->metrics, FL_REJECTED_KEY_LIMIT);
    fl_reply_header(request, "retry-after", "%u", wait);
    fl_reply_error(request, 429, "rate_limited",
                   "this API key's limit is reached; try again in %u second%s", wait,
                   wait == 1 ? "" : "s");
    return !judge(full);
}

/* ---- Size, priority, deadline -------------------------------------------------------------------------- */

void fl_refuse_size(fl_request *request) {
    fl_reply_header(request, "x-fletch-limit", "server.max_body=%llu",
                    (unsigned long long)request->server->max_body);
    fl_reply_error(request, 413, "payload_too_large",
                   "the body is larger than %llu bytes (server.max_body)",
                   (unsigned long long)request->server->max_body);
}

void fl_refuse_memory(fl_request *request) {
    fl_full(request)->crowded = 503; /* fl_reply_error has the words */
    fl_reply_error(request, 503, "unavailable", "%s", "");
}

static bool check_size(fl_request_full *full) {
    fl_request *request  = &full->shared;
    const char *encoding = fl_request_header(request, "content-encoding");
    if (full->declared != UINT64_MAX && full->declared > request->server->max_body) {
        fl_metrics_rejected(request->server->metrics, FL_REJECTED_BODY);
        fl_refuse_size(request);
        return !judge(full);
    }
    if (full->declared != UINT64_MAX &&
        atomic_load(&request->server->bodies) + full->declared > request->server->max_bodies) {
        fl_refuse_memory(request);
        return !judge(full);
    }
    if (encoding != NULL && strcasecmp(encoding, "identity") != 0) {
        fl_reply_error(request, 415, "unsupported_media_type",
                       "bodies are taken as they are, not compressed");
        return !judge(full);
    }
    return true;
}

static bool read_wishes(fl_request_full *full, const fl_api_key *key) {
    fl_request *request  = &full->shared;
    const char *priority = fl_request_header(request, "x-fletch-priority");
    const char *deadline = fl_request_header(request, "x-fletch-deadline-ms");
    int64_t     wanted   = 0;
    bool        bulk     = priority != NULL && strcasecmp(priority, "bulk") == 0;
    if (priority != NULL && !bulk && strcasecmp(priority, "interactive") != 0) {
        fl_reply_error(request, 400, "bad_request", "x-fletch-priority is interactive or bulk");
        return !judge(full);
    }
    if (deadline != NULL && (!fl_parse_i64(deadline, &wanted) || wanted < 1)) {
        fl_reply_error(request, 400, "bad_request",
                       "x-fletch-deadline-ms is a number of milliseconds above 0");
        return !judge(full);
    }
    uint64_t limit = request->server->deadline_ms;
    if (wanted > 0 && (limit == 0 || (uint64_t)wanted < limit)) {
        limit = wanted < UINT32_MAX ? (uint64_t)wanted : UINT32_MAX;
    }
    request->deadline_ms = (uint32_t)limit;
    bulk                 = bulk || (key != NULL && fl_api_key_is_bulk(key));
    request->lane        = bulk ? FLETCH_LANE_BULK : FLETCH_LANE_INTERACTIVE;
    return true;
}

bool fl_admit(fl_request_full *full, const char *version) {
    fl_api_key *key = NULL;
    if (!check_framing(full, version)) {
        (void)judge(full);
        return false;
    }
    (void)(find_route(full) && check_ready(full) && check_key(full, &key) && check_size(full) &&
           read_wishes(full, key) && check_share(full, key));
    return true;
}
