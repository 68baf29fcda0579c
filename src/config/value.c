/* SPDX-License-Identifier: Apache-2.0 */
/* value.c - the text of an option becomes a value in its bounds, or a message that says why not.
 *
 * Role    Every source (flag, environment, file, preset) hands text to fl_value_parse, so all of
 *         them accept the same spellings and fail with the same words.
 * Method  One parser per type. Case of words does not matter; lists and enums are stored in the
 *         table's own spelling and provider names without their short forms (gpu is stored as
 *         cuda), so that rooms above compare plain strings.
 * In/Out  A terminated string -> fl_config_value with owned canonical text. Threads: no state.
 * Proof   tests/unit/test_config.c. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/utf8.h"
#include "config/config_internal.h"

enum { VALUE_BYTES_MAX = 64 << 10, WORD_BYTES_MAX = 64 };

/* Element `index` of "a|b|c" or "a,b,c" into out, blanks around it removed. */
static bool piece(const char *text, char separator, unsigned index, char *out, size_t capacity) {
    for (; index > 0; index--) {
        text = strchr(text, separator);
        if (text == NULL)
            return false;
        text++;
    }
    const char *end  = strchr(text, separator);
    size_t      size = end == NULL ? strlen(text) : (size_t)(end - text);
    while (size > 0 && (*text == ' ' || *text == '\t')) {
        text++;
        size--;
    }
    while (size > 0 && (text[size - 1] == ' ' || text[size - 1] == '\t'))
        size--;
    if (size >= capacity)
        size = capacity - 1; /* too long for any choice: reported as what it begins with */
    memcpy(out, text, size);
    out[size] = '\0';
    return true;
}

bool fl_config_list_item(const fl_config *config, fl_key key, unsigned index, char *out,
                         size_t capacity) {
    const char *text = fl_config_text(config, key);
    return text[0] != '\0' && capacity > 0 && piece(text, ',', index, out, capacity);
}

static bool parse_bool(const char *text, bool *out) {
    static const char *const yes[] = {"true", "1", "yes", "on"};
    static const char *const no[]  = {"false", "0", "no", "off"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (strcasecmp(text, yes[i]) == 0)
            *out = true;
        else if (strcasecmp(text, no[i]) == 0)
            *out = false;
        else
            continue;
        return true;
    }
    return false;
}

/* Short names of providers, so that "gpu" and "cuda" are one thing above this room. */
static const char *full_name(fl_key key, const char *word) {
    static const char *const names[][2] = {
        {"gpu", "cuda"}, {"trt", "tensorrt"}, {"dml", "directml"}};
    if (key == FL_KEY_PROVIDER_ORDER)
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (strcmp(word, names[i][0]) == 0)
                return names[i][1];
    return word;
}

static bool choose(const char *choices, const char *word, char *out, size_t capacity);

/* "gpu:1" -> "cuda:1" */
static bool choose_of_provider(const char *word, char *out, size_t capacity) {
    const char *colon = strchr(word, ':');
    char        said[WORD_BYTES_MAX], name[WORD_BYTES_MAX], number[WORD_BYTES_MAX];
    if (colon == NULL)
        return false;
    (void)snprintf(said, sizeof said, "%.*s", (int)(colon - word), word);
    if (!choose(FL_PROVIDERS, said, name, sizeof name) ||
        !choose("all|N", colon + 1, number, sizeof number))
        return false;
    (void)snprintf(out, capacity, "%s:%s", full_name(FL_KEY_PROVIDER_ORDER, name), number);
    return true;
}

/* One word against "a|b|N"; the table's spelling into out. */
static bool choose(const char *choices, const char *word, char *out, size_t capacity) {
    for (unsigned i = 0; piece(choices, '|', i, out, capacity); i++) {
        if (strcmp(out, "PROVIDER:N") == 0)
            return choose_of_provider(word, out, capacity);
        if (strcmp(out, "N") != 0) {
            if (strcasecmp(out, word) == 0)
                return true;
            continue;
        }
        int64_t number = 0;
        if (fl_parse_i64(word, &number) && number >= 0 && number <= UINT16_MAX) {
            (void)snprintf(out, capacity, "%d", (int)number);
            return true;
        }
    }
    return false;
}

static int refuse_choice(const char *place, const char *choices, const char *word,
                         fletch_error *error) {
    fl_nearest nearest = fl_nearest_start(word);
    char       name[WORD_BYTES_MAX];
    for (unsigned i = 0; piece(choices, '|', i, name, sizeof name); i++)
        if (strpbrk(name, "N") == NULL) /* it stands for any number */
            fl_nearest_see_copy(&nearest, name);
    if (nearest.name == NULL)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE, "%s: '%.64s' is not one of %s", place,
                       word, choices);
    return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                   "%s: '%.64s' is not one of %s; did you mean '%s'?", place, word, choices,
                   nearest.name);
}

