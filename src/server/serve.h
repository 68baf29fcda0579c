/* SPDX-License-Identifier: Apache-2.0 */
/* serve.h - the server as the command line sees it: one call that runs until it is asked to end. */
#ifndef FL_SERVER_SERVE_H
#define FL_SERVER_SERVE_H

#include <stdbool.h>
#include <stddef.h>

#include "fletch.h"

typedef struct fl_serve {
    fletch_config *config; /* borrowed; the library's lines go to the server's log from now on */
    const char *const *models; /* [model_count] "NAME=ID" or "ID" */
    size_t             model_count;
    /* Read the configuration again for SIGHUP: a new one, freed by the server, or NULL with *error. */
    fletch_config *(*reload)(void *user, fletch_error *error);
    void *user;
} fl_serve;

/* Listen, load, serve, drain. 0 after a clean end; else a status with *error. *opening tells whether a
 * model could not be opened; *code is what the process should exit with after a run: 0, or 1 when
 * requests had to be given up. A hung engine ends the process with 70 from inside. The signals SIGTERM,
 * SIGINT and SIGHUP are blocked in the caller. */
int fl_server_run(const fl_serve *serve, bool *opening, int *code, fletch_error *error);

#endif
