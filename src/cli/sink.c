/* SPDX-License-Identifier: Apache-2.0 */
/* sink.c - write results so that nobody ever sees half of them under their final name.
 *
 * Role    output.c and the token writers append to sink->buf and flush.
 * Method  A regular file is written under a temporary name beside it and renamed at the end; the name
 *         is handed to signals.c, so Ctrl-C removes it. A link is followed first: the file it names is
 *         replaced, not the link. What is no regular file (/dev/null, a named pipe) is written directly.
 *         A stream whose beginning is known only at the end (npy) is spooled in an unnamed temporary
 *         file in TMPDIR and copied when complete.
 * Memory  One buffer of about FLUSH_AT bytes. Threads: none.
 * Proof   tests/cli/test_cli_output.py, test_cli_interrupt.py. */
#include "cli/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "cli/cli.h"

enum { FLUSH_AT = 256 * 1024 };

static int fail_write(fl_sink *sink, int reason, fletch_error *error) {
    sink->failed = true;
    if (reason == EPIPE)
        sink->closed_pipe = true;
    if (reason == EFBIG) {
        return fl_fail(error, FLETCH_ENOSPC, FLETCH_NOWHERE,
                       "cannot write %s: larger than the file size limit (ulimit -f)", sink->name);
    }
    return fl_fail_errno(error, reason, "cannot write", sink->name);
}

/* A file whose name is taken away at once: gone when the process ends, but for a SIGKILL in
 * between. */
static int open_spool(fletch_error *error) {
    const char *folder = getenv("TMPDIR");
    char        path[PATH_MAX];
    folder   = folder != NULL && folder[0] != '\0' ? folder : "/tmp";
    int size = snprintf(path, sizeof path, "%s/fletch-XXXXXX", folder);
    if (size < 0 || (size_t)size >= sizeof path)
        return fl_fail_errno(error, ENAMETOOLONG, "cannot create a temporary file in", folder);
    fl_signals_hold();
    int fd     = mkostemp(path, O_CLOEXEC);
    int reason = errno;
    if (fd >= 0)
        (void)unlink(path);
    fl_signals_release();
    return fd >= 0 ? fd : fl_fail_errno(error, reason, "cannot create a temporary file in", folder);
}

static int open_stream(fl_sink *sink, int fd, bool patched, fletch_error *error) {
    sink->fd = fd;
    if (!patched)
        return 0;
    sink->spool = open_spool(error);
    FL_TRY(sink->spool);
    sink->spools = true;
    return 0;
}

int fl_sink_open(fl_sink *sink, const char *path, bool patched, fletch_error *error) {
    memset(sink, 0, sizeof *sink);
    sink->name = "standard output";
    if (path == NULL || strcmp(path, "-") == 0)
        return open_stream(sink, STDOUT_FILENO, patched, error);
    sink->name = path;
    struct stat status;
    bool        there = stat(path, &status) == 0;
    if (there && S_ISDIR(status.st_mode)) {
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "%s is a folder; give the name of a file",
                       path);
    }
    if (there && !S_ISREG(status.st_mode)) {
        int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        if (fd < 0)
            return fl_fail_errno(error, errno, "cannot open", path);
        sink->owned = true;
        return open_stream(sink, fd, patched, error);
    }
    char resolved[PATH_MAX];
    sink->path = fl_strdup(there && realpath(path, resolved) != NULL ? resolved : path);
    if (sink->path == NULL)
        return fl_fail_nomem(error, strlen(path), "a file name");
    fl_signals_hold(); /* no moment at which a temporary exists that the handler does not know */
    int result = fl_atomic_open(&sink->file, sink->path, error);
    if (result == 0) {
        sink->guard  = fl_signals_guard(sink->file.temporary);
        sink->atomic = true;
        sink->fd     = sink->file.fd;
        if (there) /* the file keeps its permissions, as if it had been written in place */
            (void)fchmod(sink->fd, status.st_mode & 07777);
    }
    fl_signals_release();
    return result;
}

int fl_sink_spool(fl_sink *sink, fletch_error *error) {
    memset(sink, 0, sizeof *sink);
    sink->name = "a temporary file";
    int fd     = open_spool(error);
    FL_TRY(fd);
    sink->fd    = fd;
    sink->owned = true;
    return 0;
}

bool fl_sink_is_terminal(const fl_sink *sink) {
    return isatty(sink->fd) != 0;
}

static int written_to(const fl_sink *sink) {
    return sink->spools ? sink->spool : sink->fd;
}

int fl_sink_flush(fl_sink *sink, bool now, fletch_error *error) {
    if (sink->buf.failed)
        return fl_fail_nomem(error, sink->buf.size, "the output buffer");
    if (sink->buf.size == 0 || (!now && sink->buf.size < FLUSH_AT))
        return 0;
    int reason = fl_write_all(written_to(sink), sink->buf.data, sink->buf.size) == 0 ? 0 : errno;
    fl_buf_clear(&sink->buf); /* after a failure too: a part may be there, but never twice */
    return reason == 0 ? 0 : fail_write(sink, reason, error);
}

int fl_sink_copy(int fd, fl_sink *to, const char *what, const char *name, fletch_error *error) {
    ssize_t count = 1;
    FL_TRY(fl_sink_flush(to, true, error));
    if (!fl_buf_reserve(&to->buf, FLUSH_AT))
        return fl_fail_nomem(error, FLUSH_AT, "the output buffer");
    while (count != 0) {
        count = read(fd, to->buf.data, FLUSH_AT);
        if (count < 0 && errno != EINTR)
            return fl_fail_errno(error, errno, what, name);
        if (count > 0 && fl_write_all(written_to(to), to->buf.data, (size_t)count) != 0)
            return fail_write(to, errno, error);
    }
    return 0;
}

static int read_back(int spool, fl_sink *to, const char *name, fletch_error *error) {
    static const char what[] = "cannot reread the temporary file for";
    return lseek(spool, 0, SEEK_SET) == 0 ? fl_sink_copy(spool, to, what, name, error)
                                          : fl_fail_errno(error, errno, what, name);
}

int fl_sink_pour(fl_sink *spool, fl_sink *to, fletch_error *error) {
    FL_TRY(fl_sink_flush(spool, true, error));
    return read_back(spool->fd, to, spool->name, error);
}

int fl_sink_finish(fl_sink *sink, const void *head, size_t size, fletch_error *error) {
    FL_TRY(fl_sink_flush(sink, true, error));
    ssize_t written = size > 0 ? pwrite(written_to(sink), head, size, 0) : 0;
    if (written != (ssize_t)size)
        return fail_write(sink, written < 0 ? errno : ENOSPC, error);
    if (sink->spools) {
        sink->spools = false;
        int status   = read_back(sink->spool, sink, sink->name, error);
        fl_close(sink->spool);
        FL_TRY(status);
    }
    if (!sink->atomic)
        return 0;
    int status   = fl_atomic_commit(&sink->file, error);
    sink->atomic = false;
    fl_signals_let_go(sink->guard);
    return status;
}

void fl_sink_close(fl_sink *sink) {
    if (sink->atomic) {
        fl_atomic_abort(&sink->file);
        fl_signals_let_go(sink->guard);
    }
    if (sink->spools)
        fl_close(sink->spool);
    if (sink->owned)
        fl_close(sink->fd);
    fl_buf_free(&sink->buf);
    fl_free(sink->path);
    *sink = (fl_sink){0};
}
