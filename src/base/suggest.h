/* SPDX-License-Identifier: Apache-2.0 */
/* suggest.h - "did you mean": the nearest of many names to one that does not exist.
 *
 * Start, show it every candidate, read `name` (NULL: none is near). Case does not matter, and '-', '_'
 * and '.' are one character: a key, its flag and its variable are spelled alike. */
#ifndef FL_BASE_SUGGEST_H
#define FL_BASE_SUGGEST_H

typedef struct fl_nearest {
    const char *wanted;
    const char *name;
    unsigned    distance;
    char        copy[64]; /* longer names are infinitely far */
} fl_nearest;

fl_nearest fl_nearest_start(const char *wanted);
void       fl_nearest_see(fl_nearest *nearest, const char *candidate);

/* The same for a candidate that will be gone. */
void fl_nearest_see_copy(fl_nearest *nearest, const char *candidate);

/* The same for a candidate that is told as `name`. */
void fl_nearest_see_as(fl_nearest *nearest, const char *candidate, const char *name);

/* A key "room.some_name", told as `name`: near is also who wrote its last part, or the end of that
 * ("threads" for cpu.intra_op_threads), or the right last part in the wrong room. */
void fl_nearest_see_key(fl_nearest *nearest, const char *key, const char *name);

/* Edits (insert, delete, replace, swap neighbours) from a to b; more than 63 bytes are infinitely far. */
unsigned fl_edit_distance(const char *a, const char *b);

#endif
