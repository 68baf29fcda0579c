/* SPDX-License-Identifier: Apache-2.0 */
/* coarse_scan.h - the scans of coarse.h, compiled once for each instruction set.
 *
 * Role    A file that includes it says FL_COARSE_ISA(name), and has that set's flags in store.cmake: the plain loops
 *         are what the compiler makes popcounts, or products of 16 bits, of. On arm64 the plain form has NEON.
 * Proof   tests/unit/test_server_vectors.c: the same scores from each. */
#include <stdint.h>
#include <string.h>

#include "store/coarse.h"

void FL_COARSE_ISA(fl_scan_signs)(const void *query, const void *codes, size_t rows, size_t size,
                                  float *scores) {
    const uint64_t *q = query, *row = codes;
    const size_t    words = (size + 63) / 64;
    for (size_t i = 0; i < rows; i++, row += words) {
        int differ = 0;
        for (size_t w = 0; w < words; w++)
            differ += __builtin_popcountll(q[w] ^ row[w]);
        scores[i] = (float)-differ;
    }
}

void FL_COARSE_ISA(fl_scan_int8)(const void *query, const void *codes, size_t rows, size_t size,
                                 float *scores) {
    const int8_t *q = query, *row = codes;
    for (size_t i = 0; i < rows; i++, row += size + sizeof(float)) {
        int32_t sum = 0;
        float   largest;
        for (size_t k = 0; k < size; k++)
            sum += q[k] * row[k];
        memcpy(&largest, row + size, sizeof largest);
        scores[i] = (float)sum * largest;
    }
}
