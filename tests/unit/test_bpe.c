/* SPDX-License-Identifier: Apache-2.0 */
/* test_bpe.c - byte pair encoding equals its definition, and scanners equal their patterns.
 *
 * The definition: of all neighbours that a merge names, join the pair of lowest rank, of equal ones the leftmost,
 * until none is left. It is held against words of every length over random merges, and over merges where the
 * end of a word decides about its beginning, so that windows cannot be joined. Scanners written by hand are
 * held against regex.c on random text. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pieces.h"
#include "tokenizer/regex.h"
#include "tokenizer/tokenizer.h"

static uint32_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 16);
}

enum { TOKENS_MAX = 2000, TOKEN_BYTES = 40, WORD_MAX = 3000 };

/* A vocabulary with its merges, tokens as text. */
typedef struct model {
    char     tokens[TOKENS_MAX][TOKEN_BYTES];
    unsigned token_count;
    struct {
        unsigned left, right, made;
    } merges[TOKENS_MAX];
    unsigned merge_count;
} model;

static unsigned token_of(model *m, const char *text) {
    unsigned id = 0;
    while (id < m->token_count && strcmp(m->tokens[id], text) != 0)
        id++;
    if (id == m->token_count)
        strcpy(m->tokens[m->token_count++], text);
    return id;
}

static int rank_of(const model *m, unsigned left, unsigned right) {
    int found = -1; /* the last one holds */
    for (unsigned i = 0; i < m->merge_count; i++)
        found = m->merges[i].left == left && m->merges[i].right == right ? (int)i : found;
    return found;
}

static void add_merge(model *m, unsigned left, unsigned right) {
    char made[2 * TOKEN_BYTES];
    snprintf(made, sizeof made, "%s%s", m->tokens[left], m->tokens[right]);
    if (strlen(made) < TOKEN_BYTES && rank_of(m, left, right) < 0) {
        unsigned id                     = token_of(m, made);
        m->merges[m->merge_count].left  = left;
        m->merges[m->merge_count].right = right;
        m->merges[m->merge_count].made  = id;
        m->merge_count++;
    }
}

static fl_tokenizer *open_model(const model *m) {
    fl_buf        json = {0};
    fl_tokenizer *t;
    fletch_error  error;
    fl_buf_puts(&json, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (unsigned i = 0; i < m->token_count; i++)
        fl_buf_printf(&json, "%s\"%s\":%u", i > 0 ? "," : "", m->tokens[i], i);
    fl_buf_puts(&json, "},\"merges\":[");
    for (unsigned i = 0; i < m->merge_count; i++) {
        fl_buf_printf(&json, "%s[\"%s\",\"%s\"]", i > 0 ? "," : "", m->tokens[m->merges[i].left],
                      m->tokens[m->merges[i].right]);
    }
    fl_buf_puts(&json, "]}}");
    cr_assert_eq(fl_tokenizer_open(&t, &json, NULL, &error), 0, "%s", error.message);
    fl_buf_free(&json);
    return t;
}

/* The definition. */
static size_t define(const model *m, unsigned *symbols, size_t count) {
    for (;;) {
        int    best = -1;
        size_t at   = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            int rank = rank_of(m, symbols[i], symbols[i + 1]);
            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                at   = i;
            }
        }
        if (best < 0)
            return count;
        symbols[at] = m->merges[best].made;
        count--;
        memmove(symbols + at + 1, symbols + at + 2, (count - at - 1) * sizeof *symbols);
    }
}

static void expect_defined(const model *m, const fl_tokenizer *t, fl_token_scratch *scratch,
                           const unsigned *symbols, size_t count) {
    static char             text[WORD_MAX * 4];
    static unsigned         expected[WORD_MAX];
    static int32_t          ids[WORD_MAX * 4];
    const fl_encode_options all  = {0};
    size_t                  size = 0, found;
    bool                    cut;
    for (size_t i = 0; i < count; i++)
        size += (size_t)sprintf(text + size, "%s", m->tokens[symbols[i]]);
    memcpy(expected, symbols, count * sizeof *symbols);
    size_t defined = define(m, expected, count);
    cr_assert_eq(
        fl_tokenizer_encode(t, scratch, text, size, &all, ids, WORD_MAX * 4, &found, &cut, NULL),
        0);
    cr_expect_eq(found, defined, "%zu symbols: %zu tokens, not %zu", count, found, defined);
    for (size_t i = 0; i < found && i < defined; i++)
        cr_expect_eq((unsigned)ids[i], expected[i], "%zu symbols: token %zu", count, i);
}

