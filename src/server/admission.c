/* SPDX-License-Identifier: Apache-2.0 */
/* admission.c - is this request let in, by its headers alone?
 *
 * Role    connection.c calls fl_admit once per request before the first byte of its body is read.
 * Method  In the order in which a mistake makes the rest meaningless: framing (http1.c), route and
 *         method, readiness, key, size, the key's share. Every refusal is written by the dialect
 *         of the path, so that each client can read it.
 * Memory  The request's. Threads: I/O.
 * Proof   tests/server/test_transport_*.py. */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/number.h"
#include "base/os.h"
#include "server/server_internal.h"

/* ---- Who asks, and is it a request ----------------------------------------------------------------- */

static bool good_id(const char *id) {
    size_t size = strlen(id);
    if (size == 0 || size > FL_LIMIT_REQUEST_ID)
        return false;
    return strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == size;
}

void fl_random_hex(char *out, size_t digits) {
    unsigned char bytes[16] = {0};
    if (!fl_os_random(bytes, sizeof bytes)) {
        uint64_t salt = (uint64_t)(uintptr_t)out ^ (uint64_t)errno;
        memcpy(bytes, &salt, sizeof salt);
    }
    for (size_t i = 0; i < digits; i++)
        out[i] = "0123456789abcdef"[(bytes[i / 2] >> (i % 2 * 4)) & 15];
    out[digits] = '\0';
}

/* x-request-id into the request; an id is made where there is none. */
static void take_id(fl_http_request *request) {
    const char *id = fl_request_header(request, "x-request-id");
    if (id != NULL && good_id(id))
        memcpy(request->id, id, strlen(id) + 1);
    else
        fl_random_hex(request->id, 32);
}

/* What the head says of itself; false: it is refused with -found. */
static bool check_head(fl_request_full *full, int found) {
    fl_http_request    *request = &full->shared;
    const fl_http_head *head    = &full->head;
    const char         *data    = full->conn->in.data;
    request->method             = head->target != 0 ? data + head->method : "";
    request->path               = head->path != 0 ? data + head->path : "/";
    request->query              = head->path != 0 ? data + head->query : "";
    request->tail               = "";
    take_id(request);
    fl_trace_context_begin(full);
    if (found < 0) {
        if (found != -408)
            fl_metrics_rejected(request->server->metrics, FL_REJECTED_HEADERS);
        fl_reply_error(request, fl_http_code_of(-found), "%s", head->fault);
        return false;
    }
    return true;
}

/* ---- Route ----------------------------------------------------------------------------------------- */

/* A browser's question whether a page may send the request at all. */
static void answer_preflight(fl_http_request *request, const fl_buf *allow) {
    fl_server  *server = request->server;
    const char *origin = fl_request_header(request, "origin");
    const char *asked  = fl_request_header(request, "access-control-request-headers");
    fl_reply_header(request, "allow", "%s, OPTIONS", allow->data);
    if (fl_cors_allowed(server->cors, origin) != NULL &&
        fl_request_header(request, "access-control-request-method") != NULL) {
        fl_reply_header(request, "access-control-allow-methods", "%s, OPTIONS", allow->data);
        if (asked != NULL)
            fl_reply_header(request, "access-control-allow-headers", "%s", asked);
        fl_reply_header(request, "access-control-max-age", "86400");
    }
    fl_reply_bytes(request, 204, NULL);
}

/* True when the request goes on. */
static bool find_route(fl_request_full *full) {
    fl_http_request *request = &full->shared;
    fl_buf           allow   = {0};
    request->route = fl_route_find(request->method, request->path, &allow, &request->tail);
    if (request->route == NULL) {
        if (allow.size == 0) {
            fl_reply_error(request, FL_HTTP_NOT_FOUND, "no such route: %.200s", request->path);
        } else if (strcmp(request->method, "OPTIONS") == 0) {
            answer_preflight(request, &allow);
        } else {
            fl_reply_header(request, "allow", "%s, OPTIONS", allow.data);
            fl_reply_error(request, FL_HTTP_METHOD_NOT_ALLOWED, "%.200s takes %s", request->path,
                           allow.data);
        }
    }
    fl_buf_free(&allow);
    return request->route != NULL;
}

static bool check_ready(fl_request_full *full) {
    fl_http_request *request = &full->shared;
    int              state   = atomic_load(&request->server->state);
    bool loading = state == FL_LOADING, leaving = state >= FL_DRAINING && !full->conn->promised;
    if ((!loading && !leaving) || (request->route->flags & FL_ROUTE_ALWAYS) != 0)
        return true;
    fl_metrics_rejected(request->server->metrics, FL_REJECTED_NOT_READY);
    fl_reply_header(request, "retry-after", "1");
    fl_reply_error(request, FL_HTTP_UNAVAILABLE,
                   loading ? "the model is being loaded" : "the server is shutting down");
    return false;
}

/* ---- Key ---------------------------------------------------------------------------------------------- */

static const char *presented(const fl_http_request *request) {
    const char *header = fl_request_header(request, "authorization");
    if (header != NULL && strncasecmp(header, "bearer ", 7) == 0) {
        header += 7;
        return header + strspn(header, " ");
    }
    return fl_request_header(request, "x-api-key");
}

static bool check_key(fl_request_full *full, fl_api_key **found) {
    fl_http_request *request = &full->shared;
    full->keys               = fl_server_keys(request->server);
    *found                   = NULL;
    if (full->keys == NULL || (request->route->flags & FL_ROUTE_OPEN) != 0)
        return true;
    const char *text = presented(request);
    *found           = text != NULL ? fl_keys_find(full->keys, text, strlen(text)) : NULL;
    if (*found != NULL) {
        request->key = *found;
        return true;
    }
    fl_metrics_rejected(request->server->metrics, FL_REJECTED_KEY);
    fl_reply_header(request, "www-authenticate", "Bearer");
    fl_reply_error(request, FL_HTTP_INVALID_API_KEY, "the API key is missing or wrong");
    return false;
}

