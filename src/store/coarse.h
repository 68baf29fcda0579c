/* SPDX-License-Identifier: Apache-2.0 */
/* coarse.h - short codes of rows, by which a search finds the few rows that it then compares exactly.
 *
 * Role    vectors.c keeps one code a row beside the rows when server.store_search says so.
 * Method  signs: one bit a number, set where it is above zero; the score is minus the bits that differ. int8:
 *         the numbers in 127ths of the row's largest, which is kept with them; the score is the dot product in
 *         units of the query's own largest. Both are whole numbers until the last step, so that every
 *         instruction set gives the same scores. What a search keeps is a rule of experience: no bound holds
 *         for how many of the nearest rows are among it, which is why vectors.c counts it.
 * Memory  none. Threads: any. Proof: tests/unit/test_server_vectors.c, bench/nearest.py. */
#ifndef FL_STORE_COARSE_H
#define FL_STORE_COARSE_H

#include <stdbool.h>
#include <stddef.h>

/* scores[rows] of the codes that lie one after the other; size: numbers in a row, a multiple of 32. */
typedef void fl_coarse_scan(const void *query, const void *codes, size_t rows, size_t size,
                            float *scores);

enum { FL_COARSE_SIGNS, FL_COARSE_INT8, FL_COARSE_COUNT };

/* A kind of code: FL_COARSE_SIGNS, FL_COARSE_INT8. */
typedef struct fl_coarse {
    const char *name;
    size_t keep, least; /* rows to compare exactly: `keep` for each that is asked for, or `least` */
    size_t (*bytes)(size_t size);
    void (*encode)(const float *row, size_t size, void *code);
} fl_coarse;
extern const fl_coarse fl_coarse_kinds[FL_COARSE_COUNT];
const fl_coarse       *fl_coarse_named(const char *name); /* NULL: there is none of that name */

/* An instruction set's scans, the fastest first; the last one runs everywhere. */
typedef struct fl_coarse_isa {
    const char *name;
    bool (*usable)(void);
    fl_coarse_scan *scan[FL_COARSE_COUNT];
} fl_coarse_isa;
fl_coarse_scan fl_scan_signs_ref, fl_scan_int8_ref;
#if defined(__x86_64__)
fl_coarse_scan fl_scan_signs_avx2, fl_scan_int8_avx2, fl_scan_signs_avx512, fl_scan_int8_avx512;
#endif
const fl_coarse_isa *fl_coarse_isa_at(size_t index); /* NULL past the end */
fl_coarse_scan      *fl_coarse_best(const fl_coarse *coarse);

#endif
