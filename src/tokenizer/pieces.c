/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.c - see pieces.h. Each scanner is its pattern read as a table of "what does it begin with". */
#include "tokenizer/pieces.h"

#include <string.h>

#include "tokenizer/pieces_text.h"

/* U and W of o200k's pattern: what begins a word, and what goes on. */
enum {
    MASK_UPPER = 1 << FL_CATEGORY_LU | 1 << FL_CATEGORY_LT | 1 << FL_CATEGORY_LM |
                 1 << FL_CATEGORY_LO | FL_MASK_M,
    MASK_LOWER = 1 << FL_CATEGORY_LL | 1 << FL_CATEGORY_LM | 1 << FL_CATEGORY_LO | FL_MASK_M,
    MASK_LNS   = FL_MASK_L | FL_MASK_N | FL_MASK_SPACE
};

static size_t gpt2_piece(const text *t, size_t at) {
    unsigned      length;
    unsigned char c    = t->at[at];
    bool          more = at + 1 < t->size;
    if (c == ' ' && more && is_letter(t->at[at + 1]))
        return letters(t, at + 1);
    if (is_letter(c))
        return letters(t, at);
    if (c == '\'') {
        size_t size = contraction(t, at, false);
        if (size > 0)
            return at + size;
    }
    size_t   from = c == ' ' && more ? at + 1 : at;
    uint32_t mask = look(t, from, &length);
    if ((mask & FL_MASK_SPACE) != 0)
        return blanks(t, at);
    return (mask & FL_MASK_L) != 0   ? letters(t, from)
           : (mask & FL_MASK_N) != 0 ? run(t, from, FL_MASK_N)
                                     : run_without(t, from, MASK_LNS);
}

/* At most `most` of \p{N}. */
static size_t digits(const text *t, size_t at, unsigned most) {
    unsigned length;
    for (; most > 0 && at < t->size && (look(t, at, &length) & FL_MASK_N) != 0; most--)
        at += length;
    return at;
}

/* " ?[^\s\p{L}\p{N}]+" and line ends (and slashes) after it; `at` when there is none. */
static size_t signs(const text *t, size_t at, bool slashes) {
    size_t from = at + (t->at[at] == ' ');
    size_t end  = run_without(t, from, MASK_LNS);
    if (end == from)
        return at;
    while (end < t->size &&
           (t->at[end] == '\n' || t->at[end] == '\r' || (slashes && t->at[end] == '/')))
        end++;
    return end;
}

static inline size_t cl100k_piece(const text *t, size_t at, unsigned most) {
    unsigned      length, next_length;
    unsigned char c = t->at[at];
    if (c == ' ' && at + 1 < t->size && is_letter(t->at[at + 1]))
        return letters(t, at + 1);
    if (is_letter(c))
        return letters(t, at);
    if (c == '\'') {
        size_t size = contraction(t, at, true);
        if (size > 0)
            return at + size;
    }
    uint32_t mask = look(t, at, &length);
    if ((mask & FL_MASK_L) != 0)
        return letters(t, at);
    if ((mask & FL_MASK_N) != 0)
        return digits(t, at, most);
    if (c != '\n' && c != '\r' && at + length < t->size &&
        (look(t, at + length, &next_length) & FL_MASK_L) != 0)
        return letters(t, at + length);
    size_t end = signs(t, at, false);
    return end > at ? end : blanks_or_lines(t, at);
}

/* "U*W+" at `at`: U as far as it goes, then W; when none follows, back to the last W among the U. 0: none. */
static size_t lower_word(const text *t, size_t at) {
    size_t   last_lower = 0;
    unsigned length;
    while (at < t->size) {
        uint32_t mask = look(t, at, &length);
        if ((mask & MASK_UPPER) == 0)
            break;
        at += length;
        last_lower = (mask & MASK_LOWER) != 0 ? at : last_lower;
    }
    size_t end = run(t, at, MASK_LOWER);
    return end > at ? end : last_lower;
}

/* "U+W*" at `at`, where lower_word found nothing. 0: none. */
static size_t upper_word(const text *t, size_t at) {
    size_t end = run(t, at, MASK_UPPER);
    return end > at ? end : 0;
}

static inline size_t o200k_piece(const text *t, size_t at, unsigned most, bool contractions) {
    unsigned      length;
    unsigned char c    = t->at[at];
    uint32_t      mask = look(t, at, &length);
    bool          head = (mask & (FL_MASK_L | FL_MASK_N)) == 0 && c != '\n' && c != '\r';
    bool   word = (mask & (FL_MASK_L | FL_MASK_M)) != 0; /* it may be part of the word itself */
    size_t end  = head ? lower_word(t, at + length) : 0;
    if (end == 0 && word)
        end = lower_word(t, at);
    if (end == 0 && head)
        end = upper_word(t, at + length);
    if (end == 0 && word)
        end = upper_word(t, at);
    if (end > 0) {
        bool quote = contractions && end < t->size && t->at[end] == '\'';
        return end + (quote ? contraction(t, end, true) : 0);
    }
    if ((mask & FL_MASK_N) != 0)
        return digits(t, at, most);
    end = signs(t, at, true);
    return end > at ? end : blanks_or_lines(t, at);
}

static inline bool is_space(const text *t, size_t at) {
    return t->at[at] == ' ' || (t->at[at] == 0xE2 && t->size - at >= 3 && t->at[at + 1] == 0x96 &&
                                t->at[at + 2] == 0x81);
}

