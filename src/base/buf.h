/* SPDX-License-Identifier: Apache-2.0 */
/* buf.h - a growable byte buffer that remembers failure, so that callers check once at the end.
 *
 * After a failed growth `failed` is set and further appends do nothing; the content so far stays valid.
 * Memory: owns `data` (fl_alloc); reuse with fl_buf_clear keeps the capacity. */
#ifndef FL_BASE_BUF_H
#define FL_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

typedef struct fl_buf {
    char  *data; /* owned; NUL-terminated whenever size > 0 or capacity > 0 */
    size_t size;
    size_t capacity;
    bool   failed;
} fl_buf;

void  fl_buf_free(fl_buf *buf);                  /* leaves an empty, usable buffer */
void  fl_buf_clear(fl_buf *buf);                 /* size 0, failed false, capacity kept */
bool  fl_buf_reserve(fl_buf *buf, size_t extra); /* room for `extra` more bytes */
void  fl_buf_append(fl_buf *buf, const void *data, size_t size);
void  fl_buf_puts(fl_buf *buf, const char *text);
void  fl_buf_putc(fl_buf *buf, char c);
void  fl_buf_printf(fl_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *fl_buf_take(fl_buf *buf); /* the string, owned by the caller; NULL if failed */

/* Bytes as a JSON string of base64. */
void fl_buf_base64(fl_buf *buf, const unsigned char *data, size_t size);
/* Base64 with padding into out[3 * size / 4]; how many bytes, or SIZE_MAX. */
size_t fl_base64_read(const char *text, size_t size, unsigned char *out);

#endif
