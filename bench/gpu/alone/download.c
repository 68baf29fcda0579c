/* SPDX-License-Identifier: Apache-2.0 */
/* download.c - no downloads, for a build with FLETCH_MINIMAL=ON on a machine without libcurl and without
 * a network (see bench/gpu/README.md). Every call refuses and says what would mend it. */
#include "hub/download.h"

#include "base/error.h"

static int refuse(fletch_error *error) {
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "this build has no libcurl (FLETCH_MINIMAL) and downloads nothing; give a model "
                   "folder");
}

int fl_download_open(fl_download **out, const fl_download_options *options, fletch_error *error) {
    (void)options;
    *out = NULL;
    return refuse(error);
}

void fl_download_close(fl_download *session) {
    (void)session;
}

void fl_download_label(fl_download *session, const char *label) {
    (void)session, (void)label;
}

int fl_download_poll(fl_download *session) {
    (void)session;
    return 0;
}

int fl_download_text(fl_download *session, const char *url, size_t size_max, fl_buf *out,
                     fl_reply *reply, fletch_error *error) {
    (void)session, (void)url, (void)size_max, (void)out, (void)reply;
    return refuse(error);
}

int fl_download_head(fl_download *session, const char *url, fl_reply *reply, fletch_error *error) {
    (void)session, (void)url, (void)reply;
    return refuse(error);
}

int fl_download_file(fl_download *session, const char *url, int fd, uint64_t expected,
                     uint64_t most, fl_reply *reply, fletch_error *error) {
    (void)session, (void)url, (void)fd, (void)expected, (void)most, (void)reply;
    return refuse(error);
}

void fl_url_escape(fl_buf *out, const char *text, bool keep_slash) {
    (void)keep_slash;
    fl_buf_puts(out, text);
}

bool fl_url_same_origin(const char *a, const char *b) {
    (void)a, (void)b;
    return false;
}
