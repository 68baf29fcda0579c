/* SPDX-License-Identifier: Apache-2.0 */
/* buf.c - a growable byte buffer that remembers failure.
 *
 * Role    JSON and text output, file contents, HTTP bodies.
 * Method  capacity doubles, so n appended bytes cost O(n); one byte more than the size is always
 *         kept for a NUL, so that text can be handed to C functions without a copy.
 * Memory  `data` from base/mem.h; fl_buf_clear keeps it, which makes a reused buffer
 *         allocation-free.
 * Threads a buffer belongs to one thread.
 * Proof   tests/unit/test_base_buf.c. */
#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { FIRST_CAPACITY = 256 };

void fl_buf_free(fl_buf *buf) {
    fl_free(buf->data);
    *buf = (fl_buf){0};
}

void fl_buf_clear(fl_buf *buf) {
    buf->size   = 0;
    buf->failed = false;
    if (buf->data != NULL)
        buf->data[0] = '\0';
}

bool fl_buf_reserve(fl_buf *buf, size_t extra) {
    assert(buf->capacity == 0 ? buf->size == 0 : buf->size < buf->capacity);
    if (buf->failed)
        return false;
    size_t needed;
    if (fl_add_overflow(buf->size, extra, &needed) || fl_add_overflow(needed, 1, &needed)) {
        buf->failed = true;
        return false;
    }
    if (needed <= buf->capacity)
        return true;
    size_t capacity = buf->capacity < FIRST_CAPACITY ? FIRST_CAPACITY : buf->capacity;
    while (capacity < needed)
        capacity = capacity > SIZE_MAX / 2 ? needed : capacity * 2;
    char *data = fl_realloc_array(buf->data, capacity, 1);
    if (data == NULL) {
        buf->failed = true;
        return false;
    }
    buf->data            = data;
    buf->capacity        = capacity;
    buf->data[buf->size] = '\0';
    return true;
}

void fl_buf_append(fl_buf *buf, const void *data, size_t size) {
    assert(data || size == 0);
    if (size == 0 || !fl_buf_reserve(buf, size))
        return;
    memcpy(buf->data + buf->size, data, size);
    buf->size += size;
    buf->data[buf->size] = '\0';
}

void fl_buf_puts(fl_buf *buf, const char *text) {
    assert(text);
    fl_buf_append(buf, text, strlen(text));
}

void fl_buf_putc(fl_buf *buf, char c) {
    if (!fl_buf_reserve(buf, 1))
        return;
    buf->data[buf->size++] = c;
    buf->data[buf->size]   = '\0';
}

void fl_buf_printf(fl_buf *buf, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) {
        buf->failed = true;
    } else if (fl_buf_reserve(buf, (size_t)length)) {
        (void)vsnprintf(buf->data + buf->size, (size_t)length + 1, format, again);
        buf->size += (size_t)length;
    }
    va_end(again);
}

char *fl_buf_take(fl_buf *buf) {
    if (!fl_buf_reserve(buf, 0)) {
        fl_buf_free(buf);
        return NULL;
    }
    char *text = buf->data;
    *buf       = (fl_buf){0};
    return text;
}

void fl_buf_base64(fl_buf *buf, const unsigned char *data, size_t size) {
    assert(data || size == 0);
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    fl_buf_putc(buf, '"');
    for (size_t i = 0; i < size; i += 3) {
        unsigned three = (unsigned)data[i] << 16;
        three |= i + 1 < size ? (unsigned)data[i + 1] << 8 : 0;
        three |= i + 2 < size ? (unsigned)data[i + 2] : 0;
        for (unsigned k = 0; k < 4; k++)
            fl_buf_putc(buf, i + k <= size ? digits[three >> (18 - 6 * k) & 63] : '=');
    }
    fl_buf_putc(buf, '"');
}

static int sextet(char c) {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

size_t fl_base64_read(const char *text, size_t size, unsigned char *out) {
    assert(text && out);
    size_t   bytes = 0;
    unsigned bits  = 0;
    if (size % 4 != 0)
        return SIZE_MAX;
    size_t end = size - (size > 0 && text[size - 1] == '=') - (size > 1 && text[size - 2] == '=');
    for (size_t i = 0; i < end; i++) {
        int six = sextet(text[i]);
        if (six < 0)
            return SIZE_MAX;
        bits = bits << 6 | (unsigned)six;
        if (i % 4 != 0) /* 8 more bits are whole */
            out[bytes++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    return bytes;
}
