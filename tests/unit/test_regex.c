/* SPDX-License-Identifier: Apache-2.0 */
/* test_regex.c - the translation of patterns, against what Hugging Face tokenizers 0.23.3 (Oniguruma) finds.
 *
 * A pattern either finds what Oniguruma finds, or is refused by name; and one that would take for ever
 * ends with FL_REGEX_LIMIT. Longer comparisons are in tests/golden/test_tokens_bpe.py. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/regex.h"

static const struct {
    const char *pattern, *text;
    const char *matches; /* separated by '|' */
} cases[] = {
    {"'s|'t| ?\\p{L}+|\\s+(?!\\S)|\\s+", "don't  go ", "don|'t| | go| "},
    {"(?i:'s|'t|'re)", "I'S it'\xC5\xBF we'RE", "'S|'\xC5\xBF|'RE"}, /* U+017F folds to s */
    {"(?i:k)+", "K\xE2\x84\xAAk", "K\xE2\x84\xAAk"},                 /* U+212A folds to k */
    {"\\s+", "a\xC2\x85\x1C\xE3\x80\x80\xE2\x80\x8B", "\xC2\x85|\xE3\x80\x80"},
    {"[^\\s\\p{L}]+", "ab12 \xC2\xA0,c", "12|,"},
    {"\\p{N}{1,3}", "12345", "123|45"},
    {"\\p{Lu}\\p{Ll}*", "HelloWorld", "Hello|World"},
    {"[\\x{4E00}-\\u9FA5]+", "a\xE4\xBD\xA0\xE5\xA5\xBDz", "\xE4\xBD\xA0\xE5\xA5\xBD"},
    {"a{,2}b", "aaab", "aab"},
    {"x*", "axxb", "|xx|"},
    {"(?<=a)b|^c$", "ab\nc\nb", "b|c"},
    {".+", "a\r\nb", "a\r|b"},
    {"[]-a]+", NULL, NULL},
    {"[a-]+", "a-b", "a-"},
    {"a++b|a", "aaab aa", "aaab|a|a"},
    {"[\\P{L}x]+", "ax1,b", "x1,"},
    {"\\p{^L}", "a1", "1"},
    {"[^\\n]+\\z", "a\nbc", "bc"},
    {"[a[bc]]+", "xabcx", "abc"},
    {"[^a[^bc]]+", "xabcx", "bc"},
    {"[^(\\s|[.,])]+", "ab(c. d|e", "ab|c|d|e"},
    {"[a-f&&[^bd]&&a-d]+", "abcdef", "a|c"},
    {"[^a-f&&[^bd]]+", "abcdefg", "b|d|g"},
    {"\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567 12a", "1|234|567"},
    {"\\Bb|\\ba", "ab ba b\xCC\x81", "a|b"},
};

Test(regex, finds_what_the_reference_finds) {
    fl_regex_work work = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char         found[256] = "";
        fl_regex    *regex;
        fletch_error error;
        int          status = fl_regex_open(&regex, cases[i].pattern, "test", &error);
        if (cases[i].text == NULL) {
            cr_expect_eq(status, FLETCH_EUNSUPPORTED, "%s", cases[i].pattern);
            continue;
        }
        cr_assert_eq(status, 0, "%s: %s", cases[i].pattern, error.message);
        fl_regex_walk walk = {0};
        size_t        begin, end, size = strlen(cases[i].text);
        for (bool first = true; fl_regex_next(regex, &work, cases[i].text, size, &walk, &begin,
                                              &end) == FL_REGEX_MATCH;
             first      = false) {
            strcat(found, first ? "" : "|");
            strncat(found, cases[i].text + begin, end - begin);
        }
        cr_expect_str_eq(found, cases[i].matches, "%s: %s", cases[i].pattern, found);
        fl_regex_close(regex);
    }
    fl_regex_work_free(&work);
}

Test(regex, what_it_cannot_do_exactly_is_refused_by_name) {
    static const char *const cases_refused[][2] = {
        {"(a)\\1", "\\1"},
        {"\\X", "\\X"},
        {"(?<name>a)", "a group of a kind"},
        {"[a&&]", "&& with nothing beside it"},
        {"[&&a]", "&& with nothing beside it"},
        {"(?i:[a[b]])", "a class inside a class under (?i)"},
        {"[a[:alpha:]]", "a class inside a class of a kind"},
        {"[a-[b]]", "a range"},
        {"[a[b]", "without its closing bracket"},
        {"\\p{Klingon}", "\\p{Klingon}"},
        {"\\pL", "without braces"},
        {"a{2}?", "{n}?"},
        {"\\p{N}{1,3}+", "{n,m}+"},
        {"(?i:fi)", "fi"},
        {"(?i:\xC3\xA9)", "ASCII"},
        {"a(?i)b", "not at its beginning"},
        {"a{1001}", "1000"},
        {"*a", "a repeat of nothing"},
        {"a**", "a repeat of nothing or of a repeat"},
        {"(a", "not closed"},
        {"a)", "too many"},
        {"[a", "without its closing bracket"},
        {"[z-a]", "backwards"},
        {"a{", "brace"},
        {"\\", "\\?"},
        {"(?<=a*)b", "cannot be compiled"},
    };
    for (size_t i = 0; i < sizeof cases_refused / sizeof *cases_refused; i++) {
        fl_regex    *regex;
        fletch_error error;
        cr_assert_eq(fl_regex_open(&regex, cases_refused[i][0], "f.json", &error),
                     FLETCH_EUNSUPPORTED, "%s", cases_refused[i][0]);
        cr_expect(strstr(error.message, cases_refused[i][1]) != NULL, "%s: %s", cases_refused[i][0],
                  error.message);
        cr_expect(strstr(error.message, "f.json") != NULL);
        cr_expect_null(regex);
    }
}

Test(regex, the_cost_of_opening_is_bounded) {
    char         pattern[8001];
    fl_regex    *regex;
    fletch_error error;
    for (size_t i = 0; i < 8000; i += 2)
        memcpy(pattern + i, "\\W", 2);
    pattern[8000] = '\0';
    cr_assert_eq(fl_regex_open(&regex, pattern, "f.json", &error), FLETCH_EUNSUPPORTED);
    cr_expect(strstr(error.message, "more classes") != NULL, "%s", error.message);
}

Test(regex, a_pattern_that_would_hang_ends_with_its_limit) {
    static char   text[60001];
    fl_regex     *regex;
    fl_regex_work work = {0};
    memset(text, 'a', sizeof text - 1);
    for (unsigned i = 0; i < 2; i++) {
        size_t        begin, end;
        fl_regex_walk walk = {0};
        cr_assert_eq(fl_regex_open(&regex, i == 0 ? "(a+)+[bc]" : "(?:a|aa)+[bc]", "test", NULL),
                     0);
        cr_expect_eq(fl_regex_next(regex, &work, text, sizeof text - 1, &walk, &begin, &end),
                     FL_REGEX_LIMIT);
        fl_regex_close(regex);
    }
    fl_regex_work_free(&work);
}
