/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl.h - libcurl, opened when something is to be downloaded or exported, or linked (FLETCH_STATIC_CURL). */
#ifndef FL_BASE_LIBCURL_H
#define FL_BASE_LIBCURL_H

#include <curl/curl.h>

#include "fletch.h"

#define FL_CURL_FUNCTIONS(X)                                                                       \
    X(easy_cleanup)                                                                                \
    X(easy_getinfo)                                                                                \
    X(easy_init)                                                                                   \
    X(easy_perform)                                                                                \
    X(easy_setopt)                                                                                 \
    X(easy_strerror)                                                                               \
    X(free)                                                                                        \
    X(getdate)                                                                                     \
    X(global_cleanup)                                                                              \
    X(global_init)                                                                                 \
    X(slist_append) X(slist_free_all) X(url) X(url_cleanup) X(url_get) X(url_set) X(version_info)

/* curl.h's functions by their own types; its macros of the same names check types of direct
 * calls only. */
typedef struct fl_curl_functions {
#define FL_CURL_FIELD(name) __typeof__(&(curl_##name)) name;
    FL_CURL_FUNCTIONS(FL_CURL_FIELD)
#undef FL_CURL_FIELD
} fl_curl_functions;

/* Valid after fl_curl_open returned FLETCH_OK, for the life of the process. */
extern fl_curl_functions fl_curl;

/* FLETCH_EUNSUPPORTED, with what to install, where there is no libcurl or too old a one: "`who` libcurl, and it …
 * Install it`otherwise`". Threads: any. */
int fl_curl_open(const char *who, const char *otherwise, fletch_error *error);

/* A handle for https and http alone, whose certificates are those of this machine or of its company; NULL: none to
 * be had. After fl_curl_open; it belongs to one thread, and fl_curl_free takes it back. */
CURL *fl_curl_make(void);
void  fl_curl_free(CURL *curl); /* NULL is a no-op */

#endif
