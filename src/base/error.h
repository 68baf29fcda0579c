/* SPDX-License-Identifier: Apache-2.0 */
/* error.h - fill a fletch_error and pass a status on, in one line each.
 *
 * Every room reports failures the same way: `return fl_fail(error, FLETCH_EMODEL, where, "…", …)`.
 * A message says what is wrong, where (file, key, tensor) and how to mend it. */
#ifndef FL_BASE_ERROR_H
#define FL_BASE_ERROR_H

#include "fletch.h"

/* Fill *error (may be NULL) and return `code`. Never allocates. A message too long for the struct is
 * cut at a UTF-8 boundary. */
int fl_fail(fletch_error *error, int code, size_t where, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* FLETCH_ENOMEM with the number of bytes and what they were for. */
int fl_fail_nomem(fletch_error *error, size_t bytes, const char *purpose);

/* FLETCH_EIO, ENOTFOUND or ENOSPC by `errno_value`, with "what PATH: strerror". */
int fl_fail_errno(fletch_error *error, int errno_value, const char *what, const char *path);

/* Put "context: " in front of the message that is there (for callers that know more). */
void fl_error_prefix(fletch_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Another word of a message's list, "a, b, c" in `room` bytes; left out where it does not fit whole. */
void fl_error_list(char *list, size_t room, const char *word);

/* Pass a failure on: leave the function with what `call` returned when that is negative. For functions that
 * own nothing yet; where something must be given back, `if (status == 0) status = …` down to the end. */
#define FL_TRY(call)                                                                               \
    do {                                                                                           \
        const int fl_try_status = (call);                                                          \
        if (fl_try_status < 0)                                                                     \
            return fl_try_status;                                                                  \
    } while (0)

/* Clear to FLETCH_OK. */
void fl_error_clear(fletch_error *error);

#endif