Test(bpe, words_of_any_length_are_merged_as_defined) {
    uint64_t        state = 88172645463325252u;
    static model    m;
    static unsigned word[WORD_MAX];
    for (unsigned round = 0; round < 12; round++) {
        unsigned letters = 2 + round % 3;
        memset(&m, 0, sizeof m);
        for (unsigned i = 0; i < letters; i++)
            token_of(&m, (char[]){(char)('a' + i), '\0'});
        while (m.merge_count < 20 + 10 * round)
            add_merge(&m, next_random(&state) % m.token_count, next_random(&state) % m.token_count);
        fl_tokenizer     *t       = open_model(&m);
        fl_token_scratch *scratch = fl_token_scratch_new(t);
        for (size_t count = 1; count < 600; count += 1 + count / 8) {
            for (size_t i = 0; i < count; i++)
                word[i] = next_random(&state) % letters;
            expect_defined(&m, t, scratch, word, count);
            memset(word, 0, count * sizeof *word); /* one letter again and again */
            expect_defined(&m, t, scratch, word, count);
        }
        fl_token_scratch_free(scratch);
        fl_tokenizer_close(t);
    }
}

Test(bpe, the_end_of_a_word_may_decide_about_its_beginning) {
    enum { LETTERS = 500 };
    static model    m;
    static unsigned word[LETTERS];
    for (unsigned i = 0; i < LETTERS; i++) {
        char text[8]                           = "";
        text[fl_utf8_encode(0x4E00 + i, text)] = '\0';
        word[i]                                = token_of(&m, text);
    }
    for (unsigned i = LETTERS - 1; i > 0; i--) /* the pair at the end first */
        add_merge(&m, word[i - 1], word[i]);
    fl_tokenizer     *t       = open_model(&m);
    fl_token_scratch *scratch = fl_token_scratch_new(t);
    for (size_t count = 60; count <= LETTERS; count += 11)
        expect_defined(&m, t, scratch, word, count);
    fl_token_scratch_free(scratch);
    fl_tokenizer_close(t);
}

Test(bpe, the_alphabet_of_bytes_goes_there_and_back) {
    unsigned found = 0;
    for (unsigned byte = 0; byte < 256; byte++)
        cr_expect_eq(fl_bpe_byte_of_char(fl_bpe_char_of_byte((uint8_t)byte)), (int)byte);
    for (uint32_t cp = 0; cp < 0x400; cp++)
        found += fl_bpe_byte_of_char(cp) >= 0;
    cr_expect_eq(found, 256);
    cr_expect_eq(fl_bpe_char_of_byte(' '), 0x120);
}

Test(bpe, scanners_equal_their_patterns) {
    static const char *const parts[] = {"a",
                                        "B",
                                        " ",
                                        "  ",
                                        "\n",
                                        "\r",
                                        "\t",
                                        "'s",
                                        "'LL",
                                        "'",
                                        "1",
                                        "23",
                                        "!",
                                        "/",
                                        "\xC3\xA9",
                                        "\xE6\x97\xA5",
                                        "\xCC\x81",
                                        "\xC2\xA0",
                                        "\xE3\x80\x80",
                                        "\xC7\x85",
                                        "\xC5\xBF",
                                        "word"};
    fl_regex                *regex;
    fl_regex_work            work  = {0};
    uint64_t                 state = 1234567;
    cr_assert_eq(fl_regex_open(&regex, fl_pieces_gpt2, "test", NULL), 0);
    fl_pieces *scan = fl_pieces_of(fl_pieces_gpt2, FL_GAPS_NONE);
    cr_assert_not_null(scan);
    cr_expect_null(fl_pieces_of("\\s+", FL_GAPS_KEPT));
    for (unsigned round = 0; round < 20000; round++) {
        char   text[256] = "";
        size_t size      = 0;
        for (unsigned n = next_random(&state) % 20; n > 0; n--) {
            size += (size_t)sprintf(text + size, "%s",
                                    parts[next_random(&state) % (sizeof parts / sizeof *parts)]);
        }
        uint32_t      ends[256];
        size_t        count = 0, begin, end;
        fl_regex_walk walk  = {0};
        for (size_t at = 0; at < size; at = ends[count - 1]) /* a few at a time */
            count += scan(text, size, at, ends + count, 3);
        for (size_t i = 0; i < count; i++) {
            cr_assert_eq(fl_regex_next(regex, &work, text, size, &walk, &begin, &end),
                         FL_REGEX_MATCH);
            cr_assert_eq(end, ends[i], "\"%s\" at %zu", text, begin);
        }
    }
    fl_regex_work_free(&work);
    fl_regex_close(regex);
}
