/* SPDX-License-Identifier: Apache-2.0 */
/* connection.c - what one connection does: bytes to a request, a reply to bytes, and its clocks.
 *
 * Method  A machine of phases (server_internal.h) that fl_conn_advance turns until the kernel has no bytes, takes
 *         none, or a request runs. What an event said is kept in `readable` and `gone`.
 *         Head and body are http1.c's. A body of known length is received where it will be parsed. A
 *         refusal is given before the body when the body is long or its sender asks first (then
 *         the connection ends with it), after it when it is short (then the connection lives on). A request that cannot
 *         be read always ends its connection: what follows it may be anything.
 *         A connection is ended by shutting our side and throwing away what still comes, for
 *         FL_LINGER_SECONDS, or until another wants its place: closing a socket with unread bytes would reset it, and
 *         the peer might lose the reply.
 *         A peer that shuts its side while its request runs is taken to have left: the work is cancelled.
 * Memory  A connection between requests has no buffer; buffers wait with their thread. Replies go out
 *         from the request's own, uncopied.
 * Threads The connection's I/O thread.
 * Proof   tests/server/test_transport*.py. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"
#include "server/otlp.h"

enum {
    TURNS            = 64,          /* steps of one connection before others have theirs */
    IN_FIRST         = 4096,        /* of a request's head */
    SKIP_BYTES       = 64 * 1024,   /* a refused body up to this size is skipped, not cut off */
    WORKER_BYTES     = 256 * 1024,  /* larger bodies are parsed by a worker */
    FIRST_BYTES      = 1024 * 1024, /* believed of a Content-Length before bytes come */
    READ_BYTES       = 256 * 1024,  /* of a body at once */
    COST_PER_BYTE_NS = 2000,        /* of a body on a worker: a guess that puts short ones first */
    BYTES_PER_SECOND = 64 * 1024,   /* slower peers are ended */
    QUIET_MS         = 200          /* at the end: so long nothing came, so nothing is on its way */
};

static const uint64_t second = 1000000000u;

static void set_phase(fl_conn *conn, fl_phase phase) {
    assert(conn->phase != FL_PHASE_DEAD);
    conn->phase    = phase;
    conn->since_ns = fl_clock_ns();
}

/* ---- Beginnings and ends -------------------------------------------------------------------------- */

static void give_buffer(fl_conn *conn) {
    fl_io *io = conn->io;
    if (conn->lent)
        return;
    if (conn->in.capacity > 0 && conn->in.capacity <= 4 * FL_LIMIT_HEADER_BYTES &&
        io->spare_count < FL_IO_SPARE) {
        fl_buf_clear(&conn->in);
        io->spare[io->spare_count++] = conn->in;
        conn->in                     = (fl_buf){0};
    } else {
        fl_buf_free(&conn->in);
    }
}

void fl_conn_open(fl_io *io, int fd, bool promised) {
    fl_conn *conn = fl_alloc_zero(1, sizeof *conn);
    if (conn == NULL) {
        (void)close(fd);
        return;
    }
    conn->io       = io;
    conn->fd       = fd;
    conn->promised = promised;
    set_phase(conn, FL_PHASE_IDLE);
    if (!fl_loop_add(conn)) {
        (void)close(fd);
        fl_free(conn);
        return;
    }
    (void)atomic_fetch_add(&io->server->open, 1);
    fl_transport_move(conn, &io->idle);
}

/* The span of a request that is over, if it is worth one: probes and scrapes are not, unless they fail. An engine may
 * still write into that of an abandoned one. */
static fl_otlp_span *keep_span(fl_request_full *full, int status) {
    const fl_http_request *request = &full->shared;
    const fl_route        *route   = request->route;
    if (full->span == NULL || atomic_load(&full->abandoned))
        return NULL;
    if (route != NULL && (route->flags & FL_ROUTE_QUIET) != 0 && status < 500) {
        fl_otlp_give(request->server->otlp, full->span, false);
        return NULL;
    }
    fl_otlp_end(full->span, request, status);
    return full->span;
}

