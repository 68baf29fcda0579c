/* SPDX-License-Identifier: Apache-2.0 */
/* admission.h - what is decided about a request when only its headers are there. */
#ifndef FL_SERVER_ADMISSION_H
#define FL_SERVER_ADMISSION_H

#include "server/internal.h"

/* Judge target and headers: find the route, the key, priority and deadline. When the request is refused or
 * answered already, full->judged is set and the reply stands. False: nothing more can be believed of this
 * connection, it has to be closed. */
bool fl_admit(fl_request_full *full, const char *version);

/* The 413 that names server.max_body. */
void fl_refuse_size(fl_request *request);

/* The 503 when server.max_body_memory is used up by others. */
void fl_refuse_memory(fl_request *request);

#endif
