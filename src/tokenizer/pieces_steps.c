/* SPDX-License-Identifier: Apache-2.0 */
/* pieces_steps.c - the scanners of pipelines of several steps, and CLIP's: see pieces.h. */
#include "tokenizer/pieces_text.h"

enum {
    MASK_LNS = FL_MASK_L | FL_MASK_N | FL_MASK_SPACE,
    MASK_LM  = FL_MASK_L | FL_MASK_M,
    MASK_PS  = FL_MASK_P | FL_MASK_S
};

/* ---- DeepSeek, Falcon, Digits, Punctuation ------------------------------------------------------ */

/* The first byte from `at` on that is a digit or no ASCII, or the end. */
static size_t next_digit(const text *t, size_t at) {
    const uint64_t ones = 0x0101010101010101u, high = ones * 0x80;
    for (; t->size - at >= 8; at += 8) {
        uint64_t x;
        memcpy(&x, t->at + at, 8);
        uint64_t y     = x & ~high;
        uint64_t digit = (y + ones * (0x80 - '0')) & ~(y + ones * (0x7F - '9')) & high;
        uint64_t found = (digit & ~x) | (x & high);
        if (found != 0)
            return at + (unsigned)__builtin_ctzll(found) / 8;
    }
    while (at < t->size && t->at[at] < 0x80 && (unsigned char)(t->at[at] - '0') > 9)
        at++;
    return at;
}

/* \p{N}, or what Digits takes for a number: the two are of different ages. */
static inline bool is_number(const text *t, size_t at, bool step, unsigned *length) {
    const fl_unicode_record *r =
        fl_unicode_record_of(fl_utf8_decode((const char *)t->at + at, length));
    return step ? (r->flags & FL_UC_NUMERIC) != 0 : (1u << r->category & FL_MASK_N) != 0;
}

/* The size of a character whose first byte no number has, or 0. */
static inline unsigned sure_other_than_number(unsigned char lead) {
    const uint64_t others = 0x7BF075FFFFF8u; /* bit n: C0 + n */
    bool           sure   = lead >= 0xC0 && (others >> (lead - 0xC0) & 1) != 0;
    return !sure ? 0 : lead < 0xE0 ? 2 : 3;
}

/* At most `most` numbers, or all up to the next one. */
static inline size_t number_piece(const text *t, size_t at, size_t most, bool step) {
    unsigned length;
    size_t   end = at;
    for (; most > 0 && end < t->size && is_number(t, end, step, &length); most--)
        end += length;
    if (end > at)
        return end;
    while ((at = next_digit(t, at)) < t->size) {
        length = sure_other_than_number(t->at[at]);
        if (length == 0 && is_number(t, at, step, &length))
            break;
        at += length;
    }
    return at;
}

/* The first byte from `at` on that begins a character of U+3000 or above, or the end. */
static size_t next_high(const text *t, size_t at) {
    const uint64_t ones = 0x0101010101010101u, high = ones * 0x80;
    for (; t->size - at >= 8; at += 8) {
        uint64_t x;
        memcpy(&x, t->at + at, 8);
        uint64_t found = ((x & ~high) + ones * (0x80 - 0x63)) & x & high;
        if (found != 0)
            return at + (unsigned)__builtin_ctzll(found) / 8;
    }
    while (at < t->size && t->at[at] < 0xE3)
        at++;
    return at;
}

/* [一-龥぀-ゟ゠-ヿ] */
static inline bool is_kana_or_han(const text *t, size_t at, unsigned *length) {
    *length = 3;
    if (t->at[at] >= 0xE5 && t->at[at] <= 0xE8)
        return true;
    uint32_t cp = fl_utf8_decode((const char *)t->at + at, length);
    return cp - 0x4E00 <= 0x9FA5 - 0x4E00 || cp - 0x3040 <= 0x30FF - 0x3040;
}

static size_t kana_or_han_piece(const text *t, size_t at) {
    unsigned length;
    if (is_kana_or_han(t, at, &length)) {
        for (at += length; at < t->size && is_kana_or_han(t, at, &length);)
            at += length;
        return at;
    }
    for (at = next_high(t, at + length); at < t->size && !is_kana_or_han(t, at, &length);)
        at = next_high(t, at + length);
    return at;
}

/* [\p{L}\p{M}]+ */
static inline size_t marked_letters(const text *t, size_t at) {
    at = letters(t, at);
    return at < t->size && t->at[at] >= 0x80 ? run(t, at, MASK_LM) : at;
}

/* "[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+" at `at`, whose category is `mask`; `at` when there is none. */
static size_t marked_word(const text *t, size_t at, uint32_t mask, unsigned length) {
    unsigned next;
    if ((mask & MASK_LM) != 0)
        return marked_letters(t, at);
    bool head = (mask & MASK_PS) == 0 && t->at[at] != '\n' && t->at[at] != '\r';
    return head && at + length < t->size && (look(t, at + length, &next) & MASK_LM) != 0
               ? marked_letters(t, at + length)
               : at;
}