/* The request is over: count it, log it, keep its memory for the next one. */
static void settle(fl_conn *conn, int status) {
    assert(conn->request && conn->request->conn == conn);
    fl_request_full *full    = conn->request;
    fl_http_request *request = &full->shared;
    fl_server       *server  = request->server;
    conn->request            = NULL;
    if (full->entered != NULL)
        fl_api_key_leave(full->entered);
    if (full->begun) {
        fl_otlp_span *span = keep_span(full, status);
        fl_metrics_request(server->metrics, request->route, status,
                           fl_clock_ns() - request->start_ns, span);
        if (span != NULL)
            fl_otlp_give(server->otlp, span, true);
        fl_server_log_request(server->log, request, status);
        if (status == 499)
            fl_metrics_cancelled(server->metrics);
        if (request->route == NULL || (request->route->flags & FL_ROUTE_QUIET) == 0)
            atomic_store(&server->worked_ns, fl_clock_ns());
        (void)atomic_fetch_sub(&server->inflight, 1);
    }
    if (atomic_load(&full->abandoned))
        return; /* an engine may still write into it: its memory stays, and counts */
    fl_request_drop(full);
}

static void end_conn(fl_conn *conn) {
    fl_io *io = conn->io;
    if (conn->phase == FL_PHASE_DEAD)
        return;
    if (conn->request != NULL)
        settle(conn, 499);
    (void)atomic_fetch_sub(
        conn->phase == FL_PHASE_LINGER ? &io->server->lingering : &io->server->open, 1);
    (void)close(conn->fd);
    give_buffer(conn);
    fl_transport_move(conn, NULL);
    conn->phase = FL_PHASE_DEAD;
    if (!conn->lent) {
        conn->next = io->dead;
        io->dead   = conn;
    }
}

static void linger(fl_conn *conn) {
    assert(!conn->request);
    fl_server *server = conn->io->server;
    if (shutdown(conn->fd, SHUT_WR) != 0) {
        end_conn(conn);
        return;
    }
    (void)atomic_fetch_add(&server->lingering, 1);
    (void)atomic_fetch_sub(&server->open, 1);
    fl_transport_move(conn, &conn->io->lingering);
    set_phase(conn, FL_PHASE_LINGER);
    conn->readable = true;
    give_buffer(conn);
}

/* ---- The reply ------------------------------------------------------------------------------------- */

static const char gave_up[] = "{\"error\":\"the engine does not answer\",\"code\":\"unavailable\"}";

static void put_header(fl_buf *out, const char *name, const char *value) {
    if (value != NULL && value[0] != '\0') {
        fl_buf_puts(out, name);
        fl_buf_append(out, ": ", 2);
        fl_buf_puts(out, value);
        fl_buf_append(out, "\r\n", 2);
    }
}

static void put_headers(fl_request_full *full) {
    const fl_http_request *request = &full->shared;
    const fl_server       *server  = request->server;
    fl_buf                *out     = &full->out;
    put_header(out, "content-type", request->reply.type);
    if (full->packed) {
        put_header(out, "content-encoding", "gzip");
        put_header(out, "vary", "accept-encoding");
    }
    put_header(out, "x-request-id", request->id);
    if (request->trace_id[0] != '\0') {
        fl_buf_printf(out, "traceresponse: 00-%s-%s-%s\r\n", request->trace_id, request->span_id,
                      full->span != NULL ? "01" : "00");
    }
    for (size_t i = 0; i < request->reply.header_count; i++)
        put_header(out, request->reply.headers[i].name, request->reply.headers[i].value);
    if (server->cors[0] != '\0') {
        const char *allow = fl_cors_allowed(server->cors, fl_request_header(request, "origin"));
        put_header(out, "access-control-allow-origin", allow);
        put_header(out, "access-control-expose-headers", allow != NULL ? "*" : NULL);
        put_header(out, "vary", "Origin");
    }
}

static size_t body_of(const fl_request_full *full, const void **data) {
    const fl_http_reply *reply = &full->shared.reply;
    bool                 fixed = full->static_data != NULL;
    if (full->flowing) { /* it goes out framed, behind the head */
        *data = NULL;
        return 0;
    }
    if (atomic_load(&full->abandoned)) {
        *data = gave_up;
        return sizeof gave_up - 1;
    }
    *data = fixed ? full->static_data : reply->body.data;
    return fixed ? full->static_size : reply->body.size;
}

