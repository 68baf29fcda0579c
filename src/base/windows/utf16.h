/* SPDX-License-Identifier: Apache-2.0 */
/* utf16.h - names for Windows and from it, and its errors as errno; for the files of this folder. */
#ifndef FL_BASE_WINDOWS_UTF16_H
#define FL_BASE_WINDOWS_UTF16_H

#include <stdbool.h>
#include <stddef.h>
#include <wchar.h>

enum { FL_WIDE_MAX = 4096 + 8 };

/* A path of UTF-8 as Windows wants it, in the long form where it is long; false with errno. */
bool fl_wide_path(const char *path, wchar_t out[FL_WIDE_MAX]);
/* What Windows calls something, in UTF-8 with /; false with errno when it is too long. */
bool fl_wide_to_text(const wchar_t *name, char *out, size_t capacity);
/* errno from GetLastError; -1 for the caller to return. */
int fl_windows_failed(void);

#endif
