/* SPDX-License-Identifier: Apache-2.0 */
/* pages.c - what a browser sees: `/`, where texts can be tried, and `/docs`, where the routes are listed.
 *
 * Role    the first thing that a person sees who opens the server's address.
 * Method  Pages without a single outside resource. Style and script stand in the page, so its policy
 *         allows exactly these two by their hash, and no other script even if a text could smuggle one in;
 *         a page may talk to its own server and to nobody else. /docs draws /openapi.json and knows no route
 *         itself. Who does not ask for HTML gets one line.
 * Memory  the pages are part of the program; the policy is the reply's. Threads: any.
 * Proof   tests/server/test_playground.py, in headless Chromium. */
#include "server/pages.h"

#include <string.h>

#include "base/sha256.h"
#include "server/base64.h"
#include "server/routes.h"

enum { DIGEST = 32, DIGEST_TEXT = 45 };

/* The base64 SHA-256 of what stands between the first `open` and `close` of the page. */
static bool hash_of(const char *page, size_t size, const char *open, const char *close,
                    char out[DIGEST_TEXT]) {
    const char   *begin = memmem(page, size, open, strlen(open));
    unsigned char digest[DIGEST];
    if (begin == NULL)
        return false;
    begin += strlen(open);
    const char *end = memmem(begin, size - (size_t)(begin - page), close, strlen(close));
    if (end == NULL)
        return false;
    fl_sha256(begin, (size_t)(end - begin), digest);
    fl_base64_ref(out, digest, sizeof digest);
    out[DIGEST_TEXT - 1] = '\0';
    return true;
}

static void send_page(fl_http_request *request, const unsigned char *page, size_t size) {
    const char *text   = (const char *)page;
    const char *accept = fl_request_header(request, "accept");
    char        style[DIGEST_TEXT], script[DIGEST_TEXT];
    fl_reply_header(request, "vary", "accept");
    if (accept == NULL || strstr(accept, "text/html") == NULL) {
        fl_buf_printf(&request->reply.body,
                      "fletch %s: text in, vectors out. Routes: /openapi.json\n", fletch_version());
        fl_reply_bytes(request, 200, "text/plain; charset=utf-8");
        return;
    }
    if (!hash_of(text, size, "<style>", "</style>", style) ||
        !hash_of(text, size, "<script>", "</script>", script)) {
        fl_reply_error(request, FL_HTTP_INTERNAL, "the page of this build has no style or script");
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
    fl_reply_static(request, 200, "text/html; charset=utf-8", page, size);
}

static void playground(fl_http_request *request) {
    send_page(request, fl_page_playground, fl_page_playground_size);
}

static void docs(fl_http_request *request) {
    send_page(request, fl_page_docs, fl_page_docs_size);
}

const fl_route fl_routes_pages[] = {
    {"GET", "/", &fl_dialect_plain, playground, FL_ROUTE_OPEN | FL_ROUTE_QUIET | FL_ROUTE_ALWAYS},
    {"GET", "/docs", &fl_dialect_plain, docs, FL_ROUTE_OPEN | FL_ROUTE_QUIET | FL_ROUTE_ALWAYS},
    {0}};
