/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_health.c - `fletch health`: one GET /ready to the server that these options describe.
 *
 * Role    Health checks of containers, whose image holds no shell and no curl.
 * Method  client.c asks; the whole must be done in TIMEOUT_S. /ready asks for no key.
 * Proof   tests/server/test_health.py. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/client.h"

enum { TIMEOUT_S = 5, REPLY_MAX = 8192 };

fl_exit fl_cmd_health(fl_cli *cli) {
    fl_client client;
    fl_buf    reply = {0};
    if (cli->args.rest_count > 0) {
        return fl_cli_usage(cli,
                            "health takes no arguments; name the server with --host and --port");
    }
    FL_CLI_TRY(fl_client_open(&client, cli));
    int status = fl_client_ask(&client, "GET", "/ready", NULL, TIMEOUT_S, REPLY_MAX, &reply);
    if (status < 0) {
        fl_cli_message("no server at %s: %s", client.where,
                       errno == ETIMEDOUT ? "no answer within 5 seconds" : strerror(errno));
    } else if (status != 200) {
        fl_cli_message("%s is not ready: %d %.*s", client.where, status,
                       (int)strcspn(reply.data, "\r\n"), reply.data);
    } else if (!cli->quiet) {
        printf("%s is ready\n", client.where);
    }
    fl_buf_free(&reply);
    fl_client_close(&client);
    return status == 200 ? FL_EXIT_DONE : FL_EXIT_FAILED;
}
