/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.c - canonical decomposition of one character.
 *
 * Role     The NFD of normalize.c and stream.c; the order of marks is their business, because it needs
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
    VOWELS       = 21,
    TRAILINGS    = 28
};

unsigned fl_unicode_decompose(uint32_t cp, uint32_t out[FL_UC_DECOMPOSITION_MAX]) {
    if (cp - HANGUL_FIRST < HANGUL_COUNT) {
        uint32_t index = cp - HANGUL_FIRST;
        uint32_t last  = index % TRAILINGS;
        out[0]         = LEADING + index / (VOWELS * TRAILINGS);
        out[1]         = VOWEL + index / TRAILINGS % VOWELS;
        out[2]         = TRAILING + last;
        return last == 0 ? 2 : 3;
    }
    unsigned page  = fl_unicode_decomposition_page[cp >> 7];
    unsigned index = fl_unicode_decomposition_data[page * 128u + (cp & 127)];
    if (index == 0) {
        out[0] = cp;
        return 1;
    }
    unsigned count = fl_unicode_pool[index];
    memcpy(out, &fl_unicode_pool[index + 1], count * sizeof *out);
    return count;
}
