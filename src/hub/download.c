/* SPDX-License-Identifier: Apache-2.0 */
/* download.c - HTTP for the hub on libcurl: redirects by hand, retries, resume, one token's safety.
 *
 * Role    hub_pull.c opens one session per pull.
 * In/Out  URLs -> text, headers (fl_reply) or bytes in a file descriptor.
 * Method  One easy handle, so connections are reused. curl's own redirect handling stays off: a
 *         HEAD must stop at the redirect whose headers describe the file, and the token must never
 *         leave the endpoint's origin. `once` does one hop, `follow` a chain of hops, `persist`
 *         tries chains until one answers for good. A file's body is written from the callback
 *         straight to the descriptor. Silence is measured, not duration: a slow large file is
 *         fine, a stalled one is not.
 * Memory  the handle, its header list, a URL. Threads: a session belongs to one thread.
 * Proof   tests/golden/test_hub.py against a stand-in that redirects, stalls, cuts and lies. */
#include "hub/download.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/libcurl.h"
#include "base/mem.h"
#include "base/number.h"

enum {
    TRIES_MAX     = 5,
    HOPS_MAX      = 10,
    PAUSE_MAX_S   = 60,         /* however long Retry-After asks */
    GAIN_MIN      = 256 * 1024, /* a try that brought less is counted as one that brought nothing */
    PAGE_MAX      = 1024 * 1024, /* of a redirect or an error, which nobody reads */
    RECEIVE_BYTES = 256 * 1024   /* curl's buffer: few calls, few writes */
};

typedef enum target_kind { TARGET_NONE, TARGET_TEXT, TARGET_FILE } target_kind;

/* Where the body of the hop under way goes. */
typedef struct target {
    target_kind kind;
    fl_buf     *text;
    size_t      text_max;
    int         fd;
    uint64_t    have;     /* bytes of the file on disk */
    uint64_t    expected; /* UINT64_MAX when not known */
    uint64_t    most;     /* bytes that it may have */
    size_t      passed;   /* bytes of a page that nobody reads */
    bool        begun;    /* first byte of this hop seen and judged */
    bool        resumed;  /* this hop asked for the rest only */
    bool        unusable; /* the server sent another part than asked for */
    bool        too_long; /* more bytes than promised */
    int         write_errno;
} target;

struct fl_download {
    CURL               *curl; /* owned */
    fl_download_options options;
    const char         *label;
    bool                reached;   /* somebody has answered once */
    bool                cancelled; /* the progress function said so */
    fl_reply            reply;
    char                location[4096];
    uint64_t            range_start; /* Content-Range of this hop; UINT64_MAX when absent */
    int                 retry_after; /* seconds; -1 when not said */
    bool                linked_etag;
    bool                linked_size;
    target              target;
    char                detail[CURL_ERROR_SIZE];
};

/* ---- URLs ---- */

void fl_url_escape(fl_buf *out, const char *text, bool keep_slash) {
    for (const char *c = text; *c != '\0'; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                     (*c >= '0' && *c <= '9') || strchr("-_.~", *c) != NULL ||
                     (keep_slash && *c == '/');
        if (plain)
            fl_buf_putc(out, *c);
        else
            fl_buf_printf(out, "%%%02X", (unsigned)(unsigned char)*c);
    }
}