/* Status line and headers, but for how the body ends. */
static void put_top(fl_conn *conn, int status) {
    assert(conn->request);
    fl_request_full *full = conn->request;
    fl_buf          *out  = &full->out;
    bool             lost = atomic_load(&full->abandoned);
    conn->closing |= lost || atomic_load(&conn->io->server->state) >= FL_LAME_DUCK;
    fl_buf_printf(out, "HTTP/1.1 %d %s\r\n", status, fl_http_reason(status));
    put_header(out, "date", fl_transport_date(conn->io));
    if (lost) /* the request's own headers may still be written by somebody */
        put_header(out, "content-type", "application/json");
    else
        put_headers(full);
    if (conn->closing)
        put_header(out, "connection", "close");
    else if (full->head.minor == 0)
        put_header(out, "connection", "keep-alive");
    full->status = status;
    conn->sent   = 0;
}

/* ---- An answer in pieces (fl_reply_piece) ---- */

static void begin_flow(fl_conn *conn) {
    assert(!conn->request->flowing);
    fl_request_full *full = conn->request;
    bool             old  = full->head.minor == 0;
    conn->closing |= old; /* whose body ends with the connection */
    put_top(conn, 200);
    fl_buf_puts(&full->out, old ? "\r\n" : "transfer-encoding: chunked\r\n\r\n");
    full->flowing = true;
}

static void put_chunk(fl_request_full *full, const fl_buf *data) {
    bool framed = full->head.minor > 0 && data->size > 0;
    if (framed)
        fl_buf_printf(&full->out, "%zx\r\n", data->size);
    fl_buf_append(&full->out, data->data, data->size);
    fl_buf_puts(&full->out, framed ? "\r\n" : "");
}

static void take_pieces(fl_conn *conn) {
    fl_request_full *full = conn->request;
    fl_pieces_lock(conn->io->server);
    put_chunk(full, &full->pieces);
    fl_buf_clear(&full->pieces);
    fl_pieces_unlock(conn->io->server);
}

static void end_flow(fl_conn *conn) {
    fl_request_full *full = conn->request;
    if (!full->flowing)
        begin_flow(conn);
    take_pieces(conn);
    put_chunk(full, &full->shared.reply.body);
    fl_buf_puts(&full->out, full->head.minor > 0 ? "0\r\n\r\n" : "");
}

/* Write the status line and the headers of the reply that stands, and begin to send. */
static void start_reply(fl_conn *conn) {
    assert(conn->request);
    fl_request_full *full = conn->request;
    bool             lost = atomic_load(&full->abandoned);
    const void      *data;
    if (atomic_load(&full->flows)) {
        end_flow(conn);
    } else {
        put_top(conn, lost ? 503 : full->shared.reply.status);
        if (full->status != 204 && full->status != 304)
            fl_buf_printf(&full->out, "content-length: %zu\r\n", body_of(full, &data));
        fl_buf_append(&full->out, "\r\n", 2);
    }
    if (full->out.failed) { /* not even a refusal can be said */
        full->status = 500;
        end_conn(conn);
        return;
    }
    set_phase(conn, FL_PHASE_WRITE);
    conn->marked    = conn->sent;
    conn->marked_ns = conn->since_ns;
}

static bool has_body(const fl_request_full *full) {
    assert(full->status >= 100 && full->status < 600);
    return full->status != 204 && full->status != 304 && strcmp(full->shared.method, "HEAD") != 0;
}

static void end_reply(fl_conn *conn) {
    assert(conn->request && conn->used <= conn->in.size);
    settle(conn, conn->request->status);
    conn->promised = false;
    if (conn->closing) {
        linger(conn);
        return;
    }
    size_t rest = conn->in.size - conn->used;
    if (rest > 0) {
        memmove(conn->in.data, conn->in.data + conn->used, rest);
        conn->in.size = rest;
    } else {
        give_buffer(conn);
    }
    conn->used = 0;
    set_phase(conn, FL_PHASE_IDLE);
    fl_transport_move(conn, &conn->io->idle);
}

