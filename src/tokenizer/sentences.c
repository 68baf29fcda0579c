/* SPDX-License-Identifier: Apache-2.0 */
/* sentences.c - where sentences end: UAX 29 with the data of Unicode 15.0.
 *
 * Role    units.c cuts texts into sentences by it.
 * In/Out  Valid UTF-8 -> the offset behind a sentence.
 * Method  A sentence ends after a line end (SB4) or after a terminator (SB6 to SB11) and nowhere else, so
 *         that the search only stops at these: eight bytes of ASCII at a time, by the character's class
 *         elsewhere. Rules SB6 to SB8a are asked at a terminator alone. No rule looks back beyond the
 *         sentence's own first character.
 *         What follows a terminator is read twice at most: SB8 looks ahead up to the next letter or
 *         terminator, from where the search goes on or which the next sentence reads again.
 * Memory  None. Threads: constant data.
 * Proof   tests/golden/test_units.py; make_units.py --check runs all of Unicode's SentenceBreakTest.txt. */
#include "tokenizer/sentences.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

enum { AT_END = FL_SENTENCE_CLOSE + 1 }; /* the class of what follows the last character */

#define SET(class) (1u << FL_SENTENCE_##class)
enum {
    TERMINATORS = SET(ATERM) | SET(STERM),
    ENDERS      = TERMINATORS | SET(SEP),
    /* What SB8 does not look beyond, in search of a lower case letter. */
    DECIDERS = ENDERS | SET(OLETTER) | SET(UPPER) | SET(LOWER) | 1u << AT_END
};

/* A character with its place; class AT_END: there is none, begin is the text's size. */
typedef struct place {
    size_t begin, end;
    unsigned class;
} place;

static bool in(const place *p, unsigned set) {
    return (1u << p->class & set) != 0;
}

static place place_at(const char *text, size_t size, size_t at) {
    assert(at <= size);
    place    p      = {at, at, AT_END};
    unsigned length = 0;
    if (at < size) {
        p.class = (unsigned)fl_unicode_sentence(fl_utf8_decode(text + at, &length));
        p.end   = at + length;
    }
    return p;
}

/* The next character at or after `at` that is not the continuation of the one before it (SB5). */
static place place_after(const char *text, size_t size, size_t at) {
    place p = place_at(text, size, at);
    while (p.class == FL_SENTENCE_EXTEND)
        p = place_at(text, size, p.end);
    return p;
}

/* In the highest bit of each byte whether it is `c`; right as far as the first one, counted from the lowest. */
static uint64_t bytes_equal(uint64_t word, unsigned char c) {
    uint64_t ones = 0x0101010101010101u, x = word ^ ones * c;
    return (x - ones) & ~x;
}

/* Whether eight bytes hold ASCII's terminators or line ends, or anything that is not ASCII. */
static bool may_end(const char *text) {
    uint64_t word;
    memcpy(&word, text, sizeof word);
    uint64_t found = word | bytes_equal(word, '.') | bytes_equal(word, '\n') |
                     bytes_equal(word, '?') | bytes_equal(word, '!') | bytes_equal(word, '\r');
    return (found & 0x8080808080808080u) != 0;
}

/* The first character at or after `at` that may end a sentence. */
static place find_ender(const char *text, size_t size, size_t at) {
    assert(at <= size);
    for (;;) {
        while (size - at >= sizeof(uint64_t) && !may_end(text + at))
            at += sizeof(uint64_t);
        size_t stop = size - at > 2 * sizeof(uint64_t) ? at + 2 * sizeof(uint64_t) : size;
        while (at < stop) {
            place found = place_at(text, size, at);
            if (in(&found, ENDERS))
                return found;
            at = found.end;
        }
        if (at == size)
            return place_at(text, size, at);
    }
}

/* Behind the line end at `p`; CR and LF together are one (SB3). */
static size_t line_end(const char *text, size_t size, const place *p) {
    bool crlf = text[p->begin] == '\r' && p->end < size && text[p->end] == '\n';
    return p->end + crlf;
}

/* Whether the character before text[at], continuations left out, has a case. */
static bool cased_before(const char *text, size_t begin, size_t at) {
    while (at > begin) {
        at      = fl_utf8_before(text, at);
        place p = place_at(text, at + 4, at); /* valid UTF-8: the character is whole */
        if (p.class != FL_SENTENCE_EXTEND)
            return in(&p, SET(UPPER) | SET(LOWER));
    }
    return false;
}

/* Whether the sentence ends after the terminator, and where; or where the search goes on. */
static bool ends_after(const char *text, size_t size, size_t begin, const place *terminator,
                       size_t *at) {
    bool  full_stop = terminator->class == FL_SENTENCE_ATERM;
    place next      = place_after(text, size, terminator->end);
    *at             = next.begin;
    if (full_stop && next.class == FL_SENTENCE_NUMERIC) /* SB6: 3.4 */
        return false;
    if (full_stop && next.class == FL_SENTENCE_UPPER &&
        cased_before(text, begin, terminator->begin)) /* SB7: U.S. */
        return false;
    while (next.class == FL_SENTENCE_CLOSE) /* SB9 */
        next = place_after(text, size, next.end);
    while (next.class == FL_SENTENCE_SP) /* SB10 */
        next = place_after(text, size, next.end);
    *at = next.begin;
    if (next.class == FL_SENTENCE_SEP) {
        *at = line_end(text, size, &next);
        return true;
    }
    if (in(&next, SET(SCONTINUE) | TERMINATORS)) /* SB8a */
        return false;
    if (full_stop) { /* SB8: "etc." before a lower case letter */
        place ahead = next;
        while (!in(&ahead, DECIDERS))
            ahead = place_at(text, size, ahead.end);
        if (ahead.class == FL_SENTENCE_LOWER) {
            *at = ahead.begin;
            return false;
        }
    }
    return true; /* SB11 */
}

size_t fl_sentence_end(const char *text, size_t size, size_t begin) {
    assert(begin < size);
    size_t at = begin;
    for (;;) {
        place ender = find_ender(text, size, at);
        if (ender.class == AT_END)
            return size;
        if (ender.class == FL_SENTENCE_SEP)
            return line_end(text, size, &ender);
        if (ends_after(text, size, begin, &ender, &at))
            return at;
    }
}
