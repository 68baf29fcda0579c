/* SPDX-License-Identifier: Apache-2.0 */
/* client.c - one question to a running server over a TCP or Unix socket.
 *
 * Role    cmd_health.c asks whether it is ready, cmd_add.c and cmd_search.c for its store.
 * Method  HTTP/1.0: a connection a question, which ends with the answer and has no chunks, whatever proxy stands
 *         between. An address that means all of them is asked as this machine. One clock runs over all of it:
 *         every address of the name, sending and receiving (not over the resolver, which has its own).
 * Memory  The reply's buffer is the caller's. Threads: main.
 * Proof   tests/server/test_health.py, test_store_commands.py. */
#include "cli/client.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/file.h"

enum {
    KEY_FILE_MAX = 4 * 1024 * 1024,
    READ_BYTES   = 64 * 1024,
    REPLY_MAX    = 640 << 20, /* an answer has at most 512 MiB */
    POST_SECONDS = 600
};

fl_exit fl_client_open(fl_client *client, const fl_cli *cli) {
    memset(client, 0, sizeof *client);
    const char *host = fl_cli_option(cli, "server.host");
    client->port     = fl_cli_option(cli, "server.port");
    client->path     = fl_cli_option(cli, "server.unix_socket");
    client->tcp      = strcmp(host, "none") != 0 && host[0] != '\0';
    if (client->tcp ? strcmp(client->port, "0") == 0 : client->path[0] == '\0') {
        return fl_cli_usage(cli, client->tcp
                                     ? "--port needs the port of the server, not 0"
                                     : "with --host none, name the server by --unix-socket");
    }
    bool any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0 || strcmp(host, "[::]") == 0;
    client->host = any ? "localhost" : host;
    snprintf(client->where, sizeof client->where, "%s%s%s",
             client->tcp ? client->host : client->path, client->tcp ? ":" : "",
             client->tcp ? client->port : "");
    return FL_EXIT_DONE;
}

fl_exit fl_client_take_key(fl_client *client, const fl_cli *cli) {
    const char  *path  = fl_cli_option(cli, "server.api_key_file");
    fl_buf       text  = {0};
    fletch_error error = {0};
    if (path[0] == '\0')
        return FL_EXIT_DONE;
    if (fl_pipe_read(path, KEY_FILE_MAX, &text, &error) < 0) {
        (void)fl_cli_fail(&error, false);
        return FL_EXIT_USAGE;
    }
    for (const char *at = text.data; at != NULL && *at != '\0' && client->key.size == 0;) {
        at += strspn(at, " \t\r\n");
        size_t size = strcspn(at, " \t\r\n");
        if (size > 0 && at[0] != '#' && strncmp(at, "sha256:", 7) != 0)
            fl_buf_append(&client->key, at, size);
        at += strcspn(at, "\n");
    }
    if (text.data != NULL)
        memset(text.data, 0, text.capacity);
    fl_buf_free(&text);
    if (client->key.size == 0) {
        fl_cli_message("%s holds no key in plain text, one per line", path);
        return FL_EXIT_USAGE;
    }
    return FL_EXIT_DONE;
}

void fl_client_close(fl_client *client) {
    fl_buf_free(&client->key);
}

/* ---- The connection ---- */

/* Until `fd` can do it; false with errno when the time is over. */
static bool wait_for(int fd, short events, uint64_t end_ns) {
    for (;;) {
        uint64_t      now   = fl_clock_ns();
        struct pollfd watch = {fd, events, 0};
        int ready = now < end_ns ? poll(&watch, 1, (int)((end_ns - now) / 1000000) + 1) : 0;
        if (ready > 0)
            return true;
        if (ready == 0 && fl_clock_ns() >= end_ns) {
            errno = ETIMEDOUT;
            return false;
        }
        if (ready < 0 && errno != EINTR)
            return false;
    }
}

static int connect_to(int family, const struct sockaddr *address, socklen_t size, uint64_t end_ns) {
    int       fd     = socket(family, SOCK_STREAM, 0);
    int       reason = 0;
    socklen_t length = sizeof reason;
    if (fd < 0)
        return -1;
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    if (connect(fd, address, size) == 0)
        return fd;
    if (errno == EINPROGRESS && wait_for(fd, POLLOUT, end_ns)) {
        (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &length);
        if (reason == 0)
            return fd;
        errno = reason;
    }
    fl_close(fd);
    return -1;
}

static int connect_tcp(const fl_client *client, uint64_t end_ns) {
    struct addrinfo  hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int              fd    = -1;
    char             bare[256];
    const char      *host = client->host;
    size_t           size = strlen(host);
    if (host[0] == '[' && host[size - 1] == ']' && size < sizeof bare) { /* "[::1]" */
        snprintf(bare, sizeof bare, "%.*s", (int)(size - 2), host + 1);
        host = bare;
    }
    errno = EHOSTUNREACH; /* what a name that cannot be resolved amounts to */
    if (getaddrinfo(host, client->port, &hints, &found) != 0)
        return -1;
    for (const struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next)
        fd = connect_to(at->ai_family, at->ai_addr, (socklen_t)at->ai_addrlen, end_ns);
    int reason = errno;
    freeaddrinfo(found);
    errno = reason;
    return fd;
}

static int connect_unix(const char *path, uint64_t end_ns) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    return connect_to(AF_UNIX, (const struct sockaddr *)&address, sizeof address, end_ns);
}

/* ---- The exchange ---- */

