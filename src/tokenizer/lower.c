/* SPDX-License-Identifier: Apache-2.0 */
/* lower.c - Python's str.lower(), which sentence-transformers' do_lower_case applies to the text itself.
 *
 * Role     tokenizer.c calls it before everything else when the folder says do_lower_case.
 * Method   Full lower case per character, and the one rule that needs context: a capital sigma is a
 *          final sigma when a cased letter stands before it and none after it, case-ignorable
 *          characters not counted. (BERT's own lower-casing has no such rule.)
 *          What stands before is carried along; the search for what stands after ends at the next
 *          sigma at the latest, so it is linear over the text.
 * Memory   Appends to the caller's buffer. Threads: any.
 * Proof    tests/golden/test_tokens.py against str.lower(). */
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/unicode.h"

enum { SIGMA = 0x3A3, SIGMA_FINAL = 0x3C2 };

/* Whether the first character of text[at .. size) that is not case-ignorable is cased. */
static bool cased_follows(const char *text, size_t at, size_t size) {
    while (at < size) {
        unsigned length;
        unsigned flags = fl_unicode_flags(fl_utf8_decode(text + at, &length));
        if ((flags & FL_UC_CASE_IGNORABLE) == 0) {
            return (flags & FL_UC_CASED) != 0;
        }
        at += length;
    }
    return false;
}

static bool reserve_origin(uint32_t **origin, size_t *capacity, size_t size) {
    if (size <= *capacity) {
        return true;
    }
    uint32_t *grown = fl_realloc_array(*origin, size + size / 2 + 64, sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    *origin   = grown;
    *capacity = size + size / 2 + 64;
    return true;
}

bool fl_lower_python(const char *text, size_t size, fl_buf *out, uint32_t **origin,
                     size_t *origin_capacity) {
    bool cased_before = false; /* the last character that is not case-ignorable was cased */
    for (size_t i = 0; i < size;) {
        unsigned length;
        uint32_t cp    = fl_utf8_decode(text + i, &length);
        unsigned flags = fl_unicode_flags(cp);
        uint32_t low[2];
        unsigned count = fl_unicode_lower(cp, low);
        if (cp == SIGMA && cased_before && !cased_follows(text, i + length, size)) {
            low[0] = SIGMA_FINAL;
        }
        char   bytes[8];
        size_t written = 0;
        for (unsigned k = 0; k < count; k++) {
            written += fl_utf8_encode(low[k], bytes + written);
        }
        size_t from = out->size;
        fl_buf_append(out, bytes, written);
        if (out->failed ||
            (origin != NULL && !reserve_origin(origin, origin_capacity, out->size))) {
            return false;
        }
        for (size_t k = from; origin != NULL && k < out->size; k++) {
            (*origin)[k] = (uint32_t)i;
        }
        if ((flags & FL_UC_CASE_IGNORABLE) == 0) {
            cased_before = (flags & FL_UC_CASED) != 0;
        }
        i += length;
    }
    return true;
}
