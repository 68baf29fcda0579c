/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_health.c - `fletch health`: one GET /ready to the server that these options describe.
 *
 * Role    Health checks of containers, whose image holds no shell and no curl.
 * Method  The TCP address where there is one (an address that means all of them is asked as this machine),
 *         else the Unix socket. The whole must be done in TIMEOUT_S. /ready asks for no key.
 * Proof   tests/server/test_health.py. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"

enum { TIMEOUT_S = 5, REPLY_MAX = 8192 };

static const char *option(const fl_cli *cli, const char *key) {
    const char *value = fletch_config_get(cli->config, key, NULL);
    return value != NULL ? value : "";
}

static int connect_to(int family, const struct sockaddr *address, socklen_t size) {
    const struct timeval limit = {TIMEOUT_S, 0};
    int                  fd    = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, address, size) == 0) {
        return fd;
    }
    int reason = errno;
    (void)close(fd);
    errno = reason;
    return -1;
}

static int connect_tcp(const char *host, const char *port) {
    struct addrinfo  hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int              fd    = -1;
    errno                  = EHOSTUNREACH; /* what a name that cannot be resolved amounts to */
    if (getaddrinfo(host, port, &hints, &found) != 0) {
        return -1;
    }
    for (const struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next) {
        fd = connect_to(at->ai_family, at->ai_addr, at->ai_addrlen);
    }
    int reason = errno;
    freeaddrinfo(found);
    errno = reason;
    return fd;
}

static int connect_unix(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    return connect_to(AF_UNIX, (const struct sockaddr *)&address, sizeof address);
}

/* The status of GET /ready, and its body into out[REPLY_MAX]; -1 with errno. */
static int ask(int fd, char *out) {
    static const char request[] =
        "GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    size_t held   = 0;
    int    status = 0;
    if (fl_write_all(fd, request, sizeof request - 1) != 0) {
        return -1;
    }
    for (ssize_t count = 1; count > 0 && held < REPLY_MAX - 1; held += (size_t)count) {
        count = recv(fd, out + held, REPLY_MAX - 1 - held, 0);
        if (count < 0) {
            return -1;
        }
    }
    out[held] = '\0';
    if (sscanf(out, "HTTP/1.%*d %d", &status) != 1) {
        errno = EPROTO;
        return -1;
    }
    const char *body = strstr(out, "\r\n\r\n");
    memmove(out, body != NULL ? body + 4 : "", strlen(body != NULL ? body + 4 : "") + 1);
    out[strcspn(out, "\r\n")] = '\0';
    return status;
}

fl_exit fl_cmd_health(fl_cli *cli) {
    const char *host = option(cli, "server.host"), *port = option(cli, "server.port");
    const char *path = option(cli, "server.unix_socket");
    char        where[300], reply[REPLY_MAX];
    bool        tcp = strcmp(host, "none") != 0 && host[0] != '\0';
    if (cli->args.rest_count > 0) {
        return fl_cli_usage(cli,
                            "health takes no argument; --host and --port say where the server is");
    }
    if (tcp ? strcmp(port, "0") == 0 : path[0] == '\0') {
        return fl_cli_usage(cli, tcp ? "--port names the port of the server, which 0 does not"
                                     : "without --host, --unix-socket names the server");
    }
    bool any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0 || strcmp(host, "[::]") == 0;
    host     = any ? "localhost" : host;
    snprintf(where, sizeof where, "%s%s%s", tcp ? host : path, tcp ? ":" : "", tcp ? port : "");
    int fd     = tcp ? connect_tcp(host, port) : connect_unix(path);
    int status = fd >= 0 ? ask(fd, reply) : -1;
    if (status < 0) {
        fl_cli_message("no server answers at %s: %s", where,
                       errno == EAGAIN ? "nothing came in 5 seconds" : strerror(errno));
    } else if (status != 200) {
        fl_cli_message("%s is not ready: %d %.200s", where, status, reply);
    } else if (!cli->quiet) {
        printf("%s is ready\n", where);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return status == 200 ? FL_EXIT_DONE : FL_EXIT_FAILED;
}
