/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - fill a fletch_error so that every room reports failures in the same words.
 *
 * Role    every function of the library that can fail ends in one of these calls.
 * In/Out  a status, a place and a format; the message is UTF-8, one line, cut at a whole character.
 * Method  the text is formatted into a local buffer first, because callers may pass the old message
 *         of the very same struct as an argument. Names from files and servers end up in messages,
 *         so control characters (terminal escapes) and broken UTF-8 are taken out here, once, for
 *         all.
 * Memory  none: an out-of-memory report must not need memory.
 * Threads a fletch_error belongs to one caller; fl_os_reason keeps no shared buffer.
 * Proof   tests/unit/test_base_mem.c, test_base_file.c (mapping of errno values). */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/os.h"
#include "base/utf8.h"

enum { MESSAGE_MAX = sizeof(((fletch_error *)0)->message) };

int fl_fail(fletch_error *error, int code, size_t where, const char *format, ...) {
    if (error == NULL)
        return code;
    char    message[MESSAGE_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length < 0)
        message[0] = '\0';
    fl_utf8_make_printable(message);
    error->code  = code;
    error->where = where;
    memcpy(error->message, message, strlen(message) + 1);
    return code;
}

int fl_fail_nomem(fletch_error *error, size_t bytes, const char *purpose) {
    return fl_fail(
        error, FLETCH_ENOMEM, FLETCH_NOWHERE,
        "out of memory: %zu bytes for %s; free memory or lower memory.limit and the batch "
        "sizes",
        bytes, purpose);
}

static int status_of_errno(int errno_value) {
    switch (errno_value) {
    case ENOENT:
    case ENOTDIR: return FLETCH_ENOTFOUND;
    case ENOSPC:
    case EDQUOT: return FLETCH_ENOSPC;
    case ENOMEM: return FLETCH_ENOMEM;
    default: return FLETCH_EIO;
    }
}

/* What a person can do about it; "" where the system's own words say enough. */
static const char *mending_hint(int errno_value) {
    switch (errno_value) {
    case ENOSPC: return "; free some space or write to another disk";
    case EDQUOT: return "; the disk quota is used up: free some space or write elsewhere";
    case EACCES:
    case EPERM: return "; check the permissions of the file and its folder";
    case EROFS: return "; choose a folder on a writable disk";
    case EMFILE:
    case ENFILE: return "; close files or raise the limit (ulimit -n)";
    default: return "";
    }
}

int fl_fail_errno(fletch_error *error, int errno_value, const char *what, const char *path) {
    char        buffer[128];
    const char *reason = fl_os_reason(errno_value, buffer, sizeof buffer);
    return fl_fail(error, status_of_errno(errno_value), FLETCH_NOWHERE, "%s %s: %s%s", what, path,
                   reason, mending_hint(errno_value));
}

void fl_error_prefix(fletch_error *error, const char *format, ...) {
    if (error == NULL)
        return;
    char    context[MESSAGE_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(context, sizeof context, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    char message[2 * MESSAGE_MAX + 2]; /* holds both whole; cut once, below */
    (void)snprintf(message, sizeof message, "%s: %s", context, error->message);
    message[MESSAGE_MAX - 1] = '\0';
    fl_utf8_make_printable(message);
    memcpy(error->message, message, strlen(message) + 1);
}

void fl_error_list(char *list, size_t room, const char *word) {
    const size_t used = strlen(list), size = strlen(word) + (used > 0 ? 2 : 0);
    if (size < room - used)
        (void)snprintf(list + used, room - used, "%s%s", used > 0 ? ", " : "", word);
}

void fl_error_clear(fletch_error *error) {
    if (error == NULL)
        return;
    error->code       = FLETCH_OK;
    error->where      = FLETCH_NOWHERE;
    error->message[0] = '\0';
}
