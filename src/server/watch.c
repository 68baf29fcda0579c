/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - the thread that looks at what the HTTP library does not: hang-ups, clocks, signals.
 *
 * Role    libmicrohttpd is blind to a client that leaves while its reply is being computed, and its only
 *         clock is inactivity, which a byte now and then resets. This thread sees both.
 * Method  Every connection's socket is also in an epoll of ours, for EPOLLRDHUP, edge-triggered: one call
 *         per connection, none per request. A hang-up cancels the work that runs for it. A client that
 *         shuts only its sending side looks the same and is taken to have left.
 *         Four times a second each connection's phase is compared with its clock; what is too slow gets
 *         a 408 where that can be said, in the dialect of its path, and its socket is shut, which the
 *         library then notices. The phase moves by compare-and-swap, so the library never writes what
 *         this thread has ended.
 *         Between requests the kernel is asked (TCP_INFO) whether anything has come since: the first
 *         byte of a request line starts its clock.
 *         A refused sender is heard out: closing a socket with unread bytes would reset the connection,
 *         and the client would lose the refusal. Its socket is kept here for two seconds more.
 * Memory  Records of connections are made in chunks and never move; a generation number in the epoll
 *         event tells a record that is used again. Threads: one, and the callbacks of the I/O threads.
 * Proof   tests/server/test_transport_slow.py, test_transport_disconnect.py, test_transport_drain.py. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/internal.h"

enum {
    EVENTS           = 64,
    TICK_MS          = 250,
    BYTES_PER_SECOND = 64 * 1024,
    DISCARD          = 64 * 1024,
    GRACE_MOMENTS    = 500 /* of 10 ms: for the clients of an engine that hangs to hear of it */
};

static const uint64_t second = 1000000000u;

/* The tag of the descriptor that is no connection; connections have index and generation. */
#define TAG_SIGNAL UINT64_MAX

static uint64_t tag_of(const fl_conn *conn) {
    return (uint64_t)conn->generation << 32 | conn->index;
}

/* ---- Records ------------------------------------------------------------------------------------- */

static fl_conn *record_at(fl_conns *conns, uint32_t index) {
    return &conns->chunk[index / FL_CONN_CHUNK][index % FL_CONN_CHUNK];
}

static fl_conn *take_record(fl_conns *conns) {
    if (conns->free == NULL) {
        uint32_t at = conns->count / FL_CONN_CHUNK;
        if (at == FL_CONN_CHUNKS) {
            return NULL;
        }
        fl_conn *chunk = fl_alloc_zero(FL_CONN_CHUNK, sizeof *chunk);
        if (chunk == NULL) {
            return NULL;
        }
        conns->chunk[at] = chunk;
        for (uint32_t i = 0; i < FL_CONN_CHUNK; i++) {
            chunk[i].index     = conns->count + i;
            chunk[i].next_free = conns->free;
            conns->free        = &chunk[i];
        }
        conns->count += FL_CONN_CHUNK;
    }
    fl_conn *conn = conns->free;
    conns->free   = conn->next_free;
    return conn;
}

fl_conn *fl_conn_open(fl_server *server, int fd) {
    fl_conns          *conns = &server->conns;
    struct sockaddr    address;
    socklen_t          size  = sizeof address;
    struct epoll_event event = {0};
    memset(&address, 0, sizeof address);
    (void)getsockname(fd, &address, &size);
    pthread_mutex_lock(&conns->lock);
    fl_conn *conn = take_record(conns);
    if (conn != NULL) {
        conn->used     = true;
        conn->linger   = false;
        conn->refused  = false;
        conn->tcp      = address.sa_family != AF_UNIX;
        conn->fd       = fd;
        conn->request  = NULL;
        conn->io       = pthread_self(); /* who accepts it serves it */
        conn->incoming = NULL;
        conn->drip_ns  = 0;
        conn->turns    = 0;
        atomic_store(&conn->phase, FL_PHASE_IDLE);
        atomic_store(&conn->since_ns, fl_clock_ns());
        atomic_store(&conn->bytes, 0);
        atomic_store(&conn->gone, false);
        event.events   = EPOLLRDHUP | EPOLLET;
        event.data.u64 = tag_of(conn);
        (void)epoll_ctl(server->watch_fd, EPOLL_CTL_ADD, fd, &event);
        (void)atomic_fetch_add(&conns->open, 1);
    }
    pthread_mutex_unlock(&conns->lock);
    return conn;
}

