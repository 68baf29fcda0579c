/* SPDX-License-Identifier: Apache-2.0 */
/* cors.c - which web pages may talk to this server, and under which names it is reached.
 *
 * Role    transport.c asks for every request with an Origin header, preflight or not.
 * In/Out  The option server.cors_origin ("" none, "*" all, or a list with commas) and the Origin in; the
 *         value of Access-Control-Allow-Origin, or NULL, out.
 * Method  Exact comparison, as browsers send it: scheme, host and port. Credentials in the sense of CORS
 *         (cookies) are never allowed; an API key in the Authorization header is no such credential,
 *         it only has to be named in the preflight's answer, which "*" does not cover.
 *         Where no key is asked for, two more rules keep pages out that a browser would let in. What changes
 *         something is refused when its Origin is neither the server's own nor allowed: a page may send a
 *         form without asking anybody. And a server that only this machine reaches answers to names that no
 *         stranger can own: a page may have its own name point here (DNS rebinding), and would then be of the
 *         same origin; addresses, localhost and names without a dot cannot be had.
 * Memory  None. Threads: any.
 * Proof   tests/server/test_transport_operations.py, test_playground.py. */
#include <string.h>
#include <strings.h>

#include "server/server_internal.h"

/* The item of a list with commas that is `text`, "*" for any; NULL: none is. */
static const char *find(const char *list, const char *text, size_t size, bool fold) {
    for (const char *at = list; *at != '\0';) {
        at += strspn(at, ", ");
        size_t item = strcspn(at, ", ");
        if (item == 1 && *at == '*')
            return "*";
        if (item == size && size > 0 &&
            (fold ? strncasecmp(at, text, size) : strncmp(at, text, size)) == 0)
            return text;
        at += item;
    }
    return NULL;
}

const char *fl_cors_allowed(const char *setting, const char *origin) {
    return origin != NULL ? find(setting, origin, strlen(origin), false) : NULL;
}

bool fl_cors_may_write(const char *setting, const char *origin, const char *host) {
    if (origin == NULL || fl_cors_allowed(setting, origin) != NULL)
        return true;
    const char *own = strncmp(origin, "http://", 7) == 0    ? origin + 7
                      : strncmp(origin, "https://", 8) == 0 ? origin + 8
                                                            : NULL;
    return own != NULL && host != NULL && strcasecmp(own, host) == 0;
}

bool fl_cors_is_ours(const char *allowed, const char *host) {
    if (host == NULL || host[0] == '[') /* HTTP/1.0, or an IPv6 address */
        return true;
    size_t size = strcspn(host, ":");
    size -= size > 1 && host[size - 1] == '.'; /* "localhost." is the same name */
    bool numbers = strspn(host, "0123456789.") >= size;
    bool plain   = memchr(host, '.', size) == NULL;
    bool local   = size > 10 && strncasecmp(host + size - 10, ".localhost", 10) == 0;
    return numbers || plain || local || find(allowed, host, size, true) != NULL;
}
