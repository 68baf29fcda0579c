/* SPDX-License-Identifier: Apache-2.0 */
/* submit.h - requests that do not wait, and their tickets. */
#ifndef FL_REQUESTS_SUBMIT_H
#define FL_REQUESTS_SUBMIT_H

#include "fletch.h"
#include "requests/request.h"

/* `asked` was checked. */
int fl_runtime_submit(fletch_model *model, const fletch_request *asked, fletch_done_fn done,
                      void *user, fletch_ticket *ticket, fletch_error *error);
int fl_runtime_cancel(fletch_model *model, fletch_ticket ticket);
FL_LOCKED void fl_ticket_drop(fl_request *request);
/* The request that a ticket names; NULL: it has been answered. */
FL_LOCKED fl_request *fl_ticket_find(const fletch_model *model, fletch_ticket ticket);
/* Whether a request may begin: the model is not closing and an engine is or may be ready. */
FL_LOCKED int fl_runtime_admit(const fletch_model *model, fletch_error *error);

#endif
