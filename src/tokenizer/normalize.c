/* SPDX-License-Identifier: Apache-2.0 */
/* normalize.c - the normalisers of tokenizer.json, one character at a time, with offsets.
 *
 * Role     exact.c normalises each piece of text between added tokens; parse.c the contents of added
 *          tokens. (stream.c has its own form of BERT's normaliser, for speed; the tests compare.)
 * In/Out   fl_runes: characters with the bytes of the text they stand for.
 * Method   Each step rewrites the whole piece, in the order of the file, as the reference does. A kept
 *          character keeps its place; an inserted one takes that of the character before it (a space
 *          around a Chinese character: that character's).
 *          NFD is the exception that needs care: the reference counts replaced characters from left to
 *          right *after* the marks have been put in order, so a reordered mark takes over the place of
 *          the mark that stood there before. decompose() therefore remembers for each character whether
 *          it replaces (1 : 1) or is inserted, sorts, and only then deals out the places.
 * Memory   Two buffers that grow to the largest piece. Long runs of marks are sorted by counting, so ten
 *          megabytes of combining marks take linear time.
 * Proof    tests/golden/test_tokens.py (ids and offsets, random marks among them). */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/unicode.h"

enum { SHORT_RUN = 24, CLASSES = 256 };

static bool reserve(fl_rune **array, size_t *capacity, size_t count) {
    if (count <= *capacity) {
        return true;
    }
    size_t   wanted = count + count / 4 + 256;
    fl_rune *grown  = fl_realloc_array(*array, wanted, sizeof **array);
    if (grown == NULL) {
        return false;
    }
    *array    = grown;
    *capacity = wanted;
    return true;
}

void fl_runes_free(fl_runes *runes) {
    fl_free(runes->at);
    fl_free(runes->spare);
    fl_free(runes->sorted);
    memset(runes, 0, sizeof *runes);
}

bool fl_runes_load(fl_runes *runes, const char *text, size_t begin, size_t end) {
    runes->count = 0;
    if (!reserve(&runes->at, &runes->capacity, end - begin)) {
        return false;
    }
    for (size_t i = begin; i < end;) {
        unsigned length;
        uint32_t cp               = fl_utf8_decode(text + i, &length);
        runes->at[runes->count++] = (fl_rune){cp, (uint32_t)i, (uint32_t)(i + length)};
        i += length;
    }
    return true;
}

/* What was written to `spare` becomes the text. */
static void swap(fl_runes *runes, size_t count) {
    fl_rune *at           = runes->at;
    size_t   capacity     = runes->capacity;
    runes->at             = runes->spare;
    runes->capacity       = runes->spare_capacity;
    runes->spare          = at;
    runes->spare_capacity = capacity;
    runes->count          = count;
}

/* Keep the characters without `flag`. */
static void drop_flag(fl_runes *runes, unsigned flag) {
    size_t kept = 0;
    for (size_t i = 0; i < runes->count; i++) {
        if ((fl_unicode_flags(runes->at[i].cp) & flag) == 0) {
            runes->at[kept++] = runes->at[i];
        }
    }
    runes->count = kept;
}

static void clean_text(fl_runes *runes) {
    drop_flag(runes, FL_UC_DROP);
    for (size_t i = 0; i < runes->count; i++) {
        if (fl_unicode_is_space(runes->at[i].cp)) {
            runes->at[i].cp = ' ';
        }
    }
}

static bool space_chinese(fl_runes *runes) {
    size_t extra = 0;
    for (size_t i = 0; i < runes->count; i++) {
        extra += (fl_unicode_flags(runes->at[i].cp) & FL_UC_CJK) != 0 ? 2 : 0;
    }
    if (extra == 0) {
        return true;
    }
    if (!reserve(&runes->spare, &runes->spare_capacity, runes->count + extra)) {
        return false;
    }
    size_t out = 0;
    for (size_t i = 0; i < runes->count; i++) {
        fl_rune rune  = runes->at[i];
        fl_rune space = {' ', rune.start, rune.end};
        bool    cjk   = (fl_unicode_flags(rune.cp) & FL_UC_CJK) != 0;
        if (cjk) {
            runes->spare[out++] = space;
        }
        runes->spare[out++] = rune;
        if (cjk) {
            runes->spare[out++] = space;
        }
    }
    swap(runes, out);
    return true;
}

