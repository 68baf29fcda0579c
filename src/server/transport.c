/* SPDX-License-Identifier: Apache-2.0 */
/* transport.c - the I/O threads: who is let in, whose turn it is, and how other threads reach them.
 *
 * Method  Each thread has a loop of its own (loop_epoll.c, loop_poll.c) with the listening sockets and the
 *         connections that it accepted; they stay with it, so nothing of them needs a lock.
 *         Other threads hand an answered request back through a list without locks, and wake the loop
 *         only when the list was empty.
 *         Idle connections lie in a ring in the order of their clocks: ten thousand of them cost a look at
 *         the first. Those that are under way are few and are all looked at, four times a second.
 *         At server.max_connections, and without file descriptors, a thread stops listening until somebody
 *         leaves; who waits is accepted then. Who only lingers leaves at once when another comes.
 *         Sockets that systemd passed are listened to from the moment the models are ready to the first
 *         signal: who connects before or after waits in them, for this process or the next.
 * Threads One per fl_io; start, quiesce and stop: main; wake, cancel, abandon and answer: any.
 * Proof   tests/server/test_transport*.py. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/thread.h"
#include "server/server_internal.h"

enum {
    ACCEPTS      = 64,  /* in a row */
    TICK_MS      = 250, /* between looks at the clocks */
    END_MS       = 20,  /* the same while the server ends */
    IO_PER_CORES = 8,
    IO_DEFAULT   = 4, /* one I/O thread for so many cores */
    QUIESCE_MS   = 5000
};

enum { ORDER_CANCEL = 1, ORDER_ABANDON = 2, ORDER_FLOW = 4 };

/* ---- From other threads ---------------------------------------------------------------------------- */

void fl_transport_answer(fl_request_full *full) {
    assert(full->conn);
    fl_io           *io    = full->conn->io;
    fl_request_full *first = atomic_load(&io->answered);
    do {
        full->next = first;
    } while (!atomic_compare_exchange_weak(&io->answered, &first, full));
    if (first == NULL)
        fl_loop_wake(io->loop);
}

void fl_transport_wake(fl_server *server) {
    for (size_t i = 0; i < server->io_count; i++)
        fl_loop_wake(server->io[i]->loop);
}

static void order(fl_server *server, int what) {
    for (size_t i = 0; i < server->io_count; i++)
        (void)atomic_fetch_or(&server->io[i]->orders, what);
    fl_transport_wake(server);
}

void fl_transport_flow(fl_io *io) {
    (void)atomic_fetch_or(&io->orders, ORDER_FLOW);
    fl_loop_wake(io->loop);
}

void fl_transport_cancel(fl_server *server) {
    order(server, ORDER_CANCEL);
}

void fl_transport_abandon(fl_server *server) {
    order(server, ORDER_ABANDON);
}

/* ---- Connections ------------------------------------------------------------------------------------ */

void fl_transport_move(fl_conn *conn, fl_conn *list) {
    if (conn->next != NULL) {
        conn->prev->next = conn->next;
        conn->next->prev = conn->prev;
        conn->next = conn->prev = NULL;
    }
    if (list != NULL) {
        conn->prev       = list->prev;
        conn->next       = list;
        list->prev->next = conn;
        list->prev       = conn;
    }
}

const char *fl_transport_date(fl_io *io) {
    time_t    now = time(NULL);
    struct tm parts;
    if (now != io->date_second) {
        static const char days[]   = "SunMonTueWedThuFriSat";
        static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
        gmtime_r(&now, &parts); /* strftime would follow the locale */
        snprintf(io->date, sizeof io->date, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT",
                 days + 3 * parts.tm_wday, parts.tm_mday, months + 3 * parts.tm_mon,
                 parts.tm_year + 1900, parts.tm_hour, parts.tm_min, parts.tm_sec);
        io->date_second = now;
    }
    return io->date;
}

/* Take back what other threads have done, in the order in which they did it. */
static void take_answers(fl_io *io) {
    fl_request_full *newest = atomic_exchange(&io->answered, NULL), *oldest = NULL;
    while (newest != NULL) {
        fl_request_full *next = newest->next;
        newest->next          = oldest;
        oldest                = newest;
        newest                = next;
    }
    while (oldest != NULL) {
        fl_request_full *next = oldest->next;
        oldest->next          = NULL;
        fl_conn_answered(oldest);
        oldest = next;
    }
}