static bool check_share(fl_request_full *full, fl_api_key *key) {
    fl_http_request *request = &full->shared;
    unsigned         wait;
    if (key == NULL)
        return true;
    if (fl_api_key_enter(key, fl_clock_ns(), &wait)) {
        full->entered = key;
        return true;
    }
    fl_metrics_rejected(request->server->metrics, FL_REJECTED_KEY_LIMIT);
    fl_reply_header(request, "retry-after", "%u", wait);
    fl_reply_error(request, FL_HTTP_RATE_LIMITED,
                   "this API key's limit is reached; try again in %u second%s", wait,
                   wait == 1 ? "" : "s");
    return false;
}

/* ---- Web pages ----------------------------------------------------------------------------------------- */

/* See cors.c. A request that has shown a key was not sent by a stranger's page. */
static bool check_page(fl_request_full *full) {
    fl_http_request *request = &full->shared;
    const fl_server *server  = request->server;
    const char      *host    = fl_request_header(request, "host");
    const char      *origin  = fl_request_header(request, "origin");
    bool reads = strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
    if (full->keys != NULL || (request->route->flags & FL_ROUTE_OPEN) != 0)
        return true;
    if (server->confined && !fl_cors_is_ours(server->hosts, host)) {
        fl_reply_error(request, FL_HTTP_PERMISSION_DENIED,
                       "the Host header is not allowed; add it to server.allowed_hosts if it is "
                       "this server's");
        return false;
    }
    if (!reads && !fl_cors_may_write(server->cors, origin, host)) {
        fl_reply_error(
            request, FL_HTTP_PERMISSION_DENIED,
            "this Origin may not call the server; add it to server.cors_origin to allow it");
        return false;
    }
    return true;
}

/* ---- Size, priority, deadline -------------------------------------------------------------------------- */

void fl_refuse_size(fl_http_request *request) {
    fl_reply_header(request, "x-fletch-limit", "server.max_body=%llu",
                    (unsigned long long)request->server->max_body);
    fl_reply_error(request, FL_HTTP_PAYLOAD_TOO_LARGE,
                   "the body is larger than %llu bytes (server.max_body)",
                   (unsigned long long)request->server->max_body);
}

void fl_refuse_memory(fl_http_request *request, uint64_t wanted) {
    int status = wanted > request->server->max_bodies ? 413 : 503; /* never, or not now */
    fl_full(request)->crowded    = status; /* fl_reply_error has the words */
    fl_full(request)->crowded_by = "server.max_body_memory";
    fl_reply_error(request, FL_HTTP_UNAVAILABLE, "%s", "");
}

static bool check_size(fl_request_full *full) {
    fl_http_request *request  = &full->shared;
    const char      *encoding = fl_request_header(request, "content-encoding");
    if (full->head.length != UINT64_MAX && full->head.length > request->server->max_body) {
        fl_metrics_rejected(request->server->metrics, FL_REJECTED_BODY);
        fl_refuse_size(request);
        return false;
    }
    if (full->head.length != UINT64_MAX &&
        atomic_load(&request->server->bodies) + full->head.length > request->server->max_bodies) {
        fl_refuse_memory(request, full->head.length);
        return false;
    }
    if (encoding != NULL && strcasecmp(encoding, "identity") != 0) {
        fl_reply_error(request, FL_HTTP_CONTENT_ENCODING,
                       "compressed request bodies are not supported");
        return false;
    }
    return true;
}

static bool read_wishes(fl_request_full *full, const fl_api_key *key) {
    fl_http_request *request = &full->shared;
    full->gzips              = fl_gzip_accepted(fl_request_header(request, "accept-encoding"));
    const char *priority     = fl_request_header(request, "x-fletch-priority");
    const char *deadline     = fl_request_header(request, "x-fletch-deadline-ms");
    int64_t     wanted       = 0;
    bool        bulk         = priority != NULL && strcasecmp(priority, "bulk") == 0;
    if (priority != NULL && !bulk && strcasecmp(priority, "interactive") != 0) {
        fl_reply_error(request, FL_HTTP_BAD_REQUEST,
                       "x-fletch-priority must be interactive or bulk");
        return false;
    }
    if (deadline != NULL && (!fl_parse_i64(deadline, &wanted) || wanted < 1)) {
        fl_reply_error(request, FL_HTTP_BAD_REQUEST,
                       "x-fletch-deadline-ms must be a positive number of milliseconds");
        return false;
    }
    uint64_t limit = request->server->deadline_ms;
    if (wanted > 0 && (limit == 0 || (uint64_t)wanted < limit))
        limit = wanted < UINT32_MAX ? (uint64_t)wanted : UINT32_MAX;
    request->deadline_ms = (uint32_t)limit;
    bulk                 = bulk || (key != NULL && fl_api_key_is_bulk(key));
    request->lane        = bulk ? FLETCH_LANE_BULK : FLETCH_LANE_INTERACTIVE;
    return true;
}

void fl_admit(fl_request_full *full, int found) {
    fl_api_key *key     = NULL;
    bool        goes_on = check_head(full, found) && find_route(full) && check_ready(full) &&
                   check_key(full, &key) && check_page(full) && check_size(full) &&
                   read_wishes(full, key) && check_share(full, key);
    full->judged = !goes_on; /* who says no has replied */
}
