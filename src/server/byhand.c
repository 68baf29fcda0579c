/* SPDX-License-Identifier: Apache-2.0 */
/* byhand.c - replies that the HTTP library cannot send, or would send wrongly, written on the socket itself.
 *
 * Role    transport.c uses it in the middle of a body and for what libmicrohttpd refuses by itself; watch.c
 *         for requests that came too slowly. Each of these replies ends its connection.
 * Method  libmicrohttpd answers a malformed Content-Length, a flood of headers and broken chunks before
 *         it asks anybody, with a page of HTML, the first of them with two header blocks. It tells its log
 *         first, though, on the thread that does it. fl_hand_instead listens there and looks
 *         which of this thread's connections it can only be: one whose headers so far the guard refuses,
 *         the only one that is in the phase of which the library complains, or, for a header line without
 *         a colon, of which it speaks as of a bad request line, the only one it reads. It answers that one in
 *         the dialect of its path and shuts the sending side, so that the library's own words go nowhere.
 *         When it cannot be told which connection is meant, the library's reply stands: same number,
 *         closed as well. The same goes for a request line that is none, for which there is no path yet.
 * Memory  None that lasts. Threads: fl_hand_slow: watch, with the lock of the connections; the others: the
 *         I/O thread of the connection.
 * Proof   tests/server/test_transport_smuggling.py, test_transport_limits.py, test_transport_slow.py. */
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "server/internal.h"

