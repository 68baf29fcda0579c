/* SPDX-License-Identifier: Apache-2.0 */
/* exact.c - every supported pipeline, step by step as the reference does it, with offsets.
 *
 * Role     `tokenize` (offsets), and all tokenizers that are not BERT's plain pipeline.
 * In/Out   Valid UTF-8 -> scratch->pieces: ids with the bytes of the text they stand for.
 * Method   Added tokens cut the raw text into pieces; each piece is normalised on its own, cut by the
 *          normalised added tokens, pre-tokenised, and each word goes to WordPiece. Offsets follow from
 *          the runes: a token reaches from its first character's start to its last character's end.
 *          When all steps only look at neighbours within a word (`local`), a long piece is worked off in
 *          chunks that end before white space, so memory does not grow with the text.
 * Memory   Buffers of the scratch, grown to the largest piece or chunk and kept.
 * Threads  One scratch per thread.
 * Proof    tests/golden/test_tokens.py: ids and offsets of tens of thousands of texts. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/unicode.h"

enum {
    CHUNK      = 64 * 1024,
    G_WITH_DOT = 0x120 /* the letter that byte-level tokens use for a space */
};

typedef struct job {
    const fl_tokenizer *tokenizer;
    fl_token_scratch   *scratch;
    const char         *text;
    size_t              limit;
    fl_truncation       truncation;
    bool                truncated;
    bool                full;   /* right truncation: nothing more can be kept */
    bool                failed; /* no memory */
} job;

static bool reserve_pieces(fl_token_scratch *scratch, size_t count) {
    if (count <= scratch->piece_capacity) {
        return true;
    }
    size_t    wanted = count + count / 2 + 256;
    fl_piece *grown  = fl_realloc_array(scratch->pieces, wanted, sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    scratch->pieces         = grown;
    scratch->piece_capacity = wanted;
    return true;
}

/* Drop all but the last `limit` tokens. */
static void keep_tail(job *j) {
    fl_token_scratch *scratch = j->scratch;
    if (scratch->piece_count > j->limit) {
        size_t drop = scratch->piece_count - j->limit;
        memmove(scratch->pieces, scratch->pieces + drop, j->limit * sizeof *scratch->pieces);
        scratch->piece_count = j->limit;
        j->truncated         = true;
    }
}

static void push(job *j, fl_piece piece) {
    fl_token_scratch *scratch = j->scratch;
    if (j->full || j->failed) {
        return;
    }
    if (j->truncation == FL_TRUNCATE_RIGHT && scratch->piece_count == j->limit) {
        j->full = j->truncated = true;
        return;
    }
    if (j->truncation == FL_TRUNCATE_LEFT && scratch->piece_count / 2 >= j->limit &&
        scratch->piece_count >= 1024) {
        keep_tail(j);
    }
    if (!reserve_pieces(scratch, scratch->piece_count + 1)) {
        j->failed = true;
        return;
    }
    scratch->pieces[scratch->piece_count++] = piece;
}

static bool trims(uint32_t cp) {
    return cp == G_WITH_DOT || fl_unicode_is_space(cp);
}

/* Count the white space at both ends of a token's string, for RobertaProcessing's trim_offsets. */
static void measure(fl_piece *piece, const char *text, size_t size) {
    unsigned length;
    size_t   begin = 0, end = size;
    while (begin < size && trims(fl_utf8_decode(text + begin, &length))) {
        begin += length;
        piece->lead++;
    }
    while (end > 0) {
        size_t before = end - 1;
        while (before > 0 && ((unsigned char)text[before] & 0xC0) == 0x80) {
            before--;
        }
        if (!trims(fl_utf8_decode(text + before, &length))) {
            break;
        }
        end = before;
        piece->trail++;
    }
}

static void push_token(job *j, int32_t id, uint32_t start, uint32_t end) {
    fl_piece piece = {id, start, end, 0, 0};
    if (j->tokenizer->trim_offsets) {
        size_t      length;
        const char *text = fl_vocab_text(&j->tokenizer->vocab, id, &length);
        measure(&piece, text, length);
    }
    push(j, piece);
}

/* The runes [begin, end) are one word. */
static void take_word(job *j, size_t begin, size_t end) {
    fl_token_scratch   *scratch   = j->scratch;
    const fl_wordpiece *wordpiece = &j->tokenizer->wordpiece;
    const fl_rune      *rune      = scratch->runes.at;
    size_t              count     = 0;
    if (begin == end) {
        return;
    }
    size_t size = 0;
    if (end - begin <= wordpiece->max_chars) {
        for (size_t i = begin; i < end; i++) {
            unsigned length = fl_utf8_encode(rune[i].cp, scratch->word + size);
            for (unsigned k = 0; k < length; k++) {
                scratch->word_rune[size + k] = (uint32_t)i;
            }
            size += length;
        }
        count = fl_wordpiece_encode(wordpiece, scratch->word, size, scratch->word_ids);
    }
    if (count == 0) {
        push_token(j, wordpiece->unk, rune[begin].start, rune[end - 1].end);
        return;
    }
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t length;
        fl_vocab_text(&j->tokenizer->vocab, scratch->word_ids[i], &length);
        length -= i > 0 ? wordpiece->prefix_length : 0;
        const fl_rune *first = &rune[scratch->word_rune[at]];
        const fl_rune *last  = &rune[scratch->word_rune[at + length - 1]];
        push_token(j, scratch->word_ids[i], first->start, last->end);
        at += length;
    }
}

