/* SPDX-License-Identifier: Apache-2.0 */
/* words.c - whether white space parts a text into words that know nothing of each other.
 *
 * Role     tokenizer.c asks when it opens SentencePiece's pipeline (WhitespaceSplit and Metaspace, any model);
 *          token_stream.c may then cut the text at white space and remember each word.
 * Method   White space must be white space still when it is normalised, and no character may draw it into its
 *          cluster; both are tried out on the normalisers themselves. A mark after a space belongs to
 *          the space's cluster: token_stream.c looks out for that.
 * Proof    tests/golden/test_unigram.py holds both paths against each other. */
#include "base/utf8.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/unicode.h"

enum { PREPENDS_END = 0x12000 }; /* beyond all characters of the class Prepend */

/* SentencePiece's pipeline: every word between white space by itself, with ▁ in front. */
static bool has_words(const fl_tokenizer *tokenizer) {
    bool words = tokenizer->local && tokenizer->split_count == 2 &&
                 tokenizer->split[0].ops == &fl_split_whitespace_split &&
                 tokenizer->split[1].ops == &fl_split_metaspace && tokenizer->split[1].flag &&
                 tokenizer->split[1].option == 0;
    for (unsigned i = 0; i < tokenizer->normal_count; i++) {
        words = words && tokenizer->normal[i].ops->inert != NULL;
    }
    return words;
}

static bool is_inert(const fl_tokenizer *tokenizer, uint32_t cp) {
    bool inert = !fl_unicode_is_space(cp) && cp != tokenizer->split[1].content[0];
    for (unsigned i = 0; i < tokenizer->normal_count && inert; i++) {
        inert = tokenizer->normal[i].ops->inert(&tokenizer->normal[i], cp);
    }
    return inert;
}

/* What the normalisers make of text[size]: white space alone? */
static bool stays_blank(const fl_tokenizer *tokenizer, fl_runes *runes, const char *text,
                        size_t size) {
    if (!fl_runes_load(runes, text, 0, size) ||
        !fl_normalize(tokenizer->normal, tokenizer->normal_count, runes) || runes->count == 0) {
        return false;
    }
    for (size_t i = 0; i < runes->count; i++) {
        if (!fl_unicode_is_space(runes->at[i].cp)) {
            return false;
        }
    }
    return true;
}

/* Which bytes part words, and which characters need no normaliser. White space parts words if it is still
 * white space when it is normalised; the C0 ones join no cluster, nor does a space that no map touches. */
static bool fill(fl_tokenizer *tokenizer) {
    fl_scan_table *table = &tokenizer->scan_table;
    fl_runes       runes = {0};
    for (unsigned byte = 0; byte < 256; byte++) {
        char text         = (char)byte;
        bool space        = byte < 0x80 && fl_unicode_is_space(byte);
        space             = space && stays_blank(tokenizer, &runes, &text, 1);
        table->kind[byte] = space ? FL_BYTE_SPACE : byte < 0x80 ? FL_BYTE_WORD : FL_BYTE_EXACT;
    }
    for (uint32_t cp = 0; cp < FL_INERT_COUNT; cp++) {
        if (cp - 0xD800 >= 0x800 && is_inert(tokenizer, cp)) {
            tokenizer->inert[cp / 64] |= 1ull << cp % 64;
        }
    }
    bool ends = stays_blank(tokenizer, &runes, "\r\n", 2) && stays_blank(tokenizer, &runes, " ", 1);
    for (uint32_t cp = 0; cp < PREPENDS_END && ends;
         cp++) { /* these draw a space into their cluster */
        char text[8];
        if ((fl_unicode_flags(cp) & FL_UC_PREPEND) != 0) {
            unsigned size = fl_utf8_encode(cp, text);
            text[size]    = ' ';
            ends          = fl_runes_load(&runes, text, 0, size + 1) &&
                   fl_normalize(tokenizer->normal, tokenizer->normal_count, &runes) &&
                   runes.count == 2 && runes.at[0].cp == cp && runes.at[1].cp == ' ';
        }
    }
    fl_runes_free(&runes);
    fl_scan_table_finish(table);
    return ends;
}

bool fl_words_prepare(fl_tokenizer *tokenizer) {
    return has_words(tokenizer) && fill(tokenizer);
}
