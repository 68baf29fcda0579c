/* SPDX-License-Identifier: Apache-2.0 */
/* chars.c - text beyond ASCII, one character at a time, in the order the reference's normaliser has.
 *
 * Role     token_stream.c comes here with pieces of text that its cache does not know.
 * In/Out   A piece between two hard borders -> ids of its words.
 * Method   Vanishing controls join their neighbours; NFD, marks that are dropped and marks that wait for
 *          their order; Chinese characters; lower case. Most letters of most scripts need none of it.
 * Memory   One word in the scratch. A word longer than the model's limit is unknown whatever follows, so
 *          it is counted, not kept: one word of 10 MB needs no memory.
 * Threads  As token_stream.c.
 * Proof    tests/golden/test_tokens.py: every code point and pair of marks against the reference. */
#include "base/utf8.h"
#include "tokenizer/token_stream.h"
#include "tokenizer/unicode.h"

/* Characters without these flags stand for themselves, whatever the pipeline's flags. */
enum {
    NOT_PLAIN = FL_UC_DROP | FL_UC_SPACE | FL_UC_PUNCT | FL_UC_MARK_BERT | FL_UC_CJK | FL_UC_LOWER |
                FL_UC_DECOMPOSES | FL_UC_CCC
};

enum { ASK_BYTES = 32 * 1024 };

static inline void keep_char(fl_stream *j, uint32_t cp) {
    if (j->word_chars < j->tokenizer->wordpiece->max_chars)
        j->word_size += fl_utf8_encode(cp, j->scratch->word + j->word_size);
    j->word_chars++;
}

/* The marks that waited are in order now. */
static void settle_marks(fl_stream *j) {
    for (size_t i = 0; i < j->waiting; i++)
        keep_char(j, j->scratch->pending[2 * i]);
    j->waiting = 0;
}

/* A mark with a combining class goes behind those of its class and before those of higher ones. */
static void wait_mark(fl_stream *j, uint32_t cp, unsigned class) {
    uint32_t *pending = j->scratch->pending;
    size_t    at      = j->waiting;
    if (j->word_chars + j->waiting > j->tokenizer->wordpiece->max_chars) {
        j->word_chars++; /* the word is unknown already: only its length counts */
        return;
    }
    for (; at > 0 && pending[2 * at - 1] > class; at--) {
        pending[2 * at]     = pending[2 * at - 2];
        pending[2 * at + 1] = pending[2 * at - 1];
    }
    pending[2 * at]     = cp;
    pending[2 * at + 1] = class;
    j->waiting++;
}

static void end_word(fl_stream *j) {
    const fl_wordpiece *wordpiece = j->tokenizer->wordpiece;
    settle_marks(j);
    if (j->word_chars > 0) {
        int32_t *ids   = j->scratch->word_ids;
        size_t   count = 0;
        if (j->word_chars <= wordpiece->max_chars)
            count = fl_wordpiece_encode(wordpiece, j->scratch->word, j->word_size, ids);
        fl_stream_push(j, count > 0 ? ids : &wordpiece->unk, count > 0 ? count : 1);
    }
    j->word_size = j->word_chars = 0;
}

/* A character that has been cleaned and decomposed. */
static void take_part(fl_stream *j, uint32_t cp) {
    unsigned flags = fl_unicode_flags(cp);
    if (j->strip && (flags & (FL_UC_MARK_BERT | FL_UC_CCC)) != 0) {
        unsigned class = fl_unicode_record_of(cp)->ccc;
        if (class == 0)
            settle_marks(j);
        if ((flags & FL_UC_MARK_BERT) != 0)
            return;
        if (class != 0) {
            wait_mark(j, cp, class);
            return;
        }
    }
    settle_marks(j);
    if (j->lower && (flags & FL_UC_LOWER) != 0) {
        uint32_t low[2];
        if (fl_unicode_lower(cp, low) == 2) {
            keep_char(j, low[0]);
            low[0] = low[1];
        }
        cp    = low[0];
        flags = fl_unicode_flags(cp);
    }
    if ((flags & FL_UC_SPACE) != 0) {
        end_word(j);
    } else if (j->isolate && (flags & FL_UC_PUNCT) != 0) {
        end_word(j);
        keep_char(j, cp);
        end_word(j);
    } else {
        keep_char(j, cp);
    }
}

static void take_char(fl_stream *j, uint32_t cp) {
    unsigned flags = fl_unicode_flags(cp);
    if (j->clean && (flags & (FL_UC_DROP | FL_UC_SPACE)) != 0) {
        if ((flags & FL_UC_DROP) == 0)
            end_word(j);
        return;
    }
    bool alone = j->chinese && (flags & FL_UC_CJK) != 0;
    if (alone)
        end_word(j);
    if (j->strip && (flags & FL_UC_DECOMPOSES) != 0) {
        uint32_t parts[FL_UC_DECOMPOSITION_MAX];
        unsigned count = fl_unicode_decompose(cp, parts);
        for (unsigned i = 0; i < count; i++)
            take_part(j, parts[i]);
    } else {
        take_part(j, cp);
    }
    if (alone)
        end_word(j);
}

void fl_stream_chars(fl_stream *j, const char *text, size_t size) {
    const fl_tokenizer *t = j->tokenizer;
    for (size_t at = 0, ask = ASK_BYTES; at < size && !j->full;) {
        if (at >= ask) {
            fl_stream_worked(j, ASK_BYTES);
            ask = at + ASK_BYTES;
        }
        unsigned length;
        uint32_t cp    = fl_utf8_decode(text + at, &length);
        unsigned alone = cp < FL_ALONE_COUNT ? t->alone[cp] : 0;
        if (alone != 0) {
            end_word(j);
            fl_stream_push(j, &t->alone_ids[alone], alone != FL_ALONE_SPACE);
        } else if (j->waiting == 0 && (fl_unicode_flags(cp) & NOT_PLAIN) == 0) {
            keep_char(j, cp); /* most letters of most scripts */
        } else {
            take_char(j, cp);
        }
        at += length;
    }
    end_word(j);
}
