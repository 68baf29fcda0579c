/* SPDX-License-Identifier: Apache-2.0 */
/* pieces_text.h - what the scanners of pieces.h are made of: runs of characters by their categories. */
#ifndef FL_TOKENIZER_PIECES_TEXT_H
#define FL_TOKENIZER_PIECES_TEXT_H

#include <string.h>

#include "base/utf8.h"
#include "tokenizer/pieces.h"
#include "tokenizer/unicode.h"

enum { LONG_S_1 = 0xC5, LONG_S_2 = 0xBF /* U+017F, which (?i:s) matches */ };

typedef struct text {
    const unsigned char *at;
    size_t               size;
} text;

/* The category's bit of the character at `at`, and its length. */
static inline uint32_t look(const text *t, size_t at, unsigned *length) {
    return fl_unicode_mask(fl_utf8_decode((const char *)t->at + at, length));
}

/* Where the run of characters with these categories that begins at `at` ends. */
static inline size_t run(const text *t, size_t at, uint32_t mask) {
    unsigned length;
    while (at < t->size && (look(t, at, &length) & mask) != 0)
        at += length;
    return at;
}

static inline size_t run_without(const text *t, size_t at, uint32_t mask) {
    return run(t, at, ~mask);
}

/* The same for letters. */
static inline size_t letters(const text *t, size_t at) {
    const uint64_t ones = 0x0101010101010101u, high = ones * 0x80;
    while (t->size - at >= 8) {
        uint64_t x;
        memcpy(&x, t->at + at, 8);
        uint64_t y      = (x | ones * 0x20) & ~high;
        uint64_t letter = (y + ones * (0x80 - 'a')) & ~(y + ones * (0x7F - 'z')) & ~x & high;
        if (letter != high) {
            at += (unsigned)__builtin_ctzll(letter ^ high) / 8;
            return t->at[at] < 0x80 ? at : run(t, at, FL_MASK_L);
        }
        at += 8;
    }
    return run(t, at, FL_MASK_L);
}

/* White space that begins at `at`: all of it but its last character when something follows, so that a space
 * may go with the next word; a lone one stays whole. */
static inline size_t blanks(const text *t, size_t at) {
    size_t   last = at, end = at;
    unsigned length;
    while (end < t->size && (look(t, end, &length) & FL_MASK_SPACE) != 0) {
        last = end;
        end += length;
    }
    return end < t->size && last > at ? last : end;
}

/* The same, but a run with line ends reaches to the last of them. */
static inline size_t blanks_or_lines(const text *t, size_t at) {
    size_t end = run(t, at, FL_MASK_SPACE);
    for (size_t i = end; i > at; i--)
        if (t->at[i - 1] == '\n' || t->at[i - 1] == '\r')
            return i;
    return blanks(t, at);
}

/* Length of 's 't 're 've 'm 'll 'd at `at`, where an apostrophe stands; 0: none. `fold`: in any case. */
static inline size_t contraction(const text *t, size_t at, bool fold) {
    size_t        left     = t->size - at;
    unsigned char case_bit = fold ? 0x20 : 0;
    if (left < 2)
        return 0;
    unsigned char a = t->at[at + 1] | case_bit, b = left > 2 ? t->at[at + 2] | case_bit : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if ((b == 'e' && (a == 'r' || a == 'v')) || (b == 'l' && a == 'l'))
        return 3;
    return fold && left > 2 && t->at[at + 1] == LONG_S_1 && t->at[at + 2] == LONG_S_2 ? 3 : 0;
}

static inline bool is_letter(unsigned char c) {
    return (unsigned char)((c | 0x20) - 'a') < 26;
}

/* A scanner is a loop around its piece. */
#define SCANNER(name, piece)                                                                       \
    size_t name(const char *data, size_t size, size_t at, uint32_t *ends, size_t capacity) {       \
        const text t     = {(const unsigned char *)data, size};                                    \
        size_t     count = 0;                                                                      \
        while (at < size && count < capacity) {                                                    \
            at            = piece;                                                                 \
            ends[count++] = (uint32_t)at;                                                          \
        }                                                                                          \
        return count;                                                                              \
    }

#endif