/* "https://host:443" in lower case; false when the text is no http(s) URL. */
static bool origin_of(const char *url, char out[512]) {
    CURLU *parsed = fl_curl.url();
    char  *scheme = NULL;
    char  *host   = NULL;
    char  *port   = NULL;
    bool   good   = parsed != NULL && fl_curl.url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK &&
                fl_curl.url_get(parsed, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                fl_curl.url_get(parsed, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                fl_curl.url_get(parsed, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                (strcmp(scheme, "https") == 0 || strcmp(scheme, "http") == 0) &&
                snprintf(out, 512, "%s://%s:%s", scheme, host, port) < 512;
    fl_curl.free(scheme);
    fl_curl.free(host);
    fl_curl.free(port);
    fl_curl.url_cleanup(parsed);
    return good;
}

bool fl_url_same_origin(const char *a, const char *b) {
    char left[512];
    char right[512];
    return origin_of(a, left) && origin_of(b, right) && strcasecmp(left, right) == 0;
}

/* Where a Location header leads from `url`; NULL when nowhere a hub may send us. curl_free it. */
static char *resolve(const char *url, const char *location) {
    CURLU *parsed = fl_curl.url();
    char  *full   = NULL;
    char   origin[512];
    if (parsed != NULL && fl_curl.url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK &&
        fl_curl.url_set(parsed, CURLUPART_URL, location, 0) == CURLUE_OK)
        fl_curl.url_get(parsed, CURLUPART_URL, &full, 0);
    fl_curl.url_cleanup(parsed);
    if (full != NULL && (!origin_of(full, origin) ||
                         (strncmp(url, "https:", 6) == 0 && strncmp(full, "https:", 6) != 0))) {
        fl_curl.free(full);
        full = NULL;
    }
    return full;
}

/* ---- what curl calls ---- */

static void copy_value(char *out, size_t capacity, const char *value, size_t size) {
    size = size < capacity ? size : capacity - 1;
    memcpy(out, value, size);
    out[size] = '\0';
}

#define HEX "0123456789abcdefABCDEF"

/* ETag: W/"abc" -> abc */
static void copy_etag(fl_reply *reply, const char *value, size_t size) {
    if (size > 2 && value[0] == 'W' && value[1] == '/') {
        value += 2;
        size -= 2;
    }
    while (size > 0 && value[0] == '"') {
        value++;
        size--;
    }
    while (size > 0 && value[size - 1] == '"')
        size--;
    copy_value(reply->etag, sizeof reply->etag, value, size);
    /* Hashes are compared, and name files, in small letters. */
    bool hash = (size == 40 || size == 64) && strspn(reply->etag, HEX) == size;
    for (char *at = reply->etag; hash && *at != '\0'; at++)
        *at = (char)(*at >= 'A' && *at <= 'F' ? *at - 'A' + 'a' : *at);
}

static bool copy_number(uint64_t *out, const char *value, size_t size) {
    char    text[32];
    int64_t number;
    copy_value(text, sizeof text, value, size);
    if (size >= sizeof text || !fl_parse_i64(text, &number) || number < 0)
        return false;
    *out = (uint64_t)number;
    return true;
}

static int pause_asked(const char *value, size_t size) {
    char     text[64];
    uint64_t number;
    copy_value(text, sizeof text, value, size);
    if (copy_number(&number, value, size))
        return number < PAUSE_MAX_S ? (int)number : PAUSE_MAX_S;
    time_t then = fl_curl.getdate(text, NULL);
    time_t now  = time(NULL);
    if (then == (time_t)-1 || then <= now)
        return 0;
    return then - now < PAUSE_MAX_S ? (int)(then - now) : PAUSE_MAX_S;
}

static bool name_is(const char *line, size_t size, const char *name) {
    return size == strlen(name) && strncasecmp(line, name, size) == 0;
}

static void take_header(fl_download *session, const char *line, size_t name, const char *value,
                        size_t size) {
    fl_reply *reply = &session->reply;
    if (name_is(line, name, "X-Repo-Commit")) {
        copy_value(reply->commit, sizeof reply->commit, value, size);
    } else if (name_is(line, name, "X-Linked-Etag")) {
        copy_etag(reply, value, size);
        session->linked_etag = true;
    } else if (name_is(line, name, "ETag") && !session->linked_etag) {
        copy_etag(reply, value, size);
    } else if (name_is(line, name, "X-Linked-Size")) {
        reply->size_known    = copy_number(&reply->size, value, size);
        session->linked_size = reply->size_known;
    } else if (name_is(line, name, "Content-Length") && !session->linked_size) {
        reply->size_known = copy_number(&reply->size, value, size);
    } else if (name_is(line, name, "Content-Range")) {
        char   text[64];
        size_t skip = size > 6 && strncasecmp(value, "bytes ", 6) == 0 ? 6 : 0;
        copy_value(text, sizeof text, value + skip, size - skip);
        if (!copy_number(&session->range_start, text, strcspn(text, "-")))
            session->range_start = UINT64_MAX;
    } else if (name_is(line, name, "Location")) {
        if (size < sizeof session->location)
            copy_value(session->location, sizeof session->location, value, size);
    } else if (name_is(line, name, "Retry-After")) {
        session->retry_after = pause_asked(value, size);
    } else if (name_is(line, name, "X-Error-Code")) {
        copy_value(reply->error_code, sizeof reply->error_code, value, size);
    } else if (name_is(line, name, "X-Error-Message")) {
        copy_value(reply->error_message, sizeof reply->error_message, value, size);
    }
}

static void forget_headers(fl_download *session) {
    session->reply       = (fl_reply){0};
    session->location[0] = '\0';
    session->range_start = UINT64_MAX;
    session->retry_after = -1;
    session->linked_etag = false;
    session->linked_size = false;
}

static size_t on_header(char *line, size_t one, size_t size, void *user) {
    fl_download *session = user;
    const char  *colon   = memchr(line, ':', size);
    if (size > 5 && strncmp(line, "HTTP/", 5) == 0) {
        forget_headers(session); /* an interim 1xx answer came before */
    } else if (colon != NULL) {
        const char *value = colon + 1;
        const char *end   = line + size;
        while (value < end && (*value == ' ' || *value == '\t'))
            value++;
        while (end > value && (unsigned char)end[-1] <= ' ')
            end--;
        take_header(session, line, (size_t)(colon - line), value, (size_t)(end - value));
    }
    return one * size;
}

/* The first byte of a file's body: does the server go on where we stopped? */
static bool begin_file(fl_download *session, target *to, long status) {
    to->begun = true;
    if (status == 206 && session->range_start == to->have)
        return true;
    /* 200, or a part we did not ask for: only a body that starts at 0 is of use. */
    if (status == 206 && session->range_start != 0) {
        to->unusable = true;
        return false;
    }
    if (to->have > 0 && (ftruncate(to->fd, 0) != 0 || lseek(to->fd, 0, SEEK_SET) != 0)) {
        to->write_errno = errno;
        return false;
    }
    to->have = 0;
    return true;
}

static size_t on_body(char *data, size_t one, size_t size, void *user) {
    fl_download *session = user;
    target      *to      = &session->target;
    long         status  = 0;
    size_t       bytes   = one * size;
    fl_curl.easy_getinfo(session->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status / 100 != 2 || to->kind == TARGET_NONE) {
        to->passed += bytes; /* the page of a redirect or an error; its headers say enough */
        return to->passed > PAGE_MAX ? 0 : bytes;
    }
    if (to->kind == TARGET_TEXT) {
        to->too_long = to->text->size + bytes > to->text_max;
        if (!to->too_long)
            fl_buf_append(to->text, data, bytes);
        return to->too_long || to->text->failed ? 0 : bytes;
    }
    if (!to->begun && !begin_file(session, to, status))
        return 0;
    if (to->have + bytes > to->most) {
        to->too_long = true;
        return 0;
    }
    if (fl_write_all(to->fd, data, bytes) != 0) {
        to->write_errno = errno;
        return 0;
    }
    to->have += bytes;
    return bytes;
}

int fl_download_poll(fl_download *session) {
    const target *to = &session->target;
    if (session->options.progress == NULL)
        return 0;
    uint64_t done  = to->kind == TARGET_FILE ? to->have : 0;
    uint64_t total = to->kind == TARGET_FILE && to->expected != UINT64_MAX ? to->expected : 0;
    if (session->options.progress(session->options.user, session->label, done, total) != 0)
        session->cancelled = true;
    return session->cancelled ? 1 : 0;
}

static int on_progress(void *user, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                       curl_off_t up) {
    (void)down_total, (void)down, (void)up_total, (void)up;
    return fl_download_poll(user);
}

/* ---- the session ---- */

int fl_download_open(fl_download **out, const fl_download_options *options, fletch_error *error) {
    *out       = NULL;
    int opened = fl_curl_open(
        "downloads need",
        ", or bring the model with `hf download ID` and name its folder, or its id", error);
    if (opened != FLETCH_OK)
        return opened;
    fl_download *session = fl_alloc_zero(1, sizeof *session);
    CURL        *curl    = session != NULL ? fl_curl_make() : NULL;
    if (curl == NULL) {
        fl_free(session);
        return fl_fail_nomem(error, sizeof *session, "a download");
    }
    session->curl    = curl;
    session->options = *options;
    session->label   = "";
    fl_curl.easy_setopt(curl, CURLOPT_BUFFERSIZE, (long)RECEIVE_BYTES);
    fl_curl.easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    fl_curl.easy_setopt(curl, CURLOPT_HEADERDATA, session);
    fl_curl.easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    fl_curl.easy_setopt(curl, CURLOPT_WRITEDATA, session);
    fl_curl.easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    fl_curl.easy_setopt(curl, CURLOPT_XFERINFODATA, session);
    fl_curl.easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    fl_curl.easy_setopt(curl, CURLOPT_ERRORBUFFER, session->detail);
    *out = session;
    return 0;
}

void fl_download_close(fl_download *session) {
    if (session != NULL) {
        fl_curl_free(session->curl);
        fl_free(session);
    }
}

void fl_download_label(fl_download *session, const char *label) {
    session->label       = label;
    session->target      = (target){0};
    session->target.kind = TARGET_NONE;
}

/* ---- one hop, one chain, many tries ---- */

static CURLcode once(fl_download *session, const char *url, bool head) {
    CURL              *curl    = session->curl;
    struct curl_slist *headers = fl_curl.slist_append(NULL, "Accept-Encoding: identity");
    char               line[600];
    char               range[32];
    bool               ours = fl_url_same_origin(url, session->options.endpoint);
    if (headers != NULL && ours && session->options.token[0] != '\0') {
        snprintf(line, sizeof line, "Authorization: Bearer %s", session->options.token);
        struct curl_slist *longer = fl_curl.slist_append(headers, line);
        headers                   = longer != NULL ? longer : headers;
    }
    if (headers == NULL)
        return CURLE_OUT_OF_MEMORY;
    target *to    = &session->target;
    bool    tail  = to->kind == TARGET_FILE && to->have > 0;
    long    quiet = (long)(to->kind == TARGET_FILE ? session->options.body_seconds
                                                   : session->options.head_seconds);
    snprintf(range, sizeof range, "%llu-", (unsigned long long)to->have);
    to->begun    = false;
    to->resumed  = tail;
    to->unusable = false;
    to->too_long = false;
    to->passed   = 0;
    if (to->kind == TARGET_TEXT)
        fl_buf_clear(to->text); /* what an earlier try left */
    forget_headers(session);
    session->detail[0] = '\0';
    fl_curl.easy_setopt(curl, CURLOPT_URL, url);
    fl_curl.easy_setopt(curl, CURLOPT_NOBODY, head ? 1L : 0L);
    if (!head)
        fl_curl.easy_setopt(curl, CURLOPT_HTTPGET, 1L);
    fl_curl.easy_setopt(curl, CURLOPT_RANGE, tail ? range : NULL);
    fl_curl.easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    fl_curl.easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)session->options.head_seconds);
    fl_curl.easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    fl_curl.easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, quiet);
    CURLcode result = fl_curl.easy_perform(curl);
    fl_curl.easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &session->reply.status);
    fl_curl.easy_setopt(curl, CURLOPT_HTTPHEADER, NULL);
    fl_curl.slist_free_all(headers);
    session->reached = session->reached || session->reply.status > 0;
    return result;
}

