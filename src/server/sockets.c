/* SPDX-License-Identifier: Apache-2.0 */
/* sockets.c - where the server listens, and how it talks to systemd.
 *
 * Role    lifecycle.c opens the sockets before any model is loaded: a port that is taken is told at once.
 * In/Out  server.host, server.port, server.unix_socket, or the sockets that systemd passes (LISTEN_FDS).
 * Method  A host name may stand for several addresses; each that can be bound is. "none" as host leaves TCP
 *         out. A Unix socket that is left from a process that died is replaced, one that answers is not.
 *         sd_notify is one datagram to the address in NOTIFY_SOCKET: no library is needed for that.
 * Memory  Fixed table in fl_server. Threads: main; fl_notify any.
 * Proof   tests/server/test_start.py. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/os.h"
#include "server/server_internal.h"

enum { BACKLOG = 4096, FIRST_PASSED_FD = 3, SPARE_FILES = 128 };

static void describe(fl_listener *listener) {
    struct sockaddr_storage address;
    socklen_t               size     = sizeof address;
    char                    host[64] = "", port[8] = "";
    memset(&address, 0, sizeof address);
    if (getsockname(listener->fd, (struct sockaddr *)&address, &size) != 0)
        return;
    listener->tcp = address.ss_family != AF_UNIX;
    if (listener->tcp) {
        (void)getnameinfo((const struct sockaddr *)&address, size, host, sizeof host, port,
                          sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
        snprintf(listener->where, sizeof listener->where,
                 address.ss_family == AF_INET6 ? "http://[%s]:%s" : "http://%s:%s", host, port);
    } else {
        const struct sockaddr_un *un = (const struct sockaddr_un *)&address;
        snprintf(listener->where, sizeof listener->where, "unix:%.107s", un->sun_path);
    }
}

static fl_listener *add_listener(fl_server *server, int fd) {
    if (server->listener_count == FL_LISTENERS)
        return NULL;
    fl_listener *listener = &server->listeners[server->listener_count++];
    memset(listener, 0, sizeof *listener);
    listener->fd = fd;
    fl_os_tame(fd);
    describe(listener);
    int one = 1; /* connections have it from their listener */
    if (listener->tcp)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return listener;
}

/* sd_listen_fds: only when LISTEN_PID is this process. */
static size_t take_passed(fl_server *server) {
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    int64_t     whose, fds;
    if (pid == NULL || count == NULL || !fl_parse_i64(pid, &whose) || whose != getpid() ||
        !fl_parse_i64(count, &fds) || fds < 1)
        return 0;
    for (int64_t i = 0; i < fds && i < FL_LISTENERS; i++) {
        fl_listener *listener = add_listener(server, FIRST_PASSED_FD + (int)i);
        if (listener != NULL)
            listener->inherited = true;
    }
    return server->listener_count;
}

static int bind_one(fl_server *server, const struct addrinfo *address) {
    int one = 1;
    int fd  = socket(address->ai_family, SOCK_STREAM, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (address->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, address->ai_addr, (socklen_t)address->ai_addrlen) != 0 ||
        listen(fd, BACKLOG) != 0 || add_listener(server, fd) == NULL) {
        fl_close(fd);
        return -1;
    }
    return 0;
}

static int open_tcp(fl_server *server, const char *host, const char *port, fletch_error *error) {
    struct addrinfo hints, *found = NULL;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags    = AI_PASSIVE | AI_NUMERICSERV;
    int problem       = getaddrinfo(host, port, &hints, &found);
    if (problem != 0) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE, "server.host '%s': %s", host,
                       gai_strerror(problem));
    }
    size_t before = server->listener_count;
    int    reason = 0;
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next)
        if (bind_one(server, at) != 0)
            reason = errno;
    freeaddrinfo(found);
    if (server->listener_count > before)
        return FLETCH_OK;
    return fl_fail(
        error, FLETCH_EIO, FLETCH_NOWHERE, "cannot listen on %s port %s: %s%s", host, port,
        strerror(reason),
        reason == EADDRINUSE
            ? "; another server uses it, choose another with --server-port (0: any free one)"
        : reason == EACCES        ? "; ports below 1024 are for root, choose another with "
                                    "--server-port"
        : reason == EADDRNOTAVAIL ? "; this machine does not have this address"
                                  : "");
}

/* A socket file whose owner is gone refuses connections; then it may be replaced. */
static bool is_stale(const struct sockaddr_un *address) {
    struct stat info;
    if (lstat(address->sun_path, &info) != 0 || !S_ISSOCK(info.st_mode))
        return false;
    int  fd    = socket(AF_UNIX, SOCK_STREAM, 0);
    bool stale = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
                 errno == ECONNREFUSED;
    fl_close(fd);
    return stale;
}