/* The next ' ' or E2 from `at` on, or the end. */
static size_t next_space(const text *t, size_t at) {
    const uint64_t ones = 0x0101010101010101u, high = ones * 0x80;
    for (; t->size - at >= 8; at += 8) {
        uint64_t x;
        memcpy(&x, t->at + at, 8);
        uint64_t a = x ^ ones * ' ', b = x ^ ones * 0xE2;
        uint64_t zero = ((a - ones) & ~a) | ((b - ones) & ~b); /* the lowest one is right */
        if ((zero & high) != 0)
            return at + (unsigned)__builtin_ctzll(zero & high) / 8;
    }
    while (at < t->size && t->at[at] != ' ' && t->at[at] != 0xE2)
        at++;
    return at;
}

static size_t spaced_word(const text *t, size_t at) {
    while (at < t->size && is_space(t, at))
        at += t->at[at] == ' ' ? 1 : 3;
    for (at = next_space(t, at); at < t->size && !is_space(t, at);)
        at = next_space(t, at + 1);
    return at;
}

static fl_pieces gpt2, cl100k, qwen, o200k, tekken;
SCANNER(gpt2, gpt2_piece(&t, at))
SCANNER(cl100k, cl100k_piece(&t, at, 3))
SCANNER(qwen, cl100k_piece(&t, at, 1))
SCANNER(o200k, o200k_piece(&t, at, 3, true))
SCANNER(tekken, o200k_piece(&t, at, 1, false))
SCANNER(fl_pieces_spaces, spaced_word(&t, at))

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define HEAD         "[^\\r\\n\\p{L}\\p{N}]?"
#define SIGNS        "| ?[^\\s\\p{L}\\p{N}]+"
#define BLANKS       "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const char fl_pieces_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+" SIGNS "|\\s+(?!\\S)|\\s+";

#define CLIP "'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+"

static const struct {
    const char *pattern;
    fl_pieces  *scan;
    fl_gaps     gaps; /* what it does with them */
} scanners[] = {
    {fl_pieces_gpt2, gpt2, FL_GAPS_NONE},
    {CONTRACTIONS "|" HEAD "\\p{L}+|\\p{N}{1,3}" SIGNS "[\\r\\n]*" BLANKS, cl100k, FL_GAPS_NONE},
    {CONTRACTIONS "|" HEAD "\\p{L}+|\\p{N}" SIGNS "[\\r\\n]*" BLANKS, qwen, FL_GAPS_NONE},
    {HEAD UPPER "*" LOWER "+" CONTRACTIONS "?|" HEAD UPPER "+" LOWER "*" CONTRACTIONS
                "?|\\p{N}{1,3}" SIGNS "[\\r\\n/]*" BLANKS,
     o200k, FL_GAPS_NONE},
    {HEAD UPPER "*" LOWER "+|" HEAD UPPER "+" LOWER "*|\\p{N}" SIGNS "[\\r\\n/]*" BLANKS, tekken,
     FL_GAPS_NONE},
    {"\\p{N}{1,3}", fl_pieces_numbers, FL_GAPS_KEPT},
    {"[一-龥\xE3\x81\x80-ゟ゠-ヿ]+", fl_pieces_kana_or_han, FL_GAPS_KEPT},
    {"[!\"#$%&'()*+,\\-./"
     ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
     "| ?[\\p{P}\\p{S}]+[\\r\\n]*" BLANKS,
     fl_pieces_deepseek, FL_GAPS_KEPT},
    {"[0-9][0-9][0-9]", fl_pieces_triplets, FL_GAPS_KEPT},
    {CLIP, fl_pieces_clip, FL_GAPS_GONE},
    {"<\\|startoftext\\|>|<\\|endoftext\\|>|" CLIP, fl_pieces_clip_marked, FL_GAPS_GONE},
};

/* Is this the pattern `known`, its line ends written as such or by their names? */
static bool is_pattern(const char *pattern, const char *known) {
    for (; *known != '\0'; pattern++, known++) {
        char name = *pattern == '\r' ? 'r' : *pattern == '\n' ? 'n' : '\0';
        if (name != '\0' && known[0] == '\\' && known[1] == name)
            known++;
        else if (*pattern != *known)
            return false;
    }
    return *pattern == '\0';
}

fl_pieces *fl_pieces_of(const char *pattern, fl_gaps gaps) {
    for (size_t i = 0; i < sizeof scanners / sizeof *scanners; i++) {
        bool fits = scanners[i].gaps == FL_GAPS_NONE || scanners[i].gaps == gaps;
        if (fits && is_pattern(pattern, scanners[i].pattern))
            return scanners[i].scan;
    }
    return NULL;
}

bool fl_pieces_are_whole(fl_pieces *scan) {
    return scan == fl_pieces_clip || scan == fl_pieces_clip_marked;
}

bool fl_pieces_are_ascii(fl_pieces *scan) {
    return scan == fl_pieces_triplets;
}

size_t fl_pieces_next(const fl_cutters *cutters, fl_cutting *cutting, const char *data, size_t size,
                      size_t at, uint32_t *ends, size_t capacity) {
    uint32_t end;
    unsigned last = cutters->count - 1;
    for (unsigned i = 0; i < last; i++) {
        if (at == cutting->end[i]) {
            (void)cutters->by[i](data, size, at, &end, 1);
            cutting->end[i] = end;
        }
        size = cutting->end[i];
    }
    return cutters->by[last](data, size, at, ends, capacity);
}
