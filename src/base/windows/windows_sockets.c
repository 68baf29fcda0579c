/* SPDX-License-Identifier: Apache-2.0 */
/* windows_sockets.c - sockets and poll for posix.h.
 *
 * Method  A socket's handle is wrapped as a descriptor of the C library, whose close ends it.
 * Memory  Stack only.
 * Threads any; Winsock counts how often it was started.
 * Proof   none but the compiler's; `fletch health` against a server, by hand. */
#define FL_WINSOCK
#include "base/windows/sockets.h"

#include <limits.h>

static SOCKET socket_of(int fd) {
    return (SOCKET)_get_osfhandle(fd);
}

/* errno from Winsock's error; -1 for the caller to return. */
static int failed(void) {
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
                      {WSAEAFNOSUPPORT, EAFNOSUPPORT}};
    const int last = WSAGetLastError();
    errno          = EIO;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].winsock == last) {
            errno = table[i].posix;
        }
    }
    return -1;
}

static void start(void) {
    WSADATA about;
    (void)WSAStartup(MAKEWORD(2, 2), &about);
}

int posix_socket(int family, int type, int protocol) {
    start();
    const SOCKET made = socket(family, type, protocol);
    if (made == INVALID_SOCKET) {
        return failed();
    }
    const int fd = _open_osfhandle((intptr_t)made, O_BINARY | O_NOINHERIT);
    if (fd < 0) {
        (void)closesocket(made);
    }
    return fd;
}

int posix_connect(int fd, const struct sockaddr *address, int size) {
    if (connect(socket_of(fd), address, size) == 0) {
        return 0;
    }
    (void)failed();
    errno = errno == EAGAIN ? EINPROGRESS : errno;
    return -1;
}

int posix_nonblocking(int fd) {
    u_long on = 1;
    return ioctlsocket(socket_of(fd), (long)FIONBIO, &on) == 0 ? 0 : failed();
}

ssize_t posix_send(int fd, const void *data, size_t size, int flags) {
    const int count = send(socket_of(fd), data, size < INT_MAX ? (int)size : INT_MAX, flags);
    return count >= 0 ? count : failed();
}

ssize_t posix_recv(int fd, void *out, size_t size, int flags) {
    const int count = recv(socket_of(fd), out, size < INT_MAX ? (int)size : INT_MAX, flags);
    return count >= 0 ? count : failed();
}

/* SO_ERROR as an errno. */
int posix_getsockopt(int fd, int level, int option, void *out, socklen_t *size) {
    if (getsockopt(socket_of(fd), level, option, out, size) != 0) {
        return failed();
    }
    int *reason = out;
    if (option == SO_ERROR && *reason != 0) {
        WSASetLastError(*reason);
        (void)failed();
        *reason = errno;
    }
    return 0;
}

int posix_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                      struct addrinfo **out) {
    start();
    return getaddrinfo(host, port, hints, out);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* Which of the events a call would not wait for. */
static short events_of(int fd, short wanted) {
    HANDLE    file = (HANDLE)_get_osfhandle(fd);
    int       type = 0, size = sizeof type;
    DWORD     waiting;
    WSAPOLLFD one = {.fd = socket_of(fd), .events = 0};
    if (getsockopt(socket_of(fd), SOL_SOCKET, SO_TYPE, (char *)&type, &size) == 0) {
        one.events =
            (short)((wanted & POLLIN ? POLLRDNORM : 0) | (wanted & POLLOUT ? POLLWRNORM : 0));
        return WSAPoll(&one, 1, 0) != 0 ? wanted : 0;
    }
    if ((wanted & POLLIN) == 0) {
        return wanted;
    }
    switch (GetFileType(file)) {
    case FILE_TYPE_PIPE:
        return PeekNamedPipe(file, NULL, 0, NULL, &waiting, NULL) && waiting == 0 ? 0 : wanted;
    case FILE_TYPE_CHAR: return WaitForSingleObject(file, 0) == WAIT_OBJECT_0 ? wanted : 0;
    default: return wanted;
    }
}

int poll(struct posix_pollfd *fds, unsigned count, int timeout_ms) {
    enum { STEP_MS = 10 };
    for (int waited = 0;; waited += STEP_MS) {
        int ready = 0;
        for (unsigned i = 0; i < count; i++) {
            fds[i].revents = events_of(fds[i].fd, fds[i].events);
            ready += fds[i].revents != 0;
        }
        if (ready > 0 || (timeout_ms >= 0 && waited >= timeout_ms)) {
            return ready;
        }
        Sleep(STEP_MS);
    }
}
