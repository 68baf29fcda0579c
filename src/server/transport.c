/* SPDX-License-Identifier: Apache-2.0 */
/* transport.c - libmicrohttpd's callbacks: from header lines to a route, from a reply to the socket.
 *
 * Role    The only file that knows in which order libmicrohttpd calls back; admission.c judges the headers,
 *         request.c wakes connections, watch.c ends slow ones.
 * Method  Per request: on_target (request line) makes the request object; the first on_request has the
 *         headers and judges them; further calls bring the body; the last one runs the handler.
 *         A reply that is there when the handler returns is queued at once; otherwise the connection is
 *         suspended and costs nothing until a reply wakes it, and on_request is called once more.
 *         libmicrohttpd takes no reply in the middle of a body. A refusal is therefore given before the
 *         body (then the connection is closed after it), after a short body has been skipped (then the
 *         connection lives on), or, for a chunked body that grows too large, written by hand.
 * Memory  Requests are pooled (request.c); replies are sent from the request's own buffer, uncopied.
 * Threads One I/O thread per daemon of the pool; a connection stays with its thread.
 * Proof   tests/server/test_transport*.py. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "server/admission.h"
#include "server/internal.h"

enum {
    SKIP_BYTES   = 64 * 1024,   /* a refused body up to this size is skipped, not cut off */
    WORKER_BYTES = 256 * 1024,  /* larger bodies are parsed by a worker */
    FIRST_BYTES  = 1024 * 1024, /* believed of a Content-Length before bytes come */
    IO_PER_CORES = 8,
    IO_MAX       = 4 /* one I/O thread for so many cores */
};

static bool move(fl_conn *conn, int from, int to) {
    if (!atomic_compare_exchange_strong(&conn->phase, &from, to)) {
        return false;
    }
    atomic_store(&conn->since_ns, fl_clock_ns());
    return true;
}

static fl_conn *conn_of(struct MHD_Connection *mc) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mc, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

/* ---- Sending --------------------------------------------------------------------------------------- */

static const char gave_up[] = "{\"error\":\"the engine does not answer\",\"code\":\"unavailable\"}";

static void add_header(struct MHD_Response *response, const char *name, const char *value) {
    if (value != NULL && value[0] != '\0') {
        (void)MHD_add_response_header(response, name, value);
    }
}

static void add_headers(fl_request_full *full, struct MHD_Response *response) {
    const fl_request *request = &full->shared;
    fl_server        *server  = request->server;
    add_header(response, "content-type", request->reply.type);
    add_header(response, "x-request-id", request->id);
    if (request->trace_id[0] != '\0') {
        char trace[64];
        snprintf(trace, sizeof trace, "00-%s-%s-00", request->trace_id, request->span_id);
        add_header(response, "traceresponse", trace);
    }
    for (size_t i = 0; i < request->reply.header_count; i++) {
        add_header(response, request->reply.headers[i].name, request->reply.headers[i].value);
    }
    if (server->cors[0] != '\0') {
        const char *origin = MHD_lookup_connection_value(full->mc, MHD_HEADER_KIND, "origin");
        const char *allow  = fl_cors_allowed(server->cors, origin);
        add_header(response, "access-control-allow-origin", allow);
        add_header(response, "access-control-expose-headers", allow != NULL ? "*" : NULL);
        add_header(response, "vary", "Origin");
    }
    if (full->close || atomic_load(&server->state) >= FL_LAME_DUCK) {
        add_header(response, "connection", "close");
    }
}

static enum MHD_Result queue_reply(fl_request_full *full) {
    fl_reply   *reply = &full->shared.reply;
    const void *data  = full->static_data != NULL ? full->static_data : reply->body.data;
    size_t      size  = full->static_data != NULL ? full->static_size : reply->body.size;
    bool        lost  = atomic_load(&full->abandoned);
    if (lost) {
        data        = gave_up;
        size        = sizeof gave_up - 1;
        full->close = true;
    }
    int status = lost ? 503 : reply->status;
    if (!move(full->conn, FL_PHASE_RUN, FL_PHASE_WRITE) &&
        !move(full->conn, FL_PHASE_BODY, FL_PHASE_WRITE)) {
        return MHD_NO;
    }
    atomic_store(&full->conn->bytes, size);
    static char nothing[1];
    void       *bytes = nothing;
    if (size > 0) { /* const is given up for the signature: libmicrohttpd only reads */
        memcpy(&bytes, &data, sizeof bytes);
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, bytes, MHD_RESPMEM_PERSISTENT);
    if (response == NULL) {
        return MHD_NO;
    }
    if (!lost) {
        add_headers(full, response);
    } else { /* the request's own headers may still be written by somebody */
        add_header(response, "content-type", "application/json");
        add_header(response, "connection", "close");
    }
    enum MHD_Result result = MHD_queue_response(full->mc, (unsigned)status, response);
    MHD_destroy_response(response);
    full->queued = result == MHD_YES;
    full->status = status;
    return result;
}

