/* SPDX-License-Identifier: Apache-2.0 */
/* toml_number.c - the bare words of a TOML document: integers, floats, booleans.
 *
 * Role    toml_value.c hands every value here that does not begin with a quote or a bracket.
 * Method  A word is a run of letters, digits and "_+-.:". It is first checked against the grammar
 *         of TOML (no leading zeros, '_' only between digits), stripped of '_', then converted; so
 *         the conversion sees nothing it could read in another way. What looks like a date or a
 *         time is refused by name: no option of fletch takes one.
 * Memory  The document's arena keeps the stripped word. Proof: tests/unit/test_toml.c. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "config/toml_parser.h"

enum { WORD_MAX = 512 }; /* longer numbers exist only to hurt */

/* Length of a run of digits with single '_' between digits; 0 when there is none. */
static size_t digits(const char *text, int base) {
    size_t i = 0;
    while (fl_toml_digit(text[i], base) >= 0) {
        i++;
        if (text[i] == '_' && fl_toml_digit(text[i + 1], base) >= 0)
            i++;
    }
    return i;
}

/* 1979-05-27…, 07:32… */
static bool looks_like_time(const char *word) {
    if (digits(word, 10) == 4 && word[4] == '-')
        return true;
    return digits(word, 10) == 2 && word[2] == ':';
}

/* 0x, 0o, 0b after the prefix: digits to the end, at most 63 bits. */
static bool based_integer(const char *text, int base, int64_t *out) {
    uint64_t value = 0;
    if (digits(text, base) == 0 || text[digits(text, base)] != '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text == '_')
            continue;
        if (value > (uint64_t)INT64_MAX / (unsigned)base)
            return false;
        value = value * (unsigned)base + (unsigned)fl_toml_digit(*text, base);
        if (value > (uint64_t)INT64_MAX)
            return false;
    }
    *out = (int64_t)value;
    return true;
}

typedef enum word_kind { WORD_NEITHER, WORD_INTEGER, WORD_FLOAT } word_kind;

/* Decimal integer or float by the grammar of TOML; signs allowed, leading zeros not. */
static word_kind decimal_kind(const char *word) {
    word_kind   kind = WORD_INTEGER;
    const char *p    = word + (*word == '+' || *word == '-');
    size_t      run  = digits(p, 10);
    if (run == 0 || (p[0] == '0' && run > 1))
        return WORD_NEITHER;
    p += run;
    if (*p == '.') {
        run = digits(++p, 10);
        if (run == 0)
            return WORD_NEITHER;
        p += run;
        kind = WORD_FLOAT;
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '+' || *p == '-';
        run = digits(p, 10);
        if (run == 0)
            return WORD_NEITHER;
        p += run;
        kind = WORD_FLOAT;
    }
    return *p == '\0' ? kind : WORD_NEITHER;
}

/* Without '_' and a leading '+', in place. */
static void strip(char *word) {
    char *to = word;
    for (const char *from = word + (*word == '+'); *from != '\0'; from++)
        if (*from != '_')
            *to++ = *from;
    *to = '\0';
}

static bool special_float(const char *word, double *out) {
    const char *p        = word + (*word == '+' || *word == '-');
    const bool  negative = *word == '-';
    if (strcmp(p, "inf") == 0)
        *out = negative ? -HUGE_VAL : HUGE_VAL;
    else if (strcmp(p, "nan") == 0)
        *out = (double)NAN;
    else
        return false;
    return true;
}

/* Convert a whole word; false when it is none of the known forms. */
static bool convert(char *word, fl_toml *view, bool *range) {
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0) {
        view->type    = FL_TOML_BOOLEAN;
        view->integer = word[0] == 't';
        return true;
    }
    if (special_float(word, &view->number)) {
        view->type = FL_TOML_FLOAT;
        return true;
    }
    const char marker = word[0] == '0' ? word[1] : '\0';
    if (marker == 'x' || marker == 'o' || marker == 'b') {
        const int base = marker == 'x' ? 16 : marker == 'o' ? 8 : 2;
        view->type     = FL_TOML_INTEGER;
        return based_integer(word + 2, base, &view->integer);
    }
    const word_kind kind = decimal_kind(word);
    if (kind == WORD_NEITHER)
        return false;
    strip(word);
    view->type = kind == WORD_INTEGER ? FL_TOML_INTEGER : FL_TOML_FLOAT;
    *range     = kind == WORD_INTEGER ? !fl_parse_i64(word, &view->integer)
                                      : !fl_parse_f64(word, &view->number);
    return true;
}

int fl_toml_word(fl_toml_parser *parser, fl_toml *view) {
    const size_t start = parser->at;
    char         word[WORD_MAX];
    size_t       size = 0;
    for (;; parser->at++, size++) {
        const char c = fl_toml_peek(parser, 0);
        if (!fl_toml_is_bare(c) && c != '+' && c != '.' && c != ':')
            break;
        if (size == sizeof word - 1)
            return fl_toml_fail(parser, start, "a value without quotes of more than %d characters",
                                WORD_MAX - 1);
        word[size] = c;
    }
    word[size] = '\0';
    if (size == 0) {
        char seen[16];
        return fl_toml_fail(parser, start, "expected a value, found %s",
                            fl_toml_seen(parser, seen));
    }
    bool range = false;
    if (!convert(word, view, &range)) {
        if (looks_like_time(word)) {
            (void)fl_toml_fail(parser, start,
                               "dates and times are left out of this TOML reader "
                               "('%.40s'): write it as a string",
                               word);
            if (parser->error != NULL)
                parser->error->code = FLETCH_EUNSUPPORTED;
            return FLETCH_EUNSUPPORTED;
        }
        return fl_toml_fail(parser, start,
                            "'%.40s' is neither a number nor true or false: text needs quotes",
                            word);
    }
    if (range)
        return fl_toml_fail(parser, start, "the number %.40s is out of range", word);
    view->text_size = strlen(word);
    view->text      = fl_toml_keep(parser->document, word, view->text_size);
    if (view->text == NULL)
        return fl_fail_nomem(parser->error, size, "a TOML number");
    return 0;
}