/* Where the piece of a pre-tokeniser that begins at rune `at` ends, and whether it vanishes. */
static size_t split_end(const job *j, fl_split_kind kind, size_t at, size_t end, bool *vanishes) {
    const fl_rune *rune  = j->scratch->runes.at;
    unsigned       flags = fl_unicode_flags(rune[at].cp);
    *vanishes            = (flags & FL_UC_SPACE) != 0;
    if (*vanishes || (kind == FL_SPLIT_BERT && (flags & FL_UC_PUNCT) != 0)) {
        return at + 1;
    }
    unsigned stop = FL_UC_SPACE | (kind == FL_SPLIT_BERT ? (unsigned)FL_UC_PUNCT : 0);
    unsigned same = flags & FL_UC_WORD;
    for (at++; at < end; at++) {
        unsigned next = fl_unicode_flags(rune[at].cp);
        if ((next & stop) != 0 || (kind == FL_SPLIT_WHITESPACE && (next & FL_UC_WORD) != same)) {
            break;
        }
    }
    return at;
}

/* Run pre-tokeniser `step` and the following ones over the runes [begin, end). */
static void pre_tokenize(job *j, unsigned step, size_t begin, size_t end) {
    if (step == j->tokenizer->split_count) {
        take_word(j, begin, end);
        return;
    }
    while (begin < end && !j->full && !j->failed) {
        bool   vanishes;
        size_t stop = split_end(j, j->tokenizer->split[step], begin, end, &vanishes);
        if (!vanishes) {
            pre_tokenize(j, step + 1, begin, stop);
        }
        begin = stop;
    }
}

/* Rune of the byte at `byte` of the piece's UTF-8, going on from (*rune, *at). */
static size_t rune_at(const fl_runes *runes, size_t byte, size_t *rune, size_t *at) {
    if (byte < *at) { /* overlapping white space of two added tokens */
        *rune = *at = 0;
    }
    while (*at < byte) {
        char bytes[4];
        *at += fl_utf8_encode(runes->at[*rune].cp, bytes);
        (*rune)++;
    }
    return *rune;
}

/* Cut the normalised piece by the normalised added tokens. */
static void split_normalized(job *j) {
    fl_token_scratch *scratch = j->scratch;
    const fl_added   *added   = &j->tokenizer->added;
    fl_runes         *runes   = &scratch->runes;
    fl_buf           *text    = &scratch->text;
    fl_buf_clear(text);
    for (size_t i = 0; i < runes->count; i++) {
        char bytes[4];
        fl_buf_append(text, bytes, fl_utf8_encode(runes->at[i].cp, bytes));
    }
    if (text->failed) {
        j->failed = true;
        return;
    }
    fl_added_walk  walk = {0, 0};
    fl_added_match match;
    size_t         done = 0, rune = 0, at = 0;
    while (!j->full && fl_added_next(added, &added->normalized, j->tokenizer->scan, text->data,
                                     text->size, text->size, &walk, &match)) {
        if (done < match.begin) {
            size_t begin = rune_at(runes, done, &rune, &at);
            pre_tokenize(j, 0, begin, rune_at(runes, match.begin, &rune, &at));
        }
        size_t   first = rune_at(runes, match.begin, &rune, &at);
        size_t   last  = rune_at(runes, match.end, &rune, &at) - 1;
        fl_piece piece = {match.token->id, runes->at[first].start, runes->at[last].end, 0, 0};
        if (j->tokenizer->trim_offsets) {
            measure(&piece, text->data + match.begin, match.end - match.begin);
        }
        push(j, piece);
        done = match.end;
    }
    if (done < text->size) {
        pre_tokenize(j, 0, rune_at(runes, done, &rune, &at), runes->count);
    }
}