/* A refusal in the middle of a body, written by hand; the connection ends here. */
static enum MHD_Result refuse_by_hand(fl_request_full *full) {
    if (move(full->conn, FL_PHASE_BODY, FL_PHASE_WRITE)) {
        fl_hand_send(full);
    }
    return MHD_NO;
}

/* ---- Running ------------------------------------------------------------------------------------------ */

static void run_on_worker(void *arg) {
    fl_request_full *full = arg;
    full->shared.route->handler(&full->shared);
    fl_request_step(full);
}

static void count_turn(fl_conns *conns, fl_conn *conn) {
    conn->turns = atomic_exchange(&conns->spoke, conn) == conn ? conn->turns + 1 : 0;
}

static enum MHD_Result run(fl_request_full *full) {
    fl_request *request = &full->shared;
    (void)fl_buf_reserve(&full->gather, 1);
    request->body      = full->gather.data;
    request->body_size = full->gather.size;
    if (!move(full->conn, FL_PHASE_BODY, FL_PHASE_RUN)) {
        return MHD_NO;
    }
    fl_conn_attach(request->server, full->conn, request);
    count_turn(&request->server->conns, full->conn);
    if (atomic_load(&full->conn->gone)) {
        atomic_store(&request->cancelled, true);
    }
    if (full->gather.failed) {
        fl_reply_error(request, 500, "internal", "out of memory for the request's body");
        return queue_reply(full);
    }
    if ((request->route->flags & FL_ROUTE_BLOCKING) != 0 || request->body_size > WORKER_BYTES) {
        MHD_suspend_connection(full->mc);
        if (!fl_workers_add(request->server->workers, run_on_worker, full)) {
            fl_reply_header(request, "retry-after", "1");
            fl_reply_error(request, 503, "unavailable", "too many requests wait for a thread");
            fl_request_step(full);
        }
        return MHD_YES;
    }
    request->route->handler(request);
    if (atomic_load(&full->pending) == 1) {
        return queue_reply(full);
    }
    MHD_suspend_connection(full->mc);
    fl_request_step(full);
    return MHD_YES;
}

static enum MHD_Result take_body(fl_request_full *full, const char *data, size_t *size) {
    fl_request *request = &full->shared;
    size_t      count   = *size;
    *size               = 0;
    atomic_store(&full->conn->bytes, full->gather.size + count);
    if (full->judged) {
        return MHD_YES;
    }
    bool pieces = ++full->pieces > FL_LIMIT_PIECES && full->declared == UINT64_MAX;
    if (pieces || count > request->server->max_body - full->gather.size) {
        fl_metrics_rejected(request->server->metrics, FL_REJECTED_BODY);
        if (pieces) {
            fl_reply_header(request, "x-fletch-limit", "chunks=%d", FL_LIMIT_PIECES);
            fl_reply_error(request, 413, "payload_too_large", "the body has more than %d chunks",
                           FL_LIMIT_PIECES);
        } else {
            fl_refuse_size(request);
        }
        return refuse_by_hand(full);
    }
    if (atomic_fetch_add(&request->server->bodies, count) + count > request->server->max_bodies) {
        (void)atomic_fetch_sub(&request->server->bodies, count);
        fl_refuse_memory(request);
        return refuse_by_hand(full);
    }
    full->held += count;
    fl_buf_append(&full->gather, data, count);
    return MHD_YES; /* a failed buffer is told when the body is whole */
}

