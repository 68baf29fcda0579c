/* SPDX-License-Identifier: Apache-2.0 */
/* exact.c - every supported pipeline, step by step as the reference does it, with offsets.
 *
 * Role     `tokenize` (offsets), and all tokenizers that are not BERT's plain pipeline.
 * In/Out   Valid UTF-8 -> scratch->pieces: ids with the bytes of the text they stand for.
 * Method   Added tokens cut the raw text into pieces; each piece is normalised on its own, cut by the
 *          normalised added tokens, pre-tokenised, and each word goes to the model. Offsets follow from
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
    ASK_WORK   = 16 * 1024, /* runes in words, and a few for each word */
    WORD_WORK  = 64,
    WORD_SLACK = 32,   /* readable bytes after a word, as fl_token_model wants them */
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
    bool                failed; /* fl_exact_failed says why */
} job;

static bool reserve_pieces(fl_token_scratch *scratch, size_t count) {
    return fl_array_reserve(&scratch->pieces, &scratch->piece_capacity, count,
                            sizeof *scratch->pieces);
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
    if (j->full || j->failed)
        return;
    if (j->truncation == FL_TRUNCATE_RIGHT && scratch->piece_count == j->limit) {
        j->full = j->truncated = true;
        return;
    }
    if (j->truncation == FL_TRUNCATE_LEFT && scratch->piece_count / 2 >= j->limit &&
        scratch->piece_count >= 1024)
        keep_tail(j);
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
        size_t before = fl_utf8_before(text, end);
        if (!trims(fl_utf8_decode(text + before, &length)))
            break;
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

/* Room for what the model makes of a word of `size` bytes, and for the word. */
static bool reserve_word(job *j, size_t size) {
    fl_token_scratch *scratch = j->scratch;
    size_t            tokens, work;
    j->tokenizer->model->measure(j->tokenizer->model_state, size, &tokens, &work);
    if (!fl_array_reserve(&scratch->tokens, &scratch->token_capacity, tokens,
                          sizeof *scratch->tokens))
        return false;
    if (work > scratch->work_capacity) {
        fl_free(scratch->work);
        scratch->work_capacity = 0;
        scratch->work          = fl_alloc_aligned(work + work / 2, 64);
        if (scratch->work == NULL)
            return false;
        scratch->work_capacity = work + work / 2;
    }
    fl_buf_clear(&scratch->text);
    return fl_buf_reserve(&scratch->text, size + WORD_SLACK);
}

/* The runes [begin, end) are one word. */
static void take_word(job *j, size_t begin, size_t end) {
    const fl_tokenizer *tokenizer = j->tokenizer;
    fl_token_scratch   *scratch   = j->scratch;
    const fl_rune      *rune      = scratch->runes.at;
    if (!reserve_word(j, 4 * (end - begin))) {
        j->failed = true;
        return;
    }
    char  *word = scratch->text.data;
    size_t size = 0;
    for (size_t i = begin; i < end && fl_runes_go_on(&scratch->runes, i); i++)
        size += fl_utf8_encode(rune[i].cp, word + size);
    memset(word + size, 0, WORD_SLACK);
    size_t count = SIZE_MAX;
    if (!fl_was_stopped(scratch->runes.stop)) {
        count = tokenizer->model->encode_word(tokenizer->model_state, scratch->work, word, size,
                                              scratch->tokens, scratch->runes.stop);
    }
    if (count == SIZE_MAX) {
        j->failed = true;
        return;
    }
    size_t at = begin, byte = 0; /* the rune in which the token begins, and its first byte */
    size_t last = begin, last_byte = 0;
    for (size_t i = 0; i < count && !j->full && !j->failed; i++) {
        if (!fl_runes_go_on(&scratch->runes, i)) {
            j->failed = true;
            return;
        }
        const fl_word_token *token = &scratch->tokens[i];
        unsigned             length;
        while (byte + (length = fl_utf8_size(rune[at].cp)) <= token->begin && at + 1 < end) {
            byte += length;
            at++;
        }
        if (last < at) {
            last      = at;
            last_byte = byte;
        }
        while (last_byte + (length = fl_utf8_size(rune[last].cp)) < token->end && last + 1 < end) {
            last_byte += length;
            last++;
        }
        push_token(j, token->id, rune[at].start, rune[last].end);
    }
}

/* Rune of the byte at `byte` of the piece's UTF-8, going on from (*rune, *at). */
static size_t rune_at(const fl_runes *runes, size_t byte, size_t *rune, size_t *at) {
    if (byte < *at) /* overlapping white space of two added tokens */
        *rune = *at = 0;
    return fl_runes_find(runes, byte, rune, at);
}

static void cut(job *j, size_t begin, size_t end, int32_t token) {
    fl_runes *runes = &j->scratch->runes;
    if (begin < end &&
        !fl_cuts_push(&runes->cuts, (fl_cut){begin, end, runes->at[begin].start, token}))
        j->failed = true;
}

/* Cut the normalised piece by the normalised added tokens. */
static void cut_normalized(job *j) {
    fl_token_scratch *scratch = j->scratch;
    const fl_added   *added   = &j->tokenizer->added;
    fl_runes         *runes   = &scratch->runes;
    fl_buf           *text    = &scratch->text;
    fl_buf_clear(text);
    if (!fl_runes_write(runes, 0, runes->count, text)) {
        j->failed = true;
        return;
    }
    fl_added_walk  walk = {.stop = runes->stop};
    fl_added_match match;
    size_t         done = 0, rune = 0, at = 0;
    while (!j->failed && fl_added_next(added, &added->normalized, j->tokenizer->scan, text->data,
                                       text->size, text->size, &walk, &match)) {
        if (done < match.begin) {
            size_t begin = rune_at(runes, done, &rune, &at);
            cut(j, begin, rune_at(runes, match.begin, &rune, &at), -1);
        }
        size_t first = rune_at(runes, match.begin, &rune, &at);
        cut(j, first, rune_at(runes, match.end, &rune, &at), match.token->id);
        done = match.end;
    }
    if (done < text->size) {
        size_t begin = rune_at(runes, done, &rune, &at);
        cut(j, begin, runes->count, -1);
    }
}

/* An added token found in the normalised text. */
static void push_added(job *j, const fl_cut *at) {
    const fl_rune *rune  = j->scratch->runes.at;
    fl_piece       piece = {at->token, rune[at->begin].start, rune[at->end - 1].end, 0, 0};
    if (j->tokenizer->trim_offsets) {
        fl_buf *text = &j->scratch->text;
        fl_buf_clear(text);
        if (fl_runes_write(&j->scratch->runes, at->begin, at->end, text))
            measure(&piece, text->data, text->size);
        else
            j->failed = true;
    }
    push(j, piece);
}

/* Whether white space begins at text[at], at > 0, which no character before draws into its cluster. */
static bool may_cut(const char *text, size_t at) {
    unsigned length;
    size_t   before = fl_utf8_before(text, at);
    char     c      = text[at];
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
        return false;
    return text[before] != '\r' &&
           (fl_unicode_flags(fl_utf8_decode(text + before, &length)) & FL_UC_PREPEND) == 0;
}

/* The pieces that the steps have made. */
static void take_cuts(job *j) {
    fl_runes *runes = &j->scratch->runes;
    size_t    work  = 0;
    for (size_t i = 0; i < runes->cuts.count && !j->full && !j->failed; i++) {
        const fl_cut *piece = &runes->cuts.at[i];
        work += piece->end - piece->begin + WORD_WORK;
        if (work >= ASK_WORK && fl_stopped(runes->stop))
            j->failed = true;
        else if (piece->token >= 0)
            push_added(j, piece);
        else
            take_word(j, piece->begin, piece->end);
        work = work >= ASK_WORK ? 0 : work;
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
            while (stop < end && !may_cut(j->text, stop))
                stop++;
        }
        if (!fl_runes_load(runes, j->text, begin, stop) ||
            !fl_normalize(tokenizer->normal, tokenizer->normal_count, runes)) {
            j->failed = true;
            return;
        }
        if (tokenizer->added.normalized.count > 0)
            cut_normalized(j);
        else
            cut(j, 0, runes->count, -1);
        j->failed = j->failed || fl_was_stopped(runes->stop);
        for (unsigned i = 0; i < tokenizer->split_count && !j->failed; i++) {
            j->failed = !tokenizer->split[i].ops->run(&tokenizer->split[i], runes) ||
                        fl_was_stopped(runes->stop);
        }
        take_cuts(j);
        j->failed = j->failed || (stop < end && fl_stopped(runes->stop));
        begin     = stop;
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
    if ((first || piece->start == 0) && j->tokenizer->add_prefix_space && lead == 1)
        lead = 0; /* the reference takes it for the space that it added itself */
    for (; lead > 0 && piece->start < piece->end; lead--) {
        unsigned length;
        fl_utf8_decode(j->text + piece->start, &length);
        piece->start += length;
    }
    if (characters_before(j->text, piece->end, trail) < trail)
        return;
    for (; trail > 0 && piece->end > piece->start; trail--)
        piece->end = (uint32_t)fl_utf8_before(j->text, piece->end);
}

/* Characters that no normaliser touches: the word is ▁ and the text itself. */
static bool take_inert(job *j, size_t size) {
    const fl_tokenizer *tokenizer = j->tokenizer;
    const fl_step      *metaspace = &tokenizer->split[tokenizer->split_count - 1];
    char                mark[4];
    unsigned            length = fl_utf8_encode(metaspace->content[0], mark), step;
    for (size_t i = 0; i < size; i += step) {
        uint32_t cp = fl_utf8_decode(j->text + i, &step);
        if (cp >= FL_INERT_COUNT || (tokenizer->inert[cp / 64] >> cp % 64 & 1) == 0)
            return false;
    }
    if (!reserve_word(j, length + size)) {
        j->failed = true;
        return true;
    }
    char *word = j->scratch->text.data;
    memcpy(word, mark, sizeof mark);
    memcpy(word + length, j->text, size);
    memset(word + length + size, 0, WORD_SLACK);
    size_t count =
        tokenizer->model->encode_word(tokenizer->model_state, j->scratch->work, word, length + size,
                                      j->scratch->tokens, j->scratch->runes.stop);
    if (count == SIZE_MAX || !reserve_pieces(j->scratch, count)) {
        j->failed = true;
        return true;
    }
    for (size_t i = 0; i < count; i++)
        j->scratch->pieces[i].id = j->scratch->tokens[i].id;
    j->scratch->piece_count = count;
    return true;
}

bool fl_exact_piece(const fl_tokenizer *tokenizer, fl_token_scratch *scratch, const char *text,
                    size_t size) {
    job j = {tokenizer, scratch, text, SIZE_MAX, FL_TRUNCATE_RIGHT, false, false, false};
    scratch->piece_count = 0;
    if (!take_inert(&j, size))
        take_piece(&j, 0, size);
    return !j.failed;
}

int fl_exact_failed(fl_token_scratch *scratch, size_t size, fletch_error *error) {
    if (scratch->runes.stop != NULL && scratch->runes.stop->stopped) {
        return fl_fail(error, FLETCH_ECANCELLED, FLETCH_NOWHERE,
                       "tokenising the text was cancelled");
    }
    if (scratch->runes.too_long) {
        scratch->runes.too_long = false;
        return fl_fail(
            error, FLETCH_EINVAL, FLETCH_NOWHERE,
            "a regular expression of tokenizer.json takes too long on this text of %zu bytes",
            size);
    }
    if (scratch->runes.no_room) {
        scratch->runes.no_room = false;
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE,
                       "a text of %zu bytes takes more memory in tokenizer.json's steps than "
                       "memory.limit leaves; shorten the text or raise the limit",
                       size);
    }
    return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE,
                   "out of memory while tokenising a text of %zu bytes", size);
}