static int parse_words(fl_key key, const char *text, const char *place, fl_buf *out,
                       fletch_error *error) {
    const fl_option_rule *rule  = fl_option_rule_of(key);
    const char            comma = rule->type == FL_TYPE_LIST ? ',' : '\0';
    char                  word[WORD_BYTES_MAX + 8], name[WORD_BYTES_MAX];
    for (unsigned i = 0; piece(text, comma, i, word, sizeof word); i++) {
        if (i > 0)
            fl_buf_putc(out, ',');
        bool flag = false; /* "model.normalize = 1" is as good as true where true is a choice */
        if (!choose(rule->choices, word, name, sizeof name) &&
            !(parse_bool(word, &flag) &&
              choose(rule->choices, flag ? "true" : "false", name, sizeof name)))
            return refuse_choice(place, rule->choices, word, error);
        fl_buf_puts(out, full_name(key, name));
        if (comma == '\0')
            break;
    }
    return 0;
}

static int check_bounds(const fl_option_rule *rule, double value, const char *text,
                        const char *place, fletch_error *error) {
    if (value >= rule->min && value <= rule->max) /* NaN is inside nothing */
        return 0;
    return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE, "%s: %.64s is outside %s", place, text,
                   rule->bounds);
}

static int parse_number(const fl_option_rule *rule, const char *text, const char *place,
                        fl_config_value *out, fletch_error *error) {
    if (rule->zero_word != NULL && strcasecmp(text, rule->zero_word) == 0)
        return 0;
    uint64_t size = 0;
    switch (rule->type) {
    case FL_TYPE_INT:
        if (!fl_parse_i64(text, &out->integer))
            return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                           "%s: '%.64s' is not a whole number in %s", place, text, rule->bounds);
        return check_bounds(rule, (double)out->integer, text, place, error);
    case FL_TYPE_SIZE:
        if (!fl_parse_size(text, &size))
            return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                           "%s: '%.64s' is not a size; give bytes, or a number with KiB, MiB, GiB",
                           place, text);
        out->integer = size > INT64_MAX ? INT64_MAX : (int64_t)size;
        return check_bounds(rule, (double)size, text, place, error);
    default:
        if (!fl_parse_f64(text, &out->number))
            return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                           "%s: '%.64s' is not a number in %s", place, text, rule->bounds);
        return check_bounds(rule, out->number, text, place, error);
    }
}

static int check_text(const char *text, const char *place, fletch_error *error) {
    const size_t size = strlen(text);
    if (size > VALUE_BYTES_MAX)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s: a value of %zu bytes; the limit is %d", place, size, VALUE_BYTES_MAX);
    const size_t valid = fl_utf8_valid_prefix(text, size);
    if (valid != size)
        return fl_fail(error, FLETCH_ECONFIG, valid, "%s: byte %zu of the value is not UTF-8",
                       place, valid);
    return 0;
}

int fl_value_parse(fl_key key, const char *text, const char *place, fl_config_value *out,
                   fletch_error *error) {
    const fl_option_rule *rule      = fl_option_rule_of(key);
    fl_buf                canonical = {0};
    bool                  flag      = false;
    memset(out, 0, sizeof *out);
    int status = check_text(text, place, error);
    if (status < 0)
        return status;
    if (text[0] == '\0' && rule->type != FL_TYPE_STRING)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE, "%s: the value is empty", place);
    switch (rule->type) {
    case FL_TYPE_BOOL:
        if (!parse_bool(text, &flag))
            return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                           "%s: '%.64s' is neither true nor false", place, text);
        out->integer = flag;
        fl_buf_puts(&canonical, flag ? "true" : "false");
        break;
    case FL_TYPE_STRING: fl_buf_puts(&canonical, text); break;
    case FL_TYPE_ENUM:
    case FL_TYPE_LIST: status = parse_words(key, text, place, &canonical, error); break;
    default:
        status = parse_number(rule, text, place, out, error);
        fl_buf_puts(&canonical, text);
        break;
    }
    if (status == 0) {
        out->text = text[0] == '\0' ? fl_strdup("") : fl_buf_take(&canonical);
        if (out->text == NULL)
            status = fl_fail_nomem(error, strlen(text), "a configuration value");
    }
    fl_buf_free(&canonical);
    return status;
}
