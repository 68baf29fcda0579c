/* SPDX-License-Identifier: Apache-2.0 */
/* sockets.h - what <poll.h>, <sys/socket.h>, <sys/un.h> and <netdb.h> declare elsewhere, over Winsock; see
 * posix.h.
 *
 * A socket is a descriptor as any other: close ends it. Winsock is started with the first. */
#ifndef FL_BASE_WINDOWS_SOCKETS_H
#define FL_BASE_WINDOWS_SOCKETS_H

#define WIN32_LEAN_AND_MEAN
#include <winsock2.h>
#include <ws2tcpip.h>

#undef POLLIN /* Winsock's are of other values, and its pollfd of sockets alone */
#undef POLLOUT
#define POLLIN  1
#define POLLOUT 4
#define pollfd  posix_pollfd

struct posix_pollfd {
    int   fd;
    short events, revents;
};

/* Files are always ready; pipes, the console and sockets are asked every 10 ms. */
int poll(struct posix_pollfd *fds, unsigned count, int timeout_ms);

#define MSG_NOSIGNAL 0
#define F_SETFL      4

struct sockaddr_un {
    unsigned short sun_family;
    char           sun_path[108];
};

int     posix_socket(int family, int type, int protocol);
int     posix_connect(int fd, const struct sockaddr *address, int size);
int     posix_nonblocking(int fd);
ssize_t posix_send(int fd, const void *data, size_t size, int flags);
ssize_t posix_recv(int fd, void *out, size_t size, int flags);
int     posix_getsockopt(int fd, int level, int option, void *out, socklen_t *size);
int     posix_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                          struct addrinfo **out);
#ifndef FL_WINSOCK /* windows_sockets.c, which calls Winsock's */
#define socket                 posix_socket
#define connect                posix_connect
#define fcntl(fd, what, flags) posix_nonblocking(fd) /* fcntl(fd, F_SETFL, O_NONBLOCK) */
#define send                   posix_send
#define recv                   posix_recv
#define getsockopt             posix_getsockopt
#undef getaddrinfo
#define getaddrinfo posix_getaddrinfo
#endif

#endif
