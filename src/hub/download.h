/* SPDX-License-Identifier: Apache-2.0 */
/* download.h - HTTP for the hub: ask, read headers, bring a file, with retries and safe redirects.
 *
 * A session belongs to one thread and one endpoint. The token is sent to the endpoint's own scheme,
 * host and port and to nobody else; redirects are followed by hand, at most ten, http and https
 * only, never from https down to http. 408, 429 and 5xx, timeouts and broken connections are tried
 * five times with growing pauses (Retry-After is honoured); a file goes on where it stopped, and
 * bytes gained start the count again. The progress function hears at least once a second and
 * during pauses, and may cancel.
 *
 * Calls return 0 when the server answered for good, whatever the answer: look at reply->status.
 * They fail with ENETWORK (nobody answered), ECANCELLED, ENOSPC, EIO, ENOMEM. */
#ifndef FL_HUB_DOWNLOAD_H
#define FL_HUB_DOWNLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/log.h"
#include "fletch.h"

typedef struct fl_download fl_download;

typedef struct fl_download_options {
    const char        *endpoint;     /* "https://huggingface.co"; borrowed, as all here */
    const char        *token;        /* "" for none */
    unsigned           head_seconds; /* silence allowed when asking */
    unsigned           body_seconds; /* silence allowed within a file */
    const fl_log      *log;
    fletch_progress_fn progress; /* or NULL */
    void              *user;
} fl_download_options;

/* What the last server in the chain of redirects said. */
typedef struct fl_reply {
    long     status;
    char     commit[64]; /* X-Repo-Commit */
    char     etag[160];  /* X-Linked-Etag, else ETag; without W/ and quotes */
    uint64_t size;       /* X-Linked-Size, else Content-Length */
    bool     size_known;
    char     error_code[64];     /* X-Error-Code */
    char     error_message[160]; /* X-Error-Message */
} fl_reply;

int  fl_download_open(fl_download **out, const fl_download_options *options, fletch_error *error);
void fl_download_close(fl_download *session); /* NULL is a no-op */

/* What progress calls name from now on; borrowed. */
void fl_download_label(fl_download *session, const char *label);

/* Call the progress function; non-zero to cancel. Used where the caller itself has to wait. */
int fl_download_poll(fl_download *session);

/* GET a small text, at most size_max bytes. */
int fl_download_text(fl_download *session, const char *url, size_t size_max, fl_buf *out,
                     fl_reply *reply, fletch_error *error);

/* HEAD; stops at the redirect that carries the hub's headers, before the storage host it points
 * to. */
int fl_download_head(fl_download *session, const char *url, fl_reply *reply, fletch_error *error);

/* GET into fd, which may hold the file's beginning: then only the rest is asked for. When the
 * server cannot do that the file starts over. `expected` is the whole size, or UINT64_MAX when not
 * known: then it may be `most`. A file that goes on beyond that is refused and emptied. */
int fl_download_file(fl_download *session, const char *url, int fd, uint64_t expected,
                     uint64_t most, fl_reply *reply, fletch_error *error);

/* Append text %-escaped, with '/' kept when `keep_slash`. */
void fl_url_escape(fl_buf *out, const char *text, bool keep_slash);

/* Whether two URLs have the same scheme, host and port. After a session was opened (libcurl
 * reads them). */
bool fl_url_same_origin(const char *a, const char *b);

#endif
