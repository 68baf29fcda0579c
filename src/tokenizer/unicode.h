/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.h - the properties of characters that decide token ids, read from generated tables.
 *
 * Role     normalize.c, exact.c, chars.c, added.c and parse.c ask here, regex.c spells out \p{..} and \s by
 *          categories, pieces.c walks text by them; nothing else knows the tables.
 *          tools/make_unicode_tables.py writes them and says which Unicode age each property has and
 *          why (the reference mixes several).
 * In/Out   Code points 0..10FFFF, which valid UTF-8 guarantees.
 * Method   Two-stage tables: the page number of cp / 128, then one entry per character. Most of the
 *          8704 pages are equal, and characters that are alike in all properties share one record.
 * Threads  Constant data.
 * Proof    tests/golden/test_tokens.py and test_tokens_bpe.py run every code point through the reference. */
#ifndef FL_TOKENIZER_UNICODE_H
#define FL_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

/* The order is that of FLAGS in the tool. */
enum {
    FL_UC_DROP       = 1 << 0, /* what BERT's clean_text removes */
    FL_UC_SPACE      = 1 << 1, /* White_Space */
    FL_UC_PUNCT      = 1 << 2, /* what BERT's pre-tokenizer isolates */
    FL_UC_MARK_BERT  = 1 << 3, /* Mn: what BERT's strip_accents removes */
    FL_UC_MARK       = 1 << 4, /* M: what the StripAccents normalizer removes */
    FL_UC_CJK        = 1 << 5, /* what handle_chinese_chars puts spaces around */
    FL_UC_WORD       = 1 << 6, /* \w */
    FL_UC_LOWER      = 1 << 7, /* has another lower case */
    FL_UC_DECOMPOSES = 1 << 8, /* NFD changes it */
    FL_UC_CCC        = 1 << 9, /* a combining class other than 0 */
    /* The next four are what grapheme clusters need. */
    FL_UC_EXTEND    = 1 << 10, /* never begins a cluster: Extend, SpacingMark, ZWJ */
    FL_UC_PREPEND   = 1 << 11,
    FL_UC_PICTURE   = 1 << 12, /* Extended_Pictographic */
    FL_UC_CONTROL   = 1 << 13, /* a cluster of its own: Control, CR, LF */
    FL_UC_NUMERIC   = 1 << 14, /* Nd, Nl, No */
    FL_UC_COMPOSES  = 1 << 15, /* may join the character before it in NFC */
    FL_UC_HAN       = 1 << 16, /* the script */
    FL_UC_WORD_SIGN = 1 << 17  /* \w of regular expressions beside its categories */
};

/* The general category, as regular expressions see it: a set of them is a mask of bits, so that a class of a
 * pattern is one test. The order is that of CATEGORIES in the tool. */
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
    FL_MASK_P     = 0x7F << FL_CATEGORY_PC,
    FL_MASK_S     = 0xF << FL_CATEGORY_SM,
    FL_MASK_N     = 1 << FL_CATEGORY_ND | 1 << FL_CATEGORY_NL | 1 << FL_CATEGORY_NO,
    FL_MASK_SPACE = 1 << FL_CATEGORY_ZS | 1 << FL_CATEGORY_ZL | 1 << FL_CATEGORY_ZP |
                    1 << FL_CATEGORY_SPACE_CONTROL
};

/* What a character is to the rules that end sentences (UAX 29). The order is that of SENTENCE_CLASSES in the
 * tool. */
typedef enum fl_sentence_class {
    FL_SENTENCE_OTHER,
    FL_SENTENCE_EXTEND, /* belongs to the character before it: Extend, Format */
    FL_SENTENCE_SEP,    /* ends a line: Sep, CR, LF */
    FL_SENTENCE_SP,
    FL_SENTENCE_LOWER,
    FL_SENTENCE_UPPER,
    FL_SENTENCE_OLETTER,
    FL_SENTENCE_NUMERIC,
    FL_SENTENCE_ATERM, /* a full stop, which may stand in an abbreviation or a number */
    FL_SENTENCE_SCONTINUE,
    FL_SENTENCE_STERM,
    FL_SENTENCE_CLOSE
} fl_sentence_class;

