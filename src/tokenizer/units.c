/* SPDX-License-Identifier: Apache-2.0 */
/* units.c - where sections, blocks, paragraphs, sentences and words end.
 *
 * Role    chunker.c asks for one unit after the other and packs them.
 * In/Out  Valid UTF-8 -> the offset behind a unit.
 * Method  Line by line for what lines decide. Of Markdown (CommonMark 0.31) headings are known, ATX and those
 *         with an underline, and code fences, inside which nothing else is; not known are blocks of HTML and what
 *         is nested in quotes and lists.
 * Memory  None. Threads: constant data.
 * Proof   tests/golden/test_units.py, tests/fuzz/fuzz_chunks.c. */
#include "tokenizer/units.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/sentences.h"
#include "tokenizer/unicode.h"

/* ---- Lines ------------------------------------------------------------------------------------ */

/* A line, its end with it. */
typedef struct line {
    const char *text;
    size_t      begin, end;
} line;

static line line_at(const char *text, size_t size, size_t begin) {
    const char *end = memchr(text + begin, '\n', size - begin);
    return (line){text, begin, end != NULL ? (size_t)(end - text) + 1 : size};
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool blank_from(const line *l, size_t at) {
    while (at < l->end && is_space(l->text[at]))
        at++;
    return at == l->end;
}

static bool is_blank(const line *l) {
    return blank_from(l, l->begin);
}

/* Behind the blank lines that begin at `at`. */
static size_t skip_blank(const char *text, size_t size, size_t at) {
    while (at < size) {
        line l = line_at(text, size, at);
        if (!is_blank(&l))
            break;
        at = l.end;
    }
    return at;
}

static size_t paragraph_end(const char *text, size_t size, size_t begin) {
    size_t at = skip_blank(text, size, begin);
    while (at < size) {
        line l = line_at(text, size, at);
        if (is_blank(&l))
            return skip_blank(text, size, at);
        at = l.end;
    }
    return size;
}

/* ---- Markdown --------------------------------------------------------------------------------- */

enum { INDENT_MAX = 3, HEADING_MAX = 6, FENCE_MIN = 3 };

/* Behind the line's indentation; its end where it is too deep for anything but code. */
static size_t indented(const line *l) {
    size_t at = l->begin;
    while (at < l->end && l->text[at] == ' ')
        at++;
    return at - l->begin <= INDENT_MAX ? at : l->end;
}

static size_t run_of(const line *l, size_t at, char c) {
    size_t begin = at;
    while (at < l->end && l->text[at] == c)
        at++;
    return at - begin;
}

typedef struct fence {
    char   mark; /* 0: none is open */
    size_t length;
} fence;

/* Whether the line opens a code fence, or is in the one that is open, its last line among them. */
static bool in_fence(fence *f, const line *l) {
    size_t at = indented(l);
    if (f->mark != 0) {
        size_t length = run_of(l, at, f->mark);
        if (length >= f->length && blank_from(l, at + length))
            f->mark = 0;
        return true;
    }
    char mark = at < l->end ? l->text[at] : 0;
    if (mark != '`' && mark != '~')
        return false;
    size_t length = run_of(l, at, mark);
    size_t info   = at + length;
    if (length < FENCE_MIN || (mark == '`' && memchr(l->text + info, '`', l->end - info) != NULL))
        return false;
    *f = (fence){mark, length};
    return true;
}

static bool is_atx_heading(const line *l) {
    size_t at    = indented(l);
    size_t level = run_of(l, at, '#');
    return level >= 1 && level <= HEADING_MAX &&
           (at + level == l->end || is_space(l->text[at + level]));
}

static bool is_underline(const line *l) {
    size_t at    = indented(l);
    size_t equal = run_of(l, at, '='), dashes = run_of(l, at, '-');
    return equal + dashes > 0 && blank_from(l, at + equal + dashes);
}

/* A line across the page: three or more of a mark, spaces between them or not. */
static bool is_rule(const line *l) {
    size_t at = indented(l), marks = 0;
    char   mark = at < l->end ? l->text[at] : 0;
    for (; at < l->end && (l->text[at] == mark || is_space(l->text[at])); at++)
        marks += l->text[at] == mark;
    return (mark == '-' || mark == '*' || mark == '_') && at == l->end && marks >= 3;
}

/* Whether it begins a quote, an item of a list or HTML, of which no underline makes a heading. */
static bool is_nested(const line *l) {
    size_t at    = indented(l);
    size_t begin = at;
    while (at < l->end && l->text[at] >= '0' && l->text[at] <= '9')
        at++;
    char        mark  = at < l->end ? l->text[at] : 0;
    const char *marks = at > begin ? ".)" : "-*+";
    if (at == begin && (mark == '>' || mark == '<'))
        return true;
    return mark != 0 && strchr(marks, mark) != NULL &&
           is_space(l->text[at + 1 < l->end ? at + 1 : at]);
}

/* The end of the heading that begins with this line, which no paragraph goes on in; its begin: it is none. */
static size_t heading_end(const line *first, size_t size) {
    fence none = {0};
    line  l    = *first;
    if (is_atx_heading(&l))
        return l.end;
    if (indented(&l) == l.end) /* blank, or code */
        return l.begin;
    while (!is_blank(&l) && !is_nested(&l) && !is_rule(&l) && !is_atx_heading(&l) &&
           !in_fence(&none, &l) && l.end < size) {
        l = line_at(l.text, size, l.end);
        if (is_underline(&l))
            return l.end;
    }
    return first->begin;
}

static size_t section_end(const char *text, size_t size, size_t begin) {
    fence open     = {0};
    bool  holds    = false,
         paragraph = false; /* text that is no heading; the line before is of a paragraph */
    size_t at      = begin;
    while (at < size) {
        line   l    = line_at(text, size, at);
        bool   code = in_fence(&open, &l), empty = !code && is_blank(&l);
        bool   inner = code || (paragraph && !is_atx_heading(&l));
        size_t end   = inner ? at : heading_end(&l, size);
        if (end > at && holds)
            return at;
        holds = holds || (end == at && !empty);
        paragraph =
            end == at && !code && !empty && !is_rule(&l) && (paragraph || indented(&l) < l.end);
        at = end > at ? end : l.end;
    }
    return size;
}

/* Behind the headings and blank lines that begin at `at`. */
static size_t skip_headings(const char *text, size_t size, size_t at) {
    for (;;) {
        at = skip_blank(text, size, at);
        if (at == size)
            return size;
        line   l   = line_at(text, size, at);
        size_t end = heading_end(&l, size);
        if (end == at)
            return at;
        at = end;
    }
}

/* The lines of a code fence, or of a paragraph up to a blank line or to a fence or heading, which end it too. */
static size_t block_end(const char *text, size_t size, size_t begin) {
    fence  open   = {0};
    size_t first  = skip_headings(text, size, begin);
    bool   fenced = false;
    for (size_t at = first; at < size;) {
        line l    = line_at(text, size, at);
        bool code = in_fence(&open, &l);
        fenced    = at == first ? code : fenced;
        if (code != fenced || (!code && at > first && is_atx_heading(&l)))
            return at;
        if (code ? open.mark == 0 : is_blank(&l))
            return skip_blank(text, size, l.end);
        at = l.end;
    }
    return size;
}

/* ---- Words ------------------------------------------------------------------------------------ */

/* Scripts that set no spaces between words: Han and kana; Thai and Lao, Myanmar, Khmer. */
static bool is_unspaced(uint32_t cp) {
    return cp >= 0xE00 && ((fl_unicode_flags(cp) & FL_UC_HAN) != 0 || cp <= 0xEFF ||
                           (cp >= 0x1000 && cp <= 0x109F) || (cp >= 0x1780 && cp <= 0x17FF) ||
                           (cp >= 0x3040 && cp <= 0x30FF) || (cp >= 0xFF66 && cp <= 0xFF9D));
}

/* Whether a word may end between two characters of which neither is a space. */
static bool word_parts(uint32_t before, uint32_t after) {
    unsigned a = fl_unicode_flags(before), b = fl_unicode_flags(after);
    return (is_unspaced(before) || is_unspaced(after)) && (a & b & FL_UC_WORD) != 0 &&
           (b & FL_UC_EXTEND) == 0;
}

/* Behind the letters of ASCII from `at` on that are no space, or that are, up to the first of the other kind. */
static size_t skip_ascii(const char *text, size_t size, size_t at, bool spaces) {
    while (at < size && (unsigned char)text[at] < 0x80 && is_space(text[at]) == spaces)
        at++;
    return at;
}

static size_t word_end(const char *text, size_t size, size_t begin) {
    /* most words are of letters between which none ends, with spaces behind */
    size_t at = skip_ascii(text, size, begin, false), last = at;
    at              = skip_ascii(text, size, at, true);
    bool     spaces = at > last; /* the word is over, and those behind it are read */
    uint32_t before = at > begin ? (unsigned char)text[at - 1] : 0;
    while (at < size) {
        unsigned length;
        uint32_t cp    = fl_utf8_decode(text + at, &length);
        bool     space = cp < 0x80 ? is_space((char)cp) : fl_unicode_is_space(cp);
        if ((spaces && !space) ||
            (at > begin && !space && (cp | before) >= 0x80 && word_parts(before, cp)))
            return at;
        spaces = space;
        before = cp;
        at += length;
    }
    return size;
}

size_t fl_unit_end(fl_unit unit, const char *text, size_t size, size_t begin) {
    assert(begin < size && unit <= FL_UNIT_WORD);
    switch (unit) {
    case FL_UNIT_SECTION: return section_end(text, size, begin);
    case FL_UNIT_BLOCK: return block_end(text, size, begin);
    case FL_UNIT_PARAGRAPH: return paragraph_end(text, size, begin);
    case FL_UNIT_SENTENCE: return fl_sentence_end(text, size, begin);
    case FL_UNIT_WORD: break;
    }
    return word_end(text, size, begin);
}
