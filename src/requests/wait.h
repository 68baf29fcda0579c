/* SPDX-License-Identifier: Apache-2.0 */
/* wait.h - the call that waits. */
#ifndef FL_REQUESTS_WAIT_H
#define FL_REQUESTS_WAIT_H

#include "fletch.h"

/* A request, which was checked, until it is over; lane and deadline are not looked at. Lists go to
 * *lists. */
int fl_requests_wait(fletch_model *model, const fletch_request *asked, fletch_lists **lists,
                     fletch_error *error);

#endif