static void obey(fl_io *io) {
    int orders = atomic_exchange(&io->orders, 0);
    for (fl_conn *conn = io->busy.next, *next; orders != 0 && conn != &io->busy; conn = next) {
        next = conn->next;
        if ((orders & ORDER_CANCEL) != 0)
            fl_conn_cancel(conn);
        if ((orders & ORDER_ABANDON) != 0)
            fl_conn_abandon(conn);
        if ((orders & ORDER_FLOW) != 0)
            fl_conn_flow(conn);
    }
}

/* The last connection stays the last however the list changes: who is looked at goes to the end of no list. */
static void look(fl_io *io, uint64_t now) {
    bool ending = atomic_load(&io->server->state) >= FL_CLOSING;
    for (fl_conn *conn = io->busy.next, *next; conn != &io->busy; conn = next) {
        next = conn->next;
        fl_conn_look(conn, now);
    }
    for (fl_conn *conn = io->lingering.next, *next; conn != &io->lingering; conn = next) {
        next = conn->next;
        fl_conn_look(conn, now);
    }
    for (fl_conn *conn = io->idle.next, *next; conn != &io->idle; conn = next) {
        next = conn->next;
        fl_conn_look(conn, now);
        if (!ending && conn->phase == FL_PHASE_IDLE)
            break; /* those that follow have waited for less long */
    }
}

static void go_on(fl_io *io) {
    fl_conn *conn = io->again;
    io->again     = NULL;
    while (conn != NULL) {
        fl_conn *next = conn->next_again;
        conn->again   = false;
        fl_conn_advance(conn);
        conn = next;
    }
}

static void bury(fl_io *io) {
    fl_conn *kept = NULL;
    while (io->dead != NULL) {
        fl_conn *conn = io->dead;
        io->dead      = conn->next;
        if (conn->again) { /* still in that list: next time */
            conn->next = kept;
            kept       = conn;
        } else {
            fl_free(conn);
        }
    }
    io->dead = kept;
}

/* ---- Listening ---------------------------------------------------------------------------------------- */

/* How many connections there are beyond server.max_connections. Those that linger have a descriptor, too, but give it
 * up to who comes. */
static int64_t surplus(const fl_server *server) {
    return (int64_t)atomic_load(&server->open) + atomic_load(&server->lingering) -
           (int64_t)server->max_connections;
}

static bool has_room(const fl_io *io) {
    return surplus(io->server) < 0 || io->lingering.next != &io->lingering;
}

static void keep_bound(fl_io *io) {
    while (surplus(io->server) > 0 && io->lingering.next != &io->lingering)
        fl_conn_make_room(io->lingering.next); /* who has lingered the longest */
}

static bool may_listen(const fl_io *io, const fl_listener *listener) {
    int state = atomic_load(&io->server->state);
    return listener->inherited ? state == FL_READY : state < FL_DRAINING;
}

/* Listen where that is right now, and nowhere else. */
static void listen_where_due(fl_io *io) {
    fl_server *server = io->server;
    io->full          = io->full && !has_room(io);
    for (size_t i = 0; i < server->listener_count; i++) {
        bool due = may_listen(io, &server->listeners[i]) && !io->full && !io->starved;
        bool is  = (io->listens >> i & 1) != 0;
        if (due != is) {
            if (fl_loop_listen(io, i, due)) {
                io->listens ^= 1u << i;
            } else {
                io->starved =
                    io->starved || due; /* looked at again soon, as for want of descriptors */
            }
        }
    }
}

/* False: nobody waits, or nobody can be taken now. Who waits in an inherited socket would be answered by
 * the next process; whom we take from there, we answer. */
static bool accept_one(fl_io *io, const fl_listener *listener) {
    int fd = fl_os_accept(listener->fd);
    if (fd >= 0) {
        const bool last = atomic_load(&io->server->state) >= FL_DRAINING;
        fl_conn_open(io, fd, listener->inherited || last);
        keep_bound(io);
        return true;
    }
    io->starved |= errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
    return errno == EINTR || errno == ECONNABORTED;
}

void fl_transport_knocked(fl_io *io, size_t which) {
    const fl_listener *listener = &io->server->listeners[which];
    for (int i = 0; i < ACCEPTS; i++) {
        if (!has_room(io)) {
            io->full = true;
            break;
        }
        if ((listener->inherited && !may_listen(io, listener)) || !accept_one(io, listener))
            break;
    }
    if (io->full || io->starved)
        listen_where_due(io);
}