/* Nothing more can be said to the peer. A request that runs still belongs to others: it is cancelled, and ends then. */
static void lose(fl_conn *conn) {
    conn->gone = true;
    if (conn->phase == FL_PHASE_RUN)
        fl_conn_cancel(conn);
    else
        end_conn(conn);
}

static bool write_reply(fl_conn *conn) {
    fl_request_full *full = conn->request;
    const void      *data;
    size_t           head = full->out.size, size = body_of(full, &data);
    uint8_t          count = 0; /* msg_iovlen is a size_t in glibc and an int in musl */
    size                   = has_body(full) ? size : 0;
    struct iovec part[2];
    if (conn->sent < head)
        part[count++] = (struct iovec){full->out.data + conn->sent, head - conn->sent};
    size_t skip = conn->sent > head ? conn->sent - head : 0;
    if (skip < size) { /* const is given up for the type: sendmsg only reads */
        part[count].iov_len = size - skip;
        memcpy(&part[count].iov_base, &(const char *){(const char *)data + skip}, sizeof(void *));
        count++;
    }
    struct msghdr message = {.msg_iov = part, .msg_iovlen = count};
    ssize_t       sent    = sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
        if (errno == EINTR)
            return true;
        if (errno != EAGAIN)
            lose(conn);
        return false;
    }
    conn->sent += (uint64_t)sent;
    if (conn->sent == head + size && conn->phase == FL_PHASE_WRITE)
        end_reply(conn);
    return true;
}

/* Pieces wait until those before them have left: who does not read holds no memory but theirs. */
static bool flow(fl_conn *conn) {
    fl_request_full *full = conn->request;
    if (conn->sent == full->out.size) {
        fl_buf_clear(&full->out);
        conn->sent = 0;
        take_pieces(conn);
    }
    if (full->out.failed) /* a torn answer is none */
        lose(conn);
    return !conn->gone && conn->sent < full->out.size && write_reply(conn);
}

void fl_conn_flow(fl_conn *conn) {
    if (conn->phase == FL_PHASE_RUN && atomic_load(&conn->request->flows)) {
        if (!conn->request->flowing)
            begin_flow(conn);
        fl_conn_advance(conn);
    }
}

/* ---- Running ---------------------------------------------------------------------------------------- */

static void run(fl_conn *conn) {
    fl_request_full *full    = conn->request;
    fl_http_request *request = &full->shared;
    bool             room    = fl_buf_reserve(&full->gather, 1); /* for the NUL */
    request->body            = full->gather.data;
    request->body_size       = full->gather.size;
    conn->turns = atomic_exchange(&request->server->spoke, conn) == conn ? conn->turns + 1 : 0;
    if (conn->gone)
        atomic_store(&request->cancelled, true);
    set_phase(conn, FL_PHASE_RUN);
    if (!room || full->gather.failed) {
        fl_reply_error(request, FL_HTTP_INTERNAL, "out of memory for the request's body");
        start_reply(conn);
        return;
    }
    request->body[request->body_size] = '\0';
    if ((request->route->flags & FL_ROUTE_BLOCKING) != 0 || request->body_size > WORKER_BYTES) {
        uint64_t cost = request->body_size * COST_PER_BYTE_NS;
        (void)fl_request_run_later(request, request->route->handler, cost);
    } else {
        request->route->handler(request);
    }
    if (atomic_fetch_sub(&full->pending, 1) == 1) /* else the reply is to come */
        start_reply(conn);
}

void fl_conn_answered(fl_request_full *full) {
    assert(full->conn);
    fl_conn *conn = full->conn;
    if (conn->gone) { /* what ran was finished and is dropped */
        end_conn(conn);
        return;
    }
    start_reply(conn);
    fl_conn_advance(conn);
}

void fl_conn_cancel(fl_conn *conn) {
    if (conn->phase == FL_PHASE_RUN) {
        if (conn->gone)
            atomic_store(&conn->request->shared.cancelled, true);
        fl_request_cancel(conn->request);
    }
}

