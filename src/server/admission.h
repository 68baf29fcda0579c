/* SPDX-License-Identifier: Apache-2.0 */
/* admission.h - what is decided about a request when only its head is there. */
#ifndef FL_SERVER_ADMISSION_H
#define FL_SERVER_ADMISSION_H

#include "server/server_internal.h"

/* Judge the head that fl_http_head_read found, or refused: find the route, the key, priority and deadline. When the
 * request is refused or answered already, full->judged is set and the reply stands. */
void fl_admit(fl_request_full *full, int found);

/* The word that goes with a status of the transport's own (server.h). */
const char *fl_admission_word(int status);

/* The 413 that names server.max_body. */
void fl_refuse_size(fl_http_request *request);

/* The 503 when server.max_body_memory is used up by others. */
void fl_refuse_memory(fl_http_request *request, uint64_t wanted); /* by a body of so many bytes */

#endif
