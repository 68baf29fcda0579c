/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - hand a formatted note to the caller's function.
 *
 * Role    warnings that are no failure: a key without effect, a file that disagrees with another.
 * In/Out  level, format; the function hears one line of printable UTF-8 of at most 1023 bytes.
 * Memory  1 KiB of stack.
 * Threads any; whether the caller's function is safe is its own affair.
 * Proof   tests/unit/test_base_mem.c. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"

void fl_log_write(const fl_log *log, int level, const char *format, ...) {
    if (log == NULL || log->fn == NULL || (level > FL_LOG_DEBUG && !log->trace))
        return;
    char    message[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    fl_utf8_make_printable(message);
    log->fn(log->user, level, message);
}
