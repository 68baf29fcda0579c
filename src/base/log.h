/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - notes and warnings on their way to the caller's fletch_log_fn; no global state. */
#ifndef FL_BASE_LOG_H
#define FL_BASE_LOG_H

#include <stdbool.h>

#include "fletch.h"

enum { FL_LOG_ERROR = 0, FL_LOG_WARNING = 1, FL_LOG_INFO = 2, FL_LOG_DEBUG = 3, FL_LOG_TRACE = 4 };

typedef struct fl_log {
    fletch_log_fn fn; /* NULL: silent */
    void         *user;
    bool          trace; /* FL_LOG_TRACE is told too: a line per batch */
} fl_log;

/* Formats into a stack buffer of 1 KiB and calls log->fn; `log` may be NULL. A level deeper than debug
 * costs nothing unless it is asked for. */
void fl_log_write(const fl_log *log, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
