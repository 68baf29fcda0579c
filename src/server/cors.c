/* SPDX-License-Identifier: Apache-2.0 */
/* cors.c - which web pages of other origins a browser may let talk to this server.
 *
 * Role    transport.c asks for every request with an Origin header, preflight or not.
 * In/Out  The option server.cors_origin ("" none, "*" all, or a list with commas) and the Origin in; the
 *         value of Access-Control-Allow-Origin, or NULL, out.
 * Method  Exact comparison, as browsers send it: scheme, host and port. Credentials in the sense of CORS
 *         (cookies) are never allowed; an API key in the Authorization header is no such credential,
 *         it only has to be named in the preflight's answer, which "*" does not cover.
 * Memory  None. Threads: any.
 * Proof   tests/server/test_transport_operations.py, test_playground.py. */
#include <string.h>

#include "server/internal.h"

const char *fl_cors_allowed(const char *setting, const char *origin) {
    if (setting[0] == '\0' || origin == NULL || origin[0] == '\0') {
        return NULL;
    }
    size_t size = strlen(origin);
    for (const char *at = setting; *at != '\0';) {
        at += strspn(at, ", ");
        size_t item = strcspn(at, ", ");
        if (item == 1 && *at == '*') {
            return "*";
        }
        if (item == size && strncmp(at, origin, size) == 0) {
            return origin;
        }
        at += item;
    }
    return NULL;
}
