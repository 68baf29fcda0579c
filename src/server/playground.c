/* SPDX-License-Identifier: Apache-2.0 */
/* playground.c - `/` for a browser: texts in, similarities and times out.
 *
 * Role    the first thing that a person sees who opens the server's address.
 * Method  One page without a single outside resource. Its style and script stand in it, so the policy
 *         allows exactly these two by their hash, and no other script even if a text could smuggle one in;
 *         the page may talk to its own server and to nobody else. Who does not ask for HTML gets one line.
 * Memory  the page is part of the program; the policy is the reply's. Threads: any.
 * Proof   tests/server/test_playground.py, in headless Chromium. */
#include "server/playground.h"

#include <string.h>

#include "base/sha256.h"
#include "server/base64.h"
#include "server/routes.h"

enum { DIGEST = 32, DIGEST_TEXT = 45 };

/* The base64 SHA-256 of what stands between the first `open` and `close` of the page. */
static bool hash_of(const char *open, const char *close, char out[DIGEST_TEXT]) {
    const char   *page  = (const char *)fl_playground_page;
    const char   *begin = memmem(page, fl_playground_page_size, open, strlen(open));
    unsigned char digest[DIGEST];
    if (begin == NULL) {
        return false;
    }
    begin += strlen(open);
    size_t      left = fl_playground_page_size - (size_t)(begin - page);
    const char *end  = memmem(begin, left, close, strlen(close));
    if (end == NULL) {
        return false;
    }
    fl_sha256(begin, (size_t)(end - begin), digest);
    fl_base64_ref(out, digest, sizeof digest);
    out[DIGEST_TEXT - 1] = '\0';
    return true;
}

static void page(fl_request *request) {
    const char *accept = fl_request_header(request, "accept");
    char        style[DIGEST_TEXT], script[DIGEST_TEXT];
    fl_reply_header(request, "vary", "accept");
    if (accept == NULL || strstr(accept, "text/html") == NULL) {
        fl_buf_printf(&request->reply.body,
                      "fletch %s: text in, vectors out. Routes: /openapi.json\n", fletch_version());
        fl_reply_bytes(request, 200, "text/plain; charset=utf-8");
        return;
    }
    if (!hash_of("<style>", "</style>", style) || !hash_of("<script>", "</script>", script)) {
        fl_reply_error(request, 500, "internal", "the page of this build has no style or script");
        return;
    }
    fl_reply_header(request, "content-security-policy",
                    "default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; "
                    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                    "frame-ancestors 'none'",
                    style, script);
    fl_reply_header(request, "x-content-type-options", "nosniff");
    fl_reply_header(request, "referrer-policy", "no-referrer");
    fl_reply_header(request, "cache-control", "no-cache");
    fl_reply_static(request, 200, "text/html; charset=utf-8", fl_playground_page,
                    fl_playground_page_size);
}

const fl_route fl_routes_playground[] = {
    {"GET", "/", &fl_dialect_plain, page, FL_ROUTE_OPEN | FL_ROUTE_QUIET | FL_ROUTE_ALWAYS}, {0}};
