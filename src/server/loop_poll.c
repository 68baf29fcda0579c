/* SPDX-License-Identifier: Apache-2.0 */
/* loop_poll.c - how an I/O thread waits where there is no epoll: by poll(2), on Windows by WSAPoll.
 *
 * Why     One way for macOS, BSD and Windows, of which every line runs on Linux: tools/poll.sh has all of
 *         tests/server pass through it. kqueue would be a second one that nothing here can run, IOCP completes reads
 *         instead of telling that one may read, which turns connection.c round, wepoll rests on what Windows does
 *         not document, and libuv would be a library and a second event loop around the same machine of phases.
 *         What poll costs is a look at every connection a turn: of processor time 0.02 ms with 100 that are open, 0.4
 *         with 1,000, 3 with 5,000 (Linux), where a short text takes some 5. With few it costs what epoll does.
 * Method  Nothing is kept between turns: what a connection waits for follows from its phase and its flags. Whoever
 *         has more to be read is not asked about again, as with an edge-triggered epoll.
 *         That a peer has shut its side while its request runs is seen by looking at the next byte, for POLLRDHUP
 *         is Linux's alone; whoever has sent more by then is seen to have left when that was read.
 * Memory  Two arrays a thread, as long as it ever had connections. Threads: the I/O thread; fl_loop_wake any.
 * Proof   tools/poll.sh; tests/server/test_poll.py. */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/os.h"
#include "server/server_internal.h"

enum { FIRST = 64, SHUT_MS = 20 };

_Static_assert((int)FIRST > (int)FL_LISTENERS, "wake and the listeners always have a place");

struct fl_loop {
    int            wake[2];
    struct pollfd *fds; /* of wake, the listeners, the connections */
    fl_conn      **conns;
    size_t         count, capacity;
};

static bool grow(fl_loop *loop, size_t capacity) {
    struct pollfd *fds = fl_realloc_array(loop->fds, capacity, sizeof *fds);
    loop->fds          = fds != NULL ? fds : loop->fds;
    fl_conn **conns    = fl_realloc_array(loop->conns, capacity, sizeof *conns);
    loop->conns        = conns != NULL ? conns : loop->conns;
    loop->capacity     = fds != NULL && conns != NULL ? capacity : loop->capacity;
    return loop->capacity == capacity;
}

fl_loop *fl_loop_open(void) {
    fl_loop *loop = fl_alloc_zero(1, sizeof *loop);
    if (loop == NULL || !fl_os_pair(loop->wake)) {
        fl_free(loop);
        return NULL;
    }
    if (!grow(loop, FIRST)) {
        fl_loop_close(loop);
        return NULL;
    }
    return loop;
}

void fl_loop_close(fl_loop *loop) {
    if (loop != NULL) {
        fl_close(loop->wake[0]);
        fl_close(loop->wake[1]);
        fl_free(loop->fds);
        fl_free(loop->conns);
        fl_free(loop);
    }
}

void fl_loop_wake(fl_loop *loop) {
    (void)send(loop->wake[1], "", 1, MSG_NOSIGNAL); /* full: it was called already */
}

bool fl_loop_listen(fl_io *io, size_t listener, bool on) {
    (void)io, (void)listener, (void)on; /* io->listens says it */
    return true;
}

bool fl_loop_add(fl_conn *conn) {
    (void)conn; /* io's lists say it */
    return true;
}

/* Without memory who is left out waits for another turn; the clock brings one four times a second. */
static void ask(fl_loop *loop, int fd, int events, fl_conn *conn) {
    if (loop->count < loop->capacity || grow(loop, 2 * loop->capacity)) {
        loop->fds[loop->count]     = (struct pollfd){.fd = fd, .events = (short)events};
        loop->conns[loop->count++] = conn;
    }
}

/* Whether its peer has shut its side, or broken off, with nothing before that to be read. */
static bool has_left(fl_conn *conn) {
    char          next;
    const ssize_t got = recv(conn->fd, &next, 1, MSG_PEEK | MSG_DONTWAIT);
    conn->readable    = got > 0; /* else poll is asked to tell */
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/* Ask about the connections of a list; how long to wait for an answer. Whoever has shut its side and takes a reply
 * slowly is tried again soon instead: some systems tell POLLHUP of it without end. */
static int ask_all(fl_loop *loop, fl_conn *list, int timeout_ms) {
    for (fl_conn *conn = list->next; conn != list; conn = conn->next) {
        const bool writes = conn->phase == FL_PHASE_WRITE;
        if (conn->phase == FL_PHASE_RUN && conn->readable && !conn->gone && has_left(conn))
            fl_conn_event(conn, true, true); /* what runs is cancelled; it stays where it is */
        if (!conn->gone) {
            ask(loop, conn->fd, (conn->readable ? 0 : POLLIN) | (writes ? POLLOUT : 0), conn);
        } else if (writes) {
            ask(loop, -1, 0, conn);
            timeout_ms = timeout_ms < SHUT_MS ? timeout_ms : SHUT_MS;
        }
    }
    return timeout_ms;
}

void fl_loop_wait(fl_io *io, int timeout_ms) {
    fl_loop       *loop    = io->loop;
    const uint32_t listens = io->listens;
    char           calls[64];
    size_t         at = 1;
    loop->count       = 0;
    ask(loop, loop->wake[0], POLLIN, NULL);
    for (size_t i = 0; i < io->server->listener_count; i++)
        if ((listens >> i & 1) != 0)
            ask(loop, io->server->listeners[i].fd, POLLIN, NULL);
    timeout_ms = ask_all(loop, &io->busy, timeout_ms);
    timeout_ms = ask_all(loop, &io->lingering, timeout_ms);
    timeout_ms = ask_all(loop, &io->idle, timeout_ms);
    (void)poll(loop->fds, (nfds_t)loop->count, timeout_ms);
    if (loop->fds[0].revents != 0) {
        while (recv(loop->wake[0], calls, sizeof calls, 0) == (ssize_t)sizeof calls) {
        }
        fl_transport_called(io);
    }
    for (size_t i = 0; i < FL_LISTENERS; i++)
        if ((listens >> i & 1) != 0 && loop->fds[at++].revents != 0)
            fl_transport_knocked(io, i);
    for (; at < loop->count; at++) {
        const int got = loop->fds[at].revents;
        if (got != 0 || loop->fds[at].fd < 0)
            fl_conn_event(loop->conns[at], (got & POLLIN) != 0, (got & (POLLHUP | POLLERR)) != 0);
    }
}
