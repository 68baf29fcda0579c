/* SPDX-License-Identifier: Apache-2.0 */
/* client.h - one question to a running server, for the commands that talk to it. */
#ifndef FL_CLI_CLIENT_H
#define FL_CLI_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/json.h"
#include "cli/cli.h"

typedef struct fl_client {
    const char *host, *port,
        *path; /* the configuration's; path: of a Unix socket, where tcp is false */
    bool   tcp;
    char   where[300]; /* for messages: "127.0.0.1:9900" or the path */
    fl_buf key;        /* owned; the key that is sent, empty: none */
} fl_client;

/* The server that the options describe: server.host and server.port, else server.unix_socket. Says what is
 * wrong and gives its exit code. */
fl_exit fl_client_open(fl_client *client, const fl_cli *cli);

/* Send also the first key of server.api_key_file that stands there in plain text, if a file is named. */
fl_exit fl_client_take_key(fl_client *client, const fl_cli *cli);
void    fl_client_close(fl_client *client); /* idempotent */

/* One request; `body` NULL: none, else JSON. The status of the reply and its body in *reply, or -1 with errno:
 * ETIMEDOUT when it was not whole after `seconds`, looking for an address that answers counted. A reply of more
 * than `reply_max` bytes is EMSGSIZE. */
int fl_client_ask(const fl_client *client, const char *method, const char *path, const fl_buf *body,
                  unsigned seconds, size_t reply_max, fl_buf *reply);

/* POST `body`, which must be answered by 200: FL_EXIT_DONE, else it was said why not. */
fl_exit fl_client_post(const fl_client *client, const char *path, const fl_buf *body,
                       fl_buf *reply);

/* What was answered, freed by fl_json_free; NULL: it was said that it is no JSON. */
fl_json *fl_client_parse(const fl_client *client, const fl_buf *reply);

#endif
