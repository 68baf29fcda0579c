/* SPDX-License-Identifier: Apache-2.0 */
/* suggest.c - "did you mean": the nearest of a set of names.
 *
 * Role    Unknown keys, values, presets and FLETCH_* variables name what was probably meant.
 * Method  Damerau-Levenshtein distance in its restricted form (insert, delete, replace, swap of two
 *         neighbours, no piece edited twice) by three rows of the table. A name counts as near when
 *         at most a third of what was typed, or two letters if that is more, would have to change.
 * Memory  Stack only. Threads: no state. Proof: tests/unit/test_config_sources.c. */
#include <limits.h>
#include <string.h>

#include "config/internal.h"

enum { NAME_MAX_BYTES = 63 };

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
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
            const bool same = lower(a[i - 1]) == lower(b[j - 1]);
            row[j]          = min3(row[j - 1] + 1, above[j] + 1, above[j - 1] + !same);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1]) && above_2[j - 2] + 1 < row[j])
                row[j] = above_2[j - 2] + 1;
        }
    }
    return rows[n % 3][m];
}

fl_nearest fl_nearest_start(const char *wanted) {
    const unsigned   third = (unsigned)(strlen(wanted) / 3);
    const fl_nearest start = {wanted, NULL, (third > 2 ? third : 2) + 1};
    return start;
}

void fl_nearest_see_as(fl_nearest *nearest, const char *candidate, const char *name) {
    const unsigned distance = fl_edit_distance(nearest->wanted, candidate);
    if (distance >= nearest->distance)
        return;
    nearest->distance = distance;
    nearest->name     = name;
}

void fl_nearest_see(fl_nearest *nearest, const char *candidate) {
    fl_nearest_see_as(nearest, candidate, candidate);
}