/* With the lock held. */
static void give_record(fl_conns *conns, fl_conn *conn) {
    conn->used = false;
    conn->fd   = -1;
    conn->generation++;
    conn->next_free = conns->free;
    conns->free     = conn;
}

void fl_conn_close(fl_server *server, fl_conn *conn) {
    fl_conns *conns = &server->conns;
    pthread_mutex_lock(&conns->lock);
    (void)atomic_fetch_sub(&conns->open, 1);
    (void)epoll_ctl(server->watch_fd, EPOLL_CTL_DEL, conn->fd, NULL);
    int kept = conn->refused && atomic_load(&server->state) < FL_STOPPED
                   ? fcntl(conn->fd, F_DUPFD_CLOEXEC, 0)
                   : -1;
    if (kept >= 0) {
        struct epoll_event event = {0};
        (void)shutdown(kept, SHUT_WR);
        conn->fd     = kept;
        conn->linger = true;
        conn->generation++;
        atomic_store(&conn->since_ns, fl_clock_ns());
        event.events   = EPOLLIN | EPOLLRDHUP;
        event.data.u64 = tag_of(conn);
        (void)epoll_ctl(server->watch_fd, EPOLL_CTL_ADD, kept, &event);
    } else {
        give_record(conns, conn);
    }
    pthread_mutex_unlock(&conns->lock);
}

void fl_conn_attach(fl_server *server, fl_conn *conn, fl_request *request) {
    pthread_mutex_lock(&server->conns.lock);
    conn->request = request;
    pthread_mutex_unlock(&server->conns.lock);
}

void fl_conns_free(fl_server *server) {
    fl_conns *conns = &server->conns;
    for (uint32_t i = 0; i < conns->count; i++) {
        fl_conn *conn = record_at(conns, i);
        if (conn->used && conn->linger) {
            (void)close(conn->fd);
        }
    }
    for (uint32_t i = 0; i < conns->count / FL_CONN_CHUNK; i++) {
        fl_free(conns->chunk[i]);
        conns->chunk[i] = NULL;
    }
    conns->count = 0;
    conns->free  = NULL;
}

/* ---- Hang-ups --------------------------------------------------------------------------------------- */

/* The work that runs for a connection. Tickets are never used twice, so cancelling a stale one outside of
 * the lock is harmless; inside it would wake the connection, whose callbacks take the lock. */
typedef struct running {
    fletch_model *model;
    fletch_ticket ticket;
} running;

/* With the lock held. */
static running cancel_mark(const fl_conn *conn) {
    running found = {NULL, 0};
    if (conn->request != NULL && atomic_load(&conn->phase) == FL_PHASE_RUN) {
        fl_request_full *full = fl_full(conn->request);
        atomic_store(&full->shared.cancelled, true);
        found.ticket = atomic_load(&full->ticket);
        found.model  = found.ticket != 0 ? full->served->model : NULL;
    }
    return found;
}

static void hear_out(fl_conns *conns, fl_conn *conn) {
    char    sink[DISCARD];
    ssize_t got = recv(conn->fd, sink, sizeof sink, MSG_DONTWAIT);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) {
        return;
    }
    (void)close(conn->fd);
    give_record(conns, conn);
}

/* libmicrohttpd's epoll is edge-triggered, and it reads once per edge: an end that comes together with the
 * last bytes is never seen. Shutting the receiving side, which the peer has done already, loses nothing
 * and makes the kernel signal the socket once more. */
static void poke(const fl_conn *conn) {
    int phase = atomic_load(&conn->phase);
    if (phase == FL_PHASE_IDLE || phase == FL_PHASE_HEADERS || phase == FL_PHASE_BODY) {
        (void)shutdown(conn->fd, SHUT_RD);
    }
}

static void on_event(fl_server *server, uint64_t tag, uint32_t events) {
    fl_conns *conns = &server->conns;
    running   found = {NULL, 0};
    pthread_mutex_lock(&conns->lock);
    uint32_t index = (uint32_t)tag;
    fl_conn *conn  = index < conns->count ? record_at(conns, index) : NULL;
    if (conn != NULL && conn->used && conn->generation == (uint32_t)(tag >> 32)) {
        if (conn->linger) {
            hear_out(conns, conn);
        } else if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
            atomic_store(&conn->gone, true);
            found = cancel_mark(conn);
            poke(conn);
        }
    }
    pthread_mutex_unlock(&conns->lock);
    if (found.model != NULL) {
        (void)fletch_cancel(found.model, found.ticket);
    }
}