/* Follow redirects to an answer. A HEAD stops where the hub's headers are, before the storage
 * host. */
static CURLcode follow(fl_download *session, const char *url, bool head) {
    char    *here   = NULL; /* curl's; NULL while at the first URL */
    CURLcode result = once(session, url, head);
    for (int hop = 0; result == CURLE_OK && session->reply.status / 100 == 3; hop++) {
        char *next = session->location[0] != '\0' && hop < HOPS_MAX
                         ? resolve(here != NULL ? here : url, session->location)
                         : NULL;
        if (next == NULL) {
            snprintf(session->detail, sizeof session->detail,
                     "redirected to nowhere, too often, or from https to http");
            result = CURLE_TOO_MANY_REDIRECTS;
            break;
        }
        if (head && session->reply.etag[0] != '\0' && session->reply.commit[0] != '\0' &&
            !fl_url_same_origin(next, here != NULL ? here : url)) {
            fl_curl.free(next);
            session->reply.size_known =
                session->linked_size; /* the redirect's own length is no size */
            break;
        }
        fl_curl.free(here);
        here   = next;
        result = once(session, here, head);
    }
    fl_curl.free(here);
    return result;
}

/* Nobody has answered yet and this try did not even connect: there is no network, so say so at
 * once. */
static bool is_cut_off(const fl_download *session, CURLcode result) {
    curl_off_t connected = 0;
    fl_curl.easy_getinfo(session->curl, CURLINFO_CONNECT_TIME_T, &connected);
    return !session->reached &&
           (result == CURLE_COULDNT_RESOLVE_HOST || result == CURLE_COULDNT_RESOLVE_PROXY ||
            result == CURLE_COULDNT_CONNECT ||
            (result == CURLE_OPERATION_TIMEDOUT && connected == 0));
}

