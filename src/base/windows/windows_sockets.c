/* SPDX-License-Identifier: Apache-2.0 */
/* windows_sockets.c - sockets and poll for posix.h, and what os.h says of sockets.
 *
 * Method  A socket's handle is a small number; with one bit set it is its descriptor. The C library would wrap it
 *         as well, but has 2,048 descriptors, and its close leaks what Winsock keeps of a socket.
 * Memory  poll of more than a few sockets takes a block for as long as it waits.
 * Threads any; Winsock counts how often it was started.
 * Proof   tests/server under wine: tools/cross.sh windows. */
#define FL_WINSOCK
#include "base/windows/sockets.h"

#include <limits.h>

#include "base/mem.h"
#include "base/os.h"

enum { SOCKETS = 1 << 30 };

static bool is_socket(int fd) {
    return fd >= SOCKETS;
}

static SOCKET socket_of(int fd) {
    return is_socket(fd) ? (SOCKET)(fd - SOCKETS) : INVALID_SOCKET;
}

/* errno from Winsock's error; -1 for the caller to return. */
static int winsock_failed(void) {
    static const struct {
        int winsock, posix;
    } table[]      = {{WSAEWOULDBLOCK, EAGAIN},
                      {WSAECONNREFUSED, ECONNREFUSED},
                      {WSAECONNRESET, ECONNRESET},
                      {WSAECONNABORTED, ECONNRESET},
                      {WSAESHUTDOWN, EPIPE},
                      {WSAETIMEDOUT, ETIMEDOUT},
                      {WSAEHOSTUNREACH, EHOSTUNREACH},
                      {WSAENETUNREACH, EHOSTUNREACH},
                      {WSAEINTR, EINTR},
                      {WSAEAFNOSUPPORT, EAFNOSUPPORT},
                      {WSAEADDRINUSE, EADDRINUSE},
                      {WSAEACCES, EADDRINUSE}, /* of a port that is somebody's alone */
                      {WSAEADDRNOTAVAIL, EADDRNOTAVAIL},
                      {WSAEMFILE, EMFILE},
                      {WSAENOBUFS, ENOBUFS}};
    const int last = WSAGetLastError();
    errno          = EIO;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].winsock == last)
            errno = table[i].posix;
    return -1;
}

static void start(void) {
    WSADATA about;
    (void)WSAStartup(MAKEWORD(2, 2), &about);
}

static int descriptor_of(SOCKET made) {
    if (made == INVALID_SOCKET)
        return winsock_failed();
    if (made >= SOCKETS) {
        (void)closesocket(made);
        errno = EMFILE;
        return -1;
    }
    (void)SetHandleInformation((HANDLE)made, HANDLE_FLAG_INHERIT, 0);
    return (int)made + SOCKETS;
}

int posix_socket(int family, int type, int protocol) {
    if (family ==
        AF_UNIX) { /* Windows has some: without modes that keep others out, and no datagrams */
        errno = EAFNOSUPPORT;
        return -1;
    }
    start();
    return descriptor_of(socket(family, type, protocol));
}

int posix_close(int fd) {
    return !is_socket(fd) ? _close(fd) : closesocket(socket_of(fd)) == 0 ? 0 : winsock_failed();
}

int posix_bind(int fd, const struct sockaddr *address, socklen_t size) {
    return bind(socket_of(fd), address, size) == 0 ? 0 : winsock_failed();
}

int posix_listen(int fd, int backlog) {
    return listen(socket_of(fd), backlog) == 0 ? 0 : winsock_failed();
}

int posix_shutdown(int fd, int how) {
    return shutdown(socket_of(fd), how) == 0 ? 0 : winsock_failed();
}

int posix_connect(int fd, const struct sockaddr *address, int size) {
    if (connect(socket_of(fd), address, size) == 0)
        return 0;
    (void)winsock_failed();
    errno = errno == EAGAIN ? EINPROGRESS : errno;
    return -1;
}

int posix_nonblocking(int fd) {
    u_long on = 1;
    return ioctlsocket(socket_of(fd), (long)FIONBIO, &on) == 0 ? 0 : winsock_failed();
}

ssize_t posix_send(int fd, const void *data, size_t size, int flags) {
    const int count = send(socket_of(fd), data, size < INT_MAX ? (int)size : INT_MAX, flags);
    return count >= 0 ? count : winsock_failed();
}

ssize_t posix_sendmsg(int fd, const struct msghdr *message, int flags) {
    enum { PARTS = 8 };
    WSABUF part[PARTS];
    DWORD  count = 0, sent = 0;
    for (; count < PARTS && count < message->msg_iovlen; count++) {
        const struct iovec *from = &message->msg_iov[count];
        part[count].buf          = from->iov_base;
        part[count].len          = from->iov_len < INT_MAX ? (ULONG)from->iov_len : INT_MAX;
    }
    return WSASend(socket_of(fd), part, count, &sent, (DWORD)flags, NULL, NULL) == 0
               ? (ssize_t)sent
               : winsock_failed();
}

ssize_t posix_recv(int fd, void *out, size_t size, int flags) {
    const int count = recv(socket_of(fd), out, size < INT_MAX ? (int)size : INT_MAX, flags);
    return count >= 0 ? count : winsock_failed();
}

int posix_getsockname(int fd, struct sockaddr *out, socklen_t *size) {
    return getsockname(socket_of(fd), out, size) == 0 ? 0 : winsock_failed();
}

