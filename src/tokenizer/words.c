/* SPDX-License-Identifier: Apache-2.0 */
/* words.c - whether white space parts a text into words that know nothing of each other.
 *
 * Role     tokenizer.c asks when it opens SentencePiece's pipeline (WhitespaceSplit and Metaspace, or Metaspace
 *          alone, and any model); token_stream.c may then cut the text at white space and remember each word.
 * Method   White space must be white space still when it is normalised, and no character may draw it into its
 *          cluster; both are tried out on the normalisers themselves. A mark after a space belongs to
 *          the space's cluster: token_stream.c looks out for that.
 *          Metaspace alone makes every space a piece of its own or a part of one. But where one space, or what
 *          becomes one, stands between two solid characters, no normaliser sees across it, and what follows
 *          gets its ▁ from the space as it would at the beginning of a text: only there is the text cut. A piece
 *          may so have more white space inside; the exact way makes of it what it makes of it in the whole.
 * Proof    tests/golden/test_unigram.py holds both paths against each other. */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/unicode.h"

enum { PREPENDS_END = 0x12000 }; /* beyond all characters of the class Prepend */

/* SentencePiece's pipeline: every word between white space by itself, with ▁ in front. */
static bool has_words(const fl_tokenizer *tokenizer) {
    if (tokenizer->split_count == 0)
        return false;
    const fl_step *last  = &tokenizer->split[tokenizer->split_count - 1];
    bool           words = last->ops == &fl_split_metaspace && last->flag && last->option == 0;
    if (words && tokenizer->split_count == 1) {
        words = fl_added_is_local(&tokenizer->added, true);
    } else {
        words = words && tokenizer->local && tokenizer->split_count == 2 &&
                tokenizer->split[0].ops == &fl_split_whitespace_split;
    }
    for (unsigned i = 0; i < tokenizer->normal_count; i++)
        words = words && tokenizer->normal[i].ops->inert != NULL;
    return words;
}

static bool is_space_or_mark(const fl_tokenizer *tokenizer, uint32_t cp) {
    return fl_unicode_is_space(cp) || cp == tokenizer->split[tokenizer->split_count - 1].content[0];
}

/* May an added token of the normalised text begin so? A word that has one needs a closer look. */
static bool begins_token(const fl_tokenizer *tokenizer, uint32_t cp) {
    char text[4];
    (void)fl_utf8_encode(cp, text);
    return fl_byte_set_has(&tokenizer->added.normalized.first, (uint8_t)text[0]);
}

static bool is_inert(const fl_tokenizer *tokenizer, uint32_t cp) {
    bool inert = !is_space_or_mark(tokenizer, cp) && !begins_token(tokenizer, cp);
    for (unsigned i = 0; i < tokenizer->normal_count && inert; i++)
        inert = tokenizer->normal[i].ops->inert(&tokenizer->normal[i], cp);
    return inert;
}

/* Whether a character becomes something other than white space whatever surrounds it, and no added token begins with
 * that: a lone space beside it stays where it is. */
static bool is_solid(const fl_tokenizer *tokenizer, fl_runes *runes, uint32_t cp) {
    char   text[4];
    size_t size  = fl_utf8_encode(cp, text);
    bool   solid = fl_unicode_record_of(cp)->category != FL_CATEGORY_CN &&
                 fl_unicode_cluster_ends('a', cp, true) &&
                 fl_unicode_cluster_ends(cp, 'a', false) && fl_runes_load(runes, text, 0, size);
    for (unsigned i = 0; i < tokenizer->normal_count && solid; i++) {
        const fl_step *step = &tokenizer->normal[i];
        for (size_t k = 0; step->ops == &fl_normal_replace && k < runes->count; k++)
            solid = solid && step->ops->inert(step, runes->at[k].cp);
        solid = solid && fl_normalize(step, 1, runes) && runes->count > 0;
    }
    for (size_t k = 0; solid && k < runes->count; k++) {
        solid = !is_space_or_mark(tokenizer, runes->at[k].cp) &&
                !begins_token(tokenizer, runes->at[k].cp);
    }
    return solid;
}

/* What the normalisers make of text[size] between two letters: white space alone? One space, where that counts. */
static bool stays_blank(const fl_tokenizer *tokenizer, fl_runes *runes, const char *text,
                        size_t size) {
    char around[8] = "a";
    memcpy(around + 1, text, size);
    around[size + 1] = 'a';
    if (!fl_runes_load(runes, around, 0, size + 2) ||
        !fl_normalize(tokenizer->normal, tokenizer->normal_count, runes) || runes->count < 3 ||
        runes->at[0].cp != 'a' || runes->at[runes->count - 1].cp != 'a')
        return false;
    for (size_t i = 1; i < runes->count - 1; i++)
        if (!fl_unicode_is_space(runes->at[i].cp))
            return false;
    return !tokenizer->spaced || (runes->count == 3 && runes->at[1].cp == ' ');
}

/* Does no character draw a space that follows into its cluster? */
static bool draws_no_space(const fl_tokenizer *tokenizer, fl_runes *runes) {
    bool good = true;
    for (uint32_t cp = 0; cp < PREPENDS_END && good; cp++) {
        char text[8];
        if ((fl_unicode_flags(cp) & FL_UC_PREPEND) != 0) {
            unsigned size = fl_utf8_encode(cp, text);
            memcpy(text + size, " a", 2);
            good = fl_runes_load(runes, text, 0, size + 2) &&
                   fl_normalize(tokenizer->normal, tokenizer->normal_count, runes) &&
                   runes->count == 3 && runes->at[0].cp == cp && runes->at[1].cp == ' ';
        }
    }
    return good;
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
        if (cp - 0xD800 >= 0x800) {
            bool inert = is_inert(tokenizer, cp);
            bool solid = tokenizer->spaced && (inert || is_solid(tokenizer, &runes, cp));
            tokenizer->inert[cp / 64] |= (uint64_t)inert << cp % 64;
            tokenizer->solid[cp / 64] |= (uint64_t)solid << cp % 64;
        }
    }
    for (size_t i = 0; i < tokenizer->added.count;
         i++) { /* a word that may have one needs a closer look */
        const fl_added_token *token = &tokenizer->added.tokens[i];
        unsigned              length;
        uint32_t              cp =
            fl_utf8_decode(token->pattern != NULL ? token->pattern : token->content, &length);
        if (token->normalized && cp < FL_INERT_COUNT)
            tokenizer->inert[cp / 64] &= ~(1ull << cp % 64);
    }
    bool ends = (tokenizer->spaced || stays_blank(tokenizer, &runes, "\r\n", 2)) &&
                stays_blank(tokenizer, &runes, " ", 1) && draws_no_space(tokenizer, &runes);
    fl_runes_free(&runes);
    fl_scan_table_finish(table);
    return ends;
}

bool fl_words_prepare(fl_tokenizer *tokenizer) {
    tokenizer->spaced = tokenizer->split_count == 1;
    return has_words(tokenizer) && fill(tokenizer);
}
