/* SPDX-License-Identifier: Apache-2.0 */
/* http_errors.c - the table of server.h's FL_HTTP_ERRORS. */
#include <assert.h>

#include "server/server_internal.h"

#define ERROR(name, status, word) {status, word},
const fl_http_error fl_http_errors[] = {FL_HTTP_ERRORS(ERROR)};

fl_http_code fl_http_code_of(int status) {
    for (int code = 0; code < FL_HTTP_CODES; code++)
        if (fl_http_errors[code].status == status)
            return (fl_http_code)code;
    assert(0 && "a status without a code");
    return FL_HTTP_BAD_REQUEST;
}