static void send_whole(int fd, const fl_reply *reply, const char *id) {
    fl_buf      text   = {0};
    const char *reason = MHD_get_reason_phrase_for((unsigned)reply->status);
    fl_buf_printf(&text, "HTTP/1.1 %d %s\r\nconnection: close\r\n", reply->status,
                  reason != NULL ? reason : "Refused");
    if (reply->type != NULL) {
        fl_buf_printf(&text, "content-type: %s\r\n", reply->type);
    }
    if (id[0] != '\0') {
        fl_buf_printf(&text, "x-request-id: %s\r\n", id);
    }
    for (size_t i = 0; i < reply->header_count; i++) {
        fl_buf_printf(&text, "%s: %s\r\n", reply->headers[i].name, reply->headers[i].value);
    }
    fl_buf_printf(&text, "content-length: %zu\r\n\r\n", reply->body.size);
    fl_buf_append(&text, reply->body.data, reply->body.size);
    if (!text.failed) {
        (void)send(fd, text.data, text.size, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    fl_buf_free(&text);
}

void fl_hand_send(fl_request_full *full) {
    send_whole(full->conn->fd, &full->shared.reply, full->shared.id);
    full->status        = full->shared.reply.status;
    full->queued        = true;
    full->conn->refused = true;
}

/* ---- Too slow ------------------------------------------------------------------------------------- */

void fl_hand_note_target(fl_conn *conn, const char *target) {
    const char *at = target;
    if (strncasecmp(at, "http://", 7) == 0) { /* the form that proxies send */
        at = strchrnul(at + 7, '/');
    }
    size_t size = strcspn(at, "?");
    size        = size < sizeof conn->path - 1 ? size : sizeof conn->path - 1;
    memcpy(conn->path, at, size);
    conn->path[size] = '\0';
}

void fl_hand_slow(const fl_conn *conn, bool path_known) {
    fl_reply          reply   = {.status = 408};
    const fl_dialect *dialect = fl_dialect_of(path_known ? conn->path : "/live");
    dialect->error(&reply, 408, "request_timeout", "the request came too slowly");
    send_whole(conn->fd, &reply, "");
    fl_buf_free(&reply.body);
}

/* ---- Instead of the library ------------------------------------------------------------------------ */

static bool move(fl_conn *conn, int from, int to) {
    if (!atomic_compare_exchange_strong(&conn->phase, &from, to)) {
        return false;
    }
    atomic_store(&conn->since_ns, fl_clock_ns());
    return true;
}

/* What the library's log line complains of; status 0: of nothing that is ours to answer. */
typedef struct complaint {
    unsigned    status;
    int         phase; /* in which a connection must be to be meant */
    bool        any;   /* it may mean one in an earlier or later phase as well */
    const char *code, *message;
} complaint;

static complaint read_complaint(const char *format, va_list list) {
    complaint found = {0};
    if (strncmp(format, "Error processing request (HTTP response code is %u ('%s')", 57) != 0) {
        return found;
    }
    unsigned    status = va_arg(list, unsigned);
    const char *page   = va_arg(list, const char *);
    bool        chunk  = strstr(page, "chunk") != NULL;
    if (status == 431) {
        found = (complaint){431, FL_PHASE_HEADERS, false, "headers_too_large",
                            "headers larger than 16 KiB"};
    } else if (chunk && status == 400) {
        found = (complaint){400, FL_PHASE_BODY, false, "bad_request",
                            "the body's chunks are malformed"};
    } else if (chunk && status == 413) {
        found = (complaint){413, FL_PHASE_BODY, false, "payload_too_large",
                            "a chunk is larger than any number"};
    } else if (status == 400) {
        found =
            (complaint){400, FL_PHASE_HEADERS, true, "bad_request", "a header line has no colon"};
    }
    return found;
}

/* Record `i` when this thread serves it, else NULL. With the lock held. */
static fl_conn *conn_here(const fl_conns *conns, uint32_t i) {
    fl_conn *conn = &conns->chunk[i / FL_CONN_CHUNK][i % FL_CONN_CHUNK];
    bool     here = conn->used && !conn->linger && pthread_equal(conn->io, pthread_self());
    return here ? conn : NULL;
}

/* A request of this thread whose headers so far the guard refuses, or NULL. */
static fl_request_full *find_refused(fl_server *server, fl_verdict *verdict) {
    fl_conns        *conns = &server->conns;
    fl_request_full *found = NULL;
    pthread_mutex_lock(&conns->lock);
    for (uint32_t i = 0; i < conns->count && found == NULL; i++) {
        const fl_conn *conn = conn_here(conns, i);
        if (conn == NULL || atomic_load(&conn->phase) != FL_PHASE_HEADERS ||
            conn->incoming == NULL) {
            continue;
        }
        fl_guard_headers(conn->incoming->mc, NULL, verdict);
        found = verdict->status != 0 ? conn->incoming : NULL;
    }
    pthread_mutex_unlock(&conns->lock);
    return found;
}

/* The only request of this thread that the complaint can mean, or NULL. */
static fl_request_full *find_meant(fl_server *server, const complaint *what) {
    fl_conns        *conns   = &server->conns;
    fl_request_full *found   = NULL;
    unsigned         suspect = 0;
    pthread_mutex_lock(&conns->lock);
    for (uint32_t i = 0; i < conns->count; i++) {
        const fl_conn *conn  = conn_here(conns, i);
        int            phase = conn != NULL ? atomic_load(&conn->phase) : FL_PHASE_DEAD;
        if (phase == what->phase && conn->incoming != NULL) {
            found = conn->incoming;
            suspect++;
        } else if (what->any && phase < FL_PHASE_RUN) {
            suspect++;
        }
    }
    pthread_mutex_unlock(&conns->lock);
    return suspect == 1 ? found : NULL;
}

/* The headers were not judged yet: what admission.c would have done first. */
static void begin(fl_request_full *full) {
    fl_request *request = &full->shared;
    full->begun = full->counted = true;
    request->start_ns           = fl_clock_ns();
    request->method             = "";
    request->query = request->tail = "";
    (void)atomic_fetch_add(&request->server->inflight, 1);
    atomic_store(&full->pending, 2);
    fl_guard_identity(request, fl_request_header(request, "x-request-id"), NULL);
    if (full->uri.failed || full->uri.size == 0 ||
        !fl_guard_target(&full->uri, &request->path, &request->query)) {
        request->path = "/";
    }
}

void fl_hand_instead(fl_server *server, const char *format, va_list list) {
    fl_verdict       verdict = {0};
    complaint        what    = read_complaint(format, list);
    fl_request_full *full    = find_refused(server, &verdict);
    if (full != NULL) {
        what.status  = (unsigned)verdict.status;
        what.code    = verdict.code;
        what.message = verdict.message;
    } else if (what.status != 0) {
        full = find_meant(server, &what);
    }
    if (full == NULL) {
        return;
    }
    fl_conn *conn  = full->conn;
    bool     fresh = !full->begun;
    if (!move(conn, fresh ? FL_PHASE_HEADERS : FL_PHASE_BODY, FL_PHASE_WRITE)) {
        return;
    }
    if (fresh) {
        begin(full);
    }
    if (!full->judged) { /* else a refusal stands already and is as good */
        fl_metrics_rejected(server->metrics, FL_REJECTED_HEADERS);
        fl_reply_error(&full->shared, (int)what.status, what.code, "%s", what.message);
    }
    fl_hand_send(full);
    (void)shutdown(conn->fd, SHUT_WR);
}
