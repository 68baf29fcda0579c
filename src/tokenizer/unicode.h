/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.h - the properties of characters that decide token ids, read from generated tables.
 *
 * Role     normalize.c, exact.c, chars.c, added.c and parse.c ask here; nothing else knows the
 *          tables. tools/make_unicode_tables.py writes them and says which Unicode age each property
 *          has and why (the reference mixes several).
 * In/Out   Code points 0..10FFFF, which valid UTF-8 guarantees.
 * Method   Two-stage tables: the page number of cp / 128, then one entry per character. Most of the
 *          8704 pages are equal, so all of them together take about 130 KB.
 * Threads  Constant data.
 * Proof    tests/golden/test_tokens.py runs every code point through the reference. */
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
    FL_UC_CCC        = 1 << 9  /* a combining class other than 0 */
};

/* Those of fl_unicode_more. The first four are what grapheme clusters need. */
enum {
    FL_UC_EXTEND   = 1 << 0, /* never begins a cluster: Extend, SpacingMark, ZWJ */
    FL_UC_PREPEND  = 1 << 1,
    FL_UC_PICTURE  = 1 << 2, /* Extended_Pictographic */
    FL_UC_CONTROL  = 1 << 3, /* a cluster of its own: Control, CR, LF */
    FL_UC_NUMERIC  = 1 << 4, /* Nd, Nl, No */
    FL_UC_COMPOSES = 1 << 5  /* may join the character before it in NFC */
};

enum { FL_UC_WIDE_MAX = 18, FL_UC_ZWJ = 0x200D };
enum { FL_UC_DECOMPOSITION_MAX = 4, FL_UC_DOTTED_I = 0x130, FL_UC_DOT_ABOVE = 0x307 };

extern const uint8_t  fl_unicode_flags_page[8704];
extern const uint16_t fl_unicode_flags_data[];
extern const uint8_t  fl_unicode_more_page[8704];
extern const uint8_t  fl_unicode_more_data[];
extern const uint8_t  fl_unicode_compatible_page[8704];
extern const uint16_t fl_unicode_compatible_data[]; /* index into the wide pool, 0: none */
extern const uint32_t fl_unicode_wide_pool[];
extern const unsigned fl_unicode_compositions_count;
extern const uint32_t fl_unicode_compositions[]; /* first, second, composed; in order */
extern const uint8_t  fl_unicode_ccc_page[8704];
extern const uint8_t  fl_unicode_ccc_data[];
extern const uint8_t  fl_unicode_lower_page[8704];
extern const int32_t  fl_unicode_lower_data[]; /* difference to the lower case */
extern const uint8_t  fl_unicode_decomposition_page[8704];
extern const uint16_t fl_unicode_decomposition_data[]; /* index into the pool, 0: none */
extern const uint32_t fl_unicode_pool[];               /* count, then the code points */

static inline unsigned fl_unicode_flags(uint32_t cp) {
    return fl_unicode_flags_data[fl_unicode_flags_page[cp >> 7] * 128u + (cp & 127)];
}

static inline unsigned fl_unicode_more(uint32_t cp) {
    return fl_unicode_more_data[fl_unicode_more_page[cp >> 7] * 128u + (cp & 127)];
}

/* Canonical combining class; 0 for a starter. */
static inline unsigned fl_unicode_ccc(uint32_t cp) {
    return fl_unicode_ccc_data[fl_unicode_ccc_page[cp >> 7] * 128u + (cp & 127)];
}

/* Full lower case of one character, without context: one code point, or two for U+0130. */
static inline unsigned fl_unicode_lower(uint32_t cp, uint32_t out[2]) {
    int32_t delta = fl_unicode_lower_data[fl_unicode_lower_page[cp >> 7] * 128u + (cp & 127)];
    out[0]        = (uint32_t)((int32_t)cp + delta);
    out[1]        = FL_UC_DOT_ABOVE;
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