void fl_conn_abandon(fl_conn *conn) {
    fl_request_full *full = conn->request;
    if (conn->phase == FL_PHASE_RUN && !atomic_exchange(&full->resumed, true)) {
        atomic_store(&full->abandoned, true);
        conn->lent = true;
        if (atomic_load(&full->flows)) { /* its status is said already */
            end_conn(conn);
            return;
        }
        start_reply(conn);
        fl_conn_advance(conn);
    }
}

/* ---- The request ------------------------------------------------------------------------------------- */

/* Receive up to `size` bytes; 0: there are none now, or the connection has ended. */
static size_t receive(fl_conn *conn, char *data, size_t size) {
    ssize_t got = -1;
    while (conn->readable && (got = recv(conn->fd, data, size, MSG_DONTWAIT)) < 0)
        if (errno == EAGAIN)
            conn->readable = false;
        else if (errno != EINTR)
            break;
    if (!conn->readable)
        return 0;
    if (got <= 0) {
        end_conn(conn);
        return 0;
    }
    /* Fewer than there was room for: that was all, and more is another event. Not so the end that came with it. */
    conn->readable = (size_t)got == size || conn->gone;
    return (size_t)got;
}

/* Refuse what has come so far, and end with it. */
static bool refuse(fl_conn *conn) {
    conn->closing = true;
    start_reply(conn);
    return true;
}