/* Run through all connections; `act` is called with the lock held, the cancelling is done outside. */
static void for_each(fl_server *server, running (*act)(fl_conn *conn)) {
    fl_conns *conns = &server->conns;
    for (uint32_t i = 0;; i++) {
        running found = {NULL, 0};
        pthread_mutex_lock(&conns->lock);
        bool more = i < conns->count;
        if (more && record_at(conns, i)->used && !record_at(conns, i)->linger) {
            found = act(record_at(conns, i));
        }
        pthread_mutex_unlock(&conns->lock);
        if (found.model != NULL) {
            (void)fletch_cancel(found.model, found.ticket);
        }
        if (!more) {
            return;
        }
    }
}

static running act_cancel(fl_conn *conn) {
    running found = {NULL, 0};
    if (conn->request != NULL && atomic_load(&conn->phase) == FL_PHASE_RUN) {
        found.ticket = atomic_load(&fl_full(conn->request)->ticket);
        found.model  = found.ticket != 0 ? fl_full(conn->request)->served->model : NULL;
    }
    return found;
}

void fl_cancel_all(fl_server *server) {
    for_each(server, act_cancel);
}

/* What runs is left to itself (its memory is never used again) and the client gets its 503. */
static running act_abandon(fl_conn *conn) {
    if (conn->request != NULL && atomic_load(&conn->phase) == FL_PHASE_RUN) {
        fl_request_full *full = fl_full(conn->request);
        if (atomic_load(&full->pending) > 0 && !atomic_exchange(&full->abandoned, true)) {
            fl_request_resume(full);
        }
    }
    return (running){NULL, 0};
}

void fl_abandon_all(fl_server *server) {
    for_each(server, act_abandon);
}

/* ---- Clocks --------------------------------------------------------------------------------------------- */

static uint64_t age(const fl_conn *conn, uint64_t now) {
    uint64_t since = atomic_load(&conn->since_ns);
    return now > since ? now - since : 0;
}

static uint64_t allowance(const fl_conn *conn, uint64_t base_ns) {
    return base_ns + atomic_load(&conn->bytes) / BYTES_PER_SECOND * second;
}

/* Whether bytes came on a connection that is between requests. */
static bool has_received(const fl_conn *conn, uint64_t now) {
    struct tcp_info info;
    socklen_t       size = sizeof info;
    if (!conn->tcp || getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
        return false;
    }
    uint64_t quiet = (uint64_t)info.tcpi_last_data_recv * 1000000u;
    return quiet + second / 50 < age(conn, now);
}

static void end(fl_server *server, fl_conn *conn, int phase, bool say) {
    int expected = phase;
    if (!atomic_compare_exchange_strong(&conn->phase, &expected, FL_PHASE_DEAD)) {
        return;
    }
    if (say) {
        fl_hand_slow(conn, phase != FL_PHASE_IDLE);
        fl_metrics_rejected(server->metrics, FL_REJECTED_SLOW);
    }
    (void)shutdown(conn->fd, SHUT_RDWR);
}

/* With the lock held. */
static void look_at(fl_server *server, fl_conn *conn, uint64_t now, bool whole_second) {
    int phase = atomic_load(&conn->phase);
    if (atomic_load(&conn->gone)) {
        poke(conn);
    }
    switch (phase) {
    case FL_PHASE_IDLE:
        if (age(conn, now) > server->idle_ns) {
            end(server, conn, phase, false);
        } else if (conn->drip_ns != 0) {
            if (conn->drip_ns < atomic_load(&conn->since_ns)) {
                conn->drip_ns = 0; /* a whole request has come and gone meanwhile */
            } else if (now - conn->drip_ns > server->header_ns) {
                end(server, conn, phase, true);
            }
        } else if (whole_second && age(conn, now) > second && has_received(conn, now)) {
            conn->drip_ns = now;
        }
        break;
    case FL_PHASE_HEADERS:
        if (age(conn, now) > server->header_ns) {
            end(server, conn, phase, true);
        }
        break;
    case FL_PHASE_BODY:
        if (age(conn, now) > allowance(conn, server->body_ns)) {
            end(server, conn, phase, true);
        }
        break;
    case FL_PHASE_WRITE:
        if (age(conn, now) > allowance(conn, FL_WRITE_SECONDS * second)) {
            end(server, conn, phase, false);
        }
        break;
    default: break;
    }
}

