/* SPDX-License-Identifier: Apache-2.0 */
/* submit.h - requests that do not wait, submitted and cancelled. */
#ifndef FL_REQUESTS_SUBMIT_H
#define FL_REQUESTS_SUBMIT_H

#include "fletch.h"
#include "requests/request.h"

/* `asked` was checked. */
int fl_requests_submit(fletch_model *model, const fletch_request *asked, fletch_done_fn done,
                       void *user, fletch_ticket *ticket, fletch_error *error);
int fl_requests_cancel(fletch_model *model, fletch_ticket ticket);
/* Whether a request may begin: the model is not closing and an engine is or may be ready. */
FL_LOCKED int fl_requests_admit(const fletch_model *model, fletch_error *error);

#endif
