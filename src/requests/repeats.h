/* SPDX-License-Identifier: Apache-2.0 */
/* repeats.h - texts that a request has more than once are computed once.
 *
 * Method  Before a request begins its texts are hashed and compared as the caller has them, byte for byte;
 *         what equals an earlier one is not tokenised at all, and gets that one's row (or list, or
 *         error) when the others are there. The texts are borrowed until then, so nothing is copied
 *         to compare, and the answer is exact.
 * Memory  While texts are compared 16 to 32 bytes a text; then 8 bytes a text, and only where there is a repeat:
 *         buffers of the pool. Without memory nothing is taken for a repeat.
 * Threads fl_repeats_find before the request begins, fl_repeats_copy when it is over: without the lock.
 * Proof   tests/unit/test_repeats.c. */
#ifndef FL_REQUESTS_REPEATS_H
#define FL_REQUESTS_REPEATS_H

#include "requests/request.h"

/* Sets request->same and counts its repeats as finished. */
FL_UNCHECKED void fl_repeats_find(fl_request *request);

/* Whether text `index` is a repeat. */
static inline bool fl_repeats_has(const fl_request *request, size_t index) {
    return request->same && request->same[index] != index;
}

/* A request that is over: its repeats get what their firsts have. May leave an error there (lists need
 * memory). */
FL_UNCHECKED void fl_repeats_copy(fl_request *request);

#endif