static void tick(fl_server *server, uint64_t now, bool whole_second) {
    fl_conns *conns = &server->conns;
    pthread_mutex_lock(&conns->lock);
    for (uint32_t i = 0; i < conns->count; i++) {
        fl_conn *conn = record_at(conns, i);
        if (!conn->used) {
            continue;
        }
        if (!conn->linger) {
            look_at(server, conn, now, whole_second);
        } else if (age(conn, now) > FL_LINGER_SECONDS * second) {
            (void)close(conn->fd);
            give_record(conns, conn);
        }
    }
    pthread_mutex_unlock(&conns->lock);
}

/* An engine that does not come back cannot be mended from inside: tell the clients, and let whoever
 * started the process start it again. */
static void bite(fl_server *server) {
    static const struct timespec moment = {0, 10000000};
    fl_server_log_line(server->log, FL_LEVEL_ERROR,
                       "an engine has not answered for %llu s (server.watchdog_seconds); ending "
                       "the process so that it can be started again",
                       (unsigned long long)(server->watchdog_ns / second));
    fl_abandon_all(server);
    for (int i = 0; i < GRACE_MOMENTS && atomic_load(&server->inflight) > 0; i++) {
        (void)nanosleep(&moment, NULL);
    }
    _exit(70);
}

/* ---- Signals ----------------------------------------------------------------------------------------------- */

static void on_signal(fl_server *server) {
    struct signalfd_siginfo info;
    while (read(server->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGHUP) {
            fl_server_reload(server);
            continue;
        }
        int before = atomic_fetch_add(&server->signals, 1);
        if (before == 0) {
            atomic_store(&server->first_signal, number);
        }
        if (before > 0 || atomic_load(&server->state) == FL_LOADING) {
            for (size_t i = 0; i < server->listener_count; i++) {
                if (server->listeners[i].path[0] != '\0') {
                    (void)unlink(server->listeners[i].path);
                }
            }
            _exit(before > 0 ? 128 + number : 0); /* asked twice, or nothing was under way */
        }
        uint64_t one     = 1;
        ssize_t  written = write(server->stop_fd, &one, sizeof one);
        (void)written; /* an eventfd takes it */
    }
}

static void *watch(void *arg) {
    fl_server         *server = arg;
    struct epoll_event events[EVENTS];
    uint64_t           next_tick = fl_clock_ns(), ticks = 0;
    while (atomic_load(&server->state) < FL_STOPPED) {
        uint64_t now  = fl_clock_ns();
        int      wait = now >= next_tick ? 0 : (int)((next_tick - now) / 1000000) + 1;
        int      got  = epoll_wait(server->watch_fd, events, EVENTS, wait);
        for (int i = 0; i < got; i++) {
            if (events[i].data.u64 == TAG_SIGNAL) {
                on_signal(server);
            } else {
                on_event(server, events[i].data.u64, events[i].events);
            }
        }
        now = fl_clock_ns();
        if (now < next_tick) {
            continue;
        }
        next_tick         = now + (uint64_t)TICK_MS * 1000000u;
        bool whole_second = ticks++ % (1000 / TICK_MS) == 0;
        tick(server, now, whole_second);
        if (whole_second && atomic_load(&server->state) >= FL_READY) {
            fl_models_tick(server, now);
            if (server->watchdog_ns > 0 && fl_models_stuck(server, now, server->watchdog_ns)) {
                bite(server);
            }
            fl_notify("WATCHDOG=1");
        }
    }
    return NULL;
}

static int add_descriptor(fl_server *server, int fd, uint64_t tag) {
    struct epoll_event event = {0};
    event.events             = EPOLLIN;
    event.data.u64           = tag;
    return epoll_ctl(server->watch_fd, EPOLL_CTL_ADD, fd, &event);
}

int fl_watch_start(fl_server *server, fletch_error *error) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    server->watch_fd  = epoll_create1(EPOLL_CLOEXEC);
    server->stop_fd   = eventfd(0, EFD_CLOEXEC);
    server->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (server->watch_fd < 0 || server->stop_fd < 0 || server->signal_fd < 0 ||
        add_descriptor(server, server->signal_fd, TAG_SIGNAL) != 0) {
        return fl_fail_errno(error, errno, "cannot watch", "the sockets");
    }
    int status       = fl_thread_start(&server->watch, "watch", watch, server, error);
    server->watching = status == FLETCH_OK;
    return status;
}

void fl_watch_stop(fl_server *server) {
    if (server->watching) {
        pthread_join(server->watch, NULL); /* it looks at the state four times a second */
        server->watching = false;
    }
    int *fds[] = {&server->watch_fd, &server->stop_fd, &server->signal_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (*fds[i] >= 0) {
            (void)close(*fds[i]);
        }
        *fds[i] = -1;
    }
}
