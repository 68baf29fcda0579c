/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl.c - open libcurl at run time, or use the one inside.
 *
 * Role    hub/download.c and server/otlp.c call it first. A program that needs neither never loads libcurl, nor the
 *         two dozen libraries that come with it, and runs where none of them is installed.
 * Method  Debian's libcurl.so.4 (OpenSSL), its twin on GnuTLS, and what other systems call it: all
 *         have the same functions. Older than 7.85 cannot be told which protocols to keep to, so
 *         that it is refused. A static program can open none: -DFLETCH_STATIC_CURL=ON links one, which
 *         is told where the systems of this world keep the certificates that they trust.
 * Memory  One table per process, filled once; the library stays mapped. Threads: any.
 * Proof   tests/golden/test_hub.py. */
#include "base/libcurl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

#ifdef FLETCH_STATIC_CURL

#define TAKE(name) .name = curl_##name,
fl_curl_functions fl_curl = {FL_CURL_FUNCTIONS(TAKE)};
#undef TAKE

int fl_curl_open(const char *who, const char *otherwise, fletch_error *error) {
    (void)who, (void)otherwise, (void)error;
    return FLETCH_OK;
}

/* The file that a linked libcurl is to trust; NULL: it knows by itself. */
static const char *certificates(void) {
    static const char *const places[] = {
        "/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu, Alpine, Arch, NixOS, Gentoo */
        "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, RHEL, Amazon */
        "/etc/ssl/ca-bundle.pem",             /* openSUSE */
        "/etc/ssl/cert.pem",                  /* Alpine without the package, Void */
        "/var/lib/ca-certificates/ca-bundle.pem",
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (access(places[i], R_OK) == 0)
            return places[i];
    return NULL;
}

#else

enum { OLDEST = 0x075500 }; /* 7.85.0: CURLOPT_PROTOCOLS_STR, and a thread-safe curl_global_init */

fl_curl_functions fl_curl;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char           missing[160]; /* why there is none; "" when there is */

static void *find(void *handle, const char *name) {
    void *symbol = dlsym(handle, name);
    if (symbol == NULL && missing[0] == '\0')
        snprintf(missing, sizeof missing, "it has no %s", name);
    return symbol;
}

static void open_library(void) {
    static const char *const names[] = {"libcurl.so.4",    "libcurl-gnutls.so.4", "libcurl.so",
                                        "libcurl.4.dylib", "libcurl-x64.dll",     "libcurl.dll"};
    void                    *handle  = NULL;
    for (size_t i = 0; handle == NULL && i < sizeof names / sizeof names[0]; i++)
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        snprintf(missing, sizeof missing, "libcurl.so.4 cannot be opened");
        return;
    }
    void *symbol;
#define FIND(name)                                                                                 \
    symbol = find(handle, "curl_" #name);                                                          \
    memcpy(&fl_curl.name, &symbol, sizeof symbol); /* ISO C has no cast to a function pointer */
    FL_CURL_FUNCTIONS(FIND)
#undef FIND
    (void)dlclose(handle); /* stays mapped: RTLD_NODELETE */
    const curl_version_info_data *about =
        missing[0] == '\0' ? fl_curl.version_info(CURLVERSION_NOW) : NULL;
    if (about != NULL && about->version_num < OLDEST) {
        snprintf(missing, sizeof missing, "it is version %s; 7.85 or newer is required",
                 about->version);
    }
}

int fl_curl_open(const char *who, const char *otherwise, fletch_error *error) {
    (void)pthread_once(&once, open_library);
    if (missing[0] == '\0')
        return FLETCH_OK;
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "%s libcurl, and %s. Install it (Debian and Ubuntu: apt-get install libcurl4)%s",
                   who, missing, otherwise);
}

static const char *certificates(void) {
    return NULL; /* the system's library knows */
}

#endif

static void set_certificates(CURL *curl) {
    /* Companies that re-sign TLS point Python at their certificate with one of these. */
    static const char *const names[] = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *path = getenv(names[i]);
        if (path != NULL && path[0] != '\0') {
            fl_curl.easy_setopt(curl, CURLOPT_CAINFO, path);
            return;
        }
    }
    if (certificates() != NULL)
        fl_curl.easy_setopt(curl, CURLOPT_CAINFO, certificates());
}

CURL *fl_curl_make(void) {
    /* Counted and thread-safe since libcurl 7.84. */
    if (fl_curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return NULL;
    CURL *curl = fl_curl.easy_init();
    if (curl == NULL) {
        fl_curl.global_cleanup();
        return NULL;
    }
    fl_curl.easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    fl_curl.easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    fl_curl.easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    fl_curl.easy_setopt(curl, CURLOPT_USERAGENT, "fletch/" FLETCH_VERSION);
    set_certificates(curl);
    return curl;
}

void fl_curl_free(CURL *curl) {
    if (curl != NULL) {
        fl_curl.easy_cleanup(curl);
        fl_curl.global_cleanup();
    }
}
