/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - classification of text bytes in plain C, and the tables that all versions share.
 *
 * Role     The specification of scan.h and the version for processors without AVX2.
 * Method   A table look-up per byte.
 * Memory   None. Threads: any.
 * Proof    tests/unit/test_tokenizer_parts.c. */
#include "tokenizer/scan.h"

#include <assert.h>
#include <string.h>

void fl_byte_set_add(fl_byte_set *set, uint8_t byte) {
    assert(set);
    uint8_t *plane = &set->plane[(byte >= 0x80 ? 16 : 0) + (byte & 15)];
    *plane         = (uint8_t)(*plane | 1u << (byte >> 4 & 7));
    set->high      = set->high || byte >= 0x80;
}

bool fl_byte_set_has(const fl_byte_set *set, uint8_t byte) {
    return (set->plane[(byte >= 0x80 ? 16 : 0) + (byte & 15)] >> (byte >> 4 & 7) & 1) != 0;
}

void fl_scan_table_finish(fl_scan_table *table) {
    memset(&table->space, 0, sizeof table->space);
    memset(&table->punct, 0, sizeof table->punct);
    memset(&table->exact, 0, sizeof table->exact);
    for (unsigned byte = 0; byte < 256; byte++) {
        switch ((fl_byte_class)table->kind[byte]) {
        case FL_BYTE_SPACE: fl_byte_set_add(&table->space, (uint8_t)byte); break;
        case FL_BYTE_PUNCT: fl_byte_set_add(&table->punct, (uint8_t)byte); break;
        case FL_BYTE_EXACT: fl_byte_set_add(&table->exact, (uint8_t)byte); break;
        case FL_BYTE_WORD: break;
        }
    }
}

static void window(const fl_scan_table *table, const char *text, size_t size, char *lower,
                   fl_scan_masks *masks) {
    for (size_t block = 0; block * 64 < size; block++) {
        uint64_t boundary = 0, punct = 0, exact = 0;
        for (size_t i = 0; i < 64; i++) {
            size_t  at   = block * 64 + i;
            uint8_t byte = at < size ? (uint8_t)text[at] : (uint8_t)' ';
            uint8_t kind = at < size ? table->kind[byte] : (uint8_t)FL_BYTE_SPACE;
            bool    up   = table->lowercase && byte >= 'A' && byte <= 'Z';
            lower[at]    = (char)(up ? byte | 0x20 : byte);
            boundary |= (uint64_t)(kind == FL_BYTE_SPACE || kind == FL_BYTE_PUNCT) << i;
            punct |= (uint64_t)(kind == FL_BYTE_PUNCT) << i;
            exact |= (uint64_t)(kind == FL_BYTE_EXACT) << i;
        }
        masks->boundary[block] = boundary;
        masks->punct[block]    = punct;
        masks->exact[block]    = exact;
    }
}

static size_t find(const fl_byte_set *set, const char *text, size_t size) {
    size_t at = 0;
    while (at < size && !fl_byte_set_has(set, (uint8_t)text[at]))
        at++;
    return at;
}

size_t fl_find_pair(const fl_byte_set *first, const fl_byte_set *second, const char *text,
                    size_t size) {
    size_t at = 0;
    while (at < size && !(fl_byte_set_has(first, (uint8_t)text[at]) &&
                          (at + 1 == size || fl_byte_set_has(second, (uint8_t)text[at + 1]))))
        at++;
    return at;
}

const fl_scan fl_scan_ref = {window, find, fl_find_pair};