static size_t deepseek_piece(const text *t, size_t at) {
    unsigned      length;
    unsigned char c = t->at[at];
    if (c == ' ' && at + 1 < t->size && is_letter(t->at[at + 1]))
        return marked_letters(t, at + 1);
    uint32_t mask = look(t, at, &length);
    if (c < 0x80 && (mask & MASK_PS) != 0 && at + 1 < t->size && is_letter(t->at[at + 1])) {
        for (at++; at < t->size && is_letter(t->at[at]);)
            at++;
        return at;
    }
    size_t end = marked_word(t, at, mask, length);
    if (end > at)
        return end;
    end = run(t, at + (c == ' '), MASK_PS);
    if (end > at + (c == ' ')) {
        while (end < t->size && (t->at[end] == '\n' || t->at[end] == '\r'))
            end++;
        return end;
    }
    if ((mask & FL_MASK_SPACE) != 0)
        return blanks_or_lines(t, at);
    for (at += length; at < t->size; at += length) { /* up to where something matches */
        mask = look(t, at, &length);
        if ((mask & (MASK_LM | MASK_PS | FL_MASK_SPACE)) != 0 ||
            marked_word(t, at, mask, length) > at)
            break;
    }
    return at;
}

/* [0-9][0-9][0-9] */
static size_t triplet_piece(const text *t, size_t at) {
    unsigned count = 0;
    for (size_t i = at; i < t->size; i++) {
        count = (unsigned char)(t->at[i] - '0') < 10 ? count + 1 : 0;
        if (count == 3)
            return i > at + 2 ? i - 2 : i + 1;
    }
    return t->size;
}

static size_t punctuation_piece(const text *t, size_t at) {
    unsigned length;
    unsigned first = fl_unicode_flags(fl_utf8_decode((const char *)t->at + at, &length));
    do {
        at += length;
    } while (at < t->size &&
             ((fl_unicode_flags(fl_utf8_decode((const char *)t->at + at, &length)) ^ first) &
              FL_UC_PUNCT) == 0);
    return at;
}

/* Bytes whose character in the byte-level alphabet is a number: 0-9, U+00B2, B3, B9, BC, BD, BE. */
static inline bool is_byte_digit(unsigned char byte) {
    return (unsigned char)(byte - '0') < 10 || byte == 0xB2 || byte == 0xB3 || byte == 0xB9 ||
           (byte >= 0xBC && byte <= 0xBE);
}

static size_t byte_digit_piece(const text *t, size_t at, bool runs) {
    bool first = is_byte_digit(t->at[at++]);
    while (at < t->size && is_byte_digit(t->at[at]) == first && (runs || !first))
        at++;
    return at;
}

/* ---- CLIP --------------------------------------------------------------------------------------- */

static size_t clip_piece(const text *t, size_t at) {
    unsigned length;
    if (is_letter(t->at[at]))
        return letters(t, at);
    size_t   quote = t->at[at] == '\'' ? contraction(t, at, false) : 0;
    uint32_t mask  = look(t, at, &length);
    return quote > 0                     ? at + quote
           : (mask & FL_MASK_SPACE) != 0 ? run(t, at, FL_MASK_SPACE) | FL_PIECE_GONE
           : (mask & FL_MASK_L) != 0     ? letters(t, at)
           : (mask & FL_MASK_N) != 0     ? at + length
                                         : run_without(t, at, MASK_LNS);
}

/* Length of the name of <|startoftext|> or <|endoftext|> at `at`; 0: neither. */
static size_t marker(const text *t, size_t at) {
    static const char *const names[] = {"<|startoftext|>", "<|endoftext|>"};
    for (size_t i = 0; i < 2; i++) {
        size_t size = strlen(names[i]);
        if (t->size - at >= size && memcmp(t->at + at, names[i], size) == 0)
            return size - 4;
    }
    return 0;
}

/* A marker is three pieces, as ByteLevel cuts it afterwards. */
static inline size_t clip_pieces(const text *t, size_t at, uint32_t *ends, size_t capacity,
                                 bool markers) {
    size_t count = 0;
    while (at < t->size && count + 3 <= capacity) {
        size_t name = markers && t->at[at] == '<' ? marker(t, at) : 0;
        if (name > 0) {
            ends[count++] = (uint32_t)at + 2;
            ends[count++] = (uint32_t)(at + 2 + name);
        }
        ends[count] = (uint32_t)(name > 0 ? at + name + 4 : clip_piece(t, at));
        at          = ends[count++] & ~FL_PIECE_GONE;
    }
    return count;
}

size_t fl_pieces_clip(const char *data, size_t size, size_t at, uint32_t *ends, size_t capacity) {
    const text t = {(const unsigned char *)data, size};
    return clip_pieces(&t, at, ends, capacity, false);
}

size_t fl_pieces_clip_marked(const char *data, size_t size, size_t at, uint32_t *ends,
                             size_t capacity) {
    const text t = {(const unsigned char *)data, size};
    return clip_pieces(&t, at, ends, capacity, true);
}

SCANNER(fl_pieces_deepseek, deepseek_piece(&t, at))
SCANNER(fl_pieces_numbers, number_piece(&t, at, 3, false))
SCANNER(fl_pieces_kana_or_han, kana_or_han_piece(&t, at))
SCANNER(fl_pieces_triplets, triplet_piece(&t, at))
SCANNER(fl_pieces_digits, number_piece(&t, at, 1, true))
SCANNER(fl_pieces_digit_runs, number_piece(&t, at, SIZE_MAX, true))
SCANNER(fl_pieces_byte_digits, byte_digit_piece(&t, at, false))
SCANNER(fl_pieces_byte_digit_runs, byte_digit_piece(&t, at, true))
SCANNER(fl_pieces_punctuation, punctuation_piece(&t, at))
