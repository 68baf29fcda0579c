/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.c - validate, encode and repair UTF-8.
 *
 * Role    every text enters the library through fl_utf8_valid_prefix; after it fl_utf8_decode may
 *         trust.
 * Method  32 bytes of ASCII at a time (the compiler turns the four words into one vector), then
 *         one character by the table of Unicode 15 §3.9: only the second byte of a character has a
 *         range that depends on the first, and that range is what excludes overlong forms,
 *         surrogates and values above 10FFFF.
 * Memory  none, except the caller's buffer. Threads: any.
 * Proof   tests/unit/test_base_utf8.c: all code points, all two- and three-byte strings, Unicode's
 *         table 3-8 of replacements. */
#include "base/utf8.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

/* Bytes of the longest prefix of text[0 .. size) that begins a valid character, and in *whole
 * whether that prefix is a whole one. 0 when the first byte can begin none. size >= 1. */
static size_t character_prefix(const unsigned char *p, size_t size, bool *whole) {
    assert(size > 0);
    unsigned char low    = 0x80;
    unsigned char high   = 0xBF;
    size_t        length = 0;
    *whole               = false;
    if (p[0] < 0x80) {
        *whole = true;
        return 1;
    }
    if (p[0] < 0xC2 || p[0] > 0xF4)
        return 0;
    if (p[0] < 0xE0) {
        length = 2;
    } else if (p[0] < 0xF0) {
        length = 3;
        low    = p[0] == 0xE0 ? 0xA0 : 0x80; /* not overlong */
        high   = p[0] == 0xED ? 0x9F : 0xBF; /* no surrogates */
    } else {
        length = 4;
        low    = p[0] == 0xF0 ? 0x90 : 0x80; /* not overlong */
        high   = p[0] == 0xF4 ? 0x8F : 0xBF; /* at most 10FFFF */
    }
    if (size < 2 || p[1] < low || p[1] > high)
        return 1;
    for (size_t i = 2; i < length; i++)
        if (i == size || (p[i] & 0xC0) != 0x80)
            return i;
    *whole = true;
    return length;
}

size_t fl_utf8_valid_prefix(const char *text, size_t size) {
    assert(text || size == 0);
    const unsigned char *p = (const unsigned char *)text;
    size_t               i = 0;
    while (i < size) {
        if (size - i >= 32) {
            uint64_t word[4];
            memcpy(word, p + i, sizeof word);
            if (((word[0] | word[1] | word[2] | word[3]) & 0x8080808080808080u) == 0) {
                i += 32;
                continue;
            }
        }
        /* Up to 32 characters one by one before the wide test is tried again. */
        size_t stop = size - i > 32 ? i + 32 : size;
        while (i < stop) {
            bool   whole;
            size_t length = character_prefix(p + i, size - i, &whole);
            if (!whole)
                return i;
            i += length;
        }
    }
    return size;
}

unsigned fl_utf8_encode(uint32_t code_point, char *out) {
    assert(out);
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF))
        code_point = 0xFFFD;
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    if (code_point < 0x800) {
        out[0] = (char)(0xC0 | code_point >> 6);
        out[1] = (char)(0x80 | (code_point & 0x3F));
        return 2;
    }
    if (code_point < 0x10000) {
        out[0] = (char)(0xE0 | code_point >> 12);
        out[1] = (char)(0x80 | (code_point >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code_point & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code_point >> 18);
    out[1] = (char)(0x80 | (code_point >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code_point >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code_point & 0x3F));
    return 4;
}

void fl_utf8_replace_invalid(fl_buf *out, const char *text, size_t size) {
    size_t i = 0;
    while (i < size) {
        size_t valid = fl_utf8_valid_prefix(text + i, size - i);
        fl_buf_append(out, text + i, valid);
        i += valid;
        if (i < size) {
            bool   whole;
            size_t length = character_prefix((const unsigned char *)text + i, size - i, &whole);
            i += length == 0 ? 1 : length;
            fl_buf_puts(out, "\xEF\xBF\xBD");
        }
    }
}

void fl_utf8_make_printable(char *text) {
    size_t size = strlen(text);
    size_t i    = 0;
    while (i < size) {
        bool   whole;
        size_t length = character_prefix((const unsigned char *)text + i, size - i, &whole);
        if (!whole && length > 0 && i + length == size) {
            text[i] = '\0'; /* a character torn by the end of the buffer */
            return;
        }
        unsigned char c = (unsigned char)text[i];
        if (!whole)
            text[i] = '?';
        else if (c < 0x20)
            text[i] = c == '\n' || c == '\t' ? ' ' : '?';
        else if (c == 0x7F)
            text[i] = '?';
        else if (c == 0xC2 && (unsigned char)text[i + 1] < 0xA0)
            text[i] = text[i + 1] = '?'; /* U+0080 to U+009F: some terminals obey U+009B as ESC [ */
        i += whole ? length : 1;
    }
}