/* Who may connect is what umask says, but without a key never everybody. */
static bool keep_others_out(fl_server *server, const char *path) {
    struct stat info;
    bool        open = strcmp(fl_server_option(server, "server.insecure"), "true") == 0;
    return open || fl_server_has_keys(server) ||
           (stat(path, &info) == 0 && chmod(path, info.st_mode & 0770) == 0);
}

static int open_unix(fl_server *server, const char *path, fletch_error *error) {
    struct sockaddr_un address;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof address.sun_path) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "server.unix_socket is longer than the %zu bytes a socket's path may have",
                       sizeof address.sun_path - 1);
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (is_stale(&address))
        (void)unlink(path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        !keep_others_out(server, path) || listen(fd, BACKLOG) != 0) {
        int reason = errno;
        fl_close(fd);
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "cannot listen on %s: %s%s", path,
                       strerror(reason),
                       reason == EADDRINUSE ? "; another server uses it, or it is not a socket"
                       : reason == EAFNOSUPPORT
                           ? "; on this system the server listens on server.host alone"
                           : "; server.unix_socket names a path in a folder that exists and that "
                             "this user may write");
    }
    fl_listener *listener = add_listener(server, fd);
    if (listener == NULL) {
        (void)close(fd);
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE, "too many addresses to listen on");
    }
    memcpy(listener->path, path, strlen(path) + 1);
    return FLETCH_OK;
}

int fl_sockets_open(fl_server *server, fletch_error *error) {
    const char *host      = fl_server_option(server, "server.host");
    const char *unix_path = fl_server_option(server, "server.unix_socket");
    if (take_passed(server) > 0)
        return FLETCH_OK;
    if (strcmp(host, "none") != 0)
        FL_TRY(open_tcp(server, host, fl_server_option(server, "server.port"), error));
    if (unix_path[0] != '\0')
        FL_TRY(open_unix(server, unix_path, error));
    return server->listener_count > 0
               ? FLETCH_OK
               : fl_fail(
                     error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                     "server.host is none and server.unix_socket is not set: nothing to listen on");
}

void fl_sockets_hush(fl_server *server) {
    fl_paths_lock(server);
    for (size_t i = 0; i < server->listener_count; i++) {
        fl_listener *listener = &server->listeners[i];
        if (listener->tcp && !listener->inherited)
            fl_os_hush(listener->fd);
        if (listener->path[0] != '\0') {
            (void)unlink(listener->path);
            listener->path[0] = '\0';
        }
    }
    fl_paths_unlock(server);
}

void fl_sockets_close(fl_server *server) {
    fl_paths_lock(server);
    for (size_t i = 0; i < server->listener_count; i++) {
        fl_listener *listener = &server->listeners[i];
        if (listener->path[0] != '\0')
            (void)unlink(listener->path);
        fl_close(listener->fd);
        listener->fd = -1;
    }
    server->listener_count = 0;
    fl_paths_unlock(server);
}

const char *fl_sockets_exposed(const fl_server *server) {
    for (size_t i = 0; i < server->listener_count; i++) {
        const fl_listener *listener = &server->listeners[i];
        if (listener->tcp && strncmp(listener->where, "http://127.", 11) != 0 &&
            strncmp(listener->where, "http://[::1]", 12) != 0)
            return listener->where;
    }
    return NULL;
}

void fl_notify(const char *state) {
    const char        *where = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    size_t size        = where != NULL ? strlen(where) : 0;
    if (size < 2 || size >= sizeof address.sun_path || (where[0] != '/' && where[0] != '@'))
        return;
    memcpy(address.sun_path, where, size);
    if (where[0] == '@') /* the abstract name space */
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0)
        return;
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    if (connect(fd, (const struct sockaddr *)&address, length) == 0)
        (void)send(fd, state, strlen(state), MSG_NOSIGNAL);
    (void)close(fd);
}

void fl_raise_file_limit(fl_server *server) {
    const uint64_t wanted = server->max_connections + SPARE_FILES;
    const uint64_t limit  = fl_os_open_files(wanted);
    if (limit < wanted) {
        fl_server_log_line(server->log, FL_LEVEL_WARNING,
                           "the system allows this process %llu open files, fewer than "
                           "server.max_connections needs; raise the limit with ulimit -n",
                           (unsigned long long)limit);
    }
}
