/* SPDX-License-Identifier: Apache-2.0 */
/* resolve.h - what a caller asked for, with what model and configuration say. */
#ifndef FL_REQUESTS_RESOLVE_H
#define FL_REQUESTS_RESOLVE_H

#include "requests/request.h"

/* The arguments into their fields; `asked->options` is not NULL. */
void fl_request_fill(fl_request *request, const fletch_request *asked);

/* What model, configuration and options say together; `asked` as it was filled in. */
int fl_request_resolve(fl_request *request, const fletch_request *asked, fletch_error *error);

#endif
