/* SPDX-License-Identifier: Apache-2.0 */
/* output_name.c - the names of outputs, as the command line, the server and the Python package take them.
 *
 * In/Out  "dense:256:int8" -> kind, dimensions, dtype; what a name does not say stays.
 * Memory  none. Threads: no state. Proof: tests/golden/test_outputs.py. */
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "results/row_stages.h"

enum { DIGITS_MAX = 9, SHOWN_MAX = 64 };

static const struct {
    const char *name;
    fletch_kind kind;
} kinds[] = {{"dense", FLETCH_KIND_DENSE},
             {"sparse", FLETCH_KIND_SPARSE},
             {"tokens", FLETCH_KIND_TOKENS},
             {"colbert", FLETCH_KIND_COLBERT}};

bool fl_kind_is_output(fletch_kind kind) {
    size_t i = 0;
    while (i < sizeof kinds / sizeof *kinds && kinds[i].kind != kind)
        i++;
    return i < sizeof kinds / sizeof *kinds;
}

const char *const fl_dtype_names[FL_DTYPES] = {"float32", "int8", "uint8", "binary", "ubinary"};

static bool is(const char *word, size_t size, const char *name) {
    return strlen(name) == size && memcmp(word, name, size) == 0;
}

/* The word up to the next colon; *name begins behind that, or is NULL after the last. */
static size_t next_word(const char **name, size_t *left, const char **word) {
    const char *colon = *left > 0 ? memchr(*name, ':', *left) : NULL;
    size_t      size  = colon ? (size_t)(colon - *name) : *left;
    *word             = *name;
    *left             = colon ? *left - size - 1 : 0;
    *name             = colon ? colon + 1 : NULL;
    return size;
}

static bool parse_columns(const char *word, size_t size, size_t *columns) {
    size_t number = 0;
    for (size_t i = 0; i < size && i < DIGITS_MAX; i++) {
        if (word[i] < '0' || word[i] > '9')
            return false;
        number = 10 * number + (size_t)(word[i] - '0');
    }
    if (size > DIGITS_MAX || number == 0)
        return false;
    *columns = number;
    return true;
}

static bool parse_dtype(const char *word, size_t size, fletch_dtype *dtype) {
    for (int i = 0; i < FL_DTYPES; i++)
        if (is(word, size, fl_dtype_names[i])) {
            *dtype = (fletch_dtype)i;
            return true;
        }
    return false;
}

/* What stands behind "dense:", dimensions, a dtype, or both. */
static bool parse_rest(const char *name, size_t left, fletch_matrix *out) {
    const char *word;
    size_t      size = next_word(&name, &left, &word);
    if (parse_columns(word, size, &out->cols)) {
        if (!name)
            return true;
        size = next_word(&name, &left, &word);
    }
    return !name && parse_dtype(word, size, &out->dtype);
}

int fletch_output_parse(fletch_output *output, const char *name, size_t size, fletch_error *error) {
    const char *rest = name, *word;
    size_t      left = size, first;
    if (!output || !name)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "fletch_output_parse: output or name is NULL");
    fletch_matrix out = output->out;
    first             = next_word(&rest, &left, &word);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool dense = kinds[i].kind == FLETCH_KIND_DENSE;
        if (!is(word, first, kinds[i].name) || (rest && !(dense && parse_rest(rest, left, &out))))
            continue;
        output->kind = kinds[i].kind;
        output->out  = out;
        return FLETCH_OK;
    }
    return fl_fail(
        error, FLETCH_EINVAL, FLETCH_NOWHERE,
        "unknown output \"%.*s\"; use dense, dense:DIMENSIONS, dense:DTYPE, dense:DIMENSIONS:DTYPE "
        "(float32, int8, uint8, binary, ubinary), sparse, tokens or colbert",
        (int)fl_utf8_valid_prefix(name, size < SHOWN_MAX ? size : SHOWN_MAX), name);
}
