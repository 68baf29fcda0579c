/* SPDX-License-Identifier: Apache-2.0 */
/* pull.h - models brought into the hub cache and taken out of it, for who may (server.allow_pull). */
#ifndef FL_SERVER_PULL_H
#define FL_SERVER_PULL_H

#include "base/json.h"
#include "server/server.h"

/* Whether models may be pulled and deleted here at all. */
bool fl_pull_is_allowed(const fl_server *server);

/* Both answer the request. `streams`: with a line of JSON for each step, as Ollama has them. */
void fl_pull_begin(fl_http_request *request, fl_span name, bool streams);
void fl_pull_delete(fl_http_request *request, fl_span name); /* on a worker */

#endif
