/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.c - whether the text of a byte-level BPE can be cut and encoded as it stands.
 *
 * Role     tokenizer.c asks when it opens a tokenizer of pre-tokenisers that pieces.h scans, around one ByteLevel;
 *          token_stream.c then cuts the raw text and remembers each piece. The normalisers may be NFC, the one
 *          that makes white space one space where pieces have none, and Lowercase, in this order, each or none.
 * Method   Characters that those steps change are few: a bit each in `changes`, and text around them takes the exact
 *          way. Lower case alone is written on the way, where it is as long and of the same kind.
 * Proof    tests/golden/test_tokens_bpe.py holds both paths against each other and against the reference. */
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/unicode.h"

enum { POINTS = 0x110000 };

/* ---- Pre-tokenisers ------------------------------------------------------------------------------ */

/* The scanner of a step. `bytes`: ByteLevel was before, so that it sees that alphabet. */
static fl_pieces *scanner_of(const fl_step *step, bool bytes) {
    if (step->ops == &fl_split_digits) {
        bool runs = step->option == FL_CONTIGUOUS;
        return bytes  ? (runs ? fl_pieces_byte_digit_runs : fl_pieces_byte_digits)
               : runs ? fl_pieces_digit_runs
                      : fl_pieces_digits;
    }
    if (step->ops == &fl_split_punctuation)
        return !bytes && step->option == FL_CONTIGUOUS ? fl_pieces_punctuation : NULL;
    fl_pieces *scan = fl_split_pieces(step);
    return scan == NULL || !bytes || fl_pieces_are_ascii(scan) ? scan : NULL;
}

/* What cuts the text, one after another; no cutters: not all of it is scanned by hand. */
static fl_cutters find_cutters(const fl_tokenizer *tokenizer) {
    fl_cutters cutters = {.count = 0};
    bool       bytes   = false;
    for (unsigned i = 0; i < tokenizer->split_count; i++) {
        const fl_step *step = &tokenizer->split[i];
        fl_pieces     *scan = NULL;
        if (step->ops != &fl_split_byte_level) {
            scan = scanner_of(step, bytes);
        } else if (!bytes && !step->flag) {
            bytes      = true;
            bool whole = cutters.count == 1 && fl_pieces_are_whole(cutters.by[0]);
            if (step->option == 0 || whole)
                continue;
            scan = fl_pieces_of(fl_pieces_gpt2, FL_GAPS_NONE);
        }
        bool lone = cutters.count > 0 && fl_pieces_are_whole(cutters.by[0]);
        if (scan == NULL || lone || cutters.count == FL_CUTTERS_MAX)
            return (fl_cutters){.count = 0};
        cutters.by[cutters.count++] = scan;
    }
    return bytes ? cutters : (fl_cutters){.count = 0};
}

/* ---- Normalisers --------------------------------------------------------------------------------- */

/* Whether the normalisers are those that token_stream.c knows; what they do. */
static bool knows_normalisers(const fl_tokenizer *tokenizer, bool *blanks, bool *lowers) {
    unsigned       at = 0, count = tokenizer->normal_count;
    const fl_step *step = tokenizer->normal;
    at += at < count && step[at].ops == &fl_normal_nfc;
    *blanks = at < count && step[at].ops == &fl_normal_replace && step[at].state != NULL &&
              step[at].option == FL_REPLACE_BLANKS && step[at].content_count == 1 &&
              step[at].content[0] == ' ';
    at += *blanks;
    *lowers = at < count && step[at].ops == &fl_normal_lowercase;
    at += *lowers;
    return at == count;
}

/* Whether Lowercase alone does more to a character than to write another of its kind in its place. */
static bool lowers_oddly(uint32_t cp) {
    uint32_t low[2];
    return fl_unicode_lower(cp, low) != 1 || fl_utf8_size(low[0]) != fl_utf8_size(cp) ||
           ((fl_unicode_mask(low[0]) & FL_MASK_L) != 0) !=
               ((fl_unicode_mask(cp) & FL_MASK_L) != 0) ||
           ((fl_unicode_mask(low[0]) & FL_MASK_N) != 0) != ((fl_unicode_mask(cp) & FL_MASK_N) != 0);
}

/* The characters that the normalisers change otherwise, or that NFC may join to the one before. False: no memory. */
static bool fill_changes(fl_tokenizer *tokenizer) {
    fl_runes runes     = {0};
    bool     good      = true;
    tokenizer->changes = fl_alloc_zero(POINTS / 64, sizeof *tokenizer->changes);
    for (uint32_t cp = 0; cp < POINTS && good && tokenizer->changes != NULL; cp++) {
        unsigned flags  = fl_unicode_flags(cp);
        uint32_t low[2] = {cp};
        bool     other  = (flags & (FL_UC_CCC | FL_UC_COMPOSES)) != 0;
        if (tokenizer->lowers && !other) {
            other = lowers_oddly(cp);
            (void)fl_unicode_lower(cp, low);
        }
        if (!other && (flags & FL_UC_DECOMPOSES) != 0) {
            char   text[4];
            size_t size = fl_utf8_encode(cp, text);
            good        = fl_runes_load(&runes, text, 0, size) &&
                   fl_normalize(tokenizer->normal, tokenizer->normal_count, &runes);
            other = good && (runes.count != 1 || runes.at[0].cp != low[0]);
        }
        if (other)
            tokenizer->changes[cp / 64] |= 1ull << (cp % 64);
    }
    fl_runes_free(&runes);
    return good && tokenizer->changes != NULL;
}

bool fl_bytes_prepare(fl_tokenizer *tokenizer) {
    const fl_bpe   *bpe   = tokenizer->model_state;
    const fl_added *added = &tokenizer->added;
    bool            both  = added->raw.count > 0 && added->normalized.count > 0;
    bool            blanks, lowers;
    if (tokenizer->model != &fl_bpe_model || !bpe->has_bytes ||
        !knows_normalisers(tokenizer, &blanks, &lowers) ||
        ((tokenizer->normal_count > 0 || both) && !fl_added_is_local(added, blanks)))
        return true;
    fl_cutters cutters = find_cutters(tokenizer);
    bool       drops   = cutters.count > 0 && fl_pieces_are_whole(cutters.by[0]);
    if (cutters.count == 0 || (blanks && !drops))
        return true;
    tokenizer->cutters = cutters;
    tokenizer->lowers  = lowers;
    return tokenizer->normal_count == 0 || fill_changes(tokenizer);
}