enum { FL_UC_WIDE_MAX = 18, FL_UC_ZWJ = 0x200D };
enum { FL_UC_DECOMPOSITION_MAX = 4, FL_UC_DOTTED_I = 0x130, FL_UC_DOT_ABOVE = 0x307 };

/* What is true of a character. */
typedef struct fl_unicode_record {
    uint32_t flags;    /* FL_UC_... */
    int32_t  lower;    /* difference to the lower case */
    uint8_t  ccc;      /* canonical combining class; 0 for a starter */
    uint8_t  category; /* fl_category */
} fl_unicode_record;

extern const fl_unicode_record fl_unicode_records[];
extern const uint16_t          fl_unicode_record_page[8704];
extern const uint8_t           fl_unicode_record_data[]; /* index of the record */
extern const uint8_t           fl_unicode_decomposition_page[8704];
extern const uint16_t          fl_unicode_decomposition_data[]; /* index into the pool, 0: none */
extern const uint8_t           fl_unicode_sentence_page[8704];
extern const uint8_t           fl_unicode_sentence_data[]; /* fl_sentence_class */
/* Of each decomposition: the number of canonical parts, with 256 times that of compatible ones (0: the same),
 * then those parts, then these. */
extern const uint32_t fl_unicode_pool[];
extern const unsigned fl_unicode_compositions_count;
extern const uint32_t fl_unicode_compositions[]; /* first, second, composed; in order */

static inline const fl_unicode_record *fl_unicode_record_of(uint32_t cp) {
    unsigned page = fl_unicode_record_page[cp >> 7];
    return &fl_unicode_records[fl_unicode_record_data[page * 128u + (cp & 127)]];
}

static inline unsigned fl_unicode_flags(uint32_t cp) {
    return fl_unicode_record_of(cp)->flags;
}

/* The bit of the character's category. */
static inline uint32_t fl_unicode_mask(uint32_t cp) {
    return 1u << fl_unicode_record_of(cp)->category;
}

static inline fl_sentence_class fl_unicode_sentence(uint32_t cp) {
    unsigned page = fl_unicode_sentence_page[cp >> 7];
    return (fl_sentence_class)fl_unicode_sentence_data[page * 128u + (cp & 127)];
}

/* Full lower case of one character, without context: one code point, or two for U+0130. */
static inline unsigned fl_unicode_lower(uint32_t cp, uint32_t out[2]) {
    out[0] = (uint32_t)((int32_t)cp + fl_unicode_record_of(cp)->lower);
    out[1] = FL_UC_DOT_ABOVE;
    return cp == FL_UC_DOTTED_I ? 2 : 1;
}

/* Full canonical decomposition of one character, 1 to 4 code points. */
unsigned fl_unicode_decompose(uint32_t cp, uint32_t out[FL_UC_DECOMPOSITION_MAX]);

/* Full compatibility decomposition, 1 to 18 code points. */
unsigned fl_unicode_decompose_wide(uint32_t cp, uint32_t out[FL_UC_WIDE_MAX]);

/* What two characters compose to; 0: they do not. */
uint32_t fl_unicode_compose(uint32_t first, uint32_t second);

/* Whether a grapheme cluster may end between two characters. `picture`: the cluster so far ends in a
 * picture, marks and a ZWJ. */
bool fl_unicode_cluster_ends(uint32_t before, uint32_t after, bool picture);

bool fl_unicode_is_hangul(uint32_t cp); /* a syllable or a part of one */

/* White_Space, without \v, \f and the like being special. */
static inline bool fl_unicode_is_space(uint32_t cp) {
    return (fl_unicode_flags(cp) & FL_UC_SPACE) != 0;
}

#endif