int posix_setsockopt(int fd, int level, int option, const void *value, socklen_t size) {
    return setsockopt(socket_of(fd), level, option, value, size) == 0 ? 0 : winsock_failed();
}

/* SO_ERROR as an errno. */
int posix_getsockopt(int fd, int level, int option, void *out, socklen_t *size) {
    if (getsockopt(socket_of(fd), level, option, out, size) != 0)
        return winsock_failed();
    int *reason = out;
    if (option == SO_ERROR && *reason != 0) {
        WSASetLastError(*reason);
        (void)winsock_failed();
        *reason = errno;
    }
    return 0;
}

int posix_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                      struct addrinfo **out) {
    start();
    return getaddrinfo(host, port, hints, out);
}

/* ---- What os.h says of them ------------------------------------------------------------------ */

void fl_os_tame(int fd) {
    (void)posix_nonblocking(fd); /* and no other program has it as it is */
}

int fl_os_accept(int listener) {
    const int one = 1;
    const int fd  = descriptor_of(accept(socket_of(listener), NULL, NULL));
    if (fd >= 0) {
        fl_os_tame(fd);
        (void)posix_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    return fd;
}

void fl_os_hush(int listener) {
    (void)listener;
}

static bool is_same(const struct sockaddr_in *a, const struct sockaddr_in *b) {
    return a->sin_port == b->sin_port && a->sin_addr.s_addr == b->sin_addr.s_addr;
}

/* Over the loopback; another program may have been quicker to connect. */
bool fl_os_pair(int fds[2]) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in ours = here, theirs = here;
    int                size = sizeof here, one = 1;
    const int          listener = posix_socket(AF_INET, SOCK_STREAM, 0);
    fds[0]                      = -1;
    fds[1]                      = posix_socket(AF_INET, SOCK_STREAM, 0);
    if (listener >= 0 && fds[1] >= 0 &&
        posix_bind(listener, (const struct sockaddr *)&here, size) == 0 &&
        posix_listen(listener, 1) == 0 &&
        posix_getsockname(listener, (struct sockaddr *)&here, &size) == 0 &&
        posix_connect(fds[1], (const struct sockaddr *)&here, size) == 0 &&
        posix_getsockname(fds[1], (struct sockaddr *)&ours, &size) == 0)
        fds[0] = descriptor_of(accept(socket_of(listener), (struct sockaddr *)&theirs, &size));
    const int  reason = errno;
    const bool whole  = fds[0] >= 0 && is_same(&ours, &theirs);
    if (listener >= 0)
        (void)posix_close(listener);
    for (int i = 0; i < 2 && fds[i] >= 0; i++) {
        fl_os_tame(fds[i]);
        (void)posix_setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    if (!whole) {
        (void)(fds[0] >= 0 && posix_close(fds[0]));
        (void)(fds[1] >= 0 && posix_close(fds[1]));
        errno = fds[0] >= 0 ? ECONNABORTED : reason;
    }
    return whole;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static int wait_sockets(struct posix_pollfd *fds, nfds_t count, int timeout_ms) {
    enum { FEW = 32 };
    WSAPOLLFD  few[FEW];
    WSAPOLLFD *all  = count <= FEW ? few : fl_alloc(count * sizeof *all);
    ULONG      used = 0;
    for (nfds_t i = 0; i < count && all != NULL; i++) {
        fds[i].revents = 0;
        if (fds[i].fd >= 0)
            all[used++] = (WSAPOLLFD){.fd = socket_of(fds[i].fd), .events = fds[i].events};
    }
    const int ready = used > 0 ? WSAPoll(all, used, timeout_ms) : 0;
    for (nfds_t i = count; i > 0 && ready > 0; i--)
        fds[i - 1].revents = fds[i - 1].fd >= 0 ? all[--used].revents : 0;
    if (used == 0 && all == NULL) /* no memory: not at once again */
        Sleep(1);
    if (all != few)
        fl_free(all);
    return ready;
}

/* Which of the events of a file a call would not wait for. */
static short events_of(int fd, short wanted) {
    HANDLE file = (HANDLE)_get_osfhandle(fd);
    DWORD  waiting;
    if ((wanted & POLLIN) == 0)
        return wanted;
    switch (GetFileType(file)) {
    case FILE_TYPE_PIPE:
        return PeekNamedPipe(file, NULL, 0, NULL, &waiting, NULL) && waiting == 0 ? 0 : wanted;
    case FILE_TYPE_CHAR: return WaitForSingleObject(file, 0) == WAIT_OBJECT_0 ? wanted : 0;
    default: return wanted;
    }
}

int poll(struct posix_pollfd *fds, nfds_t count, int timeout_ms) {
    enum { STEP_MS = 10 };
    bool files = false;
    for (nfds_t i = 0; i < count; i++)
        files = files || (fds[i].fd >= 0 && !is_socket(fds[i].fd));
    if (!files)
        return wait_sockets(fds, count, timeout_ms);
    for (int waited = 0;; waited += STEP_MS) {
        int ready = 0;
        for (nfds_t i = 0; i < count; i++) {
            if (fds[i].fd < 0 || is_socket(fds[i].fd))
                (void)wait_sockets(&fds[i], 1, 0);
            else
                fds[i].revents = events_of(fds[i].fd, fds[i].events);
            ready += fds[i].revents != 0;
        }
        if (ready > 0 || (timeout_ms >= 0 && waited >= timeout_ms))
            return ready;
        Sleep(STEP_MS);
    }
}
