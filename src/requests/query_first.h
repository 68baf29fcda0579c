/* SPDX-License-Identifier: Apache-2.0 */
/* query_first.h - a request whose query is embedded before its documents. */
#ifndef FL_REQUESTS_QUERY_FIRST_H
#define FL_REQUESTS_QUERY_FIRST_H

#include "requests/request.h"

/* The prompt of the documents of such a request: what the call says is the query's. */
const char *fl_query_document_prompt(const fletch_model *model);
/* Embed the query of a request, which is held until then. (unlocks meanwhile) */
FL_LOCKED void fl_query_ask(fl_request *parent, fl_request **over);
/* The parent ended while it is held: its query is of no use. */
FL_LOCKED void fl_query_drop(fl_request *parent, fl_request **over);

#endif