int fl_exact_encode(const fl_tokenizer *tokenizer, fl_token_scratch *scratch, const char *text,
                    size_t size, size_t limit, fl_truncation truncation, bool *truncated,
                    fletch_error *error) {
    job             j     = {tokenizer, scratch, text, limit, truncation, false, false, false};
    const fl_added *added = &tokenizer->added;
    fl_added_walk   walk  = {.stop = scratch->runes.stop};
    fl_added_match  match;
    size_t          done = 0;
    scratch->piece_count = 0;
    while (!j.full && !j.failed &&
           fl_added_next(added, &added->raw, tokenizer->scan, text, size, size, &walk, &match)) {
        if (done < match.begin)
            take_piece(&j, done, match.begin);
        fl_piece piece = {match.token->id, (uint32_t)match.begin, (uint32_t)match.end, 0, 0};
        if (tokenizer->trim_offsets)
            measure(&piece, text + match.begin, match.end - match.begin);
        push(&j, piece);
        done = match.end;
    }
    if (done < size)
        take_piece(&j, done, size);
    if (j.failed)
        return fl_exact_failed(scratch, size, error);
    if (truncation == FL_TRUNCATE_LEFT)
        keep_tail(&j);
    for (size_t i = 0; tokenizer->trim_offsets && i < scratch->piece_count; i++) {
        if (!fl_runes_go_on(&scratch->runes, i))
            return fl_exact_failed(scratch, size, error);
        trim_offsets(&j, &scratch->pieces[i], i == 0);
    }
    *truncated = j.truncated;
    return 0;
}
