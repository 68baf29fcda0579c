/* SPDX-License-Identifier: Apache-2.0 */
/* query_first.h - a request whose query is embedded before its documents. */
#ifndef FL_REQUESTS_QUERY_FIRST_H
#define FL_REQUESTS_QUERY_FIRST_H

#include "requests/request.h"

/* Embed the query of a request, which is held until then. (unlocks meanwhile) */
FL_LOCKED void fl_query_ask(fl_request *parent, fl_request **over);
#endif
