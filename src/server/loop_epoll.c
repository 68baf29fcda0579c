/* SPDX-License-Identifier: Apache-2.0 */
/* loop_epoll.c - how an I/O thread waits on Linux. See server_internal.h; loop_poll.c is the same elsewhere.
 *
 * Method  Each thread has an epoll of its own with the listening sockets (EPOLLEXCLUSIVE: one thread wakes per
 *         connection) and the connections that it accepted. Those are watched edge-triggered and once, so that a
 *         request costs no call to epoll. Other threads call by an eventfd.
 * Memory  One small block a thread. Threads: the I/O thread; fl_loop_wake any.
 * Proof   tests/server. */
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/file.h"
#include "base/mem.h"
#include "server/server_internal.h"

enum { EVENTS = 128 };

struct fl_loop {
    int epoll, wake;
};

fl_loop *fl_loop_open(void) {
    fl_loop *loop = fl_alloc(sizeof *loop);
    if (loop == NULL)
        return NULL;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = FL_LISTENERS};
    loop->epoll              = epoll_create1(EPOLL_CLOEXEC);
    loop->wake               = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->epoll < 0 || loop->wake < 0 ||
        epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->wake, &event) != 0) {
        fl_loop_close(loop);
        return NULL;
    }
    return loop;
}

void fl_loop_close(fl_loop *loop) {
    if (loop != NULL) {
        fl_close(loop->epoll);
        fl_close(loop->wake);
        fl_free(loop);
    }
}

void fl_loop_wake(fl_loop *loop) {
    (void)eventfd_write(loop->wake, 1);
}

bool fl_loop_listen(fl_io *io, size_t listener, bool on) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.u64 = listener};
    return epoll_ctl(io->loop->epoll, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL,
                     io->server->listeners[listener].fd, &event) == 0;
}

bool fl_loop_add(fl_conn *conn) {
    struct epoll_event event = {.events   = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = conn};
    return epoll_ctl(conn->io->loop->epoll, EPOLL_CTL_ADD, conn->fd, &event) == 0;
}

void fl_loop_wait(fl_io *io, int timeout_ms) {
    struct epoll_event events[EVENTS];
    eventfd_t          seen;
    int                count = epoll_wait(io->loop->epoll, events, EVENTS, timeout_ms);
    for (int i = 0; i < count; i++) {
        const uint64_t tag = events[i].data.u64;
        const uint32_t got = events[i].events;
        if (tag < FL_LISTENERS) {
            fl_transport_knocked(io, tag);
        } else if (tag == FL_LISTENERS) {
            (void)eventfd_read(io->loop->wake, &seen);
            fl_transport_called(io);
        } else {
            fl_conn_event(events[i].data.ptr, (got & EPOLLIN) != 0,
                          (got & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
        }
    }
}
