/* SPDX-License-Identifier: Apache-2.0 */
/* sink.h - where results go: a file that appears when it is whole, a device, or standard output. */
#ifndef FL_CLI_SINK_H
#define FL_CLI_SINK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/file.h"
#include "fletch.h"

/* One of zeros is closed. */
typedef struct fl_sink {
    fl_buf         buf;   /* what is not written yet; writers append here */
    const char    *name;  /* for messages */
    int            fd;    /* written to */
    int            spool; /* of one that spools: written to until all is there */
    bool           spools, atomic, owned;
    bool           closed_pipe; /* the reader went away: end without a message */
    bool           failed;      /* a write failed: what is there is not all that was written */
    fl_atomic_file file;
    int            guard; /* of the temporary file, by signals.c */
    char          *path;  /* owned; final name with links resolved */
} fl_sink;

/* `path` NULL or "-": standard output. `patched`: the beginning will be rewritten at the end, so a
 * stream is spooled in a temporary file first. */
int fl_sink_open(fl_sink *sink, const char *path, bool patched, fletch_error *error);

/* A sink into an unnamed temporary file: what is to follow something that is not complete yet. */
int fl_sink_spool(fl_sink *sink, fletch_error *error);

/* What is left to read of fd, behind what is in `to`. A failure to read is told as "`what` `name`". */
int fl_sink_copy(int fd, fl_sink *to, const char *what, const char *name, fletch_error *error);

/* All that is in a spool, behind what is in `to`. */
int fl_sink_pour(fl_sink *spool, fl_sink *to, fletch_error *error);

/* Write out what is buffered (when it is much, or `now`). */
int fl_sink_flush(fl_sink *sink, bool now, fletch_error *error);

/* All is written: overwrite the first bytes (size 0: none), give the file its name or copy the spool. */
int fl_sink_finish(fl_sink *sink, const void *head, size_t size, fletch_error *error);

/* Idempotent; before fl_sink_finish it leaves nothing behind. */
void fl_sink_close(fl_sink *sink);

bool fl_sink_is_terminal(const fl_sink *sink);

#endif
