/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h - validate, decode and encode UTF-8 (RFC 3629: no surrogates, no overlong forms, ≤ 10FFFF). */
#ifndef FL_BASE_UTF8_H
#define FL_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Offset of the first byte that is not valid, or `size` when all is. Vectorised over ASCII. */
size_t fl_utf8_valid_prefix(const char *text, size_t size);

/* Decode one code point of valid UTF-8 at text[0]; *length gets 1..4. */
static inline uint32_t fl_utf8_decode(const char *text, unsigned *length) {
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80) {
        *length = 1;
        return p[0];
    }
    if (p[0] < 0xE0) {
        *length = 2;
        return (uint32_t)(p[0] & 0x1F) << 6 | (uint32_t)(p[1] & 0x3F);
    }
    if (p[0] < 0xF0) {
        *length = 3;
        return (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 |
               (uint32_t)(p[2] & 0x3F);
    }
    *length = 4;
    return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 |
           (uint32_t)(p[2] & 0x3F) << 6 | (uint32_t)(p[3] & 0x3F);
}

/* Code points of valid UTF-8. */
static inline size_t fl_utf8_count(const char *text, size_t size) {
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

/* Where the character begins that ends before text[at], at > 0. */
static inline size_t fl_utf8_before(const char *text, size_t at) {
    do {
        at--;
    } while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

/* Encode a code point into out[4]; returns the length 1..4. Surrogates and values above 10FFFF become
 * U+FFFD. */
unsigned fl_utf8_encode(uint32_t code_point, char *out);

/* Bytes that it takes. */
static inline unsigned fl_utf8_size(uint32_t code_point) {
    return 1u + (code_point >= 0x80) + (code_point >= 0x800) + (code_point >= 0x10000);
}

/* Append `text` with every maximal invalid part as U+FFFD (the practice Unicode recommends). */
void fl_utf8_replace_invalid(fl_buf *out, const char *text, size_t size);

/* Make a NUL-terminated text fit for a terminal, in place: a character torn at the end is cut, other
 * invalid bytes and control characters become '?', newlines and tabs a space. */
void fl_utf8_make_printable(char *text);

#endif
