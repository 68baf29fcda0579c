/* SPDX-License-Identifier: Apache-2.0 */
/* sockets.h - what <poll.h>, <netdb.h>, <sys/socket.h>, <sys/uio.h>, <sys/un.h> and <netinet/...> declare
 * elsewhere, over Winsock; see posix.h.
 *
 * A socket is a descriptor that close ends, of numbers that no file has. Winsock is started with the first. */
#ifndef FL_BASE_WINDOWS_SOCKETS_H
#define FL_BASE_WINDOWS_SOCKETS_H

#define WIN32_LEAN_AND_MEAN
#include <winsock2.h>
#include <ws2tcpip.h>

/* Winsock has POLLIN and its kin, but a pollfd of sockets alone. */
#define pollfd posix_pollfd
typedef unsigned nfds_t;

struct posix_pollfd {
    int   fd;
    short events, revents;
};

/* A negative descriptor is nothing to ask about. Where all others are sockets Windows waits for them; files are
 * always ready, and pipes, the console and sockets beside them are asked every 10 ms. */
int poll(struct posix_pollfd *fds, nfds_t count, int timeout_ms);

#define MSG_NOSIGNAL 0
#define MSG_DONTWAIT 0 /* every socket is made one that does not wait */
#define SHUT_WR      SD_SEND
#define F_SETFL      4
#undef SO_REUSEADDR /* which here lets two programs listen on one port; what others mean by it is: */
#define SO_REUSEADDR (~4) /* SO_EXCLUSIVEADDRUSE, which rests on the name that is taken here */

struct sockaddr_un {
    unsigned short sun_family;
    char           sun_path[108];
};

struct iovec {
    void  *iov_base;
    size_t iov_len;
};

struct msghdr {
    struct iovec *msg_iov;
    size_t        msg_iovlen;
};

int     posix_socket(int family, int type, int protocol); /* EAFNOSUPPORT for AF_UNIX */
int     posix_connect(int fd, const struct sockaddr *address, int size);
int     posix_bind(int fd, const struct sockaddr *address, socklen_t size);
int     posix_listen(int fd, int backlog);
int     posix_shutdown(int fd, int how);
int     posix_nonblocking(int fd);
ssize_t posix_send(int fd, const void *data, size_t size, int flags);
ssize_t posix_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t posix_recv(int fd, void *out, size_t size, int flags);
int     posix_getsockname(int fd, struct sockaddr *out, socklen_t *size);
int     posix_getsockopt(int fd, int level, int option, void *out, socklen_t *size);
int     posix_setsockopt(int fd, int level, int option, const void *value, socklen_t size);
int     posix_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                          struct addrinfo **out);
#ifndef FL_WINSOCK /* windows_sockets.c, which calls Winsock's */
#define socket                 posix_socket
#define connect                posix_connect
#define bind                   posix_bind
#define listen                 posix_listen
#define shutdown               posix_shutdown
#define fcntl(fd, what, flags) posix_nonblocking(fd) /* fcntl(fd, F_SETFL, O_NONBLOCK) */
#define send                   posix_send
#define sendmsg                posix_sendmsg
#define recv                   posix_recv
#define getsockname            posix_getsockname
#define getsockopt             posix_getsockopt
#define setsockopt             posix_setsockopt
#undef getaddrinfo
#define getaddrinfo posix_getaddrinfo
#endif

#endif