static bool is_worth_retrying(const fl_download *session, CURLcode result) {
    const target *to     = &session->target;
    long          status = session->reply.status;
    if (is_cut_off(session, result))
        return false;
    switch (result) {
    case CURLE_OK:
        return status == 408 || status == 429 || status / 100 == 5 ||
               (status == 416 && to->kind == TARGET_FILE);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return true;
    case CURLE_WRITE_ERROR: /* our own stop: a wrong part, or more than promised after a resume */
        return to->kind == TARGET_FILE && to->write_errno == 0 &&
               (to->unusable || (to->too_long && to->resumed));
    default: return false;
    }
}

/* Sleep in small steps so that a cancel is heard. */
static int pause_for(fl_download *session, int seconds, fletch_error *error) {
    uint64_t end = fl_clock_ns() + (uint64_t)seconds * 1000000000U;
    do {
        if (fl_download_poll(session) != 0)
            return fl_fail(error, FLETCH_ECANCELLED, FLETCH_NOWHERE, "download cancelled");
        struct timespec step = {0, 50 * 1000 * 1000};
        nanosleep(&step, NULL);
    } while (fl_clock_ns() < end);
    return 0;
}

static int refuse(fl_download *session, CURLcode result, const char *url, fletch_error *error) {
    const target *to = &session->target;
    char          origin[512];
    const char   *who = origin_of(url, origin) ? origin : url;
    const char *what = session->detail[0] != '\0' ? session->detail : fl_curl.easy_strerror(result);
    if (session->cancelled) {
        return fl_fail(error, FLETCH_ECANCELLED, FLETCH_NOWHERE,
                       "download of %.200s cancelled; the partial file is kept", session->label);
    }
    if (to->kind == TARGET_FILE && to->write_errno != 0) {
        bool full =
            to->write_errno == ENOSPC || to->write_errno == EDQUOT || to->write_errno == EFBIG;
        return full ? fl_fail(error, FLETCH_ENOSPC, FLETCH_NOWHERE,
                              "no space for %.160s after %llu bytes", session->label,
                              (unsigned long long)to->have)
                    : fl_fail_errno(error, to->write_errno, "cannot write", session->label);
    }
    if (result == CURLE_OUT_OF_MEMORY || (to->kind == TARGET_TEXT && to->text->failed))
        return fl_fail_nomem(error, 0, "a download");
    if (to->passed > PAGE_MAX) {
        return fl_fail(error, FLETCH_ENETWORK, FLETCH_NOWHERE,
                       "%.160s answers %ld for %.160s, with a page of more than 1 MiB", who,
                       session->reply.status, session->label);
    }
    if (to->too_long) {
        return fl_fail(error, FLETCH_ENETWORK, FLETCH_NOWHERE,
                       "%.160s from %.160s is longer than allowed", session->label, who);
    }
    if (result == CURLE_OK) {
        return fl_fail(error, FLETCH_ENETWORK, FLETCH_NOWHERE,
                       "%.120s ended %.160s after %llu of %llu bytes, again and again", who,
                       session->label, (unsigned long long)to->have,
                       (unsigned long long)to->expected);
    }
    return fl_fail(error, FLETCH_ENETWORK, FLETCH_NOWHERE, "%s%.120s: %.160s",
                   is_cut_off(session, result) ? "no network: " : "", who, what);
}

