/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.c - decomposition and composition, and where grapheme clusters end.
 *
 * Role     The NFD of normalize.c and token_stream.c; the order of marks is their business, because it needs
 *          the neighbours.
 * Method   Hangul syllables by the arithmetic of the Unicode standard §3.12 (11,172 of them would be
 *          most of the table), all others from the generated pool, already decomposed to the end.
 * Memory   None. Threads: constant data.
 * Proof    tests/golden/test_tokens.py: all code points against the reference. */
#include "tokenizer/unicode.h"

#include <string.h>

enum {
    HANGUL_FIRST = 0xAC00,
    HANGUL_COUNT = 11172,
    LEADING      = 0x1100,
    VOWEL        = 0x1161,
    TRAILING     = 0x11A7, /* one before the first trailing consonant */
    LEADINGS     = 19,
    VOWELS       = 21,
    TRAILINGS    = 28
};

static const uint32_t *pool_entry(uint32_t cp) {
    unsigned page = fl_unicode_decomposition_page[cp >> 7];
    return &fl_unicode_pool[fl_unicode_decomposition_data[page * 128u + (cp & 127)]];
}

unsigned fl_unicode_decompose(uint32_t cp, uint32_t out[FL_UC_DECOMPOSITION_MAX]) {
    if (cp - HANGUL_FIRST < HANGUL_COUNT) {
        uint32_t index = cp - HANGUL_FIRST;
        uint32_t last  = index % TRAILINGS;
        out[0]         = LEADING + index / (VOWELS * TRAILINGS);
        out[1]         = VOWEL + index / TRAILINGS % VOWELS;
        out[2]         = TRAILING + last;
        return last == 0 ? 2 : 3;
    }
    const uint32_t *entry = pool_entry(cp);
    unsigned        count = entry[0] & 0xFF;
    if (count == 0) {
        out[0] = cp;
        return 1;
    }
    memcpy(out, entry + 1, count * sizeof *out);
    return count;
}

unsigned fl_unicode_decompose_wide(uint32_t cp, uint32_t out[FL_UC_WIDE_MAX]) {
    const uint32_t *entry = pool_entry(cp);
    unsigned        count = entry[0] >> 8;
    if (count == 0)
        return fl_unicode_decompose(cp, out);
    memcpy(out, entry + 1 + (entry[0] & 0xFF), count * sizeof *out);
    return count;
}

uint32_t fl_unicode_compose(uint32_t first, uint32_t second) {
    if (first - LEADING < LEADINGS && second - VOWEL < VOWELS)
        return HANGUL_FIRST + ((first - LEADING) * VOWELS + second - VOWEL) * TRAILINGS;
    if (first - HANGUL_FIRST < HANGUL_COUNT && (first - HANGUL_FIRST) % TRAILINGS == 0 &&
        second - TRAILING - 1 < TRAILINGS - 1)
        return first + second - TRAILING;
    size_t low = 0, high = fl_unicode_compositions_count;
    while (low < high) {
        size_t          middle = low + (high - low) / 2;
        const uint32_t *row    = &fl_unicode_compositions[3 * middle];
        if (row[0] < first || (row[0] == first && row[1] < second))
            low = middle + 1;
        else
            high = middle;
    }
    const uint32_t *row = &fl_unicode_compositions[3 * low];
    return low < fl_unicode_compositions_count && row[0] == first && row[1] == second ? row[2] : 0;
}

/* Kinds of Hangul: a leading consonant, a vowel, a trailing one, and syllables without and with one. */
enum { NO_HANGUL, LEAD, MIDDLE, TRAIL, OPEN, CLOSED };

static unsigned hangul_kind(uint32_t cp) {
    if (cp - HANGUL_FIRST < HANGUL_COUNT)
        return (cp - HANGUL_FIRST) % TRAILINGS == 0 ? OPEN : CLOSED;
    if (cp - 0x1100u < 0x60 || cp - 0xA960u < 0x1D)
        return LEAD;
    if (cp - 0x1160u < 0x48 || cp - 0xD7B0u < 0x17)
        return MIDDLE;
    return cp - 0x11A8u < 0x58 || cp - 0xD7CBu < 0x31 ? TRAIL : NO_HANGUL;
}

bool fl_unicode_is_hangul(uint32_t cp) {
    return hangul_kind(cp) != NO_HANGUL;
}

bool fl_unicode_cluster_ends(uint32_t before, uint32_t after, bool picture) {
    unsigned a = fl_unicode_flags(before), b = fl_unicode_flags(after);
    if (before == '\r' && after == '\n')
        return false;
    if (((a | b) & FL_UC_CONTROL) != 0)
        return true;
    if ((b & FL_UC_EXTEND) != 0 || (a & FL_UC_PREPEND) != 0 ||
        (picture && (b & FL_UC_PICTURE) != 0))
        return false;
    unsigned x = hangul_kind(before), y = hangul_kind(after);
    return !((x == LEAD && (y == LEAD || y == MIDDLE || y == OPEN || y == CLOSED)) ||
             ((x == MIDDLE || x == OPEN) && (y == MIDDLE || y == TRAIL)) ||
             ((x == TRAIL || x == CLOSED) && y == TRAIL));
}