static enum MHD_Result begin(fl_request_full *full, struct MHD_Connection *mc, const char *method,
                             const char *version) {
    full->mc    = mc;
    full->begun = true;
    if (!move(full->conn, FL_PHASE_HEADERS, FL_PHASE_BODY)) {
        return MHD_NO;
    }
    atomic_store(&full->conn->bytes, 0);
    atomic_store(&full->pending, 2);
    full->shared.start_ns = fl_clock_ns();
    full->shared.method   = method;
    (void)atomic_fetch_add(&full->shared.server->inflight, 1);
    full->counted = true;
    bool hopeless = !fl_admit(full, version);
    if (!full->judged) {
        uint64_t first = full->declared == UINT64_MAX ? 0 : full->declared;
        (void)fl_buf_reserve(&full->gather, first < FIRST_BYTES ? (size_t)first : FIRST_BYTES);
        return MHD_YES;
    }
    bool has_body = full->declared > 0;
    if (hopeless || (has_body && (full->expects || full->declared > SKIP_BYTES))) {
        full->close         = true;
        full->conn->refused = true;
        return queue_reply(full);
    }
    return MHD_YES; /* the rest is skipped, then the refusal goes out on a connection that lives */
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *mc, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **context) {
    fl_request_full *full = *context;
    (void)user;
    (void)url;
    if (full == NULL) {
        return MHD_NO; /* out of memory, or ended by the watcher */
    }
    if (!full->begun) {
        return begin(full, mc, method, version);
    }
    if (*size > 0) {
        return take_body(full, data, size);
    }
    if (full->judged || atomic_load(&full->conn->phase) == FL_PHASE_RUN) {
        return queue_reply(full);
    }
    return run(full);
}

/* ---- Beginnings and ends --------------------------------------------------------------------------------- */

static void *on_target(void *user, const char *target, struct MHD_Connection *mc) {
    fl_server *server = user;
    fl_conn   *conn   = conn_of(mc);
    if (conn == NULL || atomic_load(&conn->phase) != FL_PHASE_IDLE) {
        return NULL;
    }
    fl_hand_note_target(conn, target); /* before the watcher may read it */
    if (!move(conn, FL_PHASE_IDLE, FL_PHASE_HEADERS)) {
        return NULL;
    }
    fl_request_full *full = fl_request_make(server);
    if (full == NULL) {
        return NULL;
    }
    full->conn     = conn;
    full->mc       = mc;
    conn->incoming = full;
    fl_buf_append(&full->uri, target, strlen(target));
    return full;
}

static void settle(fl_request_full *full) {
    fl_request *request = &full->shared;
    fl_server  *server  = request->server;
    if (full->keyed) {
        /* const for the routes; the count below is guarded by the key's own lock */
        fl_api_key *key;
        memcpy(&key, &request->key, sizeof key);
        fl_api_key_leave(key);
    }
    if (full->begun) {
        int status = full->queued ? full->status : 499;
        fl_metrics_request(server->metrics, request->route, status,
                           fl_clock_ns() - request->start_ns);
        fl_server_log_request(server->log, request, status);
        if (status == 499 && atomic_load(&full->conn->phase) != FL_PHASE_DEAD) {
            fl_metrics_cancelled(server->metrics);
        }
    }
    (void)atomic_fetch_sub(&server->bodies, full->held);
    if (full->counted) {
        (void)atomic_fetch_sub(&server->inflight, 1);
    }
}

static void on_completed(void *user, struct MHD_Connection *mc, void **context,
                         enum MHD_RequestTerminationCode code) {
    fl_request_full *full = *context;
    (void)user;
    (void)mc;
    (void)code;
    *context = NULL;
    if (full == NULL) {
        return;
    }
    fl_conn *conn  = full->conn;
    conn->incoming = NULL;
    fl_conn_attach(full->shared.server, conn, NULL);
    settle(full);
    if (!atomic_load(&full->abandoned)) { /* else an engine may still write into it */
        fl_request_retire(full);
    }
    int phase = atomic_load(&conn->phase);
    if (phase != FL_PHASE_DEAD) {
        (void)move(conn, phase, FL_PHASE_IDLE);
    }
}

static void on_connection(void *user, struct MHD_Connection *mc, void **context,
                          enum MHD_ConnectionNotificationCode code) {
    fl_server *server = user;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mc, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context = info != NULL ? fl_conn_open(server, info->connect_fd) : NULL;
    } else if (*context != NULL) {
        fl_conn_close(server, *context);
        *context = NULL;
    }
}