/* Bring run[count] into the order of combining classes (in .end), equal ones staying in order. */
static bool sort_marks(fl_runes *runes, fl_rune *run, size_t count) {
    if (count <= SHORT_RUN) {
        for (size_t i = 1; i < count; i++) {
            fl_rune rune = run[i];
            size_t  j    = i;
            for (; j > 0 && run[j - 1].end > rune.end; j--) {
                run[j] = run[j - 1];
            }
            run[j] = rune;
        }
        return true;
    }
    if (!reserve(&runes->sorted, &runes->sorted_capacity, count)) {
        return false;
    }
    size_t begin[CLASSES + 1] = {0};
    for (size_t i = 0; i < count; i++) {
        begin[run[i].end + 1]++;
    }
    for (size_t c = 1; c <= CLASSES; c++) {
        begin[c] += begin[c - 1];
    }
    for (size_t i = 0; i < count; i++) {
        runes->sorted[begin[run[i].end]++] = run[i];
    }
    memcpy(run, runes->sorted, count * sizeof *run);
    return true;
}

/* NFD into spare, with .start = 1 for inserted characters and .end = combining class; *out = count. */
static bool decompose_all(fl_runes *runes, size_t *out) {
    size_t n = 0, run = 0; /* spare[run .. n) are marks in waiting */
    for (size_t i = 0; i < runes->count; i++) {
        uint32_t parts[FL_UC_DECOMPOSITION_MAX];
        uint32_t cp    = runes->at[i].cp;
        unsigned count = 1;
        parts[0]       = cp;
        if ((fl_unicode_flags(cp) & FL_UC_DECOMPOSES) != 0) {
            count = fl_unicode_decompose(cp, parts);
        }
        if (!reserve(&runes->spare, &runes->spare_capacity, n + count)) {
            return false;
        }
        for (unsigned k = 0; k < count; k++) {
            unsigned class = fl_unicode_ccc(parts[k]);
            if (class == 0) {
                if (n - run > 1 && !sort_marks(runes, runes->spare + run, n - run)) {
                    return false;
                }
                run = n + 1;
            }
            runes->spare[n++] = (fl_rune){parts[k], k > 0, class};
        }
    }
    *out = n;
    return n <= run + 1 || sort_marks(runes, runes->spare + run, n - run);
}

static bool decompose(fl_runes *runes) {
    bool needed = false;
    for (size_t i = 0; i < runes->count && !needed; i++) {
        needed = (fl_unicode_flags(runes->at[i].cp) & (FL_UC_DECOMPOSES | FL_UC_CCC)) != 0;
    }
    size_t count = runes->count;
    if (!needed || count == 0) {
        return true;
    }
    if (!reserve(&runes->spare, &runes->spare_capacity, count) || !decompose_all(runes, &count)) {
        return false;
    }
    size_t next = 0; /* the next character of the text that has not been replaced */
    for (size_t i = 0; i < count; i++) {
        next += runes->spare[i].start == 0;
        const fl_rune *place  = &runes->at[next > 0 ? next - 1 : 0];
        runes->spare[i].start = place->start;
        runes->spare[i].end   = place->end;
    }
    swap(runes, count);
    return true;
}

static bool lowercase(fl_runes *runes) {
    size_t dotted = 0;
    for (size_t i = 0; i < runes->count; i++) {
        uint32_t low[2];
        if ((fl_unicode_flags(runes->at[i].cp) & FL_UC_LOWER) == 0) {
            continue;
        }
        if (fl_unicode_lower(runes->at[i].cp, low) == 2) {
            dotted++;
        } else {
            runes->at[i].cp = low[0];
        }
    }
    if (dotted == 0) {
        return true;
    }
    if (!reserve(&runes->spare, &runes->spare_capacity, runes->count + dotted)) {
        return false;
    }
    size_t out = 0;
    for (size_t i = 0; i < runes->count; i++) {
        fl_rune rune        = runes->at[i];
        bool    is_dotted   = rune.cp == FL_UC_DOTTED_I;
        runes->spare[out++] = (fl_rune){is_dotted ? 'i' : rune.cp, rune.start, rune.end};
        if (is_dotted) {
            runes->spare[out++] = (fl_rune){FL_UC_DOT_ABOVE, rune.start, rune.end};
        }
    }
    swap(runes, out);
    return true;
}