static void send_continue(const fl_conn *conn) {
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    /* A peer that has no room for this line sends its body after a while all the same. */
    (void)send(conn->fd, line, sizeof line - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The head is whole, or `found` is what it is refused with. */
static void begin(fl_conn *conn, int found) {
    fl_request_full *full   = conn->request;
    fl_server       *server = full->shared.server;
    /* Chunks are read behind the head, which must not move once the request points into it. */
    if (found > 0 && full->head.chunked && !fl_buf_reserve(&conn->in, FL_LIMIT_HEADER_BYTES)) {
        end_conn(conn);
        return;
    }
    full->begun           = true;
    full->shared.start_ns = fl_clock_ns();
    atomic_store(&full->pending, 2);
    (void)atomic_fetch_add(&server->inflight, 1);
    conn->used    = full->head.size;
    conn->closing = found < 0 || !fl_http_keeps(&full->head);
    fl_admit(full, found);
    uint64_t length = found < 0 ? 0 : full->head.length;
    if (full->judged && length > 0 && (full->head.expects || length > SKIP_BYTES)) {
        (void)refuse(conn);
    } else if (length > 0) {
        set_phase(conn, FL_PHASE_BODY);
        if (!full->judged)
            (void)fl_buf_reserve(&full->gather, length < FIRST_BYTES ? (size_t)length : IN_FIRST);
        if (full->head.expects && conn->in.size == conn->used)
            send_continue(conn);
    } else if (full->judged) {
        start_reply(conn);
    } else {
        run(conn);
    }
}

static bool read_head(fl_conn *conn) {
    fl_io *io = conn->io;
    if (conn->phase == FL_PHASE_IDLE && conn->in.size > 0) {
        conn->request = fl_request_make(io->server);
        if (conn->request == NULL) {
            end_conn(conn);
            return false;
        }
        conn->request->conn = conn;
        set_phase(conn, FL_PHASE_HEAD);
        fl_transport_move(conn, &io->busy);
    }
    if (conn->phase == FL_PHASE_HEAD) {
        int found = fl_http_head_read(&conn->request->head, conn->in.data, conn->in.size);
        if (found != 0) {
            begin(conn, found);
            return true;
        }
    }
    if (!conn->readable)
        return false;
    if (conn->in.capacity == 0 && io->spare_count > 0)
        conn->in = io->spare[--io->spare_count];
    if (conn->in.capacity - conn->in.size < IN_FIRST / 4 && !fl_buf_reserve(&conn->in, IN_FIRST)) {
        end_conn(conn);
        return false;
    }
    size_t got =
        receive(conn, conn->in.data + conn->in.size, conn->in.capacity - conn->in.size - 1);
    if (got == 0) {
        if (conn->phase == FL_PHASE_IDLE)
            give_buffer(conn);
        return false;
    }
    conn->in.size += got;
    return true;
}

/* Whether `count` more bytes of the body are welcome. False: a refusal stands. */
static bool welcome(fl_request_full *full, size_t count) {
    fl_http_request *request = &full->shared;
    fl_server       *server  = request->server;
    if (full->judged)
        return true;
    if (full->chunks.count > FL_LIMIT_PIECES) {
        fl_metrics_rejected(server->metrics, FL_REJECTED_BODY);
        fl_reply_header(request, "x-fletch-limit", "chunks=%d", FL_LIMIT_PIECES);
        fl_reply_error(request, FL_HTTP_PAYLOAD_TOO_LARGE, "the body has more than %d chunks",
                       FL_LIMIT_PIECES);
    } else if (count > server->max_body - full->gather.size) {
        fl_metrics_rejected(server->metrics, FL_REJECTED_BODY);
        fl_refuse_size(request);
    } else if (atomic_fetch_add(&server->bodies, count) + count > server->max_bodies) {
        (void)atomic_fetch_sub(&server->bodies, count);
        fl_refuse_memory(request, full->gather.size + count);
    } else {
        full->held += count;
        return true;
    }
    return false;
}

static bool take(fl_conn *conn, const char *data, size_t count) {
    fl_request_full *full = conn->request;
    full->received += count;
    if (!welcome(full, count))
        return false;
    if (!full->judged) {
        fl_buf_append(&full->gather, data,
                      count); /* a failed buffer is told when the body is whole */
    }
    return true;
}

static bool body_is_whole(fl_conn *conn) {
    if (conn->request->judged)
        start_reply(conn);
    else
        run(conn);
    return true;
}

static bool refuse_chunks(fl_conn *conn, int status) {
    fl_http_request *request = &conn->request->shared;
    if (!conn->request->judged) {
        fl_metrics_rejected(request->server->metrics,
                            status == 413 ? FL_REJECTED_BODY : FL_REJECTED_HEADERS);
        fl_reply_error(request, fl_http_code_of(status), "%s",
                       status == 413   ? "a chunk is larger than any number"
                       : status == 431 ? "trailers larger than 16 KiB"
                                       : "malformed chunked body");
    }
    return refuse(conn);
}

/* Chunks are read from `in`, which keeps the head at its front and what follows the body at its end. */
static bool read_chunks(fl_conn *conn) {
    fl_request_full *full = conn->request;
    fl_buf          *in   = &conn->in;
    for (;;) {
        const char *data;
        size_t      used, count;
        int found = fl_http_chunks_read(&full->chunks, in->data + conn->used, in->size - conn->used,
                                        &used, &data, &count);
        conn->used += used;
        if (found < 0)
            return refuse_chunks(conn, -found);
        if (found == FL_CHUNK_END)
            return body_is_whole(conn);
        if (found == FL_CHUNK_MORE)
            break;
        if (!take(conn, data, count))
            return refuse(conn);
    }
    in->size = conn->used = full->head.size;
    if (!conn->readable)
        return false;
    size_t got = receive(conn, in->data + in->size, in->capacity - in->size - 1);
    in->size += got;
    return got > 0;
}

static bool read_body(fl_conn *conn) {
    fl_request_full *full = conn->request;
    if (full->head.chunked)
        return read_chunks(conn);
    uint64_t left = full->head.length - full->received;
    if (left == 0)
        return body_is_whole(conn);
    if (conn->in.size > conn->used) {
        size_t rest  = conn->in.size - conn->used;
        size_t count = rest < left ? rest : (size_t)left;
        conn->used += count;
        return take(conn, conn->in.data + conn->used - count, count) || refuse(conn);
    }
    if (!conn->readable)
        return false;
    fl_buf *to    = &full->gather;
    size_t  count = left < READ_BYTES ? (size_t)left : READ_BYTES;
    if (full->judged || to->failed || !fl_buf_reserve(to, count + 1)) { /* told when it is whole */
        count = count < FL_IO_SINK ? count : FL_IO_SINK;
        count = receive(conn, conn->io->sink, count);
        full->received += count;
        return count > 0;
    }
    count = receive(conn, to->data + to->size, count);
    if (count == 0)
        return false;
    full->received += count;
    if (!welcome(full, count))
        return refuse(conn);
    to->size += count;
    return true;
}

/* ---- Turns -------------------------------------------------------------------------------------------- */

void fl_conn_advance(fl_conn *conn) {
    bool more = true;
    for (int turn = 0; more && turn < TURNS; turn++) {
        switch (conn->phase) {
        case FL_PHASE_IDLE:
        case FL_PHASE_HEAD: more = read_head(conn); break;
        case FL_PHASE_BODY: more = read_body(conn); break;
        case FL_PHASE_RUN: more = conn->request->flowing && flow(conn); break;
        case FL_PHASE_WRITE: more = write_reply(conn); break;
        case FL_PHASE_LINGER:
            more = receive(conn, conn->io->sink, sizeof conn->io->sink) > 0;
            break;
        default: more = false; break;
        }
    }
    if (more && !conn->again) {
        conn->again      = true;
        conn->next_again = conn->io->again;
        conn->io->again  = conn;
    }
}

void fl_conn_event(fl_conn *conn, bool readable, bool gone) {
    if (conn->phase == FL_PHASE_DEAD)
        return; /* since a moment ago, in the same round of events */
    conn->readable |= readable || gone;
    if (gone) {
        conn->gone = true;
        fl_conn_cancel(conn);
    }
    fl_conn_advance(conn);
}

/* ---- Clocks ------------------------------------------------------------------------------------------- */

static void too_slow(fl_conn *conn) {
    fl_request_full *full = conn->request;
    fl_metrics_rejected(full->shared.server->metrics, FL_REJECTED_SLOW);
    if (!full->begun) {
        full->head.fault = "the request arrived too slowly";
        begin(conn, -408);
    } else {
        if (!full->judged) {
            fl_reply_error(&full->shared, FL_HTTP_REQUEST_TIMEOUT,
                           "the request arrived too slowly");
        }
        (void)refuse(conn);
    }
    fl_conn_advance(conn);
}

/* At the end: an idle connection on which nothing is on its way. */
static void leave(fl_conn *conn) {
    conn->readable = true;
    fl_conn_advance(conn);
    if (conn->phase == FL_PHASE_IDLE)
        end_conn(conn);
}

void fl_conn_make_room(fl_conn *conn) {
    end_conn(conn);
}

void fl_conn_look(fl_conn *conn, uint64_t now) {
    const fl_server *server = conn->io->server;
    int              state  = atomic_load(&server->state);
    uint64_t         age    = now > conn->since_ns ? now - conn->since_ns : 0;
    switch (conn->phase) {
    case FL_PHASE_IDLE:
        if (state >= FL_CLOSING && now > atomic_load(&server->closing_ns) + QUIET_MS * 1000000u)
            leave(conn);
        else if (age > server->idle_ns)
            end_conn(conn);
        break;
    case FL_PHASE_HEAD:
        if (age > server->header_ns)
            too_slow(conn);
        break;
    case FL_PHASE_BODY:
        if (age > server->body_ns + conn->request->received / BYTES_PER_SECOND * second)
            too_slow(conn);
        break;
    case FL_PHASE_WRITE:
        if (conn->sent - conn->marked >= BYTES_PER_SECOND) {
            conn->marked    = conn->sent;
            conn->marked_ns = now;
        }
        /* The kernel takes megabytes at once for a reader that stands still: both, lately and on the whole. */
        if (now > conn->marked_ns + server->write_ns ||
            age > server->write_ns + conn->sent / BYTES_PER_SECOND * second)
            end_conn(conn);
        break;
    case FL_PHASE_LINGER:
        if (age > FL_LINGER_SECONDS * second)
            end_conn(conn);
        break;
    default: break;
    }
    if (state == FL_STOPPED && conn->phase != FL_PHASE_RUN)
        end_conn(conn);
}