/* A try that gained nothing beyond the best one before is counted; a 416 means our part is of no use. */
static int persist(fl_download *session, const char *url, bool head, fletch_error *error) {
    target  *to   = &session->target;
    uint64_t best = to->have;
    int      lost = 0;
    for (;;) {
        CURLcode result = follow(session, url, head);
        long     status = session->reply.status;
        bool     cut    = result == CURLE_OK && status / 100 == 2 && to->kind == TARGET_FILE &&
                   to->expected != UINT64_MAX && to->have < to->expected;
        if (result == CURLE_OK && !cut && !is_worth_retrying(session, result))
            return 0;
        bool retry = (cut || is_worth_retrying(session, result)) && !session->cancelled;
        if (retry && to->kind == TARGET_FILE && (status == 416 || to->too_long || to->unusable)) {
            if (ftruncate(to->fd, 0) != 0 || lseek(to->fd, 0, SEEK_SET) != 0)
                return fl_fail_errno(error, errno, "cannot start over", session->label);
            to->have = 0;
        }
        bool gained = to->have > best;
        lost        = gained && to->have - best >= GAIN_MIN ? 1 : lost + 1;
        best        = gained ? to->have : best;
        if (!retry || lost >= TRIES_MAX)
            return result == CURLE_OK && !cut ? 0 : refuse(session, result, url, error);
        int seconds = session->retry_after >= 0 ? session->retry_after
                      : gained                  ? 0
                                                : 1 << (lost - 1);
        fl_log_write(session->options.log, FL_LOG_WARNING, "%s: %s; trying again in %d s",
                     session->label,
                     result != CURLE_OK ? fl_curl.easy_strerror(result)
                     : status == 429    ? "the hub asks to slow down (429)"
                     : cut              ? "the connection ended early"
                                        : "the server failed",
                     seconds);
        int stopped = pause_for(session, seconds, error);
        if (stopped != 0)
            return stopped;
    }
}

