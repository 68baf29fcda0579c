/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.c - the known name closest to a mistyped one.
 *
 * Role    args.c asks it for flags and commands that do not exist.
 * Method  Edit distance with swaps of neighbours (optimal string alignment), three rows of a table; a
 *         candidate that has the word as its beginning counts as near, since people abbreviate.
 * Memory  Three rows on the stack; words longer than the rows are never near anything.
 * Proof   tests/cli/test_cli_usage.py. */
#include <string.h>

#include "cli/cli.h"

enum { WORD_MAX = 63 };

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t edit_distance(const char *a, size_t a_size, const char *b, size_t b_size) {
    size_t rows[3][WORD_MAX + 1];
    for (size_t j = 0; j <= b_size; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= a_size; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
            row[j]      = least(least(above[j] + 1, row[j - 1] + 1), above[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = least(row[j], above2[j - 2] + 1);
            }
        }
    }
    return rows[a_size % 3][b_size];
}

size_t fl_cli_nearest_limit(const char *word) {
    size_t size = strlen(word);
    return size / 3 + 2; /* a third of the letters may be wrong; one above the largest accepted */
}

void fl_cli_nearest_try(const char *word, const char *candidate, const char **best,
                        size_t *distance) {
    size_t word_size = strlen(word), size = strlen(candidate);
    if (word_size > WORD_MAX || size > WORD_MAX) {
        return;
    }
    size_t found = edit_distance(word, word_size, candidate, size);
    if (word_size >= 4 && size > word_size && strncmp(word, candidate, word_size) == 0) {
        found = least(found, 1);
    }
    if (found < *distance) {
        *distance = found;
        *best     = candidate;
    }
}
