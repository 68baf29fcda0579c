/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl.h - libcurl, opened when something is to be downloaded, or linked (FLETCH_STATIC_CURL). */
#ifndef FL_MODEL_LIBCURL_H
#define FL_MODEL_LIBCURL_H

#include <curl/curl.h>

#include "fletch.h"

#define FL_CURL_FUNCTIONS(X)                                                                       \
    X(easy_cleanup)                                                                                \
    X(easy_getinfo)                                                                                \
    X(easy_init)                                                                                   \
    X(easy_perform)                                                                                \
    X(easy_setopt)                                                                                 \
    X(easy_strerror)                                                                               \
    X(free) X(getdate) X(global_cleanup) X(global_init) X(slist_append) X(slist_free_all) X(url)   \
        X(url_cleanup) X(url_get) X(url_set) X(version_info)

/* curl.h's functions by their own types; its macros of the same names check types of direct
 * calls only. */
typedef struct fl_curl_functions {
#define FL_CURL_FIELD(name) __typeof__(&(curl_##name)) name;
    FL_CURL_FUNCTIONS(FL_CURL_FIELD)
#undef FL_CURL_FIELD
} fl_curl_functions;

/* Valid after fl_curl_open returned FLETCH_OK, for the life of the process. */
extern fl_curl_functions fl_curl;

/* FLETCH_EUNSUPPORTED, with what to install, where there is no libcurl or too old a one.
 * Threads: any. */
int fl_curl_open(fletch_error *error);

/* The file of certificates that a linked libcurl is to trust; NULL where it knows by itself. */
const char *fl_curl_certificates(void);

#endif