int fl_download_text(fl_download *session, const char *url, size_t size_max, fl_buf *out,
                     fl_reply *reply, fletch_error *error) {
    session->target = (target){.kind = TARGET_TEXT, .text = out, .text_max = size_max};
    int status      = persist(session, url, false, error);
    *reply          = session->reply;
    session->target = (target){.kind = TARGET_NONE};
    return status;
}

int fl_download_head(fl_download *session, const char *url, fl_reply *reply, fletch_error *error) {
    session->target = (target){.kind = TARGET_NONE};
    int status      = persist(session, url, true, error);
    *reply          = session->reply;
    return status;
}

int fl_download_file(fl_download *session, const char *url, int fd, uint64_t expected,
                     uint64_t most, fl_reply *reply, fletch_error *error) {
    off_t have = lseek(fd, 0, SEEK_END);
    if (have < 0)
        return fl_fail_errno(error, errno, "cannot read", session->label);
    session->target = (target){.kind     = TARGET_FILE,
                               .fd       = fd,
                               .have     = (uint64_t)have,
                               .expected = expected,
                               .most     = expected != UINT64_MAX ? expected : most};
    int status      = persist(session, url, false, error);
    if (status < 0 && session->target.too_long && ftruncate(fd, 0) != 0)
        return fl_fail_errno(error, errno, "cannot empty", session->label);
    *reply          = session->reply;
    session->target = (target){.kind = TARGET_NONE};
    return status;
}