static bool bert(const fl_normal_step *step, fl_runes *runes) {
    if (step->clean_text) {
        clean_text(runes);
    }
    if (step->chinese_chars && !space_chinese(runes)) {
        return false;
    }
    if (step->strip_accents) {
        if (!decompose(runes)) {
            return false;
        }
        drop_flag(runes, FL_UC_MARK_BERT);
    }
    return !step->lowercase || lowercase(runes);
}

static void strip(const fl_normal_step *step, fl_runes *runes) {
    size_t begin = 0, end = runes->count;
    while (step->strip_left && begin < end && fl_unicode_is_space(runes->at[begin].cp)) {
        begin++;
    }
    while (step->strip_right && end > begin && fl_unicode_is_space(runes->at[end - 1].cp)) {
        end--;
    }
    memmove(runes->at, runes->at + begin, (end - begin) * sizeof *runes->at);
    runes->count = end - begin;
}

static bool matches(const fl_normal_step *step, const fl_runes *runes, size_t at) {
    if (runes->count - at < step->pattern_count) {
        return false;
    }
    for (size_t k = 0; k < step->pattern_count; k++) {
        if (runes->at[at + k].cp != step->pattern[k]) {
            return false;
        }
    }
    return true;
}

/* Every match of the pattern, left to right, becomes the content, placed on the match's last character. */
static bool replace(const fl_normal_step *step, fl_runes *runes) {
    size_t out = 0;
    for (size_t i = 0; i < runes->count;) {
        bool   hit   = matches(step, runes, i);
        size_t count = hit ? step->content_count : 1;
        if (!reserve(&runes->spare, &runes->spare_capacity, out + count)) {
            return false;
        }
        if (!hit) {
            runes->spare[out++] = runes->at[i++];
            continue;
        }
        i += step->pattern_count;
        fl_rune last = runes->at[i - 1];
        for (size_t k = 0; k < count; k++) {
            runes->spare[out++] = (fl_rune){step->content[k], last.start, last.end};
        }
    }
    if (runes->count > 0) {
        swap(runes, out);
    }
    return true;
}

static bool prepend(const fl_normal_step *step, fl_runes *runes) {
    if (runes->count == 0) {
        return true;
    }
    size_t count = runes->count + step->content_count;
    if (!reserve(&runes->spare, &runes->spare_capacity, count)) {
        return false;
    }
    for (size_t k = 0; k < step->content_count; k++) {
        runes->spare[k] = (fl_rune){step->content[k], runes->at[0].start, runes->at[0].end};
    }
    memcpy(runes->spare + step->content_count, runes->at, runes->count * sizeof *runes->at);
    swap(runes, count);
    return true;
}

bool fl_normalize(const fl_normal_step *steps, unsigned count, fl_runes *runes) {
    bool ok = true;
    for (unsigned i = 0; i < count && ok; i++) {
        const fl_normal_step *step = &steps[i];
        switch (step->kind) {
        case FL_NORMAL_BERT: ok = bert(step, runes); break;
        case FL_NORMAL_LOWERCASE: ok = lowercase(runes); break;
        case FL_NORMAL_NFD: ok = decompose(runes); break;
        case FL_NORMAL_STRIP_ACCENTS: drop_flag(runes, FL_UC_MARK); break;
        case FL_NORMAL_STRIP: strip(step, runes); break;
        case FL_NORMAL_REPLACE: ok = replace(step, runes); break;
        case FL_NORMAL_PREPEND: ok = prepend(step, runes); break;
        }
    }
    return ok;
}
