/* SPDX-License-Identifier: Apache-2.0 */
/* unicode_categories.h - the general category of a character, as regular expressions see it.
 *
 * Role     regex.c spells out \p{..} and \s with it; the hand-written scanners walk text with it.
 * Method   A two-stage table made by tools/make_unicode_categories.py, of the Unicode age that the
 *          reference's regular expressions have (16.0; the properties of unicode.h have other ages).
 *          A set of categories is a mask of bits, so a class of a pattern is one test.
 * Threads  Constant data.
 * Proof    tests/golden/test_tokens_bpe.py runs every code point through the reference. */
#ifndef FL_TOKENIZER_UNICODE_CATEGORIES_H
#define FL_TOKENIZER_UNICODE_CATEGORIES_H

#include <stdint.h>

/* The order is that of CATEGORIES in the tool. */
typedef enum fl_category {
    FL_CATEGORY_CN,
    FL_CATEGORY_LU,
    FL_CATEGORY_LL,
    FL_CATEGORY_LT,
    FL_CATEGORY_LM,
    FL_CATEGORY_LO,
    FL_CATEGORY_MN,
    FL_CATEGORY_MC,
    FL_CATEGORY_ME,
    FL_CATEGORY_ND,
    FL_CATEGORY_NL,
    FL_CATEGORY_NO,
    FL_CATEGORY_PC,
    FL_CATEGORY_PD,
    FL_CATEGORY_PS,
    FL_CATEGORY_PE,
    FL_CATEGORY_PI,
    FL_CATEGORY_PF,
    FL_CATEGORY_PO,
    FL_CATEGORY_SM,
    FL_CATEGORY_SC,
    FL_CATEGORY_SK,
    FL_CATEGORY_SO,
    FL_CATEGORY_ZS,
    FL_CATEGORY_ZL,
    FL_CATEGORY_ZP,
    FL_CATEGORY_CC,
    FL_CATEGORY_CF,
    FL_CATEGORY_CS,
    FL_CATEGORY_CO,
    FL_CATEGORY_SPACE_CONTROL, /* Cc with White_Space: 9 to D and 85 */
    FL_CATEGORY_COUNT
} fl_category;

enum {
    FL_MASK_L = 1 << FL_CATEGORY_LU | 1 << FL_CATEGORY_LL | 1 << FL_CATEGORY_LT |
                1 << FL_CATEGORY_LM | 1 << FL_CATEGORY_LO,
    FL_MASK_M     = 1 << FL_CATEGORY_MN | 1 << FL_CATEGORY_MC | 1 << FL_CATEGORY_ME,
    FL_MASK_N     = 1 << FL_CATEGORY_ND | 1 << FL_CATEGORY_NL | 1 << FL_CATEGORY_NO,
    FL_MASK_SPACE = 1 << FL_CATEGORY_ZS | 1 << FL_CATEGORY_ZL | 1 << FL_CATEGORY_ZP |
                    1 << FL_CATEGORY_SPACE_CONTROL
};

extern const uint16_t fl_unicode_category_page[8704];
extern const uint8_t  fl_unicode_category_data[];
extern const uint32_t fl_unicode_han[]; /* first and last of each range */
enum { FL_UNICODE_HAN_COUNT = 22 };

static inline fl_category fl_unicode_category(uint32_t cp) {
    return (
        fl_category)fl_unicode_category_data[fl_unicode_category_page[cp >> 7] * 128u + (cp & 127)];
}

/* The bit of the character's category. */
static inline uint32_t fl_unicode_mask(uint32_t cp) {
    return 1u << fl_unicode_category(cp);
}

#endif