/* False with errno. A server that refuses may stop reading: what it says then is still to be read. */
static bool send_all(int fd, const char *data, size_t size, uint64_t end_ns) {
    while (size > 0) {
        ssize_t count = send(fd, data, size, MSG_NOSIGNAL);
        if (count < 0 && (errno == EPIPE || errno == ECONNRESET))
            return true;
        if (count < 0 && errno != EINTR && (errno != EAGAIN || !wait_for(fd, POLLOUT, end_ns)))
            return false;
        data += count > 0 ? count : 0;
        size -= count > 0 ? (size_t)count : 0;
    }
    return true;
}

static bool receive_all(int fd, size_t reply_max, fl_buf *reply, uint64_t end_ns) {
    for (;;) {
        if (reply->size > reply_max || !fl_buf_reserve(reply, READ_BYTES)) {
            errno = reply->failed ? ENOMEM : EMSGSIZE;
            return false;
        }
        ssize_t count = recv(fd, reply->data + reply->size, READ_BYTES, 0);
        if (count == 0)
            return true;
        if (count < 0 && errno != EINTR && (errno != EAGAIN || !wait_for(fd, POLLIN, end_ns)))
            return false;
        reply->size += count > 0 ? (size_t)count : 0;
    }
}

/* Status line and headers off; the status, or -1 with errno. */
static int read_head(fl_buf *reply) {
    fl_buf_putc(reply, '\0'); /* so that it can be searched */
    reply->size -= reply->failed ? 0 : 1;
    const char *end  = reply->failed ? NULL : strstr(reply->data, "\r\n\r\n");
    bool        http = end != NULL && strncmp(reply->data, "HTTP/1.", 7) == 0;
    const char *code = http ? strchr(reply->data, ' ') : NULL;
    if (code == NULL || code > end) {
        errno = reply->failed ? ENOMEM : EPROTO;
        return -1;
    }
    const char *length = strcasestr(reply->data, "\r\ncontent-length:");
    size_t      head = (size_t)(end - reply->data) + 4, body = reply->size - head;
    bool        told = length != NULL && length < end;
    if (told && strtoull(length + strlen("\r\ncontent-length:"), NULL, 10) > body) {
        errno = ECONNRESET; /* it broke off */
        return -1;
    }
    int status = (int)strtol(code, NULL, 10);
    memmove(reply->data, reply->data + head, body + 1);
    reply->size = body;
    return status;
}

int fl_client_ask(const fl_client *client, const char *method, const char *path, const fl_buf *body,
                  unsigned seconds, size_t reply_max, fl_buf *reply) {
    uint64_t    end_ns = fl_clock_ns() + seconds * UINT64_C(1000000000);
    fl_buf      head   = {0};
    bool        bare   = client->tcp && client->host[0] != '[' && strchr(client->host, ':') != NULL;
    const char *host   = client->tcp ? client->host : "localhost";
    fl_buf_printf(&head, "%s %s HTTP/1.0\r\nHost: %s%s%s\r\n", method, path, bare ? "[" : "", host,
                  bare ? "]" : "");
    if (client->key.size > 0)
        fl_buf_printf(&head, "Authorization: Bearer %s\r\n", client->key.data);
    if (body != NULL) {
        fl_buf_printf(&head, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                      body->size);
    }
    fl_buf_puts(&head, "\r\n");
    fl_buf_clear(reply);
    int fd     = client->tcp ? connect_tcp(client, end_ns) : connect_unix(client->path, end_ns);
    int status = -1;
    if (fd >= 0 && head.failed)
        errno = ENOMEM;
    else if (fd >= 0 && send_all(fd, head.data, head.size, end_ns) &&
             (body == NULL || send_all(fd, body->data, body->size, end_ns)) &&
             receive_all(fd, reply_max, reply, end_ns))
        status = read_head(reply);
    int reason = errno;
    fl_close(fd);
    fl_buf_free(&head);
    errno = reason;
    return status;
}

/* The sentence in an error of the server's own dialect; else the beginning of what came. */
static void tell_refusal(const fl_client *client, int status, const fl_buf *reply) {
    fl_json     *json  = NULL;
    fletch_error error = {0};
    const char  *text  = NULL;
    (void)fl_json_parse(&json, reply->data, reply->size, REPLY_MAX, 0, "the reply", &error);
    text = fl_json_text(fl_json_get(json, "error"));
    fl_cli_message("%s refused: %d %.600s", client->where, status,
                   text != NULL      ? text
                   : reply->size > 0 ? reply->data
                                     : "");
    if (status == 401)
        fl_cli_hint("pass the key with --api-key-file FILE (first line)");
    fl_json_free(json);
}

fl_exit fl_client_post(const fl_client *client, const char *path, const fl_buf *body,
                       fl_buf *reply) {
    if (body->failed)
        return fl_cli_no_memory();
    int status = fl_client_ask(client, "POST", path, body, POST_SECONDS, REPLY_MAX, reply);
    if (status == 200)
        return FL_EXIT_DONE;
    if (status >= 0) {
        tell_refusal(client, status, reply);
        return FL_EXIT_FAILED;
    }
    int reason = errno;
    fl_cli_message("no server at %s: %s", client->where, strerror(reason));
    if (reason == ECONNREFUSED || reason == ENOENT || reason == EHOSTUNREACH)
        fl_cli_hint("start one with `fletch serve`, or name its address with --host and --port");
    return FL_EXIT_FAILED;
}

fl_json *fl_client_parse(const fl_client *client, const fl_buf *reply) {
    fl_json     *json  = NULL;
    fletch_error error = {0};
    (void)fl_json_parse(&json, reply->data, reply->size, REPLY_MAX, 0, "its answer", &error);
    if (json == NULL) {
        fl_cli_message("%s is not a fletch server: %s", client->where,
                       error.code < 0 ? error.message : "its answer is null");
    }
    return json;
}
