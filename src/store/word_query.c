/* SPDX-License-Identifier: Apache-2.0 */
/* word_query.c - a text of anybody's as a query of FTS5 that looks for its words and does nothing else.
 *
 * Role    and In/Out: word_index.h. Apart from that file since it needs no SQLite.
 * Memory  the caller's buffer. Threads: any. Proof: tests/server/test_search.py, tests/fuzz/fuzz_bodies.c. */
#include "store/word_index.h"

static bool is_letter(char c) {
    return (unsigned char)c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
}

/* In quotes every word is a word. What unicode61 cuts further is then looked for in that order. */
size_t fl_words_expression(const char *text, size_t size, fl_buf *out) {
    size_t words = 0;
    for (size_t at = 0; at < size && words < FL_WORDS_MAX;) {
        size_t begin = at;
        while (at < size && is_letter(text[at]))
            at++;
        if (at > begin) {
            fl_buf_puts(out, words++ > 0 ? " OR \"" : "\"");
            fl_buf_append(out, text + begin, at - begin);
            fl_buf_putc(out, '"');
        }
        at += at < size;
    }
    return words;
}