/* Who was connected before the socket closes would be reset: take them all, and answer them. */
static void accept_the_last(fl_io *io) {
    fl_server *server = io->server;
    if (io->quiet || atomic_load(&server->state) < FL_DRAINING)
        return;
    for (size_t i = 0; i < server->listener_count; i++) {
        while (!server->listeners[i].inherited && accept_one(io, &server->listeners[i])) {
        }
    }
    io->quiet = true;
    (void)atomic_fetch_add(&server->quiet, 1);
}

void fl_transport_called(fl_io *io) {
    listen_where_due(io);
    accept_the_last(io);
}

/* ---- The thread --------------------------------------------------------------------------------------- */

static bool is_empty(const fl_io *io) {
    return io->idle.next == &io->idle && io->busy.next == &io->busy &&
           io->lingering.next == &io->lingering;
}

static int patience(const fl_io *io, uint64_t now, uint64_t next_look) {
    if (io->again != NULL || atomic_load(&io->orders) != 0)
        return 0;
    if (is_empty(io) && !io->full && !io->starved)
        return -1;
    return now >= next_look ? 0 : (int)((next_look - now) / 1000000) + 1;
}

static bool is_over(const fl_io *io) {
    return atomic_load(&io->server->state) == FL_STOPPED && is_empty(io);
}

static void *serve(void *arg) {
    fl_io           *io        = arg;
    const fl_server *server    = io->server;
    uint64_t         next_look = 0;
    listen_where_due(io);
    while (!is_over(io)) {
        fl_loop_wait(io, patience(io, fl_clock_ns(), next_look));
        take_answers(io);
        obey(io);
        go_on(io);
        if (io->full) /* somebody may have left just now: who waits is not to wait for the clock */
            listen_where_due(io);
        uint64_t now    = fl_clock_ns();
        bool     ending = atomic_load(&server->state) >= FL_CLOSING;
        if (now >= next_look || ending) {
            look(io, now);
            io->starved = false;
            listen_where_due(io);
            next_look = now + (uint64_t)(ending ? END_MS : TICK_MS) * 1000000u;
        }
        bury(io);
    }
    bury(io);
    return NULL;
}

static unsigned io_threads(const fl_server *server) {
    uint64_t asked = fl_server_number(server, "server.io_threads", 0);
    unsigned best  = 1 + fl_os_processors() / IO_PER_CORES;
    best           = best < IO_DEFAULT ? best : IO_DEFAULT;
    return asked == 0 ? best : asked < FL_IO_MAX ? (unsigned)asked : FL_IO_MAX;
}

static int start_one(fl_server *server, fletch_error *error) {
    fl_io *io = fl_alloc_zero(1, sizeof *io);
    if (io == NULL)
        return fl_fail_nomem(error, sizeof *io, "an I/O thread");
    io->server    = server;
    io->idle.next = io->idle.prev = &io->idle;
    io->busy.next = io->busy.prev = &io->busy;
    io->lingering.next = io->lingering.prev = &io->lingering;
    io->loop                                = fl_loop_open();
    if (io->loop == NULL) {
        const int reason = errno;
        fl_free(io);
        return fl_fail_errno(error, reason, "cannot watch", "the sockets");
    }
    server->io[server->io_count++] = io;
    io->running = true; /* the thread's neighbours in memory are its own from here on */
    int status  = fl_thread_start(&io->thread, "io", serve, io, error);
    if (status != FLETCH_OK)
        io->running = false;
    return status;
}

int fl_transport_start(fl_server *server, fletch_error *error) {
    int status = FLETCH_OK;
    for (unsigned i = io_threads(server); i > 0 && status == FLETCH_OK; i--)
        status = start_one(server, error);
    return status;
}

void fl_transport_quiesce(fl_server *server) {
    static const struct timespec moment = {0, 1000000};
    fl_transport_wake(server);
    for (int i = 0; i < QUIESCE_MS && atomic_load(&server->quiet) < (int)server->io_count; i++)
        (void)nanosleep(&moment, NULL);
    for (size_t i = 0; i < server->listener_count; i++) {
        fl_listener *listener = &server->listeners[i];
        if (!listener->inherited) {
            (void)close(listener->fd);
            listener->fd = -1;
        }
    }
}

void fl_transport_stop(fl_server *server) {
    fl_transport_wake(server);
    for (size_t i = 0; i < server->io_count; i++) {
        fl_io *io = server->io[i];
        if (io->running)
            pthread_join(io->thread, NULL);
        fl_loop_close(io->loop);
        while (io->spare_count > 0)
            fl_buf_free(&io->spare[--io->spare_count]);
        fl_free(io);
    }
    server->io_count = 0;
}
