/* SPDX-License-Identifier: Apache-2.0 */
/* suggest.c - the nearest of many names.
 *
 * Role    Unknown keys, values, presets, variables, flags and commands name what was probably meant.
 * Method  Damerau-Levenshtein distance in its restricted form (no piece edited twice) by three rows of
 *         the table. A name is near when at most a third of what was typed, or two letters if that is
 *         more, would have to change, one more where the beginnings agree; among equals the first one shown
 *         wins.
 * Proof   tests/unit/test_config_sources.c, tests/cli/test_cli_usage.py. */
#include "base/suggest.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NAME_MAX_BYTES = 63, BEGINNING = 3, ABBREVIATION_MIN = 4 };

static char fold(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c == '-' || c == '.' ? '_' : c;
}

static bool alike(const char *a, const char *b, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (fold(a[i]) != fold(b[i]))
            return false;
    return true;
}

static unsigned min3(unsigned a, unsigned b, unsigned c) {
    const unsigned least = a < b ? a : b;
    return least < c ? least : c;
}

unsigned fl_edit_distance(const char *a, const char *b) {
    const size_t n = strlen(a), m = strlen(b);
    if (n > NAME_MAX_BYTES || m > NAME_MAX_BYTES)
        return UINT_MAX;
    unsigned rows[3][NAME_MAX_BYTES + 1]; /* rows[i % 3][j]: edits from a[0, i) to b[0, j) */
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned       *row     = rows[i % 3];
        const unsigned *above   = rows[(i - 1) % 3];
        const unsigned *above_2 = rows[(i + 1) % 3]; /* i - 2, modulo 3 */
        row[0]                  = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            const bool same = fold(a[i - 1]) == fold(b[j - 1]);
            row[j]          = min3(row[j - 1] + 1, above[j] + 1, above[j - 1] + !same);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
                fold(a[i - 2]) == fold(b[j - 1]) && above_2[j - 2] + 1 < row[j])
                row[j] = above_2[j - 2] + 1;
        }
    }
    return rows[n % 3][m];
}

fl_nearest fl_nearest_start(const char *wanted) {
    const unsigned size = (unsigned)strlen(wanted), third = size / 3 > 2 ? size / 3 : 2;
    /* at least one letter stays as it was typed */
    return (fl_nearest){.wanted = wanted, .distance = third < size ? third + 1 : size};
}

static void keep(fl_nearest *nearest, unsigned distance, const char *name) {
    if (distance < nearest->distance) {
        nearest->distance = distance;
        nearest->name     = name;
    }
}

void fl_nearest_see_as(fl_nearest *nearest, const char *candidate, const char *name) {
    const size_t   size     = strlen(nearest->wanted);
    const unsigned distance = fl_edit_distance(nearest->wanted, candidate);
    const bool     begins   = size >= BEGINNING && strlen(candidate) >= BEGINNING &&
                        alike(candidate, nearest->wanted, BEGINNING);
    keep(nearest, distance > 1 && begins ? distance - 1 : distance, name);
    if (size >= ABBREVIATION_MIN && strlen(candidate) > size &&
        alike(candidate, nearest->wanted, size))
        keep(nearest, 1, name); /* people abbreviate */
}

void fl_nearest_see(fl_nearest *nearest, const char *candidate) {
    fl_nearest_see_as(nearest, candidate, candidate);
}

void fl_nearest_see_copy(fl_nearest *nearest, const char *candidate) {
    fl_nearest_see(nearest, candidate);
    if (nearest->name == candidate) {
        (void)snprintf(nearest->copy, sizeof nearest->copy, "%s", candidate);
        nearest->name = nearest->copy;
    }
}

void fl_nearest_see_key(fl_nearest *nearest, const char *key, const char *name) {
    const char  *dot = strchr(key, '.'), *room = strchr(nearest->wanted, '.');
    const char  *last = dot != NULL ? dot + 1 : key;
    const size_t size = strlen(nearest->wanted), tail = strlen(last);
    fl_nearest_see_as(nearest, key, name);
    if (room != NULL && strcmp(room + 1, last) == 0)
        keep(nearest, 0, name);
    if (room != NULL || size == 0)
        return;
    keep(nearest, fl_edit_distance(nearest->wanted, last), name);
    if (tail > size && alike(last + tail - size, nearest->wanted, size) &&
        fold(last[tail - size - 1]) == '_')
        keep(nearest, 1, name);
}