static size_t keep_escapes(void *user, struct MHD_Connection *mc, char *text) {
    (void)user;
    (void)mc;
    return strlen(text); /* targets are taken as they are: see guard.c */
}

static void on_log(void *user, const char *format, va_list list) {
    fl_server *server = user;
    char       message[512];
    va_list    copy;
    va_copy(copy, list);
    fl_hand_instead(server, format, copy);
    va_end(copy);
    if (fl_server_log_wants(server->log, FL_LEVEL_DEBUG)) {
        (void)vsnprintf(message, sizeof message, format, list);
        fl_server_log_line(server->log, FL_LEVEL_DEBUG, "http: %s", message);
    }
}

/* ---- Daemons ------------------------------------------------------------------------------------------------ */

static unsigned io_threads(const fl_server *server) {
    uint64_t asked = fl_server_number(server, "server.io_threads", 0);
    long     cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned best  = cores > 0 ? 1 + (unsigned)cores / IO_PER_CORES : 1;
    return asked > 0 ? (unsigned)asked : best < IO_MAX ? best : IO_MAX;
}

static struct MHD_Daemon *start_daemon(fl_server *server, const fl_listener *listener) {
    unsigned flags =
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG;
    unsigned threads     = listener->tcp ? io_threads(server) : 1;
    intptr_t connections = (intptr_t)fl_server_number(server, "server.max_connections", 0);

    struct MHD_OptionItem options[] = {
        {MHD_OPTION_LISTEN_SOCKET, listener->fd, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, connections, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, FL_CONNECTION_MEMORY, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, 0, NULL}, /* watch.c has the clocks */
        {MHD_OPTION_STRICT_FOR_CLIENT, 0, NULL},  /* guard.c is stricter, and says why */
        {MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, NULL},
        {MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)on_target, server},
        {MHD_OPTION_UNESCAPE_CALLBACK, (intptr_t)keep_escapes, NULL},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, server},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, server},
        {threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, (intptr_t)threads, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    /* The logger comes first: it hears what is wrong with the others. */
    return MHD_start_daemon(flags, 0, NULL, NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER,
                            on_log, server, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
}

int fl_transport_start(fl_server *server, fletch_error *error) {
    for (size_t i = 0; i < server->listener_count; i++) {
        fl_listener *listener = &server->listeners[i];
        listener->daemon      = start_daemon(server, listener);
        if (listener->daemon == NULL) {
            return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "cannot serve on %s: %s",
                           listener->where, strerror(errno));
        }
    }
    return FLETCH_OK;
}

static const char closing[] =
    "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n"
    "content-length: 0\r\n\r\n";

/* Connections that were made and never accepted would be reset when the socket closes. */
static void refuse_backlog(int listening) {
    for (;;) {
        int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            return;
        }
        char    sink[4096];
        ssize_t got = recv(fd, sink, sizeof sink, MSG_DONTWAIT); /* unread bytes would reset it */
        (void)got;
        (void)send(fd, closing, sizeof closing - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)shutdown(fd, SHUT_WR);
        (void)close(fd);
    }
}

void fl_transport_quiesce(fl_server *server) {
    for (size_t i = 0; i < server->listener_count; i++) {
        fl_listener *listener = &server->listeners[i];
        if (listener->daemon != NULL && MHD_quiesce_daemon(listener->daemon) >= 0) {
            refuse_backlog(listener->fd);
        }
        if (listener->path[0] != '\0') {
            (void)unlink(listener->path);
            listener->path[0] = '\0';
        }
        if (!listener->inherited) {
            (void)close(listener->fd);
            listener->fd = -1;
        }
    }
}

void fl_transport_stop(fl_server *server) {
    for (size_t i = 0; i < server->listener_count; i++) {
        fl_listener *listener = &server->listeners[i];
        if (listener->daemon != NULL) {
            /* A listening socket that was not quiesced is closed with its daemon. */
            bool ours = listener->fd >= 0 && MHD_quiesce_daemon(listener->daemon) >= 0;
            MHD_stop_daemon(listener->daemon);
            listener->daemon = NULL;
            listener->fd     = ours || listener->inherited ? listener->fd : -1;
        }
    }
}