/* A piece of raw text without raw added tokens. */
static void take_piece(job *j, size_t begin, size_t end) {
    const fl_tokenizer *tokenizer = j->tokenizer;
    fl_runes           *runes     = &j->scratch->runes;
    while (begin < end && !j->full && !j->failed) {
        size_t stop = end;
        if (tokenizer->local && end - begin > CHUNK) {
            stop = begin + CHUNK;
            while (stop < end && memchr(" \t\n\r", j->text[stop], 4) == NULL) {
                stop++;
            }
        }
        if (!fl_runes_load(runes, j->text, begin, stop) ||
            !fl_normalize(tokenizer->normal, tokenizer->normal_count, runes)) {
            j->failed = true;
            return;
        }
        if (tokenizer->added.normalized.count > 0) {
            split_normalized(j);
        } else {
            pre_tokenize(j, 0, 0, runes->count);
        }
        begin = stop;
    }
}

/* Characters of text[0 .. at), counted no further than `enough`. */
static size_t characters_before(const char *text, size_t at, size_t enough) {
    size_t count = 0;
    while (at > 0 && count < enough) {
        at--;
        count += ((unsigned char)text[at] & 0xC0) != 0x80;
    }
    return count;
}

/* RobertaProcessing's trim_offsets: take the white space of a token's string out of its offsets. */
static void trim_offsets(const job *j, fl_piece *piece, bool first) {
    uint32_t lead = piece->lead, trail = piece->trail;
    if ((first || piece->start == 0) && j->tokenizer->add_prefix_space && lead == 1) {
        lead = 0; /* the reference takes it for the space that it added itself */
    }
    for (; lead > 0 && piece->start < piece->end; lead--) {
        unsigned length;
        fl_utf8_decode(j->text + piece->start, &length);
        piece->start += length;
    }
    if (characters_before(j->text, piece->end, trail) < trail) {
        return;
    }
    for (; trail > 0 && piece->end > piece->start; trail--) {
        do {
            piece->end--;
        } while (((unsigned char)j->text[piece->end] & 0xC0) == 0x80);
    }
}

int fl_exact_encode(const fl_tokenizer *tokenizer, fl_token_scratch *scratch, const char *text,
                    size_t size, size_t limit, fl_truncation truncation, bool *truncated,
                    fletch_error *error) {
    job             j     = {tokenizer, scratch, text, limit, truncation, false, false, false};
    const fl_added *added = &tokenizer->added;
    fl_added_walk   walk  = {0, 0};
    fl_added_match  match;
    size_t          done = 0;
    scratch->piece_count = 0;
    while (!j.full && !j.failed &&
           fl_added_next(added, &added->raw, tokenizer->scan, text, size, size, &walk, &match)) {
        if (done < match.begin) {
            take_piece(&j, done, match.begin);
        }
        fl_piece piece = {match.token->id, (uint32_t)match.begin, (uint32_t)match.end, 0, 0};
        if (tokenizer->trim_offsets) {
            measure(&piece, text + match.begin, match.end - match.begin);
        }
        push(&j, piece);
        done = match.end;
    }
    if (done < size) {
        take_piece(&j, done, size);
    }
    if (j.failed) {
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE,
                       "out of memory while tokenising a text of %zu bytes", size);
    }
    if (truncation == FL_TRUNCATE_LEFT) {
        keep_tail(&j);
    }
    for (size_t i = 0; tokenizer->trim_offsets && i < scratch->piece_count; i++) {
        trim_offsets(&j, &scratch->pieces[i], i == 0);
    }
    *truncated = j.truncated;
    return 0;
}
