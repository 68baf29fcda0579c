/* SPDX-License-Identifier: Apache-2.0 */
/* terms.c - a list of (id, value) that grows.
 *
 * Role    What an engine finds of a text's vocabulary, one id after the other, for the runtime to weigh.
 * Memory  heap; it doubles, and stays for the next text. Threads: one at a time.
 * Proof   tests/golden/test_lists.py. */
#include <assert.h>

#include "base/mem.h"
#include "model/encoder.h"

enum { TERMS_FIRST = 256 };

bool fl_terms_add(fl_terms *terms, int32_t id, float value) {
    assert(id >= 0);
    if (terms->count == terms->capacity) {
        uint32_t capacity = terms->capacity == 0 ? TERMS_FIRST : terms->capacity * 2;
        int32_t *ids      = fl_realloc_array(terms->ids, capacity, sizeof *ids);
        terms->ids        = ids ? ids : terms->ids;
        float *values     = ids ? fl_realloc_array(terms->values, capacity, sizeof *values) : NULL;
        if (!values)
            return false;
        terms->values   = values;
        terms->capacity = capacity;
    }
    terms->ids[terms->count]      = id;
    terms->values[terms->count++] = value;
    return true;
}

void fl_terms_free(fl_terms *terms) {
    fl_free(terms->ids);
    fl_free(terms->values);
    *terms = (fl_terms){0};
}
